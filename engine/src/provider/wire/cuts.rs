//! Streams that break off after each of their events, for each wire. The cost is known once the final usage was
//! reported, or if an error was the only event.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::fake::{ScriptedServer, chunk, chunked, head, last_chunk, send};
use super::tests::settings;
use super::*;
use crate::provider::fixture::minimal_request;
use crate::provider::{Wire, connect_provider, encode};

macro_rules! stream {
    ($name:literal) => {
        include_str!(concat!("../../../fixtures/streams/", $name, ".sse"))
    };
}

/// For each wire: a whole stream, a part of the event with the final usage, and an error event.
const STREAMS: [(Wire, &str, &str, &str); 4] = [
    (
        Wire::Anthropic,
        stream!("anthropic-text"),
        "\"message_delta\"",
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Later."}}"#,
    ),
    (Wire::OpenaiChat, stream!("openai-text"), "\"prompt_tokens\"", r#"{"error":{"message":"Later."}}"#),
    (
        Wire::OpenaiResponses,
        stream!("responses-text"),
        "\"response.completed\"",
        r#"{"type":"error","code":"server_error","message":"Later."}"#,
    ),
    (Wire::Gemini, stream!("gemini-text"), "\"finishReason\"", r#"{"error":{"code":503,"message":"Later."}}"#),
];

async fn ask(wire: Wire, moves: Vec<super::fake::ServerMove>) -> (u64, Result<Reply, CallError>) {
    let server = ScriptedServer::start(moves);
    let settings = settings(wire, &server.url);
    let sent = length(encode(&settings, &minimal_request()).unwrap().len());
    (sent, connect_provider(&settings).unwrap().call(&minimal_request(), &|_| {}).await)
}

#[tokio::test]
async fn stream_cut_before_its_final_usage_has_an_unknown_cost_on_every_wire() {
    for (wire, stream, last, payload) in STREAMS {
        let events: Vec<&str> = stream.split_inclusive("\n\n").collect();
        let counted = events.iter().position(|event| event.contains(last)).unwrap();
        let mut known = 0;
        for at in 0..events.len() {
            let front = events[..at].concat();
            let payload = format!("{front}data: {payload}\n\n");
            let of_length = |text: &str| vec![head("200 OK", "text/event-stream", ""), send(text)];
            // A stream breaks off in three ways: the connection closes, the body ends, or the server reports an error.
            let cases = [
                (&front, vec![chunked(), chunk(front.as_bytes())]),
                (&front, of_length(&front)),
                (&payload, vec![chunked(), chunk(payload.as_bytes()), last_chunk()]),
            ];
            for (streamed, moves) in cases {
                // An error that is the only event is a refusal of the request, which costs nothing.
                let is_refusal = at == 0 && *streamed == payload;
                let (sent, replied) = ask(wire, moves).await;
                if at > counted && replied.is_ok() {
                    continue; // the wire's last event is behind the cut
                }
                let error = replied.unwrap_err();
                if at > counted {
                    assert_eq!(error.cut, None, "{wire:?} after {at} events: {error:?}");
                    assert!(error.usage.is_some_and(|usage| usage.output > 1), "{wire:?}: {error:?}");
                    known += 1;
                } else {
                    let received = length(streamed.len());
                    let cut = (!is_refusal).then_some(CutStream { sent, received });
                    assert_eq!(error.cut, cut, "{wire:?} after {at} events: {error:?}");
                }
            }
        }
        assert_eq!(known > 0, matches!(wire, Wire::Anthropic | Wire::OpenaiChat), "{wire:?}");
    }
}

/// For each wire: a stream, and an earlier report that counts more tokens than the final usage of the stream.
const LARGE_REPORTS: [(Wire, &str, &str); 4] = [
    (
        Wire::Anthropic,
        stream!("anthropic-text"),
        r#"{"type":"message_delta","delta":{},"usage":{"input_tokens":70000,"output_tokens":9000}}"#,
    ),
    (
        Wire::OpenaiChat,
        stream!("openai-text"),
        r#"{"choices":[],"usage":{"prompt_tokens":70000,"completion_tokens":9000}}"#,
    ),
    (
        Wire::OpenaiResponses,
        stream!("responses-text"),
        r#"{"type":"response.in_progress","response":{"usage":{"input_tokens":70000,"output_tokens":9000}}}"#,
    ),
    (
        Wire::Gemini,
        stream!("gemini-text"),
        r#"{"usageMetadata":{"promptTokenCount":70000,"candidatesTokenCount":9000,"totalTokenCount":79000}}"#,
    ),
];

#[tokio::test]
async fn smaller_final_usage_takes_back_no_earlier_report_on_any_wire() {
    for (wire, stream, large) in LARGE_REPORTS {
        let at = stream.find("\n\n").unwrap() + 2;
        let streamed = format!("{}data: {large}\n\n{}", &stream[..at], &stream[at..]);
        let (_, replied) = ask(wire, vec![head("200 OK", "text/event-stream", ""), send(streamed)]).await;
        let usage = replied.unwrap().usage;
        assert!(usage.whole_input() >= 70_000 && usage.output == 9_000, "{wire:?}: {usage:?}");
    }
}

#[tokio::test]
async fn usage_after_the_final_event_is_booked_on_every_wire() {
    for (wire, stream, large) in LARGE_REPORTS {
        let large = match wire {
            Wire::OpenaiResponses => large.replace("response.in_progress", "response.completed"),
            Wire::Anthropic | Wire::OpenaiChat | Wire::Gemini | Wire::Scripted => large.to_owned(),
        };
        let late = format!("data: {large}\n\n");
        let whole = format!("{stream}{late}");
        let ways = [
            vec![head("200 OK", "text/event-stream", ""), send(whole)],
            vec![chunked(), chunk(stream.as_bytes()), chunk(late.as_bytes()), last_chunk()],
        ];
        for moves in ways {
            let (_, replied) = ask(wire, moves).await;
            let reply = replied.unwrap();
            assert!(reply.usage.whole_input() >= 70_000 && reply.usage.output == 9_000, "{wire:?}: {:?}", reply.usage);
            assert_eq!(reply.uncounted, None, "{wire:?}");
        }
    }
}

#[tokio::test]
async fn reply_after_an_error_event_is_not_free_on_any_wire() {
    for (wire, stream, _, payload) in STREAMS {
        let streamed = format!("data: {payload}\n\n{stream}");
        let ways = [
            vec![head("200 OK", "text/event-stream", ""), send(streamed.as_str())],
            vec![chunked(), chunk(format!("data: {payload}\n\n").as_bytes()), chunk(stream.as_bytes()), last_chunk()],
        ];
        for moves in ways {
            let (_, replied) = ask(wire, moves).await;
            let error = replied.unwrap_err();
            let counted = error.usage.is_some_and(|usage| usage.output > 1);
            assert!(error.cut.is_some() || counted, "{wire:?}: {error:?}");
        }
    }
}

#[tokio::test]
async fn reasoning_that_exceeds_the_output_is_added_to_it() {
    let chat = |details: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"a\"}},\"finish_reason\":\"stop\"}}],\
             \"usage\":{{\"prompt_tokens\":9,\"completion_tokens\":10{details}}}}}\n\ndata: [DONE]\n\n"
        )
    };
    for (details, expected) in [
        (",\"completion_tokens_details\":{\"reasoning_tokens\":900}", 910),
        (",\"completion_tokens_details\":{\"reasoning_tokens\":7}", 10),
        ("", 10),
    ] {
        let (_, replied) = ask(Wire::OpenaiChat, vec![chunked(), chunk(chat(details).as_bytes()), last_chunk()]).await;
        assert_eq!(replied.unwrap().usage.output, expected, "{details}");
    }
    let (_, stream, ..) = STREAMS[0];
    let last = stream.split("\n\n").find(|event| event.contains("\"message_delta\"")).unwrap();
    let report = &last[last.find("\"output_tokens\":").unwrap()..];
    let count: u64 = report["\"output_tokens\":".len()..].split([',', '}']).next().unwrap().trim().parse().unwrap();
    let with = |counts: &str| stream.replace(last, &last.replace(&format!("\"output_tokens\":{count}"), counts));
    let details = format!("\"output_tokens\":{count},\"output_tokens_details\":{{\"thinking_tokens\":900}}");
    let (_, replied) = ask(Wire::Anthropic, vec![chunked(), chunk(with(&details).as_bytes()), last_chunk()]).await;
    assert_eq!(replied.unwrap().usage.output, count + 900);
    // A reply with content has tokens, so a count of zero is not usable.
    let (_, replied) =
        ask(Wire::Anthropic, vec![chunked(), chunk(with("\"output_tokens\":0").as_bytes()), last_chunk()]).await;
    assert!(replied.unwrap().uncounted.is_some());
}

