//! `syntax::*`: the errors of the grammar as diagnostics.

use rye_grammar::SyntaxError;

use super::{Label, Problem, label};

impl Problem for SyntaxError {
    fn code(&self) -> &'static str {
        self.kind.code()
    }

    fn help(&self) -> Option<String> {
        self.help.clone()
    }

    fn labels(&self) -> Vec<Label> {
        SyntaxError::labels(self).into_iter().map(|(span, text)| label(span, text)).collect()
    }
}
