//! Tests of leased threads that cannot be recovered: each ends with a reported error or is released. The plan, the
//! transcript or the disk space is damaged at every place where a lease is acquired.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::json;

use super::async_tools::{Gate, WAITS, engine, quiet};
use super::{Lab, Status, calls, names, reply_text, thread};
use crate::engine::Engine;
use crate::error::DriveError;
use crate::error::EngineError;
use crate::event::{ControlMessage, Event, EventBody};
use crate::exchange::Request;
use crate::store::disk::{DiskFault, DiskStep, SimulatedDisk, StepDecision, Survival, SyncSkippingDisk};
use crate::store::registry::Liveness;
use crate::store::{Disk, StoreError, ThreadRow, layout};
use crate::thread_id::ThreadId;

pub(super) const MAY: &str =
    "<permissions><execute><directive>test.*</directive><tool>test.*</tool></execute></permissions>";

fn waits() -> (&'static str, serde_json::Value) {
    ("test_waits", json!({"n": 1}))
}

/// A parent with a child that waits within a call. `detached` is true if the parent does not wait for the child.
pub(super) fn family(detached: bool) -> Lab {
    let lab = Lab::new(move |request: &Request| {
        let input = json!({"item_type": "directive", "item_id": "test/child", "async": detached});
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) => calls(&[("rye_execute", input)]),
            ("test/parent", 1 | 2) if detached => calls(&[waits()]),
            ("test/child", 0) => calls(&[waits()]),
            (who, _) => reply_text(&format!("{who} is done")),
        })
    });
    lab.write(".ai/tools/test/waits.yaml", WAITS);
    lab.directive("parent", &format!("<limits spend=\"1\"/>{MAY}"), "");
    lab.directive("child", &format!("<limits spend=\"0.1\"/>{MAY}"), "");
    lab
}

/// Simulates a process that dies while its two threads are within a call.
pub(super) fn dies(lab: &Lab) -> ThreadId {
    dies_with(lab, 2)
}

/// Simulates a process that dies while its `threads` threads are within a call.
pub(super) fn dies_with(lab: &Lab, threads: usize) -> ThreadId {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let root = runtime.block_on(async {
        let gate = Arc::new(Gate::default());
        let engine = engine(lab, &gate);
        let handle = lab.start(&engine, "parent").await;
        gate.started().await;
        // The parent of a detached child does not wait for the child, and runs until a call of its own.
        while lab.model.asked.load(Ordering::Relaxed) < threads || running(&engine) < threads {
            tokio::task::yield_now().await;
        }
        handle.thread_id.clone()
    });
    drop(runtime);
    root
}

fn running(engine: &Engine) -> usize {
    let started = |id: &ThreadId| engine.threads().transcript(id).unwrap_or_default();
    let is_within = |events: &Vec<Event>| {
        matches!(events.last().map(|e| &e.body), Some(EventBody::ToolStarted(_) | EventBody::ChildSpawned(_)))
    };
    engine.threads().list().unwrap().iter().filter(|listed| is_within(&started(&listed.row.id))).count()
}

pub(super) fn row(engine: &Engine, directive: &str) -> (ThreadRow, Liveness) {
    let listed = engine.threads().list().unwrap().into_iter().find(|listed| listed.row.directive == directive).unwrap();
    (listed.row, listed.liveness)
}

pub(super) fn is_released(engine: &Engine, thread: &ThreadId) -> bool {
    let account = engine.account(thread).unwrap().unwrap();
    account.status() == rye_compiler::semantics::ledger::AccountStatus::Released
}

/// A name, the damage to an orphaned child, and the expected error.
type Damage = (&'static str, fn(&Path, &ThreadRow), &'static str);

pub(super) fn object(project: &Path, row: &ThreadRow) -> PathBuf {
    project.join(layout::OBJECTS).join(row.plan_id.as_ref().unwrap())
}

const HARMS: [Damage; 3] = [
    ("its plan is gone", |project, row| std::fs::remove_file(object(project, row)).unwrap(), "No such file"),
    ("its plan is another", |project, row| std::fs::write(object(project, row), "{}").unwrap(), "was altered"),
    (
        "its record is damaged",
        |project, row| {
            let path = project.join(layout::transcript(&row.id));
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, text.replacen("test/child", "test/chold", 1)).unwrap();
        },
        "is damaged at line 1",
    ),
];

