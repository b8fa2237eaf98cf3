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

fn body(request: &Request, max_tokens_field: MaxTokensField) -> Value {
    parse_body(&encode(request, max_tokens_field))
}

const TEXT: &str = include_str!("../../../fixtures/streams/openai-text.sse");
const TOOLS: &str = include_str!("../../../fixtures/streams/openai-tools.sse");
const ERROR: &str = include_str!("../../../fixtures/streams/openai-error.sse");

#[test]
fn smallest_request_has_only_the_required_fields() {
    assert_eq!(
        body(&minimal_request(), MaxTokensField::MaxTokens).to_string(),
        concat!(
            r#"{"model":"model-1","max_tokens":1024,"stream":true,"stream_options":{"include_usage":true},"#,
            r#""messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello"}]}"#
        )
    );
}

#[test]
fn a_body_with_everything() {
    let schema = r#"{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}"#;
    let expected = [
        r#"{"model":"model-1","max_completion_tokens":1024,"stream":true,"stream_options":{"include_usage":true},"#,
        r#""messages":[{"role":"system","content":"Be brief."},"#,
        r#"{"role":"user","content":[{"type":"text","text":"First."},{"type":"text","text":"Second."}]},"#,
        r#"{"role":"assistant","content":"Reading.","tool_calls":["#,
        r#"{"id":"c1","type":"function","function":{"name":"read","arguments":"{\"path\":\"a\"}"}},"#,
        r#"{"id":"c_2","type":"function","function":{"name":"no_such","arguments":"{\"__malformed\":\"{\\\"path\"}"}}]},"#,
        r#"{"role":"tool","tool_call_id":"c1","content":"content of a"},"#,
        r#"{"role":"tool","tool_call_id":"c_2","content":"Error: (no output)"},"#,
        r#"{"role":"user","content":[{"type":"text","text":"And this?"},"#,
        r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0="}}]},"#,
        r#"{"role":"user","content":"Go on."}],"#,
        r#""tools":[{"type":"function","function":{"name":"read","description":"What read does.","parameters":"#,
        schema,
        r#"}},{"type":"function","function":{"name":"ls","description":"What ls does.","parameters":"#,
        schema,
        r"}}]}",
    ];
    assert_eq!(body(&full_request(), MaxTokensField::MaxCompletionTokens).to_string(), expected.concat());
}

#[test]
fn a_reply_of_calls_alone_has_null_text() {
    let request = Request {
        turns: vec![user(vec![text("Go.")]), assistant(vec![call("a", "x", json!({}))])],
        ..minimal_request()
    };
    assert_eq!(body(&request, MaxTokensField::MaxTokens)["messages"][2]["content"], Value::Null);
}

#[test]
fn text_stream_becomes_one_reply() {
    let (deltas, reply) = replay_all_chunkings::<ChatDecoder>(TEXT);
    let reply = reply.unwrap();
    assert_eq!(reply.content, [text("Grüße, world 🌍")]);
    assert_eq!(reply.usage, Usage { input: 25, output: 15, cache_read: 1200, cache_write: 400 });
    assert_eq!(reply.stop, StopReason::EndTurn);
    assert_eq!(reply.model.as_deref(), Some("gpt-test-1"));
    assert_eq!(deltas, [Delta::Text("Grüße, ".to_owned()), Delta::Text("world 🌍".to_owned())]);
    assert_prefixes_fail::<ChatDecoder>(TEXT);
    assert_broken_bytes_are_replaced::<ChatDecoder>(TEXT);
}

#[test]
fn parallel_calls_whose_pieces_interleave() {
    let (_, reply) = replay_all_chunkings::<ChatDecoder>(TOOLS);
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
    assert_prefixes_fail::<ChatDecoder>(TOOLS);
}

#[test]
fn an_error_inside_the_stream() {
    let error = replay_all_chunkings::<ChatDecoder>(ERROR).1.unwrap_err();
    assert_eq!(error.stage, FailedStage::StreamError);
    assert_eq!(error.error_type.as_deref(), Some("server_error"));
    assert_eq!(error.code.as_deref(), Some("internal_error"));
    assert_eq!(error.message, "the provider reported an error: The server had an error");
}

#[test]
fn complete_reply_without_done_is_accepted() {
    let no_done = TEXT.replace("data: [DONE]\n\n", "");
    let whole = replay_all_chunkings::<ChatDecoder>(TEXT).1;
    assert_eq!(replay_all_chunkings::<ChatDecoder>(&no_done).1, whole);
    let no_usage: String = no_done.split_inclusive("\n\n").filter(|event| !event.contains("prompt_tokens")).collect();
    assert_eq!(replay_all_chunkings::<ChatDecoder>(&no_usage).1.unwrap_err().stage, FailedStage::Truncated);
    let no_reason = TEXT.replace("\"stop\"", "null");
    assert_eq!(replay_all_chunkings::<ChatDecoder>(&no_reason).1.unwrap_err().stage, FailedStage::Truncated);
}

