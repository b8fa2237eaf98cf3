//! Fuzz targets for run-time input: the streams of the four APIs, scripts, transcript lines.

use rye_engine::event::EventBody;
use rye_engine::provider::scripted::Script;
use rye_engine::provider::sse::SseParser;
use rye_engine::provider::wire::ReplyDecoder;
use rye_engine::provider::{anthropic, gemini, openai_chat, openai_responses};

use super::small::text;

/// Feeds a stream to every decoder in two chunkings; the result must not depend on the chunking.
pub fn stream(bytes: &[u8]) {
    decoded::<anthropic::AnthropicDecoder>(bytes);
    decoded::<openai_chat::ChatDecoder>(bytes);
    decoded::<openai_responses::ResponsesDecoder>(bytes);
    decoded::<gemini::GeminiDecoder>(bytes);
}

fn decoded<D: ReplyDecoder + Default>(bytes: &[u8]) {
    let whole = read::<D>(bytes, bytes.len().max(1));
    assert_eq!(whole, read::<D>(bytes, 7), "what a reply is depends on where its stream was cut");
}

fn read<D: ReplyDecoder + Default>(bytes: &[u8], at_once: usize) -> String {
    let (mut parser, mut decoder) = (SseParser::new(64 * 1024), D::default());
    for chunk in bytes.chunks(at_once) {
        let Ok(events) = parser.push(chunk) else { return "refused".into() };
        for event in &events {
            decoder.push(event);
        }
    }
    let usage = decoder.usage();
    format!("{usage:?} {:?}", decoder.finish())
}

pub fn script(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    if let Err(error) = Script::parse(text) {
        assert!(!error.to_string().is_empty());
    }
}

/// Checks that an event of a transcript stays equal when it is written and read again.
pub fn transcript(bytes: &[u8]) {
    let Ok(event) = serde_json::from_slice::<EventBody>(bytes) else { return };
    let Ok(written) = serde_json::to_string(&event) else { panic!("an event that was read cannot be written") };
    let again: EventBody = match serde_json::from_str(&written) {
        Ok(again) => again,
        Err(error) => panic!("an event that was written cannot be read: {error}"),
    };
    assert_eq!(again, event);
}
