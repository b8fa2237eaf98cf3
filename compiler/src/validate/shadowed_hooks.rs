//! Reports hooks of hook files that never take effect, because an earlier hook of the same event answers first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rye_grammar::Span;

use super::hook_use::implies;
use crate::diagnostics::{Diagnostics, HookError};
use crate::hook::{HookAction, HookPoint};
use crate::item::{HookDecl, HookFiles};
use crate::resolve::KnownFacts;
use crate::semantics::condition::Verdict;
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
    implies(hook, by)
}

/// Reports hooks of the project's hook files that can never run: an earlier hook of the same event fires always, under
/// the same condition, or under a broader condition, and prevents later hooks from running. Returns the spans of the
/// reported hooks.
pub fn check(files: &HookFiles, found: &mut Diagnostics) -> BTreeSet<Span> {
    let mut shadowed = BTreeSet::new();
    let all: Vec<&Arc<HookDecl>> =
        [&files.user, &files.builtin, &files.project, &files.infra].into_iter().flatten().collect();
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
