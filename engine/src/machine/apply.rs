//! The fold: applies each event to the state once. The state changes in no other way.

use std::collections::BTreeSet;
use std::sync::Arc;

use rye_compiler::plan::{ApprovalOrigin, Node, Outcome, PlanLimits};

use super::state::{
    AcceptedReturn, Attempt, CallPhase, CallResult, CallState, ChatState, ChildState, EarlyEnd, MeasuredTokens,
    OpenApprovalRequest, ReplyCalls, RunPosition, ThreadState,
};
use super::{request, state_store};
use crate::event::{
    Approval, ApprovalGiven, AttemptFailed, AttemptIntended, ChildEnded, CognitionIn, CognitionOut, ControlMessage,
    Delivery, Event, EventBody, LimitHit, MessageSource, Opened, ResultKind, Settled, ToolCallResult, UserInput,
};
use crate::exchange::StopReason;
use crate::message::{ContentBlock, Message, SharedMessage, reply_text};
use crate::retry;
use crate::thread::Status;

mod chat;
mod compaction;
mod hooks;
mod observe;

pub(super) use hooks::{HOOK_FAILED_CODE, can_hand_off_at_limit};

/// Folds one event into the state.
pub fn apply(state: &mut ThreadState, event: &Event) {
    if state.events == 0 {
        state.clock.since = event.ts;
        state.clock.started_at = event.ts;
    }
    // A clock that was set back must not count owned time twice.
    let before = state.clock.now;
    state.clock.now = if matches!(event.body, EventBody::Recovered(_)) { event.ts } else { event.ts.max(before) };
    observe::queue_observations(state, event);
    match &event.body {
        EventBody::Opened(opened) => open(state, opened),
        EventBody::PlanBound(bound) => {
            state.plan_id.clone_from(&bound.plan_id);
            state.observes = bound.observes.iter().copied().collect();
            state.chat = bound.chat.then(ChatState::default);
        }
        EventBody::Continues(continues) => chat::on_continues(state, continues),
        EventBody::SystemPrompt(prompt) => state.conversation.system = Some(Arc::clone(&prompt.text)),
        EventBody::CognitionIn(input) => on_user_message(state, input),
        EventBody::AttemptIntended(intended) => attempt(state, intended),
        EventBody::Reserved(reserved) => {
            // The commit that makes a reservation also books the earlier settlements.
            state.unsettled.clear();
            if let Some(attempt) = state.attempt.as_mut().filter(|a| a.number == reserved.attempt) {
                attempt.reserved = true;
            }
        }
        EventBody::CognitionOut(reply) => on_reply(state, reply),
        EventBody::AttemptFailed(failed) => attempt_failed(state, failed, event.ts),
        EventBody::Settled(settled) => settle(state, settled),
        EventBody::HookPoint(run) => hooks::on_hook_point(state, run, event.ts),
        EventBody::ToolStarted(started) => {
            begin(state, started.index, started.group_end, CallPhase::Started, event.ts);
        }
        EventBody::ToolCallResult(result) => apply_tool_result(state, result),
        EventBody::ChildIntended(child) => {
            begin(state, child.index, child.group_end, CallPhase::Spawning(child.spawn), event.ts);
            state.children.insert(child.spawn, ChildState::new(child, state.prompt_number()));
        }
        EventBody::ChildSpawned(spawned) => {
            if let Some(child) = state.children.get_mut(&spawned.spawn) {
                child.thread_id = Some(spawned.thread_id.clone());
                child.spend = spawned.spend;
            }
        }
        EventBody::ChildEnded(ended) => child_ended(state, ended),
        EventBody::Mail(mail) => {
            state.mailbox.received.insert(mail.id.clone());
            on_control_message(state, &mail.id, &mail.message);
        }
        EventBody::Limit(hit) => limit(state, hit),
        EventBody::ApprovalAsked(asked) => state.question = Some(OpenApprovalRequest::new(event.seq, asked)),
        EventBody::ApprovalGiven(given) => approved(state, given),
        EventBody::StateSet(set) => {
            state_store::apply_write(Arc::make_mut(&mut state.store), set);
        }
        EventBody::Recovered(_) => {
            state.serves_client = false;
            let until = state.clock.paused.unwrap_or(before);
            state.clock.before += until.saturating_sub(state.clock.since).max(0);
            state.clock.since = event.ts;
            state.clock.paused = state.clock.paused.map(|_| event.ts);
            chat::bound_wait(state, event.ts, before);
            chat::hold_queues(state);
            chat::abandon_compaction(state);
            resume_parked(state);
        }
        EventBody::Compacted(compacted) => compaction::summarized(state, compacted),
        EventBody::Ended(ended) => {
            state.question.take_if(|_| ended.status != Status::Suspended);
            state.ended = Some(ended.clone());
        }
        EventBody::Checkpoint(checkpoint) => state.checkpoint_turn = checkpoint.turn,
        EventBody::PromptStarted(started) => chat::on_prompt_started(state, started),
        EventBody::UserInput(input) => chat::on_user_input(state, input),
        EventBody::Retracted(retracted) => state.edit_queued(&retracted.input, |_| false),
        EventBody::ShellRan(ran) => chat::on_shell_ran(state, ran),
        EventBody::CommandRan(ran) => chat::on_command_ran(state, ran),
        EventBody::Named(named) => chat::on_named(state, named),
        EventBody::PromptEnded(ended) => chat::on_prompt_ended(state, ended),
        EventBody::ContextInjected(_) | EventBody::FileChanged(_) => {}
    }
    state.clock.set_paused(state.question.is_some(), state.is_idle(), state.clock.now);
    state.events += 1;
}

