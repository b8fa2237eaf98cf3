//! The power fails at every operation of a run, and the run is taken up again: nothing twice, nothing lost.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use rye_compiler::compile::Compilation;
use serde_json::json;

use super::{Lab, calls, names, permit, say};
use crate::engine::{Engine, EngineError, EngineOptions, Launch};
use crate::event::{Event, EventBody, ResultKind};
use crate::provider::Request;
use crate::store::disk::{Fault, SimulatedDisk, Survival};
use crate::store::{Disk, StoreError};
use crate::thread::{RunResult, Status};
use crate::thread_id::ThreadId;
use crate::trust::Trust;

/// A run to be broken off: its directives, its model, and how its record is judged.
struct Scenario {
    /// The directive that is run; what it says last is `the end`.
    name: &'static str,
    prepare: fn(&Lab),
    says: fn(&Request) -> Vec<crate::message::Block>,
    judge: fn(&str, &RunResult, &[Event]),
    plan: &'static OnceLock<Compilation>,
}

/// Six turns: parallel reads, a write, reads again, a last word.
fn six() -> Scenario {
    static PLAN: OnceLock<Compilation> = OnceLock::new();
    Scenario {
        name: "six",
        prepare: |lab| {
            lab.write("a.txt", "content\n");
            lab.directive("six", &permit(&["rye.file-system.*"]), "");
        },
        says: |request| {
            let read = ("rye_file_system_read", json!({"path": "a.txt"}));
            match request.cue.turn.unwrap() {
                0 | 3 => calls(&[read.clone(), read]),
                1 | 4 => calls(&[read]),
                2 => calls(&[("rye_file_system_write", json!({"path": "out.txt", "content": "x"}))]),
                _ => say("the end"),
            }
        },
        judge: six_turns,
        plan: &PLAN,
    }
}

/// A parent with two children at once, one of which has a child of its own.
fn family() -> Scenario {
    static PLAN: OnceLock<Compilation> = OnceLock::new();
    Scenario {
        name: "parent",
        prepare: |lab| {
            let directives = "<permissions><execute><directive>test.*</directive></execute></permissions>";
            lab.directive("parent", &format!("{directives}<limits spend=\"1\"/>"), "");
            lab.directive("one", "", "");
            lab.directive("two", "", "");
            lab.directive("three", "", "");
        },
        says: |request| {
            let child =
                |name: &str| ("rye_execute", json!({"item_type": "directive", "item_id": format!("test/{name}")}));
            match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
                ("test/parent", 0) => calls(&[child("one"), child("two")]),
                ("test/one", 0) => calls(&[child("three")]),
                _ => say("the end"),
            }
        },
        judge: |what, result, events| {
            assert_eq!(result.cost.turns, 2, "{what}");
            let count = |name: &str| names(events).iter().filter(|n| **n == name).count();
            for event in events {
                if let EventBody::ToolCallResult(r) = &event.body {
                    assert!(r.why == ResultKind::Ran && !r.is_error, "{what}: {r:?}");
                }
            }
            assert_eq!((count("child_intended"), count("child_spawned"), count("child_ended")), (2, 2, 2), "{what}");
        },
        plan: &PLAN,
    }
}

fn lab(scenario: &Scenario, disk: &Arc<SimulatedDisk>) -> Lab {
    let says = scenario.says;
    let mut lab = Lab::new(move |request| Ok(says(request)));
    (scenario.prepare)(&lab);
    lab.disk = Some(Arc::clone(disk) as Arc<dyn Disk>);
    lab
}

/// One process: it runs until the end, or until the disk fails, and then all of it is gone.
fn process(scenario: &Scenario, lab: &Lab, known: &mut Option<ThreadId>) -> Option<RunResult> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(attempt(scenario, lab, known))
}

async fn attempt(scenario: &Scenario, lab: &Lab, known: &mut Option<ThreadId>) -> Option<RunResult> {
    let engine = open(lab)?;
    // The same in every project, because a plan knows no place.
    let start = || engine.start(scenario.plan.get_or_init(|| lab.compile(scenario.name)), Launch::default());
    let handle = match known {
        None => start().await,
        Some(thread) => match engine.recover(thread).await {
            Err(EngineError::Over { .. }) => return engine.threads().result(thread).ok().flatten(),
            // It died before anything was recorded: it is started anew.
            Err(EngineError::NeverBegan { .. } | EngineError::Store(StoreError::UnknownThread { .. })) => {
                *known = None;
                start().await
            }
            other => other,
        },
    };
    let handle = handle.ok()?;
    *known = Some(handle.thread_id.clone());
    let result = handle.join().await;
    let failed = result.error.as_ref().is_some_and(|error| error.code == "engine_failed");
    (!failed).then_some(result)
}

