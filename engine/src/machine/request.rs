//! Model requests: the conversation in the form that providers receive, and the estimate of its tokens.

use std::borrow::Cow;
use std::sync::Arc;

use rye_compiler::plan::{PaletteTool, Plan, PlannedModel, Tokenizer, ToolUse};

use super::effect::ModelCall;
use super::facts;
use super::prompt_bounds::offered_tools;
use super::state::{ChildState, ThreadState};
use crate::event::ContextOperation;
use crate::exchange::{Request, RequestTurns, StartedChild, ThreadPosition, ToolDefinition};
use crate::message::{ContentBlock, Message, ProviderMessage, SharedMessage, ToolCall, calls_in};

/// Builds the request of the current attempt. A request for a summary is the same conversation, followed by the summary
/// prompt.
pub(super) fn build_request(plan: &Plan, state: &ThreadState, call: ModelCall, turns: RequestTurns) -> Request {
    let mut request = build_turn_request(plan, state, call.max_output, turns);
    if call.compacts {
        let focus = state.chat.as_ref().and_then(|chat| chat.compaction.as_ref()?.focus.as_deref());
        let prompt = focus
            .map_or_else(|| SUMMARY_PROMPT.to_owned(), |focus| format!("{SUMMARY_PROMPT}\n\n{FOCUS_PROMPT}{focus}"));
        request.turns.push(Message::user(prompt).into());
        request.cue.directive.push_str(".summary");
    }
    request
}

fn build_turn_request(plan: &Plan, state: &ThreadState, max_output: u64, turns: RequestTurns) -> Request {
    let messages = edited_messages(state);
    let sent = match turns {
        RequestTurns::All => &*messages,
        RequestTurns::SinceReply => since_reply(&messages),
    };
    let untouched = state.conversation.operations.is_empty();
    let text_tools = state.model(plan).tool_use == ToolUse::TextParsed;
    Request {
        model: state.model(plan).id.clone(),
        system: system(plan, state),
        turns: without_refused_images(state.model(plan), to_turns(sent)),
        tools: if text_tools { Vec::new() } else { tool_definitions(plan, state) },
        max_output,
        first_turn_constant: untouched && state.continued_prompts().is_none(),
        sampling: state.model(plan).sampling.clone(),
        text_tools,
        cue: thread_position(plan, state),
    }
}

/// Returns the position of the next model call in its thread, by which the `scripted` provider selects the reply.
pub(crate) fn thread_position(plan: &Plan, state: &ThreadState) -> ThreadPosition {
    let started = |(spawn, child): (&u64, &ChildState)| {
        let thread_id = child.thread_id.clone()?;
        Some(StartedChild { spawn: *spawn, thread_id, last_thread_id: child.last_thread_id.clone() })
    };
    let launch = state.launch.as_ref();
    let parent = launch.and_then(|launch| launch.parent.as_ref());
    ThreadPosition {
        directive: plan.directive.to_string(),
        turn: Some(u32::try_from(state.cost.turns).unwrap_or(u32::MAX)),
        attempt: state.failures_of_earlier_prompts.saturating_add(state.failures),
        thread: launch.map(|launch| launch.thread_id.clone()).unwrap_or_default(),
        spawn: parent.map(|parent| parent.spawn),
        duration_seconds: parent.map(|_| facts::stated_duration_seconds(plan, state)),
        children: state.children.iter().filter_map(started).collect(),
    }
}

/// The prompt that requests a summary of the conversation.
const SUMMARY_PROMPT: &str = "The conversation is about to be shortened. Write a summary that replaces everything above, so that the work can continue from it alone: the task, what was done and found (with names, paths and values), what was decided and why, what is open and what comes next. Call no tool; answer with the summary only.";

/// The text in place of an image in a request to a model that accepts no images.
const LEFT_OUT_IMAGE: &str = "[an image of the user was left out, because this model accepts no images]";

/// The start of the sentence that names the topic of a summary.
const FOCUS_PROMPT: &str = "Keep everything about this subject in detail: ";

