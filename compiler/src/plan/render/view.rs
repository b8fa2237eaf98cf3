//! The prompt as it can be shown before a run: its text with markers in the holes, and where in it each layer and each
//! hole lies. `run` sends the same text with the holes filled.

use std::collections::BTreeSet;

use super::super::prompt::{BETWEEN, Layer, LayerKind, Pending, Segment, render_layer};
use super::super::{Origins, Place, Plan, Tokenizer};

/// One message of the opening.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageView {
    pub text: String,
    pub layers: Vec<LayerView>,
    pub pending: Vec<Hole>,
}

/// A layer and the stretch of the text that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerView {
    pub layer: Layer,
    /// In bytes of the message's text.
    pub offset: usize,
    pub bytes: usize,
    pub tokens: u64,
    /// Who brought it.
    pub via: String,
    pub place: Option<Place>,
}

/// A stretch of the text that only a run can fill, shown as a marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hole {
    pub offset: usize,
    /// Of the marker.
    pub bytes: usize,
    pub pending: Pending,
    pub why: String,
}

/// System text, first message, and what a continuation brings.
pub fn prompt(plan: &Plan, origins: &Origins) -> (MessageView, MessageView, MessageView) {
    let (prompt, by) = (&plan.prompt, plan.model.counted_by);
    let mut seen = BTreeSet::new();
    let system = message(&prompt.system, origins, by, &mut seen);
    let before = seen.clone();
    let first = message(&prompt.first_message, origins, by, &mut seen);
    let mut seen = before;
    let continued = message(&prompt.continued, origins, by, &mut seen);
    (system, first, continued)
}

/// Every layer that may be sent, joined as [`super::super::Prompt::open`] joins them; `seen` holds the knowledge further up.
fn message<'l>(layers: &'l [Layer], origins: &Origins, by: Tokenizer, seen: &mut BTreeSet<&'l str>) -> MessageView {
    let mut view = MessageView::default();
    for layer in layers {
        // What is only there if its hook fires does not keep its item from a later place.
        let again = seen.contains(layer.id.as_str());
        if layer.kind == LayerKind::Knowledge && (again || (!layer.depends && !seen.insert(&layer.id))) {
            continue;
        }
        let text = render_layer(layer, &mut Pending::marker);
        if text.is_empty() {
            continue;
        }
        if !view.text.is_empty() {
            view.text.push_str(BETWEEN);
        }
        let offset = view.text.len();
        holes(layer, offset, &mut view.pending);
        view.text.push_str(&text);
        view.layers.push(LayerView {
            layer: layer.clone(),
            offset,
            bytes: text.len(),
            tokens: by.count(&text),
            via: via(layer),
            place: place(layer, origins),
        });
    }
    view
}

fn holes(layer: &Layer, mut offset: usize, into: &mut Vec<Hole>) {
    for segment in &layer.segments {
        match segment {
            Segment::Text { text } => offset += text.len(),
            Segment::Pending { pending, why } => {
                let bytes = pending.marker().len();
                into.push(Hole { offset, bytes, pending: pending.clone(), why: why.clone() });
                offset += bytes;
            }
        }
    }
}

fn via(layer: &Layer) -> String {
    match (&layer.hook, &layer.link, layer.kind) {
        (Some(hook), _, _) if layer.depends => format!("hook {hook}, if it fires"),
        (Some(hook), _, _) => format!("hook {hook}"),
        (None, _, LayerKind::Body) => "body".to_owned(),
        (None, Some(link), _) => link.to_string(),
        (None, None, _) => "chain".to_owned(),
    }
}

/// The line that put the layer here: the hook's, or the declaration in the chain.
fn place(layer: &Layer, origins: &Origins) -> Option<Place> {
    let key = layer.hook.as_ref().map_or_else(|| format!("layer.{}", layer.id), |hook| format!("hook.{hook}"));
    origins.get(&key)?.place.clone()
}

impl LayerView {
    pub fn end(&self) -> usize {
        self.offset + self.bytes
    }

    /// The holes of a message that lie in this layer.
    pub fn holes<'h>(&self, all: &'h [Hole]) -> impl Iterator<Item = &'h Hole> {
        let (start, end) = (self.offset, self.end());
        all.iter().filter(move |hole| (start..end).contains(&hole.offset))
    }
}
