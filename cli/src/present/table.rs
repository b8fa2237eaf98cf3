//! Tables of text: aligned columns for human output, tab-separated cells for programs.

use std::fmt::Write;

use anstyle::Style;
use rye_compiler::diagnostics::breaks_line;

use crate::options::Format;

/// Maximum width of the first of two columns, in characters. A longer entry moves its second column to the right.
const MAX_FIRST_COLUMN: usize = 30;

/// Formats entries with their explanations as two aligned columns.
pub fn two_columns(rows: &[(String, String)]) -> String {
    let lengths = rows.iter().map(|(first, _)| first.chars().count());
    let width = lengths.filter(|length| *length <= MAX_FIRST_COLUMN).max().unwrap_or(0);
    let lines: Vec<String> = rows
        .iter()
        .map(|(first, second)| {
            let space = " ".repeat(width.saturating_sub(first.chars().count()));
            format!("{first}{space}  {second}").trim_end().to_owned()
        })
        .collect();
    lines.join("\n")
}

#[derive(Debug, Default)]
pub struct Table {
    head: Vec<&'static str>,
    /// Indexes of the columns that are right-aligned, because they hold numbers.
    right: Vec<usize>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Debug, Default, Clone)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { style, ..Self::from(text.into()) }
    }
}

impl From<String> for Cell {
    /// Creates a cell. Line breaks and control characters are replaced, so that a cell is one line.
    fn from(text: String) -> Self {
        let text = text.chars().map(|c| if breaks_line(c) { '\u{FFFD}' } else { c }).collect();
        Self { text, style: Style::new() }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl Table {
    pub fn new(head: &[&'static str], right: &[usize]) -> Self {
        Self { head: head.to_vec(), right: right.to_vec(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// Returns the width of the aligned table, in characters.
    pub fn width(&self) -> usize {
        let widths = self.widths();
        widths.iter().sum::<usize>() + widths.len().saturating_sub(1) * 2
    }

    /// Removes the column with this index from the header and from all rows.
    pub fn remove_column(&mut self, column: usize) {
        for cells in &mut self.rows {
            cells.remove(column);
        }
        self.head.remove(column);
        self.right.retain(|right| *right != column);
        self.right.iter_mut().filter(|right| **right > column).for_each(|right| *right -= 1);
    }

    /// Returns the lines of the table. Only the human format has a header.
    pub fn lines(&self, format: Format) -> Vec<String> {
        match format {
            Format::Plain | Format::Json => self.rows.iter().map(|row| format_tabs(row)).collect(),
            Format::Human => {
                let head: Vec<Cell> = self.head.iter().map(|name| Cell::styled(*name, super::BOLD)).collect();
                let widths = self.widths();
                std::iter::once(&head).chain(&self.rows).map(|row| self.aligned(row, &widths)).collect()
            }
        }
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.head.iter().map(|name| name.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        widths
    }

    fn aligned(&self, row: &[Cell], widths: &[usize]) -> String {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            if column > 0 {
                line.push_str("  ");
            }
            let Cell { text, style } = cell;
            let space = " ".repeat(width.saturating_sub(text.chars().count()));
            if self.right.contains(&column) {
                write!(line, "{space}{style}{text}{style:#}").ok();
            } else {
                write!(line, "{style}{text}{style:#}{space}").ok();
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

fn format_tabs(row: &[Cell]) -> String {
    row.iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>().join("\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_columns_start_at_the_same_place() {
        let long = "x".repeat(MAX_FIRST_COLUMN + 1);
        let rows = [("a", "one"), ("bcd", "two"), (long.as_str(), "three"), ("e", "")];
        let rows = rows.map(|(first, second)| (first.to_owned(), second.to_owned()));
        assert_eq!(two_columns(&rows), format!("a    one\nbcd  two\n{long}  three\ne"));
    }

    #[test]
    fn columns_align_and_programs_get_tabs() {
        let mut table = Table::new(&["NAME", "N"], &[1]);
        table.row(vec!["a\tb".into(), "10".into()]);
        table.row(vec!["é".into(), "7".into()]);
        assert_eq!(table.lines(Format::Plain), ["a\u{FFFD}b\t10", "é\t7"]);
        let human = table.lines(Format::Human);
        assert_eq!(human.get(1..), Some(&["a\u{FFFD}b   10".to_owned(), "é      7".to_owned()][..]));
    }
}
