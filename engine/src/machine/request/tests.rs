//! Property test: requests built from arbitrary conversations match the schemas that the providers publish.

#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::machine::fixture::plan;
use crate::provider::fixture::parse_body;
use crate::provider::settings::ProviderSettings;
use crate::provider::{Wire, encode, provider_schemas, text_tools};

fn block() -> impl Strategy<Value = ContentBlock> {
    let text = prop_oneof![Just(""), Just(" \n"), Just("Hello."), Just("Grüße")];
    let call = ("[ab]", prop_oneof![Just("read"), Just("no.such"), Just("")]).prop_map(|(id, name)| {
        ContentBlock::ToolCall(ToolCall { id, name: name.to_owned(), input: json!({"path": "x"}) })
    });
    let other = prop_oneof![
        Just(("anthropic", json!({"type": "redacted_thinking", "data": "b3BhcXVl"}))),
        Just(("gemini", json!({"thoughtSignature": "c2VhbA=="}))),
        Just(("openai-responses", json!({"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"}))),
        Just(("openai-responses", json!({"type": "reasoning", "id": "r", "summary": []}))),
        Just(("morse", json!("-.-"))),
    ];
    prop_oneof![
        3 => text.prop_map(|text| ContentBlock::Text { text: text.into() }),
        3 => call,
        1 => any::<bool>().prop_map(|signed| ContentBlock::Thinking {
            text: "Hm.".into(),
            signature: signed.then(|| "sig".to_owned()),
        }),
        1 => other.prop_map(|(wire, value)| ContentBlock::Other { wire: wire.to_owned(), value }),
        1 => Just(ContentBlock::Image(crate::provider::fixture::test_image())),
    ]
}

const CALL: ModelCall = ModelCall { max_output: 1_000, compacts: false };

fn shared(messages: &[Message]) -> Vec<SharedMessage> {
    messages.iter().cloned().map(SharedMessage::from).collect()
}

