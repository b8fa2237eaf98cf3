//! `rye mcp add`: adds a server to `.mcp.json`.

use std::collections::BTreeMap;
use std::path::Path;

use clap::{ArgGroup, Args};
use rye_compiler::item::Items;
use rye_compiler::mcp_servers::id_segment;
use rye_engine::tool::mcp::config::McpTransport;
use rye_engine::tool::mcp::{McpServer, config};
use rye_engine::trust::WrittenFile;
use serde_json::{Map, Value, json};

use crate::CommandError;
use crate::file_set::FileSet;
use crate::workspace::Spaces;

/// The project's file of MCP servers, in a format that other MCP clients use too.
const SERVERS_FILE: &str = ".mcp.json";
/// Maximum size of a `.mcp.json` to which a server is added, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("server").required(true).args(["url", "command"]))]
#[command(
    override_usage = "rye mcp add [OPTIONS] <NAME> -- <COMMAND>...\n       rye mcp add [OPTIONS] <NAME> --url <URL>"
)]
pub struct AddArgs {
    /// Name of the server
    #[arg(value_name = "NAME")]
    name: String,
    /// URL of a server that is reached over HTTP
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Folder of the project that the server may write (repeatable); stored as `needs` of the server
    #[arg(long, value_name = "FOLDER/", conflicts_with = "url")]
    write: Vec<String>,
    /// File or folder outside of the project that the server may read (repeatable); stored as `needs` of the server
    #[arg(long, value_name = "/PATH", conflicts_with = "url")]
    read: Vec<String>,
    /// Host that the server reaches (repeatable); stored as `needs` of the server
    #[arg(long, value_name = "HOST", conflicts_with = "url")]
    net: Vec<String>,
    /// Program of the server and its arguments, after `--`
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<String>,
}

/// Adds a server to `.mcp.json`. Records the change in `files`, so that the change can be undone.
pub fn add_server(
    args: &AddArgs,
    configured: &BTreeMap<String, McpServer>,
    spaces: &Spaces,
    files: &mut FileSet,
) -> Result<McpServer, CommandError> {
    let name = &args.name;
    if id_segment(name).as_ref() != Some(name) {
        let invalid = format!("the name `{}` is invalid", name.escape_debug());
        return Err(
            CommandError::usage(invalid).with_help("use letters, digits, `_` and `-`: `rye mcp add my-server -- …`")
        );
    }
    if let Some(known) = configured.get(name) {
        return Err(CommandError::usage(format!("the server `{name}` is configured in `{}` already", known.origin))
            .with_help(format!("update its items with `rye mcp refresh {name}`")));
    }
    let before = files.read(Path::new(SERVERS_FILE), MAX_FILE_BYTES)?;
    let text = with_server(before.as_deref(), name, server_entry(args))?;
    let written = files.replace(Path::new(SERVERS_FILE), text.as_bytes())?;
    // The new text extends the text that was read first.
    if written != WrittenFile::new(SERVERS_FILE.to_owned(), before.as_deref(), Some(text.as_bytes())) {
        return Err(CommandError::failed(format!(
            "`{SERVERS_FILE}` was changed by another program; run the command again"
        )));
    }
    find_server(name, spaces)
}

/// Returns the program of a server if no folder of `PATH` contains the program. `None` if the program is there or is
/// named by a path, or if the server sets a `PATH` of its own.
pub fn missing_program(server: &McpServer) -> Option<String> {
    let McpTransport::Stdio { command, environment, .. } = &server.transport else { return None };
    let program = command.first().filter(|program| !program.contains(['/', '$']))?;
    if environment.contains_key("PATH") {
        return None;
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&folders).any(|folder| folder.join(program).is_file());
    (!is_there).then(|| program.clone())
}

fn find_server(name: &str, spaces: &Spaces) -> Result<McpServer, CommandError> {
    let world = spaces.open()?;
    let mut all = config::read_servers(&Items::new(&world)).map_err(|error| CommandError::usage(error.with_line()))?;
    all.remove(name).ok_or_else(|| CommandError::failed(format!("`{SERVERS_FILE}` does not configure `{name}`")))
}

fn server_entry(args: &AddArgs) -> Value {
    match (&args.url, args.command.split_first()) {
        (None, Some((program, rest))) => {
            let mut entry = Map::from_iter([("command".to_owned(), json!(program)), ("args".to_owned(), json!(rest))]);
            let lists = [("read", &args.read), ("write", &args.write), ("net", &args.net)]
                .into_iter()
                .filter(|(_, list)| !list.is_empty());
            let needs: Map<String, Value> = lists.map(|(name, list)| (name.to_owned(), json!(list))).collect();
            if !needs.is_empty() {
                entry.insert("needs".to_owned(), Value::Object(needs));
            }
            Value::Object(entry)
        }
        (url, _) => json!({"type": "http", "url": url}),
    }
}

/// Returns the text of the servers file with one more server. `before` is the current text; `None` if the file does not
/// exist yet.
fn with_server(before: Option<&[u8]>, name: &str, entry: Value) -> Result<String, CommandError> {
    let broken = |why: &str| CommandError::failed(format!("`{SERVERS_FILE}` cannot be extended: {why}"));
    let mut file: Map<String, Value> = match before {
        None => Map::new(),
        Some(bytes) => serde_json::from_slice(bytes).map_err(|error| broken(&error.to_string()))?,
    };
    let servers = file.entry("mcpServers").or_insert_with(|| Value::Object(Map::new()));
    let servers = servers.as_object_mut().ok_or_else(|| broken("`mcpServers` is not an object"))?;
    // A disabled server is not among the configured servers.
    if servers.keys().any(|known| id_segment(known).as_deref() == Some(name)) {
        return Err(CommandError::usage(format!(
            "the server `{name}` is in `{SERVERS_FILE}` already, and is disabled"
        ))
        .with_help(format!("remove its `disabled`, and write its items with `rye mcp refresh {name}`")));
    }
    servers.insert(name.to_owned(), entry);
    let text = serde_json::to_string_pretty(&file).map_err(std::io::Error::other)?;
    Ok(format!("{text}\n"))
}
