//! The helper that runs a tool's program (`engine.md` 4): this binary, started again with a hidden first argument.
//!
//! The helper holds a pipe to its owner and adopts orphaned descendants of the program. If the program ends or the
//! owner dies (even by `SIGKILL`), the helper ends all descendants. The program writes to the standard output and error
//! of the helper. If the program gets its whole input at the start, the pipe begins with the length of the input in
//! eight bytes, followed by the input. The helper stays outside the sandbox, so the program cannot signal the helper.
//! For a sandboxed program, the helper starts this binary once more; the new process applies the sandbox and then
//! executes the program.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::ChildStdin;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::descendants::{MAX_PROCESSES, ProcessTable, TaskCount, has_children};
#[cfg(target_os = "linux")]
use super::sandbox::leftovers::WritableFolders;
use super::sandbox::{self, Sandbox};
use super::scratch;

/// First command-line argument with which `rye` runs as a helper.
const SUPERVISE_ARGUMENT: &str = "__supervise";
/// The first argument of a helper for a long-lived program. The helper closes the input of the program when the owner
/// of the program ends.
const LONG_LIVED_ARGUMENT: &str = "__attend";
/// The first argument of a process that applies the sandbox and then executes a program.
const SANDBOX_ARGUMENT: &str = "__confine";
/// Interval between two counts of the program's processes.
const COUNT_INTERVAL: Duration = Duration::from_millis(20);
/// The exit code if the sandbox cannot be applied.
const SANDBOX_FAILED: u8 = 126;
/// Time for orphaned descendants to end by themselves after the program has ended. Then they are killed.
const ORPHAN_DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// The exit code if the program cannot be started, as in shells.
const START_FAILED: u8 = 127;

/// Maximum bytes of buffered input. If more input is unread, the helper ends the program, because the program does not
/// read its input.
const MAX_UNREAD_BYTES: usize = 32 << 20;
/// Time for a program to end by itself after its input was closed.
const EXIT_GRACE: Duration = Duration::from_millis(400);

/// The way in which a program gets its standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InputMode {
    /// The whole input is written at the start.
    Once,
    /// Input is passed on as long as the program runs.
    Stream,
}

/// The first descriptor after the standard streams. Child processes inherit neither this descriptor nor later ones.
const FIRST_UNSHARED_FD: i32 = 3;

static HELPER: OnceLock<OsString> = OnceLock::new();

/// If `rye` started this process as the helper, runs the helper and returns the exit code. If `rye` started this
/// process to apply a sandbox, applies the sandbox and then becomes the program; returns only on failure. In any other
/// process, records that this binary can act as the helper, and returns `None`. Call this function first in `main`.
///
/// Marks every inherited descriptor after standard error as close-on-exec, so that no child process gets the
/// descriptor.
pub fn supervise_if_requested() -> Option<ExitCode> {
    close_fds::set_fds_cloexec(FIRST_UNSHARED_FD, &[]);
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == SUPERVISE_ARGUMENT || first == LONG_LIVED_ARGUMENT => {
            let input_mode = if first == LONG_LIVED_ARGUMENT { InputMode::Stream } else { InputMode::Once };
            let (sandbox, program) = (arguments.next(), arguments.next());
            return Some(run_helper(input_mode, sandbox, program, &arguments.collect::<Vec<_>>()));
        }
        Some(first) if first == SANDBOX_ARGUMENT => {
            let (sandbox, program) = (arguments.next(), arguments.next());
            return Some(exec_sandboxed(sandbox, program, &arguments.collect::<Vec<_>>()));
        }
        Some(_) | None => {}
    }
    HELPER.get_or_init(own_binary);
    None
}

/// Returns a path that starts the running binary. On Linux, the path is `/proc/self/exe`, which stays valid even if the
/// file of the binary is replaced.
fn own_binary() -> OsString {
    let own = "/proc/self/exe".into();
    if cfg!(target_os = "linux") { own } else { std::env::current_exe().map_or(own, PathBuf::into_os_string) }
}

