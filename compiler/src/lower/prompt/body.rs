//! The directive's own layer: `<directive name="…">` with its description, the body with its inputs filled in, and the
//! expected outputs.

use std::borrow::Cow;

use indexmap::IndexMap;
use rye_grammar::template::{InputsPart, WhenMissing};
use serde_json::{Map, Value};

use super::fill::{SegmentBuilder, ValueBudget};
use crate::compose::Composed;
use crate::diagnostics::{Diagnostics, InterfaceError};
use crate::lower::phrases::format_value;
use crate::plan::{InterfaceField, Layer, LayerKind, RuntimePlaceholder, Segment};
use crate::primary::DIRECTIVE_RETURN_TOOL;
use crate::semantics::value::inline_text;

/// The tag around the body. The tag of a knowledge item cannot have this name.
pub const BODY_TAG: &str = "directive";

/// Lowers the body of a composed directive. Returns the layer with the whole element `<directive>`, and separately the
/// segments of the filled body without this element.
pub(crate) fn lower_body(
    composed: &Composed,
    inputs: Option<&Map<String, Value>>,
    outputs: &IndexMap<String, InterfaceField>,
    budget: &mut ValueBudget,
    diagnostics: &mut Diagnostics,
) -> (Layer, Vec<Segment>) {
    let mut filled = SegmentBuilder::new(Some(BODY_TAG));
    let mut alone = SegmentBuilder::new(None);
    filled.text(format!("<{BODY_TAG} name=\"{}\">\n", composed.id.name()));
    let mut parts: Vec<BodyPart> = Vec::new();
    if let Some(leaf) = composed.leaf() {
        if !leaf.description.trim().is_empty() {
            filled.text(format!("{}\n", leaf.description.trim()));
        }
        for part in &leaf.body_template.parts {
            parts.push(match part {
                InputsPart::Text(text) => BodyPart::Text(text.clone()),
                InputsPart::Input(placeholder) => fill_input(composed, placeholder, inputs, budget, diagnostics),
            });
        }
    }
    if parts.iter().any(|part| !matches!(part, BodyPart::Text(text) if text.trim().is_empty())) {
        filled.text("\n");
        for part in parts {
            match part {
                BodyPart::Text(text) => {
                    alone.text(text.as_str());
                    filled.text(text);
                }
                BodyPart::Value(value) => {
                    alone.value(value.as_str());
                    filled.value(value);
                }
                BodyPart::Placeholder(pending, why) => {
                    alone.placeholder(pending.clone(), why.clone());
                    filled.placeholder(pending, why);
                }
            }
        }
        filled.text("\n");
    }
    if !outputs.is_empty() {
        filled.text(return_instructions(outputs));
    }
    filled.text(format!("</{BODY_TAG}>"));
    let layer = Layer {
        id: composed.id.to_string(),
        kind: LayerKind::Body,
        position: None,
        hook: None,
        depends: false,
        link: Some(composed.id.clone()),
        tag: Some(BODY_TAG.to_owned()),
        escaped: 0,
        segments: filled.finish(),
    };
    (layer, alone.finish())
}

enum BodyPart {
    Text(String),
    Value(String),
    Placeholder(RuntimePlaceholder, String),
}

fn fill_input(
    composed: &Composed,
    placeholder: &rye_grammar::template::InputPlaceholder,
    inputs: Option<&Map<String, Value>>,
    budget: &mut ValueBudget,
    diagnostics: &mut Diagnostics,
) -> BodyPart {
    let name = &placeholder.name;
    let Some(values) = inputs else {
        let fallback = match &placeholder.when_missing {
            WhenMissing::Refuse => None,
            WhenMissing::Empty => Some(String::new()),
            WhenMissing::Default(text) => Some(text.clone()),
        };
        let pending = RuntimePlaceholder::Fact { path: format!("inputs.{name}"), fallback };
        return BodyPart::Placeholder(pending, format!("no value was given for the input `{name}`"));
    };
    match (values.get(name).filter(|v| !v.is_null()), &placeholder.when_missing) {
        (Some(value), _) => {
            let value = budget.take(inline_text(value)).map(Cow::into_owned);
            value.map_or_else(|| BodyPart::Text(String::new()), BodyPart::Value)
        }
        (None, WhenMissing::Empty) => BodyPart::Text(String::new()),
        (None, WhenMissing::Default(text)) => BodyPart::Text(text.clone()),
        (None, WhenMissing::Refuse) => {
            // A missing required input, and an undeclared input, were already reported.
            if let Some(field) = composed.inputs.get(name).filter(|f| !f.value.required) {
                diagnostics.push(InterfaceError::MissingInput {
                    name: name.clone(),
                    directive: composed.id.to_string(),
                    declared: Some(field.value.span),
                    used: Some(placeholder.span),
                });
            }
            BodyPart::Text(String::new())
        }
    }
}

/// Returns the instructions for the return tool, with one line per output.
fn return_instructions(outputs: &IndexMap<String, InterfaceField>) -> String {
    let mut text = format!("\nWhen you are done, call `{DIRECTIVE_RETURN_TOOL}` with:\n");
    for (name, field) in outputs {
        let mut line = format!("- `{name}` ({}", field.describe_type());
        if !field.required {
            line.push_str(", optional");
        }
        line.push(')');
        if !field.description.trim().is_empty() {
            line.push_str(": ");
            line.push_str(field.description.trim());
        }
        if !field.choices.is_empty() {
            let choices: Vec<String> = field.choices.iter().map(format_value).collect();
            line.push_str("; one of ");
            line.push_str(&choices.join(", "));
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}
