//! Lines that are painted below the output of a terminal, and painted again in the same place.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use unicode_width::UnicodeWidthStr;

/// Columns that stay free at the end of each line, so that the echo of a key such as `^C` does not wrap.
pub const ECHO_COLUMNS: usize = 3;

/// The lines that the terminal shows, at the cursor and above it.
#[derive(Debug, Default)]
pub struct PaintedLines {
    /// The width of each line, in columns.
    widths: Vec<usize>,
}

impl PaintedLines {
    /// Paints `lines` over the lines that were painted before. `columns` is the current width of the terminal. Errors
    /// are ignored: lost progress does not stop a run.
    pub fn paint(&mut self, lines: &[String], columns: usize) {
        let text = self.replace(lines, columns);
        io::stderr().lock().write_all(text.as_bytes()).ok();
    }

    /// Removes the lines. `columns` returns the current width of the terminal.
    pub fn clear(&mut self, columns: impl FnOnce() -> usize) {
        if !self.widths.is_empty() {
            self.paint(&[], columns());
        }
    }

    /// Returns the text, with escape sequences, that replaces the painted lines by `lines` on a terminal that is
    /// `columns` wide. The new lines count as painted.
    fn replace(&mut self, lines: &[String], columns: usize) -> String {
        // A terminal that became narrower has wrapped the painted lines.
        let rows: usize = self.widths.iter().map(|width| width.div_ceil(columns.max(1)).max(1)).sum();
        let mut text = "\r".to_owned();
        if rows > 1 {
            // Writing to a string cannot fail.
            write!(text, "\x1b[{}A", rows - 1).ok();
        }
        text.push_str("\x1b[J");
        text.push_str(&lines.join("\r\n"));
        self.widths = lines.iter().map(|line| line.width()).collect();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_replaced_in_place_also_after_the_terminal_became_narrower() {
        let mut painted = PaintedLines::default();
        let two = ["x".repeat(50), "child".to_owned()];
        assert_eq!(painted.replace(&two, 80), format!("\r\x1b[J{}\r\nchild", two[0]));
        assert_eq!(painted.replace(&two[1..], 80), "\r\x1b[1A\x1b[Jchild");
        painted.replace(&two, 80);
        // The first line takes three rows of 20 columns.
        assert_eq!(painted.replace(&[], 20), "\r\x1b[3A\x1b[J");
        assert_eq!(painted.replace(&[], 20), "\r\x1b[J");
    }
}
