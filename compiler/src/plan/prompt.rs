//! The prompt of a plan: layers of segments. `rye plan` and `rye run` render the prompt with the same functions, so the
//! printed prompt equals the sent prompt. `lower/prompt.rs` decides which layers exist.

mod guard;

use std::collections::BTreeSet;

use rye_grammar::ItemId;
use serde::{Deserialize, Serialize};

use crate::hook::Position;
pub(crate) use guard::{LayerPiece, escape_closing_tags, guard_layer};

/// The system text and the first user message as layers, in the order they are joined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    pub system: Vec<Layer>,
    pub first_message: Vec<Layer>,
    /// Layers that `thread_continued` hooks add to the last user message of a continuation or resume.
    pub continued: Vec<Layer>,
    /// The body with its inputs filled in. In the first message, an element encloses the body; these segments do not
    /// contain the element. The fact `directive_body` is rendered from these segments.
    #[serde(default)]
    pub body: Vec<Segment>,
}

/// A text or item of the prompt, with its origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Id of the knowledge item, of the directive (for its body), or of the hook (for the text that an execute hook
    /// returns). Layers of other kinds have a fixed id, such as `skills`; a context file has `context/PATH`.
    pub id: String,
    pub kind: LayerKind,
    /// Before or after the body; in the system prompt, before or after the layers of the chain. `None` for the body
    /// itself and for layers without a position.
    pub position: Option<Position>,
    /// Id of the hook that added the layer; `None` for layers of the chain.
    pub hook: Option<String>,
    /// True if a run decides whether the layer is sent, because the verdict of its hook depends on facts of the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub depends: bool,
    /// The directive of the chain that declared the layer, for example as knowledge in its `<context>`; `None` for
    /// other layers.
    pub link: Option<ItemId>,
    /// Name of the element around the text; `None` if there is no element. The tags of the element are part of the
    /// segments, and no placeholder value can close the element.
    pub tag: Option<String>,
    /// Number of closing tags of `tag` in the text of the knowledge. Each of these tags is escaped as `&lt;/…`, so that
    /// the text cannot close the element.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub escaped: u64,
    pub segments: Vec<Segment>,
}

impl Layer {
    /// Creates a layer without a position, a hook or a tag.
    pub fn new(id: impl Into<String>, kind: LayerKind, segments: Vec<Segment>) -> Self {
        Self {
            id: id.into(),
            kind,
            position: None,
            hook: None,
            depends: false,
            link: None,
            tag: None,
            escaped: 0,
            segments,
        }
    }

    /// Returns the id that the transcript records for this layer.
    fn contributor(&self) -> &str {
        self.hook.as_deref().unwrap_or(&self.id)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerKind {
    Knowledge,
    Body,
    /// The text that an execute hook returns, available only at run time.
    Answer,
    /// The tools that a model without native tool use is offered.
    Tools,
    /// Snippets and guidelines of the tools in the palette.
    ToolGuidance,
    /// The first prompt of a chat.
    Prompt,
    /// The skills that a chat lists.
    Skills,
    /// Instructions for agents in an `AGENTS.md` or `CLAUDE.md`.
    ContextFile,
    /// Knowledge that the settings of chats append to the system prompt.
    Appended,
    /// The text that the user appends to the system prompt of a chat with `--append-system`.
    Given,
    /// A text that a hook adds before a model call. Reports of the first request contain such layers, plans do not.
    TurnText,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "segment", rename_all = "snake_case")]
pub enum Segment {
    Text { text: String },
    Pending { pending: RuntimePlaceholder, why: String },
}

/// A placeholder that only a run can fill.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "hole", rename_all = "snake_case")]
pub enum RuntimePlaceholder {
    /// A placeholder whose fact is not known at compile time. `path` is the path of `${path}`, or `inputs.name` for
    /// `{input:name}`.
    Fact { path: String, fallback: Option<String> },
    /// The text that an execute hook returns.
    Hook { id: String },
}

impl RuntimePlaceholder {
    /// Returns the marker that stands for the placeholder in printed plans: `${thread_id}`.
    pub fn marker(&self) -> String {
        match self {
            Self::Fact { path, .. } => format!("${{{path}}}"),
            Self::Hook { id } => format!("${{hook {id}}}"),
        }
    }
}

/// Access to the facts that only a run knows. For a printed plan, the implementation returns markers. In a run, the
/// implementation returns the values.
pub trait PromptFacts {
    /// Returns the text for a placeholder.
    fn text(&mut self, placeholder: &RuntimePlaceholder) -> String;
    /// Returns true if the hook of a layer fires. Called only for layers whose field `depends` is true.
    fn fires(&mut self, hook: &str) -> bool;
}

/// Renders one layer and fills its placeholders with `fill`. Does not check that the hook of the layer fires. If `fill`
/// returns only empty texts for a [`LayerKind::Answer`] layer, the result is an empty string, not an empty element.
pub fn render_layer(layer: &Layer, fill: &mut dyn FnMut(&RuntimePlaceholder) -> String) -> String {
    let mut empty = layer.kind == LayerKind::Answer;
    let mut pieces = Vec::with_capacity(layer.segments.len());
    for segment in &layer.segments {
        pieces.push(match segment {
            Segment::Text { text } => LayerPiece::Text(text.clone()),
            Segment::Pending { pending, .. } => {
                let value = fill(pending);
                empty = empty && value.is_empty();
                LayerPiece::Value(value)
            }
        });
    }
    if empty { String::new() } else { guard_layer(layer.tag.as_deref(), &pieces) }
}

/// The opening messages of a thread, and the ids of the layers in these messages. If a hook added a layer, the id is
/// the id of the hook.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpeningMessages {
    pub system: String,
    pub system_layers: Vec<String>,
    /// The message with its layers: the first user message of a fresh thread, or the last user message of a
    /// continuation.
    pub message: String,
    pub before: Vec<String>,
    pub after: Vec<String>,
}

