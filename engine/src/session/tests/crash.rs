//! The power fails at every operation of a run, and the run is taken up again: nothing twice, nothing lost.

use std::sync::{Arc, OnceLock};

use rye_compiler::compile::Compilation;

use serde_json::json;

use super::{Lab, calls, names, permit, say};
use crate::engine::{Engine, EngineError};
use crate::event::{Event, EventBody, ResultKind};
use crate::store::disk::{Fault, SimulatedDisk, Survival};
use crate::store::{Disk, StoreError};
use crate::thread::{RunResult, Status};
use crate::thread_id::ThreadId;

/// Six turns: parallel reads, a write, reads again, a last word.
fn lab(disk: &Arc<SimulatedDisk>) -> Lab {
    let mut lab = Lab::new(|request| {
        let read = ("rye_file_system_read", json!({"path": "a.txt"}));
        Ok(match request.cue.turn.unwrap() {
            0 | 3 => calls(&[read.clone(), read]),
            1 | 4 => calls(&[read]),
            2 => calls(&[("rye_file_system_write", json!({"path": "out.txt", "content": "x"}))]),
            _ => say("the end"),
        })
    });
    lab.write("a.txt", "content\n");
    lab.directive("six", &permit(&["rye.file-system.*"]), "");
    lab.disk = Some(Arc::clone(disk) as Arc<dyn Disk>);
    lab
}

/// The same in every project, because a plan knows no place.
fn plan(lab: &Lab) -> &'static Compilation {
    static PLAN: OnceLock<Compilation> = OnceLock::new();
    PLAN.get_or_init(|| lab.compile("six"))
}

/// Runs until the end, or until the disk fails.
async fn attempt(lab: &Lab, known: &mut Option<ThreadId>) -> Option<RunResult> {
    let engine = open(lab)?;
    let handle = match known {
        None => engine.start(plan(lab), crate::engine::Launch::default()).await,
        Some(thread) => match engine.recover(thread).await {
            Err(EngineError::Over { .. }) => return engine.threads().result(thread).ok().flatten(),
            // It died before anything was recorded: it is started anew.
            Err(EngineError::NeverBegan { .. } | EngineError::Store(StoreError::UnknownThread { .. })) => {
                *known = None;
                engine.start(plan(lab), crate::engine::Launch::default()).await
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
    let mut options = crate::engine::EngineOptions::standard(&lab.path(), None, lab.system.clone()).ok()?;
    options.providers = Arc::new(super::Always(Arc::clone(&lab.model)));
    options.clock = Arc::new(crate::clock::JumpingClock::starting_at(1_700_000_000_000));
    options.disk.clone_from(&lab.disk);
    Engine::open(&lab.path(), options).ok()
}

fn check(what: &str, result: &RunResult, events: &[Event]) {
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("the end")), "{what}: {result:?}");
    assert_eq!(result.cost.turns, 6, "{what}");
    for (n, event) in events.iter().enumerate() {
        assert_eq!(event.seq, n as u64, "{what}");
    }
    let unknown: u64 = events
        .iter()
        .map(|event| match &event.body {
            EventBody::Settled(settled) if settled.unknown_outcome => settled.amount,
            _ => 0,
        })
        .sum();
    let last = match &events.last().unwrap().body {
        EventBody::Ended(ended) => ended.cost,
        other => panic!("{what}: ends with {other:?}"),
    };
    assert_eq!(last.spend, 6 * 150_000 + unknown, "{what}");
    let mut answered = std::collections::BTreeSet::new();
    for event in events {
        if let EventBody::ToolCallResult(r) = &event.body {
            assert!(answered.insert((r.turn, r.index)), "{what}: call {}.{} was answered twice", r.turn, r.index);
            let sound = r.why == ResultKind::Ran && !r.is_error;
            assert!(sound || r.why == ResultKind::Interrupted, "{what}: {r:?}");
        }
    }
    assert_eq!(answered.len(), 7, "{what}");
    let count = |name: &str| names(events).iter().filter(|n| **n == name).count();
    assert_eq!((count("cognition_out"), count("opened"), count("ended")), (6, 1, 1), "{what}");
}

fn run_everywhere(survivals: &[Survival], stride: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let disk = Arc::new(SimulatedDisk::new());
    let undisturbed = lab(&disk);
    let whole = runtime.block_on(attempt(&undisturbed, &mut None)).unwrap();
    let total = disk.operations();
    let id = ThreadId::parse(&whole.thread_id).unwrap();
    let engine = open(&undisturbed).unwrap();
    check("undisturbed", &whole, &engine.threads().transcript(&id).unwrap());
    assert!(total > 40, "{total}");
    for survival in survivals {
        for at in (0..total).step_by(usize::try_from(stride).unwrap()) {
            let what = format!("power fails at {at} of {total}, {survival:?} survives");
            let disk = Arc::new(SimulatedDisk::new());
            let lab = lab(&disk);
            let mut known = None;
            disk.fail_at(at, Fault::PowerFailure);
            let mut result = runtime.block_on(attempt(&lab, &mut known));
            disk.restart(*survival);
            for _ in 0..3 {
                if result.is_some() {
                    break;
                }
                result = runtime.block_on(attempt(&lab, &mut known));
            }
            let result = result.unwrap_or_else(|| panic!("{what}: it does not come to an end"));
            let id = ThreadId::parse(&result.thread_id).unwrap();
            let engine = open(&lab).unwrap();
            check(&what, &result, &engine.threads().transcript(&id).unwrap());
            let account = engine.inner.writer.registry().account(&id).unwrap();
            let account = account.unwrap_or_else(|| panic!("{what}: no account"));
            let last = engine.threads().transcript(&id).unwrap();
            let EventBody::Ended(ended) = &last.last().unwrap().body else { panic!("{what}") };
            assert_eq!(account.spent().to_u64(), ended.cost.spend, "{what}: ledger and record differ");
        }
    }
}

#[test]
fn killed_at_every_operation() {
    run_everywhere(&[Survival::All], 1);
}

#[test]
fn without_power_at_every_third_operation() {
    run_everywhere(&[Survival::Nothing], 3);
}

#[test]
fn with_any_part_of_what_was_not_synced() {
    run_everywhere(&[Survival::Some(3), Survival::Some(11)], 7);
}
