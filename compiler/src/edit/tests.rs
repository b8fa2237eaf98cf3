//! Tests of layout and fixes, by example and over generated files.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use proptest::prelude::*;
use rye_grammar::ItemId;

use super::*;
use crate::compile::{CompileRequest, compile};
use crate::validate::{Selection, check};
use crate::world::MapWorld;

fn formatted(text: &str) -> String {
    format(text).unwrap().text
}

#[test]
fn format_lays_out_metadata_only() {
    let text = "# Title\n\n  odd   prose \n\n```xml\n<directive   name='a'\n  version=\"1\"><metadata>\n <!-- why -->\n<description>two\n   lines</description>\n\n\n<context> <before>x</before>  <after>y</after> </context> <!-- beside -->\n</metadata>\n</directive>\n```\n\n\nBody  {input:a}\n\n\n";
    let expected = "# Title\n\n  odd   prose \n\n```xml\n<directive name=\"a\" version=\"1\">\n  <metadata>\n    <!-- why -->\n    <description>two\n   lines</description>\n\n    <context> <before>x</before> <after>y</after> </context> <!-- beside -->\n  </metadata>\n</directive>\n```\n\n\nBody  {input:a}\n\n\n";
    assert_eq!(formatted(text), expected);
    assert_eq!(formatted(expected), expected);
}

#[test]
fn format_replaces_old_words_and_moves_sections() {
    let text = "```xml\n<directive name=\"a\">\n  <limits max_turns=\"3\" max_tokens=\"9000\"/>\n  <!-- who may -->\n  <permissions>\n    <search><knowledge>a/b*</knowledge></search>\n    <load><tool>*</tool></load>\n  </permissions>\n  <process>Do {input:x}.</process>\n</directive>\n```\n\nThen stop.\n";
    let expected = "```xml\n<directive name=\"a\">\n  <metadata>\n    <limits turns=\"3\" tokens=\"9000\"/>\n    <!-- who may -->\n    <permissions>\n      <fetch><knowledge>a.b*</knowledge></fetch>\n      <fetch><tool>*</tool></fetch>\n    </permissions>\n  </metadata>\n</directive>\n```\n\nDo {input:x}.\n\nThen stop.\n";
    assert_eq!(formatted(text), expected);
    assert_eq!(formatted(expected), expected);
}

/// Blank lines between the fence and the body do not keep a `<process>` in place.
#[test]
fn process_moves_to_body_after_blank_lines() {
    let file = |process: &str, between: &str| {
        format!("```xml\n<directive name=\"a\">{process}\n</directive>\n```\n{between}  Then that.\n")
    };
    for between in ["", "\n", "\n\n", "\n\n \n\n"] {
        let found = formatted(&file("\n<process>\nDo this.\n</process>", between));
        assert_eq!(found, file("", "\nDo this.\n\n"), "{between:?}");
    }
    let alone = formatted("```xml\n<directive name=\"a\"><process>Do this.</process></directive>\n```\n");
    assert_eq!(alone, "```xml\n<directive name=\"a\"/>\n```\n\nDo this.\n");
    let bare = formatted("```xml\n<directive name=\"a\"><process>Do this.</process></directive>\n```");
    assert_eq!(formatted(&bare), bare);
}

#[test]
fn format_refuses_broken_and_signed_files() {
    assert_eq!(format("```xml\n<directive name=\"a\">\n```\n"), Err(FormatRefusal::Broken));
    assert_eq!(format("no fence"), Err(FormatRefusal::Broken));
    let signed = "<!-- rye:signed:2026-02-14T00:27:54Z:00:00:00 -->\n```xml\n<directive name=\"a\"/>\n```\n";
    assert_eq!(format(signed), Err(FormatRefusal::Signed));
}

#[test]
fn long_tags_break_and_formatting_is_stable() {
    let value = "v".repeat(60);
    let text = format!("```xml\n<directive name=\"a\" version=\"{value}\" extends=\"{value}\"/>\n```\n");
    let expected = format!("```xml\n<directive\n  name=\"a\"\n  version=\"{value}\"\n  extends=\"{value}\"/>\n```\n");
    assert_eq!(formatted(&text), expected);
    assert_eq!(formatted(&expected), expected);
}

