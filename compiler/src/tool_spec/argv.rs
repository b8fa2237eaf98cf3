//! Templates of a tool's runtime configuration: `{name}` placeholders for parameters and `${NAME}` placeholders for
//! declared environment variables. No shell reads the result, so no character in a parameter is special.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Names that every template may use without a declaration: the tool's own file, the project's root, all parameters as
/// JSON. A declared parameter of the same name takes precedence.
pub(crate) const RUNTIME_NAMES: [&str; 3] = ["tool_path", "project_path", "params_json"];

/// The reason why a template cannot be filled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgvError {
    #[error("`{0}` has an unclosed `{{`; write `{{{{` for a brace")]
    Open(String),
    #[error("`{0}` has an unmatched `}}`; write `}}}}` for a brace")]
    Close(String),
    #[error("`{{{0}}}` is not a parameter name; write `{{{{` for a brace")]
    Name(String),
    #[error("parameter `{0}` contains a zero byte, which is not allowed in an argument")]
    Zero(String),
    #[error("the variable `{0}` of the environment is not set")]
    Unset(String),
}

/// A placeholder in a template of a tool, such as its command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgvPlaceholder<'a> {
    /// `{name}`: a parameter, or one of `RUNTIME_NAMES`.
    Parameter(&'a str),
    /// `${NAME}`: a variable of the environment.
    Variable(&'a str),
}

/// The values that fill placeholders.
#[derive(Debug, Clone, Copy)]
pub struct FillValues<'a> {
    pub parameters: &'a Map<String, Value>,
    /// Values of the names in `RUNTIME_NAMES`.
    pub runtime: &'a BTreeMap<&'static str, String>,
    /// The environment variables that the tool declares and that are set, with their values.
    pub environment: &'a BTreeMap<String, String>,
}

#[derive(Debug, PartialEq, Eq)]
enum ArgvPart<'a> {
    Text(String),
    Placeholder(ArgvPlaceholder<'a>),
}

/// Returns the placeholders of a template, in order.
pub fn placeholders(template: &str) -> Result<Vec<ArgvPlaceholder<'_>>, ArgvError> {
    let pieces = split_template(template)?;
    Ok(pieces
        .into_iter()
        .filter_map(|p| if let ArgvPart::Placeholder(placeholder) = p { Some(placeholder) } else { None })
        .collect())
}

/// Fills the templates. If a template is a single placeholder and its parameter is a list, each element of the list
/// becomes an argument. A template with a missing or null parameter is left out. Strings are inserted unchanged, other
/// values as JSON.
pub fn fill_argv(argv: &[String], given: FillValues<'_>) -> Result<Vec<String>, ArgvError> {
    let mut out = Vec::with_capacity(argv.len());
    for argument in argv {
        if let [ArgvPart::Placeholder(ArgvPlaceholder::Parameter(name))] = split_template(argument)?.as_slice()
            && let Some(Value::Array(items)) = given.parameters.get(*name)
        {
            for item in items {
                out.push(argument_text(name, item)?);
            }
            continue;
        }
        out.extend(fill_text(argument, given, &|text| text.to_owned())?);
    }
    Ok(out)
}

/// Fills one template; `None` if a parameter in it is missing or null. `encode` encodes the text of each parameter, but
/// neither the text of the template nor the values of variables.
pub fn fill_text(
    template: &str,
    given: FillValues<'_>,
    encode: &dyn Fn(&str) -> String,
) -> Result<Option<String>, ArgvError> {
    let mut filled = String::new();
    for piece in split_template(template)? {
        match piece {
            ArgvPart::Text(t) => filled.push_str(&t),
            ArgvPart::Placeholder(ArgvPlaceholder::Variable(name)) => {
                let value = given.environment.get(name).ok_or_else(|| ArgvError::Unset(name.to_owned()))?;
                filled.push_str(value);
            }
            ArgvPart::Placeholder(ArgvPlaceholder::Parameter(name)) => {
                match (given.parameters.get(name), given.runtime.get(name)) {
                    (Some(Value::Null), _) | (None, None) => return Ok(None),
                    (Some(value), _) => filled.push_str(&encode(&argument_text(name, value)?)),
                    (None, Some(value)) => filled.push_str(&encode(value)),
                }
            }
        }
    }
    Ok(Some(filled))
}