impl Prompt {
    /// Renders the body of the directive, which is the value of the fact `directive_body`.
    pub fn directive_body(&self, fill: &mut dyn FnMut(&RuntimePlaceholder) -> String) -> String {
        let text = |segment: &Segment| match segment {
            Segment::Text { text } => text.clone(),
            Segment::Pending { pending, .. } => fill(pending),
        };
        self.body.iter().map(text).collect()
    }

    /// Renders the opening of a fresh thread: the system prompt and the first user message.
    pub fn render_opening(&self, known: &mut dyn PromptFacts) -> OpeningMessages {
        let mut seen = BTreeSet::new();
        let system = render_sent_layers(&self.system, known, &mut seen);
        let message = render_sent_layers(&self.first_message, known, &mut seen);
        opening_messages(&system, &message)
    }

    /// Renders the opening of a continuation or a resumed thread whose last user message is `message`: the system
    /// prompt and that message with its layers. The continuation layers with the ids in `sent` are left out, because
    /// the conversation contains them already. The layers of the first message with the ids in `resent` are added,
    /// because the conversation contains an earlier text of them.
    pub fn render_continuation(
        &self,
        known: &mut dyn PromptFacts,
        message: &str,
        sent: &[String],
        resent: &[String],
    ) -> OpeningMessages {
        let mut seen = BTreeSet::new();
        let system = render_sent_layers(&self.system, known, &mut seen);
        let changed = self.first_message.iter().filter(|layer| resent.contains(&layer.id));
        let mut layers = render_sent_layers(changed, known, &mut seen);
        let continued = render_sent_layers(&self.continued, known, &mut seen);
        layers.extend(continued.into_iter().filter(|(layer, _)| !sent.contains(&layer.id)));
        let mut opening = opening_messages(&system, &layers);
        let after = |layer: &&(&Layer, String)| layer.0.position == Some(Position::After);
        let before: Vec<&str> = layers.iter().filter(|l| !after(l)).map(|(_, text)| text.as_str()).collect();
        let after: Vec<&str> = layers.iter().filter(after).map(|(_, text)| text.as_str()).collect();
        let parts = before.into_iter().chain((!message.is_empty()).then_some(message)).chain(after);
        opening.message = parts.collect::<Vec<_>>().join(LAYER_SEPARATOR);
        opening
    }
}

/// Separator between two layers.
pub(crate) const LAYER_SEPARATOR: &str = "\n\n";

fn opening_messages(system: &[(&Layer, String)], message: &[(&Layer, String)]) -> OpeningMessages {
    let ids = |layers: &[(&Layer, String)], at: Option<Position>| {
        let of = layers.iter().filter(|(l, _)| at.is_none() || l.position == at);
        of.map(|(l, _)| l.contributor().to_owned()).collect()
    };
    OpeningMessages {
        system: join_layers(system),
        system_layers: ids(system, None),
        message: join_layers(message),
        before: ids(message, Some(Position::Before)),
        after: ids(message, Some(Position::After)),
    }
}

fn join_layers(layers: &[(&Layer, String)]) -> String {
    let texts: Vec<&str> = layers.iter().map(|(_, text)| text.as_str()).collect();
    texts.join(LAYER_SEPARATOR)
}

/// Renders the layers that are sent. A layer that depends on a hook is sent only if the hook fires. A layer without
/// text is not sent. A knowledge item is sent only at its first position: `seen` holds the ids of the knowledge items
/// at earlier positions.
pub(crate) fn render_sent_layers<'l>(
    layers: impl IntoIterator<Item = &'l Layer>,
    known: &mut dyn PromptFacts,
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
        let text = render_layer(layer, &mut |placeholder| known.text(placeholder));
        if !text.is_empty() {
            sent.push((layer, text));
        }
    }
    sent
}

/// Lists every placeholder of these layers, in order.
pub fn placeholders(layers: &[Layer]) -> impl Iterator<Item = &RuntimePlaceholder> {
    layers.iter().flat_map(|l| &l.segments).filter_map(|s| match s {
        Segment::Pending { pending, .. } => Some(pending),
        Segment::Text { .. } => None,
    })
}
