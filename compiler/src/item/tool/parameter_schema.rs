//! Schemas of parameters that no value fits, such as a `minimum` above the `maximum`, and defaults that do not fit the
//! schema of their parameter.

use rye_grammar::data::{Kind, Node};
use rye_grammar::tool_header::ToolTree;
use serde_json::Value;

use crate::diagnostics::ItemError;
use crate::semantics::value::{Type, are_equal};
use crate::semantics::value_bounds::violated_bound;

/// Pairs of keywords of a schema. The value of the first keyword must not exceed the value of the second keyword.
const BOUNDS: [(&str, &str); 4] =
    [("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties")];

/// Returns the errors of the declared parameters. The schemas of MCP tools come from their servers, so they are not
/// checked.
pub fn check(tree: &ToolTree) -> Vec<ItemError> {
    if tree.metadata.get("kind").and_then(Node::as_str) == Some("mcp") {
        return Vec::new();
    }
    let properties = tree.metadata.get("parameters").and_then(|parameters| parameters.get("properties"));
    let declared = properties.map(Node::entries).unwrap_or_default();
    declared.iter().filter_map(|entry| check_parameter(&entry.key.node, &entry.value)).collect()
}

fn check_parameter(name: &str, schema: &Node) -> Option<ItemError> {
    let number = |key: &str| schema.get(key)?.to_value().as_f64();
    for (low, high) in BOUNDS {
        if let Some((least, most)) = number(low).zip(number(high))
            && least > most
        {
            let message = format!("no value fits the parameter `{name}`: `{low}` is above `{high}`");
            return Some(error(message, schema.get(low)?, "above the other bound", "exchange or correct the bounds"));
        }
    }
    let kind = schema.get("type").and_then(Node::as_str).and_then(Type::parse);
    let choices = schema.get("enum");
    let values: Vec<Value> = choices.map(Node::items).unwrap_or_default().iter().map(Node::to_value).collect();
    if let Some(choices) = choices.filter(|choices| matches!(choices.kind, Kind::List(_)) && values.is_empty()) {
        let message = format!("no value fits the parameter `{name}`: its `enum` is empty");
        return Some(error(message, choices, "no choices", "write the choices, or remove `enum`"));
    }
    if let (Some(kind), Some(choices)) = (kind, choices)
        && !values.is_empty()
        && !values.iter().any(|value| has_type(value, kind))
    {
        let message = format!("no value fits the parameter `{name}`: no choice of `enum` has the type `{kind}`");
        return Some(error(
            message,
            choices,
            "values of another type",
            "write values of the declared type, or change `type`",
        ));
    }
    let refuses = |value: &Value| violated_bound(&schema.to_value(), value);
    if let (Some(choices), Some(allowed)) = (choices, values.first().and_then(refuses))
        && values.iter().all(|value| refuses(value).is_some())
    {
        let message = format!("no value fits the parameter `{name}`: the schema refuses each choice of `enum`");
        return Some(error(
            message,
            choices,
            &format!("not {allowed}"),
            "correct the choices or the bounds of the parameter",
        ));
    }
    let default = schema.get("default")?;
    let value = default.to_value();
    if value.is_null() {
        return None;
    }
    if !values.is_empty() && !values.iter().any(|choice| are_equal(choice, &value)) {
        let message = format!("the default of the parameter `{name}` is not a choice of its `enum`");
        return Some(error(message, default, "not a choice", "write one of the choices"));
    }
    if let Some(kind) = kind.filter(|kind| !has_type(&value, *kind)) {
        let message = format!("the default of the parameter `{name}` does not have the type `{kind}`");
        return Some(error(message, default, "another type", "write a value of the declared type"));
    }
    let allowed = violated_bound(&schema.to_value(), &value)?;
    let message = format!("the default of the parameter `{name}` does not fit its schema");
    Some(error(message, default, &format!("not {allowed}"), "correct the default, or the bounds of the parameter"))
}

fn has_type(value: &Value, kind: Type) -> bool {
    let own = Type::of(value);
    own == kind || (kind == Type::Number && own == Type::Integer)
}

fn error(message: String, node: &Node, label: &str, help: &str) -> ItemError {
    ItemError::ToolValue { message, span: node.span, label: label.to_owned(), help: Some(help.to_owned()) }
}
