//! Two backends of the database that do not work on a file of the operating system. `MemoryBackend` holds a registry in
//! memory while it is created. `DiskBackend` stores the database through a [`Disk`], so that tests can crash a
//! simulated disk between any two writes of the database.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

use crate::store::StoreError;
use crate::store::disk::Disk;

/// A backend that does the I/O of the database through [`Disk`]. The registry uses this backend for a disk without
/// files of the operating system, such as a simulated disk. Only one process can use such a disk.
#[derive(Debug)]
pub struct DiskBackend {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl DiskBackend {
    pub fn open(disk: Arc<dyn Disk>, path: &Path) -> Result<Self, StoreError> {
        if !disk.exists(path).map_err(StoreError::io("access", path))? {
            disk.create(path, b"").map_err(StoreError::io("create", path))?;
        }
        Ok(Self { disk, path: path.to_path_buf() })
    }
}

impl StorageBackend for DiskBackend {
    fn len(&self) -> io::Result<u64> {
        self.disk.length(&self.path)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.disk.read_range(&self.path, offset, out.len())?;
        if bytes.len() != out.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        out.copy_from_slice(&bytes);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.disk.truncate(&self.path, length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.sync(&self.path)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.write_at(&self.path, offset, data)
    }
}

/// An in-memory backend for a registry that is being created. Pages of zeros take no memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryBackend(Arc<Mutex<SparsePages>>);

#[derive(Debug, Default)]
struct SparsePages {
    length: u64,
    /// Pages by number; a missing page is all zeros.
    pages: BTreeMap<u64, Vec<u8>>,
}

/// Size of a page in bytes.
const PAGE_LEN: usize = 4096;
const PAGE_BYTES: u64 = PAGE_LEN as u64;

impl MemoryBackend {
    /// Writes the database to a new file, unsynced. The database must be closed.
    pub fn store(self, disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
        let SparsePages { length, pages } = std::mem::take(&mut *self.sparse());
        disk.create(path, b"").map_err(StoreError::io("create", path))?;
        let write = || {
            disk.truncate(path, length)?;
            for (number, bytes) in &pages {
                let at = number * PAGE_BYTES;
                let end = usize::try_from(length.saturating_sub(at)).unwrap_or(usize::MAX).min(bytes.len());
                disk.write_at(path, at, bytes.get(..end).unwrap_or_default())?;
            }
            Ok(())
        };
        write().map_err(StoreError::io("write to", path))
    }

    fn sparse(&self) -> MutexGuard<'_, SparsePages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Splits a byte range at page boundaries. For each page, returns its number, the range within the page, and the range
/// within the whole input.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let mut done = 0_usize;
    std::iter::from_fn(move || {
        let left = length.checked_sub(done).filter(|left| *left > 0)?;
        let at = offset + done as u64;
        let begin = usize::try_from(at % PAGE_BYTES).ok()?;
        let part = left.min(PAGE_LEN - begin);
        let own = done..done + part;
        done += part;
        Some((at / PAGE_BYTES, begin..begin + part, own))
    })
}

impl StorageBackend for MemoryBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.sparse().length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let sparse = self.sparse();
        inside(offset, out.len(), sparse.length)?;
        out.fill(0);
        for (number, there, here) in parts(offset, out.len()) {
            let page = sparse.pages.get(&number).and_then(|page| page.get(there));
            if let (Some(page), Some(out)) = (page, out.get_mut(here)) {
                out.copy_from_slice(page);
            }
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut sparse = self.sparse();
        sparse.length = length;
        sparse.pages.retain(|number, _| number * PAGE_BYTES < length);
        if let Some(page) = sparse.pages.get_mut(&(length / PAGE_BYTES)) {
            // Truncated bytes read as zeros after the file grows again.
            let end = usize::try_from(length % PAGE_BYTES).unwrap_or(0);
            page.get_mut(end..).unwrap_or_default().fill(0);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut sparse = self.sparse();
        inside(offset, data.len(), sparse.length)?;
        for (number, there, here) in parts(offset, data.len()) {
            let page = sparse.pages.entry(number).or_insert_with(|| vec![0; PAGE_LEN]);
            if let (Some(page), Some(data)) = (page.get_mut(there), data.get(here)) {
                page.copy_from_slice(data);
            }
        }
        Ok(())
    }
}

fn inside(offset: u64, bytes: usize, length: u64) -> io::Result<()> {
    let end = offset.checked_add(bytes as u64);
    if end.is_some_and(|end| end <= length) { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::store::disk::SimulatedDisk;

    #[test]
    fn memory_backend_reads_and_stores_written_bytes_and_zeros_elsewhere() {
        let memory = MemoryBackend::default();
        memory.set_len(3 * PAGE_BYTES + 10).unwrap();
        memory.write(PAGE_BYTES - 2, b"abcd").unwrap();
        memory.write(3 * PAGE_BYTES + 8, b"zz").unwrap();
        memory.write(2 * PAGE_BYTES + 5, b"gone").unwrap();
        memory.set_len(2 * PAGE_BYTES + 5).unwrap();
        memory.set_len(3 * PAGE_BYTES + 10).unwrap();
        memory.write(3 * PAGE_BYTES + 8, b"zz").unwrap();
        assert!(memory.write(3 * PAGE_BYTES + 9, b"zz").is_err());
        assert!(memory.read(u64::MAX, &mut [0; 2]).is_err());
        let mut found = [1; 6];
        memory.read(PAGE_BYTES - 3, &mut found).unwrap();
        assert_eq!(&found, b"\0abcd\0");

        let (disk, path) = (SimulatedDisk::new(), Path::new("made"));
        memory.store(&disk, path).unwrap();
        let bytes = disk.read(path).unwrap();
        assert_eq!(bytes.len() as u64, 3 * PAGE_BYTES + 10);
        let set: Vec<usize> = bytes.iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(at, _)| at).collect();
        assert_eq!(set, [4094, 4095, 4096, 4097, 12296, 12297]);
    }
}
