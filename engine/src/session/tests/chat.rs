//! Chats in the engine: a session over several processes, and a crash at every operation.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rye_compiler::compile::{Compilation, CompileRequest, compile};
use rye_compiler::plan::{PlanMode, PlannedModel};
use rye_compiler::semantics::limits::LimitValue;
use rye_grammar::ItemId;
use serde_json::json;

use super::{Lab, calls, reply_text};
use crate::BoxFuture;
use crate::attest::PromptChecker;
use crate::clock::{Clock, ManualClock};
use crate::context::{Providers, StartOptions};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::event::{
    AcceptedInput, CognitionIn, ControlMessage, Delivery, Event, EventBody, MessageSource, PromptStatus,
};
use crate::exchange::{CallError, Delta, Reply, Request, StopReason, Usage};
use crate::message::{Message, text_of};
use crate::provider::Provider;
use crate::store::disk::{SimulatedDisk, Survival};
use crate::store::{Disk, StoreError};
use crate::thread::Status;
use crate::thread_id::ThreadId;
use crate::threads::held_messages;

/// Returns a project whose model calls a tool in the first turn of a prompt and answers in the second.
fn lab(elsewhere: Option<PathBuf>) -> Lab {
    let mut lab = Lab::new(|request| {
        let is_answered = request.turns.last().is_some_and(|turn| turn.kind() == "tool_result");
        let read = [("rye_file_system_read", json!({"path": "note.txt"}))];
        Ok(if is_answered { reply_text("done") } else { calls(&read) })
    });
    lab.elsewhere = elsewhere;
    if lab.elsewhere.is_none() {
        lab.write("note.txt", "a note");
        let grants = "<permissions><execute><tool>rye.file-system.read</tool></execute></permissions>";
        lab.directive("talk", &format!("<limits turns=\"4\" spend=\"1.00\"/>{grants}"), "");
    }
    lab
}

fn plan(lab: &Lab) -> Compilation {
    plan_with(lab, Vec::new())
}

fn plan_with(lab: &Lab, limits: Vec<(String, LimitValue)>) -> Compilation {
    let world = (lab.options().world)().unwrap();
    let mut request = CompileRequest::new(ItemId::parse("test/talk").unwrap()).with_inputs(serde_json::Map::new());
    request.mode = PlanMode::Chat;
    request.limits = limits;
    compile(&*world, &request).value.unwrap()
}

fn engine(lab: &Lab, disk: &Arc<dyn Disk>) -> Engine {
    let mut options = lab.options();
    options.disk = Some(Arc::clone(disk));
    Engine::open(&lab.path(), options).unwrap()
}

fn submit(text: &str) -> ControlMessage {
    ControlMessage::Submit { input: text.into(), delivery: Delivery::Prompt }
}

fn blocking<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn events(engine: &Engine, thread: &ThreadId) -> Vec<Event> {
    engine.threads().transcript(thread).unwrap()
}

fn prompts(events: &[Event]) -> Vec<PromptStatus> {
    let ended = events.iter().filter_map(|event| match &event.body {
        EventBody::PromptEnded(ended) => Some(ended.status),
        _ => None,
    });
    ended.collect()
}

/// Returns the texts that the transcript accounts for: sent prompts, and messages that were not sent.
fn known_texts(events: &[Event]) -> Vec<String> {
    let mut known = held_messages(events);
    for event in events {
        match &event.body {
            EventBody::CognitionIn(input) if input.source == MessageSource::Prompt => {
                if let Message::User { content } = &input.message {
                    known.push(crate::message::text_of(content).into_string());
                }
            }
            EventBody::PromptEnded(ended) => known.extend(ended.unsent.iter().cloned()),
            _ => {}
        }
    }
    known
}

