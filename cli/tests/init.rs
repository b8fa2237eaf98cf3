//! Tests of `rye init`: created files, and files that it must not change.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::path::Path;
use std::process::Command;

use rye::{TestProject, files};
use serde_json::json;

#[test]
fn a_new_project_has_a_directive_a_script_and_ignores_its_state() {
    let place = TestProject::new();
    let (code, made) = place.json(&["init"]);
    assert_eq!(code, Some(0));
    assert_eq!(made["directive"], "first");
    assert_eq!(made["files"], json!([".ai/directives/first.md", "script.yaml", ".gitignore"]));
    assert_eq!(files(&place.project()), [".ai/directives/first.md", ".gitignore", "script.yaml"]);
    assert_eq!(place.read(".gitignore"), ".ai/state/\n.ai/knowledge/agent/threads/\n");
}

#[test]
fn init_creates_the_named_folder() {
    let place = TestProject::new();
    assert!(place.run_ok(&["init", "a/b"]).contains("first.md"));
    assert!(place.project().join("a/b/.ai/directives/first.md").is_file());
}

#[test]
fn nothing_is_overwritten_and_lines_are_added_once() {
    let place = TestProject::new();
    place.write(".gitignore", "target\n.ai/state/ \nlast");
    let printed = place.run_ok(&["init"]);
    assert!(printed.contains("  .gitignore (ignores .ai/knowledge/agent/threads/)\n"), "{printed}");
    assert_eq!(place.read(".gitignore"), "target\n.ai/state/ \nlast\n.ai/knowledge/agent/threads/\n");
    let again = place.rye(&["init"]);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("is already a project"), "{}", again.stderr);

    let place = TestProject::new();
    place.write("script.yaml", "mine\n");
    let refused = place.rye(&["init", "."]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("script.yaml"), "{}", refused.stderr);
    assert_eq!(files(&place.project()), ["script.yaml"]);
    assert_eq!(place.rye(&["init", "--example", "nonsense"]).code, Some(2));
    assert_eq!(place.rye(&["init", "script.yaml"]).code, Some(1));
}

#[test]
fn examples_are_copied_without_run_state() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in ["hello", "review", "deploy"] {
        let place = TestProject::example(name);
        let mut copied = files(&place.project());
        copied.retain(|file| !file.starts_with(".ai/state/schemas/"));
        assert!(!copied.iter().any(|file| file.starts_with(".ai/state")), "{copied:?}");
        assert!(!place.read("README.md").contains("--project"));
        let listed =
            Command::new("git").args(["ls-files"]).current_dir(repository.join("examples").join(name)).output();
        let Ok(listed) = listed else { continue };
        let mut tracked: Vec<&str> = std::str::from_utf8(&listed.stdout).unwrap().lines().collect();
        tracked.push(".gitignore");
        tracked.sort_unstable();
        // Outside a repository (a source archive) there is nothing to compare with.
        assert!(tracked.len() == 1 || copied == tracked, "{copied:?}\n{tracked:?}");
    }
}

#[test]
fn bare_project_has_folders_only_and_new_items_name_the_next_step() {
    let place = TestProject::new();
    let (code, made) = place.json(&["init", "--bare"]);
    assert_eq!((code, &made["directive"], &made["files"]), (Some(0), &json!(null), &json!([".gitignore"])));
    assert_eq!(files(&place.project()), [".gitignore"]);
    let made = place.rye(&["new", "directive", "report"]);
    assert_eq!(made.stdout, ".ai/directives/report.md\n");
    assert!(made.stderr.contains("rye plan report"), "{}", made.stderr);
    let made = place.rye(&["new", "tool", "a/count"]);
    assert!(made.stderr.contains("<tool>a.count</tool>"), "{}", made.stderr);
    place.run_ok(&["check"]);
}
