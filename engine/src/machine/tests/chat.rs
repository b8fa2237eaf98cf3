//! Tests of chats: prompts one after another, their limits, interruption, recovery and the closed session.

use rye_compiler::hook::{HookAction, HookPoint};
use rye_compiler::plan::{PlanLimits, verify::verify_graph};
use serde_json::json;

use crate::event::{
    ContinuedPrompt, Continues, ControlMessage, Delivery, EventBody, HookOutcome, MessageSource, Opened, PromptEnded,
    PromptStatus, ResultKind, ThreadOrigin, UserInput,
};
use crate::exchange::{CallError, Reply, StopReason, Usage};
use crate::machine::fixture::{SimulatedThread, call, calls, into_chat, plan, reply, text, with_hook};
use crate::machine::signal::{CallAnswer, InterruptedReply, ToolFinished};
use crate::machine::state::ChildState;
use crate::machine::{Effect, Fact, ThreadState, apply, next};
use crate::message::{ContentBlock, Message, ProviderMessage, SharedMessage, text_of};
use crate::thread::Status;

/// Returns a chat with these prompts. A session has the limits of ten prompts.
pub(super) fn chat(replies: Vec<Result<Reply, CallError>>, prompts: &[&str]) -> SimulatedThread {
    chat_of(plan(), replies, prompts)
}

pub(super) fn chat_of(
    mut plan: rye_compiler::plan::Plan,
    replies: Vec<Result<Reply, CallError>>,
    prompts: &[&str],
) -> SimulatedThread {
    let l = plan.limits;
    let ten = PlanLimits {
        turns: l.turns * 10,
        tokens: l.tokens * 10,
        spend: l.spend * 10,
        spawns: l.spawns * 10,
        duration_seconds: l.duration_seconds * 10,
        ..l
    };
    into_chat(&mut plan, ten);
    assert_eq!(verify_graph(&plan.graph), []);
    let mut play = SimulatedThread::new(plan, replies);
    play.prompts = prompts.iter().map(|text| (*text).to_owned()).collect();
    play
}

pub(super) fn ended_prompts(play: &SimulatedThread) -> Vec<&PromptEnded> {
    let ended = play.events.iter().filter_map(|event| match &event.body {
        EventBody::PromptEnded(ended) => Some(&**ended),
        _ => None,
    });
    ended.collect()
}

pub(super) fn statuses(play: &SimulatedThread) -> Vec<(PromptStatus, Option<&str>)> {
    ended_prompts(play).into_iter().map(|ended| (ended.status, ended.code.as_deref())).collect()
}

/// Returns the texts of the user messages of a request.
pub(super) fn user_texts(play: &SimulatedThread, request: usize) -> Vec<String> {
    let turns = play.requests[request].turns.iter();
    let texts = turns.filter_map(|turn| match turn.for_provider()? {
        ProviderMessage::User { content } => Some(text_of(content).into_string()),
        ProviderMessage::Assistant { .. } | ProviderMessage::ToolResult { .. } => None,
    });
    texts.collect()
}

#[test]
fn prompts_run_one_after_another_and_the_closed_session_is_idle() {
    let mut play = chat(vec![text("one"), text("two")], &["first", "second"]);
    play.run();
    assert_eq!(play.requests.len(), 2);
    assert!(user_texts(&play, 0)[0].ends_with("first"), "{:?}", user_texts(&play, 0));
    assert_eq!(user_texts(&play, 1)[1..], ["second"]);
    assert_eq!(statuses(&play), [(PromptStatus::Done, None), (PromptStatus::Done, None)]);
    assert_eq!(ended_prompts(&play)[1].cost.turns, 1);
    assert_eq!((play.ended().status, play.ended().cost.turns), (Status::Idle, 2));
}

#[test]
fn a_chat_without_prompts_makes_no_model_call() {
    let mut play = chat(Vec::new(), &[]);
    play.run();
    assert_eq!((play.requests.len(), play.ended().status), (0, Status::Idle));
    assert!(!play.names().contains(&"system_prompt"));
}

