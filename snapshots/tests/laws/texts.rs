//! Prose rules for all texts outside of Rust sources: pages, explain pages, the standard library, examples, scripts.

use std::fs;
use std::path::PathBuf;

use super::house::{root, sources};
use super::words::{EXCLUDED_WORDS, find_word, opens_with_excluded_word};

/// Files and folders that the rules do not apply to, with the reason.
const EXCLUDED_PATHS: [(&str, &str); 11] = [
    ("Cargo.lock", "written by cargo"),
    ("cli/tests/golden/", "recorded requests"),
    ("cli/tests/state-0.1/", "a project as version 0.1 wrote it"),
    ("e2e/.acp-cli/", "installed by `e2e/run`"),
    ("e2e/.python/", "installed by `e2e/run`"),
    ("engine/fixtures/", "recorded streams and schemas of providers"),
    ("engine/proptest-regressions/", "written by proptest"),
    ("fuzz/corpus/", "inputs of the parsers"),
    ("fuzz/Cargo.lock", "written by cargo"),
    ("snapshots/baseline/", "results of version 0.1"),
    ("snapshots/contract/", "requests and answers of `rye eval`"),
];

/// Folders of a project into which runs write. A run of an example, such as the first command of the README, leaves them.
const WRITTEN_BY_RUNS: [&str; 2] = [".ai/state/", ".ai/knowledge/agent/threads/"];

/// Endings of files that hold recorded outputs, signatures or data.
const EXCLUDED_ENDINGS: [&str; 7] = [".rs", ".snap", ".json", ".jsonl", ".tsv", ".pem", ".redb"];

/// Excluded words that a file contains for a reason.
const ALLOWED_WORDS: [(&str, &str, &str); 12] = [
    ("bench/words.py", "whoever", "the list of excluded openings"),
    ("bench/words.py", "nobody", "the list of excluded openings"),
    ("bench/words.py", "somebody", "the list of excluded openings"),
    ("compiler/codes/interface/missing-output.md", "weigh", "the id of the directive of the example"),
    ("compiler/codes/interface/missing-output.md", "weighs", "the description of an output of the example"),
    ("compiler/codes/interface/unknown-output.md", "weigh", "the id of the directive of the example"),
    ("compiler/codes/interface/unknown-output.md", "weighs", "the description of an output of the example"),
    ("compiler/codes/spawn/no-children.md", "weigh", "the id of the directive of the example"),
    ("docs/reference/language.md", "somebody", "the description of a skill, which a model receives"),
    ("examples/review/.ai/knowledge/project/review-rules.md", "somebody", "knowledge that a model receives"),
    ("examples/review/script.yaml", "somebody", "a reply of the scripted model"),
    (
        "stdlib/.ai/directives/rye/agent/core/continuation.md",
        "goes on",
        "a description that a search of a model returns",
    ),
];

/// Endings of files whose comments open with `#`; the other scripts have the comments of JavaScript.
const HASH_COMMENTS: [&str; 8] = [".py", ".sh", ".yaml", ".yml", ".toml", ".rb", "justfile", "/run"];

fn texts() -> Vec<(String, String)> {
    let shown = |path: PathBuf| path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
    let found: Vec<(String, String)> = sources(&root(), "")
        .into_iter()
        .map(|path| (shown(path.clone()), path))
        .filter(|(name, _)| is_checked(name))
        .filter_map(|(name, path)| Some((name, fs::read_to_string(path).ok()?)))
        .collect();
    assert!(found.len() > 500, "the law must see the texts it checks: {}", found.len());
    found
}

/// Returns whether the rules apply to a file. Of a case, they apply to the settings: its project is test data.
fn is_checked(name: &str) -> bool {
    let is_project = name.starts_with("snapshots/cases/") && !name.ends_with("/case.yaml");
    let is_written = WRITTEN_BY_RUNS.iter().any(|folder| name.contains(folder));
    let is_excluded = is_written || EXCLUDED_PATHS.iter().any(|(path, _)| name.starts_with(path));
    !is_project && !is_excluded && !EXCLUDED_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Returns the lines of a text with an excluded word that the file may not contain.
fn excluded_words<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
    let is_allowed = |word: &str| ALLOWED_WORDS.iter().any(|(file, allowed, _)| *file == name && *allowed == word);
    let words: Vec<&str> = EXCLUDED_WORDS.into_iter().filter(|word| !is_allowed(word)).collect();
    text.lines().filter(|line| find_word(line, &words).is_some()).collect()
}

/// Returns the lines of a script or settings file in which a comment opens with an excluded word.
fn excluded_openings<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
    let marks: &[&str] = match name {
        name if HASH_COMMENTS.iter().any(|ending| name.ends_with(ending)) => &["# ", "\"\"\""],
        name if [".mjs", ".js", ".ts", ".pest"].iter().any(|ending| name.ends_with(ending)) => &["// ", "/** "],
        _ => return Vec::new(),
    };
    let comment = |line: &'t str| marks.iter().find_map(|mark| line.trim_start().strip_prefix(mark));
    let mut found = Vec::new();
    let mut previous = None;
    for line in text.lines() {
        let opens = comment(line).filter(|_| previous.is_none()).is_some_and(opens_with_excluded_word);
        found.extend(opens.then_some(line));
        previous = comment(line);
    }
    found
}

#[test]
fn texts_use_the_words_of_the_glossary() {
    let breaches = |(name, text): &(String, String)| {
        excluded_words(name, text).into_iter().map(|line| format!("{name}: {line}")).collect::<Vec<_>>()
    };
    let found: Vec<String> = texts().iter().flat_map(breaches).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn comments_of_scripts_and_settings_open_with_their_subject() {
    let breaches = |(name, text): &(String, String)| {
        excluded_openings(name, text).into_iter().map(|line| format!("{name}: {line}")).collect::<Vec<_>>()
    };
    let found: Vec<String> = texts().iter().flat_map(breaches).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn allowed_words_are_in_their_files() {
    for (name, word, _) in ALLOWED_WORDS {
        let text = fs::read_to_string(root().join(name)).unwrap();
        assert!(text.lines().any(|line| find_word(line, &[word]).is_some()), "{name} has no `{word}`");
    }
}

#[test]
fn planted_words_and_openings_are_found_in_each_kind_of_text() {
    let files =
        ["CHANGELOG.md", "CONTRIBUTING.md", "compiler/codes/hook/never.md", "stdlib/.ai/tools/rye/bash/bash.yaml"];
    for name in files.into_iter().chain(["examples/hello/README.md", "bench/run", "snapshots/cases/hook/a/case.yaml"]) {
        assert!(is_checked(name), "{name}");
        assert_eq!(excluded_words(name, "A line\nNobody waits, `holes`\n"), ["Nobody waits, `holes`"], "{name}");
    }
    for name in ["snapshots/cases/hook/a/.ai/tools/a.yaml", "engine/src/lib.rs", "fuzz/corpus/xml/broken"] {
        assert!(!is_checked(name), "{name}");
    }
    assert_eq!(excluded_openings("bench/run", "# Runs.\n# What\n\n# What waits\nx\n"), ["# What waits"]);
    assert_eq!(excluded_openings("a.py", "def f():\n    \"\"\"How a thread ends.\"\"\"\n").len(), 1);
    assert_eq!(excluded_openings("a.mjs", "/** One call. */\n// Those calls\n").len(), 1);
    assert_eq!(excluded_openings("a.md", "# How a thread ends\n").len(), 0);
}
