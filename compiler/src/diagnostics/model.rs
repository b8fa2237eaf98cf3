//! `model::*`: models that no provider file knows.

use rye_grammar::Span;
use thiserror::Error;

use super::{Label, Problem, did_you_mean, label, list};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ModelError {
    /// `requested` is a tier, a model id or a provider; `span` is missing where it came from the command line.
    #[error("no provider has a model or tier `{requested}`")]
    Unknown { requested: String, span: Option<Span>, suggestion: Option<String>, known: Vec<String> },
}

impl Problem for ModelError {
    fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "model::unknown",
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::Unknown { suggestion, known, .. } => {
                did_you_mean(suggestion.as_ref(), || (!known.is_empty()).then(|| format!("known: {}", list(known))))
            }
        }
    }

    fn labels(&self) -> Vec<Label> {
        match self {
            Self::Unknown { span, .. } => span.iter().map(|s| label(*s, "asked for here")).collect(),
        }
    }
}
