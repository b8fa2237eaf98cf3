//! The next request of a chat, computed before it is sent: its tokens and its price. The machine builds the request
//! from a copy of the state, as in a run.

use rye_compiler::hook::{HookAction, HookPoint};
use rye_compiler::plan::prompt::render_layer;
use rye_compiler::plan::{Layer, Plan, RuntimePlaceholder};
use rye_compiler::semantics::hook_point::row_of;
use rye_compiler::semantics::money::Nanos;

use crate::event::{
    AcceptedInput, AttemptIntended, Delivery, Event, EventBody, HookOutcome, HookVerdict, ReceivedMessage, UserInput,
};
use crate::event::{Continues, ControlMessage, LimitHit};
use crate::exchange::{Request, RequestTurns, Usage, cost};
use crate::hooks::{HookPointResult, HookTable};
use crate::live_state::LiveState;
use crate::machine::{self, Effect, Fact, HookRun, ModelCall, Signal, ThreadState};
use crate::message::{ContentBlock, Message, calls_in, text_of};

mod cache;
mod compaction;

pub use cache::{CacheLoss, ChangedPart, RequestPartChange};
pub use compaction::{CompactionPreview, preview_compaction};

/// Estimated output tokens of the next reply in a session that has no reply yet.
const DEFAULT_REPLY_TOKENS: u64 = 500;
/// Maximum number of machine steps that a preview simulates from a message to its request.
const MAX_STEPS: usize = 512;

/// The price of the request that a message would cause, in tokens and nano-dollars.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Preview {
    /// Estimated input tokens of the request.
    pub input_tokens: u64,
    /// Tokens of the request that the provider can read from its cache: the unchanged prefix of the last request and its
    /// reply.
    pub cached_tokens: u64,
    /// Tokens of the model's context window.
    pub context_window: u64,
    /// Expected cost of the request in nano-dollars, with a reply of average length; 0 if the model has no price.
    pub expected: u64,
    /// Upper bound on the cost of the request, in nano-dollars.
    pub worst_case: u64,
    /// Upper bound on the input tokens of the request.
    pub input_bound: u64,
    /// Maximum output tokens of the request.
    pub max_output: u64,
    /// The limit that forbids the request; `None` if no limit forbids it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Names of the hook points whose hooks will run before the request but did not run for the preview. These hooks
    /// can change the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<String>,
    /// Cached tokens that the request sends again uncached; `None` if the request only extends the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_loss: Option<CacheLoss>,
}

/// A part of the next request.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ContextPart {
    /// Kind of the part: `system`, `first_message`, `tool`, the kind of a message, or `omitted` for a part that the
    /// user leaves out.
    pub kind: String,
    /// Id of the item or the tool, or the number of the message.
    pub id: String,
    pub tokens: u64,
    /// The start of the text of a message; absent for other parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excerpt: Option<String>,
}

/// The tokens and the costs of a session's requests before and after a change of its plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PlanComparison {
    /// Estimated input tokens of the next request with the current plan.
    pub tokens: u64,
    /// Estimated input tokens of the next request with the changed plan.
    pub tokens_after: u64,
    /// Tokens that the provider's cache may contain now.
    pub cached_tokens: u64,
    /// Part of `cached_tokens` that the next request with the changed plan must send again uncached.
    #[serde(default)]
    pub resent_tokens: u64,
    /// Input cost of the next request, in nano-dollars; `None` if the model has no price.
    pub next: Option<u64>,
    pub next_after: Option<u64>,
    /// Input cost of each later request, in nano-dollars, if all of its input is read from the cache; `None` if the
    /// model has no price.
    pub later: Option<u64>,
    pub later_after: Option<u64>,
    /// Mean number of turns of a prompt of the session, at least 1.
    pub turns_per_prompt: u64,
}

