//! The events of the prompts of a chat.

use rye_compiler::plan::PlanLimits;
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
}

/// The end of a prompt of a chat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptEnded {
    pub prompt: u64,
    pub status: PromptStatus,
    /// The code of the limit or the error.
    pub code: Option<String>,
    /// The message of the limit or the error.
    pub message: Option<String>,
    /// The cost of the prompt alone.
    pub cost: Cost,
    /// Messages of the user that were not sent during the prompt. They are sent only if the user submits them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsent: Vec<String>,
}

/// The end status of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptStatus {
    Done,
    Interrupted,
    Limit,
    Error,
}

/// A prompt of a chat that began in the continued thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContinuedPrompt {
    /// Number of the prompt in the session, from 1.
    pub number: u64,
    /// The remaining limits of the prompt.
    pub limits: PlanLimits,
}
