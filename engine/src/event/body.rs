//! The fields of the events. Everything here is read back years later: a field is only ever added, with a default.

use std::collections::BTreeMap;
use std::sync::Arc;

use rye_compiler::hook::HookPoint;
use rye_compiler::plan::{Asked, Grant, Node, PlanLimits};
use rye_compiler::primary::Primary;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::image::Image;
use crate::message::{Block, Message, ToolCall};
use crate::provider::{CallError, StopReason, Usage};
use crate::thread::{Cost, RunError, Status};

/// The thread begins. What the engine knows of it and no argument can change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    pub thread_id: String,
    pub directive: String,
    pub origin: Origin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentLink>,
    /// The root of the tree: the thread itself unless it has a parent.
    pub root: String,
    #[serde(default)]
    pub inputs: Map<String, Value>,
    /// Effective: the plan's, at most the parent's, depth one less.
    pub limits: PlanLimits,
    /// The parent's: no raise goes above them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<PlanLimits>,
    /// Sets that must all allow an action: the thread's own first, then its parent's, up the spawn chain.
    pub grants: Vec<Vec<Grant>>,
    /// What jitter is drawn from, so that a replay waits as long.
    pub seed: u64,
    pub project_path: String,
    /// Somebody can be asked.
    #[serde(default)]
    pub attended: bool,
    /// What its first message shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// It is no directive that runs, but this call of the thread above, which did not wait for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Box<ToolCall>>,
}

impl Opened {
    /// The tool that runs, where it is no directive.
    pub fn tool(&self) -> Option<&str> {
        self.call.as_ref()?.item_id()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentLink {
    pub thread_id: String,
    /// The parent's n-th child, from 1: with the parent's id the key that makes a repeated spawn the same thread.
    pub spawn: u64,
}

/// Why a thread exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    Run,
    Child,
    Resume,
    Handoff,
    Fork,
}

/// The plan this thread keeps through recovery: an object of this hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanBound {
    pub plan_id: String,
    /// The observing hook points that a live hook of the plan stands at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observes: Vec<HookPoint>,
}

/// The thread goes on from a place in another one; a reference, not a copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Continues {
    pub thread: String,
    /// The last event of the other thread that counts here, and its chain hash.
    pub at_seq: u64,
    pub at_h: String,
    /// What the user said to make it go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The text of the provider's system field, and the ids of its layers in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemPrompt {
    pub text: Arc<str>,
    pub layers: Vec<String>,
}

/// Who contributed to the first user message, before and after the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextInjected {
    pub before: Vec<String>,
    pub after: Vec<String>,
}

/// A message enters the conversation from outside the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CognitionIn {
    pub source: Source,
    pub message: Message,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The prompt of a fresh thread.
    Prompt,
    /// The first message of a continuation or resume.
    Continuation,
    Steer,
    FollowUp,
    Nudge,
    /// A hook's `message`.
    Hook,
}

/// A model call is about to be reserved and made. Attempts count from 0 within a turn, turns from 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptIntended {
    pub turn: u64,
    pub attempt: u32,
    pub model: String,
    /// Tokens.
    pub input_estimate: u64,
    pub max_output: u64,
    /// Nano-dollars.
    pub worst_case: u64,
    /// It asks for a summary of the conversation, and is no turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compacts: bool,
}

/// The ledger holds the worst case of this attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    pub turn: u64,
    pub attempt: u32,
    pub amount: u64,
}

/// The model's reply, whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CognitionOut {
    pub turn: u64,
    pub attempt: u32,
    pub content: Vec<Block>,
    pub usage: Usage,
    pub stop: StopReason,
    pub model: Option<String>,
}

/// The attempt came to nothing. Its text is not kept; what it cost is in `settled`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptFailed {
    pub turn: u64,
    pub attempt: u32,
    pub error: CallError,
    pub classification: Classification,
    /// When another attempt follows, how long from now; `None` = no further attempt by the table.
    pub retry_delay_ms: Option<u64>,
    /// The model that takes over from here on, as `provider/id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classification {
    pub name: String,
    pub category: String,
    pub retryable: bool,
}

/// What an attempt cost in the end; the ledger books it with the next commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    pub turn: u64,
    pub attempt: u32,
    /// Nano-dollars.
    pub amount: u64,
    pub usage: Usage,
    /// The call was cut off before its final usage was known: a bound or an estimate is booked.
    pub unknown_outcome: bool,
}

/// The hooks of a point were considered: every verdict with its operands, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HookPointRun {
    pub point: HookPoint,
    /// The call id where the point is about one call; the event's number for an observing point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub considered: Vec<Considered>,
    pub answer: HookAnswer,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Considered {
    pub hook: String,
    pub verdict: HookVerdict,
    /// The facts its condition read, by path.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub operands: Map<String, Value>,
    /// Why it failed or was passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookVerdict {
    Fired,
    False,
    /// An earlier hook had answered.
    Passed,
    Failed,
}

