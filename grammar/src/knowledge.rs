//! The grammar of a knowledge file: metadata (YAML fence, front matter, or a pure YAML file) and the body to inject.

use crate::Parsed;
use crate::data::{Kind, Node};
use crate::error::{SyntaxError, SyntaxKind};
use crate::markdown::{find_fences, lines};
use crate::signature::{self, SignatureLine};
use crate::span::{SourceId, Span, Spanned};
use crate::text::{control_character, describe_char};
use crate::yaml;

#[derive(Debug, Clone, PartialEq)]
pub struct KnowledgeTree {
    pub signature: Option<Spanned<SignatureLine>>,
    /// The metadata mapping; `None` if the file has none.
    pub metadata: Option<Node>,
    /// The text to inject: without signature and metadata, trimmed.
    pub body: Spanned<String>,
}

/// The format of a knowledge file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnowledgeFormat {
    /// `.md`: metadata in a first ```` ```yaml ```` fence or in `---` front matter, then the body.
    Markdown,
    /// `.yaml`, `.yml`: one mapping, which is metadata and body at once.
    Yaml,
    /// `.md` of a prompt template or a skill: metadata in `---` front matter only, then the body.
    FrontMatter,
}

/// Parses a knowledge file (`language.md`, Knowledge).
///
/// In Markdown, the metadata fence is the file's first fence and precedes any prose, except headings and comments. A
/// later ```` ```yaml ```` fence is an example. Of a YAML file, the whole text below the signature is injected.
pub fn parse(source: SourceId, text: &str, format: KnowledgeFormat) -> Parsed<KnowledgeTree> {
    let signature = signature::parse(source, text);
    let start = signature::content_start(signature.as_ref());
    let mut errors = Vec::new();
    if format != KnowledgeFormat::Yaml
        && let Some((at, c)) = text.get(start..).and_then(control_character)
    {
        errors.push(fence_error(
            Span::new(source, start + at.start, start + at.end),
            format!("{} is not allowed in the text", describe_char(c)),
            "text files cannot contain this character",
            "remove it",
        ));
    }
    let (metadata, before, after) = match format {
        KnowledgeFormat::Yaml => {
            let parsed = yaml::parse_at(source, text.get(start..).unwrap_or_default(), start);
            errors.extend(parsed.errors);
            (Some(parsed.tree), start..start, start..text.len())
        }
        KnowledgeFormat::Markdown | KnowledgeFormat::FrontMatter => {
            match find_metadata(source, text, start, format, &mut errors) {
                Some(found) => {
                    let yaml = text.get(found.yaml.clone()).unwrap_or_default();
                    let parsed = yaml::parse_at(source, yaml, found.yaml.start);
                    errors.extend(parsed.errors);
                    (Some(parsed.tree), start..found.whole.start, found.whole.end..text.len())
                }
                None => (None, start..start, start..text.len()),
            }
        }
    };
    let metadata = metadata.and_then(|node| require_mapping(node, &mut errors));
    let body = join_body(source, text, before, after);
    Parsed { tree: KnowledgeTree { signature, metadata, body }, errors }
}

struct MetadataRange {
    yaml: std::ops::Range<usize>,
    whole: std::ops::Range<usize>,
}

fn find_metadata(
    source: SourceId,
    text: &str,
    start: usize,
    format: KnowledgeFormat,
    errors: &mut Vec<SyntaxError>,
) -> Option<MetadataRange> {
    let front = front_matter(source, text, start, errors);
    if front.is_some() || format == KnowledgeFormat::FrontMatter {
        return front;
    }
    let fence = find_fences(text, start).into_iter().next()?;
    let yaml = matches!(fence.language.as_str(), "yaml" | "yml");
    if !yaml || !only_headings(text.get(start..fence.whole.start)?) {
        return None;
    }
    if !fence.closed {
        errors.push(fence_error(
            Span::new(source, fence.opening.start, fence.opening.end),
            "the metadata fence is never closed".into(),
            "opened here",
            "add a line of three backticks after the metadata",
        ));
    }
    Some(MetadataRange { yaml: fence.content, whole: fence.whole })
}

/// Finds front matter: from `---` on the first non-blank line to the next `---` or `...` line. `None` if there is no
/// front matter. Front matter that is never closed is reported and not returned.
fn front_matter(source: SourceId, text: &str, start: usize, errors: &mut Vec<SyntaxError>) -> Option<MetadataRange> {
    let mut all = lines(text, start).map(|line| (line, text.get(line.content()).unwrap_or_default().trim_end()));
    let (open, _) = all.by_ref().find(|(_, content)| !content.is_empty()).filter(|(_, content)| *content == "---")?;
    let close = all.find(|(_, content)| matches!(*content, "---" | "..."));
    let Some((close, _)) = close else {
        errors.push(fence_error(
            Span::new(source, open.start, open.content_end),
            "the front matter is never closed".into(),
            "opened here",
            "add a `---` line after the metadata; if the first line is a horizontal rule, write it as `***`",
        ));
        return None;
    };
    Some(MetadataRange { yaml: open.end..close.start, whole: open.start..close.end })
}

fn only_headings(before: &str) -> bool {
    let mut rest = before.trim_start();
    while !rest.is_empty() {
        let end = if rest.starts_with("<!--") {
            rest.find("-->").map(|at| at + 3)
        } else if rest.starts_with('#') {
            Some(rest.find('\n').unwrap_or(rest.len()))
        } else {
            None
        };
        match end.and_then(|end| rest.get(end..)) {
            Some(after) => rest = after.trim_start(),
            None => return false,
        }
    }
    true
}

fn require_mapping(node: Node, errors: &mut Vec<SyntaxError>) -> Option<Node> {
    match &node.kind {
        Kind::Map(_) => Some(node),
        Kind::Null => None,
        Kind::Bool(_) | Kind::Number(_) | Kind::String(_) | Kind::List(_) => {
            errors.push(
                SyntaxKind::Yaml
                    .error(node.span, format!("metadata must be a mapping, not {}", node.describe()), "not a mapping")
                    .with_help("write `name: value` lines"),
            );
            None
        }
    }
}

/// Joins the text before and after the metadata with a blank line.
fn join_body(
    source: SourceId,
    text: &str,
    before: std::ops::Range<usize>,
    after: std::ops::Range<usize>,
) -> Spanned<String> {
    let head = text.get(before.clone()).unwrap_or_default().trim();
    let tail = text.get(after.clone()).unwrap_or_default();
    let trimmed = tail.trim();
    let start = after.start + (tail.len() - tail.trim_start().len());
    let span = Span::new(source, start, start + trimmed.len());
    if head.is_empty() {
        return Spanned::new(trimmed.to_owned(), span);
    }
    let lead = before.start + text.get(before).map_or(0, |b| b.len() - b.trim_start().len());
    let span = Span::new(source, lead, span.range().end);
    if trimmed.is_empty() {
        return Spanned::new(head.to_owned(), Span::new(source, lead, lead + head.len()));
    }
    Spanned::new(format!("{head}\n\n{trimmed}"), span)
}

fn fence_error(span: Span, message: String, label: &str, help: &str) -> SyntaxError {
    SyntaxKind::Fence.error(span, message, label).with_help(help)
}
