//! Contract cases of the condition and template languages, restricted to syntax: a case that is a syntax error must
//! fail here, every other case must parse. The evaluator's tests cover the meaning of the trees.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;

use rye_grammar::{SourceId, condition, data, template};
use serde_json::Value;

/// Patterns that the regex crate rejects. The error of a case with one of these patterns is not a syntax error.
const NOT_SYNTAX: [&str; 5] = ["(unclosed", "*a", "(?<!x)y", "[z-a]", "(a)\\\\1"];

fn cases(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../snapshots/contract").join(format!("{name}.jsonl"));
    let text = std::fs::read_to_string(&path).unwrap();
    let cases: Vec<Value> =
        text.lines().filter(|l| !l.trim().is_empty()).map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(cases.len() > 100, "{}", path.display());
    cases
}

/// Returns whether a case expects an error; `None` if both outcomes are allowed.
fn wants_error(case: &Value) -> Option<bool> {
    if case["want"].get("one_of").is_some() { None } else { Some(case["want"].get("error").is_some()) }
}

fn node(value: &Value) -> data::Node {
    rye_grammar::yaml::parse(SourceId(0), &value.to_string()).tree
}

fn read_condition(condition: &Value) -> Result<(), String> {
    let parsed = condition::from_data(&node(condition));
    parsed.errors.first().map_or(Ok(()), |e| Err(e.to_string()))
}

#[test]
fn conditions_in_both_forms() {
    for name in ["condition", "oneline"] {
        for case in cases(name) {
            let condition = &case["in"]["condition"];
            let text = condition.to_string();
            let meaning = NOT_SYNTAX.iter().any(|pattern| text.contains(pattern));
            let want = wants_error(&case).map(|error| error && !meaning);
            let got = read_condition(condition);
            assert!(want.is_none_or(|want| want == got.is_err()), "{}: {text}: {got:?}", case["id"]);
        }
    }
}

fn read_template(value: &Value) -> bool {
    match value {
        Value::String(text) => template::parse(SourceId(0), text, 0).is_ok(),
        Value::Array(items) => items.iter().all(read_template),
        Value::Object(map) => map.values().all(read_template),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

#[test]
fn templates_follow_the_contract() {
    for case in cases("template") {
        let got = read_template(&case["in"]["template"]);
        assert!(wants_error(&case).is_none_or(|want| want != got), "{}: {}", case["id"], case["in"]["template"]);
    }
}

/// An error of these cases is always a missing input, which only filling detects.
#[test]
fn texts_with_inputs_follow_the_contract() {
    for case in cases("inputs_text") {
        let text = case["in"]["inputs_text"].as_str().unwrap();
        let got = template::parse_inputs(SourceId(0), text, 0);
        assert!(got.is_ok(), "{}: {text}: {got:?}", case["id"]);
    }
}
