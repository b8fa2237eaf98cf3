//! Tests of assertions over small projects.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::compile::tests::world::{minimal_world, stdlib_world, with_directives};
use crate::world::MapWorld;

/// Creates a project with the directives `parent` and `child`, which have these grants. The body of `parent` names
/// `child`.
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
        child.because[0].contains("the thread reaches `rye.execute.tool.rye.web.*`: `rye.execute.tool.rye.web."),
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
    let found_violations: Vec<_> =
        found.violations.iter().map(|v| (v.assertion.as_str(), v.severity.as_str())).collect();
    assert_eq!(found_violations, [("asked", "warning"), ("cheap", "error"), ("asked", "warning"), ("cheap", "error")]);
    let hook = "hooks:\n  - { id: guard, event: tool_call, condition: 'call.name != \"x\"', action: { block: { reason: no } } }\n";
    let world = family(&format!("{CHILD}{WEB}"), WEB, yaml).project(".ai/config/agent/hooks.yaml", hook);
    let found_violations: Vec<_> = report(&world).violations.into_iter().map(|v| v.assertion).collect();
    assert_eq!(found_violations, ["cheap", "cheap"]);
}

#[test]
fn items_of_the_system_prompt_and_of_continuing_hooks_survive() {
    let yaml = "lethal_trifecta: off\nassertions:\n  - { id: s, always: 'survives(\"s\")' }\n  - { id: k, always: 'survives(\"k\")' }\n  - { id: l, always: 'survives(\"l\")' }\n";
    let inside =
        "<metadata><permissions/><context><system>s</system><before>k</before><before>l</before></context></metadata>";
    let hook = "hooks:\n  - { id: again, event: thread_continued, action: { primary: fetch, item_type: knowledge, item_id: l } }\n";
    let mut world = with_directives(minimal_world(), &[("leaf", "", inside, "Do it.")]);
    for id in ["s", "k", "l"] {
        world = world.project(&format!(".ai/knowledge/{id}.md"), "Some knowledge.");
    }
    let world = world.project(".ai/config/agent/hooks.yaml", hook).project(".ai/config/agent/assertions.yaml", yaml);
    let found = report(&world);
    assert_eq!(names(&found), [("k", 1)]);
    assert_eq!(found.violations[0].because, ["a continuation may lack `k`"]);
}

#[test]
fn lethal_trifecta_warns_by_default_and_follows_setting() {
    let lethal = "<execute><tool>mcp.*</tool></execute><fetch><knowledge>*</knowledge></fetch>";
    let server = "description: d\nkind: mcp\nserver: s\ntool: t\nsha256: x\nserver_sha256: x\nruns: x\nsandbox: net\n";
    let with_server = |setting: &str| report(&family(lethal, "", setting).project(".ai/tools/mcp/s/t.yaml", server));
    let found = with_server("");
    assert_eq!(names(&found), [("lethal_trifecta", 1)]);
    assert_eq!((found.violations[0].severity.as_str(), found.violations[0].because.len()), ("warning", 3));
    assert_eq!(found.violations[0].because[0], "untrusted text by `rye.execute.tool.mcp.s.t`");
    assert_eq!(with_server("lethal_trifecta: off").violations, []);
    assert_eq!(with_server("lethal_trifecta: error").violations[0].severity, "error");
    // A pattern without an existing tool lets no text in.
    assert_eq!(report(&family(lethal, "", "")).violations, []);
}

