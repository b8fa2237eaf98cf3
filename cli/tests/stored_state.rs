//! Tests with files that version 0.1 wrote: `cli/tests/state-0.1` holds a project after two runs, a completed run with a
//! child and a steering message, and a run that the `turns` limit ended. `plan.json` is its plan. Later versions list,
//! show, verify and resume the threads, and compare the plan.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::path::Path;

use rye::TestProject;

const COMPLETED: &str = "talk-1795766075";
const STOPPED: &str = "talk-1795766083";
const CHILD: &str = "part-1795766075";

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
    assert_eq!(place.transcript(COMPLETED).len(), 30);
    let read = place.run_ok(&["threads", "transcript", COMPLETED]);
    assert!(read.contains("Keep it kind."), "the steering message has the field `letter`: {read}");
    assert_eq!(place.json(&["threads", "show", CHILD]).1["status"], "completed");
    assert!(place.run_ok(&["threads", "transcript", STOPPED]).contains("turns_exceeded"));
    let repaired = place.rye(&["threads", "repair"]);
    assert_eq!(repaired.code, Some(0), "{}", repaired.stderr);
    assert_eq!(place.json(&["threads", "list"]).1["threads"].as_array().unwrap().len(), 3);
}

#[test]
fn prune_states_the_cost_of_a_tree_before_its_removal() {
    let place = stored();
    let prune = ["threads", "prune", "--older-than", "0"];
    let (_, dry) = place.json(&[&prune[..], &["--dry-run"]].concat());
    let tokens = |id: &str| {
        let threads = dry["threads"].as_array().unwrap();
        threads.iter().find(|thread| thread["thread_id"] == id).unwrap()["cost"]["input_tokens"].as_u64().unwrap()
    };
    assert!(tokens(COMPLETED) > tokens(CHILD) && tokens(CHILD) > 0, "{dry}");
    assert_eq!(place.json(&prune), (Some(0), dry));
    assert_eq!(place.json(&["threads", "list"]).1["threads"].as_array().unwrap().len(), 0);
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

#[test]
fn plan_of_version_0_1_is_compared() {
    let place = stored();
    let fields = ["\"executes\":", "\"asked\":", "\"unattended\":", "\"hole\":", "\"wall\":"];
    let text = std::fs::read_to_string(place.project().join("plan.json")).unwrap();
    assert!(fields.iter().all(|field| text.contains(field)), "the plan has the names of 0.1");
    let compared = place.rye(&["plan", "talk", "--input", "topic=tea", "--diff", "plan.json"]);
    assert_eq!(compared.code, Some(3), "{}", compared.stderr);
    assert!(compared.stdout.contains("talk  ·  87e328976225 → "), "{}", compared.stdout);
    let refused = place.rye(&["run", "--plan", "plan.json", "--script", "done.yaml"]);
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    assert!(refused.stderr.contains("`plan.json` differs from the current plan"), "{}", refused.stderr);
}
