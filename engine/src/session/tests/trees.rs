//! Tests of thread trees: children, their money and limits, continuations.

use std::sync::atomic::{AtomicUsize, Ordering};

use rye_compiler::semantics::ledger::AccountStatus;
use serde_json::json;

use super::{Lab, Status, calls, names, permit, reply_text, thread};
use crate::event::{EventBody, ResultKind};
use crate::exchange::{CallError, FailedStage, Request};
use crate::store::ThreadRow;
use crate::thread::RunResult;
use crate::thread_id::ThreadId;

fn child() -> (&'static str, serde_json::Value) {
    ("rye_execute", json!({"item_type": "directive", "item_id": "test/child"}))
}

fn family(request: &Request) -> Vec<crate::message::ContentBlock> {
    match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
        ("test/parent", 0) => calls(&[child(), child()]),
        ("test/child", 0) => calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]),
        (who, _) => reply_text(&format!("{who} is done")),
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
    // Each of three threads has two turns of 150,000 nano-dollars.
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
async fn child_requesting_more_than_available_is_refused() {
    let lab = Lab::new(|request| Ok(family(request)));
    lab.write("a.txt", "a\n");
    lab.directive("parent", &format!("<limits spend=\"0.10\"/>{DIRECTIVES}"), "");
    lab.directive("child", "<limits spend=\"5\"/>", "");
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    assert_eq!(result.status, Status::Completed, "{result:?}");
    for (why, text) in answers(&engine, &result) {
        assert_eq!(why, ResultKind::Refused);
        assert!(text.starts_with("spend_exceeded: the child requires $5, but only $0.0"), "{text}");
    }
    assert_eq!(rows(&engine).len(), 1, "no thread is made");
}

#[tokio::test]
async fn child_is_bounded_by_its_parents_grants() {
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
    assert!(text.contains("an ancestor thread does not grant it"), "{text}");
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
            _ => reply_text("done"),
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
async fn a_child_that_was_refused_is_not_counted() {
    let lab = Lab::new(|request| {
        let broken = ("rye_execute", json!({"item_type": "directive", "item_id": "test/broken"}));
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => calls(&[broken.clone(), broken]),
            ("test/parent", 1 | 2) => calls(&[child()]),
            ("test/parent", 3) => calls(&[child(), child()]),
            _ => reply_text("done"),
        })
    });
    lab.directive("parent", &format!("<limits spawns=\"3\"/>{DIRECTIVES}"), "");
    lab.directive("child", "", "");
    lab.directive("broken", "<limits turns=\"-1\"/>", "");
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    assert_eq!(result.status, Status::Completed, "{result:?}");
    // Exactly three threads were started, the maximum.
    assert_eq!(rows(&engine).iter().filter(|row| row.directive == "test/child").count(), 3);
    let refused: Vec<String> = answers(&engine, &result).into_iter().map(|(_, text)| text).collect();
    assert_eq!(refused.iter().filter(|text| *text == "spawns_exceeded: 3 of 3").count(), 1, "{refused:?}");
}

