//! Conversion of signals to the events that record them.

use rye_compiler::hook::HookPoint;
use rye_compiler::plan::{ApprovalOrigin, Plan, PlanMode};
use rye_compiler::semantics::money::Nanos;
use serde_json::{Value, json};

use super::apply::limit_of;
use super::approval_raise::{ApprovalRaise, approval_raise};
use super::screen::{accept_new, accept_screened, command_events};
use super::signal::{CallAnswer, Fact, HookChild, InterruptedReply, Signal, SpawnResult, ToolFinished};
use super::state::{Attempt, CallPhase, CallState, ThreadState};
use super::step::{
    INTERRUPTED, answer_event, duration_limit, interrupted_continuation, interrupted_start, interruption_events,
    reported_settlement, settlement,
};
use super::walk::{StepResult, advance};
use crate::event::{
    Approval, ApprovalGiven, AttemptFailed, Checkpoint, ChildEnded, ChildSpawned, CognitionOut, Compacted,
    ControlMessage, Delivery, EventBody, FailureClassification, HookOutcome, HookPointRun, HookVerdict, ImpliedRaise,
    LimitHit, LimitScope, PlanBound, ReceivedMessage, Recovered, Reserved, ResultKind, RetractedInput, SessionNamed,
    Settled, ShellRan, ToolCallResult, UserInput,
};
use crate::exchange::{CallError, DEADLINE_CODE, FailedStage, Reply, StopReason, Usage};
use crate::message::{Message, reply_text};
use crate::retry::{self, SeededJitter};

pub(super) fn absorb(plan: &Plan, state: &ThreadState, signal: Signal) -> Vec<EventBody> {
    let mut events = record_fact(plan, state, signal);
    for event in &mut events {
        if let EventBody::Limit(hit) = event {
            set_limit_scope(plan, state, hit);
        }
    }
    insert_checkpoint(state, &mut events);
    events
}

/// Sets the part of a chat that a reached limit bounds: the current prompt or the session. The amounts of a limit of the
/// session become totals of the session. The scope stays `None` in a run, and for a limit that no message can raise,
/// such as `depth`.
fn set_limit_scope(plan: &Plan, state: &ThreadState, hit: &mut LimitHit) {
    let Some(name) = hit.limit_code.strip_suffix("_exceeded").filter(|_| state.chat.is_some()) else { return };
    let (Some(prompt), Some(session)) = (limit_of(state.limits, name), limit_of(state.thread_limits, name)) else {
        return;
    };
    if prompt < session {
        hit.scope = Some(LimitScope::Prompt);
        return;
    }
    hit.scope = Some(LimitScope::Session);
    // A later thread of a session starts with the rest of the session's limits.
    let in_earlier_threads = match (&state.continues, limit_of(plan.thread_limits(), name)) {
        (Some(_), Some(whole)) => whole.saturating_sub(session),
        (Some(_) | None, _) => 0,
    };
    let more = state.used_before_prompt(name).saturating_add(in_earlier_threads);
    for amount in [&mut hit.current_value, &mut hit.current_max] {
        *amount = add_to_amount(name, amount, more);
    }
}

/// Returns an amount of a reached limit, increased by `more` (nano-dollars for `spend`).
fn add_to_amount(name: &str, amount: &Value, more: u64) -> Value {
    if name == "spend" {
        let sum = Nanos::from_json(amount).map_or(more, |amount| amount.to_u64().saturating_add(more));
        return Nanos::from_u64(sum).to_json();
    }
    amount.as_u64().map_or(more, |amount| amount.saturating_add(more)).into()
}

/// Inserts a checkpoint of the finished turn before the event that starts the next attempt or ends the thread, unless
/// the turn already has a checkpoint. The journal adds the signature.
fn insert_checkpoint(state: &ThreadState, events: &mut Vec<EventBody>) {
    let turn = state.cost.turns;
    if turn <= state.checkpoint_turn {
        return;
    }
    let over = |body: &EventBody| matches!(body, EventBody::AttemptIntended(_) | EventBody::Ended(_));
    if let Some(at) = events.iter().position(over) {
        events.insert(at, EventBody::Checkpoint(Checkpoint { turn, key_id: String::new(), signature: String::new() }));
    }
}

