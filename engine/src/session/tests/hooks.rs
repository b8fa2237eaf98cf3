//! Tests of directives that hooks run: children of the thread, within its money and limits.

use serde_json::json;

use super::{Lab, Status, calls, reply_text, thread};
use crate::event::{Event, EventBody, HookVerdict};
use crate::thread::RunResult;

const NOTE: &str = r#"<hook id="note" event="after_step"><action primary="execute" item_type="directive" item_id="test/note"/></hook>"#;

/// A directive with one tool turn and one final turn, and a hook that runs another directive after the first turn.
fn lab(limits: &str, hook: &str) -> Lab {
    let lab = Lab::new(|request| {
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]),
            (who, _) => reply_text(who),
        })
    });
    lab.write("a.txt", "a\n");
    let permitted =
        "<permissions><execute><tool>rye.file-system.read</tool><directive>test.*</directive></execute></permissions>";
    lab.directive("parent", &format!("{limits}<hooks>{hook}</hooks>{permitted}"), "");
    lab.directive("note", "<limits output=\"16\"/>", "");
    lab
}

fn failures(events: &[Event]) -> Vec<String> {
    let runs = events.iter().filter_map(|e| if let EventBody::HookPoint(run) = &e.body { Some(run) } else { None });
    let failed = runs.flat_map(|run| &run.considered).filter(|hook| hook.verdict == HookVerdict::Failed);
    failed.filter_map(|hook| hook.because.clone()).collect()
}

fn spend(result: &RunResult) -> serde_json::Value {
    serde_json::to_value(&result.cost).unwrap()["spend"].clone()
}

#[tokio::test]
async fn hook_directive_counts_in_the_threads_cost() {
    let lab = lab("", NOTE);
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    // The thread has two turns, and the hook's directive has one turn after each of them. Each turn costs 150,000
    // nano-dollars.
    assert_eq!((result.status, spend(&result)), (Status::Completed, json!(0.000_6)));
    let rows = engine.threads().list().unwrap();
    assert_eq!(rows.len(), 3);
    let note = rows.iter().find(|row| row.row.directive == "test/note").unwrap();
    assert_eq!((note.row.status, note.row.cost.spend), (Status::Completed, 150_000));
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    let child_events =
        events.iter().filter(|e| matches!(e.body, EventBody::ChildSpawned(_) | EventBody::ChildEnded(_)));
    assert_eq!(child_events.count(), 4);
}

#[tokio::test]
async fn hook_directive_spends_the_threads_money() {
    // The parent never ends by itself. Each of its turns costs 150,000 nano-dollars, and so does the directive that the
    // hook runs after each turn.
    let turns = |hook: &str| {
        let mut lab = lab("<limits turns=\"100\" spend=\"0.009\" output=\"16\"/>", hook);
        let script: Box<super::ReplyScript> = Box::new(|request| {
            let read = calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]);
            Ok(if request.cue.directive == "test/parent" { read } else { reply_text("noted") })
        });
        lab.model = std::sync::Arc::new(super::ScriptedModel {
            script,
            asked: std::sync::atomic::AtomicUsize::new(0),
            requests: std::sync::Mutex::default(),
            pause: std::time::Duration::ZERO,
            usage: lab.model.usage,
            is_client: false,
        });
        lab
    };
    let mut made = Vec::new();
    for hook in ["", NOTE] {
        let lab = turns(hook);
        let engine = lab.engine();
        let result = lab.run(&engine, "parent").await;
        let code = result.error.as_ref().map(|error| error.code.as_str());
        assert_eq!((result.status, code), (Status::Error, Some("spend_exceeded")), "{result:?}");
        made.push(result.cost.turns);
    }
    assert!(made[0] >= 14 && made[1] + 5 <= made[0], "{made:?}");
}

#[tokio::test]
async fn hook_directive_is_bounded_by_spawns_and_depth() {
    for (limits, code) in [("spawns=\"0\"", "spawns_exceeded"), ("depth=\"0\"", "depth_exceeded")] {
        let lab = lab(&format!("<limits {limits}/>"), NOTE);
        let engine = lab.engine();
        let result = lab.run(&engine, "parent").await;
        assert_eq!(result.status, Status::Completed);
        let events = engine.threads().transcript(&thread(&result)).unwrap();
        let failures = failures(&events);
        assert!(failures.iter().any(|why| why.starts_with(code)), "{failures:?}");
        assert_eq!(engine.threads().list().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn self_starting_directive_stops_at_the_depth_limit() {
    let hook = r#"<hook id="again" event="after_complete"><action primary="execute" item_type="directive" item_id="test/parent"/></hook>"#;
    let lab = lab("<limits depth=\"2\"/>", hook);
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    assert_eq!(result.status, Status::Completed, "{result:?}");
    assert_eq!(engine.threads().list().unwrap().len(), 3);
    assert_eq!(spend(&result), json!(0.0009), "three threads of two turns");
}

#[tokio::test]
async fn failure_hook_starts_a_new_child_each_time() {
    let lab = Lab::new(|request| {
        if request.cue.directive == "test/note" {
            return Ok(reply_text("{\"action\":\"retry\",\"delay_ms\":0}"));
        }
        Err(crate::exchange::CallError::new(crate::exchange::FailedStage::Setup, "broken".to_owned()))
    });
    let hook = NOTE.replace("after_step", "error");
    let permitted = "<permissions><execute><directive>test.note</directive></execute></permissions>";
    lab.directive("parent", &format!("<hooks>{hook}</hooks>{permitted}"), "");
    lab.directive("note", "", "");
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    assert_eq!(result.status, Status::Error);
    // The hook runs for four failures: the first attempt, and three attempts that it requested. Its fourth request is
    // refused.
    assert_eq!(engine.threads().list().unwrap().len(), 1 + 4);
}
