//! A fast reader of YAML documents in the usual form of settings, tools and front matter: nested mappings and lists by
//! indentation, values on one line, and folded texts. Its result equals the result of the YAML library. The reader
//! accepts only characters and places whose meaning no reader of YAML disputes. Every other document, also an invalid
//! one, is left to the reader of events.

use super::events::{has_unique_keys, is_key_text, plain_value};
use super::node::SpanConverter;
use crate::data::{Entry, Kind, Node};
use crate::span::Spanned;

/// Maximum nesting depth. Deeper documents are left to the other readers.
const MAX_DEPTH: usize = 24;
/// Maximum bytes of a document, which also bounds its values.
const MAX_BYTES: usize = 256 * 1024;
/// Maximum bytes of a key. YAML limits keys on one line to 1,024 characters.
const MAX_KEY_BYTES: usize = 128;

/// Reads one document whose root is a mapping or a list; `None` if the document has an error or a part that this reader
/// does not read.
pub(super) fn read_block_document(spans: &SpanConverter<'_>) -> Option<Node> {
    if spans.text.len() > MAX_BYTES || !has_plain_chars(spans.text) {
        return None;
    }
    let mut reader = BlockReader { spans, next: 0 };
    let first = reader.take_line(reader.peek_line()?);
    let tree = reader.block(first, 0)?;
    reader.peek_line().is_none().then_some(tree)
}

/// Returns true for a text of letters, the characters and punctuation of ASCII, and general punctuation, without
/// controls and without spaces other than ` ` and the line break.
fn has_plain_chars(text: &str) -> bool {
    // The fold has no branch, so the compiler can compare many bytes at once.
    let is_ascii = text.bytes().fold(true, |all, byte| all & matches!(byte, b' '..=b'~' | b'\n'));
    let is_plain = |char: char| {
        matches!(char, ' '..='~' | '\n' | '\u{2010}'..='\u{2027}') || (!char.is_ascii() && char.is_alphabetic())
    };
    is_ascii || text.chars().all(is_plain)
}

/// The contents of a line from a column to its end.
#[derive(Clone, Copy)]
struct Line<'t> {
    /// The offset of the contents in the document.
    offset: usize,
    column: usize,
    text: &'t str,
}

/// The start of a list's span, as the YAML library reports it.
#[derive(Clone, Copy)]
enum ListStart {
    FirstDash,
    /// The list has the indentation of the mapping that contains it.
    FirstItem,
}

struct BlockReader<'t, 's> {
    spans: &'s SpanConverter<'t>,
    /// The offset of the next line.
    next: usize,
}

