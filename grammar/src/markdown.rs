//! The part of Markdown that locates metadata: fences, headings, blank lines. Nothing is rendered.
//!
//! Fences follow `CommonMark`, also inside list items. Three or more backticks or tildes open a fence. At least as many
//! of the same character close the fence. A shorter fence inside the fence is text.

use std::ops::Range;

/// A fenced block, as byte ranges of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fence {
    /// The first word of the info string, in lower case.
    pub language: String,
    /// The byte range of the opening line, without its line break.
    pub opening: Range<usize>,
    /// The range of the text between the opening and the closing line.
    pub content: Range<usize>,
    /// The whole block: from the opening fence characters to the end of the closing line, including its line break.
    pub whole: Range<usize>,
    pub closed: bool,
}

/// Returns the fences of `text` from byte `from` on, in order.
pub(crate) fn find_fences(text: &str, from: usize) -> Vec<Fence> {
    let mut found = Vec::new();
    let mut open: Option<(FenceMarker, Fence)> = None;
    for line in lines(text, from) {
        let content = text.get(line.content()).unwrap_or_default();
        match open.take() {
            None => {
                if let Some(marker) = FenceMarker::opening(content) {
                    let start = line.start + marker.offset;
                    let fence = Fence {
                        language: marker.info_language(content),
                        opening: start..line.content_end,
                        content: line.end..line.end,
                        whole: start..line.end,
                        closed: false,
                    };
                    open = Some((marker, fence));
                }
            }
            Some((marker, mut fence)) => {
                fence.whole.end = line.end;
                if marker.is_closed_by(content) {
                    fence.closed = true;
                    found.push(fence);
                } else {
                    fence.content.end = line.end;
                    open = Some((marker, fence));
                }
            }
        }
    }
    found.extend(open.map(|(_, fence)| fence));
    found
}

/// A line: its start, the end of its text, the start of the next line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    pub start: usize,
    pub content_end: usize,
    pub end: usize,
}

impl Line {
    pub(crate) fn content(self) -> Range<usize> {
        self.start..self.content_end
    }
}

/// Returns the lines of `text` from byte `from` on. A line ends in `\n` or `\r\n`.
pub(crate) fn lines(text: &str, from: usize) -> impl Iterator<Item = Line> + '_ {
    let mut at = from;
    text.get(from..).unwrap_or_default().split_inclusive('\n').map(move |line| {
        let start = at;
        at += line.len();
        let content = line.strip_suffix('\n').map_or(line, |l| l.strip_suffix('\r').unwrap_or(l));
        Line { start, content_end: start + content.len(), end: at }
    })
}

/// The run of fence characters that opens a fence.
struct FenceMarker {
    character: char,
    length: usize,
    /// Number of bytes in the line before the fence characters.
    offset: usize,
}

impl FenceMarker {
    fn opening(line: &str) -> Option<Self> {
        let offset = list_prefix_len(line);
        let rest = line.get(offset..)?;
        let character = rest.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let length = rest.chars().take_while(|c| *c == character).count();
        let info = rest.get(length..)?;
        if length < 3 || (character == '`' && info.contains('`')) {
            return None;
        }
        Some(Self { character, length, offset })
    }

    fn info_language(&self, line: &str) -> String {
        let info = line.get(self.offset + self.length..).unwrap_or_default();
        info.split_whitespace().next().unwrap_or_default().to_lowercase()
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let indent = line.bytes().take_while(|b| matches!(b, b' ' | b'\t')).count();
        // CommonMark: a closing fence may be indented up to three columns more than the block that contains the fence.
        if indent > self.offset + 3 {
            return false;
        }
        let rest = line.get(indent..).unwrap_or_default();
        let length = rest.chars().take_while(|c| *c == self.character).count();
        length >= self.length && rest.get(length..).is_some_and(|after| after.trim().is_empty())
    }
}

/// Returns the number of bytes before a fence: white space and the markers of list items.
fn list_prefix_len(line: &str) -> usize {
    let bytes = line.as_bytes();
    let mut at = 0;
    loop {
        while matches!(bytes.get(at), Some(b' ' | b'\t')) {
            at += 1;
        }
        let mut marker = at;
        while marker < at + 9 && bytes.get(marker).is_some_and(u8::is_ascii_digit) {
            marker += 1;
        }
        let bullet = marker == at && matches!(bytes.get(at), Some(b'-' | b'*' | b'+'));
        let number = marker > at && matches!(bytes.get(marker), Some(b'.' | b')'));
        if !(bullet || number) || !matches!(bytes.get(marker + 1), Some(b' ' | b'\t')) {
            return at;
        }
        at = marker + 2;
    }
}
