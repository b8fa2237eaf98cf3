//! The texts of a compilation by id, with lookup of lines and columns.

use std::sync::{Arc, OnceLock};

use crate::span::{SourceId, Span};

/// A source text, with the path that diagnostics show for it.
#[derive(Debug, Clone)]
pub struct Source {
    /// The path in diagnostics: relative to the project for files of the project, `user:…` and `system:…` for files of
    /// the other spaces.
    pub path: Arc<str>,
    pub text: Arc<str>,
    /// Byte offsets at which the lines start. Computed on first use, because most texts have no diagnostics.
    line_starts: OnceLock<Arc<[u32]>>,
}

/// A position for humans: 1-based line, 1-based column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

impl Source {
    pub fn new(path: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Self {
        Self { path: path.into(), text: text.into(), line_starts: OnceLock::new() }
    }

    fn line_starts(&self) -> &[u32] {
        self.line_starts.get_or_init(|| {
            let ends = self.text.bytes().enumerate().filter(|(_, b)| *b == b'\n');
            let starts = ends.map(|(i, _)| u32::try_from(i + 1).unwrap_or(u32::MAX));
            std::iter::once(0).chain(starts).collect()
        })
    }

    pub fn position(&self, offset: u32) -> Position {
        let starts = self.line_starts();
        let line = starts.partition_point(|s| *s <= offset).saturating_sub(1);
        let start = starts.get(line).copied().unwrap_or(0) as usize;
        let column = self.text.get(start..offset as usize).map_or(0, |s| s.chars().count());
        let one_based = |n: usize| u32::try_from(n + 1).unwrap_or(u32::MAX);
        Position { line: one_based(line), column: one_based(column) }
    }
}

/// The error for bytes that are not UTF-8, with the place of the first invalid byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", if *.is_utf16 { "the file is UTF-16, not UTF-8".to_owned() } else { format!("the file is not valid UTF-8 (first bad byte in line {line}, column {column})") })]
pub struct InvalidUtf8 {
    pub offset: usize,
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// True if the file starts with a byte order mark of UTF-16.
    pub is_utf16: bool,
}

impl InvalidUtf8 {
    fn locate(bytes: &[u8], offset: usize) -> Self {
        let before = bytes.get(..offset).and_then(|valid| std::str::from_utf8(valid).ok()).unwrap_or_default();
        let before = before.strip_prefix('\u{feff}').unwrap_or(before);
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
        let is_utf16 = bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]);
        Self { offset, line, column, is_utf16 }
    }
}

/// Decodes a file's bytes as UTF-8 and drops a byte order mark. Control characters are left for the parsers to report.
///
/// # Errors
/// Returns [`InvalidUtf8`] with the place of the first invalid byte.
pub fn decode(bytes: &[u8]) -> Result<&str, InvalidUtf8> {
    let text = std::str::from_utf8(bytes).map_err(|e| InvalidUtf8::locate(bytes, e.valid_up_to()))?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// All texts read so far. A [`SourceId`] is the index of a text.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The texts, indexed by [`SourceId`]. The list is shared, so that cloning `Sources` is cheap.
    all: Arc<Vec<Source>>,
}

impl Sources {
    pub fn add(&mut self, source: Source) -> SourceId {
        let id = SourceId(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        Arc::make_mut(&mut self.all).push(source);
        id
    }

    pub fn get(&self, id: SourceId) -> Option<&Source> {
        self.all.get(id.0 as usize)
    }

    /// Returns the text of a span; empty if the span is outside of the text.
    pub fn slice(&self, span: Span) -> &str {
        self.get(span.source).and_then(|s| s.text.get(span.range())).unwrap_or("")
    }

    pub fn iter(&self) -> impl Iterator<Item = (SourceId, &Source)> {
        self.all.iter().enumerate().map(|(i, s)| (SourceId(u32::try_from(i).unwrap_or(u32::MAX)), s))
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