impl<'t> BlockReader<'t, '_> {
    /// Returns the next line that is neither empty nor a comment.
    fn peek_line(&self) -> Option<Line<'t>> {
        let mut start = self.next;
        loop {
            let line = self.line_at(start)?;
            if !is_blank_or_comment(line.text) {
                return Some(line);
            }
            start = line.offset + line.text.len() + 1;
        }
    }

    /// Returns the line that starts at an offset; `None` at the end of the document.
    fn line_at(&self, start: usize) -> Option<Line<'t>> {
        let rest = self.spans.text.get(start..).filter(|rest| !rest.is_empty())?;
        let line = rest.split('\n').next()?;
        let text = line.trim_start_matches(' ');
        let column = line.len() - text.len();
        Some(Line { offset: start + column, column, text })
    }

    /// Continues after a line.
    fn take_line(&mut self, line: Line<'t>) -> Line<'t> {
        self.next = line.offset + line.text.len() + 1;
        line
    }

    /// Reads the mapping or the list whose first line has been taken.
    fn block(&mut self, first: Line<'t>, depth: usize) -> Option<Node> {
        if depth == MAX_DEPTH {
            None
        } else if is_item(first.text) {
            self.list(first, depth, ListStart::FirstDash)
        } else {
            self.mapping(first, depth)
        }
    }

    fn list(&mut self, first: Line<'t>, depth: usize, start: ListStart) -> Option<Node> {
        let mut items = Vec::new();
        let (mut line, mut from) = (first, None);
        loop {
            let text = line.text.strip_prefix('-')?.trim_start_matches(' ');
            let skipped = line.text.len() - text.len();
            let item = Line { offset: line.offset + skipped, column: line.column + skipped, text };
            from.get_or_insert(match start {
                ListStart::FirstDash => first.offset,
                ListStart::FirstItem => item.offset,
            });
            items.push(if split_key(text).is_some() && depth + 1 < MAX_DEPTH {
                self.mapping(item, depth + 1)?
            } else {
                self.inline_value(item, depth + 1)?
            });
            match self.peek_line() {
                Some(next) if next.column > first.column => return None,
                Some(next) if next.column == first.column && is_item(next.text) => line = self.take_line(next),
                Some(_) | None => break,
            }
        }
        from.map(|from| self.spans.list_node(items, from, from))
    }

    fn mapping(&mut self, first: Line<'t>, depth: usize) -> Option<Node> {
        let mut entries = Vec::new();
        let mut line = first;
        loop {
            let (key, after) = split_key(line.text)?;
            let key_span = self.spans.span(line.offset, line.offset + key.len());
            let text = after.trim_start_matches(' ');
            let value = Line { offset: line.offset + line.text.len() - text.len(), column: first.column, text };
            let value = self.mapping_value(value, depth)?;
            entries.push(Entry { key: Spanned::new(key.to_owned(), key_span), value });
            match self.peek_line() {
                Some(next) if next.column > first.column => return None,
                Some(next) if next.column == first.column => line = self.take_line(next),
                Some(_) | None => break,
            }
        }
        has_unique_keys(&entries).then(|| self.spans.map_node(entries, first.offset, first.offset))
    }

    /// Reads the value of a key. The column of `rest` is that of the mapping.
    fn mapping_value(&mut self, rest: Line<'t>, depth: usize) -> Option<Node> {
        if rest.text.starts_with('>') {
            return self.folded_text(rest);
        }
        if !is_blank_or_comment(rest.text) {
            return self.inline_value(rest, depth + 1);
        }
        let next = self.peek_line()?;
        let is_nested = next.column > rest.column || (next.column == rest.column && is_item(next.text));
        if !is_nested {
            return None;
        }
        let first = self.take_line(next);
        if next.column > rest.column {
            self.block(first, depth + 1)
        } else if depth + 1 < MAX_DEPTH {
            self.list(first, depth + 1, ListStart::FirstItem)
        } else {
            None
        }
    }

    /// Reads a folded text without a line break at its end. Each of its lines has the same indentation, and none is
    /// empty.
    fn folded_text(&mut self, header: Line<'t>) -> Option<Node> {
        if header.text != ">-" {
            return None;
        }
        let mut text = String::new();
        let (mut start, mut column) = (None, None);
        while let Some(line) = self.line_at(self.next) {
            if line.text.is_empty() || line.text.ends_with(' ') {
                return None;
            }
            match column {
                None if line.column > header.column => column = Some(line.column),
                Some(column) if line.column == column => text.push(' '),
                Some(column) if line.column < column => break,
                None | Some(_) => return None,
            }
            text.push_str(line.text);
            start.get_or_insert(line.offset);
            self.take_line(line);
        }
        // The library reports the start of the next line's contents as the end of the text.
        let end = self.line_at(self.next).map_or(self.spans.text.len(), |line| line.offset);
        Some(self.spans.string_node(text, start?, end))
    }

    /// Reads a value that ends on its line.
    fn inline_value(&self, value: Line<'t>, depth: usize) -> Option<Node> {
        let mut reader = FlowReader { spans: self.spans, text: value.text, offset: value.offset, at: 0 };
        match value.text.bytes().next()? {
            b'"' | b'\'' | b'[' | b'{' => {
                let node = reader.value(depth)?;
                let rest = reader.rest();
                let is_end = rest.is_empty() || (rest.starts_with(' ') && is_blank_or_comment(rest.trim_start()));
                is_end.then_some(node)
            }
            _ => {
                let text = value.text.split(" #").next()?.trim_end_matches(' ');
                reader.plain_text(text)
            }
        }
    }
}

/// A reader of a value on one line, such as `[a, {b: "c"}]`.
struct FlowReader<'t, 's> {
    spans: &'s SpanConverter<'t>,
    /// The value and the rest of its line.
    text: &'t str,
    /// The offset of `text` in the document.
    offset: usize,
    /// The position in `text`.
    at: usize,
}

