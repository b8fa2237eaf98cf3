//! The item cache of a compilation: every file is read on demand, parsed once and shared.

mod parse;
mod snapshot;

use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use rye_grammar::data::{Kind, Node};
use rye_grammar::{ItemId, Source, SourceId, Sources, Span, source, yaml};
use sha2::{Digest, Sha256};

use super::hook::read as hook_reader;
use super::{
    Directive, FileRef, HookDecl, Knowledge, OrderedHooks, PromptTemplate, SettingsLimits, Skill, Tool, config,
    prompt_template, skill, tool,
};
use crate::diagnostics::{Diagnostics, ItemError, closest};
use crate::primary::{Primary, possible_primaries};
use crate::world::{ContextFile, Entry, ItemKind, LocatedFile, Space, UnrecognizedFile, World, WorldError, hex};
pub(crate) use parse::HOOK_LISTS;
use parse::{broken_signature, parse_directive, parse_knowledge, read_hook_file, world_error};
use snapshot::DependencyLog;
pub use snapshot::{CacheSnapshot, Dependencies, Dependency, Invalidation};

/// The items of a world. Each item is read on first use and then cached.
pub struct Items<'w> {
    world: &'w dyn World,
    cache: Cache,
    /// A record of the reads from which each result was computed. `None` if no later compilation reuses the cache.
    log: Option<DependencyLog>,
    shared: SharedResults,
}

/// Results that many directives of one compilation share.
#[derive(Default)]
struct SharedResults {
    /// A memo: for each pattern of a grant, the primaries that the grant could allow.
    primaries: RefCell<HashMap<Box<str>, Rc<[Primary]>>>,
    limits: OnceCell<SettingsLimits>,
}

/// The items and diagnostics read so far.
#[derive(Default)]
struct Cache {
    sources: RefCell<Sources>,
    found: RefCell<BTreeMap<FaultSource, Diagnostics>>,
    directives: ById<Directive>,
    knowledge: ById<Knowledge>,
    tools: ById<Tool>,
    configs: ById<Node>,
    prompts: ById<PromptTemplate>,
    skills: ById<Skill>,
    /// The settings files of each space, not merged.
    layers: RefCell<HashMap<ItemId, Layers>>,
    /// Directives of the standard library that a higher space shadows; `hidden_knowledge` holds the shadowed knowledge.
    hidden_directives: ById<Directive>,
    hidden_knowledge: ById<Knowledge>,
    hooks: OnceCell<HookFiles>,
    lists: [OnceCell<Arc<[Entry]>>; ItemKind::ALL.len()],
    /// Kinds whose list could not be read; each of these kinds is reported once.
    unlisted: RefCell<BTreeSet<ItemKind>>,
    all_signed: OnceCell<bool>,
    parsed: Cell<usize>,
}

/// A cache that is no longer used and whose sources were moved out. Freeing its items takes time, so the owner decides
/// when to drop this value, or never drops it because the process exits.
#[derive(Clone, Default)]
pub struct DeferredDrop {
    _cache: Option<Rc<Cache>>,
}

impl std::fmt::Debug for DeferredDrop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rest")
    }
}

/// Maximum length in bytes of an item that is not a tool. Tools have their own bound.
const MAX_ITEM_BYTES: usize = 1 << 20;

const HOOK_CONFIG_IDS: [&str; 2] = ["agent/hook_conditions", "agent/hooks"];

/// A settings file in each space that has it, highest space first.
type Layers = Arc<[(Space, Arc<Node>)]>;

type ById<T> = RefCell<HashMap<ItemId, Option<Arc<T>>>>;

/// The file, item or list that a diagnostic belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum FaultSource {
    /// The list of all items of a kind.
    List(ItemKind),
    /// An item whose text cannot be read, so that no span in the text can be labeled.
    Item(ItemKind, ItemId),
    Source(SourceId),
}

