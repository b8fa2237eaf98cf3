//! Tests of composition, rule by rule (`language.md` 7 and 8).
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use serde_json::{Map, Value, json};

use super::*;
use crate::plan::OriginKind;
use crate::resolve::Inputs;
use crate::world::{MapWorld, Space};

fn id(text: &str) -> ItemId {
    ItemId::parse(text).unwrap()
}

/// Adds a directive file; `attributes` and `inside` are XML.
fn directive(world: MapWorld<'static>, at: &str, attributes: &str, inside: &str) -> MapWorld<'static> {
    let name = id(at).name().to_owned();
    let text = format!("```xml\n<directive name=\"{name}\" {attributes}>{inside}</directive>\n```\n\nBody of {at}.\n");
    world.project(&format!(".ai/directives/{at}.md"), text)
}

fn knowledge(mut world: MapWorld<'static>, ids: &[&str]) -> MapWorld<'static> {
    for id in ids {
        world.insert(Space::System, &format!(".ai/knowledge/{id}.md"), format!("About {id}."));
    }
    world
}

fn hooks(world: MapWorld<'static>, space: Space, yaml: &str) -> MapWorld<'static> {
    let file = if space == Space::System { "hook_conditions" } else { "hooks" };
    world.with(space, &format!(".ai/config/agent/{file}.yaml"), yaml)
}

fn compose_with_inputs(world: &MapWorld<'_>, leaf: &str, inputs: Value) -> (Option<Composed>, Diagnostics) {
    let Value::Object(inputs) = inputs else { return (None, Diagnostics::new()) };
    let items = Items::new(world);
    let launch = Launch { inputs: Inputs::Given(&inputs), model: &|_| None };
    let checked = compose(&items, &id(leaf), &launch);
    let mut found = items.diagnostics();
    found.append(checked.diagnostics);
    (checked.value, found)
}

fn expect_composed(world: &MapWorld<'_>, leaf: &str) -> Composed {
    let (composed, found) = compose_with_inputs(world, leaf, json!({}));
    assert!(!found.has_errors(), "{found:?}");
    composed.unwrap()
}

fn ids(items: &[ContextItem]) -> Vec<&str> {
    items.iter().map(|i| i.id.as_str()).collect()
}

fn verdict<'c>(composed: &'c Composed, hook: &str) -> &'c PlanVerdict {
    &composed.hooks.iter().find(|h| h.decl.id.node == hook).unwrap().verdict
}

const FETCH: &str = "action: {primary: fetch, item_type: knowledge, item_id: ";

#[test]
fn context_is_root_first_without_repeats() {
    let world = knowledge(MapWorld::new(), &["s1", "s2", "b1", "b2", "a1"]);
    let world = directive(world, "root", "", "<context><system>s1</system><before>b1</before></context>");
    let world =
        directive(world, "mid", "extends=\"root\"", "<context><before>b2</before><before>b1</before></context>");
    let world = directive(world, "leaf", "extends=\"mid\"", "<context><system>s2</system><after>a1</after></context>");
    let composed = expect_composed(&world, "leaf");
    assert_eq!(ids(&composed.system), ["s1", "s2"]);
    assert_eq!(ids(&composed.before), ["b1", "b2"]);
    assert_eq!(ids(&composed.after), ["a1"]);
    assert!(!composed.system[0].wrap && composed.before[0].wrap);
    assert_eq!(composed.duplicates.len(), 1);
    assert_eq!(composed.chain.iter().map(|d| d.id().as_str()).collect::<Vec<_>>(), ["root", "mid", "leaf"]);
}

#[test]
fn item_in_two_positions_keeps_the_first() {
    let world = knowledge(MapWorld::new(), &["k"]);
    let world = directive(world, "root", "", "<context><before>k</before></context>");
    let world = directive(world, "leaf", "extends=\"root\"", "<context><system>k</system></context>");
    let (composed, found) = compose_with_inputs(&world, "leaf", json!({}));
    let composed = composed.unwrap();
    assert_eq!((ids(&composed.system), ids(&composed.before)), (vec!["k"], vec![]));
    assert_eq!(found.codes().into_iter().collect::<Vec<_>>(), ["context::duplicate"]);
}

#[test]
fn suppression_removes_chain_items_and_hooks() {
    let world = knowledge(MapWorld::new(), &["k", "h", "own"]);
    let world = directive(world, "root", "", "<context><before>k</before><suppress>own</suppress></context>");
    let inside =
        "<context><after>own</after><suppress>k</suppress><suppress>h</suppress><suppress>by_id</suppress></context>";
    let world = directive(world, "leaf", "extends=\"root\"", inside);
    let yaml = format!(
        "hooks:\n- {{id: by_item, event: thread_started, {FETCH}h}}}}\n- {{id: by_id, event: thread_started, {FETCH}k}}}}\n\
         - {{id: guard, event: tool_call, action: {{block: no}}}}\n"
    );
    let world = hooks(world, Space::Project, &yaml);
    let composed = expect_composed(&world, "leaf");
    assert!(composed.before.is_empty() && composed.after.is_empty());
    for hook in ["by_item", "by_id"] {
        assert!(matches!(verdict(&composed, hook), PlanVerdict::Removed { .. }), "{hook}");
    }
    assert_eq!(*verdict(&composed, "guard"), PlanVerdict::Fires);
    assert!(composed.suppressions.iter().all(|s| !s.removed.is_empty()));
}

#[test]
fn directive_cannot_suppress_guarding_hooks() {
    let world = directive(MapWorld::new(), "leaf", "", "<context><suppress>guard</suppress></context>");
    let world = hooks(world, Space::User, "hooks: [{id: guard, event: tool_call, action: {block: no}}]");
    let composed = expect_composed(&world, "leaf");
    assert_eq!(*verdict(&composed, "guard"), PlanVerdict::Fires);
    assert!(composed.suppressions[0].removed.is_empty());
}

#[test]
fn unknown_knowledge_is_an_error_with_a_suggestion() {
    let world = knowledge(MapWorld::new(), &["deploy/rules"]);
    let world = directive(world, "leaf", "", "<context><before>deploy/ruls</before></context>");
    let (_, found) = compose_with_inputs(&world, "leaf", json!({}));
    let error = found.iter().next().unwrap();
    assert_eq!(error.code(), "context::unknown-item");
    assert_eq!(error.help().unwrap(), "did you mean `deploy/rules`?");
}

#[test]
fn inherited_values_come_from_the_nearest_link() {
    let world = directive(
        MapWorld::new(),
        "root",
        "",
        "<metadata><model tier=\"high\"/><limits turns=\"9\" spend=\"1\"/><permissions><fetch>*</fetch></permissions>\
         <continuation_directive>next</continuation_directive><nudge>never</nudge></metadata>\
         <inputs><input name=\"a\"/><input name=\"b\" type=\"integer\"/></inputs>",
    );
    let world = directive(
        world,
        "leaf",
        "extends=\"root\"",
        "<limits turns=\"3\"/><permissions/><inputs><input name=\"b\"/><input name=\"c\"/></inputs>",
    );
    let world = world.with(Space::System, ".ai/config/agent/resilience.yaml", "limits: {turns: 15}");
    let composed = expect_composed(&world, "leaf");
    assert_eq!(composed.model.as_ref().unwrap().value.tier.as_ref().unwrap().node, "high");
    let limits: Vec<_> = composed.limits.directive.iter().map(|l| (l.name.as_str(), &l.source.by)).collect();
    assert_eq!(limits, [("turns", &OriginKind::Directive(id("leaf"))), ("spend", &OriginKind::Directive(id("root")))]);
    assert_eq!(composed.limits.defaults[0].source.by, OriginKind::Config(id("agent/resilience")));
    let permissions = composed.permissions.as_ref().unwrap();
    assert!(permissions.value.grants.is_empty());
    assert_eq!(permissions.origin.by, OriginKind::Directive(id("leaf")));
    assert_eq!(composed.inputs.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(composed.inputs["b"].origin.by, OriginKind::Directive(id("leaf")));
    assert_eq!(composed.continuation.as_ref().unwrap().value, id("next"));
    assert_eq!(composed.nudge.value, NudgePolicy::Never);
}

#[test]
fn first_matching_hook_overrides_the_declared_parent() {
    let world = directive(MapWorld::new(), "base", "", "");
    let world = directive(world, "web", "", "");
    let world = directive(world, "deploy", "extends=\"web\"", "");
    let yaml = "hooks:\n\
        - {id: no, event: resolve_extends, condition: 'directive == \"x\"', action: {set_extends: web}}\n\
        - {id: yes, event: resolve_extends, condition: {path: directive, op: contains, value: deploy}, action: {set_extends: base}}\n\
        - {id: late, event: resolve_extends, condition: has_extends, action: {set_extends: web}}\n";
    let world = hooks(world, Space::Project, yaml);
    let composed = expect_composed(&world, "deploy");
    assert_eq!(composed.chain[0].id().as_str(), "base");
    assert_eq!(composed.route.as_ref().unwrap().hook.id.node, "yes");
    assert_eq!(*verdict(&composed, "no"), PlanVerdict::Never { because: "`directive` is `deploy`".into() });
    assert_eq!(*verdict(&composed, "yes"), PlanVerdict::Fires);
    assert_eq!(
        *verdict(&composed, "late"),
        PlanVerdict::Removed { because: "the hook `yes` is evaluated first and sets the extends parent".into() }
    );
}

#[test]
fn route_to_the_directive_itself_is_ignored() {
    let world = directive(MapWorld::new(), "contexts/deploy", "", "");
    let world = directive(world, "deploy", "", "");
    let yaml = "hooks: [{id: r, event: resolve_extends, condition: 'directive contains \"deploy\"', action: {set_extends: contexts/deploy}}]";
    let world = hooks(world, Space::Project, yaml);
    assert_eq!(expect_composed(&world, "contexts/deploy").chain.len(), 1);
    assert_eq!(expect_composed(&world, "deploy").chain.len(), 2);
}

#[test]
fn route_that_closes_a_loop_is_an_extends_cycle() {
    let world = directive(MapWorld::new(), "a", "", "");
    let world = directive(world, "b", "extends=\"a\"", "");
    let yaml = "hooks: [{id: r, event: resolve_extends, condition: 'directive == \"a\"', action: {set_extends: b}}]";
    let (value, found) = compose_with_inputs(&hooks(world, Space::Project, yaml), "a", json!({}));
    assert!(value.is_none());
    assert_eq!(found.codes().into_iter().collect::<Vec<_>>(), ["extends::cycle"]);
}

#[test]
fn route_on_an_unknown_input_reports_missing_input() {
    let inputs = "<inputs><input name=\"env\" required=\"true\"/></inputs>";
    let world = directive(MapWorld::new(), "prod", "", "");
    let world = directive(world, "x", "", inputs);
    let yaml =
        "hooks: [{id: r, event: resolve_extends, condition: 'inputs.env == \"prod\"', action: {set_extends: prod}}]";
    let world = hooks(world, Space::Project, yaml);
    let (value, found) = compose_with_inputs(&world, "x", json!({}));
    assert!(value.is_none());
    assert_eq!(found.codes().into_iter().collect::<Vec<_>>(), ["interface::missing-input"]);
    assert_eq!(compose_with_inputs(&world, "x", json!({"env": "prod"})).0.unwrap().chain.len(), 2);
    assert_eq!(compose_with_inputs(&world, "x", json!({"env": "dev"})).0.unwrap().chain.len(), 1);

    let items = Items::new(&world);
    let launch = Launch { inputs: Inputs::Unknown, model: &|_| None };
    let mut found = Diagnostics::new();
    let (all, routes) = compose_all(&items, &id("x"), &launch, &mut found);
    assert_eq!(routes, 2);
    assert_eq!(all.iter().map(|c| c.chain.len()).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn hook_verdicts_reflect_known_facts() {
    let inputs = "<inputs><input name=\"target\" default=\"staging\"/><input name=\"who\" required=\"true\"/></inputs>";
    let world = knowledge(MapWorld::new(), &["k1", "k2", "k3", "k4"]);
    let world = directive(world, "x", "", inputs);
    let yaml = format!(
        "hooks:\n\
         - {{id: always, event: thread_started, {FETCH}k1}}}}\n\
         - {{id: never, event: thread_started, condition: 'inputs.target == \"canary\"', {FETCH}k2}}}}\n\
         - {{id: asks, event: thread_started, condition: 'inputs.who == \"me\"', {FETCH}k3}}}}\n\
         - {{id: runs, event: thread_started, condition: 'depth > 2', {FETCH}k4}}}}\n\
         - {{id: off, event: limit, enabled: false, action: abort}}\n"
    );
    let composed = expect_composed(&hooks(world, Space::Project, &yaml), "x");
    assert_eq!(*verdict(&composed, "always"), PlanVerdict::Fires);
    assert_eq!(*verdict(&composed, "never"), PlanVerdict::Never { because: "`inputs.target` is `staging`".into() });
    assert_eq!(*verdict(&composed, "asks"), PlanVerdict::Depends { on: vec!["inputs.who".into()] });
    assert_eq!(*verdict(&composed, "runs"), PlanVerdict::Depends { on: vec!["depth".into()] });
    assert_eq!(*verdict(&composed, "off"), PlanVerdict::Removed { because: "`enabled: false`".into() });
    assert!(composed.hooks.iter().all(|h| h.knowledge.is_some() == h.is_live()));
}

#[test]
fn hooks_are_ordered_by_layer_then_leaf_before_ancestors() {
    let hook = |id: &str| format!("<hooks><hook id=\"{id}\" event=\"after_step\"><continue/></hook></hooks>");
    let world = directive(MapWorld::new(), "root", "", &hook("root"));
    let world = directive(world, "leaf", "extends=\"root\"", &hook("leaf"));
    let world = hooks(world, Space::User, "hooks: [{id: user, event: after_step, action: continue}]");
    let world = hooks(
        world,
        Space::Project,
        "hooks: [{id: project, event: after_step, action: continue}, {id: b, event: after_step, action: abort}]",
    );
    let world = hooks(
        world,
        Space::System,
        "builtin_hooks: [{id: b, event: after_step, action: continue}]\ninfra_hooks: [{id: i, event: after_step, layer: 0, action: {primary: execute, item_type: tool, item_id: t}}]",
    );
    let composed = expect_composed(&world, "leaf");
    let order: Vec<_> = composed.hooks.iter().filter(|h| h.is_live()).map(|h| h.decl.id.node.as_str()).collect();
    assert_eq!(order, ["user", "leaf", "root", "b", "project", "i"]);
    let replaced = composed.hooks.iter().find(|h| h.decl.id.node == "b" && h.source == HookSource::Builtin).unwrap();
    assert!(matches!(replaced.verdict, PlanVerdict::Removed { .. }));
    assert!(composed.hooks.iter().filter_map(ComposedHook::to_planned).count() == 7);
}

#[test]
fn item_of_hook_and_chain_appears_once() {
    let world = knowledge(MapWorld::new(), &["first", "last", "maybe", "s"]);
    let context = "<context><system>s</system><before>first</before><after>maybe</after><after>last</after></context>";
    let world = directive(world, "x", "", context);
    let yaml = format!(
        "hooks:\n\
         - {{id: early, event: thread_started, position: before, {FETCH}first}}}}\n\
         - {{id: again, event: thread_started, position: after, {FETCH}first}}}}\n\
         - {{id: late, event: thread_started, position: after, {FETCH}last}}}}\n\
         - {{id: if, event: thread_started, position: before, condition: 'depth > 1', {FETCH}maybe}}}}\n\
         - {{id: sys, event: thread_continued, position: before, {FETCH}s}}}}\n"
    );
    let composed = expect_composed(&hooks(world, Space::Project, &yaml), "x");
    assert!(composed.before.is_empty());
    assert_eq!(ids(&composed.after), ["maybe", "last"]);
    assert_eq!(*verdict(&composed, "early"), PlanVerdict::Fires);
    for hook in ["again", "late", "if", "sys"] {
        assert!(matches!(verdict(&composed, hook), PlanVerdict::Removed { .. }), "{hook}");
    }
    assert_eq!(composed.duplicates.len(), 1);
}

#[test]
fn missing_directive_is_reported_as_unknown() {
    let (value, found) = compose_with_inputs(&directive(MapWorld::new(), "hello", "", ""), "helo", json!({}));
    assert!(value.is_none());
    let error = found.iter().next().unwrap();
    assert_eq!((error.code(), error.help().unwrap().as_str()), ("item::unknown", "did you mean `hello`?"));
}

#[test]
fn compose_parses_only_the_chain_of_one_directive() {
    let mut world = MapWorld::new();
    for i in 0..1000 {
        world = directive(world, &format!("d{i}"), "extends=\"base\"", "");
    }
    let world = directive(world, "base", "", "");
    let items = Items::new(&world);
    let launch = Launch { inputs: Inputs::Given(&Map::new()), model: &|_| None };
    assert!(compose(&items, &id("d7"), &launch).value.is_some());
    assert_eq!(items.parsed_file_count(), 2);
}

#[test]
fn library_protocols_without_a_grant_are_left_out() {
    let base = "<context><before>rye/agent/core/protocol/execute</before><before>rye/agent/core/protocol/sign</before>\
                </context><permissions><execute>*</execute><sign>*</sign></permissions>";
    let text = format!("```xml\n<directive name=\"base\">{base}</directive>\n```\n\nBase.\n");
    let world = knowledge(MapWorld::default(), &["rye/agent/core/protocol/execute", "rye/agent/core/protocol/sign"])
        .with(Space::System, ".ai/directives/rye/agent/core/base.md", text);
    let extends = "extends=\"rye/agent/core/base\"";
    let reads = "<permissions><execute><tool>a</tool></execute></permissions>";
    let own = format!("<context><before>rye/agent/core/protocol/sign</before></context>{reads}");
    let world = directive(world, "narrow", extends, reads);
    let world = directive(world, "own", extends, &own);
    let world = directive(world, "whole", extends, "");
    let before = |leaf: &str| {
        let (composed, _) = compose_with_inputs(&world, leaf, json!({}));
        let composed = composed.unwrap();
        let names: Vec<String> = composed.before.iter().map(|item| item.id.name().to_owned()).collect();
        (names, composed.ungranted_protocols.len())
    };
    assert_eq!(before("narrow"), (vec!["execute".to_owned()], 1));
    assert_eq!(before("own"), (vec!["execute".to_owned(), "sign".to_owned()], 0));
    assert_eq!(before("whole"), (vec!["execute".to_owned(), "sign".to_owned()], 0));
}
