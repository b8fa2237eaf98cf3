//! A source file in a diagnostic report. All source files of a report form one virtual text, in which each file starts
//! at an offset of its own. Lines that are too long to print are cropped.

use std::borrow::Cow;
use std::sync::Arc;

use miette::{MietteSpanContents, SourceSpan};
use rye_grammar::{Source, SourceId, Span};

/// Maximum length of a label's span in bytes.
const MAX_SPAN_BYTES: usize = 600;
/// Maximum distance in bytes from a label to the start or end of its line, beyond which the line is cropped.
const MAX_LINE_DISTANCE: usize = 160;
/// Number of bytes that a cropped line keeps before or after a label.
const CROP_CONTEXT: usize = 60;

/// A source of a report. All sources of a report form one virtual text, in which the first byte of this source is at
/// the offset `base`.
#[derive(Debug)]
pub struct SourceView {
    pub source: SourceId,
    name: String,
    /// The source text with unprintable characters replaced. The text has the same length in bytes as the source.
    text: Arc<str>,
    /// The source as it was read, from which columns and line numbers are computed.
    original: Source,
    base: usize,
}

impl SourceView {
    pub fn new(id: SourceId, source: &Source, base: usize) -> Self {
        let text = match sanitize_in_place(&source.text) {
            Cow::Borrowed(_) => source.text.clone(),
            Cow::Owned(text) => text.into(),
        };
        // The line table is computed before the clone, so that the clone shares the table.
        source.position(0);
        Self { source: id, name: sanitize(&source.path, "\u{fffd}").into_owned(), text, original: source.clone(), base }
    }

    /// Returns the offset from which the next view may start: two bytes after the end of this view, so that neighboring
    /// views stay separate.
    pub fn end(&self) -> usize {
        self.base + self.text.len() + 2
    }

    pub fn contains(&self, offset: usize, length: usize) -> bool {
        offset >= self.base && offset + length <= self.base + self.text.len()
    }

    /// Returns the offset and length in bytes of the label of `span`. The label is cut to `lines` lines and to
    /// `MAX_SPAN_BYTES` bytes, and has no line break at its end. The offset counts from the start of the first view of
    /// the report.
    pub fn label_range(&self, span: Span, lines: usize) -> (usize, usize) {
        let last = self.text.trim_end_matches(['\n', '\r']).len();
        let start = self.floor_char_boundary((span.start as usize).min(last));
        let end =
            self.floor_char_boundary((span.end as usize).clamp(start, last.max(start)).min(start + MAX_SPAN_BYTES));
        let covered = self.text.get(start..end).unwrap_or("");
        let cut = covered.match_indices('\n').nth(lines - 1).map_or(covered.len(), |(at, _)| at);
        (self.base + start, covered.get(..cut).unwrap_or("").trim_end_matches(['\n', '\r']).len())
    }

    /// Returns the lines of a span, with up to `before` lines before and `after` lines after them. `None` if the span
    /// is too long for one snippet.
    pub fn read(&self, span: &SourceSpan, before: usize, after: usize) -> Option<MietteSpanContents<'_>> {
        let start = span.offset() - self.base;
        let end = start + span.len();
        if span.len() > MAX_SPAN_BYTES * 4 {
            return None;
        }
        let position = |offset: usize| self.original.position(u32::try_from(offset).unwrap_or(u32::MAX));
        let (first, last) = (self.line_start(start, 0), self.line_end(end, 0));
        let from = match start - first {
            _ if before == 0 => start,
            far if far > MAX_LINE_DISTANCE => start - CROP_CONTEXT,
            _ => self.line_start(start, before).max(first.saturating_sub(MAX_SPAN_BYTES)),
        };
        let to = match last - end {
            far if far > MAX_LINE_DISTANCE => end + CROP_CONTEXT,
            _ => self.line_end(end, after).min(last + MAX_SPAN_BYTES),
        };
        let (from, to) = (self.floor_char_boundary(from), self.floor_char_boundary(to).max(from));
        let data = self.text.get(from..to)?;
        let first = position(from);
        Some(MietteSpanContents::new_named(
            self.name.clone(),
            data.as_bytes(),
            (self.base + from, data.len()).into(),
            first.line as usize - 1,
            if before == 0 { first.column as usize - 1 } else { 0 },
            data.lines().count(),
        ))
    }

    /// Returns the byte offset at which a line starts. The line is `above` lines before the line that contains
    /// `offset`, or the first line if there are fewer lines before.
    fn line_start(&self, offset: usize, above: usize) -> usize {
        let text = self.text.get(..offset).unwrap_or("");
        text.rmatch_indices('\n').nth(above).map_or(0, |(at, _)| at + 1)
    }

    /// Returns the byte offset at which a line ends, after its line break. The line is `below` lines after the line
    /// that contains `offset`, or the last line if there are fewer lines after.
    fn line_end(&self, offset: usize, below: usize) -> usize {
        let text = self.text.get(offset..).unwrap_or("");
        text.match_indices('\n').nth(below).map_or(self.text.len(), |(at, _)| offset + at + 1)
    }

    fn floor_char_boundary(&self, mut offset: usize) -> usize {
        offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        offset
    }
}

/// Returns true for newlines, tabs, and the characters for which [`is_unprintable`] returns true.
pub fn breaks_line(c: char) -> bool {
    is_unprintable(c) || matches!(c, '\n' | '\t')
}

/// Returns true if a character could move the cursor, change colors, reverse the reading direction, or hide text because
/// it has no width of its own. Joiners are not included: emoji and several scripts need them.
pub fn is_unprintable(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t'))
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2064}'
        )
        || matches!(c, '\u{206a}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}')
        || matches!(c, '\u{e0000}'..='\u{e007f}')
}

/// Replaces every character that controls a terminal with `mark`, and every newline with a space.
pub fn sanitize<'t>(text: &'t str, mark: &str) -> Cow<'t, str> {
    if !text.contains(|c| is_unprintable(c) || c == '\n') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\n' {
            out.push(' ');
        } else if is_unprintable(c) {
            out.push_str(mark);
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Replaces the terminal control characters in the text of a file. Every replacement has as many bytes as the
/// character, so all offsets stay valid. `\r\n` line ends are kept.
fn sanitize_in_place(text: &str) -> Cow<'_, str> {
    // A report is created for each diagnostic of a file, so this function must be fast: for most files, this one pass
    // is enough.
    if text.bytes().all(|b| matches!(b, b'\n' | b'\t' | b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    let lone = |at: usize| !text.get(at + 1..).is_some_and(|rest| rest.starts_with('\n'));
    if !text.char_indices().any(|(at, c)| is_unprintable(c) && (c != '\r' || lone(at))) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        if !is_unprintable(c) || (c == '\r' && !lone(at)) {
            out.push(c);
        } else {
            out.push_str(match c.len_utf8() {
                1 => "?",
                2 => "\u{bf}",
                3 => "\u{fffd}",
                _ => "\u{fffd}?",
            });
        }
    }
    Cow::Owned(out)
}

/// Cuts a text to at most `most` bytes, not counting the `…` that is appended to a cut text.
pub fn shorten(text: &str, most: usize) -> String {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    match text.get(..end) {
        Some(head) if end < text.len() => format!("{head}…"),
        Some(_) | None => text.to_owned(),
    }
}
