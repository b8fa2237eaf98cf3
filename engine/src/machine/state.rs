//! The state of a thread: the fold of its events.

mod attempt;
mod chat;
mod conversation;
mod inherited;
mod money;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use rye_compiler::hook::HookPoint;
use rye_compiler::plan::{ApprovalOrigin, Node, Outcome, Plan, PlanLimits, PlannedModel};
use serde_json::{Map, Value};

use crate::event::{
    Approval, ApprovalAsked, AttemptFailed, ChildIntended, ChildSpawned, Continues, Ended, ImpliedRaise, LimitHit,
    MessageSource, Opened, QueuedMessage, Settled, ThreadOrigin,
};
use crate::exchange::StopReason;
use crate::image::ImageRef;
use crate::message::{Message, SharedText, ToolCall};
use crate::thread::{Cost, Status};

pub use attempt::{Attempt, MeasuredTokens, PendingSettlement, UnknownOutcome};
pub(crate) use chat::PromptProgress;
pub use chat::{ChatState, CompactionRequest, CurrentPrompt, Successor, UserCommand};
pub use conversation::Conversation;

/// The state of one thread. [`crate::machine::apply()`] is the only function that changes it.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadState {
    /// The start of the thread; `None` until the event `opened`.
    pub launch: Option<Arc<Opened>>,
    pub plan_id: String,
    /// Hook points that only observe events and at which the plan has a live hook.
    pub observes: BTreeSet<HookPoint>,
    pub continues: Option<Continues>,
    pub position: RunPosition,
    pub clock: OwnedTime,
    /// The limits at launch, with all later raises applied. In a chat, the limits of the current prompt, as totals
    /// since the start of the thread.
    pub limits: PlanLimits,
    /// The limits of the whole thread. They equal `limits` in a run. In a chat, they bound all prompts together.
    pub thread_limits: PlanLimits,
    /// The state of a chat; `None` in a run.
    pub chat: Option<ChatState>,
    /// True if an MCP client makes the calls in place of a model, so that a turn costs nothing. Recovery sets the flag
    /// to false, because a model then continues the thread.
    pub serves_client: bool,
    pub cost: Cost,
    pub conversation: Conversation,
    /// The model call in progress.
    pub attempt: Option<Attempt>,
    /// Number of attempts of this turn so far, with any outcome. Attempts are numbered from 0, so the value is also the
    /// number of the next attempt.
    pub attempts: u32,
    /// Attempts of this turn that failed in the current prompt.
    pub failures: u32,
    /// Failed attempts of this turn in earlier prompts of a chat.
    pub failures_of_earlier_prompts: u32,
    /// True once the plan's fallback model has taken over.
    pub on_fallback: bool,
    /// Part of `failures` that occurred before the fallback model took over. These failures do not count towards the
    /// maximum number of retries.
    pub failures_before_fallback: u32,
    /// The last failed attempt of this turn; `None` if no attempt failed.
    pub failed: Option<Box<AttemptFailed>>,
    /// Earliest time of the next attempt, in milliseconds since 1970; `None` if there is nothing to wait for.
    pub wait_until: Option<i64>,
    /// The settlement of an attempt that has ended, until the settlement is recorded; `None` if every ended attempt has
    /// a recorded settlement.
    pub pending_settlement: Option<PendingSettlement>,
    /// Settlements that are not in the ledger yet.
    pub unsettled: Vec<Settled>,
    pub calls: ReplyCalls,
    /// Children by spawn number, from 1.
    pub children: BTreeMap<u64, ChildState>,
    /// Spawn numbers of the children that hooks started and that have ended. `children` does not contain them.
    pub hook_children: BTreeSet<u64>,
    /// Nano-dollars of the spend limit that the account of this thread does not contain: money that children of an
    /// earlier thread have spent, or that is reserved for them (see `Continues::children`).
    pub withheld: u64,
    /// Number of evaluated hook points.
    pub hook_points: u64,
    /// Number of retries that `error` hooks requested in this turn.
    pub hook_retries: u32,
    pub mailbox: Mailbox,
    /// The open approval request. A suspended thread retains it.
    pub question: Option<OpenApprovalRequest>,
    /// The limit that was reached; `None` if none was reached.
    pub limit: Option<LimitHit>,
    pub stop: Option<EarlyEnd>,
    pub returned: Option<AcceptedReturn>,
    /// Hashes of the stored tool results and command outputs that this thread may read page by page.
    pub objects: BTreeSet<String>,
    pub nudges: u64,
    /// Number of nudges in the current prompt or run, except a nudge directly after the first turn of the thread.
    pub output_reminders: u64,
    /// Number of turns at the last compaction; `None` before the first one.
    pub compacted: Option<u64>,
    /// The stop reason of the last reply; `None` if the current prompt or run has no reply yet.
    pub stop_reason: Option<StopReason>,
    /// Number of consecutive requests to continue a cut reply or to repeat a reply without text.
    pub continued_replies: u32,
    /// The valid outputs of the last call of `rye_directive_return` that lacked a required output; `None` if there was
    /// no such call. In a chat, only calls of the current prompt count.
    pub partial_outputs: Option<Map<String, Value>>,
    /// True if the provider refused the last request because its prompt is too long.
    pub is_prompt_too_long: bool,
    /// Hook points that run once per thread and have run.
    pub hook_points_run: BTreeSet<HookPoint>,
    /// Events that wait for the hooks that observe them.
    pub observations: VecDeque<Observation>,
    /// The values of the thread's store.
    pub store: Arc<BTreeMap<String, Value>>,
    pub ended: Option<Arc<Ended>>,
    /// Number of turns at the last checkpoint.
    pub checkpoint_turn: u64,
    /// Number of folded events.
    pub events: u64,
}

