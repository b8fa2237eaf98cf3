//! End-to-end tests of detached tool runs (`async: true`): records, waiting, stopping.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Lab, Status, calls, names, reply_text, thread};
use crate::BoxFuture;
use crate::engine::Engine;
use crate::event::{ControlMessage, EventBody, ResultKind};
use crate::exchange::{CallError, FailedStage};
use crate::message::ContentBlock;
use crate::store::ThreadRow;
use crate::thread::RunResult;
use crate::thread_id::ThreadId;
use crate::tool::{Invocation, Tool, ToolOutcome};

/// A gate at which a tool waits until the test opens it or the run is cancelled.
#[derive(Default)]
pub(super) struct Gate {
    open: AtomicBool,
    started: AtomicBool,
    notify: tokio::sync::Notify,
}

impl Gate {
    pub fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
        self.notify.notify_waiters();
    }

    pub async fn started(&self) {
        while !self.started.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    }
}

pub(super) struct WaitingTool(pub Arc<Gate>);

impl Tool for WaitingTool {
    fn run(&self, mut invocation: Invocation) -> BoxFuture<'_, ToolOutcome> {
        Box::pin(async move {
            self.0.started.store(true, Ordering::SeqCst);
            loop {
                let changed = self.0.notify.notified();
                if self.0.open.load(Ordering::SeqCst) {
                    let by = invocation.thread_id.clone();
                    return ToolOutcome::ok(format!("let go, for {by}"));
                }
                tokio::select! {
                    () = changed => {}
                    () = invocation.halt.cancelled() => return ToolOutcome::error("told to stop"),
                }
            }
        })
    }
}

pub(super) const WAITS: &str = "version: 1.0.0\ncategory: test\ndescription: It waits.\nkind: builtin\nbuiltin: test_waits\n\
                     parameters: { type: object, properties: { n: { type: integer } }, additionalProperties: false }\n";

const ALL: &str = "<permissions><execute><tool>test.*</tool><tool>rye.agent.*</tool><tool>rye.file-system.*</tool></execute>\
                   </permissions>";

/// A tool with a result that is too long for a conversation and that contains a key.
struct LongTool;

const KEY: &str = "sk-ant-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";

impl Tool for LongTool {
    fn run(&self, _: Invocation) -> BoxFuture<'_, ToolOutcome> {
        let lines: String = (0..4_000).map(|n| format!("line {n} of many\n")).collect();
        Box::pin(std::future::ready(ToolOutcome::ok(format!("{KEY}\n{lines}"))))
    }
}

/// A project with these tools, and a parent that replies with `reply` at each turn.
fn lab(
    reply: impl Fn(&crate::exchange::Request, u32) -> Result<Vec<ContentBlock>, CallError> + Send + Sync + 'static,
) -> Lab {
    let lab = Lab::new(move |request| reply(request, request.cue.turn.unwrap()));
    lab.write(".ai/tools/test/waits.yaml", WAITS);
    lab.write(".ai/tools/test/long.yaml", &WAITS.replace("test_waits", "test_long"));
    lab.directive("parent", &format!("<limits spawns=\"4\" depth=\"0\"/>{ALL}"), "");
    lab
}

pub(super) fn engine(lab: &Lab, gate: &Arc<Gate>) -> Engine {
    let (mut options, gate) = (lab.options(), Arc::clone(gate));
    options.tools.add("test_long", |_| Arc::new(LongTool));
    options.tools.add("test_waits", move |_| Arc::new(WaitingTool(Arc::clone(&gate))));
    Engine::open(&lab.path(), options).unwrap()
}

fn async_call(item: &str, parameters: &Value) -> (&'static str, Value) {
    ("rye_execute", json!({"item_type": "tool", "item_id": item, "parameters": parameters, "async": true}))
}

fn ask(operation: &str, mut given: Value) -> (&'static str, Value) {
    given["operation"] = operation.into();
    ("rye_agent_threads_orchestrator", given)
}

/// Returns the results of a thread's calls, in order.
fn results(engine: &Engine, thread: &ThreadId) -> Vec<(ResultKind, String)> {
    let events = engine.threads().transcript(thread).unwrap();
    let result = |event: crate::event::Event| match event.body {
        EventBody::ToolCallResult(result) => Some((result.turn, result.index, result.why, result.content)),
        _ => None,
    };
    let mut results: Vec<_> = events.into_iter().filter_map(result).collect();
    results.sort_by_key(|(turn, index, ..)| (*turn, *index));
    results.into_iter().map(|(_, _, why, text)| (why, text)).collect()
}

