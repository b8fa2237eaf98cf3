//! The deadline of a thread against servers, children and approvals that take longer. The clock stands still until the
//! test advances it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rye_compiler::plan::{ApprovalOrigin, PlannedModel};
use serde_json::json;

use super::{Lab, calls, permit, reply_text, thread};
use crate::BoxFuture;
use crate::clock::ManualClock;
use crate::context::{ApprovalHandler, ApprovalPolicy, ApprovalRequest, Providers, StartOptions};
use crate::engine::Engine;
use crate::event::{Approval, ControlMessage, EventBody, ResultKind};
use crate::exchange::{CallError, Delta, Reply, Request};
use crate::provider::wire::fake::{ScriptedServer, ServerMove, chunk, chunked, send};
use crate::provider::wire::tests::settings;
use crate::provider::{Provider, Wire, connect_provider};
use crate::store::Disk;
use crate::store::disk::{SimulatedDisk, Survival};
use crate::thread::Status;

const OVER: &str = "duration_seconds_exceeded";

/// Connects every model to a loopback server: the wire, and the URL of the server.
struct ServerProvider(Wire, String);

impl Providers for ServerProvider {
    fn connect(&self, _: &PlannedModel) -> Result<Arc<dyn Provider>, CallError> {
        connect_provider(&settings(self.0, &self.1))
    }
}

fn open(lab: &Lab, clock: &Arc<ManualClock>, set: impl FnOnce(&mut crate::engine::EngineOptions)) -> Engine {
    let mut options = lab.options();
    options.clock = Arc::clone(clock) as Arc<dyn crate::clock::Clock>;
    set(&mut options);
    Engine::open(&lab.path(), options).unwrap()
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::starting_at(1_700_000_000_000))
}

#[tokio::test]
async fn model_call_ends_at_the_deadline_whatever_the_server_does() {
    let first = |stream: &str| stream.split_inclusive("\n\n").take(2).collect::<String>();
    let wires = [
        (Wire::Anthropic, first(include_str!("../../../fixtures/streams/anthropic-text.sse"))),
        (Wire::OpenaiChat, first(include_str!("../../../fixtures/streams/openai-text.sse"))),
        (Wire::OpenaiResponses, first(include_str!("../../../fixtures/streams/responses-text.sse"))),
        (Wire::Gemini, first(include_str!("../../../fixtures/streams/gemini-text.sse"))),
    ];
    for (wire, start) in wires {
        let drip = start.bytes().map(|byte| chunk(&[byte]));
        let alive = (0..100).map(|_| chunk(b": keep-alive\n\n"));
        let servers: [(&str, Vec<ServerMove>); 5] = [
            ("no answer", vec![ServerMove::Stay]),
            ("half a head", vec![send("HTTP/1.1 200 OK\r\ncontent-"), ServerMove::Stay]),
            ("silence", vec![chunked(), ServerMove::Stay]),
            ("a dripping stream", [chunked()].into_iter().chain(drip).chain([ServerMove::Stay]).collect()),
            ("comments", [chunked()].into_iter().chain(alive).chain([ServerMove::Stay]).collect()),
        ];
        for (what, moves) in servers {
            let (server, clock) = (ScriptedServer::start(moves), clock());
            let lab = Lab::new(|_| Ok(reply_text("unused")));
            lab.directive("hello", "<limits duration_seconds=\"3\"/>", "");
            let url = server.url.clone();
            let engine = open(&lab, &clock, |options| options.providers = Arc::new(ServerProvider(wire, url)));
            let handle = lab.start(&engine, "hello").await;
            let server = tokio::task::spawn_blocking(move || {
                server.next_request();
                server
            });
            let server = server.await.unwrap();
            clock.advance(3_000);
            let result = handle.join().await;
            let error = result.error.as_ref().unwrap();
            assert_eq!((result.status, error.code.as_str()), (Status::Error, OVER), "{wire:?}, {what}: {error:?}");
            let events = engine.threads().transcript(&thread(&result)).unwrap();
            let (mut reserved, mut settled) = (Vec::new(), Vec::new());
            for event in &events {
                match &event.body {
                    EventBody::Reserved(one) => reserved.push(one.amount),
                    EventBody::Settled(one) => settled.push((one.amount, one.unknown_outcome)),
                    _ => {}
                }
            }
            assert_eq!(settled, [(reserved[0], true)], "{wire:?}, {what}: one call, at its worst case");
            drop(server);
        }
    }
}

