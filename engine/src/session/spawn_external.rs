//! Threads that a command starts below a running thread: `rye run --parent THREAD`. Their bounds come from the parent's
//! verified transcript, never from an argument.

use crate::parent_thread::ParentThread;
use crate::thread::FIRST_OUTSIDE_SPAWN;
use std::sync::Arc;

use rye_compiler::compile::Compilation;
use rye_compiler::semantics::ledger::LedgerReply;

use super::children::ChildRefusal;
use super::{ParentContext, RowsToWrite, ThreadInit};
use crate::context::{EngineContext, RunningThread, ThreadHandle};
use crate::error::DriveError;
use crate::error::EngineError;
use crate::event::{ParentLink, ThreadOrigin};
use crate::image::{self, ValidatedImage};
use crate::live;
use crate::machine::retained_messages::InheritedMessages;
use crate::machine::{ThreadState, apply};
use crate::store::owner::read_owner_info;
use crate::store::registry::Liveness;
use crate::store::{Change, ChangeResult, LedgerStep, StoreError, ThreadRow};
use crate::thread::Status;
use crate::thread_count::blocking;
use crate::thread_id::ThreadId;

impl EngineContext {
    pub(crate) async fn start_child_of(
        self: &Arc<Self>,
        compilation: &Compilation,
        parent: ParentThread,
        shown: Vec<ValidatedImage>,
        allow_missing_outputs: bool,
    ) -> Result<ThreadHandle, EngineError> {
        self.check_parent(&parent).await?;
        let plan = self.plans.get_or_insert(&compilation.plan_id, || compilation.plan.clone());
        let mut grants = parent.launch.grants.clone();
        if plan.capabilities.declared {
            grants.insert(0, plan.capabilities.grants.clone());
        }
        let (sink, events) = live::event_channel();
        let init = ThreadInit {
            plan_id: compilation.plan_id.clone(),
            inputs: plan.interface.values.clone(),
            origin: ThreadOrigin::Child,
            limits: plan.limits,
            grants,
            parent: None,
            continues: None,
            history: InheritedMessages::default(),
            shown,
            sink: Arc::new(sink),
            queue: None,
            call: None,
            carried_ms: 0,
            allow_missing_outputs,
            is_recovery: false,
            plan,
        };
        image::check_accepted(&init.plan.model, &init.images())?;
        self.admit_compiled(compilation).await?;
        let named = compilation.requested_spend;
        let (id, running) = self.start_reserved_child(&parent, init, named, None).await?;
        Ok(ThreadHandle::new(id, events, running))
    }

    /// Returns the owned time, in milliseconds, that a thread has left until it reaches its duration limit.
    async fn remaining_duration(self: &Arc<Self>, thread: &ThreadId) -> Result<u64, DriveError> {
        let (engine, id) = (Arc::clone(self), thread.clone());
        let read = move || {
            let registry = engine.writer.registry();
            let row = registry.thread(&id)?.ok_or_else(|| StoreError::UnknownThread { thread: id.to_string() })?;
            let mut state = ThreadState::new();
            for event in &engine.threads().transcript(&id)? {
                apply(&mut state, event);
            }
            // Time in which no process owns the thread does not count towards its duration.
            let is_owned = registry.liveness(&row)? == Liveness::Alive;
            let now = if is_owned { engine.time_of_owner(&row)? } else { state.clock.now };
            Ok(state.limits.duration_seconds.saturating_mul(1000).saturating_sub(state.clock.elapsed_at(now)))
        };
        blocking(read).await
    }

    /// Returns the current time by the clock of the process that owns a thread. This clock differs from the clock of
    /// this process if the wall clock was changed between the starts of the two processes.
    fn time_of_owner(&self, row: &ThreadRow) -> Result<i64, DriveError> {
        let offset = self.clock.offset();
        let info = row.owner.as_ref().map(|owner| read_owner_info(&*self.disk, owner)).transpose()?.flatten();
        let of_owner = info.and_then(|info| info.clock_offset).unwrap_or(offset);
        Ok(self.clock.now().saturating_sub(offset).saturating_add(of_owner))
    }

    /// Verifies and reads the transcript of `parent` again, and checks that the start and the plan of the thread are
    /// still those in `parent`.
    pub(super) async fn check_parent(self: &Arc<Self>, parent: &ParentThread) -> Result<(), DriveError> {
        let (engine, id) = (Arc::clone(self), parent.id.clone());
        let inspected = blocking(move || engine.read_parent(&id)).await?;
        let same = inspected.is_some_and(|found| found.launch == parent.launch && found.plan == parent.plan);
        let changed = || DriveError::Plan(format!("the transcript of `{}` changed while it was read", parent.id));
        same.then_some(()).ok_or_else(changed)
    }

