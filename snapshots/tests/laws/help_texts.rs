//! Every help text of a diagnostic is printed by a case, or by a test of the command line for errors that no file of a
//! project can cause.

use std::fs;

use super::house::{root, sources};

/// Minimum length in bytes of a text that counts as a sentence; shorter texts are parts of one.
const MIN_LENGTH: usize = 12;
/// Texts that a case cannot print, with the reason.
const WITHOUT_CASE: [(&str, &str); 11] = [
    ("until then, no MCP server can be used", "the servers of a project are not read in a case"),
    ("no project file can cause this", "an error of rye itself"),
    ("this key also signed", "a case has no keys"),
    ("for another model, name its provider", "the model of the command line"),
    ("is the id of a model, name its provider", "the model of the command line"),
    ("add its window and prices", "the model of the command line"),
    ("to use the tool, grant", "an id of the command line"),
    ("to use the knowledge, write", "an id of the command line"),
    ("type `/skill:", "an id of the command line"),
    ("name a directive", "an id of the command line"),
    ("shorten a value, or insert it in fewer places", "a value of many megabytes"),
];

/// Returns the string literals of the functions named `help` or `…_help`, with their lines.
fn help_literals(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut depth_of_function) = (Vec::new(), None);
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut literal: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        let indentation = line.len() - line.trim_start().len();
        let declares = line.trim_start().trim_start_matches("pub ").trim_start_matches("(crate) ");
        if let Some(name) = declares.strip_prefix("fn ").and_then(|rest| rest.split('(').next()) {
            depth_of_function = (name == "help" || name.ends_with("_help")).then_some(indentation);
        }
        if depth_of_function.is_none() || line.trim_start().starts_with("//") {
            continue;
        }
        let mut chars = line.chars().peekable();
        if let Some((_, open)) = &mut literal
            && open.ends_with('\u{1}')
        {
            // A line break after a backslash joins the lines without the indentation.
            open.pop();
            while chars.peek().is_some_and(|c| c.is_whitespace()) {
                chars.next();
            }
        }
        while let Some(c) = chars.next() {
            match (&mut literal, c) {
                (Some((_, open)), '\\') => open.push(chars.next().unwrap_or('\u{1}')),
                (Some(_), '"') => found.extend(literal.take()),
                (Some((_, open)), c) => open.push(c),
                (None, '\'') => {
                    // A character literal, which may be a quote.
                    if chars.next() == Some('\\') {
                        chars.next();
                    }
                }
                (None, '"') => literal = Some((number + 1, String::new())),
                (None, _) => {}
            }
        }
    }
    found
}

/// Returns the longest part of a text that has no placeholder.
fn longest_fixed_part(text: &str) -> String {
    let (mut parts, mut chars) = (vec![String::new()], text.chars().peekable());
    while let Some(c) = chars.next() {
        let doubled = chars.peek() == Some(&c);
        match c {
            '{' | '}' if doubled => {
                chars.next();
                parts.last_mut().unwrap().push(c);
            }
            '{' => {
                chars.by_ref().find(|c| *c == '}');
                parts.push(String::new());
            }
            c => parts.last_mut().unwrap().push(c),
        }
    }
    let longest = parts.into_iter().max_by_key(String::len).unwrap_or_default();
    single_spaced(&longest)
}

fn single_spaced(text: &str) -> String {
    text.split_whitespace().filter(|word| !matches!(*word, "│" | "·")).collect::<Vec<_>>().join(" ")
}

#[test]
fn literals_of_help_functions_are_found() {
    let text = "impl X {\n    fn help(&self) -> Option<String> {\n        match self {\n            Self::A => Some(\"write \
                \\\"a\\\" or \\\n                 the name of `{name}` with {{braces}}\".into()),\n            Self::B => '\"',\n        }\n    \
                }\n    fn labels() { \"is no help text\" }\n}\n";
    let found: Vec<String> = help_literals(text).into_iter().map(|(_, text)| text).collect();
    assert_eq!(found, ["write \"a\" or the name of `{name}` with {{braces}}"]);
    assert_eq!(longest_fixed_part(&found[0]), "write \"a\" or the name of `");
    assert_eq!(longest_fixed_part("{a} {{braces}} {b}"), "{braces}");
}

#[test]
fn help_texts_are_printed_by_cases() {
    let snapshots = sources(&root().join("snapshots/cases"), ".snap");
    let printed: String =
        snapshots.iter().map(|path| single_spaced(&fs::read_to_string(path).unwrap()) + "\n").collect();
    let tests = sources(&root().join("cli/tests"), ".rs");
    let tests: String = tests.iter().map(|path| single_spaced(&fs::read_to_string(path).unwrap()) + "\n").collect();
    let (mut total, mut missing) = (0, Vec::new());
    for path in sources(&root().join("compiler/src/diagnostics"), ".rs") {
        for (line, text) in help_literals(&fs::read_to_string(&path).unwrap()) {
            let part = longest_fixed_part(&text);
            if part.len() < MIN_LENGTH || !part.contains(' ') {
                continue;
            }
            total += 1;
            let is_excepted = WITHOUT_CASE.iter().any(|(excepted, _)| text.contains(excepted));
            if !is_excepted && !printed.contains(&part) && !tests.contains(&part) {
                missing.push(format!("{}:{line}: {text}", path.display()));
            }
        }
    }
    assert!(total > 150, "the law must see the texts it judges: {total}");
    assert!(missing.is_empty(), "no case prints these help texts:\n{}", missing.join("\n"));
}
