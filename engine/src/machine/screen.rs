//! The intake of user messages: each message passes the `input` hooks and the expansion of skills and prompt templates
//! once, before it has any effect on the thread. A handled message therefore skips no calls and costs no model call.

use rye_compiler::hook::HookPoint;
use rye_compiler::plan::Plan;
use serde_json::Value;

use super::effect::Effect;
use super::facts;
use super::gate::authorize_user_command;
use super::state::ThreadState;
use super::step::{has_hooks, hook_run};
use crate::event::{
    AcceptedInput, Delivery, EventBody, HookOutcome, InputExpansion, InputSource, QueuedMessage, UserInput,
};

/// The subject of the `input` hooks for the message of a resumed or forked thread. The subject of a queued message is
/// its id.
pub(super) const RESUME_SUBJECT: &str = "resume";

/// Returns the first queued message that has not passed its intake.
fn unaccepted(state: &ThreadState) -> Option<&QueuedMessage> {
    state.queued_messages().find(|message| !message.accepted)
}

/// Returns the next command of the user, or the intake of the next queued message that hooks or an expansion have to
/// see. The driver performs the effect beside the current step.
pub(super) fn next_intake(plan: &Plan, state: &ThreadState) -> Option<Effect> {
    if let Some(command) = state.chat.as_ref().and_then(|chat| chat.commands.front()) {
        let call = Box::new(authorize_user_command(state, &command.id, &command.command));
        return Some(Effect::RunCommand { id: command.id.clone(), call });
    }
    let message = unaccepted(state).filter(|message| can_accept(state) && needs_intake(plan, state, &message.text))?;
    let mut facts = facts::common_facts(plan, state);
    facts.insert("text".into(), message.text.clone().into());
    facts.insert("images".into(), serde_json::to_value(&message.images).unwrap_or(Value::Null));
    facts.insert("source".into(), message.source.as_str().into());
    facts.insert("delivery".into(), message.delivery.as_str().into());
    Some(hook_run(plan, state, HookPoint::Input, Some(message.id.clone()), facts))
}

/// Returns the intake of the next queued message as a step of its own. While an approval request is open, messages wait:
/// its answer must find the request.
pub(super) fn screen_queued(plan: &Plan, state: &ThreadState) -> Option<Effect> {
    state.question.is_none().then(|| next_intake(plan, state)).flatten()
}

/// Returns the effect that runs the `input` hooks on the message of a resumed thread; `None` if no hook has to run.
pub(super) fn screen_resume(plan: &Plan, state: &ThreadState) -> Option<Effect> {
    let message = state.resume_message().filter(|_| !state.talk.resume_screened)?;
    if !needs_intake(plan, state, message) {
        return None;
    }
    let images = state
        .launch
        .as_ref()
        .map_or(Value::Array(Vec::new()), |launch| serde_json::to_value(&launch.images).unwrap_or(Value::Null));
    let mut facts = facts::common_facts(plan, state);
    facts.insert("text".into(), message.into());
    facts.insert("images".into(), images);
    facts.insert("source".into(), InputSource::Interactive.as_str().into());
    facts.insert("delivery".into(), "prompt".into());
    Some(hook_run(plan, state, HookPoint::Input, Some(RESUME_SUBJECT.to_owned()), facts))
}

/// Returns the event of a queued message that no hook and no expansion has to see, if there is one.
pub(super) fn accept_unchanged(plan: &Plan, state: &ThreadState) -> Option<EventBody> {
    let message = unaccepted(state).filter(|_| state.question.is_none() && can_accept(state))?;
    (!needs_intake(plan, state, &message.text)).then(|| accepted(message, message.text.clone(), Vec::new(), false))
}

/// Returns the event of a submitted message, if no hook and no expansion has to see it.
pub(super) fn accept_new(
    plan: &Plan,
    state: &ThreadState,
    id: &str,
    input: &UserInput,
    delivery: Delivery,
) -> Vec<EventBody> {
    let delivery = state.effective_delivery(delivery);
    let is_queued = state.chat.is_some() || matches!(delivery, Delivery::Steer | Delivery::FollowUp);
    if !is_queued || !can_accept(state) || needs_intake(plan, state, &input.text) {
        return Vec::new();
    }
    let message = QueuedMessage::new(id, input, delivery);
    vec![accepted(&message, message.text.clone(), Vec::new(), false)]
}

/// Returns true if messages can pass their intake. The hooks of a run see none before its prompt; the first prompt of a
/// chat precedes the conversation.
fn can_accept(state: &ThreadState) -> bool {
    state.talk.prompted || state.chat.is_some()
}

/// Returns true if `input` hooks or the expansion of skills and prompt templates have to see a message.
fn needs_intake(plan: &Plan, state: &ThreadState, text: &str) -> bool {
    has_hooks(plan, HookPoint::Input) || (state.chat.is_some() && text.starts_with('/'))
}

/// Returns the event of a message's intake. A withdrawn message has none.
pub(super) fn accept_screened(
    state: &ThreadState,
    subject: Option<&str>,
    answer: &HookOutcome,
    expansions: Vec<InputExpansion>,
) -> Option<EventBody> {
    let message = state.queued_messages().find(|message| Some(message.id.as_str()) == subject && !message.accepted)?;
    let text = if let HookOutcome::Transformed { text } = answer { text.clone() } else { message.text.clone() };
    Some(accepted(message, text, expansions, *answer == HookOutcome::Handled))
}

fn accepted(message: &QueuedMessage, text: String, expansions: Vec<InputExpansion>, handled: bool) -> EventBody {
    EventBody::UserInput(Box::new(AcceptedInput {
        id: message.id.clone(),
        delivery: message.delivery,
        source: message.source,
        raw: message.text.clone(),
        text,
        images: message.images.clone(),
        expansions,
        handled,
    }))
}
