//! The fields of the events. Fields are only added, and every added field has a default, so that old transcripts stay
//! readable.

use std::collections::BTreeMap;
use std::sync::Arc;

use rye_compiler::hook::HookPoint;
use rye_compiler::plan::{Grant, Node, PlanLimits};
use rye_compiler::primary::Primary;
use rye_compiler::semantics::limits::describe_exceeded;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::event::{Approval, ChatMode, CommandSettings, QueuedMessage};
use crate::exchange::{CallError, CutStream, StopReason, Usage};
use crate::image::ImageRef;
use crate::message::{ContentBlock, Message, ToolCall};
use crate::thread::{Cost, Status};

/// The data with which a thread starts. The engine sets this data, and no argument can change it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    pub thread_id: String,
    pub directive: String,
    pub origin: ThreadOrigin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentLink>,
    /// Id of the root thread of the tree. A thread without a parent is its own root.
    pub root: String,
    #[serde(default)]
    pub inputs: Map<String, Value>,
    /// Effective limits: the limits of the plan, bounded by the limits of the parent. The depth is at most the parent's
    /// depth minus one.
    pub limits: PlanLimits,
    /// The parent's limits, which bound every raise of a limit; `None` for a root thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<PlanLimits>,
    /// Grant sets that must all allow an action: the thread's own first, then the sets of its ancestors.
    pub grants: Vec<Vec<Grant>>,
    /// Seed of the backoff jitter, so that a replay waits equally long.
    pub seed: u64,
    pub project_path: String,
    /// False if the approval policy allows every call without requesting an approval.
    #[serde(default)]
    pub attended: bool,
    /// Images of the first message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
    /// The single tool call that the thread runs; `None` if the thread runs a directive. The parent does not wait for
    /// the result of this call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Box<ToolCall>>,
    /// The milliseconds of the continued thread's duration that are less than a full second. They count towards the
    /// duration of this thread.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub carried_ms: u64,
    /// True if the thread completes although required outputs are missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_missing_outputs: bool,
    #[serde(default, skip_serializing_if = "CommandSettings::is_default")]
    pub settings: CommandSettings,
    /// True if a client of `rye mcp serve` makes the calls in place of a model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub serves_client: bool,
}

impl Opened {
    /// Returns the id of the tool that the thread runs; `None` if the thread runs a directive.
    pub fn tool(&self) -> Option<&str> {
        self.call.as_ref()?.item_id()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentLink {
    pub thread_id: String,
    /// Number of the child among the parent's children, from 1. This number and the parent's id identify the spawn, so
    /// that a repeated spawn returns the same thread.
    pub spawn: u64,
}

/// The way in which a thread was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadOrigin {
    Run,
    /// A session that the user writes prompts to.
    Chat,
    Child,
    Resume,
    Handoff,
    Fork,
    /// A session that continues with another plan.
    Replan,
}

/// The plan of the thread, by the hash of its object. A recovery uses the same plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanBound {
    pub plan_id: String,
    /// The hook points that only observe events, and at which the plan has at least one live hook.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observes: Vec<HookPoint>,
    /// True if the plan is the plan of a chat.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chat: bool,
}

/// A reference to the thread whose conversation this thread continues. The conversation itself is not copied.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Continues {
    pub thread: String,
    /// Number of the last event of `thread` that belongs to the continued conversation.
    pub at_seq: u64,
    /// The chain hash of the event with the number `at_seq`.
    pub at_h: String,
    /// The message with which the user continues the thread, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The unfinished prompt of a chat; `None` in a run, and if every prompt was finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<super::ContinuedPrompt>,
    /// The previous thread of the session, if it differs from `thread`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Number of prompts of the session so far.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub prompts: u64,
    /// Ids of layers that the continued conversation already contains. The continuation does not add these layers
    /// again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sent: Vec<String>,
    /// Ids of layers of the plan's first message of which the continued conversation contains an earlier text; the
    /// continuation sends these layers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resent: Vec<String>,
    /// Messages that waited in the thread that this thread continues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<QueuedMessage>,
    /// The mode of the session.
    #[serde(default, skip_serializing_if = "ChatMode::is_ask")]
    pub mode: ChatMode,
    /// The grants of the continued prompt, if that prompt narrows the grants of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_grants: Option<Vec<Grant>>,
    /// The number and the tokens of the messages that the handoff of a chat left out, because the context was full;
    /// `None` if no message was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<super::LeftOutMessages>,
    /// The asynchronous children of the previous thread that had not ended. The spend limit of this thread contains
    /// their reservations, but its account does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ChildSpawned>,
}

