//! Tests of the sessions of a project: which threads are sessions, and the change from one to another.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/chat_client.rs"]
mod chat_client;
#[path = "support/chat_schema.rs"]
mod chat_schema;
#[path = "support/rye.rs"]
mod rye;

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use chat_client::ChatClient;
use rye::{ProcessResult, TestProject, talk_directive};
use serde_json::{Value, json};

fn project(script: &str) -> TestProject {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &talk_directive(4, ""));
    place.write("script.yaml", script);
    place
}

fn chat(place: &TestProject, args: &[&str], lines: &[u8]) -> ProcessResult {
    let mut command = place.command(&[&["chat", "--script", "script.yaml"], args].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines).unwrap();
    ProcessResult::from(child.wait_with_output().unwrap())
}

fn threads(place: &TestProject) -> Vec<Value> {
    place.json(&["threads", "list"]).1["threads"].as_array().unwrap().clone()
}

#[test]
fn interrupted_run_is_no_session() {
    let place = project("steps: [{ text: One. }, { text: Two. }]");
    chat(&place, &["talk"], b"first\n");
    place.write("slow.yaml", "steps: [{ delay_ms: 60000, text: Late. }]");
    let mut command = place.command(&["run", "talk", "--script", "slow.yaml"]);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while !threads(&place).iter().any(|thread| thread["status"] == "running") {
        assert!(Instant::now() < until, "the run does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    assert_eq!(threads(&place).len(), 2);
    let done = chat(&place, &["-c"], b"second\n");
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "Two.\n"), "{}", done.stderr);
    // Without a session, the run is not opened either.
    let only_run = project("steps: [{ delay_ms: 60000, text: Late. }]");
    let mut command = only_run.command(&["run", "talk", "--script", "script.yaml"]);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while threads(&only_run).is_empty() {
        assert!(Instant::now() < until, "the run does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let none = chat(&only_run, &["-c"], b"");
    assert_eq!(none.code, Some(2), "{}", none.stderr);
    assert!(none.stderr.contains("no closed session"), "{}", none.stderr);
}

/// Returns a session whose first prompt has started a child that runs for a minute.
fn with_running_child() -> (TestProject, ChatClient) {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &talk_directive(9, "<directive>part</directive>"));
    let part = talk_directive(2, "").replace("name=\"talk\"", "name=\"part\"").replace("0.50", "0.10");
    place.write(".ai/directives/part.md", &part);
    let start = "{ name: rye_execute, input: { item_type: directive, item_id: part, async: true } }";
    place.write(
        "script.yaml",
        &format!("steps: [{{ tool_calls: [{start}] }}, {{ text: Started. }}]\nthreads: {{ part: [{{ text: Part., delay_ms: 60000 }}] }}\n"),
    );
    let mut client = ChatClient::start(&place, &["talk", "--unattended", "allow"]);
    client.ask(json!({"type": "prompt", "message": "go"}));
    client.event("prompt_ended");
    (place, client)
}

#[test]
fn change_of_the_session_asks_about_children_that_still_run() {
    let (place, mut client) = with_running_child();
    for verb in [json!({"type": "new"}), json!({"type": "resume", "thread": "absent"})] {
        let refused = client.ask(verb);
        assert_eq!(refused["success"], false, "{refused}");
    }
    let asked = client.ask(json!({"type": "new"}));
    assert_eq!(asked["error"], "1 child runs. repeat the request with `children` set to `wait` or `cancel`");
    let detached = client.ask(json!({"type": "new", "children": "detach"}));
    assert_eq!(detached["error"], "`children` must be `wait` or `cancel`: children cannot stay in the background here");
    let cancelled = client.ask(json!({"type": "new", "children": "cancel"}));
    assert_eq!(cancelled["success"], true, "{cancelled}");
    client.read_until(|line| line["event"]["type"] == "opened" && line["event"]["origin"] == "chat");
    client.end();
    let child = threads(&place).into_iter().find(|thread| thread["directive"] == "part").unwrap();
    assert_eq!(child["status"], "killed", "{child}");
}
