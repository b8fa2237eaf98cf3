//! Tests of the terminal of `rye chat` beyond its editor: questions, reports, rewinds, sessions that are opened again,
//! and terminals that end or receive unusual input.

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

const TOOLS: &str = "<tool write=\"out/\">rye.bash.bash</tool><tool write=\".\">rye.file-system.write</tool>";

/// Returns a project with the directive `talk` and this script.
fn project(steps: &str) -> TestProject {
    project_with_tools(TOOLS, steps)
}

/// Sends a prompt and waits until the session is idle.
fn prompt(terminal: &mut PtyTerminal, number: u32, text: &str) {
    terminal.press(&format!("{text}\r"));
    wait_idle(terminal, number);
}

fn position(rows: &[String], text: &str) -> usize {
    rows.iter().position(|row| row.contains(text)).unwrap_or_else(|| panic!("no `{text}`: {rows:#?}"))
}

#[test]
fn question_follows_the_text_before_it_and_nothing_moves_while_it_waits() {
    let call = "{ name: rye_bash_bash, input: { command: 'echo one >> out/log' } }";
    let place = project(&format!("{{ text: I will run it., tool_calls: [{call}] }}, {{ text: Done. }}"));
    let mut terminal = start(&place, (80, 24));
    terminal.press("go\r");
    terminal.wait_for("waiting for your answer · Esc to interrupt");
    terminal.wait_for("approval 1 of 1");
    let rows = terminal.rows();
    assert!(position(&rows, "I will run it.") < position(&rows, "approval 1 of 1"), "{rows:#?}");
    std::thread::sleep(Duration::from_millis(300));
    let written = terminal.bytes().len();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(terminal.bytes().len(), written, "nothing is drawn while the question waits");
    terminal.press("t");
    terminal.wait_for("needs no further approval in this thread");
    terminal.wait_for("prompt 1 done");
}

#[test]
fn yes_at_an_escalated_limit_raises_it_and_no_ends_the_prompt() {
    let read = "{ tool_calls: [{ name: rye_file_system_read, input: { path: script.yaml } }] }";
    let place = project_with_tools(
        "<tool>rye.file-system.read</tool>",
        &format!("{read}, {read}, {{ text: Done. }}, {read}, {{ text: Never. }}"),
    );
    place.write(".ai/config/agent/hooks.yaml", "hooks:\n  - { id: ask, event: limit, action: { escalate: {} } }\n");
    let args = [&ARGS[..], &["--limit", "turns=1"]].concat();
    let mut terminal = PtyTerminal::start(&place, (100, 40), &args, &[]);
    terminal.wait_for("Enter sends");
    terminal.press("first\r");
    for (reached, raised) in [("1 of 1", 2), ("2 of 2", 4)] {
        terminal.wait_for(&format!("continue beyond turns_exceeded: {reached}"));
        terminal.wait_for(&format!("Raise turns to {raised} and continue?"));
        terminal.press("y");
    }
    wait_idle(&terminal, 1);
    terminal.press("second\r");
    terminal.wait_until("the second question", |rows| {
        rows.iter().filter(|row| row.contains("continue beyond turns_exceeded: 1 of 1")).count() == 2
    });
    terminal.press("n");
    wait_idle(&terminal, 2);
    let rows = terminal.all_rows();
    let order = ["> first", "Done.", "prompt 1 done: 3 turns", "> second", "prompt 2 limit: 1 turn"];
    assert!(order.map(|text| position(&rows, text)).is_sorted(), "{rows:#?}");
    assert!(!rows.iter().any(|row| row.contains("Never.")), "{rows:#?}");
}

