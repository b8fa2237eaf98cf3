//! Costs in a plan report: per turn for each part, and for whole runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plan::source::SourceReport;
use crate::plan::{PlannedModel, Tokens};
use crate::report::cache_map::CacheStep;
use crate::report::forecast::{self, Forecast, RunEstimate};
use crate::report::run_bounds::{ThreadBound, TurnBounds, WorstCase};
use crate::semantics::limits::LimitName;
use crate::semantics::money::Nanos;

/// Cost in dollars that a part of the prompt adds to each request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PerTurnReport {
    /// Cost if the tokens are sent uncached.
    pub full: Value,
    /// Cost if the tokens are read from the provider's cache.
    pub cached: Value,
}

/// Returns the cost of prompt tokens in one turn, both in full and if read from the cache; `None` if the model has no
/// price.
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
    /// A run with replies and tool results of typical length. Every request after the first one reads
    /// `prefix.per_thread` tokens from the cache.
    pub typical: RunEstimateReport,
    /// Upper bound on the cost of every run, including children, hooks, retries, compaction and handoffs.
    pub worst: WorstCaseReport,
    /// Bounds on the turns of every run.
    #[serde(default)]
    pub turns: TurnBoundsReport,
    /// Bound on the threads of every run.
    #[serde(default)]
    pub threads: ThreadBoundReport,
    pub prefix: PrefixReport,
    /// For each request that can follow an earlier one, the start of the opening that both share.
    #[serde(default)]
    pub cache_map: Vec<CacheStepReport>,
    pub assumptions: AssumptionsReport,
}

/// A request that can follow an earlier one, and the prefix that a provider reads from its cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheStepReport {
    /// The later request: `turn` for the next turn, `prompt` for the next prompt of a chat, `continuation` for the
    /// first request of a continuation, `thread` for the first request of another thread of this plan, `fallback` for
    /// the same request to the fallback.
    pub request: String,
    /// Number of tokens at the start that are equal in both requests.
    pub shared: u64,
    /// Number of tokens of the whole opening: palette, system prompt and first message.
    pub of: u64,
    /// Dollars for the opening if the shared tokens are read from the cache; null if the model has no price.
    pub cost: Option<Value>,
    /// Dollars for the opening without a cache; null if the model has no price.
    pub uncached: Option<Value>,
    /// The part that ends the shared prefix; null if the whole opening is shared.
    pub ends_at: Option<String>,
    /// The source line of the part named in `ends_at`; null if there is no such part, or if the part has no source
    /// line.
    pub source: Option<SourceReport>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunEstimateReport {
    pub turns: u64,
    /// Prompt tokens of all requests, including cached ones.
    pub input: u64,
    pub cached: u64,
    pub output: u64,
    /// The cost in dollars; null if the model has no price.
    pub cost: Option<Value>,
    /// The reason why the run ends: `done` if the model has nothing left to do, the name of the limit that is reached,
    /// or `context window` if the thread hands off.
    pub stopped: String,
}

/// Upper bound on the cost of a tree of threads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorstCaseReport {
    /// The bound in dollars. Null if nothing bounds the cost, or if no model has a price and the plan starts no other
    /// thread.
    pub cost: Option<Value>,
    /// The name of the bound: the limit `spend`; `prices` if every call is free or no model has prices; `raise` if a
    /// hook may raise the limit, so that nothing bounds the cost.
    #[serde(default)]
    pub set_by: String,
}

/// Upper bound on the threads of a tree. A thread counts once with its continuations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadBoundReport {
    /// Upper bound on the threads of every run; null if a hook may raise the limit `spawns`.
    pub at_most: Option<u64>,
    /// The name of the bound: `grants` if nothing starts another thread; `depth` if the limit `depth` is 0; `raise` if
    /// a hook may raise the limit `spawns`, so that there is no bound; otherwise the limit `spawns`.
    pub set_by: String,
}

/// Bounds on the turns of a thread and its continuations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnBoundsReport {
    /// Lower bound, 0 or 1, on the turns that a run with the planned prompt can start before a limit stops it. A turn
    /// starts with its first call, which may fail.
    pub at_least: u64,
    /// The limit that sets `at_least`.
    pub at_least_set_by: String,
    /// Upper bound on the turns of every run; null if hooks may raise every limit that bounds them.
    pub at_most: Option<u64>,
    /// The limit that sets `at_most`; null if `at_most` is null.
    pub at_most_set_by: Option<String>,
    /// The highest value that the limit `turns` can have before the first handoff, if this value is below `at_most`;
    /// else null. Null also if only a run knows the value to which a hook raises the limit.
    #[serde(default)]
    pub before_handoff: Option<u64>,
}

/// Numbers of tokens at the start of a request that earlier requests can share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrefixReport {
    /// Tokens that are identical in every thread.
    pub constant: u64,
    /// Tokens that are identical in every turn of one thread.
    pub per_thread: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AssumptionsReport {
    pub typical_turns: u64,
    pub typical_output: u64,
    pub typical_result: u64,
}

impl ForecastReport {
    pub fn new(forecast: Forecast, cache_map: &[CacheStep]) -> Self {
        Self {
            cache_map: cache_map.iter().map(CacheStepReport::from).collect(),
            first: forecast.first.into(),
            typical: forecast.typical.into(),
            worst: forecast.worst.into(),
            turns: forecast.turns.into(),
            threads: forecast.threads.into(),
            prefix: PrefixReport { constant: forecast.prefix.constant, per_thread: forecast.prefix.per_thread },
            assumptions: AssumptionsReport {
                typical_turns: forecast::TYPICAL_TURNS,
                typical_output: forecast::TYPICAL_OUTPUT_TOKENS,
                typical_result: forecast::TYPICAL_RESULT_TOKENS,
            },
        }
    }
}

impl From<&CacheStep> for CacheStepReport {
    fn from(step: &CacheStep) -> Self {
        let end = step.ends_at.as_ref();
        Self {
            request: step.request.as_str().to_owned(),
            shared: step.shared,
            of: step.of,
            cost: step.cost.map(Nanos::to_json),
            uncached: step.uncached.map(Nanos::to_json),
            ends_at: end.map(|end| end.what.clone()),
            source: end.and_then(|end| end.place.as_ref()).map(SourceReport::from),
        }
    }
}

impl From<RunEstimate> for RunEstimateReport {
    fn from(estimate: RunEstimate) -> Self {
        Self {
            turns: estimate.turns,
            input: estimate.input,
            cached: estimate.cached,
            output: estimate.output,
            cost: estimate.cost.map(Nanos::to_json),
            stopped: estimate.stopped.as_str().to_owned(),
        }
    }
}

impl From<WorstCase> for WorstCaseReport {
    fn from(worst: WorstCase) -> Self {
        Self { cost: worst.cost.map(Nanos::to_json), set_by: worst.set_by.as_str().to_owned() }
    }
}

impl From<ThreadBound> for ThreadBoundReport {
    fn from(bound: ThreadBound) -> Self {
        Self { at_most: bound.threads, set_by: bound.set_by.as_str().to_owned() }
    }
}

impl From<TurnBounds> for TurnBoundsReport {
    fn from(TurnBounds { at_least, at_most, before_handoff }: TurnBounds) -> Self {
        let name = |limit: LimitName| limit.as_str().to_owned();
        Self {
            at_least: at_least.turns,
            at_least_set_by: name(at_least.set_by),
            at_most: at_most.map(|most| most.turns),
            at_most_set_by: at_most.map(|most| name(most.set_by)),
            before_handoff,
        }
    }
}
