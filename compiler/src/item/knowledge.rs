//! A knowledge item: its metadata and the body that is injected (`language.md` 2).

use rye_grammar::Spanned;
use serde_json::{Map, Value};

use super::FileRef;

#[derive(Debug, Clone)]
pub struct Knowledge {
    pub file: FileRef,
    /// `name` where declared: the tag that wraps it.
    pub name: Option<Spanned<String>>,
    pub title: Option<String>,
    pub description: Option<String>,
    pub category: Option<String>,
    pub tags: Vec<String>,
    /// Everything declared, `extends` and `used_by` included.
    pub metadata: Map<String, Value>,
    /// Without signature and metadata.
    pub body: Spanned<String>,
}

impl Knowledge {
    /// The name of the wrapping tag: the declared name, else the id's last segment.
    pub fn tag(&self) -> &str {
        self.name.as_ref().map_or(self.file.id.name(), |n| &n.node)
    }
}