#[tokio::test]
async fn the_same_tree_runs_twice_in_one_project() {
    let lab = Lab::new(|request| {
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => calls(&[child()]),
            ("test/child", 0) => {
                calls(&[("rye_execute", json!({"item_type": "directive", "item_id": "test/grandchild"}))])
            }
            (who, _) => reply_text(who),
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
async fn resume_of_an_ended_thread_starts_a_linked_one() {
    let lab = Lab::new(|request| Ok(reply_text(&format!("{} turns before", request.turns.len()))));
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
async fn resume_rejects_a_damaged_transcript() {
    let lab = Lab::new(|_| Ok(reply_text("hello")));
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
async fn full_context_causes_a_handoff() {
    let lab = Lab::new(|request| {
        let seen = serde_json::to_string(&request.turns).unwrap();
        let fresh = !seen.contains("Continue where you left off") && !seen.contains("continu");
        Ok(if fresh { calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]) } else { reply_text("at last") })
    });
    lab.write("a.txt", &"word ".repeat(2000));
    lab.write(".ai/config/agent/coordination.yaml", "continuation: { trigger_threshold: 0.0000001 }\n");
    lab.directive("long", &permit(&["rye.file-system.read"]), "");
    let engine = lab.engine();
    let result = lab.run(&engine, "long").await;
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("at last")), "{result:?}");
    let rows = rows(&engine);
    assert_eq!(rows.iter().filter(|row| row.status == Status::Continued).count(), 1);
    // A resume of the first thread would replace the link to its continuation.
    let first = rows.into_iter().find(|row| row.status == Status::Continued).unwrap();
    let next = first.continued_by.clone().unwrap();
    for refused in [engine.resume(&first.id, "more").await, engine.hand_off(&first.id).await] {
        let error = refused.err().unwrap().to_string();
        assert!(error.contains(&format!("resume `{next}`, or fork `{}` at a turn", first.id)), "{error}");
    }
    engine.fork(&first.id, 1, "more").await.unwrap().join().await;
    assert_eq!(engine.threads().show(&first.id).unwrap().unwrap().row, first);
    engine.resume(&next, "more").await.unwrap().join().await;
}

/// The root spends its spawns before and after a handoff; its child starts a thread too.
#[tokio::test]
async fn spawns_are_counted_across_handoffs() {
    let (of_root, of_child) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let lab = Lab::new(move |request| {
        let first = |count: &AtomicUsize| count.fetch_add(1, Ordering::SeqCst);
        Ok(match request.cue.directive.as_str() {
            "test/parent" => match first(&of_root) {
                0 => calls(&[child()]),
                1 => calls(&[child(), child()]),
                _ => reply_text("at last"),
            },
            "test/child" if first(&of_child) == 0 => {
                calls(&[("rye_execute", json!({"item_type": "directive", "item_id": "test/grandchild"}))])
            }
            who => reply_text(who),
        })
    });
    lab.write(".ai/config/agent/coordination.yaml", "continuation: { trigger_threshold: 0.0000001 }\n");
    lab.directive("parent", &format!("<limits spend=\"2\" spawns=\"3\"/>{DIRECTIVES}"), "");
    lab.directive("child", &format!("<limits spend=\"0.2\"/>{DIRECTIVES}"), "");
    lab.directive("grandchild", "<limits spend=\"0.05\"/>", "");
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("at last")), "{result:?}");
    let spawns = |engine: &crate::engine::Engine| -> Vec<(Option<u64>, u64, bool)> {
        let chain = rows(engine).into_iter().filter(|row| row.directive == "test/parent");
        let mut chain: Vec<ThreadRow> = chain.collect();
        chain.sort_by_key(|row| std::cmp::Reverse(row.spawns));
        chain.iter().map(|row| (row.spawns, row.spawned, row.continued_by.is_some())).collect()
    };
    let counted = [(Some(3), 2, true), (Some(1), 1, true), (Some(0), 0, false)];
    assert_eq!(spawns(&engine), counted);
    assert_eq!(rows(&engine).iter().filter(|row| row.continues.is_none()).count(), 4);
    let limits = rows(&engine).into_iter().filter(|row| row.directive == "test/parent").map(|row| {
        let events = engine.threads().transcript(&row.id).unwrap();
        let opened = events.into_iter().find_map(|e| match e.body {
            EventBody::Opened(opened) => Some(opened.limits.spawns),
            _ => None,
        });
        (row.spawns, opened)
    });
    assert!(limits.into_iter().all(|(row, opened)| row == opened));
    drop(engine);
    std::fs::remove_file(lab.path().join(".ai/state/threads/registry.redb")).unwrap();
    crate::threads::Threads::repair(&lab.path()).unwrap();
    assert_eq!(spawns(&lab.engine()), counted);
}