/// The position of the run in the plan's graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunPosition {
    /// The step of this node has not ended.
    At(Node),
    /// The step of this node has ended with this outcome. The graph determines the next node.
    After(Node, Outcome),
}

/// The time during which a process owned the thread. The time between two owners does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnedTime {
    /// The time of the first event, in milliseconds since 1970.
    pub started_at: i64,
    /// Milliseconds of owned time before `since`.
    pub before: i64,
    pub since: i64,
    /// The time of the last event, in milliseconds since 1970.
    pub now: i64,
    /// The start of the current pause, in milliseconds since 1970; `None` if there is no pause. During a pause, the
    /// thread waits for an approval, or the session is idle. A pause does not count as owned time.
    pub paused: Option<i64>,
    /// True if the current pause is a wait for an approval.
    pub awaits_approval: bool,
    /// Milliseconds for which this thread waited for approvals. Includes the waits of awaited children for approvals.
    pub approval_wait_ms: i64,
}

impl OwnedTime {
    /// Returns the owned time up to the last event in milliseconds, without pauses (waits for an approval, and the idle
    /// time of a chat).
    pub fn elapsed_ms(&self) -> u64 {
        self.elapsed_at(self.now)
    }

    /// Returns the owned time up to `now`, in milliseconds. If the clock was set back, returns the owned time up to the
    /// last event.
    pub(crate) fn elapsed_at(&self, now: i64) -> u64 {
        let until = self.paused.unwrap_or(now.max(self.now));
        u64::try_from(self.before.saturating_add(until.saturating_sub(self.since).max(0))).unwrap_or(0)
    }

    /// Starts or ends pauses at `now` (milliseconds since 1970): a wait for an approval if `asks` is true, else a pause
    /// of an idle session if `is_idle` is true. The owned time excludes both kinds of pauses. `approval_wait_ms` counts
    /// only the waits for an approval.
    pub(crate) fn set_paused(&mut self, asks: bool, is_idle: bool, now: i64) {
        let continues = (asks || is_idle) && asks == self.awaits_approval;
        if let Some(at) = self.paused.take_if(|_| !continues) {
            let waited = now.saturating_sub(at).max(0);
            if self.awaits_approval {
                self.approval_wait_ms = self.approval_wait_ms.saturating_add(waited);
            }
            self.before = self.before.saturating_sub(waited);
        }
        if self.paused.is_none() {
            self.paused = (asks || is_idle).then_some(now);
            self.awaits_approval = asks;
        }
    }

    /// Excludes from the owned time the `ms` milliseconds during which awaited children waited for an approval.
    pub fn exclude(&mut self, ms: u64) {
        let ms = i64::try_from(ms).unwrap_or(i64::MAX);
        self.approval_wait_ms = self.approval_wait_ms.saturating_add(ms);
        self.before = self.before.saturating_sub(ms);
    }
}

