//! Propagation of a thread's end to its descendants. A descendant in another process gets a control message. An
//! orphaned descendant is recovered with a control message that ends the descendant.

use std::collections::HashSet;
use std::sync::Arc;

use crate::context::EngineContext;
use crate::error::DriveError;
use crate::event::ControlMessage;
use crate::live::EventSink;
use crate::store::registry::Liveness;
use crate::store::{Registry, StoreError, ThreadRow};
use crate::thread::FIRST_HOOK_SPAWN;
use crate::thread::FIRST_OUTSIDE_SPAWN;
use crate::thread::Status;
use crate::thread_count::blocking;
use crate::thread_id::ThreadId;

/// Maximum attempts to end a descendant that other tasks or processes acquire or release at the same time.
const MAX_ATTEMPTS: usize = 3;

/// An unfinished descendant of a thread that is ending.
struct Descendant {
    row: ThreadRow,
    liveness: Liveness,
    /// The spawn number of the descendant.
    spawn: u64,
}

impl Descendant {
    /// Returns true if `rye run --parent` started the descendant.
    fn is_outside(&self) -> bool {
        (FIRST_OUTSIDE_SPAWN..FIRST_HOOK_SPAWN).contains(&self.spawn)
    }

    /// Returns true if the transcript of the parent names this descendant only after the descendant has ended, because
    /// a command or a hook started the descendant.
    fn is_unrecorded(&self) -> bool {
        self.spawn >= FIRST_OUTSIDE_SPAWN
    }
}

impl EngineContext {
    /// Ends the unfinished children of a thread before the end of the thread is committed, so that the children release
    /// their reservations first. `status` is the end status of the thread. If the process dies before the commit,
    /// recovery of the thread ends the children again.
    ///
    /// Two kinds of children are not ended here. The driver ends a child that runs in this process and that a tool call
    /// started. A suspended or idle child stays as it is if the thread has neither failed nor was cancelled or killed. If
    /// `rye run --parent` has started such a child, it gets a message that cancels it.
    pub(crate) async fn end_descendants(
        self: &Arc<Self>,
        thread: &ThreadId,
        status: Status,
        sink: &Arc<EventSink>,
    ) -> Result<(), DriveError> {
        let id = thread.clone();
        let unfinished = self.read_registry(move |registry| unfinished_descendants(registry, &id)).await?;
        let has_failed = matches!(status, Status::Killed | Status::Cancelled | Status::Error);
        for descendant in unfinished {
            let (is_outside, is_unrecorded) = (descendant.is_outside(), descendant.is_unrecorded());
            let Descendant { row, liveness, .. } = descendant;
            // After the end of a completed parent, a suspended thread still waits for its approval.
            let waits = row.status.is_parked() && !has_failed;
            if waits && is_outside {
                self.post_message(&row.id, end_message(status)).await?;
            }
            if !waits && (is_unrecorded || !self.runs_here(&row.id)) {
                self.end_descendant(&row.id, liveness, status, sink).await?;
            }
        }
        Ok(())
    }

    /// Cancels the children with the ids `children`, which belong to an interrupted prompt of `thread`. Children that
    /// have ended are skipped.
    pub(super) async fn cancel_children(
        self: &Arc<Self>,
        thread: &ThreadId,
        children: &[String],
        sink: &Arc<EventSink>,
    ) -> Result<(), DriveError> {
        let id = thread.clone();
        let unfinished = self.read_registry(move |registry| unfinished_descendants(registry, &id)).await?;
        for Descendant { row, liveness, .. } in unfinished {
            if children.iter().any(|child| *child == row.id.as_str()) {
                self.end_descendant(&row.id, liveness, Status::Cancelled, sink).await?;
            }
        }
        Ok(())
    }

    async fn end_descendant(
        self: &Arc<Self>,
        thread: &ThreadId,
        liveness: Liveness,
        status: Status,
        sink: &Arc<EventSink>,
    ) -> Result<(), DriveError> {
        for _ in 0..MAX_ATTEMPTS {
            if self.send_message(thread, end_message(status)) {
                return Ok(());
            }
            if liveness == Liveness::Alive {
                break;
            }
            match Box::pin(self.recover(thread, Arc::clone(sink), vec![end_message(status)])).await {
                Ok(Some(running)) => return running.end().await.into_result().map(drop),
                Ok(None) => return Ok(()),
                // Another task or process acquired the thread first.
                Err(DriveError::Store(StoreError::Owned { .. })) => {}
                Err(error) if error.is_transcript_fault() => {
                    return Box::pin(self.finalize(thread, status, &error, sink)).await;
                }
                Err(error) => return Err(error),
            }
        }
        self.post_message(thread, end_message(status)).await
    }

