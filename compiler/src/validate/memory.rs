//! Check again after an edit: what each directive adds to a check, kept with everything it was made of. Only what depends
//! on a changed file is parsed, composed and checked again; the rest is put together anew from what is known. Every answer
//! is that of [`super::check`], which is the same function without a memory.

use std::collections::BTreeMap;

use rye_grammar::{ItemId, SourceId};

use super::capability::{Answers, Reach};
use super::{CheckReport, Selection, context, continuation, hook_use, interface, knowledge_use, look, prefix, spawn};
use crate::diagnostics::Diagnostics;
use crate::item::{Changes, Items, Read, Reads, Remembered, Rest};
use crate::semantics::condition::Effort;
use crate::world::{ItemKind, World};

/// A project as it was looked at last.
#[derive(Default)]
pub struct Memory {
    items: Remembered,
    known: Known,
}

impl Memory {
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks a world, with what is remembered of the look before. The world is asked for its lists and for every file
    /// that was read; which of them have changed need not be said.
    pub fn check(&mut self, world: &dyn World, selection: &Selection) -> CheckReport {
        let (items, changes) = Items::recall(world, std::mem::take(&mut self.items));
        let mut looked = look(&items, changes, std::mem::take(&mut self.known), selection);
        self.known = std::mem::take(&mut looked.known);
        let (parsed, files, sources) = (items.parsed_files(), items.known_files(), items.sources().clone());
        self.items = items.remember();
        looked.report(parsed, files, sources, Rest::default())
    }
}

/// What is known of a project's directives.
#[derive(Default)]
pub(super) struct Known {
    pub shares: Shares,
    pub answers: Answers,
    pub effort: Effort,
}

impl Known {
    /// What still holds. Patterns that reach something else now are added to what has changed.
    pub fn refresh(mut self, items: &Items<'_>, changes: &mut Changes, directives: usize) -> (Self, Reach) {
        let effort = Effort::share(directives);
        changes.everything |= effort != self.effort;
        let answers = if changes.everything { Answers::default() } else { std::mem::take(&mut self.answers) };
        let moved =
            [ItemKind::Directive, ItemKind::Knowledge, ItemKind::Tool].into_iter().any(|k| changes.touch_list(k));
        let (reach, patterns) = Reach::recall(answers, items, moved);
        changes.reads.extend(patterns.into_iter().map(Read::Pattern));
        self.effort = effort;
        self.shares.before = std::mem::take(&mut self.shares.now);
        (self, reach)
    }
}

/// The shares of all directives: those of the look before that were not asked for yet, and those of this one.
#[derive(Default)]
pub(super) struct Shares {
    before: BTreeMap<ItemId, Share>,
    now: BTreeMap<ItemId, Share>,
}

impl Shares {
    /// The share of a directive: the known one where nothing that it depends on has changed.
    pub fn take(&mut self, items: &Items<'_>, id: &ItemId, changes: &Changes, ask: impl FnOnce(&mut Share)) -> &Share {
        let known = self.before.remove(id).filter(|share| !changes.touch(&share.reads));
        let share = known.unwrap_or_else(|| {
            let mut share = Share::default();
            let ((), reads) = items.during(|| ask(&mut share));
            share.reads = reads;
            share
        });
        self.now.entry(id.clone()).or_insert(share)
    }

    /// Whether any of them depends on something.
    pub fn read(&self, read: &Read) -> bool {
        self.now.values().any(|share| share.reads.contains(read))
    }
}

/// What one directive adds to a check, or several together.
#[derive(Default)]
pub(super) struct Share {
    pub found: Diagnostics,
    pub hooks: hook_use::HookUses,
    pub interface: interface::InputUses,
    pub context: context::SuppressionUses,
    pub spawns: spawn::Spawns,
    pub knowledge: knowledge_use::KnowledgeUses,
    pub continuations: continuation::Continuations,
    pub prefixes: prefix::Prefixes,
    /// The files of its chains.
    pub chain: Vec<SourceId>,
    reads: Reads,
}

impl Share {
    /// Takes over what another directive, later in order, adds.
    pub fn merge(&mut self, other: &Self) {
        self.found.append(other.found.clone());
        self.hooks.merge(&other.hooks);
        self.interface.merge(&other.interface);
        self.context.merge(&other.context);
        self.spawns.merge(&other.spawns);
        self.knowledge.merge(&other.knowledge);
        self.continuations.merge(&other.continuations);
        self.prefixes.merge(&other.prefixes);
    }
}