#[tokio::test]
async fn usage_reported_with_every_piece_is_not_final_until_the_reply_is() {
    let piece = |text: &str, finish: &str, tokens: u64| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":{finish}}}],\
             \"usage\":{{\"prompt_tokens\":9,\"completion_tokens\":{tokens}}}}}\n\n"
        )
    };
    let (first, last) = (piece("a", "null", 1), piece("b", "\"stop\"", 2));
    let (_, replied) = ask(Wire::OpenaiChat, vec![chunked(), chunk(first.as_bytes())]).await;
    let error = replied.unwrap_err();
    assert!(error.cut.is_some() && error.usage.is_some_and(|usage| usage.output == 1), "{error:?}");
    let both = first + &last;
    // The connection breaks after the `finish_reason` and the usage: nothing of the reply is missing.
    let (_, replied) = ask(Wire::OpenaiChat, vec![chunked(), chunk(both.as_bytes())]).await;
    assert_eq!(replied.unwrap().usage.output, 2);
}

#[tokio::test]
async fn failure_before_a_stream_costs_nothing_and_a_document_may_be_a_reply() {
    let refused = r#"{"error":{"message":"Later."}}"#;
    let long = format!(r#"{{"choices":[{{"message":{{"content":"{}"}}}}]}}"#, "a".repeat(70_000));
    let json = "application/json";
    let stream = "text/event-stream";
    let cases: [(&str, &str, &str, bool); 16] = [
        ("200 OK", stream, refused, false),
        ("200 OK", stream, "{\n  \"error\": {\"message\": \"Later.\"}\n}\n", false),
        ("200 OK", stream, r#"{"error":{"message":"Later."},"usage":{"prompt_tokens":9}}"#, true),
        ("200 OK", stream, r#"{"choices":[{"message":{"content":"Hello."}}]}"#, true),
        ("529 Overloaded", json, refused, false),
        ("200 OK", json, refused, false),
        ("200 OK", json, r#"[{"error":{"message":"Later."}}]"#, false),
        ("200 OK", "text/html", "<html>log in</html>", false),
        ("200 OK", json, r#"{"choices":[{"message":{"content":"Hello."}}]}"#, true),
        ("200 OK", json, r#"{"status":"completed","error":null,"output":[]}"#, true),
        ("200 OK", json, r#"[{"candidates":[]},{"usageMetadata":{}}]"#, true),
        ("200 OK", json, r#"{"error":{"message":"Later."},"usage":{"prompt_tokens":9}}"#, true),
        ("200 OK", json, r#"[{"error":{"message":"Later."}},{"usage":{"prompt_tokens":9}}]"#, true),
        ("200 OK", json, r#"{"error":{"message":"Later.","partial":{"usage":{"prompt_tokens":9}}}}"#, true),
        ("200 OK", json, r#"{"choices":[{"message":{"con"#, true),
        ("200 OK", json, &long, true),
    ];
    for (status, kind, text, unknown) in cases {
        let (_, replied) = ask(Wire::OpenaiChat, vec![head(status, kind, ""), send(text)]).await;
        let error = replied.unwrap_err();
        assert_eq!((error.cut.is_some(), error.usage), (unknown, None), "{status} {text}: {error:?}");
        assert!(kind != stream || !text.contains("error") || error.message.contains("Later."), "{error:?}");
    }
}

#[tokio::test]
async fn answer_without_whole_headers_has_an_unknown_cost_on_every_wire() {
    let headers = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
    let long = format!("{headers}x: {}", "a".repeat(1_000_000));
    let cases: [(&str, Vec<super::fake::ServerMove>); 5] = [
        ("no byte", Vec::new()),
        ("cut within the status", vec![send(&headers[..12])]),
        ("cut within the headers", vec![send(headers)]),
        ("headers above the client's bound", vec![send(long)]),
        ("headers that cannot be read", vec![send("HTTP/1.1 2x0 OK\r\n\r\n")]),
    ];
    for (wire, ..) in STREAMS {
        for (case, moves) in &cases {
            let (sent, replied) = ask(wire, moves.clone()).await;
            let error = replied.unwrap_err();
            assert_eq!(
                (error.stage, error.cut),
                (FailedStage::Connect, Some(CutStream { sent, received: 0 })),
                "{case}"
            );
        }
        let (noticed, headers) = (std::sync::Arc::new(tokio::sync::Notify::new()), send(headers));
        noticed.notify_one();
        let stalled = ask(wire, vec![headers, super::fake::ServerMove::Stay]);
        let (sent, replied) = crate::provider::http::TEST_TIMEOUT_SIGNAL.scope(noticed, stalled).await;
        let error = replied.unwrap_err();
        assert_eq!(
            (error.stage, error.cut),
            (FailedStage::Timeout, Some(CutStream { sent, received: 0 })),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn request_without_a_connection_costs_nothing() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let provider = connect_provider(&settings(Wire::OpenaiChat, &format!("http://127.0.0.1:{port}"))).unwrap();
    let error = provider.call(&minimal_request(), &|_| {}).await.unwrap_err();
    assert_eq!((error.stage, error.cut), (FailedStage::Connect, None), "{error:?}");
}

/// Returns the stream with `value` in place of every number after one of these keys.
fn with_counts(stream: &str, keys: &[&str], value: &str) -> String {
    keys.iter().fold(stream.to_owned(), |text, key| {
        let label = format!("\"{key}\":");
        let mut pieces = text.split(&label);
        let mut changed = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let rest = piece.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
            changed.push_str(&label);
            changed.push_str(value);
            changed.push_str(rest);
        }
        changed
    })
}

/// For each wire: the keys of the input counts, and the keys of the output counts and of the total.
const COUNTS: [(Wire, &[&str], &[&str]); 4] = [
    (Wire::Anthropic, &["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"], &["output_tokens"]),
    (
        Wire::OpenaiChat,
        &["prompt_tokens", "cached_tokens", "cache_write_tokens"],
        &["completion_tokens", "total_tokens"],
    ),
    (
        Wire::OpenaiResponses,
        &["input_tokens", "cached_tokens", "cache_write_tokens"],
        &["output_tokens", "total_tokens"],
    ),
    (
        Wire::Gemini,
        &["promptTokenCount", "cachedContentTokenCount", "toolUsePromptTokenCount"],
        &["candidatesTokenCount", "thoughtsTokenCount", "totalTokenCount"],
    ),
];

/// Returns the event with the final usage on this wire: these numbers of prompt, cached, output and total tokens.
fn final_usage(wire: Wire, [prompt, cached, output, total]: [u64; 4]) -> String {
    match wire {
        Wire::OpenaiChat => format!(
            r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":{prompt},
            "completion_tokens":{output},"total_tokens":{total},"prompt_tokens_details":{{"cached_tokens":{cached}}}}}}}"#
        ),
        Wire::OpenaiResponses => format!(
            r#"{{"type":"response.completed","response":{{"status":"completed","usage":{{"input_tokens":{prompt},
            "output_tokens":{output},"total_tokens":{total},"input_tokens_details":{{"cached_tokens":{cached}}}}}}}}}"#
        ),
        Wire::Gemini => format!(
            r#"{{"candidates":[{{"finishReason":"STOP"}}],"usageMetadata":{{"promptTokenCount":{prompt},
            "candidatesTokenCount":{output},"totalTokenCount":{total},"cachedContentTokenCount":{cached}}}}}"#
        ),
        Wire::Anthropic | Wire::Scripted => unreachable!("the wire counts cached tokens apart and has no total"),
    }
    .replace('\n', "")
}

