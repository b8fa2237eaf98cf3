//! Tests of a full disk at any moment of a run, and of a clock that goes back: no acknowledged data is lost, nothing is
//! paid twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use serde_json::json;

use super::{Lab, calls, names, permit, reply_text, thread};
use crate::BoxFuture;
use crate::clock::Clock;
use crate::context::{ApprovalPolicy, StartOptions};
use crate::engine::{Engine, EngineOptions};
use crate::error::EngineError;
use crate::event::EventBody;
use crate::store::disk::{DiskFault, SimulatedDisk, Survival};
use crate::store::{Disk, StoreError};
use crate::thread::{RunResult, Status};
use crate::thread_id::ThreadId;
use crate::trust::Trust;

fn lab(disk: Option<Arc<dyn Disk>>) -> Lab {
    let mut lab = Lab::new(|request| {
        Ok(match request.cue.turn.unwrap() {
            0 | 1 => calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]),
            _ => reply_text("the end"),
        })
    });
    lab.write("a.txt", "content\n");
    lab.directive("reads", &permit(&["rye.file-system.read"]), "");
    lab.disk = disk;
    lab
}

fn open(lab: &Lab, clock: Arc<dyn Clock>) -> Result<Engine, EngineError> {
    let mut options =
        EngineOptions::with_trust(&lab.path(), None, lab.system.clone(), Trust::Everything, ApprovalPolicy::Allow)
            .unwrap();
    options.providers = Arc::new(Arc::clone(&lab.model));
    options.clock = clock;
    options.disk.clone_from(&lab.disk);
    Engine::open(&lab.path(), options)
}

fn settled(result: &RunResult) -> Option<String> {
    let error = result.error.as_ref()?;
    (error.code == "engine_failed").then(|| error.message.clone())
}

/// Runs one process, which starts or recovers the thread. Returns the error if it cannot continue.
async fn process(lab: &Lab, known: &mut Option<ThreadId>) -> Result<RunResult, String> {
    let words = |error: &dyn std::error::Error| error.to_string();
    let engine = open(lab, Arc::new(BackwardClock::never())).map_err(|error| words(&error))?;
    let fresh = || async {
        let handle = engine.start(&lab.compile("reads"), StartOptions::default()).await;
        handle.map_err(|error| words(&error))
    };
    let handle = match &*known {
        None => fresh().await?,
        Some(id) => match engine.recover(id).await {
            Err(EngineError::Over { .. }) => return Ok(engine.threads().result(id).unwrap().unwrap()),
            // The thread never started, so nothing was acknowledged.
            Err(EngineError::NeverStarted { .. } | EngineError::Store(StoreError::UnknownThread { .. })) => {
                fresh().await?
            }
            other => other.map_err(|error| words(&error))?,
        },
    };
    *known = Some(handle.thread_id.clone());
    let result = handle.join().await;
    settled(&result).map_or(Ok(result), Err)
}

#[tokio::test]
async fn durable_thread_survives_a_power_failure_before_its_first_turn() {
    let disk = Arc::new(SimulatedDisk::new());
    let mut lab = lab(Some(Arc::clone(&disk) as Arc<dyn Disk>));
    let engine = open(&lab, Arc::new(BackwardClock::never())).unwrap();
    let launch = StartOptions { durable: true, ..StartOptions::default() };
    let handle = engine.start(&lab.compile("reads"), launch).await.unwrap();
    let survived = disk.fork();
    survived.restart(Survival::Nothing);
    lab.disk = Some(Arc::new(survived));
    let engine = open(&lab, Arc::new(BackwardClock::never())).unwrap();
    let listed = engine.threads().list().unwrap();
    assert_eq!(listed.iter().map(|one| &one.row.id).collect::<Vec<_>>(), [&handle.thread_id]);
    let result = engine.recover(&handle.thread_id).await.unwrap().join().await;
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("the end")));
}

