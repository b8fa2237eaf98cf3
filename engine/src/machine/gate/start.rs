//! Arguments of `rye/agent/threads/thread_directive`. Like `rye_execute` on a directive, this tool starts a child, but
//! the call can also set the model and the limits of the child. This module parses the arguments, and the gate
//! authorizes the start.

use rye_grammar::ItemId;
use serde_json::{Map, Value};

use super::ChildStart;

/// The id of the tool that starts a child thread. This module parses the arguments of its calls.
pub(in crate::machine) const THREAD_DIRECTIVE: &str = "rye/agent/threads/thread_directive";

const PARAMETER_NAMES: [&str; 5] = ["directive_name", "async", "inputs", "model", "limit_overrides"];
const LIMIT_NAMES: [&str; 6] = ["turns", "tokens", "spend", "spawns", "duration_seconds", "depth"];

/// Parses the arguments of a call that starts a directive. An error is a message for the model.
pub(super) fn parse_child_start(parameters: &Value) -> Result<ChildStart, String> {
    let Value::Object(given) = parameters else { return Err(wrong("the parameters must be an object")) };
    if let Some(key) = given.keys().find(|key| !PARAMETER_NAMES.contains(&key.as_str())) {
        return Err(wrong(&format!("unknown parameter `{key}`; expected one of {}", PARAMETER_NAMES.join(", "))));
    }
    let value = |key: &str| given.get(key).filter(|value| !value.is_null());
    let Some(Value::String(name)) = value("directive_name") else {
        return Err(wrong("`directive_name` must be the id of a directive"));
    };
    let directive = ItemId::parse(name).map_err(|invalid| wrong(&invalid.reason))?;
    let detached = match value("async") {
        None => false,
        Some(Value::Bool(detached)) => *detached,
        Some(_) => return Err(wrong("`async` must be true or false")),
    };
    let model = match value("model") {
        None => None,
        Some(Value::String(model)) => Some(model.clone()),
        Some(_) => return Err(wrong("`model` must be a string")),
    };
    let limit_overrides = object(value("limit_overrides"), "limit_overrides")?;
    if let Some(name) = limit_overrides.keys().find(|name| !LIMIT_NAMES.contains(&name.as_str())) {
        return Err(wrong(&format!("unknown limit `{name}`; expected one of {}", LIMIT_NAMES.join(", "))));
    }
    let inputs = object(value("inputs"), "inputs")?;
    Ok(ChildStart { directive, inputs, model, limit_overrides, detached, tool: false })
}

fn object(value: Option<&Value>, key: &str) -> Result<Map<String, Value>, String> {
    match value {
        None => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map.clone()),
        Some(_) => Err(wrong(&format!("`{key}` must be an object"))),
    }
}

fn wrong(what: &str) -> String {
    format!("thread_directive: {what}")
}
