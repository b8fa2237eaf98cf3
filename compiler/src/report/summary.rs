//! The summary of a plan: five lines with model, costs, turns, access and the difference from the lock. A sixth line
//! lists the missing inputs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::compile::Compilation;
use crate::plan::{InterfaceField, Plan};
use crate::report::access::{PlanAccess, collect_access};
use crate::report::forecast::{Forecast, RunEstimate};
use crate::report::intake::{IntakeEntry, collect_intake};
use crate::report::lock::{Drift, Lock, LockMismatch, check_plan};
use crate::report::omissions::OmittedTokens;
use crate::report::render::table::group_thousands;
use crate::report::render::text::round_dollars;
use crate::report::render::view;
use crate::report::run_bounds::CostBound;
use crate::semantics::money::Nanos;
use crate::world::{World, WorldError};

/// Width of a line of the summary, in characters, without its label.
const LINE_CHARS: usize = 51;

/// The summary of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanSummary {
    /// Provider and id of the model.
    pub model: String,
    /// Provider and id of the fallback; null if the model has none.
    pub fallback: Option<String>,
    /// Costs in dollars; null if no model has a price and the plan starts no other thread.
    pub cost: Option<SummaryCost>,
    /// The part of the plan that sets the worst-case cost, as in `cost.worst.set_by`: `spend`, `prices` or `raise`.
    #[serde(default)]
    pub worst_set_by: String,
    /// Number of model calls: the limit, and the bounds and the estimate for a run.
    pub turns: SummaryTurns,
    /// The access of the thread.
    pub access: PlanAccess,
    /// The comparison with the lock file.
    pub lock: LockComparison,
    /// Names of required inputs without a value; without them, the directive cannot run.
    #[serde(default)]
    pub missing_inputs: Vec<String>,
    /// The intake of the messages of a chat, in the order of its stages; empty for a run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intake: Vec<IntakeEntry>,
    /// The state of each trust requirement of the plan, true if it is trusted; null if the states are unknown.
    #[serde(skip)]
    pub trusted: Option<Vec<bool>>,
    /// Token estimates of the omitted items, for the plan's list of omissions.
    #[serde(skip)]
    pub omitted_tokens: OmittedTokens,
}

/// Exact costs of a run, in dollars.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SummaryCost {
    /// Upper bound on the cost of the first request; null if the model has no price.
    pub first: Option<Value>,
    /// Estimate of the cost of a typical run; null if the model has no price.
    pub typical: Option<Value>,
    /// Upper bound on the cost of every run; null if nothing bounds the cost.
    pub worst: Option<Value>,
    /// Parts of the first request whose size only a run knows; `first` and `typical` do not include them.
    #[serde(default)]
    pub unbounded: Vec<String>,
}

/// Model calls of a run: the limit, bounds for every run, and the number in a typical run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SummaryTurns {
    /// The value of the limit `turns`.
    pub limit: u64,
    /// Lower bound, 0 or 1, on the turns that a run with the planned prompt can start before a limit stops it. A turn
    /// starts with its first call, which may fail.
    #[serde(default)]
    pub at_least: u64,
    /// Upper bound on the turns of every run; null if hooks may raise every limit that bounds them.
    pub at_most: Option<u64>,
    /// The limit that sets `at_most`; null if `at_most` is null.
    pub at_most_set_by: Option<String>,
    /// The highest value that the limit `turns` can have before the first handoff, if this value is below `at_most`;
    /// else null. Null also if only a run knows the value to which a hook raises the limit.
    #[serde(default)]
    pub before_handoff: Option<u64>,
    /// Number of turns of a typical run.
    pub typical: u64,
}

/// The comparison of a plan with the lock file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LockComparison {
    /// Result of the comparison.
    pub state: LockState,
    /// The parts of the plan that differ from the lock file.
    pub drift: Vec<Drift>,
}

/// Result of the comparison with the lock file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LockState {
    /// There is no lock file, or it has no entry for the directive.
    NotLocked,
    /// The plan matches the lock.
    Matches,
    /// The plan differs from the lock.
    Differs,
    /// The plans for the comparison cannot be compiled: the directive has errors for some inputs, or has too many
    /// contexts.
    NotComparable,
}