#[test]
fn unrecoverable_child_is_reported_and_released() {
    for detached in [false, true] {
        for (what, harm, message) in HARMS {
            let lab = family(detached);
            let root = dies(&lab);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let gate = Arc::new(Gate::default());
                let engine = engine(&lab, &gate);
                let (child, _) = row(&engine, "test/child");
                harm(&lab.path(), &child);
                let handle = engine.recover(&root).await.unwrap();
                // The parent of a detached child stays busy until the end of the child is reported.
                while detached && !names(&engine.threads().transcript(&root).unwrap()).contains(&"child_ended") {
                    tokio::task::yield_now().await;
                }
                gate.open();
                let result = handle.join().await;
                quiet(&engine).await;
                assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("test/parent is done")), "{what}: {result:?}");
                // The parent's transcript contains the end of the child. The parent's model sees this end if the parent
                // waited for the child.
                let events = engine.threads().transcript(&root).unwrap();
                let ended = events.iter().find_map(|e| if let EventBody::ChildEnded(c) = &e.body { Some(c.status) } else { None });
                assert_eq!(ended, Some(Status::Error), "{what}");
                let answered = events.iter().any(|e| matches!(&e.body, EventBody::ToolCallResult(r) if r.is_error && r.content.contains(message) && r.content.contains("cannot be recovered")));
                assert_eq!(answered, !detached, "{what}: {:?}", names(&events));
                // The child has no owner, also in this process, and its reservation is kept.
                let (after, liveness) = row(&engine, "test/child");
                assert_eq!((after.status, after.owner, liveness), (Status::Running, None, Liveness::Orphaned), "{what}");
                assert!(!is_released(&engine, &root), "{what}: it waits for its child");
                let refused = engine.recover(&child.id).await.unwrap_err().to_string();
                assert!(refused.contains(message), "{what}: {refused}");
                assert_eq!(row(&engine, "test/child").1, Liveness::Orphaned, "{what}");
                // The child can still be finalized.
                let closed = engine.recover_with(&child.id, vec![ControlMessage::Kill]).await.unwrap_err();
                assert!(matches!(&closed, EngineError::Closed { why, .. } if why.contains(message)), "{what}: {closed:?}");
                assert_eq!(row(&engine, "test/child").0.status, Status::Killed, "{what}");
                assert!(is_released(&engine, &child.id) && is_released(&engine, &root), "{what}");
                let last = engine.threads().transcript(&child.id).ok().and_then(|events| events.last().cloned());
                let is_end = |event: &Event| matches!(&event.body, EventBody::Ended(e) if e.error.as_ref().is_some_and(|e| e.code == "unrecoverable"));
                assert_eq!(last.as_ref().is_some_and(is_end), !what.contains("record"), "{what}: {last:?}");
            });
        }
    }
}

#[tokio::test]
async fn unrecoverable_suspended_thread_stays_suspended() {
    let lab =
        Lab::new(|request| Ok(if request.cue.turn.unwrap() < 2 { calls(&[waits()]) } else { reply_text("done") }));
    lab.write(".ai/tools/test/waits.yaml", WAITS);
    lab.write(".ai/config/agent/hooks.yaml", "hooks:\n  - { id: ask, event: limit, action: { escalate: {} } }\n");
    lab.directive("parent", &format!("<limits turns=\"1\"/>{MAY}"), "");
    let gate = Arc::new(Gate::default());
    gate.open();
    let engine = engine(&lab, &gate);
    let result = lab.run(&engine, "parent").await;
    assert_eq!(result.status, Status::Suspended, "{result:?}");
    let plan = object(&lab.path(), &row(&engine, "test/parent").0);
    let aside = plan.with_extension("aside");
    std::fs::rename(&plan, &aside).unwrap();
    let messages = || {
        vec![
            ControlMessage::Raise { limit: "turns".into(), value: 9 },
            ControlMessage::Approve { yes: true, question: None, message: None, raises: false },
        ]
    };
    engine.recover_with(&thread(&result), messages()).await.unwrap_err();
    let (after, liveness) = row(&engine, "test/parent");
    assert_eq!((after.status, after.owner, liveness), (Status::Suspended, None, Liveness::Over));
    std::fs::rename(&aside, &plan).unwrap();
    let result = engine.recover_with(&thread(&result), messages()).await.unwrap().join().await;
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("done")));
}

