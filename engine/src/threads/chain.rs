//! Continuation chains: a thread and the threads that continue it. A wait for a thread and a search in a thread cover
//! its whole chain.

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
    /// Name of the event, such as `cognition_out`.
    pub event: &'static str,
    /// The matching line, shortened.
    pub text: String,
}

/// Maximum number of characters of a matching line that are shown.
const MAX_MATCH_CHARS: usize = 240;

impl Threads {
    /// Returns the continuation chain that contains this thread, from the first thread of the chain on.
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

    /// Searches the texts in the events of all threads of a continuation chain. Returns the first matching line of each
    /// text, but not more than `most` lines.
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

/// Adds every string in `value`, at any depth, to `texts`. Field names and values of other types are left out.
fn collect_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(list) => list.iter().for_each(|value| collect_texts(value, texts)),
        Value::Object(map) => map.values().for_each(|value| collect_texts(value, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the part of a long line around the byte offset `at`, with `…` in place of the omitted text.
fn excerpt(line: &str, at: usize) -> String {
    let before = line.get(..at).map_or(0, |head| head.chars().count());
    let skip = before.saturating_sub(MAX_MATCH_CHARS / 4);
    let shown: String = line.chars().skip(skip).take(MAX_MATCH_CHARS).collect();
    let (head, tail) = (if skip > 0 { "…" } else { "" }, line.chars().count() > skip + MAX_MATCH_CHARS);
    format!("{head}{shown}{}", if tail { "…" } else { "" })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::event::EventBody;
    use crate::keys::TrustStore;
    use crate::store::disk::{Disk, SimulatedDisk};
    use crate::store::layout;
    use crate::store::registry::{Registry, repair};
    use crate::store::transcript::{self, Transcript};
    use crate::thread::{Cost, Status};

    /// More threads than a recursion over the chain would have room for.
    const THREADS: usize = 1_200;
    const STACK_BYTES: usize = 512 << 10;

    fn id(number: usize) -> ThreadId {
        ThreadId::parse(&format!("chain-{number}")).unwrap()
    }

    fn write(disk: &Arc<dyn Disk>, number: usize) {
        let thread = id(number);
        disk.create_dir_all(&layout::thread_folder(&thread)).unwrap();
        let limits = json!({"turns": 9, "tokens": 9, "spend": 1_000, "spawns": 9, "depth": 3, "duration_seconds": 60,
            "output": 100});
        let mut events = vec![
            json!({"type": "opened", "thread_id": thread, "directive": "hello", "root": thread, "inputs": {},
                "origin": if number == 0 { "run" } else { "handoff" }, "limits": limits, "grants": [], "seed": 1,
                "project_path": "."}),
            json!({"type": "plan_bound", "plan_id": "00ff"}),
        ];
        if let Some(before) = number.checked_sub(1).map(id) {
            let last = transcript::read(&**disk, &before, 0).unwrap().records.pop().unwrap();
            events.push(
                json!({"type": "continues", "thread": before, "at_seq": last.seq, "at_h": last.hash.to_string()}),
            );
        }
        let status = if number + 1 < THREADS { Status::Continued } else { Status::Completed };
        let ended = json!({"type": "ended", "status": status.as_str(), "result": null, "outputs": null, "error": null,
            "cost": Cost::default()});
        let mut transcript = Transcript::create(Arc::clone(disk), &thread).unwrap();
        for batch in [events, vec![ended]] {
            let bodies: Vec<EventBody> =
                batch.into_iter().map(|event| serde_json::from_value(event).unwrap()).collect();
            transcript.append(&bodies, i64::try_from(number).unwrap()).unwrap();
            transcript.sync().unwrap();
        }
    }

    fn read_chain() {
        let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
        (0..THREADS).for_each(|number| write(&disk, number));
        assert_eq!(repair(&disk).unwrap().threads, THREADS);
        let registry = Arc::new(Registry::open(Arc::clone(&disk)).unwrap());
        let threads = Threads::new(disk, Some(registry));
        assert_eq!(threads.list().unwrap().len(), THREADS);
        let all: Vec<ThreadId> = (0..THREADS).map(id).collect();
        for number in [0, THREADS / 2, THREADS - 1] {
            assert_eq!(threads.chain(&id(number)).unwrap(), all);
            assert_eq!(threads.load(&id(number)).unwrap().unwrap().entry.row.id, id(number));
        }
        let verified = threads.verify_all(&all, &TrustStore::default()).unwrap();
        // The plan of these threads is not stored.
        let faults = verified.iter().flat_map(|one| &one.faults).filter(|fault| !fault.file.ends_with("/00ff"));
        let faults: Vec<_> = faults.collect();
        assert!(verified.len() == THREADS && faults.is_empty(), "{faults:?}");
    }

    #[test]
    fn chain_of_a_thousand_continuations_is_read_on_a_small_stack() {
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(read_chain).unwrap().join().unwrap();
    }
}
