//! Tests of every status, header and cut of `engine.md` 3, against a real server on loopback, and of the events that
//! record the reaction.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rye_compiler::plan::PlannedModel;
use serde_json::Value;
use tokio::sync::Notify;

use super::{Lab, reply_text, thread};
use crate::BoxFuture;
use crate::clock::JumpingClock;
use crate::context::{ApprovalPolicy, Providers};
use crate::engine::{Engine, EngineOptions};
use crate::event::{AttemptFailed, Event, EventBody, Settled};
use crate::exchange::{CallError, Delta, FailedStage, Reply, Request};
use crate::provider::http::TEST_TIMEOUT_SIGNAL;
use crate::provider::settings::{KeyHeader, MaxTokensField, Timeouts};
use crate::provider::wire::fake::{ScriptedServer, ServerMove, chunk, chunked, head, last_chunk, send};
use crate::provider::{ApiKey, Provider, ProviderSettings, Wire, connect_provider};
use crate::retry::SeededJitter;
use crate::thread::{RunResult, Status};
use crate::trust::Trust;

const STREAM: &str = include_str!("../../../fixtures/streams/anthropic-text.sse");
const SAID: &str = "Grüße, world 🌍";
/// The start time of the test clock: 14 November 2023, 22:13:20.
const NOW: i64 = 1_700_000_000_000;

/// Timeouts longer than any test takes.
const PATIENT: Timeouts = Timeouts { answer: Duration::from_mins(2), idle: Duration::from_mins(2) };

/// The point at which the server of a first attempt goes silent forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Silence {
    /// After it has read the request.
    Before,
    /// After it has sent part of the reply.
    Within,
}

/// A silence, and the signal that it has started. A timeout fires at this signal, not after some time.
#[derive(Clone)]
struct SilenceSignal {
    when: Silence,
    noticed: Arc<Notify>,
}

/// The server of the current thread: its address, which changes between threads, and its silence.
#[derive(Clone)]
struct MovableServer(Arc<Mutex<(String, Option<SilenceSignal>)>>);

/// A provider that times out at once if the server goes silent in the first attempt, and never times out in other
/// attempts.
struct SilenceAwareProvider {
    server: Arc<dyn Provider>,
    silent: Option<SilenceSignal>,
}

impl Provider for SilenceAwareProvider {
    fn call<'a>(
        &'a self,
        request: &'a Request,
        live: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        let Some(SilenceSignal { when, noticed }) = self.silent.clone().filter(|_| request.cue.attempt == 0) else {
            return self.server.call(request, live);
        };
        Box::pin(async move {
            let signal = Arc::clone(&noticed);
            let live = move |delta| {
                if when == Silence::Within {
                    signal.notify_one();
                }
                live(delta);
            };
            TEST_TIMEOUT_SIGNAL.scope(noticed, self.server.call(request, &live)).await
        })
    }
}

impl Providers for MovableServer {
    fn connect(&self, _: &PlannedModel) -> Result<Arc<dyn Provider>, CallError> {
        let (url, silent) = self.0.lock().unwrap().clone();
        Ok(Arc::new(SilenceAwareProvider { server: Self::connect(&url)?, silent }))
    }
}

impl MovableServer {
    fn connect(url: &str) -> Result<Arc<dyn Provider>, CallError> {
        connect_provider(&ProviderSettings {
            id: "test".to_owned(),
            wire: Wire::Anthropic,
            base_url: url.to_owned(),
            key: Some(ApiKey::new("sk-test-0123456789")),
            key_env: Some("TEST_API_KEY".to_owned()),
            key_header: KeyHeader::Named("x-api-key".to_owned()),
            max_tokens_field: MaxTokensField::MaxTokens,
            encrypted_reasoning: true,
            script: None,
            timeouts: PATIENT,
        })
    }
}

struct FaultLab {
    lab: Lab,
    engine: Engine,
    server: MovableServer,
}

