//! Limits, retries and fallback models in runs of the machine.

use rye_compiler::hook::{HookAction, HookPoint};
use rye_compiler::plan::Prices;
use serde_json::json;

use super::super::fixture::{SimulatedThread, call, calls, plan, status, text, with_hook};
use super::chat::chat_of;
use crate::event::{Event, EventBody, HookOutcome};
use crate::machine::{Effect, next, raised_limit};
use crate::thread::Status;

#[test]
fn limits_stop_with_the_partial_result() {
    let mut plan = plan();
    plan.limits.turns = 2;
    let again = || calls(&[call("a_read", json!({}))]);
    let mut play = SimulatedThread::new(plan, vec![again(), again(), again()]);
    play.run();
    let ended = play.ended();
    assert_eq!((ended.status, ended.cost.turns), (Status::Error, 2));
    assert_eq!(ended.error.as_ref().unwrap().code, "turns_exceeded");
    assert_eq!(play.names().iter().filter(|n| **n == "limit").count(), 1);
}

#[test]
fn attempt_requests_affordable_output_above_the_minimum() {
    let mut some = plan();
    let input = some.bound_first_request("You are you.", "Here.\n\nSay hello.");
    let most = some.model.worst_case(input, 1_500).to_u64();
    some.limits.spend = most;
    let mut play = SimulatedThread::new(some.clone(), vec![text("hi")]);
    play.run();
    let asked = play.requests[0].max_output;
    assert!((1024..2000).contains(&asked), "{asked}");
    assert!(play.reservations[0].0 <= most);
    some.limits.spend = 1_000_000;
    let mut none = SimulatedThread::new(some, vec![text("hi")]);
    none.run();
    assert_eq!(none.ended().error.as_ref().unwrap().code, "spend_exceeded");
    assert!(none.requests.is_empty());
}

#[test]
fn raised_limit_lets_the_run_continue() {
    let mut plan = plan();
    plan.limits.turns = 1;
    with_hook(&mut plan, HookPoint::Limit, HookAction::Raise { limit: "turns".into(), value: json!(2) });
    let mut play = SimulatedThread::new(plan, vec![calls(&[call("a_read", json!({}))]), text("done")]);
    let raise = HookOutcome::Raise { limit: "turns".into(), value: 2 };
    play.hooks.insert(HookPoint::Limit, [raise.clone(), raise].into());
    play.run();
    assert_eq!((play.ended().status, play.ended().cost.turns), (Status::Completed, 2));
}

#[test]
fn proposed_raise_is_the_limit_that_is_set() {
    let mut plan = plan();
    plan.limits.turns = 2;
    with_hook(&mut plan, HookPoint::Limit, HookAction::Escalate);
    let again = || calls(&[call("a_read", json!({}))]);
    let mut play = chat_of(plan, vec![text("one"), again(), again()], &["first", "second"]);
    play.plan.session_limits.as_mut().unwrap().turns = 4;
    play.hooks.insert(HookPoint::Limit, [HookOutcome::Escalate].into());
    play.start();
    let raise = loop {
        match next(&play.plan, &play.state) {
            Effect::Ask { raise, .. } => break raise.unwrap(),
            _ => assert!(play.step()),
        }
    };
    // Twice the limit would be 4, but the first prompt has used a turn of the session.
    assert_eq!((raise.limit.as_str(), raise.value), ("turns", 3));
    assert_eq!(raised_limit(&play.state, &raise.limit, raise.value), Some(4));
}

#[test]
fn handoff_at_a_limit_that_is_used_up_ends_the_thread() {
    let mut plan = plan();
    plan.limits.turns = 1;
    with_hook(&mut plan, HookPoint::Limit, HookAction::Handoff);
    let mut play = SimulatedThread::new(plan, vec![calls(&[call("a_read", json!({}))]), text("done")]);
    play.hooks.insert(HookPoint::Limit, [HookOutcome::Handoff].into());
    play.run();
    let ended = play.ended();
    assert_eq!((ended.status, ended.error.as_ref().unwrap().code.as_str()), (Status::Error, "turns_exceeded"));
}

