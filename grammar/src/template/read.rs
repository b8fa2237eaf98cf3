//! Parses templates: a byte scan finds the start of each placeholder, and pest parses the placeholder. Text without
//! placeholders never reaches the parser.

use pest::Parser;
use pest::error::InputLocation;
use pest::iterators::Pair;

use super::{InputPlaceholder, InputsPart, InputsText, Placeholder, Template, TemplatePart, WhenMissing};
use crate::Parsed;
use crate::condition::parse_segments;
use crate::error::{SyntaxError, SyntaxKind};
use crate::span::{SourceId, Span};
use crate::text::{describe_char, shorten};

/// Maximum number of malformed placeholders reported per text. The rest of the text is not scanned.
const MAX_ERRORS: usize = 32;
/// Maximum length of a placeholder in bytes.
const MAX_PLACEHOLDER_BYTES: usize = 16 * 1024;

#[derive(pest_derive::Parser)]
#[grammar = "../reference.pest"]
#[grammar = "../template.pest"]
struct TemplateParser;

/// Parses a `${…}` template. `$${` is a literal `${`. `base` is the byte offset of `text` in its source.
///
/// # Errors
/// Returns [`crate::SyntaxKind::Template`] for the first malformed placeholder.
pub fn parse(source: SourceId, text: &str, base: usize) -> Result<Template, SyntaxError> {
    first_error(read(source, text, base))
}

fn first_error<T>(read: Parsed<T>) -> Result<T, SyntaxError> {
    match read.errors.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(read.tree),
    }
}

/// Parses like [`parse`], but reports every malformed placeholder and keeps it as text.
pub fn read(source: SourceId, text: &str, base: usize) -> Parsed<Template> {
    let mut errors = Vec::new();
    let mut parts = PartsBuilder::default();
    let mut at = 0;
    while let Some(next) = next_dollar(text, at) {
        parts.text(slice(text, at, next.start));
        if next.escaped {
            parts.text("${");
            at = next.start + 3;
            continue;
        }
        let Some(placeholder) = parse_placeholder(source, text, base, next.start) else {
            let stopped = TemplateParser::parse(Rule::placeholder, placeholder_window(text, next.start)).err();
            let stopped = stopped.map_or(2, |error| error_at(&error.location));
            errors.push(placeholder_error(source, base, text, next.start, stopped));
            parts.text("${");
            at = next.start + 2;
            if errors.len() == MAX_ERRORS {
                break;
            }
            continue;
        };
        at = next.start + placeholder.raw.len();
        parts.done.push(TemplatePart::Placeholder(placeholder));
    }
    parts.text(slice(text, at, text.len()));
    Parsed { tree: Template { parts: parts.done }, errors }
}

/// Scans the content of fetched knowledge. Malformed placeholders stay text. `$${` before a well-formed placeholder is
/// a literal `${`. If the first segment of a placeholder is not a fact, the caller inserts [`Placeholder::raw`] instead
/// of a value.
pub fn scan_knowledge(source: SourceId, text: &str, base: usize) -> Template {
    let mut parts = PartsBuilder::default();
    let mut from = 0;
    let mut at = 0;
    while let Some(next) = next_dollar(text, at) {
        let open = next.start + usize::from(next.escaped);
        let Some(placeholder) = parse_placeholder(source, text, base, open) else {
            at = open + 2;
            continue;
        };
        at = open + placeholder.raw.len();
        parts.text(slice(text, from, next.start));
        if next.escaped {
            parts.text(&placeholder.raw);
        } else {
            parts.done.push(TemplatePart::Placeholder(placeholder));
        }
        from = at;
    }
    parts.text(slice(text, from, text.len()));
    Template { parts: parts.done }
}

/// Parses a text with `{input:…}` placeholders. `\{input:` is literal and drops the backslash. `base` is the byte
/// offset of `text` in its source.
///
/// # Errors
/// Returns [`crate::SyntaxKind::Template`] for the first malformed placeholder.
pub fn parse_inputs(source: SourceId, text: &str, base: usize) -> Result<InputsText, SyntaxError> {
    first_error(read_inputs(source, text, base))
}

