//! What the world answers: one fact at a time, with the time it was known.

use rye_compiler::hook::HookPoint;
use serde_json::Value;

use crate::event::{Approval, Considered, Continues, HookAnswer, Letter, Opened};
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
    /// A child exists.
    Spawned {
        spawn: u64,
        thread_id: String,
        spend: u64,
    },
    /// No child was made; the reason is for the model.
    NotSpawned {
        spawn: u64,
        reason: String,
    },
    /// A child is over; `answer` is what its caller gets.
    ChildEnded {
        spawn: u64,
        thread_id: String,
        status: Status,
        cost: Cost,
        answer: Box<Answer>,
    },
    HooksRan {
        point: HookPoint,
        subject: Option<String>,
        considered: Vec<Considered>,
        answer: Box<HookAnswer>,
    },
    Answered(Approval),
    Mail {
        id: String,
        letter: Letter,
    },
    StateSet {
        key: String,
        value: Value,
    },
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
