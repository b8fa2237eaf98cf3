//! Tests of stream faults: `wires!` runs each check over the streams of each wire. The tests of the wires check the
//! contents of these streams.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use crate::exchange::{CallError, FailedStage, Reply};
use crate::provider::fixture::{assert_broken_bytes_are_replaced, assert_prefixes_fail, replay, replay_all_chunkings};
use crate::provider::wire::ReplyDecoder;
use crate::provider::{anthropic, gemini, openai_chat, openai_responses};

macro_rules! stream {
    ($name:literal) => {
        include_str!(concat!("../../../fixtures/streams/", $name, ".sse"))
    };
}

/// Streams of a wire: complete streams, a failing stream, the names of start events, and the name of the final event.
struct WireStreams {
    wire: &'static str,
    whole: &'static [&'static str],
    failing: &'static str,
    starts: &'static [&'static str],
    end: &'static str,
}

const ANTHROPIC: WireStreams = WireStreams {
    wire: "anthropic",
    whole: &[stream!("anthropic-text"), stream!("anthropic-tools"), stream!("anthropic-thinking")],
    failing: stream!("anthropic-error"),
    starts: &["message_start\"", "content_block_start\"", "\"ping\""],
    end: "message_stop\"",
};
const CHAT: WireStreams = WireStreams {
    wire: "openai-chat",
    whole: &[stream!("openai-text"), stream!("openai-tools")],
    failing: stream!("openai-error"),
    starts: &["\"role\":\"assistant\",\"content\":\"\""],
    // The event with the `finish_reason` is the final event, because `[DONE]` may be missing (see
    // `complete_reply_without_done_is_accepted`).
    end: "\"finish_reason\":\"",
};
const RESPONSES: WireStreams = WireStreams {
    wire: "openai-responses",
    whole: &[stream!("responses-text"), stream!("responses-tools"), stream!("responses-thinking")],
    failing: stream!("responses-error"),
    starts: &["response.created\"", "response.in_progress\"", "output_item.added\"", "content_part.added\""],
    end: "response.completed\"",
};
/// No start events: each event holds a part of the reply.
const GEMINI: WireStreams = WireStreams {
    wire: "gemini",
    whole: &[stream!("gemini-text"), stream!("gemini-tools"), stream!("gemini-thinking")],
    failing: stream!("gemini-error"),
    starts: &[],
    end: "finishReason",
};

fn outcome<D: ReplyDecoder + Default>(stream: &str) -> Result<Reply, CallError> {
    replay(&[stream.as_bytes()], D::default()).1
}

/// Splits a stream into events, each with its blank line.
fn events(stream: &str) -> Vec<&str> {
    stream.split_inclusive("\n\n").collect()
}

/// Checks that the chunks and the line ends in which a stream arrives do not change its result (see
/// [`replay_all_chunkings`]).
fn check_chunkings<D: ReplyDecoder + Default>(streams: &WireStreams) {
    for stream in streams.whole {
        assert!(replay_all_chunkings::<D>(stream).1.is_ok(), "{}", streams.wire);
    }
    assert_eq!(
        replay_all_chunkings::<D>(streams.failing).1.unwrap_err().stage,
        FailedStage::StreamError,
        "{}",
        streams.wire
    );
}

/// Replaces each byte of a stream in turn by an invalid byte. The decoder must neither panic nor hang. In the first
/// stream, a broken non-ASCII byte must not fail the attempt.
fn check_broken_utf8<D: ReplyDecoder + Default>(streams: &WireStreams) {
    assert_broken_bytes_are_replaced::<D>(streams.whole[0]);
    for stream in streams.whole.iter().chain([&streams.failing]) {
        for at in 0..stream.len() {
            let mut bytes = stream.as_bytes().to_vec();
            bytes[at] = 0xFF;
            // The test accepts a reply or an error: a broken byte of text becomes a replacement character, and a broken
            // byte of JSON causes an error.
            drop(replay(&[&bytes], D::default()));
        }
    }
}

