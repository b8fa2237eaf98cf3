//! `rye/file-system/read`: returns a page of a text file as numbered lines. Reads a file of any size with bounded
//! memory.

use std::io::{BufRead, BufReader, Read};

use serde::Deserialize;
use serde_json::json;

use super::text::{is_binary, split_line_end, truncate};
use super::{MAX_RESULT_BYTES, ToolFailure, ToolOutcome, ToolResult};
use crate::tool::cancellation::StopCondition;
use crate::tool::confine::{FileAccessError, ProjectFiles};

/// Default and maximum number of lines in a page.
const DEFAULT_MAX_LINES: u64 = 2000;
/// Maximum bytes of a line that are shown.
const MAX_SHOWN_LINE_BYTES: usize = 2000;
/// Maximum bytes of a line that are kept while reading.
const MAX_BUFFERED_LINE_BYTES: u64 = 64 * 1024;
/// Maximum bytes that are read after the page to count the remaining lines.
const MAX_COUNTED_BYTES: u64 = 64 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadParameters {
    path: String,
    #[serde(default)]
    offset: Option<u64>,
    #[serde(default)]
    limit: Option<u64>,
}

/// A page of numbered lines that is being built.
#[derive(Default)]
struct Page {
    text: String,
    /// Number of the last line in the page; 0 while the page is empty.
    last: u64,
    crlf: bool,
    lossy: bool,
    cut_lines: u64,
}

pub fn run(project: &ProjectFiles, parameters: &ReadParameters, stop: &StopCondition) -> ToolResult {
    let place = project.locate(&parameters.path)?;
    let (file, metadata) = project.open_file(&place)?;
    let path = &place.path;
    let fail = |e: std::io::Error| ToolFailure::from(FileAccessError::Io { path: path.to_string(), source: e });
    let mut reader = BufReader::with_capacity(64 * 1024, file);
    let start = reader.fill_buf().map_err(fail)?;
    if is_binary(start) {
        return Err(ToolFailure(format!(
            "`{path}` is a binary file of {} bytes; it cannot be shown as text",
            metadata.len()
        )));
    }
    if start.is_empty() {
        return Ok(ToolOutcome::ok(format!("[`{path}` is empty]")));
    }
    if start.starts_with(b"\xEF\xBB\xBF") {
        reader.consume(3);
    }
    let first = parameters.offset.unwrap_or(1).max(1);
    let limit = parameters.limit.unwrap_or(DEFAULT_MAX_LINES).clamp(1, DEFAULT_MAX_LINES);

    let mut page = Page::default();
    let mut number = 0;
    let mut more = false;
    let mut line = Vec::new();
    loop {
        if stop.is_due() {
            return Err(ToolFailure(format!("reading `{path}` was stopped at its time limit, at line {number}")));
        }
        let skipping = number + 1 < first;
        let length = next_line(&mut reader, &mut line, skipping).map_err(fail)?;
        if length == 0 {
            break;
        }
        number += 1;
        if skipping {
            continue;
        }
        if number >= first.saturating_add(limit) || !page.add(number, &line, length) {
            more = true;
            break;
        }
    }
    if page.last == 0 {
        let lines = super::text::format_count(usize::try_from(number).unwrap_or(usize::MAX), "line");
        return Err(ToolFailure(format!("`{path}` has only {lines}; line {first} does not exist")));
    }
    let total = if more { count_remaining_lines(&mut reader, number, stop).map_err(fail)? } else { Some(number) };
    Ok(page.answer(first, more, total))
}

/// Reads one line into `line`, or skips the line if `skip` is true. Of a line longer than [`MAX_BUFFERED_LINE_BYTES`],
/// only the start is kept. Returns the full length of the line in bytes; 0 at the end of the file.
fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>, skip: bool) -> std::io::Result<u64> {
    line.clear();
    let mut length = 0;
    loop {
        let chunk = match reader.fill_buf() {
            Ok(chunk) => chunk,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        let end = memchr::memchr(b'\n', chunk).map(|at| at + 1);
        let used = end.unwrap_or(chunk.len());
        if !skip && (line.len() as u64) < MAX_BUFFERED_LINE_BYTES {
            line.extend_from_slice(chunk.get(..used).unwrap_or_default());
        }
        length += used as u64;
        let finished = end.is_some() || used == 0;
        reader.consume(used);
        if finished {
            return Ok(length);
        }
    }
}

/// Returns the total number of lines, of which `number` have been read. `None` if there are too many bytes to count, or
/// if the condition `stop` becomes true.
fn count_remaining_lines(reader: &mut impl BufRead, number: u64, stop: &StopCondition) -> std::io::Result<Option<u64>> {
    let mut limited = reader.take(MAX_COUNTED_BYTES);
    let mut total = number;
    let mut open = false;
    loop {
        let chunk = limited.fill_buf()?;
        if chunk.is_empty() {
            break;
        }
        total += memchr::memchr_iter(b'\n', chunk).count() as u64;
        open = chunk.last() != Some(&b'\n');
        let used = chunk.len();
        limited.consume(used);
        if stop.is_due() {
            return Ok(None);
        }
    }
    Ok(if limited.limit() == 0 { None } else { Some(total + u64::from(open)) })
}

impl Page {
    /// Adds a line to the page, and truncates a long line. `line` holds at least the start of the line, and `length` is
    /// the size of the whole line in bytes. Returns false without adding the line if the page is full.
    fn add(&mut self, number: u64, line: &[u8], length: u64) -> bool {
        let (bytes, crlf) = split_line_end(line);
        let text = String::from_utf8_lossy(bytes);
        let shown = truncate(&text, MAX_SHOWN_LINE_BYTES);
        if self.last != 0 && self.text.len() + shown.len() + 64 > MAX_RESULT_BYTES {
            return false;
        }
        self.crlf |= crlf;
        self.lossy |= matches!(text, std::borrow::Cow::Owned(_)) && (bytes.len() as u64) < MAX_BUFFERED_LINE_BYTES;
        self.text.extend([format!("{number}\t{shown}")]);
        if shown.len() < text.len() || (line.len() as u64) < length {
            self.text.extend([format!("… [line of {length} bytes, cut]")]);
            self.cut_lines += 1;
        }
        self.text.push('\n');
        self.last = number;
        true
    }

    fn answer(mut self, first: u64, more: bool, total: Option<u64>) -> ToolOutcome {
        let mut notes = Vec::new();
        if more {
            let of = total.map_or_else(|| "very many".to_owned(), |t| t.to_string());
            notes.push(format!("lines {first} to {} of {of}; continue with offset {}", self.last, self.last + 1));
        }
        if self.crlf {
            notes.push("lines end with CRLF".to_owned());
        }
        if self.lossy {
            notes.push("not entirely UTF-8; � replaces other bytes".to_owned());
        }
        if !notes.is_empty() {
            self.text.extend([format!("[{}]\n", notes.join("; "))]);
        }
        let mut outcome = ToolOutcome::ok(self.text);
        if more {
            outcome.details = json!({"next_offset": self.last + 1, "total_lines": total});
        }
        outcome
    }
}
