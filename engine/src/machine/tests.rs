//! Tests that run the machine with fixed replies, and check its effects and events.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::similar_names,
    clippy::wildcard_enum_match_arm,
    reason = "tests"
)]

use rye_compiler::hook::{HookAction, HookPoint};
use rye_compiler::plan::graph::{GraphNeeds, GraphPart, build_graph};
use rye_compiler::plan::{FieldType, Node, NudgePolicy, Outcome, PartType, ValueParts};
use rye_compiler::world::ItemKind;
use serde_json::json;

use super::fixture::{
    SimulatedThread, call, calls, grant, plan, reply, rewire, set_setting, status, text, with_hook, with_outputs,
};
use super::{Effect, Fact, HookChild, Signal, ThreadState, absorb, apply, next};
use crate::event::{
    Approval, ContextOperation, ControlMessage, Event, EventBody, HookOutcome, MessageSource, ResultKind,
};
use crate::exchange::{Reply, StopReason};
use crate::message::{ContentBlock, Message};
use crate::thread::{Cost, Status};

#[test]
fn reply_without_calls_completes_the_thread() {
    let mut play = SimulatedThread::new(plan(), vec![text("hello")]);
    play.run();
    assert_eq!(
        play.names(),
        [
            "opened",
            "plan_bound",
            "system_prompt",
            "context_injected",
            "cognition_in",
            "attempt_intended",
            "reserved",
            "cognition_out",
            "settled",
            "checkpoint",
            "ended"
        ]
    );
    let ended = play.ended();
    assert_eq!((ended.status, ended.result.as_deref()), (Status::Completed, Some("hello")));
    assert_eq!((ended.cost.turns, ended.cost.spend), (1, 120_000));
    let request = &play.requests[0];
    assert_eq!(&*request.system, "You are you.");
    assert_eq!(request.max_output, 2000);
    assert_eq!(request.turns.len(), 1);
    let Message::User { content } = &*request.turns[0] else { panic!("a user turn") };
    assert_eq!(crate::message::text_of(content), "Here.\n\nSay hello.");
}

#[test]
fn calls_run_in_source_order_and_parallel_ones_together() {
    let list =
        [call("a_read", json!({})), call("a_look", json!({})), call("a_write", json!({})), call("a_read", json!({}))];
    let mut play = SimulatedThread::new(plan(), vec![calls(&list), text("done")]);
    play.run();
    let read = "rye.execute.tool.a.read".to_owned();
    let groups =
        [vec![read.clone(), "rye.execute.tool.a.look".into()], vec!["rye.execute.tool.a.write".into()], vec![read]];
    assert_eq!(play.dispatched, groups);
    let names: Vec<String> = play.requests[1]
        .turns
        .iter()
        .filter_map(|t| if let Message::ToolResult { call_id, .. } = &**t { Some(call_id.clone()) } else { None })
        .collect();
    assert_eq!(names, ["c0", "c1", "c2", "c3"]);
    assert_eq!(play.reservations, [(play.reservations[0].0, 0), (play.reservations[1].0, 1)]);
}

#[test]
fn gate_checks_exactly_the_dispatched_call() {
    let mut plan = plan();
    plan.capabilities.grants = vec![grant("rye.execute.tool.a.read")];
    let list = [
        call("a_write", json!({"item_id": "a/read"})),
        call("rye_execute", json!({"item_type": "tool", "item_id": "a/write", "parameters": {"item_id": "a/read"}})),
        call("rye_execute", json!({"item_type": "tool", "item_id": "a/../a/read"})),
        call("rye_execute", json!({"item_type": "tool", "item_id": "a/read", "capability": "x"})),
        call("nothing", json!({})),
        call("rye_execute", json!({"item_type": "directive", "item_id": "a/read"})),
        call("a_read", json!({"__malformed": "{"})),
    ];
    let mut play = SimulatedThread::new(plan, vec![calls(&list), text("done")]);
    play.run();
    assert!(play.dispatched.is_empty(), "{:?}", play.dispatched);
    let results = play.results();
    let denied = |capability: &str| ResultKind::Denied { capability: capability.into() };
    assert_eq!(results[0].0, denied("rye.execute.tool.a.write"));
    assert_eq!(results[0].1, "permission denied: missing capability rye.execute.tool.a.write");
    assert_eq!(results[1].0, denied("rye.execute.tool.a.write"));
    assert_eq!(results[5].0, denied("rye.execute.directive.a.read"));
    for i in [2, 3, 4, 6] {
        assert_eq!(results[i].0, ResultKind::Refused, "{}", results[i].1);
    }
    assert_eq!(play.ended().status, Status::Completed);
}

