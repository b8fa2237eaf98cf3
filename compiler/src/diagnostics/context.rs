//! `context::*`: knowledge that the chain or a hook brings, and suppressions.

use rye_grammar::Span;
use thiserror::Error;

use super::{Label, Problem, Severity, did_you_mean, label};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ContextError {
    /// `by_hook` names the hook that fetches it.
    #[error("there is no knowledge `{id}` to inject")]
    UnknownItem { id: String, span: Span, suggestion: Option<String>, by_hook: Option<String> },
    /// Declared in two places of one chain; it stays in the position named first.
    #[error("`{id}` is declared twice: in `<{kept}>` and in `<{dropped}>`")]
    Duplicate { id: String, kept: &'static str, dropped: &'static str, first: Span, second: Span },
    #[error("nothing brings `{id}`, so there is nothing to suppress")]
    SuppressesNothing { id: String, span: Span, suggestion: Option<String> },
    #[error("`{id}` is declared and suppressed by the same file")]
    SuppressedAndDeclared { id: String, declared: Span, suppressed: Span },
}

impl Problem for ContextError {
    fn code(&self) -> &'static str {
        match self {
            Self::UnknownItem { .. } => "context::unknown-item",
            Self::Duplicate { .. } => "context::duplicate",
            Self::SuppressesNothing { .. } => "context::suppresses-nothing",
            Self::SuppressedAndDeclared { .. } => "context::suppressed-and-declared",
        }
    }

    fn severity(&self) -> Severity {
        match self {
            Self::UnknownItem { .. } => Severity::Error,
            Self::Duplicate { .. } | Self::SuppressesNothing { .. } | Self::SuppressedAndDeclared { .. } => {
                Severity::Warning
            }
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::UnknownItem { id, suggestion, .. } => did_you_mean(suggestion.as_ref(), || {
                Some(format!("create `.ai/knowledge/{id}.md`, or name knowledge that exists"))
            }),
            Self::Duplicate { kept, .. } => Some(format!("it is sent once, in `<{kept}>`: remove the other line")),
            Self::SuppressesNothing { suggestion, .. } => {
                did_you_mean(suggestion.as_ref(), || {
                    Some("remove the line; a suppression names a knowledge id or a hook id that the chain or a hook brings".into())
                })
            }
            Self::SuppressedAndDeclared { .. } => Some("the suppression wins: remove one of the two lines".into()),
        }
    }

    fn labels(&self) -> Vec<Label> {
        match self {
            Self::UnknownItem { span, by_hook, .. } => {
                let text = by_hook.as_ref().map_or_else(
                    || "no knowledge has this id".to_owned(),
                    |hook| format!("fetched by the hook `{hook}`; no knowledge has this id"),
                );
                vec![label(*span, text)]
            }
            Self::Duplicate { kept, first, second, .. } => {
                vec![label(*second, "declared again here"), label(*first, format!("it stays here, in `<{kept}>`"))]
            }
            Self::SuppressesNothing { span, .. } => vec![label(*span, "removes nothing")],
            Self::SuppressedAndDeclared { declared, suppressed, .. } => {
                vec![label(*suppressed, "suppressed here"), label(*declared, "declared here")]
            }
        }
    }
}
