//! Syntax errors as data: what kind of text is broken, where, and what to do. Rendering belongs to others.

use thiserror::Error;

use crate::span::Span;

/// One syntax error.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{message}")]
pub struct SyntaxError {
    pub kind: SyntaxKind,
    pub message: String,
    /// Where it is.
    pub span: Span,
    /// Stands under the span.
    pub label: String,
    /// What to change.
    pub help: Option<String>,
    /// A second place to underline: where the first of what may stand once is.
    pub other: Option<Span>,
}

/// The small language whose rules a text breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyntaxKind {
    Xml,
    Yaml,
    Fence,
    Condition,
    Template,
    Reference,
    Capability,
    /// A Python, JavaScript or TypeScript file that is none.
    Script,
    /// A declaring constant of a script whose value a run would have to make.
    Constant,
}

impl SyntaxKind {
    /// The code without its `rye::` prefix, such as `syntax::xml`.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Xml => "syntax::xml",
            Self::Yaml => "syntax::yaml",
            Self::Fence => "syntax::fence",
            Self::Condition => "syntax::condition",
            Self::Template => "syntax::template",
            Self::Reference => "syntax::reference",
            Self::Capability => "syntax::capability",
            Self::Script => "syntax::script",
            Self::Constant => "syntax::constant",
        }
    }

    /// An error of this kind, with what stands under its span.
    pub fn error(self, span: Span, message: impl Into<String>, label: impl Into<String>) -> SyntaxError {
        SyntaxError { kind: self, message: message.into(), span, label: label.into(), help: None, other: None }
    }
}

impl SyntaxError {
    /// The code of its kind, such as `syntax::xml`.
    pub const fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// Every place to underline, the error's own first.
    pub fn labels(&self) -> Vec<(Span, &str)> {
        let other = self.other.map(|other| (other, "the first one"));
        std::iter::once((self.span, self.label.as_str())).chain(other).collect()
    }

    /// The same with what to change.
    #[must_use]
    pub fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// The same with help where there is some.
    #[must_use]
    pub fn with_help_if(self, help: Option<impl Into<String>>) -> Self {
        Self { help: help.map(Into::into), ..self }
    }

    /// The same with the place of the first of its kind.
    #[must_use]
    pub fn with_other(self, other: Span) -> Self {
        Self { other: Some(other), ..self }
    }

    /// The same error put inside `limit`: for texts whose offsets do not map onto their source byte by byte.
    #[must_use]
    pub fn within(self, limit: Span) -> Self {
        Self { span: limit, ..self }
    }
}
