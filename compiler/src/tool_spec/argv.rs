//! Argument templates of `kind: command` tools: `{name}` holes filled with parameters, one argument each. No shell ever
//! sees the result, so no character in a parameter has a meaning.

use serde_json::{Map, Value};

/// Why a template cannot be filled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgvError {
    #[error("`{0}` has a `{{` that nothing closes; write `{{{{` for a brace")]
    Open(String),
    #[error("`{0}` has a `}}` that nothing opens; write `}}}}` for a brace")]
    Close(String),
    #[error("`{{{0}}}` is no parameter name")]
    Name(String),
    #[error("parameter `{0}` holds a zero byte, which no argument can")]
    Zero(String),
}

#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(String),
    Hole(&'a str),
}

/// The names of the holes of one argument, in order.
pub fn holes(argument: &str) -> Result<Vec<&str>, ArgvError> {
    let pieces = split(argument)?;
    Ok(pieces.into_iter().filter_map(|p| if let Piece::Hole(name) = p { Some(name) } else { None }).collect())
}

/// Fills the templates. An argument that is one hole and whose parameter is a list becomes one argument per item; an
/// argument with a hole whose parameter is missing or null is left out. Strings go in as they are, other values as JSON.
pub fn fill(argv: &[String], parameters: &Map<String, Value>) -> Result<Vec<String>, ArgvError> {
    let mut out = Vec::with_capacity(argv.len());
    for argument in argv {
        let pieces = split(argument)?;
        if let [Piece::Hole(name)] = pieces.as_slice() {
            match parameters.get(*name) {
                None | Some(Value::Null) => {}
                Some(Value::Array(items)) => {
                    for item in items {
                        out.push(text(name, item)?);
                    }
                }
                Some(value) => out.push(text(name, value)?),
            }
            continue;
        }
        let mut filled = String::new();
        let mut complete = true;
        for piece in &pieces {
            match piece {
                Piece::Text(t) => filled.push_str(t),
                Piece::Hole(name) => match parameters.get(*name) {
                    None | Some(Value::Null) => complete = false,
                    Some(value) => filled.push_str(&text(name, value)?),
                },
            }
        }
        if complete {
            out.push(filled);
        }
    }
    Ok(out)
}

fn text(name: &str, value: &Value) -> Result<String, ArgvError> {
    let text = if let Value::String(s) = value { s.clone() } else { value.to_string() };
    if text.contains('\0') { Err(ArgvError::Zero(name.to_owned())) } else { Ok(text) }
}

fn split(argument: &str) -> Result<Vec<Piece<'_>>, ArgvError> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = argument;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        if let Some(after) = from.strip_prefix("{{") {
            text.push('{');
            rest = after;
        } else if let Some(after) = from.strip_prefix("}}") {
            text.push('}');
            rest = after;
        } else if let Some(after) = from.strip_prefix('{') {
            let (name, after) = after.split_once('}').ok_or_else(|| ArgvError::Open(argument.to_owned()))?;
            if !is_name(name) {
                return Err(ArgvError::Name(name.to_owned()));
            }
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(Piece::Hole(name));
            rest = after;
        } else {
            return Err(ArgvError::Close(argument.to_owned()));
        }
    }
    text.push_str(rest);
    if !text.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    fn filled(argv: &[&str], parameters: &Value) -> Vec<String> {
        let argv: Vec<String> = argv.iter().map(|s| (*s).to_owned()).collect();
        fill(&argv, parameters.as_object().unwrap()).unwrap()
    }

    #[test]
    fn parameters_stay_one_argument_whatever_they_hold() {
        let p = json!({"q": "a b; rm -rf / $(x) `y`\n\"", "n": 3, "on": true});
        assert_eq!(
            filled(&["find", "--", "{q}", "-n={n}", "{on}"], &p),
            ["find", "--", "a b; rm -rf / $(x) `y`\n\"", "-n=3", "true"]
        );
    }

    #[test]
    fn lists_spread_and_missing_ones_vanish() {
        let p = json!({"files": ["a", "b c"], "none": null});
        assert_eq!(filled(&["cat", "{files}", "{none}", "--x={gone}", "{{}}"], &p), ["cat", "a", "b c", "{}"]);
        assert_eq!(filled(&["cat", "--f={files}"], &p), ["cat", "--f=[\"a\",\"b c\"]"]);
        assert_eq!(filled(&["cat", ""], &p), ["cat", ""]);
    }

    #[test]
    fn holes_are_never_scanned_again() {
        assert_eq!(filled(&["{a}"], &json!({"a": "{b}", "b": "x"})), ["{b}"]);
    }

    #[test]
    fn broken_templates_are_named() {
        assert_eq!(holes("{a").unwrap_err(), ArgvError::Open("{a".into()));
        assert_eq!(holes("a}").unwrap_err(), ArgvError::Close("a}".into()));
        assert_eq!(holes("{}").unwrap_err(), ArgvError::Name(String::new()));
        assert_eq!(holes("{a.b}").unwrap_err(), ArgvError::Name("a.b".into()));
        let zero = json!({"a": "x\u{0}y"});
        assert_eq!(fill(&["{a}".into()], zero.as_object().unwrap()).unwrap_err(), ArgvError::Zero("a".into()));
    }
}
