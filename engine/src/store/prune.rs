//! Removing threads: their rows first, in one transaction, then their folders. Objects stay: other threads may name them.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::disk::Disk;
use super::registry::Registry;
use super::{StoreError, layout};
use crate::thread_id::ThreadId;

/// Removes threads and all that is stored of them alone. That they are over, with their whole trees, is the caller's to
/// know: what lives is not looked for here.
pub fn prune(disk: &Arc<dyn Disk>, threads: &[ThreadId]) -> Result<(), StoreError> {
    if threads.is_empty() {
        return Ok(());
    }
    Registry::open(Arc::clone(disk))?.remove(threads)?;
    for thread in threads {
        let folder = layout::thread_folder(thread);
        empty(&**disk, &layout::inbox(thread))?;
        for path in
            [layout::transcript(thread), layout::live(thread), layout::snapshot(thread), layout::capabilities(thread)]
        {
            gone(disk.remove(&path)).map_err(StoreError::io("remove", &path))?;
        }
        // A thread of a directive below this name may have its folder here.
        match disk.remove_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            removed => gone(removed).map_err(StoreError::io("remove", &folder))?,
        }
    }
    Ok(())
}

/// Removes a folder that holds files alone.
fn empty(disk: &dyn Disk, folder: &Path) -> Result<(), StoreError> {
    let entries = match disk.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(StoreError::io("list", folder))?,
    };
    for entry in entries {
        let path = folder.join(&entry.name);
        gone(disk.remove(&path)).map_err(StoreError::io("remove", &path))?;
    }
    gone(disk.remove_dir(folder)).map_err(StoreError::io("remove", folder))
}

/// What is not there need not be removed.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
