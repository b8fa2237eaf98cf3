//! Incomplete final replies: stop reasons, continuation of cut texts, empty replies, missing outputs.

use rye_compiler::hook::{HookAction, HookPoint};
use rye_compiler::plan::FieldType;
use serde_json::json;

use super::super::fixture::{SimulatedThread, call, calls, plan, reply, text, with_hook, with_outputs};
use crate::event::{ControlMessage, HookOutcome};
use crate::exchange::{CallError, Reply, StopReason};
use crate::machine::signal::{CallAnswer, ToolFinished};
use crate::machine::{Effect, Fact, next};
use crate::message::{ContentBlock, ToolCall};
use crate::thread::Status;

fn stopped(reply_text: &str, stop: StopReason) -> Result<Reply, CallError> {
    text(reply_text).map(|reply| Reply { stop, ..reply })
}

fn cut(reply_text: &str) -> Result<Reply, CallError> {
    stopped(reply_text, StopReason::Length)
}

fn code(play: &SimulatedThread) -> &str {
    play.ended().error.as_ref().map_or("", |error| error.code.as_str())
}

#[test]
fn cut_text_is_continued_and_joined() {
    let mut play = SimulatedThread::new(plan(), vec![cut("one, t"), cut("wo, th"), text("ree")]);
    play.run();
    assert_eq!((play.ended().status, play.ended().result.as_deref()), (Status::Completed, Some("one, two, three")));
    assert_eq!(play.ended().stop_reason, Some(StopReason::EndTurn));
    assert_eq!(play.requests.len(), 3);
    let asked = serde_json::to_string(&play.requests[1].turns.last()).unwrap();
    assert!(asked.contains("Continue exactly where it stopped"), "{asked}");
}

#[test]
fn retry_after_a_text_turn_repeats_its_request_without_the_reply() {
    let retry_once = |replies| {
        let mut plan = plan();
        with_hook(&mut plan, HookPoint::AfterStep, HookAction::Retry { delay_ms: None });
        let mut play = SimulatedThread::new(plan, replies);
        play.hooks.insert(HookPoint::AfterStep, [HookOutcome::Retry { delay_ms: 0 }].into());
        play.run();
        play
    };
    let play = retry_once(vec![text("too short"), text("a longer answer")]);
    assert_eq!(play.requests[1].turns, play.requests[0].turns);
    assert_eq!((play.ended().result.as_deref(), play.ended().cost.turns), (Some("a longer answer"), 2));
    // The calls of a reply have had their effects, so the reply and the results stay.
    let play = retry_once(vec![calls(&[call("a_read", json!({}))]), text("done")]);
    assert_eq!(play.requests[1].turns.len(), play.requests[0].turns.len() + 2);
}

#[test]
fn text_that_stays_cut_is_an_error_with_the_partial_text() {
    let mut play = SimulatedThread::new(plan(), (0..9).map(|_| cut("a")).collect());
    play.run();
    assert_eq!((play.ended().status, code(&play)), (Status::Error, "output_truncated"));
    assert_eq!((play.requests.len(), play.ended().result.as_deref()), (5, Some("aaaaa")));
    assert_eq!(play.ended().stop_reason, Some(StopReason::Length));
    // If the limit allows no further turn, the thread does not request the rest of the reply.
    let mut plan = plan();
    plan.limits.turns = 1;
    let mut play = SimulatedThread::new(plan, vec![cut("a")]);
    play.run();
    assert_eq!((code(&play), play.requests.len()), ("output_truncated", 1));
}

#[test]
fn user_message_after_a_cut_text_starts_a_new_answer() {
    let mut play = SimulatedThread::new(plan(), vec![cut("half an"), text("The other answer.")]);
    play.start();
    while play.requests.is_empty() {
        assert!(play.step());
    }
    let steer = ControlMessage::Steer { text: "something else".into() };
    play.signal(Fact::Mail { id: "m".into(), message: steer });
    while play.step() {}
    assert_eq!(play.ended().result.as_deref(), Some("The other answer."));
}

#[test]
fn text_before_tool_calls_is_not_joined() {
    let mut play =
        SimulatedThread::new(plan(), vec![cut("I will"), calls(&[call("a_read", json!({}))]), text("The answer.")]);
    play.run();
    assert_eq!(play.ended().result.as_deref(), Some("The answer."));
}

#[test]
fn stop_reason_without_a_whole_answer_is_never_a_success() {
    let thoughts = || reply(vec![ContentBlock::Thinking { text: "hm".into(), signature: None }]);
    let other = |name: &str| StopReason::Other(name.into());
    let cases: Vec<(Result<Reply, CallError>, &str, &str)> = vec![
        (stopped("half", StopReason::ContextWindow), "output_truncated", "context_window"),
        (stopped("half", other("other")), "unknown_stop_reason", "other"),
        (stopped("half", other("brand_new")), "unknown_stop_reason", "brand_new"),
        (stopped("no", StopReason::Refusal), "refused", "refusal"),
        (stopped("I call nothing.", StopReason::ToolUse), "missing_call", "tool_use"),
        (reply(Vec::new()).map(|reply| Reply { stop: StopReason::ToolUse, ..reply }), "missing_call", "tool_use"),
        (reply(Vec::new()), "empty_reply", "end_turn"),
        (text("  \n"), "empty_reply", "end_turn"),
        (thoughts(), "empty_reply", "end_turn"),
        (thoughts().map(|reply| Reply { stop: StopReason::Length, ..reply }), "output_truncated", "length"),
    ];
    for (reply, wanted, stop) in cases {
        let mut play = SimulatedThread::new(plan(), vec![reply.clone(), reply]);
        play.run();
        assert_eq!((play.ended().status, code(&play)), (Status::Error, wanted));
        assert_eq!(play.ended().stop_reason.as_ref().map(StopReason::as_str), Some(stop), "{wanted}");
        assert!(wanted == "refused" || play.ended().error.as_ref().unwrap().message.contains(stop), "{wanted}");
    }
}

