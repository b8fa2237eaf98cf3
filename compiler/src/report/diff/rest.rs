//! Changes of the remaining parts of a plan (chain, model, interface, trust requirements), and a check that every
//! difference is reported.

use std::collections::BTreeSet;

use serde_json::Value;

use rye_grammar::ItemId;
use rye_grammar::data::Node;

use super::PlanDiff;
use super::change::{ChangeArea, DiffSide, DiffSides, Direction, PlanChange};
use crate::compile::Compilation;
use crate::item::Items;
use crate::lower::cache::PROVIDER_PREFIX;
use crate::lower::origin;
use crate::plan::source::SourceReport;
use crate::plan::{Interface, InterfaceField, ManifestEntry, NudgePolicy, Plan, PlannedModel, Prices};
use crate::report::project_checks::{ChangedCheck, ProjectChecks, compare_checks, read_checks};
use crate::trust::{TrustRequirement, TrustRequirementKind, needs_trust};
use crate::world::ItemKind;

pub fn compare_rest(trees: &DiffSides<'_>) -> Vec<PlanChange> {
    let (before, after) = (&trees.before.compilation.plan, &trees.after.compilation.plan);
    let mut changes = Vec::new();
    let mut add = |area, what: String, direction, source| changes.push(PlanChange { area, what, direction, source });
    let ids = |links: &[crate::plan::ChainLink]| links.iter().map(|l| l.id.to_string()).collect::<Vec<_>>().join(" · ");
    if ids(&before.chain) != ids(&after.chain) {
        let what = format!("{} → {}", ids(&before.chain), ids(&after.chain));
        // The context, grants and limits of the parents are compared separately.
        add(ChangeArea::Chain, what, Direction::Neutral, trees.origin("extends"));
    }
    if before.route != after.route {
        let shown = |route: &Option<String>| route.clone().unwrap_or_else(|| "no hook".into());
        let what = format!("route selected by {}, previously by {}", shown(&after.route), shown(&before.route));
        let key = after.route.as_ref().or(before.route.as_ref()).map(|id| format!("hook.{id}")).unwrap_or_default();
        add(ChangeArea::Chain, what, Direction::Neutral, trees.origin(&key));
    }
    for ModelChange { direction, what, declared } in compare_models(&before.model, &after.model) {
        let place = declared.and_then(|(model, key)| provider_place(trees, model, &key));
        add(ChangeArea::Model, what, direction, place.or_else(|| trees.origin("model")));
    }
    for (direction, what, key) in compare_interfaces(&before.interface, &after.interface) {
        add(ChangeArea::Interface, what, direction, trees.origin(&key));
    }
    for (name, same) in [
        ("the description", before.description == after.description && before.category == after.category),
        ("the continuation directive", before.continuation_directive == after.continuation_directive),
        ("the directive that declares the capabilities", before.capabilities.from == after.capabilities.from),
    ] {
        if !same {
            add(ChangeArea::Plan, format!("{name} changed"), Direction::Neutral, trees.directive());
        }
    }
    if before.nudge != after.nudge {
        let (direction, what) = compare_reminders(before.nudge, after.nudge);
        add(ChangeArea::Plan, what, direction, nudge_place(trees).or_else(|| trees.directive()));
    }
    changes.extend(compare_trust(trees.before.compilation, trees.after.compilation));
    changes
}

/// Compares the settings of `assertions.yaml` and `check.yaml`, which no plan contains.
pub fn compare_project_checks(trees: &DiffSides<'_>) -> Vec<PlanChange> {
    let (before, after) = (read_checks(&trees.old), read_checks(&trees.new));
    let source = |name: &str| {
        let place = |items: &Items<'_>, checks: &ProjectChecks| {
            origin::plan_place(&items.sources(), checks.get(name).map(|(_, span)| *span)?)
        };
        let place = place(&trees.new, &after).or_else(|| place(&trees.old, &before));
        place.as_ref().map(SourceReport::from)
    };
    let changes = compare_checks(&before, &after).into_iter();
    let change = |ChangedCheck { what, direction, name }| PlanChange {
        area: ChangeArea::Check,
        what,
        direction,
        source: source(&name),
    };
    changes.map(change).collect()
}

