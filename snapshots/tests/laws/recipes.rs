//! Contributor pages: every file and type that they name exists.

use std::fs;

use super::house::{root, sources};

const PAGES: [&str; 2] = ["CONTRIBUTING.md", "ARCHITECTURE.md"];

/// Returns the code spans of a page, without fenced blocks.
fn code_spans(text: &str) -> Vec<&str> {
    let mut is_fenced = false;
    let prose = text.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    });
    prose.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// Returns true for a path of this repository, as opposed to a path of a project (`.ai/…`) or a pattern.
fn is_path(span: &str) -> bool {
    span.contains('/') && !span.starts_with("//") && !span.starts_with('.') && !span.contains(['<', ' ', '*'])
}

/// Returns true for the name of a type.
fn is_type(span: &str) -> bool {
    let starts_with_capital = span.starts_with(|c: char| c.is_ascii_uppercase());
    starts_with_capital && span.chars().all(char::is_alphanumeric) && span.chars().any(char::is_lowercase)
}

/// Returns the files and types of a page that do not exist.
fn missing_names(text: &str, rust: &[String]) -> Vec<String> {
    let exists = |span: &&str| {
        if is_path(span) {
            return root().join(span).exists();
        }
        let definitions = ["struct", "enum", "trait"].map(|kind| format!("{kind} {span}"));
        !is_type(span) || rust.iter().any(|source| definitions.iter().any(|definition| source.contains(definition)))
    };
    code_spans(text).into_iter().filter(|span| !exists(span)).map(str::to_owned).collect()
}

#[test]
fn contributor_pages_name_existing_files_and_types() {
    let folders = ["grammar", "compiler", "engine", "cli"];
    let files = folders.iter().flat_map(|folder| sources(&root().join(folder).join("src"), ".rs"));
    let rust: Vec<String> = files.map(|path| fs::read_to_string(path).unwrap()).collect();
    for page in PAGES {
        let text = fs::read_to_string(root().join(page)).unwrap();
        assert!(code_spans(&text).len() > 20, "the law must see the names it checks in {page}");
        let missing = missing_names(&text, &rust);
        assert!(missing.is_empty(), "{page} names {missing:?}");
    }
    assert_eq!(missing_names("`no/such.rs` and `NoSuchType`, `README.md`", &rust), ["no/such.rs", "NoSuchType"]);
}
