//! Views of an item graph: a part of the graph, in which folders with many items are drawn as one box.

use std::collections::{BTreeMap, BTreeSet};

use super::{ItemEdge, ItemGraph, ItemNode, Relation};
use crate::drawing::{Drawing, DrawnEdge, DrawnNode, LineStyle, NodeGroup, NodeShape};

/// Largest number of boxes with which the level [`DetailLevel::Items`] is readable.
const MAX_ITEM_BOXES: usize = 60;
/// Largest number of boxes with which the levels [`DetailLevel::Mixed`] and [`DetailLevel::Folders`] are readable.
const MAX_FOLDER_BOXES: usize = 90;
/// Id and label of the box that stands for the standard library in a drawing.
const LIBRARY: &str = "standard library";
/// Largest number of labels in the text of one edge.
const MAX_EDGE_LABELS: usize = 2;

/// A group of relations between items. A view shows the relations of one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelationFilter {
    /// The relation spawns: a directive starts another directive.
    Spawns,
    /// The relations extends, injects, suppresses and shadows.
    Context,
    /// Grants of tools.
    Tools,
}

impl RelationFilter {
    fn includes(self, relation: Relation) -> bool {
        match self {
            Self::Spawns => relation == Relation::Spawns,
            Self::Context => {
                matches!(relation, Relation::Extends | Relation::Injects | Relation::Suppresses | Relation::Shadows)
            }
            Self::Tools => relation == Relation::Grants,
        }
    }
}

/// The level of detail of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DetailLevel {
    /// Every item is a box, including the items of the standard library.
    Full,
    /// Every item is a box, except that the standard library is one box.
    Items,
    /// Like [`Self::Items`], but knowledge, tools and patterns are drawn by folder.
    Mixed,
    /// Items of the same kind are one box if their ids have the same folder (`a/b` for `a/b/c`).
    Folders,
    /// Items of the same kind are one box if their ids have the same first folder (`a` for `a/b/c`).
    Top,
}

impl ItemGraph {
    /// Keeps only the relations that `filter` includes, and the items that these relations connect.
    #[must_use]
    pub fn only(self, filter: RelationFilter) -> Self {
        let edges: Vec<ItemEdge> = self.edges.into_iter().filter(|edge| filter.includes(edge.relation)).collect();
        let connected: BTreeSet<&String> = edges.iter().flat_map(|edge| [&edge.from, &edge.to]).collect();
        let nodes = self.nodes.into_iter().filter(|node| connected.contains(&node.id)).collect();
        Self { nodes, edges }
    }

    /// Returns the ids of the nodes that a text names. The text is the id of a node, such as `tool a/b`, or a name
    /// without a kind, such as `a/b`, which can name items of several kinds.
    pub fn find_nodes(&self, text: &str) -> BTreeSet<String> {
        let named = |node: &&ItemNode| node.id == text || node.name == text;
        self.nodes.iter().filter(named).map(|node| node.id.clone()).collect()
    }

    /// Keeps the given items, and the items at most `depth` relations away from them, in either direction.
    #[must_use]
    pub fn around(self, center: &BTreeSet<String>, depth: usize) -> Self {
        let mut kept = center.clone();
        for _ in 0..depth {
            let mut next = kept.clone();
            for edge in &self.edges {
                if kept.contains(&edge.from) {
                    next.insert(edge.to.clone());
                }
                if kept.contains(&edge.to) {
                    next.insert(edge.from.clone());
                }
            }
            if next.len() == kept.len() {
                break;
            }
            kept = next;
        }
        let nodes = self.nodes.into_iter().filter(|node| kept.contains(&node.id)).collect();
        let edges =
            self.edges.into_iter().filter(|edge| kept.contains(&edge.from) && kept.contains(&edge.to)).collect();
        Self { nodes, edges }
    }

    /// Returns the most detailed level whose number of boxes does not exceed the maximum for this level; `Top` if every
    /// level has too many boxes.
    pub fn readable_detail(&self) -> DetailLevel {
        let boxes =
            |detail: DetailLevel| self.nodes.iter().map(|node| Cluster::of(node, detail).id).collect::<BTreeSet<_>>();
        let fits = |(detail, most): &(DetailLevel, usize)| boxes(*detail).len() <= *most;
        let levels = [
            (DetailLevel::Items, MAX_ITEM_BOXES),
            (DetailLevel::Mixed, MAX_FOLDER_BOXES),
            (DetailLevel::Folders, MAX_FOLDER_BOXES),
        ];
        levels.into_iter().find(fits).map_or(DetailLevel::Top, |(detail, _)| detail)
    }

