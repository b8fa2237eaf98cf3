//! Approval requests: recorded before an approver sees them, answered once, repeated after recovery.

use rye_compiler::plan::graph::{GraphNeeds, GraphPart, build_graph};
use rye_compiler::plan::{ApprovalOrigin, Plan};
use rye_grammar::ItemId;
use serde_json::json;

use super::super::effect::CallToApprove;
use super::super::fixture::{SimulatedThread, call, calls, plan, set_setting, text};
use super::super::{Effect, Fact, next};
use crate::event::{Approval, ControlMessage, EventBody, ResultKind};
use crate::thread::Status;
use crate::threads::pending_approval;

/// Returns a plan whose risk table requires approval for `a/look`.
fn plan_with_risky_tool() -> Plan {
    let mut plan = plan();
    let table = json!({"risk_levels": {"elevated": {"policy": "acknowledge_required"}, "safe": {"policy": "allow"}},
        "classifications": [{"risk": "safe", "patterns": ["rye.*"]},
                            {"risk": "elevated", "patterns": ["rye.execute.tool.a.look"]}]});
    set_setting(&mut plan, "capability_risk", table);
    plan.graph = build_graph(&GraphNeeds { parts: [GraphPart::Tools, GraphPart::Ask].into(), ..GraphNeeds::default() });
    plan
}

/// Returns a thread with a recorded, open approval request, and the number of its event.
fn thread_awaiting_approval(inputs: &[i64]) -> (SimulatedThread, u64) {
    let turns = inputs.iter().map(|n| calls(&[call("a_look", json!({"x": n}))]));
    let mut play = SimulatedThread::new(plan_with_risky_tool(), turns.chain([text("done")]).collect());
    play.says = Approval::Approved;
    play.start();
    let seq = to_the_question(&mut play);
    (play, seq)
}

fn to_the_question(play: &mut SimulatedThread) -> u64 {
    while !matches!(next(&play.plan, &play.state), Effect::Ask { .. }) {
        assert!(play.step());
    }
    pending_approval(&play.events).unwrap().seq
}

fn approve(play: &mut SimulatedThread, id: &str, yes: bool, question: Option<u64>) -> usize {
    play.signal(Fact::Mail {
        id: id.into(),
        message: ControlMessage::Approve { yes, question, message: None, raises: false },
    })
}

fn count(play: &SimulatedThread, name: &str) -> usize {
    play.names().iter().filter(|found| **found == name).count()
}

#[test]
fn approval_request_is_recorded_before_it_is_asked() {
    let (play, seq) = thread_awaiting_approval(&[1]);
    assert_eq!(play.names().last(), Some(&"approval_asked"));
    let effect = next(&play.plan, &play.state);
    assert!(effect.has_side_effects(&play.plan), "the record is synced before it");
    let open = pending_approval(&play.events).unwrap();
    assert_eq!(
        (open.origin, open.what.as_str(), open.seq),
        (ApprovalOrigin::Call, "rye.execute.tool.a.look with {\"x\":1}", seq)
    );
    let call = CallToApprove {
        capability: "rye.execute.tool.a.look".into(),
        tool: Some(ItemId::parse("a/look").unwrap()),
        parameters: json!({"x": 1}),
        input: json!({"x": 1}),
        number: 1,
        count: 1,
    };
    assert_eq!(effect, Effect::Ask { origin: open.origin, what: open.what, call: Some(Box::new(call)), raise: None });
}

#[test]
fn only_the_first_answer_to_a_request_counts() {
    for (first, ran) in [(true, 1), (false, 0)] {
        let (mut play, seq) = thread_awaiting_approval(&[1]);
        assert_eq!(approve(&mut play, "one", first, Some(seq)), 2, "the message, and with it the answer");
        assert!(pending_approval(&play.events).is_none());
        assert_eq!(approve(&mut play, "two", !first, Some(seq)), 1, "the message alone");
        assert_eq!(play.signal(Fact::Answered(Approval::Refused)), 0);
        while play.step() {}
        assert_eq!((play.dispatched.len(), count(&play, "approval_given")), (ran, 1));
    }
}

