//! Checks for reservations that can never succeed: a child requests more `spend` than its spawn parent can ever reserve
//! for the child (`language.md` 11). The limit of the parent or a limit of one of its ancestors is too low.

use std::collections::BTreeSet;
use std::rc::Rc;

use rye_grammar::Span;

use super::graph::{SpawnGraph, SpawnNode};
use super::{SpawnEdge, SpawnRoute, SpawnSource};
use crate::diagnostics::{Diagnostics, SpawnError};
use crate::semantics::money::Nanos;

/// Maximum depth of spawn chains that the check follows; equal to the default of the limit `depth`.
const MAX_DEPTH: usize = 5;

/// The highest amount that a directive can spend. If the limit of a spawn parent bounds the amount, `above` is the
/// parent's index in the nodes of the graph, and the edge of the spawn. If the directive's own limit bounds the amount,
/// `above` is `None`.
#[derive(Clone, Copy)]
struct Budget<'n> {
    spend: Nanos,
    above: Option<(usize, &'n SpawnEdge)>,
}

/// Reports each spawn of a child that requests more money than the spawn parent can ever reserve. For each node of the
/// graph, returns the highest amount that the directive can spend under its own limit and the limits of its spawn
/// parents. `None` if this amount is unknown.
pub fn check(graph: &SpawnGraph<'_>, found: &mut Diagnostics) -> Vec<Option<Nanos>> {
    let requested: Vec<Option<(Nanos, Span)>> =
        graph.nodes.iter().map(|node| min_requested_spend(node.links)).collect();
    let own = |node: &SpawnNode<'_>| max_spend(node.links).map(|spend| Budget { spend, above: None });
    let mut budgets: Vec<Option<Budget<'_>>> = graph.nodes.iter().map(own).collect();
    let mut reported: BTreeSet<Span> = BTreeSet::new();
    // Directives whose budget changed since their children were last visited.
    let mut parents: BTreeSet<usize> = (0..graph.nodes.len()).collect();
    for _ in 0..MAX_DEPTH {
        let mut lower: Vec<(usize, Budget<'_>)> = Vec::new();
        for parent in std::mem::take(&mut parents) {
            let (Some(Some(budget)), Some(node)) = (budgets.get(parent), graph.nodes.get(parent)) else { continue };
            for edge in node.edges.iter().chain(&node.granted) {
                let (Some(most), Some(child)) = (max_child_spend(edge.link, edge.start, budget.spend), edge.child)
                else {
                    continue;
                };
                let Some(Some((requested, asked_span))) = requested.get(child) else {
                    if edge.start.by != SpawnSource::Grant
                        && budgets.get(child).copied().flatten().is_some_and(|known| most < known.spend)
                    {
                        lower.push((child, Budget { spend: most, above: Some((parent, edge.start)) }));
                    }
                    continue;
                };
                if *requested > most && reported.insert(edge.start.span) {
                    let name = |place: usize| graph.nodes.get(place).map(|n| n.id.to_string()).unwrap_or_default();
                    found.push(SpawnError::NoBudget {
                        parent: name(parent),
                        child: edge.start.to.to_string(),
                        requested: format!("${requested}"),
                        most: format!("${most}"),
                        span: edge.start.span,
                        is_grant: edge.start.by == SpawnSource::Grant,
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
    budgets.into_iter().map(|budget| budget.map(|budget| budget.spend)).collect()
}

/// Returns the highest spend limit over all routes; `None` if there is no route, or if the limits of a route are
/// invalid.
fn max_spend(links: &[Rc<SpawnRoute>]) -> Option<Nanos> {
    links.iter().map(|link| link.limits.map(|limits| limits.spend)).collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// Returns the lowest `spend` limit that the child declares over its routes, and the span of this limit. `None` if a
/// route declares no `spend` limit: the child then gets the amount that its parent has left.
pub fn min_requested_spend(children: &[Rc<SpawnRoute>]) -> Option<(Nanos, Span)> {
    let requested: Option<Vec<(Nanos, Span)>> =
        children.iter().map(|link| link.limits.map(|l| l.spend).zip(link.limit_span("spend"))).collect();
    requested?.into_iter().min_by_key(|(requested, _)| *requested)
}

/// Returns the highest amount that a thread with the limit `spend` can reserve for a child. A child that a hook starts
/// can get the whole limit, because the hook may run when the thread needs no further turn. Before a child that a body
/// call or a grant starts, the thread sets aside a part of the limit for its own last turn. `None` for a child that the
/// tool `rye/agent/threads/thread_directive` starts, because a call of this tool can set a lower limit for the child.
fn max_child_spend(link: &SpawnRoute, start: &SpawnEdge, spend: Nanos) -> Option<Nanos> {
    match &start.by {
        SpawnSource::Body { free: true } => None,
        SpawnSource::Body { free: false } | SpawnSource::Grant => {
            Some(Nanos(spend.0.saturating_sub(link.keep.0).max(0)))
        }
        SpawnSource::Hook { .. } => Some(spend),
    }
}
