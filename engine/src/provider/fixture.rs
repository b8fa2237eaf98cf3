//! Shared test fixtures of the wires: a request with every kind of turn, and replay of split streams.

use serde_json::{Value, json};

use super::Sampling;
use super::sse::{SseEvent, SseParser};
use super::wire::ReplyDecoder;
use crate::exchange::{CallError, Delta, Reply, Request, ThreadPosition, ToolDefinition};
use crate::image::ImageRef;
use crate::message::{ContentBlock, Message, SharedMessage, ToolCall};

pub fn text(text: &str) -> ContentBlock {
    ContentBlock::Text { text: text.into() }
}

pub fn call(id: &str, name: &str, input: serde_json::Value) -> ContentBlock {
    ContentBlock::ToolCall(ToolCall { id: id.to_owned(), name: name.to_owned(), input })
}

pub fn user(content: Vec<ContentBlock>) -> SharedMessage {
    Message::User { content }.into()
}

pub fn assistant(content: Vec<ContentBlock>) -> SharedMessage {
    Message::Assistant { content }.into()
}

pub fn result(call_id: &str, content: &str, is_error: bool) -> SharedMessage {
    let (call_id, name, content) = (call_id.to_owned(), "read".to_owned(), content.to_owned());
    Message::ToolResult { call_id, name, content, is_error }.into()
}

/// Returns the JSON of a body.
pub fn parse_body(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap()
}

/// Returns a minimal request.
pub fn minimal_request() -> Request {
    Request {
        model: "model-1".to_owned(),
        system: "Be brief.".into(),
        turns: vec![user(vec![text("Hello")])],
        tools: Vec::new(),
        max_output: 1024,
        first_turn_constant: true,
        sampling: Sampling::default(),
        text_tools: false,
        cue: ThreadPosition::default(),
    }
}

/// Returns an image as a request contains it.
pub fn test_image() -> ImageRef {
    let (media_type, data) = ("image/png".to_owned(), "iVBORw0=".to_owned());
    ImageRef { media_type, sha256: "0".repeat(64), bytes: 5, width: 1, height: 1, data }
}

/// Returns a request with every kind of turn and block, including blank blocks.
pub fn full_request() -> Request {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    let tool = |name: &str| ToolDefinition {
        name: name.into(),
        description: format!("What {name} does.").into(),
        schema: schema.clone().into(),
    };
    let image = ContentBlock::Image(test_image());
    let thinking = ContentBlock::Thinking { text: "Hm.".into(), signature: Some("sig".to_owned()) };
    let unsigned = ContentBlock::Thinking { text: "Hm?".into(), signature: None };
    let redacted = ContentBlock::Other {
        wire: "anthropic".to_owned(),
        value: json!({"type": "redacted_thinking", "data": "b3BhcXVl"}),
    };
    let foreign = ContentBlock::Other { wire: "morse".to_owned(), value: json!({"part": 1}) };
    Request {
        turns: vec![
            user(vec![text("First."), text("  \n"), text("Second.")]),
            assistant(vec![
                thinking,
                unsigned,
                redacted,
                foreign,
                text("Reading."),
                call("c1", "read", json!({"path": "a"})),
                call("c:2", "no.such", json!({"__malformed": "{\"path"})),
            ]),
            result("c1", "content of a", false),
            result("c:2", "", true),
            user(vec![text("And this?"), image]),
            assistant(vec![text("")]),
            user(vec![text("Go on.")]),
        ],
        tools: vec![tool("read"), tool("ls")],
        ..minimal_request()
    }
}

/// Decodes a stream in the given pieces.
pub fn replay<D: ReplyDecoder>(chunks: &[&[u8]], mut decoder: D) -> (Vec<Delta>, Result<Reply, CallError>) {
    let mut parser = SseParser::default();
    let mut deltas = Vec::new();
    for chunk in chunks {
        for event in parser.push(chunk).unwrap() {
            deltas.extend(decoder.push(&event));
        }
    }
    (deltas, decoder.finish())
}

/// Decodes a fixture whole, split at every byte, and byte by byte. Also decodes the fixture with a byte order mark,
/// comments and each kind of line end. All results must be equal.
pub fn replay_all_chunkings<D: ReplyDecoder + Default>(stream: &str) -> (Vec<Delta>, Result<Reply, CallError>) {
    let bytes = stream.as_bytes();
    let whole = replay(&[bytes], D::default());
    for cut in 0..=bytes.len() {
        let (front, back) = bytes.split_at(cut);
        assert_eq!(replay(&[front, back], D::default()), whole, "cut at byte {cut}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(replay(&single, D::default()), whole);
    // The stream has a byte order mark, comments between and inside events, keep-alives and empty lines, with every
    // kind of line end.
    let chatty =
        stream.replace("\ndata: ", "\n: hm\nid: 7\ndata: ").replace("\n\n", "\n: hm\n\n\n:\n\nevent: ping\n\n");
    let dressed = format!("\u{feff}: hello\n\n{chatty}");
    for line_end in ["\n", "\r\n", "\r"] {
        let dressed = dressed.replace('\n', line_end);
        assert_eq!(replay(&[dressed.as_bytes()], D::default()), whole, "with {line_end:?}");
        let pairs: Vec<&[u8]> = dressed.as_bytes().chunks(2).collect();
        assert_eq!(replay(&pairs, D::default()), whole, "with {line_end:?} in pairs");
    }
    whole
}

/// Checks that every proper prefix of `stream` is a failed attempt, never a shorter reply. Prefixes that lack only the
/// final `[DONE]` are not checked.
pub fn assert_prefixes_fail<D: ReplyDecoder + Default>(stream: &str) {
    let whole = stream.trim_end();
    let last = whole.strip_suffix("data: [DONE]").unwrap_or(whole).trim_end().len();
    for end in 0..last {
        if let Some(front) = stream.as_bytes().get(..end) {
            let (_, outcome) = replay(&[front], D::default());
            assert!(outcome.is_err(), "the first {end} bytes passed as a reply");
        }
    }
}

/// Breaks each non-ASCII byte of a stream in turn. Checks that the decoder still returns a reply, and that a
/// replacement character is displayed for at least one broken byte.
pub fn assert_broken_bytes_are_replaced<D: ReplyDecoder + Default>(stream: &str) {
    let mut hurt = 0;
    for (n, byte) in stream.bytes().enumerate().filter(|(_, byte)| !byte.is_ascii()) {
        let mut bytes = stream.as_bytes().to_vec();
        assert_ne!(byte, 0xFF);
        bytes.splice(n..=n, [0xFF]);
        let (front, back) = bytes.split_at(n);
        let (deltas, outcome) = replay(&[front, back], D::default());
        assert!(outcome.is_ok(), "byte {n}: {outcome:?}");
        hurt += usize::from(format!("{deltas:?}").contains('\u{fffd}'));
    }
    assert!(hurt > 0);
}

pub fn event(data: &serde_json::Value) -> SseEvent {
    SseEvent { name: String::new(), data: data.to_string() }
}