/// The hooks of the settings files by source, each list in file order.
#[derive(Debug, Clone, Default)]
pub struct HookFiles {
    pub user: Vec<Arc<HookDecl>>,
    /// Built-in and context hooks of the standard library.
    pub builtin: Vec<Arc<HookDecl>>,
    pub project: Vec<Arc<HookDecl>>,
    /// The `infra_hooks` of every space: always layer 4, even if they declare another layer.
    pub infra: Vec<Arc<HookDecl>>,
    /// All hooks of the settings files, in the order for a directive that declares no hooks itself.
    pub line: OrderedHooks,
    /// The hooks that can set the route of a directive that declares no hooks itself, in evaluation order.
    pub routing: Vec<Arc<HookDecl>>,
}

impl<'w> Items<'w> {
    pub fn new(world: &'w dyn World) -> Self {
        Self { world, cache: Cache::default(), log: None, shared: SharedResults::default() }
    }

    /// Returns the directive of an id from the highest space that has it; `None` if no space has one, or if its file
    /// holds no readable directive.
    pub fn directive(&self, id: &ItemId) -> Option<Arc<Directive>> {
        self.cached(&self.cache.directives, ItemKind::Directive, id, parse_directive)
    }

    /// Returns the standard library's directive of an id, even if a higher space shadows it; `None` if the library has
    /// none.
    pub fn system_directive(&self, id: &ItemId) -> Option<Arc<Directive>> {
        let highest = self.directive(id)?;
        if highest.file.space == Space::System {
            return Some(highest);
        }
        self.cached_system(&self.cache.hidden_directives, ItemKind::Directive, id, parse_directive)
    }

    /// Returns the standard library's knowledge of an id, even if a higher space shadows it; `None` if the library has
    /// none.
    pub fn system_knowledge(&self, id: &ItemId) -> Option<Arc<Knowledge>> {
        let highest = self.knowledge(id)?;
        if highest.file.space == Space::System {
            return Some(highest);
        }
        self.cached_system(&self.cache.hidden_knowledge, ItemKind::Knowledge, id, |file, text, found| {
            Some(parse_knowledge(file, text, found))
        })
    }

    fn record(&self, read: impl FnOnce() -> Dependency) {
        if let Some(log) = &self.log {
            log.note(read);
        }
    }

    fn cached_system<T>(
        &self,
        cache: &ById<T>,
        kind: ItemKind,
        id: &ItemId,
        parse: impl FnOnce(FileRef, &str, &mut Diagnostics) -> Option<T>,
    ) -> Option<Arc<T>> {
        if let Some(known) = cache.borrow().get(id) {
            return known.clone();
        }
        let located = self.candidates(kind, id).into_iter().find(|l| l.space == Space::System);
        let item = located.and_then(|located| self.open(located, parse)).map(Arc::new);
        cache.borrow_mut().insert(id.clone(), item.clone());
        item
    }

    pub fn knowledge(&self, id: &ItemId) -> Option<Arc<Knowledge>> {
        self.cached(&self.cache.knowledge, ItemKind::Knowledge, id, |file, text, found| {
            Some(parse_knowledge(file, text, found))
        })
    }

    /// Returns the tool with this id; `None` if no space has one, or if its metadata cannot be read.
    pub fn tool(&self, id: &ItemId) -> Option<Arc<Tool>> {
        let scripts = self.world.scripts();
        self.cached(&self.cache.tools, ItemKind::Tool, id, |file, text, found| tool::read(file, text, scripts, found))
    }

    /// Returns the prompt template of an id; `None` if no space has one, or if its file cannot be read.
    pub fn prompt_template(&self, id: &ItemId) -> Option<Arc<PromptTemplate>> {
        self.cached_file(&self.cache.prompts, ItemKind::Prompt, id, |located| {
            let sha256 = hex(&Sha256::digest(&located.bytes));
            self.open(located, |file, text, found| Some(prompt_template::read(file, sha256, text, found)))
        })
    }