#[test]
fn answer_does_not_apply_to_a_later_request() {
    let (mut play, first) = thread_awaiting_approval(&[1, 2]);
    assert_eq!(play.signal(Fact::Answered(Approval::Refused)), 1);
    let second = to_the_question(&mut play);
    assert_ne!(first, second);
    assert_eq!(approve(&mut play, "late", true, Some(first)), 1);
    assert!(matches!(next(&play.plan, &play.state), Effect::Ask { .. }), "it is still asked");
    assert_eq!(approve(&mut play, "right", true, Some(second)), 2);
    while play.step() {}
    assert_eq!(play.dispatched.len(), 1);
    assert_eq!(count(&play, "approval_asked"), 2);
}

#[test]
fn recovered_thread_repeats_its_approval_request() {
    let (mut play, seq) = thread_awaiting_approval(&[1]);
    play.signal(Fact::Recovered { owner: "o".into(), cut_bytes: 0 });
    assert!(matches!(next(&play.plan, &play.state), Effect::Ask { .. }));
    assert_eq!(pending_approval(&play.events).unwrap().seq, seq, "it is the same one");
    assert_eq!(approve(&mut play, "one", true, Some(seq)), 2);
    while play.step() {}
    assert_eq!((play.dispatched.len(), count(&play, "approval_asked")), (1, 1));
}

#[test]
fn suspended_thread_keeps_its_approval_request() {
    let (mut play, seq) = thread_awaiting_approval(&[1]);
    assert_eq!(play.signal(Fact::Answered(Approval::Suspended)), 1);
    while play.step() {}
    assert_eq!(play.ended().status, Status::Suspended);
    assert_eq!(pending_approval(&play.events).unwrap().seq, seq);
    play.signal(Fact::Recovered { owner: "o".into(), cut_bytes: 0 });
    assert_eq!(approve(&mut play, "one", true, Some(seq)), 2);
    assert!(pending_approval(&play.events).is_none());
    while play.step() {}
    assert_eq!((play.ended().status, play.dispatched.len()), (Status::Completed, 1));
}

#[test]
fn steering_withdraws_an_approval_request() {
    let (mut play, seq) = thread_awaiting_approval(&[1, 1]);
    play.signal(Fact::Mail { id: "m".into(), message: ControlMessage::Steer { text: "rather not".into() } });
    assert!(!matches!(next(&play.plan, &play.state), Effect::Ask { .. }));
    // A repeated call gets a new approval request.
    let second = to_the_question(&mut play);
    assert_eq!(play.results()[0].0, ResultKind::Skipped);
    assert_ne!(seq, second);
    while play.step() {}
    assert_eq!(play.dispatched.len(), 1);
}

#[test]
fn refusal_with_a_message_reaches_the_model_in_the_next_request() {
    let (mut play, seq) = thread_awaiting_approval(&[1]);
    let message = Some("use another file".to_owned());
    play.signal(Fact::Mail {
        id: "m".into(),
        message: ControlMessage::Approve { yes: false, question: Some(seq), message, raises: false },
    });
    while play.step() {}
    assert!(matches!(play.results()[0].0, ResultKind::Unapproved { .. }));
    let kinds: Vec<&str> = play.requests[1].turns.iter().rev().take(2).map(|turn| turn.kind()).collect();
    assert_eq!((kinds, play.requests.len()), (vec!["user", "tool_result"], 2));
}

#[test]
fn transcript_of_an_earlier_version_is_read() {
    let message: ControlMessage = serde_json::from_value(json!({"kind": "approve", "yes": true})).unwrap();
    assert_eq!(message, ControlMessage::Approve { yes: true, question: None, message: None, raises: false });
    let (mut play, _) = thread_awaiting_approval(&[1]);
    assert_eq!(approve(&mut play, "one", true, None), 2);
    assert!(matches!(play.events.last().unwrap().body, EventBody::ApprovalGiven(_)));
}
