//! Cost section of the human-readable plan.

use super::super::table::{Align, group_thousands, push_table};
use super::super::view::MessageView;
use super::{format_tokens, push, round_dollars, write_heading};
use crate::compile::Compilation;
use crate::report::cache_map::{CacheStep, NextRequest};
use crate::report::forecast::{self, RunEstimate, StopReason};
use crate::report::run_bounds::{CostBound, ThreadBound, ThreadBoundOrigin, TurnBounds, WorstCase};

/// Renders the tokens and costs of the first request, then those of whole runs.
pub fn render(out: &mut String, compilation: &Compilation, system: &MessageView, first: &MessageView) {
    let plan = &compilation.plan;
    let weight = plan.count_viewed_tokens(system, first);
    write_heading(
        out,
        "First request",
        &format!("{} in, at most {} out", format_tokens(weight.input()), group_thousands(weight.output)),
    );
    let parts = [("system", weight.system), ("message", weight.first_message), ("palette", weight.palette)];
    let parts: Vec<String> = parts.iter().map(|(name, count)| format!("{name} {}", group_thousands(*count))).collect();
    push(out, &format!("  {}", parts.join(" + ")));
    if let Some(prices) = &plan.model.prices {
        let input = prices.cost(&crate::plan::Tokens { input: weight.input(), ..Default::default() });
        let most = prices.worst_case(weight.input_bound, weight.output);
        let fallback = plan.model.fallback.as_deref().map_or_else(String::new, |model| {
            let most = model.worst_case(weight.fallback_bound, model.requested_output(plan.limits.output));
            format!(", at most {} by the fallback", round_dollars(most))
        });
        let input = input.map(round_dollars).unwrap_or_default();
        push(out, &format!("  input {input}, at most {} in total{fallback}", round_dollars(most)));
    }
    let unbounded = plan.unbounded_parts(system, first);
    if !unbounded.is_empty() {
        push(out, &format!("  not counted, because their size is known only at run time: {}", unbounded.join(", ")));
    }
    let forecast = plan.forecast(&weight);
    write_heading(out, "Forecast", &format!("tokens counted {}", plan.model.describe_counting()));
    let rows = [format_row("typical", &forecast.typical)];
    push_table(out, &[Align::Left, Align::Right, Align::Right, Align::Right, Align::Right, Align::Left], &rows);
    push(out, &format!("  worst    {}", format_worst(&forecast.worst)));
    push(out, &format!("  turns    {}", format_turns(&forecast.turns)));
    if forecast.threads.set_by != ThreadBoundOrigin::Grants {
        push(out, &format!("  threads  {}", format_threads(&forecast.threads, plan.can_start_threads())));
    }
    let (turns, reply, result) =
        (forecast::TYPICAL_TURNS, forecast::TYPICAL_OUTPUT_TOKENS, group_thousands(forecast::TYPICAL_RESULT_TOKENS));
    push(
        out,
        &format!(
            "  typical: up to {turns} turns, {reply} tokens per reply, {result} tokens per tool result, cached prefix"
        ),
    );
    push(out, "  worst: an upper bound for every run, including its children, hooks, retries, compaction and handoffs");
    write_cache_map(out, &plan.cache_map(&compilation.origins, system, first));
}

/// Renders the cache map: a row for each request that can follow an earlier one. A row contains the number of tokens at
/// the start of the request that the provider's cache already holds, and the cost of the opening (palette, system
/// prompt and first message) with and without the cache.
fn write_cache_map(out: &mut String, steps: &[CacheStep]) {
    write_heading(out, "Cache map", "cached tokens of each later request, and its cost");
    let row = |step: &CacheStep| {
        let ends = step.ends_at.as_ref().map(|end| format!("up to {}", end.what));
        vec![
            describe_request(step.request).to_owned(),
            format!("{} of {}", group_thousands(step.shared), group_thousands(step.of)),
            step.cost.map(round_dollars).unwrap_or_default(),
            step.uncached.map(|cost| format!("instead of {}", round_dollars(cost))).unwrap_or_default(),
            ends.unwrap_or_default(),
            super::format_location(step.ends_at.as_ref().and_then(|end| end.place.as_ref())),
        ]
    };
    let columns = [Align::Left, Align::Right, Align::Right, Align::Left, Align::Left, Align::Left];
    push_table(out, &columns, &steps.iter().map(row).collect::<Vec<_>>());
}

fn describe_request(request: NextRequest) -> &'static str {
    match request {
        NextRequest::Turn => "next turn",
        NextRequest::Prompt => "next prompt",
        NextRequest::Continuation => "continuation",
        NextRequest::Thread => "next thread",
        NextRequest::Fallback => "fallback",
    }
}

fn format_worst(worst: &WorstCase) -> String {
    let cost = worst.cost.map(round_dollars);
    match (worst.set_by, cost) {
        (CostBound::Spend, Some(cost)) => format!("at most {cost}, set by the limit `spend`"),
        (CostBound::Prices, Some(cost)) => format!("{cost}, because every call is free of charge"),
        (CostBound::Prices, None) => "no cost is counted, because the model has no prices".to_owned(),
        (CostBound::Raise | CostBound::Spend, _) => "no bound, because a hook may raise the limit `spend`".to_owned(),
    }
}

fn format_threads(bound: &ThreadBound, starts_directives: bool) -> String {
    match (bound.set_by, bound.threads.map(group_thousands)) {
        (ThreadBoundOrigin::Grants, _) => "1, because nothing starts another thread".to_owned(),
        (ThreadBoundOrigin::Depth, _) => "1, set by the limit `depth`".to_owned(),
        (ThreadBoundOrigin::Spawns, Some(most)) if !starts_directives => {
            format!(
                "at most {most}, set by the limit `spawns`: a call of a tool with `async` runs in a thread of its own"
            )
        }
        (ThreadBoundOrigin::Spawns, Some(most)) => format!("at most {most}, set by the limit `spawns`"),
        (ThreadBoundOrigin::Raise | ThreadBoundOrigin::Spawns, _) => {
            "no bound, because a hook may raise the limit `spawns`".to_owned()
        }
    }
}

fn format_turns(TurnBounds { at_least, at_most, before_handoff }: &TurnBounds) -> String {
    let least = format!("{} in the worst case, set by the limit `{}`", at_least.turns, at_least.set_by);
    let first = before_handoff.map_or_else(String::new, |turns| {
        format!("; at most {} before a handoff, after which a hook may raise `turns` again", group_thousands(turns))
    });
    match at_most {
        Some(most) => {
            format!("{least}{first}; at most {}, set by the limit `{}`", group_thousands(most.turns), most.set_by)
        }
        None => format!("{least}{first}; no upper bound, because a hook may raise the limits"),
    }
}

fn format_row(name: &str, estimate: &RunEstimate) -> Vec<String> {
    let turns =
        if estimate.turns == 1 { "1 turn".to_owned() } else { format!("{} turns", group_thousands(estimate.turns)) };
    let end = match estimate.stopped {
        StopReason::Done => "until it is done".to_owned(),
        StopReason::Limit(limit) => format!("until the limit `{limit}`"),
        StopReason::Window => "until the context window is full".to_owned(),
    };
    vec![
        name.to_owned(),
        turns,
        format!("{} in", group_thousands(estimate.input)),
        format!("{} out", group_thousands(estimate.output)),
        estimate.cost.map(round_dollars).unwrap_or_default(),
        end,
    ]
}
