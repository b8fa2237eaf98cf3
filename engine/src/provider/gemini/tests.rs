//! Tests of exact request bytes, and of streams split at every byte.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use serde_json::json;

use super::*;
use crate::exchange::{StopReason, Usage};
use crate::provider::fixture::{
    assert_broken_bytes_are_replaced, assert_prefixes_fail, assistant, call, event, full_request, minimal_request,
    parse_body, replay_all_chunkings, result, text, user,
};
use crate::provider::wire::ReplyDecoder;

fn body(request: &Request) -> Value {
    parse_body(&encode(request))
}

const TEXT: &str = include_str!("../../../fixtures/streams/gemini-text.sse");
const TOOLS: &str = include_str!("../../../fixtures/streams/gemini-tools.sse");
const THINKING: &str = include_str!("../../../fixtures/streams/gemini-thinking.sse");
const ERROR: &str = include_str!("../../../fixtures/streams/gemini-error.sse");

#[test]
fn smallest_request_has_only_the_required_fields() {
    assert_eq!(
        body(&minimal_request()).to_string(),
        concat!(
            r#"{"systemInstruction":{"parts":[{"text":"Be brief."}]},"#,
            r#""contents":[{"role":"user","parts":[{"text":"Hello"}]}],"#,
            r#""generationConfig":{"maxOutputTokens":1024}}"#
        )
    );
}

#[test]
fn a_body_with_everything() {
    let body = body(&full_request());
    let expected = [
        r#"[{"role":"user","parts":[{"text":"First."},{"text":"Second."}]},"#,
        r#"{"role":"model","parts":[{"text":"Reading."},"#,
        r#"{"functionCall":{"id":"c1","name":"read","args":{"path":"a"}},"#,
        r#""thoughtSignature":"skip_thought_signature_validator"},"#,
        r#"{"functionCall":{"id":"c_2","name":"no_such","args":{"__malformed":"{\"path"}}}]},"#,
        r#"{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"read","response":{"output":"content of a"}}},"#,
        r#"{"functionResponse":{"id":"c_2","name":"read","response":{"error":"(no output)"}}}]},"#,
        r#"{"role":"user","parts":[{"text":"And this?"},{"inlineData":{"mimeType":"image/png","data":"iVBORw0="}},"#,
        r#"{"text":"Go on."}]}]"#,
    ];
    assert_eq!(body["contents"].to_string(), expected.concat());
    assert_eq!(
        body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"],
        json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}})
    );
}

#[test]
fn model_is_part_of_the_path() {
    assert_eq!(model_path("gemini-x").as_deref(), Some("/v1beta/models/gemini-x:streamGenerateContent"));
    assert_eq!(model_path("tunedModels/mine").as_deref(), Some("/v1beta/tunedModels/mine:streamGenerateContent"));
    for model in ["", "..", "a/../b", "a?b", "a#b", "a b", "/a", "a:b", "../../x"] {
        assert_eq!(model_path(model), None, "{model}");
    }
}

#[test]
fn text_stream_becomes_one_reply() {
    let (deltas, reply) = replay_all_chunkings::<GeminiDecoder>(TEXT);
    let reply = reply.unwrap();
    assert_eq!(crate::message::text_of(&reply.content), "Grüße, world 🌍");
    assert_eq!(reply.usage, Usage { input: 25, output: 15, cache_read: 1200, cache_write: 0 });
    assert_eq!(reply.stop, StopReason::EndTurn);
    assert_eq!(reply.model.as_deref(), Some("gemini-test-1"));
    assert_eq!(deltas, [Delta::Text("Grüße, ".to_owned()), Delta::Text("world 🌍".to_owned())]);
    assert_eq!(model_parts(&reply.content), [json!({"text": "Grüße, world 🌍", "thoughtSignature": "c2VhbA=="})]);
    assert_prefixes_fail::<GeminiDecoder>(TEXT);
    assert_broken_bytes_are_replaced::<GeminiDecoder>(TEXT);
}

