//! Tests of problems around a run: a lost registry, output that cannot be written, an invalid command line. Every loss
//! is reported, and with `--format json` errors are printed as JSON.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::fs::{File, remove_file, write};
use std::time::{Duration, Instant};

use rye::{ProcessResult, TestProject};
use serde_json::{Value, json};

const REGISTRY: &str = ".ai/state/threads/registry.redb";

/// Returns a project with one finished thread, and its id.
fn ran() -> (TestProject, String) {
    let place = TestProject::example("hello");
    let (code, result) = place.json(&["run", "hello"]);
    assert_eq!(code, Some(0), "{result}");
    let id = result["thread_id"].as_str().unwrap().to_owned();
    (place, id)
}

#[test]
fn repair_names_the_files_that_it_cannot_write_again() {
    let (place, id) = ran();
    let whole = place.rye(&["threads", "repair"]);
    assert!(!whole.stderr.contains("missing"), "{}", whole.stderr);
    let plan = place.json(&["threads", "show", &id]).1["plan_id"].as_str().unwrap().to_owned();
    let lost = [
        format!(".ai/state/objects/{plan}"),
        format!(".ai/state/threads/{id}/thread.json"),
        format!(".ai/state/threads/{id}/capabilities.md"),
        format!(".ai/knowledge/agent/threads/hello/{id}.md"),
    ];
    for path in &lost {
        remove_file(place.project().join(path)).unwrap();
    }
    let repaired = place.rye(&["threads", "repair"]);
    assert_eq!(repaired.code, Some(0), "{}", repaired.stderr);
    for path in &lost {
        let line = format!("missing, and not written again: `{path}` of `{id}`");
        assert!(repaired.stderr.contains(&line), "{line}: {}", repaired.stderr);
    }
    let (_, output) = place.json(&["threads", "repair"]);
    let expected: Vec<_> = lost.iter().map(|path| json!({"thread_id": id, "path": path})).collect();
    assert_eq!(output["missing"], json!(expected));
}

#[test]
fn lost_registry_is_reported_and_rebuilt() {
    for empty in [false, true] {
        let (place, id) = ran();
        let registry = place.project().join(REGISTRY);
        let before = place.json(&["threads", "show", &id]).1;
        if empty {
            write(&registry, b"").unwrap();
        } else {
            remove_file(&registry).unwrap();
        }
        let listed = place.rye(&["threads", "list"]);
        assert_eq!(listed.code, Some(0));
        assert!(listed.stdout.contains(&id), "{}", listed.stdout);
        assert!(listed.stderr.contains("the thread registry is missing"), "{}", listed.stderr);
        // A command that would create a new registry suggests the repair instead.
        for args in [&["run", "--resume", &id, "--message", "more"][..], &["run", "hello"]] {
            let refused = place.rye(args);
            assert_eq!(refused.code, Some(1), "{}{}", refused.stdout, refused.stderr);
            assert!(refused.stderr.contains("run `rye threads repair` to rebuild it"), "{}", refused.stderr);
        }
        let repaired = place.rye(&["threads", "repair"]);
        assert_eq!(repaired.code, Some(0), "{}", repaired.stderr);
        assert!(repaired.stdout.contains("rebuilt from the transcripts of 1 thread"), "{}", repaired.stdout);
        let again = place.json(&["threads", "repair"]).1;
        let previous = ".ai/state/threads/registry.redb.before-repair";
        assert_eq!(again, json!({"threads": 1, "unreadable": [], "inexact": [], "previous": previous}));
        assert!(place.project().join(previous).exists());
        let after = place.json(&["threads", "show", &id]).1;
        for key in ["status", "cost", "outputs", "ledger", "root"] {
            assert_eq!(after[key], before[key], "{key}");
        }
        assert_eq!(place.rye(&["run", "hello"]).code, Some(0));
    }
}

