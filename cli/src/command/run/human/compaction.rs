//! The output for a compaction: the note that a summary has replaced the conversation, and the summary with its cost.

use std::collections::BTreeSet;

use rye_engine::event::{Compacted, EventBody};
use rye_engine::exchange::Usage;
use rye_engine::thread_id::ThreadId;

use super::HumanRenderer;
use crate::options::Format;
use crate::present::{DIM, format_count, format_spend};

/// The state of compactions that the human output needs: the running ones, and the cost of the last one.
#[derive(Debug, Default)]
pub struct Compactions {
    /// Threads whose current attempt requests a summary of their conversation.
    running: BTreeSet<ThreadId>,
    /// Tokens and cost, in nano-dollars, of the last attempt by which the main thread requested a summary. `None` if
    /// there was no such attempt, or after the summary was printed.
    cost: Option<(Usage, u64)>,
}

impl Compactions {
    /// Returns true if the current attempt of a thread requests a summary.
    pub fn is_running(&self, thread: &ThreadId) -> bool {
        self.running.contains(thread)
    }
}

impl HumanRenderer {
    /// Returns true if text is printed while it is streamed.
    pub(super) fn streams(&self) -> bool {
        self.is_chat || self.format == Format::Human && !self.quiet
    }

    /// Follows the attempts that request a summary: records the threads in which such an attempt runs and, for the main
    /// thread, the cost of the attempt.
    pub(super) fn follow_compaction(&mut self, thread: &ThreadId, body: &EventBody) {
        if let EventBody::AttemptIntended(attempt) = body {
            self.compactions.running.remove(thread);
            if attempt.compacts {
                self.compactions.running.insert(thread.clone());
            }
        }
        if let EventBody::Settled(settled) = body
            && self.compactions.running.contains(thread)
            && self.main.as_ref() == Some(thread)
        {
            self.compactions.cost = Some((settled.usage, settled.amount));
        }
    }

    /// Prints the summary of a compaction with its tokens and its cost, marked so that it does not look like a reply.
    /// The summary of a child is not printed.
    pub(super) fn compacted(&mut self, thread: &ThreadId, compacted: &Compacted) {
        self.compactions.running.remove(thread);
        let replaced = match compacted.keep {
            0 => "this summary replaces the conversation before it".to_owned(),
            1 => "this summary replaces the conversation before the last message".to_owned(),
            kept => format!("this summary replaces the conversation before the last {kept} messages"),
        };
        self.thread_line(thread, DIM, &format!("compacted: {replaced}"));
        if self.main.as_ref() != Some(thread) {
            return;
        }
        for line in compacted.summary.lines() {
            self.thread_line(thread, DIM, &format!("  | {line}"));
        }
        if let Some((usage, amount)) = self.compactions.cost.take() {
            let read = format_count(usage.whole_input(), "token");
            let cost = format_spend(amount, self.unpriced);
            self.thread_line(thread, DIM, &format!("  {read} in, {} out, {cost}", usage.output));
        }
    }
}
