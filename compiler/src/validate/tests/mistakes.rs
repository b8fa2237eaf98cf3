//! Tests of reports of mistakes: one for each mistake, with a help that works.

use super::*;
use crate::compile::tests::world::{minimal_world, stdlib_world, with_directives};

/// Returns the code and the help of each diagnostic.
pub fn helps(world: &MapWorld<'_>) -> Vec<(&'static str, String)> {
    report(world).diagnostics.iter().map(|one| (one.code(), one.help().unwrap_or_default())).collect()
}

/// Checks that a world has exactly one diagnostic of this code, whose help contains `help`.
pub fn assert_one(world: &MapWorld<'_>, code: &str, help: &str) {
    let found = helps(world);
    let [(only, text)] = found.as_slice() else { panic!("{code} {help}: {found:?}") };
    assert!(*only == code && text.contains(help), "{code} {help}: {found:?}");
}

const F: &str = "<inputs><input name=\"f\" default=\"a\">f</input></inputs>";

#[test]
fn unreadable_declaration_of_an_input_is_reported_once() {
    for (inputs, code, help) in [
        ("<inputs><input name=f>f</input></inputs>", "syntax::xml", "name=\"value\""),
        ("<inputs><input name=“f”>f</input></inputs>", "syntax::xml", "typographic"),
        ("<inputs><input>f</input></inputs>", "item::missing", "add a `name`"),
        ("<inputs><f>f</f></inputs>", "item::unknown-key", "<input name=\"f\">"),
        ("<inputs><parameter name=\"f\">f</parameter></inputs>", "item::unknown-key", "<input name=\"…\">"),
    ] {
        assert_one(&directive(project(), "leaf", "", inputs, "Do {input:f}."), code, help);
    }
    let named = "<inputs><input name=\"my-f\">f</input></inputs>";
    assert_one(&directive(project(), "leaf", "", named, "Do {input:my-f}."), "item::invalid-value", "letters, digits");
}

#[test]
fn marks_of_other_languages_at_a_placeholder_are_reported() {
    for (body, help) in [
        ("Read ${input:f}.", "write `{input:f}`"),
        ("Read {input:f||x}.", "write `{input:f|x}`"),
        ("Read {input:f:-x}.", "write `{input:f|x}`"),
        ("Read {inptu:f} and {input:f}.", "write `{input:f}`"),
        ("Read $ARGUMENTS.", "declare an input"),
    ] {
        assert_one(&directive(project(), "leaf", "", F, body), "interface::unknown-input", help);
    }
    let number = "<inputs><input name=\"f\" type=\"number\" default=\"1\">f</input></inputs>";
    let text = "<inputs><input name=\"f\">f</input></inputs>";
    for (inputs, body) in [(number, "Spend ${input:f}."), (number, "{input:f:-1}"), (text, "{input:f|x-y}")] {
        assert_eq!(codes(&directive(project(), "leaf", "", inputs, body)), Vec::<&str>::new(), "{body}");
    }
}

#[test]
fn text_and_attributes_in_place_of_elements_have_a_help() {
    for (metadata, code, help) in [
        ("<limits>turns=3</limits>", "item::unknown-key", "limits are attributes"),
        ("<context>lib/identity</context>", "item::unknown-key", "<before>lib/identity</before>"),
        ("<context><before id=\"lib/identity\"/></context>", "item::missing", "<before>lib/identity</before>"),
        ("<context><before>lib/identity, lib/x</before></context>", "syntax::reference", "one id here"),
        ("<permissions><deny>x</deny></permissions>", "item::unknown-key", "without a grant is denied"),
        ("<permissions>all</permissions>", "item::invalid-value", "write `*` for everything"),
    ] {
        assert_one(&directive(project(), "leaf", "", metadata, "x"), code, help);
    }
}

