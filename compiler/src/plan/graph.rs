//! The execution graph: the successor of each node by outcome. The machine reports outcomes and never names a
//! successor.

mod build;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::hook::HookPoint;
pub(crate) use build::build_call_graph;
pub use build::{GraphNeeds, GraphPart, build_graph};

/// A node of the execution graph (decision 0002).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    Start,
    /// The hooks of a hook point whose result can change the next node. Hook points at which hooks only observe have no
    /// node.
    Hooks(HookPoint),
    /// Processes control messages: cancel, steer, follow-up.
    Inbox,
    /// Waits for the next prompt of a chat.
    Idle,
    Limits,
    /// Builds a request, reserves its worst-case cost, calls the model and settles the cost, including the retries of
    /// one call.
    Model,
    Nudge,
    /// Allows or denies each call of the next group of tool calls.
    Gate,
    Ask(ApprovalOrigin),
    Tools,
    /// Truncates tool results to their limits and adds them to the conversation.
    Guard,
    /// Processes a call of `rye_directive_return`.
    Return,
    /// Checks before every request how full the context window is.
    Context,
    Compact,
    Handoff,
    /// Ends the thread: writes the export, runs the `after_complete` hooks and records the last event.
    Finish,
}

/// The origin of an approval request: a call at the gate, or a limit or error for which a hook has the action
/// `escalate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalOrigin {
    Call,
    Limit,
}

/// The result of a node, which selects the next node. The descriptions of outcomes have the form `Node: meaning`, where
/// `Node` can return the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Start: the only outcome of this node.
    Ready,
    /// Hooks: no hook returned an answer that changes the next node.
    Pass,
    Retry,
    Continue,
    Terminate,
    Escalate,
    Raise,
    Handoff,
    Compact,
    FollowUp,
    /// `agent_end` hooks: a hook refuses the final answer.
    Block,
    /// Input hooks: a hook handled the message, so the thread does not get it.
    Handled,
    /// Inbox: no message is left.
    Clear,
    /// Inbox: the first prompt of the thread was taken. Idle: the next prompt has arrived.
    Prompt,
    /// Idle: the session is closed.
    Closed,
    /// Inbox: a waiting steering or follow-up message was taken.
    Message,
    Cancelled,
    /// After the check of the limits: no limit is reached.
    Within,
    Exceeded,
    /// After the model: the reply holds tool calls.
    Calls,
    /// After the model and after `after_step` hooks: the reply contains only text.
    Text,
    /// After the model and after `after_step` hooks: the reply contains only text, and messages wait.
    Queued,
    /// After the model: the attempt failed, and another attempt is allowed.
    Failed,
    /// After the model: no attempt is left, or the failure is permanent.
    Exhausted,
    /// Model: a limit does not allow the request. Context: the context window is full. Compact: no summary was made.
    Full,
    /// Nudge: the reminder was sent.
    Sent,
    Skipped,
    /// Gate: at least one call is allowed.
    Allowed,
    /// Gate: every call of the group is answered without running a tool.
    Denied,
    /// Gate: a call needs approval first.
    Asks,
    /// Gate: the next call is `rye_directive_return`.
    Returns,
    /// Ask: the approval request was approved.
    Approved,
    Refused,
    Suspended,
    /// Tools, Compact, Handoff: the node has done its work.
    Finished,
    /// Guard: the reply contains further calls that have no result yet.
    More,
    /// Guard: every call of this reply is answered.
    Done,
    /// Return, `after_step` hooks: all outputs are valid.
    Accepted,
    Incomplete,
    /// Context: the next request fits into the context window.
    Fits,
}

pub(crate) type Edges = BTreeMap<Outcome, Node>;

/// The nodes of a plan and their edges.
///
/// INVARIANT (checked by `verify_graph`): the graph is total (a node has an edge for each of its possible outcomes),
/// reachable (every node lies on a path from the start to the finish), bounded (every cycle consumes something finite)
/// and gated (every tool call first passes the gate).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Graph(pub BTreeMap<Node, Edges>);

impl Graph {
    /// Returns the node that follows `node` after `outcome`; `None` only in a graph that `verify_graph` rejects. In a
    /// stored plan of version 0.1, the inbox has no edge for `Outcome::Prompt`, so the edge for `Outcome::Message` is
    /// used.
    pub fn next(&self, node: Node, outcome: Outcome) -> Option<Node> {
        let edges = self.0.get(&node)?;
        let next = edges.get(&outcome);
        let is_prompt = node == Node::Inbox && outcome == Outcome::Prompt;
        next.or_else(|| edges.get(&Outcome::Message).filter(|_| is_prompt)).copied()
    }

