//! Tests of comparisons of plans from two worlds that differ in one detail.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod declarations;
mod edits;
mod hook_items;
mod places;

use rye_grammar::ItemId;

use super::*;
use crate::compile::tests::world::{minimal_world, stdlib_world, tool, with_directives};
use crate::compile::{CompileRequest, compile};
use crate::report::render::{diff as shown, json};

fn plan(metadata: &str, body: &str) -> PlanReport {
    let world = with_directives(minimal_world(), &[("leaf", "", &format!("<metadata>{metadata}</metadata>"), body)])
        .project(".ai/knowledge/k.md", "Some knowledge.")
        .project(".ai/tools/p/write.yaml", tool("Writes."));
    let compiled = compile(&world, &CompileRequest::new(ItemId::parse("leaf").unwrap()));
    json::render(&compiled.value.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics)), Vec::new())
}

fn permissions(inside: &str) -> PlanReport {
    plan(&format!("<permissions><execute>{inside}</execute></permissions>"), "Do it.")
}

fn compared(before: &PlanReport, after: &PlanReport) -> PlanDiff {
    diff(Some(before), Some(after))
}

#[test]
fn the_same_plan_has_no_difference() {
    let one = permissions("<tool>rye.*</tool>");
    let found = compared(&one, &one);
    assert!(found.is_empty() && !found.widened && found.parts.is_empty() && found.capabilities.is_empty());
    assert_eq!(found.prefix, PrefixChange { unchanged: one.tokens.input, of: one.tokens.input, broken_by: None });
}

#[test]
fn a_wider_pattern_widens_with_an_example_and_the_other_way_narrows() {
    let (narrow, wide) = (permissions("<tool>rye.look</tool>"), permissions("<tool>rye.*</tool>"));
    let found = compared(&narrow, &wide);
    assert!(found.widened);
    let [change] = found.capabilities.as_slice() else { panic!("{:?}", found.capabilities) };
    assert_eq!((change.direction, change.what.as_str()), (Direction::Widened, "rye.execute.tool.rye.*"));
    assert!(change.example.as_ref().unwrap().starts_with("rye.execute.tool.rye."));
    // The example is a tool of the palette, if there is one.
    let found = compared(&narrow, &permissions("<tool>rye.look</tool><tool>p.*</tool>"));
    assert_eq!(found.capabilities[0].example.as_deref(), Some("rye.execute.tool.p.write"));
    let back = compared(&wide, &narrow);
    assert!(!back.widened);
    assert_eq!(back.capabilities[0].direction, Direction::Narrowed);
}

#[test]
fn acknowledgement_of_the_risk_of_a_new_grant_widens_and_of_a_risk_without_calls_does_not() {
    let world = |tools: &str, risk: &str| {
        let permissions = format!("<metadata><permissions><execute>{tools}</execute>{risk}</permissions></metadata>");
        with_directives(stdlib_world(), &[("leaf", "", &permissions, "Do it.")])
    };
    let acknowledged = |risk: &str| format!("<acknowledge risk=\"{risk}\">w</acknowledge>");
    let read = "<tool>rye.file-system.read</tool>";
    let direction = |tools: &str, risk: &str| {
        let (old, new) = (world(read, ""), world(tools, &acknowledged(risk)));
        let compiled = [&old, &new].map(|world| {
            let compiled = compile(world, &CompileRequest::new(ItemId::parse("leaf").unwrap()));
            compiled.value.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics))
        });
        let before = DiffSide { world: &old, compilation: &compiled[0] };
        let after = DiffSide { world: &new, compilation: &compiled[1] };
        let changes = diff_trees(Some(before), Some(after)).unwrap().changes;
        let change = changes.into_iter().find(|change| change.what.contains("is acknowledged")).unwrap();
        change.direction
    };
    let git = format!("{read}<tool>rye.git.*</tool>");
    assert_eq!(direction(&git, "elevated"), Direction::Widened);
    assert_eq!(direction(&git, "unrestricted"), Direction::Neutral);
    assert_eq!(direction(read, "elevated"), Direction::Neutral);
}

#[test]
fn the_same_reach_in_other_words_is_no_change() {
    let (one, other) = (permissions("<tool>rye.*</tool>"), permissions("<tool>rye.*</tool><tool>rye.look</tool>"));
    let found = compared(&one, &other);
    assert!(found.capabilities.is_empty() && !found.widened, "{:?}", found.capabilities);
}

#[test]
fn needs_of_a_grant_are_compared_whole() {
    let host = |net: &str| permissions(&format!("<tool net=\"{net}\" write=\"out/\">rye.*</tool>"));
    assert!(compared(&host("a.example.com"), &host("*.example.com")).widened);
    assert!(!compared(&host("*.example.com"), &host("*.a.example.com")).widened);
    assert!(!compared(&host("*,a.b"), &host("a.b,8.8.8.8")).widened);
    assert!(compared(&permissions("<tool>rye.*</tool>"), &host("a.b")).widened);
}

#[test]
fn host_spelt_out_inside_a_wildcard_widens_if_its_addresses_may_be_local() {
    let host = |net: &str| permissions(&format!("<tool net=\"{net}\">rye.*</tool>"));
    for (before, after, direction, what) in [
        ("*", "*,127.0.0.1", Direction::Widened, "net 127.0.0.1 for rye.execute.tool.rye.*"),
        ("*", "*,localhost", Direction::Widened, "net localhost for rye.execute.tool.rye.*"),
        ("*", "10.0.0.1", Direction::Widened, "net 10.0.0.1 for rye.execute.tool.rye.*"),
        (
            "*.a.b",
            "*.a.b,x.a.b",
            Direction::Unknown,
            "net x.a.b for rye.execute.tool.rye.*, at local addresses as well",
        ),
    ] {
        let found = compared(&host(before), &host(after));
        let change = &found.capabilities[0];
        assert_eq!(
            (change.direction, change.what.as_str(), found.widened),
            (direction, what, true),
            "{before} {after}"
        );
        let back = compared(&host(after), &host(before));
        let narrowed = back.capabilities.iter().filter(|change| change.direction == Direction::Narrowed);
        assert!(narrowed.map(|change| change.what.as_str()).any(|one| one == what), "{:?}", back.capabilities);
    }
}

