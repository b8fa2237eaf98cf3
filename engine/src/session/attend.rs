//! Waiting for children: for the result that a call wants, or to tell a parent that went on without it. A child that no
//! process runs is taken up here first.

use std::sync::Arc;

use super::blocking;
use crate::driver::{DriveError, Outlet};
use crate::engine::Inner;
use crate::machine::State;
use crate::thread::{Cost, RunResult};
use crate::thread_id::ThreadId;
use crate::threads::result_of;

/// The children that a thread had when it was cut off and that none of its calls waits for.
pub(super) fn unattended(state: &State) -> Vec<(u64, ThreadId)> {
    let detached = state.living().filter(|(_, child)| child.detached);
    detached.filter_map(|(spawn, child)| Some((spawn, ThreadId::parse(child.thread_id.as_deref()?).ok()?))).collect()
}

impl Inner {
    /// Tells a thread of this process when a child has ended that no call of it waits for.
    pub(super) fn attend(self: &Arc<Self>, parent: &ThreadId, spawn: u64, child: &ThreadId, outlet: &Arc<Outlet>) {
        let (engine, parent, child) = (Arc::clone(self), parent.clone(), child.clone());
        let outlet = Arc::clone(outlet);
        let attending = self.attending();
        tokio::spawn(async move {
            let _attending = attending;
            match engine.result_of_child(&child, &outlet).await {
                Ok((result, cost)) => {
                    if let Some(running) = engine.running(&parent) {
                        running.control.child_ended(spawn, result.thread_id, result.status, cost);
                    }
                }
                Err(error) => tracing::warn!(%child, %error, "a child cannot be gone on with"),
            }
        });
    }

    /// The result of a child and what it cost, however far it has come.
    pub(super) async fn result_of_child(
        self: &Arc<Self>,
        thread: &ThreadId,
        outlet: &Arc<Outlet>,
    ) -> Result<(RunResult, Cost), DriveError> {
        let result = self.result_of_chain(thread, outlet).await?;
        self.with_cost(thread, result).await
    }

    /// The result of the last thread that goes on from this one.
    async fn result_of_chain(
        self: &Arc<Self>,
        thread: &ThreadId,
        outlet: &Arc<Outlet>,
    ) -> Result<RunResult, DriveError> {
        if let Some(running) = self.running(thread) {
            return Ok(running.result().await);
        }
        let id = thread.clone();
        let row = self.read(move |registry| registry.thread(&id)).await?;
        if row.as_ref().is_some_and(|row| row.status.is_over()) {
            if let Some(next) = row.and_then(|row| row.continued_by) {
                return Box::pin(self.result_of_chain(&next, outlet)).await;
            }
            let (threads, id) = (self.threads(), thread.clone());
            let events = blocking(move || Ok(threads.transcript(&id)?)).await?;
            return Ok(result_of(thread, &events).unwrap_or_else(|| Self::never_began(thread)));
        }
        if let Some(running) = Box::pin(self.recover(thread, Arc::clone(outlet), Vec::new())).await? {
            return Ok(running.result().await);
        }
        Ok(Self::never_began(thread))
    }

    /// Cost as the rows of the child and of what went on from it say.
    async fn with_cost(&self, first: &ThreadId, result: RunResult) -> Result<(RunResult, Cost), DriveError> {
        let first = first.clone();
        let cost = self.read(move |registry| {
            let (mut cost, mut next) = (Cost::default(), Some(first));
            while let Some(row) = next.take().map(|id| registry.thread(&id)).transpose()?.flatten() {
                cost.turns += row.cost.turns;
                cost.input_tokens += row.cost.input_tokens;
                cost.output_tokens += row.cost.output_tokens;
                cost.cached_tokens += row.cost.cached_tokens;
                cost.spend = cost.spend.saturating_add(row.cost.spend);
                next = row.continued_by.filter(|by| *by != row.id);
            }
            Ok(cost)
        });
        Ok((result, cost.await?))
    }
}
