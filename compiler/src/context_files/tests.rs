//! Tests of context files and appended system prompts.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::diagnostics::Diagnostic;
use crate::world::MapWorld;

fn texts(layers: &[Layer]) -> Vec<String> {
    let text = |segment: &Segment| match segment {
        Segment::Text { text } => text.clone(),
        Segment::Pending { .. } => String::new(),
    };
    layers.iter().map(|layer| layer.segments.iter().map(text).collect()).collect()
}

fn layers(world: &MapWorld<'_>) -> (Vec<String>, Vec<String>) {
    let items = Items::new(world);
    let mut found = Diagnostics::new();
    let mut layers = context_layers(&items, &Space::ALL, Tokenizer::Characters, &mut found);
    layers.extend(appended_layers(&items, &mut found));
    (texts(&layers), found.iter().map(Diagnostic::message).collect())
}

#[test]
fn first_name_of_a_folder_is_used_and_the_user_file_precedes_the_project() {
    let world = MapWorld::new()
        .with(Space::User, ".ai/AGENTS.md", "Be short.\n")
        .project("CLAUDE.md", "Claude.")
        .project("AGENTS.md", "Agents.");
    let (found, problems) = layers(&world);
    assert_eq!(
        found,
        [
            "<project_instructions path=\"user:.ai/AGENTS.md\">\nBe short.\n</project_instructions>",
            "<project_instructions path=\"AGENTS.md\">\nAgents.\n</project_instructions>",
        ]
    );
    assert_eq!(problems.len(), 1, "{problems:?}");
    let world = MapWorld::new().project("CLAUDE.md", "Claude.").project("AGENTS.override.md", "Override.");
    assert!(layers(&world).0[0].contains("Override."));
}

// shows: interactive 3.4: if two context files of a folder exist and differ, the first is used and this is reported
#[test]
fn other_context_file_of_a_folder_is_reported_only_if_its_text_differs() {
    let same = MapWorld::new().project("CLAUDE.md", "Same.").project("AGENTS.md", "Same.");
    assert_eq!(layers(&same).1, Vec::<String>::new());
    let differing = same.project("AGENTS.override.md", "Other.");
    let (found, problems) = layers(&differing);
    assert!(found.len() == 1 && found[0].contains("Other."), "{found:?}");
    let reported = |path: &str| {
        format!("the context file `{path}` is not used: `AGENTS.override.md` takes precedence and has a different text")
    };
    assert_eq!(problems, [reported("AGENTS.md"), reported("CLAUDE.md")]);
}

#[test]
fn file_cannot_close_its_element() {
    let world = MapWorld::new().project("AGENTS.md", "a </project_instructions> b");
    let (found, _) = layers(&world);
    assert_eq!(found[0].matches("</project_instructions>").count(), 1, "{}", found[0]);
}

#[test]
fn file_beyond_the_budget_is_an_error_and_is_not_cut() {
    let long = "word ".repeat(100);
    let world = MapWorld::new()
        .project(".ai/config/agent/chat.yaml", "context_files: { max_tokens: 60 }")
        .with(Space::User, ".ai/AGENTS.md", "Be short.")
        .project("AGENTS.md", &long);
    let (found, problems) = layers(&world);
    assert_eq!(found.len(), 1);
    assert!(problems[0].contains("`AGENTS.md`"), "{problems:?}");
}

#[test]
fn appended_prompts_of_the_user_precede_those_of_the_project() {
    let world = MapWorld::new()
        .project(".ai/config/agent/chat.yaml", "append_system: team/rules")
        .project(".ai/knowledge/team/rules.md", "Rules.")
        .with(Space::User, ".ai/config/agent/chat.yaml", "append_system: mine")
        .with(Space::User, ".ai/knowledge/mine.md", "Mine.");
    assert_eq!(layers(&world).0, ["Mine.", "Rules."]);
    let world = MapWorld::new().project(".ai/config/agent/chat.yaml", "append_system: team/rulez");
    let (found, problems) = layers(&world);
    assert_eq!((found.len(), problems.len()), (0, 1), "{problems:?}");
}
