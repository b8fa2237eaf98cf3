//! Tests of whole attempts against a loopback server: pacing, truncation, refusals, timeouts.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;

use super::fake::{ScriptedServer, ServerMove, chunk, chunked, head, last_chunk, send};
use super::*;
use crate::provider::fixture::{full_request, minimal_request, text};
use crate::provider::settings::{KeyHeader, MaxTokensField, Timeouts};
use crate::provider::{ApiKey, Provider, ProviderSettings, Wire, connect_provider, encode};

const ANTHROPIC: &str = include_str!("../../../fixtures/streams/anthropic-text.sse");
const OPENAI: &str = include_str!("../../../fixtures/streams/openai-text.sse");
const KEY: &str = "sk-test-0123456789";

pub(crate) fn settings(wire: Wire, base_url: &str) -> ProviderSettings {
    let anthropic = wire == Wire::Anthropic;
    ProviderSettings {
        id: "test".to_owned(),
        wire,
        base_url: base_url.to_owned(),
        key: Some(ApiKey::new(KEY)),
        key_env: Some("TEST_API_KEY".to_owned()),
        key_header: if anthropic { KeyHeader::Named("x-api-key".to_owned()) } else { KeyHeader::Bearer },
        max_tokens_field: MaxTokensField::MaxCompletionTokens,
        encrypted_reasoning: true,
        script: None,
        timeouts: Timeouts { answer: Duration::from_secs(20), idle: Duration::from_secs(20) },
    }
}

async fn call(provider: &dyn Provider) -> (Vec<Delta>, Result<Reply, CallError>) {
    let deltas = Mutex::new(Vec::new());
    let reply = provider.call(&full_request(), &|delta| deltas.lock().unwrap().push(delta)).await;
    (deltas.into_inner().unwrap(), reply)
}

async fn anthropic(moves: Vec<ServerMove>) -> Result<Reply, CallError> {
    let server = ScriptedServer::start(moves);
    let provider = connect_provider(&settings(Wire::Anthropic, &server.url)).unwrap();
    call(&*provider).await.1
}

/// Makes an attempt with timeouts of `ms` milliseconds.
async fn anthropic_with_timeouts(ms: u64, moves: Vec<ServerMove>) -> Result<Reply, CallError> {
    let server = ScriptedServer::start(moves);
    let wait = Duration::from_millis(ms);
    let timeouts = Timeouts { answer: wait, idle: wait };
    let provider = connect_provider(&ProviderSettings { timeouts, ..settings(Wire::Anthropic, &server.url) }).unwrap();
    call(&*provider).await.1
}

async fn fails(moves: Vec<ServerMove>) -> CallError {
    let error = anthropic(moves).await.unwrap_err();
    assert!(!format!("{error:?}{error}").contains(KEY), "{error:?}");
    error
}

#[tokio::test]
async fn request_sends_the_body_and_the_key_only_in_its_header() {
    let server = ScriptedServer::start(vec![chunked(), chunk(ANTHROPIC.as_bytes()), last_chunk()]);
    let settings = settings(Wire::Anthropic, &server.url);
    let provider = connect_provider(&settings).unwrap();
    call(&*provider).await.1.unwrap();
    let seen = server.next_request();
    assert_eq!(seen.body.as_bytes(), encode(&settings, &full_request()).unwrap());
    assert!(seen.head.starts_with("POST /v1/messages HTTP/1.1\r\n"), "{}", seen.head);
    for header in ["x-api-key: sk-test-0123456789", "anthropic-version: 2023-06-01", "content-type: application/json"] {
        assert!(seen.head.contains(header), "{header} in {}", seen.head);
    }
    assert!(!seen.head.to_lowercase().contains("authorization"));
    assert!(!format!("{settings:?}").contains(KEY));
}

