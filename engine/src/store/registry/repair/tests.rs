//! A registry rebuilt from transcripts equals the original one.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::event::EventBody;
use crate::store::disk::{DiskFault, DiskStep, RealDisk, SimulatedDisk, StepDecision, Survival, SyncSkippingDisk};
use crate::store::owner::OwnerLock;
use crate::store::registry::{Change, ChangeResult, RowUpdate};
use crate::store::transcript::Transcript;
use crate::thread::FIRST_OUTSIDE_SPAWN;
use crate::thread::{Cost, Status};

fn id(text: &str) -> ThreadId {
    ThreadId::parse(text).unwrap()
}

/// A thread that writes its transcript and registry rows as the engine does.
struct FakeThread {
    disk: Arc<dyn Disk>,
    transcript: Transcript,
    id: ThreadId,
    ts: i64,
}

impl FakeThread {
    fn start(disk: &Arc<dyn Disk>, registry: &Registry, text: &str, parent: Option<(&str, u64)>, ts: i64) -> Self {
        Self::open(disk, registry, text, parent, ts, "run", 1_000)
    }

    fn open(
        disk: &Arc<dyn Disk>,
        registry: &Registry,
        text: &str,
        parent: Option<(&str, u64)>,
        ts: i64,
        origin: &str,
        spend: u64,
    ) -> Self {
        let thread = id(text);
        disk.create_dir_all(&layout::thread_folder(&thread)).unwrap();
        let transcript = Transcript::create(Arc::clone(disk), &thread).unwrap();
        let mut writer = Self { disk: Arc::clone(disk), transcript, id: thread.clone(), ts };
        let root = parent.map_or(text, |(root, _)| root);
        let limits = json!({"turns": 9, "tokens": 9, "spend": spend, "spawns": 9, "depth": 3,
            "duration_seconds": 60, "output": 100});
        let mut opened = json!({"type": "opened", "thread_id": text, "directive": "hello", "origin": origin, "root": root,
            "inputs": {}, "limits": limits, "grants": [], "seed": 1, "project_path": "."});
        let mut row = ThreadRow::new(thread.clone(), "hello", ts + 1);
        row.spawns = Some(9);
        row.root = id(root);
        if let Some((parent, spawn)) = parent {
            opened["parent"] = json!({"thread_id": parent, "spawn": spawn});
            if origin == "handoff" {
                (row.parent, row.spawn) = (Some(id(parent)), Some(spawn));
                registry.commit(&[Change::Put(Box::new(row))]).unwrap();
            } else {
                let change = Change::Spawn { parent: id(parent), spawn, child: Box::new(row) };
                assert_eq!(registry.commit(&[change]).unwrap(), [ChangeResult::Child(thread)]);
            }
        } else {
            let register = Change::Ledger(LedgerStep::register(&thread, 1_000));
            registry.commit(&[Change::Put(Box::new(row)), register]).unwrap();
        }
        writer.record(&[opened, json!({"type": "plan_bound", "plan_id": "00ff"})]);
        writer
    }

    fn record(&mut self, events: &[Value]) {
        let bodies: Vec<EventBody> =
            events.iter().map(|event| serde_json::from_value(event.clone()).unwrap()).collect();
        self.ts += 1;
        self.transcript.append(&bodies, self.ts).unwrap();
        self.transcript.sync().unwrap();
    }

    /// Records one turn that costs `spent` of its reservation of 200; `None` leaves the turn unfinished.
    fn turn(&mut self, registry: &Registry, turn: u64, spent: Option<u64>) {
        self.record(&[json!({"type": "attempt_intended", "turn": turn, "attempt": 0, "model": "m",
            "input_bound": 10, "max_output": 10, "worst_case": 200})]);
        let issue = Change::Ledger(LedgerStep::issue(&self.id, turn, 0, 200));
        assert_eq!(registry.commit(&[issue]).unwrap(), [ChangeResult::Ledger(LedgerReply::Done)]);
        let Some(spent) = spent else { return };
        let usage = json!({"input": 5, "output": 3, "cache_read": 2, "cache_write": 1});
        self.record(&[
            json!({"type": "reserved", "turn": turn, "attempt": 0, "amount": 200}),
            json!({"type": "cognition_out", "turn": turn, "attempt": 0, "content": [], "usage": usage,
                "stop": "end_turn", "model": null}),
            json!({"type": "settled", "turn": turn, "attempt": 0, "amount": spent, "usage": usage,
                "unknown_outcome": false}),
        ]);
        registry.commit(&[Change::Ledger(LedgerStep::settle(&self.id, turn, 0, spent))]).unwrap();
    }

