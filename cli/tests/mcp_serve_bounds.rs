//! Tests of bounds of `rye mcp serve`: the end while calls run, and the largest message.

#![cfg(feature = "mcp")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/mcp_client.rs"]
mod mcp_client;
#[path = "support/rye.rs"]
mod rye;

use std::process::Command;
use std::time::{Duration, Instant};

use mcp_client::{HttpServer, MAX_MESSAGE_BYTES, McpClient, SLOW_CALL, place};
use rye::TestProject;
use serde_json::{Value, json};

/// Returns true if a process runs under the name `mark`.
fn is_running(mark: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        line.starts_with(mark.as_bytes())
    })
}

/// Returns true if a thread of the directive `slow` waits for its model.
fn waits_for_model(place: &TestProject) -> bool {
    let threads = std::fs::read_dir(place.project().join(".ai/state/threads")).into_iter().flatten().flatten();
    threads.filter(|entry| entry.file_name().to_string_lossy().starts_with("slow-")).any(|entry| {
        let transcript = std::fs::read_to_string(entry.path().join("transcript.jsonl"));
        transcript.is_ok_and(|text| text.contains("attempt_intended"))
    })
}

/// A call that runs while the server ends.
struct CallAtEnd {
    name: &'static str,
    /// Arguments of `rye mcp serve`.
    arguments: &'static [&'static str],
    call: Option<Value>,
    /// The name under which the program of the call runs; empty if the call starts no program.
    mark: String,
}

/// Starts a server and a call, and ends the server by the end of its input or by SIGTERM, while the call runs. The call
/// runs for [`SLOW_CALL`] if nothing ends it, so a server that waits for it exceeds the bound on a loaded machine too.
fn end_during(running: &CallAtEnd, by_signal: bool) {
    let place = place();
    let mut client = McpClient::new(&place, running.arguments, &json!({}));
    if let Some(call) = &running.call {
        client.start("tools/call", call);
        let start = Instant::now();
        let has_started = || if running.mark.is_empty() { waits_for_model(&place) } else { is_running(&running.mark) };
        while !has_started() {
            assert!(start.elapsed() < SLOW_CALL / 4, "{call} never starts");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let start = Instant::now();
    let status = if by_signal {
        let pid = client.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        client.child.wait().unwrap()
    } else {
        client.close().0
    };
    let shown = format!("{}, by a signal: {by_signal}", running.name);
    assert!(status.success() && start.elapsed() < SLOW_CALL / 4, "{shown}: {status} after {:?}", start.elapsed());
    assert!(running.mark.is_empty() || !is_running(&running.mark), "{shown}");
    let (_, listed) = place.json(&["threads", "list"]);
    let is_over = |row: &Value| matches!(row["status"].as_str(), Some("completed" | "cancelled" | "killed"));
    assert!(listed["threads"].as_array().unwrap().iter().all(is_over), "{shown}: {listed}");
}

#[test]
fn server_ends_cleanly_while_a_call_still_runs() {
    const FACE: &[&str] = &["--directive", "face"];
    let bash = |command: String| Some(json!({"name": "rye_bash_bash", "arguments": {"command": command}}));
    let seconds = SLOW_CALL.as_secs();
    for by_signal in [false, true] {
        let mark = |name: &str| format!("rye-test-{name}-{by_signal}-{}", std::process::id());
        let (obeys, ignores) = (mark("obeys"), mark("ignores"));
        let slow = json!({"name": "rye_execute", "arguments": {"item_type": "directive", "item_id": "slow"}});
        let sleeps = bash(format!("exec -a {obeys} sleep {seconds}"));
        let stays = bash(format!("trap '' TERM; exec -a {ignores} sleep {seconds}"));
        for running in [
            CallAtEnd { name: "nothing", arguments: FACE, call: None, mark: String::new() },
            CallAtEnd { name: "a directive", arguments: &[], call: Some(slow), mark: String::new() },
            CallAtEnd { name: "a tool", arguments: FACE, call: sleeps, mark: obeys },
            CallAtEnd { name: "a tool that ignores SIGTERM", arguments: FACE, call: stays, mark: ignores },
        ] {
            end_during(&running, by_signal);
        }
    }
}

/// Returns a `tools/call` that reads a note, as a message of exactly this many bytes.
fn padded_call(id: u64, bytes: usize) -> String {
    let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": "rye_file_system_read", "arguments": {"path": "note.txt"}}});
    let text = call.to_string();
    let (head, tail) = text.split_at(text.len() - 1);
    format!("{head}{}{tail}", " ".repeat(bytes - text.len()))
}

#[test]
fn message_of_16_mib_is_accepted_and_one_more_byte_is_refused() {
    let place = place();
    let server = HttpServer::new(&place, &["--directive", "face"], None);
    let session = server.session();
    let post = |id: u64, bytes: usize| {
        server.authorized("POST", &[("mcp-session-id", &session.id)], padded_call(id, bytes).as_bytes())
    };
    let accepted = post(41, MAX_MESSAGE_BYTES);
    assert!(accepted.starts_with("HTTP/1.1 200") && accepted.contains("the note"), "{accepted}");
    let refused = post(42, MAX_MESSAGE_BYTES + 1);
    assert!(refused.starts_with("HTTP/1.1 413"), "{refused}");
    let mut client = McpClient::new(&place, &["--directive", "face"], &json!({}));
    client.send_text(&padded_call(51, MAX_MESSAGE_BYTES));
    let accepted = client.response(&json!(51));
    assert!(accepted["result"].to_string().contains("the note"), "{accepted}");
    client.send_text(&padded_call(52, MAX_MESSAGE_BYTES + 1));
    let refused = client.response(&json!(52));
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    client.leave();
}

#[test]
fn call_that_reaches_the_limit_of_turns_gets_its_result() {
    let place = place();
    let mut client = McpClient::new(&place, &["--directive", "face", "--limit", "turns=2"], &json!({}));
    let read = json!({"name": "rye_file_system_read", "arguments": {"path": "note.txt"}});
    for _ in 0..2 {
        let answer = client.ask("tools/call", &read);
        assert!(answer["result"].to_string().contains("the note"), "{answer}");
    }
    let refused = client.ask("tools/call", &read);
    assert!(refused["error"]["message"].as_str().unwrap().contains("turns_exceeded"), "{refused}");
    client.leave();
}