/// Compares the requests that a session would send with its current plan and with another plan.
pub fn compare_plans(live: &LiveState, after: &std::sync::Arc<Plan>) -> PlanComparison {
    let state = &*live.state;
    let size = |live: &LiveState| context_parts(live).iter().map(|part| part.tokens).sum::<u64>();
    let changed = LiveState { plan: std::sync::Arc::clone(after), ..live.clone() };
    let (old, new) = (size(live), size(&changed));
    // If the provider has counted the last request, `estimate_tokens` is more exact than the sum of the parts.
    let tokens = machine::estimate_tokens(&live.plan, state).max(old);
    let tokens_after = tokens.saturating_add(new).saturating_sub(old);
    let cached_tokens = cache::cached_prefix(live, state, &[], tokens).tokens;
    let (kept, resent_tokens) = cache::cached_prefix_of_plan(live, after, cached_tokens);
    let kept = kept.min(tokens_after);
    let model = state.model(&live.plan);
    let price = |input: u64, cache_read: u64| {
        let usage = Usage { input, output: 0, cache_read, cache_write: 0 };
        model.prices.as_ref().and_then(|_| cost(model, &usage)).map(Nanos::to_u64)
    };
    let prompts = state.chat.as_ref().map_or(0, |chat| chat.prompts).max(1);
    PlanComparison {
        tokens,
        tokens_after,
        cached_tokens,
        resent_tokens,
        next: price(tokens - cached_tokens, cached_tokens),
        next_after: price(tokens_after - kept, kept),
        later: price(0, tokens),
        later_after: price(0, tokens_after),
        turns_per_prompt: (state.cost.turns / prompts).max(1),
    }
}

/// Returns the tokens and the price of the request that a message would cause. The text of `input` is not expanded. The
/// only hooks that are evaluated are hooks at `before_agent_start` and `context` that start no item. During a prompt,
/// the message counts as part of the next turn.
pub fn preview(live: &LiveState, input: &UserInput) -> Preview {
    let plan = &*live.plan;
    let mut state = (*live.state).clone();
    let mut played = PlayedPrompt::default();
    if state.is_idle() {
        played.play(plan, &mut state, input);
    }
    let PlayedPrompt { mut found, changing_hooks } = played;
    if !live.state.is_idle() {
        let message = Message::user_with_images(&input.images, input.text.clone());
        state.conversation.messages.push(message.into());
        found.worst_case = machine::turn_worst_case(plan, &state);
        found.input_bound = machine::bound_input_tokens(plan, &state);
        found.max_output = state.model(plan).requested_output(state.limits.output);
    }
    let model = state.model(plan);
    found.input_tokens = machine::estimate_tokens(plan, &state);
    let cached = cache::cached_prefix(live, &state, &changing_hooks, found.input_tokens);
    (found.cached_tokens, found.cache_loss) = (cached.tokens, cached.loss);
    found.context_window = model.context_window;
    let usage = Usage {
        input: found.input_tokens.saturating_sub(found.cached_tokens),
        output: average_reply(&state).min(found.max_output),
        cache_read: found.cached_tokens,
        cache_write: 0,
    };
    let priced = model.prices.as_ref().and_then(|_| cost(model, &usage));
    found.expected = priced.map_or(0, Nanos::to_u64).min(found.worst_case);
    found
}

/// Returns the request that a message would cause. `None` during a prompt, if a limit forbids the request, and if the
/// message causes no request.
pub fn preview_request(live: &LiveState, input: &UserInput) -> Option<Request> {
    let mut state = (*live.state).clone();
    let attempt = state.is_idle().then(|| PlayedPrompt::default().play(&live.plan, &mut state, input))??;
    let call = ModelCall { max_output: attempt.max_output, compacts: false };
    Some(machine::build_request(&live.plan, &state, call, RequestTurns::All))
}

/// The results of the simulation of a prompt.
#[derive(Default)]
struct PlayedPrompt {
    /// The bounds of the model call, the hook points that did not run, and the limit that forbids the call.
    found: Preview,
    /// Ids of the fired hooks that change the system prompt or the messages of the request.
    changing_hooks: Vec<String>,
}

