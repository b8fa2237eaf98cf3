//! Reservations that can never be granted: a child that asks for more than the thread which starts it can have left
//! (`language.md` 11), by its own limit or by what the thread above it can give.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use rye_grammar::{ItemId, Span};

use super::{Link, Start, Starter};
use crate::diagnostics::{Diagnostics, SpawnError};
use crate::semantics::money::Nanos;

/// Threads are not followed further down than this; the default of `depth`.
const DEEPEST: usize = 5;

/// What a directive has at most on its way down, and the start that leaves it so little.
#[derive(Clone, Copy)]
struct Budget<'n> {
    spend: Nanos,
    above: Option<(usize, &'n Start)>,
}

/// A start of a directive that was added, by its place.
struct Edge<'n> {
    link: &'n Link,
    start: &'n Start,
    child: usize,
}

pub fn check(nodes: &BTreeMap<ItemId, Vec<Rc<Link>>>, found: &mut Diagnostics) {
    let places: HashMap<&ItemId, usize> = nodes.keys().enumerate().map(|(place, id)| (id, place)).collect();
    let ids: Vec<&ItemId> = nodes.keys().collect();
    let edges: Vec<Vec<Edge<'_>>> = nodes.values().map(|links| edges(links, &places)).collect();
    let asked: Vec<Option<(Nanos, Span)>> = nodes.values().map(|links| named(links)).collect();
    let mut budgets: Vec<Option<Budget<'_>>> =
        nodes.values().map(|links| own(links).map(|spend| Budget { spend, above: None })).collect();
    let mut told: BTreeSet<Span> = BTreeSet::new();
    // Those whose budget is another one than when their children were last looked at.
    let mut parents: BTreeSet<usize> = (0..ids.len()).collect();
    for _ in 0..DEEPEST {
        let mut lower: Vec<(usize, Budget<'_>)> = Vec::new();
        for parent in std::mem::take(&mut parents) {
            let (Some(Some(budget)), Some(edges)) = (budgets.get(parent), edges.get(parent)) else { continue };
            for edge in edges {
                let Some(most) = left(edge.link, edge.start, budget.spend) else { continue };
                let Some(Some((asked, asked_span))) = asked.get(edge.child) else {
                    if budgets.get(edge.child).copied().flatten().is_some_and(|known| most < known.spend) {
                        lower.push((edge.child, Budget { spend: most, above: Some((parent, edge.start)) }));
                    }
                    continue;
                };
                if *asked > most && told.insert(edge.start.span) {
                    let name = |place: usize| ids.get(place).map(ToString::to_string).unwrap_or_default();
                    found.push(SpawnError::NoBudget {
                        parent: name(parent),
                        child: edge.start.to.to_string(),
                        asked: format!("${asked}"),
                        most: format!("${most}"),
                        span: edge.start.span,
                        asked_span: Some(*asked_span),
                        above: budget.above.map(|(place, start)| (name(place), start.span)),
                    });
                }
            }
        }
        for (place, budget) in lower {
            if let Some(known) = budgets.get_mut(place).and_then(Option::as_mut).filter(|k| budget.spend < k.spend) {
                *known = budget;
                parents.insert(place);
            }
        }
        if parents.is_empty() {
            break;
        }
    }
}

fn edges<'n>(links: &'n [Rc<Link>], places: &HashMap<&ItemId, usize>) -> Vec<Edge<'n>> {
    let starts = links.iter().flat_map(|link| link.starts.iter().map(move |start| (&**link, start)));
    starts.filter_map(|(link, start)| Some(Edge { link, start, child: *places.get(&start.to)? })).collect()
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
fn left(link: &Link, start: &Start, spend: Nanos) -> Option<Nanos> {
    match &start.by {
        Starter::Body { free: true } => None,
        Starter::Body { free: false } => Some(Nanos(spend.0.saturating_sub(link.keep.0).max(0))),
        Starter::Hook { .. } => Some(spend),
    }
}
