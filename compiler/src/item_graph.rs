//! The relations between the items of a project: extends, injects, suppresses, grants, spawns and shadows, each with
//! the source line that declares it. The relations are read from the files, without compiling a plan.

mod mentions;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use rye_grammar::{ItemId, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compose::{Composed, compose_all};
use crate::diagnostics::Diagnostics;
use crate::hook::HookAction;
use crate::item::{Directive, Items};
use crate::lower::origin;
use crate::plan::source::SourceReport;
use crate::resolve::{Inputs, Launch};
use crate::semantics::glob::Glob;
use crate::world::{ItemKind, Space, World};
pub(crate) use mentions::mentions;
pub use view::{DetailLevel, RelationFilter};

/// Items and the relations between them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ItemGraph {
    pub nodes: Vec<ItemNode>,
    pub edges: Vec<ItemEdge>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ItemNode {
    /// The id of the node: `directive ID`, `knowledge ID`, `tool ID`, `hook ID` or `pattern PATTERN`. The id of a
    /// shadowed item ends with its space.
    pub id: String,
    /// The kind of the node: `directive`, `knowledge`, `tool`, `hook` or `pattern`.
    pub kind: String,
    pub name: String,
    /// The space of the item: `project`, `user` or `system`; null for hooks, patterns and missing items.
    pub space: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ItemEdge {
    pub from: String,
    pub to: String,
    pub relation: Relation,
    /// The position of an injection, the hook that injects the item, or the cause of a spawn.
    pub label: String,
    pub source: Option<SourceReport>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    Extends,
    Injects,
    Suppresses,
    Grants,
    Spawns,
    Shadows,
}

impl Relation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Extends => "extends",
            Self::Injects => "injects",
            Self::Suppresses => "suppresses",
            Self::Grants => "grants",
            Self::Spawns => "spawns",
            Self::Shadows => "shadows",
        }
    }
}

/// Returns the graph of everything that the directives of the project reach, or that the directive `only` reaches.
pub fn item_graph(world: &dyn World, only: Option<&ItemId>) -> ItemGraph {
    let items = Items::new(world);
    let mut builder =
        ItemGraphBuilder { items: &items, nodes: BTreeMap::new(), edges: BTreeSet::new(), done: BTreeSet::new() };
    let of_project = items.list(ItemKind::Directive);
    let mut wanted: Vec<ItemId> = match only {
        Some(id) => vec![id.clone()],
        None => of_project.iter().filter(|e| e.space == Space::Project).map(|e| e.id.clone()).collect(),
    };
    while let Some(id) = wanted.pop() {
        if builder.done.insert(id.clone()) {
            wanted.extend(builder.directive(&id));
        }
    }
    builder.add_shadows();
    ItemGraph { nodes: builder.nodes.into_values().collect(), edges: builder.edges.into_iter().collect() }
}

struct ItemGraphBuilder<'i, 'w> {
    items: &'i Items<'w>,
    nodes: BTreeMap<String, ItemNode>,
    edges: BTreeSet<ItemEdge>,
    done: BTreeSet<ItemId>,
}

impl ItemGraphBuilder<'_, '_> {
    /// Adds one directive with all of its routes, and returns the directives that it starts.
    fn directive(&mut self, id: &ItemId) -> Vec<ItemId> {
        let launch = Launch { inputs: Inputs::Unknown, model: &|_| None };
        // `rye check` reports the diagnostics of the directive.
        let (all, _) = compose_all(self.items, id, &launch, &mut Diagnostics::new());
        let mut next = Vec::new();
        let own = self.item_node(ItemKind::Directive, id.as_str());
        for composed in &all {
            for pair in composed.chain.windows(2) {
                let [parent, child] = pair else { continue };
                let (from, to) = (
                    self.item_node(ItemKind::Directive, child.id().as_str()),
                    self.item_node(ItemKind::Directive, parent.id().as_str()),
                );
                let routed = composed.route.as_ref().filter(|_| child.id() == &composed.id);
                let span = routed.map(|r| r.hook.span).or(child.extends.as_ref().map(|e| e.span));
                let label = routed.map(|r| format!("hook {}", r.hook.id.node)).unwrap_or_default();
                self.add_edge(&from, &to, Relation::Extends, &label, span);
            }
            for link in &composed.chain {
                next.extend(self.add_declared(link));
            }
            next.extend(self.add_hooks(composed, &own));
            next.extend(self.add_mentioned(composed, &own));
        }
        next
    }

