//! Text that the events, the state and the result of a thread share, so that a long reply is in memory only once.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// An immutable text whose clones share its bytes. A conversion from a `String` copies nothing.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct SharedText(Arc<String>);

impl SharedText {
    /// Returns a mutable reference to the text. Copies the text first if another value shares it.
    pub fn make_mut(&mut self) -> &mut String {
        Arc::make_mut(&mut self.0)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the text as a `String`. Copies the text if another value shares it.
    pub fn into_string(self) -> String {
        Arc::unwrap_or_clone(self.0)
    }
}

impl Deref for SharedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<&str> for SharedText {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl From<String> for SharedText {
    fn from(text: String) -> Self {
        Self(Arc::new(text))
    }
}

impl From<&str> for SharedText {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<SharedText> for String {
    fn from(text: SharedText) -> Self {
        text.into_string()
    }
}

impl From<SharedText> for Value {
    fn from(text: SharedText) -> Self {
        Self::String(text.into_string())
    }
}

impl fmt::Display for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl Serialize for SharedText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for SharedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_bytes_and_a_change_leaves_other_clones() {
        let first = SharedText::from("one".to_owned());
        let mut second = first.clone();
        assert!(std::ptr::eq(first.as_str(), second.as_str()));
        second.make_mut().push_str(" more");
        assert_eq!((first.as_str(), second.as_str()), ("one", "one more"));
    }
}
