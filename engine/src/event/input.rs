//! The messages of users: submission, intake, and withdrawal from the queue.

use serde::{Deserialize, Serialize};

use super::PromptBounds;
use crate::image::ImageRef;
use crate::message::Message;

/// A message as it was submitted, before its intake.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserInput {
    pub text: String,
    /// References to the images. The bytes of the images are objects of the store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
    #[serde(default, skip_serializing_if = "InputSource::is_interactive")]
    pub source: InputSource,
    /// The bounds of the prompt that the message starts.
    #[serde(default, skip_serializing_if = "PromptBounds::is_empty")]
    pub bounds: PromptBounds,
}

impl UserInput {
    /// Creates a message that a user typed.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

impl<T: Into<String>> From<T> for UserInput {
    fn from(text: T) -> Self {
        Self::text(text)
    }
}

/// The sender of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputSource {
    /// A user at a terminal.
    #[default]
    Interactive,
    /// A program that uses the library or a protocol.
    Rpc,
    /// A part of the project: a hook, a command or a tool.
    Extension,
}

impl InputSource {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
    fn is_interactive(&self) -> bool {
        *self == Self::Interactive
    }

    /// Returns the name of the source, which conditions of `input` hooks read as the fact `source`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Rpc => "rpc",
            Self::Extension => "extension",
        }
    }
}

/// The time at which the model receives a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// The model receives the message as a prompt of its own, after the end of a running prompt.
    #[default]
    Prompt,
    /// The model receives the message before the next turn. Calls that have not started are skipped. In an idle
    /// session, the message is a prompt.
    Steer,
    /// The model receives the message at the point where it would end the prompt, and the prompt continues. In an idle
    /// session, the message is a prompt.
    FollowUp,
    /// The model receives the message with the next prompt, after the user message of that prompt. The message itself
    /// starts no prompt.
    NextTurn,
}

impl Delivery {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
    pub(super) fn is_prompt(&self) -> bool {
        *self == Self::Prompt
    }

    /// Returns the name of the delivery, which conditions of `input` hooks read as the fact `delivery`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Steer => "steer",
            Self::FollowUp => "follow_up",
            Self::NextTurn => "next_turn",
        }
    }
}

/// A message that has passed its intake: the `input` hooks, skills and prompt templates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedInput {
    /// The id of the control message that submitted the message.
    pub id: String,
    pub delivery: Delivery,
    pub source: InputSource,
    /// The text as it was submitted, before the intake.
    pub raw: String,
    /// The text that the model gets, after the intake.
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
    /// The parts of `text` that come from skills and prompt templates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expansions: Vec<InputExpansion>,
    /// True if the model does not get the message: an `input` hook handled it, or the message calls a skill or prompt
    /// template that cannot be expanded.
    pub handled: bool,
    /// The text with which the hook that handled the message answers the user. The model does not get this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<String>,
    #[serde(default, skip_serializing_if = "PromptBounds::is_empty")]
    pub bounds: PromptBounds,
}

/// A part of a message that comes from an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputExpansion {
    /// Kind of the item: `skill` or `prompt`.
    pub kind: String,
    pub item: String,
    /// SHA-256 of the item's file.
    pub sha256: String,
    /// Index of the first byte of the message's text that comes from the item.
    pub start: usize,
    /// Index of the first byte after the part that comes from the item.
    pub end: usize,
}

/// The withdrawal of a message from the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetractedInput {
    /// The id of the message.
    pub input: String,
}

/// The result of a shell command that the user ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShellRan {
    /// The id of the control message that requested the command.
    pub id: String,
    pub command: String,
    /// The exit code of the command; -1 if the command did not run or was ended by a signal.
    pub exit_code: i32,
    /// The output, as the guard of the tool returned it.
    pub output: String,
    /// Hash of the object with the whole output; `None` if `output` is the whole output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// True if the model does not get the output.
    pub excluded: bool,
    pub duration_ms: u64,
}

impl ShellRan {
    /// Returns the command and its output as a message of the conversation.
    pub fn message(&self) -> Message {
        let Self { command, output, exit_code, excluded, .. } = self;
        Message::Bash { command: command.clone(), output: output.clone(), exit_code: *exit_code, excluded: *excluded }
    }
}

/// The run of a command that the settings declare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRan {
    /// The id of the control message that contains the typed command.
    pub id: String,
    pub name: String,
    /// The text after the name of the command.
    pub args: String,
    /// The id of the item that the command executed.
    pub item: String,
    pub action: CommandAction,
    /// The text of the answer, or the reason of the failure.
    pub answer: String,
    pub is_error: bool,
}

/// The use of a command's answer: the recipient of the answer, and its delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandAction {
    /// The answer is shown to the user and not sent to the model.
    Show,
    /// The answer is submitted as a prompt.
    Prompt,
    /// The model reads the command's answer in the current prompt, before its next turn.
    Steer,
    /// The model reads the command's answer after the user message of the next prompt.
    NextTurn,
    /// The answer is not used.
    None,
}

impl CommandAction {
    /// Returns the delivery of the answer to the model; `None` if the model does not get the answer.
    pub fn delivery(self) -> Option<Delivery> {
        match self {
            Self::Prompt => Some(Delivery::Prompt),
            Self::Steer => Some(Delivery::Steer),
            Self::NextTurn => Some(Delivery::NextTurn),
            Self::Show | Self::None => None,
        }
    }
}

/// A change of a chat's title by the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionNamed {
    pub name: String,
}

/// A user message that waits for its delivery. If the thread is continued before the delivery, the continuation
/// receives the message in this form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedMessage {
    /// The id of the control message that submitted the message.
    pub id: String,
    pub delivery: Delivery,
    #[serde(default)]
    pub source: InputSource,
    /// The submitted text. The intake replaces it with the text for the model.
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
    /// True if the message has passed its intake.
    #[serde(default)]
    pub accepted: bool,
    /// The error of the `input` hook with `on_failure: fail` that failed at this message. The prompt of the message
    /// ends with this error before a model call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    #[serde(default, skip_serializing_if = "PromptBounds::is_empty")]
    pub bounds: PromptBounds,
}

impl QueuedMessage {
    pub fn new(id: &str, input: &UserInput, delivery: Delivery) -> Self {
        let UserInput { text, images, source, bounds } = input.clone();
        Self { id: id.to_owned(), delivery, source, text, images, accepted: false, failure: None, bounds }
    }
}
