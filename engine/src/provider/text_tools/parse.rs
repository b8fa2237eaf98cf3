//! Parser of the tool calls in the text of a reply, for models without native tools. A call in a code block does not
//! count. If the model invents the result of a call, the text after this result is ignored.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::code_blocks::CodeBlocks;
use super::{CALL_END, CALL_START, RESULT_START};
use crate::json_faults::faulty_values;
use crate::message::{MALFORMED_KEY, ToolCall};

/// A piece of a reply: text, or a call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplyPiece {
    Text(String),
    /// The text between the call's tags.
    Call(String),
}

/// Splits a reply into text and calls. Blank text between calls is dropped.
pub(super) fn split_reply(text: &str) -> Vec<ReplyPiece> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    let mut blocks = CodeBlocks::default();
    while !rest.is_empty() {
        let line_end = rest.find('\n').map_or(rest.len(), |end| end + 1);
        let (line, after_line) = rest.split_at(line_end);
        let line_start = line.trim_start();
        let is_code = blocks.contains(line);
        if !is_code && line_start.starts_with(RESULT_START) && pieces.iter().any(|p| matches!(p, ReplyPiece::Call(_))) {
            break;
        } else if !is_code && line_start.starts_with(CALL_START) {
            flush_text(&mut pieces, &mut plain);
            let start = rest.find(CALL_START).map_or(0, |at| at + CALL_START.len());
            let body = rest.get(start..).unwrap_or_default();
            let (body, after) = split_body(body);
            pieces.push(ReplyPiece::Call(body.to_owned()));
            rest = after;
            continue;
        }
        blocks.end_line(line);
        plain.push_str(line);
        rest = after_line;
    }
    flush_text(&mut pieces, &mut plain);
    pieces
}

/// Splits the text after the opening tag of a call into the body of the call and the rest. The body ends at the closing
/// tag or at the next call or result, whichever comes first, or else at the end of the text.
fn split_body(text: &str) -> (&str, &str) {
    let next = [format!("\n{CALL_START}"), format!("\n{RESULT_START}")].iter().filter_map(|mark| text.find(mark)).min();
    let (end, skip) = match (text.find(CALL_END), next) {
        (Some(close), Some(next)) if next < close => (next, 0),
        (Some(close), _) => (close, CALL_END.len()),
        (None, Some(next)) => (next, 0),
        (None, None) => (text.len(), 0),
    };
    let after = text.get(end + skip..).unwrap_or_default();
    (text.get(..end).unwrap_or_default(), after)
}

fn flush_text(pieces: &mut Vec<ReplyPiece>, plain: &mut String) {
    let text = plain.trim();
    if !text.is_empty() {
        pieces.push(ReplyPiece::Text(text.to_owned()));
    }
    plain.clear();
}

/// Parses the text between the tags as a call: a JSON object with `name` and `arguments`, with or without a code fence.
/// Other text becomes a call with malformed arguments, whose error result shows the text to the model.
pub(super) fn parse_call(id: String, body: &str) -> ToolCall {
    let text = unfenced(body.trim());
    let broken = || {
        let input = Value::Object(Map::from_iter([(MALFORMED_KEY.to_owned(), text.into())]));
        ToolCall { id: id.clone(), name: guessed_name(text), input }
    };
    let Ok(Value::Object(map)) = serde_json::from_str::<Value>(text) else { return broken() };
    let Some(name) = map.get("name").and_then(Value::as_str) else { return broken() };
    let arguments = ARGUMENT_KEYS.iter().find_map(|key| map.get(*key));
    match arguments {
        None | Some(Value::Null) => ToolCall::parse(id, name, ""),
        // Some models write the arguments as a string that contains JSON.
        Some(Value::String(text)) => ToolCall::parse(id, name, text),
        Some(other) => {
            // Repeated keys of the call itself are recorded as unread. Here, the keys of its arguments are checked.
            let read = ARGUMENT_KEYS.iter().find(|key| map.contains_key(**key));
            let faulty = read.and_then(|key| faulty_values(text, key).into_iter().next());
            ToolCall::parse(id, name, faulty.unwrap_or(&other.to_string()))
        }
    }
}

/// Keys that can hold the arguments of a call. The first key that the call has is read.
const ARGUMENT_KEYS: [&str; 3] = ["arguments", "parameters", "input"];

/// Returns the names of the values of a call that [`parse_call`] does not read: other keys, and the earlier values of a
/// repeated key. Empty for a call that is kept whole because it is malformed.
pub(super) fn unread_keys(body: &str) -> Vec<String> {
    let Ok(KeyNames(keys)) = serde_json::from_str::<KeyNames>(unfenced(body.trim())) else { return Vec::new() };
    let read = ARGUMENT_KEYS.iter().find(|key| keys.iter().any(|known| known == *key));
    let mut seen = BTreeSet::new();
    let mut is_unread =
        |key: &String| !seen.insert(key.clone()) || key != "name" && read.is_none_or(|read| key != read);
    keys.iter().filter(|key| is_unread(key)).map(|key| format!("tool_call.{key}")).collect()
}

/// The keys of a JSON object, repeated ones included.
struct KeyNames(Vec<String>);

impl<'de> Deserialize<'de> for KeyNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyNamesVisitor;
        impl<'de> Visitor<'de> for KeyNamesVisitor {
            type Value = KeyNames;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KeyNames, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, _)) = map.next_entry::<String, IgnoredAny>()? {
                    keys.push(key);
                }
                Ok(KeyNames(keys))
            }
        }
        deserializer.deserialize_map(KeyNamesVisitor)
    }
}

fn unfenced(text: &str) -> &str {
    let Some(inside) = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else { return text };
    inside.split_once('\n').map_or(inside, |(_, body)| body).trim()
}

/// Extracts the name of a call from invalid JSON. Returns `tool_call` if the text contains no name.
fn guessed_name(text: &str) -> String {
    let after = text.split_once("\"name\"").map(|(_, rest)| rest.trim_start().trim_start_matches(':').trim_start());
    let name = after.and_then(|rest| rest.strip_prefix('"')).and_then(|rest| rest.split('"').next());
    name.map_or_else(|| "tool_call".to_owned(), |name| name.chars().take(128).collect())
}
