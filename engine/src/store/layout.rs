//! Paths of the store (`engine.md` 4), relative to the project's root.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rye_grammar::ItemId;

use super::{Disk, StoreError};
use crate::thread_id::ThreadId;

/// Folder of the store.
pub(crate) const STATE: &str = ".ai/state";
/// Folder of threads and of the registry.
pub(crate) const THREADS: &str = ".ai/state/threads";
/// Folder of content-addressed objects.
pub(crate) const OBJECTS: &str = ".ai/state/objects";
/// Folder with copies of the source files that plans were compiled from, named by hash.
pub(crate) const SOURCES: &str = ".ai/state/sources";
/// Folder of the exports of threads.
pub(crate) const EXPORTS: &str = ".ai/knowledge/agent/threads";
/// Folder of lock files, one per process.
pub(crate) const OWNERS: &str = ".ai/state/owners";
/// File of the registry.
pub const REGISTRY: &str = ".ai/state/threads/registry.redb";

/// Returns a thread's folder. Every folder that holds a transcript is the folder of a thread. An id can contain `/`, so
/// the folder of a thread can lie in the folder of another thread. The names of the inner folder and of the other
/// entries do not collide: an id ends in digits, and the other entries are `inbox` and names that contain a dot.
pub(crate) fn thread_folder(thread: &ThreadId) -> PathBuf {
    Path::new(THREADS).join(thread.as_str())
}

/// Returns the path of a thread's transcript.
pub fn transcript(thread: &ThreadId) -> PathBuf {
    thread_folder(thread).join("transcript.jsonl")
}

/// Returns the path of the file with the deltas of a thread's current attempt, `live.jsonl`.
pub fn live(thread: &ThreadId) -> PathBuf {
    thread_folder(thread).join("live.jsonl")
}

/// Returns the folder of control messages from other processes.
pub fn inbox(thread: &ThreadId) -> PathBuf {
    thread_folder(thread).join("inbox")
}

/// Returns the path of a thread's snapshot, `thread.json`.
pub fn snapshot(thread: &ThreadId) -> PathBuf {
    thread_folder(thread).join("thread.json")
}

/// Returns the path of a thread's `capabilities.md`, which lists its capabilities and tools.
pub fn capabilities(thread: &ThreadId) -> PathBuf {
    thread_folder(thread).join("capabilities.md")
}

/// Returns the path of the export, which is a knowledge item that `rye fetch` finds.
pub fn export(directive: &ItemId, thread: &ThreadId) -> PathBuf {
    Path::new(EXPORTS).join(directive.as_str()).join(format!("{thread}.md"))
}

/// Creates the folders of the store. Creates the owners' folder last, after the names of all other folders are synced.
/// So if the owners' folder exists, no folder needs to be synced again.
pub fn create_folders(disk: &dyn Disk) -> Result<(), StoreError> {
    create_folders_with(disk, || Ok(()))
}

/// Variant of [`create_folders`] that calls `add` after the folders are created and before [`STATE`] is synced, so that
/// the sync also covers a file that `add` creates in [`STATE`]. Does not call `add` if all folders exist.
pub(crate) fn create_folders_with(
    disk: &dyn Disk,
    add: impl FnOnce() -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let owners = Path::new(OWNERS);
    let exists = |folder: &str| disk.exists(Path::new(folder)).map_err(StoreError::io("access", Path::new(folder)));
    // Any of these folders may have been removed by hand.
    if exists(OWNERS)? && exists(THREADS)? && exists(OBJECTS)? {
        return Ok(());
    }
    // Existing folders are synced too: an earlier process may have died between creating and syncing them.
    for (folder, above) in [(".ai", ""), (STATE, ".ai")] {
        create_folder(disk, Path::new(folder))?;
        disk.sync_dir(Path::new(above)).map_err(StoreError::io("sync", Path::new(above)))?;
    }
    for folder in [THREADS, OBJECTS] {
        create_folder(disk, Path::new(folder))?;
    }
    add()?;
    let state = Path::new(STATE);
    disk.sync_dir(state).map_err(StoreError::io("sync", state))?;
    create_folder(disk, owners)
}

/// Creates one folder, unless it exists. Does not sync the parent folder.
fn create_folder(disk: &dyn Disk, folder: &Path) -> Result<(), StoreError> {
    match disk.create_dir(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(StoreError::io("create the folder", folder)(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Lists every thread that has a transcript, sorted by id. Folders whose names are not thread ids are ignored.
pub fn find_threads(disk: &dyn Disk) -> Result<Vec<ThreadId>, StoreError> {
    find_threads_outside(disk, &BTreeSet::new())
}

/// Lists every thread that has a transcript and is not in `known`, sorted by id. The folders of known threads are not
/// read.
pub(crate) fn find_threads_outside(disk: &dyn Disk, known: &BTreeSet<&str>) -> Result<Vec<ThreadId>, StoreError> {
    let mut found = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let path = Path::new(THREADS).join(&folder);
        let entries = match disk.list(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            listed => listed.map_err(StoreError::io("list", &path))?,
        };
        for entry in entries {
            let name = if folder.is_empty() { entry.name } else { format!("{folder}/{}", entry.name) };
            if known.contains(name.as_str()) {
                continue;
            }
            match ThreadId::parse(&name) {
                Ok(thread) if entry.is_dir => {
                    let record = transcript(&thread);
                    if disk.exists(&record).map_err(StoreError::io("access", &record))? {
                        found.push(thread);
                    }
                    folders.push(name);
                }
                Ok(_) | Err(_) => {}
            }
        }
    }
    found.sort();
    Ok(found)
}
