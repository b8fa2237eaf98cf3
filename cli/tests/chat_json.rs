//! Tests of `rye chat --format json`: requests, responses, approvals by the client, and the queue. Each line in both
//! directions is validated.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/chat_client.rs"]
mod chat_client;
#[path = "support/chat_schema.rs"]
mod chat_schema;
#[path = "support/rye.rs"]
mod rye;

use std::io::Write;
use std::os::fd::AsFd;
use std::process::Stdio;

use chat_client::ChatClient;
use rye::{TestProject, talk_directive};
use serde_json::{Value, json};

const TOOL: &str = "<tool>rye.bash.bash</tool>";

/// Starts a session of the directive `talk`, which may use bash.
fn start(place: &TestProject, script: &str) -> ChatClient {
    place.write(".ai/directives/talk.md", &talk_directive(4, TOOL));
    place.write("script.yaml", script);
    ChatClient::start(place, &["talk"])
}

fn bash(command: &str) -> String {
    format!("{{ tool_calls: [{{ name: rye_bash_bash, input: {{ command: {command} }} }}] }}")
}

#[test]
fn client_answers_approvals() {
    for (approve, expected) in [(true, "ran"), (false, "unapproved")] {
        let place = TestProject::own();
        let mut client = start(&place, &format!("steps: [{}, {{ text: Done. }}]", bash("echo hi")));
        client.ask(json!({"type": "prompt", "message": "go"}));
        let asked = client.event("approval_asked");
        let state = client.ask(json!({"type": "state"}));
        assert_eq!(state["data"]["question"]["question"], asked["seq"], "{state}");
        let (no, seq) = (!approve, asked["seq"].clone());
        for (request, error) in [
            (json!({"type": "answer", "question": 100_000, "approve": no}), "request 100000"),
            (json!({"type": "answer", "question": seq, "approve": no, "thread": "talk-1"}), "`talk-1`"),
            (json!({"type": "retract", "input": "x"}), "the id `x`"),
            (json!({"type": "raise", "limit": "depth", "value": 9}), "not `depth`"),
            (json!({"type": "raise", "limit": "nosuch", "value": 9}), "not `nosuch`"),
            (json!({"type": "raise", "limit": "turns", "value": 1}), "does not raise `turns`"),
        ] {
            let response = client.ask(request);
            assert_eq!(response["success"], false, "{response}");
            assert!(response["error"].as_str().unwrap().contains(error), "{response}");
        }
        let answer = client.ask(json!({"type": "answer", "question": seq, "approve": approve}));
        assert_eq!(answer["success"], true, "{answer}");
        let result = client.event("tool_call_result");
        assert_eq!(result["event"]["why"]["kind"], expected, "{result}");
        client.event("prompt_ended");
        let late = client.ask(json!({"type": "answer", "question": seq, "approve": no}));
        assert_eq!(late["success"], false, "{late}");
        client.end();
    }
}

/// A kill right behind the response loses no message.
#[test]
fn response_to_a_message_follows_its_record() {
    let place = TestProject::own();
    let mut client = start(&place, "steps: [{ delay_ms: 120000, text: One. }]");
    let folder = place.project().join(".ai/state/threads/talk-");
    let records = || {
        let threads = std::fs::read_dir(folder.parent().unwrap()).unwrap();
        let transcripts = threads.map(|entry| entry.unwrap().path().join("transcript.jsonl"));
        transcripts.filter_map(|path| std::fs::read_to_string(path).ok()).collect::<String>()
    };
    for n in 0..20 {
        let kind = ["prompt", "steer", "follow_up", "next_turn"][n % 4];
        let response = client.ask(json!({"type": kind, "message": format!("message-{n}.")}));
        assert_eq!(response["success"], true, "{response}");
        assert!(records().contains(&format!("message-{n}.")), "{n}: {response}");
    }
    client.child.kill().unwrap();
    client.child.wait().unwrap();
}

