//! Settlements of attempts whose stream broke off: the worst case or an estimate, recorded once and counted everywhere.

use serde_json::json;

use super::super::fixture::{SimulatedThread, plan, set_setting, text};
use super::super::{ThreadState, apply, next};
use crate::event::{EventBody, Settled};
use crate::exchange::{CallError, CutStream, FailedStage, Reply, Usage};

const INTERIM: Usage = Usage { input: 40, output: 1, cache_read: 0, cache_write: 0 };

/// Returns an error of a stream that broke off after `received` bytes.
fn cut(usage: Option<Usage>, received: u64) -> Result<Reply, CallError> {
    let cut = Some(CutStream { sent: 400, received });
    Err(CallError { usage, cut, ..CallError::new(FailedStage::Truncated, "cut") })
}

fn settlements(play: &SimulatedThread) -> Vec<&Settled> {
    play.events.iter().filter_map(|e| if let EventBody::Settled(s) = &e.body { Some(s) } else { None }).collect()
}

/// Returns the first settlement, and the reservation of its attempt.
fn first(play: &SimulatedThread) -> (&Settled, u64) {
    (settlements(play)[0], play.reservations[0].0)
}

fn estimating() -> rye_compiler::plan::Plan {
    let mut plan = plan();
    set_setting(&mut plan, "resilience", json!({"budget": {"unknown_outcome": "estimate"}}));
    plan
}

#[test]
fn cut_stream_is_settled_at_the_reserved_worst_case() {
    for usage in [None, Some(INTERIM)] {
        let mut play = SimulatedThread::new(plan(), vec![cut(usage, 4_000), text("done")]);
        play.run();
        let (settled, reserved) = first(&play);
        assert_eq!((settled.amount, settled.unknown_outcome), (reserved, true));
        assert!(settled.usage.output > 1 && settled.usage.whole_input() > 0, "{settled:?}");
        let cost = play.ended().cost;
        assert_eq!(cost.spend, reserved + 120_000);
        assert_eq!(cost.output_tokens, settled.usage.output + 10);
        assert_eq!(play.reservations[1].1, 1, "the next reservation books it");
    }
}

#[test]
fn cut_stream_is_settled_at_the_reported_usage_when_that_is_more_or_final() {
    let large = Usage { input: 5_000_000, ..INTERIM };
    let mut play = SimulatedThread::new(plan(), vec![cut(Some(large), 10), text("done")]);
    play.plan.limits.spend = 100_000_000_000;
    play.run();
    let (settled, reserved) = first(&play);
    assert!(settled.amount > reserved && settled.unknown_outcome, "{settled:?} of {reserved}");
    let last = CallError { usage: Some(INTERIM), ..CallError::new(FailedStage::Truncated, "cut") };
    let mut play = SimulatedThread::new(plan(), vec![Err(last), text("done")]);
    play.run();
    let (settled, _) = first(&play);
    assert_eq!((settled.amount, settled.usage, settled.unknown_outcome), (42_000, INTERIM, false));
}

#[test]
fn estimate_counts_bytes_up_to_the_worst_case_and_no_less_than_was_reported() {
    // 400 sent bytes count as 100 tokens, and 80 received bytes count as 20 tokens.
    for (usage, received, tokens) in
        [(None, 80, (100, 20)), (Some(INTERIM), 80, (100, 20)), (Some(Usage { input: 150, ..INTERIM }), 0, (150, 1))]
    {
        let mut play = SimulatedThread::new(estimating(), vec![cut(usage, received), text("done")]);
        play.run();
        let (settled, reserved) = first(&play);
        assert_eq!((settled.usage.whole_input(), settled.usage.output), tokens);
        assert_eq!((settled.amount, settled.unknown_outcome), (1_000 * tokens.0 + 2_000 * tokens.1, true));
        assert!(settled.amount < reserved);
    }
    let mut play = SimulatedThread::new(estimating(), vec![cut(None, u64::MAX), text("done")]);
    play.run();
    let (settled, reserved) = first(&play);
    assert!(settled.amount <= reserved, "{settled:?}");
}

#[test]
fn settlement_that_a_crash_cut_off_is_derived_again() {
    for plan in [plan(), estimating()] {
        let mut whole = SimulatedThread::new(plan.clone(), vec![cut(Some(INTERIM), 80), text("done")]);
        whole.run();
        let at = whole.events.iter().position(|e| matches!(e.body, EventBody::AttemptFailed(_))).unwrap();
        let mut state = ThreadState::new();
        whole.events[..=at].iter().for_each(|event| apply(&mut state, event));
        let mut play = SimulatedThread::new(plan, vec![text("done")]);
        play.events = whole.events[..=at].to_vec();
        play.state = state;
        assert_eq!(next(&play.plan, &play.state), super::super::Effect::Record);
        while play.step() {}
        assert_eq!(settlements(&play)[0], settlements(&whole)[0]);
    }
}

#[test]
fn repeated_cut_streams_stop_at_the_limits() {
    let run = |change: &dyn Fn(&mut rye_compiler::plan::Plan)| {
        let mut plan = plan();
        change(&mut plan);
        let mut play = SimulatedThread::new(plan, (0..9).map(|_| cut(None, 8_000)).collect());
        play.run();
        let code = play.ended().error.as_ref().unwrap().code.clone();
        (code, play)
    };
    let (code, play) = run(&|_| {});
    assert_eq!((code.as_str(), settlements(&play).len()), ("truncated", 4), "every attempt is made and booked");
    let (settled, reserved) = first(&play);
    let tokens = settled.usage.whole_input() + settled.usage.output;
    assert_eq!(play.ended().cost.spend, 4 * reserved);
    let (code, play) = run(&|plan| plan.limits.spend = 2 * reserved);
    assert_eq!((code.as_str(), settlements(&play).len()), ("spend_exceeded", 2));
    assert_eq!(play.ended().cost.spend, 2 * reserved);
    // Without prices, the recorded tokens are the upper bound.
    let (code, play) = run(&|plan| {
        plan.model.prices = None;
        plan.limits.tokens = 2 * tokens;
    });
    assert_eq!((code.as_str(), settlements(&play).len()), ("tokens_exceeded", 2));
    assert!(settlements(&play).iter().all(|s| s.amount == 0 && s.unknown_outcome));
}