impl FaultLab {
    fn new(prepare: impl FnOnce(&Lab)) -> Self {
        let lab = Lab::new(|_| Ok(reply_text("no request expected")));
        lab.directive("asks", "<limits duration_seconds=\"600\"/>", "");
        prepare(&lab);
        let server = MovableServer(Arc::new(Mutex::new((String::new(), None))));
        let mut options =
            EngineOptions::with_trust(&lab.path(), None, lab.system.clone(), Trust::Everything, ApprovalPolicy::Allow)
                .unwrap();
        options.providers = Arc::new(server.clone());
        options.clock = Arc::new(JumpingClock::starting_at(NOW));
        let engine = Engine::open(&lab.path(), options).unwrap();
        Self { lab, engine, server }
    }

    /// Runs a thread against a server that plays one script per connection.
    async fn run(&self, scripts: Vec<Vec<ServerMove>>) -> (RunResult, Vec<Event>) {
        self.run_silent(scripts, None).await
    }

    /// Runs a thread against a server that goes silent at the first attempt.
    async fn run_silent(&self, scripts: Vec<Vec<ServerMove>>, silence: Option<Silence>) -> (RunResult, Vec<Event>) {
        let server = ScriptedServer::start_each(scripts);
        let silent = silence.map(|when| SilenceSignal { when, noticed: Arc::default() });
        let url = server.url.clone();
        if let Some(SilenceSignal { when: Silence::Before, noticed }) = silent.clone() {
            std::thread::spawn(move || {
                server.next_request();
                noticed.notify_one();
            });
        }
        self.run_at(&url, silent).await
    }

    async fn run_at(&self, url: &str, silent: Option<SilenceSignal>) -> (RunResult, Vec<Event>) {
        *self.server.0.lock().unwrap() = (url.to_owned(), silent);
        let result = self.lab.run(&self.engine, "asks").await;
        let events = self.engine.threads().transcript(&thread(&result)).unwrap();
        (result, events)
    }
}

fn failures(events: &[Event]) -> Vec<&AttemptFailed> {
    let failed = |e: &'_ Event| matches!(e.body, EventBody::AttemptFailed(_));
    let bodies = events.iter().filter(|e| failed(e));
    bodies.map(|e| if let EventBody::AttemptFailed(failed) = &e.body { &**failed } else { unreachable!() }).collect()
}

fn well() -> Vec<ServerMove> {
    vec![chunked(), chunk(STREAM.as_bytes()), last_chunk()]
}

