//! Peak memory of a run whose model sends a reply of 30 MB over HTTP.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use rye::engine::thread::Status;
use rye::{Approvals, CompileRequest, EngineBuilder, ItemId, Project, SessionRequest};
use serde_json::json;

const REPLY_BYTES: usize = 30_000_000;
/// Bytes of one event of the stream.
const PIECE_BYTES: usize = 4_000;
/// Maximum growth of the process during the reply. The text itself takes 30 MB of it.
const MAX_GROWTH_KIB: usize = 66 * 1024;

/// Returns the peak of the memory of this process, in KiB.
fn peak_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Reads one request and streams the reply. Returns the peak before the reply.
fn serve(stream: &TcpStream) -> usize {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0);
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    let before = peak_kib();
    let mut writer = stream;
    writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n").unwrap();
    let piece =
        json!({"choices": [{"index": 0, "delta": {"content": "a line of a reply.\n\n".repeat(PIECE_BYTES / 20)}}]});
    let piece = format!("data: {piece}\n\n");
    for _ in 0..REPLY_BYTES / PIECE_BYTES {
        writer.write_all(piece.as_bytes()).unwrap();
    }
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10}});
    writer.write_all(format!("data: {end}\n\ndata: {usage}\n\ndata: [DONE]\n\n").as_bytes()).unwrap();
    before
}

fn write_project(folder: &Path, port: u16) -> Project {
    let write = |path: &str, text: String| {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(
        ".ai/directives/talk.md",
        "# talk\n\n```xml\n<directive name=\"talk\" version=\"1.0.0\"><metadata><description>talk</description>\
         <model provider=\"local\"/><nudge>never</nudge><limits turns=\"2\" spend=\"0.01\"/></metadata></directive>\n```\n\nTalk.\n"
            .to_owned(),
    );
    write(
        ".ai/config/agent/providers/local.yaml",
        format!(
            "id: local\nwire: openai-chat\nbase_url: http://127.0.0.1:{port}/v1\ndefault_tier: general\ntiers: {{ general: model }}\n\
             models:\n  - {{ id: model, context_window: 100000000, max_output: 4096, prices: none }}\n"
        ),
    );
    Project::open(folder).unwrap().without_user_space().trust_everything()
}

#[test]
fn peak_memory_of_a_large_reply_is_about_twice_its_size() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || serve(&listener.accept().unwrap().0));
    let folder = tempfile::tempdir().unwrap();
    let project = write_project(folder.path(), port);
    let compilation = project
        .plan(&CompileRequest::new(ItemId::parse("talk").unwrap()).with_inputs(serde_json::Map::default()))
        .unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let result = runtime.block_on(async {
        let engine = EngineBuilder::new(&project).approvals(Approvals::Allow).open().unwrap();
        let result = engine.open(SessionRequest::start(compilation)).await.unwrap().join().await;
        engine.wait_idle().await;
        result
    });
    assert_eq!((result.status, result.result.unwrap().len()), (Status::Completed, REPLY_BYTES), "{:?}", result.error);
    let growth = peak_kib() - server.join().unwrap();
    assert!(growth <= MAX_GROWTH_KIB, "the reply takes {growth} KiB");
}