#[tokio::test]
async fn counts_that_contradict_each_other_have_an_unknown_cost() {
    for wire in [Wire::OpenaiChat, Wire::OpenaiResponses, Wire::Gemini] {
        for (counts, usage) in [
            ([100, 40, 5, 105], Some((60, 40, 5))),
            // Tokens that only the total includes count as output tokens, which cost more.
            ([100, 40, 5, 130], Some((60, 40, 30))),
            ([100, 0, 5, 7], Some((100, 0, 5))),
            // If a server leaves cached tokens out of its prompt count, the counts contradict each other.
            ([100, 4_000, 5, 105], None),
        ] {
            let text = format!("data: {}\n\ndata: [DONE]\n\n", final_usage(wire, counts));
            let (_, replied) = ask(wire, vec![chunked(), chunk(text.as_bytes()), last_chunk()]).await;
            let reply = replied.unwrap();
            let Usage { input, output, cache_read, .. } = reply.usage;
            let known = reply.uncounted.is_none().then_some((input, cache_read, output));
            assert_eq!(known, usage, "{wire:?}: {counts:?}");
        }
    }
}

#[test]
fn smaller_report_takes_back_no_kind_of_token() {
    let of = |input, output, cache_read, cache_write| Usage { input, output, cache_read, cache_write };
    for (earlier, later, usage) in [
        (of(25, 1, 1_200, 400), of(0, 15, 0, 0), of(25, 15, 1_200, 400)),
        (of(0, 9, 1_000, 0), of(999, 2, 0, 0), of(999, 9, 1_000, 0)),
        // A later report may classify the same tokens more precisely.
        (of(1_000, 1, 0, 0), of(100, 9, 900, 0), of(100, 9, 900, 0)),
    ] {
        assert_eq!(Usage::after(Some(earlier), later), usage);
    }
}

