//! Model calls that the engine stops after the provider has reported their cost: the final usage, or an error status.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use rye_compiler::plan::PlannedModel;
use tokio::sync::Notify;

use super::{Lab, reply_text, thread};
use crate::BoxFuture;
use crate::clock::ManualClock;
use crate::context::Providers;
use crate::engine::Engine;
use crate::event::{AttemptFailed, EventBody, Settled};
use crate::exchange::{CallError, DEADLINE_CODE, Delta, FailedStage, Reply, Request, StopReason, Usage};
use crate::provider::wire::fake::{ScriptedServer, ServerMove, chunk, chunked, head, send};
use crate::provider::wire::tests::settings;
use crate::provider::{CallProgress, Provider, Wire, connect_provider};
use crate::store::Disk;
use crate::store::disk::{DiskStep, SimulatedDisk, StepDecision, SyncSkippingDisk};
use crate::thread::{RunResult, Status};

const STREAM: &str = include_str!("../../../fixtures/streams/anthropic-text.sse");

/// A provider that notifies the test once a running call has reported its cost.
struct WatchedProvider {
    server: Arc<dyn Provider>,
    known: Arc<Notify>,
}

impl Provider for WatchedProvider {
    fn call<'a>(
        &'a self,
        request: &'a Request,
        live: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        self.server.call(request, live)
    }

    fn call_with_progress<'a>(
        &'a self,
        request: &'a Request,
        live: &'a (dyn Fn(Delta) + Send + Sync),
        progress: &'a CallProgress,
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(async move {
            let mut call = self.server.call_with_progress(request, live, progress);
            loop {
                tokio::select! {
                    biased;
                    called = &mut call => return called,
                    () = tokio::time::sleep(Duration::from_millis(2)) => {}
                }
                if progress.has_facts() {
                    self.known.notify_one();
                }
            }
        })
    }
}

struct WatchedServer(String, Arc<Notify>);

impl Providers for WatchedServer {
    fn connect(&self, _: &PlannedModel) -> Result<Arc<dyn Provider>, CallError> {
        let server = connect_provider(&settings(Wire::Anthropic, &self.0))?;
        Ok(Arc::new(WatchedProvider { server, known: Arc::clone(&self.1) }))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Deadline,
    Kill,
}

/// Stops a call after its cost is known. Returns the result of the thread with the failed attempts and the settlements.
async fn stopped(moves: Vec<ServerMove>, stop: Stop) -> (RunResult, Vec<AttemptFailed>, Vec<Settled>) {
    let (server, known) = (ScriptedServer::start(moves), Arc::new(Notify::new()));
    let clock = Arc::new(ManualClock::starting_at(1_700_000_000_000));
    let lab = Lab::new(|_| Ok(reply_text("unused")));
    lab.directive("hello", "<limits duration_seconds=\"3\"/>", "");
    let mut options = lab.options();
    options.clock = Arc::clone(&clock) as Arc<dyn crate::clock::Clock>;
    options.providers = Arc::new(WatchedServer(server.url.clone(), Arc::clone(&known)));
    let engine = Engine::open(&lab.path(), options).unwrap();
    let handle = lab.start(&engine, "hello").await;
    known.notified().await;
    match stop {
        Stop::Deadline => clock.advance(3_000),
        Stop::Kill => handle.kill(),
    }
    let result = handle.join().await;
    let (mut failed, mut settled) = (Vec::new(), Vec::new());
    for event in engine.threads().transcript(&thread(&result)).unwrap() {
        match event.body {
            EventBody::AttemptFailed(one) => failed.push(*one),
            EventBody::Settled(one) => settled.push(one),
            _ => {}
        }
    }
    (result, failed, settled)
}

#[tokio::test]
async fn stopped_call_costs_the_final_usage_that_the_provider_reported() {
    let unfinished = STREAM.split("event: message_stop").next().unwrap();
    let alive = (0..200).map(|_| chunk(b": keep-alive\n\n"));
    let moves: Vec<ServerMove> =
        [chunked(), chunk(unfinished.as_bytes())].into_iter().chain(alive).chain([ServerMove::Stay]).collect();
    for stop in [Stop::Deadline, Stop::Kill] {
        let (result, failed, settled) = stopped(moves.clone(), stop).await;
        let [settled] = settled.as_slice() else { panic!("{settled:?}") };
        assert!(!settled.unknown_outcome && settled.usage.output > 1 && settled.usage.output < 100, "{settled:?}");
        match stop {
            Stop::Deadline => {
                assert_eq!(result.error.unwrap().code, "duration_seconds_exceeded");
                assert_eq!(failed[0].error.code.as_deref(), Some(DEADLINE_CODE));
                assert_eq!((failed[0].error.usage, failed[0].error.cut), (Some(settled.usage), None));
            }
            Stop::Kill => assert_eq!((result.status, failed.len()), (Status::Killed, 0)),
        }
    }
}

#[tokio::test]
async fn stopped_call_with_an_error_status_costs_nothing_and_has_this_status() {
    let moves =
        vec![head("503 Service Unavailable", "text/plain", "content-length: 100\r\n"), send("x"), ServerMove::Stay];
    for stop in [Stop::Deadline, Stop::Kill] {
        let (result, failed, settled) = stopped(moves.clone(), stop).await;
        let [settled] = settled.as_slice() else { panic!("{settled:?}") };
        assert!(!settled.unknown_outcome && settled.amount == 0 && settled.usage.output == 0, "{settled:?}");
        let [failed] = failed.as_slice() else { panic!("{failed:?}") };
        assert_eq!((failed.error.status, failed.classification.retryable), (Some(503), true), "{failed:?}");
        assert!(failed.error.message.contains("answered 503"), "{}", failed.error.message);
        match stop {
            Stop::Deadline => assert_eq!(result.error.unwrap().code, "duration_seconds_exceeded"),
            Stop::Kill => assert_eq!(result.status, Status::Killed),
        }
    }
}

/// A provider whose call streams a text and then ends. `has_ended` is true from then on.
#[derive(Clone)]
struct EndingProvider {
    fails: bool,
    has_ended: Arc<AtomicBool>,
}

impl Provider for EndingProvider {
    fn call<'a>(
        &'a self,
        _request: &'a Request,
        live: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(async move {
            live(Delta::Text("a part".into()));
            // The writer of `live.jsonl` has written the text by then.
            tokio::time::sleep(Duration::from_millis(300)).await;
            self.has_ended.store(true, Ordering::SeqCst);
            if self.fails {
                return Err(CallError {
                    status: Some(429),
                    ..CallError::new(FailedStage::Status, "too many requests")
                });
            }
            let usage = Usage { input: 100, output: 7, cache_read: 0, cache_write: 0 };
            let content = reply_text("a part and the rest");
            Ok(Reply { content, usage, stop: StopReason::EndTurn, model: None, uncounted: None, unread: Vec::new() })
        })
    }
}

