//! Bounds on all runs of a plan: the cost of the tree of threads, and the turns of the thread with its continuations.
//! `forecast` estimates replies and results of typical length; a bound holds for replies and results of any length, and
//! covers children, hooks, retries, compaction, handoffs and recoveries.

use serde_json::Value;

use crate::hook::{HookAction, HookCall, HookPoint, PlannedHook};
use crate::lower::MIN_OUTPUT_TOKENS;
use crate::plan::prompt::{LAYER_SEPARATOR, render_layer};
use crate::plan::{PalettePrimary, PaletteTool, Plan, PlannedModel, RuntimePlaceholder, Tokenizer};
use crate::report::render::turn_hooks::adds_unknown_text;
use crate::report::render::view::MessageView;
use crate::semantics::capability::may_run_tools;
use crate::semantics::limits::{LimitName, LimitValue, parse_limit_value};
use crate::semantics::money::Nanos;
use crate::world::ItemKind;

/// Maximum bytes of the path of a project.
const MAX_PATH_BYTES: usize = 4096;
/// Maximum bytes of a thread id, which is a file name.
const MAX_THREAD_ID_BYTES: usize = 255;
/// Maximum bytes of the text of a limit's value.
const MAX_LIMIT_BYTES: usize = 32;

/// Upper bound on the cost of a tree of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorstCase {
    /// The bound in nano-dollars. `None` if nothing bounds the cost, or if no model has prices and the plan starts no
    /// other thread.
    pub cost: Option<Nanos>,
    pub set_by: CostBound,
}

/// The part of a plan that bounds [`WorstCase::cost`], or the reason why the cost has no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostBound {
    /// The limit `spend`: the ledger permits no attempt that could exceed it.
    Spend,
    /// The prices: every model of the plan is free or has no price, and the plan can start no other thread.
    Prices,
    /// No bound: a hook may raise the limit `spend`, and may do so again in each thread of a chain of handoffs.
    Raise,
}

impl CostBound {
    /// Returns the name used in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spend => "spend",
            Self::Prices => "prices",
            Self::Raise => "raise",
        }
    }
}

/// Bounds on the turns of a thread and its continuations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnBounds {
    /// Minimum number of turns that the limits allow in every run, even if each turn has its worst-case cost. The model
    /// may end the run after fewer turns.
    pub at_least: TurnBound,
    /// Upper bound on the turns of every run; `None` if hooks may raise every limit that bounds them.
    pub at_most: Option<TurnBound>,
    /// Upper bound on the turns before the first handoff, if it is below `at_most`: the highest value to which a hook
    /// raises the limit `turns`. A continuation starts with the turns that are left, and its hooks may raise the limit
    /// again, so this bound does not hold for a chain of continuations.
    pub before_handoff: Option<u64>,
}

/// A bound on the number of turns, and the limit that sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnBound {
    pub turns: u64,
    pub set_by: LimitName,
}

/// Upper bound on the threads of a tree. A thread counts once with its continuations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadBound {
    /// The maximum number of threads, with the root thread; `None` if a hook may raise the limit `spawns`.
    pub threads: Option<u64>,
    pub set_by: ThreadBoundOrigin,
}

/// The part of a plan that sets the bound on its threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadBoundOrigin {
    /// The grants and the hooks: none of them starts another thread.
    Grants,
    /// The limit `depth` is 0.
    Depth,
    /// The limit `spawns`, which counts all descendants.
    Spawns,
    /// A hook that may raise `spawns`, so that the number of threads has no bound.
    Raise,
}

impl ThreadBoundOrigin {
    /// Returns the name used in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Grants => "grants",
            Self::Depth => "depth",
            Self::Spawns => "spawns",
            Self::Raise => "raise",
        }
    }
}

impl TurnBound {
    fn new(turns: u64, set_by: LimitName) -> Self {
        Self { turns, set_by }
    }
}

/// Returns the value to which an action raises a limit; `None` if only a run knows the value.
fn raised_value(limit: LimitName, value: &Value) -> Option<u64> {
    let written = match value {
        Value::String(text) => LimitValue::Text(text.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            LimitValue::Json(value.clone())
        }
    };
    parse_limit_value(limit, &written).ok()
}

