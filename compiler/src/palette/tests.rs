//! Tests of names, order, budget and primaries, over hand-made tools.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;

use rye_grammar::SourceId;
use serde_json::json;

use super::*;
use crate::item::FileRef;
use crate::plan::{FieldType, ValueParts};
use crate::tool_spec::{ToolKind, ToolNeeds, ToolSpec};
use crate::world::{ItemKind, Space};

fn id(text: &str) -> ItemId {
    ItemId::parse(text).unwrap()
}

/// Creates a tool whose definition has this number of tokens.
fn tool(text: &str, tokens: usize) -> Arc<Tool> {
    let parameters = json!({"type": "object"});
    let description = "x".repeat(tokens * 4 - parameters.to_string().len());
    let spec = ToolSpec {
        description,
        parameters,
        kind: ToolKind::Builtin { name: "read".into() },
        timeout_seconds: 1,
        parallel: true,
        idempotent: Idempotence::default(),
        needs: ToolNeeds::default(),
        environment: Vec::new(),
        config: None,
        persistent: false,
        pushes: false,
        snippet: None,
        guidelines: Vec::new(),
        version: None,
        category: None,
    };
    let file =
        FileRef { kind: ItemKind::Tool, id: id(text), space: Space::Project, path: "x".into(), source: SourceId(0) };
    Arc::new(Tool { file, spec: Arc::new(spec) })
}

fn texts(patterns: &[&str]) -> Vec<String> {
    patterns.iter().map(|p| (*p).to_owned()).collect()
}

fn palette(patterns: &[&str], tools: &[(&str, usize)], max_tokens: u64) -> (Palette, Diagnostics) {
    let patterns = texts(patterns);
    let ids: Vec<ItemId> = tools.iter().map(|(t, _)| id(t)).collect();
    let weight: BTreeMap<ItemId, usize> = tools.iter().map(|(t, w)| (id(t), *w)).collect();
    let reached: Vec<_> = ToolIndex::new(ids.iter().cloned())
        .reached(&patterns)
        .into_iter()
        .map(|r| {
            let tool = SizedTool::of(tool(r.id.as_str(), weight[&r.id]));
            (r, tool)
        })
        .collect();
    let mut diagnostics = Diagnostics::new();
    let preload = PreloadSettings { enabled: true, max_tokens };
    let primaries = super::granted_primaries(Some(&patterns), possible_primaries);
    let palette = build(&primaries, &reached, preload, &|_| None, &mut diagnostics);
    (palette, diagnostics)
}

fn names(palette: &Palette) -> Vec<&str> {
    palette.tools.iter().map(|t| &*t.name).collect()
}

#[test]
fn tool_names_are_flattened() {
    assert_eq!(tool_name(&id("rye/file-system/read")), "rye_file_system_read");
    assert_eq!(tool_name(&id("A-b_c/9")), "A_b_c_9");
}

#[test]
fn tool_name_of_65_characters_is_dropped_with_diagnostic() {
    let fits = format!("p/{}", "x".repeat(62));
    let long = format!("p/{}", "y".repeat(63));
    let (palette, diagnostics) = palette(&["rye.execute.tool.*"], &[(&fits, 10), (&long, 10)], 2000);
    assert_eq!(names(&palette), ["rye_execute", &tool_name(&id(&fits))]);
    assert_eq!(palette.dropped.len(), 1);
    assert!(palette.dropped[0].because.contains("65 characters"), "{:?}", palette.dropped);
    assert_eq!(diagnostics.codes().into_iter().collect::<Vec<_>>(), ["palette::name"]);
}

#[test]
fn tools_are_sorted_by_specificity_then_id() {
    let tools = [("a/one", 10), ("b/two", 10), ("b/three", 10), ("c/four", 10), ("c/fifteen", 10)];
    let patterns =
        ["rye.execute.tool.*", "rye.execute.tool.b.*", "rye.execute.tool.c.four", "rye.execute.tool.c.fifteen"];
    let (palette, _) = palette(&patterns, &tools, 2000);
    assert_eq!(names(&palette), ["rye_execute", "c_fifteen", "c_four", "b_three", "b_two", "a_one"]);
    assert_eq!(palette.grants["b_two"].as_deref(), Some("rye.execute.tool.b.*"));
}

