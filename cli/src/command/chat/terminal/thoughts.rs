//! The thoughts of the model in the terminal of a chat, which a key shows and hides.

use rye_engine::event::EventBody;
use rye_engine::exchange::Delta;
use rye_engine::message::ContentBlock;

use super::ChatTerminal;
use crate::command::chat::markdown::expand_tabs;
use crate::command::chat::screen::Row;
use crate::present::DIM;
use crate::present::wrap::fold_for_columns;
use crate::report::printable;

/// The thoughts of the last reply, with the part of them that is printed.
#[derive(Debug, Default)]
pub(super) struct Thoughts {
    is_shown: bool,
    text: String,
    /// Number of bytes of `text` that are already printed.
    printed: usize,
    /// True if the next thought belongs to another reply.
    is_complete: bool,
}

impl Thoughts {
    /// Adds a received piece of the thoughts. Returns the complete lines that are not printed yet; empty while the
    /// thoughts are hidden.
    fn push(&mut self, text: &str) -> String {
        if std::mem::take(&mut self.is_complete) {
            (self.text, self.printed) = (String::new(), 0);
        }
        self.text.push_str(text);
        let end = self.text.rfind('\n').map_or(self.printed, |at| at + 1);
        self.take_up_to(end)
    }

    /// Ends the thoughts of a reply. Returns the text that is not printed yet; empty while thoughts are hidden.
    fn complete(&mut self) -> String {
        self.is_complete = true;
        self.take_up_to(self.text.len())
    }

    /// Completes the thoughts of a reply from the recorded reply, because not every provider streams thoughts. Returns
    /// the text to print: the rest of the streamed thoughts if they equal the recorded thoughts, else all recorded
    /// thoughts. The text is empty while thoughts are hidden.
    fn read_reply(&mut self, content: &[ContentBlock]) -> String {
        let text = |block: &ContentBlock| {
            if let ContentBlock::Thinking { text, .. } = block { Some(text.to_string()) } else { None }
        };
        let text = content.iter().filter_map(text).collect::<Vec<_>>().join("\n");
        let rest = self.complete();
        // If the provider streamed these thoughts, they are printed already.
        if self.printed > 0 && self.text.trim() == text.trim() {
            return rest;
        }
        (self.text, self.printed) = (text, 0);
        self.complete()
    }

    fn take_up_to(&mut self, end: usize) -> String {
        if !self.is_shown {
            return String::new();
        }
        let to = end.max(self.printed);
        let from = std::mem::replace(&mut self.printed, to);
        self.text.get(from..to).unwrap_or_default().to_owned()
    }

    /// Shows the thoughts from now on, or hides them. Returns the text to print: all thoughts of the last reply if the
    /// thoughts are now shown, else an empty text.
    fn toggle(&mut self) -> String {
        self.is_shown = !self.is_shown;
        self.printed = 0;
        self.take_up_to(self.text.len())
    }
}

impl ChatTerminal {
    /// Prints the thoughts that `delta` completes: the new complete lines after a piece of the thoughts, or the last
    /// line of the thoughts after the start of another part of the reply. Prints nothing while thoughts are hidden.
    pub(super) fn thought(&mut self, delta: &Delta) {
        let text = match delta {
            Delta::Thinking(text) => self.thoughts.push(text),
            Delta::Text(_) | Delta::ToolCallStarted { .. } | Delta::ToolCallInput { .. } => self.thoughts.complete(),
        };
        self.print_thoughts(&text);
    }

    /// Prints the thoughts of a recorded reply that are not printed yet.
    pub(super) fn recorded_thoughts(&mut self, body: &EventBody) {
        if let EventBody::CognitionOut(reply) = body {
            let text = self.thoughts.read_reply(&reply.content);
            self.print_thoughts(&text);
        }
    }

    /// Shows or hides the thoughts of the model.
    pub(super) fn toggle_thoughts(&mut self) {
        let text = self.thoughts.toggle();
        self.print_thoughts(&text);
        let hidden = "the thoughts of the model are hidden";
        let shown = "the thoughts of the model are shown; {app.thinking.toggle} turns this off";
        self.hint = Some(if self.thoughts.is_shown { shown } else { hidden });
    }

    fn print_thoughts(&mut self, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        self.render_text();
        self.ends_with_blank = false;
        for line in text.lines() {
            let folded = fold_for_columns(&expand_tabs(&printable(line)), self.columns());
            let rows = folded.split('\n').map(|row| Row::new(format!("{DIM}{row}{DIM:#}")));
            self.finished.extend(rows.collect::<Vec<_>>());
        }
        self.is_dirty = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_thoughts_are_printed_once_and_line_by_line() {
        let mut thoughts = Thoughts { is_shown: true, ..Thoughts::default() };
        assert_eq!(thoughts.push("one\ntw"), "one\n");
        assert_eq!(thoughts.push("o"), "");
        assert_eq!(thoughts.complete(), "two");
        let block = |text: &str| ContentBlock::Thinking { text: text.into(), signature: None };
        assert_eq!(thoughts.read_reply(&[block("one\ntwo")]), "");
        // The next reply was not streamed.
        assert_eq!(thoughts.read_reply(&[block("three")]), "three");
        assert_eq!(thoughts.push("four\n"), "four\n");
    }

    #[test]
    fn hidden_thoughts_of_the_last_reply_are_printed_when_they_are_shown() {
        let mut thoughts = Thoughts::default();
        assert_eq!((thoughts.push("old\n"), thoughts.complete()), (String::new(), String::new()));
        thoughts.push("new\n");
        thoughts.complete();
        assert_eq!(thoughts.toggle(), "new\n");
        assert_eq!(thoughts.toggle(), "");
    }
}
