//! Tools in the form that a request contains: definitions converted for the wire format, or instructions in the system
//! prompt of a model without native tool use. `rye plan` shows the tools in this form, and the engine sends them.
//!
//! The converted schema accepts every value that the original JSON Schema (2020-12) accepts. A constraint that the wire
//! format cannot express becomes part of a description. If such a constraint is inside a keyword that would then accept
//! fewer values, such as `not`, the whole keyword becomes part of a description. The engine validates each call against
//! the original schema before the tool runs.
//!
//! Every wire format requires an object at the root, without `anyOf`, `oneOf`, `allOf`, `not`, `enum`, `if` and `$ref`
//! beside its properties. Property names have at most 64 characters of `A-Z a-z 0-9 _ . -`.

mod complete;
pub mod instructions;
mod merge;
mod references;
mod root;
mod subset;
mod widened;

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::plan::{PaletteTool, PlannedModel, ToolUse};
use crate::tool_spec::{resolve_pointer, upgrade_schema};

/// The part of JSON Schema that a wire format accepts for the properties of a parameter schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SchemaDialect {
    /// All of JSON Schema. Each schema of an array must have `items`, and each schema of an object must have
    /// `properties`.
    Complete,
    /// Only the keywords that Gemini documents. References are replaced by their targets.
    Subset,
}

impl SchemaDialect {
    /// Returns the dialect of a wire format; `None` for a wire format that sends no schemas, such as that of scripted
    /// replies.
    pub fn of_wire(wire: &str) -> Option<Self> {
        match wire {
            "anthropic" | "openai-chat" | "openai-responses" => Some(Self::Complete),
            "gemini" => Some(Self::Subset),
            _ => None,
        }
    }
}

/// A tool definition in the form that a request contains.
#[derive(Debug, Clone, PartialEq)]
pub struct WireTool<'t> {
    /// The description of the tool. If the wire format cannot express some rules at the root of the parameter schema,
    /// these rules follow as text.
    pub description: Cow<'t, str>,
    /// JSON Schema of the parameters; `None` if the tool has no parameters and the wire format then sends no schema.
    pub parameters: Option<Cow<'t, Value>>,
}

impl WireTool<'_> {
    /// Returns the text whose tokens are counted for a definition: the schema as JSON, then the description.
    pub fn text(&self) -> String {
        let schema = self.parameters.as_deref().map(ToString::to_string).unwrap_or_default();
        format!("{schema}{}", self.description)
    }
}

/// Converts the definition of a tool to the form that requests in the wire format `wire` contain.
pub fn convert_tool<'t>(wire: &str, description: &'t str, schema: &'t Value) -> WireTool<'t> {
    let Some(dialect) = SchemaDialect::of_wire(wire) else {
        return WireTool { description: Cow::Borrowed(description), parameters: Some(Cow::Borrowed(schema)) };
    };
    let (parameters, notes) = convert_parameters(schema, dialect);
    let description = if notes.is_empty() {
        Cow::Borrowed(description)
    } else {
        Cow::Owned(with_notes(description, "Rules for the parameters", &notes))
    };
    let is_sent = dialect == SchemaDialect::Complete || has_parameters(&parameters);
    WireTool { description, parameters: is_sent.then_some(Cow::Owned(parameters)) }
}

/// Returns true if a schema declares properties, or explicitly allows additional ones.
fn has_parameters(schema: &Value) -> bool {
    let declared = schema.get("properties").and_then(Value::as_object).is_some_and(|declared| !declared.is_empty());
    declared || schema.get("additionalProperties").is_some_and(|rest| rest != &Value::Bool(false))
}

impl PlannedModel {
    /// Returns a tool in the form that a request to this model contains.
    pub fn wire_tool<'t>(&self, tool: &'t PaletteTool) -> WireTool<'t> {
        let wire = match self.tool_use {
            ToolUse::Native => self.wire.as_str(),
            // The instructions contain the definition as written.
            ToolUse::TextParsed => "",
        };
        convert_tool(wire, &tool.description, &tool.schema)
    }
}

