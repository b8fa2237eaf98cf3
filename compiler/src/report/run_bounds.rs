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
    /// Returns the name of the bound in reports: `spend`, `prices` or `raise`.
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
    /// Lower bound on the turns that a run can start before a limit stops it. The bound holds for every run. A turn
    /// starts with its first call, which may fail.
    pub at_least: TurnBound,
    /// Upper bound on the turns of every run; `None` if hooks may raise every limit that bounds them.
    pub at_most: Option<TurnBound>,
    /// The highest value that the limit `turns` can have before the first handoff, if this value is below `at_most`;
    /// else `None`. A continuation starts with the turns that are left, and its hooks may raise the limit again, so
    /// this bound does not hold for a chain of continuations.
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
    /// The maximum number of threads, including the root thread; `None` if a hook may raise the limit `spawns`.
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
    /// Returns the name of the bound in reports: `grants`, `depth`, `spawns` or `raise`.
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
        if self.is_free_alone() {
            let cost = self.models().any(|model| model.prices.is_some()).then_some(Nanos::ZERO);
            return WorstCase { cost, set_by: CostBound::Prices };
        }
        if self.can_raise(LimitName::Spend) {
            return WorstCase { cost: None, set_by: CostBound::Raise };
        }
        WorstCase { cost: Some(Nanos::from_u64(self.prompt_limits().spend)), set_by: CostBound::Spend }
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
        if self.prompt_limits().depth == 0 && !detaches && !self.can_raise(LimitName::Depth) {
            return bound(1, ThreadBoundOrigin::Depth);
        }
        if self.can_raise(LimitName::Spawns) {
            return ThreadBound { threads: None, set_by: ThreadBoundOrigin::Raise };
        }
        bound(self.prompt_limits().spawns.saturating_add(1), ThreadBoundOrigin::Spawns)
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
            Some(TurnBound::new(self.prompt_limits().turns, LimitName::Turns)),
            // Each turn starts below the limit and uses at least one token, so a run has at most as many turns as
            // tokens.
            Some(TurnBound::new(self.prompt_limits().tokens, LimitName::Tokens)),
            spend,
        ];
        bounds.into_iter().flatten().filter(|bound| !self.can_raise(bound.set_by)).min_by_key(|bound| bound.turns)
    }

    /// Returns the highest value that the limit `turns` has before the first handoff; `None` if only a run knows the
    /// value to which a hook raises it.
    fn highest_turn_limit(&self) -> Option<u64> {
        let at_limit = self.hooks.iter().filter(|hook| hook.is_live() && hook.event == HookPoint::Limit);
        at_limit.map(|hook| &hook.action).try_fold(self.prompt_limits().turns, |highest, action| {
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
        match self.prompt_limits().spend.checked_sub(needed.to_u64()) {
            None => Some(0),
            Some(left) => left.checked_div(least.to_u64()).map(|turns| turns.saturating_add(1)),
        }
    }

    /// Returns a lower bound, 0 or 1, on the turns that every run can start under the limits `turns`, `tokens` and
    /// `spend`.
    ///
    /// The bound is never above 1, because the first turn has no maximum of tokens or cost: its interrupted calls count
    /// at their worst case and are repeated.
    fn bound_turns_below(&self) -> TurnBound {
        let is_paid = self.prompt_limits().spend > 0 && self.pays_first_request();
        let allowed = [
            (LimitName::Turns, self.prompt_limits().turns > 0),
            (LimitName::Tokens, self.prompt_limits().tokens > 0),
            (LimitName::Spend, is_paid),
        ];
        if let Some((limit, _)) = allowed.into_iter().find(|(_, allows)| !allows) {
            return TurnBound::new(0, limit);
        }
        let can_spend = !self.is_free_alone();
        let set_by = match self.prompt_limits().turns {
            1 => LimitName::Turns,
            _ if can_spend => LimitName::Spend,
            _ => LimitName::Tokens,
        };
        TurnBound::new(1, set_by)
    }

    /// Returns true if the limit `spend` certainly pays for the first request.
    fn pays_first_request(&self) -> bool {
        let budget = Nanos::from_u64(self.prompt_limits().spend);
        let is_paid = |prompt| self.model.worst_case(prompt, self.min_output_tokens(&self.model)) <= budget;
        self.is_free_alone() || self.bound_opening().is_some_and(is_paid)
    }

    /// Returns true if no call of a run costs money: the models are free, and the plan starts no other thread.
    fn is_free_alone(&self) -> bool {
        self.models().all(is_free) && !self.can_start_threads()
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
    pub(crate) fn unbounded_parts(&self, system: &MessageView, first: &MessageView) -> Vec<String> {
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
        model.requested_output(self.prompt_limits().output).clamp(1, MIN_OUTPUT_TOKENS)
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
mod tests;
