//! Template rendering: `${…}` over facts, `{input:…}` over inputs (`language.md` 6). Inserted text is never scanned
//! again, and nothing is parsed at run time.

mod hook_text;
mod tree;

use rye_grammar::Span;
use rye_grammar::condition::Path;
use rye_grammar::template::{
    InputPlaceholder, InputsPart, InputsText, Placeholder, Template, TemplatePart, WhenMissing,
};
use serde_json::{Map, Value};

pub use hook_text::HookText;
pub use tree::{HookTemplateTree, TemplateText, TemplateTree};

use super::facts::{Facts, Lookup};
use super::value::inline_text;

/// A rendered value, or the declared paths that are not known yet.
#[derive(Debug, Clone, PartialEq)]
pub enum Rendered {
    Value(Value),
    Pending(Vec<String>),
}

/// A part of a template that is rendered as far as possible.
#[derive(Debug, Clone, PartialEq)]
pub enum RenderedPart {
    Text(String),
    /// A placeholder that only a run can fill.
    Pending {
        path: String,
        fallback: Option<String>,
        span: Span,
    },
}

/// A required input without a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the input `{name}` is missing")]
pub struct MissingInput {
    pub name: String,
    pub span: Span,
}

/// Returns the `${…}` placeholders of a template, in order.
pub fn placeholders(template: &Template) -> impl Iterator<Item = &Placeholder> {
    template
        .parts
        .iter()
        .filter_map(|part| if let TemplatePart::Placeholder(placeholder) = part { Some(placeholder) } else { None })
}

/// Returns the `{input:…}` placeholders of a text, in order.
pub fn input_placeholders(text: &InputsText) -> impl Iterator<Item = &InputPlaceholder> {
    text.parts
        .iter()
        .filter_map(|part| if let InputsPart::Input(placeholder) = part { Some(placeholder) } else { None })
}

/// Renders a template. A single placeholder without other text keeps its value's type, or is null if the value is
/// missing.
pub fn render(template: &Template, facts: &Facts) -> Rendered {
    if let [TemplatePart::Placeholder(placeholder)] = template.parts.as_slice() {
        return match fill_placeholder(placeholder, facts) {
            FilledPlaceholder::Value(value) => Rendered::Value(value.clone()),
            FilledPlaceholder::Fallback(text) => Rendered::Value(Value::String(text.to_owned())),
            FilledPlaceholder::Nothing => Rendered::Value(Value::Null),
            FilledPlaceholder::Unknown(paths) => Rendered::Pending(paths.into_iter().map(str::to_owned).collect()),
        };
    }
    match render_text(template, facts) {
        Ok(text) => Rendered::Value(Value::String(text)),
        Err(pending) => Rendered::Pending(pending),
    }
}

/// Renders a template as text.
///
/// # Errors
/// Returns the declared paths that are not known yet, each once.
pub fn render_text(template: &Template, facts: &Facts) -> Result<String, Vec<String>> {
    let mut text = String::new();
    let mut pending: Vec<String> = Vec::new();
    for part in &template.parts {
        match part {
            TemplatePart::Text(literal) => text.push_str(literal),
            TemplatePart::Placeholder(placeholder) => match fill_placeholder(placeholder, facts) {
                FilledPlaceholder::Value(value) => text.push_str(&inline_text(value)),
                FilledPlaceholder::Fallback(fallback) => text.push_str(fallback),
                FilledPlaceholder::Nothing => {}
                FilledPlaceholder::Unknown(paths) => {
                    for path in paths {
                        if !pending.iter().any(|p| p == path) {
                            pending.push(path.to_owned());
                        }
                    }
                }
            },
        }
    }
    if pending.is_empty() { Ok(text) } else { Err(pending) }
}

/// Renders the known placeholders; those over unknown paths remain, named by their own paths.
pub fn render_parts(template: &Template, facts: &Facts) -> Vec<RenderedPart> {
    render_where(template, facts, &|_| true)
}

