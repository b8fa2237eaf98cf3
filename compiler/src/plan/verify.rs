//! Checks the four invariants of a plan's graph (decision 0002), which `Graph` defines: total, reachable, bounded and
//! gated.
//!
//! The check reads only the finished graph and shares no code with its construction. The check therefore finds a
//! mistake in `build`, and also rejects a plan that was edited by hand or stored by another version. Decision 0002
//! explains why cycles end.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use petgraph::algo::{dominators, kosaraju_scc};
use petgraph::graphmap::DiGraphMap;
use petgraph::visit::{Dfs, Reversed};

use super::graph::{ApprovalOrigin, Graph, Node, Outcome, outcomes_of};
use crate::diagnostics::PlanError;
use crate::hook::HookPoint;

/// Returns every violation of the four invariants of `Graph`, in the order in which `Graph` lists the invariants. An
/// empty list proves that the graph satisfies all of them.
pub fn verify_graph(graph: &Graph) -> Vec<PlanError> {
    let mut broken = check_total(graph);
    broken.extend(check_reachable(graph));
    broken.extend(check_bounded(graph));
    broken.extend(check_gated(graph));
    broken
}

/// Returns the violations of the invariant *total*: an outcome of a node without an edge, an edge with an outcome that
/// the node cannot have, or an edge to a node that does not exist.
fn check_total(graph: &Graph) -> Vec<PlanError> {
    let mut broken = Vec::new();
    for (node, edges) in &graph.0 {
        let possible: BTreeSet<Outcome> = outcomes_of(*node).iter().copied().collect();
        let mut not_total = |problem, outcome: Outcome| {
            broken.push(PlanError::NotTotal { node: node.to_string(), problem, outcome: outcome.to_string() });
        };
        for outcome in &possible {
            match edges.get(outcome) {
                None => not_total("has no edge for the outcome", *outcome),
                Some(next) if !graph.has(*next) => not_total("leads to a missing node on the outcome", *outcome),
                Some(_) => {}
            }
        }
        for outcome in edges.keys().filter(|o| !possible.contains(o)) {
            not_total("has an edge for an outcome that the node cannot have:", *outcome);
        }
    }
    broken
}

/// Checks that the start and the finish exist, and that every node lies on a path between them.
fn check_reachable(graph: &Graph) -> Vec<PlanError> {
    let whole = digraph(graph, |_, _| true);
    let from_start = reachable_nodes(&whole, Node::Start);
    let mut to_finish = BTreeSet::new();
    if whole.contains_node(Node::Finish) {
        let reversed = Reversed(&whole);
        let mut walk = Dfs::new(reversed, Node::Finish);
        while let Some(node) = walk.next(reversed) {
            to_finish.insert(node);
        }
    }
    let every: BTreeSet<Node> = graph.0.keys().copied().chain([Node::Start, Node::Finish]).collect();
    let mut broken = Vec::new();
    for node in every {
        let lost = match (from_start.contains(&node), to_finish.contains(&node)) {
            (true, true) => continue,
            (false, _) => "be reached from the start",
            (true, false) => "reach the finish",
        };
        broken.push(PlanError::Unreachable { node: node.to_string(), lost });
    }
    broken
}

fn reachable_nodes(graph: &DiGraphMap<Node, ()>, from: Node) -> BTreeSet<Node> {
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

/// Checks that every cycle of the graph consumes a finite resource. Also checks that every cycle passes the node
/// `Limits` or consumes a call or a message.
fn check_bounded(graph: &Graph) -> Vec<PlanError> {
    let unlimited = digraph(graph, |node, outcome| {
        node != Node::Limits && !matches!(consumed_by(node, outcome), Some(Consumed::Call | Consumed::Message))
    });
    let idle = digraph(graph, |node, outcome| consumed_by(node, outcome).is_none());
    let mut found = find_cycles(&unlimited);
    let count = found.len();
    for circle in find_cycles(&idle) {
        if !found.contains(&circle) {
            found.push(circle);
        }
    }
    let why = |i: usize| if i < count { "passes no limit" } else { "consumes nothing" };
    let names = |circle: Vec<Node>| circle.iter().map(ToString::to_string).collect();
    found.into_iter().enumerate().map(|(i, c)| PlanError::Unbounded { circle: names(c), why: why(i) }).collect()
}

/// A finite resource that an edge consumes, so that a cycle with this edge cannot run forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consumed {
    /// An attempt at a model call. The limits on spend, tokens and duration bound the number of attempts.
    Attempt,
    /// A tool call of a reply. A reply has a finite number of calls.
    Call,
    /// A control message from another process or the user.
    Message,
    /// Headroom of a limit. A raise by a hook or an approved raise consumes headroom. A hook that leaves the limit
    /// unchanged does not have the outcome `raise`, so it does not take this edge.
    Limit,
}

