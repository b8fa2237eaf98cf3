//! Tests of `rye chat` at a terminal: the output of interrupted calls and commands, the text of interrupted replies, and
//! prompts that are typed behind a command.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/chat_terminal.rs"]
mod chat_terminal;
#[path = "support/pty.rs"]
mod pty;
#[path = "support/rye.rs"]
mod rye;

use std::time::{Duration, Instant};

use chat_terminal::{ARGS, project_with_tools, start, wait_idle};
use pty::PtyTerminal;
use rye::TestProject;
use serde_json::Value;

const SIZE: (u16, u16) = (100, 30);
const BASH: &str = "<tool write=\"out/\">rye.bash.bash</tool>";
/// A command that writes a line, reports that it has done so, and runs on.
const LONG: &str = "echo first line; touch out/ready; sleep 60";

/// Waits until a program has written `out/ready`, and its output has been read.
fn wait_ready(place: &TestProject) {
    let until = Instant::now() + Duration::from_mins(1);
    while !place.project().join("out/ready").exists() {
        assert!(Instant::now() < until, "the program never started");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
}

/// Returns the events of all threads, the oldest thread first.
fn events(place: &TestProject) -> Vec<Value> {
    let (_, listed) = place.json(&["threads", "list"]);
    let mut threads: Vec<&str> =
        listed["threads"].as_array().unwrap().iter().map(|thread| thread["thread_id"].as_str().unwrap()).collect();
    threads.reverse();
    threads.into_iter().flat_map(|thread| place.transcript(thread)).collect()
}

fn of_type<'e>(events: &'e [Value], name: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event["type"] == name).collect()
}

#[test]
fn interrupted_call_returns_its_output_to_the_model_and_to_the_screen() {
    let call = format!("{{ tool_calls: [{{ name: rye_bash_bash, input: {{ command: '{LONG}' }} }}] }}");
    let place = project_with_tools(BASH, &format!("{call}, {{ text: Done. }}"));
    let mut terminal = start(&place, SIZE);
    terminal.press("go\r");
    terminal.wait_for("Allow?");
    terminal.press("y");
    wait_ready(&place);
    terminal.press("\x1b");
    terminal.wait_for("prompt 1 interrupted");
    terminal.press("\x0f");
    terminal.wait_until("the output", |rows| rows.iter().any(|row| row == "first line"));
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 130);
    let events = events(&place);
    let result = of_type(&events, "tool_call_result")[0];
    assert_eq!(result["why"]["kind"], "interrupted");
    assert_eq!(result["content"], "first line\n[interrupted: outcome unknown]");
}

#[test]
fn running_command_is_shown_and_escape_stops_it_with_its_output() {
    let place = project_with_tools(BASH, "{ text: Done. }");
    let mut terminal = start(&place, SIZE);
    terminal.press(&format!("!{LONG}\r"));
    wait_ready(&place);
    terminal.wait_until("the row of the command", |rows| {
        rows.iter().any(|row| row.contains("!echo first line") && row.ends_with(" s · Esc to interrupt"))
    });
    terminal.press("\x1b");
    terminal.wait_for("exit code -1");
    terminal.wait_until("an idle editor", |rows| {
        rows.iter().any(|row| row == "first line") && !rows.iter().any(|row| row.contains("Esc to interrupt"))
    });
    terminal.press("go\r");
    wait_idle(&terminal, 1);
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
    let events = events(&place);
    let ran = of_type(&events, "shell_ran");
    assert_eq!((ran.len(), &ran[0]["output"]), (1, &"first line\n[interrupted: outcome unknown]".into()));
}

