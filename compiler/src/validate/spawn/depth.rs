//! Checks of explicit `depth` limits against the spawn graph (`language.md` 11). Each spawn uses one level of the limit
//! of every ancestor. Reports a spawn if the limit of an ancestor of the spawning directive leaves no level for the
//! child.

use std::collections::BTreeSet;

use rye_grammar::Span;

use super::cycle::component_of;
use super::graph::{SpawnGraph, SpawnNode};
use crate::diagnostics::{Diagnostics, SpawnError};

/// The remaining depth of a directive, and the directive whose limit bounds it.
#[derive(Clone, Copy)]
struct RemainingDepth {
    depth: u64,
    above: usize,
}

pub fn check(graph: &SpawnGraph<'_>, found: &mut Diagnostics) {
    // A recursion may rely on `depth` as its bound, so spawns within a cycle are not checked.
    let components = component_of(graph);
    let mut left: Vec<Option<RemainingDepth>> = graph
        .nodes
        .iter()
        .enumerate()
        .map(|(above, node)| Some(RemainingDepth { depth: explicit_depth(node)?, above }))
        .collect();
    let mut queue: BTreeSet<usize> =
        (0..graph.nodes.len()).filter(|at| left.get(*at).is_some_and(Option::is_some)).collect();
    let mut reported: BTreeSet<Span> = BTreeSet::new();
    while let Some(parent) = queue.pop_first() {
        let (Some(Some(here)), Some(node)) = (left.get(parent).copied(), graph.nodes.get(parent)) else { continue };
        for edge in node.edges.iter().filter(|edge| edge.start.is_certain()) {
            let Some(child) = edge.child.filter(|child| components.get(*child) != components.get(parent)) else {
                continue;
            };
            if here.depth == 0 {
                // If the parent's own limit is 0, another check reports the spawn.
                if here.above != parent && reported.insert(edge.start.span) {
                    let Some(above) = graph.nodes.get(here.above) else { continue };
                    found.push(SpawnError::TooDeep {
                        parent: node.id.to_string(),
                        child: edge.start.to.to_string(),
                        above: above.id.to_string(),
                        span: edge.start.span,
                        limit_span: above.links.iter().find_map(|link| link.limit_span("depth")),
                    });
                }
                continue;
            }
            let depth = here.depth - 1;
            if let Some(known) = left.get_mut(child).filter(|known| known.is_none_or(|known| depth < known.depth)) {
                *known = Some(RemainingDepth { depth, above: here.above });
                queue.insert(child);
            }
        }
    }
}

/// Returns the largest value of the limit `depth` in the extends chains of a directive, over all routes; `None` if one
/// of these chains does not set the limit.
fn explicit_depth(node: &SpawnNode<'_>) -> Option<u64> {
    let depths: Option<Vec<u64>> =
        node.links.iter().map(|link| link.limit_span("depth").and(link.limits).map(|limits| limits.depth)).collect();
    depths?.into_iter().max()
}
