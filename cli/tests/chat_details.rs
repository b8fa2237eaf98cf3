//! Tests of what the terminal of `rye chat` shows on request (outputs, thoughts, a summary), of the external editor, of
//! refusals with a message, of texts beside a question, and of hostile output.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/pty.rs"]
mod pty;
#[path = "support/rye.rs"]
mod rye;

use std::io::Write;
use std::process::Stdio;

use pty::PtyTerminal;
use rye::{TestProject, talk_directive};
use serde_json::Value;

const TOOL: &str = "<tool write=\"out/\">rye.bash.bash</tool>";

/// Returns a project with the directive `talk`, whose commands need approval, and this script.
fn project(steps: &str) -> TestProject {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &talk_directive(9, TOOL));
    place.write("script.yaml", &format!("steps: [{steps}]"));
    place.write("out/log", "");
    place
}

const ARGS: [&str; 4] = ["chat", "talk", "--script", "script.yaml"];

fn start(place: &TestProject, variables: &[(&str, &str)]) -> PtyTerminal {
    let terminal = PtyTerminal::start(place, (100, 24), &ARGS, variables);
    terminal.wait_for("Enter sends");
    terminal
}

/// Waits until the session is idle with an empty editor.
fn wait_idle(terminal: &PtyTerminal, prompt: u32) {
    let ended = format!("prompt {prompt} ");
    terminal
        .wait_until(&ended, |rows| rows.iter().any(|row| row.starts_with(&ended)) && rows.iter().any(|row| row == ">"));
}

fn position(rows: &[String], text: &str) -> usize {
    rows.iter().position(|row| row.contains(text)).unwrap_or_else(|| panic!("no `{text}`: {rows:#?}"))
}

fn transcript(place: &TestProject) -> Vec<Value> {
    let (_, listed) = place.json(&["threads", "list"]);
    place.transcript(listed["threads"][0]["thread_id"].as_str().unwrap())
}

/// Controls of the terminal and of the reading direction, a line of 1 MiB, and a last line.
const HOSTILE: &str = r"printf '\033[2J\033]52;c;aGVsbG8=\007\033[?1049h\342\200\256back\n'
head -c 1048576 /dev/zero | tr '\0' x
echo
echo the end of the output
";

// shows: interactive 7.21: escape, OSC 52 and bidi bytes of tools never reach the pty
#[test]
fn hostile_output_of_a_tool_is_shown_whole_and_without_its_controls() {
    let call = "{ tool_calls: [{ name: rye_bash_bash, input: { command: 'bash hostile.sh' } }] }";
    let place = project(&format!("{call}, {{ text: Done. }}"));
    place.write("hostile.sh", HOSTILE);
    let mut terminal = start(&place, &[]);
    terminal.press("go\r");
    terminal.wait_for("Allow?");
    terminal.press("y");
    wait_idle(&terminal, 1);
    terminal.press("\x0f");
    terminal.wait_for("the end of the output");
    terminal.press("!bash hostile.sh\r");
    terminal.wait_for("> !bash hostile.sh");
    terminal.wait_until("the output, which is longer than the screen", |rows| {
        let has = |text: &str| rows.iter().any(|row| row.contains(text));
        !has("> !bash") && has("the end of the output") && rows.iter().any(|row| row == ">")
    });
    terminal.press("\x04");
    let (code, rows, bytes) = terminal.end();
    assert_eq!(code, 0);
    let shown: usize = rows.iter().filter(|row| row.bytes().all(|byte| byte == b'x')).map(String::len).sum();
    assert!(shown >= 1 << 20, "{shown} of the bytes of the long line are shown");
    position(&rows, "output of rye_bash_bash:");
    let written = String::from_utf8_lossy(&bytes);
    for forbidden in ["\x1b[2J", "\x1b]", "\u{7}", "\x1b[?1049h", "\u{202e}"] {
        assert!(!written.contains(forbidden), "{forbidden:?}");
    }
    assert!(written.contains("back"));
}

