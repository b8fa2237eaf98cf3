//! Probes of the runtimes of tools. Each runtime is started in the sandbox of the project's tools.

use std::path::Path;
use std::time::Duration;

use rye_engine::process::search_path;
use rye_engine::tool::cancellation::CancellationToken;
use rye_engine::tool::process::{Program, ProgramExit, ProgramResult, Sandbox, SharedOutput, StderrMode, run};

use crate::CommandError;
use crate::runtime;

/// Time for a runtime to start. A slow machine needs seconds for the first start of Node.js.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of characters that are printed of the output of a failed probe.
const MAX_SHOWN_CHARS: usize = 200;

/// A runtime, and arguments with which it prints one line.
struct Runtime {
    program: &'static str,
    arguments: &'static [&'static str],
    /// The tools that need the runtime; `None` if no tool of `rye` needs the runtime.
    needed_by: Option<&'static str>,
}

const RUNTIMES: [Runtime; 5] = [
    Runtime { program: "bash", arguments: &["-c", "echo $BASH_VERSION"], needed_by: Some("shell tools") },
    Runtime {
        program: "python3",
        arguments: &["-X", "utf8", "-B", "-c", "import json, ssl, platform; print(platform.python_version())"],
        needed_by: Some("Python tools"),
    },
    Runtime {
        program: "node",
        arguments: &["--no-warnings", "--input-type=module", "-e", "console.log(process.version)"],
        needed_by: Some("JavaScript and TypeScript tools"),
    },
    Runtime { program: "git", arguments: &["--version"], needed_by: None },
    Runtime { program: "cargo", arguments: &["--version"], needed_by: None },
];

/// The result of starting one runtime.
pub enum Probe {
    /// The program works in the sandbox; `printed` is the line that it printed.
    Works { program: &'static str, printed: String },
    /// The program is not in `PATH`. `needed_by` lists the tools that need it.
    Missing { program: &'static str, needed_by: &'static str },
    /// The program is in `PATH` but fails in the sandbox.
    Fails { program: &'static str, reason: String },
}

/// Starts each installed runtime in the sandbox that a tool without grants has in this project. A runtime that is not
/// installed is reported as missing if tools of `rye` need it.
pub fn probe_runtimes(project: &Path) -> Result<Vec<Probe>, CommandError> {
    let runtime = runtime::start_runtime(runtime::WORKERS_FOR_ONE_THREAD)?;
    Ok(runtime.block_on(async {
        let mut probes = Vec::new();
        for one in &RUNTIMES {
            if search_path().any(|folder| folder.join(one.program).exists()) {
                probes.push(probe(one, project).await);
            } else if let Some(needed_by) = one.needed_by {
                probes.push(Probe::Missing { program: one.program, needed_by });
            }
        }
        probes
    }))
}

async fn probe(runtime: &Runtime, project: &Path) -> Probe {
    let program = runtime.program;
    let ran = run(&Program {
        program: program.into(),
        arguments: runtime.arguments.iter().map(Into::into).collect(),
        folder: project.to_path_buf(),
        thread_id: String::new(),
        timeout: PROBE_TIMEOUT,
        halt: CancellationToken::never(),
        sandbox: Some(Sandbox::new(project, Vec::new(), &[])),
        input: Vec::new(),
        environment: Vec::new(),
        streams: StderrMode::Together,
        written: SharedOutput::default(),
    })
    .await;
    match ran {
        Ok(ProgramResult { exit: ProgramExit::Code(0), output, .. }) => {
            Probe::Works { program, printed: first_line(&output.text) }
        }
        Ok(ProgramResult { exit, output, .. }) => {
            let exit = match exit {
                ProgramExit::Code(code) => format!("exit code {code}"),
                ProgramExit::Signal(signal) => format!("signal {signal}"),
                ProgramExit::TimedOut | ProgramExit::Cancelled => {
                    format!("still running after {} seconds", PROBE_TIMEOUT.as_secs())
                }
            };
            let reason = last_line(&output.text);
            Probe::Fails { program, reason: if reason.is_empty() { exit } else { format!("{exit}: {reason}") } }
        }
        Err(error) => Probe::Fails { program, reason: error.to_string() },
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().chars().take(MAX_SHOWN_CHARS).collect()
}

fn last_line(text: &str) -> String {
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    last.chars().take(MAX_SHOWN_CHARS).collect()
}
