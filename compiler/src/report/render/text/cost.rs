//! Cost section of the human-readable plan.

use super::super::table::{Align, group_thousands, push_table};
use super::super::view::MessageView;
use super::{cents, dollars, heading, push, tokens};
use crate::plan::Plan;
use crate::report::forecast::{self, RunEstimate, StopReason};

/// Renders the first request, then whole runs.
pub fn render(out: &mut String, plan: &Plan, system: &MessageView, first: &MessageView) {
    let weight = plan.count_request_tokens(&system.text, &first.text);
    heading(
        out,
        "First request",
        &format!("{} in, at most {} out", tokens(weight.input()), group_thousands(weight.output)),
    );
    let parts = [("system", weight.system), ("message", weight.first_message), ("palette", weight.palette)];
    let parts: Vec<String> = parts.iter().map(|(name, count)| format!("{name} {}", group_thousands(*count))).collect();
    push(out, &format!("  {}", parts.join(" + ")));
    if let Some(prices) = &plan.model.prices {
        let input = prices.cost(&crate::plan::Tokens { input: weight.input(), ..Default::default() });
        let most = prices.worst_case(weight.input_bound, weight.output);
        push(out, &format!("  input {}, at most {} in total", input.map(cents).unwrap_or_default(), cents(most)));
    }
    let forecast = plan.forecast(&weight);
    heading(out, "Forecast", &format!("tokens counted {}", plan.model.describe_counting()));
    let rows = [row("typical", &forecast.typical), row("worst", &forecast.worst)];
    push_table(out, &[Align::Left, Align::Right, Align::Right, Align::Right, Align::Right, Align::Left], &rows);
    let (turns, reply, result) =
        (forecast::TYPICAL_TURNS, forecast::TYPICAL_OUTPUT_TOKENS, group_thousands(forecast::TYPICAL_RESULT_TOKENS));
    push(
        out,
        &format!(
            "  typical: up to {turns} turns, {reply} tokens per reply, {result} tokens per tool result, cached prefix"
        ),
    );
    push(out, "  worst: replies and tool results of maximum length, nothing cached");
    let prefix = forecast.prefix;
    let per_thread = if prefix.per_thread == 0 { "nothing".to_owned() } else { group_thousands(prefix.per_thread) };
    push(
        out,
        &format!("  cacheable prefix: {} shared by all threads, {per_thread} per thread", tokens(prefix.constant)),
    );
    if let Some(turns) = forecast.affordable_turns.filter(|turns| *turns < plan.limits.turns) {
        let declared = group_thousands(plan.limits.turns);
        push(
            out,
            &format!("  the turn limit is {declared}, but the spend limit pays for at most {}", group_thousands(turns)),
        );
    }
}

fn row(name: &str, course: &RunEstimate) -> Vec<String> {
    let turns =
        if course.turns == 1 { "1 turn".to_owned() } else { format!("{} turns", group_thousands(course.turns)) };
    let end = match course.stopped {
        StopReason::Done => "until it is done".to_owned(),
        StopReason::Limit(limit) => format!("until the limit of {limit}"),
        StopReason::Window => "until the context window is full".to_owned(),
    };
    vec![
        name.to_owned(),
        turns,
        format!("{} in", group_thousands(course.input)),
        format!("{} out", group_thousands(course.output)),
        course.cost.map(dollars).unwrap_or_default(),
        end,
    ]
}
