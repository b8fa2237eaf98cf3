//! Tests of how the cache reads files into items: one test per rule.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use rye_grammar::ItemId;
use serde_json::json;

use super::*;
use crate::diagnostics::Diagnostics;
use crate::hook::{HookAction, HookPoint};
use crate::plan::NudgePolicy;
use crate::world::MapWorld;

fn id(text: &str) -> ItemId {
    ItemId::parse(text).unwrap()
}

fn directive_file(xml: &str, body: &str) -> String {
    format!("# Title\n\nProse.\n\n```xml\n{xml}\n```\n\n{body}\n")
}

/// Reads the directive `a/x` with that XML and body; also returns its diagnostics.
fn read(xml: &str, body: &str) -> (Option<Arc<Directive>>, Diagnostics) {
    let world = MapWorld::new().project(".ai/directives/a/x.md", directive_file(xml, body));
    let items = Items::new(&world);
    let directive = items.directive(&id("a/x"));
    (directive, items.diagnostics())
}

fn codes(xml: &str) -> Vec<String> {
    read(xml, "body").1.iter().map(|d| d.code().to_owned()).collect()
}

fn hook_codes(yaml: &str) -> Vec<String> {
    let world = MapWorld::new().project(".ai/config/agent/hooks.yaml", yaml);
    let items = Items::new(&world);
    items.hook_files();
    items.diagnostics().iter().map(|d| d.code().to_owned()).collect()
}

fn hook(yaml: &str) -> Arc<HookDecl> {
    let world = MapWorld::new().project(".ai/config/agent/hooks.yaml", yaml);
    let items = Items::new(&world);
    let hooks = items.hook_files().project.clone();
    assert!(items.diagnostics().is_empty(), "{:?}", items.diagnostics());
    hooks.into_iter().next().unwrap()
}

