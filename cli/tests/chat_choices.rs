//! Tests of `rye chat`: refused prompts and models, warnings about a budget, the session that `-c` opens, and the reports
//! of a chat that does not start.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::io::{BufRead as _, Write};
use std::process::{Command, Stdio};

use rye::{ProcessResult, TestProject, talk_directive};

const ARGS: [&str; 4] = ["chat", "talk", "--script", "script.yaml"];

fn project(steps: &str) -> TestProject {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &talk_directive(9, ""));
    place.write("script.yaml", &format!("steps: [{steps}]"));
    place
}

/// Runs a chat with these lines as its input.
fn chat(place: &TestProject, args: &[&str], lines: &str) -> ProcessResult {
    run_with_input(place.command(args), lines.as_bytes())
}

fn run_with_input(mut command: Command, input: &[u8]) -> ProcessResult {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    ProcessResult::from(child.wait_with_output().unwrap())
}

#[test]
fn text_larger_than_the_context_window_is_not_sent() {
    let place = project("{ text: Done. }");
    let done = chat(&place, &ARGS, &format!("{}\n", "word ".repeat(300_000)));
    assert!(done.stderr.contains("not sent: the text has "), "{}", done.stderr);
    assert!(done.stderr.contains(" tokens, and the context window of scripted has 200,000"), "{}", done.stderr);
    let (_, listed) = place.json(&["threads", "list"]);
    let events = place.transcript(listed["threads"][0]["thread_id"].as_str().unwrap());
    assert!(!events.iter().any(|event| event["type"] == "prompt_started"), "{events:?}");
}

#[test]
fn budget_below_the_price_of_a_call_is_accepted_with_a_warning_and_named_by_why() {
    let place = project("{ text: Done. }");
    let done = chat(&place, &ARGS, "/why limit.spend\n/budget 0.000001\n/why limit.spend\n/budget 0.3 confirm\n");
    let expected = "and $0.000001 cannot pay for it: prompts end before their first call";
    assert_eq!(done.stderr.matches(expected).count(), 1, "{}", done.stderr);
    let named = "limit.spend: $0.000001, set with `/budget` or `--limit` for this session";
    assert_eq!(done.stderr.matches(named).count(), 1, "{}", done.stderr);
    assert_eq!(done.stderr.matches("set with `/budget`").count(), 1, "{}", done.stderr);
}

#[test]
fn model_without_a_key_is_refused() {
    let place = project("{ text: Done. }");
    let model = "{ id: scripted, context_window: 200000, max_output: 64000, tool_use: native, prices: { input: 1, output: 5 } }";
    place.write(
        ".ai/config/agent/providers/scripted.yaml",
        &format!("id: scripted\nwire: scripted\nscript: script.yaml\ndefault_tier: fast\ntiers: {{ fast: scripted }}\nmodels: [{model}]\n"),
    );
    place.run_ok(&["trust"]);
    let done = chat(&place, &["chat", "talk"], "/model openai/gpt-5-mini confirm\nhello\n");
    assert!(done.stderr.contains("OPENAI_API_KEY") && !done.stderr.contains("the next prompts use"), "{}", done.stderr);
    assert_eq!(done.stdout, "Done.\n", "{}", done.stderr);
}

#[test]
fn continue_skips_a_session_in_which_nothing_was_typed() {
    let place = project("{ text: Done. }, { text: Again. }");
    chat(&place, &ARGS, "hello\n");
    chat(&place, &ARGS, "");
    let opened = chat(
        &place,
        &["chat", "-c", "--format", "json", "--trust-record"],
        "{\"id\": 1, \"type\": \"state\"}\n{\"id\": 2, \"type\": \"resume\"}\n",
    );
    assert!(opened.stdout.contains("\"prompts\":1"), "{}", opened.stdout);
    let listed = opened.stdout.lines().find(|line| line.contains("\"command\":\"resume\"")).unwrap();
    assert!(listed.contains("\"data\":[]"), "{listed}");
    // If no session has a prompt, the newest one is opened.
    let place = project("{ text: Done. }");
    chat(&place, &ARGS, "");
    assert_eq!(chat(&place, &["chat", "-c", "--trust-record"], "hello\n").stdout, "Done.\n");
}