fn record_fact(plan: &Plan, state: &ThreadState, signal: Signal) -> Vec<EventBody> {
    let at = signal.at;
    if let Some(ended) = &state.ended {
        // Only a parked thread (suspended or idle) can be recovered after its end.
        if !ended.status.is_parked() || !matches!(signal.fact, Fact::Recovered { .. }) {
            return Vec::new();
        }
    }
    match signal.fact {
        Fact::Tick => match advance(plan, state, at).decision {
            StepResult::Write(events) => events,
            StepResult::Do(_) | StepResult::Finished(_) => Vec::new(),
        },
        Fact::Opened { launch, plan_id, continues } => {
            let mut events = vec![
                EventBody::Opened(launch),
                EventBody::PlanBound(PlanBound {
                    plan_id,
                    observes: observed_points(plan),
                    chat: plan.mode == PlanMode::Chat,
                }),
            ];
            events.extend(continues.map(|continues| EventBody::Continues(*continues)));
            events
        }
        Fact::Recovered { owner, cut_bytes } => recovered(plan, state, owner, cut_bytes),
        Fact::Reserved => events_of_reservation(state),
        Fact::NotReserved { remaining } => not_reserved(state, remaining),
        Fact::ModelReplied(reply) => events_of_reply(plan, state, *reply),
        Fact::ModelFailed(error) => failed(plan, state, *error, at),
        Fact::ToolFinished(finished) => tool_finished(state, *finished),
        Fact::ToolInterrupted(cut) => tool_interrupted(state, *cut),
        Fact::ReplyInterrupted(reply) => reply_interrupted(plan, state, &reply),
        Fact::Spawned(children) => children.into_iter().flat_map(|child| spawned(state, child, at)).collect(),
        Fact::ChildEnded { spawn, thread_id, status, cost, answer } => {
            let Some(child) = state.children.get(&spawn) else { return Vec::new() };
            let mut events = Vec::new();
            if child.ended.is_none() {
                events.push(EventBody::ChildEnded(ChildEnded { spawn, thread_id, status, cost }));
            }
            // A detached child needs no answer here: the call that created it was answered at the spawn.
            if let (Some(answer), Some(index)) = (answer.filter(|_| !child.detached), child.index) {
                let duration_ms = since(state, index, at);
                events.extend(tool_finished(state, ToolFinished { index, answer: *answer, duration_ms }));
            }
            events
        }
        Fact::HooksRan { point, subject, considered, children, answer, objects, kept, expansions } => {
            let mut events: Vec<EventBody> = kept.into_iter().map(EventBody::StateSet).collect();
            events.extend(hook_children(state, children));
            if point == HookPoint::Command {
                events.extend(command_events(plan, state, subject.as_deref(), &considered, &answer));
                return events;
            }
            let mut run = HookPointRun { point, subject, considered, answer: *answer, objects };
            bound_retries(plan, state, &mut run);
            let accepts = point == HookPoint::Input;
            let input = accepts.then(|| accept_screened(state, run.subject.as_deref(), &run.answer, expansions));
            events.push(EventBody::HookPoint(Box::new(run)));
            events.extend(input.flatten());
            events
        }
        Fact::ShellRan { id, answer, exit_code, duration_ms } => shell_ran(state, &id, *answer, exit_code, duration_ms),
        Fact::Answered(answer) => events_of_approver(plan, state, answer, at),
        Fact::CannotRun(reason) => {
            let mut events = events_of_answer(plan, state, Approval::PolicyRefused, None, at);
            for event in &mut events {
                if let EventBody::ApprovalGiven(given) = event {
                    given.cannot_run = Some(reason.clone());
                }
            }
            events
        }
        Fact::Mail { id, message } => record_message(plan, state, id, message, at),
        Fact::FileChanged(change) => vec![EventBody::FileChanged(change)],
    }
}

