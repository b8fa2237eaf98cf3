//! Tests of `rye run` at a terminal: approval requests, live progress, failures of children.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/pty.rs"]
mod pty;
#[path = "support/rye.rs"]
mod rye;
#[path = "support/terminal.rs"]
mod terminal;

use pty::PtyTerminal;
use rye::TestProject;
use terminal::Terminal;

fn directive(name: &str, grants: &str) -> String {
    format!(
        "# D\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\">\n<metadata>\n<model provider=\"scripted\" tier=\"fast\"/>\
         <permissions><execute>{grants}</execute></permissions>\n<nudge>never</nudge>\n</metadata>\n</directive>\n```\n\nGo.\n"
    )
}

/// Returns a trusted project with the directive `shell` and this script.
fn place(script: &str) -> TestProject {
    let place = TestProject::own();
    place.run_ok(&["init"]);
    place.write(".ai/directives/shell.md", &directive("shell", "<tool write=\"out/\">rye.bash.bash</tool>"));
    place.write("script.yaml", script);
    place.run_ok(&["trust"]);
    place
}

/// Removes the lines that the terminal erases: a progress line appears only if a call takes long.
fn without_erased_lines(shown: &str) -> String {
    let mut text = String::new();
    for (at, part) in shown.split("\u{1b}[J").enumerate() {
        if at > 0 {
            // `ESC [ n A` in front moves the cursor up by n lines.
            let above = text.trim_end_matches('\r').strip_suffix('A').and_then(|moved| moved.rsplit_once("\u{1b}["));
            let above = above.and_then(|(_, count)| count.parse().ok()).unwrap_or(0);
            text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
            for _ in 0..above {
                text.pop();
                text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
            }
        }
        text.push_str(part);
    }
    text
}

/// Removes colors and other control sequences.
fn plain(shown: &str) -> String {
    let mut text = String::new();
    let mut rest = shown;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        text.push_str(before);
        let end = after.find(|c: char| c.is_ascii_alphabetic()).map_or(after.len(), |at| at + 1);
        rest = &after[end..];
    }
    text.push_str(rest);
    text
}

const TWO_CALLS: &str = "steps:\n  - tool_calls:\n      - { name: rye_bash_bash, input: { command: 'echo one >> out/log' } }\n      \
                         - { name: rye_bash_bash, input: { command: 'echo two >> out/log' } }\n  - Done.\n";

#[test]
fn two_calls_are_asked_one_at_a_time_on_their_own_lines() {
    let place = place(TWO_CALLS);
    let mut run = Terminal::start(&place, 120, "run shell");
    run.wait_for("Allow?", 1);
    // A typo is no answer.
    run.press("q\n");
    run.wait_for("unknown answer `q`; type", 1);
    run.press("n\n");
    run.wait_for("Allow?", 2);
    run.press("y\n");
    let (code, shown) = run.end();
    let shown = plain(&without_erased_lines(&shown));
    assert_eq!(code, Some(0), "{shown}");
    let lines: Vec<&str> = shown.lines().collect();
    let at = |text: &str| {
        let found = lines.iter().position(|line| line.starts_with(text));
        found.unwrap_or_else(|| panic!("no line starts with `{text}`:\n{shown}"))
    };
    let first = at("approval 1 of 2: thread shell-");
    assert_eq!(lines[first + 1], "  capability: rye.execute.tool.rye.bash.bash");
    assert_eq!(lines[first + 2], "  command: echo one >> out/log");
    assert_eq!(lines[first + 3], "  sandbox: a process; reads the project, writes out/ in it; no network");
    assert_eq!(lines[first + 4], "  risk elevated, granted by `rye.execute.tool.rye.bash.bash` of `shell`");
    let second = at("approval 2 of 2: thread shell-");
    assert_eq!(lines[second + 2], "  command: echo two >> out/log");
    // The result of the first call is printed between the questions, the result of the second call after both.
    let denied = at("error rye_bash_bash {\"command\":\"echo one >> out/log\"}: denied by you");
    let ran = at("ok    rye_bash_bash {\"command\":\"echo two >> out/log\"}");
    assert!(first < denied && denied < second && second < ran, "{shown}");
    assert!(!shown.contains("no grant"), "{shown}");
    assert_eq!(place.read("out/log"), "two\n");
    let (_, list) = place.json(&["threads", "list"]);
    let record = place.transcript(list["threads"][0]["thread_id"].as_str().unwrap());
    let denied = record.iter().find(|line| line["type"] == "tool_call_result").unwrap();
    assert_eq!(
        (&denied["why"]["kind"], &denied["why"]["answer"]),
        (&"unapproved".into(), &"refused".into()),
        "{denied}"
    );
}

