//! Guard of tool results (`engine.md` 3): unwraps envelopes, masks secrets and bounds the size.

use rye_grammar::{SourceId, signature};
use serde_json::{Map, Value, json};

use super::ToolOutcome;
use crate::secrets::{mask_secrets, mask_value};
use crate::store::{ObjectId, Objects, StoreError};

/// Maximum bytes of the `details` of a tool result that are kept.
const MAX_DETAILS_BYTES: usize = 8 * 1024;

/// The store of large results.
pub trait ObjectStore: Send + Sync {
    /// Stores bytes durably and returns their SHA-256, lowercase hex.
    fn put(&self, bytes: &[u8]) -> Result<String, StoreError>;
    /// Returns the stored bytes whose SHA-256 is `sha256` (lowercase hex).
    fn get(&self, sha256: &str) -> Result<Vec<u8>, StoreError>;
}

impl ObjectStore for Objects {
    fn put(&self, bytes: &[u8]) -> Result<String, StoreError> {
        Self::put(self, bytes).map(|id| id.to_string())
    }

    fn get(&self, sha256: &str) -> Result<Vec<u8>, StoreError> {
        Self::get(self, &ObjectId::parse(sha256)?)
    }
}

/// A tool result as the conversation contains it. `content` is shortened if the whole result is too large.
#[derive(Debug, Clone, PartialEq)]
pub struct GuardedResult {
    pub content: String,
    pub is_error: bool,
    pub details: Value,
    /// Size of the whole result, in bytes.
    pub bytes: u64,
    /// Hash of the object with the whole result; `None` if `content` is the whole result.
    pub object: Option<String>,
}

/// Returns true if a result certainly fits into the conversation whole, so that it need not be stored.
pub(crate) fn fits_whole(outcome: &ToolOutcome, max_bytes: usize) -> bool {
    matches!(&outcome.content, Value::String(text) if text.len() <= max_bytes)
}

/// Bounds the size of a result to `max_bytes`. A larger result is stored as an object, and the returned result is
/// shortened.
///
/// # Errors
/// The store cannot write a large result.
pub(crate) fn guard_result(
    outcome: &ToolOutcome,
    max_bytes: usize,
    store: &dyn ObjectStore,
) -> Result<GuardedResult, StoreError> {
    let whole = result_text(&outcome.content);
    let whole = mask_secrets(&whole).into_owned();
    let bytes = whole.len() as u64;
    let details = bounded_details(&outcome.details);
    let is_error = outcome.is_error;
    if whole.len() <= max_bytes {
        return Ok(GuardedResult { content: whole, is_error, details, bytes, object: None });
    }
    let object = store.put(whole.as_bytes())?;
    let content = shorten_result(&whole, max_bytes, &object);
    Ok(GuardedResult { content, is_error, details, bytes, object: Some(object) })
}

/// Returns the text of a result without the envelope (the object that `unwrap_envelope` removes) and without the
/// signature line.
fn result_text(content: &Value) -> String {
    match unwrap_envelope(content) {
        Value::String(text) => without_signature(text).to_owned(),
        Value::Null => String::new(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => other.to_string(),
    }
}

/// Returns the field `data` of an envelope. An envelope is an object with a string `item_id`, a `status` (`success` or
/// `error`), and no other keys than the known keys of envelopes. Any other value, and an envelope without `data`, is
/// returned unchanged.
pub(crate) fn unwrap_envelope(content: &Value) -> &Value {
    let Value::Object(map) = content else { return content };
    let names_item = map.get("item_id").is_some_and(Value::is_string);
    let status = map.get("status").is_some_and(|s| matches!(s.as_str(), Some("success" | "error")));
    if names_item && status && map.keys().all(|k| is_envelope_key(k)) {
        return map.get("data").unwrap_or(content);
    }
    content
}

fn is_envelope_key(key: &str) -> bool {
    matches!(
        key,
        "status"
            | "type"
            | "item_type"
            | "item_id"
            | "data"
            | "metadata"
            | "signature"
            | "_signature"
            | "source"
            | "space"
            | "path"
            | "duration_ms"
            | "execution_time_ms"
            | "version"
    )
}

fn without_signature(text: &str) -> &str {
    signature::parse(SourceId(0), text).and_then(|s| text.get(s.node.content_start..)).unwrap_or(text)
}

/// Returns the head and the tail of a result, with a hint on how to fetch the rest.
fn shorten_result(whole: &str, max_bytes: usize, object: &str) -> String {
    let head = head_lines(whole, max_bytes / 4);
    let tail = tail_lines(whole, max_bytes / 8);
    let next = json!({"object": object, "offset": head.len(), "limit": max_bytes / 2});
    let left_out = whole.len() - head.len() - tail.len();
    format!("{head}\n[… {left_out} of {} bytes omitted; fetch them with rye_fetch {next} …]\n{tail}", whole.len())
}

/// Returns the first bytes of a text, at most `most`. If a line ends in the second half of these bytes, the result ends
/// at the last of these line ends.
fn head_lines(text: &str, most: usize) -> &str {
    let cut = text.get(..floor_char_boundary(text, most)).unwrap_or_default();
    match cut.rfind('\n') {
        Some(at) if at >= cut.len() / 2 => cut.get(..=at).unwrap_or(cut),
        Some(_) | None => cut,
    }
}

/// Returns the last bytes of a text, at most `most`. Starts at the start of a line if a line starts in the first half
/// of these bytes.
fn tail_lines(text: &str, most: usize) -> &str {
    let from = ceil_char_boundary(text, text.len().saturating_sub(most));
    let cut = text.get(from..).unwrap_or_default();
    match cut.find('\n') {
        Some(at) if at < cut.len() / 2 => cut.get(at + 1..).unwrap_or(cut),
        Some(_) | None => cut,
    }
}

/// Returns the largest character boundary that is not above the byte offset `at`.
pub(super) fn floor_char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0)
}

