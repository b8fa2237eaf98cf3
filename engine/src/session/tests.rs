//! End-to-end tests of threads: real compilation, real store, tools in a temporary project. The replies of the model
//! depend on the turn, so that the model repeats its replies after a crash.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::similar_names,
    clippy::wildcard_enum_match_arm,
    clippy::format_collect,
    reason = "tests"
)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rye_compiler::compile::{Compilation, CompileRequest as Ask, compile};
use rye_grammar::ItemId;
use serde_json::{Value, json};

use crate::BoxFuture;
use crate::clock::JumpingClock;
use crate::context::{ApprovalPolicy, StartOptions, ThreadHandle};
use crate::engine::{Engine, EngineOptions};
use crate::event::{ControlMessage, Event, EventBody, ResultKind, event_row};
use crate::exchange::{CallError, Delta, FailedStage, Reply, Request, StopReason, Usage};
use crate::keys::KeyFolder;
use crate::live::StreamEvent;
use crate::message::{ContentBlock, ToolCall};
use crate::provider::Provider;
use crate::store::Disk;
use crate::store::disk::SimulatedDisk;
use crate::store::layout::STATE;
use crate::thread::{RunResult, Status};
use crate::thread_id::ThreadId;
use crate::trust::Trust;

mod artifacts;
mod async_tools;
mod bounds;
mod cancel;
mod chat;
mod chat_rewinds;
mod continued_children;
mod crash;
mod deadline;
mod descendants;
mod disk;
mod faults;
mod foreign_transcripts;
mod hanging_hooks;
mod hook_bounds;
mod hook_facts;
mod hooks;
mod inbox;
mod interrupted_starts;
mod known_costs;
mod load;
mod long_prompts;
mod orchestra;
mod orphaned_children;
mod stepping_clock;
mod succession;
mod suspended;
mod tampered;
mod trees;
mod turns;
mod unrecoverable;
mod write_bounds;

/// A function that returns the reply of the model to a request.
pub(super) type ReplyScript = dyn Fn(&Request) -> Result<Vec<ContentBlock>, CallError> + Send + Sync;

pub(super) struct ScriptedModel {
    script: Box<ReplyScript>,
    pub asked: AtomicUsize,
    pub requests: Mutex<Vec<Request>>,
    pub pause: Duration,
    /// The usage that every reply reports.
    pub usage: Usage,
    /// True if the replies represent calls of a client, which no provider bills.
    pub is_client: bool,
}

impl Provider for ScriptedModel {
    fn serves_client(&self, _directive: &str) -> bool {
        self.is_client
    }

    fn call<'a>(
        &'a self,
        request: &'a Request,
        live: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.requests.lock().unwrap().push(request.clone());
            tokio::time::sleep(self.pause).await;
            live(Delta::Text("…".into()));
            let content = (self.script)(request)?;
            let usage = self.usage;
            Ok(Reply { content, usage, stop: StopReason::EndTurn, model: None, uncounted: None, unread: Vec::new() })
        })
    }
}

pub(super) fn reply_text(text: &str) -> Vec<ContentBlock> {
    vec![ContentBlock::Text { text: text.into() }]
}

pub(super) fn calls(list: &[(&str, Value)]) -> Vec<ContentBlock> {
    let call = |(n, (name, input)): (usize, &(&str, Value))| {
        ContentBlock::ToolCall(ToolCall { id: format!("c{n}"), name: (*name).to_owned(), input: input.clone() })
    };
    list.iter().enumerate().map(call).collect()
}

/// A project in a temporary folder, with the standard library of this workspace.
pub(super) struct Lab {
    pub folder: tempfile::TempDir,
    pub model: Arc<ScriptedModel>,
    pub system: Vec<(String, &'static [u8])>,
    pub disk: Option<Arc<dyn Disk>>,
    /// The project folder, if it differs from `folder`.
    pub elsewhere: Option<PathBuf>,
    pub keys: Option<KeyFolder>,
}

fn standard_library(folder: &Path, found: &mut Vec<(String, &'static [u8])>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stdlib");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            standard_library(&path, found);
        } else {
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            found.push((name, Vec::leak(std::fs::read(&path).unwrap())));
        }
    }
}

