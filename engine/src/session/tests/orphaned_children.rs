//! Tests of children that outlive their parents: they keep their reservations until they end, also across a handoff.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rye_compiler::semantics::ledger::AccountStatus;
use serde_json::json;

use super::{Lab, Status, async_tools, calls, reply_text, thread};
use crate::engine::Engine;
use crate::event::{EventBody, Opened};
use crate::exchange::{Request, Usage};
use crate::keys::TrustStore;
use crate::message::ContentBlock;
use crate::store::{RealDisk, ThreadRow, owner};
use crate::thread_id::ThreadId;

const DIRECTIVES: &str =
    "<permissions><execute><directive>test.*</directive><tool>rye.file-system.read</tool></execute></permissions>";

fn start_async(directive: &str) -> (&'static str, serde_json::Value) {
    ("rye_execute", json!({"item_type": "directive", "item_id": directive, "async": true}))
}

/// The replies in the last thread of the tree: the thread reads until its context is full, and its continuation
/// replies.
fn hands_over(request: &Request) -> Vec<ContentBlock> {
    let seen = serde_json::to_string(&request.turns).unwrap();
    if seen.contains("Continue where you left off") || seen.contains("continu") {
        return reply_text("at last");
    }
    calls(&[("rye_file_system_read", json!({"path": "a.txt"}))])
}

/// The gate of the first call of `test/low`: a message opens it; a dropped sender ends the task.
struct FirstCallGate {
    opened: Mutex<Receiver<()>>,
    passed: AtomicBool,
}

/// A lab in which `test/low` is handed off after its first turn, which waits for the gate. Each thread in `above`
/// starts the next one, and the last one starts `test/low`. The threads in `above` end without waiting for their
/// children.
fn lab(above: &'static [&'static str]) -> (Lab, Sender<()>) {
    let (open, opened) = channel();
    let gate = FirstCallGate { opened: Mutex::new(opened), passed: AtomicBool::new(false) };
    let mut lab = Lab::new(move |request| {
        let who = request.cue.directive.as_str();
        let Some(at) = above.iter().position(|name| *name == who) else {
            if !gate.passed.swap(true, Ordering::Relaxed) {
                // Without `block_in_place`, the blocked worker would keep the task that it woke last, and no other
                // worker could run that task.
                let opened = tokio::task::block_in_place(|| gate.opened.lock().unwrap().recv());
                opened.expect("the task of the child ends here");
            }
            return Ok(hands_over(request));
        };
        let below = above.get(at + 1).copied().unwrap_or("test/low");
        Ok(if request.cue.turn == Some(0) { calls(&[start_async(below)]) } else { reply_text("done") })
    });
    Arc::get_mut(&mut lab.model).unwrap().usage = Usage { input: 4_000, output: 10, cache_read: 0, cache_write: 0 };
    lab.write("a.txt", &"a line of some length that repeats\n".repeat(3000));
    lab.write(".ai/config/agent/coordination.yaml", "continuation: { trigger_threshold: 0.05 }\n");
    for (at, name) in above.iter().enumerate() {
        let spend = 8 - at;
        lab.directive(name.trim_start_matches("test/"), &format!("<limits spend=\"{spend}\"/>{DIRECTIVES}"), "");
    }
    lab.directive("low", &format!("<limits spend=\"0.5\"/>{DIRECTIVES}"), "");
    (lab, open)
}

fn rows(engine: &Engine) -> Vec<ThreadRow> {
    engine.threads().list().unwrap().into_iter().map(|listed| listed.row).collect()
}

fn opened(engine: &Engine, thread: &ThreadId) -> Opened {
    let events = engine.threads().transcript(thread).unwrap();
    events.into_iter().find_map(|e| if let EventBody::Opened(opened) = e.body { Some(*opened) } else { None }).unwrap()
}

/// Waits until the tree has ended. Returns the thread that was handed off and its continuation.
async fn handed_off(engine: &Engine) -> (ThreadRow, ThreadRow) {
    async_tools::quiet(engine).await;
    let rows = rows(engine);
    let first = rows.iter().find(|row| row.status == Status::Continued).unwrap_or_else(|| panic!("{rows:#?}"));
    let next = rows.iter().find(|row| Some(&row.id) == first.continued_by.as_ref()).unwrap();
    assert!(rows.iter().all(|row| row.id == first.id || row.status == Status::Completed), "{rows:#?}");
    (first.clone(), next.clone())
}

