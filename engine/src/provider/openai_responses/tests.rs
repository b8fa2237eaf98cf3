//! Tests of exact request bytes, and of streams split at every byte.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use serde_json::json;

use super::*;
use crate::exchange::{FailedStage, StopReason, Usage};
use crate::message::MALFORMED_KEY;
use crate::provider::fixture::{
    assert_broken_bytes_are_replaced, assert_prefixes_fail, assistant, call, event, full_request, minimal_request,
    parse_body, replay_all_chunkings, text, user,
};
use crate::provider::wire::ReplyDecoder;

fn body(request: &Request, encrypted_reasoning: bool) -> Value {
    parse_body(&encode(request, encrypted_reasoning))
}

const TEXT: &str = include_str!("../../../fixtures/streams/responses-text.sse");
const TOOLS: &str = include_str!("../../../fixtures/streams/responses-tools.sse");
const THINKING: &str = include_str!("../../../fixtures/streams/responses-thinking.sse");
const ERROR: &str = include_str!("../../../fixtures/streams/responses-error.sse");

#[test]
fn smallest_request_has_only_the_required_fields() {
    assert_eq!(
        body(&minimal_request(), true).to_string(),
        concat!(
            r#"{"model":"model-1","max_output_tokens":1024,"stream":true,"store":false,"#,
            r#""include":["reasoning.encrypted_content"],"instructions":"Be brief.","#,
            r#""input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hello"}]}]}"#
        )
    );
    assert_eq!(body(&minimal_request(), false).get("include"), None);
}

#[test]
fn a_body_with_everything() {
    let body = body(&full_request(), true);
    let expected = [
        r#"[{"type":"message","role":"user","content":[{"type":"input_text","text":"First."},{"type":"input_text","text":"Second."}]},"#,
        r#"{"type":"message","role":"assistant","content":"Reading."},"#,
        r#"{"type":"function_call","call_id":"c1","name":"read","arguments":"{\"path\":\"a\"}"},"#,
        r#"{"type":"function_call","call_id":"c_2","name":"no_such","arguments":"{\"__malformed\":\"{\\\"path\"}"},"#,
        r#"{"type":"function_call_output","call_id":"c1","output":"content of a"},"#,
        r#"{"type":"function_call_output","call_id":"c_2","output":"Error: (no output)"},"#,
        r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"And this?"},"#,
        r#"{"type":"input_image","image_url":"data:image/png;base64,iVBORw0=","detail":"auto"}]},"#,
        r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"Go on."}]}]"#,
    ];
    assert_eq!(body["input"].to_string(), expected.concat());
    assert_eq!(body["tools"][0]["name"], "read");
    assert_eq!(body["tools"][0]["strict"], false);
}

#[test]
fn text_stream_becomes_one_reply() {
    let (deltas, reply) = replay_all_chunkings::<ResponsesDecoder>(TEXT);
    let reply = reply.unwrap();
    assert_eq!(reply.content, [text("Grüße, world 🌍")]);
    assert_eq!(reply.usage, Usage { input: 25, output: 15, cache_read: 1200, cache_write: 400 });
    assert_eq!(reply.stop, StopReason::EndTurn);
    assert_eq!(reply.model.as_deref(), Some("gpt-test-1"));
    assert_eq!(deltas, [Delta::Text("Grüße, ".to_owned()), Delta::Text("world 🌍".to_owned())]);
    assert_prefixes_fail::<ResponsesDecoder>(TEXT);
    assert_broken_bytes_are_replaced::<ResponsesDecoder>(TEXT);
}

#[test]
fn parallel_calls_whose_pieces_interleave() {
    let (deltas, reply) = replay_all_chunkings::<ResponsesDecoder>(TOOLS);
    let reply = reply.unwrap();
    assert_eq!(
        reply.content,
        [
            call("call_a", "rye_file_system_read", json!({"path": "a.txt"})),
            call("call_b", "rye_file_system_ls", json!({})),
            call("call_c", "rye_file_system_read", json!({MALFORMED_KEY: "{\"path\": \"b.t"})),
        ]
    );
    assert_eq!(reply.stop, StopReason::ToolUse);
    assert_eq!(reply.usage, Usage { input: 300, output: 80, ..Usage::default() });
    assert_eq!(deltas.len(), 3 + 3);
    assert_prefixes_fail::<ResponsesDecoder>(TOOLS);
}

#[test]
fn reasoning_and_unknown_items_round_trip() {
    let (deltas, reply) = replay_all_chunkings::<ResponsesDecoder>(THINKING);
    let reply = reply.unwrap();
    let thought = ContentBlock::Thinking { text: "First, look.\n\nThen answer.".into(), signature: None };
    assert_eq!(reply.content[0], thought);
    assert_eq!(deltas.iter().filter(|delta| matches!(delta, Delta::Thinking(_))).count(), 3);
    let request = Request { turns: vec![user(vec![text("Hi")]), assistant(reply.content)], ..minimal_request() };
    assert_eq!(
        body(&request, true)["input"].as_array().unwrap()[1..],
        [
            json!({"id": "rs_1", "type": "reasoning", "summary": [
                {"type": "summary_text", "text": "First, look."}, {"type": "summary_text", "text": "Then answer."},
            ], "encrypted_content": "c2VhbGVk"}),
            json!({"id": "ws_1", "type": "web_search_call", "status": "completed",
                "action": {"type": "search", "query": "rye"}}),
            json!({"type": "message", "role": "assistant", "content": "Done."}),
        ]
    );
}

