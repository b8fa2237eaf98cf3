//! Files that a repair cannot rebuild: objects that the events of a thread name, and the artifacts of an ended thread.

use std::path::{Path, PathBuf};

use rye_grammar::ItemId;

use crate::event::{Event, EventBody, ThreadHead};
use crate::store::disk::Disk;
use crate::store::{StoreError, layout};
use crate::thread_id::ThreadId;

/// Returns the paths of the missing files of a thread, relative to the project. The artifacts of a thread that has not
/// ended are not listed, because its recovery writes them.
///
/// # Errors
/// The disk cannot be read.
pub(super) fn missing_files(disk: &dyn Disk, thread: &ThreadId, events: &[Event]) -> Result<Vec<PathBuf>, StoreError> {
    let objects = events.iter().flat_map(|event| event.body.objects());
    let mut expected: Vec<PathBuf> = objects.map(|object| Path::new(layout::OBJECTS).join(object)).collect();
    expected.sort();
    expected.dedup();
    if let Some(EventBody::Ended(ended)) = events.last().map(|event| &event.body) {
        expected.extend([layout::snapshot(thread), layout::capabilities(thread)]);
        // A detached tool run has no export.
        let opened = ThreadHead::of(events).opened.filter(|opened| opened.call.is_none() && !ended.status.is_parked());
        let directive = opened.and_then(|opened| ItemId::parse(&opened.directive).ok());
        expected.extend(directive.map(|directive| layout::export(&directive, thread)));
    }
    let mut missing = Vec::new();
    for path in expected {
        if !disk.exists(&path).map_err(StoreError::io("access", &path))? {
            missing.push(path);
        }
    }
    Ok(missing)
}