/// The tool calls of the last reply.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReplyCalls {
    pub list: Vec<CallState>,
    /// Index in `list` of the first call of the current group (calls that run together). Between two groups, the index
    /// still belongs to the earlier group.
    pub start: usize,
    /// Index after the last call of the group that begins at `start`.
    pub end: usize,
    /// The longest time, in milliseconds, that an awaited child of the group waited for an approval. The children wait
    /// at the same time, so their waits are not added.
    pub approval_wait_ms: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CallState {
    pub call: ToolCall,
    pub phase: CallPhase,
    /// True if the `tool_call` hooks have run for the call.
    pub has_run_hooks: bool,
    /// The reason why a `tool_call` hook blocked the call; `None` if no hook blocked the call.
    pub blocked: Option<String>,
    /// The reason why the call cannot run, if it was found before an approver was asked; else `None`.
    pub cannot_run: Option<String>,
    /// The answer to the approval request of the call; `None` if there is no answer.
    pub answer: Option<Approval>,
    /// True if the reply reached its output limit inside the call, so that its arguments may be incomplete.
    pub cut: bool,
    pub started_at: Option<i64>,
    /// The result, with the hook points that have processed it; `None` until the call has a result.
    pub result: Option<CallResult>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPhase {
    Waiting,
    Started,
    /// A child with this spawn number is being created for the call.
    Spawning(u64),
    Answered,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    /// True if the call ran. An error of a call that ran comes from the tool.
    pub ran: bool,
    pub is_error: bool,
    pub content: String,
    pub details: Value,
    pub bytes: u64,
    pub duration_ms: u64,
    /// Hook points whose hooks have run for this result.
    pub seen: BTreeSet<HookPoint>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildState {
    /// Index of the call that started the child; `None` if an earlier thread started the child, and this thread
    /// continues that thread.
    pub index: Option<usize>,
    pub directive: String,
    pub thread_id: Option<String>,
    /// The last thread of the child's chain of handoffs; `None` until that thread has ended.
    pub last_thread_id: Option<String>,
    /// Nano-dollars that are reserved for the child.
    pub spend: u64,
    /// The number of the prompt that started the child; `None` in a run.
    pub prompt: Option<u64>,
    /// True if the call that started the child did not wait for it.
    pub detached: bool,
    /// True if the child runs a tool.
    pub tool: bool,
    /// True if the spawn was refused, so that no child thread exists.
    pub refused: bool,
    pub ended: Option<Status>,
}

impl ChildState {
    /// Returns the state of a child that is being created. `prompt` is the number of the current prompt.
    pub(in crate::machine) fn new(intended: &ChildIntended, prompt: Option<u64>) -> Self {
        Self {
            index: Some(intended.index),
            directive: intended.directive.clone(),
            thread_id: None,
            last_thread_id: None,
            spend: 0,
            prompt,
            detached: intended.detached,
            tool: intended.tool,
            refused: false,
            ended: None,
        }
    }

    /// Returns true if an earlier thread started the child.
    pub fn is_continued(&self) -> bool {
        self.index.is_none()
    }

    /// Returns the state of an asynchronous child that an earlier thread started. In a chat, the child counts as a
    /// child of an earlier prompt, so its cost belongs to no prompt of this thread.
    pub(in crate::machine) fn continued(child: &ChildSpawned, is_chat: bool) -> Self {
        Self {
            index: None,
            directive: String::new(),
            thread_id: Some(child.thread_id.clone()),
            last_thread_id: None,
            spend: child.spend,
            prompt: is_chat.then_some(0),
            detached: true,
            tool: false,
            refused: false,
            ended: None,
        }
    }
}

/// Control messages received by the thread.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mailbox {
    /// Ids of the control messages that the thread has received. A message with one of these ids is ignored.
    pub received: BTreeSet<String>,
    pub steering: VecDeque<QueuedMessage>,
    pub follow_ups: VecDeque<QueuedMessage>,
    pub cancelled: bool,
    pub killed: bool,
    pub handoff: bool,
}

/// An open approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenApprovalRequest {
    /// The number of the event that recorded the approval request.
    pub seq: u64,
    pub origin: ApprovalOrigin,
    pub what: String,
    /// The raise of the reached limit that an approval implies; `None` if an approval implies no raise.
    pub raise: Option<ImpliedRaise>,
}

impl OpenApprovalRequest {
    /// Returns the request that the event with the number `seq` opens.
    pub(super) fn new(seq: u64, ApprovalAsked { origin, what, raise }: &ApprovalAsked) -> Self {
        Self { seq, origin: *origin, what: what.clone(), raise: raise.clone() }
    }
}

/// A recorded reason to end the thread before its model ends it.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlyEnd {
    pub status: Status,
    pub code: String,
    pub message: String,
}

/// An accepted `rye_directive_return`.
#[derive(Debug, Clone, PartialEq)]
pub struct AcceptedReturn {
    pub outputs: Map<String, Value>,
    pub error: Option<String>,
}

/// An event that waits until the hooks of its hook point have run. These hooks only observe the event.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    pub point: HookPoint,
    /// The number of the observed event.
    pub seq: u64,
    pub facts: Map<String, Value>,
}

