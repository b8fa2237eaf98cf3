//! Incremental checking: caches the results of each unit with its dependencies. After an edit, only units that depend
//! on a changed file are parsed, composed and checked again; the rest is merged from the cache. Results equal those of
//! [`super::check`].

use std::collections::HashMap;
use std::sync::Arc;

use rye_grammar::{ItemId, SourceId};

use super::capability::{Answers, PatternMatcher};
use super::{
    CheckReport, Selection, body, context, continuation, hook_use, interface, is_export, knowledge_use, look,
    of_project, prefix, spawn,
};
use crate::diagnostics::Diagnostics;
use crate::item::{CacheSnapshot, DeferredDrop, Dependencies, Dependency, Invalidation, Items};
use crate::lower::shared::Kept;
use crate::semantics::condition::Fuel;
use crate::world::{Entry, ItemKind, Space, World};

/// The state kept between checks of a project.
#[derive(Default)]
pub struct Memory {
    items: CacheSnapshot,
    known: Known,
}

impl Memory {
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks a world and reuses the results of the previous check. Asks the world for its lists and for every file
    /// that was read, except files known to be untouched ([`World::touched_since`]); callers need not report changes.
    pub fn check(&mut self, world: &dyn World, selection: &Selection) -> CheckReport {
        let (items, changes) = Items::recall(world, std::mem::take(&mut self.items));
        let mut looked = look(&items, changes, std::mem::take(&mut self.known), selection);
        self.known = std::mem::take(&mut looked.known);
        let (parsed, sources) = (items.parsed_files(), items.sources().clone());
        self.items = items.remember();
        looked.report(parsed, sources, DeferredDrop::default())
    }
}

/// Cached results of a project's units.
#[derive(Default)]
pub(super) struct Known {
    pub shares: UnitReports,
    pub answers: Answers,
    /// Number of pattern answers and palettes after the last eviction.
    pub asked: (usize, usize),
    pub judged: ProjectAnalyses,
    pub lowered: Kept,
    pub effort: Fuel,
}

/// Cached results of analyses over all units.
#[derive(Default)]
pub(super) struct ProjectAnalyses {
    pub mentions: knowledge_use::KnowledgeMentions,
    pub verdicts: hook_use::ConditionVerdicts,
}

impl Known {
    /// Drops invalidated results. Patterns that match other items now are added to the changes.
    pub fn refresh(
        mut self,
        items: &Items<'_>,
        changes: &mut Invalidation,
        directives: usize,
    ) -> (Self, PatternMatcher) {
        let effort = Fuel::share(directives);
        changes.everything |= effort != self.effort;
        let answers = if changes.everything { Answers::default() } else { std::mem::take(&mut self.answers) };
        let moved =
            [ItemKind::Directive, ItemKind::Knowledge, ItemKind::Tool].into_iter().any(|k| changes.affects_list(k));
        let (reach, patterns) = PatternMatcher::recall(answers, items, moved);
        changes.reads.extend(patterns.into_iter().map(Dependency::Pattern));
        self.lowered.refresh(changes);
        self.judged.mentions.refresh(changes);
        if changes.everything {
            self.judged.verdicts = hook_use::ConditionVerdicts::default();
        }
        self.effort = effort;
        (self, reach)
    }

    /// Evicts patterns that are no longer written anywhere, and their palettes, once enough have accumulated.
    /// `settings` are the dependencies of the settings.
    pub fn evict_unused(&mut self, settings: &Dependencies) {
        let shares = &self.shares;
        let is_asked = |read: &Dependency| settings.contains(read) || shares.read(read);
        if self.asked == (0, 0) {
            // In the first check all of them are in use.
            self.asked = (self.answers.len(), self.lowered.palettes());
        }
        let (patterns, palettes) = self.asked;
        if self.answers.len() > 2 * patterns + EVICTION_SLACK {
            self.answers.keep_asked(is_asked);
            self.asked.0 = self.answers.len();
        }
        if self.lowered.palettes() > 2 * palettes + EVICTION_SLACK {
            self.lowered.keep_asked(is_asked);
            self.asked.1 = self.lowered.palettes();
        }
    }
}

/// Slack before an eviction: entries beyond twice the number that the last eviction left.
const EVICTION_SLACK: usize = 100;

/// The items of each kind of unit, as the world lists them.
pub(super) type UnitLists = [Arc<[Entry]>; 3];

/// An item of the project that is checked on its own.
pub(super) type Unit = (ItemKind, ItemId);

/// The results of all units in order, in chunks of neighbors: after an edit only one chunk is merged again.
#[derive(Default)]
pub(super) struct UnitReports {
    /// The lists that the chunks were made for.
    lists: Option<UnitLists>,
    blocks: Vec<Chunk>,
    pub unnamed: knowledge_use::UnreferencedKnowledge,
}

/// A chunk of neighboring units.
struct Chunk {
    shares: Vec<(Unit, Option<Share>)>,
    /// The merged results and dependencies of the chunk; `None` until they are computed.
    whole: Option<Share>,
}

