//! A line of a transcript: encoding, parsing and hash verification. This module does no I/O.

use std::fmt;
use std::io;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::super::StoreError;
use super::TranscriptRecord;
use crate::event::EventBody;
use crate::thread_id::ThreadId;

/// Maximum bytes of a line, including its newline.
pub const MAX_LINE_BYTES: usize = 256 * 1024;

/// The line format that this program writes, and the newest it reads.
pub(crate) const LINE_VERSION: u64 = 1;

/// Number of hexadecimal digits of a hash.
const HASH_DIGITS: usize = 64;

/// The start of every line.
pub(crate) const LINE_PREFIX: &str = "{\"v\":";

/// Names of the fields that the format of a line itself defines. No event has a field with one of these names.
pub(crate) const RESERVED_FIELDS: [&str; 6] = ["v", "seq", "ts", "b", "h", "s"];

/// Initial capacity of the buffer for the fields of an event, in bytes; most events need no more.
const FIELDS_CAPACITY: usize = 1024;

/// The text between the hash and the seal.
const SEAL_PREFIX: &str = "\",\"s\":\"";

/// A signature of a line that also covers every earlier line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// The signed value: the chain hash that the line would have without a seal.
    pub link: ChainHash,
    /// The name of the key, `:`, and the signature.
    pub mark: String,
}

/// A function that signs a line. The arguments are the `seq` of the line and the [`Seal::link`]. The function returns
/// the [`Seal::mark`].
pub type LineSigner<'a> = &'a dyn Fn(u64, ChainHash) -> String;

/// A hash of the chain: SHA-256, written as 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainHash([u8; 32]);

