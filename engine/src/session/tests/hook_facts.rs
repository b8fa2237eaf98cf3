//! Facts of hooks at run time: each fact that the table of hook points names has a value in some run.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use rye_compiler::compile::{CompileRequest, compile};
use rye_compiler::diagnostics::Diagnostic;
use rye_compiler::hook::HookPoint;
use rye_compiler::plan::PlanMode;
use rye_compiler::semantics::hook_point::HOOK_POINTS;
use rye_grammar::ItemId;
use serde_json::json;

use super::{Lab, calls, reply_text};
use crate::context::StartOptions;
use crate::engine::Engine;
use crate::event::{ControlMessage, Delivery, EventBody};
use crate::exchange::{CallError, FailedStage, Request};
use crate::message::ContentBlock;

/// Fields of recorded events that hooks read. The table of hook points does not list them.
const EVENT_FIELDS: [(&str, &[&str]); 5] = [
    ("cognition_in", &["source", "message"]),
    ("cognition_out", &["turn", "attempt", "content", "usage", "stop"]),
    ("tool_call_result", &["turn", "index", "call_id", "name", "why", "content", "is_error", "bytes", "duration_ms"]),
    ("thread_error", &["status", "result", "missing", "stop_reason", "error"]),
    ("thread_resumed", &["thread", "at_seq", "at_h"]),
];

/// Returns every fact that a run can give a value, as `point fact`. The compiler evaluates the hooks of
/// `resolve_extends`, so no run evaluates them.
fn promised() -> BTreeSet<String> {
    let points = HOOK_POINTS.iter().filter(|row| row.point != HookPoint::ResolveExtends);
    let listed = points.flat_map(|row| row.fact_names().into_iter().map(|fact| format!("{} {fact}", row.name)));
    let fields =
        EVENT_FIELDS.iter().flat_map(|(point, fields)| fields.iter().map(move |field| format!("{point} {field}")));
    listed.chain(fields).collect()
}

/// Returns a project with a hook for each fact. The hook stores the value of the fact under the name of the fact.
fn lab(script: impl Fn(&Request) -> Result<Vec<ContentBlock>, CallError> + Send + Sync + 'static) -> Lab {
    let lab = Lab::new(script);
    let (mut hooks, mut commands) = ("hooks:\n".to_owned(), "commands:\n".to_owned());
    for (number, promise) in promised().iter().enumerate() {
        let Some((point, fact)) = promise.split_once(' ') else { panic!("{promise}") };
        let stored = format!("params: {{ operation: set, key: \"{promise}\", value: \"${{{fact}}}\" }}");
        let item = format!("item_type: tool, item_id: rye/agent/threads/state, {stored}");
        let _ = if point == "command" {
            writeln!(commands, "  - {{ id: c{number}, description: stores a fact, execute: {{ {item} }} }}")
        } else {
            writeln!(hooks, "  - {{ id: h{number}, event: {point}, action: {{ primary: execute, {item} }} }}")
        };
    }
    lab.write(".ai/config/agent/hooks.yaml", &hooks);
    lab.write(".ai/config/agent/chat.yaml", &commands);
    lab.write("a.txt", "text\nmore text\n");
    lab
}

fn read(path: &str) -> Vec<ContentBlock> {
    calls(&[("rye_file_system_read", json!({ "path": path }))])
}

/// Returns the names of the facts that had a value in any thread of the project.
fn stored(engine: &Engine) -> BTreeSet<String> {
    let threads = engine.threads().list().unwrap().into_iter();
    let events = threads.flat_map(|thread| engine.threads().transcript(&thread.row.id).unwrap());
    let sets = events.filter_map(|event| if let EventBody::StateSet(set) = event.body { Some(set) } else { None });
    sets.filter(|set| !set.value.is_null()).map(|set| set.key).collect()
}

const PERMITTED: &str =
    "<permissions><execute><tool>rye.file-system.read</tool><directive>test.*</directive></execute></permissions>";