/// A model that never answers a child and counts its callers.
struct StallingModel(AtomicUsize);

impl Provider for StallingModel {
    fn call<'a>(
        &'a self,
        request: &'a Request,
        _: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(async move {
            self.0.fetch_add(1, Ordering::SeqCst);
            if request.cue.directive == "test/child" {
                std::future::pending::<()>().await;
            }
            let input = json!({"item_type": "directive", "item_id": "test/child", "parameters": {}});
            let usage = crate::exchange::Usage::default();
            let content = calls(&[("rye_execute", input)]);
            Ok(Reply {
                content,
                usage,
                stop: crate::exchange::StopReason::ToolUse,
                model: None,
                uncounted: None,
                unread: Vec::new(),
            })
        })
    }
}

#[tokio::test]
async fn child_ends_at_the_deadline_of_its_parent() {
    let lab = Lab::new(|_| Ok(reply_text("unused")));
    let permitted = "<permissions><execute><directive>test.*</directive></execute></permissions>";
    lab.directive("parent", &format!("<limits duration_seconds=\"20\"/>{permitted}"), "");
    lab.directive("child", "<limits duration_seconds=\"20\"/>", "");
    let (clock, model) = (clock(), Arc::new(StallingModel(AtomicUsize::new(0))));
    let provider = Arc::clone(&model);
    let engine = open(&lab, &clock, |options| options.providers = Arc::new(provider));
    // Part of the parent's time has elapsed on the test clock before the child starts.
    let handle = lab.start(&engine, "parent").await;
    while model.0.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    clock.advance(20_000);
    let result = handle.join().await;
    assert_eq!(result.error.unwrap().code, OVER);
    engine.wait_idle().await;
    let child = engine.threads().list().unwrap().into_iter().find(|row| row.row.directive == "test/child").unwrap();
    let child = engine.threads().result(&child.row.id).unwrap().unwrap();
    assert_eq!((child.status, child.error.unwrap().code.as_str()), (Status::Error, OVER));
    assert_eq!(model.0.load(Ordering::SeqCst), 2, "no further request");
}

#[tokio::test]
async fn first_requests_of_a_tree_do_not_depend_on_the_elapsed_time() {
    let mut sent = Vec::new();
    for seconds in [0, 1, 7] {
        let clock = clock();
        let slow = Arc::clone(&clock);
        let lab = Lab::new(move |request| {
            slow.advance(seconds * 1_000);
            let below = match request.cue.directive.as_str() {
                "test/root" => "test/parent",
                "test/parent" => "test/child",
                _ => return Ok(reply_text("done")),
            };
            let input = json!({"item_type": "directive", "item_id": below, "parameters": {}});
            let execute = calls(&[("rye_execute", input)]);
            Ok(if request.cue.turn == Some(0) { execute } else { reply_text("done") })
        });
        let permitted = "<permissions><execute><directive>test.*</directive></execute></permissions>";
        lab.directive("root", &format!("<limits duration_seconds=\"90\"/>{permitted}"), "");
        lab.directive("parent", &format!("<limits duration_seconds=\"80\"/>{permitted}"), "");
        lab.directive("child", "", "");
        let engine = open(&lab, &clock, |_| {});
        assert_eq!(lab.run(&engine, "root").await.status, Status::Completed);
        engine.wait_idle().await;
        let rows = engine.threads().list().unwrap();
        let mut plans: Vec<_> = rows.into_iter().map(|row| (row.row.directive, row.row.plan_id)).collect();
        plans.sort();
        let path = lab.path().display().to_string();
        let requests = lab.model.requests.lock().unwrap().clone();
        let first = requests.iter().filter(|request| request.cue.turn == Some(0));
        let texts: Vec<String> =
            first.map(|request| format!("{}\n{:?}", request.system, request.turns).replace(&path, "PROJECT")).collect();
        sent.push((plans, texts));
    }
    assert_eq!(sent[0].1.len(), 3);
    for (text, limit) in sent[0].1.iter().zip(["90 seconds", "80 seconds", "80 seconds"]) {
        assert!(text.contains(limit), "{limit}: {text}");
    }
    assert!(sent.iter().all(|one| *one == sent[0]), "{sent:#?}");
}