/// Returns the event of an answer to the open approval request. Returns no event if the request is answered already, or
/// if `question` is the number of another request.
fn events_of_answer(
    plan: &Plan,
    state: &ThreadState,
    answer: Approval,
    question: Option<u64>,
    at: i64,
) -> Vec<EventBody> {
    let open = state.question.as_ref().map(|question| question.seq);
    if question.is_some() && question != open {
        return Vec::new();
    }
    match advance(plan, state, at).decision {
        StepResult::Do(super::Effect::Ask { origin, .. }) => {
            vec![EventBody::ApprovalGiven(ApprovalGiven { origin, answer, cannot_run: None })]
        }
        StepResult::Do(_) | StepResult::Write(_) | StepResult::Finished(_) => Vec::new(),
    }
}

/// Returns the events that record an approver's answer to the open approval request.
fn events_of_approver(plan: &Plan, state: &ThreadState, answer: Approval, at: i64) -> Vec<EventBody> {
    let mut events = events_of_answer(plan, state, answer, None, at);
    raise_approved_limit(state, &mut events);
    events
}

/// Adds the raise of a limit that an approver's answer implies, unless a message has already raised the limit. If the
/// limit cannot be raised, changes the answer to a refusal, because the thread would reach the limit again. An
/// `approve` message without `raises` implies no raise, because its sender raises the limit with a separate message.
fn raise_approved_limit(state: &ThreadState, events: &mut Vec<EventBody>) {
    let Some(EventBody::ApprovalGiven(given)) = events.first_mut() else { return };
    if given.origin != ApprovalOrigin::Limit || !given.answer.is_approved() {
        return;
    }
    match approval_raise(state) {
        ApprovalRaise::NotNeeded => {}
        ApprovalRaise::Needed(ImpliedRaise { limit, value }) => {
            let id = format!("approval-{}", state.question.as_ref().map_or(0, |question| question.seq));
            let message = ControlMessage::Raise { limit, value };
            events.insert(0, EventBody::Mail(ReceivedMessage { id, message }));
        }
        ApprovalRaise::Impossible => given.answer = Approval::Refused,
    }
}

/// Returns the events that record the children of hooks. A child that is already recorded is left out, because hooks
/// run again after a crash.
fn hook_children(state: &ThreadState, children: Vec<HookChild>) -> Vec<EventBody> {
    let fresh = children.into_iter().filter(|child| !state.hook_children.contains(&child.spawn));
    fresh
        .flat_map(|HookChild { spawn, thread_id, spend, status, cost }| {
            let spawned = ChildSpawned { spawn, thread_id: thread_id.clone(), spend };
            let ended = ChildEnded { spawn, thread_id, status, cost };
            [EventBody::ChildSpawned(spawned), EventBody::ChildEnded(ended)]
        })
        .collect()
}

/// Limits the retries that `error` hooks request to the maximum number in the retry table. Beyond this maximum, the
/// failure is final.
fn bound_retries(plan: &Plan, state: &ThreadState, run: &mut HookPointRun) {
    let retries = matches!(run.answer, HookOutcome::Retry { .. });
    let (HookPoint::Error, None, true) = (run.point, &run.subject, retries) else { return };
    let Some(failed) = &state.failed else { return };
    let failures = state.failures.saturating_sub(state.failures_before_fallback);
    let most = retry::max_retries(plan, &failed.error, failures).max(1);
    if state.hook_retries < most {
        return;
    }
    run.answer = HookOutcome::None;
    if let Some(hook) = run.considered.iter_mut().rfind(|hook| hook.verdict == HookVerdict::Fired) {
        hook.because = Some(format!("retry limit reached: failed retries of this turn: {most}"));
    }
}

/// Returns the hook points that observe recorded events and at which the plan has a live hook.
fn observed_points(plan: &Plan) -> Vec<HookPoint> {
    use HookPoint as P;
    let points = [
        P::ToolExecutionStart,
        P::ToolExecutionEnd,
        P::CognitionIn,
        P::CognitionOut,
        P::ToolCallResult,
        P::ThreadResumed,
    ];
    points.into_iter().filter(|point| super::step::has_hooks(plan, *point)).collect()
}

