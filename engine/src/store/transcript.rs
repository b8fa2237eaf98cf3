//! The transcript of a thread: append-only, chained, synced at barriers (`engine.md` 4).
//!
//! An event is one line of at most 256 KiB (`line.rs`):
//!
//! ```text
//! {"v":1,"seq":6,"ts":1739820456123,"b":5,"h":"<64 hex digits>","type":"…", …}
//! ```
//!
//! - `seq` counts from 0 without gaps; in an undamaged file it is the number of lines before.
//! - `ts` is in milliseconds since 1970, by the driver's clock.
//! - `h` is SHA-256 over the `h` of the line before (for the first line, over the thread's id) and this line without
//!   its own `h`. The hash covers the line and everything before it.
//! - `b` is the barrier: the number of events known to be on disk when the line was written. The barrier of a later
//!   line is at least as high, so any later line that survives a crash proves the barrier.
//! - `s` (optional) is the seal: a key's name and its signature of the chain hash that the line has without `s`. It
//!   covers this line and every line before it. The writer seals the last line of each write.
//! - A field of the event that has one of these names gets `_` before it in the line.
//!
//! Reading stops at the first invalid line. If no later line has a barrier that covers it, the rest was never
//! acknowledged: it is a torn tail, and opening the transcript cuts it. If a later line has such a barrier, an
//! acknowledged line is missing: that is damage, reported with its line number, and nothing is changed. No later line
//! has a barrier that covers the last synced lines, so their loss cannot be detected from the file. A caller that knows
//! the synced count (from the registry's row) passes it to [`Transcript::open`], which then reports a shorter
//! transcript as damaged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::disk::Disk;
use super::{StoreError, layout};
use crate::event::Event;
use crate::thread_id::ThreadId;

pub mod line;
pub mod live;
mod scan;

#[cfg(test)]
mod tests;

pub use line::{ChainHash, LineBody, LineSigner, MAX_LINE_BYTES, Seal};
pub use live::LiveWriter;
pub(crate) use scan::read_head;
pub use scan::{TornTail, TranscriptContents, read};

/// An event with its position in the transcript.
#[derive(Debug, Clone, PartialEq)]
pub struct TranscriptRecord {
    /// Number of the event in the transcript, from 0.
    pub seq: u64,
    /// Time of the event, in milliseconds since 1970.
    pub ts: i64,
    /// Number of events known to be on disk when this line was written.
    pub barrier: u64,
    pub hash: ChainHash,
    pub seal: Option<Seal>,
    /// The content of the event: `type`, and the fields that events of this type have.
    pub body: Map<String, Value>,
}

/// The writer of a transcript. Only the process that owns the thread has a writer.
#[derive(Debug)]
pub struct Transcript {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Size of the valid lines in bytes, which is the size of the file.
    length: u64,
    /// Number of events so far, including those that are encoded in `staged` and not written yet.
    count: u64,
    head: ChainHash,
    /// The lines of the next write.
    staged: Vec<u8>,
    /// `head` and `count` as they were after the last write. The events in `staged` are not included.
    written: (ChainHash, u64),
    /// Number of events known to be on disk.
    barrier: u64,
    folder_synced: bool,
    /// The reason why nothing more can be written to the transcript; `None` as long as events can be written.
    poisoned: Option<String>,
}

impl TranscriptRecord {
    /// Returns the event of the line; fails if this program does not know the type or the fields of the event. `thread`
    /// is the thread whose transcript the error names.
    pub fn event(&self, thread: &ThreadId) -> Result<Event, StoreError> {
        self.clone().take_event(thread)
    }

    /// Variant of [`Self::event`] that moves the fields out of the record.
    pub(crate) fn take_event(&mut self, thread: &ThreadId) -> Result<Event, StoreError> {
        let body = serde_json::from_value(Value::Object(std::mem::take(&mut self.body))).map_err(|error| {
            StoreError::Damaged {
                path: layout::transcript(thread),
                line: self.seq + 1,
                reason: format!("it is not an event that this program knows ({error})"),
            }
        })?;
        Ok(Event { seq: self.seq, ts: self.ts, body })
    }
}

