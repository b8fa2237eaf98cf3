//! Tests of the error shapes, content kinds and events of each wire (the tables of `docs/reference/providers.md`).

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use rye_compiler::semantics::classify::{ClassifyTable, Failure};
use serde_json::{Value, json};

use crate::exchange::{CallError, FailedStage, Reply, Request, StopReason};
use crate::message::{ContentBlock, SharedMessage};
use crate::provider::fixture::{assistant, call, minimal_request, parse_body, replay, result, text, user};
use crate::provider::provider_schemas::validate_body;
use crate::provider::wire::ReplyDecoder;
use crate::provider::{ProviderSettings, Wire, anthropic, encode, gemini, openai_chat, openai_responses};

const WIRES: [Wire; 4] = [Wire::Anthropic, Wire::OpenaiChat, Wire::OpenaiResponses, Wire::Gemini];

fn play<D: ReplyDecoder + Default>(stream: &str) -> Result<Reply, CallError> {
    replay(&[stream.as_bytes()], D::default()).1
}

fn play_on(wire: Wire, stream: &str) -> Result<Reply, CallError> {
    match wire {
        Wire::Anthropic => play::<anthropic::AnthropicDecoder>(stream),
        Wire::OpenaiChat => play::<openai_chat::ChatDecoder>(stream),
        Wire::OpenaiResponses => play::<openai_responses::ResponsesDecoder>(stream),
        Wire::Gemini => play::<gemini::GeminiDecoder>(stream),
        Wire::Scripted => unreachable!("no stream"),
    }
}

fn data(values: &[Value]) -> String {
    values.iter().fold(String::new(), |all, value| all + &format!("data: {value}\n\n"))
}

/// Classifies a failed attempt in the same way as the engine.
fn classify(error: &CallError) -> (String, bool) {
    let stage = serde_json::to_value(error.stage).unwrap();
    let class = ClassifyTable::built_in().classify(&Failure {
        stage: stage.as_str().map(str::to_owned),
        status: error.status,
        headers: error.headers.clone(),
        error_type: error.error_type.clone(),
        code: error.code.clone(),
        message: error.message.clone(),
        attempt: 1,
    });
    (class.name, class.retryable)
}

#[test]
fn error_events_keep_the_words_of_the_server() {
    for wire in WIRES {
        for stream in [
            "data: {\"error\":{\"type\":\"overloaded_error\",\"message\":\"Too busy\"}}\n\n",
            "data: {\"error\":\"Too busy\"}\n\n",
            "event: error\ndata: {\"code\":\"overloaded\",\"message\":\"Too busy\",\"type\":\"server_error\"}\n\n",
            "event: error\ndata: {\"message\":\"Too busy\"}\n\n",
        ] {
            let error = play_on(wire, stream).unwrap_err();
            assert_eq!(error.stage, FailedStage::StreamError, "{} {stream}", wire.name());
            assert!(error.message.contains("Too busy"), "{} {stream}: {error}", wire.name());
        }
    }
}

#[test]
fn error_codes_in_a_stream_classify_as_the_status() {
    let table = [
        (json!(401), "authentication", false),
        (json!(402), "quota_exceeded", false),
        (json!("403"), "authentication", false),
        (json!(400), "invalid_request", false),
        (json!("429"), "rate_limited", true),
        (json!(503), "server_error", true),
        (json!(529), "overloaded", true),
        (json!("rate_limit_exceeded"), "rate_limited", true),
        (json!("invalid_request_error"), "invalid_request", false),
        (json!(7), "stream_error", true),
    ];
    for wire in WIRES {
        for (code, name, retryable) in &table {
            let error = play_on(wire, &data(&[json!({"error": {"code": code, "message": "m"}})])).unwrap_err();
            assert_eq!(classify(&error), ((*name).to_owned(), *retryable), "{} {code}", wire.name());
        }
    }
}

#[test]
fn damaged_event_is_transient() {
    for wire in WIRES {
        let error = play_on(wire, "data: {\"choices\": [{\n\n").unwrap_err();
        assert_eq!(error.stage, FailedStage::Protocol, "{}", wire.name());
        assert_eq!(classify(&error), ("damaged_stream".to_owned(), true), "{}", wire.name());
    }
}

fn chat(deltas: &[Value]) -> Reply {
    let mut events: Vec<Value> =
        deltas.iter().map(|delta| json!({"choices": [{"index": 0, "delta": delta}]})).collect();
    events
        .push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}));
    play_on(Wire::OpenaiChat, &data(&events)).unwrap()
}

#[test]
fn chat_content_in_parts_is_read() {
    let reply = chat(&[
        json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]}),
        json!({"content": [{"type": "text", "text": "Yes"}, {"type": "reference", "reference_ids": [1]}]}),
        json!({"content": ", indeed."}),
    ]);
    let thinking = ContentBlock::Thinking { text: "Hm.".into(), signature: None };
    assert_eq!(reply.content, [thinking, text("Yes, indeed.")]);
    assert_eq!(reply.unread, ["content.reference"]);
}

