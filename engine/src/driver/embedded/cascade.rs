//! Propagation of a thread's end to descendants that its transcript does not know: threads that were started from
//! outside (`rye run --parent`), in any process.

use std::sync::Arc;

use super::EmbeddedDriver;
use crate::driver::DriveError;
use crate::event::ControlMessage;
use crate::session::blocking;
use crate::session::children::FIRST_HOOK_SPAWN;
use crate::session::spawn_external::FIRST_OUTSIDE_SPAWN;
use crate::store::{Registry, StoreError, mailbox};
use crate::thread::Status;
use crate::thread_id::ThreadId;

impl EmbeddedDriver {
    /// Sends the control message before the end is committed. If the process dies in between, recovery sends it again.
    pub(super) async fn notify_outside_descendants(&self, status: Status) -> Result<(), DriveError> {
        let letter = if status == Status::Killed { ControlMessage::Kill } else { ControlMessage::Cancel };
        let id = self.id.clone();
        let living = self.engine.read_registry(move |registry| unfinished_outside_threads(registry, &id)).await?;
        for thread in living {
            if self.engine.send_message(&thread, letter.clone()) {
                continue;
            }
            let (disk, now) = (Arc::clone(&self.engine.disk), self.engine.clock.now());
            let body = serde_json::to_value(&letter).map_err(|error| DriveError::Lost(error.to_string()))?;
            let send = move || match mailbox::send(&*disk, &thread, &body, now) {
                // The thread died before its first line; there is nothing to end.
                Err(StoreError::UnknownThread { .. }) => Ok(()),
                sent => Ok(sent.map(drop)?),
            };
            blocking(send).await?;
        }
        Ok(())
    }
}

/// Returns the unfinished threads that were started from outside below this thread, or below the threads that it
/// continues.
fn unfinished_outside_threads(registry: &Registry, thread: &ThreadId) -> Result<Vec<ThreadId>, StoreError> {
    let (mut living, mut seen, mut next) = (Vec::new(), Vec::new(), Some(thread.clone()));
    while let Some(id) = next.take().filter(|id| !seen.contains(id)) {
        for (spawn, child) in registry.children(&id)? {
            if (FIRST_OUTSIDE_SPAWN..FIRST_HOOK_SPAWN).contains(&spawn)
                && let Some(last) = last_of_chain(registry, child)?
            {
                living.push(last);
            }
        }
        // A predecessor that ended without a handoff has already ended its descendants.
        let before = registry.thread(&id)?.and_then(|row| row.continues).map(|before| registry.thread(&before));
        next = before.transpose()?.flatten().filter(|row| row.status == Status::Continued).map(|row| row.id);
        seen.push(id);
    }
    Ok(living)
}

/// Returns the last thread of a continuation chain, if it has not ended.
pub(crate) fn last_of_chain(registry: &Registry, first: ThreadId) -> Result<Option<ThreadId>, StoreError> {
    let (mut seen, mut next) = (Vec::new(), first);
    while !seen.contains(&next) {
        let Some(row) = registry.thread(&next)? else { break };
        match row.continued_by {
            Some(by) => seen.push(std::mem::replace(&mut next, by)),
            None if row.status.has_ended() && row.status != Status::Suspended => break,
            None => return Ok(Some(next)),
        }
    }
    Ok(None)
}
