//! The screen of a chat: finished lines that the terminal keeps in its scrollback, and below them a viewport of a few
//! rows that is repainted.
//!
//! A frame moves the cursor only relative to the first row of the viewport, and turns automatic wrapping off while it
//! paints rows. A frame is therefore still correct if the terminal was resized before it processed the frame.
//!
//! A row above the cursor that is wider than the resized terminal takes more rows if the terminal was resized after it
//! processed the frame, and is cut otherwise. The program cannot detect which of the two cases applies. For a short
//! time after a change of the size, the cursor therefore stays in the first column of the first row, where no row is
//! above it.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::time::Instant;
use unicode_width::UnicodeWidthStr;

/// Minimum width of a terminal, in columns, for a chat with a screen. In a narrower terminal, the chat prints plain
/// lines.
pub const MIN_COLUMNS: u16 = 20;
/// Hides the cursor, and starts a synchronized update: the terminal shows the frame as a whole.
const BEGIN_FRAME: &str = "\x1b[?2026h\x1b[?25l";
const END_FRAME: &str = "\x1b[?2026l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const ERASE_BELOW: &str = "\x1b[J";
/// Maximum bytes of a text that is copied to the clipboard. Terminals ignore longer texts.
const MAX_CLIPBOARD_BYTES: usize = 74_000;
const RESET_STYLE: &str = "\x1b[0m";
/// Time after a change of the size in which a second change may have happened that the terminal has not reported yet.
/// tmux reports a second change 250 ms late.
const RESIZE_SETTLE: Duration = Duration::from_millis(600);
/// Turns automatic wrapping off and saves the cursor.
const BEGIN_ROWS: &str = "\x1b[?7l\x1b7";
const END_ROWS: &str = "\x1b8\x1b[?7h";

/// A row of the viewport, or a finished line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    /// The text. The only control characters in it are those that set styles.
    text: String,
    /// Width of the text, in columns.
    width: usize,
}

/// The rows of a frame, and the position of the cursor among them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Viewport {
    pub rows: Vec<Row>,
    /// The row and the column of the cursor. If `None`, the cursor is hidden in the first column of the first row.
    pub cursor: Option<(usize, usize)>,
    /// True if the cursor is invisible at its position, where an input method still shows its text.
    pub hides_cursor: bool,
}

/// The size of a terminal, in columns and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    pub columns: u16,
    pub rows: u16,
}

impl TerminalSize {
    /// Returns the number of rows that a viewport may have: two fifths of the terminal, at least three rows if they
    /// fit.
    pub fn viewport_rows(self) -> usize {
        let rows = usize::from(self.rows);
        (rows * 2 / 5).max(3).min(rows.saturating_sub(1)).max(1)
    }
}

/// The screen of a chat, with the rows that are painted on the terminal now.
#[derive(Debug)]
pub struct Screen<W> {
    out: W,
    size: TerminalSize,
    /// The rows on the terminal; empty before the first frame.
    painted: Vec<Row>,
    /// The row and the column of the cursor within the painted rows.
    cursor: (usize, usize),
    /// True if the terminal may show something other than the painted rows.
    is_stale: bool,
    has_color: bool,
    frame: Viewport,
    /// The time until which the cursor is hidden, because the size may still change; `None` if the size is stable.
    unsettled_until: Option<Instant>,
}

impl Row {
    /// Creates a row from text with styles. `text` contains no control characters other than those of styles.
    pub fn new(text: String) -> Self {
        let width = visible_width(&text);
        Self { text, width }
    }

    pub fn width(&self) -> usize {
        self.width
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Returns the width of a text in columns. Escape sequences, which set the styles, take no columns.
pub fn visible_width(text: &str) -> usize {
    let mut width = 0;
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\x1b') {
        width += before.width();
        let end = after.find(|c: char| c.is_ascii_alphabetic()).map_or(after.len(), |at| at + 1);
        rest = after.get(end..).unwrap_or_default();
    }
    width + rest.width()
}

/// Removes the styles of a text.
fn without_styles(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\x1b') {
        plain.push_str(before);
        let end = after.find(|c: char| c.is_ascii_alphabetic()).map_or(after.len(), |at| at + 1);
        rest = after.get(end..).unwrap_or_default();
    }
    plain.push_str(rest);
    plain
}

