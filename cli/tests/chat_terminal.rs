//! Tests of `rye chat` at a terminal: editor, queue, approvals, scrollback, sizes, plain mode.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/chat_terminal.rs"]
mod chat_terminal;
#[path = "support/pty.rs"]
mod pty;
#[path = "support/rye.rs"]
mod rye;

use std::time::Duration;

use chat_terminal::{ARGS, project_with_tools, start, wait_idle};
use pty::PtyTerminal;
use rye::{TestProject, talk_directive};
use serde_json::Value;

const TOOL: &str = "<tool write=\"out/\">rye.bash.bash</tool>";

const CALLS: &str = "{ tool_calls: [{ name: rye_bash_bash, input: { command: 'echo one >> out/log' } }, \
                     { name: rye_bash_bash, input: { command: 'echo two >> out/log' } }] }";

/// Returns a project with the directive `talk`, whose commands need approval, and this script.
fn project(steps: &str) -> TestProject {
    project_with_tools(TOOL, steps)
}

fn transcript(place: &TestProject) -> Vec<Value> {
    let (_, listed) = place.json(&["threads", "list"]);
    place.transcript(listed["threads"][0]["thread_id"].as_str().unwrap())
}

fn sent(place: &TestProject, source: &str) -> Vec<String> {
    let of_source = |event: &&Value| event["type"] == "cognition_in" && event["source"] == source;
    let text = |event: &Value| {
        let blocks = event["message"]["content"].as_array().unwrap();
        blocks.last().unwrap()["text"].as_str().unwrap().to_owned()
    };
    transcript(place).iter().filter(of_source).map(text).collect()
}

#[test]
fn prompt_and_reply_stay_in_the_scrollback_and_the_session_closes() {
    let place = project("{ text: \"Hello **there**.\\n\\n- one\\n- two\" }");
    let mut terminal = start(&place, (80, 24));
    terminal.press("hi\r");
    wait_idle(&terminal, 1);
    terminal.press("/exit\r");
    let (code, rows, _) = terminal.end();
    assert_eq!(code, 0, "{rows:?}");
    let at =
        |text: &str| rows.iter().position(|row| row.starts_with(text)).unwrap_or_else(|| panic!("{text}: {rows:?}"));
    let order = ["> hi", "Hello there.", "• one", "• two", "prompt 1 done: 1 turn", "session closed"].map(at);
    assert!(order.is_sorted(), "{rows:?}");
    assert!(!rows.iter().any(|row| row == ">" || row.contains("0/200k")), "the viewport is gone: {rows:?}");
    assert_eq!(sent(&place, "prompt").len(), 1);
}

#[test]
fn ten_thousand_lines_are_in_the_scrollback_once_and_in_order() {
    let lines: Vec<String> = (0..10_000).map(|n| format!("line {n} of the reply")).collect();
    let place = project(&format!("{{ text: \"{}\" }}", lines.join("\\n")));
    let mut terminal = start(&place, (80, 24));
    terminal.press("go\r");
    wait_idle(&terminal, 1);
    terminal.press("\x04");
    let (code, rows, bytes) = terminal.end();
    assert_eq!(code, 0);
    let shown: Vec<&String> = rows.iter().filter(|row| row.ends_with("of the reply")).collect();
    assert_eq!(shown.len(), lines.len());
    assert!(shown.iter().zip(&lines).all(|(shown, line)| *shown == line));
    let written = String::from_utf8_lossy(&bytes);
    for forbidden in ["\x1b[2J", "\x1b[3J", "\x1b[?1049h", "\x1b[?47h"] {
        assert!(!written.contains(forbidden), "{forbidden:?}");
    }
}

