//! The editor in the terminal of a chat: several lines with soft wrap, undo, and labels in place of long pasted texts.

use crossterm::event::KeyEvent;
use ratatui_textarea::{CursorMove, DataCursor, TextArea};
use unicode_width::UnicodeWidthChar;

use super::markdown::expand_tabs;
use super::screen::Row;
use crate::present::{BOLD, DIM};
use crate::report::printable;

/// Maximum number of lines of a paste that is shown as it is. A longer paste is shown as a label: `[pasted N lines]`.
const MAX_PASTED_LINES: usize = 20;
/// Maximum bytes of a paste that is shown as it is. A longer paste is shown as a label.
const MAX_PASTED_BYTES: usize = 2 << 10;
/// Maximum size of a text that is put back into the editor as it is, in bytes. Wrapping a longer text would delay each
/// key.
const MAX_RESTORED_BYTES: usize = 64 << 10;
/// Width of the prompt sign before the text, in columns.
const SIGN_COLUMNS: usize = 2;

/// The editor of a chat: the text that the user is writing, and the cursor in it.
pub struct Editor {
    area: TextArea<'static>,
    /// Labels in the text, each with the pasted text that it replaces.
    pastes: Vec<(String, String)>,
}

/// The rows of the editor, and the cursor in them: row and column.
#[derive(Debug, PartialEq, Eq)]
pub struct EditorView {
    pub rows: Vec<Row>,
    pub cursor: (usize, usize),
}

impl Editor {
    pub fn new() -> Self {
        Self { area: TextArea::default(), pastes: Vec::new() }
    }

    /// Returns the text, with pasted texts in place of their labels.
    pub fn text(&self) -> String {
        let mut text = self.area.lines().join("\n");
        for (label, pasted) in &self.pastes {
            text = text.replace(label, pasted);
        }
        text
    }

    pub fn is_empty(&self) -> bool {
        self.area.is_empty()
    }

    pub fn set_text(&mut self, text: &str) {
        self.area.select_all();
        self.area.cut();
        self.pastes.clear();
        self.area.insert_str(text);
        self.area.move_cursor(CursorMove::Bottom);
        self.area.move_cursor(CursorMove::End);
    }

    /// Replaces the text with an earlier text, such as a message that was not sent. A text above `MAX_RESTORED_BYTES`
    /// is shown as a label.
    pub fn restore(&mut self, text: &str) {
        if text.len() > MAX_RESTORED_BYTES {
            *self = Self::new();
            self.paste(text);
        } else {
            self.set_text(text);
        }
    }

    /// Returns the text and clears the editor.
    pub fn take(&mut self) -> String {
        let text = self.text();
        *self = Self::new();
        text
    }

    /// Applies a key to the editor: the key changes the text or moves the cursor.
    pub fn input(&mut self, key: KeyEvent) {
        self.area.input(key);
    }

    pub fn insert_newline(&mut self) {
        self.area.insert_newline();
    }

    /// Inserts pasted text; a long text is shown as a label.
    pub fn paste(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let count = text.lines().count();
        if count <= MAX_PASTED_LINES && text.len() <= MAX_PASTED_BYTES {
            self.area.insert_str(text);
            return;
        }
        let again = self.pastes.iter().filter(|(_, pasted)| pasted.lines().count() == count).count();
        let number = if again == 0 { String::new() } else { format!(", {}", again + 1) };
        let label = format!("[pasted {}{number}]", crate::present::format_count(count as u64, "line"));
        self.area.insert_str(&label);
        self.pastes.push((label, text));
    }

    pub fn has_pastes(&self) -> bool {
        !self.pastes.is_empty()
    }

    /// Shows every pasted text in full, in place of its label.
    pub fn expand_pastes(&mut self) {
        if !self.pastes.is_empty() {
            let text = self.text();
            self.set_text(&text);
        }
    }

    pub fn undo(&mut self) {
        self.area.undo();
    }

    pub fn redo(&mut self) {
        self.area.redo();
    }

