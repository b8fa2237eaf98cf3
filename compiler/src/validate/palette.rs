//! Protocol items against grants: what the model is told how to do should be what it may do (`language.md` 10).
//! Whether the tools fit beside each other is the palette's own business.

use rye_grammar::{ItemId, Span};

use crate::compose::{Composed, Origin};
use crate::diagnostics::{Diagnostics, PaletteError};
use crate::item::Items;
use crate::semantics::capability::Primary;
use crate::world::ItemKind;

const PROTOCOL: &str = "rye/agent/core/protocol/";

/// Checks one composition. A chain that brings no protocol item at all explains nothing on purpose.
pub fn check(items: &Items<'_>, composed: &Composed, found: &mut Diagnostics) {
    let Some(permissions) = &composed.permissions else { return };
    let described: Vec<(Primary, &ItemId, &Origin)> = brought(composed)
        .filter_map(|(id, origin)| Some((Primary::parse(id.as_str().strip_prefix(PROTOCOL)?)?, id, origin)))
        .collect();
    if described.is_empty() {
        return;
    }
    let grants = &permissions.value.grants;
    let granted = |primary: Primary| grants.iter().find(|g| could_allow(&g.pattern.0, primary));
    for (primary, id, origin) in &described {
        if granted(*primary).is_none() {
            // Where a leaf narrows what its base explains, the leaf is the one to act.
            let own = origin.by == permissions.origin.by;
            let span = if own { origin.span } else { permissions.origin.span };
            let Some(span) = span.or(permissions.origin.span) else { continue };
            found.push(describes(id, *primary, span));
        }
    }
    for primary in Primary::ALL {
        let Some(grant) = granted(primary) else { continue };
        let item = format!("{PROTOCOL}{primary}");
        let exists = ItemId::parse(&item).is_ok_and(|id| items.exists(ItemKind::Knowledge, &id));
        if exists && described.iter().all(|(p, _, _)| *p != primary) {
            found.push(PaletteError::Undescribed { primary: primary.to_string(), item, span: grant.span });
        }
    }
}

fn describes(id: &ItemId, primary: Primary, span: Span) -> PaletteError {
    PaletteError::DescribesUngranted { item: id.to_string(), primary: primary.to_string(), span }
}

/// Everything the prompt may bring, with who brings it.
fn brought(composed: &Composed) -> impl Iterator<Item = (&ItemId, &Origin)> {
    let chain = composed.system.iter().chain(&composed.before).chain(&composed.after).map(|i| (&i.id, &i.origin));
    let hooks = composed.hooks.iter().filter_map(|h| h.knowledge.as_ref().map(|k| (&k.file.id, &h.origin)));
    chain.chain(hooks)
}

/// Whether a pattern could match a capability of a primary: their literal beginnings agree.
fn could_allow(pattern: &str, primary: Primary) -> bool {
    let literal = pattern.split(['*', '?', '[']).next().unwrap_or_default();
    let head = format!("rye.{primary}.");
    let common = literal.len().min(head.len());
    literal.get(..common) == head.get(..common)
}
