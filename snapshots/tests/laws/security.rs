//! `docs/security.md` keeps its word: every case and every test that its table names is there.

use std::fs;

use super::house::{root, sources};

#[test]
fn every_row_of_the_threat_table_names_what_is_there() {
    let page = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let table = page.split_once("## Threats and their tests").map(|parts| parts.1).unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    assert!(rows.len() > 25, "the law must see the rows it judges");
    let folders = ["grammar", "compiler", "engine", "cli", "snapshots"];
    let all: Vec<String> = folders
        .iter()
        .flat_map(|folder| sources(&root().join(folder), ".rs"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let there = |name: &str| {
        if let Some(case) = name.strip_prefix("hostile/") {
            return root().join("snapshots/cases/hostile").join(case).join("expected.snap").is_file();
        }
        if name.contains('/') {
            return root().join(name).is_file();
        }
        all.iter().any(|text| text.contains(&format!("fn {name}(")) || text.contains(&format!("(\"{name}\"")))
    };
    let mut missing = Vec::new();
    for row in rows {
        let shown_by = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        let names: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "nothing shows `{row}`");
        missing.extend(names.into_iter().filter(|name| !there(name)).map(|name| format!("{name}: {row}")));
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