#[test]
fn chat_function_call_of_the_old_form_is_read() {
    let reply = chat(&[
        json!({"function_call": {"name": "read", "arguments": "{\"path\":"}}),
        json!({"function_call": {"arguments": "\"a\"}"}}),
    ]);
    assert_eq!(reply.content, [call("call_0", "read", json!({"path": "a"}))]);
    assert_eq!(reply.stop, StopReason::ToolUse);
}

#[test]
fn unknown_kinds_are_named_in_the_reply() {
    let streams = [
        (
            Wire::Anthropic,
            vec![
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {}}}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
                json!({"type": "message_stop"}),
            ],
            "citations_delta",
        ),
        (
            Wire::OpenaiChat,
            vec![
                json!({"choices": [{"index": 0, "delta": {"content": "a", "audio": {"data": "x"}}}]}),
                json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
            ],
            "delta.audio",
        ),
        (
            Wire::OpenaiResponses,
            vec![
                json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "a"}),
                json!({"type": "response.audio.delta", "delta": "x"}),
                json!({"type": "response.completed", "response": {}}),
            ],
            "response.audio.delta",
        ),
        (
            Wire::Gemini,
            vec![
                json!({"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP", "groundingMetadata": {}}]}),
            ],
            "candidate.groundingMetadata",
        ),
    ];
    for (wire, events, kind) in streams {
        let reply = play_on(wire, &data(&events)).unwrap();
        assert_eq!(reply.content, [text("a")], "{}", wire.name());
        assert_eq!(reply.unread, [kind], "{}", wire.name());
    }
}

/// Decodes, for each wire, the recorded stream that contains tool calls.
fn replies() -> Vec<(Wire, Reply)> {
    let streams = [
        (Wire::Anthropic, include_str!("../../../fixtures/streams/anthropic-tools.sse")),
        (Wire::OpenaiChat, include_str!("../../../fixtures/streams/openai-tools.sse")),
        (Wire::OpenaiResponses, include_str!("../../../fixtures/streams/responses-tools.sse")),
        (Wire::Gemini, include_str!("../../../fixtures/streams/gemini-tools.sse")),
    ];
    streams.into_iter().map(|(wire, stream)| (wire, play_on(wire, stream).unwrap())).collect()
}

fn sent(wire: Wire, model: &str, turns: Vec<SharedMessage>) -> Value {
    let settings = ProviderSettings::with_defaults("test", wire);
    parse_body(&encode(&settings, &Request { model: model.to_owned(), turns, ..minimal_request() }).unwrap())
}

/// Returns a conversation that ends with this reply and a result for each of its calls.
fn tool_loop(reply: &Reply) -> Vec<SharedMessage> {
    let mut turns = vec![user(vec![text("Go.")]), assistant(reply.content.clone())];
    turns.extend(reply.content.iter().filter_map(|block| match block {
        ContentBlock::ToolCall(call) => Some(result(&call.id, "done", false)),
        ContentBlock::Text { .. }
        | ContentBlock::Image(_)
        | ContentBlock::Thinking { .. }
        | ContentBlock::Other { .. } => None,
    }));
    turns
}

#[test]
fn history_of_every_wire_is_valid_on_every_wire() {
    for (from, reply) in replies() {
        for to in WIRES {
            let body = sent(to, "gemini-3-pro", tool_loop(&reply));
            validate_body(to, &body).unwrap_or_else(|error| panic!("{} to {}: {error}", from.name(), to.name()));
            if to != Wire::Gemini {
                continue;
            }
            let parts = body["contents"][1]["parts"].as_array().unwrap();
            let first = parts.iter().find(|part| part.get("functionCall").is_some()).unwrap();
            let signed = if from == Wire::Gemini { "c2VhbA==" } else { "skip_thought_signature_validator" };
            assert_eq!(first["thoughtSignature"], signed, "{}", from.name());
            let signatures = parts.iter().filter(|part| part.get("thoughtSignature").is_some()).count();
            assert_eq!(signatures, 1, "{}", from.name());
        }
    }
}

#[test]
fn signatures_are_sent_only_to_models_that_require_them() {
    let (_, reply) = &replies()[0];
    for (model, signed) in [
        ("gemini-3-pro-preview", true),
        ("models/gemini-3.1-flash", true),
        ("tunedModels/mine", true),
        ("gemini-2.5-pro", false),
        ("models/gemini-1.5-flash", false),
    ] {
        let body = sent(Wire::Gemini, model, tool_loop(reply)).to_string();
        assert_eq!(body.contains("skip_thought_signature_validator"), signed, "{model}");
    }
}

#[test]
fn call_ids_are_shortened_for_chat() {
    for length in [40, 41, 64, 200] {
        let id = "c".repeat(length);
        let turns = tool_loop(&Reply { content: vec![call(&id, "read", json!({}))], ..replies().remove(0).1 });
        let body = sent(Wire::OpenaiChat, "m", turns);
        let sent = body.pointer("/messages/2/tool_calls/0/id").and_then(Value::as_str).unwrap();
        assert!(sent.len() <= 40, "{sent}");
        assert_eq!(body.pointer("/messages/3/tool_call_id").and_then(Value::as_str), Some(sent));
        assert_eq!(sent == id, length <= 40);
    }
}
