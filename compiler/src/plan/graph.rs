//! The execution graph: which node follows which outcome. The machine gives outcomes and never names a successor.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::hook::HookPoint;

/// A step of the run (`engine.md` 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    Start,
    /// The hooks of a point that can change where the run goes; observing points have no node.
    Hooks(HookPoint),
    /// Takes mail: cancel, steer, follow-up.
    Inbox,
    Limits,
    /// Convert, reserve, call, settle; retries of one call included.
    Model,
    Nudge,
    /// Takes the next group of tool calls and lets each through or refuses it.
    Gate,
    Ask(Asked),
    Tools,
    /// Bounds results and adds them to the conversation.
    Guard,
    /// `rye_directive_return`.
    Return,
    /// Looks at the context window.
    Context,
    Compact,
    Handoff,
    /// The end: export, `after_complete`, the last event.
    Finish,
}

/// Who asks a person: a call at the gate, or a limit or error that was escalated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    Call,
    Limit,
}

/// What a node came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Start: go.
    Ready,
    /// Hooks: no control answer.
    Pass,
    Retry,
    Continue,
    Terminate,
    Escalate,
    Raise,
    Handoff,
    Compact,
    FollowUp,
    /// Input hooks: the message goes no further.
    Handled,
    /// Inbox: nothing more to take.
    Clear,
    /// Inbox: one user message was taken.
    Message,
    Cancelled,
    /// Limits.
    Within,
    Exceeded,
    /// Model: the reply holds tool calls.
    Calls,
    /// Model: text only.
    Text,
    /// Model: text only, and mail waits.
    Queued,
    /// Model: the attempt failed and another is allowed.
    Failed,
    /// Model: no attempt is left, or the failure is permanent.
    Exhausted,
    /// Model: not affordable. Context: the window is full.
    Full,
    /// Nudge.
    Sent,
    Skipped,
    /// Gate: at least one call may run.
    Allowed,
    /// Gate: the group is answered without running anything.
    Denied,
    /// Gate: a person decides first.
    Asks,
    /// Gate: the next call is `rye_directive_return`.
    Returns,
    /// Ask.
    Approved,
    Refused,
    Suspended,
    /// Tools, Compact, Handoff.
    Finished,
    /// Guard: calls of this reply remain.
    More,
    /// Guard: every call of this reply is answered.
    Done,
    /// Return.
    Accepted,
    Incomplete,
    /// Context: room is left.
    Fits,
}

pub type Edges = BTreeMap<Outcome, Node>;

/// INVARIANT (checked by `verify`): total, reachable, bounded, gated.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Graph(pub BTreeMap<Node, Edges>);

impl Graph {
    /// Where an outcome of a node leads; `None` only in a graph that `verify` refuses.
    pub fn next(&self, node: Node, outcome: Outcome) -> Option<Node> {
        self.0.get(&node)?.get(&outcome).copied()
    }

    pub fn has(&self, node: Node) -> bool {
        self.0.contains_key(&node)
    }
}

