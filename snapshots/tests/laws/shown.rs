//! Checks doc tables whose last column names the evidence for a row: every case, test and file named there exists.

use std::fs;

use super::house::{root, sources};

/// The sources that rows may refer to.
struct Evidence {
    sources: Vec<String>,
}

impl Evidence {
    fn collect() -> Self {
        let folders = ["grammar", "compiler", "engine", "cli", "snapshots"];
        let files = folders.iter().flat_map(|folder| sources(&root().join(folder), ".rs"));
        Self { sources: files.map(|path| fs::read_to_string(path).unwrap()).collect() }
    }

    /// Returns whether a case (`topic/name`), a file of this repository, or a test with this name exists.
    fn has(&self, name: &str) -> bool {
        if name.contains('/') {
            let case = root().join("snapshots/cases").join(name).join("expected.snap");
            return case.is_file() || root().join(name).is_file();
        }
        let (function, named) = (format!("fn {name}("), format!("(\"{name}\""));
        self.sources.iter().any(|text| text.contains(&function) || text.contains(&named))
    }
}

/// Returns the table rows of a page after a heading, without header rows.
fn rows<'p>(page: &'p str, from: &str) -> Vec<&'p str> {
    let (_, after) = page.split_once(from).unwrap();
    let lines: Vec<&str> = after.lines().collect();
    let is_head = |at: usize| lines.get(at + 1).is_some_and(|next| next.starts_with("|---"));
    let of_table = |(_, line): &(usize, &&str)| line.starts_with('|') && !line.starts_with("|---");
    lines.iter().enumerate().filter(of_table).filter(|(at, _)| !is_head(*at)).map(|(_, line)| *line).collect()
}

fn missing(page: &str, from: &str, least: usize) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let rows = rows(&text, from);
    assert!(rows.len() > least, "the law must see the rows it judges: {}", rows.len());
    let there = Evidence::collect();
    let mut missing = Vec::new();
    for row in rows {
        let shown_by = row.trim_end_matches('|').rsplit(" | ").next().unwrap_or_default();
        let names: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "nothing shows `{row}`");
        missing.extend(names.into_iter().filter(|name| !there.has(name)).map(|name| format!("{name}: {row}")));
    }
    missing
}

#[test]
fn threat_table_names_existing_evidence() {
    let missing = missing("docs/explanation/security.md", "## Threats and their tests", 25);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn language_table_names_existing_evidence() {
    let missing = missing("snapshots/promises/language.md", "# Promises of the language", 130);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn world_table_names_existing_evidence() {
    let missing = missing("snapshots/promises/providers-and-tools.md", "# Promises about providers", 40);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn compiler_table_names_existing_evidence() {
    let missing = missing("snapshots/promises/compiler.md", "# Promises of the compiler", 60);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn threads_table_names_existing_evidence() {
    let missing = missing("snapshots/promises/threads.md", "# Promises about threads", 60);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