/// A thread and its child, which both continue in a new thread.
async fn long_run() -> BTreeSet<String> {
    let lab = lab(|request| {
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/main", 0) => calls(&[("rye_execute", json!({"item_type": "directive", "item_id": "test/child"}))]),
            ("test/child", 0) => read("a.txt"),
            _ => reply_text("done"),
        })
    });
    for name in ["main", "child"] {
        lab.directive(name, &format!("<limits turns=\"2\"/>{PERMITTED}"), "");
    }
    lab.write(
        ".ai/config/agent/coordination.yaml",
        "continuation: { trigger_threshold: 0.0000001, resume_ceiling_tokens: 10 }\n",
    );
    let engine = lab.engine();
    // The result is not used: the test reads the facts of the stored events, and a missing event fails it.
    let _ = lab.run(&engine, "main").await;
    engine.wait_idle().await;
    stored(&engine)
}

const OUTPUTS: &str = "<inputs><input name=\"who\" type=\"string\" default=\"x\">d</input></inputs><outputs>\
    <output name=\"first\" type=\"string\" required=\"true\">d</output>\
    <output name=\"second\" type=\"string\" required=\"true\">d</output></outputs>";

/// Threads that end with a return, with an incomplete return, at a limit, with a failed model call, and by a cancellation.
async fn short_runs() -> BTreeSet<String> {
    let lab = lab(|request| {
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/partial", 0) => read("missing.txt"),
            ("test/partial", 1) => calls(&[("rye_directive_return", json!({"first": "1"}))]),
            ("test/returned", 0) => calls(&[("rye_directive_return", json!({"first": "1", "second": "2"}))]),
            // The details of a part of a file name the next part.
            ("test/limited", _) => calls(&[("rye_file_system_read", json!({"path": "a.txt", "limit": 1}))]),
            ("test/cancelled", _) => read("a.txt"),
            ("test/failed", _) => {
                let mut error = CallError::new(FailedStage::Status, "broken".to_owned());
                (error.status, error.error_type, error.code) = (Some(400), Some("bad".into()), Some("bad_code".into()));
                return Err(error);
            }
            _ => reply_text("done"),
        })
    });
    lab.directive("partial", PERMITTED, OUTPUTS);
    lab.directive("limited", &format!("<limits turns=\"1\"/>{PERMITTED}"), "");
    lab.directive("failed", PERMITTED, "");
    lab.directive("cancelled", &format!("<limits turns=\"500\" spend=\"9\"/>{PERMITTED}"), "");
    lab.directive("returned", PERMITTED, OUTPUTS);
    lab.directive("plain", PERMITTED, "");
    let engine = lab.engine();
    for name in ["partial", "limited", "failed", "returned", "plain"] {
        // The result is not used: the test reads the facts of the stored events, and a missing event fails it.
        let _ = lab.run(&engine, name).await;
    }
    let handle = lab.start(&engine, "cancelled").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    handle.send(ControlMessage::Cancel);
    // The result is not used: the test reads the facts of the stored events, and a missing event fails it.
    let _ = handle.join().await;
    stored(&engine)
}

/// A chat with a message and every command.
async fn chat() -> BTreeSet<String> {
    let lab = lab(|_| Ok(reply_text("done")));
    lab.directive("talk", PERMITTED, "");
    let engine = lab.engine();
    let world = (lab.options().world)().unwrap();
    let mut request = CompileRequest::new(ItemId::parse("test/talk").unwrap()).with_inputs(serde_json::Map::new());
    request.mode = PlanMode::Chat;
    let checked = compile(&*world, &request);
    let messages: Vec<String> = checked.diagnostics.iter().map(Diagnostic::message).collect();
    let plan = checked.value.unwrap_or_else(|| panic!("{messages:?}"));
    let handle = engine.start(&plan, StartOptions::default()).await.unwrap();
    let commands = promised().into_iter().enumerate().filter(|(_, promise)| promise.starts_with("command "));
    let typed = commands.map(|(number, _)| format!("/c{number} argument"));
    for text in ["hello".to_owned()].into_iter().chain(typed) {
        handle.control().submit(text.as_str().into(), Delivery::Prompt).unwrap();
    }
    handle.send(ControlMessage::Close);
    // The result is not used: the test reads the facts of the stored events, and a missing event fails it.
    let _ = handle.join().await;
    engine.wait_idle().await;
    stored(&engine)
}

#[tokio::test]
async fn each_fact_of_the_table_has_a_value_in_some_run() {
    let mut found = long_run().await;
    found.extend(short_runs().await);
    found.extend(chat().await);
    let missing: Vec<String> = promised().into_iter().filter(|promise| !found.contains(promise)).collect();
    assert_eq!(missing, Vec::<String>::new());
}