/// Returns the command that runs a tool's program under the helper process: the helper's binary, and the arguments that
/// precede the arguments of the program. `None` if this binary cannot act as the helper.
pub(super) fn supervised_command(
    input_mode: InputMode,
    program: &OsString,
    sandbox: Option<&Sandbox>,
) -> io::Result<Option<(OsString, [OsString; 3])>> {
    let Some(helper) = HELPER.get() else { return Ok(None) };
    // An empty argument means no sandbox.
    let sandbox = sandbox.map(serde_json::to_string).transpose()?.unwrap_or_default();
    let first = match input_mode {
        InputMode::Once => SUPERVISE_ARGUMENT,
        InputMode::Stream => LONG_LIVED_ARGUMENT,
    };
    Ok(Some((helper.clone(), [first.into(), sandbox.into(), program.clone()])))
}

/// Applies the sandbox, then executes the program. Returns only on failure.
fn exec_sandboxed(sandbox: Option<OsString>, program: Option<OsString>, arguments: &[OsString]) -> ExitCode {
    use std::os::unix::process::CommandExt;
    let (Some(sandbox), Some(program)) = (sandbox, program) else { return ExitCode::from(START_FAILED) };
    // If the helper is killed, the kernel ends the program too.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        report(&format!(
            "`{}` is not started, because it could outlive its supervisor process: {error}\n",
            program.display()
        ));
        return ExitCode::from(SANDBOX_FAILED);
    }
    let sandbox = sandbox.to_str().ok_or_else(|| io::Error::other("it is not UTF-8"));
    let raised = sandbox
        .and_then(|text| Ok(serde_json::from_str::<Sandbox>(text)?))
        .and_then(|sandbox| sandbox::apply(&sandbox));
    if let Err(error) = raised {
        report(&format!("`{}` is not started, because its sandbox cannot be applied: {error}\n", program.display()));
        return ExitCode::from(SANDBOX_FAILED);
    }
    let error = std::process::Command::new(&program).args(arguments).exec();
    report(&format!("`{}` cannot be started: {error}\n", program.display()));
    ExitCode::from(START_FAILED)
}

