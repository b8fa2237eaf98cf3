//! Item ids: `rye/agent/core/base`. Segments of `[A-Za-z0-9_-]+`, joined by `/`.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::text::{describe_char, shorten};

/// A well-formed item id. INVARIANT: non-empty segments of `[A-Za-z0-9_-]`, no leading or trailing `/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ItemId(Arc<str>);

/// The reason why a text is not an item id, with the byte offset of the invalid part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct InvalidId {
    pub reason: String,
    pub offset: usize,
}

impl ItemId {
    /// Parses an id. The error has the offset of the first invalid part.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        if text.is_empty() {
            return Err(InvalidId { reason: "an item id cannot be empty".into(), offset: 0 });
        }
        let mut offset = 0;
        for segment in text.split('/') {
            if segment.is_empty() {
                return Err(InvalidId { reason: format!("`{}` has an empty segment", shorten(text)), offset });
            }
            if let Some((at, c)) =
                segment.char_indices().find(|(_, c)| !(c.is_ascii_alphanumeric() || *c == '_' || *c == '-'))
            {
                let reason = match segment {
                    "." | ".." => {
                        format!(
                            "`{}` points outside its space: `{segment}` is not a segment of an item id",
                            shorten(text)
                        )
                    }
                    _ => format!("{} is not allowed in an item id", describe_char(c)),
                };
                return Err(InvalidId { reason, offset: offset + at });
            }
            offset += segment.len() + 1;
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the last segment.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// Returns everything before the last segment; empty for an id of one segment.
    pub fn category(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(c, _)| c)
    }

    /// Parses an id in the form used in capabilities, with dots for slashes; `None` for any other text. Ids have no
    /// dots, so the form is unambiguous.
    pub fn from_dotted(text: &str) -> Option<Self> {
        let is_dotted = !text.contains('/');
        Self::parse(&text.replace('.', "/")).ok().filter(|_| is_dotted)
    }

    /// Returns the form used in capabilities, with dots for slashes.
    pub fn dotted(&self) -> String {
        self.0.replace('/', ".")
    }
}

/// An id compares and hashes like its text.
impl Borrow<str> for ItemId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ItemId {
    type Error = InvalidId;
    fn try_from(value: String) -> Result<Self, Self::Error> {
        Self::parse(&value)
    }
}

impl From<ItemId> for String {
    fn from(value: ItemId) -> Self {
        value.0.to_string()
    }
}