#[test]
fn session_continues_in_another_process_with_the_same_messages() {
    let lab = lab(None);
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    let thread = blocking(async {
        let engine = engine(&lab, &disk);
        let handle = engine.start(&plan(&lab), StartOptions::default()).await.unwrap();
        handle.send(submit("one"));
        handle.send(ControlMessage::Close);
        assert_eq!(handle.join().await.status, Status::Idle);
        handle.thread_id.clone()
    });
    blocking(async {
        let engine = engine(&lab, &disk);
        let handle = engine.recover_with(&thread, vec![submit("two"), ControlMessage::Close]).await.unwrap();
        assert_eq!(handle.join().await.status, Status::Idle);
        assert_eq!(prompts(&events(&engine, &thread)), [PromptStatus::Done; 2]);
    });
    let requests = lab.model.requests.lock().unwrap();
    assert_eq!(requests.len(), 4);
    for pair in requests.windows(2) {
        assert_eq!(pair[0].system, pair[1].system);
        assert_eq!(pair[1].turns[..pair[0].turns.len()], pair[0].turns[..]);
    }
}

/// Returns a project whose model starts a child in each prompt. Each reply takes some time.
fn lab_with_children(elsewhere: Option<PathBuf>) -> Lab {
    let mut lab = Lab::new(|request| {
        let is_child = request.cue.directive.contains("part");
        let start = [("rye_execute", json!({"item_type": "directive", "item_id": "test/part"}))];
        Ok(if is_child { reply_text("part") } else { calls(&start) })
    });
    Arc::get_mut(&mut lab.model).unwrap().pause = Duration::from_millis(150);
    lab.elsewhere = elsewhere;
    if lab.elsewhere.is_none() {
        let grants = "<permissions><execute><directive>*</directive></execute></permissions>";
        let limits = "<limits turns=\"4\" spend=\"1.00\" spawns=\"4\" depth=\"2\"/>";
        lab.directive("talk", &format!("{limits}{grants}"), "");
        lab.directive("part", "<limits turns=\"2\" spend=\"0.20\"/>", "");
    }
    lab
}