#[tokio::test]
async fn unusable_report_after_the_final_one_makes_the_cost_unknown() {
    let event = final_usage(Wire::OpenaiChat, [9, 0, 2, 11]);
    let later = r#"{"choices":[],"usage":{"prompt_tokens":-1,"completion_tokens":2}}"#;
    let text = format!("data: {event}\n\ndata: {later}\n\ndata: [DONE]\n\n");
    let (_, replied) = ask(Wire::OpenaiChat, vec![chunked(), chunk(text.as_bytes()), last_chunk()]).await;
    assert!(replied.unwrap().uncounted.is_some());
}

#[tokio::test]
async fn reply_with_unusable_counts_has_an_unknown_cost_on_every_wire() {
    for ((wire, stream, ..), (_, input, output)) in STREAMS.into_iter().zip(COUNTS) {
        let whole = |text: &str| vec![chunked(), chunk(text.as_bytes()), last_chunk()];
        let (_, replied) = ask(wire, whole(stream)).await;
        let usage = replied.unwrap();
        assert_eq!(usage.uncounted, None, "{wire:?}: {usage:?}");
        for value in
            ["100.0", "1e3", "\"100\"", "-1", "null", "true", "{}", "[]", "{\"a\":100}", "18446744073709551616", "0"]
        {
            for keys in [[input, output].concat(), input.to_vec(), output.to_vec()] {
                let text = with_counts(stream, &keys, value);
                assert_ne!(text, stream, "{wire:?}: no count of {keys:?}");
                let (sent, replied) = ask(wire, whole(&text)).await;
                let reply = replied.unwrap();
                let received = length(text.len());
                assert_eq!(reply.uncounted, Some(CutStream { sent, received }), "{wire:?}: {keys:?} = {value}");
            }
        }
    }
}

