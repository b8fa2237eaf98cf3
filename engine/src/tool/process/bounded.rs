//! Bounded storage for output of any length: the start and the end are kept, the middle is only counted.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::MAX_KEPT_BYTES;

/// A collector that keeps the first and the last `limit` bytes of an output and only counts the bytes between them.
#[derive(Debug)]
pub struct BoundedOutput {
    limit: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

/// The output of a program. Of a long output, only the start and the end are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectedOutput {
    /// The output. If bytes were dropped, a line in the middle states their number.
    pub text: String,
    /// Number of bytes that were written to the output.
    pub total: u64,
    /// Number of bytes that were dropped between the kept start and the kept end.
    pub dropped: u64,
}

/// The output that a program has written so far. Clones share the output, so that the code that stops the program can
/// still read it.
#[derive(Debug, Clone)]
pub struct SharedOutput(Arc<Mutex<BoundedOutput>>);

impl Default for SharedOutput {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(BoundedOutput::new(MAX_KEPT_BYTES))))
    }
}

impl SharedOutput {
    pub(crate) fn push(&self, bytes: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }

    /// Returns the last `bytes` bytes of the output so far.
    pub fn tail(&self, bytes: usize) -> String {
        let output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tail: Vec<u8> = output.head.iter().chain(&output.tail).rev().take(bytes).copied().collect();
        tail.reverse();
        String::from_utf8_lossy(whole_start(&tail)).into_owned()
    }

    /// Returns the output so far, and removes it from the collector.
    pub fn take(&self) -> CollectedOutput {
        let mut output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *output, BoundedOutput::new(MAX_KEPT_BYTES)).finish()
    }
}

impl BoundedOutput {
    /// Creates a collector that keeps `limit` bytes of the start and `limit` bytes of the end.
    pub fn new(limit: usize) -> Self {
        Self { limit, head: Vec::new(), tail: VecDeque::new(), total: 0 }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let head_bytes = (self.limit - self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(head_bytes);
        self.head.extend_from_slice(first);
        let rest = rest.get(rest.len().saturating_sub(self.limit)..).unwrap_or_default();
        let over = (self.tail.len() + rest.len()).saturating_sub(self.limit);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    pub fn finish(self) -> CollectedOutput {
        let mut bytes = self.head;
        let dropped = self.total - (bytes.len() + self.tail.len()) as u64;
        if dropped == 0 {
            bytes.extend(self.tail);
            return CollectedOutput { text: String::from_utf8_lossy(&bytes).into_owned(), total: self.total, dropped };
        }
        let tail: Vec<u8> = self.tail.into();
        let head = String::from_utf8_lossy(whole_end(&bytes));
        let tail = String::from_utf8_lossy(whole_start(&tail));
        let text = format!("{head}\n[… {dropped} bytes of output omitted …]\n{tail}");
        CollectedOutput { text, total: self.total, dropped }
    }
}

/// Returns the bytes without an incomplete UTF-8 character at the end.
fn whole_end(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(e) if e.error_len().is_none() => bytes.get(..e.valid_up_to()).unwrap_or(bytes),
        Ok(_) | Err(_) => bytes,
    }
}

/// Returns the bytes without an incomplete UTF-8 character at the start.
fn whole_start(bytes: &[u8]) -> &[u8] {
    let skip = bytes.iter().take(3).take_while(|b| **b & 0b1100_0000 == 0b1000_0000).count();
    bytes.get(skip..).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(limit: usize, chunks: &[&[u8]]) -> CollectedOutput {
        let mut bounded = BoundedOutput::new(limit);
        for chunk in chunks {
            bounded.push(chunk);
        }
        bounded.finish()
    }

    #[test]
    fn short_output_is_whole_wherever_it_is_split() {
        for at in 0..=6 {
            let (a, b) = b"abcdef".split_at(at);
            assert_eq!(kept(3, &[a, b]).text, "abcdef");
        }
    }

    #[test]
    fn long_output_keeps_both_ends_and_counts() {
        let k = kept(3, &[b"abc", b"defg", b"h", b"ijklmnop"]);
        assert_eq!(k.text, "abc\n[… 10 bytes of output omitted …]\nnop");
        assert_eq!((k.total, k.dropped), (16, 10));
    }

    #[test]
    fn characters_are_not_cut() {
        let k = kept(4, &["ab€€€€cd".as_bytes()]);
        assert_eq!(k.text, "ab\n[… 8 bytes of output omitted …]\ncd");
    }

    #[test]
    fn a_flood_holds_no_more_than_its_bound() {
        let mut bounded = BoundedOutput::new(1024);
        for _ in 0..10_000 {
            bounded.push(&[b'x'; 4096]);
        }
        assert!(bounded.head.capacity() + bounded.tail.capacity() < 16 * 1024);
        assert_eq!(bounded.finish().total, 40_960_000);
    }
}
