//! The check of the context window before every request, prompts that the provider refuses as too long, and the
//! `after_step` hooks of every kind of turn.

use rye_compiler::hook::{HookAction, HookPoint};
use rye_compiler::plan::{FieldType, NudgePolicy, Plan};
use serde_json::json;

use super::super::fixture::{SimulatedThread, call, calls, plan, rebuild, status, text, with_hook, with_outputs};
use crate::event::{ControlMessage, EventBody, HookOutcome, Opened, ThreadOrigin};
use crate::exchange::{CallError, FailedStage, Reply, Usage};
use crate::machine::Fact;
use crate::thread::Status;

/// Returns the reply with a usage that nearly fills the window of 100,000 tokens.
fn full(reply: Result<Reply, CallError>) -> Result<Reply, CallError> {
    reply.map(|reply| Reply { usage: Usage { input: 95_000, ..reply.usage }, ..reply })
}

fn roomy() -> Plan {
    let mut plan = plan();
    plan.limits.tokens = 10_000_000;
    plan.limits.spend = 100_000_000_000;
    plan
}

fn open(play: &mut SimulatedThread, origin: ThreadOrigin) {
    let launch = Opened { origin, ..play.opened() };
    play.signal(Fact::Opened { launch: Box::new(launch), plan_id: "p".into(), continues: None });
}

#[test]
fn full_window_hands_over_before_every_kind_of_request() {
    // The next request would contain a nudge.
    let mut plan = roomy();
    plan.nudge = NudgePolicy::Always;
    rebuild(&mut plan);
    let mut play = SimulatedThread::new(plan, vec![full(text("hm")), text("never")]);
    play.run();
    assert_eq!((play.ended().status, play.requests.len()), (Status::Continued, 1), "nudge");
    // The next request would contain a steering or follow-up message after a text.
    for message in [ControlMessage::Steer { text: "x".into() }, ControlMessage::FollowUp { text: "x".into() }] {
        let mut play = SimulatedThread::new(roomy(), vec![full(text("hm")), text("never")]);
        play.start();
        play.signal(Fact::Mail { id: "m".into(), message: message.clone() });
        if matches!(message, ControlMessage::Steer { .. }) {
            // The first request contains the message; another request follows the reply.
            while play.requests.is_empty() {
                assert!(play.step());
            }
            play.signal(Fact::Mail { id: "n".into(), message: message.clone() });
        }
        while play.step() {}
        assert_eq!((play.ended().status, play.requests.len()), (Status::Continued, 1), "{message:?}");
    }
    // The next request would contain the result of a tool.
    let mut play = SimulatedThread::new(roomy(), vec![full(calls(&[call("a_read", json!({}))])), text("never")]);
    play.run();
    assert_eq!((play.ended().status, play.requests.len()), (Status::Continued, 1), "calls");
    // The next request would be the first request of a resumed conversation.
    let mut plan = roomy();
    plan.model.context_window = 10;
    let mut play = SimulatedThread::new(plan.clone(), vec![text("never")]);
    open(&mut play, ThreadOrigin::Resume);
    while play.step() {}
    assert_eq!((play.ended().status, play.requests.len()), (Status::Continued, 0), "resume");
    // In a fresh thread or a continuation, a handoff could not shorten the conversation.
    for origin in [ThreadOrigin::Run, ThreadOrigin::Child, ThreadOrigin::Handoff] {
        let mut play = SimulatedThread::new(plan.clone(), vec![text("done")]);
        open(&mut play, origin);
        while play.step() {}
        assert_eq!((play.ended().status, play.requests.len()), (Status::Completed, 1), "{origin:?}");
    }
}

#[test]
fn final_text_in_a_full_window_completes() {
    let mut play = SimulatedThread::new(roomy(), vec![full(text("done"))]);
    play.run();
    assert_eq!(play.ended().status, Status::Completed);
}

#[test]
fn cut_text_in_a_full_window_is_not_handed_over() {
    let cut = full(text("half")).map(|reply| Reply { stop: crate::exchange::StopReason::Length, ..reply });
    let mut play = SimulatedThread::new(roomy(), vec![cut, text("never")]);
    play.run();
    let ended = play.ended();
    assert_eq!((ended.status, ended.error.as_ref().unwrap().code.as_str()), (Status::Error, "output_truncated"));
    assert_eq!(ended.result.as_deref(), Some("half"));
}

