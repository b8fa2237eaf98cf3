//! Tests of the error shapes, content kinds and events of each wire (the tables of `docs/reference/providers.md`).

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use rye_compiler::semantics::classify::{ClassifyTable, Failure};
use serde_json::{Value, json};

use crate::exchange::{CallError, FailedStage, Reply, Request, StopReason, Usage};
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

/// Returns a stream with the text `a` and the usage `report`. The events of `between` come before this text.
fn stream_with(wire: Wire, between: &[Value], report: &Value) -> String {
    let text = |index: u64| json!({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": "a"}});
    let (first, last): (Vec<Value>, Vec<Value>) = match wire {
        Wire::Anthropic => (
            vec![json!({"type": "message_start", "message": {"usage": report}})],
            vec![
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                text(0),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": report}),
                json!({"type": "message_stop"}),
            ],
        ),
        Wire::OpenaiChat => (
            Vec::new(),
            vec![
                json!({"choices": [{"index": 0, "delta": {"content": "a"}}]}),
                json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
                json!({"choices": [], "usage": report}),
            ],
        ),
        Wire::OpenaiResponses => (
            Vec::new(),
            vec![
                json!({"type": "response.output_text.delta", "output_index": 9, "content_index": 0, "delta": "a"}),
                json!({"type": "response.completed", "response": {"status": "completed", "usage": report}}),
            ],
        ),
        Wire::Gemini => (
            Vec::new(),
            vec![
                json!({"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}], "usageMetadata": report}),
            ],
        ),
        Wire::Scripted => unreachable!("no stream"),
    };
    data(&[first, between.to_vec(), last].concat())
}

fn plain_report(wire: Wire) -> Value {
    match wire {
        Wire::Anthropic | Wire::OpenaiResponses => json!({"input_tokens": 9, "output_tokens": 2}),
        Wire::OpenaiChat => json!({"prompt_tokens": 9, "completion_tokens": 2}),
        Wire::Gemini => json!({"promptTokenCount": 9, "candidatesTokenCount": 2}),
        Wire::Scripted => unreachable!("no stream"),
    }
}

#[test]
fn known_events_are_read_or_ignored_and_never_named_as_unread() {
    let response = |kind: &str| json!({"type": kind, "response": {"id": "r", "status": "in_progress"}});
    let part = json!({"type": "output_text", "text": "", "annotations": []});
    let thought = json!({"type": "reasoning", "id": "t", "summary": [{"type": "summary_text", "text": "Hm."}]});
    let table = [
        (Wire::Anthropic, vec![json!({"type": "ping"})]),
        (
            Wire::OpenaiChat,
            vec![json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []})],
        ),
        (
            Wire::OpenaiResponses,
            vec![
                response("response.created"),
                response("response.queued"),
                response("response.in_progress"),
                json!({"type": "response.output_item.added", "output_index": 0, "item": thought}),
                json!({"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0}),
                json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "Hm."}),
                json!({"type": "response.reasoning_summary_text.done", "output_index": 0, "summary_index": 0, "text": "Hm."}),
                json!({"type": "response.reasoning_summary_part.done", "output_index": 0, "summary_index": 0}),
                json!({"type": "response.output_item.done", "output_index": 0, "item": thought}),
                json!({"type": "response.content_part.added", "output_index": 9, "content_index": 0, "part": part}),
            ],
        ),
        (
            Wire::Gemini,
            vec![json!({"candidates": [{"index": 0, "content": {"parts": [], "role": "model"}}], "modelVersion": "m"})],
        ),
    ];
    for (wire, events) in table {
        let reply = play_on(wire, &stream_with(wire, &events, &plain_report(wire))).unwrap();
        assert_eq!(reply.unread, [""; 0], "{}", wire.name());
        assert_eq!(reply.content.last(), Some(&text("a")), "{}", wire.name());
        assert_eq!(reply.usage, Usage { input: 9, output: 2, ..Usage::default() }, "{}", wire.name());
        for event in &events {
            let alone = play_on(wire, &stream_with(wire, std::slice::from_ref(event), &plain_report(wire))).unwrap();
            assert_eq!(alone.unread, [""; 0], "{} {event}", wire.name());
        }
    }
    let marked = format!("{}data: [DONE]\n\n", stream_with(Wire::OpenaiChat, &[], &plain_report(Wire::OpenaiChat)));
    assert_eq!(play_on(Wire::OpenaiChat, &marked).unwrap().content, [text("a")]);
}

#[test]
fn usage_is_read_in_every_documented_spelling() {
    let usage = |input, output, cache_read, cache_write| Usage { input, output, cache_read, cache_write };
    let chat = |more: Value| {
        let mut report = json!({"prompt_tokens": 100, "completion_tokens": 5});
        report.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        report
    };
    let cached = json!({"cached_tokens": 40, "cache_write_tokens": 30});
    let table = [
        (
            Wire::Anthropic,
            json!({"input_tokens": 30, "output_tokens": 5, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 30}),
            usage(30, 5, 40, 30),
        ),
        (
            Wire::Anthropic,
            json!({"input_tokens": 30, "output_tokens": 5, "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20}}),
            usage(30, 5, 0, 30),
        ),
        (Wire::OpenaiChat, chat(json!({})), usage(100, 5, 0, 0)),
        (Wire::OpenaiChat, chat(json!({"prompt_tokens_details": cached})), usage(30, 5, 40, 30)),
        (
            Wire::OpenaiChat,
            chat(json!({"prompt_cache_hit_tokens": 40, "prompt_cache_miss_tokens": 60})),
            usage(60, 5, 40, 0),
        ),
        (Wire::OpenaiChat, chat(json!({"cached_tokens": 40})), usage(60, 5, 40, 0)),
        (
            Wire::OpenaiResponses,
            json!({"input_tokens": 100, "output_tokens": 5, "input_tokens_details": cached}),
            usage(30, 5, 40, 30),
        ),
        (
            Wire::Gemini,
            json!({"promptTokenCount": 80, "toolUsePromptTokenCount": 20, "cachedContentTokenCount": 40, "candidatesTokenCount": 3, "thoughtsTokenCount": 2}),
            usage(60, 5, 40, 0),
        ),
    ];
    for (wire, report, wanted) in table {
        let reply = play_on(wire, &stream_with(wire, &[], &report)).unwrap();
        assert_eq!((reply.usage, reply.unread.as_slice()), (wanted, [].as_slice()), "{} {report}", wire.name());
        assert!(reply.uncounted.is_none(), "{} {report}", wire.name());
    }
}

#[test]
fn ids_of_calls_are_sent_as_every_wire_accepts_them() {
    for (wire, of_call, of_result) in [
        (Wire::Anthropic, "/messages/1/content/0/id", "/messages/2/content/0/tool_use_id"),
        (Wire::OpenaiChat, "/messages/2/tool_calls/0/id", "/messages/3/tool_call_id"),
        (Wire::OpenaiResponses, "/input/1/call_id", "/input/2/call_id"),
        (Wire::Gemini, "/contents/1/parts/0/functionCall/id", "/contents/2/parts/0/functionResponse/id"),
    ] {
        for id in ["c1".to_owned(), "c".repeat(64)] {
            let turns = tool_loop(&Reply { content: vec![call(&id, "read", json!({}))], ..replies().remove(0).1 });
            let body = sent(wire, "gemini-3-pro", turns);
            let found = [of_call, of_result].map(|path| body.pointer(path).and_then(Value::as_str));
            assert!(found[0].is_some() && found[0] == found[1], "{} {body}", wire.name());
            assert!(wire == Wire::OpenaiChat || found[0] == Some(id.as_str()), "{} {body}", wire.name());
        }
    }
    let call = json!({"candidates": [{"content": {"parts": [{"functionCall": {"name": "read", "args": {}}}]}, "finishReason": "STOP"}]});
    let ContentBlock::ToolCall(made) = &play_on(Wire::Gemini, &data(&[call])).unwrap().content[0] else { panic!() };
    assert!(!made.id.is_empty(), "an id is generated if the server sends none");
}
