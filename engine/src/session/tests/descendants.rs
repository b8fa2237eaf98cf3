//! Tests of orphaned trees that are ended: no descendant stays behind, and every reservation is released.

use std::sync::Arc;

use serde_json::json;

use super::async_tools::{Gate, WAITS, engine, quiet};
use super::unrecoverable::{MAY, dies, dies_with, family, is_released, object, row};
use super::{Lab, Status, calls, reply_text, thread};
use crate::context::StartOptions;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::event::{ControlMessage, EventBody};
use crate::store::registry::Liveness;
use crate::store::{Change, RowUpdate, layout, mailbox};
use crate::thread_id::ThreadId;

/// The state of the orphaned child when its root is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Orphan {
    /// Awaited by the root.
    Synchronous,
    Detached,
    /// Dead before its first event.
    NotStarted,
    /// Without the stored plan.
    WithoutPlan,
}

async fn ends(lab: &Lab, engine: &Engine, root: &ThreadId, child: Orphan, message: ControlMessage) {
    let (of_child, _) = row(engine, "test/child");
    match child {
        Orphan::Synchronous | Orphan::Detached => {}
        Orphan::NotStarted => {
            std::fs::remove_file(lab.path().join(layout::transcript(&of_child.id))).unwrap();
            let update = Box::new(RowUpdate { synced: Some(0), ..RowUpdate::default() });
            let reset = Change::Update { thread: of_child.id.clone(), update, now: 0 };
            engine.inner.writer.commit(vec![reset]).await.unwrap();
        }
        Orphan::WithoutPlan => std::fs::remove_file(object(&lab.path(), &of_child)).unwrap(),
    }
    let status = message.end_status().unwrap();
    let what = format!("{child:?} {status:?}");
    let result = engine.recover_with(root, vec![message]).await.unwrap().join().await;
    quiet(engine).await;
    assert_eq!(result.status, status, "{what}: {result:?}");
    let (after, liveness) = row(engine, "test/child");
    assert_eq!((after.status, liveness), (status, Liveness::Over), "{what}");
    assert!(is_released(engine, root) && is_released(engine, &of_child.id), "{what}");
    if child != Orphan::NotStarted {
        let last = engine.threads().transcript(&of_child.id).unwrap().pop().unwrap();
        assert!(matches!(&last.body, EventBody::Ended(ended) if ended.status == status), "{what}: {last:?}");
    }
}

#[test]
fn ending_an_orphaned_root_ends_its_orphaned_children() {
    for child in [Orphan::Synchronous, Orphan::Detached, Orphan::NotStarted, Orphan::WithoutPlan] {
        for message in [ControlMessage::Kill, ControlMessage::Cancel] {
            let lab = family(child == Orphan::Detached);
            let root = dies(&lab);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let engine = engine(&lab, &Arc::new(Gate::default()));
                ends(&lab, &engine, &root, child, message).await;
            });
        }
    }
}

#[test]
fn recovery_below_a_stopped_root_is_refused() {
    let lab = family(false);
    let root = dies(&lab);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = engine(&lab, &Arc::new(Gate::default()));
        let (child, _) = row(&engine, "test/child");
        // The process of the child died before it received the message of its root.
        let update = Box::new(RowUpdate { status: Some(Status::Killed), ..RowUpdate::default() });
        engine.inner.writer.commit(vec![Change::Update { thread: root.clone(), update, now: 0 }]).await.unwrap();
        let refused = engine.recover(&child.id).await.unwrap_err();
        let EngineError::AncestorStopped { ancestor, status, .. } = &refused else { panic!("{refused:?}") };
        assert_eq!((ancestor, *status), (&root, Status::Killed));
        assert_eq!(row(&engine, "test/child").1, Liveness::Orphaned);
        let ended = engine.recover_with(&child.id, vec![ControlMessage::Kill]).await.unwrap().join().await;
        assert_eq!(ended.status, Status::Killed);
        assert!(is_released(&engine, &child.id));
    });
}

/// A root, its child and a child of the child, which waits within a call.
fn three_generations() -> Lab {
    let lab = Lab::new(|request| {
        let child = |id: &str| calls(&[("rye_execute", json!({"item_type": "directive", "item_id": id}))]);
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => child("test/child"),
            ("test/child", 0) => child("test/grandchild"),
            ("test/grandchild", 0) => calls(&[("test_waits", json!({"n": 1}))]),
            (who, _) => reply_text(&format!("{who} is done")),
        })
    });
    lab.write(".ai/tools/test/waits.yaml", WAITS);
    for (directive, spend) in [("parent", "1"), ("child", "0.5"), ("grandchild", "0.1")] {
        lab.directive(directive, &format!("<limits spend=\"{spend}\"/>{MAY}"), "");
    }
    lab
}

#[test]
fn ending_a_root_ends_an_orphan_below_a_child_that_has_ended() {
    let lab = three_generations();
    let root = dies_with(&lab, 3);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = engine(&lab, &Arc::new(Gate::default()));
        let (child, _) = row(&engine, "test/child");
        // The process died after the end of the child and before its own child received the message.
        engine.inner.finalize_row(&child.id, Status::Cancelled).await.unwrap();
        let result = engine.recover_with(&root, vec![ControlMessage::Kill]).await.unwrap().join().await;
        quiet(&engine).await;
        assert_eq!(result.status, Status::Killed);
        let (below, liveness) = row(&engine, "test/grandchild");
        assert_eq!((below.status, liveness), (Status::Killed, Liveness::Over));
        assert!(is_released(&engine, &below.id) && is_released(&engine, &root));
    });
}

