//! Tests that run the commands of the README, in a new folder and with an empty user space.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::fs;
use std::path::Path;

use rye::{ProcessResult, TestProject};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn readme() -> String {
    fs::read_to_string(root().join("README.md")).unwrap()
}

/// Returns the lines of the first fenced block after a mark.
fn block<'r>(readme: &'r str, mark: &str) -> Vec<&'r str> {
    let after = readme.split_once(mark).unwrap_or_else(|| panic!("the README has no {mark}")).1;
    let inside = after.split_once("```sh\n").unwrap().1.split_once("\n```").unwrap().0;
    inside.lines().collect()
}

/// Returns the arguments of `cargo run -- …` or `rye …`, without a trailing comment.
fn arguments(line: &str) -> Vec<&str> {
    let line = line.split(" #").next().unwrap();
    let line = line.strip_prefix("cargo run -- ").or_else(|| line.strip_prefix("rye "));
    line.unwrap_or_else(|| panic!("no call of rye")).split_whitespace().collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true if path.ends_with(".ai/state") => {}
            true => copy(&path, &target),
            false => drop(fs::copy(&path, &target).unwrap()),
        }
    }
}

/// Returns a project with a copy of the examples, as in a fresh clone.
fn clone() -> TestProject {
    let place = TestProject::new();
    copy(&root().join("examples"), &place.project().join("examples"));
    place
}

fn fine(place: &TestProject, line: &str) -> ProcessResult {
    let done = place.rye(&arguments(line));
    assert_eq!(done.code, Some(0), "{line}\n{}\n{}", done.stdout, done.stderr);
    done
}

#[test]
fn the_first_command_ends_in_a_thread_that_prints_its_outputs() {
    let readme = readme();
    let lines = block(&readme, "<!-- first-command -->");
    assert_eq!(lines.len(), 1);
    let done = fine(&clone(), lines[0]);
    assert!(done.stdout.contains("greeting: ") && done.stdout.contains("name: "), "{}", done.stdout);
    assert!(done.stderr.contains("completed"), "{}", done.stderr);
}

#[test]
fn plan_command_prints_origins() {
    let readme = readme();
    let lines = block(&readme, "<!-- plan-command -->");
    assert_eq!(lines.len(), 1);
    let done = fine(&clone(), lines[0]);
    for part in
        ["project/deploy/base", "rye/agent/core/base", ".ai/directives/deploy_staging.md:", "suppress", "shadow"]
    {
        assert!(done.stdout.contains(part), "{part}\n{}", done.stdout);
    }
}

#[test]
fn new_project_commands_work() {
    let readme = readme();
    let place = TestProject::new();
    let mut calls = 0;
    for line in block(&readme, "## Your own project") {
        // A new project has no provider key, so its first model must need none.
        let done = fine(&place, line);
        assert!(!done.stdout.is_empty() || !done.stderr.is_empty(), "{line} says nothing");
        calls += 1;
    }
    assert!(calls >= 5);
}

#[test]
fn linked_pages_exist() {
    let mut followed = 0;
    for page in ["README.md", "docs/README.md"] {
        let page = root().join(page);
        let text = std::fs::read_to_string(&page).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.starts_with("http")) {
            assert!(page.with_file_name(link.split('#').next().unwrap()).exists(), "{}: {link}", page.display());
            followed += 1;
        }
    }
    assert!(followed > 20, "{followed}");
}
