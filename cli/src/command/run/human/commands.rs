//! Prints the answers of chat commands, and the outputs of the shell commands that the user runs in a chat.

use anstyle::{AnsiColor, Style};
use rye_engine::event::{CommandAction, CommandRan, ShellRan};
use rye_engine::thread_id::ThreadId;

use super::HumanRenderer;
use crate::present::{DIM, color_style};

impl HumanRenderer {
    /// Prints the answer of a command, if the answer is for the user and not for the model.
    pub(super) fn command(&mut self, thread: &ThreadId, ran: &CommandRan) {
        let style = if ran.is_error { color_style(AnsiColor::Red) } else { Style::new() };
        if ran.action == CommandAction::Show {
            for line in ran.answer.lines() {
                self.thread_line(thread, style, line);
            }
        }
    }

    /// Prints the output of a command of the user.
    pub(super) fn shell(&mut self, thread: &ThreadId, ran: &ShellRan, end: &str) {
        // Omits the last line of the output if it states the exit code, because `end` states the exit code too.
        let code = format!("[exit code {}]", ran.exit_code);
        for line in ran.output.trim_end().strip_suffix(code.as_str()).unwrap_or(&ran.output).lines() {
            self.thread_line(thread, Style::new(), line);
        }
        self.thread_line(thread, if ran.exit_code == 0 { DIM } else { color_style(AnsiColor::Red) }, end);
    }
}
