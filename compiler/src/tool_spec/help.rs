//! Help texts for faults of tool files whose cause is a mistake of syntax: a placeholder without quotes, a parameter that is
//! written as a variable.

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
