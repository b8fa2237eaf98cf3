//! Template rendering: `${…}` over facts, `{input:…}` over inputs (`language.md` 6). Inserted text is never scanned
//! again, and nothing is parsed at run time.

mod hook_text;
mod tree;

use rye_grammar::Span;
use rye_grammar::template::{
    InputPlaceholder, InputsPart, InputsText, Placeholder, Template, TemplatePart, WhenMissing,
};
use serde_json::{Map, Value};

pub use hook_text::HookText;
pub use tree::{HookTemplateTree, TemplateText, TemplateTree};

use super::facts::{Facts, Lookup};
use super::value::inline_text;

/// The result of rendering a template: the value, or the paths of facts that are not known yet.
#[derive(Debug, Clone, PartialEq)]
pub enum Rendered {
    Value(Value),
    Pending(Vec<String>),
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
pub(crate) fn input_placeholders(text: &InputsText) -> impl Iterator<Item = &InputPlaceholder> {
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
/// Fails if the template reads values that are not known yet. The error lists the paths of these values, each once.
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

enum FilledPlaceholder<'a> {
    Value(&'a Value),
    Fallback(&'a str),
    Nothing,
    Unknown(Vec<&'a str>),
}

/// Returns the size in bytes of the text that replaces a placeholder; 0 if its value is not known.
fn filled_size(placeholder: &Placeholder, facts: &Facts) -> usize {
    match fill_placeholder(placeholder, facts) {
        FilledPlaceholder::Value(value) => inline_text(value).len(),
        FilledPlaceholder::Fallback(text) => text.len(),
        FilledPlaceholder::Nothing | FilledPlaceholder::Unknown(_) => 0,
    }
}

/// Fills a placeholder. The fallback replaces missing and null values; `0`, `false` and `""` are values.
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

/// Fills the `{input:…}` placeholders of a text. A text is inserted unchanged, any other value as compact JSON. Null
/// counts as missing.
///
/// # Errors
///
/// Returns the first required input without a value.
pub(crate) fn render_inputs(text: &InputsText, inputs: &Map<String, Value>) -> Result<String, MissingInput> {
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
