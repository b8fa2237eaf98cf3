//! Checks of a directive's own declarations that depend on other files: its hooks, its continuation and its limits.

use crate::compose::Composed;
use crate::diagnostics::{ContextError, Diagnostics, InterfaceError, ItemError};
use crate::item::Items;
use crate::world::ItemKind;

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