fn open(lab: &Lab) -> Option<Engine> {
    let mut options = EngineOptions::trusting(&lab.path(), None, lab.system.clone(), Trust::Everything).ok()?;
    options.providers = Arc::new(super::Always(Arc::clone(&lab.model)));
    options.clock = Arc::new(crate::clock::JumpingClock::starting_at(1_700_000_000_000));
    options.disk.clone_from(&lab.disk);
    Engine::open(&lab.path(), options).ok()
}

fn six_turns(what: &str, result: &RunResult, events: &[Event]) {
    assert_eq!(result.cost.turns, 6, "{what}");
    let unknown: u64 = events
        .iter()
        .map(|event| match &event.body {
            EventBody::Settled(settled) if settled.unknown_outcome => settled.amount,
            _ => 0,
        })
        .sum();
    let EventBody::Ended(last) = &events.last().unwrap().body else { panic!("{what}") };
    assert_eq!(last.cost.spend, 6 * 150_000 + unknown, "{what}");
    let mut answered = BTreeSet::new();
    for event in events {
        if let EventBody::ToolCallResult(r) = &event.body {
            assert!(answered.insert((r.turn, r.index)), "{what}: call {}.{} was answered twice", r.turn, r.index);
            let sound = r.why == ResultKind::Ran && !r.is_error;
            assert!(sound || r.why == ResultKind::Interrupted, "{what}: {r:?}");
        }
    }
    assert_eq!(answered.len(), 7, "{what}");
    assert_eq!(names(events).iter().filter(|n| **n == "cognition_out").count(), 6, "{what}");
}

/// What holds of every run, however often it was broken off.
fn check(scenario: &Scenario, what: &str, engine: &Engine, result: &RunResult) {
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("the end")), "{what}: {result:?}");
    let root = ThreadId::parse(&result.thread_id).unwrap();
    (scenario.judge)(what, result, &engine.threads().transcript(&root).unwrap());
    for listed in engine.threads().list().unwrap() {
        let id = listed.row.id;
        // One that died before it wrote anything was started anew under another name.
        let Ok(events) = engine.threads().transcript(&id) else { continue };
        for (n, event) in events.iter().enumerate() {
            assert_eq!(event.seq, n as u64, "{what}: {id}");
        }
        let count = |name: &str| names(&events).iter().filter(|n| **n == name).count();
        if id.as_str() != result.thread_id && count("ended") == 0 {
            assert!(listed.row.parent.is_none(), "{what}: {id} never ended");
            continue;
        }
        assert_eq!((count("opened"), count("ended")), (1, 1), "{what}: {id}");
        let EventBody::Ended(ended) = &events.last().unwrap().body else { panic!("{what}: {id}") };
        let account = engine.inner.writer.registry().account(&id).unwrap();
        let account = account.unwrap_or_else(|| panic!("{what}: {id} has no account"));
        assert_eq!(account.spent().to_u64(), ended.cost.spend, "{what}: {id}: ledger and record differ");
    }
}

fn run_everywhere(scenario: &Scenario, survivals: &[Survival], stride: usize) {
    let disk = Arc::new(SimulatedDisk::new());
    let undisturbed = lab(scenario, &disk);
    let whole = process(scenario, &undisturbed, &mut None).unwrap();
    let total = disk.operations();
    check(scenario, "undisturbed", &open(&undisturbed).unwrap(), &whole);
    assert!(total > 40, "{total}");
    for survival in survivals {
        for at in (0..total).step_by(stride) {
            let what = format!("power fails at {at} of {total}, {survival:?} survives");
            let disk = Arc::new(SimulatedDisk::new());
            let lab = lab(scenario, &disk);
            let mut known = None;
            disk.fail_at(at, Fault::PowerFailure);
            let mut result = process(scenario, &lab, &mut known);
            disk.restart(*survival);
            for _ in 0..3 {
                if result.is_none() {
                    result = process(scenario, &lab, &mut known);
                }
            }
            let result = result.unwrap_or_else(|| panic!("{what}: it does not come to an end"));
            check(scenario, &what, &open(&lab).unwrap(), &result);
        }
    }
}

#[test]
fn killed_at_every_operation() {
    run_everywhere(&six(), &[Survival::All], 1);
}

#[test]
fn without_power_at_every_third_operation() {
    run_everywhere(&six(), &[Survival::Nothing], 3);
}

#[test]
fn with_any_part_of_what_was_not_synced() {
    run_everywhere(&six(), &[Survival::Some(3), Survival::Some(11)], 7);
}

#[test]
fn a_tree_killed_at_every_fifth_operation() {
    run_everywhere(&family(), &[Survival::All], 5);
}

#[test]
fn a_tree_without_power() {
    run_everywhere(&family(), &[Survival::Nothing], 13);
}
