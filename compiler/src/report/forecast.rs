//! Cost forecast of a plan: the first request, a typical run, and bounds on every run. A forecast uses only the prices
//! and limits of the plan. The constants below are the assumptions about a typical run; reports print them.

use crate::hook::HookPoint;
use crate::plan::bound::MESSAGE_OVERHEAD_TOKENS;
use crate::plan::prompt::Layer;
use crate::plan::settings::BILLIONTHS;
use crate::plan::{PalettePrimary, Plan, PlannedModel, RequestTokens, RuntimePlaceholder, Segment, Tokenizer, Tokens};
use crate::report::render::turn_hooks;
use crate::report::run_bounds::{ThreadBound, TurnBounds, WorstCase};
use crate::semantics::change_frequency::ChangeFrequency;
use crate::semantics::limits::LimitName;
use crate::semantics::money::Nanos;

/// Number of model calls in a typical run.
pub(crate) const TYPICAL_TURNS: u64 = 6;
/// Output tokens of a reply in a typical run.
pub(crate) const TYPICAL_OUTPUT_TOKENS: u64 = 300;
/// Tokens of all tool results of one turn in a typical run.
pub(crate) const TYPICAL_RESULT_TOKENS: u64 = 600;
/// Assumed number of bytes of a token in a typical run.
const BYTES_PER_TOKEN: u64 = 4;
/// Number of times that one turn adds `MESSAGE_OVERHEAD_TOKENS`: twice for the reply (a message with one block), and
/// twice for the message with the tool result.
const FRAMES_PER_TURN: u64 = 4;

/// An estimate of one run: the total turns, tokens and cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunEstimate {
    pub turns: u64,
    /// Prompt tokens of all requests together, cached ones included.
    pub input: u64,
    /// Part of `input` that is read from the provider's cache.
    pub cached: u64,
    pub output: u64,
    /// The cost in nano-dollars; `None` if the model has no price.
    pub cost: Option<Nanos>,
    pub stopped: StopReason,
}

/// The reason why the simulated run of a forecast ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The model has nothing left to do.
    Done,
    Limit(LimitName),
    /// The context window is nearly full, so the thread hands off.
    Window,
}

impl StopReason {
    /// Returns the name of the reason in reports: `done`, the name of a limit, or `context window`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Limit(limit) => limit.as_str(),
            Self::Window => "context window",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forecast {
    /// The first request at its worst case: every sent byte is a token, the reply has its maximum length, and the more
    /// expensive one of the model and its fallback answers.
    pub first: RunEstimate,
    pub typical: RunEstimate,
    /// Upper bound on the cost of every run.
    pub worst: WorstCase,
    pub turns: TurnBounds,
    /// Upper bound on the number of threads in the tree of a run.
    pub threads: ThreadBound,
    pub prefix: StablePrefix,
}

/// The number of tokens at the start of a request that earlier requests can share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StablePrefix {
    /// Tokens that are identical in every thread of this plan: the palette, then the prompt up to its first
    /// placeholder.
    pub constant: u64,
    /// Tokens that every turn of one thread sends unchanged: the palette, the system prompt, and the first message
    /// unless a hook changes the start of the messages.
    pub per_thread: u64,
}

/// Assumptions about the turns of a typical run.
#[derive(Clone, Copy)]
struct Scenario {
    turns: u64,
    output: u64,
    result: u64,
    /// Tokens that every turn after the first one reads from the cache.
    cached: u64,
}

impl Scenario {
    /// Returns the difference between the upper bound and the estimate of the next prompt, in tokens. The bound counts
    /// each byte of the last reply and of its tool results as a token, because the provider has not yet reported their
    /// tokens. The estimate assumes `BYTES_PER_TOKEN`.
    fn unmeasured(&self) -> u64 {
        let fresh = self.output.saturating_add(self.result).saturating_mul(BYTES_PER_TOKEN - 1);
        fresh.saturating_add(FRAMES_PER_TURN * MESSAGE_OVERHEAD_TOKENS)
    }
}

impl RunEstimate {
    const NONE: Self = Self { turns: 0, input: 0, cached: 0, output: 0, cost: None, stopped: StopReason::Done };
}

