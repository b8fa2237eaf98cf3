//! A filter for streamed replies that removes the calls from the text.

use super::code_blocks::CodeBlocks;
use super::{CALL_END, CALL_START};

/// A filter that removes tool calls from streamed text. The value is the state of the filter between two pieces of the
/// text.
#[derive(Debug, Default)]
pub(super) struct CallFilter {
    /// The current line, without the calls that ended in this line.
    line: String,
    /// Number of bytes of `line` that were already returned for display.
    done: usize,
    place: LinePlace,
    blocks: CodeBlocks,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum LinePlace {
    #[default]
    Plain,
    Call,
    /// A call has ended in the current line. White space that follows belongs to the call.
    BehindCall,
}

impl CallFilter {
    /// Adds a piece of text. Returns the text that can be displayed now, which may include earlier text that was held
    /// back.
    pub fn push(&mut self, more: &str) -> String {
        let mut out = String::new();
        for piece in more.split_inclusive('\n') {
            self.line.push_str(piece);
            while self.enter_or_leave_call() {}
            if !self.may_belong_to_call() {
                out.push_str(self.line.get(self.done..).unwrap_or_default());
                self.done = self.line.len();
            }
            if self.line.ends_with('\n') {
                if self.place != LinePlace::Call {
                    self.blocks.end_line(&self.line);
                    self.place = LinePlace::Plain;
                }
                self.line.clear();
                self.done = 0;
            }
        }
        out
    }

    /// Enters a call if the line starts with the start tag, or leaves the current call if the line contains the end
    /// tag. In both cases, removes the line up to the end of the tag and returns true.
    fn enter_or_leave_call(&mut self) -> bool {
        let (mark, then) = match self.place {
            LinePlace::Plain | LinePlace::BehindCall
                if self.blocks.contains(&self.line) || !self.line.trim_start().starts_with(CALL_START) =>
            {
                return false;
            }
            LinePlace::Plain | LinePlace::BehindCall => (CALL_START, LinePlace::Call),
            LinePlace::Call => (CALL_END, LinePlace::BehindCall),
        };
        let Some(at) = self.line.find(mark) else { return false };
        self.line.drain(..at + mark.len());
        (self.done, self.place) = (0, then);
        true
    }

    /// Returns true if the line must not be displayed yet. This is so if the line is part of a call, if it may become
    /// the first line of a call, or if it is white space after a call.
    fn may_belong_to_call(&self) -> bool {
        let line_start = self.line.trim_start();
        let may_begin =
            !self.line.ends_with('\n') && !self.blocks.contains(&self.line) && CALL_START.starts_with(line_start);
        match self.place {
            LinePlace::Call => true,
            LinePlace::Plain => may_begin,
            LinePlace::BehindCall => may_begin || line_start.is_empty(),
        }
    }

    /// Ends the text. Returns the rest that can be displayed: text that was held back and is not part of a call.
    pub fn take_rest(&mut self) -> String {
        let hidden = match self.place {
            LinePlace::Call => true,
            LinePlace::BehindCall => self.line.trim().is_empty(),
            LinePlace::Plain => false,
        };
        let rest = if hidden { "" } else { self.line.get(self.done..).unwrap_or_default() };
        let rest = rest.to_owned();
        self.line.clear();
        self.done = 0;
        rest
    }
}
