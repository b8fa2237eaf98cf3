//! An exchange with a model as data: the request, the streamed pieces, the reply with its usage and cost, and the error
//! of a failed attempt. The providers map these types to their wire formats.

use std::sync::Arc;

use rye_compiler::plan::{PlannedModel, Sampling, Tokens};
use rye_compiler::semantics::money::Nanos;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::message::{ContentBlock, SharedMessage};

/// The data of a model call. Equal values produce equal bytes in the request to the provider.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Request {
    /// The provider's own model id.
    pub model: String,
    /// System prompt; empty if there is none. Sent in the provider's own field.
    pub system: Arc<str>,
    #[serde(serialize_with = "serialize_turns")]
    pub turns: Vec<SharedMessage>,
    pub tools: Vec<ToolDefinition>,
    /// Maximum number of output tokens.
    pub max_output: u64,
    /// True if `turns[0]` is constant for the whole thread, so that a cache breakpoint may follow this turn.
    pub first_turn_constant: bool,
    /// Sampling parameters. Parameters that are not set are not sent.
    #[serde(skip_serializing_if = "Sampling::is_empty")]
    pub sampling: Sampling,
    /// True if the model has no native tools, so that calls are parsed from its text (`text_tools`).
    pub text_tools: bool,
    /// The position of the call in its thread. Only the scripted provider reads the position. It is never sent.
    pub cue: ThreadPosition,
}

/// The turns of a conversation that a request sends to the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestTurns {
    All,
    /// The last reply with the messages after it.
    SinceReply,
}

/// Serializes the turns in the form that providers receive.
fn serialize_turns<S: Serializer>(turns: &[SharedMessage], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(turns.iter().filter_map(SharedMessage::for_provider))
}

/// The position of a call in its thread. A scripted provider selects the reply by the position, also after a crash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadPosition {
    /// Full id of the thread's directive. A scripted provider answers with the branch of its script for this directive.
    pub directive: String,
    /// Number of earlier replies of the thread. If `None`, the assistant turns in the request are counted instead. That
    /// count is too low if a `context` hook has removed turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// Number of failed attempts of this turn.
    #[serde(default)]
    pub attempt: u32,
    /// Id of the thread.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thread: String,
    /// For a child thread, its number among its parent's children, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawn: Option<u64>,
    /// The limit `duration_seconds` of a child thread, from the plan or from a later raise. The remaining time of the
    /// parent does not lower this value. `None` for a root thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<u64>,
    /// The children that the thread has started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<StartedChild>,
}

/// A child thread that the calling thread has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedChild {
    pub spawn: u64,
    pub thread_id: String,
    /// The last thread of the child's chain of handoffs; `None` until that thread has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_thread_id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    pub name: Arc<str>,
    pub description: Arc<str>,
    /// JSON Schema of the input.
    pub schema: Arc<Value>,
}

/// A complete reply, whose stream ended with its final event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    pub content: Vec<ContentBlock>,
    pub usage: Usage,
    pub stop: StopReason,
    /// The model that the provider reports; `None` if the reply names no model.
    pub model: Option<String>,
    /// The bytes sent and received; `None` if the provider reported a usable final usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncounted: Option<CutStream>,
    /// Names of the kinds of events, content and fields that the decoder of the wire format does not know, each once.
    /// `content` does not contain the data of these parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// Token counts as reported by the provider. `input` excludes `cache_read` and `cache_write`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
}

