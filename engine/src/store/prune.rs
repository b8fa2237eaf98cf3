//! Removal of threads: first their rows in one transaction, then their folders, then the objects that no other thread
//! references.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rye_grammar::ItemId;
use serde_json::Value;

use super::disk::{Disk, ignore_missing};
use super::registry::Registry;
use super::{ObjectId, StoreError, layout, owner, transcript};
use crate::thread_id::ThreadId;

/// Maximum number of threads of one batch. The files of all threads of a batch are removed before the folders of these
/// threads.
const FOLDERS_AT_ONCE: usize = 64;

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
    let (mut named, mut exports) = (ReferencedObjects::of_stored(&**disk)?, Vec::new());
    for thread in threads {
        let mut directive = directives.remove(thread);
        if directive.is_none() || !named.has_all() {
            // An unreadable transcript names no objects, so none of its objects are removed.
            let records = transcript::read(&**disk, thread, 0).map(|reading| reading.records).unwrap_or_default();
            let first = records.first().and_then(|first| first.body.get("directive")).and_then(Value::as_str);
            directive = directive.or_else(|| first.map(str::to_owned));
            for record in &records {
                named.collect(&**disk, record);
            }
        }
        exports.extend(directive.and_then(|id| ItemId::parse(&id).ok()).map(|id| layout::export(&id, thread)));
    }
    registry.remove(threads)?;
    for (folder, names) in names_by_folder(&exports) {
        disk.remove_files(folder, &names).map_err(StoreError::io("remove files of", folder))?;
        remove_empty_folders(&**disk, folder, Path::new(layout::EXPORTS))?;
    }
    for threads in threads.chunks(FOLDERS_AT_ONCE) {
        for thread in threads {
            remove_flat_folder(&**disk, &layout::inbox(thread))?;
            let files = [
                layout::transcript(thread),
                layout::live(thread),
                layout::snapshot(thread),
                layout::capabilities(thread),
            ];
            for (folder, names) in names_by_folder(&files) {
                disk.remove_files(folder, &names).map_err(StoreError::io("remove files of", folder))?;
            }
        }
        // A folder may also contain the folders of other threads (see `layout::thread_folder`), so inner folders are
        // removed before outer ones.
        let folders: Vec<PathBuf> = threads.iter().map(layout::thread_folder).collect();
        for (above, names) in names_by_folder(&folders).into_iter().rev() {
            disk.remove_dirs(above, &names).map_err(StoreError::io("remove folders of", above))?;
            remove_empty_folders(&**disk, above, Path::new(layout::THREADS))?;
        }
    }
    remove_unreferenced_objects(&**disk, named.names)
}

/// Removes a folder and the folders above it that are empty, up to the folder `base`, which stays. While any process
/// works on the project, removes nothing, because the process may be about to write into an empty folder.
fn remove_empty_folders(disk: &dyn Disk, folder: &Path, base: &Path) -> Result<(), StoreError> {
    for folder in folder.ancestors().take_while(|folder| *folder != base) {
        if !owner::live_owners(disk)?.is_empty() {
            break;
        }
        match disk.remove_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => break,
            removed => ignore_missing(removed).map_err(StoreError::io("remove", folder))?,
        }
    }
    Ok(())
}

/// Groups paths by their folder, so that each folder is opened once.
fn names_by_folder(paths: &[PathBuf]) -> BTreeMap<&Path, Vec<&str>> {
    let mut folders: BTreeMap<&Path, Vec<&str>> = BTreeMap::new();
    for path in paths {
        if let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(OsStr::to_str)) {
            folders.entry(folder).or_default().push(name);
        }
    }
    folders
}

/// The objects that transcripts reference.
#[derive(Default)]
struct ReferencedObjects {
    names: BTreeSet<String>,
    /// The stored objects that are not in `names`.
    unnamed: BTreeSet<String>,
}

impl ReferencedObjects {
    /// Lists the stored objects. None of them is in `names` yet.
    fn of_stored(disk: &dyn Disk) -> Result<Self, StoreError> {
        let folder = Path::new(layout::OBJECTS);
        let stored = match disk.list(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            listed => listed.map_err(StoreError::io("list", folder))?,
        };
        let unnamed = stored.into_iter().map(|entry| entry.name).filter(|name| ObjectId::parse(name).is_ok()).collect();
        Ok(Self { names: BTreeSet::new(), unnamed })
    }

    /// Returns true if the transcripts read so far reference every stored object, so that no further transcript must be
    /// read.
    fn has_all(&self) -> bool {
        self.unnamed.is_empty()
    }

    fn add(&mut self, object: &str) {
        if ObjectId::parse(object).is_ok() && !self.names.contains(object) {
            self.unnamed.remove(object);
            self.names.insert(object.to_owned());
        }
    }

