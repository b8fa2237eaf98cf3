//! `rye/file-system/edit`: replaces an exact piece of text once or everywhere. Works on bytes, so that the rest of the
//! file is unchanged in any encoding.

use std::io::Read;

use memchr::memmem;
use serde::Deserialize;
use serde_json::json;

use super::text::{format_count, truncate};
use super::{PreparedWrite, ToolFailure, ToolOutcome};
use crate::tool::confine::{FileAccessError, ProjectFiles, ResolvedPath};

/// Maximum size in bytes of a file that can be edited.
const MAX_EDITABLE_BYTES: u64 = 16 << 20;
/// Maximum number of line numbers listed if the text occurs more than once.
const MAX_LISTED_LINES: usize = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditParameters {
    path: String,
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: bool,
}

pub(super) fn prepare(project: &ProjectFiles, parameters: &EditParameters) -> Result<PreparedWrite, ToolFailure> {
    if parameters.old_string.is_empty() {
        return Err(ToolFailure("`old_string` is empty; use write to make a file".into()));
    }
    if parameters.old_string == parameters.new_string {
        return Err(ToolFailure("`old_string` and `new_string` are the same; nothing would change".into()));
    }
    let place = project.locate(&parameters.path)?;
    let path = &place.path;
    let (file, metadata) = project.open_file(&place)?;
    if metadata.len() > MAX_EDITABLE_BYTES {
        return Err(ToolFailure(format!(
            "`{path}` has {} bytes; at most {MAX_EDITABLE_BYTES} can be edited",
            metadata.len()
        )));
    }
    let mut bytes = Vec::new();
    file.take(MAX_EDITABLE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| FileAccessError::Io { path: path.to_string(), source })?;

    let mut old = parameters.old_string.clone();
    let mut new = parameters.new_string.clone();
    let mut places = positions(&bytes, old.as_bytes());
    let mut note = "";
    if places.is_empty() && has_crlf(&bytes) && has_bare_newline(&old) {
        // The `read` tool shows lines without line ends, so the model cannot know of the carriage returns.
        old = to_crlf(&old);
        new = to_crlf(&new);
        places = positions(&bytes, old.as_bytes());
        note = ", keeping its CRLF line ends";
    }
    if places.is_empty() {
        return Err(ToolFailure(not_found_message(&bytes, &parameters.old_string, &path.to_string())));
    }
    if places.len() > 1 && !parameters.replace_all {
        return Err(ToolFailure(ambiguous_message(&bytes, &places, &path.to_string())));
    }
    let mut out = Vec::with_capacity(bytes.len() + places.len() * new.len());
    let mut from = 0;
    for at in &places {
        out.extend_from_slice(bytes.get(from..*at).unwrap_or_default());
        out.extend_from_slice(new.as_bytes());
        from = at + old.len();
    }
    out.extend_from_slice(bytes.get(from..).unwrap_or_default());
    let lines: Vec<usize> = places.iter().take(MAX_LISTED_LINES).map(|at| line_of(&bytes, *at)).collect();
    let count = places.len();
    let outcome = move |_, place: &ResolvedPath| {
        let path = &place.path;
        let text = if let [line] = lines.as_slice() {
            format!("edited `{path}` at line {line}{note}")
        } else {
            format!("edited `{path}` in {}{note}", format_count(count, "place"))
        };
        ToolOutcome { details: json!({"replaced": count, "lines": lines}), ..ToolOutcome::ok(text) }
    };
    Ok(PreparedWrite { place, bytes: out, outcome: Box::new(outcome) })
}

/// Returns the byte offsets at which the text occurs, without overlaps.
fn positions(bytes: &[u8], text: &[u8]) -> Vec<usize> {
    memmem::find_iter(bytes, text).collect()
}

fn has_crlf(bytes: &[u8]) -> bool {
    memmem::find(bytes, b"\r\n").is_some()
}

fn has_bare_newline(text: &str) -> bool {
    text.contains('\n') && !text.contains("\r\n")
}

fn to_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

fn line_of(bytes: &[u8], at: usize) -> usize {
    memchr::memchr_iter(b'\n', bytes.get(..at).unwrap_or_default()).count() + 1
}

fn ambiguous_message(bytes: &[u8], places: &[usize], path: &str) -> String {
    let lines: Vec<String> = places.iter().take(MAX_LISTED_LINES).map(|at| line_of(bytes, *at).to_string()).collect();
    let more = if places.len() > MAX_LISTED_LINES { ", …" } else { "" };
    format!(
        "`old_string` is {} times in `{path}` (lines {}{more}); give more of the text around it, or set `replace_all`",
        places.len(),
        lines.join(", "),
    )
}

/// Returns the message for a text `old` that the file does not contain. The message shows the line of the file that is
/// most similar to the first line of `old` that is not blank, if there is a similar line.
fn not_found_message(bytes: &[u8], old: &str, path: &str) -> String {
    let text = String::from_utf8_lossy(bytes);
    let Some(wanted) = old.lines().map(str::trim).find(|l| !l.is_empty()) else {
        return format!("`old_string` is not in `{path}`");
    };
    let mut best: Option<(usize, usize, &str)> = None;
    for (index, line) in text.lines().enumerate() {
        let score = similarity_percent(wanted, line.trim());
        if score >= 60 && best.is_none_or(|b| score > b.0) {
            best = Some((score, index + 1, line));
        }
    }
    match best {
        Some((100, number, _)) => format!(
            "`old_string` is not in `{path}`; its first line is there at line {number}, so the white space or a later \
             line differs: read from there and copy exactly"
        ),
        Some((_, number, line)) => {
            format!("`old_string` is not in `{path}`; the nearest is line {number}: `{}`", truncate(line.trim(), 200))
        }
        None => format!("`old_string` is not in `{path}`, nor anything like it; read the file first"),
    }
}

/// Returns the similarity of two lines in percent: the share of the longer line that the common prefix and the common
/// suffix cover. Only equal lines have 100. Different lines of which one is longer than 4096 bytes have 0.
fn similarity_percent(a: &str, b: &str) -> usize {
    if a == b {
        return 100;
    }
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let longest = a.len().max(b.len());
    let shortest = a.len().min(b.len());
    if shortest == 0 || longest > 4096 {
        return 0;
    }
    let head = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let tail = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count().min(shortest - head);
    ((head + tail) * 100 / longest).min(99)
}
