//! The effect of a compaction, computed before it runs: the messages that the summary replaces, the messages that
//! remain, and the price of the summary.

use rye_compiler::semantics::money::Nanos;

use super::{PlayedPrompt, cache, fold};
use crate::event::{Compacted, ControlMessage, EventBody, ReceivedMessage};
use crate::exchange::{Usage, cost};
use crate::live_state::LiveState;
use crate::machine::{self, ThreadState};

/// Estimated output tokens of a summary.
const SUMMARY_TOKENS: u64 = 1_000;

/// The effect and the price of a compaction.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CompactionPreview {
    /// Number of messages that the summary replaces.
    pub messages: usize,
    /// Estimated tokens of the messages that the summary replaces.
    pub tokens: u64,
    /// Number of messages that remain unchanged.
    pub kept_messages: usize,
    /// Estimated tokens of the messages that remain unchanged.
    pub kept_tokens: u64,
    /// Estimated tokens of the system prompt and the tools, which a compaction does not change.
    pub system_tokens: u64,
    /// Expected cost of the summary in nano-dollars; `None` if the model has no price, and while a prompt runs.
    pub expected: Option<u64>,
    /// Upper bound on the cost of the summary in nano-dollars.
    pub worst_case: Option<u64>,
}

/// Returns the effect of a compaction; `None` if the session has no messages. `focus` is the topic of the summary.
pub fn preview_compaction(live: &LiveState, focus: Option<String>) -> Option<CompactionPreview> {
    let (plan, before) = (&*live.plan, &*live.state);
    if before.conversation.messages.is_empty() {
        return None;
    }
    let by = plan.model.counted_by;
    let tokens_of = |state: &ThreadState| {
        state.conversation.messages.iter().fold(0_u64, |sum, message| sum + machine::message_tokens(by, message))
    };
    let mut after = before.clone();
    let keep = machine::count_retained_messages(plan, before);
    fold(&mut after, EventBody::Compacted(Compacted { through: 0, summary: String::new(), keep }));
    // The conversation contains the empty summary too.
    let kept_messages = after.conversation.messages.len().saturating_sub(1);
    let (tokens, kept_tokens) = (tokens_of(before), tokens_of(&after));
    let system = by.count(&machine::thread_system(before));
    let mut preview = CompactionPreview {
        messages: before.conversation.messages.len().saturating_sub(kept_messages),
        tokens: tokens.saturating_sub(kept_tokens),
        kept_messages,
        kept_tokens,
        system_tokens: system.saturating_add(plan.definition_tokens(before.model(plan))),
        expected: None,
        worst_case: None,
    };
    if before.is_idle() {
        let mut state = before.clone();
        let message = ControlMessage::Compact { focus };
        fold(&mut state, EventBody::Mail(ReceivedMessage { id: "preview".to_owned(), message }));
        let attempt = PlayedPrompt::default().play_to_attempt(plan, &mut state);
        let model = before.model(plan);
        let (attempt, prices) = (attempt?, model.prices.as_ref());
        let input = machine::estimate_tokens(plan, before);
        let cached = cache::cached_prefix(live, before, &[], input).tokens;
        let output = SUMMARY_TOKENS.min(attempt.max_output);
        let usage = Usage { input: input - cached, output, cache_read: cached, cache_write: 0 };
        let expected = prices.and_then(|_| cost(model, &usage)).map(Nanos::to_u64);
        preview.expected = expected.map(|expected| expected.min(attempt.worst_case));
        preview.worst_case = prices.map(|_| attempt.worst_case);
    }
    Some(preview)
}
