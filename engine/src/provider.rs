//! Providers: one trait, with one implementation for each wire format. An implementation only converts requests and
//! replies. For an error, the implementation reports facts (such as the HTTP status), and the classification table
//! decides the kind of the error.

pub mod anthropic;
pub mod catalog;
pub mod environment;
pub(crate) mod error_body;
#[cfg(test)]
pub(crate) mod fixture;
pub mod gemini;
pub mod http;
pub mod openai_chat;
pub mod openai_responses;
pub mod progress;
#[cfg(test)]
pub(crate) mod provider_schemas;
pub mod scripted;
pub mod settings;
pub mod sse;
pub mod text_tools;
#[cfg(test)]
mod tool_schema;
pub mod wire;

use std::sync::Arc;

use crate::BoxFuture;
use crate::exchange::{CallError, Delta, Reply, Request};

pub use progress::CallProgress;
pub use rye_compiler::plan::Sampling;
pub use settings::{ApiKey, ProviderSettings, Wire};

/// Creates the provider that `settings` describe. Sends nothing and does no expensive work yet.
///
/// # Errors
/// [`FailedStage::Setup`](crate::exchange::FailedStage::Setup): the key is missing, or the base URL or the script
/// cannot be used.
pub(crate) fn connect_provider(settings: &ProviderSettings) -> Result<Arc<dyn Provider>, CallError> {
    match settings.wire {
        Wire::Anthropic => Ok(Arc::new(anthropic::Anthropic::connect(settings)?)),
        Wire::OpenaiChat => Ok(Arc::new(openai_chat::OpenaiChat::connect(settings)?)),
        Wire::OpenaiResponses => Ok(Arc::new(openai_responses::OpenaiResponses::connect(settings)?)),
        Wire::Gemini => Ok(Arc::new(gemini::Gemini::connect(settings)?)),
        Wire::Scripted => Ok(Arc::new(scripted::Scripted::connect(settings)?)),
    }
}

/// Returns the body of the request on the provider's wire; `None` for wires that send no body.
pub fn encode(settings: &ProviderSettings, request: &Request) -> Option<Vec<u8>> {
    match settings.wire {
        Wire::Anthropic => Some(anthropic::encode(request)),
        Wire::OpenaiChat => Some(openai_chat::encode(request, settings.max_tokens_field)),
        Wire::OpenaiResponses => Some(openai_responses::encode(request, settings.encrypted_reasoning)),
        Wire::Gemini => Some(gemini::encode(request)),
        Wire::Scripted => None,
    }
}

/// A model provider that answers requests.
pub trait Provider: Send + Sync {
    /// Returns true if a client, instead of a model, answers the requests of this directive's threads. A reply of the
    /// client costs nothing, and the requests contain only the messages since the last reply.
    fn serves_client(&self, _directive: &str) -> bool {
        false
    }

    fn call<'a>(
        &'a self,
        request: &'a Request,
        live: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, CallError>>;

    /// Makes a call as [`Self::call`] does, and records in `progress` the facts that are known before the call ends.
    /// The default implementation records nothing.
    fn call_with_progress<'a>(
        &'a self,
        request: &'a Request,
        live: &'a (dyn Fn(Delta) + Send + Sync),
        _progress: &'a CallProgress,
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        self.call(request, live)
    }
}