mod approvals;
mod async_tools;
mod chat;
mod cut_streams;
mod deadline;
mod guardrails;
mod input;
mod limits;
mod money;
mod prompt_bounds;
mod prompt_children;
mod replies;
mod screening;
mod window;

#[test]
fn truncated_call_is_not_run_and_the_model_gets_an_error() {
    let list = [call("a_read", json!({})), call("a_write", json!({}))];
    let cut = calls(&list).map(|reply| Reply { stop: StopReason::Length, ..reply });
    let mut play = SimulatedThread::new(plan(), vec![cut, text("done")]);
    play.run();
    assert_eq!(play.dispatched, [vec!["rye.execute.tool.a.read".to_owned()]]);
    let results = play.results();
    assert_eq!(results[1].0, ResultKind::Refused);
    assert!(results[1].1.starts_with("the reply reached its output limit inside this call"), "{}", results[1].1);
    assert_eq!(play.ended().status, Status::Completed);
}

#[test]
fn refused_reply_ends_the_thread_and_runs_no_calls() {
    let remark = ContentBlock::Text { text: "I will not.".into() };
    let Ok(called) = calls(&[call("a_write", json!({}))]) else { panic!("a reply") };
    let content = [vec![remark], called.content].concat();
    let mut play = SimulatedThread::new(plan(), vec![reply(content).map(|r| Reply { stop: StopReason::Refusal, ..r })]);
    play.run();
    assert!(play.dispatched.is_empty());
    let ended = play.ended();
    let error = ended.error.as_ref().unwrap();
    assert_eq!((ended.status, error.code.as_str()), (Status::Error, "refused"));
    assert_eq!((error.message.as_str(), ended.result.as_deref()), ("I will not.", Some("I will not.")));
    assert_eq!((ended.cost.turns, ended.cost.spend), (1, 120_000));
}

#[test]
fn every_thread_of_the_spawn_chain_must_grant_a_call() {
    let mut play = SimulatedThread::new(plan(), vec![calls(&[call("a_write", json!({}))]), text("done")]);
    let mut launch = play.opened();
    launch.grants.push(vec![grant("rye.execute.tool.a.read")]);
    play.signal(Fact::Opened { launch: Box::new(launch), plan_id: "p".into(), continues: None });
    while play.step() {}
    assert!(play.dispatched.is_empty());
    assert!(play.results()[0].1.contains("an ancestor thread"), "{}", play.results()[0].1);
}

#[test]
fn falsy_outputs_count_as_present() {
    let mut plan = plan();
    with_outputs(
        &mut plan,
        &[("ok", FieldType::Boolean, true), ("n", FieldType::Integer, true), ("s", FieldType::String, true)],
    );
    let wrong = call("rye_directive_return", json!({"ok": false, "n": "3"}));
    let right = call("rye_directive_return", json!({"ok": false, "n": 0, "s": ""}));
    let mut play = SimulatedThread::new(plan, vec![calls(&[wrong]), calls(&[right])]);
    play.run();
    let incomplete = json!({"kind": "incomplete", "missing": ["s"], "invalid": ["n"], "outputs": {"ok": false}});
    assert_eq!(serde_json::to_value(&play.results()[0].0).unwrap(), incomplete);
    assert!(play.results()[0].1.contains("`n` must be an integer"), "{}", play.results()[0].1);
    let ended = play.ended();
    assert_eq!(ended.status, Status::Completed);
    assert_eq!(serde_json::to_value(&ended.outputs).unwrap(), json!({"ok": false, "n": 0, "s": ""}));
}

