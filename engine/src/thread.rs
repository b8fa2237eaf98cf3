//! The public data of a thread: status, cost and result. The module `machine` runs threads, and the module `store`
//! stores them.

use std::iter::Sum;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use crate::message::SharedText;

/// Status of a thread (`language.md` 12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Created,
    Running,
    Completed,
    Error,
    Cancelled,
    Killed,
    Continued,
    Suspended,
    /// A closed session of a chat, which can be reopened.
    Idle,
}

impl Status {
    /// Returns true if the status is neither `created` nor `running`. A suspended or idle thread therefore counts as
    /// ended.
    pub fn has_ended(self) -> bool {
        match self {
            Self::Created | Self::Running => false,
            Self::Completed
            | Self::Error
            | Self::Cancelled
            | Self::Killed
            | Self::Continued
            | Self::Suspended
            | Self::Idle => true,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Killed => "killed",
            Self::Continued => "continued",
            Self::Suspended => "suspended",
            Self::Idle => "idle",
        }
    }

    /// Returns true if the thread has stopped but can be recovered. The account of such a thread stays open.
    pub fn is_parked(self) -> bool {
        matches!(self, Self::Suspended | Self::Idle)
    }
}

/// Resources used by a thread, including billed failed attempts and ended children.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Number of model replies.
    pub turns: u64,
    /// Prompt tokens, including cached tokens.
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// Part of `input_tokens` that was read from a cache.
    pub cached_tokens: u64,
    /// Spend in nano-dollars.
    pub spend: u64,
    /// Nano-dollars reserved for descendants that were alive when their parent ended. The amount is not part of
    /// `spend`, but a prompt of a chat counts it against its spend limit. At the end of a prompt, the amount also
    /// includes the reservations of its asynchronous children that are still alive.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub outstanding: u64,
    /// Milliseconds of all ended waits for approvals, of the thread and of the children that it awaited.
    #[serde(rename = "asked_ms", default, skip_serializing_if = "is_zero")]
    pub approval_wait_ms: u64,
    /// True if models without a price were called. `spend` does not include the cost of these calls.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unpriced: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Cost {
    /// Returns the cost since an earlier state of the same thread.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            turns: self.turns.saturating_sub(before.turns),
            input_tokens: self.input_tokens.saturating_sub(before.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(before.output_tokens),
            cached_tokens: self.cached_tokens.saturating_sub(before.cached_tokens),
            spend: self.spend.saturating_sub(before.spend),
            outstanding: self.outstanding.saturating_sub(before.outstanding),
            approval_wait_ms: self.approval_wait_ms.saturating_sub(before.approval_wait_ms),
            unpriced: self.unpriced && self.turns > before.turns,
        }
    }

    /// Adds the cost of another thread.
    pub fn add(&mut self, other: &Self) {
        self.turns = self.turns.saturating_add(other.turns);
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.spend = self.spend.saturating_add(other.spend);
        self.outstanding = self.outstanding.saturating_add(other.outstanding);
        self.approval_wait_ms = self.approval_wait_ms.saturating_add(other.approval_wait_ms);
        self.unpriced |= other.unpriced;
    }

    /// Returns the value of the fact `cost`, which conditions and templates read: turns, tokens, spend in dollars, and
    /// seconds. `elapsed_ms` is the owned time of the thread, and `spend_limit` is in nano-dollars.
    pub fn fact(&self, elapsed_ms: u64, spend_limit: u64) -> Value {
        let mut map = Map::new();
        map.insert("turns".into(), self.turns.into());
        map.insert("input_tokens".into(), self.input_tokens.into());
        map.insert("output_tokens".into(), self.output_tokens.into());
        map.insert("cached_tokens".into(), self.cached_tokens.into());
        map.insert("spend".into(), dollars(self.spend));
        map.insert("elapsed_seconds".into(), thousandths(elapsed_ms));
        // Older names of `spend` and of the spend limit.
        map.insert("current".into(), dollars(self.spend));
        map.insert("limit".into(), dollars(spend_limit));
        Value::Object(map)
    }
}