#[test]
fn handoff_continues_if_money_for_a_shorter_prompt_is_left() {
    let run = |turns: usize| {
        let mut plan = plan();
        with_hook(&mut plan, HookPoint::Limit, HookAction::Handoff);
        let input = plan.bound_first_request("You are you.", "Here.\n\nSay hello.");
        let first = plan.model.worst_case(input, 1_100).to_u64();
        plan.limits.spend = if turns == 0 { 1_000_000 } else { first };
        let long = calls(&[call("a_read", json!({"path": "x".repeat(4_000)}))]);
        let mut play = SimulatedThread::new(plan, vec![long, text("done")]);
        play.hooks.insert(HookPoint::Limit, [HookOutcome::Handoff].into());
        play.run();
        (play.ended().status, play.ended().cost.turns)
    };
    assert_eq!(run(0), (Status::Error, 0), "a thread without a turn has nothing to shorten");
    assert_eq!(run(1), (Status::Continued, 1));
}

#[test]
fn hooks_of_the_spend_limit_know_whether_a_handoff_helps() {
    let can_hand_off = |spend: u64, limit: u64| {
        let mut plan = plan();
        with_hook(&mut plan, HookPoint::Limit, HookAction::Handoff);
        let input = plan.bound_first_request("You are you.", "Here.\n\nSay hello.");
        let first = plan.model.worst_case(input, 1_100).to_u64();
        plan.limits.spend = if limit == 0 { first } else { limit };
        let long = calls(&[call("a_read", json!({"path": "x".repeat(4_000)}))]);
        let mut play = SimulatedThread::new(plan, vec![long, text("done")]);
        play.start();
        loop {
            match next(&play.plan, &play.state) {
                Effect::RunHooks(run) if run.point == HookPoint::Limit => break run.can_hand_off,
                // Simulates other calls that spend the rest of the money.
                _ if play.state.cost.turns == 1 => play.state.cost.spend = play.state.cost.spend.max(spend),
                _ => {}
            }
            assert!(play.step());
        }
    };
    assert!(can_hand_off(0, 0));
    assert!(!can_hand_off(u64::MAX / 4, 0), "no money is left");
    assert!(!can_hand_off(0, 1_000_000), "a thread without a turn has nothing to shorten");
}

#[test]
fn only_retryable_failures_are_retried() {
    let mut play =
        SimulatedThread::new(plan(), vec![status(429, &[("retry-after", "2")]), status(529, &[]), text("done")]);
    play.run();
    assert_eq!(play.ended().status, Status::Completed);
    assert_eq!(play.requests.len(), 3);
    assert_eq!(play.requests.iter().map(|r| r.cue.attempt).collect::<Vec<_>>(), [0, 1, 2]);
    assert!((1_900..=2_000).contains(&play.sleeps[0]), "{:?}", play.sleeps);
    let mut denied = SimulatedThread::new(plan(), vec![status(401, &[]), text("never")]);
    denied.run();
    assert_eq!((denied.ended().status, denied.requests.len()), (Status::Error, 1));
    let mut exhausted = SimulatedThread::new(plan(), (0..6).map(|_| status(503, &[])).collect());
    exhausted.run();
    assert_eq!((exhausted.ended().status, exhausted.requests.len()), (Status::Error, 4));
}

