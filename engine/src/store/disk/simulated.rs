//! An in-memory disk for tests. It tracks which changes were synced, fails on request, and after a simulated power
//! failure keeps only the changes that a real disk guarantees.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Counters, DirEntry, Disk, DiskCounters, FileAccess, HeldLock, NameWatch};

mod node;

pub use node::SplitMix;
use node::{DiskNode, FileNode, FileWrite, FolderNode, NameChange};

/// A disk that numbers its changes from 0, so that a test can select the change at which a fault occurs.
#[derive(Default)]
pub struct SimulatedDisk {
    state: Mutex<SimulatedState>,
    counters: DiskCounters,
}

/// A failure of the simulated disk. The test chooses the operation at which the failure starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// Power fails just before the operation. All operations fail until [`SimulatedDisk::restart`].
    PowerFailure,
    /// The operation fails with this error and changes nothing. Later operations succeed.
    Fails(io::ErrorKind),
    /// The operation reports a full disk. If the operation is an append, it first writes this many bytes.
    Short(usize),
    /// The operation and all later operations fail with a full disk if they need space.
    Full,
}

/// The unsynced changes that survive a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// All unsynced changes survive: the process was killed, but the machine kept running.
    All,
    /// No unsynced change survives.
    Nothing,
    /// A random part of the unsynced changes survives. The number is the seed of the random choice. The surviving
    /// changes can be in any order, and some of them survive only in part or as zeros.
    Some(u64),
}

struct SimulatedState {
    /// The files and folders. Node 0 is the root folder.
    nodes: Vec<DiskNode>,
    operations: u64,
    fault: Option<(u64, DiskFault)>,
    failed: bool,
    full: bool,
    locks: SimulatedLocks,
    /// Number of power failures so far, which identifies the current boot of the simulated machine.
    boots: u64,
    watcher: Option<Arc<OperationCallback>>,
    reader: Option<Arc<ReadCallback>>,
}

/// Callback that runs before each file is read.
type ReadCallback = dyn Fn(&Path) + Send + Sync;

/// Callback that runs before each operation, with the number of the operation and a copy of the disk.
type OperationCallback = dyn Fn(u64, SimulatedDisk) + Send + Sync;

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedDisk").field("operations", &self.operations()).finish_non_exhaustive()
    }
}

impl Default for SimulatedState {
    fn default() -> Self {
        Self {
            nodes: vec![DiskNode::Folder(FolderNode::default())],
            operations: 0,
            fault: None,
            failed: false,
            full: false,
            locks: Arc::default(),
            boots: 0,
            watcher: None,
            reader: None,
        }
    }
}

impl SimulatedDisk {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of changes attempted so far, including failed changes.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Makes the change with the number `at` fail. Changes are numbered from 0.
    pub fn fail_at(&self, at: u64, fault: DiskFault) {
        self.state().fault = Some((at, fault));
    }

    /// Calls `callback` before each later operation with the operation's number and a copy of the disk at that time.
    pub fn before_operations(&self, callback: impl Fn(u64, Self) + Send + Sync + 'static) {
        self.state().watcher = Some(Arc::new(callback));
    }

    /// Calls `callback` before each full read of a file, so that a test can simulate a concurrent change.
    pub fn before_reads(&self, callback: impl Fn(&Path) + Send + Sync + 'static) {
        self.state().reader = Some(Arc::new(callback));
    }

    /// Returns a copy of the disk with the same synced and unsynced contents, but without faults and locks.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self { state: Mutex::new(self.state().fork()), counters: DiskCounters::default() }
    }

    /// Restarts the machine: removes all faults and locks, and applies `survival` to unsynced changes.
    pub fn restart(&self, survival: Survival) {
        let mut state = self.state();
        let mut rng = match survival {
            Survival::All | Survival::Nothing => None,
            Survival::Some(seed) => Some(SplitMix::new(seed)),
        };
        for node in &mut state.nodes {
            match (&mut rng, survival == Survival::All) {
                (_, true) => {}
                (None, false) => node.lose_unsynced(),
                (Some(rng), false) => node.lose_some_unsynced(rng),
            }
        }
        state.boots += u64::from(survival != Survival::All);
        state.fault = None;
        state.failed = false;
        state.full = false;
        state.locks.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn state(&self) -> MutexGuard<'_, SimulatedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn power() -> io::Error {
    io::Error::other("the power has failed")
}

fn full() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "no space left on the device")
}

fn missing(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("`{}` does not exist", path.display()))
}

fn exists(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, format!("`{}` exists", path.display()))
}

/// An operation's need for free disk space. An operation with `Free` needs none.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SpaceNeed {
    Needed,
    Free,
}

impl SimulatedState {
    fn readable(&self) -> io::Result<()> {
        if self.failed { Err(power()) } else { Ok(()) }
    }

    fn fork(&self) -> Self {
        Self { nodes: self.nodes.clone(), operations: self.operations, boots: self.boots, ..Self::default() }
    }