/// A response with this status, and an error body with this code.
fn status(status: u16, headers: &str, code: &str) -> Vec<ServerMove> {
    let body = format!(r#"{{"error":{{"type":"some_error","code":"{code}","message":"the server's own words"}}}}"#);
    vec![head(&format!("{status} Said"), "application/json", headers), send(body)]
}

/// A stream that ends with an error of this type.
fn error_event(kind: &str) -> Vec<ServerMove> {
    let event = format!(
        "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"{kind}\",\"message\":\"told\"}}}}\n\n"
    );
    vec![closing(), chunk(event.as_bytes()), last_chunk()]
}

/// The head of a stream whose server closes the connection afterwards, so that the client does not reuse it.
fn closing() -> ServerMove {
    head("200 OK", "text/event-stream", "transfer-encoding: chunked\r\nconnection: close\r\n")
}

/// The expected failure of the first attempt.
struct FaultCase {
    what: String,
    moves: Vec<ServerMove>,
    stage: FailedStage,
    class: &'static str,
    category: &'static str,
    /// True if the server reported usage before it failed.
    counted: bool,
    /// The point at which the server goes silent, if it does.
    silence: Option<Silence>,
}

impl FaultCase {
    fn new(
        what: impl Into<String>,
        moves: Vec<ServerMove>,
        stage: FailedStage,
        class: (&'static str, &'static str),
    ) -> Self {
        Self { what: what.into(), moves, stage, class: class.0, category: class.1, counted: false, silence: None }
    }

    fn counted(self) -> Self {
        Self { counted: true, ..self }
    }

    fn silent(self, when: Silence) -> Self {
        Self { silence: Some(when), ..self }
    }
}

const RATE: (&str, &str) = ("rate_limited", "rate_limited");
const CONFLICT: (&str, &str) = ("request_conflict", "transient");
const SERVER: (&str, &str) = ("server_error", "transient");
const OVER: (&str, &str) = ("overloaded", "transient");
const NEVER: (&str, &str) = ("not_supported", "permanent");
const QUOTA: (&str, &str) = ("quota_exceeded", "permanent");
const AUTH: (&str, &str) = ("authentication", "permanent");
const WRONG: (&str, &str) = ("invalid_request", "permanent");
const LOST: (&str, &str) = ("connection_lost", "transient");

fn rows() -> Vec<FaultCase> {
    let mut rows = Vec::new();
    let statuses = [
        (408, CONFLICT),
        (409, CONFLICT),
        (425, CONFLICT),
        (429, RATE),
        (500, SERVER),
        (502, SERVER),
        (503, SERVER),
        (504, SERVER),
        (507, SERVER),
        (529, OVER),
        (599, SERVER),
        (501, NEVER),
        (505, NEVER),
        (511, NEVER),
        (400, WRONG),
        (401, AUTH),
        (402, QUOTA),
        (403, AUTH),
        (404, WRONG),
        (422, WRONG),
    ];
    for (code, class) in statuses {
        rows.push(FaultCase::new(code.to_string(), status(code, "", "x"), FailedStage::Status, class));
        let quota = status(code, "", "insufficient_quota");
        rows.push(FaultCase::new(format!("{code} with a quota code"), quota, FailedStage::Status, QUOTA));
        let key = status(code, "", "invalid_api_key");
        rows.push(FaultCase::new(format!("{code} with a key's code"), key, FailedStage::Status, AUTH));
    }
    for (kind, class) in [
        ("overloaded_error", OVER),
        ("rate_limit_error", RATE),
        ("timeout_error", ("timeout", "transient")),
        ("api_error", SERVER),
        ("something_unheard_of", ("stream_error", "transient")),
        ("insufficient_quota", QUOTA),
        ("billing_error", QUOTA),
        ("authentication_error", AUTH),
        ("permission_error", AUTH),
    ] {
        rows.push(FaultCase::new(
            format!("an error event `{kind}`"),
            error_event(kind),
            FailedStage::StreamError,
            class,
        ));
    }
    let cut = STREAM.find("event: message_delta").unwrap();
    let early = vec![closing(), chunk(&STREAM.as_bytes()[..cut]), last_chunk()];
    let truncated = ("truncated", "transient");
    rows.push(FaultCase::new("a stream without its final event", early, FailedStage::Truncated, truncated).counted());
    let nothing = vec![closing(), last_chunk()];
    rows.push(FaultCase::new("a stream without any event", nothing, FailedStage::Truncated, truncated));
    let torn = vec![chunked(), send(format!("ffff\r\n{}", &STREAM[..cut]))];
    rows.push(FaultCase::new("a connection cut within a piece", torn, FailedStage::Truncated, truncated).counted());
    rows.push(FaultCase::new("a connection closed before an answer", Vec::new(), FailedStage::Connect, LOST));
    rows.push(FaultCase::new("a connection that is reset", vec![ServerMove::Reset], FailedStage::Connect, LOST));
    let timeout = ("timeout", "transient");
    let no_answer = FaultCase::new("no answer", vec![ServerMove::Stay], FailedStage::Timeout, timeout);
    rows.push(no_answer.silent(Silence::Before));
    // The data before the silence is sent in one piece.
    let (ServerMove::Send(head), ServerMove::Send(body)) = (chunked(), chunk(&STREAM.as_bytes()[..cut])) else {
        unreachable!()
    };
    let silent = vec![send([head, body].concat()), ServerMove::Stay];
    let silent = FaultCase::new("a stream that falls silent", silent, FailedStage::Timeout, timeout).counted();
    rows.push(silent.silent(Silence::Within));
    rows
}

#[tokio::test]
async fn each_failure_is_classified_recorded_and_retried_if_retryable() {
    let field = FaultLab::new(|_| {});
    for row in rows() {
        let (what, retried) = (&row.what, row.category != "permanent");
        let (result, events) = field.run_silent(vec![row.moves, well()], row.silence).await;
        let failed = failures(&events);
        assert_eq!(failed.len(), 1, "{what}: {failed:?}");
        let first = failed[0];
        assert_eq!((first.turn, first.attempt, first.error.stage), (1, 0, row.stage), "{what}: {first:?}");
        let class = &first.classification;
        let classified = (class.name.as_str(), class.category.as_str(), class.retryable);
        assert_eq!(classified, (row.class, row.category, retried), "{what}: {first:?}");
        assert_eq!(first.retry_delay_ms.is_some(), retried, "{what}");
        if retried {
            assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some(SAID)), "{what}");
            assert_eq!(result.cost.turns, 1, "{what}: a failed attempt is no turn");
        } else {
            let code = result.error.as_ref().map(|error| error.code.as_str());
            assert_eq!((result.status, code), (Status::Error, Some(row.class)), "{what}");
            assert_eq!(result.result, None, "{what}: the text of a failed attempt is no answer");
        }
        // Every attempt is settled: at its worst case if the server may have accepted the request without a refusal, else at zero. An error as the only event of
        // a stream is a refusal.
        let settled = settlements(&events);
        assert_eq!(settled.len(), 1 + usize::from(retried), "{what}");
        let began =
            row.counted || matches!(row.stage, FailedStage::Truncated | FailedStage::Connect | FailedStage::Timeout);
        let reserved = events.iter().find_map(|e| if let EventBody::Reserved(r) = &e.body { Some(r) } else { None });
        let expected = if began { reserved.unwrap().amount } else { 0 };
        assert_eq!((settled[0].unknown_outcome, settled[0].amount), (began, expected), "{what}: {:?}", settled[0]);
        assert_eq!(settled[0].usage.output > 0, began, "{what}: {:?}", settled[0]);
        assert_eq!(first.error.usage.is_some(), row.counted, "{what}");
    }
}

