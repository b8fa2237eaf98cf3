//! Tests of typed lines, precedence, and the manifest of an expansion.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use sha2::{Digest, Sha256};

use super::*;
use crate::world::{MapWorld, RecordingWorld, Space, hex};

const REVIEW: &str = "---\ndescription: d\n---\nReview $1 for ${2:-bugs}.\n";
const PDF: &str = "---\nname: pdf\ndescription: d\n---\nUse `x`.\n";

fn world() -> MapWorld<'static> {
    MapWorld::new()
        .project(".ai/prompts/review.md", REVIEW)
        .project(".ai/prompts/git/commit.md", "Commit: $ARGUMENTS")
        .project(".claude/commands/Fix.md", "Fix it.")
        .project(".ai/skills/pdf/SKILL.md", PDF)
        .project(".ai/skills/mute/SKILL.md", "No front matter.")
}

fn expanded(typed: &str) -> Expansion {
    let world = world();
    expand(&Items::new(&world), typed)
}

fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text))
}

#[test]
fn a_template_call_becomes_its_filled_text() {
    let found = expanded("/review src/a.rs \"race conditions\"");
    let text = "Review src/a.rs for race conditions.";
    assert_eq!(found.text.as_deref(), Some(text));
    assert_eq!(found.problems, []);
    assert_eq!(
        found.expanded,
        [ExpandedItem {
            kind: ItemKind::Prompt,
            id: ItemId::parse("review").unwrap(),
            sha256: sha256(REVIEW),
            range: 0..text.len(),
        }]
    );
    assert_eq!(expanded("/git:commit a\n'b  c'").text.as_deref(), Some("Commit: a b  c"));
    assert_eq!(expanded("/Fix").text.as_deref(), Some("Fix it."));
}

#[test]
fn missing_and_unused_arguments_are_reported_and_the_text_is_sent() {
    let found = expanded("/review");
    assert_eq!(found.text.as_deref(), Some("Review  for bugs."));
    assert_eq!(found.problems, [ExpansionProblem::MissingArgument { command: "/review".into(), number: 1 }]);
    let found = expanded("/review a b lost");
    assert_eq!(
        found.problems,
        [ExpansionProblem::UnusedArgument { command: "/review".into(), number: 3, argument: "lost".into() }]
    );
    assert_eq!(found.problems[0].to_string(), "`/review` does not use argument 3: `lost` is not sent");
}

#[test]
fn a_skill_call_becomes_its_element_and_the_arguments() {
    let element = "<skill name=\"pdf\" location=\".ai/skills/pdf/SKILL.md\">\n\
                   References are relative to .ai/skills/pdf.\n\nUse `x`.\n</skill>";
    let found = expanded("/skill:pdf  fill \"a b\"\nand $1 ");
    assert_eq!(found.text, Some(format!("{element}\n\nfill \"a b\"\nand $1")));
    assert_eq!(found.expanded[0].range, 0..element.len());
    assert_eq!(found.expanded[0].sha256, sha256(PDF));
    assert_eq!(expanded("/skill:pdf").text.as_deref(), Some(element));
    assert_eq!(expanded("/skill:pdf \n").text.as_deref(), Some(element));
}

#[test]
fn text_that_is_no_command_is_sent_as_typed() {
    for typed in [
        "",
        "hello",
        "/",
        "//",
        "//review a",
        " /review a",
        "\t/review",
        "/usr/bin/env",
        "/review/a b",
        "/review.md",
        "/-x",
        "/Users are here",
        "/tmp/",
        "a /review",
        "/ review",
        "/é",
        "/review\0",
        "\n/review",
    ] {
        let found = expanded(typed);
        assert_eq!(found.text.as_deref(), Some(typed));
        assert_eq!((found.expanded, found.problems), (vec![], vec![]), "{typed:?}");
    }
}

