//! The difference between two texts of a file, as the colored lines of a unified diff.

use std::time::Duration;

use anstyle::{AnsiColor, Style};
use rye_engine::secrets::mask_secrets;
use similar::{ChangeTag, TextDiff};

use crate::present::{DIM, color_style, format_count};
use crate::report::printable;

/// Lines of context around a change.
const CONTEXT_LINES: usize = 2;
/// Maximum time of a comparison. After this time, the difference is correct, but not the smallest one.
const MAX_COMPARISON_TIME: Duration = Duration::from_millis(100);

/// A line of a difference: its style and its text.
pub type DiffLine = (Style, String);

/// The difference between two texts of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDiff {
    lines: Vec<DiffLine>,
    added: usize,
    removed: usize,
}

impl FileDiff {
    pub fn new(before: &str, after: &str) -> Self {
        let diff = TextDiff::configure().timeout(MAX_COMPARISON_TIME).diff_lines(before, after);
        let mut found = Self { lines: Vec::new(), added: 0, removed: 0 };
        for hunk in diff.unified_diff().context_radius(CONTEXT_LINES).iter_hunks() {
            found.lines.push((DIM, hunk.header().to_string()));
            for change in hunk.iter_changes() {
                let (sign, style) = match change.tag() {
                    ChangeTag::Delete => ('-', color_style(AnsiColor::Red)),
                    ChangeTag::Insert => ('+', color_style(AnsiColor::Green)),
                    ChangeTag::Equal => (' ', Style::new()),
                };
                found.added += usize::from(sign == '+');
                found.removed += usize::from(sign == '-');
                let text = change.value().strip_suffix('\n').unwrap_or(change.value());
                let text = printable(&mask_secrets(text).replace('\r', "\u{FFFD}"));
                found.lines.push((style, format!("{sign}{text}")));
                if change.missing_newline() {
                    found.lines.push((DIM, "\\ no line break at the end of the file".to_owned()));
                }
            }
        }
        found
    }

    /// Returns the numbers of added and removed lines: `+12 -3`.
    pub fn counts(&self) -> String {
        format!("+{} -{}", self.added, self.removed)
    }

    /// Returns true if the difference has at most `rows` lines, so that [`Self::lines`] leaves out none.
    pub fn fits(&self, rows: usize) -> bool {
        self.lines.len() <= rows
    }

    /// Returns the first lines of the difference, at most `rows`. If lines are left out, a further line states how
    /// many.
    pub fn lines(&self, rows: usize) -> Vec<DiffLine> {
        let mut shown: Vec<DiffLine> = self.lines.iter().take(rows).cloned().collect();
        let hidden = self.lines.len() - shown.len();
        if hidden > 0 {
            shown.push((DIM, format!("… {}", format_count(hidden as u64, "more line"))));
        }
        shown
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    fn texts(lines: &[DiffLine]) -> Vec<&str> {
        lines.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn difference_has_colors_counts_and_a_bound() {
        let diff = FileDiff::new("a\nb\nc\nd\n", "a\nB\u{1b}[2J\nc\nd");
        let all = [
            "@@ -1,4 +1,4 @@",
            " a",
            "-b",
            "+B\u{FFFD}[2J",
            " c",
            "-d",
            "+d",
            "\\ no line break at the end of the file",
        ];
        let lines = diff.lines(8);
        assert_eq!((texts(&lines), diff.counts().as_str()), (all.to_vec(), "+2 -2"));
        assert_eq!([lines[2].0, lines[3].0], [color_style(AnsiColor::Red), color_style(AnsiColor::Green)]);
        assert!(diff.fits(8) && !diff.fits(7));
        assert_eq!(texts(&diff.lines(3)), ["@@ -1,4 +1,4 @@", " a", "-b", "… 5 more lines"]);
    }
}
