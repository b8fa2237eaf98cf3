//! The intake of user messages: each message passes the `input` hooks and the expansion of skills and prompt templates
//! once, before it has any effect on the thread. A message that a hook handles has no further effect. For example, no
//! tool calls are skipped, and no model call is made.

use rye_compiler::commands::split_command;
use rye_compiler::hook::{HookPoint, PlannedHook};
use rye_compiler::plan::Plan;
use serde::Deserialize;
use serde_json::Value;

use super::effect::Effect;
use super::facts;
use super::gate::authorize_user_command;
use super::state::ThreadState;
use super::step::{has_hooks, hook_run};
use crate::event::{
    AcceptedInput, CommandAction, CommandRan, Delivery, EventBody, HookEvaluation, HookOutcome, InputExpansion,
    InputSource, QueuedMessage, UserInput,
};

/// The `subject` of a run of the `input` hooks for the message of a resumed or forked thread. For a queued message, the
/// `subject` is the id of the message.
pub const RESUME_SUBJECT: &str = "resume";

/// Returns the first queued message that has not passed its intake; `None` if there is no such message.
fn unaccepted(state: &ThreadState) -> Option<&QueuedMessage> {
    state.queued_messages().find(|message| !message.accepted)
}

/// Returns the next command of the user, or the intake of the next queued message that hooks or an expansion must
/// process; `None` if neither waits. The driver performs the effect concurrently with the current step.
pub(super) fn next_intake(plan: &Plan, state: &ThreadState) -> Option<Effect> {
    if let Some(command) = state.chat.as_ref().and_then(|chat| chat.commands.front()) {
        let call = Box::new(authorize_user_command(state, &command.id, &command.command));
        return Some(Effect::RunCommand { id: command.id.clone(), call });
    }
    let message = unaccepted(state).filter(|message| can_accept(state) && needs_intake(plan, state, &message.text))?;
    if let Some((_, name, args)) = command_of(plan, state, &message.text) {
        let mut facts = facts::common_facts(plan, state);
        facts.insert("name".into(), name.into());
        facts.insert("args".into(), args.into());
        facts.insert("source".into(), message.source.as_str().into());
        facts.insert("delivery".into(), message.delivery.as_str().into());
        return Some(hook_run(plan, state, HookPoint::Command, Some(message.id.clone()), facts));
    }
    let mut facts = facts::common_facts(plan, state);
    facts.insert("text".into(), message.text.clone().into());
    facts.insert("images".into(), serde_json::to_value(&message.images).unwrap_or(Value::Null));
    facts.insert("source".into(), message.source.as_str().into());
    facts.insert("delivery".into(), message.delivery.as_str().into());
    Some(hook_run(plan, state, HookPoint::Input, Some(message.id.clone()), facts))
}

/// Returns the effect that starts the intake of the next queued message. `None` if no message needs an intake. Also
/// `None` while an approval request is open, because the request must stay the current effect until it is answered.
pub(super) fn screen_queued(plan: &Plan, state: &ThreadState) -> Option<Effect> {
    state.question.is_none().then(|| next_intake(plan, state)).flatten()
}

