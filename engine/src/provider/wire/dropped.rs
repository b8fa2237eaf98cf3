//! Content of a stream that a decoder cannot use: the reply names it as unread, or the attempt fails. Nothing is lost
//! without a trace.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use serde_json::{Value, json};

use crate::exchange::{CallError, FailedStage, Reply, StopReason};
use crate::message::{ContentBlock, ToolCall};
use crate::provider::fixture::replay;
use crate::provider::wire::ReplyDecoder;
use crate::provider::{anthropic, gemini, openai_chat, openai_responses};

fn play<D: ReplyDecoder + Default>(events: &[Value]) -> Result<Reply, CallError> {
    let stream = events.iter().fold(String::new(), |all, value| all + &format!("data: {value}\n\n"));
    replay(&[stream.as_bytes()], D::default()).1
}

fn anthropic(events: &[Value]) -> Result<Reply, CallError> {
    play::<anthropic::AnthropicDecoder>(events)
}

fn gemini(events: &[Value]) -> Reply {
    play::<gemini::GeminiDecoder>(events).unwrap()
}

fn chat(choices: &[Value]) -> Reply {
    let mut events: Vec<Value> = choices.iter().map(|choice| json!({"choices": [choice]})).collect();
    events.push(json!({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}));
    play::<openai_chat::ChatDecoder>(&events).unwrap()
}

fn responses(events: &[Value]) -> Reply {
    play::<openai_responses::ResponsesDecoder>(events).unwrap()
}

fn texts(reply: &Reply) -> Vec<&str> {
    fn text(block: &ContentBlock) -> Option<&str> {
        if let ContentBlock::Text { text } = block { Some(text) } else { None }
    }
    reply.content.iter().filter_map(text).collect()
}

fn calls(reply: &Reply) -> Vec<&ToolCall> {
    fn call(block: &ContentBlock) -> Option<&ToolCall> {
        if let ContentBlock::ToolCall(call) = block { Some(call) } else { None }
    }
    reply.content.iter().filter_map(call).collect()
}

const STOP: &str = "message_stop";

fn start(index: Option<u64>, block: &Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: Option<u64>, delta: &Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

#[test]
fn anthropic_stream_without_a_stop_reason_is_truncated() {
    let stopped = |delta: Value| {
        let text = delta_of_text(Some(0), "hello");
        anthropic(&[start(Some(0), &json!({"type": "text"})), text, delta, json!({"type": STOP})])
    };
    for delta in [
        json!({"type": "ping"}),
        json!({"type": "message_delta", "delta": {}}),
        json!({"type": "message_delta", "delta": {"stop_reason": null}}),
        json!({"type": "message_delta", "delta": {"stop_reason": 5}}),
    ] {
        assert_eq!(stopped(delta.clone()).unwrap_err().stage, FailedStage::Truncated, "{delta}");
    }
    let whole = stopped(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})).unwrap();
    assert_eq!((whole.stop, whole.unread.as_slice()), (StopReason::EndTurn, [].as_slice()));
}

fn delta_of_text(index: Option<u64>, text: &str) -> Value {
    delta(index, &json!({"type": "text_delta", "text": text}))
}

#[test]
fn anthropic_blocks_without_an_index_or_with_a_repeated_one_are_separate() {
    for (first, second) in [(Some(0), Some(1)), (None, None), (Some(0), Some(0)), (Some(3), Some(3))] {
        let reply = anthropic(&[
            start(first, &json!({"type": "text", "text": ""})),
            delta_of_text(first, "I call "),
            delta_of_text(first, "it."),
            json!({"type": "content_block_stop", "index": first}),
            start(second, &json!({"type": "tool_use", "id": "t1", "name": "read", "input": {}})),
            delta(second, &json!({"type": "input_json_delta", "partial_json": "{\"path\":\"a\"}"})),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
            json!({"type": STOP}),
        ])
        .unwrap();
        assert_eq!(texts(&reply), ["I call it."]);
        assert_eq!(calls(&reply)[0].input, json!({"path": "a"}), "{first:?} {second:?}");
        assert_eq!(reply.unread, [""; 0]);
    }
}

