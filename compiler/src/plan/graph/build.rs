//! Builds the graph of a directive: only the nodes it needs, with exactly one edge for every outcome.
//!
//! This module does not check the graph. `plan::verify` checks it independently.

use std::collections::{BTreeMap, BTreeSet};

use super::{ApprovalOrigin, Edges, Graph, Node, Outcome};
use crate::hook::HookPoint;

/// The features of a directive that decide which nodes its graph has.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GraphNeeds {
    /// Hook points with at least one live hook, which is a hook that a run has to evaluate.
    pub points: BTreeSet<HookPoint>,
    pub parts: BTreeSet<GraphPart>,
}

/// An optional part of the graph, with the condition for its presence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GraphPart {
    /// The palette is not empty, so the model can call tools. A graph without this part still has a gate, which answers
    /// a call that the model invents.
    Tools,
    /// The directive declares outputs, so the model can return them.
    Return,
    /// The nudge policy of the plan is not `never`, so a run can send reminders to the model.
    Nudge,
    /// A granted capability needs approval, so a call can lead to an approval request.
    Ask,
    /// The plan is a chat: the end of a prompt leads to the idle node.
    Chat,
}

impl GraphNeeds {
    pub fn has(&self, part: GraphPart) -> bool {
        self.parts.contains(&part)
    }
}

/// Builds the graph of a directive.
pub fn build_graph(needs: &GraphNeeds) -> Graph {
    let mut builder = GraphBuilder { needs, edges: BTreeMap::new() };
    builder.opening();
    builder.limits();
    builder.model();
    builder.calls();
    builder.endings();
    Graph(builder.edges)
}

/// Builds the graph of one asynchronous tool call: gate, tool, guard, finish.
pub(crate) fn build_call_graph() -> Graph {
    use Outcome as O;
    let edges: [(Node, &[(Outcome, Node)]); 6] = [
        (Node::Start, &[(O::Ready, Node::Inbox)]),
        (
            Node::Inbox,
            &[(O::Clear, Node::Gate), (O::Prompt, Node::Gate), (O::Message, Node::Gate), (O::Cancelled, Node::Finish)],
        ),
        (
            Node::Gate,
            &[(O::Allowed, Node::Tools), (O::Denied, Node::Guard), (O::Asks, Node::Guard), (O::Returns, Node::Guard)],
        ),
        (Node::Tools, &[(O::Finished, Node::Guard), (O::Terminate, Node::Finish)]),
        (Node::Guard, &[(O::More, Node::Gate), (O::Done, Node::Finish)]),
        (Node::Finish, &[]),
    ];
    Graph(edges.into_iter().map(|(node, edges)| (node, edges.iter().copied().collect())).collect())
}

struct GraphBuilder<'a> {
    needs: &'a GraphNeeds,
    edges: BTreeMap<Node, Edges>,
}

