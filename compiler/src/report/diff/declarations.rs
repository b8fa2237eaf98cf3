//! Declarations of the extends chain that the plan of a run does not contain: seals, and the limits of a whole chat.

use std::collections::BTreeSet;

use rye_grammar::{ItemId, Span};

use super::change::{ChangeArea, DiffSide, DiffSides, Direction, PlanChange};
use crate::item::Items;
use crate::lower::origin;
use crate::lower::session_limits::SESSION_LIMIT;
use crate::plan::source::SourceReport;
use crate::report::render::text::dollars;
use crate::semantics::limits::{LimitName, parse_limit_value};
use crate::semantics::money::Nanos;

pub fn compare_declarations(trees: &DiffSides<'_>) -> Vec<PlanChange> {
    let mut changes = compare_seals(trees);
    changes.extend(compare_sessions(trees));
    changes
}

fn chain(side: &DiffSide<'_>) -> BTreeSet<ItemId> {
    side.compilation.plan.chain.iter().map(|link| link.id.clone()).collect()
}

fn place(items: &Items<'_>, span: Option<Span>) -> Option<SourceReport> {
    origin::plan_place(&items.sources(), span?).as_ref().map(SourceReport::from)
}

/// Compares the seals of the directives that both chains contain. A seal is a check: without it, a directive that
/// extends the sealed one may grant more.
fn compare_seals(trees: &DiffSides<'_>) -> Vec<PlanChange> {
    let permissions = |items: &Items<'_>, id: &ItemId| {
        let found = items.directive(id)?;
        found.permissions.as_ref().map(|permissions| (permissions.sealed, permissions.span))
    };
    let mut changes = Vec::new();
    for id in chain(&trees.before).intersection(&chain(&trees.after)) {
        let (was, is) = (permissions(&trees.old, id), permissions(&trees.new, id));
        let is_sealed = |side: Option<(bool, Span)>| side.is_some_and(|(sealed, _)| sealed);
        let (direction, how) = match (is_sealed(was), is_sealed(is)) {
            (true, false) => (Direction::Widened, "removed"),
            (false, true) => (Direction::Narrowed, "added"),
            (true, true) | (false, false) => continue,
        };
        let span = |side: Option<(bool, Span)>| side.map(|(_, span)| span);
        let source = place(&trees.new, span(is)).or_else(|| place(&trees.old, span(was)));
        changes.push(PlanChange { area: ChangeArea::Check, what: format!("seal of `{id}` {how}"), direction, source });
    }
    changes
}

/// Compares the limits of `<session>`, which the plan of a run does not contain.
fn compare_sessions(trees: &DiffSides<'_>) -> Vec<PlanChange> {
    if trees.before.compilation.plan.session_limits.is_some() && trees.after.compilation.plan.session_limits.is_some() {
        return Vec::new();
    }
    let mut changes = Vec::new();
    for name in LimitName::OF_SESSION {
        let was = lowest_bound(&trees.old, &trees.before, name);
        let is = lowest_bound(&trees.new, &trees.after, name);
        let value = |bound: Option<(u64, Span)>| bound.map(|(value, _)| value);
        if value(was) == value(is) {
            continue;
        }
        let shown = |bound: Option<(u64, Span)>| match value(bound) {
            Some(value) if name == LimitName::Spend => dollars(Nanos::from_u64(value)),
            Some(value) => value.to_string(),
            None => "–".to_owned(),
        };
        let bound = |bound: Option<(u64, Span)>| value(bound).unwrap_or(u64::MAX);
        let source = place(&trees.new, is.map(|(_, span)| span));
        changes.push(PlanChange {
            area: ChangeArea::Setting,
            what: format!("{SESSION_LIMIT}.{name} of a chat {} → {}", shown(was), shown(is)),
            direction: Direction::of_bound(&bound(was), &bound(is)),
            source: source.or_else(|| place(&trees.old, was.map(|(_, span)| span))),
        });
    }
    changes
}

/// Returns the lowest value that a `<session>` of the chain sets for a limit, and its place; `None` if none sets it.
fn lowest_bound(items: &Items<'_>, side: &DiffSide<'_>, name: LimitName) -> Option<(u64, Span)> {
    let mut found: Option<(u64, Span)> = None;
    for id in chain(side) {
        let Some(directive) = items.directive(&id) else { continue };
        for limit in directive.session_limits.iter().filter(|limit| limit.name.node == name.as_str()) {
            let Ok(value) = parse_limit_value(name, &limit.value.node) else { continue };
            if found.is_none_or(|(least, _)| value < least) {
                found = Some((value, limit.value.span));
            }
        }
    }
    found
}
