//! Tests of what is printed about a plan: text, JSON, graphs and origins.

use schemars::schema_for;
use serde_json::json;

use super::world::{deploy_world, minimal_world, stdlib_world, tool, with_directives};
use super::{compile_without_inputs, expect_compilation, item_id, object};
use crate::compile::{Compilation, CompileRequest, compile};
use crate::drawing::Drawing;
use crate::plan::Tokenizer;
use crate::report::render::json::{PlanReport, render};
use crate::report::render::{dot, mermaid, svg, text};
use crate::report::summary::PlanSummary;
use crate::report::why::{explain, explain_with_missing_grants};
use crate::world::World;

/// Renders a plan as text, without a comparison with a lock file.
fn print(world: &dyn World, compilation: &Compilation) -> String {
    text::render(compilation, &PlanSummary::new(world, None, compilation).unwrap())
}

#[test]
fn plan_text_contains_the_main_facts() {
    let world = deploy_world();
    let printed = print(&world, &expect_compilation(&world, &CompileRequest::new(item_id("deploy_staging"))));
    for wanted in [
        "Chain  ·  `project/deploy/base`, set by the hook `route_deploy` .ai/config/agent/hooks.yaml:2",
        "project/deploy/environment-rules in <environment-rules>",
        "hook canary_rules, if it fires",
        "${inputs.service}  no value was given for the input `service`",
        "suppressed by `deploy_staging`; declared by `rye/agent/core/base`",
        "the knowledge of the project space shadows the same id in system",
        "also declared by `deploy_staging`; the occurrence declared by `project/deploy/base` is used",
        "depends on `inputs.target`",
        "`directive` is `deploy_staging`",
        "granted by `rye.execute.tool.project.deploy.*`",
        "acknowledged elevated: The rollout tool",
        "$0.20  declared by `deploy_staging`",
        ".ai/directives/deploy_staging.md:10",
        " in total",
    ] {
        assert!(printed.contains(wanted), "{wanted}\n{printed}");
    }
    assert!(printed.lines().all(|line| line.trim_end() == line), "{printed}");
}

#[test]
fn small_plan_renders_in_full() {
    let world = with_directives(
        minimal_world().project(".ai/tools/p/big.yaml", tool(&"Long. ".repeat(100))),
        &[("leaf", "", "<metadata><permissions><execute><tool>*</tool></execute></permissions></metadata>", "Do it.")],
    );
    let compilation = compile_without_inputs(&world, "leaf");
    // The id changes with the plan format; its stability is tested elsewhere.
    let printed = print(&world, &compilation).replace(&compilation.plan_id[..12], "ID");
    insta::assert_snapshot!(printed);
}

#[test]
fn free_turns_are_bound_below_by_tokens() {
    let provider = "wire: anthropic\nbase_url: https://free.test\ntiers: { general: gratis }\nmodels:\n\
                    - { id: gratis, context_window: 9000, max_output: 100, prices: none }\n";
    let world = with_directives(
        minimal_world().project(".ai/config/agent/providers/free.yaml", provider),
        &[("leaf", "", "<metadata><model provider=\"free\" id=\"gratis\"/><permissions/></metadata>", "Do it.")],
    );
    let printed = print(&world, &compile_without_inputs(&world, "leaf"));
    assert!(printed.contains("1 to 15 (limit `turns`)"), "{printed}");
    assert!(printed.contains("1 in the worst case, set by the limit `tokens`; at most 15"), "{printed}");
}

