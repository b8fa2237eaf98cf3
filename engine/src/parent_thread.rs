//! The parent of a child that a command adds to an existing thread, and the bounds that the parent sets for the child.
//! The parent does not start this child itself.

use rye_compiler::compile::SpawnParent;
use rye_compiler::plan::{Grant, Plan, PlanLimits};

use crate::error::EngineError;
use crate::event::{Opened, ThreadOrigin};
use crate::thread_id::ThreadId;

/// Returns the limits of a parent that bound the plan of a child. The duration is the whole duration of the parent,
/// because with its remaining time the plan of a child would depend on the moment of the spawn. At run time, the
/// remaining time of the parent bounds the child.
pub(crate) fn spawn_limits(launch: &Opened, plan: &Plan) -> PlanLimits {
    // The start event of a run or a chat holds the whole duration. The start event of any other thread may hold a
    // remaining duration, so the duration of the plan is used.
    let duration_seconds = match launch.origin {
        ThreadOrigin::Run | ThreadOrigin::Chat => launch.limits.duration_seconds,
        ThreadOrigin::Child
        | ThreadOrigin::Handoff
        | ThreadOrigin::Resume
        | ThreadOrigin::Fork
        | ThreadOrigin::Replan => plan.limits.duration_seconds,
    };
    PlanLimits { duration_seconds, ..launch.limits }
}

/// A thread to which a command adds a child, with the start event and the plan of the thread. Both bound the child.
#[derive(Debug, Clone)]
pub struct ParentThread {
    pub id: ThreadId,
    pub(crate) launch: Opened,
    pub(crate) plan: Plan,
}

impl ParentThread {
    /// Returns the plan of the thread.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the capability sets that must all allow an action: first the set of this thread, then the sets of its
    /// ancestors.
    pub fn grants(&self) -> &[Vec<Grant>] {
        &self.launch.grants
    }

    /// Returns the bounds with which children are compiled.
    pub fn bounds(&self) -> SpawnParent {
        SpawnParent { limits: spawn_limits(&self.launch, &self.plan), capabilities: self.plan.capabilities.clone() }
    }

    /// Bounds the limits of a child, except `output`, by the limits of this thread. The limit `depth` of the child is
    /// lower than the limit `depth` of this thread.
    ///
    /// # Errors
    /// The limit `depth` of this thread is 0.
    pub(crate) fn bound(&self, limits: PlanLimits) -> Result<PlanLimits, EngineError> {
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
