//! The prompts of a chat: start, end, interruption, and the idle step between them.

use rye_compiler::plan::{Node, Outcome, Plan, PlanLimits};

use super::super::apply::HOOK_FAILED_CODE;
use super::super::effect::{AwaitedChild, Effect};
use super::super::prompt_bounds::{prompt_grants, prompt_limits};
use super::super::signal::InterruptedReply;
use super::super::state::{ChatState, ThreadState};
use super::super::walk::{StepResult, WalkContext};
use super::end::end_result;
use super::{close_open_work, settlement};
use crate::event::{
    ChatMode, CognitionIn, ContinuedPrompt, EventBody, MessageSource, PromptEnded, PromptStarted, PromptStatus,
    QueuedMessage,
};
use crate::exchange::Usage;
use crate::message::Message;
use crate::thread::{Cost, Status};

/// Returns the next step at the idle node: ends the prompt that has run, waits for the children of an interrupted
/// prompt, compacts, continues in another thread, starts the next prompt, closes the session, or waits for a message.
pub(super) fn idle(walk: &WalkContext<'_>) -> StepResult {
    let state = walk.state;
    let Some(chat) = &state.chat else { return StepResult::Finished(Outcome::Closed) };
    if chat.current.is_some() {
        return StepResult::Write(vec![prompt_ended(walk, &[])]);
    }
    // The children of an interrupted prompt end before the next prompt starts, so that their cost is known.
    let children = state.living_children().filter(|(_, child)| !child.detached);
    let awaited: Vec<AwaitedChild> = children
        .filter_map(|(spawn, child)| child.thread_id.clone().map(|thread_id| AwaitedChild { spawn, thread_id }))
        .collect();
    if !awaited.is_empty() {
        return StepResult::Do(Effect::Await(awaited));
    }
    if chat.session_end.is_some() {
        return StepResult::Finished(Outcome::Closed);
    }
    if chat.compaction.is_some() {
        if chat.is_interrupted && state.attempt.is_none() {
            // The user interrupted the compaction before its model call.
            return StepResult::Write(vec![EventBody::Limit(super::interrupted_compaction())]);
        }
        return StepResult::Finished(Outcome::Compact);
    }
    if chat.successor.is_some() {
        return StepResult::Finished(Outcome::Handoff);
    }
    if let Some(ContinuedPrompt { number, limits, capped }) = state.unstarted_continuation() {
        let limits = limits_from_here(state, &limits);
        let grants = state.continues.as_ref().and_then(|continues| continues.prompt_grants.clone());
        let started = PromptStarted { prompt: number, limits, grants, mode: chat.mode, capped };
        return StepResult::Write(vec![EventBody::PromptStarted(started)]);
    }
    if chat.queue.is_empty() {
        return if chat.is_closing { StepResult::Finished(Outcome::Closed) } else { StepResult::Do(Effect::Wait) };
    }
    if let Some(error) = chat.queue.front().and_then(|message| message.failure.clone()) {
        let error = Some((HOOK_FAILED_CODE.to_owned(), error));
        return StepResult::Write(unstarted_prompt(walk.plan, state, chat, PromptStatus::Error, error));
    }
    StepResult::Write(vec![EventBody::PromptStarted(next_prompt(walk.plan, state, chat))])
}

/// Returns the event that starts the prompt at the head of the queue.
fn next_prompt(plan: &Plan, state: &ThreadState, chat: &ChatState) -> PromptStarted {
    let bounds = chat.queue.front().map(|message| message.bounds.clone()).unwrap_or_default();
    PromptStarted {
        prompt: chat.prompts + 1,
        limits: limits_from_here(state, &prompt_limits(plan, &bounds)),
        grants: prompt_grants(plan, state, chat.mode, &bounds),
        mode: chat.mode,
        capped: bounds.spend.is_some(),
    }
}

/// Returns the message of the current prompt while it waits in the queue. `None` once the message is part of the
/// conversation. Also `None` if the prompt started in the thread that this thread continues, because the message was
/// never in the queue of this thread.
pub(crate) fn undelivered_prompt(state: &ThreadState) -> Option<&QueuedMessage> {
    let chat = state.chat.as_ref()?;
    chat.queue.front().filter(|_| state.is_prompt_queued())
}

/// Returns the events that add the messages with the delivery `NextTurn` to the conversation, after the user message of
/// the prompt.
pub(super) fn next_turn_events(state: &ThreadState) -> impl Iterator<Item = EventBody> {
    let waiting = state.chat.iter().flat_map(|chat| &chat.next_turn).filter(|message| message.accepted);
    waiting.map(|message| {
        let user_message = Message::user_with_images(&message.images, message.text.clone());
        EventBody::CognitionIn(CognitionIn { source: MessageSource::NextTurn, message: user_message })
    })
}

