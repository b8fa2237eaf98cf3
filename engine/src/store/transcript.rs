//! The transcript: the one record of a thread, append-only, chained, synced at barriers (`engine.md` 4).
//!
//! One event is one line of at most 256 KiB (`line.rs`):
//!
//! ```text
//! {"v":1,"seq":6,"ts":1739820456123,"b":5,"h":"<64 hex digits>","type":"…", …}
//! ```
//!
//! - `seq` counts from 0 without gaps; in an undamaged file it is the number of lines before.
//! - `ts` is in milliseconds since 1970, as the driver's clock said.
//! - `h` is SHA-256 over the `h` before (for the first line, over the thread's id) and this line without its own `h`,
//!   so that a line vouches for itself and for everything before it.
//! - `b` is the barrier: how many events were known to be on the disk when the line was written. A barrier is thus not
//!   a line of its own but what every later line says about the earlier ones, and it survives a crash with any of them.
//! - `s` (optional) is the seal: a key's name and its signature of the chain hash that the line has without `s`. It
//!   covers this line and every line before it. The writer seals the last line of each write.
//! - A field of the event that has one of these names gets `_` before it in the line.
//!
//! Reading stops at the first line that is not what it should be. If no line behind it claims a barrier that covers
//! it, nothing of the rest was ever acknowledged: it is a torn tail, and opening the transcript cuts it. If one does,
//! a line that was acknowledged is gone: that is damage, reported with its line number, and nothing is changed.
//! The very last synced lines have nothing behind them to speak for them; whoever knows how far the transcript was
//! synced (the registry's row) says so to [`Transcript::open`], which then calls a shorter one damaged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
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

pub use line::{Hash, LINE_LIMIT, LineSigner, Seal};
pub use live::Live;
pub use scan::{Reading, Torn, read, read_after, read_head};

/// One event with its place in the record.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// From 0.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub ts: i64,
    /// How many events were known to be on the disk when this was written.
    pub barrier: u64,
    pub hash: Hash,
    pub seal: Option<Seal>,
    /// `type` and the event's own fields.
    pub body: Map<String, Value>,
}

/// The writing end. There is one in the process that owns the thread, and no other.
#[derive(Debug)]
pub struct Transcript {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Bytes of valid lines; the file is this long.
    length: u64,
    /// Events so far.
    count: u64,
    head: Hash,
    /// How many of them are known to be on the disk.
    barrier: u64,
    folder_synced: bool,
    /// Why nothing more is written.
    poisoned: Option<String>,
}

impl Record {
    /// The event, if this program knows its type and fields. `thread` is for the message.
    pub fn event(&self, thread: &ThreadId) -> Result<Event, StoreError> {
        let body = serde_json::from_value(Value::Object(self.body.clone())).map_err(|error| StoreError::Damaged {
            path: layout::transcript(thread),
            line: self.seq + 1,
            reason: format!("it is no event that this program knows ({error})"),
        })?;
        Ok(Event { seq: self.seq, ts: self.ts, body })
    }
}

impl Transcript {
    /// The transcript of a new thread, whose folder exists and holds none. Touches the disk at the first event.
    pub fn create(disk: Arc<dyn Disk>, thread: &ThreadId) -> Result<Self, StoreError> {
        let path = layout::transcript(thread);
        if disk.exists(&path).map_err(StoreError::io("look for", &path))? {
            let error = std::io::Error::new(std::io::ErrorKind::AlreadyExists, "the thread has a transcript");
            return Err(StoreError::io("create", &path)(error));
        }
        Ok(Self {
            disk,
            path,
            length: 0,
            count: 0,
            head: Hash::start(thread),
            barrier: 0,
            folder_synced: false,
            poisoned: None,
        })
    }

    /// Reads the transcript of a thread that this process owns and cuts a torn tail. `synced` is how many
    /// events somebody else knows to be on the disk (0: nobody does).
    pub fn open(disk: Arc<dyn Disk>, thread: &ThreadId, synced: u64) -> Result<(Self, Reading), StoreError> {
        let reading = read(&*disk, thread, synced)?;
        let transcript = Self::open_read(disk, thread, &reading, synced)?;
        Ok((transcript, reading))
    }