#[tokio::test]
async fn thread_stops_on_a_full_disk_and_recovers_when_there_is_space() {
    let whole = Arc::new(SimulatedDisk::new());
    process(&lab(Some(Arc::clone(&whole) as Arc<dyn Disk>)), &mut None).await.unwrap();
    let mut stopped = 0;
    for at in (0..whole.operations()).step_by(4) {
        let disk = Arc::new(SimulatedDisk::new());
        let lab = lab(Some(Arc::clone(&disk) as Arc<dyn Disk>));
        let mut known = None;
        disk.fail_at(at, DiskFault::Full);
        match process(&lab, &mut known).await {
            Err(why) => {
                stopped += 1;
                assert!(why.contains("no space left"), "full at {at}: {why}");
            }
            // Only artifacts did not fit on the disk. Missing artifacts stop no thread.
            Ok(result) => assert_eq!(result.status, Status::Completed, "full at {at}"),
        }
        disk.restart(Survival::All);
        let result = process(&lab, &mut known).await.unwrap_or_else(|why| panic!("full at {at}, then room: {why}"));
        assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("the end")), "full at {at}");
        let engine = open(&lab, Arc::new(BackwardClock::never())).unwrap();
        let events = engine.threads().transcript(&thread(&result)).unwrap();
        let count = |name: &str| names(&events).iter().filter(|n| **n == name).count();
        assert_eq!((count("cognition_out"), count("tool_call_result"), count("ended")), (3, 2, 1), "full at {at}");
    }
    assert!(stopped > 5, "{stopped}");
}

#[tokio::test]
async fn repair_reads_event_fields_stored_as_objects() {
    let long = "x".repeat(300_000);
    let lab = Lab::new(move |_| Ok(reply_text(&long)));
    lab.directive("reads", "", "");
    let result = lab.run(&lab.engine(), "reads").await;
    let real: Arc<dyn Disk> = Arc::new(crate::store::RealDisk::open(&lab.path()).unwrap());
    let repaired = crate::store::registry::repair(&real).unwrap();
    assert_eq!((repaired.threads, repaired.unreadable.len()), (1, 0), "{repaired:?}");
    let row = lab.engine().threads().show(&thread(&result)).unwrap().unwrap().row;
    assert_eq!((row.status, row.cost.turns), (Status::Completed, 1));
}

/// A clock that advances a second with every read, and once goes back an hour.
struct BackwardClock {
    now: AtomicI64,
    looks: AtomicU64,
    /// The index of the read at which the clock goes back.
    at: u64,
}

impl BackwardClock {
    fn at(at: u64) -> Self {
        Self { now: AtomicI64::new(1_700_000_000_000), looks: AtomicU64::new(0), at }
    }

    fn never() -> Self {
        Self::at(u64::MAX)
    }
}

impl Clock for BackwardClock {
    fn now(&self) -> i64 {
        let step = if self.looks.fetch_add(1, Ordering::Relaxed) == self.at { -3_600_000 } else { 1000 };
        self.now.fetch_add(step, Ordering::Relaxed) + step
    }

    fn sleep_until(&self, until: i64) -> BoxFuture<'_, ()> {
        self.now.fetch_max(until, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }

    fn elapse(&self, _: u64) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn offset(&self) -> i64 {
        0
    }
}

#[tokio::test]
async fn backward_clock_keeps_durations_and_order() {
    let lab = lab(None);
    let mut back = 0;
    for at in 0..24 {
        let engine = open(&lab, Arc::new(BackwardClock::at(at))).unwrap();
        let result = lab.run(&engine, "reads").await;
        assert_eq!(
            (result.status, result.result.as_deref()),
            (Status::Completed, Some("the end")),
            "back at look {at}"
        );
        let events = engine.threads().transcript(&thread(&result)).unwrap();
        back += usize::from(events.windows(2).any(|two| two[1].ts < two[0].ts));
        for (n, event) in events.iter().enumerate() {
            assert_eq!(event.seq, n as u64, "back at look {at}");
        }
        let durations =
            events.iter().filter_map(|e| if let EventBody::ToolCallResult(r) = &e.body { Some(r) } else { None });
        assert!(durations.into_iter().all(|r| r.duration_ms < 600_000), "back at look {at}");
        // Two threads of one directive have different ids, whatever time the clock returns.
        let listed = engine.threads().list().unwrap();
        assert_eq!(listed.len(), usize::try_from(at).unwrap() + 1);
    }
    assert!(back > 0, "it went back within a thread");
}