    fn spawn(&mut self, registry: &Registry, spawn: u64, child: &str, spend: u64) {
        let step = LedgerStep::child(&self.id, spawn, &id(child), Some(spend), 0);
        assert!(!registry.commit(&[Change::Ledger(step)]).unwrap()[0].is_refused());
        self.record(&[json!({"type": "child_spawned", "spawn": spawn, "thread_id": child, "spend": spend})]);
    }

    fn end(&mut self, registry: &Registry, status: Status, cost: Cost) {
        self.record(&[
            json!({"type": "ended", "status": status.as_str(), "result": null, "outputs": null, "error": null,
            "cost": cost}),
        ]);
        registry.commit(&[Change::Ledger(LedgerStep::end(&self.id))]).unwrap();
    }
}

fn cost(turns: u64, spend: u64) -> Cost {
    Cost {
        turns,
        input_tokens: 8 * turns,
        output_tokens: 3 * turns,
        cached_tokens: 2 * turns,
        spend,
        ..Cost::default()
    }
}

/// Builds a root with two children, one ended and one running, and another root that was suspended during an attempt.
fn tree(disk: &Arc<dyn Disk>, registry: &Registry) -> Vec<ThreadId> {
    let mut root = FakeThread::start(disk, registry, "top-1", None, 100);
    root.turn(registry, 1, Some(60));
    root.spawn(registry, 1, "a/low-1", 300);
    // The clock of the child is behind the clock of the parent.
    let mut first = FakeThread::start(disk, registry, "a/low-1", Some(("top-1", 1)), 50);
    first.turn(registry, 1, Some(150));
    first.end(registry, Status::Completed, cost(1, 150));
    root.spawn(registry, 2, "a/low-1-2", 250);
    let mut second = FakeThread::start(disk, registry, "a/low-1-2", Some(("top-1", 2)), 110);
    second.turn(registry, 1, None);
    let ended = json!({"type": "child_ended", "spawn": 1, "thread_id": "a/low-1", "status": "completed",
        "cost": cost(1, 150)});
    root.record(&[ended]);
    let mut other = FakeThread::start(disk, registry, "other-1", None, 100);
    other.turn(registry, 1, Some(250));
    let update = |thread: &FakeThread, status, cost, ts: i64| {
        let update = RowUpdate {
            status: Some(status),
            plan_id: Some("00ff".to_string()),
            cost: Some(cost),
            synced: Some(0),
            ..RowUpdate::default()
        };
        Change::Update { thread: thread.id.clone(), update: Box::new(update), now: ts }
    };
    let changes = [
        update(&root, Status::Running, Cost { turns: 1, ..cost(2, 210) }, root.ts),
        update(&first, Status::Completed, cost(1, 150), first.ts),
        update(&second, Status::Running, cost(0, 0), second.ts),
        update(&other, Status::Running, cost(1, 250), other.ts),
    ];
    registry.commit(&changes).unwrap();
    [root, first, second, other].iter().map(|writer| writer.id.clone()).collect()
}

/// Dumps the registry's data about threads, except the field `synced`, which only the writer of a row knows.
fn state(registry: &Registry, threads: &[ThreadId]) -> Vec<String> {
    let mut state = Vec::new();
    for thread in threads {
        let mut row = registry.thread(thread).unwrap().unwrap();
        row.synced = 0;
        state.push(format!("{row:#?}"));
        state.push(format!("{:#?}", registry.account(thread).unwrap()));
        state.push(format!("{:?}", registry.children(thread).unwrap()));
    }
    state.push(format!("{}", registry.threads().unwrap().len()));
    let active: Vec<String> = registry.active().unwrap().iter().map(|row| row.id.to_string()).collect();
    state.push(active.join(" "));
    state
}