#[tokio::test]
async fn continuation_directive_gets_only_the_inputs_that_it_declares() {
    let lab = Lab::new(|request| {
        let seen = serde_json::to_string(&request.turns).unwrap();
        let continued = seen.contains("Proceed with the list.");
        Ok(if continued { reply_text("at last") } else { calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]) })
    });
    lab.write("a.txt", &"word ".repeat(2000));
    lab.write(".ai/config/agent/coordination.yaml", "continuation: { trigger_threshold: 0.0000001 }\n");
    lab.write(
        ".ai/directives/test/go_on.md",
        "# Go on\n\n```xml\n<directive name=\"go_on\"/>\n```\n\nProceed with the list.\n",
    );
    let metadata =
        format!("{}<continuation_directive>test/go_on</continuation_directive>", permit(&["rye.file-system.read"]));
    lab.directive("long", &metadata, "<inputs><input name=\"topic\" default=\"tea\">the topic</input></inputs>");
    let engine = lab.engine();
    let result = lab.run(&engine, "long").await;
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("at last")), "{result:?}");
}

fn start_async(directive: &str) -> (&'static str, serde_json::Value) {
    ("rye_execute", json!({"item_type": "directive", "item_id": directive, "async": true}))
}

/// Waits until the engine is idle.
async fn quiet(engine: &crate::engine::Engine) {
    tokio::time::timeout(std::time::Duration::from_secs(20), engine.wait_idle()).await.unwrap();
}

#[tokio::test]
async fn async_call_returns_at_once_and_its_child_outlives_the_parent() {
    let mut lab = Lab::new(|request| {
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => calls(&[start_async("test/child"), start_async("test/child")]),
            ("test/child", 0..3) => calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]),
            (who, _) => reply_text(&format!("{who} is done")),
        })
    });
    std::sync::Arc::get_mut(&mut lab.model).unwrap().pause = std::time::Duration::from_millis(30);
    lab.write("a.txt", "a\n");
    lab.directive("parent", &format!("<limits spend=\"2\"/>{DIRECTIVES}"), "");
    lab.directive("child", "<limits spend=\"0.1\"/>", "");
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    assert_eq!(result.status, Status::Completed);
    let root = thread(&result);
    let early = rows(&engine);
    assert_eq!(early.iter().filter(|row| row.status == Status::Running).count(), 2, "{early:#?}");
    for (why, text) in answers(&engine, &result) {
        let started: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (why, &started["status"], &started["pid"]),
            (ResultKind::Ran, &json!("running"), &json!(std::process::id()))
        );
        assert!(early.iter().any(|row| started["thread_id"] == row.id.as_str()));
    }
    quiet(&engine).await;
    let late = rows(&engine);
    assert!(late.iter().all(|row| row.status == Status::Completed), "{late:#?}");
    // The root's account stays open for its children and is closed with the last of them.
    let account = engine.account(&root).unwrap().unwrap();
    assert_eq!(account.spent().to_u64(), 2 * 150_000 + 2 * 4 * 150_000);
    assert_eq!(account.status(), rye_compiler::semantics::ledger::AccountStatus::Released);
}

#[tokio::test]
async fn a_parent_learns_of_the_end_of_a_child_it_does_not_wait_for() {
    let mut lab = Lab::new(|request| {
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => calls(&[start_async("test/child")]),
            ("test/parent", 1..12) => calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]),
            (who, _) => reply_text(&format!("{who} is done")),
        })
    });
    std::sync::Arc::get_mut(&mut lab.model).unwrap().pause = std::time::Duration::from_millis(20);
    lab.write("a.txt", "a\n");
    lab.directive("parent", &format!("<limits spend=\"2\"/>{DIRECTIVES}"), "");
    lab.directive("child", "<limits spend=\"0.1\"/>", "");
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    assert_eq!(names(&events).iter().filter(|name| **name == "child_ended").count(), 1);
    assert_eq!(serde_json::to_value(&result.cost).unwrap()["spend"], json!(0.000_15 * 14.0));
}

