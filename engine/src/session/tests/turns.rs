//! Threads that stop, wait, and go on: limits that a person moves, summaries in place, forks, letters, the orchestrator.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Lab, calls, names, permit, say, thread};
use crate::engine::Engine;
use crate::event::{EventBody, Letter, ResultKind};
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

const ORCHESTRA: &str = "<permissions><execute><directive>test.*</directive><tool>rye.agent.threads.*</tool>\
     <tool>rye.file-system.read</tool></execute></permissions><limits spend=\"3\"/>";

fn told(engine: &Engine, result: &RunResult) -> Vec<(ResultKind, Value)> {
    let events = engine.threads().transcript(&thread(result)).unwrap();
    let told = |event: crate::event::Event| match event.body {
        EventBody::ToolCallResult(r) => {
            let value = serde_json::from_str(&r.content).unwrap_or(Value::String(r.content));
            Some((r.why, value))
        }
        _ => None,
    };
    events.into_iter().filter_map(told).collect()
}

/// The ids that the results in a request name.
fn ids(request: &crate::provider::Request, key: &str) -> Vec<String> {
    let seen = serde_json::to_string(&request.turns).unwrap().replace('\\', "");
    let mark = format!("\"{key}\":\"");
    let marks = seen.match_indices(&mark).map(|(at, mark)| at + mark.len());
    marks.map(|at| seen[at..].split('"').next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_orchestrator_waits_looks_stops_and_goes_on() {
    let mut lab = Lab::new(|request| {
        let ask = |operation: &str, more: Value| {
            let mut given = json!({"operation": operation});
            given.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            ("rye_agent_threads_orchestrator", given)
        };
        let start = |name: &str| {
            ("rye_execute", json!({"item_type": "directive", "item_id": format!("test/{name}"), "async": true}))
        };
        let known = ids(request, "thread_id");
        let of = |n: usize| json!({"thread_id": known.get(n).cloned().unwrap_or_default()});
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => calls(&[start("quick"), start("endless")]),
            ("test/parent", 1) => calls(&[
                ask("wait_threads", of(0)),
                ask("cancel_thread", of(1)),
                ask("wait_threads", of(1)),
                ask("get_status", of(0)),
                ask("chain_search", json!({"thread_id": known[0], "query": "quick is"})),
                ask("read_transcript", json!({"thread_id": known[0], "tail_lines": 1})),
                ask("list_active", json!({})),
                ask("resume_thread", json!({"thread_id": known[0], "message": "once more"})),
                ask(
                    "kill_thread",
                    json!({"thread_id": request.cue.directive.replace("test/parent", "test/stranger-1")}),
                ),
            ]),
            ("test/parent", 2) => {
                let resumed = ids(request, "continues").last().cloned().unwrap_or_default();
                calls(&[
                    ask("get_chain", json!({"thread_id": resumed})),
                    ask("wait_threads", json!({"thread_id": resumed})),
                ])
            }
            ("test/endless", _) => calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]),
            ("test/quick", _) => say("quick is done"),
            (who, _) => say(who),
        })
    });
    Arc::get_mut(&mut lab.model).unwrap().pause = Duration::from_millis(10);
    lab.write("a.txt", "a\n");
    lab.directive("parent", ORCHESTRA, "");
    lab.directive("quick", "<limits spend=\"0.1\"/>", "");
    lab.directive("endless", "<limits spend=\"0.5\" turns=\"1000\"/>", "");
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    assert_eq!(result.status, Status::Completed, "{result:?}");
    let told = told(&engine, &result);
    let (_, waited) = &told[2];
    assert_eq!(
        (&waited["all_over"], &waited["threads"][0]["result"]),
        (&json!(true), &json!("quick is done")),
        "{told:#?}"
    );
    assert_eq!(told[4].1["threads"][0]["status"], "cancelled", "{told:#?}");
    assert_eq!(told[5].1["status"], "completed");
    assert!(!told[6].1["matches"].as_array().unwrap().is_empty());
    assert_eq!(told[7].1["events"][0]["event"]["type"], "ended");
    assert!(told[8].1["threads"].as_array().unwrap().len() == 1, "only the caller runs: {:#?}", told[8]);
    assert_eq!(told[9].1["status"], "running", "{:#?}", told[9]);
    assert!(told[10].1.as_str().unwrap().contains("there is no thread"), "{:#?}", told[10]);
    assert_eq!(told[11].1["chain"].as_array().unwrap().len(), 2, "{:#?}", told[11]);
    assert_eq!(told[12].1["threads"][0]["status"], "completed");
    engine.idle().await;
    let rows = engine.threads().list().unwrap();
    let resumed = rows.iter().find(|listed| listed.row.continues.is_some()).unwrap();
    assert_eq!(resumed.row.parent, Some(thread(&result)), "what goes on runs below the caller");
}

#[tokio::test]
async fn only_what_runs_below_may_be_stopped() {
    let mut lab = Lab::new(|request| {
        let root = ids(request, "root").first().cloned().unwrap_or_default();
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => calls(&[("rye_execute", json!({"item_type": "directive", "item_id": "test/child"}))]),
            ("test/child", 0) => calls(&[("rye_agent_threads_orchestrator", json!({"operation": "list_active"}))]),
            ("test/child", 1) => calls(&[
                ("rye_agent_threads_orchestrator", json!({"operation": "kill_thread", "thread_id": root})),
                ("rye_agent_threads_orchestrator", json!({"operation": "wait_threads", "thread_id": root})),
            ]),
            (who, _) => say(who),
        })
    });
    Arc::get_mut(&mut lab.model).unwrap().pause = Duration::from_millis(5);
    lab.directive("parent", ORCHESTRA, "");
    lab.directive("child", "", "");
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    assert_eq!(result.status, Status::Completed);
    let child = engine.threads().list().unwrap().into_iter().find(|listed| listed.row.parent.is_some()).unwrap();
    let of_child = RunResult { thread_id: child.row.id.to_string(), ..result };
    let told = told(&engine, &of_child);
    assert!(told[1].1.as_str().unwrap().contains("does not run below"), "{told:#?}");
    assert!(told[2].1.as_str().unwrap().contains("cannot wait for itself"), "{told:#?}");
}
