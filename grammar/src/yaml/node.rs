//! Values as serde delivers them, and their conversion to spanned nodes.

use std::cell::Cell;
use std::collections::BTreeSet;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::{Location, Spanned};

use super::MAX_DEPTH;
use super::error::{TOO_DEEP_MESSAGE, duplicate_key, yaml_error};
use crate::Parsed;
use crate::data::{Entry, Kind, Node};
use crate::error::SyntaxError;
use crate::span::{SourceId, Span, Spanned as At};

/// A value as the library serde-saphyr reads it. The span of the value is not computed yet.
pub(super) enum RawValue {
    Null,
    Bool(bool),
    Integer(Number),
    Decimal(f64),
    String(String),
    List(Vec<Spanned<RawValue>>),
    Map(Vec<(Spanned<String>, Spanned<RawValue>)>),
}

impl<'de> Deserialize<'de> for RawValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = RawValue;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Null)
    }

    fn visit_none<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<RawValue, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<RawValue, E> {
        Ok(RawValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<RawValue, E> {
        Ok(RawValue::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<RawValue, E> {
        Ok(RawValue::Integer(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<RawValue, E> {
        Ok(RawValue::Decimal(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<RawValue, E> {
        Ok(RawValue::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<RawValue, E> {
        Ok(RawValue::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<RawValue, A::Error> {
        let _level = DepthGuard::enter()?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(RawValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<RawValue, A::Error> {
        let _level = DepthGuard::enter()?;
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(RawValue::Map(entries))
    }
}

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// A level of nesting. The YAML library counts only the levels in the text; this guard also counts the levels that
/// aliases expand to.
struct DepthGuard;

impl DepthGuard {
    fn enter<E: Error>() -> Result<Self, E> {
        let depth = DEPTH.get() + 1;
        if depth > MAX_DEPTH {
            return Err(E::custom(TOO_DEEP_MESSAGE));
        }
        DEPTH.set(depth);
        Ok(Self)
    }
}

impl Drop for DepthGuard {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Maximum number of errors per document.
const MAX_ERRORS: usize = 20;

/// Removes duplicate keys and reports them. The first occurrence is kept. Keys are compared by text, so `1` and `"1"`,
/// which YAML distinguishes, are duplicates.
fn remove_duplicate_keys(entries: Vec<Entry>, errors: &mut Vec<SyntaxError>) -> Vec<Entry> {
    let mut seen = BTreeSet::new();
    let repeated: Vec<bool> = entries.iter().map(|entry| !seen.insert(entry.key.node.as_str())).collect();
    if !repeated.contains(&true) {
        return entries;
    }
    let mut kept = Vec::with_capacity(entries.len());
    for (entry, repeated) in entries.into_iter().zip(repeated) {
        if repeated {
            errors.push(duplicate_key(entry.key.span, &entry.key.node));
        } else {
            kept.push(entry);
        }
    }
    kept
}

/// A converter from the locations that the YAML library reports to spans of the source.
pub(super) struct SpanConverter<'t> {
    pub source: SourceId,
    pub text: &'t str,
    pub base: usize,
}

impl SpanConverter<'_> {
    pub(super) fn node(&self, raw: Spanned<RawValue>) -> Parsed<Node> {
        let mut errors = Vec::new();
        let tree = self.convert(raw, &mut errors);
        errors.truncate(MAX_ERRORS);
        Parsed { tree, errors }
    }

    /// Returns a range of the document as a span of the source.
    pub(super) fn span(&self, start: usize, end: usize) -> Span {
        Span::new(self.source, self.base + start, self.base + end)
    }

    /// Returns the byte range of a location that the YAML library reports. The scanner of the library reports only a
    /// line and a column; the offset of such a location is computed.
    pub(super) fn byte_range(&self, place: Location) -> (usize, usize) {
        let as_usize = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let start = match place.span().byte_offset() {
            Some(start) => as_usize(start),
            None if place == Location::UNKNOWN => 0,
            None => self.offset_of(as_usize(place.line()), as_usize(place.column())),
        };
        let start = start.min(self.text.len());
        let end = start + place.span().byte_len().map_or(0, as_usize);
        (start, end.min(self.text.len()))
    }

    fn offset_of(&self, line: usize, column: usize) -> usize {
        let mut start = 0;
        for _ in 1..line {
            match self.text.get(start..).and_then(|rest| rest.find('\n')) {
                Some(at) => start += at + 1,
                None => break,
            }
        }
        let rest = self.text.get(start..).unwrap_or_default();
        start + rest.char_indices().nth(column.saturating_sub(1)).map_or(rest.len(), |(at, _)| at)
    }

    fn convert(&self, raw: Spanned<RawValue>, errors: &mut Vec<SyntaxError>) -> Node {
        let (start, end) = self.byte_range(raw.referenced);
        let (kind, end) = match raw.value {
            RawValue::Null => (Kind::Null, end),
            RawValue::Bool(value) => (Kind::Bool(value), end),
            RawValue::Integer(value) => (Kind::Number(value), end),
            RawValue::Decimal(value) => (self.convert_float(value, raw.defined, errors), end),
            RawValue::String(value) => return self.string_node(value, start, end),
            RawValue::List(items) => {
                return self.list_node(items.into_iter().map(|item| self.convert(item, errors)).collect(), start, end);
            }
            RawValue::Map(entries) => {
                let entries: Vec<Entry> = entries
                    .into_iter()
                    .map(|(key, value)| {
                        let (from, to) = self.byte_range(key.referenced);
                        Entry { key: At::new(key.value, self.span(from, to)), value: self.convert(value, errors) }
                    })
                    .collect();
                return self.map_node(remove_duplicate_keys(entries, errors), start, end);
            }
        };
        Node::new(kind, self.span(start, end))
    }

    /// Returns a text at this range of the document. If the text is quoted, its span excludes the quotes where possible.
    pub(super) fn string_node(&self, value: String, start: usize, end: usize) -> Node {
        let (start, end) = self.between_quotes(start, end, &value);
        Node::new(Kind::String(value), self.span(start, end))
    }

    /// Returns a list of `items`. `start` and `end` are the range that the library reports for the start of the list.
    pub(super) fn list_node(&self, items: Vec<Node>, start: usize, end: usize) -> Node {
        let last = items.last().map(|item| item.span);
        let end = self.container_end(start, end, last, b']');
        Node::new(Kind::List(items), self.span(start, end))
    }

    /// Returns a mapping of `entries`, whose keys are unique. `start` and `end` are the offsets that the YAML parser
    /// reports for the event that starts the mapping.
    pub(super) fn map_node(&self, entries: Vec<Entry>, start: usize, end: usize) -> Node {
        let last = entries.iter().map(|entry| entry.value.span.join(entry.key.span)).max_by_key(|s| s.end);
        let end = self.container_end(start, end, last, b'}');
        Node::new(Kind::Map(entries), self.span(start, end))
    }

    /// Returns the range without the quotes, if the range is a quoted string whose inside equals `value` byte for byte;
    /// otherwise returns the range unchanged.
    fn between_quotes(&self, start: usize, end: usize, value: &str) -> (usize, usize) {
        let written = self.text.get(start..end).unwrap_or_default();
        let inside = written.get(1..written.len().saturating_sub(1));
        if written.starts_with(['"', '\'']) && inside == Some(value) { (start + 1, end - 1) } else { (start, end) }
    }

    /// Converts a float of the YAML library. The library also returns an integer that is out of range as a float. Such
    /// an integer is recognized by its spelling and reported.
    fn convert_float(&self, value: f64, place: Location, errors: &mut Vec<SyntaxError>) -> Kind {
        let (start, end) = self.byte_range(place);
        let written = self.text.get(start..end).unwrap_or_default();
        let digits = written.trim_start_matches(['-', '+']);
        let whole = digits.bytes().all(|b| b.is_ascii_digit()) || digits.starts_with("0x") || digits.starts_with("0o");
        match Number::from_f64(value) {
            Some(number) if !whole => Kind::Number(number),
            Some(_) | None => {
                errors.push(yaml_error(
                    self.span(start, end),
                    format!("the number `{}` is out of range", crate::text::shorten(written)),
                    "out of range",
                    Some(
                        "put the number in quotes: whole numbers go from -9223372036854775808 to 18446744073709551615",
                    ),
                ));
                Kind::Null
            }
        }
    }

    /// Returns the offset after a list or a mapping: after its closing bracket in the flow form, else after its last
    /// value.
    fn container_end(&self, start: usize, end: usize, last: Option<Span>, close: u8) -> usize {
        let bytes = self.text.as_bytes();
        let last = last.map_or(end, |s| s.range().end.saturating_sub(self.base)).max(end);
        if !matches!(bytes.get(start), Some(b'[' | b'{')) {
            return last;
        }
        let mut at = last;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b if *b == close => return at + 1,
                b'#' => at += bytes.get(at..).and_then(|r| r.iter().position(|b| *b == b'\n')).unwrap_or(0).max(1),
                b' ' | b'\t' | b'\r' | b'\n' | b',' => at += 1,
                _ => return last,
            }
        }
        last
    }
}
