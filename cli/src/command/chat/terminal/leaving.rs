//! The second of two presses of Ctrl+C, which closes the session.

use std::io;

use rustix::process::{Signal, getpid, kill_process};

use super::ChatTerminal;

/// The presses of Ctrl+C since another key was pressed, or since a prompt ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum LeavingKeys {
    #[default]
    None,
    /// The key has interrupted a prompt or a command, which has not ended yet.
    Interrupted,
    /// The hint that the next press closes the session is about to be painted.
    Announced,
    /// The hint was on the screen.
    Warned,
}

const LEAVE_HINT: &str = "Ctrl+C again leaves; `rye chat -c` opens the session again";

impl ChatTerminal {
    /// Handles Ctrl+C in an empty editor: the key interrupts the work that runs, or announces that the next press closes
    /// the session. The session is closed only if the hint was on the screen before.
    pub(super) fn interrupt_or_leave(&mut self, before: LeavingKeys) -> io::Result<()> {
        if self.is_leaving {
            // The chat is already closing. The signal ends the process even if a call does not stop.
            return Ok(kill_process(getpid(), Signal::TERM)?);
        }
        match before {
            LeavingKeys::Warned => self.leave(),
            LeavingKeys::None if self.is_running || self.is_busy_while_idle() => {
                self.interrupt();
                self.leaving = LeavingKeys::Interrupted;
            }
            LeavingKeys::None | LeavingKeys::Interrupted | LeavingKeys::Announced => {
                self.leaving = LeavingKeys::Announced;
                self.hint = Some(LEAVE_HINT);
            }
        }
        Ok(())
    }

    /// Records that the hint of an announcement is on the screen.
    pub(super) fn leaving_hint_painted(&mut self) {
        if self.leaving == LeavingKeys::Announced {
            self.leaving = LeavingKeys::Warned;
        }
    }
}
