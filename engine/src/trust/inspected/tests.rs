//! Tests of trust that is recorded from inspected files, and of trust in files that a command writes.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;

use super::super::tests::{TestSpaces, command_requirement};
use super::*;

#[test]
fn trust_holds_for_the_inspected_contents_whatever_changes_before_the_answer() {
    let spaces = TestSpaces::new();
    let file = spaces.project().join("run.sh");
    fs::write(&file, "echo good").unwrap();
    let one = command_requirement("t", "11", &["bash", "run.sh"]);
    let inspected = spaces.trust().inspect(std::slice::from_ref(&one)).unwrap();
    fs::write(&file, "echo bad").unwrap();
    spaces.trust().record_inspected(&inspected).unwrap();
    assert!(!spaces.is_trusted(&one));
    fs::write(&file, "echo good").unwrap();
    assert!(spaces.is_trusted(&one));
}

#[test]
fn files_that_a_command_writes_keep_the_trust_that_held_before() {
    let spaces = TestSpaces::new();
    let (project, trust) = (spaces.project(), spaces.trust());
    let write = |name: &str, text: &str| fs::write(project.join(name), text).unwrap();
    let written = |name: &str, before: Option<&str>, after: &str| {
        write(name, after);
        WrittenFile::new(name.to_owned(), before.map(str::as_bytes), Some(after.as_bytes()))
    };
    write("a.json", "1");
    write("run.sh", "echo good");
    let (whole, named) = (command_requirement("w", "11", &["."]), command_requirement("n", "22", &["later.sh"]));
    let all = [whole.clone(), named.clone()];
    let held = || trust.snapshot().unwrap().held(&all).unwrap();
    assert!(held().is_empty(), "nothing is trusted yet");
    trust.record_trust(&all).unwrap();
    let before = held();
    trust.record_written(&before, &[written("a.json", Some("1"), "2"), written("new.json", None, "3")]).unwrap();
    assert!(spaces.is_trusted(&whole));
    // A new file belongs to the whole project, not to a command that names it.
    trust.record_written(&held(), &[written("later.sh", None, "echo")]).unwrap();
    assert!(spaces.is_trusted(&whole) && !spaces.is_trusted(&named));
    // Another program changes the file before the command writes it, or afterward.
    let before = held();
    trust.record_written(&before, &[written("a.json", Some("other"), "4")]).unwrap();
    assert!(!spaces.is_trusted(&whole));
    let change = written("a.json", Some("2"), "5");
    write("a.json", "6");
    trust.record_written(&before, &[change]).unwrap();
    assert!(!spaces.is_trusted(&whole));
    write("a.json", "5");
    assert!(spaces.is_trusted(&whole));
    // Another changed file still ends the trust.
    write("run.sh", "echo bad");
    assert!(held().is_empty());
    trust.record_written(&before, &[written("a.json", Some("5"), "7")]).unwrap();
    assert!(!spaces.is_trusted(&whole));
}

#[test]
fn approvals_that_two_processes_record_at_once_are_all_kept() {
    let spaces = TestSpaces::new();
    std::thread::scope(|scope| {
        for half in 0..2 {
            let trust = spaces.trust();
            scope.spawn(move || (0..50).for_each(|n| trust.record_capability(&format!("c{half}.{n}")).unwrap()));
        }
    });
    assert_eq!(spaces.trust().snapshot().unwrap().capabilities().len(), 100);
}