#[test]
fn running_command_and_running_call_show_their_last_lines() {
    let waits = "for n in 1 2 3 4 5; do echo line-$n; done; while [ ! -e out/go ]; do sleep 0.02; done; rm out/go";
    let call = format!("{{ tool_calls: [{{ name: rye_bash_bash, input: {{ command: '{waits}' }} }}] }}");
    let place = project(&format!("{call}, {{ text: Done. }}"));
    let mut terminal = start(&place, &[]);
    let command = format!("!{waits}\r");
    for (typed, is_asked) in [(command.as_str(), false), ("go\r", true)] {
        terminal.press(typed);
        if is_asked {
            terminal.wait_for("Allow?");
            terminal.press("y");
        }
        let is_output = |row: &String| row.starts_with("  | ");
        terminal.wait_until("the last lines", |rows| {
            rows.iter().filter(|row| is_output(row)).eq(["  | line-3", "  | line-4", "  | line-5"])
        });
        place.write("out/go", "");
        terminal.wait_until("the end", |rows| !rows.iter().any(is_output));
    }
    wait_idle(&terminal, 1);
    terminal.press("\x04");
    let (code, rows, _) = terminal.end();
    assert_eq!(code, 0);
    position(&rows, "line-1");
}

// shows: interactive 7.21: escape, OSC 52 and bidi bytes of file names never reach the pty
#[test]
fn hostile_file_name_is_completed_without_its_controls() {
    let place = project("{ text: Done. }");
    for number in [1, 2] {
        place.write(&format!("bad{number}\u{1b}[2J\u{1b}]52;c;aGVsbG8=\u{7}\u{202e}name.txt"), "");
    }
    let mut terminal = start(&place, &[]);
    terminal.press("read @bad\t");
    terminal.wait_for("bad2");
    terminal.press("\r");
    terminal.wait_until("the name", |rows| rows.iter().any(|row| row.starts_with("> read @bad")));
    terminal.press("\r");
    terminal.wait_for("prompt 1 ");
    terminal.press("\x04");
    let (_, rows, bytes) = terminal.end();
    let written = String::from_utf8_lossy(&bytes);
    for forbidden in ["\x1b[2J", "\x1b]", "\u{7}", "\u{202e}"] {
        assert!(!written.contains(forbidden), "{forbidden:?} in {rows:#?}");
    }
}

#[test]
fn thoughts_are_shown_before_their_reply_and_hidden_again() {
    let think = |thought: &str, text: &str| format!("{{ thinking: \"{thought}\", text: {text} }}");
    let steps =
        [think("First thought\\nin two lines", "One."), think("Second thought", "Two."), think("Third", "Three.")];
    let place = project(&steps.join(", "));
    let mut terminal = start(&place, &[]);
    terminal.press("a\r");
    wait_idle(&terminal, 1);
    assert!(!terminal.rows().concat().contains("First thought"), "{:?}", terminal.rows());
    // The thoughts of the last reply are printed.
    terminal.press("\x14");
    terminal.wait_for("the thoughts of the model are shown; Ctrl+T turns this off");
    terminal.wait_for("in two lines");
    terminal.press("b\r");
    wait_idle(&terminal, 2);
    terminal.press("\x14");
    terminal.wait_for("the thoughts of the model are hidden");
    terminal.press("c\r");
    wait_idle(&terminal, 3);
    terminal.press("\x04");
    let (_, rows, _) = terminal.end();
    assert!(position(&rows, "Second thought") < position(&rows, "Two."), "{rows:#?}");
    for (text, count) in [("First thought", 1), ("Second thought", 1), ("Third", 0)] {
        assert_eq!(rows.iter().filter(|row| row.starts_with(text)).count(), count, "{text}: {rows:#?}");
    }
}