/// Parses like [`parse_inputs`], but reports every malformed placeholder and keeps it as text.
pub fn read_inputs(source: SourceId, text: &str, base: usize) -> Parsed<InputsText> {
    const OPEN: &str = "{input:";
    let mut errors = Vec::new();
    let mut parts: Vec<InputsPart> = Vec::new();
    let mut pending = String::new();
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find(OPEN)) {
        let open = at + found;
        if slice(text, at, open).ends_with('\\') {
            pending.push_str(slice(text, at, open - 1));
            pending.push_str(OPEN);
            at = open + OPEN.len();
            continue;
        }
        pending.push_str(slice(text, at, open));
        if let Some(placeholder) = parse_simple_input(source, text, base, open) {
            at = open + placeholder.span.len();
            if !pending.is_empty() {
                parts.push(InputsPart::Text(std::mem::take(&mut pending)));
            }
            parts.push(InputsPart::Input(placeholder));
            continue;
        }
        let window = input_window(text, open);
        let (placeholder, stopped) = match TemplateParser::parse(Rule::input, window) {
            Ok(mut pairs) => (pairs.next().and_then(|pair| read_input(source, base + open, &pair)), OPEN.len()),
            Err(error) => (None, error_at(&error.location)),
        };
        let Some(placeholder) = placeholder else {
            errors.push(input_error(source, base, text, open, stopped));
            pending.push_str(OPEN);
            at = open + OPEN.len();
            if errors.len() == MAX_ERRORS {
                break;
            }
            continue;
        };
        at = open + placeholder.span.len();
        if !pending.is_empty() {
            parts.push(InputsPart::Text(std::mem::take(&mut pending)));
        }
        parts.push(InputsPart::Input(placeholder));
    }
    pending.push_str(slice(text, at, text.len()));
    if !pending.is_empty() {
        parts.push(InputsPart::Text(pending));
    }
    Parsed { tree: InputsText { parts }, errors }
}

/// Parses an `{input:name}` without a default by scanning bytes, which is faster than the pest parser. `None` for any
/// other text, which the pest parser then reads.
fn parse_simple_input(source: SourceId, text: &str, base: usize, open: usize) -> Option<InputPlaceholder> {
    let inside = text.get(open + "{input:".len()..)?;
    let len = inside.bytes().position(|b| !(b.is_ascii_alphanumeric() || b == b'_'))?;
    let (name, rest) = inside.split_at_checked(len)?;
    if !rest.starts_with('}') || name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        return None;
    }
    let start = base + open;
    let span = Span::new(source, start, start + "{input:".len() + len + 1);
    Some(InputPlaceholder { name: name.to_owned(), when_missing: WhenMissing::Refuse, span })
}

/// A builder of the parts of a template, which merges adjacent texts.
#[derive(Default)]
struct PartsBuilder {
    done: Vec<TemplatePart>,
}

impl PartsBuilder {
    fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if let Some(TemplatePart::Text(last)) = self.done.last_mut() {
            last.push_str(text);
        } else {
            self.done.push(TemplatePart::Text(text.to_owned()));
        }
    }
}

struct DollarOpening {
    start: usize,
    escaped: bool,
}

/// Finds the next `${` or `$${` at or after the offset `from`; `None` if there is none.
fn next_dollar(text: &str, from: usize) -> Option<DollarOpening> {
    let open = from + text.get(from..)?.find("${")?;
    let escaped = open > from && slice(text, from, open).ends_with('$');
    Some(DollarOpening { start: open - usize::from(escaped), escaped })
}

fn slice(text: &str, start: usize, end: usize) -> &str {
    text.get(start..end).unwrap_or_default()
}

/// Returns the text that a placeholder may cover: the rest of its line, up to the maximum length of a placeholder. The
/// parser receives no further text, because the parser copies unparsed text into its error.
fn placeholder_window(text: &str, open: usize) -> &str {
    let rest = text.get(open..).unwrap_or_default();
    let line = rest.split('\n').next().unwrap_or_default();
    truncate_to_max(line)
}

/// Returns the text that an `{input:…}` placeholder may cover: everything up to the first `}`, but at most
/// `MAX_PLACEHOLDER_BYTES`. The text can have several lines, because a default may contain line breaks.
fn input_window(text: &str, open: usize) -> &str {
    let rest = text.get(open..).unwrap_or_default();
    let end = rest.find('}').map_or(rest.len(), |at| at + 1);
    truncate_to_max(rest.get(..end).unwrap_or_default())
}