#[tokio::test]
async fn running_thread_is_not_recovered_in_its_own_process() {
    let lab = family(false);
    let gate = Arc::new(Gate::default());
    let engine = engine(&lab, &gate);
    let handle = lab.start(&engine, "parent").await;
    gate.started().await;
    for id in [handle.thread_id.clone(), row(&engine, "test/child").0.id] {
        let refused = engine.recover(&id).await.unwrap_err();
        assert!(matches!(refused, EngineError::Drive(DriveError::Store(StoreError::Owned { .. }))), "{refused:?}");
        assert_eq!(engine.threads().show(&id).unwrap().unwrap().liveness, Liveness::Alive);
    }
    gate.open();
    let result = handle.join().await;
    assert_eq!(
        (result.status, result.result.as_deref()),
        (Status::Completed, Some("test/parent is done")),
        "{result:?}"
    );
}

/// A disk with a fault before a step at a child's transcript.
fn at_the_childs_record(step_of: fn(&DiskStep<'_>) -> bool, fault: DiskFault) -> (Arc<SimulatedDisk>, Arc<dyn Disk>) {
    let simulated = Arc::new(SimulatedDisk::new());
    let aimed = Arc::clone(&simulated);
    let once = OnceLock::new();
    let disk = SyncSkippingDisk::new(Arc::clone(&simulated) as Arc<dyn Disk>, move |step| {
        if step_of(&step) && once.set(()).is_ok() {
            aimed.fail_at(aimed.operations(), fault);
        }
        StepDecision::Done
    });
    (simulated, Arc::new(disk))
}

fn is_record(path: &Path) -> bool {
    path.ends_with("transcript.jsonl") && path.to_string_lossy().contains("test/child")
}

fn open(lab: &mut Lab, disk: &Arc<dyn Disk>, gate: &Arc<Gate>) -> Engine {
    lab.disk = Some(Arc::clone(disk));
    engine(lab, gate)
}

#[tokio::test]
async fn restarted_child_is_owned_by_the_restarting_process() {
    let mut lab = family(false);
    let (simulated, disk) =
        at_the_childs_record(|step| matches!(step, DiskStep::Change(path) if is_record(path)), DiskFault::PowerFailure);
    let first = open(&mut lab, &disk, &Arc::default());
    let root = lab.start(&first, "parent").await;
    assert_eq!(root.join().await.error.unwrap().code, "engine_failed");
    let root = root.thread_id.clone();
    simulated.restart(Survival::All);
    drop(first);
    let gate = Arc::new(Gate::default());
    let second = open(&mut lab, &disk, &gate);
    assert_eq!(row(&second, "test/child").1, Liveness::Orphaned);
    let handle = second.recover(&root).await.unwrap();
    gate.started().await;
    let (child, liveness) = row(&second, "test/child");
    assert_eq!((child.owner.as_ref(), liveness), (Some(second.inner.owner.id()), Liveness::Alive));
    // No other process can recover the thread meanwhile.
    let other = open(&mut lab, &disk, &Arc::default());
    let refused = other.recover(&child.id).await.unwrap_err();
    assert!(matches!(refused, EngineError::Drive(DriveError::Store(StoreError::Owned { .. }))), "{refused:?}");
    gate.open();
    assert_eq!(handle.join().await.status, Status::Completed);
    assert!(is_released(&second, &root) && is_released(&second, &child.id));
}

#[tokio::test]
async fn plan_stored_concurrently_is_found() {
    let mut lab = family(false);
    let (simulated, disk) =
        at_the_childs_record(|step| matches!(step, DiskStep::Change(path) if is_record(path)), DiskFault::PowerFailure);
    let first = open(&mut lab, &disk, &Arc::default());
    assert_eq!(lab.run(&first, "parent").await.error.unwrap().code, "engine_failed");
    drop(first);
    simulated.restart(Survival::All);
    let gate = Arc::new(Gate::default());
    gate.open();
    let second = open(&mut lab, &disk, &gate);
    let child = row(&second, "test/child").0;
    let (plan, other) = (child.plan_id.clone().unwrap(), Arc::downgrade(&simulated));
    let name = PathBuf::from(layout::OBJECTS).join(format!("{plan}.new"));
    // The object of the plan has only its first name, `<hash>.new`.
    simulated.rename(&name.with_extension(""), &name).unwrap();
    simulated.before_reads(move |path| {
        // A sibling stores the same plan and renames the object while the object is looked up.
        let Some(disk) = other.upgrade().filter(|disk| path == name && disk.exists(path).unwrap()) else { return };
        disk.rename(path, &path.with_extension("")).unwrap();
    });
    let result = second.recover(&child.id).await.unwrap().join().await;
    assert_eq!(
        (result.status, result.result.as_deref()),
        (Status::Completed, Some("test/child is done")),
        "{result:?}"
    );
}

#[tokio::test]
async fn child_with_a_failing_disk_stops_its_parent_and_costs_it_after_recovery() {
    let full: fn(&DiskStep<'_>) -> bool = |step| matches!(step, DiskStep::Change(path) if is_record(path));
    let unsynced: fn(&DiskStep<'_>) -> bool = |step| matches!(step, DiskStep::Sync(path) if is_record(path));
    let faults = [
        (full, DiskFault::Fails(std::io::ErrorKind::StorageFull)),
        (unsynced, DiskFault::Fails(std::io::ErrorKind::Other)),
    ];
    for (at, fault) in faults {
        let mut lab = family(false);
        let (simulated, disk) = at_the_childs_record(at, fault);
        let gate = Arc::new(Gate::default());
        gate.open();
        let engine = open(&mut lab, &disk, &gate);
        let root = lab.start(&engine, "parent").await;
        let result = root.join().await;
        quiet(&engine).await;
        let (child, liveness) = row(&engine, "test/child");
        assert_eq!(
            (child.status, child.owner, liveness),
            (Status::Running, None, Liveness::Orphaned),
            "{fault:?}: {result:?}"
        );
        simulated.restart(Survival::All);
        // The parent stops with its child: the cost of the child is not known. After recovery, both have the result of
        // an undisturbed run.
        assert!(result.error.is_some(), "{fault:?}: {result:?}");
        let (parent, liveness) = row(&engine, "test/parent");
        assert_eq!((parent.owner, liveness), (None, Liveness::Orphaned), "{fault:?}");
        let result = engine.recover(&root.thread_id).await.unwrap().join().await;
        assert_eq!(result.status, Status::Completed, "{fault:?}: {result:?}");
        quiet(&engine).await;
        assert!(is_released(&engine, &root.thread_id) && is_released(&engine, &child.id), "{fault:?}");
        let spent = engine.account(&root.thread_id).unwrap().unwrap().spent().to_u64();
        assert_eq!(row(&engine, "test/parent").0.cost.spend, spent, "{fault:?}: the cost of the root is complete");
    }
}

/// A parent with a child that fills its context after its first call, and continues in a new thread.
fn family_with_a_handoff() -> Lab {
    let lab = Lab::new(|request: &Request| {
        let fresh = !serde_json::to_string(&request.turns).unwrap().contains("Continue where you left off");
        let input = json!({"item_type": "directive", "item_id": "test/child"});
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) if fresh => calls(&[("rye_execute", input)]),
            ("test/child", 0) if fresh => calls(&[waits()]),
            (who, _) => reply_text(&format!("{who} is done")),
        })
    });
    lab.write(".ai/tools/test/waits.yaml", WAITS);
    lab.write(".ai/config/agent/coordination.yaml", "continuation: { trigger_threshold: 0.0000001 }\n");
    lab.directive("parent", &format!("<limits spend=\"1\" turns=\"30\"/>{MAY}"), "");
    lab.directive("child", &format!("<limits spend=\"0.2\" turns=\"20\"/>{MAY}"), "");
    lab
}