#[test]
fn empty_list_of_capabilities_offers_no_tool() {
    let place = TestProject::own();
    let mut client = start(&place, "steps: [{ text: One. }]");
    let preview = client.ask(json!({"type": "preview", "message": "x", "with": []}));
    assert_eq!(preview["success"], true, "{preview}");
    client.ask(json!({"type": "prompt", "message": "x", "with": []}));
    let started = client.event("prompt_started");
    assert_eq!(started["event"]["grants"], json!([]), "{started}");
    client.event("prompt_ended");
    client.end();
}

#[test]
fn refusal_before_the_end_of_the_input_overtakes_the_policy() {
    let place = TestProject::own();
    let mut client = start(&place, &format!("steps: [{}, {{ text: Done. }}]", bash("echo hi")));
    client.ask(json!({"type": "prompt", "message": "go"}));
    let asked = client.event("approval_asked");
    let answer = client.ask(json!({"type": "answer", "question": asked["seq"], "approve": false}));
    assert_eq!(answer["success"], true, "{answer}");
    let seen = client.end();
    let results: Vec<&Value> = seen.iter().filter(|line| line["event"]["type"] == "tool_call_result").collect();
    assert_eq!(results.len(), 1, "{seen:?}");
    assert_eq!(results[0]["event"]["why"]["kind"], "unapproved", "{seen:?}");
}

#[test]
fn yes_of_a_client_at_an_escalated_limit_raises_it_and_no_ends_the_prompt() {
    let call = "{ tool_calls: [{ name: rye_file_system_read, input: { path: script.yaml } }] }";
    for (approve, limit, status) in [(true, None, "done"), (true, Some(5), "done"), (false, None, "limit")] {
        let place = TestProject::own();
        place.write(".ai/config/agent/hooks.yaml", "hooks:\n  - { id: ask, event: limit, action: { escalate: {} } }\n");
        place.write(".ai/directives/talk.md", &talk_directive(1, "<tool>rye.file-system.read</tool>"));
        place.write("script.yaml", &format!("steps: [{{ text: One. }}, {call}, {{ text: Done. }}]"));
        let mut client = ChatClient::start(&place, &["talk"]);
        for message in ["first", "second"] {
            client.ask(json!({"type": "prompt", "message": message}));
            if message == "first" {
                client.event("prompt_ended");
            }
        }
        let asked = client.event("approval_asked");
        let raise = json!({"limit": "turns", "value": 2});
        assert_eq!(asked["event"]["raise"], raise, "{asked}");
        assert_eq!(client.ask(json!({"type": "state"}))["data"]["question"]["raise"], raise);
        if let Some(value) = limit {
            client.ask(json!({"type": "raise", "limit": "turns", "value": value}));
        }
        let answer = client.ask(json!({"type": "answer", "question": asked["seq"], "approve": approve}));
        let expected = if approve && limit.is_none() { raise } else { Value::Null };
        assert_eq!(answer["data"]["raise"], expected, "{answer}");
        let ended = client.event("prompt_ended");
        assert_eq!(ended["event"]["status"], status, "{ended}");
        client.end();
        let (_, listed) = place.json(&["threads", "list"]);
        let events = place.transcript(listed["threads"][0]["thread_id"].as_str().unwrap());
        let raised = events.iter().filter(|event| event["message"]["kind"] == "raise");
        let raised: Vec<&Value> = raised.map(|event| &event["message"]["value"]).collect();
        let expected = limit.or(approve.then_some(2)).map(|value| json!(value));
        assert_eq!(raised, expected.iter().collect::<Vec<_>>(), "{events:?}");
    }
}

#[test]
fn approval_of_a_session_that_was_killed_while_it_asked_fails() {
    let place = TestProject::own();
    let mut client = start(&place, &format!("steps: [{}, {{ text: Done. }}]", bash("echo hi")));
    client.ask(json!({"type": "prompt", "message": "go"}));
    client.event("approval_asked");
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    for args in [&["threads", "approve", "--last"][..], &["threads", "approve", "--last", "--deny"]] {
        let done = place.rye(args);
        assert_eq!(done.code, Some(1), "{}", done.stderr);
        assert!(done.stderr.contains("so no answer has an effect and the call does not run"), "{}", done.stderr);
    }
}

