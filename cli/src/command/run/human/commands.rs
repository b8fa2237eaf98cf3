//! Prints the answers of chat commands, the outputs of the shell commands that the user runs in a chat, and the effects
//! of hooks.

use anstyle::{AnsiColor, Style};
use rye_compiler::hook::HookPoint;
use rye_engine::event::{AcceptedInput, CommandAction, CommandRan, HookOutcome, HookPointRun, HookVerdict, ShellRan};
use rye_engine::machine::RESUME_SUBJECT;
use rye_engine::thread_id::ThreadId;

use super::{HumanRenderer, MAX_DETAIL_CHARS, MAX_ERROR_CHARS};
use crate::present::event::shown_messages;
use crate::present::{DIM, color_style, truncate_line};

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

    /// Prints the output of a shell command that the user ran, and then the line `end`, which states the exit code.
    pub(super) fn shell(&mut self, thread: &ThreadId, ran: &ShellRan, end: &str) {
        // Omits the last line of the output if it states the exit code, because `end` states the exit code too.
        let code = format!("[exit code {}]", ran.exit_code);
        for line in ran.output.trim_end().strip_suffix(code.as_str()).unwrap_or(&ran.output).lines() {
            self.thread_line(thread, Style::new(), line);
        }
        self.thread_line(thread, if ran.exit_code == 0 { DIM } else { color_style(AnsiColor::Red) }, end);
    }

    /// Prints the reply of a hook to a message of the user. If a hook or an expansion has changed the typed text, also
    /// prints the text that the chat sends.
    pub(super) fn user_input(&mut self, thread: &ThreadId, input: &AcceptedInput) {
        self.hook_reply(thread, input.reply.as_deref());
        if self.is_chat && self.main.as_ref() == Some(thread) && !input.handled && input.raw != input.text {
            let text = truncate_line(&input.text, MAX_DETAIL_CHARS);
            self.thread_line(thread, DIM, &format!("sent: {text}"));
        }
    }

    fn hook_reply(&mut self, thread: &ThreadId, reply: Option<&str>) {
        for line in reply.into_iter().flat_map(str::lines) {
            self.thread_line(thread, Style::new(), line);
        }
    }

    /// Prints the failures of hooks, and the messages that hooks show.
    pub(super) fn hooks(&mut self, thread: &ThreadId, run: &HookPointRun) {
        for hook in run.considered.iter().filter(|hook| hook.verdict == HookVerdict::Failed) {
            let because = hook.because.as_deref().unwrap_or("it failed");
            let because = truncate_line(because, MAX_ERROR_CHARS);
            let effect = if run.point != HookPoint::Input {
                ""
            } else if run.answer == HookOutcome::None {
                "; the text was sent unchanged"
            } else if matches!(run.answer, HookOutcome::Transformed { .. }) {
                "; the hook did not change the text"
            } else {
                ""
            };
            // A failed expansion is recorded as a hook with the name `expansion`, although no hook has failed.
            let line =
                if hook.hook == "expansion" { because } else { format!("hook {}: {because}{effect}", hook.hook) };
            self.thread_line(thread, color_style(AnsiColor::Yellow), &line);
        }
        // The message of a resumed thread has no `UserInput` event, which would contain the reply.
        if let (HookOutcome::Handled { reply }, Some(RESUME_SUBJECT)) = (&run.answer, run.subject.as_deref()) {
            self.hook_reply(thread, reply.as_deref());
        }
        for line in shown_messages(run).filter(|_| self.is_chat).flat_map(str::lines).collect::<Vec<_>>() {
            self.thread_line(thread, DIM, line);
        }
    }
}