/// Returns the sum of all settled amounts in the transcripts of a project.
fn settled_sum(engine: &Engine) -> u64 {
    let threads = engine.threads().list().unwrap().into_iter().map(|listed| listed.row.id);
    let events = threads.flat_map(|id| engine.threads().transcript(&id).unwrap_or_default());
    events.map(|event| if let EventBody::Settled(settled) = event.body { settled.amount } else { 0 }).sum()
}

#[tokio::test]
async fn full_disk_at_the_handoff_of_a_child_loses_no_cost_of_the_root() {
    let mut faults = 0;
    for after in 0..24 {
        let mut lab = family_with_a_handoff();
        let simulated = Arc::new(SimulatedDisk::new());
        let (aimed, calls_of_child) = (Arc::clone(&simulated), AtomicU64::new(0));
        // The fault comes `after` operations after the result of the child's call is written; the handoff follows it.
        let disk = SyncSkippingDisk::new(Arc::clone(&simulated) as Arc<dyn Disk>, move |step| {
            if matches!(step, DiskStep::Sync(path) if is_record(path))
                && calls_of_child.fetch_add(1, Ordering::Relaxed) == 2
            {
                aimed.fail_at(aimed.operations() + after, DiskFault::Full);
            }
            StepDecision::Done
        });
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let gate = Arc::new(Gate::default());
        gate.open();
        let first = open(&mut lab, &disk, &gate);
        let root = lab.start(&first, "parent").await;
        let result = root.join().await;
        quiet(&first).await;
        faults += usize::from(result.error.is_some());
        let root = root.thread_id.clone();
        drop(first);
        simulated.restart(Survival::All);
        let second = open(&mut lab, &disk, &gate);
        for _ in 0..8 {
            let listed = second.threads().list().unwrap();
            let orphans = listed.iter().filter(|listed| listed.liveness == Liveness::Orphaned);
            let Some(orphan) = orphans.min_by_key(|listed| listed.row.parent.is_some()) else { break };
            second.recover(&orphan.row.id).await.unwrap().join().await;
            quiet(&second).await;
        }
        let last = second.threads().chain(&root).unwrap().last().cloned().unwrap();
        let row = second.threads().show(&last).unwrap().unwrap().row;
        assert_eq!(row.status, Status::Completed, "full {after} operations later: {row:?}");
        assert!(second.threads().list().unwrap().iter().all(|listed| listed.liveness == Liveness::Over), "{after}");
        let spent: u64 = second
            .threads()
            .chain(&root)
            .unwrap()
            .iter()
            .map(|id| second.account(id).unwrap().unwrap().spent().to_u64())
            .sum();
        assert_eq!(spent, settled_sum(&second), "full {after} operations later: the cost of the root is complete");
        let children =
            second.threads().list().unwrap().into_iter().filter(|listed| listed.row.directive == "test/child");
        assert!(children.count() >= 2, "the child was handed over");
    }
    assert!(faults > 3, "only {faults} runs met the full disk");
}

