//! Tests of exact request bytes, and of streams split at every byte.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use serde_json::json;

use super::*;
use crate::exchange::{FailedStage, StopReason, ThreadPosition, Usage};
use crate::message::{MALFORMED_KEY, ToolCall};
use crate::provider::fixture::{
    assert_broken_bytes_are_replaced, assert_prefixes_fail, assistant, call, event, full_request, minimal_request,
    parse_body, replay_all_chunkings, result, text, user,
};
use crate::provider::wire::ReplyDecoder;

fn body(request: &Request) -> Value {
    parse_body(&encode(request))
}

const TEXT: &str = include_str!("../../../fixtures/streams/anthropic-text.sse");
const TOOLS: &str = include_str!("../../../fixtures/streams/anthropic-tools.sse");
const THINKING: &str = include_str!("../../../fixtures/streams/anthropic-thinking.sse");
const ERROR: &str = include_str!("../../../fixtures/streams/anthropic-error.sse");

#[test]
fn minimal_request_has_exact_body() {
    assert_eq!(
        body(&minimal_request()).to_string(),
        concat!(
            r#"{"model":"model-1","max_tokens":1024,"stream":true,"#,
            r#""system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],"#,
            r#""messages":[{"role":"user","content":[{"type":"text","text":"Hello","cache_control":{"type":"ephemeral"}}]}]}"#
        )
    );
}

#[test]
fn full_request_has_exact_body() {
    let schema = r#"{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}"#;
    let expected = [
        r#"{"model":"model-1","max_tokens":1024,"stream":true,"#,
        r#""system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],"#,
        r#""tools":[{"name":"read","description":"What read does.","input_schema":"#,
        schema,
        r#"},{"name":"ls","description":"What ls does.","input_schema":"#,
        schema,
        r#","cache_control":{"type":"ephemeral"}}],"#,
        r#""messages":[{"role":"user","content":[{"type":"text","text":"First."},"#,
        r#"{"type":"text","text":"Second.","cache_control":{"type":"ephemeral"}}]},"#,
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"sig"},"#,
        r#"{"type":"redacted_thinking","data":"b3BhcXVl"},{"type":"text","text":"Reading."},"#,
        r#"{"type":"tool_use","id":"c1","name":"read","input":{"path":"a"}},"#,
        r#"{"type":"tool_use","id":"c_2","name":"no_such","input":{"__malformed":"{\"path"}}]},"#,
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"content of a"},"#,
        r#"{"type":"tool_result","tool_use_id":"c_2","content":"(no output)","is_error":true},"#,
        r#"{"type":"text","text":"And this?"},"#,
        r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0="}},"#,
        r#"{"type":"text","text":"Go on."}]}]}"#,
    ];
    assert_eq!(body(&full_request()).to_string(), expected.concat());
}

#[test]
fn thread_position_is_never_sent() {
    let mut request = full_request();
    let before = body(&request);
    request.cue =
        ThreadPosition { directive: "project/x".to_owned(), turn: Some(3), attempt: 2, ..ThreadPosition::default() };
    assert_eq!(body(&request), before);
}

#[test]
fn request_without_constant_parts_has_no_breakpoints() {
    let request = Request { system: " \n".into(), first_turn_constant: false, ..minimal_request() };
    let body = body(&request);
    assert_eq!(body.get("system"), None);
    assert_eq!(body.get("tools"), None);
    assert!(!body.to_string().contains("cache_control"));
}

#[test]
fn tool_results_precede_text() {
    let request = Request {
        turns: vec![
            user(vec![text("Go.")]),
            assistant(vec![call("a", "x", json!({})), call("b", "x", json!({}))]),
            result("a", "1", false),
            user(vec![text("Faster!")]),
            result("b", "2", false),
        ],
        ..minimal_request()
    };
    let body = body(&request);
    let kinds: Vec<&str> = body["messages"][2]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["tool_result", "tool_result", "text"]);
}

#[test]
fn text_stream_decodes() {
    let (deltas, reply) = replay_all_chunkings::<AnthropicDecoder>(TEXT);
    let reply = reply.unwrap();
    assert_eq!(reply.content, [text("Grüße, world 🌍")]);
    assert_eq!(reply.usage, Usage { input: 25, output: 15, cache_read: 1200, cache_write: 400 });
    assert_eq!(reply.stop, StopReason::EndTurn);
    assert_eq!(reply.model.as_deref(), Some("claude-test-1"));
    assert_eq!(deltas, [Delta::Text("Grüße, ".to_owned()), Delta::Text("world 🌍".to_owned())]);
    assert_prefixes_fail::<AnthropicDecoder>(TEXT);
    assert_broken_bytes_are_replaced::<AnthropicDecoder>(TEXT);
}

#[test]
fn parallel_calls_with_empty_or_invalid_arguments_decode() {
    let (deltas, reply) = replay_all_chunkings::<AnthropicDecoder>(TOOLS);
    let reply = reply.unwrap();
    assert_eq!(
        reply.content,
        [
            text("Reading both."),
            call("toolu_a", "rye_file_system_read", json!({"path": "a.txt"})),
            call("toolu_b", "rye_file_system_ls", json!({})),
            call("toolu_c", "rye_file_system_read", json!({MALFORMED_KEY: "{\"path\": \"b.t"})),
        ]
    );
    let ContentBlock::ToolCall(broken) = &reply.content[3] else { panic!("a call") };
    assert_eq!(broken.malformed(), Some("{\"path\": \"b.t"));
    assert_eq!(reply.stop, StopReason::ToolUse);
    assert_eq!(reply.usage, Usage { input: 300, output: 80, ..Usage::default() });
    assert_eq!(deltas.len(), 2 + 3 + 3);
    assert_prefixes_fail::<AnthropicDecoder>(TOOLS);
}

