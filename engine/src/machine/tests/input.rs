//! Tests of the messages of a chat: intake, order of delivery, withdrawal, and the queue of a continuation.

use rye_compiler::hook::{HookAction, HookPoint};
use serde_json::json;

use super::chat::{chat, chat_of, ended_prompts, statuses, user_texts};
use crate::event::PromptBounds;
use crate::event::{
    AcceptedInput, Continues, ControlMessage, Delivery, EventBody, HookOutcome, InputSource, MessageSource, Opened,
    PromptStatus, QueuedMessage, ThreadOrigin, UserInput,
};
use crate::image::ImageRef;
use crate::live_state::LiveState;
use crate::machine::Fact;
use crate::machine::fixture::{SimulatedThread, call, calls, plan, text, with_hook};
use crate::message::{ContentBlock, Message, ProviderMessage};
use crate::preview::{Preview, preview, preview_request};

fn submit(text: &str, delivery: Delivery) -> ControlMessage {
    ControlMessage::Submit { input: text.into(), delivery }
}

fn receive(play: &mut SimulatedThread, id: &str, message: ControlMessage) {
    play.signal(Fact::Mail { id: id.into(), message });
}

fn accepted(play: &SimulatedThread) -> Vec<&AcceptedInput> {
    let inputs = play.events.iter().filter_map(|event| match &event.body {
        EventBody::UserInput(input) => Some(&**input),
        _ => None,
    });
    inputs.collect()
}

fn sources(play: &SimulatedThread) -> Vec<MessageSource> {
    let sources = play.events.iter().filter_map(|event| match &event.body {
        EventBody::CognitionIn(input) => Some(input.source),
        _ => None,
    });
    sources.collect()
}

#[test]
fn each_message_is_accepted_once_before_the_model_gets_it() {
    let mut play = chat(vec![calls(&[call("a_read", json!({}))]), text("one"), text("two")], &["a", "b"]);
    play.messages.push((7, submit("hurry", Delivery::Steer)));
    play.run();
    let received: Vec<(&str, Delivery)> =
        accepted(&play).into_iter().map(|input| (input.text.as_str(), input.delivery)).collect();
    assert_eq!(received, [("a", Delivery::Prompt), ("hurry", Delivery::Steer), ("b", Delivery::Prompt)]);
    let position = |name: &str| play.names().iter().position(|one| *one == name).unwrap();
    assert!(position("user_input") < position("cognition_in"));
}

#[test]
fn transformed_message_keeps_its_typed_text_and_its_images() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::Input, HookAction::Handled { reply: None });
    let mut play = chat_of(plan, vec![text("one")], &[]);
    play.hooks.insert(HookPoint::Input, [HookOutcome::Transformed { text: "draw it".into(), images: None }].into());
    play.start();
    let image = ImageRef {
        media_type: "image/png".into(),
        sha256: "s".into(),
        bytes: 1,
        width: 1,
        height: 1,
        data: String::new(),
    };
    let input = UserInput {
        text: "/skill:draw".into(),
        images: vec![image.clone()],
        source: InputSource::Rpc,
        bounds: PromptBounds::default(),
    };
    receive(&mut play, "x", ControlMessage::Submit { input, delivery: Delivery::Prompt });
    while play.step() {}
    let received = accepted(&play)[0];
    assert_eq!((received.raw.as_str(), received.text.as_str(), received.id.as_str()), ("/skill:draw", "draw it", "x"));
    assert_eq!((received.source, &received.images), (InputSource::Rpc, &vec![image.clone()]));
    let first = &play.requests[0].turns[0];
    let Some(ProviderMessage::User { content }) = first.for_provider() else { panic!("{first:?}") };
    assert_eq!(content.first(), Some(&ContentBlock::Image(image)));
}

#[test]
fn hooks_see_the_delivery_and_the_source_of_a_message() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::Input, HookAction::Handled { reply: None });
    let mut play = chat_of(plan, vec![text("one")], &[]);
    play.start();
    let input = UserInput { source: InputSource::Extension, ..UserInput::text("hello") };
    receive(&mut play, "x", ControlMessage::Submit { input, delivery: Delivery::NextTurn });
    let Some(crate::machine::Effect::RunHooks(run)) = crate::machine::next_intake(&play.plan, &play.state) else {
        panic!("no intake")
    };
    assert_eq!((&run.facts["source"], &run.facts["delivery"]), (&json!("extension"), &json!("next_turn")));
    assert_eq!(run.subject.as_deref(), Some("x"));
}

