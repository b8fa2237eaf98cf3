//! An incremental parser of server-sent events, independent of chunk boundaries, with a maximum event size.
//!
//! The parser does not depend on HTTP or JSON. The text is UTF-8. Invalid bytes become U+FFFD, as the standard
//! requires.

use memchr::{memchr, memchr2};

/// Maximum size of an event in bytes, name and data together.
pub(crate) const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// A dispatched event. `id` and `retry` fields are ignored, since streams are not resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event` field; empty if none was sent.
    pub name: String,
    /// The `data` lines, joined by line feeds.
    pub data: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    #[error("an event of the stream is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the stream ended in the middle of an event")]
    Truncated,
}

/// The parser of server-sent events: its state between two chunks.
#[derive(Debug)]
pub struct SseParser {
    limit: usize,
    /// Bytes of an incomplete line.
    line: Vec<u8>,
    name: Vec<u8>,
    /// Data lines of the current event so far, each followed by a line feed.
    data: Vec<u8>,
    /// True if a carriage return ended the last line. A line feed directly after the carriage return belongs to this
    /// line end and is skipped.
    after_cr: bool,
    /// True while the first line of the stream is read. A byte order mark may precede this line.
    at_start: bool,
}

impl Default for SseParser {
    fn default() -> Self {
        Self::new(MAX_EVENT_BYTES)
    }
}