#[test]
fn enter_steers_alt_enter_follows_up_and_escape_interrupts() {
    let place = project(
        "{ text: First., delay_ms: 2000 }, { text: Second. }, { text: Third. }, { text: Never., delay_ms: 60000 }",
    );
    let mut terminal = start(&place, (80, 24));
    terminal.press("begin\r");
    terminal.wait_for("Esc to interrupt");
    terminal.press("also this\r");
    terminal.press("and later\x1b\r");
    terminal.wait_for("⏎ queued: also this");
    terminal.wait_for("↷ queued: and later");
    wait_idle(&terminal, 1);
    assert_eq!(
        (sent(&place, "steer"), sent(&place, "follow_up")),
        (vec!["also this".into()], vec!["and later".into()])
    );
    terminal.press("wait\r");
    terminal.wait_for("Esc to interrupt");
    terminal.press("unsent words\r");
    terminal.wait_for("queued: unsent words");
    terminal.press("\x1b");
    terminal.wait_until("the text returns", |rows| rows.iter().any(|row| row == "> unsent words"));
    assert!(!terminal.rows().iter().any(|row| row.contains("queued:")));
    terminal.press("\x03");
    terminal.wait_until("cleared", |rows| rows.iter().any(|row| row == ">"));
    terminal.press("\x03");
    terminal.wait_for("Ctrl+C again leaves");
    terminal.press("\x03");
    assert_eq!(terminal.end().0, 130);
}

#[test]
fn one_key_answers_one_question() {
    let place = project(&format!("{CALLS}, {{ text: Done. }}"));
    let mut terminal = start(&place, (100, 24));
    terminal.press("go\r");
    terminal.wait_for("approval 1 of 2");
    assert!(terminal.rows().iter().any(|row| row == "  command: echo one >> out/log"), "{:?}", terminal.rows());
    terminal.press("n");
    terminal.wait_for("approval 2 of 2");
    terminal.wait_for("denied by you");
    terminal.press("y");
    wait_idle(&terminal, 1);
    terminal.press("\x04");
    let (code, rows, _) = terminal.end();
    assert_eq!((code, place.read("out/log").as_str()), (0, "two\n"), "{rows:?}");
}

#[test]
fn approved_shape_covers_simple_commands_with_the_same_words() {
    let bash =
        |command: &str| format!("{{ tool_calls: [{{ name: rye_bash_bash, input: {{ command: '{command}' }} }}] }}");
    let steps = ["mkdir out/a", "mkdir out/b", "mkdir out/c && touch out/d"].map(bash).join(", ");
    let place = project(&format!("{steps}, {{ text: Done. }}"));
    let mut terminal = start(&place, (120, 24));
    terminal.press("go\r");
    terminal.wait_for("c: `mkdir` commands in this thread");
    terminal.press("c");
    terminal.wait_for("simple commands that start with `mkdir` need no further approval in this thread");
    // The second command needs no approval. The third one does more than the shape says, so its request offers none.
    terminal.wait_for("touch out/d");
    terminal.wait_until("the keys of the question", |rows| rows.iter().any(|row| row.contains("p: in this project]")));
    assert!(place.project().join("out/a").is_dir() && place.project().join("out/b").is_dir());
    // An interruption needs no explanation of the request's end.
    terminal.press("\x1b");
    wait_idle(&terminal, 1);
    assert!(!place.project().join("out/c").exists());
    assert!(!terminal.rows().iter().any(|row| row.contains("answered elsewhere")), "{:?}", terminal.rows());
}

#[test]
fn keys_before_the_question_stay_in_the_editor() {
    let place = project(&format!("{{ text: Wait., delay_ms: 1500 }}, {CALLS}, {{ text: Done. }}"));
    let mut terminal = start(&place, (100, 24));
    terminal.press("go\r");
    terminal.wait_for("Esc to interrupt");
    terminal.press("more\ry y");
    terminal.wait_for("approval 1 of 2");
    std::thread::sleep(Duration::from_millis(300));
    assert!(terminal.rows().iter().any(|row| row.contains("approval 1 of 2")));
    assert_eq!(place.read("out/log"), "");
    terminal.press("n");
    terminal.wait_for("approval 2 of 2");
    terminal.press("n");
    terminal.wait_until("the draft", |rows| rows.iter().any(|row| row == "> y y"));
    assert_eq!(place.read("out/log"), "");
}

