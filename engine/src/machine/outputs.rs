//! Structured returns: validation of the model's outputs against the outputs that the directive declares (`language.md`
//! 12).

use indexmap::IndexMap;
use rye_compiler::plan::{FieldType, InterfaceField};
use serde_json::{Map, Value};

use crate::event::ResultKind;

/// Validates the outputs of a `rye_directive_return` (`input`) against the declared outputs. Returns the kind of the
/// result and its text for the model. Null counts as missing, but `false`, `0` and `""` are values. A return that
/// states an error is accepted without the outputs that are missing or have wrong values.
pub(super) fn check_return(declared: &IndexMap<String, InterfaceField>, input: &Value) -> (ResultKind, String) {
    let empty = Map::new();
    let given = input.as_object().unwrap_or(&empty);
    let own_status = declared.contains_key("status");
    let detail = (!declared.contains_key("error_detail")).then(|| given.get("error_detail")).flatten();
    let detail = detail.and_then(Value::as_str).filter(|d| !d.is_empty());
    let says_error = !own_status && given.get("status").and_then(Value::as_str) == Some("error");
    let mut missing = Vec::new();
    let mut wrong = Vec::new();
    let mut invalid = Vec::new();
    for (name, field) in declared {
        match given.get(name).filter(|v| !v.is_null()) {
            None => missing.extend(field.required.then(|| name.clone())),
            Some(value) => {
                if let Some(problem) = find_problem(name, field, value) {
                    wrong.push(problem);
                    invalid.push(name.clone());
                }
            }
        }
    }
    let mut outputs = accepted(declared, given);
    outputs.retain(|name, _| !invalid.contains(name));
    if says_error || (own_status && detail.is_some()) {
        let error = Some(detail.unwrap_or("the directive returned an error").to_owned());
        return (ResultKind::Returned { outputs, error }, "returned".into());
    }
    let reserved = |key: &str| key == "status" || key == "error_detail";
    for key in given.keys().filter(|key| !declared.contains_key(*key) && !reserved(key)) {
        wrong.push(format!("`{key}` is not an output of this directive"));
        invalid.push(key.clone());
    }
    if missing.is_empty() && wrong.is_empty() {
        return (ResultKind::Returned { outputs, error: None }, "returned".into());
    }
    let mut text = String::from("not returned:");
    if !missing.is_empty() {
        let names: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
        text.extend([" missing ", &names.join(", "), ";"]);
    }
    for problem in &wrong {
        text.extend([" ", problem, ";"]);
    }
    text.push_str(" call rye_directive_return again with every required output");
    (ResultKind::Incomplete { missing, invalid, outputs }, text)
}

/// Returns a description of the first part of a value that the output does not allow; `None` if the output allows the
/// value.
fn find_problem(name: &str, field: &InterfaceField, value: &Value) -> Option<String> {
    if !fits(field.kind, value) {
        return Some(format!("`{name}` must be {}", described(field.kind)));
    }
    if !field.choices.is_empty() && !field.choices.contains(value) {
        let choices: Vec<String> = field.choices.iter().map(Value::to_string).collect();
        return Some(format!("`{name}` must be one of {}", choices.join(", ")));
    }
    field.parts.find_fault(value).map(|fault| format!("`{name}{}` {}", fault.path, fault.problem))
}

/// Returns the names of the required outputs that are not in `given`, for a thread that ends without a return.
pub(super) fn missing_names(
    declared: &IndexMap<String, InterfaceField>,
    given: Option<&Map<String, Value>>,
) -> Vec<String> {
    let is_missing = |name: &String| !given.is_some_and(|given| given.contains_key(name));
    let required = declared.iter().filter(|(_, field)| field.required);
    required.map(|(name, _)| name.clone()).filter(is_missing).collect()
}

/// Returns a reminder for the model that lists the missing required outputs.
pub(super) fn reminder(missing: &[String]) -> String {
    let names: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
    format!(
        "You have answered without the required outputs: {}. Call rye_directive_return with every required output.",
        names.join(", ")
    )
}

/// Returns the given values of the declared outputs, in declaration order. An output that is null counts as missing.
fn accepted(declared: &IndexMap<String, InterfaceField>, given: &Map<String, Value>) -> Map<String, Value> {
    declared
        .keys()
        .filter_map(|name| given.get(name).filter(|v| !v.is_null()).map(|v| (name.clone(), v.clone())))
        .collect()
}

fn fits(kind: FieldType, value: &Value) -> bool {
    match kind {
        FieldType::String => value.is_string(),
        FieldType::Integer => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|f| f.fract() == 0.0),
        FieldType::Number => value.is_number(),
        FieldType::Boolean => value.is_boolean(),
        FieldType::Array => value.is_array(),
        FieldType::Object => value.is_object(),
    }
}

fn described(kind: FieldType) -> &'static str {
    match kind {
        FieldType::String => "a string",
        FieldType::Integer => "an integer",
        FieldType::Number => "a number",
        FieldType::Boolean => "a boolean",
        FieldType::Array => "a list",
        FieldType::Object => "an object",
    }
}
