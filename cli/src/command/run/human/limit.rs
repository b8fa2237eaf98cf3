//! Prints the limits that threads reach, in human and plain output.

use anstyle::AnsiColor;
use rye_engine::event::{EventBody, LimitHit};
use rye_engine::thread_id::ThreadId;

use super::HumanRenderer;
use crate::present::color_style;

impl HumanRenderer {
    /// Handles a limit that a thread has reached. Prints a limit of a child at once. In a run, stores a limit of the
    /// main thread for [`Self::print_limit`].
    pub(super) fn limit_hit(&mut self, thread: &ThreadId, hit: &LimitHit) {
        let is_main = self.main.as_ref() == Some(thread);
        let line = format!("limit {}", hit.describe());
        match (is_main, self.is_chat) {
            // In a chat, the line at the end of the prompt names the limit.
            (true, true) => {}
            (true, false) => self.unprinted_limit = Some(line),
            (false, _) => self.thread_line(thread, color_style(AnsiColor::Red), &line),
        }
    }

    /// Prints the limit that the main thread has reached. If the thread ends with the error of this limit, prints
    /// nothing, because the error is printed at the end.
    pub(super) fn print_limit(&mut self, thread: &ThreadId, body: &EventBody) {
        let is_detail = matches!(
            body,
            EventBody::HookPoint(_) | EventBody::Settled(_) | EventBody::StateSet(_) | EventBody::Checkpoint(_)
        );
        if self.main.as_ref() != Some(thread) || is_detail {
            return;
        }
        let Some(line) = self.unprinted_limit.take() else { return };
        let ends = matches!(body, EventBody::Ended(ended) if ended.error.as_ref().is_some_and(|error| {
            line.starts_with(&format!("limit {}:", error.code))
        }));
        if !ends {
            self.thread_line(thread, color_style(AnsiColor::Red), &line);
        }
    }
}
