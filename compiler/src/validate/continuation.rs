//! Checks of continuations (`language.md` 7 and 8; `engine.md` 3). Reports knowledge that is lost when a thread
//! continues in a new thread: a `thread_started` hook adds the knowledge, and no `thread_continued` hook adds it again.
//! Also reports token ceilings that are too small or too large.

use std::collections::BTreeMap;

use rye_grammar::data::{Kind, Node};
use rye_grammar::{ItemId, Span};

use crate::compose::{Composed, ComposedHook};
use crate::diagnostics::{ContextError, Diagnostics, InterfaceError};
use crate::hook::{HookAction, HookPoint};
use crate::item::Items;
use crate::plan::PlannedModel;
use crate::semantics::glob::{Coverage, covers};
use crate::semantics::limits::Limits;
use crate::world::Space;

use super::capability::is_trivially_covered;
use super::incremental::Merge;
use super::is_in_project;

/// Knowledge that a continuation would lose, by the span of the hook that provides it. Each entry holds the hook's id,
/// the id of the knowledge, and the first directive that would lose the knowledge.
#[derive(Default)]
pub struct LostKnowledge {
    lost: BTreeMap<Span, (String, ItemId, ItemId)>,
    /// The smallest context window among the directives' models; `None` before the first directive.
    window: Option<SmallestWindow>,
    /// True if a directive or a hook has a grant, so that messages can contain results of calls.
    has_results: bool,
}

/// The size in tokens of a context window, and the model that has it.
#[derive(Clone)]
struct SmallestWindow {
    tokens: u64,
    model: String,
    provider: String,
}

/// The settings of continuations, from `coordination` and `resilience`.
#[derive(Debug)]
pub struct ContinuationSettings {
    threshold: f64,
    ceiling: Option<(u64, Span)>,
    result_bytes: u64,
}

impl ContinuationSettings {
    pub fn read(items: &Items<'_>) -> Self {
        let coordination = items.config_by_name("agent/coordination");
        let continuation = coordination.as_ref().and_then(|c| c.get("continuation"));
        let number = |node: Option<&Node>| match node.map(|n| &n.kind) {
            Some(Kind::Number(number)) => Some(number.clone()),
            Some(Kind::Null | Kind::Bool(_) | Kind::String(_) | Kind::List(_) | Kind::Map(_)) | None => None,
        };
        let ceiling = continuation.and_then(|c| c.get("resume_ceiling_tokens"));
        let resilience = items.config_by_name("agent/resilience");
        let result = resilience.as_ref().and_then(|r| r.get("tool_result")).and_then(|r| r.get("max_bytes"));
        Self {
            threshold: number(continuation.and_then(|c| c.get("trigger_threshold")))
                .and_then(|n| n.as_f64())
                .filter(|t| *t > 0.0 && *t <= 1.0)
                .unwrap_or(0.9),
            ceiling: number(ceiling).and_then(|n| n.as_u64()).zip(ceiling.map(|c| c.span)),
            result_bytes: number(result).and_then(|n| n.as_u64()).unwrap_or(32_768),
        }
    }

    /// Returns the number of tokens of a context window that a thread can fill before it continues in a new thread,
    /// rounded down.
    fn usable_tokens(&self, window: u64) -> u64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a window is far below 2^53, and the threshold lies between 0 and 1"
        )]
        let full = (window as f64 * self.threshold) as u64;
        full
    }
}

