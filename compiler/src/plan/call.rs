//! The plan of one call that nobody waits for: what a thread's plan says of its tools, and nothing besides. Derived, not
//! compiled: whoever has the thread's plan has this one. No model is asked by it, and nothing is started below it.

use super::graph::build_call;
use super::{NudgePolicy, Plan, Prompt};
use crate::hook::HookPoint;

/// The points that look at a call which has begun. Those before it were considered by the thread that made the call.
const POINTS: [HookPoint; 5] = [
    HookPoint::ToolExecutionStart,
    HookPoint::ToolExecutionEnd,
    HookPoint::ToolResult,
    HookPoint::ToolCallResult,
    HookPoint::Error,
];

impl Plan {
    /// The plan by which a call of a thread of this plan runs on its own: the same palette, capabilities, settings and
    /// manifest, and the hooks that look at results; no prompt, no money, no threads below.
    #[must_use]
    pub fn of_call(&self) -> Self {
        let mut plan = self.clone();
        plan.graph = build_call();
        plan.prompt = Prompt { system: Vec::new(), first_message: Vec::new(), continued: Vec::new(), body: Vec::new() };
        plan.hooks.retain(|hook| POINTS.contains(&hook.event));
        plan.nudge = NudgePolicy::Never;
        plan.continuation_directive = None;
        (plan.limits.spend, plan.limits.spawns, plan.limits.depth) = (0, 0, 0);
        plan
    }
}
