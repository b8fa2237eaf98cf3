//! Fact lookup and template filling while some facts are unknown.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use rye_compiler::semantics::condition::{Condition, ReadingResult, Verdict};
use rye_compiler::semantics::facts::{Facts, Lookup};
use rye_compiler::semantics::template::{Rendered, TemplateTree, render_text};
use rye_compiler::semantics::value::{Type, to_node};
use rye_grammar::condition::{parse_inline, parse_path};
use rye_grammar::template::parse;
use rye_grammar::{SourceId, Span};
use serde_json::json;

const HERE: SourceId = SourceId(0);

fn facts() -> Facts {
    let mut facts = Facts::new();
    facts.set("cost.turns", json!(3));
    facts.set("list", json!([[1, 2], {"0": "zero"}]));
    facts.set("model", json!(null));
    facts.declare_unknown("inputs.x");
    facts.declare_unknown("inputs.y");
    facts.declare_unknown("thread_id");
    facts
}

#[test]
fn lookup_distinguishes_value_absent_and_unknown() {
    let facts = facts();
    let at = |path: &str| facts.lookup(&parse_path(HERE, path, 0).unwrap());
    assert_eq!(at("cost.turns"), Lookup::Known(&json!(3)));
    assert_eq!(at("list.0.1"), Lookup::Known(&json!(2)));
    assert_eq!(at("list.1.0"), Lookup::Known(&json!("zero")));
    assert_eq!(at("model"), Lookup::Known(&json!(null)));
    for absent in ["cost.spend", "cost.turns.more", "list.2", "list.name", "model.x", "nothing.here"] {
        assert_eq!(at(absent), Lookup::Absent, "{absent}");
    }
    assert_eq!(at("inputs.x.deep.0"), Lookup::Unknown(vec!["inputs.x"]));
    assert_eq!(at("inputs"), Lookup::Unknown(vec!["inputs.x", "inputs.y"]));
    assert_eq!(at("inputs.z"), Lookup::Absent);
}

#[test]
fn text_with_an_unknown_fact_names_the_fact() {
    let template = parse(HERE, "a ${cost.turns} ${thread_id || \"x\"}${model}${gone || \"b\"}!", 0).unwrap();
    assert_eq!(render_text(&template, &facts()), Err(vec!["thread_id".to_owned()]));
    let template = parse(HERE, "a ${cost.turns} ${model}${gone || \"b\"}!", 0).unwrap();
    assert_eq!(render_text(&template, &facts()), Ok("a 3 b!".to_owned()));
}

#[test]
fn every_string_of_a_value_is_a_template_and_keys_are_not() {
    let span = Span::new(HERE, 0, 0);
    let value = json!({"${cost.turns}": ["${cost.turns}", 1, {"t": "n ${cost.turns}"}], "none": "${gone}"});
    let tree = TemplateTree::read(&to_node(&value, span));
    assert!(tree.errors.is_empty());
    let want = json!({"${cost.turns}": [3, 1, {"t": "n 3"}], "none": null});
    assert_eq!(tree.tree.render(&facts()), Rendered::Value(want));
    let waiting = TemplateTree::read(&to_node(&json!(["${inputs.x}", "${thread_id} ${inputs.x}"]), span)).tree;
    assert_eq!(waiting.render(&facts()), Rendered::Pending(vec!["inputs.x".into(), "thread_id".into()]));
    assert_eq!(waiting.placeholders().len(), 3);
    assert_eq!(<TemplateTree>::read(&to_node(&json!(["${", {"a": "${b c}"}]), span)).errors.len(), 2);
}

#[test]
fn declared_types_expose_conditions_that_never_hold() {
    let types = |path: &rye_grammar::condition::Path| match path.to_string().as_str() {
        "turns" => Some(Type::Integer),
        "name" => Some(Type::String),
        "on" => Some(Type::Boolean),
        _ => None,
    };
    let faults = |text: &str| {
        let expr = parse_inline(HERE, text, 0).unwrap();
        Condition::compile_typed(&expr, &types).map_or_else(|faults| faults.len(), |_| 0)
    };
    for (text, want) in [
        ("turns >= 3 && on", 0),
        ("turns >= '3'", 1),
        ("name < 3 || on > false", 2),
        ("turns", 1),
        ("!name", 1),
        ("name && turns && on", 2),
        ("unknown > 'x' && unknown", 0),
        ("on || name matches '('", 1),
        ("turns == 'x'", 0),
    ] {
        assert_eq!(faults(text), want, "{text}");
    }
}

#[test]
fn a_trace_names_what_was_read() {
    let expr = parse_inline(HERE, "gone == 1 || cost.turns > 2 || thread_id", 0).unwrap();
    let (verdict, readings) = Condition::compile(&expr).unwrap().evaluate_traced(&facts());
    assert_eq!(verdict, Verdict::True);
    let read: Vec<(&str, &ReadingResult)> = readings.iter().map(|r| (r.path.as_str(), &r.found)).collect();
    assert_eq!(read, [("gone", &ReadingResult::Absent), ("cost.turns", &ReadingResult::Value(json!(3)))]);
}

#[test]
fn a_bad_pattern_is_found_in_a_dead_branch() {
    for text in ["false && model matches '['", "true || model matches '(?<'", "any == 1 && !(a matches '*')"] {
        let read =
            parse_inline(HERE, text, 0).map_err(|_| ()).and_then(|expr| Condition::compile(&expr).map_err(|_| ()));
        assert!(read.is_err(), "{text}");
    }
}
