//! Tool headers: metadata read from a tool file without running it.

use crate::Parsed;
use crate::data::{Kind, Node};
use crate::error::SyntaxError;
use crate::markdown::lines;
use crate::signature::{self, SignatureLine};
use crate::span::{SourceId, Span, Spanned};
use crate::yaml;

/// The metadata of a tool as one mapping, whatever the language of its file; keys as in YAML tools.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolTree {
    pub signature: Option<Spanned<SignatureLine>>,
    pub metadata: Node,
}

/// The language a tool is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolLanguage {
    /// `.yaml`, `.yml`: the whole file is the metadata.
    Yaml,
    /// `.sh`: a `# rye: {…}` comment in the header.
    Shell,
    /// `.py`: module constants, not read yet.
    Python,
    /// `.js`, `.mjs`, `.ts`: exported constants, not read yet.
    JavaScript,
}

/// Reads the metadata of a tool file (`language.md` 2). Python and JavaScript tools answer an empty mapping: their
/// constants are read from the syntax tree once there is a reader for it, and never guessed from the text.
pub fn parse(source: SourceId, text: &str, language: ToolLanguage) -> Parsed<ToolTree> {
    let signature = signature::parse(source, text);
    let start = signature::content_start(signature.as_ref());
    let empty = |at: usize| Node::new(Kind::Map(Vec::new()), Span::new(source, at, at));
    let metadata = match language {
        ToolLanguage::Yaml => yaml::parse_at(source, text.get(start..).unwrap_or_default(), start),
        ToolLanguage::Shell => match shell_header(text, start) {
            Some(header) => yaml::parse_at(source, &header.yaml, header.start),
            None => Parsed::clean(empty(start)),
        },
        ToolLanguage::Python | ToolLanguage::JavaScript => Parsed::clean(empty(start)),
    };
    let mut errors = metadata.errors;
    let metadata = match metadata.tree {
        node @ Node { kind: Kind::Map(_), .. } => node,
        node => {
            if node.kind != Kind::Null {
                errors.push(SyntaxError::Yaml {
                    message: format!("the metadata of a tool is a mapping, not {}", node.describe()),
                    span: node.span,
                    label: "not a mapping".into(),
                    help: Some("write `description: …` and what else the tool declares".into()),
                });
            }
            empty(node.span.range().start)
        }
    };
    Parsed { tree: ToolTree { signature, metadata }, errors }
}

struct Header {
    yaml: String,
    start: usize,
}

/// The `# rye:` comment among the comments and blank lines a script begins with. Comment lines that continue it read
/// as if their `#` were a space, so that every byte keeps its place.
fn shell_header(text: &str, start: usize) -> Option<Header> {
    let mut header: Option<Header> = None;
    for line in lines(text, start) {
        let content = text.get(line.content()).unwrap_or_default();
        let Some(comment) = content.trim_start().strip_prefix('#') else {
            if header.is_none() && content.trim().is_empty() {
                continue;
            }
            break;
        };
        match &mut header {
            None => {
                let Some(yaml) = comment.trim_start().strip_prefix("rye:") else { continue };
                // `rye:signed:` is a signature line out of place, not metadata.
                if !yaml.is_empty() && !yaml.starts_with([' ', '\t', '{']) {
                    continue;
                }
                header = Some(Header { yaml: yaml.to_owned(), start: line.content_end - yaml.len() });
            }
            Some(header) => {
                let complete = !header.yaml.trim().is_empty() && brackets(&header.yaml) == 0;
                let block = header.yaml.trim_start().is_empty() || !header.yaml.trim_start().starts_with('{');
                let indented = comment.starts_with("  ") || comment.starts_with(" \t");
                if complete && !(block && indented) {
                    break;
                }
                let gap = line.start - (header.start + header.yaml.len());
                header.yaml.push_str(if gap == 2 { "\r\n" } else { "\n" });
                let indent = content.len() - comment.len();
                header.yaml.push_str(&" ".repeat(indent));
                header.yaml.push_str(comment);
            }
        }
    }
    header
}

/// How many brackets a text leaves open, strings left out.
fn brackets(text: &str) -> usize {
    let mut open = 0usize;
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '{' | '[') => open += 1,
            (None, '}' | ']') => open = open.saturating_sub(1),
            (Some(_) | None, _) => {}
        }
    }
    open
}
