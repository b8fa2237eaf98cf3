//! Tests of asynchronous children in a chat: a child counts towards the prompt that started it, also after that prompt.

use serde_json::json;

use super::chat::{chat, ended_prompts, statuses};
use crate::event::{ControlMessage, Delivery, EventBody, PromptBounds, PromptStatus, ResultKind, UserInput};
use crate::exchange::{CallError, CutStream, FailedStage};
use crate::machine::fixture::{SimulatedThread, call, calls, text};
use crate::machine::{Effect, Fact, ThreadState, apply, next, raised_limit};
use crate::thread::{Cost, Status};

/// The reservation of the child.
const RESERVED: u64 = 900_000_000;
/// The cost of one reply of the fixture.
const REPLY: u64 = 120_000;

/// Returns a session whose first prompt has started an asynchronous child and has ended. The child is still alive.
fn session_with_child() -> SimulatedThread {
    let start = call("rye_execute", json!({"item_type": "directive", "item_id": "test/child", "async": true}));
    let mut play = chat(vec![calls(&[start]), text("one"), text("two"), text("three")], &["first"]);
    play.child_spend = RESERVED;
    play.start();
    while !play.prompts.is_empty() || !matches!(next(&play.plan, &play.state), Effect::Wait) {
        assert!(play.step());
    }
    play
}

fn submit(play: &mut SimulatedThread, id: &str, spend: u64) {
    let bounds = PromptBounds { spend: Some(spend), with: None };
    let input = UserInput { bounds, ..UserInput::text(id) };
    play.signal(Fact::Mail { id: id.into(), message: ControlMessage::Submit { input, delivery: Delivery::Prompt } });
}

fn to_the_model_call(play: &mut SimulatedThread) {
    while !matches!(next(&play.plan, &play.state), Effect::CallModel { .. }) {
        assert!(play.step());
    }
}

fn end_child(play: &mut SimulatedThread, cost: Cost) {
    let (thread_id, status) = ("child-1".into(), Status::Completed);
    play.signal(Fact::ChildEnded { spawn: 1, thread_id, status, cost, answer: None });
}

fn count(play: &SimulatedThread, name: &str) -> usize {
    play.names().into_iter().filter(|one| *one == name).count()
}

#[test]
fn later_prompt_neither_waits_nor_pays_for_the_child_of_an_earlier_prompt() {
    let mut play = session_with_child();
    // The ceiling is far below the reservation of the child.
    submit(&mut play, "second", 20_000_000);
    to_the_model_call(&mut play);
    assert_eq!(count(&play, "child_ended"), 0);
    assert!(play.state.attempt.as_ref().unwrap().worst_case <= 20_000_000);
    // The child ends while the second prompt calls its model, and costs far more than the ceiling.
    let limit = play.state.limits.spend - play.state.before_prompt().0.spend;
    end_child(&mut play, Cost { spend: 700_000_000, outstanding: 50_000_000, ..Cost::default() });
    assert_eq!(play.state.limits.spend - play.state.before_prompt().0.spend, limit);
    assert_eq!(play.state.prompt_headroom(), 20_000_000);
    while play.step() {}
    assert_eq!(statuses(&play), [(PromptStatus::Done, None), (PromptStatus::Done, None)]);
    let ended = ended_prompts(&play);
    let costs: Vec<(u64, u64)> = ended.iter().map(|ended| (ended.cost.spend, ended.cost.outstanding)).collect();
    assert_eq!(costs, [(2 * REPLY, RESERVED), (REPLY, 0)]);
    assert_eq!(play.ended().cost.spend, 3 * REPLY + 700_000_000);
    let mut folded = ThreadState::new();
    play.events.iter().for_each(|event| apply(&mut folded, event));
    assert_eq!(folded, play.state);
}

#[test]
fn child_counts_with_its_whole_reservation_against_its_own_prompt() {
    let start = call("rye_execute", json!({"item_type": "directive", "item_id": "test/child", "async": true}));
    let mut play = chat(vec![calls(&[start]), text("one")], &["first"]);
    play.child_spend = play.plan.limits.spend - REPLY - 1_000;
    play.run();
    // The rest of the prompt's limit pays for no call, so the prompt waits for the child.
    let names = play.names();
    let at = |name: &str| names.iter().rposition(|one| *one == name).unwrap();
    assert!(at("child_ended") < at("attempt_intended"), "{names:?}");
    assert_eq!(ended_prompts(&play)[0].cost.spend, 2 * REPLY + 500);
}

