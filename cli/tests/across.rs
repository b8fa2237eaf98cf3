//! Tests of trees whose threads run in separate processes (`--parent`): stopping a thread stops its descendants in
//! every process, programs that ignore signals are killed with all their descendants, and a wait follows a handoff.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rye::TestProject;
use serde_json::{Value, json};

/// Returns a project with three directives: `lead` runs for long, its child `work` runs longer, and `shell` follows
/// `script.yaml`.
fn place(script: &str) -> TestProject {
    let place = TestProject::own();
    for (name, spend) in [("lead", "3"), ("work", "1"), ("shell", "0.3")] {
        let text = format!(
            "```xml\n<directive name=\"{name}\" version=\"1.0.0\">\n<metadata><description>d</description>\
             <model provider=\"scripted\" tier=\"fast\"/><nudge>never</nudge><limits turns=\"1000\" spend=\"{spend}\" depth=\"4\" \
             spawns=\"20\"/><permissions><execute><directive>*</directive><tool>rye.file-system.*</tool>\
             <tool write=\"out/\">rye.bash.bash</tool></execute><acknowledge risk=\"elevated\">test</acknowledge></permissions>\
             </metadata>\n</directive>\n```\n\nWork.\n"
        );
        place.write(&format!(".ai/directives/{name}.md"), &text);
    }
    place.write("out/here", "");
    place.write("script.yaml", script);
    place
}

/// Returns a script of `count` turns with this delay each.
fn turns(directive: &str, count: usize, delay_ms: u64) -> String {
    let step = format!(
        "    - {{ delay_ms: {delay_ms}, tool_calls: [{{ name: rye_file_system_ls, input: {{ path: . }} }}] }}\n"
    );
    format!("  {directive}:\n{}    - {directive} is done\n", step.repeat(count))
}

/// A process that is killed when the test ends, even by a panic.
struct RyeProcess(Child);

