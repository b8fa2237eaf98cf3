//! The steps at the end of a thread: they determine the end status, run the hooks of the end and return the last event.

use std::sync::Arc;

use rye_compiler::hook::HookPoint;
use rye_compiler::plan::{Node, Outcome, Plan};
use serde_json::{Map, Value};

use super::super::outputs;
use super::super::walk::{StepResult, WalkContext};
use super::{INTERRUPTED, has_hooks, hook_run};
use crate::event::{AttemptFailed, Ended, EventBody};
use crate::exchange::StopReason;
use crate::machine::effect::Effect;
use crate::machine::facts;
use crate::machine::state::{EarlyEnd, ReplyDefect, ThreadState};
use crate::retry;
use crate::thread::{RunError, Status};

/// Runs the `after_complete` hooks, then the hooks of the end status, then writes the last event. A thread that is
/// killed, suspended or idle runs no hooks.
pub(in crate::machine) fn finish(walk: &WalkContext<'_>) -> StepResult {
    let (plan, state) = (walk.plan, walk.state);
    let ended = end_result(walk);
    if !matches!(ended.status, Status::Killed | Status::Suspended | Status::Idle) {
        let own = match ended.status {
            Status::Completed => Some(HookPoint::ThreadCompleted),
            Status::Error => Some(HookPoint::ThreadError),
            Status::Cancelled => Some(HookPoint::ThreadCancelled),
            Status::Created
            | Status::Running
            | Status::Killed
            | Status::Continued
            | Status::Suspended
            | Status::Idle => None,
        };
        let due = |point: &HookPoint| has_hooks(plan, *point) && !state.hook_points_run.contains(point);
        if let Some(point) = [Some(HookPoint::AfterComplete), own].into_iter().flatten().find(due) {
            let mut facts = facts::point_facts(plan, state, point, None);
            facts.insert("status".into(), ended.status.as_str().into());
            if point != HookPoint::AfterComplete {
                for (name, value) in ended_fields(&ended) {
                    facts.entry(name).or_insert(value);
                }
            }
            let mut effect = hook_run(plan, state, point, None, facts);
            if let Effect::RunHooks(run) = &mut effect {
                run.ended = Some(Arc::new(ended));
            }
            return StepResult::Do(effect);
        }
    }
    StepResult::Write(vec![EventBody::Ended(Arc::new(ended))])
}

/// Returns the fields of the event `ended`, as facts for the hooks at the end of the thread.
fn ended_fields(ended: &Ended) -> Map<String, Value> {
    let Ok(Value::Object(fields)) = serde_json::to_value(ended) else { return Map::new() };
    fields
}

/// Returns the living children that are cancelled when the thread ends with this status; `None` if the children
/// continue to run. After an error, a cancellation or a kill, the children are cancelled. After completion, the setting
/// `child_policy.on_end` of `agent/resilience` determines whether they are cancelled. After any other end, the children
/// continue to run.
pub(in crate::machine) fn children_to_cancel(plan: &Plan, state: &ThreadState, status: Status) -> Option<Vec<String>> {
    let cancels = match status {
        Status::Error | Status::Cancelled | Status::Killed => true,
        Status::Completed => plan.settings.values().cancels_children_on_completion,
        Status::Created | Status::Running | Status::Continued | Status::Suspended | Status::Idle => false,
    };
    cancels.then(|| state.living_children().filter_map(|(_, child)| child.thread_id.clone()).collect())
}

/// Maximum characters of a tool's error that the error message of the thread quotes.
const MAX_ERROR_CHARS: usize = 500;