#[test]
fn session_that_is_opened_again_shows_its_last_prompt_and_reply() {
    let place = project("{ text: The first reply. }, { text: The **second** reply. }");
    let mut terminal = start(&place, (80, 24));
    prompt(&mut terminal, 1, "first");
    prompt(&mut terminal, 2, "second");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
    let mut terminal = PtyTerminal::start(&place, (80, 24), &["chat", "-c", "--script", "script.yaml"], &[]);
    terminal.wait_for("Enter sends");
    let rows = terminal.all_rows();
    assert!(position(&rows, "1 prompt before this prompt") < position(&rows, "> second"), "{rows:#?}");
    assert!(position(&rows, "> second") < position(&rows, "The second reply."), "{rows:#?}");
    assert!(
        rows.iter().any(|row| row.contains("continues with the same permissions as before (2 grants)")),
        "{rows:#?}"
    );
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn enter_pressed_before_the_editor_is_shown_sends_the_text() {
    let place = project("{ text: One. }, { text: Two. }");
    let mut terminal = PtyTerminal::start(&place, (80, 24), &ARGS, &[]);
    terminal.press("early\r/help\r");
    terminal.wait_for("prompt 1 done");
    let rows = terminal.all_rows();
    assert!(position(&rows, "> early") < position(&rows, "One."), "{rows:#?}");
    assert!(rows.iter().any(|row| row.contains("`/help NAME` explains a command")), "{rows:#?}");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn closed_session_and_prompt_are_chosen_from_a_list() {
    let place = project("{ text: One. }, { text: Two. }");
    let mut terminal = start(&place, (100, 24));
    prompt(&mut terminal, 1, "the first session");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
    let mut terminal = start(&place, (100, 24));
    terminal.press("/resume\r");
    terminal.wait_for("› /resume talk-");
    terminal.wait_for("the first session");
    terminal.press("\r");
    terminal.wait_for("> /resume talk-");
    terminal.press("\r");
    terminal.wait_for("One.");
    terminal.press("/tree\r");
    terminal.wait_for("› /fork 1");
    // A key that is no choice closes the list and edits the text.
    terminal.press("second");
    terminal.wait_for("> second");
    terminal.press("\r");
    wait_idle(&terminal, 2);
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn commands_report_on_the_session_and_end_within_it() {
    let place = project("{ text: A reply to copy. }");
    let mut terminal = start(&place, (100, 50));
    terminal.wait_for("replaces the model: no model is called");
    prompt(&mut terminal, 1, "hello");
    for (command, answer) in [
        ("/why last", "sent: the same text"),
        ("/why limit.turns", "in the plan of `talk`"),
        ("/hooks", "thread_started: ctx_environment"),
        ("/skills", "no skills found"),
        ("/approvals", "no approval was given in this session"),
        ("/export", ".md`"),
        ("/help why", "example: /why limit.spend"),
        ("/why nothing", "no part of the plan of `talk` is named `nothing`"),
        ("/copy 7", "the session has 1 reply"),
    ] {
        terminal.press(&format!("{command}\r"));
        terminal.wait_for(&format!("> {command}"));
        terminal.wait_for(answer);
    }
    terminal.press("/plan\r");
    terminal.wait_until("the end of the plan", |rows| rows.iter().any(|row| row.contains("Cache map")));
    terminal.press("/copy\r");
    terminal.wait_for("characters sent to the terminal's clipboard: 16");
    let written = String::from_utf8_lossy(&terminal.bytes()).into_owned();
    assert!(written.contains("\x1b]52;c;QSByZXBseSB0byBjb3B5Lg==\x07"), "{written}");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
    let files = std::fs::read_dir(place.project()).unwrap().flatten();
    let exported = files.map(|file| file.path()).find(|path| path.extension().is_some_and(|end| end == "md")).unwrap();
    let text = std::fs::read_to_string(exported).unwrap();
    assert!(text.starts_with("## hello\n\nA reply to copy.\n"), "{text}");
}

#[test]
fn rewind_lists_the_files_and_restores_them_after_a_key() {
    let write = |content: &str| {
        format!(
            "{{ tool_calls: [{{ name: rye_file_system_write, input: {{ path: notes.txt, content: {content} }} }}] }}, {{ text: Written. }}"
        )
    };
    let place = project(&format!("{}, {}", write("one"), write("two")));
    let mut terminal = start(&place, (90, 40));
    prompt(&mut terminal, 1, "first");
    prompt(&mut terminal, 2, "second");
    terminal.press("/rewind 2\r");
    terminal.wait_for("can be restored  notes.txt");
    terminal.wait_for("Rewind? Enter: conversation, f: files, b: both, Esc: nothing");
    terminal.press("x\x1b");
    terminal.wait_until("the editor", |rows| rows.iter().any(|row| row == ">"));
    assert_eq!(place.read("notes.txt"), "two");
    terminal.press("/rewind 2\r");
    terminal.wait_for("Rewind?");
    terminal.press("b");
    terminal.wait_until("the text of prompt 2", |rows| rows.iter().filter(|row| *row == "> second").count() == 2);
    assert_eq!(place.read("notes.txt"), "one");
    terminal.press("\x15/rewind 1 files\r");
    terminal.wait_for("> /rewind 1 files");
    terminal
        .wait_until("the second rewind", |rows| rows.iter().filter(|row| row.starts_with("reverted  ")).count() == 2);
    assert!(!place.project().join("notes.txt").exists(), "the file did not exist before prompt 1");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn paste_of_five_megabytes_is_shown_short_and_the_editor_stays_usable() {
    let place = project("{ text: One. }");
    let mut terminal = start(&place, (80, 24));
    let line = "0123456789".repeat(10);
    let lines = 5 * 1024 * 1024 / (line.len() + 1);
    let text = vec![line.as_str(); lines].join("\r");
    terminal.press(&format!("\x1b[200~{text}\x1b[201~"));
    terminal.wait_for(&format!("[pasted {lines} lines]"));
    terminal.press("\x03");
    terminal.wait_until("the empty editor", |rows| rows.iter().any(|row| row == ">"));
    prompt(&mut terminal, 1, "hello");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn paste_of_ten_megabytes_in_the_locale_c_is_not_sent_and_stays_in_the_editor() {
    let place = project("{ text: One. }");
    let mut terminal = PtyTerminal::start(&place, (80, 24), &ARGS, &[("LC_ALL", "C"), ("LANG", "C")]);
    terminal.wait_for("Enter sends");
    let line = "größe 日本".repeat(10);
    let lines = 10 * 1024 * 1024 / (line.len() + 1);
    let text = vec![line.as_str(); lines].join("\r");
    terminal.press(&format!("\x1b[200~{text}\x1b[201~"));
    terminal.wait_for(&format!("[pasted {lines} lines]"));
    terminal.press("\r");
    terminal.wait_until("the refused text", |rows| {
        rows.iter().any(|row| row.contains("context window")) && rows.iter().any(|row| row.starts_with("> [pasted "))
    });
    let (_, listed) = place.json(&["threads", "list"]);
    let events = place.transcript(listed["threads"][0]["thread_id"].as_str().unwrap());
    assert!(!events.iter().any(|event| event["type"] == "user_input"), "{listed}");
    terminal.press("\x03");
    terminal.wait_until("the empty editor", |rows| rows.iter().any(|row| row == ">"));
    terminal.press("日本\r");
    wait_idle(&terminal, 1);
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn closed_terminal_parks_the_session_with_its_draft() {
    let place = project("{ text: One. }");
    let mut terminal = start(&place, (80, 24));
    prompt(&mut terminal, 1, "hello");
    terminal.press("half a thought");
    terminal.wait_for("> half a thought");
    std::process::Command::new("kill").args(["-HUP", &terminal.process_id().to_string()]).status().unwrap();
    terminal.end();
    let (_, listed) = place.json(&["threads", "list"]);
    assert_eq!(listed["threads"][0]["status"], "idle", "{listed}");
    let mut terminal = PtyTerminal::start(&place, (80, 24), &["chat", "-c", "--script", "script.yaml"], &[]);
    terminal.wait_for("> half a thought");
    terminal.press("\x03\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn small_and_wide_terminals_show_help_and_questions() {
    let call = "{ name: rye_bash_bash, input: { command: 'echo one >> out/log' } }";
    for size in [(20, 6), (300, 24)] {
        let place = project(&format!("{{ tool_calls: [{call}] }}, {{ text: Done. }}"));
        let mut terminal = start(&place, size);
        terminal.press("/help\r");
        terminal.wait_until("help", |_| terminal_shows(&terminal, "/help keys"));
        terminal.press("go\r");
        terminal.wait_for("Allow?");
        terminal.press("y");
        terminal.wait_until("the end", |_| terminal_shows(&terminal, "prompt 1 done"));
        terminal.press("\x04");
        assert_eq!(terminal.end().0, 0, "{size:?}");
    }
}

/// Returns true if a text was shown, perhaps wrapped.
fn terminal_shows(terminal: &PtyTerminal, text: &str) -> bool {
    let compact = |text: &str| text.replace(' ', "");
    compact(&terminal.all_rows().concat()).contains(&compact(text))
}

#[test]
fn key_is_painted_while_a_fast_reply_streams() {
    let words = (0..4_000).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ");
    let place = project(&format!("{{ text: {words} the end., pace_ms: 1 }}"));
    let mut terminal = start(&place, (80, 24));
    terminal.press("go\r");
    terminal.wait_for("word9");
    terminal.press("typed");
    terminal.wait_for("> typed");
    let rows = terminal.rows();
    assert!(!rows.iter().any(|row| row.contains("the end.")), "{rows:#?}");
    terminal.wait_for("prompt 1 done");
    assert!(terminal.all_rows().iter().any(|row| row.contains("word3999 the end.")), "the reply is whole");
}

#[test]
fn long_message_is_printed_short_and_a_missing_file_is_reported() {
    let place = project("{ text: One. }, { text: Two. }");
    let mut terminal = start(&place, (80, 40));
    let lines: Vec<String> = (0..100).map(|n| format!("pasted line {n}")).collect();
    terminal.press(&format!("\x1b[200~{}\x1b[201~", lines.join("\r")));
    terminal.wait_for("[pasted 100 lines]");
    prompt(&mut terminal, 1, "");
    let rows = terminal.all_rows();
    assert!(rows.iter().any(|row| row.contains("pasted line 19")), "{rows:#?}");
    assert!(!rows.iter().any(|row| row.contains("pasted line 20")), "{rows:#?}");
    assert!(rows.iter().any(|row| row.contains("80 more lines")), "{rows:#?}");
    prompt(&mut terminal, 2, "see @script.yaml and @gone.rs");
    let rows = terminal.all_rows();
    assert!(rows.iter().any(|row| row.contains("`@gone.rs` names no file of the project")), "{rows:#?}");
    assert!(!rows.iter().any(|row| row.contains("`@script.yaml`")), "{rows:#?}");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

/// Waits until the cursor is in this column.
fn wait_for_column(terminal: &PtyTerminal, column: u16, text: &str) {
    let until = Instant::now() + Duration::from_mins(1);
    while terminal.cursor().1 != column {
        assert!(Instant::now() < until, "{text}: {:?} in place of column {column}", terminal.cursor());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn cursor_follows_typed_emoji_and_right_to_left_text() {
    let place = project("{ text: One. }");
    let mut terminal = start(&place, (40, 12));
    for (text, column) in [("😀", 4), ("a😀b", 6), ("שלום", 6), ("ab שלום 日😀", 14)] {
        terminal.press(text);
        terminal.wait_until(text, |rows| rows.iter().any(|row| *row == format!("> {text}")));
        wait_for_column(&terminal, column, text);
        terminal.press("\x03");
        terminal.wait_until("cleared", |rows| rows.iter().any(|row| row == ">"));
    }
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn terminal_below_twenty_columns_is_plain() {
    let place = project("{ text: One. }");
    let mut terminal = PtyTerminal::start(&place, (19, 12), &ARGS, &[]);
    terminal.wait_until("the thread", |_| terminal_shows(&terminal, "thread talk-"));
    terminal.press("hi\n");
    terminal.wait_until("the end", |_| terminal_shows(&terminal, "prompt 1 done"));
    terminal.press("/exit\n");
    let (code, rows, bytes) = terminal.end();
    assert_eq!(code, 0, "{rows:?}");
    let written = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
    assert!(!written.contains('\r') && !written.contains("\x1b[?2026h"), "{written:?}");
}

#[test]
fn editor_keys_search_the_history_undo_and_insert_deleted_text() {
    let place = project("{ text: One. }, { text: Two. }, { text: Never., delay_ms: 60000 }");
    place.write(".gitignore", "hidden/\n");
    place.write("hidden/needle.rs", "");
    place.write("src/needle.rs", "");
    let mut terminal = start(&place, (80, 30));
    prompt(&mut terminal, 1, "alpha beta");
    prompt(&mut terminal, 2, "gamma");
    let shows = |terminal: &PtyTerminal, text: &str| {
        terminal.wait_until(text, |rows| rows.iter().any(|row| row == text.trim_end()));
    };
    // Ctrl+R lists the prompts that contain the typed text.
    terminal.press("alp");
    shows(&terminal, "> alp");
    terminal.press("\x12");
    terminal.wait_for("› alpha beta");
    terminal.press("\r");
    shows(&terminal, "> alpha beta");
    // Ctrl+A and Ctrl+K delete the line, and Ctrl+Y inserts it again.
    terminal.press("\x01\x0b");
    shows(&terminal, ">");
    terminal.press("\x19");
    terminal.wait_until("the line", |rows| rows.iter().rev().any(|row| row == "> alpha beta"));
    terminal.press(" x");
    shows(&terminal, "> alpha beta x");
    // Ctrl+_ undoes the last edit, and Alt+_ repeats it.
    terminal.press("\x1f");
    terminal.wait_until("the text before", |rows| !rows.iter().any(|row| row == "> alpha beta x"));
    terminal.press("\x1b_");
    shows(&terminal, "> alpha beta x");
    // Ctrl+L redraws the screen.
    let before = terminal.bytes().len();
    terminal.press("\x0c");
    let redrawn = || String::from_utf8_lossy(&terminal.bytes()[before..]).contains("\x1b[H\x1b[J");
    terminal.wait_until("the redrawn screen", |rows| redrawn() && rows.iter().any(|row| row == "> alpha beta x"));
    // F1 lists the keys.
    terminal.press("\x1bOP");
    terminal.wait_for("search the history for the typed text");
    terminal.press("\x03");
    shows(&terminal, ">");
    // The completion of files leaves out those that git ignores.
    terminal.press("@needle\t");
    shows(&terminal, "> @src/needle.rs");
    terminal.press("\x03");
    shows(&terminal, ">");
    // Alt+Up takes the unsent messages back, in their order.
    terminal.press("wait\r");
    terminal.wait_for("Esc to interrupt");
    terminal.press("queued words\r");
    terminal.wait_for("queued: queued words");
    terminal.press("later words\x1b\r");
    terminal.wait_for("queued: later words");
    terminal.press("/queue\r");
    terminal.wait_for("steer: queued words");
    terminal.wait_for("follow_up: later words");
    terminal.press("\x1b[1;3A");
    shows(&terminal, "> queued words");
    terminal.wait_until("the second text", |rows| {
        let first = rows.iter().position(|row| row == "> queued words");
        first.is_some_and(|first| rows.get(first + 1).is_some_and(|row| row.trim() == "later words"))
    });
    assert!(!terminal.rows().iter().any(|row| row.contains("queued: queued words")));
}

#[test]
fn fast_reply_is_painted_at_most_sixty_times_a_second() {
    let words = (0..300).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ");
    let place = project(&format!("{{ text: {words} the end., pace_ms: 1 }}"));
    let mut terminal = start(&place, (80, 24));
    let frames = |bytes: &[u8]| String::from_utf8_lossy(bytes).matches("\x1b[?2026h").count();
    let before = frames(&terminal.bytes());
    let started = Instant::now();
    terminal.press("go\r");
    terminal.wait_for("prompt 1 done");
    let painted = frames(&terminal.bytes()) - before;
    // A frame takes at least 16 ms; the first frame after a key is painted at once.
    let most = started.elapsed().as_millis() / 16 + 3;
    assert!(painted > 3 && (painted as u128) <= most, "{painted} frames, at most {most}");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn prompts_to_rewind_to_are_listed_by_a_command_and_by_escape() {
    let place = project("{ text: One. }, { text: Two. }");
    let mut terminal = start(&place, (90, 30));
    prompt(&mut terminal, 1, "first");
    prompt(&mut terminal, 2, "second");
    // The list selects the last prompt.
    terminal.press("/rewind\r");
    terminal.wait_for("› /rewind 2");
    terminal.wait_for("/rewind 1");
    terminal.press("\x1b");
    terminal.wait_until("no list", |rows| !rows.iter().any(|row| row.contains("› /rewind")));
    terminal.press("\x1b");
    terminal.wait_for("Esc again lists the prompts to rewind to");
    terminal.press("\x1b");
    terminal.wait_for("› /rewind 2");
    terminal.press("\x1b[A\r");
    terminal.wait_until("the command", |rows| rows.iter().any(|row| row == "> /rewind 1"));
    terminal.press("conversation\r");
    terminal.wait_until("the text of the prompt", |rows| rows.iter().filter(|row| *row == "> first").count() == 2);
    terminal.press("\x03");
    terminal.wait_until("cleared", |rows| rows.iter().any(|row| row == ">"));
    // Esc with a text in the editor lists nothing.
    terminal.press("text");
    terminal.wait_for("> text");
    terminal.press("\x1b");
    std::thread::sleep(Duration::from_millis(300));
    terminal.press("\x03");
    terminal.wait_until("cleared again", |rows| rows.iter().any(|row| row == ">"));
    assert!(!terminal.rows().iter().any(|row| row.contains("Esc again")));
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn keys_of_the_user_trigger_actions_and_are_listed() {
    let place = project("{ text: One. }");
    let keys =
        "app.help: f2\ntui.input.newLine: ctrl+o\napp.exit: [ctrl+q, ctrl+d]\napp.interrupt: f4\ntui.input.tab: []\n";
    place.write("../user/.ai/config/agent/keys.yaml", keys);
    let mut terminal = start(&place, (100, 40));
    // Hints name the keys of the file, and not an action without a key.
    assert!(terminal.rows().iter().any(|row| row.ends_with("Enter sends, /help lists commands and keys")));
    terminal.press("\x1bOS");
    terminal.wait_for("F4 again lists the prompts to rewind to");
    // F2, then a new line with Ctrl+O.
    terminal.press("\x1bOQ");
    terminal.wait_until("the list of keys", |rows| {
        let row = |keys: &str, about: &str| rows.iter().any(|row| row.starts_with(keys) && row.contains(about));
        row("F2 ", "list the keys") && row("Ctrl+O ", "start a new line") && row("no key ", "show pasted text in full")
    });
    terminal.press("one\x0ftwo\r");
    wait_idle(&terminal, 1);
    let (_, listed) = place.json(&["threads", "list"]);
    let events = place.transcript(listed["threads"][0]["thread_id"].as_str().unwrap());
    let typed = events.iter().find(|event| event["type"] == "user_input").unwrap();
    assert_eq!(typed["raw"], "one\ntwo", "{typed}");
    terminal.press("\x11");
    assert_eq!(terminal.end().0, 0);
}
