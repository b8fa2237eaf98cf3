//! Chains: threads that go on from one another, followed by whoever waits for one or looks through it.

use regex::Regex;
use serde::Serialize;
use serde_json::Value;

use super::Threads;
use crate::store::StoreError;
use crate::thread_id::ThreadId;

/// A place in a transcript where a pattern was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    pub thread_id: String,
    /// The event's number.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub ts: i64,
    /// The event's name: `cognition_out`.
    pub event: &'static str,
    /// The line that holds it.
    pub text: String,
}

/// Characters of a line that are shown, around what was found.
const SHOWN: usize = 240;

impl Threads {
    /// The threads before and after this one, itself among them, the first one first.
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

    /// The last thread that goes on from this one, itself if none does.
    pub fn last_of(&self, thread: &ThreadId) -> Result<ThreadId, StoreError> {
        Ok(self.chain(thread)?.pop().unwrap_or_else(|| thread.clone()))
    }

    /// Looks for a pattern in the texts of a whole chain, at most `most` times.
    pub fn search(&self, thread: &ThreadId, pattern: &Regex, most: usize) -> Result<Vec<Found>, StoreError> {
        let mut found = Vec::new();
        for id in self.chain(thread)? {
            for event in self.transcript(&id)? {
                let mut texts = Vec::new();
                gather(&serde_json::to_value(&event.body).unwrap_or(Value::Null), &mut texts);
                for text in texts {
                    let line = text.lines().find_map(|line| Some((line, pattern.find(line)?.start())));
                    let Some((line, at)) = line else { continue };
                    let (thread_id, event_name) = (id.to_string(), event.body.reader_name());
                    let text = around(line, at);
                    found.push(Found { thread_id, seq: event.seq, ts: event.ts, event: event_name, text });
                    if found.len() >= most {
                        return Ok(found);
                    }
                }
            }
        }
        Ok(found)
    }
}

/// The texts of an event, names and numbers aside.
fn gather(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(list) => list.iter().for_each(|value| gather(value, texts)),
        Value::Object(map) => map.values().for_each(|value| gather(value, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The part of a long line that holds a place.
fn around(line: &str, at: usize) -> String {
    let before = line.get(..at).map_or(0, |head| head.chars().count());
    let skip = before.saturating_sub(SHOWN / 4);
    let shown: String = line.chars().skip(skip).take(SHOWN).collect();
    let (head, tail) = (if skip > 0 { "…" } else { "" }, line.chars().count() > skip + SHOWN);
    format!("{head}{shown}{}", if tail { "…" } else { "" })
}
