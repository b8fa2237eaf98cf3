//! Tests of what runs and killed processes leave behind: temporary folders, lock files of owners, temporary files in
//! the project, and processes. `just leftovers` makes 200 runs and 50 kills, other test runs a sample.

#![cfg(all(feature = "mcp", target_os = "linux"))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "support/rye.rs"]
mod rye;

use std::cell::Cell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rye::{TestProject, files};
use serde_json::json;

/// Time limit for everything that ends by itself, long enough for a loaded machine.
const EXIT_TIMEOUT: Duration = Duration::from_mins(1);

/// A program that writes much, uses its temporary folder, starts a daemon, and does not end.
const ENDLESS: &str = "head -c 400000 /dev/zero | tr \\\\0 a; echo x > $TMPDIR/x; mkdir -m 0 $TMPDIR/sealed; setsid sleep 600 & touch out/started; sleep 600";

/// A server on standard streams whose tool never answers.
const SERVER: &str = r#"import json, sys, time, os
def send(id, result):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}) + "\n")
    sys.stdout.flush()
for line in sys.stdin:
    request = json.loads(line)
    method, id = request.get("method"), request.get("id")
    if method == "initialize":
        send(id, {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "t", "version": "1"}})
    elif method == "tools/list":
        send(id, {"tools": [{"name": "wait", "description": "Waits.", "inputSchema": {"type": "object", "properties": {}}}]})
    elif method == "tools/call":
        open(os.environ["TMPDIR"] + "/called", "w").close()
        time.sleep(600)
"#;

/// The processes that are killed together.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Killed {
    Rye,
    /// The program and all of its helpers, as by a supervisor that kills a whole group of processes.
    RyeAndHelpers,
}

/// A command to kill, and the state in which it is killed.
struct KilledCommand {
    args: &'static [&'static str],
    /// The input of the command.
    input: fn() -> String,
    /// Returns true if the process is in the state.
    is_due: fn(&Leftovers) -> bool,
}

/// The result of an attempt to kill a command.
struct KillOutcome {
    /// False if the command ended before the kill.
    was_killed: bool,
    /// True if a helper was running, which removes the temporary folder of its program.
    had_helper: bool,
}

/// A project with a folder of its own for temporary files.
struct Leftovers {
    place: TestProject,
    temporary: PathBuf,
    /// Number of recorded events before the start of the command to kill.
    events_before: Cell<usize>,
}