#[tokio::test]
async fn openai_chat_uses_its_own_path_and_header() {
    for base in ["", "/v1", "/v1/"] {
        let server = ScriptedServer::start(vec![chunked(), chunk(OPENAI.as_bytes()), last_chunk()]);
        let settings = settings(Wire::OpenaiChat, &format!("{}{base}", server.url));
        let provider = connect_provider(&settings).unwrap();
        let (deltas, reply) = call(&*provider).await;
        assert_eq!(reply.unwrap().content, [text("Grüße, world 🌍")]);
        assert_eq!(deltas.len(), 2);
        let seen = server.next_request();
        let path = format!("POST {}/chat/completions HTTP/1.1", base.trim_end_matches('/'));
        assert!(seen.head.starts_with(&path), "{}", seen.head);
        assert!(seen.head.contains("authorization: Bearer sk-test-0123456789"));
        assert_eq!(seen.body.as_bytes(), encode(&settings, &full_request()).unwrap());
    }
}

#[tokio::test]
async fn a_base_url_may_end_in_the_version() {
    let server = ScriptedServer::start(vec![chunked(), chunk(ANTHROPIC.as_bytes()), last_chunk()]);
    let provider = connect_provider(&settings(Wire::Anthropic, &format!("{}/proxy/v1/", server.url))).unwrap();
    call(&*provider).await.1.unwrap();
    assert!(server.next_request().head.starts_with("POST /proxy/v1/messages HTTP/1.1"));
}

#[tokio::test]
async fn slow_stream_is_displayed_as_it_arrives() {
    let mut moves = vec![chunked()];
    for piece in ANTHROPIC.as_bytes().chunks(97) {
        moves.extend([chunk(piece), ServerMove::Pause(15)]);
    }
    moves.push(last_chunk());
    let server = ScriptedServer::start(moves);
    let provider = connect_provider(&settings(Wire::Anthropic, &server.url)).unwrap();
    let times = Arc::new(Mutex::new(Vec::new()));
    let started = Instant::now();
    let reply = provider.call(&minimal_request(), &|_| times.lock().unwrap().push(started.elapsed())).await.unwrap();
    assert_eq!(reply.content, [text("Grüße, world 🌍")]);
    let times = times.lock().unwrap();
    assert!(times[1] > times[0] && started.elapsed() > times[1], "{times:?}");
}

#[tokio::test]
async fn connection_is_reused() {
    let answer = [chunked(), chunk(ANTHROPIC.as_bytes()), last_chunk()];
    let moves =
        [answer.to_vec(), vec![ServerMove::Next], answer.to_vec(), vec![ServerMove::Next], answer.to_vec()].concat();
    let server = ScriptedServer::start(moves);
    let provider = connect_provider(&settings(Wire::Anthropic, &server.url)).unwrap();
    for _ in 0..3 {
        call(&*provider).await.1.unwrap();
        assert_eq!(server.next_request().connection, 0);
    }
}

#[tokio::test]
async fn open_connection_does_not_delay_the_reply() {
    let started = Instant::now();
    let reply = anthropic(vec![chunked(), chunk(ANTHROPIC.as_bytes()), ServerMove::Pause(15_000)]).await;
    assert!(reply.is_ok());
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn status_429_keeps_retry_headers() {
    let body = format!(
        r#"{{"type":"error","error":{{"type":"rate_limit_error","message":"Slow down, {KEY}."}},"request_id":"r"}}"#
    );
    let headers =
        "retry-after: 7\r\nRetry-After-Ms: 6500\r\nset-cookie: a=b\r\nanthropic-ratelimit-requests-reset: soon\r\n";
    let error = fails(vec![head("429 Too Many Requests", "application/json", headers), send(body)]).await;
    assert_eq!((error.stage, error.status), (FailedStage::Status, Some(429)));
    assert_eq!(error.error_type.as_deref(), Some("rate_limit_error"));
    let headers: Vec<(&str, &str)> =
        error.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        headers,
        [("anthropic-ratelimit-requests-reset", "soon"), ("retry-after", "7"), ("retry-after-ms", "6500")]
    );
    assert!(error.message.ends_with(" answered 429: Slow down, [masked: key]."), "{}", error.message);
    assert_eq!(error.usage, None);
}

