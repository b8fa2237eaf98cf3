//! Tools for models without native tool use (`tool_use: text_parsed`). The plan's system prompt describes the palette,
//! calls are parsed from the text of replies, and results are sent as text. This module works with every wire format
//! and sends nothing itself.

mod code_blocks;
mod parse;
mod shown;

use std::sync::{Mutex, PoisonError};

use rye_compiler::wire_tool::instructions::{CALL_END, CALL_START, RESULT_START};
use serde_json::json;

use super::wire::{NO_OUTPUT, UnreadKinds, is_blank};
use super::{CallProgress, Provider};
use crate::exchange::{CallError, Delta, Reply, Request, StopReason};
use crate::message::{ContentBlock, Message, ProviderMessage, SharedMessage, ToolCall};

/// Calls a model, with text-parsed tools if the request selects them. Facts that are known before the call ends are
/// recorded in `progress`.
///
/// # Errors
/// The error that ended the attempt.
pub async fn call(
    provider: &dyn Provider,
    request: &Request,
    live: &(dyn Fn(Delta) + Send + Sync),
    progress: &CallProgress,
) -> Result<Reply, CallError> {
    if !request.text_tools {
        return provider.call_with_progress(request, live, progress).await;
    }
    let shown = Mutex::new(shown::CallFilter::default());
    let show = |delta: Delta| match delta {
        Delta::Text(more) => {
            let text = shown.lock().unwrap_or_else(PoisonError::into_inner).push(&more);
            if !text.is_empty() {
                live(Delta::Text(text));
            }
        }
        other @ (Delta::Thinking(_) | Delta::ToolCallStarted { .. } | Delta::ToolCallInput { .. }) => live(other),
    };
    let reply = provider.call_with_progress(&request_as_text(request), &show, progress).await?;
    let rest = shown.lock().unwrap_or_else(PoisonError::into_inner).take_rest();
    if !rest.is_empty() {
        live(Delta::Text(rest));
    }
    let reply = with_calls(request, reply);
    for block in &reply.content {
        if let ContentBlock::ToolCall(call) = block {
            live(Delta::ToolCallStarted { id: call.id.clone(), name: call.name.clone() });
            live(Delta::ToolCallInput { id: call.id.clone(), fragment: call.input.to_string() });
        }
    }
    Ok(reply)
}

/// Returns the request with its tool calls and tool results as text. The text depends only on the request.
pub(crate) fn request_as_text(request: &Request) -> Request {
    let mut turns: Vec<Message> = Vec::with_capacity(request.turns.len());
    for turn in request.turns.iter().filter_map(SharedMessage::for_provider) {
        match turn {
            ProviderMessage::User { content } => push_user_content(&mut turns, content.to_vec()),
            ProviderMessage::Assistant { content } => {
                turns.push(Message::Assistant { content: reply_as_text(content) });
            }
            ProviderMessage::ToolResult { call_id, name, content, is_error } => {
                push_user_content(
                    &mut turns,
                    vec![ContentBlock::Text { text: result_as_text(call_id, name, content, is_error).into() }],
                );
            }
        }
    }
    Request { turns: turns.into_iter().map(SharedMessage::from).collect(), ..request.clone() }
}

/// Adds user content to the last turn if the last turn is a user turn, else as a new turn. The templates of many small
/// models require alternating roles.
fn push_user_content(turns: &mut Vec<Message>, mut content: Vec<ContentBlock>) {
    if let Some(Message::User { content: before }) = turns.last_mut() {
        before.append(&mut content);
    } else {
        turns.push(Message::User { content });
    }
}

/// Returns the content of a reply with each tool call as text. Adjacent texts are joined.
fn reply_as_text(content: &[ContentBlock]) -> Vec<ContentBlock> {
    let mut blocks: Vec<ContentBlock> = Vec::with_capacity(content.len());
    for block in content {
        let text = match block {
            ContentBlock::Text { text } => text.clone(),
            ContentBlock::ToolCall(call) => call_as_text(call).into(),
            ContentBlock::Image { .. } | ContentBlock::Thinking { .. } | ContentBlock::Other { .. } => {
                blocks.push(block.clone());
                continue;
            }
        };
        match blocks.last_mut() {
            Some(ContentBlock::Text { text: before }) => {
                let before = before.make_mut();
                before.push_str("\n\n");
                before.push_str(&text);
            }
            Some(
                ContentBlock::Image { .. }
                | ContentBlock::Thinking { .. }
                | ContentBlock::ToolCall(_)
                | ContentBlock::Other { .. },
            )
            | None => {
                blocks.push(ContentBlock::Text { text });
            }
        }
    }
    blocks
}

fn call_as_text(call: &ToolCall) -> String {
    let body = match call.malformed() {
        Some(text) => text.to_owned(),
        None => json!({"name": call.name, "arguments": call.input}).to_string(),
    };
    format!("{CALL_START}\n{body}\n{CALL_END}")
}

fn result_as_text(call_id: &str, name: &str, content: &str, is_error: bool) -> String {
    let text = if is_blank(content) { NO_OUTPUT } else { content };
    // A result must not contain its own end tag or the start of another result.
    let text = text.replace("</tool_result", "<\\/tool_result").replace(RESULT_START, "<\\tool_result");
    let attribute = |text: &str| text.replace(['"', '<', '>', '\n'], "_");
    let error = if is_error { " error=\"true\"" } else { "" };
    format!("{RESULT_START} name=\"{}\" id=\"{}\"{error}>\n{text}\n</tool_result>", attribute(name), attribute(call_id))
}

/// Returns the reply with the calls parsed from its text.
fn with_calls(request: &Request, reply: Reply) -> Reply {
    let turn = request.cue.turn.unwrap_or_else(|| {
        let replies = request.turns.iter().filter(|turn| matches!(***turn, Message::Assistant { .. })).count();
        u32::try_from(replies).unwrap_or(u32::MAX)
    });
    let mut content = Vec::with_capacity(reply.content.len());
    let mut calls = 0;
    let mut unread = UnreadKinds::default();
    for block in reply.content {
        match block {
            ContentBlock::Text { text } => {
                for piece in parse::split_reply(&text) {
                    content.push(match piece {
                        parse::ReplyPiece::Text(text) => ContentBlock::Text { text: text.into() },
                        parse::ReplyPiece::Call(body) => {
                            calls += 1;
                            for key in parse::unread_keys(&body) {
                                unread.add(&key);
                            }
                            ContentBlock::ToolCall(parse::parse_call(
                                format!("call_{}_{calls}", u64::from(turn) + 1),
                                &body,
                            ))
                        }
                    });
                }
            }
            ContentBlock::Image { .. }
            | ContentBlock::Thinking { .. }
            | ContentBlock::ToolCall(_)
            | ContentBlock::Other { .. } => {
                content.push(block);
            }
        }
    }
    let stop = if calls > 0 && reply.stop == StopReason::EndTurn { StopReason::ToolUse } else { reply.stop };
    let unread = [reply.unread, unread.into_vec()].concat();
    Reply { content, stop, unread, ..reply }
}

#[cfg(test)]
mod tests;
