//! Help texts for faults of tool files whose cause is a mistake of syntax: a placeholder without quotes, a parameter
//! that is written as a variable.

use rye_grammar::data::{Kind, Node};

/// Returns the help for a placeholder `${name}` of an undeclared variable. `parameters` are the tool's parameters.
pub(super) fn undeclared_variable(name: &str, parameters: &[&str]) -> String {
    match parameters.iter().find(|parameter| parameter.eq_ignore_ascii_case(name)) {
        Some(parameter) => format!("`{parameter}` is a parameter: write `{{{parameter}}}`, without `$`"),
        None => format!("declare it: `environment: [{name}]`"),
    }
}

/// Returns the help for a value of the wrong type; `None` if the message needs no help.
pub(super) fn wrong_type(key: &str, wanted: &str, node: &Node) -> Option<String> {
    if key == "needs" {
        return Some("name folders and hosts: `needs: { write: [out/], net: [api.example.com] }`".to_owned());
    }
    if wanted == "`true` or `false`"
        && let Kind::String(text) = &node.kind
        && let "true" | "false" = text.to_ascii_lowercase().as_str()
    {
        return Some(format!("remove the quotes: `{key}: {}`", text.to_ascii_lowercase()));
    }
    if !wanted.contains("string") {
        return None;
    }
    match (key, &node.kind) {
        // YAML reads a placeholder without quotes (`{name}`) as a mapping with one key.
        (_, Kind::Map(entries)) if matches!(entries.as_slice(), [only] if matches!(only.value.kind, Kind::Null)) => {
            let name = entries.first().map_or("name", |entry| entry.key.node.as_str());
            Some(format!("put the placeholder in quotes: `\"{{{name}}}\"`"))
        }
        ("environment", Kind::Map(entries)) => {
            let names: Vec<&str> = entries.iter().map(|entry| entry.key.node.as_str()).collect();
            Some(format!(
                "write only the names of the variables: `environment: [{}]`; their values come from the environment of rye",
                names.join(", ")
            ))
        }
        ("command", Kind::Map(_)) => {
            Some("write the program and its arguments: `command: [git, log, \"{path}\"]`".to_owned())
        }
        (_, Kind::Number(number)) => Some(format!("put it in quotes: `\"{number}\"`")),
        (_, Kind::Bool(value)) => Some(format!("put it in quotes: `\"{value}\"`")),
        (_, Kind::Null | Kind::List(_) | Kind::String(_) | Kind::Map(_)) => None,
    }
}

/// Returns the name of a variable that `text` contains: `TOKEN` for ` TOKEN`, `$TOKEN`, `${TOKEN}` and `TOKEN=1`.
/// `None` if there is no such name.
pub fn meant_variable(text: &str) -> Option<&str> {
    let name = text.split('=').next()?.trim().trim_start_matches('$').trim_start_matches('{').trim_end_matches('}');
    let is_start = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (is_start && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')).then_some(name)
}

/// Returns the help for a text in `environment` that is no name of a variable. `meant` is the name inside the text.
pub fn variable_name(meant: Option<&str>) -> String {
    match meant {
        Some(name) => format!("write only the name of the variable: `{name}`"),
        None => "write the name of a variable: letters, digits and `_`, such as `API_TOKEN`".to_owned(),
    }
}
