//! Syntax errors as data: the kind of text, the span, the fix. Callers render them.

use thiserror::Error;

use crate::span::Span;

/// An error in the syntax of a text, with its place and a suggested fix.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{message}")]
pub struct SyntaxError {
    pub kind: SyntaxKind,
    pub message: String,
    /// The span of the text that the error is about.
    pub span: Span,
    /// The short text that a rendered error shows below the span.
    pub label: String,
    /// The suggested fix; `None` if there is none.
    pub help: Option<String>,
    /// The span of the first occurrence, if the error is about a duplicate.
    pub other: Option<Span>,
    /// Replacements that correct the error without a decision by the user; empty if there is none.
    pub replacements: Box<[(Span, String)]>,
    /// True if the tree lacks parts of the text because of this error. A part that is missing in the tree is then not
    /// reported as another error.
    pub loses_content: bool,
}

/// The language whose syntax is violated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyntaxKind {
    Xml,
    Yaml,
    Fence,
    Condition,
    Template,
    Reference,
    Capability,
    /// An invalid Python, JavaScript or TypeScript file.
    Script,
    /// A constant of a script tool whose value is not a literal, or that gets a value twice.
    Constant,
}

impl SyntaxKind {
    /// Returns the diagnostic code of this kind without the prefix `rye::`, such as `syntax::xml`.
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

    /// Creates an error of this kind. `label` is the text under the span.
    pub fn error(self, span: Span, message: impl Into<String>, label: impl Into<String>) -> SyntaxError {
        SyntaxError {
            kind: self,
            message: message.into(),
            span,
            label: label.into(),
            help: None,
            other: None,
            replacements: Box::default(),
            loses_content: false,
        }
    }
}

impl SyntaxError {
    /// Returns the diagnostic code of the error's kind, such as `syntax::xml`.
    pub const fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// Returns every labeled span, the error's own first.
    pub fn labels(&self) -> Vec<(Span, &str)> {
        let other = self.other.map(|other| (other, "the first one"));
        std::iter::once((self.span, self.label.as_str())).chain(other).collect()
    }

    /// Adds a suggested fix.
    #[must_use]
    pub fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// Adds a suggested fix, if there is one.
    #[must_use]
    pub fn with_help_if(self, help: Option<impl Into<String>>) -> Self {
        Self { help: help.map(Into::into), ..self }
    }

    /// Adds the span of the first occurrence, for an error about a duplicate.
    #[must_use]
    pub(crate) fn with_secondary(self, other: Span) -> Self {
        Self { other: Some(other), ..self }
    }

    /// Adds a replacement that corrects the error.
    #[must_use]
    pub(crate) fn with_replacement(self, span: Span, text: impl Into<String>) -> Self {
        let mut all = self.replacements.into_vec();
        all.push((span, text.into()));
        Self { replacements: all.into(), ..self }
    }

    /// Records that the tree lacks a part of the text because of this error.
    #[must_use]
    pub(crate) fn with_lost_content(self) -> Self {
        Self { loses_content: true, ..self }
    }

    /// Replaces the span with `limit` and removes the replacements. Callers use this if escapes make offsets in the
    /// parsed text differ from offsets in the source.
    #[must_use]
    pub fn within(self, limit: Span) -> Self {
        Self { span: limit, replacements: Box::default(), ..self }
    }
}