impl Providers for EndingProvider {
    fn connect(&self, _: &PlannedModel) -> Result<Arc<dyn Provider>, CallError> {
        Ok(Arc::new(self.clone()))
    }
}

#[tokio::test]
async fn kill_while_the_live_file_is_removed_books_the_known_cost() {
    for fails in [false, true] {
        let provider = EndingProvider { fails, has_ended: Arc::default() };
        let (reached, is_reached) = (Arc::new(Notify::new()), Arc::clone(&provider.has_ended));
        let (release, released) = mpsc::channel::<()>();
        let (released, notify) = (Mutex::new(released), Arc::clone(&reached));
        let disk = SyncSkippingDisk::new(Arc::new(SimulatedDisk::new()), move |step| {
            if matches!(step, DiskStep::Change(path) if path.ends_with("live.jsonl"))
                && is_reached.swap(false, Ordering::SeqCst)
            {
                notify.notify_one();
                released.lock().unwrap().recv_timeout(Duration::from_mins(1)).ok();
            }
            StepDecision::Done
        });
        let mut lab = Lab::new(|_| Ok(reply_text("unused")));
        lab.disk = Some(Arc::new(disk) as Arc<dyn Disk>);
        lab.directive("hello", "", "");
        let mut options = lab.options();
        options.providers = Arc::new(provider);
        let engine = Engine::open(&lab.path(), options).unwrap();
        let handle = lab.start(&engine, "hello").await;
        reached.notified().await;
        handle.kill();
        let result = handle.join().await;
        release.send(()).unwrap();
        assert_eq!(result.status, Status::Killed);
        let events = engine.threads().transcript(&thread(&result)).unwrap().into_iter().map(|event| event.body);
        let settled: Vec<Settled> =
            events.filter_map(|body| if let EventBody::Settled(one) = body { Some(one) } else { None }).collect();
        let [settled] = settled.as_slice() else { panic!("{settled:?}") };
        let output = if fails { 0 } else { 7 };
        assert!(!settled.unknown_outcome && settled.usage.output == output, "{settled:?}");
    }
}
