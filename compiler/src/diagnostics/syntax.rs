//! `syntax::*`: what the grammar found, as every other problem answers.

use rye_grammar::{Span, SyntaxError};

use super::{Label, Problem, label};

impl Problem for SyntaxError {
    fn code(&self) -> &'static str {
        parts(self).code
    }

    fn help(&self) -> Option<String> {
        parts(self).help.clone()
    }

    fn labels(&self) -> Vec<Label> {
        let parts = parts(self);
        let other = parts.other.map(|span| label(span, "the first one"));
        std::iter::once(label(parts.span, parts.label)).chain(other).collect()
    }
}

struct Parts<'e> {
    code: &'static str,
    span: Span,
    label: &'e str,
    help: &'e Option<String>,
    other: Option<Span>,
}

fn parts(error: &SyntaxError) -> Parts<'_> {
    let (code, span, label, help, other) = match error {
        SyntaxError::Xml { span, label, help, .. } => ("syntax::xml", span, label, help, None),
        SyntaxError::Yaml { span, label, help, .. } => ("syntax::yaml", span, label, help, None),
        SyntaxError::Fence { span, label, help, other, .. } => ("syntax::fence", span, label, help, *other),
        SyntaxError::Condition { span, label, help, .. } => ("syntax::condition", span, label, help, None),
        SyntaxError::Template { span, label, help, .. } => ("syntax::template", span, label, help, None),
        SyntaxError::Reference { span, label, help, .. } => ("syntax::reference", span, label, help, None),
        SyntaxError::Capability { span, label, help, .. } => ("syntax::capability", span, label, help, None),
        SyntaxError::Script { span, label, help, .. } => ("syntax::script", span, label, help, None),
        SyntaxError::Constant { span, label, help, .. } => ("syntax::constant", span, label, help, None),
    };
    Parts { code, span: *span, label, help, other }
}