fn events_of_reservation(state: &ThreadState) -> Vec<EventBody> {
    let Some(attempt) = state.attempt.as_ref().filter(|attempt| !attempt.reserved) else { return Vec::new() };
    vec![EventBody::Reserved(Reserved { turn: attempt.turn, attempt: attempt.number, amount: attempt.worst_case })]
}

/// Returns the events of a reservation that the ledger refused, because siblings or ancestors spent the money. The
/// attempt is not made. `remaining` is the amount that can still be reserved, in nano-dollars.
fn not_reserved(state: &ThreadState, remaining: u64) -> Vec<EventBody> {
    let Some(attempt) = state.attempt.as_ref().filter(|attempt| !attempt.reserved) else { return Vec::new() };
    let most = state.limits.spend.saturating_sub(state.before_prompt().0.spend);
    let given_up = Settled {
        turn: attempt.turn,
        attempt: attempt.number,
        amount: 0,
        usage: Usage::default(),
        unknown_outcome: false,
        overspent: 0,
    };
    vec![
        EventBody::Settled(given_up),
        EventBody::Limit(crate::event::LimitHit {
            at: rye_compiler::plan::Node::Model,
            limit_code: "spend_exceeded".into(),
            current_value: crate::thread::dollars(most.saturating_sub(remaining)),
            current_max: crate::thread::dollars(most),
            scope: None,
        }),
    ]
}

fn events_of_reply(plan: &Plan, state: &ThreadState, reply: Reply) -> Vec<EventBody> {
    let Some(attempt) = state.attempt.as_ref().filter(|attempt| attempt.reserved) else { return Vec::new() };
    let settled = settlement(plan, &attempt.settlement(reply.usage, reply.uncounted, state.on_fallback));
    if attempt.compacts {
        return events_of_summary(plan, state, attempt, &reply, settled);
    }
    let out = CognitionOut {
        turn: attempt.turn,
        attempt: attempt.number,
        content: reply.content,
        usage: reply.usage,
        uncounted: reply.uncounted,
        stop: reply.stop,
        model: reply.model,
        unread: reply.unread,
    };
    vec![EventBody::CognitionOut(Box::new(out)), settled]
}

/// Returns the events that replace the conversation with the summary in `reply`, or the events of a failed attempt if
/// the summary is empty or incomplete.
fn events_of_summary(
    plan: &Plan,
    state: &ThreadState,
    attempt: &Attempt,
    reply: &Reply,
    settled: EventBody,
) -> Vec<EventBody> {
    let summary = reply_text(&reply.content).trim().to_owned();
    // A cut summary covers only a part of the conversation, and the rest would be lost.
    let is_whole = matches!(reply.stop, StopReason::EndTurn | StopReason::ToolUse);
    if summary.is_empty() || !is_whole {
        let message = format!("the model returned no complete summary (stop reason `{}`)", reply.stop.as_str());
        let error = CallError::new(FailedStage::Protocol, message);
        let (turn, attempt) = (attempt.turn, attempt.number);
        let classification =
            FailureClassification { name: "no_summary".into(), category: "permanent".into(), retryable: false };
        let failed = AttemptFailed { turn, attempt, error, classification, retry_delay_ms: None, fallback: None };
        return vec![EventBody::AttemptFailed(Box::new(failed)), settled];
    }
    let keep = super::retained_messages::count_retained_messages(plan, state);
    vec![settled, EventBody::Compacted(Compacted { through: state.events.saturating_sub(1), summary, keep })]
}

