//! Tests of suspended children: their parents keep running, and the end of a failed parent ends them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rye_compiler::semantics::ledger::AccountStatus;
use serde_json::json;

use super::{Lab, Status, calls, permit, reply_text, thread};
use crate::BoxFuture;
use crate::clock::{Clock, ManualClock};
use crate::context::{ApprovalHandler, ApprovalPolicy, ApprovalRequest};
use crate::engine::Engine;
use crate::event::{Approval, ControlMessage, EventBody};
use crate::exchange::{CallError, FailedStage};
use crate::keys::TrustStore;
use crate::store::registry::repair;
use crate::store::{StoreError, ThreadRow};
use crate::thread_id::ThreadId;

/// The cost of a model call in these tests, in nano-dollars.
const CALL: u64 = 150_000;
/// A duration limit that no test reaches, however far it advances its clock.
const ENDLESS: &str = "duration_seconds=\"1000000000\"";

/// A lab in which `test/child` is suspended at its limit of one turn, while it holds nearly all money of its parent.
/// With `fails`, the parent then fails.
fn lab(fails: bool) -> Lab {
    let lab = Lab::new(move |request| {
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => calls(&[("rye_execute", json!({"item_type": "directive", "item_id": "test/child"}))]),
            ("test/parent", _) if fails => return Err(CallError::new(FailedStage::Setup, "no key")),
            ("test/child", 0) => calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]),
            (who, _) => reply_text(who),
        })
    });
    lab.write("a.txt", "a\n");
    lab.write(".ai/config/agent/hooks.yaml", "hooks:\n  - { id: ask, event: limit, action: { escalate: {} } }\n");
    let directives =
        "<permissions><execute><directive>test.*</directive><tool>rye.file-system.read</tool></execute></permissions>";
    lab.directive("parent", &format!("<limits spend=\"0.05\" output=\"1000\"/>{directives}"), "");
    let child = format!("<limits turns=\"1\" output=\"1000\"/>{}", permit(&["rye.file-system.read"]));
    lab.directive("child", &child, "");
    lab
}

fn child(engine: &Engine) -> ThreadRow {
    let rows = engine.threads().list().unwrap().into_iter().map(|listed| listed.row);
    rows.into_iter().find(|row| row.directive == "test/child").unwrap()
}

fn status(engine: &Engine, thread: &ThreadId) -> AccountStatus {
    engine.account(thread).unwrap().unwrap().status()
}

fn faults(engine: &Engine) -> Vec<String> {
    let ids: Vec<ThreadId> = engine.threads().list().unwrap().into_iter().map(|listed| listed.row.id).collect();
    let verified = engine.threads().verify_all(&ids, &TrustStore::default()).unwrap();
    verified.into_iter().flat_map(|one| one.faults).map(|fault| fault.reason).collect()
}

fn answers() -> Vec<ControlMessage> {
    let raise = ControlMessage::Raise { limit: "turns".into(), value: 9 };
    vec![raise, ControlMessage::Approve { yes: true, question: None, message: None, raises: false }]
}

#[tokio::test]
async fn parent_of_a_suspended_child_runs_with_the_money_that_the_child_does_not_use() {
    let lab = lab(false);
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("test/parent")), "{result:?}");
    let (root, suspended) = (thread(&result), child(&engine));
    assert_eq!(suspended.status, Status::Suspended);
    assert_eq!(
        (status(&engine, &root), status(&engine, &suspended.id)),
        (AccountStatus::Draining, AccountStatus::Suspended)
    );
    assert_eq!(faults(&engine), Vec::<String>::new());
    // The child continues with its whole reservation, and its end closes both accounts.
    let result = engine.recover_with(&suspended.id, answers()).await.unwrap().join().await;
    assert_eq!(result.status, Status::Completed, "{result:?}");
    assert_eq!(
        (status(&engine, &root), status(&engine, &suspended.id)),
        (AccountStatus::Released, AccountStatus::Released)
    );
    assert_eq!(engine.account(&root).unwrap().unwrap().spent().to_u64(), 4 * CALL);
    assert_eq!(faults(&engine), Vec::<String>::new());
}

