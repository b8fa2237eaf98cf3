//! The system prompt and the first user message of a thread. `rye plan` renders both with the same functions.

use rye_compiler::hook::HookPoint;
use rye_compiler::plan::prompt::PromptFacts;
use rye_compiler::plan::{Plan, RuntimePlaceholder};
use rye_compiler::semantics::value::inline_text;
use serde_json::{Map, Value};

use super::facts;
use super::state::ThreadState;
use super::step;
use crate::event::{CognitionIn, ContextInjected, EventBody, MessageSource, SystemPrompt};
use crate::message::Message;

/// Returns the events that open the conversation.
pub(super) fn opening_events(plan: &Plan, state: &ThreadState) -> Vec<EventBody> {
    let mut images = state.launch.as_ref().map(|launch| launch.images.clone()).unwrap_or_default();
    let (source, opening) = if let Some(continues) = state.continued_prompts() {
        let mut known =
            RuntimeFacts { state, facts: facts::point_facts(plan, state, HookPoint::ThreadContinued, None) };
        let prompt = step::undelivered_prompt(state);
        images.extend(prompt.iter().flat_map(|prompt| prompt.images.clone()));
        let message = prompt.map(|prompt| prompt.text.as_str()).or(state.continuation_message()).unwrap_or("");
        let source = if prompt.is_some() { MessageSource::Prompt } else { MessageSource::Continuation };
        (source, plan.prompt.render_continuation(&mut known, message, &continues.sent, &continues.resent))
    } else {
        let mut known = RuntimeFacts { state, facts: facts::point_facts(plan, state, HookPoint::ThreadStarted, None) };
        if let Some(prompt) = step::undelivered_prompt(state) {
            known.facts.insert("prompt".into(), prompt.text.clone().into());
            images.extend_from_slice(&prompt.images);
        }
        (MessageSource::Prompt, plan.prompt.render_opening(&mut known))
    };
    vec![
        EventBody::SystemPrompt(SystemPrompt { text: opening.system.into(), layers: opening.system_layers }),
        EventBody::ContextInjected(ContextInjected { before: opening.before, after: opening.after }),
        EventBody::CognitionIn(CognitionIn { source, message: Message::user_with_images(&images, opening.message) }),
    ]
}

/// Returns the directive's own text, with markers for values that are not known yet.
pub(crate) fn body(plan: &Plan) -> String {
    plan.prompt.directive_body(&mut RuntimePlaceholder::marker)
}

/// The values known at run time, for placeholders of the prompt.
struct RuntimeFacts<'a> {
    state: &'a ThreadState,
    facts: Map<String, Value>,
}

impl PromptFacts for RuntimeFacts<'_> {
    fn text(&mut self, placeholder: &RuntimePlaceholder) -> String {
        match placeholder {
            RuntimePlaceholder::Hook { id } => self.state.conversation.texts.get(id).cloned().unwrap_or_default(),
            RuntimePlaceholder::Fact { path, fallback } => match facts::lookup(&self.facts, path) {
                None | Some(Value::Null) => fallback.clone().unwrap_or_default(),
                Some(value) => inline_text(value).into_owned(),
            },
        }
    }

    fn fires(&mut self, hook: &str) -> bool {
        self.state.conversation.fired.contains(hook)
    }
}