/// Returns the thread ids in the results so far.
fn ids(request: &crate::exchange::Request) -> Vec<String> {
    let seen = serde_json::to_string(&request.turns).unwrap();
    let parts = seen.split("\\\"thread_id\\\":\\\"").skip(1);
    parts.map(|part| part.split("\\\"").next().unwrap().to_owned()).collect()
}

fn runs(engine: &Engine) -> Vec<ThreadRow> {
    let rows = engine.threads().list().unwrap().into_iter().map(|listed| listed.row);
    rows.filter(|row| row.tool.is_some()).collect()
}

pub(super) async fn quiet(engine: &Engine) {
    tokio::time::timeout(Duration::from_secs(20), engine.wait_idle()).await.unwrap();
}

#[tokio::test]
async fn detached_tool_returns_at_once_and_can_be_awaited() {
    let gate = Arc::new(Gate::default());
    let (opens, started) = (Arc::clone(&gate), Arc::clone(&gate));
    let lab = lab(move |request, turn| {
        Ok(match turn {
            0 => calls(&[async_call("test/waits", &json!({"n": 1}))]),
            1 => calls(&[ask("get_status", json!({"thread_id": ids(request)[0]})), ask("list_active", json!({}))]),
            2 => {
                opens.open();
                calls(&[ask("wait_threads", json!({"thread_id": ids(request)[0]}))])
            }
            _ => reply_text("done"),
        })
    });
    let engine = engine(&lab, &gate);
    let result = lab.run(&engine, "parent").await;
    started.started().await;
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("done")), "{result:?}");
    let results = results(&engine, &thread(&result));
    let first: Value = serde_json::from_str(&results[0].1).unwrap();
    assert_eq!(
        (&results[0].0, &first["status"], &first["pid"]),
        (&ResultKind::Ran, &json!("running"), &json!(std::process::id()))
    );
    let id = first["thread_id"].as_str().unwrap();
    // The id is a UUID of version 7: `xxxxxxxx-xxxx-7xxx-xxxx-xxxxxxxxxxxx`.
    let parts: Vec<usize> = id.split('-').map(str::len).collect();
    assert_eq!((parts.as_slice(), &id[14..15]), ([8, 4, 4, 4, 12].as_slice(), "7"), "{id}");
    let status: Value = serde_json::from_str(&results[1].1).unwrap();
    assert_eq!(
        (&status["tool"], &status["status"], &status["directive"], &status["parent"]),
        (&json!("test/waits"), &json!("running"), &json!("test/parent"), &json!(result.thread_id))
    );
    let active: Value = serde_json::from_str(&results[2].1).unwrap();
    assert_eq!(active["threads"].as_array().unwrap().len(), 2, "{active:#}");
    let waited: Value = serde_json::from_str(&results[3].1).unwrap();
    let of_tool = &waited["threads"][0];
    assert_eq!(
        (&waited["all_finished"], &of_tool["status"], &of_tool["success"]),
        (&json!(true), &json!("completed"), &json!(true))
    );
    // The tool sees the id of its caller.
    assert_eq!(of_tool["result"], json!(format!("let go, for {}", result.thread_id)));
    quiet(&engine).await;
    let rows = runs(&engine);
    assert_eq!((rows.len(), rows[0].status, rows[0].spawn), (1, Status::Completed, Some(1)));
    let account = engine.account(&rows[0].id).unwrap().unwrap();
    assert_eq!(account.status(), rye_compiler::semantics::ledger::AccountStatus::Released);
    let events = engine.threads().transcript(&rows[0].id).unwrap();
    assert_eq!(names(&events), ["opened", "plan_bound", "tool_started", "tool_call_result", "ended"]);
    let above = names(&engine.threads().transcript(&thread(&result)).unwrap());
    assert_eq!(above.iter().filter(|name| **name == "child_ended").count(), 1, "{above:?}");
}

#[tokio::test]
async fn detached_tool_ends_with_its_parent_as_the_policy_says() {
    for (policy, fails, ends) in
        [("wait", false, Status::Completed), ("cancel", false, Status::Cancelled), ("wait", true, Status::Cancelled)]
    {
        let gate = Arc::new(Gate::default());
        let lab = lab(move |_, turn| match turn {
            0 => Ok(calls(&[async_call("test/waits", &json!({}))])),
            _ if fails => Err(CallError::new(FailedStage::Setup, "no key")),
            _ => Ok(reply_text("done")),
        });
        lab.write(".ai/config/agent/resilience.yaml", &format!("child_policy: {{ on_end: {policy} }}\n"));
        let engine = engine(&lab, &gate);
        let result = lab.run(&engine, "parent").await;
        assert_eq!(result.status, if fails { Status::Error } else { Status::Completed });
        if ends == Status::Completed {
            gate.started().await;
            assert_eq!(runs(&engine)[0].status, Status::Running, "it outlives the thread that called it");
            gate.open();
        }
        quiet(&engine).await;
        assert_eq!(runs(&engine)[0].status, ends, "{policy} {fails}");
    }
}

