//! The life of a thread on the simulated disk: with a power failure before every operation, after an earlier kill, and
//! with each single sync omitted. Everything acknowledged must survive, and every sync must be necessary for that.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;

use rye_grammar::ItemId;
use serde_json::{Value, json};

use super::disk::{Disk, DiskFault, SimulatedDisk, Survival, SyncSkippingDisk};
use super::registry::Registry;
use super::transcript::{self, Transcript};
use super::{
    Change, ChangeResult, LedgerStep, ObjectId, Objects, OwnerLock, StoreError, ThreadIds, ThreadRow, layout, mailbox,
};
use crate::thread_id::ThreadId;

/// Everything that was acknowledged as durable.
#[derive(Debug, Default)]
struct Acknowledged {
    threads: Vec<ThreadId>,
    objects: Vec<ObjectId>,
    /// Bodies of those events of the last thread that a barrier covers.
    events: Vec<Value>,
    mail: Vec<String>,
    /// Nano-dollars that are spent or reserved.
    spent: i64,
    /// Nano-dollars of settled attempts.
    settled: i64,
}

fn directive() -> ItemId {
    ItemId::parse("agency-kiwi/discover_leads").unwrap()
}

/// Runs a process that starts a thread, records two turns, stores a result, receives messages and continues. Stops at
/// the first error.
fn run_thread_life(disk: &Arc<dyn Disk>, promised: &mut Acknowledged) -> Result<(), StoreError> {
    let owner = OwnerLock::acquire(Arc::clone(disk), 1, 0)?;
    let objects = Objects::new(Arc::clone(disk));
    let plan = objects.put(b"the plan")?;
    promised.objects.push(plan.clone());
    let thread = ThreadIds::new(Arc::clone(disk)).allocate(&directive(), 1_739_820_456_000)?;
    promised.threads.push(thread.clone());
    promised.events.clear();
    promised.mail.clear();

    let mut transcript = Transcript::create(Arc::clone(disk), &thread)?;
    let mut record = |events: &[Value], promised: &mut Acknowledged| -> Result<(), StoreError> {
        transcript.append(events, 7)?;
        transcript.sync()?;
        promised.events.extend_from_slice(events);
        Ok(())
    };
    record(&[json!({"type": "opened", "owner": owner.id()}), json!({"type": "plan_bound", "plan": plan})], promised)?;
    let results: [&[u8]; 3] = [b"a large result", b"another", b"the plan"];
    promised.objects.extend(objects.put_all(&results)?);
    record(&[json!({"type": "tool_call_result", "object": promised.objects[1]})], promised)?;
    promised.mail.push(mailbox::send(&**disk, &thread, &json!({"steer": "left"}), 5)?);
    let first = promised.mail[0].clone();
    record(&[json!({"type": "mail", "id": first})], promised)?;
    promised.mail.clear();
    mailbox::consume(&**disk, &thread, &first)?;
    record(&[json!({"type": "cognition_out", "text": "x".repeat(200)}), json!({"type": "settled"})], promised)?;
    promised.mail.push(mailbox::send(&**disk, &thread, &json!({"steer": "right"}), 6)?);
    Ok(())
}

/// Returns the part of the acknowledged state that is lost, if any.
fn find_loss(disk: &Arc<dyn Disk>, promised: &Acknowledged) -> Option<String> {
    for thread in &promised.threads {
        if !disk.exists(&layout::thread_folder(thread)).unwrap() {
            return Some(format!("the folder of {thread}"));
        }
    }
    let objects = Objects::new(Arc::clone(disk));
    for object in &promised.objects {
        if let Err(error) = objects.get(object) {
            return Some(error.to_string());
        }
    }
    let thread = promised.threads.last()?;
    let messages = match mailbox::list(&**disk, thread) {
        Ok(messages) => messages,
        Err(error) => return Some(error.to_string()),
    };
    if let Some(lost) = promised.mail.iter().find(|id| messages.iter().all(|message| message.id != **id)) {
        return Some(format!("mail {lost}"));
    }
    if promised.events.is_empty() {
        return None;
    }
    let reading = match transcript::read(&**disk, thread, 0) {
        Ok(reading) => reading,
        Err(error) => return Some(error.to_string()),
    };
    let bodies: Vec<Value> = reading.records.into_iter().map(|record| Value::Object(record.body)).collect();
    (!bodies.starts_with(&promised.events)).then(|| format!("events: {} of {}", bodies.len(), promised.events.len()))
}