    /// Adds the objects that a line refers to: a plan with its source files, a large result, the images of a user
    /// message, the contents of a changed file, or the parts of an event that did not fit into a line.
    fn collect(&mut self, disk: &dyn Disk, record: &transcript::TranscriptRecord) {
        let plan = record.body.get("plan_id").and_then(Value::as_str).filter(|plan| ObjectId::parse(plan).is_ok());
        if let Some(plan) = plan.filter(|plan| !self.names.contains(*plan)) {
            let bytes = disk.read(&Path::new(layout::OBJECTS).join(plan)).unwrap_or_default();
            let plan: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            let files = plan.get("manifest").and_then(Value::as_array).into_iter().flatten();
            files.filter_map(|file| file.get("sha256")?.as_str()).for_each(|hash| self.add(hash));
        }
        let direct = ["plan_id", "object", "sha256", "before", "after"].map(|key| record.body.get(key));
        let spilled = record.body.get("spilled").and_then(Value::as_object);
        let parts = spilled.into_iter().flat_map(|parts| parts.values()).map(|part| part.get("sha256"));
        let images = record.body.get("images").and_then(Value::as_array);
        let shown = images.into_iter().flatten().map(|image| image.get("sha256"));
        let texts = direct.into_iter().chain(parts).chain(shown).flatten().filter_map(Value::as_str);
        texts.for_each(|object| self.add(object));
    }
}

/// Removes those of the given objects that no thread references. Returns the number of removed objects.
fn remove_unreferenced_objects(disk: &dyn Disk, mut named: BTreeSet<String>) -> Result<usize, StoreError> {
    let mut kept = ReferencedObjects::default();
    for thread in layout::find_threads(disk)? {
        if named.is_empty() {
            return Ok(0);
        }
        // An unreadable transcript may reference any object and may become readable later.
        let Ok(reading) = transcript::read(disk, &thread, 0) else { return Ok(0) };
        for record in &reading.records {
            kept.collect(disk, record);
        }
        named.retain(|object| !kept.names.contains(object));
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

/// Removes a folder that contains only files. Does nothing if the folder is missing.
fn remove_flat_folder(disk: &dyn Disk, folder: &Path) -> Result<(), StoreError> {
    let entries = match disk.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(StoreError::io("list", folder))?,
    };
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    disk.remove_files(folder, &names).map_err(StoreError::io("remove files of", folder))?;
    ignore_missing(disk.remove_dir(folder)).map_err(StoreError::io("remove", folder))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::store::ThreadRow;
    use crate::store::disk::SimulatedDisk;
    use crate::store::registry::Change;
    use crate::store::transcript::{ChainHash, Transcript, TranscriptRecord};
    use serde_json::json;

    #[test]
    fn contents_of_changed_files_are_collected() {
        let [before, after] = ["a", "b"].map(|digit| digit.repeat(64));
        let body = json!({"type": "file_changed", "path": "c".repeat(64), "before": before, "after": after});
        let body = body.as_object().cloned().unwrap_or_default();
        let thread = ThreadId::parse("hello-1739820456").unwrap_or_else(|error| panic!("{error:?}"));
        let hash = ChainHash::start(&thread);
        let record = TranscriptRecord { seq: 0, ts: 0, barrier: 0, hash, seal: None, body };
        let mut named = ReferencedObjects::default();
        named.collect(&SimulatedDisk::new(), &record);
        assert_eq!(named.names, BTreeSet::from([before, after]));
    }

    /// Prunes all of `count` threads that have the same plan. `stray` is true if no thread references one more object.
    /// Returns the number of transcripts that were read, and the number of removed objects.
    fn prune_threads_of_one_plan(count: usize, stray: bool) -> (usize, usize) {
        let simulated = Arc::new(SimulatedDisk::new());
        let disk: Arc<dyn Disk> = Arc::clone(&simulated) as Arc<dyn Disk>;
        layout::create_folders(&*disk).unwrap();
        let object = |digit: &str| Path::new(layout::OBJECTS).join(digit.repeat(64));
        disk.create(&object("a"), b"{}").unwrap();
        if stray {
            disk.create(&object("b"), b"{}").unwrap();
        }
        let id = |n: usize| ThreadId::parse(&format!("talk-{n}")).unwrap();
        let threads: Vec<ThreadId> = (0..count).map(id).collect();
        let registry = Registry::open(Arc::clone(&disk)).unwrap();
        for thread in &threads {
            registry.commit(&[Change::Put(Box::new(ThreadRow::new(thread.clone(), "talk", 0)))]).unwrap();
            disk.create_dir(&layout::thread_folder(thread)).unwrap();
            let body = json!({"type": "planned", "plan_id": "a".repeat(64)});
            let body = [body.as_object().unwrap().clone()];
            Transcript::create(Arc::clone(&disk), thread).unwrap().append(&body, 0).unwrap();
        }
        drop(registry);
        let reads = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&reads);
        simulated.before_reads(move |path| {
            counter.fetch_add(usize::from(path.ends_with("transcript.jsonl")), Ordering::Relaxed);
        });
        let removed = prune(&disk, &threads).unwrap();
        assert_eq!(layout::find_threads(&*disk).unwrap(), []);
        assert!(threads.iter().all(|thread| !disk.exists(&layout::thread_folder(thread)).unwrap()));
        (reads.load(Ordering::Relaxed), removed)
    }

    #[test]
    fn prune_reads_no_transcript_once_all_objects_are_named() {
        assert_eq!(prune_threads_of_one_plan(3, false), (1, 1));
        assert_eq!(prune_threads_of_one_plan(30, false), (1, 1));
    }

    #[test]
    fn prune_keeps_an_object_that_no_transcript_names() {
        assert_eq!(prune_threads_of_one_plan(3, true), (3, 1));
    }
}
