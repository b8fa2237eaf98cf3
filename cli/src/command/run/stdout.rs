//! Stdout of a run, or its output captured for the terminal of a chat. Records whether the last line is complete, and
//! whether the reader has closed the pipe.

use std::io::{self, Write};

use crate::report::printable;

/// Maximum bytes of one write. A longer text is written in pieces, because each write copies its text and a text can
/// have many megabytes.
const MAX_WRITE_BYTES: usize = 64 * 1024;

#[derive(Debug, Default)]
pub struct Stdout {
    /// True if the last output is not a complete line.
    open_line: bool,
    /// The first write error. Later output is discarded, and the run continues.
    write_error: Option<io::Error>,
    /// The output so far, if the terminal of a chat renders it; `None` if output is written to stdout.
    captured: Option<Vec<CapturedOutput>>,
}

/// A piece of output for the terminal of a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CapturedOutput {
    /// Text of the model.
    Text(String),
    /// The end of the model's text, or a place at which other output interrupts the text.
    EndOfText,
    /// Lines with styles.
    Lines(String),
}

impl Stdout {
    /// Creates an output that is captured instead of printed.
    pub fn captured() -> Self {
        Self { captured: Some(Vec::new()), ..Self::default() }
    }

    /// Stores `output` and returns `None` if the output is captured; otherwise returns `output`, to be printed.
    pub fn capture(&mut self, output: CapturedOutput) -> Option<CapturedOutput> {
        match &mut self.captured {
            Some(captured) => {
                captured.push(output);
                None
            }
            None => Some(output),
        }
    }

    /// Returns true if the output is captured for the terminal of a chat.
    pub fn is_captured(&self) -> bool {
        self.captured.is_some()
    }

    /// Returns the captured output and clears it.
    pub fn take_captured(&mut self) -> Vec<CapturedOutput> {
        self.captured.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub fn text(&mut self, text: &str) {
        if self.write_error.is_some() || text.is_empty() {
            return;
        }
        self.open_line = !text.ends_with('\n');
        if self.captured.is_some() {
            self.capture(CapturedOutput::Text(text.to_owned()));
            return;
        }
        let mut out = anstream::stdout().lock();
        let mut rest = text;
        while !rest.is_empty() && self.write_error.is_none() {
            let (part, after) = rest.split_at(rest.floor_char_boundary(MAX_WRITE_BYTES));
            self.write_error = out.write_all(printable(part).as_bytes()).err();
            rest = after;
        }
        self.write_error = self.write_error.take().or_else(|| out.flush().err());
    }

    /// Returns true if the last output is not a complete line.
    pub fn has_open_line(&self) -> bool {
        self.open_line
    }

    pub fn line(&mut self, text: &str) {
        self.text(&format!("{text}\n"));
    }

    /// Returns the first write error, if there was one, and clears it.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.write_error.take()
    }

    /// Ends an incomplete line, so that the next output starts a new one.
    pub fn end_line(&mut self) {
        if self.capture(CapturedOutput::EndOfText).is_none() {
            self.open_line = false;
        }
        if self.open_line {
            self.text("\n");
        }
    }
}
