//! Reads the file `.mcp.json`, and reports words in it that are misspelled. Other unknown words are not errors, because
//! they may belong to other clients; `rye check` warns about unknown keys of a server.

use crate::diagnostics::closest;
use crate::item::Items;

const MAX_MCP_JSON_BYTES: usize = 1 << 20;

/// Returns the text of `.mcp.json`; `None` if the file does not exist. The error is a message: the file is too large,
/// is not UTF-8 or cannot be read.
pub(super) fn read_text(items: &Items<'_>) -> Result<Option<String>, String> {
    let Some(bytes) = items.mcp_json().map_err(|error| format!("`.mcp.json` cannot be read: {error}"))? else {
        return Ok(None);
    };
    if bytes.len() > MAX_MCP_JSON_BYTES {
        return Err(format!("`.mcp.json` is larger than {} MiB", MAX_MCP_JSON_BYTES >> 20));
    }
    String::from_utf8(bytes.to_vec()).map(Some).map_err(|error| format!("`.mcp.json` cannot be read: {error}"))
}

/// Returns the first JSON error of a text, such as a trailing comma, and its byte offset; `None` for valid JSON and for
/// an empty text. The YAML reader does not report such errors, because it accepts more than JSON.
pub(super) fn json_error(text: &str) -> Option<(String, usize)> {
    let json = text.strip_prefix('\u{feff}').unwrap_or(text);
    if json.trim().is_empty() {
        return None;
    }
    let error = serde_json::from_str::<serde_json::Value>(json).err()?;
    let line_start: usize = json.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let at = text.len() - json.len() + line_start + error.column().saturating_sub(1);
    let at = text.floor_char_boundary(at.min(text.len()));
    if text.get(at..).is_some_and(|rest| rest.starts_with(['/', '#'])) {
        return Some(("JSON has no comments".to_owned(), at));
    }
    let message = error.to_string();
    Some((message.split(" at line ").next().unwrap_or_default().to_owned(), at))
}

/// Returns true for a key that probably stands for `mcpServers`.
pub(super) fn is_like_mcp_servers(key: &str) -> bool {
    matches!(key, "servers" | "mcp" | "mcp_servers" | "mcp-servers") || closest(key, ["mcpServers"]).is_some()
}

/// Returns the message about a misspelled transport; `None` if `word` is a transport, or resembles none.
pub(super) fn misspelled_transport(word: &str) -> Option<String> {
    const NAMES: [&str; 4] = ["stdio", "http", "streamable-http", "sse"];
    let meant = closest(word, NAMES).filter(|_| !NAMES.contains(&word))?;
    Some(format!("`type` is `{}`; did you mean `{meant}`?", word.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_only_yaml_accepts_has_an_error_with_its_place() {
        assert_eq!(json_error("{\"a\": 1}"), None);
        assert_eq!(json_error("\u{feff}{}\n"), None);
        assert_eq!(json_error(" \n"), None);
        let text = "{\n  \"a\": [1,],\n}";
        let (message, at) = json_error(text).unwrap_or_default();
        assert_eq!((message.as_str(), text.get(at..=at)), ("trailing comma", Some("]")));
        assert!(json_error("a: 1").is_some());
        assert_eq!(json_error("{} # x"), Some(("JSON has no comments".to_owned(), 3)));
    }
}
