//! Tests of `rye fmt` as a process.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use rye::TestProject;

const LOOSE: &str = "# A\n\nSays  a.\n\n```xml\n<directive name='a'  version=\"1.0.0\"><limits max_turns=\"3\"/>\n<!-- nothing -->\n<permissions></permissions></directive>\n```\n\nSay  a.\n";
const TIGHT: &str = "# A\n\nSays  a.\n\n```xml\n<directive name=\"a\" version=\"1.0.0\">\n  <metadata>\n    <limits turns=\"3\"/>\n    <!-- nothing -->\n    <permissions/>\n  </metadata>\n</directive>\n```\n\nSay  a.\n";

#[test]
fn formatting_is_idempotent_and_keeps_the_meaning() {
    let place = TestProject::own();
    place.write(".ai/directives/a.md", LOOSE);
    place.write(".ai/directives/x/broken.md", "```xml\n<directive\n```\n");
    let (_, before) = place.json(&["plan", "a"]);
    let check = place.rye(&["fmt", "--check", "a"]);
    assert_eq!(check.code, Some(1));
    assert!(
        check.stdout.contains("-<directive name='a'") && check.stdout.contains("+  <metadata>"),
        "{}",
        check.stdout
    );
    assert_eq!(place.read(".ai/directives/a.md"), LOOSE);
    let (code, done) = place.json(&["fmt"]);
    assert_eq!((code, &done["changed"][0]), (Some(1), &".ai/directives/a.md".into()));
    assert_eq!(done["skipped"][0]["file"], ".ai/directives/x/broken.md");
    assert_eq!(place.read(".ai/directives/a.md"), TIGHT);
    assert_eq!(place.rye(&["fmt", "--check", ".ai/directives/a.md"]).code, Some(0));
    let (_, after) = place.json(&["plan", "a"]);
    assert_ne!(before["plan_id"], after["plan_id"], "another file");
    for part in ["first_message", "limits", "capabilities", "system", "palette"] {
        let plain = |v: &serde_json::Value| v[part].to_string().replace(char::is_numeric, "");
        assert_eq!(plain(&before), plain(&after), "{part}");
    }
}

#[test]
fn examples_and_starter_are_formatted() {
    for example in ["deploy", "hello", "review"] {
        let place = TestProject::example(example);
        let done = place.rye(&["fmt", "--check"]);
        assert_eq!(done.code, Some(0), "{example}\n{}{}", done.stdout, done.stderr);
    }
    let place = TestProject::own();
    place.run_ok(&["init"]);
    let done = place.rye(&["fmt", "--check"]);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
}

#[test]
fn formatting_keeps_comments_and_trims_blanks() {
    let place = TestProject::own();
    let hooks = "# all of them  \nhooks:\n\n\n\n  - { id: a, event: thread_started, action: { primary: load, item_type: knowledge, item_id: n } }   \n";
    place.write(".ai/config/agent/hooks.yaml", hooks);
    place.write(".ai/knowledge/n.md", "---\nname: Note  \n---\n\nA line  \nof two.\n\n\n");
    place.write(".ai/knowledge/agent/threads/x/y.md", "An export.  \n\n\n");
    let check = place.rye(&["fmt", "--check"]);
    assert_eq!(check.code, Some(1), "{}", check.stdout);
    let (code, done) = place.json(&["fmt"]);
    assert_eq!((code, done["files"].as_u64()), (Some(0), Some(2)));
    let tidy = "# all of them\nhooks:\n\n  - { id: a, event: thread_started, action: { primary: fetch, item_type: knowledge, item_id: n } }\n";
    assert_eq!(place.read(".ai/config/agent/hooks.yaml"), tidy);
    assert_eq!(place.read(".ai/knowledge/n.md"), "---\nname: Note\n---\n\nA line  \nof two.\n");
    assert_eq!(place.read(".ai/knowledge/agent/threads/x/y.md"), "An export.  \n\n\n");
    assert_eq!(place.rye(&["fmt", "--check"]).code, Some(0));
}

#[test]
fn files_outside_of_a_project_are_formatted_by_their_content() {
    let place = TestProject::new();
    place.write("a.md", LOOSE);
    place.write("b.yaml", "a:   1\n");
    assert_eq!(place.rye(&["fmt", "--check", "a.md"]).code, Some(1));
    let (code, done) = place.json(&["fmt", "a.md", "b.yaml"]);
    assert_eq!((code, &done["files"]), (Some(0), &2.into()), "{done}");
    assert_eq!(place.read("a.md"), TIGHT);
    assert_eq!(place.rye(&["fmt", "--check", "a.md", "b.yaml"]).code, Some(0));
    let without = place.rye(&["fmt"]);
    assert!(without.code == Some(2) && without.stderr.contains("rye fmt FILE"), "{}", without.stderr);
    place.write("c.txt", "text");
    assert_eq!(place.rye(&["fmt", "c.txt"]).code, Some(2));
}