impl Plan {
    /// Computes the forecast from the token counts of the first request.
    pub(crate) fn forecast(&self, first: &RequestTokens) -> Forecast {
        let prefix = StablePrefix { constant: self.constant_prefix(first), per_thread: self.per_thread(first) };
        let largest = if self.calls_tools() { self.largest_result_bytes() } else { 0 };
        let typical = Scenario {
            turns: if self.can_continue() { TYPICAL_TURNS } else { 1 },
            output: first.output.min(TYPICAL_OUTPUT_TOKENS),
            result: (largest / BYTES_PER_TOKEN).min(TYPICAL_RESULT_TOKENS),
            cached: prefix.per_thread,
        };
        Forecast {
            first: self.bound_first_turn(first),
            typical: self.estimate_run(first, typical),
            worst: self.bound_cost(),
            turns: self.bound_turns(),
            threads: self.bound_threads(),
            prefix,
        }
    }

    /// Returns the worst case of the first turn of a run. If a limit does not allow the first request, the result has
    /// no turns, and a cost of zero if the model has prices.
    fn bound_first_turn(&self, first: &RequestTokens) -> RunEstimate {
        let budget = Nanos::from_u64(self.prompt_limits().spend);
        let stopped = self.stopped(&RunEstimate::NONE, first.input_bound, first.input_bound, budget);
        let is_priced = self.model.prices.is_some();
        if stopped != StopReason::Done {
            return RunEstimate { cost: is_priced.then_some(Nanos::ZERO), stopped, ..RunEstimate::NONE };
        }
        let bound_call = |model: &PlannedModel, input: u64, wanted: u64| {
            let output = self.affordable_output(model, input, wanted, budget);
            let cost = model.prices.map(|prices| prices.worst_case(input, output));
            RunEstimate { turns: 1, input, cached: 0, output, cost, stopped }
        };
        let own = bound_call(&self.model, first.input_bound, first.output);
        let answering = self.model.fallback.as_deref().map(|fallback| {
            bound_call(fallback, first.fallback_bound, fallback.requested_output(self.prompt_limits().output))
        });
        // If the limit does not allow a request to the fallback, the thread ends before the request.
        let budget = Some(budget);
        answering.filter(|other| is_priced && other.cost > own.cost && other.cost <= budget).unwrap_or(own)
    }

    fn estimate_run(&self, first: &RequestTokens, pace: Scenario) -> RunEstimate {
        let opening = first.input();
        let budget = Nanos::from_u64(self.prompt_limits().spend);
        let mut estimate = RunEstimate::NONE;
        let mut spent = Nanos::ZERO;
        let mut grown = 0u64;
        while estimate.turns < pace.turns {
            let prompt = opening.saturating_add(grown);
            let left = budget.saturating_sub(spent);
            let is_first = estimate.turns == 0;
            let bound = if is_first { first.input_bound } else { prompt.saturating_add(pace.unmeasured()) };
            estimate.stopped = self.stopped(&estimate, prompt, bound, left);
            if estimate.stopped != StopReason::Done {
                break;
            }
            let output = self.affordable_output(&self.model, bound, pace.output, left);
            let (cached, rest) = (pace.cached, opening.saturating_sub(pace.cached));
            let tokens = if is_first {
                Tokens { cache_write: cached, input: rest, output, cache_read: 0 }
            } else {
                Tokens { cache_read: cached, input: rest.saturating_add(grown), output, cache_write: 0 }
            };
            // If the cost overflows, it is above the remaining budget, so the budget is the cost.
            let cost = self.model.prices.map(|prices| prices.cost(&tokens).unwrap_or(left).min(left));
            spent = spent.saturating_add(cost.unwrap_or_default());
            estimate.turns += 1;
            estimate.input = estimate.input.saturating_add(prompt);
            estimate.cached = estimate.cached.saturating_add(tokens.cache_read);
            estimate.output = estimate.output.saturating_add(output);
            grown = grown.saturating_add(output).saturating_add(pace.result);
        }
        estimate.cost = self.model.prices.map(|_| spent);
        estimate
    }

    /// Returns the reason why a thread sends no further request: the first limit that forbids the request, or a full
    /// context window. Returns `Done` if nothing forbids the request. The limits are checked in the order of a run.
    /// `prompt` is the estimated number of tokens of the next prompt, `bound` is an upper bound on this number, and
    /// `left` is the money that is not spent.
    fn stopped(&self, estimate: &RunEstimate, prompt: u64, bound: u64, left: Nanos) -> StopReason {
        if estimate.turns >= self.prompt_limits().turns {
            return StopReason::Limit(LimitName::Turns);
        }
        if estimate.input.saturating_add(estimate.output) >= self.prompt_limits().tokens {
            return StopReason::Limit(LimitName::Tokens);
        }
        if self.model.prices.is_some() && self.model.worst_case(bound, self.min_output_tokens(&self.model)) > left {
            return StopReason::Limit(LimitName::Spend);
        }
        // The first request is sent even if the prompt fills the window.
        let (used, window) = (u128::from(prompt), u128::from(self.model.context_window));
        let threshold = u128::from(self.settings.values().continuation_threshold);
        if estimate.turns > 0 && used * u128::from(BILLIONTHS) >= window * threshold {
            return StopReason::Window;
        }
        StopReason::Done
    }

