//! Markdown of a streaming reply as lines for a terminal. Each line is emitted once, as soon as later text cannot
//! change it. Prose is wrapped at words; a line of code stays one line, so that it can be copied exactly.

use anstyle::{AnsiColor, Style};
use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Parser, Tag, TagEnd};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::markdown_progress::{
    can_emit_part, ends_with_blank_line, markdown_options, measure_progress, start_of_last_row,
};
use super::markdown_table::{CELL_SEPARATOR, align_cells};
use super::screen::Row;
use super::word_wrap::WordWrapper;
use crate::present::{BOLD, DIM, color_style};
use crate::report::printable;

/// Number of columns between two tab stops in code.
const TAB_COLUMNS: usize = 4;
/// Length in bytes from which only the last row of a paragraph in progress is kept. Without this limit, each piece of a
/// reply would render the whole paragraph again.
const MAX_PARAGRAPH_BYTES: usize = 2_000;
/// Maximum number of indented levels of lists, and of quotes. Deeper levels have the same indentation as the last
/// level.
const MAX_INDENT_LEVELS: usize = 6;

/// A renderer of the Markdown of a reply that is still being received.
#[derive(Debug, Default)]
pub struct MarkdownStream {
    /// The text of the block that may still change.
    pending: String,
    /// Number of rows of the block in `pending` that were already emitted.
    emitted: usize,
    /// The width, in columns, at which the block in `pending` is wrapped.
    width: usize,
    fence: Option<Fence>,
    /// True if a block was emitted, so that a blank line must precede the next one.
    has_block: bool,
    /// True if the pending text continues a paragraph whose first lines were emitted.
    is_continued: bool,
    /// Bytes of Markdown rendered so far.
    #[cfg(test)]
    rendered_bytes: usize,
}

/// A fenced block of code whose end has not arrived yet.
#[derive(Debug)]
struct Fence {
    marker: char,
    length: usize,
    indent: usize,
}

impl MarkdownStream {
    /// Adds a piece of the reply.
    pub fn push(&mut self, text: &str) {
        self.pending.push_str(&printable(&text.replace('\r', "")));
    }

    /// Returns the new rows that no later text can change. `columns` is the width of the terminal.
    pub fn take_rows(&mut self, columns: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        self.advance(columns, false, &mut rows);
        rows
    }

    /// Returns the last rows that later text can still change, at most `count` rows.
    pub fn unstable_rows(&self, columns: usize, count: usize) -> Vec<Row> {
        if self.pending.trim().is_empty() {
            return Vec::new();
        }
        let mut rows: Vec<Row> = if let Some(fence) = &self.fence {
            self.pending.lines().map(|line| code_row(fence.without_indent(line))).collect()
        } else {
            let width = if self.emitted == 0 { columns.max(1) } else { self.width };
            render_block(&self.pending, width).into_iter().skip(self.emitted).map(Row::new).collect()
        };
        rows.split_off(rows.len().saturating_sub(count))
    }

    /// Ends the reply and returns the rest of its rows.
    pub fn finish(&mut self, columns: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        self.advance(columns, true, &mut rows);
        *self = Self::default();
        rows
    }

    fn advance(&mut self, columns: usize, is_end: bool, rows: &mut Vec<Row>) {
        if self.emitted == 0 {
            self.width = columns.max(1);
        }
        loop {
            if self.fence.is_some() {
                if !self.take_code(is_end, rows) {
                    return;
                }
                continue;
            }
            let space = self.pending.len() - self.pending.trim_start().len();
            let blank = self.pending.get(..space).and_then(|lines| lines.rfind('\n')).map_or(0, |at| at + 1);
            self.is_continued &= blank == 0;
            self.pending.drain(..blank);
            if self.pending.trim().is_empty() {
                return;
            }
            if let Some((first, rest)) = self.pending.split_once('\n')
                && self.emitted == 0
                && let Some(fence) = open_fence(first)
            {
                let rest = rest.to_owned();
                self.separate(rows);
                self.fence = Some(fence);
                self.pending = rest;
                continue;
            }
            let progress = measure_progress(&self.pending, is_end);
            if progress.finished > 0 {
                let block: String = self.pending.drain(..progress.finished).collect();
                self.emit(&block, usize::MAX, rows);
                self.emitted = 0;
                self.is_continued = !is_end && !ends_with_blank_line(&block);
                self.width = columns.max(1);
                continue;
            }
            let block = std::mem::take(&mut self.pending);
            if progress.is_single_block && can_emit_part(&block) {
                // The last row may still grow.
                let rendered = self.emit(&block, 1, rows);
                if block.len() >= MAX_PARAGRAPH_BYTES
                    && let Some(start) = rendered.last().and_then(|last| start_of_last_row(&block, last))
                {
                    self.pending = block.get(start..).unwrap_or_default().to_owned();
                    self.emitted = 0;
                    self.is_continued = true;
                    return;
                }
            }
            self.pending = block;
            return;
        }
    }

