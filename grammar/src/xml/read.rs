//! Parses XML to a tree. quick-xml finds the bounds of each piece of markup; this module checks the rest, and recovers
//! from errors so that one pass reports several.

use std::ops::Range;

use quick_xml::Reader;
use quick_xml::events::Event;

use super::chars::{is_name_start, is_space, name_len, push_normalized_text, resolve_reference};
use super::end_tag::UnmatchedEnd;
use super::tag::{self, ESCAPE_BOTH, ESCAPE_LT, find_invalid_char, reference_error};
use super::{Element, XmlNode};
use crate::Parsed;
use crate::error::{SyntaxError, SyntaxKind};
use crate::span::{SourceId, Span, Spanned};
use crate::text::{describe_char, shorten};

/// Maximum nesting depth. The bound keeps recursive traversals from overflowing the stack.
pub const MAX_DEPTH: usize = 64;
/// Maximum number of attributes of an element.
pub(crate) const MAX_ATTRIBUTES: usize = 64;
/// Maximum number of errors. Further errors are likely consequences of earlier errors.
const MAX_ERRORS: usize = 20;

const BYTE_ORDER_MARK: char = '\u{feff}';

/// Parses the XML in `range` of `text` (`language.md`, Directives). Spans are offsets into `text`. The tree is the root
/// element as far as it could be parsed; `None` if there is no element. If a misspelling makes a start tag and its end
/// tag differ, the parser takes the name in `names` to be the right one.
pub fn parse(source: SourceId, text: &str, range: Range<usize>, names: &[&str]) -> Parsed<Option<Element>> {
    let end = range.end.min(text.len());
    let mut tree = TreeBuilder {
        source,
        text,
        end,
        names,
        open: Vec::new(),
        root: None,
        skipped: 0,
        errors: Vec::new(),
        unescaped: None,
        unclosed: Vec::new(),
        unmatched: Vec::new(),
        is_cut: false,
    };
    if let Some((at, c)) = text.get(range.start..end).and_then(find_invalid_char) {
        let at = range.start + at;
        tree.syntax_error(
            at,
            at + c.len_utf8(),
            format!("{} is not allowed in XML", describe_char(c)),
            "not allowed",
            Some("remove the character"),
        );
    }
    let mut from = range.start;
    while let Some(next) = tree.parse_from(from) {
        if tree.errors.len() >= MAX_ERRORS {
            break;
        }
        from = next;
    }
    tree.finish(range.start)
}

pub(super) fn xml_error(span: Span, message: String, label: &str, help: Option<&str>) -> SyntaxError {
    SyntaxKind::Xml.error(span, message, label).with_help_if(help)
}

pub(super) struct TreeBuilder<'t> {
    source: SourceId,
    text: &'t str,
    end: usize,
    /// The known names of elements. The list can be empty. If a misspelling makes a start tag and its end tag differ,
    /// the known name is the right one.
    pub(super) names: &'t [&'t str],
    pub(super) open: Vec<Element>,
    root: Option<Element>,
    /// Number of open elements that are nested deeper than [`MAX_DEPTH`]. The tree does not contain these elements.
    skipped: usize,
    pub(super) errors: Vec<SyntaxError>,
    /// The last error about an unescaped character: the index in `errors`, and the offset where the text node starts.
    unescaped: Option<(usize, usize)>,
    /// Elements that were reported as unclosed: the name of each, and the index of its error in `errors`.
    pub(super) unclosed: Vec<(String, usize)>,
    /// End tags without a start tag that were reported inside an open element.
    pub(super) unmatched: Vec<UnmatchedEnd>,
    /// True if the rest of the text could not be parsed. Open elements are then not reported as unclosed.
    is_cut: bool,
}

impl<'t> TreeBuilder<'t> {
    pub(super) fn span(&self, start: usize, end: usize) -> Span {
        Span::new(self.source, start, end)
    }

