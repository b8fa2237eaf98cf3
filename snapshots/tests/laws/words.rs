//! Prose rules: how doc comments open, and words that comments and pages do not use.

use std::fs;
use std::path::PathBuf;

use super::house::{root, sources};

const CRATES: [&str; 6] = ["grammar", "compiler", "engine", "stdlib", "cli", "snapshots"];

/// Openings that hide the subject of a doc comment.
const EXCLUDED_OPENINGS: [&str; 11] =
    ["What", "Who", "Whoever", "Whether", "How", "It", "One", "Those", "The same", "Nobody", "Somebody"];

/// Words and phrases outside the glossary.
const EXCLUDED_WORDS: [&str; 7] =
    ["whoever", "nobody", "somebody", "heard out", "gone on with", "goes on with", "taken up again"];

/// Pages that quote messages of the program or of a scripted model.
const QUOTING_PAGES: [&str; 3] =
    ["docs/guides/first-mistakes.md", "docs/reference/language.md", "docs/explanation/security.md"];

fn rust_sources() -> Vec<PathBuf> {
    let found: Vec<PathBuf> = CRATES.iter().flat_map(|name| sources(&root().join(name), ".rs")).collect();
    assert!(found.len() > 500, "the law must see the sources it checks");
    found
}

/// Returns the first lines of the doc comments of a source that open with an excluded word.
fn excluded_openings(source: &str) -> Vec<&str> {
    let mut previous_is_doc = false;
    let mut found = Vec::new();
    for line in source.lines().map(str::trim) {
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim_start);
        if let Some(text) = text.filter(|_| !previous_is_doc) {
            let opens_with = |word: &str| {
                let rest = text.strip_prefix(word);
                rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
            };
            if EXCLUDED_OPENINGS.iter().any(|word| opens_with(word)) {
                found.push(line);
            }
        }
        previous_is_doc = text.is_some();
    }
    found
}

/// Returns true if a text contains an excluded word as a whole word.
fn has_excluded_word(text: &str) -> bool {
    let lower = text.to_lowercase();
    let is_whole = |at: usize, word: &str| {
        let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let (before, after) = lower.split_at(at);
        !is_letter(before.chars().next_back())
            && !is_letter(after.get(word.len()..).and_then(|rest| rest.chars().next()))
    };
    EXCLUDED_WORDS.iter().any(|word| lower.match_indices(word).any(|(at, _)| is_whole(at, word)))
}

#[test]
fn doc_comments_open_with_their_subject() {
    let mut found = Vec::new();
    for path in rust_sources() {
        let text = fs::read_to_string(&path).unwrap();
        found.extend(excluded_openings(&text).into_iter().map(|line| format!("{}: {line}", path.display())));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert_eq!(
        excluded_openings("/// Whether a\n/// One b\n\n//! The same\n/// Item c\n//// It"),
        ["/// Whether a", "//! The same"]
    );
}

#[test]
fn comments_and_pages_use_the_words_of_the_glossary() {
    let mut found = Vec::new();
    for path in rust_sources() {
        if path.ends_with("laws/words.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let comments = text.lines().filter(|line| line.trim_start().starts_with("//") && has_excluded_word(line));
        found.extend(comments.map(|line| format!("{}: {line}", path.display())));
    }
    let pages = sources(&root().join("docs"), ".md")
        .into_iter()
        .chain(["README.md", "ARCHITECTURE.md"].map(|page| root().join(page)));
    for path in pages.filter(|path| !QUOTING_PAGES.iter().any(|page| path.ends_with(page))) {
        let text = fs::read_to_string(&path).unwrap();
        found.extend(
            text.lines().filter(|line| has_excluded_word(line)).map(|line| format!("{}: {line}", path.display())),
        );
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(has_excluded_word("Whoever asks") && !has_excluded_word("somebody_else"));
}
