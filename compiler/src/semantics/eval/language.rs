//! Requests of `rye eval` about conditions, templates and failures.

use rye_grammar::condition::from_data;
use rye_grammar::template::{InputsPart, parse_inputs};
use rye_grammar::{SourceId, Span, SyntaxError};
use serde_json::{Map, Value, json};

use super::{EvalError, EvalResult, check_keys, expect_object, expect_text, expect_texts};
use crate::semantics::classify::{ClassifyTable, Failure};
use crate::semantics::condition::{Condition, Verdict};
use crate::semantics::facts::Facts;
use crate::semantics::template::{Rendered, TemplateTree, render_inputs};
use crate::semantics::value::{Num, inline_text, to_node};

/// The span of every part of a request of `rye eval`: a request has no source file.
const EMPTY_SPAN: Span = Span { source: SourceId(0), start: 0, end: 0 };

/// Maximum size in bytes of a text after its placeholders are filled. The same maximum applies to the action of a hook
/// in a run.
const MAX_TEXT_BYTES: usize = 16 << 20;

fn too_long() -> EvalError {
    EvalError::new("template", format!("the filled text would have more than {} MiB", MAX_TEXT_BYTES >> 20))
}

fn syntax_answer(error: &SyntaxError) -> EvalError {
    EvalError::new(error.code(), error.to_string())
}

fn facts(request: &Map<String, Value>) -> Result<Facts, EvalError> {
    let mut facts = match request.get("facts") {
        Some(known) => Facts::from_map(expect_object(known, "facts")?.clone()),
        None => Facts::new(),
    };
    if let Some(unknown) = request.get("unknown") {
        for path in expect_texts(Some(unknown), "unknown")? {
            rye_grammar::condition::parse_path(SourceId(0), path, 0).map_err(|error| syntax_answer(&error))?;
            facts.declare_unknown(path);
        }
    }
    Ok(facts)
}

pub(super) fn answer_condition(body: &Value, request: &Map<String, Value>) -> EvalResult {
    let parsed = from_data(&to_node(body, EMPTY_SPAN));
    if let Some(error) = parsed.errors.first() {
        return Err(syntax_answer(error));
    }
    let facts = facts(request)?;
    let condition = match parsed.tree {
        Some(expr) => Condition::compile(&expr).map_err(|faults| {
            let message = faults.first().map_or_else(String::new, |fault| fault.message.clone());
            EvalError::new("condition", message)
        })?,
        None => Condition::always(),
    };
    Ok(match condition.evaluate(&facts) {
        Verdict::True => Value::Bool(true),
        Verdict::False => Value::Bool(false),
        Verdict::Unknown(paths) => json!({ "unknown": paths }),
    })
}

pub(super) fn answer_template(body: &Value, request: &Map<String, Value>) -> EvalResult {
    let parsed = TemplateTree::read(&to_node(body, EMPTY_SPAN));
    if let Some(error) = parsed.errors.first() {
        return Err(syntax_answer(error));
    }
    let facts = facts(request)?;
    if parsed.tree.exceeds(&facts, MAX_TEXT_BYTES) {
        return Err(too_long());
    }
    Ok(match parsed.tree.render(&facts) {
        Rendered::Value(value) => value,
        Rendered::Pending(paths) => json!({ "unknown": paths }),
    })
}

pub(super) fn inputs_text(body: &Value, request: &Map<String, Value>) -> EvalResult {
    let source = expect_text(Some(body), "inputs_text")?;
    let parsed = parse_inputs(SourceId(0), source, 0).map_err(|error| syntax_answer(&error))?;
    let none = Map::new();
    let inputs = match request.get("inputs") {
        Some(inputs) => expect_object(inputs, "inputs")?,
        None => &none,
    };
    let sizes = parsed.parts.iter().map(|part| match part {
        InputsPart::Text(text) => text.len(),
        InputsPart::Input(placeholder) => inputs.get(&placeholder.name).map_or(0, |value| inline_text(value).len()),
    });
    if sizes.fold(0, usize::saturating_add) > MAX_TEXT_BYTES {
        return Err(too_long());
    }
    render_inputs(&parsed, inputs)
        .map(Value::String)
        .map_err(|missing| EvalError::new("interface::missing-input", missing.to_string()))
}

pub(super) fn classify(body: &Value) -> EvalResult {
    let body = expect_object(body, "classify")?;
    check_keys(body, "classify", &["status", "headers", "error", "attempt", "stage", "now"])?;
    let whole = |key: &str| match body.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => Num::of_value(value)
            .and_then(Num::to_u64)
            .map(Some)
            .ok_or_else(|| EvalError::request(format!("`{key}` has to be a whole number"))),
    };
    let word = |map: &Map<String, Value>, key: &str| match map.get(key) {
        None | Some(Value::Null) => None,
        // Some providers send codes as numbers.
        Some(value) => Some(inline_text(value).into_owned()),
    };
    let none = Map::new();
    let part = |key: &str| match body.get(key) {
        None | Some(Value::Null) => Ok(&none),
        Some(value) => expect_object(value, key),
    };
    let (error, headers) = (part("error")?, part("headers")?);
    let status = whole("status")?
        .map(|status| u16::try_from(status).map_err(|_| EvalError::request("`status` has to be an HTTP status")))
        .transpose()?;
    let failure = Failure {
        stage: word(body, "stage"),
        status,
        headers: headers.iter().map(|(name, value)| (name.clone(), inline_text(value).into_owned())).collect(),
        error_type: word(error, "type"),
        code: word(error, "code"),
        message: word(error, "message").unwrap_or_default(),
        attempt: u32::try_from(whole("attempt")?.unwrap_or(1)).unwrap_or(u32::MAX),
    };
    let now_ms = whole("now")?.and_then(|seconds| i64::try_from(seconds).ok()?.checked_mul(1000));
    let class = ClassifyTable::built_in().classify(&failure);
    let delay_ms = class.delay_ms(&failure, now_ms);
    Ok(json!({
        "name": class.name,
        "category": class.category.as_str(),
        "retryable": class.retryable,
        "delay_ms": delay_ms,
    }))
}