/// The error code of a thread whose model refused to answer.
const REFUSED_CODE: &str = "refused";

fn open(state: &mut ThreadState, opened: &Opened) {
    state.limits = opened.limits;
    state.thread_limits = opened.limits;
    state.serves_client = opened.serves_client;
    state.clock.before = i64::try_from(opened.carried_ms).unwrap_or(0);
    if let Some(call) = &opened.call {
        // The thread runs one call and needs no prompt.
        state.conversation.prompted = true;
        state.calls.list = vec![CallState::new((**call).clone())];
    }
    state.launch = Some(Arc::new(opened.clone()));
}

fn on_user_message(state: &mut ThreadState, input: &CognitionIn) {
    match input.source {
        MessageSource::Prompt => {
            chat::on_prompt_delivered(state);
            state.conversation.prompted = true;
            let first = state.conversation.messages.len();
            chat::show_outputs(state);
            let end = state.conversation.messages.len() + 1;
            state.conversation.open_prompt = Some(first..end);
            state.position = RunPosition::After(Node::Inbox, Outcome::Prompt);
        }
        MessageSource::Continuation => {
            state.conversation.prompted = true;
            chat::on_prompt_continued(state);
            // Only a resume with a message starts a new prompt. Any other continuation works on a prompt that has
            // passed its hooks already.
            if state.resume_message().is_some() {
                let index = state.conversation.messages.len();
                state.conversation.open_prompt = Some(index..index + 1);
                state.position = RunPosition::After(Node::Inbox, Outcome::Prompt);
            }
        }
        MessageSource::Steer => {
            state.mailbox.steering.pop_front();
            state.position = RunPosition::After(Node::Inbox, Outcome::Message);
        }
        MessageSource::FollowUp => {
            state.mailbox.follow_ups.pop_front();
            state.position = RunPosition::After(Node::Inbox, Outcome::Message);
        }
        MessageSource::ContinueReply => {
            state.continued_replies += 1;
            if let Some(text) = state.final_text() {
                state.conversation.cut_text.push_str(&text);
            }
            // No user wrote the message, so it passes no `input` hooks.
            state.position = RunPosition::After(Node::Inbox, Outcome::Clear);
        }
        MessageSource::Nudge => {
            state.nudges += 1;
            state.output_reminders += u64::from(state.cost.turns > 1);
            state.position = RunPosition::After(Node::Nudge, Outcome::Sent);
        }
        MessageSource::NextTurn => {
            state.chat.as_mut().and_then(|chat| chat.next_turn.pop_front());
            if let Some(prompt) = &mut state.conversation.open_prompt
                && prompt.end == state.conversation.messages.len()
            {
                prompt.end += 1;
            }
        }
        MessageSource::Hook => {}
    }
    if matches!(input.source, MessageSource::Prompt | MessageSource::Continuation) {
        state.conversation.prompt_index = state.conversation.messages.len();
    }
    if input.source != MessageSource::ContinueReply {
        state.continued_replies = 0;
        state.conversation.cut_text.clear();
    }
    state.conversation.messages.push(input.message.clone().into());
}

