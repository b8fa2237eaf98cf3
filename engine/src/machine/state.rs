//! The state of a thread: the fold of its events, and of nothing else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use rye_compiler::hook::HookPoint;
use rye_compiler::plan::{ApprovalOrigin, Node, Outcome, Plan, PlanLimits, PlannedModel};
use serde_json::{Map, Value};

use crate::event::{AttemptFailed, ContextOperation, Continues, Ended, LimitHit, Opened, Settled, Source};
use crate::message::{Message, ToolCall};
use crate::provider::{CallError, CutStream, Usage};
use crate::thread::{Cost, Status};

/// The state of one thread. [`crate::machine::apply()`] is the only function that changes it.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// `None` until `opened`.
    pub launch: Option<Box<Opened>>,
    pub plan_id: String,
    /// Observing points with a live hook.
    pub observes: BTreeSet<HookPoint>,
    pub continues: Option<Continues>,
    pub position: Position,
    pub clock: Clock,
    /// The limits at launch, including later raises.
    pub limits: PlanLimits,
    pub cost: Cost,
    pub talk: Talk,
    /// The model call under way.
    pub attempt: Option<Attempt>,
    /// Attempts of this turn so far, with any outcome; also the number of the next attempt.
    pub attempts: u32,
    /// Attempts of this turn that failed and may be retried.
    pub failures: u32,
    /// True once the plan's fallback model has taken over.
    pub on_fallback: bool,
    /// Failures of this turn from before the fallback model took over.
    pub forgiven: u32,
    /// The last failure of this turn.
    pub failed: Option<Box<AttemptFailed>>,
    /// Earliest time of the next attempt, in milliseconds since 1970.
    pub wait_until: Option<i64>,
    /// An attempt that has ended and has no recorded settlement yet.
    pub owed: Option<Owed>,
    /// Settlements that are not in the ledger yet.
    pub unsettled: Vec<Settled>,
    pub calls: Calls,
    /// Children by spawn number, from 1.
    pub children: BTreeMap<u64, Child>,
    /// Spawn numbers of the children of hooks.
    pub hook_children: BTreeSet<u64>,
    /// Number of evaluated hook points.
    pub hook_points: u64,
    /// Retries that `error` hooks requested in this turn.
    pub hook_retries: u32,
    pub mail: Mailbox,
    /// The open approval request. A suspended thread keeps it.
    pub question: Option<OpenApprovalRequest>,
    /// The limit that was reached.
    pub limit: Option<LimitHit>,
    pub stop: Option<EarlyEnd>,
    pub returned: Option<Returned>,
    /// Stored results that this thread may page.
    pub objects: BTreeSet<String>,
    pub nudges: u64,
    /// Number of turns at the last compaction.
    pub compacted: Option<u64>,
    /// Points that run once per thread and have run.
    pub ran: BTreeSet<HookPoint>,
    /// Events that observing hooks have not seen yet.
    pub observations: VecDeque<Observation>,
    /// The values of the thread's store.
    pub store: Arc<BTreeMap<String, Value>>,
    pub ended: Option<Box<Ended>>,
    /// Turns that the last checkpoint signs.
    pub sealed: u64,
    /// Number of folded events.
    pub events: u64,
}

/// The position of the run in the plan's graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Inside a step.
    At(Node),
    /// Behind a step with this outcome; the graph determines the successor.
    After(Node, Outcome),
}

/// Owned time of a thread: the time between two owners does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Clock {
    /// The time of the first event.
    pub began: i64,
    /// Milliseconds owned before `since`.
    pub before: i64,
    pub since: i64,
    /// The time of the last event.
    pub now: i64,
}

impl Clock {
    /// Returns the owned time at `now` in milliseconds. A clock that was set back adds nothing.
    pub fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.before.saturating_add(self.now.saturating_sub(self.since).max(0))).unwrap_or(0)
    }
}

