//! The steps around a model call: the look at the limits, the call itself, the look at the context window.

use std::collections::BTreeMap;

use rye_compiler::plan::{Node, Outcome, Plan, PlanLimits, PlannedModel};
use rye_compiler::semantics::limits::{self, Exceeded, LimitName};
use rye_compiler::semantics::money::Nanos;
use serde_json::Value;

use super::super::effect::{AwaitedChild, Effect, Reservation};
use super::super::request;
use super::super::state::{Owed, State};
use super::super::walk::{Decision, Walk};
use crate::event::{AttemptIntended, EventBody, LimitHit, Settled};
use crate::provider::Usage;
use crate::provider::cost::cost;

/// Fewer output tokens than this are not worth a call (`language.md` 11).
const LEAST_OUTPUT: u64 = 1024;

pub(super) fn limits(walk: &Walk<'_>) -> Decision {
    match limits::check(&walk.state.limits.into(), &semantic_cost(walk.state)) {
        None => Decision::Gives(Outcome::Within),
        Some(exceeded) => Decision::Write(vec![hit(Node::Limits, exceeded)]),
    }
}

pub(super) fn model(walk: &Walk<'_>) -> Decision {
    if let Some(under_way) = attempt(walk) {
        return under_way;
    }
    if let Some(until) = walk.state.wait_until.filter(|until| *until > walk.now) {
        return Decision::Do(Effect::Sleep { until });
    }
    let intended = intend(walk, false);
    if matches!(intended, EventBody::Limit(_)) {
        // What living children hold comes back with their ends: that is worth waiting for.
        let living = walk.state.living().filter(|(_, child)| child.spend > 0);
        let waited: Vec<AwaitedChild> = living
            .filter_map(|(spawn, child)| child.thread_id.clone().map(|thread_id| AwaitedChild { spawn, thread_id }))
            .collect();
        if !waited.is_empty() {
            return Decision::Do(Effect::Await(waited));
        }
    }
    Decision::Write(vec![intended])
}

/// A summary of the conversation in place of most of it. Where it would not help, the thread is handed over.
pub(super) fn compact(walk: &Walk<'_>) -> Decision {
    let state = walk.state;
    if let Some(under_way) = attempt(walk) {
        return under_way;
    }
    // It was tried for this turn: once is enough.
    if state.compacted == Some(state.cost.turns) || state.failed.is_some() || state.mail.handoff {
        return Decision::Gives(Outcome::Full);
    }
    let intended = intend(walk, true);
    // One that cannot be paid is not made.
    let paid = matches!(intended, EventBody::AttemptIntended(_));
    if paid { Decision::Write(vec![intended]) } else { Decision::Gives(Outcome::Full) }
}

/// What the attempt under way needs next, if there is one.
fn attempt(walk: &Walk<'_>) -> Option<Decision> {
    let (plan, state) = (walk.plan, walk.state);
    let attempt = state.attempt.as_ref()?;
    let (turn, number) = (attempt.turn, attempt.number);
    if !attempt.reserved {
        let (amount, settle) = (attempt.worst_case, state.unsettled.clone());
        let begun = state.launch.as_ref().map(|launch| launch.limits);
        let raised = (begun != Some(state.limits)).then_some(state.limits);
        return Some(Decision::Do(Effect::Reserve(Reservation { turn, attempt: number, amount, settle, raised })));
    }
    let request = if attempt.compacts {
        request::summarise(plan, state, attempt.max_output)
    } else {
        request::build(plan, state, attempt.max_output)
    };
    Some(Decision::Do(Effect::CallModel {
        turn,
        attempt: number,
        fallback: state.on_fallback,
        request: Box::new(request),
    }))
}

/// The intent of the next attempt, or the limit that forbids it.
fn intend(walk: &Walk<'_>, compacts: bool) -> EventBody {
    let (plan, state) = (walk.plan, walk.state);
    let input = request::estimate(plan, state);
    let wanted = state.model(plan).output(state.limits.output).max(1);
    let left = state.affordable();
    let Some((max_output, worst_case)) = affordable(state.model(plan), input, wanted, left) else {
        let spent = Nanos::from_u64(state.limits.spend.saturating_sub(left));
        return hit(
            Node::Model,
            Exceeded {
                name: LimitName::Spend,
                limit_code: "spend_exceeded".into(),
                current_value: spent.to_json(),
                current_max: Nanos::from_u64(state.limits.spend).to_json(),
            },
        );
    };
    EventBody::AttemptIntended(AttemptIntended {
        turn: state.cost.turns + 1,
        attempt: state.attempts,
        model: state.model(plan).id.clone(),
        input_estimate: input,
        max_output,
        worst_case,
        compacts,
    })
}

/// What one more turn costs at worst, in nano-dollars.
pub(super) fn one_turn(plan: &Plan, state: &State) -> u64 {
    let output = state.model(plan).output(state.limits.output);
    state.model(plan).worst_case(request::estimate(plan, state), output).to_u64()
}