    /// Starts a child thread. Writes the registry row of the child, and reserves `named` nano-dollars of the parent for
    /// the child. If `named` is `None`, reserves the spend limit of the child or the remaining spend of the parent,
    /// whichever is smaller. If `linked` is given, the child continues the thread `linked`, whose row gets a link to
    /// the child. If the start fails, finalizes the row and the account of the child.
    pub(super) async fn start_reserved_child(
        self: &Arc<Self>,
        parent: &ParentThread,
        mut init: ThreadInit,
        named: Option<u64>,
        linked: Option<&ThreadId>,
    ) -> Result<(ThreadId, RunningThread), EngineError> {
        let ParentThread { id: above, launch, .. } = parent;
        let remaining_ms = self.remaining_duration(above).await?;
        if remaining_ms == 0 {
            return Err(EngineError::NoTimeLeft { parent: above.to_string() });
        }
        let seconds = remaining_ms.div_ceil(1000);
        init.limits.duration_seconds = init.limits.duration_seconds.min(seconds);
        let root = ThreadId::parse(&launch.root).map_err(|error| DriveError::Plan(error.reason))?;
        let link = ParentLink { thread_id: above.to_string(), spawn: number()? };
        let context = ParentContext { link, root, limits: launch.limits };
        let id = self.allocate(&init.plan).await?;
        // A control message that ends the child waits until the child runs.
        let guard = self.reserve_recovery(&id);
        let (engine, starting) = (Arc::clone(self), self.await_child_guard());
        let (above, linked) = (above.clone(), linked.cloned());
        // The start is a task of its own: if the caller is dropped, the child does not keep a reservation without a
        // task that ends it.
        let start = tokio::spawn(async move {
            let (_starting, _guard) = (starting, guard);
            let running = engine.reserve_and_start_child((&above, context), &id, init, named, linked).await?;
            Ok((id, running))
        });
        start.await.map_err(DriveError::from)?
    }

    async fn reserve_and_start_child(
        self: &Arc<Self>,
        (above, parent): (&ThreadId, ParentContext),
        id: &ThreadId,
        mut init: ThreadInit,
        named: Option<u64>,
        linked: Option<ThreadId>,
    ) -> Result<RunningThread, EngineError> {
        let spawn = parent.link.spawn;
        let mut row = ThreadRow::new(id.clone(), init.plan.directive.as_str(), self.clock.now());
        row.owner = Some(self.owner.id().clone());
        row.root = parent.root.clone();
        row.plan_id = Some(init.plan_id.clone());
        row.status = Status::Running;
        row.spawns = Some(init.limits.spawns);
        row.continues = init.continues.as_ref().and_then(|c| ThreadId::parse(&c.thread).ok());
        let mut changes = vec![
            Change::SpawnLimit { parent: above.clone(), spawn },
            Change::Ledger(LedgerStep::child(above, spawn, id, named, init.limits.spend)),
            Change::Spawn { parent: above.clone(), spawn, child: Box::new(row) },
        ];
        changes.extend(linked.map(|before| self.link_continuation(&before, id)));
        for answer in self.writer.commit(changes).await.map_err(DriveError::from)? {
            let refused = |refusal: String| EngineError::NotReserved { parent: above.to_string(), refusal };
            match answer {
                ChangeResult::Ledger(LedgerReply::Reserved { amount }) => init.limits.spend = amount.to_u64(),
                ChangeResult::Ledger(LedgerReply::Refused { refusal }) => return Err(refused(refusal.to_string())),
                ChangeResult::TooMany { limit, .. } => {
                    return Err(refused(ChildRefusal::limit("spawns_exceeded", limit, limit).reason));
                }
                ChangeResult::Done
                | ChangeResult::Child(_)
                | ChangeResult::OwnedBy(_)
                | ChangeResult::HasEnded
                | ChangeResult::NoThread(_)
                | ChangeResult::Ledger(LedgerReply::Done | LedgerReply::Remaining { .. }) => {}
            }
        }
        init.parent = Some(parent);
        match self.start_thread(id.clone(), init, RowsToWrite::Existing).await {
            Ok(running) => Ok(running),
            Err(error) => {
                // The caller gets the error, and no other thread waits for the child.
                self.finalize_row(id, Status::Error).await?;
                Err(error.into())
            }
        }
    }
}

fn number() -> Result<u64, DriveError> {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| DriveError::Lost(format!("cannot get random bytes from the system ({error})")))?;
    Ok(FIRST_OUTSIDE_SPAWN | (u64::from_le_bytes(bytes) >> 13))
}
