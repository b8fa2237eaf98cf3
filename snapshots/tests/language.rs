//! Checks the reference pages and the page of first mistakes against the code: examples produce the output shown beside
//! them, and tables list what the code defines. `ACCEPT_DOCS=1` rewrites the generated parts.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "language/generated.rs"]
mod generated;
#[path = "language/mistakes.rs"]
mod mistakes;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rye_compiler::semantics::eval::answer;
use rye_compiler::semantics::hook_point::ActionName;
use rye_compiler::semantics::limits::{LimitName, Limits};
use rye_compiler::semantics::risk::{RiskTable, Tier};
use rye_compiler::world::{ItemKind, MapWorld, Space};
use rye_grammar::condition;
use rye_snapshots::{check, standard_library};
use serde_json::Value;

fn reference(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference").join(name)
}

/// Returns the language reference.
fn page() -> String {
    fs::read_to_string(reference("language.md")).unwrap()
}

/// A fenced block: its info string, its content, and its first line number.
struct PageBlock {
    info: String,
    content: String,
    line: usize,
}

/// Parts of a page in order: blocks and other lines.
enum PagePart {
    Block(PageBlock),
    Line(usize, String),
}

fn parts(text: &str) -> Vec<PagePart> {
    let mut parts = Vec::new();
    let mut open: Option<(String, PageBlock)> = None;
    for (i, line) in text.lines().enumerate() {
        let ticks = line.len() - line.trim_start_matches('`').len();
        open = match open.take() {
            Some((fence, block)) if line == fence => {
                parts.push(PagePart::Block(block));
                None
            }
            Some((fence, mut block)) => {
                block.content.push_str(line);
                block.content.push('\n');
                Some((fence, block))
            }
            None if ticks >= 3 => {
                let info = line.trim_start_matches('`').to_owned();
                Some(("`".repeat(ticks), PageBlock { info, content: String::new(), line: i + 1 }))
            }
            None => {
                parts.push(PagePart::Line(i + 1, line.to_owned()));
                None
            }
        };
    }
    assert!(open.is_none(), "a fence is never closed");
    parts
}

#[test]
fn documented_requests_produce_the_documented_answers() {
    let mut asked = 0;
    for part in parts(&page()) {
        let PagePart::Block(block) = part else { continue };
        if block.info != "eval" {
            continue;
        }
        let mut lines = block.content.lines();
        while let Some(request) = lines.next() {
            let wanted = lines.next().unwrap().strip_prefix("=> ").unwrap();
            let got: Value = serde_json::from_str(&answer(request)).unwrap();
            let context = format!("line {}: {request}\n  answers {got}\n  and not {wanted}", block.line);
            if let Some(code) = wanted.strip_prefix("error ") {
                assert_eq!(got["error"]["code"], code, "{context}");
            } else {
                let wanted: Value = serde_json::from_str(wanted).unwrap();
                assert!(holds(&got["ok"], &wanted), "{context}");
            }
            asked += 1;
        }
    }
    assert!(asked > 60, "{asked}");
}

/// Compares two values deeply. If the wanted value is an error with only a code, only the codes are compared.
fn holds(got: &Value, wanted: &Value) -> bool {
    match (got, wanted) {
        (Value::Object(got), Value::Object(wanted)) if wanted.contains_key("code") && wanted.len() == 1 => {
            got.get("code") == wanted.get("code")
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && b.iter().all(|(key, value)| a.get(key).is_some_and(|got| holds(got, value)))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| holds(a, b)),
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (a, b) => a == b,
    }
}

#[test]
fn documented_projects_produce_the_documented_output() {
    let mut world: Option<MapWorld<'static>> = None;
    let mut checked = 0;
    for part in parts(&page()) {
        match part {
            PagePart::Block(block) => {
                let Some(file) = block.info.split_whitespace().find_map(|word| word.strip_prefix("file=")) else {
                    continue;
                };
                world.get_or_insert_with(standard_library).insert(Space::Project, file, &block.content);
            }
            PagePart::Line(line, text) => {
                assert!(world.is_none() || !text.starts_with("## "), "line {line}: files without a `check` line");
                let Some(wanted) = text.strip_prefix("<!-- check ").and_then(|t| t.strip_suffix(" -->")) else {
                    continue;
                };
                let wanted: BTreeSet<&str> = wanted.split_whitespace().filter(|w| *w != "clean").collect();
                let world = world.take().unwrap_or_else(|| panic!("line {line}: no files"));
                let found = check(&world).0;
                let messages: Vec<String> = found.iter().map(|d| format!("{}: {}", d.code(), d.message())).collect();
                assert_eq!(found.codes(), wanted, "line {line}: {messages:#?}");
                checked += 1;
            }
        }
    }
    assert!(world.is_none() && checked > 10, "{checked}");
}

