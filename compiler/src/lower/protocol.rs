//! Checks that the protocol knowledge in a directive's context matches the primaries that its grants allow
//! (`language.md`, Palette).

use rye_grammar::{ItemId, Span};

use super::cache::LowerContext;
use crate::compose::{Composed, ContextItem, PROTOCOL_PREFIX};
use crate::diagnostics::{Diagnostics, PaletteError};
use crate::hook::PlanVerdict;
use crate::item::DeclaredOrigin;
use crate::plan::OriginKind;
use crate::primary::Primary;
use crate::world::ItemKind;

const BASE_PREFIX: &str = "rye/agent/core/base";

/// Warns about a primary that a protocol item in the context describes but no grant allows, and about a primary that a
/// grant allows but no protocol item describes. Skips chains without permissions. Also skips chains that neither extend
/// a base of the standard library (`rye/agent/core/base…`) nor provide a protocol item.
pub fn check(shared: &LowerContext<'_, '_>, composed: &Composed, diagnostics: &mut Diagnostics) {
    let Some(permissions) = &composed.permissions else { return };
    let allowed = |primary: Primary| {
        permissions
            .value
            .grants
            .iter()
            .find(|grant| shared.items.possible_primaries(&grant.pattern.0).contains(&primary))
    };
    let items: Vec<&ContextItem> = composed
        .system
        .iter()
        .chain(&composed.before)
        .chain(&composed.after)
        .filter(|item| is_protocol_item(item))
        .collect();
    let live =
        composed.hooks.iter().filter(|h| !matches!(h.verdict, PlanVerdict::Never { .. } | PlanVerdict::Removed { .. }));
    let by_hooks: Vec<&str> = live.filter_map(|h| h.knowledge.as_ref()).map(|k| k.file.id.as_str()).collect();
    let based = composed.chain.iter().any(|link| link.id().as_str().starts_with(BASE_PREFIX));
    let explains = based || !items.is_empty() || by_hooks.iter().any(|id| id.starts_with(PROTOCOL_PREFIX));
    for primary in Primary::ALL {
        let item = format!("{PROTOCOL_PREFIX}{}", primary.as_str());
        let described = items.iter().find(|i| i.id.as_str() == item);
        let primary_word = primary.as_str().to_owned();
        match (allowed(primary), described) {
            (None, Some(described)) => {
                if let Some(span) = nearer_span(composed, &described.origin, &permissions.origin) {
                    diagnostics.push(PaletteError::DescribesUngranted { item, primary: primary_word, span });
                }
            }
            (Some(grant), None)
                if explains && !by_hooks.contains(&item.as_str()) && knowledge_exists(shared, &item) =>
            {
                let leaf = composed.leaf().filter(|leaf| leaf.permissions.is_none());
                // If the leaf has no `<permissions>`, the grant is in the file of a parent, so report the diagnostic at
                // the leaf.
                let span = leaf.map_or(grant.span, |leaf| leaf.span);
                diagnostics.push(PaletteError::Undescribed { primary: primary_word, item, span });
            }
            (Some(_) | None, Some(_) | None) => {}
        }
    }
}

fn knowledge_exists(shared: &LowerContext<'_, '_>, item: &str) -> bool {
    ItemId::parse(item).is_ok_and(|id| shared.items.exists(ItemKind::Knowledge, &id))
}

fn is_protocol_item(item: &ContextItem) -> bool {
    item.id.as_str().starts_with(PROTOCOL_PREFIX)
}

/// Returns the span at which a mismatch of two declarations is reported: the span of the declaration that comes later
/// in the chain, because this declaration caused the mismatch. `None` if this declaration has no span.
fn nearer_span(composed: &Composed, a: &DeclaredOrigin, b: &DeclaredOrigin) -> Option<Span> {
    let depth = |origin: &DeclaredOrigin| match &origin.by {
        OriginKind::Directive(id) => composed.chain.iter().position(|link| link.id() == id),
        OriginKind::Hook(_) | OriginKind::Config(_) | OriginKind::BuiltIn => None,
    };
    if depth(a) >= depth(b) { a.span } else { b.span }
}
