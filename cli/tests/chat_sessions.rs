//! Tests of the sessions of a project: which threads are sessions, the change from one to another, and a crash during an
//! intake.

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

/// Runs `rye chat` with these lines, and fails if the session does not end.
fn chat_that_ends(place: &TestProject, args: &[&str], lines: &[u8]) -> ProcessResult {
    let mut command = place.command(&[&["chat", "--script", "script.yaml"], args].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines).unwrap();
    let until = Instant::now() + Duration::from_mins(2);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("the session does not end: {:?}", ProcessResult::from(child.wait_with_output().unwrap()).stderr);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    ProcessResult::from(child.wait_with_output().unwrap())
}

#[test]
fn lines_behind_a_first_command_that_replaces_the_thread_are_sent() {
    let place = project("steps: [{ text: One. }, { text: Two. }]");
    for command in ["/budget 0.10", "/budget 0.10\n/model fast", "/name a title\n/budget 0.10"] {
        let done = chat_that_ends(&place, &["talk"], format!("{command}\nfirst\n").as_bytes());
        assert_eq!((done.code, done.stdout.as_str()), (Some(0), "One.\n"), "{command}: {}", done.stderr);
    }
    for (command, answers) in [("/fork 1", "One.\n"), ("/retry", "One.\nTwo.\n"), ("/budget 0.05", "One.\n")] {
        let done = chat_that_ends(&place, &["-c"], format!("{command}\nsecond\n").as_bytes());
        assert_eq!((done.code, done.stdout.as_str()), (Some(0), answers), "{command}: {}", done.stderr);
    }
    let done = chat_that_ends(&place, &["talk"], b"first\n/new\n/budget 0.10\nagain\n");
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "One.\nOne.\n"), "{}", done.stderr);
    let done = chat_that_ends(&place, &["-c"], b"/fork 1\n");
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), ""), "{}", done.stderr);
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

#[test]
fn session_keeps_the_money_and_counts_the_cost_of_a_child_that_runs_across_a_fork() {
    let (place, mut client) = with_running_child();
    let before = client.ask(json!({"type": "cost"}));
    let forked = client.ask(json!({"type": "fork", "prompt": 1}));
    assert_eq!(forked["success"], true, "{forked}");
    let until = Instant::now() + Duration::from_mins(1);
    while threads(&place).iter().filter(|thread| thread["directive"] == "talk").count() < 2 {
        assert!(Instant::now() < until, "the session does not fork");
    }
    let after = client.ask(json!({"type": "cost"}));
    for key in ["session_limit", "session"] {
        assert_eq!(after["data"][key], before["data"][key], "{key}: {after}");
    }
    client.ask(json!({"type": "close", "children": "cancel"}));
    client.end();
    let mut again = ChatClient::reopen(&place, &["-c"]);
    let cost = again.ask(json!({"type": "cost"}));
    again.end();
    let ids: Vec<String> = threads(&place).iter().map(|one| one["thread_id"].as_str().unwrap().to_owned()).collect();
    let events: Vec<Value> = ids.iter().flat_map(|id| place.transcript(id)).collect();
    let settled = events.iter().filter(|event| event["type"] == "settled");
    let spent: u64 = settled.map(|event| event["amount"].as_u64().unwrap()).sum();
    let child = cost["data"]["children"][0].clone();
    assert!(child["status"] == "killed" && child["spend"].as_f64().unwrap() > 0.0, "{cost}");
    let session = cost["data"]["session"]["spend"].to_string();
    assert_eq!(session, rye_compiler::semantics::money::Nanos::from_u64(spent).to_json().to_string(), "{cost}");
    assert_eq!(cost["data"]["session_limit"], before["data"]["session_limit"], "{cost}");
}

