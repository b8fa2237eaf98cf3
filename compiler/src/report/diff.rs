//! A comparison of two plans of one directive, for reviewers. Two compiled plans are compared completely, together with
//! the plans of all directives that they can start. If the ids of two plans differ, the comparison therefore lists at
//! least one change with a direction. If a plan is read from a file, only the fields of `rye plan --format json` are
//! known, so only these fields are compared.

mod capabilities;
mod change;
mod context;
mod declarations;
mod hooks;
mod rest;
mod routes;
mod schemas;
mod settings;
mod side_error;
mod tools;

use std::collections::{BTreeMap, BTreeSet};

use rye_grammar::capability::normalize;
use rye_grammar::{ItemId, Sources};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::compile::{Compilation, CompileRequest, compile_with_sources};
use crate::lower::session_limits::SESSION_LIMIT;
use crate::report::closure::{NoPlan, Plans, collect_closure};
use crate::report::matrix::MatrixError;
use crate::report::render::json::{PlanReport, render};
use crate::semantics::glob::Glob;
use crate::semantics::glob::inclusion::{Witness, witness};
use crate::world::{ItemKind, World, WorldError};
pub use capabilities::CapabilityChange;
use change::DiffSides;
pub use change::{ChangeArea, DiffSide, Direction, PlanChange};
pub use context::{PartChange, PrefixChange};
pub use hooks::HookChange;
pub use routes::{RouteDiff, RoutedSide, diff_routes};
pub use side_error::SideError;

use crate::plan::source::SourceReport;

/// The differences between two plans. A side is missing if the directive is new or removed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanDiff {
    pub directive: String,
    pub before: Option<String>,
    pub after: Option<String>,
    /// True if the directive, or one that it can start, may do or spend more than before, or if this cannot be ruled
    /// out.
    pub widened: bool,
    /// Input tokens of the first request on both sides.
    pub tokens: BeforeAfter<u64>,
    /// Layers and tools that changed, in the order of the new plan, then removed layers and tools. These changes affect
    /// the text sent, not the permissions.
    pub parts: Vec<PartChange>,
    pub prefix: PrefixChange,
    pub capabilities: Vec<CapabilityChange>,
    pub hooks: Vec<HookChange>,
    pub limits: Vec<LimitChange>,
    /// Changes for which the comparison has no list of its own, each with its direction.
    pub changes: Vec<PlanChange>,
    pub model: Option<BeforeAfter<String>>,
    /// The extends chain, root first; null if the chain did not change.
    pub chain: Option<BeforeAfter<Vec<String>>>,
    pub cost: CostChange,
    /// The differences in each directive that this directive can start.
    pub starts: Vec<PlanDiff>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BeforeAfter<T> {
    pub before: T,
    pub after: T,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitChange {
    pub name: String,
    /// The value before the change, in dollars for `spend`; null if the old plan does not have the limit.
    pub before: Option<Value>,
    pub after: Option<Value>,
    pub raised: bool,
    pub source: Option<SourceReport>,
}

/// Costs in dollars on both sides; null if a side is missing, has no price, or has no bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostChange {
    pub first: BeforeAfter<Option<Value>>,
    pub typical: BeforeAfter<Option<Value>>,
    pub worst: BeforeAfter<Option<Value>>,
}

impl PlanDiff {
    /// Returns true if the two plans are equal byte for byte, no change is listed, and no directive that they can start
    /// differs.
    pub fn is_empty(&self) -> bool {
        self.before == self.after && self.starts.is_empty() && self.has_no_changes()
    }

    /// Records that some plans are not compared, as a change of unknown direction. `what` names the plans and the
    /// reason.
    pub fn add_uncompared(&mut self, area: ChangeArea, what: String) {
        self.add(PlanChange { area, what, direction: Direction::Unknown, source: None });
    }

    /// Adds a change to `changes`, the list of changes for which the comparison has no other list.
    pub fn add(&mut self, change: PlanChange) {
        self.changes.push(change);
        self.changes.sort_by_key(|change| change.area);
        self.set_widened();
    }

