//! `rye/file-system/grep`: finds lines by regular expression, file by file in path order, with linear time and bounded
//! memory and output.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;

use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;

use super::glob::PathPattern;
use super::text::{format_count, is_binary, split_line_end, truncate};
use super::{MAX_RESULT_BYTES, ToolFailure, ToolOutcome, ToolResult};
use crate::tool::cancellation::StopCondition;
use crate::tool::confine::walk::{Dotfiles, WalkEnd};
use crate::tool::confine::{ProjectFiles, ProjectPath, ResolvedKind};

/// Maximum number of returned matches if the call sets no maximum.
const DEFAULT_MAX_MATCHES: usize = 100;
/// Maximum size of a compiled pattern, in bytes.
const MAX_COMPILED_PATTERN_BYTES: usize = 4 << 20;
/// Maximum bytes of a line that are searched.
const MAX_SEARCHED_LINE_BYTES: u64 = 1 << 20;
/// Maximum bytes of a line that are shown.
const MAX_SHOWN_LINE_BYTES: usize = 400;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrepParameters {
    pattern: String,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    context: Option<usize>,
    #[serde(default)]
    limit: Option<usize>,
}

struct GrepSearch<'s> {
    regex: Regex,
    context: usize,
    limit: usize,
    stop: &'s StopCondition,
    text: String,
    matches: usize,
    files: usize,
    /// Number of files that could not be searched.
    unread: usize,
    full: bool,
}

pub fn run(project: &ProjectFiles, parameters: &GrepParameters, stop: &StopCondition) -> ToolResult {
    let regex = RegexBuilder::new(&parameters.pattern)
        .case_insensitive(parameters.ignore_case)
        .crlf(true)
        .size_limit(MAX_COMPILED_PATTERN_BYTES)
        .build()
        .map_err(|e| ToolFailure(format!("`pattern` is not a valid regular expression: {e}")))?;
    let filter = parameters.glob.as_deref().map(PathPattern::read).transpose()?;
    let place = project.locate(parameters.path.as_deref().unwrap_or("."))?;
    let mut search = GrepSearch {
        regex,
        context: parameters.context.unwrap_or(0).min(20),
        limit: parameters.limit.unwrap_or(DEFAULT_MAX_MATCHES).max(1),
        stop,
        text: String::new(),
        matches: 0,
        files: 0,
        unread: 0,
        full: false,
    };
    let ended = match &place.found {
        ResolvedKind::Folder(dir) => {
            let dotfiles = filter.as_ref().map_or(Dotfiles::Skip, |f| f.dotfiles);
            project.walk(&place.path, dir, dotfiles, stop, &mut |seen| {
                if filter.as_ref().is_some_and(|f| !f.matches(seen.below)) {
                    return ControlFlow::Continue(());
                }
                match project.open_visited(seen) {
                    Ok(file) => search.file(file, seen.path),
                    Err(_) => search.unread += 1,
                }
                if search.full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?
        }
        ResolvedKind::File { .. } | ResolvedKind::Special { .. } | ResolvedKind::Missing { .. } => {
            let (file, _) = project.open_file(&place)?;
            search.file(file, &place.path);
            WalkEnd::Complete
        }
    };
    Ok(search.answer(ended))
}

impl GrepSearch<'_> {
    fn file(&mut self, file: File, path: &ProjectPath) {
        let mut reader = BufReader::with_capacity(64 * 1024, file);
        match reader.fill_buf() {
            Ok(start) if is_binary(start) => return,
            Ok(_) => {}
            Err(_) => {
                self.unread += 1;
                return;
            }
        }
        let before = self.matches;
        if self.lines(&mut reader, path).is_err() {
            self.unread += 1;
        }
        if self.matches > before {
            self.files += 1;
        }
    }

    fn lines(&mut self, reader: &mut impl BufRead, path: &ProjectPath) -> std::io::Result<()> {
        let mut earlier: VecDeque<(u64, Vec<u8>)> = VecDeque::new();
        let mut after = 0;
        let mut last_shown = 0;
        let mut number = 0;
        let mut line = Vec::new();
        while read_line(reader, &mut line)? {
            number += 1;
            if number % 1024 == 0 && self.stop.is_due() {
                return Ok(());
            }
            let (bytes, _) = split_line_end(&line);
            if self.regex.is_match(bytes) {
                if self.matches == self.limit {
                    self.full = true;
                    return Ok(());
                }
                self.matches += 1;
                let from = earlier.front().map_or(number, |e| e.0);
                if self.context > 0 && !self.text.is_empty() && (last_shown == 0 || from > last_shown + 1) {
                    self.text.push_str("--\n");
                }
                for (n, text) in std::mem::take(&mut earlier) {
                    self.show(path, n, '-', &text);
                }
                self.show(path, number, ':', bytes);
                last_shown = number;
                after = self.context;
            } else if after > 0 {
                after -= 1;
                self.show(path, number, '-', bytes);
                last_shown = number;
            } else if self.context > 0 {
                earlier.push_back((number, bytes.get(..MAX_SHOWN_LINE_BYTES * 4).unwrap_or(bytes).to_vec()));
                if earlier.len() > self.context {
                    earlier.pop_front();
                }
            }
            if self.full {
                return Ok(());
            }
        }
        Ok(())
    }

    fn show(&mut self, path: &ProjectPath, number: u64, mark: char, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let shown = truncate(&text, MAX_SHOWN_LINE_BYTES);
        let more = if shown.len() < text.len() { "…" } else { "" };
        let line = format!("{path}{mark}{number}{mark} {shown}{more}\n");
        if self.text.len() + line.len() > MAX_RESULT_BYTES {
            self.full = true;
            return;
        }
        self.text.push_str(&line);
    }

    fn answer(mut self, ended: WalkEnd) -> ToolOutcome {
        if self.full {
            let (matches, files) = (self.matches, self.files);
            self.text.extend([format!(
                "[first {} in {}; there are more, narrow the pattern or the path]\n",
                format_count(matches, "match").replace("matchs", "matches"),
                format_count(files, "file")
            )]);
        } else if self.matches == 0 {
            self.text.push_str("[no line matches]\n");
        }
        if ended == WalkEnd::CutShort || self.stop.is_due() {
            self.text.push_str("[stopped before everything was searched; name a smaller folder in `path`]\n");
        }
        if self.unread > 0 {
            self.text.extend([format!("[{} could not be read]\n", format_count(self.unread, "file"))]);
        }
        ToolOutcome::ok(self.text)
    }
}

/// Reads a line of any length. Keeps no further bytes of the line once `line` has [`MAX_SEARCHED_LINE_BYTES`] or more.
/// Returns false at the end of the file.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    line.clear();
    let mut any = false;
    loop {
        let chunk = match reader.fill_buf() {
            Ok(chunk) => chunk,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if chunk.is_empty() {
            return Ok(any);
        }
        any = true;
        let end = memchr::memchr(b'\n', chunk).map(|at| at + 1);
        let used = end.unwrap_or(chunk.len());
        if (line.len() as u64) < MAX_SEARCHED_LINE_BYTES {
            line.extend_from_slice(chunk.get(..used).unwrap_or_default());
        }
        reader.consume(used);
        if end.is_some() {
            return Ok(true);
        }
    }
}