    /// Adds the relations that the file of one directive declares. Returns the directives that its grants name, which
    /// it can therefore start.
    fn add_declared(&mut self, link: &Directive) -> Vec<ItemId> {
        let mut next = Vec::new();
        let own = self.item_node(ItemKind::Directive, link.id().as_str());
        let context = &link.context;
        for (place, list) in [("system", &context.system), ("before", &context.before), ("after", &context.after)] {
            for id in list {
                let to = self.item_node(ItemKind::Knowledge, id.node.as_str());
                self.add_edge(&own, &to, Relation::Injects, place, Some(id.span));
            }
        }
        for suppressed in &context.suppress {
            let known = ItemId::parse(&suppressed.node).is_ok_and(|id| self.items.exists(ItemKind::Knowledge, &id));
            let to = if known {
                self.item_node(ItemKind::Knowledge, &suppressed.node)
            } else {
                self.named_node("hook", &suppressed.node)
            };
            self.add_edge(&own, &to, Relation::Suppresses, "", Some(suppressed.span));
        }
        for grant in link.permissions.iter().flat_map(|p| &p.grants) {
            let pattern = &grant.pattern.0;
            let (to, relation, label) = match self.granted_item(pattern) {
                Some((ItemKind::Directive, id)) => {
                    let to = self.item_node(ItemKind::Directive, id.as_str());
                    next.push(id);
                    (to, Relation::Spawns, "grant")
                }
                Some((kind, id)) => (self.item_node(kind, id.as_str()), Relation::Grants, ""),
                None => (self.named_node("pattern", pattern), Relation::Grants, ""),
            };
            self.add_edge(&own, &to, relation, label, Some(grant.span));
        }
        next
    }

    /// Returns the existing tool, directive or knowledge item that a pattern grants; `None` for a pattern with
    /// wildcards, or if there is no such item.
    fn granted_item(&self, pattern: &str) -> Option<(ItemKind, ItemId)> {
        const GRANTS_OF_ITEMS: [(&str, ItemKind); 3] = [
            ("rye.execute.tool.", ItemKind::Tool),
            ("rye.execute.directive.", ItemKind::Directive),
            ("rye.fetch.knowledge.", ItemKind::Knowledge),
        ];
        let (prefix, kind) = GRANTS_OF_ITEMS.into_iter().find(|(prefix, _)| pattern.starts_with(prefix))?;
        let dotted = pattern.strip_prefix(prefix).filter(|_| Glob::new(pattern).is_literal())?;
        let list = self.items.list(kind);
        list.iter().find(|entry| entry.id.dotted() == dotted).map(|entry| (kind, entry.id.clone()))
    }

    /// Adds relations of the node `own`: to the items that hooks inject, and to the directives that hooks spawn. Skips
    /// hooks that a run never evaluates. Returns the spawned directives that exist.
    fn add_hooks(&mut self, composed: &Composed, own: &str) -> Vec<ItemId> {
        let mut next = Vec::new();
        for hook in composed.hooks.iter().filter(|h| h.is_live() && h.decl.has_static_id()) {
            let label = format!("hook {}", hook.decl.id.node);
            let Some(action) = hook.decl.action.as_ref().map(|a| &a.node) else { continue };
            let Some((kind, id)) = action.item() else { continue };
            // A hook that executes a directive spawns it. Any other hook injects the fetched item or the result of the
            // tool.
            let relation = if kind == ItemKind::Directive && matches!(action, HookAction::Execute { .. }) {
                Relation::Spawns
            } else if matches!(action, HookAction::Fetch { .. } | HookAction::Execute { .. }) {
                Relation::Injects
            } else {
                continue;
            };
            let to = self.item_node(kind, id);
            self.add_edge(own, &to, relation, &label, Some(hook.decl.span));
            if relation == Relation::Spawns {
                next.extend(ItemId::parse(id).ok().filter(|id| self.items.exists(ItemKind::Directive, id)));
            }
        }
        next
    }

    /// Adds an edge from the directive `own` to each existing directive that its body names. Returns the named
    /// directives.
    fn add_mentioned(&mut self, composed: &Composed, own: &str) -> Vec<ItemId> {
        let mut next = Vec::new();
        let Some(leaf) = composed.leaf() else { return next };
        for mention in mentions(leaf) {
            if mention.kind == ItemKind::Directive && self.items.exists(ItemKind::Directive, &mention.id) {
                let to = self.item_node(ItemKind::Directive, mention.id.as_str());
                self.add_edge(own, &to, Relation::Spawns, "body", Some(mention.span));
                next.push(mention.id);
            }
        }
        next
    }

