//! Checks of a provider file beyond its schema: values that cannot work, and values that contradict each other.

use std::collections::BTreeMap;

use rye_grammar::Span;
use rye_grammar::data::{Kind, Node};

use crate::diagnostics::{ConfigError, Diagnostics, ItemError};
use crate::model::{SCRIPTED_WIRE, WIRE_FORMATS};

/// Checks a provider file, merged from all spaces. `id` has the form `agent/providers/NAME`. `place` returns the path
/// and the line of a span.
pub fn check(id: &str, node: &Node, place: &dyn Fn(Span) -> Option<String>, found: &mut Diagnostics) {
    let name = id.rsplit('/').next().unwrap_or(id);
    let variable = |key| node.get(key).and_then(|value| Some((value.as_str()?, value.span)));
    let keyed = ["key_env", "base_url_env"].map(|key| (key, variable(key)));
    for (key, written) in keyed {
        let Some((text, span)) = written.filter(|(name, _)| !is_variable(name)) else { continue };
        let meant = text.trim_start_matches('$').trim_start_matches('{').trim_end_matches('}');
        // A name with lowercase letters may be a secret that starts with `$`.
        let is_name = is_variable(meant) && !meant.bytes().any(|byte| byte.is_ascii_lowercase());
        if text.starts_with('$') && is_name {
            found.push(ConfigError::Invalid {
                file: id.to_owned(),
                key: key.to_owned(),
                found: format!("`{text}`"),
                expected: format!("the name without `$`: `{meant}`"),
                span: Some(span),
            });
            continue;
        }
        // The value may be an API key, so the report names its file and line, but shows neither the value nor the line.
        let expected =
            "the name of an environment variable, such as `MY_API_KEY`; do not store the key itself in a file";
        found.push(ConfigError::Invalid {
            file: place(span).unwrap_or_else(|| id.to_owned()),
            key: key.to_owned(),
            found: "this value".to_owned(),
            expected: expected.to_owned(),
            span: None,
        });
    }
    if let Some((_, span)) = variable("key_header").filter(|(name, _)| !is_header_name(name)) {
        found.push(ConfigError::Invalid {
            file: place(span).unwrap_or_else(|| id.to_owned()),
            key: "key_header".to_owned(),
            found: "this value".to_owned(),
            expected: "the name of a header, such as `x-api-key`, without a value".to_owned(),
            span: None,
        });
    }
    let mut invalid = |key: String, actual: String, expected: String, span: Span| {
        found.push(ConfigError::Invalid { file: id.to_owned(), key, found: actual, expected, span: Some(span) });
    };
    let text = |key: &str| node.get(key).and_then(|value| Some((value.as_str()?, value.span)));
    // An unknown wire is reported by the schema; skip the checks that depend on it.
    let wire = text("wire").filter(|(wire, _)| WIRE_FORMATS.contains(wire) && *wire != SCRIPTED_WIRE);
    if let Some((written, span)) = text("id").filter(|(written, _)| *written != name) {
        invalid("id".into(), format!("`{written}`"), format!("the file's own name, `{name}`, or no `id`"), span);
    }
    if let Some((url, span)) = text("base_url")
        && !is_address(url)
    {
        let meant = if url.contains("://") { "https://api.example.com".to_owned() } else { format!("http://{url}") };
        invalid("base_url".into(), format!("`{url}`"), format!("a web address such as `{meant}`"), span);
    }
    if let Some((_, span)) = wire
        && node.get("base_url").is_none()
        && node.get("base_url_env").is_none()
    {
        let expected = "the address that requests go to, such as `https://api.example.com`";
        invalid("base_url".into(), "missing".into(), expected.into(), span);
    }
    let mut models: BTreeMap<&str, Span> = BTreeMap::new();
    let mut repeated = Vec::new();
    for model in node.get("models").map(Node::items).unwrap_or_default() {
        let whole = |key: &str| match model.get(key).map(|value| (&value.kind, value.span)) {
            Some((Kind::Number(number), span)) => number.as_u64().map(|number| (number, span)),
            _ => None,
        };
        let Some(id_node) = model.get("id") else { continue };
        let Some(model_id) = id_node.as_str() else { continue };
        if let (Some((window, _)), Some((output, span))) = (whole("context_window"), whole("max_output"))
            && output > window
        {
            let expected = format!("at most {window}: the context window includes the reply");
            invalid(format!("models.{model_id}.max_output"), format!("`{output}`"), expected, span);
        }
        match models.get(model_id) {
            Some(first) => repeated.push((model_id.to_owned(), *first, id_node.span)),
            None => {
                models.insert(model_id, id_node.span);
            }
        }
    }
    for (model, first, second) in repeated {
        found.push(ItemError::Repeated { what: format!("the model `{model}`"), first, second });
    }
}

fn is_address(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(char::is_whitespace))
}

fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