#[test]
fn prompt_waits_for_a_child_of_an_earlier_prompt_only_if_the_session_is_short() {
    // The ceiling of the prompt pays for no call: the end of the child cannot help.
    let mut play = session_with_child();
    submit(&mut play, "second", 1_000);
    while play.step() {}
    assert_eq!(statuses(&play)[1], (PromptStatus::Limit, Some("spend_exceeded")));
    assert_eq!(count(&play, "child_ended"), 0);
    // The child holds the money of the session: its end returns the money.
    let mut play = session_with_child();
    play.state.thread_limits.spend = play.state.cost.spend + RESERVED + 1_000;
    submit(&mut play, "second", 20_000_000);
    while play.step() {}
    assert_eq!(statuses(&play)[1], (PromptStatus::Done, None));
    assert_eq!((count(&play, "child_ended"), ended_prompts(&play)[1].cost.spend), (1, REPLY));
}

#[test]
fn limit_of_a_prompt_stays_within_the_session_when_an_earlier_child_ends() {
    for (child, spend) in [(0, 20_000_000), (RESERVED, 20_000_000), (RESERVED, 900_000_000), (RESERVED / 2, 1)] {
        let mut play = session_with_child();
        play.state.thread_limits.spend = 2 * RESERVED;
        submit(&mut play, "second", spend);
        while play.state.prompt_number() != Some(2) {
            assert!(play.step());
        }
        let before = play.state.available_spend();
        end_child(&mut play, Cost { spend: child, ..Cost::default() });
        let (state, after) = (&play.state, play.state.available_spend());
        assert!(state.limits.spend <= state.thread_limits.spend, "{child} {spend}");
        // The end of the child returns money to the session; the ceiling of the prompt does not rise.
        assert!(before <= after && after <= spend, "{child} {spend}: {before} {after}");
        while play.step() {}
        assert!(ended_prompts(&play)[1].cost.spend <= spend, "{child} {spend}");
        assert!(play.events.iter().any(|event| matches!(event.body, EventBody::ChildEnded(_))));
    }
}

/// The worst case of a cut call takes the rest of the money, so that only the end of the child can pay for the retry.
#[test]
fn retry_that_only_the_end_of_a_child_can_pay_for_awaits_the_child_before_its_pause() {
    let start = call("rye_execute", json!({"item_type": "directive", "item_id": "test/child", "async": true}));
    let cut =
        CallError { cut: Some(CutStream { sent: 40, received: 20 }), ..CallError::new(FailedStage::Truncated, "cut") };
    let mut play = chat(vec![calls(&[start]), Err(cut), text("one")], &["first"]);
    play.child_spend = RESERVED;
    play.start();
    while !matches!(next(&play.plan, &play.state), Effect::CallModel { turn: 2, .. }) {
        assert!(play.step());
    }
    let worst_case = play.state.attempt.as_ref().unwrap().worst_case;
    play.state.limits.spend = play.state.cost.spend + RESERVED + worst_case + 1_000;
    play.state.thread_limits.spend = play.state.limits.spend;
    while play.step() {}
    assert_eq!(statuses(&play), [(PromptStatus::Done, None)]);
    let names = play.names();
    let at = |name: &str| names.iter().rposition(|one| *one == name).unwrap();
    assert!(at("attempt_failed") < at("child_ended") && at("child_ended") < at("attempt_intended"), "{names:?}");
}

#[test]
fn spawns_of_a_later_prompt_exclude_the_children_of_earlier_prompts() {
    let mut play = session_with_child();
    let again = || call("rye_execute", json!({"item_type": "directive", "item_id": "test/child", "async": true}));
    play.replies.push_front(calls(&[again(), again(), again()]));
    submit(&mut play, "second", 900_000_000);
    to_the_model_call(&mut play);
    assert_eq!((play.plan.limits.spawns, play.state.limits.spawns), (2, 3));
    assert_eq!([2, 4].map(|value| raised_limit(&play.state, "spawns", value)), [None, Some(5)]);
    while count(&play, "limit") == 0 {
        assert!(play.step());
    }
    let refused = play.results().into_iter().find(|(why, _)| *why == ResultKind::Refused).unwrap().1;
    assert_eq!(refused, "spawns_exceeded: 2 of 2");
}