#[test]
fn signal_that_ends_a_prompt_sends_no_waiting_line() {
    use rustix::process::Signal;
    for (signal, closes, args) in [
        (Signal::INT, false, &["talk"][..]),
        (Signal::TERM, true, &["talk"][..]),
        (Signal::HUP, true, &["talk"][..]),
        (Signal::TERM, true, &["talk", "--format", "json"][..]),
    ] {
        let place = project("steps: [{ delay_ms: 6000, text: Late. }]");
        let mut command = place.command(&[&["chat"], args, &["--script", "script.yaml"]].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let lines = if args.len() > 1 {
            ["first", "second", "third"]
                .map(|text| format!("{{\"type\":\"prompt\",\"message\":\"{text}\"}}\n"))
                .concat()
        } else {
            "first\nsecond\nthird\n".to_owned()
        };
        stdin.write_all(lines.as_bytes()).unwrap();
        let count = |name: &str| recorded(&place).iter().filter(|event| event["type"] == name).count();
        let began = Instant::now();
        while count("reserved") == 0 || count("mail") < 3 {
            assert!(began.elapsed() < Duration::from_mins(1), "the messages are not recorded: {signal:?} {args:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        if closes {
            while child.try_wait().unwrap().is_none() {
                assert!(began.elapsed() < Duration::from_mins(2), "the session does not end after {signal:?}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        drop(stdin);
        child.wait().unwrap();
        assert_eq!(count("attempt_intended"), 1, "{signal:?} {args:?}");
        assert_eq!(count("retracted"), 2, "{signal:?} {args:?}");
    }
}

#[test]
fn steering_line_directly_after_a_prompt_reaches_this_prompt() {
    let call =
        "{ tool_calls: [{ name: rye_bash_bash, input: { command: 'while [ ! -e out/go ]; do sleep 0.02; done' } }] }";
    let place = project(&format!("steps: [{call}, {{ text: One. }}, {{ text: Two. }}, {{ text: Three. }}]"));
    place.write(".ai/directives/talk.md", &talk_directive(4, "<tool write=\"out/\">rye.bash.bash</tool>"));
    place.write("out/log", "");
    let mut command = place.command(&["chat", "talk", "--script", "script.yaml"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"go\n/steer stop here\n/follow-up and then this\n").unwrap();
    let began = Instant::now();
    while recorded(&place).iter().filter(|event| event["type"] == "user_input").count() < 3 {
        assert!(began.elapsed() < Duration::from_mins(1), "the messages are not recorded");
        std::thread::sleep(Duration::from_millis(20));
    }
    place.write("out/go", "");
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let events = recorded(&place);
    assert_eq!(events.iter().filter(|event| event["type"] == "prompt_started").count(), 1);
    let sources = events.iter().filter(|event| event["type"] == "cognition_in").map(|event| &event["source"]);
    assert_eq!(sources.collect::<Vec<_>>(), ["prompt", "steer", "follow_up"]);
}

#[test]
fn every_closed_session_is_listed_with_its_title() {
    let place = project("steps: []");
    // 40 sessions with a title, more than a screen shows, and then 40 sessions in which nothing was typed.
    let titled = (1..=40).map(|n| format!("/name bed {n}\n/new\n")).collect::<Vec<_>>().concat();
    let done = chat_that_ends(&place, &["talk"], format!("{titled}{}/resume\n", "/new\n".repeat(40)).as_bytes());
    let rows: Vec<&str> = done.stderr.lines().filter(|line| line.starts_with("talk-")).collect();
    assert_eq!(rows.len(), 40, "{}", done.stderr);
    for n in 1..=40 {
        assert!(rows.iter().any(|row| row.ends_with(&format!("  bed {n}"))), "{n}: {rows:#?}");
    }
}

#[test]
fn new_session_after_a_read_only_session_is_read_only() {
    let place = project("steps: [{ text: One. }, { text: Two. }]");
    let mut client = ChatClient::start(&place, &["talk"]);
    client.ask(json!({"type": "mode", "mode": "read-only"}));
    client.ask(json!({"type": "prompt", "message": "first"}));
    client.event("prompt_ended");
    assert_eq!(client.ask(json!({"type": "new"}))["success"], true);
    client.ask(json!({"type": "prompt", "message": "second"}));
    let started = client.event("prompt_started");
    client.event("prompt_ended");
    let refused = client.ask(json!({"type": "mode", "mode": "ask"}));
    client.end();
    assert_eq!(started["event"]["mode"], "read-only", "{started}");
    assert!(refused["error"].as_str().unwrap().contains("allows more than the current one"), "{refused}");
}

// shows: interactive 7.13: kill −9 in intake: nothing typed is lost, no unrequested model call
#[test]
fn kill_during_an_input_hook_loses_no_text_and_calls_no_model() {
    let place = project("steps: [{ text: One. }, { text: Two. }]");
    place.write(
        ".ai/config/agent/hooks.yaml",
        "hooks:\n  - { id: slow, event: input, condition: \"text == 'typed words'\", action: { primary: execute, item_type: tool, item_id: team/slow } }\n",
    );
    place.write(".ai/tools/team/slow.sh", "#!/bin/sh\n# rye: {description: Waits.}\nread line < gate\n");
    let gate = place.project().join("gate");
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let mut client = ChatClient::start(&place, &["talk"]);
    client.ask(json!({"type": "prompt", "message": "first"}));
    client.event("prompt_ended");
    client.ask(json!({"type": "prompt", "message": "typed words"}));
    // The gate opens once the tool of the hook reads it.
    let writer = std::fs::OpenOptions::new().write(true).open(&gate).unwrap();
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    drop(writer);
    let opened = chat(&place, &["-c"], b"");
    assert_eq!((opened.code, opened.stdout.as_str()), (Some(0), ""), "{}", opened.stderr);
    assert!(opened.stderr.contains("not sent before the session ended: typed words"), "{}", opened.stderr);
    let done = chat(&place, &["-c"], b"again\n");
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "Two.\n"), "{}", done.stderr);
    let events = place.transcript(threads(&place)[0]["thread_id"].as_str().unwrap());
    let calls = events.iter().filter(|event| event["type"] == "attempt_intended").count();
    assert_eq!(calls, 2, "{events:?}");
    place.run_ok(&["threads", "verify", "--last"]);
}

/// Returns the complete events of the session's transcript; empty before its first event.
fn recorded(place: &TestProject) -> Vec<Value> {
    let folder = std::fs::read_dir(place.project().join(".ai/state/threads"));
    let mut transcripts = folder.into_iter().flatten().flatten().map(|thread| thread.path().join("transcript.jsonl"));
    let text = transcripts.find_map(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Returns the events up to the last seal. The kill can interrupt a write, and nothing acknowledges the lines of an
/// interrupted write.
fn sealed(place: &TestProject) -> Vec<Value> {
    let mut events = recorded(place);
    let count = events.iter().rposition(|event| event.get("s").is_some()).map_or(0, |last| last + 1);
    events.truncate(count);
    events
}

/// Starts a session with two prompts, and kills it once its transcript has this many events. Returns false if the
/// session ended before.
fn kill_after(place: &TestProject, events: usize) -> bool {
    let mut command = place.command(&["chat", "--script", "script.yaml", "talk"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"first prompt\nsecond prompt\n").unwrap();
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        if recorded(place).len() >= events {
            child.kill().unwrap();
        }
        if let Some(status) = child.try_wait().unwrap() {
            return !status.success();
        }
        assert!(Instant::now() < until, "no event {events}");
        std::thread::sleep(Duration::from_micros(500));
    }
}

// shows: interactive 7.13: kill −9 at every event: nothing acknowledged is lost, no unrequested model call, ledger equal
#[test]
fn session_killed_at_any_event_loses_no_message_and_calls_no_model() {
    let new_project = || {
        let read = "{ text: One., tool_calls: [{ name: rye_file_system_read, input: { path: guest.txt } }] }";
        let place = project(&format!("steps: [{read}, {{ text: Two. }}, {{ text: Three. }}, {{ text: Four. }}]"));
        place.write(".ai/directives/talk.md", &talk_directive(4, "<tool>rye.file-system.read</tool>"));
        place.write("guest.txt", "Ada");
        place
    };
    let clean = new_project();
    assert!(!kill_after(&clean, usize::MAX));
    let (events, mut recovered) = (recorded(&clean).len(), 0);
    assert!(events > 30, "{events}");
    for at in 1..events {
        let place = new_project();
        if !kill_after(&place, at) {
            continue;
        }
        let before = sealed(&place);
        let count = |events: &[Value], kind: &str| events.iter().filter(|event| event["type"] == kind).count();
        let opened = chat(&place, &["-c"], b"");
        let after = recorded(&place);
        assert_eq!(count(&after, "attempt_intended"), count(&before, "attempt_intended"), "{at}: {}", opened.stderr);
        let messages = before.iter().filter(|event| event["type"] == "mail" && event["message"]["kind"] == "submit");
        for message in messages {
            let text = message["message"]["text"].as_str().unwrap();
            let holds = |event: &Value| {
                let sent = event["type"] == "cognition_in" && event["message"].to_string().contains(text);
                sent || event["type"] == "prompt_ended" && event["unsent"].to_string().contains(text)
            };
            let is_known = after.iter().any(holds) || opened.stderr.contains(&format!("ended: {text}"));
            assert!(is_known, "{at}: `{text}` is lost: {}", opened.stderr);
        }
        let again = chat(&place, &["-c"], b"again\n");
        if count(&before, "opened") == 0 || again.stderr.contains("no session") {
            // The session was killed before its first step.
            assert_eq!(count(&before, "mail"), 0, "{at}: {}", again.stderr);
            continue;
        }
        recovered += 1;
        assert_eq!(again.code, Some(0), "{at}: {}", again.stderr);
        place.run_ok(&["threads", "verify", "--last"]);
        let whole = recorded(&place);
        let settled: u64 =
            whole.iter().filter_map(|event| event["amount"].as_u64().filter(|_| event["type"] == "settled")).sum();
        let id = threads(&place)[0]["thread_id"].as_str().unwrap().to_owned();
        let (_, shown) = place.json(&["threads", "show", &id]);
        let spent = format!("{:.9}", shown["ledger"][0]["spent"].as_f64().unwrap()).replace('.', "");
        assert_eq!(spent.parse::<u64>().unwrap(), settled, "{at}: {shown}");
    }
    assert!(recovered > 15, "{recovered} sessions");
}

// shows: interactive 7.25: `--attach` states the owner, shows the session live and sends messages through its intake
#[test]
fn attached_terminal_shows_a_running_session_and_sends_it_messages() {
    let place = project("steps: [{ text: One. }, { text: Two. }]");
    place.write(".ai/prompts/greet.md", "Hello $1.\n");
    let none = place.rye(&["chat", "--attach"]);
    assert_eq!(none.code, Some(2), "{}", none.stderr);
    assert!(none.stderr.contains("no session of this project is running"), "{}", none.stderr);
    let mut owner = ChatClient::start(&place, &["talk"]);
    owner.ask(json!({"type": "prompt", "message": "first"}));
    owner.event("prompt_ended");
    let other = place.rye(&["chat", "-c"]);
    let named = format!("is owned by a running process (pid {}): `rye chat --attach ", owner.child.id());
    assert!(other.stderr.contains(&named), "{}", other.stderr);
    let attach = |lines: &[u8]| {
        let mut command = place.command(&["chat", "--attach"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(lines).unwrap();
        (child, stdin)
    };
    let (second, stdin) = attach(b"/greet you\n/cost\n");
    let input = owner.event("user_input")["event"].clone();
    assert_eq!((&input["raw"], &input["text"]), (&json!("/greet you"), &json!("Hello you.")));
    owner.event("prompt_ended");
    // A watcher that leaves does not end the session.
    let (left, left_stdin) = attach(b"/exit\n");
    let left = ProcessResult::from(left.wait_with_output().unwrap());
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    assert_eq!(owner.ask(json!({"type": "cost"}))["success"], true);
    let pid = owner.child.id();
    owner.end();
    let watched = ProcessResult::from(second.wait_with_output().unwrap());
    drop((stdin, left_stdin));
    assert_eq!(watched.code, Some(0), "{}", watched.stderr);
    for text in
        [&format!("owned by a running process (pid {pid})"), "not sent: only the process", "the session is closed"]
    {
        assert!(watched.stderr.contains(text), "{text}: {}", watched.stderr);
    }
    for text in ["One.", "Hello you.", "Two."] {
        assert!(watched.stdout.contains(text), "{text}: {}", watched.stdout);
    }
    let id = threads(&place)[0]["thread_id"].as_str().unwrap().to_owned();
    let closed = place.rye(&["chat", "--attach", &id]);
    assert!(
        closed.stderr.contains("no process runs") && closed.stderr.contains("rye chat --resume"),
        "{}",
        closed.stderr
    );
}

#[test]
fn listed_chain_follows_its_first_thread() {
    let place = project("steps: [{ text: One. }]");
    chat_that_ends(&place, &["talk"], b"first\n/budget 0.10\nsecond\n/budget 0.05\nthird\n");
    chat_that_ends(&place, &["talk"], b"another\n");
    let listed = threads(&place);
    let (other, rest) = listed.split_first().unwrap();
    let ids: Vec<&str> = rest.iter().rev().chain([other]).map(|one| one["thread_id"].as_str().unwrap()).collect();
    assert_eq!((ids.len(), &rest[0]["continues"]), (4, &rest[1]["thread_id"]), "{listed:?}");
    let shown = place.run_ok(&["threads", "list"]);
    let lines: Vec<&str> = shown.lines().skip(1).collect();
    for (line, start) in
        [(0, ids[3].to_owned()), (1, ids[0].to_owned()), (2, format!("├ → {}", ids[1])), (3, format!("└ → {}", ids[2]))]
    {
        assert!(lines[line].trim_start().starts_with(&start), "{start}: {shown}");
    }
    // A chain counts as one tree.
    assert_eq!(place.run_ok(&["threads", "list", "--limit", "2"]), shown);
}
