//! Tests that the cached bytes of a message equal a fresh serialization, on four wires.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::exchange::Request;
use crate::message::{ContentBlock, Message, SharedMessage, ToolCall};
use crate::provider::fixture::{full_request, parse_body, test_image};
use crate::provider::{ProviderSettings, Wire, encode};

const WIRES: [(Wire, &str); 5] = [
    (Wire::Anthropic, "model-1"),
    (Wire::OpenaiChat, "model-1"),
    (Wire::OpenaiResponses, "model-1"),
    (Wire::Gemini, "gemini-2.5-pro"),
    (Wire::Gemini, "gemini-3-pro"),
];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![2 => "[a-z \"\\\\\n\u{7f}é🦀]{0,12}", 1 => Just(" ".to_owned())]
}

/// Returns ids of calls, some repeated and some with special characters.
fn call_id() -> impl Strategy<Value = String> {
    prop_oneof![Just("a".to_owned()), Just("a.b".to_owned()), Just(String::new()), "[a-z:]{1,70}"]
}

fn block() -> impl Strategy<Value = ContentBlock> {
    prop_oneof![
        3 => text().prop_map(|text| ContentBlock::Text { text: text.into() }),
        3 => (call_id(), text(), text()).prop_map(|(id, name, value)| {
            ContentBlock::ToolCall(ToolCall { id, name, input: json!({"path": value, "n": 1.5}) })
        }),
        1 => (text(), proptest::option::of(text()))
            .prop_map(|(text, signature)| ContentBlock::Thinking { text: text.into(), signature }),
        1 => Just(ContentBlock::Image(test_image())),
        1 => prop_oneof![Just("anthropic"), Just("openai-responses"), Just("gemini")].prop_map(|wire| {
            ContentBlock::Other { wire: wire.to_owned(), value: json!({"type": "reasoning", "thoughtSignature": "s"}) }
        }),
        1 => Just(ContentBlock::Other { wire: "gemini".to_owned(), value: json!({"thoughtSignature": "s"}) }),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let content = || proptest::collection::vec(block(), 0..4);
    prop_oneof![
        2 => content().prop_map(|content| Message::User { content }),
        3 => content().prop_map(|content| Message::Assistant { content }),
        3 => (call_id(), text(), any::<bool>()).prop_map(|(call_id, content, is_error)| {
            Message::ToolResult { call_id, name: "read".to_owned(), content, is_error }
        }),
        1 => text().prop_map(|text| Message::CompactionSummary { text }),
        1 => (text(), any::<bool>()).prop_map(|(output, excluded)| {
            Message::Bash { command: "ls".to_owned(), output, exit_code: 1, excluded }
        }),
    ]
}

/// A change of the history: messages are added, one message is changed, or the first messages are removed.
#[derive(Debug, Clone)]
enum HistoryEdit {
    Add(Vec<Message>),
    Change(usize, Message),
    Remove(usize),
}

fn edit() -> impl Strategy<Value = HistoryEdit> {
    prop_oneof![
        6 => proptest::collection::vec(message(), 1..4).prop_map(HistoryEdit::Add),
        1 => (any::<usize>(), message()).prop_map(|(at, message)| HistoryEdit::Change(at, message)),
        1 => any::<usize>().prop_map(HistoryEdit::Remove),
    ]
}

fn apply_edit(turns: &mut Vec<SharedMessage>, edit: HistoryEdit) {
    let count = turns.len().max(1);
    match edit {
        HistoryEdit::Add(messages) => turns.extend(messages.into_iter().map(SharedMessage::from)),
        HistoryEdit::Change(at, message) => {
            if let Some(turn) = turns.get_mut(at % count) {
                turn.edit(|old| *old = message);
            }
        }
        HistoryEdit::Remove(at) => drop(turns.drain(..at % count)),
    }
}

proptest! {
    /// For any order of wires and any history, the cached bytes of a request equal the bytes of an encoding without a
    /// cache.
    #[test]
    fn cached_bytes_equal_a_fresh_serialization(
        steps in proptest::collection::vec((edit(), 0..WIRES.len(), any::<bool>()), 1..10),
    ) {
        let mut request = Request { turns: Vec::new(), ..full_request() };
        for (edit, first, constant) in steps {
            apply_edit(&mut request.turns, edit);
            request.first_turn_constant = constant;
            for n in 0..2 {
                let (wire, model) = WIRES[(first + n) % WIRES.len()];
                let settings = ProviderSettings::with_defaults("test", wire);
                model.clone_into(&mut request.model);
                let fresh = request.turns.iter().map(|turn| SharedMessage::new(Message::clone(turn))).collect();
                let fresh = encode(&settings, &Request { turns: fresh, ..request.clone() }).unwrap();
                let parsed = parse_body(&fresh).to_string();
                prop_assert_eq!(parsed.as_bytes(), &fresh[..], "{}", wire.name());
                for _ in 0..2 {
                    prop_assert_eq!(&encode(&settings, &request).unwrap(), &fresh, "{}", wire.name());
                }
            }
        }
    }
}

#[test]
fn request_encodes_only_turns_that_it_has_not_sent_before() {
    let mut request = full_request();
    for (wire, model) in WIRES {
        let settings = ProviderSettings::with_defaults("test", wire);
        model.clone_into(&mut request.model);
        encode(&settings, &request).unwrap();
        let kept: Vec<Option<Arc<[u8]>>> = request.turns.iter().map(SharedMessage::cached_encoding).collect();
        // Only the blank turn has no encoding.
        assert_eq!(kept.iter().filter(|kept| kept.is_none()).count(), 1, "{}", wire.name());
        request.turns.push(Message::user("More.").into());
        encode(&settings, &request).unwrap();
        for (turn, kept) in request.turns.iter().zip(&kept) {
            let now = turn.cached_encoding();
            assert_eq!(now.as_ref().map(Arc::as_ptr), kept.as_ref().map(Arc::as_ptr), "{} {turn:?}", wire.name());
        }
        request.turns.pop();
    }
}

#[test]
fn repeated_call_ids_are_encoded_once() {
    let call = ContentBlock::ToolCall(ToolCall { id: "same".to_owned(), name: "read".to_owned(), input: json!({}) });
    let result = Message::ToolResult {
        call_id: "same".to_owned(),
        name: "read".to_owned(),
        content: "x".to_owned(),
        is_error: false,
    };
    let mut turns: Vec<SharedMessage> = vec![Message::user("Go.").into()];
    for _ in 0..3 {
        turns.push(Message::Assistant { content: vec![call.clone()] }.into());
        turns.push(result.clone().into());
    }
    let first = super::super::normalize_turns(&turns).into_owned();
    let again = super::super::normalize_turns(&turns).into_owned();
    assert_eq!(first, again);
    for (one, other) in first.iter().zip(&again) {
        let encode = |_: crate::message::ProviderMessage<'_>| vec![b'0'];
        let encoding = crate::message::WireEncoding::OpenaiChat;
        assert!(Arc::ptr_eq(&one.encoded(encoding, encode), &other.encoded(encoding, encode)));
    }
}

// shows: interactive 7.8: seven kinds converted, `!!` never on any of four wires
#[test]
fn seven_kinds_reach_every_wire_and_an_excluded_command_reaches_none() {
    let call = ToolCall { id: "call".to_owned(), name: "read".to_owned(), input: json!({}) };
    let text = |text: &str| vec![ContentBlock::Text { text: text.into() }];
    let bash = |output: &str, excluded| Message::Bash {
        command: "run".to_owned(),
        output: output.to_owned(),
        exit_code: 0,
        excluded,
    };
    let result = Message::ToolResult {
        call_id: "call".to_owned(),
        name: "read".to_owned(),
        content: "of a tool".to_owned(),
        is_error: false,
    };
    let messages = [
        Message::User { content: text("of the user") },
        Message::Assistant { content: [text("of the model"), vec![ContentBlock::ToolCall(call)]].concat() },
        result,
        Message::Custom { custom_type: "note".to_owned(), content: "of a hook".to_owned(), display: false },
        bash("of a command", false),
        bash("never sent", true),
        Message::CompactionSummary { text: "of the compaction".to_owned() },
        Message::BranchSummary { text: "of the branch".to_owned() },
    ];
    let mut request = Request { turns: messages.into_iter().map(SharedMessage::from).collect(), ..full_request() };
    for (wire, model) in WIRES {
        let settings = ProviderSettings::with_defaults("test", wire);
        model.clone_into(&mut request.model);
        let body = String::from_utf8(encode(&settings, &request).unwrap()).unwrap();
        let expected = ["the user", "the model", "a tool", "a hook", "a command", "the compaction", "the branch"];
        let places: Vec<Option<usize>> = expected.iter().map(|part| body.find(&format!("of {part}"))).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{}: {places:?}", wire.name());
        assert!(!body.contains("never sent"), "{}", wire.name());
    }
}
