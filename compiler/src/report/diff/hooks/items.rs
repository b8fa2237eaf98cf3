//! Changes of the parts of a project that the items of hooks need. The answer of an item that a hook executes can block
//! a call or end a thread. If the item cannot run, the call usually passes (`on_failure: warn`). A change that narrows
//! a grant, a limit or a tool can therefore disable such a hook.

use std::collections::{BTreeMap, BTreeSet};

use rye_grammar::ItemId;
use rye_grammar::capability::normalize;

use super::{HookChange, OTHER_PART, add_finding, can_answer, can_answer_at};
use crate::compile::Compilation;
use crate::hook::{HookCall, HookSource, OnFailure, PlannedHook};
use crate::lower::session_limits::SESSION_LIMIT;
use crate::primary::{ItemType, Primary, format_capability};
use crate::report::closure::collect_starts;
use crate::report::diff::capabilities::CapabilityChange;
use crate::report::diff::change::{ChangeArea, DiffSide, DiffSides, Direction};
use crate::report::diff::{ComparedPlans, LimitChange, PlanDiff, of_trees, tools};
use crate::report::render::json::{HookReport, PlanReport, VerdictReport};
use crate::semantics::capability::CapabilitySet;
use crate::semantics::glob::Glob;
use crate::semantics::glob::inclusion::{Witness, witness};
use crate::semantics::hook_point;
use crate::semantics::limits::{LimitName, Limits};
use crate::world::{ItemKind, WorldError};

/// Prefixes of the paths of settings that can change the answer of a directive: attempts of a request, children at the
/// same time, and results of tools.
const SETTINGS_OF_ANSWERS: [&str; 4] = ["tool_result.", "retry.", "concurrency.", "patterns."];

/// A hook whose item may fail or return another answer in the new plan.
struct WeakenedHook<'c> {
    /// The index of the plan with the hook in the list of compared plans.
    plan: usize,
    hook: &'c PlannedHook,
    why: String,
}

/// Adds a change `unknown` for each hook that both sides have, and whose item needs a part of the project that changed.
/// `plans` lists the compared plans; the first one is the plan of the directive, and the others are plans of directives
/// that it can start.
///
/// # Errors
/// The directives of a side cannot be listed.
pub fn add_weakened_hooks(trees: &DiffSides<'_>, plans: &mut [ComparedPlans<'_>]) -> Result<(), WorldError> {
    for WeakenedHook { plan, hook, why } in find_weakened_hooks(trees, plans)? {
        let Some(plan) = plans.get_mut(plan) else { continue };
        let (Some(was), Some(is)) = (plan.was, plan.is) else { continue };
        let before = DiffSide { compilation: was, world: trees.before.world };
        let compare = || of_trees(before, DiffSide { compilation: is, world: trees.after.world });
        let diff = plan.diff.get_or_insert_with(compare);
        add_finding(&mut diff.hooks, hook, Direction::Unknown, why, (was, is));
        diff.set_widened();
    }
    Ok(())
}

/// Adds a change `unknown` for each hook of a printed plan that starts an item and can change the outcome of its event,
/// if the plan loses a grant or a limit is lower. A printed plan does not contain the other needs of the item.
pub fn add_weakened_hooks_of_report(found: &mut PlanDiff, before: &PlanReport, after: &PlanReport) {
    let limit = found.limits.iter().find(|limit| !limit.raised);
    let grant = found.capabilities.iter().find(|change| change.direction == Direction::Narrowed);
    let limit = limit.map(|limit| format!("the limit `{}` is lower", limit.name));
    let Some(what) = grant.map(|grant| format!("the plan loses {}", grant.what)).or(limit) else { return };
    let is_live = |hook: &HookReport| matches!(hook.verdict, VerdictReport::Fires | VerdictReport::Depends);
    for hook in before.hooks.iter().filter(|hook| is_live(hook) && hook.starts.is_some()) {
        let point = hook_point::by_name(&hook.event).map(|row| row.point);
        let is_twin = |other: &&HookReport| is_live(other) && (&other.id, &other.event) == (&hook.id, &hook.event);
        let Some(twin) = after.hooks.iter().find(is_twin) else { continue };
        if point.is_none_or(|point| can_answer_at(point, hook.layer)) {
            found.hooks.push(HookChange {
                id: hook.id.clone(),
                event: hook.event.clone(),
                direction: Direction::Unknown,
                why: format!("the call of the hook may fail or give another answer: {what}"),
                before: Some(hook.verdict),
                after: Some(twin.verdict),
                newly_reachable: false,
                source: twin.source.clone(),
            });
        }
    }
}