impl Drop for RyeProcess {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl RyeProcess {
    fn start(place: &TestProject, args: &[&str]) -> Self {
        let mut command = place.command(&[args, &["--format", "json"]].concat());
        Self(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Waits for the process; returns its exit code and result.
    fn end(mut self) -> (Option<i32>, Value) {
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        let code = self.0.wait().unwrap().code();
        (code, serde_json::from_str(text.lines().last().unwrap()).unwrap())
    }

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

fn wait_until(what: &str, is_there: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_there() {
        assert!(Instant::now() < deadline, "{what}: it never came to that");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a thread of a directive has sent a model request, and returns its id.
fn running(place: &TestProject, directive: &str) -> String {
    let found = || {
        let (_, listed) = place.json(&["threads", "list", "--active", "--directive", directive]);
        let id = listed["threads"][0]["thread_id"].as_str()?.to_owned();
        let record = place.project().join(format!(".ai/state/threads/{id}/transcript.jsonl"));
        std::fs::read_to_string(record).ok()?.contains("\"reserved\"").then_some(id)
    };
    wait_until(directive, || found().is_some());
    found().unwrap()
}

/// Starts a parent, a child and a grandchild, each in its own process.
fn three_processes(place: &TestProject) -> [(String, RyeProcess); 3] {
    let lead = RyeProcess::start(place, &["run", "lead"]);
    let top = running(place, "lead");
    let work = RyeProcess::start(place, &["run", "work", "--parent", &top]);
    let middle = running(place, "work");
    let shell = RyeProcess::start(place, &["run", "shell", "--parent", &middle]);
    let low = running(place, "shell");
    [(top, lead), (middle, work), (low, shell)]
}

fn endless() -> TestProject {
    let script = ["lead", "work", "shell"].map(|name| turns(name, 300, 100)).concat();
    place(&format!("threads:\n{script}"))
}

#[test]
fn ending_a_thread_ends_descendants_in_other_processes() {
    type Stop = fn(&TestProject, &str, &RyeProcess);
    let ways: [(&str, Stop, &str, &str); 3] = [
        ("cancel", |place, id, _| drop(place.run_ok(&["threads", "cancel", id])), "cancelled", "cancelled"),
        ("kill", |place, id, _| drop(place.run_ok(&["threads", "kill", id])), "killed", "killed"),
        ("ctrl-c", |_, _, process| process.signal("-INT"), "cancelled", "cancelled"),
    ];
    for (way, stop, first, below) in ways {
        let place = endless();
        let [(top, lead), (middle, work), (low, shell)] = three_processes(&place);
        stop(&place, &top, &lead);
        for (id, process, status) in [(top.clone(), lead, first), (middle, work, below), (low, shell, below)] {
            let (code, result) = process.end();
            assert_eq!((code, &result["status"]), (Some(130), &json!(status)), "{way} {id}: {result}");
        }
        let (_, shown) = place.json(&["threads", "show", &top]);
        assert_eq!(shown["ledger"][0]["standing"], "released", "{way}: {shown}");
        place.run_ok(&["threads", "verify"]);
    }
}

#[test]
fn ending_a_child_does_not_end_its_ancestors() {
    let place = endless();
    let [(top, lead), (middle, work), (_, shell)] = three_processes(&place);
    place.run_ok(&["threads", "cancel", &middle]);
    assert_eq!(work.end().1["status"], "cancelled");
    assert_eq!(shell.end().1["status"], "cancelled");
    assert_eq!(place.run_ok(&["threads", "status", &top]), format!("{top}\trunning\n"));
    place.run_ok(&["threads", "kill", &top]);
    assert_eq!(lead.end().1["status"], "killed");
}

/// `child_policy.on_end` and the failure of a parent apply to children in other processes.
#[test]
fn child_policy_applies_to_children_in_other_processes() {
    for (policy, last, ended) in [
        ("wait", "    - lead is done\n", "completed"),
        ("cancel", "    - lead is done\n", "cancelled"),
        ("wait", "    - fault: { status: 401 }\n", "cancelled"),
    ] {
        let lead =
            "  lead:\n    - { delay_ms: 6000, tool_calls: [{ name: rye_file_system_ls, input: { path: . } }] }\n";
        let place = place(&format!("threads:\n{lead}{last}{}", turns("work", 60, 100)));
        place.write(".ai/config/agent/resilience.yaml", &format!("child_policy: {{ on_end: {policy} }}\n"));
        let lead = RyeProcess::start(&place, &["run", "lead"]);
        let top = running(&place, "lead");
        let work = RyeProcess::start(&place, &["run", "work", "--parent", &top]);
        lead.end();
        let (_, result) = work.end();
        assert_eq!(result["status"], ended, "{policy} {last}: {result}");
        let (_, shown) = place.json(&["threads", "show", &top]);
        assert_eq!(shown["ledger"][0]["standing"], "released", "{policy}: {shown}");
    }
}

/// The process of a parent is killed. The command that ends the orphaned parent cancels its children.
#[test]
fn ending_an_orphan_cancels_its_children() {
    let place = endless();
    let [(top, lead), (_, work), (_, shell)] = three_processes(&place);
    lead.signal("-KILL");
    drop(lead);
    place.run_ok(&["threads", "cancel", &top]);
    assert_eq!(work.end().1["status"], "cancelled");
    assert_eq!(shell.end().1["status"], "cancelled");
}

/// The process of a root and of the child that the root waits for is killed.
#[test]
fn ending_an_orphaned_root_ends_its_synchronous_child() {
    for (how, status) in [("cancel", "cancelled"), ("kill", "killed")] {
        let call = "{ name: rye_execute, input: { item_type: directive, item_id: work } }";
        let script = format!("threads:\n  lead:\n    - {{ tool_calls: [{call}] }}\n{}", turns("work", 300, 100));
        let place = place(&script);
        let lead = RyeProcess::start(&place, &["run", "lead"]);
        let (top, child) = (running(&place, "lead"), running(&place, "work"));
        lead.signal("-KILL");
        drop(lead);
        place.run_ok(&["threads", how, &top]);
        for id in [&top, &child] {
            assert_eq!(place.run_ok(&["threads", "status", id]), format!("{id}\t{status}\n"));
        }
        let (_, shown) = place.json(&["threads", "show", &top]);
        let standings: Vec<&Value> =
            shown["ledger"].as_array().unwrap().iter().map(|account| &account["standing"]).collect();
        assert_eq!(standings, ["released", "released"], "{how}: {shown}");
        let resumed = place.rye(&["run", "--resume", &child]);
        assert_eq!(resumed.code, Some(2), "{how}: {}", resumed.stderr);
        assert!(resumed.stderr.contains(&format!("has ended: {status}")), "{how}: {}", resumed.stderr);
        place.run_ok(&["threads", "verify"]);
    }
}

#[test]
fn kill_ends_tools_and_descendants_that_ignore_sigterm() {
    // The tool, a process in its group, and a process outside the group: all ignore SIGTERM.
    let deaf = "trap '' TERM; echo $$ >> out/pids; (trap '' TERM; echo $BASHPID >> out/pids; while true; do sleep 1; done) & \
                setsid bash -c 'trap \\\"\\\" TERM; echo $$ >> out/pids; while true; do sleep 1; done' & \
                while true; do sleep 1; done";
    let place = place(&format!(
        "threads:\n  shell:\n    - tool_calls: [{{ name: rye_bash_bash, input: {{ command: \"{deaf}\" }} }}]\n    - late\n"
    ));
    let process = RyeProcess::start(&place, &["run", "shell"]);
    let pids = || std::fs::read_to_string(place.project().join("out/pids")).unwrap_or_default();
    wait_until("the tools", || pids().lines().count() == 3);
    let pids: Vec<String> = pids().lines().map(str::to_owned).collect();
    let id = running(&place, "shell");
    place.run_ok(&["threads", "kill", &id]);
    assert_eq!(place.run_ok(&["threads", "status", &id]), format!("{id}\tkilled\n"));
    assert_eq!(process.end().0, Some(130));
    for pid in pids {
        // SIGTERM is sent at once, SIGKILL three seconds later.
        wait_until(&format!("the end of {pid}"), || !std::path::Path::new("/proc").join(&pid).exists());
    }
}

#[test]
fn wait_follows_a_handoff() {
    let script = "steps:\n  - { delay_ms: 700, usage: { input: 100, output: 10 }, tool_calls: [{ name: rye_file_system_ls, input: { path: . } }] }\n  \
                  - { delay_ms: 700, usage: { input: 50, output: 10 }, text: at last }\n";
    let place = place(script);
    let process = RyeProcess::start(&place, &["run", "lead"]);
    let first = running(&place, "lead");
    let wait = RyeProcess::start(&place, &["threads", "wait", &first]);
    place.run_ok(&["threads", "handoff", &first]);
    let (code, waited) = wait.end();
    assert_eq!((code, &waited["all_finished"]), (Some(0), &json!(true)), "{waited}");
    let result = &waited["threads"][0];
    assert_eq!((&result["requested"], &result["result"]["status"]), (&json!(first), &json!("completed")), "{waited}");
    assert_ne!(result["result"]["thread_id"], json!(first));
    let ended = process.end().1;
    assert_eq!(ended["thread_id"], result["result"]["thread_id"]);
    // The cost is that of both threads.
    let (_, chain) = place.json(&["threads", "chain", &first]);
    let tokens: Vec<u64> =
        chain["threads"].as_array().unwrap().iter().map(|row| row["cost"]["input_tokens"].as_u64().unwrap()).collect();
    assert!(tokens.len() == 2 && tokens.iter().all(|tokens| *tokens > 0), "{chain}");
    assert_eq!(ended["cost"]["input_tokens"], json!(tokens.iter().sum::<u64>()), "{ended}");
    assert_eq!(ended["cost"], result["result"]["cost"]);
    let shown = place.run_ok(&["threads", "show", &first]);
    assert!(shown.contains("(2 threads)"), "{shown}");
    assert_eq!(place.run_ok(&["threads", "chain", &first]).lines().count(), 2);
}

#[test]
fn ledger_of_a_tree_adds_up_over_the_continuation_of_a_child() {
    let usage = "usage: { input: 100, output: 10 }";
    let call = "{ name: rye_execute, input: { item_type: directive, item_id: work } }";
    let list = "{ name: rye_file_system_ls, input: { path: . } }";
    let place = place(&format!(
        "threads:\n  lead:\n    - {{ {usage}, tool_calls: [{call}] }}\n    - {{ {usage}, text: all }}\n  work:\n    \
         - {{ {usage}, delay_ms: 700, tool_calls: [{list}] }}\n    - {{ {usage}, delay_ms: 100, text: at last }}\n"
    ));
    let process = RyeProcess::start(&place, &["run", "lead"]);
    let child = running(&place, "work");
    place.run_ok(&["threads", "handoff", &child]);
    let (code, result) = process.end();
    assert_eq!((code, &result["status"]), (Some(0), &json!("completed")), "{result}");
    let accounts = |thread: &str| -> Vec<(String, u64)> {
        let (_, shown) = place.json(&["threads", "show", thread]);
        let account = |row: &Value| {
            let spent = (row["spent"].as_f64().unwrap() * 1e9).round();
            (row["thread_id"].as_str().unwrap().to_owned(), format!("{spent}").parse().unwrap())
        };
        shown["ledger"].as_array().unwrap().iter().map(account).collect()
    };
    let of_root = accounts(result["thread_id"].as_str().unwrap());
    let [(_, whole), (first, of_first), (next, of_next)] = of_root.as_slice() else { panic!("{of_root:?}") };
    assert_eq!((first, *of_next > 0), (&child, true), "{of_root:?}");
    // The root made two calls of its own. Each cost as much as a call of the child.
    assert_eq!(*whole, of_first + of_next + 2 * of_first, "{of_root:?}");
    assert!(accounts(next).iter().any(|(thread, spent)| thread == next && spent == of_next), "{:?}", accounts(next));
}

/// Returns a project whose directive starts a shell command asynchronously; the command writes its pid and runs until
/// `out/go` exists.
fn async_call() -> TestProject {
    let command = "echo $$ > out/pid; touch out/begun; while [ ! -e out/go ]; do sleep 0.05; done; echo let go";
    let input =
        json!({"item_type": "tool", "item_id": "rye/bash/bash", "parameters": {"command": command}, "async": true});
    place(&format!(
        "threads:\n  shell:\n    - tool_calls: [{{ name: rye_execute, input: {input} }}]\n    - shell is done\n"
    ))
}

/// Waits until the command runs and its caller has finished; returns the ids of both threads.
fn begun(place: &TestProject) -> (String, String) {
    wait_until("the tool", || place.project().join("out/begun").exists() && place.read("out/pid").ends_with('\n'));
    let rows = || place.json(&["threads", "list"]).1["threads"].as_array().unwrap().clone();
    let root = || rows().into_iter().find(|row| row["tool"].is_null()).unwrap();
    wait_until("its caller", || root()["status"] == "completed");
    let run = rows().into_iter().find(|row| row["tool"] == "rye/bash/bash").unwrap();
    let root = root();
    assert_eq!(
        (&run["status"], &run["orphaned"], &run["parent"], &run["directive"]),
        (&json!("running"), &json!(false), &root["thread_id"], &json!("shell"))
    );
    (root["thread_id"].as_str().unwrap().to_owned(), run["thread_id"].as_str().unwrap().to_owned())
}

fn is_alive(place: &TestProject) -> bool {
    std::path::Path::new("/proc").join(place.read("out/pid").trim()).exists()
}

#[test]
fn async_tool_call_is_listed_and_keeps_its_process() {
    let place = async_call();
    let mut process = RyeProcess::start(&place, &["run", "shell"]);
    let (root, run) = begun(&place);
    let (code, early) = place.json(&["threads", "wait", &run, "--timeout", "0"]);
    assert_eq!((code, &early["threads"][0]["standing"]), (Some(1), &json!("running")), "{early}");
    assert!(process.0.try_wait().unwrap().is_none(), "the process stays for it");
    for words in [
        vec!["threads", "steer", &run, "hello"],
        vec!["threads", "handoff", &run],
        vec!["threads", "approve", &run],
        vec!["threads", "prove", &run],
        vec!["run", "--resume", &run, "--message", "hello"],
    ] {
        let done = place.rye(&words);
        assert_eq!(done.code, Some(2), "{words:?} {}", done.stderr);
        assert!(done.stderr.contains("the tool `rye/bash/bash`"), "{words:?} {}", done.stderr);
    }
    place.write("out/go", "");
    let (code, waited) = place.json(&["threads", "wait", &run]);
    let result = &waited["threads"][0]["result"];
    assert_eq!((code, &result["status"], &result["tool"]), (Some(0), &json!("completed"), &json!("rye/bash/bash")));
    assert!(result["result"].as_str().unwrap().contains("let go"), "{waited}");
    let (code, ended) = process.end();
    assert_eq!((code, &ended["result"]), (Some(0), &json!("shell is done")), "{ended}");
    let shown = place.run_ok(&["threads", "show", &run]);
    assert!(shown.contains("rye/bash/bash") && shown.contains("let go"), "{shown}");
    let record = place.transcript(&run);
    let kinds: Vec<&str> = record.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["opened", "plan_bound", "tool_started", "tool_call_result", "ended"]);
    place.run_ok(&["threads", "verify"]);
    // The tool called no model, so the export holds only the script of its caller.
    let script: Value = serde_json::from_str(&place.run_ok(&["threads", "export", &root, "--script"])).unwrap();
    assert!(script["threads"].as_object().is_none_or(serde_json::Map::is_empty), "{script:#}");
}

#[test]
fn async_tool_call_is_stopped_with_its_descendants() {
    for (how, status) in [("cancel", "cancelled"), ("kill", "killed")] {
        let place = async_call();
        let process = RyeProcess::start(&place, &["run", "shell"]);
        let (_, run) = begun(&place);
        place.run_ok(&["threads", how, &run]);
        let (_, waited) = place.json(&["threads", "wait", &run]);
        assert_eq!(waited["threads"][0]["result"]["status"], status, "{waited}");
        let (code, ended) = process.end();
        assert_eq!((code, &ended["status"]), (Some(0), &json!("completed")), "{ended}");
        wait_until("its shell", || !is_alive(&place));
    }
}

#[test]
fn async_tool_call_is_interrupted_when_its_process_dies() {
    let place = async_call();
    let process = RyeProcess::start(&place, &["run", "shell"]);
    let (_, run) = begun(&place);
    drop(process);
    wait_until("its shell", || !is_alive(&place));
    let (_, listed) = place.json(&["threads", "list", "--active"]);
    assert_eq!((&listed["threads"][0]["thread_id"], &listed["threads"][0]["orphaned"]), (&json!(run), &json!(true)));
    let (code, ended) = place.json(&["run", "--resume", &run]);
    assert_eq!((code, &ended["error"]["code"]), (Some(1), &json!("interrupted")), "{ended}");
    assert!(!place.project().join("out/go").exists());
}
