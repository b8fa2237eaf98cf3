//! Reading XML with a closed vocabulary: whatever nobody asked for is a diagnostic, nothing is passed over.

use rye_grammar::Spanned;
use rye_grammar::xml::{Element, Node};

use crate::diagnostics::{Diagnostics, ItemError, closest};

/// Complains about every attribute outside `known`.
pub fn attributes(found: &mut Diagnostics, element: &Element, known: &[&str]) {
    for attribute in &element.attributes {
        let key = attribute.name.node.as_str();
        if !known.contains(&key) {
            found.push(ItemError::UnknownKey {
                what: "attribute",
                key: key.to_owned(),
                of: tag(element),
                span: attribute.name.span,
                suggestion: closest(key, known.iter().copied()),
                known: owned(known),
            });
        }
    }
}

/// Complains about every element inside `element` that is not one of `known`.
pub fn children(found: &mut Diagnostics, element: &Element, known: &[&str]) {
    for child in element.elements() {
        let key = child.name.node.as_str();
        if !known.contains(&key) {
            found.push(ItemError::UnknownKey {
                what: "element",
                key: key.to_owned(),
                of: tag(element),
                span: child.name.span,
                suggestion: closest(key, known.iter().copied()),
                known: owned(known),
            });
        }
    }
}

/// Complains about text where only elements may stand.
pub fn no_text(found: &mut Diagnostics, element: &Element) {
    for child in &element.children {
        if let Node::Text(text) = child
            && !text.node.trim().is_empty()
        {
            found.push(ItemError::UnknownKey {
                what: "text",
                key: shorten(text.node.trim()),
                of: tag(element),
                span: text.span,
                suggestion: None,
                known: Vec::new(),
            });
        }
    }
}

/// An element that holds text and nothing else.
pub fn text_only(found: &mut Diagnostics, element: &Element, known_attributes: &[&str]) -> Spanned<String> {
    attributes(found, element, known_attributes);
    children(found, element, &[]);
    element.text()
}

/// The one child of that name; a second one is a diagnostic.
pub fn once<'e>(found: &mut Diagnostics, element: &'e Element, name: &str) -> Option<&'e Element> {
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

/// `` `<name>` ``, for messages.
pub fn tag(element: &Element) -> String {
    format!("`<{}>`", element.name.node)
}

/// A text short enough to be quoted in a message.
pub fn shorten(text: &str) -> String {
    const LONGEST: usize = 40;
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= LONGEST {
        return line.to_owned();
    }
    let mut short: String = line.chars().take(LONGEST - 1).collect();
    short.push('…');
    short
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}
