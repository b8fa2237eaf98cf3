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
        (self, reach)
    }
}

/// The shares of all directives in order, in blocks of about as many as there are blocks: after an edit one block is put
/// together again, and then the blocks.
#[derive(Default)]
pub(super) struct Shares {
    blocks: Vec<Block>,
}

/// Neighbours.
struct Block {
    shares: Vec<(ItemId, Option<Share>)>,
    /// All of them together, with what any of them depends on; `None` until they were asked.
    whole: Option<Share>,
}

impl Shares {
    /// The shares of these directives: the known ones where nothing that they depend on has changed, else what `ask` fills.
    pub fn look(
        &mut self,
        items: &Items<'_>,
        ids: &[&ItemId],
        changes: &Changes,
        mut ask: impl FnMut(&ItemId, &mut Share),
    ) -> Share {
        if !self.blocks.iter().flat_map(|block| &block.shares).map(|(id, _)| id).eq(ids.iter().copied()) {
            self.divide(ids);
        }
        let mut all = Share::default();
        for block in &mut self.blocks {
            let stands = block.whole.as_ref().is_some_and(|whole| !changes.touch(&whole.reads));
            if !stands {
                for (id, share) in &mut block.shares {
                    if share.as_ref().is_some_and(|share| !changes.touch(&share.reads)) {
                        continue;
                    }
                    let mut new = Share::default();
                    let ((), reads) = items.during(|| ask(id, &mut new));
                    new.reads = reads;
                    *share = Some(new);
                }
                block.whole = Some(block.together());
            }
            if let Some(whole) = &block.whole {
                all.merge(whole);
            }
        }
        all
    }

    /// Each directive with the files of its chains.
    pub fn chains(&self) -> impl Iterator<Item = (&ItemId, &[SourceId])> {
        let shares = self.blocks.iter().flat_map(|block| &block.shares);
        shares.filter_map(|(id, share)| Some((id, share.as_ref()?.chain.as_slice())))
    }

    /// Whether any of them depends on something.
    pub fn read(&self, read: &Read) -> bool {
        self.blocks.iter().filter_map(|block| block.whole.as_ref()).any(|whole| whole.reads.contains(read))
    }

    /// Blocks of other directives than before.
    fn divide(&mut self, ids: &[&ItemId]) {
        let before = std::mem::take(&mut self.blocks).into_iter().flat_map(|block| block.shares);
        let mut known: BTreeMap<ItemId, Option<Share>> = before.collect();
        let block = |ids: &[&ItemId]| Block {
            shares: ids.iter().map(|id| ((*id).clone(), known.remove(*id).flatten())).collect(),
            whole: None,
        };
        self.blocks = ids.chunks(ids.len().isqrt().max(1)).map(block).collect();
    }
}

impl Block {
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