impl UnitReports {
    /// Updates the results of these units: keeps cached ones whose dependencies did not change, and computes the others
    /// with `ask`.
    pub fn look(
        &mut self,
        items: &Items<'_>,
        lists: &UnitLists,
        changes: &Invalidation,
        mut ask: impl FnMut(ItemKind, &ItemId, &mut Share),
    ) {
        let is_divided = |known: &UnitLists| known.iter().zip(lists).all(|(known, list)| Arc::ptr_eq(known, list));
        if !self.lists.as_ref().is_some_and(is_divided) {
            self.divide(lists);
        }
        for block in &mut self.blocks {
            if block.whole.as_ref().is_some_and(|whole| !changes.touch(&whole.reads)) {
                continue;
            }
            for ((kind, id), share) in &mut block.shares {
                if share.as_ref().is_some_and(|share| !changes.touch(&share.reads)) {
                    continue;
                }
                let mut new = Share::default();
                let ((), reads) = items.during(|| ask(*kind, id, &mut new));
                new.reads = reads;
                *share = Some(new);
            }
            let whole = block.together();
            self.unnamed.replace(block.whole.as_ref().map(|whole| &whole.knowledge), &whole.knowledge);
            block.whole = Some(whole);
        }
    }

    /// Returns the merged results, one per chunk, in the order of the units.
    pub fn together(&self) -> Vec<&Share> {
        self.blocks.iter().filter_map(|block| block.whole.as_ref()).collect()
    }

    /// Returns each directive with the files of its chains.
    pub fn chains(&self) -> impl Iterator<Item = (&ItemId, &[SourceId])> {
        let shares = self.blocks.iter().flat_map(|block| &block.shares);
        let directives = shares.filter(|((kind, _), _)| *kind == ItemKind::Directive);
        directives.filter_map(|((_, id), share)| Some((id, share.as_ref()?.chain.as_slice())))
    }

    /// Returns true if any unit depends on this read.
    pub fn read(&self, read: &Dependency) -> bool {
        self.blocks.iter().filter_map(|block| block.whole.as_ref()).any(|whole| whole.reads.contains(read))
    }

    /// Splits the units into chunks if the lists changed; if the units are the same, the chunks stay.
    fn divide(&mut self, lists: &UnitLists) {
        let units: Vec<(ItemKind, &ItemId)> = units(lists).collect();
        let before = self.blocks.iter().flat_map(|block| &block.shares).map(|((kind, id), _)| (*kind, id));
        if !before.eq(units.iter().copied()) {
            let before = std::mem::take(&mut self.blocks).into_iter().flat_map(|block| block.shares);
            let mut known: HashMap<Unit, Option<Share>> = before.collect();
            let mut share = |(kind, id): &(ItemKind, &ItemId)| {
                let unit = (*kind, (*id).clone());
                let share = known.remove(&unit).flatten();
                (unit, share)
            };
            let block =
                |units: &[(ItemKind, &ItemId)]| Chunk { shares: units.iter().map(&mut share).collect(), whole: None };
            // Merging into an existing chunk is slower than scanning another one.
            self.blocks = units.chunks((units.len().isqrt() / 2).max(1)).map(block).collect();
            self.unnamed = knowledge_use::UnreferencedKnowledge::default();
        }
        let [_, knowledge, _] = lists;
        self.unnamed.relist(knowledge);
        self.lists = Some(lists.clone());
    }
}

impl Chunk {
    fn together(&self) -> Share {
        let mut whole = Share::default();
        let shares = || self.shares.iter().filter_map(|(_, share)| share.as_ref());
        for share in shares() {
            whole.merge(share);
        }
        whole.reads = shares().map(|share| &share.reads).collect();
        whole
    }
}

/// Returns the units: every directive of the project, and the knowledge and tools, referenced or not. Exports of
/// finished threads are skipped.
pub(super) fn units<'l>(lists: &'l UnitLists) -> impl Iterator<Item = (ItemKind, &'l ItemId)> {
    let of = |(kind, list): (ItemKind, &'l Arc<[Entry]>)| of_project(list).map(move |id| (kind, id));
    UNITS.into_iter().zip(lists).flat_map(of).filter(|(kind, id)| !is_export(*kind, id))
}

/// Returns true if a read is of a unit, which is checked in any case.
pub(super) fn is_unit(lists: &UnitLists, read: &Dependency) -> bool {
    let Dependency::Item(kind, id) = read else { return false };
    let list = UNITS.iter().zip(lists).find(|(of, _)| *of == kind).map(|(_, list)| list);
    list.is_some_and(|list| project_has(list, id)) && !is_export(*kind, id)
}

/// Returns true if the project has an item, according to the list of its kind.
pub(super) fn project_has(list: &[Entry], id: &ItemId) -> bool {
    let at = list.partition_point(|entry| entry.id < *id);
    list.get(at).is_some_and(|entry| entry.id == *id && entry.space == Space::Project)
}

/// The kinds of units, in checking order.
pub(super) const UNITS: [ItemKind; 3] = [ItemKind::Directive, ItemKind::Knowledge, ItemKind::Tool];

/// Results that can be merged.
pub(super) trait Merge: Default {
    /// Merges the results of another group of units that comes later in order.
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

/// The results of one unit, or the merged results of several.
#[derive(Default)]
pub(super) struct Share {
    pub found: Diagnostics,
    pub hooks: hook_use::HookUses,
    pub interface: interface::InputUses,
    pub context: context::SuppressionUses,
    pub spawns: spawn::Spawns,
    pub knowledge: knowledge_use::KnowledgeUses,
    pub continuations: continuation::LostKnowledge,
    pub prefixes: prefix::CachePrefixChecks,
    pub bodies: body::EmptyDirectives,
    /// Files of the directive's chains.
    pub chain: Vec<SourceId>,
    reads: Dependencies,
}

impl Merge for Share {
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
    }
}