impl PlayedPrompt {
    /// Simulates a user message on `state`, a copy of the thread's state, up to the next model call. Returns the attempt
    /// of this call; `None` if a limit forbids the call, or if the message causes no call.
    fn play(&mut self, plan: &Plan, state: &mut ThreadState, input: &UserInput) -> Option<AttemptIntended> {
        let id = "preview".to_owned();
        let message = ControlMessage::Submit { input: input.clone(), delivery: Delivery::Prompt };
        let accepted = AcceptedInput {
            id: id.clone(),
            delivery: Delivery::Prompt,
            source: input.source,
            raw: input.text.clone(),
            text: input.text.clone(),
            images: input.images.clone(),
            expansions: Vec::new(),
            handled: false,
            reply: None,
            bounds: input.bounds.clone(),
        };
        if let Some(chat) = &mut state.chat {
            // The message would wait behind the queued messages, so the copy of the state drops them.
            chat.queue.clear();
        }
        fold(state, EventBody::Mail(ReceivedMessage { id, message }));
        fold(state, EventBody::UserInput(Box::new(accepted)));
        self.play_to_attempt(plan, state)
    }

    /// Simulates the steps of `state` up to the next model call, and returns the attempt of this call.
    fn play_to_attempt(&mut self, plan: &Plan, state: &mut ThreadState) -> Option<AttemptIntended> {
        for _ in 0..MAX_STEPS {
            let at = state.clock.now;
            let fact = match machine::next(plan, state) {
                Effect::Record => Fact::Tick,
                Effect::RunHooks(run) => self.evaluate_hooks(plan, state, *run),
                Effect::Reserve(_)
                | Effect::CallModel { .. }
                | Effect::RunTools(_)
                | Effect::RunCommand { .. }
                | Effect::Spawn(_)
                | Effect::Await(_)
                | Effect::Sleep { .. }
                | Effect::Ask { .. }
                | Effect::Wait
                | Effect::Done { .. } => return None,
            };
            for body in machine::absorb(plan, state, Signal { at, fact }) {
                if let EventBody::AttemptIntended(intended) = &body {
                    self.found.worst_case = intended.worst_case;
                    self.found.input_bound = intended.input_bound;
                    self.found.max_output = intended.max_output;
                    return Some(intended.clone());
                }
                if let EventBody::Limit(LimitHit { limit_code, .. }) = &body {
                    self.found.limit = Some(limit_code.clone());
                    return None;
                }
                if matches!(body, EventBody::PromptEnded(_)) {
                    return None;
                }
                fold(state, body);
            }
        }
        None
    }

    /// Returns the answer of a hook point. Only hooks that can change the prefix of the request and that start no item
    /// are evaluated.
    fn evaluate_hooks(&mut self, plan: &Plan, state: &ThreadState, run: HookRun) -> Fact {
        let is_evaluated = matches!(run.point, HookPoint::BeforeAgentStart | HookPoint::Context);
        let inputs = state.launch.as_ref().map(|launch| launch.inputs.clone()).unwrap_or_default();
        let evaluated = is_evaluated.then(|| HookTable::simulate(plan, &inputs, &run).ok()).flatten();
        let mut hooks = plan.hooks.iter().filter(|hook| hook.is_live() && hook.event == run.point);
        let name = row_of(run.point).name;
        if hooks.any(|hook| evaluated.is_none() || hook.action.item().is_some())
            && !self.found.hooks.iter().any(|point| point == name)
        {
            self.found.hooks.push(name.to_owned());
        }
        let nothing = HookPointResult { considered: Vec::new(), children: Vec::new(), answer: HookOutcome::None };
        let HookPointResult { considered, children, answer } = evaluated.unwrap_or(nothing);
        for fired in considered.iter().filter(|one| one.verdict == HookVerdict::Fired) {
            let hook = plan.hooks.iter().find(|hook| hook.id == fired.hook && hook.event == run.point);
            if hook
                .is_some_and(|hook| !matches!(hook.action, HookAction::Message { .. } | HookAction::Terminate { .. }))
            {
                self.changing_hooks.push(fired.hook.clone());
            }
        }
        Fact::HooksRan {
            point: run.point,
            subject: run.subject,
            considered,
            children,
            answer: Box::new(answer),
            objects: Vec::new(),
            kept: Vec::new(),
            expansions: Vec::new(),
        }
    }
}

