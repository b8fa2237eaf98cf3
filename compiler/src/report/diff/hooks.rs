//! Changes of hooks. The old and the new condition of a hook are compared by implication: if the new condition implies
//! the old one, the hook fires in no new case. `HookRole` determines whether a hook that fires in more cases widens or
//! narrows a plan.

pub(super) mod items;
mod order;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use rye_grammar::condition::{Path, Segment, from_data};
use rye_grammar::{SourceId, Span};

use super::change::{DiffSides, Direction};
use super::tools;
use crate::compile::Compilation;
use crate::diagnostics::quote_list;
use crate::hook::{HookAction, HookPoint, OnFailure, PlanVerdict, PlannedHook, SESSION_SCOPE};
use crate::lower::HookTrace;
use crate::plan::source::SourceReport;
use crate::plan::{FieldType, InterfaceField};
use crate::report::render::json::{HookReport, PlanReport, VerdictReport};
use crate::semantics::condition::{Condition, Domain, Implication, PathValues};
use crate::semantics::hook_point::{self, Mode, PathMeaning};
use crate::semantics::hook_table::is_answer_ignored;
use crate::semantics::value::{Type, to_node};
use crate::trust::{TrustRequirement, TrustRequirementKind, describe_start, describe_steering};
use crate::validate::domain;

const NO_ACTION: &str = "unknown effect: a plan file does not contain the action of the hook";

/// The reason for the direction `neutral` of a hook that differs, but has the same effect.
const OTHER_PART: &str = "another part of the hook's declaration changed";

/// A hook that exists on one side only, or that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HookChange {
    pub id: String,
    pub event: String,
    pub direction: Direction,
    /// The reason for `direction`, as a clause.
    pub why: String,
    pub before: Option<VerdictReport>,
    pub after: Option<VerdictReport>,
    /// True if the hook could not fire before and can fire now.
    pub newly_reachable: bool,
    pub source: Option<SourceReport>,
}

/// The effect of a hook on a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HookRole {
    /// Stops a call or a thread, or requests approval.
    Guard,
    /// Starts or signs an item.
    Act,
    /// Lets a thread continue that would otherwise stop, compacts its conversation, or raises a limit.
    License,
    /// Changes data that the thread sends or gets, and can therefore withhold a part of the data.
    Filter,
    /// Adds text, or selects the extends chain. Changes of the text and of the chain are compared elsewhere.
    Text,
}

fn hook_role(hook: &PlannedHook) -> HookRole {
    match &hook.action {
        // `block` on `agent_end` refuses the final answer, so the thread continues.
        HookAction::Block { .. } if hook.event == HookPoint::AgentEnd => HookRole::License,
        HookAction::Block { .. } | HookAction::Terminate { .. } | HookAction::Escalate => HookRole::Guard,
        HookAction::Execute { .. } | HookAction::Sign { .. } => HookRole::Act,
        HookAction::Raise { .. }
        | HookAction::Retry { .. }
        | HookAction::Continue
        | HookAction::FollowUp { .. }
        | HookAction::Handoff
        | HookAction::Compact => HookRole::License,
        HookAction::Transform { .. }
        | HookAction::Handled { .. }
        | HookAction::Modify { .. }
        | HookAction::Drop { .. }
        | HookAction::KeepLast { .. }
        | HookAction::Replace { .. } => HookRole::Filter,
        HookAction::SetExtends { .. }
        | HookAction::Fetch { .. }
        | HookAction::Message { .. }
        | HookAction::SystemPrompt { .. }
        | HookAction::Inject { .. } => HookRole::Text,
    }
}