impl SseParser {
    /// Creates a parser that refuses events larger than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new(), name: Vec::new(), data: Vec::new(), after_cr: false, at_start: true }
    }

    /// Returns the events that `chunk` completes, in order.
    pub fn push(&mut self, chunk: &[u8]) -> Result<Vec<SseEvent>, SseError> {
        let mut events = Vec::new();
        let mut rest = chunk;
        while let Some(&first) = rest.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let Some(end) = memchr2(b'\r', b'\n', rest) else {
                self.line.extend_from_slice(rest);
                self.check_size(0)?;
                break;
            };
            let (line, after) = rest.split_at(end);
            self.check_size(line.len())?;
            self.after_cr = after.first() == Some(&b'\r');
            rest = after.get(1..).unwrap_or_default();
            if self.line.is_empty() {
                self.end_line(line, &mut events);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.end_line(&whole, &mut events);
                whole.clear();
                self.line = whole;
            }
        }
        Ok(events)
    }

    /// Checks that the stream may end here.
    ///
    /// # Errors
    /// [`SseError::Truncated`] if an event is incomplete.
    pub fn finish(&self) -> Result<(), SseError> {
        let clean = self.line.is_empty() && self.data.is_empty() && self.name.is_empty();
        if clean { Ok(()) } else { Err(SseError::Truncated) }
    }

    fn end_line(&mut self, line: &[u8], events: &mut Vec<SseEvent>) {
        let line = if std::mem::take(&mut self.at_start) {
            line.strip_prefix(b"\xEF\xBB\xBF".as_slice()).unwrap_or(line)
        } else {
            line
        };
        if line.is_empty() {
            self.dispatch(events);
            return;
        }
        let (field, value) = match memchr(b':', line) {
            Some(0) => return, // a comment, used as keep-alive
            Some(colon) => {
                let (field, value) = line.split_at(colon);
                let value = value.get(1..).unwrap_or_default();
                (field, value.strip_prefix(b" ".as_slice()).unwrap_or(value))
            }
            None => (line, b"".as_slice()),
        };
        if field == b"data" {
            self.data.extend_from_slice(value);
            self.data.push(b'\n');
        } else if field == b"event" {
            self.name.clear();
            self.name.extend_from_slice(value);
        }
    }

    fn dispatch(&mut self, events: &mut Vec<SseEvent>) {
        if self.data.pop().is_some() {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            events.push(SseEvent { name: text(&self.name), data: text(&self.data) });
        }
        self.name.clear();
        self.data.clear();
    }

    fn check_size(&self, more: usize) -> Result<(), SseError> {
        let size = self.line.len() + self.name.len() + self.data.len() + more;
        if size > self.limit { Err(SseError::TooLarge { limit: self.limit }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn parse(chunks: &[&[u8]]) -> (Vec<SseEvent>, Result<(), SseError>) {
        let mut parser = SseParser::default();
        let mut events = Vec::new();
        for chunk in chunks {
            events.extend(parser.push(chunk).unwrap());
        }
        (events, parser.finish())
    }

    fn event(name: &str, data: &str) -> SseEvent {
        SseEvent { name: name.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn fields_are_parsed_as_specified() {
        let table: &[(&str, &[SseEvent])] = &[
            ("data: a\n\n", &[event("", "a")]),
            ("data:a\n\n", &[event("", "a")]),
            ("data:  a\n\n", &[event("", " a")]),
            ("data: a\ndata: b\n\n", &[event("", "a\nb")]),
            ("data\n\n", &[event("", "")]),
            ("data: a\ndata\n\n", &[event("", "a\n")]),
            ("event: ping\n\ndata: a\n\n", &[event("", "a")]),
            ("event: x\nevent: y\ndata: a\n\ndata: b\n\n", &[event("y", "a"), event("", "b")]),
            (": keep-alive\n\n:\n\ndata: a\n\n", &[event("", "a")]),
            ("id: 1\nretry: 5\ndata: a\nwhat: is this\n\n", &[event("", "a")]),
            ("data: a\r\rdata: b\r\n\r\ndata: c\n\r\n", &[event("", "a"), event("", "b"), event("", "c")]),
            ("\u{feff}data: a\n\n", &[event("", "a")]),
            ("\u{feff}\u{feff}data: a\n\n", &[]),
            ("\n\n\n", &[]),
            ("data: a:b\n\n", &[event("", "a:b")]),
        ];
        for (text, expected) in table {
            assert_eq!(parse(&[text.as_bytes()]), (expected.to_vec(), Ok(())), "{text:?}");
        }
    }

    #[test]
    fn an_end_inside_an_event_is_truncation() {
        for text in ["data: a", "data: a\n", "event: x\n", "data: a\n\ndat", "data: a\n\n: comment"] {
            assert_eq!(parse(&[text.as_bytes()]).1, Err(SseError::Truncated), "{text:?}");
        }
    }

    #[test]
    fn broken_utf8_is_replaced_whole() {
        let bytes = b"data: a\xFFb\xE2\x82\n\ndata: \xE2\x82\xAC\n\n";
        let expected = vec![event("", "a\u{fffd}b\u{fffd}"), event("", "€")];
        for cut in 0..=bytes.len() {
            assert_eq!(parse(&[&bytes[..cut], &bytes[cut..]]).0, expected, "cut at {cut}");
        }
    }

    #[test]
    fn oversized_event_is_refused_in_any_chunking() {
        let fill = [b'x'; 40];
        let mut one_line = SseParser::new(64);
        one_line.push(b"data: ").unwrap();
        one_line.push(&fill).unwrap();
        assert_eq!(one_line.push(&fill), Err(SseError::TooLarge { limit: 64 }));

        let mut lines = SseParser::new(64);
        lines.push(&[b"data: ".as_slice(), &fill, b"\n"].concat()).unwrap();
        assert_eq!(lines.push(&[b"data: ".as_slice(), &fill, b"\n"].concat()), Err(SseError::TooLarge { limit: 64 }));

        let mut comments = SseParser::new(64);
        for _ in 0..100 {
            assert_eq!(comments.push(&[b":".as_slice(), &fill, b"\n"].concat()), Ok(vec![]));
        }
    }

    #[test]
    fn a_large_event_in_small_chunks_is_linear() {
        let started = std::time::Instant::now();
        let mut parser = SseParser::default();
        parser.push(b"data: ").unwrap();
        for _ in 0..(4 * 1024 * 1024 / 16) {
            parser.push(&[b'x'; 16]).unwrap();
        }
        let events = parser.push(b"\n\n").unwrap();
        assert_eq!(events[0].data.len(), 4 * 1024 * 1024);
        assert!(started.elapsed() < std::time::Duration::from_secs(5));
    }

    proptest! {
        #[test]
        fn every_chunking_gives_the_same_events(
            text in "(data|event|id|:|\u{feff}|é|: |a|\r|\n|\r\n|\n\n){0,40}",
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let bytes = text.as_bytes();
            let whole = parse(&[bytes]);
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.sort_unstable();
            at.insert(0, 0);
            at.push(bytes.len());
            let chunks: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(parse(&chunks), whole.clone());
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(parse(&single), whole);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&[&bytes]);
        }
    }
}