/// Every outcome a node can give: what *total* asks for. Hooks and Model depend on nothing else.
pub fn outcomes(node: Node) -> &'static [Outcome] {
    use Outcome as O;
    match node {
        Node::Start => &[O::Ready],
        Node::Hooks(point) => hook_outcomes(point),
        Node::Inbox => &[O::Clear, O::Message, O::Cancelled],
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
        HookPoint::AfterStep => &[O::Pass, O::Retry, O::Continue, O::Terminate],
        HookPoint::Limit => &[O::Pass, O::Retry, O::Continue, O::Terminate, O::Escalate, O::Raise, O::Handoff],
        HookPoint::Error => &[O::Pass, O::Retry, O::Continue, O::Terminate],
        HookPoint::ContextLimitReached => &[O::Pass, O::Handoff, O::Compact, O::Terminate],
        HookPoint::AgentEnd => &[O::Pass, O::FollowUp],
        HookPoint::ResolveExtends
        | HookPoint::BuildSystemPrompt
        | HookPoint::ThreadStarted
        | HookPoint::ThreadContinued
        | HookPoint::BeforeAgentStart
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

/// What decides which nodes a directive gets.
#[derive(Debug, Clone, Default)]
pub struct Needs {
    /// Points with at least one live hook.
    pub points: BTreeSet<HookPoint>,
    /// The palette holds anything to call.
    pub tools: bool,
    /// Outputs are declared.
    pub outputs: bool,
    pub nudge: bool,
    /// Some granted capability asks a person first.
    pub asks: bool,
}

/// The graph of a directive: only the nodes it needs, every outcome of each with one edge.
pub fn build(needs: &Needs) -> Graph {
    use Outcome as O;
    let hooks = |point: HookPoint, otherwise: Node| {
        if needs.points.contains(&point) { Node::Hooks(point) } else { otherwise }
    };
    let mut graph: BTreeMap<Node, Edges> = BTreeMap::new();
    let mut add = |node: Node, edges: &[(Outcome, Node)]| {
        graph.insert(node, edges.iter().copied().collect());
    };

    let end = hooks(HookPoint::AgentEnd, Node::Finish);
    let after_text = if needs.nudge { Node::Nudge } else { end };
    let on_limit = hooks(HookPoint::Limit, Node::Finish);
    let on_error = hooks(HookPoint::Error, Node::Finish);
    let on_full = hooks(HookPoint::ContextLimitReached, Node::Handoff);
    let first_call = hooks(HookPoint::ToolCall, Node::Gate);
    let calls_done = hooks(HookPoint::AfterStep, Node::Context);
    let model = hooks(HookPoint::Context, Node::Model);
    // Fresh threads and continuations have hooks of their own; the machine enters the one that is its own.
    let started = hooks(HookPoint::ThreadStarted, hooks(HookPoint::ThreadContinued, Node::Inbox));
    let message = hooks(HookPoint::Input, hooks(HookPoint::BeforeAgentStart, Node::Limits));

    add(Node::Start, &[(O::Ready, hooks(HookPoint::BuildSystemPrompt, started))]);
    if needs.points.contains(&HookPoint::BuildSystemPrompt) {
        add(Node::Hooks(HookPoint::BuildSystemPrompt), &[(O::Pass, started)]);
    }
    if needs.points.contains(&HookPoint::ThreadStarted) {
        let next = hooks(HookPoint::ThreadContinued, Node::Inbox);
        add(Node::Hooks(HookPoint::ThreadStarted), &[(O::Pass, next)]);
    }
    if needs.points.contains(&HookPoint::ThreadContinued) {
        add(Node::Hooks(HookPoint::ThreadContinued), &[(O::Pass, Node::Inbox)]);
    }
    add(Node::Inbox, &[(O::Clear, Node::Limits), (O::Message, message), (O::Cancelled, Node::Finish)]);
    if needs.points.contains(&HookPoint::Input) {
        let next = hooks(HookPoint::BeforeAgentStart, Node::Limits);
        add(Node::Hooks(HookPoint::Input), &[(O::Pass, next), (O::Handled, Node::Inbox)]);
    }
    if needs.points.contains(&HookPoint::BeforeAgentStart) {
        add(Node::Hooks(HookPoint::BeforeAgentStart), &[(O::Pass, Node::Limits)]);
    }
    add(Node::Limits, &[(O::Within, model), (O::Exceeded, on_limit)]);
    if needs.points.contains(&HookPoint::Limit) {
        // A limit still binds after `continue` and `retry`: only a raise, or a person, moves it.
        add(
            Node::Hooks(HookPoint::Limit),
            &[
                (O::Pass, Node::Finish),
                (O::Retry, Node::Finish),
                (O::Continue, Node::Finish),
                (O::Terminate, Node::Finish),
                (O::Escalate, Node::Ask(Asked::Limit)),
                (O::Raise, Node::Limits),
                (O::Handoff, Node::Handoff),
            ],
        );
        add(
            Node::Ask(Asked::Limit),
            &[(O::Approved, Node::Limits), (O::Refused, Node::Finish), (O::Suspended, Node::Finish)],
        );
    }
    if needs.points.contains(&HookPoint::Context) {
        add(Node::Hooks(HookPoint::Context), &[(O::Pass, Node::Model)]);
    }
    add(
        Node::Model,
        &[
            (O::Calls, if needs.tools { first_call } else { Node::Context }),
            (O::Text, after_text),
            (O::Queued, Node::Inbox),
            (O::Failed, Node::Limits),
            (O::Exhausted, on_error),
            (O::Full, on_limit),
        ],
    );
    if needs.points.contains(&HookPoint::Error) {
        add(
            Node::Hooks(HookPoint::Error),
            &[
                (O::Pass, Node::Finish),
                (O::Retry, Node::Limits),
                (O::Continue, Node::Limits),
                (O::Terminate, Node::Finish),
            ],
        );
    }
    if needs.nudge {
        add(Node::Nudge, &[(O::Sent, Node::Inbox), (O::Skipped, end)]);
    }
    if needs.points.contains(&HookPoint::AgentEnd) {
        add(Node::Hooks(HookPoint::AgentEnd), &[(O::Pass, Node::Finish), (O::FollowUp, Node::Inbox)]);
    }
    if needs.tools {
        if needs.points.contains(&HookPoint::ToolCall) {
            add(Node::Hooks(HookPoint::ToolCall), &[(O::Pass, Node::Gate)]);
        }
        let asked = if needs.asks { Node::Ask(Asked::Call) } else { Node::Guard };
        let returned = if needs.outputs { Node::Return } else { Node::Guard };
        add(
            Node::Gate,
            &[(O::Allowed, Node::Tools), (O::Denied, Node::Guard), (O::Asks, asked), (O::Returns, returned)],
        );
        if needs.asks {
            add(
                Node::Ask(Asked::Call),
                &[(O::Approved, Node::Tools), (O::Refused, Node::Guard), (O::Suspended, Node::Finish)],
            );
        }
        add(Node::Tools, &[(O::Finished, Node::Guard), (O::Terminate, Node::Finish)]);
        add(Node::Guard, &[(O::More, first_call), (O::Done, calls_done)]);
        if needs.outputs {
            let accepted = hooks(HookPoint::DirectiveReturn, Node::Finish);
            add(Node::Return, &[(O::Accepted, accepted), (O::Incomplete, Node::Guard)]);
            if needs.points.contains(&HookPoint::DirectiveReturn) {
                add(Node::Hooks(HookPoint::DirectiveReturn), &[(O::Pass, Node::Finish)]);
            }
        }
        if needs.points.contains(&HookPoint::AfterStep) {
            add(
                Node::Hooks(HookPoint::AfterStep),
                &[
                    (O::Pass, Node::Context),
                    (O::Retry, Node::Limits),
                    (O::Continue, Node::Context),
                    (O::Terminate, Node::Finish),
                ],
            );
        }
    }
    add(Node::Context, &[(O::Fits, Node::Inbox), (O::Full, on_full)]);
    if needs.points.contains(&HookPoint::ContextLimitReached) {
        add(
            Node::Hooks(HookPoint::ContextLimitReached),
            &[
                (O::Pass, Node::Handoff),
                (O::Handoff, Node::Handoff),
                (O::Compact, Node::Compact),
                (O::Terminate, Node::Finish),
            ],
        );
        add(Node::Compact, &[(O::Finished, Node::Limits), (O::Full, Node::Handoff)]);
    }
    add(Node::Handoff, &[(O::Finished, Node::Finish)]);
    add(Node::Finish, &[]);
    Graph(graph)
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&name(*self))
    }
}

