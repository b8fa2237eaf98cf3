//! The connection settings of a provider as plain data: address, key, timeouts.
//!
//! This module does not read the environment: `environment.rs` does, and `catalog.rs` combines both.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::sse::SseEvent;
use crate::exchange::Reply;
use crate::message::ContentBlock;
use crate::secrets::{mask_exact, mask_one};

/// The format of requests and streams (`engine.md` 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wire {
    Anthropic,
    OpenaiChat,
    OpenaiResponses,
    Gemini,
    Scripted,
}

impl Wire {
    /// Returns the name used in provider files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenaiChat => "openai-chat",
            Self::OpenaiResponses => "openai-responses",
            Self::Gemini => "gemini",
            Self::Scripted => "scripted",
        }
    }
}

/// An API key. Neither `Debug` nor `Display` prints it, and it cannot be serialized.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Creates a key, without surrounding white space (mostly a trailing line feed).
    pub fn new(key: impl Into<String>) -> Self {
        let key: String = key.into();
        Self(key.trim().to_owned())
    }

    /// Returns the text of the key. Callers may use the text only in a request header.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Masks the API key in `text`, even if the key is encoded. The error message of a provider may quote the key.
    pub fn mask(&self, text: &str) -> String {
        mask_one(text, "key", &self.0)
    }

    /// Masks the key in an event of a stream, before any part of the event is decoded, shown or stored.
    pub(crate) fn mask_event(&self, event: &mut SseEvent) {
        self.mask_exact(&mut event.name);
        self.mask_exact(&mut event.data);
    }

    /// Masks the key in a complete reply. Masking each event is not enough, because the key may be split over several
    /// events.
    pub(crate) fn mask_reply(&self, reply: &mut Reply) {
        for block in &mut reply.content {
            match block {
                ContentBlock::Text { text } | ContentBlock::Thinking { text, .. } => self.mask_exact(text.make_mut()),
                ContentBlock::ToolCall(call) => {
                    self.mask_exact(&mut call.name);
                    self.mask_strings(&mut call.input);
                }
                ContentBlock::Other { value, .. } => self.mask_strings(value),
                ContentBlock::Image(_) => {}
            }
        }
    }

    fn mask_exact(&self, text: &mut String) {
        mask_exact(text, "key", &self.0);
    }

    fn mask_strings(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.mask_exact(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_strings(item)),
            Value::Object(map) => map.values_mut().for_each(|item| self.mask_strings(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret([key])")
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[key]")
    }
}

/// The header that contains the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum KeyHeader {
    /// The header `authorization: Bearer KEY`.
    Bearer,
    /// A header of this name with the key alone, such as `x-api-key`.
    Named(String),
}

impl From<String> for KeyHeader {
    fn from(name: String) -> Self {
        if name.eq_ignore_ascii_case("authorization") { Self::Bearer } else { Self::Named(name.to_ascii_lowercase()) }
    }
}

impl From<KeyHeader> for String {
    fn from(header: KeyHeader) -> Self {
        match header {
            KeyHeader::Bearer => "authorization".to_owned(),
            KeyHeader::Named(name) => name,
        }
    }
}

/// The field of a Chat Completions request that limits the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokensField {
    /// `max_tokens`, the field that compatible servers support.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`, the field that OpenAI's own reasoning models require.
    MaxCompletionTokens,
}

impl MaxTokensField {
    pub fn name(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

/// Timeouts of a call. No timeout bounds a whole stream, because the thread's duration limit applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Maximum time from sending the request to the response headers, connecting included.
    pub answer: Duration,
    /// Maximum time between two chunks of a stream. Keep-alives count as chunks.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { answer: Duration::from_mins(5), idle: Duration::from_mins(5) }
    }
}

/// The settings for `super::connect_provider`.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderSettings {
    /// The provider's id, for messages.
    pub id: String,
    pub wire: Wire,
    /// Base URL, without the wire's path (such as `/v1/messages`). Unused by `scripted`.
    pub base_url: String,
    pub key: Option<ApiKey>,
    /// The variable that the key is read from; `None` if the provider needs no key.
    pub key_env: Option<String>,
    pub key_header: KeyHeader,
    pub max_tokens_field: MaxTokensField,
    /// True if requests in the format `openai-responses` ask for encrypted reasoning items.
    pub encrypted_reasoning: bool,
    /// Path of the script from which the wire format `scripted` takes the replies; `None` for other wire formats.
    pub script: Option<PathBuf>,
    pub timeouts: Timeouts,
}

impl ProviderSettings {
    /// Returns settings with this id and wire. The base URL is empty, and every other field has its default.
    pub fn with_defaults(id: impl Into<String>, wire: Wire) -> Self {
        Self {
            id: id.into(),
            wire,
            base_url: String::new(),
            key: None,
            key_env: None,
            key_header: KeyHeader::Bearer,
            max_tokens_field: MaxTokensField::default(),
            encrypted_reasoning: true,
            script: None,
            timeouts: Timeouts::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_key_is_never_printed() {
        let secret = ApiKey::new("sk-very-secret\n");
        assert_eq!(secret.expose(), "sk-very-secret");
        for shown in [format!("{secret:?}"), format!("{secret}"), format!("{:#?}", Some(&secret))] {
            assert!(!shown.contains("very"), "{shown}");
        }
        assert_eq!(secret.mask("bad key sk-very-secret!"), "bad key [masked: key]!");
        // The text contains the key as base 64, base 16, and percent-encoded.
        for encoded in ["c2stdmVyeS1zZWNyZXQ=", "736B2D766572792D736563726574", "sk%2Dvery%2dsecret"] {
            assert!(secret.mask(&format!("bad key {encoded}")).starts_with("bad key [masked: key]"), "{encoded}");
        }
        assert_eq!(ApiKey::new(" ").mask("text"), "text");
    }

    #[test]
    fn header_name_selects_bearer_or_named() {
        assert_eq!(KeyHeader::from("Authorization".to_owned()), KeyHeader::Bearer);
        assert_eq!(KeyHeader::from("X-Api-Key".to_owned()), KeyHeader::Named("x-api-key".to_owned()));
    }
}
