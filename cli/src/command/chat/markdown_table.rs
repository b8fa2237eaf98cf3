//! Alignment of the cells of a Markdown table.

use unicode_width::UnicodeWidthStr;

/// The text between two cells.
pub const CELL_SEPARATOR: &str = " │ ";

/// Returns the rows with each column as wide as its widest cell; `None` if the aligned rows are wider than `width`
/// columns.
pub fn align_cells(rows: &[Vec<String>], width: usize) -> Option<Vec<String>> {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            match widths.get_mut(column) {
                Some(widest) => *widest = (*widest).max(cell.width()),
                None => widths.push(cell.width()),
            }
        }
    }
    let separators = CELL_SEPARATOR.width() * widths.len().saturating_sub(1);
    if widths.iter().sum::<usize>() + separators > width {
        return None;
    }
    let aligned = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let padded = cells.map(|(cell, width)| format!("{cell}{}", " ".repeat(width.saturating_sub(cell.width()))));
        padded.collect::<Vec<_>>().join(CELL_SEPARATOR).trim_end().to_owned()
    };
    Some(rows.iter().map(aligned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_a_table_are_aligned_if_they_fit() {
        let rows: Vec<Vec<String>> = [["a", "bb"], ["日本", "x"], ["long", ""]]
            .iter()
            .map(|row| row.iter().map(|cell| (*cell).to_owned()).collect())
            .collect();
        let aligned = ["a    │ bb", "日本 │ x", "long │"].map(str::to_owned).to_vec();
        assert_eq!(align_cells(&rows, 9), Some(aligned));
        assert_eq!(align_cells(&rows, 8), None);
        assert_eq!(align_cells(&[], 8), Some(Vec::new()));
    }
}
