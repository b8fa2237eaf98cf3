//! Tests of thread trees and their ledgers as processes.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use rye::TestProject;
use serde_json::{Value, json};

/// Writes a directive with these limits. The directive may start all other directives.
fn directive(place: &TestProject, name: &str, limits: &str) {
    place.write(
        &format!(".ai/directives/{name}.md"),
        &format!(
            "A level.\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\">\n<metadata><description>One.</description>\
             <model provider=\"scripted\" tier=\"fast\"/><nudge>never</nudge><limits {limits}/>\
             <permissions><execute><directive>*</directive></execute></permissions></metadata>\n</directive>\n```\n\nWork.\n"
        ),
    );
}

fn start(child: &str) -> String {
    format!("{{ name: rye_execute, input: {{ item_type: directive, item_id: {child} }} }}")
}

fn nanos(dollars: &Value) -> u64 {
    format!("{:.9}", dollars.as_f64().unwrap()).replace('.', "").parse().unwrap()
}

/// Cost of a turn in nano-dollars: a dollar per million input tokens, five per million output tokens.
const TURN_NANOS: u64 = 100 * 1_000 + 10 * 5_000;

#[test]
fn a_tree_of_three_levels_runs_twice_in_one_project() {
    let place = TestProject::own();
    directive(&place, "top", "spend=\"1\"");
    directive(&place, "middle", "spend=\"0.4\"");
    directive(&place, "low", "spend=\"0.1\"");
    let usage = "usage: { input: 100, output: 10 }";
    let level =
        |child: &str| format!("    - {{ {usage}, tool_calls: [{}] }}\n    - {{ {usage}, text: up }}\n", start(child));
    let script = format!(
        "threads:\n  top:\n{}  middle:\n{}  low:\n    - {{ {usage}, text: deep }}\n",
        level("middle"),
        level("low")
    );
    place.write("script.yaml", &script);
    for round in 1..=2 {
        let (code, result) = place.json(&["run", "top"]);
        assert_eq!((code, &result["status"]), (Some(0), &json!("completed")), "round {round}: {result}");
        assert_eq!(nanos(&result["cost"]["spend"]), 5 * TURN_NANOS);
        assert_eq!((&result["cost"]["turns"], &result["cost"]["input_tokens"]), (&json!(5), &json!(500)), "{result}");
        let (_, shown) = place.json(&["threads", "show", result["thread_id"].as_str().unwrap()]);
        let ledger = shown["ledger"].as_array().unwrap();
        let accounts: Vec<(u64, &str)> =
            ledger.iter().map(|row| (nanos(&row["spent"]), row["standing"].as_str().unwrap())).collect();
        assert_eq!(
            accounts,
            [(5 * TURN_NANOS, "released"), (3 * TURN_NANOS, "released"), (TURN_NANOS, "released")],
            "round {round}: {shown}"
        );
    }
    let (_, listed) = place.json(&["threads", "list"]);
    let threads = listed["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 6);
    assert!(threads.iter().all(|thread| thread["status"] == "completed"), "{listed}");
}

#[test]
fn sequential_children_get_equal_budgets() {
    let place = TestProject::own();
    // Each child reserves most of the available money, and returns the unused part.
    directive(&place, "lead", "spend=\"0.25\"");
    directive(&place, "child", "spend=\"0.1\"");
    let spends = "{ usage: { input: 100, output: 1000 }, text: done }";
    let calls =
        format!("    - {{ usage: {{ input: 100, output: 10 }}, tool_calls: [{}] }}\n", start("child")).repeat(4);
    let script = format!(
        "threads:\n  lead:\n{calls}    - {{ usage: {{ input: 1, output: 1 }}, text: all }}\n  child:\n    - {spends}\n"
    );
    place.write("script.yaml", &script);
    let (code, result) = place.json(&["run", "lead"]);
    assert_eq!((code, &result["status"], &result["result"]), (Some(0), &json!("completed"), &json!("all")), "{result}");
    let (_, listed) = place.json(&["threads", "list"]);
    let children: Vec<&Value> =
        listed["threads"].as_array().unwrap().iter().filter(|thread| thread["directive"] == "child").collect();
    assert_eq!(children.len(), 4);
    for child in children {
        assert_eq!(child["status"], "completed", "{listed}");
    }
    let (_, shown) = place.json(&["threads", "show", result["thread_id"].as_str().unwrap()]);
    let ledger = shown["ledger"].as_array().unwrap();
    let reservations: Vec<(u64, u64)> =
        ledger.iter().skip(1).map(|row| (nanos(&row["reserved"]), nanos(&row["spent"]))).collect();
    assert_eq!(reservations, [(100_000_000, 100 * 1_000 + 1_000 * 5_000); 4], "{shown}");
}

#[test]
fn limit_error_names_origin_and_next_command() {
    let place = TestProject::own();
    // Without a key of the user, a higher limit than in the continued thread has to be accepted at the next resume.
    place.run_ok(&["keys", "generate"]);
    directive(&place, "top", "turns=\"1\"");
    place.write(
        "script.yaml",
        &format!("threads:\n  top:\n    - {{ text: so far, tool_calls: [{}] }}\n    - on\n", start("absent")),
    );
    let stopped = |args: &[&str]| {
        let done = place.rye(&[&["run", "top"], args].concat());
        assert_eq!(done.code, Some(4), "{}", done.stderr);
        done.stderr.replace('\n', " ")
    };
    let stderr = stopped(&[]);
    assert_eq!(stderr.matches("turns_exceeded").count(), 1, "the error is printed once: {stderr}");
    assert!(
        stderr.contains("the limit `turns` comes from .ai/directives/top.md:5 (") && stderr.contains("--limit turns=N"),
        "{stderr}"
    );
    let stderr = stopped(&["--limit", "tokens=5", "--limit", "turns=3"]);
    assert!(stderr.contains("the limit `tokens` comes from `--limit`; continue"), "{stderr}");
    // No file sets the limit, so the warning names none.
    assert!(stderr.contains("the token limit of 5 is below") && !stderr.contains("resilience.yaml"), "{stderr}");
    // The suggested command works.
    let (_, result) = place.json(&["run", "top"]);
    let thread = result["thread_id"].as_str().unwrap();
    assert!(stderr.contains("`rye threads resume top-"), "{stderr}");
    let (_, resumed) = place.json(&["threads", "resume", thread, "--message", "and?"]);
    assert_eq!(
        (&resumed["cost"]["turns"], &resumed["error"]["code"]),
        (&json!(1), &json!("turns_exceeded")),
        "{resumed}"
    );
    // The suggested option sets another limit, and a third thread has this limit too.
    let message = ["threads", "resume", thread, "--message", "go on"];
    let hint = place.rye(&message).stderr.replace('\n', " ");
    assert!(hint.contains("the limit `turns` comes from the continued thread `top-"), "{hint}");
    place.write(
        "script.yaml",
        &format!(
            "threads:\n  top:\n{}    - end\n",
            format!("    - {{ tool_calls: [{}] }}\n", start("absent")).repeat(4)
        ),
    );
    place.run_ok(&["trust"]);
    let (code, more) = place.json(&[&message[..], &["--limit", "turns=3"]].concat());
    assert_eq!((code, &more["cost"]["turns"], &more["error"]["code"]), (Some(4), &json!(3), &json!("turns_exceeded")));
    let third = more["thread_id"].as_str().unwrap();
    let (_, shown) = place.json(&["threads", "show", third]);
    let spend = &place.json(&["threads", "show", thread]).1["limits"]["spend"];
    assert_eq!((&shown["limits"]["turns"], &shown["limits"]["spend"]), (&json!(3), spend), "{shown}");
    let resumed = ["run", "--resume", third, "--message", "go on"];
    let (_, again) = place.json(&resumed);
    assert_eq!(again["cost"]["turns"], json!(3), "{again}");
    let (code, lower) = place.json(&[&resumed[..], &["--limit", "turns=2"]].concat());
    assert_eq!((code, &lower["cost"]["turns"]), (Some(4), &json!(2)), "{lower}");
    for (limit, reason) in [("turns=0", "cannot be `0`"), ("turn=3", "unknown limit `turn`"), ("spend=x", "spend")] {
        let refused = place.rye(&[&resumed[..], &["--limit", limit]].concat());
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains(reason), "{}", refused.stderr);
    }
    let inside = place
        .command(&[&resumed[..], &["--limit", "turns=9"]].concat())
        .env("RYE_PARENT_THREAD_ID", third)
        .output()
        .unwrap();
    assert_eq!(inside.status.code(), Some(2), "a program of a thread cannot leave the limits of the thread");
    place.run_ok(&["threads", "verify"]);
    directive(&place, "top", "turns=\"1\"");
    place.write(
        "script.yaml",
        &format!("threads:\n  top:\n    - {{ text: so far, tool_calls: [{}] }}\n    - on\n", start("absent")),
    );
    // JSON output contains the error code only, without the hint.
    let (code, result) = place.json(&["run", "top"]);
    assert_eq!(
        (code, &result["result"], &result["error"]["code"]),
        (Some(4), &json!("so far"), &json!("turns_exceeded"))
    );
}

