//! The primary actions as tool definitions: names, descriptions and schemas for the palette (`language.md`, Palette).
//! Also defines the typed arguments, so that the gate checks exactly the call that is dispatched (`language.md`,
//! Capabilities). This module executes no call.

pub mod request;

use indexmap::IndexMap;
use rye_grammar::ItemId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::plan::InterfaceField;
pub use crate::semantics::capability::{ItemType, Primary};
use crate::semantics::glob::Glob;
use crate::semantics::glob::inclusion::{Witness, witness};
pub use request::{ExecuteRequest, FetchRequest, InvalidArguments, SignRequest};

/// A tool definition as sent to the model. `schema` is a JSON Schema of the arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrimaryDefinition {
    pub name: &'static str,
    pub description: String,
    pub schema: Value,
}

/// The name of the tool that ends a thread with structured outputs.
pub const DIRECTIVE_RETURN_TOOL: &str = "rye_directive_return";

impl Primary {
    /// Returns the name in the palette: `rye_execute`.
    pub fn tool_name(self) -> &'static str {
        match self {
            Self::Execute => "rye_execute",
            Self::Fetch => "rye_fetch",
            Self::Sign => "rye_sign",
        }
    }

    pub fn definition(self) -> PrimaryDefinition {
        match self {
            Self::Execute => execute(),
            Self::Fetch => fetch(),
            Self::Sign => sign(),
        }
    }

    /// Returns the schema of the arguments, including the arguments that a palette offers only if the thread may fetch
    /// skills.
    pub(crate) fn complete_schema(self) -> Value {
        match self {
            Self::Fetch => fetch_with_skills().schema,
            Self::Execute | Self::Sign => self.definition().schema,
        }
    }
}

/// Returns the capability for an action on an item; without an id, the capability for a query: `rye.fetch.knowledge`.
pub fn format_capability(primary: Primary, item_type: ItemType, item_id: Option<&ItemId>) -> String {
    let stem = format!("rye.{}.{}", primary.as_str(), item_type.as_str());
    item_id.map_or_else(|| stem.clone(), |id| format!("{stem}.{}", id.dotted()))
}

/// Returns the definition of `rye_directive_return` for these outputs. The schema requires no property, because an
/// error return has no outputs. A success with missing outputs is rejected with the names of these outputs
/// (`language.md`, Ends of a thread).
pub fn directive_return(outputs: &IndexMap<String, InterfaceField>) -> PrimaryDefinition {
    let mut properties = Map::new();
    properties.insert("status".into(), json!({"type": "string", "enum": ["success", "error"]}));
    for (name, field) in outputs {
        // An output called `status` replaces the built-in field; an error return then uses `error_detail`.
        properties.insert(name.clone(), field.json_schema());
    }
    properties
        .entry("error_detail")
        .or_insert_with(|| json!({"type": "string", "description": "With status error: what went wrong"}));
    let required: Vec<&str> = outputs.iter().filter(|(_, f)| f.required).map(|(n, _)| n.as_str()).collect();
    let description = if required.is_empty() {
        "End this thread and hand back its outputs.".to_owned()
    } else {
        format!("End this thread and hand back its outputs. Success needs: {}.", required.join(", "))
    };
    PrimaryDefinition {
        name: DIRECTIVE_RETURN_TOOL,
        description,
        schema: json!({"type": "object", "properties": properties, "additionalProperties": false}),
    }
}

fn execute() -> PrimaryDefinition {
    PrimaryDefinition {
        name: Primary::Execute.tool_name(),
        description: "Run a tool, start a directive as a child thread, or read knowledge, by item id.".into(),
        schema: json!({
            "type": "object",
            "properties": {
                "item_type": item_type_schema(),
                "item_id": item_id_schema(),
                "parameters": {"type": "object", "description": "Tool parameters or directive inputs", "properties": {}},
                "async": {"type": "boolean", "description": "Do not wait; answers a thread_id"},
            },
            "required": ["item_type", "item_id"],
            "additionalProperties": false,
        }),
    }
}

fn fetch() -> PrimaryDefinition {
    PrimaryDefinition {
        name: Primary::Fetch.tool_name(),
        description: "Read one item by id, search items by words, or page a stored result. \
                      Give item_id, query or object."
            .into(),
        schema: json!({
            "type": "object",
            "properties": {
                "item_type": item_type_schema(),
                "item_id": item_id_schema(),
                "query": {"type": "string", "description": "Words to look for"},
                "scope": {"type": "string", "description": "Only ids like this: project/*"},
                "object": {"type": "string", "description": "Hash of a stored result"},
                "offset": {"type": "integer", "minimum": 0, "description": "First byte of the page"},
                "limit": {"type": "integer", "minimum": 1, "description": "Hits, or bytes of the page"},
            },
            "additionalProperties": false,
        }),
    }
}

