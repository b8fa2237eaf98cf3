//! Model calls that the engine stops after the provider has reported their cost: the final usage, or an error status.

use std::sync::Arc;
use std::time::Duration;

use rye_compiler::plan::PlannedModel;
use tokio::sync::Notify;

use super::{Lab, reply_text, thread};
use crate::BoxFuture;
use crate::clock::ManualClock;
use crate::context::Providers;
use crate::engine::Engine;
use crate::event::{AttemptFailed, EventBody, Settled};
use crate::exchange::{CallError, DEADLINE_CODE, Delta, Reply, Request};
use crate::provider::wire::fake::{ScriptedServer, ServerMove, chunk, chunked, head, send};
use crate::provider::wire::tests::settings;
use crate::provider::{CallProgress, Provider, Wire, connect_provider};
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
