//! Reports project knowledge that no prompt includes and no grant can fetch. Exports of finished threads are exempt,
//! because threads find them by search.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use rye_grammar::capability::is_literal;
use rye_grammar::{ItemId, Span};

use crate::compose::{Composed, ComposedHook};
use crate::diagnostics::{ContextError, Diagnostic, Diagnostics, ItemError};
use crate::hook::HookSource;
use crate::item::{Dependency, Directive, HookDecl, Invalidation, Items, Knowledge, Permissions};
use crate::semantics::glob::Glob;
use crate::world::{Entry, ItemKind, Space};

use super::incremental::{Merge, Unit, is_project_item};
use super::{is_export, project_ids};

/// References to knowledge found so far. The span of a reference is the key, so that a line that many directives
/// inherit is recorded once.
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
            self.add_reference(origin.span, id);
        }
        for suppression in &composed.suppressions {
            if let Ok(id) = ItemId::parse(&suppression.id) {
                self.add_reference(suppression.origin.span, &id);
            }
        }
        // Hooks of files are the same for every directive, and are added once.
        let of_chain = |hook: &&ComposedHook| matches!(hook.decl.source, HookSource::Directive { .. });
        for hook in composed.hooks.iter().filter(of_chain) {
            self.hook(&hook.decl);
        }
        if let Some(permissions) = &composed.permissions {
            self.permissions(&permissions.value);
        }
    }

    /// Records only the references in a directive's own declarations, because its extends chain could not be composed.
    /// `None` stands for an unreadable directive, which may reference any knowledge.
    pub fn add_uncomposed(&mut self, directive: Option<&Directive>) {
        let Some(directive) = directive else {
            self.incomplete = true;
            return;
        };
        let context = &directive.context;
        for id in context.system.iter().chain(&context.before).chain(&context.after) {
            self.add_reference(Some(id.span), &id.node);
        }
        for hook in &directive.hooks {
            self.hook(hook);
        }
        if let Some(permissions) = &directive.permissions {
            self.permissions(permissions);
        }
    }

    /// Records that the text at `span` names the knowledge `id`. Without a span, the text comes from no file, and
    /// nothing is recorded.
    fn add_reference(&mut self, span: Option<Span>, id: &ItemId) {
        if let Some(span) = span.filter(|span| !self.named.contains_key(span)) {
            self.named.insert(span, id.clone());
        }
    }

    fn permissions(&mut self, permissions: &Permissions) {
        for grant in &permissions.grants {
            self.add_pattern(&grant.pattern.0);
        }
    }

    /// Records a capability pattern if the pattern can allow a thread to read knowledge.
    fn add_pattern(&mut self, pattern: &String) {
        if can_read(pattern) && !self.patterns.contains(pattern) {
            self.patterns.insert(pattern.clone());
        }
    }

    fn hook(&mut self, hook: &HookDecl) {
        for grant in &hook.grants {
            self.add_pattern(&grant.node.0);
        }
        if let Some(id) = &hook.fetched {
            self.add_reference(Some(hook.span), id);
        }
    }
}

impl Merge for KnowledgeUses {
    fn merge(&mut self, other: &Self) {
        self.incomplete |= other.incomplete;
        for (span, id) in &other.named {
            self.add_reference(Some(*span), id);
        }
        for pattern in &other.patterns {
            self.add_pattern(pattern);
        }
    }
}

/// Project knowledge that no directive references. Maintained incrementally, because building the set on every check
/// costs too much.
#[derive(Default)]
pub struct UnreferencedKnowledge {
    list: Option<Arc<[Entry]>>,
    /// For each knowledge id, the number of places that reference it.
    places: HashMap<ItemId, usize>,
    ids: BTreeSet<ItemId>,
}

impl UnreferencedKnowledge {
    /// Replaces the list of all knowledge, and finds the items of the project in it that nothing references.
    pub fn set_list(&mut self, list: &Arc<[Entry]>) {
        let unnamed = project_ids(list).filter(|id| !self.places.contains_key(*id) && is_only_in_project(list, id));
        self.ids = unnamed.cloned().collect();
        self.list = Some(list.clone());
    }

    /// Replaces the references to knowledge of a group of directives: removes `before`, the references that an earlier
    /// check found, and adds `now`.
    pub fn replace(&mut self, before: Option<&KnowledgeUses>, now: &KnowledgeUses) {
        for id in now.named.values() {
            let places = self.places.entry(id.clone()).or_default();
            *places += 1;
            if *places == 1 {
                self.ids.remove(id);
            }
        }
        for id in before.into_iter().flat_map(|before| before.named.values()) {
            let Some(places) = self.places.get_mut(id) else { continue };
            *places -= 1;
            if *places == 0 {
                self.places.remove(id);
                if self.list.as_ref().is_some_and(|list| is_only_in_project(list, id)) {
                    self.ids.insert(id.clone());
                }
            }
        }
    }
}

