//! Links in Markdown pages: every relative link leads to a file of this repository, and every anchor to a heading.

use std::fs;
use std::path::{Path, PathBuf};

use super::house::{root, sources};

/// The pages that readers of the repository open.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md"), root().join("ARCHITECTURE.md"), root().join("CONTRIBUTING.md")];
    for folder in ["docs", "snapshots/promises", "examples"] {
        pages.extend(sources(&root().join(folder), ".md"));
    }
    assert!(pages.len() > 20, "the law must see the pages it checks");
    pages
}

/// Returns the lines outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_fenced = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    })
}

/// Returns the targets of inline links, without links that leave the repository.
fn targets(text: &str) -> Vec<String> {
    let after = prose(text).flat_map(|line| line.split("](").skip(1).map(str::to_owned).collect::<Vec<_>>());
    let targets = after.filter_map(|rest| rest.split(')').next().map(str::to_owned));
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")).collect()
}

/// Returns the anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn has_anchor(page: &Path, wanted: &str) -> bool {
    let text = fs::read_to_string(page).unwrap();
    prose(&text).filter(|line| line.starts_with('#')).any(|line| anchor(line.trim_start_matches('#')) == wanted)
}

/// Returns the links of a page that lead nowhere, and the number of all its links.
fn broken_links(page: &Path) -> (Vec<String>, usize) {
    let text = fs::read_to_string(page).unwrap();
    let targets = targets(&text);
    let seen = targets.len();
    let is_broken = |target: &String| {
        let (file, fragment) = target.split_once('#').unwrap_or((target.as_str(), ""));
        let file = if file.is_empty() { page.to_path_buf() } else { page.parent().unwrap().join(file) };
        !file.exists() || (!fragment.is_empty() && !has_anchor(&file, fragment))
    };
    (targets.into_iter().filter(is_broken).map(|target| format!("{}: {target}", page.display())).collect(), seen)
}

#[test]
fn links_of_pages_resolve() {
    let found: Vec<(Vec<String>, usize)> = pages().iter().map(|page| broken_links(page)).collect();
    let seen: usize = found.iter().map(|(_, seen)| seen).sum();
    let broken: Vec<String> = found.into_iter().flat_map(|(broken, _)| broken).collect();
    assert!(seen > 40, "the law must see the links it checks: {seen}");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn links_to_missing_files_and_headings_are_broken() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    put("a.md", "# One heading\n[a](#one-heading) [b](#no) [c](b.md) [d](b.md#two) [e](gone.md)\n");
    put("b.md", "## Two\n");
    let (broken, seen) = broken_links(&folder.path().join("a.md"));
    let broken: Vec<&str> = broken.iter().filter_map(|link| link.rsplit(' ').next()).collect();
    assert_eq!((broken, seen), (vec!["#no", "gone.md"], 5));
}

#[test]
fn a_broken_link_is_seen() {
    assert_eq!(targets("See [a](b.md#c) and [d](https://example.com).\n```\n[e](f.md)\n```"), ["b.md#c"]);
    assert_eq!(anchor("8. What is signed, and how"), "8-what-is-signed-and-how");
}
