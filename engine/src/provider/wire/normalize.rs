//! Normalization of turns for all providers. After the normalization, no turn is empty, a user turn is first, and every
//! call has a plain, short and unique id. Before, the turns may contain any text of models, hooks and other providers.
//!
//! The machine guarantees that each call has its result and each result its call.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use rye_compiler::plan::hex;
use sha2::{Digest, Sha256};

use super::is_blank;
use crate::message::{ContentBlock, Message, ProviderMessage, SharedMessage, calls_in};

/// Maximum size in bytes of a call's id or name that all providers accept.
const MAX_NAME_BYTES: usize = 64;
/// Text of the first user turn, if the conversation would start with the model or be empty.
const OMITTED_TURNS: &str = "(earlier messages omitted)";

/// Returns `text` as a plain name: every character outside `[A-Za-z0-9_-]` becomes `_`. A name of more than 64 bytes is
/// truncated and ends with a hash of `text`. Every wire format accepts a plain name as the id of a call or the name of
/// a tool. The normalization is needed because a model can write any text as a name.
pub(in crate::provider) fn plain_name(text: &str) -> String {
    shortened_name(text, MAX_NAME_BYTES)
}

/// Returns true if [`plain_name`] would return `text` unchanged.
fn is_plain_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_NAME_BYTES && text.bytes().all(is_plain_byte)
}

fn is_plain_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Returns `text` with `_` in place of every character outside `[A-Za-z0-9_-]`; `_` for an empty text. A result of more
/// than `limit` bytes is truncated to `limit` bytes, of which the last 17 are `_` and a hash of `text`.
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

/// Returns the turns as all wires accept them: without empty turns, beginning with a user turn, and with a unique id
/// for each call. The function is deterministic. Turns that are added later do not change the result for earlier turns.
pub(in crate::provider) fn normalize_turns(turns: &[SharedMessage]) -> Cow<'_, [SharedMessage]> {
    if is_normalized(turns) {
        return Cow::Borrowed(turns);
    }
    let mut sent: Vec<SharedMessage> = Vec::with_capacity(turns.len() + 1);
    let mut ids = CallIds::default();
    for turn in turns {
        let Some(seen) = turn.for_provider().filter(|seen| !is_empty(*seen)) else { continue };
        if sent.is_empty() && !matches!(seen, ProviderMessage::User { .. }) {
            sent.push(left_out());
        }
        sent.push(match seen {
            ProviderMessage::User { .. } => turn.clone(),
            ProviderMessage::Assistant { content } => {
                let own = ids.rename_calls(content);
                if calls_in(content).map(|call| call.id.as_str()).eq(own.iter().map(String::as_str)) {
                    turn.clone()
                } else {
                    turn.renamed(|known| has_call_ids(known, &own), |message| with_call_ids(message, &own))
                }
            }
            ProviderMessage::ToolResult { call_id, .. } => {
                let own = ids.result_id(call_id);
                if own == call_id {
                    turn.clone()
                } else {
                    turn.renamed(|known| has_result_id(known, &own), |message| with_result_id(message, &own))
                }
            }
        });
    }
    if sent.is_empty() {
        sent.push(left_out());
    }
    Cow::Owned(sent)
}

fn left_out() -> SharedMessage {
    Message::user(OMITTED_TURNS).into()
}

fn has_call_ids(message: &Message, ids: &[String]) -> bool {
    matches!(message, Message::Assistant { content } if calls_in(content).map(|call| &call.id).eq(ids))
}

/// Returns a copy of the reply `message` in which the calls have the ids in `ids`, in order.
fn with_call_ids(message: &Message, ids: &[String]) -> Message {
    let mut message = message.clone();
    if let Message::Assistant { content } = &mut message {
        let calls = content.iter_mut().filter_map(|block| match block {
            ContentBlock::ToolCall(call) => Some(call),
            ContentBlock::Text { .. }
            | ContentBlock::Image { .. }
            | ContentBlock::Thinking { .. }
            | ContentBlock::Other { .. } => None,
        });
        calls.zip(ids).for_each(|(call, id)| call.id.clone_from(id));
    }
    message
}

fn has_result_id(message: &Message, id: &str) -> bool {
    matches!(message, Message::ToolResult { call_id, .. } if call_id == id)
}

/// Returns the tool result with `id` as the id of its call.
fn with_result_id(message: &Message, id: &str) -> Message {
    let mut message = message.clone();
    if let Message::ToolResult { call_id, .. } = &mut message {
        id.clone_into(call_id);
    }
    message
}

