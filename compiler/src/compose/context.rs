//! The chain's knowledge in order, deduplicated and without suppressed items (`language.md` 8, steps 3 and 4).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rye_grammar::{ItemId, Spanned};

use super::{Composed, ContextItem, DeclaredOrigin, DuplicateContext, Suppression};
use crate::diagnostics::{ContextError, Diagnostics};
use crate::item::{ContextDecl, Directive, Items};
use crate::world::ItemKind;

/// The three positions of chain knowledge, in their order: the first occurrence of an item wins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ContextPosition {
    System,
    Before,
    After,
}

impl ContextPosition {
    const ALL: [Self; 3] = [Self::System, Self::Before, Self::After];

    fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Before => "before",
            Self::After => "after",
        }
    }

    fn of(self, context: &ContextDecl) -> &[Spanned<ItemId>] {
        match self {
            Self::System => &context.system,
            Self::Before => &context.before,
            Self::After => &context.after,
        }
    }
}

/// Returns every `<suppress>` of the chain, root first, with nothing recorded as removed yet.
pub fn declared_suppressions(chain: &[Arc<Directive>]) -> Vec<Suppression> {
    let mut all: Vec<Suppression> = Vec::new();
    for directive in chain {
        for suppressed in &directive.context.suppress {
            let origin = DeclaredOrigin::directive(directive, suppressed.span);
            all.push(Suppression { id: suppressed.node.clone(), origin, removed: Vec::new() });
        }
    }
    all
}

/// Fills the three context lists of a composition.
pub fn collect(items: &Items<'_>, composed: &mut Composed, found: &mut Diagnostics) {
    let chain = composed.chain.clone();
    let mut kept: HashMap<&ItemId, (ContextPosition, DeclaredOrigin)> = HashMap::new();
    let mut unknown: HashSet<&ItemId> = HashSet::new();
    for place in ContextPosition::ALL {
        for directive in &chain {
            for declared in place.of(&directive.context) {
                let id = &declared.node;
                let origin = DeclaredOrigin::directive(directive, declared.span);
                if record_suppression(&mut composed.suppressions, id.as_str(), &origin) || unknown.contains(id) {
                    continue;
                }
                if let Some((first_place, first)) = kept.get(id) {
                    report_duplicate(id, (*first_place, first), (place, &origin), found);
                    composed.duplicates.push(DuplicateContext { id: id.clone(), kept: first.clone(), dropped: origin });
                    continue;
                }
                let Some(knowledge) = items.knowledge(id) else {
                    unknown.insert(id);
                    report_unknown(items, declared, None, found);
                    continue;
                };
                kept.insert(id, (place, origin.clone()));
                let item = ContextItem { id: id.clone(), knowledge, wrap: place != ContextPosition::System, origin };
                match place {
                    ContextPosition::System => composed.system.push(item),
                    ContextPosition::Before => composed.before.push(item),
                    ContextPosition::After => composed.after.push(item),
                }
            }
        }
    }
}

/// Records the removal with every suppression of that id. Returns true if there is one.
pub fn record_suppression(suppressions: &mut [Suppression], id: &str, origin: &DeclaredOrigin) -> bool {
    let mut any = false;
    for suppression in suppressions.iter_mut().filter(|s| s.id == id) {
        suppression.removed.push(origin.clone());
        any = true;
    }
    any
}

/// Warns if the same item is declared in two positions, or twice in one file. The same position in two links is
/// allowed.
fn report_duplicate(
    id: &ItemId,
    kept: (ContextPosition, &DeclaredOrigin),
    dropped: (ContextPosition, &DeclaredOrigin),
    found: &mut Diagnostics,
) {
    let ((kept_place, kept), (place, origin)) = (kept, dropped);
    let same_file = kept.by == origin.by;
    if kept_place == place && !same_file {
        return;
    }
    if let (Some(first), Some(second)) = (kept.span, origin.span) {
        let (kept, dropped) = (kept_place.as_str(), place.as_str());
        found.push(ContextError::Duplicate { id: id.to_string(), kept, dropped, first, second });
    }
}

/// Reports knowledge that no space has. Knowledge that exists but cannot be read was already reported by the parser.
pub fn report_unknown(items: &Items<'_>, id: &Spanned<ItemId>, by_hook: Option<&str>, found: &mut Diagnostics) {
    if items.exists(ItemKind::Knowledge, &id.node) {
        return;
    }
    found.push(ContextError::UnknownItem {
        id: id.node.to_string(),
        span: id.span,
        suggestion: items.nearest(ItemKind::Knowledge, id.node.as_str()),
        by_hook: by_hook.map(str::to_owned),
    });
}
