//! Incremental checking. A unit is one item of the project. The results of each unit are cached with their
//! dependencies. After an edit, only the units that depend on a changed file are parsed, composed and checked again;
//! the results of all other units come from the cache. The result equals the result of [`super::check`].

use std::collections::HashMap;
use std::sync::Arc;

use rye_grammar::{ItemId, SourceId};

use super::capability::{PatternMatcher, PatternMemo};
use super::{
    CheckReport, Selection, body, cache_prefix, context, continuation, hook_use, interface, is_export, knowledge_use,
    project_ids, raises, repeated_text, run_checks, spawn,
};
use crate::diagnostics::Diagnostics;
use crate::item::{CacheSnapshot, DeferredDrop, Dependencies, Dependency, Invalidation, Items};
use crate::lower::cache::LowerCache;
use crate::semantics::condition::Fuel;
use crate::world::{Entry, ItemKind, Space, World};

/// The state kept between checks of a project.
#[derive(Default)]
pub struct CheckSession {
    items: CacheSnapshot,
    known: CheckCache,
}

impl CheckSession {
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks a world and reuses the results of the previous check. Callers need not report changes: each check reads
    /// the lists of the world again, and every file that an earlier check has read. Files that the world reports as
    /// unchanged ([`World::changed_since`]) are not read again.
    pub fn check(&mut self, world: &dyn World, selection: &Selection) -> CheckReport {
        let (items, changes) = Items::restore(world, std::mem::take(&mut self.items));
        let mut checked = run_checks(&items, changes, std::mem::take(&mut self.known), selection);
        self.known = std::mem::take(&mut checked.known);
        let (parsed, sources) = (items.parsed_file_count(), items.sources().clone());
        self.items = items.into_snapshot();
        checked.report(parsed, sources, DeferredDrop::default())
    }
}

/// The results of a check that the next check may reuse: the results for each item, and memos.
#[derive(Default)]
pub(super) struct CheckCache {
    pub reports: UnitReports,
    pub memo: PatternMemo,
    /// The sizes of two caches after the last eviction: the number of match results of patterns, and the number of
    /// palettes.
    pub sizes_after_eviction: (usize, usize),
    pub analyses: ProjectAnalyses,
    pub lowered: LowerCache,
    pub fuel: Fuel,
}

/// Memos of the analyses that need the results of all items together.
#[derive(Default)]
pub(super) struct ProjectAnalyses {
    pub mentions: knowledge_use::KnowledgeMentions,
    pub verdicts: hook_use::ConditionVerdicts,
}

impl CheckCache {
    /// Drops the results that `changes` invalidates, and adds to `changes` the patterns that no longer match the same
    /// items as before. Returns the cache with the remaining results, and a matcher with the match results of the
    /// previous check that are still valid.
    pub fn invalidate(
        mut self,
        items: &Items<'_>,
        changes: &mut Invalidation,
        directives: usize,
    ) -> (Self, PatternMatcher) {
        let fuel = Fuel::share(directives);
        changes.everything |= fuel != self.fuel;
        let answers = if changes.everything { PatternMemo::default() } else { std::mem::take(&mut self.memo) };
        let moved =
            [ItemKind::Directive, ItemKind::Knowledge, ItemKind::Tool].into_iter().any(|k| changes.affects_list(k));
        let (reach, patterns) = PatternMatcher::from_memo(answers, items, moved);
        changes.reads.extend(patterns.into_iter().map(Dependency::Pattern));
        self.lowered.invalidate(changes);
        self.analyses.mentions.invalidate(changes);
        if changes.everything {
            self.analyses.verdicts = hook_use::ConditionVerdicts::default();
        }
        self.fuel = fuel;
        (self, reach)
    }

    /// Evicts the patterns and palettes that are no longer in use, once many entries have accumulated. An entry is in
    /// use if the settings or the result of a checked item depend on it. `settings` are the dependencies of the
    /// settings.
    pub fn evict_unused(&mut self, settings: &Dependencies) {
        let reports = &self.reports;
        let is_used = |read: &Dependency| settings.contains(read) || reports.depends_on(read);
        if self.sizes_after_eviction == (0, 0) {
            // In the first check, all entries are in use.
            self.sizes_after_eviction = (self.memo.len(), self.lowered.palette_count());
        }
        let (patterns, palettes) = self.sizes_after_eviction;
        if self.memo.len() > 2 * patterns + EVICTION_SLACK {
            self.memo.evict_unused(is_used);
            self.sizes_after_eviction.0 = self.memo.len();
        }
        if self.lowered.palette_count() > 2 * palettes + EVICTION_SLACK {
            self.lowered.evict_palettes(is_used);
            self.sizes_after_eviction.1 = self.lowered.palette_count();
        }
    }
}