#[test]
fn plan_json_has_the_documented_shape() {
    let report =
        render(&expect_compilation(&deploy_world(), &CompileRequest::new(item_id("deploy_staging"))), Vec::new());
    let value = serde_json::to_value(&report).unwrap();
    assert_eq!(value["chain"], json!(["rye/agent/core/base", "project/deploy/base", "deploy_staging"]));
    let layer = &value["first_message"]["before"][0];
    assert_eq!(layer["id"], "rye/agent/core/Environment");
    assert_eq!(layer["source"]["file"], "system:.ai/config/agent/hook_conditions.yaml");
    for key in ["tokens", "bytes", "via", "source"] {
        assert!(!layer[key].is_null() && !value["palette"][0][key].is_null(), "{key}");
    }
    let text = value["first_message"]["text"].as_str().unwrap();
    let placeholder = &value["first_message"]["pending"][0];
    let offset = usize::try_from(placeholder["offset"].as_u64().unwrap()).unwrap();
    assert!(text[offset..].starts_with("${project_path}"));
    assert_eq!(value["limits"]["spend"]["value"], json!(0.2));
    assert_eq!(value["limits"]["spend"]["source"]["line"], 10);
    assert_eq!(value["graph"]["edges"][0], json!({"from": "start", "outcome": "ready", "to": "hooks.thread_started"}));
    assert_eq!(value["notes"][0]["note"], "suppressed");
    for key in ["cost_per_turn", "reasons"] {
        assert!(!layer[key].is_null() && !value["palette"][0][key].is_null(), "{key}");
    }
    assert!(value["palette"][0]["reasons"][0]["text"].as_str().unwrap().contains("declared by `deploy_staging`"));
    let absent: Vec<_> = value["absent"].as_array().unwrap().iter().map(|a| a["why"].as_str().unwrap()).collect();
    for why in ["suppressed", "shadowed", "deduplicated"] {
        assert!(absent.contains(&why), "{why}: {absent:?}");
    }
    assert_eq!(value["tokens"]["estimator"], "characters / 4");
    assert_eq!(value["cost"]["first"]["turns"], 1);
    assert!(value["manifest"].as_array().unwrap().iter().any(|read| read["sha256"].is_null()), "misses too");
    let again: PlanReport = serde_json::from_value(value).unwrap();
    assert_eq!(again, report, "a report can be read again");
}

/// With the feature `tokenizers`, the plan names the exact tokenizer; without the feature, the labeled estimate. A plan
/// never names both.
#[test]
fn plan_names_its_tokenizer() {
    let tools = "<metadata><permissions><execute><tool>*</tool></execute></permissions></metadata>";
    let world = |file: &str| {
        let world = with_directives(minimal_world(), &[("leaf", "", tools, "Look at everything, please.")]);
        world.project(".ai/config/agent/providers/main.yaml", file)
    };
    let planned = |file: &str| {
        let compilation = expect_compilation(&world(file), &CompileRequest::new(item_id("leaf")));
        let report = render(&compilation, Vec::new());
        (compilation, report)
    };
    let (plain, before) = planned("wire: anthropic\n");
    let (named, after) = planned("models: [{ id: large, tokenizer: o200k_base }]\n");
    assert_eq!((before.tokens.estimator.as_str(), before.tokens.exact), ("characters / 4", None));
    assert_eq!(after.tokens.estimator, Tokenizer::O200k.available().as_str());
    assert_ne!(plain.plan_id, named.plan_id, "who counts is part of the plan");
    let by = named.plan.model.counted_by;
    let body = after.first_message.text.as_str();
    assert_eq!(after.tokens.first_message, by.count(body));
    for (tool, planned) in after.palette.iter().zip(&named.plan.palette) {
        assert_eq!(tool.tokens, by.count(&named.plan.model.wire_tool(planned).text()), "{}", tool.name);
    }
    let text = print(&world("models: [{ id: large, tokenizer: o200k_base }]\n"), &named);
    if cfg!(feature = "tokenizers") {
        assert_eq!(after.tokens.exact, None);
        assert!(text.contains("tokens counted by o200k_base, which is exact for large"), "{text}");
        assert_ne!(after.tokens.palette, before.tokens.palette);
    } else {
        assert_eq!(after.tokens.exact.as_deref(), Some("o200k_base"));
        assert!(
            text.contains("characters / 4; o200k_base would be exact for large, but this build of rye lacks it"),
            "{text}"
        );
        assert_eq!(after.tokens.palette, before.tokens.palette);
    }
    let wrong = compile(&world("models: [{ id: large, tokenizer: o200k }]\n"), &CompileRequest::new(item_id("leaf")));
    let codes: Vec<_> = wrong.diagnostics.iter().map(crate::diagnostics::Diagnostic::code).collect();
    assert!(codes.contains(&"config::invalid"), "{codes:?}");
}

#[test]
fn plan_json_schema_is_stable() {
    let schema = serde_json::to_string_pretty(&schema_for!(PlanReport)).unwrap();
    insta::assert_snapshot!(schema);
}

