//! Tool headers: metadata read from a tool file without running it.

use crate::data::Node;
use crate::signature::SignatureLine;
use crate::span::Spanned;

/// The metadata of a tool as one mapping, whatever the language of its file; keys as in YAML tools.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolTree {
    pub signature: Option<Spanned<SignatureLine>>,
    pub metadata: Node,
}
