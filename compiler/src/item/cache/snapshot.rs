//! Keeps the item cache for the next compilation, and records which reads each result depends on. A restore compares
//! the recorded reads with the current lists and files of the world. Files that the world reports as unchanged are not
//! compared.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use rye_grammar::{ItemId, SourceId};

use super::{Cache, FaultSource, HOOK_CONFIG_IDS, Items, SharedResults};
use crate::plan::Grant;
use crate::world::{Entry, ItemKind, LocatedFile, World, WorldError, WorldState};

/// A dependency of a result. There is no variant for settings, because every result depends on the settings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dependency {
    /// The content of an item, or its absence.
    Item(ItemKind, ItemId),
    /// The existence of an item, whatever its content.
    Exists(ItemKind, ItemId),
    /// The list of items of a kind.
    List(ItemKind),
    /// The existence of a match for a capability pattern.
    Pattern(String),
    /// The palette for these grants.
    Palette(Arc<[Grant]>),
}

/// The dependencies of a result: the reads that were made while it was computed, sorted and without duplicates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dependencies(Vec<Dependency>);

/// The differences between an earlier state of the world and the current state. A result has to be computed again if it
/// depends on one of `reads`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Invalidation {
    /// True if settings changed or no earlier state is known: every result has to be computed again.
    pub everything: bool,
    pub reads: BTreeSet<Dependency>,
}

/// The cache of the items and the log of its reads, kept after a compilation for the next one.
#[derive(Default)]
pub struct CacheSnapshot {
    cache: Cache,
    log: DependencyLog,
}

/// A log of all that was read: the results that the world returned, the sources that were opened for each item, and the
/// dependencies of each call of [`Items::tracked`] that has not returned yet.
#[derive(Default)]
pub(super) struct DependencyLog {
    given: RefCell<[HashMap<ItemId, CandidatesResult>; ItemKind::ALL.len()]>,
    /// The sources of each item that was opened. The field `items` holds the inverse: the item of each source.
    opened: RefCell<HashMap<(ItemKind, ItemId), Vec<SourceId>>>,
    items: RefCell<HashMap<SourceId, (ItemKind, ItemId)>>,
    /// The state of the world when the reads were recorded; `None` if the world does not track changes.
    state: Option<WorldState>,
    frames: RefCell<Vec<Vec<Dependency>>>,
    /// The content of `.mcp.json` when it was read; `None` if it was not read.
    mcp_json: RefCell<Option<McpJsonResult>>,
    /// The number of sources that no item uses any more.
    unused_sources: Cell<usize>,
}

type McpJsonResult = Result<Option<Arc<[u8]>>, WorldError>;
type CandidatesResult = Result<Vec<LocatedFile>, WorldError>;

/// Maximum number of unused sources with which a cache is always reused. A cache with more unused sources is dropped if
/// fewer of its sources are used than unused.
const MAX_UNUSED_SOURCES: usize = 1000;

impl Dependencies {
    pub fn contains(&self, read: &Dependency) -> bool {
        self.0.binary_search(read).is_ok()
    }
}

impl<'r> FromIterator<&'r Dependencies> for Dependencies {
    /// Merges the dependencies of several results.
    fn from_iter<I: IntoIterator<Item = &'r Self>>(several: I) -> Self {
        let mut all: Vec<&Dependency> = several.into_iter().flat_map(|reads| &reads.0).collect();
        all.sort_unstable();
        all.dedup();
        Self(all.into_iter().cloned().collect())
    }
}

impl Invalidation {
    /// Returns true if any of these dependencies changed.
    pub fn affects(&self, reads: &Dependencies) -> bool {
        self.everything || self.reads.iter().any(|read| reads.contains(read))
    }

    pub fn affects_list(&self, kind: ItemKind) -> bool {
        self.everything || self.reads.contains(&Dependency::List(kind))
    }
}

impl<'w> Items<'w> {
    /// Restores the items of an earlier compilation, and returns the changes in the world since then.
    pub fn restore(world: &'w dyn World, remembered: CacheSnapshot) -> (Self, Invalidation) {
        let CacheSnapshot { mut cache, mut log } = remembered;
        let changes = find_changes(world, &cache, &log).filter(|_| {
            let live = cache.sources.borrow().len().saturating_sub(log.unused_sources());
            log.unused_sources() <= live.max(MAX_UNUSED_SOURCES)
        });
        let Some((changes, lists)) = changes else {
            let (cache, log) =
                (Cache::default(), Some(DependencyLog { state: world.state(), ..DependencyLog::default() }));
            let shared = SharedResults::default();
            return (Self { world, cache, log, shared }, Invalidation { everything: true, reads: BTreeSet::new() });
        };
        for read in &changes.reads {
            if let Dependency::Item(kind, id) = read {
                evict(&cache, &log, *kind, id);
                if *kind == ItemKind::Config && HOOK_CONFIG_IDS.contains(&id.as_str()) {
                    cache.hooks.take();
                }
            }
        }
        cache.parsed.set(0);
        cache.lists = lists.map(Into::into);
        log.state = world.state();
        (Self { world, cache, log: Some(log), shared: SharedResults::default() }, changes)
    }

