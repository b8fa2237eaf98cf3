//! All candidate values of a limit: each value with the source line that sets it, the value that applies, and the
//! reason.

use rye_grammar::data::Entry;
use rye_grammar::{ItemId, Span};

use super::provenance::DerivationStep;
use super::render::text::dollars;
use crate::compile::Compilation;
use crate::item::Items;
use crate::lower::origin;
use crate::plan::SourcePlace;
use crate::semantics::limits::{LimitName, LimitValue, Limits, parse_limit_value};
use crate::semantics::money::Nanos;
use crate::world::World;

/// A value that one source proposes for a limit; the source is described in `by`.
struct Contribution {
    by: String,
    value: u64,
    place: Option<SourcePlace>,
}

/// Returns the derivation of a limit. It has a step for each value that a source requests, lowest precedence first, and
/// then a step for each upper bound.
pub fn limit_lattice(world: &dyn World, compilation: &Compilation, limit: LimitName) -> Vec<DerivationStep> {
    let items = Items::new(world);
    let values = requested_values(&items, compilation, limit);
    let is_given = compilation.request.limits.iter().any(|(name, _)| name == limit.as_str());
    let bounds = settings_bounds(&items, compilation, limit, is_given);
    let requested = values.last().map_or(0, |last| last.value);
    let lowest = bounds.iter().map(|bound| bound.value).min().filter(|lowest| *lowest < requested);
    let mut steps = Vec::new();
    for (n, one) in values.iter().enumerate() {
        let end = match (values.get(n + 1..).and_then(<[Contribution]>::last), lowest) {
            (Some(winner), _) => format!(", which {} overrides", winner.by),
            (None, Some(_)) => ", which has the highest precedence but is above a bound".to_owned(),
            (None, None) if n == 0 && bounds.is_empty() => ", and nothing else sets the limit".to_owned(),
            (None, None) => ", which applies: it has the highest precedence".to_owned(),
        };
        let text = format!("{} sets {}{end}", one.by, format_value(limit, one.value));
        steps.push(DerivationStep::new(text, one.place.clone()));
    }
    for bound in bounds {
        let end = match lowest {
            Some(lowest) if lowest == bound.value => ", which applies: it is the lowest bound",
            Some(_) => ", but another bound is lower",
            None => ", which does not lower the value",
        };
        let text = format!("{} allows at most {}{end}", bound.by, format_value(limit, bound.value));
        steps.push(DerivationStep::new(text, bound.place));
    }
    steps
}

/// Returns the values that are requested for a limit, lowest precedence first: by the built-in default, the settings,
/// the directives of the chain and the caller.
fn requested_values(items: &Items<'_>, compilation: &Compilation, limit: LimitName) -> Vec<Contribution> {
    let built_in = match Limits::default().get(limit) {
        value if limit == LimitName::Spend => Nanos::from_json(&value).map(Nanos::to_u64).unwrap_or_default(),
        value => value.as_u64().unwrap_or_default(),
    };
    let mut all = vec![Contribution { by: "the built-in default".to_owned(), value: built_in, place: None }];
    all.extend(settings(items, "agent/resilience", limit, &["limits"]).into_iter().rev());
    for link in &compilation.plan.chain {
        let Some(directive) = items.directive(&link.id) else { continue };
        for own in directive.limits.iter().filter(|own| own.name.node == limit.as_str()) {
            let span = own.name.span.join(own.value.span);
            all.extend(contribution(items, limit, format!("`{}`", link.id), &own.value.node, span));
        }
    }
    for (_, written) in compilation.request.limits.iter().filter(|(name, _)| name == limit.as_str()) {
        let value = parse_limit_value(limit, written).ok();
        all.extend(value.map(|value| Contribution { by: "the caller".to_owned(), value, place: None }));
    }
    all
}

/// Returns the upper bounds on a limit: `limits.max` in the settings of each space, and the bound of the parent thread.
/// If the caller passed the value (`is_given`), `limits.max` does not bound the value and is left out.
fn settings_bounds(
    items: &Items<'_>,
    compilation: &Compilation,
    limit: LimitName,
    is_given: bool,
) -> Vec<Contribution> {
    let mut all = Vec::new();
    if !is_given {
        all.extend(settings(items, "agent/agent", limit, &["limits", "max"]));
    }
    if let Some(parent) = compilation.request.parent.as_ref().filter(|_| limit != LimitName::Output) {
        let settings = Limits::from(parent.limits).to_settings(&());
        let own = settings.iter().find(|setting| setting.name == limit.as_str());
        let value = own.and_then(|setting| parse_limit_value(limit, &setting.written).ok());
        let less = u64::from(limit == LimitName::Depth);
        let value = value.map(|value| value.saturating_sub(less));
        all.extend(value.map(|value| Contribution { by: "the parent thread".to_owned(), value, place: None }));
    }
    all
}

/// Returns the values that a settings file sets for a limit, one for each space that sets the limit, highest space
/// first. `path` are the keys that lead to the map of limits.
fn settings(items: &Items<'_>, file: &str, limit: LimitName, path: &[&str]) -> Vec<Contribution> {
    let Ok(id) = ItemId::parse(file) else { return Vec::new() };
    let mut all = Vec::new();
    for (space, config) in items.config_layers(&id).iter() {
        let node = path.iter().try_fold(&**config, |node, key| node.get(key));
        let entry = node.and_then(|node| node.entries().iter().find(|entry: &&Entry| entry.key.node == limit.as_str()));
        let Some(entry) = entry else { continue };
        let span = entry.key.span.join(entry.value.span);
        let by = format!("`{file}` of the {} space", space.as_str());
        all.extend(contribution(items, limit, by, &LimitValue::Json(entry.value.to_value()), span));
    }
    all
}

fn contribution(
    items: &Items<'_>,
    limit: LimitName,
    by: String,
    written: &LimitValue,
    span: Span,
) -> Option<Contribution> {
    let value = parse_limit_value(limit, written).ok()?;
    Some(Contribution { by, value, place: origin::plan_place(&items.sources(), span) })
}

fn format_value(limit: LimitName, value: u64) -> String {
    if limit == LimitName::Spend { dollars(Nanos::from_u64(value)) } else { value.to_string() }
}
