//! Functions that read the values of MCP server settings: strings, lists and mappings.

use std::collections::BTreeMap;

use rye_grammar::data::{Kind, Node};

use super::{ServerFault, id_segment};

/// Returns true if a section of the settings disables the server of this name. The settings of a disabled server are
/// still checked, but the server is never listed or started.
pub(super) fn is_disabled(section: &Node, name: &str) -> bool {
    section.entries().iter().any(|entry| {
        id_segment(&entry.key.node).as_deref() == Some(name)
            && entry.value.get("disabled").and_then(Node::as_bool) == Some(true)
    })
}

/// Reads a string as a list of one text, or a list of strings and numbers. A number becomes its text.
pub(super) fn read_strings(node: &Node, key: &str) -> Result<Vec<String>, ServerFault> {
    match &node.kind {
        Kind::String(s) => Ok(vec![s.clone()]),
        Kind::List(items) => items
            .iter()
            .map(|i| match &i.kind {
                Kind::String(s) => Ok(s.clone()),
                Kind::Number(n) => Ok(n.to_string()),
                Kind::Null | Kind::Bool(_) | Kind::List(_) | Kind::Map(_) => {
                    Err(ServerFault::at(i, format!("`{key}` must be a list of strings")))
                }
            })
            .collect(),
        Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Map(_) => {
            Err(ServerFault::at(node, format!("`{key}` must be a list of strings")))
        }
    }
}

/// Reads a mapping of names to strings; empty if there is none. Numbers and booleans count as strings.
pub(super) fn read_string_map(node: Option<&Node>, key: &str) -> Result<BTreeMap<String, String>, ServerFault> {
    let Some(node) = node else { return Ok(BTreeMap::new()) };
    if !matches!(node.kind, Kind::Map(_)) {
        return Err(ServerFault::at(node, format!("`{key}` must be a mapping of names to strings")));
    }
    let mut out = BTreeMap::new();
    for entry in node.entries() {
        let value = match &entry.value.kind {
            Kind::String(s) => s.clone(),
            Kind::Number(n) => n.to_string(),
            Kind::Bool(b) => b.to_string(),
            Kind::Null | Kind::List(_) | Kind::Map(_) => {
                return Err(ServerFault::at(&entry.value, format!("`{key}` must be a mapping of names to strings")));
            }
        };
        out.insert(entry.key.node.clone(), value);
    }
    Ok(out)
}
