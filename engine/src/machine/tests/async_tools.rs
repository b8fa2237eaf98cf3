//! Detached tool calls: the events of the calling thread, and the thread that runs the call.

use rye_compiler::hook::{HookAction, HookPoint};
use rye_compiler::plan::Outcome;
use serde_json::{Value, json};

use super::super::fixture::{SimulatedThread, call, calls, grant, plan, text, with_hook};
use super::super::{Effect, Fact, next};
use crate::event::{ControlMessage, EventBody, HookOutcome, ResultKind};
use crate::message::ToolCall;
use crate::thread::Status;

fn start(item: &str, parameters: &Value) -> (String, Value) {
    call("rye_execute", json!({"item_type": "tool", "item_id": item, "parameters": parameters, "async": true}))
}

fn intents(play: &SimulatedThread) -> Vec<(u64, String, bool)> {
    let intent = |body: &EventBody| match body {
        EventBody::ChildIntended(child) => Some((child.spawn, child.directive.clone(), child.tool)),
        _ => None,
    };
    play.events.iter().filter_map(|event| intent(&event.body)).collect()
}

/// Runs one call in a thread of its own, opened with the values that the calling thread would set.
fn run_of(item: &str, change: impl FnOnce(&mut SimulatedThread)) -> SimulatedThread {
    let input = json!({"item_type": "tool", "item_id": item, "parameters": {"x": 1}});
    let mut play = SimulatedThread::new(plan().for_call(), Vec::new());
    let mut launch = play.opened();
    launch.call = Some(Box::new(ToolCall { id: "c0".into(), name: "rye_execute".into(), input }));
    change(&mut play);
    play.signal(Fact::Opened { launch: Box::new(launch), plan_id: "p".into(), continues: None });
    while play.step() {}
    play
}

#[test]
fn detached_call_spawns_and_is_answered_at_once() {
    let list = [start("a/write", &json!({"n": 1})), start("a/read", &json!({})), call("a_read", json!({}))];
    let mut play = SimulatedThread::new(plan(), vec![calls(&list), text("done")]);
    play.run();
    assert_eq!(play.ended().status, Status::Completed);
    assert_eq!(intents(&play), [(1, "a/write".to_owned(), true), (2, "a/read".to_owned(), true)]);
    // The intent is recorded before the driver spawns, and the answers contain the thread ids that the driver returned.
    let names = play.names();
    let at = |name: &str| names.iter().position(|n| *n == name).unwrap();
    assert!(at("child_intended") < at("child_spawned") && at("child_spawned") < at("tool_call_result"), "{names:?}");
    let results = play.results();
    for (n, (why, content)) in results.iter().take(2).enumerate() {
        let content: Value = serde_json::from_str(content).unwrap();
        assert_eq!(*why, ResultKind::Ran);
        assert_eq!(content, json!({"thread_id": format!("child-{}", n + 1), "status": "running", "pid": 1}));
    }
    // This thread dispatches only the call that it waits for.
    assert_eq!(play.dispatched, [vec!["rye.execute.tool.a.read".to_owned()]]);
}

#[test]
fn gate_authorizes_detached_calls_before_the_spawn() {
    let rows: [((String, Value), &str); 6] = [
        (start("b/other", &json!({})), "permission denied: missing capability rye.execute.tool.b.other"),
        (
            call("rye_execute", json!({"item_type": "knowledge", "item_id": "a/k", "async": true})),
            "rye_execute: `async` is for directives and tools",
        ),
        (start("rye/agent/threads/state", &json!({})), "rye_execute: `rye/agent/threads/state` answers at once"),
        (start("rye/agent/threads/thread_directive", &json!({})), "thread_directive: `directive_name` must be"),
        (
            call("rye_execute", json!({"item_type": "tool", "item_id": "a/read", "async": "yes"})),
            "rye_execute: `async`",
        ),
        (call("a_read", json!({"async": true})), "ran a_read"),
    ];
    for (asked, expected) in rows {
        let mut play = SimulatedThread::new(plan(), vec![calls(std::slice::from_ref(&asked)), text("done")]);
        play.run();
        let results = play.results();
        assert!(results[0].1.starts_with(expected), "{asked:?}: {}", results[0].1);
        assert!(intents(&play).is_empty(), "{asked:?}");
    }
}

#[test]
fn detached_thread_directive_starts_a_detached_child() {
    let mut with = plan();
    with.capabilities.grants.push(grant("rye.execute.tool.rye.agent.*"));
    let asked = start("rye/agent/threads/thread_directive", &json!({"directive_name": "test/other"}));
    let mut play = SimulatedThread::new(with, vec![calls(&[asked]), text("done")]);
    play.run();
    assert_eq!(intents(&play), [(1, "test/other".to_owned(), false)]);
    assert!(play.results()[0].1.contains("\"status\":\"running\""), "{:?}", play.results());
}

#[test]
fn detached_calls_count_as_spawns_not_depth() {
    let mut flat = plan();
    (flat.limits.depth, flat.limits.spawns) = (0, 2);
    let three = [start("a/read", &json!({})), start("a/read", &json!({})), start("a/read", &json!({}))];
    let mut play = SimulatedThread::new(flat, vec![calls(&three), text("done")]);
    play.run();
    assert_eq!(intents(&play).len(), 2);
    let results = play.results();
    let refused = results.iter().find(|(why, _)| *why == ResultKind::Refused).unwrap();
    assert!(refused.1.starts_with("spawns_exceeded"), "{}", refused.1);
    assert!(play.names().contains(&"limit"));
}

