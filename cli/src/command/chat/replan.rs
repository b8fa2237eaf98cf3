//! New plans for a running session: the directive is compiled again, perhaps with another model, and compared with the
//! plan of the session.

use std::sync::Arc;

use rye_compiler::approvals::ApprovalRequired;
use rye_compiler::compile::{Compilation, CompileRequest, compile, compile_with_sources};
use rye_compiler::diagnostics::Diagnostic;
use rye_compiler::model::ModelOverride;
use rye_compiler::plan::{Plan, PlanLimits, PlanMode, PlannedModel};
use rye_compiler::report::diff::{ChangeArea, DiffSide, Direction, diff_trees};
use rye_compiler::report::render::diff::lines;
use rye_compiler::semantics::limits::{LimitName, Limits};
use rye_compiler::semantics::money::Nanos;
use rye_compiler::world::{MapWorld, World};
use rye_engine::control::ControlSender;
use rye_engine::event::{ChatMode, ControlMessage};
use rye_engine::live_state::LiveState;
use rye_engine::machine::prompt_bounds::read_only_grants;
use rye_engine::store::Disk;
use rye_engine::store::sources::read_copies;
use rye_grammar::Sources;

use super::requests::{ENDED, RequestHandler};
use crate::command::providers::usable::require_usable_model;
use crate::workspace::Spaces;

/// The changes from one plan of a session to the next.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PlanChanges {
    /// True if the new plan may do or spend more than the current one, or if the comparison cannot exclude this.
    pub widens: bool,
    pub lines: Vec<String>,
}

impl PlanChanges {
    /// Returns the text that refuses a change because the user has not confirmed it. The text contains `reason`, a hint
    /// for the confirmation and the lines of the comparison.
    pub fn refusal(&self, reason: &str) -> String {
        format!("{reason}; {CONFIRM_HINT}:\n{}", self.lines.join("\n"))
    }
}

/// The part of a refusal that states how the user confirms the change.
pub const CONFIRM_HINT: &str = "repeat the request with `confirm` set to true";

/// The change of a session's plan that the user requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanRequest {
    /// A compilation of the current files, without another change. Holds the model that the user has chosen, if any.
    Reload(ModelOverride),
    /// Another model: a tier or the id of a model.
    Model(String),
    /// Another `spend` limit for each prompt, in nano-dollars.
    Budget(Nanos),
    /// The parts that the user leaves out of the requests.
    Omit(Vec<String>),
    /// A compilation of the current files with the model and the limits of the session, for a new session (`/new`).
    Same,
}

/// Compiles the directive of a plan again. A reload takes the limits from the current files; every other request keeps
/// the limits of the session, except for the limit that the request sets. The name of a tier or model is looked up at
/// the session's provider first.
pub fn recompile(spaces: &Spaces, plan: &Plan, request: &PlanRequest) -> Result<Compilation, String> {
    match request {
        PlanRequest::Reload(model) => compile_again(spaces, plan, model.clone(), None, &plan.omitted)
            .map_err(|reason| not_compiled(plan, &reason)),
        PlanRequest::Model(model) => {
            let of = |model| compile_again(spaces, plan, model, Some(plan.limits), &plan.omitted);
            let provider = Some(plan.model.provider.clone());
            // A model that the provider does not list may belong to another provider.
            let of_provider = ModelOverride { model: Some(model.clone()), provider, ..ModelOverride::default() };
            of(of_provider).or_else(|_| of(ModelOverride::of_user(Some(model.clone()))))
        }
        PlanRequest::Budget(spend) => {
            check_budget(plan, *spend)?;
            let limits = PlanLimits { spend: spend.to_u64(), ..plan.limits };
            compile_with_model(spaces, plan, limits, &plan.omitted)
        }
        PlanRequest::Omit(parts) => compile_with_model(spaces, plan, plan.limits, parts),
        PlanRequest::Same => compile_with_model(spaces, plan, plan.limits, &plan.omitted),
    }
}

impl PlanRequest {
    /// Describes the effect of the request on the session.
    pub fn describe_effect(&self, after: &Plan) -> String {
        match self {
            Self::Model(_) => format!("the next prompts use the model {}", after.model.id),
            Self::Budget(spend) => format!("each further prompt may cost at most ${spend}"),
            Self::Reload(_) => format!("the session continues with the new plan and the model {}", after.model.id),
            Self::Omit(_) | Self::Same => "the session continues with the new plan".to_owned(),
        }
    }
}

/// The plan of a change that this process has sent to the session.
pub struct PlanOfChange {
    /// The id of the message that changes the plan.
    message: String,
    plan: Arc<Plan>,
    plan_id: String,
}