#[test]
fn switches_and_lists_are_no_hosts_and_folders() {
    let grant = |attribute: &str| {
        let permissions = format!(
            "<permissions><execute><tool {attribute}>rye.bash.bash</tool></execute><acknowledge risk=\"elevated\">x</acknowledge></permissions>"
        );
        directive(project(), "leaf", "", &permissions, "x")
    };
    for (attribute, help) in [
        ("net=\"true\"", "`*` for every host"),
        ("net=\"All\"", "`*` for every host"),
        ("net=\"none\"", "without `net`"),
        ("net=\"a.com b.com\"", "`a.com,b.com`"),
        ("net=\"a.com;b.com\"", "`a.com,b.com`"),
    ] {
        assert_one(&grant(attribute), "item::invalid-value", help);
    }
    assert_one(&grant("write=\"true\""), "capability::opens-nothing", "relative to the project");
}

#[test]
fn openings_of_a_grant_that_no_granted_tool_uses_are_reported() {
    let files = [
        ("tools/rye/file-system/read.yaml", "description: d\nkind: builtin\nbuiltin: read\n"),
        ("tools/rye/file-system/write.yaml", "description: d\nkind: builtin\nbuiltin: write\n"),
        ("tools/rye/git/log.yaml", "description: d\nkind: builtin\nbuiltin: git_log\n"),
        ("tools/rye/web/fetch.yaml", "description: d\nkind: builtin\nbuiltin: web_fetch\n"),
        ("tools/own/count.yaml", "description: d\nkind: command\ncommand: [wc]\n"),
        (
            "tools/mcp/s/plain.yaml",
            "description: d\nkind: mcp\nserver: s\ntool: plain\nsha256: x\nserver_sha256: x\nruns: z\nsandbox: process\n",
        ),
        (
            "tools/mcp/n/notes.yaml",
            "description: d\nkind: mcp\nserver: n\ntool: notes\nsha256: x\nserver_sha256: x\nruns: z\nsandbox: process\nneeds: { write: [notes/] }\n",
        ),
        (
            "tools/mcp/o/open.yaml",
            "description: d\nkind: mcp\nserver: o\ntool: open\nsha256: x\nserver_sha256: x\nruns: z\nsandbox: none\n",
        ),
    ];
    let found = |grant: &str| {
        let permissions = format!(
            "<permissions><execute>{grant}</execute><acknowledge risk=\"elevated\">y</acknowledge></permissions>"
        );
        let mut world = project();
        for (path, text) in files {
            world = world.project(&format!(".ai/{path}"), text);
        }
        let world = directive(world, "leaf", "", &permissions, "x");
        let report = report(&world);
        let found = report.diagnostics.iter().filter(|one| one.code() == "capability::opens-nothing");
        found.map(|one| format!("{} / {}", one.message(), one.help().unwrap_or_default())).collect::<Vec<_>>()
    };
    for (grant, message, help) in [
        (
            "<tool write=\"notes/\">mcp.s.*</tool>",
            "the server `s` do not include this attribute",
            "`\"needs\": {\"write\": [\"notes/\"]}` to the server `s`",
        ),
        ("<tool net=\"a.com\">mcp.s.plain</tool>", "`net=\"a.com\"` has no effect", "\"net\": [\"a.com\"]"),
        ("<tool write=\"notes/,out/\">mcp.n.*</tool>", "`write=\"out/\"` has no effect", "\"write\": [\"out/\"]"),
        ("<tool write=\"out/\">mcp.o.open</tool>", "the server `o` runs without a sandbox", "remove `write=\"out/\"`"),
        ("<tool write=\"out/\">rye.file-system.read</tool>", "the tool only reads files", "remove"),
        ("<tool net=\"a.com\">rye.file-system.*</tool>", "the tool uses only files of the project", "remove"),
        (
            "<tool write=\"out/\">rye.git.*</tool>",
            "the git tools only read, so no grant extends their sandbox",
            "remove",
        ),
        ("<tool net=\"*\" write=\"out/\">rye.web.fetch</tool>", "writes no files", "remove `write"),
    ] {
        let all = found(grant);
        let [one] = all.as_slice() else { panic!("{grant}: {all:?}") };
        assert!(one.contains(message) && one.contains(help), "{grant}: {one}");
    }
    for grant in [
        "<tool write=\"notes/\">mcp.n.*</tool>",
        "<tool write=\".\">mcp.n.notes</tool>",
        "<tool write=\"notes/\">mcp.*</tool>",
        "<tool write=\"out/\">own.count</tool>",
        "<tool write=\"out/\" net=\"*\">*</tool>",
        "<tool write=\"out/\">rye.file-system.*</tool>",
        "<tool net=\"a.com\">rye.web.fetch</tool>",
    ] {
        assert_eq!(found(grant), Vec::<String>::new(), "{grant}");
    }
}