#[test]
fn detached_calls_reserve_no_spend() {
    let directive = call("rye_execute", json!({"item_type": "directive", "item_id": "test/other", "async": true}));
    for (list, siblings, keeps) in [
        (vec![start("a/read", &json!({})), directive.clone()], 1, true),
        (vec![directive.clone()], 1, true),
        (vec![start("a/read", &json!({}))], 0, false),
    ] {
        let mut play = SimulatedThread::new(plan(), vec![calls(&list)]);
        play.start();
        let spawn = loop {
            match next(&play.plan, &play.state) {
                Effect::Spawn(children) => break children,
                _ => assert!(play.step()),
            }
        };
        assert!(spawn.iter().all(|one| one.siblings == siblings && (one.turn_reserve > 0) == keeps), "{spawn:?}");
    }
}

#[test]
fn detached_run_is_gate_tool_guard_end() {
    let play = run_of("a/read", |_| {});
    assert_eq!(play.names(), ["opened", "plan_bound", "tool_started", "tool_call_result", "ended"]);
    assert_eq!(play.dispatched, [vec!["rye.execute.tool.a.read".to_owned()]]);
    assert!(play.requests.is_empty() && play.reservations.is_empty(), "no model is asked, no money is set aside");
    let ended = play.ended();
    assert_eq!((ended.status, ended.result.as_deref()), (Status::Completed, Some("ran rye_execute")));
    assert_eq!(ended.cost, crate::thread::Cost::default());
}

#[test]
fn detached_run_is_authorized_again() {
    let play = run_of("b/other", |_| {});
    assert_eq!(play.names(), ["opened", "plan_bound", "tool_call_result", "ended"]);
    let error = play.ended().error.clone().unwrap();
    assert_eq!((play.ended().status, error.code.as_str()), (Status::Error, "not_run"));
    assert!(error.message.contains("permission denied"), "{}", error.message);
}

#[test]
fn recovered_call_runs_again_only_if_idempotent() {
    for (item, ran, status, code) in
        [("a/read", 1, Status::Completed, None), ("a/write", 0, Status::Error, Some("interrupted"))]
    {
        let mut play = SimulatedThread::new(plan().for_call(), Vec::new());
        let mut launch = play.opened();
        let input = json!({"item_type": "tool", "item_id": item, "parameters": {}});
        launch.call = Some(Box::new(ToolCall { id: "c0".into(), name: "rye_execute".into(), input }));
        play.signal(Fact::Opened { launch: Box::new(launch), plan_id: "p".into(), continues: None });
        while !play.names().contains(&"tool_started") {
            assert!(play.step());
        }
        play.signal(Fact::Recovered { owner: "o".into(), cut_bytes: 0 });
        while play.step() {}
        assert_eq!(play.dispatched.len(), ran, "{item}");
        let ended = play.ended();
        assert_eq!((ended.status, ended.error.as_ref().map(|e| e.code.as_str())), (status, code), "{item}");
        if code.is_some() {
            assert_eq!(play.results()[0], (ResultKind::Interrupted, "interrupted: outcome unknown".to_owned()));
            assert_eq!(ended.result.as_deref(), Some("interrupted: outcome unknown"));
        }
    }
}

#[test]
fn detached_run_cancelled_before_start_runs_nothing() {
    for (message, status) in [(ControlMessage::Cancel, Status::Cancelled), (ControlMessage::Kill, Status::Killed)] {
        let play = run_of("a/write", |play| play.messages.push((0, message)));
        assert!(play.dispatched.is_empty());
        assert_eq!(play.ended().status, status);
    }
}

#[test]
fn only_result_hooks_run_for_detached_calls() {
    let mut hooked = plan();
    let modify = || HookAction::Compact;
    with_hook(&mut hooked, HookPoint::ToolResult, modify());
    with_hook(&mut hooked, HookPoint::AfterStep, modify());
    with_hook(&mut hooked, HookPoint::ToolCall, modify());
    with_hook(&mut hooked, HookPoint::ThreadCompleted, modify());
    let derived = hooked.for_call();
    assert_eq!(derived.hooks.iter().map(|hook| hook.event).collect::<Vec<_>>(), [HookPoint::ToolResult]);
    let content = Some(json!("nothing to see"));
    let play = run_of("a/read", |play| {
        play.plan = derived;
        let answer = HookOutcome::Modify { content, is_error: None, details: None };
        play.hooks.insert(HookPoint::ToolResult, [answer].into());
    });
    assert_eq!(play.ended().result.as_deref(), Some("nothing to see"));
}

#[test]
fn detached_run_follows_rewired_edges() {
    let play = run_of("a/read", |play| {
        super::super::fixture::rewire(
            &mut play.plan,
            rye_compiler::plan::Node::Inbox,
            Outcome::Clear,
            rye_compiler::plan::Node::Finish,
        );
    });
    assert_eq!(play.names(), ["opened", "plan_bound", "ended"]);
}