#[test]
fn draft_and_history_come_back() {
    // The command continues the session in another thread.
    for (command, newest) in [("", "> first prompt"), ("/budget 0.4\r", "> /budget 0.4")] {
        let place = project("{ text: One. }");
        let mut terminal = start(&place, (80, 24));
        terminal.press("first prompt\r");
        wait_idle(&terminal, 1);
        terminal.press(command);
        terminal.press("half a thou");
        terminal.press("ght");
        let folders = || std::fs::read_dir(place.user().join(".ai/state/chat")).into_iter().flatten().flatten();
        let files = || folders().flat_map(|project| std::fs::read_dir(project.path()).into_iter().flatten().flatten());
        let draft = || files().find(|file| file.path().extension().is_some_and(|end| end == "draft"));
        while draft().and_then(|file| std::fs::read_to_string(file.path()).ok()).as_deref() != Some("half a thought") {
            std::thread::sleep(Duration::from_millis(20));
        }
        rustix_kill(terminal.process_id());
        terminal.end();
        let mut terminal = PtyTerminal::start(&place, (80, 24), &["chat", "-c", "--script", "script.yaml"], &[]);
        terminal.wait_until("the draft", |rows| rows.iter().any(|row| row == "> half a thought"));
        terminal.press("\x03");
        terminal.wait_until("cleared", |rows| rows.iter().any(|row| row == ">"));
        terminal.press("\x1b[A");
        terminal.wait_until("the history", |rows| rows.iter().any(|row| row == newest));
    }
}

/// Ends a process at once.
fn rustix_kill(process: u32) {
    std::process::Command::new("kill").args(["-9", &process.to_string()]).status().unwrap();
}

#[test]
fn tab_completes_commands_and_files() {
    let place = project("{ text: One. }");
    place.write("src/deep/needle.rs", "");
    place.write(".ai/prompts/review.md", "---\ndescription: Review.\n---\nReview $1.\n");
    let mut terminal = start(&place, (80, 24));
    terminal.press("/rev\t");
    terminal.wait_for("> /review");
    terminal.press("@ndl\t");
    terminal.wait_for("> /review @src/deep/needle.rs");
}

#[test]
fn every_size_shows_the_editor_and_the_cursor_in_it() {
    let place = project(
        "{ text: \"日本語 and 👩‍👩‍👧 and שלום עולם\\n\\n```\\nlong code long code long code long code long code\\n```\" }",
    );
    for (columns, rows) in [(20, 5), (21, 6), (40, 10), (59, 24), (80, 24), (300, 80)] {
        let mut terminal = start(&place, (columns, rows));
        terminal.press("日本e\u{301}x\r");
        // A narrow terminal wraps the line, and a low one scrolls it away.
        while !terminal.all_rows().concat().contains("prompt 1 done") {
            std::thread::sleep(Duration::from_millis(20));
        }
        terminal.press("日本");
        terminal.wait_until("the text", |rows| rows.iter().any(|row| row == "> 日本"));
        let (row, column) = terminal.cursor();
        assert_eq!(column, 6, "{columns}x{rows}");
        assert_eq!(terminal.rows()[usize::from(row)], "> 日本", "{columns}x{rows}");
        terminal.press("\x15\x04");
        assert_eq!(terminal.end().0, 0, "{columns}x{rows}");
    }
}

#[test]
fn terminal_controls_of_the_model_and_of_names_are_replaced() {
    let hostile = "\\x1b[2Jred \\x1b]52;c;aGVsbG8=\\x07 \\u202Eback";
    let call = format!("{{ tool_calls: [{{ name: \"bad{hostile}\", input: {{ path: \"{hostile}\" }} }}] }}");
    let place = project(&format!("{call}, {{ text: \"text {hostile} `code {hostile}`\" }}"));
    let mut terminal = start(&place, (80, 24));
    terminal.press("go\r");
    wait_idle(&terminal, 1);
    terminal.press("\x04");
    let (_, _, bytes) = terminal.end();
    let written = String::from_utf8_lossy(&bytes);
    for forbidden in ["\x1b[2J", "\x1b]", "\u{7}", "\u{202e}"] {
        assert!(!written.contains(forbidden), "{forbidden:?}");
    }
    assert!(written.contains("red") && written.contains("back"), "{written}");
}