#[test]
fn pattern_with_wildcards_is_no_regular_expression() {
    let found = |pattern: &str| {
        let action = "action: {primary: fetch, item_type: knowledge, item_id: lib/identity}";
        hooks(
            project(),
            &format!(
                "hooks: [{{id: h, event: thread_started, condition: 'directive matches \"{pattern}\"', {action}}}]"
            ),
        )
    };
    for (pattern, meant) in [("b*", "^b.*$"), ("base/*", "^base/.*$"), ("team/**", "^team/.*$")] {
        assert_one(&found(pattern), "hook::unknown-value", meant);
    }
    for pattern in ["^b", "ba*se", "bas.*", "base$"] {
        assert_eq!(codes(&found(pattern)), Vec::<&str>::new(), "{pattern}");
    }
}

#[test]
fn grant_with_a_superfluous_part_has_a_suggestion() {
    for (tool, meant) in [
        ("rye.execute.tool.rye.bash.bash", "rye.execute.tool.rye.bash.bash"),
        ("rye.bash.bash.yaml", "rye.execute.tool.rye.bash.bash"),
        ("tools.rye.bash.bash", "rye.execute.tool.rye.bash.bash"),
    ] {
        let permissions = format!("<permissions><execute><tool>{tool}</tool></execute></permissions>");
        let help = format!("did you mean `{meant}`?");
        assert_one(&directive(project(), "leaf", "", &permissions, "x"), "capability::matches-nothing", &help);
    }
}

#[test]
fn tool_file_that_is_not_read_hides_its_grant() {
    let permissions = "<permissions><execute><tool>count2</tool></execute></permissions>";
    let tool = "description: Counts.\nkind: command\ncommand: [wc]\n";
    let world = directive(project(), "leaf", "", permissions, "x").project(".ai/tools/count.yaml", tool);
    assert_one(&world.project(".ai/tools/count2.json", "{}"), "item::stray", ".ai/tools/count2.yaml");
    let reads = "description: Counts.\nkind: command\ncommand: [python, x, \"data.json\"]\n";
    let world = project().project(".ai/tools/count.yaml", reads).project(".ai/tools/other.json", "{}");
    assert_eq!(codes(&world), Vec::<&str>::new());
}

#[test]
fn placeholder_of_a_tool_is_written_in_braces_and_quotes() {
    let tool = |command: &str, more: &str| {
        let parameters = "parameters: {type: object, properties: {file: {type: string}}}";
        let text = format!("description: Counts.\nkind: command\ncommand: {command}\n{parameters}\n{more}");
        project().project(".ai/tools/count.yaml", text)
    };
    assert_one(&tool("[wc, \"${file}\"]", ""), "item::invalid-value", "write `{file}`");
    assert_one(&tool("[wc, \"${FILE}\"]", ""), "item::invalid-value", "write `{file}`");
    assert_one(&tool("[wc, \"${OTHER}\"]", ""), "item::invalid-value", "environment: [OTHER]");
    assert_one(&tool("[wc, {file}]", ""), "item::invalid-value", "`\"{file}\"`");
    assert_one(&tool("[wc, \"{file}\"]", "environment: {TOKEN: x}\n"), "item::invalid-value", "environment: [TOKEN]");
}

#[test]
fn key_with_the_name_of_an_event_is_the_event() {
    let hook = "{id: h, type: thread_started, action: {primary: fetch, item_type: knowledge, item_id: lib/identity}}";
    assert_one(&hooks(project(), &format!("hooks: [{hook}]")), "item::unknown-key", "did you mean `event`?");
    let action = "{id: h, event: thread_started, action: {type: fetch, item_type: knowledge, item_id: lib/identity}}";
    assert_one(&hooks(project(), &format!("hooks: [{action}]")), "item::unknown-key", "did you mean `primary`?");
}