/// Returns the limits of a prompt that starts now, as totals since the start of the thread: the usage so far plus the
/// limits in `prompt`, which apply to the prompt alone. No total exceeds the limits of the thread.
fn limits_from_here(state: &ThreadState, prompt: &PlanLimits) -> PlanLimits {
    let (most, cost) = (&state.thread_limits, &state.cost);
    let tokens = cost.input_tokens.saturating_add(cost.output_tokens);
    PlanLimits {
        turns: cost.turns.saturating_add(prompt.turns).min(most.turns),
        tokens: tokens.saturating_add(prompt.tokens).min(most.tokens),
        spend: cost.spend.saturating_add(prompt.spend).min(most.spend),
        spawns: state.spawned().saturating_add(prompt.spawns).min(most.spawns),
        duration_seconds: state
            .clock
            .elapsed_ms()
            .div_ceil(1000)
            .saturating_add(prompt.duration_seconds)
            .min(most.duration_seconds),
        ..*prompt
    }
}

/// Returns the event that ends the current prompt, with the status and the error that the state of the thread
/// determines. `closing` are the events that precede the returned event and close open attempts.
fn prompt_ended(walk: &WalkContext<'_>, closing: &[EventBody]) -> EventBody {
    let ended = end_result(walk);
    let status = match ended.status {
        _ if walk.state.limit.is_some() => PromptStatus::Limit,
        Status::Error => PromptStatus::Error,
        Status::Cancelled | Status::Killed => PromptStatus::Interrupted,
        Status::Created
        | Status::Running
        | Status::Completed
        | Status::Continued
        | Status::Suspended
        | Status::Idle => PromptStatus::Done,
    };
    let (code, message) = ended.error.map(|error| (error.code, error.message)).unzip();
    EventBody::PromptEnded(Box::new(ended_prompt(walk.state, closing, status, code, message)))
}

/// Returns the end of the current prompt, with the cost of the prompt. `closing` holds the events that close open
/// attempts and precede the end of the prompt. Their settlements are part of the cost.
fn ended_prompt(
    state: &ThreadState,
    closing: &[EventBody],
    status: PromptStatus,
    code: Option<String>,
    message: Option<String>,
) -> PromptEnded {
    let (prompt, mut cost) = (state.prompt_number().unwrap_or(0), state.prompt_cost());
    for event in closing {
        if let EventBody::Settled(settled) = event {
            cost.spend = cost.spend.saturating_add(settled.amount);
        }
    }
    let waiting = unsent_messages(state).filter(|_| status != PromptStatus::Done);
    let resumed = state.resume_message().filter(|_| !state.conversation.prompted).map(str::to_owned);
    let unsent = undelivered_prompt(state).map(|message| message.text.clone()).into_iter();
    let unsent = unsent.chain(resumed).chain(waiting).collect();
    PromptEnded { prompt, status, code, message, cost, unsent, partial_reply: String::new() }
}

/// Returns the steering and follow-up messages that wait for a turn of the current prompt. If the prompt ends with the
/// status [`PromptStatus::Done`], these messages become prompts.
fn unsent_messages(state: &ThreadState) -> impl Iterator<Item = String> {
    state.mailbox.steering.iter().chain(&state.mailbox.follow_ups).map(|message| message.text.clone())
}

/// Returns the events that end an interrupted prompt: an open attempt is settled, at its worst case if the provider
/// reported no final usage, and open calls are answered. `reply` is the part of the reply that had arrived.
pub(in crate::machine) fn interruption_events(
    plan: &Plan,
    state: &ThreadState,
    reply: &InterruptedReply,
) -> Vec<EventBody> {
    let mut events: Vec<EventBody> = state.pending_settlement.iter().map(|pending| settlement(plan, pending)).collect();
    let mut closing = close_open_work(state, (true, true), "skipped: the user interrupted the prompt");
    if let Some(reported) = reported_settlement(plan, state, reply.usage) {
        closing.retain(|event| !matches!(event, EventBody::Settled(_)));
        events.push(reported);
    }
    events.extend(closing);
    let mut ended = ended_prompt(state, &events, PromptStatus::Interrupted, None, None);
    reply.text.clone_into(&mut ended.partial_reply);
    events.push(EventBody::PromptEnded(Box::new(ended)));
    events
}