#[test]
fn directive_with_all_sections_parses() {
    let (directive, found) = read(
        r#"<directive name="x" version="1.0.0" extends="rye/agent/core/base">
  <metadata>
    <description>Does it.</description> <category>a</category>
    <model tier="general" fallback="fast"/>
    <limits max_turns="10" spend="0.10"/>
    <context> <system>k/s</system> <before>k/b</before> <suppress>k/z</suppress> </context>
    <permissions>
      <execute> <tool net="a.b, *.c" write="out/">rye/file-system/*</tool> </execute>
      <search>*</search>
      <acknowledge risk="elevated">because</acknowledge>
    </permissions>
    <hooks><hook id="h" event="tool_call"><when>call.name == "x"</when><block reason="no"/></hook></hooks>
    <continuation_directive>a/next</continuation_directive>
    <nudge>never</nudge>
  </metadata>
  <inputs><input name="n" type="integer" enum="1,2" default="2">count</input></inputs>
  <outputs><output name="url" required="true">where</output></outputs>
</directive>"#,
        "Do {input:n}.",
    );
    assert!(found.is_empty(), "{found:?}");
    let directive = directive.unwrap();
    assert_eq!(directive.extends.as_ref().unwrap().node, id("rye/agent/core/base"));
    assert_eq!(directive.description, "Does it.");
    assert_eq!(directive.limits.iter().map(|l| l.name.node.as_str()).collect::<Vec<_>>(), ["turns", "spend"]);
    let grants = &directive.permissions.as_ref().unwrap().grants;
    assert_eq!(grants[0].pattern.0, "rye.execute.tool.rye.file-system.*");
    assert_eq!(grants[0].net, ["a.b", "*.c"]);
    assert_eq!(grants[1].pattern.0, "rye.fetch.*");
    assert_eq!(directive.hooks[0].event, HookPoint::ToolCall);
    assert_eq!(directive.nudge.as_ref().unwrap().node, NudgePolicy::Never);
    assert_eq!(directive.inputs["n"].default, Some(json!(2)));
    assert_eq!(directive.inputs["n"].choices, [json!(1), json!(2)]);
    assert!(directive.outputs["url"].required);
    assert_eq!(directive.body.node, "Do {input:n}.");
}

#[test]
fn description_falls_back_to_prose() {
    let (directive, _) = read(r#"<directive name="x"/>"#, "");
    assert_eq!(directive.unwrap().description, "Prose.");
}

#[test]
fn process_text_precedes_the_body() {
    let (directive, found) =
        read(r#"<directive name="x"><process><step id="1">Go {input:n}</step></process></directive>"#, "Then stop.");
    assert!(found.is_empty(), "{found:?}");
    let directive = directive.unwrap();
    assert_eq!(directive.body.node, "<step id=\"1\">Go {input:n}</step>\n\nThen stop.");
    assert_eq!(directive.body_template.parts.len(), 5);
}

#[test]
fn unknown_xml_vocabulary_is_reported() {
    assert_eq!(codes(r#"<directive name="x" extend="y"/>"#), ["item::unknown-key"]);
    assert_eq!(codes(r#"<directive name="x"><metadata><modle/></metadata></directive>"#), ["item::unknown-key"]);
    assert_eq!(
        codes(r#"<directive name="x"><metadata><model>fast</model></metadata></directive>"#),
        ["item::unknown-key"]
    );
    let (_, found) = read(r#"<directive name="x" extend="y"/>"#, "");
    assert_eq!(found.iter().next().unwrap().help().unwrap(), "did you mean `extends`?");
}

#[test]
fn unknown_risk_tier_is_reported_once_with_suggestion() {
    let xml =
        r#"<directive name="x"><permissions><acknowledge risk="elevatd">why</acknowledge></permissions></directive>"#;
    let (_, found) = read(xml, "");
    let messages: Vec<String> = found.iter().map(crate::diagnostics::Diagnostic::message).collect();
    assert_eq!(
        found.iter().map(crate::diagnostics::Diagnostic::code).collect::<Vec<_>>(),
        ["item::invalid-value"],
        "{messages:?}"
    );
    let words = format!("{messages:?}{:?}", found.iter().next().unwrap().help());
    assert!(words.contains("did you mean `elevated`?"), "{words}");
}

#[test]
fn name_and_category_must_match_the_path() {
    assert_eq!(codes(r#"<directive name="y"/>"#), ["item::name-mismatch"]);
    assert_eq!(
        codes(r#"<directive name="x"><metadata><category>b</category></metadata></directive>"#),
        ["item::name-mismatch"]
    );
    assert_eq!(codes("<directive/>"), ["item::missing"]);
}

#[test]
fn ids_escaping_their_space_are_rejected() {
    assert_eq!(codes(r#"<directive name="x" extends="../y"/>"#), ["item::escapes-space"]);
    assert_eq!(codes(r#"<directive name="x" extends="a b"/>"#), ["syntax::reference"]);
    let context = r#"<directive name="x"><context><before>/etc/passwd</before></context></directive>"#;
    assert_eq!(codes(context), ["item::escapes-space"]);
}

#[test]
fn input_values_must_match_their_types() {
    let field = |attributes: &str| {
        codes(&format!(r#"<directive name="x"><inputs><input name="n" {attributes}/></inputs></directive>"#))
    };
    assert_eq!(field(r#"type="integer" default="1.5""#), ["interface::type"]);
    assert_eq!(field(r#"type="boolean" default="yes""#), ["interface::type"]);
    assert_eq!(field(r#"enum="a,b" default="c""#), ["interface::type"]);
    assert_eq!(field(r#"type="strng""#), ["item::invalid-value"]);
    assert_eq!(field(r#"required="maybe""#), ["item::invalid-value"]);
    assert!(field(r#"type="object" default='{"a":1}'"#).is_empty());
    assert!(field(r#"type="integer" default="18446744073709551615""#).is_empty());
}

#[test]
fn repeated_elements_are_reported() {
    let twice = r#"<directive name="x"><metadata><model/></metadata><inputs><input name="a"/><input name="a"/></inputs></directive>"#;
    assert_eq!(codes(twice), ["item::repeated"]);
    let both = r#"<directive name="x"><metadata><limits turns="1"/></metadata><limits turns="2"/></directive>"#;
    assert_eq!(codes(both), ["item::repeated"]);
}

#[test]
fn empty_permissions_grant_nothing() {
    let (directive, _) = read(r#"<directive name="x"><permissions/></directive>"#, "");
    assert!(directive.unwrap().permissions.as_ref().is_some_and(|p| p.grants.is_empty()));
    assert_eq!(codes(r#"<directive name="x"><permissions>all</permissions></directive>"#), ["item::invalid-value"]);
}

#[test]
fn hook_actions_parse_in_every_spelling() {
    let block = "hooks: [{id: h, event: tool_call, action: ACTION}]";
    let action = |text: &str| hook(&block.replace("ACTION", text)).action.clone().unwrap().node;
    let expected = HookAction::Block { reason: "no".into() };
    for text in ["{block: no}", "{block: {reason: no}}", "{action: block, reason: no}"] {
        assert_eq!(action(text), expected, "{text}");
    }
    let bare = hook("hooks: [{id: h, event: limit, action: abort}]");
    assert_eq!(bare.action.as_ref().unwrap().node, HookAction::Terminate { status: None, error: None, scope: None });
    let fetch = "hooks: [{id: h, event: thread_started, action: {primary: load, item_type: knowledge, item_id: a/b}}]";
    assert!(
        matches!(&hook(fetch).action.as_ref().unwrap().node, HookAction::Fetch { item_id, .. } if item_id == "a/b")
    );
}

#[test]
fn action_placeholders_are_recorded() {
    let read = hook(
        "hooks: [{id: h, event: after_step, action: {primary: execute, item_type: tool, item_id: a/b, \
         params: {text: \"spent ${cost.spend} of {input:max}\"}}}]",
    );
    assert_eq!(read.placeholders.facts[0].path.to_string(), "cost.spend");
    assert_eq!(read.placeholders.facts[0].field, "params.text");
    assert_eq!(read.placeholders.inputs[0].name, "max");
    assert!(read.has_static_id());
}

#[test]
fn invalid_hooks_are_reported() {
    let one = |fields: &str| hook_codes(&format!("hooks: [{{id: h, {fields}}}]"));
    assert_eq!(one("event: thread_begun, action: handoff"), ["hook::unknown-event"]);
    assert_eq!(one("event: tool_call, action: handoff"), ["hook::wrong-action"]);
    assert_eq!(one("event: tool_call, action: {blok: no}"), ["hook::wrong-action"]);
    assert_eq!(one("event: tool_call, action: {block: no}, when: x"), ["item::unknown-key"]);
    assert_eq!(one("event: tool_call"), ["item::missing"]);
    assert_eq!(one("event: tool_call, action: {block: no}, condition: 'a =='"), ["syntax::condition"]);
    assert_eq!(one("event: tool_call, action: {block: no}, condition: 'directive > 3'"), ["syntax::condition"]);
    assert_eq!(one("event: tool_call, action: {block: no}, layer: high"), ["item::invalid-value"]);
    assert_eq!(one("event: resolve_extends, action: {set_extends: ../x}"), ["item::escapes-space"]);
    assert_eq!(hook_codes("hook: []"), ["item::unknown-key"]);
    assert_eq!(hook_codes("[]"), ["item::invalid-value"]);
    assert!(hook_codes("hooks: [{id: stop_at_limit, enabled: false}]").is_empty());
}

#[test]
fn images_replies_and_scopes_of_actions_are_checked() {
    let one = |event: &str, action: &str| hook_codes(&format!("hooks: [{{id: h, event: {event}, action: {action}}}]"));
    for images in ["[]", "'${images}'", "['${images.0}', docs/a.png]", "{path: a.png}", "[{data: aGk=}]"] {
        assert!(one("input", &format!("{{transform: {{text: a, images: {images}}}}}")).is_empty(), "{images}");
    }
    for images in ["[../a.png]", "/etc/a.png", "['~/a.png']", "[a/../../b.png]", "[7]", "true", "['']", "[{url: x}]"] {
        let found = one("input", &format!("{{transform: {{text: a, images: {images}}}}}"));
        assert_eq!(found, ["item::invalid-value"], "{images}");
    }
    assert_eq!(one("input", "{transform: {images: []}}"), ["item::missing"]);
    assert!(one("input", "{handled: {reply: Done.}}").is_empty() && one("input", "{handled: true}").is_empty());
    assert_eq!(one("input", "{handled: {answer: Done.}}"), ["item::unknown-key"]);
    assert_eq!(one("input", "{transform: {text: a, reply: b}}"), ["item::unknown-key"]);
    assert_eq!(one("tool_call", "{handled: {reply: Done.}}"), ["hook::wrong-action"]);
    for scope in ["prompt", "session", "'${category}'"] {
        assert!(one("agent_end", &format!("{{terminate: {{scope: {scope}}}}}")).is_empty(), "{scope}");
    }
    assert_eq!(one("agent_end", "{terminate: {scope: project}}"), ["item::invalid-value"]);
    assert_eq!(one("agent_end", "{block: {reason: no, scope: session}}"), ["item::unknown-key"]);
    assert_eq!(one("input", "{terminate: {scope: session}}"), ["hook::wrong-action"]);
}

#[test]
fn duplicate_hook_ids_are_reported() {
    let same = "hooks:\n- {id: h, event: limit, action: abort}\n- {id: h, event: error, action: abort}\n";
    assert_eq!(hook_codes(same), ["hook::duplicate-id"]);
}

#[test]
fn items_are_parsed_on_demand_and_once() {
    let mut world = MapWorld::new();
    for i in 0..1000 {
        let text = directive_file(&format!(r#"<directive name="d{i}"/>"#), "x");
        world.insert(crate::world::Space::Project, &format!(".ai/directives/d{i}.md"), text);
    }
    let items = Items::new(&world);
    items.directive(&id("d7"));
    items.directive(&id("d7"));
    assert_eq!(items.list(ItemKind::Directive).len(), 1000);
    assert!(items.exists(ItemKind::Directive, &id("d8")));
    assert_eq!(items.parsed_file_count(), 1);
}

#[test]
fn highest_space_wins() {
    let world = MapWorld::new().with(Space::System, ".ai/knowledge/k.md", "system").with(
        Space::User,
        ".ai/knowledge/k.md",
        "user",
    );
    assert_eq!(Items::new(&world).knowledge(&id("k")).unwrap().body.node, "user");
}

#[test]
fn unreadable_items_are_reported_once() {
    let world = MapWorld::new()
        .project(".ai/knowledge/bytes.md", [0xff, 0xfe])
        .project(".ai/knowledge/twice.md", "")
        .project(".ai/knowledge/twice.yaml", "")
        .project(".ai/knowledge/signed.md", "<!-- rye:signed:2026-01-01T00:00:00Z:00:00:00 -->\ntext");
    let items = Items::new(&world);
    for name in ["bytes", "twice", "signed", "bytes"] {
        assert!(items.knowledge(&id(name)).is_none(), "{name}");
    }
    let codes: Vec<_> = items.diagnostics().iter().map(crate::diagnostics::Diagnostic::code).collect();
    assert_eq!(codes, ["item::unreadable", "item::ambiguous", "item::signature"]);
}

#[test]
fn knowledge_metadata_sets_tag_and_rejects_unknown_keys() {
    let world = MapWorld::new()
        .project(".ai/knowledge/a/k.md", "---\nname: Env\ntags: [x, y]\n---\n\nBody.\n")
        .project(".ai/knowledge/a/bad.md", "---\nnam: Env\nname: 'a b'\n---\nBody.\n");
    let items = Items::new(&world);
    let good = items.knowledge(&id("a/k")).unwrap();
    assert_eq!((good.tag(), good.body.node.as_str()), ("Env", "Body."));
    assert_eq!(items.knowledge(&id("a/bad")).unwrap().tag(), "bad");
    let codes: Vec<_> = items.diagnostics().iter().map(crate::diagnostics::Diagnostic::code).collect();
    assert_eq!(codes, ["item::unknown-key", "item::invalid-value"]);
}

#[test]
fn settings_merge_over_spaces() {
    let world = MapWorld::new()
        .with(Space::System, ".ai/config/agent/resilience.yaml", "limits: {turns: 15, spend: 0.5}")
        .project(".ai/config/agent/resilience.yaml", "limits: {turns: 30}");
    let items = Items::new(&world);
    let config = items.config_by_name("agent/resilience").unwrap();
    assert_eq!(config.to_value(), json!({"limits": {"turns": 30, "spend": 0.5}}));
    let turns = config.get("limits").and_then(|l| l.get("turns")).unwrap().span;
    assert_eq!(items.sources().get(turns.source).unwrap().path.as_ref(), ".ai/config/agent/resilience.yaml");
}
