//! Every diagnostic code appears in four places: the list, a topic's enum, an explain page whose example produces it,
//! and a case that shows it.

use std::collections::BTreeSet;
use std::fs;

use rye_compiler::diagnostics::CODES;
use rye_snapshots::{Case, discover};

use super::house::{root, sources};
use super::page::{ExplainPage, pages};

const SECTIONS: [&str; 4] = ["What it means", "Why it is refused", "Example", "Fix"];

/// Returns true if no source text can cause the code. Unit tests cause such a code with a graph built by hand.
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
    let faults: Vec<String> = pages().iter().flat_map(layout_faults).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns what is wrong with the title and the sections of a page.
fn layout_faults(page: &ExplainPage) -> Vec<String> {
    let mut faults = Vec::new();
    let words = page.title.strip_prefix(&format!("# {}: ", page.code));
    if words.is_none_or(str::is_empty) {
        faults.push(format!("{}: the title is `{}`", page.path, page.title));
    }
    let headings: Vec<&str> = page.sections.iter().map(|(heading, _)| heading.as_str()).collect();
    if headings != SECTIONS {
        faults.push(format!("{}: the sections are {headings:?}", page.path));
    }
    let empty = page.sections.iter().filter(|(_, text)| text.trim().is_empty());
    faults.extend(empty.map(|(heading, _)| format!("{}: `{heading}` is empty", page.path)));
    faults
}

/// Returns the codes that the example of a page produces, if they differ from the page's own code.
fn example_fault(page: &ExplainPage) -> Option<String> {
    let Some(world) = page.world() else { return Some(format!("{}: the example shows no file", page.path)) };
    let (diagnostics, _) = rye_snapshots::check(&world);
    let codes: Vec<&str> = diagnostics.iter().map(rye_compiler::diagnostics::Diagnostic::code).collect();
    (codes != [page.code.as_str()]).then(|| format!("{} yields {codes:?}", page.path))
}

/// Returns the fault of a page whose example yields a warning or advice, if the reason does not begin with the severity.
fn severity_fault(page: &ExplainPage) -> Option<String> {
    let (diagnostics, _) = rye_snapshots::check(&page.world()?);
    let is_error = diagnostics.has_errors();
    let reason = page.section("Why it is refused").trim_start();
    let states_severity =
        ["This is a warning", "This is advice", "This is not refused"].iter().any(|s| reason.starts_with(s));
    (!is_error && !states_severity).then(|| format!("{}: the reason does not begin with the severity", page.path))
}

#[test]
fn reason_of_a_warning_begins_with_its_severity() {
    let pages = pages().into_iter().filter(|page| !needs_no_source(&page.code));
    let faults: Vec<String> = pages.filter_map(|page| severity_fault(&page)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn planted_breaches_of_a_page_are_found() {
    let path = root().join("compiler/codes/item/stray.md");
    let text = fs::read_to_string(&path).unwrap();
    let planted = |from: &str, to: &str| {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        ExplainPage::parse(&path, &changed)
    };
    let page = ExplainPage::parse(&path, &text);
    assert_eq!((layout_faults(&page), example_fault(&page)), (Vec::new(), None));
    assert_eq!(layout_faults(&planted("# item::stray: ", "# item::stray ")).len(), 1);
    assert_eq!(layout_faults(&planted("## Fix", "## Fixes")).len(), 1);
    assert_eq!(layout_faults(&planted("## Fix", "## Fix\n\n## Fix")).len(), 2, "one more section, and it is empty");
    assert!(example_fault(&planted("file=", "file=docs/")).is_some(), "the file is no item any more");
    assert!(example_fault(&planted("## Example", "## Examples")).is_some(), "no example is left");
}

#[test]
fn every_explain_example_produces_exactly_its_code() {
    let pages = pages().into_iter().filter(|page| !needs_no_source(&page.code));
    let faults: Vec<String> = pages.filter_map(|page| example_fault(&page)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
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