#[test]
fn child_limit_is_raised_up_to_its_parent() {
    let place = TestProject::own();
    directive(&place, "top", "turns=\"3\"");
    directive(&place, "low", "turns=\"1\" spend=\"0.1\"");
    place.write(".ai/config/agent/hooks.yaml", "hooks:\n  - { id: ask, event: limit, action: { escalate: {} } }\n");
    let script = format!(
        "threads:\n  top:\n    - {{ tool_calls: [{0}] }}\n    - up\n  low:\n    - {{ tool_calls: [{0}] }}\n    - deep\n",
        start("low")
    );
    place.write("script.yaml", &script);
    let run = place.rye(&["run", "top", "--limit", "depth=1"]);
    assert_eq!(run.code, Some(4), "a suspended child needs an answer: {}", run.stderr);
    assert!(run.stderr.contains("waits for your answer: `rye threads approve low-"), "{}", run.stderr);
    assert!(run.stderr.contains(" --raise turns=N`"), "{}", run.stderr);
    let (_, list) = place.json(&["threads", "list"]);
    let low = list["threads"].as_array().unwrap().iter().find(|row| row["directive"] == "low").unwrap();
    assert_eq!(low["status"], "suspended", "{list}");
    let id = low["thread_id"].as_str().unwrap();
    let refused = place.rye(&["threads", "approve", id, "--raise", "turns=99"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("is 3, which is the maximum for its children"), "{}", refused.stderr);
    assert_eq!(place.rye(&["threads", "approve", id, "--raise", "turns=3"]).code, Some(0));
}

/// The recorded calls and results contain ids of children and process ids, which differ in a replay.
#[test]
fn recorded_script_replays_a_thread_with_children() {
    let place = TestProject::own();
    let text = "A level.\n\n```xml\n<directive name=\"NAME\" version=\"1.0.0\">\n<metadata><description>One.</description>\
                <model provider=\"scripted\" tier=\"fast\"/><nudge>never</nudge><limits spend=\"SPEND\"/>\
                <permissions><execute><directive>*</directive><tool>rye.agent.*</tool></execute></permissions>\
                </metadata>\n</directive>\n```\n\nWork.\n";
    for (name, spend) in [("top", "1"), ("middle", "0.3"), ("low", "0.1")] {
        place.write(&format!(".ai/directives/{name}.md"), &text.replace("NAME", name).replace("SPEND", spend));
    }
    let apart = "{ name: rye_execute, input: { item_type: directive, item_id: low, async: true } }";
    let wait = "{ name: rye_agent_threads_orchestrator, input: { operation: wait_threads, thread_ids: [\"${child.2}\", \"${child.3}\"] } }";
    let (one, two) = (start("middle"), start("low"));
    let script = format!(
        "threads:\n  top:\n    - {{ tool_calls: [{one}] }}\n    - {{ tool_calls: [{apart}, {apart}] }}\n    - {{ tool_calls: [{wait}] }}\n    \
         - {{ tool_calls: [{one}, {two}] }}\n    - up\n  middle:\n    - {{ tool_calls: [{two}] }}\n    - half\n  low:\n    - deep\n"
    );
    place.write("first.yaml", &script);
    let (code, first) = place.json(&["run", "top", "--script", "first.yaml"]);
    assert_eq!((code, &first["result"]), (Some(0), &json!("up")), "{first}");
    let thread = first["thread_id"].as_str().unwrap();
    let waited = place.run_ok(&["threads", "transcript", thread]);
    assert!(waited.contains("\"all_finished\":true"), "{waited}");
    place.run_ok(&["threads", "export", thread, "--script", "-o", "recorded.json"]);
    let recorded = place.read("recorded.json");
    let (_, listed) = place.json(&["threads", "list"]);
    for one in listed["threads"].as_array().unwrap() {
        let id = one["thread_id"].as_str().unwrap();
        assert!(!recorded.contains(id), "{id}: {recorded}");
    }
    let (code, again) = place.json(&["run", "top", "--script", "recorded.json"]);
    assert_eq!((code, &again["result"]), (Some(0), &json!("up")), "{again}");
    assert_eq!(again["cost"], first["cost"]);
    // A changed result is still a difference.
    place.write("recorded.json", &recorded.replace("\"text\": \"half\"", "\"text\": \"whole\""));
    let differs = place.rye(&["run", "top", "--script", "recorded.json"]);
    assert_eq!(differs.code, Some(1), "{}", differs.stderr);
    assert!(format!("{}{}", differs.stdout, differs.stderr).contains("differs from its script"), "{}", differs.stderr);
}

/// Returns the cost in the list of the thread of a directive: turns, input tokens, and nano-dollars.
fn listed_cost(place: &TestProject, directive: &str) -> (u64, u64, u64) {
    let (_, list) = place.json(&["threads", "list"]);
    let row = list["threads"].as_array().unwrap().iter().find(|row| row["directive"] == directive).unwrap();
    cost_of(&row["cost"])
}

fn cost_of(cost: &Value) -> (u64, u64, u64) {
    (cost["turns"].as_u64().unwrap(), cost["input_tokens"].as_u64().unwrap(), nanos(&cost["spend"]))
}

#[test]
fn cost_of_a_run_includes_asynchronous_children() {
    let place = TestProject::own();
    directive(&place, "top", "spend=\"1\"");
    directive(&place, "low", "spend=\"0.1\"");
    let usage = "usage: { input: 100, output: 10 }";
    let apart = "{ name: rye_execute, input: { item_type: directive, item_id: low, async: true } }";
    place.write(
        "script.yaml",
        &format!(
            "threads:\n  top:\n    - {{ {usage}, tool_calls: [{apart}] }}\n    - {{ {usage}, text: up }}\n  low:\n                 - {{ {usage}, text: deep, delay_ms: 1500 }}\n"
        ),
    );
    let (code, result) = place.json(&["run", "top"]);
    assert_eq!(code, Some(0), "{result}");
    let whole = (3, 300, 3 * TURN_NANOS);
    assert_eq!(cost_of(&result["cost"]), whole, "{result}");
    assert_eq!(listed_cost(&place, "top"), whole);
    assert_eq!(listed_cost(&place, "low"), (1, 100, TURN_NANOS));
    let id = result["thread_id"].as_str().unwrap();
    let (_, shown) = place.json(&["threads", "show", id]);
    assert_eq!((cost_of(&shown["cost"]), cost_of(&shown["run_cost"])), (whole, whole), "{shown}");
    let (_, waited) = place.json(&["threads", "results", id]);
    assert_eq!(cost_of(&waited["threads"][0]["result"]["cost"]), whole, "{waited}");
}

#[test]
fn end_of_an_asynchronous_child_after_its_parent_is_printed() {
    let place = TestProject::own();
    directive(&place, "top", "spend=\"1\"");
    directive(&place, "low", "spend=\"0.1\"");
    let apart = "{ name: rye_execute, input: { item_type: directive, item_id: low, async: true } }";
    place.write(
        "script.yaml",
        &format!(
            "threads:\n  top:\n    - {{ tool_calls: [{apart}] }}\n    - up\n  low:\n    - {{ delay_ms: 1500, tool_calls: [{}] }}\n",
            start("none")
        ),
    );
    let run = place.rye(&["run", "top"]);
    let ended = run.stderr.lines().find(|line| line.starts_with("child low-") && line.ends_with(" error"));
    assert!(ended.is_some(), "{}", run.stderr);
}