#[test]
fn empty_reply_is_requested_once_more() {
    let mut play = SimulatedThread::new(plan(), vec![reply(Vec::new()), text("here")]);
    play.run();
    assert_eq!((play.ended().status, play.ended().result.as_deref()), (Status::Completed, Some("here")));
}

#[test]
fn announced_call_is_requested_once_more() {
    let announced = || stopped("I call a tool.", StopReason::ToolUse);
    let mut play = SimulatedThread::new(plan(), vec![announced(), calls(&[call("a_read", json!({}))]), text("done")]);
    play.run();
    assert_eq!((play.ended().status, play.dispatched.len()), (Status::Completed, 1));
    assert_eq!(play.ended().result.as_deref(), Some("done"));
}

#[test]
fn calls_of_a_reply_with_an_unknown_stop_reason_run() {
    let called = calls(&[call("a_read", json!({}))]);
    let called = called.map(|reply| Reply { stop: StopReason::Other("x".into()), ..reply });
    let mut play = SimulatedThread::new(plan(), vec![called, text("done")]);
    play.run();
    assert_eq!((play.ended().status, play.dispatched.len()), (Status::Completed, 1));
}

#[test]
fn missing_outputs_keep_what_was_returned() {
    let run = |allow: bool| {
        let mut plan = plan();
        with_outputs(&mut plan, &[("a", FieldType::String, true), ("b", FieldType::Integer, true)]);
        let half = calls(&[call("rye_directive_return", json!({"a": "x", "b": "no number"}))]);
        let mut play = SimulatedThread::new(plan, vec![half, text("I give up.")]);
        let launch = crate::event::Opened { allow_missing_outputs: allow, ..play.opened() };
        play.signal(Fact::Opened { launch: Box::new(launch), plan_id: "p".into(), continues: None });
        while play.step() {}
        let ended = play.ended();
        assert_eq!(serde_json::to_value(&ended.outputs).unwrap(), json!({"a": "x"}));
        assert_eq!(
            (ended.missing.as_slice(), ended.result.as_deref()),
            (["b".to_owned()].as_slice(), Some("I give up."))
        );
        (ended.status, code(&play).to_owned())
    };
    assert_eq!(run(false), (Status::Error, "missing_outputs".to_owned()));
    assert_eq!(run(true), (Status::Completed, String::new()));
}

#[test]
fn result_next_to_outputs_is_the_text_of_the_returning_reply() {
    let remark = |remark_text: &str, name: &str, input: serde_json::Value| {
        let called = calls(&[call(name, input)]).unwrap();
        let content = [vec![ContentBlock::Text { text: remark_text.into() }], called.content].concat();
        reply(content)
    };
    for remark_text in ["", "Done."] {
        let mut plan = plan();
        with_outputs(&mut plan, &[("a", FieldType::String, true)]);
        let first = remark("I will look first.", "a_read", json!({}));
        let last = remark(remark_text, "rye_directive_return", json!({"a": "x"}));
        let mut play = SimulatedThread::new(plan, vec![first, last]);
        play.run();
        assert_eq!(play.ended().status, Status::Completed);
        assert_eq!(play.ended().result.as_deref(), Some(remark_text).filter(|remark_text| !remark_text.is_empty()));
    }
}

#[test]
fn repeated_result_of_512_bytes_refers_to_the_first_result() {
    let read = |id: &str| {
        let call = ToolCall { id: id.into(), name: "a_read".into(), input: json!({}) };
        reply(vec![ContentBlock::ToolCall(call)])
    };
    let mut play = SimulatedThread::new(plan(), vec![read("first"), read("second"), read("third"), text("done")]);
    play.start();
    let outputs = ["x".repeat(512), "x".repeat(512), "x".repeat(511)];
    for output in &outputs {
        while !matches!(next(&play.plan, &play.state), Effect::RunTools(_)) {
            assert!(play.step());
        }
        let answer = CallAnswer::text(output.clone(), false);
        play.signal(Fact::ToolFinished(Box::new(ToolFinished { index: 0, answer, duration_ms: 1 })));
    }
    while play.step() {}
    let contents: Vec<String> = play.results().into_iter().map(|(_, content)| content).collect();
    let reference = "the same as the result of a_read above (call first)".to_owned();
    assert_eq!(contents, [outputs[0].clone(), reference, outputs[2].clone()]);
}