    fn raw(&self, start: usize, end: usize) -> &'t str {
        self.text.get(start..end).unwrap_or_default()
    }

    pub(super) fn syntax_error(&mut self, start: usize, end: usize, message: String, label: &str, help: Option<&str>) {
        self.errors.push(xml_error(self.span(start, end), message, label, help));
    }

    /// Parses from an offset. Returns the offset from which the caller has to call again; `None` if parsing is done.
    fn parse_from(&mut self, from: usize) -> Option<usize> {
        let rest = self.text.get(from..self.end)?;
        if rest.starts_with(BYTE_ORDER_MARK) {
            // quick-xml drops a byte order mark at the start of its input, but does not count its bytes.
            let end = from + BYTE_ORDER_MARK.len_utf8();
            self.text(from, end);
            return Some(end);
        }
        let mut reader = Reader::from_str(rest);
        let config = reader.config_mut();
        config.check_end_names = false;
        config.allow_unmatched_ends = true;
        let position = |reader: &Reader<&[u8]>| from + usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX);
        loop {
            let start = position(&reader);
            let event = reader.read_event();
            let end = position(&reader).min(self.end);
            if self.errors.len() >= MAX_ERRORS {
                return None;
            }
            let again = match event {
                Ok(Event::Eof) => return None,
                Ok(Event::Start(_) | Event::Empty(_)) => self.start(start, end),
                Ok(Event::End(_)) => self.end(start, end),
                Ok(Event::Text(_)) => {
                    self.text(start, end);
                    None
                }
                Ok(Event::CData(_)) => {
                    self.cdata(start, end);
                    None
                }
                Ok(Event::GeneralRef(_)) => self.reference(start, end),
                Ok(Event::Comment(_)) => {
                    self.comment(start, end);
                    None
                }
                Ok(Event::Decl(_)) => {
                    if start != from || self.root.is_some() || !self.open.is_empty() {
                        let label = "allowed only at the start of a document";
                        self.syntax_error(
                            start,
                            end,
                            "an XML declaration is only allowed at the start".into(),
                            label,
                            None,
                        );
                    }
                    None
                }
                Ok(Event::PI(_)) => None,
                Ok(Event::DocType(_)) => {
                    let help = Some("remove the declaration: entities and validation are not supported");
                    self.syntax_error(
                        start,
                        end,
                        "a document type declaration is not supported".into(),
                        "not allowed",
                        help,
                    );
                    None
                }
                Err(_) => return self.report_unclosed(start),
            };
            if again.is_some() {
                return again;
            }
        }
    }

    /// Reports markup at which quick-xml cannot continue. Returns the offset at which parsing continues; `None` if the
    /// markup is never closed.
    fn report_unclosed(&mut self, start: usize) -> Option<usize> {
        let rest = self.raw(start, self.end);
        if rest.starts_with('&') {
            return Some(self.unescaped_ampersand(start));
        }
        let line = rest.lines().next().map_or(1, str::len);
        let (what, close) = if rest.starts_with("<!--") {
            ("this comment", "-->")
        } else if rest.starts_with("<![CDATA[") {
            return self.unclosed_cdata(start, line);
        } else if rest.starts_with("<![") {
            ("this CDATA section", "]]>")
        } else if rest.starts_with("<?") {
            ("this instruction", "?>")
        } else if rest.starts_with("</") || rest.get(1..).is_some_and(|r| r.starts_with(is_name_start)) {
            if let Some(resume) = self.unclosed_quote(start) {
                return Some(resume);
            }
            ("this tag", ">")
        } else {
            return Some(self.unescaped_angle(start));
        };
        let help = format!("add `{close}`");
        self.cut(start, start + line, &format!("{what} is never closed"), &help);
        None
    }

    /// Reports an error after which the rest of the text cannot be parsed.
    fn cut(&mut self, start: usize, end: usize, message: &str, help: &str) {
        self.is_cut = true;
        let error = xml_error(self.span(start, end), message.to_owned(), "opened here", Some(help));
        self.errors.push(error.with_lost_content());
    }

    /// Reports an unclosed CDATA section. Returns the offset of the next end tag, where parsing restarts; `None` if
    /// there is no end tag.
    fn unclosed_cdata(&mut self, start: usize, line: usize) -> Option<usize> {
        let from = start + "<![CDATA[".len();
        let message = "this CDATA section is never closed";
        let Some(len) = self.raw(from, self.end).find("</").filter(|_| !self.open.is_empty()) else {
            self.cut(start, start + line, message, "add `]]>`");
            return None;
        };
        let end = from + len;
        let error = xml_error(self.span(start, from), message.to_owned(), "opened here", Some("add `]]>` at its end"));
        self.errors.push(error.with_replacement(self.span(end, end), "]]>"));
        self.push_text(start, end, |into, raw| {
            push_normalized_text(into, raw.get(from - start..).unwrap_or_default());
        });
        Some(end)
    }

    /// Reports a tag of one line in which a quote is never closed, and keeps the element without its attributes.
    /// Returns the offset after the tag; `None` if the tag has another fault.
    fn unclosed_quote(&mut self, start: usize) -> Option<usize> {
        let line = self.raw(start, self.end).lines().next()?;
        let tag = line.get(..=line.find('>')?)?;
        let inside = tag.get(1..)?;
        let quote = ['"', '\''].into_iter().find(|quote| inside.matches(*quote).count() % 2 == 1)?;
        // A quoted value that ends with `=` contains the name of the next attribute (`a="x b="`): the closing quote of
        // the value is missing.
        let mut at = 0;
        let opening = loop {
            let open = at + tag.get(at..)?.find(quote)?;
            let Some(len) = tag.get(open + 1..)?.find(quote) else { break open };
            if tag.get(open + 1..open + 1 + len)?.ends_with('=') {
                break open;
            }
            at = open + 1 + len + 1;
        };
        let end = start + tag.len();
        let error = xml_error(
            self.span(start + opening, start + opening + 1),
            "a quote in this tag is never closed".into(),
            "opened here",
            Some("add the closing quote"),
        );
        self.errors.push(error.with_lost_content());
        let name = inside.get(..name_len(inside)).filter(|name| !name.is_empty())?;
        let name = Spanned::new(name.to_owned(), self.span(start + 1, start + 1 + name.len()));
        let element = Element { name, attributes: Vec::new(), children: Vec::new(), span: self.span(start, end) };
        if tag.ends_with("/>") || self.open.len() == MAX_DEPTH {
            self.attach_element(element);
        } else {
            self.open.push(element);
        }
        Some(end)
    }

    /// Reports a `<` that does not start markup, and reads it as text. Returns the offset after the `<`.
    fn unescaped_angle(&mut self, start: usize) -> usize {
        let message = "a `<` in text must be escaped".to_owned();
        self.unescaped_char(start, xml_error(self.span(start, start + 1), message, "opens no tag", Some(ESCAPE_LT)))
    }

    fn unescaped_ampersand(&mut self, start: usize) -> usize {
        self.unescaped_char(start, reference_error(self.span(start, start + 1), None))
    }

    /// Reports an unescaped character of a text. If the text has such an error already, extends that error instead of
    /// adding `error`. Keeps the character in the text, and returns the offset after the character.
    fn unescaped_char(&mut self, start: usize, error: SyntaxError) -> usize {
        let escaped = if self.raw(start, start + 1) == "<" { "&lt;" } else { "&amp;" };
        let text_start = match self.open.last().and_then(|parent| parent.children.last()) {
            Some(XmlNode::Text(text)) => text.span.start as usize,
            Some(XmlNode::Element(_) | XmlNode::Comment(_)) | None => start,
        };
        let span = self.span(start, start + 1);
        let earlier = self.unescaped.filter(|(_, text)| *text == text_start && !self.open.is_empty());
        if let Some(earlier) = earlier.and_then(|(index, _)| self.errors.get_mut(index)) {
            if earlier.replacements.len() >= MAX_ERRORS {
                // A text with so many unescaped characters is probably not XML. No replacements are suggested, and the
                // rest is not parsed.
                *earlier = SyntaxError { replacements: Box::default(), loses_content: true, ..earlier.clone() };
                self.is_cut = true;
                return self.end;
            }
            earlier.span = earlier.span.join(span);
            *earlier = earlier.clone().with_replacement(span, escaped);
            let count = earlier.replacements.len();
            let is_mixed = earlier.replacements.iter().any(|(_, other)| other != escaped);
            let what = if is_mixed {
                "`<` and `&`"
            } else if escaped == "&lt;" {
                "`<`"
            } else {
                "`&`"
            };
            earlier.message = format!("{what} in text must be escaped");
            earlier.label = format!("{count} characters to escape");
            earlier.help = Some(ESCAPE_BOTH.to_owned());
        } else {
            self.errors.push(error.with_replacement(span, escaped));
            self.unescaped = Some((self.errors.len() - 1, text_start));
        }
        self.push_text(start, start + 1, String::push_str);
        start + 1
    }

    fn start(&mut self, start: usize, end: usize) -> Option<usize> {
        let raw = self.raw(start, end);
        if !raw.get(1..).is_some_and(|r| r.starts_with(is_name_start)) {
            return Some(self.unescaped_angle(start));
        }
        let empty = raw.ends_with("/>");
        if self.skipped > 0 {
            self.skipped += usize::from(!empty);
            return None;
        }
        let tag = tag::read(self.source, self.text, start, end);
        self.errors.extend(tag.errors);
        if let Some(resume) = tag.resume {
            return Some(resume);
        }
        let element =
            Element { name: tag.name, attributes: tag.attributes, children: Vec::new(), span: self.span(start, end) };
        if self.open.is_empty() && self.root.is_some() {
            let message = format!("`<{}>` is a second root element", shorten(&element.name.node));
            let help = match element.name.node.as_str() {
                "directive" => "a file holds one directive: move this one to a file of its own",
                _ => "a document has one root element",
            };
            let help = Some(help);
            self.errors.push(xml_error(element.name.span, message, "outside the first", help));
        }
        self.check_prefixes(&element);
        if empty {
            self.attach_element(element);
        } else if self.open.len() == MAX_DEPTH {
            let message = format!("elements nest at most {MAX_DEPTH} deep");
            self.errors.push(xml_error(element.name.span, message, "one level too many", None));
            self.skipped = 1;
        } else {
            self.open.push(element);
        }
        None
    }

    fn end(&mut self, start: usize, end: usize) -> Option<usize> {
        if self.skipped > 0 {
            self.skipped -= 1;
            return None;
        }
        let raw = self.raw(start, end);
        let inside = raw.get(2..raw.len().saturating_sub(1)).unwrap_or_default();
        let name = inside.trim_end_matches(is_space);
        if name_len(name) != name.len() || name.is_empty() {
            // `</a <b>`: the end tag lacks its own `>`.
            let resume = inside.find('<').map(|at| start + 2 + at);
            let stop = resume.unwrap_or(end);
            self.syntax_error(
                start,
                stop,
                "this is not an end tag".into(),
                "expected a name and `>`",
                Some("write `</name>`"),
            );
            resume?;
            let known = name.split(|c| is_space(c) || c == '<').next().unwrap_or_default().to_owned();
            self.close(&known, start, stop);
            return resume;
        }
        self.close(name, start, end);
        None
    }

    pub(super) fn attach_element(&mut self, element: Element) {
        if let Some(parent) = self.open.last_mut() {
            parent.children.push(XmlNode::Element(element));
        } else if self.root.is_none() {
            self.root = Some(element);
        }
    }

    fn text(&mut self, start: usize, end: usize) {
        let raw = self.raw(start, end);
        if raw.as_bytes().contains(&b']')
            && let Some(at) = raw.find("]]>")
        {
            let at = start + at;
            self.syntax_error(
                at,
                at + 3,
                "`]]>` is not allowed in text".into(),
                "no `<![CDATA[` precedes it",
                Some("write `]]&gt;`"),
            );
        }
        self.push_text(start, end, push_normalized_text);
    }

    fn cdata(&mut self, start: usize, end: usize) {
        let (from, to) = (start + "<![CDATA[".len(), end.saturating_sub("]]>".len()));
        if self.open.is_empty() {
            self.text_outside(start, end);
            return;
        }
        if from >= to {
            return;
        }
        self.push_text(start, end, |into, raw| {
            push_normalized_text(into, raw.get(from - start..to.saturating_sub(start)).unwrap_or_default());
        });
    }

    fn reference(&mut self, start: usize, end: usize) -> Option<usize> {
        let raw = self.raw(start, end);
        let name = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
        let Some(c) = resolve_reference(name) else {
            if name_len(name) != name.len() && !name.starts_with('#') {
                return Some(self.unescaped_ampersand(start));
            }
            self.errors.push(reference_error(self.span(start, end), Some(name)));
            return None;
        };
        self.push_text(start, end, |into, _| into.push(c));
        None
    }

    /// Adds the text from `start` to `end` to the open element. `write` appends the text, with references resolved.
    fn push_text(&mut self, start: usize, end: usize, write: impl FnOnce(&mut String, &str)) {
        let span = self.span(start, end);
        let raw = self.text.get(start..end).unwrap_or_default();
        if self.skipped > 0 {
            return;
        }
        let Some(parent) = self.open.last_mut() else {
            let blank = raw.chars().all(is_space);
            if !(blank || raw == "<" || raw == "&") {
                self.text_outside(start, end);
            }
            return;
        };
        if let Some(XmlNode::Text(last)) = parent.children.last_mut() {
            last.span = last.span.join(span);
            write(&mut last.node, raw);
        } else {
            let mut text = String::with_capacity(raw.len());
            write(&mut text, raw);
            parent.children.push(XmlNode::Text(Spanned::new(text, span)));
        }
    }

    fn text_outside(&mut self, start: usize, end: usize) {
        let raw = self.raw(start, end);
        let inner = raw.trim_matches(is_space);
        let at = start + (raw.len() - raw.trim_start_matches(is_space).len());
        let len = inner.lines().next().map_or(1, str::len);
        let side = if self.root.is_some() { "after" } else { "before" };
        let message = format!("text {side} the root element");
        self.syntax_error(
            at,
            at + len,
            message,
            "outside the root",
            Some("move the text inside the root element, or out of the XML"),
        );
    }

    fn comment(&mut self, start: usize, end: usize) {
        let (from, to) = (start + 4, end.saturating_sub(3).max(start + 4));
        let inside = self.raw(from, to);
        if inside.contains("--") || inside.ends_with('-') {
            let at = from + inside.find("--").unwrap_or(inside.len().saturating_sub(1));
            self.syntax_error(
                at,
                at + 2,
                "`--` is not allowed in a comment".into(),
                "only at its end",
                Some("write `- -`"),
            );
        }
        let span = self.span(start, end);
        if self.skipped == 0
            && let Some(parent) = self.open.last_mut()
        {
            parent.children.push(XmlNode::Comment(Spanned::new(inside.to_owned(), span)));
        }
    }

    /// Checks the names with a prefix (`a:b`) of an element and its attributes. Reports a name if neither the element
    /// nor an enclosing element declares the prefix (`xmlns:a`), or if the part before or after the colon is not a
    /// name.
    fn check_prefixes(&mut self, element: &Element) {
        let names = std::iter::once(&element.name).chain(element.attributes.iter().map(|a| &a.name));
        let mut errors = Vec::new();
        for name in names {
            let Some((prefix, local)) = name.node.split_once(':') else { continue };
            let declared = match prefix {
                "xml" | "xmlns" => true,
                _ => std::iter::once(element)
                    .chain(&self.open)
                    .any(|e| e.attributes.iter().any(|a| a.name.node.strip_prefix("xmlns:") == Some(prefix))),
            };
            if !declared || prefix.is_empty() || !local.starts_with(is_name_start) || local.contains(':') {
                errors.push(xml_error(
                    name.span,
                    format!("the prefix of `{}` is not declared", shorten(&name.node)),
                    "unknown prefix",
                    Some("remove the prefix: the names of these elements and attributes have no prefix"),
                ));
            }
        }
        self.errors.extend(errors);
    }

    fn finish(mut self, start: usize) -> Parsed<Option<Element>> {
        let stopped = self.is_cut || self.errors.len() >= MAX_ERRORS;
        while let Some(mut element) = self.open.pop() {
            if !stopped && self.errors.len() < MAX_ERRORS {
                let help = format!("add `</{}>`", shorten(&element.name.node));
                self.never_closed(&element, &help);
            }
            element.span = element.span.join(self.span(self.end, self.end));
            self.attach_element(element);
        }
        if self.root.is_none() && self.errors.is_empty() {
            self.syntax_error(start, self.end, "no element found".into(), "expected XML", None);
        }
        Parsed { tree: self.root, errors: self.errors }
    }
}
