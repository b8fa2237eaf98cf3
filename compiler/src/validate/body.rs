//! Directives that say nothing: no prompt of their own, nothing that their chain or a hook of the project brings, and nobody who
//! extends them.

use std::collections::{BTreeMap, BTreeSet};

use rye_grammar::{ItemId, Span};

use super::memory::Merge;
use crate::compose::Composed;
use crate::diagnostics::{Diagnostics, ItemError};
use crate::hook::HookPoint;
use crate::item::Items;
use crate::world::Space;

/// Events whose hooks can put a text into the first request.
const BRING: [HookPoint; 4] =
    [HookPoint::BuildSystemPrompt, HookPoint::Context, HookPoint::BeforeAgentStart, HookPoint::ThreadStarted];

/// The directives without a word on every route, and those that others extend.
#[derive(Default)]
pub struct Bodies {
    /// Whether it is silent on every route so far.
    empty: BTreeMap<ItemId, (Span, bool)>,
    extended: BTreeSet<ItemId>,
}

impl Bodies {
    pub fn add(&mut self, items: &Items<'_>, composed: &Composed) {
        let Some((leaf, above)) = composed.chain.split_last() else { return };
        for link in above {
            if !self.extended.contains(link.id()) {
                self.extended.insert(link.id().clone());
            }
        }
        if !leaf.body.node.trim().is_empty() || items.is_broken(leaf.file.source) {
            return;
        }
        let brings = |event| BRING.contains(&event);
        let is_told = [&composed.system, &composed.before, &composed.after].iter().any(|part| !part.is_empty())
            || composed.hooks.iter().any(|h| h.is_live() && h.decl.space == Space::Project && brings(h.decl.event));
        let (_, silent) = self.empty.entry(leaf.id().clone()).or_insert((leaf.span, true));
        *silent &= !is_told;
    }
}

impl Merge for Bodies {
    fn merge(&mut self, other: &Self) {
        for (id, (span, silent)) in &other.empty {
            self.empty.entry(id.clone()).or_insert((*span, true)).1 &= silent;
        }
        for id in &other.extended {
            if !self.extended.contains(id) {
                self.extended.insert(id.clone());
            }
        }
    }
}

/// Those that nobody could have meant.
pub fn check(several: &[&Bodies], found: &mut Diagnostics) {
    let silent = several.iter().flat_map(|bodies| &bodies.empty).filter(|(_, (_, silent))| *silent);
    let mut silent: BTreeMap<&ItemId, Span> = silent.map(|(id, (span, _))| (id, *span)).collect();
    if silent.is_empty() {
        return;
    }
    for id in several.iter().flat_map(|bodies| &bodies.extended) {
        silent.remove(id);
    }
    found.extend(silent.into_iter().map(|(id, span)| ItemError::Silent { id: id.to_string(), span }));
}
