//! Capability patterns: `rye.<primary>.<item_type>.<item_id with dots>` with `*`, `?`, `[seq]`. This module only parses
//! patterns; the compiler's module `glob` matches capabilities against them.

use serde::{Deserialize, Serialize};

use crate::error::{SyntaxError, SyntaxKind};
use crate::span::{SourceId, Span};

/// Maximum number of wildcards in a pattern. Comparing several patterns takes time proportional to the product of their
/// numbers of wildcards.
pub const MAX_WILDCARDS: usize = 24;

/// A normalized capability pattern: `search` and `load` become `fetch`, `/` becomes `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(pub String);

/// Parses a whole pattern such as `rye.execute.tool.rye.file-system.*` (`language.md`, Capabilities). Surrounding white
/// space is dropped. `base` is the byte offset of `text` in its source.
///
/// # Errors
/// Returns [`crate::SyntaxKind::Capability`] for an empty pattern, an invalid character or more than [`MAX_WILDCARDS`]
/// wildcards.
pub fn parse(source: SourceId, text: &str, base: usize) -> Result<Pattern, SyntaxError> {
    check_characters(source, text, base)?;
    Ok(normalize(text.trim()))
}

/// Parses the item part of a pattern, the text of `<tool>…</tool>`: `/` becomes `.`, nothing else changes.
///
/// # Errors
/// Returns the errors of [`parse`].
pub fn parse_item(source: SourceId, text: &str, base: usize) -> Result<Pattern, SyntaxError> {
    check_characters(source, text, base)?;
    Ok(Pattern(text.trim().replace('/', ".")))
}

/// Normalizes the separators and the primary of a pattern: `/` becomes `.`, `search` and `load` become `fetch`. Does
/// not check the pattern.
pub fn normalize(text: &str) -> Pattern {
    let mut dotted = text.replace('/', ".");
    for alias in ["rye.search", "rye.load"] {
        if let Some(rest) = dotted.strip_prefix(alias)
            && (rest.is_empty() || rest.starts_with('.'))
        {
            dotted = format!("rye.fetch{rest}");
        }
    }
    Pattern(dotted)
}

/// Returns true if a pattern has no wildcard. Such a pattern names exactly one capability.
pub fn is_literal(text: &str) -> bool {
    !text.bytes().any(|b| matches!(b, b'*' | b'?' | b'['))
}

/// Counts the wildcards of a pattern: `*`, `?` and the openings of classes.
pub fn wildcards(text: &str) -> usize {
    text.bytes().filter(|b| matches!(b, b'*' | b'?' | b'[')).count()
}

fn check_characters(source: SourceId, text: &str, base: usize) -> Result<(), SyntaxError> {
    let lead = text.len() - text.trim_start().len();
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(SyntaxKind::Capability
            .error(Span::new(source, base, base + text.len()), "a capability cannot be empty", "empty pattern")
            .with_help("name an item such as `rye.file-system.read`, or `*` for all items"));
    }
    let Some((at, c)) = trimmed.char_indices().find(|(_, c)| !is_pattern_char(*c)) else {
        return check_wildcards(source, trimmed, base + lead);
    };
    let start = base + lead + at;
    let help = if c.is_whitespace() || c == ',' {
        "an element has one pattern: write a second element for a second pattern"
    } else {
        "a pattern has letters, digits, `_`, `-`, `.` or `/`, and the wildcards `*`, `?`, `[seq]`"
    };
    Err(SyntaxKind::Capability
        .error(
            Span::new(source, start, start + c.len_utf8()),
            format!("`{}` is not a capability pattern", crate::text::shorten(trimmed)),
            format!("{} is not allowed here", crate::text::describe_char(c)),
        )
        .with_help(help))
}

fn check_wildcards(source: SourceId, pattern: &str, start: usize) -> Result<(), SyntaxError> {
    let found = wildcards(pattern);
    if found <= MAX_WILDCARDS {
        return Ok(());
    }
    Err(SyntaxKind::Capability
        .error(
            Span::new(source, start, start + pattern.len()),
            format!("`{}` has {found} wildcards", crate::text::shorten(pattern)),
            format!("a pattern has at most {MAX_WILDCARDS} wildcards"),
        )
        .with_help("write several plain patterns in place of one with many wildcards"))
}

fn is_pattern_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '*' | '?' | '[' | ']' | '!' | '^')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn ok(text: &str) -> String {
        parse(SourceId(0), text, 0).unwrap().0
    }

    #[test]
    fn parse_normalizes_aliases_and_slashes() {
        assert_eq!(ok(" rye.search.knowledge.* "), "rye.fetch.knowledge.*");
        assert_eq!(ok("rye.load"), "rye.fetch");
        assert_eq!(ok("rye.loader.x"), "rye.loader.x");
        assert_eq!(ok("rye.execute.tool.rye/bash/bash"), "rye.execute.tool.rye.bash.bash");
        assert_eq!(ok("rye.[ef]*.[!t]*.te?t"), "rye.[ef]*.[!t]*.te?t");
        assert_eq!(parse_item(SourceId(0), "rye/load/x", 0).unwrap().0, "rye.load.x");
    }

    #[test]
    fn parse_rejects_invalid_characters() {
        for text in ["", "  ", "a b", "rye.execute.tool.é", "a\0", "rye.*,rye.x", "${x}"] {
            assert!(parse(SourceId(0), text, 0).is_err(), "{text:?}");
        }
        let error = parse(SourceId(0), " rye.a b", 10).unwrap_err();
        assert_eq!(error.span, Span::new(SourceId(0), 16, 17));
    }

    #[test]
    fn parse_rejects_more_wildcards_than_the_bound() {
        let most = "*a".repeat(MAX_WILDCARDS);
        assert_eq!(parse(SourceId(0), &most, 0).unwrap().0, most);
        for wildcard in ["*", "?", "[a]"] {
            let error = parse_item(SourceId(0), &format!(" {most}{wildcard}"), 5).unwrap_err();
            assert!(error.message.contains("25 wildcards"), "{error:?}");
            assert_eq!(error.span, Span::new(SourceId(0), 6, 6 + most.len() + wildcard.len()));
        }
    }

    #[test]
    fn is_literal_detects_wildcards() {
        assert!(is_literal("rye.execute.tool.rye.bash.bash"));
        assert!(!is_literal("rye.*") && !is_literal("a?") && !is_literal("[a]"));
    }
}
