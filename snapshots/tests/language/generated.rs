//! The generated parts of `docs/language.md`: the event table and the settings.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use rye_compiler::semantics::hook_point::{COMMON, Mode, POINTS, Point};
use rye_compiler::validate::settings::schema::{FILES, Field, Shape};
use rye_grammar::data::Node;
use rye_grammar::{SourceId, yaml};
use serde_json::Value;

/// Descriptions of when each event happens, in the order of the table; later events happen when a transcript event of
/// the same name is written.
const EVENT_DESCRIPTIONS: [&str; 18] = [
    "the directive is read, its chain not yet walked",
    "before the first turn",
    "first prompt of a fresh thread",
    "first prompt of a continuation or resume",
    "a user's message arrives, before any expansion",
    "once per user prompt, after expansion",
    "before every model call, on a copy of the messages",
    "before each tool",
    "a tool begins",
    "a tool has ended",
    "after each tool",
    "after each turn",
    "a limit is exceeded",
    "a model call or a tool fails",
    "usage passes the threshold",
    "structured outputs were accepted",
    "no tool calls, no queued messages",
    "the thread is over, whatever its end",
];

pub fn events() -> String {
    let mut out = String::from("| event | when | mode | facts | actions |\n|---|---|---|---|---|\n");
    for (i, point) in POINTS.iter().enumerate() {
        let when = EVENT_DESCRIPTIONS.get(i).unwrap_or(&"the event is written");
        let mode = match point.mode {
            Mode::FirstMatch => "first match",
            Mode::Collect => "collect",
            Mode::Chain => "chain",
            Mode::FirstBlock => "first block",
            Mode::Control => "control",
            Mode::Observe => "observe",
        };
        let actions: Vec<String> = point.actions.iter().map(|a| format!("`{}`", a.word())).collect();
        let _ = writeln!(out, "| `{}` | {when} | {mode} | {} | {} |", point.name, facts(point), actions.join(" "));
    }
    out
}

/// Renders the facts that are specific to a point; the fields of objects are in braces.
fn facts(point: &Point) -> String {
    let mut shown: Vec<(String, Vec<String>)> = Vec::new();
    for name in point.fact_names().iter().filter(|name| COMMON.iter().all(|fact| fact.name != name.as_str())) {
        let (root, field) = name.split_once('.').unwrap_or((name, ""));
        // Described once, above the table.
        let field = if matches!(root, "cost" | "limits") { "" } else { field };
        match shown.last_mut().filter(|(known, _)| known == root) {
            Some((_, fields)) => fields.extend((!field.is_empty()).then(|| field.to_owned())),
            None => shown.push((root.to_owned(), (!field.is_empty()).then(|| field.to_owned()).into_iter().collect())),
        }
    }
    let one = |(root, fields): &(String, Vec<String>)| {
        if fields.is_empty() { format!("`{root}`") } else { format!("`{root}.{{{}}}`", fields.join(",")) }
    };
    shown.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Renders every settings file: its keys, their types, and the standard library's values.
pub fn settings() -> String {
    let mut out = String::from(
        "Every settings file with its keys: what a key takes, and the standard library's value. Another key, another value and \
         another file\nname below `agent/` are told.\n",
    );
    for file in FILES {
        let _ = write!(out, "\n### `{}`\n\n{}\n", file.id, file.about);
        let mut rows = String::new();
        let path = format!("../stdlib/.ai/config/{}.yaml", file.id);
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_default();
        let standard = yaml::parse(SourceId(0), &text).tree;
        walk(&file.shape, "", Some(&standard), &mut rows);
        if !rows.is_empty() {
            let _ = write!(out, "\n| key | takes | standard | meaning |\n|---|---|---|---|\n{rows}");
        }
    }
    out
}

fn walk(shape: &Shape, at: &str, standard: Option<&Node>, rows: &mut String) {
    match shape {
        Shape::Map(fields) | Shape::MapOr(_, fields) => fields.iter().for_each(|field| row(field, at, standard, rows)),
        Shape::Names(inner) | Shape::Known(_, inner) => walk(inner, &format!("{at}<name>."), None, rows),
        Shape::List(inner) => walk(inner, &format!("{}[].", at.trim_end_matches('.')), None, rows),
        Shape::Text
        | Shape::Truth
        | Shape::Whole { .. }
        | Shape::Amount
        | Shape::Share
        | Shape::Price
        | Shape::OneOf(_)
        | Shape::Failure
        | Shape::Pattern
        | Shape::Elsewhere
        | Shape::ForReaders(_) => {}
    }
}

fn row(field: &Field, at: &str, standard: Option<&Node>, rows: &mut String) {
    let key = format!("{at}{}", field.key);
    let value = standard.and_then(|node| node.get(field.key));
    let shown = value.filter(|v| v.entries().is_empty() && v.items().is_empty()).map(Node::to_value);
    let shown = match shown {
        Some(Value::String(text)) => format!("`{text}`"),
        Some(value) => format!("`{value}`"),
        None => String::new(),
    };
    let needed = if field.needed { ", needed" } else { "" };
    let _ = writeln!(rows, "| `{key}` | {}{needed} | {shown} | {} |", takes(&field.shape), field.about);
    walk(&field.shape, &format!("{key}."), value, rows);
}

fn takes(shape: &Shape) -> String {
    match shape {
        Shape::Names(_) => "a mapping by name".to_owned(),
        Shape::Known(names, _) => format!("a mapping of `{}`", names.join("`, `")),
        Shape::Elsewhere => "see there".to_owned(),
        Shape::ForReaders(_) => "anything: nothing reads it".to_owned(),
        Shape::Text
        | Shape::Truth
        | Shape::Whole { .. }
        | Shape::Amount
        | Shape::Share
        | Shape::Price
        | Shape::OneOf(_)
        | Shape::Map(_)
        | Shape::MapOr(..)
        | Shape::List(_)
        | Shape::Failure
        | Shape::Pattern => shape.expected(),
    }
}
