//! Circles of directives that start each other by lines that name them, where nobody has said how deep that may go.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use rye_grammar::{ItemId, Span};

use super::{Link, Starter};
use crate::diagnostics::{Diagnostics, SpawnError};

pub fn check(nodes: &BTreeMap<ItemId, Vec<Rc<Link>>>, found: &mut Diagnostics) {
    let mut edges: DiGraphMap<&ItemId, Span> = DiGraphMap::new();
    for (id, links) in nodes {
        let starts = links.iter().flat_map(|link| &link.starts).filter(|start| nodes.contains_key(&start.to));
        // A hook that may not fire may well be what ends it.
        for start in starts.filter(|start| !matches!(start.by, Starter::Hook { certain: false, .. })) {
            if !edges.contains_edge(id, &start.to) {
                edges.add_edge(id, &start.to, start.span);
            }
        }
    }
    let mut circles: Vec<Vec<&ItemId>> = tarjan_scc(&edges);
    for circle in &mut circles {
        circle.sort();
    }
    circles.sort();
    for members in circles {
        // Somebody who says how many children there may be, or how far down, has thought of it.
        let bounded = members
            .iter()
            .filter_map(|id| nodes.get(*id))
            .flatten()
            .any(|link| link.limit_span("depth").is_some() || link.limit_span("spawns").is_some());
        let Some(first) = members.first().filter(|_| !bounded) else { continue };
        let Some(circle) = shortest(&edges, first, &members.iter().copied().collect()) else { continue };
        let steps = circle.windows(2).filter_map(|pair| match pair {
            [from, to] => edges.edge_weight(from, to).copied(),
            _ => None,
        });
        let spans = steps.collect();
        found.push(SpawnError::Cycle { circle: circle.iter().map(ToString::to_string).collect(), spans });
    }
}

/// The shortest way from a directive back to itself; `None` where there is none.
fn shortest<'n>(
    edges: &DiGraphMap<&'n ItemId, Span>,
    first: &'n ItemId,
    members: &BTreeSet<&'n ItemId>,
) -> Option<Vec<&'n ItemId>> {
    let mut from: BTreeMap<&ItemId, &ItemId> = BTreeMap::new();
    let mut queue = VecDeque::from([first]);
    while let Some(id) = queue.pop_front() {
        let mut next: Vec<&ItemId> = edges.neighbors(id).filter(|to| members.contains(to)).collect();
        next.sort();
        for to in next {
            if to == first {
                let mut circle = vec![first, id];
                while let Some(before) = circle.last().filter(|last| **last != first).and_then(|last| from.get(*last)) {
                    circle.push(before);
                }
                circle.reverse();
                return Some(circle);
            }
            if !from.contains_key(to) {
                from.insert(to, id);
                queue.push_back(to);
            }
        }
    }
    None
}
