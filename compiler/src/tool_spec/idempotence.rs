//! The key `idempotent` of a tool: the calls that may run again if their outcome is unknown after a crash. These can be
//! all calls, no calls, or only calls with certain arguments, because a tool with many operations is rarely idempotent
//! as a whole.

use std::collections::BTreeMap;

use rye_grammar::data::{Kind, Node};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::read::{ToolSpecReader, did_you_mean};

/// The value of a tool's key `idempotent`: the calls that may be repeated if a crash left their outcome unknown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Idempotence {
    /// True: every call may be repeated. False: no call may be repeated.
    All(bool),
    /// A call may be repeated if each of these parameters has one of the listed values.
    Where(BTreeMap<String, Vec<Value>>),
}

impl Idempotence {
    /// Returns true if a call with these arguments may be repeated when its outcome is unknown after a crash.
    pub fn covers(&self, parameters: &Value) -> bool {
        match self {
            Self::All(all) => *all,
            Self::Where(wanted) => {
                wanted.iter().all(|(name, values)| parameters.get(name).is_some_and(|given| values.contains(given)))
            }
        }
    }
}

impl Default for Idempotence {
    fn default() -> Self {
        Self::All(false)
    }
}

const EXPECTED_FORM: &str =
    "`true`, `false`, or a mapping from parameters to the values with which a call may run again";

impl ToolSpecReader {
    /// Reads `idempotent` and checks it against the parameters of the tool.
    pub(super) fn idempotence(&mut self, node: &Node, parameters: &Value) -> Idempotence {
        let Some(value) = node.get("idempotent") else { return Idempotence::default() };
        if let Some(all) = value.as_bool() {
            return Idempotence::All(all);
        }
        if !matches!(value.kind, Kind::Map(_)) || value.entries().is_empty() {
            self.report_wrong_type(value, "idempotent", EXPECTED_FORM);
            return Idempotence::default();
        }
        let properties = parameters.get("properties").and_then(Value::as_object);
        let mut wanted = BTreeMap::new();
        for entry in value.entries() {
            let name = &entry.key.node;
            let Some(property) = properties.and_then(|all| all.get(name)) else {
                let known: Vec<&str> = properties.into_iter().flat_map(|all| all.keys()).map(String::as_str).collect();
                let help = did_you_mean(name, &known);
                self.report_bad_value(
                    entry.key.span,
                    format!("the tool has no parameter `{name}`"),
                    "no such parameter",
                    Some(help),
                );
                continue;
            };
            let items = match &entry.value.kind {
                Kind::List(items) if !items.is_empty() => items.as_slice(),
                Kind::List(_) | Kind::Map(_) | Kind::Null => {
                    self.report_wrong_type(&entry.value, "idempotent", EXPECTED_FORM);
                    continue;
                }
                Kind::Bool(_) | Kind::Number(_) | Kind::String(_) => std::slice::from_ref(&entry.value),
            };
            let known = property.get("enum").and_then(Value::as_array);
            for item in items {
                let given = item.to_value();
                if known.is_some_and(|known| !known.contains(&given)) {
                    let message = format!("`{name}` is never `{}`", item.as_str().unwrap_or("this"));
                    let known: Vec<&str> = known.into_iter().flatten().filter_map(Value::as_str).collect();
                    let help = item.as_str().map(|word| did_you_mean(word, &known));
                    self.report_bad_value(item.span, message, "not among its values", help);
                }
            }
            wanted.insert(name.clone(), items.iter().map(Node::to_value).collect());
        }
        Idempotence::Where(wanted)
    }
}
