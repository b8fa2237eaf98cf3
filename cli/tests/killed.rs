//! Tests of `kill -9` after the events of different runs: parallel calls, children, failed attempts, threads resumed
//! twice. Each recovered run has the same result as a run that was not killed. `just crash` kills after every event;
//! other test runs kill after a sample of the events.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rye::TestProject;
use serde_json::{Value, json};

/// A run to kill: its script, and the messages that resume it.
struct KilledRun {
    script: &'static str,
    resumes: &'static [&'static str],
    /// Number of threads at the end.
    threads: usize,
}

const TWO_READS: &str = "{ name: rye_file_system_read, input: { path: a.txt } }, { name: rye_file_system_ls, input: { path: . } }, \
                    { name: rye_file_system_grep, input: { pattern: a, path: . } }";
const USAGE: &str = "delay_ms: 3, usage: { input: 100, output: 10 }";

const PARALLEL: KilledRun = KilledRun {
    script: "steps:\n  - { USAGE, tool_calls: [TWO_READS] }\n  - { USAGE, tool_calls: [TWO_READS, TWO_READS] }\n  - { USAGE, text: the end }\n",
    resumes: &[],
    threads: 1,
};

const CHILDREN: KilledRun = KilledRun {
    script: "threads:\n  root:\n    - { USAGE, tool_calls: [{ name: rye_execute, input: { item_type: directive, item_id: child } }, \
             { name: rye_execute, input: { item_type: directive, item_id: child } }] }\n    \
             - { USAGE, tool_calls: [{ name: rye_execute, input: { item_type: directive, item_id: child } }] }\n    \
             - { USAGE, text: the end }\n  child:\n    - { USAGE, tool_calls: [TWO_READS] }\n    - { USAGE, text: done }\n",
    resumes: &[],
    threads: 4,
};

const RETRY: KilledRun = KilledRun {
    script: "steps:\n  - fault: { status: 529, headers: { retry-after-ms: \"5\" } }\n    times: 2\n  - { USAGE, tool_calls: [TWO_READS] }\n  \
             - fault: { status: 503, headers: { retry-after-ms: \"5\" }, usage: { input: 40, output: 2 } }\n    after: \"half of \"\n  - { USAGE, text: the end }\n",
    resumes: &[],
    threads: 1,
};

const RESUMED: KilledRun = KilledRun {
    script: "steps:\n  - { USAGE, tool_calls: [TWO_READS] }\n  - { USAGE, text: the end }\n",
    resumes: &["and then?", "and now?"],
    threads: 3,
};

/// Asynchronous tool calls, which may outlive the calling thread.
const APART: KilledRun = KilledRun {
    script: "steps:\n  - { USAGE, tool_calls: [READ, READ] }\n  - { USAGE, tool_calls: [TWO_READS] }\n  - { USAGE, text: the end }\n",
    resumes: &[],
    threads: 3,
};

const READ: &str = "{ name: rye_execute, input: { item_type: tool, item_id: rye/file-system/read, parameters: { path: a.txt }, async: true } }";

fn place(run: &KilledRun) -> TestProject {
    let place = TestProject::own();
    for (name, spend) in [("root", "3"), ("child", "0.3")] {
        let text = format!(
            "```xml\n<directive name=\"{name}\" version=\"1.0.0\">\n<metadata><description>d</description>\
             <model provider=\"scripted\" tier=\"fast\"/><nudge>never</nudge><limits turns=\"20\" spend=\"{spend}\"/><permissions><execute>\
             <directive>child</directive><tool>rye.file-system.*</tool></execute></permissions></metadata>\n</directive>\n```\n\nWork.\n"
        );
        place.write(&format!(".ai/directives/{name}.md"), &text);
    }
    place.write(
        "script.yaml",
        &run.script.replace("USAGE", USAGE).replace("TWO_READS", TWO_READS).replace("READ", READ),
    );
    place.write("a.txt", "a\n");
    place
}

/// Returns the number of recorded events of all threads.
fn events(place: &TestProject) -> usize {
    let folders = std::fs::read_dir(place.project().join(".ai/state/threads")).into_iter().flatten().flatten();
    let records = folders.filter_map(|folder| std::fs::read(folder.path().join("transcript.jsonl")).ok());
    records.map(|record| record.split(|byte| *byte == b'\n').count() - 1).sum()
}

fn listed(place: &TestProject) -> Vec<Value> {
    let (code, listed) = place.json(&["threads", "list"]);
    assert_eq!(code, Some(0), "{listed}");
    listed["threads"].as_array().unwrap().clone()
}

/// Returns the next command of the user; `None` if all is done.
fn next(place: &TestProject, run: &KilledRun) -> Option<Vec<String>> {
    let threads = listed(place);
    let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
    let id = |thread: &Value| thread["thread_id"].as_str().unwrap().to_owned();
    let roots: Vec<&Value> =
        threads.iter().filter(|thread| thread["directive"] == "root" && thread["parent"].is_null()).collect();
    // A thread that died before its first event has ended without a transcript.
    let began = |thread: &&&Value| {
        thread["status"] != "error"
            || place.project().join(".ai/state/threads").join(id(thread)).join("transcript.jsonl").exists()
    };
    let roots: Vec<&&Value> = roots.iter().filter(began).collect();
    // Threads that outlived their root are recovered after it.
    let all = roots.iter().map(|thread| **thread).chain(&threads);
    if let Some(orphan) = all.into_iter().find(|thread| thread["orphaned"] == true) {
        return words(&["run", "--resume", &id(orphan)]);
    }
    let Some(first) = roots.iter().find(|thread| thread["continues"].is_null()) else { return words(&["run", "root"]) };
    let chain = place.run_ok(&["threads", "chain", &id(first)]);
    let last = chain.lines().last().unwrap().split('\t').next().unwrap().to_owned();
    let message = run.resumes.get(chain.lines().count() - 1)?;
    words(&["run", "--resume", &last, "--message", message])
}