fn run_helper(
    input_mode: InputMode,
    sandbox: Option<OsString>,
    program: Option<OsString>,
    arguments: &[OsString],
) -> ExitCode {
    let (Some(sandbox), Some(mut program)) = (sandbox, program) else { return ExitCode::from(START_FAILED) };
    let mut arguments = arguments.to_vec();
    let cleanup = match Cleanup::new(&sandbox) {
        Ok(cleanup) => cleanup,
        Err(error) => {
            report(&format!(
                "`{}` is not started, because its writable folders cannot be opened: {error}\n",
                program.display()
            ));
            return ExitCode::from(SANDBOX_FAILED);
        }
    };
    if !sandbox.is_empty() {
        let within = match bubblewrap_command(&sandbox) {
            Ok(within) => within,
            Err(error) => {
                report(&format!(
                    "`{}` is not started, because bubblewrap cannot be set up: {error}\n",
                    program.display()
                ));
                return ExitCode::from(SANDBOX_FAILED);
            }
        };
        let (first, before) = within.unwrap_or_else(|| (own_binary(), Vec::new()));
        let confine = [SANDBOX_ARGUMENT.into(), sandbox, std::mem::replace(&mut program, first)];
        arguments.splice(..0, before.into_iter().chain(confine));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.and_then(|runtime| runtime.block_on(supervise(input_mode, &program, &arguments, &cleanup)));
    cleanup.remove_scratch();
    match ended {
        Ok(status) => exit_like(status),
        Err(e) => {
            report(&format!("`{}` cannot be started: {e}\n", program.display()));
            ExitCode::from(START_FAILED)
        }
    }
}

/// Returns the program and the arguments that start this binary inside bubblewrap. `None` if bubblewrap is not used.
#[cfg(target_os = "linux")]
fn bubblewrap_command(sandbox: &OsString) -> io::Result<Option<(OsString, Vec<OsString>)>> {
    let sandbox: Sandbox = serde_json::from_str(sandbox.to_str().unwrap_or_default())?;
    let Some(program) = &sandbox.outer else { return Ok(None) };
    let mut arguments = sandbox::bubblewrap::arguments(&sandbox)?;
    // Inside bubblewrap, `/proc/self/exe` is bubblewrap's binary.
    arguments.push(std::env::current_exe()?.into_os_string());
    Ok(Some((program.clone().into_os_string(), arguments)))
}

#[cfg(not(target_os = "linux"))]
fn bubblewrap_command(_sandbox: &OsString) -> io::Result<Option<(OsString, Vec<OsString>)>> {
    Ok(None)
}

/// The work of the helper after every process of a sandboxed program has ended.
#[derive(Default)]
struct Cleanup {
    #[cfg(target_os = "linux")]
    writable: Option<WritableFolders>,
    /// The folder for temporary files of the program. The owner of the program removes this folder. The helper also
    /// removes it, in case the owner was killed. `None` if the program has no such folder.
    scratch: Option<PathBuf>,
}

impl Cleanup {
    #[cfg(target_os = "linux")]
    fn new(sandbox: &OsString) -> io::Result<Self> {
        if sandbox.is_empty() {
            return Ok(Self::default());
        }
        let sandbox: Sandbox = serde_json::from_str(sandbox.to_str().unwrap_or_default())?;
        Ok(Self { writable: Some(WritableFolders::open(&sandbox)?), scratch: sandbox.scratch })
    }

    #[cfg(not(target_os = "linux"))]
    fn new(_sandbox: &OsString) -> io::Result<Self> {
        Ok(Self::default())
    }

    fn remove_scratch(&self) {
        if let Some(folder) = &self.scratch {
            scratch::remove_scratch(folder);
        }
    }

    /// Renames the protected paths that the program has created, and lists them in the program's output.
    fn run(&self) {
        #[cfg(target_os = "linux")]
        if let Some(text) = self.writable.as_ref().and_then(|folders| folders.refuse_protected().report()) {
            report(&text);
        }
    }
}

async fn supervise(
    input_mode: InputMode,
    program: &OsString,
    arguments: &[OsString],
    cleanup: &Cleanup,
) -> io::Result<ExitStatus> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(getpid()))?;
    let mut table = ProcessTable::open()?;
    let mut tasks = TaskCount::new(&table);
    // The owner sends `SIGTERM` to the group of the helper, and the helper forwards the signal to the group of the
    // program. The program has a group of its own, so that this group can be killed without the helper.
    let mut terminate = signal(SignalKind::terminate())?;
    // This handler keeps `SIGHUP` from ending the helper. If the owner ends while a process of this group is stopped,
    // the kernel sends `SIGHUP` to the group. `end_all` stops processes before it kills them.
    let _hung_up = signal(SignalKind::hangup())?;
    let owner = rustix::io::fcntl_dupfd_cloexec(io::stdin().as_fd(), 3)?;
    let mut owner = pipe::Receiver::from_owned_fd(owner)?;
    let mut input = Vec::new();
    if input_mode == InputMode::Once {
        let length = owner.read_u64_le().await?;
        (&mut owner).take(length).read_to_end(&mut input).await?;
    }
    let from = if input_mode == InputMode::Once && input.is_empty() { Stdio::null() } else { Stdio::piped() };
    let mut child = tokio::process::Command::new(program).args(arguments).stdin(from).process_group(0).spawn()?;
    let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    let stdin = child.stdin.take();
    let mut nothing = [0_u8; 1];
    let mut counting = tokio::time::interval(COUNT_INTERVAL);
    let mut gone = Box::pin(async {
        match input_mode {
            InputMode::Once => feed_until_owner_ends(&mut owner, stdin, input).await,
            InputMode::Stream => relay(&mut owner, stdin).await,
        }
    });
    let status = loop {
        tokio::select! {
            status = child.wait() => match status {
                Ok(status) => break status,
                Err(error) => {
                    report(&format!("\n[stopped: waiting for the program failed: {error}]\n"));
                    end_everything(&mut table, group, cleanup);
                }
            },
            () = &mut gone => {
                if input_mode == InputMode::Stream {
                    tokio::time::timeout(EXIT_GRACE, child.wait()).await.ok();
                }
                end_everything(&mut table, group, cleanup);
            }
            _ = terminate.recv() => signal_group(group, Signal::TERM),
            _ = counting.tick() => {
                table.reap_orphans(group);
                match tasks.is_exceeded(&mut table) {
                    Ok(false) => {}
                    Ok(true) => {
                        report(&format!("\n[stopped: more than {MAX_PROCESSES} processes at once]\n"));
                        end_everything(&mut table, group, cleanup);
                    }
                    Err(error) => {
                        report(&format!("\n[stopped: the processes of the program cannot be counted: {error}]\n"));
                        end_everything(&mut table, group, cleanup);
                    }
                }
            }
        }
    };
    drop(gone);
    let deadline = Instant::now() + ORPHAN_DRAIN_TIMEOUT;
    while Instant::now() < deadline && has_children() {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
            _ = owner.read(&mut nothing) => break,
        }
    }
    // If no child is left, the group id may belong to another group by now.
    if has_children() {
        signal_group(group, Signal::KILL);
    }
    table.end_all();
    cleanup.run();
    Ok(status)
}