/// The text of the provider's system field, and the ids of its layers in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemPrompt {
    pub text: Arc<str>,
    pub layers: Vec<String>,
}

/// A message that enters the conversation and is not from the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CognitionIn {
    pub source: MessageSource,
    pub message: Message,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageSource {
    /// The first user message of a new thread.
    Prompt,
    /// The first message of a continuation or resume.
    Continuation,
    Steer,
    FollowUp,
    /// A message that was submitted for the next prompt and follows the user message of that prompt.
    NextTurn,
    Nudge,
    /// A request to continue a reply that was cut, or to repeat a reply without text.
    ContinueReply,
    /// A message that a hook sends with the action `message`.
    Hook,
}

/// The intent of a model call, recorded before money is reserved for the call. Turns are numbered from 1. The attempts
/// of a turn are numbered from 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptIntended {
    pub turn: u64,
    pub attempt: u32,
    pub model: String,
    /// Upper bound on the input tokens of the request.
    #[serde(alias = "input_estimate")]
    pub input_bound: u64,
    pub max_output: u64,
    /// Worst-case cost of the attempt, in nano-dollars.
    pub worst_case: u64,
    /// True if the attempt requests a summary of the conversation. Such an attempt does not count as a turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compacts: bool,
    /// True if the model has no price, so that the cost of the attempt is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unpriced: bool,
}

/// The reservation of an attempt's worst-case cost in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    pub turn: u64,
    pub attempt: u32,
    pub amount: u64,
}

/// The complete reply of the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CognitionOut {
    pub turn: u64,
    pub attempt: u32,
    pub content: Vec<ContentBlock>,
    pub usage: Usage,
    /// The numbers of bytes sent and received, if the provider reported no usable final usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncounted: Option<CutStream>,
    pub stop: StopReason,
    pub model: Option<String>,
    /// The parts of the provider's stream that were not read: the kinds of unknown events and content, and the names of
    /// fields in usage reports that occur repeatedly or that no decoder reads. `content` does not contain the data of
    /// these parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// The failure of an attempt. The text of the attempt is not stored. The event `settled` holds the cost of the attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptFailed {
    pub turn: u64,
    pub attempt: u32,
    pub error: CallError,
    pub classification: FailureClassification,
    /// Delay before the next attempt; `None` if no automatic retry follows (for example, because the retry table or the
    /// deadline allows none).
    pub retry_delay_ms: Option<u64>,
    /// The fallback model that takes over, as `provider/id`; `None` if no other model takes over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureClassification {
    pub name: String,
    pub category: String,
    pub retryable: bool,
}

/// The final cost of an attempt. The next registry commit of the thread books the cost in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    pub turn: u64,
    pub attempt: u32,
    /// Cost of the attempt, in nano-dollars.
    pub amount: u64,
    pub usage: Usage,
    /// True if the final usage of the call is not known, so that a bound or an estimate is booked.
    pub unknown_outcome: bool,
    /// The part of `amount` above the reservation, in nano-dollars. Greater than 0 only if the provider counted more
    /// tokens than the computed bound.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overspent: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_zero(amount: &u64) -> bool {
    *amount == 0
}