    async fn post_message(self: &Arc<Self>, thread: &ThreadId, message: ControlMessage) -> Result<(), DriveError> {
        let (engine, thread) = (Arc::clone(self), thread.clone());
        blocking(move || engine.write_message(&thread, &message)).await
    }

    /// Returns the nearest ancestor that was killed or cancelled, with its status; `None` if there is none. For an
    /// ancestor that was handed off, checks and returns the last thread of its handoffs instead.
    pub(super) async fn stopped_ancestor(&self, row: &ThreadRow) -> Result<Option<(ThreadId, Status)>, DriveError> {
        let mut above = row.parent.clone();
        self.read_registry(move |registry| {
            let mut seen = Vec::new();
            while let Some(parent) = above.take().filter(|parent| !seen.contains(parent)) {
                let Some(row) = registry.thread(&parent)? else { break };
                let last = last_of_handoffs(registry, row.clone())?;
                if matches!(last.status, Status::Killed | Status::Cancelled) {
                    return Ok(Some((last.id, last.status)));
                }
                above = row.parent;
                seen.push(parent);
            }
            Ok(None)
        })
        .await
    }
}

/// Returns the control message that ends the descendants of a thread whose end status is `status`.
fn end_message(status: Status) -> ControlMessage {
    if status == Status::Killed { ControlMessage::Kill } else { ControlMessage::Cancel }
}

/// Returns the unfinished children of a thread and of the earlier threads in its chain of handoffs. Also returns the
/// unfinished descendants of children that have ended, because a process that dies directly after the end of a child
/// can leave such descendants. For a child that was handed off, returns the child's last continuation.
fn unfinished_descendants(registry: &Registry, thread: &ThreadId) -> Result<Vec<Descendant>, StoreError> {
    let (mut unfinished, mut seen, mut next) = (Vec::new(), HashSet::new(), vec![thread.clone()]);
    while let Some(id) = next.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        for (spawn, child) in registry.children(&id)? {
            let Some(row) = registry.thread(&child)? else { continue };
            let row = last_of_handoffs(registry, row)?;
            if row.status.has_ended() && !row.status.is_parked() {
                next.push(row.id);
            } else {
                let liveness = registry.liveness(&row)?;
                unfinished.push(Descendant { row, liveness, spawn });
            }
        }
        let before = registry.thread(&id)?.and_then(|row| row.continues).map(|before| registry.thread(&before));
        next.extend(before.transpose()?.flatten().filter(|row| row.status == Status::Continued).map(|row| row.id));
    }
    Ok(unfinished)
}

/// Follows a chain of handoffs from the thread of `row`, and returns the row of the last thread.
fn last_of_handoffs(registry: &Registry, mut row: ThreadRow) -> Result<ThreadRow, StoreError> {
    let mut seen = vec![row.id.clone()];
    while row.status == Status::Continued
        && let Some(by) = row.continued_by.clone().filter(|by| !seen.contains(by))
        && let Some(next) = registry.thread(&by)?
    {
        seen.push(by);
        row = next;
    }
    Ok(row)
}

/// Returns the last thread of the continuation chain that starts with `first`; `None` if the last thread has ended, or
/// if a thread of the chain is unknown. A suspended or idle thread does not count as ended.
pub(crate) fn last_of_chain(registry: &Registry, first: ThreadId) -> Result<Option<ThreadId>, StoreError> {
    let (mut seen, mut next) = (Vec::new(), first);
    while !seen.contains(&next) {
        let Some(row) = registry.thread(&next)? else { break };
        match row.continued_by {
            Some(by) => seen.push(std::mem::replace(&mut next, by)),
            None if row.status.has_ended() && !row.status.is_parked() => break,
            None => return Ok(Some(next)),
        }
    }
    Ok(None)
}
