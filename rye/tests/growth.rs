//! Costs that must not grow: allocations of a late turn, child or call, compared with those of an early one, over real
//! HTTP.
//!
//! The allocations of all threads of this process are counted, including those of the model server, which are the same
//! for every request. `RYE_GROWTH=whole` (`just growth`) counts at turn 1,000 and child 4,000.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, reason = "tests")]

use std::alloc::System;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rye::engine::thread::Status;
use rye::{Approvals, CompileRequest, EngineBuilder, ItemId, Project, SessionRequest};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Lock that lets only one test run at a time, because the tests share the counters of the process.
static ALONE: Mutex<()> = Mutex::new(());

fn run_alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_whole() -> bool {
    std::env::var("RYE_GROWTH").is_ok_and(|size| size == "whole")
}

/// The counters at one request of the model.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    allocations: usize,
    allocated_bytes: usize,
    /// Bytes of all requests so far.
    sent_bytes: usize,
}

/// A model server in the form of `openai-chat`, on loopback. It records the counters at the requests `marks`.
struct ModelServer {
    port: u16,
    marks: Arc<Mutex<BTreeMap<usize, Mark>>>,
}

type Reply = fn(number: usize, count: usize) -> Value;

#[derive(Default)]
struct Received {
    requests: usize,
    bytes: usize,
}

impl ModelServer {
    /// Starts a server that answers the n-th request with `reply(n, count)`.
    fn start(marks: &'static [usize], count: usize, reply: Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (found, received) = (Arc::new(Mutex::new(BTreeMap::new())), Arc::new(Mutex::new(Received::default())));
        let recorded = Arc::clone(&found);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (recorded, received) = (Arc::clone(&recorded), Arc::clone(&received));
                std::thread::spawn(move || {
                    let stream = stream.unwrap();
                    serve(stream, |length| {
                        let mut received = received.lock().unwrap();
                        received.requests += 1;
                        received.bytes += length;
                        if marks.contains(&received.requests) {
                            let stats = ALLOCATOR.stats();
                            let mark = Mark {
                                allocations: stats.allocations + stats.reallocations,
                                allocated_bytes: stats.bytes_allocated,
                                sent_bytes: received.bytes,
                            };
                            recorded.lock().unwrap().insert(received.requests, mark);
                        }
                        reply(received.requests, count)
                    });
                });
            }
        });
        Self { port, marks: found }
    }

    /// Returns the allocations and the allocated bytes per request, averaged between two marks. The bytes of the
    /// requests themselves are not counted.
    fn cost(&self, from: usize, to: usize) -> (usize, usize) {
        let marks = self.marks.lock().unwrap();
        let (from_mark, to_mark) = (marks[&from], marks[&to]);
        let bytes = to_mark.allocated_bytes - from_mark.allocated_bytes;
        let sent = to_mark.sent_bytes - from_mark.sent_bytes;
        ((to_mark.allocations - from_mark.allocations) / (to - from), bytes.saturating_sub(sent) / (to - from))
    }
}

/// Answers the requests of one connection until it ends.
fn serve(stream: TcpStream, mut answer: impl FnMut(usize) -> Value) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    let (mut line, mut body) = (String::new(), Vec::new());
    loop {
        let mut length = 0;
        loop {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        body.resize(length, 0);
        reader.read_exact(&mut body).unwrap();
        let message = answer(length);
        let reason = if message.get("tool_calls").is_some() { "tool_calls" } else { "stop" };
        let events = [
            json!({"choices": [{"index": 0, "delta": message}]}),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}),
            json!({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10}}),
        ];
        let texts: Vec<String> = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        let text = texts.concat() + "data: [DONE]\n\n";
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n", text.len());
        if writer.write_all((head + &text).as_bytes()).is_err() {
            return;
        }
    }
}

fn call(index: usize, name: &str, arguments: &Value) -> Value {
    json!({"index": index, "id": format!("c{index}"), "function": {"name": name, "arguments": arguments.to_string()}})
}