#[test]
fn anthropic_pieces_without_a_fitting_block_are_named() {
    let reply = anthropic(&[
        start(Some(0), &json!({"type": "text", "text": "a"})),
        delta(Some(0), &json!({"type": "input_json_delta", "partial_json": "{}"})),
        delta(Some(0), &json!({"type": "thinking_delta", "thinking": "hm"})),
        delta(Some(7), &json!({"type": "input_json_delta", "partial_json": "{}"})),
        json!({"type": "message_delta", "delta": {"stop_reason": "length"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        json!({"type": STOP}),
        delta_of_text(Some(0), "late"),
    ])
    .unwrap();
    assert_eq!(reply.unread, ["input_json_delta", "thinking_delta", "content_block_delta"]);
    assert_eq!(reply.stop, StopReason::Other("length".into()), "a later `end_turn` does not hide the first reason");
}

#[test]
fn gemini_content_after_a_finish_reason_counts() {
    let part = |part: Value, reason: Option<&str>| json!({"candidates": [{"index": 0, "content": {"parts": [part]}, "finishReason": reason}]});
    let call = json!({"functionCall": {"name": "read", "args": {"path": "a"}}, "text": " Now."});
    let reply = gemini(&[
        part(json!({"text": "One"}), Some("STOP")),
        part(json!({"text": " two."}), Some("STOP")),
        part(call, Some("STOP")),
    ]);
    assert_eq!(texts(&reply), ["One two. Now."]);
    assert_eq!((calls(&reply).len(), &reply.stop), (1, &StopReason::ToolUse));
    let cut = gemini(&[part(json!({"text": "One"}), Some("MAX_TOKENS")), part(json!({"text": " two."}), Some("STOP"))]);
    assert_eq!((texts(&cut), &cut.stop), (vec!["One two."], &StopReason::Length));
}

#[test]
fn gemini_content_that_is_not_read_is_named() {
    let call = json!({"functionCall": {"name": "read", "partialArgs": [], "willContinue": true}});
    let reply = gemini(&[json!({"candidates": [
        {"index": 0, "content": {"parts": [call]}, "finishReason": "STOP"},
        {"index": 1, "content": {"parts": [{"text": "other"}]}},
    ]})]);
    assert_eq!(reply.unread, ["candidates[1]", "functionCall.partialArgs", "functionCall.willContinue"]);
}

#[test]
fn chat_content_that_is_not_read_is_named() {
    let stop = json!({"index": 0, "delta": {}, "finish_reason": "stop"});
    for (choice, unread) in [
        (json!({"index": 0, "text": "a"}), "choice.text"),
        (json!({"index": 0, "delta": {"content": 5}}), "delta.content"),
        (json!({"index": 0, "delta": {"content": {"text": "a"}}}), "delta.content"),
        (json!({"index": 1, "delta": {"content": "a"}}), "choices[1]"),
    ] {
        assert_eq!(chat(&[choice.clone(), stop.clone()]).unread, [unread], "{choice}");
    }
    let cut = json!({"index": 0, "delta": {"content": "a"}, "finish_reason": "length"});
    let reply = chat(&[cut, stop]);
    assert_eq!((reply.stop, reply.unread.as_slice()), (StopReason::Length, [].as_slice()));
}

#[test]
fn responses_items_that_differ_from_their_pieces_are_named() {
    let message = |text: &str| json!({"type": "message", "content": [{"type": "output_text", "text": text}]});
    let called = |path: &str| {
        let arguments = json!({ "path": path }).to_string();
        json!({"type": "function_call", "call_id": "c", "name": "read", "arguments": arguments})
    };
    let play = |done: Value, last: &[Value]| {
        responses(&[
            json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "hello"}),
            json!({"type": "response.output_item.done", "output_index": 0, "item": done}),
            json!({"type": "response.output_item.done", "output_index": 1, "item": called("a")}),
            json!({"type": "response.completed", "response": {"status": "completed", "output": last}}),
        ])
    };
    assert_eq!(play(message("hello"), &[message("hello"), called("a")]).unread, [""; 0]);
    assert_eq!(play(message("other"), &[]).unread, ["output[0]"]);
    let reply = play(message("hello"), &[message("hello"), called("b")]);
    assert_eq!(
        (reply.unread.as_slice(), &calls(&reply)[0].input),
        (["output[1]".to_owned()].as_slice(), &json!({"path": "a"}))
    );
    assert_eq!(play(message("hello"), &[called("a"), called("a")]).unread, ["output[0]"]);
    // A second final event with other content.
    let last =
        |output: &[Value]| json!({"type": "response.completed", "response": {"status": "completed", "output": output}});
    let twice = |second: &[Value]| responses(&[last(&[message("one")]), last(second)]).unread;
    assert_eq!(twice(&[message("one")]), [""; 0]);
    assert_eq!(twice(&[message("two")]), ["output[0]"]);
    assert_eq!(twice(&[message("one"), called("a")]), ["output[1]"]);
    let error = json!({"status": "completed", "error": {"code": "x"}, "output": []});
    assert_eq!(responses(&[json!({"type": "response.completed", "response": error})]).unread, ["response.error"]);
}

#[test]
fn fields_that_no_decoder_reads_are_named() {
    let stop = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "container": {"id": "c"}}});
    let reply = anthropic(&[
        json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "context": 1}}),
        start(Some(0), &json!({"type": "text", "text": "a", "citations": [{"url": "b"}]})),
        start(Some(1), &json!({"type": "tool_use", "id": "t", "name": "n", "input": {}, "caller": {"type": "x"}})),
        stop,
        json!({"type": STOP}),
    ])
    .unwrap();
    assert_eq!(reply.unread, ["message.context", "text.citations", "tool_use.caller", "delta.container"]);

    let candidate = |part: Value| {
        json!({"index": 0, "content": {"parts": [part]}, "finishReason": "STOP",
        "finishMessage": "why", "safetyRatings": [{"category": "c", "blocked": true}], "logprobsResult": {"a": 1}})
    };
    let part = json!({"text": "a", "videoMetadata": {"fps": 1}});
    let reply = gemini(&[json!({"candidates": [candidate(part)], "modelStatus": {"stage": "old"}})]);
    let named = [
        "modelStatus",
        "part.videoMetadata",
        "candidate.logprobsResult",
        "candidate.safetyRatings",
        "candidate.finishMessage why",
    ];
    assert_eq!(reply.unread, named);

    let stop = json!({"index": 0, "delta": {}, "finish_reason": "stop"});
    for (choice, unread) in [
        (json!({"index": 0, "delta": {"content": "a"}, "logprobs": {"content": []}}), "choice.logprobs"),
        (json!({"index": 0, "delta": {"role": "tool", "content": "a"}}), "delta.role"),
        (json!({"index": 0, "delta": {"tool_calls": {"index": 0}}}), "delta.tool_calls"),
        (
            json!({"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "n"}, "extra": 1}]}}),
            "tool_calls.extra",
        ),
    ] {
        assert_eq!(chat(&[choice.clone(), stop.clone()]).unread, [unread], "{choice}");
    }
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}});
    let cited = json!({"choices": [{"index": 0, "delta": {"content": "a"}}], "citations": ["b"]});
    let events = [json!({"object": "weird", "x": 1}), cited, json!({"choices": [stop]}), usage];
    assert_eq!(play::<openai_chat::ChatDecoder>(&events).unwrap().unread, ["weird", "chunk.citations"]);

    let content =
        json!([{"type": "output_text", "text": "a", "annotations": [{"url": "b"}]}, {"type": "new_part", "z": 1}]);
    let message = json!({"type": "message", "phase": "commentary", "content": content});
    let reply = responses(&[
        json!({"type": "response.output_item.done", "output_index": 0, "item": message}),
        json!({"type": "response.completed", "response": {"status": "completed", "output": []}}),
    ]);
    assert_eq!(reply.unread, ["message.phase", "content.annotations", "content.new_part"]);
}