/// Determines the end status, result and error of the thread.
pub(super) fn end_result(walk: &WalkContext<'_>) -> Ended {
    let (plan, state) = (walk.plan, walk.state);
    let called = state.launch.as_ref().filter(|launch| launch.call.is_some()).and(state.calls.list.first());
    let answer = called.and_then(|call| call.result.as_ref());
    // If the thread returned outputs, the result is the text of the reply that returned them, not the text of an
    // earlier reply.
    let text = || if state.returned.is_some() { state.final_text() } else { state.last_text() };
    let result = answer.map(|answer| answer.content.as_str().into()).or_else(text);
    let ended = |status, error| Ended {
        status,
        result,
        outputs: None,
        missing: Vec::new(),
        stop_reason: state.stop_reason.clone(),
        unread: state.conversation.unread.names(),
        error,
        cost: state.final_cost(),
    };
    let failed = |code: &str, message: String| Some(RunError { code: code.to_owned(), message });
    if state.mailbox.killed {
        return ended(Status::Killed, failed("killed", "the thread was killed".into()));
    }
    if let Some(stop) = &state.stop {
        return ended(stop.status, early_error(stop));
    }
    if let Some(returned) = &state.returned {
        let outputs = Some(returned.outputs.clone());
        return match &returned.error {
            Some(detail) => Ended { outputs, ..ended(Status::Error, failed("returned_error", detail.clone())) },
            None => Ended { outputs, ..ended(Status::Completed, None) },
        };
    }
    if walk.from == (Node::Inbox, Outcome::Cancelled) {
        return ended(Status::Cancelled, failed("cancelled", "the thread was cancelled".into()));
    }
    match walk.from {
        // A handoff cannot help: a new thread could not join its text with the text of the cut reply.
        (Node::Handoff, _) if !state.conversation.cut_text.is_empty() && !state.is_idle() => {
            let message = "the reply was cut at its output limit, and the context window has no room for the rest";
            return ended(Status::Error, failed(TRUNCATED_CODE, message.to_owned()));
        }
        (Node::Handoff, _) => {
            return Ended { cost: state.cost_before_continuation(), ..ended(Status::Continued, None) };
        }
        (Node::Ask(_), Outcome::Suspended) => return ended(Status::Suspended, None),
        (Node::Idle, Outcome::Closed) => {
            let Some(end) = state.chat.as_ref().and_then(|chat| chat.session_end.as_ref()) else {
                return ended(Status::Idle, None);
            };
            return ended(end.status, early_error(end));
        }
        _ => {}
    }
    if let Some(answer) = answer.filter(|answer| answer.is_error) {
        // The result holds the full text.
        let message: String = answer.content.chars().take(MAX_ERROR_CHARS).collect();
        let code = match (answer.ran, answer.content.as_str()) {
            (true, _) => "tool_error",
            (false, INTERRUPTED) => "interrupted",
            (false, _) => "not_run",
        };
        return ended(Status::Error, failed(code, message));
    }
    if let Some(hit) = &state.limit {
        let mut message = hit.describe();
        if let Some(failed) = state.failed.as_ref().filter(|_| hit.limit_code == "duration_seconds_exceeded") {
            message.push_str(&describe_last_failure(failed));
        }
        return ended(Status::Error, failed(&hit.limit_code, message));
    }
    if let Some(failure) = &state.failed {
        let message = &failure.error.message;
        let message = if failure.classification.name == retry::PROMPT_TOO_LONG {
            format!("the prompt is too long, even for a new thread with only the last messages: {message}")
        } else {
            message.clone()
        };
        return ended(Status::Error, failed(&failure.classification.name, message));
    }
    if called.is_some() {
        // A run of a single tool call returns no outputs.
        return ended(Status::Completed, None);
    }
    if let Some((code, message)) = reply_error(state) {
        return Ended { outputs: state.partial_outputs.clone(), ..ended(Status::Error, failed(code, message)) };
    }
    let partial = state.partial_outputs.as_ref();
    let missing = outputs::missing_names(&plan.interface.outputs, partial);
    let allowed = missing.is_empty() || state.launch.as_ref().is_some_and(|launch| launch.allow_missing_outputs);
    let (status, error) = if allowed {
        (Status::Completed, None)
    } else {
        let message = format!("the model did not return the required outputs: {}", missing.join(", "));
        (Status::Error, failed("missing_outputs", message))
    };
    Ended { outputs: partial.cloned(), missing, ..ended(status, error) }
}

/// Returns the error of an early end; `None` if the status of the end is not `error`.
fn early_error(end: &EarlyEnd) -> Option<RunError> {
    (end.status == Status::Error).then(|| RunError { code: end.code.clone(), message: end.message.clone() })
}

/// Describes the last failed attempt, for the message of a reached duration limit. The thread can have reached the
/// limit because it waited to repeat this attempt.
fn describe_last_failure(failed: &AttemptFailed) -> String {
    let header = failed.error.headers.iter().find(|(name, _)| name.starts_with("retry-after"));
    let wait = header.map(|(name, value)| format!(" ({name}: {value})")).unwrap_or_default();
    format!("; the last attempt failed: {}: {}{wait}", failed.classification.name, failed.error.message)
}

/// The error code of a thread whose last reply was cut before its end.
const TRUNCATED_CODE: &str = "output_truncated";

/// Returns the error of an incomplete final reply, as a code and a message; `None` if the reply is complete.
fn reply_error(state: &ThreadState) -> Option<(&'static str, String)> {
    let defect = state.reply_defect()?;
    let stop = state.stop_reason.as_ref().map_or("", StopReason::as_str);
    Some(match defect {
        ReplyDefect::Cut => (TRUNCATED_CODE, format!("the reply of the model is incomplete (stop reason `{stop}`)")),
        ReplyDefect::Empty => ("empty_reply", format!("the reply of the model holds no text (stop reason `{stop}`)")),
        ReplyDefect::NoCall => (
            "missing_call",
            format!("the reply of the model ended for a tool call but contains no call (stop reason `{stop}`)"),
        ),
        ReplyDefect::UnknownStop => {
            ("unknown_stop_reason", format!("the stop reason `{stop}` is unknown; the reply may be incomplete"))
        }
    })
}