impl ChainHash {
    /// Returns the hash that precedes the first line. It depends on the thread, so that a transcript is not valid for
    /// another thread.
    pub fn start(thread: &ThreadId) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(b"rye transcript\n");
        hasher.update(thread.as_str());
        Self(hasher.finalize().into())
    }

    /// Parses a hash from 64 lower-case hex digits; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
        if pairs.len() != bytes.len() {
            return None;
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(bytes))
    }

    /// Returns the hash of the next line. `parts` are the text of that line without its own hash.
    fn next(self, parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(self.0);
        for part in parts {
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    fn digits(self) -> [u8; HASH_DIGITS] {
        let mut digits = [0; HASH_DIGITS];
        let (pairs, _) = digits.as_chunks_mut::<2>();
        for (pair, byte) in pairs.iter_mut().zip(self.0) {
            *pair = [byte >> 4, byte & 15].map(|half| if half < 10 { b'0' + half } else { b'a' + half - 10 });
        }
        digits
    }
}

impl From<[u8; 32]> for ChainHash {
    fn from(digest: [u8; 32]) -> Self {
        Self(digest)
    }
}

impl fmt::Display for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

impl fmt::Debug for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// The data of a line that precedes its event: number, time, barrier, and the hash of the line before.
pub struct LinePosition {
    pub seq: u64,
    pub ts: i64,
    pub barrier: u64,
    /// The hash of the line before.
    pub before: ChainHash,
}

/// A value that a transcript line can hold, such as an event.
pub trait LineBody: Serialize {
    /// Returns true if the value may have a field with a name that a transcript line reserves for its own fields. The
    /// name of such a field is then escaped.
    fn needs_escape(&self) -> bool {
        true
    }
}

impl LineBody for Value {}

impl LineBody for Map<String, Value> {}

impl LineBody for EventBody {
    /// Returns false, because no event has a field with a reserved name. A test of the event table checks this.
    fn needs_escape(&self) -> bool {
        false
    }
}

impl<T: LineBody> LineBody for &T {
    fn needs_escape(&self) -> bool {
        (**self).needs_escape()
    }
}

/// Appends the line of an event to `out`, including its newline. If there is a signer, the line gets a seal. On an
/// error, `out` is unchanged.
pub fn encode<T: LineBody>(
    head: &LinePosition,
    event: &T,
    signer: Option<LineSigner<'_>>,
    out: &mut Vec<u8>,
) -> Result<ChainHash, StoreError> {
    let LinePosition { seq, ts, barrier, before } = *head;
    let front = format!("{LINE_PREFIX}{LINE_VERSION},\"seq\":{seq},\"ts\":{ts},\"b\":{barrier},\"h\":\"");
    let back = encode_fields(event, front.len() + HASH_DIGITS)?;
    let mut hash = before.next(&[front.as_bytes(), &back]);
    let seal = signer.map(|sign| format!("{SEAL_PREFIX}{}", sign(seq, hash))).unwrap_or_default();
    if !seal.is_empty() {
        hash = before.next(&[front.as_bytes(), seal.as_bytes(), &back]);
    }
    let bytes = front.len() + HASH_DIGITS + seal.len() + back.len() + 1;
    if bytes > MAX_LINE_BYTES {
        return Err(StoreError::LineTooLong { bytes, limit: MAX_LINE_BYTES });
    }
    out.reserve(bytes);
    out.extend_from_slice(front.as_bytes());
    out.extend_from_slice(&hash.digits());
    out.extend_from_slice(seal.as_bytes());
    out.extend_from_slice(&back);
    out.push(b'\n');
    Ok(hash)
}

/// Returns the part of a line without a seal that follows the hash: `","type":"…", …}`. `before` is the number of bytes
/// of the line before this part. These bytes count towards the maximum length of the line.
fn encode_fields<T: LineBody>(event: &T, before: usize) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::with_capacity(FIELDS_CAPACITY);
    bytes.push(b'"');
    let mut text = BoundedText { bytes, length: before + 1 };
    let written = if event.needs_escape() {
        let Ok(Value::Object(body)) = serde_json::to_value(event) else { return Err(StoreError::NoEvent) };
        if !body.get("type").is_some_and(Value::is_string) {
            return Err(StoreError::NoEvent);
        }
        serde_json::to_writer(&mut text, &Escaped(&body))
    } else {
        serde_json::to_writer(&mut text, event)
    };
    written.map_err(|_| StoreError::NoEvent)?;
    let BoundedText { mut bytes, length } = text;
    if length >= MAX_LINE_BYTES {
        return Err(StoreError::LineTooLong { bytes: length + 1, limit: MAX_LINE_BYTES });
    }
    match bytes.get_mut(1) {
        Some(brace) if *brace == b'{' => *brace = b',',
        Some(_) | None => return Err(StoreError::NoEvent),
    }
    Ok(bytes)
}

/// A text of bounded size. The bytes beyond [`MAX_LINE_BYTES`] are counted and not stored.
struct BoundedText {
    bytes: Vec<u8>,
    length: usize,
}

impl io::Write for BoundedText {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.length += part.len();
        if self.length <= MAX_LINE_BYTES {
            self.bytes.extend_from_slice(part);
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the line of an event, including its newline, and the record that reading the line would return. If there is
/// a signer, the line gets a seal.
pub fn write<T: LineBody>(
    head: &LinePosition,
    event: &T,
    signer: Option<LineSigner<'_>>,
) -> Result<(String, TranscriptRecord), StoreError> {
    let mut line = Vec::new();
    encode(head, event, signer, &mut line)?;
    let record = read(line.trim_ascii_end(), head.seq, head.before).map_err(|_| StoreError::NoEvent)?;
    let text = String::from_utf8(line).map_err(|_| StoreError::NoEvent)?;
    Ok((text, record))
}

/// The fields of an event as a line contains them: a reserved name gets the prefix `_` (`_seq`).
struct Escaped<'a>(&'a Map<String, Value>);

impl Serialize for Escaped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in self.0 {
            if RESERVED_FIELDS.contains(&key.trim_start_matches('_')) {
                map.serialize_entry(&format!("_{key}"), value)?;
            } else {
                map.serialize_entry(key, value)?;
            }
        }
        map.end()
    }
}

