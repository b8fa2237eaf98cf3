//! The lines of a chat for the scrollback of its terminal.

use super::ChatTerminal;
use crate::command::chat::approvals::OpenRequest;
use crate::command::chat::markdown::expand_tabs;
use crate::command::chat::screen::Row;
use crate::command::run::human::CapturedOutput;
use crate::present::wrap::fold_for_columns;
use crate::present::{BOLD, DIM, format_count};
use crate::report::printable;

/// Maximum number of lines of a message that are printed. A longer paste would fill the scrollback.
const MAX_ECHO_LINES: usize = 20;

impl ChatTerminal {
    /// Moves the output of the renderer to `finished`, the rows that are painted next. Text of the model is first
    /// rendered as Markdown.
    pub(super) fn take_output(&mut self) {
        for output in self.human.take_output() {
            match output {
                // The next frame renders all pieces that have arrived by then.
                CapturedOutput::Text(text) => self.markdown.push(&text),
                CapturedOutput::EndOfText => self.finish_text(),
                CapturedOutput::Lines(lines) => {
                    self.finish_text();
                    self.ends_with_blank = false;
                    self.finished.extend(self.folded_rows(&lines));
                }
            }
        }
    }

    /// Moves rows of the reply to `finished`, as soon as no later text can change the rows.
    pub(super) fn render_text(&mut self) {
        let rows = self.markdown.take_rows(self.columns());
        self.finished.extend(rows);
    }

    pub(super) fn finish_text(&mut self) {
        let rows = self.markdown.finish(self.columns());
        self.finished.extend(rows);
    }

    pub(super) fn note(&mut self, text: &str) {
        self.finish_text();
        self.ends_with_blank = false;
        let text: Vec<String> = text.lines().map(printable).collect();
        self.finished.extend(self.folded_rows(&text.join("\n")));
        self.is_dirty = true;
    }

    /// Returns the lines of a text as rows. A line that is too long is wrapped between words.
    fn folded_rows(&self, text: &str) -> Vec<Row> {
        let folded = |line: &str| fold_for_columns(&expand_tabs(line), self.columns());
        text.lines()
            .flat_map(|line| folded(line).split('\n').map(|row| Row::new(row.to_owned())).collect::<Vec<_>>())
            .collect()
    }

    /// Prints a message that the user has sent, shortened to [`MAX_ECHO_LINES`] lines.
    pub(super) fn echo(&mut self, text: &str) {
        self.finish_text();
        if !std::mem::take(&mut self.ends_with_blank) {
            self.finished.push(Row::default());
        }
        let text = printable(text);
        let hidden = text.lines().count().saturating_sub(MAX_ECHO_LINES);
        for (n, line) in text.lines().take(MAX_ECHO_LINES).enumerate() {
            let sign = if n == 0 { format!("{BOLD}>{BOLD:#} ") } else { "  ".to_owned() };
            self.finished.push(Row::new(format!("{sign}{}", expand_tabs(line))));
        }
        if hidden > 0 {
            let more = format_count(hidden as u64, "more line");
            self.finished.push(Row::new(format!("  {DIM}… {more}; /why last shows the whole text{DIM:#}")));
        }
        self.finished.push(Row::default());
        self.is_dirty = true;
    }

    /// Prints the last prompt and the last reply of a session that was opened again.
    pub(super) fn print_recap(&mut self) {
        let Some(recap) = self.session.recap.take() else { return };
        if recap.number > 1 {
            let earlier = recap.number - 1;
            self.note(&format!("{} before this prompt; /tree lists all prompts", format_count(earlier, "prompt")));
        }
        self.echo(&recap.prompt);
        self.markdown.push(&recap.reply);
        self.finish_text();
        if let Some(text) = recap.note() {
            self.finished.push(Row::new(format!("{DIM}{text}{DIM:#}")));
        }
        self.finished.push(Row::default());
        self.ends_with_blank = true;
    }

    pub(super) fn open_request(&mut self, question: &str) {
        self.finish_text();
        self.ends_with_blank = false;
        let (request, lines) = OpenRequest::open(question);
        self.finished.push(Row::default());
        self.finished.extend(self.folded_rows(&lines.join("\n")));
        self.request = Some(request);
        self.is_dirty = true;
    }
}