#[test]
fn parallel_calls_without_ids_get_generated_ids() {
    let (deltas, reply) = replay_all_chunkings::<GeminiDecoder>(TOOLS);
    let reply = reply.unwrap();
    assert_eq!(reply.stop, StopReason::ToolUse);
    assert_eq!(reply.usage, Usage { input: 300, output: 80, ..Usage::default() });
    assert_eq!(deltas.len(), 2 + 2 * 3);
    let calls: Vec<&ContentBlock> =
        reply.content.iter().filter(|block| matches!(block, ContentBlock::ToolCall(_))).collect();
    assert_eq!(
        calls,
        [
            &call("rye_r1_1", "rye_file_system_read", json!({"path": "a.txt"})),
            &call("rye_r1_2", "rye_file_system_ls", json!({})),
            &call("fc-9", "rye_file_system_read", json!({"path": "b.txt"})),
        ]
    );
    assert_prefixes_fail::<GeminiDecoder>(TOOLS);
    // Parts are sent back unchanged with their signatures; generated ids are not sent.
    let results = ["rye_r1_1", "rye_r1_2", "fc-9"].map(|id| result(id, "r", false));
    let turns = [vec![user(vec![text("Hi")]), assistant(reply.content)], results.to_vec()];
    let body = body(&Request { turns: turns.concat(), ..minimal_request() });
    assert_eq!(
        body["contents"][1]["parts"],
        json!([
            {"text": "Reading both."},
            {"functionCall": {"name": "rye_file_system_read", "args": {"path": "a.txt"}}, "thoughtSignature": "c2VhbA=="},
            {"functionCall": {"name": "rye_file_system_ls", "args": {}}},
            {"functionCall": {"id": "fc-9", "name": "rye_file_system_read", "args": {"path": "b.txt"}}},
        ])
    );
    assert_eq!(body["contents"][2]["parts"][0]["functionResponse"].get("id"), None);
    assert_eq!(body["contents"][2]["parts"][2]["functionResponse"]["id"], "fc-9");
}

#[test]
fn thinking_is_displayed_and_unknown_parts_are_kept() {
    let (deltas, reply) = replay_all_chunkings::<GeminiDecoder>(THINKING);
    let reply = reply.unwrap();
    assert_eq!(reply.content[0], ContentBlock::Thinking { text: "First, look.".into(), signature: None });
    assert_eq!(reply.usage, Usage { input: 12, output: 40, ..Usage::default() });
    assert_eq!(deltas[1], Delta::Thinking("look.".to_owned()));
    assert_eq!(
        model_parts(&reply.content),
        [
            json!({"executableCode": {"language": "PYTHON", "code": "1+1"}}),
            json!({"text": "Done.", "thoughtSignature": "c2VhbA=="}),
        ]
    );
}

#[test]
fn an_error_inside_the_stream() {
    let (deltas, reply) = replay_all_chunkings::<GeminiDecoder>(ERROR);
    let error = reply.unwrap_err();
    assert_eq!(error.stage, FailedStage::StreamError);
    assert_eq!((error.error_type.as_deref(), error.code.as_deref()), (Some("UNAVAILABLE"), Some("503")));
    assert_eq!(error.usage, Some(Usage { input: 10, output: 1, ..Usage::default() }));
    assert_eq!(deltas.len(), 1);
}

fn play(events: &[Value]) -> Result<Reply, CallError> {
    let mut decoder = GeminiDecoder::default();
    for value in events {
        decoder.push(&event(value));
    }
    decoder.finish()
}

#[test]
fn finish_reasons_are_mapped() {
    let end = |reason: &str| {
        play(&[json!({"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": reason}]})])
    };
    assert_eq!(end("STOP").unwrap().stop, StopReason::EndTurn);
    assert_eq!(end("MAX_TOKENS").unwrap().stop, StopReason::Length);
    for reason in ["SAFETY", "RECITATION", "PROHIBITED_CONTENT"] {
        assert_eq!(end(reason).unwrap().stop, StopReason::Refusal, "{reason}");
    }
    assert_eq!(end("NEW").unwrap().stop, StopReason::Other("new".to_owned()));
    let error = end("MALFORMED_FUNCTION_CALL").unwrap_err();
    assert_eq!((error.stage, error.error_type.as_deref()), (FailedStage::StreamError, Some("malformed_function_call")));
    let blocked = play(&[json!({"promptFeedback": {"blockReason": "SAFETY"}})]).unwrap();
    assert_eq!(blocked.stop, StopReason::Refusal);
    assert_eq!(blocked.content, [text("The prompt was blocked: SAFETY")]);
}

#[test]
fn malformed_parts_do_not_panic() {
    let parts = json!([{}, {"text": 3}, {"thoughtSignature": ""}, {"functionCall": null}, {"functionCall": {"args": [1]}}, 7, null]);
    let reply = play(&[json!({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]})]).unwrap();
    assert!(!body(&Request { turns: vec![assistant(reply.content)], ..minimal_request() }).is_null());
    assert_eq!(play(&[json!({"candidates": []}), json!([1]), json!("x")]).unwrap_err().stage, FailedStage::Truncated);
}
