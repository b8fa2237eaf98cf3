//! Hooks of the plan, each with its verdict before the run and the reason (`language.md`, Conditions and Hooks).

use rye_grammar::Sources;

use super::facts::PlanTimeFacts;
use super::origin;
use super::phrases::{format_value, quote_list};
use crate::compose::ComposedHook;
use crate::hook::{HookPoint, PlanVerdict, PlannedHook};
use crate::plan::{Origin, OriginCause, Origins, SourcePlace};
use crate::semantics::condition::{FactReading, ReadingResult, Verdict};

/// The explanation of a planned hook: the reason for its verdict, and its source location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookTrace {
    pub because: String,
    pub place: Option<SourcePlace>,
}

/// Returns the hooks of the plan in evaluation order, each with the explanation of its verdict. `commands` are the
/// commands of a chat, in the form of hooks.
pub fn lower(
    frame: &PlanTimeFacts<'_>,
    commands: &[ComposedHook],
    sources: &Sources,
    origins: &mut Origins,
) -> (Vec<PlannedHook>, Vec<HookTrace>) {
    let mut planned = Vec::new();
    let mut traces = Vec::new();
    for hook in frame.composed.hooks.iter().chain(commands) {
        let (verdict, because) = explain_verdict(frame, hook);
        // A disabled hook without an action is not planned.
        let Some(mut plan) = hook.to_planned() else { continue };
        plan.verdict = verdict;
        let origin = origin::plan_origin(sources, &hook.origin());
        traces.push(HookTrace { because, place: origin.place.clone() });
        let key = format!("hook.{}", plan.id);
        if origins.get(&key).is_none() || plan.is_live() {
            origins.insert(key, Origin { cause: OriginCause::HookSource(plan.source.clone()), ..origin });
        }
        planned.push(plan);
    }
    (planned, traces)
}

/// Returns the verdict of a hook, and the reason as text.
pub(crate) fn explain_verdict(frame: &PlanTimeFacts<'_>, hook: &ComposedHook) -> (PlanVerdict, String) {
    if let PlanVerdict::Removed { because } = &hook.verdict {
        return (hook.verdict.clone(), because.clone());
    }
    if hook.decl.condition.is_none() {
        return (PlanVerdict::Fires, "no condition".to_owned());
    }
    // The reader of hooks drops a hook whose condition does not compile, so every condition here is compiled.
    let Some(condition) = &hook.decl.compiled else {
        return (hook.verdict.clone(), describe_verdict(&hook.verdict));
    };
    let facts = frame.facts_at(hook.decl.event, &condition.paths());
    let (verdict, readings) = condition.evaluate_traced(&facts);
    let (verdict, because) = match verdict {
        Verdict::True => (PlanVerdict::Fires, describe_readings(&readings, "the condition is always true")),
        Verdict::False => {
            let because = describe_readings(&readings, "the condition is always false");
            (PlanVerdict::Never { because: because.clone() }, because)
        }
        Verdict::Unknown(on) => {
            let because = describe_unknown_paths(&on);
            (PlanVerdict::Depends { on }, because)
        }
    };
    // Routing was decided during composition with the facts known then; keep that verdict instead of evaluating again.
    if hook.decl.event == HookPoint::ResolveExtends && !is_same_variant(&verdict, &hook.verdict) {
        return (hook.verdict.clone(), describe_verdict(&hook.verdict));
    }
    (verdict, because)
}

fn is_same_variant(a: &PlanVerdict, b: &PlanVerdict) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

fn describe_unknown_paths(on: &[String]) -> String {
    format!("depends on {}", quote_list(on))
}

fn describe_verdict(verdict: &PlanVerdict) -> String {
    match verdict {
        PlanVerdict::Fires => "the condition is true".to_owned(),
        PlanVerdict::Never { because } | PlanVerdict::Removed { because } => because.clone(),
        PlanVerdict::Depends { on } => describe_unknown_paths(on),
    }
}

/// Describes the facts that the condition read: "`directive` is `deploy_staging`". Returns `otherwise` if the condition
/// read no fact, or only facts that are unknown before the run.
fn describe_readings(readings: &[FactReading], otherwise: &str) -> String {
    let mut texts: Vec<String> = Vec::new();
    for reading in readings {
        let path = &reading.path;
        let text = match &reading.found {
            ReadingResult::Value(value) => format!("`{path}` is `{}`", format_value(value)),
            ReadingResult::Absent => format!("`{path}` is absent"),
            ReadingResult::Unknown => continue,
        };
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    if texts.is_empty() { otherwise.to_owned() } else { texts.join(", ") }
}
