//! The asynchronous runtime of commands that run threads.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// Threads for calls that block, at most: many more would hold memory for each and get no more done.
const BLOCKING: usize = 64;

/// Two workers; everything that blocks goes elsewhere.
pub fn start() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).max_blocking_threads(BLOCKING).enable_all().build()
}
