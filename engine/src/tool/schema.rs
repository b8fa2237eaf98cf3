//! Validation of parameters against a tool's JSON Schema, compiled on first use, with messages that a model can act on.

mod work;

use std::sync::OnceLock;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use work::{Unbounded, bound_checks};

/// Maximum number of errors in a message.
const MAX_REPORTED_ERRORS: usize = 5;
/// Maximum size of a compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;
/// Maximum number of steps of a pattern with lookarounds. A value that needs more does not match.
const MAX_BACKTRACKS: usize = 100_000;

/// The JSON Schema of a tool's parameters. References to other documents are not followed.
pub struct ToolSchema {
    source: Value,
    compiled: OnceLock<Result<Validator, String>>,
}

/// The reason why parameters were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The tool's schema is invalid, so that no parameters are valid.
    #[error("the tool's schema cannot be used: {0}")]
    Broken(String),
    #[error("{0}")]
    Mismatch(String),
}

impl ToolSchema {
    pub fn new(source: Value) -> Self {
        Self { source, compiled: OnceLock::new() }
    }

    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Compiles the schema on first use, or returns the reason why it is invalid.
    pub fn compile(&self) -> Result<&Validator, SchemaError> {
        let compiled = self.compiled.get_or_init(|| {
            // Patterns run in linear time where possible, because a schema may come from an untrusted source.
            let linear = PatternOptions::regex().size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES);
            let options = jsonschema::options().offline().with_pattern_options(linear);
            options.build(&self.source).or_else(|error| {
                if !has_lookaround(&self.source) {
                    return Err(truncate_value(&error.to_string()));
                }
                // Lookarounds need backtracking, whose steps are bounded.
                let bounded = PatternOptions::fancy_regex()
                    .backtrack_limit(MAX_BACKTRACKS)
                    .size_limit(MAX_PATTERN_BYTES)
                    .dfa_size_limit(MAX_PATTERN_BYTES);
                let options = jsonschema::options().offline().with_pattern_options(bounded);
                options.build(&self.source).map_err(|error| truncate_value(&error.to_string()))
            })
        });
        compiled.as_ref().map_err(|e| SchemaError::Broken(e.clone()))
    }

    /// Checks the parameters of a call against the schema. The error lists the first violations.
    pub fn check(&self, parameters: &Value) -> Result<(), SchemaError> {
        let validator = self.compile()?;
        if let Err(Unbounded) = bound_checks(&self.source, parameters) {
            let reason =
                "its references multiply or repeat, so that the check of these parameters would not end in time";
            return Err(SchemaError::Broken(reason.to_owned()));
        }
        let mut named = Vec::new();
        let mut more = false;
        for error in validator.iter_errors(parameters) {
            if named.len() == MAX_REPORTED_ERRORS {
                more = true;
                break;
            }
            named.push(self.describe_error(&error));
        }
        if named.is_empty() {
            return Ok(());
        }
        let mut text = named.join("; ");
        if more {
            text.push_str("; and more");
        }
        Err(SchemaError::Mismatch(text))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all other kinds keep the message of the library")]
    fn describe_error(&self, error: &ValidationError<'_>) -> String {
        let at = pointer_to_path(error.instance_path().as_str());
        let reason = match error.kind() {
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                return if at.is_empty() {
                    format!("`{name}` is missing")
                } else {
                    format!("`{at}.{name}` is missing")
                };
            }
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let names: Vec<String> =
                    unexpected.iter().take(MAX_REPORTED_ERRORS).map(|n| format!("`{}`", truncate_value(n))).collect();
                let known = if at.is_empty() { self.known() } else { String::new() };
                return format!("unknown parameter {}{known}", names.join(", "));
            }
            ValidationErrorKind::Type { kind } => match kind {
                TypeKind::Single(t) => format!("must be {t}, not {}", describe(error.instance())),
                TypeKind::Multiple(_) => error.masked().to_string(),
            },
            ValidationErrorKind::Enum { options } => format!("must be one of {}", truncate_value(&options.to_string())),
            ValidationErrorKind::Minimum { limit } => format!("must be at least {limit}"),
            ValidationErrorKind::Maximum { limit } => format!("must be at most {limit}"),
            ValidationErrorKind::MinLength { limit: 1 } => "must not be empty".to_owned(),
            _ => error.masked().to_string(),
        };
        if at.is_empty() { truncate_value(&reason) } else { format!("`{at}` {}", truncate_value(&reason)) }
    }

    fn known(&self) -> String {
        let Some(properties) = self.source.get("properties").and_then(Value::as_object) else { return String::new() };
        if properties.is_empty() {
            return "; this tool takes none".to_owned();
        }
        let names: Vec<&str> = properties.keys().map(String::as_str).take(20).collect();
        format!("; known are {}", names.join(", "))
    }
}

