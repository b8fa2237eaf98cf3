//! Small pieces of text for reasons and messages.

use serde_json::Value;

/// Characters of a value that a message shows.
const SHOWN: usize = 60;

/// A value as a message shows it: strings without quotes, long ones cut.
pub fn shown(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or("")),
        None => text,
    }
}

/// Words in backticks, joined by commas.
pub fn list(words: &[impl AsRef<str>]) -> String {
    words.iter().map(|w| format!("`{}`", w.as_ref())).collect::<Vec<_>>().join(", ")
}
