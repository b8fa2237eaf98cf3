//! Tests of `input` hooks, which see a message before it has any effect, and of `tool_result` hooks, which see only
//! results of calls that ran.

use rye_compiler::hook::{HookAction, HookPoint};
use serde_json::json;

use crate::event::{Continues, ControlMessage, EventBody, HookOutcome, Opened, ResultKind, ThreadOrigin};
use crate::exchange::{CallError, Reply};
use crate::machine::Fact;
use crate::machine::fixture::{SimulatedThread, call, calls, plan, text, with_hook};
use crate::message::{ProviderMessage, text_of};
use crate::thread::Status;

/// Returns a thread whose plan has an `input` hook with these answers, in order.
fn thread(replies: Vec<Result<Reply, CallError>>, answers: &[HookOutcome]) -> SimulatedThread {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::Input, HookAction::Handled { reply: None });
    let mut play = SimulatedThread::new(plan, replies);
    play.hooks.insert(HookPoint::Input, answers.iter().cloned().collect());
    play
}

fn last_user_text(play: &SimulatedThread, request: usize) -> String {
    let users = play.requests[request].turns.iter().rev();
    let texts = users.filter_map(|turn| match turn.for_provider()? {
        ProviderMessage::User { content } => Some(text_of(content)),
        ProviderMessage::Assistant { .. } | ProviderMessage::ToolResult { .. } => None,
    });
    texts.into_iter().next().unwrap().into_string()
}

fn steer(text: &str) -> ControlMessage {
    ControlMessage::Steer { text: text.into() }
}

#[test]
fn handled_follow_up_costs_no_model_call() {
    for step in 2..7 {
        let mut play = thread(vec![text("one"), text("two")], &[HookOutcome::Handled { reply: None }]);
        play.messages.push((step, ControlMessage::FollowUp { text: "status?".into() }));
        play.run();
        assert_eq!((play.requests.len(), play.ended().result.as_deref()), (1, Some("one")), "at step {step}");
    }
}

#[test]
fn handled_steering_message_skips_no_calls() {
    let list = [call("a_write", json!({})), call("a_write", json!({}))];
    let mut play = thread(vec![calls(&list), text("done")], &[HookOutcome::Handled { reply: None }]);
    play.messages.push((6, steer("never mind")));
    play.run();
    assert_eq!(play.dispatched.len(), 2);
    assert!(play.results().iter().all(|(why, _)| *why == ResultKind::Ran), "{:?}", play.results());
    assert_eq!((play.requests.len(), play.ended().status), (2, Status::Completed));
}

#[test]
fn transformed_messages_keep_their_order() {
    let answer = |text: &str| HookOutcome::Transformed { text: text.into(), images: None };
    let answers = [answer("first"), answer("second")];
    let mut play = thread(vec![calls(&[call("a_read", json!({}))]), text("one"), text("two")], &answers);
    play.messages.push((3, ControlMessage::FollowUp { text: "b".into() }));
    play.messages.push((4, steer("a")));
    play.run();
    assert_eq!((last_user_text(&play, 1), last_user_text(&play, 2)), ("second".to_owned(), "first".to_owned()));
}

#[test]
fn message_waits_while_an_approval_is_open() {
    let mut play = thread(vec![text("done")], &[HookOutcome::Handled { reply: None }]);
    play.start();
    while play.requests.is_empty() {
        assert!(play.step());
    }
    play.state.question = Some(crate::machine::state::OpenApprovalRequest {
        seq: 1,
        origin: rye_compiler::plan::ApprovalOrigin::Call,
        what: "x".into(),
        raise: None,
    });
    play.signal(Fact::Mail { id: "m".into(), message: steer("later") });
    assert!(crate::machine::screen::screen_queued(&play.plan, &play.state).is_none());
    play.state.question = None;
    assert!(crate::machine::screen::screen_queued(&play.plan, &play.state).is_some());
}

/// Starts a thread that resumes another one with a message.
fn resume(play: &mut SimulatedThread) {
    let launch = Opened { origin: ThreadOrigin::Resume, ..play.opened() };
    let continues = Continues {
        thread: "test/hello-0".into(),
        at_seq: 1,
        at_h: "h".into(),
        message: Some("go on".into()),
        ..Continues::default()
    };
    play.signal(Fact::Opened { launch: Box::new(launch), plan_id: "p".into(), continues: Some(Box::new(continues)) });
    while play.step() {}
}