/// Returns the last reply with the messages after it, or all messages if there is no reply.
fn since_reply(messages: &[SharedMessage]) -> &[SharedMessage] {
    let reply = messages.iter().rposition(|message| matches!(**message, Message::Assistant { .. }));
    messages.get(reply.unwrap_or(0)..).unwrap_or_default()
}

fn tool_definitions(plan: &Plan, state: &ThreadState) -> Vec<ToolDefinition> {
    let definition = |tool: &PaletteTool| ToolDefinition {
        name: Arc::clone(&tool.name),
        description: Arc::clone(&tool.description),
        schema: Arc::clone(&tool.schema),
    };
    offered_tools(plan, state).into_iter().map(definition).collect()
}

/// Returns the system prompt of the thread: the replacement that a hook set, else the recorded system prompt. Empty if
/// there is none.
pub(crate) fn thread_system(state: &ThreadState) -> Arc<str> {
    state
        .conversation
        .system_now
        .as_ref()
        .or(state.conversation.system.as_ref())
        .map_or_else(|| Arc::from(""), Arc::clone)
}

/// Returns the system prompt of the next request. For a model without native tool use, the prompt contains the
/// instructions for calling tools.
fn system(plan: &Plan, state: &ThreadState) -> Arc<str> {
    let system = thread_system(state);
    plan.system_for(state.model(plan), &system).map_or(system, Arc::from)
}

/// Returns the messages with the operations of `context` hooks applied.
fn edited_messages(state: &ThreadState) -> Cow<'_, [SharedMessage]> {
    if state.conversation.operations.is_empty() {
        return Cow::Borrowed(&state.conversation.messages);
    }
    let mut messages = state.conversation.messages.clone();
    for operation in &state.conversation.operations {
        apply(operation, &mut messages);
    }
    Cow::Owned(messages)
}

fn apply(operation: &ContextOperation, messages: &mut Vec<SharedMessage>) {
    match operation {
        ContextOperation::Drop { kinds, n } => {
            let mut left = n.unwrap_or(u64::MAX);
            messages.retain(|message| {
                let drop = left > 0 && kinds.iter().any(|kind| kind == message.kind());
                left -= u64::from(drop);
                !drop
            });
        }
        ContextOperation::KeepLast { n } => {
            let keep = usize::try_from(*n).unwrap_or(usize::MAX);
            let mut start = messages.len().saturating_sub(keep);
            // The first message kept must not be a result without its call.
            while messages.get(start).is_some_and(|m| m.kind() == "tool_result") && start > 0 {
                start -= 1;
            }
            messages.drain(..start);
        }
        ContextOperation::InjectBefore { content } => messages.insert(0, Message::user(content.clone()).into()),
        ContextOperation::InjectAfter { content } => messages.push(Message::user(content.clone()).into()),
        ContextOperation::Replace { messages: other } => {
            *messages = other.iter().cloned().map(SharedMessage::from).collect();
        }
    }
}

/// Selects the messages to send, so that every call has exactly one result. A call without a result gets the error
/// result `not run`, and a result without a call is left out. A hook, a crash or an early end can have removed the call
/// or the result.
fn to_turns(messages: &[SharedMessage]) -> Vec<SharedMessage> {
    let mut turns: Vec<SharedMessage> = Vec::with_capacity(messages.len());
    let mut open: Vec<&ToolCall> = Vec::new();
    for message in messages {
        let Some(turn) = message.for_provider() else { continue };
        match turn {
            ProviderMessage::ToolResult { call_id, .. } => {
                if let Some(place) = open.iter().position(|call| call.id == call_id) {
                    open.remove(place);
                    turns.push(message.clone());
                }
            }
            ProviderMessage::User { .. } => {
                close(&mut open, &mut turns);
                turns.push(message.clone());
            }
            ProviderMessage::Assistant { content } => {
                close(&mut open, &mut turns);
                open.extend(calls_in(content));
                if !content.is_empty() {
                    turns.push(message.clone());
                }
            }
        }
    }
    close(&mut open, &mut turns);
    turns
}