#[test]
fn a_bound_of_a_file_tool_narrows_and_its_removal_widens() {
    bound_of_a_file_tool("rye.file-system.write");
    bound_of_a_file_tool("rye.file-system.*");
}

/// Checks the direction of changed folders in a grant of `pattern`.
fn bound_of_a_file_tool(pattern: &str) {
    let granted = |attribute: &str| {
        let inside = format!("<tool{attribute}>{pattern}</tool>");
        let metadata = format!("<metadata><permissions><execute>{inside}</execute></permissions></metadata>");
        let world = with_directives(stdlib_world(), &[("leaf", "", &metadata, "Do it.")]);
        let compiled = compile(&world, &CompileRequest::new(ItemId::parse("leaf").unwrap()));
        json::render(&compiled.value.unwrap_or_else(|| panic!("{:?}", compiled.diagnostics)), Vec::new())
    };
    let (open, bounded, wider) = (granted(""), granted(" write=\"out/\""), granted(" write=\"out/,notes/\""));
    let what = |found: &PlanDiff, direction| -> Vec<String> {
        let all = found.capabilities.iter().filter(|change| change.direction == direction);
        all.map(|change| change.what.clone()).collect()
    };
    let removed = compared(&bounded, &open);
    assert!(removed.widened);
    let everywhere = "write the whole project for rye.execute.tool.rye.file-system.write";
    assert!(what(&removed, Direction::Widened).iter().any(|one| one == everywhere));
    assert!(what(&removed, Direction::Widened).iter().all(|one| one.starts_with("write the whole project")));
    let added = compared(&open, &bounded);
    assert!(!added.widened, "{:?}", added.capabilities);
    assert!(what(&added, Direction::Narrowed).iter().any(|one| one == everywhere));
    assert!(compared(&bounded, &wider).widened && !compared(&wider, &bounded).widened);
}

#[test]
fn diff_reports_limits_hooks_and_context() {
    let one = plan("<limits turns=\"3\"/><permissions/>", "Do it.");
    let hook = "<hooks><hook id=\"h\" event=\"after_step\"><when>cost.turns > 2</when><terminate/></hook></hooks>";
    let two =
        plan(&format!("<limits turns=\"5\"/><permissions/><context><before>k</before></context>{hook}"), "Do it now.");
    let found = compared(&one, &two);
    assert!(found.widened && found.limits[0].raised, "{:?}", found.limits);
    assert!(found.hooks.iter().any(|h| h.id == "h" && h.newly_reachable));
    let ids: Vec<&str> = found.parts.iter().map(|p| p.id.as_str()).collect();
    assert_eq!(ids, ["k", "leaf"]);
    assert!(found.tokens.after > found.tokens.before);
    assert_eq!(found.prefix.broken_by.as_deref(), Some("k"));
    // The action of a hook in a printed plan is unknown, so a removed hook may have been a guard.
    assert!(compared(&two, &one).widened);
    let lines: Vec<String> = shown::lines(&found).into_iter().map(|l| l.text).collect();
    let text = lines.join("\n");
    for part in ["turns raised 3 → 5", "newly reachable", "cache prefix: 0 of", "message k, "] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let markdown = shown::format_markdown(&found);
    for part in ["🔴 **widened**", "| 🔴 limit `turns` | 3 | 5 |", "**newly reachable**", "`k` (message, "] {
        assert!(markdown.contains(part), "{part}\n{markdown}");
    }
}

#[test]
fn diff_names_reworded_parts_of_equal_length() {
    let found = compared(&plan("<permissions/>", "Do it."), &plan("<permissions/>", "Do so."));
    let text: Vec<String> = shown::lines(&found).into_iter().map(|l| l.text).collect();
    assert_eq!(text.last().unwrap(), "  reworded, same length: leaf (message)  .ai/directives/leaf.md:9:1");
    assert!(shown::format_markdown(&found).ends_with("- reworded, same length: `leaf` (message)\n"));
    assert_eq!((found.parts[0].before, found.parts.len()), (found.parts[0].after, 1));
}

#[test]
fn an_example_that_says_no_more_than_its_pattern_is_left_out() {
    let found = compared(&permissions("<tool>rye.look</tool>"), &permissions("<tool>p.write</tool>"));
    let text: Vec<String> = shown::lines(&found).into_iter().map(|l| l.text).collect();
    assert!(text.iter().any(|l| l.contains("widened rye.execute.tool.p.write (declared by")), "{text:#?}");
}

#[test]
fn a_new_directive_widens_by_what_it_may_do() {
    let found = diff(None, Some(&permissions("<tool>rye.look</tool>")));
    assert!(found.widened && found.limits.is_empty());
    assert!(!diff(None, Some(&plan("<permissions/>", "Do it."))).widened);
    assert!(!diff(Some(&permissions("<tool>rye.look</tool>")), None).widened);
}

#[test]
fn diff_widens_if_the_chain_stops_declaring_permissions() {
    let found = compared(&permissions("<tool>rye.look</tool>"), &plan("", "Do it."));
    assert!(found.widened, "{:?}", found.capabilities);
}