/// Returns true for a turn that no wire sends, because it has no content: only blank text, for example. A block that
/// only some wires send counts as content, because each wire decides itself whether it sends the block.
fn is_empty(turn: ProviderMessage<'_>) -> bool {
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

fn is_normalized(turns: &[SharedMessage]) -> bool {
    let mut seen: HashSet<&str> = HashSet::with_capacity(turns.len());
    let begins = matches!(turns.first().and_then(SharedMessage::for_provider), Some(ProviderMessage::User { .. }));
    begins
        && turns.iter().all(|turn| match turn.for_provider() {
            None => false,
            Some(turn) if is_empty(turn) => false,
            Some(ProviderMessage::User { .. } | ProviderMessage::ToolResult { .. }) => true,
            Some(ProviderMessage::Assistant { content }) => {
                calls_in(content).all(|call| is_plain_name(&call.id) && seen.insert(&call.id))
            }
        })
}

/// The mapping from the models' call ids to the ids under which the calls are sent.
#[derive(Default)]
struct CallIds {
    used: HashSet<String>,
    /// For each id, the number to try as the suffix of its next use: `call`, `call_2`, `call_3`.
    numbers: HashMap<String, u32>,
    /// The calls that have no result yet: for each call id that the model gave, the ids under which the calls with this
    /// id are sent, in the order of the calls.
    open: BTreeMap<String, Vec<String>>,
}

impl CallIds {
    /// Returns the ids under which the calls of a reply are sent, in the order of the calls. Also clears the list of
    /// earlier calls that wait for a result.
    fn rename_calls(&mut self, content: &[ContentBlock]) -> Vec<String> {
        self.open.clear();
        calls_in(content).map(|call| self.unique_id(&call.id)).collect()
    }

    /// Returns `id`, changed if necessary: the result is a valid id that no other call of the request has.
    fn unique_id(&mut self, id: &str) -> String {
        let plain = plain_name(id);
        let numbered = |n: u32| plain_name(&if n == 1 { plain.clone() } else { format!("{plain}_{n}") });
        // Ids with smaller numbers are used already.
        let next = self.numbers.entry(plain.clone()).or_insert(1);
        let free = (*next..u32::MAX).map(|n| (n, numbered(n))).find(|(_, own)| !self.used.contains(own));
        let own = free.map_or_else(
            || plain.clone(),
            |(n, own)| {
                *next = n.saturating_add(1);
                own
            },
        );
        self.used.insert(own.clone());
        self.open.entry(id.to_owned()).or_default().push(own.clone());
        own
    }

    /// Returns the id under which a result is sent. `id` is the model's id of the call; if several calls have this id,
    /// the result belongs to the first of them without a result.
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
    use crate::provider::fixture::{assistant, call, result, text, user};

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
        let turns = [user(vec![text("a")]), assistant(vec![call("i", "x", json!({}))]), result("i", "r", false)];
        assert!(matches!(normalize_turns(&turns), Cow::Borrowed(_)));
    }

    #[test]
    fn call_ids_are_unique_and_match_results() {
        let twice = || assistant(vec![call("f.0", "x", json!({})), call("f:0", "x", json!({}))]);
        let turns = [
            user(vec![text("a")]),
            twice(),
            result("f:0", "second", false),
            result("f.0", "first", false),
            twice(),
            result("f.0", "third", false),
            result("f:0", "fourth", false),
        ];
        let ids: Vec<String> = normalize_turns(&turns)
            .iter()
            .flat_map(|turn| match turn.for_provider().unwrap() {
                ProviderMessage::User { .. } => vec![],
                ProviderMessage::Assistant { content } => calls_in(content).map(|call| call.id.clone()).collect(),
                ProviderMessage::ToolResult { call_id, .. } => vec![call_id.to_owned()],
            })
            .collect();
        assert_eq!(ids, ["f_0", "f_0_2", "f_0_2", "f_0", "f_0_3", "f_0_4", "f_0_3", "f_0_4"]);
    }

    #[test]
    fn first_turn_is_the_users_and_no_turn_is_blank() {
        let blank = user(vec![text(" ")]);
        let answer = assistant(vec![text("a")]);
        assert_eq!(normalize_turns(&[blank.clone(), answer.clone()]).as_ref(), [left_out(), answer]);
        assert_eq!(normalize_turns(&[blank]).as_ref(), [left_out()]);
        assert_eq!(normalize_turns(&[]).as_ref(), [left_out()]);
    }
}
