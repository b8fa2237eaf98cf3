//! Closing the session with Ctrl+C: a press shows a hint, and the next press closes the session.

use std::io;

use rustix::process::{Signal, getpid, kill_process};

use super::ChatTerminal;

/// The effect of the last press of Ctrl+C; `None` after any other key and after the end of a prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum LeavingKeys {
    #[default]
    None,
    /// The key has interrupted a prompt or a command, which has not ended yet.
    Interrupted,
    /// The hint that the next press closes the session is about to be painted.
    Announced,
    /// The hint is on the screen, so the next press closes the session.
    Warned,
}

const LEAVE_HINT: &str = "{app.clear} again leaves; `rye chat -c` opens the session again";

impl ChatTerminal {
    /// Handles Ctrl+C in an empty editor. The first press interrupts the running work. Without running work, and at the
    /// next press, a hint is shown. Once the hint is on the screen, a press closes the session. `before` is the effect
    /// of the press before.
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

    /// Records that the announced hint is now on the screen.
    pub(super) fn leaving_hint_painted(&mut self) {
        if self.leaving == LeavingKeys::Announced {
            self.leaving = LeavingKeys::Warned;
        }
    }
}
