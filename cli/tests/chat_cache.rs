//! Tests of the cache guard of a chat: the question before a prompt that sends cached tokens again uncached.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/chat_client.rs"]
mod chat_client;
#[path = "support/chat_schema.rs"]
mod chat_schema;
#[path = "support/chat_terminal.rs"]
mod chat_terminal;
#[path = "support/pty.rs"]
mod pty;
#[path = "support/rye.rs"]
mod rye;

use std::io::Write;
use std::process::Stdio;

use chat_client::ChatClient;
use chat_terminal::{ARGS, wait_idle};
use pty::PtyTerminal;
use rye::{TestProject, talk_directive};
use serde_json::json;

/// A hook that changes the system prompt of prompts with the word `rule`.
const HOOKS: &str = "hooks:\n  - id: rules\n    event: before_agent_start\n    condition: \"prompt contains 'rule'\"\n    \
     action: { system_prompt: { append: \"Obey the rules.\" } }\n";
const WARNING: &str = "`rules` added (.ai/config/agent/hooks.yaml:2): ";

/// Returns a project whose system prompt has more than 2,000 tokens, with the hook and this setting of the guard.
fn project(guard: &str) -> TestProject {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &talk_directive(9, "<tool>rye.file-system.read</tool>"));
    place.write(".ai/config/agent/hooks.yaml", HOOKS);
    if !guard.is_empty() {
        place.write(".ai/config/agent/chat.yaml", &format!("cache_guard: {guard}\n"));
    }
    place.write("AGENTS.md", &"Use tabs in every file.\n".repeat(400));
    place.write("script.yaml", &format!("steps: [{}]", "{ text: One. }, ".repeat(7)));
    place
}

/// Returns the user messages and the system prompts of the requests of the session, oldest first.
fn prompts(place: &TestProject) -> Vec<(String, bool)> {
    let (_, listed) = place.json(&["threads", "list"]);
    let mut threads: Vec<String> = listed["threads"]
        .as_array()
        .unwrap()
        .iter()
        .map(|thread| thread["thread_id"].as_str().unwrap().to_owned())
        .collect();
    threads.sort();
    let mut found = Vec::new();
    for event in threads.iter().flat_map(|thread| place.transcript(thread)) {
        if event["type"] == "user_input" {
            found.push((event["text"].as_str().unwrap().to_owned(), false));
        }
        if event["type"] == "hook_point" && event["answer"]["system"].is_string() {
            found.last_mut().unwrap().1 = true;
        }
    }
    found
}

fn sent(list: &[(&str, bool)]) -> Vec<(String, bool)> {
    list.iter().map(|(text, is_changed)| ((*text).to_owned(), *is_changed)).collect()
}

#[test]
fn prompt_that_loses_cached_tokens_is_sent_once_without_the_hook_or_stays_in_the_editor() {
    let place = project("0.001");
    let mut terminal = chat_terminal::start(&place, (100, 24));
    terminal.press("first rule\r");
    wait_idle(&terminal, 1);
    // The first prompt has no cached prefix. This one has the prefix of the prompt before it.
    terminal.press("second rule\r");
    wait_idle(&terminal, 2);
    terminal.press("third\r");
    terminal.wait_for("`rules` removed (.ai/config/agent/hooks.yaml:2): ");
    terminal.wait_for("Send? s: send, Esc: cancel");
    terminal.press("w1\r");
    terminal.press("s");
    wait_idle(&terminal, 3);
    terminal.press("fourth rule\r");
    terminal.wait_for(WARNING);
    terminal.wait_for("Send? s: send, w: send once without `rules`, Esc: cancel");
    terminal.press("\x1b");
    terminal.wait_for("> fourth rule");
    terminal.press("\r");
    terminal.wait_for("Send? s: send");
    terminal.press("w");
    wait_idle(&terminal, 4);
    terminal.press("fifth\r");
    wait_idle(&terminal, 5);
    terminal.press("\x04");
    let (code, rows, _) = terminal.end();
    assert_eq!(code, 0, "{rows:#?}");
    let loss = rows.iter().find(|row| row.starts_with(WARNING)).unwrap();
    assert!(loss.contains(" cached tokens are lost, which costs $0.00"), "{loss}");
    let expected =
        [("first rule", true), ("second rule", true), ("third", false), ("fourth rule", false), ("fifth", false)];
    assert_eq!(prompts(&place), sent(&expected));
    let (_, shown) = place.json(&["threads", "list"]);
    assert_eq!(shown["threads"].as_array().unwrap().len(), 3, "the plan without the hook is used for one prompt");
}

#[test]
fn plain_terminal_asks_with_numbers() {
    let place = project("0.001");
    let mut terminal = PtyTerminal::start(&place, (100, 24), &[&ARGS[..], &["--plain"]].concat(), &[]);
    terminal.wait_for("thread talk-");
    terminal.press("first\n");
    terminal.wait_for("prompt 1 done");
    terminal.press("second rule\n");
    terminal.wait_for("1: send, 2: send once without `rules`, 3: cancel; type the number");
    terminal.press("3\n");
    terminal.wait_for("not sent: second rule");
    terminal.press("third rule\n");
    terminal.wait_until("the question", |rows| rows.iter().filter(|row| row.contains("type the number")).count() == 2);
    terminal.press("2\n");
    terminal.wait_for("prompt 2 done");
    // The session has continued without the hook, and then with its plan again.
    terminal.wait_until("both threads", |rows| rows.iter().filter(|row| row.contains("continues talk-")).count() == 2);
    terminal.press("fourth rule\n");
    terminal.wait_until("the question", |rows| rows.iter().filter(|row| row.contains("type the number")).count() == 3);
    terminal.press("1\n");
    terminal.wait_for("prompt 3 done");
    terminal.press("/exit\n");
    let (code, rows, _) = terminal.end();
    assert_eq!(code, 0, "{rows:#?}");
    assert_eq!(prompts(&place), sent(&[("first", false), ("third rule", false), ("fourth rule", true)]));
}

