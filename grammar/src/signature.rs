//! The signature line: `rye:signed:TIMESTAMP:SHA256_HEX:ED25519_B64URL:KEYID` in a comment, the first line of a file.
//! This module only splits the line; callers verify the signature.

use crate::span::{SourceId, Span, Spanned};

/// The parts of a signature line, not verified.
///
/// A signature line with missing parts has empty fields, so that it fails to verify instead of counting as unsigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureLine {
    /// Time of the signature, in RFC 3339, exactly as the line contains it.
    pub timestamp: String,
    /// SHA-256 of every byte after the signature line, in lowercase hex.
    pub sha256: String,
    /// Ed25519 signature, in base64url without padding.
    pub signature: String,
    /// First 16 hex digits of SHA-256 over the public key PEM.
    pub key_id: String,
    /// Byte offset where the signed content begins.
    pub content_start: usize,
}

/// The text at the start of a signature line.
const MARK: &str = "rye:signed:";

/// Parses the signature line of a text, in any of the comment syntaxes `<!-- -->`, `#` and `//` (`language.md`,
/// Signatures). `None` if the first line is not a signature.
pub fn parse(source: SourceId, text: &str) -> Option<Spanned<SignatureLine>> {
    let (line, content_start) = match text.split_once('\n') {
        Some((line, _)) => (line, line.len() + 1),
        None => (text, text.len()),
    };
    let line = line.strip_suffix('\r').unwrap_or(line);
    let payload = comment_content(line)?.strip_prefix(MARK)?;
    // The timestamp contains colons, so the parts are split from the right.
    let mut parts = payload.rsplitn(4, ':');
    let key_id = parts.next().unwrap_or_default().to_owned();
    let signature = parts.next().unwrap_or_default().to_owned();
    let sha256 = parts.next().unwrap_or_default().to_owned();
    let timestamp = parts.next().unwrap_or_default().to_owned();
    let span = Span::new(source, 0, line.len());
    Some(Spanned::new(SignatureLine { timestamp, sha256, signature, key_id, content_start }, span))
}

/// Number of lines at the start of a text that are searched for a misplaced signature.
const MISPLACED_SCAN_LINES: usize = 8;

/// Returns the span of a complete signature line near the start of a text but not on its first line; `None` if there is
/// no such line, or if the first line is a signature line.
pub fn find_misplaced(source: SourceId, text: &str) -> Option<Span> {
    let head = text.split_inclusive('\n').take(MISPLACED_SCAN_LINES);
    // Few texts contain the mark, and a search for the mark costs less than parsing each line.
    if !head.clone().any(|line| line.contains(MARK)) || parse(source, text).is_some() {
        return None;
    }
    let mut start = 0;
    for line in head {
        let written = line.trim_end();
        // An example of a signature line in prose lacks some parts, so it is not reported.
        let whole =
            parse(source, written).filter(|line| !line.node.sha256.is_empty() && !line.node.timestamp.is_empty());
        if whole.is_some_and(|line| line.node.sha256.len() == 64) {
            return Some(Span::new(source, start, start + written.len()));
        }
        start += line.len();
    }
    None
}

/// Returns the offset of the content: after the signature line, or the start of the text without one.
pub fn content_start(signature: Option<&Spanned<SignatureLine>>) -> usize {
    signature.map_or(0, |s| s.node.content_start)
}

/// Returns the trimmed content of a line that is a comment (`<!-- -->`, `//` or `#`); `None` for other lines.
fn comment_content(line: &str) -> Option<&str> {
    let line = line.trim();
    if let Some(rest) = line.strip_prefix("<!--") {
        return Some(rest.strip_suffix("-->").unwrap_or(rest).trim());
    }
    line.strip_prefix("//").or_else(|| line.strip_prefix('#')).map(str::trim)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn misplaced_signature_is_found_but_incomplete_example_is_not() {
        let line = format!("# rye:signed:2026-02-14T00:27:54Z:{}:sig:0123456789abcdef", "0".repeat(64));
        let found = |text: &str| find_misplaced(SourceId(0), text).map(Span::range);
        assert_eq!(found(&format!("{line}\nbody\n")), None);
        assert_eq!(found(&format!("\n{line}\nbody\n")), Some(1..1 + line.len()));
        assert_eq!(found(&format!("#!/bin/sh\r\n{line}\r\n")), Some(11..11 + line.len()));
        assert_eq!(found("text\n<!-- rye:signed:TIMESTAMP:HASH:SIG:KEY -->\n"), None);
    }

    fn read(text: &str) -> Option<SignatureLine> {
        parse(SourceId(0), text).map(|s| s.node)
    }

    #[test]
    fn parse_accepts_three_comment_syntaxes() {
        for (open, close) in [("<!-- ", " -->"), ("# ", ""), ("// ", ""), ("#", ""), ("<!--", "-->")] {
            let text = format!("{open}rye:signed:2026-02-14T00:27:54Z:ab12:sig_-:0123456789abcdef{close}\r\nrest");
            let line = read(&text).unwrap();
            assert_eq!(line.timestamp, "2026-02-14T00:27:54Z");
            assert_eq!(line.sha256, "ab12");
            assert_eq!(line.signature, "sig_-");
            assert_eq!(line.key_id, "0123456789abcdef");
            assert_eq!(text.get(line.content_start..), Some("rest"));
        }
    }

    #[test]
    fn parse_returns_none_for_other_first_lines() {
        assert_eq!(read(""), None);
        assert_eq!(read("# Title\n"), None);
        assert_eq!(read("\n<!-- rye:signed:a:b:c:d -->"), None);
        assert_eq!(read("rye:signed:a:b:c:d"), None);
    }

    #[test]
    fn incomplete_signature_parses_with_empty_fields() {
        let line = read("<!-- rye:signed:oops -->").unwrap();
        assert_eq!((line.sha256.as_str(), line.content_start), ("", 24));
    }
}
