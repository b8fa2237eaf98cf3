//! Folding of lines that are wider than the terminal. A line is folded after a table column or after a word. Nothing is
//! cut off: a word longer than a line, such as a path, stays whole.

use std::io::{IsTerminal, stderr, stdout};

use unicode_width::UnicodeWidthChar;

/// Minimum width of a terminal, in columns, for which lines are folded. A narrower terminal wraps the lines itself.
const MIN_WIDTH_COLUMNS: usize = 30;
/// Indentation of continuation lines.
const CONTINUATION_INDENT: usize = 4;

/// The stream that text is printed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Out,
    Error,
}

/// Returns the width, in columns, at which text is folded. `None` if the width of the stream is unknown
/// ([`terminal_columns`]) or too small.
pub fn fold_width(stream: OutputStream) -> Option<usize> {
    terminal_columns(stream).filter(|width| *width >= MIN_WIDTH_COLUMNS)
}

/// Returns the width of a stream, in columns: the variable `COLUMNS`, else the width of the terminal. `None` if the
/// variable is not set and the stream is no terminal.
pub fn terminal_columns(stream: OutputStream) -> Option<usize> {
    let columns_variable = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let seen = || match stream {
        OutputStream::Out if stdout().is_terminal() => terminal_size::terminal_size_of(stdout()),
        OutputStream::Error if stderr().is_terminal() => terminal_size::terminal_size_of(stderr()),
        OutputStream::Out | OutputStream::Error => None,
    };
    columns_variable.or_else(|| seen().map(|(width, _)| usize::from(width.0)))
}

/// Folds the lines of a text that are longer than `width` characters.
pub fn fold(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for (i, line) in text.split('\n').enumerate() {
        if i > 0 {
            out.push('\n');
        }
        fold_line(line, width, &mut out);
    }
    out
}

fn fold_line(line: &str, width: usize, out: &mut String) {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let hanging = " ".repeat((indent + CONTINUATION_INDENT).min(width / 2));
    let mut rest = line;
    let mut max_chars = width;
    while let Some(at) = break_position(rest, max_chars) {
        let (head, tail) = rest.split_at(at);
        out.push_str(head.trim_end());
        out.push('\n');
        out.push_str(&hanging);
        rest = tail.trim_start();
        max_chars = width - hanging.len();
    }
    out.push_str(rest);
}

/// Returns the number of characters without the escape sequences of styles.
fn visible_chars(text: &str) -> usize {
    let mut parts = text.split('\x1b');
    let first = parts.next().map_or(0, |plain| plain.chars().count());
    let styled = |part: &str| part.split_once('m').map_or(0, |(_, plain)| plain.chars().count());
    first + parts.map(styled).sum::<usize>()
}

/// Folds the long lines of a text for stderr. Returns the text unchanged if [`fold_width`] returns no width for stderr.
pub fn fold_for_stderr(text: &str) -> String {
    fold_width(OutputStream::Error).map_or_else(|| text.to_owned(), |width| fold(text, width))
}

/// Folds the long lines of a text for a terminal of this width; returns the text unchanged if the terminal is too
/// narrow.
pub fn fold_for_columns(text: &str, columns: usize) -> String {
    if columns < MIN_WIDTH_COLUMNS { text.to_owned() } else { fold(text, columns) }
}

/// Returns the byte offset at which to break a text that is too wide. The offset is the last end of a table column that
/// fits, else the last end of a word that fits, else the first end of a word. `None` if the text fits, or has no such
/// offset.
fn break_position(text: &str, max_chars: usize) -> Option<usize> {
    if visible_chars(text) <= max_chars {
        return None;
    }
    let begin = text.len() - text.trim_start().len();
    let fits = |at: &usize| text.get(..*at).is_some_and(|head| visible_chars(head) <= max_chars);
    let ends =
        |gap: &str| -> Vec<usize> { text.match_indices(gap).map(|(at, _)| at).filter(|at| *at > begin).collect() };
    let words = ends(" ");
    let last = |all: &[usize]| all.iter().copied().rfind(fits);
    // Ignore a column that would leave most of the line empty.
    let column = last(&ends("  ")).filter(|at| *at > begin + max_chars / 3);
    let place = column.or_else(|| last(&words)).or_else(|| words.first().copied())?;
    text.get(place..).is_some_and(|rest| !rest.trim().is_empty()).then_some(place)
}

/// Cuts a line to a number of columns.
pub fn cut_to_width(text: &str, columns: usize) -> String {
    let mut used = 0;
    text.chars()
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= columns
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fold_at_columns_and_words() {
        let line =
            "  51  0.0051c  rye/agent/core/Environment  hook ctx_environment  system:.ai/config/agent/hooks.yaml:5:9";
        let folded = fold(line, 60);
        assert_eq!(
            folded,
            "  51  0.0051c  rye/agent/core/Environment\n      hook ctx_environment\n      system:.ai/config/agent/hooks.yaml:5:9"
        );
        assert_eq!(fold(line, 200), line);
        let styled = "\u{1b}[1mbold words\u{1b}[0m and plain words to the end";
        assert_eq!(fold(styled, 35), "\u{1b}[1mbold words\u{1b}[0m and plain words to the\n    end");
        let prose = "worst: replies and tool results as long as they may be";
        assert_eq!(fold(prose, 30), "worst: replies and tool\n    results as long as they\n    may be");
    }

    #[test]
    fn folding_loses_nothing_and_keeps_long_words() {
        for text in [
            "",
            "   ",
            "\n\n",
            "a",
            "  a-very-long-word-that-fits-nowhere-at-all next",
            "é é é é é é é é é é é é é é é é é é",
        ] {
            for width in [30, 31, 60] {
                let folded = fold(text, width);
                let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
                assert_eq!(words(&folded), words(text), "{text:?} at {width}");
                let fits = |line: &str| line.chars().count() <= width || line.split_whitespace().count() == 1;
                assert!(folded.lines().all(fits) || text.trim().is_empty(), "{folded:?}");
            }
        }
    }
}
