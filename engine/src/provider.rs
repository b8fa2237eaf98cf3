//! Providers: one trait, wires that map shapes and nothing else, errors as facts for the classification table.

pub mod anthropic;
pub mod catalog;
pub mod cost;
pub mod environment;
#[cfg(test)]
pub(crate) mod fixture;
pub mod gemini;
pub mod http;
pub mod openai_chat;
pub mod openai_responses;
#[cfg(test)]
pub(crate) mod published;
pub mod scripted;
pub mod settings;
pub mod sse;
pub mod text_tools;
pub mod wire;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::message::{Block, Turn};

pub use rye_compiler::plan::Sampling;
pub use settings::{ProviderSettings, Secret, Wire};

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One model call, complete: the same value gives the same bytes on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The provider's own model id.
    pub model: String,
    /// Empty = none; delivered by the provider's own system field.
    pub system: Arc<str>,
    pub turns: Vec<Turn>,
    pub tools: Vec<ToolDefinition>,
    /// Output tokens asked for.
    pub max_output: u64,
    /// Whether `turns[0]` is constant for the whole thread, so that a cache breakpoint may follow it.
    pub first_turn_constant: bool,
    /// Sent where it is set and nowhere else.
    #[serde(default, skip_serializing_if = "Sampling::is_empty")]
    pub sampling: Sampling,
    /// The model has no tools of its own: calls are read from its text (`text_tools`).
    #[serde(default)]
    pub text_tools: bool,
    /// Who asks. Never sent: only a script looks at it.
    #[serde(default)]
    pub cue: Cue,
}

/// Where in its thread a call stands, so that a script can be played from any point, after a crash too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cue {
    /// The directive's full id; chooses the branch of a script.
    pub directive: String,
    /// Replies this thread already has; `None` = the assistant turns of the request (which a `context` hook may have
    /// thinned out).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// Attempts at this turn that have failed already.
    #[serde(default)]
    pub attempt: u32,
    /// The thread's id.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub thread: String,
    /// For a child: which of its parent's children it is, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spawn: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    pub name: Arc<str>,
    pub description: Arc<str>,
    /// JSON Schema of the input.
    pub schema: Arc<Value>,
}

/// A complete reply: the stream ended with its final event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    pub content: Vec<Block>,
    pub usage: Usage,
    pub stop: StopReason,
    /// The model the provider says answered.
    pub model: Option<String>,
}

/// Tokens as the provider counts them. `input` excludes `cache_read` and `cache_write`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    EndTurn,
    ToolUse,
    /// Output limit reached; a tool call in the reply is incomplete.
    Length,
    Refusal,
    Other(String),
}

/// What happens while a reply streams in; shown and dropped, never recorded in the transcript.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    Text(String),
    Thinking(String),
    ToolCallStarted { id: String, name: String },
    ToolCallInput { id: String, fragment: String },
}

/// A failed attempt, as facts. Classification belongs to the table, not to the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    pub stage: FailedStage,
    pub status: Option<u16>,
    /// Response headers that matter to retries, lower-case names.
    pub headers: Vec<(String, String)>,
    /// The provider's own error type and code, when it sent them.
    pub error_type: Option<String>,
    pub code: Option<String>,
    /// Never holds a key.
    pub message: String,
    /// What the provider reported as used before the failure.
    pub usage: Option<Usage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailedStage {
    /// No key, no such provider, a request that cannot be built: nothing was sent.
    Setup,
    Connect,
    Timeout,
    /// An answer with an error status.
    Status,
    /// An error event inside the stream.
    StreamError,
    /// The stream ended without its final event.
    Truncated,
    /// The answer was not what the wire promises.
    Protocol,
}

impl CallError {
    /// A failure of which nothing is known but where it happened and what to say.
    pub fn new(stage: FailedStage, message: impl Into<String>) -> Self {
        Self {
            stage,
            status: None,
            headers: Vec::new(),
            error_type: None,
            code: None,
            message: message.into(),
            usage: None,
        }
    }
}

/// The provider that `settings` describe. Nothing is sent yet, and nothing costly is built.
///
/// # Errors
/// [`FailedStage::Setup`]: no key, a base URL or script that cannot be used.
pub fn connect(settings: &ProviderSettings) -> Result<Arc<dyn Provider>, CallError> {
    match settings.wire {
        Wire::Anthropic => Ok(Arc::new(anthropic::Anthropic::connect(settings)?)),
        Wire::OpenaiChat => Ok(Arc::new(openai_chat::OpenaiChat::connect(settings)?)),
        Wire::OpenaiResponses => Ok(Arc::new(openai_responses::OpenaiResponses::connect(settings)?)),
        Wire::Gemini => Ok(Arc::new(gemini::Gemini::connect(settings)?)),
        Wire::Scripted => Ok(Arc::new(scripted::Scripted::connect(settings)?)),
    }
}

/// The body of the request on the provider's wire, as it would be sent; `None` for wires that send nothing.
pub fn body(settings: &ProviderSettings, request: &Request) -> Option<Value> {
    match settings.wire {
        Wire::Anthropic => Some(anthropic::body(request)),
        Wire::OpenaiChat => Some(openai_chat::body(request, settings.max_tokens_field)),
        Wire::OpenaiResponses => Some(openai_responses::body(request, settings.encrypted_reasoning)),
        Wire::Gemini => Some(gemini::body(request)),
        Wire::Scripted => None,
    }
}

/// A place to send requests to.
pub trait Provider: Send + Sync {
    fn call<'a>(
        &'a self,
        request: &'a Request,
        live: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, CallError>>;
}