#[test]
fn external_editor_edits_the_text_and_leaves_the_keys_to_the_chat() {
    let place = project("{ text: One. }");
    // The program reads keys that are typed while it runs.
    place.write(
        "edit.sh",
        "echo the program has started; IFS= read -r line < /dev/tty; echo \"new text $line\" > \"$1\"\n",
    );
    let mut terminal = start(&place, &[("VISUAL", "bash edit.sh")]);
    terminal.press("old text");
    terminal.wait_for("> old text");
    terminal.press("\x07");
    terminal.wait_for("the program has started");
    terminal.press("of the program\n");
    terminal.wait_for("> new text of the program");
    terminal.press(", more\r");
    wait_idle(&terminal, 1);
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
    let input = transcript(&place).into_iter().find(|event| event["type"] == "user_input").unwrap();
    assert_eq!(input["raw"], "new text of the program, more");
}

#[test]
fn failed_external_editor_leaves_the_text() {
    let place = project("{ text: One. }");
    let mut terminal = start(&place, &[("VISUAL", "false")]);
    terminal.press("my text\x07");
    terminal.wait_for("`false` ended with exit status: 1: the text is unchanged");
    terminal.wait_for("> my text");
    terminal.press("!");
    terminal.wait_for("> my text!");
    terminal.press("\x03\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn refusal_with_a_message_reaches_the_model_and_keeps_the_draft() {
    let call = |word: &str| format!("{{ name: rye_bash_bash, input: {{ command: 'echo {word} >> out/log' }} }}");
    let place = project(&format!("{{ tool_calls: [{}, {}] }}, {{ text: Done. }}", call("one"), call("two")));
    let mut terminal = start(&place, &[]);
    terminal.press("go\r");
    terminal.wait_for("N: no, with a message");
    terminal.press("N");
    terminal.wait_for("Enter refuses the call with this message");
    // Esc returns to the question.
    terminal.press("x\x1b");
    terminal.wait_for("N: no, with a message");
    terminal.press("N");
    terminal.wait_for("Enter refuses the call with this message");
    terminal.press("yes, but in another file\r");
    wait_idle(&terminal, 1);
    terminal.press("\x04");
    let (code, rows, _) = terminal.end();
    assert_eq!((code, place.read("out/log").as_str()), (0, ""), "{rows:#?}");
    let events = transcript(&place);
    let kinds: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "tool_call_result").map(|event| &event["why"]["kind"]).collect();
    assert_eq!(kinds, ["unapproved", "skipped"]);
    let steered = events.iter().find(|event| event["type"] == "cognition_in" && event["source"] == "steer").unwrap();
    assert_eq!(steered["message"]["content"][0]["text"], "yes, but in another file");
}

#[test]
fn command_shape_that_is_approved_for_a_project_is_listed_used_and_revoked() {
    let bash =
        |command: &str| format!("{{ tool_calls: [{{ name: rye_bash_bash, input: {{ command: '{command}' }} }}] }}");
    let steps = ["mkdir out/a", "mkdir out/b", "mkdir out/c && touch out/d"].map(bash).join(", ");
    let place = TestProject::new();
    place.write(".ai/directives/talk.md", &talk_directive(9, TOOL));
    place.write("script.yaml", &format!("steps: [{steps}, {{ text: Done. }}]"));
    place.write("out/log", "");
    place.run_ok(&["trust"]);
    let mut terminal = start(&place, &[]);
    terminal.press("go\r");
    terminal.wait_for("C: in this project");
    terminal.press("C");
    terminal.wait_for("simple commands that start with `mkdir` need no further approval in this project");
    // The second command needs no approval. The third one is not simple.
    terminal.wait_for("&& touch out/d");
    terminal.press("n");
    wait_idle(&terminal, 1);
    terminal.press("/approvals\r");
    let listed = "rye.execute.tool.rye.bash.bash for simple commands that start with `mkdir`";
    terminal.wait_for(&format!("in this project: {listed}"));
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
    let made = ["out/a", "out/b", "out/c"].map(|path| place.project().join(path).exists());
    assert_eq!(made, [true, true, false]);
    assert!(place.run_ok(&["trust", "--list"]).contains(&format!("allowed      capability {listed}")));
    let (_, trust) = place.json(&["trust", "--list"]);
    assert_eq!(trust["commands"][0]["starts_with"], serde_json::json!(["mkdir"]), "{trust}");
    // Another process, without a terminal, uses the approval.
    let made_by_run = || {
        for path in ["out/a", "out/b"] {
            std::fs::remove_dir(place.project().join(path)).unwrap_or_default();
        }
        place.rye(&["run", "talk", "--script", "script.yaml", "--unattended", "deny"]);
        ["out/a", "out/b", "out/c"].map(|path| place.project().join(path).exists())
    };
    assert_eq!(made_by_run(), [true, true, false]);
    let unknown = place.rye(&["trust", "--revoke", "rmdir"]);
    assert!(unknown.code == Some(2) && unknown.stderr.contains("approved: `mkdir`"), "{}", unknown.stderr);
    // One approval is revoked; the trust in the files stays.
    place.run_ok(&["trust", "--revoke", "mkdir"]);
    assert_eq!(made_by_run(), [false; 3]);
    assert!(!place.run_ok(&["trust", "--list"]).contains("not trusted"));
}

