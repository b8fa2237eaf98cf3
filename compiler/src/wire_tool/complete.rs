//! Tool schemas for wire formats that accept all of JSON Schema: missing `properties` and `items` are added.

use serde_json::{Map, Value, json};

use super::widened::WidenedSchemas;
use super::{MAX_SCHEMA_DEPTH, add_notes, remove_unnameable_properties, types_of};

/// Adds missing `properties` and `items` to the root and to all schemas below it. Removes properties whose names a wire
/// format refuses, and keywords that would accept fewer values without these properties. For each part that is removed
/// from the root, adds a description to `notes`.
pub(super) fn complete_root(root: &mut Value, notes: &mut Vec<String>) {
    let widened = WidenedSchemas::new(root);
    if let Some(map) = root.as_object_mut() {
        notes.extend(widened.remove_narrowed_keywords(map));
        notes.extend(remove_unnameable_properties(map));
        complete_map(map, &widened, 0);
    }
}

fn complete(schema: &mut Value, widened: &WidenedSchemas, depth: usize) {
    match schema {
        Value::Object(map) if depth <= MAX_SCHEMA_DEPTH => {
            let mut notes = widened.remove_narrowed_keywords(map);
            notes.extend(remove_unnameable_properties(map));
            add_notes(map, &notes);
            complete_map(map, widened, depth);
        }
        Value::Bool(true) => *schema = json!({}),
        Value::Bool(false) => *schema = json!({"not": {}}),
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {}
    }
}

fn complete_map(map: &mut Map<String, Value>, widened: &WidenedSchemas, depth: usize) {
    let types = types_of(map);
    let (object, array) = (types.contains(&"object"), types.contains(&"array"));
    if object && !map.contains_key("properties") {
        map.insert("properties".to_owned(), json!({}));
    }
    if array && !map.contains_key("items") {
        map.insert("items".to_owned(), json!({}));
    }
    bound_tuple(map);
    for (key, value) in map.iter_mut() {
        match (key.as_str(), value) {
            ("properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas", Value::Object(all)) => {
                for schema in all.values_mut() {
                    complete(schema, widened, depth + 1);
                }
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(all)) => {
                for schema in all {
                    complete(schema, widened, depth + 1);
                }
            }
            // Under keywords such as `additionalProperties`, only objects need completion, because every wire accepts
            // `false` there.
            ("items" | "contains" | "not" | "if" | "then" | "else" | "propertyNames" | "contentSchema", schema)
            | ("additionalProperties" | "unevaluatedProperties" | "unevaluatedItems", schema @ Value::Object(_)) => {
                complete(schema, widened, depth + 1);
            }
            _ => {}
        }
    }
}

/// Replaces `items: false`, which servers reject, with an equivalent `maxItems`.
pub(super) fn bound_tuple(map: &mut Map<String, Value>) {
    if map.get("items") != Some(&Value::Bool(false)) {
        return;
    }
    let most = map.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len);
    let most = Value::from(most);
    let number = |value: &Value| value.as_f64().unwrap_or(f64::INFINITY);
    let most = map.get("maxItems").filter(|declared| number(declared) < number(&most)).unwrap_or(&most).clone();
    map.insert("maxItems".to_owned(), most);
    map.insert("items".to_owned(), json!({}));
}
