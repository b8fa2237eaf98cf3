//! Hooks that refuse a prompt before the first model call, or the final answer.

use rye_compiler::hook::{HookAction, HookPoint};
use serde_json::json;

use super::super::fixture::{SimulatedThread, call, calls, plan, text, with_hook};
use super::chat::{chat_of, statuses, user_texts};
use crate::event::{ControlMessage, HookOutcome, PromptStatus};
use crate::machine::Fact;
use crate::message::{Message, text_of};
use crate::thread::Status;

fn hooked(
    point: HookPoint,
    replies: Vec<Result<crate::exchange::Reply, crate::exchange::CallError>>,
) -> SimulatedThread {
    let mut plan = plan();
    with_hook(&mut plan, point, HookAction::Continue);
    SimulatedThread::new(plan, replies)
}

fn refused(reason: &str) -> HookOutcome {
    HookOutcome::Block { reason: reason.into() }
}

#[test]
fn refused_answer_is_explained_to_the_model_and_replaced() {
    let mut play = hooked(HookPoint::AgentEnd, vec![text("the key is 7"), text("no key here")]);
    play.hooks.insert(HookPoint::AgentEnd, [refused("it names the key")].into());
    play.run();
    assert_eq!((play.ended().status, play.ended().result.as_deref()), (Status::Completed, Some("no key here")));
    let Some(Message::User { content }) = play.requests[1].turns.last().map(|turn| &**turn) else {
        panic!("a user turn")
    };
    assert_eq!(text_of(content), "The answer was not accepted: it names the key");
}

#[test]
fn answers_that_are_always_refused_end_at_a_limit_without_a_result() {
    for last in [text("still 7"), calls(&[call("a_read", json!({}))])] {
        let mut play = hooked(HookPoint::AgentEnd, vec![text("7"), text("7!"), last]);
        play.plan.limits.turns = 3;
        play.hooks.insert(HookPoint::AgentEnd, vec![refused("no"); 8].into());
        play.run();
        let ended = play.ended();
        assert_eq!((ended.status, ended.cost.turns, &ended.result), (Status::Error, 3, &None));
        assert_eq!(ended.error.as_ref().unwrap().code, "turns_exceeded");
    }
}

#[test]
fn refused_answers_of_a_prompt_end_at_its_limit_and_the_session_continues() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::AgentEnd, HookAction::Continue);
    plan.limits.turns = 2;
    let mut play = chat_of(plan, vec![text("7"), text("7!"), text("8"), text("no key")], &["a", "b"]);
    let answers = vec![refused("no"), refused("no"), refused("not this"), HookOutcome::None];
    play.hooks.insert(HookPoint::AgentEnd, answers.into());
    play.run();
    // Each refusal leads through the limits to the next turn of the same prompt.
    assert_eq!(statuses(&play), [(PromptStatus::Limit, Some("turns_exceeded")), (PromptStatus::Done, None)]);
    let last = |request: usize| user_texts(&play, request).pop().unwrap();
    assert_eq!([last(1), last(3)], ["The answer was not accepted: no", "The answer was not accepted: not this"]);
    assert_eq!((play.requests.len(), play.ended().status), (4, Status::Idle));
}

#[test]
fn terminated_answer_is_no_result_unless_the_end_is_completed() {
    for (status, result) in [(None, None), (Some(Status::Cancelled), None), (Some(Status::Completed), Some("7"))] {
        let mut play = hooked(HookPoint::AgentEnd, vec![text("7")]);
        let stop = HookOutcome::Terminate { status, error: Some("leaks".into()), ends_session: false };
        play.hooks.insert(HookPoint::AgentEnd, [stop].into());
        play.run();
        assert_eq!(play.ended().status, status.unwrap_or(Status::Error));
        assert_eq!(play.ended().result.as_deref(), result);
        assert_eq!(play.requests.len(), 1);
    }
}

#[test]
fn thread_that_a_hook_suspended_continues_after_a_resume() {
    for (point, requests) in [(HookPoint::BeforeAgentStart, 0), (HookPoint::AgentEnd, 1)] {
        let mut play = hooked(point, vec![text("one"), text("two")]);
        let suspend = HookOutcome::Terminate { status: Some(Status::Suspended), error: None, ends_session: false };
        play.hooks.insert(point, [suspend].into());
        play.run();
        assert_eq!((play.ended().status, play.requests.len()), (Status::Suspended, requests), "{point:?}");
        play.signal(Fact::Recovered { owner: "o".into(), cut_bytes: 0 });
        play.run();
        assert_eq!((play.ended().status, play.requests.len()), (Status::Completed, 1), "{point:?}");
    }
}

#[test]
fn terminated_prompt_makes_no_model_call() {
    let mut play = hooked(HookPoint::BeforeAgentStart, vec![text("never")]);
    let stop = HookOutcome::Terminate { status: None, error: Some("off topic".into()), ends_session: false };
    play.hooks.insert(HookPoint::BeforeAgentStart, [stop].into());
    play.run();
    let error = play.ended().error.as_ref().unwrap();
    assert_eq!((play.ended().status, error.message.as_str()), (Status::Error, "off topic"));
    assert_eq!((play.requests.len(), play.reservations.len(), play.ended().cost.turns), (0, 0, 0));
}

#[test]
fn prompt_hooks_run_once_and_their_system_prompt_stays_for_follow_ups() {
    let mut play = hooked(HookPoint::BeforeAgentStart, vec![text("one"), text("two")]);
    let added = Message::Custom { custom_type: "note".into(), content: "mind the gap".into(), display: true };
    let prepared = HookOutcome::Prepared { messages: vec![added], system: Some("Be curt.".into()) };
    play.hooks.insert(HookPoint::BeforeAgentStart, [prepared, HookOutcome::None].into());
    play.messages.push((2, ControlMessage::FollowUp { text: "and now".into() }));
    play.run();
    assert_eq!(play.hooks[&HookPoint::BeforeAgentStart].len(), 1);
    assert!(play.requests.len() == 2 && play.requests.iter().all(|request| &*request.system == "Be curt."));
    let sent = serde_json::to_string(&play.requests[0].turns).unwrap();
    assert!(sent.contains("mind the gap"), "{sent}");
}