/// Waits until a child runs.
async fn wait_for_child(engine: &Engine) {
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    while engine.threads().list().unwrap().len() < 2 && tokio::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn recovery_cancels_the_children_of_an_interrupted_prompt_without_a_model_call() {
    let first = lab_with_children(None);
    let simulated = Arc::new(SimulatedDisk::new());
    let disk = Arc::clone(&simulated) as Arc<dyn Disk>;
    // The process ends while the child waits for its reply.
    let thread = blocking(async {
        let engine = engine(&first, &disk);
        let handle = engine.start(&plan(&first), StartOptions::default()).await.unwrap();
        handle.send(submit("one"));
        wait_for_child(&engine).await;
        handle.thread_id.clone()
    });
    let lab = lab_with_children(Some(first.path()));
    let left: Arc<dyn Disk> = Arc::new(simulated.fork());
    blocking(async {
        let engine = engine(&lab, &left);
        let handle = engine.recover_with(&thread, vec![ControlMessage::Close]).await.unwrap();
        assert_eq!(handle.join().await.status, Status::Idle);
        engine.wait_idle().await;
        assert_eq!(lab.model.asked.load(Ordering::Relaxed), 0);
        let threads = engine.threads().list().unwrap();
        let child = threads.iter().find(|one| one.row.parent.is_some()).unwrap();
        assert_eq!(child.row.status, Status::Cancelled);
        assert_eq!(prompts(&events(&engine, &thread)), [PromptStatus::Interrupted]);
    });
}

#[test]
fn interruption_of_a_run_repeats_no_model_call() {
    let mut lab = lab(None);
    Arc::get_mut(&mut lab.model).unwrap().pause = Duration::from_millis(50);
    blocking(async {
        let engine = lab.engine();
        let handle = lab.start(&engine, "talk").await;
        for _ in 0..20 {
            handle.send(ControlMessage::Interrupt);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(handle.join().await.status, Status::Completed);
    });
    assert_eq!(lab.model.asked.load(Ordering::Relaxed), 2);
}

#[test]
fn interrupted_prompt_ends_its_children_and_books_their_cost() {
    let lab = lab_with_children(None);
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    blocking(async {
        let engine = engine(&lab, &disk);
        let handle = engine.start(&plan(&lab), StartOptions::default()).await.unwrap();
        handle.send(submit("one"));
        wait_for_child(&engine).await;
        handle.send(ControlMessage::Interrupt);
        handle.send(ControlMessage::Close);
        assert_eq!(handle.join().await.status, Status::Idle);
        engine.wait_idle().await;
        let threads = engine.threads().list().unwrap();
        let child = threads.iter().find(|one| one.row.parent.is_some()).unwrap();
        assert_eq!(child.row.status, Status::Cancelled);
        let events = events(&engine, &handle.thread_id);
        assert_eq!(prompts(&events), [PromptStatus::Interrupted]);
        assert!(events.iter().any(|event| matches!(event.body, EventBody::ChildEnded(_))));
        let account = engine.account(&handle.thread_id).unwrap().unwrap();
        let booked = events.iter().map(|event| match &event.body {
            EventBody::Settled(settled) => settled.amount,
            EventBody::ChildEnded(child) => child.cost.spend,
            _ => 0,
        });
        assert_eq!(account.spent().to_u64(), booked.sum::<u64>());
    });
}

/// Returns a project whose chat fills its context in the first turn of a prompt and continues in a new thread.
fn lab_with_handoff(elsewhere: Option<PathBuf>) -> Lab {
    let mut lab = Lab::new(|request| {
        let is_fresh = !serde_json::to_string(&request.turns).unwrap().contains("Continue where you left off");
        let read = [("rye_file_system_read", json!({"path": "note.txt"}))];
        let is_answered = request.turns.last().is_some_and(|turn| turn.kind() == "tool_result");
        Ok(if is_fresh && !is_answered { calls(&read) } else { reply_text("done") })
    });
    lab.elsewhere = elsewhere;
    if lab.elsewhere.is_none() {
        lab.write("note.txt", "a note");
        lab.write(".ai/config/agent/coordination.yaml", "continuation: { trigger_threshold: 0.0000001 }\n");
        let grants = "<permissions><execute><tool>rye.file-system.read</tool></execute></permissions>";
        lab.directive("talk", &format!("<limits turns=\"4\" spend=\"1.00\"/>{grants}"), "");
    }
    lab
}

#[test]
fn crash_at_any_operation_loses_no_prompt_and_calls_no_model() {
    crash_at_each_operation(lab, 2..=2, SessionChange::None);
}

#[test]
fn crash_at_any_operation_of_a_fork_loses_no_prompt_and_calls_no_model() {
    crash_at_each_operation(lab, 2..=2, SessionChange::Fork);
}

#[test]
fn crash_at_any_operation_of_another_plan_loses_no_prompt_and_calls_no_model() {
    crash_at_each_operation(lab, 2..=2, SessionChange::Replan);
}

#[test]
fn crash_at_any_operation_of_a_user_command_loses_no_output_and_repeats_no_command() {
    let first = crash_at_each_operation(lab, 2..=2, SessionChange::Command);
    assert_eq!(std::fs::read_to_string(first.path().join("runs.txt")).unwrap(), "ran\n");
}

#[test]
fn crash_at_any_operation_of_a_handoff_loses_no_prompt_and_calls_no_model() {
    // The next prompt needs one model call or two: the model calls the tool only if no earlier thread of the session
    // has been handed off.
    crash_at_each_operation(lab_with_handoff, 1..=2, SessionChange::None);
}

/// Waits until a thread has ended this number of prompts.
async fn wait_for_prompts(engine: &Engine, thread: &ThreadId, count: usize) {
    while prompts(&events(engine, thread)).len() < count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A change of a session between its second prompt and its third one; without a change, there is no third prompt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SessionChange {
    None,
    /// Continues before the second prompt.
    Fork,
    /// Continues with a plan that has other limits.
    Replan,
    /// Runs a command of the user, whose output the third prompt sends.
    Command,
}

impl SessionChange {
    async fn message(self, lab: &Lab, engine: &Engine) -> ControlMessage {
        match self {
            Self::None | Self::Fork => ControlMessage::Fork { prompt: 2, thread: None },
            Self::Replan => {
                let other = plan_with(lab, vec![("turns".to_owned(), LimitValue::Text("5".to_owned()))]);
                ControlMessage::Replan { plan: engine.store_plan(&other).await.unwrap() }
            }
            Self::Command => {
                let command = format!("echo ran >> runs.txt; echo {COMMAND_OUTPUT}");
                ControlMessage::Shell { command, excluded: false }
            }
        }
    }
}

const COMMAND_OUTPUT: &str = "output-of-the-command";

/// Plays a chat of two prompts, changes the session, and recovers it from the state that a crash before each operation
/// leaves. The next prompt then needs `requests` model calls. Returns the project.
fn crash_at_each_operation(
    lab: fn(Option<PathBuf>) -> Lab,
    requests: RangeInclusive<usize>,
    change: SessionChange,
) -> Lab {
    let first = lab(None);
    let left: Arc<Mutex<Vec<(u64, SimulatedDisk)>>> = Arc::default();
    let simulated = Arc::new(SimulatedDisk::new());
    let states = Arc::clone(&left);
    simulated.before_operations(move |at, disk| {
        disk.restart(if at % 2 == 0 { Survival::All } else { Survival::Some(at) });
        states.lock().unwrap().push((at, disk));
    });
    let disk = Arc::clone(&simulated) as Arc<dyn Disk>;
    blocking(async {
        let engine = engine(&first, &disk);
        let handle = engine.start(&plan(&first), StartOptions::default()).await.unwrap();
        handle.send(submit("first prompt"));
        handle.send(submit("second prompt"));
        if change != SessionChange::None {
            wait_for_prompts(&engine, &handle.thread_id, 2).await;
            handle.send(change.message(&first, &engine).await);
            handle.send(submit("third prompt"));
        }
        handle.send(ControlMessage::Close);
        assert_eq!(handle.join().await.status, Status::Idle);
        if matches!(change, SessionChange::Fork | SessionChange::Replan) {
            assert_eq!(session_threads(&engine).len(), 2, "the successor is a thread of its own");
        }
    });
    let left = std::mem::take(&mut *left.lock().unwrap());
    assert!(left.len() > 100, "{} operations", left.len());
    let step = if std::env::var_os("RYE_EVERY_CRASH").is_some() { 1 } else { left.len().div_ceil(60) };
    let mut recovered = 0;
    for (at, disk) in left.into_iter().step_by(step) {
        recovered += usize::from(check_recovery(&lab(Some(first.path())), &requests, at, disk));
    }
    assert!(recovered > 20, "{recovered} sessions");
    first
}

/// Returns the threads of a session in their order.
fn session_threads(engine: &Engine) -> Vec<ThreadId> {
    let listed = engine.threads().list().unwrap();
    let mut next = listed.iter().find(|thread| thread.row.continues.is_none()).map(|thread| thread.row.id.clone());
    let mut chain = Vec::new();
    while let Some(id) = next {
        next =
            listed.iter().find(|thread| thread.row.continues.as_ref() == Some(&id)).map(|thread| thread.row.id.clone());
        chain.push(id);
    }
    chain
}

/// Returns the events of a session's threads; a thread that a crash left without a transcript has none.
fn session_events(engine: &Engine) -> Vec<Event> {
    let read = |id: ThreadId| match engine.threads().transcript(&id) {
        Ok(events) => events,
        Err(StoreError::UnknownThread { .. }) => Vec::new(),
        Err(error) => panic!("{id}: {error}"),
    };
    session_threads(engine).into_iter().flat_map(read).collect()
}

#[test]
fn opening_a_session_again_reads_its_transcript_once() {
    let lab = lab(None);
    let disk = SimulatedDisk::new();
    let reads = Arc::new(Mutex::new(0));
    let count = Arc::clone(&reads);
    disk.before_reads(move |path| *count.lock().unwrap() += usize::from(path.ends_with("transcript.jsonl")));
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let thread = blocking(async {
        let engine = engine(&lab, &disk);
        let handle = engine.start(&plan(&lab), StartOptions::default()).await.unwrap();
        handle.send(submit("one"));
        handle.send(ControlMessage::Close);
        handle.join().await;
        handle.thread_id.clone()
    });
    *reads.lock().unwrap() = 0;
    blocking(async {
        let engine = engine(&lab, &disk);
        assert!(engine.threads().parent(&thread).unwrap().is_some());
        assert_eq!(*reads.lock().unwrap(), 0);
        assert_eq!(engine.inspect(&thread).await.unwrap().unwrap().id, thread);
        assert!(engine.read_inspected(&thread, <[Event]>::len).unwrap() > 10);
        let handle = engine.recover_with(&thread, vec![submit("two"), ControlMessage::Close]).await.unwrap();
        assert_eq!(handle.join().await.status, Status::Idle);
        assert_eq!(*reads.lock().unwrap(), 1);
        assert!(engine.read_inspected(&thread, <[Event]>::len).is_none());
    });
    // Another process continues the session between the inspection and the recovery.
    blocking(async {
        let first = engine(&lab, &disk);
        first.inspect(&thread).await.unwrap().unwrap();
        let second = engine(&lab, &disk);
        let handle = second.recover_with(&thread, vec![submit("three"), ControlMessage::Close]).await.unwrap();
        handle.join().await;
        let handle = first.recover_with(&thread, vec![submit("four"), ControlMessage::Close]).await.unwrap();
        assert_eq!(handle.join().await.status, Status::Idle);
        assert_eq!(prompts(&events(&first, &thread)), [PromptStatus::Done; 4]);
    });
}

/// Opens the session that a crash before operation `at` left; returns false if no session had started.
fn check_recovery(lab: &Lab, requests: &RangeInclusive<usize>, at: u64, disk: SimulatedDisk) -> bool {
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let asked = || lab.model.asked.load(Ordering::Relaxed);
    blocking(async {
        let engine = engine(lab, &disk);
        let Some(thread) = session_threads(&engine).into_iter().next() else { return false };
        let before = session_events(&engine);
        let received: Vec<String> = before
            .iter()
            .filter_map(|event| match &event.body {
                EventBody::Mail(mail) => match &mail.message {
                    ControlMessage::Submit { input, .. } => Some(input.text.clone()),
                    _ => None,
                },
                _ => None,
            })
            .collect();
        let mut known = held_messages(&before);
        match engine.recover_with(&thread, vec![ControlMessage::Close]).await {
            Ok(handle) => assert_eq!(handle.join().await.status, Status::Idle, "at {at}"),
            Err(EngineError::NeverStarted { .. }) => return false,
            Err(error) => panic!("at {at}: {error}"),
        }
        assert_eq!(asked(), 0, "at {at}: a model was called");
        known.extend(known_texts(&session_events(&engine)));
        for text in received {
            assert!(known.iter().any(|known| known.ends_with(&text)), "at {at}: `{text}` is lost: {known:?}");
        }
        let handle = engine.recover_with(&thread, vec![submit("again"), ControlMessage::Close]).await.unwrap();
        assert_eq!(handle.join().await.status, Status::Idle, "at {at}");
        let whole = session_events(&engine);
        assert_eq!(prompts(&whole).last(), Some(&PromptStatus::Done), "at {at}");
        let again = lab.model.requests.lock().unwrap();
        assert!(requests.contains(&again.len()), "at {at}: {} model calls", again.len());
        let sent = serde_json::to_string(&again[0].turns).unwrap();
        assert!(sent.contains("again"), "at {at}: {sent}");
        // An output that was recorded is part of the conversation.
        let has_output = before.iter().any(|event| matches!(event.body, EventBody::ShellRan(_)));
        assert!(!has_output || sent.contains(COMMAND_OUTPUT), "at {at}: {sent}");
        let settled = |events: &[Event]| -> u64 {
            let amounts = events.iter().filter_map(|event| match &event.body {
                EventBody::Settled(settled) => Some(settled.amount),
                _ => None,
            });
            amounts.sum()
        };
        let chain = session_threads(&engine);
        let booked = chain.iter().map(|id| engine.account(id).unwrap().unwrap().spent().to_u64());
        assert_eq!(booked.sum::<u64>(), settled(&whole), "at {at}: {chain:?}");
        true
    })
}

// shows: interactive 7.11: `prove --prompts` finds each changed byte
#[test]
fn every_changed_byte_of_a_prompt_is_found_at_its_place() {
    let lab = lab(None);
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
    let planned = plan(&lab);
    let recorded = blocking(async {
        let engine = engine(&lab, &disk);
        let handle = engine.start(&planned, StartOptions::default()).await.unwrap();
        for text in ["one", "two words", "three"] {
            handle.send(submit(text));
        }
        handle.send(ControlMessage::Close);
        handle.join().await;
        events(&engine, &handle.thread_id)
    });
    let expand = |_: &AcceptedInput, _: &str| Err("no expansion".to_owned());
    let check = |events: &[Event]| PromptChecker::default().check(&planned.plan, events, &expand);
    let found = |events: &[Event]| -> Vec<(u64, usize)> {
        let differences = check(events).into_iter().flat_map(|one| one.differences);
        differences.map(|one| (one.seq, one.at)).collect()
    };
    let untouched = check(&recorded);
    assert_eq!(untouched.iter().map(|one| one.prompt).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(untouched.iter().all(|one| one.differences.is_empty() && one.bytes > 0), "{untouched:?}");
    let mut changed = 0;
    for (n, event) in recorded.iter().enumerate() {
        let text = match &event.body {
            EventBody::CognitionIn(CognitionIn { message: Message::User { content }, .. }) => {
                text_of(content).into_string()
            }
            EventBody::UserInput(input) => input.text.clone(),
            _ => continue,
        };
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let Ok(altered) = String::from_utf8(bytes) else { continue };
            let mut events = recorded.clone();
            match &mut events[n].body {
                EventBody::CognitionIn(input) => input.message = Message::user(altered),
                EventBody::UserInput(input) => input.text = altered,
                _ => unreachable!("only these have a text"),
            }
            assert!(found(&events).contains(&(event.seq, at)), "byte {at} of event {}", event.seq);
            changed += 1;
        }
    }
    assert!(changed > 30, "{changed}");
}

/// A model that answers the first request, and no other one.
#[derive(Default)]
struct AnswersOnce(AtomicUsize);

impl Provider for AnswersOnce {
    fn call<'a>(
        &'a self,
        _: &'a Request,
        _: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(async move {
            if self.0.fetch_add(1, Ordering::SeqCst) > 0 {
                std::future::pending::<()>().await;
            }
            let (content, stop) = (reply_text("done"), StopReason::EndTurn);
            Ok(Reply { content, usage: Usage::default(), stop, model: None, uncounted: None, unread: Vec::new() })
        })
    }
}

struct OneModel(Arc<AnswersOnce>);

impl Providers for OneModel {
    fn connect(&self, _: &PlannedModel) -> Result<Arc<dyn Provider>, CallError> {
        Ok(Arc::clone(&self.0) as Arc<dyn Provider>)
    }
}

/// The clock of a session stands still between prompts, but the call for a summary has the time of a prompt.
#[tokio::test]
async fn summary_of_an_idle_session_has_the_duration_of_a_prompt() {
    let (lab, model) = (lab(None), Arc::new(AnswersOnce::default()));
    lab.directive("talk", "<limits duration_seconds=\"3\"/>", "");
    let clock = Arc::new(ManualClock::starting_at(1_700_000_000_000));
    let mut options = lab.options();
    options.clock = Arc::clone(&clock) as Arc<dyn Clock>;
    options.providers = Arc::new(OneModel(Arc::clone(&model)));
    let engine = Engine::open(&lab.path(), options).unwrap();
    let handle = engine.start(&plan(&lab), StartOptions::default()).await.unwrap();
    let thread = handle.thread_id.clone();
    let prompt = handle.control().send_with_id(submit("one")).unwrap();
    // A compaction that is requested before the first message has nothing to summarize.
    handle.control().settled(&prompt).await;
    handle.send(ControlMessage::Compact { focus: None });
    handle.send(ControlMessage::Close);
    while model.0.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    clock.advance(3_000);
    assert_eq!(handle.join().await.status, Status::Idle);
    let events = events(&engine, &thread);
    assert_eq!(prompts(&events), [PromptStatus::Done]);
    let failed = events.iter().filter(|event| matches!(event.body, EventBody::AttemptFailed(_))).count();
    let limits = events.iter().filter(|event| matches!(event.body, EventBody::Limit(_))).count();
    assert_eq!((failed, limits), (1, 0), "{events:#?}");
}
