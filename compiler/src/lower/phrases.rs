//! Functions that format values and lists for reasons and messages.

use serde_json::Value;

/// Maximum number of characters of a value in a message.
const MAX_VALUE_CHARS: usize = 60;

/// Formats a value for a message: strings without quotes, long values truncated.
pub fn format_value(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match text.char_indices().nth(MAX_VALUE_CHARS) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or("")),
        None => text,
    }
}

/// Lists the words, separated by commas and each in backticks.
pub fn quote_list(words: &[impl AsRef<str>]) -> String {
    words.iter().map(|w| format!("`{}`", w.as_ref())).collect::<Vec<_>>().join(", ")
}
