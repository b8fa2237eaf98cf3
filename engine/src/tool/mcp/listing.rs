//! The tool items of an MCP server: one file for each tool, with the whole definition of the tool and a hash that
//! detects later changes. `rye mcp refresh` writes the files. The compiler reads them like other tool items.

use std::collections::BTreeMap;

use rye_compiler::mcp_servers::id_segment;
use rye_compiler::tool_spec::{ToolSpec, ToolSpecError, ToolSpecErrorKind};
use rye_grammar::SourceId;
use rye_grammar::tool_header::{self, NoScriptReader, ToolLanguage};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::McpServer;
use super::config::SandboxOpenings;

/// The definition of a tool, as an MCP server lists the tool.
#[derive(Debug, Clone, PartialEq)]
pub struct McpToolDefinition {
    /// The tool's name, as the server lists it.
    pub name: String,
    pub description: String,
    pub schema: Map<String, Value>,
    /// True if the server runs the tool only as an MCP task, which `rye` does not support.
    pub requires_task: bool,
    /// SHA-256 of name, description and schema as canonical JSON, and of `requires_task` if it is true.
    pub sha256: String,
}

impl McpToolDefinition {
    pub fn new(name: String, description: String, schema: Map<String, Value>, requires_task: bool) -> Self {
        let mut whole = json!({"name": name, "description": description, "inputSchema": schema});
        if requires_task && let Some(whole) = whole.as_object_mut() {
            whole.insert("taskSupport".to_owned(), json!("required"));
        }
        // A definition with a number that has no canonical form is hashed as plain JSON.
        let bytes = serde_json_canonicalizer::to_vec(&whole).unwrap_or_else(|_| whole.to_string().into_bytes());
        let sha256 = rye_compiler::plan::hex(&Sha256::digest(&bytes));
        Self { name, description, schema, requires_task, sha256 }
    }

    /// Returns the size in bytes of the name, the description and the schema (as JSON) together.
    pub(crate) fn size_bytes(&self) -> usize {
        let schema = serde_json::to_string(&self.schema).map_or(0, |text| text.len());
        self.name.len() + self.description.len() + schema
    }

    /// Returns the text of the item file of this tool.
    pub fn item_text(&self, server: &McpServer) -> String {
        let mut schema = self.schema.clone();
        schema.shift_remove("$schema");
        let description = if self.description.trim().is_empty() {
            format!("The tool `{}` of the server `{}`, which gives no description.", self.name, server.name)
        } else {
            self.description.clone()
        };
        let mut lines = vec![
            "# Written by `rye mcp refresh`. If this file or the server's tool changes, the tool is no longer called."
                .to_owned(),
            format!("description: {}", json!(description)),
            "kind: mcp".to_owned(),
            format!("server: {}", json!(server.name)),
            format!("tool: {}", json!(self.name)),
            format!("sha256: {}", json!(self.sha256)),
            format!("server_sha256: {}", json!(server.transport_sha256())),
            format!("runs: {}", json!(server.describe())),
            format!("sandbox: {}", server.isolation().as_str()),
            format!("timeout_seconds: {}", server.timeout.as_secs()),
        ];
        let SandboxOpenings { write, net, read: _ } = server.required_openings();
        if !(write.is_empty() && net.is_empty()) {
            lines.push(format!("needs: {}", json!({"write": write, "net": net})));
        }
        if self.requires_task {
            lines.push("task_support: required".to_owned());
        }
        lines.push(format!("parameters: {}", Value::Object(schema)));
        lines.join("\n") + "\n"
    }
}

/// The tool items of one MCP server, as files of the project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerItems {
    /// File names below `.ai/tools/mcp/<server>/`, with their text.
    pub files: BTreeMap<String, String>,
    /// Messages for the user, one for each tool that cannot be used.
    pub warnings: Vec<String>,
}

/// Returns the items of a server. A tool that the server runs only as a task, or whose schema cannot be used, still
/// gets an item, so that `rye check` reports the tool. A tool whose definition is invalid in another way gets no item.
///
/// # Errors
///
/// A message for the user: two tools have the same item name.
pub fn server_items(server: &McpServer, definitions: &[McpToolDefinition]) -> Result<ServerItems, String> {
    let mut items = ServerItems::default();
    let mut names: BTreeMap<String, &str> = BTreeMap::new();
    for definition in definitions {
        let shown = definition.name.escape_debug();
        let Some(name) = id_segment(&definition.name) else {
            items.warnings.push(format!("server `{}`: a tool has no usable name: `{shown}`", server.name));
            continue;
        };
        if let Some(other) = names.insert(name.clone(), &definition.name) {
            return Err(format!(
                "server `{}`: `{}` and `{shown}` both have the item name `{name}`",
                server.name,
                other.escape_debug()
            ));
        }
        let text = definition.item_text(server);
        let parsed = tool_header::parse(SourceId(0), &text, ToolLanguage::Yaml, &NoScriptReader);
        let faults = ToolSpec::read(&parsed.tree).err().unwrap_or_default();
        let first = parsed.errors.first().map(ToString::to_string);
        if let Some(fault) = first.or_else(|| faults.first().map(|fault| fault.message.clone())) {
            items.warnings.push(format!("server `{}`: tool `{shown}` cannot be used: {fault}", server.name));
        }
        let is_of_server = |fault: &ToolSpecError| match fault.code {
            ToolSpecErrorKind::ServerSchema | ToolSpecErrorKind::ServerTask => true,
            ToolSpecErrorKind::UnknownKey | ToolSpecErrorKind::MissingKey | ToolSpecErrorKind::BadValue => false,
        };
        if parsed.errors.is_empty() && faults.iter().all(is_of_server) {
            items.files.insert(format!("{name}.yaml"), text);
        }
    }
    Ok(items)
}