/// Returns true if `other` acts at the same event as `one`, with an equal or a stronger effect. An ignored answer is
/// the weakest effect. Conditions are not compared. If `reads_status` is false, no hook acts on the end status, so two
/// hooks that end a thread may set different statuses.
fn is_replacement(one: &PlannedHook, other: &PlannedHook, reads_status: bool) -> bool {
    let same = match (&one.action, &other.action) {
        (HookAction::Block { .. }, HookAction::Block { .. })
        | (HookAction::Escalate, HookAction::Escalate | HookAction::Terminate { .. })
        | (HookAction::Retry { .. }, HookAction::Retry { .. })
        | (HookAction::FollowUp { .. }, HookAction::FollowUp { .. }) => true,
        // If no hook acts on the end status, the status makes no difference: the thread ends with any status.
        (
            HookAction::Terminate { status: one, scope: a, .. },
            HookAction::Terminate { status: other, scope: b, .. },
        ) => (one == other || !reads_status) && (a == b || b.as_deref() == Some(SESSION_SCOPE)),
        (HookAction::Raise { limit: a, value: one }, HookAction::Raise { limit: b, value: other }) => {
            // A hook that raises a limit can be replaced by a hook that raises the same limit to a higher value.
            let at_most = one.as_f64().zip(other.as_f64()).is_some_and(|(one, other)| one <= other);
            a == b && (one == other || at_most)
        }
        (one, other) => one == other,
    };
    let is_ignored = |hook: &PlannedHook| is_answer_ignored(hook.event, hook.layer);
    same && one.event == other.event && (!is_ignored(other) || is_ignored(one))
}

/// Returns true if a hook starts or signs an item at an event whose facts include the status of an ended thread.
fn acts_on_status(hook: &PlannedHook) -> bool {
    let is_end = match hook.event {
        HookPoint::AfterComplete | HookPoint::ThreadCompleted | HookPoint::ThreadError | HookPoint::ThreadCancelled => {
            true
        }
        HookPoint::ResolveExtends
        | HookPoint::BuildSystemPrompt
        | HookPoint::ThreadStarted
        | HookPoint::ThreadContinued
        | HookPoint::Input
        | HookPoint::Command
        | HookPoint::BeforeAgentStart
        | HookPoint::Context
        | HookPoint::ToolCall
        | HookPoint::ToolExecutionStart
        | HookPoint::ToolExecutionEnd
        | HookPoint::ToolResult
        | HookPoint::AfterStep
        | HookPoint::Limit
        | HookPoint::Error
        | HookPoint::ContextLimitReached
        | HookPoint::DirectiveReturn
        | HookPoint::AgentEnd
        | HookPoint::CognitionIn
        | HookPoint::CognitionOut
        | HookPoint::ToolCallResult
        | HookPoint::ThreadResumed => false,
    };
    is_end && hook_role(hook) == HookRole::Act
}

/// A hook that a run has to evaluate, with its condition.
#[derive(Clone)]
struct LiveHook<'p> {
    hook: &'p PlannedHook,
    /// The compiled condition; `None` if the condition cannot be parsed.
    condition: Option<Condition>,
}

impl LiveHook<'_> {
    /// Returns the condition as it is written; `None` if the hook always acts.
    fn cases(&self) -> Option<&Value> {
        self.hook.condition.as_ref().filter(|_| self.hook.verdict != PlanVerdict::Fires)
    }
}

fn live_hooks(compilation: &Compilation) -> Vec<LiveHook<'_>> {
    let of = |hook| LiveHook { hook, condition: condition(hook) };
    compilation.plan.hooks.iter().filter(|hook| hook.is_live()).map(of).collect()
}

fn condition(hook: &PlannedHook) -> Option<Condition> {
    let written = match (&hook.condition, &hook.verdict) {
        (None, _) | (_, PlanVerdict::Fires) => return Some(Condition::always()),
        (Some(written), _) => written,
    };
    let parsed = from_data(&to_node(written, Span::new(SourceId(0), 0, 0)));
    if !parsed.errors.is_empty() {
        return None;
    }
    parsed.tree.map_or_else(|| Some(Condition::always()), |expr| Condition::compile(&expr).ok())
}