#[test]
fn parts_of_cache_creation_count_without_their_sum() {
    let reply = |creation: Value| {
        let mut usage = json!({"input_tokens": 100, "output_tokens": 1});
        usage.as_object_mut().unwrap().extend(creation.as_object().unwrap().clone());
        anthropic(&[
            json!({"type": "message_start", "message": {"usage": usage}}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}),
            json!({"type": STOP}),
        ])
        .unwrap()
    };
    let parts = json!({"ephemeral_5m_input_tokens": 5000, "ephemeral_1h_input_tokens": 7000});
    for (creation, written) in [
        (json!({"cache_creation": parts}), 12_000),
        (json!({"cache_creation_input_tokens": 5000, "cache_creation": parts}), 12_000),
        (json!({"cache_creation_input_tokens": 13_000, "cache_creation": parts}), 13_000),
    ] {
        assert_eq!(reply(creation.clone()).usage.cache_write, written, "{creation}");
    }
}

#[test]
fn unknown_event_after_the_end_is_named_on_every_wire() {
    let late = json!({"type": "text_after", "text": "AFTEREND"});
    let quiet = json!({"type": "ping"});
    let anthropic = anthropic(&[
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        json!({"type": STOP}),
        late.clone(),
        quiet,
    ]);
    let finish = json!({"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}]});
    let completed = json!({"type": "response.completed", "response": {"status": "completed", "output": []}});
    let replies = [anthropic.unwrap(), gemini(&[finish, late.clone()]), responses(&[completed, late.clone()])];
    for reply in replies {
        assert_eq!(reply.unread, ["text_after"]);
    }
    let usage = json!({"prompt_tokens": 1, "completion_tokens": 1});
    let whole = json!({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}], "usage": usage});
    let stream = format!("data: {whole}\n\ndata: [DONE]\n\ndata: {late}\n\n");
    let reply = replay(&[stream.as_bytes()], openai_chat::ChatDecoder::default()).1.unwrap();
    assert_eq!(reply.unread, ["text_after"]);
}

