//! Changes to the texts of items that keep what they mean: repairs of what a diagnostic names (`rye check --fix`), and
//! the one layout of a directive's metadata, of YAML and of knowledge (`rye fmt`). Pure: who writes files is not here.

mod aliases;
mod data;
mod fix;
mod format;
mod layout;

use std::ops::Range;

pub use data::{format_data, format_knowledge};
pub use fix::{Fix, fix};
pub use format::{Formatted, Refused, format, old_names};

/// A stretch of a text and what is to stand there instead, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edit {
    pub start: usize,
    pub end: usize,
    pub text: String,
}

impl Edit {
    pub fn new(range: Range<usize>, text: impl Into<String>) -> Self {
        Self { start: range.start, end: range.end, text: text.into() }
    }
}

/// A text with its edits made. Of two that touch the same bytes the first one counts; one that lies outside of the
/// text or inside of a character is left out.
pub fn apply(text: &str, edits: &[Edit]) -> String {
    let mut sorted: Vec<&Edit> = edits.iter().collect();
    sorted.sort();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for edit in sorted {
        let Some(kept) = text.get(at..edit.start) else { continue };
        if text.get(edit.start..edit.end).is_none() {
            continue;
        }
        out.push_str(kept);
        out.push_str(&edit.text);
        at = edit.end;
    }
    out.push_str(text.get(at..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests;