    /// Removes the changes of settings in `assertions.yaml` and `check.yaml`, which affect no run.
    pub fn remove_checks(&mut self) {
        self.changes.retain(|change| change.area != ChangeArea::Check);
        self.set_widened();
    }

    /// Returns true if no difference was found in the compared parts. The plans can still have different ids: a part
    /// that is not compared may differ.
    pub fn has_no_changes(&self) -> bool {
        self.parts.is_empty()
            && self.capabilities.is_empty()
            && self.hooks.is_empty()
            && self.limits.is_empty()
            && self.changes.is_empty()
    }

    fn set_widened(&mut self) {
        self.widened = self.capabilities.iter().any(|change| change.direction.may_widen())
            || self.limits.iter().any(|limit| limit.raised)
            || self.hooks.iter().any(|hook| hook.direction.may_widen())
            || self.changes.iter().any(|change| change.direction.may_widen())
            || self.starts.iter().any(|start| start.widened);
    }
}

/// Compares two printed plans; `None` stands for a missing directive. A changed file gets `Direction::Unknown` if the
/// printed plan does not contain the content of the file.
pub fn diff(before: Option<&PlanReport>, after: Option<&PlanReport>) -> PlanDiff {
    let mut found = of_reports(before, after);
    found.hooks = hooks::of_reports(before, after);
    if let (Some(before), Some(after)) = (before, after) {
        found.changes = unread_files(before, after);
        hooks::items::add_weakened_hooks_of_report(&mut found, before, after);
        if before.plan_id != after.plan_id && found.has_no_changes() {
            let what = "the plan differs in a part that is not printed".to_owned();
            found.changes.push(PlanChange {
                area: ChangeArea::Plan,
                what,
                direction: Direction::Unknown,
                source: None,
            });
        }
    }
    found.set_widened();
    found
}

/// Compares two compiled plans, and every directive that they can start; `None` stands for a missing directive.
///
/// # Errors
/// The directives of a side cannot be listed.
pub fn diff_trees(before: Option<DiffSide<'_>>, after: Option<DiffSide<'_>>) -> Result<PlanDiff, WorldError> {
    let (Some(old), Some(new)) = (before, after) else {
        let report = |tree: Option<DiffSide<'_>>| tree.map(|tree| render(tree.compilation, Vec::new()));
        return Ok(diff(report(before).as_ref(), report(after).as_ref()));
    };
    let root = old.compilation.plan.directive.clone();
    let starts = |tree: DiffSide<'_>| collect_closure(tree.world, &[&tree.compilation.plan]);
    let (was, is) = (starts(old)?, starts(new)?);
    let allowed = allowed_patterns(new.compilation, &is);
    let is_same_tree = has_equal_items(old.world, new.world)?;
    let mut uncompared = Vec::new();
    let mut plans = vec![ComparedPlans {
        id: root,
        was: Some(old.compilation),
        is: Some(new.compilation),
        diff: Some(of_trees(old, new)),
    }];
    for id in was.keys().chain(is.keys()).collect::<BTreeSet<_>>() {
        let bound = [was.get(id), is.get(id)].into_iter().flatten().find_map(exceeded_bound);
        if let Some(reason) = bound.filter(|_| !is_same_tree) {
            uncompared.push(format!("the plans of `{id}` are not compared: {reason}"));
        }
        for (was, is) in pair_plans(compilations(was.get(id)), compilations(is.get(id))) {
            let diff = match (was, is) {
                (Some(was), Some(is)) if was.plan_id == is.plan_id && !reaches_others(was, is, old, new) => None,
                (Some(was), Some(is)) => {
                    Some(of_trees(DiffSide { compilation: was, ..old }, DiffSide { compilation: is, ..new }))
                }
                (was, is) => {
                    let report = |one: Option<&Compilation>| one.map(|one| render(one, Vec::new()));
                    Some(diff(report(was).as_ref(), report(is).as_ref()))
                }
            };
            plans.push(ComparedPlans { id: id.clone(), was, is, diff });
        }
    }
    let lost =
        was.iter().filter_map(|(id, plans)| describe_lost_plan(id, plans.as_ref().ok()?, is.get(id)?, new.world));
    let lost: Vec<PlanChange> = lost.collect();
    hooks::items::add_weakened_hooks(&DiffSides::new(old, new), &mut plans)?;
    let mut diffs = plans.into_iter().map(|plan| plan.diff);
    let mut found = diffs.next().flatten().unwrap_or_else(|| of_trees(old, new));
    for what in uncompared {
        found.add_uncompared(ChangeArea::Start, what);
    }
    found.changes.extend(lost);
    found.changes.extend(rest::compare_project_checks(&DiffSides::new(old, new)));
    found.changes.sort_by_key(|change| change.area);
    for one in diffs.flatten() {
        found.starts.extend(without_reported(without_unreachable(one, allowed.as_deref()), &found));
    }
    // The comparison of a started directive lists the effects of its file.
    for start in &found.starts {
        let file = format!("directive {}: ", start.directive);
        for change in found.changes.iter_mut().filter(|change| change.area == ChangeArea::File) {
            let effect = change.what.strip_prefix(&file);
            if effect.is_some_and(|effect| [rest::ONLY_ID, rest::CHANGED_FILE].contains(&effect)) {
                change.what = format!("{file}the file changed; the comparison of that directive lists the effects");
            }
        }
    }
    found.set_widened();
    Ok(found)
}