#[tokio::test]
async fn child_started_from_outside_gets_the_remaining_time_of_its_parent() {
    let lab = Lab::new(|_| Ok(reply_text("unused")));
    lab.directive("child", "<limits duration_seconds=\"20\"/>", "");
    let (clock, model) = (clock(), Arc::new(StallingModel(AtomicUsize::new(0))));
    let provider = Arc::clone(&model);
    let engine = open(&lab, &clock, |options| options.providers = Arc::new(provider));
    let above = lab.start(&engine, "child").await;
    while model.0.load(Ordering::SeqCst) < 1 {
        tokio::task::yield_now().await;
    }
    clock.advance(14_500);
    let parent = engine.inspect(&above.thread_id).await.unwrap();
    let launch = StartOptions { parent, ..StartOptions::default() };
    let below = engine.start(&lab.compile("child"), launch.clone()).await.unwrap();
    while model.0.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    let events = engine.threads().transcript(&below.thread_id).unwrap();
    let EventBody::Opened(opened) = &events[0].body else { panic!("{events:?}") };
    assert_eq!(opened.limits.duration_seconds, 6);
    // The child ends at its own deadline, and then the parent at its own.
    clock.advance(5_500);
    assert_eq!(above.join().await.error.unwrap().code, OVER);
    clock.advance(500);
    let ended = below.join().await;
    assert!(matches!(ended.status, Status::Error | Status::Cancelled), "{ended:?}");
    let late = engine.start(&lab.compile("child"), launch).await.map(drop).unwrap_err();
    assert!(late.to_string().contains("duration_seconds_exceeded"), "{late}");
}

/// A model whose first reply takes 12 seconds and calls a tool, and which never replies again.
struct SlowModel {
    clock: Arc<ManualClock>,
    calls: AtomicUsize,
}

impl Provider for SlowModel {
    fn call<'a>(
        &'a self,
        _: &'a Request,
        _: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(async move {
            if self.calls.fetch_add(1, Ordering::SeqCst) > 0 {
                std::future::pending::<()>().await;
            }
            self.clock.advance(12_000);
            Ok(Reply {
                content: calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]),
                usage: crate::exchange::Usage::default(),
                stop: crate::exchange::StopReason::ToolUse,
                model: None,
                uncounted: None,
                unread: Vec::new(),
            })
        })
    }
}

async fn called(model: &SlowModel, times: usize) {
    while model.calls.load(Ordering::SeqCst) < times {
        tokio::task::yield_now().await;
    }
}