#[tokio::test]
async fn kill_during_child_creation_ends_the_children() {
    let lab = family(true);
    let gate = Arc::new(Gate::default());
    let mut options = lab.options();
    let (compile, control) = (Arc::clone(&options.compile), Arc::new(OnceLock::<crate::control::ControlSender>::new()));
    let killer = Arc::clone(&control);
    options.compile = Arc::new(move |world, request| {
        // The message arrives while the child is compiled.
        killer.wait().send(ControlMessage::Kill);
        std::thread::sleep(std::time::Duration::from_millis(20));
        compile(world, request)
    });
    let waiting = Arc::clone(&gate);
    options.tools.add("test_waits", move |_| Arc::new(super::async_tools::WaitingTool(Arc::clone(&waiting))));
    let engine = Engine::open(&lab.path(), options).unwrap();
    let handle = lab.start(&engine, "parent").await;
    control.set(handle.control()).unwrap();
    let result = handle.join().await;
    quiet(&engine).await;
    assert_eq!(result.status, Status::Killed, "{result:?}");
    for listed in engine.threads().list().unwrap() {
        assert_eq!((listed.liveness, listed.row.status), (Liveness::Over, Status::Killed), "{listed:?}");
        assert!(is_released(&engine, &listed.row.id), "{listed:?}");
    }
}

#[tokio::test]
async fn failed_continuation_leaves_no_trace() {
    let mut lab = Lab::new(|_| Ok(reply_text("done")));
    lab.directive("child", "", "");
    let simulated = Arc::new(SimulatedDisk::new());
    lab.disk = Some(Arc::clone(&simulated) as Arc<dyn Disk>);
    let engine = lab.engine();
    let first = thread(&lab.run(&engine, "child").await);
    let plan = row(&engine, "test/child").0.plan_id.unwrap();
    let name = PathBuf::from(layout::OBJECTS).join(&plan);
    let aside = name.with_extension("aside");
    simulated.rename(&name, &aside).unwrap();
    engine.fork(&first, 1, "else?").await.unwrap_err();
    engine.resume(&first, "and?").await.unwrap_err();
    engine.hand_off(&first).await.unwrap_err();
    simulated.rename(&aside, &name).unwrap();
    assert_eq!(engine.threads().list().unwrap().len(), 1);
    // On a full disk, the transcript cannot be created: the row is finalized, and the earlier thread has no
    // continuation.
    for at in 0..60 {
        simulated.fail_at(simulated.operations() + at, DiskFault::Full);
        let resumed = engine.resume(&first, "and?").await;
        let started = match resumed {
            Ok(handle) => {
                // On a full disk the thread may end either way; this test only checks that it started.
                let _ = handle.join().await;
                true
            }
            Err(_) => false,
        };
        simulated.restart(Survival::All);
        if !started {
            for listed in engine.threads().list().unwrap() {
                assert_ne!(listed.liveness, Liveness::Alive, "full at {at}: {listed:?}");
            }
        }
    }
}
