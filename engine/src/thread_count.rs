//! The number of threads that this process runs. A single thread does blocking I/O inline, because this is faster than
//! passing the work to another task. Several threads use the blocking pool, so that no thread delays the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinError;

use crate::error::DriveError;

/// A shared counter of running agent threads. Clones use the same counter.
#[derive(Debug, Clone, Default)]
pub struct ThreadCount(Arc<AtomicUsize>);

impl ThreadCount {
    /// Sets the number of running threads.
    pub fn set(&self, threads: usize) {
        self.0.store(threads, Ordering::Relaxed);
    }

    /// Runs short blocking work inline if at most one thread is running, else on the blocking pool.
    ///
    /// # Errors
    /// Fails if the work panicked on the pool.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        if self.0.load(Ordering::Relaxed) <= 1 {
            return Ok(work());
        }
        tokio::task::spawn_blocking(work).await
    }
}

/// Runs `work`, which may block, on tokio's blocking pool.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DriveError> + Send + 'static,
) -> Result<T, DriveError> {
    tokio::task::spawn_blocking(work).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn single_thread_blocks_inline() {
        let thread_count = ThreadCount::default();
        let here = std::thread::current().id();
        let place = || std::thread::current().id();
        for (threads, stays) in [(0, true), (1, true), (2, false), (1, true)] {
            thread_count.set(threads);
            assert_eq!(thread_count.run_blocking(place).await.unwrap() == here, stays, "{threads}");
        }
    }
}
