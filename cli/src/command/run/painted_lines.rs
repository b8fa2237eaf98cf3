//! Lines that are painted below the output of a terminal, and painted again in the same place.
//!
//! The cursor stays at the start of the first line, and a line that is too wide is cut. The lines can therefore be
//! erased after the terminal was resized, even if the program does not know the new size.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};

use rustix::io::ioctl_fionread;

/// Turns automatic wrapping off, so that each line takes one row.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

/// The lines that the terminal shows, at the cursor and below it.
#[derive(Debug, Default)]
pub struct PaintedLines {
    is_painted: bool,
    /// Number of bytes that the user had entered and no program had read when the lines were painted.
    entered: u64,
}

impl PaintedLines {
    /// Paints `lines` over the lines that were painted before. Ignores write errors, because a run continues without
    /// its progress display.
    pub fn paint(&mut self, lines: &[String]) {
        let entered = entered_bytes();
        // The echo of Enter has moved the cursor down by one line. More than one new line since the last repaint is
        // unlikely. Counting the lines would mean reading them, but the next program must be able to read them.
        let is_echoed = entered > self.entered && self.is_painted;
        self.entered = entered;
        let text = self.replace(lines, is_echoed);
        io::stderr().lock().write_all(text.as_bytes()).ok();
    }

    /// Removes the painted lines from the terminal.
    pub fn clear(&mut self) {
        if self.is_painted {
            self.paint(&[]);
        }
    }

    /// Returns the text that replaces the painted lines by `lines`. The text contains escape sequences. `is_echoed` is
    /// true if the cursor is one row below the first painted line. Records whether lines are painted.
    fn replace(&mut self, lines: &[String], is_echoed: bool) -> String {
        let mut text = "\r".to_owned();
        if is_echoed {
            text.push_str("\x1b[1A");
        }
        text.push_str("\x1b[J");
        self.is_painted = !lines.is_empty();
        if self.is_painted {
            text.push_str(NO_WRAP);
            text.push_str(&lines.join("\r\n"));
            text.push_str(WRAP);
            text.push('\r');
        }
        if lines.len() > 1 {
            // Writing to a string cannot fail.
            write!(text, "\x1b[{}A", lines.len() - 1).ok();
        }
        text
    }
}

/// Returns the number of bytes in the entered and still unread lines of the terminal; 0 if
/// stdin is no terminal.
fn entered_bytes() -> u64 {
    let stdin = io::stdin();
    if stdin.is_terminal() { ioctl_fionread(&stdin).unwrap_or(0) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_replaced_in_place() {
        let mut painted = PaintedLines::default();
        let two = ["x".repeat(50), "child".to_owned()];
        let painted_two = format!("\r\x1b[J\x1b[?7l{}\r\nchild\x1b[?7h\r\x1b[1A", two[0]);
        assert_eq!(painted.replace(&two, false), painted_two);
        assert_eq!(painted.replace(&two[1..], false), "\r\x1b[J\x1b[?7lchild\x1b[?7h\r");
        assert_eq!(painted.replace(&[], false), "\r\x1b[J");
        // The echo of Enter has moved the cursor below the first line.
        painted.replace(&two, false);
        assert_eq!(painted.replace(&[], true), "\r\x1b[1A\x1b[J");
    }
}
