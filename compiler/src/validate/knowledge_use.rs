//! Knowledge of the project that no prompt can bring and no grant can fetch. Exports of finished threads are found by
//! searching, and are nobody's omission.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use rye_grammar::capability::is_plain;
use rye_grammar::{ItemId, Span};

use crate::compose::Composed;
use crate::diagnostics::{ContextError, Diagnostics, ItemError};
use crate::item::{Directive, HookDecl, Items, Knowledge, Permissions};
use crate::semantics::glob::Glob;
use crate::world::{ItemKind, Space};

use super::{is_export, of_project};

/// What brings knowledge, as far as the directives were gone through: by the place where it is written, because many
/// directives read the same line.
#[derive(Default)]
pub struct KnowledgeUses {
    named: BTreeMap<Span, ItemId>,
    patterns: BTreeSet<String>,
    incomplete: bool,
}

impl KnowledgeUses {
    pub fn add(&mut self, composed: &Composed) {
        let items = composed.system.iter().chain(&composed.before).chain(&composed.after);
        let duplicates = composed.duplicates.iter().map(|d| (&d.id, &d.dropped));
        for (id, origin) in items.map(|item| (&item.id, &item.origin)).chain(duplicates) {
            self.name(origin.span, id);
        }
        for suppression in &composed.suppressions {
            if let Ok(id) = ItemId::parse(&suppression.id) {
                self.name(suppression.origin.span, &id);
            }
        }
        for hook in &composed.hooks {
            self.hook(&hook.decl);
        }
        if let Some(permissions) = &composed.permissions {
            self.permissions(&permissions.value);
        }
    }

    /// A directive whose chain could not be walked, by what its own file says; one that could not be read at all may
    /// have named anything.
    pub fn alone(&mut self, directive: Option<&Directive>) {
        let Some(directive) = directive else {
            self.incomplete = true;
            return;
        };
        let context = &directive.context;
        for id in context.system.iter().chain(&context.before).chain(&context.after) {
            self.name(Some(id.span), &id.node);
        }
        for hook in &directive.hooks {
            self.hook(hook);
        }
        if let Some(permissions) = &directive.permissions {
            self.permissions(permissions);
        }
    }

    /// Takes over what another directive uses.
    pub fn merge(&mut self, other: &Self) {
        self.incomplete |= other.incomplete;
        for (span, id) in &other.named {
            self.name(Some(*span), id);
        }
        for pattern in &other.patterns {
            self.pattern(pattern);
        }
    }

    /// What nobody wrote names nothing that could be forgotten.
    fn name(&mut self, span: Option<Span>, id: &ItemId) {
        if let Some(span) = span.filter(|span| !self.named.contains_key(span)) {
            self.named.insert(span, id.clone());
        }
    }

    fn permissions(&mut self, permissions: &Permissions) {
        for grant in &permissions.grants {
            self.pattern(&grant.pattern.0);
        }
    }

    /// One that could let nobody fetch knowledge is not kept.
    fn pattern(&mut self, pattern: &String) {
        if can_fetch(pattern) && !self.patterns.contains(pattern) {
            self.patterns.insert(pattern.clone());
        }
    }

    fn hook(&mut self, hook: &HookDecl) {
        for grant in &hook.grants {
            self.pattern(&grant.node.0);
        }
        if let Some(id) = &hook.fetched {
            self.name(Some(hook.span), id);
        }
    }

