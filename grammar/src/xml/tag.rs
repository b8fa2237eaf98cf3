//! The content of a start tag: its name and attributes, with spans.

use super::Attribute;
use super::chars::{is_char, is_space, name_len, push_normalized_text, resolve_reference};
use super::read::{MAX_ATTRIBUTES, xml_error};
use crate::error::SyntaxError;
use crate::span::{SourceId, Span, Spanned};
use crate::text::{describe_char, shorten};

pub(super) const ESCAPE_LT: &str = "write `&lt;` for a `<` in text, or put the text into `<![CDATA[ … ]]>`";
pub(super) const ESCAPE_BOTH: &str =
    "write `&lt;` for `<` and `&amp;` for `&`, or put the text into `<![CDATA[ … ]]>`; conditions accept `and`";
pub(super) const ESCAPE_AMP: &str = "write `&amp;` for a `&`; conditions accept `and`";

/// A parsed start tag.
pub(super) struct Tag {
    pub name: Spanned<String>,
    pub attributes: Vec<Attribute>,
    pub errors: Vec<SyntaxError>,
    /// The offset of a further `<` inside the tag, at which parsing restarts after an error in the tag. `None` if
    /// parsing continues after the tag.
    pub resume: Option<usize>,
}

/// Parses a tag: the bytes of `text` from `start` to `end`, including `<` and `>`.
pub(super) fn read(source: SourceId, text: &str, start: usize, end: usize) -> Tag {
    let inside_end = end - usize::from(text.get(start..end).is_some_and(|t| t.ends_with("/>"))) - 1;
    let mut scan = TagScanner { source, text, at: start + 1, end: inside_end, errors: Vec::new() };
    let name = scan.name();
    let mut attributes: Vec<Attribute> = Vec::new();
    let mut resume = None;
    loop {
        let spaced = scan.skip_spaces();
        let Some(c) = scan.peek() else { break };
        if c == '<' {
            scan.syntax_error(
                start,
                start + 1,
                "this `<` does not start a tag".into(),
                "no `>` follows before the next `<`",
                ESCAPE_LT,
            );
            resume = Some(scan.at);
            break;
        }
        if name_len(scan.rest()) == 0 {
            let at = scan.at;
            let help = if c == '&' { ESCAPE_AMP } else { ESCAPE_LT };
            scan.syntax_error(
                at,
                at + c.len_utf8(),
                format!("{} is not allowed in a tag", describe_char(c)),
                "expected an attribute or the end of the tag",
                help,
            );
            resume = scan.next_tag_offset();
            break;
        }
        if !spaced {
            let at = scan.at;
            scan.syntax_error(
                at,
                at + c.len_utf8(),
                "attributes are separated by spaces".into(),
                "a space is missing here",
                "add a space",
            );
        }
        let Some(attribute) = scan.attribute() else {
            resume = scan.next_tag_offset();
            break;
        };
        if attributes.iter().any(|a| a.name.node == attribute.name.node) {
            scan.errors.push(xml_error(
                attribute.name.span,
                format!("`{}` is given twice", shorten(&attribute.name.node)),
                "second time",
                Some("keep one of the two attributes"),
            ));
        } else if attributes.len() == MAX_ATTRIBUTES {
            scan.errors.push(xml_error(
                attribute.name.span,
                format!("an element has at most {MAX_ATTRIBUTES} attributes"),
                "one too many",
                None,
            ));
            break;
        } else {
            attributes.push(attribute);
        }
    }
    Tag { name, attributes, errors: scan.errors, resume }
}

struct TagScanner<'t> {
    source: SourceId,
    text: &'t str,
    at: usize,
    end: usize,
    errors: Vec<SyntaxError>,
}