impl Plan {
    /// Returns an upper bound on the cost of every run. The bound is the `spend` limit: the ledger reserves the worst
    /// case of each attempt and the money of each child from this limit. There is no bound if a hook may raise the
    /// limit. The bound is zero if all models are free and the plan starts no other thread.
    ///
    /// A smaller bound, such as the worst case of one attempt for each turn, does not hold: a recovery can repeat an
    /// interrupted attempt any number of times, and messages to the thread can lengthen its prompt.
    pub fn bound_cost(&self) -> WorstCase {
        let is_free = self.models().all(is_free);
        if is_free && !self.can_start_threads() {
            let cost = self.models().any(|model| model.prices.is_some()).then_some(Nanos::ZERO);
            return WorstCase { cost, set_by: CostBound::Prices };
        }
        if self.can_raise(LimitName::Spend) {
            return WorstCase { cost: None, set_by: CostBound::Raise };
        }
        WorstCase { cost: Some(Nanos::from_u64(self.limits.spend)), set_by: CostBound::Spend }
    }

    /// Returns bounds on the turns of every run.
    pub fn bound_turns(&self) -> TurnBounds {
        let at_most = self.bound_turns_above();
        let at_least = self.bound_turns_below();
        let at_least = at_most.filter(|most| most.turns < at_least.turns).unwrap_or(at_least);
        let highest = self.highest_turn_limit();
        let before_handoff = highest.filter(|turns| at_most.is_none_or(|most| *turns < most.turns));
        TurnBounds { at_least, at_most, before_handoff }
    }

    /// Returns an upper bound on the number of threads in the tree of every run. The limit `spawns` counts all
    /// descendants: children, children of hooks and detached runs of tools. A continuation can use only the spawns that
    /// its thread did not use.
    pub fn bound_threads(&self) -> ThreadBound {
        let bound = |threads, set_by| ThreadBound { threads: Some(threads), set_by };
        let detaches = self.can_detach_tools();
        if !self.can_start_threads() && !detaches {
            return bound(1, ThreadBoundOrigin::Grants);
        }
        // A detached run of a tool is allowed even if `depth` is 0.
        if self.limits.depth == 0 && !detaches && !self.can_raise(LimitName::Depth) {
            return bound(1, ThreadBoundOrigin::Depth);
        }
        if self.can_raise(LimitName::Spawns) {
            return ThreadBound { threads: None, set_by: ThreadBoundOrigin::Raise };
        }
        bound(self.limits.spawns.saturating_add(1), ThreadBoundOrigin::Spawns)
    }

    /// Returns true if the model may run a tool in a thread of its own (`async` of `rye_execute`).
    fn can_detach_tools(&self) -> bool {
        let is_execute = |tool: &PaletteTool| tool.item_id.is_none() && tool.primary == PalettePrimary::Execute;
        let grants = &self.capabilities.grants;
        self.palette.iter().any(is_execute) && grants.iter().any(|grant| may_run_tools(&grant.pattern))
    }

    /// Returns the smallest of the upper bounds that the limits `turns`, `tokens` and `spend` set on the turns; `None`
    /// if none of these limits sets a bound. A limit that a hook may raise sets no bound.
    fn bound_turns_above(&self) -> Option<TurnBound> {
        let spend = self.most_paid_turns().map(|turns| TurnBound::new(turns, LimitName::Spend));
        let bounds = [
            Some(TurnBound::new(self.limits.turns, LimitName::Turns)),
            // Each turn starts below the limit and uses at least one token, so a run has at most as many turns as
            // tokens.
            Some(TurnBound::new(self.limits.tokens, LimitName::Tokens)),
            spend,
        ];
        bounds.into_iter().flatten().filter(|bound| !self.can_raise(bound.set_by)).min_by_key(|bound| bound.turns)
    }

