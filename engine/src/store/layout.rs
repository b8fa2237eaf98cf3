//! Where things are on disk (`engine.md` 4), relative to the project's root.

use std::path::{Path, PathBuf};

use rye_grammar::ItemId;

use super::{Disk, StoreError};
use crate::thread_id::ThreadId;

/// Threads, and the registry beside them.
pub const THREADS: &str = ".ai/state/threads";
/// Contents by hash.
pub const OBJECTS: &str = ".ai/state/objects";
/// The files that plans were made of, by hash.
pub const SOURCES: &str = ".ai/state/sources";
/// One lock file a process.
pub const OWNERS: &str = ".ai/state/owners";
/// The registry's file.
pub const REGISTRY: &str = ".ai/state/threads/registry.redb";

/// A thread's folder. A folder is a thread if it holds a transcript; a directive id with `/` has its threads in
/// nested folders. Ids end in digits and no file below has a name without a dot but `inbox`, so nothing collides.
pub fn thread_folder(thread: &ThreadId) -> PathBuf {
    Path::new(THREADS).join(thread.as_str())
}

/// The record.
pub fn transcript(thread: &ThreadId) -> PathBuf {
    thread_folder(thread).join("transcript.jsonl")
}

/// Deltas of the attempt under way.
pub fn live(thread: &ThreadId) -> PathBuf {
    thread_folder(thread).join("live.jsonl")
}

/// Mail from other processes.
pub fn inbox(thread: &ThreadId) -> PathBuf {
    thread_folder(thread).join("inbox")
}

/// The snapshot.
pub fn snapshot(thread: &ThreadId) -> PathBuf {
    thread_folder(thread).join("thread.json")
}

/// Tool definitions and the capability tree.
pub fn capabilities(thread: &ThreadId) -> PathBuf {
    thread_folder(thread).join("capabilities.md")
}

/// The export that `rye fetch` finds.
pub fn export(directive: &ItemId, thread: &ThreadId) -> PathBuf {
    Path::new(".ai/knowledge/agent/threads").join(directive.as_str()).join(format!("{thread}.md"))
}

/// Makes the folders of the store. The owners' folder is made last, when the names of all others are synced: where it
/// exists, nothing of this needs to be synced again.
pub fn prepare(disk: &dyn Disk) -> Result<(), StoreError> {
    let owners = Path::new(OWNERS);
    if disk.exists(owners).map_err(StoreError::io("look for", owners))? {
        return Ok(());
    }
    // Also the names of folders that were there: who made them may have died before they were synced.
    for (folder, above) in [(".ai", ""), (".ai/state", ".ai")] {
        make(disk, Path::new(folder))?;
        disk.sync_dir(Path::new(above)).map_err(StoreError::io("sync", Path::new(above)))?;
    }
    for folder in [THREADS, OBJECTS] {
        make(disk, Path::new(folder))?;
    }
    let state = Path::new(".ai/state");
    disk.sync_dir(state).map_err(StoreError::io("sync", state))?;
    make(disk, owners)
}

/// Makes one folder unless it is there; its name is not synced.
fn make(disk: &dyn Disk, folder: &Path) -> Result<(), StoreError> {
    match disk.create_dir(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(StoreError::io("make the folder", folder)(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Every thread that has a transcript, by id. Folders whose names are no ids are none of ours.
pub fn find_threads(disk: &dyn Disk) -> Result<Vec<ThreadId>, StoreError> {
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
            match ThreadId::parse(&name) {
                Ok(thread) if entry.is_dir => {
                    let record = transcript(&thread);
                    if disk.exists(&record).map_err(StoreError::io("look for", &record))? {
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
