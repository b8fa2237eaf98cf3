//! The changes between two plans, each with its direction, such as widened or narrowed.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use rye_grammar::ItemId;

use crate::compile::Compilation;
use crate::item::Items;
use crate::plan::SourcePlace;
use crate::plan::source::SourceReport;
use crate::world::{ItemKind, World};

/// The direction of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The change affects the text that is sent or shown, but no permission and no spend.
    Neutral,
    Narrowed,
    /// The change is not proved to be narrower, so it counts as widened.
    Unknown,
    Widened,
}

impl Direction {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Neutral => "neutral",
            Self::Narrowed => "narrowed",
            Self::Unknown => "unknown",
            Self::Widened => "widened",
        }
    }

    /// Returns true if a reviewer has to agree, because the change widens, or may widen, what the directive may do.
    pub fn may_widen(self) -> bool {
        matches!(self, Self::Widened | Self::Unknown)
    }

    /// Returns the direction of a changed upper bound: widened if the bound is higher than before, else narrowed.
    pub fn of_bound<T: PartialOrd>(before: &T, after: &T) -> Self {
        if after > before { Self::Widened } else { Self::Narrowed }
    }
}

/// The part of a plan that a change affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeArea {
    Chain,
    Model,
    Interface,
    Approval,
    Trust,
    Tool,
    Setting,
    /// A setting of `assertions.yaml` or `check.yaml`. No plan contains these settings.
    Check,
    Start,
    Plan,
    File,
}

impl ChangeArea {
    pub fn heading(self) -> &'static str {
        match self {
            Self::Chain => "Chain",
            Self::Model => "Model",
            Self::Interface => "Interface",
            Self::Approval => "Approvals",
            Self::Trust => "Trust",
            Self::Tool => "Tools",
            Self::Setting => "Settings",
            Self::Check => "Checks",
            Self::Start => "Directives it can start",
            Self::Plan => "Plan",
            Self::File => "Files",
        }
    }
}

/// A change of a part of the plan for which [`super::PlanDiff`] has no list of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanChange {
    pub area: ChangeArea,
    pub what: String,
    pub direction: Direction,
    /// The location in the new files; for a removed part, the location in the old files.
    pub source: Option<SourceReport>,
}

/// A side of a comparison: a compiled plan, and the world that it was compiled from.
#[derive(Clone, Copy)]
pub struct DiffSide<'a> {
    pub world: &'a dyn World,
    pub compilation: &'a Compilation,
}

/// Both sides of a comparison, each with its own item cache.
pub struct DiffSides<'a> {
    pub before: DiffSide<'a>,
    pub after: DiffSide<'a>,
    pub old: Items<'a>,
    pub new: Items<'a>,
}

impl<'a> DiffSides<'a> {
    pub fn new(before: DiffSide<'a>, after: DiffSide<'a>) -> Self {
        Self { before, after, old: Items::new(before.world), new: Items::new(after.world) }
    }

    /// Returns the source location of the part with the key `key`: in the new plan, else in the old plan, else the
    /// first line of the directive's file. `None` if neither side has this file.
    pub fn origin(&self, key: &str) -> Option<SourceReport> {
        let of = |tree: &DiffSide<'_>| tree.compilation.origins.get(key).and_then(|origin| origin.place.clone());
        let place = of(&self.after).or_else(|| of(&self.before));
        place.as_ref().map(SourceReport::from).or_else(|| self.directive())
    }

    /// Returns the location of the directive: the first line of its file on the new side or, if that side has no such
    /// file, on the old side. `None` if neither side has the file.
    pub fn directive(&self) -> Option<SourceReport> {
        self.file(ItemKind::Directive, &self.after.compilation.plan.directive)
    }

    /// Returns the location of an item: the first line of its file on the new side or, if that side has no such file,
    /// on the old side. `None` if neither side has the file.
    pub fn file(&self, kind: ItemKind, id: &ItemId) -> Option<SourceReport> {
        let of = |tree: &DiffSide<'_>| {
            let found = tree.world.candidates(kind, id).ok()?.into_iter().next()?;
            Some(SourcePlace { file: found.space.display(&found.path), line: 1, column: 1 })
        };
        of(&self.after).or_else(|| of(&self.before)).as_ref().map(SourceReport::from)
    }

    /// Returns the contents of an item's file on both sides without the signature line; `None` for a side without a
    /// readable file.
    pub fn unsigned_texts(&self, kind: ItemKind, id: &ItemId) -> [Option<Arc<[u8]>>; 2] {
        [self.before.world, self.after.world].map(|world| unsigned_text(world, kind, id))
    }

    /// Returns the first line of an item's new file that differs from the old file, without the signature lines. `None`
    /// if a side has no file.
    pub fn first_changed_line(&self, kind: ItemKind, id: &ItemId) -> Option<SourceReport> {
        let lines = |bytes: &[u8]| bytes.split(|byte| *byte == b'\n').count().saturating_sub(1);
        let [old, new] = self.unsigned_texts(kind, id);
        let (old, new) = (old?, new?);
        let whole = self.after.world.candidates(kind, id).ok()?.into_iter().next()?;
        let signature = lines(&whole.bytes).saturating_sub(lines(&new));
        let (mut before, after) = (old.split(|byte| *byte == b'\n'), new.split(|byte| *byte == b'\n'));
        let same = after.take_while(|line| before.next() == Some(*line)).count();
        let line = u32::try_from(signature.saturating_add(same.min(lines(&new))).saturating_add(1)).ok()?;
        let place = SourcePlace { file: whole.space.display(&whole.path), line, column: 1 };
        Some(SourceReport::from(&place))
    }

    /// Returns the first changed line of the knowledge `id`, if both plans read its file and the file differs.
    pub fn changed_knowledge(&self, id: &ItemId) -> Option<SourceReport> {
        let reads = |side: &DiffSide<'_>| {
            let manifest = &side.compilation.plan.manifest;
            manifest.iter().any(|read| read.kind == ItemKind::Knowledge && read.id == id.as_str())
        };
        let [old, new] = self.unsigned_texts(ItemKind::Knowledge, id);
        let is_changed = old != new && reads(&self.before) && reads(&self.after);
        is_changed.then(|| self.first_changed_line(ItemKind::Knowledge, id)).flatten()
    }
}

fn unsigned_text(world: &dyn World, kind: ItemKind, id: &ItemId) -> Option<Arc<[u8]>> {
    let found = world.candidates(kind, id).ok()?.into_iter().next()?;
    let end = found.bytes.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let first = found.bytes.get(..end).unwrap_or_default();
    let is_signed = first.windows(11).any(|part| part == b"rye:signed:");
    Some(if is_signed { found.bytes.get(end..).unwrap_or_default().into() } else { Arc::clone(&found.bytes) })
}