#[test]
fn messages_for_the_next_turn_start_no_prompt_and_follow_its_message() {
    let mut play = chat(vec![text("one"), text("two")], &["a", "b"]);
    play.start();
    receive(&mut play, "n1", submit("note", Delivery::NextTurn));
    receive(&mut play, "n2", submit("another", Delivery::NextTurn));
    assert!(play.state.is_idle());
    while play.step() {}
    assert_eq!(user_texts(&play, 0)[1..], ["note", "another"]);
    assert!(user_texts(&play, 0)[0].ends_with('a'));
    assert_eq!(user_texts(&play, 1)[3..], ["b"]);
    let expected = [MessageSource::Prompt, MessageSource::NextTurn, MessageSource::NextTurn, MessageSource::Prompt];
    assert_eq!(sources(&play), expected);
}

#[test]
fn withdrawn_message_is_not_sent() {
    let mut play = chat(vec![text("one"), text("two")], &[]);
    play.start();
    receive(&mut play, "a", submit("first", Delivery::Prompt));
    receive(&mut play, "b", submit("second", Delivery::Prompt));
    receive(&mut play, "c", submit("third", Delivery::Prompt));
    receive(&mut play, "r", ControlMessage::Retract { input: Some("b".into()) });
    receive(&mut play, "s", ControlMessage::Retract { input: Some("unknown".into()) });
    while play.step() {}
    assert_eq!(play.requests.len(), 2);
    assert_eq!(user_texts(&play, 1).last().map(String::as_str), Some("third"));
    let retracted = play.events.iter().filter(|event| matches!(event.body, EventBody::Retracted(_)));
    assert_eq!(retracted.count(), 1);
}

#[test]
fn withdrawal_of_all_messages_keeps_the_started_prompt() {
    for step in 1..8 {
        let mut play = chat(vec![calls(&[call("a_read", json!({}))]), text("one")], &["a"]);
        play.messages.push((step, submit("later", Delivery::FollowUp)));
        play.messages.push((step, ControlMessage::Retract { input: None }));
        play.run();
        let started = play.events.iter().filter(|event| matches!(event.body, EventBody::PromptStarted(_))).count();
        assert_eq!(ended_prompts(&play).len(), started, "at step {step}");
        assert!(play.requests.iter().all(|request| request.turns.len() < 5), "at step {step}");
        let texts: Vec<String> = (0..play.requests.len()).flat_map(|request| user_texts(&play, request)).collect();
        assert!(!texts.iter().any(|text| text == "later"), "at step {step}: {texts:?}");
    }
}

#[test]
fn withdrawal_during_the_intake_sends_nothing() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::Input, HookAction::Handled { reply: None });
    let mut play = chat_of(plan, Vec::new(), &[]);
    play.start();
    receive(&mut play, "a", submit("first", Delivery::Prompt));
    receive(&mut play, "r", ControlMessage::Retract { input: Some("a".into()) });
    let (considered, children, kept, expansions) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (point, subject, answer) = (HookPoint::Input, Some("a".to_owned()), Box::default());
    play.signal(Fact::HooksRan { point, subject, considered, children, answer, objects: Vec::new(), kept, expansions });
    while play.step() {}
    assert_eq!((accepted(&play).len(), play.requests.len()), (0, 0));
}

#[test]
fn message_that_arrives_after_the_last_turn_is_the_next_prompt() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::AgentEnd, HookAction::Continue);
    for step in 2..12 {
        let mut play = chat_of(plan.clone(), vec![text("one"), text("two"), text("three")], &["a", "b"]);
        play.messages.push((step, submit("late", Delivery::Steer)));
        play.run();
        let sent = (0..play.requests.len()).any(|request| user_texts(&play, request).contains(&"late".to_owned()));
        let first = play.events.iter().any(|event| match &event.body {
            EventBody::CognitionIn(input) => matches!(&input.message, Message::User { content }
                if crate::message::text_of(content).ends_with("late")),
            _ => false,
        });
        assert!(sent || first, "at step {step}: {:?}", play.names());
        assert!(statuses(&play).iter().all(|(status, _)| *status == PromptStatus::Done), "at step {step}");
        assert!(ended_prompts(&play).iter().all(|ended| ended.unsent.is_empty()), "at step {step}");
    }
}

