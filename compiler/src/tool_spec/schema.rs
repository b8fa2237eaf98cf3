//! Checks the JSON Schema of a tool's parameters for mistakes that would go unnoticed: a provider rejects the whole
//! request for an unknown type, and an unknown keyword constrains nothing.

use rye_grammar::Span;
use rye_grammar::data::{Kind, Node};

use super::read::{Reader, did_you_mean};

const TYPES: [&str; 7] = ["string", "integer", "number", "boolean", "array", "object", "null"];

/// Known keywords at the top of a parameter schema, where any other key suggests that `properties` was forgotten.
const KEYWORDS: [&str; 27] = [
    "$id",
    "$schema",
    "$comment",
    "$defs",
    "definitions",
    "$ref",
    "type",
    "title",
    "description",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "dependentSchemas",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "default",
    "examples",
];

/// Checks the schema of all parameters.
pub(super) fn check(r: &mut Reader, parameters: &Node) {
    if parameters.get("properties").is_none()
        && let Some(stray) = parameters.entries().iter().find(|e| !is_keyword(&e.key.node))
    {
        let name = &stray.key.node;
        let shape = stray.value.as_str().filter(|t| TYPES.contains(t)).unwrap_or("string");
        r.bad(
            stray.key.span,
            format!("`{name}` is no keyword of a JSON Schema"),
            "says nothing about the parameters",
            Some(format!("parameters stand below `properties`: `properties: {{ {name}: {{ type: {shape} }} }}`")),
        );
    }
    check_members(r, parameters);
}

fn is_keyword(key: &str) -> bool {
    KEYWORDS.contains(&key) || key.starts_with("x-")
}

fn check_schema(r: &mut Reader, node: &Node) {
    if let Some(value) = node.get("type") {
        match &value.kind {
            Kind::String(word) => kind(r, word, value.span),
            Kind::List(items) => {
                for item in items {
                    match item.as_str() {
                        Some(word) => kind(r, word, item.span),
                        None => r.wrong(item, "type", "a type of JSON Schema"),
                    }
                }
            }
            // A parameter may be called `type`: then this value is a schema.
            Kind::Map(_) => {}
            Kind::Null | Kind::Bool(_) | Kind::Number(_) => r.wrong(value, "type", "a type of JSON Schema"),
        }
    }
    check_members(r, node);
}

/// Checks everything but `type`, which the top level has already checked.
fn check_members(r: &mut Reader, node: &Node) {
    if let Some(value) = node.get("enum").filter(|value| !matches!(value.kind, Kind::List(_) | Kind::Map(_))) {
        r.wrong(value, "enum", "a list of the values that are allowed");
    }
    if let Some(value) = node.get("required").filter(|value| !matches!(value.kind, Kind::List(_) | Kind::Map(_))) {
        let help = "it is a list of names, beside `properties`: `required: [path]`".to_owned();
        r.bad(value.span, "`required` is no list of names".into(), "requires nothing", Some(help));
    }
    for property in node.get("properties").map(Node::entries).unwrap_or_default() {
        let name = &property.key.node;
        match &property.value.kind {
            Kind::Map(_) => check_schema(r, &property.value),
            Kind::Bool(_) => {}
            Kind::Null | Kind::Number(_) | Kind::String(_) | Kind::List(_) => {
                let shape = property.value.as_str().filter(|t| TYPES.contains(t)).unwrap_or("string");
                let help = Some(format!("`{name}: {{ type: {shape} }}`"));
                let message = format!("the parameter `{name}` has no schema, but {}", property.value.describe());
                r.bad(property.value.span, message, "expected a mapping", help);
            }
        }
    }
    if let Some(items) = node.get("items").filter(|items| matches!(items.kind, Kind::Map(_))) {
        check_schema(r, items);
    }
}

fn kind(r: &mut Reader, word: &str, span: Span) {
    if TYPES.contains(&word) {
        return;
    }
    let alike = match word {
        "str" | "text" => Some("string"),
        "int" => Some("integer"),
        "float" | "double" => Some("number"),
        "bool" => Some("boolean"),
        "list" => Some("array"),
        "dict" | "map" | "mapping" => Some("object"),
        _ => None,
    };
    let help = alike.map_or_else(|| did_you_mean(word, &TYPES), |meant| format!("did you mean `{meant}`?"));
    r.bad(span, format!("`{word}` is no type of a JSON Schema"), "no provider takes this", Some(help));
}