fn ceil_char_boundary(text: &str, at: usize) -> usize {
    (at..=text.len()).find(|i| text.is_char_boundary(*i)).unwrap_or(text.len())
}

fn bounded_details(details: &Value) -> Value {
    let size = details.to_string().len();
    if size <= MAX_DETAILS_BYTES {
        let mut details = details.clone();
        mask_value(&mut details);
        return details;
    }
    Value::Object(Map::from_iter([("left_out_bytes".to_owned(), json!(size))]))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Memory(Mutex<BTreeMap<String, Vec<u8>>>);

    impl ObjectStore for Memory {
        fn put(&self, bytes: &[u8]) -> Result<String, StoreError> {
            let id = ObjectId::of(bytes).to_string();
            self.0.lock().unwrap().insert(id.clone(), bytes.to_vec());
            Ok(id)
        }

        fn get(&self, sha256: &str) -> Result<Vec<u8>, StoreError> {
            let reason = || StoreError::InvalidId { reason: "not there".into() };
            self.0.lock().unwrap().get(sha256).cloned().ok_or_else(reason)
        }
    }

    fn run(content: Value, max: usize) -> (GuardedResult, Memory) {
        let memory = Memory::default();
        let guarded = guard_result(&ToolOutcome::ok(content), max, &memory).unwrap();
        (guarded, memory)
    }

    #[test]
    fn small_result_is_unchanged() {
        for (content, text) in [
            (json!("plain"), "plain"),
            (json!({"a": [1, 2]}), "{\"a\":[1,2]}"),
            (json!(null), ""),
            (json!(false), "false"),
            (json!({"status": "success", "data": 1}), "{\"status\":\"success\",\"data\":1}"),
            (
                json!({"item_id": "x", "status": "success", "mine": 1}),
                "{\"item_id\":\"x\",\"status\":\"success\",\"mine\":1}",
            ),
        ] {
            let (g, _) = run(content, 100);
            assert_eq!((g.content.as_str(), g.object), (text, None));
        }
    }

    #[test]
    fn envelope_and_signature_are_removed() {
        let envelope = json!({"status": "success", "type": "tool", "item_id": "a/b", "metadata": {"version": "1"}, "data": {"x": 1}});
        assert_eq!(run(envelope, 100).0.content, "{\"x\":1}");
        let signed = json!("<!-- rye:signed:2026-02-14T00:27:54Z:aa:bb:cc -->\n# Title\n");
        assert_eq!(run(signed, 100).0.content, "# Title\n");
    }

    #[test]
    fn large_results_become_objects_with_both_ends() {
        let whole: String = (0..2000).map(|n| format!("line {n} €\n")).collect::<Vec<_>>().concat();
        let (g, memory) = run(json!(whole), 4096);
        let object = g.object.unwrap();
        assert_eq!(memory.get(&object).unwrap(), whole.as_bytes());
        assert_eq!(g.bytes, whole.len() as u64);
        assert!(g.content.len() <= 4096, "{}", g.content.len());
        assert!(g.content.starts_with("line 0 €\n") && g.content.ends_with("line 1999 €\n"));
        assert!(g.content.contains(&format!("rye_fetch {{\"object\":\"{object}\",\"offset\":")), "{}", g.content);
    }

    #[test]
    fn long_line_is_cut_between_characters() {
        let whole = "€".repeat(10_000);
        for max in 64..90 {
            assert!(run(json!(whole), max).0.object.is_some());
        }
    }

    #[test]
    fn details_are_bounded_too() {
        let mut outcome = ToolOutcome::error("no");
        outcome.details = json!({"big": "x".repeat(10_000)});
        let g = guard_result(&outcome, 1000, &Memory::default()).unwrap();
        assert_eq!(g.details, json!({"left_out_bytes": 10_010}));
        assert!(g.is_error);
    }
}
