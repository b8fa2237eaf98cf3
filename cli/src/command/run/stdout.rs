//! Stdout of a run, or its output captured for the terminal of a chat. Records if the last line is complete and if the
//! reader has closed the pipe.

use std::io::{self, Write};

use crate::report::printable;

#[derive(Debug, Default)]
pub struct Stdout {
    /// True if the last output is not a complete line.
    open_line: bool,
    /// First write error; later output is discarded, and the run continues.
    gone: Option<io::Error>,
    /// The output, if the terminal of a chat renders it.
    captured: Option<Vec<CapturedOutput>>,
}

/// A piece of output for the terminal of a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CapturedOutput {
    /// Text of the model.
    Text(String),
    /// The text of the model ends, or other output follows.
    EndOfText,
    /// Lines with styles.
    Lines(String),
}

impl Stdout {
    /// Creates an output that is captured instead of printed.
    pub fn captured() -> Self {
        Self { captured: Some(Vec::new()), ..Self::default() }
    }

    /// Captures a piece; returns it if the output is printed.
    pub fn capture(&mut self, output: CapturedOutput) -> Option<CapturedOutput> {
        match &mut self.captured {
            Some(captured) => {
                captured.push(output);
                None
            }
            None => Some(output),
        }
    }

    /// Returns true if the output is captured.
    pub fn is_captured(&self) -> bool {
        self.captured.is_some()
    }

    /// Takes the captured output.
    pub fn take_captured(&mut self) -> Vec<CapturedOutput> {
        self.captured.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub fn text(&mut self, text: &str) {
        if self.gone.is_some() || text.is_empty() {
            return;
        }
        self.open_line = !text.ends_with('\n');
        if self.captured.is_some() {
            self.capture(CapturedOutput::Text(text.to_owned()));
            return;
        }
        let mut out = anstream::stdout().lock();
        self.gone = out.write_all(printable(text).as_bytes()).and_then(|()| out.flush()).err();
    }

    /// Returns true if the last output is not a complete line.
    pub fn has_open_line(&self) -> bool {
        self.open_line
    }

    pub fn line(&mut self, text: &str) {
        self.text(&format!("{text}\n"));
    }

    /// Takes the first write error, if there was one.
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.gone.take()
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