fn on_reply(state: &mut ThreadState, reply: &CognitionOut) {
    let pending =
        state.attempt.as_ref().map(|attempt| attempt.settlement(reply.usage, reply.uncounted, state.on_fallback));
    let counted = reply.uncounted.is_none() && state.conversation.operations.is_empty();
    state.conversation.measured = counted.then(|| MeasuredTokens {
        input: reply.usage.whole_input(),
        output: reply.usage.output,
        messages: state.conversation.messages.len(),
        system: request::thread_system(state),
        of_fallback: state.on_fallback,
        narrowed: state.chat.as_ref().and_then(|chat| chat.narrowed.clone()),
    });
    state.conversation.operations.clear();
    state.cost.turns += 1;
    state.pending_settlement = pending;
    state.attempt = None;
    state.attempts = 0;
    state.failures = 0;
    state.failures_of_earlier_prompts = 0;
    state.failures_before_fallback = 0;
    state.hook_retries = 0;
    state.failed = None;
    let refused = reply.stop == StopReason::Refusal;
    // Calls in a refused reply are not executed.
    let calls = if refused { Vec::new() } else { request::tool_calls(&reply.content) };
    let outcome = if calls.is_empty() { Outcome::Text } else { Outcome::Calls };
    state.calls = ReplyCalls { list: calls.into_iter().map(CallState::new).collect(), ..ReplyCalls::default() };
    state.stop_reason = Some(reply.stop.clone());
    state.conversation.unread.add(reply);
    if !state.calls.list.is_empty() {
        state.continued_replies = 0;
        state.conversation.cut_text.clear();
    }
    if reply.stop.is_cut()
        && let (Some(ContentBlock::ToolCall(_)), Some(last)) = (reply.content.last(), state.calls.list.last_mut())
    {
        last.cut = true;
    }
    if refused {
        let text = reply_text(&reply.content);
        let message = if text.is_empty() { "the model refused to answer".to_owned() } else { text.into_string() };
        state.stop = Some(EarlyEnd { status: Status::Error, code: REFUSED_CODE.to_owned(), message });
    }
    state.position = RunPosition::After(Node::Model, outcome);
    state.conversation.messages.push(Message::Assistant { content: reply.content.clone() }.into());
}

fn attempt_failed(state: &mut ThreadState, failed: &AttemptFailed, ts: i64) {
    let compacts = state.attempt.as_ref().is_some_and(|attempt| attempt.compacts);
    state.pending_settlement =
        state.attempt.as_ref().map(|attempt| attempt.settlement_after_failure(&failed.error, state.on_fallback));
    state.attempt = None;
    state.failures += 1;
    state.conversation.operations.clear();
    let too_long = failed.classification.name == retry::PROMPT_TOO_LONG;
    let outcome = if too_long && state.can_shorten_prompt() {
        // The check of the context window, which follows the check of the limits, handles the long prompt.
        state.is_prompt_too_long = true;
        Outcome::Failed
    } else if failed.fallback.is_some() {
        state.on_fallback = true;
        state.failures_before_fallback = state.failures;
        Outcome::Failed
    } else if let Some(delay) = failed.retry_delay_ms {
        state.wait_until = Some(ts.saturating_add(i64::try_from(delay).unwrap_or(i64::MAX)));
        Outcome::Failed
    } else {
        Outcome::Exhausted
    };
    state.failed = Some(Box::new(failed.clone()));
    if compacts && chat::end_compaction(state) {
        return;
    }
    state.position = if compacts {
        RunPosition::After(Node::Compact, Outcome::Full)
    } else {
        RunPosition::After(Node::Model, outcome)
    };
}

/// Reopens a suspended thread or the closed session of a chat. A suspended thread then repeats its approval request. If
/// a hook suspended the thread, the thread continues as if the hook had not answered.
fn resume_parked(state: &mut ThreadState) {
    if state.ended.as_ref().is_none_or(|ended| !ended.status.is_parked()) {
        return;
    }
    state.ended = None;
    if let RunPosition::After(node @ Node::Ask(_), Outcome::Suspended) = state.position {
        state.position = RunPosition::At(node);
    }
    if state.stop.take_if(|stop| stop.status == Status::Suspended).is_some()
        && let RunPosition::After(node, Outcome::Terminate) = state.position
    {
        state.position = RunPosition::After(node, Outcome::Pass);
    }
}

