//! Sessions over several threads: forks, other plans, summaries, commands of the user.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rye_compiler::compile::{Compilation, CompileRequest, compile};
use rye_compiler::plan::PlanMode;
use rye_grammar::ItemId;

use super::{Lab, reply_text};
use crate::context::{StartOptions, ThreadHandle};
use crate::engine::Engine;
use crate::event::{ControlMessage, Delivery, Event, EventBody, PromptStatus, ThreadOrigin};
use crate::exchange::Request;
use crate::message::{Message, ProviderMessage, text_of};
use crate::session_tree::{current_prompts, other_branches, session_tree};
use crate::store::Disk;
use crate::store::disk::SimulatedDisk;
use crate::thread::Status;
use crate::thread_id::ThreadId;

/// Returns a project whose model answers each request with the number of its messages, or with a summary.
fn lab() -> Lab {
    let lab = Lab::new(|request| {
        let is_summary = request.cue.directive.ends_with(".summary");
        Ok(reply_text(&if is_summary { "a summary".to_owned() } else { format!("{} messages", request.turns.len()) }))
    });
    lab.directive("talk", "<limits turns=\"4\" spend=\"1.00\"/>", "");
    lab
}

fn plan(lab: &Lab) -> Compilation {
    let world = (lab.options().world)().unwrap();
    let mut request = CompileRequest::new(ItemId::parse("test/talk").unwrap()).with_inputs(serde_json::Map::new());
    request.mode = PlanMode::Chat;
    compile(&*world, &request).value.unwrap()
}

fn engine(lab: &Lab) -> Engine {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    let mut options = lab.options();
    options.disk = Some(disk);
    Engine::open(&lab.path(), options).unwrap()
}

/// Waits until the session is idle after this many prompts of the current and all earlier threads.
async fn wait_idle(handle: &ThreadHandle, prompts: u64) {
    let is_there = || {
        let live = handle.control().live_state()?;
        let chat = live.state.chat.as_ref()?;
        (live.state.is_idle() && chat.prompts == prompts && chat.queue.is_empty() && chat.successor.is_none())
            .then_some(())
    };
    for _ in 0..4_000 {
        if is_there().is_some() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not idle after {prompts} prompts");
}

async fn prompt(handle: &ThreadHandle, text: &str, number: u64) {
    handle.control().submit(text.into(), Delivery::Prompt).unwrap();
    wait_idle(handle, number).await;
}

fn user_texts(request: &Request) -> Vec<String> {
    let turns = request.turns.iter();
    let texts = turns.filter_map(|turn| match turn.for_provider()? {
        ProviderMessage::User { content } => Some(text_of(content).into_string()),
        ProviderMessage::Assistant { .. } | ProviderMessage::ToolResult { .. } => None,
    });
    texts.collect()
}

async fn close(engine: &Engine, handle: &ThreadHandle) -> Vec<Event> {
    handle.send(ControlMessage::Close);
    let result = handle.join().await;
    assert_eq!(result.status, Status::Idle, "{result:?}");
    engine.threads().transcript(&ThreadId::parse(&result.thread_id).unwrap()).unwrap()
}

#[tokio::test]
async fn fork_to_a_thread_of_another_branch_continues_its_whole_conversation() {
    let lab = lab();
    let engine = engine(&lab);
    let handle = engine.start(&plan(&lab), StartOptions::default()).await.unwrap();
    prompt(&handle, "one", 1).await;
    prompt(&handle, "two", 2).await;
    handle.send(ControlMessage::Fork { prompt: 2, thread: None });
    wait_idle(&handle, 1).await;
    prompt(&handle, "another two", 2).await;
    let tree = session_tree(&engine.threads(), &handle.thread_id).unwrap();
    let left: Vec<&str> = other_branches(&tree).iter().map(|thread| thread.thread_id.as_str()).collect();
    assert_eq!(left, [tree[0].thread_id.as_str()]);
    let thread = Some(tree[0].thread_id.clone());
    handle.send(ControlMessage::Fork { prompt: 3, thread });
    wait_idle(&handle, 2).await;
    prompt(&handle, "three", 3).await;
    let tree = session_tree(&engine.threads(), &handle.thread_id).unwrap();
    let texts: Vec<&str> = current_prompts(&tree).iter().map(|(_, prompt)| prompt.text.as_str()).collect();
    assert_eq!(texts, ["three", "two", "one"]);
    let left: Vec<&str> = other_branches(&tree).iter().map(|thread| thread.thread_id.as_str()).collect();
    assert_eq!(left, [tree[1].thread_id.as_str()]);
    // A prompt number now refers to the old branch, and a thread and a number to the other one.
    let thread = Some(tree[1].thread_id.clone());
    handle.send(ControlMessage::Fork { prompt: 2, thread });
    wait_idle(&handle, 1).await;
    prompt(&handle, "a third two", 2).await;
    close(&engine, &handle).await;
    let requests = lab.model.requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 5);
    // The request after the return has the last request of the old branch as its prefix.
    assert_eq!(requests[3].turns[..requests[1].turns.len()], requests[1].turns[..]);
    assert_eq!(user_texts(&requests[3])[1..], ["two", "three"]);
    assert_eq!(user_texts(&requests[4])[1..], ["a third two"]);
    let again = engine.recover(&handle.thread_id).await.unwrap();
    wait_idle(&again, 2).await;
    close(&engine, &again).await;
}

