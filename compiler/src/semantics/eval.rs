//! `rye eval`: answers one JSON request with one line of JSON (`language.md` 13). Pure, and never fails: an invalid
//! request is answered with an error.

mod id;
mod language;
mod permission;
mod spending;

use serde_json::{Map, Value, json};

use super::value::parse_json;

/// The reason why a request to the evaluator fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EvalError {
    pub code: &'static str,
    pub message: String,
}

impl EvalError {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Creates the error for a request of the wrong shape.
    fn request(message: impl Into<String>) -> Self {
        Self::new("request", message)
    }

    fn to_object(&self) -> Value {
        json!({ "code": self.code, "message": self.message })
    }

    fn to_value(&self) -> Value {
        json!({ "error": self.to_object() })
    }
}

type EvalResult = Result<Value, EvalError>;

/// Answers one request line. `id` is echoed, even for a line that is otherwise invalid. A leading byte order mark is
/// ignored. The answer holds no line break.
pub fn answer(line: &str) -> String {
    let line = line.strip_prefix('\u{feff}').unwrap_or(line);
    let (id, answer) = match parse_json(line) {
        Ok(Value::Object(mut request)) => {
            (request.shift_remove("id").map(|id| id.to_string()), answer_request(&request))
        }
        Ok(_) => (None, Err(EvalError::request("a request must be a JSON object"))),
        Err(error) => (id::find_id(line).map(str::to_owned), Err(EvalError::new("json", error.to_string()))),
    };
    let answer = match answer {
        Ok(value) => format!("\"ok\":{value}"),
        Err(error) => format!("\"error\":{}", error.to_object()),
    };
    match id {
        Some(id) => format!("{{\"id\":{id},{answer}}}"),
        None => format!("{{{answer}}}"),
    }
}

/// The kinds of requests of `rye eval`: the key that contains the request, and the other keys that are allowed beside
/// it.
const REQUEST_KINDS: [(&str, &[&str]); 11] = [
    ("condition", &["facts", "unknown"]),
    ("template", &["facts", "unknown"]),
    ("inputs_text", &["inputs"]),
    ("capability", &[]),
    ("covers", &[]),
    ("risk", &["table"]),
    ("limits", &[]),
    ("check_limits", &[]),
    ("ledger", &[]),
    ("classify", &[]),
    ("glob", &[]),
];

/// Answers a parsed request. The answer does not contain the `id` of the request.
///
/// # Errors
/// The request is invalid; `code` names the part of the language that rejects the request.
pub(crate) fn answer_request(request: &Map<String, Value>) -> EvalResult {
    let mut requested = REQUEST_KINDS.iter().filter(|(kind, _)| request.contains_key(*kind));
    let (Some((kind, beside)), None) = (requested.next(), requested.next()) else {
        let names: Vec<&str> = REQUEST_KINDS.iter().map(|(kind, _)| *kind).collect();
        return Err(EvalError::request(format!("a request must have exactly one of `{}`", names.join("`, `"))));
    };
    if let Some(key) = request.keys().find(|key| key != kind && !beside.contains(&key.as_str())) {
        let shown: String = key.chars().take(40).collect();
        return Err(EvalError::request(format!("`{shown}` is not a key of a request with `{kind}`")));
    }
    let body = request.get(*kind).unwrap_or(&Value::Null);
    match *kind {
        "condition" => language::answer_condition(body, request),
        "template" => language::answer_template(body, request),
        "inputs_text" => language::inputs_text(body, request),
        "capability" => permission::answer_capability(body),
        "covers" => permission::covers(body),
        "risk" => permission::answer_risk(body, request.get("table")),
        "limits" => spending::answer_limits(body),
        "check_limits" => spending::check_limits(body),
        "ledger" => spending::answer_ledger(body),
        "classify" => language::classify(body),
        _ => permission::answer_glob(body),
    }
}

fn expect_object<'v>(value: &'v Value, what: &str) -> Result<&'v Map<String, Value>, EvalError> {
    value.as_object().ok_or_else(|| EvalError::request(format!("`{what}` has to be an object")))
}

fn expect_text<'v>(value: Option<&'v Value>, what: &str) -> Result<&'v str, EvalError> {
    value.and_then(Value::as_str).ok_or_else(|| EvalError::request(format!("`{what}` has to be a string")))
}

fn expect_texts<'v>(value: Option<&'v Value>, what: &str) -> Result<Vec<&'v str>, EvalError> {
    value
        .and_then(Value::as_array)
        .and_then(|items| items.iter().map(Value::as_str).collect())
        .ok_or_else(|| EvalError::request(format!("`{what}` has to be a list of strings")))
}

/// Rejects unknown keys, because a misspelled key would silently change the meaning of a request.
fn check_keys(map: &Map<String, Value>, what: &str, known: &[&str]) -> Result<(), EvalError> {
    match map.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => {
            let shown: String = key.chars().take(40).collect();
            Err(EvalError::request(format!("`{shown}` is not a key of `{what}`")))
        }
        None => Ok(()),
    }
}
