//! Every line of the lifecycle checklists names an existing test.

use std::collections::BTreeSet;
use std::fs;

use super::house::{root, sources};

/// The checklists of `snapshots/promises/lifecycle.md`: the heading and the number of rows of each.
const TABLES: [(&str, usize); 5] = [
    ("## The fifteen steps", 15),
    ("## The eleven operations of the orchestrator", 11),
    ("## The eleven operations of the registry", 11),
    ("## The events", 15),
    ("## What lies on disk", 9),
];

/// Returns the names of all tests in the tree.
fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for folder in ["grammar", "compiler", "engine", "rye", "cli", "snapshots"] {
        for path in sources(&root().join(folder), ".rs") {
            let text = fs::read_to_string(path).unwrap();
            let mut is_test = false;
            for line in text.lines().map(str::trim) {
                let name = line.strip_prefix("fn ").or_else(|| line.strip_prefix("async fn "));
                if let Some(name) = name.filter(|_| is_test) {
                    found.extend(name.split(['(', '<']).next().map(str::to_owned));
                }
                is_test = line.starts_with("#[test]")
                    || line.starts_with("#[tokio::test")
                    || (is_test && line.starts_with("#["));
            }
        }
    }
    found
}

/// Returns what is wrong with a row: it names no test, an unknown test or a missing decision.
fn row_faults(row: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let evidence = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
    let named: Vec<&str> = evidence.split('`').skip(1).step_by(2).collect();
    let unknown = named.iter().filter(|name| !tests.contains(**name)).map(|name| format!("no test `{name}`: {row}"));
    let decisions = row.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let missing = decisions.filter(|file| !root().join("snapshots/promises").join(file).is_file());
    let mut faults: Vec<String> = unknown.chain(missing.map(|file| format!("no {file}: {row}"))).collect();
    if named.is_empty() {
        faults.push(format!("no evidence: {row}"));
    }
    faults
}

#[test]
fn every_lifecycle_line_names_an_existing_test() {
    let (page, tests) = (fs::read_to_string(root().join("snapshots/promises/lifecycle.md")).unwrap(), tests());
    assert!(tests.len() > 500, "the law must see the tests it asks for");
    for (heading, lines) in TABLES {
        let (_, table) = page.split_once(heading).unwrap_or_else(|| panic!("`{heading}` is gone"));
        let table = table.split("\n#").next().unwrap();
        let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
        assert_eq!(rows.len(), lines, "{heading}");
        let faults: Vec<String> = rows.into_iter().flat_map(|row| row_faults(row, &tests)).collect();
        assert!(faults.is_empty(), "{heading}\n{}", faults.join("\n"));
    }
}

#[test]
fn planted_breaches_of_a_lifecycle_line_are_found() {
    let tests = BTreeSet::from(["thread_ends".to_owned()]);
    let faults = |row: &str| row_faults(row, &tests).len();
    assert_eq!(faults("| 1 | The thread ends ([0001](../../docs/decisions/0001-workspace.md)) | `thread_ends` |"), 1);
    assert_eq!(faults("| 1 | The thread ends | `thread_ends` |"), 0);
    assert_eq!(faults("| 1 | The thread ends | `thread_end` |"), 1);
    assert_eq!(faults("| 1 | The thread ends | a test |"), 1);
}
