//! Recent messages that a continuation or a compaction retains: at most a number of tokens, and no call without its
//! result.

use rye_compiler::plan::Plan;

use crate::message::{ContentBlock, Message, SharedMessage};

/// Returns the maximum tokens of recent messages that a continuation starts with.
pub(crate) fn max_trailing_tokens(plan: &Plan) -> u64 {
    plan.settings.values().resume_ceiling_tokens
}

/// Returns the longest end of a conversation that fits into `tokens` tokens and starts with a user message. Empty if no
/// user message fits.
pub(crate) fn trailing_messages(messages: &[SharedMessage], tokens: u64) -> Vec<SharedMessage> {
    let start = start(messages, tokens, |message| message.kind() == "user");
    messages.get(start..).unwrap_or_default().to_vec()
}

/// Returns the number of messages at the end of the conversation that a compaction retains in addition to its summary.
/// The first retained message may be a reply, because the summary before it is a user message.
pub(super) fn count_retained_messages(plan: &Plan, messages: &[SharedMessage]) -> usize {
    let tokens = max_trailing_tokens(plan).min(plan.model.context_window / 4);
    let start = start(messages, tokens, |message| matches!(message.kind(), "user" | "assistant"));
    // The first message is the prompt; compaction always keeps the prompt.
    messages.len() - start.max(1).min(messages.len())
}

fn start(messages: &[SharedMessage], tokens: u64, may_begin: impl Fn(&SharedMessage) -> bool) -> usize {
    let mut left = tokens.saturating_mul(4);
    let mut start = messages.len();
    for (index, message) in messages.iter().enumerate().rev() {
        let weight = characters(message);
        if weight > left {
            break;
        }
        left -= weight;
        if may_begin(message) {
            start = index;
        }
    }
    start
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
            for list in [
                trailing_messages(&conversation, tokens),
                conversation
                    .get(start(&conversation, tokens, |m| m.kind() == "assistant")..)
                    .unwrap_or_default()
                    .to_vec(),
            ] {
                let calls = list.iter().filter(|m| m.kind() == "assistant").count();
                let results = list.iter().filter(|m| m.kind() == "tool_result").count();
                assert_eq!(calls, results, "{tokens} tokens");
            }
            let first = trailing_messages(&conversation, tokens);
            assert!(first.first().is_none_or(|m| m.kind() == "user"));
        }
        assert_eq!(trailing_messages(&conversation, 1_000).len(), 6);
    }
}