/// Compares the policies of reminders. After a reminder, the thread makes a further turn.
fn compare_reminders(before: NudgePolicy, after: NudgePolicy) -> (Direction, String) {
    let rank = |policy: NudgePolicy| match policy {
        NudgePolicy::Never => 0,
        NudgePolicy::Auto => 1,
        NudgePolicy::Always => 2,
    };
    let direction = Direction::of_bound(&rank(before), &rank(after));
    let more = if direction == Direction::Widened { "more" } else { "fewer" };
    (direction, format!("reminders (nudge) changed: the thread makes {more} turns after text answers"))
}

/// Returns the place of `<nudge>`: in the new chain, else in the old one.
fn nudge_place(trees: &DiffSides<'_>) -> Option<SourceReport> {
    let of = |items: &Items<'_>, plan: &Plan| {
        let nudge =
            plan.chain.iter().rev().find_map(|link| items.directive(&link.id)?.nudge.as_ref().map(|n| n.span))?;
        origin::plan_place(&items.sources(), nudge)
    };
    let place = of(&trees.new, &trees.after.compilation.plan);
    place.or_else(|| of(&trees.old, &trees.before.compilation.plan)).as_ref().map(SourceReport::from)
}

/// Returns the place of the key `key` of a model in the file of its provider, or of the provider itself: on the new
/// side, else on the old side. `None` if neither file has the key.
fn provider_place(trees: &DiffSides<'_>, model: &PlannedModel, key: &str) -> Option<SourceReport> {
    let of = |items: &Items<'_>| {
        let file = items.config_by_name(&format!("{PROVIDER_PREFIX}{}", model.provider))?;
        let is_model = |entry: &&Node| entry.get("id").and_then(Node::as_str) == Some(&model.id);
        let entry = file.get("models").and_then(|models| models.items().iter().find(is_model));
        let value = entry.and_then(|entry| entry.get(key)).or_else(|| file.get(key))?;
        origin::plan_place(&items.sources(), value.span)
    };
    of(&trees.new).or_else(|| of(&trees.old)).as_ref().map(SourceReport::from)
}

/// A difference between two models. `declared` is the model and the key whose value in the provider's file differs;
/// `None` if the directive or the settings select another value.
struct ModelChange<'p> {
    direction: Direction,
    what: String,
    declared: Option<(&'p PlannedModel, String)>,
}

impl<'p> ModelChange<'p> {
    fn of_directive(direction: Direction, what: String) -> Self {
        Self { direction, what, declared: None }
    }

    fn of_provider(direction: Direction, what: String, model: &'p PlannedModel, key: &str) -> Self {
        Self { direction, what, declared: Some((model, key.to_owned())) }
    }
}

/// Compares two models. Returns each difference with its direction: a higher price widens, because a run may spend
/// more; the direction of another provider or address is unknown.
fn compare_models<'p>(before: &PlannedModel, after: &'p PlannedModel) -> Vec<ModelChange<'p>> {
    let mut found = Vec::new();
    let name = |model: &PlannedModel| format!("{}/{}", model.provider, model.id);
    let is_other = name(before) != name(after);
    if is_other {
        let direction = if before.provider == after.provider {
            compare_prices(before.prices.as_ref(), after.prices.as_ref())
        } else {
            Direction::Unknown
        };
        let what = format!("{} → {}{}", name(before), name(after), may_spend(direction));
        found.push(ModelChange::of_directive(direction, what));
    } else if before.prices != after.prices {
        // With a lower declared price, the same spend limit pays for more requests, so the direction of a lower price
        // is unknown.
        let direction = match compare_prices(before.prices.as_ref(), after.prices.as_ref()) {
            Direction::Widened => Direction::Widened,
            Direction::Narrowed | Direction::Neutral | Direction::Unknown => Direction::Unknown,
        };
        let what = format!("its prices changed{}", may_spend(direction));
        found.push(ModelChange::of_provider(direction, what, after, "prices"));
    }
    if before.provider == after.provider && (before.connection != after.connection || before.wire != after.wire) {
        let what = "requests and the key may be sent to another address".to_owned();
        let key = changed_key(before, after);
        found.push(ModelChange::of_provider(Direction::Unknown, what, after, &key));
    }
    for (what, key, old, new) in [
        ("context window", "context_window", before.context_window, after.context_window),
        ("longest reply", "max_output", before.max_output, after.max_output),
    ] {
        if old != new && !is_other {
            let direction = Direction::of_bound(&old, &new);
            let what = format!("its {what} {old} → {new}{}", may_spend(direction));
            found.push(ModelChange::of_provider(direction, what, after, key));
        }
    }
    for (what, old, new) in [
        ("temperature", &before.sampling.temperature, &after.sampling.temperature),
        ("top_p", &before.sampling.top_p, &after.sampling.top_p),
    ] {
        if old != new {
            let shown = |value: &Option<serde_json::Number>| value.as_ref().map_or("–".to_owned(), ToString::to_string);
            let what = format!("its {what} {} → {}", shown(old), shown(new));
            found.push(ModelChange::of_directive(Direction::Neutral, what));
        }
    }
    let own = |model: &PlannedModel| PlannedModel { fallback: None, ..model.clone() };
    if found.is_empty() && own(before) != own(after) {
        let what = "its requests or token counts changed".to_owned();
        found.push(ModelChange::of_directive(Direction::Neutral, what));
    }
    let fallback = |model: &PlannedModel| model.fallback.as_ref().map(|fallback| name(fallback));
    if fallback(before) != fallback(after) {
        let shown = |model: &PlannedModel| fallback(model).unwrap_or_else(|| "none".into());
        let direction = compare_fallbacks(before, after);
        let what = format!("fallback {} → {}{}", shown(before), shown(after), may_spend(direction));
        found.push(ModelChange::of_directive(direction, what));
    } else if let (Some(old), Some(new)) = (&before.fallback, &after.fallback)
        && old != new
    {
        let named = |one: ModelChange<'p>| ModelChange { what: format!("fallback: {}", one.what), ..one };
        found.extend(compare_models(old, new).into_iter().map(named));
    }
    found
}

