//! Changes of the remaining parts of a plan (chain, model, interface, trust requirements), and a check that every
//! difference is reported.

use std::collections::BTreeSet;

use serde_json::Value;

use rye_grammar::ItemId;

use super::PlanDiff;
use super::change::{ChangeArea, DiffSides, Direction, PlanChange};
use crate::compile::Compilation;
use crate::plan::source::SourceReport;
use crate::plan::{Interface, InterfaceField, ManifestEntry, PlannedModel, Prices};
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
    for (direction, what) in compare_models(&before.model, &after.model) {
        add(ChangeArea::Model, what, direction, trees.origin("model"));
    }
    for (direction, what, key) in compare_interfaces(&before.interface, &after.interface) {
        add(ChangeArea::Interface, what, direction, trees.origin(&key));
    }
    for (name, same) in [
        ("the description", before.description == after.description && before.category == after.category),
        ("reminders (nudge)", before.nudge == after.nudge),
        ("the continuation directive", before.continuation_directive == after.continuation_directive),
        ("the directive that declares the capabilities", before.capabilities.from == after.capabilities.from),
    ] {
        if !same {
            add(ChangeArea::Plan, format!("{name} changed"), Direction::Neutral, trees.directive());
        }
    }
    changes.extend(compare_trust(trees.before.compilation, trees.after.compilation));
    changes
}

/// Compares two models. Returns each difference as text, with its direction: a higher price widens, because a run may
/// spend more; the direction of another provider or address is unknown.
fn compare_models(before: &PlannedModel, after: &PlannedModel) -> Vec<(Direction, String)> {
    let mut found = Vec::new();
    let name = |model: &PlannedModel| format!("{}/{}", model.provider, model.id);
    let is_other = name(before) != name(after);
    if is_other {
        let direction = if before.provider == after.provider {
            compare_prices(before.prices.as_ref(), after.prices.as_ref())
        } else {
            Direction::Unknown
        };
        found.push((direction, format!("{} → {}{}", name(before), name(after), may_spend(direction))));
    } else if before.prices != after.prices {
        // With a lower declared price, the same spend limit pays for more requests, so the direction of a lower price
        // is unknown.
        let direction = match compare_prices(before.prices.as_ref(), after.prices.as_ref()) {
            Direction::Widened => Direction::Widened,
            Direction::Narrowed | Direction::Neutral | Direction::Unknown => Direction::Unknown,
        };
        found.push((direction, format!("its prices changed{}", may_spend(direction))));
    }
    if before.provider == after.provider && (before.connection != after.connection || before.wire != after.wire) {
        found.push((Direction::Unknown, "requests and the key may be sent to another address".into()));
    }
    for (what, old, new) in [
        ("context window", before.context_window, after.context_window),
        ("longest reply", before.max_output, after.max_output),
    ] {
        if old != new && !is_other {
            let direction = Direction::of_bound(&old, &new);
            found.push((direction, format!("its {what} {old} → {new}{}", may_spend(direction))));
        }
    }
    let fallback = |model: &PlannedModel| model.fallback.as_ref().map(|fallback| name(fallback));
    if fallback(before) != fallback(after) {
        let shown = |model: &PlannedModel| fallback(model).unwrap_or_else(|| "none".into());
        let direction = compare_fallbacks(before, after);
        found.push((direction, format!("fallback {} → {}{}", shown(before), shown(after), may_spend(direction))));
    } else if let (Some(old), Some(new)) = (&before.fallback, &after.fallback)
        && old != new
    {
        found.extend(
            compare_models(old, new).into_iter().map(|(direction, what)| (direction, format!("fallback: {what}"))),
        );
    }
    if before != after && found.is_empty() {
        found.push((Direction::Neutral, "its requests or token counts changed".into()));
    }
    found
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

/// Returns the direction in which the spend changes if a thread that uses the model `set` may also use `joining`. The
/// prices of `joining` are compared with those of `set` and its fallback, but only with models of the same provider.
/// The direction is widened only if `joining` is more expensive than each of these models, or if there is no such
/// model.
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
            _ if found.has_no_changes() => "the change affects only the id of the plan",
            (false, _) => "newly read; the other changes list its effects, if it has any",
            (true, false) => "no longer read; the other changes list its effects, if it has any",
            (true, true) => "the file changed; the other changes list its effects, if it has any",
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
    let change = |field: String| {
        let reordered = field == "palette" && has_same_tools(trees);
        PlanChange {
            area: ChangeArea::Plan,
            what: format!(
                "`{field}` of the plan changed{}",
                if reordered { ": another order of the tools" } else { "" }
            ),
            direction: if reordered { Direction::Neutral } else { Direction::Unknown },
            source: trees.directive(),
        }
    };
    differs.map(change).collect()
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
            assert_eq!(found.len(), 1, "{found:?}");
            found.into_iter().map(|(direction, _)| direction).next().unwrap()
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
