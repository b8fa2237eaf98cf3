//! The invariants, on every graph that `build` can produce and on graphs broken by hand.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::diagnostics::Problem;
use crate::plan::graph::Edges;
use crate::plan::graph::{GraphNeeds, GraphPart, build_call_graph, build_graph};

/// The hook points that can have a node in the graph.
const POINTS: [HookPoint; 12] = [
    HookPoint::BuildSystemPrompt,
    HookPoint::ThreadStarted,
    HookPoint::ThreadContinued,
    HookPoint::Input,
    HookPoint::BeforeAgentStart,
    HookPoint::Context,
    HookPoint::ToolCall,
    HookPoint::AfterStep,
    HookPoint::Limit,
    HookPoint::Error,
    HookPoint::ContextLimitReached,
    HookPoint::AgentEnd,
];
const PARTS: [GraphPart; 5] = [GraphPart::Tools, GraphPart::Return, GraphPart::Nudge, GraphPart::Ask, GraphPart::Chat];
/// The optional parts of the graph of a run.
const RUN_PARTS: [GraphPart; 4] = [GraphPart::Tools, GraphPart::Return, GraphPart::Nudge, GraphPart::Ask];

fn full() -> Graph {
    let mut points: BTreeSet<HookPoint> = POINTS.into_iter().collect();
    points.insert(HookPoint::DirectiveReturn);
    build_graph(&GraphNeeds { points, parts: RUN_PARTS.into_iter().collect() })
}

fn rewire(graph: &mut Graph, node: Node, outcome: Outcome, to: Node) {
    graph.0.get_mut(&node).unwrap().insert(outcome, to);
}

fn codes(graph: &Graph) -> Vec<String> {
    verify_graph(graph).iter().map(|b| b.code().to_owned()).collect()
}

#[test]
fn call_graph_satisfies_every_invariant() {
    assert!(codes(&build_call_graph()).is_empty(), "{:?}", codes(&build_call_graph()));
}

#[test]
fn built_graphs_satisfy_every_invariant() {
    for mask in 0u32..1 << (POINTS.len() + PARTS.len()) {
        let chosen = |i: usize| mask & (1 << i) != 0;
        let mut needs = GraphNeeds::default();
        needs.points.extend(POINTS.iter().enumerate().filter(|(i, _)| chosen(*i)).map(|(_, p)| *p));
        needs.parts.extend(PARTS.iter().enumerate().filter(|(i, _)| chosen(POINTS.len() + i)).map(|(_, p)| *p));
        // To check all combinations would take minutes in a debug build. Every fifty-third combination still covers
        // every pair of choices.
        if mask % 53 == 0 || mask.count_ones() <= 2 {
            assert_eq!(verify_graph(&build_graph(&needs)), Vec::new(), "{needs:?}");
        }
    }
    assert_eq!(verify_graph(&full()), Vec::new());
    let points = POINTS.into_iter().chain([HookPoint::DirectiveReturn]).collect();
    let chat = build_graph(&GraphNeeds { points, parts: PARTS.into_iter().collect() });
    assert!(chat.has(Node::Idle), "{chat:?}");
    assert_eq!(verify_graph(&chat), Vec::new());
}

#[test]
fn broken_graph_of_a_chat_violates_an_invariant() {
    let chat = || build_graph(&GraphNeeds { parts: PARTS.into_iter().collect(), ..GraphNeeds::default() });
    let mut graph = chat();
    graph.0.get_mut(&Node::Idle).unwrap().remove(&Outcome::Closed);
    assert!(codes(&graph).contains(&"plan::not-total".to_owned()), "{:?}", codes(&graph));
    // The end of the session is out of reach.
    let mut graph = chat();
    rewire(&mut graph, Node::Idle, Outcome::Closed, Node::Idle);
    assert!(!codes(&graph).is_empty());
}

#[test]
fn observing_points_have_no_node() {
    let needs = GraphNeeds { points: [HookPoint::ToolResult, HookPoint::AfterComplete].into(), parts: BTreeSet::new() };
    assert_eq!(build_graph(&needs), build_graph(&GraphNeeds::default()));
}

