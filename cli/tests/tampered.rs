//! Tests with altered transcripts, and with transcripts that no key of the user signed: each command that resumes a
//! thread refuses them with exit code 5 before anything runs.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use rye::TestProject;
use rye_engine::store::RealDisk;
use rye_engine::store::transcript::line::{self, LinePosition};
use rye_engine::store::transcript::{self, ChainHash, TranscriptRecord};
use rye_engine::thread_id::ThreadId;
use serde_json::{Map, Value, json};

const BASH: &str = "rye_bash_bash";

/// Returns a project with a directive that may only read. In a resumed thread, the model tries to write a file with a
/// shell.
fn place() -> TestProject {
    let place = TestProject::own();
    place.run_ok(&["init"]);
    place.write(
        ".ai/directives/reads.md",
        "```xml\n<directive name=\"reads\" version=\"1.0.0\">\n<metadata><description>d</description>\
         <model provider=\"scripted\" tier=\"fast\"/><nudge>never</nudge><permissions><execute><tool>rye.file-system.read</tool></execute>\
         </permissions></metadata>\n</directive>\n```\n\nRead.\n",
    );
    place.write(
        "script.yaml",
        &format!(
            "steps:\n  - One.\n  - tool_calls: [{{ name: {BASH}, input: {{ command: echo ran > ran.txt }} }}]\n  - Two.\n  - Three.\n  - Four.\n"
        ),
    );
    place
}

fn ran(place: &TestProject) -> String {
    let (code, result) = place.json(&["run", "reads"]);
    assert_eq!(code, Some(0), "{result}");
    result["thread_id"].as_str().unwrap().to_owned()
}

/// Rewrites a transcript with a valid hash chain; keeps its signatures or removes them.
fn forge(place: &TestProject, id: &str, keeps_seals: bool, edit: impl FnOnce(&mut Vec<TranscriptRecord>)) {
    let thread = ThreadId::parse(id).unwrap();
    let disk = RealDisk::open(&place.project()).unwrap();
    let mut records = transcript::read(&disk, &thread, 0).unwrap().records;
    edit(&mut records);
    let (mut text, mut before) = (String::new(), ChainHash::start(&thread));
    for (seq, record) in records.iter().enumerate() {
        let head = LinePosition { seq: seq as u64, ts: record.ts, barrier: record.barrier, before };
        let mark = record.seal.as_ref().map(|seal| seal.mark.clone()).unwrap_or_default();
        let kept = |_: u64, _: ChainHash| mark.clone();
        let signer: Option<line::LineSigner<'_>> =
            if keeps_seals && record.seal.is_some() { Some(&kept) } else { None };
        let (line, record) = line::write(&head, &record.body, signer).unwrap();
        text.push_str(&line);
        before = record.hash;
    }
    place.write(&format!(".ai/state/threads/{id}/transcript.jsonl"), &text);
}

/// A change of the records of a transcript.
type Edit = fn(&mut Vec<TranscriptRecord>);

#[expect(clippy::ptr_arg, reason = "an edit may also insert records")]
fn widened(records: &mut Vec<TranscriptRecord>) {
    let body: &mut Map<String, Value> = &mut records[0].body;
    body.insert("grants".into(), json!([[{"pattern": "rye.*", "write": ["*"], "net": ["*"]}]]));
}

/// Returns every command that would resume a finished thread.
fn commands(id: &str) -> [Vec<&str>; 5] {
    [
        vec!["run", "--resume", id, "--message", "more"],
        vec!["run", "--resume", id, "--message", "more", "--fork-at", "1"],
        vec!["run", "--resume", id, "--message", "more", "--detach"],
        vec!["threads", "resume", id, "--message", "more"],
        vec!["threads", "handoff", id],
    ]
}

fn threads(place: &TestProject) -> usize {
    place.json(&["threads", "list"]).1["threads"].as_array().unwrap().len()
}

#[test]
fn resume_refuses_tampered_grants_whatever_is_accepted() {
    for keeps_seals in [true, false] {
        let place = place();
        let id = ran(&place);
        forge(&place, &id, keeps_seals, widened);
        for mut command in commands(&id) {
            command.push("--trust-record");
            let done = place.rye(&command);
            assert_eq!(done.code, Some(5), "{command:?}: {}", done.stderr);
            let file = format!(".ai/state/threads/{id}/transcript.jsonl");
            assert!(done.stderr.contains(&file) && done.stderr.contains("at line "), "{command:?}: {}", done.stderr);
            assert!(done.stderr.contains("rye threads verify"), "{command:?}: {}", done.stderr);
            assert!(!done.stderr.contains("rye.*"), "{command:?}: {}", done.stderr);
        }
        assert!(!place.project().join("ran.txt").exists());
        assert_eq!(threads(&place), 1);
    }
}