/// Replaces the images of the messages with a text if the model accepts no images. The conversation keeps the images for
/// a later model.
fn without_refused_images(model: &PlannedModel, mut turns: Vec<SharedMessage>) -> Vec<SharedMessage> {
    if model.images {
        return turns;
    }
    for turn in &mut turns {
        if let Message::User { content } = &**turn
            && content.iter().any(|block| matches!(block, ContentBlock::Image(_)))
        {
            let shown = content.iter().map(|block| {
                let is_image = matches!(block, ContentBlock::Image(_));
                if is_image { ContentBlock::Text { text: LEFT_OUT_IMAGE.into() } } else { block.clone() }
            });
            *turn = Message::User { content: shown.collect() }.into();
        }
    }
    turns
}

fn close(open: &mut Vec<&ToolCall>, turns: &mut Vec<SharedMessage>) {
    for ToolCall { id, name, .. } in open.drain(..) {
        let (call_id, name, content) = (id.clone(), name.clone(), "not run".to_owned());
        turns.push(Message::ToolResult { call_id, name, content, is_error: true }.into());
    }
}

pub(super) fn tool_calls(content: &[ContentBlock]) -> Vec<ToolCall> {
    calls_in(content).cloned().collect()
}

/// Estimates the tokens of the next request. If the provider counted the last request and nothing has edited the
/// conversation, the plan's tokenizer counts only the messages after the last reply. Otherwise the tokenizer counts the
/// whole request.
pub(crate) fn estimate_tokens(plan: &Plan, state: &ThreadState) -> u64 {
    let by = plan.model.counted_by;
    let sum =
        |messages: &[SharedMessage]| messages.iter().fold(0u64, |sum, m| sum.saturating_add(message_tokens(by, m)));
    if state.conversation.operations.is_empty()
        && let Some(measured) = state.measured()
    {
        let fresh = state.conversation.messages.get(measured.messages..).unwrap_or_default();
        // The first message is the reply, which the provider has counted as output.
        let fresh = fresh.get(1..).unwrap_or_default();
        return measured.input.saturating_add(measured.output).saturating_add(sum(fresh));
    }
    let tools = plan.definition_tokens(state.model(plan));
    by.count(&system(plan, state)).saturating_add(tools).saturating_add(sum(&edited_messages(state)))
}

/// Returns an estimate of the tokens of the context window that are in use.
pub(super) fn tokens_used(plan: &Plan, state: &ThreadState) -> u64 {
    estimate_tokens(plan, state)
}

pub(crate) fn message_tokens(by: Tokenizer, message: &Message) -> u64 {
    let blocks =
        |content: &[ContentBlock]| content.iter().fold(0u64, |sum, block| sum.saturating_add(of_block(by, block)));
    match message {
        Message::User { content } | Message::Assistant { content } => blocks(content),
        Message::ToolResult { content, name, .. } => by.count(content).saturating_add(by.count(name)),
        Message::Custom { content, .. } => by.count(content),
        Message::Bash { command, output, excluded, .. } => {
            if *excluded {
                0
            } else {
                by.count(command).saturating_add(by.count(output))
            }
        }
        Message::CompactionSummary { text } | Message::BranchSummary { text } => by.count(text),
    }
}

fn of_block(by: Tokenizer, block: &ContentBlock) -> u64 {
    match block {
        ContentBlock::Text { text } | ContentBlock::Thinking { text, .. } => by.count(text),
        ContentBlock::Image(image) => image.estimate_tokens(),
        ContentBlock::ToolCall(call) => by.count(&call.name).saturating_add(by.count(&call.input.to_string())),
        ContentBlock::Other { value, .. } => by.count(&value.to_string()),
    }
}

mod bound;

pub(super) use bound::bound_input_tokens;

#[cfg(test)]
mod tests;