/// Decodes a stream with these tool call chunks, and returns the blocks of the reply.
fn calls(pieces: &[Value]) -> Vec<ContentBlock> {
    let mut decoder = ChatDecoder::default();
    for piece in pieces {
        decoder.push(&event(&json!({"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]})));
    }
    decoder.push(&event(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})));
    decoder.push(&crate::provider::sse::SseEvent { name: String::new(), data: "[DONE]".to_owned() });
    let reply = decoder.finish().unwrap();
    assert_eq!(reply.stop, StopReason::ToolUse);
    reply.content
}

#[test]
fn call_chunks_of_compatible_servers_are_joined() {
    let piece = |index: Value, id: Value, name: Value, arguments: Value| json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let null = Value::Null;
    let two = |first: &str, second: &str| [call(first, "x", json!({"a": 1})), call(second, "y", json!({"b": 2}))];
    // Every call has index 0; the ids differ.
    assert_eq!(
        calls(&[
            piece(0.into(), "i".into(), "x".into(), "{\"a\":".into()),
            piece(0.into(), null.clone(), null.clone(), "1}".into()),
            piece(0.into(), "j".into(), "y".into(), "{\"b\":2}".into()),
        ]),
        two("i", "j")
    );
    // The id is repeated in every chunk.
    assert_eq!(
        calls(&[
            piece(0.into(), "i".into(), "x".into(), "{\"a\":".into()),
            piece(0.into(), "i".into(), "x".into(), "1}".into()),
            piece(1.into(), "j".into(), "y".into(), "{\"b\":2}".into()),
        ]),
        two("i", "j")
    );
    // The chunks contain neither index nor id, and the arguments are an object.
    assert_eq!(
        calls(&[
            piece(null.clone(), null.clone(), "x".into(), json!({"a": 1})),
            piece(null.clone(), null.clone(), "y".into(), "{\"b\":".into()),
            piece(null.clone(), null.clone(), null.clone(), "2}".into()),
        ]),
        two("call_0", "call_1")
    );
    // The chunks contain indexes but no ids.
    assert_eq!(
        calls(&[
            piece(0.into(), "".into(), "x".into(), "{\"a\":1}".into()),
            piece(1.into(), "".into(), "y".into(), "{\"b\":2}".into()),
        ]),
        two("call_0", "call_1")
    );
}

#[test]
fn second_part_of_a_function_name_is_named_as_unread() {
    let chunk = |name: &str| {
        event(
            &json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "i", "type": "function", "function": {"name": name, "arguments": ""}}]}}]}),
        )
    };
    let unread = |names: [&str; 2]| {
        let mut decoder = ChatDecoder::default();
        for name in names {
            decoder.push(&chunk(name));
        }
        decoder.push(&event(&json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})));
        decoder.push(&crate::provider::sse::SseEvent { name: String::new(), data: "[DONE]".to_owned() });
        decoder.finish().unwrap().unread
    };
    assert_eq!(unread(["rye_file_", "system_ls"]), ["function.name"]);
    assert_eq!(unread(["rye_file_system_ls", "rye_file_system_ls"]), [""; 0]);
}

#[test]
fn a_call_of_an_unknown_kind_is_kept() {
    let mut decoder = ChatDecoder::default();
    let piece = json!({"index": 0, "id": "i", "type": "custom", "custom": {"name": "x", "input": "y"}});
    decoder.push(&event(&json!({"choices": [{"delta": {"tool_calls": [piece]}, "finish_reason": "tool_calls"}]})));
    decoder.push(&crate::provider::sse::SseEvent { name: String::new(), data: "[DONE]".to_owned() });
    assert_eq!(decoder.finish().unwrap().content, [ContentBlock::Other { wire: WIRE.to_owned(), value: piece }]);
}

#[test]
fn reasoning_refusals_and_stop_reasons() {
    let end = |delta: Value, reason: &str| {
        let mut decoder = ChatDecoder::default();
        decoder.push(&event(&json!({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})));
        decoder.push(&crate::provider::sse::SseEvent { name: String::new(), data: "[DONE]".to_owned() });
        decoder.finish().unwrap()
    };
    let thought = end(json!({"reasoning_content": "Hm.", "content": "Yes."}), "stop");
    let thinking = ContentBlock::Thinking { text: "Hm.".into(), signature: None };
    assert_eq!(thought.content, [thinking, text("Yes.")]);
    assert_eq!(end(json!({"refusal": "No."}), "stop").stop, StopReason::Refusal);
    assert_eq!(end(json!({"content": "a"}), "length").stop, StopReason::Length);
    assert_eq!(end(json!({"content": "a"}), "content_filter").stop, StopReason::Refusal);
    assert_eq!(end(json!({"content": "a"}), "odd").stop, StopReason::Other("odd".to_owned()));
}