/// Returns the first key of the connections of two models that differs; `wire` if the connections are equal.
fn changed_key(before: &PlannedModel, after: &PlannedModel) -> String {
    let keys =
        |model: &PlannedModel| model.connection.as_object().into_iter().flat_map(|map| map.keys().cloned()).collect();
    let all: BTreeSet<String> = [keys(after), keys(before)].into_iter().flat_map(|one: Vec<String>| one).collect();
    let differs = |key: &String| before.connection.get(key) != after.connection.get(key);
    all.into_iter().find(differs).unwrap_or_else(|| "wire".to_owned())
}

/// Returns the direction of a changed fallback. A thread can use its model and the fallback. An added fallback can only
/// widen the spend, and a removed one can only narrow it. Either change is neutral if the fallback is not more
/// expensive than another model of the same provider that the thread can use.
fn compare_fallbacks(before: &PlannedModel, after: &PlannedModel) -> Direction {
    let joining = after.fallback.as_deref().map_or(Direction::Neutral, |new| compare_with_set(new, before));
    let leaving = before.fallback.as_deref().map_or(Direction::Neutral, |old| compare_with_set(old, after));
    match (joining, leaving) {
        (Direction::Neutral | Direction::Narrowed, Direction::Neutral | Direction::Narrowed) => Direction::Neutral,
        (Direction::Neutral | Direction::Narrowed, Direction::Unknown | Direction::Widened) => Direction::Narrowed,
        (joining, Direction::Neutral | Direction::Narrowed) => joining,
        (_, Direction::Unknown | Direction::Widened) => Direction::Unknown,
    }
}

/// Returns the direction in which the spend changes if a thread with the model `set` may also use the model `joining`.
///
/// Compares the prices of `joining` with the prices of `set` and of its fallback, if they have the same provider. The
/// direction is widened only if `joining` is more expensive than each of these models, or if none of them has the same
/// provider.
fn compare_with_set(joining: &PlannedModel, set: &PlannedModel) -> Direction {
    let known = [Some(set), set.fallback.as_deref()];
    let of_provider = known.into_iter().flatten().filter(|model| model.provider == joining.provider);
    let directions = of_provider.map(|model| compare_prices(model.prices.as_ref(), joining.prices.as_ref()));
    directions.min().unwrap_or(Direction::Widened)
}

fn may_spend(direction: Direction) -> &'static str {
    if direction == Direction::Widened { ": may spend more" } else { "" }
}

