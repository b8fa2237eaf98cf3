//! The generated parts of the reference pages: hook points, transcript events and settings.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use rye_compiler::key_bindings::BOUND_ACTIONS;
use rye_compiler::semantics::hook_point::{COMMON_FACTS, HOOK_POINTS, HookPointRow, Mode};
use rye_compiler::validate::settings::schema::{FILES, SettingField, SettingShape};
use rye_engine::event::{EVENT_TABLE, EventKind};
use rye_grammar::data::Node;
use rye_grammar::{SourceId, yaml};
use serde_json::{Value, json};

/// Descriptions of when these hook points happen. Every other point happens when a transcript event of the same name is
/// written.
const HOOK_POINT_DESCRIPTIONS: [(&str, &str); 22] = [
    ("resolve_extends", "the directive is read, its chain not yet walked"),
    ("build_system_prompt", "before the first turn"),
    ("thread_started", "first prompt of a fresh thread"),
    ("thread_continued", "first prompt of a continuation or resume"),
    ("input", "a user's message arrives, before any expansion"),
    ("command", "a message calls a command of `agent/chat`"),
    ("before_agent_start", "once per user prompt, also the first of `rye run`; not for follow-ups and steering"),
    ("context", "before every model call, on a copy of the messages"),
    ("tool_call", "before each tool"),
    ("tool_execution_start", "a tool begins"),
    ("tool_execution_end", "a tool has ended"),
    ("tool_result", "after each tool that ran"),
    ("after_step", "after each turn"),
    ("limit", "a limit is exceeded"),
    ("error", "a model call or a tool fails"),
    ("context_limit_reached", "usage passes the threshold"),
    ("directive_return", "structured outputs were accepted"),
    ("agent_end", "a reply without tool calls ends the turns, and no message waits"),
    ("after_complete", "the thread has ended, with the status `completed`, `error`, `cancelled` or `continued`"),
    ("thread_completed", "the thread has ended with the status `completed`"),
    ("thread_error", "the thread has ended with the status `error`"),
    ("thread_cancelled", "the thread has ended with the status `cancelled`"),
];

/// Renders the table of hook points.
pub fn hook_points() -> String {
    let mut out = String::from("| hook point | when | mode | facts | actions |\n|---|---|---|---|---|\n");
    for point in HOOK_POINTS {
        let described = HOOK_POINT_DESCRIPTIONS.iter().find(|(name, _)| *name == point.name);
        let is_event = || EVENT_TABLE.iter().any(|row| row.reader_name == point.name);
        assert!(described.is_some() || is_event(), "describe when `{}` happens", point.name);
        let when = described.map_or("the event is written", |(_, when)| *when);
        let mode = match point.mode {
            Mode::FirstMatch => "first match",
            Mode::Collect => "collect",
            Mode::Chain => "chain",
            Mode::FirstBlock => "first block",
            Mode::Control => "control",
            Mode::Observe => "observe",
        };
        let actions: Vec<String> = point.accepted_actions().map(|a| format!("`{}`", a.as_str())).collect();
        let _ = writeln!(out, "| `{}` | {when} | {mode} | {} | {} |", point.name, facts(point), actions.join(" "));
    }
    out
}