fn settlements(events: &[Event]) -> Vec<&Settled> {
    events.iter().filter_map(|e| if let EventBody::Settled(s) = &e.body { Some(s) } else { None }).collect()
}

/// A stream that is cut in the middle of its text.
fn cut() -> Vec<ServerMove> {
    let at = STREAM.find("event: message_delta").unwrap();
    vec![closing(), chunk(&STREAM.as_bytes()[..at]), last_chunk()]
}

#[tokio::test]
async fn repeated_cut_streams_stop_at_the_spend_limit() {
    for (setting, stops) in [("worst_case", true), ("estimate", false)] {
        let field = FaultLab::new(|lab| {
            lab.directive("asks", "<limits spend=\"0.08\"/>", "");
            let settings = format!("budget: {{ unknown_outcome: {setting} }}\nretry: {{ max_retries: 9 }}\n");
            lab.write(".ai/config/agent/resilience.yaml", &settings);
        });
        let (result, events) = field.run(vec![cut()]).await;
        let code = result.error.unwrap().code;
        assert_eq!(code == "spend_exceeded", stops, "{setting}: {code}");
        let settled = settlements(&events);
        assert!(settled.iter().all(|s| s.unknown_outcome && s.usage.whole_input() >= 1625), "{settled:?}");
        let spent: u64 = settled.iter().map(|s| s.amount).sum();
        assert!(spent > 0 && spent <= 80_000_000, "{setting}: {spent}");
        assert_eq!(settled.len() == 10, !stops, "{setting}: {} attempts", settled.len());
        let row = field.engine.threads().list().unwrap().remove(0).row;
        let account = field.engine.account(&row.id).unwrap().unwrap();
        assert_eq!((row.cost.spend, account.spent().to_u64()), (spent, spent));
        let output: u64 = settled.iter().map(|s| s.usage.output).sum();
        assert_eq!((row.cost.output_tokens, result.cost.output_tokens), (output, output));
    }
}

