//! What a thread has come to: the fold of its events, and of nothing else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use rye_compiler::hook::HookPoint;
use rye_compiler::plan::{Asked, Node, Outcome, Plan, PlanLimits, PlannedModel};
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
    /// Observing points that some live hook stands at.
    pub observes: BTreeSet<HookPoint>,
    pub continues: Option<Continues>,
    pub position: Position,
    pub clock: Clock,
    /// As launched, and raised since.
    pub limits: PlanLimits,
    pub cost: Cost,
    pub talk: Talk,
    /// The model call under way.
    pub attempt: Option<Attempt>,
    /// Attempts of this turn that were made, whatever came of them: the number of the next one.
    pub attempts: u32,
    /// Those of them that failed and may be tried again.
    pub failures: u32,
    /// The plan's fallback answers from here on.
    pub on_fallback: bool,
    /// Those of this turn's failures that are not the present model's.
    pub forgiven: u32,
    /// The last failure of this turn.
    pub failed: Option<Box<AttemptFailed>>,
    /// Milliseconds since 1970 before which no other attempt is made.
    pub wait_until: Option<i64>,
    /// An attempt that came to an end and whose price is not written yet.
    pub owed: Option<Owed>,
    /// What the ledger has not been told yet.
    pub unsettled: Vec<Settled>,
    pub calls: Calls,
    /// Children by spawn number, from 1.
    pub children: BTreeMap<u64, Child>,
    /// Directives that hooks have run, by spawn number.
    pub hook_children: BTreeSet<u64>,
    /// Hook points considered.
    pub hook_points: u64,
    /// Attempts of this turn that an `error` hook has asked for.
    pub hook_retries: u32,
    pub mail: Mailbox,
    /// What a person is asked and has not answered; a thread that is suspended waits with it.
    pub question: Option<Question>,
    /// The limit that stands in the way.
    pub limit: Option<LimitHit>,
    pub stop: Option<Stop>,
    pub returned: Option<Returned>,
    /// Stored results that this thread may page.
    pub objects: BTreeSet<String>,
    pub nudges: u64,
    /// Turns there were when the conversation was last summarised.
    pub compacted: Option<u64>,
    /// Points that run once a thread and have run.
    pub ran: BTreeSet<HookPoint>,
    /// Events that observing hooks have yet to see.
    pub observations: VecDeque<Observation>,
    /// The thread's own values.
    pub store: Arc<BTreeMap<String, Value>>,
    pub ended: Option<Box<Ended>>,
    /// Turns that the last checkpoint vouches for.
    pub sealed: u64,
    /// Events folded.
    pub events: u64,
}

/// Where the run stands in the plan's graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// In the middle of a step.
    At(Node),
    /// A step came to this; the graph says what follows.
    After(Node, Outcome),
}

/// Owned time: what lies between two owners does not count.
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
    /// Milliseconds of owned time at `now`; a clock that went back counts nothing.
    pub fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.before.saturating_add(self.now.saturating_sub(self.since).max(0))).unwrap_or(0)
    }
}

/// The conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Talk {
    /// `None` until the prompt was made.
    pub system: Option<Arc<str>>,
    /// Another system prompt, for the user message under way.
    pub system_now: Option<Arc<str>>,
    pub messages: Vec<Message>,
    /// Whether `messages[0]` is the thread's own first prompt, constant from then on.
    pub prompted: bool,
    /// Layers of depending hooks that are in, by hook id.
    pub fired: BTreeSet<String>,
    /// Texts of execute hooks, by hook id.
    pub texts: BTreeMap<String, String>,
    /// What `context` hooks do to the copy of the next call.
    pub operations: Vec<ContextOperation>,
    /// Tokens the provider counted for the last request and its reply, and how many messages that covers.
    pub measured: Option<Measured>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Tokens of the whole request.
    pub input: u64,
    pub output: u64,
    /// Messages that were in the request.
    pub messages: usize,
}

