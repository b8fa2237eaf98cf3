//! Thread ids: `<directive>-<unix seconds>`, then `-2`, `-3`… (`engine.md` 4). This module parses and formats ids;
//! `store/allocate.rs` allocates them.

use std::fmt;
use std::sync::Arc;

use rye_grammar::ItemId;
use rye_grammar::item_id::InvalidId;
use serde::{Deserialize, Serialize};

/// A thread's id, which also names its folder below `.ai/state/threads/`. A `/` in the directive id leads to nested
/// folders (`agency-kiwi/discover_leads-1739820456`).
///
/// INVARIANT: a well-formed item id whose segments are valid file names, so the path never leaves that folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ThreadId(Arc<str>);

/// Maximum length of a segment in bytes: 255 for a file name, minus the part that temporary names add.
const MAX_SEGMENT_BYTES: usize = 200;
/// Maximum length of an id in bytes, well below the maximum length of a path.
const MAX_ID_BYTES: usize = 1_000;

impl ThreadId {
    /// Parses the id of a thread: an item id that is short enough for the names of folders.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let id = ItemId::parse(text)?;
        let mut offset = 0;
        for segment in id.as_str().split('/') {
            if segment.len() > MAX_SEGMENT_BYTES || offset + segment.len() > MAX_ID_BYTES {
                let reason = format!("a thread id of {} bytes is too long to be a folder", text.len());
                return Err(InvalidId { reason, offset });
            }
            offset += segment.len() + 1;
        }
        Ok(Self(id.as_str().into()))
    }

    /// Returns the id of the `n`th thread (from 1) of a directive that starts in the second `unix_seconds`.
    pub fn numbered(directive: &ItemId, unix_seconds: u64, n: u64) -> Result<Self, InvalidId> {
        match n {
            0 | 1 => Self::parse(&format!("{directive}-{unix_seconds}")),
            _ => Self::parse(&format!("{directive}-{unix_seconds}-{n}")),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ThreadId {
    type Error = InvalidId;
    fn try_from(value: String) -> Result<Self, Self::Error> {
        Self::parse(&value)
    }
}

impl From<ThreadId> for String {
    fn from(value: ThreadId) -> Self {
        value.0.to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn ids_are_numbered_from_the_second_one() {
        let directive = ItemId::parse("agency-kiwi/discover_leads").unwrap();
        let id = |n| ThreadId::numbered(&directive, 1_739_820_456, n).unwrap();
        assert_eq!(id(1).as_str(), "agency-kiwi/discover_leads-1739820456");
        assert_eq!(id(2).as_str(), "agency-kiwi/discover_leads-1739820456-2");
    }

    #[test]
    fn thread_id_rejects_names_that_are_no_folder() {
        for text in ["", "..", "a/../b", "/a", "a/", "a//b", "a\\b", "a.b", "a\0", "a b", "ä", &"x".repeat(201)] {
            assert!(ThreadId::parse(text).is_err(), "{text:?}");
        }
        assert!(ThreadId::parse(&"x/".repeat(600)).is_err());
        assert!(ThreadId::parse(&vec!["x"; 600].join("/")).is_err());
        assert!(serde_json::from_str::<ThreadId>("\"../etc\"").is_err());
    }
}
