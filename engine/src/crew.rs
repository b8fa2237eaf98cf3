//! How many threads this process drives, and so where one of them waits for the disk: alone where it stands, which is
//! quicker than handing the work to another thread of the system; among others where it holds none of them up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinError;

/// The threads of a process, counted. Cloning counts the same ones.
#[derive(Debug, Clone, Default)]
pub struct Crew(Arc<AtomicUsize>);

impl Crew {
    /// So many threads are driven now.
    pub fn count(&self, threads: usize) {
        self.0.store(threads, Ordering::Relaxed);
    }

    /// Does work that may wait for the disk, for a moment and not for anybody else's sake.
    ///
    /// # Errors
    /// The work panicked on another thread.
    pub async fn wait<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        if self.0.load(Ordering::Relaxed) <= 1 {
            return Ok(work());
        }
        tokio::task::spawn_blocking(work).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_alone_waits_where_it_stands_and_others_elsewhere() {
        let crew = Crew::default();
        let here = std::thread::current().id();
        let place = || std::thread::current().id();
        for (threads, stays) in [(0, true), (1, true), (2, false), (1, true)] {
            crew.count(threads);
            assert_eq!(crew.wait(place).await.unwrap() == here, stays, "{threads}");
        }
    }
}