#[tokio::test]
async fn detached_tool_can_be_stopped_by_caller_and_others() {
    for (operation, status) in [("cancel_thread", Status::Cancelled), ("kill_thread", Status::Killed)] {
        let gate = Arc::new(Gate::default());
        let lab = lab(move |request, turn| {
            Ok(match turn {
                0 => calls(&[async_call("test/waits", &json!({}))]),
                1 => calls(&[ask(operation, json!({"thread_id": ids(request)[0]}))]),
                2 => calls(&[ask("wait_threads", json!({"thread_id": ids(request)[0]}))]),
                _ => reply_text("done"),
            })
        });
        let engine = engine(&lab, &gate);
        let result = lab.run(&engine, "parent").await;
        let waited: Value = serde_json::from_str(&results(&engine, &thread(&result))[2].1).unwrap();
        assert_eq!(waited["threads"][0]["status"], status.as_str(), "{waited:#}");
        quiet(&engine).await;
        assert_eq!(runs(&engine)[0].status, status);
    }
}

#[tokio::test]
async fn invalid_detached_call_fails_at_once_without_a_run() {
    let gate = Arc::new(Gate::default());
    let lab = lab(move |_, turn| {
        Ok(match turn {
            0 => calls(&[
                async_call("test/nowhere", &json!({})),
                async_call("test/waits", &json!({"n": "one"})),
                async_call("rye/agent/threads/state", &json!({"operation": "get"})),
            ]),
            _ => reply_text("done"),
        })
    });
    let engine = engine(&lab, &gate);
    let result = lab.run(&engine, "parent").await;
    let results = results(&engine, &thread(&result));
    for ((why, text), expected) in results.iter().zip(["unknown tool `test/nowhere`", "n", "leave `async` out"]) {
        assert_eq!(*why, ResultKind::Refused, "{text}");
        assert!(text.contains(expected), "{text}");
    }
    assert!(runs(&engine).is_empty());
    assert_eq!(result.status, Status::Completed);
}

#[tokio::test]
async fn long_detached_result_is_truncated_in_the_transcript_only() {
    const KEY: &str =
        "sk-ant-api03-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let gate = Arc::new(Gate::default());
    let lab = lab(move |request, turn| {
        Ok(match turn {
            0 => calls(&[async_call("test/long", &json!({}))]),
            1 => calls(&[ask("wait_threads", json!({"thread_id": ids(request)[0]}))]),
            _ => reply_text("done"),
        })
    });
    let engine = engine(&lab, &gate);
    let result = lab.run(&engine, "parent").await;
    quiet(&engine).await;
    let id = runs(&engine)[0].id.clone();
    let events = engine.threads().transcript(&id).unwrap();
    let recorded = serde_json::to_string(&events.iter().map(|event| &event.body).collect::<Vec<_>>()).unwrap();
    assert!(recorded.len() < 70_000 && recorded.contains("omitted"), "{}", recorded.len());
    assert!(!recorded.contains(KEY), "masked like any result");
    let whole = engine.threads().result(&id).unwrap().unwrap().result.unwrap();
    assert!(whole.contains("line 3999 of many") && whole.contains("line 1999 of many") && !whole.contains(KEY));
    // A waiting thread gets a bounded result, and can read the whole result, as the tool returned it, in pages.
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    let waited = events.iter().find_map(|event| event.body.shortened_result());
    let (content, object) = waited.unwrap();
    assert!(content.contains(object) && content.len() < 33_000);
}

#[tokio::test]
async fn detached_tool_run_cannot_be_continued_or_steered() {
    let gate = Arc::new(Gate::default());
    let opens = Arc::clone(&gate);
    let lab = lab(move |request, turn| {
        Ok(match turn {
            0 => calls(&[async_call("test/waits", &json!({}))]),
            1 => calls(&[ask("handoff_thread", json!({"thread_id": ids(request)[0]}))]),
            2 => {
                opens.open();
                calls(&[ask("wait_threads", json!({"thread_id": ids(request)[0]}))])
            }
            3 => calls(&[
                ask("handoff_thread", json!({"thread_id": ids(request)[0]})),
                ask("resume_thread", json!({"thread_id": ids(request)[0], "message": "and then?"})),
            ]),
            _ => reply_text("done"),
        })
    });
    let engine = engine(&lab, &gate);
    let result = lab.run(&engine, "parent").await;
    let results = results(&engine, &thread(&result));
    for at in [1, 3, 4] {
        assert!(results[at].1.contains("is a run of the tool `test/waits`"), "{results:?}");
    }
    let id = runs(&engine)[0].id.clone();
    let error = engine.resume(&id, "and now?").await.err().unwrap().to_string();
    assert!(error.contains("is a run of the tool `test/waits`"), "{error}");
}

