//! Conversion of JSON Schema to the subset that `functionDeclarations` accept. Unsupported keywords are dropped:
//! arguments are validated against the full schema before a call runs.

use serde_json::{Map, Value, json};

/// Maximum depth of a converted schema.
const MAX_DEPTH: usize = 24;
/// Keywords with the same meaning in both.
const SHARED_KEYWORDS: [&str; 11] = [
    "title",
    "description",
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "default",
];

/// Returns the parameters of a function; `None` if there are none.
pub(super) fn parameters(schema: &Value) -> Option<Value> {
    let has_properties = schema.get("properties").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    has_properties.then(|| convert_schema(schema, 0))
}

fn convert_schema(schema: &Value, depth: usize) -> Value {
    let Some(map) = schema.as_object().filter(|_| depth < MAX_DEPTH) else {
        return json!({"type": "STRING"}); // `true`, or too deep: accept any text
    };
    let mut converted = Map::new();
    let (kind, nullable) = kind_of(map);
    if let Some(kind) = kind {
        converted.insert("type".to_owned(), kind.into());
    }
    if nullable {
        converted.insert("nullable".to_owned(), true.into());
    }
    for key in SHARED_KEYWORDS {
        // The API refuses formats of text other than its own.
        let known =
            key != "format" || map.get(key).and_then(Value::as_str).is_some_and(|f| ["date-time", "enum"].contains(&f));
        if let Some(value) = map.get(key).filter(|_| known) {
            converted.insert(key.to_owned(), value.clone());
        }
    }
    if let Some(choices) = choices(map) {
        converted.insert("enum".to_owned(), choices);
    }
    if kind == Some("ARRAY") {
        let items = map.get("items").filter(|items| items.is_object());
        converted.insert("items".to_owned(), convert_schema(items.unwrap_or(&Value::Null), depth + 1));
    }
    if let Some(properties) = map.get("properties").and_then(Value::as_object).filter(|p| !p.is_empty()) {
        let names: Vec<&String> = properties.keys().collect();
        let required: Vec<&Value> = map.get("required").and_then(Value::as_array).into_iter().flatten().collect();
        let required: Vec<&Value> =
            required.into_iter().filter(|r| r.as_str().is_some_and(|r| names.iter().any(|n| *n == r))).collect();
        if !required.is_empty() {
            converted.insert("required".to_owned(), json!(required));
        }
        let converted_properties: Map<String, Value> =
            properties.iter().map(|(name, schema)| (name.clone(), convert_schema(schema, depth + 1))).collect();
        converted.insert("properties".to_owned(), Value::Object(converted_properties));
    }
    if let Some(any) = ["anyOf", "oneOf"].iter().find_map(|key| map.get(*key).and_then(Value::as_array)) {
        let any: Vec<Value> = any.iter().filter(|s| !is_null(s)).map(|s| convert_schema(s, depth + 1)).collect();
        if !any.is_empty() {
            converted.insert("anyOf".to_owned(), Value::Array(any));
        }
    }
    Value::Object(converted)
}

/// Returns the first type, and true if null is allowed as well.
fn kind_of(map: &Map<String, Value>) -> (Option<&'static str>, bool) {
    let names: Vec<&str> = match map.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => Vec::new(),
    };
    let alternatives = ["anyOf", "oneOf"].iter().filter_map(|key| map.get(*key)?.as_array()).flatten();
    let nullable = names.contains(&"null") || alternatives.clone().any(is_null);
    let first = names.iter().find_map(|name| match *name {
        "string" => Some("STRING"),
        "number" => Some("NUMBER"),
        "integer" => Some("INTEGER"),
        "boolean" => Some("BOOLEAN"),
        "array" => Some("ARRAY"),
        "object" => Some("OBJECT"),
        _ => None,
    });
    let guessed = || {
        if map.contains_key("properties") {
            Some("OBJECT")
        } else if map.contains_key("items") {
            Some("ARRAY")
        } else if alternatives.count() > 0 {
            None
        } else {
            Some("STRING")
        }
    };
    (first.or_else(guessed), nullable)
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("null")
}

/// Returns the choices of an enum; the API supports only texts.
fn choices(map: &Map<String, Value>) -> Option<Value> {
    let one = map.get("const").map(std::slice::from_ref);
    let many = map.get("enum").and_then(Value::as_array).map(Vec::as_slice);
    let choices = many.or(one)?;
    let texts: Vec<&Value> = choices.iter().filter(|choice| choice.is_string()).collect();
    (!texts.is_empty() && texts.len() == choices.iter().filter(|choice| !choice.is_null()).count())
        .then(|| json!(texts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_keywords_are_dropped() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "additionalProperties": false,
            "required": ["path", "gone"],
            "properties": {
                "path": {"type": "string", "description": "Where.", "format": "uri", "minLength": 1},
                "at": {"type": ["string", "null"], "format": "date-time"},
                "lines": {"type": "array"},
                "mode": {"enum": ["a", "b"]},
                "level": {"enum": [1, 2]},
                "exact": {"const": "x"},
                "either": {"oneOf": [{"type": "integer"}, {"type": "null"}]},
                "any": true,
                "deep": {"properties": {"n": {"type": "number", "exclusiveMinimum": 0}}},
                "bag": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        });
        let expected = json!({
            "type": "OBJECT",
            "required": ["path"],
            "properties": {
                "path": {"type": "STRING", "description": "Where.", "minLength": 1},
                "at": {"type": "STRING", "nullable": true, "format": "date-time"},
                "lines": {"type": "ARRAY", "items": {"type": "STRING"}},
                "mode": {"type": "STRING", "enum": ["a", "b"]},
                "level": {"type": "STRING"},
                "exact": {"type": "STRING", "enum": ["x"]},
                "either": {"nullable": true, "anyOf": [{"type": "INTEGER"}]},
                "any": {"type": "STRING"},
                "deep": {"type": "OBJECT", "properties": {"n": {"type": "NUMBER"}}},
                "bag": {"type": "OBJECT"},
            },
        });
        assert_eq!(parameters(&schema), Some(expected));
    }

    #[test]
    fn schema_without_properties_gives_no_parameters() {
        for schema in [json!({"type": "object"}), json!({"type": "object", "properties": {}}), json!(true)] {
            assert_eq!(parameters(&schema), None);
        }
    }

    #[test]
    fn deep_schema_is_cut() {
        let mut schema = json!({"type": "string"});
        for _ in 0..100 {
            schema = json!({"type": "object", "properties": {"a": schema}});
        }
        assert!(parameters(&schema).is_some());
    }
}
