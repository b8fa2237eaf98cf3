//! Faults of JSON texts that a parser does not report. The parser rounds integers beyond 64 bits, and keeps only the
//! last value of a repeated key.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::IgnoredAny;

/// A part of a JSON text that a parsed value does not represent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonFault {
    /// An integer below −2⁶³ or above 2⁶⁴−1.
    Integer(String),
    /// A key that occurs twice in one object.
    RepeatedKey(String),
}

/// Maximum length of a number or key in the description of a fault, in characters.
const MAX_SHOWN_CHARS: usize = 60;

impl fmt::Display for JsonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &str| {
            let head: String = text.chars().take(MAX_SHOWN_CHARS).collect();
            if head.len() == text.len() { head } else { format!("{head}…") }
        };
        match self {
            Self::Integer(number) => write!(f, "the integer {} does not fit into 64 bits", shown(number)),
            Self::RepeatedKey(key) => write!(f, "the key `{}` comes twice", shown(key).escape_debug()),
        }
    }
}

/// Returns the first fault of a valid JSON text; `None` if it has no fault.
pub fn find_fault(text: &str) -> Option<JsonFault> {
    // The keys of each open object; `None` for an open list.
    let mut open: Vec<Option<BTreeSet<String>>> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => {
                let length = string_length(rest);
                let (token, after) = rest.split_at(length);
                if after.trim_start().starts_with(':')
                    && let Some(Some(keys)) = open.last_mut()
                {
                    // A lone surrogate escape keeps its spelling.
                    let key = serde_json::from_str(token).unwrap_or_else(|_| token.trim_matches('"').to_owned());
                    if let Some(repeated) = keys.replace(key) {
                        return Some(JsonFault::RepeatedKey(repeated));
                    }
                }
                length
            }
            '-' | '0'..='9' => {
                let is_part = |c: char| matches!(c, '-' | '+' | '.' | 'e' | 'E' | '0'..='9');
                let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                let number = rest.get(..length).unwrap_or_default();
                let is_integer = !number.contains(['.', 'e', 'E']);
                if is_integer && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                    return Some(JsonFault::Integer(number.to_owned()));
                }
                length
            }
            '{' => {
                open.push(Some(BTreeSet::new()));
                1
            }
            '[' => {
                open.push(None);
                1
            }
            '}' | ']' => {
                open.pop();
                1
            }
            _ => first.len_utf8(),
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    None
}

/// Returns the length of the string that a JSON text starts with, including its quotes.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            b'"' if !escaped => return at + 1,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// Returns the texts of the values that have this key in a JSON text and that have a fault.
pub(crate) fn faulty_values<'t>(text: &'t str, key: &str) -> Vec<&'t str> {
    let quoted = format!("\"{key}\"");
    let values = memchr::memmem::find_iter(text.as_bytes(), quoted.as_bytes()).filter_map(|at| {
        let value = text.get(at + quoted.len()..)?.trim_start().strip_prefix(':')?.trim_start();
        let mut parsed = serde_json::Deserializer::from_str(value).into_iter::<IgnoredAny>();
        parsed.next()?.ok()?;
        let value = value.get(..parsed.byte_offset())?;
        find_fault(value).map(|_| value)
    });
    values.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_beyond_64_bits_and_repeated_keys_are_faults() {
        let integer = |text: &str| Some(JsonFault::Integer(text.to_owned()));
        let key = |text: &str| Some(JsonFault::RepeatedKey(text.to_owned()));
        for (text, fault) in [
            (r#"{"a": 18446744073709551615, "b": -9223372036854775808, "c": [-0, 1.5e300, 0.1]}"#, None),
            (r#"{"a": 18446744073709551616}"#, integer("18446744073709551616")),
            (r#"{"a": [1, {"b":-9223372036854775809}]}"#, integer("-9223372036854775809")),
            (r#"{"a": "18446744073709551616", "b": "\"18446744073709551616"}"#, None),
            (r#"{"a": 1, "b": {"a": 2}, "c": [{"a": 3}, {"a": 4}]}"#, None),
            (r#"{"a": 1, "b": 2, "\u0061" : 3}"#, key("a")),
            (r#"{"a": {"b": 1, "b": 1}}"#, key("b")),
            (r#"{"a": "a", "b": ["a", "a"], "\\": "}", "\"": "{"}"#, None),
            (r#"{"\ud800": 1, "\ud800": 2}"#, key(r"\ud800")),
            ("7", None),
            (r#"{"cut": "#, None),
        ] {
            assert_eq!(find_fault(text), fault, "{text}");
        }
    }

    #[test]
    fn faulty_values_are_found_under_their_key_only() {
        let text = r#"{"args": {"n": 1}, "x": [{"args" : {"n": 18446744073709551616}}, {"args":{"n": 1, "n": 2}}],
            "y": "\"args\": 18446744073709551616", "n": 18446744073709551616}"#;
        assert_eq!(faulty_values(text, "args"), [r#"{"n": 18446744073709551616}"#, r#"{"n": 1, "n": 2}"#]);
    }
}
