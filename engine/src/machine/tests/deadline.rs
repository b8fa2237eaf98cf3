//! The duration limit in runs of the machine: waits that do not fit, cut calls, and waits for an approval.

use rye_compiler::hook::{HookAction, HookPoint};
use serde_json::{Value, json};

use super::super::fixture::{SimulatedThread, call, calls, plan, set_setting, status, text, with_hook};
use crate::event::{Approval, EventBody, HookOutcome, ResultKind};
use crate::exchange::{CallError, CutStream, Reply};
use crate::machine::signal::CallAnswer;
use crate::machine::state::OwnedTime;
use crate::machine::{Effect, Fact, HookChild, next};
use crate::thread::{Cost, Status};

const OVER: &str = "duration_seconds_exceeded";

fn code(play: &SimulatedThread) -> &str {
    play.ended().error.as_ref().map_or("", |error| error.code.as_str())
}

/// A thread with a duration limit of ten seconds.
fn short(replies: Vec<Result<Reply, CallError>>) -> SimulatedThread {
    let mut plan = plan();
    plan.limits.duration_seconds = 10;
    plan.limits.spawns = 5;
    SimulatedThread::new(plan, replies)
}

#[test]
fn retry_after_beyond_the_deadline_ends_the_thread_at_once() {
    for (header, value) in [
        ("retry-after", "10"),
        ("retry-after", "86400"),
        ("retry-after", "99999999999999999999"),
        ("retry-after-ms", "9990.5"),
    ] {
        let mut play = short(vec![status(429, &[(header, value)]), text("never")]);
        let began = play.now;
        play.run();
        assert_eq!((play.ended().status, code(&play)), (Status::Error, OVER), "{header}: {value}");
        assert_eq!((play.requests.len(), play.sleeps.len()), (1, 0), "{header}: {value}");
        assert!(play.now - began < 1_000);
        let failed = play.events.iter().find_map(|event| match &event.body {
            EventBody::AttemptFailed(failed) => Some(failed.retry_delay_ms),
            _ => None,
        });
        assert_eq!(failed, Some(None), "no retry is announced");
        let message = play.ended().error.as_ref().unwrap().message.clone();
        let expected = "duration_seconds_exceeded: 1 of 10, and the next wait is longer than the remaining time";
        assert!(message.starts_with(expected), "the wait that was not made does not count: {message}");
        // The message names the error of the provider, and the wait that the provider asked for.
        assert!(message.contains("; the last attempt failed: rate_limited: "), "{message}");
        assert!(message.ends_with(&format!(" ({header}: {value})")), "{message}");
    }
    let mut play = short(vec![status(429, &[("retry-after", "9")]), text("done")]);
    assert_eq!(play.run().ended().status, Status::Completed);
    assert_eq!(play.sleeps.len(), 1);
}

#[test]
fn computed_backoff_beyond_the_deadline_ends_the_thread_at_once() {
    // The waits of up to 1, 2 and 4 seconds do not all fit into the duration limit.
    let mut play = short(vec![status(529, &[]), status(529, &[]), status(529, &[]), text("never")]);
    play.plan.limits.duration_seconds = 1;
    play.run();
    assert_eq!((play.ended().status, code(&play)), (Status::Error, OVER));
    assert!(play.sleeps.len() < 3 && play.sleeps.iter().sum::<i64>() < 1_000, "{:?}", play.sleeps);
}

#[test]
fn retry_of_a_hook_beyond_the_deadline_is_not_slept() {
    let mut play = short(vec![status(400, &[]), text("never")]);
    with_hook(&mut play.plan, HookPoint::Error, HookAction::Retry { delay_ms: None });
    play.hooks.insert(HookPoint::Error, [HookOutcome::Retry { delay_ms: 10_000 }].into());
    play.run();
    assert_eq!((code(&play), play.requests.len(), play.sleeps.len()), (OVER, 1, 0));
}

#[test]
fn call_cut_at_the_deadline_costs_its_worst_case_and_no_other_model_is_asked() {
    let mut play = short(vec![Err(CallError::cut_at_deadline(40, None)), text("never")]);
    play.plan.model.fallback = Some(Box::new(play.plan.model.clone()));
    play.run();
    assert_eq!((code(&play), play.requests.len()), (OVER, 1));
    assert_eq!(play.ended().cost.spend, play.reservations[0].0, "the worst case");
    // An estimate counts the estimated input and the text that was received.
    let mut play = short(vec![Err(CallError::cut_at_deadline(40, None))]);
    set_setting(&mut play.plan, "resilience", json!({"budget": {"unknown_outcome": "estimate"}}));
    play.run();
    let estimate = play.ended().cost;
    assert_eq!(estimate.output_tokens, CutStream { sent: 0, received: 40 }.estimate().output);
    assert!(estimate.input_tokens > 0 && estimate.spend < play.reservations[0].0);
}