#[test]
fn thinking_and_unknown_blocks_round_trip() {
    let (_, reply) = replay_all_chunkings::<AnthropicDecoder>(THINKING);
    let reply = reply.unwrap();
    assert_eq!(reply.usage, Usage { input: 12, output: 40, ..Usage::default() });
    let request = Request { turns: vec![user(vec![text("Hi")]), assistant(reply.content)], ..minimal_request() };
    assert_eq!(
        body(&request)["messages"][1]["content"],
        json!([
            {"type": "thinking", "thinking": "First, look.", "signature": "c2lnbmF0dXJl"},
            {"type": "redacted_thinking", "data": "b3BhcXVl"},
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rye"}},
            {"type": "text", "text": "Done."},
        ])
    );
}

#[test]
fn error_event_fails_with_usage() {
    let (deltas, reply) = replay_all_chunkings::<AnthropicDecoder>(ERROR);
    let error = reply.unwrap_err();
    assert_eq!(error.stage, FailedStage::StreamError);
    assert_eq!(error.error_type.as_deref(), Some("overloaded_error"));
    assert_eq!(error.message, "the provider reported an error: Overloaded");
    assert_eq!(error.usage, Some(Usage { input: 10, output: 1, ..Usage::default() }));
    assert_eq!(deltas, [Delta::Text("Half an ans".to_owned())]);
}

#[test]
fn stream_without_final_event_is_truncated() {
    let cut = TEXT.split("event: message_stop").next().unwrap();
    let error = replay_all_chunkings::<AnthropicDecoder>(cut).1.unwrap_err();
    assert_eq!(error.stage, FailedStage::Truncated);
    assert_eq!(error.usage.unwrap().output, 15);
}

#[test]
fn repeated_and_missing_starts_are_tolerated() {
    let doubled = TEXT.replace("event: ping\n", "event: message_start\n").replace(
        "data: {\"type\": \"ping\"}",
        "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}",
    );
    assert_eq!(replay_all_chunkings::<AnthropicDecoder>(&doubled).1.unwrap().content, [text("Grüße, world 🌍")]);
    let headless: String = TEXT
        .split("event: ")
        .filter(|part| !part.starts_with("content_block_start"))
        .fold(String::new(), |stream, part| if part.is_empty() { stream } else { format!("{stream}event: {part}") });
    assert_eq!(replay_all_chunkings::<AnthropicDecoder>(&headless).1.unwrap().content, [text("Grüße, world 🌍")]);
}

#[test]
fn events_after_the_end_are_ignored() {
    let mut decoder = AnthropicDecoder::default();
    decoder.push(&event(&json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})));
    decoder.push(&event(&json!({"type": "message_stop"})));
    assert!(decoder.is_done());
    decoder.push(&event(&json!({"type": "error", "error": {"type": "late"}})));
    assert!(decoder.finish().is_ok());
}

#[test]
fn non_json_data_fails_only_in_message_events() {
    let push = |name: &str, data: &str| {
        let mut decoder = AnthropicDecoder::default();
        decoder.push(&crate::provider::sse::SseEvent { name: name.to_owned(), data: data.to_owned() });
        decoder.finish().unwrap_err().stage
    };
    assert_eq!(push("content_block_delta", "{"), FailedStage::Protocol);
    assert_eq!(push("", "hello"), FailedStage::Protocol);
    assert_eq!(push("keep-alive", "-"), FailedStage::Truncated);
    assert_eq!(push("", "[DONE]"), FailedStage::Truncated);
}

#[test]
fn stop_reasons_are_mapped() {
    let stop = |reason: &str, block: serde_json::Value| {
        let mut decoder = AnthropicDecoder::default();
        decoder.push(&event(&json!({"type": "content_block_start", "index": 0, "content_block": block})));
        decoder.push(&event(&json!({"type": "message_delta", "delta": {"stop_reason": reason}})));
        decoder.push(&event(&json!({"type": "message_stop"})));
        decoder.finish().unwrap().stop
    };
    let block = json!({"type": "text", "text": "a"});
    let called = json!({"type": "tool_use", "id": "a", "name": "b", "input": {"x": 1}});
    assert_eq!(stop("end_turn", block.clone()), StopReason::EndTurn);
    assert_eq!(stop("end_turn", called.clone()), StopReason::ToolUse);
    assert_eq!(stop("max_tokens", called), StopReason::Length);
    assert_eq!(stop("model_context_window_exceeded", block.clone()), StopReason::ContextWindow);
    assert_eq!(stop("refusal", block.clone()), StopReason::Refusal);
    assert_eq!(stop("pause_turn", block), StopReason::Length);
}

#[test]
fn arguments_in_the_start_event_are_kept() {
    let mut decoder = AnthropicDecoder::default();
    let block = json!({"type": "tool_use", "id": "a", "name": "b", "input": {"x": 1}});
    decoder.push(&event(&json!({"type": "content_block_start", "index": 0, "content_block": block})));
    decoder.push(&event(&json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})));
    decoder.push(&event(&json!({"type": "message_stop"})));
    let expected = ToolCall { id: "a".to_owned(), name: "b".to_owned(), input: json!({"x": 1}) };
    assert_eq!(decoder.finish().unwrap().content, [ContentBlock::ToolCall(expected)]);
}
