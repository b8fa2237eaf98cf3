//! Checks of a directive's own declarations that depend on other files: its hooks, its continuation and its limits.

use crate::compose::Composed;
use crate::diagnostics::{ContextError, Diagnostics, InterfaceError, ItemError};
use crate::hook::{HookAction, HookPoint};
use crate::item::Items;
use crate::lower::LowerSummary;
use crate::plan::NudgePolicy;
use crate::world::{ItemKind, Space};

/// Checks what the last directive of the composed chain declares: hooks, limits, inputs, continuation and context.
pub fn check(items: &Items<'_>, composed: &Composed, found: &mut Diagnostics) {
    let Some(leaf) = composed.leaf() else { return };
    for hook in &leaf.hooks {
        super::hook::check(items, hook, Some(composed), found);
    }
    super::merge_conflict::check(&leaf.body, found);
    super::limit::check_declared(leaf, found);
    for field in leaf.inputs.values().filter(|field| field.required && field.default.is_some()) {
        found.push(InterfaceError::RequiredDefault { name: field.name.node.clone(), span: field.span });
    }
    super::continuation::check_target(items, composed, found);
    if let Some(continuation) = &leaf.continuation
        && !items.exists(ItemKind::Directive, &continuation.node)
    {
        found.push(ItemError::Unknown {
            kind: ItemKind::Directive,
            id: continuation.node.to_string(),
            span: Some(continuation.span),
            suggestion: items.nearest(ItemKind::Directive, continuation.node.as_str()),
        });
    }
    let context = &leaf.context;
    for suppressed in &context.suppress {
        let mut declared = context.system.iter().chain(&context.before).chain(&context.after);
        if let Some(declared) = declared.find(|d| d.node.as_str() == suppressed.node) {
            found.push(ContextError::SuppressedAndDeclared {
                id: suppressed.node.clone(),
                declared: declared.span,
                suppressed: suppressed.span,
            });
        }
    }
}

/// Reports `<nudge>always</nudge>` of the last directive of the chain if no answer ends the thread: the directive has
/// tools and no outputs, and no hook ends a thread.
pub fn check_reminders(composed: &Composed, audit: &LowerSummary, found: &mut Diagnostics) {
    let Some(nudge) = composed.leaf().and_then(|leaf| leaf.nudge.as_ref()) else { return };
    let is_endless = nudge.node == NudgePolicy::Always && audit.offers_tools && composed.outputs.is_empty();
    // The hooks of the standard library end a thread at limits and errors only.
    let is_other = |event: HookPoint| !matches!(event, HookPoint::Limit | HookPoint::Error);
    let ends = |action: &HookAction| matches!(action, HookAction::Terminate { .. } | HookAction::Execute { .. });
    let has_end = composed.hooks.iter().filter(|hook| is_other(hook.decl.event) && hook.decl.space != Space::System);
    let has_end = has_end.filter_map(|hook| hook.decl.action.as_ref()).any(|action| ends(&action.node));
    if is_endless && !has_end {
        found.push(InterfaceError::EndlessReminders { span: nudge.span });
    }
}