#[test]
fn repair_restores_an_identical_registry() {
    let folder = TempDir::new().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(folder.path()).unwrap());
    let registry = Registry::open(Arc::clone(&disk)).unwrap();
    let threads = tree(&disk, &registry);
    let before = state(&registry, &threads);
    drop(registry);
    let path = folder.path().join(REGISTRY);
    for round in 0..3 {
        match round {
            0 => {}
            1 => std::fs::remove_file(&path).unwrap(),
            _ => std::fs::write(&path, b"no database").unwrap(),
        }
        let repaired = repair(&disk).unwrap();
        assert_eq!(repaired.threads, 4);
        assert!(repaired.unreadable.is_empty() && repaired.refused.is_empty(), "{repaired:?}");
        let registry = Registry::open(Arc::clone(&disk)).unwrap();
        assert_eq!(state(&registry, &threads), before, "round {round}");
        // A repeated step gets its first answer and is not applied twice.
        let repeat = Change::Ledger(LedgerStep::settle(&threads[0], 1, 0, 60));
        assert_eq!(registry.commit(&[repeat]).unwrap(), [ChangeResult::Ledger(LedgerReply::Done)]);
        assert_eq!(state(&registry, &threads), before);
    }
    assert_eq!(std::fs::read(path.with_extension("redb.before-repair")).unwrap(), b"no database");
}

/// Names of the marks of unsynced writes.
fn marks(disk: &dyn Disk) -> Vec<String> {
    let entries = disk.list(Path::new(layout::STATE)).unwrap();
    entries.into_iter().map(|entry| entry.name).filter(|name| name.starts_with("unsynced-")).collect()
}

#[test]
fn power_failure_while_a_process_writes_rebuilds_an_identical_registry() {
    for survival in [Survival::Nothing, Survival::Some(1), Survival::Some(2)] {
        let simulated = Arc::new(SimulatedDisk::new());
        let disk = Arc::clone(&simulated) as Arc<dyn Disk>;
        let registry = Registry::open(Arc::clone(&disk)).unwrap();
        let threads = tree(&disk, &registry);
        let before = state(&registry, &threads);
        assert_eq!(marks(&*disk), ["unsynced-b0"]);
        simulated.restart(survival);
        std::mem::forget(registry);
        let reader = Registry::open_read_only(Arc::clone(&disk)).unwrap().unwrap();
        assert_eq!(state(&reader, &threads), before, "{survival:?}");
        assert_eq!(marks(&*disk), ["unsynced-b1"]);
        drop(reader);
        assert_eq!(marks(&*disk), Vec::<String>::new());
        // A closed registry survives a power failure, so it is not rebuilt from the transcripts.
        disk.remove(&layout::transcript(&threads[0])).unwrap();
        simulated.restart(survival);
        assert_eq!(state(&Registry::open(Arc::clone(&disk)).unwrap(), &threads), before);
    }
}

#[test]
fn mark_of_unsynced_writes_stays_until_the_last_process_closes_the_registry() {
    let folder = TempDir::new().unwrap();
    let disks: [Arc<dyn Disk>; 2] = [(), ()].map(|()| Arc::new(RealDisk::open(folder.path()).unwrap()) as _);
    let first = Registry::open(Arc::clone(&disks[0])).unwrap();
    let second = Registry::open(Arc::clone(&disks[1])).unwrap();
    let expected = [format!("unsynced-{}", disks[0].boot_id().unwrap())];
    assert_eq!(marks(&*disks[0]), expected);
    drop(first);
    assert_eq!(marks(&*disks[1]), expected);
    drop(second);
    assert_eq!(marks(&*disks[1]), Vec::<String>::new());
    // A killed process leaves its mark, and the next process of the same boot removes the mark.
    disks[0].create(&Path::new(layout::STATE).join(&expected[0]), b"").unwrap();
    drop(Registry::open(Arc::clone(&disks[1])).unwrap());
    assert_eq!(marks(&*disks[1]), Vec::<String>::new());
}

#[test]
fn registry_under_a_mark_of_another_boot_that_a_process_holds_is_not_rebuilt() {
    let folder = TempDir::new().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(folder.path()).unwrap());
    let registry = Registry::open(Arc::clone(&disk)).unwrap();
    tree(&disk, &registry);
    // A row without a transcript shows whether the registry was rebuilt.
    registry.commit(&[Change::Put(Box::new(ThreadRow::new(id("extra-1"), "hello", 1)))]).unwrap();
    drop(registry);
    let mark = Path::new(layout::STATE).join("unsynced-0000");
    let held = disk.lock_shared(&mark).unwrap();
    assert!(Registry::open(Arc::clone(&disk)).unwrap().thread(&id("extra-1")).unwrap().is_some());
    drop(held);
    assert!(Registry::open(Arc::clone(&disk)).unwrap().thread(&id("extra-1")).unwrap().is_none());
    assert_eq!(marks(&*disk), Vec::<String>::new());
}

