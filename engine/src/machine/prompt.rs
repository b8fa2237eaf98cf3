//! The opening of a thread: the system prompt and the first user message. The functions that render them also serve
//! `plan`.

use rye_compiler::hook::HookPoint;
use rye_compiler::plan::prompt::PromptFacts;
use rye_compiler::plan::{Pending, Plan};
use rye_compiler::semantics::value::embed;
use serde_json::{Map, Value};

use super::facts;
use super::state::State;
use crate::event::{CognitionIn, ContextInjected, EventBody, Source, SystemPrompt};
use crate::message::Message;

/// Returns the events that open the conversation.
pub(super) fn opening(plan: &Plan, state: &State) -> Vec<EventBody> {
    let shown = state.launch.as_ref().map(|launch| launch.images.as_slice()).unwrap_or_default();
    let (source, opening) = if let Some(continues) = &state.continues {
        let mut known = RuntimeFacts { state, facts: facts::of(plan, state, HookPoint::ThreadContinued, None) };
        let said = continues.message.as_deref().unwrap_or("");
        (Source::Continuation, plan.prompt.go_on(&mut known, said))
    } else {
        let mut known = RuntimeFacts { state, facts: facts::of(plan, state, HookPoint::ThreadStarted, None) };
        (Source::Prompt, plan.prompt.open(&mut known))
    };
    vec![
        EventBody::SystemPrompt(SystemPrompt { text: opening.system.into(), layers: opening.system_layers }),
        EventBody::ContextInjected(ContextInjected { before: opening.before, after: opening.after }),
        EventBody::CognitionIn(CognitionIn { source, message: Message::showing(shown, opening.message) }),
    ]
}

/// Returns the directive's own text, with markers for values that are not known yet.
pub(crate) fn body(plan: &Plan) -> String {
    plan.prompt.directive_body(&mut Pending::marker)
}

/// The values known at run time, for placeholders of the prompt.
struct RuntimeFacts<'a> {
    state: &'a State,
    facts: Map<String, Value>,
}

impl PromptFacts for RuntimeFacts<'_> {
    fn text(&mut self, hole: &Pending) -> String {
        match hole {
            Pending::Hook { id } => self.state.talk.texts.get(id).cloned().unwrap_or_default(),
            Pending::Fact { path, fallback } => match facts::lookup(&self.facts, path) {
                None | Some(Value::Null) => fallback.clone().unwrap_or_default(),
                Some(value) => embed(value).into_owned(),
            },
        }
    }

    fn fires(&mut self, hook: &str) -> bool {
        self.state.talk.fired.contains(hook)
    }
}
