//! What the world answers: one fact at a time, with the time it was known.

use rye_compiler::hook::HookPoint;
use serde_json::Value;

use crate::event::{Approval, Considered, Continues, HookAnswer, Letter, LimitHit, Opened, StateSet};
use crate::provider::{CallError, Reply};
use crate::thread::{Cost, Status};

/// A fact and when it was known, in milliseconds since 1970.
#[derive(Debug, Clone, PartialEq)]
pub struct Signal {
    pub at: i64,
    pub fact: Fact,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// Nothing but the time: what was decided is written, a wait is over.
    Tick,
    /// The thread begins.
    Opened {
        launch: Box<Opened>,
        plan_id: String,
        continues: Option<Continues>,
    },
    /// The thread has a new owner.
    Recovered {
        owner: String,
        cut_bytes: u64,
    },
    Reserved,
    /// The ledger has no more than this left, in nano-dollars.
    NotReserved {
        remaining: u64,
    },
    ModelReplied(Box<Reply>),
    ModelFailed(Box<CallError>),
    ToolFinished(Box<ToolFinished>),
    /// What became of the children of a group.
    Spawned(Vec<Spawned>),
    /// A child is over; `answer` is what its caller gets, if it waited.
    ChildEnded {
        spawn: u64,
        thread_id: String,
        status: Status,
        cost: Cost,
        answer: Option<Box<Answer>>,
    },
    HooksRan {
        point: HookPoint,
        subject: Option<String>,
        considered: Vec<Considered>,
        /// Directives that the hooks ran to their end.
        children: Vec<HookChild>,
        answer: Box<HookAnswer>,
        /// What hooks wrote into the thread's store.
        kept: Vec<StateSet>,
    },
    Answered(Approval),
    Mail {
        id: String,
        letter: Letter,
    },
}

/// A spawn that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Spawned {
    /// The child exists; `spend` nano-dollars are set aside for it, and this process runs it.
    Made { spawn: u64, thread_id: String, spend: u64, pid: u32 },
    /// There is none; the reason is for the model, `hit` the limit that forbade it.
    Refused { spawn: u64, reason: String, hit: Option<LimitHit> },
}

/// A directive that a hook has run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookChild {
    pub spawn: u64,
    pub thread_id: String,
    /// Nano-dollars that were set aside for it.
    pub spend: u64,
    pub status: Status,
    pub cost: Cost,
}

/// A call of the reply has its answer, already guarded.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolFinished {
    pub index: usize,
    pub answer: Answer,
    pub duration_ms: u64,
}

/// What a call came to, as the model gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub content: String,
    pub is_error: bool,
    pub details: Value,
    /// Bytes of the whole answer.
    pub bytes: u64,
    /// Where the whole answer lies, when the guard shortened it.
    pub object: Option<String>,
}

impl Answer {
    /// A short plain text.
    pub fn text(content: impl Into<String>, is_error: bool) -> Self {
        let content = content.into();
        let bytes = content.len() as u64;
        Self { content, is_error, details: Value::Null, bytes, object: None }
    }
}
