//! The registry's file on a disk without shared files (the simulated one): the database's own I/O through [`Disk`], so
//! that a crash can be aimed between any two of its writes. One process, one opening.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::StorageBackend;

use crate::store::StoreError;
use crate::store::disk::Disk;

#[derive(Debug)]
pub struct DiskBackend {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl DiskBackend {
    pub fn open(disk: Arc<dyn Disk>, path: &Path) -> Result<Self, StoreError> {
        if !disk.exists(path).map_err(StoreError::io("look for", path))? {
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
