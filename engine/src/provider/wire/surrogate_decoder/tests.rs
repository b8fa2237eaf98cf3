//! Tests of lone surrogate escapes, on every wire.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use crate::surrogates::parse_lenient;
use serde_json::json;

use super::*;
use crate::provider::fixture::{call, replay, text};
use crate::provider::{anthropic, gemini, openai_chat, openai_responses};

fn play<D: ReplyDecoder + Default>(events: &[String]) -> (String, Reply) {
    let stream = events.iter().fold(String::new(), |all, event| all + &format!("data: {event}\n\n"));
    let (deltas, reply) = replay(&[stream.as_bytes()], SurrogateDecoder::new(D::default()));
    let shown = deltas.iter().map(|delta| if let Delta::Text(text) = delta { text.as_str() } else { "" }).collect();
    (shown, reply.unwrap())
}

/// Decodes a text on each of the four wires. Each wire streams the text in `pieces`, which are contents of JSON
/// strings. Returns the displayed text and the reply of each wire.
fn text_streams(pieces: &[&str]) -> [(String, Reply); 4] {
    let each = |event: fn(&str) -> String, end: &[&str]| -> Vec<String> {
        pieces.iter().map(|piece| event(piece)).chain(end.iter().map(|end| (*end).to_owned())).collect()
    };
    let anthropic = each(
        |piece| {
            format!(r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{piece}"}}}}"#)
        },
        &[r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#, r#"{"type":"message_stop"}"#],
    );
    let chat = each(
        |piece| format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{piece}"}}}}]}}"#),
        &[r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#, "[DONE]"],
    );
    let responses = each(
        |piece| {
            format!(r#"{{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"{piece}"}}"#)
        },
        &[r#"{"type":"response.completed","response":{}}"#],
    );
    let gemini = each(
        |piece| format!(r#"{{"candidates":[{{"content":{{"parts":[{{"text":"{piece}"}}]}}}}]}}"#),
        &[r#"{"candidates":[{"finishReason":"STOP"}]}"#],
    );
    [
        play::<anthropic::AnthropicDecoder>(&anthropic),
        play::<openai_chat::ChatDecoder>(&chat),
        play::<openai_responses::ResponsesDecoder>(&responses),
        play::<gemini::GeminiDecoder>(&gemini),
    ]
}

#[test]
fn halves_are_joined_or_replaced_on_every_wire() {
    let table: [(&[&str], &str); 6] = [
        (&["a\\ud83d", "\\ude00b"], "a😀b"),
        (&["a\\uD83D\\uDE00b"], "a😀b"),
        (&["a\\ud83d", "b"], "a\u{fffd}b"),
        (&["\\ude00", "\\ud83d\\ud83d", "\\ude00"], "\u{fffd}\u{fffd}😀"),
        (&["a\\\\ud83d\\ud83d"], "a\\ud83d\u{fffd}"),
        (&["\\ud83d", "\\n\\u00e9"], "\u{fffd}\né"),
    ];
    for (pieces, expected) in table {
        for (n, (shown, reply)) in text_streams(pieces).into_iter().enumerate() {
            assert_eq!(reply.content, [text(expected)], "{pieces:?} on wire {n}");
            // A lone surrogate at the end of the text is in the reply (as U+FFFD) but is not displayed.
            assert!(
                expected.starts_with(&shown) && shown.len() + 3 >= expected.len(),
                "{pieces:?} on wire {n}: {shown}"
            );
        }
    }
}

#[test]
fn halves_in_arguments_are_replaced() {
    let stream = [
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"b","input":{}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"x\":\"\\ud83d"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"\\ude00\",\"y\":\"\\ud83d\"}"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
        r#"{"type":"message_stop"}"#,
    ]
    .map(str::to_owned);
    let (_, reply) = play::<anthropic::AnthropicDecoder>(&stream);
    assert_eq!(reply.content, [call("a", "b", json!({"x": "😀", "y": "\u{fffd}"}))]);
}

#[test]
fn invalid_json_is_still_refused() {
    assert!(parse_lenient("{\"a\": \"\\ud83d").is_err());
    assert!(parse_lenient("\"\\ud8\"").is_err());
    assert_eq!(parse_lenient("[\"\\udc00\"]").unwrap(), json!(["\u{fffd}"]));
}

#[test]
fn arguments_with_a_fault_in_an_event_keep_their_text() {
    for fault in [r#"{"n": 18446744073709551616, "a": "x"}"#, r#"{"path": "a", "path": "b"}"#] {
        let events = [
            format!(
                r#"{{"candidates":[{{"content":{{"parts":[{{"functionCall":{{"name":"t","args":{fault}}}}}]}}}}]}}"#
            ),
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"t","args":{"n": 1}}}]}}]}"#.to_owned(),
            r#"{"candidates":[{"finishReason":"STOP"}]}"#.to_owned(),
        ];
        let (_, reply) = play::<gemini::GeminiDecoder>(&events);
        let calls: Vec<&ToolCall> = crate::message::calls_in(&reply.content).collect();
        assert_eq!((calls[0].malformed(), &calls[1].input), (Some(fault), &json!({"n": 1})));
        let start = format!(
            r#"{{"type":"content_block_start","index":0,"content_block":{{"type":"tool_use","id":"i","name":"t","input":{fault}}}}}"#
        );
        let end = [r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#, r#"{"type":"message_stop"}"#];
        let events: Vec<String> = std::iter::once(start).chain(end.map(str::to_owned)).collect();
        let (_, reply) = play::<anthropic::AnthropicDecoder>(&events);
        assert_eq!(crate::message::calls_in(&reply.content).next().unwrap().malformed(), Some(fault));
    }
}
