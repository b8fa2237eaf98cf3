//! Code blocks of a Markdown text, which is read line by line.

/// Minimum indentation of an indented code block, in columns.
const CODE_INDENT_COLUMNS: usize = 4;
/// Minimum length of a code fence, in characters.
const MIN_FENCE_CHARS: usize = 3;

/// The code blocks of the lines that were read so far.
#[derive(Debug, Default)]
pub(super) struct CodeBlocks {
    /// The fence of the open block: its character and its length.
    fence: Option<(char, usize)>,
    /// True if the last line belongs to a paragraph. An indented line then continues the paragraph and is not code.
    is_paragraph: bool,
}

impl CodeBlocks {
    /// Returns true if a line that starts with this text belongs to a code block.
    pub fn contains(&self, line: &str) -> bool {
        self.fence.is_some() || !self.is_paragraph && is_indented(line)
    }

    /// Adds the next complete line, and updates the state of the block.
    pub fn end_line(&mut self, line: &str) {
        let is_code = self.contains(line);
        match (self.fence, fence_of(line)) {
            (Some((open, length)), Some((mark, count))) if mark == open && count >= length => {
                (self.fence, self.is_paragraph) = (None, false);
            }
            (Some(_), _) => {}
            (None, Some(fence)) if !is_code => self.fence = Some(fence),
            (None, _) => self.is_paragraph = !is_code && !line.trim().is_empty(),
        }
    }
}

fn is_indented(line: &str) -> bool {
    let mut columns = 0;
    for char in line.chars() {
        match char {
            ' ' => columns += 1,
            '\t' => columns = CODE_INDENT_COLUMNS,
            _ => return columns >= CODE_INDENT_COLUMNS,
        }
    }
    false
}

/// Returns the character and the length of the code fence with which a line starts.
fn fence_of(line: &str) -> Option<(char, usize)> {
    let text = line.trim_start();
    let mark = text.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let count = text.chars().take_while(|char| *char == mark).count();
    (count >= MIN_FENCE_CHARS).then_some((mark, count))
}
