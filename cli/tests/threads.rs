//! Tests of `rye threads` from a process other than the one that runs the thread: control messages, waits, tails,
//! limits, background threads; and of two processes in one project.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rye::TestProject;
use serde_json::{Value, json};

/// Returns a project with a directive that runs this many turns with a delay each.
fn worker(metadata: &str, turns: usize, delay_ms: u64) -> TestProject {
    let place = TestProject::own();
    let grants = "<permissions><execute><tool>rye.file-system.ls</tool></execute></permissions>";
    place.write(
        ".ai/directives/work.md",
        &format!(
            "Works.\n\n```xml\n<directive name=\"work\" version=\"1.0.0\">\n<metadata><description>Work.</description>\
             <model provider=\"scripted\" tier=\"fast\"/><nudge>never</nudge>{metadata}{grants}</metadata>\n</directive>\n```\n\nWork.\n"
        ),
    );
    let mut script = String::from("steps:\n");
    for turn in 0..turns {
        let step = format!(
            "  - {{ text: \"Step {turn} of the work.\", pace_ms: 30, delay_ms: {delay_ms}, tool_calls: [{{ name: rye_file_system_ls, input: {{ path: . }} }}] }}\n"
        );
        script.push_str(&step);
    }
    script.push_str("  - { text: All done. }\n");
    place.write("script.yaml", &script);
    place
}

