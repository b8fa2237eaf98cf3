//! Tests of reports that a right file must not get, and of mistakes that several checks notice: one report, at the
//! mistake, with a help that ends it.

use super::mistakes::{assert_one, helps};
use super::*;
use crate::compile::tests::world::{minimal_world, with_directives};
use crate::mcp_servers::read_servers;

/// Returns a project with the provider `house`, whose file ends with these settings.
fn house(settings: &str) -> MapWorld<'static> {
    let metadata = "<metadata><model provider=\"house\" tier=\"general\"/></metadata>";
    with_directives(minimal_world(), &[("leaf", "", metadata, "Look."), ("other", "", metadata, "Look.")]).project(
        ".ai/config/agent/providers/house.yaml",
        format!("wire: openai-chat\nbase_url: https://house.test/v1\ntiers: {{ general: h }}\n{settings}"),
    )
}

#[test]
fn price_that_no_limit_affords_has_one_error_at_the_price() {
    let model = |input: &str, output: &str| {
        let prices = format!("prices: {{ input: {input}, output: {output} }}");
        house(&format!("models:\n  - {{ id: h, context_window: 128000, max_output: 4096, {prices} }}\n"))
    };
    let world = model("300", "1500");
    assert_one(&world, "limit::cannot-afford-one-turn", "dollars per million tokens");
    let labels: Vec<_> = report(&world).diagnostics.iter().map(|one| one.labels()[0].text.clone()).collect();
    assert_eq!(labels, ["$1500 per million tokens"]);
    assert_eq!(codes(&model("3", "15")), Vec::<&str>::new());
    assert_one(&model("0.0003", "15"), "config::implausible", "dollars per million tokens");
}

#[test]
fn knowledge_that_a_grant_executes_is_reached() {
    let permissions = |grant: &str| {
        let grants = format!(
            "<permissions><execute>{grant}</execute><acknowledge risk=\"elevated\">x</acknowledge></permissions>"
        );
        directive(project(), "leaf", "", &grants, "x").project(".ai/knowledge/team/r1.md", "One rule.")
    };
    assert_eq!(codes(&permissions("<knowledge>team.r1</knowledge>")), Vec::<&str>::new());
    assert_eq!(codes(&permissions("<knowledge>team.*</knowledge>")), Vec::<&str>::new());
    assert!(codes(&permissions("<knowledge>lib.*</knowledge>")).contains(&"context::unreached"));
    assert!(codes(&permissions("<tool>rye.bash.bash</tool>")).contains(&"context::unreached"));
}

#[test]
fn narrow_own_hook_behind_a_broad_one_is_shadowed() {
    let grants = "<permissions><execute><tool>rye.file-system.read</tool></execute></permissions>";
    let broad =
        "<hook id=\"a\" event=\"tool_call\"><when>call.item_id matches \"^rye/\"</when><block reason=\"a\"/></hook>";
    let narrow = "<hook id=\"b\" event=\"tool_call\"><when>call.item_id == \"rye/file-system/read\"</when><block reason=\"b\"/></hook>";
    let other = "<hook id=\"c\" event=\"tool_call\"><when>call.item_id == \"rye/file-system/read\" || call.item_id == \"lib/x\"</when><block reason=\"b\"/></hook>";
    let world = |first: &str, second: &str| {
        directive(project(), "leaf", "", &format!("{grants}<hooks>{first}{second}</hooks>"), "x")
    };
    assert!(codes(&world(broad, narrow)).contains(&"hook::shadowed"), "{:?}", helps(&world(broad, narrow)));
    for (first, second) in [(narrow, broad), (broad, other)] {
        assert!(!codes(&world(first, second)).contains(&"hook::shadowed"), "{second}");
    }
}

#[test]
fn grant_of_an_image_is_used_by_its_hook() {
    let hook = |images: &str, grant: &str| {
        let action = format!("action: {{transform: {{text: 'Look.', images: [{images}]}}}}");
        hooks(
            project(),
            &format!("hooks: [{{id: h, event: input, condition: 'text == \"p\"', {action}, grants: [{grant}]}}]"),
        )
    };
    let read = "rye.execute.tool.rye.file-system.read";
    assert!(!codes(&hook("docs/plan.png", read)).contains(&"capability::dead-grant"));
    assert!(!codes(&hook("{path: docs/plan.png}", read)).contains(&"capability::dead-grant"));
    assert!(codes(&hook("'${images.0}'", read)).contains(&"capability::dead-grant"));
    assert!(codes(&hook("docs/plan.png", "rye.execute.tool.rye.bash.bash")).contains(&"capability::dead-grant"));
}