/// The refusals of the providers, as status, type, code and message.
const TOO_LONG: [(u16, &str, &str, &str); 8] = [
    (400, "invalid_request_error", "context_length_exceeded", "x"),
    (413, "request_too_large", "", "Request exceeds the maximum size"),
    (413, "", "", ""),
    (400, "invalid_request_error", "", "prompt is too long: 208310 tokens > 200000 maximum"),
    (400, "invalid_request_error", "", "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
    (
        400,
        "INVALID_ARGUMENT",
        "",
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048576).",
    ),
    (
        400,
        "",
        "",
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    ),
    (400, "exceed_context_size_error", "", "the request exceeds the available context size"),
];

fn refusal((code, kind, name, message): (u16, &str, &str, &str)) -> Result<Reply, CallError> {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let error = CallError::new(FailedStage::Status, message);
    Err(CallError { status: Some(code), error_type: text(kind), code: text(name), ..error })
}

#[test]
fn prompt_that_is_too_long_is_handed_over_once() {
    for case in TOO_LONG {
        let mut play = SimulatedThread::new(roomy(), vec![refusal(case), text("never")]);
        play.run();
        assert_eq!((play.ended().status, play.requests.len()), (Status::Continued, 1), "{case:?}");
        // The provider refuses the first request of the new thread.
        let mut play = SimulatedThread::new(roomy(), vec![refusal(case), text("never")]);
        open(&mut play, ThreadOrigin::Handoff);
        while play.step() {}
        let error = play.ended().error.as_ref().unwrap();
        assert_eq!((error.code.as_str(), play.requests.len()), ("prompt_too_long", 1), "{case:?}");
        assert!(error.message.starts_with("the prompt is too long, even for a new thread"), "{}", error.message);
        // After a turn of the new thread, the conversation has grown again.
        let tool = calls(&[call("a_read", json!({}))]);
        let mut play = SimulatedThread::new(roomy(), vec![tool, refusal(case), text("never")]);
        open(&mut play, ThreadOrigin::Handoff);
        while play.step() {}
        assert_eq!((play.ended().status, play.requests.len()), (Status::Continued, 2), "{case:?}");
    }
    let mut play = SimulatedThread::new(roomy(), vec![status(400, &[]), text("never")]);
    play.run();
    assert_eq!(play.ended().error.as_ref().unwrap().code, "invalid_request");
}

#[test]
fn hooks_can_compact_a_prompt_that_is_too_long() {
    let mut plan = roomy();
    with_hook(&mut plan, HookPoint::ContextLimitReached, HookAction::Compact);
    let tool = calls(&[call("a_read", json!({}))]);
    let mut play = SimulatedThread::new(plan, vec![tool, refusal(TOO_LONG[0]), text("the summary"), text("done")]);
    play.hooks.insert(HookPoint::ContextLimitReached, [HookOutcome::Compact].into());
    play.run();
    assert_eq!((play.ended().status, play.ended().result.as_deref()), (Status::Completed, Some("done")));
    assert_eq!(play.names().iter().filter(|name| **name == "compacted").count(), 1);
}

fn after_steps(play: &SimulatedThread) -> usize {
    let is_step = |body: &EventBody| matches!(body, EventBody::HookPoint(run) if run.point == HookPoint::AfterStep);
    play.events.iter().filter(|event| is_step(&event.body)).count()
}

#[test]
fn after_step_runs_after_every_turn() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::AfterStep, HookAction::Continue);
    let tool = || calls(&[call("a_read", json!({}))]);
    let mut play = SimulatedThread::new(plan.clone(), vec![tool(), text("done")]);
    play.run();
    assert_eq!((play.ended().status, after_steps(&play)), (Status::Completed, 2), "a call and a text");
    let mut play = SimulatedThread::new(plan.clone(), vec![text("one"), text("two")]);
    play.start();
    play.signal(Fact::Mail { id: "m".into(), message: ControlMessage::FollowUp { text: "and?".into() } });
    while play.step() {}
    assert_eq!((play.ended().result.as_deref(), after_steps(&play)), (Some("two"), 2), "a text with a follow-up");
    with_outputs(&mut plan, &[("a", FieldType::String, true)]);
    let back = || calls(&[call("rye_directive_return", json!({"a": "x"}))]);
    for answer in [HookOutcome::None, HookOutcome::Continue, HookOutcome::Retry { delay_ms: 0 }] {
        let mut play = SimulatedThread::new(plan.clone(), vec![back()]);
        play.hooks.insert(HookPoint::AfterStep, [answer].into());
        play.run();
        assert_eq!((play.ended().status, after_steps(&play), play.requests.len()), (Status::Completed, 1, 1));
    }
    let mut play = SimulatedThread::new(plan, vec![back()]);
    let stop = HookOutcome::Terminate { status: None, error: Some("no".into()), ends_session: false };
    play.hooks.insert(HookPoint::AfterStep, [stop].into());
    play.run();
    assert_eq!(play.ended().error.as_ref().unwrap().message, "no");
}
