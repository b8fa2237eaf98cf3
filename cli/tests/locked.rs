//! Tests of `rye run --locked` as a process: every thread of the run must match the lock.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use rye::TestProject;
use serde_json::Value;

fn directive(name: &str, metadata: &str) -> String {
    format!(
        "{name}.\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\">\n<metadata><description>d</description>\
         <model provider=\"scripted\" tier=\"fast\"/>{metadata}</metadata>\n</directive>\n```\n\nGo.\n"
    )
}

const BASH: &str = "<permissions><execute><tool>rye.bash.*</tool></execute>\
                    <acknowledge risk=\"elevated\">t</acknowledge></permissions>";
const READ: &str = "<permissions><execute><tool>rye.file-system.read</tool></execute></permissions>";

/// Returns a project with a root that starts `child`, which calls bash if it is allowed to; `call` holds the other
/// parameters of the call.
fn project(call: &str) -> TestProject {
    let place = TestProject::own();
    let root = "<permissions><execute><tool>rye.bash.*</tool><tool>rye.file-system.read</tool><directive>*</directive></execute>\
                <acknowledge risk=\"elevated\">t</acknowledge></permissions>";
    place.write(".ai/directives/root.md", &directive("root", root));
    place.write(".ai/directives/child.md", &directive("child", READ));
    place.write(
        "script.yaml",
        &format!(
            "steps:\n  - tool_calls:\n      - {{ name: rye_execute, input: {{ item_type: directive, item_id: child, parameters: {{}}{call} }} }}\n  \
             - Done.\nthreads:\n  child:\n    - tool_calls:\n        - {{ name: rye_bash_bash, input: {{ command: echo ran }} }}\n    - Done.\n"
        ),
    );
    place
}

fn run(place: &TestProject) -> rye::ProcessResult {
    place.rye(&["run", "root", "--locked", "--script", "script.yaml"])
}

/// Checks that the run was refused with a message that contains `says` and the command that locks the child, and that
/// no child ran.
fn assert_refused(place: &TestProject, done: &rye::ProcessResult, says: &str) {
    assert_eq!(done.code, Some(5), "{}{}", done.stdout, done.stderr);
    for part in [says, "rye lock child"] {
        assert!(done.stderr.contains(part), "{part}\n{}", done.stderr);
    }
    let (_, listed) = place.json(&["threads", "list"]);
    let children = listed["threads"].as_array().unwrap().iter().filter(|one| one["directive"] == "child");
    assert!(children.clone().all(|one| one["status"] == "error" || one["status"].is_null()), "{listed}");
}

#[test]
fn locked_run_refuses_a_child_that_changed() {
    for call in ["", ", async: true"] {
        let place = project(call);
        place.run_ok(&["lock"]);
        assert_eq!(run(&place).code, Some(0), "as it was locked{}", run(&place).stderr);
        let place = project(call);
        place.run_ok(&["lock"]);
        place.write(".ai/directives/child.md", &directive("child", BASH));
        let done = run(&place);
        assert_refused(&place, &done, "`child` differs from the lock file: directive child (project) changed");
        assert!(!done.stdout.contains("ran"), "{}", done.stdout);
        assert_eq!(place.rye(&["lock", "--check"]).code, Some(5));
        place.run_ok(&["lock", "child"]);
        assert_eq!(run(&place).code, Some(0), "locked anew");
    }
}

#[test]
fn locked_run_refuses_a_child_that_is_not_locked() {
    let place = project("");
    std::fs::remove_file(place.project().join(".ai/directives/child.md")).unwrap();
    place.run_ok(&["lock"]);
    place.write(".ai/directives/child.md", &directive("child", READ));
    let done = run(&place);
    assert_refused(&place, &done, "`child` is not locked");
}

#[test]
fn locked_run_of_a_directive_that_is_not_locked_is_refused() {
    let place = project("");
    place.run_ok(&["lock", "child"]);
    let done = run(&place);
    assert_eq!((done.code, done.stderr.contains("`root` is not locked")), (Some(5), true), "{}", done.stderr);
}

#[test]
fn locked_run_refuses_what_the_child_of_a_hook_starts() {
    let place = project("");
    place.write(
        "script.yaml",
        "steps:\n  - Done.\nthreads:\n  middle:\n    - tool_calls:\n        - { name: rye_execute, input: { item_type: directive, \
         item_id: child, parameters: {} } }\n    - Done.\n  child:\n    - Done.\n",
    );
    let grants = "<permissions><execute><directive>*</directive></execute></permissions>";
    let hook = "<hooks><hook id=\"h\" event=\"after_complete\"><execute item_type=\"directive\" item_id=\"middle\"/></hook></hooks>";
    place.write(".ai/directives/root.md", &directive("root", &format!("{hook}{grants}")));
    place.write(".ai/directives/middle.md", &directive("middle", grants));
    place.run_ok(&["lock"]);
    let as_locked = run(&place);
    assert_eq!(as_locked.code, Some(0), "{}", as_locked.stderr);
    assert!(place.run_ok(&["threads", "list"]).contains("child"), "the hook's child starts one");
    place.write(".ai/directives/child.md", &directive("child", BASH));
    let done = run(&place);
    assert_eq!(done.code, Some(5), "{}{}", done.stdout, done.stderr);
    assert!(
        done.stderr.contains("`child` differs from the lock file: directive child (project) changed"),
        "{}",
        done.stderr
    );
}