    /// Returns the highest value that the limit `turns` has before the first handoff; `None` if only a run knows the
    /// value to which a hook raises it.
    fn highest_turn_limit(&self) -> Option<u64> {
        let at_limit = self.hooks.iter().filter(|hook| hook.is_live() && hook.event == HookPoint::Limit);
        at_limit.map(|hook| &hook.action).try_fold(self.limits.turns, |highest, action| {
            if let HookAction::Raise { limit, value } = action {
                return match LimitName::parse(limit)? {
                    LimitName::Turns => Some(raised_value(LimitName::Turns, value)?.max(highest)),
                    LimitName::Tokens
                    | LimitName::Spend
                    | LimitName::Spawns
                    | LimitName::Depth
                    | LimitName::DurationSeconds
                    | LimitName::Output => Some(highest),
                };
            }
            (!matches!(action.call(), Some(HookCall::Execute { .. }))).then_some(highest)
        })
    }

    /// Returns the number of turns that the spend limit pays for if each turn has the lowest possible cost; `None` if a
    /// turn may be free.
    fn most_paid_turns(&self) -> Option<u64> {
        let least =
            self.models().map(|model| model.prices.map_or(Nanos::ZERO, |prices| prices.min_prompt_cost())).min()?;
        // The last turn starts only if the remaining spend pays for the worst case of the turn.
        let needed = self.models().map(|model| model.worst_case(1, self.min_output_tokens(model))).min()?;
        match self.limits.spend.checked_sub(needed.to_u64()) {
            None => Some(0),
            Some(left) => left.checked_div(least.to_u64()).map(|turns| turns.saturating_add(1)),
        }
    }

    /// Returns a lower bound on the turns that the limits allow in every run. If calls cost money, the bound is at most
    /// 1, because only the first request has a known maximum cost: later requests contain replies and results, whose
    /// size in bytes has no bound.
    fn bound_turns_below(&self) -> TurnBound {
        if self.models().all(is_free) && !self.can_start_threads() {
            return TurnBound::new(self.limits.turns, LimitName::Turns);
        }
        let is_paid = |prompt| {
            self.model.worst_case(prompt, self.min_output_tokens(&self.model)) <= Nanos::from_u64(self.limits.spend)
        };
        match self.bound_opening() {
            Some(prompt) if is_paid(prompt) && self.limits.turns == 1 => TurnBound::new(1, LimitName::Turns),
            Some(prompt) if is_paid(prompt) => TurnBound::new(1, LimitName::Spend),
            Some(_) | None => TurnBound::new(0, LimitName::Spend),
        }
    }

    /// Returns an upper bound on the input tokens of the first request for any values of its placeholders. `None` if a
    /// value has no maximum length, if a hook may change the request, or if a hook may spend money before the request.
    fn bound_opening(&self) -> Option<u64> {
        let is_changing = |hook: &PlannedHook| {
            matches!(hook.event, HookPoint::BeforeAgentStart | HookPoint::Context)
                || matches!(hook.action.call(), Some(HookCall::Execute { item_type: ItemKind::Directive, .. }))
        };
        if self.hooks.iter().any(|hook| hook.is_live() && is_changing(hook)) {
            return None;
        }
        let mut is_bounded = true;
        let mut text = 0u64;
        for layer in self.prompt.system.iter().chain(&self.prompt.first_message) {
            let rendered = render_layer(layer, &mut |placeholder| {
                let most = max_value_bytes(placeholder);
                is_bounded &= most.is_some();
                // This control character has the longest escape in JSON.
                "\u{1}".repeat(most.unwrap_or(0))
            });
            for part in [LAYER_SEPARATOR, &rendered] {
                text = text.saturating_add(Tokenizer::Characters.bound(part));
            }
        }
        is_bounded.then(|| self.bound_head(&self.model, "").saturating_add(self.model.bound_message(text, 1)))
    }

