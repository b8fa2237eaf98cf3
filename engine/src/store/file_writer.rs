//! A writer of a new file, for contents that are not in memory as one piece.

use std::io::{self, Write};
use std::path::Path;

use super::disk::{Disk, temporary_beside};

/// Maximum bytes of one write. A file of at most this size is written with a single write.
const BUFFER_BYTES: usize = 1024 * 1024;

/// A writer that creates a file and buffers at most [`BUFFER_BYTES`]. Call [`FileWriter::finish`] after the last write.
pub(crate) struct FileWriter<'d> {
    disk: &'d dyn Disk,
    path: &'d Path,
    buffer: Vec<u8>,
    /// Bytes in the file; `None` before the file is created.
    written: Option<u64>,
}

impl<'d> FileWriter<'d> {
    pub fn new(disk: &'d dyn Disk, path: &'d Path) -> Self {
        Self { disk, path, buffer: Vec::new(), written: None }
    }

    /// Writes the buffered bytes. Creates the file even if nothing was written.
    pub fn finish(mut self) -> io::Result<()> {
        if self.written.is_some() && self.buffer.is_empty() { Ok(()) } else { self.write_buffer() }
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        let at = self.written.unwrap_or(0);
        match self.written {
            None => self.disk.create(self.path, &self.buffer)?,
            Some(at) => self.disk.append(self.path, at, &self.buffer)?,
        }
        self.written = Some(at + self.buffer.len() as u64);
        self.buffer.clear();
        Ok(())
    }
}

/// Replaces the contents of a file atomically by the parts, in order, as [`Disk::write_atomic`] does.
pub(crate) fn write_parts_atomic(disk: &dyn Disk, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let temporary = temporary_beside(path);
    let mut file = FileWriter::new(disk, &temporary);
    let written = parts
        .iter()
        .try_for_each(|part| file.write_all(part))
        .and_then(|()| file.finish())
        .and_then(|()| disk.rename(&temporary, path));
    if written.is_err() {
        // The first error is reported; readers ignore a leftover temporary file.
        let _ = disk.remove(&temporary);
    }
    written
}

impl Write for FileWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() == BUFFER_BYTES {
            self.write_buffer()?;
        }
        let taken = bytes.len().min(BUFFER_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
