//! Names of the parts of replies that the engine did not understand, for the result of a thread.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::event::CognitionOut;
use crate::exchange::MORE_NAMES;
use crate::message::ContentBlock;

/// Maximum number of names that a result has, without [`MORE_NAMES`].
const MAX_NAMES: usize = 100;

/// Kinds of content that is kept only to be sent back: reasoning that a provider encrypted or signed.
const RETURNED_KINDS: [&str; 3] = ["reasoning", "redacted_thinking", "thoughtSignature"];

/// The names of the parts of a thread's replies that the engine did not understand, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnreadParts {
    names: BTreeSet<String>,
    /// True if a name was left out, by the decoder or because of `MAX_NAMES`.
    is_cut: bool,
}

impl UnreadParts {
    /// Adds the unread parts of a reply: the names that the decoder reported, and the kinds of unknown content blocks.
    pub fn add(&mut self, reply: &CognitionOut) {
        let blocks = reply.content.iter().filter_map(|block| match block {
            ContentBlock::Other { value, .. } => unknown_kind(value),
            ContentBlock::Text { .. }
            | ContentBlock::Thinking { .. }
            | ContentBlock::ToolCall(_)
            | ContentBlock::Image(_) => None,
        });
        for name in reply.unread.iter().map(String::as_str).chain(blocks) {
            let name: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
            if name == MORE_NAMES {
                self.is_cut = true;
            } else if self.names.len() < MAX_NAMES {
                self.names.insert(name);
            } else {
                self.is_cut |= !self.names.contains(&name);
            }
        }
    }

    /// Returns the names in alphabetical order. If names were left out, the last element states this.
    pub fn names(&self) -> Vec<String> {
        self.names.iter().cloned().chain(self.is_cut.then(|| MORE_NAMES.to_owned())).collect()
    }
}

/// Returns the kind of a content block that no decoder reads: its `type`, or its first field if it has no type. `None`
/// for content that is only sent back.
fn unknown_kind(value: &Value) -> Option<&str> {
    let first = || value.as_object().and_then(|fields| fields.keys().next()).map(String::as_str);
    value.get("type").and_then(Value::as_str).or_else(first).filter(|kind| !RETURNED_KINDS.contains(kind))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::exchange::{StopReason, Usage};

    fn reply(unread: &[&str], blocks: &[Value]) -> CognitionOut {
        let block = |value: &Value| ContentBlock::Other { wire: "w".into(), value: value.clone() };
        CognitionOut {
            turn: 1,
            attempt: 0,
            content: blocks.iter().map(block).collect(),
            usage: Usage::default(),
            uncounted: None,
            stop: StopReason::EndTurn,
            model: None,
            unread: unread.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn unread_parts_are_named_once_and_content_that_is_sent_back_is_not_named() {
        let mut parts = UnreadParts::default();
        assert_eq!(parts.names(), [""; 0]);
        let hosted = [json!({"type": "web_search_call", "id": "w"}), json!({"executableCode": {}}), json!(7)];
        let returned =
            [json!({"type": "reasoning"}), json!({"type": "redacted_thinking"}), json!({"thoughtSignature": "s"})];
        parts.add(&reply(&["delta.audio", "x\u{1b}y"], &hosted));
        parts.add(&reply(&["delta.audio"], &returned));
        assert_eq!(parts.names(), ["delta.audio", "executableCode", "web_search_call", "xy"]);
        let many: Vec<String> = (0..MAX_NAMES).map(|n| format!("n{n}")).collect();
        parts.add(&reply(&many.iter().map(String::as_str).collect::<Vec<_>>(), &[]));
        assert_eq!(parts.names().len(), MAX_NAMES + 1);
        assert_eq!(parts.names().last().map(String::as_str), Some(MORE_NAMES));
    }

    #[test]
    fn names_of_a_later_reply_follow_those_of_a_reply_with_more_names() {
        let mut parts = UnreadParts::default();
        let names = |prefix: &str| (0..20).map(|n| format!("{prefix}{n:02}")).collect::<Vec<_>>();
        for prefix in ["ev", "zz"] {
            let (names, mut unread) = (names(prefix), Vec::new());
            unread.extend(names.iter().map(String::as_str));
            unread.push(MORE_NAMES);
            parts.add(&reply(&unread, &[]));
        }
        let expected = [names("ev"), names("zz"), vec![MORE_NAMES.to_owned()]].concat();
        assert_eq!(parts.names(), expected);
    }
}