/// Returns the definition of `rye_fetch` for a thread that may fetch skills.
pub(crate) fn fetch_with_skills() -> PrimaryDefinition {
    let mut definition = fetch();
    if let Some(properties) = definition.schema.get_mut("properties").and_then(Value::as_object_mut) {
        let kinds: Vec<&str> = ItemType::ALL.into_iter().map(ItemType::as_str).collect();
        properties.insert("item_type".into(), json!({"type": "string", "enum": kinds}));
        let described = "A file in the folder of a skill; without it, the skill itself";
        properties.insert("path".into(), json!({"type": "string", "description": described}));
    }
    definition
}

fn sign() -> PrimaryDefinition {
    PrimaryDefinition {
        name: Primary::Sign.tool_name(),
        description: "Sign a project item, so that others can tell it is unchanged.".into(),
        schema: json!({
            "type": "object",
            "properties": {"item_type": item_type_schema(), "item_id": item_id_schema()},
            "required": ["item_type", "item_id"],
            "additionalProperties": false,
        }),
    }
}

fn item_type_schema() -> Value {
    json!({"type": "string", "enum": ["tool", "directive", "knowledge"]})
}

fn item_id_schema() -> Value {
    json!({"type": "string", "description": "Such as rye/file-system/read"})
}

/// Returns the primaries that a grant could allow.
pub fn possible_primaries(pattern: &str) -> Vec<Primary> {
    if let Some(only) = Primary::ALL.into_iter().find(|p| is_within_primary(pattern, *p)) {
        return vec![only];
    }
    let grant = Glob::new(pattern);
    let could = |primary: &Primary| {
        let any = Glob::new(&format!("rye.{}.*", primary.as_str()));
        // A pattern that is too complex for this comparison counts as matching.
        witness(&[&grant, &any], &[]) != Witness::None
    };
    Primary::ALL.into_iter().filter(could).collect()
}

/// Returns true if a pattern is limited to one primary: all items of the primary, a prefix of them, or one item.
fn is_within_primary(pattern: &str, primary: Primary) -> bool {
    let item = ItemType::ALL.iter().find_map(|kind| {
        pattern.strip_prefix(&format!("rye.{}.", primary.as_str()))?.strip_prefix(kind.as_str())?.strip_prefix('.')
    });
    if pattern.strip_prefix("rye.").and_then(|p| p.strip_suffix(".*")) == Some(primary.as_str()) {
        return true;
    }
    item.map(|item| item.strip_suffix(".*").or_else(|| item.strip_suffix('*')).unwrap_or(item))
        .is_some_and(|item| !item.is_empty() && item.split('.').all(is_segment))
}

fn is_segment(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;
    use crate::plan::{FieldType, ValueParts};

    #[test]
    fn names_and_words_agree() {
        for p in Primary::ALL {
            assert_eq!(p.definition().name, p.tool_name());
            assert_eq!(format!("rye_{}", p.as_str()), p.tool_name());
        }
    }

    #[test]
    fn capabilities_use_dots_and_drop_the_id_of_a_query() {
        let id = ItemId::parse("rye/file-system/read").unwrap();
        assert_eq!(
            format_capability(Primary::Execute, ItemType::Tool, Some(&id)),
            "rye.execute.tool.rye.file-system.read"
        );
        assert_eq!(format_capability(Primary::Fetch, ItemType::Knowledge, None), "rye.fetch.knowledge");
    }

    #[test]
    fn return_tool_schema_has_the_declared_outputs() {
        let field = |kind, required, choices| InterfaceField {
            kind,
            required,
            default: None,
            choices,
            description: "what it is".into(),
            parts: ValueParts::default(),
        };
        let outputs = IndexMap::from([
            ("url".to_owned(), field(FieldType::String, true, vec![json!("a"), json!("b")])),
            ("note".to_owned(), field(FieldType::Array, false, Vec::new())),
        ]);
        let d = directive_return(&outputs);
        assert_eq!(d.description, "End this thread and hand back its outputs. Success needs: url.");
        assert_eq!(d.schema["properties"]["url"], json!({"type":"string","description":"what it is","enum":["a","b"]}));
        assert_eq!(d.schema["properties"]["note"], json!({"type":"array","items":{},"description":"what it is"}));
        assert_eq!(d.schema["required"], Value::Null);
        let keys: Vec<&String> = d.schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["status", "url", "note", "error_detail"]);
    }

    #[test]
    fn primary_definitions_stay_small() {
        let size: usize =
            Primary::ALL.iter().map(|p| p.definition()).map(|d| d.description.len() + d.schema.to_string().len()).sum();
        assert!(size / 4 < 450, "{} tokens", size / 4);
    }
}
