//! When work on a blocking thread has to end: its time is up, or nobody waits for it any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Asked between steps of long work.
#[derive(Debug, Clone)]
pub struct Stop {
    deadline: Option<Instant>,
    cancelled: Arc<AtomicBool>,
}

/// Held by whoever waits; dropping it tells the work to end.
#[derive(Debug)]
pub struct Waiting(Arc<AtomicBool>);

impl Stop {
    pub fn after(timeout: Duration) -> (Self, Waiting) {
        let cancelled = Arc::new(AtomicBool::new(false));
        // A time too far to be written down is no deadline.
        let deadline = Instant::now().checked_add(timeout);
        (Self { deadline, cancelled: Arc::clone(&cancelled) }, Waiting(cancelled))
    }

    pub fn is_due(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || self.deadline.is_some_and(|d| Instant::now() >= d)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
