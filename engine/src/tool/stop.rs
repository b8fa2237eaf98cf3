//! When work has to end: its time is up, nobody waits for it any more, or its thread was cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// How long a call under way may still go on once its thread was cancelled: a short one comes to its own end.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Tells a call under way that its thread was cancelled.
#[derive(Debug, Clone)]
pub struct Halt(watch::Receiver<()>);

/// Where cancellations are told. A step that begins after one is not halted by it: it belongs to the end of the thread.
#[derive(Debug)]
pub struct Halting(watch::Sender<()>);

impl Halting {
    pub fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    /// Halts what is under way.
    pub fn halt(&self) {
        self.0.send_replace(());
    }

    /// For a step that begins now, and every call of it.
    pub fn listen(&self) -> Halt {
        Halt(self.0.subscribe())
    }
}

impl Default for Halting {
    fn default() -> Self {
        Self::new()
    }
}

impl Halt {
    /// Nobody cancels.
    pub fn never() -> Self {
        Halting::new().listen()
    }

    /// Comes back when the thread was cancelled since the call began, and never otherwise.
    pub async fn told(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

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
