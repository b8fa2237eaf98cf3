//! The prompt of a plan: layers of segments. `plan` prints it and `run` sends it through the same functions.

use rye_grammar::ItemId;
use serde::{Deserialize, Serialize};

use crate::hook::Position;

/// System text and first user message, layer by layer, in the order they are joined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    pub system: Vec<Layer>,
    pub first_message: Vec<Layer>,
    /// What `thread_continued` hooks bring into the last user message of a continuation or resume.
    pub continued: Vec<Layer>,
}

/// One contribution and who made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    /// The knowledge id, the directive's id for its body, the hook's id for an execute hook.
    pub id: String,
    pub kind: LayerKind,
    /// Before or after the body; `None` for the body itself and in the system prompt.
    pub position: Option<Position>,
    /// The hook that brought it; `None` for the chain's own.
    pub hook: Option<String>,
    /// The directive of the chain that declared it.
    pub link: Option<ItemId>,
    pub wrap: bool,
    pub segments: Vec<Segment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerKind {
    Knowledge,
    Body,
    /// The answer of an execute hook, known at run.
    Answer,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "segment", rename_all = "snake_case")]
pub enum Segment {
    Text { text: String },
    Pending { pending: Pending, why: String },
}

/// A hole that only a run can fill.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "hole", rename_all = "snake_case")]
pub enum Pending {
    /// `${path}` or `{input:name}` (as `inputs.name`) whose fact is not known yet.
    Fact { path: String, fallback: Option<String> },
    /// The text an execute hook answers.
    Hook { id: String },
}

impl Pending {
    /// How a hole is shown where the text is printed before the run: `${thread_id}`.
    pub fn marker(&self) -> String {
        match self {
            Self::Fact { path, .. } => format!("${{{path}}}"),
            Self::Hook { id } => format!("${{hook {id}}}"),
        }
    }
}

/// The text of one layer with its holes filled by `fill`.
pub fn render_layer(layer: &Layer, fill: &mut dyn FnMut(&Pending) -> String) -> String {
    let mut text = String::new();
    for segment in &layer.segments {
        match segment {
            Segment::Text { text: t } => text.push_str(t),
            Segment::Pending { pending, .. } => text.push_str(&fill(pending)),
        }
    }
    text
}

/// Layers joined by blank lines; one that renders to nothing leaves no blank line behind.
pub fn render_layers(layers: &[Layer], fill: &mut dyn FnMut(&Pending) -> String) -> String {
    let texts: Vec<String> = layers.iter().map(|l| render_layer(l, fill)).filter(|t| !t.is_empty()).collect();
    texts.join("\n\n")
}

/// Every hole of these layers, in order.
pub fn pending(layers: &[Layer]) -> impl Iterator<Item = &Pending> {
    layers.iter().flat_map(|l| &l.segments).filter_map(|s| match s {
        Segment::Pending { pending, .. } => Some(pending),
        Segment::Text { .. } => None,
    })
}
