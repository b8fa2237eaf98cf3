//! Removal of threads: first their rows in one transaction, then their folders, then the objects that no other thread
//! references.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use rye_grammar::ItemId;
use serde_json::Value;

use super::disk::Disk;
use super::registry::Registry;
use super::{StoreError, layout, owner, transcript};
use crate::thread_id::ThreadId;

/// Removes threads and everything stored only for them. Returns the number of removed objects. The caller guarantees
/// that the threads and their trees have ended. While any process works on the project, no object is removed, because
/// the process may be about to refer to it.
pub fn prune(disk: &Arc<dyn Disk>, threads: &[ThreadId]) -> Result<usize, StoreError> {
    if threads.is_empty() {
        return Ok(0);
    }
    let registry = Registry::open(Arc::clone(disk))?;
    // All rows are removed in one transaction, because each transaction costs a dozen system calls.
    let mut directives: BTreeMap<ThreadId, String> =
        registry.threads()?.into_iter().map(|row| (row.id, row.directive)).collect();
    let (mut named, mut exports) = (BTreeSet::new(), Vec::new());
    for thread in threads {
        // An unreadable transcript names no objects, so none of its objects are removed.
        let records = transcript::read(&**disk, thread, 0).map(|reading| reading.records).unwrap_or_default();
        let first = records.first().and_then(|first| first.body.get("directive")).and_then(Value::as_str);
        let directive = directives.remove(thread).or_else(|| first.map(str::to_owned));
        exports.extend(directive.and_then(|id| ItemId::parse(&id).ok()).map(|id| layout::export(&id, thread)));
        for record in &records {
            collect_objects(&**disk, record, &mut named);
        }
    }
    registry.remove(threads)?;
    for export in exports {
        ignore_missing(disk.remove(&export)).map_err(StoreError::io("remove", &export))?;
    }
    for thread in threads {
        let folder = layout::thread_folder(thread);
        remove_flat_folder(&**disk, &layout::inbox(thread))?;
        for path in
            [layout::transcript(thread), layout::live(thread), layout::snapshot(thread), layout::capabilities(thread)]
        {
            ignore_missing(disk.remove(&path)).map_err(StoreError::io("remove", &path))?;
        }
        // The folder may also contain the folders of other threads (see `layout::thread_folder`).
        match disk.remove_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            removed => ignore_missing(removed).map_err(StoreError::io("remove", &folder))?,
        }
    }
    remove_unreferenced_objects(&**disk, named)
}

/// Removes those of the given objects that no thread references. Returns the number of removed objects.
fn remove_unreferenced_objects(disk: &dyn Disk, mut named: BTreeSet<String>) -> Result<usize, StoreError> {
    for thread in layout::find_threads(disk)? {
        if named.is_empty() {
            return Ok(0);
        }
        let mut kept = BTreeSet::new();
        // An unreadable transcript may reference any object and may become readable later.
        let Ok(reading) = transcript::read(disk, &thread, 0) else { return Ok(0) };
        for record in &reading.records {
            collect_objects(disk, record, &mut kept);
        }
        named.retain(|object| !kept.contains(object));
    }
    let mut removed = 0;
    for object in named {
        if !owner::live_owners(disk)?.is_empty() {
            break;
        }
        let path = Path::new(layout::OBJECTS).join(&object);
        match disk.remove(&path) {
            Ok(()) => removed += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(StoreError::io("remove", &path)(error)),
        }
    }
    Ok(removed)
}

/// Collects the objects that a line refers to: a plan with its source files, a large result, the images of a user
/// message, the contents of a changed file, the parts of an event that did not fit into a line.
fn collect_objects(disk: &dyn Disk, record: &transcript::TranscriptRecord, named: &mut BTreeSet<String>) {
    let is_object = |text: &&str| super::ObjectId::parse(text).is_ok();
    let plan = record.body.get("plan_id").and_then(Value::as_str).filter(is_object);
    if let Some(plan) = plan.filter(|plan| !named.contains(*plan)) {
        let bytes = disk.read(&Path::new(layout::OBJECTS).join(plan)).unwrap_or_default();
        let plan: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let files = plan.get("manifest").and_then(Value::as_array);
        let hashes = files.into_iter().flatten().filter_map(|file| file.get("sha256")?.as_str());
        named.extend(hashes.filter(is_object).map(str::to_owned));
    }
    let direct = ["plan_id", "object", "sha256", "before", "after"].map(|key| record.body.get(key));
    let spilled = record.body.get("spilled").and_then(Value::as_object);
    let parts = spilled.into_iter().flat_map(|parts| parts.values()).map(|part| part.get("sha256"));
    let images = record.body.get("images").and_then(Value::as_array);
    let shown = images.into_iter().flatten().map(|image| image.get("sha256"));
    let texts = direct.into_iter().chain(parts).chain(shown).flatten().filter_map(Value::as_str);
    named.extend(texts.filter(is_object).map(str::to_owned));
}

/// Removes a folder that contains only files. Does nothing if the folder is missing.
fn remove_flat_folder(disk: &dyn Disk, folder: &Path) -> Result<(), StoreError> {
    let entries = match disk.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(StoreError::io("list", folder))?,
    };
    for entry in entries {
        let path = folder.join(&entry.name);
        ignore_missing(disk.remove(&path)).map_err(StoreError::io("remove", &path))?;
    }
    ignore_missing(disk.remove_dir(folder)).map_err(StoreError::io("remove", folder))
}

/// Converts the error of a missing file to success.
fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::disk::SimulatedDisk;
    use crate::store::transcript::{ChainHash, TranscriptRecord};
    use serde_json::json;

    #[test]
    fn contents_of_changed_files_are_collected() {
        let [before, after] = ["a", "b"].map(|digit| digit.repeat(64));
        let body = json!({"type": "file_changed", "path": "c".repeat(64), "before": before, "after": after});
        let body = body.as_object().cloned().unwrap_or_default();
        let thread = ThreadId::parse("hello-1739820456").unwrap_or_else(|error| panic!("{error:?}"));
        let hash = ChainHash::start(&thread);
        let record = TranscriptRecord { seq: 0, ts: 0, barrier: 0, hash, seal: None, body };
        let mut named = BTreeSet::new();
        collect_objects(&SimulatedDisk::new(), &record, &mut named);
        assert_eq!(named, BTreeSet::from([before, after]));
    }
}