fn find_weakened_hooks<'c>(
    trees: &DiffSides<'_>,
    plans: &[ComparedPlans<'c>],
) -> Result<Vec<WeakenedHook<'c>>, WorldError> {
    let both = || plans.iter().enumerate().filter_map(|(index, plan)| Some((index, plan, plan.was?, plan.is?)));
    if !both().any(|(_, _, was, _)| was.plan.hooks.iter().any(answers_with_item)) {
        return Ok(Vec::new());
    }
    let needs = ItemNeeds::new(trees, plans)?;
    let mut found = Vec::new();
    for (index, plan, was, is) in both() {
        for hook in was.plan.hooks.iter().filter(|hook| answers_with_item(hook)) {
            let is_twin = |other: &&PlannedHook| {
                let is_same_hook = (&other.id, other.event) == (&hook.id, hook.event);
                is_same_hook && other.action == hook.action && answers_with_item(other)
            };
            let Some(twin) = is.plan.hooks.iter().find(is_twin) else { continue };
            let changed = needs.changed_needs(plan, hook, twin);
            if !changed.is_empty() {
                let why = format!("the call of the hook may fail or give another answer: {}", changed.join("; "));
                found.push(WeakenedHook { plan: index, hook: twin, why });
            }
        }
    }
    Ok(found)
}

/// Returns true if the hook executes an item whose result can change the outcome of its event.
fn answers_with_item(hook: &PlannedHook) -> bool {
    hook.is_live() && can_answer(hook) && matches!(hook.action.call(), Some(HookCall::Execute { .. }))
}

/// A changed part of the project that an item of a hook needs.
struct ChangedNeed {
    what: String,
    /// True if the only possible effect of the change is that the item fails, so that a hook with `on_failure: fail`
    /// stops the thread.
    only_fails: bool,
}

impl ChangedNeed {
    fn failure(what: String) -> Self {
        Self { what, only_fails: true }
    }

    fn answer(what: String) -> Self {
        Self { what, only_fails: false }
    }
}

/// The compared plans, with the directives that each of them can start on the old side.
struct ItemNeeds<'s, 'c> {
    trees: &'s DiffSides<'s>,
    plans: &'s [ComparedPlans<'c>],
    /// For each directive, the directive itself and those that its threads can start, directly or through others.
    closures: BTreeMap<ItemId, BTreeSet<ItemId>>,
}