impl Lab {
    pub fn new(script: impl Fn(&Request) -> Result<Vec<ContentBlock>, CallError> + Send + Sync + 'static) -> Self {
        static SYSTEM: OnceLock<Vec<(String, &'static [u8])>> = OnceLock::new();
        let system = SYSTEM.get_or_init(|| {
            let mut system = Vec::new();
            standard_library(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../stdlib/.ai"), &mut system);
            system
        });
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join(".ai/directives/test")).unwrap();
        let model = ScriptedModel {
            script: Box::new(script),
            asked: AtomicUsize::new(0),
            requests: Mutex::default(),
            pause: Duration::ZERO,
            usage: Usage { input: 100, output: 10, cache_read: 0, cache_write: 0 },
            is_client: false,
        };
        Self { folder, model: Arc::new(model), system: system.clone(), disk: None, elsewhere: None, keys: None }
    }

    pub fn path(&self) -> PathBuf {
        self.elsewhere.as_deref().unwrap_or(self.folder.path()).canonicalize().unwrap()
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Writes a directive with this metadata into the project.
    pub fn directive(&self, name: &str, metadata: &str, rest: &str) {
        let text = format!(
            "# {name}\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\">\n<metadata><description>d</description>\n\
             <model provider=\"scripted\" tier=\"fast\"/><nudge>never</nudge>\n{metadata}</metadata>\n{rest}</directive>\n```\n\nDo it.\n"
        );
        self.write(&format!(".ai/directives/test/{name}.md"), &text);
    }

    pub fn engine(&self) -> Engine {
        Engine::open(&self.path(), self.options()).unwrap()
    }

    pub fn options(&self) -> EngineOptions {
        let mut options = EngineOptions::with_trust(
            &self.path(),
            None,
            self.system.clone(),
            Trust::Everything,
            ApprovalPolicy::Allow,
        )
        .unwrap();
        options.providers = Arc::new(Arc::clone(&self.model));
        options.clock = Arc::new(JumpingClock::starting_at(1_700_000_000_000));
        options.disk.clone_from(&self.disk);
        options.keys.clone_from(&self.keys);
        options
    }

    pub fn compile(&self, name: &str) -> Compilation {
        let options = EngineOptions::with_trust(
            &self.path(),
            None,
            self.system.clone(),
            Trust::Everything,
            ApprovalPolicy::Allow,
        )
        .unwrap();
        let world = (options.world)().unwrap();
        let ask = Ask::new(ItemId::parse(&format!("test/{name}")).unwrap()).with_inputs(serde_json::Map::new());
        let checked = compile(&*world, &ask);
        let messages: Vec<String> =
            checked.diagnostics.iter().map(rye_compiler::diagnostics::Diagnostic::message).collect();
        checked.value.unwrap_or_else(|| panic!("{messages:?}"))
    }

    pub async fn start(&self, engine: &Engine, name: &str) -> ThreadHandle {
        engine.start(&self.compile(name), StartOptions::default()).await.unwrap()
    }

    pub async fn run(&self, engine: &Engine, name: &str) -> RunResult {
        self.start(engine, name).await.join().await
    }
}

pub(super) fn names(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(|event| event_row(event.body.kind()).name).collect()
}

pub(super) fn thread(result: &RunResult) -> ThreadId {
    ThreadId::parse(&result.thread_id).unwrap()
}

pub(super) fn permit(patterns: &[&str]) -> String {
    let tools: String = patterns.iter().map(|p| format!("<execute><tool>{p}</tool></execute>")).collect();
    format!("<permissions>{tools}</permissions>")
}

#[tokio::test]
async fn one_turn_within_its_budget_of_commits_and_syncs() {
    let lab = Lab::new(|_| Ok(reply_text("hello")));
    lab.directive("hello", "", "");
    let engine = lab.engine();
    let (commits, disk) = (engine.commits(), engine.disk().counters());
    let result = lab.run(&engine, "hello").await;
    assert_eq!((result.status, result.result.as_deref()), (Status::Completed, Some("hello")));
    assert_eq!(serde_json::to_value(&result.cost).unwrap()["spend"], json!(0.000_15));
    let used = engine.disk().counters().since(&disk);
    assert!(engine.commits() - commits <= 3, "{} commits", engine.commits() - commits);
    assert!(used.syncs <= 3 && used.dir_syncs <= 4, "{used:?}");
    let listed = engine.threads().show(&thread(&result)).unwrap().unwrap();
    assert_eq!((listed.row.status, listed.row.cost.turns), (Status::Completed, 1));
    assert_eq!(engine.threads().result(&thread(&result)).unwrap(), Some(result));
}

/// The expected number includes the syncs of the database. The `+ 1` is the sync of the folder of the directive's
/// category, which contains the folder of the thread.
#[tokio::test]
async fn syncs_of_one_turn_are_within_their_budget_in_a_new_and_a_known_project() {
    let mut lab = Lab::new(|_| Ok(reply_text("hello")));
    let disk = Arc::new(SimulatedDisk::new());
    lab.disk = Some(Arc::clone(&disk) as Arc<dyn Disk>);
    lab.directive("hello", "", "");
    for expected in [10 + 1, 6 + 1] {
        let before = disk.counters().all_syncs();
        let engine = lab.engine();
        assert_eq!(lab.run(&engine, "hello").await.status, Status::Completed);
        engine.wait_idle().await;
        drop(engine);
        let names = disk.list(Path::new(STATE)).unwrap();
        assert!(names.iter().all(|entry| entry.is_dir), "the registry is closed: {names:?}");
        assert_eq!(disk.counters().all_syncs() - before, expected);
    }
}

#[tokio::test]
async fn a_durable_tool_turn_costs_one_commit_and_two_syncs() {
    let mut used = Vec::new();
    for turns in [3, 13] {
        let mut lab = Lab::new(move |request| {
            let turn = request.cue.turn.unwrap();
            let read = calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]);
            Ok(if turn < turns { read } else { reply_text("done") })
        });
        lab.write("a.txt", "content\n");
        lab.directive("loop", &format!("<limits turns=\"30\"/>{}", permit(&["rye.file-system.*"])), "");
        lab.disk = Some(Arc::new(SimulatedDisk::new()));
        let engine = lab.engine();
        let (commits, disk) = (engine.commits(), engine.disk().counters());
        let result = lab.run(&engine, "loop").await;
        assert_eq!(result.status, Status::Completed, "{:?}", engine.threads().transcript(&thread(&result)));
        let disk = engine.disk().counters().since(&disk);
        used.push((engine.commits() - commits, disk.syncs, disk.dir_syncs));
    }
    assert_eq!(used[1].0 - used[0].0, 10, "{used:?}");
    assert_eq!(used[1].1 - used[0].1, 20, "{used:?}");
    assert_eq!(used[1].2, used[0].2, "{used:?}");
}

