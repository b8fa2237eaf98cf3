//! Tests of `rye run` and `rye threads` as processes: first steps, the examples, and the ends of runs.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/recorder.rs"]
mod recorder;
#[path = "support/rye.rs"]
mod rye;

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use recorder::{ApiFormat, Recorder};
use rye::{ProcessResult, TestProject};
use serde_json::{Value, json};

/// Returns a project with a directive without tools, with this metadata and script.
fn talker(metadata: &str, script: &str) -> TestProject {
    let place = TestProject::own();
    place.write(
        ".ai/directives/talk.md",
        &format!(
            "Talks.\n\n```xml\n<directive name=\"talk\" version=\"1.0.0\">\n<metadata><description>Talk.</description>\
             <model provider=\"scripted\" tier=\"fast\"/>{metadata}</metadata>\n</directive>\n```\n\nTalk.\n"
        ),
    );
    place.write("script.yaml", script);
    place
}

/// Waits until the first thread's transcript contains a text.
fn wait_for(place: &TestProject, text: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    let threads = place.project().join(".ai/state/threads");
    while Instant::now() < until {
        for entry in std::fs::read_dir(&threads).into_iter().flatten() {
            let transcript = entry.unwrap().path().join("transcript.jsonl");
            if std::fs::read_to_string(transcript).is_ok_and(|lines| lines.contains(text)) {
                return;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("`{text}` never happened");
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_newcomer_inits_checks_runs_and_lists() {
    let place = TestProject::own();
    place.run_ok(&["init"]);
    let checked = place.json(&["check"]);
    assert_eq!((checked.0, &checked.1["diagnostics"]), (Some(0), &json!([])));
    assert!(place.run_ok(&["plan", "first"]).contains("no value was given for the input `topic`"));
    let run = place.rye(&["run", "first", "--input", "topic=tea"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stdout.starts_with("Let me see what is here. \nsentence: "), "{}", run.stdout);
    assert!(run.stderr.contains("ok    rye_file_system_ls {\"path\":\".\"}"), "{}", run.stderr);
    let (_, listed) = place.json(&["threads", "list"]);
    let threads = listed["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 1);
    assert_eq!((&threads[0]["status"], &threads[0]["cost"]["turns"]), (&json!("completed"), &json!(2)));
    let id = threads[0]["thread_id"].as_str().unwrap();
    assert!(run.stderr.contains(id));
    let (_, shown) = place.json(&["threads", "show", id]);
    assert_eq!(shown["inputs"], json!({"topic": "tea"}));
    assert_eq!(shown["capabilities"][0][0], "rye.execute.tool.rye.file-system.ls");
    assert_eq!(shown["ledger"][0]["spent"], shown["cost"]["spend"]);
    assert!(place.run_ok(&["threads", "show", id]).contains("topic = \"tea\""));
    let transcript = place.run_ok(&["threads", "transcript", id]);
    assert!(transcript.contains("thread_started") && transcript.contains("thread_completed"), "{transcript}");
    let lines = place.run_ok(&["threads", "transcript", id, "--json"]);
    assert_eq!(lines, place.read(shown["transcript"].as_str().unwrap()));
    let tail = place.run_ok(&["threads", "transcript", id, "--json", "--tail", "1"]);
    assert!(lines.ends_with(&tail) && tail.lines().count() == 1);
}

#[test]
fn the_examples_run_as_their_readmes_say() {
    let hello = TestProject::example("hello");
    let (code, result) = hello.json(&["run", "hello"]);
    assert_eq!((code, &result["success"], &result["outputs"]["name"]), (Some(0), &json!(true), &json!("Ada")));

    let review = TestProject::example("review");
    let (code, result) = review.json(&["run", "review"]);
    assert_eq!((code, &result["outputs"]["findings"]), (Some(0), &json!(3)), "{result}");
    assert!(review.read("reports/review.md").starts_with("# Review of `sample`"));

    let deploy = TestProject::example("deploy");
    let (code, result) = deploy.json(&["run", "deploy_staging", "--input", "service=billing"]);
    assert_eq!(code, Some(0), "{result}");
    assert_eq!(result["outputs"], json!({"url": "https://billing.staging.example.test", "healthy": true}));
    assert_eq!(deploy.read("deployments.log"), "billing staging ok\n");
}

#[test]
fn events_come_before_the_result_and_are_the_transcript() {
    let place = TestProject::example("hello");
    let text = place.run_ok(&["run", "hello", "--format", "json", "--events"]);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (result, events) = lines.split_last().unwrap();
    let (pieces, events): (Vec<&Value>, Vec<&Value>) =
        events.iter().partition(|line| line["event"]["type"] == "token_delta");
    let streamed: String = pieces.iter().filter_map(|piece| piece["event"]["text"].as_str()).collect();
    assert!(streamed.contains("Let me look who is coming."), "what streams in is shown too: {pieces:?}");
    assert!(pieces.iter().all(|piece| piece["thread_id"] == result["thread_id"] && piece["event"]["kind"].is_string()));
    let recorded = place.transcript(result["thread_id"].as_str().unwrap());
    assert_eq!(events.len(), recorded.len());
    for (event, line) in events.iter().zip(&recorded) {
        assert_eq!((&event["seq"], &event["event"]["type"]), (&line["seq"], &line["type"]));
    }
    assert_eq!(result["plan_id"], recorded[1]["plan_id"]);
    assert_eq!(place.run_ok(&["run", "hello", "--format", "json"]).lines().count(), 1);
}

#[test]
fn invalid_call_is_rejected_before_the_run() {
    let place = TestProject::example("deploy");
    let refused = |args: &[&str], code: i32, message: &str| {
        let done = place.rye(args);
        assert_eq!(done.code, Some(code), "{args:?}\n{}", done.stderr);
        assert!(done.stderr.contains(message), "{args:?}\n{}", done.stderr);
        assert_eq!(done.stdout, "");
    };
    refused(&["run", "deploy_staging"], 1, "service");
    refused(&["run", "deploy_staging", "--input", "service=billing", "--input", "target=moon"], 1, "target");
    refused(&["run", "deploy_staging", "--input", "servce=billing"], 1, "did you mean `service`?");
    refused(&["run", "deploy_stagin"], 1, "deploy_staging");
    refused(&["run", "../deploy_staging"], 2, "not a valid directive id");
    refused(&["run", "deploy_staging", "--input", "service"], 2, "NAME=VALUE");
    refused(&["run", "deploy_staging", "--input", "service=a", "--input", "service=b"], 2, "twice");
    refused(&["run", "deploy_staging", "--inputs", "missing.json"], 2, "missing.json");
    refused(&["run", "deploy_staging", "--input", "service=billing", "--limit", "turn=3"], 1, "turn");
    refused(&["run", "deploy_staging", "--script", "nothing.yaml"], 1, "service");
    refused(&["run"], 2, "Usage");
    refused(&["run", "a", "--resume", "b"], 2, "cannot be used with");
    refused(&["run", "--resume", "deploy_staging-1"], 2, "no threads yet");
    let (code, found) = place.json(&["run", "deploy_staging"]);
    assert_eq!((code, &found["summary"]["errors"]), (Some(1), &json!(1)));
    assert_eq!(found["diagnostics"][0]["code"], "rye::interface::missing-input");
    let (code, listed) = place.json(&["threads", "list"]);
    assert_eq!((code, &listed["threads"]), (Some(0), &json!([])));
}

#[test]
fn inputs_come_from_flags_files_and_stdin_in_their_types() {
    let place = TestProject::own();
    place.write(
        ".ai/directives/typed.md",
        "Typed.\n\n```xml\n<directive name=\"typed\" version=\"1.0.0\">\n<metadata><description>Typed.</description>\
         <model provider=\"scripted\" tier=\"fast\"/></metadata>\n<inputs><input name=\"n\" type=\"integer\">n</input>\
         <input name=\"list\" type=\"array\">list</input><input name=\"s\" type=\"string\">s</input></inputs>\n\
         </directive>\n```\n\n{input:n} {input:list} {input:s}\n",
    );
    place.write("script.yaml", "steps:\n  - Done.\n");
    place.write("inputs.json", "{\"n\": 3, \"list\": [1, 2], \"s\": \"from the file\"}");
    let inputs = |args: &[&str]| {
        let (code, result) = place.json(&[&["run", "typed"], args].concat());
        assert_eq!(code, Some(0), "{result}");
        place.json(&["threads", "show", result["thread_id"].as_str().unwrap()]).1["inputs"].clone()
    };
    let typed = inputs(&["--input", "n=12", "--input", "list=[\"a\"]", "--input", "s=12"]);
    assert_eq!(typed, json!({"n": 12, "list": ["a"], "s": "12"}));
    let mixed = inputs(&["--inputs", "inputs.json", "--input", "n=7"]);
    assert_eq!(mixed, json!({"n": 7, "list": [1, 2], "s": "from the file"}));
    let wrong = place.rye(&["run", "typed", "--input", "n=twelve"]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("`twelve`"), "{}", wrong.stderr);
    let mut command = place.command(&["run", "typed", "--inputs", "-", "--format", "json"]);
    command.stdin(std::fs::File::open(place.project().join("inputs.json")).unwrap());
    assert_eq!(ProcessResult::from(command.output().unwrap()).code, Some(0));
}

#[test]
fn a_limit_ends_with_its_own_exit_code_and_the_partial_result() {
    let place = TestProject::example("review");
    let (code, result) = place.json(&["run", "review", "--limit", "turns=2"]);
    assert_eq!(
        (code, &result["status"], &result["error"]["code"]),
        (Some(4), &json!("error"), &json!("turns_exceeded"))
    );
    assert_eq!(result["cost"]["turns"], 2);
    let run = place.rye(&["run", "review", "--limit", "turns=2"]);
    assert!(run.stderr.contains("error: turns_exceeded: 2 of 2\n"), "{}", run.stderr);
    let (_, shown) = place.json(&["threads", "show", result["thread_id"].as_str().unwrap()]);
    assert_eq!((&shown["limits"]["turns"], &shown["status"]), (&json!(2), &json!("error")));
}

#[test]
fn missing_key_error_names_its_variable() {
    let place = TestProject::example("hello");
    let done = place.rye(&["run", "hello", "--model", "anthropic/fast"]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stderr.contains("ANTHROPIC_API_KEY") && done.stderr.contains("scripted"), "{}", done.stderr);
    assert!(done.stderr.contains("error: authentication: no key for provider"), "{}", done.stderr);
}

#[test]
fn script_replaces_the_model_and_reports_the_first_difference() {
    let place = TestProject::example("hello");
    place.write(
        "other.yaml",
        "steps:\n  - tool_calls:\n      - { name: rye_directive_return, input: { name: B, greeting: Hi } }\n",
    );
    let (code, result) = place.json(&["run", "hello", "--model", "anthropic/fast", "--script", "other.yaml"]);
    assert_eq!((code, &result["outputs"]["name"]), (Some(0), &json!("B")));
    place.write("other.yaml", "steps:\n  - expect: { user: nobody said this }\n    text: no\n");
    let done = place.rye(&["run", "hello", "--script", "other.yaml"]);
    assert_eq!(done.code, Some(1));
    assert!(done.stderr.contains("nobody said this"), "{}", done.stderr);
    place.write("other.yaml", "stepz: []\n");
    assert_eq!(place.rye(&["run", "hello", "--script", "other.yaml"]).code, Some(2));
}

#[test]
fn two_calls_with_one_id_are_printed_each_with_its_own_arguments() {
    let granted = "<permissions><execute><tool>rye.file-system.*</tool></execute></permissions>";
    let call = |path: &str| json!({"id": "same", "name": "rye_file_system_ls", "input": {"path": path}});
    let script = json!({"steps": [{"tool_calls": [call("."), call(".ai")]}, {"text": "Done."}]});
    let place = talker(granted, &script.to_string());
    let run = place.rye(&["run", "talk", "--script", "script.yaml"]);
    for path in [".", ".ai"] {
        let line = format!("ok    rye_file_system_ls {{\"path\":\"{path}\"}}");
        assert_eq!(run.stderr.matches(&line).count(), 1, "{}", run.stderr);
    }
}

#[test]
fn human_output_prints_each_text_once() {
    let place = talker("", "steps:\n  - { text: \"One two\\nthree.\", usage: { input: 10, output: 2 } }\n");
    let keyless = place.rye(&["run", "talk", "-q"]);
    assert_eq!((keyless.stdout.as_str(), keyless.stderr.as_str()), ("One two\nthree.\n", ""));
    place.run_ok(&["keys", "generate"]);
    let run = place.rye(&["run", "talk"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "One two\nthree.\n"));
    let lines: Vec<&str> = run.stderr.lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("thread talk-"));
    assert_eq!(lines[1], "turn 1: 10 tokens in, 2 out, $0.00002");
    assert!(lines[2].starts_with("completed  1 turn, 10 tokens in, 2 out, $0.00002  talk-"));
    let quiet = place.rye(&["run", "talk", "-q"]);
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("One two\nthree.\n", ""));
    let plain = place.rye(&["run", "talk", "--format", "plain"]);
    assert!(plain.stdout.contains("\nresult\t\"One two\\nthree.\"\n"), "{}", plain.stdout);
    let coloured = place.rye(&["run", "talk", "--color", "always"]);
    assert!(coloured.stderr.contains('\u{1b}') && !run.stderr.contains('\u{1b}'));
}

#[test]
fn failed_attempt_is_printed_and_retried() {
    let script = "steps:\n  - fault: { status: 429, headers: { retry-after-ms: \"5\" }, error: { type: rate_limit_error, \
                  message: Slow down. } }\n  - fault: { cut: true }\n    after: Half a\n  - Whole.\n";
    let place = talker("", script);
    let run = place.rye(&["run", "talk"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("attempt 1 failed, rate_limited: Slow down.; retrying in 5 ms"), "{}", run.stderr);
    assert_eq!(run.stdout, "Half a\nWhole.\n");
}

#[test]
fn closed_stdout_does_not_end_the_thread() {
    let text = "word ".repeat(40);
    let place = talker("", &format!("steps:\n  - {{ text: \"{text}\", pace_ms: 5 }}\n"));
    for format in ["human", "json"] {
        let mut command = place.command(&["run", "talk", "--format", format, "--events"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 1];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        drop(child.stderr.take());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{format}");
    }
    let (_, listed) = place.json(&["threads", "list"]);
    let statuses: Vec<&Value> = listed["threads"].as_array().unwrap().iter().map(|thread| &thread["status"]).collect();
    assert_eq!(statuses, [&json!("completed"), &json!("completed")]);
}

#[test]
fn ctrl_c_finishes_the_step_and_twice_stops_now() {
    let script = "steps:\n  - tool_calls:\n      - { name: rye_file_system_ls, input: { path: . } }\n    delay_ms: 400\n  - Done.\n";
    let grant = "<permissions><execute><tool>rye.file-system.ls</tool></execute></permissions>";
    let place = talker(grant, script);
    let mut command = place.command(&["run", "talk", "--format", "json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&place, "\"reserved\"");
    signal(&child, "-INT");
    let done = ProcessResult::from(child.wait_with_output().unwrap());
    let result: Value = serde_json::from_str(done.stdout.trim()).unwrap();
    assert_eq!((done.code, &result["status"], &result["cost"]["turns"]), (Some(130), &json!("cancelled"), &json!(1)));
    assert!(done.stderr.contains("waiting for the call to end; Ctrl+C again to stop now"), "{}", done.stderr);

    let place = talker("", "steps:\n  - { text: never, delay_ms: 60000 }\n");
    let mut command = place.command(&["run", "talk", "--format", "json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&place, "\"reserved\"");
    signal(&child, "-INT");
    wait_for(&place, "\"mail\"");
    signal(&child, "-INT");
    let done = ProcessResult::from(child.wait_with_output().unwrap());
    let result: Value = serde_json::from_str(done.stdout.trim()).unwrap();
    assert_eq!((done.code, &result["status"]), (Some(130), &json!("killed")), "{}", done.stderr);
}

#[test]
fn ctrl_c_ends_the_wait_for_another_attempt() {
    let fault = "steps:\n  - fault: { status: 503, headers: { Retry-After: \"300\" } }\n  - Never.\n";
    let place = talker("", fault);
    let mut command = place.command(&["run", "talk", "--format", "json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&place, "\"retry_delay_ms\":300000");
    signal(&child, "-INT");
    let done = ProcessResult::from(child.wait_with_output().unwrap());
    let result: Value = serde_json::from_str(done.stdout.trim()).unwrap();
    assert_eq!((done.code, &result["status"], &result["cost"]["turns"]), (Some(130), &json!("cancelled"), &json!(0)));
    // The interrupted thread is complete: no money is reserved, and signatures cover every line.
    place.run_ok(&["threads", "verify"]);
}

#[test]
fn finished_thread_resumes_with_a_message() {
    let place = talker("", "steps:\n  - First answer.\n  - Second answer.\n");
    let (_, first) = place.json(&["run", "talk"]);
    let id = first["thread_id"].as_str().unwrap();
    let silent = place.rye(&["run", "--resume", id]);
    assert_eq!(silent.code, Some(2), "{}", silent.stderr);
    assert!(silent.stderr.contains("--message"), "{}", silent.stderr);
    place.write("script.yaml", "steps:\n  - { expect: { user: And now? }, text: Second answer. }\n");
    let (code, second) = place.json(&["run", "--resume", id, "--message", "And now?"]);
    assert_eq!((code, &second["result"]), (Some(0), &json!("Second answer.")), "{second}");
    let next = second["thread_id"].as_str().unwrap();
    assert_ne!(next, id);
    let (_, shown) = place.json(&["threads", "show", next]);
    assert_eq!((&shown["continues"], &shown["chain"]), (&json!(id), &json!([id, next])));
    let unknown = place.rye(&["threads", "show", "talk"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("`talk` matches 2 threads"), "{}", unknown.stderr);
    assert!(unknown.stderr.contains(&format!("\n    {next}  completed")), "{}", unknown.stderr);
    assert_eq!(place.rye(&["threads", "show", "../talk"]).code, Some(2));
}

#[test]
fn lost_registry_falls_back_to_transcripts() {
    let place = TestProject::example("hello");
    place.run_ok(&["run", "hello"]);
    let registry = place.project().join(".ai/state/threads/registry.redb");
    std::fs::write(&registry, b"this is no registry").unwrap();
    let done = place.rye(&["threads", "list", "--format", "json"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("reading the transcripts instead"), "{}", done.stderr);
    let listed: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(
        (&listed["threads"][0]["status"], &listed["threads"][0]["directive"]),
        (&json!("completed"), &json!("hello"))
    );
    std::fs::remove_file(&registry).unwrap();
    let (_, listed) = place.json(&["threads", "list", "--directive", "hello", "--limit", "1"]);
    assert_eq!(listed["threads"].as_array().unwrap().len(), 1);
    assert!(place.json(&["threads", "list", "--active"]).1["threads"].as_array().unwrap().is_empty());
}

#[test]
fn external_child_is_bounded_by_its_parent() {
    let script = "steps:\n  - { text: Waited., delay_ms: 2500 }\nthreads:\n  child:\n    - tool_calls:\n        \
                  - { name: rye_file_system_ls, input: { path: . } }\n    - Done.\n";
    let place = talker("<limits depth=\"3\" spend=\"0.30\"/>", script);
    place.write(
        ".ai/directives/child.md",
        "Child.\n\n```xml\n<directive name=\"child\" version=\"1.0.0\">\n<metadata><description>Child.</description>\
         <model provider=\"scripted\" tier=\"fast\"/><permissions><execute><tool>rye.file-system.ls</tool></execute>\
         </permissions></metadata>\n</directive>\n```\n\nList.\n",
    );
    let mut command = place.command(&["run", "talk", "--format", "json"]);
    let parent = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&place, "\"reserved\"");
    let (_, listed) = place.json(&["threads", "list"]);
    let above = listed["threads"][0]["thread_id"].as_str().unwrap();
    assert_eq!(
        (&listed["threads"][0]["status"], &listed["threads"][0]["orphaned"]),
        (&json!("running"), &json!(false))
    );
    let (code, child) = place.json(&["run", "child", "--parent", above]);
    assert_eq!((code, &child["result"]), (Some(0), &json!("Done.")), "{child}");
    let id = child["thread_id"].as_str().unwrap();
    let (_, shown) = place.json(&["threads", "show", id]);
    assert_eq!((&shown["parent"], &shown["root"]), (&json!(above), &json!(above)));
    assert_eq!(shown["limits"]["depth"], 2);
    assert!(shown["limits"]["spend"].as_f64().unwrap() < 0.3, "{shown}");
    assert_eq!(shown["capabilities"], json!([["rye.execute.tool.rye.file-system.ls"], []]));
    // The parent has no grants, so its child can use none.
    assert!(place.run_ok(&["threads", "transcript", id]).contains("denied"), "{shown}");
    let accounts: Vec<&Value> = shown["ledger"].as_array().unwrap().iter().map(|held| &held["thread_id"]).collect();
    assert_eq!(accounts, [above, id]);
    assert_eq!(ProcessResult::from(parent.wait_with_output().unwrap()).code, Some(0));
    let late = place.rye(&["run", "child", "--parent", above]);
    assert_eq!(late.code, Some(2), "{}", late.stderr);
    assert_eq!(place.rye(&["run", "child", "--parent", "nobody-1"]).code, Some(2));
}

#[test]
fn external_child_of_a_parent_without_spawns_is_refused() {
    let place = talker("<limits spawns=\"0\"/>", "steps:\n  - { text: Waited., delay_ms: 2500 }\n");
    let mut command = place.command(&["run", "talk", "--format", "json"]);
    let parent = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&place, "\"reserved\"");
    let (_, listed) = place.json(&["threads", "list"]);
    let refused = place.rye(&["run", "talk", "--parent", listed["threads"][0]["thread_id"].as_str().unwrap()]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    let reason = "spawns_exceeded: the limit `spawns` is 0, so this thread starts no child threads";
    assert!(refused.stderr.contains(reason), "{}", refused.stderr);
    assert_eq!(ProcessResult::from(parent.wait_with_output().unwrap()).code, Some(0));
}

#[test]
fn running_thread_cannot_be_resumed() {
    let place = talker("", "steps:\n  - { text: Waited., delay_ms: 1500 }\n");
    let mut command = place.command(&["run", "talk", "--format", "json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&place, "\"reserved\"");
    let id = place.json(&["threads", "list"]).1["threads"][0]["thread_id"].as_str().unwrap().to_owned();
    let refused = place.rye(&["run", "--resume", &id]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains(&format!("pid {}", child.id())), "{}", refused.stderr);
    assert!(place.run_ok(&["threads", "show", &id]).contains(&child.id().to_string()));
    assert_eq!(ProcessResult::from(child.wait_with_output().unwrap()).code, Some(0));
}

#[test]
fn invalid_signature_exits_with_5() {
    let place = TestProject::example("hello");
    let text = place.read(".ai/directives/hello.md");
    let hash = "0".repeat(64);
    let line = format!("<!-- rye:signed:2026-02-14T00:27:54Z:{hash}:{}:0123456789abcdef -->\n", "A".repeat(86));
    place.write(".ai/directives/hello.md", &(line + &text));
    let done = place.rye(&["run", "hello"]);
    assert_eq!(done.code, Some(5), "{}", done.stderr);
    assert!(done.stderr.contains("signature"), "{}", done.stderr);
}

#[test]
fn child_events_are_printed_with_thread_ids() {
    let script = "steps:\n  - text: Delegating.\n    tool_calls:\n      - { name: rye_execute, input: { item_type: directive, \
                  item_id: child, parameters: {} } }\n  - Done.\nthreads:\n  child:\n    - { text: Not for stdout. }\n";
    let place = talker("<permissions><execute><directive>child</directive></execute></permissions>", script);
    place.write(
        ".ai/directives/child.md",
        "Child.\n\n```xml\n<directive name=\"child\" version=\"1.0.0\">\n<metadata><description>Child.</description>\
         <model provider=\"scripted\" tier=\"fast\"/></metadata>\n</directive>\n```\n\nTalk.\n",
    );
    let run = place.rye(&["run", "talk"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "Delegating.\nDone.\n"), "{}", run.stderr);
    assert!(run.stderr.contains("\nchild child-") && run.stderr.contains("\n[child-"), "{}", run.stderr);
    assert!(run.stderr.contains("\nok    rye_execute {\"item_type\":\"directive\""), "{}", run.stderr);
    let (_, listed) = place.json(&["threads", "list", "--directive", "child"]);
    assert!(listed["threads"][0]["parent"].as_str().unwrap().starts_with("talk-"));
}

#[test]
fn run_stopped_by_worst_case_settlements_names_the_setting() {
    let cut = "steps:\n  - { fault: { cut: true }, times: 9 }\n";
    let place = talker("<limits spend=\"0.06\"/>", cut);
    place.write(
        ".ai/config/agent/resilience.yaml",
        "retry: { base_seconds: 0.001, max_seconds: 0.001, max_retries: 9 }\n",
    );
    let stopped = place.rye(&["run", "talk"]);
    assert_eq!(stopped.code, Some(4), "{}", stopped.stderr);
    assert!(stopped.stderr.contains("error: spend_exceeded"), "{}", stopped.stderr);
    assert!(stopped.stderr.contains("`budget.unknown_outcome: estimate` in `agent/resilience`"), "{}", stopped.stderr);
    // The setting is not named if reported usage reached the limit.
    let spends = "steps:\n  - { text: a, usage: { input: 50000, output: 1000 } }\n";
    let place = talker("<limits spend=\"0.06\"/><nudge>always</nudge>", spends);
    let stopped = place.rye(&["run", "talk"]);
    assert!(!stopped.stderr.contains("unknown_outcome"), "{}", stopped.stderr);
}

#[test]
fn controls_in_json_lines_are_escaped_and_keep_their_value() {
    let place = talker("", "steps: [{ text: \"x\\x9B2J \\u202Eback\" }]\n");
    let text = place.run_ok(&["run", "talk", "--format", "json", "--events"]);
    assert!(text.contains("x\\u009b2J \\u202eback") && !text.contains(['\u{9b}', '\u{202e}']), "{text}");
    let mut results = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["result"].as_str().map(str::to_owned));
    assert_eq!(results.next_back().as_deref(), Some("x\u{9b}2J \u{202e}back"), "{text}");
}

/// Returns a project whose directive `talk` calls a model of the server at `url`.
fn talker_at(wire: ApiFormat, url: &str) -> TestProject {
    let place = talker("", "");
    let provider = format!(
        "id: test\nwire: {}\nbase_url: {url}\ndefault_tier: fast\ntiers: {{ fast: m }}\nmodels:\n  - {{ id: m, context_window: \
         100000, max_output: 1000, tool_use: native, prices: {{ input: \"1\", output: \"1\" }} }}\n",
        wire.names().0
    );
    place.write(".ai/config/agent/providers/test.yaml", &provider);
    let directive = place.read(".ai/directives/talk.md");
    let (scripted, metadata) = ("provider=\"scripted\"", "</metadata>");
    let directive =
        directive.replace(scripted, "provider=\"test\"").replace(metadata, "<nudge>never</nudge></metadata>");
    place.write(".ai/directives/talk.md", &directive);
    place
}

fn stream_response(events: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{events}")
}

#[test]
fn unknown_parts_of_replies_are_named_in_the_result_the_json_and_the_screen() {
    let unknown = "event: brand_new\ndata: {\"type\":\"brand_new\",\"brand_new\":1}\n\n";
    for wire in ApiFormat::ALL {
        let server = Recorder::start_with(move |_, _| stream_response(&format!("{unknown}{}", wire.text_reply())));
        let place = talker_at(wire, &server.url);
        let (code, result) = place.json(&["run", "talk"]);
        assert_eq!((code, &result["result"]), (Some(0), &json!("Noted.")), "{wire:?}: {result}");
        let names = result["unread"].as_array().unwrap_or_else(|| panic!("{wire:?}: {result}"));
        assert!(names.iter().any(|name| name.as_str().unwrap().contains("brand_new")), "{wire:?}: {result}");
        let thread = result["thread_id"].as_str().unwrap();
        assert_eq!(place.transcript(thread).last().unwrap()["unread"], result["unread"], "{wire:?}");
        let shown = place.rye(&["run", "talk"]).stderr;
        let lines: Vec<&str> = shown.lines().filter(|line| line.contains("brand_new")).collect();
        assert!(lines.len() == 1 && lines[0].starts_with("not understood in the replies: "), "{wire:?}: {shown}");
        assert!(lines[0].chars().count() < 300, "{wire:?}: {shown}");
        let plain = place.rye(&["run", "talk", "--format", "plain"]).stdout;
        assert!(
            plain.lines().any(|line| line.starts_with("unread\t") && line.contains("brand_new")),
            "{wire:?}: {plain}"
        );
        let known = Recorder::start(vec![wire.text_reply()]);
        let (_, result) = talker_at(wire, &known.url).json(&["run", "talk"]);
        assert_eq!(
            (&result["unread"], &result["stop_reason"]),
            (&Value::Null, &json!("end_turn")),
            "{wire:?}: {result}"
        );
    }
}

#[test]
fn incomplete_replies_are_named_by_code_and_stop_reason_in_json_and_on_the_screen() {
    for (reason, stop, code) in [
        ("length", "length", "output_truncated"),
        ("content_filter", "refusal", "refused"),
        ("brand_new", "brand_new", "unknown_stop_reason"),
    ] {
        let reply = ApiFormat::Openai.text_reply();
        let stopped = reply.replace("\"finish_reason\":\"stop\"", &format!("\"finish_reason\":\"{reason}\""));
        assert_ne!(stopped, reply);
        let server = Recorder::start_with(move |_, _| stream_response(&stopped));
        let place = talker_at(ApiFormat::Openai, &server.url);
        let (exit, result) = place.json(&["run", "talk"]);
        let found = (exit, &result["success"], &result["stop_reason"], &result["error"]["code"]);
        assert_eq!(found, (Some(1), &json!(false), &json!(stop), &json!(code)), "{result}");
        let done = place.rye(&["run", "talk"]);
        assert_eq!(done.code, Some(1), "{}", done.stderr);
        assert!(done.stderr.contains(&format!("error: {code}: ")), "{reason}: {}", done.stderr);
        assert!(
            code == "refused" || done.stderr.contains(&format!("stop reason `{stop}`")),
            "{reason}: {}",
            done.stderr
        );
        assert!(done.stdout.contains("Noted."), "{reason}: the partial text is printed: {}", done.stdout);
    }
}

#[test]
fn missing_outputs_exit_with_1_unless_they_are_allowed() {
    let script = "steps:\n  - { text: I give up. }\n  - { text: I give up. }\n  - { text: I give up. }\n";
    let place = talker("", script);
    let directive = place.read(".ai/directives/talk.md");
    let outputs = "</metadata><outputs><output name=\"a\" type=\"string\" required=\"true\">A.</output></outputs>";
    place.write(".ai/directives/talk.md", &directive.replace("</metadata>", outputs));
    let (code, result) = place.json(&["run", "talk"]);
    let found = (code, &result["status"], &result["missing"], &result["error"]["code"]);
    assert_eq!(found, (Some(1), &json!("error"), &json!(["a"]), &json!("missing_outputs")), "{result}");
    let done = place.rye(&["run", "talk"]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(
        done.stderr.contains("error: missing_outputs: ")
            && done.stderr.contains("required outputs: a")
            && done.stderr.contains("  help: ask the model again with `rye run --resume "),
        "{}",
        done.stderr
    );
    let (code, result) = place.json(&["run", "talk", "--allow-missing-outputs"]);
    let found = (code, &result["status"], &result["missing"], &result["error"]);
    assert_eq!(found, (Some(0), &json!("completed"), &json!(["a"]), &Value::Null), "{result}");
    let done = place.rye(&["run", "talk", "--allow-missing-outputs"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("missing outputs: a"), "{}", done.stderr);
}
