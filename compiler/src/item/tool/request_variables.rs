//! Checks for parts of an HTTP tool's request that have no effect: a `$NAME`, which is sent as text; a declared
//! variable that no part of the request contains; the body of a `GET`; and a `Content-Type` that does not match the
//! body.

use rye_grammar::data::{Kind, Node};
use rye_grammar::tool_header::ToolTree;

use crate::diagnostics::ItemError;
use crate::semantics::needs::is_unencrypted;

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
    let texts = request_texts(tree);
    let is_read = |name: &str| {
        let placeholder = format!("${{{name}}}");
        texts.iter().any(|text| text.contains(&placeholder))
    };
    let declared = tree.metadata.get("environment").map(Node::items).unwrap_or_default();
    let unused = declared.iter().filter_map(|node| Some((node.as_str()?, node.span)));
    // Another check reports a text that is not the name of a variable.
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let unused = unused.filter(|(name, _)| is_name(name) && !is_read(name));
    let unused = unused.map(|(name, span)| ItemError::UnusedVariable { name: name.to_owned(), span });
    unused.chain(ignored_body(tree)).chain(wrong_content_type(tree)).chain(unencrypted(tree)).collect()
}

/// Returns the error for a variable of the environment in an `http:` request to a public host; `None` for any other
/// request. Such a variable is usually a key.
fn unencrypted(tree: &ToolTree) -> Option<ItemError> {
    let url = tree.metadata.get("url").filter(|url| url.as_str().is_some_and(is_unencrypted))?;
    let texts = request_texts(tree);
    let declared = tree.metadata.get("environment").map(Node::items).unwrap_or_default();
    let mut names = declared.iter().filter_map(Node::as_str);
    let name = names.find(|name| texts.iter().any(|text| text.contains(&format!("${{{name}}}"))))?;
    let message = format!("the request sends the variable `{name}` without encryption");
    let help = "write `https://`";
    Some(ItemError::RequestPart { message, label: "readable on the way", help, span: url.span })
}

/// Returns the texts of a request that may contain placeholders: the URL, the headers and the body.
pub fn request_texts(tree: &ToolTree) -> Vec<&str> {
    let mut texts = Vec::new();
    for place in ["url", "headers", "body"].into_iter().filter_map(|key| tree.metadata.get(key)) {
        collect_texts(place, &mut texts);
    }
    texts.into_iter().filter_map(Node::as_str).collect()
}

/// Returns the error for a body of a request whose method gives a body no meaning (RFC 9110, 9.3.1); `None` for any
/// other request.
fn ignored_body(tree: &ToolTree) -> Option<ItemError> {
    let method = tree.metadata.get("method")?.as_str()?.to_ascii_uppercase();
    let body = tree.metadata.get("body").filter(|_| matches!(method.as_str(), "GET" | "HEAD"))?;
    let message = format!("the body of a {method} request has no meaning");
    let help = "write `method: POST`, or put the values into `url`: many servers ignore or refuse the body";
    Some(ItemError::RequestPart { message, label: "may not be read", help, span: body.span })
}

/// Returns the error for a `Content-Type` other than JSON in a request whose body is sent as JSON; `None` if there is
/// no such error.
fn wrong_content_type(tree: &ToolTree) -> Option<ItemError> {
    tree.metadata.get("body").filter(|body| matches!(body.kind, Kind::Map(_) | Kind::List(_)))?;
    let headers = tree.metadata.get("headers").map(Node::entries).unwrap_or_default();
    let entry = headers.iter().find(|entry| entry.key.node.eq_ignore_ascii_case("content-type"))?;
    let written =
        entry.value.as_str().filter(|kind| !kind.to_ascii_lowercase().contains("json") && !kind.contains('{'))?;
    let message = format!("the body of this request is sent as JSON, but its `Content-Type` is `{written}`");
    let help = "write the body as one text in this format, or remove the header";
    Some(ItemError::RequestPart { message, label: "not the format of the body", help, span: entry.value.span })
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
pub(crate) fn plain_variable(text: &str) -> Option<&str> {
    text.match_indices('$').find_map(|(at, _)| {
        let rest = text.get(at + 1..)?;
        let length = rest.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
        let name = rest.get(..length.unwrap_or(rest.len()))?;
        (name.len() >= MIN_NAME_CHARS && name.starts_with(|c: char| c.is_ascii_uppercase())).then_some(name)
    })
}
