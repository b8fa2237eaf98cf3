//! Tests of the orchestrator tool: its operations, its permissions, and calls that a crash interrupts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Lab, calls, names, permit, reply_text, thread};
use crate::engine::Engine;
use crate::event::{ControlMessage, EventBody, ResultKind};
use crate::exchange::Request;
use crate::live::StreamEvent;
use crate::message::ContentBlock;
use crate::thread::{RunResult, Status};

const ORCHESTRA: &str = "<permissions><execute><directive>test.*</directive><tool>rye.agent.threads.*</tool>\
     <tool>rye.file-system.read</tool></execute></permissions><limits spend=\"3\"/>";

fn results(engine: &Engine, result: &RunResult) -> Vec<(ResultKind, Value)> {
    let events = engine.threads().transcript(&thread(result)).unwrap();
    let results = |event: crate::event::Event| match event.body {
        EventBody::ToolCallResult(r) => {
            let value = serde_json::from_str(&r.content).unwrap_or(Value::String(r.content));
            Some((r.why, value))
        }
        _ => None,
    };
    events.into_iter().filter_map(results).collect()
}

/// Returns the values of `key` in the results of a request.
fn ids(request: &crate::exchange::Request, key: &str) -> Vec<String> {
    let seen = serde_json::to_string(&request.turns).unwrap().replace('\\', "");
    let mark = format!("\"{key}\":\"");
    let marks = seen.match_indices(&mark).map(|(at, mark)| at + mark.len());
    marks.map(|at| seen[at..].split('"').next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn threads_tool_waits_reads_stops_and_continues() {
    let mut lab = Lab::new(|request| {
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
            ("test/quick", _) => reply_text("quick is done"),
            (who, _) => reply_text(who),
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
    let results = results(&engine, &result);
    let (_, waited) = &results[2];
    assert_eq!(
        (&waited["all_finished"], &waited["threads"][0]["result"]),
        (&json!(true), &json!("quick is done")),
        "{results:#?}"
    );
    assert_eq!(results[4].1["threads"][0]["status"], "cancelled", "{results:#?}");
    assert_eq!(results[5].1["status"], "completed");
    assert!(!results[6].1["matches"].as_array().unwrap().is_empty());
    assert_eq!(results[7].1["events"][0]["event"]["type"], "ended");
    assert!(results[8].1["threads"].as_array().unwrap().len() == 1, "only the caller runs: {:#?}", results[8]);
    assert_eq!(results[9].1["status"], "running", "{:#?}", results[9]);
    assert!(results[10].1.as_str().unwrap().contains("no such thread"), "{:#?}", results[10]);
    assert_eq!(results[11].1["chain"].as_array().unwrap().len(), 2, "{:#?}", results[11]);
    assert_eq!(results[12].1["threads"][0]["status"], "completed");
    engine.wait_idle().await;
    let rows = engine.threads().list().unwrap();
    let resumed = rows.iter().find(|listed| listed.row.continues.is_some()).unwrap();
    assert_eq!(resumed.row.parent, Some(thread(&result)), "what goes on runs below the caller");
}

#[tokio::test]
async fn threads_tool_stops_only_descendants() {
    let mut lab = Lab::new(|request| {
        let root = ids(request, "root").first().cloned().unwrap_or_default();
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => calls(&[("rye_execute", json!({"item_type": "directive", "item_id": "test/child"}))]),
            ("test/child", 0) => calls(&[("rye_agent_threads_orchestrator", json!({"operation": "list_active"}))]),
            ("test/child", 1) => calls(&[
                ("rye_agent_threads_orchestrator", json!({"operation": "kill_thread", "thread_id": root})),
                ("rye_agent_threads_orchestrator", json!({"operation": "wait_threads", "thread_id": root})),
            ]),
            (who, _) => reply_text(who),
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
    let results = results(&engine, &of_child);
    assert!(results[1].1.as_str().unwrap().contains("is not a descendant of"), "{results:#?}");
    assert!(results[2].1.as_str().unwrap().contains("cannot wait for itself"), "{results:#?}");
}

/// Builds a call of an operation.
fn ask(operation: &str, mut given: Value) -> (&'static str, Value) {
    given["operation"] = operation.into();
    ("rye_agent_threads_orchestrator", given)
}

fn start(name: &str) -> (&'static str, Value) {
    ("rye_execute", json!({"item_type": "directive", "item_id": format!("test/{name}"), "async": true}))
}

fn read() -> Vec<ContentBlock> {
    calls(&[("rye_file_system_read", json!({"path": "a.txt"}))])
}

/// Returns a project with a parent that replies with the result of `parent`, and with children that reply at once or
/// work without end.
fn family(parent: impl Fn(&Request, u32) -> Vec<ContentBlock> + Send + Sync + 'static) -> Lab {
    let mut lab = Lab::new(move |request| {
        let continues = serde_json::to_string(&request.turns).unwrap().contains("Continue where you left off");
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", turn) if !continues => parent(request, turn),
            ("test/quick", _) => reply_text("quick is done"),
            ("test/endless", _) if !continues => read(),
            (who, _) => reply_text(&format!("{who} went on")),
        })
    });
    Arc::get_mut(&mut lab.model).unwrap().pause = Duration::from_millis(5);
    lab.write("a.txt", "a\n");
    lab.directive("parent", ORCHESTRA, "");
    lab.directive("quick", "<limits spend=\"0.1\"/>", "");
    lab.directive("endless", "<limits spend=\"0.5\" turns=\"100000\"/>", "");
    lab
}

#[tokio::test]
async fn aggregate_returns_ended_and_running_threads() {
    let lab = family(|request, turn| {
        let known = ids(request, "thread_id");
        match turn {
            0 => calls(&[start("quick"), start("endless")]),
            1 => calls(&[ask("wait_threads", json!({"thread_id": known[0]}))]),
            2 => calls(&[
                ask("aggregate_results", json!({"thread_ids": [known[0], known[1], "test/unknown-1"]})),
                ask("aggregate_results", json!({"thread_id": known[0]})),
                ask("aggregate_results", json!({"thread_ids": []})),
                ask("wait_threads", json!({"thread_ids": [known[0], known[1]], "timeout": 0})),
                ask("cancel_thread", json!({"thread_id": known[1]})),
                ask("wait_threads", json!({"thread_ids": [known[1], known[0]]})),
                ask("aggregate_results", json!({"thread_ids": [known[0], known[1]]})),
            ]),
            _ => reply_text("all told"),
        }
    });
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    assert_eq!(result.result.as_deref(), Some("all told"), "{result:?}");
    let results = results(&engine, &result);
    let all = &results[3].1["threads"];
    assert_eq!((&all[0]["status"], &all[0]["result"]), (&json!("completed"), &json!("quick is done")), "{results:#?}");
    assert_eq!(all[0]["cost"]["turns"], 1);
    assert_eq!(
        (&all[1]["status"], &all[1]["wait"], &all[1]["result"]),
        (&json!("running"), &json!("running"), &Value::Null)
    );
    assert_eq!((&all[2]["requested"], &all[2]["wait"]), (&json!("test/unknown-1"), &json!("unknown")));
    assert_eq!(results[4].1["threads"].as_array().unwrap().len(), 1);
    assert!(results[5].1.as_str().unwrap().contains("must be a list of at least one thread id"), "{:?}", results[5]);
    let early = &results[6].1;
    assert_eq!((&early["all_finished"], &early["threads"][1]["wait"]), (&json!(false), &json!("timed_out")));
    assert_eq!(results[8].1["all_finished"], true);
    let late = &results[9].1["threads"];
    assert_eq!((&late[0]["result"], &late[1]["status"]), (&json!("quick is done"), &json!("cancelled")));
    assert_eq!(late[1]["error"]["code"], "cancelled");
}

#[tokio::test]
async fn wait_follows_the_handoff_of_a_child() {
    let lab = family(|request, turn| {
        let known = ids(request, "thread_id");
        match turn {
            0 => calls(&[start("endless"), start("quick")]),
            1 => calls(&[
                ask("handoff_thread", json!({"thread_id": known[0]})),
                // The call names the first id of the chain, and the wait follows the continuation.
                ask("wait_threads", json!({"thread_id": known[0]})),
                ask("get_status", json!({"thread_id": known[0]})),
                ask("get_chain", json!({"thread_id": known[0]})),
                ask("wait_threads", json!({"thread_id": known[1]})),
                // An ended thread is handed off at once, into a child of the caller.
                ask("handoff_thread", json!({"thread_id": known[1]})),
                ask("handoff_thread", json!({"thread_id": "test/unknown-1"})),
            ]),
            2 => calls(&[ask("wait_threads", json!({"thread_id": known[1]}))]),
            _ => reply_text("all told"),
        }
    });
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    assert_eq!(result.result.as_deref(), Some("all told"), "{result:?}");
    let results = results(&engine, &result);
    assert_eq!(results[2].1["handoff"], "after this turn", "{results:#?}");
    let (first, waited) = (&results[2].1["thread_id"], &results[3].1["threads"][0]);
    assert_eq!((&waited["requested"], &waited["result"]), (first, &json!("test/endless went on")), "{results:#?}");
    assert_ne!(&waited["thread_id"], first);
    assert_eq!((&results[4].1["thread_id"], &results[4].1["continues"]), (&waited["thread_id"], first));
    let chain = results[5].1["chain"].as_array().unwrap();
    let told_chain: Vec<(&Value, &Value)> = chain.iter().map(|row| (&row["thread_id"], &row["status"])).collect();
    assert_eq!(told_chain, [(first, &json!("continued")), (&waited["thread_id"], &json!("completed"))]);
    assert_eq!(results[7].1["status"], "running", "{results:#?}");
    assert!(results[8].1.as_str().unwrap().contains("no such thread"), "{results:#?}");
    let last = &results[9].1["threads"][0];
    assert_eq!((&last["thread_id"], &last["result"]), (&results[7].1["thread_id"], &json!("quick is done")));
    engine.wait_idle().await;
    let rows = engine.threads().list().unwrap();
    assert!(rows.iter().all(|listed| listed.row.root == thread(&result)));
    let next = rows.iter().find(|listed| json!(listed.row.id) == results[7].1["thread_id"]).unwrap();
    assert_eq!(next.row.parent, Some(thread(&result)), "it runs below who asked for it");
}

#[tokio::test]
async fn a_thread_hands_itself_over() {
    let lab = family(|request, turn| match turn {
        0 => calls(&[ask("list_active", json!({}))]),
        1 => calls(&[ask("handoff_thread", json!({"thread_id": ids(request, "thread_id")[0]}))]),
        _ => reply_text("it never came to this"),
    });
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("test/parent went on")));
    assert_eq!(engine.threads().chain(&thread(&result)).unwrap().len(), 2);
}

#[tokio::test]
async fn cancelled_thread_stops_waiting() {
    let lab = family(|request, turn| {
        if turn == 0 {
            return calls(&[("rye_file_system_read", json!({"path": "other.txt"}))]);
        }
        let seen = serde_json::to_string(&request.turns).unwrap();
        let at = seen.find("test/endless-").unwrap();
        let other = seen[at..].split(['"', '\\', ' ']).next().unwrap();
        calls(&[ask("wait_threads", json!({"thread_id": other}))])
    });
    let engine = lab.engine();
    // This thread is outside the caller's tree and does not end with the caller.
    let other = lab.start(&engine, "endless").await;
    lab.write("other.txt", &format!("{} \n", other.thread_id));
    let mut handle = lab.start(&engine, "parent").await;
    until_it_waits(&mut handle).await;
    handle.send(ControlMessage::Cancel);
    let result = tokio::time::timeout(Duration::from_secs(20), handle.join()).await.unwrap();
    assert_eq!(result.status, Status::Cancelled);
    let waited = results(&engine, &result).pop().unwrap();
    assert_eq!(waited.1, json!("orchestrator: stopped: the thread was cancelled"));
    other.kill();
    assert_eq!(other.join().await.status, Status::Killed);
}

/// Waits until a call of the orchestrator runs.
async fn until_it_waits(handle: &mut crate::engine::ThreadHandle) {
    while let Some(live) = handle.live.next().await {
        if let StreamEvent::Event { event, .. } = &live
            && matches!(&event.body, EventBody::ToolStarted(started) if started.name.ends_with("orchestrator"))
        {
            return;
        }
    }
    panic!("it never waited");
}

#[test]
fn read_only_operations_are_repeated_after_a_crash() {
    static RELEASED: AtomicBool = AtomicBool::new(false);
    let mut lab = Lab::new(|request| {
        let known = ids(request, "thread_id");
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => calls(&[start("slow")]),
            ("test/parent", 1) => calls(&[ask("wait_threads", json!({"thread_id": known[0]}))]),
            ("test/slow", _) if !RELEASED.load(Ordering::Relaxed) => read(),
            (who, _) => reply_text(&format!("{who} is done")),
        })
    });
    Arc::get_mut(&mut lab.model).unwrap().pause = Duration::from_millis(5);
    lab.write("a.txt", "a\n");
    lab.directive("parent", ORCHESTRA, "");
    lab.directive("slow", "<limits spend=\"0.5\" turns=\"100000\"/>", "");
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The process ends during the wait, so its tasks and its lock are gone.
    let root = {
        let (engine, runtime) = (lab.engine(), runtime());
        runtime.block_on(async {
            let mut handle = lab.start(&engine, "parent").await;
            until_it_waits(&mut handle).await;
            handle.thread_id.clone()
        })
    };
    RELEASED.store(true, Ordering::Relaxed);
    let engine = lab.engine();
    runtime().block_on(async {
        let result = engine.recover(&root).await.unwrap().join().await;
        assert_eq!(result.result.as_deref(), Some("test/parent is done"), "{result:?}");
        let (why, waited) = results(&engine, &result).pop().unwrap();
        assert_eq!((why, &waited["all_finished"]), (ResultKind::Ran, &json!(true)), "{waited:#}");
        assert_eq!(waited["threads"][0]["result"], "test/slow is done");
        let events = engine.threads().transcript(&root).unwrap();
        assert!(names(&events).contains(&"recovered"));
    });
}

#[test]
fn every_operation_declares_its_idempotence() {
    let lab = Lab::new(|_| Ok(reply_text("no request expected")));
    lab.directive("parent", &permit(&["rye.agent.threads.orchestrator"]), "");
    let plan = lab.compile("parent").plan;
    let tool = plan.palette.iter().find(|tool| &*tool.name == "rye_agent_threads_orchestrator").unwrap();
    let operations = tool.schema["properties"]["operation"]["enum"].as_array().unwrap();
    assert_eq!(operations.len(), 11);
    let again = |operation: &&Value| tool.idempotent.covers(&json!({"operation": operation, "thread_id": "a-1"}));
    let never: Vec<&Value> = operations.iter().filter(|operation| !again(operation)).collect();
    // Recovery does not repeat these operations, because each of them starts a thread.
    assert_eq!(never, [&json!("resume_thread"), &json!("handoff_thread")]);
}