/// The transcript is synced before and after a call that may write. For a call that only reads, the transcript is
/// synced before the answer.
#[tokio::test]
async fn a_served_call_costs_no_commit_and_a_sync_for_each_effect() {
    for tool in ["read", "write"] {
        let mut used = Vec::new();
        for turns in [3, 13] {
            let mut lab = Lab::new(move |request| {
                let turn = request.cue.turn.unwrap();
                let input =
                    if tool == "read" { json!({"path": "a.txt"}) } else { json!({"path": "b.txt", "content": "b"}) };
                let call = calls(&[(&format!("rye_file_system_{tool}"), input)]);
                Ok(if turn < turns { call } else { reply_text("done") })
            });
            let model = Arc::get_mut(&mut lab.model).unwrap();
            (model.is_client, model.usage) = (true, Usage::default());
            lab.write("a.txt", "content\n");
            lab.directive("loop", &format!("<limits turns=\"30\"/>{}", permit(&["rye.file-system.*"])), "");
            lab.disk = Some(Arc::new(SimulatedDisk::new()));
            let engine = lab.engine();
            let (commits, disk) = (engine.commits(), engine.disk().counters());
            let result = lab.run(&engine, "loop").await;
            assert_eq!(result.status, Status::Completed, "{:?}", engine.threads().transcript(&thread(&result)));
            let disk = engine.disk().counters().since(&disk);
            let row = engine.threads().show(&thread(&result)).unwrap().unwrap().row;
            assert_eq!((u32::try_from(row.cost.turns).unwrap(), row.cost.spend), (turns + 1, 0));
            used.push((engine.commits() - commits, disk.syncs, disk.appends));
        }
        assert_eq!(used[1].0, used[0].0, "{tool}: {used:?}");
        let (synced, appended) = (used[1].1 - used[0].1, used[1].2 - used[0].2);
        if tool == "read" {
            assert_eq!((synced, appended), (10, 10 * 2), "{used:?}");
        } else {
            // The record of the changed file is synced as well.
            assert!(synced >= 10 * 2, "{used:?}");
        }
    }
}

