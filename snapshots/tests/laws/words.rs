//! Prose rules: how doc comments open, and words that comments and messages do not use.

use std::fs;
use std::path::PathBuf;

use super::house::{root, sources};

const CRATES: [&str; 7] = ["grammar", "compiler", "engine", "stdlib", "rye", "cli", "snapshots"];

/// Openings that hide the subject of a doc comment.
const EXCLUDED_OPENINGS: [&str; 11] =
    ["What", "Who", "Whoever", "Whether", "How", "It", "One", "Those", "The same", "Nobody", "Somebody"];

/// Words and phrases of the glossary's column "never" that have no other meaning in this repository, and indefinite
/// pronouns. Words with a technical meaning of their own (`line`, `block`, `may`, `word`, `manual`) are not in the
/// list.
pub const EXCLUDED_WORDS: [&str; 36] = [
    "whoever",
    "nobody",
    "somebody",
    "anew",
    "all the same",
    "heard out",
    "gone on with",
    "goes on",
    "going on",
    "take up",
    "takes up",
    "taken up",
    "came to",
    "came in",
    "is over",
    "give up",
    "claim back",
    "claims back",
    "keep back",
    "kept back",
    "room above",
    "the thread above",
    "takes away",
    "wants to",
    "that one is gone",
    "papers",
    "complaint",
    "hole",
    "holes",
    "ruling",
    "bury",
    "buried",
    "weigh",
    "weighs",
    "walls",
    "no more than was",
];

/// Words and phrases that only messages avoid: comments use them for code (`is no error`), and tests for their scripts.
const EXCLUDED_IN_MESSAGES: [&str; 26] = [
    "is no",
    "are no",
    "was no",
    "stands",
    "told",
    "tells",
    "said",
    "says",
    "say",
    "go on",
    "held back",
    "hides",
    "begin",
    "begins",
    "beginning",
    "wall",
    "letter",
    "mail",
    "wants",
    "trouble",
    "word for",
    "asked again",
    "asked for",
    "looked at",
    "looked for",
    "by itself",
];

/// Phrases of messages that contain an excluded word with another meaning.
const ALLOWED_IN_MESSAGES: [(&str, &str); 5] = [
    ("is no longer", "an adverb of time"),
    ("there is no key", "a statement about an object, not a negated noun"),
    ("with a letter", "a letter of the alphabet"),
    ("-----begin", "the marker of a private key"),
    ("wall clock", "the clock of the day"),
];

/// Modules that only tests compile, outside of folders that are named after tests.
const TEST_MODULES: [&str; 8] = [
    "engine/src/store/crash_tests.rs",
    "engine/src/machine/fixture.rs",
    "engine/src/provider/fixture.rs",
    "engine/src/provider/provider_schemas.rs",
    "engine/src/store/disk/simulated.rs",
    "engine/src/store/registry/ledger/stress.rs",
    "engine/src/provider/wire/cuts.rs",
    "engine/src/provider/wire/strict.rs",
];

fn rust_sources() -> Vec<PathBuf> {
    let found: Vec<PathBuf> = CRATES.iter().flat_map(|name| sources(&root().join(name), ".rs")).collect();
    assert!(found.len() > 500, "the law must see the sources it checks");
    found
}

pub fn opens_with_excluded_word(text: &str) -> bool {
    let opens_with = |word: &&str| {
        let rest = text.strip_prefix(*word);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    EXCLUDED_OPENINGS.iter().any(opens_with)
}

/// Returns the first lines of the doc comments of a source that open with an excluded word.
fn excluded_openings(source: &str) -> Vec<&str> {
    let mut previous_is_doc = false;
    let mut found = Vec::new();
    for line in source.lines().map(str::trim) {
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim_start);
        if let Some(text) = text.filter(|_| !previous_is_doc) {
            found.extend(opens_with_excluded_word(text).then_some(line));
        }
        previous_is_doc = text.is_some();
    }
    found
}

/// Returns the first excluded word that a text contains as a whole word. Code in backticks does not count.
pub fn find_word<'w>(text: &str, words: &[&'w str]) -> Option<&'w str> {
    let lower: String = text.to_lowercase().split('`').step_by(2).collect::<Vec<_>>().join("`");
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let is_whole = |at: usize, word: &str| {
        let (before, after) = lower.split_at(at);
        !is_letter(before.chars().next_back())
            && !is_letter(after.get(word.len()..).and_then(|rest| rest.chars().next()))
    };
    words.iter().find(|word| lower.match_indices(**word).any(|(at, _)| is_whole(at, word))).copied()
}