#[test]
fn lethal_trifecta_counts_tools_by_their_implementation() {
    let because = |granted: &str| {
        let inside = format!("<metadata><permissions><execute>{granted}</execute></permissions></metadata>");
        let builtin = |name: &str| format!("description: A tool.\nkind: builtin\nbuiltin: {name}\n");
        let world = with_directives(stdlib_world(), &[("leaf", "", &inside, "Do it.")])
            .with(Space::System, ".ai/tools/rye/web/fetch.yaml", builtin("web_fetch"))
            .with(Space::System, ".ai/tools/rye/git/diff.yaml", builtin("git_diff"))
            .project(".ai/tools/count.yaml", "description: Counts.\nkind: command\ncommand: [wc, -l]\n")
            .project(".ai/tools/page.yaml", builtin("web_fetch"));
        report(&world).violations.into_iter().next().map(|violation| violation.because)
    };
    let web = "<tool net=\"*\">rye.web.fetch</tool>";
    for private in ["rye.file-system.read", "rye.file-system.grep", "rye.bash.bash", "rye.git.*", "count"] {
        let found = because(&format!("{web}<tool>{private}</tool>"));
        let found = found.unwrap_or_else(|| panic!("{private}"));
        assert_eq!(found[0], "untrusted text by `rye.execute.tool.rye.web.fetch` with net=\"*\"");
        assert!(found[1].starts_with("private data by `rye.execute.tool."), "{private}: {found:?}");
        assert_eq!(because(&format!("<tool>rye.web.fetch</tool><tool>{private}</tool>")), None, "no host: {private}");
        assert_eq!(because(&format!("<tool>{private}</tool>")), None, "{private}");
    }
    for alone in ["rye.bash.bash", "count", "*"] {
        assert!(because(&format!("<tool net=\"docs.rs\">{alone}</tool>")).is_some(), "{alone}");
    }
    assert!(because("<tool net=\"docs.rs\">page</tool><tool>rye.file-system.read</tool>").is_some());
    assert_eq!(because(web), None);
    assert_eq!(because(&format!("{web}<tool>rye.file-system.write</tool>")), None);
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
    let cycle = found.cycles.iter().find(|cycle| cycle.directives == ["a", "b"]);
    let starts = cycle.map_or_else(|| panic!("{:?}", found.cycles), |cycle| &cycle.starts);
    assert!(starts.len() == 2 && starts.iter().all(|start| start.source.is_some()), "{starts:?}");
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
        ("assertions: [{ id: x, never: 'inputs.a == 1' }]", "an assertion may read `directive`"),
        ("assertions: [{ id: x, never: 'reaches(\"a\") &&' }]", "invalid condition"),
        ("assertions: [{ id: x, always: 'passes(ask)', nver: 1 }]", "nver"),
        ("lethal_trifecta: loud", "`off`"),
    ] {
        let asserted = assert(&family("", "", yaml), &[]);
        let messages: Vec<String> =
            asserted.diagnostics.iter().map(|d| format!("{} {}", d.message(), d.help().unwrap_or_default())).collect();
        assert!(messages.iter().any(|t| t.contains(part)), "{yaml}: {messages:?}");
    }
}

#[test]
fn flows_follow_results_messages_and_outputs() {
    const RULE: &str = r#"
lethal_trifecta: off
assertions:
  - id: no_commands_from_the_web
    for: 'directive == "parent"'
    never: 'flows("rye.execute.tool.rye.web.*", "rye.execute.tool.rye.bash.*")'
"#;
    const BASH: &str = "<execute><tool>rye.bash.*</tool></execute>";
    let found = |parent: &str, child: &str, rule: &str| {
        let found = report(&family(&format!("{CHILD}{parent}"), child, rule));
        found
            .violations
            .iter()
            .map(|violation| (violation.trace.len(), violation.because[0].clone()))
            .collect::<Vec<_>>()
    };
    // Within one thread: the parent reads the web and runs commands.
    assert_eq!(found(&format!("{WEB}{BASH}"), "", RULE).len(), 1);
    // The parent's message brings the text into a child. The parent has the child's grants too.
    let down = found(&format!("{WEB}{BASH}"), BASH, RULE);
    assert_eq!(down[0].0, 1, "{down:?}");
    // The child reads the web, and the parent runs commands.
    let up = found(&format!("{WEB}{BASH}"), WEB, RULE);
    assert!(up[0].1.contains("reaches `rye.execute.tool.rye.bash."), "{up:?}");
    assert!(found(BASH, WEB, RULE).is_empty(), "the parent does not allow its child the web");
    assert!(found(WEB, BASH, RULE).is_empty(), "the parent does not allow its child commands");
}