    /// Draws the graph: one box for each cluster of items, one edge for each relation between two clusters.
    pub fn draw(&self, detail: DetailLevel) -> Drawing {
        let mut clusters: BTreeMap<String, (Cluster, usize)> = BTreeMap::new();
        let mut cluster_of: BTreeMap<&str, String> = BTreeMap::new();
        for node in &self.nodes {
            let cluster = Cluster::of(node, detail);
            cluster_of.insert(&node.id, cluster.id.clone());
            clusters.entry(cluster.id.clone()).or_insert((cluster, 0)).1 += 1;
        }
        let mut bundles: BTreeMap<(usize, usize, Relation), Bundle<'_>> = BTreeMap::new();
        let place: BTreeMap<&str, usize> = clusters.keys().enumerate().map(|(i, id)| (id.as_str(), i)).collect();
        let at = |id: &str| cluster_of.get(id).and_then(|cluster| place.get(cluster.as_str())).copied();
        for edge in &self.edges {
            let (Some(from), Some(to)) = (at(&edge.from), at(&edge.to)) else { continue };
            // Relations within a cluster are not drawn. The HTML page lists them.
            if from == to && edge.from != edge.to {
                continue;
            }
            let bundle = bundles.entry((from, to, edge.relation)).or_default();
            bundle.count += 1;
            if !edge.label.is_empty() {
                bundle.labels.insert(&edge.label);
            }
        }
        let nodes = clusters.into_values().map(|(cluster, count)| cluster.draw(count)).collect();
        let edges = bundles.into_iter().map(|((from, to, relation), bundle)| DrawnEdge {
            from,
            to,
            label: bundle.label(relation),
            line: match relation {
                Relation::Extends | Relation::Injects | Relation::Spawns => LineStyle::Solid,
                Relation::Suppresses | Relation::Grants | Relation::Shadows => LineStyle::Dashed,
            },
        });
        Drawing { name: "items".into(), is_horizontal: true, nodes, edges: edges.collect() }
    }
}

/// The relations of one kind between two clusters, drawn as one edge.
#[derive(Default)]
struct Bundle<'g> {
    count: usize,
    labels: BTreeSet<&'g str>,
}

impl Bundle<'_> {
    fn label(&self, relation: Relation) -> String {
        let count = if self.count > 1 { format!(" ×{}", self.count) } else { String::new() };
        let shown: Vec<&str> = self.labels.iter().take(MAX_EDGE_LABELS).copied().collect();
        let more = self.labels.len().saturating_sub(MAX_EDGE_LABELS);
        let more = if more == 0 { String::new() } else { format!(", +{more}") };
        if shown.is_empty() {
            format!("{}{count}", relation.as_str())
        } else {
            format!("{}{count}: {}{more}", relation.as_str(), shown.join(", "))
        }
    }
}

/// A box in a drawing. The box stands for one item, for the items of a folder, or for the standard library.
struct Cluster {
    id: String,
    label: String,
    kind: String,
    /// True if the box stands for a folder or the standard library.
    is_folded: bool,
    is_library: bool,
}

impl Cluster {
    fn of(node: &ItemNode, detail: DetailLevel) -> Self {
        let is_library = node.space.as_deref() == Some("system");
        if is_library && detail > DetailLevel::Full {
            let (id, label) = (LIBRARY.to_owned(), LIBRARY.to_owned());
            return Self { id, label, kind: "library".into(), is_folded: true, is_library };
        }
        let by_folder = match detail {
            DetailLevel::Full | DetailLevel::Items => false,
            DetailLevel::Mixed => node.kind != "directive",
            DetailLevel::Folders | DetailLevel::Top => true,
        };
        if !by_folder {
            let (id, label, kind) = (node.id.clone(), node.name.clone(), node.kind.clone());
            return Self { id, label, kind, is_folded: false, is_library };
        }
        let folder = folder_of(node, detail);
        let label = if folder.is_empty() { format!("{} at the top", plural(&node.kind)) } else { format!("{folder}/") };
        Self {
            id: format!("{} {folder}/", plural(&node.kind)),
            label,
            kind: node.kind.clone(),
            is_folded: true,
            is_library,
        }
    }

    fn draw(self, count: usize) -> DrawnNode {
        let (shape, group) = match self.kind.as_str() {
            "directive" => (NodeShape::Box, NodeGroup::Directive),
            "knowledge" => (NodeShape::Oval, NodeGroup::Knowledge),
            "tool" => (NodeShape::Component, NodeGroup::Tool),
            "hook" => (NodeShape::Component, NodeGroup::Hook),
            "library" => (NodeShape::Box, NodeGroup::Library),
            _ => (NodeShape::Diamond, NodeGroup::Pattern),
        };
        let group = if self.is_library { NodeGroup::Library } else { group };
        let label = match (self.is_folded, count, self.kind.as_str()) {
            (false, _, _) => self.label,
            (true, _, "library") => format!("{} · {count}", self.label),
            (true, 1, kind) => format!("{} · 1 {kind}", self.label),
            (true, _, kind) => format!("{} · {count} {}", self.label, plural(kind)),
        };
        DrawnNode { id: self.id, label, shape, group }
    }
}