impl<'t> TagScanner<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..self.end).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn span(&self, start: usize, end: usize) -> Span {
        Span::new(self.source, start, end)
    }

    /// Returns the offset of the next `<` in the tag, at which parsing restarts after an error; `None` if there is no
    /// further `<`.
    fn next_tag_offset(&self) -> Option<usize> {
        self.rest().find('<').map(|at| self.at + at)
    }

    fn syntax_error(&mut self, start: usize, end: usize, message: String, label: &str, help: &str) {
        self.errors.push(xml_error(self.span(start, end), message, label, Some(help)));
    }

    fn skip_spaces(&mut self) -> bool {
        let rest = self.rest();
        let len = rest.bytes().position(|b| !is_space(char::from(b))).unwrap_or(rest.len());
        self.at += len;
        len > 0
    }

    fn name(&mut self) -> Spanned<String> {
        let len = name_len(self.rest());
        let name = self.rest().get(..len).unwrap_or_default().to_owned();
        let span = self.span(self.at, self.at + len);
        self.at += len;
        Spanned::new(name, span)
    }

    fn attribute(&mut self) -> Option<Attribute> {
        let name = self.name();
        self.skip_spaces();
        if self.peek() != Some('=') {
            self.errors.push(xml_error(
                name.span,
                format!("the attribute `{}` has no value", shorten(&name.node)),
                "expected `=` after this",
                Some("write `name=\"value\"`; a `<` in text is written `&lt;`"),
            ));
            // Continuing would repeat the error for every word.
            return None;
        }
        self.at += 1;
        self.skip_spaces();
        let quote = self.peek().filter(|c| matches!(c, '"' | '\''));
        let Some(quote) = quote else {
            let at = self.at;
            let is_curly = self.peek().is_some_and(|c| matches!(c, '“' | '”' | '„' | '‘' | '’' | '«' | '»'));
            let help = if is_curly {
                "typographic quotes are text: write straight ones, `name=\"value\"`"
            } else {
                "write `name=\"value\"`"
            };
            self.syntax_error(
                at,
                at + self.peek().map_or(0, char::len_utf8),
                format!("the value of `{}` is not in quotes", shorten(&name.node)),
                "expected a quote here",
                help,
            );
            return None;
        };
        self.at += 1;
        let Some(len) = self.rest().find(quote) else {
            let at = self.at - 1;
            self.syntax_error(
                at,
                self.end,
                format!("the value of `{}` is never closed", shorten(&name.node)),
                "opened here",
                "add the closing quote",
            );
            self.at = self.end;
            return None;
        };
        let start = self.at;
        let raw = self.rest().get(..len).unwrap_or_default();
        self.at += len + 1;
        let value = self.resolve_value(start, raw);
        Some(Attribute { name, value: Spanned::new(value, self.span(start, start + len)) })
    }

    /// Returns the value of an attribute, with references resolved. As XML requires, each tab and each line break
    /// becomes a space.
    fn resolve_value(&mut self, start: usize, raw: &str) -> String {
        if !raw.bytes().any(|b| matches!(b, b'<' | b'&' | b'\r' | b'\n' | b'\t')) {
            return raw.to_owned();
        }
        if let Some(at) = raw.find('<') {
            self.syntax_error(
                start + at,
                start + at + 1,
                "a `<` is not allowed in an attribute".into(),
                "write `&lt;`",
                "write `&lt;`, or add the missing closing quote before the `<`",
            );
        }
        let mut value = String::with_capacity(raw.len());
        let mut rest = raw;
        while let Some(at) = rest.find('&') {
            push_normalized_space(&mut value, rest.get(..at).unwrap_or_default());
            let tail = rest.get(at + 1..).unwrap_or_default();
            let offset = start + (raw.len() - tail.len());
            let reference = tail.find(';').and_then(|end| tail.get(..end));
            if let Some((name, c)) = reference.and_then(|r| resolve_reference(r).map(|c| (r, c))) {
                value.push(c);
                rest = tail.get(name.len() + 1..).unwrap_or_default();
                continue;
            }
            let name = reference.filter(|r| !r.is_empty() && name_len(r) == r.len());
            let end = offset + name.map_or(0, |n| n.len() + 1);
            self.errors.push(reference_error(self.span(offset - 1, end), name));
            value.push('&');
            rest = tail;
        }
        push_normalized_space(&mut value, rest);
        value
    }
}

/// Returns the error for a `&` that does not start a reference, or for an unknown reference.
pub(super) fn reference_error(span: Span, name: Option<&str>) -> SyntaxError {
    match name {
        Some(name) => xml_error(
            span,
            format!("unknown reference `&{};`", shorten(name)),
            "unknown reference",
            Some("the references of XML are `&lt; &gt; &amp; &apos; &quot;` and numbers such as `&#8364;`"),
        ),
        None => xml_error(span, "a `&` in text must be escaped".into(), "starts no reference", Some(ESCAPE_AMP)),
    }
}

fn push_normalized_space(into: &mut String, raw: &str) {
    let from = into.len();
    push_normalized_text(into, raw);
    if into.get(from..).is_some_and(|t| t.contains(['\n', '\t'])) {
        let spaced = into.split_off(from).replace(['\n', '\t'], " ");
        into.push_str(&spaced);
    }
}

/// Returns the first character of `text` that XML does not allow, with its byte offset; `None` if XML allows all of
/// them.
pub(super) fn find_invalid_char(text: &str) -> Option<(usize, char)> {
    // XML forbids control characters and the code points U+FFFE and U+FFFF, whose first byte in UTF-8 is EF. Most texts
    // contain none of these bytes, and checking bytes is fast.
    if !text.bytes().any(|b| (b < 0x20 && !matches!(b, b'\t' | b'\n' | b'\r')) || b == 0xEF) {
        return None;
    }
    text.char_indices().find(|(_, c)| !is_char(*c))
}
