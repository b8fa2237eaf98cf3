//! The change of the thread state by a compaction.

use rye_compiler::plan::{Node, Outcome};

use super::super::state::{RunPosition, ThreadState};
use super::chat;
use crate::event::Compacted;
use crate::message::Message;

/// Replaces the conversation with the summary. Keeps the first user message of the thread, the messages of the
/// unfinished prompt, and the last messages.
pub(super) fn summarized(state: &mut ThreadState, compacted: &Compacted) {
    let messages = std::mem::take(&mut state.conversation.messages);
    let tail = messages.len().saturating_sub(compacted.keep);
    // Commands of the user can precede the prompt of the thread, so its index is not always 0.
    let own = messages.iter().position(|message| matches!(**message, Message::User { .. })).map_or(0, |at| at + 1);
    let prompt = if state.conversation.prompted && state.continued_prompts().is_none() { own.min(tail) } else { 0 };
    let summary = Message::CompactionSummary { text: compacted.summary.clone() }.into();
    let open = state.conversation.open_prompt.clone().unwrap_or(0..0);
    let mut new_indexes = Vec::with_capacity(messages.len());
    let mut kept = Vec::new();
    let mut summary = Some(summary);
    for (index, message) in messages.into_iter().enumerate() {
        if index >= tail {
            kept.extend(summary.take());
        }
        if index < prompt || index >= tail || open.contains(&index) {
            new_indexes.push(Some(kept.len()));
            kept.push(message);
        } else {
            new_indexes.push(None);
        }
    }
    kept.extend(summary);
    let new_index = |old: usize| new_indexes.get(old).copied().flatten();
    state.conversation.prompt_index = new_index(state.conversation.prompt_index).unwrap_or(0);
    state.conversation.open_prompt =
        new_index(open.start).zip(open.end.checked_sub(1).and_then(new_index)).map(|(first, last)| first..last + 1);
    state.conversation.messages = kept;
    if state.conversation.denied > 0 {
        state.conversation.denied = state.conversation.messages.len();
    }
    state.conversation.measured = None;
    state.conversation.operations.clear();
    state.compacted = Some(state.cost.turns);
    state.is_prompt_too_long = false;
    if !chat::end_compaction(state) {
        state.position = RunPosition::After(Node::Compact, Outcome::Finished);
    }
}