    /// Counts an operation and applies the fault that is planned for its number. Returns `Some(n)` if the operation
    /// must report a full disk after `n` bytes of an append, and `None` if it succeeds. Fails if the operation must
    /// fail at once.
    fn step(&mut self, need: SpaceNeed) -> io::Result<Option<usize>> {
        self.readable()?;
        let now = self.operations;
        if let Some(callback) = &self.watcher {
            callback(now, SimulatedDisk { state: Mutex::new(self.fork()), counters: DiskCounters::default() });
        }
        self.operations += 1;
        let fault = self.fault.filter(|(at, _)| *at == now).map(|(_, fault)| fault);
        match fault {
            None => {}
            Some(DiskFault::PowerFailure) => {
                self.failed = true;
                return Err(power());
            }
            Some(DiskFault::Fails(kind)) => return Err(io::Error::new(kind, "made to fail")),
            Some(DiskFault::Short(bytes)) => return Ok(Some(bytes)),
            Some(DiskFault::Full) => self.full = true,
        }
        if self.full && need == SpaceNeed::Needed { Err(full()) } else { Ok(None) }
    }

    fn find(&self, path: &Path) -> Option<usize> {
        let mut at = 0;
        for part in path.components() {
            let Some(DiskNode::Folder(folder)) = self.nodes.get(at) else { return None };
            at = *folder.current.get(&*part.as_os_str().to_string_lossy())?;
        }
        Some(at)
    }

    fn file(&mut self, path: &Path) -> io::Result<&mut FileNode> {
        let at = self.find(path).ok_or_else(|| missing(path))?;
        match self.nodes.get_mut(at) {
            Some(DiskNode::File(file)) => Ok(file),
            Some(DiskNode::Folder(_)) | None => Err(io::Error::new(io::ErrorKind::IsADirectory, "is a folder")),
        }
    }

    fn folder(&mut self, path: &Path) -> io::Result<&mut FolderNode> {
        let at = self.find(path).ok_or_else(|| missing(path))?;
        match self.nodes.get_mut(at) {
            Some(DiskNode::Folder(folder)) => Ok(folder),
            Some(DiskNode::File(_)) | None => Err(io::Error::new(io::ErrorKind::NotADirectory, "is no folder")),
        }
    }

    fn parent(&mut self, path: &Path) -> io::Result<(&mut FolderNode, String)> {
        let name = path.file_name().ok_or_else(|| missing(path))?.to_string_lossy().into_owned();
        Ok((self.folder(path.parent().unwrap_or(Path::new("")))?, name))
    }

    fn add(&mut self, path: &Path, node: DiskNode) -> io::Result<()> {
        if self.find(path).is_some() {
            return Err(exists(path));
        }
        let at = self.nodes.len();
        let (folder, name) = self.parent(path)?;
        folder.change(NameChange::Link { name, node: at });
        self.nodes.push(node);
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        if from.parent() != to.parent() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "another folder"));
        }
        let node = self.find(from).ok_or_else(|| missing(from))?;
        let (_, to) = self.parent(to)?;
        let (folder, from) = self.parent(from)?;
        folder.change(NameChange::Rename { from, to, node });
        Ok(())
    }

    fn write(&mut self, path: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(path)?.write(FileWrite::At { offset, bytes: bytes.to_vec() });
        Ok(())
    }
}