fn settle(state: &mut ThreadState, settled: &Settled) {
    let usage = &settled.usage;
    let cost = &mut state.cost;
    cost.input_tokens += usage.input + usage.cache_read + usage.cache_write;
    cost.output_tokens += usage.output;
    cost.cached_tokens += usage.cache_read;
    cost.spend = cost.spend.saturating_add(settled.amount);
    // An attempt that is still open at its settlement was interrupted or never made.
    if state.attempt.as_ref().is_some_and(|a| a.turn == settled.turn && a.number == settled.attempt) {
        state.attempt = None;
    }
    state.pending_settlement = None;
    if state.is_interrupted() && state.is_idle() {
        chat::end_compaction(state);
    }
    state.unsettled.push(settled.clone());
}

fn attempt(state: &mut ThreadState, intended: &AttemptIntended) {
    state.cost.unpriced |= intended.unpriced;
    chat::on_model_call(state);
    state.position = RunPosition::At(if intended.compacts { Node::Compact } else { Node::Model });
    state.wait_until = None;
    state.attempts = intended.attempt + 1;
    state.attempt = Some(Attempt {
        withheld: state.withheld,
        turn: intended.turn,
        number: intended.attempt,
        input: intended.input_bound,
        max_output: intended.max_output,
        worst_case: intended.worst_case,
        reserved: false,
        compacts: intended.compacts,
    });
}

fn approved(state: &mut ThreadState, given: &ApprovalGiven) {
    state.question.take_if(|_| given.answer != Approval::Suspended);
    let outcome = match given.answer {
        Approval::Approved | Approval::Preapproved => Outcome::Approved,
        Approval::Refused | Approval::PolicyRefused => Outcome::Refused,
        Approval::Suspended => Outcome::Suspended,
    };
    state.position = RunPosition::After(Node::Ask(given.origin), outcome);
    if given.origin == ApprovalOrigin::Limit && given.answer.is_approved() {
        state.limit = None;
    }
    if given.origin == ApprovalOrigin::Call
        && given.answer != Approval::Suspended
        && let Some(call) = state.calls.list.iter_mut().find(|c| c.phase == CallPhase::Waiting)
    {
        call.answer = Some(given.answer);
        call.cannot_run.clone_from(&given.cannot_run);
    }
}

/// Records the end of a child. The time that an awaited child waited for an approval does not count towards the
/// duration of this thread.
fn child_ended(state: &mut ThreadState, ended: &ChildEnded) {
    let approval_wait_ms = ended.cost.approval_wait_ms;
    if let Some(child) = state.children.get_mut(&ended.spawn) {
        child.ended = Some(ended.status);
        child.last_thread_id = Some(ended.thread_id.clone());
        if !child.detached {
            // The children of a group can wait for approvals at the same time, so only the longest wait is excluded
            // from the duration.
            state.clock.exclude(approval_wait_ms.saturating_sub(state.calls.approval_wait_ms));
            state.calls.approval_wait_ms = state.calls.approval_wait_ms.max(approval_wait_ms);
        }
    } else {
        state.hook_children.insert(ended.spawn);
        state.clock.exclude(approval_wait_ms);
    }
    if let Some(child) = state.children.get(&ended.spawn).filter(|child| child.is_continued()) {
        let used = ended.cost.spend.saturating_add(ended.cost.outstanding);
        state.return_reservation(child.spend.saturating_sub(used));
    }
    // The tokens of a child count only for the child. The spend of the child also counts for this thread, and for the
    // prompt that started the child.
    let child = state.children.get(&ended.spawn);
    if child.is_some_and(|child| !state.is_of_prompt(child)) {
        state.charge_earlier_prompt(&ended.cost);
    }
    state.cost.spend = state.cost.spend.saturating_add(ended.cost.spend);
    state.cost.outstanding = state.cost.outstanding.saturating_add(ended.cost.outstanding);
}

/// Applies the start of a tool call, or of the creation of its child thread. `phase` is the new phase of the call.
fn begin(state: &mut ThreadState, index: usize, group_end: usize, phase: CallPhase, ts: i64) {
    enter_group(state, index, group_end);
    state.position = RunPosition::At(Node::Tools);
    if let Some(call) = state.calls.list.get_mut(index) {
        call.phase = phase;
        call.started_at = Some(ts);
    }
}