/// Renders the content of fetched knowledge, parsed by the grammar's `scan_knowledge`: only placeholders whose root is
/// a fact of the hook point are filled; any other `${…}` stays literal text.
pub fn render_knowledge(template: &Template, facts: &Facts, is_fact: &dyn Fn(&str) -> bool) -> Vec<RenderedPart> {
    render_where(template, facts, &|path| root(path).is_some_and(is_fact))
}

fn render_where(template: &Template, facts: &Facts, is_placeholder: &dyn Fn(&Path) -> bool) -> Vec<RenderedPart> {
    let mut parts: Vec<RenderedPart> = Vec::new();
    for part in &template.parts {
        match part {
            TemplatePart::Text(text) => push_text(&mut parts, text),
            TemplatePart::Placeholder(placeholder) if !is_placeholder(&placeholder.path) => {
                push_text(&mut parts, &placeholder.raw);
            }
            TemplatePart::Placeholder(placeholder) => match fill_placeholder(placeholder, facts) {
                FilledPlaceholder::Value(value) => push_text(&mut parts, &inline_text(value)),
                FilledPlaceholder::Fallback(text) => push_text(&mut parts, text),
                FilledPlaceholder::Nothing => {}
                FilledPlaceholder::Unknown(_) => parts.push(RenderedPart::Pending {
                    path: placeholder.path.to_string(),
                    fallback: placeholder.fallback.clone(),
                    span: placeholder.span,
                }),
            },
        }
    }
    parts
}

fn push_text(parts: &mut Vec<RenderedPart>, text: &str) {
    if text.is_empty() {
        return;
    }
    if let Some(RenderedPart::Text(last)) = parts.last_mut() {
        last.push_str(text);
    } else {
        parts.push(RenderedPart::Text(text.to_owned()));
    }
}

fn root(path: &Path) -> Option<&str> {
    use rye_grammar::condition::Segment;
    match path.segments.first()? {
        Segment::Name(name) => Some(name),
        Segment::Number(_) => None,
    }
}

enum FilledPlaceholder<'a> {
    Value(&'a Value),
    Fallback(&'a str),
    Nothing,
    Unknown(Vec<&'a str>),
}

/// The fallback replaces missing and null values; `0`, `false` and `""` are values.
fn fill_placeholder<'a>(placeholder: &'a Placeholder, facts: &'a Facts) -> FilledPlaceholder<'a> {
    match facts.lookup(&placeholder.path) {
        Lookup::Known(Value::Null) | Lookup::Absent => match &placeholder.fallback {
            Some(text) => FilledPlaceholder::Fallback(text),
            None => FilledPlaceholder::Nothing,
        },
        Lookup::Known(value) => FilledPlaceholder::Value(value),
        Lookup::Unknown(paths) => FilledPlaceholder::Unknown(paths),
    }
}

/// Renders `{input:…}` placeholders. Values are formatted as inside of a `${…}` template; null counts as missing.
///
/// # Errors
/// Returns the first required input without a value.
pub fn render_inputs(text: &InputsText, inputs: &Map<String, Value>) -> Result<String, MissingInput> {
    let mut filled = String::new();
    for part in &text.parts {
        match part {
            InputsPart::Text(literal) => filled.push_str(literal),
            InputsPart::Input(placeholder) => filled.push_str(&fill_input(placeholder, inputs)?),
        }
    }
    Ok(filled)
}

fn fill_input<'a>(
    placeholder: &'a InputPlaceholder,
    inputs: &'a Map<String, Value>,
) -> Result<std::borrow::Cow<'a, str>, MissingInput> {
    match inputs.get(&placeholder.name) {
        None | Some(Value::Null) => match &placeholder.when_missing {
            WhenMissing::Refuse => Err(MissingInput { name: placeholder.name.clone(), span: placeholder.span }),
            WhenMissing::Empty => Ok("".into()),
            WhenMissing::Default(text) => Ok(text.as_str().into()),
        },
        Some(value) => Ok(inline_text(value)),
    }
}