fn failed(plan: &Plan, state: &ThreadState, error: CallError, at: i64) -> Vec<EventBody> {
    let Some(attempt) = state.attempt.as_ref().filter(|attempt| attempt.reserved) else { return Vec::new() };
    let seed = state.launch.as_ref().map_or(0, |launch| launch.seed);
    let draw = SeededJitter::new(seed, attempt.turn, attempt.number);
    let failures = state.failures.saturating_sub(state.failures_before_fallback);
    let (classification, retry_delay_ms) = retry::classify_failure(plan, &error, failures, draw, at);
    // If the wait would not end before the deadline, or if the call was cut at the deadline, the duration limit stops
    // the thread at once.
    let remaining_ms = state.remaining_ms_at(at).unwrap_or(u64::MAX);
    let is_cut = error.code.as_deref() == Some(DEADLINE_CODE);
    let overdue_ms = retry_delay_ms.filter(|delay| *delay >= remaining_ms).or(is_cut.then_some(0));
    let retry_delay_ms = retry_delay_ms.filter(|_| overdue_ms.is_none());
    let fallback = plan.model.fallback.as_ref().filter(|_| {
        // Another model can help only if this model is unavailable, not if the request is invalid.
        retry_delay_ms.is_none()
            && overdue_ms.is_none()
            && !attempt.compacts
            && !state.on_fallback
            && retry::is_unavailable(&error, &classification)
    });
    let fallback = fallback.map(|model| format!("{}/{}", model.provider, model.id));
    // A failed request for a summary is not repeated.
    let retry_delay_ms = retry_delay_ms.filter(|_| !attempt.compacts);
    let settled = settlement(plan, &attempt.settlement_after_failure(&error, state.on_fallback));
    let (turn, attempt, compacts) = (attempt.turn, attempt.number, attempt.compacts);
    let failed = AttemptFailed { turn, attempt, error, classification, retry_delay_ms, fallback };
    let mut events = vec![EventBody::AttemptFailed(Box::new(failed)), settled];
    // If the compaction of an idle chat fails, no limit is recorded: the chat waits for the next prompt.
    let ends_prompt = overdue_ms.filter(|_| !(compacts && state.is_idle()));
    events.extend(ends_prompt.map(|delay| duration_limit(state, at, delay)));
    events
}

fn tool_finished(state: &ThreadState, finished: ToolFinished) -> Vec<EventBody> {
    let Some(call) = state.calls.list.get(finished.index).filter(|call| call.phase != CallPhase::Answered) else {
        return Vec::new();
    };
    let ToolFinished { index, answer, duration_ms } = finished;
    let content = repeated(state, call, &answer).unwrap_or(answer.content);
    vec![EventBody::ToolCallResult(Box::new(ToolCallResult {
        turn: state.cost.turns,
        index,
        group_end: state.calls.end,
        call_id: call.call.id.clone(),
        name: call.call.name.clone(),
        why: if answer.was_refused { ResultKind::Refused } else { ResultKind::Ran },
        content,
        is_error: answer.is_error,
        details: answer.details,
        bytes: answer.bytes,
        object: answer.object,
        duration_ms,
    }))]
}

/// Returns the events of a call that was interrupted after its program had written output.
fn tool_interrupted(state: &ThreadState, cut: ToolFinished) -> Vec<EventBody> {
    let mut events = tool_finished(state, cut);
    for event in &mut events {
        if let EventBody::ToolCallResult(result) = event {
            result.why = ResultKind::Interrupted;
        }
    }
    events
}

/// Returns the events after a reply was interrupted. If the user interrupted a prompt, the events end the prompt.
/// Otherwise (for example, if the reply is a summary), returns only the settlement of the reported usage; empty if the
/// provider reported no usage.
fn reply_interrupted(plan: &Plan, state: &ThreadState, reply: &InterruptedReply) -> Vec<EventBody> {
    let is_reply = state.attempt.as_ref().is_some_and(|attempt| !attempt.compacts);
    let has_prompt = state.chat.as_ref().is_some_and(|chat| chat.current.is_some());
    let ends = is_reply && has_prompt && state.is_interrupted() && !state.mailbox.killed && !state.mailbox.cancelled;
    if ends {
        interruption_events(plan, state, reply)
    } else {
        reported_settlement(plan, state, reply.usage).into_iter().collect()
    }
}

