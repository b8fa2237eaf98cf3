//! Readers for XML with a closed vocabulary: unknown elements and attributes are reported, never ignored.

use rye_grammar::Spanned;
use rye_grammar::xml::{Element, XmlNode};

use crate::diagnostics::{Diagnostics, ItemError, closest};

/// Reports every attribute that is not in `known`.
pub fn check_attributes(found: &mut Diagnostics, element: &Element, known: &[&str]) {
    for attribute in &element.attributes {
        let key = attribute.name.node.as_str();
        if !known.contains(&key) {
            found.push(ItemError::UnknownKey {
                what: "attribute",
                key: key.to_owned(),
                of: quote_tag(element),
                span: attribute.name.span,
                suggestion: closest(key, known.iter().copied()),
                known: to_strings(known),
            });
        }
    }
}

/// Reports every child element that is not in `known`.
pub fn check_children(found: &mut Diagnostics, element: &Element, known: &[&str]) {
    for child in element.elements() {
        let key = child.name.node.as_str();
        if !known.contains(&key) {
            found.push(ItemError::UnknownKey {
                what: "element",
                key: key.to_owned(),
                of: quote_tag(element),
                span: child.name.span,
                suggestion: closest(key, known.iter().copied()),
                known: to_strings(known),
            });
        }
    }
}

/// Reports text where only elements are allowed.
pub fn reject_text(found: &mut Diagnostics, element: &Element) {
    for child in &element.children {
        if let XmlNode::Text(text) = child
            && !text.node.trim().is_empty()
        {
            found.push(ItemError::UnknownKey {
                what: "text",
                key: shorten(text.node.trim()),
                of: quote_tag(element),
                span: text.span,
                suggestion: None,
                known: Vec::new(),
            });
        }
    }
}

/// Returns the text of an element that may contain only text. Reports other content.
pub fn read_text(found: &mut Diagnostics, element: &Element, known_attributes: &[&str]) -> Spanned<String> {
    check_attributes(found, element, known_attributes);
    check_children(found, element, &[]);
    element.text()
}

/// Returns the first child with this name; `None` if there is none. Reports every further child with this name.
pub fn single_child<'e>(found: &mut Diagnostics, element: &'e Element, name: &str) -> Option<&'e Element> {
    let mut all = element.elements().filter(|e| e.name.node == name);
    let first = all.next()?;
    for second in all {
        found.push(ItemError::Repeated {
            what: format!("`<{name}>`"),
            first: first.name.span,
            second: second.name.span,
        });
    }
    Some(first)
}

/// Returns `` `<name>` ``, for messages.
pub fn quote_tag(element: &Element) -> String {
    format!("`<{}>`", element.name.node)
}

/// Returns the first line of a text, shortened to at most 40 characters, to quote the text in a message.
pub fn shorten(text: &str) -> String {
    const MAX_CHARS: usize = 40;
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= MAX_CHARS {
        return line.to_owned();
    }
    let mut short: String = line.chars().take(MAX_CHARS - 1).collect();
    short.push('…');
    short
}

fn to_strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}
