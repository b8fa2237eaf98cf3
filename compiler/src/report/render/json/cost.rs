//! Costs in a plan report: per turn for each part, and for whole runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plan::{PlannedModel, Tokens};
use crate::report::forecast::{self, Forecast, RunEstimate};
use crate::semantics::money::Nanos;

/// Cost in dollars of some prompt tokens in each request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PerTurnReport {
    /// Cost if the tokens are sent uncached.
    pub full: Value,
    /// Cost if the tokens are read from the provider's cache.
    pub cached: Value,
}

/// Returns the cost of prompt tokens per turn; `None` if the model has no price.
pub fn per_turn(model: &PlannedModel, tokens: u64) -> Option<PerTurnReport> {
    let full = model.cost(&Tokens { input: tokens, ..Tokens::default() })?;
    let cached = model.cost(&Tokens { cache_read: tokens, ..Tokens::default() })?;
    Some(PerTurnReport { full: full.to_json(), cached: cached.to_json() })
}

/// The cost forecast of a plan and its assumptions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ForecastReport {
    /// The first request alone, with a reply of maximum length.
    pub first: RunEstimateReport,
    /// Replies and results of typical length, the constant prefix read from the cache.
    pub typical: RunEstimateReport,
    /// Every reply of maximum length, one largest tool result per turn, nothing cached.
    pub worst: RunEstimateReport,
    /// Upper bound on the turns that the spend limit pays for; null if the model has no price.
    pub affordable_turns: Option<u64>,
    pub prefix: PrefixReport,
    pub assumptions: AssumptionsReport,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunEstimateReport {
    pub turns: u64,
    /// Prompt tokens of all requests, including cached ones.
    pub input: u64,
    pub cached: u64,
    pub output: u64,
    /// Dollars; null where the model has no price.
    pub cost: Option<Value>,
    /// `done`, a limit's name, or `context window`.
    pub stopped: String,
}

/// Tokens at the start of every request that are byte-identical each time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrefixReport {
    /// Identical in every thread.
    pub constant: u64,
    /// Identical in every turn of one thread.
    pub per_thread: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AssumptionsReport {
    pub typical_turns: u64,
    pub typical_output: u64,
    pub typical_result: u64,
}

impl From<Forecast> for ForecastReport {
    fn from(forecast: Forecast) -> Self {
        Self {
            first: forecast.first.into(),
            typical: forecast.typical.into(),
            worst: forecast.worst.into(),
            affordable_turns: forecast.affordable_turns,
            prefix: PrefixReport { constant: forecast.prefix.constant, per_thread: forecast.prefix.per_thread },
            assumptions: AssumptionsReport {
                typical_turns: forecast::TYPICAL_TURNS,
                typical_output: forecast::TYPICAL_OUTPUT_TOKENS,
                typical_result: forecast::TYPICAL_RESULT_TOKENS,
            },
        }
    }
}

impl From<RunEstimate> for RunEstimateReport {
    fn from(course: RunEstimate) -> Self {
        Self {
            turns: course.turns,
            input: course.input,
            cached: course.cached,
            output: course.output,
            cost: course.cost.map(Nanos::to_json),
            stopped: course.stopped.as_str().to_owned(),
        }
    }
}
