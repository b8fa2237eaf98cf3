//! The mark of unsynced writes: a file that exists while processes write to the registry. The last process that closes
//! the registry syncs it and removes the mark (`docs/decisions/0120-unsynced-registry.md`).
//!
//! The death of a process loses no write, because the system keeps the pages of the registry. A power failure may tear
//! the registry. The mark then remains, and its name contains the id of an earlier boot, so the next process rebuilds
//! the registry from the transcripts before it reads a row.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::{POLL_INTERVAL, WRITE_LOCK_TIMEOUT, repair};
use crate::store::StoreError;
use crate::store::disk::{Disk, HeldLock};
use crate::store::layout::{self, REGISTRY, STATE};

/// Start of the name of a mark file; the id of the boot follows.
const MARK_PREFIX: &str = "unsynced-";

/// Contents of a mark file while the closing process syncs the registry. The process writes the contents before the
/// sync and removes the file after it, so the contents remain if the sync fails or is interrupted. A file with these
/// contents is not removed after a later sync: that sync does not prove that the earlier writes are on the disk.
const SYNC_UNPROVEN: &[u8] = b"unproven";

/// A shared lock on the mark file of the current boot of the machine. The registry may be written without syncs while
/// this lock is held.
#[derive(Debug)]
pub struct UnsyncedMark {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    lock: Option<Box<dyn HeldLock>>,
}

/// The state of the registry, concluded from the marks of other boots of the machine. Such a mark remains if power
/// fails before the registry is synced.
enum OtherMarks {
    /// The registry is intact. Either there is no mark of another boot of the machine, or a live process holds a mark
    /// of another boot.
    Intact,
    /// Another process rebuilds the registry.
    Rebuilding,
    /// Power failed while the registry had unsynced writes, as these mark files show. This process holds an exclusive
    /// lock of each mark file.
    Stale(Vec<(PathBuf, Box<dyn HeldLock>)>),
}

