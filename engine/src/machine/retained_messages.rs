//! Selects the messages that a continuation or a compaction retains: all messages without a reply, and the newest of
//! the other messages, up to a number of tokens. A call is retained only together with its result.

use std::ops::Range;

use rye_compiler::plan::Plan;

use super::request::message_tokens;
use super::state::ThreadState;
use crate::event::LeftOutMessages;
use crate::message::{ContentBlock, Message, SharedMessage};

/// The messages with which a thread starts because it continues another thread.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct InheritedMessages {
    pub messages: Vec<SharedMessage>,
    /// The indexes of the messages of the unfinished prompt; `None` if no prompt is unfinished.
    pub open_prompt: Option<Range<usize>>,
}

impl InheritedMessages {
    /// Returns the whole conversation of a thread, and the outputs of commands that no prompt has followed yet.
    pub fn whole(state: &ThreadState) -> Self {
        let messages = [state.conversation.messages.clone(), waiting_outputs(state)].concat();
        Self { messages, open_prompt: state.conversation.open_prompt.clone() }
    }

    /// Returns the messages of a thread that a handoff retains. The messages of the unfinished prompt, the messages
    /// after the last reply and the waiting outputs of commands are retained whatever their length. Of the other messages, the newest are retained, up to
    /// `continuation.resume_ceiling_tokens` tokens. The first retained message is a message of the user.
    pub fn after_handoff(plan: &Plan, state: &ThreadState) -> Self {
        Self::within(plan.settings.values().resume_ceiling_tokens, state)
    }

    /// Returns the number and the tokens of the messages that the handoff of a thread leaves out and retains; `None` if
    /// no message is left out.
    pub fn left_out(&self, plan: &Plan, state: &ThreadState) -> Option<LeftOutMessages> {
        let by = plan.model.counted_by;
        let size = |messages: &[SharedMessage]| {
            let tokens = messages.iter().fold(0_u64, |sum, one| sum.saturating_add(message_tokens(by, one)));
            (messages.len() as u64, tokens)
        };
        let (count, tokens) = size(&state.conversation.messages);
        let (kept_messages, kept_tokens) = size(&self.messages);
        let (messages, tokens) = (count.saturating_sub(kept_messages), tokens.saturating_sub(kept_tokens));
        (messages > 0).then_some(LeftOutMessages { messages, tokens, kept_messages, kept_tokens })
    }

    fn within(tokens: u64, state: &ThreadState) -> Self {
        let messages = &state.conversation.messages;
        let prompt = state.conversation.open_prompt.clone().unwrap_or(0..0);
        let may_begin = |index: usize, message: &SharedMessage| match message.kind() {
            "user" => true,
            // The list may begin with a reply to the unfinished prompt, because the messages of the prompt are put
            // before the reply.
            "assistant" => !prompt.is_empty() && index >= prompt.end,
            _ => false,
        };
        let start = start(state, tokens, may_begin);
        let rest = messages.get(start..).unwrap_or_default();
        if prompt.is_empty() || start <= prompt.start {
            let open_prompt = (!prompt.is_empty()).then(|| prompt.start - start..prompt.end - start);
            return Self { messages: [rest, &waiting_outputs(state)].concat(), open_prompt };
        }
        let own = messages.get(prompt).unwrap_or_default();
        Self { messages: [own, rest, &waiting_outputs(state)].concat(), open_prompt: Some(0..own.len()) }
    }
}

/// Returns the outputs of the user's commands that wait for the next prompt of a chat.
fn waiting_outputs(state: &ThreadState) -> Vec<SharedMessage> {
    let outputs = state.chat.iter().flat_map(|chat| &chat.outputs);
    outputs.map(|ran| SharedMessage::from(ran.message())).collect()
}

/// Returns the number of messages at the end of the conversation that a compaction retains in addition to its summary.
/// The first retained message may be a reply, because the summary before it is a user message.
pub(crate) fn count_retained_messages(plan: &Plan, state: &ThreadState) -> usize {
    let tokens = plan.settings.values().resume_ceiling_tokens.min(plan.model.context_window / 4);
    let start = start(state, tokens, |_, message| matches!(message.kind(), "user" | "assistant"));
    let count = state.conversation.messages.len();
    // The first message does not count: it is the prompt, which a compaction always retains.
    count - start.max(1).min(count)
}

/// Returns the index of the first message without a reply. If the unfinished prompt has no reply yet, this is the first
/// message of the prompt. If no message waits for a reply (as in an idle chat), returns the number of messages.
pub(super) fn first_unanswered(state: &ThreadState) -> usize {
    let conversation = &state.conversation;
    let count = conversation.messages.len();
    if state.is_idle() {
        return count;
    }
    let is_reply = |message: &SharedMessage| matches!(message.kind(), "assistant" | "tool_result");
    let after_reply = conversation.messages.iter().rposition(is_reply).map_or(0, |index| index + 1);
    let after_prompt = match &conversation.open_prompt {
        Some(prompt) if after_reply <= prompt.start => prompt.start,
        Some(prompt) => prompt.end,
        None if conversation.prompted => conversation.prompt_index + 1,
        None => 0,
    };
    after_reply.max(after_prompt).min(count)
}

