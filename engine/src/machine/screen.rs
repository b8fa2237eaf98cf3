//! Screening of user messages by `input` hooks: each message passes the hooks once, before it has any effect on the
//! thread. A handled message therefore skips no calls and costs no model call.

use rye_compiler::hook::HookPoint;
use rye_compiler::plan::Plan;
use serde_json::Value;

use super::effect::Effect;
use super::facts;
use super::state::ThreadState;
use super::step::{has_hooks, hook_run};

/// The origin of a message that the `input` hooks see; the subject of their event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScreenedSource {
    Steer,
    FollowUp,
    /// A prompt of a chat.
    Prompt,
    /// The message of a resumed or forked thread.
    Resume,
}

impl ScreenedSource {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Steer => "steer",
            Self::FollowUp => "follow_up",
            Self::Prompt => "prompt",
            Self::Resume => "resume",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Steer, Self::FollowUp, Self::Prompt, Self::Resume].into_iter().find(|source| source.as_str() == text)
    }
}

/// Returns the run of the `input` hooks for the first queued message that they have not seen. While an approval request
/// is open, messages wait: its answer must find the request.
pub(super) fn screen_queued(plan: &Plan, state: &ThreadState) -> Option<Effect> {
    // The first prompt of a chat precedes the conversation.
    if (!state.talk.prompted && state.chat.is_none()) || state.question.is_some() {
        return None;
    }
    let prompts = state.chat.as_ref().map(|chat| (ScreenedSource::Prompt, &chat.queue));
    let queues = [(ScreenedSource::Steer, &state.mail.steering), (ScreenedSource::FollowUp, &state.mail.following)];
    let queues = queues.into_iter().chain(prompts);
    let unseen = |(source, queue): (ScreenedSource, &std::collections::VecDeque<super::state::QueuedMessage>)| {
        queue.iter().find(|message| !message.screened).map(|message| (source, message.text.clone()))
    };
    let (source, text) = { queues }.find_map(unseen)?;
    screen(plan, state, source, &text)
}

/// Returns the effect that runs the `input` hooks on the message of a resumed thread; `None` if no hook has to run.
pub(super) fn screen_resume(plan: &Plan, state: &ThreadState) -> Option<Effect> {
    let message = state.resume_message().filter(|_| !state.talk.resume_screened)?;
    screen(plan, state, ScreenedSource::Resume, message)
}

fn screen(plan: &Plan, state: &ThreadState, source: ScreenedSource, text: &str) -> Option<Effect> {
    // In a chat, the driver expands calls of skills and prompt templates after the hooks.
    let is_call = state.chat.is_some() && text.starts_with('/');
    if !has_hooks(plan, HookPoint::Input) && !is_call {
        return None;
    }
    let mut facts = facts::common_facts(plan, state);
    let images = state.launch.as_ref().filter(|_| source == ScreenedSource::Resume);
    let images = images.map(|launch| serde_json::to_value(&launch.images).unwrap_or(Value::Null));
    facts.insert("text".into(), text.into());
    facts.insert("images".into(), images.unwrap_or_else(|| Value::Array(Vec::new())));
    facts.insert("source".into(), "interactive".into());
    Some(hook_run(plan, state, HookPoint::Input, Some(source.as_str().to_owned()), facts))
}
