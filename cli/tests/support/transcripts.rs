//! Events of all threads of a project, without the values that differ between front ends.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use serde_json::Value;

use crate::rye::{self, TestProject};

/// Returns the events of all threads of the project, the threads in the order of their starts.
pub fn transcripts(place: &TestProject) -> Vec<Vec<Value>> {
    let threads = place.project().join(".ai/state/threads");
    let read = |path: &String| -> Vec<Value> {
        let text = std::fs::read_to_string(threads.join(path)).unwrap();
        // The last line may be incomplete while the thread runs.
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    if !threads.is_dir() {
        return Vec::new();
    }
    let mut all: Vec<Vec<Value>> =
        rye::files(&threads).iter().filter(|path| path.ends_with("transcript.jsonl")).map(read).collect();
    all.retain(|events| !events.is_empty());
    all.sort_by_key(|events| (events[0]["ts"].as_i64(), events[0]["thread_id"].to_string()));
    all
}

/// Fields that differ between two runs of the same front end, and fields that state which front end was used.
const OWN_FIELDS: [&str; 27] = [
    "ts",
    "h",
    "s",
    "at_h",
    "key_id",
    "b",
    "v",
    "id",
    "input",
    "seed",
    "thread",
    "thread_id",
    "root",
    "after",
    "duration_ms",
    "carried_ms",
    "asked_ms",
    "elapsed_ms",
    "attended",
    "settings",
    "delivery",
    "owner",
    "key",
    "signature",
    "subject",
    "unsent",
    "sig",
];

/// Normalizes the value of a field. A limit in seconds is rounded: the seconds that the prompts of a thread have taken
/// are added to the limit of its next prompt, and subtracted from the limit of the thread that continues the session.
fn normalize_field(name: &str, value: &Value) -> Value {
    const ROUNDED_SECONDS: u64 = 600;
    if name != "duration_seconds" {
        return normalize(value);
    }
    let seconds = value.as_u64().unwrap();
    ((seconds + ROUNDED_SECONDS / 2) / ROUNDED_SECONDS * ROUNDED_SECONDS).into()
}

/// Removes the fields that differ between runs.
fn normalize(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let is_kept = |name: &str, value: &Value| {
                let is_source = name == "source" && (value == "interactive" || value == "rpc");
                !OWN_FIELDS.contains(&name) && !is_source
            };
            let field = |(name, value): (&String, &Value)| (name.clone(), normalize_field(name, value));
            fields.iter().filter(|(name, value)| is_kept(name, value)).map(field).collect()
        }
        Value::Array(items) => items.iter().map(normalize).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Returns the events of all threads, a line each.
pub fn events(place: &TestProject) -> Vec<String> {
    let all = transcripts(place);
    all.iter().flatten().map(normalize).map(|event| event.to_string()).collect()
}

/// Returns the first item in which two lists differ.
pub fn first_difference(one: &[String], other: &[String]) -> String {
    let length = one.len().max(other.len());
    let at = (0..length).find(|at| one.get(*at) != other.get(*at)).unwrap_or_default();
    format!("item {at} of {} and {}:\n{:?}\n{:?}", one.len(), other.len(), one.get(at), other.get(at))
}
