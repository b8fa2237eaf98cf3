//! Checks of the literal calls of `rye_directive_return` that a body tells the model to make: the names, the types and
//! the completeness of the outputs (`language.md` 12).

use rye_grammar::Span;
use serde_json::Value;

use super::body_calls::{body_span, bounded, is_negated, literal_call};
use super::call_arguments::CallArguments;
use super::interface::LiteralArgument;
use crate::compose::Composed;
use crate::diagnostics::{Diagnostics, InterfaceError, closest};
use crate::item::directive::fields;
use crate::item::{Directive, FieldDecl};
use crate::primary::DIRECTIVE_RETURN_TOOL;

/// Arguments that the return tool accepts beside the outputs.
const RETURN_FIELDS: [&str; 2] = ["status", "error_detail"];

/// Compares a call of the return tool with the outputs of the directive. `call` is the text from the opening
/// parenthesis of the call, and `start` the offset of this parenthesis in the body. `span` is the place of the tool's
/// name.
pub fn check_return(
    composed: &Composed,
    leaf: &Directive,
    (start, call): (usize, &str),
    span: Span,
    found: &mut Diagnostics,
) {
    let directive = composed.id.to_string();
    if composed.outputs.is_empty() {
        found.push(InterfaceError::NoOutputs { directive, span });
        return;
    }
    let Some(read) = CallArguments::read(bounded(call)) else { return };
    // Empty parentheses only mark the name as a call, so no output counts as missing.
    let complete = read.complete && !read.list.is_empty();
    let returned = literal_call(leaf, start, &read, complete, body_span(leaf, start, 0));
    let outputs = || composed.outputs.keys();
    // A body may show a call that the model must not make: "never call `rye_directive_return(n=1)`".
    let before = leaf.body.node.get(..start - DIRECTIVE_RETURN_TOOL.len()).unwrap_or_default();
    let is_forbidden = is_negated(before.rsplit(',').next().unwrap_or_default());
    let mut is_named_right = true;
    for argument in &returned.arguments {
        let name = &argument.name.node;
        match composed.outputs.get(name) {
            Some(field) if !is_forbidden => check_value(&field.value, argument, found),
            Some(_) => {}
            None if RETURN_FIELDS.contains(&name.as_str()) => {}
            None => {
                is_named_right = false;
                found.push(InterfaceError::UnknownOutput {
                    name: name.clone(),
                    directive: Some(directive.clone()),
                    span: argument.name.span,
                    suggestion: closest(name, outputs().map(String::as_str)),
                    declared: outputs().cloned().collect(),
                });
            }
        }
    }
    // A return that states an error needs no outputs.
    let states_error = returned.arguments.iter().any(|argument| {
        let is_field = |name: &str| argument.name.node == name && !composed.outputs.contains_key(name);
        is_field("error_detail") || (is_field("status") && argument.value != Some("success".into()))
    });
    // A misspelled name probably means the missing output.
    if !is_named_right || !complete || states_error || is_forbidden {
        return;
    }
    let is_given = |name: &str| {
        returned.arguments.iter().any(|argument| argument.name.node == name && argument.value != Some(Value::Null))
    };
    for (name, field) in composed.outputs.iter().filter(|(name, field)| field.value.required && !is_given(name)) {
        let (name, declared) = (name.clone(), field.value.span);
        found.push(InterfaceError::MissingOutput { name, span, declared });
    }
}

/// Reports a literal that the output does not allow. A null counts as a missing output.
fn check_value(output: &FieldDecl, argument: &LiteralArgument, found: &mut Diagnostics) {
    if let Some(value) = argument.value.as_ref().filter(|value| !value.is_null() && !describes_value(output, value)) {
        found.extend(fields::check(output, value, Some(argument.span)));
    }
}

/// Returns true for a text that describes the value of an output instead of being the value: several words for an
/// output that holds no text (`n="number of files"`), or the choices with separators (`verdict="pass|fail"`).
fn describes_value(output: &FieldDecl, value: &Value) -> bool {
    let Some(text) = value.as_str() else { return false };
    let choices: Vec<&str> = output.choices.iter().filter_map(Value::as_str).collect();
    if choices.is_empty() {
        return text.contains(char::is_whitespace);
    }
    let words = text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-')));
    let words: Vec<&str> = words.filter(|word| !word.is_empty() && *word != "or").collect();
    let has_spaces = |choice: &&str| choice.contains(char::is_whitespace);
    let is_list = words.len() > 1 && words.iter().all(|word| choices.contains(word));
    is_list || (text.contains(char::is_whitespace) && !choices.iter().any(has_spaces))
}
