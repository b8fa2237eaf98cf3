//! The requests of `rye eval` about limits and the ledger.

use serde_json::{Map, Value, json};

use super::{EvalError, EvalResult, check_keys, expect_object};
use crate::semantics::ledger::{Ledger, LedgerReply as Booked, Operation, Refusal};
use crate::semantics::limits::{self, LimitName, LimitResolutionError, LimitSetting, LimitValue, resolve};
use crate::semantics::money::Nanos;
use crate::semantics::value::Num;

fn layer(body: &Map<String, Value>, key: &'static str) -> Result<Vec<LimitSetting<&'static str>>, EvalError> {
    match body.get(key) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(layer) => {
            let settings = expect_object(layer, key)?;
            Ok(settings.iter().map(|(name, value)| LimitSetting::json(name, value.clone(), key)).collect())
        }
    }
}

pub(super) fn answer_limits(body: &Value) -> EvalResult {
    let body = expect_object(body, "limits")?;
    check_keys(body, "limits", &["defaults", "directive", "overrides", "parent"])?;
    let resolved = resolve(
        &layer(body, "defaults")?,
        &layer(body, "directive")?,
        &layer(body, "overrides")?,
        &layer(body, "parent")?,
    );
    match resolved {
        Ok(resolved) => Ok(Value::Object(resolved.limits.to_json())),
        Err(faults) => Err(faults.first().map_or_else(|| EvalError::new("limit::invalid", ""), limit_error)),
    }
}

fn limit_error(fault: &LimitResolutionError<&str>) -> EvalError {
    match fault {
        LimitResolutionError::Unknown { name, source } => {
            let shown: String = name.chars().take(40).collect();
            EvalError::new("limit::unknown", format!("`{source}` names the unknown limit `{shown}`"))
        }
        LimitResolutionError::Invalid { why, source, .. } => {
            EvalError::new("limit::invalid", format!("in `{source}`, {why}"))
        }
        LimitResolutionError::TooDeep { .. } => {
            EvalError::new("limit::invalid", "the parent has a `depth` of 0, so it cannot have children")
        }
    }
}

/// Returns the first of the `limits` in the request that the `cost` in the request reaches, by the rules of the engine;
/// null if the cost reaches none of them.
pub(super) fn check_limits(body: &Value) -> EvalResult {
    let body = expect_object(body, "check_limits")?;
    check_keys(body, "check_limits", &["limits", "cost"])?;
    let none = Map::new();
    let part = |key: &str| match body.get(key) {
        None | Some(Value::Null) => Ok(&none),
        Some(value) => expect_object(value, key),
    };
    let (wanted, cost) = (part("limits")?, part("cost")?);
    let known: Vec<&str> = LimitName::ALL.iter().map(|name| name.as_str()).collect();
    check_keys(wanted, "limits", &known)?;
    let used = |key: &str| match cost.get(key) {
        None | Some(Value::Null) => Ok(0),
        Some(value) => Num::of_value(value)
            .and_then(Num::to_u64)
            .ok_or_else(|| EvalError::request(format!("`{key}` of the cost has to be a whole number"))),
    };
    let spend = match cost.get("spend") {
        None | Some(Value::Null) => Nanos::ZERO,
        Some(value) => Nanos::from_json(value).map_err(|error| EvalError::request(error.to_string()))?,
    };
    let seconds = match cost.get("elapsed_seconds") {
        None | Some(Value::Null) => Nanos::ZERO,
        Some(value) => Nanos::from_json(value)
            .map_err(|_| EvalError::request("`elapsed_seconds` of the cost has to be a number"))?,
    };
    let mut found = Vec::new();
    for name in [
        LimitName::Turns,
        LimitName::Tokens,
        LimitName::Spend,
        LimitName::DurationSeconds,
        LimitName::Spawns,
        LimitName::Depth,
    ] {
        let Some(limit) = wanted.get(name.as_str()) else { continue };
        let written = LimitValue::Json(limit.clone());
        let max = limits::parse_limit_value(name, &written).map_err(|why| EvalError::new("limit::invalid", why))?;
        let (hit, current) = match name {
            LimitName::Spend => (spend.to_u64() >= max && !spend.is_negative(), spend.to_json()),
            LimitName::DurationSeconds => (i128::from(seconds.0) >= i128::from(max) * 1_000_000_000, seconds.to_json()),
            LimitName::Tokens => {
                let tokens = used("input_tokens")?.saturating_add(used("output_tokens")?);
                (tokens >= max, Value::from(tokens))
            }
            // Spawns and depth are checked only at a spawn, so they are reported only if the cost has a value for them.
            LimitName::Spawns | LimitName::Depth => {
                let current = used(name.as_str())?;
                (cost.contains_key(name.as_str()) && current >= max, Value::from(current))
            }
            LimitName::Turns | LimitName::Output => {
                let current = used(name.as_str())?;
                (current >= max, Value::from(current))
            }
        };
        if hit {
            found.push(json!({
                "limit_code": format!("{name}_exceeded"),
                "current_value": current,
                "current_max": limit,
            }));
        }
    }
    Ok(found.into_iter().next().unwrap_or(Value::Null))
}