#[test]
fn a_missing_outcome_is_not_total() {
    let mut graph = full();
    graph.0.get_mut(&Node::Limits).unwrap().remove(&Outcome::Exceeded);
    assert_eq!(codes(&graph), ["plan::not-total"]);
    assert!(verify_graph(&graph).first().unwrap().to_string().contains("`exceeded`"));
}

#[test]
fn an_edge_into_nothing_and_an_impossible_outcome_are_not_total() {
    let mut graph = build_graph(&GraphNeeds::default());
    rewire(&mut graph, Node::Context, Outcome::Full, Node::Compact);
    assert!(codes(&graph).contains(&"plan::not-total".to_owned()));
    let mut graph = full();
    rewire(&mut graph, Node::Limits, Outcome::Sent, Node::Finish);
    assert_eq!(codes(&graph), ["plan::not-total"]);
}

#[test]
fn empty_graph_reports_start_and_finish_unreachable() {
    let messages: Vec<String> = verify_graph(&Graph::default()).iter().map(ToString::to_string).collect();
    let lost = |node| format!("the node `{node}` cannot be reached from the start");
    assert_eq!(messages, [lost("start"), lost("finish")]);
}

#[test]
fn node_without_predecessors_is_unreachable() {
    let mut graph = full();
    rewire(&mut graph, Node::Hooks(HookPoint::ContextLimitReached), Outcome::Compact, Node::Handoff);
    let broken = verify_graph(&graph);
    assert_eq!(codes(&graph), ["plan::unreachable"]);
    assert!(broken.first().unwrap().to_string().contains("`compact` cannot be reached"), "{broken:?}");
}

#[test]
fn node_that_cannot_reach_the_finish_is_unreachable() {
    let mut graph = full();
    let trap: Edges = [(Outcome::Finished, Node::Handoff)].into();
    graph.0.insert(Node::Handoff, trap);
    let broken = verify_graph(&graph);
    assert!(broken.iter().any(|b| b.to_string() == "the node `handoff` cannot reach the finish"), "{broken:?}");
    assert!(codes(&graph).contains(&"plan::unbounded".to_owned()));
}

#[test]
fn a_retry_that_passes_no_limit_is_unbounded() {
    let mut graph = build_graph(&GraphNeeds::default());
    rewire(&mut graph, Node::Model, Outcome::Failed, Node::Model);
    let broken = verify_graph(&graph);
    assert_eq!(broken.first().unwrap().to_string(), "a cycle passes no limit: model → model");
    let mut graph = full();
    rewire(&mut graph, Node::Hooks(HookPoint::Error), Outcome::Retry, Node::Model);
    assert_eq!(codes(&graph), ["plan::unbounded"]);
}

#[test]
fn cycle_past_limits_that_consumes_nothing_is_unbounded() {
    let mut graph = full();
    rewire(&mut graph, Node::Hooks(HookPoint::Limit), Outcome::Retry, Node::Limits);
    let broken = verify_graph(&graph);
    assert_eq!(codes(&graph), ["plan::unbounded"]);
    assert!(broken.first().unwrap().to_string().contains("consumes nothing"), "{broken:?}");
}

#[test]
fn path_around_the_gate_is_ungated() {
    let mut graph = full();
    rewire(&mut graph, Node::Model, Outcome::Calls, Node::Tools);
    assert_eq!(codes(&graph), ["plan::ungated"]);
}

#[test]
fn a_second_call_that_skips_the_gate_is_ungated() {
    let mut graph = full();
    rewire(&mut graph, Node::Guard, Outcome::More, Node::Ask(ApprovalOrigin::Call));
    let broken = verify_graph(&graph);
    let path = "tools can be reached without passing the gate: tools → guard → ask.call → tools";
    assert_eq!(broken.iter().map(ToString::to_string).collect::<Vec<_>>(), [path]);
}

#[test]
fn names_of_nodes_and_outcomes_survive_json() {
    let graph = full();
    let json = serde_json::to_string(&graph).unwrap();
    assert_eq!(serde_json::from_str::<Graph>(&json).unwrap(), graph);
    let names: BTreeMap<String, &Node> = graph.0.keys().map(|n| (n.to_string(), n)).collect();
    assert_eq!(names.len(), graph.0.len());
    assert_eq!(Outcome::FollowUp.to_string(), "follow_up");
}
