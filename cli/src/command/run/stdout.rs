//! Stdout as a run writes it: piece by piece, with an eye on whether a line is open and on whether anybody reads.

use std::io::{self, Write};

use crate::report::printable;

#[derive(Debug, Default)]
pub struct Stdout {
    /// The last thing written is no whole line.
    open_line: bool,
    /// Why nothing is written any more: the rest goes nowhere, and the run goes on.
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

    pub fn line(&mut self, text: &str) {
        self.text(&format!("{text}\n"));
    }

    /// Why not everything was written, if so.
    pub fn trouble(&mut self) -> Option<io::Error> {
        self.gone.take()
    }

    /// Ends a line that is open, so that what follows begins one.
    pub fn end_line(&mut self) {
        if self.open_line {
            self.text("\n");
        }
    }
}
