//! Threads started from outside below a running one: `rye run --parent THREAD`. Their bounds come from the parent's
//! verified transcript, never from an argument.

use std::sync::Arc;

use rye_compiler::compile::{Compilation, SpawnParent};
use rye_compiler::plan::{Grant, Plan, PlanLimits};
use rye_compiler::semantics::ledger::LedgerReply;

use super::{ParentContext, RowsToWrite, ThreadInit, blocking};
use crate::driver::{DriveError, live};
use crate::engine::{EngineContext, EngineError, RunningThread, ThreadHandle};
use crate::event::{Opened, ParentLink, ThreadOrigin};
use crate::image::{self, ValidatedImage};
use crate::store::{Change, ChangeResult, LedgerStep, ThreadRow};
use crate::thread::Status;
use crate::thread_id::ThreadId;

/// A thread as the parent of others.
#[derive(Debug, Clone)]
pub struct ParentThread {
    pub id: ThreadId,
    pub(crate) launch: Opened,
    pub(crate) plan: Plan,
}

/// The first spawn number of children started from outside. The parent's own count from 1; those of hooks start at a
/// higher number.
pub(crate) const FIRST_OUTSIDE_SPAWN: u64 = 1 << 51;

impl ParentThread {
    /// Returns the plan of the thread.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the capability sets that must all allow an action: the thread's own first, then those up its spawn
    /// chain.
    pub fn grants(&self) -> &[Vec<Grant>] {
        &self.launch.grants
    }

    /// Returns the bounds with which children are compiled.
    pub fn bounds(&self) -> SpawnParent {
        SpawnParent { limits: self.launch.limits, capabilities: self.plan.capabilities.clone() }
    }

    /// Bounds a child's limits by the parent's.
    pub(super) fn bound(&self, limits: PlanLimits) -> Result<PlanLimits, EngineError> {
        let above = &self.launch.limits;
        let depth = above.depth.checked_sub(1).ok_or_else(|| EngineError::TooDeep { parent: self.id.to_string() })?;
        Ok(PlanLimits {
            turns: limits.turns.min(above.turns),
            tokens: limits.tokens.min(above.tokens),
            spend: limits.spend.min(above.spend),
            spawns: limits.spawns.min(above.spawns),
            depth: limits.depth.min(depth),
            duration_seconds: limits.duration_seconds.min(above.duration_seconds),
            output: limits.output,
        })
    }
}

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
        let (outlet, events) = live::event_channel();
        let beginning = ThreadInit {
            plan_id: compilation.plan_id.clone(),
            inputs: plan.interface.values.clone(),
            origin: ThreadOrigin::Child,
            limits: plan.limits,
            grants,
            parent: None,
            continues: None,
            history: Vec::new(),
            shown,
            outlet: Arc::new(outlet),
            queue: None,
            call: None,
            carried_ms: 0,
            allow_missing_outputs,
            plan,
        };
        image::check_accepted(&beginning.plan.model, &beginning.images())?;
        self.admit_compiled(compilation).await?;
        let named = compilation.named_spend;
        let (id, running) = self.start_reserved_child(&parent, beginning, named, None).await?;
        Ok(ThreadHandle::new(id, events, running))
    }

    /// Checks that a parent equals its verified transcript.
    pub(super) async fn check_parent(self: &Arc<Self>, parent: &ParentThread) -> Result<(), DriveError> {
        let (engine, id) = (Arc::clone(self), parent.id.clone());
        let inspected = blocking(move || engine.read_parent(&id)).await?;
        let same = inspected.is_some_and(|found| found.launch == parent.launch && found.plan == parent.plan);
        let changed = || DriveError::Plan(format!("the transcript of `{}` changed while it was read", parent.id));
        same.then_some(()).ok_or_else(changed)
    }

    /// Starts a thread below another: writes its row and reserves `named` or the rest of the parent's money. `linked`
    /// is the thread that it continues, whose row gets the link. On failure nothing remains.
    pub(super) async fn start_reserved_child(
        self: &Arc<Self>,
        parent: &ParentThread,
        mut beginning: ThreadInit,
        named: Option<u64>,
        linked: Option<&ThreadId>,
    ) -> Result<(ThreadId, RunningThread), EngineError> {
        let ParentThread { id: above, launch, .. } = parent;
        let root = ThreadId::parse(&launch.root).map_err(|error| DriveError::Plan(error.reason))?;
        let id = self.allocate(&beginning.plan).await?;
        let spawn = number()?;
        let mut row = ThreadRow::new(id.clone(), beginning.plan.directive.as_str(), self.clock.now());
        row.owner = Some(self.owner.id().clone());
        row.root = root.clone();
        row.plan_id = Some(beginning.plan_id.clone());
        row.status = Status::Running;
        row.spawns = Some(beginning.limits.spawns);
        row.continues = beginning.continues.as_ref().and_then(|c| ThreadId::parse(&c.thread).ok());
        let mut changes = vec![
            Change::Room { parent: above.clone(), spawn },
            Change::Ledger(LedgerStep::child(above, spawn, &id, named, beginning.limits.spend)),
            Change::Spawn { parent: above.clone(), spawn, child: Box::new(row) },
        ];
        changes.extend(linked.map(|before| self.link_continuation(before, &id)));
        for answer in self.writer.commit(changes).await.map_err(DriveError::from)? {
            let refused = |refusal: String| EngineError::NothingSetAside { parent: above.to_string(), refusal };
            match answer {
                ChangeResult::Ledger(LedgerReply::Reserved { amount }) => beginning.limits.spend = amount.to_u64(),
                ChangeResult::Ledger(LedgerReply::Refused { refusal }) => return Err(refused(refusal.to_string())),
                ChangeResult::TooMany { limit, .. } => {
                    return Err(refused(format!("spawns_exceeded: {limit} of {limit}")));
                }
                ChangeResult::Done
                | ChangeResult::Child(_)
                | ChangeResult::OwnedBy(_)
                | ChangeResult::NoThread(_)
                | ChangeResult::Ledger(LedgerReply::Done | LedgerReply::Remaining { .. }) => {}
            }
        }
        let link = ParentLink { thread_id: above.to_string(), spawn };
        beginning.parent = Some(ParentContext { link, root, limits: launch.limits });
        match self.start_thread(id.clone(), beginning, RowsToWrite::There).await {
            Ok(running) => Ok((id, running)),
            Err(error) => {
                // The caller gets the error, and no other thread waits for the child.
                self.finalize_row(&id, Status::Error).await?;
                Err(error.into())
            }
        }
    }
}

fn number() -> Result<u64, DriveError> {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).map_err(|error| DriveError::Lost(format!("the system's random numbers ({error})")))?;
    Ok(FIRST_OUTSIDE_SPAWN | (u64::from_le_bytes(bytes) >> 13))
}
