//! References (`$ref`) whose targets the conversion of a schema's root changes.

use serde_json::{Map, Value};

use super::widened::SchemaHolder;
use crate::tool_spec::resolve_pointer;

/// Keywords that identify a whole schema document or apply to it.
const DOCUMENT_KEYWORDS: [&str; 5] = ["$schema", "$id", "$anchor", "$dynamicAnchor", "$vocabulary"];

/// Removes the keywords of a whole document from the root of a schema.
pub(super) fn remove_document_keywords(root: &mut Map<String, Value>) {
    for key in DOCUMENT_KEYWORDS {
        root.shift_remove(key);
    }
}

/// Keeps the meaning of the references in `flat`, the converted form of `original`. The conversion may change the
/// target of a reference that points outside the definitions, such as `#`. If so, adds the original root to the
/// definitions, and points all references outside the definitions to this copy.
pub(super) fn keep_targets(original: &Value, flat: &mut Value) {
    let mut root = original.as_object().cloned().unwrap_or_default();
    remove_document_keywords(&mut root);
    let root = Value::Object(root);
    let mut references = Vec::new();
    visit_references(flat, &mut |reference| references.push(reference.clone()));
    let is_changed = |reference: &String| {
        is_outside_definitions(reference) && resolve_pointer(&root, reference) != resolve_pointer(flat, reference)
    };
    if !references.iter().any(is_changed) {
        return;
    }
    let Value::Object(mut root) = root else { return };
    let mut definitions = root.shift_remove("$defs").and_then(|all| all.as_object().cloned()).unwrap_or_default();
    root.shift_remove("definitions");
    let mut name = "root".to_owned();
    while definitions.contains_key(&name) {
        name.push('_');
    }
    definitions.insert(name.clone(), Value::Object(root));
    if let Some(map) = flat.as_object_mut() {
        map.insert("$defs".to_owned(), Value::Object(definitions));
    }
    visit_references(flat, &mut |reference| {
        if is_outside_definitions(reference) {
            *reference = format!("#/$defs/{name}{}", reference.trim_start_matches('#'));
        }
    });
}

fn is_outside_definitions(reference: &str) -> bool {
    let is_pointer = reference == "#" || reference.starts_with("#/");
    is_pointer && !reference.starts_with("#/$defs/") && !reference.starts_with("#/definitions/")
}

/// Calls `visit` with each `$ref` and `$dynamicRef` of a schema and of the schemas below it.
fn visit_references(schema: &mut Value, visit: &mut dyn FnMut(&mut String)) {
    let Some(map) = schema.as_object_mut() else { return };
    for (key, value) in map.iter_mut() {
        match (SchemaHolder::of_keyword(key), value) {
            (Some(SchemaHolder::One), schema) => visit_references(schema, visit),
            (Some(SchemaHolder::List), Value::Array(all)) => {
                for schema in all {
                    visit_references(schema, visit);
                }
            }
            (Some(SchemaHolder::Map), Value::Object(all)) => {
                for schema in all.values_mut() {
                    visit_references(schema, visit);
                }
            }
            (None, Value::String(reference)) if matches!(key.as_str(), "$ref" | "$dynamicRef") => visit(reference),
            (Some(_) | None, _) => {}
        }
    }
}
