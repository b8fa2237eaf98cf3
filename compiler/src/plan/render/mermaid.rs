//! The graph of a plan in Mermaid's language, for Markdown pages.

use super::super::graph::{Graph, Node};
use super::dot::{edges, line};

pub fn render(graph: &Graph) -> String {
    let mut out = String::from("flowchart TD\n");
    for node in graph.0.keys() {
        let (open, close) = match node {
            Node::Start | Node::Finish => ("([", "])"),
            Node::Hooks(_) => ("[[", "]]"),
            Node::Limits | Node::Gate | Node::Context => ("{", "}"),
            Node::Inbox
            | Node::Model
            | Node::Nudge
            | Node::Ask(_)
            | Node::Tools
            | Node::Guard
            | Node::Return
            | Node::Compact
            | Node::Handoff => ("[", "]"),
        };
        line(&mut out, &format!("  {}{open}\"{node}\"{close}", name(*node)));
    }
    for (from, to, outcomes) in edges(graph) {
        line(&mut out, &format!("  {} -->|{outcomes}| {}", name(from), name(to)));
    }
    out
}

/// A node's name as an identifier: `end` and dots mean something to Mermaid.
fn name(node: Node) -> String {
    format!("n_{}", node.to_string().replace('.', "_"))
}