/// A process is killed 12 of 20 seconds into the duration, and the wall clock is changed before the next process starts.
#[tokio::test]
async fn killed_thread_has_its_remaining_time_whatever_the_wall_clock_says() {
    const DAY: i64 = 86_400_000;
    for step in [-DAY, -30_000, 0, 30_000, DAY] {
        let mut lab = Lab::new(|_| Ok(reply_text("unused")));
        let disk = Arc::new(SimulatedDisk::new());
        lab.disk = Some(Arc::clone(&disk) as Arc<dyn Disk>);
        lab.write("a.txt", "text");
        let tool = "<permissions><execute><tool>rye.file-system.read</tool></execute></permissions>";
        lab.directive("reads", &format!("<limits duration_seconds=\"20\"/>{tool}"), "");
        let clock = clock();
        let model = Arc::new(SlowModel { clock: Arc::clone(&clock), calls: AtomicUsize::new(0) });
        let (provider, compiled) = (Arc::clone(&model), lab.compile("reads"));
        let engine = open(&lab, &clock, |options| options.providers = Arc::new(provider));
        // The runtime of a process ends with the process.
        let process = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                engine.start(&compiled, StartOptions::default()).await.unwrap();
                called(&model, 2).await;
            });
            runtime.shutdown_background();
            std::mem::forget(engine);
            model
        });
        let model = process.join().unwrap();
        disk.restart(Survival::All);
        let clock = Arc::new(clock.stepped_by(step));
        let provider = Arc::clone(&model);
        let engine = open(&lab, &clock, |options| options.providers = Arc::new(provider));
        let orphan = engine.threads().list().unwrap().remove(0).row.id;
        let handle = engine.recover(&orphan).await.unwrap();
        // A step forwards ends nothing: the call is made again.
        called(&model, 3).await;
        // A step backwards lengthens nothing: eight seconds are left.
        clock.advance(8_000);
        let ended = handle.join().await;
        assert_eq!(ended.error.unwrap().code, OVER, "step {step}");
        let limits = engine.threads().transcript(&orphan).unwrap().into_iter().find_map(|event| match event.body {
            EventBody::Limit(hit) => Some(hit),
            _ => None,
        });
        assert!(limits.is_some_and(|hit| hit.limit_code == OVER), "step {step}");
    }
}

/// The wall clock is changed between the start of a thread's process and the start of the process that adds a child.
#[tokio::test]
async fn child_from_outside_gets_the_remaining_time_of_its_parent_after_a_step_of_the_wall_clock() {
    const DAY: i64 = 86_400_000;
    for step in [-DAY, DAY] {
        let mut lab = Lab::new(|_| Ok(reply_text("unused")));
        lab.disk = Some(Arc::new(SimulatedDisk::new()) as Arc<dyn Disk>);
        lab.directive("child", "<limits duration_seconds=\"20\"/>", "");
        let (clock, model) = (clock(), Arc::new(StallingModel(AtomicUsize::new(0))));
        let provider = Arc::clone(&model);
        let first = open(&lab, &clock, |options| options.providers = Arc::new(provider));
        let above = lab.start(&first, "child").await;
        while model.0.load(Ordering::SeqCst) < 1 {
            tokio::task::yield_now().await;
        }
        clock.advance(14_500);
        let (provider, stepped) = (Arc::clone(&model), Arc::new(clock.stepped_by(step)));
        let second = open(&lab, &stepped, |options| options.providers = Arc::new(provider));
        let parent = second.inspect(&above.thread_id).await.unwrap();
        let launch = StartOptions { parent, ..StartOptions::default() };
        let below = second.start(&lab.compile("child"), launch).await.unwrap();
        let events = second.threads().transcript(&below.thread_id).unwrap();
        let EventBody::Opened(opened) = &events[0].body else { panic!("{events:?}") };
        assert_eq!(opened.limits.duration_seconds, 6, "step {step}");
        below.kill();
        below.join().await;
        above.kill();
        above.join().await;
    }
}

/// An approver that allows every call, never answers a request about a limit, and counts those requests.
#[derive(Default)]
struct SilentAtLimits(AtomicUsize);

impl ApprovalHandler for SilentAtLimits {
    fn ask<'a>(&'a self, request: ApprovalRequest<'a>) -> BoxFuture<'a, Approval> {
        Box::pin(async move {
            if request.origin == ApprovalOrigin::Call {
                return Approval::Approved;
            }
            self.0.fetch_add(1, Ordering::SeqCst);
            std::future::pending().await
        })
    }
}