#[test]
fn flows_follow_the_answers_of_hooks_and_the_texts_that_hooks_add() {
    const BASH: &str = "<execute><tool>rye.bash.*</tool></execute>";
    let found = |grants: &str, action: &str, event: &str| {
        let leaf = format!("<metadata><permissions>{grants}</permissions></metadata>");
        let rule = r#"flows("rye.execute.tool.rye.web.*", "rye.execute.tool.rye.bash.*")"#;
        let hooks = format!("hooks: [{{id: h, event: {event}, action: {action}}}]");
        let world = with_directives(minimal_world(), &[("leaf", "", &leaf, "Do it.")])
            .project(".ai/tools/rye/web/fetch.yaml", "description: Gets it.\nkind: command\ncommand: [curl]\n")
            .project(".ai/config/agent/hooks.yaml", hooks)
            .project(
                ".ai/config/agent/assertions.yaml",
                format!("lethal_trifecta: off\nassertions:\n  - {{ id: apart, never: '{rule}' }}\n"),
            );
        report(&world).violations.len()
    };
    // The thread has no grant to read the web. Only the result of the hook's action brings text of the web.
    let answer = "{primary: execute, item_type: tool, item_id: rye/web/fetch}";
    assert_eq!(found(BASH, answer, "thread_started"), 1);
    assert_eq!(found(BASH, "{primary: execute, item_type: tool, item_id: rye/look}", "thread_started"), 0);
    assert_eq!(found("<execute><tool>rye.look</tool></execute>", answer, "thread_started"), 0);
    // Texts that a hook adds stay in their thread.
    for (action, event) in [
        ("{follow_up: {content: 'Look at ${result}'}}", "agent_end"),
        ("{inject: {content: 'Look at it.'}}", "context"),
        ("{modify: {content: 'Look at it.'}}", "tool_result"),
    ] {
        assert_eq!(found(&format!("{WEB}{BASH}"), action, event), 1, "{action}");
        assert_eq!(found(BASH, action, event), 0, "{action}");
    }
}

#[test]
fn outputs_of_a_declassifying_directive_end_a_flow() {
    let meta = |inside: &str| format!("<metadata><permissions>{inside}</permissions></metadata>");
    let (root, reader) = (meta("<execute><tool>rye.bash.*</tool></execute>"), meta(WEB));
    let hooks = r#"hooks: [{id: start, event: after_step, condition: 'directive == "root"', grants: [rye.execute.tool.rye.web.*], action: {primary: execute, item_type: directive, item_id: reader}}]"#;
    let violations = |more: &str| {
        let never = r#"flows("rye.execute.tool.rye.web.*", "rye.execute.tool.rye.bash.*")"#;
        let only = r#"directive == "root""#;
        let rule = format!(
            "lethal_trifecta: off\n{more}assertions:\n  - id: apart\n    for: '{only}'\n    never: '{never}'\n"
        );
        let world =
            with_directives(minimal_world(), &[("root", "", &root, "Do it."), ("reader", "", &reader, "Read.")]);
        let world =
            world.project(".ai/config/agent/hooks.yaml", hooks).project(".ai/config/agent/assertions.yaml", rule);
        report(&world).violations
    };
    let found = violations("");
    assert_eq!(found.len(), 1, "the hook lets its directive read the web, and the root runs commands");
    assert!(found[0].because[0].ends_with("through `reader` → `root`"), "{found:?}");
    assert!(
        violations(
            "declassifying: [reader]
"
        )
        .is_empty()
    );
}

