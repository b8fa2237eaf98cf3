//! Encodes the bodies of requests: a JSON object with the fields of the wire format. One of these fields is the list of
//! turns, which are the messages of the conversation.
//!
//! The encoding of each turn is cached (`SharedMessage::encoded`): a request copies the bytes of a long conversation
//! and encodes only its new turns.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

/// The JSON of several items, joined by commas.
pub(in crate::provider) type EncodedItems = Arc<[u8]>;

/// Encodes each item as JSON and joins the results by commas, without enclosing brackets.
pub(in crate::provider) fn encode_items<T: Serialize>(items: &[T]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for item in items {
        push_comma(&mut bytes);
        write_json(&mut bytes, item);
    }
    bytes
}

/// The items of a turn, as a part of the list of turns in a request. Either the whole group is one entry of the list,
/// and `front` and `back` are the JSON around the items. Or each item is an entry of its own, and `front` and `back`
/// are empty.
pub(in crate::provider) struct EncodedGroup {
    /// JSON before `items`, such as the start of an object that encloses the items; empty if each item is an entry of
    /// its own.
    pub front: &'static str,
    pub items: Vec<EncodedItems>,
    pub back: &'static str,
}

impl EncodedGroup {
    /// Creates a group that adds no JSON around its items, because each item is an entry of its own in the request's
    /// list of turns.
    pub fn of_entries(items: Vec<EncodedItems>) -> Self {
        Self { front: "", items, back: "" }
    }

    fn len(&self) -> usize {
        let items: usize = self.items.iter().map(|items| items.len() + 1).sum();
        self.front.len() + items + self.back.len() + 1
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.front.as_bytes());
        for (index, items) in self.items.iter().filter(|items| !items.is_empty()).enumerate() {
            if index > 0 {
                bytes.push(b',');
            }
            bytes.extend_from_slice(items);
        }
        bytes.extend_from_slice(self.back.as_bytes());
    }
}

/// The name of the field with the tools in the body of a request. All wire formats use this name.
pub(in crate::provider) const TOOLS_FIELD: &str = "tools";

/// Returns the JSON text of an object with the entries of `fields`. The value of the field `list` is replaced by the
/// array of all items in `groups`, and the value of [`TOOLS_FIELD`] by the JSON in `tools`.
pub(in crate::provider) fn encode_body(
    fields: &Map<String, Value>,
    tools: Option<&EncodedItems>,
    list: &str,
    groups: &[EncodedGroup],
) -> Vec<u8> {
    let (mut front, mut back) = (vec![b'{'], Vec::new());
    let mut part = &mut front;
    for (index, (name, value)) in fields.iter().enumerate() {
        if index > 0 {
            part.push(b',');
        }
        write_json(part, name);
        part.push(b':');
        if name == list {
            part = &mut back;
        } else if let Some(tools) = tools.filter(|_| name == TOOLS_FIELD) {
            part.extend_from_slice(tools);
        } else {
            write_json(part, value);
        }
    }
    // The buffer is allocated once: a growing buffer would copy the conversation each time that it is reallocated.
    let length: usize = groups.iter().map(EncodedGroup::len).sum();
    let mut bytes = Vec::with_capacity(front.len() + length + back.len() + 3);
    bytes.append(&mut front);
    bytes.push(b'[');
    let mut written = false;
    for group in groups.iter().filter(|group| group.items.iter().any(|items| !items.is_empty())) {
        if written {
            bytes.push(b',');
        }
        group.write(&mut bytes);
        written = true;
    }
    bytes.push(b']');
    bytes.append(&mut back);
    bytes.push(b'}');
    bytes
}

fn push_comma(bytes: &mut Vec<u8>) {
    if !bytes.is_empty() {
        bytes.push(b',');
    }
}

fn write_json<T: Serialize + ?Sized>(bytes: &mut Vec<u8>, value: &T) {
    // Writing strings and `Value`s to memory cannot fail.
    let written = serde_json::to_writer(bytes, value);
    debug_assert!(written.is_ok(), "a value cannot be written as JSON");
}

#[cfg(test)]
mod tests;
