//! The grammar of a directive file: the Markdown shell, the XML fence, the body (`language.md`, Directives). The
//! compiler checks the elements inside the fence.

use std::ops::Range;

use crate::Parsed;
use crate::error::{SyntaxError, SyntaxKind};
use crate::markdown::{Fence, find_fences, lines};
use crate::signature::{self, SignatureLine};
use crate::span::{SourceId, Span, Spanned};
use crate::text::{control_character, describe_char};
use crate::xml::{self, Element};

/// The names of the elements of a directive. If a misspelling makes a start tag and its end tag differ, the parser
/// takes the name in this list to be the right one.
pub(crate) const ELEMENTS: [&str; 42] = [
    "directive",
    "metadata",
    "description",
    "category",
    "author",
    "model",
    "limits",
    "session",
    "context",
    "permissions",
    "hooks",
    "continuation_directive",
    "nudge",
    "inputs",
    "input",
    "outputs",
    "output",
    "item",
    "field",
    "process",
    "execute",
    "fetch",
    "sign",
    "search",
    "load",
    "acknowledge",
    "tool",
    "knowledge",
    "skill",
    "system",
    "before",
    "after",
    "suppress",
    "hook",
    "event",
    "condition",
    "action",
    "params",
    "position",
    "layer",
    "wrap",
    "grants",
];

#[derive(Debug, Clone, PartialEq)]
pub struct DirectiveTree {
    pub signature: Option<Spanned<SignatureLine>>,
    /// The text of the first `# heading` before the XML fence; `None` if there is no such heading.
    pub title: Option<Spanned<String>>,
    /// The prose between the title and the fence, trimmed. The prose is the description of the directive if
    /// `<description>` is missing.
    pub prose: Option<Spanned<String>>,
    /// The root element of the XML fence; `None` if there is no fence or the fence cannot be parsed.
    pub root: Option<Element>,
    /// The span of the XML fence, from its opening backticks to the end of its closing line; `None` if there is no
    /// fence.
    pub fence: Option<Span>,
    /// True if errors made the parser leave parts of the fence out of the tree. A declaration that is missing from the
    /// tree is then not reported as a further error.
    pub is_incomplete: bool,
    /// The text after the fence, verbatim except for leading blank lines and trailing white space.
    pub body: Spanned<String>,
}

/// Parses a directive file. Of several fences that hold a `<directive>`, the first one is read, and every other one is
/// an error.
pub fn parse(source: SourceId, text: &str) -> Parsed<DirectiveTree> {
    let signature = signature::parse(source, text);
    let start = signature::content_start(signature.as_ref());
    let mut errors = Vec::new();
    let all = find_fences(text, start);
    let real = choose_metadata_fence(source, text, &all, &mut errors);
    let whole = real.map(|fence| fence.whole.clone());
    let mut is_incomplete = false;
    let (root, fence, body) = match real {
        Some(fence) => {
            let content = fence.content.clone();
            let body = fence.whole.end..text.len();
            let xml = xml::parse(source, text, xml_range(text, fence, content), &ELEMENTS);
            is_incomplete = xml.errors.iter().any(|error| error.loses_content);
            // An unclosed fence also contains the body. XML errors in the body are meaningless, so only the missing end
            // of the fence is reported.
            if fence.closed || xml.tree.is_some() && xml.errors.is_empty() {
                errors.extend(xml.errors);
            }
            check_root(source, fence, xml.tree.as_ref(), &mut errors);
            (xml.tree, Some(span(source, &fence.whole)), body)
        }
        None => (None, None, text.len()..text.len()),
    };
    let before = start..whole.as_ref().map_or(text.len(), |w| w.start);
    check_control_characters(source, text, &before, &mut errors);
    check_control_characters(source, text, &body, &mut errors);
    let (title, prose) = heading_and_prose(source, text, before, &all);
    let body = trim_range(source, text, body);
    Parsed { tree: DirectiveTree { signature, title, prose, root, fence, is_incomplete, body }, errors }
}

fn span(source: SourceId, range: &Range<usize>) -> Span {
    Span::new(source, range.start, range.end)
}

fn slice<'t>(text: &'t str, range: &Range<usize>) -> &'t str {
    text.get(range.clone()).unwrap_or_default()
}

/// Returns the metadata fence: the first `xml` fence with a `<directive>`, else the first `xml` fence. `None` if there
/// is no `xml` fence. Reports a missing, an unclosed and a second metadata fence.
fn choose_metadata_fence<'f>(
    source: SourceId,
    text: &str,
    all: &'f [Fence],
    errors: &mut Vec<SyntaxError>,
) -> Option<&'f Fence> {
    let xml = || all.iter().filter(|fence| fence.language == "xml");
    let mut directives = xml().filter(|fence| root_name(slice(text, &fence.content)) == Some("directive"));
    let first = directives.next();
    if let Some(first) = first {
        for extra in directives {
            errors.push(
                SyntaxKind::Fence
                    .error(span(source, &extra.opening), "a second fence contains a `<directive>`", "the second one")
                    .with_help("keep one directive; to show an example, use a longer fence such as ````markdown")
                    .with_secondary(span(source, &first.opening)),
            );
        }
    }
    let fence = first.or_else(|| xml().next());
    match fence {
        None => errors.push(missing_fence_error(source, text, all)),
        Some(fence) if !fence.closed => errors.push(
            SyntaxKind::Fence
                .error(span(source, &fence.opening), "the metadata fence is never closed", "opened here")
                .with_help("add a line of three backticks after `</directive>`"),
        ),
        Some(_) => {}
    }
    fence
}