impl<'t> FlowReader<'t, '_> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_spaces(&mut self) {
        self.at = self.text.len() - self.rest().trim_start_matches(' ').len();
    }

    /// Skips a byte; `None` if the next byte is another one.
    fn skip(&mut self, byte: u8) -> Option<()> {
        (self.rest().bytes().next()? == byte).then(|| self.at += 1)
    }

    /// Reads the value at the position, which is quoted, a list, a mapping, or a plain text inside one of these.
    fn value(&mut self, depth: usize) -> Option<Node> {
        match self.rest().bytes().next()? {
            quote @ (b'"' | b'\'') => self.quoted(quote),
            b'[' | b'{' if depth >= MAX_DEPTH => None,
            b'[' => self.list(depth),
            b'{' => self.mapping(depth),
            _ => {
                let rest = self.rest();
                let text = rest.get(..rest.find([',', '[', ']', '{', '}'])?)?.trim_end_matches(' ');
                let is_safe = |(at, _): (usize, &str)| {
                    text.as_bytes().get(at + 1).is_some_and(|next| next.is_ascii_alphanumeric() || *next == b'/')
                };
                if !text.match_indices(':').all(is_safe) || text.contains(" #") {
                    return None;
                }
                let node = self.plain_text(text);
                self.at += text.len();
                node
            }
        }
    }

    fn quoted(&mut self, quote: u8) -> Option<Node> {
        let start = self.at;
        let inside = self.rest().get(1..)?.split(char::from(quote)).next()?;
        if quote == b'"' && inside.contains('\\') {
            return None;
        }
        self.at += 1 + inside.len();
        self.skip(quote)?;
        // Two single quotes are an escaped one.
        if self.rest().starts_with(char::from(quote)) {
            return None;
        }
        Some(self.spans.string_node(inside.to_owned(), self.offset + start, self.offset + self.at))
    }

    fn list(&mut self, depth: usize) -> Option<Node> {
        let start = self.offset + self.at;
        self.skip(b'[')?;
        self.skip_spaces();
        let mut items = Vec::new();
        while self.skip(b']').is_none() {
            if !items.is_empty() {
                self.skip(b',')?;
                self.skip_spaces();
            }
            items.push(self.value(depth + 1)?);
            self.skip_spaces();
        }
        Some(self.spans.list_node(items, start, start + 1))
    }

    fn mapping(&mut self, depth: usize) -> Option<Node> {
        let start = self.offset + self.at;
        self.skip(b'{')?;
        self.skip_spaces();
        let mut entries = Vec::new();
        while self.skip(b'}').is_none() {
            if !entries.is_empty() {
                self.skip(b',')?;
                self.skip_spaces();
            }
            let (key, _) = split_key(self.rest())?;
            let from = self.offset + self.at;
            let key_span = self.spans.span(from, from + key.len());
            self.at += key.len() + 1;
            self.skip(b' ')?;
            self.skip_spaces();
            let value = self.value(depth + 1)?;
            entries.push(Entry { key: Spanned::new(key.to_owned(), key_span), value });
            self.skip_spaces();
        }
        has_unique_keys(&entries).then(|| self.spans.map_node(entries, start, start + 1))
    }

    /// Returns the value of an unquoted text at the position. `None` if a character of the text could have a
    /// meaning, or if the versions of YAML differ about the type of the value.
    fn plain_text(&self, text: &str) -> Option<Node> {
        let is_start =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'/' | b'(' | b'$' | b'^' | b'~');
        if !text.bytes().next().is_some_and(is_start) || text.contains(": ") || text.ends_with(':') {
            return None;
        }
        let (start, end) = (self.offset + self.at, self.offset + self.at + text.len());
        let kind = plain_value(text)?;
        Some(if let Kind::String(text) = kind {
            self.spans.string_node(text, start, end)
        } else {
            Node::new(kind, self.spans.span(start, end))
        })
    }
}

/// Splits a text at the colon after its key. `None` if the text does not start with a key of plain characters that is
/// certainly a text.
fn split_key(text: &str) -> Option<(&str, &str)> {
    let is_key_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/' | b'$');
    let length = text.bytes().take(MAX_KEY_BYTES).take_while(|byte| is_key_byte(*byte)).count();
    let (key, rest) = text.split_at_checked(length)?;
    let after = rest.strip_prefix(':')?;
    let starts_key = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
    let is_key = key.bytes().next().is_some_and(starts_key) && is_key_text(key);
    (is_key && (after.is_empty() || after.starts_with(' '))).then_some((key, after))
}

/// Returns true if a text is the start of a list's item.
fn is_item(text: &str) -> bool {
    text.starts_with("- ")
}