#[tokio::test]
async fn surviving_child_is_paid_by_its_ancestors_after_its_parent_ends() {
    let mut lab = Lab::new(|request| {
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => calls(&[child()]),
            ("test/child", 0) => calls(&[start_async("test/grandchild")]),
            ("test/parent", 1..8) | ("test/grandchild", 0..4) => {
                calls(&[("rye_file_system_read", json!({"path": "a.txt"}))])
            }
            (who, _) => reply_text(who),
        })
    });
    std::sync::Arc::get_mut(&mut lab.model).unwrap().pause = std::time::Duration::from_millis(20);
    lab.write("a.txt", "a\n");
    lab.directive("parent", &format!("<limits spend=\"2\"/>{DIRECTIVES}"), "");
    lab.directive("child", "<limits spend=\"0.5\"/>", "");
    lab.directive("grandchild", "<limits spend=\"0.1\"/>", "");
    let engine = lab.engine();
    let handle = lab.start(&engine, "parent").await;
    let grandchild = loop {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        let rows = rows(&engine);
        let child = rows.iter().find(|row| row.directive == "test/child");
        let grandchild = rows.iter().find(|row| row.directive == "test/grandchild");
        if let (Some(child), Some(grandchild)) = (child, grandchild)
            && child.status == Status::Completed
        {
            break grandchild.id.clone();
        }
    };
    let account = engine.account(&grandchild).unwrap().unwrap();
    let parent = engine.account(&ThreadId::parse(account.parent().unwrap()).unwrap()).unwrap().unwrap();
    assert_eq!((parent.parent(), parent.status()), (Some(handle.thread_id.as_str()), AccountStatus::Draining));
    // The ended parent holds only what it has spent, and what the grandchild holds.
    assert_eq!(parent.occupied(), parent.spent().saturating_add(account.occupied()));
    let above = engine.account(&handle.thread_id).unwrap().unwrap();
    assert_eq!((above.children(), above.children_hold()), (1, parent.occupied()));
    assert_eq!(handle.join().await.status, Status::Completed);
    quiet(&engine).await;
    let spent = engine.account(&handle.thread_id).unwrap().unwrap().spent().to_u64();
    assert_eq!(spent, (9 + 2 + 5) * 150_000);
}

#[tokio::test]
async fn children_end_with_their_parent_by_policy_or_on_failure() {
    for (policy, last, ended) in
        [("cancel", "say", Status::Cancelled), ("wait", "fail", Status::Cancelled), ("wait", "say", Status::Completed)]
    {
        let mut lab = Lab::new(move |request| {
            Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
                ("test/parent", 0) => calls(&[start_async("test/child")]),
                ("test/parent", _) if last == "fail" => return Err(CallError::new(FailedStage::Setup, "no key")),
                ("test/child", 0..10) => calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]),
                (who, _) => reply_text(who),
            })
        });
        std::sync::Arc::get_mut(&mut lab.model).unwrap().pause = std::time::Duration::from_millis(20);
        lab.write("a.txt", "a\n");
        lab.write(".ai/config/agent/resilience.yaml", &format!("child_policy: {{ on_end: {policy} }}\n"));
        lab.directive("parent", &format!("<limits spend=\"2\" turns=\"20\"/>{DIRECTIVES}"), "");
        lab.directive("child", "<limits spend=\"0.1\" turns=\"20\"/>", "");
        let engine = lab.engine();
        lab.run(&engine, "parent").await;
        quiet(&engine).await;
        let rows = rows(&engine);
        let child = rows.iter().find(|row| row.directive == "test/child").unwrap();
        assert_eq!(child.status, ended, "{policy} {last}");
    }
}

