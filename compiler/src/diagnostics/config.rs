//! `config::*`: settings with values that nothing can be done with.

use rye_grammar::Span;
use thiserror::Error;

use super::{Label, Problem, label};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// `key` is the dotted path inside the file, `file` its id: `agent/resilience`.
    #[error("`{key}` in `{file}` cannot be {found}")]
    Invalid { file: String, key: String, found: String, expected: String, span: Option<Span> },
    /// A value that is none of its file's; `why` says what the file may hold, as a sentence.
    #[error("`{key}` in `{file}` cannot be used")]
    Refused { file: String, key: String, why: String, span: Option<Span> },
}

impl Problem for ConfigError {
    fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } | Self::Refused { .. } => "config::invalid",
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::Invalid { expected, .. } => Some(format!("write {expected}")),
            Self::Refused { why, .. } => Some(why.clone()),
        }
    }

    fn labels(&self) -> Vec<Label> {
        match self {
            Self::Invalid { span, expected, .. } => {
                span.iter().map(|s| label(*s, format!("expected {expected}"))).collect()
            }
            Self::Refused { span, .. } => span.iter().map(|s| label(*s, "not understood")).collect(),
        }
    }
}