#[test]
fn a_request_has_the_messages_of_the_request_before_as_its_prefix() {
    let mut play = chat(vec![text("one"), text("two"), text("three")], &["a", "b", "c"]);
    play.run();
    for pair in play.requests.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        assert_eq!(before.system, after.system);
        assert_eq!(after.turns[..before.turns.len()], before.turns[..]);
    }
}

#[test]
fn limits_bound_each_prompt_and_the_session() {
    let scan = || calls(&[call("a_read", json!({}))]);
    let mut plan = plan();
    plan.limits.turns = 2;
    let replies = vec![scan(), scan(), scan(), text("four")];
    let mut play = chat_of(plan.clone(), replies.clone(), &["a", "b"]);
    play.run();
    // The first prompt uses its two turns; the second prompt has two turns of its own.
    assert_eq!(statuses(&play), [(PromptStatus::Limit, Some("turns_exceeded")), (PromptStatus::Done, None)]);
    assert_eq!(play.requests.len(), 4);

    let mut play = chat_of(plan, replies, &["a", "b"]);
    play.plan.session_limits.as_mut().unwrap().turns = 3;
    play.run();
    assert_eq!(statuses(&play)[1], (PromptStatus::Limit, Some("turns_exceeded")));
    assert_eq!((play.requests.len(), play.ended().cost.turns), (3, 3));
}

#[test]
fn spend_of_a_prompt_stays_within_its_limit() {
    // A reply costs 120,000 nano-dollars; the worst case of a call is far above.
    for prompts in 1..6 {
        let names = vec!["more"; prompts];
        let mut play = chat((0..60).map(|_| calls(&[call("a_read", json!({}))])).collect(), &names);
        play.plan.limits.spend = 10_000_000;
        play.plan.session_limits.as_mut().unwrap().spend = 25_000_000;
        play.run();
        let spends: Vec<u64> = ended_prompts(&play).iter().map(|ended| ended.cost.spend).collect();
        assert!(spends.iter().all(|spend| *spend <= 10_000_000), "{spends:?}");
        assert!(spends.iter().sum::<u64>() <= 25_000_000, "{spends:?}");
    }
}

#[test]
fn descendant_that_outlives_its_parent_counts_against_its_prompt_only() {
    let child = || call("rye_execute", json!({"item_type": "directive", "item_id": "test/child"}));
    let replies = vec![calls(&[child()]), text("never requested"), text("two")];
    let mut play = chat(replies, &["one", "two"]);
    let limit = play.plan.limits.spend;
    // The child has ended, and its own child holds all but 1,000 nano-dollars of the prompt's limit.
    play.child_cost.outstanding = limit - 2 * 120_000 - 500 - 1_000;
    play.run();
    assert_eq!(statuses(&play), [(PromptStatus::Limit, Some("spend_exceeded")), (PromptStatus::Done, None)]);
    assert_eq!(play.requests.len(), 2, "one request for each prompt");
    let ended = ended_prompts(&play);
    assert_eq!((ended[0].cost.outstanding, ended[1].cost.outstanding), (play.child_cost.outstanding, 0));
}

#[test]
fn end_of_a_thread_reports_the_reservations_of_its_living_children() {
    let detached = call("rye_execute", json!({"item_type": "directive", "item_id": "test/child", "async": true}));
    let mut play = SimulatedThread::new(plan(), vec![calls(&[detached]), text("done")]);
    play.run();
    assert_eq!((play.ended().cost.spend, play.ended().cost.outstanding), (2 * 120_000, 1_000));
}

#[test]
fn refusal_ends_only_its_prompt() {
    let refused =
        reply(vec![ContentBlock::Text { text: "no".into() }]).map(|reply| Reply { stop: StopReason::Refusal, ..reply });
    let mut play = chat(vec![refused, text("fine")], &["bad", "good"]);
    play.run();
    assert_eq!(statuses(&play), [(PromptStatus::Error, Some("refused")), (PromptStatus::Done, None)]);
    assert_eq!(play.ended().status, Status::Idle);
}

