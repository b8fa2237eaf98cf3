//! Tests of the stop reasons of each wire format: every documented reason, reasons that compatible servers send, and an
//! unknown reason. The table in `docs/reference/providers.md` lists the reasons.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::exchange::{FailedStage, StopReason};
use crate::provider::fixture::replay;
use crate::provider::wire::ReplyDecoder;
use crate::provider::{anthropic, gemini, openai_chat, openai_responses};

/// Replaces `from` by `to` in a recorded stream, and returns the stop reason of the decoded reply.
fn stop<D: ReplyDecoder + Default>(stream: &str, from: &str, to: &str) -> StopReason {
    assert_eq!(stream.matches(from).count(), 1, "{from}");
    let stream = stream.replace(from, to);
    replay(&[stream.as_bytes()], D::default()).1.unwrap().stop
}

fn other(name: &str) -> StopReason {
    StopReason::Other(name.to_owned())
}

#[test]
fn every_anthropic_stop_reason_is_mapped() {
    let stream = include_str!("../../../fixtures/streams/anthropic-text.sse");
    for (reason, wanted) in [
        ("end_turn", StopReason::EndTurn),
        ("stop_sequence", StopReason::EndTurn),
        ("tool_use", StopReason::ToolUse),
        ("max_tokens", StopReason::Length),
        ("pause_turn", StopReason::Length),
        ("model_context_window_exceeded", StopReason::ContextWindow),
        ("refusal", StopReason::Refusal),
        ("brand_new", other("brand_new")),
    ] {
        let to = format!("\"stop_reason\":\"{reason}\"");
        let found = stop::<anthropic::AnthropicDecoder>(stream, "\"stop_reason\":\"end_turn\"", &to);
        assert_eq!(found, wanted, "{reason}");
    }
}

#[test]
fn every_chat_finish_reason_is_mapped() {
    let stream = include_str!("../../../fixtures/streams/openai-text.sse");
    for (reason, wanted) in [
        ("stop", StopReason::EndTurn),
        ("stop_sequence", StopReason::EndTurn),
        ("eos", StopReason::EndTurn),
        ("eos_token", StopReason::EndTurn),
        ("end_turn", StopReason::EndTurn),
        ("end", StopReason::EndTurn),
        ("complete", StopReason::EndTurn),
        ("completed", StopReason::EndTurn),
        ("tool_calls", StopReason::ToolUse),
        ("function_call", StopReason::ToolUse),
        ("tool_use", StopReason::ToolUse),
        ("length", StopReason::Length),
        ("max_tokens", StopReason::Length),
        ("max_output_tokens", StopReason::Length),
        ("model_length", StopReason::ContextWindow),
        ("context_length_exceeded", StopReason::ContextWindow),
        ("model_context_window_exceeded", StopReason::ContextWindow),
        ("content_filter", StopReason::Refusal),
        ("safety", StopReason::Refusal),
        ("refusal", StopReason::Refusal),
        ("recitation", StopReason::Refusal),
        ("insufficient_system_resource", other("insufficient_system_resource")),
        ("", other("")),
    ] {
        let to = format!("\"finish_reason\":\"{reason}\"");
        let found = stop::<openai_chat::ChatDecoder>(stream, "\"finish_reason\":\"stop\"", &to);
        assert_eq!(found, wanted, "{reason}");
    }
}

#[test]
fn every_responses_status_is_mapped() {
    let stream = include_str!("../../../fixtures/streams/responses-text.sse");
    let from = "\"status\":\"completed\",\"output\":";
    assert_eq!(stop::<openai_responses::ResponsesDecoder>(stream, from, from), StopReason::EndTurn);
    for (reason, wanted) in [
        ("max_output_tokens", StopReason::Length),
        ("content_filter", StopReason::Refusal),
        ("brand_new", other("brand_new")),
    ] {
        let details = format!("\"incomplete_details\":{{\"reason\":\"{reason}\"}}");
        let to = format!("\"status\":\"incomplete\",{details},\"output\":");
        assert_eq!(stop::<openai_responses::ResponsesDecoder>(stream, from, &to), wanted, "{reason}");
    }
}

#[test]
fn every_gemini_finish_reason_is_mapped() {
    let stream = include_str!("../../../fixtures/streams/gemini-text.sse");
    let from = "\"finishReason\":\"STOP\"";
    let refused = [
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    ];
    let cases = [
        ("STOP", StopReason::EndTurn),
        ("FUNCTION_CALL", StopReason::EndTurn),
        ("MAX_TOKENS", StopReason::Length),
        ("OTHER", other("other")),
    ];
    let refused = refused.map(|reason| (reason, StopReason::Refusal));
    for (reason, wanted) in cases.into_iter().chain(refused).chain([("BRAND_NEW", other("brand_new"))]) {
        let to = format!("\"finishReason\":\"{reason}\"");
        assert_eq!(stop::<gemini::GeminiDecoder>(stream, from, &to), wanted, "{reason}");
    }
    for reason in ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"] {
        let stream = stream.replace(from, &format!("\"finishReason\":\"{reason}\""));
        let failed = replay(&[stream.as_bytes()], gemini::GeminiDecoder::default()).1.unwrap_err();
        assert_eq!(failed.stage, FailedStage::StreamError, "{reason}");
    }
}