#[test]
fn unregistered_thread_is_reported() {
    let (place, id) = ran();
    let registry = place.project().join(REGISTRY);
    let known = std::fs::read(&registry).unwrap();
    let (_, second) = place.json(&["run", "hello"]);
    write(&registry, known).unwrap();
    let listed = place.rye(&["threads", "list"]);
    assert!(listed.stdout.contains(&id), "{}", listed.stdout);
    assert!(listed.stderr.contains("1 thread with a transcript but not in the registry"), "{}", listed.stderr);
    let shown = place.rye(&["threads", "show", second["thread_id"].as_str().unwrap()]);
    assert!(shown.stderr.contains("is not in the registry"), "{}", shown.stderr);
    place.run_ok(&["threads", "repair"]);
    assert_eq!(place.json(&["threads", "list"]).1["threads"].as_array().unwrap().len(), 2);
}

#[test]
fn unwritable_output_fails() {
    let place = TestProject::example("hello");
    for format in ["human", "plain", "json"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = place.command(&["run", "hello", "--format", format]).stdout(full).output().unwrap();
        let done = ProcessResult::from(output);
        assert_eq!(done.code, Some(1), "{format}");
        assert!(done.stderr.contains("the result cannot be written"), "{format}: {}", done.stderr);
    }
}

#[test]
fn lost_output_of_any_command_fails() {
    let (place, id) = ran();
    for args in [
        &["--help"][..],
        &["--version"],
        &["threads", "list"],
        &["threads", "transcript", &id],
        &["plan", "hello"],
        &["explain"],
        &["completions", "bash"],
        &["threads", "verify", "--format", "json"],
        &["check", "--format", "json"],
    ] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let code = place.command(args).stdout(full).output().unwrap().status.code();
        assert_eq!(code, Some(1), "{args:?}");
    }
}

#[test]
fn usage_error_is_json_with_format_json() {
    let place = TestProject::new();
    for args in [&["nonsense", "--format", "json"][..], &["--format=json", "run"], &["plan", "--format", "json"]] {
        let done = place.rye(args);
        assert_eq!(done.code, Some(2), "{args:?}");
        let error: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(error["error"]["code"], "usage", "{args:?}");
        assert!(!error["error"]["message"].as_str().unwrap().is_empty());
        assert_eq!(done.stderr, "", "{args:?}");
    }
    let human = place.rye(&["nonsense"]);
    assert_eq!((human.code, human.stdout.as_str()), (Some(2), ""));
    assert!(human.stderr.starts_with("error: "), "{}", human.stderr);
    let help = place.rye(&["run", "--help", "--format", "json"]);
    assert_eq!(help.code, Some(0));
    assert!(help.stdout.contains("Usage:"));
}

#[test]
fn every_json_output_is_one_document() {
    let (place, id) = ran();
    let graph = place.run_ok(&["plan", "hello", "--graph", "--format", "json"]);
    let graph: Value = serde_json::from_str(&graph).unwrap();
    assert!(graph["nodes"].as_array().unwrap().iter().any(|node| node == "finish"), "{graph}");
    assert!(!graph["edges"].as_array().unwrap().is_empty());
    assert!(place.run_ok(&["graph", "hello", "--format", "json", "--to", "dot"]).starts_with("digraph"));
    let transcript: Value =
        serde_json::from_str(&place.run_ok(&["threads", "transcript", &id, "--format", "json"])).unwrap();
    assert_eq!(transcript["thread_id"], id.as_str());
    let events = transcript["events"].as_array().unwrap();
    let lines = place.run_ok(&["threads", "transcript", &id, "--json"]);
    assert_eq!(events.len(), lines.lines().count());
    assert_eq!((&events[0]["seq"], &events[0]["event"]["type"]), (&json!(0), &json!("opened")));
    let tail = place.run_ok(&["threads", "transcript", &id, "--format", "json", "--tail", "1"]);
    let tail: Value = serde_json::from_str(&tail).unwrap();
    assert_eq!(tail["events"][0]["event"]["type"], "ended");
}