    /// Emits the rows of a block that were not emitted yet, except for the last `held` rows, which may still change. If
    /// `held` is `usize::MAX`, the block is finished and all of its rows are emitted. Returns the rows of the block.
    fn emit(&mut self, block: &str, held: usize, rows: &mut Vec<Row>) -> Vec<String> {
        #[cfg(test)]
        {
            self.rendered_bytes += block.len();
        }
        let rendered = render_block(block, self.width);
        let count = if held == usize::MAX { rendered.len() } else { rendered.len().saturating_sub(held) };
        if self.emitted == 0 && count > 0 {
            self.separate(rows);
        }
        rows.extend(rendered.iter().take(count).skip(self.emitted).cloned().map(Row::new));
        self.emitted = self.emitted.max(count);
        rendered
    }

    fn separate(&mut self, rows: &mut Vec<Row>) {
        if std::mem::replace(&mut self.has_block, true) && !std::mem::take(&mut self.is_continued) {
            rows.push(Row::default());
        }
    }

    /// Moves the complete lines of the open block of code from the pending text to `rows`. If `is_end` is true, also
    /// moves an incomplete last line. Returns true if the block has ended, or if no block is open.
    fn take_code(&mut self, is_end: bool, rows: &mut Vec<Row>) -> bool {
        let Some(fence) = &self.fence else { return true };
        let mut at = 0;
        let mut has_ended = false;
        while let Some(rest) = self.pending.get(at..).filter(|rest| !rest.is_empty()) {
            let (line, length) = match rest.split_once('\n') {
                Some((line, _)) => (line, line.len() + 1),
                None if is_end => (rest, rest.len()),
                None => break,
            };
            at += length;
            if fence.is_closed_by(line) {
                has_ended = true;
                break;
            }
            rows.push(code_row(fence.without_indent(line)));
        }
        self.pending.drain(..at);
        if has_ended || is_end {
            self.fence = None;
        }
        has_ended
    }
}

impl Fence {
    fn is_closed_by(&self, line: &str) -> bool {
        let text = line.trim_start_matches(' ');
        let length = text.chars().take_while(|c| *c == self.marker).count();
        line.len() - text.len() < 4 && length >= self.length && text.trim_start_matches(self.marker).trim().is_empty()
    }

    fn without_indent<'l>(&self, line: &'l str) -> &'l str {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        line.get(spaces.min(self.indent)..).unwrap_or_default()
    }
}

/// Returns the fence with which a line opens a block of code; `None` if the line opens no such block.
fn open_fence(line: &str) -> Option<Fence> {
    let text = line.trim_start_matches(' ');
    let indent = line.len() - text.len();
    let marker = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = text.chars().take_while(|c| *c == marker).count();
    let info = text.get(length..)?;
    (indent < 4 && length >= 3 && (marker == '~' || !info.contains('`'))).then_some(Fence { marker, length, indent })
}

fn code_row(line: &str) -> Row {
    let style = color_style(AnsiColor::Cyan);
    let text = expand_tabs(line);
    Row::new(if text.is_empty() { text } else { format!("  {style}{text}{style:#}") })
}

/// Replaces each tab by spaces up to the next column that is a multiple of `TAB_COLUMNS`.
pub fn expand_tabs(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut column = 0;
    for c in line.chars() {
        if c == '\t' {
            let count = TAB_COLUMNS - column % TAB_COLUMNS;
            text.push_str(&" ".repeat(count));
            column += count;
        } else {
            text.push(c);
            column += c.width().unwrap_or(0);
        }
    }
    text
}