#[test]
fn return_with_a_wrong_part_is_refused_with_the_path_of_the_part() {
    let mut plan = plan();
    with_outputs(&mut plan, &[("found", FieldType::Array, true)]);
    let part = |kind, choices: &[&str], parts| PartType {
        kind,
        required: true,
        choices: choices.iter().map(|choice| json!(choice)).collect(),
        description: String::new(),
        parts,
    };
    let severity = part(FieldType::String, &["low", "high"], ValueParts::default());
    let fields = [("severity".to_owned(), severity)].into_iter().collect();
    let item = part(FieldType::Object, &[], ValueParts { items: None, fields });
    plan.interface.outputs["found"].parts = ValueParts { items: Some(Box::new(item)), ..ValueParts::default() };
    let given = |severity: &str| call("rye_directive_return", json!({"found": [{"severity": severity}]}));
    let mut play = SimulatedThread::new(plan, vec![calls(&[given("mid")]), calls(&[given("low")])]);
    play.run();
    let text = &play.results()[0].1;
    assert!(text.contains("`found[0].severity` must be one of `\"low\"`, `\"high\"`, not `\"mid\"`"), "{text}");
    let outputs = json!({"found": [{"severity": "low"}]});
    assert_eq!(serde_json::to_value(&play.ended().outputs).unwrap(), outputs);
}

#[test]
fn an_error_return_ends_in_error() {
    let mut plan = plan();
    with_outputs(&mut plan, &[("ok", FieldType::Boolean, true)]);
    let back = call("rye_directive_return", json!({"status": "error", "error_detail": "no host"}));
    let mut play = SimulatedThread::new(plan, vec![calls(&[back])]);
    play.run();
    let error = play.ended().error.clone().unwrap();
    assert_eq!(
        (play.ended().status, error.code.as_str(), error.message.as_str()),
        (Status::Error, "returned_error", "no host")
    );
}

#[test]
fn error_return_keeps_the_outputs_of_the_declared_types_only() {
    let mut plan = plan();
    with_outputs(&mut plan, &[("ok", FieldType::Boolean, true), ("count", FieldType::Integer, false)]);
    let input = json!({"status": "error", "error_detail": "no host", "ok": false, "count": "many"});
    let mut play = SimulatedThread::new(plan, vec![calls(&[call("rye_directive_return", input)])]);
    play.run();
    assert_eq!(play.ended().error.as_ref().unwrap().message, "no host");
    assert_eq!(serde_json::to_value(&play.ended().outputs).unwrap(), json!({"ok": false}));
}

#[test]
fn text_without_required_outputs_ends_in_error_and_names_them() {
    let mut plan = plan();
    with_outputs(&mut plan, &[("ok", FieldType::Boolean, true), ("note", FieldType::String, false)]);
    let mut play = SimulatedThread::new(plan, vec![text("just text")]);
    play.run();
    let (status, error) = (play.ended().status, play.ended().error.as_ref().unwrap());
    assert_eq!((status, error.code.as_str()), (Status::Error, "missing_outputs"));
    assert_eq!(play.ended().result.as_deref(), Some("just text"));
    assert_eq!((play.ended().outputs.as_ref(), play.ended().missing.as_slice()), (None, ["ok".to_owned()].as_slice()));
}

#[test]
fn the_nudge_comes_once_and_on_the_first_turn_only() {
    let mut auto = plan();
    auto.nudge = NudgePolicy::Auto;
    super::fixture::rebuild(&mut auto);
    let mut play = SimulatedThread::new(auto.clone(), vec![text("hm"), text("done")]);
    play.run();
    assert_eq!((play.ended().cost.turns, play.ended().result.as_deref()), (2, Some("done")));
    let mut late = SimulatedThread::new(auto, vec![calls(&[call("a_read", json!({}))]), text("done")]);
    late.run();
    assert_eq!(late.ended().cost.turns, 2);
}

