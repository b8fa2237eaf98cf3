//! The front matter of prompt templates and skills. A file in `.ai/` must have valid YAML and only known keys. A file
//! of another client is read as far as possible, and faults are reported as warnings.

use std::collections::BTreeMap;

use rye_grammar::data::{Kind, Node};
use rye_grammar::knowledge::{self, KnowledgeFormat};
use rye_grammar::{Span, Spanned, signature};

use super::{FileRef, data};
use crate::diagnostics::{Diagnostics, ItemError};

/// The metadata and the body of a file.
pub struct FrontMatter<'t> {
    text: &'t str,
    is_own: bool,
    /// True if the file is in `.ai/` and its front matter cannot be parsed. The error is reported.
    pub is_broken: bool,
    /// True if the front matter cannot be parsed. The error is reported: as a syntax error for a file in `.ai/`, else
    /// as `ItemError::InvalidFrontMatter`.
    pub has_errors: bool,
    metadata: Option<Node>,
    /// The `key: value` lines of front matter that is not valid YAML, in files of other clients.
    lines: BTreeMap<&'t str, Spanned<String>>,
    /// The text after the front matter, trimmed.
    pub body: Spanned<String>,
}

/// Returns true for a file in `.ai/`, false for a file of another client.
pub fn is_own(file: &FileRef) -> bool {
    file.path.starts_with(file.kind.folder())
}

/// Returns an error for front matter whose opening line is missing or is not `---`, so that the front matter is sent as
/// text. `None` for any other text.
pub fn unread_front_matter(file: &FileRef, text: &str) -> Option<ItemError> {
    const KEYS: [&str; 9] =
        ["id", "name", "title", "description", "category", "tags", "version", "entry_type", "argument-hint"];
    let is_pair = |line: &str, mark: char| line.split_once(mark).is_some_and(|(key, _)| KEYS.contains(&key.trim_end()));
    let start = signature::parse(file.source, text).map_or(0, |line| line.node.content_start);
    let content = text.get(start..)?;
    let trimmed = content.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
    let at = start + content.len() - trimmed.len();
    let mut lines = trimmed.lines().map(str::trim_end);
    let first = lines.next().filter(|first| *first != "---")?;
    let is_mark = first.chars().count() > 1 && first.chars().all(|c| matches!(c, '-' | '+' | '\u{2013}' | '\u{2014}'));
    let (is_unread, help) = if is_mark {
        let has_pair = lines.next().is_some_and(|line| is_pair(line, ':') || is_pair(line, '='));
        let is_closed = lines.any(|line| line == first || line == "---");
        (has_pair && is_closed, "write the metadata as YAML, between two lines of `---`")
    } else {
        let is_inside = |line: &&str| line.starts_with([' ', '-']) && *line != "---" || line.contains(':');
        let mut after = || lines.find(|line| !is_inside(line));
        (is_pair(first, ':') && after() == Some("---"), "write a line `---` before the metadata too")
    };
    is_unread.then(|| ItemError::FrontMatter {
        mark: first.to_owned(),
        kind: file.kind,
        because: "sent to the model as text",
        help,
        span: Span::new(file.source, at, at + first.len()),
    })
}

impl<'t> FrontMatter<'t> {
    /// Reads the front matter of a file. `known` are the allowed keys in a file of `.ai/`. In a file of another client,
    /// all keys are allowed.
    pub fn read(file: &FileRef, text: &'t str, known: &[&str], found: &mut Diagnostics) -> Self {
        let parsed = knowledge::parse(file.source, text, KnowledgeFormat::FrontMatter);
        found.extend(unread_front_matter(file, text));
        let (is_own, metadata) = (is_own(file), parsed.tree.metadata);
        let mut lines = BTreeMap::new();
        let has_errors = !parsed.errors.is_empty();
        let is_broken = is_own && has_errors;
        if is_own {
            found.syntax(parsed.errors);
            let entries = metadata.as_ref().map(Node::entries).unwrap_or_default();
            data::check_keys(found, entries, known, &format!("the front matter of a {}", file.kind.as_str()));
        } else {
            if !parsed.errors.is_empty() {
                let start = signature::parse(file.source, text).map_or(0, |line| line.node.content_start);
                lines = plain_lines(file, text, start);
            }
            found.extend(parsed.errors.into_iter().map(|error| ItemError::InvalidFrontMatter {
                kind: file.kind,
                reason: error.message,
                help: error.help,
                span: error.span,
            }));
        }
        Self { text, is_own, is_broken, has_errors, metadata, lines, body: parsed.tree.body }
    }

    /// Returns the value of a key as text; `None` if the key is missing or its value is empty. If the value is not a
    /// string, the result depends on the file: in a file of `.ai/`, reports the value and returns `None`; in any other
    /// file, returns the source text of the value.
    pub fn string(&self, key: &str, found: &mut Diagnostics) -> Option<Spanned<String>> {
        let value = match self.node(key) {
            Some(node) if self.is_own => data::read_string(found, key, node),
            Some(node) => Some(Spanned::new(self.raw(node), node.span)),
            None => self.lines.get(key).cloned(),
        };
        value.filter(|value| !value.node.trim().is_empty())
    }

    /// Returns true if the key is set to `true`. In a file in `.ai/`, reports a value that is not a boolean.
    pub fn flag(&self, key: &str, found: &mut Diagnostics) -> bool {
        match self.node(key) {
            Some(node) if self.is_own => data::read_bool(found, key, node) == Some(true),
            Some(node) => matches!(node.kind, Kind::Bool(true)) || node.as_str() == Some("true"),
            None => self.lines.get(key).is_some_and(|value| value.node == "true"),
        }
    }

    /// Returns the value of a key as text: the content of a string, or the source text of any other value (such as `[a,
    /// b]`). `None` if the key is missing.
    pub fn written(&self, key: &str) -> Option<Spanned<String>> {
        match self.node(key) {
            Some(node) => Some(Spanned::new(self.raw(node), node.span)),
            None => self.lines.get(key).cloned(),
        }
    }

    fn node(&self, key: &str) -> Option<&Node> {
        self.metadata.as_ref()?.get(key).filter(|node| !matches!(node.kind, Kind::Null))
    }

    /// Returns the text of a string node, or the source text of a node of another type, such as `[file]`.
    fn raw(&self, node: &Node) -> String {
        let written = || self.text.get(node.span.range()).unwrap_or_default().trim().to_owned();
        node.as_str().map_or_else(written, str::to_owned)
    }
}

/// Returns the `key: value` lines between the first two `---` lines, without surrounding quotes.
fn plain_lines<'t>(file: &FileRef, text: &'t str, start: usize) -> BTreeMap<&'t str, Spanned<String>> {
    let mut found = BTreeMap::new();
    let (mut at, mut opened) = (start, false);
    for line in text.get(start..).unwrap_or_default().split_inclusive('\n') {
        let from = at;
        at += line.len();
        let line = line.trim_end();
        match (opened, line) {
            (false, "") => {}
            (false, "---") => opened = true,
            (false, _) | (true, "---" | "...") => break,
            (true, _) => {
                let Some((key, value)) = line.split_once(':').filter(|(key, _)| !key.starts_with([' ', '\t', '#']))
                else {
                    continue;
                };
                let value_at = from + key.len() + 1 + (value.len() - value.trim_start().len());
                let value = value.trim();
                let span = Span::new(file.source, value_at, value_at + value.len());
                found.entry(key).or_insert_with(|| Spanned::new(unquote(value).to_owned(), span));
            }
        }
    }
    found
}

fn unquote(value: &str) -> &str {
    let inside = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).unwrap_or(value)
}
