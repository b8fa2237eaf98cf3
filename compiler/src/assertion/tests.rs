//! Tests of assertions over small projects.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::compile::tests::world::{minimal_world, with_directives};
use crate::world::MapWorld;

/// Creates a project in which `parent` may start `child` and names it; `child` has the grants.
fn family(parent: &str, child: &str, assertions: &str) -> MapWorld<'static> {
    let permissions = |inside: &str| format!("<metadata><permissions>{inside}</permissions></metadata>");
    with_directives(
        minimal_world(),
        &[
            ("parent", "", &permissions(parent), "Call `rye_execute(item_type=\"directive\", item_id=\"child\")`."),
            ("child", "", &permissions(child), "Do it."),
        ],
    )
    .project(".ai/config/agent/assertions.yaml", assertions)
}

const WEB: &str = "<execute><tool>rye.web.*</tool></execute>";
const SECRETS: &str = "<fetch><knowledge>secrets.*</knowledge></fetch>";
const CHILD: &str = "<execute><directive>child</directive></execute>";

fn report(world: &MapWorld<'_>) -> AssertReport {
    let asserted = assert(world, &[]);
    assert!(!asserted.diagnostics.has_errors(), "{:?}", asserted.diagnostics);
    asserted.report
}

fn names(report: &AssertReport) -> Vec<(&str, usize)> {
    report.violations.iter().map(|v| (v.assertion.as_str(), v.trace.len())).collect()
}

const BOTH: &str = "lethal_trifecta: off\nassertions:\n  - id: apart\n    description: no thread may both fetch the web and read secrets\n    never: 'reaches(\"rye.execute.tool.rye.web.*\") && reaches(\"rye/fetch/knowledge/secrets/*\")'\n";

#[test]
fn violation_is_reported_with_trace_and_reason() {
    let both = format!("{CHILD}{WEB}{SECRETS}");
    let found = report(&family(&both, &format!("{WEB}{SECRETS}"), BOTH));
    assert_eq!(names(&found), [("apart", 1), ("apart", 1)], "parent alone, child alone");
    let child = &found.violations[0];
    assert!(
        child.because[0].contains("it reaches `rye.execute.tool.rye.web.*`: `rye.execute.tool.rye.web."),
        "{child:?}"
    );
}

#[test]
fn child_capabilities_are_bounded_by_parent() {
    let scoped = format!("{BOTH}    for: 'directive == \"parent\"'\n");
    let found = report(&family(&format!("{CHILD}{WEB}"), &format!("{WEB}{SECRETS}"), &scoped));
    assert_eq!(names(&found), []);
    assert_eq!(found.spawns.len(), 1);
    let spawn = &found.spawns[0];
    assert_eq!((spawn.from.as_str(), spawn.to.as_str(), spawn.by.as_str()), ("parent", "child", "body"));
    assert!(spawn.exceeds.as_ref().unwrap().starts_with("rye.fetch.knowledge.secrets"), "{spawn:?}");
    assert!(spawn.parent_grants.is_some() && spawn.child_grants.is_some());
    let found = report(&family(&format!("{CHILD}{WEB}{SECRETS}"), WEB, &scoped));
    assert_eq!(names(&found), [("apart", 1)]);
    assert_eq!(found.spawns[0].exceeds, None);
}

#[test]
fn passes_and_spends_at_most_are_evaluated() {
    let yaml = "lethal_trifecta: off\nassertions:\n  - { id: asked, severity: warning, always: '!reaches(\"rye.execute.tool.rye.web.*\") || passes(\"guard\")' }\n  - { id: cheap, always: 'spends_at_most(0.10)' }\n";
    let found = report(&family(&format!("{CHILD}{WEB}"), WEB, yaml));
    let told: Vec<_> = found.violations.iter().map(|v| (v.assertion.as_str(), v.severity.as_str())).collect();
    assert_eq!(told, [("asked", "warning"), ("cheap", "error"), ("asked", "warning"), ("cheap", "error")]);
    let hook = "hooks:\n  - { id: guard, event: tool_call, condition: 'call.name == \"x\"', action: { block: { reason: no } } }\n";
    let world = family(&format!("{CHILD}{WEB}"), WEB, yaml).project(".ai/config/agent/hooks.yaml", hook);
    let told: Vec<_> = report(&world).violations.into_iter().map(|v| v.assertion).collect();
    assert_eq!(told, ["cheap", "cheap"]);
}

#[test]
fn lethal_trifecta_warns_by_default_and_follows_setting() {
    let lethal = format!("{WEB}<fetch><knowledge>*</knowledge></fetch>");
    let found = report(&family(&lethal, "", ""));
    assert_eq!(names(&found), [("lethal_trifecta", 1)]);
    assert_eq!((found.violations[0].severity.as_str(), found.violations[0].because.len()), ("warning", 3));
    assert_eq!(report(&family(&lethal, "", "lethal_trifecta: off")).violations, []);
    assert_eq!(report(&family(&lethal, "", "lethal_trifecta: error")).violations[0].severity, "error");
}

#[test]
fn spawn_cycles_begin_with_smallest_id() {
    let permissions = "<metadata><permissions><execute><directive>*</directive></execute></permissions></metadata>";
    let world = with_directives(
        minimal_world(),
        &[
            ("b", "", permissions, "Use `directive_name: \"a\"`."),
            ("a", "", permissions, "Use `directive_name: \"b\"`."),
        ],
    );
    let found = report(&world);
    assert!(found.cycles.contains(&vec!["a".to_owned(), "b".to_owned()]), "{:?}", found.cycles);
    assert!(found.spawns.iter().all(|spawn| spawn.exceeds.is_none()));
}

#[test]
fn invalid_assertions_file_reports_each_error() {
    for (yaml, part) in [
        ("assertion: []", "assertions"),
        ("assertions: 3", "a list of assertions"),
        ("assertions: [{ id: x }]", "exactly one of"),
        ("assertions: [{ id: x, never: 'reaches(\"a' }]", "never closed"),
        ("assertions: [{ id: x, never: 'spends_at_most(much)' }]", "not an amount"),
        ("assertions: [{ id: x, never: 'inputs.a == 1' }]", "it may read `directive`"),
        ("assertions: [{ id: x, never: 'reaches(\"a\") &&' }]", "invalid condition"),
        ("assertions: [{ id: x, always: 'passes(ask)', nver: 1 }]", "nver"),
        ("lethal_trifecta: loud", "`off`"),
    ] {
        let asserted = assert(&family("", "", yaml), &[]);
        let told: Vec<String> =
            asserted.diagnostics.iter().map(|d| format!("{} {}", d.message(), d.help().unwrap_or_default())).collect();
        assert!(told.iter().any(|t| t.contains(part)), "{yaml}: {told:?}");
    }
}
