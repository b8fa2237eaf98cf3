//! Conversion of the root of a parameter schema to the schema of a plain object: references and combinations (`allOf`,
//! `anyOf`, `oneOf`) at the root are merged.

use crate::tool_spec::resolve_pointer;
use serde_json::{Map, Value, json};

use super::merge::{closing_rule, merge_all, merge_any, without_constraints};
use super::references::remove_document_keywords;

/// Maximum nesting of references and combinations (`$ref`, `allOf`, `anyOf`, `oneOf`). Deeper schemas are ignored.
const MAX_NESTING: usize = 16;
/// Keywords that no wire accepts at the root of a schema, and that cannot be merged into the schema of a plain object.
const OTHER_COMBINATIONS: [&str; 9] =
    ["not", "if", "then", "else", "enum", "const", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems"];

/// Converts a parameter schema to a schema without references and combinations at its root. Also returns the rules of
/// the parameter schema that the result cannot express.
pub(super) fn flatten_root(root: &Value) -> (Map<String, Value>, Vec<String>) {
    let mut notes = Vec::new();
    let mut map = flatten(root, root, 0, &mut notes);
    remove_document_keywords(&mut map);
    if let Some(definitions) = root.as_object() {
        for key in ["$defs", "definitions"] {
            if let Some(value) = definitions.get(key) {
                map.insert(key.to_owned(), value.clone());
            }
        }
    }
    map.insert("type".to_owned(), "object".into());
    if !map.get("properties").is_some_and(Value::is_object) {
        map.insert("properties".to_owned(), Value::Object(Map::new()));
    }
    declare_required(&mut map);
    (map, notes)
}

fn flatten(root: &Value, schema: &Value, depth: usize, notes: &mut Vec<String>) -> Map<String, Value> {
    let Some(map) = schema.as_object().filter(|_| depth <= MAX_NESTING) else {
        return Map::new();
    };
    let mut map = map.clone();
    let mut conflicts = Vec::new();
    for key in ["$ref", "$dynamicRef"] {
        if let Some(reference) = map.shift_remove(key)
            && let Some(target) = reference.as_str().and_then(|reference| resolve_pointer(root, reference))
        {
            let mut merged = flatten(root, target, depth + 1, notes);
            merge_all(&mut merged, map, &mut conflicts);
            map = merged;
        }
    }
    if let Some(Value::Array(all)) = map.shift_remove("allOf") {
        for member in &all {
            let mut member = flatten(root, member, depth + 1, notes);
            // The description of the whole schema takes precedence over the description of a member.
            if map.contains_key("description") {
                member.shift_remove("description");
            }
            notes.extend(closing_rule(&map, &member));
            merge_all(&mut map, member, &mut conflicts);
        }
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(Value::Array(any)) = map.shift_remove(key) {
            notes.push(format!("{key} {}", Value::Array(any.clone())));
            // The note states the rules of the branches, so the branches' own notes are dropped.
            let branches: Vec<Map<String, Value>> = any
                .iter()
                .filter(|s| accepts_object(s))
                .map(|s| flatten(root, s, depth + 1, &mut Vec::new()))
                .collect();
            merge_all(&mut map, merge_any(&branches), &mut conflicts);
        }
    }
    for key in ["then", "else"] {
        let Some(Value::Object(branch)) = map.get(key).cloned() else { continue };
        let branch = flatten(root, &Value::Object(branch), depth + 1, &mut Vec::new());
        let declared = branch.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        let properties = map.entry("properties".to_owned()).or_insert_with(|| Value::Object(Map::new()));
        if let Some(properties) = properties.as_object_mut() {
            for (name, schema) in declared {
                // A branch applies only to some calls, so its properties are declared without constraints.
                properties.entry(name).or_insert_with(|| without_constraints(&schema));
            }
        }
    }
    for key in OTHER_COMBINATIONS {
        if let Some(value) = map.shift_remove(key) {
            notes.push(format!("{key} {value}"));
        }
    }
    notes.extend(conflicts.iter().filter_map(Value::as_object).flatten().map(|(key, value)| format!("{key} {value}")));
    map
}

/// Returns true if a schema can accept an object: it lists no types or lists `object`, and is not `false`.
fn accepts_object(schema: &Value) -> bool {
    match schema.get("type") {
        Some(Value::String(name)) => name == "object",
        Some(Value::Array(names)) => names.contains(&json!("object")),
        Some(_) | None => schema != &Value::Bool(false),
    }
}

/// Adds an empty schema for each required property that `properties` lacks. Changes nothing without `properties`.
fn declare_required(map: &mut Map<String, Value>) {
    let required = map.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) {
        for name in required.iter().filter_map(Value::as_str) {
            properties.entry(name).or_insert_with(|| json!({}));
        }
    }
}