#[test]
fn text_answer_without_required_outputs_is_reminded_once_after_the_first_turn() {
    let reminders = |play: &SimulatedThread| {
        let is_nudge = |event: &&Event| matches!(&event.body, EventBody::CognitionIn(input) if input.source == MessageSource::Nudge);
        let text = |event: &Event| format!("{:?}", event.body);
        play.events.iter().filter(is_nudge).map(text).collect::<Vec<String>>()
    };
    let mut auto = plan();
    with_outputs(&mut auto, &[("ok", FieldType::Boolean, true)]);
    auto.nudge = NudgePolicy::Auto;
    super::fixture::rebuild(&mut auto);
    let read = || calls(&[call("a_read", json!({}))]);
    let mut play = SimulatedThread::new(auto.clone(), vec![text("hm"), text("hm"), text("just text")]);
    play.run();
    assert_eq!((play.ended().cost.turns, play.ended().status), (3, Status::Error));
    assert!(reminders(&play)[1].contains("`ok`"), "{:?}", reminders(&play));
    let mut late = SimulatedThread::new(auto.clone(), vec![read(), read(), text("hm"), text("just text")]);
    late.run();
    assert_eq!((late.ended().cost.turns, reminders(&late).len()), (4, 1));
    let returned = calls(&[call("rye_directive_return", json!({"ok": true}))]);
    let mut mended = SimulatedThread::new(auto, vec![read(), text("hm"), returned]);
    mended.run();
    assert_eq!((mended.ended().status, mended.ended().cost.turns), (Status::Completed, 3));
}

#[test]
fn hooks_that_execute_and_sign_nothing_need_no_barrier() {
    let item = || (ItemKind::Knowledge, "a/note".to_owned());
    let actions = [
        (HookAction::Continue, false),
        (HookAction::Fetch { item_type: item().0, item_id: item().1, params: json!({}) }, false),
        (HookAction::Execute { item_type: item().0, item_id: item().1, params: json!({}) }, true),
        (HookAction::Sign { item_type: item().0, item_id: item().1 }, true),
    ];
    for (action, has_side_effects) in actions {
        let mut plan = plan();
        with_hook(&mut plan, HookPoint::AfterStep, action);
        let mut play = SimulatedThread::new(plan, vec![calls(&[call("a_read", json!({}))]), text("done")]);
        play.start();
        while !matches!(next(&play.plan, &play.state), Effect::RunHooks(_)) {
            assert!(play.step());
        }
        assert_eq!(next(&play.plan, &play.state).has_side_effects(&play.plan), has_side_effects);
    }
}

#[test]
fn repeated_hook_children_are_charged_once() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::AfterStep, HookAction::Continue);
    let mut play = SimulatedThread::new(plan, vec![calls(&[call("a_read", json!({}))]), text("done")]);
    play.start();
    while !matches!(next(&play.plan, &play.state), Effect::RunHooks(_)) {
        assert!(play.step());
    }
    let Effect::RunHooks(run) = next(&play.plan, &play.state) else { panic!("hooks") };
    assert_eq!((run.bounds.spawned, run.bounds.turn_reserve > 0), (0, true));
    let child = HookChild {
        spawn: 1 << 52,
        thread_id: "test/note-1".into(),
        spend: 900,
        status: Status::Completed,
        cost: Cost { spend: 700, turns: 3, ..Cost::default() },
    };
    let ran = Fact::HooksRan {
        point: run.point,
        subject: run.subject,
        considered: Vec::new(),
        children: vec![child],
        answer: Box::default(),
        objects: Vec::new(),
        kept: Vec::new(),
        expansions: Vec::new(),
    };
    // After a crash between the events of a hook point, the hooks run again and find the same child.
    let mut cut = play.state.clone();
    let bodies = absorb(&play.plan, &play.state, Signal { at: play.now, fact: ran.clone() });
    for body in bodies.into_iter().take(2) {
        apply(&mut cut, &Event { seq: 0, ts: play.now, body });
    }
    assert_eq!(absorb(&play.plan, &cut, Signal { at: play.now, fact: ran.clone() }).len(), 1);
    assert_eq!((cut.cost.spend, cut.spawned()), (120_000 + 700, 1));
    assert_eq!(play.signal(ran), 3);
    assert_eq!(play.state.cost, cut.cost);
    while play.step() {}
    assert_eq!((play.ended().cost.turns, play.ended().cost.spend), (2, 2 * 120_000 + 700));
}