/// Returns true if the item exists only in the project and is no export of a thread. An item that also exists in
/// another space does not count, because the project shadows it on purpose.
fn is_only_in_project(list: &[Entry], id: &ItemId) -> bool {
    let at = list.partition_point(|entry| entry.id < *id);
    let mut same = list.iter().skip(at).take_while(|entry| entry.id == *id).map(|entry| entry.space);
    same.next() == Some(Space::Project) && same.next().is_none() && !is_export(ItemKind::Knowledge, id)
}

/// Reports project knowledge that nothing includes, fetches or mentions.
pub fn report_unreached(
    items: &Items<'_>,
    several: &[&KnowledgeUses],
    unnamed: &UnreferencedKnowledge,
    mentions: &mut KnowledgeMentions,
    found: &mut Diagnostics,
) {
    let known = std::mem::take(mentions);
    if unnamed.ids.is_empty() || several.iter().any(|uses| uses.incomplete) {
        return;
    }
    let mut of_files = KnowledgeUses::default();
    let files = items.hook_files();
    for hook in [&files.user, &files.builtin, &files.project, &files.infra].into_iter().flatten() {
        of_files.hook(hook);
    }
    let several = || several.iter().copied().chain([&of_files]);
    let named: BTreeSet<&ItemId> = of_files.named.values().collect();
    let left = unnamed.ids.iter().filter(|id| !named.contains(id));
    let with_capabilities =
        |id: &ItemId| READ_KNOWLEDGE_PREFIXES.map(|prefix| (format!("{prefix}{}", id.dotted()), id.clone()));
    let mut left: BTreeMap<String, ItemId> = left.flat_map(with_capabilities).collect();
    let patterns: BTreeSet<&String> = several().flat_map(|uses| &uses.patterns).collect();
    for pattern in patterns {
        remove_readable(pattern, &mut left);
    }
    left.retain(|capability, _| capability.starts_with(FETCH_KNOWLEDGE_PREFIX));
    *mentions = known.find_mentions(items, left.into_values().collect());
    for (id, by) in &mentions.by {
        // A file with errors was already reported by the parser.
        let knowledge = items.knowledge(id).filter(|k| by.is_none() && !items.is_broken(k.file.source));
        let Some(knowledge) = knowledge else { continue };
        let span = knowledge.name.as_ref().map_or(Span::new(knowledge.file.source, 0, 0), |name| name.span);
        found.push(ContextError::Unreached { id: id.to_string(), span });
    }
}

/// Drops the report that a knowledge item is unused if a misspelled id probably means this item. The misspelled id is
/// reported too, and its correction makes the item used.
pub fn drop_misspelled(found: &mut Diagnostics) {
    let meant = |one: &Diagnostic| {
        if let Diagnostic::Context(ContextError::UnknownItem { suggestion, .. })
        | Diagnostic::Item(ItemError::Dangling { suggestion, .. }) = one
        {
            suggestion.clone()
        } else {
            None
        }
    };
    let meant: BTreeSet<String> = found.iter().filter_map(meant).collect();
    let invalid = found.iter().filter(|one| one.code() == "syntax::reference").map(ToString::to_string);
    let invalid: BTreeSet<String> =
        invalid.filter_map(|message| Some(plain_letters(message.split('`').nth(1)?))).collect();
    let is_meant = |one: &Diagnostic| {
        let Diagnostic::Context(ContextError::Unreached { id, .. }) = one else { return false };
        meant.contains(id) || invalid.contains(&plain_letters(id))
    };
    found.retain(|one| !is_meant(one));
}

/// Returns the letters and digits of an id or a path in lowercase, so that an invalid id equals the valid id that its
/// author probably meant. The folder of knowledge and the extension are removed first.
fn plain_letters(text: &str) -> String {
    let inside = text.strip_prefix(ItemKind::Knowledge.folder()).unwrap_or(text);
    let stem = ItemKind::Knowledge.extensions().iter().find_map(|ext| inside.strip_suffix(ext)?.strip_suffix('.'));
    let kept = stem.unwrap_or(inside).chars().filter(|c| c.is_alphanumeric());
    kept.flat_map(char::to_lowercase).collect()
}

/// Mentions of ids in the texts of bodies, knowledge and hook actions. Only the ids of knowledge that no declaration
/// references are searched for.
#[derive(Default)]
pub struct KnowledgeMentions {
    /// The first mention found for each searched id; `None` if there is none.
    by: BTreeMap<ItemId, Option<MentionPlace>>,
    /// Items whose text may have changed since the mentions were found.
    changed: Vec<Unit>,
}

