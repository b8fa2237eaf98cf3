//! The state of a chat.

use std::collections::VecDeque;

use super::QueuedMessage;
use crate::thread::Cost;

/// The state of a chat.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatState {
    /// Prompts of the session so far.
    pub prompts: u64,
    /// The current prompt; `None` while the thread is idle.
    pub current: Option<CurrentPrompt>,
    /// Prompts that wait.
    pub queue: VecDeque<QueuedMessage>,
    /// Messages that waited when their process ended. A chat sends them only if the user submits them again.
    pub held: Vec<String>,
    /// The user has interrupted the current prompt.
    pub is_interrupted: bool,
    /// The session closes at the next idle step.
    pub is_closing: bool,
}

/// The current prompt of a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CurrentPrompt {
    pub number: u64,
    /// The cost of the thread when the prompt started.
    pub cost_before: Cost,
    /// Seconds that the thread had used when the prompt started.
    pub seconds_before: u64,
    /// The message is part of the conversation.
    pub is_delivered: bool,
}