fn fixed(path: &str, text: &str) -> (String, usize) {
    let world = MapWorld::new().project(path, text);
    let report = check(&world, &Selection::All);
    let mut edits = Vec::new();
    for diagnostic in report.diagnostics.iter() {
        let Some(fix) = fix(diagnostic, &report.sources) else { continue };
        assert_eq!(report.sources.get(fix.source).unwrap().path.as_ref(), path);
        edits.extend(fix.edits);
    }
    (apply(text, &edits), edits.len())
}

#[test]
fn fix_repairs_typos_in_both_tags() {
    let text = "```xml\n<directive name=\"b\">\n  <metadata>\n    <descripton>x</descripton>\n    <category>no</category>\n    <limits trns=\"3\"/>\n    <hooks><hook id=\"h\" event=\"tool_cal\" positon=\"before\"><blck reason=\"r\"/></hook></hooks>\n  </metadata>\n</directive>\n```\n\nx\n";
    let (text, edits) = fixed(".ai/directives/f/a.md", text);
    assert!(edits >= 6, "{text}");
    for part in ["<description>x</description>", "name=\"a\"", "<category>f</category>", "turns=\"3\"", "\"tool_call\""]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let hooks = "hooks:\n  - id: h\n    event: tool_call\n    conditon: 'call.nme == \"x\"'\n    action: { blok: { reason: r } }\n";
    let (text, _) = fixed(".ai/config/agent/hooks.yaml", hooks);
    assert!(text.contains("condition:") && text.contains("block:"), "{text}");
}

#[test]
fn fix_replaces_misspelled_names_but_no_name_with_another_word() {
    let hook = |event: &str, condition: &str| {
        format!(
            "hooks:\n  - id: h\n    event: {event}\n    condition: '{condition}'\n    action: {{ terminate: {{ reason: r }} }}\n"
        )
    };
    let fixed = |event: &str, condition: &str| fixed(".ai/config/agent/hooks.yaml", &hook(event, condition)).0;
    for (event, condition, meant) in [
        ("after_step", "cost.input_tokns > 5", "cost.input_tokens > 5"),
        ("after_step", "cost.inputTokens > 5", "cost.input_tokens > 5"),
        ("tool_call", "call.item_di == \"a\"", "call.item_di == \"a\""),
        ("tool_call", "call.item == \"a\"", "call.item == \"a\""),
        ("after_step", "cost.total_tokens > 5", "cost.total_tokens > 5"),
        ("context_limit_reached", "tokens > 5", "tokens > 5"),
        ("limit", "current > 3", "current > 3"),
        ("tool_result", "result.duration > 10", "result.duration > 10"),
    ] {
        assert_eq!(fixed(event, condition), hook(event, meant), "{event} {condition}");
    }
    for (event, meant) in [("tool_cal", "tool_call"), ("thread_failed", "thread_failed"), ("cognition", "cognition")] {
        assert!(fixed(event, "turn > 1").contains(&format!("event: {meant}\n")), "{event}");
    }
}

#[test]
fn fix_replaces_misspelled_keys_of_tools_and_their_schemas() {
    let tool = |description: &str, seconds: &str, required: &str| {
        format!(
            "{description}: Look.\nkind: command\ncommand: [ls, \"{{path}}\"]\n{seconds}: 20\n\
             parameters:\n  type: object\n  {required}: [path]\n  properties: {{ path: {{ type: string }} }}\n"
        )
    };
    let fixed = |text: &str| fixed(".ai/tools/look.yaml", text).0;
    let right = tool("description", "timeout_seconds", "required");
    assert_eq!(fixed(&tool("descripton", "timout_seconds", "requird")), right);
    // Another word may mean something else.
    let other = tool("description", "timeout", "required");
    assert_eq!(fixed(&other), other);
}