/// Minimum size in bytes of a result that is replaced by a reference if an equal result was sent before. A shorter
/// result is sent again.
const MIN_REFERENCE_BYTES: usize = 512;

/// Returns the text that refers to an earlier result with the same content; `None` if there is no such result, or if
/// the content is too short for a reference.
fn repeated(state: &ThreadState, call: &CallState, answer: &CallAnswer) -> Option<String> {
    if answer.content.len() < MIN_REFERENCE_BYTES {
        return None;
    }
    state.conversation.messages.iter().find_map(|message| match &**message {
        Message::ToolResult { call_id, name, content, is_error }
            if *content == answer.content && *is_error == answer.is_error && *call_id != call.call.id =>
        {
            Some(format!("the same as the result of {name} above (call {call_id})"))
        }
        Message::ToolResult { .. }
        | Message::User { .. }
        | Message::Assistant { .. }
        | Message::Custom { .. }
        | Message::Bash { .. }
        | Message::CompactionSummary { .. }
        | Message::BranchSummary { .. } => None,
    })
}

/// Returns the events that record the creation or the refusal of a child. If the child is detached or was refused, the
/// events include an answer to the call that requested the child.
fn spawned(state: &ThreadState, child: SpawnResult, at: i64) -> Vec<EventBody> {
    match child {
        SpawnResult::Made { spawn, thread_id, spend, pid } => {
            let Some(known) = state.children.get(&spawn) else { return Vec::new() };
            let mut events = Vec::new();
            if known.thread_id.is_none() {
                let thread_id = thread_id.clone();
                events.push(EventBody::ChildSpawned(ChildSpawned { spawn, thread_id, spend }));
            }
            if let Some(index) = known.index.filter(|_| known.detached) {
                let text = json!({"thread_id": thread_id, "status": "running", "pid": pid}).to_string();
                let (answer, duration_ms) = (CallAnswer::text(text, false), since(state, index, at));
                events.extend(tool_finished(state, ToolFinished { index, answer, duration_ms }));
            }
            events
        }
        SpawnResult::Refused { spawn, reason, hit } => {
            let known = state.children.get(&spawn).filter(|child| child.thread_id.is_none());
            let call =
                known.and_then(|child| child.index).and_then(|index| Some((index, state.calls.list.get(index)?)));
            let Some((index, call)) = call else { return Vec::new() };
            let answer = answer_event(state, index, state.calls.end, call, ResultKind::Refused, reason);
            hit.map(EventBody::Limit).into_iter().chain([answer]).collect()
        }
    }
}

/// Returns the milliseconds from the start of the call with this index to `at`; 0 if the call has not started.
fn since(state: &ThreadState, index: usize, at: i64) -> u64 {
    let began = state.calls.list.get(index).and_then(|call| call.started_at).unwrap_or(at);
    u64::try_from(at.saturating_sub(began)).unwrap_or(0)
}

fn record_message(plan: &Plan, state: &ThreadState, id: String, message: ControlMessage, at: i64) -> Vec<EventBody> {
    let is_repeated = state.mailbox.received.contains(&id);
    if is_repeated || (message == ControlMessage::Interrupt && state.is_settled_chat()) {
        return Vec::new();
    }
    let answer = match &message {
        ControlMessage::Approve { yes, question, message, raises } => {
            let answer = if *yes { Approval::Approved } else { Approval::Refused };
            let mut events = events_of_answer(plan, state, answer, *question, at);
            if *raises {
                raise_approved_limit(state, &mut events);
            }
            if let Some(text) = message {
                events.extend(accept_new(plan, state, &id, &UserInput::text(text), Delivery::Steer));
            }
            events
        }
        ControlMessage::Submit { input, delivery } => accept_new(plan, state, &id, input, *delivery),
        ControlMessage::Steer { text } => accept_new(plan, state, &id, &UserInput::text(text), Delivery::Steer),
        ControlMessage::FollowUp { text } => accept_new(plan, state, &id, &UserInput::text(text), Delivery::FollowUp),
        ControlMessage::Interrupt => interrupted_start(plan, state).unwrap_or_default(),
        ControlMessage::Retract { input } => retracted(state, input.as_deref()),
        ControlMessage::Name { name } if state.chat.is_some() => {
            vec![EventBody::Named(SessionNamed { name: name.clone() })]
        }
        ControlMessage::Cancel
        | ControlMessage::Kill
        | ControlMessage::Handoff
        | ControlMessage::Name { .. }
        | ControlMessage::Mode { .. }
        | ControlMessage::Shell { .. }
        | ControlMessage::Compact { .. }
        | ControlMessage::Replan { .. }
        | ControlMessage::Fork { .. }
        | ControlMessage::Close
        | ControlMessage::Raise { .. }
        | ControlMessage::Unreadable { .. } => Vec::new(),
    };
    [EventBody::Mail(ReceivedMessage { id, message })].into_iter().chain(answer).collect()
}

