//! Waits for children. If a call needs the result of a child, the call waits. For a detached child, a background task
//! waits, and reports the end to the parent. An orphaned child is recovered first.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::context::EngineContext;
use crate::error::DriveError;
use crate::live::EventSink;
use crate::machine::ThreadState;
use crate::store::StoreError;
use crate::thread::{Cost, RunResult};
use crate::thread_count::blocking;
use crate::thread_id::ThreadId;
use crate::threads::{WaitOutcome, result_of};

/// Time after which a wait for a thread of another process checks again that the owner of the thread is alive.
const OWNER_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Lists the detached children of a recovered thread that have not ended, with their spawn numbers.
pub(super) fn detached_children(state: &ThreadState) -> Vec<(u64, ThreadId)> {
    let detached = state.living_children().filter(|(_, child)| child.detached);
    detached.filter_map(|(spawn, child)| Some((spawn, ThreadId::parse(child.thread_id.as_deref()?).ok()?))).collect()
}

impl EngineContext {
    /// Waits for a detached child in the background and reports its end to the parent.
    pub(super) fn watch_detached(
        self: &Arc<Self>,
        parent: &ThreadId,
        spawn: u64,
        child: &ThreadId,
        sink: &Arc<EventSink>,
    ) {
        let (engine, parent, child) = (Arc::clone(self), parent.clone(), child.clone());
        let sink = Arc::clone(sink);
        let attending = self.await_child_guard();
        tokio::spawn(async move {
            let _attending = attending;
            let ended = engine.result_of_child(&child, &sink).await;
            let (result, cost) =
                ended.unwrap_or_else(|error| (Self::unrecoverable_result(&child, &error), Cost::default()));
            if let Some(running) = engine.running(&parent) {
                running.control.child_ended(spawn, result.thread_id, result.status, cost);
            }
        });
    }

    /// Waits until a child and the threads that continue it have ended. Returns the result of the last of these
    /// threads, and the cost of all of them. Recovers the child first if it is orphaned.
    pub(crate) async fn result_of_child(
        self: &Arc<Self>,
        thread: &ThreadId,
        sink: &Arc<EventSink>,
    ) -> Result<(RunResult, Cost), DriveError> {
        let result = self.result_of_chain(thread, sink).await?;
        self.add_chain_cost(thread, result).await
    }

    /// Returns a failure as the result of a child that cannot be recovered, for the thread that waits for the child.
    /// The child itself has not ended: its lease is released, so that the child can be recovered after a repair.
    pub(super) fn unrecoverable_result(child: &ThreadId, why: &DriveError) -> RunResult {
        tracing::warn!(%child, error = %why, "a child cannot be recovered");
        let lost = RunResult::engine_failure(&format!("`{child}` cannot be recovered: {why}"));
        RunResult { thread_id: child.to_string(), ..lost }
    }

    /// Waits for the end of the last thread in the continuation chain of `thread`, and returns its result.
    async fn result_of_chain(
        self: &Arc<Self>,
        thread: &ThreadId,
        sink: &Arc<EventSink>,
    ) -> Result<RunResult, DriveError> {
        loop {
            if let Some(running) = self.running(thread) {
                return running.end().await.into_result();
            }
            let id = thread.clone();
            let row = self.read_registry(move |registry| registry.thread(&id)).await?;
            if row.as_ref().is_some_and(|row| row.status.has_ended()) {
                if let Some(next) = row.and_then(|row| row.continued_by) {
                    return Box::pin(self.result_of_chain(&next, sink)).await;
                }
                let (threads, id) = (self.threads(), thread.clone());
                return match blocking(move || Ok(threads.transcript(&id)?)).await {
                    Err(DriveError::Store(StoreError::UnknownThread { .. })) => Ok(Self::never_started_result(thread)),
                    events => Ok(result_of(thread, &events?).unwrap_or_else(|| Self::never_started_result(thread))),
                };
            }
            // The recovery runs as a task of its own: if the waiting caller is dropped, no thread stays leased but
            // idle.
            let (engine, id, out) = (Arc::clone(self), thread.clone(), Arc::clone(sink));
            let recovered = tokio::spawn(async move { Box::pin(engine.recover(&id, out, Vec::new())).await }).await;
            match recovered.map_err(|lost| DriveError::Lost(lost.to_string()))? {
                Ok(Some(running)) => return running.end().await.into_result(),
                Ok(None) => return Ok(Self::never_started_result(thread)),
                // Another process owns the thread: wait for its end.
                Err(DriveError::Store(StoreError::Owned { .. })) => {
                    let threads = Arc::new(self.threads());
                    if let WaitOutcome::Over(result) =
                        threads.wait(thread, Instant::now() + OWNER_CHECK_INTERVAL).await?
                    {
                        return Ok(*result);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns `result`, and the total cost of the child `first`: the sum of the costs that the registry records for
    /// the child and for the threads that continue the child.
    async fn add_chain_cost(&self, first: &ThreadId, result: RunResult) -> Result<(RunResult, Cost), DriveError> {
        let first = first.clone();
        let cost = self.read_registry(move |registry| {
            let (mut cost, mut next) = (Cost::default(), Some(first));
            while let Some(row) = next.take().map(|id| registry.thread(&id)).transpose()?.flatten() {
                cost.add(&row.cost);
                next = row.continued_by.filter(|by| *by != row.id);
            }
            Ok(cost)
        });
        Ok((result, cost.await?))
    }
}