#[test]
fn continuation_delivers_the_queue_of_the_continued_thread() {
    let mut play = chat(vec![text("done"), text("again"), text("more")], &[]);
    let launch = Opened { origin: ThreadOrigin::Handoff, ..play.opened() };
    let prompt = Some(crate::event::ContinuedPrompt { number: 3, limits: play.plan.limits, capped: false });
    let of = |id: &str, text: &str, delivery| QueuedMessage {
        accepted: true,
        ..QueuedMessage::new(id, &UserInput::text(text), delivery)
    };
    let queue = vec![of("f", "follow", Delivery::FollowUp), of("p", "later", Delivery::Prompt)];
    let (thread, at_h, message) = ("test/hello-0".into(), "h".into(), Some("continue".into()));
    let continues = Continues { thread, at_seq: 1, at_h, message, prompt, queue, ..Continues::default() };
    play.signal(Fact::Opened {
        launch: Box::new(launch),
        plan_id: "plan".into(),
        continues: Some(Box::new(continues)),
    });
    while play.step() {}
    assert_eq!(play.requests.len(), 3);
    assert_eq!(user_texts(&play, 1).last().map(String::as_str), Some("follow"));
    assert_eq!(user_texts(&play, 2).last().map(String::as_str), Some("later"));
    // The messages were accepted in the continued thread, so this thread does not accept them again.
    assert_eq!(accepted(&play).len(), 0);
}

#[test]
fn crash_holds_messages_for_the_next_turn_too() {
    let mut play = chat(Vec::new(), &[]);
    play.start();
    receive(&mut play, "n", submit("note", Delivery::NextTurn));
    play.signal(Fact::Recovered { owner: "other".into(), cut_bytes: 0 });
    let held: Vec<&str> = play.state.chat.iter().flat_map(|chat| &chat.held).map(|held| held.id.as_str()).collect();
    assert_eq!((held, play.state.queued_messages().count()), (vec!["n"], 0));
}

fn live(play: &SimulatedThread) -> LiveState {
    LiveState { plan: play.plan.clone().into(), state: play.state.clone().into(), previous: None }
}

#[test]
fn preview_is_the_request_that_the_run_sends() {
    let mut play = chat(vec![text("one"), text("two")], &[]);
    play.start();
    for prompt in ["first prompt", "second prompt"] {
        while !matches!(crate::machine::next(&play.plan, &play.state), crate::machine::Effect::Wait) {
            assert!(play.step());
        }
        let before = play.events.len();
        let shown = preview(&live(&play), &prompt.into());
        let request = preview_request(&live(&play), &prompt.into()).unwrap();
        play.prompts.push_back(prompt.into());
        let count = play.requests.len();
        while play.requests.len() == count {
            assert!(play.step());
        }
        let sent = &play.requests[count];
        assert_eq!((&request.system, &request.turns), (&sent.system, &sent.turns));
        let intended = play.events[before..].iter().find_map(|event| match &event.body {
            EventBody::AttemptIntended(intended) => Some(intended.clone()),
            _ => None,
        });
        let intended = intended.unwrap();
        assert_eq!((shown.worst_case, shown.input_bound), (intended.worst_case, intended.input_bound));
        assert!(shown.expected <= shown.worst_case && shown.expected > 0, "{shown:?}");
        assert_eq!(shown.cached_tokens > 0, count > 0);
    }
}

#[test]
fn preview_names_the_limit_that_forbids_the_request() {
    let mut play = chat(Vec::new(), &[]);
    play.plan.limits.spend = 10;
    play.start();
    let shown: Preview = preview(&live(&play), &"hello".into());
    assert_eq!(shown.limit.as_deref(), Some("spend_exceeded"));
    assert!(preview_request(&live(&play), &"hello".into()).is_none());
}

