//! Tests of `rye chat` at a terminal: leaving while children run.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/pty.rs"]
mod pty;
#[path = "support/rye.rs"]
mod rye;

use std::time::Duration;

use pty::PtyTerminal;
use rye::{TestProject, talk_directive};

/// Returns a session whose first prompt starts a child that runs for some time.
fn with_running_child(delay_ms: u32) -> (TestProject, PtyTerminal) {
    let start_child = "{ name: rye_execute, input: { item_type: directive, item_id: part, async: true } }";
    let place = TestProject::own();
    place.write("script.yaml", &format!("steps: [{{ tool_calls: [{start_child}] }}, {{ text: Started. }}]"));
    place.write(".ai/directives/talk.md", &talk_directive(9, "<directive>part</directive>"));
    let part = talk_directive(2, "").replace("name=\"talk\"", "name=\"part\"").replace("0.50", "0.10");
    place.write(".ai/directives/part.md", &part);
    let script = place.read("script.yaml");
    place.write("script.yaml", &format!("{script}\nthreads: {{ part: [{{ text: Part., delay_ms: {delay_ms} }}] }}\n"));
    place.run_ok(&["trust"]);
    let args = ["chat", "talk", "--script", "script.yaml", "--unattended", "allow"];
    let mut terminal = PtyTerminal::start(&place, (100, 24), &args, &[]);
    terminal.wait_for("Enter sends");
    terminal.press("go\r");
    terminal.wait_for("Allow?");
    terminal.press("y");
    terminal.wait_until("prompt 1", |rows| {
        rows.iter().any(|row| row.starts_with("prompt 1 ")) && rows.iter().any(|row| row == ">")
    });
    (place, terminal)
}

fn status_of_child(place: &TestProject) -> String {
    let (_, listed) = place.json(&["threads", "list"]);
    let child = listed["threads"].as_array().unwrap().iter().find(|thread| thread["directive"] == "part").unwrap();
    child["status"].as_str().unwrap().to_owned()
}

#[test]
fn leaving_asks_while_a_child_runs_and_can_cancel_it() {
    let (place, mut terminal) = with_running_child(60_000);
    terminal.press("/exit\r");
    terminal.wait_for("1 child runs. w: wait, d: continue in the background, c: cancel, Esc: stay");
    terminal.press("x\x1b");
    terminal.wait_until("the editor", |rows| rows.iter().any(|row| row == ">"));
    terminal.press("\x04");
    terminal.wait_for("1 child runs.");
    terminal.press("c");
    let (code, rows, _) = terminal.end();
    assert_eq!((code, status_of_child(&place).as_str()), (0, "killed"), "{rows:?}");
}

#[test]
fn new_session_asks_about_a_child_that_runs() {
    let (place, mut terminal) = with_running_child(60_000);
    terminal.press("/new\r");
    terminal.wait_for("1 child runs. w: wait, c: cancel, Esc: stay");
    // The next session needs the terminal.
    terminal.press("d\x1b");
    terminal.wait_until("the editor", |rows| rows.iter().any(|row| row == ">"));
    terminal.press("/new cancel\r");
    terminal.wait_until("the next session", |rows| {
        rows.iter().filter(|row| row.starts_with("session closed")).count() == 1 && rows.iter().any(|row| row == ">")
    });
    terminal.press("\x04");
    let (code, rows, _) = terminal.end();
    assert_eq!((code, status_of_child(&place).as_str()), (0, "killed"), "{rows:?}");
}

#[test]
fn session_waits_for_its_child_if_the_user_wants() {
    let (place, mut terminal) = with_running_child(3_000);
    terminal.press("/exit\r");
    terminal.wait_for("1 child runs.");
    terminal.press("w");
    terminal.wait_for("waiting for the children; Ctrl+C cancels them");
    let (code, rows, _) = terminal.end();
    assert_eq!((code, status_of_child(&place).as_str()), (0, "completed"), "{rows:?}");
}

#[test]
fn child_continues_in_the_background_without_the_terminal() {
    let (place, mut terminal) = with_running_child(5_000);
    let process = terminal.process_id();
    terminal.press("/exit\r");
    terminal.wait_for("1 child runs.");
    terminal.press("d");
    terminal.wait_for(&format!("the children continue in process {process}"));
    let output = || std::fs::read_link(format!("/proc/{process}/fd/1")).unwrap_or_default();
    while output() != std::path::Path::new("/dev/null") {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(status_of_child(&place), "running");
    let (code, rows, _) = terminal.end();
    assert_eq!((code, status_of_child(&place).as_str()), (0, "completed"), "{rows:?}");
    assert!(rows.iter().any(|row| row.starts_with("session closed")), "{rows:?}");
}