    /// Returns the snapshot for a later compilation; empty if no reads were recorded.
    pub fn into_snapshot(self) -> CacheSnapshot {
        self.log.map(|log| CacheSnapshot { cache: self.cache, log }).unwrap_or_default()
    }

    /// Runs `ask`, and returns its result and the reads that `ask` made. The reads are empty if reads are not recorded.
    /// The reads also count for an enclosing `tracked` call.
    pub fn tracked<T>(&self, ask: impl FnOnce() -> T) -> (T, Dependencies) {
        let Some(log) = &self.log else { return (ask(), Dependencies::default()) };
        log.frames.borrow_mut().push(Vec::new());
        let answer = ask();
        let mut frames = log.frames.borrow_mut();
        let mut reads = frames.pop().unwrap_or_default();
        reads.sort_unstable();
        reads.dedup();
        if let Some(outer) = frames.last_mut() {
            outer.extend(reads.iter().cloned());
        }
        (answer, Dependencies(reads))
    }

    /// Runs `ask`. The reads of `ask` do not become dependencies of the enclosing `tracked` call. The caller records
    /// the result of `ask` as one dependency instead.
    pub fn untracked<T>(&self, ask: impl FnOnce() -> T) -> T {
        let Some(log) = &self.log else { return ask() };
        let around = std::mem::take(&mut *log.frames.borrow_mut());
        let answer = ask();
        *log.frames.borrow_mut() = around;
        answer
    }

    /// Returns true if reads are recorded.
    pub fn is_tracking(&self) -> bool {
        self.log.is_some()
    }

    /// Records a dependency on a value that the caller already knows, without reading the value.
    pub fn record_read(&self, read: impl FnOnce() -> Dependency) {
        self.record(read);
    }

    /// Records the dependencies of a result that is already known.
    pub fn record_reads(&self, reads: &Dependencies) {
        if let Some(log) = &self.log {
            for read in &reads.0 {
                log.note(|| read.clone());
            }
        }
    }

    /// Evicts every item that has diagnostics and that no result depends on any more, so that these diagnostics are no
    /// longer reported. Keeps settings files. Returns the evicted items.
    pub fn retain_live(&self, is_in_use: impl Fn(&Dependency) -> bool) -> Vec<(ItemKind, ItemId)> {
        let Some(log) = &self.log else { return Vec::new() };
        let mut with_fault: Vec<(ItemKind, ItemId)> = {
            let found = self.cache.found.borrow();
            let items = log.items.borrow();
            let of = |about: &FaultSource| match about {
                FaultSource::Item(kind, id) => Some((*kind, id.clone())),
                FaultSource::Source(source) => items.get(source).cloned(),
                FaultSource::List(_) => None,
            };
            found.keys().filter_map(of).collect()
        };
        with_fault.retain(|(kind, id)| *kind != ItemKind::Config && !is_in_use(&Dependency::Item(*kind, id.clone())));
        for (kind, id) in &with_fault {
            evict(&self.cache, log, *kind, id);
        }
        with_fault
    }
}

impl DependencyLog {
    /// Records a dependency of the innermost running call of `Items::tracked`. If no call is running, records nothing
    /// and does not call `read`.
    pub(super) fn note(&self, read: impl FnOnce() -> Dependency) {
        if let Some(frame) = self.frames.borrow_mut().last_mut() {
            frame.push(read());
        }
    }

    pub(super) fn given(&self, kind: ItemKind, id: &ItemId, given: &CandidatesResult) {
        if let Some(of_kind) = self.given.borrow_mut().get_mut(kind as usize) {
            of_kind.insert(id.clone(), given.clone());
        }
    }

    pub(super) fn record_mcp_json(&self, read: &McpJsonResult) {
        *self.mcp_json.borrow_mut() = Some(read.clone());
    }

    pub(super) fn unused_sources(&self) -> usize {
        self.unused_sources.get()
    }

    pub(super) fn record_opened(&self, kind: ItemKind, id: &ItemId, source: SourceId) {
        self.opened.borrow_mut().entry((kind, id.clone())).or_default().push(source);
        self.items.borrow_mut().insert(source, (kind, id.clone()));
    }
}

type ItemLists = [Arc<[Entry]>; ItemKind::ALL.len()];