impl Disk for SimulatedDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let reader = self.state().reader.clone();
        if let Some(callback) = reader {
            callback(path);
        }
        let mut state = self.state();
        state.readable()?;
        Ok(state.file(path)?.current.to_vec())
    }

    fn read_range(&self, path: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        state.readable()?;
        let bytes = &state.file(path)?.current;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let end = start.saturating_add(length).min(bytes.len());
        Ok(bytes.get(start..end).unwrap_or_default().to_vec())
    }

    fn length(&self, path: &Path) -> io::Result<u64> {
        let mut state = self.state();
        state.readable()?;
        Ok(state.file(path)?.current.len() as u64)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.state();
        state.readable()?;
        Ok(state.find(path).is_some())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.counters.list();
        let mut state = self.state();
        state.readable()?;
        let names = state.folder(path)?.current.clone();
        let is_dir = |node: usize| matches!(state.nodes.get(node), Some(DiskNode::Folder(_)));
        Ok(names.into_iter().map(|(name, node)| DirEntry { name, is_dir: is_dir(node) }).collect())
    }

    fn create(&self, path: &Path, contents: &[u8]) -> io::Result<()> {
        self.counters.create();
        let mut state = self.state();
        let short = state.step(SpaceNeed::Needed)?;
        state.add(path, DiskNode::File(FileNode::default()))?;
        let written = contents.len().min(short.unwrap_or(usize::MAX));
        state.write(path, 0, contents.get(..written).unwrap_or_default())?;
        if short.is_some() { Err(full()) } else { Ok(()) }
    }

    fn append(&self, path: &Path, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.counters.append();
        let mut state = self.state();
        let short = state.step(SpaceNeed::Needed)?;
        if at == 0 && state.find(path).is_none() {
            state.add(path, DiskNode::File(FileNode::default()))?;
        }
        let length = state.file(path)?.current.len() as u64;
        if length != at {
            let message = format!("the file is {length} bytes long instead of {at}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let written = bytes.len().min(short.unwrap_or(usize::MAX));
        state.write(path, at, bytes.get(..written).unwrap_or_default())?;
        if short.is_some() { Err(full()) } else { Ok(()) }
    }

    fn write_at(&self, path: &Path, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let end = at.saturating_add(bytes.len() as u64);
        let need = if end <= state.file(path)?.current.len() as u64 { SpaceNeed::Free } else { SpaceNeed::Needed };
        let short = state.step(need)?;
        let written = bytes.len().min(short.unwrap_or(usize::MAX));
        state.write(path, at, bytes.get(..written).unwrap_or_default())?;
        if short.is_some() { Err(full()) } else { Ok(()) }
    }

    fn append_volatile(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let short = state.step(SpaceNeed::Needed)?;
        if state.find(path).is_none() {
            state.add(path, DiskNode::File(FileNode::default()))?;
        }
        let length = state.file(path)?.current.len() as u64;
        state.write(path, length, bytes)?;
        if short.is_some() { Err(full()) } else { Ok(()) }
    }

    fn truncate(&self, path: &Path, length: u64) -> io::Result<()> {
        let mut state = self.state();
        state.step(SpaceNeed::Free)?;
        state.file(path)?.write(FileWrite::Length(length));
        Ok(())
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.counters.sync();
        let mut state = self.state();
        state.step(SpaceNeed::Free)?;
        state.file(path)?.sync();
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.counters.sync_dir();
        let mut state = self.state();
        state.step(SpaceNeed::Free)?;
        state.folder(path)?.sync();
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.counters.rename();
        let mut state = self.state();
        state.step(SpaceNeed::Needed)?;
        state.rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.counters.rename();
        let mut state = self.state();
        state.step(SpaceNeed::Needed)?;
        if state.find(to).is_some() {
            return Err(exists(to));
        }
        state.rename(from, to)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step(SpaceNeed::Needed)?;
        state.add(path, DiskNode::Folder(FolderNode::default()))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step(SpaceNeed::Free)?;
        state.file(path)?;
        let (folder, name) = state.parent(path)?;
        folder.change(NameChange::Unlink { name });
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step(SpaceNeed::Free)?;
        if !state.folder(path)?.current.is_empty() {
            return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, "the folder is not empty"));
        }
        let (folder, name) = state.parent(path)?;
        folder.change(NameChange::Unlink { name });
        Ok(())
    }

    fn lock(&self, path: &Path, contents: &[u8]) -> io::Result<Box<dyn HeldLock>> {
        let locks = Arc::clone(&self.state().locks);
        // The lock is taken first, so that the contents never appear without it.
        let lock = SimulatedLock::insert(&locks, path, LockMode::Exclusive);
        self.create(path, contents)?;
        Ok(Box::new(lock))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        let state = self.state();
        state.readable()?;
        let locks = state.locks.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(locks.iter().any(|(locked, mode)| locked == path && *mode == LockMode::Exclusive))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn HeldLock>> {
        if self.is_locked(path)? {
            // Processes of a simulation run one after the other, so no other process could end the wait.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match self.create(path, b"") {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let locks = Arc::clone(&self.state().locks);
        Ok(Box::new(SimulatedLock::insert(&locks, path, LockMode::Shared)))
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn HeldLock>>> {
        let state = self.state();
        state.readable()?;
        let is_locked =
            state.locks.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|(locked, _)| locked == path);
        if state.find(path).is_none() || is_locked {
            return Ok(None);
        }
        Ok(Some(Box::new(SimulatedLock::insert(&state.locks, path, LockMode::Exclusive))))
    }

    fn boot_id(&self) -> Option<String> {
        Some(format!("b{}", self.state().boots))
    }

    fn shared_file(&self, _path: &Path, _access: FileAccess) -> io::Result<Option<std::fs::File>> {
        Ok(None)
    }

    fn name_watch(&self) -> io::Result<Option<Box<dyn NameWatch>>> {
        Ok(None)
    }

    fn counters(&self) -> Counters {
        self.counters.read()
    }
}

/// The locks that processes hold.
type SimulatedLocks = Arc<Mutex<Vec<(PathBuf, LockMode)>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockMode {
    Shared,
    Exclusive,
}

#[derive(Debug)]
struct SimulatedLock {
    locks: SimulatedLocks,
    path: PathBuf,
    mode: LockMode,
}

impl SimulatedLock {
    fn insert(locks: &SimulatedLocks, path: &Path, mode: LockMode) -> Self {
        locks.lock().unwrap_or_else(PoisonError::into_inner).push((path.to_path_buf(), mode));
        Self { locks: Arc::clone(locks), path: path.to_path_buf(), mode }
    }
}

impl HeldLock for SimulatedLock {}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = locks.iter().position(|(path, mode)| *path == self.path && *mode == self.mode) {
            locks.swap_remove(index);
        }
    }
}