#[test]
fn resume_refuses_tampered_inputs_limits_and_snapshots() {
    let edits: [(&str, Edit); 3] = [
        ("inputs", |records| {
            records[0].body.insert("inputs".into(), json!({"topic": "another"}));
        }),
        ("limits", |records| records[0].body["limits"]["spend"] = json!(9_000_000_000_000_u64)),
        ("a state behind the last checkpoint", |records| {
            let (at, mut record) = (records.len() - 1, records[0].clone());
            record.body = Map::from_iter(
                [("type", json!("state_set")), ("key", json!("a")), ("value", json!(1))]
                    .map(|(k, v)| (k.to_owned(), v)),
            );
            record.seal = None;
            records.insert(at, record);
        }),
    ];
    for (what, edit) in edits {
        let place = place();
        let id = ran(&place);
        forge(&place, &id, true, edit);
        let done = place.rye(&["run", "--resume", &id, "--message", "more"]);
        assert_eq!(done.code, Some(5), "{what}: {}", done.stderr);
        assert_eq!(place.rye(&["threads", "verify", &id]).code, Some(1), "{what}");
    }
    let place = place();
    let id = ran(&place);
    let snapshot = format!(".ai/state/threads/{id}/thread.json");
    place.write(&snapshot, &place.read(&snapshot).replace("file-system.read", "*"));
    let done = place.rye(&["run", "--resume", &id, "--message", "more", "--trust-record"]);
    assert_eq!(done.code, Some(5), "{}", done.stderr);
    assert!(done.stderr.contains(&snapshot), "{}", done.stderr);
}

#[test]
fn resume_asks_for_a_record_that_no_key_of_the_user_signed() {
    let place = place();
    let (unsigned, foreign) = (ran(&place), ran(&place));
    forge(&place, &unsigned, false, |_| {});
    std::fs::remove_dir_all(place.user().join(".ai/keys")).unwrap();
    place.run_ok(&["keys", "generate"]);
    for id in [&unsigned, &foreign] {
        for command in commands(id) {
            let done = place.rye(&command);
            assert_eq!(done.code, Some(5), "{command:?}: {}", done.stderr);
            assert!(done.stderr.contains("cannot be verified"), "{command:?}: {}", done.stderr);
            assert!(done.stderr.contains("--trust-record"), "{command:?}: {}", done.stderr);
        }
        let (code, result) = place.json(&["run", "--resume", id, "--message", "more", "--trust-record"]);
        assert_eq!(code, Some(0), "{result}");
        // The accepted thread is signed from here on, and resumes without acceptance.
        let next = result["thread_id"].as_str().unwrap();
        place.run_ok(&["run", "--resume", next, "--message", "more"]);
    }
    assert!(!place.project().join("ran.txt").exists());
}

#[test]
fn resume_prints_the_grants_of_the_record() {
    let place = place();
    let id = ran(&place);
    let done = place.rye(&["run", "--resume", &id, "--message", "more"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(
        done.stderr.contains("resumes with its recorded grants: `rye.execute.tool.rye.file-system.read`\n"),
        "{}",
        done.stderr
    );
}

#[test]
fn resume_without_a_key_needs_no_acceptance() {
    let place = place();
    std::fs::remove_dir_all(place.user().join(".ai/keys")).unwrap();
    let id = ran(&place);
    place.run_ok(&["run", "--resume", &id, "--message", "more"]);
}

#[test]
fn resume_refuses_a_damaged_thread_that_it_continues() {
    let damages: [fn(&str) -> String; 2] =
        [|text| text.replace("One.", "Two."), |text| text.split_inclusive('\n').take(4).collect()];
    for damage in damages {
        let place = place();
        let first = ran(&place);
        let (code, second) = place.json(&["run", "--resume", &first, "--message", "more"]);
        assert_eq!(code, Some(0), "{second}");
        let second = second["thread_id"].as_str().unwrap();
        let file = format!(".ai/state/threads/{first}/transcript.jsonl");
        place.write(&file, &damage(&place.read(&file)));
        let done = place.rye(&["run", "--resume", second, "--message", "again"]);
        assert_eq!(done.code, Some(5), "{}", done.stderr);
        assert!(done.stderr.contains(&file) && done.stderr.contains("line "), "{}", done.stderr);
        assert!(done.stderr.contains("rye threads verify"), "{}", done.stderr);
    }
}