/// The evaluation of the hooks of one hook point: every verdict with its operands, and the resulting answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HookPointRun {
    pub point: HookPoint,
    /// The subject of the hooks, by hook point: the index of a call, the number of the observed event, or the id of a
    /// user message (`resume` for the message of a resumed thread). `None` if the hook point has no subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub considered: Vec<HookEvaluation>,
    pub answer: HookOutcome,
    /// Hashes of the objects that hold whole texts of the answer. The answer contains these texts only in a shortened
    /// form, because they were too long for the conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HookEvaluation {
    pub hook: String,
    pub verdict: HookVerdict,
    /// The facts that the condition read, by path.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub operands: Map<String, Value>,
    /// The error if the hook failed; else `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookVerdict {
    Fired,
    False,
    /// Skipped, because an earlier hook of the point already determined the answer.
    Passed,
    Failed,
}

/// The combined answer of the hooks of a hook point.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum HookOutcome {
    /// No hook of the hook point changes anything.
    #[default]
    None,
    /// The answer at hook points that collect layers. `fired` lists the ids of the hooks whose layers are included.
    /// `texts` maps the id of an execute hook to the text that the hook returned.
    Collected {
        fired: Vec<String>,
        texts: BTreeMap<String, String>,
    },
    /// The hooks of the event `input` replaced the text of the user's message with `text`, and its images with
    /// `images`; `None` keeps the images.
    Transformed {
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        images: Option<Vec<ImageRef>>,
    },
    /// A hook of the event `input` handled the message. The user sees `reply` in place of an answer.
    Handled {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply: Option<String>,
    },
    /// Changes for the current prompt: messages to add, and a replacement of the system prompt.
    Prepared {
        messages: Vec<Message>,
        system: Option<String>,
    },
    /// Operations on a copy of the messages, in order. The next model call sends the changed copy.
    Context {
        operations: Vec<ContextOperation>,
    },
    Block {
        reason: String,
    },
    Modify {
        content: Option<Value>,
        is_error: Option<bool>,
        details: Option<Value>,
    },
    Retry {
        delay_ms: u64,
    },
    Continue,
    Terminate {
        status: Option<Status>,
        error: Option<String>,
        /// True if the session of a chat ends too, not only its current prompt.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ends_session: bool,
    },
    Escalate,
    /// A higher value of a limit, in the unit of the limit (nano-dollars for `spend`).
    Raise {
        limit: String,
        value: u64,
    },
    Handoff,
    Compact,
    FollowUp {
        content: String,
    },
    /// A hook with `on_failure: fail` failed.
    Failed {
        hook: String,
        error: String,
    },
}

/// An operation of a `context` hook on the messages of one model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case")]
pub enum ContextOperation {
    Drop { kinds: Vec<String>, n: Option<u64> },
    KeepLast { n: u64 },
    InjectBefore { content: String },
    InjectAfter { content: String },
    Replace { messages: Vec<Message> },
}

/// The start of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolStarted {
    pub turn: u64,
    /// Index among the calls of the reply, from 0.
    pub index: usize,
    /// Index after the last call of the group. The calls of a group run together.
    pub group_end: usize,
    pub call_id: String,
    pub name: String,
    /// The authorized capability, such as `rye.execute.tool.rye.bash.bash`.
    pub capability: String,
    /// True if the call may run again after a crash that lost its outcome.
    pub idempotent: bool,
}

/// A change that a file tool is about to make to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChanged {
    pub call_id: String,
    /// Path of the file, relative to the project.
    pub path: String,
    /// Id of the object with the contents before the write; null if there was no file. For contents above 16 MiB, only
    /// the id is computed, and no object is stored.
    pub before: Option<String>,
    /// Id of the object with the contents after the write; null if the file is removed.
    pub after: Option<String>,
    /// The permission bits of the file before the write; null if there was no file.
    pub mode: Option<u32>,
}