/// Returns the rows of the table after `<!-- table NAME -->`, cell by cell, without its two header lines.
fn table(name: &str) -> Vec<Vec<String>> {
    let page = page();
    let (_, after) = page.split_once(&format!("<!-- table {name} -->\n")).unwrap();
    let rows = after.lines().take_while(|line| line.starts_with('|')).skip(2);
    // A `||` inside backticks does not separate cells.
    let cells = |row: &str| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    rows.map(cells).collect()
}

/// Returns the words in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn first_words(name: &str) -> Vec<String> {
    table(name).iter().map(|row| quoted(&row[0])[0].to_owned()).collect()
}

#[test]
fn documented_tables_match_the_code() {
    let kinds: Vec<Vec<String>> = ItemKind::ALL
        .iter()
        .map(|kind| {
            let endings: Vec<String> = kind.extensions().iter().map(|e| format!("`{e}`")).collect();
            let folders: Vec<String> = kind.folders().iter().map(|folder| format!("`{folder}`")).collect();
            vec![format!("`{}`", kind.as_str()), folders.join(" "), endings.join(" ")]
        })
        .collect();
    assert_eq!(table("kinds"), kinds);
    assert_eq!(first_words("operators"), condition::OPERATORS);
    assert_eq!(first_words("actions"), ActionName::ALL.map(ActionName::as_str));
    for alias in ["load", "search", "fail", "abort"] {
        assert!(ActionName::from_word(alias).is_some());
    }
    assert_eq!(first_words("limits"), LimitName::ALL.map(|limit| limit.to_string()));
    for row in table("limits") {
        let limit = LimitName::parse(quoted(&row[0])[0]).unwrap();
        assert_eq!(row[1], Limits::default().get(limit).to_string(), "{row:?}");
    }
}

#[test]
fn documented_risk_table_matches_the_built_in_one() {
    let risks = RiskTable::default();
    let rows = table("risk");
    assert_eq!(rows.iter().map(|row| quoted(&row[0])[0]).collect::<Vec<_>>(), Tier::ALL.map(Tier::as_str));
    for row in &rows {
        let tier = Tier::parse(quoted(&row[0])[0]).unwrap();
        assert_eq!(quoted(&row[1]), [risks.policy(tier).as_str()]);
        for pattern in quoted(&row[2]) {
            let risk = risks.classify(pattern);
            assert_eq!((risk.tier, risk.pattern.as_deref()), (tier, Some(pattern)));
        }
    }
}

/// Checks the standard library's settings as if a project had written them.
#[test]
fn standard_library_settings_use_only_known_keys() {
    let mut world = MapWorld::new();
    let files = rye_stdlib::files();
    let settings = files.iter().filter(|(path, _)| path.starts_with(".ai/config/"));
    for (path, bytes) in settings.clone() {
        world.insert(Space::Project, path, bytes);
    }
    let found = check(&world).0;
    let about = |d: &&rye_compiler::diagnostics::Diagnostic| {
        ["config::", "model::", "item::unknown-key", "item::stray", "syntax::"].iter().any(|c| d.code().starts_with(c))
    };
    let messages: Vec<String> = found.iter().filter(about).map(|d| format!("{}: {}", d.code(), d.message())).collect();
    assert!(messages.is_empty() && settings.count() > 15, "{messages:#?}");
}

/// Replaces the part of a page between `<!-- generated NAME -->` and the next `<!-- end -->`.
fn with_generated(page: &str, name: &str, content: &str) -> String {
    let mark = format!("<!-- generated {name} -->\n");
    let (head, after) = page.split_once(&mark).unwrap_or_else(|| panic!("the page has no {mark}"));
    let (_, tail) = after.split_once("<!-- end -->").unwrap();
    format!("{head}{mark}{content}<!-- end -->{tail}")
}

#[test]
fn generated_doc_parts_are_up_to_date() {
    let parts = [
        ("events.md", "hook-points", generated::hook_points()),
        ("events.md", "transcript-events", generated::transcript_events()),
        ("settings.md", "settings", generated::settings()),
    ];
    let mut stale = Vec::new();
    for (name, part, content) in parts {
        let old = fs::read_to_string(reference(name)).unwrap();
        let new = with_generated(&old, part, &content);
        if old != new && std::env::var_os("ACCEPT_DOCS").is_some() {
            fs::write(reference(name), &new).unwrap();
        } else if old != new {
            stale.push(format!("docs/reference/{name}, part {part}"));
        }
    }
    assert!(stale.is_empty(), "out of date: {}; run this test once with ACCEPT_DOCS=1", stale.join("; "));
    assert_eq!(with_generated("a\n<!-- generated x -->\nold\n<!-- end -->\nb", "x", "new\n"), {
        "a\n<!-- generated x -->\nnew\n<!-- end -->\nb"
    });
}
