//! Formats a directive file: replaces outdated names by their current names, moves sections into `<metadata>`, and lays
//! out the metadata in lines. Prose, comments and body stay unchanged. The result is checked to have the same meaning.

use rye_grammar::directive::{DirectiveTree, parse};
use rye_grammar::xml::{Element, XmlNode};
use rye_grammar::{SourceId, Span};

use super::{Edit, aliases, apply, layout};

/// The result of formatting a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Formatted {
    pub text: String,
}

/// The reason why a file is not formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormatRefusal {
    #[error("the file has errors: run `rye check` for the details")]
    Broken,
    #[error("the file is signed: remove the signature, format the file, then sign it again")]
    Signed,
    #[error("formatting would change the meaning of the file")]
    Unsafe,
}

/// The elements of a directive that belong in `<metadata>`. The formatter moves them there.
const SECTIONS: [&str; 4] = ["limits", "context", "permissions", "hooks"];
/// The source id of a text that is parsed on its own.
const STANDALONE: SourceId = SourceId(0);

/// Formats a directive file. Returns the text unchanged if it is already formatted.
///
/// # Errors
/// The file has syntax errors or is signed, or the new layout would change its meaning.
pub fn format(text: &str) -> Result<Formatted, FormatRefusal> {
    let before = read(text)?;
    let mut now = text.to_owned();
    // Each step parses the output of the previous step, so no step needs the offsets of another step.
    for step in [replace_old_words, move_sections, move_process, lay_out_metadata] {
        let tree = read(&now)?;
        let Some(root) = &tree.root else { return Err(FormatRefusal::Broken) };
        let edits = step(&now, &tree, root);
        now = apply(&now, &edits);
    }
    if has_same_meaning(&before, &read(&now)?) { Ok(Formatted { text: now }) } else { Err(FormatRefusal::Unsafe) }
}

/// Returns the edits that replace outdated words of the metadata by the current words, without any other formatting.
/// Empty if the file cannot be parsed.
pub fn old_word_edits(text: &str) -> Vec<Edit> {
    let Ok(tree) = read(text) else { return Vec::new() };
    tree.root.as_ref().map(|root| replace_old_words(text, &tree, root)).unwrap_or_default()
}

fn read(text: &str) -> Result<DirectiveTree, FormatRefusal> {
    let parsed = parse(STANDALONE, text);
    if parsed.tree.signature.is_some() {
        return Err(FormatRefusal::Signed);
    }
    if !parsed.errors.is_empty() || parsed.tree.root.is_none() {
        return Err(FormatRefusal::Broken);
    }
    Ok(parsed.tree)
}

fn replace_old_words(text: &str, _: &DirectiveTree, root: &Element) -> Vec<Edit> {
    aliases::alias_edits(text, root)
}

/// Moves the sections that are directly under the root to the end of `<metadata>`, in order, with the comments right
/// above them. A section that `<metadata>` already contains is not moved. Creates `<metadata>` if it is missing.
fn move_sections(text: &str, _: &DirectiveTree, root: &Element) -> Vec<Edit> {
    let metadata = root.elements().find(|e| e.name.node == "metadata");
    let inside = |name: &str| metadata.is_some_and(|m| m.elements().any(|e| e.name.node == name));
    let mut moved = String::new();
    let mut edits = Vec::new();
    for (i, child) in root.children.iter().enumerate() {
        let XmlNode::Element(section) = child else { continue };
        let name = section.name.node.as_str();
        if !SECTIONS.contains(&name) || inside(name) {
            continue;
        }
        let from = leading_comments(&root.children, i).unwrap_or(section.span);
        let whole = from.join(section.span);
        moved.push('\n');
        moved.push_str(text.get(whole.range()).unwrap_or_default());
        edits.push(Edit::new(with_leading_space(text, whole), ""));
    }
    if moved.is_empty() {
        return Vec::new();
    }
    moved.push('\n');
    match metadata {
        Some(element) if !element.children.is_empty() => {
            let whole = text.get(element.span.range()).unwrap_or_default();
            let end = whole.rfind("</").map_or(element.span.end as usize, |at| element.span.start as usize + at);
            let last = text.get(..end).map_or(end, |before| before.trim_end().len());
            edits.push(Edit::new(last..end, moved));
        }
        Some(element) => edits.push(Edit::new(element.span.range(), format!("<metadata>{moved}</metadata>"))),
        None => {
            let at = layout::start_tag_end(text, root);
            edits.push(Edit::new(at..at, format!("\n<metadata>{moved}</metadata>\n")));
        }
    }
    edits
}

/// Returns a range extended by the white space before it.
fn with_leading_space(text: &str, span: Span) -> std::ops::Range<usize> {
    let start = text.get(..span.start as usize).map_or(span.start as usize, |before| before.trim_end().len());
    start..span.end as usize
}

/// Returns the span of the comments directly above the child with index `at`, without a blank line between them; `None`
/// if there are no comments.
fn leading_comments(children: &[XmlNode], at: usize) -> Option<Span> {
    let mut first = None;
    for child in children.get(..at)?.iter().rev() {
        match child {
            XmlNode::Comment(comment) => first = Some(comment.span),
            XmlNode::Text(text) if text.node.trim().is_empty() && text.node.matches('\n').count() < 2 => {}
            XmlNode::Text(_) | XmlNode::Element(_) => break,
        }
    }
    first
}

