//! `syntax::*`: the errors of the grammar as diagnostics.

use rye_grammar::SyntaxError;

use super::{Label, Problem, new_label};

impl Problem for SyntaxError {
    fn code(&self) -> &'static str {
        self.kind.code()
    }

    fn help(&self) -> Option<String> {
        self.help.clone()
    }

    fn labels(&self) -> Vec<Label> {
        SyntaxError::labels(self).into_iter().map(|(span, text)| new_label(span, text)).collect()
    }
}
