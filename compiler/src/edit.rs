//! Edits of item texts that preserve their meaning: fixes of diagnostics (`rye check --fix`), and the layout of
//! directive metadata, YAML and knowledge (`rye fmt`). The functions are pure; callers write the files.

mod aliases;
mod data;
mod fix;
mod format;
mod layout;
mod repair;

use std::ops::Range;

pub use data::{format_data, format_knowledge};
pub use fix::{Fix, fix};
use format::old_word_edits;
pub use format::{FormatRefusal, Formatted, format};
pub use repair::{Repair, Repairs, repair};

/// A byte range of a text and its replacement.
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

/// Applies edits to a text. If two edits overlap, only the first is applied. An edit outside of the text or inside of a
/// character is ignored.
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