/// The result of a call as the model receives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallResult {
    pub turn: u64,
    pub index: usize,
    pub group_end: usize,
    pub call_id: String,
    pub name: String,
    pub why: ResultKind,
    pub content: String,
    pub is_error: bool,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub details: Value,
    /// Size of the whole result in bytes, before the guard shortens it.
    pub bytes: u64,
    /// Id of the object that holds the whole result; `None` if the guard did not shorten the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    pub duration_ms: u64,
}

/// The kind of a call's result: the call ran, or the reason why it did not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ResultKind {
    /// The call ran.
    Ran,
    /// No grant allows the call.
    Denied { capability: String },
    /// The call needed an approval, and the request was refused.
    Unapproved { capability: String, answer: Approval },
    /// A hook blocked the call.
    Blocked,
    /// The name or the arguments of the call are invalid.
    Refused,
    /// The call did not start, because a user message or a cancellation arrived first.
    Skipped,
    /// The call started, and its outcome is unknown.
    Interrupted,
    /// An accepted `rye_directive_return`.
    Returned { outputs: Map<String, Value>, error: Option<String> },
    /// A `rye_directive_return` with missing or invalid outputs. `outputs` holds the valid outputs.
    Incomplete {
        missing: Vec<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        invalid: Vec<String>,
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        outputs: Map<String, Value>,
    },
}

/// The intent to create a child thread, recorded before the child exists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChildIntended {
    pub spawn: u64,
    pub turn: u64,
    pub index: usize,
    pub group_end: usize,
    pub call_id: String,
    pub directive: String,
    #[serde(default)]
    pub inputs: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub limit_overrides: Map<String, Value>,
    /// True if the caller does not wait for the child.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
    /// True if `directive` names a tool and `inputs` are its parameters.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tool: bool,
}

impl ChildIntended {
    /// Returns the tool call that the child runs; `None` if the child runs a directive.
    pub fn call(&self) -> Option<ToolCall> {
        let input = || json!({"item_type": "tool", "item_id": self.directive, "parameters": self.inputs});
        let name = Primary::Execute.tool_name().to_owned();
        self.tool.then(|| ToolCall { id: self.call_id.clone(), name, input: input() })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildSpawned {
    pub spawn: u64,
    pub thread_id: String,
    /// Nano-dollars reserved for the child.
    pub spend: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildEnded {
    pub spawn: u64,
    pub thread_id: String,
    pub status: Status,
    pub cost: Cost,
}

/// A limit that was reached. The values have the units that hooks see: dollars for `spend`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitHit {
    /// The step that reached the limit: the check of the limits, a model call that is not affordable, or a spawn.
    pub at: Node,
    pub limit_code: String,
    /// The used amount of the prompt, or of the session if the limit of the session was reached.
    pub current_value: Value,
    pub current_max: Value,
    /// The part of a chat that the limit bounds; `None` in a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<LimitScope>,
}

impl LimitHit {
    /// Describes the limit: `turns_exceeded: 10 of 10`, or `turns_exceeded: 500 of 500 of the session`.
    pub fn describe(&self) -> String {
        let is_of_session = self.scope == Some(LimitScope::Session);
        describe_exceeded(&self.limit_code, &self.current_value, &self.current_max, is_of_session)
    }
}

/// The part of a chat that a limit bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    /// The current prompt. The next prompt starts with the full limit.
    Prompt,
    Session,
}

/// A write to the key-value store of a thread, which the tool `rye/agent/threads/state` accesses. A null value removes
/// the key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateSet {
    pub key: String,
    pub value: Value,
}

/// A replacement of messages by a summary. The summary replaces the messages up to the event `through`, except for the
/// thread's own prompt and the last `keep` messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compacted {
    pub through: u64,
    pub summary: String,
    #[serde(default, skip_serializing_if = "is_zero_usize")]
    pub keep: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_zero_usize(count: &usize) -> bool {
    *count == 0
}

/// The takeover of the thread by another process. The time since the previous event does not count towards the
/// duration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    pub owner: String,
    /// Bytes of a torn tail that were removed.
    pub cut_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub turn: u64,
    pub key_id: String,
    pub signature: String,
}
