//! Inputs and outputs of the plan. Also checks given values against the declarations (`language.md`, Directives).

use indexmap::IndexMap;
use rye_grammar::{ItemId, Span};
use serde_json::{Map, Value};

use super::phrases::{format_value, quote_list};
use crate::compose::WithOrigin;
use crate::diagnostics::{Diagnostics, InterfaceError, WordList, closest};
use crate::item;
use crate::plan::InterfaceField;
use crate::semantics::value::{Type, are_equal};

/// Converts the declared inputs or outputs of a directive to the form in which the plan contains them.
pub(crate) fn lower_fields(
    declared: &IndexMap<String, WithOrigin<item::FieldDecl>>,
) -> IndexMap<String, InterfaceField> {
    let plan = |field: &item::FieldDecl| InterfaceField {
        kind: field.kind,
        required: field.required,
        default: field.default.clone(),
        choices: field.choices.clone(),
        description: field.description.clone(),
        parts: field.parts.clone(),
    };
    declared.iter().map(|(name, field)| (name.clone(), plan(&field.value))).collect()
}

/// Returns the values of the declared inputs, in declared order: the given value, else the default. Reports unknown
/// inputs, missing required inputs, and values of the wrong type or outside of the choices. A reported value stays in
/// the result.
pub(crate) fn resolve_inputs(
    directive: &ItemId,
    declared: &IndexMap<String, WithOrigin<item::FieldDecl>>,
    given: &Map<String, Value>,
    diagnostics: &mut Diagnostics,
) -> Map<String, Value> {
    for name in given.keys().filter(|name| !declared.contains_key(*name)) {
        diagnostics.push(InterfaceError::UnknownInput {
            name: name.clone(),
            directive: directive.to_string(),
            span: None,
            suggestion: closest(name, declared.keys().map(String::as_str)),
            declared: WordList::new(declared.keys()),
        });
    }
    let mut values = Map::new();
    for (name, WithOrigin { value: field, .. }) in declared {
        match given.get(name).filter(|v| !v.is_null()).or(field.default.as_ref()) {
            Some(value) => {
                if let Some(wrong) = type_error(name, field, value) {
                    diagnostics.push(wrong);
                }
                values.insert(name.clone(), value.clone());
            }
            None if field.required => diagnostics.push(InterfaceError::MissingInput {
                name: name.clone(),
                directive: directive.to_string(),
                declared: Some(field.span),
                used: None,
            }),
            None => {}
        }
    }
    values
}

fn type_error(name: &str, field: &item::FieldDecl, value: &Value) -> Option<InterfaceError> {
    let expected = if !field.kind.fits(value) {
        field.kind.phrase().to_owned()
    } else if !field.choices.is_empty() && !field.choices.iter().any(|choice| are_equal(choice, value)) {
        let choices: Vec<String> = field.choices.iter().map(format_value).collect();
        format!("one of {}", quote_list(&choices))
    } else {
        let fault = field.parts.find_fault(value)?;
        return Some(InterfaceError::Part {
            what: format!("the input `{name}{}`", fault.path),
            problem: fault.problem.to_string(),
            span: None,
            declared: Some(field.span),
        });
    };
    let what = format!("the input `{name}`");
    let found = format!("{} `{}`", Type::of(value).name(), format_value(value));
    Some(InterfaceError::Type { what, expected, found, span: None::<Span>, declared: Some(field.span) })
}
