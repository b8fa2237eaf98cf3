//! Continuation chains: threads that continue one another, for waiting and searching.

use regex::Regex;
use serde::Serialize;
use serde_json::Value;

use super::Threads;
use crate::store::StoreError;
use crate::thread_id::ThreadId;

/// A match of a search in a transcript.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SearchMatch {
    pub thread_id: String,
    /// Sequence number of the event.
    pub seq: u64,
    /// Time of the event, in milliseconds since 1970.
    pub ts: i64,
    /// Name of the event: `cognition_out`.
    pub event: &'static str,
    /// The matching line, shortened.
    pub text: String,
}

/// Maximum number of characters of a matching line that are shown.
const MAX_MATCH_CHARS: usize = 240;

impl Threads {
    /// Returns the continuation chain of this thread from its first thread on, including the thread itself.
    pub fn chain(&self, thread: &ThreadId) -> Result<Vec<ThreadId>, StoreError> {
        let mut chain = vec![thread.clone()];
        let Some(registry) = &self.registry else { return Ok(chain) };
        let row = |id: &ThreadId| registry.thread(id);
        let mut before = row(thread)?.and_then(|row| row.continues);
        while let Some(id) = before.take().filter(|id| !chain.contains(id)) {
            before = row(&id)?.and_then(|row| row.continues);
            chain.insert(0, id);
        }
        let mut after = row(thread)?.and_then(|row| row.continued_by);
        while let Some(id) = after.take().filter(|id| !chain.contains(id)) {
            after = row(&id)?.and_then(|row| row.continued_by);
            chain.push(id);
        }
        Ok(chain)
    }

    /// Returns the last thread of the continuation chain; the thread itself if nothing continues it.
    pub fn last_in_chain(&self, thread: &ThreadId) -> Result<ThreadId, StoreError> {
        Ok(self.chain(thread)?.pop().unwrap_or_else(|| thread.clone()))
    }

    /// Searches the texts of all threads of a continuation chain; returns at most `most` matches.
    pub fn search(&self, thread: &ThreadId, pattern: &Regex, most: usize) -> Result<Vec<SearchMatch>, StoreError> {
        let mut found = Vec::new();
        for id in self.chain(thread)? {
            for event in self.transcript(&id)? {
                let mut texts = Vec::new();
                collect_texts(&serde_json::to_value(&event.body).unwrap_or(Value::Null), &mut texts);
                for text in texts {
                    let line = text.lines().find_map(|line| Some((line, pattern.find(line)?.start())));
                    let Some((line, at)) = line else { continue };
                    let (thread_id, event_name) = (id.to_string(), event.body.reader_name());
                    let text = excerpt(line, at);
                    found.push(SearchMatch { thread_id, seq: event.seq, ts: event.ts, event: event_name, text });
                    if found.len() >= most {
                        return Ok(found);
                    }
                }
            }
        }
        Ok(found)
    }
}

/// Collects the texts of an event, without field names and numbers.
fn collect_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(list) => list.iter().for_each(|value| collect_texts(value, texts)),
        Value::Object(map) => map.values().for_each(|value| collect_texts(value, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the part of a long line around an offset.
fn excerpt(line: &str, at: usize) -> String {
    let before = line.get(..at).map_or(0, |head| head.chars().count());
    let skip = before.saturating_sub(MAX_MATCH_CHARS / 4);
    let shown: String = line.chars().skip(skip).take(MAX_MATCH_CHARS).collect();
    let (head, tail) = (if skip > 0 { "…" } else { "" }, line.chars().count() > skip + MAX_MATCH_CHARS);
    format!("{head}{shown}{}", if tail { "…" } else { "" })
}
