//! The chain's knowledge in order, deduplicated and without suppressed items (`language.md`, Composition, steps 3 and
//! 4).

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use rye_grammar::{ItemId, Spanned};

use super::{Composed, ContextItem, DuplicateContext, Suppression, UngrantedProtocol};
use crate::diagnostics::{ContextError, Diagnostics};
use crate::item::{ContextDecl, DeclaredOrigin, Directive, Items};
use crate::primary::Primary;
use crate::world::{ItemKind, Space};

/// Prefix of the ids of protocol items: the knowledge that explains a primary to the model.
pub(crate) const PROTOCOL_PREFIX: &str = "rye/agent/core/protocol/";

/// The three positions at which directives of the chain declare knowledge for the prompt, in the order in which the
/// positions are filled. Knowledge that is declared at several positions is sent at the first of them.
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

/// Returns every `<suppress>` of the chain, root first, then a suppression for each part that the user omits. The field
/// `removed` of each is empty: composition fills it with the items that the suppression removes.
pub fn declared_suppressions(chain: &[Arc<Directive>], omitted: &[String]) -> Vec<Suppression> {
    let mut all: Vec<Suppression> = Vec::new();
    for directive in chain {
        for suppressed in &directive.context.suppress {
            let origin = DeclaredOrigin::directive(directive, suppressed.span);
            all.push(Suppression { id: suppressed.node.clone(), origin, removed: Vec::new() });
        }
    }
    all.extend(omitted.iter().map(|id| Suppression {
        id: id.clone(),
        origin: DeclaredOrigin::built_in(),
        removed: Vec::new(),
    }));
    all
}

/// Fills the three lists of context knowledge of a composition, one for each position in the prompt.
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

/// Removes each protocol item of the standard library, which holds the instructions for one primary, if no grant allows
/// the primary. A directive can extend a base of the standard library and declare permissions of its own. Such a
/// directive then gets only the instructions that it can follow. An item is kept if a directive outside of the standard
/// library also declares it.
pub fn remove_ungranted_protocols(items: &Items<'_>, composed: &mut Composed) {
    let Some(permissions) = &composed.permissions else { return };
    let lists = [&composed.system, &composed.before, &composed.after];
    let protocols = lists.into_iter().flatten().filter_map(|item| {
        let primary = item.id.as_str().strip_prefix(PROTOCOL_PREFIX).and_then(Primary::parse)?;
        Some((item, primary))
    });
    let protocols: Vec<(&ContextItem, Primary)> = protocols.collect();
    if protocols.is_empty() {
        return;
    }
    let grants = permissions.value.grants.iter();
    let granted: Vec<Rc<[Primary]>> = grants.map(|grant| items.possible_primaries(&grant.pattern.0)).collect();
    let is_granted = |primary: &Primary| granted.iter().any(|primaries| primaries.contains(primary));
    let is_of_library = |item: &ContextItem| {
        let written = composed.chain.iter().filter(|link| link.file.space != Space::System);
        !written
            .flat_map(|link| link.context.before.iter().chain(&link.context.after).chain(&link.context.system))
            .any(|declared| declared.node == item.id)
    };
    let left_out: Vec<UngrantedProtocol> = protocols
        .into_iter()
        .filter(|(item, primary)| !is_granted(primary) && is_of_library(item))
        .map(|(item, primary)| UngrantedProtocol {
            id: item.id.clone(),
            primary,
            declared: item.origin.clone(),
            granted: permissions.origin.clone(),
        })
        .collect();
    if left_out.is_empty() {
        return;
    }
    for list in [&mut composed.system, &mut composed.before, &mut composed.after] {
        list.retain(|item| !left_out.iter().any(|one| one.id == item.id));
    }
    composed.ungranted_protocols = left_out;
}

/// Records that a suppression removed an item or hook: adds `origin`, the place that declares the item or hook, to
/// every suppression with the id `id`. Returns false if there is no such suppression.
pub fn record_suppression(suppressions: &mut [Suppression], id: &str, origin: &DeclaredOrigin) -> bool {
    let mut any = false;
    for suppression in suppressions.iter_mut().filter(|s| s.id == id) {
        suppression.removed.push(origin.clone());
        any = true;
    }
    any
}

/// Warns if the same item is declared in two positions, or twice in one file. Two directives of the chain may declare
/// the item in the same position.
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

/// Reports `id` if no space has knowledge with this id. `by_hook` is the hook that fetches the knowledge; `None` if no
/// hook fetches it. Knowledge that exists but cannot be read is not reported here, because the parser has reported it.
pub(crate) fn report_unknown(items: &Items<'_>, id: &Spanned<ItemId>, by_hook: Option<&str>, found: &mut Diagnostics) {
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