/// Minimum number of entries that a cache gains between two evictions. A cache evicts entries when their number exceeds
/// twice the number after the last eviction, plus this minimum.
const EVICTION_SLACK: usize = 100;

/// A list for each kind in [`UNIT_KINDS`]: the items of the kind, as the world lists them.
pub(super) type UnitLists = [Arc<[Entry]>; 5];

/// An item of the project that is checked on its own.
pub(super) type Unit = (ItemKind, ItemId);

/// The results of all units in order, in chunks of neighboring units. After an edit, only the chunks of the affected
/// units are merged again.
#[derive(Default)]
pub(super) struct UnitReports {
    /// The lists of items that were split into the chunks in `blocks`; `None` before the first check.
    lists: Option<UnitLists>,
    blocks: Vec<Chunk>,
    pub unnamed: knowledge_use::UnreferencedKnowledge,
}

/// Several units (items that are checked on their own) that follow each other in checking order, with their merged
/// results.
struct Chunk {
    reports: Vec<(Unit, Option<UnitReport>)>,
    /// The merged results and dependencies of the chunk; `None` until they are computed.
    merged: Option<UnitReport>,
}

impl UnitReports {
    /// Updates the results of the units in `lists`. Keeps a cached result if its dependencies did not change; `ask`
    /// computes the other results.
    pub fn update(
        &mut self,
        items: &Items<'_>,
        lists: &UnitLists,
        changes: &Invalidation,
        mut ask: impl FnMut(ItemKind, &ItemId, &mut UnitReport),
    ) {
        let is_divided = |known: &UnitLists| known.iter().zip(lists).all(|(known, list)| Arc::ptr_eq(known, list));
        if !self.lists.as_ref().is_some_and(is_divided) {
            self.split_into_chunks(lists);
        }
        for block in &mut self.blocks {
            if block.merged.as_ref().is_some_and(|whole| !changes.affects(&whole.reads)) {
                continue;
            }
            for ((kind, id), share) in &mut block.reports {
                if share.as_ref().is_some_and(|share| !changes.affects(&share.reads)) {
                    continue;
                }
                let mut new = UnitReport::default();
                let ((), reads) = items.tracked(|| ask(*kind, id, &mut new));
                new.reads = reads;
                *share = Some(new);
            }
            let whole = block.together();
            self.unnamed.replace(block.merged.as_ref().map(|whole| &whole.knowledge), &whole.knowledge);
            block.merged = Some(whole);
        }
    }

    /// Returns the merged results of each chunk, in order. A chunk is a sequence of units. A unit is an item that is
    /// checked on its own.
    pub fn merged_chunks(&self) -> Vec<&UnitReport> {
        self.blocks.iter().filter_map(|block| block.merged.as_ref()).collect()
    }

    /// Returns each directive with the files of its chains.
    pub fn chains(&self) -> impl Iterator<Item = (&ItemId, &[SourceId])> {
        let reports = self.blocks.iter().flat_map(|block| &block.reports);
        let directives = reports.filter(|((kind, _), _)| *kind == ItemKind::Directive);
        directives.filter_map(|((_, id), share)| Some((id, share.as_ref()?.chain.as_slice())))
    }

    /// Returns true if the stored result of any checked item depends on `read`.
    pub fn depends_on(&self, read: &Dependency) -> bool {
        self.blocks.iter().filter_map(|block| block.merged.as_ref()).any(|whole| whole.reads.contains(read))
    }

    /// Splits the units (the items that are checked on their own) into new chunks if the units differ from those of the
    /// last check. Otherwise, keeps the chunks.
    fn split_into_chunks(&mut self, lists: &UnitLists) {
        let units: Vec<(ItemKind, &ItemId)> = units(lists).collect();
        let before = self.blocks.iter().flat_map(|block| &block.reports).map(|((kind, id), _)| (*kind, id));
        if !before.eq(units.iter().copied()) {
            let before = std::mem::take(&mut self.blocks).into_iter().flat_map(|block| block.reports);
            let mut known: HashMap<Unit, Option<UnitReport>> = before.collect();
            let mut share = |(kind, id): &(ItemKind, &ItemId)| {
                let unit = (*kind, (*id).clone());
                let share = known.remove(&unit).flatten();
                (unit, share)
            };
            let block =
                |units: &[(ItemKind, &ItemId)]| Chunk { reports: units.iter().map(&mut share).collect(), merged: None };
            // A chunk has fewer units than there are chunks, because merging one unit takes longer than scanning one
            // chunk.
            self.blocks = units.chunks((units.len().isqrt() / 2).max(1)).map(block).collect();
            self.unnamed = knowledge_use::UnreferencedKnowledge::default();
        }
        let [_, knowledge, ..] = lists;
        self.unnamed.set_list(knowledge);
        self.lists = Some(lists.clone());
    }
}