#[test]
fn failed_sync_of_a_closed_registry_leaves_a_mark_until_the_next_boot() {
    let simulated = Arc::new(SimulatedDisk::new());
    let disk = Arc::clone(&simulated) as Arc<dyn Disk>;
    let is_registry = |step: &DiskStep<'_>| matches!(step, DiskStep::Sync(path) if *path == Path::new(REGISTRY));
    let failing = Arc::clone(&simulated);
    let first: Arc<dyn Disk> = Arc::new(SyncSkippingDisk::new(Arc::clone(&disk), move |step| {
        if is_registry(&step) {
            failing.fail_at(failing.operations(), DiskFault::Fails(std::io::ErrorKind::Other));
        }
        StepDecision::Done
    }));
    let registry = Registry::open(Arc::clone(&first)).unwrap();
    let threads = tree(&first, &registry);
    let before = state(&registry, &threads);
    drop(registry);
    assert_eq!(marks(&*disk), ["unsynced-b0"]);
    drop(Registry::open(Arc::clone(&disk)).unwrap());
    assert_eq!(marks(&*disk), ["unsynced-b0"]);
    simulated.restart(Survival::Nothing);
    assert_eq!(state(&Registry::open(Arc::clone(&disk)).unwrap(), &threads), before);
    assert_eq!(marks(&*disk), Vec::<String>::new());
}

#[test]
fn registry_is_not_synced_when_the_mark_cannot_record_the_sync() {
    let simulated = Arc::new(SimulatedDisk::new());
    let disk = Arc::clone(&simulated) as Arc<dyn Disk>;
    let mark = Path::new(layout::STATE).join("unsynced-b0");
    let failing = Arc::clone(&simulated);
    let syncs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&syncs);
    let failures = Arc::new(AtomicUsize::new(0));
    let failed = Arc::clone(&failures);
    let first: Arc<dyn Disk> = Arc::new(SyncSkippingDisk::new(Arc::clone(&disk), move |step| {
        match step {
            // The mark exists already when the closing process writes its contents.
            DiskStep::Change(path) if path == mark && failing.exists(&mark).unwrap() => {
                failing.fail_at(failing.operations(), DiskFault::Fails(std::io::ErrorKind::Other));
                failed.fetch_add(1, Ordering::Relaxed);
            }
            DiskStep::Sync(path) if path == Path::new(REGISTRY) => _ = counted.fetch_add(1, Ordering::Relaxed),
            DiskStep::Change(_) | DiskStep::Sync(_) | DiskStep::SyncFolder(_) => {}
        }
        StepDecision::Done
    }));
    let registry = Registry::open(Arc::clone(&first)).unwrap();
    let threads = tree(&first, &registry);
    let before = state(&registry, &threads);
    let synced_while_open = syncs.load(Ordering::Relaxed);
    drop(registry);
    // No sync is attempted, because the failure of a sync could not be recorded.
    assert_eq!((failures.load(Ordering::Relaxed), syncs.load(Ordering::Relaxed)), (1, synced_while_open));
    assert_eq!(marks(&*disk), ["unsynced-b0"]);
    simulated.restart(Survival::Nothing);
    assert_eq!(state(&Registry::open(Arc::clone(&disk)).unwrap(), &threads), before);
}

#[test]
fn unreadable_transcript_stops_the_rebuild_after_a_power_failure_until_a_repair() {
    let simulated = Arc::new(SimulatedDisk::new());
    let disk = Arc::clone(&simulated) as Arc<dyn Disk>;
    let registry = Registry::open(Arc::clone(&disk)).unwrap();
    let threads = tree(&disk, &registry);
    disk.write_at(&layout::transcript(&threads[1]), 10, b"~").unwrap();
    disk.sync(&layout::transcript(&threads[1])).unwrap();
    simulated.restart(Survival::Nothing);
    std::mem::forget(registry);
    for opened in
        [Registry::open(Arc::clone(&disk)).map(|_| ()), Registry::open_read_only(Arc::clone(&disk)).map(|_| ())]
    {
        let error = opened.unwrap_err();
        assert!(matches!(error, StoreError::RebuildFailed { .. }));
        assert!(error.to_string().contains("run `rye threads repair`"), "{error}");
    }
    assert_eq!(repair(&disk).unwrap().threads, 3);
    assert_eq!(Registry::open(Arc::clone(&disk)).unwrap().threads().unwrap().len(), 3);
    assert_eq!(marks(&*disk), Vec::<String>::new());
}

