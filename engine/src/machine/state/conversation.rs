//! The conversation in the state of a thread.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::MeasuredTokens;
use crate::event::ContextOperation;
use crate::machine::unread_parts::UnreadParts;
use crate::message::SharedMessage;

/// The conversation of a thread: its system prompt, its messages, and data about the requests that contain them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// The system prompt; `None` until it is recorded.
    pub system: Option<Arc<str>>,
    /// A replacement of the system prompt, valid until the current prompt and its follow-up messages have ended.
    pub system_now: Option<Arc<str>>,
    pub messages: Vec<SharedMessage>,
    /// True if the conversation contains the message with which the thread starts: its first prompt, or the message of
    /// a continuation. Also true for a thread that only runs one tool call and has no conversation.
    pub prompted: bool,
    /// The index in `messages` of the user message of the current prompt. Messages with the delivery `next_turn` follow
    /// this message.
    pub prompt_index: usize,
    /// The range of the unfinished prompt in `messages`: the outputs of the user's commands, the user message, and the
    /// messages with the delivery `next_turn`. In a run, the range has only the first message, or the message with
    /// which the run was resumed. `None` if a chat is idle.
    pub open_prompt: Option<Range<usize>>,
    /// True if the `input` hooks have run for the message with which the thread was resumed.
    pub resume_screened: bool,
    /// Ids of hooks that fired in this thread and whose layers are part of the prompt. The compiler could not evaluate
    /// the conditions of these hooks.
    pub fired: BTreeSet<String>,
    /// Texts that fill placeholders of the prompt, by the id of the hook whose `execute` action returned the text.
    pub texts: BTreeMap<String, String>,
    /// Operations of `context` hooks, which edit the copy of the messages for the next model call.
    pub operations: Vec<ContextOperation>,
    /// Number of messages up to the last reply that an `agent_end` hook refused. Replies among these messages are never
    /// a part of the thread's result.
    pub denied: usize,
    /// The joined text of replies that ended before they were complete. The text of the next reply continues this text.
    pub cut_text: String,
    /// The parts of the thread's replies that were not understood.
    pub unread: UnreadParts,
    /// Token counts of the last request and its reply. `None` if the provider did not count the whole call, if
    /// `context` hooks edited the request, or if a compaction has replaced messages since.
    pub measured: Option<MeasuredTokens>,
}
