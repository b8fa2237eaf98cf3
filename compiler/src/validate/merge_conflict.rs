//! Reports unresolved merge conflicts in texts that are sent to the model. A settings file with a conflict is invalid
//! YAML, which the parser reports.

use rye_grammar::{Span, Spanned};

use super::mistyped_placeholders::lines_outside_code;
use crate::diagnostics::{Diagnostics, ItemError};

/// Reports the first merge conflict outside of code: the marks `<<<<<<<`, `=======` and `>>>>>>>`, in this order.
pub fn check(text: &Spanned<String>, found: &mut Diagnostics) {
    let mut marks = ["<<<<<<< ", "=======", ">>>>>>> "].into_iter().peekable();
    let mut first = None;
    for (line, at) in lines_outside_code(&text.node) {
        if marks.peek().is_some_and(|mark| line.starts_with(mark)) {
            marks.next();
            first = first.or(Some((at, line.trim_end().len())));
        }
    }
    if let (None, Some((at, length))) = (marks.next(), first) {
        let start = text.span.start as usize + at;
        let is_verbatim = text.span.len() == text.node.len();
        let span = if is_verbatim { Span::new(text.span.source, start, start + length) } else { text.span };
        found.push(ItemError::OddText {
            code: "item::invalid-value",
            message: "the text contains an unresolved merge conflict, which is sent to the model".to_owned(),
            label: "starts here",
            help: "resolve the conflict; if the text is an example, put it in a code fence".to_owned(),
            span,
        });
    }
}
