//! Tests of check, code by code. Each world is a valid project with one error.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod calls;
mod mistakes;
mod true_reports;
mod unread_parts;

use std::collections::BTreeSet;

use super::*;
use crate::compile::CompileRequest;
use crate::world::MapWorld;

/// Returns a project with a base that grants everything, a tool and some knowledge.
fn project() -> MapWorld<'static> {
    let world = MapWorld::new()
        .with(Space::System, ".ai/tools/rye/bash/bash.yaml", TOOL)
        .with(Space::System, ".ai/tools/rye/file-system/read.yaml", TOOL)
        .with(Space::System, ".ai/knowledge/lib/identity.md", "Who.");
    directive(
        world,
        "base",
        "",
        "<permissions seal=\"true\"><execute><tool>rye.file-system.*</tool></execute></permissions>",
        "",
    )
}

const TOOL: &str = "description: Does it.\nkind: builtin\nbuiltin: bash\nparameters: {type: object}\n";

fn directive(world: MapWorld<'static>, at: &str, attributes: &str, inside: &str, body: &str) -> MapWorld<'static> {
    let name = at.rsplit('/').next().unwrap();
    let body = if body.is_empty() { "Do it." } else { body };
    let text = format!("```xml\n<directive name=\"{name}\" {attributes}>{inside}</directive>\n```\n\n{body}\n");
    world.project(&format!(".ai/directives/{at}.md"), text)
}

fn hooks(world: MapWorld<'static>, yaml: &str) -> MapWorld<'static> {
    world.project(".ai/config/agent/hooks.yaml", yaml)
}

fn report(world: &MapWorld<'_>) -> CheckReport {
    check(world, &Selection::All)
}

fn codes(world: &MapWorld<'_>) -> Vec<&'static str> {
    report(world).diagnostics.iter().map(crate::diagnostics::Diagnostic::code).collect()
}

/// Returns the diagnostic codes of the project with one more directive.
fn leaf(inside: &str, body: &str) -> Vec<&'static str> {
    codes(&directive(project(), "leaf", "extends=\"base\"", inside, body))
}

/// Returns the diagnostic codes of the project with these hooks.
fn with_hooks(yaml: &str) -> Vec<&'static str> {
    codes(&hooks(project(), yaml))
}

#[test]
fn valid_project_has_no_diagnostics() {
    let world =
        directive(project(), "leaf", "extends=\"base\"", "<inputs><input name=\"a\"/></inputs>", "Do {input:a}.");
    let report = report(&world);
    assert!(report.diagnostics.is_empty(), "{:?}", report.diagnostics);
    assert_eq!((report.directives, report.errors(), report.warnings()), (2, 0, 0));
}

#[test]
fn undeclared_and_unused_inputs_are_reported() {
    assert_eq!(leaf("", "Do {input:a}."), ["interface::unknown-input"]);
    assert_eq!(leaf("<inputs><input name=\"a\"/></inputs>", "Do it."), ["interface::unused-input"]);
    let hook = "<hooks><hook id=\"h\" event=\"tool_call\"><when>call.name == \"rye_fetch\"</when><block reason=\"{input:a}\"/></hook></hooks>";
    assert_eq!(leaf(hook, "x"), ["interface::unknown-input"]);
    assert_eq!(leaf(&format!("{hook}<inputs><input name=\"a\"/></inputs>"), "x"), Vec::<&str>::new());
}

#[test]
fn base_input_used_by_a_leaf_counts_as_used() {
    let world = directive(project(), "root", "", "<inputs><input name=\"a\"/></inputs>", "");
    assert_eq!(codes(&world), ["interface::unused-input"]);
    let world = directive(world, "user", "extends=\"root\"", "", "Do {input:a}.");
    assert_eq!(codes(&world), Vec::<&str>::new());
}

#[test]
fn input_that_only_a_hook_for_other_directives_reads_is_used() {
    let found = |read: &str| {
        let inputs = "<inputs><input name=\"a\"/></inputs>";
        let world = directive(project(), "leaf", "extends=\"base\"", inputs, "Do it.");
        let world = directive(world, "other/one", "extends=\"base\"", inputs, "{input:a}");
        let condition = format!("'directive contains \"other/\"{read}'");
        let action = "{primary: fetch, item_type: knowledge, item_id: lib/identity}";
        let hook = format!("hooks: [{{id: h, event: thread_started, condition: {condition}, action: {action}}}]");
        codes(&hooks(world, &hook)).contains(&"interface::unused-input")
    };
    assert!(found(""));
    assert!(!found(" && inputs.a == \"x\""));
}

#[test]
fn input_used_by_a_project_hook_counts_as_used() {
    let world = directive(project(), "leaf", "", "<inputs><input name=\"a\"/></inputs>", "");
    let yaml = "hooks: [{id: h, event: thread_started, condition: 'inputs.a == \"x\"', action: {primary: fetch, item_type: knowledge, item_id: lib/identity}}]";
    assert_eq!(codes(&hooks(world, yaml)), Vec::<&str>::new());
}

#[test]
fn directive_call_with_wrong_inputs_is_reported() {
    let inputs = "<inputs><input name=\"n\" type=\"integer\" required=\"true\"/><input name=\"o\"/></inputs>";
    // The hook also fires at the end of the directive that it starts, so `depth` has to bound the recursion.
    let inside = format!("<limits depth=\"1\"/>{inputs}");
    let world = || directive(project(), "callee", "", &inside, "{input:n} {input:o?}");
    let call = |params: &str| {
        let action = format!("{{primary: execute, item_type: directive, item_id: callee, params: {params}}}");
        codes(&hooks(world(), &format!("hooks: [{{id: h, event: after_complete, action: {action}}}]")))
    };
    assert_eq!(call("{n: 3}"), Vec::<&str>::new());
    assert_eq!(call("{n: '${cost.turns}'}"), Vec::<&str>::new());
    assert_eq!(call("{}"), ["interface::missing-input"]);
    assert_eq!(call("{n: x}"), ["interface::type"]);
    assert_eq!(call("{n: 1, m: 2}"), ["interface::unknown-input"]);
}

#[test]
fn invalid_context_is_reported() {
    let context = |inside: &str| leaf(&format!("<context>{inside}</context>"), "x");
    assert_eq!(context("<before>lib/identity</before>"), Vec::<&str>::new());
    assert_eq!(context("<before>lib/identty</before>"), ["context::unknown-item"]);
    assert_eq!(context("<before>lib/identity</before><after>lib/identity</after>"), ["context::duplicate"]);
    assert_eq!(context("<suppress>lib/identity</suppress>"), ["context::suppresses-nothing"]);
    let both = context("<before>lib/identity</before><suppress>lib/identity</suppress>");
    assert_eq!(both, ["context::suppressed-and-declared"]);
}

#[test]
fn suppression_used_by_a_descendant_is_not_reported() {
    let world = directive(project(), "root", "", "<context><suppress>lib/identity</suppress></context>", "");
    assert_eq!(codes(&world), ["context::suppresses-nothing"]);
    let world = directive(world, "leaf", "extends=\"root\"", "<context><system>lib/identity</system></context>", "");
    assert_eq!(codes(&world), Vec::<&str>::new());
}

#[test]
fn hook_with_unknown_fact_or_item_is_reported() {
    let fetch = |id: &str| format!("action: {{primary: fetch, item_type: knowledge, item_id: {id}}}");
    let good = fetch("lib/identity");
    assert_eq!(with_hooks(&format!("hooks: [{{id: h, event: thread_started, {good}}}]")), Vec::<&str>::new());
    let missing = fetch("lib/ident");
    assert_eq!(with_hooks(&format!("hooks: [{{id: h, event: thread_started, {missing}}}]")), ["context::unknown-item"]);
    let empty = "hooks:\n  - id: h\n    event: tool_call\n    condition:\n    action: { block: { reason: no } }\n";
    assert_eq!(with_hooks(empty), ["item::invalid-value"]);
    let fact = format!("hooks: [{{id: h, event: thread_started, condition: 'cost.turns > 1', {good}}}]");
    assert_eq!(with_hooks(&fact), ["hook::unknown-fact"]);
    let placeholder = "hooks: [{id: h, event: tool_call, action: {block: 'no ${call.nam}'}}]";
    assert_eq!(with_hooks(placeholder), ["hook::unknown-fact"]);
    let tool =
        "hooks: [{id: h, event: after_step, action: {primary: execute, item_type: tool, item_id: rye/bash/bsh}}]";
    assert_eq!(with_hooks(tool), ["item::unknown"]);
    let route =
        "hooks: [{id: h, event: resolve_extends, condition: 'directive == \"base\"', action: {set_extends: bse}}]";
    assert_eq!(with_hooks(route), ["extends::unknown"]);
    let raise = "hooks: [{id: h, event: limit, action: {raise: {limit: turn, value: 3}}}]";
    assert_eq!(with_hooks(raise), ["limit::unknown"]);
}

#[test]
fn directive_hook_beyond_its_grants_is_reported() {
    let inside = |tool: &str| {
        format!(
            "<hooks><hook id=\"h\" event=\"after_complete\"><execute item_type=\"tool\" item_id=\"{tool}\"/></hook></hooks>"
        )
    };
    assert_eq!(leaf(&inside("rye/file-system/read"), "x"), Vec::<&str>::new());
    assert_eq!(leaf(&inside("rye/bash/bash"), "x"), ["hook::ungranted"]);
}

#[test]
fn fetched_knowledge_placeholders_are_checked() {
    let world = |text: &str| project().project(".ai/knowledge/env.md", text);
    let yaml = "hooks: [{id: h, event: thread_started, action: {primary: fetch, item_type: knowledge, item_id: env}}]";
    assert_eq!(
        codes(&hooks(world("In ${project_path}, not ${HOME}, ${limits.turns} turns."), yaml)),
        Vec::<&str>::new()
    );
    assert_eq!(codes(&hooks(world("${limits.trns} turns."), yaml)), ["hook::unknown-fact"]);
}

#[test]
fn directive_hook_condition_is_typed_by_inputs() {
    let inside = |condition: &str| {
        format!(
            "<hooks><hook id=\"h\" event=\"thread_started\"><when>{condition}</when>\
             <fetch item_type=\"knowledge\" item_id=\"lib/identity\"/></hook></hooks>\
             <inputs><input name=\"n\" type=\"integer\"/></inputs>"
        )
    };
    assert_eq!(leaf(&inside("inputs.n &gt; 3"), "x"), Vec::<&str>::new());
    assert_eq!(leaf(&inside("inputs.n &gt; 'a'"), "x"), ["syntax::condition"]);
}

#[test]
fn constant_hook_conditions_are_reported() {
    let route = |condition: &str| {
        let yaml = format!(
            "hooks: [{{id: h, event: resolve_extends, condition: '{condition}', action: {{set_extends: base}}}}]"
        );
        codes(&hooks(directive(project(), "leaf", "", "", ""), &yaml))
    };
    assert_eq!(route("directive contains \"absent\""), ["hook::never"]);
    assert_eq!(route("false && has_extends"), ["hook::never"]);
    assert_eq!(route("1 == 1"), ["hook::always"]);
    assert_eq!(route("directive == \"leaf\""), Vec::<&str>::new());
    assert_eq!(route("directive == \"base\""), ["hook::never"]);
    assert_eq!(route("inputs.x == 1"), ["interface::unknown-input"]);
}

#[test]
fn route_that_no_value_of_an_input_can_take_is_reported() {
    let inputs = "<inputs><input name=\"e\" type=\"string\" enum=\"a,b\"/></inputs>";
    let route = |condition: &str| {
        let yaml = format!(
            "hooks: [{{id: h, event: resolve_extends, condition: '{condition}', action: {{set_extends: base}}}}]"
        );
        codes(&hooks(directive(project(), "leaf", "", inputs, "{input:e}"), &yaml))
    };
    for never in ["inputs.e == \"c\"", "inputs.e == \"a\" && inputs.e == \"b\""] {
        assert_eq!(route(never), ["hook::never"], "{never}");
    }
    assert_eq!(route("inputs.e == \"b\""), Vec::<&str>::new());
}

#[test]
fn acknowledgement_beside_an_unreadable_grant_is_not_reported() {
    for (granted, code) in [
        ("<tool>rye.bash.bash</tool>", "item::unknown-key"),
        ("<execute><tool name=\"rye.bash.bash\"/></execute>", "item::missing"),
        ("<execute><tool id=\"rye.bash.bash\"/></execute>", "item::missing"),
        ("<execute><tool>Bash(git:*)</tool></execute>", "syntax::capability"),
    ] {
        let permissions = format!("{granted}<acknowledge risk=\"elevated\">It needs a shell.</acknowledge>");
        let inside = format!("<metadata><permissions>{permissions}</permissions></metadata>");
        assert_eq!(codes(&directive(project(), "leaf", "", &inside, "Do it.")), [code], "{granted}");
    }
}

#[test]
fn effects_of_hooks_that_are_not_read_are_not_reported() {
    let fetch = |event: &str, item: &str| {
        let action = format!("{{primary: fetch, item_type: knowledge, item_id: {item}}}");
        format!("hooks: [{{id: h, {event}: thread_started, action: {action}}}]")
    };
    let world = || directive(project(), "leaf", "", "", "Do it.").project(".ai/knowledge/rules.md", "Be brief.");
    assert_eq!(codes(&world()), ["context::unreached"]);
    let misnamed = |path: &str| codes(&world().project(path, fetch("event", "rules")));
    assert_eq!(misnamed(".ai/config/agent/hook.yaml"), ["config::unknown-file"]);
    assert_eq!(misnamed(".ai/hooks.yaml"), ["item::stray"]);
    assert_eq!(codes(&hooks(world(), &fetch("event", ".ai/knowledge/rules.md"))), ["syntax::reference"]);
    assert_eq!(codes(&hooks(world(), &fetch("on", "rules"))), ["item::unknown-key"]);

    let granted = "<metadata><permissions><execute><tool>look</tool></execute></permissions></metadata>";
    let guarded = |key: &str| {
        let world = directive(project(), "leaf", "", granted, "Do it.")
            .project(".ai/tools/look.yaml", "description: Looks.\nkind: command\ncommand: [ls]\n");
        let guard = format!("hooks: [{{id: b, event: tool_call, {key}action: {{block: {{reason: no}}}}}}]");
        codes(&hooks(world, &guard))
    };
    assert_eq!(guarded(""), ["capability::dead-grant", "capability::unacknowledged"]);
    assert_eq!(guarded("matcher: Bash, "), ["item::unknown-key", "capability::unacknowledged"]);
}

#[test]
fn routing_hook_behind_an_unconditional_one_is_shadowed() {
    let yaml = "hooks:\n- {id: a, event: resolve_extends, action: {set_extends: base}}\n\
                - {id: b, event: resolve_extends, condition: has_extends, action: {set_extends: base}}\n";
    assert_eq!(codes(&hooks(directive(project(), "leaf", "", "", ""), yaml)), ["hook::shadowed"]);
}

#[test]
fn untrusted_text_in_a_command_parameter_is_reported() {
    let action = |text: &str| {
        format!(
            "hooks: [{{id: h, event: tool_call, action: {{primary: execute, item_type: tool, item_id: rye/bash/bash, params: {{command: '{text}'}}}}}}]"
        )
    };
    assert_eq!(with_hooks(&action("echo ${call.input.path}")), ["hook::untrusted-parameter"]);
    assert_eq!(with_hooks(&action("echo ${cost.turns}")), Vec::<&str>::new());
}

#[test]
fn unknown_settings_are_reported() {
    const PROVIDER: &str = "wire: scripted\ntiers: {general: large}\ndefault_tier: general\nmodels: []\n";
    let with = |at: &str, text: &str| {
        let world = project().with(Space::System, ".ai/config/agent/providers/own.yaml", PROVIDER);
        let world = world.project(&format!(".ai/config/agent/{at}.yaml"), text);
        codes(&world)
    };
    let none: [&str; 0] = [];
    assert_eq!(with("models", "default_provider: own\ndefault_tier: general\naliases: {big: general}\n"), none);
    assert_eq!(with("models", "# only a remark\n"), none);
    assert_eq!(with("models", "default_provider: owm\n"), ["model::unknown"]);
    assert_eq!(with("models", "default_tier: generl\n"), ["model::unknown"]);
    assert_eq!(with("models", "default_providr: own\n"), ["item::unknown-key"]);
    assert_eq!(with("providers/mine", "wire: scripted\n"), none);
    assert_eq!(with("providers/mine", "wire: antropic\n"), ["config::invalid"]);
    assert_eq!(with("providers/mine", "wire: scripted\nkey_evn: X\n"), ["item::unknown-key"]);
    assert_eq!(with("coordination", "continuation: {trigger_threshold: 90}\n"), ["config::invalid"]);
    let rule = "{id: a, category: transient, match: 'status == 418'}";
    assert_eq!(with("error_classification", &format!("patterns: [{rule}]\n")), none);
    assert_eq!(
        with("error_classification", &format!("patterns: [{}]\n", rule.replace("status", "statsu"))),
        ["config::invalid"]
    );
    let without_condition = "patterns: [{id: a, category: transient, match: }]\n";
    assert_eq!(with("error_classification", without_condition), ["config::invalid"]);
    assert_eq!(with("capability_risk", "classifications: [{risk: sfae, patterns: [rye.*]}]\n"), ["config::invalid"]);
    assert_eq!(with("hook", "hooks: []\n"), ["config::unknown-file"]);
    assert_eq!(codes(&project().project(".ai/config/agent/hooks.yml", "hooks: []\n")), ["item::stray"]);
    assert_eq!(codes(&project().project(".ai/directive/a.md", "x")), ["item::stray"]);
}

#[test]
fn plan_rejects_settings_that_check_rejects() {
    let world = project().project(".ai/config/agent/coordination.yaml", "wait_thread: {default_timeout: 1}\n");
    let request = crate::compile::CompileRequest::new(rye_grammar::ItemId::parse("base").unwrap());
    let found = crate::compile::compile(&world, &request).diagnostics;
    assert!(found.codes().contains("item::unknown-key"), "{found:?}");
}

#[test]
fn unsigned_file_is_refused_if_signing_is_required() {
    let with = |space: Space, policy: &str| {
        let text = format!("signing: {{require: {policy}}}\n");
        codes(&project().with(space, ".ai/config/agent/agent.yaml", text)).into_iter().collect::<BTreeSet<_>>()
    };
    assert_eq!(with(Space::Project, "shared"), BTreeSet::new());
    assert_eq!(with(Space::User, "all"), BTreeSet::from(["item::signature"]));
    let world = project().with(Space::User, ".ai/config/agent/agent.yaml", "signing: {require: all}\n");
    let weaker = world.project(".ai/config/agent/agent.yaml", "signing: {require: none}\n");
    assert!(codes(&weaker).contains(&"item::signature"));
}

#[test]
fn group_in_place_of_a_pattern_suggests_its_patterns() {
    const GROUPS: &str = "description: Files.\ngroups: {read: {description: Look., patterns: [rye.execute.tool.rye.file-system.read]}}\n";
    let world = project().with(Space::System, ".ai/config/agent/capabilities/fs.yaml", GROUPS);
    let inside = "<permissions><execute><tool>fs.read</tool></execute><acknowledge risk=\"elevated\">x</acknowledge></permissions>";
    let report = report(&directive(world, "x", "", inside, ""));
    let only = report.diagnostics.iter().next().unwrap();
    assert_eq!(only.help().unwrap(), "did you mean `rye.execute.tool.rye.file-system.read`?");
}

#[test]
fn an_open_id_needs_a_grant() {
    let yaml = |grants: &str| {
        format!(
            "hooks: [{{id: h, event: thread_started, {grants} action: {{primary: fetch, item_type: knowledge, item_id: 'lib/${{directive}}'}}}}]"
        )
    };
    assert_eq!(with_hooks(&yaml("")), ["hook::ungranted"]);
    assert_eq!(with_hooks(&yaml("grants: [rye.fetch.knowledge.lib.*],")), Vec::<&str>::new());
    assert_eq!(with_hooks(&yaml("grants: [rye.fetch.knowledge.lob.*],")), ["capability::matches-nothing"]);
}

#[test]
fn grants_without_match_or_beyond_the_base_are_reported() {
    let grant = |inside: &str| leaf(&format!("<permissions>{inside}</permissions>"), "x");
    let ack = "<acknowledge risk=\"elevated\">needed</acknowledge>";
    assert_eq!(grant("<execute><tool>rye.file-system.read</tool></execute>"), Vec::<&str>::new());
    let bash = format!("<execute><tool>rye.bash.*</tool></execute>{ack}");
    assert_eq!(grant(&bash), ["capability::exceeds-base"]);
    let typo = grant("<execute><tool>rye.file-system.raed</tool></execute>");
    assert_eq!(typo, ["capability::matches-nothing"]);
}

#[test]
fn unacknowledged_risk_is_reported_at_its_grant() {
    let grants =
        |text: &str| codes(&directive(project(), "root", "", &format!("<permissions>{text}</permissions>"), ""));
    let bash = "<execute><tool>rye.bash.bash</tool></execute>";
    assert_eq!(grants(bash), ["capability::unacknowledged"]);
    assert_eq!(grants(&format!("{bash}<acknowledge risk=\"elevated\">x</acknowledge>")), Vec::<&str>::new());
    assert_eq!(grants("*"), ["capability::blocked"]);
}

#[test]
fn mistyped_pattern_gets_a_suggestion() {
    let world = directive(
        project(),
        "x",
        "",
        "<permissions><execute><tool>rye.bsh.*</tool></execute><acknowledge risk=\"elevated\">x</acknowledge></permissions>",
        "",
    );
    let report = report(&world);
    let only = report.diagnostics.iter().next().unwrap();
    assert_eq!(only.help().unwrap(), "did you mean `rye.execute.tool.rye.bash.*`?");
}

#[test]
fn invalid_limits_are_reported_in_every_file() {
    let limits = |text: &str| leaf(&format!("<limits {text}/>"), "x");
    assert_eq!(limits("turns=\"3\" spend=\"0.1\" depth=\"0\""), Vec::<&str>::new());
    assert_eq!(limits("turn=\"3\""), ["limit::unknown"]);
    for bad in ["turns=\"0\"", "turns=\"-1\"", "turns=\"1.5\"", "spend=\"lots\"", "tokens=\"\""] {
        assert_eq!(limits(bad), ["limit::invalid"], "{bad}");
    }
    let config = |text: &str| codes(&project().project(".ai/config/agent/resilience.yaml", text));
    assert_eq!(config("limits: {turns: 0}"), ["limit::invalid"]);
    assert_eq!(config("limits: {trns: 3}"), ["limit::unknown"]);
    assert_eq!(config("limits: 3"), ["config::invalid"]);
}

#[test]
fn chain_errors_are_reported_once() {
    let world = directive(project(), "a", "extends=\"b\"", "", "");
    let world = directive(world, "b", "extends=\"a\"", "", "");
    let world = directive(world, "c", "extends=\"b\"", "", "");
    assert_eq!(codes(&world), ["extends::cycle"]);
    assert_eq!(codes(&directive(project(), "x", "extends=\"bse\"", "", "")), ["extends::unknown"]);
}

#[test]
fn invalid_parent_is_reported_once() {
    let world = project().project(".ai/directives/broken.md", "no fence here");
    let world = directive(world, "x", "extends=\"broken\"", "", "");
    assert_eq!(codes(&directive(world, "y", "extends=\"broken\"", "", "")), ["syntax::fence"]);
}

#[test]
fn every_route_is_checked() {
    let yaml =
        "hooks: [{id: r, event: resolve_extends, condition: 'inputs.env == \"prod\"', action: {set_extends: prod}}]";
    let world = directive(
        project(),
        "prod",
        "",
        "<inputs><input name=\"x\"/></inputs><context><before>no/such</before></context>",
        "{input:x}",
    );
    let world = directive(world, "leaf", "", "<inputs><input name=\"env\"/></inputs>", "{input:env}");
    assert_eq!(codes(&hooks(world, yaml)), ["context::unknown-item"]);
}

#[test]
fn unknown_continuation_is_reported() {
    let inside = "<metadata><continuation_directive>absent</continuation_directive></metadata>";
    assert_eq!(leaf(inside, "x"), ["item::unknown"]);
}

#[test]
fn unreferenced_files_are_checked_too() {
    let world = project()
        .project(".ai/knowledge/k.md", "---\nnmae: x\n---\nbody")
        .project(".ai/tools/t.yaml", "description: x\nkind: nothing\n")
        .project(".ai/knowledge/agent/threads/x/y.md", "---\nwhatever: x\n---\nbody")
        .project(".ai/config/own/other.yaml", "a: [");
    assert_eq!(codes(&world), ["syntax::yaml", "context::unreached", "item::unknown-key", "item::invalid-value"]);
}

#[test]
fn selection_reports_its_files_and_chains() {
    let world = directive(project(), "a/bad", "", "<limits turn=\"1\"/>", "");
    let world = directive(world, "b/leaf", "extends=\"a/bad\"", "<limits trns=\"1\"/>", "");
    let count = |paths: &[&str]| {
        let selection = Selection::Paths(paths.iter().map(|p| (*p).to_owned()).collect());
        let report = check(&world, &selection);
        (report.diagnostics.len(), report.directives)
    };
    assert_eq!(count(&[".ai/directives/a"]), (1, 1));
    assert_eq!(count(&["./.ai/directives/b/leaf.md"]), (2, 1));
    assert_eq!(count(&["."]), (2, 3));
    assert_eq!(count(&[".ai/directives/absent"]), (0, 0));
}

/// A selected directive is reported as faulty if it has no plan, wherever the error is. Errors and warnings of other
/// directives are left out.
#[test]
fn selection_reports_errors_of_files_that_its_directives_read() {
    let clean = || directive(directive(project(), "b", "extends=\"c\"", "", ""), "c", "", "", "");
    let named = |id: &str, context: &str| {
        let item = format!("---\nname: 9two\n---\nThe item {id}.\n");
        directive(clean(), "a", "", context, "").project(&format!(".ai/knowledge/{id}.md"), item)
    };
    let granted = "<permissions><execute><tool>t</tool></execute></permissions>";
    let worlds = [
        ("knowledge", named("k", "<context><before>k</before></context>")),
        (
            "tool",
            directive(clean(), "a", "", granted, "").project(".ai/tools/t.yaml", "description: x\nkind: nothing\n"),
        ),
        (
            "hook file",
            directive(clean(), "a", "", "", "").project(".ai/config/agent/hooks.yaml", "hooks:\n  - id: 1\n"),
        ),
        (
            "settings",
            directive(clean(), "a", "", "", "").project(".ai/config/agent/resilience.yaml", "limits: { turns: x }\n"),
        ),
        (
            "cycle among ancestors",
            directive(
                directive(directive(clean(), "a", "extends=\"p\"", "", ""), "p", "extends=\"q\"", "", ""),
                "q",
                "extends=\"p\"",
                "",
                "",
            ),
        ),
        (
            "missing parent of the parent",
            directive(directive(clean(), "a", "extends=\"p\"", "", ""), "p", "extends=\"q\"", "", ""),
        ),
    ];
    for (what, world) in worlds {
        let errors = |paths: &[&str]| {
            let selection = Selection::Paths(paths.iter().map(|p| (*p).to_owned()).collect());
            let report = check(&world, &selection);
            let session = CheckSession::new().check(&world, &selection);
            assert_eq!(report.diagnostics.codes(), session.diagnostics.codes(), "{what}");
            report.errors()
        };
        let plan = crate::compile::compile(&world, &CompileRequest::new(ItemId::parse("a").unwrap()));
        assert!(plan.value.is_none(), "{what}");
        assert!(errors(&[".ai/directives/a.md"]) > 0, "{what}");
        let is_global = ["hook file", "settings"].contains(&what);
        assert_eq!(errors(&[".ai/directives/b.md"]) > 0, is_global, "{what}");
        assert_eq!(errors(&[".ai/directives/absent"]), 0, "{what}");
    }
}

#[test]
fn diagnostics_are_sorted_by_place() {
    let world = directive(project(), "z", "", "<limits trns=\"1\"/>", "{input:a}");
    let world = directive(world, "a", "", "<limits turns=\"x\"/>", "");
    assert_eq!(codes(&world), ["limit::invalid", "limit::unknown", "interface::unknown-input"]);
}

#[test]
fn dropped_tools_are_reported_for_every_written_grant() {
    let all = "<permissions><execute><tool>*</tool></execute></permissions>";
    let directive = |name: &str, extends: &str, permissions: &str| {
        format!(
            "```xml\n<directive name=\"{name}\"{extends}><metadata><description>x</description>{permissions}</metadata></directive>\n```\n\nDo it.\n"
        )
    };
    let provider = "id: p\nwire: scripted\ndefault_tier: general\ntiers: {general: m}\nmodels:\n  - {id: m, context_window: 100000, max_output: 8192, prices: {input: '0.1', output: '0.5'}}\n";
    let tool = "description: Long enough not to fit.\nkind: command\ncommand: [echo, hi]\nparameters: {type: object}\n";
    let world = MapWorld::new()
        .with(Space::System, ".ai/config/agent/providers/p.yaml", provider)
        .with(Space::System, ".ai/directives/wide.md", directive("wide", "", all))
        .with(Space::Project, ".ai/config/agent/resilience.yaml", "tool_preload: {max_tokens: 1}\n")
        .with(Space::Project, ".ai/tools/big.yaml", tool)
        .with(Space::Project, ".ai/directives/a.md", directive("a", " extends=\"wide\"", ""))
        .with(Space::Project, ".ai/directives/b.md", directive("b", "", all))
        .with(Space::Project, ".ai/directives/c.md", directive("c", " extends=\"wide\"", ""));
    let report = check(&world, &Selection::All);
    let files: Vec<String> = report
        .diagnostics
        .iter()
        .filter(|d| d.code() == "palette::dropped")
        .map(|d| report.sources.get(d.labels()[0].span.source).unwrap().path.to_string())
        .collect();
    assert_eq!(files, [".ai/directives/b.md"]);
}

#[test]
fn checking_again_after_edits_of_prompts_and_skills_equals_a_new_check() {
    let skill = |name: &str, description: &str| format!("---\nname: {name}\ndescription: {description}\n---\nBody.");
    let states = [
        MapWorld::new().project(".claude/skills/a/SKILL.md", skill("b", "x")).project(".ai/prompts/t.md", "!`ls`"),
        MapWorld::new()
            .project(".claude/skills/a/SKILL.md", skill("b", "x"))
            .project(".agents/skills/a/SKILL.md", skill("a", &"y ".repeat(9000)))
            .project(".claude/commands/t.md", "@a/b.md"),
        MapWorld::new().project(".agents/skills/a/SKILL.md", "none").project(".claude/commands/t.md", "fine"),
        MapWorld::new().with(Space::User, ".ai/prompts/t.md", "user").project(".ai/prompts/t.md", "fine"),
    ];
    let expected: [&[&str]; 4] = [
        &["skill::name", "template::shell"],
        &["item::shadows", "skill::description", "skill::dropped", "template::import"],
        &["skill::no-description"],
        &["item::shadows"],
    ];
    let mut session = CheckSession::new();
    for (world, codes) in states.iter().zip(expected) {
        let (again, anew) = (session.check(world, &Selection::All), check(world, &Selection::All));
        let texts = |report: &CheckReport| report.diagnostics.iter().map(Diagnostic::message).collect::<Vec<_>>();
        assert_eq!(texts(&again), texts(&anew));
        let found: Vec<&str> = anew.diagnostics.codes().into_iter().collect();
        assert_eq!(found, codes);
        assert_eq!(again.files, anew.files);
    }
}