/// A model call that was intended and has not come to an end.
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
    /// It asks for a summary.
    pub compacts: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owed {
    pub turn: u64,
    pub attempt: u32,
    pub usage: Usage,
    /// It was the plan's fallback that was asked.
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
    /// The group under way or last done: `start..end`.
    pub start: usize,
    pub end: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CallState {
    pub call: ToolCall,
    pub phase: Phase,
    /// `tool_call` hooks have looked at it.
    pub hooked: bool,
    /// Why a `tool_call` hook blocked it.
    pub blocked: Option<String>,
    /// A person allowed it.
    pub approved: bool,
    /// The reply reached its output limit inside it: who knows what it was meant to say.
    pub cut: bool,
    pub started_at: Option<i64>,
    /// What the `tool_result` and `error` hooks have yet to see, or have seen.
    pub result: Option<CallResult>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Waiting,
    Started,
    /// A child is to be made for it: spawn number.
    Spawning(u64),
    Answered,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    /// It ran, so its failure is the tool's.
    pub ran: bool,
    pub is_error: bool,
    pub content: String,
    pub details: Value,
    pub bytes: u64,
    pub duration_ms: u64,
    /// Hook points that have looked at it.
    pub seen: BTreeSet<HookPoint>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    pub index: usize,
    pub directive: String,
    pub thread_id: Option<String>,
    /// Nano-dollars reserved.
    pub spend: u64,
    /// The call that started it did not wait for it.
    pub detached: bool,
    /// It is a tool.
    pub tool: bool,
    /// Its call was answered without it: there is no such thread.
    pub refused: bool,
    pub ended: Option<Status>,
}

/// What was written to the thread from outside.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mailbox {
    /// Ids already taken.
    pub taken: BTreeSet<String>,
    pub steering: VecDeque<String>,
    pub following: VecDeque<String>,
    pub cancelled: bool,
    pub killed: bool,
    pub handoff: bool,
}

/// A question that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The number of its event.
    pub seq: u64,
    pub asked: Asked,
    pub what: String,
}

/// Why the thread ends before its model says so.
#[derive(Debug, Clone, PartialEq)]
pub struct Stop {
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

/// An event that a hook may want to see.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    pub point: HookPoint,
    /// The event's number.
    pub seq: u64,
    pub facts: Map<String, Value>,
}

impl State {
    /// Before the first event.
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

    /// The model that is asked now.
    pub fn model<'p>(&self, plan: &'p Plan) -> &'p PlannedModel {
        plan.model.fallback.as_deref().filter(|_| self.on_fallback).unwrap_or(&plan.model)
    }

    /// The turn under way, or the next one, from 1.
    pub fn turn(&self) -> u64 {
        self.attempt.as_ref().map_or(self.cost.turns + 1, |a| a.turn)
    }

    /// The number of the next child.
    pub fn next_spawn(&self) -> u64 {
        self.children.keys().next_back().map_or(1, |n| n + 1)
    }

    /// Children there are and were, or are about to be, those of hooks included; what was refused is none.
    pub fn spawned(&self) -> u64 {
        let made = self.children.values().filter(|child| !child.refused).count();
        u64::try_from(made + self.hook_children.len()).unwrap_or(u64::MAX)
    }

    /// Nano-dollars that this thread has neither spent nor set aside for a living child.
    pub fn affordable(&self) -> u64 {
        let held: u64 = self.children.values().filter(|c| c.ended.is_none()).map(|c| c.spend).sum();
        self.limits.spend.saturating_sub(self.cost.spend).saturating_sub(held)
    }

    /// What it leaves to a thread that goes on for it. What its children hold stays with them.
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

    /// Children that no call waits for and that are not over, as far as the thread knows.
    pub fn living(&self) -> impl Iterator<Item = (u64, &Child)> {
        self.children.iter().filter(|(_, child)| child.ended.is_none()).map(|(spawn, child)| (*spawn, child))
    }

    /// Whether the last message is the model's, so that it would stop here.
    pub fn would_stop(&self) -> bool {
        matches!(self.talk.messages.last(), Some(Message::Assistant { .. }))
    }

    /// A user message that may be taken now: steering first, follow-ups only where the model would stop.
    pub fn waiting_message(&self) -> Option<(Source, &str)> {
        if let Some(text) = self.mail.steering.front() {
            return Some((Source::Steer, text));
        }
        let text = self.mail.following.front().filter(|_| self.would_stop())?;
        Some((Source::FollowUp, text))
    }

    /// The text of the last reply.
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
