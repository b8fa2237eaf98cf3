//! Checks of all children that a directive names, taken together: the number of children against the limit `spawns`,
//! and their total `spend` against the `spend` of the parent. Also reports limits of a child that have no effect,
//! because a limit of the parent is always lower (`language.md` 11).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use rye_grammar::Span;

use super::budget::min_requested_spend;
use super::graph::{SpawnGraph, SpawnGraphEdge, SpawnNode};
use super::{SpawnRoute, SpawnSource};
use crate::diagnostics::{Diagnostics, SpawnError};
use crate::semantics::limits::Limits;
use crate::semantics::money::Nanos;

/// Maximum number of descendants that are counted against the limit `spawns`.
const MAX_COUNTED_SPAWNS: usize = 256;
/// Maximum depth of the counted descendants; equal to the default of the limit `depth`.
const MAX_COUNTED_DEPTH: usize = 5;

/// Checks the children that each directive certainly starts. Compares their number and their total `spend` with the
/// limits of the parent, and each child's own limits with the limits of the parent. `budgets` holds, for each node of
/// the graph, the most that its directive can spend under the limits of its possible spawn chains; `None` if unknown.
pub fn check(graph: &SpawnGraph<'_>, budgets: &[Option<Nanos>], found: &mut Diagnostics) {
    let mut reported: BTreeSet<(Span, &'static str)> = BTreeSet::new();
    let certain: Vec<Vec<usize>> = graph.nodes.iter().map(certain_children).collect();
    for (node, budget) in graph.nodes.iter().zip(budgets) {
        let mut of_route: BTreeMap<*const SpawnRoute, Vec<&SpawnGraphEdge<'_>>> = BTreeMap::new();
        for edge in node.edges.iter().filter(|edge| edge.start.is_certain()) {
            of_route.entry(std::ptr::from_ref(edge.link)).or_default().push(edge);
            check_clipped(graph, node, edge, &mut reported, found);
        }
        for link in node.links {
            if let Some(edges) = of_route.get(&Rc::as_ptr(link)) {
                check_together((graph, &certain), node, (link, *budget), edges, &mut reported, found);
            }
        }
    }
}

/// Returns the different directives that a directive certainly starts. A directive with several routes has no certain
/// children, because the route decides which children it starts.
fn certain_children(node: &SpawnNode<'_>) -> Vec<usize> {
    let edges = node.edges.iter().filter(|edge| node.links.len() == 1 && edge.start.is_certain());
    let children: BTreeSet<usize> = edges.filter_map(|edge| edge.child).collect();
    children.into_iter().collect()
}

fn check_together(
    (graph, certain): (&SpawnGraph<'_>, &[Vec<usize>]),
    node: &SpawnNode<'_>,
    (link, budget): (&SpawnRoute, Option<Nanos>),
    edges: &[&SpawnGraphEdge<'_>],
    reported: &mut BTreeSet<(Span, &'static str)>,
    found: &mut Diagnostics,
) {
    let Some(limits) = link.limits else { return };
    let children: BTreeMap<usize, &SpawnGraphEdge<'_>> =
        edges.iter().filter_map(|edge| Some((edge.child?, *edge))).collect();
    let (Some(last), count) = (edges.last().map(|edge| edge.start.span), children.len()) else { return };
    let mut report = |limit: &'static str, requested: String, most: String| {
        if reported.insert((last, limit)) {
            let (parent, limit_span) = (node.id.to_string(), link.limit_span(limit));
            found.push(SpawnError::OverBudget {
                parent,
                children: count,
                limit,
                requested,
                most,
                span: last,
                limit_span,
            });
        }
    };
    let spawns = limits.spawns;
    let started = certain_descendants(certain, children.keys().copied()).max(count);
    if started > 1 && spawns > 0 && u64::try_from(started).is_ok_and(|started| started > spawns) {
        report("spawns", format!("{started} spawns"), spawns.to_string());
    }
    let requested: Vec<Nanos> = children
        .values()
        .filter(|edge| !matches!(edge.start.by, SpawnSource::Body { free: true }))
        .filter_map(|edge| min_requested_spend(graph.child(edge)?).map(|(requested, _)| requested))
        .collect();
    let sum = requested.iter().fold(Nanos::ZERO, |sum, one| Nanos(sum.0.saturating_add(one.0)));
    let spend = budget.map_or(limits.spend, |budget| budget.min(limits.spend));
    // A child that exceeds the budget alone is reported separately.
    if requested.len() > 1 && sum > spend && requested.iter().all(|one| *one <= spend) {
        report("spend", format!("${sum}"), format!("${spend}"));
    }
}

/// Returns the number of different directives that certainly run below a thread with these children: the children, and
/// the directives that they certainly start themselves. The limit `spawns` counts all of them. `certain` holds the
/// certain children of each directive.
fn certain_descendants(certain: &[Vec<usize>], children: impl Iterator<Item = usize>) -> usize {
    let mut next: Vec<(usize, usize)> = children.map(|child| (child, 1)).collect();
    let mut seen = vec![false; certain.len()];
    for (child, _) in &next {
        if let Some(seen) = seen.get_mut(*child) {
            *seen = true;
        }
    }
    let mut count = next.len();
    while let Some((place, depth)) = next.pop().filter(|_| count < MAX_COUNTED_SPAWNS) {
        let below = certain.get(place).filter(|_| depth < MAX_COUNTED_DEPTH);
        for child in below.into_iter().flatten().copied() {
            if let Some(unseen) = seen.get_mut(child).filter(|seen| !**seen) {
                *unseen = true;
                count += 1;
                next.push((child, depth + 1));
            }
        }
    }
    count
}

type LimitReader = fn(&Limits) -> u64;

/// The limits of a parent that also bound its children. Each limit has its name and the function that reads its value.
const BOUNDING_LIMITS: [(&str, LimitReader); 3] = [
    ("turns", |limits| limits.turns),
    ("tokens", |limits| limits.tokens),
    ("duration_seconds", |limits| limits.duration_seconds),
];

/// Reports each limit of a child that is higher than the limit of its parent. The child's limit has no effect, because
/// the child runs with the limit of the parent.
fn check_clipped(
    graph: &SpawnGraph<'_>,
    node: &SpawnNode<'_>,
    edge: &SpawnGraphEdge<'_>,
    reported: &mut BTreeSet<(Span, &'static str)>,
    found: &mut Diagnostics,
) {
    let (Some(limits), Some(children)) = (edge.link.limits, graph.child(edge)) else { return };
    for (limit, value) in BOUNDING_LIMITS {
        let of = |child: &Rc<SpawnRoute>| Some((value(child.limits.as_ref()?), child.limit_span(limit)?));
        let requested = children.iter().map(of).collect::<Option<Vec<_>>>();
        let Some((requested, asked_span)) = requested.and_then(|all| all.into_iter().min_by_key(|(value, _)| *value))
        else {
            continue;
        };
        let most = value(&limits);
        if requested > most && reported.insert((edge.start.span, limit)) {
            found.push(SpawnError::ClippedLimit {
                parent: node.id.to_string(),
                child: edge.start.to.to_string(),
                limit,
                requested,
                most,
                span: edge.start.span,
                asked_span: Some(asked_span),
            });
        }
    }
}
