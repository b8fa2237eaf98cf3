//! Tests of changes of files, limits and checks that the plan of a run does not contain, or whose place it does not
//! contain.

use super::super::PlanDiff;
use super::edits::{CHILD, Files, HOOKS, ROOT, RULES, base, compare, directive, edited, text};

const PARENT: &str = ".ai/directives/parent.md";
const CONDITIONS: &str = ".ai/config/agent/hook_conditions.yaml";

/// Returns the base project, in which `root` extends a directive with the permissions `permissions`.
fn with_parent(permissions: &str) -> Files {
    let mut files = edited(&base(), ROOT, "version=\"1.0.0\"", "version=\"1.0.0\" extends=\"parent\"");
    files.insert(PARENT, directive("parent", permissions, "").replace("{input:target}", "home"));
    files
}

fn shown(name: &str, before: &Files, after: &Files) -> (PlanDiff, String) {
    let found = compare(before, after);
    let shown = text(name, &found);
    (found, shown)
}

#[test]
fn removed_seal_widens_and_an_added_one_narrows() {
    let grants = "<execute><tool>p.*</tool><tool net=\"a.test\" write=\"out/\">rye.bash.*</tool><directive>child</directive></execute></permissions>";
    let (sealed, open) = (format!("<permissions seal=\"true\">{grants}"), format!("<permissions>{grants}"));
    let (found, lines) = shown("removed", &with_parent(&sealed), &with_parent(&open));
    assert!(
        found.widened && lines.contains("+ widened seal of `parent` removed  .ai/directives/parent.md:7:"),
        "{lines}"
    );
    let (found, lines) = shown("added", &with_parent(&open), &with_parent(&sealed));
    assert!(!found.widened && lines.contains("- narrowed seal of `parent` added"), "{lines}");
}

#[test]
fn limit_of_a_session_is_compared_without_a_chat() {
    let session =
        |attributes: &str| edited(&base(), ROOT, "<permissions>", &format!("<session {attributes}/>\n<permissions>"));
    for (before, after, says) in [
        (
            session("spend=\"1\""),
            session("spend=\"4\""),
            "+ widened session_limit.spend of a chat $1.00 → $4.00  .ai/directives/root.md:",
        ),
        (session("turns=\"9\""), base(), "+ widened session_limit.turns of a chat 9 → –  .ai/directives/root.md:"),
    ] {
        let (found, lines) = shown("session", &before, &after);
        assert!(found.widened && lines.contains(says), "{says}\n{lines}");
        assert!(!compare(&after, &before).widened);
    }
}

#[test]
fn changed_text_of_knowledge_has_the_place_of_its_file() {
    for to in ["very careful", "carefuL"] {
        let (_, lines) = shown("knowledge", &base(), &edited(&base(), RULES, "careful", to));
        assert!(
            lines.lines().any(|line| line.contains("rules") && line.contains(".ai/knowledge/rules.md:1:1")),
            "{lines}"
        );
    }
    // The text is new in the plan but its file is unchanged, so the change has the place in the directive.
    let (_, lines) = shown("new", &edited(&base(), ROOT, "<context><before>rules</before></context>", ""), &base());
    assert!(lines.lines().any(|line| line.contains("message rules") && line.contains("root.md:")), "{lines}");
}

#[test]
fn order_of_hooks_of_different_events_is_neutral() {
    let guard = "  - { id: last, event: tool_call, condition: turn > 6, action: { block: late } }\n";
    let after = edited(&base(), HOOKS, "", guard);
    let before = edited(&base(), HOOKS, "  - id: enough", &format!("{guard}  - id: enough"));
    let (found, lines) = shown("moved", &before, &after);
    assert!(!found.widened && !lines.contains("`hooks` of the plan"), "{lines}");
    assert!(lines.contains("~ neutral config agent/hooks: the change affects only the id of the plan"), "{lines}");
}

#[test]
fn folder_of_a_grant_that_the_parent_does_not_allow_is_neutral() {
    let narrow = edited(&base(), ROOT, "<tool net=\"a.test\" write=\"out/\">rye.bash.*</tool>", "");
    let grant = "<tool net=\"b.test\" write=\"out/\">rye.bash.bash</tool>";
    let added = |files: &Files| edited(files, CHILD, "<tool>p.probe</tool>", &format!("<tool>p.probe</tool>{grant}"));
    let (found, lines) = shown("narrow", &narrow, &added(&narrow));
    assert!(!found.widened && lines.contains("~ neutral write out/ for rye.execute.tool.rye.bash.bash"), "{lines}");
    let (found, lines) = shown("wide", &base(), &added(&base()));
    assert!(found.widened && lines.contains("+ widened write out/ for rye.execute.tool.rye.bash.bash"), "{lines}");
}

#[test]
fn file_of_a_removed_grant_did_not_change() {
    for (from, to) in [("<directive>child</directive>", ""), ("<directive>child<", "<directive>*<")] {
        let (_, lines) = shown(to, &base(), &edited(&base(), ROOT, from, to));
        assert!(!lines.contains("the file changed"), "{lines}");
    }
}

#[test]
fn error_of_a_directive_that_lost_its_plan_is_named_with_its_place() {
    let broken = edited(&base(), CHILD, "tier=\"fast\"", "tier=\"fats\"");
    let (found, lines) = shown("broken", &base(), &broken);
    let says = "- narrowed directive child can no longer be started, because of an error (model::";
    assert!(!found.widened && lines.contains(says), "{lines}");
    let line = lines.lines().find(|line| line.contains(says)).unwrap();
    assert!(line.contains(".ai/directives/child.md:7:"), "{line}");
}

#[test]
fn second_name_of_a_fact_is_no_change_of_a_condition() {
    let (before, after) = (base(), edited(&base(), HOOKS, "cost.turns >= 5", "loop_count >= 5"));
    for (before, after) in [(&before, &after), (&after, &before)] {
        let (found, lines) = shown("second name", before, after);
        assert!(!found.widened && !lines.contains("narrowed"), "{lines}");
    }
}

#[test]
fn hooks_of_a_lower_space_are_not_removed_by_a_file_without_them() {
    let (_, lines) = shown("empty", &base(), &edited(&base(), CONDITIONS, "", "infra_hooks: []\n"));
    assert!(!lines.contains("infra_hooks."), "{lines}");
}
