//! Readers of transcripts: for the owner, who may cut a torn tail, and for other processes, which read while the
//! transcript grows.

use std::path::Path;

use super::super::disk::Disk;
use super::super::{StoreError, layout};
use super::TranscriptRecord;
use super::line::{self, ChainHash, LineError, MAX_LINE_BYTES};
use crate::thread_id::ThreadId;

/// The contents of a transcript.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TranscriptContents {
    pub records: Vec<TranscriptRecord>,
    /// For each record, the file offset at which its line ends, including the newline.
    pub ends: Vec<u64>,
    /// Length of the valid part in bytes: from the start of the file to the end of the last record.
    pub length: u64,
    /// The invalid rest of the file, if any. While the thread runs, this rest may be a line that is being written.
    pub torn: Option<TornTail>,
}

impl TranscriptContents {
    /// Returns the number of records that the last seal covers; 0 if no line has a seal.
    pub fn sealed_count(&self) -> usize {
        self.records.iter().rposition(|record| record.seal.is_some()).map_or(0, |last| last + 1)
    }

    /// Treats the lines after the last seal as a torn tail. A complete write ends with a seal, so these lines come from
    /// a write that a crash interrupted. Returns false, and changes nothing, if a sync covered one of these lines. The
    /// write of such a line was complete, so its seal is missing for another reason. `synced` is the number of synced
    /// lines according to the registry.
    pub fn cut_unsealed(&mut self, synced: u64) -> bool {
        let sealed = self.sealed_count();
        let unsealed = self.records.get(sealed..).unwrap_or_default();
        if unsealed.is_empty() {
            return true;
        }
        let acknowledged = unsealed.iter().map(|record| record.barrier).max().unwrap_or(0).max(synced);
        if acknowledged > sealed as u64 {
            return false;
        }
        let end = sealed.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(0);
        let behind = self.torn.as_ref().map_or(0, |torn| torn.bytes);
        let reason = "its write was cut off before the seal".to_owned();
        self.torn = Some(TornTail { line: sealed as u64 + 1, bytes: self.length - end + behind, reason });
        self.records.truncate(sealed);
        self.ends.truncate(sealed);
        self.length = end;
        true
    }
}

/// A torn tail: bytes that were never acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// Number of the first line of the torn tail, from 1.
    pub line: u64,
    pub bytes: u64,
    pub reason: String,
}

/// Reads a whole transcript without changing it. See [`super::Transcript::open`] for `synced`.
///
/// # Errors
///
/// Returns [`StoreError::UnknownThread`] if the thread has no transcript.
pub fn read(disk: &dyn Disk, thread: &ThreadId, synced: u64) -> Result<TranscriptContents, StoreError> {
    let path = layout::transcript(thread);
    let bytes = match disk.read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(StoreError::UnknownThread { thread: thread.to_string() });
        }
        Err(error) => return Err(StoreError::io("read", &path)(error)),
    };
    scan(&path, &bytes, ScanStart { count: 0, hash: ChainHash::start(thread), length: 0 }, synced)
}

/// Reads the first `HEAD_LINES` lines of a transcript, which contain the start of the thread.
pub(crate) fn read_head(disk: &dyn Disk, thread: &ThreadId) -> Result<TranscriptContents, StoreError> {
    let path = layout::transcript(thread);
    let length = match disk.length(&path) {
        Ok(length) => usize::try_from(length).unwrap_or(usize::MAX).min(MAX_HEAD_BYTES),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(StoreError::UnknownThread { thread: thread.to_string() });
        }
        Err(error) => return Err(StoreError::io("read", &path)(error)),
    };
    let mut bytes = disk.read_range(&path, 0, length.min(USUAL_HEAD_BYTES)).map_err(StoreError::io("read", &path))?;
    if memchr::memchr_iter(b'\n', &bytes).count() < HEAD_LINES && length > bytes.len() {
        bytes = disk.read_range(&path, 0, length).map_err(StoreError::io("read", &path))?;
    }
    // A partial last line is skipped.
    let whole = memchr::memchr_iter(b'\n', &bytes).take(HEAD_LINES).last().map_or(0, |end| end + 1);
    let head = bytes.get(..whole).unwrap_or_default();
    scan(&path, head, ScanStart { count: 0, hash: ChainHash::start(thread), length: 0 }, 0)
}

/// Number of lines of the head of a transcript: its first lines, which contain the start of the thread.
pub const HEAD_LINES: usize = 3;
/// Maximum bytes of the head of a transcript.
const MAX_HEAD_BYTES: usize = HEAD_LINES * MAX_LINE_BYTES;
/// Bytes that are read first, which contain the head of most transcripts.
const USUAL_HEAD_BYTES: usize = 16 * 1024;

/// The position at which a scan starts: the number of events before the position, the hash of the last of these events,
/// and the offset at which the line of that event ends.
#[derive(Clone, Copy)]
struct ScanStart {
    count: u64,
    hash: ChainHash,
    length: u64,
}

fn scan(path: &Path, bytes: &[u8], start: ScanStart, synced: u64) -> Result<TranscriptContents, StoreError> {
    let ScanStart { mut count, mut hash, mut length } = start;
    let mut records: Vec<TranscriptRecord> = Vec::new();
    let mut ends = Vec::new();
    let mut rest = bytes;
    let mut torn = None;
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest).filter(|end| *end < MAX_LINE_BYTES);
        let refused = match end.and_then(|end| rest.split_at_checked(end)) {
            None => LineError::Broken("it has no newline".to_string()),
            Some((text, tail)) => match line::read(text, count, hash) {
                Err(refused) => refused,
                Ok(record) => {
                    hash = record.hash;
                    count += 1;
                    records.push(record);
                    length += text.len() as u64 + 1;
                    ends.push(length);
                    rest = tail.get(1..).unwrap_or_default();
                    continue;
                }
            },
        };
        match refused {
            LineError::Newer(found) => {
                return Err(StoreError::Newer { path: path.to_path_buf(), found, supported: line::LINE_VERSION });
            }
            LineError::Broken(reason) => torn = Some(TornTail { line: count + 1, bytes: rest.len() as u64, reason }),
        }
        break;
    }
    let acknowledged = claimed_barriers(rest).max().unwrap_or(0).max(synced);
    if acknowledged > count {
        let reason = torn.map_or_else(|| "the file ends before this line".to_string(), |torn| torn.reason);
        let reason = format!("{reason}, although {acknowledged} events were synced");
        return Err(StoreError::Damaged { path: path.to_path_buf(), line: count + 1, reason });
    }
    Ok(TranscriptContents { records, ends, length, torn })
}

/// Returns the barrier of each line in these bytes: the number of events that the line states to be on disk. Finds a
/// line even if the newline before it is damaged. Text inside an event that looks like the start of a line is not
/// counted, because `,`, `:`, `[` or `\` precedes it.
fn claimed_barriers(bytes: &[u8]) -> impl Iterator<Item = u64> {
    memchr::memmem::find_iter(bytes, line::LINE_PREFIX).filter_map(|at| {
        let (before, text) = bytes.split_at_checked(at)?;
        match before {
            [] | [.., b'\n'] => line::claimed_barrier(text),
            [.., b'}', between] if *between != b',' => line::claimed_barrier(text),
            _ => None,
        }
    })
}