#[tokio::test]
async fn fork_continues_from_the_end_of_an_earlier_prompt_within_the_budget_of_the_session() {
    let lab = lab();
    let engine = engine(&lab);
    let handle = engine.start(&plan(&lab), StartOptions::default()).await.unwrap();
    prompt(&handle, "one", 1).await;
    prompt(&handle, "two", 2).await;
    handle.send(ControlMessage::Fork { prompt: 9, thread: None });
    handle.send(ControlMessage::Fork { prompt: 2, thread: None });
    wait_idle(&handle, 1).await;
    prompt(&handle, "another two", 2).await;
    handle.send(ControlMessage::Fork { prompt: 1, thread: None });
    wait_idle(&handle, 0).await;
    prompt(&handle, "another one", 1).await;
    let last = close(&engine, &handle).await;
    let requests = lab.model.requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 4);
    // The request of the fork has the conversation before the prompt as its prefix.
    let (first, second, fork) = (&requests[0], &requests[1], &requests[2]);
    assert_eq!(fork.turns[..2], second.turns[..2]);
    assert_eq!(user_texts(fork)[1..], ["another two"]);
    // Before the first prompt, the conversation is empty, so the fork opens as the first thread.
    let opening = user_texts(first)[0].replace("\n\none", "\n\nanother one");
    assert_eq!((&fork.system, user_texts(&requests[3])), (&first.system, vec![opening]));
    let threads = engine.threads().list().unwrap();
    assert_eq!(threads.len(), 3);
    let tree = session_tree(&engine.threads(), &handle.thread_id).unwrap();
    let shape: Vec<(ThreadOrigin, Status, Vec<u64>)> = tree
        .iter()
        .map(|one| (one.origin, one.status, one.prompts.iter().map(|prompt| prompt.number).collect()))
        .collect();
    let expected = [
        (ThreadOrigin::Chat, Status::Continued, vec![1, 2]),
        (ThreadOrigin::Fork, Status::Continued, vec![2]),
        (ThreadOrigin::Fork, Status::Idle, vec![1]),
    ];
    assert_eq!(shape, expected);
    let texts: Vec<&str> = tree.iter().flat_map(|one| &one.prompts).map(|prompt| prompt.text.as_str()).collect();
    assert_eq!(texts, ["one", "two", "another two", "another one"]);
    assert_eq!(tree[2].continues.as_deref(), Some(tree[0].thread_id.as_str()));
    assert_eq!(tree[2].after.as_deref(), Some(tree[1].thread_id.as_str()));
    // The spend of the earlier threads counts towards the limits of the session.
    let Some(EventBody::Opened(opened)) = last.first().map(|event| &event.body) else { panic!() };
    let whole = plan(&lab).plan.thread_limits();
    assert_eq!(opened.limits.turns, whole.turns - 3);
    assert!(opened.limits.spend < whole.spend);
    // The last thread of the session opens again.
    let again = engine.recover(&handle.thread_id).await.unwrap();
    prompt(&again, "more", 2).await;
    close(&engine, &again).await;
}