#[test]
fn children_are_spawned_once_and_bounded() {
    let child = || call("rye_execute", json!({"item_type": "directive", "item_id": "test/child"}));
    let mut play = SimulatedThread::new(plan(), vec![calls(&[child(), child(), child()]), text("done")]);
    play.run();
    let count = |name: &str| play.names().iter().filter(|n| **n == name).count();
    assert_eq!((count("child_intended"), count("child_spawned"), count("child_ended")), (2, 2, 2));
    assert!(
        play.results().iter().any(|(why, text)| *why == ResultKind::Refused && text.starts_with("spawns_exceeded"))
    );
    assert_eq!(play.ended().cost.spend, 2 * 120_000 + 1_000);
}

#[test]
fn steering_skips_what_has_not_started() {
    let list = [call("a_write", json!({})), call("a_write", json!({}))];
    let mut play = SimulatedThread::new(plan(), vec![calls(&list), text("done")]);
    // The first six effects are record (prompt), record (intent), reserve, model, record (start) and tools. The message
    // arrives before the next effect.
    play.messages.push((6, ControlMessage::Steer { text: "stop that".into() }));
    play.run();
    assert_eq!(play.dispatched.len(), 1);
    assert_eq!(play.results()[1].1, "Skipped due to queued user message");
    let Some(Message::User { content }) = play.requests[1].turns.last().map(|turn| &**turn) else {
        panic!("a user turn")
    };
    assert_eq!(crate::message::text_of(content), "stop that");
}

#[test]
fn a_follow_up_waits_for_the_end() {
    let mut play = SimulatedThread::new(plan(), vec![calls(&[call("a_read", json!({}))]), text("one"), text("two")]);
    play.messages.push((2, ControlMessage::FollowUp { text: "and now".into() }));
    play.run();
    assert_eq!((play.ended().cost.turns, play.ended().result.as_deref()), (3, Some("two")));
}

#[test]
fn cancellation_and_kill_at_every_step() {
    let make = || {
        let list = [call("a_write", json!({})), call("a_read", json!({})), call("a_look", json!({}))];
        SimulatedThread::new(plan(), vec![status(503, &[]), calls(&list), text("done")])
    };
    let mut whole = make();
    whole.run();
    for step in 0..whole.steps {
        let mut play = make();
        play.messages.push((step, ControlMessage::Cancel));
        play.run();
        let expected = if step == whole.steps - 1 { Status::Completed } else { Status::Cancelled };
        assert_eq!(play.ended().status, expected, "cancelled before step {step}");
        assert!(play.state.calls.list.iter().all(|c| c.result.is_some()), "step {step}");
        let mut killed = make();
        killed.messages.push((step, ControlMessage::Kill));
        killed.run();
        let expected = if step == whole.steps - 1 { Status::Completed } else { Status::Killed };
        assert_eq!(killed.ended().status, expected, "killed before step {step}");
    }
}

#[test]
fn hooks_block_modify_and_end() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::ToolCall, HookAction::Block { reason: String::new() });
    with_hook(&mut plan, HookPoint::ToolResult, HookAction::Modify { content: None, is_error: None, details: None });
    with_hook(&mut plan, HookPoint::AfterStep, HookAction::Continue);
    let list = [call("a_read", json!({})), call("a_look", json!({}))];
    let mut play = SimulatedThread::new(plan, vec![calls(&list), text("done")]);
    play.hooks.insert(HookPoint::ToolCall, [HookOutcome::Block { reason: "no".into() }].into());
    let modified = HookOutcome::Modify { content: Some(json!("changed")), is_error: None, details: None };
    // The hook changes only the result of the call that ran: the tool of the blocked call did not run.
    play.hooks.insert(HookPoint::ToolResult, [modified].into());
    let stop =
        HookOutcome::Terminate { status: Some(Status::Cancelled), error: Some("enough".into()), ends_session: false };
    play.hooks.insert(HookPoint::AfterStep, [stop].into());
    play.run();
    assert_eq!(play.results()[0], (ResultKind::Blocked, "no".into()));
    assert_eq!(play.dispatched, [["rye.execute.tool.a.look"]]);
    let last = serde_json::to_value(play.state.conversation.messages.last().unwrap()).unwrap();
    assert_eq!(last["content"], "changed");
    assert_eq!(play.ended().status, Status::Cancelled);
}

