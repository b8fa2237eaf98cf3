//! Two plans of one directive, compared: what a reviewer of the change has to know. Compares what `rye plan --format
//! json` prints, so that a plan from a file is as good as one compiled from a revision.

mod capabilities;
mod context;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::render::json::{CourseReport, PlanReport, SourceReport, VerdictReport};
pub use capabilities::{CapabilityChange, Direction};
pub use context::{PartChange, PrefixChange};

/// What a change does to a plan. One side is missing where the directive is new or gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanDiff {
    pub directive: String,
    pub before: Option<String>,
    pub after: Option<String>,
    /// True where the directive may do or spend more than before.
    pub widened: bool,
    /// The first request's tokens.
    pub tokens: Pair<u64>,
    /// Layers and tools, in the order of the new plan, then what is gone.
    pub parts: Vec<PartChange>,
    pub prefix: PrefixChange,
    pub capabilities: Vec<CapabilityChange>,
    pub hooks: Vec<HookChange>,
    pub limits: Vec<LimitChange>,
    pub model: Option<Pair<String>>,
    /// Parents, root first.
    pub chain: Option<Pair<Vec<String>>>,
    pub cost: CostChange,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pair<T> {
    pub before: T,
    pub after: T,
}

/// A hook that is there on one side only, or of which something else is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HookChange {
    pub id: String,
    pub event: String,
    pub before: Option<VerdictReport>,
    pub after: Option<VerdictReport>,
    /// It could not fire, and now it can.
    pub newly_reachable: bool,
    pub source: Option<SourceReport>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitChange {
    pub name: String,
    /// Dollars for `spend`.
    pub before: Option<Value>,
    pub after: Option<Value>,
    pub raised: bool,
    pub source: Option<SourceReport>,
}

/// Dollars; null where a side is missing or has no price.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostChange {
    pub first: Pair<Option<Value>>,
    pub typical: Pair<Option<Value>>,
    pub worst: Pair<Option<Value>>,
}

impl PlanDiff {
    /// Whether the two plans are the same bytes.
    pub fn is_empty(&self) -> bool {
        self.before == self.after
    }
}

/// Compares two plans; `None` stands for a directive that is not there.
pub fn diff(before: Option<&PlanReport>, after: Option<&PlanReport>) -> PlanDiff {
    let directive = after.or(before).map(|plan| plan.directive.clone()).unwrap_or_default();
    let input = |plan: Option<&PlanReport>| plan.map_or(0, |p| p.tokens.input);
    let capabilities = capabilities::changes(before, after);
    let hooks = hooks(before, after);
    let limits = limits(before, after);
    let wider = capabilities.iter().any(|change| change.direction == Direction::Widened);
    let cost = |of: fn(&PlanReport) -> &CourseReport| Pair {
        before: before.and_then(|plan| of(plan).cost.clone()),
        after: after.and_then(|plan| of(plan).cost.clone()),
    };
    PlanDiff {
        directive,
        before: before.map(|plan| plan.plan_id.clone()),
        after: after.map(|plan| plan.plan_id.clone()),
        // A directive that is new has no limits to raise; what it may do is what it is about.
        widened: wider || limits.iter().any(|limit| limit.raised),
        tokens: Pair { before: input(before), after: input(after) },
        parts: context::parts(before, after),
        prefix: context::prefix(before, after),
        capabilities,
        hooks,
        limits,
        model: changed(before, after, |plan| format!("{}/{}", plan.model.provider, plan.model.id)),
        chain: changed(before, after, |plan| plan.chain.clone()),
        cost: CostChange {
            first: cost(|plan| &plan.cost.first),
            typical: cost(|plan| &plan.cost.typical),
            worst: cost(|plan| &plan.cost.worst),
        },
    }
}

fn changed<T: PartialEq>(
    before: Option<&PlanReport>,
    after: Option<&PlanReport>,
    of: impl Fn(&PlanReport) -> T,
) -> Option<Pair<T>> {
    let (before, after) = (of(before?), of(after?));
    (before != after).then_some(Pair { before, after })
}

fn hooks(before: Option<&PlanReport>, after: Option<&PlanReport>) -> Vec<HookChange> {
    let all = |plan: Option<&PlanReport>| plan.map(|p| p.hooks.clone()).unwrap_or_default();
    let (old, new) = (all(before), all(after));
    let lives = |verdict: Option<VerdictReport>| matches!(verdict, Some(VerdictReport::Fires | VerdictReport::Depends));
    let mut changes = Vec::new();
    for hook in &new {
        let was = old.iter().find(|h| h.id == hook.id && h.event == hook.event).map(|h| h.verdict);
        if was != Some(hook.verdict) {
            changes.push(HookChange {
                id: hook.id.clone(),
                event: hook.event.clone(),
                before: was,
                after: Some(hook.verdict),
                newly_reachable: lives(Some(hook.verdict)) && !lives(was),
                source: hook.source.clone(),
            });
        }
    }
    for hook in old.iter().filter(|h| !new.iter().any(|n| n.id == h.id && n.event == h.event)) {
        changes.push(HookChange {
            id: hook.id.clone(),
            event: hook.event.clone(),
            before: Some(hook.verdict),
            after: None,
            newly_reachable: false,
            source: hook.source.clone(),
        });
    }
    changes
}

fn limits(before: Option<&PlanReport>, after: Option<&PlanReport>) -> Vec<LimitChange> {
    let (Some(before), Some(after)) = (before, after) else { return Vec::new() };
    let mut changes = Vec::new();
    for (name, limit) in &after.limits {
        let was = before.limits.get(name).map(|limit| limit.value.clone());
        if was.as_ref() != Some(&limit.value) {
            let number = |value: &Value| value.as_f64().unwrap_or(f64::INFINITY);
            changes.push(LimitChange {
                name: name.clone(),
                raised: was.as_ref().is_some_and(|was| number(&limit.value) > number(was)),
                before: was,
                after: Some(limit.value.clone()),
                source: limit.source.clone(),
            });
        }
    }
    changes
}

#[cfg(test)]
mod tests;
