//! Conventions of the source tree: dependencies between crates, file sizes, and leftovers in sources.

use std::fs;
use std::path::{Path, PathBuf};

/// Crates of this workspace that each crate may depend on. Dependencies form a line, without diamonds or cycles.
const ALLOWED_DEPENDENCIES: [(&str, &[&str]); 6] = [
    ("grammar", &[]),
    ("compiler", &["rye-grammar"]),
    ("engine", &["rye-grammar", "rye-compiler"]),
    ("stdlib", &[]),
    ("rye", &["rye-grammar", "rye-compiler", "rye-engine", "rye-stdlib"]),
    ("cli", &["rye", "rye-grammar", "rye-compiler", "rye-engine", "rye-stdlib"]),
];

const MAX_FILE_LINES: usize = 600;

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

pub fn sources(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !path.is_symlink() {
                if !matches!(name.as_str(), "target" | "node_modules" | ".git") {
                    folders.push(path);
                }
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

pub fn rust_sources() -> Vec<PathBuf> {
    let all = ["grammar", "compiler", "engine", "stdlib", "rye", "cli", "snapshots"];
    let found: Vec<_> = all.iter().flat_map(|c| sources(&root().join(c), ".rs")).collect();
    assert!(found.len() > 20, "the law must see the sources it judges");
    found
}

/// Returns the names under `[dependencies]` of a manifest.
fn dependencies(manifest: &str) -> Vec<&str> {
    let start = manifest.split_once("[dependencies]").map_or("", |(_, rest)| rest);
    let section = start.split("\n[").next().unwrap_or("");
    section
        .lines()
        .filter_map(|l| l.split(['.', ' ', '=']).next())
        .filter(|n| !n.is_empty() && !n.starts_with('#'))
        .collect()
}

/// Returns the crates of this workspace that a manifest names and may not name.
fn excess_dependencies<'m>(manifest: &'m str, allowed: &[&str]) -> Vec<&'m str> {
    let is_own = |name: &&str| *name == "rye" || name.starts_with("rye-");
    dependencies(manifest).into_iter().filter(is_own).filter(|name| !allowed.contains(name)).collect()
}

/// Returns the faults of a source: too many lines, no module comment, or a forbidden file name.
fn file_faults(name: &str, text: &str) -> Vec<String> {
    let lines = text.lines().count();
    let mut found = Vec::new();
    if lines > MAX_FILE_LINES {
        found.push(format!("{name} has {lines} lines, {MAX_FILE_LINES} are allowed"));
    }
    if !text.starts_with("//!") {
        found.push(format!("{name} does not open with `//!`"));
    }
    if name.ends_with("mod.rs") {
        found.push(format!("{name}: modules are `foo.rs` beside `foo/`"));
    }
    found
}

/// Returns the first leftover of unfinished work in a source.
fn leftover(text: &str) -> Option<&'static str> {
    let forbidden =
        [concat!("to", "do!("), concat!("unimple", "mented!("), concat!("db", "g!("), concat!("#[ig", "nore")];
    forbidden.into_iter().find(|word| text.contains(word))
}

#[test]
fn crate_dependencies_form_a_line() {
    for (name, allowed) in ALLOWED_DEPENDENCIES {
        let manifest = fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
        assert_eq!(excess_dependencies(&manifest, allowed), Vec::<&str>::new(), "`{name}` may name {allowed:?}");
    }
}

#[test]
fn planted_breaches_of_the_tree_are_found() {
    let manifest = "[package]\nname = \"a\"\n[dependencies]\nserde.workspace = true\nrye-engine.workspace = true\n\
        rye = { path = \"..\" }\n[dev-dependencies]\nrye-cli = \"1\"\n";
    assert_eq!(excess_dependencies(manifest, &["rye-engine"]), ["rye"]);
    assert_eq!(excess_dependencies(manifest, &["rye-engine", "rye"]), Vec::<&str>::new());
    assert_eq!(file_faults("a.rs", "//! A.\n"), Vec::<String>::new());
    assert_eq!(file_faults("mod.rs", "fn f() {}\n").len(), 2);
    assert_eq!(file_faults("a.rs", &format!("//! A.{}", "\n".repeat(MAX_FILE_LINES + 1))).len(), 1);
    assert_eq!(leftover(concat!("fn f() { to", "do!() }")), Some(concat!("to", "do!(")));
    assert_eq!(leftover("fn f() {}"), None);
}

#[test]
fn heavy_libraries_stay_in_their_crate() {
    for name in ["grammar", "compiler"] {
        let manifest = fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
        for heavy in ["tokio", "reqwest", "redb", "rmcp", "jsonschema"] {
            assert!(!dependencies(&manifest).contains(&heavy), "`{name}` must build without `{heavy}`");
        }
    }
}

#[test]
fn libraries_of_the_terminal_and_of_editors_stay_in_their_folder() {
    let folders = [
        ("crossterm::", "cli/src/command/chat/"),
        ("ratatui_textarea::", "cli/src/command/chat/"),
        ("agent_client_protocol::", "cli/src/command/acp/"),
    ];
    for path in rust_sources() {
        let shown = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&path).unwrap();
        for (library, folder) in folders {
            // The schema that tests validate lines against is derived from the types of the library.
            let is_test_schema = library.starts_with("agent_client") && shown == "cli/tests/support/acp_schema.rs";
            let is_allowed = shown.starts_with(folder) || is_test_schema || shown.ends_with("laws/house.rs");
            assert!(is_allowed || !text.contains(library), "`{shown}` names `{library}`");
        }
    }
}

#[test]
fn only_the_store_names_redb() {
    for path in rust_sources() {
        let shown = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
        let in_store = shown.starts_with("engine/src/store") || shown == "engine/benches/store.rs";
        let text = fs::read_to_string(&path).unwrap();
        assert!(in_store || !text.contains(concat!("re", "db::")), "{shown} names the database outside the store");
    }
}

#[test]
fn files_are_short_and_start_with_a_module_comment() {
    let found = rust_sources().into_iter().flat_map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        file_faults(&path.display().to_string(), &text)
    });
    assert_eq!(found.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn sources_contain_no_leftovers() {
    for path in rust_sources() {
        assert_eq!(leftover(&fs::read_to_string(&path).unwrap()), None, "{}", path.display());
    }
}