/// Renders the facts that are specific to a point; the fields of objects are in braces.
fn facts(point: &HookPointRow) -> String {
    let mut shown: Vec<(String, Vec<String>)> = Vec::new();
    for name in point.fact_names().iter().filter(|name| COMMON_FACTS.iter().all(|fact| fact.name != name.as_str())) {
        let (root, field) = name.split_once('.').unwrap_or((name, ""));
        // The page describes the fields of these objects once, above the table.
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

/// Renders the table of transcript events.
pub fn transcript_events() -> String {
    let mut out = String::from(
        "| type | name for hooks and readers | meaning | fields | criticality | durable | readers |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let word = |value: Value| value.as_str().unwrap_or_default().to_owned();
    for row in &EVENT_TABLE {
        let fields: Vec<String> = row.fields.iter().map(|field| format!("`{field}`")).collect();
        let readers: Vec<String> = row.readers.iter().map(|reader| word(json!(reader))).collect();
        let _ = writeln!(
            out,
            "| `{}` | `{}` | {} | {} | {} | {} | {} |",
            row.name,
            row.reader_name,
            event_meaning(row.kind),
            fields.join(" "),
            word(json!(row.criticality)),
            word(json!(row.durability)),
            readers.join(" "),
        );
    }
    out
}

/// Returns the meaning of a transcript event.
fn event_meaning(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Opened => "the thread starts: directive, inputs, limits and grants",
        EventKind::PlanBound => "the plan of the thread",
        EventKind::Continues => "the thread continues another one, from this position",
        EventKind::SystemPrompt => "the system prompt and its layers",
        EventKind::ContextInjected => "the ids of what stands before and after the body in the first message",
        EventKind::CognitionIn => "a message enters the conversation from outside the model",
        EventKind::AttemptIntended => "a model call is about to be made, with its worst case",
        EventKind::Reserved => "the ledger reserved the worst case of the attempt",
        EventKind::CognitionOut => "a reply of the model",
        EventKind::AttemptFailed => "a model call failed; its classification and the wait before the next attempt",
        EventKind::Settled => "the cost of an attempt, for the ledger",
        EventKind::HookPoint => "the hooks of a point, their verdicts and their answer",
        EventKind::ToolStarted => "an authorized tool call is about to run",
        EventKind::ToolCallResult => "the result of a tool call, or the reason why the call did not run",
        EventKind::ChildIntended => "a child thread is about to be created",
        EventKind::ChildSpawned => "the child thread exists",
        EventKind::ChildEnded => "the child thread has ended; its status and cost",
        EventKind::Mail => "a control message was received",
        EventKind::Limit => "a limit was reached",
        EventKind::ApprovalAsked => "an approval was requested",
        EventKind::ApprovalGiven => "an approval request was answered",
        EventKind::StateSet => "a value that the thread stores for its hooks and tools",
        EventKind::Compacted => "a summary replaced earlier messages",
        EventKind::Recovered => "a process recovered the thread; the bytes of the torn tail that it cut",
        EventKind::Checkpoint => "a signature over every line before",
        EventKind::UserInput => "a message has passed its intake; the text for the model",
        EventKind::ShellRan => "a command of the user has ended; its output",
        EventKind::FileChanged => "a file tool is about to write a file; its contents before and after, as objects",
        EventKind::CommandRan => "a command of the settings has run; its answer, which `action` shows or sends",
        EventKind::Named => "the session has a new title",
        EventKind::Retracted => "a message was withdrawn from the queue",
        EventKind::PromptStarted => "a prompt of a chat starts; the limits of the thread until its end",
        EventKind::PromptEnded => "a prompt of a chat ended; its status and cost",
        EventKind::Ended => "the thread ends: status, result, outputs and cost",
    }
}

/// Renders every settings file: its keys, their types, and the standard library's values.
pub fn settings() -> String {
    let mut out = String::new();
    for file in FILES {
        let _ = write!(out, "\n## `{}`\n\n{}\n", file.id, file.about);
        let mut rows = String::new();
        let path = format!("../stdlib/.ai/config/{}.yaml", file.id);
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_default();
        let standard = yaml::parse(SourceId(0), &text).tree;
        walk(&file.shape, "", Some(&standard), &mut rows);
        if !rows.is_empty() {
            let _ = write!(out, "\n| key | takes | standard | meaning |\n|---|---|---|---|\n{rows}");
        }
    }
    out.push('\n');
    out
}

fn walk(shape: &SettingShape, at: &str, standard: Option<&Node>, rows: &mut String) {
    match shape {
        SettingShape::Map(fields) | SettingShape::MapOr(_, fields) => {
            fields.iter().for_each(|field| row(field, at, standard, rows));
        }
        SettingShape::Names(inner) | SettingShape::NamedValues(_, inner) => {
            walk(inner, &format!("{at}<name>."), None, rows);
        }
        SettingShape::KeyBindings => {
            for one in &BOUND_ACTIONS {
                let keys = one.keys.join("`, `");
                let _ = writeln!(rows, "| `{}` | a key, or a list of keys | `{keys}` | {} |", one.id, one.about);
            }
        }
        SettingShape::List(inner) => walk(inner, &format!("{}[].", at.trim_end_matches('.')), None, rows),
        SettingShape::Text
        | SettingShape::Bool
        | SettingShape::Integer { .. }
        | SettingShape::Seconds
        | SettingShape::Dollars
        | SettingShape::Fraction
        | SettingShape::Price
        | SettingShape::OneOf(_)
        | SettingShape::Failure
        | SettingShape::Pattern
        | SettingShape::Opaque
        | SettingShape::Documentation(_) => {}
    }
}

fn row(field: &SettingField, at: &str, standard: Option<&Node>, rows: &mut String) {
    let key = format!("{at}{}", field.key);
    let value = standard.and_then(|node| node.get(field.key));
    let shown = value.filter(|v| v.entries().is_empty() && v.items().is_empty()).map(Node::to_value);
    let shown = match shown {
        Some(Value::String(text)) => format!("`{text}`"),
        Some(value) => format!("`{value}`"),
        None => String::new(),
    };
    let required = if field.is_required { ", required" } else { "" };
    let _ = writeln!(rows, "| `{key}` | {}{required} | {shown} | {} |", takes(&field.shape), field.about);
    walk(&field.shape, &format!("{key}."), value, rows);
}

fn takes(shape: &SettingShape) -> String {
    match shape {
        SettingShape::Names(_) => "a mapping by name".to_owned(),
        SettingShape::NamedValues(names, _) => format!("a mapping of `{}`", names.join("`, `")),
        SettingShape::Opaque => "see there".to_owned(),
        SettingShape::Documentation(_) => "anything: nothing reads it".to_owned(),
        SettingShape::Text
        | SettingShape::Bool
        | SettingShape::Integer { .. }
        | SettingShape::Seconds
        | SettingShape::Dollars
        | SettingShape::Fraction
        | SettingShape::Price
        | SettingShape::OneOf(_)
        | SettingShape::Map(_)
        | SettingShape::MapOr(..)
        | SettingShape::List(_)
        | SettingShape::KeyBindings
        | SettingShape::Failure
        | SettingShape::Pattern => shape.expected(),
    }
}