#[test]
fn repair_replays_a_child_whose_parent_recorded_it_late() {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    let registry = Registry::open(Arc::clone(&disk)).unwrap();
    let mut root = FakeThread::start(&disk, &registry, "top-1", None, 100);
    let step = LedgerStep::child(&root.id, 1, &id("a/low-1"), Some(300), 0);
    assert!(!registry.commit(&[Change::Ledger(step)]).unwrap()[0].is_refused());
    // The child settles its first call at 103, the parent records the child at 104, and the child ends later.
    let mut child = FakeThread::start(&disk, &registry, "a/low-1", Some(("top-1", 1)), 100);
    child.turn(&registry, 1, Some(60));
    child.turn(&registry, 2, Some(90));
    child.end(&registry, Status::Completed, cost(2, 150));
    root.ts = 103;
    root.spawn(&registry, 1, "a/low-1", 300);
    let before = [registry.account(&child.id).unwrap(), registry.account(&root.id).unwrap()];
    drop(registry);
    let repaired = repair(&disk).unwrap();
    assert!(repaired.refused.is_empty(), "{repaired:?}");
    let registry = Registry::open(disk).unwrap();
    assert_eq!([registry.account(&child.id).unwrap(), registry.account(&root.id).unwrap()], before);
    assert_eq!(before[0].as_ref().unwrap().spent().0, 150);
}

#[test]
fn repair_is_refused_while_an_owner_is_alive() {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    let owner = OwnerLock::acquire(Arc::clone(&disk), 1, 0).unwrap();
    assert!(matches!(repair(&disk), Err(StoreError::InUse { count: 1 })));
    drop(owner);
    assert_eq!(repair(&disk).unwrap().threads, 0);
}

#[test]
fn repair_is_refused_while_a_process_that_starts_has_opened_the_registry() {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    let threads = tree(&disk, &Registry::open(Arc::clone(&disk)).unwrap());
    // A starting process opens the registry before it has an owner lock.
    let registry = Registry::open(Arc::clone(&disk)).unwrap();
    assert!(matches!(repair(&disk), Err(StoreError::InUse { .. })));
    drop(registry);
    assert_eq!(repair(&disk).unwrap().threads, threads.len());
    let marks = disk.list(std::path::Path::new(layout::STATE)).unwrap();
    assert!(marks.iter().all(|entry| !entry.name.starts_with("unsynced-")), "{marks:?}");
    Registry::open(disk).unwrap();
}

#[test]
fn repair_reports_a_damaged_transcript_and_keeps_the_others() {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    let threads = tree(&disk, &Registry::open(Arc::clone(&disk)).unwrap());
    disk.write_at(&layout::transcript(&threads[1]), 10, b"~").unwrap();
    let repaired = repair(&disk).unwrap();
    assert_eq!(repaired.threads, 3);
    let [(thread, StoreError::Damaged { line: 1, .. })] = repaired.unreadable.as_slice() else {
        panic!("{repaired:?}");
    };
    assert_eq!(thread, &threads[1]);
    let registry = Registry::open(disk).unwrap();
    // The reservation for the unreadable thread stays, because its spend is unknown.
    assert_eq!(registry.account(&threads[1]).unwrap().unwrap().reserved().0, 300);
    assert_eq!(registry.child(&threads[0], 1).unwrap(), Some(threads[1].clone()));
}

