//! Lines that are painted below the output of a terminal, and painted again in the same place.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};

use rustix::io::ioctl_fionread;
use unicode_width::UnicodeWidthStr;

/// Columns that stay free at the end of each line, so that the echo of a key such as `^C` does not wrap.
pub const ECHO_COLUMNS: usize = 3;

/// The lines that the terminal shows, at the cursor and above it.
#[derive(Debug, Default)]
pub struct PaintedLines {
    /// The width of each line, in columns.
    widths: Vec<usize>,
    /// Number of bytes that the user had entered and no program had read when the lines were painted.
    entered: u64,
}

impl PaintedLines {
    /// Paints `lines` over the lines that were painted before. `columns` is the current width of the terminal. Errors
    /// are ignored: lost progress does not stop a run.
    pub fn paint(&mut self, lines: &[String], columns: usize) {
        let entered = entered_bytes();
        // The echo of Enter has moved the cursor down by one line. More than one new line since the last repaint is
        // unlikely. Counting the lines would mean reading them, but the next program must be able to read them.
        let echoed = usize::from(entered > self.entered && !self.widths.is_empty());
        self.entered = entered;
        let text = self.replace(lines, columns, echoed);
        io::stderr().lock().write_all(text.as_bytes()).ok();
    }

    /// Removes the lines. `columns` returns the current width of the terminal.
    pub fn clear(&mut self, columns: impl FnOnce() -> usize) {
        if !self.widths.is_empty() {
            self.paint(&[], columns());
        }
    }

    /// Returns the text that replaces the painted lines by `lines` on a terminal that is `columns` wide. The text
    /// contains escape sequences. `echoed` is the number of rows between the painted lines and the cursor. Records
    /// `lines` as the painted lines.
    fn replace(&mut self, lines: &[String], columns: usize, echoed: usize) -> String {
        // A terminal that became narrower has wrapped the painted lines.
        let rows: usize = self.widths.iter().map(|width| width.div_ceil(columns.max(1)).max(1)).sum();
        let mut text = "\r".to_owned();
        let above = rows.saturating_sub(1) + echoed;
        if above > 0 {
            // Writing to a string cannot fail.
            write!(text, "\x1b[{above}A").ok();
        }
        text.push_str("\x1b[J");
        text.push_str(&lines.join("\r\n"));
        self.widths = lines.iter().map(|line| line.width()).collect();
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
    fn lines_are_replaced_in_place_also_after_the_terminal_became_narrower() {
        let mut painted = PaintedLines::default();
        let two = ["x".repeat(50), "child".to_owned()];
        assert_eq!(painted.replace(&two, 80, 0), format!("\r\x1b[J{}\r\nchild", two[0]));
        assert_eq!(painted.replace(&two[1..], 80, 0), "\r\x1b[1A\x1b[Jchild");
        painted.replace(&two, 80, 0);
        // The first line takes three rows of 20 columns.
        assert_eq!(painted.replace(&[], 20, 0), "\r\x1b[3A\x1b[J");
        assert_eq!(painted.replace(&[], 20, 0), "\r\x1b[J");
        // The echo of Enter has moved the cursor below the lines.
        painted.replace(&two, 80, 0);
        assert_eq!(painted.replace(&two, 80, 1), format!("\r\x1b[2A\x1b[J{}\r\nchild", two[0]));
    }
}
