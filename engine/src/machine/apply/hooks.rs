//! Applies the results of the hooks of a hook point to the thread state.

use std::sync::Arc;

use rye_compiler::hook::HookPoint;
use rye_compiler::plan::{Node, Outcome};
use serde_json::Value;

use super::super::screen::RESUME_SUBJECT;
use super::super::state::{CallState, EarlyEnd, RunPosition, ThreadState};
use super::super::step::outcome_of;
use crate::event::{Delivery, HookOutcome, HookPointRun, InputSource, QueuedMessage, UserInput};
use crate::message::{Message, SharedMessage};
use crate::thread::Status;

/// The error code of a thread or a prompt that a failed hook with `on_failure: fail` ended.
pub(in crate::machine) const HOOK_FAILED_CODE: &str = "hook_failed";

pub(super) fn on_hook_point(state: &mut ThreadState, run: &HookPointRun, ts: i64) {
    let point = run.point;
    state.hook_points += 1;
    state.objects.extend(run.objects.iter().cloned());
    // A hook that fails at the end does not change the end status.
    let at_the_end = matches!(
        point,
        HookPoint::AfterComplete | HookPoint::ThreadCompleted | HookPoint::ThreadError | HookPoint::ThreadCancelled
    );
    if let (HookOutcome::Failed { hook, error }, false) = (&run.answer, at_the_end) {
        let message = format!("the hook `{hook}` failed: {error}");
        let waiting = run.subject.as_deref().filter(|_| point == HookPoint::Input);
        if !waiting.is_some_and(|id| fail_waiting_message(state, id, &message)) {
            state.stop = Some(EarlyEnd { status: Status::Error, code: HOOK_FAILED_CODE.into(), message });
        }
    }
    if let HookOutcome::Terminate { ends_session: true, status, error } = &run.answer {
        let end = early_end(state, *status, error.as_deref().unwrap_or("a hook ended the session"));
        if let Some(chat) = &mut state.chat {
            chat.session_end = Some(end);
        }
    }
    match point {
        HookPoint::ToolExecutionStart
        | HookPoint::ToolExecutionEnd
        | HookPoint::CognitionIn
        | HookPoint::CognitionOut
        | HookPoint::ToolCallResult
        | HookPoint::ThreadResumed => {
            state.observations.pop_front();
        }
        HookPoint::ToolCall => {
            if let Some(call) = call(state, run) {
                call.has_run_hooks = true;
                if let HookOutcome::Block { reason } = &run.answer {
                    call.blocked = Some(reason.clone());
                }
            }
        }
        HookPoint::Input => screened(state, run),
        // The event `CommandRan` applies the answer of a command.
        HookPoint::Command => {}
        HookPoint::ToolResult => modified(state, run),
        HookPoint::Error if run.subject.is_some() => {
            if let Some(result) = call(state, run).and_then(|call| call.result.as_mut()) {
                result.seen.insert(HookPoint::Error);
            }
            stop(state, &run.answer);
        }
        HookPoint::AfterComplete | HookPoint::ThreadCompleted | HookPoint::ThreadError | HookPoint::ThreadCancelled => {
            state.hook_points_run.insert(point);
        }
        HookPoint::ResolveExtends
        | HookPoint::BuildSystemPrompt
        | HookPoint::ThreadStarted
        | HookPoint::ThreadContinued
        | HookPoint::BeforeAgentStart
        | HookPoint::Context
        | HookPoint::AfterStep
        | HookPoint::Limit
        | HookPoint::Error
        | HookPoint::ContextLimitReached
        | HookPoint::DirectiveReturn
        | HookPoint::AgentEnd => {
            let mut outcome = step(state, run, ts);
            if point == HookPoint::AfterStep {
                outcome = after_step(state, outcome);
            }
            state.position = RunPosition::After(Node::Hooks(point), outcome);
        }
    }
}

/// Converts the outcome of the `after_step` hooks to the outcome of the finished turn.
///
/// - If the turn returned a result that was accepted, the outcomes `Pass`, `Continue` and `Retry` become `Accepted`:
///   only `Terminate` can still change the end.
/// - If the reply has no calls, the outcomes `Pass` and `Continue` become `Text`.
/// - Any other outcome stays unchanged.
fn after_step(state: &ThreadState, outcome: Outcome) -> Outcome {
    let continues = matches!(outcome, Outcome::Pass | Outcome::Continue);
    if state.returned.is_some() && (continues || outcome == Outcome::Retry) {
        Outcome::Accepted
    } else if continues && state.calls.list.is_empty() {
        Outcome::Text
    } else {
        outcome
    }
}

