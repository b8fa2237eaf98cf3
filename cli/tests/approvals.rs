//! Tests of calls that need approval, without a terminal.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;
#[path = "support/terminal.rs"]
mod terminal;

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rye::TestProject;
use serde_json::json;
use terminal::Terminal;

/// Returns a project with a directive whose model calls a shell twice, without `<acknowledge>`.
fn place() -> TestProject {
    let place = TestProject::own();
    place.run_ok(&["init"]);
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

fn log(place: &TestProject) -> String {
    std::fs::read_to_string(place.project().join("out/log")).unwrap_or_default()
}

const RUN: [&str; 6] = ["run", "shell", "--model", "scripted/fast", "--unattended", "queue"];

#[test]
fn headless_call_waits_in_the_queue() {
    let place = place();
    let ran = place.rye(&RUN);
    assert_eq!(ran.code, Some(5), "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(log(&place), "");
    let (_, queue) = place.json(&["threads", "approvals"]);
    let first = &queue["approvals"][0];
    assert_eq!((&first["kind"], &first["directive"]), (&json!("call"), &json!("shell")));
    assert_eq!(first["what"], "rye.execute.tool.rye.bash.bash with {\"command\":\"echo one >> out/log\"}");
    let thread = first["thread_id"].as_str().unwrap().to_owned();
    assert_eq!(first["approve"], format!("rye threads approve {thread}"));
    // An approval allows one call; the next call waits again.
    let once = place.rye(&["threads", "approve", &thread]);
    assert_eq!((once.code, log(&place).as_str()), (Some(5), "one\n"), "{}", once.stderr);
    let (_, queue) = place.json(&["threads", "approvals"]);
    assert!(queue["approvals"][0]["what"].as_str().unwrap().contains("echo two"), "{queue}");
    // A denial is an answer too.
    let refused = place.rye(&["threads", "approve", &thread, "--deny"]);
    assert_eq!((refused.code, log(&place).as_str()), (Some(0), "one\n"), "{}", refused.stderr);
    assert_eq!(place.json(&["threads", "approvals"]).1, json!({"approvals": []}));
    assert!(
        place
            .run_ok(&["threads", "transcript", &thread])
            .contains("permission denied: rye.execute.tool.rye.bash.bash was not approved")
    );
}

#[test]
fn wait_for_a_suspended_call_exits_like_its_run() {
    let place = place();
    assert_eq!(place.rye(&RUN).code, Some(5));
    let (_, queue) = place.json(&["threads", "approvals"]);
    let thread = queue["approvals"][0]["thread_id"].as_str().unwrap();
    let waited = place.rye(&["threads", "wait", thread]);
    assert_eq!(waited.code, Some(5), "{}\n{}", waited.stdout, waited.stderr);
    let line =
        format!("{thread}\tsuspended\trye.execute.tool.rye.bash.bash with {{\"command\":\"echo one >> out/log\"}}");
    assert_eq!(waited.stdout.trim(), line);
    assert!(waited.stderr.contains(&format!("approve with `rye threads approve {thread}`")), "{}", waited.stderr);
    assert_eq!(place.json(&["threads", "wait", thread]).0, Some(5));
}

#[test]
fn approval_applies_to_its_scope() {
    let place = place();
    assert_eq!(place.rye(&RUN).code, Some(5));
    let thread = |place: &TestProject| {
        let (_, queue) = place.json(&["threads", "approvals"]);
        queue["approvals"][0]["thread_id"].as_str().unwrap().to_owned()
    };
    let whole = place.rye(&["threads", "approve", &thread(&place), "--scope", "thread"]);
    assert_eq!((whole.code, log(&place).as_str()), (Some(0), "one\ntwo\n"), "{}", whole.stderr);
    // The approval does not apply to another thread.
    assert_eq!(place.rye(&RUN).code, Some(5));
    assert_eq!(place.rye(&["threads", "approve", &thread(&place), "--scope", "project"]).code, Some(0));
    assert!(place.run_ok(&["trust", "--list"]).contains("capability rye.execute.tool.rye.bash.bash"));
    assert_eq!(place.rye(&RUN).code, Some(0));
    assert_eq!(log(&place), "one\ntwo\n".repeat(3));
    place.run_ok(&["trust", "--revoke", "rye.execute.tool.rye.bash.bash"]);
    assert_eq!(place.rye(&RUN).code, Some(5));
}

#[test]
fn headless_policy_comes_from_flag_and_settings() {
    let place = place();
    let bare = RUN.get(..4).unwrap();
    let denied = place.rye(&[bare, &["--unattended", "deny"]].concat());
    assert_eq!((denied.code, log(&place).as_str()), (Some(0), ""), "{}", denied.stderr);
    // The policy is printed before the run starts.
    let waits = place.rye(&RUN);
    assert_eq!((waits.code, log(&place).as_str()), (Some(5), ""), "{}", waits.stderr);
    let first = waits.stderr.find("suspend the thread until `rye threads approve`: `rye.execute.tool.rye.bash.bash`");
    assert!(first < waits.stderr.find("thread shell-") && first.is_some(), "{}", waits.stderr);
    // The default policy is printed too.
    let passes = place.rye(bare);
    assert_eq!((passes.code, log(&place).as_str()), (Some(0), "one\ntwo\n"), "{}", passes.stderr);
    let first = passes.stderr.find("these risky calls run without approval: `rye.execute.tool.rye.bash.bash`");
    assert!(first < passes.stderr.find("thread shell-") && first.is_some(), "{}", passes.stderr);
    // The user's setting applies; a project can only make it stricter.
    place.write("../user/.ai/config/agent/agent.yaml", "approvals: { headless: queue }\n");
    assert_eq!(place.rye(bare).code, Some(5));
    assert_eq!(place.rye(&[bare, &["--unattended", "allow"]].concat()).code, Some(0));
    assert_eq!(log(&place), "one\ntwo\n".repeat(2));
    place.write("../user/.ai/config/agent/agent.yaml", "approvals: { headless: allow }\n");
    place.write(".ai/config/agent/agent.yaml", "approvals: { headless: queue }\n");
    assert_eq!(place.rye(bare).code, Some(5));
    place.write("../user/.ai/config/agent/agent.yaml", "approvals: { headless: deny }\n");
    place.write(".ai/config/agent/agent.yaml", "approvals: { headless: allow }\n");
    assert_eq!((place.rye(bare).code, log(&place)), (Some(0), "one\ntwo\n".repeat(2)));
    assert_eq!(place.rye(&[bare, &["--unattended", "allow"]].concat()).code, Some(0));
    assert_eq!(log(&place), "one\ntwo\n".repeat(3));
}

#[test]
fn plan_and_doctor_print_the_headless_policy() {
    let place = place();
    let doctor_report = |place: &TestProject| {
        let (_, plan) = place.json(&["plan", "shell", "--model", "scripted/fast"]);
        assert_eq!(plan["approvals_required"][0]["pattern"], "rye.execute.tool.rye.bash.bash");
        let text = place.run_ok(&["plan", "shell", "--model", "scripted/fast"]);
        let line = text.lines().find(|line| line.contains("approval required for")).unwrap().trim().to_owned();
        let doctor = place.rye(&["doctor", "--format", "plain"]).stdout;
        let finding = doctor.lines().find(|line| line.contains("\tapprovals\t")).unwrap().to_owned();
        (plan["headless_policy"].as_str().unwrap().to_owned(), line, finding)
    };
    let (way, line, finding) = doctor_report(&place);
    assert_eq!(way, "allow");
    assert!(line.ends_with("without a terminal: allowed without approval"), "{line}");
    assert!(finding.starts_with("note\t") && finding.contains("allowed without approval"), "{finding}");
    place.write("../user/.ai/config/agent/agent.yaml", "approvals: { headless: queue }\n");
    let (way, line, finding) = doctor_report(&place);
    assert_eq!(way, "queue");
    assert_eq!(
        line,
        "approval required for rye.execute.tool.rye.bash.bash: the risk elevated is not acknowledged; without a terminal: the thread is suspended until `rye threads approve`"
    );
    assert!(finding.starts_with("fine\t") && finding.contains("`approvals.headless: queue`"), "{finding}");
}

#[test]
fn children_and_trusted_tools_need_no_approval() {
    let place = place().cloned();
    let directive = |name: &str, grants: &str| {
        format!(
            "# D\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\">\n<metadata>\n<model provider=\"scripted\" tier=\"fast\"/>\n<permissions><execute>{grants}</execute>\
             </permissions>\n<nudge>never</nudge>\n</metadata>\n</directive>\n```\n\nGo.\n"
        )
    };
    let both = "<directive>below</directive><tool>mine</tool><tool write=\"out/\">rye.bash.*</tool>";
    place.write(".ai/directives/above.md", &directive("above", both));
    place.write(".ai/directives/below.md", &directive("below", "<tool write=\"out/\">rye.bash.*</tool>"));
    place.write(".ai/tools/mine.yaml", "description: d\nkind: command\ncommand: [echo, mine]\n");
    place.write(
        "script.yaml",
        "steps:\n  - tool_calls: [{ name: mine, input: {} }]\n  \
         - tool_calls: [{ name: rye_execute, input: { item_type: directive, item_id: below } }]\n  - done\n\
         threads:\n  below:\n    - tool_calls: [{ name: rye_bash_bash, input: { command: 'echo one >> out/log' } }]\n    - below\n",
    );
    let run = ["run", "above", "--model", "scripted/fast", "--unattended", "queue"];
    assert_eq!(place.rye(&run).code, Some(5), "its tool is not trusted");
    place.run_ok(&["trust"]);
    let ran = place.rye(&run);
    assert!(ran.stderr.contains("ok    mine"), "{}", ran.stderr);
    assert!(ran.stderr.contains("approved without a request: covered by trust"), "{}", ran.stderr);
    // The child was started, and waits before its own call.
    let (_, queue) = place.json(&["threads", "approvals"]);
    let waiting = queue["approvals"].as_array().unwrap();
    assert!(waiting.iter().any(|one| one["directive"] == "below"), "{queue}\n{}", ran.stderr);
    assert_eq!(log(&place), "");
}

/// Waits for the first approval request.
fn question(place: &TestProject) -> serde_json::Value {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let first = place.json(&["threads", "approvals"]).1["approvals"][0].clone();
        if !first.is_null() {
            return first;
        }
        assert!(Instant::now() < deadline, "no approval was requested");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn terminal_request_is_answered_from_another_process() {
    let place = place();
    place.run_ok(&["trust"]);
    // A separate terminal without input.
    let run = format!("{} run shell --model scripted/fast", env!("CARGO_BIN_EXE_rye"));
    let mut terminal = Command::new("script");
    terminal.args(["-qefc", &run, "/dev/null"]).current_dir(place.project()).env("RYE_USER_SPACE", place.user());
    let mut terminal = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let first = question(&place);
    assert!(first["what"].as_str().unwrap().contains("echo one"), "{first}");
    assert_eq!((&first["kind"], &first["at_terminal"], log(&place).as_str()), (&json!("call"), &json!(true), ""));
    let thread = first["thread_id"].as_str().unwrap();
    let yes = place.rye(&["threads", "approve", thread]);
    assert_eq!(yes.code, Some(0), "{}", yes.stderr);
    assert!(yes.stderr.contains("received the answer"), "{}", yes.stderr);
    // The next call is another request.
    let second = question(&place);
    assert!(second["what"].as_str().unwrap().contains("echo two"), "{second}");
    assert_eq!(log(&place), "one\n");
    assert_eq!(place.rye(&["threads", "approve", thread, "--deny"]).code, Some(0));
    let ended = terminal.wait().unwrap();
    let mut shown = String::new();
    terminal.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    assert!(ended.success(), "{shown}");
    assert_eq!(shown.matches("Allow?").count(), 2, "{shown}");
    assert_eq!(shown.matches("no answer needed").count(), 2, "{shown}");
    assert_eq!(log(&place), "one\n");
    let late = place.rye(&["threads", "approve", thread]);
    assert_eq!(late.code, Some(2), "{}", late.stderr);
    assert!(late.stderr.contains("has ended: completed"), "{}", late.stderr);
    let record = place.transcript(thread);
    let at = |kind: &str| record.iter().position(|line| line["type"] == kind).unwrap();
    assert!(at("approval_asked") < at("mail") && at("mail") + 1 == at("approval_given"), "{record:#?}");
}

/// A call whose parameters do not fit the tool is refused without a question: neither a queue nor a terminal gets a
/// request for it.
#[test]
fn call_with_wrong_parameters_is_refused_without_a_question() {
    let place = place();
    let call = "[{ name: rye_bash_bash, input: { cmd: 'echo one >> out/log' } }]";
    let execute =
        "[{ name: rye_execute, input: { item_type: tool, item_id: rye/bash/bash, parameters: { cmd: ls } } }]";
    place.write("script.yaml", &format!("steps:\n  - tool_calls: {call}\n  - tool_calls: {execute}\n  - done\n"));
    let (code, ran) = place.json(&RUN);
    assert_eq!((code, &ran["status"]), (Some(0), &json!("completed")), "{ran}");
    let record = place.transcript(ran["thread_id"].as_str().unwrap());
    let results: Vec<_> = record.iter().filter(|line| line["type"] == "tool_call_result").collect();
    assert_eq!(results.len(), 2, "{record:#?}");
    for result in results {
        assert!(result.to_string().contains("unknown parameter `cmd`; known are command"), "{result}");
    }
    let given: Vec<_> = record.iter().filter(|line| line["type"] == "approval_given").collect();
    assert!(
        given.iter().all(|given| given["cannot_run"].as_str().is_some_and(|why| why.contains("`cmd`"))),
        "{given:?}"
    );
    let terminal = Terminal::start(&place, 100, "run shell --model scripted/fast");
    terminal.wait_for("completed", 1);
    let (code, shown) = terminal.end();
    assert!(code == Some(0) && !shown.contains("Allow?"), "{shown}");
    assert_eq!(log(&place), "");
    place.run_ok(&["threads", "verify"]);
}

/// Returns a project whose script `play.yaml` waits before its first call, and whose provider has no script.
fn slow_place() -> TestProject {
    let place = place();
    let script =
        place.read("script.yaml").replacen("steps:\n  - tool_calls", "steps:\n  - delay_ms: 700\n    tool_calls", 1);
    place.write("play.yaml", &script);
    std::fs::remove_file(place.project().join("script.yaml")).unwrap();
    place
}

#[test]
fn settings_of_a_run_survive_a_crash_and_an_approval() {
    let place = slow_place();
    let run = ["run", "shell", "--model", "scripted/fast", "--unattended", "queue", "--script", "play.yaml"];
    let mut process = place.command(&run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let id = || {
        let (_, listed) = place.json(&["threads", "list", "--active"]);
        let id = listed["threads"][0]["thread_id"].as_str()?.to_owned();
        let record = place.project().join(format!(".ai/state/threads/{id}/transcript.jsonl"));
        std::fs::read_to_string(record).ok()?.contains("\"reserved\"").then_some(id)
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while id().is_none() {
        assert!(Instant::now() < deadline, "no model call began");
        std::thread::sleep(Duration::from_millis(10));
    }
    let id = id().unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    for (resume, done) in [
        (vec!["run", "--resume", &id], ""),
        // An earlier process recorded the approval request.
        (vec!["threads", "resume", &id], ""),
        (vec!["threads", "approve", &id], "one\n"),
    ] {
        let resumed = place.rye(&resume);
        assert_eq!((resumed.code, log(&place).as_str()), (Some(5), done), "{resume:?} {}", resumed.stderr);
        let message = "the thread keeps the options with which it was started: `--unattended queue`, `--script ";
        assert!(resumed.stderr.contains(message), "{resume:?} {}", resumed.stderr);
    }
    let last = place.rye(&["threads", "approve", &id]);
    assert_eq!((last.code, log(&place).as_str()), (Some(0), "one\ntwo\n"), "{}", last.stderr);
}

#[test]
fn flags_of_a_resume_win_over_recorded_settings() {
    let place = slow_place();
    let run = ["run", "shell", "--model", "scripted/fast", "--unattended", "queue", "--script", "play.yaml"];
    assert_eq!(place.rye(&run).code, Some(5));
    let (_, queue) = place.json(&["threads", "approvals"]);
    let id = queue["approvals"][0]["thread_id"].as_str().unwrap().to_owned();
    place.write("other.yaml", "steps:\n  - done\n  - another end\n");
    let resumed = place.json(&["run", "--resume", &id, "--unattended", "deny", "--script", "other.yaml"]);
    assert_eq!((resumed.0, &resumed.1["result"]), (Some(0), &json!("another end")), "{}", resumed.1);
    assert_eq!(log(&place), "");
    std::fs::remove_file(place.project().join("play.yaml")).unwrap();
    let missing = place.rye(&["run", "--resume", &id, "--message", "go on"]);
    assert_eq!(missing.code, Some(2), "{}", missing.stderr);
    assert!(missing.stderr.contains("rye run --script"), "{}", missing.stderr);
}

/// A refused command stores nothing.
#[test]
fn refused_approval_stores_no_project_grant() {
    let place = place();
    assert_eq!(place.rye(&RUN).code, Some(5));
    let (_, queue) = place.json(&["threads", "approvals"]);
    let id = queue["approvals"][0]["thread_id"].as_str().unwrap().to_owned();
    // The new limit is below the current one.
    let refused = place.rye(&["threads", "approve", &id, "--scope", "project", "--raise", "turns=1"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(!place.run_ok(&["trust", "--list"]).contains("capability rye.execute"));
}

#[test]
fn raised_limit_of_a_thread_is_shown() {
    let place = place();
    let hook = "hooks:\n  - { id: more, event: limit, action: escalate }\n";
    place.write(".ai/config/agent/hooks.yaml", hook);
    let directive = std::fs::read_to_string(place.project().join(".ai/directives/shell.md")).unwrap();
    let acknowledged = "<acknowledge risk=\"elevated\">a test</acknowledge></permissions>";
    place.write(".ai/directives/shell.md", &directive.replace("</permissions>", acknowledged));
    place.run_ok(&["trust"]);
    let ran = place.rye(&[&RUN[..], &["--limit", "turns=1"]].concat());
    assert_eq!(ran.code, Some(4), "{}", ran.stderr);
    let id = place.json(&["threads", "approvals"]).1["approvals"][0]["thread_id"].as_str().unwrap().to_owned();
    let limits = || place.json(&["threads", "show", &id]).1["limits"]["turns"].clone();
    assert_eq!(limits(), 1);
    place.run_ok(&["threads", "approve", &id, "--raise", "turns=9"]);
    assert_eq!(limits(), 9);
    assert!(place.run_ok(&["threads", "show", &id]).contains("turns 9"));
}