    pub fn finish(mut self, items: &Items<'_>, found: &mut Diagnostics) {
        if self.incomplete {
            return;
        }
        let files = items.hook_files();
        for hook in [&files.user, &files.builtin, &files.project, &files.infra].into_iter().flatten() {
            self.hook(hook);
        }
        // An id that another space has too is looked up there by whoever named it.
        let list = items.list(ItemKind::Knowledge);
        let others: BTreeSet<&ItemId> = list.iter().filter(|e| e.space != Space::Project).map(|e| &e.id).collect();
        let named: HashSet<&ItemId> = self.named.values().collect();
        let is_left = |id: &&ItemId| !is_export(ItemKind::Knowledge, id) && !named.contains(id) && !others.contains(id);
        let left = of_project(&list).filter(is_left);
        let mut left: BTreeMap<String, ItemId> =
            left.map(|id| (format!("{FETCH}{}", id.dotted()), id.clone())).collect();
        for pattern in &self.patterns {
            if left.is_empty() {
                return;
            }
            fetched(pattern, &mut left);
        }
        if left.is_empty() {
            return;
        }
        let mut left: BTreeSet<&str> = left.values().map(ItemId::as_str).collect();
        let broken = items.broken_texts();
        for text in texts(items).iter().map(String::as_str).chain(broken.iter().map(AsRef::as_ref)) {
            for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/'))) {
                left.remove(word);
            }
        }
        for id in left {
            let knowledge = ItemId::parse(id).ok().and_then(|id| items.knowledge(&id));
            // One that cannot be read has said so itself.
            let Some(knowledge) = knowledge.filter(|k| !items.is_broken(k.file.source)) else { continue };
            let span = knowledge.name.as_ref().map_or(Span::new(knowledge.file.source, 0, 0), |name| name.span);
            found.push(ContextError::Unreached { id: id.to_owned(), span });
        }
    }
}

/// Ids that the metadata of knowledge names and no item has. A text that is no id is a remark for readers.
pub fn dangling(items: &Items<'_>, knowledge: &Knowledge, found: &mut Diagnostics) {
    for (key, name) in &knowledge.names {
        let Ok(id) = ItemId::parse(&name.node) else { continue };
        let (what, kinds): (_, &[ItemKind]) = match *key {
            "extends" => ("knowledge", &[ItemKind::Knowledge]),
            _ => ("item", &[ItemKind::Directive, ItemKind::Knowledge, ItemKind::Tool]),
        };
        if kinds.iter().any(|kind| items.exists(*kind, &id)) {
            continue;
        }
        let suggestion = kinds.iter().find_map(|kind| items.nearest(*kind, id.as_str()));
        found.push(ItemError::Dangling { key, what, id: id.to_string(), suggestion, span: name.span });
    }
}

const FETCH: &str = "rye.fetch.knowledge.";

/// What a pattern begins with for certain.
fn literal(pattern: &str) -> &str {
    pattern.split(['*', '?', '[']).next().unwrap_or_default()
}

fn can_fetch(pattern: &str) -> bool {
    let literal = literal(pattern);
    FETCH.starts_with(literal) || literal.starts_with(FETCH)
}

/// Takes out what a pattern lets a thread fetch.
fn fetched(pattern: &str, left: &mut BTreeMap<String, ItemId>) {
    let literal = literal(pattern);
    let glob = Glob::new(pattern);
    let stretch = left.range(literal.to_owned()..).take_while(|(capability, _)| capability.starts_with(literal));
    let whole = pattern.strip_suffix('*').is_some_and(is_plain);
    let hit: Vec<String> = stretch.filter(|(c, _)| whole || glob.matches(c)).map(|(c, _)| c.clone()).collect();
    for capability in hit {
        left.remove(&capability);
    }
}

/// Everything that can name an id in passing: bodies, knowledge with its references, the actions of hooks.
fn texts(items: &Items<'_>) -> Vec<String> {
    let mut texts = Vec::new();
    for id in of_project(&items.list(ItemKind::Directive)) {
        if let Some(directive) = items.directive(id) {
            texts.push(directive.body.node.clone());
            texts.extend(directive.hooks.iter().filter_map(|h| action(h)));
        }
    }
    for id in of_project(&items.list(ItemKind::Knowledge)).filter(|id| !is_export(ItemKind::Knowledge, id)) {
        if let Some(knowledge) = items.knowledge(id) {
            texts.push(knowledge.body.node.clone());
            let keys = ["references", "extends"];
            texts.extend(keys.iter().filter_map(|key| knowledge.metadata.get(*key)).map(ToString::to_string));
        }
    }
    let files = items.hook_files();
    texts.extend([&files.user, &files.project, &files.infra].into_iter().flatten().filter_map(|h| action(h)));
    texts
}

fn action(hook: &HookDecl) -> Option<String> {
    serde_json::to_string(&hook.action.as_ref()?.node).ok()
}
