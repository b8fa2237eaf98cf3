//! Tests of suspended children: their parents keep running, and the end of a failed parent ends them.

use serde_json::json;

use super::{Lab, Status, calls, permit, reply_text, thread};
use crate::engine::Engine;
use crate::event::ControlMessage;
use crate::exchange::{CallError, FailedStage};
use crate::keys::TrustStore;
use crate::store::ThreadRow;
use crate::thread_id::ThreadId;
use rye_compiler::semantics::ledger::AccountStatus;

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
    vec![raise, ControlMessage::Approve { yes: true, question: None }]
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
    assert_eq!(engine.account(&root).unwrap().unwrap().spent().to_u64(), 4 * 150_000);
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
