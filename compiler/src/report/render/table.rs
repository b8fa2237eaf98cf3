//! Rows of padded, aligned columns; the last column is never padded.

use std::borrow::Cow;

use crate::diagnostics::sanitize;

/// Alignment of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Appends the rows to `out`, indented by two spaces. Empty cells at the end of a row are dropped. Line breaks and
/// control characters in cells are replaced.
pub(crate) fn push_table(out: &mut String, columns: &[Align], rows: &[Vec<String>]) {
    let rows: Vec<Vec<Cow<'_, str>>> =
        rows.iter().map(|row| row.iter().map(|cell| sanitize(cell, "\u{fffd}")).collect()).collect();
    let width = |i: usize| rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    for row in &rows {
        let mut line = String::from("  ");
        let last = row.iter().rposition(|cell| !cell.is_empty()).unwrap_or(0);
        for (i, cell) in row.iter().enumerate().take(last + 1) {
            let pad = widths.get(i).copied().unwrap_or(0).saturating_sub(cell.chars().count());
            if columns.get(i) == Some(&Align::Right) {
                line.push_str(&" ".repeat(pad));
                line.push_str(cell);
            } else {
                line.push_str(cell);
                if i < last {
                    line.push_str(&" ".repeat(pad));
                }
            }
            if i < last {
                line.push_str("  ");
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

/// Formats a number with thousands separators.
pub fn group_thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let row = |cells: &[&str]| cells.iter().map(|c| (*c).to_owned()).collect::<Vec<_>>();
        let mut out = String::new();
        let rows = [row(&["a", "1", "x"]), row(&["long", "100", ""]), row(&["é", "20", "\u{1b}y\n"])];
        push_table(&mut out, &[Align::Left, Align::Right, Align::Left], &rows);
        assert_eq!(out, "  a       1  x\n  long  100\n  é      20  \u{fffd}y\n");
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(group_thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