fn consumed_by(node: Node, outcome: Outcome) -> Option<Consumed> {
    match node {
        // After the outcome `Full`, nothing was sent, so no attempt was consumed.
        Node::Model => (outcome != Outcome::Full).then_some(Consumed::Attempt),
        // A finished compaction called the model for a summary, so an attempt was consumed.
        Node::Compact => (outcome == Outcome::Finished).then_some(Consumed::Attempt),
        Node::Guard => (outcome == Outcome::More).then_some(Consumed::Call),
        Node::Idle => matches!(outcome, Outcome::Prompt | Outcome::Compact).then_some(Consumed::Message),
        Node::Ask(ApprovalOrigin::Limit) => (outcome == Outcome::Approved).then_some(Consumed::Limit),
        Node::Hooks(point) if outcome == Outcome::Handled => (point == HookPoint::Input).then_some(Consumed::Message),
        Node::Hooks(point) if outcome == Outcome::Raise => (point == HookPoint::Limit).then_some(Consumed::Limit),
        Node::Start
        | Node::Hooks(_)
        | Node::Inbox
        | Node::Limits
        | Node::Nudge
        | Node::Gate
        | Node::Ask(ApprovalOrigin::Call)
        | Node::Tools
        | Node::Return
        | Node::Context
        | Node::Handoff
        | Node::Finish => None,
    }
}

/// Returns one cycle for each strongly connected component that contains a cycle: the shortest path from the smallest
/// node of the component back to this node.
fn find_cycles(graph: &DiGraphMap<Node, ()>) -> Vec<Vec<Node>> {
    let mut found = Vec::new();
    for mut part in kosaraju_scc(graph) {
        part.sort_unstable();
        if let Some(first) = part.first()
            && let Some(circle) = shortest_path(graph, *first, *first)
        {
            found.push(circle);
        }
    }
    found.sort_unstable();
    found
}

/// Checks that every path from the start to the node `Tools` passes the gate. If so, also checks every path from
/// `Tools` back to `Tools`.
fn check_gated(graph: &Graph) -> Vec<PlanError> {
    let whole = digraph(graph, |_, _| true);
    let around = digraph(graph, |node, _| node != Node::Gate);
    let mut paths = Vec::new();
    if whole.contains_node(Node::Start) && whole.contains_node(Node::Tools) {
        let tree = dominators::simple_fast(&whole, Node::Start);
        // If `Tools` is unreachable, [`check_reachable`] reports that.
        let dominated = tree.dominators(Node::Tools).is_none_or(|mut over| over.any(|node| node == Node::Gate));
        let from = if dominated { Node::Tools } else { Node::Start };
        paths.extend(shortest_path(&around, from, Node::Tools));
    }
    let names = |path: Vec<Node>| path.iter().map(ToString::to_string).collect();
    paths.into_iter().map(|path| PlanError::Ungated { path: names(path) }).collect()
}

/// Returns a shortest path of at least one edge, including both ends; `None` if there is no path.
fn shortest_path(graph: &DiGraphMap<Node, ()>, from: Node, to: Node) -> Option<Vec<Node>> {
    let mut came: BTreeMap<Node, Node> = BTreeMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(node) = queue.pop_front() {
        for next in graph.neighbors(node) {
            if next == to {
                let mut path = vec![to, node];
                let mut at = node;
                while let Some(before) = came.get(&at).filter(|_| at != from) {
                    path.push(*before);
                    at = *before;
                }
                path.reverse();
                return Some(path);
            }
            if let Entry::Vacant(vacant) = came.entry(next) {
                vacant.insert(node);
                queue.push_back(next);
            }
        }
    }
    None
}

/// Returns the graph with only the edges that `keep` accepts, without outcomes. All nodes stay.
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

#[cfg(test)]
mod tests;
