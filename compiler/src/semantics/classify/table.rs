//! The classification table: the first rule whose condition holds classifies the failure.

use std::sync::LazyLock;

use rye_grammar::condition::from_data;
use rye_grammar::{SourceId, Span};
use serde_json::{Map, Value, json};

use super::{Backoff, Category, Classification, Failure, fact_type};
use crate::semantics::condition::{Condition, PatternBudget, Verdict};
use crate::semantics::decimal::{ExtraDigits, parse_scaled};
use crate::semantics::value::{Num, to_node};

/// The rules that classify a failed model call, with compiled conditions. The first rule whose condition is true
/// decides.
#[derive(Debug, Clone)]
pub struct ClassifyTable {
    rules: Vec<ClassifyRule>,
    fallback: FailureKind,
}

#[derive(Debug, Clone)]
struct ClassifyRule {
    condition: Condition,
    kind: FailureKind,
}

#[derive(Debug, Clone)]
struct FailureKind {
    name: String,
    category: Category,
    retryable: bool,
    backoff: Backoff,
}

/// An error in a classification table; `at` is the path of the faulty value, such as `patterns.3.match`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{at}`: {message}")]
pub struct ClassifyTableError {
    pub at: String,
    pub message: String,
}

impl ClassifyTable {
    /// Returns the table of the built-in rules. Rules without their own backoff get the default backoff, not the
    /// `retry` of `resilience.yaml`.
    pub fn built_in() -> &'static Self {
        static TABLE: LazyLock<ClassifyTable> = LazyLock::new(|| {
            // A test compiles the same content, so the fallback is never used.
            let table = ClassifyTable::from_value(&built_in(), Backoff::default());
            table.unwrap_or_else(|_| ClassifyTable { rules: Vec::new(), fallback: unclassified(Backoff::default()) })
        });
        &TABLE
    }

    /// Reads the content of `error_classification.yaml`. `backoff`, the section `retry` of `resilience.yaml`, applies
    /// to each rule that declares no backoff.
    ///
    /// # Errors
    /// The table has an unknown key or category, an invalid condition, or a number out of range.
    pub fn from_value(value: &Value, backoff: Backoff) -> Result<Self, ClassifyTableError> {
        let map = expect_object(value, "")?;
        check_keys(map, "", &["patterns", "default"])?;
        let mut rules = Vec::new();
        let mut budget = PatternBudget::default();
        if let Some(patterns) = map.get("patterns") {
            let patterns = patterns.as_array().ok_or_else(|| table_error("patterns", "has to be a list"))?;
            for (i, pattern) in patterns.iter().enumerate() {
                rules.push(read_rule(pattern, &format!("patterns.{i}"), backoff, &mut budget)?);
            }
        }
        let fallback = match map.get("default") {
            Some(value) => read_kind(expect_object(value, "default")?, "default", backoff)?,
            None => unclassified(backoff),
        };
        Ok(Self { rules, fallback })
    }

    /// Classifies a failure. If no rule matches, returns the default of the classification table.
    pub fn classify(&self, failure: &Failure) -> Classification {
        let facts = failure.to_facts();
        let kind = self
            .rules
            .iter()
            .find(|rule| rule.condition.evaluate(&facts) == Verdict::True)
            .map_or(&self.fallback, |rule| &rule.kind);
        Classification {
            name: kind.name.clone(),
            category: kind.category,
            retryable: kind.retryable,
            backoff: kind.backoff,
        }
    }
}

