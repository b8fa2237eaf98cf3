//! The prompt of a plan: layers of segments. `plan` prints it and `run` sends it through the same functions, so what
//! is shown is what is sent. Which layers there are is decided in `lower/prompt.rs`, not here.

mod guard;

use std::collections::BTreeSet;

use rye_grammar::ItemId;
use serde::{Deserialize, Serialize};

use crate::hook::Position;
pub use guard::{Piece, escape_own, guard};

/// System text and first user message, layer by layer, in the order they are joined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    pub system: Vec<Layer>,
    pub first_message: Vec<Layer>,
    /// What `thread_continued` hooks bring into the last user message of a continuation or resume.
    pub continued: Vec<Layer>,
    /// The body with its inputs, without the element round it: the fact `directive_body`.
    #[serde(default)]
    pub body: Vec<Segment>,
}

/// One contribution and who made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// The knowledge id, the directive's id for its body, the hook's id for an execute hook.
    pub id: String,
    pub kind: LayerKind,
    /// Before or after the body (in the system prompt: before or after the chain); `None` for what stands between.
    pub position: Option<Position>,
    /// The hook that brought it; `None` for the chain's own.
    pub hook: Option<String>,
    /// True where only a run can tell whether the hook fires.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub depends: bool,
    /// The directive of the chain that declared it.
    pub link: Option<ItemId>,
    /// The element round the text. Its tags are part of the segments, and nothing that fills a hole can close it.
    pub tag: Option<String>,
    /// How many closing tags of `tag` the knowledge itself held; each is sent as `&lt;/…`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub escaped: u64,
    pub segments: Vec<Segment>,
}

impl Layer {
    /// Who the transcript names for this layer.
    pub fn contributor(&self) -> &str {
        self.hook.as_deref().unwrap_or(&self.id)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands the field over by reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
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

/// What a run knows that the plan did not. The same functions render with it as with the plan's own markers.
pub trait Known {
    /// The text of a hole.
    fn text(&mut self, hole: &Pending) -> String;
    /// Whether a hook that brings a layer fires; asked only of layers that depend on it.
    fn fires(&mut self, hook: &str) -> bool;
}

/// The text of one layer with its holes filled by `fill`, whether the layer is wanted or not. An answer that is empty
/// leaves no empty element behind.
pub fn render_layer(layer: &Layer, fill: &mut dyn FnMut(&Pending) -> String) -> String {
    let mut empty = layer.kind == LayerKind::Answer;
    let mut pieces = Vec::with_capacity(layer.segments.len());
    for segment in &layer.segments {
        pieces.push(match segment {
            Segment::Text { text } => Piece::Text(text.clone()),
            Segment::Pending { pending, .. } => {
                let value = fill(pending);
                empty = empty && value.is_empty();
                Piece::Value(value)
            }
        });
    }
    if empty { String::new() } else { guard(layer.tag.as_deref(), &pieces) }
}

/// How a thread begins: what is sent, and who contributed to it by id (hooks by theirs, the chain's items by theirs).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opening {
    pub system: String,
    pub system_layers: Vec<String>,
    /// The first user message of a fresh thread, the last one of a continuation.
    pub message: String,
    pub before: Vec<String>,
    pub after: Vec<String>,
}

impl Prompt {
    /// The fact `directive_body`.
    pub fn directive_body(&self, fill: &mut dyn FnMut(&Pending) -> String) -> String {
        let text = |segment: &Segment| match segment {
            Segment::Text { text } => text.clone(),
            Segment::Pending { pending, .. } => fill(pending),
        };
        self.body.iter().map(text).collect()
    }

    /// The opening of a fresh thread.
    pub fn open(&self, known: &mut dyn Known) -> Opening {
        let mut seen = BTreeSet::new();
        let system = rendered(&self.system, known, &mut seen);
        let message = rendered(&self.first_message, known, &mut seen);
        opening(&system, &message)
    }

    /// The opening of a continuation or resume, whose last user message is `message`.
    pub fn go_on(&self, known: &mut dyn Known, message: &str) -> Opening {
        let mut seen = BTreeSet::new();
        let system = rendered(&self.system, known, &mut seen);
        let layers = rendered(&self.continued, known, &mut seen);
        let mut opening = opening(&system, &layers);
        let after = |layer: &&(&Layer, String)| layer.0.position == Some(Position::After);
        let before: Vec<&str> = layers.iter().filter(|l| !after(l)).map(|(_, text)| text.as_str()).collect();
        let after: Vec<&str> = layers.iter().filter(after).map(|(_, text)| text.as_str()).collect();
        let parts = before.into_iter().chain((!message.is_empty()).then_some(message)).chain(after);
        opening.message = parts.collect::<Vec<_>>().join(BETWEEN);
        opening
    }
}

/// What stands between two layers.
pub const BETWEEN: &str = "\n\n";

fn opening(system: &[(&Layer, String)], message: &[(&Layer, String)]) -> Opening {
    let ids = |layers: &[(&Layer, String)], at: Option<Position>| {
        let of = layers.iter().filter(|(l, _)| at.is_none() || l.position == at);
        of.map(|(l, _)| l.contributor().to_owned()).collect()
    };
    Opening {
        system: joined(system),
        system_layers: ids(system, None),
        message: joined(message),
        before: ids(message, Some(Position::Before)),
        after: ids(message, Some(Position::After)),
    }
}

fn joined(layers: &[(&Layer, String)]) -> String {
    let texts: Vec<&str> = layers.iter().map(|(_, text)| text.as_str()).collect();
    texts.join(BETWEEN)
}

/// The layers that are sent, each with its text: those whose hook fires, each knowledge item at its first place only
/// (`seen` holds the ids that stand further up), nothing that renders to no text.
pub fn rendered<'l>(
    layers: &'l [Layer],
    known: &mut dyn Known,
    seen: &mut BTreeSet<&'l str>,
) -> Vec<(&'l Layer, String)> {
    let mut sent = Vec::new();
    for layer in layers {
        if layer.depends && !layer.hook.as_deref().is_some_and(|hook| known.fires(hook)) {
            continue;
        }
        if layer.kind == LayerKind::Knowledge && !seen.insert(layer.id.as_str()) {
            continue;
        }
        let text = render_layer(layer, &mut |hole| known.text(hole));
        if !text.is_empty() {
            sent.push((layer, text));
        }
    }
    sent
}

/// The layers joined by blank lines, all of them there, their holes filled by `fill`.
pub fn render_layers(layers: &[Layer], fill: &mut dyn FnMut(&Pending) -> String) -> String {
    joined(&rendered(layers, &mut Every(fill), &mut BTreeSet::new()))
}

/// A run in which every layer is there.
struct Every<'f>(&'f mut dyn FnMut(&Pending) -> String);

impl Known for Every<'_> {
    fn text(&mut self, hole: &Pending) -> String {
        (self.0)(hole)
    }

    fn fires(&mut self, _: &str) -> bool {
        true
    }
}

/// Every hole of these layers, in order.
pub fn pending(layers: &[Layer]) -> impl Iterator<Item = &Pending> {
    layers.iter().flat_map(|l| &l.segments).filter_map(|s| match s {
        Segment::Pending { pending, .. } => Some(pending),
        Segment::Text { .. } => None,
    })
}