#[test]
fn flow_is_found_where_an_earlier_thread_with_the_same_state_gets_no_text() {
    let meta = |inside: &str| format!("<metadata><permissions>{inside}</permissions></metadata>");
    let root = meta("<execute><directive>mid</directive><directive>outer</directive><tool>rye.bash.*</tool></execute>");
    let reader = meta(WEB);
    // The search finds the start of `mid` by `root` first. This `mid` gets no text of the web, because the outputs of
    // `outer` are declassified. Then `outer`, which reads text of the web from `reader`, starts another `mid`, and this
    // `mid` gets the text.
    let hooks = r#"hooks: [{id: start, event: after_step, condition: 'directive == "outer"', grants: [rye.execute.tool.rye.web.*], action: {primary: execute, item_type: directive, item_id: reader}}]"#;
    let rule = "lethal_trifecta: off\ndeclassifying: [outer]\nassertions:\n  - id: apart\n    for: 'directive == \"root\"'\n    never: 'directive == \"mid\" && flows(\"rye.execute.tool.rye.web.*\", \"rye.execute.tool.rye.bash.*\")'\n";
    let world = with_directives(
        minimal_world(),
        &[
            ("root", "", &root, "Call `rye_execute(item_type=\"directive\", item_id=\"mid\")`."),
            ("outer", "", "", "Call `rye_execute(item_type=\"directive\", item_id=\"mid\")`."),
            ("mid", "", "", "Do it."),
            ("reader", "", &reader, "Read."),
        ],
    );
    let world = world.project(".ai/config/agent/hooks.yaml", hooks).project(".ai/config/agent/assertions.yaml", rule);
    let found = report(&world);
    let trace: Vec<&str> = found.violations[0].trace.iter().map(|step| step.directive.as_str()).collect();
    assert_eq!((found.violations.len(), trace), (1, vec!["root", "outer", "mid"]), "{:?}", found.violations);
    assert!(found.violations[0].because[0].ends_with("through `reader` → `outer` → `mid`"), "{:?}", found.violations);
}

#[test]
fn hook_that_raises_spend_leaves_no_bound() {
    let yaml = "lethal_trifecta: off\nassertions:\n  - { id: cheap, always: 'spends_at_most(100)' }\n";
    let with = |limit: &str, code: &str| {
        let hook = format!(
            "hooks:\n  - {{ id: r, event: limit, condition: 'limit_code == \"{code}\"', action: {{ raise: {{ limit: {limit}, value: 5 }} }} }}\n"
        );
        report(&family(WEB, WEB, yaml).project(".ai/config/agent/hooks.yaml", &hook))
    };
    assert_eq!(names(&with("turns", "turns_exceeded")), []);
    let found = with("spend", "spend_exceeded");
    assert!(!found.violations.is_empty());
    let reason =
        "the thread may spend any amount, because the hook `r` (.ai/config/agent/hooks.yaml:2) raises the limit";
    assert_eq!(found.violations[0].because, [reason]);
}

#[test]
fn hook_that_cannot_fire_for_the_grants_is_no_gate() {
    let yaml = "lethal_trifecta: off\nassertions:\n  - { id: guarded, always: '!reaches(\"rye.execute.tool.rye.bash.*\") || passes(\"guard\")' }\n";
    let with = |tool: &str| {
        let hook = format!(
            "hooks:\n  - {{ id: guard, event: tool_call, condition: 'call.item_id == \"{tool}\"', action: {{ block: {{ reason: no }} }} }}\n"
        );
        let inside = "<metadata><permissions><execute><tool>rye.bash.bash</tool></execute></permissions></metadata>";
        let world = with_directives(stdlib_world(), &[("leaf", "", inside, "Do it.")]);
        let world = world.project(".ai/config/agent/hooks.yaml", &hook);
        report(&world.project(".ai/config/agent/assertions.yaml", yaml)).violations.len()
    };
    assert_eq!(with("rye/bash/bash"), 0);
    assert_eq!(with("rye/file-system/write"), 1);
}