/// Reads `{base_seconds, max_seconds, max_retries}`; missing keys keep the values of `otherwise`. `at` is the path of
/// the value for error messages.
///
/// # Errors
/// There is an unknown key, or a number that is negative or too large.
pub fn read_backoff(value: &Value, at: &str, otherwise: Backoff) -> Result<Backoff, ClassifyTableError> {
    let map = expect_object(value, at)?;
    check_keys(map, at, &["base_seconds", "max_seconds", "max_retries"])?;
    let mut backoff = otherwise;
    let milliseconds = |value: &Value, key: &str| {
        let digits = if let Value::Number(n) = value { n.to_string() } else { String::new() };
        parse_scaled(&digits, 3, ExtraDigits::Round)
            .ok()
            .and_then(|ms| u64::try_from(ms).ok())
            .ok_or_else(|| table_error(&format!("{at}.{key}"), "has to be a number of seconds"))
    };
    if let Some(value) = map.get("base_seconds") {
        backoff.base_ms = milliseconds(value, "base_seconds")?;
    }
    if let Some(value) = map.get("max_seconds") {
        backoff.max_ms = milliseconds(value, "max_seconds")?;
    }
    if let Some(value) = map.get("max_retries") {
        backoff.max_retries = Num::of_value(value)
            .and_then(Num::to_u64)
            .and_then(|n| u32::try_from(n).ok())
            .ok_or_else(|| table_error(&format!("{at}.max_retries"), "has to be a whole number"))?;
    }
    Ok(backoff)
}

fn read_rule(
    value: &Value,
    at: &str,
    backoff: Backoff,
    patterns: &mut PatternBudget,
) -> Result<ClassifyRule, ClassifyTableError> {
    let map = expect_object(value, at)?;
    check_keys(map, at, &["id", "name", "category", "retryable", "retry", "match"])?;
    let at_match = format!("{at}.match");
    let written = map
        .get("match")
        .filter(|written| !written.is_null())
        .ok_or_else(|| table_error(&at_match, "a rule needs a condition"))?;
    let parsed = from_data(&to_node(written, Span::new(SourceId(0), 0, 0)));
    if let Some(error) = parsed.errors.first() {
        return Err(table_error(&at_match, &error.to_string()));
    }
    let condition = match parsed.tree {
        Some(expr) => Condition::compile_within(&expr, &fact_type, patterns).map_err(|faults| {
            table_error(&at_match, faults.first().map_or("cannot be read", |f| f.message.as_str()))
        })?,
        None => Condition::always(),
    };
    Ok(ClassifyRule { condition, kind: read_kind(map, at, backoff)? })
}

fn read_kind(map: &Map<String, Value>, at: &str, backoff: Backoff) -> Result<FailureKind, ClassifyTableError> {
    let name = map
        .get("name")
        .or_else(|| map.get("id"))
        .and_then(Value::as_str)
        .ok_or_else(|| table_error(&format!("{at}.id"), "a rule needs an id"))?;
    let category = map.get("category").and_then(Value::as_str).and_then(Category::parse).ok_or_else(|| {
        table_error(&format!("{at}.category"), "has to be `rate_limited`, `transient`, `permanent` or `cancelled`")
    })?;
    let retryable = match map.get("retryable") {
        None => category.is_retryable(),
        Some(Value::Bool(retryable)) => *retryable,
        Some(_) => return Err(table_error(&format!("{at}.retryable"), "has to be `true` or `false`")),
    };
    let backoff = match map.get("retry") {
        Some(value) => read_backoff(value, &format!("{at}.retry"), backoff)?,
        None => backoff,
    };
    Ok(FailureKind { name: name.to_owned(), category, retryable, backoff })
}

fn unclassified(backoff: Backoff) -> FailureKind {
    FailureKind { name: "unclassified".into(), category: Category::Permanent, retryable: false, backoff }
}

fn expect_object<'v>(value: &'v Value, at: &str) -> Result<&'v Map<String, Value>, ClassifyTableError> {
    value.as_object().ok_or_else(|| table_error(at, "has to be a mapping"))
}

fn check_keys(map: &Map<String, Value>, at: &str, known: &[&str]) -> Result<(), ClassifyTableError> {
    match map.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => {
            let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
            Err(table_error(&at, &format!("is not one of `{}`", known.join("`, `"))))
        }
        None => Ok(()),
    }
}

fn table_error(at: &str, message: &str) -> ClassifyTableError {
    ClassifyTableError { at: at.to_owned(), message: message.to_owned() }
}