/// The plan of the last change that this process sent; `None` before the first change. Each change holds the lock, so
/// that a change also contains the changes that were sent before it.
pub type SentPlan = Arc<tokio::sync::Mutex<Option<PlanOfChange>>>;

/// The mode that this process sent last, with the id of its message; `None` before the first one.
pub type SentMode = Arc<tokio::sync::Mutex<Option<(String, ChatMode)>>>;

/// Sends the session a control message that changes its plan to `plan`. Records the plan in `sent`, and returns the id
/// of the message.
pub(super) fn send_stored_plan(
    control: &ControlSender,
    (plan, plan_id): (Arc<Plan>, String),
    sent: &mut Option<PlanOfChange>,
) -> Result<String, String> {
    let message = control.send_with_id(ControlMessage::Replan { plan: plan_id.clone() }).ok_or(ENDED)?;
    *sent = Some(PlanOfChange { message: message.clone(), plan, plan_id });
    Ok(message)
}

impl RequestHandler {
    /// Returns the plan from which the next change starts, and its id: the plan of the last change if the session has
    /// not applied that change yet, else the plan in `live`.
    pub(super) fn plan_to_change(&self, sent: Option<&PlanOfChange>, live: &LiveState) -> (Arc<Plan>, String) {
        sent.filter(|sent| !self.control.has_settled(&sent.message)).map_or_else(
            || (Arc::clone(&live.plan), live.state.plan_id.clone()),
            |sent| (Arc::clone(&sent.plan), sent.plan_id.clone()),
        )
    }

    /// Stores a plan and sends it to the session. Returns the id of the message.
    pub(super) async fn send_plan(
        &self,
        compilation: &Compilation,
        sent: &mut Option<PlanOfChange>,
    ) -> Result<String, String> {
        let plan_id = self.store(compilation).await?;
        send_stored_plan(&self.control, (Arc::new(compilation.plan.clone()), plan_id), sent)
    }

    /// Checks that the provider of the model of a plan has its key. A script needs no key.
    ///
    /// # Errors
    /// Returns the name of the variable that is not set.
    pub(super) fn require_key(&self, live: &LiveState, after: &Plan) -> Result<(), String> {
        let launch = live.state.launch.as_ref();
        if launch.is_some_and(|launch| launch.settings.script.is_some()) {
            return Ok(());
        }
        require_usable_model(&after.model, &self.spaces).map_err(|error| error.to_string())
    }
}

/// Returns the model that the user has chosen for a session, on the command line or with `/model`. If the user has
/// chosen none, the result is the override without a model.
pub fn chosen_model(spaces: &Spaces, disk: &dyn Disk, live: &LiveState) -> ModelOverride {
    let found = spaces.open().ok().and_then(|now| find_session_plan(&stored_files(&now, disk, &live.plan), live));
    found.map_or_else(|| ModelOverride::of_user(None), |(model, _)| model)
}

/// Compiles the plan of a session from the current files. The second value is true if the result equals the session's
/// plan, and false if changed files have changed the plan.
pub fn compile_current(spaces: &Spaces, live: &LiveState) -> Result<(Compilation, bool), String> {
    let world = spaces.open().map_err(|error| error.to_string())?;
    if let Some(compilation) = compile_session(&world, live) {
        return Ok((compilation, true));
    }
    recompile(spaces, &live.plan, &PlanRequest::Same).map(|compilation| (compilation, false))
}

/// Compiles the directive of a plan again with the plan's model.
fn compile_with_model(
    spaces: &Spaces,
    plan: &Plan,
    limits: PlanLimits,
    omitted: &[String],
) -> Result<Compilation, String> {
    let mut compilation = compile_again(spaces, plan, same_model(plan), Some(limits), omitted)
        .map_err(|reason| not_compiled(plan, &reason))?;
    compilation.plan.model.requested.clone_from(&plan.model.requested);
    compilation.plan_id = compilation.plan.id().map_err(|error| error.to_string())?;
    Ok(compilation)
}

pub fn same_model(plan: &Plan) -> ModelOverride {
    ModelOverride::of_user(Some(format!("{}/{}", plan.model.provider, plan.model.id)))
}

/// Checks that a budget for prompts is positive, and within the limits that the session and the settings set for every
/// prompt.
fn check_budget(plan: &Plan, spend: Nanos) -> Result<(), String> {
    let session = plan.session_limits.map(|limits| limits.spend);
    let ceiling = plan.limit_ceilings.get(&LimitName::Spend).copied();
    let most = session.into_iter().chain(ceiling).min().map(Nanos::from_u64);
    match most {
        _ if spend <= Nanos::ZERO => Err("the budget must be more than $0".to_owned()),
        Some(most) if spend > most => Err(format!("the session and the settings allow at most ${most} for a prompt")),
        Some(_) | None => Ok(()),
    }
}

