//! Verification of the stored sources: the copies of the files that the plan of a thread was compiled from, and of the
//! skills and prompt templates that its messages expanded. A missing copy is reported as a note, because copies are
//! never synced, and an altered copy as a fault.

use std::collections::BTreeMap;

use rye_compiler::plan::Plan;
use rye_compiler::world::ItemKind;

use super::{TranscriptView, Verifier};
use crate::event::{Event, EventBody};
use crate::store::ObjectId;
use crate::store::sources::{CopyState, NamedSource};

/// The states of the copies that were inspected. Threads of a project have most sources in common, so each copy is read
/// once.
#[derive(Debug, Default)]
pub(super) struct CopyStates(BTreeMap<NamedSource, CopyState>);

impl Verifier<'_> {
    /// Checks that the stored copy of every source that the thread names exists and matches its hash.
    pub(super) fn check_sources(&mut self, view: &TranscriptView<'_>, known: &mut CopyStates) {
        let mut named: BTreeMap<NamedSource, u64> = BTreeMap::new();
        for event in view.events {
            for source in self.named_sources(event) {
                named.entry(source).or_insert(event.seq + 1);
            }
        }
        for (source, line) in named {
            let disk = self.disk;
            match known.0.entry(source.clone()).or_insert_with(|| source.inspect_copy(disk)) {
                CopyState::Unaltered => {}
                CopyState::Altered { path, reason } => {
                    let reason = format!("{reason}; line {line} of the transcript names this file");
                    self.fault(path, None, reason);
                }
                CopyState::Missing => {
                    self.is_source_missing = true;
                    self.note(format!("no copy of a source is stored: {}", source.name));
                }
            }
        }
    }
}

impl Verifier<'_> {
    /// Lists the sources that an event names. A plan that another version wrote can be unreadable. Its sources then
    /// count as missing. The check of the objects reports a plan that is missing or altered.
    fn named_sources(&mut self, event: &Event) -> Vec<NamedSource> {
        if let EventBody::PlanBound(bound) = &event.body {
            let Ok(bytes) = ObjectId::parse(&bound.plan_id).and_then(|id| self.objects.get(&id)) else {
                return Vec::new();
            };
            let Ok(plan) = serde_json::from_slice::<Plan>(&bytes) else {
                self.is_source_missing = true;
                self.note("the plan cannot be read, so its sources are not verified");
                return Vec::new();
            };
            NamedSource::list_of_plan(&plan)
        } else if let EventBody::UserInput(input) = &event.body {
            let items = input.expansions.iter().filter_map(|part| {
                Some(NamedSource::of_item(ItemKind::from_word(&part.kind)?, &part.item, &part.sha256))
            });
            items.collect()
        } else {
            Vec::new()
        }
    }
}
