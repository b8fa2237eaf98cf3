//! Checks literal values of calls against the keywords of a parameter's JSON Schema that bound numbers, texts and
//! lists. The engine validates whole calls, and also refuses every value that violates a bound here.

use regex::RegexBuilder;
use serde_json::Value;

use super::value::Num;

/// Maximum size of a compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Describes the values that a keyword of a schema allows, such as `at least 1`, if the keyword excludes `value`.
/// `None` if no known keyword excludes it.
pub(crate) fn violated_bound(schema: &Value, value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => {
            let bound = |keyword: &str| schema.get(keyword).and_then(Num::of_value);
            let compare = |keyword| bound(keyword).map(|bound| Num::of(number).compare(bound));
            let written = |keyword: &str| schema.get(keyword).map(ToString::to_string).unwrap_or_default();
            [
                ("minimum", "at least", compare("minimum").is_some_and(std::cmp::Ordering::is_lt)),
                ("maximum", "at most", compare("maximum").is_some_and(std::cmp::Ordering::is_gt)),
                ("exclusiveMinimum", "above", compare("exclusiveMinimum").is_some_and(std::cmp::Ordering::is_le)),
                ("exclusiveMaximum", "below", compare("exclusiveMaximum").is_some_and(std::cmp::Ordering::is_ge)),
            ]
            .into_iter()
            .find(|(.., is_violated)| *is_violated)
            .map(|(keyword, word, _)| format!("{word} {}", written(keyword)))
        }
        Value::String(text) => violated_count(schema, ("minLength", "maxLength", "characters"), text.chars().count())
            .or_else(|| {
                let pattern = schema.get("pattern")?.as_str()?;
                let compiled = RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).build().ok()?;
                (!compiled.is_match(text)).then(|| format!("a text that matches `{pattern}`"))
            }),
        Value::Array(items) => violated_count(schema, ("minItems", "maxItems", "items"), items.len()),
        Value::Null | Value::Bool(_) | Value::Object(_) => None,
    }
}

fn violated_count(schema: &Value, (least, most, what): (&str, &str, &str), count: usize) -> Option<String> {
    let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_u64);
    let count = u64::try_from(count).ok()?;
    match (bound(least), bound(most)) {
        (Some(least), _) if count < least => Some(format!("at least {least} {what} long")),
        (_, Some(most)) if count > most => Some(format!("at most {most} {what} long")),
        (Some(_) | None, Some(_) | None) => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bounds_agree_with_the_validator_of_calls() {
        let schemas = [
            json!({"minimum": 1}),
            json!({"maximum": 1.5}),
            json!({"exclusiveMinimum": 2}),
            json!({"exclusiveMaximum": 2}),
            json!({"minLength": 2, "maxLength": 3}),
            json!({"pattern": "^[a-z-]+$"}),
            json!({"pattern": "b"}),
            json!({"minItems": 1, "maxItems": 2}),
        ];
        let values = [
            json!(0),
            json!(1),
            json!(1.5),
            json!(2),
            json!(-5),
            json!(""),
            json!("é"),
            json!("ab"),
            json!("BIG"),
            json!("four"),
            json!([]),
            json!([1]),
            json!([1, 2, 3]),
            json!(null),
            json!(true),
        ];
        for schema in &schemas {
            let validator = jsonschema::options().build(schema).unwrap();
            for value in &values {
                assert_eq!(violated_bound(schema, value).is_none(), validator.is_valid(value), "{schema} {value}");
            }
        }
    }

    #[test]
    fn pattern_that_cannot_be_compiled_rules_nothing_out() {
        assert_eq!(violated_bound(&json!({"pattern": "^(?!a)"}), &json!("a")), None);
        assert_eq!(violated_bound(&json!({"minimum": "1"}), &json!(0)), None);
    }
}