    /// Returns the skill with this id. `None` if there is no such skill, or if its front matter cannot be parsed or has
    /// no description.
    pub fn skill(&self, id: &ItemId) -> Option<Arc<Skill>> {
        self.cached_file(&self.cache.skills, ItemKind::Skill, id, |located| {
            let sha256 = hex(&Sha256::digest(&located.bytes));
            self.open(located, |file, text, found| skill::read(file, sha256, text, found))
        })
    }

    /// Returns a settings file (`agent/resilience`) merged over the spaces, where higher spaces win; `None` if no space
    /// has the file, or if it holds only comments.
    pub fn config(&self, id: &ItemId) -> Option<Arc<Node>> {
        if let Some(known) = self.cache.configs.borrow().get(id) {
            return known.clone();
        }
        // Merge from the lowest space up. A file that holds only comments overrides nothing.
        let layers = self.config_layers(id);
        let documents = layers.iter().rev().map(|(_, node)| node).filter(|node| !matches!(node.kind, Kind::Null));
        let merged =
            documents.cloned().reduce(|under, over| Arc::new(config::merge((*over).clone(), (*under).clone())));
        self.cache.configs.borrow_mut().insert(id.clone(), merged.clone());
        merged
    }

    /// Returns the settings file of the highest space that has it, not merged with the files of other spaces. `None` if
    /// no space has the file, or if the file cannot be read.
    pub fn highest_config(&self, id: &ItemId) -> Option<Node> {
        self.candidates(ItemKind::Config, id).into_iter().next().and_then(|located| self.parse_yaml(located))
    }

    /// Returns the settings file with this id from each space that has one, highest space first. The files are not
    /// merged.
    pub fn config_layers(&self, id: &ItemId) -> Layers {
        if let Some(known) = self.cache.layers.borrow().get(id) {
            return known.clone();
        }
        let files = self.candidates(ItemKind::Config, id).into_iter();
        let layers = files.filter_map(|located| Some((located.space, Arc::new(self.parse_yaml(located)?))));
        let layers: Layers = layers.collect();
        self.cache.layers.borrow_mut().insert(id.clone(), layers.clone());
        layers
    }

    /// Returns the merged settings file with this name; `None` if no space has the file, or if the name is not a valid
    /// id.
    pub fn config_by_name(&self, name: &str) -> Option<Arc<Node>> {
        if let Some(known) = self.cache.configs.borrow().get(name) {
            return known.clone();
        }
        self.config(&ItemId::parse(name).ok()?)
    }

    /// Returns the primaries that a grant could allow, computed once for each pattern.
    pub fn possible_primaries(&self, pattern: &str) -> Rc<[Primary]> {
        if let Some(known) = self.shared.primaries.borrow().get(pattern) {
            return Rc::clone(known);
        }
        let primaries: Rc<[Primary]> = possible_primaries(pattern).into();
        self.shared.primaries.borrow_mut().insert(pattern.into(), Rc::clone(&primaries));
        primaries
    }

    /// Returns the limits in settings files. The files are read at the first call only.
    pub fn settings_limits(&self) -> &SettingsLimits {
        self.shared.limits.get_or_init(|| SettingsLimits::read(self))
    }

    /// Returns the hooks of all hook files. The files are read at the first call only.
    pub fn hook_files(&self) -> &HookFiles {
        self.cache.hooks.get_or_init(|| self.read_hook_files())
    }

    /// Returns true if any space has the item. If the kind is not listed yet, only the one file is looked up, because
    /// listing thousands of items to find one is slow.
    pub fn exists(&self, kind: ItemKind, id: &ItemId) -> bool {
        self.record(|| Dependency::Exists(kind, id.clone()));
        let listed = self.list_slot(kind).get();
        if listed.is_some_and(|list| list.binary_search_by(|e| e.id.cmp(id)).is_ok()) {
            return true;
        }
        let is_whole = listed.is_some() && !self.cache.unlisted.borrow().contains(&kind);
        // A file that cannot be read still exists.
        !is_whole && self.world.candidates(kind, id).map_or(true, |files| !files.is_empty())
    }

