//! A disk wrapper that calls a callback before every change and every sync, and may skip a sync. Tests use the wrapper
//! to prove that every sync is necessary, and to end their own process between any two changes.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Counters, DirEntry, Disk, FileAccess, HeldLock, NameWatch};
use crate::store::layout::{OBJECTS, THREADS};
use crate::thread_id::ThreadId;

/// A [`Disk`] that forwards every operation, except for the syncs that a test skips.
pub struct SyncSkippingDisk {
    inner: Arc<dyn Disk>,
    before: Box<StepHook>,
}

/// The operation about to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskStep<'a> {
    Change(&'a Path),
    Sync(&'a Path),
    SyncFolder(&'a Path),
}

/// The decision of a test's callback about an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepDecision {
    Done,
    /// Skip a sync and report success. A change cannot be skipped.
    LeftOut,
}

type StepHook = dyn Fn(DiskStep<'_>) -> StepDecision + Send + Sync;

/// The data that a sync makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncKind {
    /// Lines of a transcript.
    Transcript,
    /// Names in a thread's folder: the names of the transcript and of the inbox.
    RecordNames,
    /// Names of threads' folders.
    ThreadNames,
    /// Contents of an object.
    Object,
    ObjectNames,
    /// Contents of the registry's file, which is synced when the registry is closed or rebuilt.
    Registry,
    /// Contents of a control message.
    Mail,
    MailNames,
    /// Entries of the folders that contain the folders of threads, such as `.ai/state`.
    StateNames,
}

impl SyncKind {
    pub const ALL: [Self; 9] = [
        Self::Transcript,
        Self::RecordNames,
        Self::ThreadNames,
        Self::Object,
        Self::ObjectNames,
        Self::Registry,
        Self::Mail,
        Self::MailNames,
        Self::StateNames,
    ];

    /// Returns the kind of data that a step syncs. `None` if the step is a change instead of a sync, or concerns a file
    /// outside of the store.
    pub fn of(step: DiskStep<'_>) -> Option<Self> {
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let of_inbox = |path: &Path| path.parent().is_some_and(|folder| name(folder) == "inbox");
        match step {
            DiskStep::Sync(path) if name(path) == "transcript.jsonl" => Some(Self::Transcript),
            DiskStep::Sync(path) if name(path).contains("registry.redb") => Some(Self::Registry),
            DiskStep::Sync(path) if path.starts_with(OBJECTS) => Some(Self::Object),
            DiskStep::Sync(path) if of_inbox(path) => Some(Self::Mail),
            DiskStep::SyncFolder(path) if path.starts_with(OBJECTS) => Some(Self::ObjectNames),
            DiskStep::SyncFolder(path) if name(path) == "inbox" => Some(Self::MailNames),
            DiskStep::SyncFolder(path) => Some(match path.strip_prefix(THREADS) {
                Err(_) => Self::StateNames,
                Ok(below) if ThreadId::parse(&below.to_string_lossy()).is_ok() => Self::RecordNames,
                Ok(_) => Self::ThreadNames,
            }),
            DiskStep::Change(_) | DiskStep::Sync(_) => None,
        }
    }
}

impl SyncSkippingDisk {
    /// Creates a disk that calls `before` before each change and each sync, and skips a sync for which `before` returns
    /// `LeftOut`.
    pub fn new(inner: Arc<dyn Disk>, before: impl Fn(DiskStep<'_>) -> StepDecision + Send + Sync + 'static) -> Self {
        Self { inner, before: Box::new(before) }
    }

    /// Creates a disk that skips one sync: the sync with the number `left_out`, counted from 0 over files and folders.
    pub fn without_sync(inner: Arc<dyn Disk>, left_out: u64) -> Self {
        let seen = AtomicU64::new(0);
        Self::new(inner, move |step| match step {
            DiskStep::Sync(_) | DiskStep::SyncFolder(_) if seen.fetch_add(1, Ordering::Relaxed) == left_out => {
                StepDecision::LeftOut
            }
            DiskStep::Change(_) | DiskStep::Sync(_) | DiskStep::SyncFolder(_) => StepDecision::Done,
        })
    }

    /// Creates a disk that skips every sync of these kinds.
    pub fn without(inner: Arc<dyn Disk>, kinds: &'static [SyncKind]) -> Self {
        Self::new(inner, move |step| match SyncKind::of(step) {
            Some(kind) if kinds.contains(&kind) => StepDecision::LeftOut,
            Some(_) | None => StepDecision::Done,
        })
    }

    /// Calls the test's callback for a change of `path`. Returns the inner disk, on which the change is made.
    fn change(&self, path: &Path) -> &dyn Disk {
        // Only syncs can be skipped, so the decision is ignored.
        let _ = (self.before)(DiskStep::Change(path));
        &*self.inner
    }
}

impl fmt::Debug for SyncSkippingDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tampered").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Disk for SyncSkippingDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.inner.read(path)
    }

    fn read_range(&self, path: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        self.inner.read_range(path, offset, length)
    }

    fn length(&self, path: &Path) -> io::Result<u64> {
        self.inner.length(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.list(path)
    }

    fn create(&self, path: &Path, contents: &[u8]) -> io::Result<()> {
        self.change(path).create(path, contents)
    }

    fn append(&self, path: &Path, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.change(path).append(path, at, bytes)
    }

    fn write_at(&self, path: &Path, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.change(path).write_at(path, at, bytes)
    }

    fn append_volatile(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.change(path).append_volatile(path, bytes)
    }

    fn truncate(&self, path: &Path, length: u64) -> io::Result<()> {
        self.change(path).truncate(path, length)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        match (self.before)(DiskStep::Sync(path)) {
            StepDecision::Done => self.inner.sync(path),
            StepDecision::LeftOut => Ok(()),
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        match (self.before)(DiskStep::SyncFolder(path)) {
            StepDecision::Done => self.inner.sync_dir(path),
            StepDecision::LeftOut => Ok(()),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(to).rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(to).rename_new(from, to)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.change(path).create_dir(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(path).remove(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.change(path).remove_dir(path)
    }

    fn lock(&self, path: &Path, contents: &[u8]) -> io::Result<Box<dyn HeldLock>> {
        self.change(path).lock(path, contents)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.inner.is_locked(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn HeldLock>> {
        self.change(path).lock_shared(path)
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn HeldLock>>> {
        self.inner.try_lock(path)
    }

    fn boot_id(&self) -> Option<String> {
        self.inner.boot_id()
    }

    fn shared_file(&self, path: &Path, access: FileAccess) -> io::Result<Option<std::fs::File>> {
        self.inner.shared_file(path, access)
    }

    fn name_watch(&self) -> io::Result<Option<Box<dyn NameWatch>>> {
        self.inner.name_watch()
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