#[test]
fn text_typed_at_a_question_answers_nothing_and_stays_in_the_editor() {
    let call = |word: &str| format!("{{ name: rye_bash_bash, input: {{ command: 'echo {word} >> out/log' }} }}");
    let place = project(&format!("{{ tool_calls: [{}, {}] }}, {{ text: Done. }}", call("one"), call("two")));
    let mut terminal = start(&place, &[]);
    let shows = |text: &'static str| move |rows: &[String]| rows.iter().any(|row| row == text);
    terminal.press("go\r");
    terminal.wait_for("approval 1 of 2");
    terminal.press("\t");
    terminal.wait_for("y, n, N, t or p answers the question; Esc interrupts the prompt");
    // The later letters `y` and `n` belong to the text.
    terminal.press("quickly, not");
    terminal.wait_for("the question is still open: Enter or Esc returns to it");
    terminal.wait_until("the text", shows("> quickly, not"));
    terminal.press("\r");
    terminal.wait_for("Allow? [y/n;");
    terminal.press("\x1b[200~ yet\x1b[201~");
    terminal.wait_until("the pasted text", shows("> quickly, not yet"));
    terminal.press("\x1b");
    terminal.wait_for("Allow? [y/n;");
    assert!(!terminal.rows().iter().any(|row| row.contains("approval 2 of 2")), "{:#?}", terminal.rows());
    terminal.press("n");
    terminal.wait_for("approval 2 of 2");
    terminal.press("y");
    terminal.wait_for("prompt 1 done");
    terminal.wait_until("the kept text", shows("> quickly, not yet"));
    terminal.press("\x03\x04");
    let (code, rows, _) = terminal.end();
    assert_eq!((code, place.read("out/log").as_str()), (0, "two\n"), "{rows:#?}");
}

#[test]
fn summary_of_a_compaction_is_printed_as_a_receipt() {
    let place = project("{ text: First. }, { text: \"The summary.\\n\\nIts end.\" }");
    let mut terminal = start(&place, &[]);
    terminal.press("hi\r");
    wait_idle(&terminal, 1);
    terminal.press("/compact\r");
    terminal.wait_for("Compact? c: compact, Esc: cancel");
    terminal.press("c");
    terminal.wait_for("  | Its end.");
    terminal.press("\x04");
    let (code, rows, _) = terminal.end();
    let receipt = position(&rows, "compacted: this summary replaces the conversation before the last message");
    assert_eq!(
        (code, &rows[receipt + 1..receipt + 4]),
        (0, &["  | The summary.", "  |", "  | Its end."].map(String::from)[..])
    );
    assert!(rows[receipt + 4].contains(" tokens in, ") && rows[receipt + 4].contains(" out, $"), "{rows:#?}");
    let mut command = place.command(&ARGS);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hi\n/compact\n").unwrap();
    let lines = rye::ProcessResult::from(child.wait_with_output().unwrap());
    assert!(lines.stderr.contains("  | The summary.\n"), "{}", lines.stderr);
    assert_eq!(lines.stdout, "First.\n");
}

