//! Tests of parts that could not be read: the part is reported, and nothing that follows from it.

use super::mistakes::{assert_one, helps};
use super::*;
use crate::compile::tests::world::{minimal_world, with_directives};

#[test]
fn unread_part_of_a_directive_is_reported_once() {
    let input = "<input name=\"f\">f</input>";
    assert_one(&directive(project(), "leaf", "", input, "Do {input:f}."), "item::unknown-key", "<inputs><input");
    let marked = "<inputs><input name=\"f\" required=\"yes\">f</input></inputs>";
    assert_one(&directive(project(), "leaf", "", marked, "Do {input:f}."), "item::invalid-value", "`true` or `false`");
    for action in ["block", "terminate"] {
        let hook = format!("<hooks><hook id=\"h\" event=\"tool_call\"><action>{action}</action></hook></hooks>");
        let help = format!("write `<{action}/>`");
        assert_one(&directive(project(), "leaf", "extends=\"base\"", &hook, "x"), "syntax::xml", &help);
    }
}

#[test]
fn unread_value_of_a_hook_is_reported_once() {
    let hook = |condition: &str, action: &str| {
        format!("hooks:\n  - {{ id: h, event: tool_result, condition: '{condition}', action: {{ {action} }} }}\n")
    };
    let modify = hook("result.is_error", "modify: { is_error: no }");
    assert_one(&hooks(project(), &modify), "item::invalid-value", "`true` or `false`");
    let list = hook("call.item_id in \"rye/bash/bash, rye/file-system/read\"", "modify: { content: x }");
    assert_one(&hooks(project(), &list), "hook::text-list", "in [\"rye/bash/bash\", \"rye/file-system/read\"]");
}

#[test]
fn wildcards_in_compared_files_and_ids_get_a_pattern() {
    let hook = |condition: &str| {
        let action = "action: { block: { reason: no } }";
        hooks(project(), &format!("hooks:\n  - {{ id: h, event: tool_call, condition: '{condition}', {action} }}\n"))
    };
    let code = "hook::unknown-call";
    assert_one(&hook("call.input.path == \"out/*\""), code, "call.input.path contains \"out/\"");
    assert_one(&hook("call.input.file == \"*.env\""), code, "call.input.file matches \"[.]env$\"");
    assert_one(&hook("call.item_id == \"rye/file-system/*\""), code, "call.item_id contains \"rye/file-system/\"");
    for right in ["call.input.command == \"ls *\"", "call.input.path matches \"^out/.*$\"", "inputs.path == \"*\""] {
        let found: Vec<_> = helps(&hook(right)).into_iter().filter(|(found, _)| *found == code).collect();
        assert!(found.is_empty(), "{right}: {found:?}");
    }
}

#[test]
fn provider_file_in_a_wrong_place_is_reported_once() {
    const PROVIDER: &str = "wire: scripted\ntiers: { general: m }\ndefault_tier: general\nmodels:\n  \
                            - { id: m, context_window: 9000, max_output: 900, prices: none }\n";
    let world = |provider: &str| {
        with_directives(minimal_world(), &[("leaf", "", "<metadata><permissions/></metadata>", "Look.")])
            .project(".ai/config/agent/models.yaml", "default_provider: local\n")
            .project(".ai/config/agent/providers/local.yaml", provider)
    };
    let found = helps(&world(PROVIDER));
    assert!(found.is_empty(), "{found:?}");
    // A script can stand for any model, but not if the file lists its models.
    let misspelled = PROVIDER.replace("general: m ", "general: n ");
    let found = helps(&world(&misspelled));
    assert!(
        found.iter().any(|(code, help)| *code == "config::invalid" && help.contains("did you mean `m`?")),
        "{found:?}"
    );
    let none: Vec<(&str, String)> = Vec::new();
    assert_eq!(helps(&world("wire: scripted\ntiers: { general: n }\ndefault_tier: general\n")), none);
    let without_tiers = "wire: openai-chat\nbase_url: http://localhost:1/v1\ndefault_tier: fast\nmodels:\n  \
                         - { id: m, context_window: 9000, max_output: 900, prices: none }\n";
    let found = helps(&world(without_tiers));
    assert!(found.iter().any(|(code, help)| *code == "config::invalid" && help.contains("add `tiers:")), "{found:?}");
}

#[test]
fn pattern_without_a_head_and_with_a_wrong_type_get_the_whole_capability() {
    let grant = |grant: &str| {
        let permissions = format!("<permissions><execute>{grant}</execute></permissions>");
        directive(project(), "leaf", "", &permissions, "x")
    };
    let code = "capability::matches-nothing";
    assert_one(&grant("<directive>rye.bash.bash</directive>"), code, "did you mean `rye.execute.tool.rye.bash.bash`?");
    assert_one(&grant("<tool>mcp.files.read</tool>"), code, "rye mcp refresh");
    let world = directive(project(), "count", "", "", "x").project(
        ".ai/config/agent/capability_risk.yaml",
        "classifications:\n  - { risk: safe, patterns: [\"rye.*\", count] }\n",
    );
    let found = helps(&world);
    let suggested = "did you mean `rye.execute.directive.count`?";
    assert!(found.iter().any(|(found, help)| *found == code && help == suggested), "{found:?}");
}