#[test]
fn reasoning_without_content_or_successor_is_not_sent() {
    let thought = |value: Value| ContentBlock::Other { wire: WIRE.to_owned(), value };
    let open = thought(json!({"type": "reasoning", "id": "r", "summary": []}));
    let sealed = thought(json!({"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"}));
    assert_eq!(super::assistant(&[open, text("a")]).len(), 1);
    assert_eq!(super::assistant(&[sealed.clone(), text("a")]).len(), 2);
    assert_eq!(super::assistant(&[text("a"), sealed]).len(), 1);
}

#[test]
fn failed_response_keeps_its_usage() {
    let (deltas, reply) = replay_all_chunkings::<ResponsesDecoder>(ERROR);
    let error = reply.unwrap_err();
    assert_eq!(error.stage, FailedStage::StreamError);
    assert_eq!(error.code.as_deref(), Some("server_error"));
    assert_eq!(error.message, "the provider reported an error: The server had an error");
    assert_eq!(error.usage, Some(Usage { input: 10, output: 1, ..Usage::default() }));
    assert_eq!(deltas, [Delta::Text("Half an ans".to_owned())]);
}

fn play(events: &[Value]) -> Result<Reply, CallError> {
    let mut decoder = ResponsesDecoder::default();
    for value in events {
        decoder.push(&event(value));
    }
    decoder.finish()
}

#[test]
fn an_error_event_in_both_forms() {
    for error in [
        json!({"type": "error", "code": "rate_limit_exceeded", "message": "Slow down", "param": null}),
        json!({"type": "error", "error": {"type": "rate_limit_exceeded", "code": "rate_limit_exceeded", "message": "Slow down"}}),
    ] {
        let error = play(&[error]).unwrap_err();
        assert_eq!(error.code.as_deref(), Some("rate_limit_exceeded"));
        assert_eq!(error.error_type.as_deref(), Some("rate_limit_exceeded"));
    }
}

#[test]
fn final_events_are_mapped() {
    let message = json!({"type": "message", "content": [{"type": "output_text", "text": "a"}]});
    let refusal = json!({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]});
    let called = json!({"type": "function_call", "call_id": "i", "name": "n", "arguments": "{}"});
    let end = |kind: &str, output: &Value, more: Value| {
        let mut response = json!({"output": [output]});
        response.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        play(&[json!({"type": kind, "response": response})]).unwrap()
    };
    assert_eq!(end("response.completed", &message, json!({})).stop, StopReason::EndTurn);
    assert_eq!(end("response.completed", &called, json!({})).stop, StopReason::ToolUse);
    let refused = end("response.completed", &refusal, json!({}));
    assert_eq!((refused.stop, refused.content), (StopReason::Refusal, vec![text("No.")]));
    let why = |reason: &str| json!({"incomplete_details": {"reason": reason}});
    assert_eq!(end("response.incomplete", &called, why("max_output_tokens")).stop, StopReason::Length);
    assert_eq!(end("response.incomplete", &message, why("content_filter")).stop, StopReason::Refusal);
    assert_eq!(end("response.incomplete", &message, why("x")).stop, StopReason::Other("x".to_owned()));
}

#[test]
fn whole_streamed_and_repeated_items_decode() {
    let done = json!({"type": "response.completed", "response": {}});
    let item = json!({"type": "message", "content": [{"type": "output_text", "text": "ab"}]});
    let whole = json!({"type": "response.output_item.done", "output_index": 0, "item": item});
    let added = json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}});
    let piece = |text: &str| json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text});
    for events in [
        vec![whole.clone(), done.clone()],
        vec![piece("a"), piece("b"), done.clone()],
        vec![added.clone(), piece("a"), added.clone(), piece("b"), whole.clone(), whole.clone(), done.clone()],
        vec![added, whole, done],
    ] {
        assert_eq!(play(&events).unwrap().content, [text("ab")]);
    }
}

#[test]
fn invalid_json_and_unknown_events_are_handled() {
    let push = |name: &str, data: &str| {
        let mut decoder = ResponsesDecoder::default();
        decoder.push(&crate::provider::sse::SseEvent { name: name.to_owned(), data: data.to_owned() });
        decoder.finish().unwrap_err().stage
    };
    assert_eq!(push("response.output_text.delta", "{"), FailedStage::Protocol);
    assert_eq!(push("", "hello"), FailedStage::Protocol);
    assert_eq!(push("keepalive", "-"), FailedStage::Truncated);
    assert_eq!(push("", "[DONE]"), FailedStage::Truncated);
    assert_eq!(push("", r#"{"type":"response.new_thing","x":1}"#), FailedStage::Truncated);
}
