//! Waits for threads of any process, following continuations.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{ListedThread, Threads};
use crate::error::DriveError;
use crate::store::registry::Liveness;
use crate::thread::RunResult;
use crate::thread_count::blocking;
use crate::thread_id::ThreadId;

/// The result of waiting for one thread.
#[derive(Debug, Clone, PartialEq)]
pub enum WaitOutcome {
    /// The thread or, if it was continued, its last continuation has ended, is suspended, or is a closed session. The
    /// result is that of the last continuation.
    Over(Box<RunResult>),
    /// The thread has not ended, but no live process owns it, so it ends only if a process takes it over.
    Orphaned(Box<ListedThread>),
    TimedOut(Box<ListedThread>),
    Unknown,
}

/// Minimum interval between two polls of the registry; `MAX_POLL_INTERVAL` is the maximum.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(20);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(250);

impl Threads {
    /// Waits until a thread and all its continuations have ended, but not longer than `until`. Returns at once if the
    /// thread is unknown, and early if the thread is orphaned.
    pub async fn wait(self: &Arc<Self>, thread: &ThreadId, until: Instant) -> Result<WaitOutcome, DriveError> {
        let mut pause = MIN_POLL_INTERVAL;
        loop {
            let (threads, id) = (Arc::clone(self), thread.clone());
            let checked = blocking(move || Ok(threads.poll(&id)?)).await?;
            match checked {
                // The owner may be in the middle of a handoff, so the first orphaned result is checked again.
                WaitOutcome::Orphaned(listed) if pause == MIN_POLL_INTERVAL => drop(listed),
                WaitOutcome::TimedOut(listed) if Instant::now() >= until => return Ok(WaitOutcome::TimedOut(listed)),
                WaitOutcome::TimedOut(_) => {}
                done @ (WaitOutcome::Over(_) | WaitOutcome::Orphaned(_) | WaitOutcome::Unknown) => return Ok(done),
            }
            tokio::time::sleep_until((Instant::now() + pause).min(until.max(Instant::now() + MIN_POLL_INTERVAL))).await;
            pause = (pause * 2).min(MAX_POLL_INTERVAL);
        }
    }

    /// Returns the state of the last thread in a thread's continuation chain, without waiting. A running thread counts
    /// as timed out.
    pub fn poll(&self, thread: &ThreadId) -> Result<WaitOutcome, crate::store::StoreError> {
        let last = self.last_in_chain(thread)?;
        let Some(listed) = self.show(&last)? else { return Ok(WaitOutcome::Unknown) };
        Ok(match listed.liveness {
            Liveness::Over => match self.result(&last)? {
                Some(result) => WaitOutcome::Over(Box::new(result)),
                // The registry row has an end status, but the transcript is missing or has no end.
                None => WaitOutcome::Over(Box::new(RunResult {
                    thread_id: last.to_string(),
                    directive: listed.row.directive.clone(),
                    status: listed.row.status,
                    ..RunResult::engine_failure("the transcript is missing or has no end; run `rye threads verify`")
                })),
            },
            Liveness::Orphaned => WaitOutcome::Orphaned(Box::new(listed)),
            Liveness::Alive => WaitOutcome::TimedOut(Box::new(listed)),
        })
    }
}
