//! Tools of `kind: http`: a declared request. The host is literal; only the part of the URL after the host may contain
//! parameters.

use indexmap::IndexMap;
use rye_grammar::Span;
use rye_grammar::data::{Kind, Node};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::read::{TemplateScope, ToolSpecReader};

/// A request as declared, with unfilled templates. See [`super::fill_text`] for the placeholders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpSpec {
    pub method: Method,
    /// The URL. Values of its placeholders are percent-encoded.
    pub url: String,
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub headers: IndexMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<HttpBody>,
}

/// The body of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpBody {
    Text(String),
    /// A JSON value whose strings are templates. A string that is a single placeholder becomes the value of the
    /// parameter and keeps its type (such as a number).
    Json(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    pub const ALL: [Self; 6] = [Self::Get, Self::Head, Self::Post, Self::Put, Self::Patch, Self::Delete];

    /// Returns the method in upper case: `GET`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// Headers that a tool must not declare, because the HTTP client sets them itself.
const RESERVED_HEADERS: [&str; 8] =
    ["host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "proxy-authorization"];

/// Reads the request, and returns it with its host in lower case. `None` if the URL is missing or invalid, which is
/// reported.
pub(super) fn read(r: &mut ToolSpecReader, node: &Node, scope: &TemplateScope<'_>) -> Option<(HttpSpec, String)> {
    let method = read_method(r, node);
    if let (None, Some(body)) = (node.get("method"), node.get("body")) {
        let help = "write `method: POST`, or put the values into `url`".to_owned();
        r.report_bad_value(
            body.span,
            "a request with a `body` must name its `method`".into(),
            "GET is assumed",
            Some(help),
        );
    }
    let headers = read_headers(r, node, scope);
    let body = read_body(r, node, scope);
    let Some(url) = r.text(node, "url") else {
        if node.get("url").is_none() {
            r.report_missing(node, "url", "add the address: `url: https://api.example.com/items/{id}`");
        }
        return None;
    };
    let span = node.get("url").map_or(node.span, |n| n.span);
    r.check_template(&url, span, scope);
    let host = read_host(r, &url, span)?;
    Some((HttpSpec { method: method?, url, headers, body }, host))
}

fn read_method(r: &mut ToolSpecReader, node: &Node) -> Option<Method> {
    let Some(word) = r.text(node, "method") else { return Some(Method::Get) };
    let found = Method::ALL.into_iter().find(|m| m.as_str().eq_ignore_ascii_case(&word));
    if found.is_none() {
        let span = node.get("method").map_or(node.span, |n| n.span);
        let help = format!("one of {}", Method::ALL.map(Method::as_str).join(", "));
        r.report_bad_value(span, format!("unknown method `{word}`"), "unknown", Some(help));
    }
    found
}

/// Returns the host of a URL. Reports the URL and returns `None` if the URL is invalid, or if its scheme, host or port
/// contains a placeholder.
fn read_host(r: &mut ToolSpecReader, url: &str, span: Span) -> Option<String> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let authority = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let no_address = format!("`{url}` is not a web address");
    let help = "write it out: `https://api.example.com/path/{parameter}`".to_owned();
    let Some(authority) = authority.filter(|a| !a.is_empty()) else {
        r.report_bad_value(span, no_address, "not an address", Some(help));
        return None;
    };
    if authority.contains(['{', '}', '$']) {
        r.report_bad_value(
            span,
            "the host of a request cannot be a parameter".into(),
            "chosen by the caller",
            Some(help),
        );
        return None;
    }
    if authority.contains('@') {
        let message = "the host of a request must not contain a user or password".to_owned();
        let help = "send the credentials as a header: `Authorization: Bearer ${TOKEN}`".to_owned();
        r.report_bad_value(span, message, "this file would contain a secret", Some(help));
        return None;
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(v6) => v6.split_once(']').map_or((v6, "?"), |(host, rest)| (host, rest.strip_prefix(':').unwrap_or(rest))),
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    let is_host = !host.is_empty()
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b':' | b'_'))
        && (port.is_empty() || port.parse::<u16>().is_ok());
    if !is_host {
        r.report_bad_value(span, no_address, "not an address", Some(help));
        return None;
    }
    Some(host.to_ascii_lowercase())
}

fn read_headers(r: &mut ToolSpecReader, node: &Node, scope: &TemplateScope<'_>) -> IndexMap<String, String> {
    let mut out = IndexMap::new();
    let Some(headers) = node.get("headers") else { return out };
    if !matches!(headers.kind, Kind::Map(_)) {
        r.report_wrong_type(headers, "headers", "a mapping of names to values");
        return out;
    }
    for entry in headers.entries() {
        let name = &entry.key.node;
        let is_token =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
        if !is_token {
            r.report_bad_value(entry.key.span, format!("`{name}` is not a valid header"), "not a header's name", None);
        } else if RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
            r.report_bad_value(
                entry.key.span,
                format!("the header `{name}` cannot be set by a tool"),
                "set by rye",
                None,
            );
        }
        match &entry.value.kind {
            Kind::String(value) => {
                r.check_template(value, entry.value.span, scope);
                out.insert(name.clone(), value.clone());
            }
            Kind::Number(n) => {
                out.insert(name.clone(), n.to_string());
            }
            Kind::Null | Kind::Bool(_) | Kind::List(_) | Kind::Map(_) => {
                r.report_wrong_type(&entry.value, name, "a string");
            }
        }
    }
    out
}

fn read_body(r: &mut ToolSpecReader, node: &Node, scope: &TemplateScope<'_>) -> Option<HttpBody> {
    let body = node.get("body")?;
    check_templates(r, body, scope);
    Some(match &body.kind {
        Kind::String(text) => HttpBody::Text(text.clone()),
        Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::List(_) | Kind::Map(_) => HttpBody::Json(body.to_value()),
    })
}

fn check_templates(r: &mut ToolSpecReader, node: &Node, scope: &TemplateScope<'_>) {
    match &node.kind {
        Kind::String(text) => r.check_template(text, node.span, scope),
        Kind::List(items) => items.iter().for_each(|item| check_templates(r, item, scope)),
        Kind::Map(entries) => entries.iter().for_each(|entry| check_templates(r, &entry.value, scope)),
        Kind::Null | Kind::Bool(_) | Kind::Number(_) => {}
    }
}
