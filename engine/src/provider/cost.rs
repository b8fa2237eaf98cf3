//! What an attempt costs: tokens times the plan's prices, in whole nano-dollars. Nothing is sent or booked here.

use rye_compiler::plan::{PlannedModel, Prices};
use rye_compiler::semantics::money::{self, Nanos};
use serde_json::Value;

use super::Usage;

/// The price of `usage` with `model`, rounded up once. `None` for a model without prices, or beyond what can be counted.
///
/// A provider that charges more for a long prompt does so for the whole request: its `long_prompt` prices, from the
/// provider file in the plan, then stand for the others.
pub fn cost(model: &PlannedModel, usage: &Usage) -> Option<Nanos> {
    let standard = model.prices?;
    let prices = long_prompt(model, usage).unwrap_or(standard);
    money::cost(&[
        (Nanos::from_u64(prices.input), usage.input),
        (Nanos::from_u64(prices.output), usage.output),
        (Nanos::from_u64(prices.cache_read), usage.cache_read),
        (Nanos::from_u64(prices.cache_write), usage.cache_write),
    ])
}

/// The long-prompt prices of `model`, when it has them and the prompt is that long.
fn long_prompt(model: &PlannedModel, usage: &Usage) -> Option<Prices> {
    let models = model.connection.get("models")?.as_array()?;
    let entry = models.iter().find(|entry| entry.get("id").and_then(Value::as_str) == Some(&model.id))?;
    let told = entry.pointer("/prices/long_prompt")?;
    let above = told.get("above").and_then(Value::as_u64)?;
    let prompt = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
    if prompt <= above {
        return None;
    }
    let price = |key: &str| match told.get(key)? {
        Value::String(text) => Nanos::parse(text).ok().map(Nanos::to_u64),
        Value::Number(number) => Nanos::parse(&number.to_string()).ok().map(Nanos::to_u64),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let input = price("input")?;
    Some(Prices {
        input,
        output: price("output")?,
        cache_read: price("cache_read").unwrap_or(input),
        cache_write: price("cache_write").unwrap_or(input),
    })
}

#[cfg(test)]
mod tests {
    use rye_compiler::plan::ToolUse;
    use serde_json::json;

    use super::*;

    /// Prices of 1, 2, 3 and 4 dollars; ten times that for prompts above 100 tokens.
    fn model(prices: bool, long_prompt: &Value) -> PlannedModel {
        let dollar = 1_000_000_000;
        let prices = prices.then_some(Prices {
            input: dollar,
            output: 2 * dollar,
            cache_read: 3 * dollar,
            cache_write: 4 * dollar,
        });
        PlannedModel {
            provider: "p".to_owned(),
            wire: "scripted".to_owned(),
            id: "m".to_owned(),
            requested: "fast".to_owned(),
            fallback: None,
            context_window: 1000,
            max_output: 100,
            prices,
            tool_use: ToolUse::Native,
            connection: json!({"models": [{"id": "other"}, {"id": "m", "prices": {"long_prompt": long_prompt}}]}),
        }
    }

    fn usage(input: u64, output: u64, cache_read: u64, cache_write: u64) -> Usage {
        Usage { input, output, cache_read, cache_write }
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let model = model(true, &Value::Null);
        assert_eq!(cost(&model, &usage(1, 0, 0, 0)), Some(Nanos(1_000)));
        assert_eq!(cost(&model, &usage(0, 1, 0, 0)), Some(Nanos(2_000)));
        assert_eq!(cost(&model, &usage(0, 0, 1, 0)), Some(Nanos(3_000)));
        assert_eq!(cost(&model, &usage(0, 0, 0, 1)), Some(Nanos(4_000)));
        assert_eq!(cost(&model, &usage(1, 1, 1, 1)), Some(Nanos(10_000)));
        assert_eq!(cost(&model, &Usage::default()), Some(Nanos(0)));
    }

    #[test]
    fn no_prices_no_cost_and_no_overflow() {
        assert_eq!(cost(&model(false, &Value::Null), &usage(1, 1, 1, 1)), None);
        assert_eq!(cost(&model(true, &Value::Null), &usage(u64::MAX, u64::MAX, u64::MAX, u64::MAX)), None);
    }

    #[test]
    fn a_long_prompt_changes_every_price() {
        let long = json!({"above": 100, "input": "10", "output": 20, "cache_read": "30", "cache_write": "40"});
        let model_with = |long: &Value| model(true, long);
        assert_eq!(cost(&model_with(&long), &usage(60, 1, 20, 20)), Some(Nanos(60_000 + 2_000 + 60_000 + 80_000)));
        assert_eq!(cost(&model_with(&long), &usage(61, 1, 20, 20)), Some(Nanos(610_000 + 20_000 + 600_000 + 800_000)));
        let short = json!({"above": 100, "input": "10", "output": "20"});
        assert_eq!(cost(&model_with(&short), &usage(0, 0, 101, 1)), Some(Nanos(1_020_000)));
        let broken = json!({"above": 100, "input": "ten", "output": "20"});
        assert_eq!(cost(&model_with(&broken), &usage(101, 0, 0, 0)), Some(Nanos(101_000)));
    }
}
