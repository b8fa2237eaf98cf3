//! Tests of the list of skills and its budget.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use super::*;
use crate::world::MapWorld;

fn skill(name: &str, description: &str, more: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n{more}---\nBody.\n")
}

#[test]
fn a_list_is_byte_exact_and_leaves_hidden_skills_out() {
    let world = MapWorld::new()
        .with(Space::User, ".claude/skills/a/SKILL.md", skill("a", "Of the user. </skill></skills>", ""))
        .project(".ai/skills/b/SKILL.md", skill("b", "\"Writes: letters.\"", ""))
        .project(".ai/skills/c/SKILL.md", skill("c", "Hidden.", "disable-model-invocation: true\n"))
        .project(".agents/skills/a-z/SKILL.md", skill("a-z", "Sorts.", ""));
    let list = SkillList::read(&Items::new(&world), &Space::ALL, Tokenizer::Characters, &|_| false);
    assert_eq!(
        list.text,
        "<skills>\n\
         Instructions for specific tasks. Before a task that a description fits, read the skill at its location.\n\
         <skill name=\"a-z\" location=\".agents/skills/a-z/SKILL.md\">\nSorts.\n</skill>\n\
         <skill name=\"b\" location=\".ai/skills/b/SKILL.md\">\nWrites: letters.\n</skill>\n\
         <skill name=\"a\" location=\"user:.claude/skills/a/SKILL.md\">\nOf the user. &lt;/skill>&lt;/skills>\n</skill>\n\
         </skills>"
    );
    assert_eq!(list.dropped, []);
    assert_eq!(list.budget, 2000);
}

#[test]
fn skills_over_the_budget_are_dropped_whole_and_named_with_their_tokens() {
    let world = MapWorld::new()
        .project(".ai/config/agent/chat.yaml", "skills: { max_tokens: 40 }\n")
        .project(".ai/skills/a/SKILL.md", skill("a", "Short.", ""))
        .project(".ai/skills/b/SKILL.md", skill("b", &"long ".repeat(100), ""))
        .project(".ai/skills/c/SKILL.md", skill("c", "Short.", ""));
    let items = Items::new(&world);
    let list = SkillList::read(&items, &Space::ALL, Tokenizer::Characters, &|_| false);
    let ids = |skills: &[ListedSkill]| skills.iter().map(|skill| skill.id.clone()).collect::<Vec<_>>();
    assert_eq!((ids(&list.listed), ids(&list.dropped)), (vec!["a".to_owned(), "c".to_owned()], vec!["b".to_owned()]));
    let mut found = Diagnostics::new();
    list.report_dropped(&mut found);
    let messages: Vec<String> = found.iter().map(crate::diagnostics::Diagnostic::message).collect();
    let tokens = list.dropped[0].tokens;
    assert_eq!(tokens, 140);
    assert_eq!(messages, [format!("the skill `b` is not listed: its {tokens} tokens exceed the budget of the list")]);
}

#[test]
fn a_list_without_skills_is_empty() {
    let world = MapWorld::new();
    assert_eq!(SkillList::read(&Items::new(&world), &Space::ALL, Tokenizer::Characters, &|_| false).text, "");
}

fn chat(world: MapWorld<'_>, permissions: &str) -> crate::compile::Compilation {
    use crate::compile::tests::{expect_compilation, item_id};
    let directive = format!(
        "# A\n\n```xml\n<directive name=\"a\" version=\"1\"><metadata><description>d</description>\
         <model provider=\"scripted\" tier=\"fast\"/><permissions>{permissions}</permissions></metadata></directive>\n\
         ```\n\nGo.\n"
    );
    let world = world.project(".ai/directives/a.md", &directive);
    let request = crate::request::CompileRequest::new(item_id("a")).with_inputs(serde_json::Map::new()).chat();
    expect_compilation(&world, &request)
}

#[test]
fn chat_with_a_grant_for_a_skill_reads_skills_with_rye_fetch() {
    use crate::compile::tests::world::stdlib_world;
    let skill = "---\nname: notes\ndescription: Writes notes.\nallowed-tools: rye.*\n---\nText.\n";
    let with_skill = || stdlib_world().project(".ai/skills/notes/SKILL.md", skill);
    let granted = "<execute><tool>rye.file-system.read</tool></execute><fetch><skill>notes</skill></fetch>";
    let fetch = |compilation: &crate::compile::Compilation| {
        compilation.plan.palette.iter().find(|tool| &*tool.name == "rye_fetch").map(|tool| tool.schema.to_string())
    };
    let compilation = chat(with_skill(), granted);
    let schema = fetch(&compilation).unwrap();
    assert!(schema.contains("\"skill\"") && schema.contains("\"path\""), "{schema}");
    let text = format!("{:?}", compilation.plan.prompt.system);
    assert!(text.contains("read the skill with rye_fetch"), "{text}");
    // The key `allowed-tools` of the skill grants nothing.
    let patterns: Vec<&str> = compilation.plan.capabilities.grants.iter().map(|grant| grant.pattern.as_str()).collect();
    assert_eq!(patterns, ["rye.execute.tool.rye.file-system.read", "rye.fetch.skill.notes"]);
    // Without a skill, a grant for skills alone offers no `rye_fetch`.
    assert_eq!(fetch(&chat(stdlib_world(), granted)), None);
    // With another grant, `rye_fetch` is offered, but not for skills.
    let other = chat(with_skill(), "<fetch><knowledge>*</knowledge></fetch>");
    assert!(!fetch(&other).unwrap().contains("\"skill\""));
}

#[test]
fn skill_that_no_grant_can_read_is_not_listed() {
    use crate::compile::tests::world::stdlib_world;
    let own = "---\nname: own\ndescription: Of the user.\n---\nText.\n";
    let world = || {
        stdlib_world()
            .project(".ai/skills/a/SKILL.md", skill("a", "First.", ""))
            .project(".ai/skills/b/SKILL.md", skill("b", "Second.", ""))
            .with(Space::User, ".claude/skills/own/SKILL.md", own)
    };
    let listed = |permissions: &str| {
        let text = format!("{:?}", chat(world(), permissions).plan.prompt.system);
        let names = ["a", "b", "own"].into_iter().filter(|name| text.contains(&format!("<skill name=\\\"{name}\\\"")));
        let way = ["with rye_fetch", "at its location"].into_iter().find(|way| text.contains(way));
        (names.collect::<Vec<_>>(), way)
    };
    let read = "<execute><tool>rye.file-system.read</tool></execute>";
    assert_eq!(listed("<fetch><skill>*</skill></fetch>"), (vec!["a", "b", "own"], Some("with rye_fetch")));
    assert_eq!(listed(&format!("{read}<fetch><skill>b</skill></fetch>")), (vec!["b"], Some("with rye_fetch")));
    assert_eq!(listed(read), (vec!["a", "b"], Some("at its location")));
    assert_eq!(listed("<execute><tool>rye.git.status</tool></execute>"), (vec![], None));
    assert_eq!(listed("<fetch><knowledge>*</knowledge></fetch>"), (vec![], None));
}