#[test]
fn template_with_a_foreign_placeholder_is_reported_once() {
    for (body, code) in [
        ("Do $ARGUMENT", "template::arguments"),
        ("Do {{file}}", "template::placeholder"),
        ("Do ${arg}", "template::placeholder"),
    ] {
        let text = format!("---\ndescription: d\nargument-hint: <file>\n---\n{body}\n");
        assert_one(&project().project(".ai/prompts/fix.md", text), code, "$ARGUMENTS");
    }
    let shell = "---\ndescription: d\n---\nUse ${HOME}, `${dir}` and $${x}.\n";
    assert_eq!(codes(&project().project(".ai/prompts/fix.md", shell)), Vec::<&str>::new());
}

#[test]
fn choices_without_commas_are_reported_once() {
    for (written, help) in
        [("enum=\"a b c\" default=\"a\"", "`a,b,c`"), ("enum='[\"a\",\"b\"]' default=\"a\"", "`a,b`")]
    {
        let inputs = format!("<inputs><input name=\"f\" {written}>f</input></inputs>");
        assert_one(&directive(project(), "leaf", "", &inputs, "Do {input:f}."), "interface::choices", help);
    }
}

#[test]
fn fact_of_another_event_is_reported_with_its_events() {
    let yaml = "hooks: [{id: h, event: after_step, condition: 'usage_ratio > 0.8', action: continue}]";
    assert_one(&hooks(project(), yaml), "hook::unknown-fact", "is a fact of `context`, `context_limit_reached`");
}

#[test]
fn invalid_key_of_a_guard_is_the_only_report() {
    let grants = "<permissions><execute><tool>rye.file-system.read</tool></execute></permissions>";
    let world = |key: &str, action: &str| {
        let yaml = format!("hooks: [{{id: h, event: tool_call, {key}, action: {action}}}]");
        hooks(directive(project(), "leaf", "", grants, "x"), &yaml)
    };
    assert_one(&world("layer: first", "{block: no}"), "item::invalid-value", "write a number");
    assert_one(&world("enabled: 'off'", "{block: no}"), "item::invalid-value", "`true` or `false`");
    let events = "hooks: [{id: h, event: [tool_call, tool_result], action: {block: no}}]";
    assert_one(&hooks(project(), events), "item::invalid-value", "a hook for each event");
    let raise = "hooks: [{id: h, event: limit, condition: 'limit_code == \"turns\"', action: {raise: {limit: turns, value: 40}}}]";
    assert_one(&hooks(project(), raise), "hook::never", "correct the condition");
}

#[test]
fn functions_of_other_languages_in_a_condition_have_a_help() {
    for (condition, help) in [
        ("directive startswith \"a\"", "matches \"^text\""),
        ("directive endsWith \"a\"", "matches \"text$\""),
        ("directive includes \"a\"", "`contains`"),
    ] {
        let action = "action: {primary: fetch, item_type: knowledge, item_id: lib/identity}";
        let yaml = format!("hooks: [{{id: h, event: thread_started, condition: '{condition}', {action}}}]");
        assert_one(&hooks(project(), &yaml), "syntax::condition", help);
    }
}

#[test]
fn text_in_place_of_a_knowledge_id_has_a_help() {
    let context = "<context><system>You are a careful reviewer.</system></context>";
    assert_one(&directive(project(), "leaf", "", context, "x"), "syntax::reference", ".ai/knowledge/NAME.md");
}

#[test]
fn own_risk_table_without_an_entry_is_named_as_the_cause() {
    let grants = "<permissions><execute><tool>rye.file-system.read</tool></execute></permissions>";
    let table = "classifications: [{risk: safe, patterns: [\"rye.execute.tool.rye.bash.*\"]}]\n";
    let world = directive(project(), "leaf", "", grants, "x").project(".ai/config/agent/capability_risk.yaml", table);
    let found = helps(&world);
    let blocked: Vec<_> = found.iter().filter(|(code, _)| *code == "capability::blocked").collect();
    assert!(
        !blocked.is_empty() && blocked.iter().all(|(_, help)| help.contains("replaces the standard list")),
        "{found:?}"
    );
}