/// The conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Talk {
    /// The system prompt; `None` until it is recorded.
    pub system: Option<Arc<str>>,
    /// A replacement of the system prompt for the current user message.
    pub system_now: Option<Arc<str>>,
    pub messages: Vec<Message>,
    /// True if `messages[0]` is the thread's own first prompt, which stays constant.
    pub prompted: bool,
    /// Ids of hooks whose dependent layers are part of the prompt.
    pub fired: BTreeSet<String>,
    /// Texts of execute hooks, by hook id.
    pub texts: BTreeMap<String, String>,
    /// Operations of `context` hooks on the copy of the messages for the next call.
    pub operations: Vec<ContextOperation>,
    /// The provider's token count of the last request and its reply.
    pub measured: Option<MeasuredTokens>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasuredTokens {
    /// Tokens of the whole request.
    pub input: u64,
    pub output: u64,
    /// Number of messages in the request.
    pub messages: usize,
}

/// A model call that was intended and has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub turn: u64,
    pub number: u32,
    /// Input tokens of the request, estimated.
    pub input: u64,
    pub max_output: u64,
    /// Nano-dollars.
    pub worst_case: u64,
    pub reserved: bool,
    /// The attempt requests a summary.
    pub compacts: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owed {
    pub turn: u64,
    pub attempt: u32,
    pub usage: Usage,
    /// The attempt called the plan's fallback model.
    pub of_fallback: bool,
    /// Set when `usage` is not final, because the stream broke off.
    pub unknown: Option<UnknownOutcome>,
}

/// The bounds of an attempt whose stream broke off before the final usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownOutcome {
    pub cut: CutStream,
    /// Input tokens of the request, estimated.
    pub input: u64,
    pub max_output: u64,
    /// Nano-dollars.
    pub worst_case: u64,
}

impl Attempt {
    /// The bounds of this attempt, if the error says that its stream broke off.
    pub fn unknown_after(&self, error: &CallError) -> Option<UnknownOutcome> {
        let Self { input, max_output, worst_case, .. } = *self;
        error.cut.map(|cut| UnknownOutcome { cut, input, max_output, worst_case })
    }
}

/// The tool calls of the last reply.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Calls {
    pub list: Vec<CallState>,
    /// The current or last group: `start..end`.
    pub start: usize,
    pub end: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CallState {
    pub call: ToolCall,
    pub phase: CallPhase,
    /// The `tool_call` hooks have run for the call.
    pub hooked: bool,
    /// The reason if a `tool_call` hook blocked the call.
    pub blocked: Option<String>,
    /// The call was approved.
    pub approved: bool,
    /// The reply reached its output limit inside the call, so its arguments may be incomplete.
    pub cut: bool,
    pub started_at: Option<i64>,
    /// The result, with the hook points that have seen it.
    pub result: Option<CallResult>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPhase {
    Waiting,
    Started,
    /// A child is created for the call: its spawn number.
    Spawning(u64),
    Answered,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    /// The call ran, so that an error comes from the tool.
    pub ran: bool,
    pub is_error: bool,
    pub content: String,
    pub details: Value,
    pub bytes: u64,
    pub duration_ms: u64,
    /// Hook points that have run for the result.
    pub seen: BTreeSet<HookPoint>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    pub index: usize,
    pub directive: String,
    pub thread_id: Option<String>,
    /// Nano-dollars reserved.
    pub spend: u64,
    /// The call that started the child did not wait for it.
    pub detached: bool,
    /// The child runs a tool.
    pub tool: bool,
    /// The spawn was refused; no child thread exists.
    pub refused: bool,
    pub ended: Option<Status>,
}

/// Control messages received by the thread.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mailbox {
    /// Ids of received messages.
    pub taken: BTreeSet<String>,
    pub steering: VecDeque<String>,
    pub following: VecDeque<String>,
    pub cancelled: bool,
    pub killed: bool,
    pub handoff: bool,
}

/// An open approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenApprovalRequest {
    /// The number of its event.
    pub seq: u64,
    pub asked: ApprovalOrigin,
    pub what: String,
}

/// A reason to end the thread before its model does.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlyEnd {
    pub status: Status,
    pub code: String,
    pub message: String,
}

/// An accepted `rye_directive_return`.
#[derive(Debug, Clone, PartialEq)]
pub struct Returned {
    pub outputs: Map<String, Value>,
    pub error: Option<String>,
}

/// An event queued for observing hooks.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    pub point: HookPoint,
    /// The event's number.
    pub seq: u64,
    pub facts: Map<String, Value>,
}

