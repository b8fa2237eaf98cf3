//! Control messages: requests of users and other processes to a thread.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ChatMode, Delivery, UserInput};
use crate::thread::Status;

/// Maximum length of the reason of an unreadable control message, in characters.
const MAX_REASON_CHARS: usize = 300;

/// The event for a received control message. A message that is delivered again is not recorded again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReceivedMessage {
    pub id: String,
    #[serde(alias = "letter")]
    pub message: ControlMessage,
}

/// A control message to a thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ControlMessage {
    /// Stops the thread after the current step.
    Cancel,
    /// Stops the thread at once.
    Kill,
    /// A user message that the model reads before its next turn. Tool calls that have not passed the gate are skipped.
    Steer { text: String },
    /// A user message that takes effect when the model would otherwise stop.
    FollowUp { text: String },
    /// The answer to an approval request. If the number of an `approval_asked` event is given, the answer applies to
    /// that request only.
    Approve {
        yes: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question: Option<u64>,
        /// A message of the user that the model reads with the result of the call, before its next turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// True if an approval at a reached limit also raises the limit to the value that the request states.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        raises: bool,
    },
    /// Hands the thread off, as if the context were full.
    Handoff,
    /// A message that is submitted to a chat.
    Submit {
        #[serde(flatten)]
        input: UserInput,
        #[serde(default, skip_serializing_if = "Delivery::is_prompt")]
        delivery: Delivery,
    },
    /// Withdraws the waiting message with the id `input`. If `input` is `None`, withdraws all messages that wait for
    /// their delivery.
    Retract {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<String>,
    },
    /// Replaces the conversation of a chat with a summary, at the next idle step.
    Compact {
        /// The topic that the summary covers in detail; `None` for no particular topic.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        focus: Option<String>,
    },
    /// Continues a chat with another plan of the store, at the next idle step. Accepted only from this process.
    Replan { plan: String },
    /// Continues a chat in a new thread, at the next idle step. The new thread starts with the conversation before the
    /// prompt number `prompt`. `thread` is the thread of the session that has this prompt, possibly on another branch.
    /// If `thread` is `None`, the prompt belongs to the current branch. If `prompt` is one more than the last prompt of
    /// `thread`, the new thread gets the whole conversation of `thread`. Only this process may set `thread`.
    Fork {
        prompt: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<String>,
    },
    /// Runs a command of the user with the tool `rye/bash/bash`. The next prompt shows the output of the command to the
    /// model, unless `excluded` is true.
    Shell {
        command: String,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        excluded: bool,
    },
    /// Sets the title of a chat.
    Name { name: String },
    /// Sets the mode of the further prompts of a chat. Accepted only from the process that runs the chat.
    Mode { mode: ChatMode },
    /// Ends the current prompt of a chat: cuts the model call and stops calls.
    Interrupt,
    /// Closes the session of a chat at the end of the current prompt.
    Close,
    /// A higher limit, in the unit of the limit (nano-dollars for spend).
    Raise { limit: String, value: u64 },
    /// An unreadable file of the mailbox. The file is recorded and has no other effect.
    Unreadable { reason: String },
}

impl ControlMessage {
    /// Returns the end status of a thread that this message ends; `None` for any other message.
    pub fn end_status(&self) -> Option<Status> {
        match self {
            Self::Cancel => Some(Status::Cancelled),
            Self::Kill => Some(Status::Killed),
            Self::Steer { .. }
            | Self::FollowUp { .. }
            | Self::Approve { .. }
            | Self::Raise { .. }
            | Self::Handoff
            | Self::Submit { .. }
            | Self::Retract { .. }
            | Self::Compact { .. }
            | Self::Replan { .. }
            | Self::Fork { .. }
            | Self::Name { .. }
            | Self::Mode { .. }
            | Self::Shell { .. }
            | Self::Interrupt
            | Self::Close
            | Self::Unreadable { .. } => None,
        }
    }

    /// Reads a control message from the body of a mailbox file. Returns `Unreadable` if the body is not a control
    /// message. The reason in `Unreadable` has at most `MAX_REASON_CHARS` characters, because a reason may quote the
    /// file.
    pub fn from_file(body: Value) -> Self {
        let message =
            serde_json::from_value(body).unwrap_or_else(|error| Self::Unreadable { reason: error.to_string() });
        let Self::Unreadable { mut reason } = message else { return message };
        if let Some((end, _)) = reason.char_indices().nth(MAX_REASON_CHARS) {
            reason.truncate(end);
            reason.push('…');
        }
        Self::Unreadable { reason }
    }
}