/// Returns the direction of a price change: widened if any price is higher, narrowed if prices are only lower. Unknown
/// if only one of the plans has prices.
fn compare_prices(before: Option<&Prices>, after: Option<&Prices>) -> Direction {
    let (Some(before), Some(after)) = (before, after) else {
        return if before.is_none() && after.is_none() { Direction::Neutral } else { Direction::Unknown };
    };
    let all = |prices: &Prices| {
        let long =
            prices.long_prompt.map_or([prices.input, prices.output, prices.cache_read, prices.cache_write], |l| {
                [l.input, l.output, l.cache_read, l.cache_write]
            });
        [prices.input, prices.output, prices.cache_read, prices.cache_write].into_iter().chain(long).collect::<Vec<_>>()
    };
    let (old, new) = (all(before), all(after));
    if new.iter().zip(&old).any(|(new, old)| new > old) {
        Direction::Widened
    } else if old == new {
        Direction::Neutral
    } else {
        Direction::Narrowed
    }
}

fn compare_interfaces(before: &Interface, after: &Interface) -> Vec<(Direction, String, String)> {
    let mut found = Vec::new();
    let names: BTreeSet<&String> = before.inputs.keys().chain(after.inputs.keys()).collect();
    for name in names {
        let (direction, what) = match (before.inputs.get(name), after.inputs.get(name)) {
            (Some(was), Some(is)) if was == is => continue,
            (Some(was), Some(is)) => (compare_inputs(was, is), "changed"),
            (None, _) => (Direction::Neutral, "new"),
            (_, None) => (Direction::Neutral, "gone"),
        };
        found.push((direction, format!("input `{name}` {what}"), format!("input.{name}")));
    }
    let names: BTreeSet<&String> = before.outputs.keys().chain(after.outputs.keys()).collect();
    for name in names.into_iter().filter(|name| before.outputs.get(*name) != after.outputs.get(*name)) {
        found.push((Direction::Neutral, format!("output `{name}` changed"), format!("output.{name}")));
    }
    if found.is_empty() && before != after {
        found.push((Direction::Neutral, "the values of the inputs changed".into(), String::new()));
    }
    found
}

/// Returns the direction of an input's change: widened if the input accepts more values, narrowed if it accepts fewer.
fn compare_inputs(was: &InterfaceField, is: &InterfaceField) -> Direction {
    let mut found = Direction::Neutral;
    if was.kind != is.kind {
        let wider = was.kind.value_type().fits(is.kind.value_type());
        found = found.max(if wider { Direction::Widened } else { Direction::Unknown });
    }
    if was.choices != is.choices {
        let inside = is.choices.iter().all(|choice| was.choices.contains(choice));
        let same = inside && was.choices.len() == is.choices.len();
        let narrower = !is.choices.is_empty() && (was.choices.is_empty() || inside);
        let direction = match (same, narrower) {
            (true, _) => Direction::Neutral,
            (false, true) => Direction::Narrowed,
            (false, false) => Direction::Widened,
        };
        found = found.max(direction);
    }
    if was.parts != is.parts {
        found = found.max(match (is.parts.fits(&was.parts), was.parts.fits(&is.parts)) {
            (true, true) => Direction::Neutral,
            (true, false) => Direction::Narrowed,
            (false, true) => Direction::Widened,
            (false, false) => Direction::Unknown,
        });
    }
    if was.default != is.default && was.default.is_some() && is.default.is_some() {
        found = found.max(Direction::Unknown);
    }
    found
}

/// Compares trust requirements. Leaves out requirements whose causes are compared elsewhere: risk tables, provider
/// files, scripts, the grants of the directive, and new hooks that only change the texts that a model reads.
fn compare_trust(before: &Compilation, after: &Compilation) -> Vec<PlanChange> {
    let missing = |from: &Compilation, to: &Compilation, direction: Direction, word: &str| -> Vec<PlanChange> {
        let is_listed = |one: &&TrustRequirement| match one.kind {
            // Wider grants can turn hooks that both plans have into trust requirements.
            TrustRequirementKind::Hook => {
                let is_known = from.plan.hooks.iter().any(|hook| hook.id == one.name && hook.is_live());
                is_known || to.plan.hooks.iter().any(|hook| hook.id == one.name && needs_trust(hook))
            }
            TrustRequirementKind::Tool | TrustRequirementKind::Server | TrustRequirementKind::UserSpace => true,
            TrustRequirementKind::Grants => one.name != to.plan.directive.as_str(),
            TrustRequirementKind::Provider | TrustRequirementKind::Risk | TrustRequirementKind::Script => false,
        };
        let known = |one: &&TrustRequirement| {
            !from.trust_requirements.iter().any(|other| other.kind == one.kind && other.name == one.name)
        };
        let change = |one: &TrustRequirement| PlanChange {
            area: ChangeArea::Trust,
            what: format!("{} `{}` {word}: {}", one.kind.as_str(), one.name, one.what),
            direction,
            source: one.place.as_ref().map(SourceReport::from),
        };
        to.trust_requirements.iter().filter(is_listed).filter(known).map(change).collect()
    };
    let mut found = missing(before, after, Direction::Widened, "has to be trusted");
    found.extend(missing(after, before, Direction::Narrowed, "no longer needs trust"));
    found
}

