//! The start of a group of children: one commit of their rows and reservations, then a task for each child.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{
    ChildFunding, ChildPlan, ChildRefusal, CreatedChild, IdentifiedChild, PlannedChildren, RowsToWrite, ThreadInit,
    child_init,
};
use crate::context::{EngineContext, RunningThread};
use crate::driver::embedded::EmbeddedDriver;
use crate::error::DriveError;
use crate::event::{Opened, ParentLink};
use crate::live::EventSink;
use crate::store::Change;
use crate::thread::Status;
use crate::thread_count::blocking;
use crate::thread_id::ThreadId;

/// The data of a thread that starts children. The start of a child can last longer than the effect that requested the
/// start, so this data is owned, not borrowed.
pub(super) struct SpawningThread {
    pub id: ThreadId,
    /// The data of the thread's event `opened`, but with the grant sets of the thread's current prompt.
    pub launch: Arc<Opened>,
    pub sink: Arc<EventSink>,
    /// Permits for concurrent children.
    pub queue: Arc<Semaphore>,
    /// Settlements of the thread that are not in the ledger yet.
    pub settlements: Vec<Change>,
}

impl EngineContext {
    /// Reserves the money of the children and starts them. Returns the results by spawn number, in ascending order.
    ///
    /// The children are started in a separate task, which continues if a kill of the thread drops this future. Without
    /// the task, nothing would end a child whose money is already reserved.
    pub(super) async fn start_children(
        self: &Arc<Self>,
        parent: &EmbeddedDriver,
        PlannedChildren { children, mut results, guards }: PlannedChildren,
        terms: ChildFunding,
    ) -> Result<Vec<(u64, Result<CreatedChild, ChildRefusal>)>, DriveError> {
        if !children.is_empty() {
            let spawning = SpawningThread {
                id: parent.id.clone(),
                launch: parent.narrowed_launch(),
                sink: Arc::clone(&parent.sink),
                queue: Arc::clone(&parent.running),
                settlements: parent.settlements(&terms.unsettled),
            };
            let (engine, starting) = (Arc::clone(self), self.await_child_guard());
            let start = tokio::spawn(async move {
                let (_starting, _guards) = (starting, guards);
                engine.reserve_and_start(&spawning, children, &terms).await
            });
            results.extend(start.await??);
        }
        results.sort_by_key(|(spawn, _)| *spawn);
        Ok(results)
    }

    async fn reserve_and_start(
        self: &Arc<Self>,
        parent: &SpawningThread,
        children: Vec<IdentifiedChild>,
        terms: &ChildFunding,
    ) -> Result<Vec<(u64, Result<CreatedChild, ChildRefusal>)>, DriveError> {
        let mut results = Vec::with_capacity(children.len());
        let set_aside = self.reserve_for_children(parent, &children, terms).await?;
        let mut started: JoinSet<Result<(u64, CreatedChild), DriveError>> = JoinSet::new();
        for (child, answer) in children.into_iter().zip(set_aside) {
            let IdentifiedChild { spawn, id, known, planned } = child;
            match answer {
                Ok(made) if made.thread == id && !made.started => {
                    let init = spawn_init(parent, spawn, planned, made.spend, terms)?;
                    let engine = Arc::clone(self);
                    started.spawn(async move {
                        let running: RunningThread = engine.start_thread(id, init, RowsToWrite::Existing).await?;
                        drop(running);
                        Ok((spawn, made))
                    });
                }
                // Another task made a child for the same spawn first; that child is used.
                Ok(made) => {
                    if made.thread != id {
                        self.discard_child(id).await?;
                    }
                    results.push((spawn, Ok(made)));
                }
                Err(refused) => {
                    if known {
                        self.finalize_row(&id, Status::Error).await?;
                    } else {
                        self.discard_child(id).await?;
                    }
                    results.push((spawn, Err(refused)));
                }
            }
        }
        // Await every child, even if another one could not start.
        let mut failed = None;
        while let Some(done) = started.join_next().await {
            match done.map_err(DriveError::from).flatten() {
                Ok((spawn, made)) => results.push((spawn, Ok(made))),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(results), Err)
    }

    async fn discard_child(self: &Arc<Self>, id: ThreadId) -> Result<(), DriveError> {
        let engine = Arc::clone(self);
        blocking(move || Ok(engine.ids.release(&id)?)).await
    }
}

fn spawn_init(
    parent: &SpawningThread,
    spawn: u64,
    planned: ChildPlan,
    spend: u64,
    terms: &ChildFunding,
) -> Result<ThreadInit, DriveError> {
    let link = ParentLink { thread_id: parent.id.to_string(), spawn };
    let mut below = child_init(&parent.launch, link, planned, spend, &terms.grants, Arc::clone(&parent.sink))?;
    if let Some(remaining_ms) = terms.remaining_ms.filter(|_| below.call.is_none()) {
        // The deadline of the parent also ends the child.
        let seconds = remaining_ms.div_ceil(1000).max(1);
        below.limits.duration_seconds = below.limits.duration_seconds.min(seconds);
    }
    Ok(ThreadInit { queue: Some(Arc::clone(&parent.queue)), ..below })
}