#[test]
fn prompt_typed_while_a_command_runs_is_queued_and_follows_the_command() {
    let place = project_with_tools(BASH, "{ text: Done. }");
    let mut terminal = start(&place, SIZE);
    terminal.press("!touch out/ready; while [ ! -e out/go ]; do sleep 0.02; done\r");
    wait_ready(&place);
    terminal.press("hello\r");
    terminal.wait_for("queued: hello");
    place.write("out/go", "");
    wait_idle(&terminal, 1);
    let rows = terminal.rows();
    assert!(rows.iter().any(|row| row == "> hello") && !rows.iter().any(|row| row.contains("queued:")), "{rows:#?}");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn command_that_reads_the_terminal_gets_no_input() {
    let place = project_with_tools(BASH, "{ text: Done. }");
    let mut terminal = start(&place, SIZE);
    terminal.press("!cat; read -r line < /dev/tty || echo no terminal\r");
    terminal.wait_for("exit code 0");
    assert!(terminal.rows().iter().any(|row| row == "no terminal"), "{:#?}", terminal.rows());
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn text_of_an_interrupted_reply_stays_in_the_session() {
    let words = (0..400).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ");
    let place = project_with_tools("", &format!("{{ text: \"{words}\", pace_ms: 20 }}, {{ text: Done. }}"));
    let mut terminal = start(&place, SIZE);
    terminal.press("tell me\r");
    terminal.wait_for("word9");
    terminal.press("\x1b");
    terminal.wait_for("prompt 1 interrupted");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 130);
    let recorded = events(&place);
    let partial = of_type(&recorded, "prompt_ended")[0]["partial_reply"].as_str().unwrap().to_owned();
    assert!(partial.starts_with("word0 word1 ") && words.starts_with(partial.trim_end()), "{partial}");
    let mut terminal = PtyTerminal::start(&place, SIZE, &["chat", "-c"], &[]);
    terminal.wait_for("prompt 1 was interrupted before its answer was complete");
    assert!(terminal.rows().iter().any(|row| row.starts_with("word0 word1 ")), "{:#?}", terminal.rows());
    terminal.press("/copy\r");
    terminal.wait_for("characters sent to the terminal's clipboard");
    terminal.press("\x04");
    terminal.end();
}

#[test]
fn session_whose_process_was_killed_states_that_its_prompt_was_interrupted() {
    let words = (0..400).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ");
    let place = project_with_tools("", &format!("{{ text: \"{words}\", pace_ms: 20 }}"));
    let mut terminal = start(&place, SIZE);
    terminal.press("tell me\r");
    terminal.wait_for("word9");
    let process = rustix::process::Pid::from_raw(terminal.process_id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    terminal.end();
    let mut terminal = PtyTerminal::start(&place, SIZE, &["chat", "-c"], &[]);
    terminal.wait_for("> tell me");
    terminal.wait_for("prompt 1 was interrupted before its answer was complete");
    terminal.press("\x04");
    terminal.end();
}

#[test]
fn refused_call_and_its_message_reach_the_model_in_one_request() {
    let call = "{ tool_calls: [{ name: rye_bash_bash, input: { command: 'echo one >> out/log' } }] }";
    let place = project_with_tools(BASH, &format!("{call}, {{ text: Done. }}"));
    let mut terminal = start(&place, SIZE);
    terminal.press("go\r");
    terminal.wait_for("N: no, with a message");
    terminal.press("N");
    terminal.wait_for("Enter refuses the call with this message");
    terminal.press("use a shorter loop\r");
    wait_idle(&terminal, 1);
    terminal.wait_for("> use a shorter loop");
    terminal.press("\x04");
    let (code, rows, _) = terminal.end();
    assert_eq!(code, 0, "{rows:#?}");
    let events = events(&place);
    let position = |name: &str| events.iter().rposition(|event| event["type"] == name).unwrap();
    assert_eq!(of_type(&events, "attempt_intended").len(), 2, "the message caused a further model call");
    assert!(position("cognition_in") < position("attempt_intended"));
    assert_eq!(of_type(&events, "tool_call_result")[0]["why"]["kind"], "unapproved");
}

#[test]
fn ctrl_c_at_a_question_clears_the_text_before_it_interrupts_the_prompt() {
    let call = "{ tool_calls: [{ name: rye_bash_bash, input: { command: 'echo one >> out/log' } }] }";
    let place = project_with_tools(BASH, &format!("{call}, {{ text: Done. }}"));
    let mut terminal = start(&place, SIZE);
    terminal.press("go\r");
    terminal.wait_for("Allow?");
    terminal.press("quickly");
    terminal.wait_for("> quickly");
    terminal.press("\r");
    terminal.wait_for("Allow?");
    terminal.press("\x03n");
    wait_idle(&terminal, 1);
    terminal.wait_for("prompt 1 done");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn prompt_typed_behind_a_change_of_the_session_waits_for_the_change() {
    let place = project_with_tools("", "{ text: Done. }");
    for args in [&ARGS[..], &[&ARGS[..], &["--plain"]].concat()] {
        let mut terminal = PtyTerminal::start(&place, SIZE, args, &[]);
        terminal.wait_for("thread talk-");
        terminal.press("/budget 0.21\rhello\r");
        terminal.wait_for("prompt 1 done");
        terminal.press("\x04");
        let (code, rows, _) = terminal.end();
        assert_eq!(code, 0, "{rows:#?}");
        let at = |text: &str| rows.iter().position(|row| row.contains(text)).unwrap_or_else(|| panic!("{rows:#?}"));
        assert!(at("each further prompt may cost at most $0.21") < at("Done."), "{rows:#?}");
    }
    let events = events(&place);
    let spends: Vec<&Value> =
        of_type(&events, "prompt_started").iter().map(|event| &event["limits"]["spend"]).collect();
    assert_eq!(spends, [210_000_000, 210_000_000]);
}

#[test]
fn prompt_behind_an_interrupted_command_is_sent() {
    let place = project_with_tools(BASH, "{ text: Done. }");
    let mut terminal = start(&place, SIZE);
    terminal.press(&format!("!{LONG}\r"));
    wait_ready(&place);
    terminal.press("hello\r");
    terminal.wait_for("queued: hello");
    terminal.press("\x1b");
    wait_idle(&terminal, 1);
    let rows = terminal.rows();
    assert!(rows.iter().any(|row| row == "Done.") && !rows.iter().any(|row| row.contains("queued:")), "{rows:#?}");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn running_compaction_has_a_row_queues_prompts_and_ends_with_escape() {
    let place = project_with_tools(
        "",
        "{ text: First. }, { text: Summary., delay_ms: 15000 }, { text: Second. }, { text: Third. }",
    );
    let mut terminal = start(&place, SIZE);
    terminal.press("hi\r");
    wait_idle(&terminal, 1);
    terminal.press("/compact confirm\r");
    terminal.wait_for("/compact · ");
    terminal.press("next\r");
    terminal.wait_for("queued: next");
    terminal.press("\x1b[1;3A");
    terminal.wait_until("the text returns", |rows| {
        rows.iter().any(|row| row == "> next") && !rows.iter().any(|row| row.contains("queued:"))
    });
    terminal.press("\r");
    terminal.wait_for("queued: next");
    terminal.press("\x1b");
    wait_idle(&terminal, 2);
    assert!(!terminal.rows().iter().any(|row| row.contains("/compact · ")), "{:#?}", terminal.rows());
    terminal.press("\x04");
    let (code, rows, _) = terminal.end();
    let at = |text: &str| rows.iter().position(|row| row.contains(text)).unwrap_or_else(|| panic!("{text}: {rows:#?}"));
    assert_eq!(code, 0);
    assert!(at("of the cost is assumed") < at("> next"), "{rows:#?}");
    assert_eq!(rows.iter().filter(|row| row.contains("of the cost is assumed")).count(), 1, "{rows:#?}");
}

#[test]
fn ctrl_c_that_interrupts_a_prompt_is_not_the_first_of_two() {
    let place = project_with_tools("", "{ text: Never., delay_ms: 60000 }");
    let mut terminal = start(&place, SIZE);
    terminal.press("wait\r");
    terminal.wait_for("Esc to interrupt");
    terminal.press("\x03");
    wait_idle(&terminal, 1);
    terminal.press("\x03");
    terminal.wait_for("Ctrl+C again leaves");
    terminal.press("\x03");
    assert_eq!(terminal.end().0, 130);
}

#[test]
fn message_of_another_process_is_shown_at_the_terminal_of_the_owner() {
    let place = project_with_tools("", "{ text: Done. }");
    let mut terminal = start(&place, SIZE);
    let (_, listed) = place.json(&["threads", "list"]);
    let thread = listed["threads"][0]["thread_id"].as_str().unwrap().to_owned();
    place.run_ok(&["threads", "steer", &thread, "from elsewhere"]);
    wait_idle(&terminal, 1);
    assert!(terminal.rows().iter().any(|row| row == "> from elsewhere"), "{:#?}", terminal.rows());
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn note_of_a_signal_from_another_process_states_that_the_session_closes() {
    let place = project_with_tools("", "{ text: One. }");
    let terminal = start(&place, SIZE);
    let pid = rustix::process::Pid::from_raw(i32::try_from(terminal.process_id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let (_, rows, _) = terminal.end();
    let has = |text: &str| rows.iter().any(|row| row.contains(text));
    assert!(has("interrupted: the session closes") && !has("again to leave"), "{rows:#?}");
}
