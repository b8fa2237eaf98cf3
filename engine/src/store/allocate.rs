//! Who gets which thread id: making the thread's folder is the claim, so that two processes never get the same.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rye_grammar::ItemId;

use super::disk::Disk;
use super::uuid::uuid;
use super::{StoreError, layout};
use crate::thread_id::ThreadId;

/// Folders asked for at most: more threads of one directive in one second are a mistake.
const ATTEMPTS: u64 = 100_000;

/// Hands out thread ids of one project.
#[derive(Debug)]
pub struct ThreadIds {
    disk: Arc<dyn Disk>,
    /// Folders between `threads/` and a thread whose names this process has synced.
    synced: Mutex<BTreeSet<PathBuf>>,
    /// The last number given for a directive and second, so that a thousand threads do not each try from 1.
    last: Mutex<Option<(ItemId, u64, u64)>>,
}

impl ThreadIds {
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, synced: Mutex::default(), last: Mutex::default() }
    }

    /// A new id and its folder, whose name is durable when this returns. `now` is in milliseconds since 1970.
    pub fn allocate(&self, directive: &ItemId, now: i64) -> Result<ThreadId, StoreError> {
        let (id, parent) = self.claim(directive, now)?;
        self.disk.sync_dir(&parent).map_err(StoreError::io("sync", &parent))?;
        Ok(id)
    }

    /// A new id and its folder, and the folder whose names are to be synced.
    fn claim(&self, directive: &ItemId, now: i64) -> Result<(ThreadId, PathBuf), StoreError> {
        let seconds = u64::try_from(now.div_euclid(1_000)).unwrap_or(0);
        for number in self.first_guess(directive, seconds)..ATTEMPTS {
            let id = ThreadId::numbered(directive, seconds, number)
                .map_err(|invalid| StoreError::InvalidId { reason: invalid.reason })?;
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
                Err(error) => return Err(StoreError::io("make the folder", &folder)(error)),
            }
        }
        Err(StoreError::InvalidId { reason: format!("too many threads of `{directive}` in one second") })
    }

    /// An id that is after nothing.
    fn claim_uuid(&self, now: i64) -> Result<(ThreadId, PathBuf), StoreError> {
        let id = ThreadId::parse(&uuid(now)?).map_err(|invalid| StoreError::InvalidId { reason: invalid.reason })?;
        let folder = layout::thread_folder(&id);
        self.disk.create_dir(&folder).map_err(StoreError::io("make the folder", &folder))?;
        Ok((id, PathBuf::from(layout::THREADS)))
    }

    /// Several ids with their folders, whose names are synced together; after a directive each, or a UUID.
    pub fn allocate_all(&self, after: &[Option<ItemId>], now: i64) -> Result<Vec<ThreadId>, StoreError> {
        let mut parents = BTreeSet::new();
        let mut ids = Vec::with_capacity(after.len());
        for directive in after {
            let (id, parent) = match directive {
                Some(directive) => self.claim(directive, now)?,
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

    /// Gives an id back that nothing was written under (another process was faster with the same child).
    pub fn give_back(&self, id: &ThreadId) -> Result<(), StoreError> {
        let folder = layout::thread_folder(id);
        self.disk.remove_dir(&folder).map_err(StoreError::io("remove", &folder))
    }

    fn first_guess(&self, directive: &ItemId, seconds: u64) -> u64 {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((of, at, number)) if of == directive && *at == seconds => number + 1,
            Some(_) | None => 1,
        }
    }

    /// Makes the folders of a directive's category and syncs their names, once in this process: who made them may
    /// have died before that.
    fn make_parents(&self, parent: &Path) -> Result<(), StoreError> {
        let threads = Path::new(layout::THREADS);
        let mut above = threads.to_path_buf();
        for part in parent.strip_prefix(threads).unwrap_or(Path::new("")) {
            let folder = above.join(part);
            if !self.synced.lock().unwrap_or_else(PoisonError::into_inner).contains(&folder) {
                match self.disk.create_dir(&folder) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(StoreError::io("make the folder", &folder)(error));
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
