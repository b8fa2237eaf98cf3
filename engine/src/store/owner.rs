//! Owners: one lock file per process. A thread is alive while its owner's lock is held, and the lock ends with the
//! process, even by a crash. The pid and start time in the file only serve messages and `kill` (`engine.md` 4).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::disk::{Disk, HeldLock};
use super::layout::OWNERS;
use super::uuid::new_uuid_v7;
use super::{StoreError, layout};

/// Id of an owner: the UUID that names its lock file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OwnerId(Arc<str>);

impl OwnerId {
    /// Parses an id. Rejects any other text, because ids become paths.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let fits = |(index, byte): (usize, u8)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        };
        if text.len() == 36 && text.bytes().enumerate().all(fits) {
            return Ok(Self(text.into()));
        }
        Err(StoreError::InvalidId { reason: format!("`{}` is not an owner id", text.escape_debug()) })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn path(&self) -> PathBuf {
        Path::new(OWNERS).join(&*self.0)
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for OwnerId {
    type Error = StoreError;
    fn try_from(value: String) -> Result<Self, Self::Error> {
        Self::parse(&value)
    }
}

impl From<OwnerId> for String {
    fn from(value: OwnerId) -> Self {
        value.0.to_string()
    }
}

/// Description of an owner for messages. The pid may have been reused. Only the lock proves that the owner is alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerInfo {
    pub pid: u32,
    /// Time at which the owner acquired its lock, in milliseconds since 1970.
    pub started_at: i64,
    /// The clock offset of the owner ([`crate::clock::Clock::offset`]), in milliseconds. `None` in files of older
    /// versions.
    #[serde(default)]
    pub clock_offset: Option<i64>,
}

/// The lock by which other processes recognize that this process is alive. Once the lock is dropped, the threads that
/// the process still owns count as orphaned.
#[derive(Debug)]
pub struct OwnerLock {
    disk: Arc<dyn Disk>,
    id: OwnerId,
    lock: Option<Box<dyn HeldLock>>,
}

impl OwnerLock {
    /// Acquires a new lock for this process. `now` is in milliseconds since 1970; `clock_offset` is the offset of this
    /// process's clock (see [`OwnerInfo::clock_offset`]).
    pub(crate) fn acquire(disk: Arc<dyn Disk>, now: i64, clock_offset: i64) -> Result<Self, StoreError> {
        layout::create_folders(&*disk)?;
        if let Err(error) = remove_dead_owners(&*disk, now) {
            // Leftover files are harmless, and the next process tries again.
            tracing::warn!(%error, "the files of ended processes are not removed");
        }
        let id = OwnerId::parse(&new_uuid_v7(now)?)?;
        let path = id.path();
        let info = OwnerInfo { pid: std::process::id(), started_at: now, clock_offset: Some(clock_offset) };
        let contents = serde_json::to_vec(&info).map_err(|error| StoreError::InvalidId {
            reason: format!("the lock file of this process cannot be written: {error}"),
        })?;
        let held = disk.lock(&path, &contents).map_err(StoreError::io("lock", &path))?;
        Ok(Self { disk, id, lock: Some(held) })
    }

    pub fn id(&self) -> &OwnerId {
        &self.id
    }

    /// Removes the file of the lock. Needed if a process ends without dropping this value. The process must start no
    /// more threads afterwards.
    pub fn remove_file(&self) {
        // A leftover file is harmless: its lock is not held, and the next process removes the file.
        let _ = self.disk.remove(&self.id.path());
    }
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        self.remove_file();
        self.lock = None;
    }
}

/// Returns true if the owner's process is alive.
pub fn is_alive(disk: &dyn Disk, owner: &OwnerId) -> Result<bool, StoreError> {
    let path = owner.path();
    disk.is_locked(&path).map_err(StoreError::io("probe the lock", &path))
}

/// Returns the description of the owner; `None` if its file does not exist or is invalid.
pub fn read_owner_info(disk: &dyn Disk, owner: &OwnerId) -> Result<Option<OwnerInfo>, StoreError> {
    let path = owner.path();
    match disk.read(&path) {
        // An owner that was killed while writing the file left no description; that is no error.
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io("read", &path)(error)),
    }
}

/// Returns the ids of the owners whose processes are alive.
pub(crate) fn live_owners(disk: &dyn Disk) -> Result<Vec<OwnerId>, StoreError> {
    let folder = Path::new(OWNERS);
    let entries = match disk.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        listed => listed.map_err(StoreError::io("list", folder))?,
    };
    let mut living = Vec::new();
    for entry in entries {
        if let Ok(owner) = OwnerId::parse(&entry.name)
            && is_alive(disk, &owner)?
        {
            living.push(owner);
        }
    }
    Ok(living)
}

/// Removes the files of dead owners. An owner locks its file and then writes to the file, so a file with contents and
/// without a lock belongs to a dead owner. An empty file can belong to a starting process, so an empty file is removed
/// only a minute after the time in its name. `now` is in milliseconds since 1970.
fn remove_dead_owners(disk: &dyn Disk, now: i64) -> Result<(), StoreError> {
    let folder = Path::new(OWNERS);
    for entry in disk.list(folder).map_err(StoreError::io("list", folder))? {
        let Ok(owner) = OwnerId::parse(&entry.name) else { continue };
        let born: String = owner.as_str().chars().filter(|c| *c != '-').take(12).collect();
        let born = i64::from_str_radix(&born, 16).unwrap_or(i64::MAX);
        // The contents are read first: they prove that the owner has locked the file.
        let has_locked = disk.read(&owner.path()).is_ok_and(|contents| !contents.is_empty());
        if (has_locked || born.saturating_add(60_000) < now) && !is_alive(disk, &owner)? {
            match disk.remove(&owner.path()) {
                // Another process has removed the file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                gone => gone.map_err(StoreError::io("remove", &owner.path()))?,
            }
        }
    }
    Ok(())
}
