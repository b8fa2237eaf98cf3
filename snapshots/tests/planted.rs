//! Projects with 185 known defects, each marked with `planted: CODE`, and a copy of each project without the defects:
//! `check` finds exactly the marked defects in the projects, and nothing in the copies.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

use rye_snapshots::{Case, discover};

fn case(name: &str) -> Case {
    let cases = discover(&Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")).unwrap();
    cases.into_iter().find(|case| case.name == name).unwrap()
}

/// Collects the marked defects: file and code.
fn marked_defects(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            marked_defects(&path, found);
            continue;
        }
        for line in fs::read_to_string(&path).unwrap().to_lowercase().lines() {
            let marks = line.split("planted: ").skip(1);
            let code = |mark: &str| {
                mark.split(|c: char| !(c.is_ascii_lowercase() || matches!(c, '-' | ':'))).next().unwrap().to_owned()
            };
            found.extend(marks.map(code));
        }
    }
}

#[test]
fn check_finds_exactly_the_known_defects() {
    for (name, count) in [
        ("planted/forty", 40),
        ("planted/yard", 45),
        ("planted/depot", 20),
        ("planted/mill", 17),
        ("planted/garden", 63),
    ] {
        let case = case(name);
        let mut marked = Vec::new();
        marked_defects(&case.folder.join(".ai"), &mut marked);
        let mut found: Vec<String> = case.check().unwrap().0.iter().map(|d| d.code().to_owned()).collect();
        marked.sort();
        found.sort();
        assert_eq!((found.len(), &found), (count, &marked), "{name}");
    }
}

#[test]
fn check_finds_nothing_in_the_fixed_projects() {
    for name in ["planted/twin", "planted/yard_twin", "planted/depot_twin", "planted/mill_twin", "planted/garden_twin"]
    {
        let (found, _) = case(name).check().unwrap();
        let messages: Vec<String> = found.iter().map(|d| format!("{}: {}", d.code(), d.message())).collect();
        assert!(messages.is_empty(), "{name}: {messages:#?}");
    }
}