impl LostKnowledge {
    /// Records the knowledge that a continuation of the directive would lose. Skips a directive whose token limit is
    /// reached before the context window is full, because its threads never continue.
    pub fn add(&mut self, composed: &Composed, limits: &Limits, model: &PlannedModel, settings: &ContinuationSettings) {
        let tokens_of_window = model.context_window;
        let never_continues = limits.tokens < settings.usable_tokens(model.context_window);
        if self.window.as_ref().is_none_or(|window| model.context_window < window.tokens) {
            let (model, provider) = (model.id.clone(), model.provider.clone());
            self.window = Some(SmallestWindow { tokens: tokens_of_window, model, provider });
        }
        let mut hooks = composed.hooks.iter().filter(|hook| hook.is_live());
        let has_grants = composed.permissions.as_ref().is_some_and(|declared| !declared.value.grants.is_empty());
        self.has_results |= has_grants || hooks.any(|hook| !hook.decl.grants.is_empty());
        let brings =
            |hook: &&ComposedHook| hook.decl.event == HookPoint::ThreadStarted && hook.decl.space == Space::Project;
        let mut hooks = composed.hooks.iter().filter(|h| h.is_live()).filter(brings).peekable();
        if hooks.peek().is_none() || hooks.clone().all(|h| self.lost.contains_key(&h.decl.span)) || never_continues {
            return;
        }
        let again: Vec<&ComposedHook> =
            composed.hooks.iter().filter(|h| h.is_live() && h.decl.event == HookPoint::ThreadContinued).collect();
        // An executed item, or a templated id, may restore anything.
        let anything = again.iter().any(|h| {
            !h.decl.has_static_id()
                || matches!(h.decl.action.as_ref().map(|a| &a.node), Some(HookAction::Execute { .. }))
        });
        for hook in hooks.filter(|_| !anything) {
            let Some(id) = &hook.decl.fetched else { continue };
            let restored = again.iter().any(|h| h.decl.fetched.as_ref() == Some(id))
                || composed.system.iter().any(|item| item.id == *id);
            if !restored {
                let entry = || (hook.decl.id.node.clone(), id.clone(), composed.id.clone());
                self.lost.entry(hook.decl.span).or_insert_with(entry);
            }
        }
    }

    pub fn report_lost(self, items: &Items<'_>, settings: &ContinuationSettings, found: &mut Diagnostics) {
        for (span, (hook, item, directive)) in &self.lost {
            let (hook, item, directive) = (hook.clone(), item.to_string(), directive.to_string());
            found.push(ContextError::NotRestored { hook, item, directive, span: *span });
        }
        let Some((ceiling, span)) = settings.ceiling else { return };
        // Without a granted call, a thread has no results.
        let result = if self.has_results { settings.result_bytes.div_ceil(4) } else { 1 };
        let full = self.window.as_ref().map(|window| (settings.usable_tokens(window.tokens), &window.model));
        if let Some(because) = ceiling_fix(ceiling, result, full) {
            // A setting of the standard library has no place in the project, but the window that is too small has one.
            let is_too_high = full.is_some_and(|(full, _)| ceiling >= full);
            let place = self.window.filter(|_| is_too_high && !is_in_project(items, span));
            let window = place.and_then(|window| window_span(items, &window));
            found.push(ContextError::Ceiling { tokens: ceiling, because, window, span });
        }
    }
}

/// Returns the span of the size of a context window in the provider file of the project; `None` if another space has
/// the file.
fn window_span(items: &Items<'_>, window: &SmallestWindow) -> Option<Span> {
    let file = items.config_by_name(&format!("agent/providers/{}", window.provider))?;
    let is_model = |entry: &&Node| entry.get("id").and_then(Node::as_str) == Some(&window.model);
    let entry = file.get("models")?.items().iter().find(is_model)?;
    Some(entry.get("context_window")?.span).filter(|span| is_in_project(items, *span))
}

/// Returns how to correct the setting `resume_ceiling_tokens`, whose value is `ceiling`; `None` if the value works. The
/// value is too low if one tool result of `result` tokens does not fit. It is too high if a continuation with this many
/// tokens would fill the smallest context window: `full` contains the number of tokens at which this window is full,
/// and the id of its model.
fn ceiling_fix(ceiling: u64, result: u64, full: Option<(u64, &String)>) -> Option<String> {
    const CEILING: &str = "continuation: { resume_ceiling_tokens: ";
    const COORDINATION: &str = "`.ai/config/agent/coordination.yaml`";
    const RESILIENCE: &str = "`.ai/config/agent/resilience.yaml`";
    let is_too_low = ceiling < result;
    let why_low = format!("one tool result may have {result} tokens, and turns are never split");
    let Some((full, model)) = full else {
        return is_too_low.then(|| format!("write `{CEILING}{result} }}` or more in {COORDINATION}: {why_low}"));
    };
    let is_too_high = ceiling >= full;
    let why_high = format!(
        "the context of `{model}` is full at {full} tokens, so a continuation with as many tokens would need another handoff at once"
    );
    match (is_too_low, is_too_high) {
        (false, false) => None,
        // A ceiling from `result` up to, but not including, `full` works.
        (true, _) if result < full => {
            Some(format!("write `{CEILING}{result} }}` or more, but less than {full}, in {COORDINATION}: {why_low}"))
        }
        (_, true) if result < full => {
            let less = full.saturating_sub(1);
            Some(format!("write `{CEILING}{less} }}` or less, but at least {result}, in {COORDINATION}: {why_high}"))
        }
        // The ceiling fits the window, but a result can be larger than the window.
        (_, false) => Some(format!(
            "write `tool_result: {{ max_bytes: {} }}` or less in {RESILIENCE}: {why_low}",
            ceiling.saturating_mul(4)
        )),
        (_, true) => {
            let half = full / 2;
            Some(format!(
                "write `{CEILING}{half} }}` in {COORDINATION} and `tool_result: {{ max_bytes: {} }}` in {RESILIENCE}: \
                 {why_high}, and one tool result may have {result} tokens",
                half.saturating_mul(4)
            ))
        }
    }
}

