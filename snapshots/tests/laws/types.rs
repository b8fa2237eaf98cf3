//! Names of types: a public type has a name of its own in its crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::house::{root, sources};

/// Names that are generic by nature: their module says what they belong to.
const GENERIC_NAMES: [&str; 6] = ["Args", "Body", "Client", "Decoder", "Error", "Settings"];

/// Returns the names of the public types of a source, without those of its test module.
fn public_types(text: &str) -> Vec<&str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let name = |line: &'_ str| -> Option<usize> {
        let rest = line.trim_start().strip_prefix("pub")?;
        let rest = rest.strip_prefix('(').map_or(rest, |inner| inner.split_once(')').map_or("", |(_, rest)| rest));
        let mut words = rest.split_whitespace();
        let is_type = matches!(words.next(), Some("struct" | "enum" | "trait" | "type" | "union"));
        is_type.then(|| words.next()).flatten().map(|word| line.find(word).unwrap_or_default())
    };
    let ident = |text: &str| text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    code.lines()
        .filter_map(|line| name(line).and_then(|at| line.get(at..)))
        .filter_map(|rest| rest.get(..ident(rest)))
        .collect()
}

/// Returns the public type names that more than one file below a folder defines, with the files.
fn repeated_types(src: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in sources(src, ".rs") {
        let shown = path.strip_prefix(src).unwrap().to_string_lossy().into_owned();
        if shown
            .split('/')
            .any(|part| matches!(part, "tests" | "tests.rs" | "crash_tests.rs" | "fixture.rs" | "corpus.rs"))
        {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for name in public_types(&text) {
            found.entry(name.to_owned()).or_default().insert(shown.clone());
        }
    }
    found.retain(|name, files| files.len() > 1 && !GENERIC_NAMES.contains(&name.as_str()));
    found
}

#[test]
fn public_types_have_unique_names_in_their_crate() {
    for name in ["grammar", "compiler", "engine", "stdlib", "rye", "cli"] {
        let repeated = repeated_types(&root().join(name).join("src"));
        assert!(repeated.is_empty(), "{name}: types with the same name: {repeated:#?}");
    }
}

#[test]
fn repeated_types_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    put("a.rs", "pub struct One<T>(T);\npub(crate) enum Two {}\nstruct Own;\npub struct Error;\n");
    put("b.rs", "    pub(super) trait One {}\npub type Three = u8;\nstruct Own;\npub enum Error {}\n");
    put("c.rs", "pub type Two = u8;\n#[cfg(test)]\nmod tests {\n    pub struct Three;\n}\n");
    let repeated = repeated_types(folder.path());
    let names: Vec<&str> = repeated.keys().map(String::as_str).collect();
    assert_eq!(names, ["One", "Two"]);
}
