//! Reservations that can never be granted: a child that asks for more than the thread which starts it can have left
//! (`language.md` 11), by its own limit or by what the thread above it can give.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use rye_grammar::{ItemId, Span};

use super::{Link, Start, Starter};
use crate::diagnostics::{Diagnostics, SpawnError};
use crate::semantics::money::Nanos;

/// Threads are not followed further down than this; the default of `depth`.
const DEEPEST: usize = 5;

/// What a directive has at most on its way down, and who leaves it so little.
#[derive(Clone, Copy)]
struct Budget<'n> {
    spend: Nanos,
    above: Option<(&'n ItemId, Span)>,
}

pub fn check(nodes: &BTreeMap<ItemId, Vec<Rc<Link>>>, found: &mut Diagnostics) {
    let mut told: BTreeSet<Span> = BTreeSet::new();
    let mut budgets: BTreeMap<&ItemId, Budget<'_>> =
        nodes.iter().filter_map(|(id, links)| Some((id, Budget { spend: own(links)?, above: None }))).collect();
    for _ in 0..DEEPEST {
        let mut lower: Vec<(&ItemId, Budget<'_>)> = Vec::new();
        for (parent, links) in nodes {
            let Some(budget) = budgets.get(parent).copied() else { continue };
            for (link, start) in links.iter().flat_map(|link| link.starts.iter().map(move |start| (link, start))) {
                let (Some(most), Some(children)) = (left(link, start, budget), nodes.get(&start.to)) else { continue };
                let Some((asked, asked_span)) = named(children) else {
                    let known = budgets.get(&start.to).map(|known| known.spend);
                    if known.is_some_and(|known| most < known) {
                        lower.push((&start.to, Budget { spend: most, above: Some((parent, start.span)) }));
                    }
                    continue;
                };
                if asked > most && told.insert(start.span) {
                    found.push(SpawnError::NoBudget {
                        parent: parent.to_string(),
                        child: start.to.to_string(),
                        asked: format!("${asked}"),
                        most: format!("${most}"),
                        span: start.span,
                        asked_span: Some(asked_span),
                        above: budget.above.map(|(id, span)| (id.to_string(), span)),
                    });
                }
            }
        }
        if lower.is_empty() {
            break;
        }
        for (id, budget) in lower {
            if let Some(known) = budgets.get_mut(id).filter(|known| budget.spend < known.spend) {
                *known = budget;
            }
        }
    }
}

/// The most that any route lets a directive spend.
fn own(links: &[Rc<Link>]) -> Option<Nanos> {
    links.iter().map(|link| link.limits.map(|limits| limits.spend)).collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// What it asks for on every route, the least of them, and where; `None` where it takes what is left.
fn named(children: &[Rc<Link>]) -> Option<(Nanos, Span)> {
    let asked: Option<Vec<(Nanos, Span)>> =
        children.iter().map(|link| link.limits.map(|l| l.spend).zip(link.limit_span("spend"))).collect();
    asked?.into_iter().min_by_key(|(asked, _)| *asked)
}

/// What a thread has for a child at most. A call of the thread tool may ask for less than the child's own limit, and a hook
/// may run when the thread needs no turn more.
fn left(link: &Link, start: &Start, budget: Budget<'_>) -> Option<Nanos> {
    match &start.by {
        Starter::Body { free: true } => None,
        Starter::Body { free: false } => Some(Nanos(budget.spend.0.saturating_sub(link.keep.0).max(0))),
        Starter::Hook { .. } => Some(budget.spend),
    }
}