impl Leftovers {
    fn new() -> Self {
        let place = TestProject::own();
        let directive = |name: &str, body: &str| {
            format!(
                "# T\n\n```xml\n<directive name=\"{name}\" version=\"1.0.0\">\n<metadata>\n<description>d</description>\
                 <model provider=\"scripted\" tier=\"fast\"/><limits turns=\"9\" spend=\"1\"/><nudge>never</nudge>\n<permissions><execute>\
                 <directive>quick</directive><tool write=\"out/\">rye.bash.*</tool><tool>rye.file-system.*</tool><tool>mcp.waiter.*</tool>\
                 </execute><acknowledge risk=\"elevated\">t</acknowledge><acknowledge risk=\"unrestricted\">t</acknowledge></permissions>\n</metadata>\n\
                 </directive>\n```\n\n{body}\n"
            )
        };
        let bash = |command: &str| json!({"name": "rye_bash_bash", "input": {"command": command}});
        let script = json!({"threads": {
            "quick": [{"tool_calls": [bash("echo y > $TMPDIR/y; (sleep 600 &) ; head -c 50000 /dev/zero | tr \\\\0 b")]},
                      {"tool_calls": [{"name": "rye_file_system_write", "input": {"path": "out/file", "content": "x"}}]}, {"text": "Done."}],
            "endless": [{"tool_calls": [bash(ENDLESS)]}, {"text": "Done."}],
            "parent": [{"tool_calls": [{"name": "rye_execute", "input": {"item_type": "directive", "item_id": "quick"}}]},
                       {"tool_calls": [bash(ENDLESS)]}, {"text": "Done."}],
            "waiting": [{"tool_calls": [{"name": "mcp_waiter_wait", "input": {}}]}, {"text": "Done."}],
        }});
        place.write("script.yaml", &script.to_string());
        for name in ["quick", "endless", "parent", "waiting"] {
            place.write(&format!(".ai/directives/{name}.md"), &directive(name, "Work."));
        }
        place.write("server.py", SERVER);
        place.write(".mcp.json", r#"{"mcpServers": {"waiter": {"command": "python3", "args": ["server.py"]}}}"#);
        place.write("out/.keep", "");
        let temporary = place.project().parent().unwrap().join("tmp");
        std::fs::create_dir(&temporary).unwrap();
        let made = Self { place, temporary, events_before: Cell::new(0) };
        for args in [["trust"].as_slice(), &["mcp", "refresh"], &["trust"]] {
            let done = made.command(args).output().unwrap();
            assert!(done.status.success(), "{args:?}\n{}", String::from_utf8_lossy(&done.stderr));
        }
        made
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        command.env("TMPDIR", &self.temporary);
        command
    }

    fn run(&self, directive: &str) {
        let done = self.command(&["run", directive]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Returns the paths in the folder for temporary files.
    fn temporary_paths(&self) -> Vec<PathBuf> {
        std::fs::read_dir(&self.temporary).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    fn has_temporary(&self, name: &str) -> bool {
        self.temporary_paths().iter().any(|folder| folder.join(name).exists())
    }

    fn has_started(&self) -> bool {
        self.place.project().join("out/started").exists()
    }

    /// Returns the number of recorded events of all threads.
    fn events(&self) -> usize {
        let folders = std::fs::read_dir(self.place.project().join(".ai/state/threads")).into_iter().flatten().flatten();
        let records = folders.filter_map(|folder| std::fs::read(folder.path().join("transcript.jsonl")).ok());
        records.map(|record| record.split(|byte| *byte == b'\n').count() - 1).sum()
    }

    /// Returns the processes that were started in the project, with their command lines.
    fn processes(&self) -> Vec<(u32, String)> {
        let base = self.place.project().canonicalize().unwrap().parent().unwrap().to_path_buf();
        let processes = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|process| {
            let pid: u32 = process.file_name().to_str()?.parse().ok()?;
            let folder = std::fs::read_link(process.path().join("cwd")).ok()?;
            let line = std::fs::read(process.path().join("cmdline")).ok()?;
            let is_inside = folder.starts_with(&base) && !line.is_empty();
            is_inside.then(|| (pid, String::from_utf8_lossy(&line).replace('\0', " ")))
        });
        processes.collect()
    }

    /// Starts a command, waits until a kill is due, and kills it.
    fn kill(&self, command: &KilledCommand, how: Killed) -> KillOutcome {
        std::fs::remove_file(self.place.project().join("out/started")).ok();
        self.events_before.set(self.events());
        let mut child = self
            .command(command.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // A command that has ended does not read its input.
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all((command.input)().as_bytes()).ok();
        let started = Instant::now();
        let mut was_killed = false;
        let mut had_helper = false;
        while !was_killed && child.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < EXIT_TIMEOUT, "{:?} is never due", command.args);
            was_killed = (command.is_due)(self);
            std::thread::sleep(Duration::from_micros(300));
        }
        if was_killed {
            had_helper = self.kill_processes(&mut child, how);
        }
        child.wait().unwrap();
        KillOutcome { was_killed, had_helper }
    }

    /// Kills a command. Returns true if a helper of the command was running.
    fn kill_processes(&self, child: &mut Child, how: Killed) -> bool {
        let is_helper = |line: &str| line.contains(" __supervise ") || line.contains(" __attend ");
        let helpers: Vec<u32> =
            self.processes().into_iter().filter(|(_, line)| is_helper(line)).map(|(pid, _)| pid).collect();
        let mut pids = vec![child.id().to_string()];
        if how == Killed::RyeAndHelpers {
            pids.extend(helpers.iter().map(u32::to_string));
        }
        Command::new("kill").arg("-9").args(pids).stderr(Stdio::null()).status().unwrap();
        !helpers.is_empty()
    }

    /// Waits until no process is left.
    fn wait_for_processes(&self, what: &str) {
        let started = Instant::now();
        while !self.processes().is_empty() {
            assert!(started.elapsed() < EXIT_TIMEOUT, "{what}: {:?}", self.processes());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn assert_nothing_is_left(&self, what: &str) {
        self.wait_for_processes(what);
        assert_eq!(self.temporary_paths(), Vec::<PathBuf>::new(), "{what}");
        let state = files(&self.place.project());
        let left: Vec<&String> = state.iter().filter(|path| path.contains("/owners/") || is_temporary(path)).collect();
        assert!(left.is_empty(), "{what}: {left:?}");
    }
}

fn is_temporary(path: &str) -> bool {
    let path = Path::new(path);
    path.extension().is_some_and(|extension| extension == "tmp" || extension == "new")
}

/// Returns the number in an environment variable, or `sample` if the variable is not set.
fn count(variable: &str, sample: usize) -> usize {
    std::env::var(variable).map_or(sample, |text| text.parse().unwrap())
}

const NO_INPUT: fn() -> String = String::new;

fn chat_input() -> String {
    format!("{}\n", json!({"type": "prompt", "id": 1, "message": "go"}))
}

fn mcp_input() -> String {
    let messages = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {},
               "clientInfo": {"name": "t", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "rye_bash_bash", "arguments": {"command": ENDLESS}}}),
    ];
    messages.map(|message| message.to_string()).join("\n") + "\n"
}

const COMMANDS: [KilledCommand; 7] = [
    KilledCommand { args: &["run", "endless"], input: NO_INPUT, is_due: Leftovers::has_started },
    KilledCommand { args: &["run", "waiting"], input: NO_INPUT, is_due: |left| left.has_temporary("called") },
    // The temporary folder is created before the helper that removes it starts. The kill can happen between these
    // steps.
    KilledCommand { args: &["run", "quick"], input: NO_INPUT, is_due: |left| !left.temporary_paths().is_empty() },
    KilledCommand { args: &["chat", "endless", "--format", "json"], input: chat_input, is_due: Leftovers::has_started },
    KilledCommand { args: &["mcp", "serve", "endless"], input: mcp_input, is_due: Leftovers::has_started },
    KilledCommand { args: &["run", "parent"], input: NO_INPUT, is_due: Leftovers::has_started },
    KilledCommand {
        args: &["run", "parent"],
        input: NO_INPUT,
        is_due: |left| left.events() > left.events_before.get() + 12,
    },
];

#[test]
fn killed_commands_leave_nothing_after_the_next_run() {
    let left = Leftovers::new();
    let kills = count("RYE_KILLS", COMMANDS.len());
    let (mut killed, mut swept) = (0, 0);
    for n in 0..kills {
        let command = &COMMANDS[n % COMMANDS.len()];
        // Because the number of commands is odd, two consecutive rounds kill each command in both ways.
        let how = if n % 2 == 0 { Killed::Rye } else { Killed::RyeAndHelpers };
        let what = format!("kill {n}: {:?}, {how:?}", command.args);
        let outcome = left.kill(command, how);
        killed += usize::from(outcome.was_killed);
        match how {
            // The helpers clean up without the killed process.
            Killed::Rye if outcome.had_helper => {
                left.wait_for_processes(&what);
                assert_eq!(left.temporary_paths(), Vec::<PathBuf>::new(), "{what}");
            }
            // Without a helper, the next run removes the folder.
            Killed::Rye => left.wait_for_processes(&what),
            Killed::RyeAndHelpers => swept += left.temporary_paths().len(),
        }
        left.run("quick");
        left.assert_nothing_is_left(&what);
    }
    assert!(killed * 4 >= kills * 3 && swept > 0, "{killed} of {kills}, {swept} folders");
}

/// A persistent tool that starts a process in a session of its own, which ignores SIGTERM, for each line.
const DAEMONS: &str = r#"description: Starts a daemon.
kind: command
persistent: true
command:
  - bash
  - -c
  - |
    while IFS= read -r line; do
      id=$(sed 's/.*"id":\([0-9]*\).*/\1/' <<< "$line")
      setsid bash -c 'trap "" TERM; touch out/started; while :; do sleep 600; done' > /dev/null 2>&1 < /dev/null &
      while [ ! -e out/started ]; do sleep 0.02; done
      printf '{{"id":%s,"result":"started"}}\n' "$id"
    done
"#;

#[test]
fn daemons_of_a_persistent_tool_end_with_their_session() {
    let left = Leftovers::new();
    let directive = left.place.read(".ai/directives/quick.md").replace("\"quick\"", "\"daemons\"");
    let directive = directive.replace("<tool>rye.file-system.*</tool>", "<tool write=\"out/\">team.*</tool>");
    left.place.write(".ai/directives/daemons.md", &directive);
    left.place.write(".ai/tools/team/daemon.yaml", DAEMONS);
    left.place.write("script.yaml", "steps: [{ tool_calls: [{ name: team_daemon, input: {} }] }, { text: Done. }]");
    assert!(left.command(&["trust"]).output().unwrap().status.success());
    let mut command = left.command(&["chat", "daemons", "--format", "json", "--script", "script.yaml"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(chat_input().as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&done.stdout);
    assert!(left.has_started(), "{shown}\n{}", String::from_utf8_lossy(&done.stderr));
    left.wait_for_processes("the session");
    left.assert_nothing_is_left("the session");
}

#[test]
fn runs_leave_nothing() {
    let left = Leftovers::new();
    (0..count("RYE_RUNS", 3)).for_each(|_| left.run("quick"));
    left.assert_nothing_is_left("runs");
}