/// Recovers the last thread and continues it; every operation must succeed.
fn recover(disk: &Arc<dyn Disk>, promised: &mut Acknowledged) -> Result<(), StoreError> {
    let _owner = OwnerLock::acquire(Arc::clone(disk), 2, 0)?;
    let Some(thread) = promised.threads.last().cloned() else { return Ok(()) };
    let opened = Transcript::open(Arc::clone(disk), &thread, promised.events.len() as u64);
    let (mut transcript, reading) = match opened {
        Err(StoreError::UnknownThread { .. }) if promised.events.is_empty() => return Ok(()),
        opened => opened?,
    };
    promised.events = reading.records.into_iter().map(|record| Value::Object(record.body)).collect();
    let recovered = json!({"type": "recovered"});
    transcript.append(std::slice::from_ref(&recovered), 9)?;
    transcript.sync()?;
    promised.events.push(recovered);
    Ok(())
}

fn survivals() -> impl Iterator<Item = Survival> {
    [Survival::All, Survival::Nothing].into_iter().chain((0..24).map(Survival::Some))
}

/// Returns the number of disk operations of one run without interruptions, and the number of syncs among them.
fn measure() -> (u64, u64) {
    let disk = Arc::new(SimulatedDisk::new());
    run_thread_life(&(Arc::clone(&disk) as Arc<dyn Disk>), &mut Acknowledged::default()).unwrap();
    (disk.operations(), disk.counters().all_syncs())
}

#[test]
fn power_failure_at_any_operation_loses_nothing_acknowledged() {
    let (operations, _) = measure();
    for at in 0..=operations {
        for survival in survivals() {
            let simulated = Arc::new(SimulatedDisk::new());
            let disk = Arc::clone(&simulated) as Arc<dyn Disk>;
            let mut promised = Acknowledged::default();
            simulated.fail_at(at, DiskFault::PowerFailure);
            let lived = run_thread_life(&disk, &mut promised);
            // The last operation removes the owner's file; its failure is not reported.
            assert_eq!(lived.is_err(), at + 1 < operations);
            simulated.restart(survival);
            assert_eq!(find_loss(&disk, &promised), None, "operation {at}, {survival:?}");
            recover(&disk, &mut promised).unwrap();
            simulated.restart(Survival::Nothing);
            assert_eq!(find_loss(&disk, &promised), None, "recovered after operation {at}, {survival:?}");
        }
    }
}

#[test]
fn power_failure_during_recovery_loses_nothing_acknowledged() {
    let (operations, _) = measure();
    for at in (0..operations).step_by(3) {
        for again in 0..12 {
            for seed in 0..4 {
                let simulated = Arc::new(SimulatedDisk::new());
                let disk = Arc::clone(&simulated) as Arc<dyn Disk>;
                let mut promised = Acknowledged::default();
                simulated.fail_at(at, DiskFault::PowerFailure);
                run_thread_life(&disk, &mut promised).unwrap_err();
                simulated.restart(Survival::Some(seed));
                simulated.fail_at(simulated.operations() + again, DiskFault::PowerFailure);
                let _ = recover(&disk, &mut promised);
                simulated.restart(Survival::Some(seed + 100));
                assert_eq!(find_loss(&disk, &promised), None, "operations {at} and {again}, {seed}");
                recover(&disk, &mut promised).unwrap();
            }
        }
    }
}

/// Kills the process, runs a second one to its end, and then simulates a power failure: writes that the first process
/// left unsynced must not damage the writes of the second.
fn survives_a_kill(at: u64, disk: &Arc<dyn Disk>, simulated: &SimulatedDisk, survival: Survival) -> Option<String> {
    simulated.fail_at(at, DiskFault::PowerFailure);
    let mut promised = Acknowledged::default();
    let _ = run_thread_life(disk, &mut promised);
    simulated.restart(Survival::All);
    if let Err(error) = run_thread_life(disk, &mut promised) {
        return Some(error.to_string());
    }
    simulated.restart(survival);
    find_loss(disk, &promised)
}

#[test]
fn kill_then_power_failure_loses_nothing_acknowledged() {
    let (operations, _) = measure();
    for at in 0..=operations {
        for survival in survivals() {
            let simulated = Arc::new(SimulatedDisk::new());
            let disk = Arc::clone(&simulated) as Arc<dyn Disk>;
            assert_eq!(survives_a_kill(at, &disk, &simulated, survival), None, "operation {at}, {survival:?}");
        }
    }
}