#[test]
fn running_call_is_shown_until_it_ends() {
    let place = place("steps:\n  - { text: 'Hello there.', delay_ms: 1500 }\n");
    let run = Terminal::start(&place, 100, "run shell");
    run.wait_for("Ctrl+C to cancel", 3);
    let (code, shown) = run.end();
    let text = plain(&shown);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("turn 1 · 1 s · ") && text.contains(" · Ctrl+C to cancel"), "{text}");
    // The progress line is cleared before the reply, which is printed once.
    assert!(text.lines().any(|line| line.ends_with("Hello there.")), "{text}");
    let cleared = shown.rfind("Ctrl+C to cancel").unwrap();
    let reply = shown.find("Hello there.").unwrap();
    assert!(cleared < reply && shown[cleared..reply].contains("\u{1b}[J"), "{shown:?}");
}

#[test]
fn progress_leaves_no_line_after_the_echo_of_ctrl_c() {
    let place = place("steps:\n  - { text: Late., delay_ms: 60000 }\n");
    let mut terminal = PtyTerminal::start(&place, (70, 24), &["run", "shell", "--script", "script.yaml"], &[]);
    terminal.wait_for("Ctrl+C to cancel");
    terminal.press("\x03");
    terminal.wait_for("waiting for the call to end; Ctrl+C again to stop now");
    terminal.press("\x03");
    let (code, rows, _) = terminal.end();
    assert_eq!(code, 130, "{rows:#?}");
    assert!(!rows.iter().any(|row| row.contains("turn 1 · ")), "{rows:#?}");
}

#[test]
fn output_to_a_pipe_has_no_progress() {
    let place = place("steps:\n  - { text: 'Hello there.', delay_ms: 700 }\n");
    for format in ["human", "plain", "json"] {
        let done = place.rye(&["run", "shell", "--format", format]);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        for out in [done.stdout, done.stderr] {
            assert!(!out.contains('\r') && !out.contains('\u{1b}') && !out.contains("Ctrl+C"), "{out:?}");
        }
    }
}

#[test]
fn narrow_and_colorless_terminal_shows_short_progress() {
    let place = place("steps:\n  - { text: 'Hello there.', delay_ms: 1500 }\n");
    let run = Terminal::start(&place, 30, "run shell --color never");
    run.wait_for("turn 1", 3);
    let (code, shown) = run.end();
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains("Ctrl+C to cancel"), "the line would be wider than the terminal: {shown}");
    assert!(!shown.contains("\u{1b}[3") && !shown.contains("\u{1b}[1m"), "{shown:?}");
}

#[test]
fn lines_of_a_thread_break_between_words() {
    let place = place(
        "steps:\n  - fault: { status: 529, error: { message: 'the servers of this provider have too much to do now' } }\n  - Done.\n",
    );
    let run = Terminal::start(&place, 50, "run shell --color never");
    let (code, shown) = run.end();
    assert_eq!(code, Some(0), "{shown}");
    let text = plain(&without_erased_lines(&shown));
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.contains('\r')).collect();
    assert!(lines.len() > 5 && lines.iter().all(|line| line.chars().count() <= 50), "{lines:#?}");
    let words: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
    let joined = words.join(" ");
    assert!(joined.contains("the servers of this provider have too much to do now; retrying in"), "{joined}");
}