/// Returns the changes of the hooks between two plans, one for each changed hook: first the hooks of the new plan, then
/// the hooks that only the old plan has.
pub fn compare_hooks(trees: &DiffSides<'_>) -> Vec<HookChange> {
    let (before, after) = (trees.before.compilation, trees.after.compilation);
    let (old, new) = (live_hooks(before), live_hooks(after));
    let parameters = tools::parameter_types(trees);
    let reads_status = old.iter().chain(&new).any(|one| acts_on_status(one.hook));
    let covered = |one: &LiveHook<'_>, by: &[LiveHook<'_>]| {
        let replacements = || by.iter().filter(|other| is_replacement(one.hook, other.hook, reads_status));
        if one.condition.is_some() && replacements().any(|other| other.cases() == one.cases()) {
            return Implication::Holds;
        }
        let others: Vec<&Condition> = replacements().filter_map(|other| other.condition.as_ref()).collect();
        let values = |path: &Path| possible_values(one.hook.event, path, &parameters, (before, after));
        match &one.condition {
            Some(condition) => condition.implies_any(&others, &values),
            None => Implication::Unproved,
        }
    };
    let mut changes: Vec<HookChange> = Vec::new();
    // If a hook acts only in cases in which it acted before, the reason of the change is its new action.
    let action_change = |one: &LiveHook<'_>, other: &[LiveHook<'_>], is_new: bool| {
        let same = other.iter().find(|other| other.hook.id == one.hook.id && other.hook.event == one.hook.event)?;
        let values = |path: &Path| possible_values(one.hook.event, path, &parameters, (before, after));
        let is_within = one.condition.as_ref()?.implies_any(&[same.condition.as_ref()?], &values) == Implication::Holds;
        let (was, is) = if is_new { (same, one) } else { (one, same) };
        (is_within && was.hook.action != is.hook.action).then(|| describe_other_action(was.hook, is.hook))
    };
    for one in &new {
        let needs_new_trust = has_requirement(after, one.hook) && !has_requirement(before, one.hook);
        if let Some((direction, why)) = describe_gain(one.hook, &covered(one, &old), needs_new_trust) {
            let why = action_change(one, &old, true).filter(|_| !needs_new_trust).unwrap_or(why);
            add_finding(&mut changes, one.hook, direction, why, (before, after));
        }
    }
    for one in &old {
        let is_strict = |other: &&LiveHook<'_>| {
            one.hook.id == other.hook.id
                || one.hook.on_failure == OnFailure::Warn
                || other.hook.on_failure == OnFailure::Fail
        };
        let strict: Vec<LiveHook<'_>> = new.iter().filter(is_strict).cloned().collect();
        let answer = covered(one, &strict);
        let kept = new.iter().any(|other| other.hook.id == one.hook.id && other.hook.event == one.hook.event);
        if let Some((direction, why)) = describe_loss(one.hook, &answer, kept) {
            let why = action_change(one, &new, false).unwrap_or(why);
            add_finding(&mut changes, one.hook, direction, why, (before, after));
        }
    }
    for (was, is) in pairs(&old, &new) {
        if was.on_failure == OnFailure::Fail && is.on_failure == OnFailure::Warn {
            let why = "a failure of the hook no longer stops the thread".to_owned();
            add_finding(&mut changes, was, Direction::Widened, why, (before, after));
        }
    }
    for (was, is) in pairs(&old, &new) {
        if is_terminate(was) && is_terminate(is) && was.action != is.action {
            add_finding(&mut changes, is, Direction::Neutral, describe_other_action(was, is), (before, after));
        }
    }
    order::compare_order(&mut changes, before, after);
    let renamed = renamed_hooks(&old, &new, &covered);
    for (one, others) in &renamed {
        let ids: Vec<&str> = others.iter().map(|other| other.id.as_str()).collect();
        let acts = if ids.len() == 1 { "which acts" } else { "which together act" };
        let why = format!("replaced by {}, {acts} in the same cases", quote_list(&ids));
        add_finding(&mut changes, one, Direction::Neutral, why, (before, after));
    }
    let is_replacing = |hook: &PlannedHook| {
        let mut others = renamed.iter().flat_map(|(_, others)| others);
        others.any(|other| other.id == hook.id && other.event == hook.event)
    };
    for hook in after.plan.hooks.iter().chain(&before.plan.hooks).filter(|hook| !is_replacing(hook)) {
        let find = |compilation: &Compilation| -> Vec<PlannedHook> {
            let of_id = |h: &&PlannedHook| h.id == hook.id && h.event == hook.event;
            compilation.plan.hooks.iter().filter(of_id).cloned().collect()
        };
        if find(before) != find(after) {
            add_finding(&mut changes, hook, Direction::Neutral, OTHER_PART.to_owned(), (before, after));
        }
    }
    changes
}