/// Returns the template with each placeholder replaced by the text that `fill` returns.
pub(crate) fn replace_placeholders(
    template: &str,
    fill: &dyn Fn(&ArgvPlaceholder<'_>) -> String,
) -> Result<String, ArgvError> {
    let pieces = split_template(template)?;
    let texts = pieces.into_iter().map(|piece| match piece {
        ArgvPart::Text(text) => text,
        ArgvPart::Placeholder(placeholder) => fill(&placeholder),
    });
    Ok(texts.collect())
}

fn argument_text(name: &str, value: &Value) -> Result<String, ArgvError> {
    let text = if let Value::String(s) = value { s.clone() } else { value.to_string() };
    if text.contains('\0') { Err(ArgvError::Zero(name.to_owned())) } else { Ok(text) }
}

fn split_template(template: &str) -> Result<Vec<ArgvPart<'_>>, ArgvError> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}', '$']) {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        if let Some(after) = from.strip_prefix("{{") {
            text.push('{');
            rest = after;
        } else if let Some(after) = from.strip_prefix("}}") {
            text.push('}');
            rest = after;
        } else if let Some(after) = from.strip_prefix("$${") {
            // `$${` is an escaped `${`: the text up to the closing brace is copied unchanged.
            text.push_str("${");
            rest = after;
            if let Some((inside, after)) = rest.split_once('}') {
                text.push_str(inside);
                text.push('}');
                rest = after;
            }
        } else if let Some(after) = from.strip_prefix("${").or_else(|| from.strip_prefix('{')) {
            let variable = from.starts_with('$');
            let (name, after) = after.split_once('}').ok_or_else(|| ArgvError::Open(template.to_owned()))?;
            if !is_name(name) {
                return Err(ArgvError::Name(name.to_owned()));
            }
            if !text.is_empty() {
                pieces.push(ArgvPart::Text(std::mem::take(&mut text)));
            }
            pieces.push(ArgvPart::Placeholder(if variable {
                ArgvPlaceholder::Variable(name)
            } else {
                ArgvPlaceholder::Parameter(name)
            }));
            rest = after;
        } else if let Some(after) = from.strip_prefix('$') {
            text.push('$');
            rest = after;
        } else {
            return Err(ArgvError::Close(template.to_owned()));
        }
    }
    text.push_str(rest);
    if !text.is_empty() || pieces.is_empty() {
        pieces.push(ArgvPart::Text(text));
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

    fn try_fill(argv: &[&str], parameters: &Value) -> Result<Vec<String>, ArgvError> {
        let argv: Vec<String> = argv.iter().map(|s| (*s).to_owned()).collect();
        let runtime = BTreeMap::from([("tool_path", "/p/.ai/tools/t.yaml".to_owned())]);
        let environment = BTreeMap::from([("TOKEN".to_owned(), "{path} ${TOKEN}".to_owned())]);
        let parameters = parameters.as_object().unwrap();
        fill_argv(&argv, FillValues { parameters, runtime: &runtime, environment: &environment })
    }

    fn filled(argv: &[&str], parameters: &Value) -> Vec<String> {
        try_fill(argv, parameters).unwrap()
    }

    #[test]
    fn variables_and_runtime_names_fill_separately() {
        let p = json!({"TOKEN": "no"});
        assert_eq!(
            filled(&["a=${TOKEN}", "{TOKEN}", "$${TOKEN}", "$5 $", "{tool_path}", "{project_path}"], &p),
            ["a={path} ${TOKEN}", "no", "${TOKEN}", "$5 $", "/p/.ai/tools/t.yaml"]
        );
        assert_eq!(filled(&["{tool_path}"], &json!({"tool_path": "x"})), ["x"]);
        assert_eq!(try_fill(&["${OTHER}"], &p), Err(ArgvError::Unset("OTHER".into())));
        assert_eq!(placeholders("{a}${B}"), Ok(vec![ArgvPlaceholder::Parameter("a"), ArgvPlaceholder::Variable("B")]));
    }

    #[test]
    fn parameter_with_shell_characters_stays_one_argument() {
        let p = json!({"q": "a b; rm -rf / $(x) `y`\n\"", "n": 3, "on": true});
        assert_eq!(
            filled(&["find", "--", "{q}", "-n={n}", "{on}"], &p),
            ["find", "--", "a b; rm -rf / $(x) `y`\n\"", "-n=3", "true"]
        );
    }

    #[test]
    fn list_parameters_spread_and_missing_ones_are_dropped() {
        let p = json!({"files": ["a", "b c"], "none": null});
        assert_eq!(filled(&["cat", "{files}", "{none}", "--x={gone}", "{{}}"], &p), ["cat", "a", "b c", "{}"]);
        assert_eq!(filled(&["cat", "--f={files}"], &p), ["cat", "--f=[\"a\",\"b c\"]"]);
        assert_eq!(filled(&["cat", ""], &p), ["cat", ""]);
    }

    #[test]
    fn inserted_values_are_not_scanned_again() {
        assert_eq!(filled(&["{a}"], &json!({"a": "{b}", "b": "x"})), ["{b}"]);
    }

    #[test]
    fn malformed_templates_are_rejected() {
        assert_eq!(placeholders("{a").unwrap_err(), ArgvError::Open("{a".into()));
        assert_eq!(placeholders("a}").unwrap_err(), ArgvError::Close("a}".into()));
        assert_eq!(placeholders("{}").unwrap_err(), ArgvError::Name(String::new()));
        assert_eq!(placeholders("{a.b}").unwrap_err(), ArgvError::Name("a.b".into()));
        let zero = json!({"a": "x\u{0}y"});
        assert_eq!(try_fill(&["{a}"], &zero).unwrap_err(), ArgvError::Zero("a".into()));
    }
}