fn is_blank_or_comment(text: &str) -> bool {
    text.is_empty() || text.starts_with('#')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::events::read_document;
    use super::super::{SpanConverter, parse_with_library};
    use super::read_block_document;
    use crate::span::SourceId;

    /// Reads with all readers, and compares the results. Returns true if this reader read the document.
    fn agree(text: &str, base: usize) -> bool {
        let spans = SpanConverter { source: SourceId(3), text, base };
        let Some(tree) = read_block_document(&spans) else { return false };
        assert_eq!(Some(&tree), read_document(&spans).as_ref(), "{text:?}");
        let library = parse_with_library(&spans);
        assert_eq!((tree, Vec::new()), (library.tree, library.errors), "{text:?}");
        true
    }

    #[test]
    fn block_reader_reads_settings_tools_and_front_matter() {
        for text in [
            "name: note1\ndescription: Background for task 1.\ncategory: area1\n",
            "title: Don't stop, (never); why? go/on!\nversion: \"1.0.0: # [x]\"",
            "# Settings.\nsigning:\n  require: shared   # none | shared\n\ntimeout_seconds: 3600\n",
            "a: [1, 2.5, x, {b: c, d: 'e'}]\nb:\n- c: ~\n  d: null\n- true\n",
            "a:\n  - b: c\n    d:\n    - e\n    - f:  g  \n  # end\nh: true # i\n",
            "patterns:\n  - id: one\n    match: >-\n      a # b\n      || c: d\n  - id: two\n429: wait\n",
            "text: >-\n    last\n",
            "- a\n- b: [ ]\n  c: { }\n- \"\"\n- ''\n",
            "  a: b\n  c: https://host/path#part (d)\n",
            "path: { url: https://host/path, version: 1.0.0 }\n",
            "a: b é # …\nc: \"é…\"\nd: [é, 'x–y']\n".replace("[é, ", "[").as_str(),
        ] {
            assert!(agree(text, 7), "{text:?}");
        }
    }

    #[test]
    fn documents_with_other_parts_are_left_to_the_other_readers() {
        for text in [
            "",
            "\n",
            "a",
            "a:\n",
            "a: Null\n",
            "a: yes\n",
            "a: 007\n",
            "a: b: c\n",
            "a: b:\n",
            "a: *b\n",
            "a: &b c\n",
            "a: !!str b\n",
            "a: \"b\\n\"\n",
            "a: 'b''c'\n",
            "a: \"b\" c\n",
            "a: \"b\"#c\n",
            "a: b\na: c\n",
            "a: b\r\n",
            "a: b\tc\n",
            "é: b\n",
            "a: é b\n",
            "a: b \u{a0}c\n",
            "a: b\u{85}c\n",
            "\u{feff}a: b\n",
            "a: b\n---\n",
            "---\na: b\n",
            "a: b\n  c\n",
            "a:\n  b\n",
            "a:\n    b: c\n  d: e\n",
            "a: >-\n  b\n\nc: d\n",
            "a: >-\n  b\n   c\n",
            "a: >-\n  b \n",
            "a: >\n  b\n",
            "a: |\n  b\n",
            "a: [b\n",
            "a: [b,]\n",
            "a: [b: c]\n",
            "a: {b: c, b: d}\n",
            "a: {b}\n",
            "- - a\n",
            "-\n  a\n",
            "- a\nb: c\n",
        ] {
            assert!(!agree(text, 7), "{text:?}");
        }
    }

    #[test]
    fn deep_documents_are_left_to_the_other_readers() {
        let flow = |levels: usize| format!("a: {}{}\n", "[".repeat(levels), "]".repeat(levels));
        let block = |levels: usize| (0..levels).map(|level| " ".repeat(level) + "a:\n").collect::<String>();
        assert!(agree(&flow(super::MAX_DEPTH - 1), 0) && !agree(&flow(super::MAX_DEPTH), 0));
        let nested = |levels: usize| format!("{}{}a: b\n", block(levels), " ".repeat(levels));
        assert!(agree(&nested(super::MAX_DEPTH - 1), 0) && !agree(&nested(super::MAX_DEPTH), 0));
    }

    #[test]
    fn standard_library_is_read_by_the_block_reader() {
        let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../stdlib/.ai"))];
        let (mut count, mut left) = (0, Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "yaml") {
                    count += 1;
                    if !agree(&std::fs::read_to_string(&path).unwrap(), 0) {
                        left.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
                    }
                }
            }
        }
        left.sort();
        // In these files, a comma in a flow mapping ends an unquoted description, and the rest of it is a key without a
        // value.
        assert_eq!(left, ["budget_ledger_schema.yaml", "events.yaml"]);
        assert!(count >= 30, "{count}");
    }

    /// Returns a strategy for values that follow a key or the dash of an item.
    fn value() -> impl Strategy<Value = String> {
        let inline = "[a-z]{1,3}|[a-zA-Z(/$^~][ -~é…]{0,8}|[ -~é]{0,4}|[0-9]{1,4}|[0-9.]{1,6}|true|null|~|\"[ -~é]{0,6}\"|'[ -~é]{0,6}'|[yYnN]|\\[[a-zé, ]{0,5}\\]|\\[[ -~]{0,6}\\]|\\{[a-z]: [ -~]{0,4}\\}|\\{[a-z]: [a-z]{1,2}, ?[a-z]: \"[a-z: ]{0,3}\" ?\\}";
        let end = "| |  # [a-z: ]{0,3}|#| #";
        let inline = (inline, end).prop_map(|(text, end): (String, String)| format!("{text}{end}"));
        let folded = (" {0,3}", prop::collection::vec(" ?[ -~é]{0,6}", 1..3)).prop_map(|(indent, lines)| {
            let lines: Vec<String> = lines.into_iter().map(|line: String| format!("\n {indent}{line}")).collect();
            format!(">-{}", lines.concat())
        });
        prop_oneof![4 => inline, 1 => folded].prop_recursive(4, 24, 4, |inner| {
            let step = prop::sample::select(vec!["", " ", "  ", "   "]);
            let break_text = prop::sample::select(vec!["", " ", " # x", "\n", "\n# x: y", "\n   # x"]);
            prop_oneof![
                (prop::collection::vec((key(), inner.clone()), 1..4), step.clone(), break_text.clone()).prop_map(
                    |(entries, step, end)| {
                        let entry = |(key, value): (String, String)| {
                            format!("\n{step}{key}: {}", value.replace('\n', &format!("\n{step}")))
                        };
                        let lines: Vec<String> = entries.into_iter().map(entry).collect();
                        format!("{end}{}", lines.concat())
                    }
                ),
                (prop::collection::vec(inner.clone(), 1..4), step, break_text).prop_map(|(items, step, end)| {
                    let item = |item: String| format!("\n{step}- {}", item.replace('\n', &format!("\n{step}  ")));
                    let lines: Vec<String> = items.into_iter().map(item).collect();
                    format!("{end}{}", lines.concat())
                }),
                // A mapping that starts on the line of its item.
                prop::collection::vec((key(), inner), 1..3).prop_map(|entries| {
                    let entries: Vec<String> =
                        entries.into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
                    entries.join("\n")
                }),
            ]
        })
    }

    fn key() -> impl Strategy<Value = String> {
        "[a-z]{1,3}|[a-z]{1,3}|[a-zA-Z0-9_./$-]{1,4}|[a-zA-Z_<~.1-][a-zA-Z0-9_.-]{0,5}|[ -~]{1,3}"
            .prop_map(|text: String| text)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn block_reader_agrees_with_the_library_on_documents_like_settings(
            entries in prop::collection::vec((key(), value()), 1..4),
            start in "(# note\n|\n|  # note\n|)",
            base in 0_usize..20,
        ) {
            let lines: Vec<String> = entries.into_iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
            agree(&format!("{start}{}", lines.concat()), base);
        }

        #[test]
        fn block_reader_agrees_with_the_library_on_documents_like_front_matter(
            lines in prop::collection::vec(("[a-zA-Z][a-z0-9_-]{0,5}|[a-z]{1,4}|[a-zA-Z_<~.1-][a-zA-Z0-9_.-]{0,5}", "(: |: |: |:|:  | : )", "[ -~é]{0,3}|[a-zA-Z][ -~]{0,12}|\"[ -~]{0,9}\"|[yYnN]|[a-z]{2,4}|[eE][0-9]{1,3}|\\.?[iInN][nNaA][fFnN]"), 0..4),
            end in "(\n|)",
            base in 0_usize..20,
        ) {
            let lines: Vec<String> = lines.into_iter().map(|(key, mark, value)| format!("{key}{mark}{value}")).collect();
            agree(&format!("{}{end}", lines.join("\n")), base);
        }

        #[test]
        fn block_reader_agrees_with_the_library_on_any_text(text in "[a-c\"':,{}#\\[\\]>~1. \n-]{0,24}|a: [a-c\"':,{}#\\[\\]~1. \n-]{0,16}|a:\n [a-c:# \n-]{0,16}") {
            agree(&text, 3);
        }
    }
}