#[test]
fn repair_links_continuations_and_ignores_limited_attempts() {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    {
        let registry = Registry::open(Arc::clone(&disk)).unwrap();
        let mut first = FakeThread::start(&disk, &registry, "top-1", None, 100);
        first.end(&registry, Status::Continued, cost(0, 0));
        let mut second = FakeThread::open(&disk, &registry, "top-2", None, 200, "handoff", 1_000);
        second.record(&[
            json!({"type": "continues", "thread": "top-1", "at_seq": 2, "at_h": "00"}),
            json!({"type": "attempt_intended", "turn": 1, "attempt": 0, "model": "m", "input_bound": 10,
                "max_output": 10, "worst_case": 2_000}),
            json!({"type": "limit", "at": "model", "limit_code": "spend_exceeded", "current_value": 0, "current_max": 1_000}),
        ]);
        second.record(&[json!({"type": "ended", "status": "suspended", "result": null, "outputs": null,
            "error": null, "cost": cost(0, 0)})]);
        assert!(second.disk.exists(&layout::transcript(&second.id)).unwrap());
    }
    let repaired = repair(&disk).unwrap();
    assert!(repaired.refused.is_empty(), "{repaired:?}");
    let registry = Registry::open(disk).unwrap();
    let first = registry.thread(&id("top-1")).unwrap().unwrap();
    let second = registry.thread(&id("top-2")).unwrap().unwrap();
    assert_eq!((first.status, first.continued_by), (Status::Continued, Some(id("top-2"))));
    assert_eq!((second.status, second.continues), (Status::Suspended, Some(id("top-1"))));
    let account = registry.account(&id("top-2")).unwrap().unwrap();
    assert_eq!(account.remaining().0, 1_000, "a suspended thread keeps its account");
}

#[test]
fn repair_reserves_a_child_that_only_its_own_transcript_records_and_its_live_continuation() {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    {
        let registry = Registry::open(Arc::clone(&disk)).unwrap();
        let mut root = FakeThread::start(&disk, &registry, "top-1", None, 100);
        root.turn(&registry, 1, Some(60));
        // The child is started from outside, so the parent has no event about the child.
        let outside = LedgerStep::child(&id("top-1"), FIRST_OUTSIDE_SPAWN, &id("low-1"), Some(400), 0);
        assert!(!registry.commit(&[Change::Ledger(outside)]).unwrap()[0].is_refused());
        let mut child =
            FakeThread::open(&disk, &registry, "low-1", Some(("top-1", FIRST_OUTSIDE_SPAWN)), 110, "child", 400);
        child.turn(&registry, 1, Some(100));
        child.record(&[json!({"type": "ended", "status": "continued", "result": null, "outputs": null, "error": null,
            "cost": cost(1, 100)})]);
        let hand_off = LedgerStep::hand_off(&id("low-1"), &id("low-1-2"), 300);
        assert!(!registry.commit(&[Change::Ledger(hand_off)]).unwrap()[0].is_refused());
        let mut next =
            FakeThread::open(&disk, &registry, "low-1-2", Some(("top-1", FIRST_OUTSIDE_SPAWN)), 120, "handoff", 300);
        next.record(&[json!({"type": "continues", "thread": "low-1", "at_seq": 6, "at_h": "00"})]);
        next.turn(&registry, 1, Some(50));
    }
    let accounts = |registry: &Registry| -> Vec<String> {
        let of = |text: &&str| format!("{:?}", registry.account(&id(text)).unwrap());
        ["top-1", "low-1", "low-1-2"].iter().map(of).collect()
    };
    let before = accounts(&Registry::open(Arc::clone(&disk)).unwrap());
    let repaired = repair(&disk).unwrap();
    assert!(repaired.refused.is_empty(), "{repaired:?}");
    let registry = Registry::open(disk).unwrap();
    assert_eq!(accounts(&registry), before);
    let live = registry.account(&id("low-1-2")).unwrap().unwrap();
    assert_eq!(
        (live.remaining().0, registry.thread(&id("low-1")).unwrap().unwrap().continued_by),
        (250, Some(id("low-1-2")))
    );
}

