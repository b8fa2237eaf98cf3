//! The parsed arguments of the tool `rye/agent/threads/orchestrator`: one of eleven operations with its own parameters.
//! Unknown parameters are refused.

use std::time::Duration;

use regex::Regex;
use serde_json::{Map, Value};

use crate::thread_id::ThreadId;

/// An operation of the tool for threads, with its parsed parameters.
#[derive(Debug, Clone)]
pub enum ThreadsToolRequest {
    Wait { threads: Vec<ThreadId>, timeout: Option<Duration> },
    Cancel(ThreadId),
    Kill(ThreadId),
    Status(ThreadId),
    Active,
    Aggregate(Vec<ThreadId>),
    Chain(ThreadId),
    Search { thread: ThreadId, pattern: Regex },
    Read { thread: ThreadId, tail: Option<usize> },
    Resume { thread: ThreadId, message: String },
    Handoff(ThreadId),
}

/// The operations and the parameters that each accepts besides `operation`.
const OPERATIONS: [(&str, &[&str]); 11] = [
    ("wait_threads", &["thread_ids", "thread_id", "timeout"]),
    ("cancel_thread", &["thread_id"]),
    ("kill_thread", &["thread_id"]),
    ("get_status", &["thread_id"]),
    ("list_active", &[]),
    ("aggregate_results", &["thread_ids", "thread_id"]),
    ("get_chain", &["thread_id"]),
    ("chain_search", &["thread_id", "query"]),
    ("read_transcript", &["thread_id", "tail_lines"]),
    ("resume_thread", &["thread_id", "message"]),
    ("handoff_thread", &["thread_id"]),
];

impl ThreadsToolRequest {
    /// Parses the arguments; the error is a message for the model.
    pub fn parse(parameters: &Value) -> Result<Self, String> {
        let Value::Object(given) = parameters else { return Err("the parameters must be an object".into()) };
        let name = given.get("operation").and_then(Value::as_str).unwrap_or_default();
        let Some((_, takes)) = OPERATIONS.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = OPERATIONS.iter().map(|(known, _)| *known).collect();
            return Err(format!("`operation` must be one of {}", known.join(", ")));
        };
        let unrecognized_file = |(key, value): &(&String, &Value)| {
            !value.is_null() && *key != "operation" && !takes.contains(&key.as_str())
        };
        if let Some((key, _)) = given.iter().find(unrecognized_file) {
            return Err(format!("`{name}` takes no `{key}`"));
        }
        let given = ThreadsToolArguments(given);
        Ok(match name {
            "wait_threads" => Self::Wait { threads: given.threads()?, timeout: given.seconds("timeout")? },
            "cancel_thread" => Self::Cancel(given.thread()?),
            "kill_thread" => Self::Kill(given.thread()?),
            "get_status" => Self::Status(given.thread()?),
            "aggregate_results" => Self::Aggregate(given.threads()?),
            "get_chain" => Self::Chain(given.thread()?),
            "chain_search" => {
                let query = given.text("query")?.ok_or("`chain_search` needs `query`, a regular expression")?;
                let pattern =
                    Regex::new(query).map_err(|error| format!("`query` is not a valid regular expression: {error}"))?;
                Self::Search { thread: given.thread()?, pattern }
            }
            "read_transcript" => Self::Read { thread: given.thread()?, tail: given.count("tail_lines")? },
            "resume_thread" => {
                let message = given.text("message")?.filter(|message| !message.trim().is_empty());
                let message = message.ok_or("`resume_thread` needs `message`")?.to_owned();
                Self::Resume { thread: given.thread()?, message }
            }
            "handoff_thread" => Self::Handoff(given.thread()?),
            _ => Self::Active,
        })
    }
}

struct ThreadsToolArguments<'a>(&'a Map<String, Value>);

impl<'a> ThreadsToolArguments<'a> {
    fn value(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, String> {
        match self.value(key) {
            None => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or_else(|| format!("`{key}` must be a string")),
        }
    }

    fn thread(&self) -> Result<ThreadId, String> {
        id(self.text("thread_id")?.ok_or("`thread_id` is missing")?)
    }

    fn threads(&self) -> Result<Vec<ThreadId>, String> {
        let list = match self.value("thread_ids") {
            None => return Ok(vec![self.thread()?]),
            Some(Value::Array(list)) if !list.is_empty() => list,
            Some(_) => return Err("`thread_ids` must be a list of at least one thread id".into()),
        };
        list.iter()
            .map(|one| id(one.as_str().ok_or("`thread_ids` must be a list of at least one thread id")?))
            .collect()
    }

    fn seconds(&self, key: &str) -> Result<Option<Duration>, String> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let seconds = value.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        seconds.map(Some).ok_or_else(|| format!("`{key}` must be a number of seconds"))
    }

    fn count(&self, key: &str) -> Result<Option<usize>, String> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        count.map(Some).ok_or_else(|| format!("`{key}` must be a whole number"))
    }
}

fn id(text: &str) -> Result<ThreadId, String> {
    ThreadId::parse(text)
        .map_err(|invalid| format!("`{}` is not a valid thread id: {}", text.escape_debug(), invalid.reason))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_operation_reads_what_it_needs_and_nothing_else() {
        for (name, takes) in OPERATIONS {
            let mut given = json!({"operation": name, "thread_id": "a-1"});
            let map = given.as_object_mut().unwrap();
            if name == "list_active" {
                map.remove("thread_id");
            }
            for key in takes {
                let value = match *key {
                    "thread_ids" => json!(["a-1"]),
                    "timeout" => json!(1.5),
                    "tail_lines" => json!(5),
                    other => json!(format!("{other}-1")),
                };
                map.insert((*key).to_owned(), value);
            }
            ThreadsToolRequest::parse(&given).unwrap();
            given.as_object_mut().unwrap().insert("parent".into(), json!("b-1"));
            assert_eq!(ThreadsToolRequest::parse(&given).unwrap_err(), format!("`{name}` takes no `parent`"));
        }
        for bad in [
            json!({"operation": "drop"}),
            json!({"operation": "get_status"}),
            json!({"operation": "get_status", "thread_id": "../x"}),
            json!({"operation": "wait_threads", "thread_ids": []}),
            json!({"operation": "wait_threads", "thread_id": "a-1", "timeout": -1}),
            json!({"operation": "chain_search", "thread_id": "a-1", "query": "("}),
            json!({"operation": "resume_thread", "thread_id": "a-1", "message": " "}),
            json!([]),
        ] {
            assert!(ThreadsToolRequest::parse(&bad).is_err(), "{bad}");
        }
    }
}