#[test]
fn ledger_account_matches_its_documented_shape() {
    let (place, id) = ran();
    let file = include_str!("../../stdlib/.ai/config/agent/budget_ledger_schema.yaml");
    let parsed = rye_grammar::yaml::parse(rye_grammar::SourceId(0), file);
    assert!(parsed.errors.is_empty());
    let schema = parsed.tree.to_value();
    let account = place.json(&["threads", "show", &id]).1["ledger"][0].clone();
    let given: Vec<&String> = account.as_object().unwrap().keys().collect();
    let mut required: Vec<&str> = schema["required"].as_array().unwrap().iter().map(|k| k.as_str().unwrap()).collect();
    let mut declared: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    let mut sorted = given.clone();
    sorted.sort();
    required.sort_unstable();
    declared.sort();
    assert_eq!((&sorted, &declared), (&declared, &sorted));
    assert!(required.iter().eq(sorted.iter().map(|k| k.as_str()).collect::<Vec<_>>().iter()));
    for (key, value) in account.as_object().unwrap() {
        let fits = match schema["properties"][key]["type"].as_str() {
            Some("string") => value.is_string(),
            Some("integer") => value.is_u64(),
            Some("number") => value.is_number(),
            _ => schema["properties"][key]["enum"].as_array().unwrap().contains(value),
        };
        assert!(fits, "{key}: {value}");
    }
}

#[test]
fn input_of_a_routed_parent_is_typed() {
    let place = TestProject::own();
    place.write(
        ".ai/config/agent/hooks.yaml",
        "hooks:\n  - { id: to_base, event: resolve_extends, condition: 'directive == \"leaf\" && inputs.level >= 2', \
         action: { set_extends: base } }\n",
    );
    let directive = |name: &str, rest: &str, body: &str| {
        format!(
            "```xml\n<directive name=\"{name}\" version=\"1.0.0\">\n<metadata><description>d</description>\
             <model provider=\"scripted\" tier=\"fast\"/></metadata>\n{rest}</directive>\n```\n\n{body}\n"
        )
    };
    place.write(".ai/directives/leaf.md", &directive("leaf", "", "Do it."));
    let inputs = "<inputs><input name=\"level\" type=\"integer\" required=\"true\">how far</input>\
                  <input name=\"names\" type=\"array\">who</input></inputs>";
    place.write(".ai/directives/base.md", &directive("base", inputs, "Level {input:level} {input:names?}."));
    place.write("script.yaml", "steps: [Done.]\n");
    let (code, plan) = place.json(&["plan", "leaf", "--input", "level=3", "--input", "names=[\"a\"]"]);
    assert_eq!((code, &plan["chain"]), (Some(0), &json!(["base", "leaf"])), "{plan}");
    let (code, run) = place.json(&["run", "leaf", "--input", "level=3"]);
    assert_eq!(code, Some(0), "{run}");
    let id = run["thread_id"].as_str().unwrap();
    assert_eq!(place.json(&["threads", "show", id]).1["inputs"], json!({"level": 3}));
    // An input that no chain declares is still an error.
    assert_eq!(place.rye(&["plan", "leaf", "--input", "level=1"]).code, Some(1));
    assert_eq!(place.rye(&["plan", "leaf", "--input", "level=3", "--input", "other=1"]).code, Some(1));
}

#[test]
fn ctrl_c_reaches_a_long_tool() {
    let place = TestProject::own();
    place.write(
        ".ai/directives/wait.md",
        "```xml\n<directive name=\"wait\" version=\"1.0.0\">\n<metadata><description>d</description>\
         <model provider=\"scripted\" tier=\"fast\"/><permissions><execute><tool write=\"out/\">rye.bash.bash</tool></execute>\
         <acknowledge risk=\"elevated\">to wait</acknowledge></permissions></metadata>\n</directive>\n```\n\nWait.\n",
    );
    place.write(
        "script.yaml",
        "steps:\n  - tool_calls: [{ name: rye_bash_bash, input: { command: 'touch out/begun; sleep 60' } }]\n  - Done.\n",
    );
    place.write("out/before", "");
    let child =
        place.command(&["run", "wait", "--format", "json"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let begun = place.project().join("out/begun");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !begun.exists() {
        assert!(Instant::now() < deadline, "the tool never began");
        std::thread::sleep(Duration::from_millis(20));
    }
    let asked = Instant::now();
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let done = ProcessResult::from(child.wait_with_output().unwrap());
    assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
    let result: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((done.code, &result["status"]), (Some(130), &json!("cancelled")));
}

#[test]
fn removed_thread_folder_is_created_again() {
    for gone in [".ai/state/threads", ".ai/state/objects"] {
        let place = TestProject::example("hello");
        place.run_ok(&["run", "hello"]);
        std::fs::remove_dir_all(place.project().join(gone)).unwrap();
        place.run_ok(&["run", "hello"]);
    }
}