/// Drops the engine, and waits until the store is closed. The last task that ends closes the store, even after the
/// engine was dropped.
async fn release(engine: Engine, lab: &Lab) {
    drop(engine);
    let disk = RealDisk::open(&lab.path()).unwrap();
    for _ in 0..2_000 {
        if owner::live_owners(&disk).unwrap().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("a task still holds the store");
}

/// Returns the faults that a verification of all threads finds.
fn faults(engine: &Engine) -> Vec<String> {
    let ids: Vec<ThreadId> = rows(engine).into_iter().map(|row| row.id).collect();
    let found = engine.threads().verify_all(&ids, &TrustStore::default()).unwrap();
    found.into_iter().flat_map(|one| one.faults).map(|fault| fault.reason).collect()
}

/// Checks that every account is closed and that the root has paid for the whole tree.
fn assert_settled(engine: &Engine, root: &ThreadId) {
    for row in rows(engine) {
        assert_eq!(engine.account(&row.id).unwrap().unwrap().status(), AccountStatus::Released, "{}", row.id);
    }
    let spent: u64 = rows(engine).iter().map(|row| row.cost.spend).sum();
    assert_eq!(engine.account(root).unwrap().unwrap().spent().to_u64(), spent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn async_child_that_outlives_its_root_and_hands_over_keeps_its_reservation() {
    let (lab, gate) = lab(&["test/root"]);
    let engine = lab.engine();
    let result = lab.run(&engine, "root").await;
    assert_eq!(result.status, Status::Completed);
    let root = thread(&result);
    gate.send(()).unwrap();
    let (first, next) = handed_off(&engine).await;
    assert_eq!(opened(&engine, &next.id).limits.spend, 500_000_000 - first.cost.spend);
    assert_eq!((next.parent.as_ref(), &next.root), (Some(&root), &root));
    assert_settled(&engine, &root);
    release(engine, &lab).await;
    std::fs::remove_file(lab.path().join(".ai/state/threads/registry.redb")).unwrap();
    let repaired = crate::threads::Threads::repair(&lab.path()).unwrap();
    assert!(repaired.refused.is_empty(), "{repaired:?}");
    assert_settled(&lab.engine(), &root);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn grandchild_that_outlives_its_ancestors_and_hands_over_keeps_its_reservation() {
    let (lab, gate) = lab(&["test/root", "test/middle"]);
    let engine = lab.engine();
    let result = lab.run(&engine, "root").await;
    let root = thread(&result);
    let middle = rows(&engine).into_iter().find(|row| row.directive == "test/middle").unwrap();
    tokio::time::timeout(Duration::from_secs(20), async {
        while !engine.threads().show(&middle.id).unwrap().unwrap().row.status.has_ended() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    gate.send(()).unwrap();
    let (first, next) = handed_off(&engine).await;
    assert_eq!(opened(&engine, &next.id).limits.spend, 500_000_000 - first.cost.spend);
    assert_eq!(engine.account(&next.id).unwrap().unwrap().parent(), Some(middle.id.as_str()));
    assert_settled(&engine, &root);
    assert_eq!(faults(&engine), Vec::<String>::new());
    release(engine, &lab).await;
    std::fs::remove_file(lab.path().join(".ai/state/threads/registry.redb")).unwrap();
    let repaired = crate::threads::Threads::repair(&lab.path()).unwrap();
    assert!(repaired.refused.is_empty(), "{repaired:?}");
    assert_settled(&lab.engine(), &root);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn child_resumed_below_an_ended_root_hands_over_with_its_reservation() {
    let (lab, gate) = lab(&["test/root"]);
    let engine = lab.engine();
    let root = thread(&lab.run(&engine, "root").await);
    // The task of the child fails in its first turn.
    drop(gate);
    async_tools::quiet(&engine).await;
    let child = rows(&engine).into_iter().find(|row| row.directive == "test/low").unwrap();
    assert!(!child.status.has_ended() && child.owner.is_none(), "{child:?}");
    let result = engine.resume(&child.id, "").await.unwrap().join().await;
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("at last")), "{result:?}");
    let (first, next) = handed_off(&engine).await;
    assert_eq!(opened(&engine, &next.id).limits.spend, 500_000_000 - first.cost.spend);
    assert_settled(&engine, &root);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn continuation_of_a_root_does_not_get_the_money_of_a_grandchild_that_outlives_its_parent() {
    let (open, opened_gate) = channel::<()>();
    let gate = Mutex::new(opened_gate);
    let mut lab = Lab::new(move |request| {
        let is_first = request.cue.turn == Some(0);
        Ok(match request.cue.directive.as_str() {
            "test/root" if is_first && request.turns.len() == 1 => {
                calls(&[("rye_execute", json!({"item_type": "directive", "item_id": "test/middle"}))])
            }
            "test/root" => hands_over(request),
            "test/middle" if is_first => calls(&[start_async("test/low")]),
            "test/middle" => reply_text("done"),
            _ => {
                let opened = tokio::task::block_in_place(|| gate.lock().unwrap().recv());
                opened.expect("the task of the grandchild ends here");
                reply_text("late")
            }
        })
    });
    Arc::get_mut(&mut lab.model).unwrap().usage = Usage { input: 4_000, output: 10, cache_read: 0, cache_write: 0 };
    lab.write("a.txt", &"a line of some length that repeats\n".repeat(3000));
    lab.write(".ai/config/agent/coordination.yaml", "continuation: { trigger_threshold: 0.05 }\n");
    for (name, spend) in [("root", "8"), ("middle", "7"), ("low", "0.5")] {
        lab.directive(name, &format!("<limits spend=\"{spend}\"/>{DIRECTIVES}"), "");
    }
    let engine = lab.engine();
    let result = lab.run(&engine, "root").await;
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("at last")), "{result:?}");
    open.send(()).unwrap();
    let (first, next) = handed_off(&engine).await;
    assert_eq!((first.directive.as_str(), first.parent.as_ref()), ("test/root", None));
    assert_eq!(opened(&engine, &next.id).limits.spend, 8_000_000_000 - first.cost.spend - 500_000_000);
    let low = rows(&engine).into_iter().find(|row| row.directive == "test/low").unwrap();
    let spent = |thread: &ThreadId| engine.account(thread).unwrap().unwrap().spent().to_u64();
    assert_eq!(spent(&first.id), first.cost.spend + low.cost.spend, "the account of the first thread paid for it");
    assert_eq!(faults(&engine), Vec::<String>::new());
    release(engine, &lab).await;
    std::fs::remove_file(lab.path().join(".ai/state/threads/registry.redb")).unwrap();
    let repaired = crate::threads::Threads::repair(&lab.path()).unwrap();
    assert!(repaired.refused.is_empty(), "{repaired:?}");
    let engine = lab.engine();
    let account = |thread: &ThreadId| engine.account(thread).unwrap().unwrap();
    assert_eq!(account(&first.id).spent().to_u64(), first.cost.spend + low.cost.spend);
    assert_eq!(account(&next.id).reserved().to_u64(), 7_500_000_000 - first.cost.spend);
}
