//! The cache map of a plan: the number of tokens at the start that two successive requests have in common, and the
//! cost. If both requests go to the same model, the provider reads this common start from its cache.

use crate::hook::{HookAction, HookPoint, PlanVerdict, PlannedHook, Position};
use crate::plan::prompt::LayerKind;
use crate::plan::{Origins, Plan, PlanMode, PlannedModel, RuntimePlaceholder, SourcePlace, Tokenizer, Tokens};
use crate::report::render::turn_hooks::trailing_hook;
use crate::report::render::view::{LayerView, MessageView, PlaceholderView};
use crate::semantics::change_frequency::{ChangeFrequency, changes_in_continuation};
use crate::semantics::money::Nanos;

/// A request that can follow another request, and the prefix that both share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheStep {
    pub request: NextRequest,
    /// Length of the prefix that both requests share, in tokens.
    pub shared: u64,
    /// Number of tokens of the whole opening: palette, system prompt and first message.
    pub of: u64,
    /// The first part that differs between the two requests, before which the shared prefix ends; `None` if the prefix
    /// is the whole opening (palette, system prompt and first message).
    pub ends_at: Option<PrefixEnd>,
    /// Cost of the opening (palette, system prompt and first message) if the shared prefix is read from the cache;
    /// `None` if the model has no price.
    pub cost: Option<Nanos>,
    /// Cost of the opening (palette, system prompt and first message) if nothing is read from a cache; `None` if the
    /// model has no price.
    pub uncached: Option<Nanos>,
}

/// The kind of a request that follows another request and can read the shared prefix from the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextRequest {
    /// The request of the next turn of the thread.
    Turn,
    /// The first request of the next prompt of a chat.
    Prompt,
    /// The first request of a continuation.
    Continuation,
    /// The first request of another thread of the same plan.
    Thread,
    /// A request to the fallback model, in place of an equal request to the model.
    Fallback,
}

impl NextRequest {
    /// Returns the name used in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Prompt => "prompt",
            Self::Continuation => "continuation",
            Self::Thread => "thread",
            Self::Fallback => "fallback",
        }
    }
}

/// The first part that differs between two requests. Their shared prefix ends before this part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixEnd {
    /// A phrase that names the part: `${thread_id} in who-am-i`, or `the hook lint`.
    pub what: String,
    pub place: Option<SourcePlace>,
}

/// The end of a shared prefix: a byte offset in the system prompt or in the first message.
#[derive(Clone, Copy)]
enum Cut {
    System(usize),
    Message(usize),
}

/// The plan and its rendered opening (system prompt and first message), from which the cache map is computed.
struct CacheMapper<'p> {
    plan: &'p Plan,
    origins: &'p Origins,
    system: &'p MessageView,
    message: &'p MessageView,
}

impl Plan {
    /// Returns the cache map of this plan: for each request that can follow another request, the prefix that both
    /// share. `system` and `message` are the rendered system prompt and first message.
    pub fn cache_map(&self, origins: &Origins, system: &MessageView, message: &MessageView) -> Vec<CacheStep> {
        let map = CacheMapper { plan: self, origins, system, message };
        let is_chat = self.mode == PlanMode::Chat;
        let continues = is_chat || self.can_continue();
        let mut steps = Vec::new();
        if continues {
            steps.push(map.step(NextRequest::Turn, map.turn_end()));
        }
        if is_chat {
            steps.push(map.step(NextRequest::Prompt, map.prompt_end()));
        }
        if continues {
            steps.push(map.step(NextRequest::Continuation, Some(map.continuation_end())));
        }
        steps.push(map.step(NextRequest::Thread, map.thread_end()));
        if let Some(fallback) = &self.model.fallback {
            let name = format!("{}/{}", fallback.provider, fallback.id);
            let end = PrefixEnd {
                what: format!("the start, because {name} has its own cache"),
                place: origins.get("model").and_then(|origin| origin.place.clone()),
            };
            steps.push(map.priced(NextRequest::Fallback, fallback, 0, Some(end)));
        }
        steps
    }