/// Makes a group of tool calls the current group when the group's first event is applied.
fn enter_group(state: &mut ThreadState, index: usize, group_end: usize) {
    let calls = &mut state.calls;
    if index >= calls.end {
        calls.start = index;
        calls.approval_wait_ms = 0;
    }
    calls.end = calls.end.max(group_end).min(calls.list.len());
}

fn apply_tool_result(state: &mut ThreadState, result: &ToolCallResult) {
    // An answered call needs no approval any more.
    state.question.take_if(|question| question.origin == ApprovalOrigin::Call);
    enter_group(state, result.index, result.group_end);
    let Some(call) = state.calls.list.get_mut(result.index) else { return };
    if call.phase == CallPhase::Answered {
        return;
    }
    if let CallPhase::Spawning(spawn) = std::mem::replace(&mut call.phase, CallPhase::Answered)
        && let Some(child) = state.children.get_mut(&spawn)
    {
        child.refused = child.thread_id.is_none();
    }
    call.result = Some(CallResult {
        ran: result.why == ResultKind::Ran,
        is_error: result.is_error,
        content: result.content.clone(),
        details: result.details.clone(),
        bytes: result.bytes,
        duration_ms: result.duration_ms,
        seen: BTreeSet::new(),
    });
    if let Some(object) = &result.object {
        state.objects.insert(object.clone());
    }
    let group = state.calls.start..state.calls.end;
    let members = || state.calls.list.iter().enumerate().filter(|(i, _)| group.contains(i)).map(|(_, call)| call);
    if members().any(|call| call.phase != CallPhase::Answered) {
        return;
    }
    let has_started = members().any(|call| call.started_at.is_some());
    state.position = match &result.why {
        ResultKind::Returned { .. } => RunPosition::After(Node::Return, Outcome::Accepted),
        ResultKind::Incomplete { .. } => RunPosition::After(Node::Return, Outcome::Incomplete),
        ResultKind::Ran
        | ResultKind::Unapproved { .. }
        | ResultKind::Denied { .. }
        | ResultKind::Blocked
        | ResultKind::Refused
        | ResultKind::Skipped
        | ResultKind::Interrupted => {
            if has_started {
                RunPosition::After(Node::Tools, Outcome::Finished)
            } else {
                RunPosition::After(Node::Gate, Outcome::Denied)
            }
        }
    };
    // The model gets the results of a group in source order, even if they arrived in another order.
    let results: Vec<SharedMessage> = members()
        .filter_map(|call| {
            let result = call.result.as_ref()?;
            let (call_id, name) = (call.call.id.clone(), call.call.name.clone());
            let (content, is_error) = (result.content.clone(), result.is_error);
            Some(Message::ToolResult { call_id, name, content, is_error }.into())
        })
        .collect();
    state.conversation.messages.extend(results);
    if let ResultKind::Incomplete { outputs, .. } = &result.why {
        state.partial_outputs = Some(outputs.clone());
    }
    if let ResultKind::Returned { outputs, error } = &result.why {
        state.returned = Some(AcceptedReturn { outputs: outputs.clone(), error: error.clone() });
    }
}

fn on_control_message(state: &mut ThreadState, id: &str, message: &ControlMessage) {
    match message {
        ControlMessage::Cancel => state.mailbox.cancelled = true,
        ControlMessage::Kill => state.mailbox.killed = true,
        ControlMessage::Handoff => state.mailbox.handoff = true,
        ControlMessage::Steer { text } => chat::queue_message(state, id, &UserInput::text(text), Delivery::Steer),
        ControlMessage::FollowUp { text } => chat::queue_message(state, id, &UserInput::text(text), Delivery::FollowUp),
        ControlMessage::Submit { input, delivery } => chat::queue_message(state, id, input, *delivery),
        ControlMessage::Interrupt => {
            if let Some(chat) = &mut state.chat {
                // A compaction is interrupted like a prompt.
                chat.is_interrupted = chat.current.is_some() || chat.compaction.is_some();
            }
        }
        ControlMessage::Close => {
            if let Some(chat) = &mut state.chat {
                chat.is_closing = true;
            }
        }
        ControlMessage::Mode { mode } => {
            if let Some(chat) = &mut state.chat {
                chat.mode = *mode;
            }
        }
        ControlMessage::Approve { message: Some(text), .. } => {
            chat::queue_message(state, id, &UserInput::text(text), Delivery::Steer);
        }
        ControlMessage::Shell { command, excluded } => chat::queue_command(state, id, command, *excluded),
        ControlMessage::Compact { focus } => chat::request_compaction(state, focus.as_ref()),
        ControlMessage::Replan { plan } => chat::set_successor(state, |next| next.plan = Some(plan.clone())),
        ControlMessage::Fork { prompt, thread } => {
            chat::request_fork(state, *prompt, thread.as_deref());
        }
        // These messages themselves change no state. If they withdraw a message, set the title or answer a request,
        // later events change the state.
        ControlMessage::Retract { .. }
        | ControlMessage::Name { .. }
        | ControlMessage::Approve { .. }
        | ControlMessage::Unreadable { .. } => {}
        ControlMessage::Raise { limit, value } => {
            raise_limit(state, limit, *value);
        }
    }
}

