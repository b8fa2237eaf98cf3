//! Threads that stop, wait, and go on: limits that a person moves, summaries in place, forks, letters.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{Lab, calls, names, permit, say, thread};
use crate::engine::Engine;
use crate::event::Letter;
use crate::store::mailbox;
use crate::thread::{RunResult, Status};

const ESCALATE: &str = "hooks:\n  - { id: ask, event: limit, action: { escalate: {} } }\n";

fn reader(turns: u32) -> Lab {
    let lab = Lab::new(move |request| {
        let read = calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]);
        Ok(if request.cue.turn.unwrap() < turns { read } else { say("done") })
    });
    lab.write("a.txt", "a\n");
    lab
}

fn letter(engine: &Engine, result: &RunResult, letter: &Letter) {
    let body = serde_json::to_value(letter).unwrap();
    mailbox::send(&**engine.disk(), &thread(result), &body, 5).unwrap();
}

fn raise(limit: &str, value: u64) -> Letter {
    Letter::Raise { limit: limit.into(), value }
}

#[tokio::test]
async fn a_limit_that_is_escalated_suspends_until_somebody_raises_it() {
    let lab = reader(5);
    lab.write(".ai/config/agent/hooks.yaml", ESCALATE);
    lab.directive("reader", &format!("<limits turns=\"3\"/>{}", permit(&["rye.file-system.read"])), "");
    let engine = lab.engine();
    let result = lab.run(&engine, "reader").await;
    assert_eq!((result.status, result.cost.turns), (Status::Suspended, 3));
    let account = engine.account(&thread(&result)).unwrap().unwrap();
    assert_eq!(account.standing(), rye_compiler::semantics::ledger::Standing::Open);
    drop(engine);
    // Another process, with the answer in the inbox.
    let engine = lab.engine();
    letter(&engine, &result, &raise("turns", 20));
    letter(&engine, &result, &Letter::Approve { yes: true });
    let handle = engine.recover(&thread(&result)).await.unwrap();
    let result = handle.join().await;
    assert_eq!((result.status, result.cost.turns), (Status::Completed, 6), "{result:?}");
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    let count = |name: &str| names(&events).iter().filter(|n| **n == name).count();
    assert_eq!((count("limit"), count("mail"), count("ended")), (1, 2, 2));
    let account = engine.account(&thread(&result)).unwrap().unwrap();
    assert_eq!(account.spent().to_u64(), 6 * 150_000);
}

#[tokio::test]
async fn an_answer_that_refuses_ends_the_thread_at_its_limit() {
    let lab = reader(5);
    lab.write(".ai/config/agent/hooks.yaml", ESCALATE);
    lab.directive("reader", &format!("<limits turns=\"3\"/>{}", permit(&["rye.file-system.read"])), "");
    let engine = lab.engine();
    let result = lab.run(&engine, "reader").await;
    let handle = engine.take_up(&thread(&result), vec![Letter::Approve { yes: false }]).await.unwrap();
    let result = handle.join().await;
    assert_eq!((result.status, result.error.unwrap().code.as_str()), (Status::Error, "turns_exceeded"));
}

#[tokio::test]
async fn money_that_is_raised_is_raised_in_the_ledger() {
    let lab = reader(5);
    lab.write(".ai/config/agent/hooks.yaml", ESCALATE);
    lab.directive(
        "reader",
        &format!("<limits spend=\"0.0058\" output=\"1024\"/>{}", permit(&["rye.file-system.read"])),
        "",
    );
    let engine = lab.engine();
    let first = lab.run(&engine, "reader").await;
    assert_eq!(first.status, Status::Suspended, "{first:?}");
    let letters = vec![raise("spend", 2_000_000_000), Letter::Approve { yes: true }];
    let result = engine.take_up(&thread(&first), letters).await.unwrap().join().await;
    assert_eq!(result.status, Status::Completed, "{result:?}");
    let account = engine.account(&thread(&result)).unwrap().unwrap();
    assert_eq!(account.reserved().to_u64(), 2_000_000_000);
}

