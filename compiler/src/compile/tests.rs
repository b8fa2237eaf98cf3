//! Tests of whole compilations over in-memory worlds.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod prompt;
mod reports;
mod settings;
pub mod world;

use serde_json::json;

use super::*;
use crate::hook::PlanVerdict;
use crate::plan::graph::Node;
use crate::plan::{Capabilities, PlanLimits};
use crate::plan::{Grant, LayerKind, PalettePrimary};
use crate::semantics::limits::LimitValue;
use crate::world::{MapWorld, Space};
use world::{deploy_world, minimal_world, with_directives};

pub fn item_id(text: &str) -> ItemId {
    ItemId::parse(text).unwrap()
}

pub fn object(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// Returns the compilation of a directive without errors.
pub fn expect_compilation(world: &dyn World, request: &CompileRequest) -> Compilation {
    let checked = compile(world, request);
    let messages: Vec<String> = checked.diagnostics.iter().map(|d| format!("{}: {d}", d.code())).collect();
    checked.value.unwrap_or_else(|| panic!("{messages:#?}"))
}

pub fn compile_without_inputs(world: &dyn World, directive: &str) -> Compilation {
    expect_compilation(world, &CompileRequest::new(item_id(directive)).with_inputs(Map::new()))
}

fn messages(world: &dyn World, request: &CompileRequest) -> Vec<String> {
    let checked = compile(world, request);
    assert_eq!(checked.value.map(|c| c.plan_id), None);
    checked.diagnostics.iter().map(|d| format!("{}: {d}", d.code())).collect()
}

fn layer_ids(layers: &[crate::plan::Layer]) -> Vec<&str> {
    layers.iter().map(|l| l.id.as_str()).collect()
}

#[test]
fn deploy_example_routes_composes_and_suppresses() {
    let world = deploy_world();
    let inputs = object(&json!({"service": "billing"}));
    let compilation = expect_compilation(&world, &CompileRequest::new(item_id("deploy_staging")).with_inputs(inputs));
    let plan = &compilation.plan;
    let chain: Vec<&str> = plan.chain.iter().map(|l| l.id.as_str()).collect();
    assert_eq!(chain, ["rye/agent/core/base", "project/deploy/base", "deploy_staging"]);
    assert_eq!(plan.route.as_deref(), Some("route_deploy"));
    assert_eq!(layer_ids(&plan.prompt.system), ["rye/agent/core/Identity", "rye/agent/core/Behavior"]);
    assert_eq!(
        layer_ids(&plan.prompt.first_message),
        [
            "rye/agent/core/Environment",
            "rye/agent/core/DirectiveInstruction",
            "rye/agent/core/protocol/execute",
            "rye/agent/core/protocol/fetch",
            "project/deploy/environment-rules",
            "deploy_staging",
            "project/deploy/completion-checklist",
        ]
    );
    let tools: Vec<&str> = plan.palette.iter().map(|t| &*t.name).collect();
    assert_eq!(
        tools,
        [
            "rye_execute",
            "rye_fetch",
            "rye_file_system_read",
            "rye_file_system_write",
            "project_deploy_rollout",
            "rye_directive_return"
        ]
    );
    let canary = plan.hooks.iter().position(|h| h.id == "canary_rules").unwrap();
    assert_eq!(compilation.hooks[canary].because, "`inputs.target` is `staging`");
    assert!(matches!(plan.hooks[canary].verdict, PlanVerdict::Never { .. }));
    assert_eq!(plan.interface.values, object(&json!({"service": "billing", "target": "staging"})));
    assert_eq!((plan.limits.turns, plan.limits.spend, plan.limits.depth), (8, 200_000_000, 5));
    let notes: Vec<(&str, &str)> = compilation.notes.iter().map(|n| (n.kind(), n.id())).collect();
    assert_eq!(
        notes,
        [
            ("suppressed", "rye/agent/core/protocol/sign"),
            ("deduplicated", "project/deploy/environment-rules"),
            ("shadowed", "rye/agent/core/Identity"),
        ]
    );
    assert!(plan.prompt.system[0].segments.iter().any(|s| format!("{s:?}").contains("release engineer")));
}

#[test]
fn compile_without_inputs_leaves_dependent_parts_pending() {
    let plan = expect_compilation(&deploy_world(), &CompileRequest::new(item_id("deploy_staging"))).plan;
    let canary = plan.prompt.first_message.iter().find(|l| l.id == "project/deploy/canary-rules").unwrap();
    assert!(canary.depends);
    assert_eq!(plan.interface.values, Map::new());
}

#[test]
fn compile_is_deterministic() {
    let request = CompileRequest::new(item_id("deploy_staging"));
    let first = expect_compilation(&deploy_world(), &request);
    let again = expect_compilation(&deploy_world(), &request);
    assert_eq!(first.plan.to_bytes().unwrap(), again.plan.to_bytes().unwrap());
    assert_eq!((&first.plan_id, first.plan_id.len()), (&again.plan_id, 64));
    let stored: Plan = serde_json::from_slice(&first.plan.to_bytes().unwrap()).unwrap();
    assert_eq!(stored, first.plan);
    assert_eq!(stored.id().unwrap(), first.plan_id);
    // The plan depends only on files that the directive reaches.
    let unrelated = deploy_world().project(".ai/knowledge/other.md", "x").project(".ai/directives/other.md", "y");
    assert_eq!(expect_compilation(&unrelated, &request).plan_id, first.plan_id);
    let changed = deploy_world().project(".ai/knowledge/project/deploy/completion-checklist.md", "Done?");
    assert_ne!(expect_compilation(&changed, &request).plan_id, first.plan_id);
    // A shadowed file in another space changes the manifest, and therefore the id, but no text of the plan.
    let miss = deploy_world().with(Space::User, ".ai/knowledge/project/deploy/completion-checklist.md", "hidden");
    assert_ne!(expect_compilation(&miss, &request).plan_id, first.plan_id);
}

#[test]
fn compile_parses_only_reachable_files() {
    let mut world = minimal_world();
    for i in 0..50 {
        world.insert(Space::Project, &format!(".ai/directives/d{i}.md"), "not even a directive");
        world.insert(Space::Project, &format!(".ai/knowledge/k{i}.md"), "text");
        world.insert(Space::Project, &format!(".ai/tools/t{i}.yaml"), "[");
    }
    let world = with_directives(world, &[("leaf", "", "", "Do it.")]);
    let compilation = compile_without_inputs(&world, "leaf");
    assert!(compilation.parsed_files <= 4, "{}", compilation.parsed_files);
}

#[test]
fn manifest_lists_reads_and_misses() {
    let world = with_directives(minimal_world(), &[("leaf", "", "", "Do it.")]);
    let manifest = compile_without_inputs(&world, "leaf").plan.manifest;
    let read = |kind, name: &str| manifest.iter().find(|r| r.kind == kind && r.id == name).unwrap();
    assert_eq!(read(ItemKind::Directive, "leaf").space, Some(Space::Project));
    assert_eq!(read(ItemKind::Config, "agent/hooks").sha256, None);
    assert_eq!(read(ItemKind::Config, "agent/resilience").space, Some(Space::System));
}

#[test]
fn manifest_has_no_file_that_only_a_suggestion_reads() {
    let grants = "<permissions><execute><tool>nothing.*</tool></execute></permissions>";
    let world = with_directives(minimal_world(), &[("leaf", "", grants, "Do it.")]);
    let groups = "groups:\n  all: { description: All., patterns: [\"rye.execute.tool.some.*\"] }\n";
    let world = world.with(Space::System, ".ai/config/agent/capabilities/some.yaml", groups);
    let compilation = compile_without_inputs(&world, "leaf");
    assert!(compilation.plan.manifest.iter().all(|read| !read.id.starts_with("agent/capabilities/")));
}

#[test]
fn graph_has_nodes_only_for_live_hooks() {
    let hooks = "hooks:\n\
        - { id: stop, event: limit, condition: 'directive == \"other\"', action: terminate }\n\
        - { id: guard, event: tool_call, condition: 'call.name == \"x\"', action: { block: { reason: no } } }\n";
    let world = with_directives(minimal_world(), &[("leaf", "", "", "Do it."), ("other", "", "", "Do it.")]);
    let world = world.project(".ai/config/agent/hooks.yaml", hooks);
    let leaf = compile_without_inputs(&world, "leaf").plan;
    assert!(!leaf.graph.has(Node::Hooks(crate::hook::HookPoint::Limit)));
    assert!(leaf.graph.has(Node::Hooks(crate::hook::HookPoint::ToolCall)));
    assert!(compile_without_inputs(&world, "other").plan.graph.has(Node::Hooks(crate::hook::HookPoint::Limit)));
}

#[test]
fn compile_validates_inputs_against_the_interface() {
    let inside = "<inputs><input name=\"n\" type=\"integer\" required=\"true\">n</input>\
        <input name=\"mode\" type=\"string\" enum=\"a,b\" default=\"a\">m</input></inputs>";
    let world = with_directives(minimal_world(), &[("leaf", "", inside, "{input:n} {input:mode}")]);
    let with = |inputs: Value| CompileRequest::new(item_id("leaf")).with_inputs(object(&inputs));
    let plan = expect_compilation(&world, &with(json!({"n": 3}))).plan;
    assert_eq!(plan.interface.values, object(&json!({"n": 3, "mode": "a"})));
    assert_eq!(messages(&world, &with(json!({}))), ["interface::missing-input: the input `n` of `leaf` has no value"]);
    assert_eq!(
        messages(&world, &with(json!({"n": "3", "mode": "c", "mod": 1}))),
        [
            "interface::unknown-input: `leaf` has no input `mod`",
            "interface::type: the input `n` is string `3`, not an integer",
            "interface::type: the input `mode` is string `c`, not one of `a`, `b`",
        ]
    );
}

#[test]
fn child_plan_is_bounded_by_its_spawn_parent() {
    let world =
        with_directives(minimal_world(), &[("leaf", "", "<metadata><limits turns=\"30\"/></metadata>", "Do it.")]);
    let grant = |pattern: &str| Grant { pattern: pattern.to_owned(), net: Vec::new(), write: Vec::new() };
    let parent = |depth| SpawnParent {
        limits: PlanLimits {
            turns: 20,
            tokens: 1000,
            spend: 100_000_000,
            spawns: 10,
            depth,
            duration_seconds: 60,
            output: 1,
        },
        capabilities: Capabilities {
            declared: true,
            from: Some(item_id("top")),
            grants: vec![grant("rye.execute.tool.rye.look")],
            acknowledged: std::collections::BTreeMap::new(),
        },
    };
    let request = |depth| {
        let plain = CompileRequest::new(item_id("leaf")).with_inputs(Map::new());
        CompileRequest { parent: Some(parent(depth)), ..plain }
    };
    let compilation = expect_compilation(&world, &request(2));
    let plan = &compilation.plan;
    assert_eq!((plan.limits.turns, plan.limits.depth, plan.limits.output), (20, 1, 8192));
    assert!(!plan.capabilities.declared);
    let tools: Vec<(&str, PalettePrimary)> = plan.palette.iter().map(|t| (&*t.name, t.primary)).collect();
    assert_eq!(tools, [("rye_execute", PalettePrimary::Execute), ("rye_look", PalettePrimary::Execute)]);
    assert_eq!(
        compilation.origins.get("capability.rye.execute.tool.rye.look").unwrap().cause.to_string(),
        "inherited at spawn"
    );
    assert_eq!(compilation.origins.get("limit.turns").unwrap().cause.to_string(), "bounded by the parent thread");
    assert_eq!(messages(&world, &request(0)).len(), 1);
}

#[test]
fn ceiling_of_the_settings_bounds_files_and_no_override() {
    let inside = "<metadata><limits turns=\"30\" spend=\"9\"/></metadata>";
    let world = with_directives(minimal_world(), &[("leaf", "", inside, "Do it.")])
        .with(Space::User, ".ai/config/agent/agent.yaml", "limits: { max: { spend: 2, turns: 40 } }\n")
        .project(".ai/config/agent/agent.yaml", "limits: { max: { spend: 100, tokens: 5000 } }\n");
    let mut request = CompileRequest::new(item_id("leaf")).with_inputs(Map::new());
    let compilation = expect_compilation(&world, &request);
    let limits = &compilation.plan.limits;
    assert_eq!((limits.spend, limits.turns, limits.tokens), (2_000_000_000, 30, 5000));
    let origin = compilation.origins.get("limit.spend").unwrap();
    let place = origin.place.as_ref().unwrap();
    assert!(place.file.contains("agent.yaml") && place.file.starts_with("user:"), "{place:?}");
    request.limits = vec![("spend".into(), LimitValue::Text("3".into()))];
    assert_eq!(expect_compilation(&world, &request).plan.limits.spend, 3_000_000_000);
}

#[test]
fn overrides_take_precedence_over_the_directive() {
    let inside = "<metadata><model tier=\"sonnet\"/><limits turns=\"3\"/></metadata>";
    let world = with_directives(minimal_world(), &[("leaf", "", inside, "Do it.")]);
    let mut request = CompileRequest::new(item_id("leaf")).with_inputs(Map::new());
    assert_eq!(expect_compilation(&world, &request).plan.model.id, "large");
    request.model.model = Some("fast".into());
    request.limits =
        vec![("turns".into(), LimitValue::Text("7".into())), ("spend".into(), LimitValue::Text("0.01".into()))];
    let compilation = expect_compilation(&world, &request);
    assert_eq!(compilation.plan.model.id, "small");
    assert_eq!((compilation.plan.limits.turns, compilation.plan.limits.spend), (7, 10_000_000));
    assert_eq!(compilation.origins.get("limit.turns").unwrap().cause.to_string(), "set by the caller");
    request.limits =
        vec![("trns".into(), LimitValue::Text("7".into())), ("spend".into(), LimitValue::Text("no".into()))];
    request.model.model = Some("huge".into());
    let messages = messages(&world, &request);
    assert!(messages.iter().any(|m| m == "limit::unknown: unknown limit `trns`"), "{messages:?}");
    assert!(messages.iter().any(|m| m.starts_with("limit::invalid: the limit `spend` cannot be `no`")), "{messages:?}");
    assert!(messages.iter().any(|m| m.starts_with("model::unknown")), "{messages:?}");
}

#[test]
fn compiled_graphs_satisfy_all_invariants() {
    for request in [CompileRequest::new(item_id("deploy_staging")), CompileRequest::new(item_id("project/deploy/base"))]
    {
        let plan = expect_compilation(&deploy_world(), &request).plan;
        assert_eq!(crate::plan::verify::verify_graph(&plan.graph), Vec::new());
    }
}

#[test]
fn compile_of_an_invalid_file_returns_no_plan() {
    let world = minimal_world()
        .project(".ai/directives/a.md", "no fence")
        .project(".ai/directives/b.md", [0xff, 0xfe, 0x00])
        .project(".ai/directives/c.md", world::directive_file("c", " extends=\"c\"", "", ""))
        .project(".ai/directives/d.md", world::directive_file("d", "", "<context><before>gone</before></context>", ""));
    for name in ["a", "b", "c", "d", "nowhere"] {
        assert!(!messages(&world, &CompileRequest::new(item_id(name))).is_empty(), "{name}");
    }
    let empty = MapWorld::new();
    assert!(!messages(&empty, &CompileRequest::new(item_id("a"))).is_empty());
}

#[test]
fn body_compiles_to_one_layer() {
    let plan = compile_without_inputs(&with_directives(minimal_world(), &[("leaf", "", "", "Do it.")]), "leaf").plan;
    let bodies = plan.prompt.first_message.iter().filter(|l| l.kind == LayerKind::Body);
    assert_eq!(bodies.count(), 1);
}

#[test]
fn compile_rejects_a_spend_limit_below_one_turn() {
    let inside = "<metadata><limits spend=\"0.001\"/></metadata>";
    let world = with_directives(minimal_world(), &[("leaf", "", inside, "Do it.")]);
    let checked = compile(&world, &CompileRequest::new(item_id("leaf")));
    let diagnostic = checked.diagnostics.iter().next().unwrap();
    assert_eq!((diagnostic.code(), diagnostic.labels().len()), ("limit::cannot-afford-one-turn", 1));
    assert_eq!(diagnostic.message(), "the spend limit of 0.001 is below the worst-case cost of one turn, 0.011676");
}

#[test]
fn check_and_plan_report_the_same_diagnostics() {
    let hooks = "hooks:\n- { id: a, event: after_step, condition: 'nope == 1', action: terminate }\n";
    let world = with_directives(
        minimal_world()
            .project(".ai/tools/a/b_c.yaml", world::tool("One."))
            .project(".ai/tools/a/b/c.yaml", world::tool("Two.")),
        &[(
            "leaf",
            "",
            "<metadata><model tier=\"huge\"/><permissions><execute><tool>a.*</tool></execute></permissions></metadata>",
            "Do {input:gone}.",
        )],
    );
    let world = world.project(".ai/config/agent/hooks.yaml", hooks);
    let planned = compile(&world, &CompileRequest::new(item_id("leaf"))).diagnostics;
    let checked = crate::validate::check(&world, &crate::validate::Selection::All).diagnostics;
    let wanted = [
        "capability::unacknowledged",
        "hook::unknown-fact",
        "interface::unknown-input",
        "model::unknown",
        "palette::collision",
    ];
    assert_eq!(planned.codes().into_iter().collect::<Vec<_>>(), wanted);
    assert_eq!(checked.codes().into_iter().collect::<Vec<_>>(), wanted);
    let codes_and_messages = |all: &Diagnostics| all.iter().map(|d| (d.code(), d.message())).collect::<Vec<_>>();
    assert_eq!(codes_and_messages(&planned), codes_and_messages(&checked));
}

#[test]
fn unknown_fact_of_a_hook_file_refuses_the_plan_although_the_condition_is_false() {
    let guard = |event: &str, condition: &str, action: &str| {
        let world = with_directives(minimal_world(), &[("leaf", "", "", "Do it.")]);
        let hooks =
            format!("hooks:\n- {{ id: guard, event: {event}, condition: \"{condition}\", action: {action} }}\n");
        let world = world.project(".ai/config/agent/hooks.yaml", hooks);
        let checked = compile(&world, &CompileRequest::new(item_id("leaf")));
        (checked.value.is_some(), checked.diagnostics.codes().contains("hook::unknown-fact"))
    };
    let stop = "{ terminate: { status: error } }";
    assert_eq!(guard("before_agent_start", "directive == 'leaf' and inputs.mdoe == 'strict'", stop), (false, true));
    assert_eq!(guard("tool_call", "inputs.mode == 'strict'", "{ block: \"No.\" }"), (false, true));
    assert_eq!(guard("after_step", "directive == 'other'", stop), (true, false));
    assert!(!guard("thread_started", "inputs.other == 'x'", "{ message: \"Hello.\" }").1);
}
