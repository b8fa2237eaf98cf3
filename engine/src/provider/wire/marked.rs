//! Tests that no content of a valid stream is lost. A test adds an unknown field to each object of each event, and
//! replaces each text by an object. For each change, the reply must name the change as unread or contain the marker, or
//! the attempt must fail.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use serde_json::{Value, json};

use crate::exchange::{CallError, Reply};
use crate::provider::fixture::replay;
use crate::provider::wire::ReplyDecoder;
use crate::provider::{anthropic, gemini, openai_chat, openai_responses};

const MARKER: &str = "MARKER";

fn play<D: ReplyDecoder + Default>(events: &[Value]) -> Result<Reply, CallError> {
    let stream = events.iter().fold(String::new(), |all, value| all + &format!("data: {value}\n\n"));
    replay(&[stream.as_bytes()], D::default()).1
}

/// Collects the JSON pointers of all values below `value` that `is_wanted` selects.
fn pointers(value: &Value, at: &str, is_wanted: fn(&Value) -> bool, found: &mut Vec<String>) {
    if is_wanted(value) {
        found.push(at.to_owned());
    }
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                pointers(inner, &format!("{at}/{key}"), is_wanted, found);
            }
        }
        Value::Array(list) => {
            for (n, inner) in list.iter().enumerate() {
                pointers(inner, &format!("{at}/{n}"), is_wanted, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Changes each event and returns the changes that leave no trace in the reply, as the number of the event and a JSON
/// pointer. Changes whose pointer ends with an entry of `ignored` are allowed to leave no trace, because they concern
/// no content of the reply.
fn lost<D: ReplyDecoder + Default>(events: &[Value], ignored: &[&str]) -> Vec<String> {
    let whole = play::<D>(events).unwrap();
    assert_eq!(whole.unread, [""; 0]);
    let mut found = Vec::new();
    for n in 0..events.len() {
        let mut check = |place: &str, event: Value| {
            let mut changed = events.to_vec();
            changed[n] = event;
            let is_traced = match play::<D>(&changed) {
                Err(_) => true,
                Ok(reply) => !reply.unread.is_empty() || format!("{:?}", reply.content).contains(MARKER),
            };
            // Another test covers the fields of usage reports.
            let is_ignored = place.contains("usage") || ignored.iter().any(|end| place.ends_with(end));
            if !is_traced && !is_ignored {
                found.push(format!("event {n}: {place}"));
            }
        };
        let mut places = Vec::new();
        pointers(&events[n], "", Value::is_object, &mut places);
        for place in places {
            let mut event = events[n].clone();
            event.pointer_mut(&place).unwrap()["zzk"] = json!(MARKER);
            check(&format!("{place}/+"), event);
        }
        let mut places = Vec::new();
        pointers(&events[n], "", Value::is_string, &mut places);
        for place in places {
            let mut event = events[n].clone();
            *event.pointer_mut(&place).unwrap() = json!({"zzk": MARKER});
            check(&place, event);
        }
    }
    found
}

#[test]
fn every_unknown_field_and_every_text_of_another_type_is_named() {
    let usage = json!({"input_tokens": 5, "output_tokens": 7});
    let anthropic = [
        json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "a", "content": [], "usage": usage}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "t", "name": "read", "input": {}}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{}"}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ];
    // The id, the type and the role of a message are not part of the reply.
    let ignored = ["/message/id", "/message/type", "/message/role"];
    assert_eq!(lost::<anthropic::AnthropicDecoder>(&anthropic, &ignored), [""; 0]);

    let chunk = |delta: Value, end: Value| json!({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": end}]});
    let call = json!({"index": 0, "id": "t", "type": "function", "function": {"name": "read", "arguments": "{}"}});
    let chat = [
        chunk(json!({"role": "assistant", "reasoning_content": "hm"}), Value::Null),
        chunk(json!({"content": "Hello"}), Value::Null),
        chunk(json!({"tool_calls": [call]}), Value::Null),
        chunk(json!({}), json!("tool_calls")),
        json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}}),
    ];
    // The id, the kind and the model of a chunk are not part of the reply.
    let ignored = ["/id", "/object", "/model"];
    assert_eq!(lost::<openai_chat::ChatDecoder>(&chat, &ignored), [""; 0]);

    let message = json!({"type": "message", "id": "i", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "Hello"}]});
    let called = json!({"type": "function_call", "id": "f", "call_id": "t", "name": "read", "arguments": "{}", "status": "completed"});
    let responses = [
        json!({"type": "response.created", "response": {"id": "r", "object": "response", "status": "in_progress", "model": "m", "output": []}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "i", "role": "assistant", "content": []}}),
        json!({"type": "response.content_part.added", "output_index": 0, "content_index": 0, "part": {"type": "output_text", "text": ""}}),
        json!({"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": "Hello"}),
        json!({"type": "response.output_text.done", "item_id": "i", "output_index": 0, "content_index": 0, "text": "Hello"}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": message}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": called}),
        json!({"type": "response.output_item.done", "output_index": 1, "item": called}),
        json!({"type": "response.completed", "response": {"id": "r", "object": "response", "status": "completed", "model": "m", "output": [message, called], "usage": usage}}),
    ];
    // Ids, states and roles are not part of the reply; the texts of `…done` events repeat the streamed texts.
    let ignored = ["/id", "/item_id", "/object", "/status", "/role", "/model", "/part/text", "/text"];
    assert_eq!(lost::<openai_responses::ResponsesDecoder>(&responses, &ignored), [""; 0]);

    let part = |part: Value| json!({"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}], "modelVersion": "g"});
    let gemini = [
        part(json!({"text": "Hello"})),
        part(json!({"functionCall": {"name": "read", "args": {"path": "a"}}})),
        json!({"candidates": [{"content": {"role": "model", "parts": []}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 7, "totalTokenCount": 12}}),
    ];
    assert_eq!(lost::<gemini::GeminiDecoder>(&gemini, &["/role", "/modelVersion", "usageMetadata/+"]), [""; 0]);
}
