//! Text helpers of the file tools: binary detection, line ends, truncation.

/// Number of bytes examined to detect binary files.
const SNIFF_BYTES: usize = 8 * 1024;

/// Returns true if the first bytes of a file contain a zero byte, so that the file is not text.
pub fn is_binary(start: &[u8]) -> bool {
    memchr::memchr(0, start.get(..SNIFF_BYTES).unwrap_or(start)).is_some()
}

/// Truncates text to at most `most` bytes, between characters.
pub fn truncate(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let end = (0..=most).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

/// Returns a line without its line end, and true if the line end was CRLF.
pub fn split_line_end(line: &[u8]) -> (&[u8], bool) {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").map_or((line, false), |l| (l, true))
}

/// Formats a count: `1 line`, `2 lines`.
pub fn format_count(n: usize, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}
