//! Runs whose clock is set back or forward between any two readings.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use serde_json::json;

use super::{Lab, calls, reply_text, thread};
use crate::BoxFuture;
use crate::clock::Clock;
use crate::engine::Engine;
use crate::event::EventBody;
use crate::keys::TrustStore;
use crate::thread::Status;

/// A clock that takes the next of these steps, in milliseconds, after each reading. It skips sleeps.
struct SteppingClock {
    time: AtomicI64,
    readings: AtomicUsize,
    steps: &'static [i64],
}

impl Clock for SteppingClock {
    fn now(&self) -> i64 {
        let reading = self.readings.fetch_add(1, Ordering::SeqCst);
        self.time.fetch_add(self.steps[reading % self.steps.len()], Ordering::SeqCst)
    }

    fn sleep_until(&self, _: i64) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn elapse(&self, _: u64) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn offset(&self) -> i64 {
        0
    }
}

const HOUR: i64 = 3_600_000;

#[tokio::test]
async fn run_ends_soundly_while_its_clock_is_set_back_and_forward() {
    let cases: [(&str, &'static [i64], Option<Status>); 4] = [
        ("back by a minute each time", &[-60_000], Some(Status::Completed)),
        ("back by a year once in a while", &[1, 1, 1, -365 * 24 * HOUR], Some(Status::Completed)),
        ("forward by an hour each time", &[HOUR], Some(Status::Error)),
        ("back and forward", &[1, HOUR, -HOUR, -HOUR, HOUR], None),
    ];
    for (name, steps, expected) in cases {
        let lab = Lab::new(|request| {
            let child = json!({"item_type": "directive", "item_id": "test/child"});
            let read = || calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]);
            Ok(match (request.cue.directive.as_str(), request.cue.turn) {
                (_, Some(0)) => read(),
                ("test/parent", Some(1)) => calls(&[("rye_execute", child)]),
                _ => reply_text("done"),
            })
        });
        lab.write("a.txt", "a\n");
        let granted = "<permissions><execute><directive>test.*</directive><tool>rye.file-system.read</tool></execute></permissions>";
        for directive in ["parent", "child"] {
            lab.directive(directive, &format!("<limits duration_seconds=\"60\" spend=\"1\"/>{granted}"), "");
        }
        let mut options = lab.options();
        let time = AtomicI64::new(1_700_000_000_000);
        options.clock = Arc::new(SteppingClock { time, readings: AtomicUsize::new(0), steps });
        let engine = Engine::open(&lab.path(), options).unwrap();
        let result = lab.run(&engine, "parent").await;
        engine.wait_idle().await;
        let code = result.error.as_ref().map(|error| error.code.as_str());
        match result.status {
            Status::Completed => {}
            Status::Error => assert_eq!(code, Some("duration_seconds_exceeded"), "{name}: {result:?}"),
            _ => panic!("{name}: {result:?}"),
        }
        assert!(expected.is_none_or(|expected| expected == result.status), "{name}: {result:?}");
        // Every reserved amount is settled, and the ledger agrees with the transcripts.
        let events = engine.threads().transcript(&thread(&result)).unwrap();
        let count = |is: fn(&EventBody) -> bool| events.iter().filter(|event| is(&event.body)).count();
        let reserved = count(|body| matches!(body, EventBody::Reserved(_)));
        assert_eq!(count(|body| matches!(body, EventBody::Settled(_))), reserved, "{name}");
        let ids: Vec<_> = engine.threads().list().unwrap().into_iter().map(|listed| listed.row.id).collect();
        let verified = engine.threads().verify_all(&ids, &TrustStore::default()).unwrap();
        let faults: Vec<_> = verified.into_iter().flat_map(|one| one.faults).collect();
        assert!(faults.is_empty(), "{name}: {faults:?}");
    }
}