/// A renderer of one Markdown block as rows for the terminal.
#[derive(Default)]
struct BlockRenderer {
    rows: Vec<String>,
    words: WordWrapper,
    styles: Vec<Style>,
    /// The open lists, each with its next number if it is numbered.
    lists: Vec<Option<u64>>,
    quotes: usize,
    /// The list marker to write before the next text, if that text starts a list item.
    marker: Option<String>,
    is_code: bool,
    links: Vec<String>,
    cells: Vec<String>,
    /// The finished rows of a table.
    table: Vec<Vec<String>>,
}

/// Renders finished Markdown as rows of at most `width` columns; only rows of code can be wider.
fn render_block(text: &str, width: usize) -> Vec<String> {
    let mut block = BlockRenderer { words: WordWrapper::new(width), ..BlockRenderer::default() };
    for event in Parser::new_ext(text, markdown_options()) {
        block.event(event);
    }
    block.break_row();
    block.rows
}

impl BlockRenderer {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) if self.is_code => {
                for line in text.lines() {
                    let prefix = self.prefix();
                    self.rows.push(format!("{prefix}{}", code_row(line).text()));
                }
            }
            Event::Code(text) => {
                self.styles.push(color_style(AnsiColor::Cyan));
                self.text(&text);
                self.styles.pop();
            }
            Event::Html(text) | Event::InlineHtml(text) => {
                for (n, line) in text.split('\n').enumerate() {
                    if n > 0 {
                        self.break_row();
                    }
                    self.text(line);
                }
            }
            // Models break lines on purpose, so a single line break also starts a row.
            Event::SoftBreak | Event::HardBreak => self.break_row(),
            Event::Rule => {
                let length = self.words.width().min(40);
                self.rows.push(format!("{DIM}{}{DIM:#}", "─".repeat(length)));
            }
            Event::TaskListMarker(done) => self.text(if done { "[x] " } else { "[ ] " }),
            Event::Text(text) | Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.text(&text);
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::Table(_) => self.break_row(),
            Tag::Heading { level, .. } => {
                self.break_row();
                self.styles.push(if level == HeadingLevel::H1 { BOLD.underline() } else { BOLD });
            }
            Tag::BlockQuote(_) => {
                self.break_row();
                self.quotes += 1;
            }
            Tag::CodeBlock(kind) => {
                self.break_row();
                self.is_code = true;
                if let CodeBlockKind::Fenced(_) = kind {
                    self.marker = None;
                }
            }
            Tag::List(first) => {
                self.break_row();
                self.lists.push(first);
            }
            Tag::Item => {
                self.break_row();
                let marker = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        let marker = format!("{number}. ");
                        *number += 1;
                        marker
                    }
                    Some(None) | None => "• ".to_owned(),
                };
                self.marker = Some(marker);
            }
            Tag::Emphasis => self.styles.push(Style::new().italic()),
            Tag::Strong => self.styles.push(BOLD),
            Tag::Strikethrough => self.styles.push(Style::new().strikethrough()),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push(dest_url.to_string());
                self.styles.push(Style::new().underline());
            }
            Tag::TableCell => self.cells.push(String::new()),
            Tag::TableRow | Tag::TableHead => self.cells.clear(),
            Tag::HtmlBlock
            | Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => {
                self.break_row();
                self.styles.pop();
            }
            TagEnd::BlockQuote(_) => {
                self.break_row();
                self.quotes = self.quotes.saturating_sub(1);
            }
            TagEnd::CodeBlock => self.is_code = false,
            TagEnd::List(_) => {
                self.break_row();
                self.lists.pop();
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => {
                self.styles.pop();
                if let Some(target) = self.links.pop().filter(|target| !self.words.plain_ends_with(target)) {
                    self.text(&format!(" ({target})"));
                }
            }
            TagEnd::TableHead | TagEnd::TableRow => {
                self.table.push(std::mem::take(&mut self.cells));
            }
            TagEnd::Table => self.finish_table(),
            TagEnd::Paragraph | TagEnd::Item => self.break_row(),
            TagEnd::HtmlBlock
            | TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::TableCell
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {}
        }
    }

    /// Renders the rows of a table. The columns are aligned if the table fits; otherwise, the cells of a row follow
    /// each other with a separator.
    fn finish_table(&mut self) {
        let cells: Vec<Vec<String>> = std::mem::take(&mut self.table)
            .into_iter()
            .map(|row| row.iter().map(|cell| expand_tabs(cell)).collect())
            .collect();
        let prefix = self.prefix();
        let rows = align_cells(&cells, self.words.width().saturating_sub(prefix.width()))
            .unwrap_or_else(|| cells.iter().map(|row| row.join(CELL_SEPARATOR)).collect());
        for (n, row) in rows.iter().enumerate() {
            self.words.begin(self.prefix(), self.prefix());
            self.marker = None;
            self.words.push(row, if n == 0 { BOLD } else { Style::new() });
            self.break_row();
        }
    }

    fn text(&mut self, text: &str) {
        if let Some(cell) = self.cells.last_mut() {
            cell.push_str(text);
            return;
        }
        if self.words.is_empty() && !text.is_empty() {
            let first = self.prefix();
            self.marker = None;
            self.words.begin(first, self.prefix());
        }
        let style = self.styles.iter().fold(Style::new(), |all, style| merge_styles(all, *style));
        self.words.push(&expand_tabs(text), style);
    }

    /// Returns the start of the next row: the bars of quotes, the indentation, and the list marker if a list item
    /// starts in the row.
    fn prefix(&self) -> String {
        let levels = self.lists.len().min(MAX_INDENT_LEVELS);
        let quotes = "│ ".repeat(self.quotes.min(MAX_INDENT_LEVELS));
        match (&self.marker, levels) {
            (Some(marker), 1..) => format!("{quotes}{}{marker}", "  ".repeat(levels - 1)),
            (_, levels) => format!("{quotes}{}", "  ".repeat(levels)),
        }
    }

    fn break_row(&mut self) {
        self.rows.append(&mut self.words.finish());
    }
}

