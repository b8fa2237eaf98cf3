//! Calls of the tool `rye/agent/threads/state`, which reads and writes values that a thread stores for its hooks and
//! tools. The machine answers these calls itself and starts no program. A write is recorded as an event of the thread.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::event::StateSet;

/// The id of the tool whose calls this module answers.
pub(crate) const STATE_TOOL: &str = "rye/agent/threads/state";

/// Maximum length of a key, in characters.
const MAX_KEY_CHARS: usize = 200;
/// Maximum size of a value in the thread's store, in bytes of JSON text.
const MAX_VALUE_BYTES: usize = 64 * 1024;
/// Maximum number of keys in the store of one thread.
const MAX_KEYS: usize = 1_000;

/// An operation on the thread's store of values.
#[derive(Debug, Clone, PartialEq)]
pub enum StateOp {
    /// Reads one value, or all values if no key is given.
    Get(Option<String>),
    /// Writes a value; null removes the key.
    Set(StateSet),
}

/// Parses the arguments of a call. An error is a message for the model.
pub(crate) fn parse_state_op(parameters: &Value) -> Result<StateOp, String> {
    let wrong = |what: &str| Err(format!("state: {what}"));
    let Value::Object(given) = parameters else { return wrong("the parameters must be an object") };
    if let Some(key) = given.keys().find(|key| !["operation", "key", "value"].contains(&key.as_str())) {
        return wrong(&format!("unknown parameter `{key}`; expected operation, key or value"));
    }
    let key = match given.get("key") {
        None | Some(Value::Null) => None,
        Some(Value::String(key)) if !key.is_empty() && key.chars().count() <= MAX_KEY_CHARS => Some(key.clone()),
        Some(_) => return wrong(&format!("`key` must be a string of 1 to {MAX_KEY_CHARS} characters")),
    };
    match (given.get("operation").and_then(Value::as_str), key, given.get("value")) {
        (Some("get"), key, None) => Ok(StateOp::Get(key)),
        (Some("get"), _, Some(_)) => wrong("`value` belongs to `set`"),
        (Some("set"), Some(key), Some(value)) => {
            let bytes = value.to_string().len();
            if bytes > MAX_VALUE_BYTES {
                return wrong(&format!("the value has {bytes} bytes; the maximum is {MAX_VALUE_BYTES}"));
            }
            Ok(StateOp::Set(StateSet { key, value: value.clone() }))
        }
        (Some("set"), _, _) => wrong("`set` needs `key` and `value`"),
        _ => wrong("`operation` must be `get` or `set`"),
    }
}

/// Returns the result of an operation and, for a write, the event that records it. The error is a message for the
/// model.
pub(crate) fn apply_state_op(
    store: &BTreeMap<String, Value>,
    requested: StateOp,
) -> Result<(Value, Option<StateSet>), String> {
    match requested {
        StateOp::Get(Some(key)) => Ok((store.get(&key).cloned().unwrap_or(Value::Null), None)),
        StateOp::Get(None) => {
            let all: Map<String, Value> = store.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            Ok((Value::Object(all), None))
        }
        StateOp::Set(set) if store.len() >= MAX_KEYS && !store.contains_key(&set.key) && !set.value.is_null() => {
            Err(format!("state: a thread stores at most {MAX_KEYS} keys"))
        }
        StateOp::Set(set) => Ok((set.value.clone(), Some(set))),
    }
}

/// Applies a write to the store. A null value removes the key.
pub(crate) fn apply_write(store: &mut BTreeMap<String, Value>, set: &StateSet) {
    if set.value.is_null() {
        store.remove(&set.key);
    } else {
        store.insert(set.key.clone(), set.value.clone());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn set_value_is_returned_by_get() {
        let mut store = BTreeMap::new();
        let set = parse_state_op(&json!({"operation": "set", "key": "a", "value": [1]})).unwrap();
        let (result, written) = apply_state_op(&store, set).unwrap();
        assert_eq!(result, json!([1]));
        apply_write(&mut store, &written.unwrap());
        let get = |key: Value| {
            apply_state_op(&store, parse_state_op(&json!({"operation": "get", "key": key})).unwrap()).unwrap().0
        };
        assert_eq!((get(json!("a")), get(json!("b")), get(Value::Null)), (json!([1]), Value::Null, json!({"a": [1]})));
        apply_write(&mut store, &StateSet { key: "a".into(), value: Value::Null });
        assert!(store.is_empty());
    }

    #[test]
    fn invalid_parameters_are_rejected() {
        for bad in [
            json!({}),
            json!({"operation": "drop"}),
            json!({"operation": "set", "key": "a"}),
            json!({"operation": "set", "key": "", "value": 1}),
            json!({"operation": "set", "key": "a", "value": "x".repeat(MAX_VALUE_BYTES)}),
            json!({"operation": "get", "key": "a", "value": 1}),
            json!({"operation": "get", "thread_id": "other"}),
            json!([]),
        ] {
            assert!(parse_state_op(&bad).is_err(), "{bad}");
        }
    }
}
