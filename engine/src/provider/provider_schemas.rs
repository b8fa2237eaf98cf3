//! Validation of request bodies in tests. The rules are the published request types of the providers, as JSON Schema in
//! `fixtures/requests/`, and checks that JSON Schema cannot express.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::Value;

use super::Wire;

/// The result of a validation, with the first violation.
pub type Validation = Result<(), String>;

/// Validates a body against the rules of its wire.
pub fn validate_body(wire: Wire, body: &Value) -> Validation {
    match wire {
        Wire::Anthropic => anthropic(body),
        Wire::OpenaiChat => openai_chat(body),
        Wire::OpenaiResponses => openai_responses(body),
        Wire::Gemini => gemini(body),
        Wire::Scripted => Ok(()),
    }
}

fn validate_schema(schema: &'static str, cell: &'static OnceLock<Validator>, body: &Value) -> Validation {
    let validator = cell.get_or_init(|| {
        let schema: Value = serde_json::from_str(schema).unwrap();
        jsonschema::validator_for(&schema).unwrap()
    });
    match validator.iter_errors(body).next() {
        None => Ok(()),
        Some(error) => Err(format!("{}: {error}", error.instance_path())),
    }
}

macro_rules! typed {
    ($name:literal, $body:expr) => {{
        static CELL: OnceLock<Validator> = OnceLock::new();
        validate_schema(include_str!(concat!("../../fixtures/requests/", $name, ".schema.json")), &CELL, $body)
    }};
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the ids (the field `key`) of the entries with the type `kind`.
fn ids<'v>(entries: &'v [Value], kind: &str, key: &str) -> Vec<&'v str> {
    entries.iter().filter(|entry| text(entry, "type") == kind).map(|entry| text(entry, key)).collect()
}

fn check_results_match(calls: &[&str], results: &[&str], place: usize) -> Validation {
    let (left, right): (BTreeSet<_>, BTreeSet<_>) = (calls.iter().collect(), results.iter().collect());
    let fits = left == right && calls.len() == results.len();
    if fits { Ok(()) } else { Err(format!("calls {calls:?} are answered by {results:?} behind message {place}")) }
}

fn check_unique(ids: &[&str]) -> Validation {
    let mut seen = BTreeSet::new();
    match ids.iter().find(|id| !seen.insert(**id)) {
        Some(twice) => Err(format!("`{twice}` is the id of two calls")),
        None => Ok(()),
    }
}

/// Validates a body of the Messages API.
pub fn anthropic(body: &Value) -> Validation {
    typed!("anthropic", body)?;
    let messages = list(body, "messages");
    let mut all = Vec::new();
    for (n, message) in messages.iter().enumerate() {
        let role = if n.is_multiple_of(2) { "user" } else { "assistant" };
        if text(message, "role") != role {
            return Err(format!("message {n} is not the {role}'s"));
        }
        let content = list(message, "content");
        let results = content.iter().take_while(|block| text(block, "type") == "tool_result").count();
        if content.iter().skip(results).any(|block| text(block, "type") == "tool_result") {
            return Err(format!("message {n} has a result behind other content"));
        }
        let calls = if n == 0 { vec![] } else { ids(list(&messages[n - 1], "content"), "tool_use", "id") };
        check_results_match(&calls, &ids(content, "tool_result", "tool_use_id"), n)?;
        all.extend(ids(content, "tool_use", "id"));
    }
    check_unique(&all)?;
    if messages.len().is_multiple_of(2) {
        return Err("the last message is the assistant's".to_owned());
    }
    let breakpoints = body.to_string().matches("\"cache_control\"").count();
    if breakpoints > 4 { Err(format!("{breakpoints} cache breakpoints")) } else { Ok(()) }
}

/// Validates a body of Chat Completions.
pub fn openai_chat(body: &Value) -> Validation {
    typed!("openai-chat", body)?;
    let messages = list(body, "messages");
    let mut all = Vec::new();
    let mut n = 0;
    while let Some(message) = messages.get(n) {
        let calls: Vec<&str> = list(message, "tool_calls").iter().map(|call| text(call, "id")).collect();
        if text(message, "role") == "tool" || (text(message, "role") == "system" && n > 0) {
            return Err(format!("message {n} stands in the wrong place"));
        }
        for call in list(message, "tool_calls") {
            let arguments = call.pointer("/function/arguments").and_then(Value::as_str).unwrap_or_default();
            if !serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object()) {
                return Err(format!("the arguments of message {n} are no object"));
            }
        }
        let results = messages.iter().skip(n + 1).take_while(|message| text(message, "role") == "tool");
        let results: Vec<&str> = results.map(|result| text(result, "tool_call_id")).collect();
        check_results_match(&calls, &results, n)?;
        all.extend(calls);
        n += 1 + results.len();
    }
    check_unique(&all)
}

/// Validates a body of the Responses API, without server state.
pub fn openai_responses(body: &Value) -> Validation {
    typed!("openai-responses", body)?;
    let input = list(body, "input");
    let (calls, results) = (ids(input, "function_call", "call_id"), ids(input, "function_call_output", "call_id"));
    check_unique(&calls)?;
    check_results_match(&calls, &results, input.len())?;
    for (n, item) in input.iter().enumerate() {
        let kind = text(item, "type");
        let before = input.get(..n).unwrap_or_default();
        if kind == "function_call_output" && !ids(before, "function_call", "call_id").contains(&text(item, "call_id")) {
            return Err(format!("the result {n} stands before its call"));
        }
        let next = input.get(n + 1).map(|next| text(next, "type"));
        let answers = [Some("function_call"), Some("message"), Some("reasoning"), Some("web_search_call")];
        if kind == "reasoning" && !answers.contains(&next) {
            return Err(format!("nothing follows the thought {n}"));
        }
        if kind == "message" && text(item, "role") == "user" {
            let open = ids(before, "function_call", "call_id").len();
            if open != ids(before, "function_call_output", "call_id").len() {
                return Err(format!("the user speaks at {n} before all calls are answered"));
            }
        }
    }
    Ok(())
}

/// Validates a body of `generateContent`.
pub fn gemini(body: &Value) -> Validation {
    typed!("gemini", body)?;
    let contents = list(body, "contents");
    let names = |content: Option<&Value>, kind: &str| -> Vec<String> {
        let parts = content.map(|content| list(content, "parts")).unwrap_or_default();
        parts.iter().filter_map(|part| Some(text(part.get(kind)?, "name").to_owned())).collect()
    };
    if contents.first().is_none_or(|first| text(first, "role") != "user") {
        return Err("the first content is not the user's".to_owned());
    }
    for (n, content) in contents.iter().enumerate() {
        let (calls, results) = (names(Some(content), "functionCall"), names(Some(content), "functionResponse"));
        if !results.is_empty() {
            if results.len() != list(content, "parts").len() {
                return Err(format!("content {n} mixes results with other parts"));
            }
            let before = n.checked_sub(1).and_then(|before| contents.get(before));
            if names(before, "functionCall").len() != results.len() {
                return Err(format!("content {n} does not answer the calls before it one by one"));
            }
        }
        if !calls.is_empty() {
            let role = text(content, "role");
            let answers = names(contents.get(n + 1), "functionResponse");
            if role != "model" || answers.len() != calls.len() || n == 0 {
                return Err(format!("the calls of content {n} are not answered by the next one"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