/// Compares the world with the earlier reads in `log`. Returns the changes and the current lists of items; `None` if
/// the cache cannot be reused.
fn find_changes(world: &dyn World, cache: &Cache, log: &DependencyLog) -> Option<(Invalidation, ItemLists)> {
    if !cache.unlisted.borrow().is_empty() {
        return None;
    }
    // `.mcp.json` configures MCP servers. Like all settings, the file affects every result.
    let everything = log.mcp_json.borrow().as_ref().is_some_and(|given| world.mcp_json() != *given);
    let mut changes = Invalidation { everything, ..Invalidation::default() };
    let mut lists: ItemLists = std::array::from_fn(|_| Arc::default());
    let touched = log.state.as_ref().and_then(|before| world.changed_since(before));
    for ((kind, slot), (known, given)) in
        ItemKind::ALL.into_iter().zip(&mut lists).zip(cache.lists.iter().zip(log.given.borrow().iter()))
    {
        let before = known.get()?;
        let mut moved = BTreeSet::new();
        *slot = before.clone();
        let may_differ = touched.is_none_or(|touched| touched.lists.contains(&kind));
        if may_differ && !world.list_unchanged(kind, before) {
            let now = world.list(kind).ok()?;
            moved = differing_ids(before, &now);
            changes.reads.extend(moved.iter().map(|id| Dependency::Exists(kind, id.clone())));
            *slot = now.into();
        }
        if !moved.is_empty() {
            changes.reads.insert(Dependency::List(kind));
        }
        let mut scan = |id: &ItemId, given: &CandidatesResult| {
            // If a missing item has appeared, the list of its kind has changed, so `moved` already contains the item.
            let was_there = given.as_ref().map_or(true, |files| !files.is_empty());
            if was_there && !moved.contains(id) && !world.candidates_unchanged(kind, id, given) {
                moved.insert(id.clone());
            }
        };
        match touched {
            Some(touched) => {
                let of_kind = touched.items.iter().filter(|(of, _)| *of == kind);
                of_kind.filter_map(|(_, id)| given.get_key_value(id)).for_each(|(id, given)| scan(id, given));
            }
            None => given.iter().for_each(|(id, given)| scan(id, given)),
        }
        if kind == ItemKind::Config && !moved.is_empty() {
            changes.everything = true;
            if moved.iter().any(|id| id.as_str() == SIGNING_CONFIG) {
                return None;
            }
            // The hook files are read together, so if one of them changed, all of them are read again.
            if HOOK_CONFIG_IDS.iter().any(|file| moved.iter().any(|id| id.as_str() == *file)) {
                moved.extend(HOOK_CONFIG_IDS.iter().filter_map(|file| ItemId::parse(file).ok()));
            }
        }
        changes.reads.extend(moved.into_iter().map(|id| Dependency::Item(kind, id)));
    }
    Some((changes, lists))
}

/// The settings file that contains `signing.require`. This setting determines which files may be read.
const SIGNING_CONFIG: &str = "agent/agent";

/// Returns the ids of the entries that only one of two sorted lists contains.
fn differing_ids(before: &[Entry], now: &[Entry]) -> BTreeSet<ItemId> {
    let (mut before, mut now) = (before.iter().peekable(), now.iter().peekable());
    let mut ids = BTreeSet::new();
    loop {
        let only = match (before.peek(), now.peek()) {
            (Some(old), Some(new)) if old == new => {
                before.next();
                now.next();
                continue;
            }
            (Some(old), Some(new)) if old < new => before.next(),
            (_, Some(_)) => now.next(),
            (Some(_), None) => before.next(),
            (None, None) => return ids,
        };
        ids.extend(only.map(|entry| entry.id.clone()));
    }
}

/// Removes an item from the cache. Hooks that were read from hook files stay.
fn evict(cache: &Cache, log: &DependencyLog, kind: ItemKind, id: &ItemId) {
    match kind {
        ItemKind::Directive => {
            cache.directives.borrow_mut().remove(id);
            cache.hidden_directives.borrow_mut().remove(id);
        }
        ItemKind::Knowledge => {
            cache.knowledge.borrow_mut().remove(id);
            cache.hidden_knowledge.borrow_mut().remove(id);
        }
        ItemKind::Tool => {
            cache.tools.borrow_mut().remove(id);
        }
        ItemKind::Config => {
            cache.configs.borrow_mut().remove(id);
            cache.layers.borrow_mut().remove(id);
        }
        ItemKind::Prompt => {
            cache.prompts.borrow_mut().remove(id);
        }
        ItemKind::Skill => {
            cache.skills.borrow_mut().remove(id);
        }
    }
    let mut found = cache.found.borrow_mut();
    found.remove(&FaultSource::Item(kind, id.clone()));
    for source in log.opened.borrow_mut().remove(&(kind, id.clone())).unwrap_or_default() {
        found.remove(&FaultSource::Source(source));
        log.items.borrow_mut().remove(&source);
        log.unused_sources.set(log.unused_sources() + 1);
    }
    if let Some(of_kind) = log.given.borrow_mut().get_mut(kind as usize) {
        of_kind.remove(id);
    }
}