#[tokio::test]
async fn children_beyond_the_limit_are_queued() {
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let mut lab = Lab::new(|request| {
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => calls(&vec![start_async("test/child"); 7]),
            ("test/child", 0) => {
                let now = RUNNING.fetch_add(1, Ordering::SeqCst) + 1;
                MOST.fetch_max(now, Ordering::SeqCst);
                calls(&[("rye_file_system_read", json!({"path": "a.txt"}))])
            }
            ("test/child", _) => {
                RUNNING.fetch_sub(1, Ordering::SeqCst);
                reply_text("done")
            }
            (who, _) => reply_text(who),
        })
    });
    std::sync::Arc::get_mut(&mut lab.model).unwrap().pause = std::time::Duration::from_millis(20);
    lab.write("a.txt", "a\n");
    lab.write(".ai/config/agent/resilience.yaml", "concurrency: { max_concurrent_children: 2 }\n");
    lab.directive("parent", &format!("<limits spend=\"5\"/>{DIRECTIVES}"), "");
    lab.directive("child", "<limits spend=\"0.1\"/>", "");
    let engine = lab.engine();
    lab.run(&engine, "parent").await;
    quiet(&engine).await;
    assert_eq!(rows(&engine).iter().filter(|row| row.status == Status::Completed).count(), 8);
    assert_eq!(MOST.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn spawns_are_counted_over_the_whole_tree() {
    let lab = Lab::new(|request| {
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => calls(&[child(), child()]),
            ("test/child", 0) => {
                calls(&[("rye_execute", json!({"item_type": "directive", "item_id": "test/grandchild"}))])
            }
            (who, _) => reply_text(who),
        })
    });
    lab.directive("parent", &format!("<limits spend=\"2\" spawns=\"3\"/>{DIRECTIVES}"), "");
    lab.directive("child", "<limits spend=\"0.2\"/>", "");
    lab.directive("grandchild", "<limits spend=\"0.05\"/>", "");
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    assert_eq!(result.status, Status::Completed);
    let rows = rows(&engine);
    assert_eq!(rows.len(), 4, "{rows:#?}");
    assert_eq!(rows.iter().find(|row| row.id == thread(&result)).unwrap().spawned, 3);
    let refused = rows.iter().filter(|row| row.directive == "test/child").any(|row| {
        let events = engine.threads().transcript(&row.id).unwrap();
        events.iter().any(|e| matches!(&e.body, EventBody::Limit(hit) if hit.limit_code == "spawns_exceeded"))
    });
    assert!(refused);
}

#[tokio::test]
async fn a_directive_is_started_by_the_tool_for_it_with_limits_of_its_own() {
    let lab = Lab::new(|request| {
        let start = |more: serde_json::Value| {
            let mut given = json!({"directive_name": "test/child"});
            given.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            ("rye_agent_threads_thread_directive", given)
        };
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => calls(&[
                start(json!({"limit_overrides": {"turns": 3}})),
                start(json!({"limit_overrides": {"parent": 3}})),
                start(json!({"directive_name": "other/child"})),
            ]),
            (who, _) => reply_text(who),
        })
    });
    let tool = "<permissions><execute><directive>test.*</directive><tool>rye.agent.threads.thread_directive</tool></execute></permissions>";
    lab.directive("parent", tool, "");
    lab.directive("child", "", "");
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    let answers = answers(&engine, &result);
    assert!(answers[0].1.contains("test/child"), "{answers:?}");
    assert!(answers[1].1.contains("unknown limit `parent`"), "{answers:?}");
    assert_eq!(answers[2].0, ResultKind::Denied { capability: "rye.execute.directive.other.child".into() });
    let child = rows(&engine).into_iter().find(|row| row.spawn.is_some()).unwrap();
    let EventBody::Opened(opened) = &engine.threads().transcript(&child.id).unwrap()[0].body else { panic!() };
    assert_eq!(opened.limits.turns, 3);
}

#[tokio::test]
async fn the_store_of_a_thread_is_in_its_record() {
    let lab = Lab::new(|request| {
        let state = |given: serde_json::Value| ("rye_agent_threads_state", given);
        Ok(match request.cue.turn.unwrap() {
            0 => calls(&[
                state(json!({"operation": "set", "key": "seen", "value": {"files": 2}})),
                state(json!({"operation": "get", "key": "seen"})),
                state(json!({"operation": "get", "key": "by_hook"})),
                state(json!({"operation": "forget"})),
            ]),
            _ => reply_text("done"),
        })
    });
    lab.write(
        ".ai/config/agent/hooks.yaml",
        "hooks:\n  - { id: remember, event: tool_call, condition: 'call.input.operation == \"set\"', action: { primary: execute, \
         item_type: tool, item_id: rye/agent/threads/state, params: { operation: set, key: by_hook, value: \"${turn}\" } } }\n",
    );
    lab.directive("keeper", &permit(&["rye.agent.threads.state"]), "");
    let engine = lab.engine();
    let result = lab.run(&engine, "keeper").await;
    let answers = answers(&engine, &result);
    assert_eq!(answers[1].1, "{\"files\":2}");
    assert_eq!(answers[2].1, "1", "{answers:?}");
    assert_eq!(answers[3].0, ResultKind::Refused);
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    assert_eq!(names(&events).iter().filter(|name| **name == "state_set").count(), 2);
}