/// The plans of a directive on both sides, for equal inputs.
struct ComparedPlans<'c> {
    id: ItemId,
    was: Option<&'c Compilation>,
    is: Option<&'c Compilation>,
    /// The differences between the plans; `None` if the plans are equal.
    diff: Option<PlanDiff>,
}

/// Describes the error that prevents the plan of `id` in the world `new`. `None` if `id` has a plan there, or had no
/// plan before.
fn describe_lost_plan(id: &ItemId, was: &[Compilation], is: &Plans, new: &dyn World) -> Option<PlanChange> {
    let (false, Err(NoPlan::Errors(_))) = (was.is_empty(), is) else { return None };
    let mut sources = Sources::default();
    let compiled = compile_with_sources(new, &CompileRequest::new(id.clone()), &mut sources);
    let SideError { text, source } = SideError::find(&compiled.diagnostics, &sources);
    let what = format!("directive {id} can no longer be started, because of an error ({text})");
    Some(PlanChange { area: ChangeArea::Start, what, direction: Direction::Narrowed, source })
}

/// Returns the plans of a directive. The list is empty if the directive has no plan and therefore cannot be started.
fn compilations(plans: Option<&Plans>) -> &[Compilation] {
    plans.and_then(|plans| plans.as_deref().ok()).unwrap_or_default()
}

/// Returns the message that a directive has too many plans to compare; `None` if its plans exist, or are missing for
/// another reason.
fn exceeded_bound(plans: &Plans) -> Option<String> {
    match plans {
        Err(NoPlan::Matrix(error @ MatrixError::TooMany(_))) => Some(error.to_string()),
        Ok(_) | Err(NoPlan::Errors(_) | NoPlan::Matrix(MatrixError::Broken(_))) => None,
    }
}