    pub fn delete_to_line_start(&mut self) {
        self.area.delete_line_by_head();
    }

    /// If the cursor is at the end of a line that ends with a backslash, replaces the backslash with a line break and
    /// returns true. Otherwise returns false.
    pub fn break_at_backslash(&mut self) -> bool {
        let (line, column) = self.before_cursor();
        if !line.ends_with('\\') || column != self.current_line().chars().count() {
            return false;
        }
        self.area.delete_char();
        self.area.insert_newline();
        true
    }

    /// Moves up a line. Returns false at the first line.
    pub fn move_up(&mut self) -> bool {
        let can_move = self.area.cursor().0 > 0;
        if can_move {
            self.area.move_cursor(CursorMove::Up);
        }
        can_move
    }

    /// Moves down a line. Returns false at the last line.
    pub fn move_down(&mut self) -> bool {
        let can_move = self.area.cursor().0 + 1 < self.area.lines().len();
        if can_move {
            self.area.move_cursor(CursorMove::Down);
        }
        can_move
    }

    /// Returns the word before the cursor, and true if the word starts the text.
    pub fn word_before_cursor(&self) -> (String, bool) {
        let (line, _) = self.before_cursor();
        let start = line
            .rfind(char::is_whitespace)
            .map_or(0, |at| at + line.get(at..).and_then(|t| t.chars().next()).map_or(1, char::len_utf8));
        (line.get(start..).unwrap_or_default().to_owned(), start == 0 && self.area.cursor().0 == 0)
    }

    /// Returns the words of the first line before the word at the cursor; empty if the cursor is in a later line.
    pub fn words_before(&self) -> Vec<String> {
        if self.area.cursor().0 > 0 {
            return Vec::new();
        }
        let (line, _) = self.before_cursor();
        let (word, _) = self.word_before_cursor();
        let before = line.strip_suffix(word.as_str()).unwrap_or_default();
        before.split_whitespace().map(str::to_owned).collect()
    }

    /// Replaces the word before the cursor.
    pub fn replace_word(&mut self, replacement: &str) {
        let (word, _) = self.word_before_cursor();
        for _ in word.chars() {
            self.area.delete_char();
        }
        self.area.insert_str(replacement);
    }

    fn current_line(&self) -> &str {
        let DataCursor(row, _) = self.area.cursor();
        self.area.lines().get(row).map(String::as_str).unwrap_or_default()
    }

    /// Returns the text of the line before the cursor, and the cursor's column in characters.
    fn before_cursor(&self) -> (String, usize) {
        let DataCursor(_, column) = self.area.cursor();
        (self.current_line().chars().take(column).collect(), column)
    }