#[tokio::test]
async fn message_that_an_earlier_thread_has_received_settles_in_its_continuation() {
    let lab = lab();
    let engine = engine(&lab);
    let handle = engine.start(&plan(&lab), StartOptions::default()).await.unwrap();
    prompt(&handle, "one", 1).await;
    close(&engine, &handle).await;
    let again = engine.recover(&handle.thread_id).await.unwrap();
    let fork = again.control().send_with_id(ControlMessage::Fork { prompt: 1, thread: None }).unwrap();
    tokio::time::timeout(Duration::from_mins(2), again.control().settled(&fork)).await.expect("the fork settles");
    assert_eq!(again.control().live_state().unwrap().state.chat.as_ref().unwrap().prompts, 0);
    // The old thread receives both messages; the new thread takes over the second one from the queue.
    again.send(ControlMessage::Fork { prompt: 1, thread: None });
    again.send(ControlMessage::Replan { plan: engine.store_plan(&plan(&lab)).await.unwrap() });
    let two = again.control().submit("two".into(), Delivery::Prompt).unwrap();
    tokio::time::timeout(Duration::from_mins(2), again.control().settled(&two)).await.expect("the prompt settles");
    assert_eq!(lab.model.requests.lock().unwrap().len(), 2);
    close(&engine, &again).await;
}

#[tokio::test]
async fn another_plan_keeps_the_conversation_and_repeats_no_layer() {
    let lab = lab();
    let engine = engine(&lab);
    let handle = engine.start(&plan(&lab), StartOptions::default()).await.unwrap();
    prompt(&handle, "one", 1).await;
    let grants = super::permit(&["rye.file-system.read"]);
    lab.directive("talk", &format!("<limits turns=\"4\" spend=\"1.00\"/>{grants}"), "");
    let next = plan(&lab);
    let id = engine.store_plan(&next).await.unwrap();
    handle.send(ControlMessage::Replan { plan: id.clone() });
    handle.control().submit("two".into(), Delivery::Prompt).unwrap();
    wait_idle(&handle, 2).await;
    let last = close(&engine, &handle).await;
    let requests = lab.model.requests.lock().unwrap().clone();
    assert_eq!(requests[1].turns[..1], requests[0].turns[..1]);
    assert_eq!(user_texts(&requests[1])[1..], ["two"]);
    assert!(last.iter().any(|event| matches!(&event.body, EventBody::PlanBound(bound) if bound.plan_id == id)));
    assert!(
        last.iter()
            .any(|event| matches!(&event.body, EventBody::Opened(opened) if opened.origin == ThreadOrigin::Replan))
    );
    let row = engine.threads().list().unwrap().into_iter().find(|one| one.row.status == Status::Idle).unwrap();
    assert_eq!(row.row.plan_id.as_deref(), Some(id.as_str()));
    // The opening of the new thread is the opening of the new plan.
    let checked = crate::attest::check_opening(&next.plan, &last);
    assert!(matches!(checked, crate::attest::OpeningCheck::AsPlanned { .. }), "{checked:?}");
}

