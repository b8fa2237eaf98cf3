//! The asynchronous runtime of commands that run threads.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

/// Maximum number of threads for blocking calls; more would use memory without more throughput.
const MAX_BLOCKING_THREADS: usize = 16;

/// Number of worker threads of the runtime in a process that runs several directives at the same time.
pub const WORKERS_FOR_SEVERAL_THREADS: usize = 2;
/// Number of workers of a process that runs a single thread without children. A second worker would only be woken and
/// sent to sleep.
pub const WORKERS_FOR_ONE_THREAD: usize = 1;
/// Number of worker threads of a server with one client. A single worker is enough, because the session mostly waits
/// for the client and runs few directives at once.
pub const WORKERS_FOR_ONE_CLIENT: usize = 1;

/// Starts a runtime with this number of workers. From now on, a write beyond the file size limit of the process fails
/// with an error instead of ending the process. Programs that the process starts get the default again.
pub fn start_runtime(workers: usize) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers).max_blocking_threads(MAX_BLOCKING_THREADS).enable_all().build()?;
    {
        let _guard = runtime.enter();
        // The handler stays installed after the stream of signals is dropped.
        drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
    }
    Ok(runtime)
}
