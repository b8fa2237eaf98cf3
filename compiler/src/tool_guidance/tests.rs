//! Tests of the layer `tools`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::compile::Compilation;
use crate::compile::tests::compile_without_inputs;
use crate::compile::tests::world::stdlib_world;
use crate::report::render::text::render;
use crate::report::summary::PlanSummary;
use crate::report::why::explain;
use crate::world::MapWorld;

const COUNT: &str = "description: Counts the lines of files.\nkind: command\ncommand: [wc]\nsnippet: Count lines\n\
    guidelines: [Count before you read., Prefer one call.]\n";
const LIST: &str =
    "description: Lists files.\nkind: command\ncommand: [ls]\nguidelines: [Prefer one call., Name the folder.]\n";

fn world(context: &str) -> MapWorld<'static> {
    let directive = format!(
        "# A\n\n```xml\n<directive name=\"a\" version=\"1\"><metadata><description>d</description>\
         <model provider=\"scripted\" tier=\"fast\"/>{context}<permissions><execute><tool>count</tool><tool>list</tool>\
         </execute></permissions></metadata></directive>\n```\n\nGo.\n"
    );
    stdlib_world()
        .project(".ai/directives/a.md", &directive)
        .project(".ai/tools/count.yaml", COUNT)
        .project(".ai/tools/list.yaml", LIST)
        .project(".ai/tools/ungranted.yaml", COUNT.replace("Count lines", "Never shown"))
}

fn layer_text(compilation: &Compilation) -> Option<String> {
    let layer = compilation.plan.prompt.system.iter().find(|layer| layer.id == LAYER_ID)?;
    let [Segment::Text { text }] = layer.segments.as_slice() else { return None };
    Some(text.clone())
}

#[test]
fn granted_tools_contribute_snippets_and_guidelines_without_repeats() {
    let compilation = compile_without_inputs(&world(""), "a");
    assert_eq!(
        layer_text(&compilation).unwrap(),
        "Available tools:\n- count: Count lines\n\nGuidelines:\n- Count before you read.\n- Prefer one call.\n- Name the folder."
    );
    // The definitions that the model receives have the descriptions of the files.
    let count = compilation.plan.palette.iter().find(|tool| &*tool.name == "count").unwrap();
    assert_eq!(&*count.description, "Counts the lines of files.");
    // The texts of the tools grant nothing.
    let patterns: Vec<&str> = compilation.plan.capabilities.grants.iter().map(|grant| grant.pattern.as_str()).collect();
    assert_eq!(patterns, ["rye.execute.tool.count", "rye.execute.tool.list"]);
}

#[test]
fn contribution_of_a_tool_has_its_tokens_and_file() {
    let world = world("");
    let compilation = compile_without_inputs(&world, "a");
    let text = render(&compilation, &PlanSummary::new(&world, None, &compilation).unwrap());
    assert!(text.contains("the snippet and guidelines of `count`, 17 tokens  .ai/tools/count.yaml:1"), "{text}");
    let why = explain(&world, &compilation, "count").unwrap();
    assert!(why.iter().any(|one| one.reason.contains("the snippet and guidelines of `count`")), "{why:?}");
    let why = explain(&world, &compilation, "tools").unwrap();
    assert!(why[0].reason.starts_with("in the system prompt, "), "{why:?}");
}

#[test]
fn suppressed_layer_is_absent() {
    let compilation = compile_without_inputs(&world("<context><suppress>tools</suppress></context>"), "a");
    assert_eq!(layer_text(&compilation), None);
}

#[test]
fn plan_without_contributions_has_no_layer() {
    let world = world("").project(".ai/tools/count.yaml", "description: d\nkind: command\ncommand: [wc]\n");
    let world = world.project(".ai/tools/list.yaml", "description: d\nkind: command\ncommand: [ls]\n");
    assert_eq!(layer_text(&compile_without_inputs(&world, "a")), None);
}