#[test]
fn plain_mode_only_appends() {
    let place = project("{ text: \"Hello there.\", delay_ms: 1500 }, { text: Bye. }");
    for (args, variables) in [
        (&[&ARGS[..], &["--plain"]].concat()[..], &[][..]),
        (&ARGS[..], &[("ACCESSIBLE", "1")][..]),
        (&ARGS[..], &[("TERM", "dumb")][..]),
    ] {
        let mut terminal = PtyTerminal::start(&place, (80, 24), args, variables);
        terminal.wait_for("thread talk-");
        terminal.press("hi\n");
        terminal.wait_for("prompt 1 done");
        terminal.press("/exit\n");
        let (code, rows, bytes) = terminal.end();
        assert_eq!(code, 0, "{rows:?}");
        let written = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
        assert!(!written.contains('\r') && written.contains("Hello there."), "{written:?}");
        let mut motions = written
            .split("\x1b[")
            .skip(1)
            .map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';'));
        assert!(motions.all(|rest| rest.starts_with('m')), "{written:?}");
    }
}

#[test]
fn texts_of_files_send_no_controls_to_a_plain_terminal() {
    let place = project("{ text: Bye. }");
    let text = r"D\x9b2J\x9b31mRED \e[2J \e]52;c;QUJD\x07 \u202egnp.exe";
    place.write(".ai/skills/x/SKILL.md", &format!("---\nname: x\ndescription: \"{text}\"\n---\nText.\n"));
    place.write(".ai/prompts/pp.md", &format!("---\ndescription: \"{text}\"\nargument-hint: \"{text}\"\n---\nText.\n"));
    let mut terminal = PtyTerminal::start(&place, (200, 60), &[&ARGS[..], &["--plain"]].concat(), &[]);
    terminal.wait_for("thread talk-");
    for (lines, command) in ["/help", "/help all", "/skills", "/help pp", "/help skill:x"].iter().enumerate() {
        terminal.press(&format!("{command}\n"));
        terminal.wait_until(command, |rows| rows.iter().filter(|row| row.contains("gnp.exe")).count() > lines);
    }
    terminal.press("/exit\n");
    let (_, _, bytes) = terminal.end();
    let written = String::from_utf8_lossy(&bytes);
    for forbidden in ["\x1b[2J", "\x1b]", "\u{7}", "\u{9b}", "\u{202e}"] {
        assert!(!written.contains(forbidden), "{forbidden:?} in {written:?}");
    }
    assert!(written.contains("\u{fffd}]52;c;QUJD\u{fffd} \u{fffd}gnp.exe"), "{written:?}");
}

#[test]
fn no_color_leaves_out_every_style() {
    let place = project("{ text: \"Hello **there**.\" }");
    let mut terminal = PtyTerminal::start(&place, (80, 24), &ARGS, &[("NO_COLOR", "1")]);
    terminal.wait_for("Enter sends");
    terminal.press("hi\r");
    wait_idle(&terminal, 1);
    terminal.press("\x04");
    let (_, _, bytes) = terminal.end();
    let written = String::from_utf8_lossy(&bytes);
    let is_style = |rest: &str| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m');
    assert!(!written.split("\x1b[").skip(1).any(is_style), "{written:?}");
}

