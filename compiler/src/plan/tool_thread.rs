//! The plan of one asynchronous tool call, derived from the plan of the calling thread and with the same tools. A run
//! of the derived plan calls no model and spawns no threads.

use super::graph::build_call_graph;
use super::{NudgePolicy, Plan, Prompt};
use crate::hook::HookPoint;

/// The hook points that the thread of an asynchronous call evaluates. The calling thread evaluates the other hook
/// points of the call before it starts the thread.
const CALL_HOOK_POINTS: [HookPoint; 5] = [
    HookPoint::ToolExecutionStart,
    HookPoint::ToolExecutionEnd,
    HookPoint::ToolResult,
    HookPoint::ToolCallResult,
    HookPoint::Error,
];

impl Plan {
    /// Derives the plan of a thread that only runs one tool call for a thread with this plan. The derived plan has the
    /// same palette, capabilities, settings and manifest. It has no prompt, no spend and no spawns, and only the hooks
    /// of `CALL_HOOK_POINTS`.
    #[must_use]
    pub fn for_call(&self) -> Self {
        let mut plan = self.clone();
        plan.graph = build_call_graph();
        plan.prompt = Prompt { system: Vec::new(), first_message: Vec::new(), continued: Vec::new(), body: Vec::new() };
        plan.hooks.retain(|hook| CALL_HOOK_POINTS.contains(&hook.event));
        plan.nudge = NudgePolicy::Never;
        plan.continuation_directive = None;
        (plan.limits.spend, plan.limits.spawns, plan.limits.depth) = (0, 0, 0);
        plan
    }
}
