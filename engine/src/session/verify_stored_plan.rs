//! Verification of a stored plan. A stored plan lies in the project, which can be of unknown origin. The trust of the
//! user is recorded only for the current files. Every hook of the stored plan that starts a program, raises a limit or
//! grants a capability must therefore match the current files. The model's endpoint never comes from a stored plan
//! (`context::providers`).

use rye_compiler::compile::{CompileRequest, compile};
use rye_compiler::hook::PlannedHook;
use rye_compiler::plan::Plan;
use rye_compiler::trust::describe_effect;

use crate::context::EngineContext;
use crate::error::DriveError;

impl EngineContext {
    /// Checks the hooks of a stored plan that have an effect or grant a capability: each must match the current files.
    /// Compiles the directive again only if there are such hooks. Blocks.
    ///
    /// # Errors
    ///
    /// [`DriveError::Changed`] lists the hooks that do not match.
    pub(super) fn verify_stored_plan(&self, plan: &Plan) -> Result<(), DriveError> {
        let acts = |hook: &&PlannedHook| {
            let has_effect = describe_effect(hook.event, &hook.action, &hook.grants).is_some();
            hook.is_live() && (has_effect || !hook.grants.is_empty())
        };
        let acting: Vec<&PlannedHook> = plan.hooks.iter().filter(acts).collect();
        if acting.is_empty() {
            return Ok(());
        }
        let world = (self.world)().map_err(DriveError::Plan)?;
        let mut request = CompileRequest::new(plan.directive.clone()).with_inputs(plan.interface.values.clone());
        request.mode = plan.mode;
        let now = compile(&*world, &request).value;
        let hooks = now.as_ref().map(|now| now.plan.hooks.as_slice()).unwrap_or_default();
        let unknown = acting.into_iter().filter(|hook| !hooks.iter().any(|now| is_same_hook(hook, now)));
        let list: Vec<String> = unknown
            .map(|hook| {
                let effect = describe_effect(hook.event, &hook.action, &hook.grants);
                format!("hook `{}` {}", hook.id, effect.unwrap_or_default())
            })
            .collect();
        if list.is_empty() { Ok(()) } else { Err(DriveError::Changed { directive: plan.directive.to_string(), list }) }
    }
}

/// Returns true if two hooks are equal apart from their verdicts, which depend on the facts of the run.
fn is_same_hook(then: &PlannedHook, now: &PlannedHook) -> bool {
    then.id == now.id
        && then.event == now.event
        && then.source == now.source
        && then.space == now.space
        && then.condition == now.condition
        && then.action == now.action
        && then.grants == now.grants
}