/// The limits of a state without events.
const NO_LIMITS: PlanLimits =
    PlanLimits { turns: 0, tokens: 0, spend: 0, spawns: 0, depth: 0, duration_seconds: 0, output: 0 };

impl ThreadState {
    /// Returns the state of a thread without events.
    pub fn new() -> Self {
        Self {
            launch: None,
            plan_id: String::new(),
            observes: BTreeSet::new(),
            continues: None,
            position: RunPosition::At(Node::Start),
            clock: OwnedTime::default(),
            limits: NO_LIMITS,
            thread_limits: NO_LIMITS,
            chat: None,
            serves_client: false,
            cost: Cost::default(),
            conversation: Conversation::default(),
            attempt: None,
            attempts: 0,
            failures: 0,
            failures_of_earlier_prompts: 0,
            on_fallback: false,
            failures_before_fallback: 0,
            failed: None,
            wait_until: None,
            pending_settlement: None,
            unsettled: Vec::new(),
            calls: ReplyCalls::default(),
            children: BTreeMap::new(),
            hook_children: BTreeSet::new(),
            withheld: 0,
            hook_points: 0,
            hook_retries: 0,
            mailbox: Mailbox::default(),
            question: None,
            limit: None,
            stop: None,
            returned: None,
            objects: BTreeSet::new(),
            nudges: 0,
            output_reminders: 0,
            compacted: None,
            stop_reason: None,
            continued_replies: 0,
            partial_outputs: None,
            is_prompt_too_long: false,
            hook_points_run: BTreeSet::new(),
            observations: VecDeque::new(),
            store: Arc::default(),
            ended: None,
            checkpoint_turn: 0,
            events: 0,
        }
    }