    /// Adds the shadowed files of every item in the graph.
    fn add_shadows(&mut self) {
        let shown: Vec<ItemNode> = self.nodes.values().cloned().collect();
        for node in shown {
            let Some(kind) = ItemKind::from_word(&node.kind) else { continue };
            let list = self.items.list(kind);
            let mut all = list.iter().filter(|e| e.id.as_str() == node.name);
            let Some(used) = all.next() else { continue };
            for hidden in all {
                let id = format!("{} ({})", node.id, hidden.space.as_str());
                self.nodes.insert(
                    id.clone(),
                    ItemNode { id: id.clone(), space: Some(hidden.space.as_str().to_owned()), ..node.clone() },
                );
                self.add_edge(&node.id, &id, Relation::Shadows, used.space.as_str(), None);
            }
        }
    }

    fn item_node(&mut self, kind: ItemKind, name: &str) -> String {
        let id = format!("{} {name}", kind.as_str());
        if !self.nodes.contains_key(&id) {
            let list = self.items.list(kind);
            let space = list.iter().find(|e| e.id.as_str() == name).map(|e| e.space.as_str().to_owned());
            let node = ItemNode { id: id.clone(), kind: kind.as_str().to_owned(), name: name.to_owned(), space };
            self.nodes.insert(id.clone(), node);
        }
        id
    }

    fn named_node(&mut self, kind: &str, name: &str) -> String {
        let id = format!("{kind} {name}");
        let node = ItemNode { id: id.clone(), kind: kind.to_owned(), name: name.to_owned(), space: None };
        self.nodes.entry(id.clone()).or_insert(node);
        id
    }

    fn add_edge(&mut self, from: &str, to: &str, relation: Relation, label: &str, span: Option<Span>) {
        let source =
            span.and_then(|span| origin::plan_place(&self.items.sources(), span)).map(|p| SourceReport::from(&p));
        let (from, to, label) = (from.to_owned(), to.to_owned(), label.to_owned());
        self.edges.insert(ItemEdge { from, to, relation, label, source });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;
    use crate::compile::tests::world::deploy_world;

    fn has(graph: &ItemGraph, from: &str, relation: Relation, to: &str) -> bool {
        graph.edges.iter().any(|e| e.from == from && e.relation == relation && e.to == to)
    }

    #[test]
    fn deploy_example_has_expected_relations() {
        let graph = item_graph(&deploy_world(), None);
        let own = "directive deploy_staging";
        assert!(has(&graph, own, Relation::Extends, "directive project/deploy/base"), "{:?}", graph.edges);
        assert!(has(&graph, "directive project/deploy/base", Relation::Extends, "directive rye/agent/core/base"));
        assert!(has(&graph, own, Relation::Injects, "knowledge project/deploy/completion-checklist"));
        assert!(has(&graph, own, Relation::Suppresses, "knowledge rye/agent/core/protocol/sign"));
        assert!(has(&graph, own, Relation::Grants, "tool rye/file-system/read"));
        assert!(has(&graph, own, Relation::Grants, "pattern rye.execute.tool.project.deploy.*"));
        let shadowed = "knowledge rye/agent/core/Identity";
        assert!(has(&graph, shadowed, Relation::Shadows, &format!("{shadowed} (system)")));
        let extends = graph.edges.iter().find(|e| e.from == own && e.relation == Relation::Extends).unwrap();
        assert_eq!((extends.label.as_str(), extends.source.as_ref().unwrap().line), ("hook route_deploy", 2));
        let drawing = graph.draw(DetailLevel::Full);
        assert_eq!(drawing.nodes.len(), graph.nodes.len());
        assert!(drawing.edges.iter().all(|e| e.from < drawing.nodes.len() && e.to < drawing.nodes.len()));
        let one = item_graph(&deploy_world(), Some(&ItemId::parse("rye/agent/core/base").unwrap()));
        assert!(one.nodes.len() < graph.nodes.len() && !one.nodes.iter().any(|n| n.id == own));
    }

    #[test]
    fn grant_of_one_directive_starts_it() {
        let directive = |name: &str, grants: &str| {
            format!(
                "```xml\n<directive name=\"{name}\"><metadata><permissions><execute>{grants}</execute></permissions></metadata></directive>\n```\n\nGo.\n"
            )
        };
        let world = crate::compile::tests::world::minimal_world()
            .project(
                ".ai/directives/a.md",
                directive("a", "<directive>team.b</directive><directive>team.*</directive>"),
            )
            .project(".ai/directives/team/b.md", directive("b", "<tool>rye.look</tool>"));
        let graph = item_graph(&world, Some(&ItemId::parse("a").unwrap()));
        assert!(has(&graph, "directive a", Relation::Spawns, "directive team/b"), "{:?}", graph.edges);
        assert!(has(&graph, "directive a", Relation::Grants, "pattern rye.execute.directive.team.*"));
        assert!(has(&graph, "directive team/b", Relation::Grants, "tool rye/look"), "{:?}", graph.edges);
    }
}
