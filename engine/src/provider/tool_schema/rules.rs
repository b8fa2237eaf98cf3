//! Strict checkers of the rules that each wire format documents for the parameters of a tool.

use rye_compiler::tool_spec::resolve_pointer;
use rye_compiler::wire_tool::{SchemaDialect, is_wire_name};
use serde_json::{Map, Value};

/// Keywords that Gemini documents for a JSON Schema.
const SUBSET_KEYWORDS: [&str; 15] = [
    "type",
    "format",
    "title",
    "description",
    "enum",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "anyOf",
    "properties",
    "additionalProperties",
    "required",
];
const ROOT_COMBINATIONS: [&str; 9] =
    ["anyOf", "oneOf", "allOf", "not", "enum", "const", "if", "$ref", "dependentSchemas"];

/// Returns a description of the first rule that `parameters` violate, with the location; `None` if they violate no
/// rule.
pub fn violation(dialect: SchemaDialect, parameters: &Value) -> Option<String> {
    let Some(root) = parameters.as_object() else { return Some("the root is not an object".to_owned()) };
    if root.get("type").and_then(Value::as_str) != Some("object") {
        return Some("the type of the root is not `object`".to_owned());
    }
    if !root.get("properties").is_some_and(Value::is_object) {
        return Some("the root has no `properties`".to_owned());
    }
    if let Some(key) = ROOT_COMBINATIONS.iter().find(|key| root.contains_key(**key)) {
        return Some(format!("the root has `{key}`"));
    }
    // Anthropic and OpenAI validate against the metaschema.
    if let Err(error) = jsonschema::draft202012::meta::validate(parameters) {
        return Some(format!("the schema at `{}` is invalid: {error}", error.instance_path()));
    }
    node_violation(dialect, parameters, parameters, "")
}

fn node_violation(dialect: SchemaDialect, root: &Value, node: &Value, at: &str) -> Option<String> {
    let Some(map) = node.as_object() else { return Some(format!("{at}: {node} is not a mapping")) };
    object_violation(map, at)
        .or_else(|| match dialect {
            SchemaDialect::Complete => reference_violation(root, map, at),
            SchemaDialect::Subset => subset_violation(map, at),
        })
        .or_else(|| {
            children(map)
                .into_iter()
                .find_map(|(key, child)| node_violation(dialect, root, child, &format!("{at}/{key}")))
        })
}

fn object_violation(map: &Map<String, Value>, at: &str) -> Option<String> {
    let is = |name: &str| match map.get("type") {
        Some(Value::String(kind)) => kind == name,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind.as_str() == Some(name)),
        Some(_) | None => false,
    };
    if is("array") && !map.get("items").is_some_and(Value::is_object) {
        return Some(format!("{at}: an array has no `items`"));
    }
    let properties = map.get("properties").and_then(Value::as_object);
    if let Some(name) = properties.into_iter().flat_map(Map::keys).find(|name| !is_wire_name(name)) {
        return Some(format!("{at}: the property name `{name}`"));
    }
    None
}

fn reference_violation(root: &Value, map: &Map<String, Value>, at: &str) -> Option<String> {
    let reference = map.get("$ref").and_then(Value::as_str)?;
    resolve_pointer(root, reference).is_none().then(|| format!("{at}: `{reference}` refers to nothing"))
}

fn subset_violation(map: &Map<String, Value>, at: &str) -> Option<String> {
    if let Some(key) = map.keys().find(|key| !SUBSET_KEYWORDS.contains(&key.as_str())) {
        return Some(format!("{at}: the keyword `{key}`"));
    }
    if map.contains_key("anyOf") && map.len() > 1 {
        return Some(format!("{at}: other keywords beside `anyOf`"));
    }
    if let Some(Value::Array(kinds)) = map.get("type")
        && (kinds.len() != 2 || !kinds.contains(&Value::from("null")))
    {
        return Some(format!("{at}: several types"));
    }
    let mut values = map.get("enum").and_then(Value::as_array).into_iter().flatten();
    if values.any(|value| !value.is_string() && !value.is_number()) {
        return Some(format!("{at}: a value of `enum` that is neither text nor number"));
    }
    let declared = map.get("properties").and_then(Value::as_object);
    let mut required = map.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let undeclared = required.find(|name| declared.is_none_or(|declared| !declared.contains_key(*name)));
    undeclared.map(|name| format!("{at}: `{name}` is required and not declared"))
}

fn children(map: &Map<String, Value>) -> Vec<(&str, &Value)> {
    let mut found = Vec::new();
    for (key, value) in map {
        match (key.as_str(), value) {
            ("properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas", Value::Object(all)) => {
                found.extend(all.iter().map(|(name, schema)| (name.as_str(), schema)));
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(all)) => {
                found.extend(all.iter().map(|schema| (key.as_str(), schema)));
            }
            ("items" | "not" | "if" | "then" | "else" | "contains" | "propertyNames", schema)
            | ("additionalProperties", schema @ Value::Object(_)) => found.push((key.as_str(), schema)),
            _ => {}
        }
    }
    found
}