/// Returns the effect that runs the `input` hooks on the message of a resumed thread; `None` if no hook has to run.
pub(super) fn screen_resume(plan: &Plan, state: &ThreadState) -> Option<Effect> {
    let message = state.resume_message().filter(|_| !state.conversation.resume_screened)?;
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

/// Returns the event that accepts the next queued message without a change. `None` if there is no such message, if the
/// message cannot be accepted yet, or if the message needs a hook or an expansion.
pub(super) fn accept_unchanged(plan: &Plan, state: &ThreadState) -> Option<EventBody> {
    let message = unaccepted(state).filter(|_| state.question.is_none() && can_accept(state))?;
    (!needs_intake(plan, state, &message.text)).then(|| accepted(message, message.text.clone()))
}

/// Returns the event that accepts a submitted message. Empty if the message does not go to a queue, if the run has no
/// prompt yet, or if an `input` hook or an expansion must process the message first.
pub(super) fn accept_new(
    plan: &Plan,
    state: &ThreadState,
    id: &str,
    input: &UserInput,
    delivery: Delivery,
) -> Vec<EventBody> {
    let delivery = state.effective_delivery(delivery, &input.bounds);
    let is_queued = state.chat.is_some() || matches!(delivery, Delivery::Steer | Delivery::FollowUp);
    if !is_queued || !can_accept(state) || needs_intake(plan, state, &input.text) {
        return Vec::new();
    }
    let message = QueuedMessage::new(id, input, delivery);
    vec![accepted(&message, message.text.clone())]
}

/// Returns true if messages can pass their intake. In a run, messages wait until the conversation contains the prompt
/// of the run. In a chat, a message may itself be the first prompt.
fn can_accept(state: &ThreadState) -> bool {
    state.conversation.prompted || state.chat.is_some()
}

/// Returns true if `input` hooks must process a message, or if the message may name a command, a skill or a prompt
/// template (a message of a chat that starts with `/`).
fn needs_intake(plan: &Plan, state: &ThreadState, text: &str) -> bool {
    has_hooks(plan, HookPoint::Input) || (state.chat.is_some() && text.starts_with('/'))
}

/// Returns the event that records the result of the intake of the message with the id `subject`. `None` if the message
/// was withdrawn or its intake is recorded already.
pub(super) fn accept_screened(
    state: &ThreadState,
    subject: Option<&str>,
    answer: &HookOutcome,
    expansions: Vec<InputExpansion>,
) -> Option<EventBody> {
    let message = state.queued_messages().find(|message| Some(message.id.as_str()) == subject && !message.accepted)?;
    let (text, images) = if let HookOutcome::Transformed { text, images } = answer {
        (text, images.as_ref().unwrap_or(&message.images))
    } else {
        (&message.text, &message.images)
    };
    let (handled, reply) =
        if let HookOutcome::Handled { reply } = answer { (true, reply.clone()) } else { (false, None) };
    let message = QueuedMessage { images: images.clone(), ..message.clone() };
    let input = accepted_input(&message, text.clone(), expansions);
    Some(EventBody::UserInput(Box::new(AcceptedInput { handled, reply, ..input })))
}

/// Returns the hook of the command that a text calls, the name of the command, and its arguments; `None` if the text
/// calls no command of the plan.
fn command_of<'p, 't>(
    plan: &'p Plan,
    state: &ThreadState,
    text: &'t str,
) -> Option<(&'p PlannedHook, &'t str, &'t str)> {
    let (name, args) = split_command(text).filter(|_| state.chat.is_some())?;
    let is_command = |hook: &&PlannedHook| hook.event == HookPoint::Command && hook.is_live() && hook.id == name;
    plan.hooks.iter().find(is_command).map(|hook| (hook, name, args))
}

/// Returns the events of a typed command whose hook has run: the answer of the command, and a message if the model gets
/// the answer. Returns no events if the user has withdrawn the command.
pub(super) fn command_events(
    plan: &Plan,
    state: &ThreadState,
    subject: Option<&str>,
    considered: &[HookEvaluation],
    outcome: &HookOutcome,
) -> Vec<EventBody> {
    let is_subject = |message: &&QueuedMessage| Some(message.id.as_str()) == subject && !message.accepted;
    let Some(message) = state.queued_messages().find(is_subject) else { return Vec::new() };
    let Some((hook, name, args)) = command_of(plan, state, &message.text) else { return Vec::new() };
    let reply = if let HookOutcome::Collected { texts, .. } = outcome { texts.get(&hook.id) } else { None };
    let result = reply.map_or_else(
        || {
            let failed = considered.iter().find(|one| one.hook == hook.id).and_then(|one| one.because.clone());
            Err(failed.unwrap_or_else(|| "the command did not run".to_owned()))
        },
        |reply| read_answer(reply),
    );
    let is_error = result.is_err();
    let (action, answer) = result.unwrap_or_else(|message| (CommandAction::Show, message));
    let input = action.delivery().map(|delivery| {
        let delivery = state.effective_delivery(delivery, &message.bounds);
        let input = QueuedMessage { delivery, source: InputSource::Extension, ..message.clone() };
        accepted(&input, answer.clone())
    });
    let item = hook.action.item().map(|(_, id)| id.to_owned()).unwrap_or_default();
    let (name, args) = (name.to_owned(), args.to_owned());
    let ran = CommandRan { id: message.id.clone(), name, args, item, action, answer, is_error };
    std::iter::once(EventBody::CommandRan(Box::new(ran))).chain(input).collect()
}

/// Parses the answer of a command: `{"action": …, "text": …}`. Any other text is shown to the user.
///
/// # Errors
/// An action that sends a message to the model, without a text for the message.
fn read_answer(reply: &str) -> Result<(CommandAction, String), String> {
    #[derive(Deserialize)]
    struct Answer {
        action: CommandAction,
        #[serde(default)]
        text: String,
    }
    let Ok(Answer { action, text }) = serde_json::from_str(reply) else {
        return Ok((CommandAction::Show, reply.to_owned()));
    };
    if action.delivery().is_some() && text.trim().is_empty() {
        return Err(format!("the command answered without a `text` to send to the model: {}", reply.trim()));
    }
    Ok((action, text))
}

fn accepted(message: &QueuedMessage, text: String) -> EventBody {
    EventBody::UserInput(Box::new(accepted_input(message, text, Vec::new())))
}

fn accepted_input(message: &QueuedMessage, text: String, expansions: Vec<InputExpansion>) -> AcceptedInput {
    AcceptedInput {
        id: message.id.clone(),
        delivery: message.delivery,
        source: message.source,
        raw: message.text.clone(),
        text,
        images: message.images.clone(),
        expansions,
        handled: false,
        reply: None,
        bounds: message.bounds.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::{CommandAction, read_answer};

    #[test]
    fn answer_of_a_command_that_sends_a_message_needs_a_text() {
        for action in ["prompt", "steer", "next_turn"] {
            for reply in [format!(r#"{{"action":"{action}"}}"#), format!(r#"{{"action":"{action}","text":" "}}"#)] {
                let message = read_answer(&reply).expect_err("an answer without a text");
                assert!(message.contains("without a `text`") && message.contains(&reply), "{message}");
            }
            let reply = format!(r#"{{"action":"{action}","text":"Review."}}"#);
            assert_eq!(read_answer(&reply).map(|(_, text)| text), Ok("Review.".to_owned()));
        }
        assert_eq!(read_answer(r#"{"action":"none"}"#), Ok((CommandAction::None, String::new())));
        assert_eq!(read_answer("2 files"), Ok((CommandAction::Show, "2 files".to_owned())));
    }
}