/// The effect of a changed file that no other change mentions.
pub const ONLY_ID: &str = "the change affects only the id of the plan";
/// The effect of a changed file if the comparison also contains other changes.
pub const CHANGED_FILE: &str = "the file changed; its effects, if any, are listed as separate changes";

/// Lists the changed files that no change in `found` explains. `named` contains the files that changes in `found` name
/// as their source. The listed changes are neutral, because the effects of the files are compared elsewhere.
pub fn compare_files(trees: &DiffSides<'_>, found: &PlanDiff, named: &BTreeSet<String>) -> Vec<PlanChange> {
    let (before, after) = (&trees.before.compilation.plan.manifest, &trees.after.compilation.plan.manifest);
    let differing = |one: &[ManifestEntry], other: &[ManifestEntry]| -> Vec<ManifestEntry> {
        one.iter().filter(|read| !other.contains(read)).cloned().collect()
    };
    let mut reads = differing(after, before);
    for read in differing(before, after) {
        if !reads.iter().any(|known| known.kind == read.kind && known.id == read.id) {
            reads.push(read);
        }
    }
    let mut changes: Vec<PlanChange> = Vec::new();
    for read in reads {
        let source =
            ItemId::parse(&read.id).ok().and_then(|id| trees.file(read.kind, &id)).or_else(|| trees.directive());
        if source.as_ref().is_some_and(|source| named.contains(&source.file)) || is_explained(&read, found) {
            continue;
        }
        let is_in = |side: &[ManifestEntry]| side.iter().any(|one| one.kind == read.kind && one.id == read.id);
        let effect = match (is_in(before), is_in(after)) {
            (false, _) => "the plan now depends on the file; the effects, if any, are listed as separate changes",
            (true, false) => {
                "the plan no longer depends on the file; the effects, if any, are listed as separate changes"
            }
            (true, true) if found.has_no_changes() => ONLY_ID,
            (true, true) => CHANGED_FILE,
        };
        let what = format!("{} {}: {effect}", read.kind.as_str(), read.id);
        if !changes.iter().any(|known| known.what == what) {
            changes.push(PlanChange { area: ChangeArea::File, what, direction: Direction::Neutral, source });
        }
    }
    changes
}

/// Returns true if `found` already lists a change of the item that `read` names: a change of the tool, or of the
/// knowledge's text in the prompt.
fn is_explained(read: &ManifestEntry, found: &PlanDiff) -> bool {
    match read.kind {
        ItemKind::Tool => {
            let of_tool = format!("{}: ", read.id);
            found.changes.iter().any(|one| one.area == ChangeArea::Tool && one.what.starts_with(&of_tool))
        }
        ItemKind::Knowledge => found.parts.iter().any(|part| part.id == read.id),
        ItemKind::Directive | ItemKind::Config | ItemKind::Prompt | ItemKind::Skill => false,
    }
}

/// Lists all fields in which the two plans differ. The caller keeps those that no other change covers, so that every
/// difference is reported.
pub fn unexplained_changes(trees: &DiffSides<'_>) -> Vec<PlanChange> {
    let value = |plan| serde_json::to_value(plan).unwrap_or(Value::Null);
    let (before, after) = (value(&trees.before.compilation.plan), value(&trees.after.compilation.plan));
    let fields =
        |value: &Value| value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
    let all: BTreeSet<String> = fields(&before).into_iter().chain(fields(&after)).collect();
    let differs = all.into_iter().filter(|field| before.get(field) != after.get(field));
    let differs = differs.filter(|field| field != "hooks" || !has_same_hooks_at_each_event(trees));
    let change = |field: String| {
        let reordered = field == "palette" && has_same_tools(trees);
        let source = match field.as_str() {
            "capabilities" => grant_place(trees),
            "hooks" => hook_place(trees).or_else(|| trees.directive()),
            _ => trees.directive(),
        };
        PlanChange {
            area: ChangeArea::Plan,
            what: format!(
                "`{field}` of the plan changed{}",
                if reordered { ": another order of the tools" } else { "" }
            ),
            direction: if reordered { Direction::Neutral } else { Direction::Unknown },
            source,
        }
    };
    differs.map(change).collect()
}

