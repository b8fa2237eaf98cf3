//! The spawn graph in the form that searches need: each directive has an index, in the order of the ids.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use rye_grammar::ItemId;

use super::{SpawnEdge, SpawnRoute, SpawnRoutes, Spawns};

/// All directives that spawn or are spawned.
pub struct SpawnGraph<'n> {
    pub nodes: Vec<SpawnNode<'n>>,
}

/// A directive, with its routes.
pub struct SpawnNode<'n> {
    pub id: &'n ItemId,
    pub links: &'n [Rc<SpawnRoute>],
    pub edges: Vec<SpawnGraphEdge<'n>>,
    /// The directives that a grant names and neither the body nor a hook starts.
    pub granted: Vec<SpawnGraphEdge<'n>>,
}

/// A spawn by a directive on one of its routes.
#[derive(Clone, Copy)]
pub struct SpawnGraphEdge<'n> {
    pub link: &'n SpawnRoute,
    pub start: &'n SpawnEdge,
    /// The index of the spawned directive in the nodes of the graph; `None` if the graph does not contain the
    /// directive.
    pub child: Option<usize>,
}

/// Returns the routes of the directives that others spawn and that spawn none themselves. Each element of `several`
/// holds the directives of one range of ids, and the ranges are in ascending order. `elsewhere` looks up a directive
/// that no element holds; if it returns `None`, the directive is left out.
pub fn leaf_routes(several: &[&Spawns], elsewhere: impl Fn(&ItemId) -> Option<Vec<Rc<SpawnRoute>>>) -> SpawnRoutes {
    let starting: HashSet<&ItemId> = several.iter().flat_map(|s| s.starting.keys()).collect();
    let others: Vec<(&ItemId, &SpawnRoutes)> =
        several.iter().filter_map(|s| Some((s.others.last_key_value()?.0, &s.others))).collect();
    let links = several.iter().flat_map(|s| s.starting.values()).flatten();
    let named = links.flat_map(|link| link.starts.iter().chain(&link.granted)).map(|start| &start.to);
    let named: BTreeSet<&ItemId> = named.filter(|id| !starting.contains(id)).collect();
    let find = |id: &ItemId| {
        let at = others.partition_point(|(last, _)| *last < id);
        others.get(at).and_then(|(_, nodes)| nodes.get(id)).cloned()
    };
    named.into_iter().filter_map(|id| Some((id.clone(), find(id).or_else(|| elsewhere(id))?))).collect()
}

impl<'n> SpawnGraph<'n> {
    /// Builds the graph. Its nodes are the directives in `several` that spawn others, and the directives in `leaves`,
    /// which are spawned and spawn no others.
    pub fn new(several: &[&'n Spawns], leaves: &'n SpawnRoutes) -> Self {
        let mut all: Vec<(&ItemId, &[Rc<SpawnRoute>])> =
            several.iter().flat_map(|s| &s.starting).chain(leaves).map(|(id, links)| (id, links.as_slice())).collect();
        all.sort_by_key(|(id, _)| *id);
        let places: HashMap<&ItemId, usize> = all.iter().enumerate().map(|(place, (id, _))| (*id, place)).collect();
        let edge = |link: &'n Rc<SpawnRoute>, start: &'n SpawnEdge| SpawnGraphEdge {
            link,
            start,
            child: places.get(&start.to).copied(),
        };
        let node = |(id, links): &(&'n ItemId, &'n [Rc<SpawnRoute>])| SpawnNode {
            id,
            links,
            edges: links.iter().flat_map(|link| link.starts.iter().map(move |start| edge(link, start))).collect(),
            granted: links.iter().flat_map(|link| link.granted.iter().map(move |start| edge(link, start))).collect(),
        };
        Self { nodes: all.iter().map(node).collect() }
    }

    /// Returns the routes of the directive that an edge spawns; `None` if the directive could not be looked up.
    pub fn child(&self, edge: &SpawnGraphEdge<'n>) -> Option<&'n [Rc<SpawnRoute>]> {
        self.nodes.get(edge.child?).map(|node| node.links)
    }
}
