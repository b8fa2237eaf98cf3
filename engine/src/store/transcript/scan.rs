//! Reading transcripts: by their owner, who may cut a torn tail, and by anybody else while they are being written.

use std::path::Path;

use super::super::disk::Disk;
use super::super::{StoreError, layout};
use super::Record;
use super::line::{self, Hash, LINE_LIMIT, Refused};
use crate::thread_id::ThreadId;

/// What a transcript holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    pub records: Vec<Record>,
    /// For each record the byte of the file at which its line, newline included, ends.
    pub ends: Vec<u64>,
    /// Bytes from the start of the file to the end of the last record.
    pub length: u64,
    /// What stands behind it, if anything does. While the thread runs it may be a line being written.
    pub torn: Option<Torn>,
}

/// A tail that nobody was promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// The line it begins with, from 1.
    pub line: u64,
    pub bytes: u64,
    pub reason: String,
}

/// Reads a whole transcript and changes nothing. `synced` as in [`super::Transcript::open`]. A thread without a
/// transcript is [`StoreError::UnknownThread`].
pub fn read(disk: &dyn Disk, thread: &ThreadId, synced: u64) -> Result<Reading, StoreError> {
    let path = layout::transcript(thread);
    let bytes = match disk.read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(StoreError::UnknownThread { thread: thread.to_string() });
        }
        Err(error) => return Err(StoreError::io("read", &path)(error)),
    };
    scan(&path, &bytes, Start { count: 0, hash: Hash::start(thread), length: 0 }, synced)
}

/// Reads what was added behind `last`, whose line ended at byte `length` (as [`Reading`] says): for those who follow
/// a thread.
pub fn read_after(disk: &dyn Disk, thread: &ThreadId, last: &Record, length: u64) -> Result<Reading, StoreError> {
    let path = layout::transcript(thread);
    let end = disk.length(&path).map_err(StoreError::io("read", &path))?;
    let more = usize::try_from(end.saturating_sub(length)).unwrap_or(usize::MAX);
    let bytes = disk.read_range(&path, length, more).map_err(StoreError::io("read", &path))?;
    scan(&path, &bytes, Start { count: last.seq + 1, hash: last.hash, length }, 0)
}

/// What the bytes of a scan follow: so many events, the hash of the last, and the end of its line.
#[derive(Clone, Copy)]
struct Start {
    count: u64,
    hash: Hash,
    length: u64,
}

fn scan(path: &Path, bytes: &[u8], start: Start, synced: u64) -> Result<Reading, StoreError> {
    let Start { mut count, mut hash, mut length } = start;
    let mut records: Vec<Record> = Vec::new();
    let mut ends = Vec::new();
    let mut rest = bytes;
    let mut torn = None;
    while !rest.is_empty() {
        let end = memchr::memchr(b'\n', rest).filter(|end| *end < LINE_LIMIT);
        let refused = match end.and_then(|end| rest.split_at_checked(end)) {
            None => Refused::Broken("it has no end".to_string()),
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
            Refused::Newer(found) => {
                return Err(StoreError::Newer { path: path.to_path_buf(), found, supported: line::VERSION });
            }
            Refused::Broken(reason) => torn = Some(Torn { line: count + 1, bytes: rest.len() as u64, reason }),
        }
        break;
    }
    let vouched = claimed_barriers(rest).max().unwrap_or(0).max(synced);
    if vouched > count {
        let reason = torn.map_or_else(|| "the file ends before it".to_string(), |torn| torn.reason);
        let reason = format!("{reason}, and {vouched} events were acknowledged");
        return Err(StoreError::Damaged { path: path.to_path_buf(), line: count + 1, reason });
    }
    Ok(Reading { records, ends, length, torn })
}

/// The barriers that lines in these bytes claim. A line also counts if the newline before it is what is damaged; text
/// within an event cannot pass for one, because what looks like a line there has `,`, `:`, `[` or `\` before it.
fn claimed_barriers(bytes: &[u8]) -> impl Iterator<Item = u64> {
    memchr::memmem::find_iter(bytes, line::START).filter_map(|at| {
        let (before, text) = bytes.split_at_checked(at)?;
        match before {
            [] | [.., b'\n'] => line::claimed_barrier(text),
            [.., b'}', between] if *between != b',' => line::claimed_barrier(text),
            _ => None,
        }
    })
}