#[tokio::test]
async fn a_conversation_is_summarised_in_place() {
    let lab = Lab::new(|request| {
        let seen = serde_json::to_string(&request.turns).unwrap();
        if request.cue.directive.ends_with(".summary") {
            assert!(seen.contains("Write a summary"));
            return Ok(say("it read a.txt"));
        }
        Ok(if seen.contains("<summary>") {
            say("done")
        } else {
            calls(&[("rye_file_system_read", json!({"path": "a.txt"}))])
        })
    });
    lab.write("a.txt", &"word ".repeat(2000));
    lab.write(
        ".ai/config/agent/coordination.yaml",
        "continuation: { trigger_threshold: 0.0000001, resume_ceiling_tokens: 10 }\n",
    );
    lab.write(
        ".ai/config/agent/hooks.yaml",
        "hooks:\n  - { id: shorter, event: context_limit_reached, action: { compact: {} } }\n",
    );
    lab.directive("long", &permit(&["rye.file-system.read"]), "");
    let engine = lab.engine();
    let result = lab.run(&engine, "long").await;
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("done")), "{result:?}");
    // Two replies and the summary, which is no turn.
    assert_eq!(result.cost.turns, 2);
    assert_eq!(serde_json::to_value(&result.cost).unwrap()["spend"], json!(0.000_45));
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    assert_eq!(names(&events).iter().filter(|name| **name == "compacted").count(), 1);
    let last = lab.model.requests.lock().unwrap().last().unwrap().clone();
    let said = serde_json::to_string(&last.turns).unwrap();
    assert!(said.contains("Do it.") && said.contains("it read a.txt") && !said.contains("word word"), "{said}");
    assert_eq!(engine.threads().list().unwrap().len(), 1);
}

#[tokio::test]
async fn a_fork_begins_at_the_end_of_a_turn() {
    let lab = reader(4);
    lab.directive("reader", &permit(&["rye.file-system.read"]), "");
    let engine = lab.engine();
    let first = lab.run(&engine, "reader").await;
    assert_eq!(first.cost.turns, 5);
    let fork = engine.fork(&thread(&first), 2, "and now something else").await.unwrap().join().await;
    assert_eq!(fork.status, Status::Completed);
    let request = lab.model.requests.lock().unwrap().iter().rev().find(|r| r.cue.turn == Some(0)).unwrap().clone();
    // The prompt, two calls with their results, the message.
    assert_eq!(request.turns.len(), 6);
    let row = engine.threads().show(&thread(&first)).unwrap().unwrap().row;
    assert_eq!(row.continued_by, None, "a fork goes its own way");
    let missing = engine.fork(&thread(&first), 9, "x").await.unwrap_err();
    assert!(missing.to_string().contains("only 5 turns"), "{missing}");
}

#[tokio::test]
async fn a_thread_that_is_told_to_hands_over_after_its_turn() {
    let mut lab = reader(6);
    Arc::get_mut(&mut lab.model).unwrap().pause = Duration::from_millis(20);
    lab.directive("reader", &permit(&["rye.file-system.read"]), "");
    let engine = lab.engine();
    let handle = lab.start(&engine, "reader").await;
    handle.send(Letter::Handoff);
    let result = handle.join().await;
    assert_eq!(result.status, Status::Completed);
    assert_ne!(result.thread_id, handle.thread_id.as_str());
    let chain = engine.threads().chain(&thread(&result)).unwrap();
    assert_eq!(chain, [handle.thread_id.clone(), thread(&result)]);
    let found = engine.threads().search(&handle.thread_id, &regex::Regex::new("^done$").unwrap(), 9).unwrap();
    assert!(found.iter().all(|one| one.thread_id == result.thread_id) && !found.is_empty());
}