#[test]
fn error_in_settings_is_reported_without_advice_about_the_standard_library() {
    let place = project("{ text: Done. }");
    place.write(".ai/config/agent/agent.yaml", "provider: { defualt: scripted }\n");
    let done = chat(&place, &["chat", "--script", "script.yaml"], "hello\n");
    assert!(done.stderr.contains("defualt") && !done.stderr.contains("system:"), "{}", done.stderr);
}

#[test]
fn help_names_the_commands_that_need_a_reload() {
    let place = project("{ text: Done. }");
    let mut command = place.command(&ARGS);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"/help\nhello\n").unwrap();
    let mut reply = String::new();
    std::io::BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut reply).unwrap();
    assert_eq!(reply, "Done.\n");
    let execute = "{ item_type: tool, item_id: rye/bash/bash, params: { command: git branch } }";
    place.write(".ai/config/agent/chat.yaml", &format!("commands: [{{ id: branch, execute: {execute} }}]\n"));
    input.write_all(b"/help\n").unwrap();
    drop(input);
    let done = ProcessResult::from(child.wait_with_output().unwrap());
    assert_eq!(done.stderr.matches("only after `/reload`: /branch").count(), 1, "{}", done.stderr);
}

#[test]
fn exported_conversation_starts_with_its_title_and_names_the_arguments_of_calls() {
    let call = "{ tool_calls: [{ name: rye_file_system_read, input: { path: a.txt } }] }";
    let place = project(&format!("{call}, {{ text: Done. }}"));
    place.write(".ai/directives/talk.md", &talk_directive(9, "<tool>rye.file-system.read</tool>"));
    place.write("a.txt", "text");
    let done = chat(
        &place,
        &ARGS,
        "go
/name My title
/export notes.md
",
    );
    assert!(done.stderr.contains("written to"), "{}", done.stderr);
    let notes = place.read("notes.md");
    assert!(
        notes.starts_with(
            "# My title

## go
"
        ),
        "{notes}"
    );
    assert!(notes.contains("> rye_file_system_read {\"path\":\"a.txt\"}: "), "{notes}");
}

#[test]
fn unusable_keys_and_a_key_file_of_a_project_refuse_the_chat() {
    let place = project("{ text: Done. }");
    let refused = |place: &TestProject, texts: &[&str]| {
        let done = chat(place, &ARGS, "");
        assert_eq!(done.code, Some(1), "{}", done.stderr);
        for text in texts {
            assert!(done.stderr.contains(text), "{text}: {}", done.stderr);
        }
    };
    place.write("../user/.ai/config/agent/keys.yaml", "app.suspend: []\napp.hlep: f2\n");
    refused(&place, &["unknown key `app.hlep`", "user:.ai/config/agent/keys.yaml:2:1", "did you mean `app.help`?"]);
    place.write("../user/.ai/config/agent/keys.yaml", "app.help: ctrl+escap\n");
    refused(&place, &["`app.help` in `agent/keys` cannot be `ctrl+escap`", "expected `escape` in place of `escap`"]);
    place.write("../user/.ai/config/agent/keys.yaml", "app.help: f2\n");
    let help = chat(&place, &ARGS, "/help keys\n");
    assert!(help.stderr.contains("F2 ") && !help.stderr.contains("F1 "), "{}", help.stderr);
    place.write(".ai/config/agent/keys.yaml", "app.exit: ctrl+c\n");
    refused(
        &place,
        &["`.ai/config/agent/keys.yaml` cannot be a file of a project", "move the file to your user space"],
    );
}

#[test]
fn line_with_invalid_bytes_in_the_locale_c_is_sent_with_replacements_and_reported() {
    let place = project("{ text: \"größe 日本\" }");
    let mut command = place.command(&ARGS);
    command.envs([("LC_ALL", "C"), ("LANG", "C")]);
    let done = run_with_input(command, b"a\0b\xff\xc3\xb6\n");
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "größe 日本\n"), "{}", done.stderr);
    assert!(done.stderr.contains("replaced invalid characters in the line"), "{}", done.stderr);
    let (_, listed) = place.json(&["threads", "list"]);
    let events = place.transcript(listed["threads"][0]["thread_id"].as_str().unwrap());
    let typed = events.iter().find(|event| event["type"] == "user_input").unwrap();
    assert_eq!(typed["raw"], "a\u{fffd}b\u{fffd}ö", "{typed}");
}
