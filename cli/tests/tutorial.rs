//! The tutorials, step by step. Of `docs/tutorial.md`, the test writes each file, runs each command, and compares the
//! output with the lines below the command. Of `docs/first-chat.md`, the test types each line at a terminal.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "support/pty.rs"]
mod pty;
#[path = "support/rye.rs"]
mod rye;

use std::fs;
use std::path::Path;

use pty::PtyTerminal;
use rye::{ProcessResult, TestProject};

/// A fenced block: the words of its info string, and its lines.
struct FencedBlock<'p> {
    info: Vec<&'p str>,
    lines: Vec<&'p str>,
}

fn fenced_blocks(page: &str) -> Vec<FencedBlock<'_>> {
    let mut blocks: Vec<FencedBlock<'_>> = Vec::new();
    let mut fence: Option<&str> = None;
    for line in page.lines() {
        let ticks = line.len() - line.trim_start_matches('`').len();
        match fence {
            Some(open) if line == open => fence = None,
            Some(_) => blocks.last_mut().unwrap().lines.push(line),
            None if ticks >= 3 => {
                fence = line.get(..ticks);
                let info = line.trim_start_matches('`').split_whitespace().collect();
                blocks.push(FencedBlock { info, lines: Vec::new() });
            }
            None => {}
        }
    }
    blocks
}

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)).unwrap()
}

/// Returns the code spans of a page that a reader types into the session: commands, and the second prompt.
fn typed_lines(page: &str) -> Vec<String> {
    let prose: String = page.split("```").step_by(2).collect();
    let spans = prose.split('`').skip(1).step_by(2);
    spans.filter(|span| span.starts_with('/') || span.ends_with('?')).map(str::to_owned).collect()
}

/// Waits until the session is idle with an empty editor, after the prompt with this number.
fn wait_for_prompt(terminal: &PtyTerminal, number: u32) {
    let ended = format!("prompt {number} done");
    terminal
        .wait_until(&ended, |rows| rows.iter().any(|row| row.starts_with(&ended)) && rows.iter().any(|row| row == ">"));
}

/// Returns the rows that the terminal has shown since the last row with this text.
fn rows_since(terminal: &PtyTerminal, text: &str) -> String {
    let rows = terminal.all_rows();
    let at = rows.iter().rposition(|row| row.contains(text)).unwrap();
    rows.iter().skip(at).cloned().collect::<Vec<_>>().join("\n")
}