#[test]
fn compaction_states_what_leaves_and_its_price_before_it_runs() {
    let long = "many words ".repeat(1200);
    let replies = format!("{{ text: \"{long}\" }}, {{ text: \"{long}\" }}, {{ text: Third. }}, {{ text: Summary. }}");
    let place = project(&replies);
    place.write(".ai/config/agent/coordination.yaml", "continuation: { resume_ceiling_tokens: 50 }\n");
    let mut terminal = start(&place, &[]);
    terminal.press("/compact\r");
    terminal.wait_for("nothing to compact: the session has no conversation yet");
    for (number, text) in ["one", "two", "three"].into_iter().enumerate() {
        terminal.press(&format!("{text}\r"));
        wait_idle(&terminal, u32::try_from(number).unwrap() + 1);
    }
    terminal.press("/compact the plan\r");
    terminal.wait_for("Compact? c: compact, Esc: cancel");
    let rows = terminal.rows();
    assert!(
        rows[position(&rows, "replaced by a summary: ")].starts_with("replaced by a summary: 3 messages (6,60"),
        "{rows:#?}"
    );
    assert!(rows[position(&rows, "kept: ")].contains("system prompt with context files"), "{rows:#?}");
    assert!(rows[position(&rows, "price of the summary: about $0.0")].contains(", at most $"), "{rows:#?}");
    terminal.press("\x1b");
    terminal.wait_until("the editor", |rows| rows.iter().any(|row| row == ">"));
    terminal.press("/compact confirm\r");
    terminal.wait_for("  | Summary.");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
    let compacted = transcript(&place).into_iter().filter(|event| event["type"] == "compacted").count();
    assert_eq!(compacted, 1, "the canceled compaction ran");
}

#[test]
fn compaction_of_plain_lines_asks_a_user_and_runs_without_one() {
    let place = project("{ text: First. }, { text: Summary. }");
    let mut terminal = PtyTerminal::start(&place, (100, 24), &[&ARGS[..], &["--plain"]].concat(), &[]);
    terminal.wait_for("thread talk-");
    terminal.press("hi\n");
    terminal.wait_for("prompt 1 done");
    terminal.press("/compact\n");
    terminal.wait_for("1: compact, 2: cancel; type the number");
    terminal.press("2\n");
    terminal.wait_for("not compacted");
    terminal.press("/compact\n");
    terminal.wait_until("the question", |rows| rows.iter().filter(|row| row.contains("type the number")).count() == 2);
    terminal.press("1\n");
    terminal.wait_for("  | Summary.");
    terminal.press("/exit\n");
    assert_eq!(terminal.end().0, 0);
    let mut command = place.command(&ARGS);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"/compact\nhi\n/compact\n").unwrap();
    let lines = rye::ProcessResult::from(child.wait_with_output().unwrap());
    let stderr = &lines.stderr;
    assert!(stderr.contains("nothing to compact: the session has no conversation yet"), "{stderr}");
    let (preview, receipt) = (stderr.find("price of the summary: about $"), stderr.find("  | Summary."));
    assert!(preview.is_some() && preview < receipt, "{stderr}");
}

#[test]
fn end_of_the_input_during_a_question_runs_nothing_and_suspends_the_session() {
    let call = "{ tool_calls: [{ name: rye_bash_bash, input: { command: 'echo one >> out/log' } }] }";
    let place = project(&format!("{call}, {{ text: Done. }}"));
    let mut terminal = PtyTerminal::start(&place, (100, 24), &[&ARGS[..], &["--plain"]].concat(), &[]);
    terminal.wait_for("thread talk-");
    terminal.press("go\n");
    terminal.wait_for("Allow?");
    terminal.press("\x04");
    let (_, rows, _) = terminal.end();
    assert_eq!(place.read("out/log"), "", "{rows:#?}");
    let (_, listed) = place.json(&["threads", "list"]);
    assert_eq!(listed["threads"][0]["status"], "suspended", "{listed}");
}