fn merge_styles(below: Style, above: Style) -> Style {
    let style = below.effects(below.get_effects() | above.get_effects());
    style.fg_color(above.get_fg_color().or(below.get_fg_color()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::super::screen::visible_width;
    use super::*;

    const DOCUMENT: &str = "# A title\n\nSome *text* with **bold words** and `code`, long enough to be wrapped at the \
        end of a narrow line.\nA second line. See [the page](https://example.org/x) or <https://example.org/y>.\n\n\
        - one\n- two with more words than fit in the row of a narrow terminal\n  1. deep\n  2. deeper\n- three\n\n\
        ```rust\nfn main() {\n    let a_long_line = \"that is wider than the terminal and is not wrapped\";\n\n}\n```\n\
        After it.\n\n> a quote\n> of two lines\n\n| a | b |\n|---|---|\n| 1 | *2* |\n\n---\n\n~~gone~~ 2 * 3 = 6, \
        snake_case_name, a\\*b\n\n日本語のテキストは空白なしで折り返されます。\n\n```\nunclosed\n";

    fn render(pieces: &[&str], columns: usize) -> Vec<String> {
        let mut stream = MarkdownStream::default();
        let mut rows = Vec::new();
        for piece in pieces {
            stream.push(piece);
            rows.extend(stream.take_rows(columns));
        }
        rows.extend(stream.finish(columns));
        rows.into_iter().map(|row| row.text().to_owned()).collect()
    }

    fn plain(rows: &[String]) -> Vec<String> {
        let strip = |row: &String| {
            let mut text = String::new();
            let mut rest = row.as_str();
            while let Some((before, after)) = rest.split_once('\u{1b}') {
                text.push_str(before);
                rest = after.split_once('m').map_or("", |(_, rest)| rest);
            }
            text + rest
        };
        rows.iter().map(strip).collect()
    }

    #[test]
    fn work_for_a_piece_does_not_grow_with_its_paragraph() {
        let words: Vec<String> = (0..4_000).map(|n| format!("word{n} ")).collect();
        let text = words.concat();
        let mut stream = MarkdownStream::default();
        let mut rows = Vec::new();
        for word in &words {
            let before = stream.rendered_bytes;
            stream.push(word);
            rows.extend(stream.take_rows(60));
            assert!(stream.rendered_bytes - before < MAX_PARAGRAPH_BYTES + 100);
        }
        rows.extend(stream.finish(60));
        let rows: Vec<String> = rows.into_iter().map(|row| row.text().to_owned()).collect();
        assert_eq!(rows, render(&[&text], 60));
        assert_eq!(rows.join(" "), text.trim_end());
    }

    #[test]
    fn blocks_become_rows() {
        let rows = plain(&render(&[DOCUMENT], 40));
        let text = rows.join("\n");
        for part in [
            "A title\n\nSome text with bold words and code, long",
            "See the page\n(https://example.org/x) or",
            "• one\n• two with more words than fit in the\n  row of a narrow terminal\n  1. deep\n  2. deeper\n• three\n\n",
            "  fn main() {\n      let a_long_line = \"that is wider than the terminal and is not wrapped\";\n\n  }\n\nAfter it.",
            "│ a quote\n│ of two lines",
            "a │ b\n1 │ 2",
            "gone 2 * 3 = 6, snake_case_name, a*b",
            "  unclosed",
        ] {
            assert!(text.contains(part), "{part}\n--\n{text}");
        }
    }

    #[test]
    fn only_code_is_wider_than_the_terminal() {
        for columns in [10, 20, 40, 80] {
            for row in render(&[DOCUMENT], columns) {
                let is_code = row.starts_with("  \u{1b}[36m");
                assert!(visible_width(&row) <= columns || is_code, "{columns}: {row:?}");
            }
        }
    }

    #[test]
    fn rows_do_not_depend_on_the_pieces() {
        let whole = render(&[DOCUMENT], 40);
        for size in [1, 2, 3, 7, 16, 50, 200] {
            let characters: Vec<char> = DOCUMENT.chars().collect();
            let pieces: Vec<String> = characters.chunks(size).map(|chunk| chunk.iter().collect()).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            assert_eq!(render(&pieces, 40), whole, "pieces of {size}");
        }
    }

    #[test]
    fn rows_do_not_depend_on_the_words_between_frames() {
        let long = "aaaa bbbb cccc dddd eeee ffff gggg hhhh iiii jjjj kkkk llll mmmm nnnn";
        for start in
            ["One.", "# One", "1. One", "- One", "> One", "One\ntwo", "`one`", "**One**", "| a |\n|---|\n| 1 |"]
        {
            for between in ["\n\n", "\n \n", "\n\n\n", "\n"] {
                for next in [long.to_owned(), format!("2. {long}"), format!("- {long}"), format!("{long}\n\n{long}")] {
                    let text = format!("{start}{between}{next}");
                    let pieces: Vec<&str> = text.split_inclusive(' ').collect();
                    let glued: Vec<String> = text.split(' ').map(|word| format!("{word} ")).collect();
                    let glued: Vec<&str> = glued.iter().map(String::as_str).collect();
                    let whole = render(&[&text], 20);
                    assert_eq!(render(&pieces, 20), whole, "{text:?}");
                    assert_eq!(render(&glued, 20), whole, "{text:?}");
                }
            }
        }
    }

    #[test]
    fn rows_are_emitted_before_the_block_ends() {
        let mut stream = MarkdownStream::default();
        stream.push("one two three four five six seven");
        let rows: Vec<String> = stream.take_rows(15).iter().map(|row| row.text().to_owned()).collect();
        assert_eq!(plain(&rows), ["one two three", "four five six"]);
        let mut stream = MarkdownStream::default();
        stream.push("```\nfirst\nsecond\nthi");
        assert_eq!(stream.take_rows(15).len(), 2);
        assert_eq!(stream.finish(15).len(), 1);
    }

    #[test]
    fn terminal_controls_are_replaced() {
        for text in ["a \u{1b}[31mred", "`\u{1b}]52;c;aGk=\u{7}`", "```\n\u{202e}x\n```", "[x](\u{1b}[2J)"] {
            for row in plain(&render(&[text], 40)) {
                let is_safe = |c: char| !c.is_control() && c != '\u{202e}';
                assert!(row.chars().all(is_safe), "{row:?}");
            }
        }
    }
}