fn start(place: &TestProject, words: &[String]) -> Child {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    place.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Runs all commands, and kills the process once there are this many events. Returns false if no process was killed.
fn until_killed(place: &TestProject, run: &KilledRun, after: usize) -> bool {
    let deadline = Instant::now() + Duration::from_mins(1);
    while let Some(words) = next(place, run) {
        let mut child = start(place, &words);
        loop {
            if events(place) >= after {
                child.kill().unwrap();
                child.wait().unwrap();
                return true;
            }
            if child.try_wait().unwrap().is_some() {
                break;
            }
            assert!(Instant::now() < deadline, "{after} events never came");
            std::thread::sleep(Duration::from_micros(300));
        }
    }
    false
}

fn to_the_end(place: &TestProject, run: &KilledRun, what: &str) {
    for _ in 0..12 {
        let Some(words) = next(place, run) else { return };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let done = place.rye(&words);
        let never = done.stderr.contains("never started");
        assert!(done.code == Some(0) || never, "{what}: {words:?}\n{}\n{}", done.stdout, done.stderr);
    }
    panic!("{what}: there is always something left to do");
}

/// Returns the results of the threads without the effects of a kill: replies, results, failures, end status, and the
/// cost of attempts that were not interrupted.
fn picture(place: &TestProject, what: &str) -> Vec<Value> {
    let mut threads = Vec::new();
    for thread in listed(place) {
        let id = thread["thread_id"].as_str().unwrap();
        if !place.project().join(".ai/state/threads").join(id).join("transcript.jsonl").exists() {
            continue;
        }
        let record = place.transcript(id);
        let cut: Vec<(&Value, &Value)> = record
            .iter()
            .filter(|line| line["type"] == "settled" && line["unknown_outcome"] == true)
            .map(|line| (&line["turn"], &line["attempt"]))
            .collect();
        let (mut steps, mut results, mut spent) = (Vec::new(), Vec::new(), 0);
        for line in &record {
            let attempt = (&line["turn"], &line["attempt"]);
            match line["type"].as_str().unwrap() {
                "cognition_out" => steps.push(json!(["said", line["turn"], line["content"]])),
                "attempt_failed" if !cut.contains(&attempt) => {
                    steps.push(json!(["failed", line["turn"], line["classification"]["name"]]));
                }
                "tool_call_result" => {
                    assert_eq!(line["is_error"], false, "{what}: {line}");
                    results.push(json!([line["turn"], line["index"], line["name"], line["why"]]));
                }
                "settled" if line["unknown_outcome"] != true => spent += line["amount"].as_u64().unwrap(),
                "ended" => steps.push(json!(["ended", line["status"], line["result"]])),
                _ => {}
            }
        }
        // Results of parallel calls have no fixed order.
        results.sort_by_key(ToString::to_string);
        let (_, shown) = place.json(&["threads", "show", id]);
        let account = shown["ledger"].as_array().unwrap().iter().find(|held| held["thread_id"] == id);
        assert_eq!(account.unwrap()["standing"], "released", "{what}: {shown}");
        threads.push(json!([thread["directive"], thread["tool"], steps, results, spent]));
    }
    threads.sort_by_key(ToString::to_string);
    place.run_ok(&["threads", "verify"]);
    threads
}

/// Approximate number of kills of each run, unless `RYE_EVERY_CRASH` is set. Each kill is in a new project.
const SAMPLED_KILLS: usize = 12;

/// Kills the run after a sample of its events, and sometimes once more during recovery; after each event if
/// `RYE_EVERY_CRASH` is set.
fn kill_and_recover(run: &KilledRun) {
    let clean = place(run);
    to_the_end(&clean, run, "undisturbed");
    let whole = picture(&clean, "undisturbed");
    assert_eq!(whole.len(), run.threads, "{whole:#?}");
    let total = events(&clean);
    let step = if std::env::var_os("RYE_EVERY_CRASH").is_some() { 1 } else { total.div_ceil(SAMPLED_KILLS) };
    let (mut killed, mut points) = (0, 0);
    for after in (1..total).step_by(step) {
        points += 1;
        let place = place(run);
        let what = format!("killed after {after} of {total}");
        if !until_killed(&place, run, after) {
            continue;
        }
        killed += 1;
        if points % 3 == 0 {
            until_killed(&place, run, events(&place) + 2);
        }
        to_the_end(&place, run, &what);
        assert_eq!(picture(&place, &what), whole, "{what}");
    }
    // The last events are written together, so the run may end before a kill among them.
    assert!(killed + 8_usize.div_ceil(step) >= points, "{killed} of {points}");
}

#[test]
fn parallel_calls_recover_after_a_kill() {
    kill_and_recover(&PARALLEL);
}

#[test]
fn children_recover_after_a_kill() {
    kill_and_recover(&CHILDREN);
}

#[test]
fn async_tool_calls_recover_after_a_kill() {
    kill_and_recover(&APART);
}

#[test]
fn failed_attempts_recover_after_a_kill() {
    kill_and_recover(&RETRY);
}

#[test]
fn twice_resumed_threads_recover_after_a_kill() {
    kill_and_recover(&RESUMED);
}
