//! Calls that the table of risks wants a person's word for, where nobody is at a terminal.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use rye::Place;
use serde_json::json;

/// A directive whose model runs a shell twice, and nobody has acknowledged that.
fn place() -> Place {
    let place = Place::new();
    place.fine(&["init"]);
    place.write(
        ".ai/directives/shell.md",
        "# Shell\n\n```xml\n<directive name=\"shell\" version=\"1.0.0\">\n<metadata>\n<permissions><execute>\
         <tool write=\"out/\">rye.bash.bash</tool></execute></permissions>\n<nudge>never</nudge>\n</metadata>\n</directive>\n```\n\nRun it.\n",
    );
    place.write(
        "script.yaml",
        "steps:\n  - tool_calls: [{ name: rye_bash_bash, input: { command: 'echo one >> out/log' } }]\n  \
         - tool_calls: [{ name: rye_bash_bash, input: { command: 'echo two >> out/log' } }]\n  - done\n",
    );
    place
}

fn log(place: &Place) -> String {
    std::fs::read_to_string(place.project().join("out/log")).unwrap_or_default()
}

const RUN: [&str; 6] = ["run", "shell", "--model", "scripted/fast", "--unattended", "queue"];

#[test]
fn a_call_that_nobody_can_be_asked_about_waits() {
    let place = place();
    let ran = place.rye(&RUN);
    assert_eq!(ran.code, Some(5), "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(log(&place), "");
    let (_, queue) = place.json(&["threads", "approvals"]);
    let first = &queue["approvals"][0];
    assert_eq!((&first["asked"], &first["directive"]), (&json!("call"), &json!("shell")));
    assert_eq!(first["what"], "rye.execute.tool.rye.bash.bash with {\"command\":\"echo one >> out/log\"}");
    let thread = first["thread_id"].as_str().unwrap().to_owned();
    assert_eq!(first["approve"], format!("rye threads approve {thread}"));
    // One word lets one call go on; the next one waits again.
    let once = place.rye(&["threads", "approve", &thread]);
    assert_eq!((once.code, log(&place).as_str()), (Some(5), "one\n"), "{}", once.stderr);
    let (_, queue) = place.json(&["threads", "approvals"]);
    assert!(queue["approvals"][0]["what"].as_str().unwrap().contains("echo two"), "{queue}");
    // A refusal is an answer too.
    let refused = place.rye(&["threads", "approve", &thread, "--deny"]);
    assert_eq!((refused.code, log(&place).as_str()), (Some(0), "one\n"), "{}", refused.stderr);
    assert_eq!(place.json(&["threads", "approvals"]).1, json!({"approvals": []}));
    assert!(place.fine(&["threads", "transcript", &thread]).contains("nobody allowed rye.execute.tool.rye.bash.bash"));
}

#[test]
fn what_is_remembered_has_a_scope() {
    let place = place();
    assert_eq!(place.rye(&RUN).code, Some(5));
    let thread = |place: &Place| {
        let (_, queue) = place.json(&["threads", "approvals"]);
        queue["approvals"][0]["thread_id"].as_str().unwrap().to_owned()
    };
    let whole = place.rye(&["threads", "approve", &thread(&place), "--scope", "thread"]);
    assert_eq!((whole.code, log(&place).as_str()), (Some(0), "one\ntwo\n"), "{}", whole.stderr);
    // Another thread is another thread.
    assert_eq!(place.rye(&RUN).code, Some(5));
    assert_eq!(place.rye(&["threads", "approve", &thread(&place), "--scope", "project"]).code, Some(0));
    assert!(place.fine(&["trust", "--list"]).contains("capability rye.execute.tool.rye.bash.bash"));
    assert_eq!(place.rye(&RUN).code, Some(0));
    assert_eq!(log(&place), "one\ntwo\n".repeat(3));
    place.fine(&["trust", "--revoke"]);
    assert_eq!(place.rye(&RUN).code, Some(5));
}

#[test]
fn somebody_may_say_beforehand_what_becomes_of_such_calls() {
    let place = place();
    let bare = RUN.get(..4).unwrap();
    let denied = place.rye(&[bare, &["--unattended", "deny"]].concat());
    assert_eq!((denied.code, log(&place).as_str()), (Some(0), ""), "{}", denied.stderr);
    let allowed = place.rye(bare);
    assert_eq!((allowed.code, log(&place).as_str()), (Some(0), "one\ntwo\n"), "{}", allowed.stderr);
    assert!(allowed.stderr.contains("that nobody acknowledged"), "{}", allowed.stderr);
    assert_eq!(place.json(&["threads", "approvals"]).1, json!({"approvals": []}));
    // A project can ask for more than its user, never for less.
    place.write(".ai/config/agent/agent.yaml", "approvals: { unattended: queue }\n");
    assert_eq!(place.rye(bare).code, Some(5));
    let user = place.project().join("../user/.ai/config/agent/agent.yaml");
    std::fs::create_dir_all(user.parent().unwrap()).unwrap();
    std::fs::write(user, "approvals: { unattended: deny }\n").unwrap();
    place.write(".ai/config/agent/agent.yaml", "approvals: { unattended: allow }\n");
    assert_eq!((place.rye(bare).code, log(&place).as_str()), (Some(0), "one\ntwo\n"));
    assert_eq!(place.rye(&[bare, &["--unattended", "allow"]].concat()).code, Some(0));
    assert_eq!(log(&place), "one\ntwo\n".repeat(2));
}