fn truncate_to_max(text: &str) -> &str {
    let mut end = text.len().min(MAX_PLACEHOLDER_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

fn error_at(location: &InputLocation) -> usize {
    match location {
        InputLocation::Pos(at) | InputLocation::Span((at, _)) => *at,
    }
}

fn read_placeholder(source: SourceId, start: usize, pair: &Pair<'_, Rule>) -> Option<Placeholder> {
    let raw = pair.as_str();
    let mut path = None;
    let mut fallback = None;
    for part in pair.clone().into_inner() {
        if part.as_rule() == Rule::fact_path {
            path = Some(parse_segments(part.as_str()).ok()?);
        } else if part.as_rule() == Rule::fallback {
            let string = part.into_inner().next()?;
            fallback = Some(serde_json::from_str(string.as_str()).ok()?);
        }
    }
    let span = Span::new(source, start, start + raw.len());
    Some(Placeholder { path: path?, fallback, raw: raw.to_owned(), span })
}

/// Returns the placeholder whose `${` is at `open`; `None` if it is not well-formed. The search for the end stops at
/// the first byte that cannot belong to a placeholder, so a text with many `${` takes linear time.
fn parse_placeholder(source: SourceId, text: &str, base: usize, open: usize) -> Option<Placeholder> {
    let end = placeholder_end(text.as_bytes(), open)?;
    let pair = TemplateParser::parse(Rule::placeholder, text.get(open..end)?).ok()?.next()?;
    let placeholder = read_placeholder(source, base + open, &pair)?;
    (placeholder.raw.len() == end - open).then_some(placeholder)
}

/// Returns the offset after the `}` of the placeholder whose `${` is at `open`. `None` if the placeholder is too long,
/// or if a byte before the `}` cannot belong to a placeholder (such as a newline).
fn placeholder_end(bytes: &[u8], open: usize) -> Option<usize> {
    let mut in_string = false;
    let mut escaped = false;
    let mut pipes = 0;
    for (offset, byte) in bytes.get(open + 2..)?.iter().take(MAX_PLACEHOLDER_BYTES).enumerate() {
        match byte {
            b'\n' => return None,
            _ if in_string => {
                in_string = escaped || *byte != b'"';
                escaped = !escaped && *byte == b'\\';
            }
            b'}' => return Some(open + 2 + offset + 1),
            b'"' if pipes == 2 => {
                in_string = true;
                pipes = 3;
            }
            b'|' if pipes < 2 => pipes += 1,
            b' ' => {}
            b'.' | b'_' | b'-' if pipes == 0 => {}
            b if b.is_ascii_alphanumeric() && pipes == 0 => {}
            _ => return None,
        }
    }
    None
}

fn read_input(source: SourceId, start: usize, pair: &Pair<'_, Rule>) -> Option<InputPlaceholder> {
    let mut name = None;
    let mut when_missing = WhenMissing::Refuse;
    for part in pair.clone().into_inner() {
        if part.as_rule() == Rule::input_name {
            name = Some(part.as_str().to_owned());
        } else if part.as_rule() == Rule::optional {
            when_missing = WhenMissing::Empty;
        } else if part.as_rule() == Rule::default {
            when_missing = WhenMissing::Default(part.into_inner().next()?.as_str().to_owned());
        }
    }
    Some(InputPlaceholder { name: name?, when_missing, span: Span::new(source, start, start + pair.as_str().len()) })
}

/// Returns the error for a malformed placeholder at `open`. `at` is the offset at which the parser stopped, relative to
/// `open`.
fn placeholder_error(source: SourceId, base: usize, text: &str, open: usize, at: usize) -> SyntaxError {
    let line = placeholder_window(text, open);
    let rest = line.get(at.min(line.len())..).unwrap_or_default();
    let closed = line.contains('}');
    let inside = line.get(2..at.max(2)).unwrap_or_default();
    let (message, label, help) = if !closed {
        (
            "`${` is never closed".to_owned(),
            "opened here".to_owned(),
            "close the placeholder with `}`, or write `$${` for a literal `${`",
        )
    } else if rest.starts_with('}') && inside.trim().is_empty() {
        ("empty placeholder".to_owned(), "empty".to_owned(), "name a fact: `${cost.spend}`; `$${` is a literal `${`")
    } else if inside.contains("||") {
        (
            "the fallback of a placeholder must be a string in double quotes".to_owned(),
            "no such string here".to_owned(),
            "write `${path || \"text\"}`, with `\\\"` for a quote inside",
        )
    } else {
        let found = rest.chars().next().map_or_else(|| "the end".to_owned(), describe_char);
        let placeholder = line.split_inclusive('}').next().unwrap_or(line);
        (
            format!("`{}` is not a valid placeholder", shorten(placeholder)),
            format!("{found} is not allowed here"),
            "a placeholder has a path and an optional fallback: `${cost.spend || \"0\"}`",
        )
    };
    let at = if closed { open + at.min(line.len()) } else { open };
    let len = if closed { rest.chars().next().map_or(0, char::len_utf8) } else { 2 };
    SyntaxKind::Template.error(Span::new(source, base + at, base + at + len), message, label).with_help(help)
}

fn input_error(source: SourceId, base: usize, text: &str, open: usize, at: usize) -> SyntaxError {
    let window = input_window(text, open);
    let rest = window.get(at.min(window.len())..).unwrap_or_default();
    let closed = window.ends_with('}');
    let (message, label) = if closed {
        let found = rest.chars().next().map_or_else(|| "the end".to_owned(), describe_char);
        (format!("`{}` is not a valid input placeholder", shorten(window)), format!("{found} is not allowed here"))
    } else {
        ("`{input:` is never closed".to_owned(), "opened here".to_owned())
    };
    let (at, len) = if closed {
        (open + at.min(window.len()), rest.chars().next().map_or(0, char::len_utf8))
    } else {
        (open, "{input:".len())
    };
    SyntaxKind::Template
        .error(Span::new(source, base + at, base + at + len), message, label)
        .with_help("write `{input:name}`, `{input:name?}` or `{input:name:default}`; `\\{input:` is literal")
}