fn not_compiled(plan: &Plan, reason: &str) -> String {
    format!("`{}` does not compile: {reason}", plan.directive)
}

/// Compiles the directive of a plan again.
///
/// # Errors
/// Returns the message and the help of the first error.
fn compile_again(
    spaces: &Spaces,
    plan: &Plan,
    model: ModelOverride,
    limits: Option<PlanLimits>,
    omitted: &[String],
) -> Result<Compilation, String> {
    let world = spaces.open().map_err(|error| error.to_string())?;
    let mut request = CompileRequest::new(plan.directive.clone()).with_inputs(plan.interface.values.clone());
    request.mode = PlanMode::Chat;
    request.model = model;
    request.omitted = omitted.to_vec();
    request.appended.clone_from(&plan.appended);
    let mut sources = Sources::default();
    let checked = compile_with_sources(&world, &request, &mut sources);
    let mut compilation = checked.value.ok_or_else(|| {
        let first = checked.diagnostics.iter().find(|one| one.is_error());
        let place = first.and_then(|first| place_of(first, &sources)).unwrap_or_default();
        let message = first.map(|first| format!("{place}{}", first.message())).unwrap_or_default();
        first.and_then(Diagnostic::help).map_or_else(|| message.clone(), |help| format!("{message}; {help}"))
    })?;
    if let Some(limits) = limits {
        compilation.plan.limits = limits;
        compilation.plan.session_limits = plan.session_limits;
        compilation.plan_id = compilation.plan.id().map_err(|error| error.to_string())?;
    }
    Ok(compilation)
}

/// Returns the place of a diagnostic as a prefix of its message (`hooks.yaml:3: `). Without a known line, the prefix
/// names only the file. Returns `None` if the diagnostic has no place.
fn place_of(diagnostic: &Diagnostic, sources: &Sources) -> Option<String> {
    let Some(label) = diagnostic.labels().into_iter().next() else {
        return diagnostic.file().map(|file| format!("{file}: "));
    };
    let source = sources.get(label.span.source)?;
    Some(format!("{}:{}: ", source.path, source.position(label.span.start).line))
}

/// Compares the plan of a session with its next plan, as `rye plan --diff` does. The files behind the session's plan
/// may have changed, so the comparison uses the copies that were stored when the thread started.
pub fn compare_with_session(spaces: &Spaces, disk: &dyn Disk, live: &LiveState, after: &Compilation) -> PlanChanges {
    let by_files = || {
        let now = spaces.open().ok()?;
        let stored = stored_files(&now, disk, &live.plan);
        let before = compile_session(&stored, live)?;
        compare_sides((&stored, &before), (&now, after))
    };
    // If the stored files cannot be read, only the plans themselves can be compared.
    by_files().unwrap_or_else(|| describe_changes(&live.plan, &after.plan))
}

/// Compares two modes of a session as `rye plan --diff` compares plans: each mode is treated as a plan with the grants
/// of the mode. If `after` is `Auto`, the first lines list the calls that then run without an approval.
///
/// # Errors
/// The files of the session cannot be compiled.
pub fn compare_modes(
    spaces: &Spaces,
    disk: &dyn Disk,
    live: &LiveState,
    (before, after): (ChatMode, ChatMode),
) -> Result<PlanChanges, String> {
    let now = spaces.open().map_err(|error| error.to_string())?;
    let stored = stored_files(&now, disk, &live.plan);
    let failed = || "the plan of the session cannot be compiled again: run /reload, then repeat the command".to_owned();
    let plan = compile_session(&stored, live).ok_or_else(failed)?;
    let unasked = if after == ChatMode::Auto { &*plan.approvals_required } else { &[] };
    let (before, after) = (in_mode(&plan, before), in_mode(&plan, after));
    let changes = compare_sides((&stored, &before), (&stored, &after)).ok_or_else(failed)?;
    // A wider mode always needs the user's confirmation, even if no call of the plan depends on the mode.
    Ok(PlanChanges { widens: true, lines: describe_unasked(unasked).into_iter().chain(changes.lines).collect() })
}

/// Describes the calls that no longer need an approval, a line for each tier.
fn describe_unasked(calls: &[ApprovalRequired]) -> Vec<String> {
    let mut tiers: Vec<&str> = calls.iter().map(|call| call.tier.as_str()).collect();
    tiers.sort_unstable();
    tiers.dedup();
    let line = |tier: &str| {
        let patterns = calls.iter().filter(|call| call.tier == tier).map(|call| format!("`{}`", call.pattern));
        let patterns: Vec<String> = patterns.collect();
        format!("  + widened calls of the risk `{tier}` run without an approval: {}", patterns.join(", "))
    };
    tiers.into_iter().map(line).collect()
}

