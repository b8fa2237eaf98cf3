//! Project items that shadow the standard library's bases, or the knowledge that those bases and the library's hooks
//! provide: the change affects every directive that extends a base (`language.md` 1). Reports the difference in tokens.

use std::collections::BTreeSet;

use rye_grammar::{ItemId, Span};

use crate::diagnostics::{Diagnostics, ItemError};
use crate::item::Items;
use crate::plan::Tokenizer;
use crate::world::{Entry, ItemKind, Space};

/// Tokenizer for both texts; independent of the model, since many models may get them.
const TOKENIZER: Tokenizer = Tokenizer::Characters;

pub fn check(items: &Items<'_>, found: &mut Diagnostics) {
    let knowledge = project_and_system_ids(items, ItemKind::Knowledge);
    let directives = project_and_system_ids(items, ItemKind::Directive);
    if knowledge.is_empty() && directives.is_empty() {
        return;
    }
    let used = stdlib_dependencies(items);
    for id in knowledge.iter().filter(|id| used.contains(&(ItemKind::Knowledge, (*id).clone()))) {
        let (Some(over), Some(under)) = (items.knowledge(id), items.system_knowledge(id)) else { continue };
        let span = over.name.as_ref().map_or(Span::new(over.file.source, 0, 0), |name| name.span);
        found.push(ItemError::Shadows {
            kind: ItemKind::Knowledge,
            id: id.to_string(),
            tokens: (TOKENIZER.count(&over.body.node), TOKENIZER.count(&under.body.node)),
            span,
        });
    }
    for id in directives.iter().filter(|id| used.contains(&(ItemKind::Directive, (*id).clone()))) {
        let (Some(over), Some(under)) = (items.directive(id), items.system_directive(id)) else { continue };
        found.push(ItemError::Shadows {
            kind: ItemKind::Directive,
            id: id.to_string(),
            tokens: (TOKENIZER.count(&over.body.node), TOKENIZER.count(&under.body.node)),
            span: over.span,
        });
    }
}

/// Returns ids that the project and the standard library both have.
fn project_and_system_ids(items: &Items<'_>, kind: ItemKind) -> Vec<ItemId> {
    let list = items.list(kind);
    let system = list.iter().enumerate().filter(|(_, entry)| entry.space == Space::System);
    let is_hidden = |(at, entry): &(usize, &Entry)| {
        let before = list.iter().take(*at).rev().take_while(|other| other.id == entry.id);
        before.into_iter().any(|other| other.space == Space::Project)
    };
    system.filter(is_hidden).map(|(_, entry)| entry.id.clone()).collect()
}

/// Returns the items that the standard library's directives extend and inject, those directives themselves, and the
/// items that its hooks fetch.
fn stdlib_dependencies(items: &Items<'_>) -> BTreeSet<(ItemKind, ItemId)> {
    let mut used = BTreeSet::new();
    for entry in items.list(ItemKind::Directive).iter().filter(|e| e.space == Space::System) {
        let Some(directive) = items.system_directive(&entry.id) else { continue };
        let context = &directive.context;
        for item in context.system.iter().chain(&context.before).chain(&context.after) {
            used.insert((ItemKind::Knowledge, item.node.clone()));
        }
        used.extend(directive.extends.iter().map(|e| (ItemKind::Directive, e.node.clone())));
        used.insert((ItemKind::Directive, entry.id.clone()));
    }
    let hooks = items.hook_files().builtin.iter().filter_map(|hook| hook.fetched.clone());
    used.extend(hooks.map(|id| (ItemKind::Knowledge, id)));
    used
}
