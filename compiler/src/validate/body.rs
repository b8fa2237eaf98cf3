//! Directives that say nothing: no prompt of their own, nothing that their chain or a hook brings but the library's own, and
//! nobody who extends them.

use std::collections::{BTreeMap, BTreeSet};

use rye_grammar::{ItemId, Span};

use super::memory::Merge;
use crate::compose::Composed;
use crate::diagnostics::{Diagnostics, ItemError};
use crate::hook::HookAction;
use crate::item::{Directive, HookDecl, Items};
use crate::world::Space;

/// The directives without a word on every route, and those that others extend.
#[derive(Default)]
pub struct Bodies {
    /// Whether it is silent on every route so far.
    empty: BTreeMap<ItemId, (Span, bool)>,
    extended: BTreeSet<ItemId>,
    /// One could not be read, and may extend any.
    incomplete: bool,
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
        let is_told = [&composed.system, &composed.before, &composed.after].iter().any(|part| !part.is_empty())
            || composed.hooks.iter().any(|h| h.is_live() && h.decl.space != Space::System && brings(&h.decl));
        let (_, silent) = self.empty.entry(leaf.id().clone()).or_insert((leaf.span, true));
        *silent &= !is_told;
    }

    /// One that could not be composed.
    pub fn alone(&mut self, directive: Option<&Directive>) {
        match directive {
            Some(directive) => self.extended.extend(directive.extends.as_ref().map(|parent| parent.node.clone())),
            None => self.incomplete = true,
        }
    }
}

/// Whether a hook can give a model something to read. What an executed item answers may be anything.
fn brings(hook: &HookDecl) -> bool {
    matches!(
        hook.action.as_ref().map(|action| &action.node),
        Some(
            HookAction::Fetch { .. }
                | HookAction::Execute { .. }
                | HookAction::Transform { .. }
                | HookAction::Message { .. }
                | HookAction::SystemPrompt { .. }
                | HookAction::Inject { .. }
                | HookAction::Replace { .. }
                | HookAction::FollowUp { .. }
        )
    )
}

impl Merge for Bodies {
    fn merge(&mut self, other: &Self) {
        self.incomplete |= other.incomplete;
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
    if silent.is_empty() || several.iter().any(|bodies| bodies.incomplete) {
        return;
    }
    for id in several.iter().flat_map(|bodies| &bodies.extended) {
        silent.remove(id);
    }
    found.extend(silent.into_iter().map(|(id, span)| ItemError::Silent { id: id.to_string(), span }));
}