#[test]
fn repair_replays_a_child_that_ended_before_a_handoff_first() {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    {
        let registry = Registry::open(Arc::clone(&disk)).unwrap();
        let mut root = FakeThread::start(&disk, &registry, "top-1", None, 100);
        root.turn(&registry, 1, Some(60));
        // As for the child of a hook, the parent records the child after the end of the child.
        let reserve = LedgerStep::child(&id("top-1"), 1, &id("low-1"), Some(800), 0);
        assert!(!registry.commit(&[Change::Ledger(reserve)]).unwrap()[0].is_refused());
        let mut child = FakeThread::open(&disk, &registry, "low-1", Some(("top-1", 1)), 110, "child", 800);
        child.turn(&registry, 1, Some(100));
        child.end(&registry, Status::Completed, cost(1, 100));
        root.ts = child.ts + 10;
        root.record(&[
            json!({"type": "child_spawned", "spawn": 1, "thread_id": "low-1", "spend": 800}),
            json!({"type": "child_ended", "spawn": 1, "thread_id": "low-1", "status": "completed",
                "cost": cost(1, 100)}),
            json!({"type": "ended", "status": "continued", "result": null, "outputs": null, "error": null,
                "cost": cost(2, 160)}),
        ]);
        let hand_off = LedgerStep::hand_off(&id("top-1"), &id("top-1-2"), 840);
        assert!(!registry.commit(&[Change::Ledger(hand_off)]).unwrap()[0].is_refused());
        let mut next = FakeThread::open(&disk, &registry, "top-1-2", None, root.ts + 10, "handoff", 840);
        next.record(&[json!({"type": "continues", "thread": "top-1", "at_seq": 6, "at_h": "00"})]);
        next.turn(&registry, 1, Some(50));
    }
    let accounts = |registry: &Registry| -> Vec<String> {
        let of = |text: &&str| format!("{:?}", registry.account(&id(text)).unwrap());
        ["top-1", "low-1", "top-1-2"].iter().map(of).collect()
    };
    let before = accounts(&Registry::open(Arc::clone(&disk)).unwrap());
    let repaired = repair(&disk).unwrap();
    assert!(repaired.refused.is_empty(), "{repaired:?}");
    assert_eq!(accounts(&Registry::open(disk).unwrap()), before);
}

#[test]
fn verification_finds_every_changed_amount_of_the_registry() {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    let registry = Arc::new(Registry::open(Arc::clone(&disk)).unwrap());
    let mut root = FakeThread::start(&disk, &registry, "top-1", None, 100);
    root.turn(&registry, 1, Some(60));
    root.spawn(&registry, 1, "low-1", 300);
    let mut child = FakeThread::open(&disk, &registry, "low-1", Some(("top-1", 1)), 110, "child", 300);
    child.turn(&registry, 1, Some(150));
    child.end(&registry, Status::Completed, cost(1, 150));
    root.record(&[json!({"type": "child_ended", "spawn": 1, "thread_id": "low-1", "status": "completed",
        "cost": cost(1, 150)})]);
    root.end(&registry, Status::Completed, cost(1, 210));
    let row = |thread: &str, cost| {
        let update = RowUpdate { status: Some(Status::Completed), cost: Some(cost), ..RowUpdate::default() };
        Change::Update { thread: id(thread), update: Box::new(update), now: 200 }
    };
    registry.commit(&[row("top-1", cost(1, 210)), row("low-1", cost(1, 150))]).unwrap();
    let faults = || -> Vec<String> {
        let threads = crate::threads::Threads::new(Arc::clone(&disk), Some(Arc::clone(&registry)));
        let found = threads.verify_all(&[id("top-1"), id("low-1")], &crate::keys::TrustStore::default()).unwrap();
        let faults = found.into_iter().flat_map(|one| one.faults);
        faults.filter(|fault| fault.file == REGISTRY).map(|fault| fault.reason).collect()
    };
    assert_eq!(faults(), Vec::<String>::new());
    for thread in ["top-1", "low-1"] {
        let account = registry.account(&id(thread)).unwrap().unwrap();
        let whole = serde_json::to_value(&account).unwrap();
        for field in ["reserved", "spent"] {
            let mut changed = whole.clone();
            let amount = account_amount(&account, field);
            changed[field] = serde_json::to_value(rye_compiler::semantics::money::Nanos(amount + 1)).unwrap();
            write_account(&registry, thread, &changed);
            assert_eq!(faults().len(), 1, "{thread}: {field}");
        }
        write_account(&registry, thread, &whole);
        let before = registry.thread(&id(thread)).unwrap().unwrap().cost;
        registry.commit(&[row(thread, Cost { spend: before.spend + 1, ..before })]).unwrap();
        assert_eq!(faults().len(), 1, "{thread}: the row");
        registry.commit(&[row(thread, before)]).unwrap();
        assert_eq!(faults(), Vec::<String>::new());
    }
}

fn account_amount(account: &rye_compiler::semantics::ledger::Account, field: &str) -> i64 {
    if field == "spent" { account.spent().0 } else { account.reserved().0 }
}

fn write_account(registry: &Registry, thread: &str, account: &Value) {
    let write = |transaction: &WriteTransaction| {
        let mut table = transaction.open_table(tables::ACCOUNTS).map_err(registry_error(DOING))?;
        insert_json(&mut table, thread, account)
    };
    registry.write(write).unwrap();
}
