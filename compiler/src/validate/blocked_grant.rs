//! Grants of a single tool or directive that have no effect, because the condition of a `tool_call` hook with the
//! action `block` is true for every call of the item.

use rye_grammar::ItemId;
use rye_grammar::capability::is_literal;
use serde_json::Value;

use crate::compose::{Composed, ComposedHook};
use crate::diagnostics::{CapabilityError, Diagnostics};
use crate::hook::{HookAction, HookPoint};
use crate::item::Items;
use crate::palette::SizedTool;
use crate::semantics::condition::Verdict;
use crate::semantics::facts::Facts;
use crate::world::ItemKind;

/// Reports each grant in the last directive of the chain that names a single tool or directive, if a hook blocks every
/// call of this item.
pub fn check(items: &Items<'_>, composed: &Composed, found: &mut Diagnostics) {
    let blocks = |hook: &&ComposedHook| {
        let action = hook.decl.action.as_ref().map(|action| &action.node);
        hook.is_live() && hook.decl.event == HookPoint::ToolCall && matches!(action, Some(HookAction::Block { .. }))
    };
    let mut guards = composed.hooks.iter().filter(blocks).peekable();
    let Some(permissions) = composed.leaf().and_then(|leaf| leaf.permissions.as_ref()) else { return };
    if guards.peek().is_none() {
        return;
    }
    let guards: Vec<&ComposedHook> = guards.collect();
    for grant in &permissions.grants {
        let pattern = &grant.pattern.0;
        let kinds = [("rye.execute.tool.", ItemKind::Tool), ("rye.execute.directive.", ItemKind::Directive)];
        let of_kind = |(head, kind)| Some((kind, pattern.strip_prefix(head).filter(|id| is_literal(id))?));
        let Some((kind, dotted)) = kinds.into_iter().find_map(of_kind) else { continue };
        let Some(id) = ItemId::from_dotted(dotted).filter(|id| items.exists(kind, id)) else { continue };
        let Some(guard) = guards.iter().find(|guard| blocks_every_call(guard, composed, &id)) else { continue };
        let tool = if kind == ItemKind::Tool { items.tool(&id) } else { None };
        if kind == ItemKind::Tool && tool.is_none() {
            continue;
        }
        found.push(CapabilityError::BlockedGrant {
            pattern: pattern.clone(),
            item: id.to_string(),
            hook: guard.decl.id.node.clone(),
            tokens: tool.map(|tool| SizedTool::of(tool).tokens),
            span: grant.span,
            hook_span: guard.decl.span,
        });
    }
}

/// Returns true if the condition of a hook is true for every call of an item in a thread of this directive.
fn blocks_every_call(guard: &ComposedHook, composed: &Composed, item: &ItemId) -> bool {
    let Some(condition) = &guard.decl.compiled else { return true };
    let mut facts = Facts::new();
    facts.set("call.item_id", Value::from(item.as_str()));
    // The tool can also be called through `rye_execute`.
    facts.declare_unknown("call.name");
    facts.declare_unknown("call.id");
    facts.declare_unknown("call.input");
    facts.set("directive", Value::from(composed.id.as_str()));
    for root in condition.roots().filter(|root| !matches!(*root, "call" | "directive")) {
        facts.declare_unknown(root);
    }
    condition.evaluate(&facts) == Verdict::True
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::compile::tests::world::{minimal_world, with_directives};
    use crate::validate::{Selection, check};

    fn messages_for(condition: &str) -> Vec<String> {
        let inside = "<metadata><permissions><execute><tool>rye.look</tool></execute></permissions></metadata>";
        let hooks = format!(
            "hooks:\n  - {{ id: guard, event: tool_call, condition: '{condition}', action: {{ block: {{ reason: no }} }} }}\n"
        );
        let world = with_directives(minimal_world(), &[("leaf", "", inside, "Look.")])
            .project(".ai/config/agent/hooks.yaml", hooks);
        let report = check(&world, &Selection::All);
        let dead = report.diagnostics.iter().filter(|found| found.code() == "capability::dead-grant");
        dead.map(crate::diagnostics::Diagnostic::message).collect()
    }

    #[test]
    fn grants_whose_every_call_is_blocked_are_reported() {
        for always in ["call.item_id == \"rye/look\"", "directive == \"leaf\" && call.item_id contains \"look\""] {
            let found = messages_for(always);
            assert!(found.len() == 1 && found.concat().contains("the hook `guard` blocks it"), "{always}: {found:?}");
        }
        for sometimes in [
            "call.item_id == \"rye/touch\"",
            "call.item_id == \"rye/look\" && call.input.path == \"x\"",
            "call.item_id == \"rye/look\" && turn > 3",
            "call.name == \"rye_look\"",
            "directive == \"other\"",
        ] {
            assert_eq!(messages_for(sometimes), Vec::<String>::new(), "{sometimes}");
        }
    }
}