/// No provider bills the calls of a client, so the limit `spend` does not bound their size. Only the maximum size of a
/// message does.
#[tokio::test]
async fn large_call_of_a_client_reserves_no_money() {
    let mut lab = Lab::new(|request| {
        let input = json!({"path": "b.txt", "content": "b".repeat(600_000)});
        let call = || calls(&[("rye_file_system_write", input.clone())]);
        Ok(if request.cue.turn.unwrap() < 2 { call() } else { reply_text("done") })
    });
    let model = Arc::get_mut(&mut lab.model).unwrap();
    (model.is_client, model.usage) = (true, Usage::default());
    lab.directive("write", &format!("<limits spend=\"0.05\"/>{}", permit(&["rye.file-system.*"])), "");
    let engine = lab.engine();
    let result = lab.run(&engine, "write").await;
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    assert_eq!(result.status, Status::Completed, "{:?}", result.error);
    let worst = events
        .iter()
        .filter_map(|e| if let EventBody::AttemptIntended(a) = &e.body { Some(a.worst_case) } else { None });
    assert_eq!(worst.collect::<Vec<_>>(), [0, 0, 0]);
}

#[tokio::test]
async fn tools_run_through_the_gate_and_the_guard() {
    let lab = Lab::new(|request| {
        Ok(match request.cue.turn.unwrap() {
            0 => calls(&[
                ("rye_file_system_read", json!({"path": "big.txt"})),
                ("rye_file_system_read", json!({"path": "../outside.txt"})),
                (
                    "rye_execute",
                    json!({"item_type": "tool", "item_id": "rye/bash/bash", "parameters": {"command": "true"}}),
                ),
                ("rye_file_system_read", json!({"file": "big.txt"})),
            ]),
            _ => reply_text("done"),
        })
    });
    lab.write("big.txt", &"a line of some length that repeats\n".repeat(3000));
    lab.directive("tools", &permit(&["rye.file-system.read"]), "");
    let engine = lab.engine();
    let result = lab.run(&engine, "tools").await;
    assert_eq!(result.status, Status::Completed);
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    let results: Vec<_> =
        events.iter().filter_map(|e| if let EventBody::ToolCallResult(r) = &e.body { Some(r) } else { None }).collect();
    let of = |index: usize| results.iter().find(|r| r.index == index).unwrap();
    assert!(of(0).content.len() <= 33_000 && !of(0).is_error, "{}", of(0).content.len());
    assert!(of(1).is_error && of(3).is_error);
    assert_eq!(of(2).why, ResultKind::Denied { capability: "rye.execute.tool.rye.bash.bash".into() });
}

#[tokio::test]
async fn events_are_seen_as_they_are_recorded() {
    let lab = Lab::new(|_| Ok(reply_text("hello")));
    lab.directive("hello", "", "");
    let engine = lab.engine();
    let mut handle = lab.start(&engine, "hello").await;
    let (mut seen, mut deltas) = (Vec::new(), 0);
    while let Some(live) = handle.live.next().await {
        match live {
            StreamEvent::Event { event, .. } => seen.push((*event).clone()),
            StreamEvent::Delta { .. } => deltas += 1,
        }
    }
    let result = handle.join().await;
    assert_eq!(seen, engine.threads().transcript(&thread(&result)).unwrap());
    assert_eq!(deltas, 1);
}

#[tokio::test]
async fn large_event_is_stored_as_object_and_read_back() {
    let long = "x".repeat(300_000);
    let reply = long.clone();
    let lab = Lab::new(move |_| Ok(reply_text(&reply)));
    lab.directive("hello", "", "");
    let engine = lab.engine();
    let result = lab.run(&engine, "hello").await;
    assert_eq!(result.result.as_deref(), Some(long.as_str()));
    assert_eq!(engine.threads().result(&thread(&result)).unwrap().unwrap().result, Some(long.into()));
}