impl<W: Write> Screen<W> {
    pub fn new(out: W, size: TerminalSize, has_color: bool) -> Self {
        Self {
            out,
            size,
            painted: Vec::new(),
            cursor: (0, 0),
            is_stale: true,
            has_color,
            frame: Viewport::default(),
            unsettled_until: None,
        }
    }

    pub fn size(&self) -> TerminalSize {
        self.size
    }

    /// Records a new size of the terminal. The terminal has wrapped each painted row that is now too wide, which moves
    /// the cursor.
    pub fn resize(&mut self, size: TerminalSize) {
        if size == self.size {
            return;
        }
        let columns = usize::from(size.columns.max(1));
        let (row, column) = self.cursor;
        let wrapped = |width: usize| width.div_ceil(columns).max(1);
        let above: usize = self.painted.iter().take(row).map(|row| wrapped(row.width)).sum();
        self.cursor = (above + column / columns, 0);
        self.size = size;
        self.is_stale = true;
        self.unsettled_until = Some(Instant::now() + RESIZE_SETTLE);
    }

    /// Returns the time at which the next frame shows the cursor again; `None` if the size has not changed lately.
    pub fn unsettled_until(&self) -> Option<Instant> {
        self.unsettled_until
    }

    /// Prints finished lines above the viewport, and paints the viewport. Writes nothing if nothing has changed.
    ///
    /// # Errors
    /// The terminal was closed.
    pub fn paint(&mut self, finished: &[Row], mut next: Viewport) -> io::Result<()> {
        self.unsettled_until = self.unsettled_until.filter(|until| Instant::now() < *until);
        if self.unsettled_until.is_some() {
            next.cursor = None;
        }
        if !self.is_stale && finished.is_empty() && next == self.frame {
            return Ok(());
        }
        let is_whole = self.is_stale || !finished.is_empty() || next.rows.len() < self.painted.len();
        let mut frame = String::from(BEGIN_FRAME);
        self.move_to_top(&mut frame);
        if is_whole {
            frame.push_str(ERASE_BELOW);
        }
        for line in finished {
            self.push_text(&mut frame, &line.text);
            frame.push_str("\r\n");
        }
        let below = next.rows.len().saturating_sub(1);
        if is_whole || next.rows.len() > self.painted.len() {
            // Makes room for the viewport: the terminal scrolls if the cursor is in its last row.
            frame.push_str(&"\n".repeat(below));
            push_motion(&mut frame, below, 'A');
        }
        frame.push_str(BEGIN_ROWS);
        let mut at = 0;
        for (n, row) in next.rows.iter().enumerate() {
            if !is_whole && self.painted.get(n) == Some(row) {
                continue;
            }
            push_motion(&mut frame, n - at, 'B');
            at = n;
            frame.push('\r');
            self.push_text(&mut frame, &row.text);
            if !is_whole {
                frame.push_str("\x1b[K");
            }
        }
        frame.push_str(END_ROWS);
        if let Some((row, column)) = next.cursor {
            push_motion(&mut frame, row, 'B');
            push_motion(&mut frame, column, 'C');
            if !next.hides_cursor {
                frame.push_str(SHOW_CURSOR);
            }
        }
        frame.push_str(END_FRAME);
        self.cursor = next.cursor.unwrap_or_default();
        self.painted.clone_from(&next.rows);
        self.frame = next;
        self.is_stale = false;
        self.out.write_all(frame.as_bytes())?;
        self.out.flush()
    }