impl Usage {
    /// Returns the number of all tokens of the request, cached or not.
    pub fn whole_input(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

    /// Returns false if these counts cannot be right for a reply with this content. A prompt has at least one token,
    /// and so has a reply that is not empty.
    pub(crate) fn is_plausible_for(&self, content: &[ContentBlock]) -> bool {
        self.whole_input() > 0 && (self.output > 0 || content.is_empty())
    }

    /// Combines two usages of one call. The result has the input counts of the usage with the larger total input, and
    /// the larger output count.
    #[must_use]
    pub fn at_least(self, other: Self) -> Self {
        let side = if self.whole_input() < other.whole_input() { other } else { self };
        Self { output: self.output.max(other.output), ..side }
    }

    /// Combines an earlier and a later report of the usage of one call. The number of output tokens is the larger one
    /// of the two reports, because counts are cumulative. The later input counts replace the earlier input counts,
    /// because a provider can correct how many tokens were cached. If the later report has a lower total input, each
    /// input count is the larger of both counts.
    #[must_use]
    pub fn after(earlier: Option<Self>, later: Self) -> Self {
        let Some(earlier) = earlier else { return later };
        let output = later.output.max(earlier.output);
        if later.whole_input() >= earlier.whole_input() {
            return Self { output, ..later };
        }
        Self {
            input: later.input.max(earlier.input),
            output,
            cache_read: later.cache_read.max(earlier.cache_read),
            cache_write: later.cache_write.max(earlier.cache_write),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    EndTurn,
    ToolUse,
    /// The output limit was reached, so a text or tool call at the end of the reply is incomplete.
    #[serde(alias = "max_tokens")]
    Length,
    /// The context window is full, so a text or tool call at the end of the reply is incomplete.
    ContextWindow,
    /// The model refused to answer, or a content filter stopped the answer.
    Refusal,
    /// A reason that the wire does not define.
    Other(String),
}

impl StopReason {
    /// Returns the name that results contain. For an unknown reason, this is the name that the provider sent.
    pub fn as_str(&self) -> &str {
        match self {
            Self::EndTurn => "end_turn",
            Self::ToolUse => "tool_use",
            Self::Length => "length",
            Self::ContextWindow => "context_window",
            Self::Refusal => "refusal",
            Self::Other(name) => name,
        }
    }

    /// Combines two stop reasons of one reply, of which `reason` arrived later. The later reason applies, except that
    /// `EndTurn` does not replace a different reason.
    pub fn later(before: Option<Self>, reason: Self) -> Self {
        before.filter(|before| reason == Self::EndTurn && *before != Self::EndTurn).unwrap_or(reason)
    }

    /// Returns true if the output limit or the context window cut the reply before its end.
    pub fn is_cut(&self) -> bool {
        match self {
            Self::Length | Self::ContextWindow => true,
            Self::EndTurn | Self::ToolUse | Self::Refusal | Self::Other(_) => false,
        }
    }
}

/// A piece of a streaming reply. Pieces are displayed and then dropped. The transcript contains only whole replies.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    Text(String),
    Thinking(String),
    ToolCallStarted { id: String, name: String },
    ToolCallInput { id: String, fragment: String },
}

impl Delta {
    /// Returns the number of bytes of text in the piece.
    pub fn bytes(&self) -> u64 {
        let text = match self {
            Self::Text(text) | Self::Thinking(text) => text,
            Self::ToolCallStarted { name, .. } => name,
            Self::ToolCallInput { fragment, .. } => fragment,
        };
        u64::try_from(text.len()).unwrap_or(u64::MAX)
    }
}

/// The facts of a failed attempt. The kind of the error is derived from these facts by the classification table, not by
/// the code for a wire format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    pub stage: FailedStage,
    pub status: Option<u16>,
    /// Response headers relevant to retries, with lowercase names.
    pub headers: Vec<(String, String)>,
    /// The provider's own error type, if the provider sent one.
    pub error_type: Option<String>,
    /// The provider's own error code, if the provider sent one.
    pub code: Option<String>,
    /// The error message, without any API key.
    pub message: String,
    /// Usage that the provider reported before the failure; `None` if the provider reported none.
    pub usage: Option<Usage>,
    /// The bytes of a stream that ended before the provider reported its final usage, so that the cost is unknown.
    /// `None` for any other failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<CutStream>,
}

/// The last entry of a list of unread names that is too long. The entry stands for the names that are left out.
pub(crate) const MORE_NAMES: &str = "more names, left out";

/// Bytes of a text or a request that an estimate counts as one token.
pub(crate) const BYTES_PER_TOKEN: u64 = 4;

/// The bytes sent and received in a call whose final usage is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutStream {
    /// Number of bytes of the request's body; 0 if the number is not known.
    pub sent: u64,
    /// Number of bytes of the response's body that were received.
    pub received: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailedStage {
    /// The call failed before a request was sent, for example because of a missing key, an unknown provider or an
    /// invalid request.
    Setup,
    Connect,
    Timeout,
    /// A response with an error status.
    Status,
    /// An error event inside the stream.
    StreamError,
    /// The stream ended without its final event.
    Truncated,
    /// The response did not follow the protocol of the wire format.
    Protocol,
}

/// The code of a call that was cut at the deadline of its thread.
pub(crate) const DEADLINE_CODE: &str = "thread_deadline";

/// The `code` of a [`CallError`] for a script that is invalid or has no step left. Such an error is never retried.
pub(crate) const SCRIPT_ERROR: &str = "script";

impl CallError {
    /// Returns the error of a call that was cut at the deadline of its thread, after `received` bytes of text. The cost
    /// of the call is unknown, unless the provider had reported its final usage.
    pub(crate) fn cut_at_deadline(received: u64, final_usage: Option<Usage>) -> Self {
        Self {
            code: Some(DEADLINE_CODE.to_owned()),
            usage: final_usage,
            cut: final_usage.is_none().then_some(CutStream { sent: 0, received }),
            ..Self::new(FailedStage::Timeout, "the model call was stopped: the thread reached its duration limit")
        }
    }

    /// Creates an error with only a stage and a message.
    pub fn new(stage: FailedStage, message: impl Into<String>) -> Self {
        Self {
            stage,
            status: None,
            headers: Vec::new(),
            error_type: None,
            code: None,
            message: message.into(),
            usage: None,
            cut: None,
        }
    }
}

impl From<&Usage> for Tokens {
    fn from(usage: &Usage) -> Self {
        let Usage { input, output, cache_read, cache_write } = *usage;
        Self { input, output, cache_read, cache_write }
    }
}

/// Returns the cost of `usage` at the prices of `model`. Only the sum is rounded up, to a whole nano-dollar. `None` if
/// the model has no prices, or on overflow.
pub fn cost(model: &PlannedModel, usage: &Usage) -> Option<Nanos> {
    model.cost(&Tokens::from(usage))
}
