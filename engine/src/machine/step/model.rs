//! The steps around a model call: the check of the limits, the call itself, the check of the context window.

use rye_compiler::model::SCRIPTED_WIRE;
use rye_compiler::plan::settings::BILLIONTHS;
use rye_compiler::plan::{Node, Outcome, Plan, PlanLimits, PlannedModel};
use rye_compiler::semantics::limits::{self, Exceeded, LimitName};
use rye_compiler::semantics::money::Nanos;

use super::super::effect::{AwaitedChild, Effect, ModelCall, Reservation};
use super::super::request;
use super::super::state::{PendingSettlement, ThreadState, UnknownOutcome};
use super::super::walk::{StepResult, WalkContext};
use crate::event::{AttemptIntended, EventBody, LimitHit, Settled};
use crate::exchange::Usage;
use crate::exchange::cost;

/// Minimum output tokens of a call (`language.md` 11).
const MIN_OUTPUT_TOKENS: u64 = 1024;

pub(super) fn limits(walk: &WalkContext<'_>) -> StepResult {
    let (limits, cost) = limits_and_cost(walk.state);
    match limits::first_exceeded(&limits.into(), &cost) {
        None => StepResult::Finished(Outcome::Within),
        Some(exceeded) => StepResult::Write(vec![limit_event(Node::Limits, exceeded)]),
    }
}

pub(super) fn model(walk: &WalkContext<'_>) -> StepResult {
    if let Some(in_progress) = attempt(walk) {
        return in_progress;
    }
    let intended = intend(walk, false);
    if matches!(intended, EventBody::Limit(_)) {
        let waited = children_with_money(walk);
        if !waited.is_empty() {
            return StepResult::Do(Effect::Await(waited));
        }
    }
    // This check follows the other effects, so that an event is written at the end of a sleep. Otherwise, the same
    // sleep would follow.
    if let Some(until) = walk.state.wait_until.filter(|until| *until > walk.now) {
        return StepResult::Do(Effect::Sleep { until });
    }
    StepResult::Write(vec![intended])
}

/// Returns the living children whose end can make the next call affordable, because the end of a child returns the rest
/// of its reservation. A child of an earlier prompt holds money of the session but not of the current prompt. Such a
/// child is returned only if the rest of the prompt's limit suffices for the call, so that only the session's limit
/// forbids the call.
fn children_with_money(walk: &WalkContext<'_>) -> Vec<AwaitedChild> {
    let state = walk.state;
    let is_session_short = affordable_call(walk, false, state.prompt_headroom()).is_some();
    let living = state.living_children().filter(|(_, child)| child.spend > 0);
    living
        .filter(|(_, child)| is_session_short || state.is_of_prompt(child))
        .filter_map(|(spawn, child)| child.thread_id.clone().map(|thread_id| AwaitedChild { spawn, thread_id }))
        .collect()
}

/// Replaces most of the conversation with a summary. If a summary cannot help, hands the thread off.
pub(super) fn compact(walk: &WalkContext<'_>) -> StepResult {
    let state = walk.state;
    if let Some(in_progress) = attempt(walk) {
        return in_progress;
    }
    // After a failed attempt, no summary is requested, unless the attempt failed because the prompt was too long.
    let has_failed = state.failed.is_some() && !state.is_prompt_too_long;
    if state.is_idle() {
        // The user has requested the summary.
        let intended = intend(walk, true);
        return StepResult::Write(vec![if let EventBody::Limit(hit) = intended {
            EventBody::Limit(LimitHit { at: Node::Compact, ..hit })
        } else {
            intended
        }]);
    }
    if state.compacted == Some(state.cost.turns) || has_failed || state.mailbox.handoff {
        return StepResult::Finished(Outcome::Full);
    }
    let intended = intend(walk, true);
    // A summary that exceeds the budget is not requested.
    let paid = matches!(intended, EventBody::AttemptIntended(_));
    if paid { StepResult::Write(vec![intended]) } else { StepResult::Finished(Outcome::Full) }
}

/// Returns the next effect of the current attempt: the reservation of its worst case, then the model call. `None` if no
/// attempt is open.
fn attempt(walk: &WalkContext<'_>) -> Option<StepResult> {
    let state = walk.state;
    let attempt = state.attempt.as_ref()?;
    let (turn, number) = (attempt.turn, attempt.number);
    if !attempt.reserved {
        let (amount, settle) = (attempt.worst_case, state.unsettled.clone());
        let raised = state.raised_limits(attempt);
        return Some(StepResult::Do(Effect::Reserve(Reservation { turn, attempt: number, amount, settle, raised })));
    }
    let call = ModelCall { max_output: attempt.max_output, compacts: attempt.compacts };
    Some(StepResult::Do(Effect::CallModel { turn, attempt: number, fallback: state.on_fallback, call }))
}