    /// Returns the first live `context` hook that can change the start of the messages from one turn to the next;
    /// `None` if there is no such hook.
    pub(crate) fn hook_before_messages(&self) -> Option<&PlannedHook> {
        let changes = |hook: &&PlannedHook| {
            let HookAction::Inject { content, position } = &hook.action else { return true };
            let is_same = hook.verdict == PlanVerdict::Fires && !is_volatile(content);
            *position == Position::Before && !is_same
        };
        self.hooks.iter().filter(|hook| hook.is_live() && hook.event == HookPoint::Context).find(changes)
    }
}

impl CacheMapper<'_> {
    fn step(&self, request: NextRequest, end: Option<(Cut, PrefixEnd)>) -> CacheStep {
        let model = &self.plan.model;
        let palette = self.plan.definition_tokens(model);
        let by = model.counted_by;
        let system = by.count(&self.system.text);
        let shared = match end.as_ref().map(|(cut, _)| *cut) {
            None => self.opening(model),
            Some(Cut::System(offset)) => palette.saturating_add(count_before(self.system, offset, by)),
            Some(Cut::Message(offset)) => {
                palette.saturating_add(system).saturating_add(count_before(self.message, offset, by))
            }
        };
        self.priced(request, model, shared, end.map(|(_, end)| end))
    }

    fn priced(&self, request: NextRequest, model: &PlannedModel, shared: u64, ends_at: Option<PrefixEnd>) -> CacheStep {
        let of = self.opening(model);
        let shared = shared.min(of);
        let cost = model.cost(&Tokens { cache_read: shared, input: of.saturating_sub(shared), ..Tokens::default() });
        let uncached = model.cost(&Tokens { input: of, ..Tokens::default() });
        CacheStep { request, shared, of, ends_at, cost, uncached }
    }

    /// Returns the number of tokens of the palette, the system prompt and the first message, as a model counts them.
    fn opening(&self, model: &PlannedModel) -> u64 {
        let by = model.counted_by;
        let texts = by.count(&self.system.text).saturating_add(by.count(&self.message.text));
        self.plan.definition_tokens(model).saturating_add(texts)
    }

    /// Returns the end of the prefix that the current turn and the next turn share. `None` if they share the whole
    /// opening (palette, system prompt and first message), because no hook can change the opening between turns.
    fn turn_end(&self) -> Option<(Cut, PrefixEnd)> {
        if let Some(hook) = self.plan.hook_before_messages() {
            return Some((Cut::Message(0), self.hook_end(&hook.id)));
        }
        let hook = trailing_hook(self.plan)?;
        let offset = layer_of_hook(self.message, &hook.id)?;
        Some((Cut::Message(offset), self.hook_end(&hook.id)))
    }

    /// Returns the end of the prefix that the current request and the first request of a chat's next prompt share, and
    /// the part that differs. `None` if they share the whole opening (palette, system prompt and first message). Hooks
    /// on `before_agent_start` can change the system prompt for each prompt.
    fn prompt_end(&self) -> Option<(Cut, PrefixEnd)> {
        let cut_of = |hook: &PlannedHook| {
            let whole = layer_of_hook(self.system, &hook.id).unwrap_or(self.system.text.len());
            let HookAction::SystemPrompt { text, append } = &hook.action else {
                return matches!(hook.action, HookAction::Execute { .. }).then_some(0);
            };
            let changes = |text: &str| hook.verdict != PlanVerdict::Fires || is_volatile(text);
            match (text, append) {
                (Some(text), _) => match text.strip_prefix("${system_prompt}") {
                    Some(rest) => changes(rest).then_some(whole),
                    None => changes(text).then_some(0),
                },
                (None, Some(text)) => changes(text).then_some(whole),
                (None, None) => None,
            }
        };
        let live = self.plan.hooks.iter().filter(|h| h.is_live() && h.event == HookPoint::BeforeAgentStart);
        let first = live.filter_map(|hook| Some((cut_of(hook)?, hook))).min_by_key(|(offset, _)| *offset);
        match first {
            Some((offset, hook)) => Some((Cut::System(offset), self.hook_end(&hook.id))),
            None => self.turn_end(),
        }
    }

    /// Returns the end of the prefix that a continuation shares with the thread: the first part of the system prompt
    /// that differs. If no part differs, returns the end of the system prompt, because a continuation has messages of
    /// its own.
    fn continuation_end(&self) -> (Cut, PrefixEnd) {
        let is_changed = |root: &str| changes_in_continuation(root);
        match self.first_change(self.system, &is_changed) {
            Some((offset, end)) => (Cut::System(offset), end),
            None => (Cut::Message(0), PrefixEnd { what: "its own messages".to_owned(), place: None }),
        }
    }

    /// Returns the end of the prefix that all threads of the plan share; `None` if they share the whole palette, system
    /// prompt and first message.
    fn thread_end(&self) -> Option<(Cut, PrefixEnd)> {
        let is_changed = |root: &str| ChangeFrequency::of_fact(root) != ChangeFrequency::Never;
        let system = self.first_change(self.system, &is_changed).map(|(offset, end)| (Cut::System(offset), end));
        system.or_else(|| self.first_change(self.message, &is_changed).map(|(offset, end)| (Cut::Message(offset), end)))
    }

    /// Finds the first placeholder, or the first layer that only some runs send, that can differ between the two
    /// compared requests. Returns its byte offset and its description; `None` if nothing can differ. `is_changed` gets
    /// the first segment of a fact's path, and returns true if the fact can differ.
    fn first_change(&self, view: &MessageView, is_changed: &dyn Fn(&str) -> bool) -> Option<(usize, PrefixEnd)> {
        let mut pending = view.pending.iter().peekable();
        for layer in &view.layers {
            if layer.layer.depends {
                return Some((layer.offset, Self::hook_of_layer(layer)));
            }
            while let Some(placeholder) = pending.next_if(|one| one.offset < layer.end()) {
                if changes_text(placeholder, is_changed) {
                    let what = format!("{} in {}", placeholder.pending.marker(), layer.layer.id);
                    return Some((placeholder.offset, PrefixEnd { what, place: self.place_of(layer) }));
                }
            }
        }
        None
    }

    fn hook_of_layer(layer: &LayerView) -> PrefixEnd {
        let hook = layer.layer.hook.as_deref().unwrap_or(&layer.layer.id);
        PrefixEnd { what: format!("the hook {hook}, if it fires"), place: layer.place.clone() }
    }

    fn hook_end(&self, id: &str) -> PrefixEnd {
        let place = self.origins.get(&format!("hook.{id}")).and_then(|origin| origin.place.clone());
        PrefixEnd { what: format!("the hook {id}"), place }
    }

    fn place_of(&self, layer: &LayerView) -> Option<SourcePlace> {
        let body = || self.origins.get(&format!("layer.{}", layer.layer.id)).and_then(|origin| origin.place.clone());
        layer.place.clone().or_else(|| (layer.layer.kind == LayerKind::Body).then(body).flatten())
    }
}

