//! Fuzz targets for the small languages: conditions, templates, patterns, ids, paths, and the input of `rye eval`.

use rye_compiler::semantics::condition::{Condition, Verdict};
use rye_compiler::semantics::eval;
use rye_compiler::semantics::facts::Facts;
use rye_compiler::semantics::glob::{Coverage, Glob, covers};
use rye_engine::tool::primary::{Query, SearchableTexts};
use rye_grammar::condition::{Expr, from_data, parse_inline, parse_path};
use rye_grammar::source::decode;
use rye_grammar::{
    ItemId, SourceId, SyntaxError, capability as patterns, signature as signatures, template as templates, yaml,
};
use serde_json::{Value, json};

const SOURCE: SourceId = SourceId(0);

/// Decodes bytes as the text of a file; `None` if they are not UTF-8, because such a text never reaches a parser.
pub fn text(bytes: &[u8]) -> Option<&str> {
    decode(bytes).ok()
}

/// Asserts that syntax errors can be shown: spans lie within the text, messages are well-formed.
pub fn assert_errors_displayable(text: &str, errors: &[SyntaxError]) {
    for error in errors {
        for (span, label) in error.labels() {
            assert!(text.get(span.range()).is_some(), "{error:?} lies outside");
            assert!(!label.is_empty(), "{error:?} has an empty label");
        }
        let message = error.to_string();
        assert!(!message.is_empty() && !message.ends_with('.'), "{message:?}");
        assert!(!message.chars().any(char::is_control), "{message:?}");
    }
}

pub fn capability(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let found = [patterns::parse(SOURCE, text, 0).err(), patterns::parse_item(SOURCE, text, 0).err()];
    assert_errors_displayable(text, &found.into_iter().flatten().collect::<Vec<_>>());
    let normal = patterns::normalize(text);
    assert_eq!(patterns::normalize(&normal.0), normal, "reading a pattern again changes it");
}

/// Parses a query of `rye_fetch` and evaluates it on an empty item.
pub fn query(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match Query::parse(text) {
        Ok(query) => {
            let none = query.score(&SearchableTexts::default());
            assert!(none.is_none_or(|points| points == 0), "{none:?} for an item without a word");
        }
        Err(message) => assert!(!message.is_empty() && !message.ends_with('.'), "{message:?}"),
    }
}

pub fn condition_line(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match parse_inline(SOURCE, text, 0) {
        Ok(expr) => condition(&expr),
        Err(error) => assert_errors_displayable(text, &[error]),
    }
}

pub fn condition_mapping(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let data = yaml::parse(SOURCE, text);
    assert_errors_displayable(text, &data.errors);
    let parsed = from_data(&data.tree);
    assert_errors_displayable(text, &parsed.errors);
    if let Some(expr) = parsed.tree.filter(|_| parsed.errors.is_empty()) {
        condition(&expr);
    }
}

/// Checks that a compiled condition is evaluated without panics, and that a verdict without facts also holds with
/// facts.
fn condition(expr: &Expr) {
    let Ok(condition) = Condition::compile(expr) else { return };
    let mut some = Facts::new();
    some.set("a", json!(1));
    some.set("inputs", json!({"topic": "tea", "count": 3, "list": [1, "two", null]}));
    some.set("directive", Value::from("main"));
    let mut none = Facts::new();
    for path in ["a", "inputs", "directive"] {
        none.declare_unknown(path);
    }
    let (before, after) = (condition.evaluate(&none), condition.evaluate(&some));
    match before {
        Verdict::True | Verdict::False => assert_eq!(before, after, "a verdict changed when more was known"),
        Verdict::Unknown(paths) => assert!(!paths.is_empty(), "unknown for no reason"),
    }
}

pub fn eval(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    for line in text.lines().take(50) {
        let answer = eval::answer(line);
        let value: Value = serde_json::from_str(&answer).unwrap_or_else(|e| panic!("`{answer}` is no JSON: {e}"));
        assert!(value.get("ok").is_some() != value.get("error").is_some(), "{answer}");
    }
}

pub fn glob(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let mut lines = text.lines();
    let (pattern, other) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let glob = Glob::new(pattern);
    let _ = glob.matches(other);
    if pattern.len() + other.len() < 200
        && let Coverage::Counterexample(example) = covers(&[pattern], other)
    {
        assert!(Glob::new(other).matches(&example) && !glob.matches(&example), "`{example}` is no counterexample");
    }
}

pub fn inputs(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    assert_errors_displayable(text, &templates::parse_inputs(SOURCE, text, 0).err().into_iter().collect::<Vec<_>>());
}

pub fn item_id(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match ItemId::parse(text) {
        Ok(id) => {
            assert_eq!(id.as_str(), text);
            assert!(!text.split('/').any(|s| s.is_empty() || s == "." || s == ".."), "{text}");
        }
        Err(bad) => assert!(text.get(bad.offset..).is_some(), "{bad:?}"),
    }
}

pub fn path(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match parse_path(SOURCE, text, 0) {
        Ok(path) => assert_eq!(path.to_string(), text),
        Err(error) => assert_errors_displayable(text, &[error]),
    }
}

pub fn signature(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    if let Some(line) = signatures::parse(SOURCE, text) {
        assert!(text.get(line.span.range()).is_some());
        assert!(text.get(signatures::content_start(Some(&line))..).is_some());
    }
}

pub fn template(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    assert_errors_displayable(text, &templates::parse(SOURCE, text, 0).err().into_iter().collect::<Vec<_>>());
    let scanned = templates::scan_knowledge(SOURCE, text, 0);
    assert!(scanned.parts.len() <= text.len() + 1);
}
