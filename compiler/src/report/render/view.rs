//! The prompt as shown before a run: its text with markers in place of placeholders, and the byte ranges of layers and
//! placeholders. `rye run` sends the same text with the placeholders filled.

use std::collections::BTreeSet;

use super::turn_hooks;
use crate::plan::prompt::{LAYER_SEPARATOR, Layer, LayerKind, RuntimePlaceholder, Segment, render_layer};
use crate::plan::{Origins, Plan, PlannedModel, RequestTokens, SourcePlace, Tokenizer};

/// The system prompt or the first user message of a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageView {
    pub text: String,
    pub layers: Vec<LayerView>,
    pub pending: Vec<PlaceholderView>,
    /// Number of messages that hooks add to the first request, in addition to the first message.
    pub added_messages: u64,
}

/// A layer of a [`MessageView`], with its byte range in the message's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerView {
    pub layer: Layer,
    /// Byte offset of the layer in the message's text.
    pub offset: usize,
    pub bytes: usize,
    pub tokens: u64,
    /// The source of the layer in words, such as `hook ID`, `body`, `palette` or the link of the extends chain.
    pub via: String,
    pub place: Option<SourcePlace>,
}

/// A placeholder that only a run can fill, and the byte range of its marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceholderView {
    pub offset: usize,
    /// Length of the marker that stands for the placeholder in the text, in bytes.
    pub bytes: usize,
    pub pending: RuntimePlaceholder,
    pub why: String,
}

/// Returns the views of the system prompt, of the messages of the first request, and of the message of a continuation.
/// The first two views contain the texts that hooks add before the model is called.
pub fn view_prompt(plan: &Plan, origins: &Origins) -> (MessageView, MessageView, MessageView) {
    let (prompt, by) = (&plan.prompt, plan.model.counted_by);
    let mut seen = BTreeSet::new();
    let system = view_message(&prompt.system, origins, by, &mut seen);
    let before = seen.clone();
    let first = view_message(&prompt.first_message, origins, by, &mut seen);
    let mut seen = before;
    let continued = view_message(&prompt.continued, origins, by, &mut seen);
    if !turn_hooks::changes_request(plan) {
        return (system, first, continued);
    }
    let layers = |view: MessageView| view.layers.into_iter().map(|one| one.layer).collect();
    let turn = turn_hooks::apply(plan, layers(system), layers(first));
    let shown = |layers: &[Layer]| view_message(layers, origins, by, &mut BTreeSet::new());
    let added_messages = u64::try_from(turn.count.saturating_sub(1)).unwrap_or(u64::MAX);
    (shown(&turn.system), MessageView { added_messages, ..shown(&turn.messages) }, continued)
}

impl Plan {
    /// Counts the tokens of the first request from its views.
    pub(crate) fn count_viewed_tokens(&self, system: &MessageView, first: &MessageView) -> RequestTokens {
        let tokens = self.count_request_tokens(&system.text, &first.text);
        let with_frames = |model: &PlannedModel, bound: u64| {
            bound.saturating_add(model.bound_message(0, 1).saturating_mul(first.added_messages))
        };
        RequestTokens {
            input_bound: with_frames(&self.model, tokens.input_bound),
            fallback_bound: self.model.fallback.as_ref().map_or(0, |model| with_frames(model, tokens.fallback_bound)),
            ..tokens
        }
    }
}

/// Returns one message with all layers that it may contain, joined as in a request
/// ([`crate::plan::Prompt::render_opening`]). Leaves out knowledge whose id is in `seen`, because an earlier message
/// contains it. Adds to `seen` the knowledge that every run sends in this message.
fn view_message<'l>(
    layers: &'l [Layer],
    origins: &Origins,
    by: Tokenizer,
    seen: &mut BTreeSet<&'l str>,
) -> MessageView {
    let mut view = MessageView::default();
    for layer in layers {
        // A layer is left out if an earlier layer with the same item is always sent. A layer that depends on a hook's
        // condition is not always sent.
        let again = seen.contains(layer.id.as_str());
        if layer.kind == LayerKind::Knowledge && (again || (!layer.depends && !seen.insert(&layer.id))) {
            continue;
        }
        let text = render_layer(layer, &mut RuntimePlaceholder::marker);
        if text.is_empty() {
            continue;
        }
        if !view.text.is_empty() {
            view.text.push_str(LAYER_SEPARATOR);
        }
        let offset = view.text.len();
        push_placeholders(layer, offset, &mut view.pending);
        view.text.push_str(&text);
        view.layers.push(LayerView {
            layer: layer.clone(),
            offset,
            bytes: text.len(),
            tokens: by.count(&text),
            via: describe_source(layer),
            place: source_of_layer(layer, origins),
        });
    }
    view
}

fn push_placeholders(layer: &Layer, mut offset: usize, into: &mut Vec<PlaceholderView>) {
    for segment in &layer.segments {
        match segment {
            Segment::Text { text } => offset += text.len(),
            Segment::Pending { pending, why } => {
                let bytes = pending.marker().len();
                into.push(PlaceholderView { offset, bytes, pending: pending.clone(), why: why.clone() });
                offset += bytes;
            }
        }
    }
}

fn describe_source(layer: &Layer) -> String {
    match (&layer.hook, &layer.link, layer.kind) {
        (Some(hook), _, _) if layer.depends => format!("hook {hook}, if it fires"),
        (Some(hook), _, _) => format!("hook {hook}"),
        (None, _, LayerKind::Body) => "body".to_owned(),
        (None, _, LayerKind::Tools | LayerKind::ToolGuidance) => "palette".to_owned(),
        (None, _, LayerKind::Prompt | LayerKind::Skills) => "session".to_owned(),
        (None, _, LayerKind::ContextFile) => "context file".to_owned(),
        (None, _, LayerKind::Appended) => "settings".to_owned(),
        (None, _, LayerKind::Given) => "command line".to_owned(),
        (None, _, LayerKind::TurnText) => "hook".to_owned(),
        (None, Some(link), _) => link.to_string(),
        (None, None, _) => "chain".to_owned(),
    }
}

/// Returns the line that added the layer: the line of the hook, or of the declaration in the chain. `None` if the
/// origins contain no line for the layer.
fn source_of_layer(layer: &Layer, origins: &Origins) -> Option<SourcePlace> {
    let key = layer.hook.as_ref().map_or_else(|| format!("layer.{}", layer.id), |hook| format!("hook.{hook}"));
    origins.get(&key)?.place.clone()
}

impl LayerView {
    pub fn end(&self) -> usize {
        self.offset + self.bytes
    }

    /// Returns the placeholders of a message that lie in this layer.
    pub fn placeholders<'h>(&self, all: &'h [PlaceholderView]) -> impl Iterator<Item = &'h PlaceholderView> {
        let (start, end) = (self.offset, self.end());
        all.iter().filter(move |placeholder| (start..end).contains(&placeholder.offset))
    }
}
