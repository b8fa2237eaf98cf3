//! What it takes to reach one provider, as plain data: where, with which key, how long to wait.
//!
//! Nothing here reads the environment; `environment.rs` does, and `catalog.rs` joins the two.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The shape of the requests and streams (`engine.md` 6).
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
    /// The name in provider files.
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

/// An API key. Neither `Debug` nor `Display` shows it, and it is not serialisable.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// White space around the key (a trailing line feed, mostly) is not part of it.
    pub fn new(key: impl Into<String>) -> Self {
        let key: String = key.into();
        Self(key.trim().to_owned())
    }

    /// The key itself: for a request header and nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// `text` without the key: a provider may quote it in its error message.
    pub fn redact(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(&self.0, "[key]") }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret([key])")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[key]")
    }
}

/// How the key is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum KeyHeader {
    /// `authorization: Bearer KEY`
    Bearer,
    /// The key alone in a header of this name, such as `x-api-key`.
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

/// The field of a Chat Completions request that bounds the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokensField {
    /// What compatible servers know.
    #[default]
    MaxTokens,
    /// What OpenAI's own reasoning models insist on.
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

/// How long to wait for what. A stream has no total limit: the thread's own duration bounds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From sending the request to the answer's headers, the connection included.
    pub answer: Duration,
    /// Between two pieces of a stream. Keep-alives count as pieces.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { answer: Duration::from_mins(5), idle: Duration::from_mins(5) }
    }
}

/// Everything [`super::connect`] needs.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderSettings {
    /// The provider's id, for messages.
    pub id: String,
    pub wire: Wire,
    /// Without a trailing path of the wire's own, such as `/v1/messages`. Unused by `scripted`.
    pub base_url: String,
    pub key: Option<Secret>,
    /// The variable the key is read from; `None` = this provider needs no key.
    pub key_env: Option<String>,
    pub key_header: KeyHeader,
    pub max_tokens_field: MaxTokensField,
    /// Whether `openai-responses` asks for the sealed thoughts that the model goes on from.
    pub encrypted_reasoning: bool,
    /// The script that `scripted` plays.
    pub script: Option<PathBuf>,
    pub timeouts: Timeouts,
}

impl ProviderSettings {
    /// A provider without a key, an address or anything else of its own.
    pub fn bare(id: impl Into<String>, wire: Wire) -> Self {
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
    fn a_secret_shows_itself_to_nobody() {
        let secret = Secret::new("sk-very-secret\n");
        assert_eq!(secret.expose(), "sk-very-secret");
        for shown in [format!("{secret:?}"), format!("{secret}"), format!("{:#?}", Some(&secret))] {
            assert!(!shown.contains("very"), "{shown}");
        }
        assert_eq!(secret.redact("bad key sk-very-secret!"), "bad key [key]!");
        assert_eq!(Secret::new(" ").redact("text"), "text");
    }

    #[test]
    fn header_names_decide_the_style() {
        assert_eq!(KeyHeader::from("Authorization".to_owned()), KeyHeader::Bearer);
        assert_eq!(KeyHeader::from("X-Api-Key".to_owned()), KeyHeader::Named("x-api-key".to_owned()));
    }
}