impl GraphBuilder<'_> {
    /// Returns the node that follows the last turn: the idle node in a chat, else the finish.
    fn end(&self) -> Node {
        if self.needs.has(GraphPart::Chat) { Node::Idle } else { Node::Finish }
    }

    fn add(&mut self, node: Node, edges: &[(Outcome, Node)]) {
        self.edges.insert(node, edges.iter().copied().collect());
    }

    /// Adds the node of a hook point with its edges, if the directive has hooks there that a run has to evaluate.
    fn add_hooks(&mut self, point: HookPoint, edges: &[(Outcome, Node)]) {
        if self.needs.points.contains(&point) {
            self.add(Node::Hooks(point), edges);
        }
    }

    /// Returns the node of a hook point if the directive has hooks there that a run has to evaluate, else `otherwise`.
    fn hooks_or(&self, point: HookPoint, otherwise: Node) -> Node {
        if self.needs.points.contains(&point) { Node::Hooks(point) } else { otherwise }
    }

    /// Adds the nodes between the start and the first limit check, including the nodes for user messages.
    fn opening(&mut self) {
        use Outcome as O;
        // `thread_started` hooks act only in fresh threads, and `thread_continued` hooks only in continuations. The
        // graph contains both nodes; the machine evaluates only the hooks that apply.
        let first_message = if self.needs.has(GraphPart::Chat) { Node::Idle } else { Node::Inbox };
        let continued = self.hooks_or(HookPoint::ThreadContinued, first_message);
        let started = self.hooks_or(HookPoint::ThreadStarted, continued);
        let first = self.hooks_or(HookPoint::BuildSystemPrompt, started);
        let prompt = self.hooks_or(HookPoint::BeforeAgentStart, Node::Limits);
        let message = self.hooks_or(HookPoint::Input, Node::Limits);

        self.add(Node::Start, &[(O::Ready, first)]);
        self.add_hooks(HookPoint::BuildSystemPrompt, &[(O::Pass, started)]);
        self.add_hooks(HookPoint::ThreadStarted, &[(O::Pass, continued)]);
        self.add_hooks(HookPoint::ThreadContinued, &[(O::Pass, first_message)]);
        if self.needs.has(GraphPart::Chat) {
            self.add(
                Node::Idle,
                &[
                    (O::Prompt, Node::Inbox),
                    (O::Compact, Node::Compact),
                    (O::Handoff, Node::Handoff),
                    (O::Closed, Node::Finish),
                ],
            );
        }
        self.add(
            Node::Inbox,
            &[(O::Clear, Node::Limits), (O::Prompt, prompt), (O::Message, message), (O::Cancelled, Node::Finish)],
        );
        self.add_hooks(HookPoint::Input, &[(O::Pass, Node::Limits), (O::Handled, Node::Inbox)]);
        self.add_hooks(HookPoint::BeforeAgentStart, &[(O::Pass, Node::Limits), (O::Terminate, self.end())]);
    }

    fn limits(&mut self) {
        use Outcome as O;
        let exceeded = self.hooks_or(HookPoint::Limit, self.end());
        // Every request passes the node `Limits` and then the node `Context`.
        self.add(Node::Limits, &[(O::Within, Node::Context), (O::Exceeded, exceeded)]);
        // `continue` and `retry` do not increase the limit, so the thread still ends. Only a raise or an approval
        // increases the limit.
        self.add_hooks(
            HookPoint::Limit,
            &[
                (O::Pass, self.end()),
                (O::Retry, self.end()),
                (O::Continue, self.end()),
                (O::Terminate, self.end()),
                (O::Escalate, Node::Ask(ApprovalOrigin::Limit)),
                (O::Raise, Node::Limits),
                (O::Handoff, Node::Handoff),
            ],
        );
        if self.needs.points.contains(&HookPoint::Limit) {
            self.add(
                Node::Ask(ApprovalOrigin::Limit),
                &[(O::Approved, Node::Limits), (O::Refused, self.end()), (O::Suspended, Node::Finish)],
            );
        }
    }

    fn model(&mut self) {
        use Outcome as O;
        let first_call = self.hooks_or(HookPoint::ToolCall, Node::Gate);
        let end = self.hooks_or(HookPoint::AgentEnd, self.end());
        let after_text = if self.needs.has(GraphPart::Nudge) { Node::Nudge } else { end };
        let text = self.hooks_or(HookPoint::AfterStep, after_text);
        let queued = self.hooks_or(HookPoint::AfterStep, Node::Inbox);
        let exhausted = self.hooks_or(HookPoint::Error, self.end());
        let unaffordable = self.hooks_or(HookPoint::Limit, self.end());

        self.add_hooks(HookPoint::Context, &[(O::Pass, Node::Model)]);
        self.add(
            Node::Model,
            &[
                (O::Calls, first_call),
                (O::Text, text),
                (O::Queued, queued),
                (O::Failed, Node::Limits),
                (O::Exhausted, exhausted),
                (O::Full, unaffordable),
            ],
        );
        self.add_hooks(
            HookPoint::Error,
            &[(O::Pass, self.end()), (O::Retry, Node::Limits), (O::Continue, Node::Limits), (O::Terminate, self.end())],
        );
        if self.needs.has(GraphPart::Nudge) {
            self.add(Node::Nudge, &[(O::Sent, Node::Inbox), (O::Skipped, end)]);
        }
        let returned = self.hooks_or(HookPoint::DirectiveReturn, self.end());
        let accepted = if self.needs.has(GraphPart::Return) { returned } else { self.end() };
        // The outcome tells how the turn ended: for example `Text` after a reply without calls, or `Accepted` after
        // accepted outputs.
        self.add_hooks(
            HookPoint::AfterStep,
            &[
                (O::Pass, Node::Inbox),
                (O::Text, after_text),
                (O::Queued, Node::Inbox),
                (O::Accepted, accepted),
                (O::Retry, Node::Limits),
                (O::Continue, Node::Inbox),
                (O::Terminate, self.end()),
            ],
        );
        self.add_hooks(
            HookPoint::AgentEnd,
            &[(O::Pass, self.end()), (O::FollowUp, Node::Inbox), (O::Block, Node::Limits), (O::Terminate, self.end())],
        );
    }

    /// Routes every call of a reply through the gate, even if no call can be allowed. The gate then denies the call.
    fn calls(&mut self) {
        use Outcome as O;
        let first_call = self.hooks_or(HookPoint::ToolCall, Node::Gate);
        let allowed = if self.needs.has(GraphPart::Tools) { Node::Tools } else { Node::Guard };
        let approval_node = if self.needs.has(GraphPart::Ask) && self.needs.has(GraphPart::Tools) {
            Node::Ask(ApprovalOrigin::Call)
        } else {
            Node::Guard
        };
        let returns = if self.needs.has(GraphPart::Return) { Node::Return } else { Node::Guard };
        let done = self.hooks_or(HookPoint::AfterStep, Node::Inbox);

        self.add_hooks(HookPoint::ToolCall, &[(O::Pass, Node::Gate)]);
        self.add(
            Node::Gate,
            &[(O::Allowed, allowed), (O::Denied, Node::Guard), (O::Asks, approval_node), (O::Returns, returns)],
        );
        if approval_node != Node::Guard {
            self.add(
                approval_node,
                &[(O::Approved, Node::Tools), (O::Refused, Node::Guard), (O::Suspended, Node::Finish)],
            );
        }
        if self.needs.has(GraphPart::Tools) {
            self.add(Node::Tools, &[(O::Finished, Node::Guard), (O::Terminate, self.end())]);
        }
        self.add(Node::Guard, &[(O::More, first_call), (O::Done, done)]);
        if self.needs.has(GraphPart::Return) {
            let accepted = self.hooks_or(HookPoint::DirectiveReturn, self.end());
            let accepted = self.hooks_or(HookPoint::AfterStep, accepted);
            self.add(Node::Return, &[(O::Accepted, accepted), (O::Incomplete, Node::Guard)]);
            self.add_hooks(HookPoint::DirectiveReturn, &[(O::Pass, self.end())]);
        }
    }

    fn endings(&mut self) {
        use Outcome as O;
        let full = self.hooks_or(HookPoint::ContextLimitReached, Node::Handoff);
        let model = self.hooks_or(HookPoint::Context, Node::Model);
        self.add(Node::Context, &[(O::Fits, model), (O::Full, full)]);
        self.add_hooks(
            HookPoint::ContextLimitReached,
            &[
                (O::Pass, Node::Handoff),
                (O::Handoff, Node::Handoff),
                (O::Compact, Node::Compact),
                (O::Terminate, self.end()),
            ],
        );
        if self.needs.points.contains(&HookPoint::ContextLimitReached) || self.needs.has(GraphPart::Chat) {
            self.add(Node::Compact, &[(O::Finished, Node::Limits), (O::Full, Node::Handoff)]);
        }
        self.add(Node::Handoff, &[(O::Finished, Node::Finish)]);
        self.add(Node::Finish, &[]);
    }
}