/// Writes a project whose directives `talk` and `lead` use the server's model.
fn write_project(folder: &Path, server: &ModelServer, metadata: &str) -> Project {
    let write = |path: &str, text: String| {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    for (name, metadata) in [("talk", "<limits turns=\"5\" spend=\"0.01\"/>"), ("lead", metadata)] {
        let text = format!(
            "# {name}\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\"><metadata><description>{name}</description>\
             <model provider=\"local\"/><nudge>never</nudge>{metadata}</metadata></directive>\n```\n\nTalk.\n"
        );
        write(&format!(".ai/directives/{name}.md"), text);
    }
    write(
        ".ai/config/agent/providers/local.yaml",
        format!(
            "id: local\nwire: openai-chat\nbase_url: http://127.0.0.1:{}/v1\ndefault_tier: general\ntiers: {{ general: model }}\n\
             models:\n  - {{ id: model, context_window: 100000000, max_output: 4096, prices: none }}\n",
            server.port
        ),
    );
    write(".ai/config/agent/resilience.yaml", "concurrency: { max_concurrent_children: 8 }\n".into());
    write("note.txt", "a line of the note\n".repeat(10));
    Project::open(folder).unwrap().without_user_space().trust_everything()
}

fn run_lead(project: &Project) {
    let request = CompileRequest::new(ItemId::parse("lead").unwrap()).with_inputs(serde_json::Map::default());
    let compilation = project.plan(&request).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let result = runtime.block_on(async {
        let engine = EngineBuilder::new(project).approvals(Approvals::Allow).open().unwrap();
        let result = engine.open(SessionRequest::start(compilation)).await.unwrap().join().await;
        engine.wait_idle().await;
        result
    });
    assert_eq!(result.status, Status::Completed, "{:?}", result.error);
}

fn assert_flat(subject: &str, early: (usize, usize), late: (usize, usize)) {
    println!("{subject}: {early:?} early, {late:?} late (allocations, allocated bytes without those of requests)");
    assert!(late.0 <= 2 * early.0, "{subject}: {} allocations early, {} late", early.0, late.0);
    assert!(late.1 <= 2 * early.1, "{subject}: {} bytes early, {} late", early.1, late.1);
}

#[test]
fn late_turn_allocates_no_more_than_an_early_one() {
    const MARKS: &[usize] = &[15, 35, 280, 300, 980, 1000];
    let _alone = run_alone();
    let (count, from, to) = if is_whole() { (1000, 980, 1000) } else { (300, 280, 300) };
    let server = ModelServer::start(MARKS, count, |number, count| {
        if number > count {
            return json!({"content": "done"});
        }
        json!({"tool_calls": [call(number, "rye_file_system_read", &json!({"path": "note.txt"}))]})
    });
    let folder = tempfile::tempdir().unwrap();
    let metadata = "<limits turns=\"2000\" tokens=\"1000000000\" spend=\"1000\"/>\
                    <permissions><execute><tool>rye.file-system.read</tool></execute></permissions>";
    run_lead(&write_project(folder.path(), &server, metadata));
    assert_flat("turn", server.cost(15, 35), server.cost(from, to));
}

#[test]
fn late_child_allocates_no_more_than_an_early_one() {
    const MARKS: &[usize] = &[50, 100, 250, 300, 350, 400, 3950, 4000];
    let _alone = run_alone();
    let (count, early, late) = if is_whole() { (4000, (250, 300), (3950, 4000)) } else { (400, (50, 100), (350, 400)) };
    let server = ModelServer::start(MARKS, count, |number, count| {
        if number > 1 {
            return json!({"content": "done"});
        }
        let start = json!({"item_type": "directive", "item_id": "talk", "async": true});
        json!({"tool_calls": (0..count).map(|index| call(index, "rye_execute", &start)).collect::<Vec<_>>()})
    });
    let folder = tempfile::tempdir().unwrap();
    let metadata = "<limits turns=\"5\" tokens=\"1000000000\" spend=\"1000\" spawns=\"100000\"/>\
                    <permissions><execute><directive>*</directive></execute></permissions>";
    run_lead(&write_project(folder.path(), &server, metadata));
    assert_flat("child", server.cost(early.0, early.1), server.cost(late.0, late.1));
}
