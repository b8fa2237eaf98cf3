//! Tests of the reservation of an attempt, which counts the tokens of the last request as the provider reported them,
//! and bounds everything else by bytes.

use rye_compiler::plan::{PlanLimits, PlannedModel, Prices};
use rye_compiler::semantics::limits::LimitName;

use super::super::fixture::{SimulatedThread, call, calls, plan, reply, text};
use crate::event::{AttemptIntended, EventBody, Opened, Settled};
use crate::exchange::{CallError, CutStream, Reply, Usage};
use crate::machine::Fact;
use crate::message::ContentBlock;

fn intended(play: &SimulatedThread) -> Vec<&AttemptIntended> {
    play.events
        .iter()
        .filter_map(|e| if let EventBody::AttemptIntended(a) = &e.body { Some(a) } else { None })
        .collect()
}

fn settled(play: &SimulatedThread) -> Vec<&Settled> {
    play.events.iter().filter_map(|e| if let EventBody::Settled(s) = &e.body { Some(s) } else { None }).collect()
}

fn lookup_calls() -> Vec<(String, serde_json::Value)> {
    vec![call("a_look", serde_json::json!({"path": "お茶"}))]
}

#[test]
fn first_request_is_bound_by_its_bytes_and_later_ones_by_the_count_and_new_bytes() {
    let counted = |input| calls(&lookup_calls()).map(|reply| Reply { usage: Usage { input, ..reply.usage }, ..reply });
    let mut play = SimulatedThread::new(plan(), vec![counted(100), counted(5_000), text("done")]);
    play.run();
    let bounds: Vec<u64> = intended(&play).iter().map(|attempt| attempt.input_bound).collect();
    let first = play.plan.bound_first_request("You are you.", "Here.\n\nSay hello.");
    assert!(bounds[0] >= first - 8 && bounds[0] <= first + 8, "{bounds:?} of {first}");
    // A turn adds the same bytes each time.
    let added = bounds[1] - 100;
    assert!(added > 0 && added < first, "{bounds:?}");
    assert_eq!(bounds[2], 5_000 + added);
    let worst = play.plan.model.worst_case(bounds[2], 2_000).to_u64();
    assert_eq!(intended(&play)[2].worst_case, worst);
}

/// The session of a client that is recovered by `rye run --resume` calls the plan's model.
#[test]
fn recovered_session_of_a_client_reserves_its_model_calls() {
    let launch = |play: &SimulatedThread| Opened { serves_client: true, ..play.opened() };
    let mut play = SimulatedThread::new(plan(), vec![calls(&lookup_calls()), text("done")]);
    let launch = Box::new(launch(&play));
    play.signal(Fact::Opened { launch, plan_id: "plan".into(), continues: None });
    while intended(&play).is_empty() {
        play.step();
    }
    assert_eq!(intended(&play)[0].worst_case, 0);
    play.signal(Fact::Recovered { owner: "another".into(), cut_bytes: 0 });
    assert_eq!(settled(&play)[0].amount, 0);
    play.run();
    let later: Vec<u64> = intended(&play).iter().skip(1).map(|attempt| attempt.worst_case).collect();
    assert!(!later.is_empty() && later.iter().all(|worst_case| *worst_case > 0), "{later:?}");
}

#[test]
fn count_of_another_model_bounds_nothing() {
    let mut plan = plan();
    let other = PlannedModel { id: "other".into(), fallback: None, ..plan.model.clone() };
    plan.model.fallback = Some(Box::new(other));
    let gone = super::super::fixture::status(404, &[]);
    let mut play = SimulatedThread::new(plan, vec![calls(&lookup_calls()), gone, text("done")]);
    play.run();
    let bounds: Vec<u64> = intended(&play).iter().map(|attempt| attempt.input_bound).collect();
    assert_eq!(bounds.len(), 3);
    assert!(bounds[2] > bounds[0] && bounds[2] > bounds[1], "{bounds:?}");
}