/// Continues a session with the plan of the present files.
async fn replan(lab: &Lab, engine: &Engine, handle: &ThreadHandle) -> Compilation {
    let next = plan(lab);
    let id = engine.store_plan(&next).await.unwrap();
    let id = handle.control().send_with_id(ControlMessage::Replan { plan: id }).unwrap();
    tokio::time::timeout(Duration::from_mins(2), handle.control().settled(&id)).await.expect("the session continues");
    next
}

fn write_directive(lab: &Lab, tool: &str, body: &str) {
    let grants = super::permit(&[tool]);
    lab.directive("talk", &format!("<limits turns=\"4\" spend=\"1.00\"/>{grants}"), "");
    let path = lab.path().join(".ai/directives/test/talk.md");
    let text = std::fs::read_to_string(&path).unwrap().replace("Do it.", body);
    std::fs::write(path, text).unwrap();
}

#[tokio::test]
async fn another_plan_before_the_first_prompt_sends_the_whole_first_message() {
    let lab = lab();
    let engine = engine(&lab);
    let handle = engine.start(&plan(&lab), StartOptions::default()).await.unwrap();
    let shell = ControlMessage::Shell { command: "echo shown".into(), excluded: false };
    let shell = handle.control().send_with_id(shell).unwrap();
    tokio::time::timeout(Duration::from_mins(2), handle.control().settled(&shell)).await.expect("the command runs");
    write_directive(&lab, "rye.file-system.read", "Do it.");
    replan(&lab, &engine, &handle).await;
    write_directive(&lab, "rye.file-system.ls", "Do it well.");
    let next = replan(&lab, &engine, &handle).await;
    prompt(&handle, "one", 1).await;
    let last = close(&engine, &handle).await;
    let requests = lab.model.requests.lock().unwrap().clone();
    let texts = user_texts(&requests[0]);
    assert!(texts.iter().any(|text| text.contains("shown")), "{texts:?}");
    let opening = texts.last().unwrap();
    assert!(opening.contains("<directive name=\"talk\">") && opening.contains("Do it well."), "{opening}");
    assert!(opening.ends_with("one"), "{opening}");
    let checked = crate::attest::check_opening(&next.plan, &last);
    assert!(matches!(checked, crate::attest::OpeningCheck::AsPlanned { .. }), "{checked:?}");
}

#[tokio::test]
async fn another_plan_sends_the_changed_text_of_its_directive_once() {
    let lab = lab();
    let engine = engine(&lab);
    let handle = engine.start(&plan(&lab), StartOptions::default()).await.unwrap();
    prompt(&handle, "one", 1).await;
    write_directive(&lab, "rye.file-system.read", "Do it well.");
    replan(&lab, &engine, &handle).await;
    // No prompt came between the two plans, so the text of the first of them is still to be sent.
    write_directive(&lab, "rye.file-system.ls", "Do it well.");
    replan(&lab, &engine, &handle).await;
    prompt(&handle, "two", 2).await;
    write_directive(&lab, "rye.file-system.glob", "Do it well.");
    replan(&lab, &engine, &handle).await;
    prompt(&handle, "three", 3).await;
    close(&engine, &handle).await;
    let requests = lab.model.requests.lock().unwrap().clone();
    let texts = user_texts(&requests[2]);
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(texts[0].contains("Do it.") && texts[0].ends_with("one"), "{texts:?}");
    assert_eq!(texts[1], "<directive name=\"talk\">\nd\n\nDo it well.\n</directive>\n\ntwo");
    assert_eq!(texts[2], "three");
}