/// Returns the settlement of the open attempt at the usage that the provider had reported. `None` if no attempt is
/// open, or if the provider reported no usage.
pub(in crate::machine) fn reported_settlement(
    plan: &Plan,
    state: &ThreadState,
    usage: Option<Usage>,
) -> Option<EventBody> {
    let attempt = state.attempt.as_ref().filter(|attempt| attempt.reserved)?;
    let pending = attempt.settlement(usage?, None, state.on_fallback);
    Some(settlement(plan, &pending))
}

/// Returns the events that record the unfinished prompt of the continued thread as interrupted: the start of the
/// prompt, then its end. `None` if there is no such prompt, or if the prompt has started in this thread.
pub(in crate::machine) fn interrupted_continuation(state: &ThreadState) -> Option<[EventBody; 2]> {
    let ContinuedPrompt { number, limits, capped } = state.unstarted_continuation()?;
    let limits = limits_from_here(state, &limits);
    let ended = PromptEnded {
        prompt: number,
        status: PromptStatus::Interrupted,
        code: None,
        message: None,
        cost: Cost::default(),
        unsent: state.resume_message().map(str::to_owned).into_iter().collect(),
        partial_reply: String::new(),
    };
    let started =
        EventBody::PromptStarted(PromptStarted { prompt: number, limits, grants: None, mode: ChatMode::Ask, capped });
    Some([started, EventBody::PromptEnded(Box::new(ended))])
}

/// Returns the events of a prompt that an `input` hook stopped before its start; `None` if no hook stopped it, or if
/// the thread is cancelled or killed.
fn failed_start(walk: &WalkContext<'_>) -> Option<Vec<EventBody>> {
    let state = walk.state;
    let (chat, stop) = (state.chat.as_ref()?, state.stop.as_ref()?);
    let is_over = state.mailbox.cancelled || state.mailbox.killed;
    let error = Some((stop.code.clone(), stop.message.clone()));
    (!is_over).then(|| unstarted_prompt(walk.plan, state, chat, PromptStatus::Error, error))
}

/// Returns the events that start and end a waiting prompt that the user interrupted before its start. `None` if no
/// prompt waits. Also `None` if another prompt, a compaction or a command of the user is in progress, because the
/// interruption then ends this work, and the waiting prompt starts afterwards.
pub(in crate::machine) fn interrupted_start(plan: &Plan, state: &ThreadState) -> Option<Vec<EventBody>> {
    let chat = state.chat.as_ref()?;
    let is_busy = chat.current.is_some() || chat.compaction.is_some() || !chat.commands.is_empty();
    let is_waiting = !is_busy && !chat.queue.is_empty();
    (is_waiting && state.unstarted_continuation().is_none())
        .then(|| unstarted_prompt(plan, state, chat, PromptStatus::Interrupted, None))
}

/// Returns the events that start and end a prompt whose message is never sent to the model.
fn unstarted_prompt(
    plan: &Plan,
    state: &ThreadState,
    chat: &ChatState,
    status: PromptStatus,
    error: Option<(String, String)>,
) -> Vec<EventBody> {
    let started = next_prompt(plan, state, chat);
    let prompt = started.prompt;
    let (code, message) = error.unzip();
    let unsent = chat.queue.front().map(|message| message.text.clone()).into_iter().collect();
    let ended =
        PromptEnded { prompt, status, code, message, cost: Cost::default(), unsent, partial_reply: String::new() };
    vec![EventBody::PromptStarted(started), EventBody::PromptEnded(Box::new(ended))]
}

/// Returns the events that end the current prompt early, because the user interrupted the prompt, a hook ended the
/// prompt, or the model refused to answer. If no prompt is running, returns the events that end an interrupted
/// compaction, or that start and end a prompt that an `input` hook stopped. `None` if there is nothing to end.
pub(in crate::machine) fn stop_prompt(plan: &Plan, walk: &WalkContext<'_>) -> Option<Vec<EventBody>> {
    let state = walk.state;
    let chat = state.chat.as_ref()?;
    if chat.current.is_none() {
        let is_cut = chat.is_interrupted && chat.compaction.is_some() && state.attempt.is_some();
        let cut = is_cut.then(|| close_open_work(state, (true, true), ""));
        return cut.or_else(|| failed_start(walk));
    }
    if chat.is_interrupted {
        return Some(interruption_events(plan, state, &InterruptedReply::default()));
    }
    let ends = state.stop.is_some() && !state.mailbox.cancelled && !state.mailbox.killed;
    (ends && plan.graph.has(Node::Idle)).then(|| {
        let mut events = close_open_work(state, (true, true), "skipped: the prompt was ended");
        events.push(prompt_ended(walk, &events));
        events
    })
}
