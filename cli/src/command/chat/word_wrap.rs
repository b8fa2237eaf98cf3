//! Word wrap of styled text.

use anstyle::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A word wrapper for one paragraph of styled text.
#[derive(Debug, Default)]
pub struct WordWrapper {
    width: usize,
    rows: Vec<String>,
    row: String,
    /// Number of columns that `row` fills.
    column: usize,
    /// The last word with its styles, which is not yet placed in a row.
    word: String,
    word_width: usize,
    /// Number of spaces between the text in `row` and `word`.
    gap: usize,
    hanging: String,
    plain: String,
    has_text: bool,
}

impl WordWrapper {
    /// Creates a wrapper for rows of at most this many columns.
    pub fn new(width: usize) -> Self {
        Self { width, ..Self::default() }
    }

    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns true if no paragraph has begun.
    pub fn is_empty(&self) -> bool {
        !self.has_text
    }

    /// Returns true if the paragraph, without its styles, ends with `text`.
    pub fn plain_ends_with(&self, text: &str) -> bool {
        self.plain.ends_with(text)
    }

    /// Starts a paragraph. `first` is the prefix of the first row, `hanging` is the prefix of the other rows.
    pub fn begin(&mut self, first: String, hanging: String) {
        self.column = first.width();
        self.row = first;
        self.hanging = hanging;
        self.has_text = true;
    }

    /// Adds `text`, which contains no line breaks, to the paragraph.
    pub fn push(&mut self, text: &str, style: Style) {
        self.plain.push_str(text);
        let mut open = false;
        for c in text.chars() {
            if c == ' ' {
                if std::mem::take(&mut open) {
                    self.word.push_str(&style.render_reset().to_string());
                }
                self.place_word();
                self.gap += 1;
                continue;
            }
            let columns = c.width().unwrap_or(0);
            // Text without spaces, such as Chinese or a path that is longer than a row, breaks at any character.
            if self.hanging.width() + self.word_width + columns > self.width || columns == 2 {
                if std::mem::take(&mut open) {
                    self.word.push_str(&style.render_reset().to_string());
                }
                self.place_word();
            }
            if !std::mem::replace(&mut open, true) {
                self.word.push_str(&style.render().to_string());
            }
            self.word.push(c);
            self.word_width += columns;
        }
        if open {
            self.word.push_str(&style.render_reset().to_string());
        }
    }

    fn place_word(&mut self) {
        if self.word_width == 0 {
            return;
        }
        if self.column + self.gap + self.word_width > self.width && self.column > self.hanging.width() {
            let row = std::mem::replace(&mut self.row, self.hanging.clone());
            self.rows.push(row);
            self.column = self.hanging.width();
        } else {
            self.row.push_str(&" ".repeat(self.gap));
            self.column += self.gap;
        }
        self.gap = 0;
        self.row.push_str(&std::mem::take(&mut self.word));
        self.column += std::mem::take(&mut self.word_width);
    }

    /// Ends the paragraph and returns its rows.
    pub fn finish(&mut self) -> Vec<String> {
        if !self.has_text {
            return Vec::new();
        }
        self.place_word();
        self.rows.push(std::mem::take(&mut self.row));
        let rows = std::mem::take(&mut self.rows);
        *self = Self { width: self.width, ..Self::default() };
        rows
    }
}