/// Starts a thread that requests an approval at its limit of one turn, and whose duration limit is a minute.
async fn asking(clock: &Arc<ManualClock>, settings: &str) -> (Lab, Engine, crate::engine::ThreadHandle) {
    let lab = Lab::new(|request| {
        let read = calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]);
        Ok(if request.cue.turn == Some(0) { read } else { reply_text("done") })
    });
    lab.write("a.txt", "a\n");
    lab.write(".ai/config/agent/hooks.yaml", "hooks:\n  - { id: ask, event: limit, action: { escalate: {} } }\n");
    lab.write(".ai/config/agent/agent.yaml", settings);
    let limits = "<limits turns=\"1\" duration_seconds=\"60\"/>";
    lab.directive("reader", &format!("{limits}{}", permit(&["rye.file-system.read"])), "");
    let approver = Arc::new(SilentAtLimits::default());
    let engine = open(&lab, clock, |options| {
        options.approvals = ApprovalPolicy::Ask(Arc::clone(&approver) as Arc<dyn ApprovalHandler>);
    });
    let handle = lab.start(&engine, "reader").await;
    while approver.0.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    (lab, engine, handle)
}

#[tokio::test]
async fn person_who_takes_longer_than_the_duration_is_waited_for() {
    let clock = clock();
    let (_lab, engine, handle) = asking(&clock, "# nothing\n").await;
    clock.advance(3_000_000);
    handle.send(ControlMessage::Raise { limit: "turns".into(), value: 5 });
    handle.send(ControlMessage::Approve { yes: true, question: None, message: None, raises: false });
    let result = handle.join().await;
    assert_eq!((result.status, result.cost.turns), (Status::Completed, 2), "{result:?}");
    engine.wait_idle().await;
}

#[tokio::test]
async fn wait_of_a_child_that_is_handed_over_is_not_the_parents_duration() {
    let clock = clock();
    let lab = Lab::new(|request| {
        let fresh = !serde_json::to_string(&request.turns).unwrap().contains("Continue where you left off");
        let child = json!({"item_type": "directive", "item_id": "test/child"});
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/parent", 0) if fresh => calls(&[("rye_execute", child)]),
            ("test/child", 0) if fresh => calls(&[("rye_file_system_read", json!({"path": "a.txt"}))]),
            _ => reply_text("done"),
        })
    });
    lab.write("a.txt", "a\n");
    // The context of the child is full after its first turn, when its limit of one turn is reached.
    lab.write(".ai/config/agent/coordination.yaml", "continuation: { trigger_threshold: 0.0000001 }\n");
    lab.write(".ai/config/agent/hooks.yaml", "hooks:\n  - { id: ask, event: limit, action: { escalate: {} } }\n");
    let granted =
        "<permissions><execute><directive>test.*</directive><tool>rye.file-system.read</tool></execute></permissions>";
    lab.directive("parent", &format!("<limits turns=\"5\" duration_seconds=\"60\"/>{granted}"), "");
    lab.directive("child", &format!("<limits turns=\"1\" duration_seconds=\"60\"/>{granted}"), "");
    let approver = Arc::new(SilentAtLimits::default());
    let engine = open(&lab, &clock, |options| {
        options.approvals = ApprovalPolicy::Ask(Arc::clone(&approver) as Arc<dyn ApprovalHandler>);
    });
    let handle = lab.start(&engine, "parent").await;
    while approver.0.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    clock.advance(3_000_000);
    let rows = engine.threads().list().unwrap();
    let child = rows.iter().find(|listed| listed.row.directive == "test/child").unwrap().row.id.clone();
    engine.send_to(&child, &ControlMessage::Raise { limit: "turns".into(), value: 5 });
    engine.send_to(&child, &ControlMessage::Approve { yes: true, question: None, message: None, raises: false });
    let result = handle.join().await;
    assert_eq!(result.status, Status::Completed, "{result:?}");
    engine.wait_idle().await;
    let rows = engine.threads().list().unwrap();
    let asked =
        |id: &crate::thread_id::ThreadId| rows.iter().find(|one| one.row.id == *id).unwrap().row.cost.approval_wait_ms;
    assert_eq!(asked(&child), 3_000_000);
    assert!(rows.iter().filter(|one| one.row.directive == "test/child").count() > 1, "the child is handed over");
}