/// Returns the byte offset of the first layer that a hook adds to a message; `None` if it adds none.
fn layer_of_hook(view: &MessageView, id: &str) -> Option<usize> {
    view.layers.iter().find(|layer| layer.layer.hook.as_deref() == Some(id)).map(|layer| layer.offset)
}

/// Returns true if a text contains a placeholder whose value can differ between two turns or prompts of one thread.
fn is_volatile(text: &str) -> bool {
    ChangeFrequency::of_template(text) == ChangeFrequency::PerTurn
}

/// Counts the tokens of a message before `offset`, a byte offset in the text of the message.
fn count_before(view: &MessageView, offset: usize, by: Tokenizer) -> u64 {
    by.count(view.text.get(..offset).unwrap_or(&view.text))
}

/// Returns true if the text of a placeholder can differ between the two compared requests. `is_changed` receives the
/// first segment of a fact's path, and returns true if the fact can differ.
fn changes_text(placeholder: &PlaceholderView, is_changed: &dyn Fn(&str) -> bool) -> bool {
    match &placeholder.pending {
        RuntimePlaceholder::Fact { path, .. } => is_changed(path.split('.').next().unwrap_or(path)),
        RuntimePlaceholder::Hook { .. } => true,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rye_grammar::ItemId;

    use super::*;
    use crate::compile::tests::world::{minimal_world, with_directives};
    use crate::compile::{CompileRequest, compile};
    use crate::report::render::view::view_prompt;
    use crate::world::Space;

    const TOOLS: &str = "<permissions><execute><tool>*</tool></execute></permissions>";

    /// Returns the steps as `request shared/of end`, where `shared` is `all`, `palette`, `system` or `part`.
    fn steps(metadata: &str, hooks: &str, is_chat: bool) -> Vec<String> {
        let inside = format!("<metadata><context><system>s</system></context>{metadata}{TOOLS}</metadata>");
        let mut world = with_directives(minimal_world(), &[("leaf", "", &inside, "Do it.")]);
        world = world.project(".ai/knowledge/s.md", "The rules of the house are long and never change.\n");
        let provider = "wire: anthropic\nbase_url: https://main.test\ntiers: { fast: small, general: large }\nmodels:\n\
             - { id: small, context_window: 1000, max_output: 100, prices: { input: 1, output: 5 } }\n\
             - { id: large, context_window: 2000, max_output: 500, prices: { input: 2, output: 10, cache_read: 0.2 } }\n";
        world = world.with(Space::System, ".ai/config/agent/providers/main.yaml", provider);
        world = world.project(".ai/knowledge/who.md", "You are ${thread_id}.\n");
        let world = world.project(".ai/config/agent/hooks.yaml", format!("hooks:\n{hooks}"));
        let request = CompileRequest::new(ItemId::parse("leaf").unwrap());
        let request = if is_chat { request.chat() } else { request };
        let compiled = compile(&world, &request);
        let why: Vec<String> = compiled.diagnostics.iter().map(crate::diagnostics::Diagnostic::message).collect();
        let compilation = compiled.value.unwrap_or_else(|| panic!("{why:?}"));
        let plan = &compilation.plan;
        let (system, first, _) = view_prompt(plan, &compilation.origins);
        let size = plan.count_viewed_tokens(&system, &first);
        let named = |shared: u64| match shared {
            0 => "nothing",
            shared if shared == size.input() => "all",
            shared if shared == size.palette => "palette",
            shared if shared == size.palette + size.system => "system",
            _ => "part",
        };
        let steps = plan.cache_map(&compilation.origins, &system, &first);
        let line = |step: &CacheStep| {
            assert!(step.cost <= step.uncached && step.shared <= step.of, "{step:?}");
            // The prices are in the provider file of the world: nano-dollars for a token that is read or not.
            let (read, input) = if step.request == NextRequest::Fallback { (1_000, 1_000) } else { (200, 2_000) };
            let price = |shared: u64| Nanos::from_u64(shared * read + (step.of - shared) * input);
            assert_eq!((step.cost, step.uncached), (Some(price(step.shared)), Some(price(0))), "{step:?}");
            let end = step.ends_at.as_ref().map(|end| end.what.clone()).unwrap_or_default();
            format!("{} {} {end}", step.request.as_str(), named(step.shared)).trim_end().to_owned()
        };
        steps.iter().map(line).collect()
    }

    #[test]
    fn constant_opening_is_shared_by_turns_and_threads_and_no_fallback() {
        assert_eq!(
            steps("<model tier=\"general\" fallback=\"fast\"/>", "", false),
            [
                "turn all",
                "continuation system its own messages",
                "thread all",
                "fallback nothing the start, because main/small has its own cache",
            ]
        );
    }

    #[test]
    fn changing_parts_end_the_prefix() {
        let who = "  - { id: who, event: build_system_prompt, position: before, action: { primary: fetch, item_type: knowledge, item_id: who } }\n";
        let found = steps("", who, false);
        assert_eq!(
            found,
            ["turn all", "continuation part ${thread_id} in who", "thread part ${thread_id} in who"],
            "{found:?}"
        );
        let keep = "  - { id: keep, event: context, action: { keep_last: 3 } }\n";
        assert_eq!(steps("", keep, false).first().unwrap(), "turn system the hook keep");
    }

    #[test]
    fn hooks_that_change_the_system_prompt_of_each_prompt_end_the_prefix_of_the_next_prompt() {
        let hook = |action: &str| format!("  - {{ id: h, event: before_agent_start, action: {{ {action} }} }}\n");
        let of_prompt = |action: &str| {
            let found = steps("", &hook(action), true);
            found.into_iter().find(|line| line.starts_with("prompt ")).unwrap()
        };
        assert_eq!(of_prompt("system_prompt: { append: \"Now: ${prompt}\" }"), "prompt part the hook h");
        assert_eq!(of_prompt("system_prompt: { text: \"Only: ${prompt}\" }"), "prompt palette the hook h");
        assert_eq!(of_prompt("system_prompt: { append: \"Be brief.\" }"), "prompt all");
    }
}