#[tokio::test]
async fn larger_count_of_a_repeated_key_is_booked_and_named_on_every_wire() {
    for ((wire, stream, ..), (_, input, output)) in STREAMS.into_iter().zip(COUNTS) {
        let (counted, reported) = (output[0], 9_007_199_254_740_993_u64);
        for (first, last) in [(reported, 1), (1, reported)] {
            let text = with_counts(stream, &[counted], &format!("{first},\"{counted}\":{last}"));
            let (_, replied) = ask(wire, vec![chunked(), chunk(text.as_bytes()), last_chunk()]).await;
            let reply = replied.unwrap();
            // Gemini counts thoughts separately, so the output can exceed the repeated count.
            assert!(reply.usage.output >= reported, "{wire:?}: {:?}", reply.usage);
            assert_eq!(reply.uncounted, None, "{wire:?}");
            let named = reply.unread.iter().any(|kind| kind.starts_with("repeated key ") && kind.ends_with(counted));
            assert!(named, "{wire:?}: {:?}", reply.unread);
        }
        let text = with_counts(stream, &input[..1], &format!("\"1\",\"{}\":1", input[0]));
        let (_, replied) = ask(wire, vec![chunked(), chunk(text.as_bytes()), last_chunk()]).await;
        assert!(replied.unwrap().uncounted.is_some(), "{wire:?}: a value that is no count");
    }
}