    /// Returns the current model: the plan's model or its fallback.
    pub fn model<'p>(&self, plan: &'p Plan) -> &'p PlannedModel {
        plan.model.fallback.as_deref().filter(|_| self.on_fallback).unwrap_or(&plan.model)
    }

    /// Returns the number of the current turn, from 1. Between two turns, returns the number of the next turn.
    pub fn turn(&self) -> u64 {
        self.attempt.as_ref().map_or(self.cost.turns + 1, |a| a.turn)
    }

    /// Returns the spawn number of the next child.
    pub(crate) fn next_spawn(&self) -> u64 {
        self.children.keys().next_back().map_or(1, |n| n + 1)
    }

    /// Returns the number of children so far. The number includes children that hooks started, and children that are
    /// intended but do not exist yet. Refused spawns and children of earlier threads do not count.
    pub fn spawned(&self) -> u64 {
        let made = self.children.values().filter(|child| !child.refused && !child.is_continued()).count();
        u64::try_from(made + self.hook_children.len()).unwrap_or(u64::MAX)
    }

    /// Returns the milliseconds until the limit `duration_seconds` is reached, at the time `now`. `None` while the
    /// clock is paused: during a wait for an approval, and in an idle chat.
    pub(crate) fn remaining_ms_at(&self, now: i64) -> Option<u64> {
        let limit = self.limits.duration_seconds.saturating_mul(1000);
        self.clock.paused.is_none().then(|| limit.saturating_sub(self.clock.elapsed_at(now)))
    }

    /// Returns the children that have not ended as far as the thread knows, with their spawn numbers.
    pub fn living_children(&self) -> impl Iterator<Item = (u64, &ChildState)> {
        self.children.iter().filter(|(_, child)| child.ended.is_none()).map(|(spawn, child)| (*spawn, child))
    }

    /// Returns true if the last message comes from the model, so that the run would end here.
    fn ends_with_reply(&self) -> bool {
        matches!(self.conversation.messages.last().map(|last| &**last), Some(Message::Assistant { .. }))
    }

    /// Returns the reason why the last reply is incomplete. `None` if the reply is complete, or if a tool call or a
    /// message leads to another turn anyway.
    pub(crate) fn reply_defect(&self) -> Option<ReplyDefect> {
        let stop = self.stop_reason.as_ref().filter(|_| self.ends_with_reply() && self.calls.list.is_empty())?;
        match stop {
            StopReason::Length | StopReason::ContextWindow => Some(ReplyDefect::Cut),
            StopReason::Other(_) => Some(ReplyDefect::UnknownStop),
            StopReason::ToolUse => Some(ReplyDefect::NoCall),
            StopReason::EndTurn => self.final_text().is_none().then_some(ReplyDefect::Empty),
            StopReason::Refusal => None,
        }
    }

    /// Returns the user message that requests the rest of the last reply; `None` if the reply is complete, or if
    /// another turn cannot complete it.
    fn continue_reply(&self) -> Option<&'static str> {
        let defect = self.reply_defect()?;
        let has_text = self.final_text().is_some();
        let most = match (defect, has_text) {
            (ReplyDefect::Cut, true) if self.stop_reason == Some(StopReason::Length) => MAX_CONTINUED_REPLIES,
            (ReplyDefect::Cut, true) | (ReplyDefect::UnknownStop, _) => 0,
            (ReplyDefect::Cut, false) | (ReplyDefect::Empty | ReplyDefect::NoCall, _) => 1,
        };
        let may = self.continued_replies < most && self.cost.turns < self.limits.turns;
        let request = if has_text { CONTINUE_CUT_REPLY } else { REPEAT_EMPTY_REPLY };
        may.then_some(if defect == ReplyDefect::NoCall { REPEAT_CALL } else { request })
    }

    /// Returns the message with which a thread was resumed or forked; `None` for other threads and an empty message.
    pub(crate) fn resume_message(&self) -> Option<&str> {
        let origin = self.launch.as_ref()?.origin;
        let message = self.continuation_message()?;
        (matches!(origin, ThreadOrigin::Resume | ThreadOrigin::Fork) && !message.is_empty()).then_some(message)
    }

    /// Returns the next user message: a steering message, else the message that asks for the rest of an incomplete
    /// reply, else a follow-up if the model would stop. `None` if no message waits.
    pub(crate) fn waiting_message(&self) -> Option<WaitingMessage<'_>> {
        if let Some(message) = self.mailbox.steering.front() {
            return Some(WaitingMessage::of(MessageSource::Steer, message));
        }
        if let Some(text) = self.continue_reply() {
            return Some(WaitingMessage { source: MessageSource::ContinueReply, text, images: &[] });
        }
        let message = self.mailbox.follow_ups.front().filter(|_| self.ends_with_reply())?;
        Some(WaitingMessage::of(MessageSource::FollowUp, message))
    }

    /// Returns the text of the last reply; `None` if there is no reply, or if its text is blank.
    pub(crate) fn final_text(&self) -> Option<SharedText> {
        let last = self.conversation.messages.iter().rev().find(|message| message.kind() == "assistant");
        let Some(Message::Assistant { content }) = last.map(|last| &**last) else { return None };
        Some(crate::message::text_of(content)).filter(|text| !text.trim().is_empty())
    }

    /// Returns the text of the last reply that contains text, joined with the replies that it continues; `None` if no
    /// reply contains text. Replies that an `agent_end` hook refused do not count.
    pub(crate) fn last_text(&self) -> Option<SharedText> {
        let last = self.last_reply_text();
        if self.conversation.cut_text.is_empty() {
            return last;
        }
        let mut joined = self.conversation.cut_text.clone();
        if let Some(last) = last.filter(|_| self.ends_with_reply() && self.final_text().is_some()) {
            joined.push_str(&last);
        }
        Some(joined.into())
    }

    fn last_reply_text(&self) -> Option<SharedText> {
        self.conversation.messages.iter().skip(self.conversation.denied).rev().find_map(|m| match &**m {
            Message::Assistant { content } => {
                let text = crate::message::reply_text(content);
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

/// A user message that the next turn sends.
#[derive(Debug, Clone, Copy)]
pub struct WaitingMessage<'a> {
    pub source: MessageSource,
    pub text: &'a str,
    pub images: &'a [ImageRef],
}

impl<'a> WaitingMessage<'a> {
    fn of(source: MessageSource, message: &'a QueuedMessage) -> Self {
        Self { source, text: &message.text, images: &message.images }
    }
}

/// Maximum number of consecutive requests to continue a cut reply.
const MAX_CONTINUED_REPLIES: u32 = 4;
const CONTINUE_CUT_REPLY: &str = "Your reply was cut off at its output limit. Continue exactly where it stopped: repeat nothing and add no introduction.";
const REPEAT_EMPTY_REPLY: &str = "Your reply held no text. Write your answer now.";
const REPEAT_CALL: &str =
    "Your reply ended for a tool call, but no call arrived. Repeat the call, or write your answer.";

/// The reason why the last reply is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyDefect {
    /// The output limit or the context window cut the reply.
    Cut,
    Empty,
    /// The stop reason is a tool call, but the reply contains no tool call.
    NoCall,
    /// The provider gave a stop reason that the wire does not define.
    UnknownStop,
}

impl Default for ThreadState {
    fn default() -> Self {
        Self::new()
    }
}