/// Converts the schema of a tool's parameters to a dialect. Also returns the rules of the schema that the dialect
/// cannot express.
fn convert_parameters(schema: &Value, dialect: SchemaDialect) -> (Value, Vec<String>) {
    let mut original = schema.clone();
    upgrade_schema(&mut original);
    let (map, mut notes) = root::flatten_root(&original);
    if dialect == SchemaDialect::Complete {
        let mut whole = Value::Object(map.clone());
        let mut more = notes.clone();
        references::keep_targets(&original, &mut whole);
        complete::complete_root(&mut whole, &mut more);
        if references_resolve(&whole, &whole, 0) {
            return (whole, more);
        }
        // The conversion removed the target of a reference, so the schema is converted to the subset, which has no
        // references.
    }
    let subset = subset::convert_root(&original, map, &mut notes);
    (subset, notes)
}

fn references_resolve(root: &Value, value: &Value, depth: usize) -> bool {
    if depth > MAX_SCHEMA_DEPTH {
        return true;
    }
    match value {
        Value::Object(map) => {
            let reference = map.get("$ref").and_then(Value::as_str);
            reference.is_none_or(|reference| resolve_pointer(root, reference).is_some())
                && map.values().all(|child| references_resolve(root, child, depth + 1))
        }
        Value::Array(list) => list.iter().all(|child| references_resolve(root, child, depth + 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Maximum depth of a schema; deeper parts are not inspected.
const MAX_SCHEMA_DEPTH: usize = 64;

/// Maximum length of a property name, in bytes.
const MAX_PROPERTY_NAME_BYTES: usize = 64;

/// Returns true if every wire format accepts a property of this name.
pub fn is_wire_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    !name.is_empty() && name.len() <= MAX_PROPERTY_NAME_BYTES && name.bytes().all(plain)
}

/// Removes each property with a name that at least one wire format does not accept. Returns a description of each
/// removed property for the model, because a model can still send these properties.
fn remove_unnameable_properties(map: &mut Map<String, Value>) -> Vec<String> {
    let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) else { return Vec::new() };
    if properties.keys().all(|name| is_wire_name(name)) {
        return Vec::new();
    }
    let required: Vec<Value> = map.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let properties = map.get_mut("properties").and_then(Value::as_object_mut);
    let definitions = properties.map(std::mem::take).unwrap_or_default();
    let (kept, moved): (Map<String, Value>, Map<String, Value>) =
        definitions.into_iter().partition(|(name, _)| is_wire_name(name));
    let note = |(name, schema): (&String, &Value)| {
        let needed = if required.iter().any(|r| r.as_str() == Some(name)) { "required" } else { "optional" };
        format!("there is also the {needed} property {}: {schema}", json!(name))
    };
    let mut notes: Vec<String> = moved.iter().map(note).collect();
    map.insert("properties".to_owned(), Value::Object(kept));
    if let Some(Value::Array(names)) = map.get_mut("required") {
        names.retain(|name| name.as_str().is_none_or(|name| !moved.contains_key(name)));
        if names.is_empty() {
            map.shift_remove("required");
        }
    }
    // The removed properties would now count as additional properties.
    for key in ["additionalProperties", "unevaluatedProperties", "propertyNames"] {
        match map.shift_remove(key) {
            None | Some(Value::Bool(true)) => {}
            Some(value) => notes.push(format!("{key} {value}")),
        }
    }
    notes
}

/// Returns the description followed by a line with `title` and the rules: `title: rule; rule.`
fn with_notes(description: &str, title: &str, notes: &[String]) -> String {
    let rules = format!("{title}: {}.", notes.join("; "));
    if description.trim().is_empty() { rules } else { format!("{}\n{rules}", description.trim_end()) }
}

/// Appends rules to the description of a schema.
fn add_notes(map: &mut Map<String, Value>, notes: &[String]) {
    if notes.is_empty() {
        return;
    }
    let before = map.get("description").and_then(Value::as_str).unwrap_or_default();
    let description = with_notes(before, "Rules", notes);
    map.insert("description".to_owned(), description.into());
}

/// Returns the types that the keyword `type` names; empty without `type`.
fn types_of(map: &Map<String, Value>) -> Vec<&str> {
    match map.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => Vec::new(),
    }
}
