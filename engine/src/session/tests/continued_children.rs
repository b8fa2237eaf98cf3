//! Asynchronous children that are alive when a thread is continued: the continuation counts their costs, and gets the
//! rest of their reservations.

use std::sync::Arc;
use std::time::Duration;

use rye_compiler::compile::{Compilation, CompileRequest, compile};
use rye_compiler::plan::PlanMode;
use rye_grammar::ItemId;
use serde_json::{Map, Value, json};

use super::async_tools::{self, Gate};
use super::{Lab, calls, permit, reply_text};
use crate::context::{StartOptions, ThreadHandle};
use crate::engine::Engine;
use crate::event::{ControlMessage, Delivery, EventBody, Opened};
use crate::exchange::Usage;
use crate::keys::TrustStore;
use crate::store::ThreadRow;
use crate::thread::Status;
use crate::thread_id::ThreadId;

/// The reservation of the child.
const RESERVED: u64 = 200_000_000;

/// Returns a project whose model starts an asynchronous child in its first turn. The child calls a tool that waits at
/// the gate.
fn lab() -> Lab {
    let start = ("rye_execute", json!({"item_type": "directive", "item_id": "test/part", "async": true}));
    let mut lab = Lab::new(move |request| {
        let is_answered = request.turns.last().is_some_and(|turn| turn.kind() == "tool_result");
        let has_child = !request.cue.children.is_empty();
        Ok(match request.cue.directive.as_str() {
            "test/part" if !is_answered => calls(&[("test_waits", json!({}))]),
            "test/part" => reply_text("late"),
            _ if !has_child => calls(std::slice::from_ref(&start)),
            "test/run" if request.first_turn_constant => calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]),
            "test/run" if !is_answered => {
                let wait = json!({"operation": "wait_threads", "thread_id": request.cue.children[0].thread_id});
                calls(&[("rye_agent_threads_orchestrator", wait)])
            }
            _ => reply_text("done"),
        })
    });
    Arc::get_mut(&mut lab.model).unwrap().usage = Usage { input: 4_000, output: 10, cache_read: 0, cache_write: 0 };
    lab.write(".ai/tools/test/waits.yaml", async_tools::WAITS);
    lab.write("a.txt", &"a line of some length that repeats\n".repeat(3000));
    lab.write(".ai/config/agent/coordination.yaml", "continuation: { trigger_threshold: 0.05 }\n");
    let grants = "<permissions><execute><directive>*</directive><tool>test.*</tool><tool>rye.agent.*</tool>\
                  <tool>rye.file-system.read</tool></execute></permissions>";
    let limits = "<limits turns=\"9\" spend=\"1.00\" spawns=\"2\" depth=\"2\"/>";
    lab.directive("talk", &format!("{limits}<session spend=\"3\"/>{grants}"), "");
    lab.directive("run", &format!("{limits}{grants}"), "");
    lab.directive("part", &format!("<limits turns=\"4\" spend=\"0.2\"/>{}", permit(&["test.*"])), "");
    lab
}

fn plan(lab: &Lab, mode: PlanMode) -> Compilation {
    let world = (lab.options().world)().unwrap();
    let mut request = CompileRequest::new(ItemId::parse("test/talk").unwrap()).with_inputs(Map::new());
    request.mode = mode;
    compile(&*world, &request).value.unwrap()
}

fn rows(engine: &Engine) -> Vec<ThreadRow> {
    let mut rows: Vec<ThreadRow> = engine.threads().list().unwrap().into_iter().map(|listed| listed.row).collect();
    rows.sort_by_key(|row| (row.created_at, row.continues.is_some()));
    rows
}

fn opened(engine: &Engine, thread: &ThreadId) -> Opened {
    let events = engine.threads().transcript(thread).unwrap();
    events
        .iter()
        .find_map(|event| if let EventBody::Opened(opened) = &event.body { Some((**opened).clone()) } else { None })
        .unwrap()
}

fn reserved(engine: &Engine, thread: &ThreadId) -> u64 {
    engine.account(thread).unwrap().unwrap().reserved().to_u64()
}

fn spent(engine: &Engine, thread: &ThreadId) -> u64 {
    engine.account(thread).unwrap().unwrap().spent().to_u64()
}

