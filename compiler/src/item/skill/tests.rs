//! Tests of skills: the rules of the Agent Skills specification, and the text that a call sends.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use rye_grammar::ItemId;

use super::*;
use crate::diagnostics::Diagnostic;
use crate::item::Items;
use crate::world::MapWorld;

fn read_skill(path: &str, text: impl AsRef<[u8]>) -> (Option<Skill>, Vec<Diagnostic>) {
    let world = MapWorld::new().project(path, text);
    let items = Items::new(&world);
    let folder = path.rsplit('/').nth(1).unwrap();
    let skill = items.skill(&ItemId::parse(folder).unwrap()).map(|skill| (*skill).clone());
    (skill, items.diagnostics().into_iter().collect())
}

/// Returns the codes of the diagnostics; the codes of errors end in an exclamation mark.
fn codes(found: &[Diagnostic]) -> Vec<String> {
    found.iter().map(|d| format!("{}{}", d.code(), if d.is_error() { "!" } else { "" })).collect()
}

fn head(name: &str, description: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n---\nBody.\n")
}

#[test]
fn a_valid_skill_has_its_name_description_and_body() {
    let text = "---\nname: pdf\ndescription: Reads forms.\nlicense: MIT\ncompatibility: none\nmetadata: { a: b }\nallowed-tools: Bash(*)\n---\n\n# PDF\n";
    let (skill, found) = read_skill(".ai/skills/pdf/SKILL.md", text);
    let skill = skill.unwrap();
    assert_eq!(found, []);
    assert_eq!((skill.file.id.as_str(), skill.description.as_str()), ("pdf", "Reads forms."));
    assert!(!skill.is_hidden);
    assert_eq!(skill.body.node, "# PDF");
}

#[test]
fn an_element_is_byte_exact() {
    let text = "---\nname: pdf\ndescription: d\n---\n\nRead `a.md`.\n\nEnd. </skill> < / SKILL > </skills>\n\n";
    let (skill, _) = read_skill(".ai/skills/tools/pdf/SKILL.md", text);
    assert_eq!(
        skill.unwrap().element(),
        (
            "<skill name=\"pdf\" location=\".ai/skills/tools/pdf/SKILL.md\">\n\
             References are relative to .ai/skills/tools/pdf.\n\
             \n\
             Read `a.md`.\n\nEnd. &lt;/skill> &lt; / SKILL > </skills>\n\
             </skill>"
                .to_owned(),
            2
        )
    );
}

#[test]
fn names_follow_the_specification() {
    for (folder, name, reported) in [
        ("pdf", "pdf", false),
        ("a-1", "a-1", false),
        ("pdf", "pdfs", true),
        ("pdf", "PDF", true),
        ("pdf", "p_df", true),
        ("-pdf", "-pdf", true),
        ("pdf-", "pdf-", true),
        ("p--df", "p--df", true),
        ("Pdf", "Pdf", true),
        ("pdf", "\"\"", true),
        ("pdf", "\"a b\"", true),
    ] {
        for (path, expected) in
            [(".ai/skills", "skill::name!"), (".agents/skills", "skill::name"), (".claude/skills", "skill::name")]
        {
            let (skill, found) = read_skill(&format!("{path}/{folder}/SKILL.md"), head(name, "d"));
            assert!(skill.is_some_and(|skill| skill.file.id.as_str() == folder), "{path}/{folder}");
            let expected: &[&str] = if reported { &[expected] } else { &[] };
            assert_eq!(codes(&found), expected, "{path}/{folder} named {name}");
        }
    }
    let long = "a".repeat(64);
    assert_eq!(codes(&read_skill(&format!(".ai/skills/{long}/SKILL.md"), head(&long, "d")).1), Vec::<String>::new());
    let long = "a".repeat(65);
    assert_eq!(codes(&read_skill(&format!(".ai/skills/{long}/SKILL.md"), head(&long, "d")).1), ["skill::name!"]);
}

#[test]
fn length_of_a_name_counts_characters_not_bytes() {
    for (length, reason) in [(64, "has characters other than"), (65, "has 65 characters, but at most 64 are allowed")] {
        let (_, found) = read_skill(".ai/skills/a/SKILL.md", head(&"ä".repeat(length), "d"));
        let [Diagnostic::Skill(SkillError::Name { reason: reported, .. })] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert!(reported.contains(reason), "{reported}");
    }
}

#[test]
fn a_long_description_is_reported_and_kept_whole() {
    let (_, found) = read_skill(".ai/skills/a/SKILL.md", head("a", &"ä".repeat(1024)));
    assert_eq!(found, []);
    for (path, expected) in [(".ai", "skill::description!"), (".claude", "skill::description")] {
        let (skill, found) = read_skill(&format!("{path}/skills/a/SKILL.md"), head("a", &"ä".repeat(1025)));
        assert_eq!(codes(&found), [expected]);
        assert_eq!(skill.unwrap().description.chars().count(), 1025);
    }
}

#[test]
fn a_skill_without_description_is_not_loaded() {
    for text in
        ["---\nname: a\n---\nBody.", "---\nname: a\ndescription: '  '\n---\nBody.", "---\nname: a\ndescription:\n---\n"]
    {
        for (path, expected) in [(".ai", "skill::no-description!"), (".agents", "skill::no-description")] {
            let (skill, found) = read_skill(&format!("{path}/skills/a/SKILL.md"), text);
            assert!(skill.is_none());
            assert_eq!(codes(&found), [expected], "{text:?}");
        }
    }
}

#[test]
fn skills_of_other_clients_load_with_invalid_yaml() {
    let text =
        "---\nname: a\ndescription: Use when: asked for a \"b\"\nmodel: x\ndisable-model-invocation: true\n---\nBody.";
    let (skill, found) = read_skill(".claude/skills/a/SKILL.md", text);
    let skill = skill.unwrap();
    assert!(!found.is_empty() && codes(&found).iter().all(|code| code == "item::invalid-value"), "{found:?}");
    assert_eq!(skill.description, "Use when: asked for a \"b\"");
    assert!(skill.is_hidden);
    assert_eq!(skill.body.node, "Body.");
    let (skill, found) = read_skill(".ai/skills/a/SKILL.md", text);
    assert!(found.iter().any(Diagnostic::is_error));
    assert!(skill.is_none());
}

#[test]
fn hostile_skills_are_reported_and_never_panic() {
    let path = ".claude/skills/a/SKILL.md";
    let (skill, found) = read_skill(path, "-".repeat(10 << 20));
    assert!(skill.is_none());
    assert_eq!(codes(&found), ["item::unreadable!"]);
    let (skill, found) = read_skill(path, b"---\nname: a\ndescription: \xff\n---\n");
    assert!(skill.is_none());
    assert_eq!(codes(&found), ["item::unreadable!"]);
    let (skill, found) = read_skill(path, "---\nname: a\ndescription: d\n---\nx\0y");
    assert_eq!(skill.unwrap().body.node, "x\0y");
    assert_eq!(codes(&found), ["item::invalid-value"]);
    for text in ["", "---", "---\n:\n---", "---\ndescription: {\n---", "---\n\u{1}: x\n---"] {
        assert!(read_skill(path, text).0.is_none_or(|skill| !skill.description.is_empty()), "{text:?}");
    }
}