#[tokio::test]
async fn detached_tools_beyond_the_limit_are_queued() {
    let gate = Arc::new(Gate::default());
    let lab = lab(move |_, turn| {
        Ok(match turn {
            0 => calls(&[async_call("test/waits", &json!({"n": 1})), async_call("test/waits", &json!({"n": 2}))]),
            _ => reply_text("done"),
        })
    });
    lab.write(".ai/config/agent/resilience.yaml", "concurrency: { max_concurrent_children: 1 }\n");
    let engine = engine(&lab, &gate);
    lab.run(&engine, "parent").await;
    gate.started().await;
    let started = |row: &ThreadRow| names(&engine.threads().transcript(&row.id).unwrap()).contains(&"tool_started");
    assert_eq!(runs(&engine).iter().filter(|row| started(row)).count(), 1, "the other one is in the queue");
    // A queued run ends as soon as it is cancelled.
    let queued = runs(&engine).into_iter().find(|row| !started(row)).unwrap();
    assert!(engine.send_to(&queued.id, &ControlMessage::Cancel));
    gate.open();
    quiet(&engine).await;
    let ended: Vec<(bool, Status)> = runs(&engine).iter().map(|row| (row.id == queued.id, row.status)).collect();
    assert!(ended.contains(&(true, Status::Cancelled)) && ended.contains(&(false, Status::Completed)), "{ended:?}");
}

#[test]
fn recovery_interrupts_a_detached_tool_of_a_dead_process() {
    let gate = Arc::new(Gate::default());
    let lab = lab(move |request, turn| {
        Ok(match turn {
            0 => calls(&[async_call("test/waits", &json!({}))]),
            1 => calls(&[ask("wait_threads", json!({"thread_id": ids(request)[0]}))]),
            _ => reply_text("done"),
        })
    });
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let root = {
        let (engine, runtime) = (engine(&lab, &gate), runtime());
        runtime.block_on(async {
            let handle = lab.start(&engine, "parent").await;
            gate.started().await;
            handle.thread_id.clone()
        })
    };
    // The tool is not idempotent, so recovery does not run it again.
    let gate = Arc::new(Gate::default());
    let engine = engine(&lab, &gate);
    runtime().block_on(async {
        let result: RunResult = engine.recover(&root).await.unwrap().join().await;
        assert_eq!(result.status, Status::Completed, "{result:?}");
        quiet(&engine).await;
        let of_tool = engine.threads().result(&runs(&engine)[0].id).unwrap().unwrap();
        assert_eq!((of_tool.status, of_tool.error.unwrap().code.as_str()), (Status::Error, "interrupted"));
        assert!(!gate.started.load(Ordering::SeqCst));
    });
}

#[tokio::test]
async fn repair_restores_detached_tool_runs() {
    let gate = Arc::new(Gate::default());
    gate.open();
    let lab = lab(move |_, turn| {
        Ok(if turn == 0 { calls(&[async_call("test/waits", &json!({}))]) } else { reply_text("done") })
    });
    let before = {
        let engine = engine(&lab, &gate);
        lab.run(&engine, "parent").await;
        quiet(&engine).await;
        runs(&engine)
    };
    std::fs::remove_file(lab.path().join(".ai/state/threads/registry.redb")).unwrap();
    crate::threads::Threads::repair(&lab.path()).unwrap();
    let engine = engine(&lab, &gate);
    let after = runs(&engine);
    let plain = |row: &ThreadRow| (row.id.clone(), row.tool.clone(), row.status, row.parent.clone(), row.spawn);
    assert_eq!(after.iter().map(plain).collect::<Vec<_>>(), before.iter().map(plain).collect::<Vec<_>>());
    assert_eq!(after[0].tool.as_deref(), Some("test/waits"));
    let verified = engine.threads().verify(&after[0].id, &crate::keys::TrustStore::default()).unwrap();
    assert!(verified.faults.is_empty(), "{verified:?}");
}
