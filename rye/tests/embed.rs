//! The examples of the library run and print the expected output.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::path::PathBuf;
use std::process::Command;

/// Runs an example of this package and returns what it prints.
fn run_example(name: &str) -> String {
    let test = std::env::current_exe().unwrap();
    let target: PathBuf = test.ancestors().nth(2).unwrap().join("examples").join(name);
    let output = Command::new(&target).output().unwrap_or_else(|error| panic!("{}: {error}", target.display()));
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn scripted_run_prints_events_and_outputs() {
    let printed = run_example("embed-scripted-run");
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines.first().unwrap().ends_with(": 3 tools"), "{printed}");
    assert!(lines.iter().any(|line| line.ends_with(" thread_completed")), "{printed}");
    assert!(lines.last().unwrap().starts_with("completed: {\"greeting\":"), "{printed}");
}

#[test]
fn custom_tool_answers_the_model() {
    assert_eq!(run_example("embed-custom-tool"), "There are 42 lamps.\n");
}

#[test]
fn approval_handler_approves_and_refuses() {
    let printed = run_example("embed-approval-handler");
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[0].ends_with("{\"command\":\"ls\"}: Approve"), "{printed}");
    assert!(lines[1].ends_with("{\"command\":\"rm -r .\"}: Refuse"), "{printed}");
    assert_eq!(lines[2], "I could only list the files.");
}
