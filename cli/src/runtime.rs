//! The asynchronous runtime of commands that run threads.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// Threads for calls that block, at most: many more would hold memory for each and get no more done.
const BLOCKING: usize = 64;

/// Workers of a process that drives several threads.
pub const SEVERAL: usize = 2;
/// A thread that starts no other needs one: a second would only be woken and sent to sleep again.
pub const ALONE: usize = 1;

/// So many workers; everything that blocks for long goes elsewhere.
pub fn start(workers: usize) -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(workers).max_blocking_threads(BLOCKING).enable_all().build()
}
