//! `limit::*`: limits that do not exist or cannot be kept.

use rye_grammar::Span;
use thiserror::Error;

use super::{Label, Problem, did_you_mean, label, list};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LimitError {
    #[error("there is no limit `{name}`")]
    Unknown { name: String, span: Option<Span>, suggestion: Option<String>, known: Vec<String> },
    /// `why` says what the value may be: "has to be a whole number above 0".
    #[error("the limit `{name}` cannot be {found}")]
    Invalid { name: String, found: String, why: String, span: Option<Span> },
    /// Amounts are decimal dollars.
    #[error("the spend limit of {limit} does not pay for one turn, which may cost {needed}")]
    CannotAffordOneTurn { limit: String, needed: String, model: String, span: Option<Span> },
}

impl Problem for LimitError {
    fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "limit::unknown",
            Self::Invalid { .. } => "limit::invalid",
            Self::CannotAffordOneTurn { .. } => "limit::cannot-afford-one-turn",
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::Unknown { suggestion, known, .. } => {
                did_you_mean(suggestion.as_ref(), || Some(format!("limits: {}", list(known))))
            }
            Self::Invalid { why, .. } => Some(format!("it {why}")),
            Self::CannotAffordOneTurn { model, .. } => {
                Some(format!("raise `spend`, lower `output`, or ask for a cheaper model than `{model}`"))
            }
        }
    }

    fn labels(&self) -> Vec<Label> {
        match self {
            Self::Unknown { span, .. } => span.iter().map(|s| label(*s, "no such limit")).collect(),
            Self::Invalid { span, why, .. } => span.iter().map(|s| label(*s, why.clone())).collect(),
            Self::CannotAffordOneTurn { span, .. } => span.iter().map(|s| label(*s, "set here")).collect(),
        }
    }
}