#[test]
fn knowledge_of_a_replaced_system_prompt_does_not_survive() {
    let yaml = "lethal_trifecta: off\nassertions:\n  - { id: s, always: 'survives(\"s\")' }\n";
    let with = |prompt: &str| {
        let hook = format!(
            "hooks:\n  - {{ id: h, event: before_agent_start, action: {{ system_prompt: {{ {prompt} }} }} }}\n"
        );
        let inside = "<metadata><permissions/><context><system>s</system></context></metadata>";
        let world = with_directives(minimal_world(), &[("leaf", "", inside, "Do it.")]);
        let world =
            world.project(".ai/knowledge/s.md", "Some knowledge.").project(".ai/config/agent/hooks.yaml", &hook);
        report(&world.project(".ai/config/agent/assertions.yaml", yaml)).violations.len()
    };
    assert_eq!(with("text: other"), 1);
    assert_eq!(with("append: more"), 0);
    assert_eq!(with("text: \"${system_prompt} more\""), 0);
}

#[test]
fn threads_of_directives_that_start_each_other_are_examined_in_steps_linear_in_their_starts() {
    let flow = "lethal_trifecta: off\nassertions:\n  - { id: a, never: 'flows(\"rye.execute.tool.rye.look\", \
                \"rye.execute.tool.rye.touch\")' }\n";
    let steps = |count: usize, touches: bool| {
        let tools = if touches { "<tool>rye.*</tool>" } else { "<tool>rye.look</tool>" };
        let grants = format!(
            "<metadata><permissions><execute><directive>g.*</directive>{tools}</execute></permissions></metadata>"
        );
        let names: Vec<String> = (0..count).map(|n| format!("g/d{n}")).collect();
        let directives: Vec<(&str, &str, &str, &str)> =
            names.iter().map(|name| (name.as_str(), "", grants.as_str(), "Do it.")).collect();
        let world = with_directives(minimal_world(), &directives).project(".ai/config/agent/assertions.yaml", flow);
        let items = Items::new(&world);
        let shared = LowerContext::new(&items);
        let assertions = assertion_file::read(&items, &mut Diagnostics::new());
        assert_eq!(assertions.list.len(), 1);
        let mut search = ThreadSearch::new(&shared, &assertions);
        let ids: Vec<ItemId> = names.iter().map(|name| ItemId::parse(name).unwrap()).collect();
        let flow = text_flow(&mut search, &assertions, &mut ReachMemo::new(), &ids);
        for id in ids {
            let found = search.find_threads(&id, &flow);
            assert!(found.complete, "{count}");
            // Each directive can start itself and each other one.
            assert_eq!(found.threads.len() + found.left_out, 1 + count * count, "{count}");
        }
        search.examined()
    };
    for count in [8, 16, 32] {
        let starts = count * count;
        for touches in [false, true] {
            let steps = steps(count, touches);
            assert!(steps <= 4 * starts, "{count}: {steps} steps for {starts} starts, text can flow: {touches}");
        }
    }
}

fn with_commands<'w>(world: MapWorld<'w>, commands: &str) -> MapWorld<'w> {
    world.project(".ai/config/agent/chat.yaml", format!("commands:\n{commands}"))
}

#[test]
fn result_of_a_command_is_part_of_the_flow_of_a_session() {
    const RULE: &str = r#"
lethal_trifecta: off
assertions:
  - id: no_commands_from_the_web
    for: 'directive == "parent"'
    never: 'flows("rye.execute.tool.rye.web.*", "rye.execute.tool.rye.bash.*")'
"#;
    let world = || family("<execute><tool>rye.bash.*</tool></execute>", "", RULE);
    assert_eq!(names(&report(&world())), []);
    let look = "  - { id: look, execute: { item_type: tool, item_id: rye/web/fetch, params: { url: \"${args}\" } } }\n";
    let found = assert(&with_commands(world(), look), &[]).report;
    let flows = found.violations.iter().find(|one| one.assertion == "no_commands_from_the_web").unwrap();
    assert_eq!(flows.trace[0].by, "chat", "{flows:?}");
}

