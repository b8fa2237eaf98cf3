//! Checks of the shipped content: the standard library and the examples have no diagnostics, and their context stays
//! within its token budget.

use std::fs;

use rye_compiler::compile::{CompileRequest, compile};
use rye_compiler::diagnostics::{Diagnostic, Diagnostics};
use rye_compiler::plan::Segment;
use rye_compiler::world::{MapWorld, Space};
use rye_engine::disk_world::DiskWorld;
use rye_engine::keys::TrustStore;
use rye_grammar::{ItemId, Sources};
use rye_snapshots::{check, render_diagnostics, standard_library};
use serde_json::Map;

use super::house::root;

#[test]
fn standard_library_has_no_diagnostics() {
    let mut world = MapWorld::new();
    for (path, bytes) in rye_stdlib::files() {
        world.insert(Space::Project, &path, bytes);
    }
    let (diagnostics, sources) = check(&world);
    assert_eq!(
        unexpected_codes(&diagnostics, &sources),
        Vec::<&str>::new(),
        "{}",
        render_diagnostics(&diagnostics, &sources)
    );
    assert_eq!(diagnostics.iter().count(), 3);
}

/// Returns the codes of unexpected diagnostics. Two codes are expected in the directive of the chat: its commands need
/// approval on purpose, and its write grant covers the whole project.
fn unexpected_codes(diagnostics: &Diagnostics, sources: &Sources) -> Vec<&'static str> {
    let of_chat = |one: &&Diagnostic| {
        let label = one.labels().into_iter().next();
        let file = label.and_then(|label| sources.get(label.span.source)).map(|source| source.path.to_string());
        ["capability::unacknowledged", "capability::only-what-is-there"].contains(&one.code())
            && file.is_some_and(|file| file.ends_with("directives/rye/agent/chat.md"))
    };
    diagnostics.iter().filter(|one| !of_chat(one)).map(Diagnostic::code).collect()
}

#[test]
fn planted_faults_of_the_standard_library_are_found() {
    let mut world = MapWorld::new();
    for (path, bytes) in rye_stdlib::files() {
        world.insert(Space::Project, &path, bytes);
    }
    world.insert(Space::Project, ".ai/directives/a.txt", "text");
    let (diagnostics, sources) = check(&world);
    assert_eq!(unexpected_codes(&diagnostics, &sources), ["item::stray"]);
}

#[test]
fn examples_have_no_unexpected_diagnostics() {
    let mut seen = 0;
    for entry in fs::read_dir(root().join("examples")).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.join(".ai").is_dir() {
            continue;
        }
        seen += 1;
        let world = DiskWorld::open(Some(&folder), None, rye_stdlib::files(), TrustStore::default()).unwrap();
        let (diagnostics, sources) = check(&world);
        let shown = render_diagnostics(&diagnostics, &sources);
        // An example shadows a knowledge item of the standard library on purpose, which is reported.
        assert!(diagnostics.iter().all(|one| one.code() == "item::shadows"), "{}\n{shown}", folder.display());
        assert!(folder.join("README.md").is_file(), "{} has no README", folder.display());
    }
    assert!(seen >= 3, "the law must see the examples it judges");
}

/// Returns the tokens (characters / 4, rounded up) of the system prompt and the first message, without the palette.
/// Each run-time placeholder counts as a long path.
fn context(extends: &str, name: &str) -> usize {
    let directive = format!(
        "```xml\n<directive name=\"{name}\" version=\"1.0.0\"{extends}>\n  <metadata><description>One line.</description>\n  \
         <model provider=\"scripted\" tier=\"fast\"/></metadata>\n</directive>\n```\n\nDo one thing.\n"
    );
    let mut world = standard_library();
    world.insert(Space::Project, &format!(".ai/directives/{name}.md"), directive.as_bytes());
    let compiled = compile(&world, &CompileRequest::new(ItemId::parse(name).unwrap()).with_inputs(Map::new()));
    let plan = compiled.value.unwrap().plan;
    let length = |segment: &Segment| match segment {
        Segment::Text { text } => text.chars().count(),
        Segment::Pending { .. } => 80,
    };
    let layers = plan.prompt.system.iter().chain(&plan.prompt.first_message);
    // A blank line separates layers.
    layers.map(|layer| layer.segments.iter().map(length).sum::<usize>() + 2).sum::<usize>().div_ceil(4)
}

#[test]
fn context_stays_within_its_token_budget() {
    let bare = context("", "bare");
    assert!((50..=200).contains(&bare), "a bare thread is told {bare} tokens");
    for base in ["base", "base_execute_only", "base_review"] {
        let loaded = context(&format!(" extends=\"rye/agent/core/{base}\""), "loaded");
        assert!(loaded > bare + 100 && loaded <= 1_000, "a thread of `{base}` is told {loaded} tokens");
    }
}