impl<'s, 'c> ItemNeeds<'s, 'c> {
    fn new(trees: &'s DiffSides<'_>, plans: &'s [ComparedPlans<'c>]) -> Result<Self, WorldError> {
        let mut starts: BTreeMap<ItemId, BTreeSet<ItemId>> = BTreeMap::new();
        for plan in plans {
            let Some(was) = plan.was else { continue };
            starts.entry(plan.id.clone()).or_default().extend(collect_starts(trees.before.world, &was.plan)?);
        }
        let closures = starts.keys().map(|id| (id.clone(), collect_below(id, &starts))).collect();
        Ok(Self { trees, plans, closures })
    }

    /// Returns the compared plans of `id` and of each directive from which a thread of `id` can descend.
    fn spawn_chain(&self, id: &ItemId) -> Vec<&'s ComparedPlans<'c>> {
        let is_above = |plan: &&ComparedPlans<'_>| self.closures.get(&plan.id).is_some_and(|below| below.contains(id));
        self.plans.iter().filter(is_above).collect()
    }

    /// Describes the changed parts of the project that the item of a hook needs. `hook` and `twin` are the hook in the
    /// old and in the new plan.
    fn changed_needs(&self, plan: &ComparedPlans<'_>, hook: &PlannedHook, twin: &PlannedHook) -> Vec<String> {
        let Some(HookCall::Execute { item_type: kind, item_id, .. }) = hook.action.call() else { return Vec::new() };
        let chain = self.spawn_chain(&plan.id);
        let mut found = Vec::new();
        for id in self.possible_items(kind, item_id) {
            found.extend(self.lost_grants(&chain, plan, (hook, twin), (kind, &id)));
            match kind {
                ItemKind::Tool => found.extend(self.changes_of_tool(&chain, &id)),
                ItemKind::Directive => found.extend(self.changes_of_directive(&chain, &id)),
                ItemKind::Knowledge => found.extend(self.change_of_knowledge(&id)),
                ItemKind::Config | ItemKind::Prompt | ItemKind::Skill => {}
            }
        }
        let is_failing_closed = hook.on_failure == OnFailure::Fail && twin.on_failure == OnFailure::Fail;
        let mut lines: Vec<String> = Vec::new();
        for need in found.into_iter().filter(|need| !(need.only_fails && is_failing_closed)) {
            if !lines.contains(&need.what) {
                lines.push(need.what);
            }
        }
        lines
    }

    /// Returns the items that the id in a hook can name. If the id contains placeholders, these are all items of the
    /// kind whose id starts and ends like the text around the placeholders.
    fn possible_items(&self, kind: ItemKind, written: &str) -> Vec<ItemId> {
        let (Some((start, _)), Some((_, end))) = (written.split_once("${"), written.rsplit_once('}')) else {
            return ItemId::parse(written).into_iter().collect();
        };
        let is_possible = |id: &&ItemId| id.as_str().starts_with(start) && id.as_str().ends_with(end);
        self.trees.old.list(kind).iter().map(|entry| &entry.id).filter(is_possible).cloned().collect()
    }

    /// Returns a change if the hook may no longer execute the item (see `authorize_hook_call` of the engine).
    fn lost_grants(
        &self,
        chain: &[&ComparedPlans<'_>],
        plan: &ComparedPlans<'_>,
        (hook, twin): (&PlannedHook, &PlannedHook),
        (kind, id): (ItemKind, &ItemId),
    ) -> Option<ChangedNeed> {
        let capability = format_capability(Primary::Execute, ItemType::of(kind)?, Some(id));
        let needs_grant = |hook: &PlannedHook| {
            let is_static = hook.action.item().is_some_and(|(_, id)| !id.contains("${"));
            let of_directive = matches!(hook.source, HookSource::Directive { .. });
            let own = CapabilitySet::new(hook.grants.iter().cloned());
            of_directive || !(is_static || own.first_match(&capability).is_some())
        };
        if !needs_grant(twin) {
            return None;
        }
        let grants = |plan: &ComparedPlans<'_>, side: Option<&Compilation>| {
            let Some(side) = side else { return false };
            let held = &side.plan.capabilities;
            let patterns = CapabilitySet::new(held.grants.iter().map(|grant| grant.pattern.clone()));
            // A child without `<permissions>` has the grants of its parent.
            patterns.first_match(&capability).is_some() || (!held.declared && !self.is_root(plan))
        };
        let is_lost = |one: &&&ComparedPlans<'_>| {
            let was = grants(one, one.was) || (!needs_grant(hook) && (self.is_root(one) || one.id == plan.id));
            was && !grants(one, one.is)
        };
        let lost = chain.iter().find(is_lost)?;
        Some(ChangedNeed::failure(format!("no grant of `{}` allows {capability}", lost.id)))
    }

    fn is_root(&self, plan: &ComparedPlans<'_>) -> bool {
        self.plans.first().is_some_and(|root| root.id == plan.id)
    }

    fn changes_of_tool(&self, chain: &[&ComparedPlans<'_>], id: &ItemId) -> Vec<ChangedNeed> {
        let changed = tools::changed_results(self.trees, id).into_iter();
        let mut found: Vec<ChangedNeed> = changed
            .map(|change| ChangedNeed { what: format!("{id}: {}", change.what), only_fails: change.only_fails })
            .collect();
        let capability = Glob::new(&format_capability(Primary::Execute, ItemType::Tool, Some(id)));
        // `lost_grants` compares the grants of the tool itself, so they are left out here.
        let is_of_grant = |change: &&CapabilityChange| change.pattern() == Some(change.what.as_str());
        let lost = lost_access(chain, &[capability]).into_iter().filter(|(_, change)| !is_of_grant(change));
        found.extend(lost.map(|(id, change)| ChangedNeed::answer(format!("`{id}` loses {}", change.what))));
        found
    }

    fn change_of_knowledge(&self, id: &ItemId) -> Option<ChangedNeed> {
        let [old, new] = self.trees.unsigned_texts(ItemKind::Knowledge, id);
        (old != new).then(|| ChangedNeed::answer(format!("knowledge {id} changed")))
    }

    /// Returns the changes of the directive `id`, of every directive that it can start, and of the limits and grants
    /// that its threads get from their spawn parents.
    fn changes_of_directive(&self, chain: &[&ComparedPlans<'_>], id: &ItemId) -> Vec<ChangedNeed> {
        let mut found = Vec::new();
        let is_below = |plan: &&ComparedPlans<'_>| self.closures.get(id).is_some_and(|below| below.contains(&plan.id));
        let of_item: Vec<&ComparedPlans<'_>> = self.plans.iter().filter(is_below).collect();
        for plan in of_item.iter().filter(|plan| plan.was.is_some()) {
            if plan.is.is_none() {
                found.push(ChangedNeed::failure(format!("directive {} can no longer be started", plan.id)));
            } else if let Some(what) = plan.diff.as_ref().and_then(changed_part) {
                found.push(ChangedNeed::answer(format!("directive {}: {what}", plan.id)));
            }
        }
        let grants = of_item.iter().filter_map(|plan| plan.is).flat_map(|is| &is.plan.capabilities.grants);
        let grants: Vec<Glob> = grants.map(|grant| Glob::new(&normalize(&grant.pattern).0)).collect();
        let lost = lost_access(chain, &grants).into_iter();
        found.extend(lost.map(|(id, change)| ChangedNeed::answer(format!("`{id}` loses {}", change.what))));
        for plan in chain {
            let lowered = plan.diff.iter().flat_map(|diff| &diff.limits).filter(|limit| !limit.raised);
            for limit in lowered.filter(|limit| is_bounding(limit, &of_item)) {
                let what = format!("the limit `{}` of `{}` is lower", limit.name, plan.id);
                found.push(ChangedNeed::failure(what));
            }
        }
        found.extend(self.narrowed_settings());
        found
    }

    /// Returns the narrowed settings that can change the answer of a directive.
    fn narrowed_settings(&self) -> Vec<ChangedNeed> {
        let changes = self.plans.iter().filter_map(|plan| plan.diff.as_ref()).flat_map(|diff| &diff.changes);
        let narrowed = changes.filter(|one| one.area == ChangeArea::Setting && one.direction == Direction::Narrowed);
        let is_needed = |what: &&str| {
            let path = what.split_once(' ').map_or("", |(_, path)| path);
            SETTINGS_OF_ANSWERS.iter().any(|start| path.starts_with(start))
        };
        let needed = narrowed.map(|change| change.what.as_str()).filter(is_needed);
        needed.map(|what| ChangedNeed::failure(what.to_owned())).collect()
    }
}

/// Returns `id` and the directives that can be reached from it through `starts`.
fn collect_below(id: &ItemId, starts: &BTreeMap<ItemId, BTreeSet<ItemId>>) -> BTreeSet<ItemId> {
    let mut found = BTreeSet::from([id.clone()]);
    let mut waiting = vec![id];
    while let Some(id) = waiting.pop() {
        for next in starts.get(id).into_iter().flatten() {
            if found.insert(next.clone()) {
                waiting.push(next);
            }
        }
    }
    found
}

/// Returns the first change of a directive that can change the answer of its threads; `None` if there is none. Widened
/// changes do not count, because the comparison reports them on their own.
fn changed_part(diff: &PlanDiff) -> Option<String> {
    let part = || diff.parts.first().map(|part| format!("{} changed", part.id));
    let limit =
        diff.limits.iter().find(|limit| !limit.raised).map(|limit| format!("its limit `{}` is lower", limit.name));
    let may_lose = |direction: Direction| direction != Direction::Widened && direction != Direction::Neutral;
    let grant = || {
        let lost = diff.capabilities.iter().find(|change| may_lose(change.direction));
        lost.map(|change| format!("it loses {}", change.what))
    };
    let change = || {
        let is_answer =
            |area: ChangeArea| matches!(area, ChangeArea::Interface | ChangeArea::Model | ChangeArea::Chain);
        let may_count = |direction: Direction, area: ChangeArea| {
            may_lose(direction) || (direction == Direction::Neutral && is_answer(area))
        };
        let is_listed = |area: ChangeArea| !matches!(area, ChangeArea::Setting | ChangeArea::Trust | ChangeArea::Check);
        let found = diff.changes.iter().find(|one| is_listed(one.area) && may_count(one.direction, one.area));
        found.map(|one| one.what.clone())
    };
    let hook = || {
        let is_live =
            |verdict: Option<VerdictReport>| matches!(verdict, Some(VerdictReport::Fires | VerdictReport::Depends));
        let counts = |one: &&HookChange| {
            one.direction != Direction::Widened && one.why != OTHER_PART && (is_live(one.before) || is_live(one.after))
        };
        diff.hooks.iter().find(counts).map(|one| format!("its hook {} changed", one.id))
    };
    limit.or_else(grant).or_else(change).or_else(part).or_else(hook)
}

/// Returns the grants, hosts and folders that the directives of a spawn chain lose and that concern calls of `wanted`.
fn lost_access<'d>(chain: &[&'d ComparedPlans<'_>], wanted: &[Glob]) -> Vec<(&'d ItemId, &'d CapabilityChange)> {
    let concerns = |change: &CapabilityChange| {
        let Some(pattern) = change.pattern() else { return true };
        let lost = Glob::new(&normalize(pattern).0);
        wanted.iter().any(|wanted| witness(&[wanted, &lost], &[]) != Witness::None)
    };
    let mut found = Vec::new();
    for plan in chain {
        let changes = plan.diff.iter().flat_map(|diff| &diff.capabilities);
        let lost = changes.filter(|change| change.direction == Direction::Narrowed && concerns(change));
        found.extend(lost.map(|change| (&plan.id, change)));
    }
    found
}

/// Returns true if a lowered limit of a spawn parent can bound the threads of the plans `items` more than before.
fn is_bounding(limit: &LimitChange, items: &[&ComparedPlans<'_>]) -> bool {
    let name = limit.name.strip_prefix(SESSION_LIMIT).map_or(limit.name.as_str(), |name| name.trim_start_matches('.'));
    match LimitName::parse(name) {
        // Each child takes a part of these limits.
        Some(LimitName::Spend | LimitName::Spawns | LimitName::Depth) | None => true,
        // The limit of a parent does not bound the length of a child's replies.
        Some(LimitName::Output) => false,
        Some(name @ (LimitName::Turns | LimitName::Tokens | LimitName::DurationSeconds)) => {
            let bound = limit.after.as_ref().and_then(serde_json::Value::as_u64).unwrap_or(0);
            items.iter().filter_map(|plan| plan.is).any(|is| Limits::from(is.plan.limits).number(name) > bound)
        }
    }
}