#[test]
fn an_unknown_command_is_not_sent_and_has_a_suggestion() {
    for (typed, command, suggestion) in [
        ("/reveiw a", "/reveiw", Some("/review")),
        ("/skill:pfd", "/skill:pfd", Some("/skill:pdf")),
        ("/git:comit", "/git:comit", Some("/git:commit")),
        ("/skill:", "/skill:", Some("/skill:pdf")),
        ("/review:", "/review:", Some("/review")),
        ("/zzzzzzzz", "/zzzzzzzz", None),
    ] {
        let found = expanded(typed);
        assert_eq!(found.text, None);
        let suggestion = suggestion.map(str::to_owned);
        let ExpansionProblem::Unknown { command: name, suggestion: near } = &found.problems[0] else {
            panic!("{found:?}")
        };
        assert_eq!(name, command);
        if typed != "/skill:" {
            assert_eq!(*near, suggestion, "{typed}");
        }
    }
}

#[test]
fn template_with_the_name_of_a_built_in_command_is_not_sent() {
    let world = MapWorld::new().project(".ai/prompts/fork.md", "Hidden.").project(".ai/prompts/forks.md", "Sent.");
    let items = Items::new(&world);
    let hidden = expand(&items, "/fork");
    assert_eq!(hidden.text, None);
    assert!(matches!(hidden.problems.as_slice(), [ExpansionProblem::Unknown { .. }]), "{hidden:?}");
    assert_eq!(expand(&items, "/forks").text.as_deref(), Some("Sent."));
}

#[test]
fn a_skill_that_is_not_loaded_is_refused() {
    let found = expanded("/skill:mute");
    assert_eq!(found.text, None);
    let id = ItemId::parse("mute").unwrap();
    assert_eq!(found.problems, [ExpansionProblem::Unreadable { kind: ItemKind::Skill, id }]);
}

#[test]
fn an_expansion_over_the_maximum_is_refused() {
    let world = MapWorld::new().project(".ai/prompts/t.md", "$1".repeat(1000));
    let found = expand(&Items::new(&world), &format!("/t {}", "x".repeat(1 << 20)));
    assert_eq!(found.text, None);
    assert_eq!(found.problems, [ExpansionProblem::TooLong { command: "/t".into() }]);
}

#[test]
fn precedence_is_project_then_user_then_system_and_ai_then_agents_then_claude() {
    let skill = |body: &str| format!("---\nname: s\ndescription: d\n---\n{body}");
    let files = [
        (Space::Project, ".ai/skills/s/SKILL.md"),
        (Space::Project, ".ai/skills/deep/s/SKILL.md"),
        (Space::Project, ".agents/skills/s/SKILL.md"),
        (Space::Project, ".claude/skills/s/SKILL.md"),
        (Space::User, ".ai/skills/s/SKILL.md"),
        (Space::User, ".claude/skills/s/SKILL.md"),
        (Space::System, ".ai/skills/s/SKILL.md"),
    ];
    for first in 0..files.len() {
        let mut world = MapWorld::new();
        // The order of insertion does not matter.
        for (at, (space, path)) in files.iter().enumerate().skip(first).rev() {
            world.insert(*space, path, skill(&format!("body {at}")));
        }
        let text = expand(&Items::new(&world), "/skill:s").text.unwrap();
        assert!(text.contains(&format!("body {first}\n")), "{text}");
        assert!(text.contains(&format!("location=\"{}\"", files[first].0.display(files[first].1))), "{text}");
    }
    let world = MapWorld::new()
        .with(Space::User, ".ai/prompts/t.md", "user")
        .project(".claude/commands/t.md", "claude")
        .project(".ai/prompts/t.md", "ai");
    assert_eq!(expand(&Items::new(&world), "/t").text.as_deref(), Some("ai"));
}

#[test]
fn files_of_an_expansion_are_in_the_manifest() {
    let world = world();
    let recording = RecordingWorld::new(&world);
    expand(&Items::new(&recording), "/review a");
    expand(&Items::new(&recording), "/skill:pdf");
    let manifest = recording.manifest().into_iter().filter(|entry| entry.kind != ItemKind::Config);
    let read: Vec<_> = manifest.map(|entry| (entry.kind, entry.id, entry.sha256.unwrap_or_default())).collect();
    assert_eq!(
        read,
        [(ItemKind::Prompt, "review".to_owned(), sha256(REVIEW)), (ItemKind::Skill, "pdf".to_owned(), sha256(PDF)),]
    );
}
