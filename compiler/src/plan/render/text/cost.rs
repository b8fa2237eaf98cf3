//! Cost section of the human-readable plan.

use super::super::super::Plan;
use super::super::super::forecast::{self, RunEstimate, StopReason};
use super::super::table::{Align, grouped, table};
use super::super::view::MessageView;
use super::{cents, dollars, heading, push, tokens};

/// Renders the first request, then whole runs.
pub fn render(out: &mut String, plan: &Plan, system: &MessageView, first: &MessageView) {
    let weight = plan.weight(&system.text, &first.text);
    heading(out, "First request", &format!("{} in, at most {} out", tokens(weight.input()), grouped(weight.output)));
    let parts = [("system", weight.system), ("message", weight.first_message), ("palette", weight.palette)];
    let parts: Vec<String> = parts.iter().map(|(name, count)| format!("{name} {}", grouped(*count))).collect();
    push(out, &format!("  {}", parts.join(" + ")));
    if let Some(prices) = &plan.model.prices {
        let input = prices.cost(&super::super::super::Tokens { input: weight.input(), ..Default::default() });
        let most = prices.worst_case(weight.input(), weight.output);
        push(out, &format!("  {} for what goes in, {} at most", input.map(cents).unwrap_or_default(), cents(most)));
    }
    let forecast = plan.forecast(&weight);
    heading(out, "A whole run", &format!("tokens counted {}", plan.model.counted()));
    let rows = [row("typical", &forecast.typical), row("worst", &forecast.worst)];
    table(out, &[Align::Left, Align::Right, Align::Right, Align::Right, Align::Right, Align::Left], &rows);
    let (turns, reply, result) =
        (forecast::TYPICAL_TURNS, forecast::TYPICAL_OUTPUT_TOKENS, grouped(forecast::TYPICAL_RESULT_TOKENS));
    push(
        out,
        &format!("  typical: at most {turns} turns, {reply} tokens a reply, {result} a tool result, the prefix cached"),
    );
    push(out, "  worst: replies and tool results as long as they may be, nothing cached");
    let prefix = forecast.prefix;
    let per_thread = if prefix.per_thread == 0 { "nothing".to_owned() } else { grouped(prefix.per_thread) };
    push(out, &format!("  the same in every thread: {}; in every turn of one: {per_thread}", tokens(prefix.constant)));
    if let Some(turns) = forecast.affordable_turns.filter(|turns| *turns < plan.limits.turns) {
        let declared = grouped(plan.limits.turns);
        push(out, &format!("  {declared} turns are allowed, the spend limit pays for at most {}", grouped(turns)));
    }
}

fn row(name: &str, course: &RunEstimate) -> Vec<String> {
    let turns = if course.turns == 1 { "1 turn".to_owned() } else { format!("{} turns", grouped(course.turns)) };
    let end = match course.stopped {
        StopReason::Done => "until it is done".to_owned(),
        StopReason::Limit(limit) => format!("until the limit of {limit}"),
        StopReason::Window => "until the context window is full".to_owned(),
    };
    vec![
        name.to_owned(),
        turns,
        format!("{} in", grouped(course.input)),
        format!("{} out", grouped(course.output)),
        course.cost.map(dollars).unwrap_or_default(),
        end,
    ]
}
