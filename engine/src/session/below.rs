//! A thread started from outside below one that runs: `rye run --parent THREAD`. What bounds it is read from the parent's
//! own record, never from an argument.

use std::sync::Arc;

use rye_compiler::compile::{Compilation, Parent};
use rye_compiler::plan::{Plan, PlanLimits};
use rye_compiler::semantics::ledger::Answer;

use super::{Above, Beginning};
use crate::driver::{DriveError, live};
use crate::engine::{EngineError, Handle, Inner};
use crate::event::{Opened, Origin, ParentLink};
use crate::store::{Answered, Change, LedgerStep, ThreadRow};
use crate::thread_id::ThreadId;

/// A thread that others can be started below.
#[derive(Debug, Clone)]
pub struct ParentThread {
    pub id: ThreadId,
    pub(crate) launch: Opened,
    pub(crate) plan: Plan,
}

/// Spawns from outside are numbered apart from the parent's own, which count from 1, and from those of its hooks.
const OUTSIDE: u64 = 1 << 61;

impl ParentThread {
    /// What its children are compiled with.
    pub fn bounds(&self) -> Parent {
        Parent { limits: self.launch.limits, capabilities: self.plan.capabilities.clone() }
    }
}

impl Inner {
    pub(crate) async fn start_below(
        self: &Arc<Self>,
        compilation: &Compilation,
        parent: ParentThread,
    ) -> Result<Handle, EngineError> {
        let ParentThread { id: above, launch, .. } = parent;
        let root = ThreadId::parse(&launch.root).map_err(|error| DriveError::Plan(error.reason))?;
        let plan = Arc::new(compilation.plan.clone());
        let id = self.allocate(&plan).await?;
        let spawn = number()?;
        let named = compilation.names_spend().then_some(plan.limits.spend);
        let mut row = ThreadRow::new(id.clone(), plan.directive.as_str(), self.clock.now());
        row.owner = Some(self.owner.id().clone());
        row.root = root.clone();
        row.plan_id = Some(compilation.plan_id.clone());
        let changes = vec![
            Change::Ledger(LedgerStep::child(&above, spawn, &id, named, plan.limits.spend)),
            Change::Spawn { parent: above.clone(), spawn, child: Box::new(row) },
        ];
        let spend = match self.writer.commit(changes).await.map_err(DriveError::from)?.into_iter().next() {
            Some(Answered::Ledger(Answer::Reserved { amount })) => amount.to_u64(),
            Some(Answered::Ledger(Answer::Refused { refusal })) => {
                return Err(EngineError::NothingSetAside { parent: above.to_string(), refusal: refusal.to_string() });
            }
            Some(_) | None => plan.limits.spend,
        };
        let mut grants = launch.grants;
        if plan.capabilities.declared {
            grants.insert(0, plan.capabilities.grants.clone());
        }
        let (outlet, events) = live::channel();
        let beginning = Beginning {
            plan_id: compilation.plan_id.clone(),
            inputs: plan.interface.values.clone(),
            origin: Origin::Child,
            limits: PlanLimits { spend, ..plan.limits },
            grants,
            parent: Some(Above {
                link: ParentLink { thread_id: above.to_string(), spawn },
                root,
                limits: launch.limits,
            }),
            continues: None,
            history: Vec::new(),
            outlet: Arc::new(outlet),
            plan,
        };
        let running = self.begin(id.clone(), beginning, false).await?;
        Ok(Handle::new(id, events, running))
    }
}

fn number() -> Result<u64, DriveError> {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).map_err(|error| DriveError::Lost(format!("the system's random numbers ({error})")))?;
    Ok(OUTSIDE | (u64::from_le_bytes(bytes) >> 12))
}
