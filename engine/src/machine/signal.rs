//! Signals: facts from outside the machine, each with its time.

use rye_compiler::hook::HookPoint;
use serde_json::Value;

use crate::event::{
    Approval, Continues, ControlMessage, FileChanged, HookEvaluation, HookOutcome, InputExpansion, LimitHit, Opened,
    StateSet,
};
use crate::exchange::{CallError, Reply, Usage};
use crate::thread::{Cost, Status};

/// A fact and the time at which it became known, in milliseconds since 1970.
#[derive(Debug, Clone, PartialEq)]
pub struct Signal {
    pub at: i64,
    pub fact: Fact,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// No fact except the current time. Expired waits end, and pending events are written.
    Tick,
    /// The thread starts.
    Opened {
        launch: Box<Opened>,
        plan_id: String,
        continues: Option<Box<Continues>>,
    },
    /// The thread has a new owner.
    Recovered {
        owner: String,
        cut_bytes: u64,
    },
    Reserved,
    /// The ledger refused the reservation, because only `remaining` nano-dollars are left.
    NotReserved {
        remaining: u64,
    },
    ModelReplied(Box<Reply>),
    ModelFailed(Box<CallError>),
    ToolFinished(Box<ToolFinished>),
    /// A call was interrupted after its program had written output. The answer contains this output and a note that the
    /// call was interrupted.
    ToolInterrupted(Box<ToolFinished>),
    /// A reply was interrupted after a part of its text, or its usage, had arrived.
    ReplyInterrupted(Box<InterruptedReply>),
    /// The results of creating the child threads of one group of calls.
    Spawned(Vec<SpawnResult>),
    /// A child ended. `answer` is the result for a call that waited for the child.
    ChildEnded {
        spawn: u64,
        thread_id: String,
        status: Status,
        cost: Cost,
        answer: Option<Box<CallAnswer>>,
    },
    HooksRan {
        point: HookPoint,
        subject: Option<String>,
        considered: Vec<HookEvaluation>,
        /// Child threads in which the hooks ran directives. All of these threads have ended.
        children: Vec<HookChild>,
        answer: Box<HookOutcome>,
        /// Hashes of the objects that hold the whole texts of the answer, if the answer contains these texts in a
        /// shortened form.
        objects: Vec<String>,
        /// Values that hooks wrote into the thread's store.
        kept: Vec<StateSet>,
        /// The parts of a user message that come from skills and prompt templates.
        expansions: Vec<InputExpansion>,
    },
    /// A file tool is about to write a file.
    FileChanged(FileChanged),
    /// A shell command that the user ran in a chat has ended.
    ShellRan {
        id: String,
        answer: Box<CallAnswer>,
        exit_code: i32,
        duration_ms: u64,
    },
    Answered(Approval),
    /// The call that needs an approval cannot run even if it is approved. The text is the reason.
    CannotRun(String),
    Mail {
        id: String,
        message: ControlMessage,
    },
}

/// The part of an interrupted reply that had arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterruptedReply {
    pub text: String,
    /// The usage of the whole reply; `None` if the provider had not reported it.
    pub usage: Option<Usage>,
}

/// The result of one requested spawn.
#[derive(Debug, Clone, PartialEq)]
pub enum SpawnResult {
    /// The child was created. `spend` nano-dollars are reserved for the child, and the process `pid` runs it.
    Made { spawn: u64, thread_id: String, spend: u64, pid: u32 },
    /// No child was created. `reason` is the message for the model. `hit` is the limit that forbade the spawn; `None`
    /// if there was another reason.
    Refused { spawn: u64, reason: String, hit: Option<LimitHit> },
}

/// A child thread that ran a directive for a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookChild {
    pub spawn: u64,
    pub thread_id: String,
    /// Nano-dollars reserved for the child.
    pub spend: u64,
    pub status: Status,
    pub cost: Cost,
}

/// The answer to a tool call of the reply. The guard of tool results has already bounded the size of the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolFinished {
    pub index: usize,
    pub answer: CallAnswer,
    pub duration_ms: u64,
}

/// The answer to a call as the model receives it.
#[derive(Debug, Clone, PartialEq)]
pub struct CallAnswer {
    pub content: String,
    pub is_error: bool,
    pub details: Value,
    /// Size of the whole answer in bytes, before the guard shortened it.
    pub bytes: u64,
    /// The id of the object that holds the whole answer, if the guard shortened the answer.
    pub object: Option<String>,
    /// True if the call did not run.
    pub was_refused: bool,
}

impl CallAnswer {
    /// Returns an answer of plain text.
    pub fn text(content: impl Into<String>, is_error: bool) -> Self {
        let content = content.into();
        let bytes = content.len() as u64;
        Self { content, is_error, details: Value::Null, bytes, object: None, was_refused: false }
    }
}