#[test]
fn chat_whose_client_answers_approvals_reports_no_policy_without_a_terminal() {
    for (args, is_reported) in [(&[][..], false), (&["--unattended", "allow"], true)] {
        let place = TestProject::own();
        place.write(".ai/directives/talk.md", &talk_directive(4, TOOL));
        place.write("script.yaml", "steps: []");
        let chat = place.rye(&[&["chat", "talk", "--script", "script.yaml", "--format", "json"], args].concat());
        assert_eq!(chat.stderr.contains("run without approval"), is_reported, "{args:?}: {}", chat.stderr);
    }
}

#[test]
fn request_after_the_end_of_the_input_is_answered_by_the_policy() {
    let place = TestProject::own();
    let call = bash("echo hi").replacen("{ ", "{ delay_ms: 3000, ", 1);
    let mut client = start(&place, &format!("steps: [{call}, {{ text: Done. }}]"));
    client.ask(json!({"type": "prompt", "message": "go"}));
    let seen = client.end();
    assert!(
        seen.iter().any(|line| line["event"]["type"] == "tool_call_result" && line["event"]["why"]["kind"] == "ran")
    );
    assert_eq!(seen.last().unwrap()["status"], "idle");
}

#[test]
fn request_that_is_open_at_the_end_of_the_input_is_refused() {
    let place = TestProject::own();
    let mut client = start(&place, &format!("steps: [{}, {{ text: Done. }}]", bash("echo hi")));
    client.ask(json!({"type": "prompt", "message": "go"}));
    client.event("approval_asked");
    // The event precedes the wait for its answer.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let seen = client.end();
    let result = seen.iter().find(|line| line["event"]["type"] == "tool_call_result").unwrap();
    assert_eq!(result["event"]["why"]["kind"], "unapproved", "{result}");
}

#[test]
fn queue_is_shown_and_withdrawn_while_a_prompt_waits() {
    let place = TestProject::own();
    let mut client = start(&place, &format!("steps: [{}, {{ text: One. }}, {{ text: Two. }}]", bash("echo hi")));
    client.ask(json!({"type": "prompt", "message": "go"}));
    let asked = client.event("approval_asked");
    let mut sent = Vec::new();
    for (verb, text) in [("prompt", "b"), ("next_turn", "c"), ("follow_up", "a")] {
        let response = client.ask(json!({"type": verb, "message": text}));
        sent.push(response["data"]["input"].as_str().unwrap().to_owned());
        let id = sent.last().unwrap().clone();
        if !client.seen.iter().any(|line| line["event"]["type"] == "user_input" && line["event"]["id"] == *id) {
            client.read_until(|line| line["event"]["type"] == "user_input" && line["event"]["id"] == *id);
        }
    }
    let state = client.ask(json!({"type": "state"}));
    let queue: Vec<&str> =
        state["data"]["queue"].as_array().unwrap().iter().map(|one| one["text"].as_str().unwrap()).collect();
    assert_eq!(queue, ["a", "b", "c"], "{state}");
    assert_eq!(state["data"]["idle"], false);
    client.ask(json!({"type": "retract", "input": sent[2]}));
    client.ask(json!({"type": "clear_queue"}));
    client.ask(json!({"type": "answer", "question": asked["seq"], "approve": false}));
    client.event("prompt_ended");
    let seen = client.end();
    let retracted = seen.iter().filter(|line| line["event"]["type"] == "retracted").count();
    assert_eq!(retracted, 3);
    assert_eq!(seen.iter().filter(|line| line["event"]["type"] == "prompt_started").count(), 1);
}

