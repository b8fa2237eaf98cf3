//! The row of the terminal that shows a running `!COMMAND`.

use std::collections::VecDeque;
use std::time::Instant;

use rye_engine::event::{ControlMessage, EventBody};

use crate::command::run::progress::spinner_frame;
use crate::present::truncate_line;
use crate::present::wrap::cut_to_width;
use crate::report::printable;

/// Maximum characters of a command that the row shows.
const MAX_COMMAND_CHARS: usize = 60;

/// The commands of the user that wait or run, oldest first.
#[derive(Debug, Default)]
pub(super) struct UserCommands(VecDeque<TypedCommand>);

#[derive(Debug)]
struct TypedCommand {
    id: String,
    command: String,
    since: Instant,
}

impl UserCommands {
    pub(super) fn follow(&mut self, body: &EventBody) {
        if let EventBody::Mail(mail) = body
            && let ControlMessage::Shell { command, .. } = &mail.message
        {
            let typed = TypedCommand { id: mail.id.clone(), command: command.clone(), since: Instant::now() };
            self.0.push_back(typed);
        } else if let EventBody::ShellRan(ran) = body {
            self.0.retain(|typed| typed.id != ran.id);
            if let Some(next) = self.0.front_mut() {
                next.since = Instant::now();
            }
        }
    }

    pub(super) fn is_running(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns the row of the command that runs, at most `columns` wide, with a hint that states how to stop the
    /// command; `None` if no command runs.
    pub(super) fn row(&self, stop_hint: &str, columns: usize) -> Option<String> {
        let running = self.0.front()?;
        let seconds = running.since.elapsed().as_secs();
        let command = truncate_line(&printable(&running.command), MAX_COMMAND_CHARS);
        let frame = spinner_frame(running.since);
        Some(cut_to_width(&format!("{frame} !{command} · {seconds} s · {stop_hint}"), columns))
    }
}