/// Returns true if a string or key of the schema seems to contain a regular expression with a lookaround or a
/// backreference.
fn has_lookaround(schema: &Value) -> bool {
    let found = |text: &str| {
        ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|group| text.contains(group))
            || text.as_bytes().windows(2).any(|pair| matches!(pair, [b'\\', b'k' | b'1'..=b'9']))
    };
    match schema {
        Value::String(text) => found(text),
        Value::Array(list) => list.iter().any(has_lookaround),
        Value::Object(map) => map.iter().any(|(key, value)| found(key) || has_lookaround(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Converts a JSON pointer to a path: `/a/0/b` → `a.0.b`.
fn pointer_to_path(pointer: &str) -> String {
    truncate_value(&pointer.trim_start_matches('/').replace('/', ".").replace("~1", "/").replace("~0", "~"))
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => n.to_string(),
        Value::String(s) => format!("the text `{}`", truncate_value(s)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

fn truncate_value(text: &str) -> String {
    const MOST: usize = 120;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST).chain(['…']).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    fn refuse(schema: Value, parameters: &Value) -> String {
        ToolSchema::new(schema).check(parameters).unwrap_err().to_string()
    }

    fn read() -> Value {
        json!({"type":"object","additionalProperties":false,"required":["path"],"properties":{
            "path":{"type":"string","minLength":1},"limit":{"type":"integer","minimum":1},"mode":{"enum":["a","b"]}}})
    }

    #[test]
    fn messages_name_the_parameter_and_the_fix() {
        assert_eq!(refuse(read(), &json!({})), "`path` is missing");
        assert_eq!(refuse(read(), &json!({"path": ""})), "`path` must not be empty");
        assert_eq!(refuse(read(), &json!({"path": 3})), "`path` must be string, not 3");
        assert_eq!(refuse(read(), &json!({"path": "x", "limit": 0})), "`limit` must be at least 1");
        assert_eq!(refuse(read(), &json!({"path": "x", "limit": "5"})), "`limit` must be integer, not the text `5`");
        assert_eq!(refuse(read(), &json!({"path": "x", "mode": "c"})), "`mode` must be one of [\"a\",\"b\"]");
        assert_eq!(
            refuse(read(), &json!({"path": "x", "file": 1})),
            "unknown parameter `file`; known are path, limit, mode"
        );
        assert!(ToolSchema::new(read()).check(&json!({"path": "x"})).is_ok());
    }

    #[test]
    fn a_huge_value_gives_a_short_message() {
        assert!(refuse(read(), &json!({"path": "x", "limit": "9".repeat(100_000)})).len() < 300);
        let many: serde_json::Map<String, Value> = (0..10_000).map(|n| (format!("k{n}"), json!(1))).collect();
        assert!(refuse(read(), &Value::Object(many)).len() < 600);
    }

    #[test]
    fn invalid_schema_is_the_tools_error() {
        let broken = ToolSchema::new(json!({"type": "objekt"}));
        assert!(matches!(broken.check(&json!({})), Err(SchemaError::Broken(_))));
        let outside = ToolSchema::new(json!({"$ref": "https://example.com/schema.json"}));
        assert!(matches!(outside.check(&json!({})), Err(SchemaError::Broken(_))));
        let file = ToolSchema::new(json!({"$ref": "file:///etc/passwd"}));
        assert!(matches!(file.check(&json!({})), Err(SchemaError::Broken(_))));
    }

    #[test]
    fn patterns_with_lookaround_are_bounded() {
        let schema = json!({"properties": {"a": {"pattern": "^(?!\\.)[a-z.]+$"}}});
        assert!(ToolSchema::new(schema.clone()).check(&json!({"a": "a.b"})).is_ok());
        assert!(refuse(schema, &json!({"a": ".b"})).starts_with("`a` "));
        let slow = json!({"properties": {"a": {"pattern": "^(?=(a+)+$)b"}}});
        assert!(ToolSchema::new(slow).check(&json!({"a": format!("{}!", "a".repeat(5_000))})).is_err());
    }

    #[test]
    fn regex_patterns_are_linear() {
        let schema = json!({"properties": {"a": {"pattern": "^(a+)+$"}}});
        let text = format!("{}!", "a".repeat(50_000));
        assert!(refuse(schema, &json!({ "a": text })).starts_with("`a` "));
        let bomb = ToolSchema::new(json!({"properties": {"a": {"pattern": "((a{100}){100}){100}"}}}));
        assert!(matches!(bomb.check(&json!({"a": "x"})), Err(SchemaError::Broken(_))));
    }
}