#[test]
fn repeated_key_outside_of_a_usage_report_is_named_on_every_wire() {
    fn unread<D: ReplyDecoder + Default>(data: &[&str]) -> Vec<String> {
        let stream = data.iter().fold(String::new(), |all, data| all + &format!("data: {data}\n\n"));
        replay(&[stream.as_bytes()], D::default()).1.unwrap().unread
    }
    let anthropic = unread::<anthropic::AnthropicDecoder>(&[
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"FIRST","text":"X1"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
        r#"{"type":"message_stop"}"#,
    ]);
    assert_eq!(anthropic, ["repeated key delta.text"]);
    let chat = unread::<openai_chat::ChatDecoder>(&[
        r#"{"choices":[{"index":0,"delta":{"content":"FIRST","content":"X1"}}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#,
    ]);
    assert_eq!(chat, ["repeated key choices.delta.content"]);
    let responses = unread::<openai_responses::ResponsesDecoder>(&[
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"FIRST","delta":"X1"}"#,
        r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#,
    ]);
    assert_eq!(responses, ["repeated key delta"]);
    let gemini = unread::<gemini::GeminiDecoder>(&[
        r#"{"candidates":[{"content":{"parts":[{"text":"FIRST","text":"X1"}]},"finishReason":"STOP"}]}"#,
    ]);
    assert_eq!(gemini, ["repeated key candidates.content.parts.text"]);
}

#[test]
fn reasoning_beside_a_different_reasoning_content_is_named() {
    let stop = json!({"index": 0, "delta": {}, "finish_reason": "stop"});
    let reply = |delta: Value| chat(&[json!({"index": 0, "delta": delta}), stop.clone()]);
    let unread = |delta: Value| reply(delta).unread;
    assert_eq!(unread(json!({"content": "a", "reasoning": "R1", "reasoning_content": "R2"})), ["delta.reasoning"]);
    assert!(unread(json!({"content": "a", "reasoning": "R1", "reasoning_content": "R1"})).is_empty());
    // The number `5` is neither text nor empty, so the list is named as unread.
    assert_eq!(unread(json!({"content": ["a", 5]})), ["delta.content"]);
    assert!(unread(json!({"content": ["a", null]})).is_empty());
}