    /// Lists the parts of the first request whose size only a run knows: placeholders without a maximum length, and
    /// hooks whose text the plan does not contain. Empty if the bound on the first request holds for every run.
    pub fn unbounded_parts(&self, system: &MessageView, first: &MessageView) -> Vec<String> {
        let pending = system.pending.iter().chain(&first.pending).map(|one| &one.pending);
        let values = pending.filter(|one| max_value_bytes(one).is_none()).map(RuntimePlaceholder::marker);
        let hooks = self.hooks.iter().filter(|hook| adds_unknown_text(hook));
        let mut parts: Vec<String> = Vec::new();
        for part in values.chain(hooks.map(|hook| format!("the text of the hook `{}`", hook.id))) {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        parts
    }

    /// Returns true if a hook of the plan may raise this limit: its action raises the limit, or executes an item. An
    /// item that a hook executes can return any action of the hook point.
    fn can_raise(&self, limit: LimitName) -> bool {
        let raises = |action: &HookAction| {
            if let HookAction::Raise { limit: name, .. } = action {
                return LimitName::parse(name).is_none_or(|name| name == limit);
            }
            matches!(action.call(), Some(HookCall::Execute { .. }))
        };
        self.hooks.iter().any(|hook| hook.is_live() && hook.event == HookPoint::Limit && raises(&hook.action))
    }

    /// Returns the minimum number of output tokens for a request: if the budget allows fewer tokens, the model is not
    /// called.
    pub(super) fn min_output_tokens(&self, model: &PlannedModel) -> u64 {
        model.requested_output(self.limits.output).clamp(1, MIN_OUTPUT_TOKENS)
    }

    fn models(&self) -> impl Iterator<Item = &PlannedModel> {
        [Some(&self.model), self.model.fallback.as_deref()].into_iter().flatten()
    }
}

fn is_free(model: &PlannedModel) -> bool {
    model.prices.is_none_or(|prices| prices.worst_case(u64::MAX, u64::MAX) == Nanos::ZERO)
}

/// Returns the maximum bytes of a placeholder's value; `None` if it has no maximum.
fn max_value_bytes(placeholder: &RuntimePlaceholder) -> Option<usize> {
    let RuntimePlaceholder::Fact { path, fallback } = placeholder else { return None };
    let most = match path.as_str() {
        "project_path" => MAX_PATH_BYTES,
        "thread_id" | "parent_thread_id" | "previous_thread_id" => MAX_THREAD_ID_BYTES,
        "depth" | "max_turns" | "spend_limit" => MAX_LIMIT_BYTES,
        other if other.strip_prefix("limits.").is_some_and(|name| LimitName::parse(name).is_some()) => MAX_LIMIT_BYTES,
        _ => return None,
    };
    Some(fallback.as_ref().map_or(most, |text| text.len().max(most)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::compile::tests::world::{minimal_world, with_directives};
    use crate::compile::{CompileRequest, compile};
    use crate::plan::{LongPromptPrices, PlanLimits, Prices, RequestTokens, Tokens};
    use crate::report::forecast::RunEstimate;
    use crate::report::render::view::view_prompt;
    use rye_grammar::ItemId;

    const TOOLS: &str = "<permissions><execute><tool>*</tool></execute></permissions>";
    const CHILDREN: &str = "<permissions><execute><directive>other</directive></execute></permissions>";
    const RAISE_SPEND: &str =
        "<hooks><hook id=\"h\" event=\"limit\"><raise limit=\"spend\" value=\"9\"/></hook></hooks>";
    const RAISE_TURNS: &str =
        "<hooks><hook id=\"h\" event=\"limit\"><raise limit=\"turns\" value=\"9\"/></hook></hooks>";
    const EXECUTE_AT_LIMIT: &str =
        "<hooks><hook id=\"h\" event=\"limit\"><execute item_type=\"tool\" item_id=\"rye/look\"/></hook></hooks>";
    const EXECUTE_AT_START: &str = "<hooks><hook id=\"h\" event=\"thread_started\"><execute item_type=\"directive\" \
                                    item_id=\"other\"/></hook></hooks>";
    const REWRITE: &str = "<hooks><hook id=\"h\" event=\"context\"><keep_last n=\"3\"/></hook></hooks>";
    const SHAPES: [&str; 8] =
        ["<permissions/>", TOOLS, CHILDREN, RAISE_SPEND, RAISE_TURNS, EXECUTE_AT_LIMIT, EXECUTE_AT_START, REWRITE];

    /// Uses `large` of the provider `main`: $2 per million input tokens, $10 per million output tokens.
    fn plan(inside: &str) -> Plan {
        let inside = format!("<metadata>{inside}</metadata>");
        let other = ("other", "", "<metadata><permissions/></metadata>", "Help.");
        let world = with_directives(minimal_world(), &[("leaf", "", &inside, "Do it."), other]);
        let compiled = compile(&world, &CompileRequest::new(ItemId::parse("leaf").unwrap()));
        let why: Vec<String> = compiled.diagnostics.iter().map(crate::diagnostics::Diagnostic::message).collect();
        compiled.value.unwrap_or_else(|| panic!("{inside}: {why:?}")).plan
    }

    fn first_request(plan: &Plan) -> RequestTokens {
        let (system, first, _) = view_prompt(plan, &crate::plan::Origins::default());
        plan.count_viewed_tokens(&system, &first)
    }

    fn price() -> impl Strategy<Value = u64> {
        prop_oneof![1 => Just(0), 4 => 1..100_000_000_000u64, 1 => any::<u64>()]
    }

    fn prices() -> impl Strategy<Value = Option<Prices>> {
        let kinds = || [price(), price(), price(), price()];
        let long = (prop_oneof![0..10u64, 500..50_000u64], kinds());
        prop::option::weighted(0.9, (kinds(), prop::option::of(long))).prop_map(|prices| {
            let ([input, output, cache_read, cache_write], long) = prices?;
            let long_prompt = long.map(|(above, [input, output, cache_read, cache_write])| LongPromptPrices {
                above,
                input,
                output,
                cache_read,
                cache_write,
            });
            Some(Prices { input, output, cache_read, cache_write, long_prompt })
        })
    }

    fn limits() -> impl Strategy<Value = PlanLimits> {
        let spend = prop_oneof![1..100_000_000_000u64, 1..1_000_000u64, 1..=u64::MAX];
        let tokens = prop_oneof![1..500u64, 1..10_000_000u64];
        (1..500u64, tokens, spend, 1..20_000u64).prop_map(|(turns, tokens, spend, output)| PlanLimits {
            turns,
            tokens,
            spend,
            spawns: 10,
            depth: 5,
            duration_seconds: 600,
            output,
        })
    }

    fn plans() -> impl Strategy<Value = Plan> {
        let model = || (prices(), 1..2_000_000u64, 1..100_000u64);
        let shape = prop::sample::select(SHAPES.map(plan).to_vec());
        (shape, limits(), model(), prop::option::of(model())).prop_map(|(mut plan, limits, own, fallback)| {
            plan.limits = limits;
            let planned = plan.model.clone();
            let set = |(prices, context_window, max_output)| PlannedModel {
                prices,
                context_window,
                max_output,
                fallback: None,
                ..planned.clone()
            };
            plan.model = PlannedModel { fallback: fallback.map(set).map(Box::new), ..set(own) };
            plan
        })
    }

    /// Plays turns of any usage until a limit stops them, as the machine checks the limits; returns the turns and the
    /// cost.
    fn play(plan: &Plan, mut draw: impl FnMut(u64) -> u64) -> (u64, Nanos) {
        let budget = Nanos::from_u64(plan.limits.spend);
        let (mut turns, mut tokens, mut spent) = (0, 0u64, Nanos::ZERO);
        let mut model = &plan.model;
        while turns < plan.limits.turns && tokens < plan.limits.tokens && spent < budget {
            if draw(8) == 0 {
                model = plan.model.fallback.as_deref().unwrap_or(&plan.model);
            }
            let most = if draw(2) == 0 { 3 } else { 5_000 };
            let prompt = 1 + draw(most);
            let output = plan.min_output_tokens(model);
            let worst = model.worst_case(prompt, output);
            if model.prices.is_some() && worst > budget.saturating_sub(spent) {
                break;
            }
            let cache_read = draw(prompt + 1);
            let cache_write = draw(prompt - cache_read + 1);
            let input = prompt - cache_read - cache_write;
            let used = Tokens { input, output: draw(output + 1), cache_read, cache_write };
            let cost = model.prices.map_or(Nanos::ZERO, |prices| prices.cost(&used).unwrap());
            assert!(model.prices.is_none() || cost <= worst, "{used:?}");
            spent = spent.saturating_add(cost);
            tokens = tokens.saturating_add(prompt).saturating_add(used.output);
            turns += 1;
        }
        (turns, spent)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn forecast_is_ordered_and_within_the_limits(plan in plans()) {
            let found = plan.forecast(&first_request(&plan));
            let spend = Nanos::from_u64(plan.limits.spend);
            let cost = |run: RunEstimate| run.cost.unwrap_or_default();
            let worst = match (found.worst.set_by, found.worst.cost) {
                (CostBound::Raise, None) => spend,
                (_, worst) => worst.unwrap_or_default(),
            };
            prop_assert!(worst <= spend, "{found:?}");
            prop_assert!(cost(found.first) <= worst && cost(found.typical) <= worst, "{found:?}");
            let TurnBounds { at_least, at_most, before_handoff: _ } = found.turns;
            let raises = plan.can_raise(LimitName::Turns);
            prop_assert!(raises || at_most.is_some_and(|most| most.turns <= plan.limits.turns), "{found:?}");
            prop_assert!(at_least.turns <= at_most.map_or(u64::MAX, |most| most.turns), "{found:?}");
            prop_assert!(found.typical.turns <= at_most.map_or(u64::MAX, |most| most.turns), "{found:?}");
            // If the spend limit certainly pays for a turn, the forecast contains a turn too.
            prop_assert!(at_least.turns == 0 || (found.first.turns == 1 && found.typical.turns >= 1), "{found:?}");
        }

        #[test]
        fn played_turns_stay_within_the_bounds(plan in plans(), seed in any::<u64>()) {
            let mut state = seed;
            let draw = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let (turns, spent) = play(&plan, draw);
            let worst = plan.bound_cost();
            prop_assert!(worst.cost.is_none_or(|worst| spent <= worst), "{turns} turns cost {spent}: {worst:?}");
            let most = plan.bound_turns().at_most;
            prop_assert!(most.is_none_or(|most| turns <= most.turns), "{turns} turns: {most:?}");
        }
    }

    #[test]
    fn worst_case_is_the_spend_limit_of_the_tree() {
        let spend = WorstCase { cost: Some(Nanos(500_000_000)), set_by: CostBound::Spend };
        for inside in ["<permissions/>", TOOLS, CHILDREN, RAISE_TURNS] {
            assert_eq!(plan(inside).bound_cost(), spend, "{inside}");
        }
        for inside in [RAISE_SPEND, EXECUTE_AT_LIMIT] {
            assert_eq!(plan(inside).bound_cost(), WorstCase { cost: None, set_by: CostBound::Raise }, "{inside}");
        }
    }

    #[test]
    fn worst_case_of_free_calls_is_zero_unless_children_have_prices() {
        let with = |inside, prices| {
            let mut plan = plan(inside);
            plan.model.prices = prices;
            plan.bound_cost()
        };
        let alone = "<permissions><execute><tool>rye.look</tool></execute></permissions>";
        assert_eq!(with(alone, Some(Prices::NONE)), WorstCase { cost: Some(Nanos::ZERO), set_by: CostBound::Prices });
        assert_eq!(with(alone, None), WorstCase { cost: None, set_by: CostBound::Prices });
        assert_eq!(with(CHILDREN, None).set_by, CostBound::Spend);
    }

    #[test]
    fn priced_fallback_bounds_the_cost_of_a_free_model_by_the_spend_limit() {
        let mut plan = plan(TOOLS);
        plan.model.fallback = Some(Box::new(plan.model.clone()));
        plan.model.prices = Some(Prices::NONE);
        assert_eq!(plan.bound_cost().set_by, CostBound::Spend);
        assert_eq!(plan.bound_turns().at_most, Some(TurnBound::new(15, LimitName::Turns)));
    }

    #[test]
    fn thread_bounds_name_their_limits() {
        let bounds = |limits: &str, inside: &str| {
            let ThreadBound { threads, set_by } = plan(&format!("{limits}{inside}")).bound_threads();
            (threads, set_by.as_str())
        };
        assert_eq!(bounds("", "<permissions/>"), (Some(1), "grants"));
        assert_eq!(bounds("<limits depth=\"0\"/>", CHILDREN), (Some(1), "depth"));
        assert_eq!(bounds("<limits spawns=\"0\"/>", CHILDREN), (Some(1), "spawns"));
        assert_eq!(bounds("<limits depth=\"3\" spawns=\"2\"/>", CHILDREN), (Some(3), "spawns"));
        assert_eq!(bounds("<limits depth=\"0\" spawns=\"2\"/>", TOOLS), (Some(3), "spawns"));
        assert_eq!(bounds("<limits depth=\"0\"/>", &format!("{CHILDREN}{RAISE_SPEND}")), (Some(1), "depth"));
        let raise = |limit: &str| RAISE_SPEND.replace("spend", limit);
        assert_eq!(bounds("<limits depth=\"0\"/>", &format!("{CHILDREN}{}", raise("depth"))).0, Some(11));
        assert_eq!(bounds("", &format!("{CHILDREN}{}", raise("spawns"))), (None, "raise"));
        assert_eq!(bounds("", &format!("{CHILDREN}{EXECUTE_AT_LIMIT}")), (None, "raise"));
    }

    #[test]
    fn turn_bounds_name_their_limits() {
        let bounds = |limits: &str, hooks: &str| plan(&format!("{limits}{TOOLS}{hooks}")).bound_turns();
        let default = bounds("", "");
        assert_eq!(default.at_least, TurnBound::new(1, LimitName::Spend));
        assert_eq!(default.at_most, Some(TurnBound::new(15, LimitName::Turns)));
        // A turn takes at least one token, at 2,000 nano-dollars; the last turn also needs the worst case of 500 output
        // tokens.
        let few = bounds("<limits turns=\"5000\" spend=\"0.01\"/>", "").at_most;
        assert_eq!(few, Some(TurnBound::new(1 + (10_000_000 - 5_002_000) / 2_000, LimitName::Spend)));
        assert_eq!(bounds("<limits tokens=\"9\"/>", "").at_most, Some(TurnBound::new(9, LimitName::Tokens)));
        let raised = bounds("", RAISE_TURNS).at_most.unwrap();
        assert_eq!(raised.set_by, LimitName::Tokens);
        assert_eq!(default.before_handoff, None);
        let with_turns = |turns: u64, value: &str| {
            let hooks = RAISE_TURNS.replace("\"9\"", &format!("\"{value}\""));
            bounds(&format!("<limits turns=\"{turns}\"/>"), &hooks).before_handoff
        };
        assert_eq!(with_turns(5, "9"), Some(9));
        assert_eq!(with_turns(12, "9"), Some(12));
        assert_eq!(with_turns(5, "${current_max}"), None);
        assert_eq!(bounds("", EXECUTE_AT_LIMIT).before_handoff, None);
        assert_eq!(bounds("", EXECUTE_AT_LIMIT).at_most, None);
    }

    #[test]
    fn turns_of_one_token_reach_the_bound_that_tokens_or_spend_sets() {
        for (limits, set_by) in [
            ("<limits turns=\"5000\" spend=\"0.01\"/>", LimitName::Spend),
            ("<limits turns=\"5000\" tokens=\"400\"/>", LimitName::Tokens),
        ] {
            let plan = plan(&format!("{limits}{TOOLS}"));
            let most = plan.bound_turns().at_most.unwrap();
            let (turns, _) = play(&plan, |_| 0);
            assert_eq!((turns, most.set_by), (most.turns, set_by), "{limits}");
        }
    }

    #[test]
    fn no_turn_is_certain_where_hooks_or_long_values_may_use_up_the_money() {
        for inside in [EXECUTE_AT_START, REWRITE] {
            assert_eq!(plan(inside).bound_turns().at_least, TurnBound::new(0, LimitName::Spend), "{inside}");
        }
    }

    #[test]
    fn values_of_placeholders_count_at_their_maximum_length() {
        let fact = |path: &str| RuntimePlaceholder::Fact { path: path.to_owned(), fallback: None };
        assert_eq!(max_value_bytes(&fact("project_path")), Some(4096));
        assert_eq!(max_value_bytes(&fact("limits.spend")), Some(MAX_LIMIT_BYTES));
        assert_eq!(max_value_bytes(&fact("inputs.topic")), None);
        assert_eq!(max_value_bytes(&RuntimePlaceholder::Hook { id: "h".into() }), None);
    }
}