impl PlanSummary {
    /// Summarizes a plan. `lock` is the lock file of the project; `None` if the plan is not compared with a lock file.
    ///
    /// # Errors
    /// The list of directives cannot be read.
    pub fn new(world: &dyn World, lock: Option<&Lock>, compilation: &Compilation) -> Result<Self, WorldError> {
        let plan = &compilation.plan;
        let (system, first, _) = view::view_prompt(plan, &compilation.origins);
        let forecast = plan.forecast(&plan.count_viewed_tokens(&system, &first));
        let named = |model: &crate::plan::PlannedModel| format!("{}/{}", model.provider, model.id);
        Ok(Self {
            model: named(&plan.model),
            fallback: plan.model.fallback.as_deref().map(named),
            cost: SummaryCost::new(&forecast, plan.unbounded_parts(&system, &first)),
            worst_set_by: forecast.worst.set_by.as_str().to_owned(),
            turns: SummaryTurns {
                limit: plan.limits.turns,
                at_least: forecast.turns.at_least.turns,
                at_most: forecast.turns.at_most.map(|most| most.turns),
                at_most_set_by: forecast.turns.at_most.map(|most| most.set_by.as_str().to_owned()),
                before_handoff: forecast.turns.before_handoff,
                typical: forecast.typical.turns,
            },
            access: collect_access(world, plan)?,
            lock: LockComparison::new(world, lock, compilation),
            missing_inputs: missing_inputs(plan),
            intake: collect_intake(world, compilation),
            trusted: None,
            omitted_tokens: OmittedTokens::estimate(world, compilation),
        })
    }

    /// Returns the five lines, each as label and text, and a sixth line if required inputs have no value. No line is
    /// wider than a terminal of 60 columns, except for names that are longer themselves.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![
            ("model", self.model_line()),
            ("cost", self.cost_line()),
            ("turns", self.turns_line()),
            ("may", self.access.line()),
            ("lock", self.lock.line()),
        ];
        if !self.missing_inputs.is_empty() {
            lines.push(("inputs", format!("missing: {}", shorten(&self.missing_inputs, LINE_CHARS - 9))));
        }
        lines
    }

    fn model_line(&self) -> String {
        let Some(fallback) = &self.fallback else { return self.model.clone() };
        let whole = format!("{}, fallback {fallback}", self.model);
        if whole.chars().count() <= LINE_CHARS { whole } else { format!("{}, with fallback", self.model) }
    }

    fn cost_line(&self) -> String {
        let Some(cost) = &self.cost else { return "unknown: the provider file states no prices".to_owned() };
        let dollars = |amount: &Value| Nanos::from_json(amount).map(round_dollars).unwrap_or_default();
        let worst = cost.worst.as_ref().map_or_else(|| "unlimited".to_owned(), dollars);
        let own = match cost.first.as_ref().zip(cost.typical.as_ref()) {
            Some((first, typical)) if cost.unbounded.is_empty() => {
                format!("first ≤ {} · typical {}", dollars(first), dollars(typical))
            }
            // The cost is no upper bound: it leaves out the parts of unknown size that the section `First request`
            // lists.
            Some((first, typical)) => format!("first {}+ · typical {}+", dollars(first), dollars(typical)),
            None => "model without prices".to_owned(),
        };
        let whole = format!("{own} · worst {worst}");
        let named = format!("{whole} ({})", self.worst_set_by);
        if named.chars().count() <= LINE_CHARS { named } else { whole }
    }

    fn turns_line(&self) -> String {
        let SummaryTurns { at_least, at_most, at_most_set_by, before_handoff, typical, .. } = &self.turns;
        // The model may end the run after one turn, even if the limits allow more turns.
        let (least, typical) = (at_least.min(&1), group_thousands(*typical));
        let all = match at_most.zip(at_most_set_by.as_ref()) {
            Some((most, by)) => format!("{least} to {} (limit `{by}`)", group_thousands(most)),
            None => format!("at least {least} (a hook may raise limits)"),
        };
        match before_handoff {
            Some(turns) => format!(
                "{least} to {} before a handoff, {} in all · typical {typical}",
                group_thousands(*turns),
                all.strip_prefix(&format!("{least} to "))
                    .map_or_else(|| "without a bound".to_owned(), |most| format!("up to {most}"))
            ),
            None => format!("{all} · typical {typical}"),
        }
    }
}

impl SummaryCost {
    fn new(forecast: &Forecast, unbounded: Vec<String>) -> Option<Self> {
        let cost = |run: &RunEstimate| run.cost.map(Nanos::to_json);
        let worst = forecast.worst;
        let is_priced = worst.cost.is_some() || worst.set_by == CostBound::Raise;
        let (first, typical) = (cost(&forecast.first), cost(&forecast.typical));
        is_priced.then(|| Self { first, typical, worst: worst.cost.map(Nanos::to_json), unbounded })
    }
}

impl LockComparison {
    fn new(world: &dyn World, lock: Option<&Lock>, compilation: &Compilation) -> Self {
        let none = |state| Self { state, drift: Vec::new() };
        let Some(lock) = lock else { return none(LockState::NotLocked) };
        match check_plan(world, lock, &compilation.plan) {
            Ok(()) => none(LockState::Matches),
            Err(LockMismatch::NotLocked) => none(LockState::NotLocked),
            Err(LockMismatch::NoPlan(_)) => none(LockState::NotComparable),
            Err(LockMismatch::Drifted(drift)) => Self { state: LockState::Differs, drift },
        }
    }