async fn until(what: &str, is_true: impl Fn() -> bool) {
    tokio::time::timeout(Duration::from_mins(1), async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{what}"));
}

async fn wait_idle(handle: &ThreadHandle, prompts: u64) {
    let is_idle = || {
        handle.control().live_state().is_some_and(|live| {
            let chat = live.state.chat.as_ref().unwrap();
            live.state.is_idle() && chat.prompts == prompts && chat.queue.is_empty() && chat.successor.is_none()
        })
    };
    until("the session becomes idle", is_idle).await;
}

async fn prompt(handle: &ThreadHandle, text: &str, number: u64) {
    handle.control().submit(text.into(), Delivery::Prompt).unwrap();
    wait_idle(handle, number).await;
}

fn child_of(engine: &Engine) -> ThreadRow {
    rows(engine).into_iter().find(|row| row.directive == "test/part").unwrap()
}

/// Removes the registry, rebuilds it from the transcripts, and checks that the accounts of all threads are the same.
fn assert_repaired_accounts_are_equal(lab: &Lab, engine: Engine) {
    let before: Vec<Value> =
        rows(&engine).iter().map(|row| serde_json::to_value(engine.account(&row.id).unwrap()).unwrap()).collect();
    drop(engine);
    std::fs::remove_file(lab.path().join(".ai/state/threads/registry.redb")).unwrap();
    let repaired = crate::threads::Threads::repair(&lab.path()).unwrap();
    assert!(repaired.refused.is_empty(), "{repaired:?}");
    let engine = lab.engine();
    let after: Vec<Value> =
        rows(&engine).iter().map(|row| serde_json::to_value(engine.account(&row.id).unwrap()).unwrap()).collect();
    assert_eq!(after, before);
}

#[tokio::test]
async fn session_that_continues_in_another_thread_gets_the_rest_of_a_living_childs_reservation() {
    let (lab, gate) = (lab(), Arc::new(Gate::default()));
    let engine = async_tools::engine(&lab, &gate);
    let handle = engine.start(&plan(&lab, PlanMode::Chat), StartOptions::default()).await.unwrap();
    prompt(&handle, "one", 1).await;
    gate.started().await;
    // Two forks while the child is alive. After each fork, the limit of the session contains the reservation of the
    // child.
    for _ in 0..2 {
        let count = rows(&engine).len();
        let thread = rows(&engine).last().map(|row| row.id.to_string());
        let thread = thread.filter(|_| count > 2).unwrap_or_else(|| handle.thread_id.to_string());
        handle.send(ControlMessage::Fork { prompt: 2, thread: Some(thread) });
        until("the session continues in another thread", || rows(&engine).len() > count).await;
        wait_idle(&handle, 1).await;
    }
    let sessions: Vec<ThreadRow> = rows(&engine).into_iter().filter(|row| row.directive == "test/talk").collect();
    let [first, second, third] = &sessions[..] else { panic!("{sessions:?}") };
    let rest = 3_000_000_000 - first.cost.spend;
    for row in [second, third] {
        assert_eq!(opened(&engine, &row.id).limits.spend, rest);
    }
    assert_eq!((first.cost.outstanding, second.cost.outstanding), (0, 0), "the child counts in the last thread");
    assert_eq!(reserved(&engine, &third.id), rest - RESERVED);
    gate.open();
    let has_ended = || handle.control().live_state().is_some_and(|live| live.state.living_children().count() == 0);
    until("the child ends", has_ended).await;
    prompt(&handle, "two", 2).await;
    until("the account has the cost of the reply", || spent(&engine, &third.id) > 0).await;
    let child = child_of(&engine);
    assert!(child.status == Status::Completed && child.cost.spend > 0, "{child:?}");
    assert_eq!(reserved(&engine, &third.id), rest - child.cost.spend, "the rest of the reservation is back");
    let live = handle.control().live_state().unwrap();
    let own = spent(&engine, &third.id);
    assert_eq!(live.state.cost.spend, own + child.cost.spend, "the session counts the cost of the child");
    assert_eq!(live.state.remaining_limits().spend, rest - own - child.cost.spend);
    handle.send(ControlMessage::Close);
    assert_eq!(handle.join().await.status, Status::Idle);
    let sessions = crate::session_tree::session_rows(&engine.threads(), &third.id).unwrap();
    assert_eq!(engine.threads().chain_cost(&sessions).unwrap().spend, first.cost.spend + own + child.cost.spend);
    assert_repaired_accounts_are_equal(&lab, engine);
}

#[tokio::test]
async fn run_that_is_handed_off_gets_the_rest_of_a_living_childs_reservation() {
    let (lab, gate) = (lab(), Arc::new(Gate::default()));
    let engine = async_tools::engine(&lab, &gate);
    let handle = lab.start(&engine, "run").await;
    let is_handed_off = || rows(&engine).iter().any(|row| row.status == Status::Continued);
    until("the run is handed off", is_handed_off).await;
    gate.open();
    let result = handle.join().await;
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("done")), "{result:?}");
    async_tools::quiet(&engine).await;
    let child = child_of(&engine);
    let runs: Vec<ThreadRow> = rows(&engine).into_iter().filter(|row| row.directive == "test/run").collect();
    let [first, next] = &runs[..] else { panic!("{runs:?}") };
    let rest = 1_000_000_000 - first.cost.spend;
    assert_eq!(opened(&engine, &next.id).limits.spend, rest);
    assert_eq!(reserved(&engine, &next.id), rest - child.cost.spend);
    assert_eq!(next.cost.spend, spent(&engine, &next.id) + child.cost.spend);
    assert_eq!(engine.threads().run_cost(&next.id).unwrap().spend, first.cost.spend + next.cost.spend);
    let ids: Vec<ThreadId> = rows(&engine).into_iter().map(|row| row.id).collect();
    for verified in engine.threads().verify_all(&ids, &TrustStore::default()).unwrap() {
        assert!(verified.faults.is_empty(), "{:?}", verified.faults);
    }
    assert_repaired_accounts_are_equal(&lab, engine);
}
