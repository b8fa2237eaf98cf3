//! A knowledge file: metadata (YAML fence or front matter, or a pure YAML file) and the body that is injected.

use crate::data::Node;
use crate::signature::SignatureLine;
use crate::span::Spanned;

#[derive(Debug, Clone, PartialEq)]
pub struct KnowledgeTree {
    pub signature: Option<Spanned<SignatureLine>>,
    /// The metadata mapping; `None` where the file has none.
    pub metadata: Option<Node>,
    /// What is injected: without signature and metadata, trimmed.
    pub body: Spanned<String>,
}