fn fold(state: &mut ThreadState, body: EventBody) {
    let event = Event { seq: state.events, ts: state.clock.now, body };
    machine::apply(state, &event);
}

fn average_reply(state: &ThreadState) -> u64 {
    state.cost.output_tokens.checked_div(state.cost.turns).filter(|tokens| *tokens > 0).unwrap_or(DEFAULT_REPLY_TOKENS)
}

/// Returns the parts of the next request in order, with estimated tokens.
pub fn context_parts(live: &LiveState) -> Vec<ContextPart> {
    let (plan, state) = (&*live.plan, &*live.state);
    let by = plan.model.counted_by;
    let mut fill = RuntimePlaceholder::marker;
    let mut of_layer = |kind: &str, layer: &Layer| ContextPart {
        kind: kind.to_owned(),
        id: layer.id.clone(),
        tokens: by.count(&render_layer(layer, &mut fill)),
        excerpt: None,
    };
    let mut parts: Vec<ContextPart> = plan.prompt.system.iter().map(|layer| of_layer("system", layer)).collect();
    if !state.conversation.prompted {
        let first = plan.prompt.first_message.iter();
        let layers: Vec<&Layer> = match state.continued_prompts() {
            // A continued conversation already contains the unchanged layers of the first message.
            Some(Continues { sent, resent, .. }) => {
                let continued = plan.prompt.continued.iter().filter(|layer| !sent.contains(&layer.id));
                first.filter(|layer| resent.contains(&layer.id)).chain(continued).collect()
            }
            None => first.collect(),
        };
        parts.extend(layers.into_iter().map(|layer| of_layer("first_message", layer)));
    }
    parts.extend(plan.palette.iter().map(|tool| ContextPart {
        kind: "tool".to_owned(),
        id: tool.name.to_string(),
        tokens: tool.tokens,
        excerpt: None,
    }));
    parts.extend(state.conversation.messages.iter().enumerate().map(|(index, message)| ContextPart {
        kind: message.kind().to_owned(),
        id: (index + 1).to_string(),
        tokens: machine::message_tokens(by, message),
        excerpt: Some(excerpt(message)),
    }));
    let omitted = |id: &String| ContextPart { kind: "omitted".to_owned(), id: id.clone(), tokens: 0, excerpt: None };
    parts.extend(plan.omitted.iter().map(omitted));
    parts
}

/// Maximum characters of the excerpt of a message.
const MAX_EXCERPT_CHARS: usize = 48;

/// The excerpt of a message that a hook hides from the user of a chat.
const HIDDEN_EXCERPT: &str = "(hidden by a hook)";

/// Returns the start of the text of a message. If layers of the plan precede the text of the user, returns the start of
/// the last line, with a note about the layers.
fn excerpt(message: &Message) -> String {
    let cut = |text: &str| -> String {
        let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let short: String = line.chars().take(MAX_EXCERPT_CHARS).collect();
        if short.len() < line.len() { format!("{short}…") } else { short }
    };
    let of_blocks = |content: &[ContentBlock]| {
        let text = text_of(content);
        let calls: Vec<&str> = calls_in(content).map(|call| call.name.as_str()).collect();
        if text.trim().is_empty() && !calls.is_empty() { format!("calls {}", calls.join(", ")) } else { cut(&text) }
    };
    match message {
        Message::User { content } => {
            let text = text_of(content);
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            match lines.as_slice() {
                [first, .., last] if first.starts_with('<') => format!("(with layers of the plan) {}", cut(last)),
                _ => cut(&text),
            }
        }
        Message::Assistant { content } => of_blocks(content),
        Message::ToolResult { name, content, .. } => format!("{name}: {}", cut(content)),
        Message::Custom { content, display: true, .. } => cut(content),
        Message::Custom { display: false, .. } => HIDDEN_EXCERPT.to_owned(),
        Message::Bash { command, .. } => format!("!{}", cut(command)),
        Message::CompactionSummary { text } | Message::BranchSummary { text } => cut(text),
    }
}