/// Returns the place of the first grant of the new plan that the old plan does not have at the same position.
fn grant_place(trees: &DiffSides<'_>) -> Option<SourceReport> {
    let grants = |side: &DiffSide<'_>| side.compilation.plan.capabilities.grants.clone();
    let (old, new) = (grants(&trees.before), grants(&trees.after));
    let moved = new.iter().enumerate().find(|(at, grant)| old.get(*at) != Some(grant)).map(|(_, grant)| grant);
    let pattern = moved.or_else(|| old.last()).map(|grant| grant.pattern.clone()).unwrap_or_default();
    trees.origin(&format!("capability.{pattern}"))
}

/// Returns the place of the first hook of the new plan that the old plan does not have at the same position; `None` if
/// the new plan only lacks hooks of the old plan.
fn hook_place(trees: &DiffSides<'_>) -> Option<SourceReport> {
    let (old, new) = (trees.before.compilation, trees.after.compilation);
    let moved = (0..new.plan.hooks.len()).find(|at| old.plan.hooks.get(*at) != new.plan.hooks.get(*at))?;
    new.hooks.get(moved)?.place.as_ref().map(SourceReport::from)
}

/// Returns true if each event has the same hooks in the same order on both sides. The order of hooks of different
/// events has no effect.
fn has_same_hooks_at_each_event(trees: &DiffSides<'_>) -> bool {
    let by_event = |side: &DiffSide<'_>| {
        let mut hooks = side.compilation.plan.hooks.clone();
        hooks.sort_by_key(|hook| hook.event);
        hooks
    };
    by_event(&trees.before) == by_event(&trees.after)
}

/// Returns true if the palettes contain the same tools, in any order.
fn has_same_tools(trees: &DiffSides<'_>) -> bool {
    let (old, new) = (&trees.before.compilation.plan.palette, &trees.after.compilation.plan.palette);
    old.len() == new.len() && new.iter().all(|tool| old.contains(tool))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::compile::tests::world::{minimal_world, with_directives};
    use crate::compile::{CompileRequest, compile};

    /// Returns the direction of a change of the fallback from `before` to `after`, and the direction of the reverse
    /// change. A fallback is given as its provider and its price. The model itself is of the provider `main` and has
    /// the price 2.
    fn directions(before: Option<(&str, u64)>, after: Option<(&str, u64)>) -> (Direction, Direction) {
        let world = with_directives(minimal_world(), &[("leaf", "", "", "Do it.")]);
        let plan = compile(&world, &CompileRequest::new(ItemId::parse("leaf").unwrap())).value.unwrap().plan;
        let priced = |provider: &str, id: &str, price| PlannedModel {
            provider: provider.to_owned(),
            id: id.to_owned(),
            prices: Some(Prices {
                input: price,
                output: price,
                cache_read: price,
                cache_write: price,
                long_prompt: None,
            }),
            ..plan.model.clone()
        };
        let with = |fallback: Option<(&str, u64)>| PlannedModel {
            fallback: fallback.map(|(provider, price)| Box::new(priced(provider, &format!("other{price}"), price))),
            ..priced("main", "own", 2)
        };
        let compare = |before: &PlannedModel, after: &PlannedModel| {
            let found = compare_models(before, after);
            assert_eq!(found.len(), 1);
            found.into_iter().map(|one| one.direction).next().unwrap()
        };
        (compare(&with(before), &with(after)), compare(&with(after), &with(before)))
    }

    #[test]
    fn removed_fallback_is_the_reverse_of_an_added_one() {
        use Direction::{Narrowed, Neutral, Unknown, Widened};
        let (cheap, dear, other, free) = (Some(("main", 1)), Some(("main", 3)), Some(("far", 2)), Some(("far", 0)));
        for (before, after, expected) in [
            (None, cheap, (Neutral, Neutral)),
            (None, dear, (Widened, Narrowed)),
            (None, other, (Widened, Narrowed)),
            (cheap, dear, (Widened, Narrowed)),
            (cheap, other, (Widened, Narrowed)),
            (other, free, (Narrowed, Widened)),
            // One model joins and another one leaves: neither set contains the other.
            (dear, other, (Unknown, Unknown)),
        ] {
            assert_eq!(directions(before, after), expected, "{before:?} {after:?}");
        }
    }
}
