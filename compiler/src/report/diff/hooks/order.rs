//! Changes of the order of hooks.

use super::{HookChange, HookRole, add_finding, hook_role};
use crate::compile::Compilation;
use crate::hook::{HookAction, PlannedHook};
use crate::report::diff::change::Direction;
use crate::semantics::hook_point::{self, Mode};

/// Compares the order of hooks at events where the first result wins, or where each hook gets the previous result.
pub(super) fn compare_order(changes: &mut Vec<HookChange>, before: &Compilation, after: &Compilation) {
    let both = |one: &Compilation, other: &Compilation| -> Vec<PlannedHook> {
        let known = |hook: &&PlannedHook| {
            other.plan.hooks.iter().any(|h| h.is_live() && h.id == hook.id && h.event == hook.event)
        };
        one.plan.hooks.iter().filter(|hook| is_ordered(hook)).filter(known).cloned().collect()
    };
    let (old, new) = (both(before, after), both(after, before));
    for hook in &new {
        let at = |list: &[PlannedHook], matters: fn(&PlannedHook, &PlannedHook) -> bool| -> Vec<String> {
            let same_event = list.iter().filter(|h| h.event == hook.event);
            let earlier = same_event.take_while(|h| h.id != hook.id);
            earlier.filter(|earlier| matters(earlier, hook)).map(|h| h.id.clone()).collect()
        };
        let is_moved = |matters| at(&old, matters) != at(&new, matters);
        if is_moved(decides_more_than_a_reason) {
            let why = "the place of the hook in the order of the hooks changed".to_owned();
            add_finding(changes, hook, Direction::Unknown, why, (before, after));
        } else if is_moved(|_, _| true) {
            let why = "if two hooks block the same call, the other hook now gives the reason".to_owned();
            add_finding(changes, hook, Direction::Neutral, why, (before, after));
        }
    }
}

/// Returns true if the position of a hook among the hooks of its event can change the result of the event.
fn is_ordered(hook: &PlannedHook) -> bool {
    let is_ordered_mode = match hook_point::row_of(hook.event).mode {
        Mode::Control | Mode::Chain | Mode::FirstBlock | Mode::FirstMatch => true,
        Mode::Collect | Mode::Observe => false,
    };
    hook.is_live() && is_ordered_mode && hook_role(hook) != HookRole::Text
}

/// Returns true if the order of two hooks of one event can change the result of the event, and not only the reason of a
/// refusal. Two hooks that block calls refuse the same calls in either order.
fn decides_more_than_a_reason(one: &PlannedHook, other: &PlannedHook) -> bool {
    let blocks = |hook: &PlannedHook| {
        hook_point::row_of(hook.event).mode == Mode::FirstBlock && matches!(hook.action, HookAction::Block { .. })
    };
    !(blocks(one) && blocks(other))
}