    fn line(&self) -> String {
        match self.state {
            LockState::NotLocked => "not locked".to_owned(),
            LockState::Matches => "matches the lock".to_owned(),
            LockState::NotComparable => "not comparable: some combinations of inputs have no plan".to_owned(),
            LockState::Differs => {
                let named = |one: &Drift| format!("{} {}", one.what, one.how);
                format!("differs: {}", shorten(&self.drift.iter().map(named).collect::<Vec<_>>(), LINE_CHARS - 9))
            }
        }
    }
}

impl PlanAccess {
    /// Returns four lists: the folders that the thread can write, the tools that it can run, the hosts that it can
    /// reach and the directives that it can start. Each list comes with its verb (`write`) and a plural noun for its
    /// entries (`places`).
    pub fn lists(&self) -> [(&'static str, &'static str, &[String]); 4] {
        [
            ("write", "places", &self.write),
            ("run", "tools", &self.run),
            ("reach", "hosts", &self.reach),
            ("start", "directives", &self.start),
        ]
    }

    /// Formats the access on one line. If the line is too long, shows the number of entries in place of the names, for
    /// the longest lists first. The section *Access* names all entries.
    fn line(&self) -> String {
        let lists: Vec<_> = self.lists().into_iter().filter(|(_, _, names)| !names.is_empty()).collect();
        if lists.is_empty() {
            return "write, run, reach and start nothing".to_owned();
        }
        let mut parts: Vec<String> =
            lists.iter().map(|(verb, _, names)| format!("{verb} {}", names.join(", "))).collect();
        while parts.join(" · ").chars().count() > LINE_CHARS {
            let counted = lists.iter().map(|(verb, plural, names)| match names.len() {
                1 => format!("{verb} 1 {}", plural.trim_end_matches('s')),
                count => format!("{verb} {count} {plural}"),
            });
            let saved = parts.iter().zip(counted).enumerate().filter(|(_, (part, counted))| counted.len() < part.len());
            let Some((at, (_, counted))) = saved.max_by_key(|(_, (part, _))| part.len()) else { break };
            if let Some(part) = parts.get_mut(at) {
                *part = counted;
            }
        }
        parts.join(" · ")
    }
}

/// Joins as many names as fit into `max_chars`, at least one, and adds the number of the names that do not fit.
fn shorten(names: &[String], max_chars: usize) -> String {
    let joined = |count: usize| {
        let shown = names.iter().take(count).cloned().collect::<Vec<_>>().join(", ");
        let more = names.len().saturating_sub(count);
        if more == 0 { shown } else { format!("{shown}, {more} more") }
    };
    let fits = (1..=names.len()).rev().map(joined).find(|text| text.chars().count() <= max_chars);
    fits.unwrap_or_else(|| joined(1))
}

/// Returns the names of the required inputs that have neither a value nor a default.
fn missing_inputs(plan: &Plan) -> Vec<String> {
    let interface = &plan.interface;
    let is_missing = |name: &str, field: &InterfaceField| {
        field.required && field.default.is_none() && !interface.values.contains_key(name)
    };
    interface
        .inputs
        .iter()
        .filter(|(name, field)| is_missing(name, field))
        .map(|(name, _)| format!("`{name}`"))
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn amounts_are_rounded_up_to_four_decimals_and_four_significant_digits() {
        for (amount, shown) in [
            ("0", "$0.00"),
            ("0.5", "$0.50"),
            ("0.3812025", "$0.3813"),
            ("0.02357625", "$0.0236"),
            ("12.00001", "$12.01"),
            ("12345.6", "$12350.00"),
            ("0.00001234", "$0.000013"),
            ("0.000000001", "$0.000000001"),
        ] {
            assert_eq!(round_dollars(Nanos::parse(amount).unwrap()), shown);
        }
    }

    #[test]
    fn access_line_counts_the_longest_list_first() {
        let short = PlanAccess { write: names(&["out/"]), run: names(&["rye/bash/bash"]), ..PlanAccess::default() };
        assert_eq!(short.line(), "write out/ · run rye/bash/bash");
        let tools = names(&["rye/bash/bash", "rye/git/diff", "rye/git/log", "rye/git/show"]);
        let hosts = names(&["a.test", "b.test"]);
        let long = PlanAccess { run: tools, reach: hosts, ..short };
        assert_eq!(long.line(), "write out/ · run 4 tools · reach a.test, b.test");
        let none = PlanAccess::default().line();
        assert!(none.starts_with("write, run, reach") && none.chars().count() <= LINE_CHARS, "{none}");
    }

    #[test]
    fn drift_line_counts_what_does_not_fit() {
        let what = names(&["knowledge a/b (project) changed", "tool x new", "tool y new", "limits changed"]);
        assert_eq!(shorten(&what, 42), "knowledge a/b (project) changed, 3 more");
        assert_eq!(shorten(&what[..1], 10), "knowledge a/b (project) changed");
    }
}