#[test]
fn message_of_a_resume_passes_the_hooks_of_a_prompt() {
    let mut play =
        thread(vec![text("done")], &[HookOutcome::Transformed { text: "go on, carefully".into(), images: None }]);
    with_hook(&mut play.plan, HookPoint::BeforeAgentStart, HookAction::Handled { reply: None });
    let prepared = HookOutcome::Prepared { messages: Vec::new(), system: Some("You resume.".into()) };
    play.hooks.insert(HookPoint::BeforeAgentStart, [prepared].into());
    resume(&mut play);
    assert!(last_user_text(&play, 0).ends_with("go on, carefully"), "{:?}", play.requests[0].turns);
    assert_eq!(&*play.requests[0].system, "You resume.");
    let runs = play.events.iter().filter_map(|event| {
        let EventBody::HookPoint(run) = &event.body else { return None };
        Some((run.point, run.subject.clone()))
    });
    let runs: Vec<_> = runs.collect();
    assert_eq!(runs, [(HookPoint::Input, Some("resume".to_owned())), (HookPoint::BeforeAgentStart, None)]);
}

#[test]
fn handled_message_of_a_resume_costs_no_model_call() {
    let mut play = thread(vec![text("done")], &[HookOutcome::Handled { reply: None }]);
    resume(&mut play);
    assert_eq!((play.requests.len(), play.ended().status), (0, Status::Completed));
}

#[test]
fn images_of_a_hook_replace_those_of_a_resume() {
    let image = |name: &str| {
        let (media_type, sha256) = ("image/png".to_owned(), name.to_owned());
        crate::image::ImageRef { media_type, sha256, bytes: 1, width: 1, height: 1, data: String::new() }
    };
    let answer = HookOutcome::Transformed { text: "go on".into(), images: Some(vec![image("new")]) };
    let mut play = thread(vec![text("done")], &[answer]);
    resume(&mut play);
    let turn = play.requests[0].turns.last().unwrap();
    let crate::message::Message::User { content } = &**turn else { panic!("{turn:?}") };
    assert_eq!(content[0], crate::message::ContentBlock::Image(image("new")));
}

#[test]
fn tool_result_hooks_run_only_for_calls_that_ran() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::ToolResult, HookAction::Handled { reply: None });
    let list = [call("a_write", json!({})), call("a_write", json!({})), call("unknown", json!({}))];
    let mut play = SimulatedThread::new(plan, vec![calls(&list), text("done")]);
    play.messages.push((6, steer("stop that")));
    let changed = HookOutcome::Modify { content: Some("changed".into()), is_error: None, details: None };
    play.hooks.insert(HookPoint::ToolResult, vec![changed; 3].into());
    play.run();
    let ran = play.results().iter().filter(|(why, _)| *why == ResultKind::Ran).count();
    let hooked = play
        .events
        .iter()
        .filter(|event| matches!(&event.body, EventBody::HookPoint(run) if run.point == HookPoint::ToolResult));
    assert_eq!((ran, hooked.count()), (1, 1));
    let results = play.requests[1].turns.iter().filter_map(|turn| match turn.for_provider()? {
        ProviderMessage::ToolResult { content, .. } => Some(content),
        ProviderMessage::User { .. } | ProviderMessage::Assistant { .. } => None,
    });
    let results: Vec<&str> = results.collect();
    assert_eq!(results.iter().filter(|text| **text == "changed").count(), 1, "{results:?}");
    assert!(results.contains(&"Skipped due to queued user message"), "{results:?}");
}

#[test]
fn hooks_of_a_call_run_in_their_order() {
    let mut plan = plan();
    let points =
        [HookPoint::ToolResult, HookPoint::ToolExecutionEnd, HookPoint::ToolExecutionStart, HookPoint::ToolCall];
    for point in points {
        with_hook(&mut plan, point, HookAction::Continue);
    }
    let list = [call("a_write", json!({})), call("a_write", json!({"n": 2}))];
    let mut play = SimulatedThread::new(plan, vec![calls(&list), text("done")]);
    let answers = [HookOutcome::None, HookOutcome::Block { reason: "no".into() }];
    play.hooks.insert(HookPoint::ToolCall, answers.into());
    play.run();
    let ran: Vec<HookPoint> = play
        .events
        .iter()
        .filter_map(|event| if let EventBody::HookPoint(run) = &event.body { Some(run.point) } else { None })
        .filter(|point| points.contains(point))
        .collect();
    // The hooks of the first call, then those of the second, which does not run.
    assert_eq!(
        ran,
        [
            HookPoint::ToolCall,
            HookPoint::ToolExecutionStart,
            HookPoint::ToolExecutionEnd,
            HookPoint::ToolResult,
            HookPoint::ToolCall
        ]
    );
    let names = play.names();
    assert!(
        names.iter().position(|name| *name == "tool_started")
            < names.iter().position(|name| *name == "tool_call_result")
    );
}