#[test]
fn idle_terminal_does_not_wake_up() {
    let place = project("{ text: One. }");
    let mut terminal = start(&place, (80, 24));
    terminal.press("go\r");
    wait_idle(&terminal, 1);
    let switches = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", terminal.process_id())).unwrap().flatten();
        let screen = tasks
            .map(|task| task.path())
            .find(|task| std::fs::read_to_string(task.join("comm")).unwrap().trim() == "screen");
        let status = std::fs::read_to_string(screen.unwrap().join("status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
        line.split_whitespace().last().unwrap().parse::<u64>().unwrap()
    };
    let written = terminal.bytes().len();
    // Waits until the draft, which the sent prompt has changed, is written.
    std::thread::sleep(Duration::from_millis(1200));
    let before = switches();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!((switches(), terminal.bytes().len()), (before, written));
}

#[test]
fn killed_session_leaves_a_usable_terminal_to_a_signal() {
    let place = project("{ text: Never., delay_ms: 60000 }");
    let mut terminal = start(&place, (80, 24));
    terminal.press("go\r");
    terminal.wait_for("Esc to interrupt");
    std::process::Command::new("kill").arg(terminal.process_id().to_string()).status().unwrap();
    let (code, _, bytes) = terminal.end();
    assert_eq!(code, 130);
    let written = String::from_utf8_lossy(&bytes);
    assert!(written.rfind("\x1b[?2004l") > written.rfind("\x1b[?2004h"), "bracketed paste is off");
    assert!(written.rfind("\x1b[?25h") > written.rfind("\x1b[?25l"), "the cursor is visible");
}

/// Runs tmux with a server of its own.
fn tmux(socket: &str, args: &[&str]) -> Option<String> {
    let done = std::process::Command::new("tmux").args(["-L", socket, "-f", "/dev/null"]).args(args).output().ok()?;
    Some(String::from_utf8_lossy(&done.stdout).into_owned())
}

#[test]
fn resizing_in_tmux_while_a_reply_streams_loses_and_repeats_no_line() {
    if tmux("rye-none", &["-V"]).is_none() {
        assert!(std::env::var_os("CI").is_none(), "CI needs tmux");
        return;
    }
    let steps: Vec<String> = (0..12)
        .map(|turn| {
            let lines: Vec<String> = (0..25)
                .map(|line| {
                    format!(
                        "line {} {}",
                        turn * 25 + line,
                        if line % 5 == 0 { "with many words ".repeat(5) } else { String::new() }
                    )
                })
                .collect();
            let text = lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\\n");
            format!("{{ text: \"```\\n{text}\\n```\", pace_ms: 3, tool_calls: [{{ name: rye_none, input: {{}} }}] }}")
        })
        .chain(["{ text: The end. }".to_owned()])
        .collect();
    let place = project(&steps.join(", "));
    place.write(".ai/directives/talk.md", &talk_directive(40, TOOL));
    place.run_ok(&["trust"]);
    let socket = format!("rye-test-{}", std::process::id());
    let line = format!(
        "cd '{}'; RYE_USER_SPACE='{}' TERM=tmux-256color '{}' chat talk --script script.yaml; sleep 60",
        place.project().display(),
        place.user().display(),
        env!("CARGO_BIN_EXE_rye")
    );
    tmux(&socket, &["new-session", "-d", "-s", "t", "-x", "80", "-y", "24", &line]).unwrap();
    tmux(&socket, &["set-option", "-g", "history-limit", "5000"]).unwrap();
    let capture = || tmux(&socket, &["capture-pane", "-p", "-J", "-t", "t", "-S", "-5000"]).unwrap();
    let wait_for = |text: &str| {
        for _ in 0..3000 {
            if capture().lines().any(|line| line.starts_with(text)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("no `{text}`:\n{}", capture());
    };
    wait_for(">");
    tmux(&socket, &["send-keys", "-t", "t", "go", "Enter"]).unwrap();
    // Single changes, and series that tmux reports late.
    for n in 0..60 {
        let columns = ["80", "40", "120", "60"][n * 7 % 4];
        tmux(&socket, &["resize-window", "-t", "t", "-x", columns, "-y", ["24", "18", "30"][n / 3 % 3]]).unwrap();
        std::thread::sleep(Duration::from_millis([5, 20, 40, 100][n * 5 % 7 % 4]));
    }
    wait_for("prompt 1 done");
    tmux(&socket, &["send-keys", "-t", "t", "/exit", "Enter"]).unwrap();
    wait_for("session closed");
    let shown = capture();
    tmux(&socket, &["kill-server"]);
    let numbers: Vec<usize> = shown
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("line ")?.split_whitespace().next()?.parse().ok())
        .collect();
    assert_eq!(numbers, (0..300).collect::<Vec<_>>(), "{shown}");
    for ghost in ["Esc to interrupt", "0/200k", "queued:"] {
        assert!(!shown.contains(ghost), "{ghost}:\n{shown}");
    }
}

#[test]
fn new_session_takes_the_keys_of_the_terminal() {
    let place = project("{ text: One. }, { text: Two. }");
    let mut terminal = start(&place, (90, 40));
    terminal.press("first\r");
    wait_idle(&terminal, 1);
    terminal.press("/new\r");
    terminal.wait_until("the next session", |rows| {
        rows.iter().any(|row| row.starts_with("session closed")) && rows.iter().any(|row| row.contains("Enter sends"))
    });
    terminal.press("second\r");
    terminal.wait_until("its prompt", |rows| {
        rows.iter().filter(|row| row.starts_with("prompt 1 done")).count() == 2 && rows.iter().any(|row| row == ">")
    });
    terminal.press("\x04");
    let (code, rows, _) = terminal.end();
    assert_eq!(code, 0, "{rows:?}");
    let (_, listed) = place.json(&["threads", "list"]);
    assert_eq!(listed["threads"].as_array().unwrap().len(), 2, "{listed}");
}

#[test]
fn typed_commands_work_at_the_terminal_and_a_fork_returns_the_text_of_its_prompt() {
    let place = project("{ text: One. }, { text: Two. }, { text: Three. }");
    let mut terminal = start(&place, (90, 40));
    terminal.press("first\r");
    wait_idle(&terminal, 1);
    terminal.press("second\r");
    wait_idle(&terminal, 2);
    terminal.press("/tree\r");
    terminal.wait_for("  2  second");
    terminal.press("!echo shown\r");
    terminal.wait_for("echo shown: exit code 0");
    terminal.press("/fork 7\r");
    terminal.wait_for("the number of the last prompt is 2");
    terminal.press("/fork 2\r");
    terminal.wait_until("the text of prompt 2", |rows| rows.iter().filter(|row| *row == "> second").count() == 2);
    terminal.press(" again\r");
    terminal.wait_until("the prompt of the fork", |rows| {
        rows.iter().filter(|row| row.starts_with("prompt 2 ")).count() == 2 && rows.iter().any(|row| row == ">")
    });
    terminal.press("/cost\r");
    terminal.wait_for("turns 3, ");
    terminal.press("/model\r");
    terminal.wait_for("the next prompts use the model scripted");
    terminal.press("/exit\r");
    let (code, rows, _) = terminal.end();
    assert_eq!(code, 0, "{rows:?}");
    let (_, listed) = place.json(&["threads", "list"]);
    let idle = listed["threads"].as_array().unwrap().iter().find(|thread| thread["status"] == "idle").unwrap();
    let events = place.transcript(idle["thread_id"].as_str().unwrap());
    assert_eq!(events[0]["origin"], "fork");
    let input = events.iter().find(|event| event["type"] == "user_input").unwrap();
    assert_eq!(input["raw"], "second again");
}

#[test]
fn status_line_shows_the_mode_and_shift_tab_changes_it() {
    let place = project("{ text: One. }");
    let mut terminal = start(&place, (90, 24));
    terminal.press("\x1b[Z");
    terminal.wait_for("scripted · read-only · ");
    terminal.press("\x1b[Z");
    terminal.wait_for("Shift+Tab again returns to the mode `ask`");
    terminal.press("\x1b[Z");
    terminal.wait_for("mode ask instead of read-only");
    terminal.wait_until("the status", |rows| !rows.iter().any(|row| row.contains("· read-only ·")));
    terminal.press("/mode auto\r");
    terminal.wait_for("the mode `auto` allows more");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn prompt_with_bounds_waits_for_the_running_prompt() {
    let place = project("{ text: First., delay_ms: 1500 }, { text: Second. }");
    let mut terminal = start(&place, (90, 24));
    terminal.press("begin\r");
    terminal.wait_for("Esc to interrupt");
    terminal.press("$0.10 then this\r");
    terminal.wait_for("↷ queued: $0.10 then this");
    wait_idle(&terminal, 2);
    terminal.press("\x04");
    let (code, rows, _) = terminal.end();
    assert_eq!(code, 0, "{rows:?}");
    let prompts = sent(&place, "prompt");
    assert_eq!((prompts.len(), prompts[1].as_str()), (2, "then this"));
    assert!(rows.iter().any(|row| row == "> $0.10 then this"), "{rows:?}");
}

#[test]
fn incomplete_row_is_shown_and_the_reply_after_an_interruption_is_printed_once() {
    let words = "one two three four five six seven eight nine ten eleven twelve";
    let place = project(&format!("{{ text: \"{words}\", pace_ms: 60 }}"));
    let mut terminal = start(&place, (80, 24));
    terminal.press("go\r");
    // The row is shown before it is full.
    terminal.wait_until("the first words", |rows| rows.iter().any(|row| row.starts_with("one two") && row != words));
    terminal.press("\x1b");
    wait_idle(&terminal, 1);
    assert!(terminal.rows().iter().any(|row| row.contains("of the cost is assumed")), "{:?}", terminal.rows());
    terminal.press("again\r");
    wait_idle(&terminal, 2);
    terminal.press("\x04");
    let (code, rows, _) = terminal.end();
    assert_eq!(code, 0, "{rows:?}");
    assert_eq!(rows.iter().filter(|row| *row == words).count(), 1, "{rows:?}");
}

#[test]
fn status_row_has_the_budget_of_the_next_prompt() {
    let place = project("{ text: One., usage: { input: 1000, output: 1000 } }, { text: Two. }");
    let mut terminal = start(&place, (90, 24));
    terminal.press("first\r");
    wait_idle(&terminal, 1);
    terminal.wait_for("of $0.5 ");
    terminal.press("/budget 0.25\r");
    terminal.wait_for("of $0.25 ");
    terminal.press("second\r");
    wait_idle(&terminal, 2);
    assert!(terminal.rows().iter().any(|row| row.contains("of $0.25 ")), "{:?}", terminal.rows());
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn suspended_chat_is_redrawn_and_interprets_keys_after_fg() {
    if tmux("rye-none", &["-V"]).is_none() {
        assert!(std::env::var_os("CI").is_none(), "CI needs tmux");
        return;
    }
    let place = project("{ text: One. }");
    place.run_ok(&["trust"]);
    let socket = format!("rye-suspend-{}", std::process::id());
    let shell = format!(
        "cd '{}'; RYE_USER_SPACE='{}' PS1='shell$ ' TERM=tmux-256color bash --norc -i",
        place.project().display(),
        place.user().display(),
    );
    tmux(&socket, &["new-session", "-d", "-s", "t", "-x", "80", "-y", "24", &shell]).unwrap();
    let press = |keys: &[&str]| tmux(&socket, &[&["send-keys", "-t", "t"], keys].concat()).unwrap();
    let last_row = || {
        let shown = tmux(&socket, &["capture-pane", "-p", "-t", "t"]).unwrap();
        shown.lines().rfind(|line| !line.is_empty()).unwrap_or_default().to_owned()
    };
    let wait_for = |what: &str, is_met: &dyn Fn(&str) -> bool| {
        for _ in 0..3000 {
            if is_met(&last_row()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("no {what}:\n{}", tmux(&socket, &["capture-pane", "-p", "-t", "t"]).unwrap());
    };
    let is_shell = |row: &str| row.starts_with("shell$");
    let is_status = |row: &str| row.contains("prompt $");
    wait_for("shell", &is_shell);
    press(&[&format!("'{}' chat talk --script script.yaml", env!("CARGO_BIN_EXE_rye")), "Enter"]);
    wait_for("chat", &is_status);
    for _ in 0..6 {
        press(&["C-z"]);
        wait_for("shell", &is_shell);
        press(&["fg", "Enter"]);
        wait_for("chat after fg", &is_status);
        press(&["x", "C-c"]);
        // Only a session that has stayed open clears the editor and shows the status row again.
        press(&["C-c"]);
        let hint = || tmux(&socket, &["capture-pane", "-p", "-t", "t"]).unwrap().contains("Ctrl+C again leaves");
        wait_for("hint", &|row| is_status(row) && hint());
        press(&["y", "C-c"]);
        wait_for("cleared editor", &|row| is_status(row) && !hint());
    }
    press(&["C-d"]);
    wait_for("shell", &is_shell);
    tmux(&socket, &["kill-server"]);
}