/// Returns the names of the files in the inboxes of the project.
fn waiting_messages(place: &TestProject) -> Vec<String> {
    let threads = std::fs::read_dir(place.project().join(".ai/state/threads")).unwrap();
    let inboxes = threads.filter_map(|thread| std::fs::read_dir(thread.unwrap().path().join("inbox")).ok());
    inboxes.flatten().map(|file| file.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn steering_message_to_a_thread_that_ends_is_recorded_or_refused() {
    let mut refused = 0;
    for follow_up in [false, true] {
        for delay_ms in [200, 400, 800] {
            let place = worker("<limits turns=\"9\"/>", 0, 0);
            place
                .write("script.yaml", &format!("steps: [{{ delay_ms: {delay_ms}, text: Done. }}, {{ text: Again. }}]"));
            let mut command = place.command(&["run", "work", "--script", "script.yaml"]);
            let mut run = RyeProcess(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
            let until = Instant::now() + Duration::from_mins(1);
            while place.json(&["threads", "list"]).1["threads"].as_array().unwrap().is_empty() {
                assert!(Instant::now() < until, "the run does not start");
            }
            let how = if follow_up { &["--follow-up"][..] } else { &[] };
            let sent = place.rye(&[&["threads", "steer", "--last", "a late word"], how].concat());
            run.0.wait().unwrap();
            let recorded = place.run_ok(&["threads", "transcript", "--last", "--json"]).contains("a late word");
            let expected = if recorded { Some(0) } else { Some(2) };
            assert_eq!(sent.code, expected, "after {delay_ms} ms: {}", sent.stderr);
            assert!(recorded || sent.stderr.contains("has ended: completed"), "{}", sent.stderr);
            assert_eq!(waiting_messages(&place), Vec::<String>::new(), "after {delay_ms} ms");
            refused += u32::from(!recorded);
        }
    }
    // A thread that ends within half a second never reads its inbox.
    assert!(refused > 0);
}

/// A process that is killed when the test ends, even by a panic.
struct RyeProcess(Child);

impl Drop for RyeProcess {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn run_work(place: &TestProject, more: &[&str]) -> RyeProcess {
    let mut command = place.command(&[&["run", "work", "--format", "json"], more].concat());
    RyeProcess(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
}

/// Waits for a running thread and returns its id.
fn running(place: &TestProject) -> String {
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        let (_, listed) = place.json(&["threads", "list", "--active"]);
        if let Some(thread) = listed["threads"].as_array().unwrap().iter().find(|thread| thread["orphaned"] == false) {
            return thread["thread_id"].as_str().unwrap().to_owned();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no thread ever ran");
}

/// Returns the last line of a process's stdout, and its exit code.
fn end(mut running: RyeProcess) -> (Option<i32>, Value) {
    let mut text = String::new();
    running.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let code = running.0.wait().unwrap().code();
    (code, serde_json::from_str(text.lines().last().unwrap()).unwrap())
}

#[test]
fn a_thread_is_cancelled_killed_and_steered_from_another_process() {
    for (verb, status) in [("cancel", "cancelled"), ("kill", "killed")] {
        let place = worker("<limits turns=\"100\"/>", 60, 100);
        let process = run_work(&place, &[]);
        let id = running(&place);
        place.run_ok(&["threads", verb, &id]);
        let (code, result) = end(process);
        assert_eq!((code, &result["status"]), (Some(130), &json!(status)));
        assert_eq!(place.run_ok(&["threads", "status", &id]), format!("{id}\t{status}\n"));
        // A second message has no effect.
        place.run_ok(&["threads", verb, &id]);
        let mails = place.transcript(&id).iter().filter(|line| line["type"] == "mail").count();
        assert_eq!(mails, 1, "a message is delivered once");
    }
    let place = worker("<limits turns=\"100\"/>", 12, 100);
    let process = run_work(&place, &[]);
    let id = running(&place);
    let shown = place.rye(&["threads", "steer", &id, "look here", "--image", "a.png"]);
    assert!(shown.code == Some(2) && shown.stderr.contains("messages are text only"), "{}", shown.stderr);
    place.run_ok(&["threads", "steer", &id, "look left"]);
    assert_eq!(end(process).1["status"], "completed");
    let steered = place.transcript(&id).iter().any(|line| line["type"] == "cognition_in" && line["source"] == "steer");
    assert!(steered, "the message never reached the model");
}

#[test]
fn a_wait_from_another_process_ends_with_the_thread() {
    let place = worker("<limits turns=\"100\"/>", 8, 50);
    let process = run_work(&place, &[]);
    let id = running(&place);
    let (code, early) = place.json(&["threads", "wait", &id, "--timeout", "0.05"]);
    assert_eq!(
        (code, &early["all_finished"], &early["threads"][0]["standing"]),
        (Some(1), &json!(false), &json!("running"))
    );
    let (code, waited) = place.json(&["threads", "wait", &id]);
    assert_eq!((code, &waited["all_finished"]), (Some(0), &json!(true)), "{waited}");
    assert_eq!(waited["threads"][0]["result"]["result"], "All done.");
    assert_eq!(end(process).0, Some(0));
    assert!(place.run_ok(&["threads", "results", &id]).contains("All done."));
    assert!(place.run_ok(&["threads", "search", &id, "Step [3] of"]).contains("cognition_out"));
    assert_eq!(place.rye(&["threads", "search", &id, "no such words"]).code, Some(1));
}

#[test]
fn a_tail_shows_events_and_the_reply_as_it_comes() {
    let place = worker("<limits turns=\"100\"/>", 6, 150);
    let process = run_work(&place, &[]);
    let id = running(&place);
    let mut tail = place.command(&["threads", "tail", "-f", &id, "--format", "json"]);
    let tail = RyeProcess(tail.stdout(Stdio::piped()).spawn().unwrap());
    let out = end_lines(tail);
    assert_eq!(end(process).0, Some(0));
    assert_eq!(out.last().unwrap()["event"]["type"], "ended");
    assert!(out.iter().all(|line| line["thread_id"] == id.as_str()), "{out:?}");
    let settled = out.iter().find(|line| line["event"]["type"] == "settled").unwrap();
    assert!(settled["event"]["amount"].as_f64().unwrap() < 1.0, "money is in dollars: {settled}");
    let seqs: Vec<u64> = out.iter().filter_map(|line| line["seq"].as_u64()).collect();
    assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seqs:?}");
    let pieces = out.iter().filter(|line| line["event"]["kind"] == "text").count();
    assert!(pieces > 0, "nothing was seen as it came");
    let live = place.project().join(".ai/state/threads").join(&id).join("live.jsonl");
    assert!(!live.exists(), "what streamed in is cut when the attempt ends");
}

fn end_lines(mut running: RyeProcess) -> Vec<Value> {
    let out = BufReader::new(running.0.stdout.take().unwrap());
    let lines = out.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    running.0.wait().unwrap();
    lines
}

#[test]
fn escalated_limit_waits_for_an_answer() {
    let place = worker("<limits turns=\"3\"/>", 5, 0);
    place.write(".ai/config/agent/hooks.yaml", "hooks:\n  - { id: ask, event: limit, action: { escalate: {} } }\n");
    let (code, result) = place.json(&["run", "work"]);
    assert_eq!((code, &result["status"]), (Some(4), &json!("suspended")), "{result}");
    let id = result["thread_id"].as_str().unwrap();
    // The list shows the step of a thread that has not ended, and of no other thread.
    assert_eq!(place.json(&["threads", "list"]).1["threads"][0]["step"], "waiting for your answer");
    let shown = place.run_ok(&["threads", "list"]);
    assert!(shown.contains("STEP") && shown.contains("waiting for your answer"), "{shown}");
    let bare = place.rye(&["threads", "approve", id]);
    assert_eq!(bare.code, Some(2));
    assert!(bare.stderr.contains("--raise turns=N"), "{}", bare.stderr);
    assert_eq!(place.rye(&["threads", "approve", id, "--raise", "depth=9"]).code, Some(2));
    // The command rejects a value that does not raise the limit, and a limit other than the reached one, before it
    // changes the thread.
    for (raise, message) in [
        ("turns=3", "is already 3"),
        ("turns=1", "is already 3"),
        ("tokens=900000", "reached its limit of turns, which these options do not raise"),
    ] {
        let refused = place.rye(&["threads", "approve", id, "--raise", raise]);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains(message), "{}", refused.stderr);
    }
    let events = place.transcript(id).len();
    let (code, result) = place.json(&["threads", "approve", id, "--raise", "turns=20"]);
    assert!(place.transcript(id).iter().skip(events).all(|line| line["type"] != "limit"));
    assert_eq!(
        (code, &result["status"], &result["cost"]["turns"]),
        (Some(0), &json!("completed"), &json!(6)),
        "{result}"
    );
    assert_eq!(result["thread_id"], id, "it is the same thread that goes on");
    assert_eq!(place.json(&["threads", "list"]).1["threads"][0]["step"], Value::Null);

    let stderr = place.rye(&["run", "work"]).stderr.replace('\n', " ");
    assert!(stderr.contains("--raise turns=N`, deny with"), "{stderr}");
    let (_, result) = place.json(&["run", "work"]);
    let id = result["thread_id"].as_str().unwrap();
    // The help names the reached limit in each place.
    let again = place.rye(&["run", "--resume", id]);
    assert_eq!(again.code, Some(4), "{}", again.stderr);
    assert!(again.stderr.contains(&format!("`rye threads approve {id} --raise turns=N`")), "{}", again.stderr);
    // The row has the open request and the turn.
    let (_, listed) = place.json(&["threads", "list"]);
    let row = listed["threads"].as_array().unwrap().iter().find(|thread| thread["thread_id"] == id).unwrap();
    let asked = place.transcript(id).into_iter().rfind(|event| event["type"] == "approval_asked").unwrap();
    assert_eq!((&row["asks"], &row["turn"]), (&asked["seq"], &json!(3)), "{row}");
    assert_eq!(row["step"], "waiting for your answer");
    let (_, waiting) = place.json(&["threads", "approvals"]);
    let commands: Vec<&Value> = waiting["approvals"].as_array().unwrap().iter().map(|one| &one["approve"]).collect();
    assert!(commands.contains(&&json!(format!("rye threads approve {id} --raise turns=N"))), "{waiting}");
    let listed = place.rye(&["threads", "approvals"]);
    assert!(listed.stderr.contains("or with `--raise LIMIT=N` if a limit stopped the thread"), "{}", listed.stderr);
    let (code, result) = place.json(&["threads", "approve", id, "--deny"]);
    assert_eq!((code, &result["error"]["code"]), (Some(4), &json!("turns_exceeded")), "{result}");
    let shown = place.run_ok(&["threads", "show", id]);
    assert_eq!(shown.matches("turns_exceeded").count(), 1, "{shown}");
}

#[test]
fn detached_thread_runs_in_the_background() {
    let place = worker("<limits turns=\"100\"/>", 10, 100);
    let began = Instant::now();
    let (code, detached) = place.json(&["run", "work", "--detach"]);
    assert_eq!((code, &detached["status"]), (Some(0), &json!("running")));
    assert!(began.elapsed() < Duration::from_secs(8), "it did not wait for the end");
    let id = detached["thread_id"].as_str().unwrap();
    let (_, listed) = place.json(&["threads", "list", "--active"]);
    assert_eq!((&listed["threads"][0]["thread_id"], &listed["threads"][0]["orphaned"]), (&json!(id), &json!(false)));
    let (code, waited) = place.json(&["threads", "wait", id]);
    assert_eq!((code, &waited["threads"][0]["result"]["status"]), (Some(0), &json!("completed")));
    // Errors are reported before the command detaches.
    let wrong = place.rye(&["run", "nothing", "--detach"]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("nothing"), "{}", wrong.stderr);
}

#[test]
fn orphan_is_listed_and_can_be_cancelled() {
    let place = worker("<limits turns=\"100\"/>", 60, 100);
    let mut process = run_work(&place, &[]);
    let id = running(&place);
    process.0.kill().unwrap();
    process.0.wait().unwrap();
    assert_eq!(place.run_ok(&["threads", "status", &id]), format!("{id}\torphaned\n"));
    let (code, waited) = place.json(&["threads", "wait", &id]);
    assert_eq!((code, &waited["threads"][0]["standing"]), (Some(1), &json!("orphaned")));
    assert_eq!(place.run_ok(&["threads", "cancel", &id]), format!("{id}\tcancelled\n"));
    for verb in ["cancel", "kill"] {
        let late = place.rye(&["threads", verb, &id]);
        let reason = format!("`{id}` has ended already: cancelled; there is nothing to {verb}");
        assert!(late.code == Some(0) && late.stderr.contains(&reason), "{}", late.stderr);
    }
    let (_, shown) = place.json(&["threads", "show", &id]);
    assert_eq!(shown["ledger"][0]["standing"], "released");
}

#[test]
fn ledger_shows_the_money_held_for_a_call() {
    let place = worker("", 1, 60_000);
    let mut process = run_work(&place, &[]);
    let id = running(&place);
    let until = Instant::now() + Duration::from_secs(20);
    let held = |place: &TestProject| place.json(&["threads", "show", &id]).1["ledger"][0]["held_for_calls"].as_f64();
    while held(&place) == Some(0.0) {
        assert!(Instant::now() < until, "no call started");
        std::thread::sleep(Duration::from_millis(20));
    }
    process.0.kill().unwrap();
    process.0.wait().unwrap();
    let ledger = place.run_ok(&["threads", "show", &id]);
    let (_, shown) = place.json(&["threads", "show", &id]);
    let amount = |name: &str| shown["ledger"][0][name].as_f64().unwrap();
    assert!(amount("held_for_calls") > 0.0 && ledger.contains(" held for a call, "), "{ledger}");
    let rest = amount("reserved") - amount("spent") - amount("held_for_calls") - amount("held_by_children");
    assert!((rest - amount("remaining")).abs() < 1e-9, "{shown}");
}

#[test]
fn thread_resumes_hands_off_and_forks() {
    let place = worker("<limits turns=\"100\"/>", 3, 0);
    let (_, first) = place.json(&["run", "work"]);
    let id = first["thread_id"].as_str().unwrap();
    let (code, second) = place.json(&["threads", "resume", id, "--message", "and then?"]);
    assert_eq!((code, &second["status"]), (Some(0), &json!("completed")));
    let (code, third) = place.json(&["threads", "handoff", id]);
    assert_eq!((code, &third["status"]), (Some(0), &json!("completed")));
    let chain = place.run_ok(&["threads", "chain", id]);
    assert_eq!(chain.lines().count(), 3, "{chain}");
    let (code, fork) = place.json(&["run", "--resume", id, "--fork-at", "1", "--message", "otherwise"]);
    assert_eq!((code, &fork["status"]), (Some(0), &json!("completed")));
    let begins = &place.transcript(fork["thread_id"].as_str().unwrap())[2];
    assert_eq!((&begins["type"], &begins["thread"]), (&json!("continues"), &json!(id)));
    assert_eq!(place.run_ok(&["threads", "chain", id]).lines().count(), 3, "a fork goes its own way");
    let far = place.rye(&["run", "--resume", id, "--fork-at", "40", "--message", "x"]);
    assert!(far.code == Some(1) && far.stderr.contains("only 4 turns"), "{}", far.stderr);

    let dry = place.run_ok(&["threads", "prune", "--older-than", "0", "--dry-run"]);
    assert_eq!(dry.lines().count(), 4, "{dry}");
    assert_eq!(place.run_ok(&["threads", "prune", "--older-than", "1"]), "");
    place.run_ok(&["threads", "prune", "--older-than", "0"]);
    assert_eq!(place.json(&["threads", "list"]).1["threads"], json!([]));
    assert_eq!(place.rye(&["threads", "show", id]).code, Some(2));
}

#[test]
fn prune_removes_the_folders_that_it_empties() {
    let place = worker("", 1, 0);
    place.write(".ai/directives/a/b/work.md", &place.read(".ai/directives/work.md"));
    place.write(".ai/knowledge/agent/threads/a/mine.md", "Mine.\n");
    let (_, result) = place.json(&["run", "a/b/work"]);
    let id = result["thread_id"].as_str().unwrap();
    let folders = [".ai/knowledge/agent/threads/a/b/work", ".ai/state/threads/a/b"];
    let exist = || folders.map(|folder| place.project().join(folder).exists());
    assert!(id.starts_with("a/b/work-") && exist() == [true, true], "{id}");
    place.run_ok(&["threads", "prune", "--older-than", "0"]);
    assert_eq!(exist(), [false, false]);
    assert!(!place.project().join(".ai/state/threads/a").exists());
    assert_eq!(place.read(".ai/knowledge/agent/threads/a/mine.md"), "Mine.\n");
}

#[test]
fn two_processes_work_in_one_project_at_once() {
    let place = worker("<limits turns=\"100\"/>", 6, 20);
    let processes: Vec<RyeProcess> = (0..4).map(|_| run_work(&place, &[])).collect();
    let results: Vec<(Option<i32>, Value)> = processes.into_iter().map(end).collect();
    let mut ids: Vec<String> = results.iter().map(|(_, result)| result["thread_id"].to_string()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4);
    assert!(results.iter().all(|(code, _)| *code == Some(0)), "{results:?}");
    let (_, listed) = place.json(&["threads", "list"]);
    assert!(listed["threads"].as_array().unwrap().iter().all(|thread| thread["status"] == "completed"));
}

#[test]
fn closed_stdout_does_not_end_the_thread_with_events() {
    let place = worker("<limits turns=\"100\"/>", 8, 20);
    let mut process = run_work(&place, &["--events"]);
    let mut first = String::new();
    BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut first).unwrap();
    // Dropping the reader closed the pipe.
    assert!(process.0.wait().unwrap().success());
    let (_, listed) = place.json(&["threads", "list"]);
    assert_eq!(listed["threads"][0]["status"], "completed");
}

#[test]
fn invalid_parent_is_rejected() {
    let place = worker("<limits turns=\"100\" depth=\"2\"/>", 2, 0);
    let (_, over) = place.json(&["run", "work"]);
    let id = over["thread_id"].as_str().unwrap();
    for parent in [id, "work-1", "../x"] {
        let mut command = place.command(&["run", "work"]);
        let done = command.env("RYE_PARENT_THREAD_ID", parent).output().unwrap();
        assert_eq!(done.status.code(), Some(2), "{parent}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

fn parents(children: usize) -> TestProject {
    let place = worker("<limits turns=\"100\" spend=\"0.01\"/>", 6, 100);
    place.write(
        ".ai/directives/lead.md",
        "Leads.\n\n```xml\n<directive name=\"lead\" version=\"1.0.0\">\n<metadata><description>Lead.</description>\
         <model provider=\"scripted\" tier=\"fast\"/><nudge>never</nudge><limits spend=\"3\" spawns=\"40\"/>\
         <permissions><execute><directive>work</directive><tool>rye.file-system.ls</tool></execute></permissions></metadata>\n\
         </directive>\n```\n\nLead.\n",
    );
    let call = "{ name: rye_execute, input: { item_type: directive, item_id: work, async: true } }";
    let calls = vec![call; children].join(", ");
    let work = place.read("script.yaml").replace("steps:\n", "threads:\n  work:\n").replace("\n  - ", "\n    - ");
    place.write("script.yaml", &format!("{work}  lead:\n    - {{ tool_calls: [{calls}] }}\n    - {{ text: Away. }}\n"));
    place
}

#[test]
fn the_process_stays_until_every_child_is_over() {
    let place = parents(3);
    let (code, result) = place.json(&["run", "lead"]);
    assert_eq!((code, &result["result"]), (Some(0), &json!("Away.")), "{result}");
    let (_, listed) = place.json(&["threads", "list"]);
    let threads = listed["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 4);
    assert!(threads.iter().all(|thread| thread["status"] == "completed"), "{listed}");
    let root = result["thread_id"].as_str().unwrap();
    let (_, shown) = place.json(&["threads", "show", root]);
    assert_eq!(shown["ledger"][0]["standing"], "released");
}

#[test]
fn ctrl_c_ends_children_that_outlived_their_parent() {
    let place = parents(3);
    let mut command = place.command(&["run", "lead", "--format", "json"]);
    let process = RyeProcess(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let (_, listed) = place.json(&["threads", "list"]);
        let threads = listed["threads"].as_array().unwrap();
        if threads.iter().any(|thread| thread["directive"] == "lead" && thread["status"] == "completed") {
            break;
        }
        assert!(Instant::now() < until, "{listed}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = process.0.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    end(process);
    let (_, listed) = place.json(&["threads", "list"]);
    for thread in listed["threads"].as_array().unwrap() {
        let expected = if thread["directive"] == "lead" { "completed" } else { "cancelled" };
        assert_eq!(thread["status"], expected, "{listed}");
    }
}

#[test]
fn search_prints_at_most_the_limit() {
    let place = worker("", 3, 0);
    let (_, result) = place.json(&["run", "work"]);
    let id = result["thread_id"].as_str().unwrap();
    let refused = place.rye(&["threads", "search", id, "Step", "--limit", "0"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let (_, all) = place.json(&["threads", "search", id, "Step"]);
    let count = all["matches"].as_array().unwrap().len();
    for (limit, more) in [(count, false), (count - 1, true)] {
        let (_, found) = place.json(&["threads", "search", id, "Step", "--limit", &limit.to_string()]);
        assert_eq!((found["matches"].as_array().unwrap().len(), &found["more"]), (limit, &json!(more)), "{found}");
    }
}

#[test]
fn prune_removes_the_export_of_an_unreadable_thread() {
    let place = worker("", 1, 0);
    let (_, result) = place.json(&["run", "work"]);
    let id = result["thread_id"].as_str().unwrap();
    let export = place.project().join(format!(".ai/knowledge/agent/threads/work/{id}.md"));
    assert!(export.exists());
    place.write(&format!(".ai/state/threads/{id}/transcript.jsonl"), "no line of a transcript\n");
    place.run_ok(&["threads", "prune", "--older-than", "0"]);
    assert!(!export.exists());
}

#[test]
fn finished_thread_resumes_with_another_model() {
    let place = worker("", 1, 0);
    let (_, first) = place.json(&["run", "work"]);
    let id = first["thread_id"].as_str().unwrap();
    place.write("script.yaml", "steps:\n  - one\n  - two\n  - three\n  - four\n");
    place.write(
        ".ai/config/agent/providers/other.yaml",
        "id: other\nwire: scripted\nscript: script.yaml\ndefault_tier: general\ntiers: { general: second }\nmodels:\n  - id: second\n    \
         context_window: 200000\n    max_output: 64000\n    tool_use: native\n    prices: { input: \"1\", output: \"5\" }\n    \
         priced_at: \"2026-11-21\"\n    source: invented\n",
    );
    place.run_ok(&["trust"]);
    let model = |place: &TestProject, thread: &Value| {
        let record = place.transcript(thread["thread_id"].as_str().unwrap());
        record.iter().rfind(|line| line["type"] == "attempt_intended").unwrap()["model"].clone()
    };
    let other = ["run", "--resume", id, "--message", "more", "--model", "other/second"];
    let (code, second) = place.json(&other);
    assert_eq!((code, &second["status"]), (Some(0), &json!("completed")), "{second}");
    assert_ne!(model(&place, &second), model(&place, &first));
    // A thread that resumes the new thread keeps the model.
    let second_id = second["thread_id"].as_str().unwrap();
    let (code, third) = place.json(&["run", "--resume", second_id, "--message", "more"]);
    assert_eq!((code, model(&place, &third)), (Some(0), model(&place, &second)), "{third}");
    let fork = ["run", "--resume", id, "--fork-at", "1", "--message", "again", "--model", "other/second"];
    let (code, fork) = place.json(&fork);
    assert_eq!((code, model(&place, &fork)), (Some(0), model(&place, &second)), "{fork}");
    let unknown = place.rye(&["run", "--resume", id, "--message", "more", "--model", "unknown/none"]);
    assert_eq!(unknown.code, Some(1), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("does not compile with the model `unknown/none`"), "{}", unknown.stderr);
    place.run_ok(&["threads", "verify"]);
}

#[test]
fn threads_are_selected_by_prefix_directive_and_age() {
    let place = TestProject::own();
    place.run_ok(&["init"]);
    let none = place.rye(&["threads", "show", "@last"]);
    assert_eq!(none.code, Some(2));
    assert!(none.stderr.contains("this project has no threads yet"), "{}", none.stderr);
    let run = |place: &TestProject| place.run_ok(&["run", "first", "--input", "topic=tea", "--quiet"]);
    run(&place);
    let newest = |place: &TestProject| {
        place.json(&["threads", "list"]).1["threads"][0]["thread_id"].as_str().unwrap().to_owned()
    };
    let one = newest(&place);
    for reference in ["first", "fir", "@last", one.as_str()] {
        assert_eq!(place.run_ok(&["threads", "status", reference]), format!("{one}\tcompleted\n"), "{reference}");
    }
    run(&place);
    let other = newest(&place);
    assert_ne!(one, other);
    let several = place.rye(&["threads", "show", "first"]);
    assert_eq!(several.code, Some(2));
    assert!(several.stderr.contains("`first` matches 2 threads"), "{}", several.stderr);
    assert!(several.stderr.contains(&one) && several.stderr.contains(&other), "{}", several.stderr);
    assert_eq!(place.json(&["threads", "show", "first", "--last"]).1["thread_id"], json!(other));
    assert_eq!(place.json(&["threads", "show", "--last"]).1["thread_id"], json!(other));
    assert_eq!(place.run_ok(&["threads", "wait", "--last"]).split('\t').next(), Some(other.as_str()));
    assert_eq!(place.rye(&["threads", "search", "--last", "tea"]).code, Some(0));
    assert_eq!(place.rye(&["threads", "show", "nonsense"]).code, Some(2));
    // An exact id wins over longer ones, of which it is a prefix.
    let shorter = if other.starts_with(&one) { one } else { other };
    assert_eq!(place.json(&["threads", "show", &shorter]).1["thread_id"], json!(shorter));
    let resumed = place.rye(&["run", "--resume", "@last", "--message", "more", "--script", "missing.yaml"]);
    assert!(!resumed.stderr.contains("no such thread"), "{}", resumed.stderr);
}

#[test]
fn list_arranges_trees_and_filters_them() {
    let place = TestProject::own();
    place.run_ok(&["init"]);
    let directive = |name: &str, grants: &str| {
        format!(
            "# D\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\">\n<metadata>\n<model provider=\"scripted\" tier=\"fast\"/>\
             <permissions><execute>{grants}</execute></permissions>\n<nudge>never</nudge>\n</metadata>\n</directive>\n```\n\nGo.\n"
        )
    };
    place.write(".ai/directives/above.md", &directive("above", "<directive>below</directive>"));
    place.write(".ai/directives/below.md", &directive("below", ""));
    let call = "{ name: rye_execute, input: { item_type: directive, item_id: below } }";
    let script = format!("steps:\n  - tool_calls: [{call}, {call}]\n  - Done.\nthreads:\n  below:\n    - Done.\n");
    place.write("script.yaml", &script);
    place.run_ok(&["run", "above"]);
    place.run_ok(&["run", "above"]);
    let list = |words: &[&str]| {
        let (_, listed) = place.json(&[&["threads", "list"], words].concat());
        let threads = listed["threads"].as_array().unwrap().clone();
        threads.iter().map(|one| one["directive"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list(&[]), ["above", "below", "below", "above", "below", "below"]);
    assert_eq!(list(&["--limit", "1"]), ["above", "below", "below"]);
    // The newest thread of all is a child of the newest root.
    assert_eq!(place.json(&["threads", "show", "--last"]).1["directive"], json!("above"));
    assert_eq!(place.json(&["threads", "show", "below", "--last"]).1["directive"], json!("below"));
    assert_eq!(list(&["--directive", "below", "--limit", "3"]), ["below"; 3]);
    assert_eq!(list(&["--status", "completed"]).len(), 6);
    assert!(list(&["--status", "error", "--status", "running"]).is_empty());
    assert!(list(&["--status", "idle"]).is_empty());
    place.run_ok(&["chat", "below"]);
    assert_eq!(list(&["--status", "idle"]), ["below"]);
    assert_eq!(list(&["--status", "completed"]).len(), 6);
    assert_eq!(list(&["--since", "1h"]).len(), 7);
    assert_eq!(list(&["--since", "2020-01-31"]).len(), 7);
    assert!(list(&["--since", "2999-01-31"]).is_empty());
    assert_eq!(place.rye(&["threads", "list", "--since", "soon"]).code, Some(2));
    let shown = place.run_ok(&["threads", "list", "--limit", "2"]);
    let lines: Vec<&str> = shown.lines().skip(1).collect();
    assert!(
        lines[1].starts_with("above-") && lines[2].starts_with("├ below-") && lines[3].starts_with("└ below-"),
        "{shown}"
    );
}