fn missing_fence_error(source: SourceId, text: &str, all: &[Fence]) -> SyntaxError {
    let message = "a directive needs one ```xml fence with `<directive>`".to_owned();
    let (at, label, help) = if let Some(open) = all.iter().find(|fence| !fence.closed) {
        (
            open.opening.clone(),
            "this fence is never closed, so the rest of the file belongs to it",
            "close the fence before the metadata",
        )
    } else if let Some(other) = all.iter().find(|f| root_name(slice(text, &f.content)) == Some("directive")) {
        (other.opening.clone(), "this fence is not marked `xml`", "start it with ```xml")
    } else {
        let end = text.find('\n').unwrap_or(text.len());
        let has_front_matter = text.trim_start_matches('\u{feff}').starts_with("---");
        let help = if has_front_matter {
            "front matter is the format of other clients: write its keys in a ```xml fence instead, `<directive name=\"…\"><metadata><description>…</description><model tier=\"…\"/><permissions>…</permissions></metadata></directive>`"
        } else {
            "write the metadata between ```xml and ``` lines: `<directive name=\"…\"/>` at least"
        };
        (0..end, "no fence with a directive in this file", help)
    };
    let span = span(source, &at);
    SyntaxKind::Fence.error(span, message, label).with_help(help)
}

fn check_root(source: SourceId, fence: &Fence, root: Option<&Element>, errors: &mut Vec<SyntaxError>) {
    if let Some(root) = root.filter(|root| root.name.node != "directive") {
        errors.push(
            SyntaxKind::Fence
                .error(
                    root.name.span,
                    format!("the metadata fence contains `<{}>`, not `<directive>`", root.name.node),
                    "this is the root",
                )
                .with_help("the root element of a directive is `<directive name=\"…\">`"),
        );
    } else if root.is_none() && errors.is_empty() {
        errors.push(SyntaxKind::Fence.error(
            span(source, &fence.opening),
            "the metadata fence is empty",
            "contains no `<directive>`",
        ));
    }
}

/// Returns the part of a fence to parse as XML: all of it, or up to the end of the element if the fence is never
/// closed.
fn xml_range(text: &str, fence: &Fence, content: Range<usize>) -> Range<usize> {
    const END: &str = "</directive>";
    if fence.closed {
        return content;
    }
    let end = slice(text, &content).find(END).map_or(content.end, |at| content.start + at + END.len());
    content.start..end
}

/// Returns the name of the first element, after any comments, declarations and text; `None` if there is no element.
fn root_name(xml: &str) -> Option<&str> {
    let mut rest = xml;
    loop {
        rest = rest.get(rest.find('<')? + 1..)?;
        let close = match rest.as_bytes().first()? {
            b'!' if rest.starts_with("!--") => "-->",
            b'!' => ">",
            b'?' => "?>",
            _ => {
                let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '>' | '/' | '<')).unwrap_or(rest.len());
                return rest.get(..end);
            }
        };
        rest = rest.get(rest.find(close)? + close.len()..)?;
    }
}

fn check_control_characters(source: SourceId, text: &str, range: &Range<usize>, errors: &mut Vec<SyntaxError>) {
    if let Some((at, c)) = control_character(slice(text, range)) {
        errors.push(
            SyntaxKind::Fence
                .error(
                    Span::new(source, range.start + at.start, range.start + at.end),
                    format!("{} is not allowed in the text", describe_char(c)),
                    "text files cannot contain this character",
                )
                .with_help("remove it"),
        );
    }
}

fn heading_and_prose(
    source: SourceId,
    text: &str,
    before: Range<usize>,
    fences: &[Fence],
) -> (Option<Spanned<String>>, Option<Spanned<String>>) {
    let shell = text.get(..before.end).unwrap_or(text);
    let title = lines(shell, before.start).find_map(|line| {
        // Fences are in order, so a binary search finds the fence that may contain this line.
        let next = fences.partition_point(|fence| fence.whole.end <= line.start);
        if fences.get(next).is_some_and(|fence| fence.whole.start <= line.start) {
            return None;
        }
        let content = shell.get(line.content())?;
        let heading = content.strip_prefix("# ")?;
        let inner = heading.trim().trim_end_matches('#').trim_end();
        let start = line.content_end - heading.trim_start().len();
        Some((Spanned::new(inner.to_owned(), Span::new(source, start, start + inner.len())), line.end))
    });
    let (title, prose_start) = match title {
        Some((title, end)) => (Some(title), end),
        None => (None, before.start),
    };
    let prose = trim_range(source, shell, prose_start..before.end);
    let prose = prose.map(|p| p.trim_start().to_owned());
    (title.filter(|t| !t.node.is_empty()), (!prose.node.is_empty()).then_some(prose))
}

/// Returns the text in `range`, with its span. Neither contains leading blank lines or trailing white space.
fn trim_range(source: SourceId, text: &str, range: Range<usize>) -> Spanned<String> {
    let inside = slice(text, &range).trim_end();
    let end = range.start + inside.len();
    let shell = text.get(..end).unwrap_or_default();
    let start = lines(shell, range.start)
        .find(|line| shell.get(line.content()).is_some_and(|l| !l.trim().is_empty()))
        .map_or(end, |line| line.start);
    Spanned::new(slice(text, &(start..end)).to_owned(), Span::new(source, start, end))
}
