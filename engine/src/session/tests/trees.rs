//! Trees of threads: children, their money and their limits; threads that go on from others.

use serde_json::json;

use super::{Lab, Status, calls, names, permit, say, thread};
use crate::event::{EventBody, ResultKind};
use crate::provider::Request;
use crate::store::ThreadRow;
use crate::thread::RunResult;

fn child() -> (&'static str, serde_json::Value) {
    ("rye_execute", json!({"item_type": "directive", "item_id": "test/child"}))
}

fn family(request: &Request) -> Vec<crate::message::Block> {
    match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
        ("test/parent", 0) => calls(&[child(), child()]),
        ("test/child", 0) => calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]),
        (who, _) => say(&format!("{who} is done")),
    }
}

const DIRECTIVES: &str =
    "<permissions><execute><directive>test.*</directive><tool>rye.file-system.read</tool></execute></permissions>";

fn rows(engine: &crate::engine::Engine) -> Vec<ThreadRow> {
    engine.threads().list().unwrap().into_iter().map(|listed| listed.row).collect()
}

fn answers(engine: &crate::engine::Engine, result: &RunResult) -> Vec<(ResultKind, String)> {
    let events = engine.threads().transcript(&thread(result)).unwrap();
    let mut answers: Vec<(usize, ResultKind, String)> = events
        .into_iter()
        .filter_map(|e| match e.body {
            EventBody::ToolCallResult(r) => Some((r.index, r.why, r.content)),
            _ => None,
        })
        .collect();
    answers.sort_by_key(|(index, ..)| *index);
    answers.into_iter().map(|(_, why, text)| (why, text)).collect()
}

#[tokio::test]
async fn children_run_below_their_parent_and_cost_it() {
    let lab = Lab::new(|request| Ok(family(request)));
    lab.write("a.txt", "a\n");
    lab.directive("parent", DIRECTIVES, "");
    lab.directive("child", "", "");
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("test/parent is done")));
    // Two turns each: 150,000 nanos a turn, three threads.
    assert_eq!(serde_json::to_value(&result.cost).unwrap()["spend"], json!(0.0009));
    let rows = rows(&engine);
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row.status == Status::Completed && row.root == thread(&result)));
    assert_eq!(rows.iter().filter_map(|row| row.spawn).collect::<Vec<_>>(), [1, 2]);
    for (why, text) in answers(&engine, &result) {
        assert_eq!(why, ResultKind::Ran);
        assert!(text.contains("test/child is done"), "{text}");
    }
}

#[tokio::test]
async fn a_child_may_do_no_more_than_its_parent() {
    let lab = Lab::new(|request| Ok(family(request)));
    lab.write("a.txt", "a\n");
    let only = "<permissions><execute><directive>test.*</directive></execute></permissions>";
    lab.directive("parent", only, "");
    lab.directive("child", &permit(&["rye.file-system.read"]), "");
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    assert_eq!(result.status, Status::Completed);
    let rows = rows(&engine);
    let child = rows.iter().find(|row| row.spawn == Some(1)).unwrap();
    let of_child = RunResult { thread_id: child.id.to_string(), ..result };
    let (why, text) = answers(&engine, &of_child).remove(0);
    assert_eq!(why, ResultKind::Denied { capability: "rye.execute.tool.rye.file-system.read".into() });
    assert!(text.contains("above"), "{text}");
}

#[tokio::test]
async fn depth_spawns_and_broken_directives_are_answers() {
    let lab = Lab::new(|request| {
        Ok(match request.cue.turn.unwrap() {
            0 => calls(&[
                ("rye_execute", json!({"item_type": "directive", "item_id": "test/broken"})),
                ("rye_execute", json!({"item_type": "directive", "item_id": "test/nowhere"})),
                child(),
            ]),
            _ => say("done"),
        })
    });
    lab.directive("parent", &format!("<limits spawns=\"2\" depth=\"1\"/>{DIRECTIVES}"), "");
    lab.directive("child", "", "");
    lab.directive("broken", "<limits turns=\"-1\"/>", "");
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    assert_eq!(result.status, Status::Completed);
    let answers = answers(&engine, &result);
    assert!(answers[0].1.contains("does not compile"), "{}", answers[0].1);
    assert!(answers[1].1.contains("nowhere"), "{}", answers[1].1);
    assert!(answers[2].1.starts_with("spawns_exceeded"), "{}", answers[2].1);
    assert_eq!(rows(&engine).len(), 1, "a directive that does not compile makes no thread");
}