#[test]
fn first_chat_goes_as_the_page_says() {
    let page = page("first-chat.md");
    let blocks = fenced_blocks(&page);
    let [script, console] = blocks.as_slice() else { panic!("a script and a console session") };
    assert_eq!(console.lines, ["$ rye chat --script chat.yaml", "hello"]);
    let steps = [
        "what is a haiku?",
        "/context",
        "/cost",
        "/preview now in French",
        "/fork 2",
        "/context",
        "/tree",
        "/fork THREAD",
        "/exit",
    ];
    assert_eq!(typed_lines(&page), steps);

    let place = TestProject::own();
    place.run_ok(&["init"]);
    place.write("chat.yaml", &(script.lines.join("\n") + "\n"));
    let mut terminal = PtyTerminal::start(&place, (110, 50), &["chat", "--script", "chat.yaml"], &[]);
    terminal.wait_for("Enter sends");
    terminal.press("hello\r");
    terminal.wait_for("Hello. What shall we do?");
    wait_for_prompt(&terminal, 1);
    assert!(terminal.all_rows().iter().any(|row| row.contains("simulated")), "{:#?}", terminal.all_rows());
    terminal.press("what is a haiku?\r");
    terminal.wait_for("A haiku has three lines.");
    wait_for_prompt(&terminal, 2);
    let rows = terminal.rows();
    let status = rows.iter().rfind(|row| !row.is_empty()).unwrap();
    assert!(status.contains("prompt $0.0031 of $1 "), "the last row is as on the page: {status}");

    // What was sent.
    terminal.press("/context\r");
    terminal.wait_for("tokens  the next request");
    assert!(rows_since(&terminal, "> /context").contains("haiku"), "{:#?}", terminal.rows());
    terminal.press("/cost\r");
    terminal.wait_for("turns 2");
    terminal.press("/preview now in French\r");
    terminal.wait_until("the price of the message", |rows| {
        let at = rows.iter().rposition(|row| row.contains("> /preview now in French"));
        at.is_some_and(|at| {
            rows.iter().skip(at).any(|row| row.starts_with("1505 tokens (") && row.contains(", about $"))
        })
    });

    // Back to an earlier prompt.
    terminal.press("/fork 2\r");
    terminal.wait_for("> what is a haiku?");
    terminal
        .wait_until("the text in the editor", |rows| rows.iter().rev().take(4).any(|row| row == "> what is a haiku?"));
    terminal.press("\x03");
    terminal.wait_until("an empty editor", |rows| rows.iter().any(|row| row == ">"));
    terminal.press("/context\r");
    terminal.wait_until("the parts of the branch", |rows| {
        let at = rows.iter().rposition(|row| row.contains("> /fork 2"));
        at.is_some_and(|at| rows.iter().skip(at).any(|row| row.contains("together, estimated")))
    });
    assert!(!rows_since(&terminal, "> /context").contains("haiku"), "{:#?}", terminal.rows());
    terminal.press("and now?\r");
    terminal.wait_until("the end of the other second prompt", |rows| {
        let at = rows.iter().rposition(|row| row.contains("> and now?"));
        at.is_some_and(|at| rows.iter().skip(at).any(|row| row.starts_with("prompt 2 done")))
    });
    assert!(rows_since(&terminal, "> and now?").contains("Hello. What shall we do?"), "the script starts again");
    terminal.press("/tree\r");
    terminal.wait_for("(another branch)");
    assert!(rows_since(&terminal, "> /tree").contains("what is a haiku?"), "{:#?}", terminal.rows());
    terminal.wait_until("an empty editor below the tree", |rows| {
        let tree = rows.iter().rposition(|row| row.contains("> /tree"));
        tree.is_some_and(|at| rows.iter().skip(at).any(|row| row == ">"))
    });
    let (_, listed) = place.json(&["threads", "list"]);
    let ids = listed["threads"].as_array().unwrap().iter().map(|thread| thread["thread_id"].as_str().unwrap());
    let first = ids.min().unwrap().to_owned();
    terminal.press(&format!("/fork {first}\r"));
    terminal.wait_for("after prompt 2");
    terminal.press("/context\r");
    terminal.wait_until("the parts of the first branch", |rows| {
        let at = rows.iter().rposition(|row| row.contains("> /context"));
        at.is_some_and(|at| rows.iter().skip(at).any(|row| row.contains("haiku")))
    });

    // Leave and come back.
    terminal.press("/exit\r");
    assert_eq!(terminal.end().0, 0);
    let mut terminal = PtyTerminal::start(&place, (110, 50), &["chat", "-c"], &[]);
    terminal.wait_for("A haiku has three lines.");
    terminal.wait_for("what is a haiku?");
    terminal.press("\x04");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn tutorial_prints_what_the_page_says() {
    let page = page("tutorial.md");
    let project = TestProject::new();
    let (mut commands, mut compared) = (0, 0);
    for block in fenced_blocks(&page) {
        if let Some(path) = block.info.iter().find_map(|word| word.strip_prefix("file=")) {
            project.write(path, &(block.lines.join("\n") + "\n"));
            continue;
        }
        assert_eq!(block.info, ["console"], "a block of the tutorial is a file or a console session");
        let mut last: Option<(&str, ProcessResult)> = None;
        for line in block.lines {
            if let Some(command) = line.strip_prefix("$ rye ") {
                commands += 1;
                let arguments: Vec<&str> = command.split_whitespace().collect();
                let result = project.rye(&arguments);
                let expected = if command.contains("--limit") { 4 } else { 0 };
                assert_eq!(result.code, Some(expected), "{command}\n{}\n{}", result.stdout, result.stderr);
                last = Some((command, result));
            } else {
                let (command, result) = last.as_ref().unwrap();
                let output = format!("{}\n{}", result.stdout, result.stderr);
                assert!(output.contains(line.trim()), "`rye {command}` does not print `{line}`:\n{output}");
                compared += 1;
            }
        }
    }
    assert!(commands >= 15 && compared >= 12, "the test must see the steps: {commands} commands, {compared} lines");
}