/// Returns the folder whose box contains an item, or the items that a pattern matches. At the level `Top`, only the
/// first folder of the ids remains.
fn folder_of(node: &ItemNode, detail: DetailLevel) -> String {
    let path = match node.kind.as_str() {
        // `rye.execute.tool.project.deploy.*` is about `project/deploy`.
        "pattern" => node.name.replace('.', "/"),
        _ => node.name.clone(),
    };
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let segments = match (detail, node.kind.as_str()) {
        (DetailLevel::Top, "pattern") => 4,
        (DetailLevel::Top, _) => 1,
        (DetailLevel::Full | DetailLevel::Items | DetailLevel::Mixed | DetailLevel::Folders, _) => usize::MAX,
    };
    folder.split('/').take(segments).collect::<Vec<_>>().join("/")
}

fn plural(kind: &str) -> String {
    if kind == "knowledge" { kind.to_owned() } else { format!("{kind}s") }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    fn node(kind: &str, name: &str, space: Option<&str>) -> ItemNode {
        let id = format!("{kind} {name}");
        ItemNode { id, kind: kind.into(), name: name.into(), space: space.map(str::to_owned) }
    }

    fn edge(from: &str, to: &str, relation: Relation, label: &str) -> ItemEdge {
        ItemEdge { from: from.into(), to: to.into(), relation, label: label.into(), source: None }
    }

    /// Returns a graph of `count` directives in folders of ten. Each directive injects a knowledge item of its folder
    /// and is started by the previous directive.
    fn project(count: usize) -> ItemGraph {
        let mut graph = ItemGraph::default();
        graph.nodes.push(node("directive", "rye/agent/core/base", Some("system")));
        graph.nodes.push(node("knowledge", "rye/agent/core/Identity", Some("system")));
        for i in 0..count {
            let folder = format!("team{}", i / 10);
            let own = node("directive", &format!("{folder}/d{i}"), Some("project"));
            let knowledge = node("knowledge", &format!("{folder}/k{i}"), Some("project"));
            graph.edges.push(edge(&own.id, "directive rye/agent/core/base", Relation::Extends, ""));
            graph.edges.push(edge(&own.id, "knowledge rye/agent/core/Identity", Relation::Injects, "hook ctx"));
            graph.edges.push(edge(&own.id, &knowledge.id, Relation::Injects, "before"));
            if i > 0 {
                let before = format!("directive team{}/d{}", (i - 1) / 10, i - 1);
                graph.edges.push(edge(&before, &own.id, Relation::Spawns, "body"));
            }
            graph.nodes.extend([own, knowledge]);
        }
        graph
    }

    #[test]
    fn detail_falls_until_the_boxes_are_few() {
        for (count, detail) in
            [(10, DetailLevel::Items), (60, DetailLevel::Mixed), (200, DetailLevel::Folders), (1_000, DetailLevel::Top)]
        {
            let graph = project(count);
            assert_eq!(graph.readable_detail(), detail, "{count}");
            let drawing = graph.draw(detail);
            assert!(drawing.nodes.len() <= 201, "{count}: {}", drawing.nodes.len());
            assert!(drawing.edges.iter().all(|e| e.from < drawing.nodes.len() && e.to < drawing.nodes.len()));
        }
    }

    #[test]
    fn folders_and_the_library_are_boxes_with_bundled_edges() {
        let drawing = project(30).draw(DetailLevel::Folders);
        let labels: Vec<&str> = drawing.nodes.iter().map(|node| node.label.as_str()).collect();
        assert!(labels.contains(&"team1/ · 10 directives") && labels.contains(&"standard library · 2"), "{labels:?}");
        let at = |label: &str| labels.iter().position(|known| *known == label).unwrap();
        let to_library = drawing.edges.iter().filter(|e| e.to == at("standard library · 2"));
        let texts: BTreeSet<&str> = to_library.map(|edge| edge.label.as_str()).collect();
        assert_eq!(texts, BTreeSet::from(["extends ×10", "injects ×10: hook ctx"]));
        let own = drawing.edges.iter().filter(|e| e.from == e.to).count();
        assert_eq!(own, 0, "relations within a folder are not drawn");
    }

    #[test]
    fn views_keep_the_named_relations_and_neighbors() {
        let spawns = project(30).only(RelationFilter::Spawns);
        assert!(spawns.nodes.iter().all(|node| node.kind == "directive") && spawns.edges.len() == 29);
        let center = spawns.find_nodes("team1/d15");
        assert_eq!(center.len(), 1);
        for (depth, count) in [(0, 1), (1, 3), (2, 5), (100, 30)] {
            assert_eq!(spawns.clone().around(&center, depth).nodes.len(), count, "{depth}");
        }
        assert!(spawns.find_nodes("unknown").is_empty());
    }
}
