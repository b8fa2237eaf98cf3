//! The prefix of the next request that the provider's cache contains, found by comparison with the last request of the
//! session.

use std::sync::Arc;

use rye_compiler::hook::{HookAction, HookPoint};
use rye_compiler::plan::prompt::render_layer;
use rye_compiler::plan::{Layer, Plan, RuntimePlaceholder, Tokenizer};
use rye_compiler::semantics::money::Nanos;

use crate::exchange::{Request, RequestTurns, ToolDefinition, Usage, cost};
use crate::live_state::LiveState;
use crate::machine::{self, ModelCall, ThreadState};
use crate::message::SharedMessage;

/// Tokens that the provider's cache contains and that a request sends again uncached, because the request changes a part
/// before them.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CacheLoss {
    pub tokens: u64,
    /// The extra cost in nano-dollars; `None` if the model has no price.
    pub cost: Option<u64>,
    /// The changes that cause the loss; empty if no part of the plan causes it.
    pub parts: Vec<ChangedPart>,
}

impl CacheLoss {
    /// Returns the ids of the added parts if no other change causes the loss; empty otherwise.
    pub fn added_parts(&self) -> Vec<&str> {
        let is_added = self.parts.iter().all(|part| part.change == RequestPartChange::Added);
        self.parts.iter().filter(|_| is_added).map(|part| part.id.as_str()).collect()
    }
}

/// A part of the prefix that the next request changes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ChangedPart {
    /// Id of a layer or a hook, or the name of a tool.
    pub id: String,
    pub change: RequestPartChange,
}

/// The difference of a part between the last request and the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestPartChange {
    Added,
    Changed,
    Removed,
}

/// The part of the next request that the provider's cache contains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CachedPrefix {
    /// Tokens that the provider can read from its cache.
    pub tokens: u64,
    /// The cached tokens that the request sends again uncached; `None` if there are none.
    pub loss: Option<CacheLoss>,
}

/// Returns the prefix of the next request that the cache contains. `next` is the state after a simulated prompt, in
/// which the hooks `fired` have changed the request. `input_tokens` is the size of the request. A request of another
/// model has no cached prefix.
pub(super) fn cached_prefix(live: &LiveState, next: &ThreadState, fired: &[String], input_tokens: u64) -> CachedPrefix {
    let Some(last) = live.last_request() else { return CachedPrefix::default() };
    let Some(measured) = &last.state.conversation.measured else { return CachedPrefix::default() };
    let (model, model_before) = (next.model(&live.plan), last.state.model(&last.plan));
    let is_same_model = (&model.provider, &model.id, next.on_fallback)
        == (&model_before.provider, &model_before.id, measured.of_fallback);
    if !is_same_model {
        return CachedPrefix::default();
    }
    let total = measured.input.saturating_add(measured.output).min(input_tokens);
    let is_extended = Arc::ptr_eq(&last.state, &live.state)
        && next.measured().is_some()
        && next.conversation.operations.is_empty()
        && machine::thread_system(next) == measured.system;
    if is_extended {
        return CachedPrefix { tokens: total, loss: None };
    }
    let Some(before) = last_request(last) else { return CachedPrefix::default() };
    let after = request_of(&live.plan, next);
    let by = live.plan.model.counted_by;
    let compared = compare_requests(&before, &after, by);
    let kept = if compared.is_whole { total } else { compared.kept.min(total) };
    let resent = compared.resent.min(total.saturating_sub(kept));
    let loss = (resent > 0).then(|| {
        let price = |cache_read: u64| {
            let usage = Usage { input: input_tokens - cache_read, output: 0, cache_read, cache_write: 0 };
            model.prices.as_ref().and_then(|_| cost(model, &usage)).map(Nanos::to_u64)
        };
        let cost = price(kept).zip(price(kept + resent)).map(|(paid, cached)| paid.saturating_sub(cached));
        CacheLoss { tokens: resent, cost, parts: changed_parts(last, live, (&before, &after), fired) }
    });
    CachedPrefix { tokens: kept, loss }
}

/// Returns two token counts of the last request and its reply: the tokens that a request with another plan could still
/// read from the cache, and the tokens that such a request would send again uncached.
pub(super) fn cached_prefix_of_plan(live: &LiveState, after: &Plan, cached_tokens: u64) -> (u64, u64) {
    let with_layers = |plan: &Plan| {
        let system = render_layers(&plan.prompt.system);
        Request { system: system.into(), ..request_of(plan, &live.state) }
    };
    let compared = compare_requests(&with_layers(&live.plan), &with_layers(after), live.plan.model.counted_by);
    if compared.is_whole {
        return (cached_tokens, 0);
    }
    let kept = compared.kept.min(cached_tokens);
    (kept, compared.resent.min(cached_tokens - kept))
}

fn render_layers(layers: &[Layer]) -> String {
    let texts = layers.iter().map(|layer| render_layer(layer, &mut RuntimePlaceholder::marker));
    texts.collect::<Vec<_>>().join("\n\n")
}

fn request_of(plan: &Plan, state: &ThreadState) -> Request {
    machine::build_request(plan, state, ModelCall { max_output: 0, compacts: false }, RequestTurns::All)
}