/// Returns edits that move the texts of all `<process>` elements to the start of the body. If one of the texts contains
/// elements, entities or a code fence, no text moves, so that the texts keep their order.
fn move_process(text: &str, tree: &DirectiveTree, root: &Element) -> Vec<Edit> {
    let Some(fence) = tree.fence else { return Vec::new() };
    let mut edits = Vec::new();
    let mut moved = String::new();
    for element in root.elements().filter(|e| e.name.node == "process") {
        let spelled = element.text();
        let plain = element.children.iter().all(|n| matches!(n, XmlNode::Text(_)))
            && text.get(spelled.span.range()) == Some(spelled.node.as_str());
        // The order of several `<process>` elements matters. If one of them has to stay, all of them stay.
        if !plain || spelled.node.contains("```") {
            return Vec::new();
        }
        edits.push(Edit::new(with_leading_space(text, element.span), ""));
        moved.push_str("\n\n");
        moved.push_str(&spelled.node);
    }
    if moved.is_empty() {
        return Vec::new();
    }
    // The body begins at its first line that is not blank; one blank line separates the body from the moved text.
    let at = fence.end as usize;
    let own_line = text.get(..at).is_some_and(|t| t.ends_with('\n'));
    let moved = if own_line { moved.get(1..).unwrap_or_default() } else { &moved };
    let behind = if tree.body.node.is_empty() { at } else { tree.body.span.start as usize };
    let gap = match (tree.body.node.is_empty(), own_line) {
        (true, true) => "\n",
        (true, false) => "",
        (false, _) => "\n\n",
    };
    edits.push(Edit::new(at..behind, format!("{moved}{gap}")));
    edits
}

/// Returns the edit that replaces the metadata by its formatted text.
fn lay_out_metadata(text: &str, _: &DirectiveTree, root: &Element) -> Vec<Edit> {
    let start = root.span.start as usize;
    let line = text.get(..start).and_then(|t| t.rfind('\n')).map_or(0, |at| at + 1);
    let blank = text.get(line..start).is_some_and(|t| t.trim().is_empty());
    let from = if blank { line } else { start };
    let mut out = String::new();
    layout::write(text, root, 0, &mut out);
    vec![Edit::new(from..root.span.end as usize, out)]
}

/// Returns true if two files have the same meaning: equal trees apart from the places of sections, equal bodies, and
/// equal prose.
fn has_same_meaning(before: &DirectiveTree, after: &DirectiveTree) -> bool {
    let text = |spanned: &Option<rye_grammar::Spanned<String>>| spanned.as_ref().map(|s| s.node.clone());
    text(&before.title) == text(&after.title)
        && text(&before.prose) == text(&after.prose)
        && joined_body(before) == joined_body(after)
        && before.root.as_ref().map(comparable_meaning) == after.root.as_ref().map(comparable_meaning)
}

/// Returns the body of a directive as the compiler joins it: the texts of the `<process>` elements, then the text after
/// the metadata block.
fn joined_body(tree: &DirectiveTree) -> String {
    let process = tree.root.iter().flat_map(Element::elements).filter(|e| e.name.node == "process");
    let parts = process.map(|e| e.text().node).chain([tree.body.node.clone()]).filter(|t| !t.is_empty());
    parts.collect::<Vec<_>>().join("\n\n")
}

/// Returns every element of the metadata with its attributes and text, to compare two versions of a directive. Two
/// versions yield equal lists if they differ only in layout, in outdated words (`load` in place of `fetch`) or in the
/// order of sections.
fn comparable_meaning(root: &Element) -> Vec<String> {
    let mut meanings = Vec::new();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for element in root.elements().filter(|e| e.name.node != "process") {
        if element.name.node == "metadata" {
            element.elements().for_each(|e| push_meaning(e, "", &mut first));
        } else if SECTIONS.contains(&element.name.node.as_str()) {
            push_meaning(element, "", &mut second);
        } else {
            push_meaning(element, "", &mut meanings);
        }
    }
    meanings.extend(first);
    meanings.extend(second);
    meanings.extend(root.attributes.iter().map(|a| format!("{}={}", a.name.node, a.value.node)));
    meanings
}

fn push_meaning(element: &Element, above: &str, meanings: &mut Vec<String>) {
    let name = match element.name.node.as_str() {
        "search" | "load" if above.ends_with("permissions") || above.ends_with("hook") => "fetch",
        "fail" | "abort" if above.ends_with("hook") => "terminate",
        name => name,
    };
    let path = format!("{above}/{name}");
    let mut line = format!("{path} {}", element.text().node);
    if path.contains("/permissions/") {
        line = line.replace('/', ".");
    }
    for attribute in &element.attributes {
        let key = match (name, attribute.name.node.as_str()) {
            ("limits", "max_turns") => "turns",
            ("limits", "max_tokens") => "tokens",
            (_, key) => key,
        };
        let value = match (key, attribute.value.node.as_str()) {
            ("primary", "load" | "search") => "fetch",
            (_, value) => value,
        };
        for piece in [" ", key, "=", value] {
            line.push_str(piece);
        }
    }
    meanings.push(line);
    element.elements().for_each(|child| push_meaning(child, &path, meanings));
}