fn limit(state: &mut ThreadState, hit: &LimitHit) {
    let is_between_prompts = state.is_idle() && matches!(hit.at, Node::Compact | Node::Model);
    if is_between_prompts && chat::end_compaction(state) {
        // No summary is made, so the conversation stays unchanged.
        return;
    }
    // A limit that refuses a spawn does not stop the run: the model gets the refusal.
    if hit.at == Node::Limits {
        state.position = RunPosition::After(Node::Limits, Outcome::Exceeded);
    } else if hit.at == Node::Model {
        state.position = RunPosition::After(Node::Model, Outcome::Full);
    } else {
        return;
    }
    state.limit = Some(hit.clone());
}

/// Raises a limit, at most to the parent's limit. A lower value changes nothing. Returns true if the limit is higher
/// than before.
fn raise_limit(state: &mut ThreadState, name: &str, value: u64) -> bool {
    let Some(raised) = raised_limit(state, name, value) else { return false };
    if let Some(limit) = limit_mut(&mut state.limits, name) {
        *limit = raised;
    }
    if state.chat.is_none()
        && let Some(of_thread) = limit_mut(&mut state.thread_limits, name)
    {
        *of_thread = (*of_thread).max(raised);
    }
    true
}

/// Returns the limit after a raise to `value`, at most the parent's limit; `None` if the raise changes nothing. In a
/// chat, `value` is the limit of the prompt alone, and the result is a total since the start of the thread, at most the
/// session's limit.
pub fn raised_limit(state: &ThreadState, name: &str, value: u64) -> Option<u64> {
    let ceiling = state.launch.as_ref().and_then(|launch| launch.ceiling);
    let most = ceiling.and_then(|mut ceiling| limit_mut(&mut ceiling, name).map(|limit| *limit)).unwrap_or(u64::MAX);
    if let Some(chat) = &state.chat {
        if name == "spend" && chat.current.is_some_and(|current| current.is_capped) {
            return None;
        }
        let most = limit_of(state.thread_limits, name)?;
        let raised = state.used_before_prompt(name).saturating_add(value).min(most);
        return (raised > limit_of(state.limits, name)?).then_some(raised);
    }
    let raised = value.min(most);
    (raised > limit_of(state.limits, name)?).then_some(raised)
}

/// Returns the value of the limit with this name; `None` for a limit that no message can raise.
pub(super) fn limit_of(mut limits: PlanLimits, name: &str) -> Option<u64> {
    limit_mut(&mut limits, name).map(|limit| *limit)
}

pub(crate) fn limit_mut<'a>(limits: &'a mut PlanLimits, name: &str) -> Option<&'a mut u64> {
    match name {
        "turns" => Some(&mut limits.turns),
        "tokens" => Some(&mut limits.tokens),
        "spend" => Some(&mut limits.spend),
        "spawns" => Some(&mut limits.spawns),
        "duration_seconds" => Some(&mut limits.duration_seconds),
        // No message raises these limits: `depth` belongs to the tree of threads, and `output` is only a request to the
        // model.
        _ => None,
    }
}

impl CallState {
    fn new(call: crate::message::ToolCall) -> Self {
        Self {
            call,
            phase: CallPhase::Waiting,
            has_run_hooks: false,
            blocked: None,
            cannot_run: None,
            answer: None,
            cut: false,
            started_at: None,
            result: None,
        }
    }
}
