//! Reads the file `.mcp.json`, and reports words in it that are misspelled. Words that are only unknown are no error,
//! because they may belong to other clients.

use crate::diagnostics::closest;
use crate::item::Items;

/// Maximum size of the file, in bytes.
const MAX_MCP_JSON_BYTES: usize = 1 << 20;

/// Returns the text of `.mcp.json`; `None` if the file does not exist. The error is the message for a file that is too
/// large, not UTF-8 or cannot be read.
pub(super) fn read_text(items: &Items<'_>) -> Result<Option<String>, String> {
    let Some(bytes) = items.mcp_json().map_err(|error| format!("`.mcp.json` cannot be read: {error}"))? else {
        return Ok(None);
    };
    if bytes.len() > MAX_MCP_JSON_BYTES {
        return Err(format!("`.mcp.json` is larger than {} MiB", MAX_MCP_JSON_BYTES >> 20));
    }
    String::from_utf8(bytes.to_vec()).map(Some).map_err(|error| format!("`.mcp.json` cannot be read: {error}"))
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
