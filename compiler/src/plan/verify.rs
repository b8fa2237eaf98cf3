//! The four laws of a plan's graph: total, reachable, bounded, gated (`engine.md` 2).
//!
//! This looks at the finished graph only and knows nothing of how it was built, so a mistake in `build`, a plan edited
//! by hand and a plan stored by another version are all refused the same way. Why cycles end is decision 0002.

use std::collections::BTreeSet;

use miette::Diagnostic;
use petgraph::Direction;
use petgraph::algo::{dominators, kosaraju_scc};
use petgraph::graphmap::DiGraphMap;
use petgraph::visit::Dfs;
use thiserror::Error;

use super::graph::{Asked, Graph, Node, Outcome, outcomes};
use crate::hook::HookPoint;

/// A law that a graph breaks. No source can cause one: it is a fault of the compiler, or of a stored plan.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum PlanError {
    #[error("`{node}` does not lead on: {problem}")]
    #[diagnostic(
        code("rye::plan::not-total"),
        help("every outcome of every step needs exactly one edge; compile the directive again")
    )]
    NotTotal { node: String, problem: String },
    #[error("`{node}` {problem}")]
    #[diagnostic(
        code("rye::plan::unreachable"),
        help("every step must lie between the start and the finish; compile the directive again")
    )]
    Unreachable { node: String, problem: String },
    #[error("the steps {} can go round for ever: {problem}", list(nodes))]
    #[diagnostic(
        code("rye::plan::unbounded"),
        help("every cycle must pass the limits or use up something finite; compile the directive again")
    )]
    Unbounded { nodes: Vec<String>, problem: String },
    #[error("`{node}` can be reached without passing the gate")]
    #[diagnostic(
        code("rye::plan::ungated"),
        help("no tool may run before the gate has allowed it; compile the directive again")
    )]
    Ungated { node: String },
}

/// Every law that the graph breaks, in the order of the laws; an empty list is a proof.
pub fn verify(graph: &Graph) -> Vec<PlanError> {
    let mut broken = total(graph);
    broken.extend(reachable(graph));
    broken.extend(bounded(graph));
    broken.extend(gated(graph));
    broken
}

/// Every outcome of every node has one edge, no edge has another name, and each leads to a node of the graph.
fn total(graph: &Graph) -> Vec<PlanError> {
    let mut broken = Vec::new();
    for required in [Node::Start, Node::Finish] {
        if !graph.has(required) {
            broken.push(not_total(required, "the graph does not hold it"));
        }
    }
    for (node, edges) in &graph.0 {
        let possible: BTreeSet<Outcome> = outcomes(*node).iter().copied().collect();
        for outcome in &possible {
            match edges.get(outcome) {
                None => broken.push(not_total(*node, &format!("nothing follows `{outcome}`"))),
                Some(next) if !graph.has(*next) => {
                    broken.push(not_total(*node, &format!("`{outcome}` leads to `{next}`, which is not there")));
                }
                Some(_) => {}
            }
        }
        for outcome in edges.keys().filter(|o| !possible.contains(o)) {
            broken.push(not_total(*node, &format!("it can never come to `{outcome}`")));
        }
    }
    broken
}

fn not_total(node: Node, problem: &str) -> PlanError {
    PlanError::NotTotal { node: node.to_string(), problem: problem.to_owned() }
}

/// Every node can be reached from the start, and can reach the finish.
fn reachable(graph: &Graph) -> Vec<PlanError> {
    let whole = digraph(graph, |_, _| true);
    let from_start = visited(&whole, Node::Start);
    let mut reversed = DiGraphMap::new();
    for node in whole.nodes() {
        reversed.add_node(node);
    }
    for (from, to, ()) in whole.all_edges() {
        reversed.add_edge(to, from, ());
    }
    let to_finish = visited(&reversed, Node::Finish);
    let mut broken = Vec::new();
    for node in graph.0.keys() {
        let problem = match (from_start.contains(node), to_finish.contains(node)) {
            (true, true) => continue,
            (false, _) => "cannot be reached from the start",
            (true, false) => "never leads to the finish",
        };
        broken.push(PlanError::Unreachable { node: node.to_string(), problem: problem.to_owned() });
    }
    broken
}

fn visited(graph: &DiGraphMap<Node, ()>, from: Node) -> BTreeSet<Node> {
    if !graph.contains_node(from) {
        return BTreeSet::new();
    }
    let mut seen = BTreeSet::new();
    let mut walk = Dfs::new(graph, from);
    while let Some(node) = walk.next(graph) {
        seen.insert(node);
    }
    seen
}

