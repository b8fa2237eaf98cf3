//! What is shown of a reply while it streams in: its text without the calls.

use super::{CLOSE, OPEN};

/// The state between two pieces of text.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// The line under way, and how many bytes of it have been shown.
    line: String,
    done: usize,
    fenced: bool,
    in_call: bool,
}

impl Shown {
    /// Takes more text; what of it, and of what was held back, can be shown.
    pub fn push(&mut self, more: &str) -> String {
        let mut out = String::new();
        for piece in more.split_inclusive('\n') {
            self.line.push_str(piece);
            let begun = self.line.trim_start();
            if !self.in_call && !self.fenced && begun.starts_with(OPEN) {
                self.in_call = true;
            }
            // A line that may yet turn out to begin a call waits.
            let waits = !self.fenced && OPEN.starts_with(begun.trim_end_matches('\n')) && !self.line.ends_with('\n');
            if !self.in_call && !waits {
                out.push_str(self.line.get(self.done..).unwrap_or_default());
                self.done = self.line.len();
            }
            if self.in_call && self.line.contains(CLOSE) {
                self.in_call = false;
                self.done = self.line.len();
            }
            if self.line.ends_with('\n') {
                if !self.in_call && self.line.trim_start().starts_with("```") {
                    self.fenced = !self.fenced;
                }
                self.line.clear();
                self.done = 0;
            }
        }
        out
    }

    /// What was held back and turned out to be plain.
    pub fn rest(&mut self) -> String {
        let rest = if self.in_call { "" } else { self.line.get(self.done..).unwrap_or_default() };
        let rest = rest.to_owned();
        self.line.clear();
        self.done = 0;
        rest
    }
}
