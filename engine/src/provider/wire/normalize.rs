//! Normalization of turns for all providers, whatever models, hooks and other providers have left: nothing blank, a
//! user turn first, and for every call a plain, short and unique id.
//!
//! The machine guarantees that each call has its result and each result its call.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use rye_compiler::plan::hex;
use sha2::{Digest, Sha256};

use super::is_blank;
use crate::message::{ContentBlock, ProviderMessage};

/// Maximum size in bytes of a call's id or name that all providers accept.
const MAX_NAME_BYTES: usize = 64;
/// Text of the first user turn if the conversation would start with the model, or be empty.
const OMITTED_TURNS: &str = "(earlier messages omitted)";

/// Returns `text` with every character outside `[A-Za-z0-9_-]` as `_`, truncated to 64 bytes with a hash: all wires
/// accept that as the id of a call or the name of a tool. A model may have made up any text.
pub(in crate::provider) fn plain_name(text: &str) -> String {
    shortened_name(text, MAX_NAME_BYTES)
}

/// Returns the plain name of a text with at most `limit` bytes, of which a hash needs 17.
pub(in crate::provider) fn shortened_name(text: &str, limit: usize) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = text.chars().map(plain).collect();
    if name.is_empty() {
        return "_".to_owned();
    }
    if name.len() <= limit {
        return name;
    }
    let mark = hex(&Sha256::digest(text.as_bytes()));
    let (front, mark) = (name.get(..limit.saturating_sub(17)).unwrap_or_default(), mark.get(..16).unwrap_or_default());
    format!("{front}_{mark}")
}

/// Returns the turns to send. Deterministic; additional turns change nothing before them.
pub(in crate::provider) fn normalize_turns(turns: &[ProviderMessage]) -> Cow<'_, [ProviderMessage]> {
    if is_normalized(turns) {
        return Cow::Borrowed(turns);
    }
    let mut sent: Vec<ProviderMessage> = Vec::with_capacity(turns.len() + 1);
    let mut ids = CallIds::default();
    for turn in turns.iter().filter(|turn| !is_empty(turn)) {
        if sent.is_empty() && !matches!(turn, ProviderMessage::User { .. }) {
            sent.push(left_out());
        }
        sent.push(match turn {
            ProviderMessage::User { .. } => turn.clone(),
            ProviderMessage::Assistant { content } => ProviderMessage::Assistant { content: ids.rename_calls(content) },
            ProviderMessage::ToolResult { call_id, name, content, is_error } => ProviderMessage::ToolResult {
                call_id: ids.result_id(call_id),
                name: name.clone(),
                content: content.clone(),
                is_error: *is_error,
            },
        });
    }
    if sent.is_empty() {
        sent.push(left_out());
    }
    Cow::Owned(sent)
}

fn left_out() -> ProviderMessage {
    ProviderMessage::User { content: vec![ContentBlock::Text { text: OMITTED_TURNS.to_owned() }] }
}

/// Returns true for a turn without content that any wire could send. Blocks of other wires count as content, since each
/// wire decides about them.
fn is_empty(turn: &ProviderMessage) -> bool {
    match turn {
        ProviderMessage::User { content } => content.iter().all(|block| match block {
            ContentBlock::Text { text } => is_blank(text),
            ContentBlock::Image { .. } => false,
            ContentBlock::Thinking { .. } | ContentBlock::ToolCall(_) | ContentBlock::Other { .. } => true,
        }),
        ProviderMessage::Assistant { content } => content.iter().all(|block| match block {
            ContentBlock::Text { text } => is_blank(text),
            ContentBlock::Image { .. } => true,
            ContentBlock::Thinking { .. } | ContentBlock::ToolCall(_) | ContentBlock::Other { .. } => false,
        }),
        ProviderMessage::ToolResult { .. } => false,
    }
}

fn is_normalized(turns: &[ProviderMessage]) -> bool {
    let mut seen = BTreeSet::new();
    let fine = |turn: &ProviderMessage, seen: &mut BTreeSet<String>| match turn {
        ProviderMessage::User { .. } | ProviderMessage::ToolResult { .. } => true,
        ProviderMessage::Assistant { content } => content.iter().all(|block| match block {
            ContentBlock::ToolCall(call) => plain_name(&call.id) == call.id && seen.insert(call.id.clone()),
            ContentBlock::Text { .. }
            | ContentBlock::Image { .. }
            | ContentBlock::Thinking { .. }
            | ContentBlock::Other { .. } => true,
        }),
    };
    matches!(turns.first(), Some(ProviderMessage::User { .. }))
        && turns.iter().all(|turn| !is_empty(turn) && fine(turn, &mut seen))
}

