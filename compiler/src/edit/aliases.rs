//! Old words in a directive's metadata that are still read and have a replacement (`language.md`, Directives, Hooks and
//! Capabilities).

use rye_grammar::xml::{Attribute, Element};

use super::Edit;

/// Returns the edits that replace the outdated words in the metadata element `root` and in the elements inside it. The
/// text of `<process>` stays unchanged.
pub fn alias_edits(text: &str, root: &Element) -> Vec<Edit> {
    let mut edits = Vec::new();
    walk(text, root, &[], &mut edits);
    edits
}

fn walk(text: &str, element: &Element, above: &[&str], edits: &mut Vec<Edit>) {
    let name = element.name.node.as_str();
    // The text of `<process>` is a part of the prompt and is not changed.
    if name == "process" {
        return;
    }
    let instead = match (name, above.last().copied()) {
        ("search" | "load", Some("permissions" | "hook")) => Some("fetch"),
        ("fail" | "abort", Some("hook")) => Some("terminate"),
        _ => None,
    };
    if let Some(instead) = instead {
        rename_element(text, element, instead, edits);
    }
    for attribute in &element.attributes {
        match (name, attribute.name.node.as_str(), attribute.value.node.as_str()) {
            ("limits", "max_turns", _) => edits.push(Edit::new(attribute.name.span.range(), "turns")),
            ("limits", "max_tokens", _) => edits.push(Edit::new(attribute.name.span.range(), "tokens")),
            ("action", "primary", "load" | "search") => rename_value(text, attribute, "fetch", edits),
            _ => {}
        }
    }
    if matches!(name, "tool" | "directive" | "knowledge") && above.contains(&"permissions") {
        let pattern = element.text();
        if text.get(pattern.span.range()) == Some(pattern.node.as_str()) && pattern.node.contains('/') {
            edits.push(Edit::new(pattern.span.range(), pattern.node.replace('/', ".")));
        }
    }
    let mut path = above.to_vec();
    path.push(name);
    for child in element.elements() {
        walk(text, child, &path, edits);
    }
}

fn rename_value(text: &str, attribute: &Attribute, instead: &str, edits: &mut Vec<Edit>) {
    if text.get(attribute.value.span.range()) == Some(attribute.value.node.as_str()) {
        edits.push(Edit::new(attribute.value.span.range(), instead));
    }
}

/// Adds the edits that replace the name of an element by `instead`, in the start tag and in the end tag.
fn rename_element(text: &str, element: &Element, instead: &str, edits: &mut Vec<Edit>) {
    let Some(whole) = text.get(element.span.range()) else { return };
    let start = Edit::new(element.name.span.range(), instead);
    if whole.ends_with("/>") {
        edits.push(start);
        return;
    }
    let Some(open) = whole.rfind("</") else { return };
    let from = element.span.start as usize + open + 2;
    edits.push(start);
    edits.push(Edit::new(from..from + element.name.node.len(), instead));
}
