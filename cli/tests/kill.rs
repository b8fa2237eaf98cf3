//! Tests of `kill -9` at every event of `rye run`: the thread is listed as orphaned, continues with `--resume`, and its
//! transcript has no gap, no duplicate and the right cost.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rye::TestProject;
use serde_json::{Value, json};

const DIRECTIVE: &str = r#"Six turns.

```xml
<directive name="six" version="1.0.0">
  <metadata>
    <description>Read and write for six turns.</description>
    <model provider="scripted" tier="fast"/>
    <limits turns="10" spend="1"/>
    <permissions><execute><tool>rye.file-system.*</tool></execute></permissions>
  </metadata>
  <outputs><output name="done" type="string" required="true">what was done</output></outputs>
</directive>
```

Read and write.
"#;

const SCRIPT: &str = r"steps:
  - { text: One., delay_ms: 4, usage: { input: 100, output: 10 }, tool_calls: [{ name: rye_file_system_ls, input: { path: . } }] }
  - { text: Two., delay_ms: 4, usage: { input: 200, output: 20 }, tool_calls: [{ name: rye_file_system_read, input: { path: a.txt } }, { name: rye_file_system_read, input: { path: b.txt } }] }
  - { text: Three., delay_ms: 4, usage: { input: 300, output: 30 }, tool_calls: [{ name: rye_file_system_write, input: { path: out.txt, content: x } }] }
  - { text: Four., delay_ms: 4, usage: { input: 400, output: 40 }, tool_calls: [{ name: rye_file_system_read, input: { path: out.txt } }] }
  - { text: Five., delay_ms: 4, usage: { input: 500, output: 50 }, tool_calls: [{ name: rye_file_system_grep, input: { pattern: x, path: . } }] }
  - { delay_ms: 4, usage: { input: 600, output: 60 }, tool_calls: [{ name: rye_directive_return, input: { done: six } }] }
";

/// Cost in nano-dollars: a dollar per million input tokens, five per million output tokens.
const COST: u64 = (100 + 200 + 300 + 400 + 500 + 600) * 1_000 + (10 + 20 + 30 + 40 + 50 + 60) * 5_000;

fn place() -> TestProject {
    let place = TestProject::own();
    place.write(".ai/directives/six.md", DIRECTIVE);
    place.write("script.yaml", SCRIPT);
    place.write("a.txt", "a\n");
    place.write("b.txt", "b\n");
    place
}

/// Returns the path of the transcript of the only thread.
fn transcript(place: &TestProject) -> Option<PathBuf> {
    let threads = std::fs::read_dir(place.project().join(".ai/state/threads")).ok()?;
    threads.flatten().map(|entry| entry.path().join("transcript.jsonl")).find(|path| path.exists())
}

fn lines(place: &TestProject) -> usize {
    let text = transcript(place).and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
    text.split(|byte| *byte == b'\n').count() - 1
}

/// Starts the run and kills it once its transcript has this many events. Returns false if it ended before.
fn kill_after(place: &TestProject, events: usize) -> bool {
    let mut command = place.command(&["run", "six", "--format", "json"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        if lines(place) >= events {
            child.kill().unwrap();
        }
        if let Some(status) = child.try_wait().unwrap() {
            return !status.success();
        }
        assert!(Instant::now() < until, "{events} events never came");
        std::thread::sleep(Duration::from_micros(300));
    }
}

fn nanos(dollars: &Value) -> u64 {
    let text = format!("{:.9}", dollars.as_f64().unwrap());
    text.replace('.', "").parse().unwrap()
}

/// Checks a finished thread, however often it was killed. Returns the sequence number of its first `recovered` event.
fn verify(place: &TestProject, killed_after: usize) -> Option<u64> {
    let (code, listed) = place.json(&["threads", "list"]);
    let threads = listed["threads"].as_array().unwrap();
    assert_eq!((code, threads.len()), (Some(0), 1), "{killed_after}: {listed}");
    let id = threads[0]["thread_id"].as_str().unwrap();
    if threads[0]["status"] != "completed" {
        assert_eq!(threads[0]["orphaned"], true, "{killed_after}: {listed}");
        let (code, result) = place.json(&["run", "--resume", id]);
        assert_eq!((code, &result["status"]), (Some(0), &json!("completed")), "{killed_after}: {result}");
        assert_eq!((&result["thread_id"], &result["outputs"]), (&json!(id), &json!({"done": "six"})));
    }
    let record = place.transcript(id);
    let of_type = |name: &str| record.iter().filter(|line| line["type"] == name).cloned().collect::<Vec<Value>>();
    let replies: Vec<Value> = of_type("cognition_out").iter().map(|line| line["turn"].clone()).collect();
    assert_eq!(replies, [1, 2, 3, 4, 5, 6].map(|n| json!(n)), "killed after {killed_after}");
    let results: Vec<String> = of_type("tool_call_result").iter().map(|line| line["call_id"].to_string()).collect();
    let mut once = results.clone();
    once.dedup();
    assert_eq!((results.len(), once.len()), (7, 7), "killed after {killed_after}: {results:?}");

    // Every attempt is settled once: at its price, or at its marked worst case if it was interrupted.
    let (mut known, mut marked) = (0, 0);
    let reserved = of_type("reserved");
    for settled in of_type("settled") {
        let amount = settled["amount"].as_u64().unwrap();
        if settled["unknown_outcome"] == true {
            let same = |line: &&Value| line["turn"] == settled["turn"] && line["attempt"] == settled["attempt"];
            let worst = reserved.iter().find(same).map(|line| line["amount"].as_u64().unwrap());
            assert!(worst.is_none_or(|worst| worst == amount), "killed after {killed_after}");
            marked += amount;
        } else {
            known += amount;
        }
    }
    assert_eq!(known, COST, "killed after {killed_after}");
    let ended = of_type("ended");
    assert_eq!((ended.len(), ended[0]["cost"]["spend"].as_u64()), (1, Some(known + marked)));
    let (_, shown) = place.json(&["threads", "show", id]);
    assert_eq!(nanos(&shown["cost"]["spend"]), known + marked, "killed after {killed_after}");
    assert_eq!(nanos(&shown["ledger"][0]["spent"]), known + marked, "killed after {killed_after}");
    assert_eq!(shown["ledger"][0]["standing"], "released");
    of_type("recovered").first().and_then(|line| line["seq"].as_u64())
}

#[test]
fn run_killed_at_any_event_recovers() {
    let clean = place();
    clean.run_ok(&["run", "six"]);
    verify(&clean, 0);
    let events = lines(&clean);
    assert!(events > 40, "{events}");
    let places: BTreeSet<u64> = std::thread::scope(|scope| {
        // Two at a time, since each mostly waits for the disk.
        let half = |from: usize| {
            scope.spawn(move || {
                let mut places = BTreeSet::new();
                for after in (from..events).step_by(2) {
                    let place = place();
                    kill_after(&place, after);
                    places.extend(verify(&place, after));
                }
                places
            })
        };
        let halves = [half(1), half(2)];
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    // Events are written in groups and a kill may be late. `places` holds the distinct positions at which runs really
    // died.
    assert!(places.len() >= 10, "{places:?} of {events}");
}

#[test]
fn repeatedly_killed_run_finishes() {
    let place = place();
    assert!(kill_after(&place, 5));
    let id = place.json(&["threads", "list"]).1["threads"][0]["thread_id"].as_str().unwrap().to_owned();
    for _ in 0..6 {
        let before = lines(&place);
        let mut command = place.command(&["run", "--resume", &id]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while lines(&place) < before + 6 && child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_micros(300));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    verify(&place, 5);
}