impl Chunk {
    fn together(&self) -> UnitReport {
        let mut whole = UnitReport::default();
        let reports = || self.reports.iter().filter_map(|(_, share)| share.as_ref());
        for share in reports() {
            whole.merge(share);
        }
        whole.reads = reports().map(|share| &share.reads).collect();
        whole
    }
}

/// Returns the units: every item of the project except settings, even if nothing references the item. Exports of
/// finished threads are skipped.
pub(super) fn units<'l>(lists: &'l UnitLists) -> impl Iterator<Item = (ItemKind, &'l ItemId)> {
    let of = |(kind, list): (ItemKind, &'l Arc<[Entry]>)| {
        let mut before = None;
        // An id with several files is one unit.
        let ids = project_ids(list).filter(move |id| before.replace(*id) != Some(*id));
        ids.map(move |id| (kind, id))
    };
    UNIT_KINDS.into_iter().zip(lists).flat_map(of).filter(|(kind, id)| !is_export(*kind, id))
}

/// Returns true if `read` is the content of a unit (an item of the project that is checked on its own). The caller
/// keeps the content of units in its cache, because every check reads all units.
pub(super) fn is_unit(lists: &UnitLists, read: &Dependency) -> bool {
    let Dependency::Item(kind, id) = read else { return false };
    let list = UNIT_KINDS.iter().zip(lists).find(|(of, _)| *of == kind).map(|(_, list)| list);
    list.is_some_and(|list| is_project_item(list, id)) && !is_export(*kind, id)
}

/// Returns true if `list`, the items of one kind sorted by id, contains the item `id` of the project.
pub(super) fn is_project_item(list: &[Entry], id: &ItemId) -> bool {
    let at = list.partition_point(|entry| entry.id < *id);
    list.get(at).is_some_and(|entry| entry.id == *id && entry.space == Space::Project)
}

/// The kinds of items that an incremental check checks one by one, in checking order. Each item is one unit.
pub(super) const UNIT_KINDS: [ItemKind; 5] =
    [ItemKind::Directive, ItemKind::Knowledge, ItemKind::Tool, ItemKind::Prompt, ItemKind::Skill];

/// Results of single items that can be merged into the results of the whole project.
pub(super) trait Merge: Default {
    /// Adds the results of `other`, whose units follow the units of `self` in checking order.
    fn merge(&mut self, other: &Self);

    fn together<'s>(several: impl IntoIterator<Item = &'s Self>) -> Self
    where
        Self: 's,
    {
        let mut all = Self::default();
        for one in several {
            all.merge(one);
        }
        all
    }
}

/// The results of checking one item, or the merged results of several items.
#[derive(Default)]
pub(super) struct UnitReport {
    pub found: Diagnostics,
    pub hooks: hook_use::HookUses,
    pub interface: interface::InputUses,
    pub context: context::SuppressionUses,
    pub spawns: spawn::Spawns,
    pub knowledge: knowledge_use::KnowledgeUses,
    pub continuations: continuation::LostKnowledge,
    pub prefixes: cache_prefix::CachePrefixChecks,
    pub bodies: body::EmptyDirectives,
    pub raises: raises::RaiseUses,
    pub repeated: repeated_text::RepeatedParagraphs,
    /// For a directive, the files of its extends chain; if hooks can select different chains, the files of each chain.
    /// Empty for other items and in merged results.
    pub chain: Vec<SourceId>,
    reads: Dependencies,
}

impl Merge for UnitReport {
    fn merge(&mut self, other: &Self) {
        self.found.append(other.found.clone());
        self.hooks.merge(&other.hooks);
        self.interface.merge(&other.interface);
        self.context.merge(&other.context);
        self.spawns.merge(&other.spawns);
        self.knowledge.merge(&other.knowledge);
        self.continuations.merge(&other.continuations);
        self.prefixes.merge(&other.prefixes);
        self.bodies.merge(&other.bodies);
        self.raises.merge(&other.raises);
        self.repeated.merge(&other.repeated);
    }
}