#[test]
fn lock_of_a_directive_holds_what_it_starts() {
    let place = project("");
    place.run_ok(&["lock", "root"]);
    let lock = place.read(".ai/lock.json");
    assert!(lock.contains("\"child\": ["), "{lock}");
    place.write(".ai/directives/child.md", &directive("child", BASH));
    let check = place.rye(&["lock", "--check", "root"]);
    assert_eq!(
        (check.code, check.stdout.contains("child: directive child (project) changed")),
        (Some(5), true),
        "{}",
        check.stdout
    );
}

#[test]
fn lock_check_names_every_difference_beside_directives_that_are_not_locked() {
    let place = project("");
    place.write(".ai/directives/gone.md", &directive("gone", ""));
    place.run_ok(&["lock"]);
    std::fs::remove_file(place.project().join(".ai/directives/gone.md")).unwrap();
    place.write(".ai/directives/child.md", &directive("child", BASH));
    // The lock of `root` holds what it can start, and `root` can start every directive below `child`.
    let lock: Value = serde_json::from_str(&place.read(".ai/lock.json")).unwrap();
    let mut without_child = lock.clone();
    without_child["directives"].as_object_mut().unwrap().remove("child");
    place.write(".ai/lock.json", &without_child.to_string());
    let root = place.read(".ai/directives/root.md");
    place.write(".ai/directives/root.md", &format!("{root}\nMore.\n"));
    let check = place.rye(&["lock", "--check"]);
    assert_eq!(check.code, Some(5), "{}{}", check.stdout, check.stderr);
    for named in [
        "child: the directive is not in the lock file",
        "gone: the directive is in the lock file but does not exist",
        "root: directive root (project) changed",
    ] {
        assert!(check.stdout.contains(named), "{named}: {}", check.stdout);
    }
}

#[test]
fn lock_check_names_every_difference_beside_a_directive_with_errors() {
    let place = project("");
    place.run_ok(&["lock"]);
    place.write(
        ".ai/directives/child.md",
        &directive("child", "").replace("<metadata>", "<metadata><model tier=\"nope\"/>"),
    );
    let root = place.read(".ai/directives/root.md");
    place.write(".ai/directives/root.md", &format!("{root}\nMore.\n"));
    let (code, output) = place.json(&["lock", "--check"]);
    assert_eq!(code, Some(5), "{output}");
    let drift = |directive: &str, what: &str, how: &str| {
        output["drift"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["directive"] == directive && one["what"] == what && one["how"] == how)
    };
    assert!(drift("child", "the directive", "invalid"), "{output}");
    assert!(drift("root", "directive root (project)", "changed"), "{output}");
    assert_eq!(place.rye(&["lock"]).code, Some(1), "a directive with errors cannot be locked");
}

#[test]
fn locked_resume_refuses_a_thread_whose_directive_changed() {
    let place = project("");
    place.write("script.yaml", "steps:\n  - Done.\n  - Again.\n");
    place.run_ok(&["keys", "generate"]);
    place.run_ok(&["lock"]);
    assert_eq!(run(&place).code, Some(0));
    let (_, listed) = place.json(&["threads", "list"]);
    let id = listed["threads"][0]["thread_id"].as_str().unwrap().to_owned();
    let resume = ["run", "--resume", &id, "--message", "More.", "--locked", "--script", "script.yaml"];
    let as_locked = place.rye(&resume);
    assert_eq!(as_locked.code, Some(0), "{}", as_locked.stderr);
    place.write(".ai/directives/root.md", &directive("root", BASH));
    let done = place.rye(&resume);
    assert_eq!(done.code, Some(5), "{}{}", done.stdout, done.stderr);
    assert!(done.stderr.contains("`root` differs from the lock"), "{}", done.stderr);
    // A resume of a locked run is locked, also without the flag.
    for resume in
        [vec!["run", "--resume", &id, "--message", "More."], vec!["threads", "resume", &id, "--message", "More."]]
    {
        let done = place.rye(&resume);
        assert_eq!(done.code, Some(5), "{resume:?} {}{}", done.stdout, done.stderr);
        assert!(done.stderr.contains("`root` differs from the lock"), "{resume:?} {}", done.stderr);
    }
}