/// Returns a chat after one prompt.
fn after_one_prompt(replies: Vec<Result<crate::exchange::Reply, crate::exchange::CallError>>) -> SimulatedThread {
    let mut play = chat([vec![text("one")], replies].concat(), &[]);
    play.start();
    receive(&mut play, "a", submit("first", Delivery::Prompt));
    while !matches!(crate::machine::next(&play.plan, &play.state), crate::machine::Effect::Wait) {
        assert!(play.step());
    }
    play
}

#[test]
fn interruption_before_the_start_of_a_prompt_ends_that_prompt_and_no_other() {
    let mut play = chat(vec![text("one")], &[]);
    play.start();
    receive(&mut play, "a", submit("first", Delivery::Prompt));
    receive(&mut play, "b", submit("second", Delivery::Prompt));
    receive(&mut play, "i", ControlMessage::Interrupt);
    while play.step() {}
    assert_eq!(statuses(&play), [(PromptStatus::Interrupted, None), (PromptStatus::Done, None)]);
    assert_eq!(ended_prompts(&play)[0].unsent, ["first"]);
    assert_eq!(play.requests.len(), 1);
    assert!(user_texts(&play, 0).last().unwrap().ends_with("second"));
}

#[test]
fn interruption_of_a_command_of_the_user_keeps_the_prompt_that_waits_behind_it() {
    let mut play = after_one_prompt(vec![text("two")]);
    receive(&mut play, "c", ControlMessage::Shell { command: "sleep 20".into(), excluded: false });
    receive(&mut play, "b", submit("second", Delivery::Prompt));
    receive(&mut play, "i", ControlMessage::Interrupt);
    assert_eq!(statuses(&play), [(PromptStatus::Done, None)]);
    assert!(play.state.chat.as_ref().unwrap().queue.iter().any(|message| message.text == "second"));
}

fn compact() -> ControlMessage {
    ControlMessage::Compact { focus: None }
}

#[test]
fn summary_that_fails_or_is_not_affordable_leaves_the_conversation() {
    let mut play = after_one_prompt(vec![crate::machine::fixture::status(500, &[]), text("two")]);
    let before = play.state.conversation.messages.clone();
    receive(&mut play, "c", compact());
    play.prompts.push_back("second".into());
    while play.step() {}
    assert!(play.names().contains(&"attempt_failed"));
    assert_eq!(play.requests[2].turns[..before.len()], before[..]);
    assert_eq!((play.requests.len(), play.ended().status), (3, crate::thread::Status::Idle));

    let mut play = after_one_prompt(Vec::new());
    play.state.limits.spend = 0;
    receive(&mut play, "c", compact());
    while play.step() {}
    assert_eq!((play.requests.len(), play.ended().status), (1, crate::thread::Status::Idle));
}

#[test]
fn interrupted_summary_is_booked_and_the_session_stays_open() {
    for cut in 0..4 {
        let mut play = after_one_prompt(vec![text("a summary"), text("two")]);
        receive(&mut play, "c", compact());
        for _ in 0..cut {
            play.step();
        }
        receive(&mut play, "i", ControlMessage::Interrupt);
        play.prompts.push_back("second".into());
        while play.step() {}
        assert_eq!(play.ended().status, crate::thread::Status::Idle, "after {cut} steps: {:?}", play.names());
        assert_eq!(statuses(&play), [(PromptStatus::Done, None); 2], "after {cut} steps: {:?}", play.names());
        assert!(play.state.attempt.is_none() && play.state.pending_settlement.is_none());
    }
}

#[test]
fn recovery_abandons_a_summary_and_a_command() {
    for message in [compact(), ControlMessage::Shell { command: "ls".into(), excluded: false }] {
        let mut play = after_one_prompt(vec![text("a summary")]);
        receive(&mut play, "c", message);
        if play.state.chat.as_ref().is_some_and(|chat| chat.compaction.is_some()) {
            assert!(play.step() && play.step());
        }
        play.signal(Fact::Recovered { owner: "other".into(), cut_bytes: 0 });
        let requests = play.requests.len();
        while play.step() {}
        assert_eq!((play.requests.len(), play.dispatched.len()), (requests, 0));
        assert_eq!(play.ended().status, crate::thread::Status::Idle);
    }
}