#[tokio::test]
async fn the_same_tree_runs_twice_in_one_project() {
    let lab = Lab::new(|request| {
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => calls(&[child()]),
            ("test/child", 0) => {
                calls(&[("rye_execute", json!({"item_type": "directive", "item_id": "test/grandchild"}))])
            }
            (who, _) => say(who),
        })
    });
    lab.directive("parent", DIRECTIVES, "");
    lab.directive("child", "", "");
    lab.directive("grandchild", "", "");
    let engine = lab.engine();
    for _ in 0..2 {
        let result = lab.run(&engine, "parent").await;
        assert_eq!(result.status, Status::Completed, "{result:?}");
        assert_eq!(serde_json::to_value(&result.cost).unwrap()["spend"], json!(0.000_75));
    }
    assert_eq!(rows(&engine).len(), 6);
}

#[tokio::test]
async fn an_ended_thread_goes_on_in_a_linked_one() {
    let lab = Lab::new(|request| Ok(say(&format!("{} turns before", request.turns.len()))));
    lab.directive("hello", "", "");
    let engine = lab.engine();
    let first = lab.run(&engine, "hello").await;
    let handle = engine.resume(&thread(&first), "and then?").await.unwrap();
    let second = handle.join().await;
    assert_eq!((second.status, second.result.as_deref()), (Status::Completed, Some("3 turns before")));
    assert_ne!(first.thread_id, second.thread_id);
    let row = engine.threads().show(&thread(&first)).unwrap().unwrap().row;
    assert_eq!(row.continued_by, Some(thread(&second)));
    let events = engine.threads().transcript(&thread(&second)).unwrap();
    assert_eq!(names(&events)[2], "continues");
    let third = engine.resume(&thread(&second), "and now?").await.unwrap().join().await;
    assert_eq!(third.result.as_deref(), Some("5 turns before"));
}

#[tokio::test]
async fn a_damaged_record_is_not_gone_on_from() {
    let lab = Lab::new(|_| Ok(say("hello")));
    lab.directive("hello", "", "");
    let engine = lab.engine();
    let first = lab.run(&engine, "hello").await;
    let path = lab.path().join(".ai/state/threads").join(&first.thread_id).join("transcript.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let half: String = text.split_inclusive('\n').take(5).collect();
    std::fs::write(&path, half).unwrap();
    let error = engine.resume(&thread(&first), "and then?").await.err().unwrap().to_string();
    assert!(error.contains("damaged at line 6"), "{error}");
    assert_eq!(rows(&engine).len(), 1);
}

#[tokio::test]
async fn a_full_context_is_handed_over() {
    let lab = Lab::new(|request| {
        let seen = serde_json::to_string(&request.turns).unwrap();
        let fresh = !seen.contains("Go on from where you left off") && !seen.contains("continu");
        Ok(if fresh { calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]) } else { say("at last") })
    });
    lab.write("a.txt", &"word ".repeat(2000));
    lab.write(".ai/config/agent/coordination.yaml", "continuation: { trigger_threshold: 0.0000001 }\n");
    lab.directive("long", &permit(&["rye.file-system.read"]), "");
    let engine = lab.engine();
    let result = lab.run(&engine, "long").await;
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("at last")), "{result:?}");
    let rows = rows(&engine);
    assert_eq!(rows.iter().filter(|row| row.status == Status::Continued).count(), 1);
}