/// Every cycle passes the limits or uses up something finite, and every cycle uses up something at all.
fn bounded(graph: &Graph) -> Vec<PlanError> {
    let unlimited = digraph(graph, |node, outcome| {
        node != Node::Limits && !matches!(consumed(node, outcome), Some(Consumed::Call | Consumed::Message))
    });
    let idle = digraph(graph, |node, outcome| consumed(node, outcome).is_none());
    let mut broken = cycles(&unlimited, "the cycle passes no limit");
    for cycle in cycles(&idle, "one round uses up nothing") {
        let told = broken.iter().any(|b| match (b, &cycle) {
            (PlanError::Unbounded { nodes: a, .. }, PlanError::Unbounded { nodes: b, .. }) => a == b,
            _ => false,
        });
        if !told {
            broken.push(cycle);
        }
    }
    broken
}

/// What taking an edge uses up, so that it cannot be taken for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consumed {
    /// One attempt at a model call: money, tokens and duration, which the limits bound.
    Attempt,
    /// One call of a reply; a reply is finite.
    Call,
    /// One message of the inbox, which comes from outside.
    Message,
    /// Room below the parent's limit, or the answer of a person. A raise that lifts nothing is no `raise`.
    Limit,
}

fn consumed(node: Node, outcome: Outcome) -> Option<Consumed> {
    match (node, outcome) {
        // Not affordable means that nothing was sent.
        (Node::Model, Outcome::Full) => None,
        (Node::Model, _) => Some(Consumed::Attempt),
        (Node::Guard, Outcome::More) => Some(Consumed::Call),
        (Node::Hooks(HookPoint::Input), Outcome::Handled) => Some(Consumed::Message),
        (Node::Hooks(HookPoint::Limit), Outcome::Raise) | (Node::Ask(Asked::Limit), Outcome::Approved) => {
            Some(Consumed::Limit)
        }
        _ => None,
    }
}

fn cycles(graph: &DiGraphMap<Node, ()>, problem: &str) -> Vec<PlanError> {
    let mut found: Vec<Vec<Node>> = kosaraju_scc(graph)
        .into_iter()
        .filter(|part| part.len() > 1 || part.first().is_some_and(|n| graph.contains_edge(*n, *n)))
        .map(|mut part| {
            part.sort_unstable();
            part
        })
        .collect();
    found.sort_unstable();
    let names = |part: Vec<Node>| part.iter().map(ToString::to_string).collect();
    found.into_iter().map(|part| PlanError::Unbounded { nodes: names(part), problem: problem.to_owned() }).collect()
}

/// The gate dominates the tools: no path from the start reaches them around it.
fn gated(graph: &Graph) -> Vec<PlanError> {
    let whole = digraph(graph, |_, _| true);
    if !whole.contains_node(Node::Start) || !whole.contains_node(Node::Tools) {
        return Vec::new();
    }
    let tree = dominators::simple_fast(&whole, Node::Start);
    // Tools that cannot be reached at all break another law, not this one.
    let Some(mut over) = tree.dominators(Node::Tools) else { return Vec::new() };
    if over.any(|node| node == Node::Gate) && per_pass(graph) {
        return Vec::new();
    }
    vec![PlanError::Ungated { node: Node::Tools.to_string() }]
}

/// Passing the gate once is not enough: what left the tools must meet the gate again before it comes back to them.
fn per_pass(graph: &Graph) -> bool {
    let around = digraph(graph, |node, _| node != Node::Gate);
    let mut seen = BTreeSet::new();
    for next in around.neighbors_directed(Node::Tools, Direction::Outgoing) {
        seen.append(&mut visited(&around, next));
    }
    !seen.contains(&Node::Tools)
}

/// The edges that `keep` keeps, without their names; all nodes stay.
fn digraph(graph: &Graph, keep: impl Fn(Node, Outcome) -> bool) -> DiGraphMap<Node, ()> {
    let mut all = DiGraphMap::new();
    for node in graph.0.keys() {
        all.add_node(*node);
    }
    for (node, edges) in &graph.0 {
        for (outcome, next) in edges {
            if keep(*node, *outcome) {
                all.add_edge(*node, *next, ());
            }
        }
    }
    all
}

fn list(nodes: &[String]) -> String {
    nodes.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
