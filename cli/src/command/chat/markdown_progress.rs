//! The parts of Markdown in progress that later text cannot change.

use pulldown_cmark::{Event, Options, Parser, Tag};

/// Returns the Markdown extensions that the terminal shows.
pub fn markdown_options() -> Options {
    Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TABLES | Options::ENABLE_TASKLISTS
}

/// The progress of Markdown that is still being received.
pub struct MarkdownProgress {
    /// Number of bytes at the start that later text cannot change: the first block, or the finished lines of a
    /// paragraph.
    pub finished: usize,
    /// True if the text has at most one block. The first rows of the block can then be emitted before the block ends.
    pub is_single_block: bool,
}

/// Measures the progress of `pending`. If `is_end` is true, no later text follows.
pub fn measure_progress(pending: &str, is_end: bool) -> MarkdownProgress {
    let (mut depth, mut starts, mut last_is_paragraph) = (0_usize, Vec::new(), false);
    for (event, range) in Parser::new_ext(pending, markdown_options()).into_offset_iter() {
        if depth == 0 {
            last_is_paragraph = matches!(event, Event::Start(Tag::Paragraph));
            starts.push(range.start);
        }
        if matches!(event, Event::Start(_)) {
            depth += 1;
        } else if matches!(event, Event::End(_)) {
            depth = depth.saturating_sub(1);
        }
    }
    let complete = pending.rfind('\n').map_or(0, |at| at + 1);
    let finished = match starts.as_slice() {
        // An incomplete line may still belong to the block above it.
        [_, second, ..] if *second < complete || is_end || starts_paragraph(pending, *second) => *second,
        _ if is_end => pending.len(),
        [_] if last_is_paragraph => {
            // A later line changes an earlier line only if the text so far is the head of a table, or has an open
            // inline construct.
            let head = pending.get(..complete).unwrap_or_default();
            if head.contains('|') || has_open_markup(head) { 0 } else { complete }
        }
        _ => 0,
    };
    MarkdownProgress { finished, is_single_block: starts.len() < 2 }
}

/// Returns true if the text at `start` begins a new paragraph, independent of the text that follows. This is the case
/// if a blank line precedes the text and its first character is a letter, because a letter does not start a list item.
fn starts_paragraph(pending: &str, start: usize) -> bool {
    let (before, after) = pending.split_at_checked(start).unwrap_or_default();
    ends_with_blank_line(before) && after.starts_with(char::is_alphabetic)
}

/// Returns true if the last line of a text is empty or contains only spaces.
pub fn ends_with_blank_line(text: &str) -> bool {
    let space = text.get(text.trim_end().len()..).unwrap_or_default();
    space.matches('\n').count() >= 2
}

/// Returns true if later text can change only the last row of an incomplete block.
pub fn can_emit_part(block: &str) -> bool {
    let first = block.trim_start();
    // Such a line makes a heading of the lines above it, unless a word follows.
    let may_underline =
        block.rsplit('\n').next().is_some_and(|last| last.chars().all(|c| matches!(c, '-' | '=' | ' ')));
    !first.starts_with(['|', '<', '#', '`', '~']) && !block.contains('|') && !may_underline && !has_open_markup(block)
}

/// Returns the offset in the paragraph `block` at which its last row `last` starts. `None` if `last` is the only row,
/// or if `last` alone might not be parsed as plain text.
pub fn start_of_last_row(block: &str, last: &str) -> Option<usize> {
    let is_text = last.starts_with(char::is_alphabetic) && !last.contains('\x1b');
    let end = block.trim_end().len();
    let start = end.checked_sub(last.len()).filter(|start| is_text && *start > 0)?;
    let follows_space = block.get(..start)?.ends_with(' ');
    (follows_space && block.get(start..end) == Some(last)).then_some(start)
}

/// Returns true if inline markup, such as emphasis, a code span or a link, may still be open at the end of a Markdown
/// text.
fn has_open_markup(text: &str) -> bool {
    let (mut code, mut stars, mut underscores, mut brackets, mut angles) = (0_usize, 0_usize, 0_usize, 0_i64, 0_i64);
    for line in text.lines() {
        let trimmed = line.trim_start();
        let content = trimmed.strip_prefix("* ").or_else(|| trimmed.strip_prefix("> ")).unwrap_or(trimmed);
        for c in content.chars() {
            match c {
                '`' => code += 1,
                '*' => stars += 1,
                '_' => underscores += 1,
                '[' | '(' => brackets += 1,
                ']' | ')' => brackets -= 1,
                '<' => angles += 1,
                '>' => angles -= 1,
                _ => {}
            }
        }
    }
    let is_unfinished = text.ends_with(['*', '_', '`', ']', '!', '\\', '&', '~']);
    code % 2 == 1 || stars % 2 == 1 || underscores % 2 == 1 || brackets > 0 || angles > 0 || is_unfinished
}
