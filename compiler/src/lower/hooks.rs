//! Hooks into the plan, each with what can be told of it before the run, and why (`language.md` 5, 7).

use rye_grammar::Sources;

use super::facts::Frame;
use super::origin;
use super::words::{by, list, shown};
use crate::compose::ComposedHook;
use crate::hook::{HookPoint, PlanVerdict, PlannedHook};
use crate::plan::Origins;
use crate::semantics::condition::{Condition, Found, Reading, Verdict};

/// The hooks of the plan in evaluation order, and the reason of each verdict in the same order.
pub fn lower(frame: &Frame<'_>, sources: &Sources, origins: &mut Origins) -> (Vec<PlannedHook>, Vec<String>) {
    let mut planned = Vec::new();
    let mut reasons = Vec::new();
    for hook in &frame.composed.hooks {
        let (verdict, because) = verdict(frame, hook);
        let Some(mut plan) = hook.planned() else { continue };
        plan.verdict = verdict;
        let key = format!("hook.{}", plan.id);
        if origins.get(&key).is_none() || plan.is_live() {
            origins.insert(key, origin::of(sources, &hook.origin));
        }
        planned.push(plan);
        reasons.push(because);
    }
    (planned, reasons)
}

/// What is known of a hook, and the reason in words.
pub fn verdict(frame: &Frame<'_>, hook: &ComposedHook) -> (PlanVerdict, String) {
    if let PlanVerdict::Removed { because } = &hook.verdict {
        return (hook.verdict.clone(), because.clone());
    }
    if let Some(by) = suppressed(frame, hook) {
        return (PlanVerdict::Removed { because: by.clone() }, by);
    }
    let Some(expr) = &hook.decl.condition else {
        return (PlanVerdict::Fires, "no condition".to_owned());
    };
    // Routing was decided while the chain was walked, before there was a model to compare with.
    if hook.decl.event == HookPoint::ResolveExtends {
        return (hook.verdict.clone(), words(&hook.verdict));
    }
    let Ok(condition) = Condition::compile(&expr.node) else {
        let because = "its condition is not valid".to_owned();
        return (PlanVerdict::Never { because: because.clone() }, because);
    };
    let facts = frame.at(hook.decl.event, &condition.paths());
    let (verdict, readings) = condition.evaluate_traced(&facts);
    match verdict {
        Verdict::True => (PlanVerdict::Fires, known(&readings, "the condition is always true")),
        Verdict::False => {
            let because = known(&readings, "the condition is always false");
            (PlanVerdict::Never { because: because.clone() }, because)
        }
        Verdict::Unknown(on) => {
            let because = format!("known at run: {}", list(&on));
            (PlanVerdict::Depends { on }, because)
        }
    }
}

/// Why a suppression takes this hook out: it names the hook, or the knowledge that the hook fetches.
fn suppressed(frame: &Frame<'_>, hook: &ComposedHook) -> Option<String> {
    let knowledge = hook.knowledge.as_ref().map(|k| k.file.id.as_str());
    let hit = |id: &str| id == hook.decl.id.node || Some(id) == knowledge;
    let suppression = frame.composed.suppressions.iter().find(|s| hit(&s.id))?;
    Some(format!("suppressed: {}", by(&suppression.origin)))
}

fn words(verdict: &PlanVerdict) -> String {
    match verdict {
        PlanVerdict::Fires => "the condition is true".to_owned(),
        PlanVerdict::Never { because } | PlanVerdict::Removed { because } => because.clone(),
        PlanVerdict::Depends { on } => format!("known at run: {}", list(on)),
    }
}

/// What the condition read: "`directive` is `deploy_staging`".
fn known(readings: &[Reading], otherwise: &str) -> String {
    let mut told: Vec<String> = Vec::new();
    for reading in readings {
        let path = &reading.path;
        let text = match &reading.found {
            Found::Value(value) => format!("`{path}` is `{}`", shown(value)),
            Found::Absent => format!("`{path}` is absent"),
            Found::Unknown => continue,
        };
        if !told.contains(&text) {
            told.push(text);
        }
    }
    if told.is_empty() { otherwise.to_owned() } else { told.join(", ") }
}