/// Returns the hooks of `old`, each with the hook of `new` that has its id and its event.
fn pairs<'p>(old: &[LiveHook<'p>], new: &[LiveHook<'p>]) -> Vec<(&'p PlannedHook, &'p PlannedHook)> {
    let same = |one: &PlannedHook, other: &PlannedHook| one.id == other.id && one.event == other.event;
    let pair = |one: &LiveHook<'p>| Some((one.hook, new.iter().find(|other| same(one.hook, other.hook))?.hook));
    old.iter().filter_map(pair).collect()
}

/// Returns each hook of `old` that new hooks replace, with these new hooks. The replaced hook is not in `new`, and the
/// new hooks are not in `old`. Together, the new hooks act in exactly the cases in which the old hook acted. `covered`
/// proves that a hook acts only in cases in which at least one hook of a list acts.
fn renamed_hooks<'p>(
    old: &[LiveHook<'p>],
    new: &[LiveHook<'p>],
    covered: &dyn Fn(&LiveHook<'p>, &[LiveHook<'p>]) -> Implication,
) -> Vec<(&'p PlannedHook, Vec<&'p PlannedHook>)> {
    let is_in = |one: &LiveHook<'_>, list: &[LiveHook<'_>]| {
        list.iter().any(|other| other.hook.id == one.hook.id && other.hook.event == one.hook.event)
    };
    let added: Vec<&LiveHook<'p>> = new.iter().filter(|one| !is_in(one, old)).collect();
    let mut renamed = Vec::new();
    for one in old.iter().filter(|one| !added.is_empty() && !is_in(one, new)) {
        let is_part = |other: &&&LiveHook<'p>| {
            let is_as_strict = one.hook.on_failure == other.hook.on_failure;
            is_as_strict && covered(other, std::slice::from_ref(one)) == Implication::Holds
        };
        let parts: Vec<LiveHook<'p>> = added.iter().filter(is_part).map(|other| (*other).clone()).collect();
        if !parts.is_empty() && covered(one, &parts) == Implication::Holds {
            renamed.push((one.hook, parts.iter().map(|part| part.hook).collect()));
        }
    }
    renamed
}

fn is_terminate(hook: &PlannedHook) -> bool {
    matches!(hook.action, HookAction::Terminate { .. })
}

/// Returns true if the plan of `compilation` requires trust in `hook`.
pub(super) fn has_requirement(compilation: &Compilation, hook: &PlannedHook) -> bool {
    let of_hook = |one: &TrustRequirement| one.kind == TrustRequirementKind::Hook && one.name == hook.id;
    compilation.trust_requirements.iter().any(of_hook)
}

/// Returns the direction and the reason of the change if `hook`, a hook of the new plan, may act in more cases than
/// before; else `None`. `answer` is the result of a proof that a hook of the old plan had the same effect in each case
/// in which `hook` acts. `needs_new_trust` is true if only the new plan requires trust in `hook`
/// (decision 0105).
fn describe_gain(hook: &PlannedHook, answer: &Implication, needs_new_trust: bool) -> Option<(Direction, String)> {
    let unproved = match answer {
        Implication::Holds => return None,
        Implication::Fails { .. } => false,
        Implication::Unproved => true,
    };
    let wider = if unproved { Direction::Unknown } else { Direction::Widened };
    let when = format_example(answer);
    Some(match hook_role(hook) {
        HookRole::Guard if needs_new_trust => (
            Direction::Narrowed,
            format!("the hook stops a call or thread in more cases{when}; the file of the hook has to be trusted"),
        ),
        HookRole::Guard => (Direction::Narrowed, format!("the hook stops a call or thread in more cases{when}")),
        HookRole::Filter | HookRole::Text if needs_new_trust => {
            let how = describe_steering(&hook.action).unwrap_or("changes what the model reads");
            (
                Direction::Widened,
                format!(
                    "the hook {how} in a thread with grants that an untrusted project may not use: the file of the hook has to be trusted"
                ),
            )
        }
        HookRole::Act => (wider, format!("the hook now starts an item{when}")),
        HookRole::License => (wider, format!("the thread now continues{when}")),
        HookRole::Filter => (Direction::Neutral, format!("it changes more content{when}")),
        HookRole::Text => (Direction::Neutral, "the sent text changes".to_owned()),
    })
}