fn call<'a>(state: &'a mut ThreadState, run: &HookPointRun) -> Option<&'a mut CallState> {
    let index: usize = run.subject.as_ref()?.parse().ok()?;
    state.calls.list.get_mut(index)
}

/// Applies the answer of a hook point that is a node of the execution graph. Returns the outcome of the step at this
/// node.
fn step(state: &mut ThreadState, run: &HookPointRun, ts: i64) -> Outcome {
    match &run.answer {
        HookOutcome::Collected { fired, texts } => {
            state.conversation.fired.extend(fired.iter().cloned());
            state.conversation.texts.extend(texts.iter().map(|(id, text)| (id.clone(), text.clone())));
        }
        HookOutcome::Prepared { messages, system } => {
            state.conversation.messages.extend(messages.iter().cloned().map(SharedMessage::from));
            state.conversation.system_now = system.as_deref().map(Arc::from);
        }
        HookOutcome::Context { operations } => state.conversation.operations.clone_from(operations),
        HookOutcome::FollowUp { content } => {
            let input = UserInput { source: InputSource::Extension, ..UserInput::text(content) };
            let id = format!("hook.{}", state.events);
            state.enqueue(QueuedMessage::new(&id, &input, Delivery::FollowUp));
        }
        HookOutcome::Retry { delay_ms } => {
            state.hook_retries += u32::from(run.point == HookPoint::Error);
            if run.point == HookPoint::AfterStep {
                withdraw_text_reply(state);
            }
            state.wait_until = Some(ts.saturating_add(i64::try_from(*delay_ms).unwrap_or(i64::MAX)));
        }
        HookOutcome::Raise { limit, value } => {
            return if super::raise_limit(state, limit, *value) {
                state.limit = None;
                Outcome::Raise
            } else {
                Outcome::Pass
            };
        }
        HookOutcome::Terminate { status, .. } => {
            if run.point == HookPoint::AgentEnd && *status != Some(Status::Completed) {
                deny_replies(state);
            }
            stop_at_point(state, run);
        }
        HookOutcome::Block { reason } => {
            deny_replies(state);
            state.conversation.messages.push(Message::user(format!("The answer was not accepted: {reason}")).into());
        }
        // A transcript of an earlier version can contain a handoff that would not help. Such a handoff has no effect.
        HookOutcome::Handoff if run.point == HookPoint::Limit && !can_hand_off_at_limit(state) => return Outcome::Pass,
        HookOutcome::None
        | HookOutcome::Transformed { .. }
        | HookOutcome::Handled { .. }
        | HookOutcome::Modify { .. }
        | HookOutcome::Continue
        | HookOutcome::Escalate
        | HookOutcome::Handoff
        | HookOutcome::Compact
        | HookOutcome::Failed { .. } => {}
    }
    outcome_of(&run.answer)
}

/// Returns true if a handoff is useful although a limit was reached. The only such case is a model call that costs more
/// than the remaining money, because a call with the shorter prompt of the continuation can still be affordable. Any
/// other limit would stop the continuation at once, because the continuation inherits the limit.
pub(in crate::machine) fn can_hand_off_at_limit(state: &ThreadState) -> bool {
    state.cost.turns > 0 && state.limit.as_ref().is_some_and(|hit| hit.at == Node::Model)
}

/// Applies the failure of an `input` hook to the waiting message with this id. The prompt of a queued message fails
/// when it starts. A message with the delivery `NextTurn` is held until the user submits it again. Returns false if no
/// message with this id waits. The failure then ends the current prompt or the run.
fn fail_waiting_message(state: &mut ThreadState, id: &str, error: &str) -> bool {
    let Some(chat) = &mut state.chat else { return false };
    if let Some(message) = chat.queue.iter_mut().find(|message| message.id == id) {
        message.failure = Some(error.to_owned());
        return true;
    }
    let Some(at) = chat.next_turn.iter().position(|message| message.id == id) else { return false };
    chat.held.extend(chat.next_turn.remove(at));
    true
}