#[tokio::test]
async fn failed_parent_ends_its_suspended_child_and_a_later_approval_runs_nothing() {
    let lab = lab(true);
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    assert_eq!(result.status, Status::Error, "{result:?}");
    let (root, ended) = (thread(&result), child(&engine));
    assert_eq!(ended.status, Status::Cancelled);
    assert_eq!(
        (status(&engine, &root), status(&engine, &ended.id)),
        (AccountStatus::Released, AccountStatus::Released)
    );
    assert!(engine.recover_with(&ended.id, answers()).await.is_err());
    assert_eq!(faults(&engine), Vec::<String>::new());
}

/// A change between the suspension of a child and the answer to its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    Nothing,
    Restart,
    RestartWithRebuiltRegistry,
}

/// An approver of starts. A request for a call of a tool waits in the queue or, with `is_silent`, for an answer that never
/// arrives.
#[derive(Debug, Default)]
struct AbsentApprover {
    is_silent: bool,
    asked: AtomicUsize,
}

impl ApprovalHandler for AbsentApprover {
    fn ask<'a>(&'a self, request: ApprovalRequest<'a>) -> BoxFuture<'a, Approval> {
        let is_tool = request.call.is_some_and(|call| call.capability.ends_with("test.note"));
        Box::pin(async move {
            if !is_tool {
                return Approval::Preapproved;
            }
            self.asked.fetch_add(1, Ordering::SeqCst);
            if self.is_silent { std::future::pending().await } else { Approval::Suspended }
        })
    }
}

/// A lab in which `test/child` calls a tool that needs an approval.
fn asking_lab() -> Lab {
    let lab = Lab::new(|request| {
        let start = |name: &str| ("rye_execute", json!({"item_type": "directive", "item_id": format!("test/{name}")}));
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => calls(&[start("child")]),
            ("test/group", 0) => calls(&[start("child"), start("other")]),
            ("test/child", 0) => calls(&[("test_note", json!({}))]),
            (who, _) => reply_text(who),
        })
    });
    lab.write(
        ".ai/tools/test/note.yaml",
        "description: Prints.\nversion: 1.0.0\nkind: command\ncommand: [echo, noted]\n",
    );
    let granted = "<permissions><execute><directive>test.*</directive><tool>test.note</tool></execute></permissions>";
    for parent in ["parent", "group"] {
        lab.directive(parent, &format!("<limits spend=\"0.05\" output=\"1000\" {ENDLESS}/>{granted}"), "");
    }
    lab.directive("child", &format!("<limits output=\"1000\" {ENDLESS}/>{}", permit(&["test.note"])), "");
    lab.directive("other", &format!("<limits output=\"1000\" {ENDLESS}/>"), "");
    lab
}

fn queueing_engine(lab: &Lab) -> Engine {
    let mut options = lab.options();
    options.approvals = ApprovalPolicy::Ask(Arc::new(AbsentApprover::default()));
    Engine::open(&lab.path(), options).unwrap()
}

fn spent(engine: &Engine, thread: &ThreadId) -> u64 {
    engine.account(thread).unwrap().unwrap().spent().to_u64()
}

/// Checks the accounts of a parent that completed while its child waits: the parent has not lost the amount that the
/// child does not use. Then answers the request, and checks that every amount is booked once.
async fn assert_settles_exactly(engine: Engine, lab: &Lab, root: &ThreadId, between: Between, yes: bool, turns: u64) {
    let what = format!("{between:?}, {yes}");
    let suspended = child(&engine);
    assert_eq!(suspended.status, Status::Suspended, "{what}");
    let engine = match between {
        Between::Nothing => engine,
        Between::Restart | Between::RestartWithRebuiltRegistry => {
            let disk = Arc::clone(engine.disk());
            drop(engine);
            if between == Between::RestartWithRebuiltRegistry {
                let report = repair(&disk).unwrap();
                assert!(report.unreadable.is_empty() && report.refused.is_empty(), "{report:?}");
            }
            queueing_engine(lab)
        }
    };
    assert_eq!(
        (status(&engine, root), status(&engine, &suspended.id)),
        (AccountStatus::Draining, AccountStatus::Suspended),
        "{what}"
    );
    // The child has made one call, and holds nothing else.
    let held = engine.account(root).unwrap().unwrap().children_hold().to_u64();
    assert_eq!((spent(&engine, &suspended.id), held), (CALL, CALL), "{what}");
    assert_eq!(faults(&engine), Vec::<String>::new(), "{what}");
    let answer = vec![ControlMessage::Approve { yes, question: None, message: None, raises: false }];
    let result = engine.recover_with(&suspended.id, answer).await.unwrap().join().await;
    assert_eq!(result.status, Status::Completed, "{what}: {result:?}");
    assert_eq!(
        (status(&engine, root), status(&engine, &suspended.id)),
        (AccountStatus::Released, AccountStatus::Released),
        "{what}"
    );
    assert_eq!((spent(&engine, root), spent(&engine, &suspended.id)), (turns * CALL, 2 * CALL), "{what}");
    assert_eq!(faults(&engine), Vec::<String>::new(), "{what}");
    let events = engine.threads().transcript(&suspended.id).unwrap();
    let ran = events.iter().filter(|event| matches!(event.body, EventBody::ToolStarted(_))).count();
    assert_eq!(ran, usize::from(yes), "{what}");
}