impl<'a> Sum<&'a Cost> for Cost {
    fn sum<I: Iterator<Item = &'a Cost>>(costs: I) -> Self {
        costs.fold(Self::default(), |mut sum, cost| {
            sum.add(cost);
            sum
        })
    }
}

/// Result of a run, printed by `rye run --format json` as its last line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    pub success: bool,
    pub thread_id: String,
    pub status: Status,
    pub directive: String,
    /// The tool that the thread runs, if an asynchronous tool call started the thread; `None` for the thread of a
    /// directive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The model's last text, or the result of `tool`; `None` if there is neither.
    pub result: Option<SharedText>,
    pub outputs: Option<Map<String, Value>>,
    /// Required outputs that the model did not return.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// The stop reason of the last reply; `None` if there is no reply. A reason that the wire format does not define
    /// has the name that the provider sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// Names of events, content blocks and fields that `rye` did not understand in the thread's replies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    pub error: Option<RunError>,
    pub cost: PrintedCost,
    pub plan_id: String,
}

/// The error of a thread that did not complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunError {
    /// The error code, such as `turns_exceeded`, `rate_limited` or `returned_error`.
    pub code: String,
    pub message: String,
}

/// [`Cost`] with the spend as a decimal number of dollars.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrintedCost {
    pub turns: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub spend: Value,
    /// True if models without a price were called. `spend` does not include the cost of these calls.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unpriced: bool,
}

impl From<Cost> for PrintedCost {
    fn from(cost: Cost) -> Self {
        Self {
            turns: cost.turns,
            input_tokens: cost.input_tokens,
            output_tokens: cost.output_tokens,
            spend: dollars(cost.spend),
            unpriced: cost.unpriced,
        }
    }
}

/// Converts nano-dollars to a JSON number of dollars, for printing and facts, never for arithmetic.
pub fn dollars(nanos: u64) -> Value {
    decimal(nanos, 1_000_000_000, 9)
}

/// Converts thousandths to a JSON number: milliseconds to seconds, per mille to a ratio.
pub(crate) fn thousandths(value: u64) -> Value {
    decimal(value, 1_000, 3)
}

/// Returns `value / scale` as the nearest JSON number. `scale` is a power of ten with `digits` zeros. The quotient is
/// written in decimal and parsed, because a division of floating-point numbers could round twice.
fn decimal(value: u64, scale: u64, digits: usize) -> Value {
    let (whole, rest) = (value / scale, value % scale);
    if rest == 0 {
        return Value::Number(whole.into());
    }
    let text = format!("{whole}.{rest:0digits$}");
    text.parse::<f64>().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number)
}

/// The first spawn number of children that `rye run --parent` starts. Children that the parent's own calls start have
/// lower numbers, from 1. Children that hooks start have higher numbers ([`FIRST_HOOK_SPAWN`]).
pub(crate) const FIRST_OUTSIDE_SPAWN: u64 = 1 << 51;

/// The first spawn number of the children that hooks start. All other children have lower numbers. Numbers stay below
/// 2^53, because JSON readers represent only such integers exactly.
pub(crate) const FIRST_HOOK_SPAWN: u64 = 1 << 52;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    #[test]
    fn spawn_numbers_are_exact_in_readers_with_floating_point_numbers() {
        // A thread starts far fewer than 2^50 children of a kind.
        for first in [1, FIRST_OUTSIDE_SPAWN, FIRST_HOOK_SPAWN] {
            for number in [first, first + 1, first + (1 << 50)] {
                let read: f64 = number.to_string().parse().unwrap();
                assert_eq!(read.to_string(), number.to_string());
            }
        }
    }

    #[test]
    fn money_prints_as_dollars() {
        assert_eq!(dollars(0), json!(0));
        assert_eq!(dollars(80_000_000), json!(0.08));
        assert_eq!(dollars(1), json!(1e-9));
        assert_eq!(dollars(2_000_000_000), json!(2));
    }
}