#[test]
fn context_hooks_change_one_call_only() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::Context, HookAction::KeepLast { n: 1 });
    let mut play = SimulatedThread::new(
        plan,
        vec![calls(&[call("a_read", json!({}))]), calls(&[call("a_look", json!({}))]), text("done")],
    );
    let keep = HookOutcome::Context { operations: vec![ContextOperation::KeepLast { n: 1 }] };
    play.hooks.insert(HookPoint::Context, [HookOutcome::None, keep, HookOutcome::None].into());
    play.run();
    let sizes: Vec<usize> = play.requests.iter().map(|r| r.turns.len()).collect();
    // `KeepLast` keeps the last message, which is a result. The call of a kept result is kept too.
    assert_eq!(sizes, [1, 2, 5]);
}

#[test]
fn risky_call_waits_for_approval() {
    let attended = |says: Approval| {
        let mut plan = plan();
        let table = json!({"risk_levels": {"elevated": {"policy": "acknowledge_required"}, "safe": {"policy": "allow"}},
            "classifications": [{"risk": "safe", "patterns": ["rye.*"]}, {"risk": "elevated", "patterns": ["rye.execute.tool.a.look"]}]});
        set_setting(&mut plan, "capability_risk", table);
        let parts = [GraphPart::Tools, GraphPart::Ask].into();
        plan.graph = build_graph(&GraphNeeds { parts, ..GraphNeeds::default() });
        let list = [call("a_read", json!({})), call("a_look", json!({"x": 1})), call("a_read", json!({}))];
        let mut play = SimulatedThread::new(plan, vec![calls(&list), text("done")]);
        play.says = says;
        play.run();
        play
    };
    let yes = attended(Approval::Approved);
    assert_eq!(yes.asked, ["rye.execute.tool.a.look with {\"x\":1}"]);
    assert_eq!(yes.dispatched.iter().flatten().count(), 3);
    let no = attended(Approval::Refused);
    assert_eq!(
        no.results()[1].1,
        "permission denied: rye.execute.tool.a.look was not approved: the user denied the call"
    );
    assert_eq!((no.dispatched.len(), no.ended().status), (2, Status::Completed));
    assert_eq!(attended(Approval::Suspended).ended().status, Status::Suspended);
}

#[test]
fn unreadable_risk_table_refuses_every_call() {
    for table in [json!("all safe"), json!({"risk_levels": {"elevated": {"policy": "whatever"}}})] {
        let mut plan = plan();
        set_setting(&mut plan, "capability_risk", table);
        let mut play = SimulatedThread::new(plan, vec![calls(&[call("a_look", json!({}))]), text("done")]);
        play.run();
        assert!(play.results()[0].1.starts_with("permission denied: the risk table"), "{:?}", play.results());
        assert_eq!(play.dispatched.iter().flatten().count(), 0);
    }
}

/// Law: the graph determines every successor. If an edge is rewired, the run follows it.
#[test]
fn rewired_edges_are_followed() {
    let list = || vec![calls(&[call("a_write", json!({})), call("a_write", json!({}))]), text("done")];
    let count = |play: &SimulatedThread, name: &str| play.names().iter().filter(|n| **n == name).count();
    for (node, outcome, turns, started) in [
        (Node::Start, Outcome::Ready, 0, 0),
        (Node::Inbox, Outcome::Prompt, 0, 0),
        (Node::Inbox, Outcome::Clear, 1, 2),
        (Node::Limits, Outcome::Within, 0, 0),
        (Node::Model, Outcome::Calls, 1, 0),
        (Node::Gate, Outcome::Allowed, 1, 0),
        (Node::Tools, Outcome::Finished, 1, 1),
        (Node::Guard, Outcome::More, 1, 1),
        (Node::Guard, Outcome::Done, 1, 2),
        (Node::Context, Outcome::Fits, 0, 0),
    ] {
        let mut plan = plan();
        rewire(&mut plan, node, outcome, Node::Finish);
        let mut play = SimulatedThread::new(plan, list());
        play.run();
        assert_eq!(play.ended().cost.turns, turns, "{node} {outcome}");
        assert_eq!(count(&play, "tool_started"), started, "{node} {outcome}");
    }
    let mut plan = plan();
    rewire(&mut plan, Node::Model, Outcome::Text, Node::Limits);
    plan.limits.turns = 3;
    let mut play = SimulatedThread::new(plan, (0..5).map(|_| text("again")).collect());
    play.run();
    assert_eq!(play.ended().error.as_ref().unwrap().code, "turns_exceeded");
}

