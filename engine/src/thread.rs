//! What a thread is to those who look at it: its state, its cost, its result. Not how it runs (`machine`) and not where
//! it lies (`store`).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// Where a thread stands (`language.md` 12).
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
}

impl Status {
    /// Whether nothing more happens in this thread by itself.
    pub fn is_over(self) -> bool {
        match self {
            Self::Created | Self::Running => false,
            Self::Completed | Self::Error | Self::Cancelled | Self::Killed | Self::Continued | Self::Suspended => true,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Killed => "killed",
            Self::Continued => "continued",
            Self::Suspended => "suspended",
        }
    }
}

/// What a thread has used. Failed attempts that were billed and ended children count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Replies of the model.
    pub turns: u64,
    /// Tokens, cached ones included.
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// The part of `input_tokens` that a cache served.
    pub cached_tokens: u64,
    /// Nano-dollars.
    pub spend: u64,
}

impl Cost {
    /// The `cost` fact of conditions and templates: dollars, and the owned time in seconds.
    pub fn fact(&self, elapsed_ms: u64, spend_limit: u64) -> Value {
        let mut map = Map::new();
        map.insert("turns".into(), self.turns.into());
        map.insert("input_tokens".into(), self.input_tokens.into());
        map.insert("output_tokens".into(), self.output_tokens.into());
        map.insert("cached_tokens".into(), self.cached_tokens.into());
        map.insert("spend".into(), dollars(self.spend));
        map.insert("elapsed_seconds".into(), thousandths(elapsed_ms));
        // The older names of the same two values.
        map.insert("current".into(), dollars(self.spend));
        map.insert("limit".into(), dollars(spend_limit));
        Value::Object(map)
    }
}

/// How a run ended, as `rye run --format json` prints it in its last line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    pub success: bool,
    pub thread_id: String,
    pub status: Status,
    pub directive: String,
    /// The tool that it was a run of, which `directive` did not wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The last text of the model; of a tool what it answered.
    pub result: Option<String>,
    pub outputs: Option<Map<String, Value>>,
    pub error: Option<RunError>,
    pub cost: PrintedCost,
    pub plan_id: String,
}

/// Why a thread did not complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunError {
    /// `turns_exceeded`, `rate_limited`, `returned_error`…
    pub code: String,
    pub message: String,
}

/// [`Cost`] with money as a decimal number of dollars.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrintedCost {
    pub turns: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub spend: Value,
}

impl From<Cost> for PrintedCost {
    fn from(cost: Cost) -> Self {
        Self {
            turns: cost.turns,
            input_tokens: cost.input_tokens,
            output_tokens: cost.output_tokens,
            spend: dollars(cost.spend),
        }
    }
}

/// Nano-dollars as a JSON number of dollars: for printing and facts, never for reckoning.
pub fn dollars(nanos: u64) -> Value {
    decimal(nanos, 1_000_000_000, 9)
}

/// Thousandths as a JSON number: milliseconds as seconds, a ratio in per mille.
pub(crate) fn thousandths(value: u64) -> Value {
    decimal(value, 1_000, 3)
}

/// `value / scale` written out in decimal and read back as the JSON number nearest to it.
fn decimal(value: u64, scale: u64, digits: usize) -> Value {
    let (whole, rest) = (value / scale, value % scale);
    if rest == 0 {
        return Value::Number(whole.into());
    }
    let text = format!("{whole}.{rest:0digits$}");
    text.parse::<f64>().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn money_prints_as_dollars() {
        assert_eq!(dollars(0), json!(0));
        assert_eq!(dollars(80_000_000), json!(0.08));
        assert_eq!(dollars(1), json!(1e-9));
        assert_eq!(dollars(2_000_000_000), json!(2));
    }
}