#[test]
fn handled_prompt_costs_no_model_call_and_starts_no_prompt() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::Input, HookAction::Handled { reply: None });
    let mut play = chat_of(plan, vec![text("one")], &["status?", "work"]);
    let answers =
        [HookOutcome::Handled { reply: None }, HookOutcome::Transformed { text: "work hard".into(), images: None }];
    play.hooks.insert(HookPoint::Input, answers.into());
    play.run();
    assert_eq!(play.requests.len(), 1);
    assert!(user_texts(&play, 0)[0].ends_with("work hard"));
    assert_eq!(statuses(&play), [(PromptStatus::Done, None)]);
}

#[test]
fn before_agent_start_runs_once_per_prompt_and_can_end_it() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::BeforeAgentStart, HookAction::Continue);
    let mut play = chat_of(plan, vec![calls(&[call("a_read", json!({}))]), text("one"), text("two")], &["a", "b", "c"]);
    let stop = HookOutcome::Terminate { status: None, error: None, ends_session: false };
    play.hooks.insert(HookPoint::BeforeAgentStart, [HookOutcome::None, stop].into());
    play.run();
    let runs = play
        .events
        .iter()
        .filter(|event| matches!(&event.body, EventBody::HookPoint(run) if run.point == HookPoint::BeforeAgentStart));
    assert_eq!((runs.count(), play.requests.len()), (3, 3));
    assert_eq!(statuses(&play).len(), 3);
    // A replacement of the system prompt ends with its prompt.
    assert!(play.requests.iter().all(|request| request.system == play.requests[0].system));
}

#[test]
fn terminate_with_session_scope_ends_the_chat_after_its_prompt() {
    for (point, status, expected) in [
        (HookPoint::BeforeAgentStart, None, Status::Error),
        (HookPoint::AfterStep, Some(Status::Cancelled), Status::Cancelled),
        (HookPoint::AgentEnd, Some(Status::Completed), Status::Completed),
    ] {
        let mut plan = plan();
        with_hook(&mut plan, point, HookAction::Continue);
        let mut play = chat_of(plan, vec![text("one"), text("two"), text("three")], &["a", "b", "c"]);
        let stop = HookOutcome::Terminate { status, error: Some("enough".into()), ends_session: true };
        play.hooks.insert(point, [HookOutcome::None, stop].into());
        play.run();
        assert_eq!(statuses(&play).len(), 2, "{point:?}: {:?}", play.names());
        assert_eq!(play.requests.len(), if point == HookPoint::BeforeAgentStart { 1 } else { 2 }, "{point:?}");
        let ended = play.ended();
        assert_eq!(ended.status, expected, "{point:?}");
        let error = ended.error.as_ref().map(|error| (error.code.as_str(), error.message.as_str()));
        assert_eq!(error, (expected == Status::Error).then_some(("terminated", "enough")), "{point:?}");
    }
}

#[test]
fn message_of_a_prompt_without_a_model_call_is_in_no_later_request() {
    let stop = || HookOutcome::Terminate { status: None, error: Some("no".into()), ends_session: false };
    let end = || HookOutcome::Terminate { status: Some(Status::Completed), error: None, ends_session: false };
    let none = || HookOutcome::None;
    // The first message opens the conversation, the second one follows it.
    for (answers, kept) in [
        ([stop(), none(), none()], ["b", "c"]),
        ([none(), stop(), none()], ["a", "c"]),
        ([none(), none(), end()], ["a", "b"]),
    ] {
        let mut plan = plan();
        with_hook(&mut plan, HookPoint::BeforeAgentStart, HookAction::Continue);
        let mut play = chat_of(plan, vec![text("one"), text("two"), text("three")], &["a", "b", "c"]);
        play.hooks.insert(HookPoint::BeforeAgentStart, answers.into());
        play.run();
        assert_eq!((statuses(&play).len(), play.requests.len()), (3, 2), "{kept:?}");
        let texts = user_texts(&play, 1);
        assert_eq!(texts.len(), 2, "{texts:?}");
        for (text, end) in texts.iter().zip(kept) {
            assert!(text.ends_with(end), "{texts:?}");
        }
        let opening = user_texts(&play, 0);
        assert!(opening[0].contains("Say hello."), "{opening:?}");
    }
}