/// Forwards the input to the program and waits until the owner process ends. The owner's end is noticed even if the
/// program does not read the input.
async fn feed_until_owner_ends(owner: &mut pipe::Receiver, stdin: Option<ChildStdin>, input: Vec<u8>) {
    let mut nothing = [0_u8; 1];
    // The owner sends nothing after the input, so any result of the read means that the owner has closed the pipe.
    if let Some(mut stdin) = stdin {
        let hand_on = async move {
            // A program need not read all of its input.
            stdin.write_all(&input).await.ok();
        };
        tokio::select! {
            () = hand_on => {}
            _ = owner.read(&mut nothing) => return,
        }
    }
    owner.read_exact(&mut nothing).await.ok();
}

/// Forwards data from the owner's pipe to the program. Ends when the owner closes the pipe or too much data is unread,
/// and then closes the program's input. Data that the program has not read is buffered, so that the end of the pipe is
/// noticed even if the program does not read.
async fn relay(owner: &mut pipe::Receiver, mut stdin: Option<ChildStdin>) {
    let mut held: VecDeque<u8> = VecDeque::new();
    let mut chunk = vec![0_u8; 64 * 1024];
    loop {
        let wants = stdin.is_some() && !held.is_empty();
        tokio::select! {
            read = owner.read(&mut chunk) => match read {
                Ok(0) | Err(_) => break,
                Ok(_) if held.len() > MAX_UNREAD_BYTES => break,
                Ok(read) => held.extend(chunk.get(..read).unwrap_or_default()),
            },
            wrote = forward_input(&mut stdin, &held), if wants => if let Ok(wrote) = wrote {
                held.drain(..wrote);
            } else {
                // The program closed its input; its output is still valid.
                stdin = None;
            },
        }
        if stdin.is_none() {
            held.clear();
        }
    }
    if let Some(mut stdin) = stdin {
        held.make_contiguous();
        tokio::time::timeout(EXIT_GRACE, stdin.write_all(held.as_slices().0)).await.ok();
    }
}

async fn forward_input(stdin: &mut Option<ChildStdin>, held: &VecDeque<u8>) -> io::Result<usize> {
    match stdin {
        Some(stdin) => stdin.write(held.as_slices().0).await,
        None => std::future::pending().await,
    }
}

/// Ends the program's group, then every other descendant, then this process.
fn end_everything(table: &mut ProcessTable, group: Option<Pid>, cleanup: &Cleanup) -> ! {
    signal_group(group, Signal::KILL);
    table.end_all();
    cleanup.run();
    cleanup.remove_scratch();
    kill_process(getpid(), Signal::KILL).ok();
    // The kernel ends this process before `kill_process` returns.
    std::process::abort()
}

fn signal_group(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // The group may have ended already.
        kill_process_group(group, signal).ok();
    }
}

/// Ends this process as the program ended: with the same exit code or by the same signal.
fn exit_like(status: ExitStatus) -> ExitCode {
    if let Some(code) = status.code() {
        return ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX));
    }
    let number = status.signal().unwrap_or(0);
    if let Some(signal) = Signal::from_named_raw(number) {
        kill_process(getpid(), signal).ok();
    }
    // This line is reached only if the signal does not end this process.
    ExitCode::from(u8::try_from(128 + number).unwrap_or(u8::MAX))
}

fn report(text: &str) {
    use std::io::Write;
    // An error is ignored, because there is no other output for the report.
    io::stderr().write_all(text.as_bytes()).ok();
}