#[test]
fn calls_after_the_deadline_do_not_start() {
    let mut play = short(vec![calls(&[call("a_write", json!({})), call("a_write", json!({}))]), text("never")]);
    play.start();
    while play.dispatched.is_empty() {
        assert!(play.step());
    }
    play.now += 10_000;
    while play.step() {}
    assert_eq!((code(&play), play.dispatched.len(), play.requests.len()), (OVER, 1, 1));
    assert_eq!(play.results().last().map(|(why, _)| why.clone()), Some(ResultKind::Skipped));
}

#[test]
fn raised_duration_continues_after_the_limit() {
    let mut play = short(vec![status(429, &[("retry-after", "20")]), text("done")]);
    with_hook(
        &mut play.plan,
        HookPoint::Limit,
        HookAction::Raise { limit: "duration_seconds".into(), value: json!(60) },
    );
    play.hooks.insert(HookPoint::Limit, [HookOutcome::Raise { limit: "duration_seconds".into(), value: 60 }].into());
    assert_eq!(play.run().ended().status, Status::Completed);
}

#[test]
fn wait_for_a_person_is_not_the_threads_duration() {
    let mut play = short(vec![calls(&[call("a_read", json!({}))]), text("done")]);
    play.plan.limits.turns = 1;
    with_hook(&mut play.plan, HookPoint::Limit, HookAction::Escalate);
    play.hooks.insert(HookPoint::Limit, [HookOutcome::Escalate].into());
    play.start();
    while !matches!(next(&play.plan, &play.state), Effect::Ask { .. }) {
        assert!(play.step());
    }
    let used = play.state.clock.elapsed_ms();
    play.now += 3_600_000;
    let raise = crate::event::ControlMessage::Raise { limit: "turns".into(), value: 5 };
    play.signal(Fact::Mail { id: "m".into(), message: raise });
    // A crash while an approval request is open changes nothing.
    play.signal(Fact::Recovered { owner: "o".into(), cut_bytes: 0 });
    play.now += 3_600_000;
    assert_eq!(play.state.remaining_ms_at(play.now), None, "no deadline while a person is asked");
    play.signal(Fact::Answered(Approval::Approved));
    assert_eq!(play.state.clock.elapsed_ms(), used);
    while play.step() {}
    assert_eq!((play.ended().status, play.ended().cost.turns), (Status::Completed, 2));
    assert_eq!(play.state.clock.approval_wait_ms, 3_600_000, "the time without an owner is not asked time");
}

/// Returns the end of a child that waited `approval_wait_ms` milliseconds for an approval.
fn asked_child(spawn: u64, approval_wait_ms: u64) -> Fact {
    let answer = Some(Box::new(CallAnswer::text("done", false)));
    let cost = Cost { approval_wait_ms, ..Cost::default() };
    Fact::ChildEnded { spawn, thread_id: format!("b-{spawn}"), status: Status::Completed, cost, answer }
}

fn awaited(play: &mut SimulatedThread) -> Vec<u64> {
    loop {
        if let Effect::Await(children) = next(&play.plan, &play.state) {
            return children.into_iter().map(|child| child.spawn).collect();
        }
        assert!(play.step());
    }
}

fn start_child(apart: bool) -> (String, Value) {
    call("rye_execute", json!({"item_type": "directive", "item_id": "b", "parameters": {}, "async": apart}))
}

#[test]
fn wait_of_a_child_for_a_person_is_not_the_parents_duration() {
    // Two children run at the same time. A third child runs after another call.
    let list = calls(&[start_child(false), start_child(false), call("a_write", json!({})), start_child(false)]);
    let mut play = short(vec![list, text("done")]);
    play.start();
    let together = awaited(&mut play);
    assert_eq!(together.len(), 2);
    play.now += 60_000;
    for (spawn, approval_wait_ms) in together.into_iter().zip([60_000, 30_000]) {
        play.signal(asked_child(spawn, approval_wait_ms));
    }
    assert!(play.state.clock.elapsed_ms() < 1_000, "{}", play.state.clock.elapsed_ms());
    let alone = awaited(&mut play);
    play.now += 40_000;
    play.signal(asked_child(alone[0], 40_000));
    assert!(play.state.clock.elapsed_ms() < 2_000, "{}", play.state.clock.elapsed_ms());
    while play.step() {}
    assert_eq!((play.ended().status, play.ended().cost.approval_wait_ms), (Status::Completed, 100_000));
}

