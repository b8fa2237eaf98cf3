//! Reports these items of the project:
//!
//! - A directive that shadows a directive of the standard library, and knowledge that shadows knowledge which a
//!   directive or a hook of the library provides. The shadowing item affects every directive that extends a directive
//!   of the library (`language.md` 1), so the report states the difference in tokens.
//! - A tool that shadows a tool of the standard library. Every grant and call of the id then means the project's tool.
//! - A prompt template or skill that shadows another file. A user calls these items by name.

use std::collections::BTreeSet;

use rye_grammar::{ItemId, SourceId, Span};

use crate::diagnostics::{Diagnostics, ItemError};
use crate::item::Items;
use crate::plan::Tokenizer;
use crate::world::{Entry, ItemKind, Space};

/// The tokenizer with which a shadowing text and the shadowed text are compared. The tokenizer does not depend on a
/// model, because directives with different models may use the texts.
const TOKENIZER: Tokenizer = Tokenizer::Characters;

pub fn check(items: &Items<'_>, found: &mut Diagnostics) {
    check_called_items(items, found);
    let knowledge = project_and_system_ids(items, ItemKind::Knowledge);
    let directives = project_and_system_ids(items, ItemKind::Directive);
    for id in project_and_system_ids(items, ItemKind::Tool) {
        let Some(tool) = items.tool(&id) else { continue };
        let span = Span::new(tool.file.source, 0, 0);
        found.push(ItemError::Shadows { kind: ItemKind::Tool, id: id.to_string(), tokens: None, span });
    }
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
            tokens: Some((TOKENIZER.count(&over.body.node), TOKENIZER.count(&under.body.node))),
            span,
        });
    }
    for id in directives.iter().filter(|id| used.contains(&(ItemKind::Directive, (*id).clone()))) {
        let (Some(over), Some(under)) = (items.directive(id), items.system_directive(id)) else { continue };
        found.push(ItemError::Shadows {
            kind: ItemKind::Directive,
            id: id.to_string(),
            tokens: Some((TOKENIZER.count(&over.body.node), TOKENIZER.count(&under.body.node))),
            span: over.span,
        });
    }
}

/// Reports each file, in any space, that a prompt template or a skill of the project shadows.
fn check_called_items(items: &Items<'_>, found: &mut Diagnostics) {
    for kind in [ItemKind::Prompt, ItemKind::Skill] {
        let list = items.list(kind);
        for entries in list.chunk_by(|one, other| one.id == other.id).filter(|entries| entries.len() > 1) {
            let own = entries.iter().filter(|entry| entry.space == Space::Project);
            let Some(read) = kind.highest(own.map(|entry| entry.path.as_ref())) else { continue };
            let Some(id) = entries.first().map(|entry| &entry.id) else { continue };
            let Some(source) = called_item_source(items, kind, id) else { continue };
            let shadowed = entries.iter().filter(|entry| entry.space != Space::Project || entry.path.as_ref() != read);
            found.extend(shadowed.map(|entry| ItemError::ShadowsFile {
                kind,
                id: id.to_string(),
                path: entry.space.display(&entry.path),
                span: Span::new(source, 0, 0),
            }));
        }
    }
}

/// Returns the source of a prompt template or a skill; `None` if its file was not loaded, which has been reported.
fn called_item_source(items: &Items<'_>, kind: ItemKind, id: &ItemId) -> Option<SourceId> {
    match kind {
        ItemKind::Prompt => items.prompt_template(id).map(|template| template.file.source),
        ItemKind::Skill => items.skill(id).map(|skill| skill.file.source),
        ItemKind::Directive | ItemKind::Knowledge | ItemKind::Tool | ItemKind::Config => None,
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

/// Returns the standard library's directives, the items that they extend and inject, and the items that the library's
/// hooks fetch.
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
