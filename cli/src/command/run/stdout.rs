//! Stdout of a run. Records if the last line is complete and if the reader has closed the pipe.

use std::io::{self, Write};

use crate::report::printable;

#[derive(Debug, Default)]
pub struct Stdout {
    /// True if the last output is not a complete line.
    open_line: bool,
    /// First write error; later output is discarded, and the run continues.
    gone: Option<io::Error>,
}

impl Stdout {
    pub fn text(&mut self, text: &str) {
        if self.gone.is_some() || text.is_empty() {
            return;
        }
        let mut out = anstream::stdout().lock();
        self.gone = out.write_all(printable(text).as_bytes()).and_then(|()| out.flush()).err();
        self.open_line = !text.ends_with('\n');
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
        if self.open_line {
            self.text("\n");
        }
    }
}