    /// Removes the viewport (the repainted rows at the end of the output), so that other output can follow.
    ///
    /// # Errors
    /// The terminal was closed.
    pub fn clear(&mut self) -> io::Result<()> {
        let mut frame = String::new();
        self.move_to_top(&mut frame);
        frame.push_str(ERASE_BELOW);
        frame.push_str(SHOW_CURSOR);
        self.invalidate_frame();
        self.out.write_all(frame.as_bytes())?;
        self.out.flush()
    }

    /// Copies a text to the clipboard of the terminal (OSC 52). Returns false if the text is too long for terminals.
    ///
    /// # Errors
    /// The terminal was closed.
    pub fn copy(&mut self, text: &str) -> io::Result<bool> {
        if text.len() > MAX_CLIPBOARD_BYTES {
            return Ok(false);
        }
        write!(self.out, "\x1b]52;c;{}\x07", STANDARD.encode(text))?;
        self.out.flush()?;
        Ok(true)
    }

    /// Forgets the painted rows, because other programs have written to the terminal. The next frame starts in the row
    /// of the cursor.
    pub fn invalidate_frame(&mut self) {
        self.painted.clear();
        self.cursor = (0, 0);
        self.is_stale = true;
    }

    /// Clears the terminal, because another program has written to it. The scrollback stays.
    ///
    /// # Errors
    /// The terminal was closed.
    pub fn clear_all(&mut self) -> io::Result<()> {
        self.invalidate_frame();
        self.out.write_all(b"\x1b[H\x1b[J")?;
        self.out.flush()
    }

    fn move_to_top(&self, frame: &mut String) {
        frame.push('\r');
        push_motion(frame, self.cursor.0, 'A');
    }

    fn push_text(&self, frame: &mut String, text: &str) {
        if self.has_color {
            frame.push_str(text);
            if text.contains('\x1b') {
                frame.push_str(RESET_STYLE);
            }
        } else {
            frame.push_str(&without_styles(text));
        }
    }
}