#[test]
fn graph_renderings_contain_every_edge() {
    let plan = expect_compilation(&deploy_world(), &CompileRequest::new(item_id("deploy_staging"))).plan;
    let drawing = Drawing::of_plan(&plan.graph);
    let drawn = dot::render(&drawing);
    assert!(drawn.starts_with("digraph plan {\n") && drawn.ends_with("}\n"));
    assert!(drawn.contains("\"gate\" -> \"guard\" [label=\"denied, asks\"];"), "{drawn}");
    let flow = mermaid::render(&drawing);
    assert!(flow.contains("  n_gate -->|allowed| n_tools\n"), "{flow}");
    let pairs = drawing.edges.len();
    assert_eq!(drawn.matches(" -> ").count(), pairs);
    assert_eq!(flow.matches("-->").count(), pairs);
    let page = svg::render(&drawing).unwrap();
    assert_eq!(page.matches("marker-end").count(), pairs);
}

/// Each tool, with the reason for which it is not granted before the line is added.
#[test]
fn line_that_why_adds_grants_the_tool_without_another_report() {
    let own = [
        (
            ".ai/tools/own/build.yaml",
            "description: d\nkind: command\ncommand: [make]\nneeds: { write: [out/, log/], net: [a.com] }\n",
        ),
        (".ai/tools/rye/web/fetch.yaml", "description: d\nkind: builtin\nbuiltin: web_fetch\n"),
        (".ai/tools/rye/bash/bash.yaml", "description: d\nkind: builtin\nbuiltin: bash\n"),
        (".ai/tools/rye/git/log.yaml", "description: d\nkind: builtin\nbuiltin: git_log\n"),
        (".ai/tools/rye/file-system/write.yaml", "description: d\nkind: builtin\nbuiltin: write\n"),
        (".ai/tools/own/post.yaml", "description: d\nkind: http\nurl: https://api.example.com/x\n"),
    ];
    for tool in ["own/build", "own/post", "rye/web/fetch", "rye/bash/bash", "rye/git/log", "rye/file-system/write"] {
        // Writing files is no elevated risk.
        let acknowledged =
            if tool == "rye/file-system/write" { "" } else { "<acknowledge risk=\"elevated\">y</acknowledge>" };
        let project = |grants: &str| {
            let inside = format!(
                "<metadata><permissions><execute><tool>rye.file-system.read</tool></execute>{grants}{acknowledged}\
                 </permissions></metadata>"
            );
            let world = own.iter().fold(stdlib_world(), |world, (path, text)| world.project(path, text));
            with_directives(world, &[("d", "", &inside, "Go.")])
        };
        let why = |world: &dyn World| {
            let compilation = compile_without_inputs(world, "d");
            let found = explain_with_missing_grants(world, &compilation, tool).unwrap();
            found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let before = why(&project(""));
        let line = before.split("add `").nth(1).and_then(|rest| rest.split("` to the `<permissions>` of `d`").next());
        let world = project(line.unwrap());
        let after = why(&world);
        assert!(!after.contains("not granted") && !after.contains("refused"), "{tool}: {after}");
        let found = crate::validate::check(&world, &crate::validate::Selection::All).diagnostics;
        let reports: Vec<_> = found
            .iter()
            .filter(|one| one.code().starts_with("capability::"))
            .map(crate::diagnostics::Diagnostic::code)
            .collect();
        // A program gets the whole network, which is advice about its `net`.
        assert!(reports.iter().all(|code| *code == "capability::whole-network"), "{tool}: {reports:?}");
    }
}

#[test]
fn why_explains_every_kind_of_subject() {
    let inputs = object(&json!({"service": "billing"}));
    let compilation =
        expect_compilation(&deploy_world(), &CompileRequest::new(item_id("deploy_staging")).with_inputs(inputs));
    let why = |thing: &str| {
        let all = explain_with_missing_grants(&deploy_world(), &compilation, thing).unwrap();
        all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let limit = why("limit.spend");
    assert!(
        limit.starts_with("limit.spend: $0.20, declared by `deploy_staging`\n  .ai/directives/deploy_staging.md:10:23")
    );
    for step in [
        "because the built-in default sets $0.50, which `deploy_staging` overrides",
        "because `agent/resilience` of the system space sets $0.50, which `deploy_staging` overrides\n    system:.ai/config/agent/resilience.yaml:",
        "because `deploy_staging` sets $0.20, which applies: it has the highest precedence\n    .ai/directives/deploy_staging.md:10:23",
    ] {
        assert!(limit.contains(step), "{step}\n{limit}");
    }
    assert_eq!(why("spend"), why("limit.spend"));
    assert!(why("extends").contains("set by the hook `route_deploy`"));
    assert!(why("canary_rules").contains("never fires: `inputs.target` is `staging`"));
    assert!(why("project/deploy/rollout").contains("granted by `rye.execute.tool.project.deploy.*`"));
    assert!(why("rye.execute.tool.project.deploy.rollout").contains("allowed by `rye.execute.tool.project.deploy.*`"));
    let missing = why("rye/bash/bash");
    for part in [
        "capability.rye.execute.tool.rye.bash.bash: not granted: no grant of `deploy_staging` matches",
        "because `rye.execute.tool.project.deploy.*` has `project.deploy.*` where `rye.bash.bash` is needed\n    .ai/directives/deploy_staging.md:",
        "help: add `<execute><tool>rye.bash.bash</tool></execute>` to the `<permissions>` of `deploy_staging`\n    .ai/directives/deploy_staging.md:",
    ] {
        assert!(missing.contains(part), "{part}\n{missing}");
    }
    assert!(!missing.contains("its risk"), "acknowledged: {missing}");
    assert!(why("rye.sign.tool.x").contains("not granted"));
    assert!(why("rye/agent/core/protocol/sign").contains("suppressed by `deploy_staging`"));
    assert!(why("model").contains("scripted/"));
    let inherited = why("rye/agent/core/Behavior");
    for step in [
        "layer.rye/agent/core/Behavior: in the system prompt, 123 tokens, ",
        "declared by `rye/agent/core/base`\n  system:.ai/directives/rye/agent/core/base.md:15:",
        "because `project/deploy/base` extends `rye/agent/core/base`\n    .ai/directives/project/deploy/base.md:",
        "because `deploy_staging` extends `project/deploy/base`, set by the hook `route_deploy`\n    .ai/config/agent/hooks.yaml:2:",
        "because it fires: `directive` is `deploy_staging`",
    ] {
        assert!(inherited.contains(step), "{step}\n{inherited}");
    }
    let missing = explain(&deploy_world(), &compilation, "spnd").unwrap_err();
    assert_eq!(missing.suggestion.as_deref(), Some("spend"));
}

#[test]
fn names_that_a_plan_prints_have_a_place() {
    let settings = "default_provider: house\n";
    let house = "wire: openai-chat\nbase_url: http://localhost:1/v1\ndefault_tier: general\ntiers: { general: big, \
                 fast: small }\nmodels:\n  - { id: big, context_window: 100000, max_output: 8000, prices: none }\n  - { \
                 id: small, context_window: 100000, max_output: 8000, prices: none }\n";
    let chosen = "<metadata>\n<model tier=\"general\"\nfallback=\"fast\"/>\n<nudge>always</nudge>\n</metadata>";
    let world = with_directives(
        stdlib_world(),
        &[
            ("plain", "", "<metadata><description>d</description></metadata>", "Do it."),
            ("chosen", "", chosen, "Do it."),
        ],
    )
    .project(".ai/config/agent/models.yaml", settings)
    .project(".ai/config/agent/providers/house.yaml", house);
    let directive = ".ai/directives/chosen.md";
    let provider = ".ai/config/agent/providers/house.yaml";
    for (id, name, reason, file, line) in [
        ("plain", "model", "house/big, the default", ".ai/config/agent/models.yaml", 1),
        ("chosen", "model", "house/big, declared by `chosen`", directive, 6),
        ("chosen", "fallback", "house/small, declared by `chosen`", directive, 7),
        ("plain", "nudge", "auto, the built-in default", ".ai/directives/plain.md", 4),
        ("chosen", "nudge", "always, declared by `chosen`", directive, 8),
        ("chosen", "house/small", "the fallback of this plan", provider, 7),
        ("chosen", "big", "the model of this plan", provider, 6),
        ("chosen", "house", "the provider of `house/big`", provider, 1),
        ("plain", "description", "\"d\", of `plain`", ".ai/directives/plain.md", 4),
    ] {
        let compilation = compile_without_inputs(&world, id);
        let found = explain(&world, &compilation, name).unwrap_or_else(|_| panic!("{id} {name}"));
        let one =
            found.iter().find(|one| one.reason.starts_with(reason)).unwrap_or_else(|| panic!("{name}: {found:?}"));
        let place = one.place.as_ref().unwrap_or_else(|| panic!("{one:?}"));
        assert_eq!((place.file.as_str(), place.line), (file, line), "{one:?}");
    }
    assert!(explain(&world, &compile_without_inputs(&world, "plain"), "fallback").is_err());
}
