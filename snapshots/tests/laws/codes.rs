//! Every diagnostic code appears in four places: the list, a topic's enum, an explain page whose example produces it,
//! and a case that shows it.

use std::collections::BTreeSet;
use std::fs;

use rye_compiler::diagnostics::CODES;
use rye_snapshots::{Case, discover};

use super::house::{root, sources};
use super::page::pages;

const SECTIONS: [&str; 4] = ["What it means", "Why it is refused", "Example", "Fix"];

/// Returns whether no source text can cause the code; unit tests cause these with graphs built by hand.
fn needs_no_source(code: &str) -> bool {
    code.starts_with("plan::")
}

fn known() -> BTreeSet<&'static str> {
    CODES.iter().copied().collect()
}

#[test]
fn code_list_matches_the_codes_in_sources() {
    let mut files = sources(&root().join("compiler/src/diagnostics"), ".rs");
    files.push(root().join("grammar/src/error.rs"));
    let mut answered = BTreeSet::new();
    for path in files.iter().filter(|p| !p.ends_with("codes.rs")) {
        for text in fs::read_to_string(path).unwrap().split('"') {
            let is_word = |w: &str| !w.is_empty() && w.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            if text.split_once("::").is_some_and(|(topic, name)| is_word(topic) && is_word(name)) {
                answered.insert(text.to_owned());
            }
        }
    }
    assert_eq!(known().into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), answered);
    assert!(CODES.is_sorted(), "the list is sorted");
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let found: BTreeSet<String> = pages().into_iter().map(|p| p.code).collect();
    let known: BTreeSet<String> = known().into_iter().map(str::to_owned).collect();
    let missing: Vec<_> = known.difference(&found).collect();
    let orphans: Vec<_> = found.difference(&known).collect();
    assert!(missing.is_empty() && orphans.is_empty(), "without a page: {missing:?}; pages without a code: {orphans:?}");
}

#[test]
fn every_page_has_its_title_and_four_sections() {
    for page in pages() {
        let words = page.title.strip_prefix(&format!("# {}: ", page.code));
        assert!(words.is_some_and(|words| !words.is_empty()), "{}: the title is `{}`", page.path, page.title);
        let headings: Vec<&str> = page.sections.iter().map(|(heading, _)| heading.as_str()).collect();
        assert_eq!(headings, SECTIONS, "{}", page.path);
        for (heading, text) in &page.sections {
            assert!(!text.trim().is_empty(), "{}: `{heading}` is empty", page.path);
        }
    }
}

#[test]
fn every_explain_example_produces_exactly_its_code() {
    let mut wrong = Vec::new();
    for page in pages().into_iter().filter(|p| !needs_no_source(&p.code)) {
        let world = page.world().unwrap_or_else(|| panic!("{}: the example shows no file", page.path));
        let (diagnostics, _) = rye_snapshots::check(&world);
        let codes: Vec<&str> = diagnostics.iter().map(rye_compiler::diagnostics::Diagnostic::code).collect();
        if codes != [page.code.as_str()] {
            wrong.push(format!("{} yields {codes:?}", page.path));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_code_has_a_case() {
    let cases = discover(&root().join("snapshots/cases")).unwrap();
    let mut wrong = Vec::new();
    for code in known().into_iter().filter(|code| !needs_no_source(code)) {
        let name = code.replace("::", "/");
        let codes = cases.iter().find(|case| case.name == name).map(codes_of);
        if codes.as_ref().is_none_or(|codes| !codes.contains(code)) {
            wrong.push(format!("{name}: {codes:?}"));
        }
    }
    assert!(wrong.is_empty(), "cases that are missing or do not show their code:\n{}", wrong.join("\n"));
}

fn codes_of(case: &Case) -> BTreeSet<&'static str> {
    case.check().unwrap().0.codes()
}

/// Codes that no source text causes are caused by hand, in the unit tests of the plan verification.
#[test]
fn plan_codes_have_a_unit_test() {
    let tests = fs::read_to_string(root().join("compiler/src/plan/verify/tests.rs")).unwrap();
    for code in known().into_iter().filter(|code| needs_no_source(code)) {
        assert!(tests.contains(&format!("\"{code}\"")), "no test makes a plan that is `{code}`");
    }
}