/// Adds a cursor motion. Adds nothing for a distance of zero, because terminals treat a zero as one.
fn push_motion(frame: &mut String, distance: usize, direction: char) {
    if distance > 0 {
        // Writing to a string cannot fail.
        write!(frame, "\x1b[{distance}{direction}").ok();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn screen(columns: u16, rows: u16) -> Screen<Vec<u8>> {
        Screen::new(Vec::new(), TerminalSize { columns, rows }, true)
    }

    fn rows(texts: &[&str]) -> Vec<Row> {
        texts.iter().map(|text| Row::new((*text).to_owned())).collect()
    }

    fn viewport(texts: &[&str], cursor: (usize, usize)) -> Viewport {
        Viewport { rows: rows(texts), cursor: Some(cursor), hides_cursor: false }
    }

    fn terminal(rows: u16, columns: u16, scrollback: usize) -> vt100::Parser {
        vt100::Parser::new(rows.try_into().unwrap(), columns.try_into().unwrap(), scrollback)
    }

    /// Passes the output of the screen since the last call to `terminal`. Returns the length of the output in bytes.
    fn show(screen: &mut Screen<Vec<u8>>, terminal: &mut vt100::Parser) -> usize {
        let written = std::mem::take(&mut screen.out);
        terminal.process(&written);
        written.len()
    }

    fn lines(terminal: &vt100::Parser) -> Vec<String> {
        terminal.screen().contents().lines().map(|line| line.trim_end().to_owned()).collect()
    }

    #[test]
    fn finished_lines_stay_above_the_viewport_once() {
        let (mut screen, mut terminal) = (screen(20, 6), terminal(6, 20, 100));
        for n in 0..20 {
            let height = if n % 3 == 0 { &["> hi", "busy", "queue", "status"][..] } else { &["> hi", "status"][..] };
            screen.paint(&rows(&[&format!("line {n}")]), viewport(height, (0, 4))).unwrap();
            show(&mut screen, &mut terminal);
            assert!(lines(&terminal).ends_with(&height.iter().map(|row| (*row).to_owned()).collect::<Vec<_>>()));
        }
        screen.paint(&[], Viewport::default()).unwrap();
        screen.clear().unwrap();
        show(&mut screen, &mut terminal);
        terminal.screen_mut().set_scrollback(100);
        let first = lines(&terminal);
        assert_eq!(first.first().map(String::as_str), Some("line 0"));
        terminal.screen_mut().set_scrollback(0);
        assert_eq!(lines(&terminal).last().map(String::as_str), Some("line 19"));
        assert!(!lines(&terminal).iter().any(|line| line.contains("status")));
    }

    #[test]
    fn cursor_is_where_the_viewport_puts_it() {
        let (mut screen, mut terminal) = (screen(20, 6), terminal(6, 20, 0));
        screen.paint(&rows(&["one", "two"]), viewport(&["> a", "  bc", "status"], (1, 4))).unwrap();
        show(&mut screen, &mut terminal);
        assert_eq!(terminal.screen().cursor_position(), (3, 4));
        screen.paint(&[], viewport(&["> 日本", "status"], (0, 6))).unwrap();
        show(&mut screen, &mut terminal);
        assert_eq!(terminal.screen().cursor_position(), (2, 6));
        assert_eq!(lines(&terminal), ["one", "two", "> 日本", "status"]);
    }

    #[test]
    fn equal_frame_writes_nothing_and_a_changed_row_little() {
        let mut screen = screen(80, 24);
        let status = "model · 18k/200k 9% · prompt $0.04/0.5 · session $0.31/5 · cache 96%";
        let frame = |spinner: &str| viewport(&["> text being typed", spinner, status], (0, 8));
        screen.paint(&[], frame("| 1 s")).unwrap();
        screen.out.clear();
        screen.paint(&[], frame("| 1 s")).unwrap();
        assert_eq!(screen.out.len(), 0);
        screen.paint(&[], frame("/ 1 s")).unwrap();
        assert!(screen.out.len() < 80, "{} bytes", screen.out.len());
        assert!(!String::from_utf8_lossy(&screen.out).contains("model"));
    }

    #[test]
    fn rows_that_a_narrower_terminal_wrapped_are_erased() {
        let mut screen = screen(40, 10);
        screen.paint(&[], viewport(&["> a line of thirty-five columns, ok", "  second", "status"], (1, 8))).unwrap();
        screen.out.clear();
        screen.resize(TerminalSize { columns: 20, rows: 10 });
        screen.paint(&[], viewport(&["> x"], (0, 3))).unwrap();
        // The first row takes two rows now, so the cursor is two rows below the top of the viewport.
        let written = String::from_utf8(screen.out.clone()).unwrap();
        assert!(written.contains("\r\u{1b}[2A\u{1b}[J"), "{written:?}");
    }

    #[test]
    fn nothing_clears_the_terminal_or_its_scrollback() {
        let mut screen = screen(40, 10);
        screen.paint(&rows(&["a"]), viewport(&["> x"], (0, 3))).unwrap();
        screen.resize(TerminalSize { columns: 30, rows: 8 });
        screen.paint(&rows(&["b"]), viewport(&["> x"], (0, 3))).unwrap();
        screen.clear().unwrap();
        let written = String::from_utf8(screen.out).unwrap();
        for forbidden in ["\u{1b}[2J", "\u{1b}[3J", "\u{1b}[?1049h", "\u{1b}[?47h"] {
            assert!(!written.contains(forbidden), "{written:?}");
        }
    }

    #[test]
    fn without_colors_there_are_no_styles() {
        let mut screen = Screen::new(Vec::new(), TerminalSize { columns: 40, rows: 10 }, false);
        screen.paint(&rows(&["\u{1b}[1mbold\u{1b}[0m"]), viewport(&["\u{1b}[2m> x\u{1b}[0m"], (0, 3))).unwrap();
        let written = String::from_utf8(screen.out).unwrap();
        assert!(written.contains("bold\r\n") && !written.contains("\u{1b}[1m") && !written.contains("\u{1b}[2m"));
    }
}