/// Returns the direction and the reason of the change if `hook`, a hook of the old plan, may act in fewer cases now;
/// else `None`. `answer` is the result of a proof. `Implication::Holds` means that in all cases of the old plan a hook
/// of the new plan has the same effect. `kept` is true if the new plan has a live hook with the id and event of `hook`.
fn describe_loss(hook: &PlannedHook, answer: &Implication, kept: bool) -> Option<(Direction, String)> {
    let unproved = match answer {
        Implication::Holds => return None,
        Implication::Fails { .. } => false,
        Implication::Unproved => true,
    };
    let when = format_example(answer);
    Some(match hook_role(hook) {
        HookRole::Guard if unproved => {
            (Direction::Unknown, "the hook may stop a call or thread in fewer cases than before".to_owned())
        }
        HookRole::Guard if kept => {
            (Direction::Widened, format!("the hook stops a call or thread in fewer cases{when}"))
        }
        HookRole::Guard => (Direction::Widened, "the removed hook could stop a call or thread".to_owned()),
        // The result of the item may have blocked a call or ended the thread.
        HookRole::Act if can_answer(hook) => (Direction::Unknown, "the result of the hook could stop calls".to_owned()),
        HookRole::Act => (Direction::Narrowed, "the hook starts an item in fewer cases".to_owned()),
        // The thread makes fewer turns, but may end with an answer that the hook refused.
        HookRole::License if matches!(hook.action, HookAction::Block { .. }) => {
            (Direction::Unknown, format!("an answer that the hook refused may now end the thread{when}"))
        }
        HookRole::License => (Direction::Narrowed, format!("the thread no longer continues{when}")),
        HookRole::Filter => (Direction::Unknown, format!("content that the hook stopped may now pass{when}")),
        HookRole::Text => (Direction::Neutral, "the sent text changes".to_owned()),
    })
}

/// Describes the change of a hook's action, as a clause.
fn describe_other_action(was: &PlannedHook, is: &PlannedHook) -> String {
    let start = |hook: &PlannedHook| describe_start(&hook.action, &hook.grants);
    let word = |hook: &PlannedHook| {
        let word = action_word(&hook.action);
        if let HookAction::Terminate { status, scope, .. } = &hook.action {
            let status = status.as_ref().map_or(String::new(), |status| format!(" with the status `{status}`"));
            let scope = scope.as_ref().map_or(String::new(), |scope| format!(" for the {scope}"));
            return format!("`{word}`{status}{scope}");
        }
        format!("`{word}`")
    };
    match (&was.action, &is.action) {
        (HookAction::Raise { limit: one, value: old }, HookAction::Raise { limit: other, value: new })
            if one == other =>
        {
            format!("the hook raises the limit `{one}` to {new}, previously to {old}")
        }
        _ if start(was) != start(is) => {
            let shown = |hook: &PlannedHook| start(hook).unwrap_or_else(|| format!("does {}", word(hook)));
            format!("the hook {}; previously the hook {}", shown(is), shown(was))
        }
        _ if word(was) == word(is) => format!("the action {} of the hook has other values", word(is)),
        _ => format!("the action of the hook is {}, previously {}", word(is), word(was)),
    }
}