#[tokio::test]
async fn retry_after_headers_override_the_backoff() {
    let field = FaultLab::new(|_| {});
    // Dates are compared with the clock, which advances a little with every read.
    let table: [(&str, std::ops::RangeInclusive<u64>); 8] = [
        ("retry-after-ms: 1500\r\n", 1500..=1500),
        ("retry-after-ms: 1500\r\nretry-after: 7\r\n", 1500..=1500),
        ("retry-after: 2\r\n", 2000..=2000),
        ("retry-after: 0.25\r\n", 250..=250),
        ("retry-after: 0\r\n", 0..=0),
        ("retry-after: 90\r\n", 90_000..=90_000),
        ("retry-after: DATE\r\n", 28_000..=30_000),
        ("retry-after: Tue, 14 Nov 2023 20:00:00 GMT\r\n", 0..=0),
    ];
    for (headers, expected) in table {
        let later = (crate::clock::Clock::now(&*field.engine.inner.clock) + 30_000) / 1000;
        let date = jiff::Timestamp::from_second(later).unwrap().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let (_, events) = field.run(vec![status(429, &headers.replace("DATE", &date), "x"), well()]).await;
        let delay = failures(&events)[0].retry_delay_ms.unwrap();
        assert!(expected.contains(&delay), "{headers:?}: {delay}");
        // The next attempt comes after the delay, not before.
        let failed = events.iter().find(|e| matches!(e.body, EventBody::AttemptFailed(_))).unwrap();
        let again = events.iter().rfind(|e| matches!(e.body, EventBody::AttemptIntended(_)));
        assert!(u64::try_from(again.unwrap().ts - failed.ts).unwrap() >= delay, "{headers:?}");
    }
    // A delay beyond the thread's 600 seconds ends the thread.
    let (_, events) = field.run(vec![status(429, "retry-after: 99999999\r\n", "x"), well()]).await;
    assert_eq!(failures(&events)[0].retry_delay_ms, None);
    assert!(events.iter().any(|e| matches!(e.body, EventBody::Limit(_))));
}

#[tokio::test]
async fn backoff_without_headers_grows_and_uses_the_recorded_seed() {
    let field = FaultLab::new(|_| {});
    let (result, events) = field.run(vec![status(503, "", "x")]).await;
    assert_eq!((result.status, result.error.unwrap().code.as_str()), (Status::Error, "server_error"));
    let seed =
        events.iter().find_map(|e| if let EventBody::Opened(o) = &e.body { Some(o.seed) } else { None }).unwrap();
    let delays: Vec<Option<u64>> = failures(&events).iter().map(|failed| failed.retry_delay_ms).collect();
    let drawn: Vec<Option<u64>> = (0..3).map(|n| Some(SeededJitter::new(seed, 1, n).up_to(1000 << (n + 1)))).collect();
    assert_eq!(delays, [drawn, vec![None]].concat(), "three more attempts, then none");
}

#[tokio::test]
async fn error_hooks_run_after_the_last_attempt() {
    let hook = "hooks:\n  - id: gives_up\n    event: error\n    condition: 'classification.name == \"overloaded\"'\n    \
                action: { terminate: { status: error, error: \"we gave up\" } }\n";
    let field = FaultLab::new(|lab| lab.write(".ai/config/agent/hooks.yaml", hook));
    let (result, events) = field.run(vec![status(529, "", "x")]).await;
    assert_eq!(failures(&events).len(), 4);
    assert_eq!((result.status, result.error.unwrap().message.as_str()), (Status::Error, "we gave up"));
    let points: Vec<Value> = events
        .iter()
        .filter(|e| matches!(e.body, EventBody::HookPoint(_)))
        .map(|e| serde_json::to_value(&e.body).unwrap())
        .filter(|point| point["point"] == "error")
        .collect();
    assert_eq!(points.len(), 1, "once, when nothing else is left: {points:?}");
    // Without a hook that handles it, the failure ends the thread.
    let (result, _) = field.run(vec![status(500, "", "x")]).await;
    assert_eq!((result.status, result.error.unwrap().code.as_str()), (Status::Error, "server_error"));
}

#[tokio::test]
async fn unreachable_server_is_retried_then_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let field = FaultLab::new(|_| {});
    let (result, events) = field.run_at(&url, None).await;
    let failed = failures(&events);
    assert_eq!(failed.len(), 4);
    for attempt in failed {
        assert_eq!(
            (attempt.error.stage, attempt.classification.name.as_str()),
            (FailedStage::Connect, "connection_lost")
        );
    }
    assert_eq!((result.status, result.error.unwrap().code.as_str()), (Status::Error, "connection_lost"));
}
