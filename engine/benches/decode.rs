//! Measures how fast the events of a stream are decoded to a reply, JSON included, on one core. The budget is 0.7
//! million events per second for every API format.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark stops at the first fault")]

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use rye_engine::provider::sse::SseParser;
use rye_engine::provider::wire::ReplyDecoder;
use rye_engine::provider::{anthropic, gemini, openai_chat, openai_responses};

/// Number of text deltas in the generated stream.
const DELTA_COUNT: u64 = 20_000;
/// Bytes of one chunk of the stream.
const CHUNK_BYTES: usize = 16 * 1024;

fn main() {
    divan::main();
}

/// Returns a stream of many small text deltas, as models send them.
fn stream(front: &[&str], piece: impl Fn(u64) -> String, back: &[&str]) -> Vec<u8> {
    let mut text = String::new();
    for event in front.iter().map(|event| (*event).to_owned()).chain((0..DELTA_COUNT).map(piece)) {
        text.push_str(&event);
        text.push_str("\n\n");
    }
    for event in back {
        text.push_str(event);
        text.push_str("\n\n");
    }
    text.into_bytes()
}

fn decode<D: ReplyDecoder + Default>(bencher: Bencher<'_, '_>, bytes: &[u8]) {
    bencher.counter(ItemsCount::new(DELTA_COUNT)).bench(|| {
        let (mut parser, mut decoder) = (SseParser::default(), D::default());
        for chunk in black_box(bytes).chunks(CHUNK_BYTES) {
            for event in parser.push(chunk).expect("events are small") {
                black_box(decoder.push(&event));
            }
        }
        decoder.finish().expect("the stream is whole")
    });
}

#[divan::bench]
fn anthropic_text(bencher: Bencher<'_, '_>) {
    let bytes = stream(
        &[
            r#"event: message_start
data: {"type":"message_start","message":{"id":"m","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}"#,
            r#"event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        ],
        |n| {
            format!(
                "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\" word {n}\"}}}}"
            )
        },
        &["event: message_stop\ndata: {\"type\":\"message_stop\"}"],
    );
    decode::<anthropic::AnthropicDecoder>(bencher, &bytes);
}

#[divan::bench]
fn openai_chat_text(bencher: Bencher<'_, '_>) {
    let bytes = stream(
        &[],
        |n| {
            format!(
                "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\"model\":\"gpt-test-1\",\
                 \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" word {n}\"}},\"finish_reason\":null}}],\"usage\":null}}"
            )
        },
        &[r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#, "data: [DONE]"],
    );
    decode::<openai_chat::ChatDecoder>(bencher, &bytes);
}

#[divan::bench]
fn openai_responses_text(bencher: Bencher<'_, '_>) {
    let bytes = stream(
        &[r#"data: {"type":"response.output_item.added","output_index":0,"item":{"type":"message","content":[]}}"#],
        |n| {
            format!(
                "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"sequence_number\":{n},\
                 \"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"delta\":\" word {n}\",\"logprobs\":[]}}"
            )
        },
        &[r#"data: {"type":"response.completed","response":{"usage":{"input_tokens":1,"output_tokens":1}}}"#],
    );
    decode::<openai_responses::ResponsesDecoder>(bencher, &bytes);
}

#[divan::bench]
fn gemini_text(bencher: Bencher<'_, '_>) {
    let bytes = stream(
        &[],
        |n| {
            format!(
                "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\" word {n}\"}}],\"role\":\"model\"}},\"index\":0}}],\
                 \"usageMetadata\":{{\"promptTokenCount\":9,\"candidatesTokenCount\":{n},\"totalTokenCount\":{n}}},\
                 \"modelVersion\":\"gemini-test-1\",\"responseId\":\"r1\"}}"
            )
        },
        &[r#"data: {"candidates":[{"content":{"parts":[]},"finishReason":"STOP","index":0}]}"#],
    );
    decode::<gemini::GeminiDecoder>(bencher, &bytes);
}