/// Checks that a start event that is sent twice in a row changes nothing.
fn check_duplicate_starts<D: ReplyDecoder + Default>(streams: &WireStreams) {
    for start in streams.starts {
        let mut seen = 0;
        for stream in streams.whole {
            let (whole, events) = (outcome::<D>(stream).unwrap(), events(stream));
            for at in (0..events.len()).filter(|at| events[*at].contains(start)) {
                let mut twice = events.clone();
                twice.insert(at, events[at]);
                assert_eq!(outcome::<D>(&twice.concat()).as_ref(), Ok(&whole), "{} {start}", streams.wire);
                seen += 1;
            }
        }
        assert!(seen > 0, "{} has no {start}", streams.wire);
    }
}

/// Checks that neither a prefix of a stream nor a stream without its final event is a reply, and that a repeated final
/// event changes nothing.
fn check_missing_ends<D: ReplyDecoder + Default>(streams: &WireStreams) {
    for stream in streams.whole {
        assert_prefixes_fail::<D>(stream);
        let endless: String = events(stream).into_iter().filter(|event| !event.contains(streams.end)).collect();
        let error = outcome::<D>(&endless).unwrap_err();
        assert_eq!(error.stage, FailedStage::Truncated, "{}", streams.wire);
        let ended = format!("{}\n\n{}", stream.trim_end(), events(stream.trim_end()).last().unwrap());
        assert_eq!(outcome::<D>(&ended), outcome::<D>(stream), "{}", streams.wire);
    }
}

/// Checks that the reply names events of unknown kinds that are inserted between any two events.
fn check_unknown_events<D: ReplyDecoder + Default>(streams: &WireStreams) {
    let unknown = "event: brand_new\ndata: {\"type\":\"brand_new\",\"x\":{\"deep\":[1,null]}}\n\n";
    for stream in streams.whole {
        let mixed: String = events(stream).into_iter().flat_map(|event| [unknown, event]).collect();
        let mut reply = outcome::<D>(&mixed).unwrap();
        let unread = std::mem::take(&mut reply.unread);
        assert!(unread.iter().any(|kind| kind == "brand_new"), "{}: {unread:?}", streams.wire);
        let whole = outcome::<D>(stream).map(|whole| Reply { unread: Vec::new(), ..whole });
        assert_eq!(Ok(reply), whole, "{}", streams.wire);
    }
}

macro_rules! wires {
    ($($fault:ident: $anthropic:ident $chat:ident $responses:ident $gemini:ident;)*) => {$(
        #[test]
        fn $anthropic() {
            $fault::<anthropic::AnthropicDecoder>(&ANTHROPIC);
        }
        #[test]
        fn $chat() {
            $fault::<openai_chat::ChatDecoder>(&CHAT);
        }
        #[test]
        fn $responses() {
            $fault::<openai_responses::ResponsesDecoder>(&RESPONSES);
        }
        #[test]
        fn $gemini() {
            $fault::<gemini::GeminiDecoder>(&GEMINI);
        }
    )*};
}

#[test]
fn anthropic_that_starts_twice() {
    check_duplicate_starts::<anthropic::AnthropicDecoder>(&ANTHROPIC);
}

#[test]
fn chat_that_starts_twice() {
    check_duplicate_starts::<openai_chat::ChatDecoder>(&CHAT);
}

#[test]
fn responses_that_start_twice() {
    check_duplicate_starts::<openai_responses::ResponsesDecoder>(&RESPONSES);
}

wires! {
    check_chunkings: anthropic_in_pieces chat_in_pieces responses_in_pieces gemini_in_pieces;
    check_broken_utf8: anthropic_with_broken_utf8 chat_with_broken_utf8 responses_with_broken_utf8 gemini_with_broken_utf8;
    check_missing_ends: anthropic_without_its_end chat_without_its_end responses_without_their_end gemini_without_its_end;
    check_unknown_events: anthropic_with_unknown_events chat_with_unknown_events responses_with_unknown_events gemini_with_unknown_events;
}
