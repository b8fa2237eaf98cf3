//! Costs that do not grow, as numbers of allocations of the whole process: a turn of a long conversation over HTTP, and a
//! child among many siblings. No test depends on a clock. One test function, because the allocator counts for all threads.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::alloc::System;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use rye_compiler::compile::{CompileRequest, compile};
use rye_engine::engine::{ApprovalPolicy, Engine, EngineOptions, StartOptions};
use rye_engine::thread::Status;
use rye_engine::trust::Trust;
use rye_grammar::ItemId;
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Allocations of the process when each request arrived.
type Arrivals = Arc<Mutex<Vec<usize>>>;

/// The message that a model answers to the n-th request, from 0: its delta and its stop reason.
type Answer = fn(usize) -> (serde_json::Value, &'static str);

/// Starts a model server on loopback; returns its port and the arrivals of its requests.
fn serve(answer: Answer) -> (u16, Arrivals) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let arrivals = Arrivals::default();
    let known = Arc::clone(&arrivals);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, known) = (stream.unwrap(), Arc::clone(&known));
            std::thread::spawn(move || while answer_request(&stream, answer, &known).is_some() {});
        }
    });
    (port, arrivals)
}

/// Answers one request; `None` at the end of the connection.
fn answer_request(mut stream: &TcpStream, answer: Answer, arrivals: &Arrivals) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink()).ok()?;
    let number = {
        let mut arrivals = arrivals.lock().unwrap();
        arrivals.push(ALLOCATOR.stats().allocations);
        arrivals.len() - 1
    };
    let (delta, reason) = answer(number);
    let events = [
        json!({"choices": [{"index": 0, "delta": delta}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10}}),
    ];
    let mut body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    body.push_str("data: [DONE]\n\n");
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).ok()
}

/// Runs the directive `lead` of a new project against a model server; returns the arrivals of the requests.
fn run(lead: &str, answer: Answer) -> Vec<usize> {
    let (port, arrivals) = serve(answer);
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let directive = |name: &str, rest: &str| {
        let head = "<metadata><description>d</description><model provider=\"local\"/><nudge>never</nudge>";
        let fence = format!("<directive name=\"{name}\" version=\"1.0.0\">{head}{rest}</metadata></directive>");
        write(&format!(".ai/directives/{name}.md"), &format!("# {name}\n\n```xml\n{fence}\n```\n\nDo it.\n"));
    };
    directive("lead", lead);
    directive("talk", "<limits spend=\"0.02\"/>");
    write("a.txt", "a\n");
    write(".ai/config/agent/resilience.yaml", "concurrency: { max_concurrent_children: 8 }\n");
    let models = "models:\n  - { id: model, context_window: 100000000, max_output: 4096, prices: none }\n";
    let provider =
        format!("base_url: http://127.0.0.1:{port}/v1\ndefault_tier: general\ntiers: {{ general: model }}\n{models}");
    write(".ai/config/agent/providers/local.yaml", &format!("id: local\nwire: openai-chat\n{provider}"));
    let project = folder.path().canonicalize().unwrap();
    let options = || {
        EngineOptions::with_trust(&project, None, standard_library(), Trust::Everything, ApprovalPolicy::Allow).unwrap()
    };
    let world = (options().world)().unwrap();
    let request = CompileRequest::new(ItemId::parse("lead").unwrap()).with_inputs(serde_json::Map::new());
    let compilation = compile(&*world, &request).value.unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = Engine::open(&project, options()).unwrap();
        let result = engine.start(&compilation, StartOptions::default()).await.unwrap().join().await;
        assert_eq!(result.status, Status::Completed, "{:?}", result.error);
        engine.wait_idle().await;
    });
    std::mem::take(&mut *arrivals.lock().unwrap())
}

fn standard_library() -> Vec<(String, &'static [u8])> {
    fn add(folder: &Path, root: &Path, found: &mut Vec<(String, &'static [u8])>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add(&path, root, found);
            } else {
                let name = path.strip_prefix(root).unwrap().display().to_string();
                found.push((name, Vec::leak(std::fs::read(&path).unwrap())));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stdlib");
    let mut found = Vec::new();
    add(&root.join(".ai"), &root, &mut found);
    found
}

/// Returns the allocations of one request in a window.
fn each(arrivals: &[usize], from: usize, to: usize) -> usize {
    (arrivals[to] - arrivals[from]) / (to - from)
}

const TURNS: usize = 1_000;
const CHILDREN: usize = 600;

fn call(name: &str, count: usize, arguments: &serde_json::Value) -> (serde_json::Value, &'static str) {
    let function = json!({"name": name, "arguments": arguments.to_string()});
    let calls: Vec<_> = (0..count).map(|n| json!({"index": n, "id": format!("c{n}"), "function": function})).collect();
    (json!({"tool_calls": calls}), "tool_calls")
}

#[test]
fn allocations_do_not_grow_with_turns_and_siblings() {
    let turns = run(
        "<limits turns=\"1100\" tokens=\"1000000000\" spend=\"90\" duration_seconds=\"100000\"/>\
         <permissions><execute><tool>rye.file-system.read</tool></execute></permissions>",
        |number| match number {
            number if number + 1 < TURNS => call("rye_file_system_read", 1, &json!({"path": "a.txt"})),
            _ => (json!({"content": "done"}), "stop"),
        },
    );
    assert_eq!(turns.len(), TURNS);
    let (first, last) = (each(&turns, 15, 65), each(&turns, TURNS - 51, TURNS - 1));
    assert!(last <= 2 * first, "{first} allocations a turn at the start, {last} at the end");

    let children = run(
        "<limits spend=\"90\" spawns=\"5000\"/><permissions><execute><directive>talk</directive></execute></permissions>",
        |number| match number {
            0 => call("rye_execute", CHILDREN, &json!({"item_type": "directive", "item_id": "talk", "async": true})),
            _ => (json!({"content": "done"}), "stop"),
        },
    );
    let (first, last) = (each(&children, 50, 150), each(&children, CHILDREN - 110, CHILDREN - 10));
    assert!(last <= 2 * first, "{first} allocations a child at the start, {last} at the end");
}
