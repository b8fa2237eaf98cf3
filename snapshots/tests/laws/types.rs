//! Names of types: a public type has a name of its own in its crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::house::{root, rust_sources, sources};

/// Names that are generic by nature: their module says what they belong to.
const GENERIC_NAMES: [&str; 6] = ["Args", "Body", "Client", "Decoder", "Error", "Settings"];

/// Maximum number of type names that several files of the workspace define, tests included.
const MAX_SHARED_NAMES: usize = 40;

/// Returns the names of the public types of a source, without those of its test module.
fn public_types(text: &str) -> Vec<&str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    type_names(code, true)
}

/// Returns the names of the types that a source defines. With `is_public`, returns only public types and public type
/// aliases.
fn type_names(code: &str, is_public: bool) -> Vec<&str> {
    let name = |line: &'_ str| -> Option<usize> {
        let line_start = line.trim_start();
        let rest = line_start.strip_prefix("pub").or((!is_public).then_some(line_start))?;
        let rest = rest.strip_prefix('(').map_or(rest, |inner| inner.split_once(')').map_or("", |(_, rest)| rest));
        let mut words = rest.split_whitespace();
        let kind = words.next();
        let is_type = matches!(kind, Some("struct" | "enum" | "trait" | "union")) || is_public && kind == Some("type");
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

/// Returns the type names that more than one of these files defines, with the files.
fn shared_names(files: &[PathBuf]) -> BTreeMap<String, BTreeSet<&Path>> {
    let mut found: BTreeMap<String, BTreeSet<&Path>> = BTreeMap::new();
    for path in files {
        for name in type_names(&fs::read_to_string(path).unwrap(), false) {
            found.entry(name.to_owned()).or_default().insert(path);
        }
    }
    found.retain(|_, files| files.len() > 1);
    found
}

#[test]
fn few_type_names_are_defined_in_several_files() {
    let files = rust_sources();
    let shared = shared_names(&files);
    assert!(shared.len() <= MAX_SHARED_NAMES, "{} names, at most {MAX_SHARED_NAMES}: {shared:#?}", shared.len());
}

#[test]
fn shared_names_are_found_in_private_types_and_tests() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    put("a.rs", "pub struct One;\nstruct Own;\n#[cfg(test)]\nmod tests {\n    struct Planted;\n}\n");
    put("b.rs", "pub(crate) enum Planted {}\nstruct Own(u8);\n");
    let files = sources(folder.path(), ".rs");
    assert_eq!(shared_names(&files).into_keys().collect::<Vec<_>>(), ["Own", "Planted"]);
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