/// Returns the current files, with the stored copies in place of the files that the plan read. The other files are
/// needed too, because the plan can depend on their names, such as the names of the directives that it can start.
fn stored_files<'w>(now: &'w dyn World, disk: &dyn Disk, plan: &Plan) -> MapWorld<'w> {
    let world = MapWorld::with_fallback(now);
    let mut world = if now.project_is_user_space() { world.as_user_space() } else { world };
    read_copies(disk, plan).insert_into(&mut world);
    world
}

/// Compiles the plan of a session again; `None` if the files do not compile, or compile to a plan with another id.
fn compile_session(world: &dyn World, live: &LiveState) -> Option<Compilation> {
    find_session_plan(world, live).map(|(_, compilation)| compilation)
}

/// Compiles the plan of a session again, and returns it with the model that was requested for it.
fn find_session_plan(world: &dyn World, live: &LiveState) -> Option<(ModelOverride, Compilation)> {
    let plan = &*live.plan;
    let requested = |provider| ModelOverride { provider, ..ModelOverride::of_user(Some(plan.model.requested.clone())) };
    // The transcript records the resulting plan, but not the model that the user requested. So each request that may
    // have led to the plan is compiled.
    let models =
        [ModelOverride::default(), requested(None), requested(Some(plan.model.provider.clone())), same_model(plan)];
    models.into_iter().find_map(|model| {
        let mut request = CompileRequest::new(plan.directive.clone()).with_inputs(plan.interface.values.clone());
        (request.mode, request.model) = (PlanMode::Chat, model.clone());
        request.omitted.clone_from(&plan.omitted);
        request.appended.clone_from(&plan.appended);
        let mut compilation = compile(world, &request).value?;
        compilation.plan.limits = plan.limits;
        compilation.plan.session_limits = plan.session_limits;
        compilation.plan.model.requested.clone_from(&plan.model.requested);
        compilation.plan_id = compilation.plan.id().ok()?;
        (compilation.plan_id == live.state.plan_id).then_some((model, compilation))
    })
}

fn compare_sides(
    (old, before): (&dyn World, &Compilation),
    (new, after): (&dyn World, &Compilation),
) -> Option<PlanChanges> {
    let sides = [DiffSide { world: old, compilation: before }, DiffSide { world: new, compilation: after }];
    let [old, new] = sides;
    let mut diff = diff_trees(Some(old), Some(new)).ok()?;
    diff.remove_checks();
    // A file whose change affects only the id of the plan does not matter to the user's decision.
    diff.changes.retain(|change| change.area != ChangeArea::File || change.direction != Direction::Neutral);
    for started in &mut diff.starts {
        // For directives that can be started, only changes that may widen permissions matter to the user's decision.
        started.parts.clear();
        started.hooks.retain(|change| change.direction.may_widen());
        started.changes.retain(|change| change.direction.may_widen());
    }
    // Skips the title, which names the plans only by their ids.
    let lines = lines(&diff).into_iter().skip(1).map(|line| line.text).collect();
    Some(PlanChanges { widens: diff.widened, lines })
}

/// Returns the compilation with only the grants that a mode allows.
fn in_mode(compilation: &Compilation, mode: ChatMode) -> Compilation {
    let mut changed = compilation.clone();
    let plan = &mut changed.plan;
    match mode {
        ChatMode::ReadOnly => plan.capabilities.grants = read_only_grants(plan, &plan.capabilities.grants),
        // Both modes have the grants of the plan.
        ChatMode::Ask | ChatMode::Auto => {}
    }
    // The comparison uses the id only to distinguish the two sides.
    changed.plan_id = changed.plan.id().unwrap_or_default();
    changed
}

/// Describes the differences between two plans of a session, and states whether the new plan may do or spend more.
fn describe_changes(before: &Plan, after: &Plan) -> PlanChanges {
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
    let (old_model, new_model) = (&before.model, &after.model);
    if old_model.id != new_model.id {
        found.lines.push(format!("model {} instead of {}", new_model.id, old_model.id));
    } else if old_model.provider != new_model.provider {
        found.lines.push(format!("provider {} instead of {}", new_model.provider, old_model.provider));
    } else if (PlannedModel { requested: old_model.requested.clone(), ..new_model.clone() }) != *old_model {
        found.lines.push(format!("changes the settings of the model {}", new_model.id));
    }
    for name in before.limits.exceeding(&after.limits) {
        found.lines.push(format!("lowers the prompt limit `{name}` to {}", Limits::from(after.limits).get(name)));
    }
    if before.prompt != after.prompt {
        found.lines.push("changes the prompt".to_owned());
    }
    let removed = old.grants.iter().filter(|grant| !new.grants.contains(grant));
    found.lines.extend(removed.map(|grant| format!("no longer grants `{}`", grant.pattern)));
    found
}
