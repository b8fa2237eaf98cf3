//! The layout of an element: one element per line, two spaces per level, attributes on one line if they fit. Text,
//! comments, and elements next to text stay unchanged byte for byte.

use rye_grammar::xml::{Element, XmlNode};

/// Maximum width of a line in characters; longer lines are broken between attributes where possible.
const MAX_LINE_CHARS: usize = 100;
const INDENT: usize = 2;

/// Elements whose content is part of the prompt, so that formatting copies it unchanged.
const VERBATIM_ELEMENTS: [&str; 1] = ["process"];

/// Writes an element of `text` to `out`. The first line continues the current line of `out`. Later lines are indented
/// by `indent` spaces or more. Content that is part of the prompt stays as written.
pub fn write(text: &str, element: &Element, indent: usize, out: &mut String) {
    if let Some(line) = inline(text, element)
        && !line.contains('\n')
        && indent + line.chars().count() <= MAX_LINE_CHARS
    {
        out.push_str(&line);
        return;
    }
    out.push_str(&start_tag(text, element, indent));
    if element.children.is_empty() {
        return;
    }
    if is_verbatim(element) {
        out.push_str(inner_text(text, element));
    } else {
        write_children(text, element, indent + INDENT, out);
        new_line(indent, out);
    }
    out.push_str("</");
    out.push_str(&element.name.node);
    out.push('>');
}

/// Writes the children of an element that contains no text of its own, each child on its own line. One blank line
/// between two children stays, and a trailing comment stays on its line.
fn write_children(text: &str, element: &Element, indent: usize, out: &mut String) {
    let mut gap = "";
    let mut is_first = true;
    for child in &element.children {
        let beside = matches!(child, XmlNode::Comment(_)) && !gap.contains('\n') && !is_first;
        if let XmlNode::Text(blank) = child {
            gap = text.get(blank.span.range()).unwrap_or("\n");
            continue;
        }
        if beside {
            out.push(' ');
        } else {
            if gap.matches('\n').count() > 1 && !is_first {
                out.push('\n');
            }
            new_line(indent, out);
        }
        match child {
            XmlNode::Comment(comment) => out.push_str(text.get(comment.span.range()).unwrap_or_default()),
            XmlNode::Element(child) => write(text, child, indent, out),
            XmlNode::Text(_) => {}
        }
        (gap, is_first) = ("", false);
    }
}

fn new_line(indent: usize, out: &mut String) {
    out.push('\n');
    out.push_str(&" ".repeat(indent));
}

/// Returns the whole element on one line, if the element is empty or its author wrote it on one line; otherwise `None`.
fn inline(text: &str, element: &Element) -> Option<String> {
    let mut out = start_tag(text, element, 0);
    if element.children.is_empty() {
        return Some(out);
    }
    let inner = inner_text(text, element);
    if inner.contains('\n') {
        return None;
    }
    if is_verbatim(element) {
        out.push_str(inner);
    } else {
        for child in &element.children {
            match child {
                XmlNode::Text(_) => out.push(' '),
                XmlNode::Comment(comment) => out.push_str(text.get(comment.span.range())?),
                XmlNode::Element(child) => out.push_str(&inline(text, child)?),
            }
        }
    }
    out.push_str("</");
    out.push_str(&element.name.node);
    out.push('>');
    Some(out)
}

/// Returns true if the formatter must not change the content of an element: the content has text or is blank, or the
/// element is part of the prompt.
fn is_verbatim(element: &Element) -> bool {
    let text = |n: &XmlNode| matches!(n, XmlNode::Text(t) if !t.node.trim().is_empty());
    VERBATIM_ELEMENTS.contains(&element.name.node.as_str())
        || element.children.iter().any(text)
        || element.children.iter().all(|n| matches!(n, XmlNode::Text(_)))
}

/// Returns the start tag, which ends in `/>` if the element is empty.
fn start_tag(text: &str, element: &Element, indent: usize) -> String {
    let attributes: Vec<String> = element.attributes.iter().map(|a| format_attribute(text, a)).collect();
    let end = if element.children.is_empty() { "/>" } else { ">" };
    let one_line = std::iter::once(format!("<{}", element.name.node)).chain(attributes.iter().cloned());
    let one_line = format!("{}{end}", one_line.collect::<Vec<_>>().join(" "));
    if attributes.len() < 2 || indent + one_line.chars().count() <= MAX_LINE_CHARS {
        return one_line;
    }
    let mut out = format!("<{}", element.name.node);
    for attribute in &attributes {
        new_line(indent + INDENT, &mut out);
        out.push_str(attribute);
    }
    out.push_str(end);
    out
}

/// Returns the attribute with its value as spelled, including entities, in double quotes if possible.
fn format_attribute(text: &str, attribute: &rye_grammar::xml::Attribute) -> String {
    let raw = text.get(attribute.value.span.range()).unwrap_or(&attribute.value.node);
    let quote = if raw.contains('"') { '\'' } else { '"' };
    format!("{}={quote}{raw}{quote}", attribute.name.node)
}

/// Returns the content between the tags, byte for byte.
fn inner_text<'t>(text: &'t str, element: &Element) -> &'t str {
    let from = start_tag_end(text, element);
    let whole = text.get(from..element.span.end as usize).unwrap_or_default();
    whole.rfind("</").and_then(|end| whole.get(..end)).unwrap_or_default()
}

/// Returns the byte offset in `text` directly after the start tag of the element.
pub fn start_tag_end(text: &str, element: &Element) -> usize {
    let last = element.attributes.last().map_or(element.name.span.end, |a| a.value.span.end.saturating_add(1)) as usize;
    let rest = text.get(last..).unwrap_or_default();
    rest.find('>').map_or(last, |at| last + at + 1)
}
