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
    let list = SkillList::read(&Items::new(&world), &Space::ALL, Tokenizer::Characters);
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
    let list = SkillList::read(&items, &Space::ALL, Tokenizer::Characters);
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
    assert_eq!(SkillList::read(&Items::new(&world), &Space::ALL, Tokenizer::Characters).text, "");
}