#[test]
fn directive_that_a_command_starts_is_checked() {
    const RULE: &str = r#"
lethal_trifecta: off
assertions:
  - { id: no_child, for: 'directive == "other"', never: 'directive == "child"' }
"#;
    let world = || with_directives(family("", "", RULE), &[("other", "", "", "Do it.")]);
    assert_eq!(names(&report(&world())), []);
    let start = "  - { id: start, execute: { item_type: directive, item_id: child, params: {} } }\n";
    let found = assert(&with_commands(world(), start), &[]).report;
    let started = &found.violations[0];
    let steps: Vec<(&str, &str)> =
        started.trace.iter().map(|step| (step.directive.as_str(), step.by.as_str())).collect();
    assert_eq!(steps, [("other", "chat"), ("child", "command /start")]);
    assert!(started.trace[1].source.as_ref().is_some_and(|source| source.file.ends_with("chat.yaml")), "{started:?}");
}

#[test]
fn plans_of_runs_and_chats_are_named() {
    let found = report(&family("", "", "lethal_trifecta: off\n"));
    let plans: Vec<(&str, &str, usize)> =
        found.plans.iter().map(|one| (one.directive.as_str(), one.mode.as_str(), one.plans)).collect();
    assert_eq!(plans, [("child", "run", 1), ("child", "chat", 1), ("parent", "run", 1), ("parent", "chat", 1)]);
}

#[test]
fn command_that_no_grant_allows_or_whose_item_is_missing_is_not_usable() {
    let world = || family("<execute><tool>rye.web.*</tool></execute>", "", "lethal_trifecta: off\n");
    let listed = |commands: &str| {
        let found = assert(&with_commands(world(), commands), &[]).report;
        let broken = found.violations.into_iter().filter(|one| one.assertion == "listed_is_usable");
        broken.map(|one| (one.trace[0].directive.clone(), one.because)).collect::<Vec<_>>()
    };
    let any = |grants: &str| {
        format!("  - {{ id: any, execute: {{ item_type: tool, item_id: 'team/${{args}}', params: {{}} }}{grants} }}\n")
    };
    let denied = listed(&any(""));
    assert_eq!(denied.len(), 2, "{denied:?}");
    assert_eq!(denied[1].1, ["the command `/any` executes `team/${args}`, which no grant allows"]);
    assert_eq!(listed(&any(", grants: [rye.execute.tool.team.*]")), []);
    let gone = listed("  - { id: gone, execute: { item_type: tool, item_id: team/gone, params: {} } }\n");
    assert_eq!(gone[0].1, ["the command `/gone` executes the missing tool `team/gone`"]);
}

#[test]
fn parts_of_a_plan_without_their_tool_are_not_usable() {
    let tool = "description: Counts.\nversion: 1.0.0\nkind: command\ncommand: [wc]\nsnippet: counts lines\nguidelines: [Count first.]\n";
    let world = family("<execute><tool>team.*</tool></execute><fetch><skill>tidy</skill></fetch>", "", "")
        .project(".ai/tools/team/count.yaml", tool)
        .project(".ai/skills/tidy/SKILL.md", "---\nname: tidy\ndescription: Tidies.\n---\nTidy up.\n");
    let items = Items::new(&world);
    let shared = LowerContext::new(&items);
    let id = ItemId::parse("parent").unwrap();
    assert_eq!(session::check_sessions(&shared, &id).unusable, Vec::<String>::new());
    let request = crate::request::CompileRequest::new(id).chat();
    let mut plan = crate::compile::compile(&world, &request).value.unwrap().plan;
    assert!(session::unusable_parts(&items, &plan).is_empty());
    plan.palette.clear();
    let unusable = session::unusable_parts(&items, &plan);
    for part in
        ["the skill `tidy` is listed", "the guideline `Count first.` belongs to no tool", "team_count: counts lines"]
    {
        assert!(unusable.iter().any(|one| one.contains(part)), "{part}: {unusable:?}");
    }
}