    /// Returns the number of output tokens that the money `left` pays for, at most `wanted`, if the prompt has `bound`
    /// tokens. The result is never below the minimum with which the model is called, even if `left` does not pay for
    /// it. Returns `wanted` if the model has no prices.
    fn affordable_output(&self, model: &PlannedModel, bound: u64, wanted: u64, left: Nanos) -> u64 {
        if model.worst_case(bound, wanted) <= left || model.prices.is_none() {
            return wanted;
        }
        let (mut low, mut high) = (self.min_output_tokens(model).min(wanted), wanted);
        while low < high {
            let middle = high - (high - low) / 2;
            if model.worst_case(bound, middle) <= left {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }

    /// Returns true if another turn can follow a reply: the palette is not empty, or a hook at `agent_end` can let the
    /// thread continue.
    pub(in crate::report) fn can_continue(&self) -> bool {
        !self.palette.is_empty() || self.hooks.iter().any(|h| h.is_live() && h.event == HookPoint::AgentEnd)
    }

    fn calls_tools(&self) -> bool {
        self.palette.iter().any(|tool| tool.primary != PalettePrimary::Return)
    }

    fn largest_result_bytes(&self) -> u64 {
        u64::try_from(self.settings.values().max_result_bytes).unwrap_or(u64::MAX)
    }

    /// Returns the tokens that every turn of a thread sends unchanged: palette, system prompt and first message. The
    /// first message does not count if a hook changes the start of the messages.
    fn per_thread(&self, first: &RequestTokens) -> u64 {
        match self.hook_before_messages() {
            Some(_) => first.palette.saturating_add(first.system),
            None => first.input().saturating_sub(turn_hooks::trailing_tokens(self)),
        }
    }

    fn constant_prefix(&self, first: &RequestTokens) -> u64 {
        let (system, messages) = (self.prompt.system.clone(), self.prompt.first_message.clone());
        let turn = turn_hooks::apply(self, system, messages);
        let (system, is_whole) = count_fixed_tokens(&turn.system, self.model.counted_by);
        if !is_whole {
            return first.palette.saturating_add(system);
        }
        let (message, _) = count_fixed_tokens(&turn.messages, self.model.counted_by);
        first.palette.saturating_add(first.system).saturating_add(message)
    }
}

/// Counts the tokens of the system prompt or of the messages, up to the first part that can differ between threads: a
/// placeholder, or a layer that only some runs send. The second value is true if no part can differ.
fn count_fixed_tokens(layers: &[Layer], by: Tokenizer) -> (u64, bool) {
    let mut text = String::new();
    for layer in layers {
        if layer.depends {
            return (by.count(&text), false);
        }
        for segment in &layer.segments {
            match segment {
                Segment::Text { text: known } => text.push_str(known),
                Segment::Pending { pending, .. } if is_constant(pending) => text.push_str(&pending.marker()),
                Segment::Pending { .. } => return (by.count(&text), false),
            }
        }
    }
    (by.count(&text), true)
}

/// Returns true if a placeholder has the same value in all threads of a plan.
fn is_constant(placeholder: &RuntimePlaceholder) -> bool {
    let RuntimePlaceholder::Fact { path, .. } = placeholder else { return false };
    ChangeFrequency::of_fact(path.split('.').next().unwrap_or(path)) == ChangeFrequency::Never
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::compile::tests::world::{minimal_world, with_directives};
    use crate::compile::{CompileRequest, compile};
    use crate::plan::PlanMode;
    use rye_grammar::ItemId;

    /// Uses `large` of the provider `mini`: window 2000, output at most 500, $2 per million input tokens, $10 per
    /// million output tokens.
    fn forecast(inside: &str) -> Forecast {
        forecast_in(inside, PlanMode::Run)
    }

    fn forecast_in(inside: &str, mode: PlanMode) -> Forecast {
        let world = with_directives(minimal_world(), &[("leaf", "", inside, "Do it.")]);
        let request = CompileRequest { mode, ..CompileRequest::new(ItemId::parse("leaf").unwrap()) };
        let plan = compile(&world, &request).value.unwrap().plan;
        let weight = plan.count_request_tokens("", &"x".repeat(400));
        plan.forecast(&weight)
    }

    const TOOLS: &str = "<permissions><execute><tool>*</tool></execute></permissions>";

    #[test]
    fn typical_run_without_tools_has_one_turn() {
        let found = forecast("<metadata><permissions/></metadata>");
        assert_eq!((found.typical.turns, found.typical.stopped), (1, StopReason::Done));
        // The message has 400 bytes. The frame of the message adds 128 tokens, its block 128, and the request 256.
        assert_eq!(found.first.cost, Some(Nanos((400 + 512) * 2000 + 500 * 10_000)));
        assert_eq!((found.first.turns, found.first.stopped), (1, StopReason::Done));
    }

    #[test]
    fn first_request_costs_as_much_as_the_dearer_of_model_and_fallback() {
        let first = |model: &str| forecast(&format!("<metadata>{model}<permissions/></metadata>")).first.cost;
        let large = first("<model tier=\"general\"/>");
        assert!(first("<model tier=\"fast\"/>") < large);
        assert_eq!(first("<model tier=\"fast\" fallback=\"general\"/>"), large);
        assert_eq!(first("<model tier=\"general\" fallback=\"fast\"/>"), large);
        // The limit bounds the reply of each model.
        let bounded = first("<model tier=\"fast\" fallback=\"general\"/><limits spend=\"0.0065\"/>").unwrap();
        assert!(bounded <= Nanos(6_500_000), "{bounded:?}");
    }

    #[test]
    fn limits_of_the_session_bound_each_prompt_of_a_chat() {
        let limits = "<limits turns=\"5\" spend=\"0.10\"/><session turns=\"2\" spend=\"0.02\"/>";
        let inside = format!("<metadata>{limits}{TOOLS}</metadata>");
        let (run, chat) = (forecast(&inside), forecast_in(&inside, PlanMode::Chat));
        assert_eq!((run.worst.cost, chat.worst.cost), (Some(Nanos(100_000_000)), Some(Nanos(20_000_000))));
        let most = |found: &Forecast| found.turns.at_most.map(|most| most.turns);
        assert_eq!((most(&run), most(&chat)), (Some(5), Some(2)));
    }

    #[test]
    fn typical_run_stops_at_the_first_limit() {
        let end = |inside: &str| forecast(&format!("<metadata>{inside}{TOOLS}</metadata>")).typical;
        assert_eq!(end("").stopped, StopReason::Window);
        assert_eq!(end("<limits turns=\"1\"/>").stopped, StopReason::Limit(LimitName::Turns));
        assert_eq!(end("<limits tokens=\"300\"/>").stopped, StopReason::Limit(LimitName::Tokens));
        let spend = end("<limits spend=\"0.0112\"/>");
        assert_eq!((spend.stopped, spend.turns), (StopReason::Limit(LimitName::Spend), 1));
    }

    #[test]
    fn unaffordable_first_request_costs_nothing() {
        // The limit pays for the body of the directive, but not for the 400 bytes of the rendered message.
        let found = forecast("<metadata><limits spend=\"0.0065\"/><permissions/></metadata>");
        for run in [found.first, found.typical] {
            assert_eq!((run.turns, run.cost), (0, Some(Nanos::ZERO)));
            assert_eq!(run.stopped, StopReason::Limit(LimitName::Spend));
        }
    }

    #[test]
    fn cached_prefix_lowers_later_turns_and_ends_where_a_hook_rewrites_messages() {
        let plain = forecast(&format!("<metadata>{TOOLS}</metadata>"));
        assert!(plain.typical.cached > 0 && plain.typical.turns > 1);
        assert_eq!(plain.typical.cached, plain.prefix.per_thread * (plain.typical.turns - 1));
        let hook = "<hooks><hook id=\"h\" event=\"context\"><keep_last n=\"3\"/></hook></hooks>";
        let rewritten = forecast(&format!("<metadata>{TOOLS}{hook}</metadata>"));
        assert!(
            rewritten.prefix.per_thread < plain.prefix.per_thread && rewritten.typical.cached < plain.typical.cached
        );
        assert_eq!(rewritten.typical.cached, rewritten.prefix.per_thread * (rewritten.typical.turns - 1));
    }
}