enum MentionPlace {
    Of(Unit),
    /// The mention is in a hook file, or in a file with errors, which may mention any id.
    Any,
}

impl KnowledgeMentions {
    /// Drops the mentions whose texts may have changed, and records the changed items.
    pub fn invalidate(&mut self, changes: &Invalidation) {
        let unit = |read: &Dependency| match read {
            Dependency::Item(kind @ (ItemKind::Directive | ItemKind::Knowledge), id) => Some((*kind, id.clone())),
            Dependency::Item(ItemKind::Tool | ItemKind::Config | ItemKind::Prompt | ItemKind::Skill, _)
            | Dependency::Exists(..)
            | Dependency::List(_)
            | Dependency::Pattern(_)
            | Dependency::Palette(_) => None,
        };
        self.changed = changes.reads.iter().filter_map(unit).collect();
        self.by.retain(|_, place| match place {
            Some(MentionPlace::Of(unit)) => !changes.everything && !self.changed.contains(unit),
            Some(MentionPlace::Any) => false,
            None => !changes.everything,
        });
    }

    /// Drops the mentions that were found in unreached knowledge. Knowledge is unreached if its id is in `ids` and no
    /// item mentions the id. A dropped mention can leave further knowledge unreached, so the search is repeated until
    /// nothing changes.
    fn drop_unreached_mentions(&mut self, ids: &[ItemId]) {
        loop {
            let is_reached = |unit: &Unit| {
                unit.0 != ItemKind::Knowledge || !ids.contains(&unit.1) || matches!(self.by.get(&unit.1), Some(Some(_)))
            };
            let lost: Vec<ItemId> = self
                .by
                .iter()
                .filter(|(_, place)| matches!(place, Some(MentionPlace::Of(unit)) if !is_reached(unit)))
                .map(|(id, _)| id.clone())
                .collect();
            if lost.is_empty() {
                return;
            }
            for id in lost {
                self.by.remove(&id);
            }
        }
    }

    /// Finds a mention of each id in `ids`. Valid mentions of the previous search are kept. An id that the previous
    /// search did not find is searched for only in changed items.
    fn find_mentions(mut self, items: &Items<'_>, ids: Vec<ItemId>) -> Self {
        let before: Vec<ItemId> = self.by.keys().cloned().collect();
        self.drop_unreached_mentions(&ids);
        let candidates: BTreeSet<ItemId> = ids.iter().cloned().collect();
        let mut by = BTreeMap::new();
        let (mut anew, mut left) = (BTreeSet::new(), BTreeSet::new());
        for id in ids {
            match self.by.remove(&id) {
                Some(Some(place)) => {
                    by.insert(id, Some(place));
                    continue;
                }
                Some(None) => {}
                None => {
                    anew.insert(id.clone());
                }
            }
            left.insert(id);
        }
        let mut search = MentionSearch { left, by };
        let is_source = |unit: &Unit| unit.0 == ItemKind::Directive || !candidates.contains(&unit.1);
        // Knowledge that became reached counts as changed, because its mentions did not count while it was unreached.
        let newly_reached = before.into_iter().filter(|id| !candidates.contains(id));
        let changed = self.changed.into_iter().chain(newly_reached.map(|id| (ItemKind::Knowledge, id)));
        for unit in changed.filter(is_source) {
            if is_project_item(&items.list(unit.0), &unit.1) && !is_export(unit.0, &unit.1) {
                search.unit(items, &unit);
            }
        }
        let files = items.hook_files();
        for hook in [&files.user, &files.project, &files.infra].into_iter().flatten() {
            search.text(&describe_action(hook), &|| MentionPlace::Any);
        }
        for text in items.broken_texts() {
            search.text(&text, &|| MentionPlace::Any);
        }
        let nowhere: BTreeSet<ItemId> = search.left.extract_if(.., |id| !anew.contains(id)).collect();
        for kind in [ItemKind::Directive, ItemKind::Knowledge] {
            let list = items.list(kind);
            for id in project_ids(&list).filter(|id| !is_export(kind, id)) {
                if search.left.is_empty() {
                    break;
                }
                let unit = (kind, id.clone());
                if is_source(&unit) {
                    search.unit(items, &unit);
                }
            }
        }
        search.left.extend(nowhere);
        search.search_mentioned_entries(items);
        let MentionSearch { left, mut by } = search;
        by.extend(left.into_iter().map(|id| (id, None)));
        Self { by, changed: Vec::new() }
    }
}