#[tokio::test]
async fn message_to_a_failed_recovery_stays_in_the_mailbox() {
    let lab = family(false);
    let gate = Arc::new(Gate::default());
    gate.open();
    let engine = engine(&lab, &gate);
    let thread = super::thread(&lab.run(&engine, "parent").await);
    let recovery = engine.inner.reserve_recovery(&thread).unwrap();
    assert!(engine.send_to(&thread, &ControlMessage::Steer { text: "look here".into() }));
    drop(recovery);
    let kept: Vec<serde_json::Value> =
        mailbox::list(&**engine.disk(), &thread).unwrap().into_iter().map(|mail| mail.body).collect();
    assert_eq!(kept, [serde_json::json!({"kind": "steer", "text": "look here"})]);
}

#[test]
fn broken_mailbox_files_are_recorded() {
    let lab = family(false);
    let root = dies(&lab);
    let inbox = lab.path().join(layout::inbox(&root));
    std::fs::create_dir_all(&inbox).unwrap();
    std::fs::write(inbox.join("1.json"), "{ not json").unwrap();
    std::fs::write(inbox.join("2.json"), r#"{"kind":"dance"}"#).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", inbox.join("3.json")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, inbox.join("4.json"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let gate = Arc::new(Gate::default());
        gate.open();
        let engine = engine(&lab, &gate);
        assert_eq!(engine.recover(&root).await.unwrap().join().await.status, Status::Completed);
        let events = engine.threads().transcript(&root).unwrap();
        let reason = |event: crate::event::Event| match event.body {
            EventBody::Mail(mail) => match mail.message {
                ControlMessage::Unreadable { reason } => Some(reason),
                _ => None,
            },
            _ => None,
        };
        let reasons: Vec<String> = events.into_iter().filter_map(reason).collect();
        assert_eq!(reasons.len(), 4, "{reasons:?}");
        assert!(reasons.iter().any(|reason| reason.contains("unknown variant `dance`")), "{reasons:?}");
    });
}

#[tokio::test]
async fn root_that_meets_a_full_disk_before_its_first_line_is_not_started() {
    use crate::store::disk::{DiskFault, DiskStep, SimulatedDisk, StepDecision, SyncSkippingDisk};
    let mut lab = family(false);
    let simulated = Arc::new(SimulatedDisk::new());
    let aimed = Arc::clone(&simulated);
    let disk = SyncSkippingDisk::new(Arc::clone(&simulated) as Arc<dyn crate::store::Disk>, move |step| {
        if matches!(step, DiskStep::Change(path) if path.ends_with("transcript.jsonl")) {
            aimed.fail_at(aimed.operations(), DiskFault::Fails(std::io::ErrorKind::StorageFull));
        }
        StepDecision::Done
    });
    lab.disk = Some(Arc::new(disk));
    let engine = engine(&lab, &Arc::new(Gate::default()));
    let failure = engine.start(&lab.compile("parent"), StartOptions::default()).await.unwrap_err();
    assert!(matches!(failure, EngineError::NotStarted { .. }), "{failure:?}");
    assert!(!failure.to_string().contains("resume"), "{failure}");
}

#[tokio::test]
async fn limits_of_a_call_that_do_not_fit_are_refused_with_the_accepted_form_and_start_nothing() {
    let overrides = [
        (json!({"spend": -1}), "the limit `spend` cannot be `-1` (write an amount of dollars, such as `0.10`)"),
        (json!({"spend": 0}), "the limit `spend` cannot be `0` (write an amount of dollars above 0"),
        (json!({"spend": 1e300}), "the limit `spend` cannot be `1e+300` ("),
        (json!({"turns": -1}), "the limit `turns` cannot be `-1` (write a whole number"),
        (json!({"turns": 1.5}), "the limit `turns` cannot be `1.5` ("),
        (json!({"tokens": "9"}), "the limit `tokens` cannot be `\"9\"` ("),
        (json!({"cost": 1}), "unknown limit `cost`; expected one of turns"),
        (json!(7), "`limit_overrides` must be an object"),
    ];
    let requests = overrides.clone().map(|(limits, _)| {
        let input = json!({"directive_name": "test/child", "limit_overrides": limits});
        ("rye_agent_threads_thread_directive", input)
    });
    let lab =
        Lab::new(move |request| Ok(if request.cue.turn == Some(0) { calls(&requests) } else { reply_text("done") }));
    let granted = "<permissions><execute><directive>test.*</directive>\
        <tool>rye.agent.threads.thread_directive</tool></execute></permissions>";
    lab.directive("parent", granted, "");
    lab.directive("child", "", "");
    let engine = lab.engine();
    let result = lab.run(&engine, "parent").await;
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    let mut results: Vec<_> = events
        .iter()
        .filter_map(|event| if let EventBody::ToolCallResult(result) = &event.body { Some(result) } else { None })
        .collect();
    assert_eq!(results.len(), overrides.len());
    results.sort_by_key(|result| result.index);
    for (result, (limits, expected)) in results.into_iter().zip(overrides) {
        assert!(result.is_error && result.content.contains(expected), "{limits}: {}", result.content);
    }
    assert_eq!(engine.threads().list().unwrap().len(), 1);
}
