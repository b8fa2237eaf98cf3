//! The output for a compaction: the note that a summary has replaced the conversation, and the summary with its cost.

use std::collections::BTreeSet;

use anstyle::Style;
use rye_compiler::report::render::table::group_thousands;
use rye_engine::event::{Compacted, Continues, EventBody, Settled};
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

    /// Records the cost of a call if the provider did not report the usage of the call. The sum of these costs is
    /// printed at the end of the prompt. If the call was for a summary between two prompts, the cost is printed at
    /// once.
    pub(super) fn settled(&mut self, thread: &ThreadId, settled: &Settled) {
        if settled.unknown_outcome {
            self.unreported = self.unreported.saturating_add(settled.amount);
        }
        if !self.is_prompt_open && self.compactions.is_running(thread) {
            self.print_unreported(thread);
        }
    }

    /// Prints the assumed cost of the calls whose usage no provider reported.
    pub(super) fn print_unreported(&mut self, thread: &ThreadId) {
        let unreported = std::mem::take(&mut self.unreported);
        if unreported > 0 {
            let amount = format_spend(unreported, self.unpriced);
            let line = format!(
                "  {amount} of the cost is assumed: the worst case of a call that ended before the provider reported usage"
            );
            self.thread_line(thread, DIM, &line);
        }
    }

    /// Prints the id of the thread that a chat continues. After a handoff because of a full context, also prints how
    /// many messages the model no longer sees.
    pub(super) fn continues(&mut self, thread: &ThreadId, from: &Continues) {
        if !self.events {
            self.thread_line(thread, DIM, &format!("continues {}", from.thread));
        }
        let Some(left_out) = from.left_out.filter(|_| self.main.as_ref() == Some(thread)) else { return };
        let size = |messages: u64, tokens: u64| {
            format!("{} ({} tokens)", format_count(messages, "message"), group_thousands(tokens))
        };
        let (left, kept) =
            (size(left_out.messages, left_out.tokens), size(left_out.kept_messages, left_out.kept_tokens));
        let line = format!(
            "the context was full: the model no longer sees the first {left}, and {kept} remain; next time, `/compact` \
             before the context is full keeps a summary"
        );
        self.thread_line(thread, Style::new(), &line);
    }
}