/// The most output that `left` nano-dollars pay for, and what the call then costs at worst.
fn affordable(model: &PlannedModel, input: u64, wanted: u64, left: u64) -> Option<(u64, u64)> {
    if model.prices.is_none() {
        return Some((wanted, 0));
    }
    let worst = |output: u64| model.worst_case(input, output).to_u64();
    if worst(wanted) <= left {
        return Some((wanted, worst(wanted)));
    }
    // The largest output that fits, by halving: the price of a number of tokens only grows with it.
    let (mut fits, mut too_much) = (0, wanted);
    while too_much - fits > 1 {
        let middle = fits + (too_much - fits) / 2;
        if worst(middle) <= left {
            fits = middle;
        } else {
            too_much = middle;
        }
    }
    (fits >= LEAST_OUTPUT.min(wanted)).then(|| (fits, worst(fits)))
}

/// The settlement of an attempt that ended. An attempt whose stream broke off before the final usage costs its worst case, or
/// with `budget.unknown_outcome: estimate` what the bytes sent and received amount to; never less than was reported.
pub(in crate::machine) fn settlement(plan: &Plan, owed: &Owed) -> EventBody {
    let model = plan.model.fallback.as_deref().filter(|_| owed.of_fallback).unwrap_or(&plan.model);
    let reported = price(model, &owed.usage);
    let (amount, usage) = match owed.unknown {
        None => (reported, owed.usage),
        Some(unknown) if estimates_unknown_outcome(&plan.settings) => {
            let estimate = unknown.cut.estimate();
            let usage = owed.usage.at_least(Usage { output: estimate.output.min(unknown.max_output), ..estimate });
            (price(model, &usage).min(unknown.worst_case.max(reported)), usage)
        }
        Some(unknown) => {
            let bound = Usage { input: unknown.input, output: unknown.max_output, ..Usage::default() };
            (unknown.worst_case.max(reported), owed.usage.at_least(bound))
        }
    };
    let (turn, attempt, unknown_outcome) = (owed.turn, owed.attempt, owed.unknown.is_some());
    EventBody::Settled(Settled { turn, attempt, amount, usage, unknown_outcome })
}

/// Whether the settings ask for an estimate where the worst case is the default.
fn estimates_unknown_outcome(settings: &BTreeMap<String, Value>) -> bool {
    let written = settings.get("resilience").and_then(|v| v.pointer("/budget/unknown_outcome"));
    written.and_then(Value::as_str) == Some("estimate")
}

/// What a call with this usage cost, in nano-dollars; the largest amount a ledger holds where it cannot be counted.
fn price(model: &PlannedModel, usage: &Usage) -> u64 {
    if model.prices.is_none() {
        return 0;
    }
    cost(model, usage).map_or(Nanos(i64::MAX), |nanos| nanos).to_u64()
}

pub(super) fn context(walk: &Walk<'_>) -> Decision {
    let (plan, state) = (walk.plan, walk.state);
    if state.mail.handoff {
        return Decision::Gives(Outcome::Full);
    }
    let used = request::tokens_used(plan, state);
    let window = state.model(plan).context_window;
    let full = u128::from(used) * u128::from(WHOLE) >= u128::from(window) * u128::from(threshold(&plan.settings));
    // What has reached a limit does not go on in another thread either: the look at the limits says so.
    let spent = limits::check(&state.limits.into(), &semantic_cost(state)).is_some();
    Decision::Gives(if full && window > 0 && !spent { Outcome::Full } else { Outcome::Fits })
}

/// One, as [`threshold`] counts.
const WHOLE: u64 = 1_000_000_000;

/// The part of the context window that may be used, in billionths.
fn threshold(settings: &BTreeMap<String, Value>) -> u64 {
    let written = settings.get("coordination").and_then(|v| v.pointer("/continuation/trigger_threshold"));
    let read = written.and_then(|value| Nanos::from_json(value).ok()).map(Nanos::to_u64);
    read.filter(|part| (1..=WHOLE).contains(part)).unwrap_or(WHOLE / 10 * 9)
}

fn hit(at: Node, exceeded: Exceeded) -> EventBody {
    EventBody::Limit(LimitHit {
        at,
        limit_code: exceeded.limit_code,
        current_value: exceeded.current_value,
        current_max: exceeded.current_max,
    })
}

fn semantic_cost(state: &State) -> limits::Cost {
    let c = &state.cost;
    limits::Cost {
        turns: c.turns,
        input_tokens: c.input_tokens,
        output_tokens: c.output_tokens,
        cached_tokens: c.cached_tokens,
        spend: Nanos::from_u64(c.spend),
        elapsed_seconds: state.clock.elapsed_ms() / 1000,
    }
}

/// The limit that forbids another child beside those there are and `more` others, if any. A tool starts nothing below it,
/// so depth does not bound it.
pub(super) fn no_more_children(state: &State, more: u64, is_tool: bool) -> Option<(EventBody, String)> {
    let depth = if is_tool { 1 } else { state.limits.depth };
    let limits = PlanLimits { depth, ..state.limits };
    let exceeded = limits::check_spawn(&limits.into(), state.spawned().saturating_add(more))?;
    let text = exceeded.to_string();
    Some((hit(Node::Tools, exceeded), text))
}
