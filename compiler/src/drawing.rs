//! A graph to be drawn, independent of the output format. DOT, Mermaid and SVG render the same value.

use crate::diagnostics::sanitize;
use crate::plan::graph::{Graph, Node, Outcome};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drawing {
    /// The name of the drawing, which identifies it in the output.
    pub name: String,
    /// True to draw edges from left to right instead of from top to bottom, for wide graphs with long names.
    pub is_horizontal: bool,
    pub nodes: Vec<DrawnNode>,
    pub edges: Vec<DrawnEdge>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrawnNode {
    /// The identifier of the node, unique in its drawing.
    pub id: String,
    pub label: String,
    pub shape: NodeShape,
    pub group: NodeGroup,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrawnEdge {
    /// Index in [`Drawing::nodes`] of the node where the edge starts.
    pub from: usize,
    pub to: usize,
    pub label: String,
    pub line: LineStyle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeShape {
    Box,
    Oval,
    Diamond,
    Component,
}

/// The kind of item or step that a node represents. The kind determines the color of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeGroup {
    Step,
    Decision,
    Hook,
    Directive,
    Knowledge,
    Tool,
    Pattern,
    /// An item of a lower space: shadowed, or part of the standard library.
    Library,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineStyle {
    Solid,
    Dashed,
}

impl NodeGroup {
    /// Returns the CSS class of the nodes of this group in an SVG drawing.
    pub(crate) fn css_class(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Decision => "decision",
            Self::Hook => "hook",
            Self::Directive => "directive",
            Self::Knowledge => "knowledge",
            Self::Tool => "tool",
            Self::Pattern => "pattern",
            Self::Library => "far",
        }
    }
}

impl Drawing {
    /// Draws the execution graph of a plan. Several outcomes between two nodes become one edge.
    pub fn of_plan(graph: &Graph) -> Self {
        let nodes = graph.0.keys().map(|node| {
            let (shape, group) = node_style(*node);
            DrawnNode { id: node.to_string(), label: node.to_string(), shape, group }
        });
        let at = |node: Node| graph.0.keys().position(|n| *n == node).unwrap_or_default();
        let edges = join_edges(graph).into_iter().map(|(from, to, outcomes)| {
            let words = outcomes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            DrawnEdge { from: at(from), to: at(to), label: words, line: LineStyle::Solid }
        });
        Self { name: "plan".into(), is_horizontal: false, nodes: nodes.collect(), edges: edges.collect() }
    }

    /// Returns an identifier for each node, made of letters, digits and `_` and unique in the drawing.
    pub(crate) fn identifiers(&self) -> Vec<String> {
        let mut used_ids: Vec<String> = Vec::with_capacity(self.nodes.len());
        let mut seen = std::collections::BTreeSet::new();
        for (i, node) in self.nodes.iter().enumerate() {
            let plain: String = node.id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
            let mut name = format!("n_{plain}");
            if !seen.insert(name.clone()) {
                name = format!("{name}_{i}");
                seen.insert(name.clone());
            }
            used_ids.push(name);
        }
        used_ids
    }
}

/// Returns a label on one line without control characters.
pub fn one_line(text: &str) -> String {
    sanitize(text, "\u{fffd}").into_owned()
}

fn node_style(node: Node) -> (NodeShape, NodeGroup) {
    match node {
        Node::Start | Node::Idle | Node::Finish => (NodeShape::Oval, NodeGroup::Step),
        Node::Hooks(_) => (NodeShape::Component, NodeGroup::Hook),
        Node::Limits | Node::Gate | Node::Context => (NodeShape::Diamond, NodeGroup::Decision),
        Node::Inbox
        | Node::Model
        | Node::Nudge
        | Node::Ask(_)
        | Node::Tools
        | Node::Guard
        | Node::Return
        | Node::Compact
        | Node::Handoff => (NodeShape::Box, NodeGroup::Step),
    }
}

fn join_edges(graph: &Graph) -> Vec<(Node, Node, Vec<Outcome>)> {
    let mut joined: Vec<(Node, Node, Vec<Outcome>)> = Vec::new();
    for (from, out) in &graph.0 {
        for (outcome, to) in out {
            match joined.iter_mut().find(|(f, t, _)| f == from && t == to) {
                Some((_, _, outcomes)) => outcomes.push(*outcome),
                None => joined.push((*from, *to, vec![*outcome])),
            }
        }
    }
    joined
}