#[test]
fn tool_over_budget_is_dropped_and_smaller_ones_fit() {
    let (palette, _) = palette(&["rye.execute.tool.*"], &[("a/one", 30), ("b/two", 80), ("c/three", 70)], 100);
    assert_eq!(names(&palette), ["rye_execute", "a_one", "c_three"]);
    assert_eq!((palette.dropped[0].item_id.as_str(), palette.dropped[0].tokens), ("b/two", 80));
    assert_eq!(palette.dropped[0].because, "80 tokens do not fit: 70 of 100 remain");
}

#[test]
fn equal_tool_names_collide() {
    let (_, diagnostics) = palette(&["rye.execute.tool.*"], &[("a/b_c", 10), ("a/b/c", 10)], 2000);
    let messages: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(messages, ["`a/b/c` and `a/b_c` would both have the tool name `a_b_c`"]);
    let (_, diagnostics) = palette(&["rye.execute.tool.*"], &[("rye/execute", 10), ("rye/directive/return", 10)], 2000);
    assert_eq!(diagnostics.len(), 2);
}

#[test]
fn primary_is_offered_if_a_grant_could_allow_it() {
    let primaries = |patterns: &[&str]| {
        let (palette, _) = palette(patterns, &[], 2000);
        names(&palette).iter().map(|n| (*n).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(primaries(&["rye.*"]), ["rye_execute", "rye_fetch", "rye_sign"]);
    assert_eq!(primaries(&["rye.fetch.knowledge"]), ["rye_fetch"]);
    assert_eq!(primaries(&["rye.?etch.knowledge.a", "rye.sign.directive.b"]), ["rye_fetch", "rye_sign"]);
    assert_eq!(primaries(&["rye.execute.nothing.a", "other"]), Vec::<String>::new());
    assert_eq!(primaries(&[]), Vec::<String>::new());
    let all = build(
        &super::granted_primaries(None, possible_primaries),
        &[],
        PreloadSettings::default(),
        &|_| None,
        &mut Diagnostics::new(),
    );
    assert_eq!(names(&all), ["rye_execute", "rye_fetch", "rye_sign"]);
}

#[test]
fn disabled_preload_keeps_primaries_and_return_tool() {
    let patterns = texts(&["rye.execute.tool.a"]);
    let reached: Vec<_> =
        ToolIndex::new([id("a")]).reached(&patterns).into_iter().map(|r| (r, SizedTool::of(tool("a", 10)))).collect();
    let field = InterfaceField {
        kind: FieldType::String,
        required: true,
        default: None,
        choices: Vec::new(),
        description: String::new(),
        parts: ValueParts::default(),
    };
    let outputs = IndexMap::from([("url".to_owned(), field)]);
    let off = PreloadSettings { enabled: false, max_tokens: 2000 };
    let primaries = super::granted_primaries(Some(&patterns), possible_primaries);
    let mut palette = build(&primaries, &reached, off, &|_| None, &mut Diagnostics::new());
    assert!(palette.add_return(&outputs) && !palette.add_return(&IndexMap::new()));
    assert_eq!(names(&palette), ["rye_execute", "rye_directive_return"]);
    assert_eq!(palette.dropped, Vec::new());
}

#[test]
fn pattern_within_one_primary_allows_only_it() {
    let only = |pattern: &str| possible_primaries(pattern).iter().map(|p| p.as_str()).collect::<Vec<_>>();
    assert_eq!(only("rye.execute.tool.rye.bash.*"), ["execute"]);
    assert_eq!(only("rye.fetch.knowledge.x"), ["fetch"]);
    assert_eq!(only("rye.execute.tool.a..b"), Vec::<&str>::new());
    assert_eq!(only("rye.[ef]*"), ["execute", "fetch"]);
    assert_eq!(only("rye.*").len(), 3);
}

#[test]
fn patterns_match_by_name_prefix_and_wildcard() {
    let tools = ToolIndex::new(["a/b", "a/c", "ab", "b"].map(id));
    let reached =
        |pattern: &str| tools.reached(&texts(&[pattern])).into_iter().map(|r| r.id.to_string()).collect::<Vec<_>>();
    assert_eq!(reached("rye.execute.tool.a.*"), ["a/b", "a/c"]);
    assert_eq!(reached("rye.execute.tool.a*"), ["a/b", "a/c", "ab"]);
    assert_eq!(reached("rye.execute.tool.b"), ["b"]);
    assert_eq!(reached("rye.execute.tool.?"), ["b"]);
    assert_eq!(reached("rye.fetch.*"), Vec::<String>::new());
    assert_eq!(reached("*").len(), 4);
}
