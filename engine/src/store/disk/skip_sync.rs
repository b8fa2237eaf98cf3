//! A disk that lies once: the k-th sync answers without having synced. Tests hold that no sync can be left out.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Access, Counters, Disk, Entry, Held};

/// Passes everything on but one sync, of a file or of a folder, counted from 0.
#[derive(Debug)]
pub struct SkipSync {
    inner: Arc<dyn Disk>,
    skipped: u64,
    seen: AtomicU64,
}

impl SkipSync {
    pub fn new(inner: Arc<dyn Disk>, skipped: u64) -> Self {
        Self { inner, skipped, seen: AtomicU64::new(0) }
    }

    fn is_skipped(&self) -> bool {
        self.seen.fetch_add(1, Ordering::Relaxed) == self.skipped
    }
}

impl Disk for SkipSync {
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

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.inner.list(path)
    }

    fn create(&self, path: &Path, contents: &[u8]) -> io::Result<()> {
        self.inner.create(path, contents)
    }

    fn append(&self, path: &Path, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.inner.append(path, at, bytes)
    }

    fn write_at(&self, path: &Path, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_at(path, at, bytes)
    }

    fn append_volatile(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.inner.append_volatile(path, bytes)
    }

    fn truncate(&self, path: &Path, length: u64) -> io::Result<()> {
        self.inner.truncate(path, length)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        if self.is_skipped() { Ok(()) } else { self.inner.sync(path) }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if self.is_skipped() { Ok(()) } else { self.inner.sync_dir(path) }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename_new(from, to)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir(path)
    }

    fn lock(&self, path: &Path, contents: &[u8]) -> io::Result<Box<dyn Held>> {
        self.inner.lock(path, contents)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.inner.is_locked(path)
    }

    fn shared_file(&self, path: &Path, access: Access) -> io::Result<Option<std::fs::File>> {
        self.inner.shared_file(path, access)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
