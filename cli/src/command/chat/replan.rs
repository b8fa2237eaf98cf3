//! New plans for a running session: the directive is compiled again, perhaps with another model, and compared with the
//! plan of the session.

use rye_compiler::compile::{Compilation, CompileRequest, compile};
use rye_compiler::diagnostics::Diagnostic;
use rye_compiler::model::ModelOverride;
use rye_compiler::plan::{Plan, PlanLimits, PlanMode};
use rye_compiler::semantics::limits::{LimitName, Limits};
use rye_compiler::semantics::money::Nanos;

use crate::workspace::Spaces;

/// The changes from one plan of a session to the next.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PlanChanges {
    /// True if the new plan may do or spend more, or if this cannot be ruled out.
    pub widens: bool,
    pub lines: Vec<String>,
}

/// The requested difference of a new plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanRequest {
    /// Only the changes of the files.
    Reload,
    /// A tier or the id of a model.
    Model(String),
    /// The `spend` limit of each prompt.
    Budget(Nanos),
    /// A new session with the model and the limits of the current one.
    Same,
}

/// Compiles the directive of a plan again. Except for a reload, the limits of the session stay. A tier is looked up at
/// the session's provider first.
pub fn recompile(spaces: &Spaces, plan: &Plan, request: &PlanRequest) -> Result<Compilation, String> {
    match request {
        PlanRequest::Reload => compile_again(spaces, plan, ModelOverride::of_user(None), None),
        PlanRequest::Model(model) => {
            let of = |model| compile_again(spaces, plan, model, Some(plan.limits));
            let provider = Some(plan.model.provider.clone());
            // A model that the provider does not list may be one of another provider.
            let of_provider = ModelOverride { model: Some(model.clone()), provider, ..ModelOverride::default() };
            of(of_provider).or_else(|_| of(ModelOverride::of_user(Some(model.clone()))))
        }
        PlanRequest::Budget(spend) => {
            check_budget(plan, *spend)?;
            let limits = PlanLimits { spend: spend.to_u64(), ..plan.limits };
            compile_again(spaces, plan, same_model(plan), Some(limits))
        }
        PlanRequest::Same => compile_again(spaces, plan, same_model(plan), Some(plan.limits)),
    }
}

fn same_model(plan: &Plan) -> ModelOverride {
    ModelOverride::of_user(Some(format!("{}/{}", plan.model.provider, plan.model.id)))
}

/// Checks that a budget is within the limits that apply to every prompt.
fn check_budget(plan: &Plan, spend: Nanos) -> Result<(), String> {
    let session = plan.session_limits.map(|limits| limits.spend);
    let ceiling = plan.limit_ceilings.get(&LimitName::Spend).copied();
    let most = session.into_iter().chain(ceiling).min().map(Nanos::from_u64);
    match most {
        _ if spend == Nanos::ZERO => Err("a budget is above 0".to_owned()),
        Some(most) if spend > most => Err(format!("a prompt may spend at most ${most}")),
        Some(_) | None => Ok(()),
    }
}

fn compile_again(
    spaces: &Spaces,
    plan: &Plan,
    model: ModelOverride,
    limits: Option<PlanLimits>,
) -> Result<Compilation, String> {
    let world = spaces.open().map_err(|error| error.to_string())?;
    let mut request = CompileRequest::new(plan.directive.clone()).with_inputs(plan.interface.values.clone());
    request.mode = PlanMode::Chat;
    request.model = model;
    let checked = compile(&world, &request);
    let first = checked.diagnostics.iter().find(|one| one.is_error()).map(Diagnostic::message);
    let failed = || format!("`{}` does not compile: {}", plan.directive, first.unwrap_or_default());
    let mut compilation = checked.value.ok_or_else(failed)?;
    if let Some(limits) = limits {
        compilation.plan.limits = limits;
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
