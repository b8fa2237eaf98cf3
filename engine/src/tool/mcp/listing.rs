//! Tool items for the definitions of a server: one file per tool with the whole definition, and a hash that detects
//! later changes. `rye mcp refresh` writes them; they are read like any other tool.

use std::collections::BTreeMap;

use rye_compiler::tool_spec::ToolSpec;
use rye_grammar::SourceId;
use rye_grammar::tool_header::{self, NoScriptReader, ToolLanguage};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::Server;
use super::config::Openings;

/// A tool definition of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// The server's own name.
    pub name: String,
    pub description: String,
    pub schema: Map<String, Value>,
    /// SHA-256 of name, description and schema as canonical JSON.
    pub sha256: String,
}

impl Definition {
    pub fn new(name: String, description: String, schema: Map<String, Value>) -> Self {
        let whole = json!({"name": name, "description": description, "inputSchema": schema});
        // Numbers without a canonical form are kept as they were sent.
        let bytes = serde_json_canonicalizer::to_vec(&whole).unwrap_or_else(|_| whole.to_string().into_bytes());
        let sha256 = rye_compiler::plan::hex(&Sha256::digest(&bytes));
        Self { name, description, schema, sha256 }
    }

    /// Returns the size of the definition, in bytes of JSON.
    pub fn size(&self) -> usize {
        let schema = serde_json::to_string(&self.schema).map_or(0, |text| text.len());
        self.name.len() + self.description.len() + schema
    }

    /// Returns the text of the item.
    pub fn item(&self, server: &Server) -> String {
        let mut schema = self.schema.clone();
        schema.shift_remove("$schema");
        let description = if self.description.trim().is_empty() {
            format!("The tool `{}` of the server `{}`, which describes it no further.", self.name, server.name)
        } else {
            self.description.clone()
        };
        let mut lines = vec![
            "# Written by `rye mcp refresh`. A change here, or of the tool there, keeps it from being called."
                .to_owned(),
            format!("description: {}", json!(description)),
            "kind: mcp".to_owned(),
            format!("server: {}", json!(server.name)),
            format!("tool: {}", json!(self.name)),
            format!("sha256: {}", json!(self.sha256)),
            format!("server_sha256: {}", json!(server.sha256())),
            format!("runs: {}", json!(server.describe())),
            format!("wall: {}", server.wall().word()),
            format!("timeout_seconds: {}", server.timeout.as_secs()),
        ];
        let Openings { write, net, read: _ } = server.needs();
        if !(write.is_empty() && net.is_empty()) {
            lines.push(format!("needs: {}", json!({"write": write, "net": net})));
        }
        lines.push(format!("parameters: {}", Value::Object(schema)));
        lines.join("\n") + "\n"
    }
}

/// Returns the items of a server: file names below `.ai/tools/mcp/<server>/`, with their text.
///
/// # Errors
/// A message for the user: two tools with the same name, or an invalid definition.
pub fn items(server: &Server, definitions: &[Definition]) -> Result<BTreeMap<String, String>, String> {
    let mut files = BTreeMap::new();
    let mut names: BTreeMap<String, &str> = BTreeMap::new();
    for definition in definitions {
        let shown = definition.name.escape_debug();
        let name = segment(&definition.name).ok_or_else(|| format!("server `{}`: a tool has no name", server.name))?;
        if let Some(other) = names.insert(name.clone(), &definition.name) {
            return Err(format!(
                "server `{}`: `{}` and `{shown}` are both `{name}`",
                server.name,
                other.escape_debug()
            ));
        }
        let text = definition.item(server);
        let parsed = tool_header::parse(SourceId(0), &text, ToolLanguage::Yaml, &NoScriptReader);
        let fault = parsed.errors.first().map(ToString::to_string).or_else(|| {
            ToolSpec::read(&parsed.tree).err().and_then(|faults| faults.into_iter().map(|f| f.message).next())
        });
        if let Some(fault) = fault {
            return Err(format!("server `{}`: tool `{shown}` cannot be used: {fault}", server.name));
        }
        files.insert(format!("{name}.yaml"), text);
    }
    Ok(files)
}

/// Converts a foreign name to a segment of an id: invalid characters become `_` (`language.md` 1).
pub fn segment(name: &str) -> Option<String> {
    let text: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }).collect();
    (!text.is_empty() && text.len() <= 128).then_some(text)
}