#[tokio::test]
async fn error_statuses_read_any_body() {
    let error = fails(vec![head("529 Overloaded", "text/html", ""), send("<html><body>Oh\u{1b}[31m</body>")]).await;
    assert_eq!((error.status, error.message.ends_with("answered 529")), (Some(529), true), "{}", error.message);
    let error = fails(vec![head("500 Oops", "text/plain", ""), send("line one\nline\u{7}two")]).await;
    assert!(error.message.ends_with("answered 500: line one line two"), "{}", error.message);
    let body = r#"{"error":{"message":"no such model","type":"invalid_request_error","code":"model_not_found"}}"#;
    let error = fails(vec![head("404 Not Found", "application/json", ""), send(body)]).await;
    assert_eq!(error.code.as_deref(), Some("model_not_found"));
    let error = fails(vec![head("400 Bad", "application/json", ""), send(r#"{"error":"plain text"}"#)]).await;
    assert!(error.message.ends_with("answered 400: plain text"), "{}", error.message);
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let elsewhere = ScriptedServer::start(vec![chunked(), chunk(ANTHROPIC.as_bytes()), last_chunk()]);
    let location = format!("location: {}/v1/messages\r\ncontent-length: 0\r\n", elsewhere.url);
    let error = fails(vec![head("307 Temporary Redirect", "text/plain", &location)]).await;
    assert_eq!((error.stage, error.status), (FailedStage::Status, Some(307)));
}

#[tokio::test]
async fn endless_error_body_is_truncated() {
    let flood = vec![b'x'; 300_000];
    let started = Instant::now();
    let error = fails(vec![head("500 Oops", "text/plain", ""), send(flood), ServerMove::Pause(15_000)]).await;
    assert!(error.message.len() < 3_000);
    assert!(started.elapsed() < Duration::from_secs(10));
    let moves = vec![head("503 Busy", "text/plain", ""), send("wait"), ServerMove::Pause(15_000)];
    let error = anthropic_with_timeouts(400, moves).await.unwrap_err();
    assert!(error.message.ends_with("answered 503: wait"), "{}", error.message);
}

#[tokio::test]
async fn refused_connection_is_a_connect_error() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let provider =
        connect_provider(&settings(Wire::Anthropic, &format!("http://user:{KEY}@localhost:{port}"))).unwrap();
    let error = call(&*provider).await.1.unwrap_err();
    assert_eq!(error.stage, FailedStage::Connect);
    assert!(!format!("{error:?}").contains(KEY), "{error:?}");
    assert!(error.message.starts_with(&format!("no connection to localhost:{port}: ")), "{}", error.message);
}

#[tokio::test]
async fn connection_closed_without_response_fails() {
    assert_eq!(fails(vec![]).await.stage, FailedStage::Connect);
}

#[tokio::test]
async fn late_headers_time_out() {
    let started = Instant::now();
    let error = anthropic_with_timeouts(400, vec![ServerMove::Pause(15_000), chunked()]).await.unwrap_err();
    assert_eq!(error.stage, FailedStage::Timeout);
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn silent_stream_times_out() {
    let (front, _) = ANTHROPIC.split_once("event: message_delta").unwrap();
    let error = anthropic_with_timeouts(400, vec![chunked(), chunk(front.as_bytes()), ServerMove::Pause(15_000)])
        .await
        .unwrap_err();
    assert_eq!(error.stage, FailedStage::Timeout);
    assert_eq!(error.usage, Some(Usage { input: 25, output: 1, cache_read: 1200, cache_write: 400 }));
}

#[tokio::test]
async fn keep_alives_reset_the_idle_timeout() {
    let mut moves = vec![chunked()];
    for _ in 0..6 {
        moves.extend([chunk(b": still here\n\n"), ServerMove::Pause(400)]);
    }
    moves.extend([chunk(ANTHROPIC.as_bytes()), last_chunk()]);
    assert!(anthropic_with_timeouts(1_800, moves).await.is_ok());
}

#[tokio::test]
async fn cut_stream_is_truncated() {
    let (front, _) = ANTHROPIC.split_once("world").unwrap();
    // The stream breaks in the middle of a chunk, after a chunk, or at a clean end of the body. Every case is reported
    // as truncated.
    let broken = send([b"fff\r\n", front.as_bytes()].concat());
    for moves in [
        vec![chunked(), broken],
        vec![chunked(), chunk(front.as_bytes())],
        vec![chunked(), chunk(front.as_bytes()), last_chunk()],
        vec![head("200 OK", "text/event-stream", ""), send(front)],
        vec![chunked(), last_chunk()],
    ] {
        assert_eq!(fails(moves).await.stage, FailedStage::Truncated);
    }
}

#[tokio::test]
async fn non_stream_success_is_a_protocol_error() {
    let error = fails(vec![head("200 OK", "text/html; charset=utf-8", ""), send("<html>log in</html>")]).await;
    assert_eq!(error.stage, FailedStage::Protocol);
    assert!(
        error.message.ends_with("answered with `text/html; charset=utf-8`, not with a stream"),
        "{}",
        error.message
    );
    let body = r#"{"error":{"type":"overloaded_error","message":"Later."}}"#;
    let error = fails(vec![head("200 OK", "application/json", ""), send(body)]).await;
    assert_eq!((error.stage, error.error_type.as_deref()), (FailedStage::StreamError, Some("overloaded_error")));
}

#[tokio::test]
async fn oversized_event_fails() {
    let mut moves = vec![head("200 OK", "text/event-stream", ""), send("data: ")];
    moves.extend(std::iter::repeat_n(send(vec![b'x'; 1024 * 1024]), 17));
    let error = fails(moves).await;
    assert_eq!(error.stage, FailedStage::Protocol);
}

#[tokio::test]
async fn key_in_a_stream_error_is_redacted() {
    let event =
        format!("event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"x\",\"message\":\"{KEY}\"}}}}\n\n");
    let error = fails(vec![chunked(), chunk(event.as_bytes()), last_chunk()]).await;
    assert_eq!(error.message, "the provider reported an error: [masked: key]");
}

#[tokio::test]
async fn encoded_key_in_an_error_is_redacted() {
    let base64 = base64::engine::general_purpose::STANDARD.encode(KEY);
    let hex = KEY.bytes().fold(String::new(), |all, byte| format!("{all}{byte:02x}"));
    let percent = KEY.bytes().fold(String::new(), |all, byte| format!("{all}%{byte:02X}"));
    for encoded in [KEY.to_owned(), base64, hex.to_uppercase(), hex, percent] {
        let body =
            format!("{{\"type\":\"error\",\"error\":{{\"type\":\"x\",\"message\":\"bad key {encoded} here\"}}}}");
        let event = format!("event: error\ndata: {body}\n\n");
        let streamed = fails(vec![chunked(), chunk(event.as_bytes()), last_chunk()]).await;
        let refused = fails(vec![head("400 Bad Request", "application/json", ""), send(body.clone())]).await;
        for error in [streamed, refused] {
            assert!(error.message.contains("bad key [masked: key]"), "{encoded}: {error}");
            assert!(!format!("{error:?}").contains(&encoded), "{encoded}: {error:?}");
        }
    }
}

/// Returns the stream of a reply that contains the key in its text, in the arguments of a call, in an unknown event and
/// in the stop reason. Some of these keys are split over two events.
fn stream_with_the_key() -> String {
    let half = KEY.len() / 2;
    let events = [
        serde_json::json!({"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}),
        serde_json::json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        serde_json::json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": format!("{KEY} {}", &KEY[..half])}}),
        serde_json::json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": &KEY[half..]}}),
        serde_json::json!({"type": "content_block_stop", "index": 0}),
        serde_json::json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "c", "name": "t", "input": {}}}),
        serde_json::json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": format!("{{\"a\": [\"{}", &KEY[..half])}}),
        serde_json::json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": format!("{}\"]}}", &KEY[half..])}}),
        serde_json::json!({"type": "content_block_stop", "index": 1}),
        serde_json::json!({"type": KEY, "value": KEY}),
        serde_json::json!({"type": "message_delta", "delta": {"stop_reason": KEY}, "usage": {"output_tokens": 9}}),
        serde_json::json!({"type": "message_stop"}),
    ];
    let event = |value: &Value| format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap());
    events.iter().map(event).collect()
}