/// The reply of the prompt never ends, so that no later step of the prompt refreshes the state.
#[test]
fn messages_sent_during_a_reply_are_listed_and_withdrawn() {
    let place = TestProject::own();
    let mut client = start(&place, "steps: [{ delay_ms: 120000, text: One. }]");
    client.ask(json!({"type": "prompt", "message": "go"}));
    client.event("attempt_intended");
    let mut sent = Vec::new();
    for (verb, text) in [("steer", "a"), ("follow_up", "b"), ("next_turn", "c")] {
        let response = client.ask(json!({"type": verb, "message": text}));
        sent.push(response["data"]["input"].clone());
        client.event("user_input");
    }
    let queue = |client: &mut ChatClient| {
        let state = client.ask(json!({"type": "state"}));
        let queue = state["data"]["queue"].as_array().unwrap().clone();
        queue.iter().map(|one| one["text"].as_str().unwrap()).collect::<String>()
    };
    assert_eq!(queue(&mut client), "abc");
    let retracted = client.ask(json!({"type": "retract", "input": sent[0]}));
    assert_eq!(retracted["success"], true, "{retracted}");
    client.event("retracted");
    let withdrawn = client.ask(json!({"type": "clear_queue"}));
    assert_eq!(withdrawn["data"]["queued"], 2, "{withdrawn}");
    client.event("retracted");
    client.ask(json!({"type": "interrupt"}));
    client.event("prompt_ended");
    client.end();
}

#[test]
fn request_directly_after_a_prompt_sees_this_prompt() {
    let place = TestProject::own();
    let mut client = start(&place, "steps: [{ text: One. }, { delay_ms: 120000, text: Two. }]");
    client.ask(json!({"type": "prompt", "message": "a"}));
    client.event("prompt_ended");
    client.ask(json!({"type": "prompt", "message": "b"}));
    for verb in [json!({"type": "retry"}), json!({"type": "rewind", "prompt": 1, "files": "preview"})] {
        let refused = client.ask(verb);
        assert!(refused["error"].to_string().contains("a prompt runs: interrupt it first"), "{refused}");
    }
    client.ask(json!({"type": "interrupt"}));
    client.event("prompt_ended");
    client.end();
}

