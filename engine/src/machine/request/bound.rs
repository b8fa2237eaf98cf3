//! Upper bound on the input tokens of the next request (`engine.md` 4, Money is a bound).
//!
//! The provider's own count of the last request is exact for everything that was sent then. Only the later additions
//! are bounded, by their bytes or by the exact tokenizer. No bound exceeds the context window of the model.

use rye_compiler::plan::bound::MESSAGE_OVERHEAD_TOKENS;
use rye_compiler::plan::{Plan, PlannedModel};

use super::super::state::ThreadState;
use super::{FOCUS_PROMPT, SUMMARY_PROMPT, edited_messages, system, thread_system, to_turns};
use crate::message::{ContentBlock, ProviderMessage, SharedMessage};

/// Returns an upper bound on the input tokens of the next request. If `summary` is true, the request also contains the
/// prompt for a summary.
pub fn bound_input_tokens(plan: &Plan, state: &ThreadState, summary: bool) -> u64 {
    let model = state.model(plan);
    let focus = state.chat.as_ref().and_then(|chat| chat.compaction.as_ref()?.focus.as_deref()).unwrap_or_default();
    let by = model.counted_by;
    let subject = if focus.is_empty() { 0 } else { by.bound(FOCUS_PROMPT).saturating_add(by.bound(focus)) };
    let prompt = if summary { model.bound_message(by.bound(SUMMARY_PROMPT).saturating_add(subject), 1) } else { 0 };
    let known = bound_measured(plan, model, state);
    model.bound_by_window(known.unwrap_or_else(|| bound_whole(plan, model, state)).saturating_add(prompt))
}

/// Returns an upper bound on the input tokens of the next request, from the provider's count for the last request and a
/// bound on the messages since then. `None` if there is no such count, if another model made the count, or if the
/// counted request is not a prefix of the next request because the context was edited or compacted.
fn bound_measured(plan: &Plan, model: &PlannedModel, state: &ThreadState) -> Option<u64> {
    let conversation = &state.conversation;
    let measured =
        state.measured().filter(|one| conversation.operations.is_empty() && one.of_fallback == state.on_fallback)?;
    let fresh = to_turns(conversation.messages.get(measured.messages..)?);
    let mut bound = measured.input;
    let mut fresh = fresh.as_slice();
    if let Some((reply, rest)) = fresh.split_first()
        && matches!(reply.for_provider(), Some(ProviderMessage::Assistant { .. }))
    {
        // The bound of the reply is at least the provider's own count. The provider may have counted the reasoning in a
        // longer form than the form that is sent back.
        let counted = measured.output.saturating_add(MESSAGE_OVERHEAD_TOKENS);
        bound = bound.saturating_add(bound_turn(model, reply).max(counted));
        fresh = rest;
    }
    if thread_system(state) != measured.system {
        bound = bound.saturating_add(model.counted_by.bound(&system(plan, state)));
    }
    Some(bound.saturating_add(sum(fresh, |turn| bound_turn(model, turn))))
}

fn bound_whole(plan: &Plan, model: &PlannedModel, state: &ThreadState) -> u64 {
    let turns = to_turns(&edited_messages(state));
    plan.bound_head(model, &system(plan, state)).saturating_add(sum(&turns, |turn| bound_turn(model, turn)))
}

fn bound_turn(model: &PlannedModel, turn: &SharedMessage) -> u64 {
    let by = model.counted_by;
    let Some(turn) = turn.for_provider() else { return 0 };
    match turn {
        ProviderMessage::User { content } | ProviderMessage::Assistant { content } => {
            let blocks = u64::try_from(content.len()).unwrap_or(u64::MAX);
            model.bound_message(sum(content, |block| bound_block(model, block)), blocks)
        }
        ProviderMessage::ToolResult { call_id, name, content, .. } => {
            model.bound_message(sum(&[call_id, name, content], |text| by.bound(text)), 1)
        }
    }
}

fn bound_block(model: &PlannedModel, block: &ContentBlock) -> u64 {
    let by = model.counted_by;
    match block {
        ContentBlock::Text { text } => by.bound(text),
        // A signature holds the encrypted reasoning, whose tokens the provider counts.
        ContentBlock::Thinking { text, signature } => {
            by.bound(text).saturating_add(signature.as_deref().map_or(0, |signature| by.bound(signature)))
        }
        ContentBlock::Image(image) => image.max_tokens(&model.wire),
        // Some wires send the input as the text of a JSON object.
        ContentBlock::ToolCall(call) => {
            let input = call.input.to_string();
            sum(&[&call.id, &call.name, &input], |text| by.bound(text))
        }
        ContentBlock::Other { value, .. } => by.bound(&value.to_string()),
    }
}

fn sum<T>(list: &[T], of: impl Fn(&T) -> u64) -> u64 {
    list.iter().fold(0, |sum, one| sum.saturating_add(of(one)))
}