impl Transcript {
    /// Creates the transcript of a new thread, whose folder exists and has no transcript. The first append creates the
    /// file.
    pub fn create(disk: Arc<dyn Disk>, thread: &ThreadId) -> Result<Self, StoreError> {
        let path = layout::transcript(thread);
        if disk.exists(&path).map_err(StoreError::io("access", &path))? {
            let error = std::io::Error::new(std::io::ErrorKind::AlreadyExists, "the thread already has a transcript");
            return Err(StoreError::io("create", &path)(error));
        }
        Ok(Self {
            disk,
            path,
            length: 0,
            count: 0,
            head: ChainHash::start(thread),
            staged: Vec::new(),
            written: (ChainHash::start(thread), 0),
            barrier: 0,
            folder_synced: false,
            poisoned: None,
        })
    }

    /// Reads the transcript of a thread that this process owns and cuts a torn tail. `synced` is the number of events
    /// that the caller knows to be on disk (0 if unknown).
    pub fn open(disk: Arc<dyn Disk>, thread: &ThreadId, synced: u64) -> Result<(Self, TranscriptContents), StoreError> {
        let reading = read(&*disk, thread, synced)?;
        let transcript = Self::open_read(disk, thread, &reading, synced)?;
        Ok((transcript, reading))
    }

    /// Opens the transcript of a thread that this process owns, and cuts everything after the contents in `reading`.
    /// See [`Self::open`] for `synced`.
    pub(crate) fn open_read(
        disk: Arc<dyn Disk>,
        thread: &ThreadId,
        reading: &TranscriptContents,
        synced: u64,
    ) -> Result<Self, StoreError> {
        let path = layout::transcript(thread);
        if reading.torn.is_some() {
            disk.truncate(&path, reading.length).map_err(StoreError::io("cut the torn tail of", &path))?;
        }
        let last = reading.records.last();
        let barrier = last.map_or(0, |record| record.barrier).max(synced);
        rewrite_tail(&*disk, &path, reading, barrier)?;
        let (head, count) =
            (last.map_or_else(|| ChainHash::start(thread), |record| record.hash), reading.records.len() as u64);
        Ok(Self {
            disk,
            path,
            length: reading.length,
            count,
            head,
            staged: Vec::new(),
            written: (head, count),
            barrier,
            // Without a barrier, the folder entry may be unsynced: the creator may have died before the sync.
            folder_synced: barrier > 0,
            poisoned: None,
        })
    }

    /// Writes either all events or none, and returns their records. See [`Self::append_sealed`].
    #[cfg(test)]
    pub fn append<T: LineBody>(&mut self, events: &[T], ts: i64) -> Result<Vec<TranscriptRecord>, StoreError> {
        let (mut before, first) = (self.head, self.count);
        self.stage(events, ts, None)?;
        let lines = self.staged.clone();
        self.write_staged()?;
        let read = |(seq, text): (u64, &[u8])| {
            let record = line::read(text.trim_ascii_end(), seq, before).map_err(|_| StoreError::NoEvent)?;
            before = record.hash;
            Ok(record)
        };
        (first..).zip(lines.split_inclusive(|byte| *byte == b'\n')).map(read).collect()
    }

    /// Writes either all events or none, and seals the last line if there is a signer. The events are not durable
    /// before [`Self::sync`].
    ///
    /// After [`StoreError::Io`] (such as a full disk), the transcript is unchanged and usable. After
    /// [`StoreError::Poisoned`], the transcript accepts no more events.
    pub fn append_sealed<T: LineBody>(
        &mut self,
        events: &[T],
        ts: i64,
        signer: Option<LineSigner<'_>>,
    ) -> Result<(), StoreError> {
        self.stage(events, ts, signer)?;
        self.write_staged()
    }

    /// Encodes events as lines that the next `write_staged` writes. On an error, no event is added. If there is
    /// a signer, the last line gets a seal.
    pub fn stage<T: LineBody>(
        &mut self,
        events: &[T],
        ts: i64,
        signer: Option<LineSigner<'_>>,
    ) -> Result<(), StoreError> {
        self.usable()?;
        let (start, mut before, mut seq) = (self.staged.len(), self.head, self.count);
        for (index, event) in events.iter().enumerate() {
            let position = line::LinePosition { seq, ts, barrier: self.barrier, before };
            let signer = signer.filter(|_| index + 1 == events.len());
            match line::encode(&position, event, signer, &mut self.staged) {
                Ok(hash) => before = hash,
                Err(error) => {
                    self.staged.truncate(start);
                    return Err(error);
                }
            }
            seq += 1;
        }
        (self.head, self.count) = (before, seq);
        Ok(())
    }

