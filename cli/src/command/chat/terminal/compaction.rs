//! The row of the terminal that shows a running `/compact`, and the warning before the context window is full.

use std::time::Instant;

use rye_compiler::plan::settings::BILLIONTHS;
use rye_engine::event::{ControlMessage, EventBody};
use rye_engine::live_state::LiveState;

use super::ChatTerminal;
use crate::command::run::progress::spinner_frame;
use crate::present::wrap::cut_to_width;

/// Percentage of the threshold `continuation_threshold`. If the used context reaches this percentage, the terminal
/// warns of a full context.
const WARNED_PERCENT: u64 = 80;

/// A compaction of an idle session, from its request to its end.
#[derive(Debug)]
pub(super) struct RunningCompaction {
    /// The id of the control message that requested the compaction.
    id: String,
    since: Instant,
}

impl RunningCompaction {
    /// Returns the row of the compaction, at most `columns` wide, with a hint that states how to stop the compaction.
    pub(super) fn row(&self, stop_hint: &str, columns: usize) -> String {
        let seconds = self.since.elapsed().as_secs();
        cut_to_width(&format!("{} /compact · {seconds} s · {stop_hint}", spinner_frame(self.since)), columns)
    }
}

impl ChatTerminal {
    /// Returns true if a command of the user or a compaction runs while the session has no prompt.
    pub(super) fn is_busy_while_idle(&self) -> bool {
        self.user_commands.is_running() || self.compaction.is_some()
    }

    /// Requests a compaction of the conversation.
    pub(super) fn compact(&mut self, focus: Option<String>) {
        if let Some(id) = self.session.requests.control.send_with_id(ControlMessage::Compact { focus }) {
            self.begin_compaction(id);
        }
    }

    fn begin_compaction(&mut self, id: String) {
        self.compaction.get_or_insert_with(|| RunningCompaction { id, since: Instant::now() });
        self.is_dirty = true;
    }

    pub(super) fn follow_compaction(&mut self, body: &EventBody) {
        if let EventBody::Compacted(_) = body {
            self.compaction = None;
        } else if let EventBody::Mail(mail) = body
            && matches!(mail.message, ControlMessage::Compact { .. })
        {
            self.begin_compaction(mail.id.clone());
        }
    }

    /// Clears the compaction if the session has received the request but runs no compaction. The compaction was
    /// interrupted, has failed or had nothing to do.
    pub(super) fn end_compaction(&mut self) {
        let Some(running) = &self.compaction else { return };
        let Some(live) = self.session.requests.control.live_state() else { return };
        let is_received = live.state.mailbox.received.contains(&running.id);
        let compacts = live.state.chat.as_ref().is_some_and(|chat| chat.compaction.is_some());
        if is_received && !compacts {
            self.compaction = None;
        }
    }

    /// Warns that the context window is almost full, once in each thread.
    pub(super) fn warn_of_full_context(&mut self, live: &LiveState) {
        let Some(thread) = live.thread_id().filter(|thread| self.warned_thread.as_deref() != Some(thread)) else {
            return;
        };
        let full = live.plan.settings.values().continuation_threshold / (BILLIONTHS / 100);
        if let Some(used) =
            self.session.status.used_percent().filter(|used| full > 0 && *used * 100 >= full * WARNED_PERCENT)
        {
            self.warned_thread = Some(thread.to_owned());
            self.note(&format!(
                "the context is {used} % full: at {full} %, the oldest messages are removed; `/compact` replaces them \
                 with a summary"
            ));
        }
    }
}