/// The mapping of call ids.
#[derive(Default)]
struct CallIds {
    used: BTreeSet<String>,
    /// Calls without a result: the model's id, and the ids they are sent with.
    open: BTreeMap<String, Vec<String>>,
}

impl CallIds {
    fn rename_calls(&mut self, content: &[ContentBlock]) -> Vec<ContentBlock> {
        self.open.clear();
        let block = |block: &ContentBlock| match block {
            ContentBlock::ToolCall(call) => {
                let mut call = call.clone();
                call.id = self.unique_id(&call.id);
                ContentBlock::ToolCall(call)
            }
            ContentBlock::Text { .. }
            | ContentBlock::Image { .. }
            | ContentBlock::Thinking { .. }
            | ContentBlock::Other { .. } => block.clone(),
        };
        content.iter().map(block).collect()
    }

    /// Returns an id that no other call of the request has.
    fn unique_id(&mut self, id: &str) -> String {
        let plain = plain_name(id);
        let numbered = |n: u32| plain_name(&if n == 1 { plain.clone() } else { format!("{plain}_{n}") });
        let own = (1..u32::MAX).map(numbered).find(|own| !self.used.contains(own)).unwrap_or(plain.clone());
        self.used.insert(own.clone());
        self.open.entry(id.to_owned()).or_default().push(own.clone());
        own
    }

    /// Returns the id that a result has to use: of calls with the same id, the first without a result.
    fn result_id(&mut self, id: &str) -> String {
        match self.open.get_mut(id) {
            Some(own) if !own.is_empty() => own.remove(0),
            Some(_) | None => plain_name(id),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use serde_json::json;

    use super::*;
    use crate::provider::fixture::{call, result, text};

    #[test]
    fn plain_names_are_valid_and_bounded() {
        assert_eq!(plain_name("rye_file-1"), "rye_file-1");
        assert_eq!(plain_name("a.b:c é"), "a_b_c__");
        assert_eq!(plain_name(""), "_");
        let (one, other) = (plain_name(&"x".repeat(65)), plain_name(&"x".repeat(66)));
        assert_eq!((one.len(), other.len()), (64, 64));
        assert_ne!(one, other);
    }

    #[test]
    fn normalized_turns_are_unchanged() {
        let turns = [
            ProviderMessage::User { content: vec![text("a")] },
            ProviderMessage::Assistant { content: vec![call("i", "x", json!({}))] },
            result("i", "r", false),
        ];
        assert!(matches!(normalize_turns(&turns), Cow::Borrowed(_)));
    }

    #[test]
    fn call_ids_are_unique_and_match_results() {
        let twice =
            || ProviderMessage::Assistant { content: vec![call("f.0", "x", json!({})), call("f:0", "x", json!({}))] };
        let turns = [
            ProviderMessage::User { content: vec![text("a")] },
            twice(),
            result("f:0", "second", false),
            result("f.0", "first", false),
            twice(),
            result("f.0", "third", false),
            result("f:0", "fourth", false),
        ];
        let ids: Vec<String> = normalize_turns(&turns)
            .iter()
            .flat_map(|turn| match turn {
                ProviderMessage::User { .. } => vec![],
                ProviderMessage::Assistant { content } => content
                    .iter()
                    .filter_map(
                        |block| if let ContentBlock::ToolCall(call) = block { Some(call.id.clone()) } else { None },
                    )
                    .collect(),
                ProviderMessage::ToolResult { call_id, .. } => vec![call_id.clone()],
            })
            .collect();
        assert_eq!(ids, ["f_0", "f_0_2", "f_0_2", "f_0", "f_0_3", "f_0_4", "f_0_3", "f_0_4"]);
    }

    #[test]
    fn first_turn_is_the_users_and_no_turn_is_blank() {
        let blank = ProviderMessage::User { content: vec![text(" ")] };
        let answer = ProviderMessage::Assistant { content: vec![text("a")] };
        assert_eq!(normalize_turns(&[blank.clone(), answer.clone()]).as_ref(), [left_out(), answer]);
        assert_eq!(normalize_turns(&[blank]).as_ref(), [left_out()]);
        assert_eq!(normalize_turns(&[]).as_ref(), [left_out()]);
    }
}
