//! The disk as the store sees it: append, sync, rename, lock (`engine.md` 4). Everything the transcripts, objects,
//! snapshots, mail and owner files do passes here, so that a test disk can drop or reorder what was not synced.
//! Paths are relative to the project's root, and no path leaves it.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

mod counters;
mod real;
mod simulated;
mod tampered;

pub use counters::{Counters, DiskCounters};
pub use real::RealDisk;
pub use simulated::{Dice, Fault, SimulatedDisk, Survival};
pub use tampered::{Pass, Step, SyncKind, Tampered};

/// Blocking file operations below one root. Callers on an async runtime move them to a blocking thread.
///
/// What a call has changed may be lost or half done after a power failure until the matching `sync` (contents and
/// length of a file) or `sync_dir` (which names a folder holds) has returned without an error.
pub trait Disk: Send + Sync + fmt::Debug {
    /// The whole file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// At most `length` bytes from `offset`; fewer where the file ends before.
    fn read_range(&self, path: &Path, offset: u64, length: usize) -> io::Result<Vec<u8>>;

    /// The file's length in bytes.
    fn length(&self, path: &Path) -> io::Result<u64>;

    /// Whether a file or folder has this name.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// The names in a folder, sorted.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;

    /// A new file with these contents, not synced. An existing name is an `AlreadyExists` error.
    fn create(&self, path: &Path, contents: &[u8]) -> io::Result<()>;

    /// Writes at the end of the file, which must be at `at` (another length is an `InvalidData` error: somebody else
    /// writes this file). Creates the file if `at` is 0. After an error any part of `bytes` may have been written.
    fn append(&self, path: &Path, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes over what stands at `at`, lengthening the file where needed. The file exists.
    fn write_at(&self, path: &Path, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes at the end of a file that is never synced; created if missing.
    fn append_volatile(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Cuts the file to `length` bytes.
    fn truncate(&self, path: &Path, length: u64) -> io::Result<()>;

    /// Returns when the file's contents and length would survive a power failure. After an error nothing is known
    /// about what was written since the last success, and trying again proves nothing.
    fn sync(&self, path: &Path) -> io::Result<()>;

    /// The same for the names that a folder holds (not for what is in the files).
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Gives a file another name in the same folder, replacing what had it, in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file another name in the same folder; an existing name is an `AlreadyExists` error, which makes it an
    /// exclusive claim.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes one folder; an existing name is an `AlreadyExists` error, which makes it an exclusive claim.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Creates the file, takes its exclusive lock and writes `contents`. The lock ends with the returned value or with
    /// the process, whatever ends it.
    fn lock(&self, path: &Path, contents: &[u8]) -> io::Result<Box<dyn Held>>;

    /// Whether somebody holds the lock of this file; a missing file is nobody's.
    fn is_locked(&self, path: &Path) -> io::Result<bool>;

    /// The file for a library that does its own I/O and shares it with other processes by locks; created if missing when
    /// `access` is to write. `None` where such files do not exist: the library then goes through the other methods.
    fn shared_file(&self, path: &Path, access: Access) -> io::Result<Option<File>>;

    /// What was done so far.
    fn counters(&self) -> Counters;

    /// Replaces a file in one step: readers see the old contents or the new, whole. Not synced.
    fn write_atomic(&self, path: &Path, contents: &[u8]) -> io::Result<()> {
        let temporary = temporary_beside(path);
        let written = self.create(&temporary, contents).and_then(|()| self.rename(&temporary, path));
        if written.is_err() {
            // The reason is the first error; whether the leftover goes away changes nothing for a reader.
            let _ = self.remove(&temporary);
        }
        written
    }

    /// Makes the folder and those above it. The names of the folders it made are synced.
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

/// How [`Disk::shared_file`] opens a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    ReadWrite,
}

/// A lock that ends when this is dropped.
pub trait Held: Send + Sync + fmt::Debug {}

/// One name in a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub name: String,
    pub is_dir: bool,
}

/// The folders on the way to `path`, outermost first, `path` last.
fn ancestors(path: &Path) -> Vec<&Path> {
    let mut folders: Vec<&Path> = path.ancestors().filter(|folder| !folder.as_os_str().is_empty()).collect();
    folders.reverse();
    folders
}

/// A name in the same folder that nobody else uses: process id and a count that grows.
pub(super) fn temporary_beside(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!(".{name}.{}-{next}.tmp", std::process::id()))
}
