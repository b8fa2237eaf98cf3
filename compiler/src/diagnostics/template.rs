//! `template::*`: syntax of other clients in prompt templates, which is sent as text.

use rye_grammar::Span;
use thiserror::Error;

use super::{Label, Problem, Severity, new_label};

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TemplateError {
    #[error("the command in this template does not run")]
    Shell { span: Span },
    #[error("the file `{path}` is not imported")]
    Import { path: String, span: Span },
}

impl Problem for TemplateError {
    fn code(&self) -> &'static str {
        match self {
            Self::Shell { .. } => "template::shell",
            Self::Import { .. } => "template::import",
        }
    }

    fn severity(&self) -> Severity {
        match self {
            Self::Shell { .. } | Self::Import { .. } => Severity::Warning,
        }
    }

    fn help(&self) -> Option<String> {
        Some(match self {
            Self::Shell { .. } => {
                "the model gets the text as written: ask it to run the command with a tool, or remove the `!`".into()
            }
            Self::Import { .. } => {
                "the model gets the text as written: copy the content here, or ask the model to read the file".into()
            }
        })
    }

    fn labels(&self) -> Vec<Label> {
        match self {
            Self::Shell { span } | Self::Import { span, .. } => vec![new_label(*span, "sent as text")],
        }
    }
}