#[test]
fn missing_edge_ends_the_thread() {
    let mut plan = plan();
    plan.graph.0.get_mut(&Node::Limits).unwrap().remove(&Outcome::Within);
    let mut play = SimulatedThread::new(plan, vec![text("never")]);
    play.run();
    assert_eq!(play.ended().error.as_ref().unwrap().code, "plan_unsound");
    let mut endless = super::fixture::plan();
    rewire(&mut endless, Node::Inbox, Outcome::Prompt, Node::Start);
    rewire(&mut endless, Node::Inbox, Outcome::Clear, Node::Start);
    let mut play = SimulatedThread::new(endless, vec![text("never")]);
    play.run();
    assert_eq!(play.ended().error.as_ref().unwrap().code, "plan_unsound");
}

/// Every prefix of a run folds to a state that continues to the same end.
#[test]
fn recovery_from_every_prefix_reaches_the_same_end() {
    let replies = || {
        vec![
            calls(&[call("a_read", json!({})), call("a_look", json!({}))]),
            calls(&[call("a_write", json!({}))]),
            text("done"),
        ]
    };
    let mut whole = SimulatedThread::new(plan(), replies());
    whole.run();
    for cut in 2..whole.events.len() {
        let mut state = ThreadState::new();
        for event in &whole.events[..cut] {
            apply(&mut state, event);
        }
        let asked = whole.events[..cut].iter().filter(|e| matches!(e.body, EventBody::CognitionOut(_))).count();
        let mut play = SimulatedThread::new(plan(), replies().into_iter().skip(asked).collect());
        play.state = state;
        play.events = whole.events[..cut].to_vec();
        play.now = 5_000_000;
        play.signal(Fact::Recovered { owner: "o".into(), cut_bytes: 0 });
        while play.step() {}
        assert_eq!(play.ended().result.as_deref(), Some("done"), "cut at {cut}");
        assert_eq!(play.ended().cost.turns, 3, "cut at {cut}");
        let unknown: u64 = play
            .events
            .iter()
            .filter_map(|e| match &e.body {
                EventBody::Settled(s) if s.unknown_outcome => Some(s.amount),
                _ => None,
            })
            .sum();
        assert_eq!(play.ended().cost.spend, 360_000 + unknown, "cut at {cut}");
        let interrupted = play.results().iter().filter(|(why, _)| *why == ResultKind::Interrupted).count();
        let mut lost = whole.events[..cut].iter().rev();
        let in_write = matches!(lost.next().map(|e| &e.body), Some(EventBody::ToolStarted(t)) if !t.idempotent);
        assert_eq!(interrupted, usize::from(in_write), "cut at {cut}");
        assert!(matches!(next(&play.plan, &play.state), Effect::Done { .. }));
    }
}

#[test]
fn owned_time_excludes_time_between_owners() {
    let mut play = SimulatedThread::new(plan(), vec![text("done")]);
    play.start();
    play.step();
    let used = play.state.clock.elapsed_ms();
    play.now += 10_000_000;
    play.signal(Fact::Recovered { owner: "o".into(), cut_bytes: 0 });
    assert_eq!(play.state.clock.elapsed_ms(), used);
    play.now -= 20_000_000;
    play.step();
    assert!(play.state.clock.elapsed_ms() <= used + 1000);
}