#[tokio::test]
async fn approval_without_an_answer_in_time_suspends_the_thread() {
    let clock = clock();
    let (_lab, engine, handle) = asking(&clock, "approvals: { timeout_seconds: 5 }\n").await;
    let joined = tokio::spawn(async move { handle.join().await });
    while !joined.is_finished() {
        // The timeout is read from the settings after the approval was requested, so the clock is advanced more than
        // once.
        tokio::task::yield_now().await;
        clock.advance(1_000);
    }
    let result = joined.await.unwrap();
    assert_eq!(result.status, Status::Suspended, "{result:?}");
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    assert!(crate::threads::pending_approval(&events).is_some(), "the request stays open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_of_a_hook_ends_at_the_deadline_of_its_thread() {
    let lab = Lab::new(|_| Ok(calls(&[("rye_file_system_read", json!({"path": "a.txt"}))])));
    lab.write("a.txt", "a\n");
    lab.write(
        ".ai/tools/test/slow.yaml",
        "description: Sleeps.\nversion: 1.0.0\nkind: command\ncommand: [sleep, \"60\"]\n",
    );
    let hook = "<hooks><hook id=\"slow\" event=\"after_step\"><action primary=\"execute\" item_type=\"tool\" item_id=\"test/slow\"/></hook></hooks>";
    let permitted = permit(&["rye.file-system.read", "test.slow"]);
    lab.directive("hooked", &format!("<limits duration_seconds=\"2\"/>{hook}{permitted}"), "");
    let mut options = lab.options();
    options.clock = Arc::new(crate::clock::SystemClock);
    let engine = Engine::open(&lab.path(), options).unwrap();
    let began = std::time::Instant::now();
    let result = lab.run(&engine, "hooked").await;
    assert_eq!((result.status, result.error.unwrap().code.as_str()), (Status::Error, OVER));
    assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", began.elapsed());
}

/// A tool whose every call takes one second of the manual clock.
struct OneSecond {
    clock: Arc<ManualClock>,
    calls: Arc<AtomicUsize>,
}

impl crate::tool::Tool for OneSecond {
    fn run(&self, _: crate::tool::Invocation) -> BoxFuture<'_, crate::tool::ToolOutcome> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.clock.advance(1_000);
        Box::pin(std::future::ready(crate::tool::ToolOutcome::ok("done")))
    }
}

#[tokio::test]
async fn calls_of_a_parallel_group_do_not_start_after_the_deadline() {
    const CALLS: usize = 200;
    let group = || calls(&vec![("test_second", json!({})); CALLS]);
    let lab = Lab::new(move |_| Ok(group()));
    lab.write(
        ".ai/tools/test/second.yaml",
        "description: Takes a second.\nversion: 1.0.0\nkind: builtin\nbuiltin: test_second\nparallel: true\n",
    );
    lab.directive("grouped", &format!("<limits duration_seconds=\"10\"/>{}", permit(&["test.second"])), "");
    let (clock, made) = (clock(), Arc::new(AtomicUsize::new(0)));
    let (for_tool, counted) = (Arc::clone(&clock), Arc::clone(&made));
    let engine = open(&lab, &clock, |options| {
        options.tools.add("test_second", move |_| {
            Arc::new(OneSecond { clock: Arc::clone(&for_tool), calls: Arc::clone(&counted) })
        });
    });
    let result = lab.run(&engine, "grouped").await;
    assert_eq!((result.status, result.error.as_ref().unwrap().code.as_str()), (Status::Error, OVER));
    let events = engine.threads().transcript(&thread(&result)).unwrap();
    let results = events.iter().filter_map(|event| match &event.body {
        EventBody::ToolCallResult(result) => Some(result),
        _ => None,
    });
    let answers: Vec<_> = results.collect();
    let is_refused = |why: &ResultKind| *why == ResultKind::Refused;
    let refused =
        answers.iter().filter(|answer| is_refused(&answer.why) && answer.content.contains("not started")).count();
    assert_eq!((answers.len(), made.load(Ordering::SeqCst) + refused), (CALLS, CALLS));
    assert!(refused > CALLS / 2, "{refused} calls were not started");
}