const PLAIN: [(Node, &str); 15] = [
    (Node::Start, "start"),
    (Node::Inbox, "inbox"),
    (Node::Limits, "limits"),
    (Node::Model, "model"),
    (Node::Nudge, "nudge"),
    (Node::Gate, "gate"),
    (Node::Ask(Asked::Call), "ask.call"),
    (Node::Ask(Asked::Limit), "ask.limit"),
    (Node::Tools, "tools"),
    (Node::Guard, "guard"),
    (Node::Return, "return"),
    (Node::Context, "context"),
    (Node::Compact, "compact"),
    (Node::Handoff, "handoff"),
    (Node::Finish, "finish"),
];

fn name(node: Node) -> String {
    if let Node::Hooks(point) = node {
        let point = serde_json::to_value(point).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
        return format!("hooks.{point}");
    }
    PLAIN.iter().find(|(n, _)| *n == node).map_or("", |(_, s)| *s).to_owned()
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&name(*self))
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if let Some(point) = text.strip_prefix("hooks.") {
            let point = serde_json::from_value(serde_json::Value::String(point.to_owned()));
            return point.map(Node::Hooks).map_err(serde::de::Error::custom);
        }
        let known = PLAIN.iter().find(|(_, s)| *s == text).map(|(n, _)| *n);
        known.ok_or_else(|| serde::de::Error::custom(format!("`{text}` is no node of a plan")))
    }
}
