//! The text of one layer: fills in placeholders with known values, leaves the other placeholders to the run, and wraps
//! the result in the layer's tag.

use rye_grammar::template::{Placeholder, Template, TemplatePart, scan_knowledge};

use crate::hook::HookPoint;
use crate::item::Knowledge;
use crate::lower::facts::{PlanTimeFacts, first_segment};
use crate::plan::prompt::{LayerPiece, escape_closing_tags, guard_layer};
use crate::plan::{RuntimePlaceholder, Segment};
use crate::semantics::facts::Lookup;
use crate::semantics::hook_point;
use crate::semantics::template::render_text;
use crate::world::ItemKind;

/// The segments of a layer, and the number of escaped closing tags in the layer's own text.
pub struct FilledLayer {
    pub segments: Vec<Segment>,
    pub escaped: u64,
}

/// Maximum bytes of all values in the prompt of a plan: a short file can repeat a long value many times.
pub const MAX_VALUE_BYTES: usize = 16 << 20;

/// The budget for the values of placeholders in a prompt, in bytes.
#[derive(Debug)]
pub struct ValueBudget {
    left: usize,
    pub is_exceeded: bool,
}

impl Default for ValueBudget {
    fn default() -> Self {
        Self { left: MAX_VALUE_BYTES, is_exceeded: false }
    }
}

impl ValueBudget {
    /// Returns the value, and subtracts its bytes from the budget; `None` if the budget is too small. After the first
    /// value that does not fit, every result is `None`.
    pub fn take<T: AsRef<str>>(&mut self, value: T) -> Option<T> {
        let left = self.left.checked_sub(value.as_ref().len()).filter(|_| !self.is_exceeded);
        self.is_exceeded = left.is_none();
        self.left = left?;
        Some(value)
    }
}

/// A builder of segments. Consecutive texts and values become one segment and are escaped together.
pub struct SegmentBuilder<'t> {
    tag: Option<&'t str>,
    run: Vec<LayerPiece>,
    segments: Vec<Segment>,
}

impl<'t> SegmentBuilder<'t> {
    pub fn new(tag: Option<&'t str>) -> Self {
        Self { tag, run: Vec::new(), segments: Vec::new() }
    }

    pub fn text(&mut self, text: impl Into<String>) {
        self.run.push(LayerPiece::Text(text.into()));
    }

    pub fn value(&mut self, value: impl Into<String>) {
        self.run.push(LayerPiece::Value(value.into()));
    }

    pub fn placeholder(&mut self, pending: RuntimePlaceholder, why: String) {
        self.flush();
        self.segments.push(Segment::Pending { pending, why });
    }

    pub fn finish(mut self) -> Vec<Segment> {
        self.flush();
        self.segments
    }

    fn flush(&mut self) {
        let text = guard_layer(self.tag, &std::mem::take(&mut self.run));
        if !text.is_empty() {
            self.segments.push(Segment::Text { text });
        }
    }
}

/// Returns the layer of knowledge that the chain declares, with the knowledge's text verbatim.
pub fn verbatim_layer(knowledge: &Knowledge, tag: Option<&str>) -> FilledLayer {
    let (text, escaped) = escape_closing_tag(tag, &knowledge.body.node);
    let inside = if text.is_empty() { Vec::new() } else { vec![Segment::Text { text }] };
    FilledLayer { segments: enclose(tag, knowledge.file.id.as_str(), ItemKind::Knowledge, inside), escaped }
}