impl UnsyncedMark {
    /// Creates the folders of the store and makes the mark of this boot durable. If power failed while a process wrote
    /// to the registry, rebuilds the registry first. `None` if the system does not identify its boots, so that every
    /// commit must be synced.
    pub fn acquire(disk: &Arc<dyn Disk>) -> Result<Option<Self>, StoreError> {
        let Some(path) = mark_of_this_boot(&**disk) else {
            layout::create_folders(&**disk)?;
            return Ok(None);
        };
        let lock_mark = || disk.lock_shared(&path).map_err(StoreError::io("lock", &path));
        let mut synced = None;
        layout::create_folders_with(&**disk, || {
            synced = Some(lock_mark()?);
            Ok(())
        })?;
        let deadline = Instant::now() + WRITE_LOCK_TIMEOUT;
        loop {
            let is_synced = synced.is_some();
            let lock = synced.take().map_or_else(lock_mark, Ok)?;
            match other_marks(&**disk, &path)? {
                OtherMarks::Intact => {
                    if !is_synced {
                        disk.sync_dir(Path::new(STATE)).map_err(StoreError::io("sync", Path::new(STATE)))?;
                    }
                    return Ok(Some(Self { disk: Arc::clone(disk), path, lock: Some(lock) }));
                }
                OtherMarks::Stale(marks) => {
                    drop(lock);
                    if let Some(_alone) = disk.try_lock(&path).map_err(StoreError::io("lock", &path))? {
                        repair::rebuild(disk)?;
                        for (mark, _lock) in &marks {
                            disk.remove(mark).map_err(StoreError::io("remove", mark))?;
                        }
                        continue;
                    }
                }
                OtherMarks::Rebuilding => drop(lock),
            }
            if Instant::now() > deadline {
                return Err(StoreError::Busy { seconds: WRITE_LOCK_TIMEOUT.as_secs() });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Syncs the registry and removes the mark. If another process still writes, leaves the sync and the mark to that
    /// process: its sync also covers the writes of this process.
    fn release(&mut self) -> Result<(), StoreError> {
        let Some(shared) = self.lock.take() else { return Ok(()) };
        drop(shared);
        let Some(_alone) = self.disk.try_lock(&self.path).map_err(StoreError::io("lock", &self.path))? else {
            return Ok(());
        };
        let is_intact = self.disk.length(&self.path).map_err(StoreError::io("access", &self.path))? == 0;
        // The contents are written before the sync, so that a failed sync is recorded without a further write.
        self.disk.write_at(&self.path, 0, SYNC_UNPROVEN).map_err(StoreError::io("write", &self.path))?;
        let registry = Path::new(REGISTRY);
        if self.disk.exists(registry).map_err(StoreError::io("access", registry))? {
            self.disk.sync(registry).map_err(StoreError::io("sync", registry))?;
        }
        // After a failed sync, a later successful sync proves nothing about the earlier writes.
        if is_intact {
            self.disk.remove(&self.path).map_err(StoreError::io("remove", &self.path))?;
        }
        Ok(())
    }
}

impl Drop for UnsyncedMark {
    fn drop(&mut self) {
        if let Err(error) = self.release() {
            // The mark stays. After a power failure, the registry is then rebuilt, which loses nothing.
            tracing::warn!(%error, "the thread registry was not synced when it was closed");
        }
    }
}

/// Returns true if power failed while a process wrote to the registry, and the registry has not been rebuilt since.
pub fn is_rebuild_due(disk: &dyn Disk) -> Result<bool, StoreError> {
    let Some(own) = mark_of_this_boot(disk) else { return Ok(false) };
    Ok(!matches!(other_marks(disk, &own)?, OtherMarks::Intact))
}

/// Removes the marks that earlier boots left. The caller has rebuilt the registry.
pub fn remove_stale_marks(disk: &dyn Disk) -> Result<(), StoreError> {
    let Some(own) = mark_of_this_boot(disk) else { return Ok(()) };
    if let OtherMarks::Stale(marks) = other_marks(disk, &own)? {
        for (mark, _lock) in &marks {
            disk.remove(mark).map_err(StoreError::io("remove", mark))?;
        }
    }
    Ok(())
}

/// A guard: until it is dropped, other processes cannot open the registry for writing. The guard holds the lock of this
/// boot's mark, and the other processes wait for this lock.
pub struct WritersExcluded {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    _lock: Box<dyn HeldLock>,
}

impl WritersExcluded {
    /// Takes the exclusive lock on the mark of this boot, so that no process can open the registry for writing. `None`
    /// if the system has no boot id.
    ///
    /// # Errors
    /// [`StoreError::InUse`]: a process has the registry open for writing.
    pub fn acquire(disk: &Arc<dyn Disk>) -> Result<Option<Self>, StoreError> {
        let Some(path) = mark_of_this_boot(&**disk) else { return Ok(None) };
        // `lock_shared` creates the file of the mark if it is missing.
        drop(disk.lock_shared(&path).map_err(StoreError::io("lock", &path))?);
        match disk.try_lock(&path).map_err(StoreError::io("lock", &path))? {
            Some(lock) => Ok(Some(Self { disk: Arc::clone(disk), path, _lock: lock })),
            None => Err(StoreError::InUse { count: 1 }),
        }
    }

    /// Removes the mark and releases the lock. The caller has replaced the registry by one whose writes are synced.
    pub fn finish(self) -> Result<(), StoreError> {
        self.disk.remove(&self.path).map_err(StoreError::io("remove", &self.path))
    }
}

fn mark_of_this_boot(disk: &dyn Disk) -> Option<PathBuf> {
    disk.boot_id().map(|boot| Path::new(STATE).join(format!("{MARK_PREFIX}{boot}")))
}

fn other_marks(disk: &dyn Disk, own: &Path) -> Result<OtherMarks, StoreError> {
    let folder = Path::new(STATE);
    let entries = match disk.list(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(OtherMarks::Intact),
        listed => listed.map_err(StoreError::io("list", folder))?,
    };
    let mut stale = Vec::new();
    for entry in entries.into_iter().filter(|entry| entry.name.starts_with(MARK_PREFIX)) {
        let path = folder.join(&entry.name);
        if path == own {
            continue;
        }
        if let Some(lock) = disk.try_lock(&path).map_err(StoreError::io("lock", &path))? {
            stale.push((path, lock));
        } else if disk.is_locked(&path).map_err(StoreError::io("probe the lock", &path))? {
            return Ok(OtherMarks::Rebuilding);
        } else if disk.exists(&path).map_err(StoreError::io("access", &path))? {
            return Ok(OtherMarks::Intact);
        }
    }
    Ok(if stale.is_empty() { OtherMarks::Intact } else { OtherMarks::Stale(stale) })
}
