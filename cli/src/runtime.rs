//! The asynchronous runtime of commands that run threads.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::resource_limits::no_thread;

/// Maximum number of threads for blocking calls; more would use memory without more throughput.
const MAX_BLOCKING_THREADS: usize = 16;
/// Number of threads for blocking calls that a runtime starts at once. These threads live as long as the runtime. If
/// the system starts no further thread, tokio queues blocking calls until one of these threads is free.
const MIN_BLOCKING_THREADS: usize = 2;
/// Time for which an unused thread for blocking calls is kept.
const BLOCKING_KEEP_ALIVE: Duration = Duration::from_hours(24 * 365);

/// Number of worker threads of the runtime in a process that runs several directives at the same time.
pub const WORKERS_FOR_SEVERAL_THREADS: usize = 2;
/// Number of workers of a process that runs a single thread without children. A second worker would have no work, and
/// waking it takes time.
pub const WORKERS_FOR_ONE_THREAD: usize = 1;
/// Number of worker threads of a server with one client. A single worker is enough, because the session mostly waits
/// for the client and runs few directives at once.
pub const WORKERS_FOR_ONE_CLIENT: usize = 1;

/// Starts a runtime with this number of workers. From now on, a write beyond the file size limit of the process fails
/// with an error instead of ending the process. For programs that the process starts, the default behavior applies
/// again.
pub fn start_runtime(workers: usize) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(workers).max_blocking_threads(MAX_BLOCKING_THREADS).thread_keep_alive(BLOCKING_KEEP_ALIVE);
    let runtime = builder.enable_all().build()?;
    if let Err(error) = start_blocking_threads(&runtime) {
        // Dropping the runtime would wait for workers that never started.
        runtime.shutdown_background();
        return Err(no_thread(&error));
    }
    {
        let _guard = runtime.enter();
        // The handler stays installed after the stream of signals is dropped.
        drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
    }
    Ok(runtime)
}

/// Starts the threads for blocking calls. Then starts another thread as a check: if the system has refused a thread of
/// the runtime, it also refuses this one.
fn start_blocking_threads(runtime: &Runtime) -> io::Result<()> {
    let released = Arc::new((Mutex::new(false), Condvar::new()));
    for _ in 0..MIN_BLOCKING_THREADS {
        let released = Arc::clone(&released);
        // Each call blocks its thread until all calls are spawned, so that each call gets a thread of its own.
        runtime.spawn_blocking(move || {
            let guard = released.0.lock().unwrap_or_else(PoisonError::into_inner);
            drop(released.1.wait_while(guard, |is_released| !*is_released));
        });
    }
    let started = std::thread::Builder::new().spawn(|| ());
    *released.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    released.1.notify_all();
    // The thread does nothing, so it cannot panic.
    started?.join().ok();
    Ok(())
}