#[test]
fn reply_without_usable_usage_is_settled_at_its_worst_case() {
    let uncounted = Some(CutStream { sent: 40, received: 20 });
    let silent = reply(vec![ContentBlock::Text { text: "done".into() }]).map(|reply| Reply {
        usage: Usage::default(),
        uncounted,
        ..reply
    });
    let mut play = SimulatedThread::new(plan(), vec![silent]);
    play.run();
    let (attempt, settled) = (intended(&play)[0], settled(&play)[0]);
    assert_eq!((settled.amount, settled.unknown_outcome, settled.overspent), (attempt.worst_case, true, 0));
    assert_eq!((settled.usage.input, settled.usage.output), (attempt.input_bound, attempt.max_output));
    assert_eq!(play.ended().cost.spend, attempt.worst_case);
}

#[test]
fn overspent_attempt_is_booked_recorded_and_the_last_one() {
    let lying = calls(&lookup_calls()).map(|reply| Reply { usage: Usage { input: 900_000, ..reply.usage }, ..reply });
    let mut play = SimulatedThread::new(plan(), vec![lying, text("done")]);
    (play.plan.limits.spend, play.plan.limits.tokens) = (100_000_000, 10_000_000);
    play.run();
    let (attempt, settled) = (intended(&play)[0], settled(&play)[0]);
    assert_eq!(settled.amount, 900_000_000 + 20_000);
    assert_eq!(settled.overspent, settled.amount - attempt.worst_case);
    assert_eq!(intended(&play).len(), 1, "no further call");
    assert_eq!(play.ended().error.as_ref().map(|error| error.code.as_str()), Some("spend_exceeded"));
}

#[test]
fn cut_reply_with_an_impossible_input_also_counts_all_requested_output() {
    let usage = Usage { input: 900_000, output: 1, ..Usage::default() };
    let cut = reply(vec![ContentBlock::Text { text: "do".into() }]).map(|reply| Reply {
        usage,
        uncounted: Some(CutStream { sent: 40, received: 20 }),
        ..reply
    });
    let mut play = SimulatedThread::new(plan(), vec![cut]);
    (play.plan.limits.spend, play.plan.limits.tokens) = (100_000_000, 10_000_000);
    play.run();
    let (attempt, settled) = (intended(&play)[0], settled(&play)[0]);
    let model = &play.plan.model;
    assert_eq!((settled.usage.input, settled.usage.output), (900_000, attempt.max_output));
    assert_eq!(settled.amount, model.worst_case(0, attempt.max_output).to_u64() + 900_000_000);
    assert_eq!(settled.overspent, settled.amount - attempt.worst_case);
}

/// A turn of one token costs the least that a provider can bill. The machine stops when the money does not pay for the
/// bound of the next request.
#[test]
fn turns_of_one_token_reach_90_percent_of_the_turns_that_spend_allows() {
    let mut plan = plan();
    let one = 1_000_000_000;
    plan.model.prices = Some(Prices { input: one, output: 0, cache_read: one, cache_write: one, long_prompt: None });
    plan.model.context_window = 200;
    plan.limits = PlanLimits { turns: 100_000, spend: 2_500_000, duration_seconds: 100_000, ..plan.limits };
    let most = plan.bound_turns().at_most.unwrap();
    assert_eq!((most.turns, most.set_by), (2_500, LimitName::Spend));
    let mut play = SimulatedThread::new(plan, Vec::new());
    play.start();
    let turn = || -> Result<Reply, CallError> {
        let usage = Usage { input: 1, ..Usage::default() };
        calls(&[call("a_look", serde_json::json!({}))]).map(|reply| Reply { usage, ..reply })
    };
    while play.step() {
        // The simulation bounds its steps and keeps all requests.
        play.steps = 0;
        play.requests.clear();
        if play.replies.is_empty() {
            play.replies.push_back(turn());
        }
    }
    let ended = play.ended();
    assert_eq!(ended.error.as_ref().unwrap().code, "spend_exceeded");
    assert!(ended.cost.turns * 10 >= most.turns * 9 && ended.cost.turns <= most.turns, "{:?}", ended.cost);
}
