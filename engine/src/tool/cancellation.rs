//! Cancellation of running work. Work ends at its deadline, when its thread is cancelled, or when the future that waits
//! for the work is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Time that a running call has to finish after its thread was cancelled.
pub(crate) const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// The receiver of a thread's cancellation, held by a running call.
#[derive(Debug, Clone)]
pub struct CancellationToken(watch::Receiver<()>);

/// The sender of a thread's cancellations. A cancellation stops the calls that are running now, but no calls of later
/// steps: the step after a cancellation ends the thread anyway.
#[derive(Debug)]
pub struct CancellationSource(watch::Sender<()>);

impl CancellationSource {
    pub fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    /// Cancels all running calls.
    pub fn cancel(&self) {
        self.0.send_replace(());
    }

    /// Returns a receiver for a step that starts now and for the calls of the step. Earlier cancellations do not affect
    /// the receiver.
    pub fn token(&self) -> CancellationToken {
        CancellationToken(self.0.subscribe())
    }
}

impl Default for CancellationSource {
    fn default() -> Self {
        Self::new()
    }
}

impl CancellationToken {
    /// Returns a receiver that is never cancelled.
    pub fn never() -> Self {
        CancellationSource::new().token()
    }

    /// Waits until the thread is cancelled. A cancellation before the receiver was created does not count. Without a
    /// cancellation, never returns.
    pub async fn cancelled(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// A condition under which a long computation (such as a search in many files) must stop: the deadline has passed, or
/// the [`StopGuard`] was dropped. The computation checks the condition regularly.
#[derive(Debug, Clone)]
pub struct StopCondition {
    deadline: Option<Instant>,
    cancelled: Arc<AtomicBool>,
}

/// A guard for work that has a [`StopCondition`]. The code that waits for the work holds the guard. If the code drops
/// the guard, the condition becomes true, and the work stops.
#[derive(Debug)]
pub struct StopGuard(Arc<AtomicBool>);

impl StopCondition {
    pub fn after(timeout: Duration) -> (Self, StopGuard) {
        let cancelled = Arc::new(AtomicBool::new(false));
        // A deadline beyond the range of `Instant` counts as no deadline.
        let deadline = Instant::now().checked_add(timeout);
        (Self { deadline, cancelled: Arc::clone(&cancelled) }, StopGuard(cancelled))
    }

    pub fn is_due(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || self.deadline.is_some_and(|d| Instant::now() >= d)
    }
}

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
