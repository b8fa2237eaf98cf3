//! Functions that read YAML, or hooks that were converted from XML. Keys and values that are not allowed are reported.

use rye_grammar::Spanned;
use rye_grammar::data::{Entry, Kind, Node};

use super::xml::shorten;
use crate::diagnostics::{Diagnostics, ItemError, closest};

/// Reports every key that is not in `known`. `of` names the mapping in the message.
pub fn check_keys(found: &mut Diagnostics, entries: &[Entry], known: &[&str], of: &str) {
    for entry in entries {
        let key = entry.key.node.as_str();
        if !known.contains(&key) {
            found.push(ItemError::UnknownKey {
                what: "key",
                key: key.to_owned(),
                of: of.to_owned(),
                span: entry.key.span,
                suggestion: closest(key, known.iter().copied()).or_else(|| meant_key(key, known)),
                known: known.iter().map(|k| (*k).to_owned()).collect(),
            });
        }
    }
}

/// Returns the known key that `key` probably means: the only known key that ends with `_` and `key` (`item_type` for
/// `type`), or `params` for another word for parameters. `None` if no such key is known.
fn meant_key(key: &str, known: &[&str]) -> Option<String> {
    let mut longer = known.iter().filter(|known| known.strip_suffix(key).is_some_and(|start| start.ends_with('_')));
    let only = longer.next().filter(|_| longer.next().is_none());
    let is_of_parameters = ["parameters", "args", "arguments", "inputs"].contains(&key);
    only.or_else(|| known.iter().find(|known| is_of_parameters && **known == "params")).map(|meant| (*meant).to_owned())
}

/// Reports a value that does not have the expected form.
pub fn report_invalid(found: &mut Diagnostics, what: &str, node: &Node, expected: &str) {
    found.push(ItemError::InvalidValue {
        what: format!("`{what}`"),
        found: describe(node),
        expected: expected.to_owned(),
        span: node.span,
    });
}

/// Describes a value for a message: its quoted text, or its kind, such as "a list".
pub fn describe(node: &Node) -> String {
    match &node.kind {
        Kind::String(text) if text.is_empty() => "an empty string".into(),
        Kind::String(text) => format!("`{}`", shorten(text)),
        Kind::Number(number) => format!("`{number}`"),
        Kind::Bool(value) => format!("`{value}`"),
        Kind::Null | Kind::List(_) | Kind::Map(_) => node.describe().to_owned(),
    }
}

/// Returns the text of a string. If the node is not a string, reports this and returns `None`. `what` names the value
/// in the message.
pub fn read_string(found: &mut Diagnostics, what: &str, node: &Node) -> Option<Spanned<String>> {
    let text = node.as_str().map(|text| Spanned::new(text.to_owned(), node.span));
    if text.is_none() {
        report_invalid(found, what, node, "a string");
    }
    text
}

/// Reads a boolean. Also accepts the texts `true` and `false`, because XML holds only text. For any other value, adds a
/// diagnostic and returns `None`.
pub fn read_bool(found: &mut Diagnostics, what: &str, node: &Node) -> Option<bool> {
    let value = match &node.kind {
        Kind::Bool(value) => Some(*value),
        Kind::String(text) if text == "true" => Some(true),
        Kind::String(text) if text == "false" => Some(false),
        Kind::String(_) | Kind::Null | Kind::Number(_) | Kind::List(_) | Kind::Map(_) => None,
    };
    if value.is_none() {
        report_invalid(found, what, node, "`true` or `false`");
    }
    value
}

/// Reads a finite number, or a text that contains a finite number. For any other value, adds a diagnostic and returns
/// `None`.
pub fn read_number(found: &mut Diagnostics, what: &str, node: &Node) -> Option<f64> {
    let value = match &node.kind {
        Kind::Number(number) => number.as_f64(),
        Kind::String(text) => text.trim().parse().ok(),
        Kind::Null | Kind::Bool(_) | Kind::List(_) | Kind::Map(_) => None,
    };
    let value = value.filter(|v: &f64| v.is_finite());
    if value.is_none() {
        report_invalid(found, what, node, "a number");
    }
    value
}

/// Reads a whole number from 0 up, or a text that contains such a number. For any other value, adds a diagnostic and
/// returns `None`.
pub fn read_count(found: &mut Diagnostics, what: &str, node: &Node) -> Option<u64> {
    let value = match &node.kind {
        Kind::Number(number) => number.as_u64(),
        Kind::String(text) => text.trim().parse().ok(),
        Kind::Null | Kind::Bool(_) | Kind::List(_) | Kind::Map(_) => None,
    };
    if value.is_none() {
        report_invalid(found, what, node, "a whole number, 0 or more");
    }
    value
}