    /// Returns true if the list of a kind is complete. If a list could not be read, nothing is known about missing
    /// items.
    pub fn is_listed(&self, kind: ItemKind) -> bool {
        self.entries(kind);
        !self.cache.unlisted.borrow().contains(&kind)
    }

    /// Returns the context files, outermost first. If a file cannot be read, reports the error and returns no files.
    pub fn context_files(&self, found: &mut Diagnostics) -> Vec<ContextFile> {
        self.world.context_files().unwrap_or_else(|error| {
            found.push(world_error(ItemKind::Knowledge, error));
            Vec::new()
        })
    }

    /// Returns true if the project is the user space itself.
    pub fn project_is_user_space(&self) -> bool {
        self.world.project_is_user_space()
    }

    /// Returns the content of the project's `.mcp.json`; `None` if there is none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn mcp_json(&self) -> Result<Option<Arc<[u8]>>, WorldError> {
        let read = self.world.mcp_json();
        if let Some(log) = &self.log {
            log.record_mcp_json(&read);
        }
        read
    }

    /// Returns the entries of a kind in all spaces, sorted by id, then by space.
    pub fn list(&self, kind: ItemKind) -> Arc<[Entry]> {
        self.record(|| Dependency::List(kind));
        self.entries(kind).clone()
    }

    fn list_slot(&self, kind: ItemKind) -> &OnceCell<Arc<[Entry]>> {
        let [directives, knowledge, tools, configs, prompts, skills] = &self.cache.lists;
        match kind {
            ItemKind::Directive => directives,
            ItemKind::Knowledge => knowledge,
            ItemKind::Tool => tools,
            ItemKind::Config => configs,
            ItemKind::Prompt => prompts,
            ItemKind::Skill => skills,
        }
    }

    fn entries(&self, kind: ItemKind) -> &Arc<[Entry]> {
        self.list_slot(kind).get_or_init(|| match self.world.list(kind) {
            Ok(entries) => entries.into(),
            Err(error) => {
                self.report(FaultSource::List(kind), world_error(kind, error));
                self.cache.unlisted.borrow_mut().insert(kind);
                Arc::new([])
            }
        })
    }

    /// Returns the project's files and folders that are not items; empty if they cannot be read. In that case, reading
    /// a list of items fails too, and that failure is reported.
    pub fn unrecognized_files(&self) -> Vec<UnrecognizedFile> {
        self.world.unrecognized_files().unwrap_or_default()
    }

    /// Returns the files and folders that may be settings under a wrong name. Empty if the folders cannot be
    /// read; the listing of their items then reports the error.
    pub fn misplaced_settings(&self) -> Vec<UnrecognizedFile> {
        self.world.misplaced_settings().unwrap_or_default()
    }

    /// Returns the existing id of this kind that is closest to an unknown id; `None` if none is close.
    pub fn nearest(&self, kind: ItemKind, text: &str) -> Option<String> {
        closest(text, self.list(kind).iter().map(|e| e.id.as_str()))
    }

    /// Returns the number of files that this compilation parsed, without files reused from an earlier one.
    pub fn parsed_file_count(&self) -> usize {
        self.cache.parsed.get()
    }

    /// Returns the world that the items are read from.
    pub fn world(&self) -> &'w dyn World {
        self.world
    }

    pub fn sources(&self) -> Ref<'_, Sources> {
        self.cache.sources.borrow()
    }

    /// Returns the source files read so far, and drops the rest of the cache.
    pub fn into_sources(self) -> Sources {
        self.cache.sources.into_inner()
    }

    /// Returns the sources, and the rest of the cache. Freeing the rest takes time, so the caller decides when to drop
    /// the second value.
    pub fn into_parts(mut self) -> (Sources, DeferredDrop) {
        let sources = std::mem::take(self.cache.sources.get_mut());
        (sources, DeferredDrop { _cache: Some(Rc::new(self.cache)) })
    }

    /// Returns the diagnostics of the files read so far, each once.
    pub fn diagnostics(&self) -> Diagnostics {
        let mut all = Diagnostics::new();
        for found in self.cache.found.borrow().values() {
            all.append(found.clone());
        }
        all
    }

    /// Returns true if reading the file with this id reported an error.
    pub fn is_broken(&self, source: SourceId) -> bool {
        self.cache.found.borrow().get(&FaultSource::Source(source)).is_some_and(Diagnostics::has_errors)
    }

    /// Returns the texts of the files that have errors. The references of such a file are unknown, so every item that
    /// the text names counts as referenced.
    pub fn broken_texts(&self) -> Vec<Arc<str>> {
        let (found, sources) = (self.cache.found.borrow(), self.cache.sources.borrow());
        let broken = found.iter().filter(|(_, d)| d.has_errors()).filter_map(|(about, _)| match about {
            FaultSource::Source(source) => sources.get(*source),
            FaultSource::List(_) | FaultSource::Item(..) => None,
        });
        broken.map(|source| source.text.clone()).collect()
    }

    fn cached<T>(
        &self,
        cache: &ById<T>,
        kind: ItemKind,
        id: &ItemId,
        parse: impl FnOnce(FileRef, &str, &mut Diagnostics) -> Option<T>,
    ) -> Option<Arc<T>> {
        self.cached_file(cache, kind, id, |located| self.open(located, parse))
    }

    fn cached_file<T>(
        &self,
        cache: &ById<T>,
        kind: ItemKind,
        id: &ItemId,
        read: impl FnOnce(LocatedFile) -> Option<T>,
    ) -> Option<Arc<T>> {
        self.record(|| Dependency::Item(kind, id.clone()));
        if let Some(known) = cache.borrow().get(id) {
            return known.clone();
        }
        let item = self.candidates(kind, id).into_iter().next().and_then(read).map(Arc::new);
        cache.borrow_mut().insert(id.clone(), item.clone());
        item
    }

    fn candidates(&self, kind: ItemKind, id: &ItemId) -> Vec<LocatedFile> {
        let given = self.world.candidates(kind, id);
        if let Some(log) = &self.log {
            log.given(kind, id, &given);
        }
        match given {
            Ok(found) => found,
            Err(error) => {
                self.report(FaultSource::Item(kind, id.clone()), world_error(kind, error));
                Vec::new()
            }
        }
    }

    /// Adds a file to the sources and parses it with `parse`. A file that is too long, is not UTF-8 or has an invalid
    /// signature is reported and not parsed. The result is then `None`.
    fn open<T>(
        &self,
        located: LocatedFile,
        parse: impl FnOnce(FileRef, &str, &mut Diagnostics) -> Option<T>,
    ) -> Option<T> {
        let path = located.space.display(&located.path);
        if is_too_long(&located) {
            let reason = format!("it has {} bytes, but at most {MAX_ITEM_BYTES} are allowed", located.bytes.len());
            self.report(
                FaultSource::Item(located.kind, located.id),
                ItemError::Unreadable { path, reason, span: None },
            );
            return None;
        }
        let text: Arc<str> = match source::decode(&located.bytes) {
            Ok(text) => text.into(),
            Err(invalid) => {
                let about = FaultSource::Item(located.kind, located.id);
                // Invalid bytes become replacement characters, so that a label shows the line.
                let shown = String::from_utf8_lossy(&located.bytes);
                let source = self.cache.sources.borrow_mut().add(Source::new(path.as_str(), shown.as_ref()));
                let end = invalid.offset + char::REPLACEMENT_CHARACTER.len_utf8();
                let span = Some(Span::new(source, invalid.offset, end));
                self.report(about, ItemError::Unreadable { path, reason: invalid.to_string(), span });
                return None;
            }
        };
        let source = self.cache.sources.borrow_mut().add(Source::new(path.as_str(), text.clone()));
        if let Some(log) = &self.log {
            log.record_opened(located.kind, &located.id, source);
        }
        if let Some(error) = broken_signature(source, path.clone(), &text) {
            self.report(FaultSource::Source(source), error);
            return None;
        }
        if located.space != Space::System
            && rye_grammar::signature::parse(source, &text).is_none()
            && self.requires_signatures()
        {
            let span = Some(Span::new(source, 0, 0));
            self.report(FaultSource::Source(source), ItemError::Unsigned { path, span });
            return None;
        }
        self.cache.parsed.set(self.cache.parsed.get() + 1);
        let file = FileRef { kind: located.kind, id: located.id, space: located.space, path: located.path, source };
        let mut found = Diagnostics::new();
        if let Some(span) =
            rye_grammar::signature::find_misplaced(source, &text).filter(|_| file.space != Space::System)
        {
            found.push(ItemError::LateSignature { path, span });
        }
        let item = parse(file, &text, &mut found);
        if !found.is_empty() {
            self.cache.found.borrow_mut().entry(FaultSource::Source(source)).or_default().append(found);
        }
        item
    }

    /// Returns true if any space requires a signature on every file (`language.md`, Signatures). The strictest setting
    /// applies: a project cannot relax the setting of its user.
    fn requires_signatures(&self) -> bool {
        *self.cache.all_signed.get_or_init(|| {
            let Ok(id) = ItemId::parse("agent/agent") else { return false };
            let files = self.world.candidates(ItemKind::Config, &id).unwrap_or_default();
            files.iter().filter_map(|located| source::decode(&located.bytes).ok()).any(|text| {
                let tree = yaml::parse(SourceId(u32::MAX), text).tree;
                tree.get("signing").and_then(|s| s.get("require")).and_then(Node::as_str) == Some("all")
            })
        })
    }

    fn parse_yaml(&self, located: LocatedFile) -> Option<Node> {
        self.open(located, |file, text, found| {
            let parsed = yaml::parse(file.source, text);
            found.syntax(parsed.errors);
            Some(parsed.tree)
        })
    }

    fn report(&self, about: FaultSource, error: ItemError) {
        self.cache.found.borrow_mut().entry(about).or_default().push(error);
    }

    fn read_hook_files(&self) -> HookFiles {
        let mut files = HookFiles::default();
        for name in HOOK_CONFIG_IDS {
            let Ok(id) = ItemId::parse(name) else { continue };
            for located in self.candidates(ItemKind::Config, &id) {
                let space = located.space;
                self.open(located, |file, text, found| {
                    let parsed = yaml::parse(file.source, text);
                    found.syntax(parsed.errors);
                    read_hook_file(&parsed.tree, space, &mut files, found);
                    Some(())
                });
            }
        }
        let mut found = Diagnostics::new();
        for space in Space::ALL {
            let all = [&files.user, &files.builtin, &files.project, &files.infra].into_iter().flatten();
            let of_space: Vec<_> = all.filter(|h| h.space == space).cloned().collect();
            hook_reader::check_unique_ids("hooks", &of_space, &mut found);
        }
        for diagnostic in found {
            // Each of these diagnostics points into a hook file, and is dropped when that file is read again.
            let Some(label) = diagnostic.labels().into_iter().next() else { continue };
            self.cache.found.borrow_mut().entry(FaultSource::Source(label.span.source)).or_default().push(diagnostic);
        }
        let all = || [&files.user, &files.builtin, &files.project, &files.infra].into_iter().flatten();
        (files.line, files.routing) = (OrderedHooks::new(all().cloned().collect()), OrderedHooks::routing(all()));
        files
    }
}

/// Returns true for an item beyond [`MAX_ITEM_BYTES`]. Tools are exempt because they are programs, and exports of
/// threads because they contain whole replies.
fn is_too_long(located: &LocatedFile) -> bool {
    let bounded = match located.kind {
        ItemKind::Directive | ItemKind::Config | ItemKind::Prompt | ItemKind::Skill => true,
        ItemKind::Knowledge => !located.id.as_str().starts_with("agent/threads/"),
        ItemKind::Tool => false,
    };
    bounded && located.bytes.len() > MAX_ITEM_BYTES
}
