//! Every code a diagnostic can have, with its page: for `rye explain`, and for the laws that each code has a page, an
//! example that yields it, and a case.

/// A code and its explain page.
#[derive(Debug, Clone, Copy)]
pub struct Code {
    /// Topic and name: `extends::cycle`.
    pub code: &'static str,
    /// Markdown: what it means, why it is refused, an example, the fix.
    pub page: &'static str,
}

/// One file of a page's example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExampleFile {
    /// Relative to the project: `.ai/directives/hello.md`.
    pub path: String,
    pub content: Vec<u8>,
}

macro_rules! codes {
    ($($root:literal $topic:literal: $($name:literal)+;)+) => {
        /// Topic and name of every code, sorted.
        pub const CODES: &[&str] = &[$($(concat!($topic, "::", $name)),+),+];
        /// Every code with its page, sorted.
        pub const ALL: &[Code] = &[$($(Code {
            code: concat!($topic, "::", $name),
            page: include_str!(concat!("../../../", $root, "/codes/", $topic, "/", $name, ".md")),
        }),+),+];
    };
}

codes! {
    "compiler" "capability": "blocked" "exceeds-base" "matches-nothing" "too-complex" "unacknowledged";
    "compiler" "config": "invalid";
    "compiler" "context": "duplicate" "suppressed-and-declared" "suppresses-nothing" "unknown-item";
    "compiler" "extends": "cycle" "too-deep" "unknown";
    "compiler" "hook": "always" "duplicate-id" "never" "shadowed" "ungranted" "unknown-event" "unknown-fact"
        "untrusted-parameter" "wrong-action";
    "compiler" "interface": "missing-input" "type" "unknown-input" "unused-input";
    "compiler" "item": "ambiguous" "escapes-space" "invalid-value" "missing" "name-mismatch" "repeated" "signature"
        "unknown" "unknown-key" "unreadable";
    "compiler" "limit": "cannot-afford-one-turn" "invalid" "unknown";
    "compiler" "model": "unknown";
    "compiler" "palette": "collision" "describes-ungranted" "name" "undescribed";
    "compiler" "plan": "not-total" "unbounded" "ungated" "unreachable";
    "grammar" "syntax": "capability" "condition" "fence" "reference" "template" "xml" "yaml";
}

/// The page of a code, with or without `rye::` before it.
pub fn page(code: &str) -> Option<&'static str> {
    let code = code.strip_prefix("rye::").unwrap_or(code);
    ALL.iter().find(|c| c.code == code).map(|c| c.page)
}

/// The files of a page's example: every fence whose info string says `file=PATH`. A `hex` fence holds bytes; one with
/// `n=1..64` stands for as many files, with `{n}` and `{n+1}` filled in. Empty for pages that no source can cause.
pub fn example(page: &str) -> Vec<ExampleFile> {
    let mut files = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let ticks = line.len() - line.trim_start_matches('`').len();
        let Some(info) = line.get(ticks..).filter(|_| ticks >= 3) else { continue };
        let close = "`".repeat(ticks);
        let mut content = String::new();
        for line in lines.by_ref().take_while(|l| *l != close) {
            content.push_str(line);
            content.push('\n');
        }
        let mut words = info.split_whitespace();
        let language = words.next().unwrap_or_default();
        let attribute = |name: &str| info.split_whitespace().find_map(|w| w.strip_prefix(name)?.strip_prefix('='));
        let Some(path) = attribute("file") else { continue };
        for n in range(attribute("n")) {
            let fill = |text: &str| match n {
                Some(n) => text.replace("{n}", &n.to_string()).replace("{n+1}", &(n + 1).to_string()),
                None => text.to_owned(),
            };
            let text = fill(&content);
            let content = if language == "hex" { bytes(&text) } else { text.into_bytes() };
            files.push(ExampleFile { path: fill(path), content });
        }
    }
    files
}

/// `1..64` as numbers, both ends included; once, without a number, where there is none.
fn range(text: Option<&str>) -> Vec<Option<u32>> {
    let ends = text.and_then(|t| t.split_once("..")).and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    match ends {
        Some((first, last)) => (first..=last).map(Some).collect(),
        None => vec![None],
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace().filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_its_sections_in_order() {
        for Code { code, page } in ALL {
            let mut at = 0;
            assert!(page.starts_with(&format!("# {code}")), "{code}");
            for section in ["## What it means", "## Why it is refused", "## Example", "## Fix"] {
                let found = page.find(section).unwrap_or_default();
                assert!(found > at, "{code}: {section}");
                at = found;
            }
            assert_eq!(example(page).is_empty(), code.starts_with("plan::"), "{code}");
        }
        assert!(CODES.is_sorted());
    }

    #[test]
    fn examples_are_taken_from_their_fences() {
        let page = "````markdown file=a_{n}.md n=1..2\nnext {n+1}\n```xml\n```\n````\n```hex file=b\nff 00\n```\n```text\nx\n```\n";
        let file = |path: &str, content: &[u8]| ExampleFile { path: path.into(), content: content.into() };
        let expected =
            [file("a_1.md", b"next 2\n```xml\n```\n"), file("a_2.md", b"next 3\n```xml\n```\n"), file("b", &[0xff, 0])];
        assert_eq!(example(page), expected);
    }

    #[test]
    fn pages_are_found_with_and_without_prefix() {
        assert_eq!(page("rye::extends::cycle"), page("extends::cycle"));
        assert!(page("extends::cycle").is_some() && page("extends::circle").is_none());
    }
}