/// Returns the layer of knowledge that a hook fetches. A placeholder that reads a fact of the hook point is filled with
/// the value, or is left to the run if only the run knows the value. Any other `${…}` stays as text.
pub fn lower_knowledge(
    frame: &PlanTimeFacts<'_>,
    point: HookPoint,
    knowledge: &Knowledge,
    tag: Option<&str>,
    budget: &mut ValueBudget,
) -> FilledLayer {
    let line = hook_point::row_of(point);
    let body = &knowledge.body;
    let template = scan_knowledge(body.span.source, &body.node, body.span.start as usize);
    let facts = frame.facts_at(point, &[]);
    let mut writer = SegmentBuilder::new(tag);
    let mut escaped = 0;
    let mut text = |writer: &mut SegmentBuilder<'_>, text: &str| {
        let (text, count) = escape_closing_tag(tag, text);
        escaped += count;
        writer.text(text);
    };
    for part in &template.parts {
        match part {
            TemplatePart::Text(literal) => text(&mut writer, literal),
            TemplatePart::Placeholder(placeholder)
                if !first_segment(&placeholder.path).is_some_and(|r| line.has_fact(r)) =>
            {
                text(&mut writer, &placeholder.raw);
            }
            TemplatePart::Placeholder(placeholder) => match facts.lookup(&placeholder.path) {
                Lookup::Unknown(_) => {
                    let path = placeholder.path.to_string();
                    let why = format!("the value of `{path}` is known only at run time");
                    writer.placeholder(RuntimePlaceholder::Fact { path, fallback: placeholder.fallback.clone() }, why);
                }
                Lookup::Known(_) | Lookup::Absent if budget.is_exceeded => {}
                Lookup::Known(_) | Lookup::Absent => {
                    // Render the placeholder alone, as text: all of its facts are known.
                    let alone = Template { parts: vec![TemplatePart::Placeholder(Placeholder::clone(placeholder))] };
                    if let Some(value) = budget.take(render_text(&alone, &facts).unwrap_or_default()) {
                        writer.value(value);
                    }
                }
            },
        }
    }
    let segments = enclose(tag, knowledge.file.id.as_str(), ItemKind::Knowledge, writer.finish());
    FilledLayer { segments, escaped }
}

fn escape_closing_tag(tag: Option<&str>, text: &str) -> (String, u64) {
    tag.map_or_else(|| (text.to_owned(), 0), |tag| escape_closing_tags(tag, text))
}

/// Encloses the segments in an element: `<ProviderEnvironment id="…" type="knowledge">`. Without a tag or without
/// segments, returns the segments unchanged.
pub fn enclose(tag: Option<&str>, id: &str, kind: ItemKind, inside: Vec<Segment>) -> Vec<Segment> {
    let Some(tag) = tag.filter(|_| !inside.is_empty()) else { return inside };
    let mut segments = Vec::with_capacity(inside.len() + 2);
    push_text(&mut segments, &format!("<{tag} id=\"{}\" type=\"{}\">\n", escape_attribute(id), kind.as_str()));
    for segment in inside {
        match segment {
            Segment::Text { text } => push_text(&mut segments, &text),
            Segment::Pending { .. } => segments.push(segment),
        }
    }
    push_text(&mut segments, &format!("\n</{tag}>"));
    segments
}

fn push_text(segments: &mut Vec<Segment>, more: &str) {
    if let Some(Segment::Text { text }) = segments.last_mut() {
        text.push_str(more);
    } else {
        segments.push(Segment::Text { text: more.to_owned() });
    }
}

/// Escapes a text so that it can be the value of an attribute. This matters for the id of a hook, which may contain any
/// character.
fn escape_attribute(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;")
}

/// Returns true if a text can be the name of a layer's tag. The name `directive` is reserved for the tag of the body.
pub fn is_tag_name(text: &str) -> bool {
    let mut chars = text.chars();
    let starts = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let continues = chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    starts && continues && text.len() <= 64 && !text.eq_ignore_ascii_case(super::body::BODY_TAG)
}

/// Returns the text if it is a valid tag. Otherwise makes a tag: `_`, then the first 63 characters of the text, in
/// which `_` replaces each invalid character.
pub fn to_tag_name(text: &str) -> String {
    if is_tag_name(text) {
        return text.to_owned();
    }
    let kept: String = text
        .chars()
        .take(63)
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') { c } else { '_' })
        .collect();
    format!("_{kept}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_names_are_sanitized() {
        for (text, tag) in [
            ("Environment", "Environment"),
            ("2024-notes", "_2024-notes"),
            ("-x", "_-x"),
            ("${inputs.x}", "___inputs.x_"),
            ("directive", "_directive"),
            ("", "_"),
        ] {
            assert_eq!(to_tag_name(text), tag);
            assert!(is_tag_name(tag), "{tag}");
        }
        assert!(is_tag_name(&to_tag_name(&"x".repeat(200))));
    }

    #[test]
    fn enclosing_no_segments_returns_none() {
        assert_eq!(enclose(Some("a"), "x", ItemKind::Knowledge, Vec::new()), Vec::new());
        let text = |t: &str| Segment::Text { text: t.into() };
        assert_eq!(
            enclose(Some("a"), "x\"y", ItemKind::Tool, vec![text("b")]),
            [text("<a id=\"x&quot;y\" type=\"tool\">\nb\n</a>")]
        );
    }
}