#[test]
fn wait_of_a_detached_child_for_a_person_is_no_wait_of_its_parent() {
    let mut play = short(vec![calls(&[start_child(true), call("a_write", json!({}))]), text("done")]);
    play.start();
    while play.state.children.values().all(|child| child.thread_id.is_none()) {
        assert!(play.step());
    }
    play.now += 5_000;
    let (elapsed, spawn) = (play.state.clock.elapsed_at(play.now), *play.state.children.keys().next().unwrap());
    play.signal(asked_child(spawn, 4_000));
    assert_eq!(play.state.clock.elapsed_at(play.now), elapsed);
}

#[test]
fn wait_of_a_hooks_child_for_a_person_is_not_the_threads_duration() {
    let mut play = short(vec![text("done")]);
    play.start();
    let elapsed = play.state.clock.elapsed_at(play.now);
    play.now += 60_000;
    let spawn = crate::thread::FIRST_HOOK_SPAWN;
    let Fact::ChildEnded { thread_id, status, cost, .. } = asked_child(spawn, 60_000) else { panic!() };
    let child = HookChild { spawn, thread_id, spend: 0, status, cost };
    play.signal(Fact::HooksRan {
        point: HookPoint::AfterStep,
        subject: None,
        considered: Vec::new(),
        children: vec![child],
        answer: Box::new(HookOutcome::None),
        objects: Vec::new(),
        kept: Vec::new(),
        expansions: Vec::new(),
    });
    assert_eq!(play.state.clock.elapsed_at(play.now), elapsed);
}

/// The used time counts each owner's own clock from its start. The clock of the next owner can be any time away.
#[test]
fn clock_that_steps_between_two_owners_changes_no_used_time() {
    const DAY: i64 = 86_400_000;
    for step in [-DAY, -30_000, 30_000, DAY] {
        let mut play = short(vec![calls(&[call("a_look", json!({"path": "a"}))]), text("done")]);
        play.start();
        while play.requests.is_empty() {
            play.step();
        }
        play.now += 3_000;
        play.signal(Fact::Tick);
        play.step();
        let used = play.state.clock.elapsed_at(play.now);
        assert!((3_000..4_000).contains(&used), "{used}");
        play.now = play.state.clock.now + step;
        play.signal(Fact::Recovered { owner: "another".into(), cut_bytes: 0 });
        assert_eq!(play.state.clock.elapsed_at(play.now), used, "{step}");
        assert_eq!(play.state.remaining_ms_at(play.now), Some(10_000 - used), "{step}");
    }
}

/// The wait before the next attempt ends at a time of the clock that the previous owner had.
#[test]
fn wait_before_an_attempt_is_not_lengthened_by_a_clock_that_steps_back() {
    for (step, longest) in [(-86_400_000, 9_000), (-30_000, 9_000), (0, 9_000), (30_000, 0)] {
        let mut play = short(vec![status(429, &[("retry-after", "9")]), text("done")]);
        play.start();
        while play.state.wait_until.is_none() {
            play.step();
        }
        play.now = play.state.clock.now + step;
        play.signal(Fact::Recovered { owner: "another".into(), cut_bytes: 0 });
        assert_eq!(play.run().ended().status, Status::Completed, "{step}");
        assert!(play.sleeps.iter().sum::<i64>() <= longest, "{step}: {:?}", play.sleeps);
    }
}

/// A step back within one process would need a second reading of the wall clock. The time of a thread then stands still.
#[test]
fn time_that_goes_back_within_an_owner_extends_the_deadline_by_nothing_used_before() {
    let mut play = short(vec![calls(&[call("a_look", json!({"path": "a"}))]), text("done")]);
    play.start();
    while play.requests.is_empty() {
        play.step();
    }
    play.now += 3_000;
    play.step();
    let used = play.state.clock.elapsed_at(play.now);
    play.now -= 2_000;
    play.step();
    assert!(play.state.clock.elapsed_at(play.now) >= used);
    assert!(play.state.remaining_ms_at(play.now) <= Some(10_000 - used));
}

#[test]
fn idle_time_of_a_session_is_neither_owned_nor_time_of_an_approval() {
    let mut clock = OwnedTime::default();
    // Asks, is idle, and the time of the event.
    for (asks, is_idle, now) in [
        (false, false, 0),
        (false, true, 10),
        (false, true, 500),
        (false, false, 1_000),
        (true, false, 1_020),
        (true, false, 1_100),
        (false, true, 1_520),
        (false, false, 9_520),
    ] {
        clock.now = now;
        clock.set_paused(asks, is_idle, now);
    }
    clock.now = 9_540;
    assert_eq!((clock.approval_wait_ms, clock.elapsed_ms()), (500, 10 + 20 + 20));
}