#[test]
fn every_skipped_sync_loses_something() {
    let (operations, syncs) = measure();
    assert!(syncs > 15, "{syncs} syncs");
    let skipping = |skipped: u64| {
        let simulated = Arc::new(SimulatedDisk::new());
        let disk: Arc<dyn Disk> =
            Arc::new(SyncSkippingDisk::without_sync(Arc::clone(&simulated) as Arc<dyn Disk>, skipped));
        (simulated, disk)
    };
    for skipped in 0..syncs {
        let noticed = (0..=operations).any(|at| {
            survivals().any(|survival| {
                let (simulated, disk) = skipping(skipped);
                let mut promised = Acknowledged::default();
                simulated.fail_at(at, DiskFault::PowerFailure);
                let _ = run_thread_life(&disk, &mut promised);
                simulated.restart(survival);
                find_loss(&disk, &promised).is_some()
            })
        });
        let noticed = noticed
            || (0..=operations).any(|at| {
                survivals().any(|survival| {
                    let (simulated, disk) = skipping(skipped);
                    survives_a_kill(at, &disk, &simulated, survival).is_some()
                })
            });
        assert!(noticed, "sync {skipped} of {syncs} can be left out without a difference");
    }
}

#[test]
fn a_full_disk_loses_nothing_either() {
    let (operations, _) = measure();
    for at in 0..operations {
        for fault in [DiskFault::Full, DiskFault::Short(0), DiskFault::Short(7), DiskFault::Short(10_000)] {
            let simulated = Arc::new(SimulatedDisk::new());
            let disk = Arc::clone(&simulated) as Arc<dyn Disk>;
            let mut promised = Acknowledged::default();
            simulated.fail_at(at, fault);
            let _ = run_thread_life(&disk, &mut promised);
            assert_eq!(find_loss(&disk, &promised), None, "operation {at}, {fault:?}");
            simulated.restart(Survival::Nothing);
            assert_eq!(find_loss(&disk, &promised), None, "operation {at}, {fault:?}, then power");
            recover(&disk, &mut promised).unwrap();
        }
    }
}

/// The events of a thread with two turns, grouped as the engine writes them.
fn recorded_turns(thread: &ThreadId) -> [Vec<Value>; 3] {
    let limits = json!({"turns": 9, "tokens": 9, "spend": 500, "spawns": 9, "depth": 3, "duration_seconds": 60,
        "output": 100});
    let opened = json!({"type": "opened", "thread_id": thread, "directive": "hello", "origin": "run", "root": thread,
        "inputs": {}, "limits": limits, "grants": [], "seed": 1, "project_path": "."});
    let intended = |turn| {
        json!({"type": "attempt_intended", "turn": turn, "attempt": 0, "model": "m", "input_bound": 10,
            "max_output": 10, "worst_case": 100})
    };
    let usage = json!({"input": 5, "output": 3, "cache_read": 0, "cache_write": 0});
    let settled = |turn| json!({"type": "settled", "turn": turn, "attempt": 0, "amount": 60, "usage": usage, "unknown_outcome": false});
    [vec![opened, intended(1)], vec![settled(1), intended(2)], vec![settled(2)]]
}

/// Runs two turns as the engine does: intent, sync, commit, perform. A second process continues the transcript.
fn spend(disk: &Arc<dyn Disk>, promised: &mut Acknowledged) -> Result<(), StoreError> {
    let thread = ThreadId::parse("hello-1").unwrap();
    let registry = Registry::open(Arc::clone(disk))?;
    let folder = layout::thread_folder(&thread);
    disk.create_dir_all(&folder).map_err(StoreError::io("create the folder", &folder))?;
    let row = ThreadRow::new(thread.clone(), "hello", 1);
    let issue = |turn| Change::Ledger(LedgerStep::issue(&thread, turn, 0, 100));
    let settle = |turn| Change::Ledger(LedgerStep::settle(&thread, turn, 0, 60));
    let register = Change::Ledger(LedgerStep::register(&thread, 500));
    registry.commit(&[Change::Put(Box::new(row)), register])?;
    let mut transcript = match Transcript::open(Arc::clone(disk), &thread, 0) {
        Err(StoreError::UnknownThread { .. }) => Transcript::create(Arc::clone(disk), &thread)?,
        opened => opened?.0,
    };
    let mut recorded = 0;
    let mut record = |events: &[Value]| -> Result<(), StoreError> {
        let known = usize::try_from(transcript.count() - recorded).unwrap().min(events.len());
        transcript.append_sealed(&events[known..], 7, Some(&|_, _| "key:signature".to_owned()))?;
        recorded += events.len() as u64;
        transcript.sync()
    };
    let [first, second, last] = recorded_turns(&thread);
    record(&first)?;
    promised.threads = vec![thread.clone()];
    registry.commit(&[issue(1)])?;
    promised.spent = 100;
    record(&second)?;
    registry.commit(&[settle(1), issue(2)])?;
    // The next lines may or may not be on the disk when a crash is simulated. If they are, a repair finds 60
    // nano-dollars spent instead of 100 reserved.
    (promised.spent, promised.settled) = (60 + 60, 60);
    record(&last)?;
    registry.commit(&[settle(2)])?;
    promised.settled = 120;
    Ok(())
}

