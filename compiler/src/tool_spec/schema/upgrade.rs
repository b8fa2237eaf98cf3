//! Conversion of older drafts of JSON Schema to 2020-12, which every part of the engine reads.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::keywords::{Shape, shape_of};

/// Converts a schema of draft 4, 6, 7 or 2019-09 to 2020-12, and removes `$schema`. Nothing else changes in a schema of
/// 2020-12.
pub fn upgrade_schema(schema: &mut Value) {
    if let Some(map) = schema.as_object_mut() {
        map.shift_remove("$schema");
    }
    upgrade(schema, 0);
}

fn upgrade(schema: &mut Value, depth: usize) {
    let Some(map) = schema.as_object_mut().filter(|_| depth <= super::MAX_DEPTH) else { return };
    upgrade_items(map);
    upgrade_bound(map, "minimum", "exclusiveMinimum");
    upgrade_bound(map, "maximum", "exclusiveMaximum");
    upgrade_dependencies(map);
    if let Some(reference) = map.shift_remove("$recursiveRef") {
        map.insert("$ref".to_owned(), reference);
    }
    for (key, value) in map.iter_mut() {
        match (shape_of(key), value) {
            (Some(Shape::Schema | Shape::SchemaOrList), value @ Value::Object(_)) => upgrade(value, depth + 1),
            (Some(Shape::Schemas), Value::Array(schemas)) => {
                for schema in schemas {
                    upgrade(schema, depth + 1);
                }
            }
            (Some(Shape::SchemaMap | Shape::Properties), Value::Object(schemas)) => {
                for schema in schemas.values_mut() {
                    upgrade(schema, depth + 1);
                }
            }
            _ => {}
        }
    }
}

/// Converts `items: [a, b]` with `additionalItems` to `prefixItems` with `items`.
fn upgrade_items(map: &mut Map<String, Value>) {
    let rest = map.shift_remove("additionalItems");
    if !map.get("items").is_some_and(Value::is_array) {
        return; // without a list, `additionalItems` has no meaning
    }
    if let Some(list) = map.shift_remove("items")
        && list.as_array().is_some_and(|list| !list.is_empty())
    {
        map.insert("prefixItems".to_owned(), list);
    }
    if let Some(rest) = rest {
        map.insert("items".to_owned(), rest);
    }
}

/// Converts the boolean form of an exclusive bound (`minimum: 1, exclusiveMinimum: true`) to `exclusiveMinimum: 1`;
/// removes `exclusiveMinimum: false`. `bound` and `exclusive` are the two keywords.
fn upgrade_bound(map: &mut Map<String, Value>, bound: &str, exclusive: &str) {
    let Some(Value::Bool(excludes)) = map.get(exclusive) else { return };
    let excludes = *excludes;
    map.shift_remove(exclusive);
    if excludes && let Some(limit) = map.shift_remove(bound) {
        map.insert(exclusive.to_owned(), limit);
    }
}

fn upgrade_dependencies(map: &mut Map<String, Value>) {
    let Some(Value::Object(dependencies)) = map.shift_remove("dependencies") else { return };
    for (name, part) in dependencies {
        let key = if part.is_array() { "dependentRequired" } else { "dependentSchemas" };
        let parts = map.entry(key.to_owned()).or_insert_with(|| Value::Object(Map::new()));
        if let Some(parts) = parts.as_object_mut() {
            parts.insert(name, part);
        }
    }
}

/// Returns the schema to which a reference points. `None` if the reference points to another document, or if there is
/// no such schema. A reference within the document is `#/$defs/a`, `#` or `#anchor`.
pub fn resolve_pointer<'v>(root: &'v Value, reference: &str) -> Option<&'v Value> {
    let fragment = reference.strip_prefix('#')?;
    if fragment.is_empty() {
        return Some(root);
    }
    let Some(path) = fragment.strip_prefix('/') else { return find_anchor(root, fragment, 0) };
    path.split('/').try_fold(root, |value, segment| match value {
        Value::Object(map) => map.get(decode_segment(segment).as_ref()),
        Value::Array(list) => list.get(segment.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

fn find_anchor<'v>(value: &'v Value, anchor: &str, depth: usize) -> Option<&'v Value> {
    if depth > super::MAX_DEPTH {
        return None;
    }
    let named = |key: &str| value.get(key).and_then(Value::as_str) == Some(anchor);
    if named("$anchor") || named("$dynamicAnchor") {
        return Some(value);
    }
    match value {
        Value::Object(map) => map.values().find_map(|child| find_anchor(child, anchor, depth + 1)),
        Value::Array(list) => list.iter().find_map(|child| find_anchor(child, anchor, depth + 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Decodes a segment of a JSON pointer within a URI: `%20`, `~1` and `~0`.
pub(super) fn decode_segment(segment: &str) -> Cow<'_, str> {
    if !segment.contains(['%', '~']) {
        return Cow::Borrowed(segment);
    }
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = code.filter(|_| first == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).replace("~1", "/").replace("~0", "~"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn upgraded(mut schema: Value) -> Value {
        upgrade_schema(&mut schema);
        schema
    }

    #[test]
    fn older_drafts_become_the_newest_one() {
        let table = [
            (
                json!({"items": [{"type": "string"}], "additionalItems": false}),
                json!({"prefixItems": [{"type": "string"}], "items": false}),
            ),
            (json!({"items": {"type": "string"}, "additionalItems": false}), json!({"items": {"type": "string"}})),
            (json!({"minimum": 1, "exclusiveMinimum": true}), json!({"exclusiveMinimum": 1})),
            (json!({"maximum": 1, "exclusiveMaximum": false}), json!({"maximum": 1})),
            (
                json!({"dependencies": {"a": ["b"], "c": {"minProperties": 2}}}),
                json!({"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"minProperties": 2}}}),
            ),
            (
                json!({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"items": {"items": []}}}),
                json!({"properties": {"items": {}}}),
            ),
            (json!({"properties": {"a": {"$recursiveRef": "#"}}}), json!({"properties": {"a": {"$ref": "#"}}})),
            (
                json!({"enum": [{"items": [1]}], "default": {"items": [1]}}),
                json!({"enum": [{"items": [1]}], "default": {"items": [1]}}),
            ),
        ];
        for (old, new) in table {
            assert_eq!(upgraded(old), new);
            assert_eq!(upgraded(new.clone()), new);
        }
    }

    #[test]
    fn references_resolve_by_pointer_and_anchor() {
        let root = json!({"$defs": {"a b/c": {"$anchor": "here", "type": "null"}}, "prefixItems": [true]});
        let target = json!({"$anchor": "here", "type": "null"});
        for reference in ["#/$defs/a%20b~1c", "#here"] {
            assert_eq!(resolve_pointer(&root, reference), Some(&target));
        }
        assert_eq!(resolve_pointer(&root, "#"), Some(&root));
        assert_eq!(resolve_pointer(&root, "#/prefixItems/0"), Some(&json!(true)));
        for reference in ["#/$defs/b", "other.json", "#there"] {
            assert_eq!(resolve_pointer(&root, reference), None);
        }
    }
}
