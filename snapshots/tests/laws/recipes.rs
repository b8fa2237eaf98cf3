//! Contributor pages: every file, type, constant, `just` recipe and test target that they name exists.

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

/// Returns true if a path exists in the repository or in the sources of a crate. The rows of the code map name paths
/// relative to the sources.
fn path_exists(path: &str) -> bool {
    let folders = ["", "grammar/src", "compiler/src", "engine/src", "cli/src", "snapshots"];
    folders.iter().any(|folder| root().join(folder).join(path).exists())
}

/// Returns true for the name of a constant of several words.
fn is_constant(span: &str) -> bool {
    span.contains('_') && span.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

/// Returns false if a command calls a missing recipe of the justfile or a missing test target.
fn command_exists(command: &str) -> bool {
    let words: Vec<&str> = command.split_whitespace().collect();
    let after = |word: &str| words.iter().position(|known| *known == word).and_then(|at| words.get(at + 1));
    let recipe = words.first().filter(|first| **first == "just").and_then(|_| words.get(1));
    let justfile = fs::read_to_string(root().join("justfile")).unwrap();
    let folder = after("-p").map(|name| name.trim_start_matches("rye-"));
    let target = after("--test").zip(folder).map(|(name, folder)| root().join(format!("{folder}/tests/{name}.rs")));
    recipe.is_none_or(|recipe| justfile.contains(&format!("\n{recipe}:")))
        && folder.is_none_or(|folder| root().join(folder).join("Cargo.toml").is_file())
        && target.is_none_or(|target| target.is_file())
}

/// Returns the code spans of a page that look like a name of the repository, but name nothing that exists: a command, a
/// constant, a path or a type. `rust` holds the sources in which constants and types are searched.
fn missing_names(text: &str, rust: &[String]) -> Vec<String> {
    let exists = |span: &&str| {
        if span.contains(' ') {
            return command_exists(span);
        }
        if is_constant(span) {
            let is_defined = |kind: &str| rust.iter().any(|source| source.contains(&format!("{kind} {span}:")));
            return ["const", "static"].into_iter().any(is_defined);
        }
        if is_path(span) {
            return path_exists(span);
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
    let page = "`no/such.rs` and `NoSuchType`, `README.md`, `NO_SUCH`, `just nothing`, `just docs`, `cargo test -p rye-cli --test x`";
    let missing = ["no/such.rs", "NoSuchType", "NO_SUCH", "just nothing", "cargo test -p rye-cli --test x"];
    assert_eq!(missing_names(page, &rust), missing);
}