fn unescape((key, value): (String, Value)) -> (String, Value) {
    match key.strip_prefix('_') {
        Some(name) if RESERVED_FIELDS.contains(&name.trim_start_matches('_')) => (name.to_string(), value),
        Some(_) | None => (key, value),
    }
}

/// The reason why a line is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineError {
    Newer(u64),
    Broken(String),
}

/// Reads a line without its newline. Its number must be `seq`, and its hash must chain to `before`.
pub fn read(text: &[u8], seq: u64, before: ChainHash) -> Result<TranscriptRecord, LineError> {
    let broken = |reason: &str| LineError::Broken(reason.to_string());
    let text = std::str::from_utf8(text).map_err(|_| broken("it is not UTF-8"))?;
    let front = parse_front(text).ok_or_else(|| broken("it does not start like an event line"))?;
    if front.version > LINE_VERSION {
        return Err(LineError::Newer(front.version));
    }
    if front.seq != seq {
        return Err(LineError::Broken(format!("the line is event {}, expected event {seq}", front.seq)));
    }
    let (before_hash, rest) = text.split_at_checked(front.length).unwrap_or_default();
    let (digits, back) = rest.split_at_checked(HASH_DIGITS).ok_or_else(|| broken("it ends within its hash"))?;
    let hash = ChainHash::parse(digits).ok_or_else(|| broken("its hash is not 64 hex digits"))?;
    if before.next(&[before_hash.as_bytes(), back.as_bytes()]) != hash {
        return Err(broken("its hash does not follow from the line before"));
    }
    let seal = back.strip_prefix(SEAL_PREFIX).and_then(|sealed| sealed.split_once('"')).map(|(mark, fields)| {
        let link = before.next(&[before_hash.as_bytes(), b"\"", fields.as_bytes()]);
        Seal { link, mark: mark.to_owned() }
    });
    let line: Map<String, Value> = serde_json::from_str(text).map_err(|_| broken("it is not JSON"))?;
    let body = line.into_iter().filter(|(key, _)| !RESERVED_FIELDS.contains(&key.as_str())).map(unescape).collect();
    Ok(TranscriptRecord { seq, ts: front.ts, barrier: front.barrier, hash, seal, body })
}

/// Returns the barrier that a line states: the number of events known to be on disk when the line was written. `None`
/// if the start of the line is invalid. The rest of the line is not checked.
pub(crate) fn claimed_barrier(text: &[u8]) -> Option<u64> {
    let start = text.get(..text.len().min(160))?;
    let start = match std::str::from_utf8(start) {
        Ok(start) => start,
        // The cut at 160 bytes may split a character. The text before this character is enough.
        Err(error) => std::str::from_utf8(start.get(..error.valid_up_to())?).ok()?,
    };
    parse_front(start).map(|front| front.barrier)
}

struct LineFront {
    version: u64,
    seq: u64,
    ts: i64,
    barrier: u64,
    /// Number of bytes of the line before the hash.
    length: usize,
}

/// Parses the front of a line, `{"v":1,"seq":7,"ts":…,"b":5,"h":"`, exactly as [`write()`] writes it; `None` for any
/// other text.
fn parse_front(text: &str) -> Option<LineFront> {
    let rest = text.strip_prefix(LINE_PREFIX)?;
    let (version, rest) = rest.split_once(",\"seq\":")?;
    let (seq, rest) = rest.split_once(",\"ts\":")?;
    let (ts, rest) = rest.split_once(",\"b\":")?;
    let (barrier, rest) = rest.split_once(",\"h\":\"")?;
    Some(LineFront {
        version: version.parse().ok()?,
        seq: seq.parse().ok()?,
        ts: ts.parse().ok()?,
        barrier: barrier.parse().ok()?,
        length: text.len() - rest.len(),
    })
}
