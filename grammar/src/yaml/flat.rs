//! A fast reader of flat YAML mappings whose values are plain texts, the usual form of front matter. Its result equals
//! the result of the YAML library. Every other document is left to the library.

use super::node::SpanConverter;
use crate::data::{Entry, Kind, Node};
use crate::span::Spanned;

/// Maximum number of entries of a mapping. The bound limits the time of the search for repeated keys, which compares
/// each key with all keys before it.
const MAX_ENTRIES: usize = 32;

/// Words in lower case that YAML, or one of its older versions, reads as a value other than text.
const RESOLVED_WORDS: [&str; 13] =
    ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "inf", "infinity", "nan", "undefined"];

/// Parses a document of `key: value` lines whose values are plain or quoted texts on one line. `None` for any other
/// document, also for an invalid one.
pub(super) fn parse_flat_mapping(spans: &SpanConverter<'_>) -> Option<Node> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut start = 0;
    for line in spans.text.split_inclusive('\n') {
        let content = line.strip_suffix('\n').unwrap_or(line);
        let (key, written) = content.split_once(": ")?;
        if !is_plain_key(key) || entries.len() == MAX_ENTRIES || entries.iter().any(|entry| entry.key.node == key) {
            return None;
        }
        let from = start + key.len() + 2;
        let (value, from) = match quoted_text(written) {
            Some(inside) => (inside, from + 1),
            None => (written, from),
        };
        if value.len() == written.len() && !is_plain_text(value) {
            return None;
        }
        let value = Node::new(Kind::String(value.to_owned()), spans.span(from, from + value.len()));
        entries.push(Entry { key: Spanned::new(key.to_owned(), spans.span(start, start + key.len())), value });
        start += line.len();
    }
    let end = entries.last()?.value.span.range().end - spans.base;
    Some(Node::new(Kind::Map(entries), spans.span(0, end)))
}

fn is_plain_key(key: &str) -> bool {
    let is_key_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    key.bytes().next().is_some_and(|first| first.is_ascii_alphabetic())
        && key.bytes().all(is_key_byte)
        && !is_resolved_word(key)
}

/// Returns the text between double quotes; `None` if the text is not quoted, is empty or contains an escape.
fn quoted_text(written: &str) -> Option<&str> {
    let inside = written.strip_prefix('"')?.strip_suffix('"')?;
    let is_literal = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    (!inside.is_empty() && inside.bytes().all(is_literal)).then_some(inside)
}

/// Returns true for a text that every version of YAML reads as itself. Such a text starts with a letter, contains only
/// characters without a meaning inside a plain text, and is not a word such as `yes`.
fn is_plain_text(text: &str) -> bool {
    let is_plain_byte = |byte: u8| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b' ' | b'_' | b'-' | b'.' | b',' | b';' | b'/' | b'(' | b')' | b'\'' | b'!' | b'?')
    };
    text.bytes().next().is_some_and(|first| first.is_ascii_alphabetic())
        && text.bytes().all(is_plain_byte)
        && !text.ends_with(' ')
        && !is_resolved_word(text)
}

pub(super) fn is_resolved_word(text: &str) -> bool {
    RESOLVED_WORDS.iter().any(|word| word.eq_ignore_ascii_case(text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{SpanConverter, parse_with_library};
    use super::parse_flat_mapping;
    use crate::span::SourceId;

    /// Parses with both readers. Returns true if the reader of flat mappings read the document.
    fn agree(text: &str, base: usize) -> bool {
        let spans = SpanConverter { source: SourceId(3), text, base };
        let Some(flat) = parse_flat_mapping(&spans) else { return false };
        let library = parse_with_library(&spans);
        assert_eq!((flat, Vec::new()), (library.tree, library.errors), "{text:?}");
        true
    }

    #[test]
    fn front_matter_of_plain_texts_is_read_without_the_library() {
        for text in [
            "name: note1\ndescription: Background for task 1.\ncategory: area1\n",
            "title: Don't stop, (never); why? go/on!\nversion: \"1.0.0: # [x]\"",
            "a-b_c9: x  y\n",
        ] {
            assert!(agree(text, 7), "{text:?}");
        }
        for text in [
            "",
            "\n",
            "a",
            "a:\n",
            "a:  b\n",
            "a: b \n",
            "a: 1\n",
            "a: true\n",
            "a: Null\n",
            "a: b: c\n",
            "a: b #c\n",
            "a: [b]\n",
            "a: *b\n",
            "a: \"b\\n\"\n",
            "a: \"\"\n",
            "a: b\na: c\n",
            "null: b\n",
            "a: b\n\nc: d\n",
            "a: b\r\n",
            " a: b\n",
            "a: é\n",
            "a: b\n---\n",
            "a: |\n  b\n",
            "a: b\n  c\n",
        ] {
            assert!(!agree(text, 7), "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn both_readers_agree_on_documents_like_front_matter(
            lines in prop::collection::vec(("[a-zA-Z][a-z0-9_-]{0,5}|[a-z]{1,4}|[a-zA-Z_<~.1-][a-zA-Z0-9_.-]{0,5}", "(: |: |: |:|:  | : )", "[ -~é]{0,3}|[a-zA-Z][ -~]{0,12}|\"[ -~]{0,9}\"|[yYnN]|[a-z]{2,4}|[eE][0-9]{1,3}|\\.?[iInN][nNaA][fFnN]"), 0..4),
            end in "(\n|)",
            base in 0_usize..20,
        ) {
            let lines: Vec<String> = lines.into_iter().map(|(key, mark, value)| format!("{key}{mark}{value}")).collect();
            agree(&format!("{}{end}", lines.join("\n")), base);
        }
    }
}