#[test]
fn session_whose_prompt_returned_outputs_closes_as_idle() {
    let mut plan = plan();
    crate::machine::fixture::with_outputs(&mut plan, &[("greeting", rye_compiler::plan::FieldType::String, true)]);
    let returned = calls(&[call("rye_directive_return", json!({"greeting": "hi"}))]);
    let mut play = chat_of(plan, vec![returned], &["a"]);
    play.run();
    assert_eq!(statuses(&play), [(PromptStatus::Done, None)]);
    assert_eq!(play.ended().status, crate::thread::Status::Idle);
}

#[test]
fn commands_run_while_a_model_streams_and_their_output_waits_for_the_next_prompt() {
    let mut play = chat(vec![text("one"), text("two")], &["a", "b"]);
    play.messages.push((5, ControlMessage::Shell { command: "ls".into(), excluded: false }));
    play.messages.push((5, ControlMessage::Shell { command: "secret".into(), excluded: true }));
    play.run();
    assert_eq!(user_texts(&play, 0).len(), 1);
    let texts = user_texts(&play, 1);
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(texts[1].contains("ls") && texts[2] == "b");
    assert!(!texts.iter().any(|text| text.contains("secret")));
}

#[test]
fn limit_names_its_scope_and_the_amounts_of_the_scope() {
    use crate::event::LimitScope;
    let scan = || calls(&[call("a_read", json!({}))]);
    for (prompt, session, scope, amount) in [(2, 100, LimitScope::Prompt, 2), (5, 4, LimitScope::Session, 4)] {
        let mut plan = plan();
        plan.limits.turns = prompt;
        let mut play = chat_of(plan, vec![scan(), text("one"), scan(), scan(), scan(), scan()], &["a", "b"]);
        play.plan.session_limits.as_mut().unwrap().turns = session;
        play.run();
        let hit = play.events.iter().find_map(|event| match &event.body {
            EventBody::Limit(hit) => Some((hit.scope, hit.current_value.clone(), hit.current_max.clone())),
            _ => None,
        });
        assert_eq!(hit, Some((Some(scope), json!(amount), json!(amount))));
    }
}

#[test]
fn failed_input_hook_ends_the_prompt_of_its_own_message() {
    let failed = || HookOutcome::Failed { hook: "guard".into(), error: "it crashed".into() };
    // Each case: the position of the message at which the hook fails, and the messages that the model gets.
    for (at, sent) in [(0, ["b", "c"]), (1, ["a", "c"]), (2, ["a", "b"])] {
        let mut plan = plan();
        with_hook(&mut plan, HookPoint::Input, HookAction::Handled { reply: None });
        let mut play = chat_of(plan, vec![text("one"), text("two"), text("three")], &[]);
        let answers = (0..3).map(|index| if index == at { failed() } else { HookOutcome::None });
        play.hooks.insert(HookPoint::Input, answers.collect());
        play.start();
        for id in ["a", "b", "c"] {
            receive(&mut play, id, submit(id, Delivery::Prompt));
        }
        while play.step() {}
        let mut expected = vec![(PromptStatus::Done, None); 3];
        expected[at] = (PromptStatus::Error, Some("hook_failed"));
        assert_eq!(statuses(&play), expected, "{at}");
        assert_eq!(ended_prompts(&play)[at].unsent, [["a", "b", "c"][at]]);
        assert_eq!(play.requests.len(), 2);
        let last: Vec<String> = (0..2).filter_map(|request| user_texts(&play, request).pop()).collect();
        assert!(last.iter().zip(sent).all(|(text, id)| text.ends_with(id)), "{last:?}");
    }
}

#[test]
fn failed_input_hook_of_a_message_for_the_next_turn_holds_the_message() {
    let mut plan = plan();
    with_hook(&mut plan, HookPoint::Input, HookAction::Handled { reply: None });
    let mut play = chat_of(plan, vec![text("one")], &[]);
    let failed = HookOutcome::Failed { hook: "guard".into(), error: "it crashed".into() };
    // The hook sees prompts before messages for the next turn.
    play.hooks.insert(HookPoint::Input, [HookOutcome::None, failed].into());
    play.start();
    receive(&mut play, "n", submit("note", Delivery::NextTurn));
    receive(&mut play, "a", submit("ask", Delivery::Prompt));
    while play.step() {}
    assert_eq!(statuses(&play), [(PromptStatus::Done, None)]);
    assert!(!format!("{:?}", play.requests[0].turns).contains("note"));
}