#[test]
fn disabled_own_hook_does_not_remove_the_hook_that_the_directive_inherits() {
    let hook = |more: &str| {
        format!("<hooks><hook id=\"halt\" event=\"after_step\"{more}><action terminate=\"error\"/></hook></hooks>")
    };
    let world = |leaf: &str| {
        let base = directive(project(), "base", "", &hook(""), "x");
        directive(base, "leaf", " extends=\"base\"", leaf, "x")
    };
    let off = hook(" enabled=\"false\"");
    assert_one(&world(&off), "hook::removes-nothing", "write `<suppress>halt</suppress>` in `<context>`");
    let suppressed = "<context><suppress>halt</suppress></context>";
    assert_eq!(codes(&world(suppressed)), Vec::<&str>::new());
    assert_eq!(codes(&world(&off.replace("halt", "other"))), Vec::<&str>::new());
}

#[test]
fn values_that_facts_never_have_get_a_suggestion() {
    let condition = |event: &str, text: &str, action: &str| {
        hooks(
            directive(project(), "team/deploy/leaf", "", "", "x"),
            &format!("hooks: [{{id: h, event: {event}, condition: '{text}', action: {action}}}]"),
        )
    };
    let stop = "{terminate: {status: error}}";
    for (category, suggestion) in [("team.deploy", "team/deploy"), ("team/deploi", "team/deploy")] {
        let world = condition("after_step", &format!("category == \"{category}\""), stop);
        assert_one(&world, "hook::unknown-value", &format!("did you mean `{suggestion}`?"));
    }
    for right in ["category == \"team/deploy\" && turn > 2", "category == \"\" && turn > 2", "category matches \"^te\""]
    {
        assert_eq!(codes(&condition("after_step", right, stop)), Vec::<&str>::new(), "{right}");
    }
    let run = "{execute: {item_type: tool, item_id: rye/bash/bash, params: {command: ls}}}";
    let with_command = |text: &str| {
        condition("command", text, run).project(
            ".ai/config/agent/chat.yaml",
            "commands: [{id: branch, execute: {item_type: tool, item_id: rye/bash/bash, params: {command: ls}}}]",
        )
    };
    assert_one(&with_command("name == \"brnch\""), "hook::unknown-value", "did you mean `branch`?");
    assert_eq!(codes(&with_command("name == \"branch\"")), Vec::<&str>::new());
    let fraction = condition("context_limit_reached", "tokens_used > 0.95", "compact");
    assert_one(&fraction, "hook::unknown-value", "`usage_ratio`");
}

#[test]
fn command_of_a_shell_is_no_program() {
    let tool = |program: &str| {
        let text = format!("description: d\nkind: command\ncommand: [{program}, out]\n");
        project().project(".ai/tools/t.yaml", text)
    };
    for program in ["cd", "source", "export"] {
        assert_one(&tool(program), "item::shell-syntax", "run a shell");
    }
    for program in ["./cd", "test"] {
        assert_eq!(codes(&tool(program)), Vec::<&str>::new(), "{program}");
    }
}

#[test]
fn partial_server_that_replaces_another_names_the_replacement() {
    let servers = |name: &str| {
        project()
            .project(".mcp.json", "{ \"mcpServers\": { \"files\": { \"command\": \"mcp-fs\" } } }")
            .project(".ai/config/mcp.yaml", format!("servers: {{ {name}: {{ timeout_seconds: 9 }} }}\n"))
    };
    let message = |name: &str| read_servers(&Items::new(&servers(name))).unwrap_err().message;
    let hint = "it replaces the server of `.mcp.json` as a whole";
    assert!(message("files").contains(hint), "{}", message("files"));
    assert!(message("other").ends_with("nor a `url`"), "{}", message("other"));
}

#[test]
fn condition_that_no_fact_of_the_event_meets_is_reported() {
    let found = |event: &str, condition: &str| {
        let action = "{ primary: execute, item_type: tool, item_id: t }";
        codes(&hooks(
            project().project(".ai/tools/t.yaml", "description: d\nkind: command\ncommand: [ls]\n"),
            &format!("hooks: [{{ id: h, event: {event}, condition: '{condition}', action: {action} }}]"),
        ))
    };
    for (event, never, possible) in [
        ("after_complete", "status == \"killed\"", "status == \"continued\""),
        ("after_complete", "status == \"suspended\"", "status != \"error\""),
        ("thread_error", "status == \"cancelled\"", "error.code == \"x\""),
        ("thread_completed", "status in [\"error\", \"killed\"]", "exists(stop_reason)"),
        ("cognition_in", "source == \"user\"", "source == \"steer\""),
        ("tool_call_result", "why.kind == \"failed\"", "why.kind == \"blocked\""),
        ("tool_execution_end", "length(call.item_id)", "result.is_error"),
        ("tool_execution_end", "result.is_error && -result.bytes", "result.bytes > 1"),
    ] {
        assert_eq!(found(event, never), ["hook::never"], "{event}: {never}");
        assert_eq!(found(event, possible), Vec::<&str>::new(), "{event}: {possible}");
    }
}

#[test]
fn template_of_the_user_with_the_name_of_a_built_in_command_is_reported() {
    let world = |name: &str| project().with(Space::User, &format!(".ai/prompts/{name}.md"), "Do it.");
    assert_eq!(codes(&world("fork")), ["template::hidden"]);
    assert_eq!(codes(&world("forks")), Vec::<&str>::new());
}
