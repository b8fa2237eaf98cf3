//! Every line of the lifecycle checklists names an existing test.

use std::collections::BTreeSet;
use std::fs;

use super::house::{root, sources};

/// The checklists of `docs/engine.md` 9 and the minimum number of their lines.
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

#[test]
fn every_lifecycle_line_names_an_existing_test() {
    let (page, tests) = (fs::read_to_string(root().join("snapshots/promises/lifecycle.md")).unwrap(), tests());
    assert!(tests.len() > 500, "the law must see the tests it asks for");
    for (heading, lines) in TABLES {
        let (_, table) = page.split_once(heading).unwrap_or_else(|| panic!("`{heading}` is gone"));
        let table = table.split("\n#").next().unwrap();
        let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
        assert_eq!(rows.len(), lines, "{heading}");
        for row in rows {
            let shown = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
            let named: Vec<&str> = shown.split('`').skip(1).step_by(2).collect();
            assert!(!named.is_empty(), "nothing shows: {row}");
            for name in named {
                assert!(tests.contains(name), "there is no test `{name}`, which is to show: {row}");
            }
            for decision in row.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                assert!(root().join("snapshots/promises").join(decision).is_file(), "there is no {decision}: {row}");
            }
        }
    }
}