/// A search for ids in all texts that can mention an id: bodies, knowledge and its references, hook actions.
struct MentionSearch {
    left: BTreeSet<ItemId>,
    by: BTreeMap<ItemId, Option<MentionPlace>>,
}

impl MentionSearch {
    /// Searches for the ids in `left`, which have no mention yet, in the texts of all mentioned knowledge entries. An
    /// entry whose first mention this search finds is then searched too.
    fn search_mentioned_entries(&mut self, items: &Items<'_>) {
        let mut searched = BTreeSet::new();
        while !self.left.is_empty() {
            let found = self.by.iter().filter(|(_, place)| place.is_some()).map(|(id, _)| id);
            let Some(next) = found.clone().find(|id| !searched.contains(*id)).cloned() else { return };
            self.unit(items, &(ItemKind::Knowledge, next.clone()));
            searched.insert(next);
        }
    }

    fn unit(&mut self, items: &Items<'_>, unit: &Unit) {
        let place = || MentionPlace::Of(unit.clone());
        match unit.0 {
            ItemKind::Directive => {
                let Some(directive) = items.directive(&unit.1) else { return };
                self.text(&directive.body.node, &place);
                for hook in &directive.hooks {
                    self.text(&describe_action(hook), &place);
                }
            }
            ItemKind::Knowledge => {
                let Some(knowledge) = items.knowledge(&unit.1) else { return };
                self.text(&knowledge.body.node, &place);
                for value in ["references", "extends"].iter().filter_map(|key| knowledge.metadata.get(*key)) {
                    self.text(&value.to_string(), &place);
                }
            }
            ItemKind::Tool | ItemKind::Config | ItemKind::Prompt | ItemKind::Skill => {}
        }
    }

    fn text(&mut self, text: &str, place: &dyn Fn() -> MentionPlace) {
        for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/'))) {
            if let Some(id) = self.left.take(word) {
                self.by.insert(id, Some(place()));
            }
        }
    }
}

/// Reports an `id` or a `category` of knowledge that contradicts the path of the file. Also reports references in the
/// metadata (`extends`, `references` and others) to ids that no item has. A reference that cannot be an id, such as the
/// title of a book, is a remark for readers and is not reported.
pub fn check_references(items: &Items<'_>, knowledge: &Knowledge, found: &mut Diagnostics) {
    for (key, name) in &knowledge.names {
        let own = match *key {
            "id" => Some(("id", knowledge.file.id.as_str())),
            "category" => Some(("category", knowledge.file.id.category())),
            _ => None,
        };
        if let Some((field, expected)) = own {
            if name.node != expected {
                let (written, expected, span) = (name.node.clone(), expected.to_owned(), name.span);
                found.push(ItemError::KnowledgeMismatch { field, written, expected, span });
            }
            continue;
        }
        // A single word in `references` is a remark: a title, a file, an author.
        if *key == "references" && !name.node.contains('/') {
            continue;
        }
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

const FETCH_KNOWLEDGE_PREFIX: &str = "rye.fetch.knowledge.";
/// Prefixes of the capabilities to read knowledge: `rye_fetch` and `rye_execute` both return its text.
const READ_KNOWLEDGE_PREFIXES: [&str; 2] = [FETCH_KNOWLEDGE_PREFIX, "rye.execute.knowledge."];

/// Returns the part of a pattern before its first wildcard.
fn literal_prefix(pattern: &str) -> &str {
    pattern.split(['*', '?', '[']).next().unwrap_or_default()
}

fn can_read(pattern: &str) -> bool {
    let literal = literal_prefix(pattern);
    READ_KNOWLEDGE_PREFIXES.iter().any(|prefix| prefix.starts_with(literal) || literal.starts_with(prefix))
}

/// Removes from `left` the knowledge that a grant of `pattern` allows a thread to read. The keys of `left` are the
/// capabilities to read the knowledge, one for each of [`READ_KNOWLEDGE_PREFIXES`].
fn remove_readable(pattern: &str, left: &mut BTreeMap<String, ItemId>) {
    let literal = literal_prefix(pattern);
    let glob = Glob::new(pattern);
    let stretch = left.range(literal.to_owned()..).take_while(|(capability, _)| capability.starts_with(literal));
    let whole = pattern.strip_suffix('*').is_some_and(is_literal);
    let hit: BTreeSet<ItemId> = stretch.filter(|(c, _)| whole || glob.matches(c)).map(|(_, id)| id.clone()).collect();
    for id in hit {
        for prefix in READ_KNOWLEDGE_PREFIXES {
            left.remove(&format!("{prefix}{}", id.dotted()));
        }
    }
}

fn describe_action(hook: &HookDecl) -> String {
    hook.action.as_ref().and_then(|action| serde_json::to_string(&action.node).ok()).unwrap_or_default()
}
