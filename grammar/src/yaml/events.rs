//! A fast reader of documents without anchors, aliases and tags. The reader builds the tree directly from the events of
//! the parser that the YAML library uses, so both read the same structure. The reader handles only values whose type is
//! the same in every version of YAML. The library reads every other document, including invalid documents.

use std::collections::BTreeSet;

use granit_parser::{Event, Parser, ScalarStyle, StrInput};
use serde_json::Number;

use super::flat::is_resolved_word;
use super::node::SpanConverter;
use crate::data::{Entry, Kind, Node};
use crate::span::Spanned;

/// Maximum nesting depth. Deeper documents are left to the library, which limits their depth.
const MAX_DEPTH: usize = 24;
/// Maximum number of events. Larger documents are left to the library, which limits the number of their values.
const MAX_EVENTS: usize = 20_000;
/// Maximum number of digits of a number. Longer numbers are left to the library, which reports numbers that are out of
/// range.
const MAX_DIGITS: usize = 15;

/// Reads one document; `None` if the document has an error or a part that only the library reads.
pub(super) fn read_document(spans: &SpanConverter<'_>) -> Option<Node> {
    let options = granit_parser::options! { emit_comments: false };
    let parser = Parser::new_from_str_with_options(spans.text, options);
    let mut reader = YamlEventReader { parser, spans, event_count: 0 };
    let is_start =
        matches!(reader.next()?.0, Event::StreamStart) && matches!(reader.next()?.0, Event::DocumentStart(_, None));
    if !is_start {
        return None;
    }
    let first = reader.next()?;
    let tree = reader.node(first, 0)?;
    let is_end = matches!(reader.next()?.0, Event::DocumentEnd) && matches!(reader.next()?.0, Event::StreamEnd);
    is_end.then_some(tree)
}

/// An event and its range of bytes in the document.
type LocatedEvent<'t> = (Event<'t>, usize, usize);

struct YamlEventReader<'t, 's> {
    parser: Parser<'t, StrInput<'t>>,
    spans: &'s SpanConverter<'t>,
    event_count: usize,
}

impl<'t> YamlEventReader<'t, '_> {
    fn next(&mut self) -> Option<LocatedEvent<'t>> {
        self.event_count += 1;
        let (event, span) = self.parser.next().filter(|_| self.event_count <= MAX_EVENTS)?.ok()?;
        let length = self.spans.text.len();
        Some((event, span.start.byte_offset()?.min(length), span.end.byte_offset()?.min(length)))
    }

    /// Reads the value that starts with this event.
    fn node(&mut self, (event, start, end): LocatedEvent<'t>, depth: usize) -> Option<Node> {
        if let Event::Scalar(text, style, 0, None) = event {
            let is_plain = style == ScalarStyle::Plain;
            let kind = if is_plain { plain_value(&text)? } else { Kind::String(text.into_owned()) };
            return Some(if let Kind::String(text) = kind {
                self.spans.string_node(text, start, end)
            } else {
                Node::new(kind, self.spans.span(start, end))
            });
        }
        if depth == MAX_DEPTH {
            return None;
        }
        if let Event::SequenceStart(_, 0, None) = event {
            let mut items = Vec::new();
            loop {
                match self.next()? {
                    (Event::SequenceEnd, ..) => return Some(self.spans.list_node(items, start, end)),
                    item => items.push(self.node(item, depth + 1)?),
                }
            }
        }
        let Event::MappingStart(_, 0, None) = event else { return None };
        let mut entries = Vec::new();
        loop {
            match self.next()? {
                (Event::MappingEnd, ..) => break,
                (event, from, to) => {
                    let key = Spanned::new(key_text(event)?, self.spans.span(from, to));
                    let value = self.next()?;
                    entries.push(Entry { key, value: self.node(value, depth + 1)? });
                }
            }
        }
        has_unique_keys(&entries).then(|| self.spans.map_node(entries, start, end))
    }
}

/// Returns the text of a key; `None` for any key that is not certainly a text.
fn key_text(event: Event<'_>) -> Option<String> {
    let Event::Scalar(text, style, 0, None) = event else { return None };
    let is_text = match style {
        ScalarStyle::Plain => is_plain_text(&text) || is_whole_number(&text),
        ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => text != "<<",
        ScalarStyle::Literal | ScalarStyle::Folded => false,
    };
    is_text.then(|| text.into_owned())
}

fn has_unique_keys(entries: &[Entry]) -> bool {
    let mut seen = BTreeSet::new();
    entries.iter().all(|entry| seen.insert(entry.key.node.as_str()))
}

/// Returns the value of a plain scalar; `None` if the versions of YAML differ about its type.
fn plain_value(text: &str) -> Option<Kind> {
    match text {
        "true" => Some(Kind::Bool(true)),
        "false" => Some(Kind::Bool(false)),
        "null" | "~" => Some(Kind::Null),
        _ if is_plain_text(text) || is_version(text) => Some(Kind::String(text.to_owned())),
        _ if is_whole_number(text) => Some(Kind::Number(text.parse::<u64>().ok()?.into())),
        _ if is_decimal_number(text) => Some(Kind::Number(Number::from_f64(text.parse().ok()?)?)),
        _ => None,
    }
}

/// Returns true for a text that is no number, and no word such as `yes`.
fn is_plain_text(text: &str) -> bool {
    let starts_number_or_operator =
        |byte: u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'~' | b'<' | b'=');
    text.bytes().next().is_some_and(|first| !starts_number_or_operator(first)) && !is_resolved_word(text)
}