impl State {
    /// Returns the state before the first event.
    pub fn new() -> Self {
        Self {
            launch: None,
            plan_id: String::new(),
            observes: BTreeSet::new(),
            continues: None,
            position: Position::At(Node::Start),
            clock: Clock::default(),
            limits: PlanLimits { turns: 0, tokens: 0, spend: 0, spawns: 0, depth: 0, duration_seconds: 0, output: 0 },
            cost: Cost::default(),
            talk: Talk::default(),
            attempt: None,
            attempts: 0,
            failures: 0,
            on_fallback: false,
            forgiven: 0,
            failed: None,
            wait_until: None,
            owed: None,
            unsettled: Vec::new(),
            calls: Calls::default(),
            children: BTreeMap::new(),
            hook_children: BTreeSet::new(),
            hook_points: 0,
            hook_retries: 0,
            mail: Mailbox::default(),
            question: None,
            limit: None,
            stop: None,
            returned: None,
            objects: BTreeSet::new(),
            nudges: 0,
            compacted: None,
            ran: BTreeSet::new(),
            observations: VecDeque::new(),
            store: Arc::default(),
            ended: None,
            sealed: 0,
            events: 0,
        }
    }

    /// Returns the current model: the plan's model or its fallback.
    pub fn model<'p>(&self, plan: &'p Plan) -> &'p PlannedModel {
        plan.model.fallback.as_deref().filter(|_| self.on_fallback).unwrap_or(&plan.model)
    }

    /// Returns the number of the current turn, or of the next one, from 1.
    pub fn turn(&self) -> u64 {
        self.attempt.as_ref().map_or(self.cost.turns + 1, |a| a.turn)
    }

    /// Returns the spawn number of the next child.
    pub fn next_spawn(&self) -> u64 {
        self.children.keys().next_back().map_or(1, |n| n + 1)
    }

    /// Returns the number of children, past and intended ones and those of hooks included. Refused spawns do not count.
    pub fn spawned(&self) -> u64 {
        let made = self.children.values().filter(|child| !child.refused).count();
        u64::try_from(made + self.hook_children.len()).unwrap_or(u64::MAX)
    }

    /// Returns the nano-dollars that are neither spent nor reserved for a living child.
    pub fn affordable(&self) -> u64 {
        let held: u64 = self.children.values().filter(|c| c.ended.is_none()).map(|c| c.spend).sum();
        self.limits.spend.saturating_sub(self.cost.spend).saturating_sub(held)
    }

    /// Returns the limits for a continuation. Reservations of living children are not included.
    pub fn left(&self) -> PlanLimits {
        let (limits, cost) = (&self.limits, &self.cost);
        PlanLimits {
            turns: limits.turns.saturating_sub(cost.turns),
            tokens: limits.tokens.saturating_sub(cost.input_tokens + cost.output_tokens),
            spend: self.affordable(),
            duration_seconds: limits.duration_seconds.saturating_sub(self.clock.elapsed_ms() / 1000),
            ..*limits
        }
    }

    /// Returns the children that have not ended, as far as the thread knows.
    pub fn living(&self) -> impl Iterator<Item = (u64, &Child)> {
        self.children.iter().filter(|(_, child)| child.ended.is_none()).map(|(spawn, child)| (*spawn, child))
    }

    /// Returns true if the last message is the model's, so that the run would stop here.
    pub fn would_stop(&self) -> bool {
        matches!(self.talk.messages.last(), Some(Message::Assistant { .. }))
    }

    /// Returns the next user message: steering first, then a follow-up if the model would stop.
    pub fn waiting_message(&self) -> Option<(Source, &str)> {
        if let Some(text) = self.mail.steering.front() {
            return Some((Source::Steer, text));
        }
        let text = self.mail.following.front().filter(|_| self.would_stop())?;
        Some((Source::FollowUp, text))
    }

    /// Returns the text of the last reply.
    pub fn last_text(&self) -> Option<String> {
        self.talk.messages.iter().rev().find_map(|m| match m {
            Message::Assistant { content } => {
                let text = crate::message::text_of(content);
                (!text.is_empty()).then_some(text)
            }
            Message::User { .. }
            | Message::ToolResult { .. }
            | Message::Custom { .. }
            | Message::Bash { .. }
            | Message::CompactionSummary { .. }
            | Message::BranchSummary { .. } => None,
        })
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}
