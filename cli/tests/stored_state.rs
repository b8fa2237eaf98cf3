//! Tests with threads that version 0.1 stored: `cli/tests/state-0.1` holds a project after two runs: a completed run
//! with a child, and a run that the `turns` limit ended. Later versions list, show, verify and resume them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::path::Path;

use rye::TestProject;

const COMPLETED: &str = "talk-1795447878";
const STOPPED: &str = "talk-1795447879";
const CHILD: &str = "part-1795447879";

/// Returns a copy of the stored project, with its files as they were.
fn stored() -> TestProject {
    let place = TestProject::own();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/state-0.1");
    for file in rye::files(&from) {
        let to = place.project().join(&file);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from.join(&file), to).unwrap();
    }
    place
}

#[test]
fn threads_of_version_0_1_are_listed_and_shown() {
    let place = stored();
    let (code, listed) = place.json(&["threads", "list"]);
    let ids: Vec<&str> =
        listed["threads"].as_array().unwrap().iter().map(|t| t["thread_id"].as_str().unwrap()).collect();
    assert_eq!((code, ids), (Some(0), vec![STOPPED, COMPLETED, CHILD]), "{listed}");
    let (_, shown) = place.json(&["threads", "show", COMPLETED]);
    assert_eq!((&shown["status"], &shown["outputs"]["note"]), (&"completed".into(), &"kind".into()), "{shown}");
    assert_eq!(place.transcript(COMPLETED).len(), 23);
    assert!(place.run_ok(&["threads", "transcript", STOPPED]).contains("turns_exceeded"));
    let repaired = place.rye(&["threads", "repair"]);
    assert_eq!(repaired.code, Some(0), "{}", repaired.stderr);
    assert_eq!(place.json(&["threads", "list"]).1["threads"].as_array().unwrap().len(), 3);
}

#[test]
fn signatures_of_version_0_1_are_verified() {
    let place = stored();
    let untrusted = place.rye(&["threads", "verify"]);
    assert_eq!(untrusted.code, Some(1), "the key is not trusted yet");
    assert_eq!(untrusted.stdout.matches("which is not trusted").count(), 3, "{}", untrusted.stdout);
    assert_eq!(untrusted.stderr.matches("rye keys trust FILE").count(), 1, "{}", untrusted.stderr);
    place.run_ok(&["keys", "trust", "maker.pem"]);
    let (code, verified) = place.json(&["threads", "verify", "--strict"]);
    assert_eq!((code, verified["threads"].as_array().unwrap().len()), (Some(0), 3), "{verified}");
}

#[test]
fn threads_of_version_0_1_are_resumed() {
    let place = stored();
    place.run_ok(&["keys", "generate"]);
    place.run_ok(&["trust"]);
    let script = "steps:\n  - tool_calls:\n      - { name: rye_directive_return, input: { note: done } }\n";
    place.write("stop.yaml", script);
    place.run_ok(&["trust"]);
    let resume = ["run", "--resume", STOPPED, "--message", "Go on.", "--script", "stop.yaml", "--trust-record"];
    let (code, resumed) = place.json(&resume);
    assert_eq!((code, &resumed["outputs"]["note"]), (Some(0), &"done".into()), "{resumed}");
}