#[test]
fn budget_that_is_set_while_a_prompt_runs_without_a_hook_stays() {
    let place = project("0.001");
    place.write(
        "script.yaml",
        &format!("steps: [{{ text: One. }}, {{ delay_ms: 3000, text: Two. }}{}]", ", { text: More. }".repeat(3)),
    );
    let mut terminal = PtyTerminal::start(&place, (100, 60), &[&ARGS[..], &["--plain"]].concat(), &[]);
    terminal.wait_for("thread talk-");
    terminal.press("first\n");
    terminal.wait_for("prompt 1 done");
    terminal.press("second rule\n");
    terminal.wait_for("3: cancel; type the number");
    terminal.press("2\n/budget 0.1\n");
    terminal.wait_for("prompt 2 done");
    terminal.press("/why limit.spend\n");
    terminal.wait_for("limit.spend: $0.1, set with `/budget`");
    terminal.press("third rule\n");
    terminal.wait_until("the question", |rows| rows.iter().filter(|row| row.contains("type the number")).count() == 2);
    terminal.press("1\n");
    terminal.wait_for("prompt 3 done");
    terminal.press("/exit\n");
    let (code, rows, _) = terminal.end();
    assert_eq!(code, 0, "{rows:#?}");
    assert_eq!(prompts(&place), sent(&[("first", false), ("second rule", false), ("third rule", true)]));
}

#[test]
fn lines_of_a_file_and_json_requests_are_sent_and_the_loss_is_reported() {
    for (guard, is_reported) in [("0.001", true), ("", false)] {
        let place = project(guard);
        let mut command = place.command(&ARGS);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"first\nsecond rule\n").unwrap();
        let done = rye::ProcessResult::from(child.wait_with_output().unwrap());
        assert_eq!((done.code, done.stderr.contains(WARNING)), (Some(0), is_reported), "{}", done.stderr);
        assert_eq!(prompts(&place), sent(&[("first", false), ("second rule", true)]));
    }
    let place = project("0.001");
    let mut client = ChatClient::start(&place, &["talk"]);
    let first = client.ask(json!({"type": "prompt", "message": "first"}));
    assert!(first["data"].get("cache_loss").is_none(), "{first}");
    client.event("prompt_ended");
    let preview = client.ask(json!({"type": "preview", "message": "a rule"}));
    assert!(preview["data"]["cache_loss"]["tokens"].as_u64().unwrap() > 2000, "{preview}");
    let kept = client.ask(json!({"type": "preview", "message": "second"}));
    assert!(kept["data"].get("cache_loss").is_none(), "{kept}");
    assert!(kept["data"]["cached_tokens"].as_u64() > preview["data"]["cached_tokens"].as_u64(), "{preview} {kept}");
    let warned = client.ask(json!({"type": "prompt", "message": "second rule"}));
    let loss = &warned["data"]["cache_loss"];
    assert_eq!(loss["parts"], json!([{"id": "rules", "change": "added"}]), "{warned}");
    assert!(loss["cost"].as_f64().unwrap() > 0.001 && loss["text"].as_str().unwrap().starts_with(WARNING), "{warned}");
    client.event("prompt_ended");
    client.end();
}

#[test]
fn reload_with_a_changed_file_warns_and_another_model_does_not() {
    let place = project("0.001");
    let mut client = ChatClient::start(&place, &["talk"]);
    client.ask(json!({"type": "prompt", "message": "first"}));
    client.event("prompt_ended");
    place.write("AGENTS.md", &"Use spaces in every file.\n".repeat(400));
    client.ask(json!({"type": "reload", "confirm": true}));
    client.event("plan_bound");
    let loss = loop {
        let preview = client.ask(json!({"type": "preview", "message": "x"}));
        if let Some(loss) = preview["data"].get("cache_loss") {
            break loss.clone();
        }
        // Until the session has continued with the new plan, a preview reports no cache loss.
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    assert_eq!(loss["parts"], json!([{"id": "context/AGENTS.md", "change": "changed"}]), "{loss}");
    let warned = client.ask(json!({"type": "prompt", "message": "second"}));
    client.event("prompt_ended");
    assert!(warned["data"].get("cache_loss").is_none() || warned["data"]["cache_loss"]["tokens"].is_u64(), "{warned}");
    client.ask(json!({"type": "model", "model": "scripted/general", "confirm": true}));
    client.event("plan_bound");
    let preview = client.ask(json!({"type": "preview", "message": "x"}));
    assert!(preview["data"].get("cache_loss").is_none(), "{preview}");
    client.end();
}

#[test]
fn line_before_a_context_file_loses_the_tokens_of_the_file() {
    let place = project("0.001");
    let mut client = ChatClient::start(&place, &["talk"]);
    client.ask(json!({"type": "prompt", "message": "first"}));
    client.event("prompt_ended");
    place.write("AGENTS.md", &format!("Run the linter.\n{}", place.read("AGENTS.md")));
    client.ask(json!({"type": "reload", "confirm": true}));
    client.event("plan_bound");
    let loss = loop {
        let preview = client.ask(json!({"type": "preview", "message": "x"}));
        if let Some(loss) = preview["data"].get("cache_loss") {
            break loss.clone();
        }
        // The session continues with the new plan soon.
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    assert!(loss["tokens"].as_u64().unwrap() > 2000, "{loss}");
    client.end();
}