/// The condition for refusals of a prompt that is too long: status, code, type, or the message texts of the providers.
const PROMPT_TOO_LONG: &str = "status == 413 || error.code matches '(?i)context_(length|window)_exceeded|context_length|prompt_too_long|request_too_large' || error.type matches '(?i)context_(length|window)_exceeded|context_length|prompt_too_long|request_too_large|exceed_context_size' || ((status == null || status < 300 || status == 400 || status == 422 || stage == 'stream_error') && error.message matches '(?i)prompt is too long|prompt too long|input is too long|(maximum|max|model.s) context (length|window|size)|exceeds? (the |its )?(available |maximum |model.s )?context (length|window|size|limit)|input token count.{0,40}exceeds|input length and .max_tokens. exceed|exceeds the maximum number of (input )?tokens|too many (input )?tokens in|reduce the length of the (messages|prompt|input)')";

/// Returns the content of the standard library's `error_classification.yaml`.
pub fn built_in() -> Value {
    let code = |pattern: &str| format!("error.code matches '{pattern}' || error.type matches '{pattern}'");
    // An error within a stream has no status of its own, so `error.code` or `error.type` classifies the error.
    let named =
        |pattern: &str| format!("(status == null || status < 300 || stage == 'stream_error') && ({})", code(pattern));
    json!({
        "patterns": [
            {"id": "cancelled", "category": "cancelled",
             "match": code("(?i)^(cancelled|canceled|cancelled_?error)$")},
            {"id": "quota_exceeded", "category": "permanent",
             "match": code("(?i)quota|billing|insufficient_(funds|credit|balance)|credit_balance|payment_required")},
            {"id": "authentication", "category": "permanent",
             "match": code("(?i)authentication|missing_key|invalid_api_key|api_key_invalid|unauthorized|unauthenticated|permission_(denied|error)|forbidden|account_(deactivated|suspended|disabled)")},
            {"id": "prompt_too_long", "category": "permanent", "match": PROMPT_TOO_LONG},
            {"id": "rate_limited", "category": "rate_limited", "match": "status == 429"},
            {"id": "overloaded", "category": "transient", "match": "status == 529"},
            {"id": "request_conflict", "category": "transient", "match": "status in [408, 409, 425]"},
            {"id": "not_supported", "category": "permanent", "match": "status in [501, 505, 511]"},
            {"id": "server_error", "category": "transient", "match": "status >= 500 && status <= 599"},
            {"id": "rate_limited_by_name", "name": "rate_limited", "category": "rate_limited",
             "match": named("(?i)rate_?limit|too_?many_?requests")},
            {"id": "overloaded_by_name", "name": "overloaded", "category": "transient", "match": named("(?i)overloaded")},
            {"id": "timeout_by_name", "name": "timeout", "category": "transient", "match": named("(?i)time_?d?_?out")},
            {"id": "connection_by_name", "name": "connection_lost", "category": "transient",
             "match": named("(?i)connect|network|socket|econn|epipe|enetunreach|ehostunreach|eai_again|incomplete_?read|chunked_?encoding|remote_?protocol")},
            {"id": "server_error_by_name", "name": "server_error", "category": "transient",
             "match": named("(?i)^(api_error|server_?error|internal(_?server)?_?error|(service_?)?unavailable(_?error)?|bad_?gateway)$")},
            {"id": "truncated", "category": "transient", "match": "stage == 'truncated'"},
            {"id": "timeout", "category": "transient", "match": "stage == 'timeout'"},
            {"id": "connection_lost", "category": "transient", "match": "stage == 'connect'"},
            {"id": "authentication_status", "name": "authentication", "category": "permanent",
             "match": "status in [401, 403]"},
            {"id": "payment", "name": "quota_exceeded", "category": "permanent", "match": "status == 402"},
            {"id": "invalid_request", "category": "permanent", "match": "status >= 400 && status <= 499"},
            {"id": "invalid_request_by_name", "name": "invalid_request", "category": "permanent",
             "match": named("(?i)^(invalid_request(_error)?|invalid_argument|not_found(_error)?|request_too_large)$")},
            {"id": "stream_error", "category": "transient", "match": "stage == 'stream_error'"},
            {"id": "damaged_stream", "category": "transient", "match": "stage == 'protocol'"},
        ],
        "default": {"id": "unclassified", "category": "permanent"},
    })
}