    /// Opens the transcript of a thread that this process owns from what was read of it just now, and cuts what is
    /// behind that. `synced` as in [`Self::open`].
    pub fn open_read(
        disk: Arc<dyn Disk>,
        thread: &ThreadId,
        reading: &Reading,
        synced: u64,
    ) -> Result<Self, StoreError> {
        let path = layout::transcript(thread);
        if reading.torn.is_some() {
            disk.truncate(&path, reading.length).map_err(StoreError::io("cut the torn tail of", &path))?;
        }
        let last = reading.records.last();
        let barrier = last.map_or(0, |record| record.barrier).max(synced);
        rewrite_tail(&*disk, &path, reading, barrier)?;
        Ok(Self {
            disk,
            path,
            length: reading.length,
            count: reading.records.len() as u64,
            head: last.map_or_else(|| Hash::start(thread), |record| record.hash),
            barrier,
            // Without a barrier, who created the file may have died before its name was synced.
            folder_synced: barrier > 0,
            poisoned: None,
        })
    }

    /// Writes events, all or none, and answers them with their places. They are not durable before [`Self::sync`].
    ///
    /// After [`StoreError::Io`] (a full disk) the transcript is as before and can be used; after
    /// [`StoreError::Poisoned`] it takes nothing more.
    pub fn append<T: Serialize>(&mut self, events: &[T], ts: i64) -> Result<Vec<Record>, StoreError> {
        self.append_sealed(events, ts, None)
    }

    /// The same with a seal on the last of the lines, if there is a signer.
    pub fn append_sealed<T: Serialize>(
        &mut self,
        events: &[T],
        ts: i64,
        signer: Option<LineSigner<'_>>,
    ) -> Result<Vec<Record>, StoreError> {
        self.usable()?;
        let mut bytes = Vec::new();
        let mut records: Vec<Record> = Vec::with_capacity(events.len());
        for event in events {
            let before = records.last().map_or(self.head, |record| record.hash);
            let seq = self.count + records.len() as u64;
            let head = line::Head { seq, ts, barrier: self.barrier, before };
            let (text, record) = line::write(&head, event, signer.filter(|_| records.len() + 1 == events.len()))?;
            bytes.extend_from_slice(text.as_bytes());
            records.push(record);
        }
        let Some(last) = records.last() else { return Ok(records) };
        if let Err(error) = self.disk.append(&self.path, self.length, &bytes) {
            return Err(self.take_back(error));
        }
        self.length += bytes.len() as u64;
        self.head = last.hash;
        self.count += records.len() as u64;
        Ok(records)
    }

    /// The barrier: when it returns, every event so far survives a power failure. Costs nothing if that is known.
    ///
    /// A failure is final, because nobody can know what reached the disk: the transcript takes nothing more, in this
    /// process, and the next that opens it sees what there is.
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

    /// How many events there are: the next one's `seq`.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The last event's `h`; what the first one chains to if there is none.
    pub fn head(&self) -> Hash {
        self.head
    }

    /// How many events are known to be on the disk.
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

    /// Removes what a failed append may have left.
    fn take_back(&mut self, error: std::io::Error) -> StoreError {
        if error.kind() == std::io::ErrorKind::InvalidData {
            return self.poison(format!("somebody else writes to it: {error}"));
        }
        let left = match self.disk.length(&self.path) {
            Ok(length) => length,
            Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => 0,
            Err(unknown) => return self.poison(format!("a write failed ({error}), then its length ({unknown})")),
        };
        if left > self.length
            && let Err(stuck) = self.disk.truncate(&self.path, self.length)
        {
            return self.poison(format!("a write failed ({error}) and could not be taken back ({stuck})"));
        }
        StoreError::io("write to", &self.path)(error)
    }
}

/// Writes the lines behind the barrier once more, in place. They are in the file as the system shows it, but a sync that
/// failed in the process before may have dropped them on the way to the device, and a later sync would not say so.
fn rewrite_tail(disk: &dyn Disk, path: &Path, reading: &Reading, barrier: u64) -> Result<(), StoreError> {
    let synced = usize::try_from(barrier).unwrap_or(usize::MAX).checked_sub(1);
    let from = synced.and_then(|index| reading.ends.get(index)).copied().unwrap_or(0);
    let length = usize::try_from(reading.length - from).unwrap_or(usize::MAX);
    if length == 0 {
        return Ok(());
    }
    let tail = disk.read_range(path, from, length).map_err(StoreError::io("read", path))?;
    disk.write_at(path, from, &tail).map_err(StoreError::io("write to", path))
}