/// Returns the money, spent or reserved, that the registry has lost, if any.
fn find_registry_loss(disk: &Arc<dyn Disk>, promised: &Acknowledged) -> Option<String> {
    let thread = ThreadId::parse("hello-1").unwrap();
    let read = || {
        let registry = Registry::open(Arc::clone(disk))?;
        Ok::<_, StoreError>((registry.thread(&thread)?, registry.account(&thread)?))
    };
    let (row, account) = match read() {
        Ok(read) => read,
        Err(error) => return Some(error.to_string()),
    };
    if row.is_some() != account.is_some() || (row.is_none() && !promised.threads.is_empty()) {
        return Some(format!("row {}, account {}", row.is_some(), account.is_some()));
    }
    let (used, settled) = account.map_or((0, 0), |account| (account.used().0, account.spent().0));
    let is_whole = used >= promised.spent && settled >= promised.settled;
    (!is_whole).then(|| format!("{used} of {}, settled {settled} of {}", promised.spent, promised.settled))
}

fn registry_survivals() -> impl Iterator<Item = Survival> {
    [Survival::All, Survival::Nothing].into_iter().chain((0..3).map(Survival::Some))
}

#[test]
fn registry_survives_kills_and_power_failures_and_applies_each_step_once() {
    let thread = ThreadId::parse("hello-1").unwrap();
    let simulated = Arc::new(SimulatedDisk::new());
    spend(&(Arc::clone(&simulated) as Arc<dyn Disk>), &mut Acknowledged::default()).unwrap();
    let operations = simulated.operations();
    assert!(operations > 30, "{operations} operations");
    for at in 0..=operations {
        for survival in registry_survivals() {
            let simulated = Arc::new(SimulatedDisk::new());
            let disk = Arc::clone(&simulated) as Arc<dyn Disk>;
            let mut promised = Acknowledged::default();
            simulated.fail_at(at, DiskFault::PowerFailure);
            let _ = spend(&disk, &mut promised);
            simulated.restart(survival);
            let place = format!("operation {at} of {operations}, {survival:?}");
            assert_eq!(find_registry_loss(&disk, &promised), None, "{place}");
            // Repeats the run. A step that was applied before is answered, and is not applied again.
            spend(&disk, &mut promised).unwrap_or_else(|error| panic!("{place}: {error}"));
            let registry = Registry::open(Arc::clone(&disk)).unwrap();
            assert_eq!(registry.account(&thread).unwrap().unwrap().spent().0, 120, "{place}");
            let repeat = Change::Ledger(LedgerStep::settle(&thread, 2, 0, 60));
            assert!(matches!(registry.commit(&[repeat]).unwrap()[0], ChangeResult::Ledger(_)));
            assert_eq!(registry.account(&thread).unwrap().unwrap().spent().0, 120, "{place}");
        }
    }
}

#[test]
fn every_skipped_sync_of_a_registry_loses_something() {
    let life = |skipped: Option<u64>, fail_at: Option<u64>| {
        let simulated = Arc::new(SimulatedDisk::new());
        let inner = Arc::clone(&simulated) as Arc<dyn Disk>;
        let disk: Arc<dyn Disk> = Arc::new(SyncSkippingDisk::without_sync(inner, skipped.unwrap_or(u64::MAX)));
        if let Some(at) = fail_at {
            simulated.fail_at(at, DiskFault::PowerFailure);
        }
        let mut promised = Acknowledged::default();
        let _ = spend(&disk, &mut promised);
        (simulated, promised)
    };
    let (undisturbed, _) = life(None, None);
    let (operations, syncs) = (undisturbed.operations(), undisturbed.counters().all_syncs());
    // Three syncs are for the store's folders and the mark of unsynced writes, one is for the thread's folder, four are
    // for the transcript (three writes and its name), and one is for the registry when it is closed.
    assert_eq!(syncs, 3 + 1 + 4 + 1);
    for skipped in 0..syncs {
        let is_noticed = (0..=operations).rev().any(|at| {
            (0..6).map(Survival::Some).chain([Survival::Nothing]).any(|survival| {
                let (simulated, promised) = life(Some(skipped), Some(at));
                simulated.restart(survival);
                let disk = simulated as Arc<dyn Disk>;
                find_registry_loss(&disk, &promised).is_some()
            })
        });
        assert!(is_noticed, "sync {skipped} of {syncs} can be left out without a difference");
    }
}
