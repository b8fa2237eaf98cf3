//! Variables in the request of an HTTP tool: `$NAME`, which is sent as text, and declared variables that no part of the
//! request contains.

use rye_grammar::data::{Kind, Node};
use rye_grammar::tool_header::ToolTree;

use crate::diagnostics::ItemError;

/// Minimum length of a name after `$`, so that amounts and short words are not reported.
const MIN_NAME_CHARS: usize = 3;

/// Returns the errors for the variables of an HTTP tool; empty for other tools.
pub fn check(tree: &ToolTree) -> Vec<ItemError> {
    if tree.metadata.get("kind").and_then(Node::as_str) != Some("http") {
        return Vec::new();
    }
    let places = ["url", "headers"].into_iter().filter_map(|key| tree.metadata.get(key));
    let mut texts = Vec::new();
    for place in places {
        collect_texts(place, &mut texts);
    }
    let is_sent = texts.iter().find_map(|node| Some((node, plain_variable(node.as_str()?)?)));
    if let Some((node, name)) = is_sent {
        return vec![ItemError::RequestVariable { name: name.to_owned(), span: node.span }];
    }
    tree.metadata.get("body").into_iter().for_each(|body| collect_texts(body, &mut texts));
    let is_read = |name: &str| {
        let placeholder = format!("${{{name}}}");
        texts.iter().filter_map(|node| node.as_str()).any(|text| text.contains(&placeholder))
    };
    let declared = tree.metadata.get("environment").map(Node::items).unwrap_or_default();
    let unused = declared.iter().filter_map(|node| Some((node.as_str()?, node.span)));
    let unused = unused.filter(|(name, _)| !is_read(name));
    unused.map(|(name, span)| ItemError::UnusedVariable { name: name.to_owned(), span }).collect()
}

fn collect_texts<'n>(node: &'n Node, all: &mut Vec<&'n Node>) {
    if let Kind::String(_) = node.kind {
        all.push(node);
    }
    for inner in node.entries().iter().map(|entry| &entry.value).chain(node.items()) {
        collect_texts(inner, all);
    }
}

/// Returns the first name in capital letters that follows a `$` without braces; `None` if there is none.
fn plain_variable(text: &str) -> Option<&str> {
    text.match_indices('$').find_map(|(at, _)| {
        let rest = text.get(at + 1..)?;
        let length = rest.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
        let name = rest.get(..length.unwrap_or(rest.len()))?;
        (name.len() >= MIN_NAME_CHARS && name.starts_with(|c: char| c.is_ascii_uppercase())).then_some(name)
    })
}