/// Returns the last request of the session with its reply; `None` if the provider did not count the tokens of the
/// request.
fn last_request(last: &LiveState) -> Option<Request> {
    let measured = last.state.conversation.measured.clone()?;
    let mut state = (*last.state).clone();
    state.conversation.messages.truncate(measured.messages.saturating_add(1));
    state.conversation.operations.clear();
    state.conversation.system_now = Some(measured.system);
    if let Some(chat) = &mut state.chat {
        chat.narrowed = measured.narrowed;
    }
    Some(request_of(&last.plan, &state))
}

/// The result of comparing a request with an earlier one, in estimated tokens.
struct PrefixComparison {
    /// Tokens of the unchanged prefix.
    kept: u64,
    /// Tokens after the first change that are in both requests.
    resent: u64,
    /// True if the whole earlier request is a prefix of the later one.
    is_whole: bool,
}

/// Compares two requests in the order in which providers cache them: tools, system prompt, messages. A changed system
/// prompt counts as wholly uncached, because a provider with breakpoints caches it as one block.
fn compare_requests(before: &Request, after: &Request, by: Tokenizer) -> PrefixComparison {
    let tokens_of_turns =
        |turns: &[SharedMessage]| turns.iter().fold(0_u64, |sum, turn| sum + machine::message_tokens(by, turn));
    let tokens_of_tools = |tools: &mut dyn Iterator<Item = &ToolDefinition>| {
        tools.fold(0_u64, |sum, tool| sum + by.count(&tool.description) + by.count(&tool.schema.to_string()))
    };
    let same_turns = before.turns.iter().zip(&after.turns).take_while(|(old, new)| old == new).count();
    let (common, rest) = before.turns.split_at_checked(same_turns).unwrap_or((&before.turns, &[]));
    let tools = tokens_of_tools(&mut before.tools.iter().filter(|tool| after.tools.contains(tool)));
    let system = count_common(&before.system, &after.system, by);
    let turns = tokens_of_turns(common);
    match (before.tools == after.tools, before.system == after.system) {
        (false, _) => PrefixComparison { kept: 0, resent: tools + system + turns, is_whole: false },
        (true, false) => PrefixComparison { kept: tools, resent: system + turns, is_whole: false },
        (true, true) => {
            let mut left = rest;
            let mut resent = 0;
            for turn in after.turns.get(same_turns..).unwrap_or_default() {
                if let Some(at) = left.iter().position(|old| old == turn) {
                    resent += machine::message_tokens(by, turn);
                    left = left.get(at + 1..).unwrap_or_default();
                }
            }
            PrefixComparison { kept: tools + system + turns, resent, is_whole: rest.is_empty() }
        }
    }
}

/// Counts the tokens that two texts have in common at their start and at their end.
fn count_common(one: &str, other: &str, by: Tokenizer) -> u64 {
    let start = common_prefix(one, other);
    let rest = |text: &str| text.get(start.len()..).unwrap_or_default().chars().rev().collect::<String>();
    let (one, other) = (rest(one), rest(other));
    let end: String = common_prefix(&one, &other).chars().rev().collect();
    by.count(start) + by.count(&end)
}

fn common_prefix<'t>(one: &'t str, other: &str) -> &'t str {
    let end = one.char_indices().zip(other.chars()).find(|((_, one), other)| one != other).map(|((at, _), _)| at);
    let end = end.unwrap_or(one.len().min(other.len()));
    one.get(..end).unwrap_or_default()
}

/// Returns the parts that differ between the last request and the next one.
fn changed_parts(
    last: &LiveState,
    live: &LiveState,
    (before, after): (&Request, &Request),
    fired: &[String],
) -> Vec<ChangedPart> {
    let part = |id: &str, change| ChangedPart { id: id.to_owned(), change };
    let mut parts = Vec::new();
    for tool in &after.tools {
        match before.tools.iter().find(|old| old.name == tool.name) {
            None => parts.push(part(&tool.name, RequestPartChange::Added)),
            Some(old) if old != tool => parts.push(part(&tool.name, RequestPartChange::Changed)),
            Some(_) => {}
        }
    }
    let is_left = |tool: &&ToolDefinition| after.tools.iter().all(|new| new.name != tool.name);
    parts.extend(before.tools.iter().filter(is_left).map(|tool| part(&tool.name, RequestPartChange::Removed)));
    let (old, new) = (&last.plan.prompt.system, &live.plan.prompt.system);
    for layer in new {
        match old.iter().find(|old| old.id == layer.id) {
            None => parts.push(part(&layer.id, RequestPartChange::Added)),
            Some(old) if old.segments != layer.segments => parts.push(part(&layer.id, RequestPartChange::Changed)),
            Some(_) => {}
        }
    }
    let is_left = |layer: &&Layer| new.iter().all(|new| new.id != layer.id);
    parts.extend(old.iter().filter(is_left).map(|layer| part(&layer.id, RequestPartChange::Removed)));
    // A hook had changed the system prompt of the last request.
    let was_replaced = last.state.conversation.measured.as_ref().map(|measured| &measured.system)
        != last.state.conversation.system.as_ref();
    let change = if was_replaced { RequestPartChange::Changed } else { RequestPartChange::Added };
    parts.extend(fired.iter().map(|hook| part(hook, change)));
    if was_replaced {
        let replaces = |hook: &&rye_compiler::hook::PlannedHook| {
            hook.event == HookPoint::BeforeAgentStart
                && hook.is_live()
                && matches!(hook.action, HookAction::SystemPrompt { .. })
                && !fired.contains(&hook.id)
        };
        parts.extend(live.plan.hooks.iter().filter(replaces).map(|hook| part(&hook.id, RequestPartChange::Removed)));
    }
    parts
}