/// Returns true if two worlds have the same items and context files, so that all of their plans are equal.
///
/// # Errors
/// The items of a world cannot be listed.
pub fn has_equal_items(old: &dyn World, new: &dyn World) -> Result<bool, WorldError> {
    if old.context_files()? != new.context_files()? || old.mcp_json()? != new.mcp_json()? {
        return Ok(false);
    }
    for kind in ItemKind::ALL {
        let listed = old.list(kind)?;
        let is_equal = |id| new.candidates_unchanged(kind, id, &old.candidates(kind, id));
        if listed != new.list(kind)? || !listed.iter().all(|entry| is_equal(&entry.id)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns true if two equal plans reach tools whose files differ. Equal plans can reach different files, because a
/// plan does not list every tool that its grants allow.
fn reaches_others(was: &Compilation, is: &Compilation, old: DiffSide<'_>, new: DiffSide<'_>) -> bool {
    let trees = DiffSides::new(DiffSide { compilation: was, ..old }, DiffSide { compilation: is, ..new });
    !tools::compare_tools(&trees).is_empty()
}

/// Pairs the plans of one directive on both sides: two plans for equal inputs form a pair. A plan that only one side
/// has is paired with `None`.
fn pair_plans<'c>(
    was: &'c [Compilation],
    is: &'c [Compilation],
) -> Vec<(Option<&'c Compilation>, Option<&'c Compilation>)> {
    let same = |one: &Compilation, other: &Compilation| one.request.inputs == other.request.inputs;
    let mut found: Vec<_> = is.iter().map(|new| (was.iter().find(|old| same(old, new)), Some(new))).collect();
    found.extend(was.iter().filter(|old| !is.iter().any(|new| same(old, new))).map(|old| (Some(old), None)));
    found
}

/// Returns the patterns that bound the capabilities of every thread below the root: the grants of the root, and those
/// of all hooks. `None` if the root inherits the grants of an unknown thread.
fn allowed_patterns(root: &Compilation, below: &BTreeMap<ItemId, Plans>) -> Option<Vec<Glob>> {
    if !root.plan.capabilities.declared {
        return None;
    }
    let plans = below.values().flatten().flatten().chain([root]);
    let hooks = plans.flat_map(|one| &one.plan.hooks).flat_map(|hook| hook.grants.iter().map(String::as_str));
    let own = root.plan.capabilities.grants.iter().map(|grant| grant.pattern.as_str());
    Some(own.chain(hooks).map(|pattern| Glob::new(&normalize(pattern).0)).collect())
}

/// Sets the direction of each added grant to neutral that shares no capability with the patterns `allowed`. Such a
/// grant has no effect, because a thread has only capabilities that every thread of its spawn chain has.
fn without_unreachable(mut one: PlanDiff, allowed: Option<&[Glob]>) -> PlanDiff {
    let Some(allowed) = allowed else { return one };
    for change in one.capabilities.iter_mut().filter(|change| change.direction.may_widen()) {
        // Without its capability, a host or a folder has no effect.
        let wanted = change.pattern().map(|pattern| Glob::new(&normalize(pattern).0));
        let is_allowed = |wanted: &Glob| allowed.iter().any(|held| witness(&[wanted, held], &[]) != Witness::None);
        if wanted.is_some_and(|wanted| !is_allowed(&wanted)) {
            change.direction = Direction::Neutral;
            change.by.push_str("; no grant of the starting directive allows this capability");
        }
    }
    one.set_widened();
    one
}

/// Removes from `one` the changes that `root` contains too. `root` is the comparison of a directive, and `one` is the
/// comparison of another directive that it can start. Returns `None` if no change remains and both sides have this
/// other directive.
fn without_reported(mut one: PlanDiff, root: &PlanDiff) -> Option<PlanDiff> {
    one.changes.retain(|change| !root.changes.contains(change));
    one.hooks.retain(|hook| !root.hooks.contains(hook));
    one.parts.retain(|part| !root.parts.contains(part));
    one.limits.retain(|limit| !root.limits.contains(limit));
    one.set_widened();
    let is_on_one_side = one.before.is_none() != one.after.is_none();
    (is_on_one_side || !one.has_no_changes()).then_some(one)
}

/// Compares two plans, without the plans of the directives that their threads can start.
fn of_trees(before: DiffSide<'_>, after: DiffSide<'_>) -> PlanDiff {
    let (old, new) = (render(before.compilation, Vec::new()), render(after.compilation, Vec::new()));
    let mut found = of_reports(Some(&old), Some(&new));
    let trees = DiffSides::new(before, after);
    // Missing `<permissions>` have no place of their own.
    for change in found.capabilities.iter_mut().filter(|change| change.source.is_none()) {
        change.source = trees.directive();
    }
    for limit in found.limits.iter_mut().filter(|limit| limit.source.is_none()) {
        // A limit that has its default value from the code has no place. Its place is then the declaration on the old
        // side.
        let is_of_session = limit.name.starts_with(SESSION_LIMIT);
        let key = if is_of_session { limit.name.clone() } else { format!("limit.{}", limit.name) };
        limit.source = trees.origin(&key);
    }
    for part in found.parts.iter_mut().filter(|part| part.before.is_some() && part.after.is_some()) {
        let place = ItemId::parse(&part.id).ok().and_then(|id| trees.changed_knowledge(&id));
        part.source = place.or_else(|| part.source.take());
    }
    found.hooks = hooks::compare_hooks(&trees);
    found.changes = rest::compare_rest(&trees);
    found.changes.extend(declarations::compare_declarations(&trees));
    found.changes.extend(settings::compare_settings(&trees));
    found.changes.extend(tools::compare_tools(&trees));
    let sources = found.changes.iter().map(|change| &change.source);
    let sources = sources.chain(found.hooks.iter().map(|hook| &hook.source));
    let sources = sources.chain(found.limits.iter().map(|limit| &limit.source));
    let sources = sources.chain(found.capabilities.iter().map(|change| &change.source));
    let sources = sources.chain(found.parts.iter().map(|part| &part.source));
    let named: BTreeSet<String> = sources.flatten().map(|source| source.file.clone()).collect();
    let files = rest::compare_files(&trees, &found, &named);
    found.changes.extend(files);
    let missing: Vec<PlanChange> =
        rest::unexplained_changes(&trees).into_iter().filter_map(|one| unexplained_field(one, &found)).collect();
    found.changes.extend(missing);
    found.changes.sort_by_key(|change| change.area);
    found.set_widened();
    found
}

/// Returns `change`, the change of a plan field, if it has to be reported; `None` if another change in `found` already
/// covers the field.
fn unexplained_field(mut change: PlanChange, found: &PlanDiff) -> Option<PlanChange> {
    let field = change.what.split('`').nth(1).unwrap_or_default().to_owned();
    let has = |area: ChangeArea| found.changes.iter().any(|change| change.area == area);
    let is_reported = match field.as_str() {
        "manifest" | "chain" | "graph" | "context_files" | "omitted" => !found.has_no_changes(),
        "prompt" => !found.parts.is_empty() || has(ChangeArea::Interface),
        "palette" => has(ChangeArea::Tool) || !found.capabilities.is_empty() || !found.parts.is_empty(),
        "dropped_tools" => has(ChangeArea::Tool) || has(ChangeArea::Setting) || !found.capabilities.is_empty(),
        "capabilities" => !found.capabilities.is_empty() || has(ChangeArea::Approval),
        "limits" => !found.limits.is_empty(),
        "hooks" => !found.hooks.is_empty(),
        "interface" => has(ChangeArea::Interface),
        "model" => has(ChangeArea::Model),
        "route" => has(ChangeArea::Chain),
        "limit_ceilings" | "session_limits" => has(ChangeArea::Setting) || !found.limits.is_empty(),
        "settings" => has(ChangeArea::Setting) || has(ChangeArea::Approval),
        "description" | "category" | "nudge" | "continuation_directive" => has(ChangeArea::Plan),
        _ => false,
    };
    if is_reported {
        return None;
    }
    // A difference in one of these fields need not change its meaning; changes of the meaning are reported elsewhere.
    let meaningless = ["capabilities", "prompt", "dropped_tools", "graph", "manifest", "context_files", "omitted"];
    if meaningless.contains(&field.as_str()) {
        change.direction = Direction::Neutral;
    }
    Some(change)
}

/// Lists changed files whose content a printed plan does not contain.
fn unread_files(before: &PlanReport, after: &PlanReport) -> Vec<PlanChange> {
    let hooked = |id: &str| {
        let file = format!("{id}.md");
        let all = || before.hooks.iter().chain(&after.hooks);
        let of_hook = format!("directive `{id}`");
        all().filter_map(|hook| hook.starts.as_ref()).any(|start| start.contains(&of_hook))
            || all().filter_map(|hook| hook.source.as_ref()).any(|source| source.file.ends_with(&file))
    };
    let is_read = |plan: &PlanReport, id: &str| plan.manifest.iter().any(|read| read.kind == "tool" && read.id == id);
    let mut found: Vec<PlanChange> = Vec::new();
    let one_way = |from: &PlanReport, to: &PlanReport| -> Vec<crate::report::render::json::ReadReport> {
        to.manifest.iter().filter(|read| !from.manifest.contains(read)).cloned().collect()
    };
    for read in one_way(before, after).into_iter().chain(one_way(after, before)) {
        let unknown = match read.kind.as_str() {
            // Changed texts of knowledge and context files are reported with the layers.
            "knowledge" | "context" => false,
            "directive" => hooked(&read.id),
            // A tool that became reachable or unreachable is reported with the grants.
            "tool" => is_read(before, &read.id) && is_read(after, &read.id),
            _ => true,
        };
        let what = format!("{} {} changed", read.kind, read.id);
        let direction = if unknown { Direction::Unknown } else { Direction::Neutral };
        if !found.iter().any(|change| change.what == what) {
            found.push(PlanChange { area: ChangeArea::File, what, direction, source: None });
        }
    }
    found
}

/// Compares two printed plans; `None` stands for a missing plan. The caller computes the fields `widened`, `hooks` and
/// `changes`.
fn of_reports(before: Option<&PlanReport>, after: Option<&PlanReport>) -> PlanDiff {
    let directive = after.or(before).map(|plan| plan.directive.clone()).unwrap_or_default();
    let input = |plan: Option<&PlanReport>| plan.map_or(0, |p| p.tokens.input);
    let cost = |of: fn(&PlanReport) -> &Option<Value>| BeforeAfter {
        before: before.and_then(|plan| of(plan).clone()),
        after: after.and_then(|plan| of(plan).clone()),
    };
    PlanDiff {
        directive,
        before: before.map(|plan| plan.plan_id.clone()),
        after: after.map(|plan| plan.plan_id.clone()),
        widened: false,
        tokens: BeforeAfter { before: input(before), after: input(after) },
        parts: context::compare_parts(before, after),
        prefix: context::prefix_change(before, after),
        capabilities: capabilities::compare_capabilities(before, after),
        hooks: Vec::new(),
        // Empty if one of the plans is missing: the capabilities describe the change then.
        limits: compare_limits(before, after),
        changes: Vec::new(),
        model: before_after(before, after, |plan| format!("{}/{}", plan.model.provider, plan.model.id)),
        chain: before_after(before, after, |plan| plan.chain.clone()),
        cost: CostChange {
            first: cost(|plan| &plan.cost.first.cost),
            typical: cost(|plan| &plan.cost.typical.cost),
            worst: cost(|plan| &plan.cost.worst.cost),
        },
        starts: Vec::new(),
    }
}

fn before_after<T: PartialEq>(
    before: Option<&PlanReport>,
    after: Option<&PlanReport>,
    of: impl Fn(&PlanReport) -> T,
) -> Option<BeforeAfter<T>> {
    let (before, after) = (of(before?), of(after?));
    (before != after).then_some(BeforeAfter { before, after })
}

fn compare_limits(before: Option<&PlanReport>, after: Option<&PlanReport>) -> Vec<LimitChange> {
    let (Some(before), Some(after)) = (before, after) else { return Vec::new() };
    let mut changes = Vec::new();
    // A plan of a run has no session limits. They are compared only if both plans belong to chats.
    let session = |name: &String| (format!("{SESSION_LIMIT}.{name}"), before.session_limits.get(name));
    let of_session = after.session_limits.iter().map(|(name, limit)| (session(name), limit));
    let of_session = of_session.filter(|((_, was), _)| was.is_some());
    let of_prompt = after.limits.iter().map(|(name, limit)| ((name.clone(), before.limits.get(name)), limit));
    for ((name, was), limit) in of_prompt.chain(of_session) {
        let was = was.map(|limit| limit.value.clone());
        if was.as_ref() != Some(&limit.value) {
            let number = |value: &Value| value.as_f64().unwrap_or(f64::INFINITY);
            changes.push(LimitChange {
                name,
                raised: was.as_ref().is_some_and(|was| number(&limit.value) > number(was)),
                before: was,
                after: Some(limit.value.clone()),
                source: limit.source.clone(),
            });
        }
    }
    changes
}

#[cfg(test)]
mod tests;