/// Returns the name that hook files use for an action, such as `keep_last`.
fn action_word(action: &HookAction) -> String {
    let value = serde_json::to_value(action).unwrap_or_default();
    value.get("action").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn format_example(answer: &Implication) -> String {
    match answer {
        Implication::Fails { example } if !example.is_empty() => format!(", for example where {example}"),
        Implication::Fails { .. } | Implication::Holds | Implication::Unproved => String::new(),
    }
}

/// Returns true if the result of an item that the hook executes can change the outcome of its event, for example block
/// a call.
fn can_answer(hook: &PlannedHook) -> bool {
    can_answer_at(hook.event, hook.layer)
}

fn can_answer_at(event: HookPoint, layer: f64) -> bool {
    let is_answered = match hook_point::row_of(event).mode {
        Mode::FirstBlock | Mode::Chain | Mode::Control | Mode::FirstMatch => true,
        Mode::Collect | Mode::Observe => false,
    };
    is_answered && !is_answer_ignored(event, layer)
}

/// Adds a finding about a hook to the changes: the direction of the change, and the reason `why`. The changes contain
/// at most one finding about each hook. If there are two, the one with the greater [`Direction`] is kept (`Widened` is
/// the greatest).
fn add_finding(
    changes: &mut Vec<HookChange>,
    hook: &PlannedHook,
    direction: Direction,
    why: String,
    (before, after): (&Compilation, &Compilation),
) {
    let event = hook_point::row_of(hook.event).name;
    if let Some(known) = changes.iter_mut().find(|change| change.id == hook.id && change.event == event) {
        if known.direction < direction {
            (known.direction, known.why) = (direction, why);
        }
        return;
    }
    let find = |compilation: &Compilation| -> Option<(PlanVerdict, Option<SourceReport>)> {
        let all = || compilation.plan.hooks.iter().zip(&compilation.hooks);
        let of_id = |(h, _): &(&PlannedHook, &HookTrace)| h.id == hook.id && h.event == hook.event;
        let found = all().find(|one| of_id(one) && one.0.is_live()).or_else(|| all().find(of_id));
        found.map(|(h, trace)| (h.verdict.clone(), trace.place.as_ref().map(SourceReport::from)))
    };
    let (was, is) = (find(before), find(after));
    let verdict = |found: &Option<(PlanVerdict, _)>| found.as_ref().map(|(verdict, _)| verdict.into());
    let lives =
        |found: &Option<(PlanVerdict, _)>| matches!(found, Some((PlanVerdict::Fires | PlanVerdict::Depends { .. }, _)));
    changes.push(HookChange {
        id: hook.id.clone(),
        event: event.to_owned(),
        direction,
        why,
        before: verdict(&was),
        after: verdict(&is),
        newly_reachable: lives(&is) && !lives(&was),
        source: is.and_then(|(_, place)| place).or_else(|| was.and_then(|(_, place)| place)),
    });
}

/// Returns the possible values and the type of the fact that a path reads. If `domain` is `None`, the fact may have any
/// value: its values are unknown, or they differ between the two plans.
fn possible_values(
    event: HookPoint,
    path: &Path,
    parameters: &BTreeMap<String, BTreeSet<&'static str>>,
    (before, after): (&Compilation, &Compilation),
) -> PathValues {
    let point = hook_point::row_of(event);
    let text = path.to_string();
    let both = |of: &dyn Fn(&Compilation) -> String| {
        let (old, new) = (of(before), of(after));
        (old == new).then(|| Domain::Values(vec![Some(Value::from(new))]))
    };
    let known = match text.as_str() {
        "directive" => both(&|one| one.plan.directive.to_string()),
        "category" => both(&|one| one.plan.category.clone()),
        "model" => both(&|one| one.plan.model.id.clone()),
        _ => None,
    };
    let (domain, kind) = match point.resolve_path(path) {
        PathMeaning::Input => input_domain(path, before, after),
        PathMeaning::Fact(kind) => (domain::fact_domain(point, path, None), kind),
        PathMeaning::Open => {
            (None, parameter_type(path, parameters).or_else(|| output_type(event, path, before, after)))
        }
        PathMeaning::Nothing => (None, None),
    };
    PathValues { domain: known.or(domain), kind }
}

/// Returns the type of the call parameter that a path reads (`call.input.NAME`). `None` for any other path, or if tools
/// declare different types. A parameter that no reachable tool declares counts as text: no call contains the parameter,
/// so its type makes no difference.
fn parameter_type(path: &Path, parameters: &BTreeMap<String, BTreeSet<&'static str>>) -> Option<Type> {
    let [Segment::Name(root), Segment::Name(input), .., Segment::Name(name)] = path.segments.as_slice() else {
        return None;
    };
    if root != "call" || input != "input" {
        return None;
    }
    let types: Vec<&str> = parameters.get(name).into_iter().flatten().copied().collect();
    match types.as_slice() {
        [] => Some(Type::String),
        [one] => Type::parse(one),
        [..] => None,
    }
}

/// Returns the type of the declared output that a path reads, or of a part of it. `None` for any other path, or if the
/// types differ between the two plans.
fn output_type(event: HookPoint, path: &Path, before: &Compilation, after: &Compilation) -> Option<Type> {
    let (name, inside) = hook_point::declared_output(event, path)?;
    let of = |one: &Compilation| {
        let field = one.plan.interface.outputs.get(name)?;
        field.parts.kind_at(field.kind, inside)
    };
    of(after).filter(|kind| of(before) == Some(*kind)).map(FieldType::value_type)
}

fn input_domain(path: &Path, before: &Compilation, after: &Compilation) -> (Option<Domain>, Option<Type>) {
    let [_, Segment::Name(name)] = path.segments.as_slice() else { return (None, None) };
    let (old, new) = (&before.plan.interface, &after.plan.interface);
    let Some(field) = new.inputs.get(name).filter(|field| old.inputs.get(name) == Some(*field)) else {
        return (None, None);
    };
    match (old.values.get(name), new.values.get(name)) {
        (Some(one), Some(other)) if one == other => (Some(Domain::Values(vec![Some(one.clone())])), None),
        (None, None) => (of_field(field), Some(field.kind.value_type())),
        _ => (None, None),
    }
}

fn of_field(field: &InterfaceField) -> Option<Domain> {
    let optional = !field.required && field.default.is_none();
    let absent = optional.then_some(None);
    let values = |values: Vec<Value>| Domain::Values(values.into_iter().map(Some).chain(absent.clone()).collect());
    if !field.choices.is_empty() {
        return Some(values(field.choices.clone()));
    }
    match field.kind {
        FieldType::Boolean => Some(values(vec![true.into(), false.into()])),
        FieldType::Integer => Some(Domain::Number { whole: true, least: None, most: None, optional }),
        FieldType::Number => Some(Domain::Number { whole: false, least: None, most: None, optional }),
        FieldType::String | FieldType::Array | FieldType::Object => None,
    }
}

/// Compares the verdicts of the hooks of two reports. Reports contain neither conditions nor actions of hooks. So if a
/// hook is live in only one of two plans, the direction of the change is unknown.
pub fn of_reports(before: Option<&PlanReport>, after: Option<&PlanReport>) -> Vec<HookChange> {
    let all = |plan: Option<&PlanReport>| plan.map(|p| p.hooks.clone()).unwrap_or_default();
    let (old, new) = (all(before), all(after));
    let lives = |verdict: Option<VerdictReport>| matches!(verdict, Some(VerdictReport::Fires | VerdictReport::Depends));
    let both = before.is_some() && after.is_some();
    let mut changes: Vec<HookChange> = Vec::new();
    let find = |list: &[HookReport], hook: &HookReport| {
        list.iter().find(|h| h.id == hook.id && h.event == hook.event).map(|h| h.verdict)
    };
    for hook in new.iter().chain(&old) {
        let (was, is) = (find(&old, hook), find(&new, hook));
        if was == is || changes.iter().any(|change| change.id == hook.id && change.event == hook.event) {
            continue;
        }
        let unknown = both && lives(was) != lives(is);
        changes.push(HookChange {
            id: hook.id.clone(),
            event: hook.event.clone(),
            direction: if unknown { Direction::Unknown } else { Direction::Neutral },
            why: if unknown { NO_ACTION.to_owned() } else { String::new() },
            before: was,
            after: is,
            newly_reachable: lives(is) && !lives(was),
            source: hook.source.clone(),
        });
    }
    changes
}
