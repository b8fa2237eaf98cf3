//! Reports spawn cycles: directives that spawn each other by name, none of which sets the limit `depth` or `spawns`.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use petgraph::algo::kosaraju_scc;
use petgraph::graphmap::DiGraphMap;
use rye_grammar::Span;

use super::graph::SpawnGraph;
use crate::diagnostics::{Diagnostics, SpawnError};

/// Returns a number for each directive, by the index of the directive. Two directives have equal numbers exactly if a
/// cycle of spawns contains both. Only spawns that happen in every thread count.
pub fn component_of(graph: &SpawnGraph<'_>) -> Vec<usize> {
    let mut components: Vec<usize> = (0..graph.nodes.len()).collect();
    for members in kosaraju_scc(&certain_edges(graph)) {
        let number = members.iter().copied().min();
        for member in members {
            if let (Some(slot), Some(number)) = (components.get_mut(member), number) {
                *slot = number;
            }
        }
    }
    components
}

fn certain_edges(graph: &SpawnGraph<'_>) -> DiGraphMap<usize, Span> {
    let mut edges: DiGraphMap<usize, Span> = DiGraphMap::new();
    for (place, node) in graph.nodes.iter().enumerate() {
        // A hook that does not fire in every thread can end the recursion.
        for edge in node.edges.iter().filter(|edge| edge.start.is_certain()) {
            if let Some(child) = edge.child.filter(|child| !edges.contains_edge(place, *child)) {
                edges.add_edge(place, child, edge.start.span);
            }
        }
    }
    edges
}

pub fn check(graph: &SpawnGraph<'_>, found: &mut Diagnostics) {
    let edges = certain_edges(graph);
    // Kosaraju's algorithm does not recurse, so a long chain cannot overflow the stack.
    let mut circles: Vec<Vec<usize>> = kosaraju_scc(&edges);
    for circle in &mut circles {
        circle.sort_unstable();
    }
    circles.sort();
    let node = |place: &usize| graph.nodes.get(*place);
    for members in circles {
        // An explicit `spawns` or `depth` limit of a directive on the cycle means that the cycle is intended.
        let mut links = members.iter().filter_map(node).flat_map(|node| node.links);
        let bounded = links.any(|link| link.limit_span("depth").is_some() || link.limit_span("spawns").is_some());
        let Some(first) = members.first().filter(|_| !bounded) else { continue };
        let Some(circle) = shortest_cycle(&edges, *first, &members.iter().copied().collect()) else { continue };
        let steps = circle.windows(2).filter_map(|pair| match pair {
            [from, to] => edges.edge_weight(*from, *to).copied(),
            _ => None,
        });
        let spans = steps.collect();
        let circle = circle.iter().filter_map(node).map(|node| node.id.to_string()).collect();
        found.push(SpawnError::Cycle { circle, spans });
    }
}

/// Returns the shortest cycle through the directive `first` that contains only `members`; `None` if there is none.
fn shortest_cycle(edges: &DiGraphMap<usize, Span>, first: usize, members: &BTreeSet<usize>) -> Option<Vec<usize>> {
    let mut from: BTreeMap<usize, usize> = BTreeMap::new();
    let mut queue = VecDeque::from([first]);
    while let Some(id) = queue.pop_front() {
        let mut next: Vec<usize> = edges.neighbors(id).filter(|to| members.contains(to)).collect();
        next.sort_unstable();
        for to in next {
            if to == first {
                let mut circle = vec![first, id];
                while let Some(before) = circle.last().filter(|last| **last != first).and_then(|last| from.get(last)) {
                    circle.push(*before);
                }
                circle.reverse();
                return Some(circle);
            }
            if let Entry::Vacant(unseen) = from.entry(to) {
                unseen.insert(id);
                queue.push_back(to);
            }
        }
    }
    None
}