fn has_excluded_word(text: &str) -> bool {
    find_word(text, &EXCLUDED_WORDS).is_some()
}

/// Returns the text literals of a Rust source that a user can read: literals that contain a space and precede the
/// tests, with placeholders removed.
fn message_literals(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]\n#[allow").next().unwrap_or_default();
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(['"', '\'', '/']) {
        let (before, tail) = rest.split_at(at);
        if tail.starts_with("//") {
            rest = tail.split_once('\n').map_or("", |(_, after)| after);
        } else if tail.starts_with('\'') {
            // A character literal; a lifetime has no closing quote near it.
            let length = tail.strip_prefix("'\\").and_then(|rest| rest.find('\'')).map(|end| end + 3);
            let plain = tail
                .chars()
                .nth(2)
                .filter(|c| *c == '\'')
                .map(|_| tail.char_indices().nth(3).map_or(tail.len(), |(end, _)| end));
            rest = &tail[length.or(plain).unwrap_or(1)..];
        } else if let Some(body) = tail.strip_prefix('"') {
            let marks = before.len() - before.trim_end_matches('#').len();
            let is_raw = before.trim_end_matches('#').ends_with('r');
            let close = format!("\"{}", "#".repeat(if is_raw { marks } else { 0 }));
            let end = if is_raw { body.find(&close) } else { end_of_literal(body) };
            let end = end.expect("every literal is closed");
            found.push(without_placeholders(&body[..end]));
            rest = &body[end + close.len()..];
        } else {
            rest = &tail[1..];
        }
    }
    found.retain(|text| text.trim().contains(' '));
    found
}

/// Returns the place of the quote that closes a literal with escapes.
fn end_of_literal(body: &str) -> Option<usize> {
    let mut is_escaped = false;
    body.char_indices().find_map(|(at, c)| {
        let closes = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        closes.then_some(at)
    })
}

/// Joins the lines of a literal, and removes its placeholders (`{said}`).
fn without_placeholders(literal: &str) -> String {
    let joined: Vec<&str> =
        literal.split("\\\n").enumerate().map(|(n, part)| if n == 0 { part } else { part.trim_start() }).collect();
    let mut out = String::new();
    for (n, part) in joined.concat().split('{').enumerate() {
        out.push_str(if n == 0 { part } else { part.split_once('}').map_or(part, |(_, after)| after) });
    }
    out
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
fn comments_use_the_words_of_the_glossary() {
    let mut found = Vec::new();
    for path in rust_sources() {
        if path.ends_with("laws/words.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let comments = text.lines().filter(|line| line.trim_start().starts_with("//") && has_excluded_word(line));
        found.extend(comments.map(|line| format!("{}: {line}", path.display())));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(has_excluded_word("Whoever asks") && !has_excluded_word("somebody_else"));
}

#[test]
fn messages_use_the_words_of_the_glossary() {
    let words: Vec<&str> = EXCLUDED_WORDS.iter().chain(&EXCLUDED_IN_MESSAGES).copied().collect();
    let mut found = Vec::new();
    for path in rust_sources() {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let is_test = name.contains("/tests") || name.contains("/benches/") || name.starts_with("snapshots/");
        if is_test || TEST_MODULES.contains(&name.as_str()) {
            continue;
        }
        for literal in message_literals(&fs::read_to_string(&path).unwrap()) {
            let mut text = literal.to_lowercase();
            for (phrase, _) in ALLOWED_IN_MESSAGES {
                text = text.replace(phrase, "");
            }
            found.extend(find_word(&text, &words).map(|word| format!("{name}: `{word}` in: {literal}")));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn message_literals_exclude_comments_characters_and_placeholders() {
    let source = "let a = '\"'; // a \"b c\"\nlet b: &'static str = \"one {two} three\";\nlet c = r#\"four \" five\"#;\n\
        let d = \"six \\\n    seven\"; let e = '\\''; let f = \"eight\";\n#[cfg(test)]\nmod tests {\"nine ten\"}";
    assert_eq!(message_literals(source), ["one  three", "four \" five", "six seven"]);
    assert_eq!(find_word("use `wall: none` or a wall", &["wall"]), Some("wall"));
    assert_eq!(find_word("use `wall: none`, firewall", &["wall"]), None);
}
