//! The file `.mcp.json`: its text, and the check of it for misspelled words. Unknown words are no error, because they
//! may belong to other clients.

use std::io::Read as _;
use std::path::Path;

use rye_compiler::diagnostics::closest;

/// Maximum size of the file, in bytes.
const MAX_MCP_JSON_BYTES: u64 = 1 << 20;

/// Returns the text of `.mcp.json`; `None` if there is none.
pub(super) fn read_text(project: &Path) -> Result<Option<String>, String> {
    let path = project.join(".mcp.json");
    let metadata = match std::fs::symlink_metadata(&path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(format!("`.mcp.json` cannot be read: {e}")),
    };
    if !metadata.is_file() || metadata.len() > MAX_MCP_JSON_BYTES {
        return Err("`.mcp.json` is not a regular file, or too large".into());
    }
    let mut text = String::new();
    let read = std::fs::File::open(&path).and_then(|file| file.take(MAX_MCP_JSON_BYTES + 1).read_to_string(&mut text));
    read.map_err(|e| format!("`.mcp.json` cannot be read: {e}"))?;
    Ok(Some(text))
}

/// Returns true for a key that probably stands for `mcpServers`.
pub(super) fn is_like_mcp_servers(key: &str) -> bool {
    matches!(key, "servers" | "mcp" | "mcp_servers" | "mcp-servers") || closest(key, ["mcpServers"]).is_some()
}

/// Returns the message about a misspelled transport.
pub(super) fn misspelled_transport(word: &str) -> Option<String> {
    const NAMES: [&str; 4] = ["stdio", "http", "streamable-http", "sse"];
    let meant = closest(word, NAMES).filter(|_| !NAMES.contains(&word))?;
    Some(format!("`type` is `{}`; did you mean `{meant}`?", word.escape_debug()))
}