    /// Writes the staged events: all of them, or none if the write fails.
    pub(crate) fn write_staged(&mut self) -> Result<(), StoreError> {
        if self.staged.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.staged);
        if let Err(error) = self.disk.append(&self.path, self.length, &bytes) {
            (self.head, self.count) = self.written;
            return Err(self.undo_append(error));
        }
        self.length += bytes.len() as u64;
        self.written = (self.head, self.count);
        Ok(())
    }

    /// Discards the events that were added for the next write.
    pub(crate) fn discard_staged(&mut self) {
        self.staged.clear();
        (self.head, self.count) = self.written;
    }

    /// Syncs the transcript, so that every event up to now survives a power failure. Does nothing if all events are
    /// known to be on disk.
    ///
    /// A failure is final, because the state on disk is then unknown: in this process, the transcript accepts no more
    /// events. The next process that opens the transcript reads the lines that exist.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        self.usable()?;
        if self.barrier == self.count {
            return Ok(());
        }
        let mut synced = self.disk.sync(&self.path);
        if synced.is_ok() && !self.folder_synced {
            synced = self.disk.sync_dir(self.path.parent().unwrap_or(Path::new("")));
        }
        if let Err(error) = synced {
            return Err(self.poison(format!("a sync failed ({error})")));
        }
        self.folder_synced = true;
        self.barrier = self.count;
        Ok(())
    }

    /// Returns the number of events, which is the next event's `seq`.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the chain hash of the last event (field `h` of its line); if there is no event, the hash to which the
    /// first event chains.
    pub fn head(&self) -> ChainHash {
        self.head
    }

    /// Returns the number of events known to be on disk.
    pub fn barrier(&self) -> u64 {
        self.barrier
    }

    fn usable(&self) -> Result<(), StoreError> {
        match &self.poisoned {
            None => Ok(()),
            Some(reason) => Err(StoreError::Poisoned { path: self.path.clone(), reason: reason.clone() }),
        }
    }

    fn poison(&mut self, reason: String) -> StoreError {
        self.poisoned = Some(reason.clone());
        StoreError::Poisoned { path: self.path.clone(), reason }
    }

    /// Removes the bytes that a failed append has written, and returns the error for the caller. If the bytes cannot be
    /// removed, the transcript accepts no more events.
    fn undo_append(&mut self, error: std::io::Error) -> StoreError {
        if error.kind() == std::io::ErrorKind::InvalidData {
            return self.poison(format!("another writer changed the file: {error}"));
        }
        let left = match self.disk.length(&self.path) {
            Ok(length) => length,
            Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => 0,
            Err(unknown) => {
                return self.poison(format!("a write failed ({error}), and the file's length is unknown ({unknown})"));
            }
        };
        if left > self.length
            && let Err(stuck) = self.disk.truncate(&self.path, self.length)
        {
            return self.poison(format!("a write failed ({error}) and could not be undone ({stuck})"));
        }
        StoreError::io("write to", &self.path)(error)
    }
}

/// Writes the lines after the barrier again, in place. If a sync of an earlier process failed, the disk may lack these
/// lines although the file still shows them. A later sync would not report the loss, because nothing is left to write.
fn rewrite_tail(disk: &dyn Disk, path: &Path, reading: &TranscriptContents, barrier: u64) -> Result<(), StoreError> {
    let synced = usize::try_from(barrier).unwrap_or(usize::MAX).checked_sub(1);
    let from = synced.and_then(|index| reading.ends.get(index)).copied().unwrap_or(0);
    let length = usize::try_from(reading.length - from).unwrap_or(usize::MAX);
    if length == 0 {
        return Ok(());
    }
    let tail = disk.read_range(path, from, length).map_err(StoreError::io("read", path))?;
    disk.write_at(path, from, &tail).map_err(StoreError::io("write to", path))
}
