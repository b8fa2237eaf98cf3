//! New plans for a running session: the directive is compiled again, perhaps with another model, and compared with the
//! plan of the session.

use rye_compiler::compile::{Compilation, CompileRequest, compile};
use rye_compiler::diagnostics::Diagnostic;
use rye_compiler::model::ModelOverride;
use rye_compiler::plan::{Plan, PlanMode};
use rye_compiler::semantics::limits::Limits;

use crate::workspace::Spaces;

/// The changes from one plan of a session to the next.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PlanChanges {
    /// The new plan may do or spend more, or this cannot be ruled out.
    pub widens: bool,
    pub lines: Vec<String>,
}

/// Compiles the directive of a plan again. With a model, the limits of the session stay; a tier is one of the session's
/// provider, if that has it.
pub fn recompile(spaces: &Spaces, plan: &Plan, model: Option<&str>) -> Result<Compilation, String> {
    let of_provider = model.map(|_| plan.model.provider.clone());
    let compiled = of_provider.and_then(|provider| compile_again(spaces, plan, model, Some(provider)).ok());
    compiled.map_or_else(|| compile_again(spaces, plan, model, None), Ok)
}

fn compile_again(
    spaces: &Spaces,
    plan: &Plan,
    model: Option<&str>,
    provider: Option<String>,
) -> Result<Compilation, String> {
    let world = spaces.open().map_err(|error| error.to_string())?;
    let mut request = CompileRequest::new(plan.directive.clone()).with_inputs(plan.interface.values.clone());
    request.mode = PlanMode::Chat;
    request.model = ModelOverride { provider, ..ModelOverride::of_user(model.map(str::to_owned)) };
    let checked = compile(&world, &request);
    let first = checked.diagnostics.iter().find(|one| one.is_error()).map(Diagnostic::message);
    let failed = || format!("`{}` does not compile: {}", plan.directive, first.unwrap_or_default());
    let mut compilation = checked.value.ok_or_else(failed)?;
    if model.is_some() {
        compilation.plan.limits = plan.limits;
        compilation.plan.session_limits = plan.session_limits;
        compilation.plan_id = compilation.plan.id().map_err(|error| error.to_string())?;
    }
    Ok(compilation)
}

/// Compares two plans of a session.
pub fn describe_changes(before: &Plan, after: &Plan) -> PlanChanges {
    let mut found = PlanChanges::default();
    let mut widen = |text: String| {
        found.widens = true;
        found.lines.push(text);
    };
    let (old, new) = (&before.capabilities, &after.capabilities);
    for grant in new.grants.iter().filter(|grant| !old.grants.contains(grant)) {
        widen(format!("grants `{}`", grant.pattern));
    }
    for tier in new.acknowledged.keys().filter(|tier| !old.acknowledged.contains_key(*tier)) {
        widen(format!("acknowledges the risk `{tier}`"));
    }
    for (scope, old, new) in
        [("prompt", Some(before.limits), Some(after.limits)), ("session", before.session_limits, after.session_limits)]
    {
        let (Some(old), Some(new)) = (old, new) else { continue };
        for name in new.exceeding(&old) {
            widen(format!("raises the {scope} limit `{name}` to {}", Limits::from(new).get(name)));
        }
    }
    for hook in after.hooks.iter().filter(|hook| !before.hooks.contains(hook)) {
        widen(format!("adds or changes the hook `{}`", hook.id));
    }
    if before.settings != after.settings {
        widen("changes settings".to_owned());
    }
    if before.model != after.model {
        found.lines.push(format!("model {} instead of {}", after.model.id, before.model.id));
    }
    if before.prompt != after.prompt {
        found.lines.push("changes the prompt".to_owned());
    }
    let removed = old.grants.iter().filter(|grant| !new.grants.contains(grant));
    found.lines.extend(removed.map(|grant| format!("no longer grants `{}`", grant.pattern)));
    found
}
