//! Tests of whole conversations on every wire against the server in `strict.rs`. Replies are sent back, with their
//! encrypted parts unchanged. Every body must match the published types.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::strict::ValidatingServer;
use crate::exchange::{Request, StopReason};
use crate::message::ContentBlock;
use crate::provider::fixture::{assistant, full_request, result, text, user};
use crate::provider::settings::KeyHeader;
use crate::provider::{ApiKey, ProviderSettings, Wire, connect_provider};

macro_rules! stream {
    ($name:literal) => {
        include_str!(concat!("../../../fixtures/streams/", $name, ".sse"))
    };
}

/// Streams of each wire: tools, then thinking, then text.
const STREAMS: [(Wire, &str, &[&str]); 4] = [
    (
        Wire::Anthropic,
        "x-api-key",
        &[stream!("anthropic-tools"), stream!("anthropic-thinking"), stream!("anthropic-text")],
    ),
    (Wire::OpenaiChat, "authorization", &[stream!("openai-tools"), stream!("openai-text"), stream!("openai-text")]),
    (
        Wire::OpenaiResponses,
        "authorization",
        &[stream!("responses-tools"), stream!("responses-thinking"), stream!("responses-text")],
    ),
    (Wire::Gemini, "x-goog-api-key", &[stream!("gemini-tools"), stream!("gemini-thinking"), stream!("gemini-text")]),
];

#[tokio::test]
async fn conversation_round_trips_on_every_wire() {
    for (wire, header, streams) in STREAMS {
        let server = ValidatingServer::start(wire, streams);
        let provider = connect_provider(&ProviderSettings {
            base_url: server.url.clone(),
            key: Some(ApiKey::new("sk-test")),
            key_header: KeyHeader::from(header.to_owned()),
            ..ProviderSettings::with_defaults("test", wire)
        })
        .unwrap();
        let mut request = Request { turns: vec![user(vec![text("Go.")])], ..full_request() };
        for turn in 0..4 {
            let reply = provider.call(&request, &|_| {}).await.unwrap_or_else(|e| panic!("{}: {e}", wire.name()));
            assert_eq!(reply.stop == StopReason::ToolUse, turn == 0, "{} {turn}", wire.name());
            request.turns.push(assistant(reply.content.clone()));
            for block in &reply.content {
                if let ContentBlock::ToolCall(call) = block {
                    request.turns.push(result(&call.id, "done", call.malformed().is_some()));
                }
            }
            request.turns.push(user(vec![text("Next.")]));
        }
        let taken = server.taken.lock().unwrap();
        assert_eq!(taken.len(), 4, "{}", wire.name());
        // A prefix that was sent once must stay the same, or the cache misses.
        let list = ["messages", "input", "contents"].iter().find_map(|key| taken[0].get(*key).map(|_| *key)).unwrap();
        for pair in taken.windows(2) {
            let (before, after) = (pair[0][list].as_array().unwrap(), pair[1][list].as_array().unwrap());
            assert!(after.len() > before.len() && after[..before.len() - 1] == before[..before.len() - 1]);
        }
    }
}

#[tokio::test]
async fn validating_server_rejects_invalid_bodies() {
    let server = ValidatingServer::start(Wire::Anthropic, &[stream!("anthropic-text")]);
    let settings = ProviderSettings {
        base_url: server.url.clone(),
        key: Some(ApiKey::new("sk-test")),
        key_header: KeyHeader::from("x-api-key".to_owned()),
        ..ProviderSettings::with_defaults("test", Wire::Anthropic)
    };
    let orphan = Request { turns: vec![user(vec![text("a")]), result("x", "r", false)], ..full_request() };
    let error = connect_provider(&settings).unwrap().call(&orphan, &|_| {}).await.unwrap_err();
    assert_eq!(error.status, Some(400), "{error}");
    assert!(error.message.contains("answered by [\"x\"]"), "{error}");
    let mut bad = full_request();
    bad.tools[0].name = "no name".into();
    assert_eq!(connect_provider(&settings).unwrap().call(&bad, &|_| {}).await.unwrap_err().status, Some(400));
}