/// Returns the index of the first message that is retained. The messages from this index to the end fit into `tokens`
/// tokens, and `may_begin` is true for the first of these messages. Messages of the unfinished prompt and messages
/// without a reply do not count as tokens. The messages of the prompt stay together.
fn start(state: &ThreadState, tokens: u64, may_begin: impl Fn(usize, &SharedMessage) -> bool) -> usize {
    let messages = &state.conversation.messages;
    let prompt = state.conversation.open_prompt.clone().unwrap_or(0..0);
    let unanswered = first_unanswered(state);
    let mut left = tokens.saturating_mul(4);
    let mut start = unanswered;
    for (index, message) in messages.iter().enumerate().take(unanswered).rev() {
        let weight = if prompt.contains(&index) { 0 } else { characters(message) };
        if weight > left {
            break;
        }
        left -= weight;
        if may_begin(index, message) {
            start = index;
        }
    }
    if prompt.contains(&start) { prompt.start } else { start }
}

fn characters(message: &Message) -> u64 {
    let text = match message {
        Message::User { content } | Message::Assistant { content } => {
            content.iter().map(block_characters).fold(0, usize::saturating_add)
        }
        Message::ToolResult { content, .. } | Message::Custom { content, .. } => content.len(),
        Message::Bash { command, output, .. } => command.len() + output.len(),
        Message::CompactionSummary { text } | Message::BranchSummary { text } => text.len(),
    };
    text as u64
}

fn block_characters(block: &ContentBlock) -> usize {
    match block {
        ContentBlock::Text { text } | ContentBlock::Thinking { text, .. } => text.len(),
        ContentBlock::ToolCall(call) => call.name.len() + call.input.to_string().len(),
        ContentBlock::Image(image) => usize::try_from(image.estimate_tokens().saturating_mul(4)).unwrap_or(usize::MAX),
        ContentBlock::Other { value, .. } => value.to_string().len(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::ToolCall;

    fn call() -> SharedMessage {
        let call = ToolCall { id: "c".into(), name: "t".into(), input: json!({}) };
        Message::Assistant { content: vec![ContentBlock::ToolCall(call)] }.into()
    }

    fn user(text: &str) -> SharedMessage {
        Message::user(text).into()
    }

    fn result(bytes: usize) -> SharedMessage {
        Message::ToolResult { call_id: "c".into(), name: "t".into(), content: "x".repeat(bytes), is_error: false }
            .into()
    }

    fn state_of(messages: &[SharedMessage], open_prompt: Option<Range<usize>>) -> ThreadState {
        let mut state = ThreadState::new();
        state.conversation.messages = messages.to_vec();
        state.conversation.open_prompt = open_prompt;
        state
    }

    fn trailing_messages(messages: &[SharedMessage], tokens: u64) -> Vec<SharedMessage> {
        let mut state = state_of(messages, None);
        state.conversation.prompted = true;
        state.conversation.prompt_index = messages.len();
        InheritedMessages::within(tokens, &state).messages
    }

    #[test]
    fn calls_count_with_their_input() {
        let input = json!({"content": "x".repeat(4_000)});
        let call = ToolCall { id: "c".into(), name: "write".into(), input };
        let long = Message::Assistant { content: vec![ContentBlock::ToolCall(call)] }.into();
        let conversation = [user("first"), long, result(10), user("second")];
        assert_eq!(trailing_messages(&conversation, 900).len(), 1);
        assert_eq!(trailing_messages(&conversation, 1_100).len(), 4);
    }

    #[test]
    fn trailing_messages_keep_calls_with_their_results() {
        let conversation = [user("first"), call(), result(100), user("second"), call(), result(100)];
        for tokens in 0..400 {
            let in_prompt = InheritedMessages::within(tokens, &state_of(&conversation, Some(0..1)));
            assert_eq!(in_prompt.messages[0], conversation[0]);
            for list in [trailing_messages(&conversation, tokens), in_prompt.messages] {
                let calls = list.iter().filter(|m| m.kind() == "assistant").count();
                let results = list.iter().filter(|m| m.kind() == "tool_result").count();
                assert_eq!(calls, results, "{tokens} tokens");
            }
            let first = trailing_messages(&conversation, tokens);
            assert!(first.first().is_none_or(|m| m.kind() == "user"));
        }
        assert_eq!(trailing_messages(&conversation, 1_000).len(), 6);
    }

    #[test]
    fn messages_without_an_answer_are_retained_whole() {
        let long = "x".repeat(100_000);
        // An unanswered prompt, with the output of a command before it.
        let output = Message::Bash { command: "ls".into(), output: long.clone(), exit_code: 0, excluded: false };
        let waiting = [user("first"), call(), result(10), output.into(), user(&long)];
        let kept = InheritedMessages::within(1, &state_of(&waiting, Some(3..5)));
        assert_eq!((kept.messages.len(), kept.open_prompt), (2, Some(0..2)));
        let kept = InheritedMessages::within(1_000, &state_of(&waiting, Some(3..5)));
        assert_eq!((kept.messages.len(), kept.open_prompt), (5, Some(3..5)));
        // A prompt with answers, and a steering message without one.
        let steered = [user("first"), user(&long), call(), result(90_000), call(), result(10), user(&long)];
        let kept = InheritedMessages::within(100, &state_of(&steered, Some(1..2)));
        assert_eq!(kept.messages, [&steered[1..2], &steered[4..]].concat());
        assert_eq!(kept.open_prompt, Some(0..1));
        // A steering message of a run, whose own prompt each continuation repeats.
        let mut run = state_of(&[user(&long), user(&long)], None);
        run.conversation.prompted = true;
        assert_eq!(InheritedMessages::within(10, &run).messages.len(), 1);
        // A prompt that has ended without an answer.
        let mut idle = state_of(&[user(&long)], None);
        idle.chat = Some(super::super::state::ChatState::default());
        assert_eq!(InheritedMessages::within(10, &idle), InheritedMessages::default());
    }
}
