//! Tests of the validation itself: accepted and refused bodies.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use serde_json::json;

use super::*;
use crate::exchange::Request;
use crate::message::ContentBlock;
use crate::provider::encode;
use crate::provider::fixture::{assistant, call, full_request, minimal_request, parse_body, text, user};
use crate::provider::settings::{MaxTokensField, ProviderSettings};

const WIRES: [Wire; 4] = [Wire::Anthropic, Wire::OpenaiChat, Wire::OpenaiResponses, Wire::Gemini];

fn sent(wire: Wire, request: &Request) -> Value {
    let settings = ProviderSettings {
        max_tokens_field: MaxTokensField::MaxCompletionTokens,
        ..ProviderSettings::with_defaults("test", wire)
    };
    parse_body(&encode(&settings, request).unwrap())
}

#[test]
fn every_wire_sends_schema_valid_bodies() {
    let bare = Request { system: "".into(), ..minimal_request() };
    let foreign = ContentBlock::Thinking { text: "Hm.".into(), signature: None };
    let odd = Request {
        turns: vec![
            assistant(vec![text("Left over.")]),
            user(vec![text(" ")]),
            user(vec![text("Hi")]),
            assistant(vec![foreign]),
            user(vec![text("Again")]),
        ],
        ..full_request()
    };
    for wire in WIRES {
        for request in [minimal_request(), full_request(), bare.clone(), odd.clone()] {
            let body = sent(wire, &request);
            validate_body(wire, &body).unwrap_or_else(|error| panic!("{}: {error}\n{body:#}", wire.name()));
        }
    }
}

#[test]
fn sampling_is_sent_only_if_set() {
    let sampling = crate::provider::Sampling { temperature: serde_json::Number::from_f64(0.5), top_p: None };
    for wire in WIRES {
        let plain = sent(wire, &minimal_request()).to_string();
        assert!(!plain.contains("temperature") && !plain.contains("top"), "{plain}");
        let body = sent(wire, &Request { sampling: sampling.clone(), ..minimal_request() });
        validate_body(wire, &body).unwrap();
        assert!(body.to_string().contains("\"temperature\":0.5"), "{body}");
        assert!(!body.to_string().contains("top"), "{body}");
    }
}

/// Validates the body of a conversation with a call, after the value at `pointer` is replaced (or removed, if `value`
/// is null).
fn validate_spoiled_body(wire: Wire, pointer: &str, value: Value) -> Validation {
    let turns = vec![
        user(vec![text("Go.")]),
        assistant(vec![text("Yes."), call("a", "read", json!({"path": "x"}))]),
        crate::provider::fixture::result("a", "r", false),
    ];
    let mut body = sent(wire, &Request { turns, ..full_request() });
    validate_body(wire, &body)?;
    match (pointer.rsplit_once('/').unwrap(), value) {
        ((parent, key), Value::Null) => {
            let parent = body.pointer_mut(parent).unwrap();
            if let Some(list) = parent.as_array_mut() {
                list.remove(key.parse().unwrap());
            } else {
                parent.as_object_mut().unwrap().remove(key);
            }
        }
        ((parent, key), value) if body.pointer(pointer).is_none() => {
            body.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(key.to_owned(), value);
        }
        (_, value) => *body.pointer_mut(pointer).unwrap() = value,
    }
    validate_body(wire, &body)
}

#[test]
fn invalid_bodies_fail_validation() {
    let table: &[(Wire, &[(&str, Value)])] = &[
        (
            Wire::Anthropic,
            &[
                ("/max_tokens", Value::Null),
                ("/system", json!(" ")),
                ("/messages/0/role", json!("assistant")),
                ("/messages/0/content", json!([])),
                ("/messages/1/content/0/text", json!("")),
                ("/messages/1/content/1/id", json!("a b")),
                ("/messages/1/content/1/input", json!("x")),
                ("/messages/2", Value::Null),
                ("/messages/2/content/0/tool_use_id", json!("b")),
                ("/messages/2/content/0/content", json!("")),
                ("/tools/0/input_schema", json!({})),
                ("/temprature", json!(1)),
            ],
        ),
        (
            Wire::OpenaiChat,
            &[
                ("/max_tokens", json!(5)),
                ("/messages/0/content", json!("")),
                ("/messages/1/role", json!("tool")),
                ("/messages/2/tool_calls/0/function/arguments", json!("{")),
                ("/messages/2/tool_calls", json!([])),
                ("/messages/3", Value::Null),
                ("/messages/3/tool_call_id", json!("b")),
                ("/tools/0/function/name", json!("a.b")),
            ],
        ),
        (
            Wire::OpenaiResponses,
            &[
                ("/store", json!(true)),
                ("/instructions", json!("")),
                ("/input/0/content", json!([])),
                ("/input/2", Value::Null),
                ("/input/3", Value::Null),
                ("/input/3/output", json!("")),
                ("/tools/0/strict", Value::Null),
                ("/tools/0/function", json!({})),
            ],
        ),
        (
            Wire::Gemini,
            &[
                ("/model", json!("m")),
                ("/systemInstruction/parts", json!([])),
                ("/contents/0/role", json!("model")),
                ("/contents/1/parts/1/functionCall/args", Value::Null),
                ("/contents/2", Value::Null),
                ("/contents/2/parts/0/functionResponse/response", json!({})),
                ("/tools/0/functionDeclarations/0/parametersJsonSchema/$ref", json!("#")),
                ("/tools/0/functionDeclarations/0/parametersJsonSchema/type", json!("OBJECT")),
            ],
        ),
    ];
    for (wire, cases) in table {
        for (pointer, value) in *cases {
            assert!(validate_spoiled_body(*wire, pointer, value.clone()).is_err(), "{} {pointer}", wire.name());
        }
    }
}
