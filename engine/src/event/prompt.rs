//! The events of the prompts of a chat, and the bounds of a prompt.

use rye_compiler::plan::{Grant, PlanLimits};
use serde::{Deserialize, Serialize};

use crate::thread::Cost;

/// The start of a prompt of a chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptStarted {
    /// Number of the prompt in the session, from 1.
    pub prompt: u64,
    /// The limits of the thread while the prompt runs: the amounts used before the prompt, plus the limits of the
    /// prompt.
    pub limits: PlanLimits,
    /// The grants that must allow each call of the prompt in addition to the grants of the thread; `None` if only the
    /// grants of the thread apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Vec<Grant>>,
    #[serde(default, skip_serializing_if = "ChatMode::is_ask")]
    pub mode: ChatMode,
    /// True if the message of the prompt sets a `spend` limit, which no hook or message can raise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub capped: bool,
}

/// The bounds of a prompt that its message sets. These bounds only narrow the bounds of the session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptBounds {
    /// The highest cost of the prompt, children included, in nano-dollars; `None` if the message sets no such bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spend: Option<u64>,
    /// Capability patterns: the prompt may use a capability of the session only if one of the patterns matches it.
    /// `None` permits all capabilities of the session, and an empty list permits none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<Vec<String>>,
}

impl PromptBounds {
    /// Returns true if the bounds narrow nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The mode of a chat: the calls that its prompts may make.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChatMode {
    /// Only calls whose capability has the tier `safe` in the risk table, and no call of `rye_sign`.
    ReadOnly,
    /// The calls that the plan grants. A call that needs an approval waits for the user's answer.
    #[default]
    Ask,
    /// The calls that the plan grants. A call that needs approval runs without an approval request.
    Auto,
}

impl ChatMode {
    pub const ALL: [Self; 3] = [Self::ReadOnly, Self::Ask, Self::Auto];

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Ask => "ask",
            Self::Auto => "auto",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
    pub(super) fn is_ask(&self) -> bool {
        *self == Self::Ask
    }
}

/// The end of a prompt of a chat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptEnded {
    pub prompt: u64,
    pub status: PromptStatus,
    /// The code of the limit or the error that ended the prompt; `None` if neither did.
    pub code: Option<String>,
    /// The message of the limit or the error that ended the prompt; `None` if neither did.
    pub message: Option<String>,
    /// The part of the session's cost that arose during this prompt.
    pub cost: Cost,
    /// Messages of the user that were not sent during the prompt. They are sent only if the user submits them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsent: Vec<String>,
    /// The text that the reply had streamed when the user interrupted the prompt. Further requests contain the text as
    /// a message of the model, with `INTERRUPTED_REPLY` at its end.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub partial_reply: String,
}

/// The note at the end of an interrupted reply, for the model.
pub(crate) const INTERRUPTED_REPLY: &str = "[The user interrupted this reply.]";

/// The end status of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptStatus {
    Done,
    Interrupted,
    Limit,
    Error,
}

/// An unfinished prompt of a chat. The prompt started in the continued thread and proceeds in the continuation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContinuedPrompt {
    /// Number of the prompt in the session, from 1.
    pub number: u64,
    /// The limits that are left for the rest of the prompt.
    pub limits: PlanLimits,
    /// True if the prompt has a `spend` limit of its own, which no hook or message can raise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub capped: bool,
}

/// The number and the estimated tokens of the messages that a handoff left out, and of the messages that the handoff
/// retained (`kept_…`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutMessages {
    pub messages: u64,
    pub tokens: u64,
    pub kept_messages: u64,
    pub kept_tokens: u64,
}

/// The ids of the hooks and items whose texts are in the first user message: `before` the body and `after` it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextInjected {
    pub before: Vec<String>,
    pub after: Vec<String>,
}
