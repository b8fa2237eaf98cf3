//! Paths to facts in the mapping form of conditions and in templates. Names may contain `-` here, but not in the
//! one-line form of conditions, where `-` is an operator.

use super::{Path, Segment};
use crate::error::{SyntaxError, SyntaxKind};
use crate::span::{SourceId, Span};
use crate::text::{describe_char, shorten};

/// Parses a path such as `call.input.file-path` or `items.0` (`language.md`, Values, paths and facts). `base` is the
/// offset of `text` in its source.
///
/// # Errors
/// Returns [`crate::SyntaxKind::Condition`] for an empty segment, an invalid character, or a number with leading zeros.
pub fn parse_path(source: SourceId, text: &str, base: usize) -> Result<Path, SyntaxError> {
    parse_segments(text).map_err(|bad| {
        SyntaxKind::Condition
            .error(
                Span::new(source, base + bad.start, base + bad.end),
                format!("`{}` is not a path to a fact", shorten(text)),
                bad.label,
            )
            .with_help("a path is names and numbers joined by dots: `call.item_id`, `items.0`")
    })
}

/// The invalid part of a path, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InvalidPath {
    pub start: usize,
    pub end: usize,
    pub label: String,
}

pub(crate) fn parse_segments(text: &str) -> Result<Path, InvalidPath> {
    let mut segments = Vec::new();
    let mut start = 0;
    for part in text.split('.') {
        let end = start + part.len();
        segments.push(parse_segment(part).map_err(|(at, len, label)| InvalidPath {
            start: start + at,
            end: start + at + len,
            label,
        })?);
        start = end + 1;
    }
    Ok(Path { segments })
}

fn parse_segment(part: &str) -> Result<Segment, (usize, usize, String)> {
    let Some(first) = part.chars().next() else { return Err((0, 0, "a segment is missing here".into())) };
    if first.is_ascii_digit() {
        if part.len() > 1 && first == '0' {
            return Err((0, part.len(), "a number in a path has no leading zeros".into()));
        }
        return part.parse().map(Segment::Number).map_err(|_| (0, part.len(), "this is not a whole number".into()));
    }
    let bad = part.char_indices().find(|(at, c)| {
        let name = c.is_ascii_alphabetic() || *c == '_';
        !(name || (*at > 0 && (c.is_ascii_digit() || *c == '-')))
    });
    match bad {
        Some((at, c)) => Err((at, c.len_utf8(), format!("{} is not allowed here", describe_char(c)))),
        None => Ok(Segment::Name(part.to_owned())),
    }
}