fn is_whole_number(text: &str) -> bool {
    let is_digits = !text.is_empty() && text.len() <= MAX_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits && (text == "0" || !text.starts_with('0'))
}

/// Returns true for a number such as `0.25`.
fn is_decimal_number(text: &str) -> bool {
    let Some((whole, fraction)) = text.split_once('.') else { return false };
    is_whole_number(whole)
        && !fraction.is_empty()
        && text.len() <= MAX_DIGITS
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true for a text such as `1.0.0`, which is no number because of its second dot.
fn is_version(text: &str) -> bool {
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split('.').count() > 2 && text.split('.').all(is_digits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{SpanConverter, parse_with_library};
    use super::read_document;
    use crate::span::SourceId;

    /// Reads with both readers, and compares the results. Returns true if the reader of events read the document.
    fn agree(text: &str, base: usize) -> bool {
        let spans = SpanConverter { source: SourceId(3), text, base };
        let Some(tree) = read_document(&spans) else { return false };
        let library = parse_with_library(&spans);
        assert_eq!((tree, Vec::new()), (library.tree, library.errors), "{text:?}");
        true
    }

    #[test]
    fn settings_and_tools_are_read_without_the_library() {
        for text in [
            "# Settings.\nsigning:\n  require: shared   # none | shared\ntimeout_seconds: 3600\n",
            "a: [1, 2.5, x, {b: c, \"d\": 'e'}]\nb:\n- c: ~\n  d: null\n-   - true\n    - \"x\\ny\"\n",
            "text: |\n  one\n  two\nfolded: >-\n  one\n  two\n\n429: wait\n",
            "---\nplain: several\n  lines of text\nempty: {}\nnone: []\n...\n",
            "path: /usr/bin # é\n\"é\": ü\nglob: '*.rs'\n",
            "a:\nb: [c, d: e]\n",
            "version: 1.0.0\n",
            "just a text",
        ] {
            assert!(agree(text, 7), "{text:?}");
        }
    }

    #[test]
    fn documents_with_types_that_versions_disagree_on_are_left_to_the_library() {
        for text in [
            "",
            "a: yes\n",
            "a: 0x1f\n",
            "a: 007\n",
            "a: 1_000\n",
            "a: 1e3\n",
            "a: .5\n",
            "a: -1\n",
            "a: 1234567890123456\n",
            "a: &x b\n",
            "a: &x b\nc: *x\n",
            "a: !!str b\n",
            "<<: {a: b}\n",
            "a: b\na: c\n",
            "? [a]\n: b\n",
            "yes: b\n",
            "a: b\n--- \nc: d\n",
            "%YAML 1.2\n---\na: b\n",
            "a: [b\n",
        ] {
            assert!(!agree(text, 7), "{text:?}");
        }
    }

    #[test]
    fn deep_and_large_documents_are_left_to_the_library() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(agree(&deep(super::MAX_DEPTH), 0) && !agree(&deep(super::MAX_DEPTH + 1), 0));
        assert!(!agree(&"- a\n".repeat(super::MAX_EVENTS), 0));
    }

    #[test]
    fn standard_library_is_read_without_the_library() {
        let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../stdlib/.ai"))];
        let mut count = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "yaml") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    assert!(agree(&text, 0), "{}", path.display());
                    count += 1;
                }
            }
        }
        assert!(count >= 30, "{count}");
    }

    /// Returns a strategy for values, in the flow form or in the block form.
    fn value() -> impl Strategy<Value = String> {
        let scalar = "[a-zA-Z][ -~]{0,8}|[ -~é]{0,5}|[0-9]{1,4}|-?[0-9]{1,3}\\.?[0-9]{0,3}|[0-9.]{1,6}|true|null|~|\"[ -~]{0,6}\"|'[ -~]{0,6}'|[yYnN]|[|>][-+]?\n {2,6}[a-z]{1,3}\n {2,6}[ -~]{0,4}";
        let scalar = scalar.prop_map(|text: String| text);
        scalar.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(", "))),
                prop::collection::vec((key(), inner.clone()), 0..4).prop_map(|entries| {
                    let entries: Vec<String> =
                        entries.into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
                    format!("{{{}}}", entries.join(","))
                }),
                prop::collection::vec((key(), inner.clone()), 1..4).prop_map(|entries| {
                    let entry = |(key, value): (String, String)| format!("\n  {key}: {}", value.replace('\n', "\n  "));
                    entries.into_iter().map(entry).collect()
                }),
                prop::collection::vec(inner, 1..4).prop_map(|items| {
                    let item = |item: String| format!("\n  - {}", item.replace('\n', "\n    "));
                    items.into_iter().map(item).collect()
                }),
            ]
        })
    }

    fn key() -> impl Strategy<Value = String> {
        "[a-z]{1,3}|[a-zA-Z0-9_./-]{1,4}|\"[ -~]{0,3}\"|'[a-z]{0,2}'|[ -~]{1,3}".prop_map(|text: String| text)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn reader_of_events_agrees_with_the_library_on_nested_documents(
            entries in prop::collection::vec((key(), value(), "( # note|)"), 1..4),
            start in "(# note\n|---\n|)",
            base in 0_usize..20,
        ) {
            let lines: Vec<String> = entries.into_iter().map(|(key, value, end)| format!("{key}: {value}{end}\n")).collect();
            agree(&format!("{start}{}", lines.concat()), base);
        }

        #[test]
        fn reader_of_events_agrees_with_the_library_on_any_text(text in "[a-c\"':,{}#\\[\\]&*!|>?% \n-]{0,24}") {
            agree(&text, 3);
        }
    }
}