pub(super) fn answer_ledger(body: &Value) -> EvalResult {
    let operations = body.as_array().ok_or_else(|| EvalError::request("`ledger` has to be a list of operations"))?;
    let mut ledger = Ledger::new();
    let answers = operations.iter().map(|operation| match read_operation(operation) {
        Ok(operation) => match ledger.apply(&operation) {
            Booked::Done | Booked::Reserved { .. } => Value::Null,
            Booked::Remaining { amount } => amount.to_json(),
            Booked::Refused { refusal } => EvalError::new("ledger", refusal.to_string()).to_value(),
        },
        Err(error) => error.to_value(),
    });
    Ok(Value::Array(answers.collect()))
}

fn read_operation(operation: &Value) -> Result<Operation, EvalError> {
    let words = operation.as_array().map(Vec::as_slice).unwrap_or_default();
    let name = |value: &Value| {
        value.as_str().map(str::to_owned).ok_or_else(|| EvalError::request("the name of a thread must be a string"))
    };
    let dollars = |value: &Value| {
        let amount = Nanos::from_json(value).map_err(|error| EvalError::new("ledger", error.to_string()))?;
        if amount.is_negative() { Err(EvalError::new("ledger", Refusal::Negative.to_string())) } else { Ok(amount) }
    };
    let Some((verb, rest)) = words.split_first().and_then(|(verb, rest)| Some((verb.as_str()?, rest))) else {
        return Err(EvalError::request("an operation must be a list that starts with its name"));
    };
    match (verb, rest) {
        ("register", [thread, spend]) => Ok(Operation::Register { thread: name(thread)?, spend: dollars(spend)? }),
        ("reserve", [thread, parent, amount]) => Ok(Operation::Reserve {
            thread: name(thread)?,
            parent: name(parent)?,
            amount: Some(dollars(amount)?),
            default: Nanos::ZERO,
        }),
        ("settle", [thread, spent]) => {
            Ok(Operation::Settle { thread: name(thread)?, attempt: None, spent: dollars(spent)? })
        }
        ("release", [thread]) => Ok(Operation::Release { thread: name(thread)? }),
        ("remaining", [thread]) => Ok(Operation::Remaining { thread: name(thread)? }),
        _ => {
            let shown: String = verb.chars().take(40).collect();
            Err(EvalError::request(format!(
                "`{shown}` is unknown or has the wrong number of operands: write `[register, THREAD, SPEND]`, `[reserve, THREAD, PARENT, AMOUNT]`, `[settle, THREAD, SPENT]`, `[release, THREAD]` or `[remaining, THREAD]`"
            )))
        }
    }
}