fn message() -> impl Strategy<Value = Message> {
    let content = || proptest::collection::vec(block(), 0..4);
    prop_oneof![
        2 => content().prop_map(|content| Message::User { content }),
        3 => content().prop_map(|content| Message::Assistant { content }),
        3 => ("[ab]", prop_oneof![Just(""), Just("r")], any::<bool>()).prop_map(|(call_id, content, is_error)| {
            Message::ToolResult { call_id, name: "read".to_owned(), content: content.to_owned(), is_error }
        }),
        1 => Just(Message::CompactionSummary { text: "so far".to_owned() }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_request_matches_its_provider_schema(
        mut messages in proptest::collection::vec(message(), 0..8),
        constant in any::<bool>(),
    ) {
        messages.push(Message::user("Go on."));
        let tool = ToolDefinition { name: "read".into(), description: "d".into(), schema: json!({"type": "object"}).into() };
        let request = Request {
            turns: to_turns(&shared(&messages)),
            tools: vec![tool],
            first_turn_constant: constant,
            ..crate::provider::fixture::minimal_request()
        };
        let in_words = Request { text_tools: true, tools: Vec::new(), ..request.clone() };
        let in_words = text_tools::request_as_text(&in_words);
        for wire in [Wire::Anthropic, Wire::OpenaiChat, Wire::OpenaiResponses, Wire::Gemini] {
            for request in [&request, &in_words] {
                let body = parse_body(&encode(&ProviderSettings::with_defaults("test", wire), request).unwrap());
                if let Err(error) = provider_schemas::validate_body(wire, &body) {
                    prop_assert!(false, "{}: {error}\n{body:#}", wire.name());
                }
            }
        }
    }

    #[test]
    fn input_bound_covers_the_bytes_of_the_body_on_every_wire(
        messages in proptest::collection::vec(message(), 0..8),
        system in any::<String>(),
        text in any::<String>(),
        words in any::<bool>(),
    ) {
        let mut plan = plan();
        plan.model.tool_use = if words { ToolUse::TextParsed } else { ToolUse::Native };
        let mut state = ThreadState::new();
        state.conversation.system = Some(system.into());
        state.conversation.messages = shared(&messages);
        state.conversation.messages.push(Message::user(text).into());
        let request = build_request(&plan, &state, CALL, RequestTurns::All);
        let request = if words { text_tools::request_as_text(&request) } else { request };
        let bound = bound_input_tokens(&plan, &state, false);
        for wire in [Wire::Anthropic, Wire::OpenaiChat, Wire::OpenaiResponses, Wire::Gemini] {
            let bytes = encode(&ProviderSettings::with_defaults("test", wire), &request).unwrap().len();
            prop_assert!(bound >= bytes as u64, "{}: {bound} for {bytes}", wire.name());
        }
    }
}

#[test]
fn fallback_receives_tools_in_the_form_that_it_takes() {
    for (first, other) in [(ToolUse::Native, ToolUse::TextParsed), (ToolUse::TextParsed, ToolUse::Native)] {
        let mut plan = plan();
        plan.model.tool_use = first;
        let layer = rye_compiler::wire_tool::instructions::instructions_layer(&plan.model, &plan.palette);
        plan.prompt.system.extend(layer);
        let fallback = rye_compiler::plan::PlannedModel { tool_use: other, ..plan.model.clone() };
        plan.model.fallback = Some(Box::new(fallback));
        for replaced in [None, Some("Be short.")] {
            let mut state = ThreadState::new();
            state.conversation.system = Some(plan.prompt.render_opening(&mut NoFacts).system.into());
            state.conversation.system_now = replaced.map(Into::into);
            let expected = replaced.unwrap_or("You are you.");
            for on_fallback in [false, true] {
                state.on_fallback = on_fallback;
                let request = build_request(&plan, &state, CALL, RequestTurns::All);
                let in_words = state.model(&plan).tool_use == ToolUse::TextParsed;
                assert_eq!((request.text_tools, request.tools.is_empty()), (in_words, in_words));
                assert_eq!(request.system.matches("<tools>").count(), usize::from(in_words), "{}", request.system);
                assert!(request.system.starts_with(expected), "{}", request.system);
                assert!(in_words || &*request.system == expected, "{}", request.system);
                let sent = if in_words { text_tools::request_as_text(&request) } else { request };
                let bytes = encode(&ProviderSettings::with_defaults("test", Wire::Gemini), &sent).unwrap().len();
                assert!(bound_input_tokens(&plan, &state, false) >= bytes as u64);
            }
        }
    }
}

struct NoFacts;

impl rye_compiler::plan::prompt::PromptFacts for NoFacts {
    fn text(&mut self, _: &rye_compiler::plan::RuntimePlaceholder) -> String {
        String::new()
    }

    fn fires(&mut self, _: &str) -> bool {
        false
    }
}

#[test]
fn request_since_the_last_reply_does_not_grow_with_the_conversation() {
    let plan = plan();
    let mut state = ThreadState::new();
    state.conversation.messages.push(Message::user("Go.").into());
    let call = |n: usize| ToolCall { id: format!("call_{n}"), name: "read".to_owned(), input: json!({}) };
    for n in 0..100 {
        let reply = Message::Assistant { content: vec![ContentBlock::ToolCall(call(n))] };
        let (call_id, name, content) = (format!("call_{n}"), "read".to_owned(), format!("result {n}"));
        let result = Message::ToolResult { call_id, name, content, is_error: false };
        state.conversation.messages.extend([reply.into(), result.into()]);
        let all = build_request(&plan, &state, CALL, RequestTurns::All).turns;
        let end = build_request(&plan, &state, CALL, RequestTurns::SinceReply).turns;
        assert_eq!((all.len(), end.as_slice()), (2 * n + 3, &all[all.len() - 2..]));
    }
}

#[test]
fn input_bound_never_exceeds_the_context_window_of_the_model() {
    let (mut plan, mut state) = (plan(), ThreadState::new());
    let image = crate::provider::fixture::test_image();
    state.conversation.messages = vec![Message::user_with_images(&[image], "text ".repeat(10_000)).into()];
    plan.model.context_window = 0;
    let whole = bound_input_tokens(&plan, &state, true);
    assert!(whole > 50_000, "{whole}");
    for window in [whole + 1, whole, 32_768] {
        plan.model.context_window = window;
        assert_eq!(bound_input_tokens(&plan, &state, true), whole.min(window));
    }
}

#[test]
fn request_to_a_model_without_images_states_that_an_image_was_left_out() {
    let (mut plan, mut state) = (plan(), ThreadState::new());
    let image = crate::provider::fixture::test_image();
    state.conversation.messages = vec![Message::user_with_images(&[image], "see").into()];
    let turns = |plan: &Plan, state: &ThreadState| build_request(plan, state, CALL, RequestTurns::All).turns;
    assert_eq!(turns(&plan, &state), state.conversation.messages);
    plan.model.images = false;
    let left_out = ContentBlock::Text { text: LEFT_OUT_IMAGE.into() };
    let expected = Message::User { content: vec![left_out, ContentBlock::Text { text: "see".into() }] };
    assert_eq!(turns(&plan, &state), [expected.into()]);
}