/// Applies the recorded answer of the `input` hooks to the message that resumed the thread. A hook can change the
/// message. If a hook handles the message itself, the thread ends. Ignores the answers for queued messages, because the
/// event `user_input` applies those answers.
fn screened(state: &mut ThreadState, run: &HookPointRun) {
    if run.subject.as_deref() != Some(RESUME_SUBJECT) {
        return;
    }
    state.conversation.resume_screened = true;
    match (&run.answer, &mut state.continues) {
        (HookOutcome::Transformed { text, images }, Some(continues)) => {
            continues.message = Some(text.clone());
            if let (Some(images), Some(launch)) = (images, &mut state.launch) {
                Arc::make_mut(launch).images.clone_from(images);
            }
        }
        (HookOutcome::Handled { reply }, _) => {
            let message = reply.clone().unwrap_or_else(|| "an `input` hook handled the message".to_owned());
            state.stop = Some(EarlyEnd { status: Status::Completed, code: "handled".into(), message });
        }
        _ => {}
    }
}

/// Removes the last reply from the conversation if the reply has no calls, so that the next request equals the last
/// request. A reply with calls stays, because its calls have already had effects.
fn withdraw_text_reply(state: &mut ThreadState) {
    let messages = &mut state.conversation.messages;
    if state.calls.list.is_empty() && messages.last().is_some_and(|last| matches!(**last, Message::Assistant { .. })) {
        messages.pop();
    }
}

/// Excludes all replies so far from the result of the thread, because a hook refused the last of them.
fn deny_replies(state: &mut ThreadState) {
    state.conversation.cut_text.clear();
    state.conversation.denied = state.conversation.messages.len();
}

/// Stops the thread if the hooks of the point answered `terminate`. At a limit or an error, an answer with neither
/// status nor message changes nothing, because the limit or the error determines both.
fn stop_at_point(state: &mut ThreadState, run: &HookPointRun) {
    let HookOutcome::Terminate { status, error, .. } = &run.answer else { return };
    let silent = status.is_none() && error.is_none();
    if silent && matches!(run.point, HookPoint::Limit | HookPoint::Error) {
        return;
    }
    stop(state, &run.answer);
}

fn stop(state: &mut ThreadState, answer: &HookOutcome) {
    let HookOutcome::Terminate { status, error, .. } = answer else { return };
    state.stop = Some(early_end(state, *status, error.as_deref().unwrap_or("a hook ended the thread")));
}

/// Returns the end that the answer `terminate` causes. The code of the end is the code of the limit or error at which
/// the hook ran, else `terminated`.
fn early_end(state: &ThreadState, status: Option<Status>, message: &str) -> EarlyEnd {
    let known = state.limit.as_ref().map(|hit| hit.limit_code.clone());
    let code = known.or_else(|| state.failed.as_ref().map(|f| f.classification.name.clone()));
    EarlyEnd {
        status: status.unwrap_or(Status::Error),
        code: code.unwrap_or_else(|| "terminated".into()),
        message: message.to_owned(),
    }
}

/// Applies the changes of a `tool_result` hook to the result for the model.
fn modified(state: &mut ThreadState, run: &HookPointRun) {
    let Some(call) = call(state, run) else { return };
    let id = call.call.id.clone();
    let Some(result) = call.result.as_mut() else { return };
    result.seen.insert(HookPoint::ToolResult);
    let HookOutcome::Modify { content, is_error, details } = &run.answer else { return };
    if let Some(value) = content {
        result.content = if let Value::String(text) = value { text.clone() } else { value.to_string() };
    }
    if let Some(is_error) = is_error {
        result.is_error = *is_error;
    }
    if let Some(details) = details {
        result.details = details.clone();
    }
    let (new, failed) = (result.content.clone(), result.is_error);
    let is_result = |message: &Message| matches!(message, Message::ToolResult { call_id, .. } if *call_id == id);
    if let Some(result) = state.conversation.messages.iter_mut().rev().find(|message| is_result(message)) {
        result.edit(|message| {
            if let Message::ToolResult { content, is_error, .. } = message {
                *content = new;
                *is_error = failed;
            }
        });
    }
}
