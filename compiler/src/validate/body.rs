//! Directives without content. A directive is reported if all of these conditions hold: its body is empty, no directive
//! extends it, and neither its chain nor a hook adds text to its prompt on any route. Hooks of the standard library do
//! not count.

use std::collections::{BTreeMap, BTreeSet};

use rye_grammar::{ItemId, Span};

use super::incremental::Merge;
use crate::compose::Composed;
use crate::diagnostics::{Diagnostics, ItemError};
use crate::hook::HookAction;
use crate::item::{Directive, HookDecl, Items};
use crate::world::Space;

/// The directives with an empty body, and the directives that other directives extend.
#[derive(Default)]
pub struct EmptyDirectives {
    /// The directives with an empty body, each with its span and a flag. The flag is true if no route seen so far adds
    /// text to the prompt of the directive.
    empty: BTreeMap<ItemId, (Span, bool)>,
    extended: BTreeSet<ItemId>,
    /// True if a directive could not be read. Such a directive may extend any other directive.
    incomplete: bool,
}

impl EmptyDirectives {
    pub fn add(&mut self, items: &Items<'_>, composed: &Composed) {
        let Some((leaf, above)) = composed.chain.split_last() else { return };
        for link in above {
            if !self.extended.contains(link.id()) {
                self.extended.insert(link.id().clone());
            }
        }
        if has_text(&leaf.body.node) || items.is_broken(leaf.file.source) {
            return;
        }
        let is_told = [&composed.system, &composed.before, &composed.after].iter().any(|part| !part.is_empty())
            || composed.hooks.iter().any(|h| h.is_live() && h.decl.space != Space::System && provides_text(&h.decl));
        let (_, silent) = self.empty.entry(leaf.id().clone()).or_insert((leaf.span, true));
        *silent &= !is_told;
    }

    /// Records a directive that could not be composed; `None` stands for a directive that could not be read.
    pub fn add_uncomposed(&mut self, directive: Option<&Directive>) {
        match directive {
            Some(directive) => self.extended.extend(directive.extends.as_ref().map(|parent| parent.node.clone())),
            None => self.incomplete = true,
        }
    }
}

/// Returns true if a text holds anything besides comments.
pub fn has_text(body: &str) -> bool {
    let mut rest = body.trim_start();
    while let Some((_, after)) = rest.strip_prefix("<!--").and_then(|comment| comment.split_once("-->")) {
        rest = after.trim_start();
    }
    !rest.is_empty()
}

/// Returns true if a hook can add text for the model. An executed item counts, because its result can be any text.
fn provides_text(hook: &HookDecl) -> bool {
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

impl Merge for EmptyDirectives {
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

/// Reports empty directives that no other directive extends.
pub fn report_empty(several: &[&EmptyDirectives], found: &mut Diagnostics) {
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