#[tokio::test]
async fn key_in_a_reply_is_redacted_in_text_calls_stop_reasons_and_event_names() {
    let server = ScriptedServer::start(vec![chunked(), chunk(stream_with_the_key().as_bytes()), last_chunk()]);
    let (deltas, reply) = call(&*connect_provider(&settings(Wire::Anthropic, &server.url)).unwrap()).await;
    let reply = reply.unwrap();
    let stored = serde_json::to_string(&reply).unwrap();
    assert!(!stored.contains(KEY), "{stored}");
    assert_eq!(reply.content[0], text("[masked: key] [masked: key]"));
    assert!(stored.contains(r#"["[masked: key]"]"#), "{stored}");
    assert!(!format!("{deltas:?}").contains(KEY), "{deltas:?}");
}

#[tokio::test]
async fn reply_without_usage_has_an_unknown_cost() {
    let silent: String =
        OPENAI.split("\n\n").filter(|event| !event.contains("prompt_tokens")).collect::<Vec<_>>().join("\n\n");
    let server = ScriptedServer::start(vec![chunked(), chunk(silent.as_bytes()), last_chunk()]);
    let settings = settings(Wire::OpenaiChat, &server.url);
    let reply = call(&*connect_provider(&settings).unwrap()).await.1.unwrap();
    let sent = length(encode(&settings, &full_request()).unwrap().len());
    let received = length(silent.len());
    assert_eq!((reply.usage, reply.uncounted), (Usage::default(), Some(CutStream { sent, received })));
}

#[test]
fn invalid_settings_fail_before_sending() {
    let refused = |change: &dyn Fn(&mut ProviderSettings)| {
        let mut settings = settings(Wire::Anthropic, "https://api.example.com");
        change(&mut settings);
        let Err(error) = connect_provider(&settings) else { panic!("connected") };
        assert_eq!(error.stage, FailedStage::Setup);
        assert!(!format!("{error:?}").contains("sk-test"), "{error:?}");
        error.message
    };
    assert_eq!(
        refused(&|settings| settings.key = None),
        "no key for provider `test`: set the environment variable `TEST_API_KEY`"
    );
    assert!(refused(&|settings| settings.key = Some(ApiKey::new(" "))).contains("TEST_API_KEY"));
    assert!(refused(&|settings| settings.key = Some(ApiKey::new("sk-test\nx"))).contains("TEST_API_KEY"));
    for base in ["", "api.example.com", "file:///etc/passwd", "ftp://x", "http://", "https://exa mple.com"] {
        assert!(refused(&|settings| base.clone_into(&mut settings.base_url)).contains("base URL"), "{base}");
    }
    assert!(refused(&|settings| settings.wire = Wire::Scripted).contains("--script"));
}

#[test]
fn a_provider_without_a_key_variable_needs_no_key() {
    let settings =
        ProviderSettings { key: None, key_env: None, ..settings(Wire::OpenaiChat, "http://localhost:11434/v1") };
    assert!(connect_provider(&settings).is_ok());
}

#[tokio::test]
async fn request_that_an_idle_connection_lost_fails_with_permission_to_repeat_at_once() {
    let answer = [chunked(), chunk(ANTHROPIC.as_bytes()), last_chunk()];
    // The first connection answers the first request, and closes without an answer to the second request.
    let first = [answer.to_vec(), vec![ServerMove::Next]].concat();
    let server = ScriptedServer::start_each(vec![first, answer.to_vec()]);
    let provider = connect_provider(&settings(Wire::Anthropic, &server.url)).unwrap();
    call(&*provider).await.1.unwrap();
    let error = call(&*provider).await.1.unwrap_err();
    assert_eq!((error.stage, error.cut.is_some()), (FailedStage::Connect, true), "{error:?}");
    assert_eq!(error.headers, [("retry-after-ms".to_owned(), "0".to_owned())]);
    call(&*provider).await.1.unwrap();
    let connections = [server.next_request(), server.next_request(), server.next_request()].map(|seen| seen.connection);
    assert_eq!(connections, [0, 0, 1]);
}

#[tokio::test]
async fn refused_key_names_its_variable() {
    for status in ["401 Unauthorized", "403 Forbidden"] {
        let error = fails(vec![head(status, "application/json", ""), send(r#"{"error":{"message":"no"}}"#)]).await;
        assert!(error.message.contains("`TEST_API_KEY`"), "{error}");
    }
    let stream = "event: error\ndata: {\"error\":{\"code\":401,\"message\":\"no\"}}\n\n";
    let error = fails(vec![chunked(), chunk(stream.as_bytes()), last_chunk()]).await;
    assert!(error.message.contains("`TEST_API_KEY`"), "{error}");
    let error = fails(vec![head("400 Bad Request", "application/json", ""), send("{}")]).await;
    assert!(!error.message.contains("TEST_API_KEY"), "{error}");
}

#[test]
fn list_of_unread_names_states_that_it_is_incomplete() {
    let mut unread = UnreadKinds::default();
    for n in 0..25 {
        unread.add(&format!("u{}", n % 20));
    }
    assert_eq!(unread.into_vec().len(), 20);
    let mut unread = UnreadKinds::default();
    for n in 0..60_000 {
        unread.add(&format!("u{n}"));
    }
    let names = unread.into_vec();
    assert_eq!((names.len(), names.last().map(String::as_str)), (21, Some("more names, left out")));
}

/// Sending all pieces takes a minute, which is longer than any timeout in the tests.
const DRIP_PIECES: usize = 3_000;

/// Returns moves that send `piece` again and again for a minute.
fn drip(piece: &ServerMove) -> Vec<ServerMove> {
    (0..DRIP_PIECES).flat_map(|_| [piece.clone(), ServerMove::Pause(20)]).collect()
}

#[tokio::test]
async fn error_status_whose_body_drips_is_an_error_in_bounded_time() {
    let moves = [vec![head("503 Service Unavailable", "text/plain", "retry-after: 7\r\n")], drip(&send("x"))].concat();
    let call = anthropic_with_timeouts(2_000, moves);
    let error = tokio::time::timeout(Duration::from_secs(40), call).await.unwrap().unwrap_err();
    assert_eq!((error.status, error.cut), (Some(503), None), "{error:?}");
    assert_eq!(error.headers, [("retry-after".to_owned(), "7".to_owned())]);
}

#[tokio::test]
async fn chat_reply_without_an_end_marker_is_complete_after_a_short_silence() {
    let whole = OPENAI.split("data: [DONE]").next().unwrap();
    let moves = [vec![chunked(), chunk(whole.as_bytes())], drip(&chunk(b": keep-alive\n\n"))].concat();
    let server = ScriptedServer::start(moves);
    let provider = connect_provider(&settings(Wire::OpenaiChat, &server.url)).unwrap();
    let (_, reply) = tokio::time::timeout(Duration::from_secs(40), call(&*provider)).await.unwrap();
    assert!(reply.unwrap().uncounted.is_none());
}

#[test]
fn chat_reply_lacks_only_its_end_marker_after_the_stop_reason_and_the_usage() {
    let mut decoder = crate::provider::openai_chat::ChatDecoder::default();
    let mut parser = SseParser::default();
    let mut lacking = Vec::new();
    for event in parser.push(OPENAI.as_bytes()).unwrap() {
        decoder.push(&event);
        lacking.push(decoder.lacks_only_end_marker());
    }
    // The usage is the last event before `[DONE]`.
    assert_eq!(lacking.iter().position(|lacks| *lacks), Some(lacking.len() - 2), "{lacking:?}");
    assert_eq!(lacking.last(), Some(&false));
}