    pub fn has(&self, node: Node) -> bool {
        self.0.contains_key(&node)
    }
}

/// Lists every outcome that a node can return. A *total* graph has an edge for each. The list depends only on the node.
pub(crate) fn outcomes_of(node: Node) -> &'static [Outcome] {
    use Outcome as O;
    match node {
        Node::Start => &[O::Ready],
        Node::Hooks(point) => hook_outcomes(point),
        Node::Inbox => &[O::Clear, O::Prompt, O::Message, O::Cancelled],
        Node::Idle => &[O::Prompt, O::Compact, O::Handoff, O::Closed],
        Node::Limits => &[O::Within, O::Exceeded],
        Node::Model => &[O::Calls, O::Text, O::Queued, O::Failed, O::Exhausted, O::Full],
        Node::Nudge => &[O::Sent, O::Skipped],
        Node::Gate => &[O::Allowed, O::Denied, O::Asks, O::Returns],
        Node::Ask(_) => &[O::Approved, O::Refused, O::Suspended],
        Node::Tools => &[O::Finished, O::Terminate],
        Node::Guard => &[O::More, O::Done],
        Node::Return => &[O::Accepted, O::Incomplete],
        Node::Context => &[O::Fits, O::Full],
        Node::Compact => &[O::Finished, O::Full],
        Node::Handoff => &[O::Finished],
        Node::Finish => &[],
    }
}

fn hook_outcomes(point: HookPoint) -> &'static [Outcome] {
    use Outcome as O;
    match point {
        HookPoint::Input => &[O::Pass, O::Handled],
        HookPoint::AfterStep => &[O::Pass, O::Text, O::Queued, O::Accepted, O::Retry, O::Continue, O::Terminate],
        HookPoint::Error => &[O::Pass, O::Retry, O::Continue, O::Terminate],
        HookPoint::Limit => &[O::Pass, O::Retry, O::Continue, O::Terminate, O::Escalate, O::Raise, O::Handoff],
        HookPoint::ContextLimitReached => &[O::Pass, O::Handoff, O::Compact, O::Terminate],
        HookPoint::AgentEnd => &[O::Pass, O::FollowUp, O::Block, O::Terminate],
        HookPoint::BeforeAgentStart => &[O::Pass, O::Terminate],
        HookPoint::ResolveExtends
        | HookPoint::BuildSystemPrompt
        | HookPoint::ThreadStarted
        | HookPoint::ThreadContinued
        | HookPoint::Command
        | HookPoint::Context
        | HookPoint::ToolCall
        | HookPoint::ToolExecutionStart
        | HookPoint::ToolExecutionEnd
        | HookPoint::ToolResult
        | HookPoint::DirectiveReturn
        | HookPoint::AfterComplete
        | HookPoint::CognitionIn
        | HookPoint::CognitionOut
        | HookPoint::ToolCallResult
        | HookPoint::ThreadCompleted
        | HookPoint::ThreadError
        | HookPoint::ThreadCancelled
        | HookPoint::ThreadResumed => &[O::Pass],
    }
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&node_name(*self))
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

const NODE_NAMES: [(Node, &str); 16] = [
    (Node::Start, "start"),
    (Node::Inbox, "inbox"),
    (Node::Idle, "idle"),
    (Node::Limits, "limits"),
    (Node::Model, "model"),
    (Node::Nudge, "nudge"),
    (Node::Gate, "gate"),
    (Node::Ask(ApprovalOrigin::Call), "ask.call"),
    (Node::Ask(ApprovalOrigin::Limit), "ask.limit"),
    (Node::Tools, "tools"),
    (Node::Guard, "guard"),
    (Node::Return, "return"),
    (Node::Context, "context"),
    (Node::Compact, "compact"),
    (Node::Handoff, "handoff"),
    (Node::Finish, "finish"),
];

fn node_name(node: Node) -> String {
    if let Node::Hooks(point) = node {
        let point = serde_json::to_value(point).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
        return format!("hooks.{point}");
    }
    NODE_NAMES.iter().find(|(n, _)| *n == node).map_or("", |(_, s)| *s).to_owned()
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&node_name(*self))
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if let Some(point) = text.strip_prefix("hooks.") {
            let point = serde_json::from_value(serde_json::Value::String(point.to_owned()));
            return point.map(Node::Hooks).map_err(serde::de::Error::custom);
        }
        let known = NODE_NAMES.iter().find(|(_, s)| *s == text).map(|(n, _)| *n);
        known.ok_or_else(|| serde::de::Error::custom(format!("unknown plan node `{text}`")))
    }
}
