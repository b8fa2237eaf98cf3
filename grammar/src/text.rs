//! Character helpers that several parsers share.

use std::ops::Range;

/// Describes a character for a message: in backticks, or by its code point if it is invisible.
pub(crate) fn describe_char(c: char) -> String {
    match c {
        ' ' => "a space".into(),
        '\n' | '\r' => "a line break".into(),
        '\t' => "a tab".into(),
        '`' => "a backtick".into(),
        c if c.is_control() => format!("the control character U+{:04X}", u32::from(c)),
        c => format!("`{c}`"),
    }
}

/// Returns the first control character below U+0020 other than tab and line breaks, with its range.
pub(crate) fn control_character(text: &str) -> Option<(Range<usize>, char)> {
    let at = text.bytes().position(|b| b < 0x20 && !matches!(b, b'\t' | b'\n' | b'\r'))?;
    text.get(at..)?.chars().next().map(|c| (at..at + 1, c))
}

/// Escapes control characters of `text` for a message, and cuts the text after 60 characters.
pub(crate) fn shorten(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    match text.char_indices().nth(MAX_CHARS) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default().escape_debug()),
        None => text.escape_debug().to_string(),
    }
}

/// Returns the brackets of a text with their offsets, except those inside of `"…"` (with escapes) and `'…'` (without).
pub(crate) fn brackets(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let mut quote = None;
    let mut escaped = false;
    text.char_indices().filter(move |(_, c)| {
        if let Some(open) = quote {
            let closes = *c == open && !escaped;
            escaped = open == '"' && *c == '\\' && !escaped;
            if closes {
                quote = None;
            }
            return false;
        }
        if matches!(c, '"' | '\'') {
            quote = Some(*c);
        }
        matches!(c, '(' | ')' | '[' | ']' | '{' | '}')
    })
}

/// Returns the candidate that a misspelled word most likely means; `None` if none is close.
pub(crate) fn closest_word<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    if word.len() > 64 {
        return None;
    }
    let lower = word.to_ascii_lowercase();
    let near = |c: &&str| {
        let distance = strsim::damerau_levenshtein(&lower, c);
        (distance <= 2 && distance < c.len().max(2)).then_some(distance)
    };
    candidates.iter().copied().filter_map(|c| near(&c).map(|d| (d, c))).min_by_key(|(d, _)| *d).map(|(_, c)| c)
}
