//! Tests of `rye new` and `rye fetch`: templates that pass `rye check`, searches, copies, and no overwritten files.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use rye::TestProject;
use serde_json::json;

#[test]
fn new_items_pass_check_in_every_language() {
    let place = TestProject::own();
    place.run_ok(&["init"]);
    assert_eq!(place.run_ok(&["new", "directive", "team/report"]).trim(), ".ai/directives/team/report.md");
    assert_eq!(place.run_ok(&["new", "knowledge", "team/rules"]).trim(), ".ai/knowledge/team/rules.md");
    for (language, file) in [
        ("command", "a.yaml"),
        ("http", "b.yaml"),
        ("python", "c.py"),
        ("javascript", "d.mjs"),
        ("typescript", "e.ts"),
        ("shell", "f.sh"),
    ] {
        let id = format!("team/{}", file.split('.').next().unwrap());
        let made = place.run_ok(&["new", "tool", &id, "--language", language]);
        assert_eq!(made.trim(), format!(".ai/tools/team/{file}"));
        let text = place.read(made.trim());
        let comment = "# yaml-language-server: $schema=../../state/schemas/tool.json\n";
        assert_eq!(text.starts_with(comment), file.rsplit_once('.').unwrap().1 == "yaml", "{text}");
    }
    assert!(place.read(".ai/state/schemas/tool.json").contains("additionalProperties"));
    // A script without declarations is a module for the scripts next to it.
    place.write(".ai/tools/team/helper.py", "def double(n):\n    return 2 * n\n");
    let (code, checked) = place.json(&["check"]);
    assert_eq!((code, &checked["summary"]["errors"]), (Some(0), &json!(0)), "{checked}");
    // With another extension, the id would have two files.
    let again = place.rye(&["new", "tool", "team/c", "--language", "shell"]);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("already: `.ai/tools/team/c.py`"), "{}", again.stderr);
    assert_eq!(place.rye(&["new", "tool", "../x"]).code, Some(2));
}

#[test]
fn fetch_shows_finds_and_copies() {
    let place = TestProject::own();
    place.run_ok(&["init"]);
    place.write(".ai/knowledge/team/rules.md", "---\ntitle: House rules\ntags: [friday]\n---\n\nNever on Friday.\n");
    place.write(".ai/tools/team/count.py", "__tool_description__ = 'Counts.'\ndef main():\n    pass\n");
    assert_eq!(place.run_ok(&["fetch", "knowledge", "team/rules"]).trim(), "Never on Friday.");
    assert!(place.run_ok(&["fetch", "tool", "team/count"]).contains("\"description\":\"Counts.\""));
    let (_, found) = place.json(&["search", "knowledge", "-s", "tags:friday AND \"house rules\""]);
    assert_eq!((&found["total"], &found["hits"][0]["item_id"]), (&json!(1), &json!("team/rules")));
    let (_, none) = place.json(&["fetch", "knowledge", "-s", "friday", "--scope", "rye.search.knowledge.rye.*"]);
    assert_eq!(none["total"], 0);
    let bad = place.rye(&["fetch", "knowledge", "-s", "\"open"]);
    assert!(bad.code == Some(1) && bad.stderr.contains("unclosed quote"), "{}", bad.stderr);
    let (code, copied) = place.json(&["fetch", "knowledge", "team/rules", "--copy-to", "user"]);
    assert_eq!((code, &copied["space"]), (Some(0), &json!("project")));
    assert_eq!(
        std::fs::read_to_string(copied["copied_to"].as_str().unwrap()).unwrap(),
        place.read(".ai/knowledge/team/rules.md")
    );
    assert_eq!(place.rye(&["fetch", "knowledge", "team/rules", "--copy-to", "user"]).code, Some(1));
    assert_eq!(place.rye(&["fetch", "knowledge", "team/rules", "--copy-to", "project"]).code, Some(1));
    let system = place.run_ok(&["fetch", "tool", "rye/bash/bash", "--copy-to", "project"]);
    assert!(system.trim().ends_with(".ai/tools/rye/bash/bash.yaml"));
    for args in [&["fetch", "tool", "no/such"][..], &["fetch", "tool", "rye/bash/bash", "--copy-to", "project"]] {
        assert_eq!(place.rye(args).code, Some(1), "{args:?}");
    }
    for args in [&["fetch", "tool", "a.b"][..], &["fetch", "tool"], &["fetch", "tool", "a", "-s", "b"]] {
        assert_eq!(place.rye(args).code, Some(2), "{args:?}");
    }
}
