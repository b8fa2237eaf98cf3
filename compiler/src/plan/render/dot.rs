//! The graph of a plan in Graphviz's language.

use std::fmt::Write as _;

use super::super::graph::{Graph, Node, Outcome};

/// One edge a pair of nodes, labelled with the outcomes that take it.
pub fn render(graph: &Graph) -> String {
    let mut out = String::from("digraph plan {\n  rankdir=TB;\n  node [shape=box, fontname=\"sans-serif\"];\n");
    for node in graph.0.keys() {
        let shape = match node {
            Node::Start | Node::Finish => "oval",
            Node::Hooks(_) => "component",
            Node::Limits | Node::Gate | Node::Context => "diamond",
            Node::Inbox
            | Node::Model
            | Node::Nudge
            | Node::Ask(_)
            | Node::Tools
            | Node::Guard
            | Node::Return
            | Node::Compact
            | Node::Handoff => "box",
        };
        line(&mut out, &format!("  \"{node}\" [shape={shape}];"));
    }
    for (from, to, outcomes) in edges(graph) {
        line(&mut out, &format!("  \"{from}\" -> \"{to}\" [label=\"{outcomes}\"];"));
    }
    out.push_str("}\n");
    out
}

/// Edges joined by their ends, in the graph's order: `(from, to, "denied, returns")`.
pub fn edges(graph: &Graph) -> Vec<(Node, Node, String)> {
    let mut joined: Vec<(Node, Node, Vec<Outcome>)> = Vec::new();
    for (from, out) in &graph.0 {
        for (outcome, to) in out {
            match joined.iter_mut().find(|(f, t, _)| f == from && t == to) {
                Some((_, _, outcomes)) => outcomes.push(*outcome),
                None => joined.push((*from, *to, vec![*outcome])),
            }
        }
    }
    let words = |outcomes: &[Outcome]| outcomes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    joined.into_iter().map(|(from, to, outcomes)| (from, to, words(&outcomes))).collect()
}

pub(super) fn line(out: &mut String, text: &str) {
    // Writing to a string cannot fail.
    writeln!(out, "{text}").ok();
}