/// Returns the event that records the end of a command of the user; empty if the end is already recorded.
fn shell_ran(state: &ThreadState, id: &str, answer: CallAnswer, exit_code: i32, duration_ms: u64) -> Vec<EventBody> {
    let commands = state.chat.iter().flat_map(|chat| &chat.commands);
    let Some(command) = { commands }.find(|command| command.id == id) else { return Vec::new() };
    vec![EventBody::ShellRan(Box::new(ShellRan {
        id: command.id.clone(),
        command: command.command.clone(),
        exit_code,
        output: answer.content,
        object: answer.object,
        excluded: command.excluded,
        duration_ms,
    }))]
}

/// Returns the events that withdraw the queued message with the id `input`, or all queued messages if `input` is
/// `None`. The message of a started prompt cannot be withdrawn.
fn retracted(state: &ThreadState, input: Option<&str>) -> Vec<EventBody> {
    let due = super::step::undelivered_prompt(state).map(|message| message.id.as_str());
    let held = state.chat.iter().flat_map(|chat| &chat.held);
    let messages = state.queued_messages().chain(held).map(|message| &message.id);
    let chosen = messages.filter(|id| Some(id.as_str()) != due && input.is_none_or(|input| input == id.as_str()));
    chosen.map(|id| EventBody::Retracted(RetractedInput { input: id.clone() })).collect()
}

/// Returns the events to record after a new owner has acquired the thread: interrupted attempts are settled, and
/// interrupted calls are answered unless the calls may run again.
fn recovered(plan: &Plan, state: &ThreadState, owner: String, cut_bytes: u64) -> Vec<EventBody> {
    let mut events = vec![EventBody::Recovered(Recovered { owner, cut_bytes })];
    if state.chat.as_ref().is_some_and(|chat| chat.current.is_some()) && state.ended.is_none() {
        // An interrupted chat continues only when the user sends a message.
        events.extend(interruption_events(plan, state, &InterruptedReply::default()));
        return events;
    }
    if state.ended.is_none() {
        events.extend(interrupted_continuation(state).into_iter().flatten());
    }
    if let Some(attempt) = &state.attempt {
        events.push(EventBody::Settled(Settled {
            turn: attempt.turn,
            attempt: attempt.number,
            amount: attempt.worst_case,
            usage: Usage::default(),
            unknown_outcome: true,
            overspent: 0,
        }));
    }
    for (index, call) in state.calls.list.iter().enumerate() {
        let again = match super::gate::authorize(plan, state, index) {
            super::gate::GateDecision::Run(allowed) => allowed.idempotent,
            super::gate::GateDecision::Spawn(_) | super::gate::GateDecision::Keep(_) => true,
            super::gate::GateDecision::Return
            | super::gate::GateDecision::NeedsApproval { .. }
            | super::gate::GateDecision::Answer { .. } => false,
        };
        if call.phase == CallPhase::Started && !again {
            let end = state.calls.end;
            events.push(answer_event(state, index, end, call, ResultKind::Interrupted, INTERRUPTED.into()));
        }
    }
    events
}