/// Returns the intent of the next attempt: the event that is recorded before the attempt is made. If a limit forbids
/// the attempt, returns the event of the limit. `compacts` is true for an attempt that requests a summary.
fn intend(walk: &WalkContext<'_>, compacts: bool) -> EventBody {
    let (plan, state) = (walk.plan, walk.state);
    let left = state.available_spend();
    let Some(AffordableCall { input, max_output, worst_case, is_free }) = affordable_call(walk, compacts, left) else {
        let (before, _) = state.before_prompt();
        let most = state.limits.spend.saturating_sub(before.spend);
        let spent = Nanos::from_u64(most.saturating_sub(left));
        return limit_event(
            Node::Model,
            Exceeded {
                name: LimitName::Spend,
                limit_code: "spend_exceeded".into(),
                current_value: spent.to_json(),
                current_max: Nanos::from_u64(most).to_json(),
            },
        );
    };
    EventBody::AttemptIntended(AttemptIntended {
        turn: state.cost.turns + 1,
        attempt: state.attempts,
        model: state.model(plan).id.clone(),
        input_bound: input,
        max_output,
        worst_case,
        compacts,
        unpriced: !is_free && state.model(plan).prices.is_none() && state.model(plan).wire != SCRIPTED_WIRE,
    })
}

/// A model call whose worst-case cost is at most the remaining money.
struct AffordableCall {
    /// Upper bound on the input tokens.
    input: u64,
    max_output: u64,
    /// Worst-case cost, in nano-dollars.
    worst_case: u64,
    /// True if an MCP client makes the call in place of a model, so that the call costs nothing.
    is_free: bool,
}

/// Returns the next call if its worst-case cost is at most `left` nano-dollars; else `None`. `compacts` is true for a
/// call that requests a summary.
fn affordable_call(walk: &WalkContext<'_>, compacts: bool, left: u64) -> Option<AffordableCall> {
    let (plan, state) = (walk.plan, walk.state);
    let input = request::bound_input_tokens(plan, state, compacts);
    let wanted = state.model(plan).requested_output(state.limits.output).max(1);
    // A model writes the summaries in the session of a client, too.
    let is_free = state.serves_client && !compacts;
    let (max_output, worst_case) =
        if is_free { (wanted, 0) } else { affordable_output(state.model(plan), input, wanted, left)? };
    Some(AffordableCall { input, max_output, worst_case, is_free })
}

/// Returns the worst-case cost of one more turn, in nano-dollars.
pub(in crate::machine) fn turn_worst_case(plan: &Plan, state: &ThreadState) -> u64 {
    if state.serves_client {
        return 0;
    }
    let output = state.model(plan).requested_output(state.limits.output);
    state.model(plan).worst_case(request::bound_input_tokens(plan, state, false), output).to_u64()
}

/// Returns the largest number of output tokens, at most `wanted`, with which a call costs at most `left` nano-dollars,
/// and the worst-case cost of this call. `None` if a call with `MIN_OUTPUT_TOKENS` and a call with `wanted` tokens both
/// cost more. If the model has no prices, every call is free.
fn affordable_output(model: &PlannedModel, input: u64, wanted: u64, left: u64) -> Option<(u64, u64)> {
    if model.prices.is_none() {
        return Some((wanted, 0));
    }
    let worst = |output: u64| model.worst_case(input, output).to_u64();
    if worst(wanted) <= left {
        return Some((wanted, worst(wanted)));
    }
    // Bisection for the largest affordable output; the cost never falls with more tokens.
    let (mut fits, mut too_much) = (0, wanted);
    while too_much - fits > 1 {
        let middle = fits + (too_much - fits) / 2;
        if worst(middle) <= left {
            fits = middle;
        } else {
            too_much = middle;
        }
    }
    (fits >= MIN_OUTPUT_TOKENS.min(wanted)).then(|| (fits, worst(fits)))
}