#[test]
fn fix_leaves_unknown_item_ids() {
    let text = "```xml\n<directive name=\"a\" extends=\"bb\"/>\n```\n\nx\n";
    let world = MapWorld::new()
        .project(".ai/directives/a.md", text)
        .project(".ai/directives/bbb.md", "```xml\n<directive name=\"bbb\"/>\n```\n");
    let report = check(&world, &Selection::All);
    let unknown = report.diagnostics.iter().find(|d| d.code() == "extends::unknown").unwrap();
    assert_eq!(fix(unknown, &report.sources), None);
}

#[test]
fn apply_ignores_invalid_and_overlapping_edits() {
    let edits = [Edit::new(0..1, "x"), Edit::new(0..2, "y"), Edit::new(9..12, "z")];
    assert_eq!(apply("äbc", &edits), "ybc");
    assert_eq!(apply("abc", &[Edit::new(1..2, "B"), Edit::new(1..2, "C")]), "aBc");
}

/// Generates a gap between two pieces of metadata.
fn gap() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", " ", "\n", "\n\n", "\n\n\n    ", "\n\t", "  "])
}

fn piece() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "<description>a  b\n c</description>",
        "<limits max_turns=\"3\"   spend='0.5'/>",
        "<limits turns=\"3\"></limits>",
        "<context><before>k</before>\n\n<before>l</before> <!-- c --></context>",
        "<permissions><execute>*</execute><fetch><knowledge>k/*</knowledge></fetch></permissions>",
        "<permissions/>",
        "<!-- a\n  comment -->",
        "<process>Say &amp; do.</process>",
        "<process>Say  it.\n  Twice.</process>",
        "<metadata><author>me</author></metadata>",
        "<inputs><input name=\"a\" default=\"&lt;1\">what\n it is</input></inputs>",
        "<hooks><hook id=\"h\" event=\"after_step\"><when>cost.turns > 3</when><fail error=\"e\"/></hook></hooks>",
    ])
    .prop_map(str::to_owned)
}

fn file() -> impl Strategy<Value = String> {
    let inside = prop::collection::vec((gap(), piece()), 0..6);
    let body = prop::sample::select(vec!["", "x\n", "\n\n  Do {input:a?}.  \n\n", "a\n\n```xml\n<other/>\n```\n"]);
    (inside, gap(), body).prop_map(|(pieces, last, body)| {
        let inside: String = pieces.iter().flat_map(|(gap, piece)| [*gap, piece.as_str()]).collect();
        format!("# T\n\nprose\n\n```xml\n<directive  name='a'>{inside}{last}</directive>\n```\n{body}")
    })
}

/// Returns the content of a plan, without the hashes of the files it was made from.
fn plan(text: &str) -> Option<(String, Vec<String>)> {
    let world = crate::compile::tests::world::stdlib_world()
        .project(".ai/directives/a.md", text)
        .project(".ai/knowledge/k.md", "K.")
        .project(".ai/knowledge/l.md", "L.");
    let compiled = compile(&world, &CompileRequest::new(ItemId::parse("a").unwrap()));
    let codes = compiled.diagnostics.iter().map(|d| d.code().to_owned()).collect();
    let mut plan = compiled.value?.plan;
    plan.manifest.clear();
    plan.chain.iter_mut().for_each(|link| link.sha256.clear());
    Some((serde_json::to_string(&plan).unwrap(), codes))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn format_is_idempotent_and_keeps_the_plan(text in file()) {
        if let Ok(once) = format(&text) {
            prop_assert_eq!(format(&once.text).unwrap().text, once.text.clone());
            prop_assert_eq!(plan(&once.text), plan(&text), "{}\n{}", text, once.text);
        }
    }

    #[test]
    fn format_never_panics_and_is_idempotent(text in "[ -~\n`<>\"'=äé]{0,200}", inside in "[a-z<>/=\" \n!-]{0,80}") {
        let whole = format!("{text}\n```xml\n<directive {inside}</directive>\n```\n{text}");
        if let Ok(once) = format(&whole) {
            prop_assert_eq!(format(&once.text).unwrap().text, once.text);
        }
    }
}
