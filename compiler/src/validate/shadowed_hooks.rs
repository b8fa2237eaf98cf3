//! Reports hooks of a hook file or of a directive that never take effect, because an earlier hook of the same event
//! answers first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rye_grammar::Span;
use rye_grammar::condition::{CompareOp, Expr, ExprKind, Path};
use serde_json::Value;

use super::hook_use::implies;
use crate::diagnostics::{Diagnostics, HookError};
use crate::hook::{HookAction, HookPoint};
use crate::item::{Directive, HookDecl, HookFiles};
use crate::resolve::KnownFacts;
use crate::semantics::condition::{Domain, Fuel, Verdict};
use crate::semantics::hook_point::{self, Mode};
use crate::semantics::hook_table;
use crate::world::Space;

/// Maximum number of proofs that the condition of a hook implies the condition of an earlier hook. Bounds the time for
/// a file with thousands of hooks on one event.
const MAX_SHADOWING_PROOFS: usize = 500;

/// Returns true if a proof shows that the condition of `hook` is true only if the condition of `by` is true. `proofs`
/// is the number of proofs that may still be tried; at 0, returns false.
fn is_narrower(hook: &HookDecl, by: &HookDecl, proofs: &mut usize) -> bool {
    let (Some(own), Some(other)) = (&hook.compiled, &by.compiled) else { return false };
    // A condition about facts that the hook does not read is rarely implied, so no proof is tried.
    let is_comparable = hook.id.node != by.id.node
        && hook.space == Space::Project
        && other.roots().all(|root| own.roots().any(|known| known == root));
    if !is_comparable || *proofs == 0 {
        return false;
    }
    *proofs -= 1;
    implies(hook, by) || holds_for_required_values(hook, by)
}

/// Returns true if the condition of `by` is true for the values that the condition of `hook` requires: the pattern of
/// `call.item_id matches "^rye/"` matches the id that `call.item_id == "rye/bash/bash"` requires.
fn holds_for_required_values(hook: &HookDecl, by: &HookDecl) -> bool {
    let mut required = Vec::new();
    if let Some(condition) = &hook.condition {
        collect_required_values(&condition.node, &mut required);
    }
    let value = |path: &Path| {
        let (_, value) = required.iter().find(|(known, _)| *known == path)?;
        Some(Domain::Values(vec![Some((*value).clone())]))
    };
    !required.is_empty() && KnownFacts::empty().verdict_over(by, &value, &mut Fuel::share(1)) == Verdict::True
}

/// Collects the facts that a condition compares with a literal by `==`, in each part that must be true.
fn collect_required_values<'e>(condition: &'e Expr, all: &mut Vec<(&'e Path, &'e Value)>) {
    match &condition.kind {
        ExprKind::All(parts) => parts.iter().for_each(|part| collect_required_values(part, all)),
        ExprKind::Compare { op: CompareOp::Eq, left, right } => {
            for (fact, value) in [(left, right), (right, left)] {
                if let (ExprKind::Path(path), ExprKind::Literal(value)) = (&fact.kind, &value.kind)
                    && !value.is_null()
                {
                    all.push((path, value));
                }
            }
        }
        ExprKind::Literal(_)
        | ExprKind::List(_)
        | ExprKind::Path(_)
        | ExprKind::Exists(_)
        | ExprKind::Length(_)
        | ExprKind::Not(_)
        | ExprKind::Negate(_)
        | ExprKind::Any(_)
        | ExprKind::Compare { .. }
        | ExprKind::Arithmetic { .. } => {}
    }
}

/// Reports hooks of the project's hook files that can never run: an earlier hook of the same event fires always, under
/// the same condition, or under a broader condition, and prevents later hooks from running. Returns the spans of the
/// reported hooks.
pub fn check(files: &HookFiles, found: &mut Diagnostics) -> BTreeSet<Span> {
    let all: Vec<&Arc<HookDecl>> =
        [&files.user, &files.builtin, &files.project, &files.infra].into_iter().flatten().collect();
    check_among(&all, found)
}

/// Reports hooks of a directive that can never run because of another hook that the same directive declares.
pub fn check_own(directive: &Directive, found: &mut Diagnostics) {
    if directive.hooks.len() > 1 {
        check_among(&directive.hooks.iter().collect::<Vec<_>>(), found);
    }
}

/// Reports the hooks of the project among `all` that earlier hooks of `all` prevent from running. Returns their spans.
fn check_among(all: &[&Arc<HookDecl>], found: &mut Diagnostics) -> BTreeSet<Span> {
    let mut shadowed = BTreeSet::new();
    let candidates: Vec<_> = all.iter().map(|h| h.to_candidate()).collect();
    let mut answers: BTreeMap<HookPoint, Vec<&Arc<HookDecl>>> = BTreeMap::new();
    let mut proofs = MAX_SHADOWING_PROOFS;
    // A condition with a diagnostic is probably a mistake, so its hook does not count as broader.
    let faults: BTreeSet<Span> = found.iter().filter_map(|one| Some(one.labels().first()?.span)).collect();
    let is_faulty = |hook: &HookDecl| {
        let condition = hook.condition.as_ref().map(|condition| condition.span);
        condition.is_some_and(|span| {
            faults.iter().any(|fault| span.start <= fault.start && fault.end <= span.end && fault.source == span.source)
        })
    };
    for place in hook_table::order_hooks(&candidates) {
        let Some(hook) = all.get(place.index).filter(|_| place.removed.is_none()) else { continue };
        let earlier = answers.entry(hook.event).or_default();
        // Hooks of layer 4 always run.
        let reachable = hook_table::is_answer_ignored(hook.event, place.layer);
        let by = earlier.iter().find(|by| always_fires(by) || same_condition(by, hook));
        let is_broader = |by: &&&Arc<HookDecl>| !is_faulty(by) && is_narrower(hook, by, &mut proofs);
        let by = by.or_else(|| earlier.iter().find(is_broader)).filter(|_| !reachable);
        match by {
            Some(by) if hook.space == Space::Project => {
                shadowed.insert(hook.span);
                found.push(HookError::Shadowed {
                    id: hook.id.node.clone(),
                    by: by.id.node.clone(),
                    span: hook.span,
                    by_span: by.span,
                    when: match by {
                        by if always_fires(by) => "whenever the event does",
                        by if same_condition(by, hook) => "under the same condition",
                        _ => "whenever the condition of this hook is true",
                    },
                });
            }
            None if prevents_later_hooks(hook) && !reachable => earlier.push(hook),
            Some(_) | None => {}
        }
    }
    shadowed
}

/// Returns true if later hooks do not run after this hook has fired. The result depends on the mode of the event and on
/// the action of the hook.
fn prevents_later_hooks(hook: &HookDecl) -> bool {
    let Some(action) = hook.action.as_ref().map(|a| &a.node) else { return false };
    match hook_point::row_of(hook.event).mode {
        Mode::FirstMatch => true,
        Mode::FirstBlock => matches!(action, HookAction::Block { .. }),
        // The result of an executed item is unknown.
        Mode::Control => action.item().is_none(),
        Mode::Chain => matches!(action, HookAction::Handled { .. }),
        Mode::Collect | Mode::Observe => false,
    }
}

fn always_fires(hook: &HookDecl) -> bool {
    KnownFacts::empty().verdict(hook) == Verdict::True
}

fn same_condition(a: &HookDecl, b: &HookDecl) -> bool {
    a.condition_source.is_some() && a.condition_source == b.condition_source
}