#[test]
fn interruption_at_any_step_ends_the_prompt_and_keeps_the_session() {
    let list = || calls(&[call("a_write", json!({})), call("a_read", json!({}))]);
    for step in 2..14 {
        let mut play = chat(vec![list(), text("one"), text("two")], &["a", "b"]);
        play.messages.push((step, ControlMessage::Interrupt));
        play.run();
        let statuses: Vec<PromptStatus> = ended_prompts(&play).iter().map(|ended| ended.status).collect();
        assert_eq!(statuses.len(), 2, "at step {step}: {:?}", play.names());
        assert!(statuses.iter().filter(|status| **status == PromptStatus::Interrupted).count() <= 1);
        assert_eq!(play.ended().status, Status::Idle, "at step {step}");
        // Each call in the conversation has its result.
        for request in &play.requests {
            let called = |turn: &SharedMessage| match &**turn {
                Message::Assistant { content } => crate::message::calls_in(content).count(),
                _ => 0,
            };
            let asked: usize = request.turns.iter().map(called).sum();
            let answered = request.turns.iter().filter(|turn| turn.kind() == "tool_result").count();
            assert_eq!(asked, answered, "at step {step}");
        }
    }
}

/// Steps until the next effect is a model call.
fn to_the_model_call(play: &mut SimulatedThread) {
    while !matches!(next(&play.plan, &play.state), Effect::CallModel { .. }) {
        assert!(play.step());
    }
}

fn interrupt(play: &mut SimulatedThread) {
    play.signal(Fact::Mail { id: "stop".into(), message: ControlMessage::Interrupt });
}

#[test]
fn text_of_an_interrupted_reply_is_a_message_of_the_next_request() {
    let mut play = chat(vec![text("two")], &["a", "b"]);
    play.start();
    to_the_model_call(&mut play);
    interrupt(&mut play);
    assert!(
        play.signal(Fact::ReplyInterrupted(Box::new(InterruptedReply { text: "word0 word1 ".into(), usage: None })))
            > 0
    );
    assert_eq!(statuses(&play), [(PromptStatus::Interrupted, None)]);
    // The folded events of the transcript give the same state.
    let mut folded = ThreadState::new();
    play.events.iter().for_each(|event| apply(&mut folded, event));
    assert_eq!(folded, play.state);
    while play.step() {}
    let replies: Vec<String> = play.requests[0]
        .turns
        .iter()
        .filter_map(|turn| {
            if let Message::Assistant { content } = &**turn { Some(text_of(content).into_string()) } else { None }
        })
        .collect();
    assert_eq!(replies, ["word0 word1\n\n[The user interrupted this reply.]"]);
    assert_eq!(user_texts(&play, 0)[1..], ["b"]);
}

#[test]
fn interrupted_reply_with_a_final_usage_costs_this_usage() {
    let usage = Usage { input: 7, output: 3, cache_read: 0, cache_write: 0 };
    for text in ["word0", ""] {
        let mut play = chat(vec![], &["a"]);
        play.start();
        to_the_model_call(&mut play);
        interrupt(&mut play);
        play.signal(Fact::ReplyInterrupted(Box::new(InterruptedReply { text: text.into(), usage: Some(usage) })));
        while play.step() {}
        let settled: Vec<_> = play
            .events
            .iter()
            .filter_map(|event| if let EventBody::Settled(one) = &event.body { Some(one) } else { None })
            .collect();
        let [settled] = settled.as_slice() else { panic!("{settled:?}") };
        assert_eq!((settled.usage, settled.unknown_outcome), (usage, false));
        assert_eq!(statuses(&play), [(PromptStatus::Interrupted, None)]);
    }
}

