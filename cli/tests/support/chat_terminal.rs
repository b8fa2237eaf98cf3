//! Sessions of `rye chat` at a pseudo-terminal, whose model follows a script.

#![allow(dead_code, reason = "each test file uses a part of it")]

use super::pty::PtyTerminal;
use super::rye::{TestProject, talk_directive};

pub const ARGS: [&str; 4] = ["chat", "talk", "--script", "script.yaml"];

/// Returns a project with the directive `talk`, whose tools are these, and this script.
pub fn project_with_tools(tools: &str, steps: &str) -> TestProject {
    let place = TestProject::own();
    place.write(".ai/directives/talk.md", &talk_directive(9, tools));
    place.write("script.yaml", &format!("steps: [{steps}]"));
    place.write("out/log", "");
    place
}

/// Starts a session and waits until its editor is shown.
pub fn start(place: &TestProject, size: (u16, u16)) -> PtyTerminal {
    let terminal = PtyTerminal::start(place, size, &ARGS, &[]);
    terminal.wait_for("Enter sends");
    terminal
}

/// Waits until the session is idle with an empty editor, after the prompt with this number.
pub fn wait_idle(terminal: &PtyTerminal, prompt: u32) {
    let ended = format!("prompt {prompt} ");
    terminal
        .wait_until(&ended, |rows| rows.iter().any(|row| row.starts_with(&ended)) && rows.iter().any(|row| row == ">"));
}