#[test]
fn preview_is_the_request_that_is_sent_and_costs_nothing() {
    let place = TestProject::own();
    place.write(".ai/prompts/review.md", "Review $1.\n");
    let mut client = start(&place, "steps: [{ text: One. }]");
    let preview = loop {
        let preview = client.ask(json!({"type": "preview", "message": "/review main.rs"}));
        if preview["success"] == true {
            break preview["data"].clone();
        }
    };
    assert_eq!(preview["text"], "Review main.rs.");
    assert!(preview["input_tokens"].as_u64().unwrap() > 5, "{preview}");
    let unknown = client.ask(json!({"type": "preview", "message": "/revew main.rs"}));
    assert!(unknown["error"].as_str().unwrap().contains("unknown command `/revew`"), "{unknown}");
    let context = client.ask(json!({"type": "context"}));
    assert!(context["data"].as_array().unwrap().iter().any(|part| part["kind"] == "first_message"), "{context}");
    let commands = client.ask(json!({"type": "commands"}));
    let names: Vec<&Value> = commands["data"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert!(names.contains(&&json!("review")), "{commands}");
    assert!(!names.contains(&&json!("fork")), "a message calls no built-in command: {commands}");
    assert!(!client.seen.iter().any(|line| line["event"]["type"] == "mail"));
    client.ask(json!({"type": "prompt", "message": "/review main.rs"}));
    let sent = client.event("user_input");
    assert_eq!((&sent["event"]["raw"], &sent["event"]["text"]), (&json!("/review main.rs"), &json!("Review main.rs.")));
    assert_eq!(sent["event"]["expansions"][0]["item"], "review");
    assert_eq!(sent["event"]["source"], "rpc");
    let prompt_event = client.event("cognition_in");
    let shown = &preview["request"]["messages"][0]["content"];
    assert_eq!(&prompt_event["event"]["message"]["content"], shown);
    client.event("prompt_ended");
    let cost = client.ask(json!({"type": "cost"}));
    assert_eq!(cost["data"]["session"]["turns"], 1, "{cost}");
    let prompt = &cost["data"]["prompts"][0];
    assert_eq!(
        (&prompt["prompt"], &prompt["status"], &prompt["turns"]),
        (&json!(1), &json!("done"), &json!(1)),
        "{cost}"
    );
    assert_eq!(
        (&prompt["spend"], &cost["data"]["children"]),
        (&cost["data"]["session"]["spend"], &json!([])),
        "{cost}"
    );
    let messages = client.ask(json!({"type": "messages"}));
    assert_eq!(messages["data"].as_array().unwrap().len(), 2);
    client.end();
}

#[test]
fn interruption_in_the_line_after_a_prompt_reaches_it() {
    let place = TestProject::own();
    let mut client = start(&place, "steps: [{ delay_ms: 60000, text: One. }]");
    client.write(&json!({"type": "prompt", "message": "first"}));
    client.write(&json!({"type": "interrupt"}));
    let ended = client.event("prompt_ended");
    assert_eq!(ended["event"]["status"], "interrupted", "{ended}");
    client.end();
}

#[test]
fn change_of_the_model_directly_after_a_lower_budget_does_not_undo_the_budget() {
    let place = TestProject::own();
    let model = |id: &str| {
        format!("{{ id: {id}, context_window: 200000, max_output: 64000, prices: {{ input: 1, output: 5 }} }}")
    };
    let models = [model("scripted"), model("other")].join(", ");
    place.write(
        ".ai/config/agent/providers/scripted.yaml",
        &format!("id: scripted\nwire: scripted\nscript: script.yaml\ndefault_tier: fast\ntiers: {{ fast: scripted, high: other }}\nmodels: [{models}]\n"),
    );
    let mut client = start(&place, "steps: [{ delay_ms: 60000, text: One. }]");
    client.ask(json!({"type": "prompt", "message": "go"}));
    client.event("attempt_intended");
    // The session applies both changes after the prompt.
    let budget = client.ask(json!({"type": "budget", "spend": 0.1}));
    assert_eq!(budget["success"], true, "{budget}");
    let model = client.ask(json!({"type": "model", "model": "other", "confirm": true}));
    assert_eq!(model["success"], true, "{model}");
    client.ask(json!({"type": "interrupt"}));
    client.event("prompt_ended");
    let is_changed = |_| client.ask(json!({"type": "state"}))["data"]["model"] == "other";
    assert!((0..10_000).any(is_changed));
    let why = client.ask(json!({"type": "why", "part": "limit.spend"}));
    assert!(why.to_string().contains("limit.spend: $0.1, set with `/budget`"), "{why}");
    client.end();
}

#[test]
fn every_line_is_answered() {
    let place = TestProject::own();
    let mut client = start(&place, "steps: [{ text: One. }]");
    let bad = [
        "",
        "{",
        "[]",
        "null",
        "{\"type\":\"fly\"}",
        "{\"type\":\"state\",\"type\":\"close\"}",
        "{\"type\":\"prompt\"}",
        "{\"type\":\"raise\",\"limit\":\"x\",\"value\":[]}",
    ];
    for line in bad {
        writeln!(client.stdin, "{line}").unwrap();
    }
    let good = client.ask(json!({"type": "cost"}));
    assert_eq!(good["success"], true);
    let seen = client.end();
    let failed = seen.iter().filter(|line| line["type"] == "response" && line["success"] == false);
    // An empty line is no request.
    assert_eq!(failed.count(), bad.len() - 1);
}

/// Returns a line of random pieces of requests.
fn random_line(seed: &mut u64) -> String {
    let pieces = [
        "{",
        "}",
        "\"type\"",
        ":",
        "\"prompt\"",
        ",",
        "\"message\"",
        "[",
        "]",
        "null",
        "1e999",
        "\"id\"",
        "\\u",
        "\"",
        "\u{0}",
        "\u{202e}",
        "-",
        "true",
        "\"state\"",
        "{\"type\":\"state\"}",
        "   ",
        "\u{ffff}",
    ];
    let mut next = || {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        usize::try_from(*seed % 997).unwrap()
    };
    let count = 1 + next() % 12;
    // A line of spaces is no request.
    format!("x{}", (0..count).map(|_| pieces[next() % pieces.len()]).collect::<String>())[usize::from(next() % 4 > 0)..]
        .to_owned()
}

// shows: interactive 7.24
#[test]
fn ten_thousand_random_lines_are_answered_and_none_is_fatal() {
    let place = TestProject::own();
    let mut client = start(&place, "steps: [{ text: One. }]");
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut lines: Vec<String> = (0..10_000).map(|_| random_line(&mut seed)).collect();
    lines.retain(|line| !line.trim().is_empty());
    let count = lines.len();
    let mut stdin = std::fs::File::from(client.stdin.as_fd().try_clone_to_owned().unwrap());
    let writer = std::thread::spawn(move || {
        for line in lines {
            writeln!(stdin, "{line}").unwrap();
        }
    });
    for _ in 0..count {
        client.read_until(|line| line["type"] == "response");
    }
    writer.join().unwrap();
    assert_eq!(client.ask(json!({"type": "state"}))["success"], true);
    client.end();
}

const FILE_TOOLS: &str = "<tool>rye.file-system.*</tool><tool write=\"out/\">rye.bash.bash</tool>";

fn write_call(path: &str, content: &str) -> String {
    format!("{{ tool_calls: [{{ name: rye_file_system_write, input: {{ path: {path}, content: {content} }} }}] }}")
}

#[test]
fn rewind_restores_files_only_if_unchanged_since() {
    let place = TestProject::own();
    place.write("notes.txt", "old");
    place.write("other.txt", "old");
    place.write(".ai/directives/files.md", &talk_directive(9, FILE_TOOLS).replace("\"talk\"", "\"files\""));
    let steps = [
        "{ text: One. }".to_owned(),
        write_call("notes.txt", "new"),
        write_call("notes.txt", "newer"),
        write_call("other.txt", "new"),
        write_call("made.txt", "made"),
        bash("echo hi"),
        "{ text: Two. }".to_owned(),
    ];
    place.write("script.yaml", &format!("steps: [{}]", steps.join(", ")));
    let mut client = ChatClient::start(&place, &["files"]);
    for text in ["first", "second"] {
        client.ask(json!({"type": "prompt", "message": text}));
        if text == "second" {
            let asked = client.event("approval_asked");
            client.ask(json!({"type": "answer", "question": asked["seq"], "approve": true}));
        }
        client.event("prompt_ended");
    }
    assert_eq!((place.read("notes.txt"), place.read("made.txt")), ("newer".to_owned(), "made".to_owned()));
    let changes: Vec<&Value> = client.seen.iter().filter(|line| line["event"]["type"] == "file_changed").collect();
    assert_eq!(changes.len(), 4);
    assert_eq!((&changes[3]["event"]["path"], &changes[3]["event"]["before"]), (&json!("made.txt"), &Value::Null));
    assert_eq!(changes[0]["event"]["after"], changes[1]["event"]["before"]);
    place.write("other.txt", "mine");
    let states = |response: &Value| -> Vec<(String, String)> {
        let files = response["data"]["files"].as_array().unwrap_or_else(|| panic!("{response}"));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        files.iter().map(|file| (text(&file["path"]), text(&file["state"]))).collect()
    };
    let pairs = |list: [(&str, &str); 3]| list.map(|(path, state)| (path.to_owned(), state.to_owned())).to_vec();
    let preview = client.ask(json!({"type": "rewind", "prompt": 2, "files": "preview"}));
    let expected = pairs([("made.txt", "removable"), ("notes.txt", "restorable"), ("other.txt", "changed")]);
    assert_eq!(states(&preview), expected);
    assert_eq!(preview["data"]["not_undone"], json!(["rye_bash_bash: echo hi"]));
    assert_eq!(place.read("notes.txt"), "newer");
    let restored = client.ask(json!({"type": "rewind", "prompt": 2, "files": "restore"}));
    let expected = pairs([("made.txt", "restored"), ("notes.txt", "restored"), ("other.txt", "changed")]);
    assert_eq!(states(&restored), expected);
    assert_eq!(restored["data"]["text"], "second");
    assert_eq!((place.read("notes.txt"), place.read("other.txt")), ("old".to_owned(), "mine".to_owned()));
    assert!(!place.project().join("made.txt").exists());
    client.read_until(|line| line["event"]["type"] == "opened" && line["event"]["origin"] == "fork");
    // Both branches stay.
    let tree = client.ask(json!({"type": "tree"}));
    assert_eq!(tree["data"].as_array().unwrap().len(), 2, "{tree}");
    assert_eq!(client.ask(json!({"type": "rewind", "prompt": 9, "files": "preview"}))["success"], false);
    client.end();
}

#[test]
fn plan_and_reasons_are_those_of_the_shell_commands() {
    let place = TestProject::own();
    let mut client = start(&place, "steps: [{ text: One. }]");
    let plan = client.ask(json!({"type": "plan"}));
    let (_, expected) = place.json(&["plan", "talk", "--chat"]);
    assert_eq!(plan["data"]["plan_id"], expected["plan_id"], "{plan}");
    assert_eq!(plan["data"]["palette"], expected["palette"]);
    client.ask(json!({"type": "prompt", "message": "hi"}));
    client.event("prompt_ended");
    let why =
        |client: &mut ChatClient, request: Value| client.ask(request)["data"]["text"].as_str().unwrap().to_owned();
    assert_eq!(why(&mut client, json!({"type": "why"})), "typed: hi\nsent: the same text");
    assert!(why(&mut client, json!({"type": "why", "part": "limit.spend"})).contains("0.5"));
    let unknown = client.ask(json!({"type": "why", "part": "nothing"}));
    assert!(unknown["error"].as_str().unwrap().contains("no part of the plan"), "{unknown}");
    client.end();
}

#[test]
fn closed_stdout_ends_no_prompt_and_parks_the_session() {
    let place = TestProject::own();
    let client = start(&place, "steps: [{ text: Done., delay_ms: 1500 }]");
    let ChatClient { mut child, stdin, .. } = {
        let mut client = client;
        client.ask(json!({"type": "prompt", "message": "go"}));
        client.event("prompt_started");
        client
    };
    // Nothing reads the output any more, and the input ends.
    drop(stdin);
    let until = std::time::Instant::now() + std::time::Duration::from_mins(1);
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        assert!(std::time::Instant::now() < until, "the session does not end");
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    assert!(code.is_some());
    let (_, listed) = place.json(&["threads", "list"]);
    assert_eq!(listed["threads"][0]["status"], "idle", "{listed}");
    let events = place.transcript(listed["threads"][0]["thread_id"].as_str().unwrap());
    let ended = events.iter().find(|event| event["type"] == "prompt_ended").unwrap();
    assert_eq!((&ended["status"], &ended["cost"]["turns"]), (&json!("done"), &json!(1)), "{ended}");
}

#[test]
fn session_whose_client_reads_nothing_ends_at_a_signal() {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &talk_directive(4, TOOL));
    place.write("script.yaml", "steps: [Done.]");
    let mut command = place.command(&["chat", "--format", "json", "--script", "script.yaml", "talk"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // The responses fill the pipe, and the requests then fill the other one.
    std::thread::spawn(move || {
        for _ in 0..400 {
            if writeln!(stdin, r#"{{"type": "commands"}}"#).is_err() {
                return;
            }
        }
        std::thread::sleep(std::time::Duration::from_mins(2));
    });
    std::thread::sleep(std::time::Duration::from_secs(3));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while child.try_wait().unwrap().is_none() {
        assert!(std::time::Instant::now() < until, "the session does not end");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let (_, listed) = place.json(&["threads", "list"]);
    assert_eq!(listed["threads"][0]["status"], "idle", "{listed}");
}