#[tokio::test]
async fn cancel_finishes_the_step_and_kill_does_not() {
    for (message, status) in [(ControlMessage::Cancel, Status::Cancelled), (ControlMessage::Kill, Status::Killed)] {
        let mut lab = Lab::new(|_| Ok(calls(&[("rye_execute", json!({}))])));
        Arc::get_mut(&mut lab.model).unwrap().pause = Duration::from_millis(300);
        lab.directive("slow", "", "");
        let engine = lab.engine();
        let mut handle = lab.start(&engine, "slow").await;
        while let Some(live) = handle.live.next().await {
            if matches!(live, StreamEvent::Event { event, .. } if matches!(event.body, EventBody::Reserved(_))) {
                break;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        handle.send(message.clone());
        let result = handle.join().await;
        assert_eq!(result.status, status);
        let events = engine.threads().transcript(&thread(&result)).unwrap();
        let unknown = events.iter().any(|e| matches!(&e.body, EventBody::Settled(s) if s.unknown_outcome));
        assert_eq!(unknown, message == ControlMessage::Kill);
        let asked = names(&events).iter().filter(|n| **n == "cognition_out").count();
        assert_eq!(asked, usize::from(message == ControlMessage::Cancel));
    }
}

#[tokio::test]
async fn inbox_message_is_delivered_once_and_removed() {
    let mut lab = Lab::new(|request| {
        Ok(if request.cue.turn == Some(0) { calls(&[("rye_execute", json!({}))]) } else { reply_text("done") })
    });
    Arc::get_mut(&mut lab.model).unwrap().pause = Duration::from_millis(1500);
    lab.directive("slow", "", "");
    let engine = lab.engine();
    let handle = lab.start(&engine, "slow").await;
    let message = serde_json::to_value(ControlMessage::Steer { text: "look left".into() }).unwrap();
    crate::store::mailbox::send(&**engine.disk(), &handle.thread_id, &message, 5).unwrap();
    let result = handle.join().await;
    assert_eq!(result.status, Status::Completed);
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    assert_eq!(names(&events).iter().filter(|n| **n == "mail").count(), 1);
    let last = lab.model.requests.lock().unwrap().last().unwrap().clone();
    assert!(serde_json::to_string(&last.turns).unwrap().contains("look left"));
    assert!(crate::store::mailbox::list(&**engine.disk(), &handle.thread_id).unwrap().is_empty());
}

#[tokio::test]
async fn a_provider_that_cannot_be_reached_ends_in_its_error() {
    let lab = Lab::new(|_| Err(CallError::new(FailedStage::Setup, "set SOME_KEY")));
    lab.directive("hello", "", "");
    let engine = lab.engine();
    let result = lab.run(&engine, "hello").await;
    assert_eq!((result.status, lab.model.asked.load(Ordering::Relaxed)), (Status::Error, 1));
    assert!(result.error.unwrap().message.contains("SOME_KEY"));
}

#[tokio::test]
async fn a_stored_result_is_paged_by_its_own_thread_alone() {
    let lab = Lab::new(|request| {
        let seen = serde_json::to_string(&request.turns).unwrap();
        let hex = seen.split(|c: char| !c.is_ascii_hexdigit()).find(|word| word.len() == 64);
        let object = hex.unwrap_or_default().to_owned();
        Ok(match request.cue.turn.unwrap() {
            0 => calls(&[("rye_bash_bash", json!({"command": "yes 'a line of some length' | head -n 4000"}))]),
            1 => calls(&[
                ("rye_fetch", json!({"object": object, "offset": 0, "limit": 50})),
                ("rye_fetch", json!({"object": "0".repeat(64)})),
            ]),
            _ => reply_text("done"),
        })
    });
    lab.directive("tools", "<permissions><execute><tool>rye.bash.bash</tool></execute><fetch><knowledge>*</knowledge></fetch></permissions>", "");
    let engine = lab.engine();
    let result = lab.run(&engine, "tools").await;
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    let of = |index: usize| {
        let result = |e: &Event| match &e.body {
            EventBody::ToolCallResult(r) if r.turn == 2 && r.index == index => Some((**r).clone()),
            _ => None,
        };
        events.iter().find_map(result).unwrap()
    };
    assert!(!of(0).is_error && of(0).content.contains("a line of some"), "{:?}", of(0));
    assert_eq!(of(1).why, ResultKind::Refused, "{:?}", of(1));
}

#[tokio::test]
async fn a_thread_has_one_owner() {
    let mut lab = Lab::new(|_| Ok(reply_text("done")));
    Arc::get_mut(&mut lab.model).unwrap().pause = Duration::from_millis(500);
    lab.directive("slow", "", "");
    let (first, second) = (lab.engine(), lab.engine());
    let handle = lab.start(&first, "slow").await;
    let refused = second.recover(&handle.thread_id).await.unwrap_err();
    assert!(refused.to_string().contains("is owned by a running process"), "{refused}");
    assert_eq!(handle.join().await.status, Status::Completed);
    let over = second.recover(&handle.thread_id).await.unwrap_err();
    assert!(matches!(over, crate::engine::EngineError::Over { .. }), "{over}");
}

/// Tests of hooks in project files.
mod hooked {
    use super::*;

    fn hooks(lab: &Lab, text: &str) {
        lab.write(".ai/config/agent/hooks.yaml", &format!("hooks:\n{text}"));
    }

    fn points(events: &[Event]) -> Vec<String> {
        let point = |e: &Event| match &e.body {
            EventBody::HookPoint(run) => {
                let fired: Vec<_> = run.considered.iter().map(|c| format!("{}={:?}", c.hook, c.verdict)).collect();
                Some(format!("{:?}: {}", run.point, fired.join(" ")))
            }
            _ => None,
        };
        events.iter().filter_map(point).collect()
    }

    #[tokio::test]
    async fn blocking_hook_sets_the_result_and_executed_tool_runs() {
        let lab = Lab::new(|request| {
            let read = |path: &str| ("rye_file_system_read", json!({"path": path}));
            Ok(if request.cue.turn == Some(0) { calls(&[read("a.txt"), read("b.txt")]) } else { reply_text("done") })
        });
        lab.write("a.txt", "a\n");
        lab.write("b.txt", "b\n");
        lab.directive("hooked", &permit(&["rye.file-system.read"]), "");
        hooks(
            &lab,
            "  - { id: no_b, event: tool_call, condition: 'call.input.path == \"b.txt\"', action: { block: { reason: \"not b\" } } }\n  \
             - { id: note, event: after_step, action: { primary: execute, item_type: tool, item_id: rye/file-system/write, \
             params: { path: note.txt, content: \"turn ${turn}\" } } }\n",
        );
        let engine = lab.engine();
        let result = lab.run(&engine, "hooked").await;
        assert_eq!(result.status, Status::Completed, "{result:?}");
        let events = engine.threads().transcript(&thread(&result)).unwrap();
        let blocked = events.iter().any(
            |e| matches!(&e.body, EventBody::ToolCallResult(r) if r.why == ResultKind::Blocked && r.content == "not b"),
        );
        assert!(blocked, "{:#?}", points(&events));
        assert_eq!(std::fs::read_to_string(lab.path().join("note.txt")).unwrap(), "turn 2", "{:#?}", points(&events));
    }

    #[tokio::test]
    async fn a_filled_id_needs_a_grant() {
        let lab = Lab::new(|request| {
            let read = ("rye_file_system_read", json!({"path": "a.txt"}));
            Ok(if request.cue.turn == Some(0) { calls(&[read]) } else { reply_text("done") })
        });
        lab.write("a.txt", "a\n");
        lab.directive(
            "hooked",
            &permit(&["rye.file-system.read"]),
            "<inputs><input name=\"which\" type=\"string\" default=\"write\">w</input></inputs>",
        );
        let hook = |grants: &str| {
            format!(
                "  - {{ id: note, event: after_step, {grants} action: {{ primary: execute, item_type: tool, \
                 item_id: 'rye/file-system/{{input:which}}', params: {{ path: note.txt, content: x }} }} }}\n"
            )
        };
        hooks(&lab, &hook(""));
        let engine = lab.engine();
        let result = lab.run(&engine, "hooked").await;
        let events = engine.threads().transcript(&thread(&result)).unwrap();
        assert_eq!(result.status, Status::Completed);
        assert!(!lab.path().join("note.txt").exists(), "{:#?}", points(&events));
        assert!(points(&events).contains(&"AfterStep: note=Failed".to_owned()), "{:#?}", points(&events));
        hooks(&lab, &hook("grants: [rye.execute.tool.rye.file-system.*],"));
        let result = lab.run(&engine, "hooked").await;
        assert_eq!(result.status, Status::Completed);
        assert!(lab.path().join("note.txt").exists());
    }
}
