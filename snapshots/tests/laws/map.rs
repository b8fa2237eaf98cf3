//! The code map of `ARCHITECTURE.md`: every top-level module of each crate, and each folder below it, has one row.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::house::root;

/// The folders that the table of each crate lists, with the prefix of their rows.
const CRATES: [(&str, &[(&str, &str)]); 7] = [
    ("grammar", &[("src", "")]),
    ("compiler", &[("src", "")]),
    ("engine", &[("src", "")]),
    ("stdlib", &[(".ai", ".ai/")]),
    ("rye", &[("src", "")]),
    ("cli", &[("src", "")]),
    ("snapshots", &[("harness", "harness/"), ("src/bin", "src/bin/"), ("tests", "tests/")]),
];

/// A module that a table must list.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Module {
    /// `name.rs`, or `name/` for a module with a folder.
    row: String,
    /// The first sentence of the module's own comment.
    about: String,
}

/// Returns the file names in a folder, sorted.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Returns true for a folder with sources that are no tests.
fn has_modules(folder: &Path) -> bool {
    let is_test = |name: &str| name == "tests" || name == "tests.rs" || name == "snapshots";
    names(folder).iter().filter(|name| !is_test(name)).any(|name| {
        let path = folder.join(name);
        if path.is_dir() { has_modules(&path) } else { path.extension().is_some_and(|ending| ending == "rs") }
    })
}

/// Returns true for a module without a folder of modules; `lib.rs` and `main.rs` are no modules.
fn is_single_file(folder: &Path, stem: &str) -> bool {
    !matches!(stem, "lib" | "main") && !has_modules(&folder.join(stem))
}

/// Returns the first sentence of a file's `//!` comment.
fn first_sentence(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
    lines.join(" ").split(". ").next().unwrap_or_default().trim_end_matches('.').to_owned()
}

/// Returns the modules of a folder: each top-level file, and each folder with sources at any depth.
fn modules(folder: &Path, prefix: &str, is_top: bool) -> Vec<Module> {
    let all = names(folder);
    let mut found = Vec::new();
    for name in &all {
        let path = folder.join(name);
        if path.is_dir() {
            let is_data = path.components().any(|part| part.as_os_str() == ".ai");
            if is_data || (name != "tests" && has_modules(&path)) {
                let about = first_sentence(&folder.join(format!("{name}.rs")));
                found.push(Module { row: format!("{prefix}{name}/"), about });
            }
            if !is_data && name != "tests" {
                found.extend(modules(&path, &format!("{prefix}{name}/"), false));
            }
        } else if is_top && name.strip_suffix(".rs").is_some_and(|stem| is_single_file(folder, stem)) {
            found.push(Module { row: format!("{prefix}{name}"), about: first_sentence(&path) });
        }
    }
    found
}

/// Returns the first cells of the table of a crate.
fn rows<'p>(page: &'p str, name: &str) -> Vec<&'p str> {
    let (_, section) = page.split_once(&format!("\n### `{name}`\n")).unwrap_or_else(|| panic!("no section `{name}`"));
    let table = section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = table.skip(2).filter_map(|row| row.strip_prefix("| `")).filter_map(|row| row.split_once("` | "));
    cells.filter(|(_, about)| about.trim_end_matches('|').trim().len() > 3).map(|(module, _)| module).collect()
}

/// Returns the changes that a table needs, one a line.
fn differences(name: &str, modules: &[Module], rows: &[&str]) -> Vec<String> {
    let missing = modules.iter().filter(|module| !rows.contains(&module.row.as_str())).map(|module| {
        format!("add to the table of `{name}` in ARCHITECTURE.md:\n| `{}` | {} |", module.row, module.about)
    });
    let gone = rows.iter().filter(|row| !modules.iter().any(|module| module.row == **row));
    let gone = gone.map(|row| format!("remove from the table of `{name}` in ARCHITECTURE.md: `{row}`"));
    let repeated = rows.iter().enumerate().filter(|(at, row)| rows[..*at].contains(row));
    let repeated = repeated.map(|(_, row)| format!("the table of `{name}` in ARCHITECTURE.md lists `{row}` twice"));
    missing.chain(gone).chain(repeated).collect()
}

#[test]
fn code_map_lists_every_module() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut found = Vec::new();
    for (name, folders) in CRATES {
        let modules: Vec<Module> = folders
            .iter()
            .flat_map(|(folder, prefix)| modules(&root().join(name).join(folder), prefix, true))
            .collect();
        assert!(modules.len() > 3, "the law must see the modules of `{name}`");
        found.extend(differences(name, &modules, &rows(&page, name)));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_crate_states_its_invariants_and_what_is_absent() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for (name, _) in CRATES {
        let (_, section) = page.split_once(&format!("\n### `{name}`\n")).unwrap();
        let section = section.split("\n##").next().unwrap();
        for paragraph in ["\n**Invariant:** ", "\n**Not here:** "] {
            assert!(section.contains(paragraph), "the section `{name}` has no{paragraph}");
        }
    }
}

#[test]
fn missing_and_removed_modules_are_reported() {
    let module = |row: &str| Module { row: row.to_owned(), about: "New things".to_owned() };
    let found = differences("engine", &[module("new.rs"), module("kept/")], &["kept/", "kept/", "old.rs"]);
    assert_eq!(
        found,
        [
            "add to the table of `engine` in ARCHITECTURE.md:\n| `new.rs` | New things |",
            "remove from the table of `engine` in ARCHITECTURE.md: `old.rs`",
            "the table of `engine` in ARCHITECTURE.md lists `kept/` twice",
        ]
    );
}
