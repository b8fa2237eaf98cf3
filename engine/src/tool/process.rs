//! Runs one program for a tool: in a process group of its own, with only the given input, a declared environment,
//! bounded output and a timeout. The whole group ends when the program ends. [`sandbox`] holds the sandbox.

mod bounded;
mod descendants;
mod feed;
mod filtered_settings;
mod group;
mod long_lived;
pub mod sandbox;
mod scratch;
mod supervise;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::Instant;

use super::cancellation::{CANCEL_GRACE, CancellationToken};
use crate::process::search_path;
pub use bounded::{BoundedOutput, CollectedOutput, SharedOutput};
use group::ProcessGroup;
pub use group::wait_programs_ended;
pub(crate) use long_lived::start_long_lived;
pub use long_lived::{LongLivedProgram, ProgramHandle, RunningProgram, StderrTail};
#[cfg(target_os = "linux")]
pub use sandbox::bubblewrap::use_bubblewrap;
pub use sandbox::{Sandbox, SandboxSupport, detect_support};
use scratch::Scratch;
pub use supervise::supervise_if_requested;

/// Time between `SIGTERM` and `SIGKILL` of a group.
pub(crate) const TERMINATION_GRACE: Duration = Duration::from_secs(3);
/// Maximum time to read the rest of the output after the program has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(250);
/// Maximum bytes of output that are kept from the start; as many bytes are kept from the end.
pub(crate) const MAX_KEPT_BYTES: usize = 512 * 1024;

/// A program that a tool starts and whose end the tool awaits.
#[derive(Debug, Clone)]
pub struct Program {
    /// A name to look up in `PATH`, or an absolute path.
    pub program: OsString,
    pub arguments: Vec<OsString>,
    pub folder: PathBuf,
    pub thread_id: String,
    pub timeout: Duration,
    /// A token that is cancelled with the thread. The program is then ended.
    pub halt: CancellationToken,
    /// The sandbox; `None` for the full access of the user.
    pub sandbox: Option<Sandbox>,
    /// Bytes for standard input; empty means `/dev/null`.
    pub input: Vec<u8>,
    /// Additional variables. They cannot replace the variables that every program gets.
    pub environment: Vec<(OsString, OsString)>,
    pub streams: StderrMode,
    /// Receives the output while the program runs.
    pub written: SharedOutput,
}

/// The handling of standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StderrMode {
    /// Standard error is merged into the output, in the order of writing.
    #[default]
    Together,
    /// Standard output and standard error are kept separate: standard output is the result, and standard error is a
    /// log.
    Apart,
}

/// The exit status of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramExit {
    Code(i32),
    Signal(i32),
    /// The program was ended because it exceeded its timeout.
    TimedOut,
    /// The program was ended because the thread that runs it was cancelled.
    Cancelled,
}

/// The exit status and the output of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramResult {
    pub exit: ProgramExit,
    /// Standard output; includes standard error if merged.
    pub output: CollectedOutput,
    /// Standard error if separate from standard output, else empty.
    pub errors: CollectedOutput,
}

