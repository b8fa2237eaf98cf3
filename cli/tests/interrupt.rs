//! Tests of Ctrl-C in every phase of a run: the first signal finishes the current step, the second one ends the run
//! immediately. In each case the transcript records the end, reserved money is released, no process stays, and the
//! thread can be resumed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rye::{ProcessResult, TestProject};
use serde_json::{Value, json};

/// A run with the phase in which it is interrupted.
struct InterruptPhase {
    name: &'static str,
    /// Script of the model.
    script: &'static str,
    /// Additional files: path and text.
    files: &'static [(&'static str, &'static str)],
    /// Condition under which the phase has been reached.
    reached: PhaseCondition,
    /// Texts that the transcript must contain after one signal.
    once: &'static [&'static str],
    /// Texts that the transcript must not contain after one signal.
    never: &'static [&'static str],
    /// Texts that the transcript must contain after two signals.
    twice: &'static [&'static str],
    /// True if the run is still working when the second signal arrives.
    lasts: bool,
}

#[derive(Clone, Copy)]
enum PhaseCondition {
    /// A transcript contains this text.
    Recorded(&'static str),
    /// This file of the project exists.
    File(&'static str),
    /// A reply is being streamed.
    Streaming,
}

const LONG_REPLY: &str =
    "a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i j k l m n o p q r s t u v w x y z";

/// The first call waits, the call after a resume ends at once.
const SHELL: &str =
    "[ -e out/begun ] && exit 0; trap 'echo bye; exit 0' TERM; echo $$ > out/pid; touch out/begun; sleep 60 & wait";

fn phases() -> Vec<InterruptPhase> {
    let bare = InterruptPhase {
        name: "",
        script: "",
        files: &[],
        reached: PhaseCondition::Streaming,
        once: &[],
        never: &[],
        twice: &[],
        lasts: true,
    };
    vec![
        InterruptPhase {
            name: "streaming a reply",
            script: "steps:\n  - { text: LONG, pace_ms: 60, tool_calls: [{ name: rye_file_system_ls, input: { path: . } }] }\n  - Late.\n",
            // The tool call of the reply is not made, but gets a result.
            once: &["cognition_out", "tool_call_result"],
            never: &["tool_started"],
            twice: &["unknown_outcome\":true"],
            ..bare
        },
        InterruptPhase {
            name: "waiting between attempts",
            script: "steps:\n  - fault: { status: 529, headers: { retry-after: \"90\" } }\n  - Late.\n",
            reached: PhaseCondition::Recorded("attempt_failed"),
            never: &["cognition_out"],
            lasts: false,
            ..bare
        },
        InterruptPhase {
            name: "running a tool",
            script: "steps:\n  - tool_calls: [{ name: rye_bash_bash, input: { command: \"SHELL\" } }]\n  - Late.\n",
            reached: PhaseCondition::File("out/begun"),
            once: &["[stopped: the thread was cancelled]", "bye"],
            never: &["Late."],
            twice: &["tool_started"],
            ..bare
        },
        InterruptPhase {
            name: "waiting for a child",
            script: "steps:\n  - tool_calls: [{ name: rye_execute, input: { item_type: directive, item_id: child } }]\n  - Late.\n\
                     threads:\n  child:\n    - { text: LONG, pace_ms: 60 }\n",
            once: &["child_ended", "cognition_out"],
            never: &["Late."],
            twice: &["child_spawned", "unknown_outcome\":true"],
            ..bare
        },
        InterruptPhase {
            name: "in a hook",
            script: "steps:\n  - tool_calls: [{ name: rye_file_system_ls, input: { path: . } }]\n  - Late.\n",
            files: &[(
                ".ai/config/agent/hooks.yaml",
                "hooks:\n  - { id: long, event: after_step, grants: [rye.execute.tool.rye.bash.bash], action: { primary: execute, \
                 item_type: tool, item_id: rye/bash/bash, params: { command: \"SHELL\" } } }\n",
            )],
            reached: PhaseCondition::File("out/begun"),
            once: &["cognition_out", "after_step"],
            never: &["Late."],
            twice: &["cognition_out"],
            ..bare
        },
        InterruptPhase {
            name: "between",
            script: "steps:\nTURNS  - Late.\n",
            reached: PhaseCondition::Recorded("tool_call_result"),
            once: &["cognition_out"],
            never: &["Late."],
            lasts: false,
            ..bare
        },
    ]
}

fn place(phase: &InterruptPhase) -> TestProject {
    let place = TestProject::own();
    let directive = |name: &str, spend: &str| {
        let text = format!(
            "```xml\n<directive name=\"{name}\" version=\"1.0.0\">\n<metadata><description>d</description>\
             <model provider=\"scripted\" tier=\"fast\"/><nudge>never</nudge><limits turns=\"1000\" spend=\"{spend}\"/>\
             <permissions><execute><directive>*</directive><tool>rye.file-system.*</tool><tool write=\"out/\">rye.bash.bash</tool>\
             </execute><acknowledge risk=\"elevated\">to wait</acknowledge></permissions></metadata>\n</directive>\n```\n\nWork.\n"
        );
        place.write(&format!(".ai/directives/{name}.md"), &text);
    };
    directive("work", "1");
    directive("child", "0.2");
    let turns = "  - tool_calls: [{ name: rye_file_system_ls, input: { path: . } }]\n".repeat(400);
    let fill = |text: &str| text.replace("LONG", LONG_REPLY).replace("SHELL", SHELL).replace("TURNS", &turns);
    place.write("script.yaml", &fill(phase.script));
    for (path, text) in phase.files {
        place.write(path, &fill(text));
    }
    place.write("out/here", "");
    place.write("last.yaml", "steps: [Gone on.]\n");
    place.run_ok(&["trust"]);
    place
}

/// Returns the transcripts of all threads.
fn records(place: &TestProject) -> String {
    let threads = place.project().join(".ai/state/threads");
    let folders = std::fs::read_dir(threads).into_iter().flatten().flatten();
    folders.filter_map(|folder| std::fs::read_to_string(folder.path().join("transcript.jsonl")).ok()).collect()
}

fn is_streaming(place: &TestProject) -> bool {
    let threads = place.project().join(".ai/state/threads");
    let folders = std::fs::read_dir(threads).into_iter().flatten().flatten();
    let pieces = |folder: std::fs::DirEntry| std::fs::metadata(folder.path().join("live.jsonl"));
    folders.filter_map(|folder| pieces(folder).ok()).any(|file| file.len() > 0)
}

fn wait_until(what: &str, is_there: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_there() {
        assert!(Instant::now() < deadline, "{what}: it never came to that");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn has_come(place: &TestProject, reached: &PhaseCondition) -> bool {
    match reached {
        PhaseCondition::Recorded(text) => records(place).contains(text),
        PhaseCondition::File(path) => place.project().join(path).exists(),
        PhaseCondition::Streaming => is_streaming(place),
    }
}

fn start(place: &TestProject) -> Child {
    let mut command = place.command(&["run", "work", "--format", "json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
}

/// Checks the state after an interruption in any phase: no process runs, no money is reserved, the files are valid, and
/// the thread can be resumed.
fn is_in_order(place: &TestProject, what: &str, status: &str, done: &ProcessResult) {
    assert_eq!(done.code, Some(130), "{what}: {}{}", done.stdout, done.stderr);
    let result: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(result["status"], status, "{what}: {result}");
    let (_, listed) = place.json(&["threads", "list"]);
    for thread in listed["threads"].as_array().unwrap() {
        assert_eq!(thread["status"], status, "{what}: {listed}");
        let (_, shown) = place.json(&["threads", "show", thread["thread_id"].as_str().unwrap()]);
        for account in shown["ledger"].as_array().unwrap() {
            assert_eq!(account["standing"], "released", "{what}: {shown}");
        }
    }
    place.run_ok(&["threads", "verify"]);
    if let Ok(pid) = std::fs::read_to_string(place.project().join("out/pid")) {
        let living = || std::path::Path::new("/proc").join(pid.trim()).exists();
        wait_until(&format!("{what}: the tool's end"), || !living());
    }
    let id = result["thread_id"].as_str().unwrap();
    // The first run wrote files that the hook names, so trust is needed again.
    place.run_ok(&["trust"]);
    let (code, next) = place.json(&["run", "--resume", id, "--message", "go on", "--script", "last.yaml"]);
    assert_eq!((code, &next["result"]), (Some(0), &json!("Gone on.")), "{what}: {next}");
}

fn holds(record: &str, what: &str, wanted: &[&str], never: &[&str]) {
    for text in wanted {
        assert!(record.contains(text), "{what}: no `{text}` in\n{record}");
    }
    for text in never {
        assert!(!record.contains(text), "{what}: `{text}` in\n{record}");
    }
}

#[test]
fn first_ctrl_c_finishes_the_current_step() {
    for phase in phases() {
        let place = place(&phase);
        let child = start(&place);
        wait_until(phase.name, || has_come(&place, &phase.reached));
        interrupt(&child);
        let asked = Instant::now();
        let done = ProcessResult::from(child.wait_with_output().unwrap());
        // The run does not wait for the retry delay of one minute.
        assert!(asked.elapsed() < Duration::from_secs(45), "{}: {:?}", phase.name, asked.elapsed());
        holds(&records(&place), phase.name, phase.once, phase.never);
        is_in_order(&place, phase.name, "cancelled", &done);
    }
}

#[test]
fn second_ctrl_c_ends_immediately() {
    for phase in phases().into_iter().filter(|phase| phase.lasts) {
        let place = place(&phase);
        let child = start(&place);
        wait_until(phase.name, || has_come(&place, &phase.reached));
        interrupt(&child);
        // The second signal is sent after the first one has been handled, since pending signals merge.
        wait_until(phase.name, || records(&place).contains("\"type\":\"mail\""));
        interrupt(&child);
        let done = ProcessResult::from(child.wait_with_output().unwrap());
        holds(&records(&place), phase.name, phase.twice, phase.never);
        is_in_order(&place, phase.name, "killed", &done);
    }
}

/// A signal before the first event only ends the process. A thread that the process left behind can be ended, even if
/// the thread has a registry row and no transcript.
#[test]
fn early_ctrl_c_leaves_no_stuck_thread() {
    let phase = phases().remove(0);
    for delay in (0..40).step_by(2).chain([60, 80]) {
        let place = place(&phase);
        let child = start(&place);
        std::thread::sleep(Duration::from_millis(delay));
        interrupt(&child);
        child.wait_with_output().unwrap();
        let (_, listed) = place.json(&["threads", "list", "--active"]);
        for thread in listed["threads"].as_array().unwrap() {
            assert_eq!(thread["orphaned"], true, "after {delay} ms: {listed}");
            place.run_ok(&["threads", "cancel", thread["thread_id"].as_str().unwrap()]);
        }
        assert_eq!(place.json(&["threads", "list", "--active"]).1["threads"], json!([]), "after {delay} ms");
    }
}

/// A run at a terminal, which `script` provides.
struct TerminalRun {
    process: Child,
    /// Output so far.
    output: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl TerminalRun {
    fn start(place: &TestProject) -> Option<Self> {
        place.run_ok(&["trust"]);
        let rye = env!("CARGO_BIN_EXE_rye");
        // The terminal belongs to the run; `script` forwards its own input to the terminal.
        let mut command = Command::new("script");
        command.args(["-q", "-e", "-c", &format!("{rye} run work --format human"), "/dev/null"]);
        command.current_dir(place.project()).env("RYE_USER_SPACE", place.user()).env("SHELL", "/bin/sh");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let output = Arc::new(Mutex::new(String::new()));
        let (mut out, shared_output) = (process.stdout.take().unwrap(), Arc::clone(&output));
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Some(read) = out.read(&mut buffer).ok().filter(|read| *read > 0) {
                shared_output.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        });
        Some(Self { process, output, reader })
    }

    /// Sends the bytes of a key.
    fn press(&mut self, bytes: &[u8]) {
        let keys = self.process.stdin.as_mut().unwrap();
        keys.write_all(bytes).unwrap();
        keys.flush().unwrap();
    }

    /// Waits for the run; returns its exit code and output.
    fn end(mut self) -> (Option<i32>, String) {
        let keys = self.process.stdin.take();
        let code = self.process.wait().unwrap().code();
        drop(keys);
        self.reader.join().unwrap();
        let output = self.output.lock().unwrap().clone();
        (code, output)
    }
}

/// Starts a thread that requests an approval at a terminal.
fn asking() -> Option<(TestProject, TerminalRun, String)> {
    let place = place(&InterruptPhase {
        script: "steps:\n  - tool_calls: [{ name: rye_bash_bash, input: { command: 'echo ran > out/ran' } }]\n  - Done.\n",
        ..phases().remove(0)
    });
    let directive = place.read(".ai/directives/work.md");
    place.write(
        ".ai/directives/work.md",
        &directive.replace("<acknowledge risk=\"elevated\">to wait</acknowledge>", ""),
    );
    let terminal = TerminalRun::start(&place)?;
    wait_until("asked", || terminal.output.lock().unwrap().contains("Allow?"));
    let (_, listed) = place.json(&["threads", "list"]);
    let id = listed["threads"][0]["thread_id"].as_str().unwrap().to_owned();
    Some((place, terminal, id))
}

#[test]
fn ctrl_c_ends_a_thread_waiting_for_approval() {
    let Some((place, mut terminal, id)) = asking() else { return };
    terminal.press(b"\x03");
    let (code, output) = terminal.end();
    assert_eq!(code, Some(130), "{output}");
    assert_eq!(place.run_ok(&["threads", "status", &id]), format!("{id}\tcancelled\n"));
    assert!(!place.project().join("out/ran").exists());
    let (_, shown) = place.json(&["threads", "show", &id]);
    assert_eq!(shown["ledger"][0]["standing"], "released");
    place.run_ok(&["threads", "verify"]);
}

#[test]
fn terminal_request_accepts_local_and_remote_answers() {
    let Some((place, mut terminal, _)) = asking() else { return };
    terminal.press(b"y\n");
    let (code, output) = terminal.end();
    assert_eq!((code, place.read("out/ran").as_str()), (Some(0), "ran\n"), "{output}");

    let Some((place, terminal, id)) = asking() else { return };
    place.run_ok(&["threads", "approve", &id]);
    let (code, output) = terminal.end();
    assert_eq!((code, place.read("out/ran").as_str()), (Some(0), "ran\n"), "{output}");
}

/// Starts a run through a program that executes its arguments.
fn start_through(place: &TestProject, program: &[&str]) -> Child {
    let ready = place.command(&["run", "work", "--format", "json"]);
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).arg(ready.get_program()).args(ready.get_args()).current_dir(place.project());
    command.envs(ready.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// SIGHUP, as when the terminal closes, is a cancellation like SIGTERM, however often it is sent.
#[test]
fn hangup_cancels_like_sigterm() {
    for phase in phases() {
        let place = place(&phase);
        // The tests may run where SIGHUP is ignored.
        let child = start_through(&place, &["env", "--default-signal=HUP"]);
        wait_until(phase.name, || has_come(&place, &phase.reached));
        for _ in 0..2 {
            let pid = child.id().to_string();
            assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
            wait_until(phase.name, || records(&place).contains("\"type\":\"mail\""));
        }
        let done = ProcessResult::from(child.wait_with_output().unwrap());
        holds(&records(&place), phase.name, phase.once, phase.never);
        is_in_order(&place, phase.name, "cancelled", &done);
    }
}

#[test]
fn hangup_does_not_end_a_detached_run_or_one_under_nohup() {
    let phase = phases().into_iter().find(|phase| phase.name == "streaming a reply").unwrap();
    for nohup in [false, true] {
        let place = place(&phase);
        let child = if nohup {
            start_through(&place, &["nohup"])
        } else {
            place.command(&["run", "work", "--detach", "--format", "json"]).stdout(Stdio::piped()).spawn().unwrap()
        };
        let mut pid = child.id();
        let mut id = None;
        if !nohup {
            let out = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
            let announced: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
            pid = u32::try_from(announced["pid"].as_u64().unwrap()).unwrap();
            id = Some(announced["thread_id"].as_str().unwrap().to_owned());
        }
        wait_until(phase.name, || has_come(&place, &phase.reached));
        assert!(Command::new("kill").args(["-HUP", &pid.to_string()]).status().unwrap().success());
        let id = id.unwrap_or_else(|| {
            let (_, listed) = place.json(&["threads", "list"]);
            listed["threads"][0]["thread_id"].as_str().unwrap().to_owned()
        });
        let (code, waited) = place.json(&["threads", "wait", &id]);
        assert_eq!((code, &waited["threads"][0]["result"]["result"]), (Some(0), &json!("Late.")), "{nohup}: {waited}");
    }
}

/// Starts a run with a reply of 5 MB, whose output nothing reads, and waits until the thread has ended.
fn start_without_reader(place: &TestProject, options: &[&str]) -> Child {
    place.write("script.yaml", &format!("steps:\n  - {}\n", "word ".repeat(1_000_000)));
    let mut command = place.command(&[&["run", "work"], options].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the end of the thread", || records(place).contains("\"type\":\"ended\""));
    std::thread::sleep(Duration::from_secs(1));
    child
}

#[test]
fn ctrl_c_during_the_output_of_an_ended_thread_exits_as_interrupted() {
    let phase = phases().into_iter().find(|phase| phase.name == "streaming a reply").unwrap();
    let place = place(&phase);
    let mut child = start_without_reader(&place, &["--format", "json"]);
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn output_that_is_printed_whole_reports_no_dropped_pieces() {
    let phase = phases().into_iter().find(|phase| phase.name == "streaming a reply").unwrap();
    for options in [&["--format", "json"][..], &[], &["-q"]] {
        let place = place(&phase);
        let done = ProcessResult::from(start_without_reader(&place, options).wait_with_output().unwrap());
        assert_eq!(done.code, Some(0), "{options:?}: {}", done.stderr);
        assert!(done.stdout.matches("word").count() == 1_000_000, "{options:?}: {}", done.stdout.len());
        assert!(!done.stderr.contains("not printed"), "{options:?}: {}", done.stderr);
    }
}
