//! What the file tools share about text: what is binary, where lines end, how much is shown.

/// Bytes looked at to tell binary from text.
const SNIFF: usize = 8 * 1024;

/// Whether bytes at a file's start look like no text: a zero byte says so, unless a mark says UTF-16.
pub fn is_binary(start: &[u8]) -> bool {
    memchr::memchr(0, start.get(..SNIFF).unwrap_or(start)).is_some()
}

/// Text of at most `most` bytes, cut between characters.
pub fn cut(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let end = (0..=most).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

/// A line without its end, and whether it ended with CRLF.
pub fn without_end(line: &[u8]) -> (&[u8], bool) {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").map_or((line, false), |l| (l, true))
}

/// `1 line`, `2 lines`.
pub fn count(n: usize, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}