#[test]
fn fallback_model_answers_if_the_model_is_unavailable() {
    let mut plan = plan();
    let mut other = plan.model.clone();
    // The fallback model costs twice the price of the model.
    other.id = "other".into();
    other.prices = Some(Prices { input: 2_000_000_000, output: 4_000_000_000, ..other.prices.unwrap() });
    plan.model.fallback = Some(Box::new(other));
    with_hook(&mut plan, HookPoint::Error, HookAction::Terminate { status: None, error: None, scope: None });
    let models = |play: &SimulatedThread| play.requests.iter().map(|r| r.model.clone()).collect::<Vec<_>>();
    let took_over = |play: &SimulatedThread| {
        let of = |e: &Event| if let EventBody::AttemptFailed(f) = &e.body { f.fallback.clone() } else { None };
        play.events.iter().filter_map(of).collect::<Vec<_>>()
    };
    // The model has used its attempts. The fallback model has its own attempts, and later turns use it too.
    let mut replies: Vec<_> = (0..4).map(|_| status(529, &[])).collect();
    replies.extend([status(503, &[]), calls(&[call("a_read", json!({}))]), text("done")]);
    let mut play = SimulatedThread::new(plan.clone(), replies);
    play.run();
    assert_eq!(play.ended().status, Status::Completed);
    assert_eq!(models(&play), ["m", "m", "m", "m", "other", "other", "other"]);
    assert_eq!(took_over(&play), ["scripted/other"]);
    assert_eq!(play.requests.iter().map(|r| r.cue.attempt).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 0]);
    assert_eq!(play.ended().cost.spend, 2 * 2 * 120_000, "two turns at the price of the other");
    assert!(!play.names().contains(&"hook_point"), "nothing has failed for good");
    // These codes mean that the model was removed or that access to it is denied.
    for code in [401, 402, 404, 410] {
        let mut play = SimulatedThread::new(plan.clone(), vec![status(code, &[]), text("done")]);
        play.run();
        assert_eq!((play.ended().status, models(&play).len()), (Status::Completed, 2), "{code}");
    }
    // If the request is invalid (400), another model cannot help. If the fallback model is unavailable too (404 twice),
    // the thread ends.
    for replies in [vec![status(400, &[])], vec![status(404, &[]), status(404, &[])]] {
        let (all, mut play) = (replies.len(), SimulatedThread::new(plan.clone(), replies));
        play.run();
        assert_eq!((play.ended().status, models(&play).len()), (Status::Error, all));
    }
}

#[test]
fn hook_retries_are_bounded_by_the_retry_table() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::Error, HookAction::Retry { delay_ms: None });
    let forever = |code: u16| (0..100).map(|_| status(code, &[])).collect::<Vec<_>>();
    let retry = || std::iter::repeat_n(HookOutcome::Retry { delay_ms: 0 }, 100).collect();
    for (code, asked) in [(503, 4 + 3), (401, 1 + 3)] {
        let mut play = SimulatedThread::new(plan.clone(), forever(code));
        play.hooks.insert(HookPoint::Error, retry());
        play.run();
        assert_eq!((play.ended().status, play.requests.len()), (Status::Error, asked), "{code}");
        let last = play.events.iter().rev().find_map(|e| match &e.body {
            EventBody::HookPoint(run) => Some(run.answer.clone()),
            _ => None,
        });
        assert_eq!(last, Some(HookOutcome::None), "the record says that the last retry was not made");
    }
    // A successful turn resets the count of attempts for the next turn.
    let replies = [vec![status(401, &[]), calls(&[call("a_read", json!({}))])], vec![status(401, &[]), text("done")]];
    let mut play = SimulatedThread::new(plan, replies.concat());
    play.hooks.insert(HookPoint::Error, retry());
    play.run();
    assert_eq!((play.ended().status, play.requests.len()), (Status::Completed, 4));
}

#[test]
fn a_limit_wins_over_a_full_context() {
    let full = || {
        let Ok(mut reply) = calls(&[call("a_read", json!({}))]) else { panic!("a reply") };
        reply.usage.input = 99_000;
        Ok(reply)
    };
    let mut play = SimulatedThread::new(plan(), vec![full()]);
    play.run();
    assert_eq!(play.ended().status, Status::Continued);
    let mut plan = plan();
    plan.limits.spend = 50_000_000;
    let mut play = SimulatedThread::new(plan, vec![full()]);
    play.run();
    let ended = play.ended();
    let error = ended.error.as_ref().unwrap();
    assert_eq!((ended.status, error.code.as_str()), (Status::Error, "spend_exceeded"));
    assert_eq!(error.message, "spend_exceeded: $0.09902 of $0.05");
}