/// Runs a program to its end, under the helper process if this binary can act as a helper ([`supervise_if_requested`]).
/// Dropping the future ends the process group of the program at once. With a helper, the death of this process ends the
/// group too.
///
/// # Errors
///
/// The program cannot be started.
pub async fn run(program: &Program) -> io::Result<ProgramResult> {
    let (reader, writer) = io::pipe()?;
    let scratch = program.sandbox.as_ref().map(|_| Scratch::new()).transpose()?;
    let sandbox = add_scratch(program.sandbox.clone(), scratch.as_ref());
    // The helper gets a pipe from this process, its owner. The pipe carries the input, and stays open until the owner
    // ends the program or dies.
    let (mut command, input, owner) = if let Some((helper, first)) =
        supervise::supervised_command(supervise::InputMode::Once, &program.program, sandbox.as_ref())?
    {
        let (theirs, ours) = io::pipe()?;
        let mut command = tokio::process::Command::new(helper);
        command.args(first);
        (command, Stdio::from(theirs), Some(ours))
    } else {
        let input = if program.input.is_empty() { Stdio::null() } else { Stdio::piped() };
        (tokio::process::Command::new(&program.program), input, None)
    };
    let (mut errors, error_writer) = errors_of(program.streams, &writer)?;
    command
        .args(&program.arguments)
        .current_dir(&program.folder)
        .env_clear()
        .envs(program.environment.iter().map(|(name, value)| (name, value)))
        .envs(base_environment(&program.thread_id))
        .envs(scratch.iter().flat_map(Scratch::environment))
        .stdin(input)
        .stdout(writer)
        .stderr(error_writer)
        .process_group(0);
    let mut child = command.spawn()?;
    // The command holds the write ends of the pipes: the output does not end before the command is dropped.
    drop(command);
    let feeder = owner.as_ref().map(std::io::PipeWriter::try_clone).transpose()?;
    let mut group = ProcessGroup::new(child.id(), owner);
    // `feed` holds a copy of the pipe to the helper, so it is dropped before `group`: the helper notices the end of its
    // owner when the last copy is closed.
    let mut feed = feed::write_input(feeder, child.stdin.take(), program.input.clone())?;
    let mut output = Some(pipe::Receiver::from_owned_fd(reader.into())?);

    let (kept, mut kept_errors) = (&program.written, BoundedOutput::new(MAX_KEPT_BYTES));
    let (mut chunk, mut error_chunk) = (vec![0_u8; 64 * 1024], vec![0_u8; 16 * 1024]);
    let mut phase = RunPhase::Running;
    let mut status: Option<ExitStatus> = None;
    let mut wake = Instant::now().checked_add(program.timeout);
    let mut halt = program.halt.clone();
    let mut halted = false;
    loop {
        if status.is_some() && output.is_none() && errors.is_none() {
            break;
        }
        tokio::select! {
            read = read(&mut output, &mut chunk), if output.is_some() => match read? {
                0 => output = None,
                n => kept.push(chunk.get(..n).unwrap_or_default()),
            },
            read = read(&mut errors, &mut error_chunk), if errors.is_some() => match read? {
                0 => errors = None,
                n => kept_errors.push(error_chunk.get(..n).unwrap_or_default()),
            },
            () = feed::wait_written(&mut feed), if feed.is_some() => feed = None,
            ended = child.wait(), if status.is_none() => {
                status = Some(ended?);
                group.leader_has_ended();
                wake = Instant::now().checked_add(DRAIN_TIMEOUT);
                phase = if phase == RunPhase::Running { RunPhase::Draining } else { RunPhase::Killed };
            }
            () = halt.cancelled(), if phase == RunPhase::Running && !halted => {
                halted = true;
                wake = [wake, Instant::now().checked_add(CANCEL_GRACE)].into_iter().flatten().min();
            }
            () = sleep_until(wake) => match phase {
                RunPhase::Running => {
                    group.signal(Signal::TERM);
                    phase = RunPhase::Asked;
                    wake = Instant::now().checked_add(TERMINATION_GRACE);
                }
                RunPhase::Asked => {
                    feed = None;
                    group.end();
                    phase = RunPhase::Killed;
                    wake = Instant::now().checked_add(TERMINATION_GRACE);
                }
                // Kills leftover background processes, then reads the rest of their output.
                RunPhase::Draining => {
                    group.signal(Signal::KILL);
                    phase = RunPhase::Over(EndReason::Ended);
                    wake = Instant::now().checked_add(DRAIN_TIMEOUT);
                }
                RunPhase::Killed => {
                    group.kill();
                    phase = RunPhase::Over(EndReason::TimedOut);
                    wake = Instant::now().checked_add(DRAIN_TIMEOUT);
                }
                // A process outside the group still holds the pipe: stop reading.
                RunPhase::Over(_) => break,
            },
        }
    }
    let stopped = matches!(phase, RunPhase::Asked | RunPhase::Killed | RunPhase::Over(EndReason::TimedOut));
    drop(feed);
    drop(group);
    let exit = match (stopped, halted) {
        (true, true) => ProgramExit::Cancelled,
        (true, false) => ProgramExit::TimedOut,
        (false, _) => program_exit(status),
    };
    Ok(ProgramResult { exit, output: kept.take(), errors: kept_errors.finish() })
}

/// Adds the temporary folder of a program to the sandbox of the program; `None` if the program has no sandbox.
fn add_scratch(sandbox: Option<Sandbox>, scratch: Option<&Scratch>) -> Option<Sandbox> {
    sandbox.map(|sandbox| Sandbox { scratch: scratch.map(|scratch| scratch.folder.clone()), ..sandbox })
}

/// Returns the pipe for the standard error of a program: the reader and the writer. If standard error is merged into
/// `output`, there is no reader, and the writer is a copy of `output`.
fn errors_of(streams: StderrMode, output: &io::PipeWriter) -> io::Result<(Option<pipe::Receiver>, io::PipeWriter)> {
    match streams {
        StderrMode::Together => Ok((None, output.try_clone()?)),
        StderrMode::Apart => {
            let (reader, writer) = io::pipe()?;
            Ok((Some(pipe::Receiver::from_owned_fd(reader.into())?), writer))
        }
    }
}

async fn read(from: &mut Option<pipe::Receiver>, chunk: &mut [u8]) -> io::Result<usize> {
    match from {
        Some(pipe) => pipe.read(chunk).await,
        None => std::future::pending().await,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunPhase {
    Running,
    /// `SIGTERM` was sent.
    Asked,
    /// `SIGKILL` was sent.
    Killed,
    /// The program ended by itself, and the rest of its output is being read.
    Draining,
    /// Every process was killed, and the rest of the output is being read.
    Over(EndReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndReason {
    Ended,
    TimedOut,
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn program_exit(status: Option<ExitStatus>) -> ProgramExit {
    let code = status.and_then(|s| s.code());
    let signal = status.and_then(|s| s.signal());
    code.map(ProgramExit::Code).or(signal.map(ProgramExit::Signal)).unwrap_or(ProgramExit::TimedOut)
}

/// Returns the environment that every program gets. The environment contains no API key of a provider.
pub(super) fn base_environment(thread_id: &str) -> Vec<(OsString, OsString)> {
    let inherit = |name: &str, default: &str| {
        (OsString::from(name), std::env::var_os(name).unwrap_or_else(|| OsString::from(default)))
    };
    let path = std::env::join_paths(search_path()).unwrap_or_default();
    let path = if path.is_empty() { OsString::from("/usr/local/bin:/usr/bin:/bin") } else { path };
    vec![
        ("PATH".into(), path),
        inherit("HOME", "/"),
        inherit("LANG", "C.UTF-8"),
        ("TERM".into(), "dumb".into()),
        ("RYE_PARENT_THREAD_ID".into(), thread_id.into()),
    ]
}

#[cfg(test)]
mod tests;