/// Reports declarations of a continuation directive that have no effect: required inputs that the thread does not have,
/// and grants beyond those of the thread. A continuation keeps the plan and the inputs of its thread.
pub fn check_target(items: &Items<'_>, composed: &Composed, found: &mut Diagnostics) {
    let Some(leaf) = composed.leaf() else { return };
    let Some(named) = leaf.continuation.as_ref().filter(|named| named.node != composed.id) else { return };
    let Some(target) = items.directive(&named.node) else { return };
    for field in target.inputs.values().filter(|field| field.required && field.default.is_none()) {
        if !composed.inputs.contains_key(&field.name.node) {
            found.push(InterfaceError::ContinuationInput {
                name: field.name.node.clone(),
                directive: composed.id.to_string(),
                continuation: target.id().to_string(),
                declared: field.span,
                used: named.span,
            });
        }
    }
    let (Some(own), Some(granted)) = (&composed.permissions, &target.permissions) else { return };
    let beyond = granted.grants.iter().find(|grant| {
        let held = || own.value.grants.iter().map(|grant| grant.pattern.0.as_str()).collect::<Vec<_>>();
        !is_trivially_covered(&own.value, &grant.pattern.0) && covers(&held(), &grant.pattern.0) != Coverage::Covered
    });
    if let Some(grant) = beyond {
        found.push(ContextError::ContinuationGrants {
            directive: composed.id.to_string(),
            continuation: target.id().to_string(),
            pattern: grant.pattern.0.clone(),
            span: named.span,
            granted: grant.span,
        });
    }
}

impl Merge for LostKnowledge {
    fn merge(&mut self, other: &Self) {
        for (span, lost) in &other.lost {
            self.lost.entry(*span).or_insert_with(|| lost.clone());
        }
        self.has_results |= other.has_results;
        if let Some(window) = &other.window
            && self.window.as_ref().is_none_or(|known| window.tokens < known.tokens)
        {
            self.window = Some(window.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the first values of `resume_ceiling_tokens` and `max_bytes` that a fix names.
    fn named_values(fix: &str) -> (Option<u64>, Option<u64>) {
        let number = |key: &str| {
            let (_, rest) = fix.split_once(key)?;
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        (number("resume_ceiling_tokens: "), number("max_bytes: "))
    }

    #[test]
    fn values_that_a_fix_names_need_no_further_fix() {
        let model = "m".to_owned();
        for full in [None, Some(2), Some(5400), Some(8192), Some(8193), Some(100_000)] {
            let full = full.map(|full| (full, &model));
            for result in [1, 250, 8192] {
                for ceiling in [1, 1000, 5000, 5400, 8192, 16_000, 200_000] {
                    let Some(fix) = ceiling_fix(ceiling, result, full) else { continue };
                    let (new, bytes) = named_values(&fix);
                    let (new, result) = (new.unwrap_or(ceiling), bytes.map_or(result, |bytes| bytes.div_ceil(4)));
                    assert_eq!(ceiling_fix(new, result, full), None, "{ceiling}: {fix}");
                }
            }
        }
        assert_eq!(ceiling_fix(16_000, 8192, Some((100_000, &model))), None);
    }
}
