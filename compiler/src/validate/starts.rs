//! Directives that hooks start: what such a directive is granted beyond the thread's capabilities and the hook's
//! grants is refused when it runs (`language.md` 7), and said here.

use std::collections::BTreeSet;

use rye_grammar::{ItemId, Span};

use crate::compose::{Composed, ComposedHook, compose_all};
use crate::diagnostics::{Diagnostics, HookError};
use crate::hook::HookAction;
use crate::item::Items;
use crate::resolve::{Inputs, Launch};
use crate::semantics::glob::{Coverage, covers};
use crate::world::ItemKind;

/// Pairs that were looked at: a hook, and the `<permissions>` of the thread it serves.
#[derive(Default)]
pub struct Starts {
    seen: BTreeSet<(Span, Option<Span>)>,
    /// Hooks that were complained about; one example is enough.
    told: BTreeSet<Span>,
}

impl Starts {
    /// Every live hook of a directive that starts another one.
    pub fn add(&mut self, items: &Items<'_>, composed: &Composed, found: &mut Diagnostics) {
        for hook in composed.hooks.iter().filter(|h| h.is_live() && h.decl.has_static_id()) {
            let Some(HookAction::Execute { item_type: ItemKind::Directive, item_id, .. }) =
                hook.decl.action.as_ref().map(|a| &a.node)
            else {
                continue;
            };
            // What no link grants is the spawning thread's to say.
            let Some(own) = &composed.permissions else { continue };
            let pair = (hook.decl.span, own.origin.span);
            if self.told.contains(&hook.decl.span) || !self.seen.insert(pair) {
                continue;
            }
            if let Ok(id) = ItemId::parse(item_id)
                && let Some(error) = exceeds(items, composed, hook, &id)
            {
                self.told.insert(hook.decl.span);
                found.push(error);
            }
        }
    }
}

/// Whether anything lets a thread of this directive start another one: a grant, or its parent's where it has none.
pub fn may_start(composed: &Composed) -> bool {
    let Some(permissions) = &composed.permissions else { return true };
    let could = |pattern: &str| {
        let literal = pattern.split(['*', '?', '[']).next().unwrap_or_default();
        STARTING.iter().any(|start| start.starts_with(literal) || literal.starts_with(start))
    };
    permissions.value.grants.iter().any(|grant| could(&grant.pattern.0))
}

/// Capabilities that start directives begin like this.
const STARTING: [&str; 2] = ["rye.execute.directive.", "rye.execute.tool.rye.agent.threads."];

/// What a started directive is granted and would still be refused.
fn exceeds(items: &Items<'_>, composed: &Composed, hook: &ComposedHook, id: &ItemId) -> Option<HookError> {
    let launch = Launch { inputs: Inputs::Unknown, model: &|_| None };
    // What is wrong with it is told where it is checked.
    let (routes, _) = compose_all(items, id, &launch, &mut Diagnostics::new());
    let started = routes.first()?.permissions.as_ref()?;
    let own = composed.permissions.as_ref()?;
    let allowed: Vec<&str> = own
        .value
        .grants
        .iter()
        .map(|g| g.pattern.0.as_str())
        .chain(hook.decl.grants.iter().map(|g| g.node.0.as_str()))
        .collect();
    started
        .value
        .grants
        .iter()
        .find_map(|grant| match covers(&allowed, &grant.pattern.0) {
            Coverage::Covered => None,
            Coverage::Counterexample(capability) => Some((grant, capability)),
            Coverage::TooComplex => Some((grant, grant.pattern.0.clone())),
        })
        .map(|(grant, capability)| HookError::StartsMore {
            id: hook.decl.id.node.clone(),
            started: id.to_string(),
            thread: composed.id.to_string(),
            capability,
            span: hook.decl.item_span(),
            grant: grant.span,
            granted: own.origin.span,
        })
}
