//! Allocation of thread ids. Creating a thread's folder claims its id, so two processes never get the same id.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rye_grammar::ItemId;

use super::disk::Disk;
use super::uuid::new_uuid_v7;
use super::{StoreError, layout};
use crate::thread_id::ThreadId;

/// Maximum number of folder names to try, because more threads of one directive in one second indicate a mistake.
const MAX_ALLOCATION_ATTEMPTS: u64 = 100_000;

/// Allocates the thread ids of one project.
#[derive(Debug)]
pub struct ThreadIds {
    disk: Arc<dyn Disk>,
    /// Folders above the thread folders, such as the folder of a directive's category. This process has synced the
    /// names of these folders and does not sync them again.
    synced: Mutex<BTreeSet<PathBuf>>,
    /// The last allocated id: its directive, the second in which it was allocated, and its number; `None` before the
    /// first allocation. The next id for the same directive in the same second gets the following number.
    last: Mutex<Option<(ItemId, u64, u64)>>,
}

impl ThreadIds {
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, synced: Mutex::default(), last: Mutex::default() }
    }

    /// Allocates an id and creates its folder, whose name is durable on return. `now` is in milliseconds since 1970.
    pub fn allocate(&self, directive: &ItemId, now: i64) -> Result<ThreadId, StoreError> {
        self.allocate_except(directive, now, &BTreeSet::new())
    }

    /// Allocates an id as [`Self::allocate`] does, but none of the ids in `taken`.
    pub(crate) fn allocate_except(
        &self,
        directive: &ItemId,
        now: i64,
        taken: &BTreeSet<ThreadId>,
    ) -> Result<ThreadId, StoreError> {
        let (id, parent) = self.claim(directive, now, taken)?;
        self.disk.sync_dir(&parent).map_err(StoreError::io("sync", &parent))?;
        Ok(id)
    }

    /// Creates the folder of a new id that is not in `taken`. Returns the id, and the parent folder, which the caller
    /// must sync.
    fn claim(
        &self,
        directive: &ItemId,
        now: i64,
        taken: &BTreeSet<ThreadId>,
    ) -> Result<(ThreadId, PathBuf), StoreError> {
        let seconds = u64::try_from(now.div_euclid(1_000)).unwrap_or(0);
        for number in self.next_number(directive, seconds)..MAX_ALLOCATION_ATTEMPTS {
            let id = ThreadId::numbered(directive, seconds, number)
                .map_err(|invalid| StoreError::InvalidId { reason: invalid.reason })?;
            if taken.contains(&id) {
                continue;
            }
            let folder = layout::thread_folder(&id);
            let parent = folder.parent().unwrap_or(Path::new(""));
            self.make_parents(parent)?;
            match self.disk.create_dir(&folder) {
                Ok(()) => {
                    let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
                    *last = Some((directive.clone(), seconds, number));
                    return Ok((id, parent.to_path_buf()));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(StoreError::io("create the folder", &folder)(error)),
            }
        }
        Err(StoreError::InvalidId { reason: format!("too many threads of `{directive}` in one second") })
    }

    /// Creates the folder of a thread with a new UUID as its id. Returns the id, and the folder that must be synced to
    /// make the new folder durable. `now` is in milliseconds since 1970.
    fn claim_uuid(&self, now: i64) -> Result<(ThreadId, PathBuf), StoreError> {
        let id =
            ThreadId::parse(&new_uuid_v7(now)?).map_err(|invalid| StoreError::InvalidId { reason: invalid.reason })?;
        let folder = layout::thread_folder(&id);
        self.disk.create_dir(&folder).map_err(StoreError::io("create the folder", &folder))?;
        Ok((id, PathBuf::from(layout::THREADS)))
    }

    /// Allocates an id for each element of `after`: `Some(directive)` produces an id named after the directive, `None`
    /// a UUID. The names of the new folders are synced together. `now` is in milliseconds since 1970.
    pub(crate) fn allocate_all(&self, after: &[Option<ItemId>], now: i64) -> Result<Vec<ThreadId>, StoreError> {
        let mut parents = BTreeSet::new();
        let mut ids = Vec::with_capacity(after.len());
        for directive in after {
            let (id, parent) = match directive {
                Some(directive) => self.claim(directive, now, &BTreeSet::new())?,
                None => self.claim_uuid(now)?,
            };
            parents.insert(parent);
            ids.push(id);
        }
        for parent in &parents {
            self.disk.sync_dir(parent).map_err(StoreError::io("sync", parent))?;
        }
        Ok(ids)
    }

    /// Releases an id that is not needed, because another process has created the same child first. Removes the folder
    /// of the thread, which must be empty.
    pub fn release(&self, id: &ThreadId) -> Result<(), StoreError> {
        let folder = layout::thread_folder(id);
        self.disk.remove_dir(&folder).map_err(StoreError::io("remove", &folder))
    }

    fn next_number(&self, directive: &ItemId, seconds: u64) -> u64 {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((of, at, number)) if of == directive && *at == seconds => number + 1,
            Some(_) | None => 1,
        }
    }

    /// Creates the folders of a directive's category and syncs their names, once per process. The names are synced even
    /// if the folders exist, because an earlier process may have died before its sync.
    fn make_parents(&self, parent: &Path) -> Result<(), StoreError> {
        let threads = Path::new(layout::THREADS);
        let mut above = threads.to_path_buf();
        for part in parent.strip_prefix(threads).unwrap_or(Path::new("")) {
            let folder = above.join(part);
            if !self.synced.lock().unwrap_or_else(PoisonError::into_inner).contains(&folder) {
                match self.disk.create_dir(&folder) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(StoreError::io("create the folder", &folder)(error));
                    }
                    Ok(()) | Err(_) => {}
                }
                self.disk.sync_dir(&above).map_err(StoreError::io("sync", &above))?;
                self.synced.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.clone());
            }
            above = folder;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
