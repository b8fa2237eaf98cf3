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
    /// A Python, JavaScript or TypeScript file that is none.
    #[error("{message}")]
    #[diagnostic(code(rye::syntax::script))]
    Script { message: String, span: Span, label: String, help: Option<String> },
    /// A declaring constant of a script whose value a run would have to make.
    #[error("{message}")]
    #[diagnostic(code(rye::syntax::constant))]
    Constant { message: String, span: Span, label: String, help: Option<String> },
}

impl SyntaxError {
    /// Where the error is.
    pub fn span(&self) -> Span {
        match self {
            Self::Xml { span, .. }
            | Self::Yaml { span, .. }
            | Self::Fence { span, .. }
            | Self::Condition { span, .. }
            | Self::Template { span, .. }
            | Self::Reference { span, .. }
            | Self::Capability { span, .. }
            | Self::Script { span, .. }
            | Self::Constant { span, .. } => *span,
        }
    }

    /// Every place to underline, the error's own first.
    pub fn labels(&self) -> Vec<(Span, String)> {
        let mut labels = vec![(self.span(), self.label().to_owned())];
        if let Self::Fence { other: Some(other), .. } = self {
            labels.push((*other, "the first one is here".to_owned()));
        }
        labels
    }

    /// What to do about it.
    pub fn help(&self) -> Option<&str> {
        match self {
            Self::Xml { help, .. }
            | Self::Yaml { help, .. }
            | Self::Fence { help, .. }
            | Self::Condition { help, .. }
            | Self::Template { help, .. }
            | Self::Reference { help, .. }
            | Self::Capability { help, .. }
            | Self::Script { help, .. }
            | Self::Constant { help, .. } => help.as_deref(),
        }
    }

    /// The code without its `rye::` prefix, such as `syntax::xml`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Xml { .. } => "syntax::xml",
            Self::Yaml { .. } => "syntax::yaml",
            Self::Fence { .. } => "syntax::fence",
            Self::Condition { .. } => "syntax::condition",
            Self::Template { .. } => "syntax::template",
            Self::Reference { .. } => "syntax::reference",
            Self::Capability { .. } => "syntax::capability",
            Self::Script { .. } => "syntax::script",
            Self::Constant { .. } => "syntax::constant",
        }
    }

    fn label(&self) -> &str {
        match self {
            Self::Xml { label, .. }
            | Self::Yaml { label, .. }
            | Self::Fence { label, .. }
            | Self::Condition { label, .. }
            | Self::Template { label, .. }
            | Self::Reference { label, .. }
            | Self::Capability { label, .. }
            | Self::Script { label, .. }
            | Self::Constant { label, .. } => label,
        }
    }

    /// The same error put inside `limit`: for texts whose offsets do not map onto their source byte by byte.
    #[must_use]
    pub fn within(mut self, limit: Span) -> Self {
        match &mut self {
            Self::Xml { span, .. }
            | Self::Yaml { span, .. }
            | Self::Fence { span, .. }
            | Self::Condition { span, .. }
            | Self::Template { span, .. }
            | Self::Reference { span, .. }
            | Self::Capability { span, .. }
            | Self::Script { span, .. }
            | Self::Constant { span, .. } => *span = limit,
        }
        self
    }
}
