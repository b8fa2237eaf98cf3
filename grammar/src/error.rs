//! Syntax errors as data: a code each, the span, what was expected. Rendering belongs to others.

use miette::Diagnostic;
use thiserror::Error;

use crate::span::Span;

/// One syntax error. `label` stands under the span, `help` says what to change.
#[derive(Debug, Clone, PartialEq, Error, Diagnostic)]
pub enum SyntaxError {
    #[error("{message}")]
    #[diagnostic(code(rye::syntax::xml))]
    Xml { message: String, span: Span, label: String, help: Option<String> },
    #[error("{message}")]
    #[diagnostic(code(rye::syntax::yaml))]
    Yaml { message: String, span: Span, label: String, help: Option<String> },
    #[error("{message}")]
    #[diagnostic(code(rye::syntax::fence))]
    Fence { message: String, span: Span, label: String, help: Option<String>, other: Option<Span> },
    #[error("{message}")]
    #[diagnostic(code(rye::syntax::condition))]
    Condition { message: String, span: Span, label: String, help: Option<String> },
    #[error("{message}")]
    #[diagnostic(code(rye::syntax::template))]
    Template { message: String, span: Span, label: String, help: Option<String> },
    #[error("{message}")]
    #[diagnostic(code(rye::syntax::reference))]
    Reference { message: String, span: Span, label: String, help: Option<String> },
    #[error("{message}")]
    #[diagnostic(code(rye::syntax::capability))]
    Capability { message: String, span: Span, label: String, help: Option<String> },
}