#[test]
fn hook_in_a_layer_that_never_answers_is_no_gate() {
    let yaml = "lethal_trifecta: off\nassertions:\n  - { id: bounded, always: 'passes(\"stop\")' }\n";
    let with = |list: &str, layer: f64| {
        let hook = format!(
            "{list}:\n  - {{ id: stop, event: after_step, layer: {layer}, condition: 'turn > 3', action: terminate }}\n"
        );
        let world = with_directives(stdlib_world(), &[("leaf", "", "<metadata><permissions/></metadata>", "Do it.")]);
        let world = world.project(".ai/config/agent/hook_conditions.yaml", &hook);
        report(&world.project(".ai/config/agent/assertions.yaml", yaml)).violations.len()
    };
    assert_eq!(with("builtin_hooks", 3.9), 0);
    assert_eq!(with("builtin_hooks", 4.0), 1);
    assert_eq!(with("infra_hooks", 1.0), 1);
}

#[test]
fn context_of_a_directive_flows_into_its_calls() {
    let never = |to: &str| {
        format!(
            "lethal_trifecta: off\nassertions:\n  - {{ id: quiet, never: 'flows(\"rye.fetch.knowledge.secrets.*\", \"{to}\")' }}\n"
        )
    };
    let project = |position: &str, to: &str| {
        let context = format!("<context><{position}>secrets/key</{position}></context>");
        let inside = format!("<metadata>{context}<permissions>{WEB}</permissions></metadata>");
        let world = with_directives(minimal_world(), &[("leaf", "", &inside, "Do it.")]);
        report(
            &world
                .project(".ai/knowledge/secrets/key.md", "The key.")
                .project(".ai/config/agent/assertions.yaml", never(to)),
        )
    };
    for position in ["system", "before", "after"] {
        let found = project(position, "rye.execute.tool.rye.web.*");
        assert_eq!(names(&found), [("quiet", 1)], "{position}");
        assert!(
            found.violations[0].because[0].starts_with("text of `rye.fetch.knowledge.secrets.key` reaches"),
            "{found:?}"
        );
    }
    assert_eq!(names(&project("suppress", "rye.execute.tool.rye.web.*")), []);
    // No text flows into knowledge that the prompt contains.
    assert_eq!(names(&project("system", "rye.fetch.knowledge.secrets.*")), []);
}

#[test]
fn approval_is_a_gate_only_if_calls_need_it_without_a_terminal() {
    let yaml = "lethal_trifecta: off\nassertions:\n  - { id: asked, always: 'passes(\"ask\")' }\n";
    let because = |headless: &str, grant: &str| {
        let inside = format!("<metadata><permissions><execute>{grant}</execute></permissions></metadata>");
        let world = with_directives(stdlib_world(), &[("leaf", "", &inside, "Do it.")])
            .project(".ai/tools/count.yaml", "description: Counts.\nkind: command\ncommand: [wc, -l]\n")
            .project(".ai/config/agent/agent.yaml", format!("approvals: {{ headless: {headless} }}\n"))
            .project(".ai/config/agent/assertions.yaml", yaml);
        report(&world).violations.into_iter().next().map(|violation| violation.because[0].clone())
    };
    let (bash, trusted) = ("<tool>rye.bash.*</tool>", "<tool>count</tool>");
    let alone =
        Some("the thread does not pass `ask`: without a terminal, its calls run without an approval".to_owned());
    assert_eq!(because("allow", bash), alone);
    assert_eq!(because("queue", bash), None);
    assert_eq!(because("deny", bash), None);
    assert_eq!(because("deny", trusted), alone);
    let safe = because("deny", "<tool>rye.file-system.read</tool>");
    assert_eq!(safe, Some("the thread does not pass `ask`".to_owned()));
}
