//! The disk interface of the store: append, sync, rename, lock (`engine.md` 4). All I/O on transcripts, objects,
//! snapshots, messages and owner files uses [`Disk`], so that a test disk can drop or reorder unsynced changes. Paths
//! are relative to the project's root and stay inside of it.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::BoxFuture;

mod counters;
mod fault_injection;
mod name_watch;
mod real;
mod simulated;

pub use counters::{Counters, DiskCounters};
pub use fault_injection::{DiskStep, StepDecision, SyncKind, SyncSkippingDisk};
pub use real::RealDisk;
pub use simulated::{DiskFault, SimulatedDisk, SplitMix, Survival};

/// Blocking file operations below one root. Async callers run them on a blocking thread.
///
/// A power failure may lose a change, or leave it half done, until the matching `sync` (contents and length of a file)
/// or `sync_dir` (names in a folder) has returned without an error.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Reads the whole file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Reads at most `length` bytes from `offset`; fewer at the end of the file.
    fn read_range(&self, path: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>>;

    /// Returns the file's length in bytes.
    fn length(&self, path: &Path) -> io::Result<u64>;

    /// Returns true if a file or folder with this name exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Lists the names in a folder, sorted.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;

    /// Creates a file with these contents, unsynced. An existing name is an `AlreadyExists` error.
    fn create(&self, path: &Path, contents: &[u8]) -> io::Result<()>;

    /// Writes at the end of a file whose length must be `at`. Any other length is an `InvalidData` error, because
    /// another writer has changed the file. Creates the file if `at` is 0. After an error, any part of `bytes` may have
    /// been written.
    fn append(&self, path: &Path, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Overwrites the bytes at `at` and extends the file if needed. The file must exist.
    fn write_at(&self, path: &Path, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes at the end of a file that is never synced; creates the file if missing.
    fn append_volatile(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Truncates the file to `length` bytes.
    fn truncate(&self, path: &Path, length: u64) -> io::Result<()>;

    /// Returns once the file's contents and length would survive a power failure. After an error, the state of all
    /// writes since the last successful sync is unknown, even if a later sync succeeds.
    fn sync(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable. The contents of its files need a `sync` of their own.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Renames a file within its folder, atomically replacing an existing target.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Renames a file within its folder. An existing target is an `AlreadyExists` error, so that only one caller
    /// succeeds.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Creates one folder. An existing name is an `AlreadyExists` error, so that only one caller succeeds.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Creates the file, takes its exclusive lock and writes `contents`. The lock ends when the returned value is
    /// dropped or when the process ends, even by a crash.
    fn lock(&self, path: &Path, contents: &[u8]) -> io::Result<Box<dyn HeldLock>>;

    /// Returns true if any process holds the exclusive lock of this file; false if the file is missing.
    fn is_locked(&self, path: &Path) -> io::Result<bool>;

    /// Takes a shared lock of the file, creating the file if it is missing. Waits while a process holds the exclusive
    /// lock. If that process removes the file, a new file is created and locked.
    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn HeldLock>>;

    /// Takes the exclusive lock of an existing file; `None` if the file is missing or any process holds a lock of it.
    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn HeldLock>>>;

    /// Returns the id of the system's current boot; `None` if the system has no such id. Changes that an earlier
    /// process did not sync are intact if the process ran in the same boot.
    fn boot_id(&self) -> Option<String>;

    /// Opens a file for a library that does its own I/O and that shares the file with other processes by locks. Creates
    /// the file if `access` permits writing. Returns `None` if this disk has no such files. The library must then use
    /// the other methods of the disk.
    fn shared_file(&self, path: &Path, access: FileAccess) -> io::Result<Option<File>>;

    /// Creates a watch for new names in folders; `None` if this disk cannot report them. Must be called within a Tokio
    /// runtime.
    fn name_watch(&self) -> io::Result<Option<Box<dyn NameWatch>>>;

    /// Returns the counts of the operations since the disk was opened.
    fn counters(&self) -> Counters;

    /// Replaces a file atomically: readers see either the old or the new contents. The change is not synced.
    fn write_atomic(&self, path: &Path, contents: &[u8]) -> io::Result<()> {
        let temporary = temporary_beside(path);
        let written = self.create(&temporary, contents).and_then(|()| self.rename(&temporary, path));
        if written.is_err() {
            // The first error is reported; readers ignore a leftover temporary file.
            let _ = self.remove(&temporary);
        }
        written
    }

    /// Removes these files of a folder. Ignores missing files, and a missing folder.
    fn remove_files(&self, folder: &Path, names: &[&str]) -> io::Result<()> {
        names.iter().try_for_each(|name| ignore_missing(self.remove(&folder.join(name))))
    }

    /// Removes these folders in a folder. Ignores missing folders, and folders that are not empty.
    fn remove_dirs(&self, folder: &Path, names: &[&str]) -> io::Result<()> {
        names.iter().try_for_each(|name| ignore_not_empty(self.remove_dir(&folder.join(name))))
    }

    /// Creates the folder and its missing ancestors, and syncs the names of the created folders.
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        for folder in ancestors(path) {
            match self.create_dir(folder) {
                Ok(()) => self.sync_dir(folder.parent().unwrap_or(Path::new("")))?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Converts the error of a missing file or folder to success.
pub(super) fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Converts the error of a missing folder, or of a folder that is not empty, to success.
fn ignore_not_empty(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => ignore_missing(removed),
    }
}

/// The access mode of [`Disk::shared_file`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    Read,
    ReadWrite,
}

/// A watch that reports new names in its folders.
pub trait NameWatch: Send + fmt::Debug {
    /// Adds a folder. A new file in the folder is reported once the file is complete. Files whose names start with a
    /// dot are temporary and are not reported.
    fn add_files(&mut self, folder: &Path) -> io::Result<()>;

    /// Adds a folder whose new subfolders are reported.
    fn add_folders(&mut self, folder: &Path) -> io::Result<()>;

    /// Removes a folder from the watch: its changes are no longer reported. The folder itself stays on the disk.
    fn remove(&mut self, folder: &Path);

    /// Waits for changes and returns the changed folders. A removed folder is reported as changed, and is no longer
    /// watched. No change is lost if the wait is dropped.
    fn changed(&mut self) -> BoxFuture<'_, io::Result<BTreeSet<PathBuf>>>;
}

/// A lock that is released on drop.
pub trait HeldLock: Send + Sync + fmt::Debug {}

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    pub name: String,
    pub is_dir: bool,
}

/// Returns the folders on the path, from the outermost to `path` itself.
fn ancestors(path: &Path) -> Vec<&Path> {
    let mut folders: Vec<&Path> = path.ancestors().filter(|folder| !folder.as_os_str().is_empty()).collect();
    folders.reverse();
    folders
}

/// Returns true if `name` is the name of a temporary file that [`temporary_beside`] made for `path`.
pub(super) fn is_temporary_of(name: &str, path: &Path) -> bool {
    let of = path.file_name().unwrap_or_default().to_string_lossy();
    let number =
        name.strip_prefix('.').and_then(|rest| rest.strip_prefix(&*of)).and_then(|rest| rest.strip_prefix('.'));
    number.is_some_and(|rest| rest.strip_suffix(".tmp").is_some_and(|rest| !rest.contains('.')))
}

/// Returns a unique temporary path in the folder of `path`. The name of the file contains the process id and a counter.
pub(super) fn temporary_beside(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!(".{name}.{}-{next}.tmp", std::process::id()))
}