#[test]
fn text_of_a_reply_without_an_interruption_is_not_recorded() {
    let mut play = chat(vec![text("one")], &["a"]);
    play.start();
    to_the_model_call(&mut play);
    assert_eq!(
        play.signal(Fact::ReplyInterrupted(Box::new(InterruptedReply { text: "word0".into(), usage: None }))),
        0
    );
}

#[test]
fn output_of_an_interrupted_call_is_its_result() {
    let mut play = chat(vec![calls(&[call("a_write", json!({}))]), text("two")], &["a", "b"]);
    play.start();
    while !matches!(next(&play.plan, &play.state), Effect::RunTools(_)) {
        assert!(play.step());
    }
    interrupt(&mut play);
    let answer = CallAnswer::text("line 1\n[interrupted: outcome unknown]", true);
    play.signal(Fact::ToolInterrupted(Box::new(ToolFinished { index: 0, answer, duration_ms: 1 })));
    while play.step() {}
    assert_eq!(play.results(), [(ResultKind::Interrupted, "line 1\n[interrupted: outcome unknown]".to_owned())]);
    assert_eq!(statuses(&play)[0], (PromptStatus::Interrupted, None));
}

#[test]
fn recovery_ends_the_prompt_and_makes_no_model_call() {
    let whole = chat(vec![calls(&[call("a_write", json!({}))]), text("one")], &["a"]).run().events.clone();
    let replies = || vec![text("again")];
    for cut in 3..whole.len() {
        let mut play = chat(replies(), &[]);
        play.start();
        play.events.clear();
        play.state = crate::machine::ThreadState::new();
        for event in &whole[..cut] {
            crate::machine::apply(&mut play.state, event);
            play.events.push(event.clone());
        }
        // Control messages have ids of their own.
        play.steps = 500;
        play.now += 1_000_000;
        let was_open = play.state.chat.as_ref().is_some_and(|chat| chat.current.is_some());
        play.signal(Fact::Recovered { owner: "other".into(), cut_bytes: 0 });
        assert!(play.state.is_idle(), "after {cut} events");
        let waits = next(&play.plan, &play.state);
        while play.step() {}
        assert_eq!(play.requests.len(), 0, "after {cut} events: {waits:?}");
        assert_eq!(play.ended().status, Status::Idle);
        if was_open {
            assert_eq!(ended_prompts(&play).last().map(|ended| ended.status), Some(PromptStatus::Interrupted));
        }
    }
}

#[test]
fn prompt_that_waited_at_a_crash_is_held() {
    let mut play = chat(vec![text("one")], &[]);
    play.start();
    play.signal(Fact::Mail {
        id: "a".into(),
        message: ControlMessage::Submit { input: "typed".into(), delivery: Delivery::Prompt },
    });
    play.signal(Fact::Recovered { owner: "other".into(), cut_bytes: 0 });
    while play.step() {}
    assert_eq!(play.requests.len(), 0);
    let held: Vec<&str> = play.state.chat.iter().flat_map(|chat| &chat.held).map(|held| held.text.as_str()).collect();
    assert_eq!(held, ["typed"]);
}

#[test]
fn closed_session_opens_again_with_the_same_conversation() {
    let mut play = chat(vec![text("one"), text("two")], &["a"]);
    play.run();
    assert_eq!(play.ended().status, Status::Idle);
    play.prompts.push_back("b".into());
    play.now += 3_600_000;
    play.signal(Fact::Recovered { owner: "other".into(), cut_bytes: 0 });
    while play.step() {}
    assert_eq!(play.requests.len(), 2);
    assert_eq!(play.requests[1].turns[..1], play.requests[0].turns[..1]);
    let prompts = play
        .events
        .iter()
        .filter(|event| matches!(&event.body, EventBody::CognitionIn(input) if input.source == MessageSource::Prompt));
    assert_eq!(prompts.count(), 2);
    // Neither the hour in which the session was closed nor the wait for a prompt counts as owned time.
    assert!(play.state.clock.elapsed_ms() < 1_000, "{}", play.state.clock.elapsed_ms());
}

