//! The file `live.jsonl`: deltas of the current attempt, for processes that follow the thread. The file is never
//! synced, the state of a thread is never computed from it, and it is removed when the attempt ends.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::super::disk::Disk;
use super::super::{StoreError, layout};
use crate::thread_id::ThreadId;

/// Reads the complete lines of a thread's `live.jsonl`: the pieces of the reply that is being streamed. Empty if no
/// attempt is running.
pub fn read<T: DeserializeOwned>(disk: &dyn Disk, thread: &ThreadId) -> Result<Vec<T>, StoreError> {
    let path = layout::live(thread);
    let bytes = match disk.read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(StoreError::io("read", &path))?,
    };
    let whole = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    // Lines of a newer version are skipped.
    Ok(whole.filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

/// The writer of `live.jsonl`.
#[derive(Debug)]
pub struct LiveWriter {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    written: bool,
}

impl LiveWriter {
    pub fn new(disk: Arc<dyn Disk>, thread: &ThreadId) -> Self {
        Self { disk, path: layout::live(thread), written: true }
    }

    /// Appends lines. If they cannot be written, they are lost, and the caller decides whether to report the error.
    pub fn append<T: Serialize>(&mut self, deltas: &[T]) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        for delta in deltas {
            serde_json::to_writer(&mut bytes, delta).map_err(|_| StoreError::NoEvent)?;
            bytes.push(b'\n');
        }
        if bytes.is_empty() {
            return Ok(());
        }
        self.written = true;
        self.disk.append_volatile(&self.path, &bytes).map_err(StoreError::io("write to", &self.path))
    }

    /// Removes the file, because the attempt has ended and the transcript contains its result.
    pub fn clear(&mut self) -> Result<(), StoreError> {
        if !self.written {
            return Ok(());
        }
        self.written = false;
        match self.disk.remove(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::io("remove", &self.path)(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