    /// Renders at most `max_rows` rows around the cursor, in a terminal of this width.
    pub fn view(&self, columns: usize, max_rows: usize) -> EditorView {
        // The last column stays empty, so that the cursor after a full row is within the terminal.
        let width = columns.saturating_sub(SIGN_COLUMNS + 1).max(1);
        let DataCursor(cursor_line, cursor_column) = self.area.cursor();
        let (mut rows, mut cursor) = (Vec::new(), (0, 0));
        for (n, line) in self.area.lines().iter().enumerate() {
            let (mut row, mut used) = (String::new(), 0);
            for (at, c) in line.chars().enumerate() {
                let shown = if c == '\t' { expand_tabs("\t") } else { printable(c.encode_utf8(&mut [0; 4])) };
                let wide = shown.chars().map(|c| c.width().unwrap_or(0)).sum::<usize>();
                if used + wide > width {
                    rows.push(std::mem::take(&mut row));
                    used = 0;
                }
                if (n, at) == (cursor_line, cursor_column) {
                    cursor = (rows.len(), SIGN_COLUMNS + used);
                }
                row.push_str(&shown);
                used += wide;
            }
            if n == cursor_line && cursor_column >= line.chars().count() {
                cursor = (rows.len(), SIGN_COLUMNS + used);
            }
            rows.push(row);
        }
        let first = (cursor.0 + 1).saturating_sub(max_rows.max(1));
        let is_hidden_above = first > 0;
        let shown = rows.iter().enumerate().skip(first).take(max_rows.max(1));
        let rows = shown.map(|(n, row)| {
            let sign = match n {
                0 => format!("{BOLD}>{BOLD:#} "),
                n if n == first && is_hidden_above => format!("{DIM}↑{DIM:#} "),
                _ => "  ".to_owned(),
            };
            Row::new(format!("{sign}{row}"))
        });
        EditorView { rows: rows.collect(), cursor: (cursor.0 - first, cursor.1) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    fn plain(view: &EditorView) -> Vec<String> {
        view.rows.iter().map(|row| row.text().replace("\u{1b}[1m", "").replace("\u{1b}[0m", "")).collect()
    }

    fn editor(text: &str) -> Editor {
        let mut editor = Editor::new();
        editor.set_text(text);
        editor
    }

    #[test]
    fn long_lines_wrap_and_the_cursor_follows() {
        let view = editor("abcdefgh").view(8, 5);
        assert_eq!(plain(&view), ["> abcde", "  fgh"]);
        assert_eq!(view.cursor, (1, 5));
        let view = editor("日本語").view(8, 5);
        assert_eq!(plain(&view), ["> 日本", "  語"]);
        assert_eq!(view.cursor, (1, 4));
        assert_eq!(editor("").view(20, 3).cursor, (0, 2));
    }

    #[test]
    fn rows_around_the_cursor_are_shown() {
        let view = editor("1\n2\n3\n4").view(20, 2);
        assert_eq!(view.rows.len(), 2);
        assert_eq!(view.cursor, (1, 3));
        assert!(plain(&view)[0].contains('↑'), "{view:?}");
    }

    #[test]
    fn long_paste_is_a_label_and_is_sent_whole() {
        let lines: Vec<String> = (0..21).map(|n| format!("line {n}")).collect();
        let pasted = lines.join("\n") + "\n";
        let mut editor = editor("see: ");
        editor.paste(&pasted);
        editor.paste(&pasted.replace("line", "row"));
        assert_eq!(plain(&editor.view(80, 5)), ["> see: [pasted 21 lines][pasted 21 lines, 2]"]);
        assert_eq!(editor.text(), format!("see: {pasted}{}", pasted.replace("line", "row")));
        editor.expand_pastes();
        assert!(editor.view(80, 60).rows.len() > 40);
        let mut small = Editor::new();
        small.paste("a\r\nb\rc");
        assert_eq!(small.text(), "a\nb\nc");
    }

    #[test]
    fn very_long_text_returns_to_the_editor_as_a_label() {
        let mut editor = editor("typed");
        editor.restore("short\ntext");
        assert_eq!((editor.text().as_str(), editor.has_pastes()), ("short\ntext", false));
        let long = "a line\n".repeat(20_000);
        editor.restore(&long);
        assert_eq!(plain(&editor.view(40, 5)), ["> [pasted 20000 lines]"]);
        assert_eq!(editor.text(), long);
    }

    #[test]
    fn control_characters_are_shown_replaced() {
        let mut editor = Editor::new();
        editor.paste("a\u{1b}]52;c;x\u{7}\u{202e}b");
        let row = plain(&editor.view(80, 5))[0].clone();
        assert!(!row.contains('\u{1b}') && !row.contains('\u{202e}') && !row.contains('\u{7}'), "{row:?}");
    }

    #[test]
    fn words_are_replaced_and_backslashes_break_lines() {
        let mut edited = editor("look at @src");
        assert_eq!(edited.word_before_cursor(), ("@src".to_owned(), false));
        edited.replace_word("@src/main.rs ");
        assert_eq!(edited.text(), "look at @src/main.rs ");
        let mut edited = editor("one\\");
        assert!(edited.break_at_backslash());
        assert_eq!(edited.text(), "one\n");
        assert!(!edited.break_at_backslash());
        edited.undo();
        edited.undo();
        assert_eq!(edited.text(), "one\\");
    }
}