#[test]
fn failed_input_hook_ends_its_prompt_and_keeps_the_session() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::Input, HookAction::Handled { reply: None });
    let mut play = chat_of(plan, vec![text("one")], &["bad", "good"]);
    let failed = HookOutcome::Failed { hook: "hook_0".into(), error: "no".into() };
    play.hooks.insert(HookPoint::Input, [failed, HookOutcome::None].into());
    play.run();
    assert_eq!(statuses(&play), [(PromptStatus::Error, Some("hook_failed")), (PromptStatus::Done, None)]);
    assert_eq!(ended_prompts(&play)[0].unsent, ["bad"]);
    assert_eq!((play.requests.len(), play.ended().status), (1, Status::Idle));
}

#[test]
fn continuation_finishes_the_prompt_within_its_remaining_limits() {
    let mut play = chat(vec![calls(&[call("a_read", json!({}))]), text("never")], &[]);
    let launch = Opened { origin: ThreadOrigin::Handoff, ..play.opened() };
    let limits = PlanLimits { turns: 1, ..play.plan.limits };
    let prompt = Some(ContinuedPrompt { number: 3, limits, capped: false });
    let message = Some("continue".into());
    let (thread, at_h, queue) = ("test/hello-0".into(), "h".into(), Vec::new());
    let continues = Continues { thread, at_seq: 1, at_h, message, prompt, queue, ..Continues::default() };
    play.signal(Fact::Opened {
        launch: Box::new(launch),
        plan_id: "plan".into(),
        continues: Some(Box::new(continues)),
    });
    // This prompt waited in the continued thread.
    play.signal(Fact::Mail {
        id: "q".into(),
        message: ControlMessage::Submit { input: "later".into(), delivery: Delivery::Prompt },
    });
    while play.step() {}
    let numbers: Vec<u64> = ended_prompts(&play).iter().map(|ended| ended.prompt).collect();
    assert_eq!(numbers, [3, 4]);
    assert_eq!(statuses(&play)[0], (PromptStatus::Limit, Some("turns_exceeded")));
    assert_eq!(user_texts(&play, 0).last().map(String::as_str), Some("continue"));
    assert_eq!(user_texts(&play, 1).last().map(String::as_str), Some("later"));
}

#[test]
fn interruption_of_a_run_and_of_an_idle_chat_changes_nothing() {
    for step in 0..8 {
        let mut play = SimulatedThread::new(plan(), vec![calls(&[call("a_write", json!({}))]), text("one")]);
        play.messages.push((step, ControlMessage::Interrupt));
        play.run();
        assert!(!play.state.is_interrupted());
        assert_eq!((play.ended().status, play.requests.len()), (Status::Completed, 2), "at step {step}");
    }
    let mut play = chat(vec![text("one")], &["a"]);
    play.messages.push((0, ControlMessage::Interrupt));
    play.run();
    assert_eq!(statuses(&play), [(PromptStatus::Done, None)]);
}

#[test]
fn interruption_of_a_settled_chat_is_not_recorded() {
    let mut play = chat(vec![text("one")], &[]);
    play.start();
    let interrupt = |play: &mut SimulatedThread, id: &str| {
        play.signal(Fact::Mail { id: id.into(), message: ControlMessage::Interrupt });
        play.state.mailbox.received.contains(id)
    };
    assert!(!interrupt(&mut play, "before"));
    let submitted = ControlMessage::Submit { input: UserInput::text("first"), delivery: Delivery::Prompt };
    play.signal(Fact::Mail { id: "a".into(), message: submitted });
    while !play.state.is_settled_chat() {
        assert!(play.step());
    }
    assert!(!interrupt(&mut play, "after"));
    play.signal(Fact::Mail { id: "c".into(), message: ControlMessage::Compact { focus: None } });
    assert!(interrupt(&mut play, "compaction"));
    assert_eq!(statuses(&play), [(PromptStatus::Done, None)]);
}