/// What a point's hooks came to, in one value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum HookAnswer {
    /// Nothing changes.
    #[default]
    None,
    /// Collecting points: which layers are in, and the texts of execute hooks by hook id.
    Collected {
        fired: Vec<String>,
        texts: BTreeMap<String, String>,
    },
    /// The user's text became this.
    Transformed {
        text: String,
    },
    Handled,
    /// For this prompt: messages to add, and another system prompt.
    Prepared {
        messages: Vec<Message>,
        system: Option<String>,
    },
    /// For this call: what is done to the copy of the messages, in order.
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
    },
    Escalate,
    /// In the limit's own unit; nano-dollars for spend.
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

/// One step of a `context` hook on the messages of one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case")]
pub enum ContextOperation {
    Drop { kinds: Vec<String>, n: Option<u64> },
    KeepLast { n: u64 },
    InjectBefore { content: String },
    InjectAfter { content: String },
    Replace { messages: Vec<Message> },
}

/// A call is about to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolStarted {
    pub turn: u64,
    /// Place among the calls of the reply, from 0.
    pub index: usize,
    /// One past the last call of its group: the calls that run together.
    pub group_end: usize,
    pub call_id: String,
    pub name: String,
    /// What was checked: `rye.execute.tool.rye.bash.bash`.
    pub capability: String,
    /// Whether it may run again when its outcome is lost.
    pub idempotent: bool,
}

/// The answer to a call, as the model gets it.
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
    /// Of the whole result, before the guard.
    pub bytes: u64,
    /// Where the whole result lies, when the guard shortened it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    pub duration_ms: u64,
}

/// How a call came by its result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ResultKind {
    /// It ran.
    Ran,
    /// No grant allows it.
    Denied { capability: String },
    /// A hook blocked it.
    Blocked,
    /// Its arguments or its name mean nothing.
    Refused,
    /// A user message or a cancellation came first.
    Skipped,
    /// It had started and its outcome is unknown.
    Interrupted,
    /// `rye_directive_return`, accepted.
    Returned { outputs: Map<String, Value>, error: Option<String> },
    /// `rye_directive_return` without what the directive promises.
    Incomplete { missing: Vec<String> },
}

/// A child thread is about to be made.
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
    /// Its caller does not wait for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
    /// It is a tool that `directive` names, and `inputs` are its parameters.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tool: bool,
}

impl ChildIntended {
    /// The call that the child makes, where it is a tool: that of its parent, which it does not wait for.
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
    /// What was reserved for it, nano-dollars.
    pub spend: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildEnded {
    pub spawn: u64,
    pub thread_id: String,
    pub status: Status,
    pub cost: Cost,
}

/// A message from outside the thread was taken, once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mail {
    pub id: String,
    pub letter: Letter,
}

/// What can be written to a thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Letter {
    /// Finish the step and stop.
    Cancel,
    /// Stop now.
    Kill,
    /// Before anything else is done.
    Steer { text: String },
    /// When the model would stop.
    FollowUp { text: String },
    /// The answer to what the thread asks; with the number of its `approval_asked`, to that question and to no other.
    Approve {
        yes: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question: Option<u64>,
    },
    /// Go on in another thread, as if the context were full.
    Handoff,
    /// A higher limit, in its own unit (nano-dollars for spend).
    Raise { limit: String, value: u64 },
}

/// A limit was reached. Values as hooks see them: dollars for spend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitHit {
    /// The step that met it: the look at the limits, a model call that cannot be paid, a spawn.
    pub at: Node,
    pub limit_code: String,
    pub current_value: Value,
    pub current_max: Value,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalAsked {
    pub asked: Asked,
    pub what: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalGiven {
    pub asked: Asked,
    pub answer: Approval,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    Approved,
    Refused,
    /// Nobody is there to ask: the thread waits for an answer by mail, ended as suspended.
    Suspended,
}

/// A value of the thread's own store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateSet {
    pub key: String,
    pub value: Value,
}

/// Messages up to this event number are stood for by the summary, but for the thread's own prompt and the last `keep`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compacted {
    pub through: u64,
    pub summary: String,
    #[serde(default, skip_serializing_if = "is_none_kept")]
    pub keep: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_none_kept(keep: &usize) -> bool {
    *keep == 0
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactStored {
    pub sha256: String,
    pub bytes: u64,
    pub call_id: String,
}

/// Another process took the thread over. What lies between this and the event before it is not owned time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    pub owner: String,
    /// Bytes of a torn tail that were cut.
    pub cut_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub turn: u64,
    pub key_id: String,
    pub signature: String,
}

/// The last event of a thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    pub status: Status,
    pub result: Option<String>,
    pub outputs: Option<Map<String, Value>>,
    /// Declared and required outputs that a text-only answer left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    pub error: Option<RunError>,
    pub cost: Cost,
}

impl Ended {
    pub(super) fn reader_name(&self) -> &'static str {
        match self.status {
            Status::Completed => "thread_completed",
            Status::Cancelled | Status::Killed => "thread_cancelled",
            Status::Continued => "thread_continued",
            Status::Suspended => "thread_suspended",
            Status::Error | Status::Created | Status::Running => "thread_error",
        }
    }
}