#[test]
fn failed_child_shows_its_error_under_its_line() {
    let place = place("");
    place.write(".ai/directives/above.md", &directive("above", "<directive>below</directive>"));
    place.write(".ai/directives/below.md", &directive("below", ""));
    place.write(
        "script.yaml",
        "steps:\n  - tool_calls: [{ name: rye_execute, input: { item_type: directive, item_id: below } }]\n  - Done.\n\
         threads:\n  below:\n    - fault: { status: 401, error: { message: 'the key was revoked by its owner' } }\n",
    );
    let done = place.rye(&["run", "above"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let lines: Vec<&str> = done.stderr.lines().collect();
    let end = lines.iter().position(|line| line.starts_with("child below-") && line.ends_with(" error")).unwrap();
    assert!(lines[end + 1].starts_with("  ") && lines[end + 1].contains("revoked by its owner"), "{}", done.stderr);
    assert!(!lines[end..].iter().any(|line| line.contains("help:")), "{}", done.stderr);
}

#[test]
fn keys_typed_before_a_question_do_not_answer_it() {
    let place = place(
        "steps:\n  - tool_calls: [{ name: rye_bash_bash, input: { command: 'echo one >> out/log; sleep 1' } }]\n  \
         - tool_calls: [{ name: rye_bash_bash, input: { command: 'echo two >> out/log' } }]\n  - Done.\n",
    );
    let mut run = Terminal::start(&place, 100, "run shell");
    run.wait_for("Allow?", 1);
    run.press("y\n");
    run.wait_for("rye_bash_bash: echo one >> out/log; sleep 1 ·", 1);
    run.press("y\n");
    run.wait_for("Allow?", 2);
    // The early key was discarded: without another key, the question stays open.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(place.read("out/log"), "one\n");
    run.press("n\n");
    let (code, shown) = run.end();
    assert_eq!((code, place.read("out/log").as_str()), (Some(0), "one\n"), "{shown}");
}

#[test]
fn enter_while_a_call_runs_leaves_no_progress_line() {
    let place = place("steps: [{ text: Done., delay_ms: 2500 }]");
    let mut terminal = PtyTerminal::start(&place, (80, 24), &["run", "shell"], &[]);
    terminal.wait_for("Ctrl+C to cancel");
    terminal.press("\r");
    terminal.wait_for("Done.");
    let (code, rows, _) = terminal.end();
    assert_eq!(code, 0, "{rows:?}");
    assert!(!rows.iter().any(|row| row.contains("Ctrl+C to cancel")), "{rows:?}");
    assert!(rows.iter().any(|row| row.starts_with("completed  ")), "{rows:?}");
}

#[test]
fn answers_typed_before_the_trust_question_do_not_trust() {
    let place = place("steps: [Done.]");
    place.run_ok(&["trust", "--revoke"]);
    // The answer waits in the terminal before the question is printed.
    let early = format!("stty cols 100; sleep 1; exec {} run shell", env!("CARGO_BIN_EXE_rye"));
    let mut run = Terminal::start_line(&place, &early);
    run.press("y\n");
    run.wait_for("Trust the current files and run? [y/N]", 1);
    std::thread::sleep(std::time::Duration::from_millis(300));
    run.press("n\n");
    let (code, shown) = run.end();
    assert_eq!(code, Some(5), "{shown}");
    assert!(shown.contains("nothing ran"), "{shown}");
    assert!(!place.run_ok(&["trust", "--list"]).lines().any(|line| line.starts_with("trusted")), "{shown}");
}

#[test]
fn yes_at_an_escalated_limit_raises_the_limit() {
    let call = "  - tool_calls: [{ name: rye_file_system_ls, input: { path: . } }]\n";
    let place = place(&format!("steps:\n{}  - Done.\n", call.repeat(3)));
    place.write(".ai/directives/shell.md", &directive("shell", "<tool>rye.file-system.ls</tool>"));
    place.write(".ai/config/agent/hooks.yaml", "hooks:\n  - { id: ask, event: limit, action: { escalate: {} } }\n");
    place.run_ok(&["trust"]);
    let mut run = Terminal::start(&place, 100, "run shell --limit turns=1");
    for (times, raised) in [(1, 2), (2, 4)] {
        run.wait_for("reached a limit", times);
        run.wait_for(&format!("Raise turns to {raised} and continue? [y/N]"), 1);
        run.press("y\n");
    }
    let (code, shown) = run.end();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("Done."), "{shown}");
}

#[test]
fn running_call_shows_the_last_lines_of_its_output() {
    let waits = "echo early-line; while [ ! -e out/go ]; do sleep 0.02; done; echo late-line";
    let place = place(&format!(
        "steps:\n  - tool_calls: [{{ name: rye_bash_bash, input: {{ command: '{waits}' }} }}]\n  - Done.\n"
    ));
    place.write("out/log", "");
    let mut run = Terminal::start(&place, 100, "run shell");
    run.wait_for("Allow?", 1);
    run.press("y\n");
    run.wait_for("  | early-line", 1);
    place.write("out/go", "");
    let (code, shown) = run.end();
    assert_eq!(code, Some(0), "{shown}");
    assert!(!without_erased_lines(&shown).contains("  | early-line"), "{shown}");
}

#[test]
fn change_of_a_file_is_shown_at_the_question_and_below_the_result() {
    let edit = |old: &str, new: &str| {
        format!(
            "{{ name: rye_file_system_edit, input: {{ path: out/notes.txt, old_string: {old}, new_string: {new} }} }}"
        )
    };
    let script = format!(
        "steps:\n  - tool_calls: [{}]\n  - tool_calls: [{}]\n  - Done.\n",
        edit("two", "zwei"),
        edit("one", "eins")
    );
    for (variable, colors) in [("", true), ("1", false)] {
        let place = place(&script);
        let grant = "<tool write=\"out/\">rye.file-system.edit</tool>";
        place.write(".ai/directives/shell.md", &directive("shell", grant));
        let table = "risk_levels: { write: { policy: acknowledge_required } }\n";
        place.write(".ai/config/agent/capability_risk.yaml", table);
        place.write("out/notes.txt", "one\ntwo\nthree\n");
        place.run_ok(&["trust"]);
        let line = format!("stty cols 100 rows 24; NO_COLOR={variable} exec {} run shell", env!("CARGO_BIN_EXE_rye"));
        let mut run = Terminal::start_line(&place, &line);
        run.wait_for("Allow?", 1);
        let asked = run.shown();
        for line in ["  path: out/notes.txt", "  change: +1 -1", "     one", "    -two", "    +zwei", "     three"] {
            assert!(plain(&asked).lines().any(|shown| shown == line), "{line}: {asked}");
        }
        assert!(!asked.contains("old_string"), "{asked}");
        assert_eq!(asked.contains("\u{1b}[32m+zwei"), colors, "{asked}");
        // With an approval for the thread, the next change is shown below its result only.
        run.press("t\n");
        let (code, shown) = run.end();
        assert_eq!(code, Some(0), "{shown}");
        let shown = plain(&without_erased_lines(&shown));
        let result = shown.lines().skip_while(|line| !line.contains("one")).collect::<Vec<_>>().join("\n");
        for line in ["+1 -1  out/notes.txt", "    -one", "    +eins"] {
            assert!(result.contains(line), "{line}: {shown}");
        }
        assert_eq!((shown.matches("+zwei").count(), shown.matches("+eins").count()), (1, 1), "{shown}");
    }
}