#[test]
fn steering_at_idle_is_a_prompt_and_during_a_prompt_a_message() {
    let mut play = chat(vec![calls(&[call("a_read", json!({}))]), text("one"), text("two")], &["a"]);
    play.start();
    play.signal(Fact::Mail { id: "s".into(), message: ControlMessage::Steer { text: "typed first".into() } });
    play.messages.push((7, ControlMessage::Steer { text: "hurry".into() }));
    while play.step() {}
    let sources: Vec<MessageSource> = play
        .events
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::CognitionIn(input) => Some(input.source),
            _ => None,
        })
        .collect();
    assert_eq!(sources, [MessageSource::Prompt, MessageSource::Steer, MessageSource::Prompt]);
}

#[test]
fn agent_end_hooks_run_once_per_prompt_after_both_queues_are_empty() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::AgentEnd, HookAction::Continue);
    for step in 2..22 {
        let replies = ["one", "two", "three", "four", "five"].into_iter().map(text);
        let replies = [calls(&[call("a_read", json!({}))])].into_iter().chain(replies).collect();
        let mut play = chat_of(plan.clone(), replies, &["a", "b"]);
        let (steer, follow_up) = ("hurry".to_owned(), "and then".to_owned());
        play.messages =
            vec![(step, ControlMessage::FollowUp { text: follow_up }), (step, ControlMessage::Steer { text: steer })];
        play.run();
        // Of each prompt: the number of `agent_end` hook points, and true if no message followed them.
        let mut prompts: Vec<(usize, bool)> = Vec::new();
        for event in &play.events {
            match (&event.body, prompts.last_mut()) {
                (EventBody::PromptStarted(_), _) => prompts.push((0, false)),
                (EventBody::HookPoint(run), Some(prompt)) if run.point == HookPoint::AgentEnd => {
                    *prompt = (prompt.0 + 1, true);
                }
                (EventBody::CognitionIn(_), Some(prompt)) => prompt.1 = false,
                _ => {}
            }
        }
        assert!(prompts.len() >= 2 && prompts.iter().all(|prompt| *prompt == (1, true)), "at step {step}: {prompts:?}");
        assert_eq!(prompts.len(), statuses(&play).len(), "at step {step}");
        let sent: usize = (0..play.requests.len()).map(|n| user_texts(&play, n).len()).max().unwrap();
        assert_eq!(sent, 4, "each message is sent once, at step {step}");
    }
}

#[test]
fn idle_chat_waits_for_its_children_although_the_duration_of_the_session_is_over() {
    let mut play = chat(vec![text("one")], &["first"]);
    play.start();
    while !matches!(next(&play.plan, &play.state), Effect::Wait) || !play.prompts.is_empty() {
        assert!(play.step());
    }
    let child = ChildState {
        index: Some(0),
        directive: "child".into(),
        thread_id: Some("child-1".into()),
        last_thread_id: None,
        spend: 0,
        prompt: None,
        detached: false,
        tool: false,
        refused: false,
        ended: None,
    };
    play.state.children.insert(1, child);
    play.state.limits.duration_seconds = 0;
    play.state.thread_limits.duration_seconds = 0;
    assert!(matches!(next(&play.plan, &play.state), Effect::Await(children) if children.len() == 1));
}

#[test]
fn clock_that_is_set_back_ends_no_prompt_and_lengthens_none() {
    let read = || calls(&[call("a_read", json!({}))]);
    let mut play = chat(vec![read(), text("one"), read(), text("two")], &["a", "b"]);
    play.start();
    let mut step = 0;
    while play.step() {
        step += 1;
        // The clock goes back by an hour during each of the prompts.
        if step == 6 || step == 16 {
            play.now -= 3_600_000;
        }
    }
    assert_eq!(statuses(&play), [(PromptStatus::Done, None), (PromptStatus::Done, None)]);
    assert!(play.state.clock.elapsed_ms() < 60_000, "{}", play.state.clock.elapsed_ms());
}