#[tokio::test]
async fn summary_on_request_replaces_the_conversation_between_prompts() {
    let lab = lab();
    let engine = engine(&lab);
    let handle = engine.start(&plan(&lab), StartOptions::default()).await.unwrap();
    // There is nothing to summarize yet.
    handle.send(ControlMessage::Compact { focus: None });
    prompt(&handle, "one", 1).await;
    prompt(&handle, "two", 2).await;
    handle.send(ControlMessage::Compact { focus: Some("the tests".into()) });
    for _ in 0..4_000 {
        if lab.model.asked.load(Ordering::Relaxed) == 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    wait_idle(&handle, 2).await;
    prompt(&handle, "three", 3).await;
    let events = close(&engine, &handle).await;
    let requests = lab.model.requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 4);
    assert!(user_texts(&requests[2]).last().unwrap().ends_with("the tests"));
    assert!(user_texts(&requests[3]).iter().any(|text| text.contains("a summary")), "{:?}", user_texts(&requests[3]));
    assert!(events.iter().any(|event| matches!(event.body, EventBody::Compacted(_))));
    let statuses: Vec<PromptStatus> = events
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::PromptEnded(ended) => Some(ended.status),
            _ => None,
        })
        .collect();
    assert_eq!(statuses, [PromptStatus::Done; 3]);
    let settled: u64 = events
        .iter()
        .map(|event| match &event.body {
            EventBody::Settled(settled) => settled.amount,
            _ => 0,
        })
        .sum();
    assert_eq!(engine.account(&handle.thread_id).unwrap().unwrap().spent().to_u64(), settled);
}

#[tokio::test]
async fn fork_without_a_prompt_of_its_own_can_be_summarized() {
    let lab = lab();
    let engine = engine(&lab);
    let handle = engine.start(&plan(&lab), StartOptions::default()).await.unwrap();
    prompt(&handle, "one", 1).await;
    prompt(&handle, "two", 2).await;
    handle.send(ControlMessage::Fork { prompt: 2, thread: None });
    wait_idle(&handle, 1).await;
    let id = handle.control().send_with_id(ControlMessage::Compact { focus: None }).unwrap();
    handle.control().settled(&id).await;
    prompt(&handle, "three", 2).await;
    close(&engine, &handle).await;
    let requests = lab.model.requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 4);
    let texts = user_texts(&requests[3]);
    assert!(texts[0].contains("a summary") && texts.last().unwrap().ends_with("three"), "{texts:?}");
}

#[tokio::test]
async fn commands_of_the_user_run_without_a_model_and_precede_the_next_prompt() {
    let lab = lab();
    let engine = engine(&lab);
    let handle = engine.start(&plan(&lab), StartOptions::default()).await.unwrap();
    handle.send(ControlMessage::Shell { command: "echo shown".into(), excluded: false });
    handle.send(ControlMessage::Shell { command: "echo hidden; exit 3".into(), excluded: true });
    prompt(&handle, "one", 1).await;
    let events = close(&engine, &handle).await;
    let ran: Vec<(i32, bool)> = events
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::ShellRan(ran) => Some((ran.exit_code, ran.excluded)),
            _ => None,
        })
        .collect();
    assert_eq!(ran, [(0, false), (3, true)], "{:?}", super::names(&events));
    let requests = lab.model.requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 1);
    let texts = user_texts(&requests[0]);
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].contains("shown") && texts[1].ends_with("one"), "{texts:?}");
    assert!(!texts.iter().any(|text| text.contains("hidden")));
}

#[test]
fn summary_of_a_session_keeps_its_first_prompt_behind_commands() {
    use crate::machine::{ThreadState, apply};
    let mut state = ThreadState::new();
    state.conversation.prompted = true;
    let bash = Message::Bash { command: "ls".into(), output: "a".into(), exit_code: 0, excluded: false };
    state.conversation.messages =
        vec![bash.into(), Message::user("first").into(), Message::user("x").into(), Message::user("y").into()];
    let compacted = crate::event::Compacted { through: 1, summary: "s".into(), keep: 1 };
    apply(&mut state, &Event { seq: 0, ts: 0, body: EventBody::Compacted(compacted) });
    let kinds: Vec<&str> = state.conversation.messages.iter().map(|message| message.kind()).collect();
    assert_eq!(kinds, ["bash", "user", "compaction_summary", "user"]);
}