#[tokio::test]
async fn queued_approval_of_a_child_settles_exactly_after_any_answer_and_a_restart() {
    for between in [Between::Nothing, Between::Restart, Between::RestartWithRebuiltRegistry] {
        for yes in [true, false] {
            let lab = asking_lab();
            let engine = queueing_engine(&lab);
            let result = lab.run(&engine, "parent").await;
            assert_eq!(result.status, Status::Completed, "{result:?}");
            engine.wait_idle().await;
            assert_settles_exactly(engine, &lab, &thread(&result), between, yes, 4).await;
        }
    }
}

#[tokio::test]
async fn parent_completes_when_an_approval_of_one_child_of_a_group_times_out() {
    for yes in [true, false] {
        let lab = asking_lab();
        lab.write(".ai/config/agent/agent.yaml", "approvals: { timeout_seconds: 5 }\n");
        let clock = Arc::new(ManualClock::starting_at(1_700_000_000_000));
        let mut options = lab.options();
        let approver = Arc::new(AbsentApprover { is_silent: true, ..AbsentApprover::default() });
        options.approvals = ApprovalPolicy::Ask(Arc::clone(&approver) as Arc<dyn ApprovalHandler>);
        options.clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let engine = Engine::open(&lab.path(), options).unwrap();
        let handle = lab.start(&engine, "group").await;
        let joined = tokio::spawn(async move { handle.join().await });
        while approver.asked.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        while !joined.is_finished() {
            tokio::task::yield_now().await;
            clock.advance(1_000);
        }
        let result = joined.await.unwrap();
        assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("test/group")), "{result:?}");
        engine.wait_idle().await;
        let root = thread(&result);
        let events = engine.threads().transcript(&root).unwrap();
        let ends: Vec<Status> = events
            .iter()
            .filter_map(|event| if let EventBody::ChildEnded(ended) = &event.body { Some(ended.status) } else { None })
            .collect();
        assert_eq!(ends.len(), 2);
        assert!(ends.contains(&Status::Suspended) && ends.contains(&Status::Completed), "{ends:?}");
        assert_settles_exactly(engine, &lab, &root, Between::Restart, yes, 5).await;
    }
}

/// `rye threads approve` runs the suspended thread in its own process.
#[tokio::test]
async fn repair_beside_an_approval_is_refused_and_later_finds_the_approved_thread() {
    let lab = lab(false);
    let root = {
        let engine = lab.engine();
        let result = lab.run(&engine, "parent").await;
        engine.wait_idle().await;
        thread(&result)
    };
    let repair = || crate::threads::Threads::repair(&lab.path());
    let suspended = {
        let engine = lab.engine();
        let suspended = child(&engine);
        // The process has opened the registry, and runs the thread later.
        assert!(matches!(repair(), Err(StoreError::InUse { .. })));
        let handle = engine.recover_with(&suspended.id, answers()).await.unwrap();
        assert!(matches!(repair(), Err(StoreError::InUse { .. })));
        assert_eq!(handle.join().await.status, Status::Completed);
        engine.wait_idle().await;
        suspended
    };
    assert_eq!(repair().unwrap().threads, 2);
    let engine = lab.engine();
    for id in [&root, &suspended.id] {
        assert_eq!(engine.threads().show(id).unwrap().unwrap().row.status, Status::Completed);
    }
    assert_eq!(faults(&engine), Vec::<String>::new());
}