#[test]
fn call_that_one_route_denies_is_reported_with_the_route() {
    let granting = "<permissions><execute><tool>rye.bash.bash</tool></execute><acknowledge risk=\"elevated\">x</acknowledge></permissions>";
    let inputs = "<inputs><input name=\"m\" enum=\"x,y\" default=\"x\"/></inputs>";
    let world = directive(project(), "bx", "", granting, "x");
    let world = directive(world, "by", "", "<permissions/>", "x");
    let body = "{input:m}: call `rye_execute(item_type=\"tool\", item_id=\"rye/bash/bash\", parameters={})`.";
    let world = directive(world, "leaf", "", inputs, body);
    let route = |id: &str| {
        format!(
            "{{id: r{id}, event: resolve_extends, condition: 'inputs.m == \"{id}\"', action: {{set_extends: b{id}}}}}"
        )
    };
    let world = hooks(world, &format!("hooks: [{}, {}]", route("x"), route("y")));
    let report = report(&world);
    let found: Vec<String> = report.diagnostics.iter().map(crate::diagnostics::Diagnostic::message).collect();
    let says = "which the directive is not granted with the parent `by`, which the hook `ry` selects";
    assert!(found.iter().any(|message| message.ends_with(says)), "{found:?}");
}

#[test]
fn limit_with_an_affix_has_a_suggestion_for_the_fix() {
    let found = report(&directive(project(), "leaf", "", "<limits max_turn=\"3\"/>", "x"));
    let suggestions = found.diagnostics.iter().filter_map(|one| {
        let crate::diagnostics::Diagnostic::Limit(error) = one else { return None };
        let crate::diagnostics::LimitError::Unknown { suggestion, .. } = error else { return None };
        suggestion.clone()
    });
    assert_eq!(suggestions.collect::<Vec<_>>(), ["turns"]);
}

#[test]
fn broken_provider_file_hides_only_names_that_it_contains() {
    let codes = |tier: &str| {
        let metadata = format!("<metadata><model tier=\"{tier}\"/></metadata>");
        let world = with_directives(minimal_world(), &[("leaf", "", &metadata, "Look.")]).project(
            ".ai/config/agent/providers/house.yaml",
            "wire: openai_chat\nbase_url: http://localhost:1/v1\ndefault_tier: thorough\ntiers: { thorough: big \
             }\nmodels:\n  - { id: big, context_window: 100000, max_output: 8000, prices: none }\n",
        );
        helps(&world).into_iter().map(|(code, _)| code).collect::<Vec<_>>()
    };
    assert_eq!(codes("thorough"), ["config::invalid"]);
    assert_eq!(codes("thorugh"), ["config::invalid", "model::unknown"]);
}

#[test]
fn small_window_of_the_project_is_the_place_of_a_ceiling_of_the_standard_library() {
    let world = with_directives(stdlib_world(), &[("leaf", "", "<metadata><permissions/></metadata>", "Look.")])
        .project(".ai/config/agent/models.yaml", "default_provider: house\n")
        .project(
            ".ai/config/agent/providers/house.yaml",
            "wire: openai-chat\nbase_url: http://localhost:1/v1\ndefault_tier: general\ntiers: { general: tiny \
             }\nmodels:\n  - { id: tiny, context_window: 12000, max_output: 2000, prices: none }\n",
        );
    let report = check(&world, &Selection::All);
    let found = report.diagnostics.iter().find(|one| one.code() == "context::resume-ceiling").unwrap();
    let places: Vec<String> = found
        .labels()
        .iter()
        .filter_map(|label| Some(report.sources.get(label.span.source)?.path.to_string()))
        .collect();
    assert_eq!(places, [".ai/config/agent/providers/house.yaml", "system:.ai/config/agent/coordination.yaml"]);
}