/// Returns the settlement of an attempt that ended. If the provider reported no usable final usage, the amount is the
/// worst case. With `budget.unknown_outcome: estimate`, the amount is instead the cost of the bytes sent and received,
/// but at least the cost of the reported usage.
pub(in crate::machine) fn settlement(plan: &Plan, pending: &PendingSettlement) -> EventBody {
    let model = plan.model.fallback.as_deref().filter(|_| pending.of_fallback).unwrap_or(&plan.model);
    // If the provider reports more input than the upper bound `unknown.input`, the worst case is the reported input
    // plus all of the requested output.
    let bound = |unknown: &UnknownOutcome| {
        pending.usage.at_least(Usage { input: unknown.input, output: unknown.max_output, ..Usage::default() })
    };
    let worst = |unknown: &UnknownOutcome| {
        unknown.worst_case.max(price(model, &pending.usage)).max(price(model, &bound(unknown)))
    };
    let (amount, usage) = match &pending.unknown {
        None => (price(model, &pending.usage), pending.usage),
        // Token counts are estimated in two cases: a complete reply costs nothing, or the setting
        // `budget.unknown_outcome` is `estimate`.
        Some(unknown)
            if (unknown.replied && unknown.worst_case == 0) || plan.settings.values().estimates_unknown_outcome =>
        {
            let estimate = unknown.cut.estimate();
            let usage = pending.usage.at_least(Usage { output: estimate.output.min(unknown.max_output), ..estimate });
            (price(model, &usage).min(worst(unknown)), usage)
        }
        Some(unknown) => (worst(unknown), bound(unknown)),
    };
    let (turn, attempt, unknown_outcome) = (pending.turn, pending.attempt, pending.unknown.is_some());
    let overspent = amount.saturating_sub(pending.worst_case);
    EventBody::Settled(Settled { turn, attempt, amount, usage, unknown_outcome, overspent })
}

/// Returns the cost of a call with this usage, in nano-dollars; 0 if the model has no prices. If the cost overflows,
/// returns the largest amount that a ledger holds.
fn price(model: &PlannedModel, usage: &Usage) -> u64 {
    if model.prices.is_none() {
        return 0;
    }
    cost(model, usage).map_or(Nanos(i64::MAX), |nanos| nanos).to_u64()
}

/// Checks the context window before a request. The limits were checked before, so a reached limit takes precedence over
/// a full window.
pub(super) fn context(walk: &WalkContext<'_>) -> StepResult {
    let (plan, state) = (walk.plan, walk.state);
    if state.attempt.is_some() {
        return StepResult::Finished(Outcome::Fits);
    }
    // A handoff that was requested before the first turn takes place after that turn.
    if state.is_prompt_too_long || (state.mailbox.handoff && state.cost.turns > 0) {
        return StepResult::Finished(Outcome::Full);
    }
    // A handoff would not shorten the conversation, so the request is sent, and the provider decides.
    if state.is_shortest() {
        return StepResult::Finished(Outcome::Fits);
    }
    let window = state.model(plan).context_window;
    // After a compaction in this turn, the thread is handed off only if the request fills the whole window.
    let usable = if state.compacted == Some(state.cost.turns) {
        BILLIONTHS
    } else {
        plan.settings.values().continuation_threshold
    };
    let used = request::tokens_used(plan, state);
    let full = u128::from(used) * u128::from(BILLIONTHS) >= u128::from(window) * u128::from(usable);
    StepResult::Finished(if full && window > 0 { Outcome::Full } else { Outcome::Fits })
}

fn limit_event(at: Node, exceeded: Exceeded) -> EventBody {
    EventBody::Limit(LimitHit {
        at,
        limit_code: exceeded.limit_code,
        current_value: exceeded.current_value,
        current_max: exceeded.current_max,
        scope: None,
    })
}

/// Returns the limits and the cost of the run, or of the current prompt of a chat.
fn limits_and_cost(state: &ThreadState) -> (PlanLimits, limits::Cost) {
    let (before, seconds) = state.before_prompt();
    let (limits, c) = (&state.limits, state.cost.since(&before));
    let limits = PlanLimits {
        turns: limits.turns.saturating_sub(before.turns),
        tokens: limits.tokens.saturating_sub(before.input_tokens.saturating_add(before.output_tokens)),
        spend: limits.spend.saturating_sub(before.spend),
        duration_seconds: limits.duration_seconds.saturating_sub(seconds),
        ..*limits
    };
    let cost = limits::Cost {
        turns: c.turns,
        input_tokens: c.input_tokens,
        output_tokens: c.output_tokens,
        cached_tokens: c.cached_tokens,
        spend: Nanos::from_u64(c.spend),
        elapsed_seconds: (state.clock.elapsed_ms() / 1000).saturating_sub(seconds),
    };
    (limits, cost)
}

/// Returns the event of the limit that forbids another child, and the text of the refusal; `None` if no limit forbids
/// the child. `more` is the number of further children that count in addition to the existing children. The limit
/// `depth` does not apply to a child that runs a tool, because a tool starts no threads.
pub(super) fn spawn_refusal(state: &ThreadState, more: u64, is_tool: bool) -> Option<(EventBody, String)> {
    let depth = if is_tool { 1 } else { state.limits.depth };
    // In a chat, the model and the user read the amounts of the prompt.
    let before = state.used_before_prompt("spawns");
    let limits = PlanLimits { depth, spawns: state.limits.spawns.saturating_sub(before), ..state.limits };
    let spawned = state.spawned().saturating_add(more).saturating_sub(before);
    let exceeded = limits::spawn_limit_exceeded(&limits.into(), spawned)?;
    let text = exceeded.to_string();
    Some((limit_event(Node::Tools, exceeded), text))
}
