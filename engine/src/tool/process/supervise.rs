//! The helper a tool's program runs under (`engine.md` 4): the same binary, started again with a hidden first argument.
//! It holds a pipe to its owner, adopts whatever its program leaves behind, and ends all of it when the program ends or
//! the owner is gone, kill -9 included. Its standard output and error are the program's; the pipe begins with the
//! program's input, led by its length in eight bytes. The helper itself stays outside the wall, where its program cannot
//! signal it: it starts this binary once more, which raises the wall and becomes the program.

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
use super::wall::{self, Wall};

/// The first argument that makes a process the helper.
const ARGUMENT: &str = "__supervise";
/// The same for a program that is spoken with: its input does not end before its owner does.
const ATTEND: &str = "__attend";
/// The first argument that makes a process raise its wall and become a program.
const CONFINE: &str = "__confine";
/// Interval between two counts of the processes of a program.
const COUNTING: Duration = Duration::from_millis(20);
/// The code of a program that was not started because its wall could not be raised.
const NO_WALL: u8 = 126;
/// How long what a program leaves in the background may still speak.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// The code of a program that could not be started, as shells give it.
const NOT_STARTED: u8 = 127;

/// Bytes that a program leaves unread before it counts as one that never reads.
const MOST_UNREAD: usize = 32 << 20;
/// How long a program has to end by itself once nobody speaks with it any more.
const FAREWELL: Duration = Duration::from_millis(400);

/// How a program is spoken with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Talk {
    /// It is given its input at once, and then nothing.
    Once,
    /// For as long as it runs.
    Stream,
}

/// The first descriptor after the standard streams.
const FIRST_UNSHARED_FD: i32 = 3;

static HELPER: OnceLock<OsString> = OnceLock::new();

/// To be called first in `main`. In a process started as the helper it does the helper's work and answers its exit
/// code; in any other it notes that this binary can be the helper and answers `None`.
///
/// Marks every inherited descriptor beyond standard error as close-on-exec: no program that this process starts gets it.
pub fn supervise_if_asked() -> Option<ExitCode> {
    close_fds::set_fds_cloexec(FIRST_UNSHARED_FD, &[]);
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == ARGUMENT || first == ATTEND => {
            let talk = if first == ATTEND { Talk::Stream } else { Talk::Once };
            let (wall, program) = (arguments.next(), arguments.next());
            return Some(helper(talk, wall, program, &arguments.collect::<Vec<_>>()));
        }
        Some(first) if first == CONFINE => {
            let (wall, program) = (arguments.next(), arguments.next());
            return Some(become_confined(wall, program, &arguments.collect::<Vec<_>>()));
        }
        Some(_) | None => {}
    }
    HELPER.get_or_init(own_binary);
    None
}

/// On Linux this names the running binary even when its file was replaced since.
fn own_binary() -> OsString {
    let own = "/proc/self/exe".into();
    if cfg!(target_os = "linux") { own } else { std::env::current_exe().map_or(own, PathBuf::into_os_string) }
}

/// The program to start and what comes before the tool's own arguments.
pub(super) fn helped(
    talk: Talk,
    program: &OsString,
    wall: Option<&Wall>,
) -> io::Result<Option<(OsString, [OsString; 3])>> {
    let Some(helper) = HELPER.get() else { return Ok(None) };
    // Empty = no wall.
    let wall = wall.map(serde_json::to_string).transpose()?.unwrap_or_default();
    let first = match talk {
        Talk::Once => ARGUMENT,
        Talk::Stream => ATTEND,
    };
    Ok(Some((helper.clone(), [first.into(), wall.into(), program.clone()])))
}

/// Raises the wall, then becomes the program. Only returns where that failed.
fn become_confined(wall: Option<OsString>, program: Option<OsString>, arguments: &[OsString]) -> ExitCode {
    use std::os::unix::process::CommandExt;
    let (Some(wall), Some(program)) = (wall, program) else { return ExitCode::from(NOT_STARTED) };
    let wall = wall.to_str().ok_or_else(|| io::Error::other("it is no text"));
    let raised = wall.and_then(|text| Ok(serde_json::from_str::<Wall>(text)?)).and_then(|wall| wall::raise(&wall));
    if let Err(error) = raised {
        say(&format!("`{}` is not started, for its wall cannot be raised: {error}\n", program.display()));
        return ExitCode::from(NO_WALL);
    }
    let error = std::process::Command::new(&program).args(arguments).exec();
    say(&format!("`{}` cannot be started: {error}\n", program.display()));
    ExitCode::from(NOT_STARTED)
}

fn helper(talk: Talk, wall: Option<OsString>, program: Option<OsString>, arguments: &[OsString]) -> ExitCode {
    let (Some(wall), Some(mut program)) = (wall, program) else { return ExitCode::from(NOT_STARTED) };
    let mut arguments = arguments.to_vec();
    if !wall.is_empty() {
        let within = match bubblewrapped(&wall) {
            Ok(within) => within,
            Err(error) => {
                say(&format!("`{}` is not started, for bubblewrap cannot be raised: {error}\n", program.display()));
                return ExitCode::from(NO_WALL);
            }
        };
        let (first, before) = within.unwrap_or_else(|| (own_binary(), Vec::new()));
        let confine = [CONFINE.into(), wall, std::mem::replace(&mut program, first)];
        arguments.splice(..0, before.into_iter().chain(confine));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.and_then(|runtime| runtime.block_on(watch(talk, &program, &arguments)));
    match ended {
        Ok(status) => leave(status),
        Err(e) => {
            say(&format!("`{}` cannot be started: {e}\n", program.display()));
            ExitCode::from(NOT_STARTED)
        }
    }
}

/// bubblewrap, and its arguments up to this very binary; `None` where the wall stands by itself.
#[cfg(target_os = "linux")]
fn bubblewrapped(wall: &OsString) -> io::Result<Option<(OsString, Vec<OsString>)>> {
    let wall: Wall = serde_json::from_str(wall.to_str().unwrap_or_default())?;
    let Some(program) = &wall.outer else { return Ok(None) };
    let mut arguments = wall::outer::arguments(&wall)?;
    // Inside, the short name of the running binary is bubblewrap's.
    arguments.push(std::env::current_exe()?.into_os_string());
    Ok(Some((program.clone().into_os_string(), arguments)))
}

#[cfg(not(target_os = "linux"))]
fn bubblewrapped(_wall: &OsString) -> io::Result<Option<(OsString, Vec<OsString>)>> {
    Ok(None)
}

async fn watch(talk: Talk, program: &OsString, arguments: &[OsString]) -> io::Result<ExitStatus> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(getpid()))?;
    let mut table = ProcessTable::open()?;
    let mut tasks = TaskCount::new(&table);
    // The owner signals the helper's group, and the helper passes the request on: the program has a group of its own, so
    // that the whole group can be killed at once without the helper.
    let mut terminate = signal(SignalKind::terminate())?;
    // The owner's end orphans this group, and the kernel hangs up on an orphaned group in which something is stopped: the
    // sweep stops what it ends.
    let _hung_up = signal(SignalKind::hangup())?;
    let owner = rustix::io::fcntl_dupfd_cloexec(io::stdin().as_fd(), 3)?;
    let mut owner = pipe::Receiver::from_owned_fd(owner)?;
    let mut input = Vec::new();
    if talk == Talk::Once {
        let length = owner.read_u64_le().await?;
        (&mut owner).take(length).read_to_end(&mut input).await?;
    }
    let from = if talk == Talk::Once && input.is_empty() { Stdio::null() } else { Stdio::piped() };
    let mut child = tokio::process::Command::new(program).args(arguments).stdin(from).process_group(0).spawn()?;
    let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    let stdin = child.stdin.take();
    let mut nothing = [0_u8; 1];
    let mut counting = tokio::time::interval(COUNTING);
    let mut gone = Box::pin(async {
        match talk {
            Talk::Once => owner_gone(&mut owner, stdin, input).await,
            Talk::Stream => relay(&mut owner, stdin).await,
        }
    });
    let status = loop {
        tokio::select! {
            status = child.wait() => match status {
                Ok(status) => break status,
                Err(error) => {
                    say(&format!("\n[stopped: its end cannot be waited for: {error}]\n"));
                    end_everything(&mut table, group);
                }
            },
            () = &mut gone => {
                if talk == Talk::Stream {
                    tokio::time::timeout(FAREWELL, child.wait()).await.ok();
                }
                end_everything(&mut table, group);
            }
            _ = terminate.recv() => signal_group(group, Signal::TERM),
            _ = counting.tick() => match tasks.is_exceeded(&mut table) {
                Ok(false) => {}
                Ok(true) => {
                    say(&format!("\n[stopped: more than {MAX_PROCESSES} processes at once]\n"));
                    end_everything(&mut table, group);
                }
                Err(error) => {
                    say(&format!("\n[stopped: its processes cannot be counted: {error}]\n"));
                    end_everything(&mut table, group);
                }
            }
        }
    };
    drop(gone);
    let patience = Instant::now() + LAST_WORDS;
    while Instant::now() < patience && has_children() {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
            _ = owner.read(&mut nothing) => break,
        }
    }
    // Without a child the number of the group may belong to others already.
    if has_children() {
        signal_group(group, Signal::KILL);
    }
    table.end_all();
    Ok(status)
}

/// Waits for the owner's end, and hands the input on meanwhile: a program that never reads must not hide that end.
async fn owner_gone(owner: &mut pipe::Receiver, stdin: Option<ChildStdin>, input: Vec<u8>) {
    let mut nothing = [0_u8; 1];
    // Nothing comes after the input; whatever the read answers, the owner has let go.
    if let Some(mut stdin) = stdin {
        let hand_on = async move {
            // What a program does not read to the end is its own business.
            stdin.write_all(&input).await.ok();
        };
        tokio::select! {
            () = hand_on => {}
            _ = owner.read(&mut nothing) => return,
        }
    }
    owner.read_exact(&mut nothing).await.ok();
}

/// Hands on whatever the owner says, until it says no more: then the program's input ends too. What the program does not
/// read is held, so that it cannot hide its owner's end.
async fn relay(owner: &mut pipe::Receiver, mut stdin: Option<ChildStdin>) {
    let mut held: VecDeque<u8> = VecDeque::new();
    let mut chunk = vec![0_u8; 64 * 1024];
    loop {
        let wants = stdin.is_some() && !held.is_empty();
        tokio::select! {
            read = owner.read(&mut chunk) => match read {
                Ok(0) | Err(_) => break,
                Ok(_) if held.len() > MOST_UNREAD => break,
                Ok(read) => held.extend(chunk.get(..read).unwrap_or_default()),
            },
            wrote = hand_on(&mut stdin, &held), if wants => if let Ok(wrote) = wrote {
                held.drain(..wrote);
            } else {
                // It reads no more; what it still says is its own business.
                stdin = None;
            },
        }
        if stdin.is_none() {
            held.clear();
        }
    }
    if let Some(mut stdin) = stdin {
        held.make_contiguous();
        tokio::time::timeout(FAREWELL, stdin.write_all(held.as_slices().0)).await.ok();
    }
}

async fn hand_on(stdin: &mut Option<ChildStdin>, held: &VecDeque<u8>) -> io::Result<usize> {
    match stdin {
        Some(stdin) => stdin.write(held.as_slices().0).await,
        None => std::future::pending().await,
    }
}

/// Ends the program's group at once, then every other descendant, then this process.
fn end_everything(table: &mut ProcessTable, group: Option<Pid>) -> ! {
    signal_group(group, Signal::KILL);
    table.end_all();
    kill_process(getpid(), Signal::KILL).ok();
    // The kernel ends a process before its own `SIGKILL` returns.
    std::process::abort()
}

fn signal_group(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // The group may have ended by itself since.
        kill_process_group(group, signal).ok();
    }
}

/// Ends as the program ended, by the same signal where it was one.
fn leave(status: ExitStatus) -> ExitCode {
    if let Some(code) = status.code() {
        return ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX));
    }
    let number = status.signal().unwrap_or(0);
    if let Some(signal) = Signal::from_named_raw(number) {
        kill_process(getpid(), signal).ok();
    }
    // A signal this process does not end by.
    ExitCode::from(u8::try_from(128 + number).unwrap_or(u8::MAX))
}

fn say(text: &str) {
    use std::io::Write;
    // Nobody is left to tell when even this fails.
    io::stderr().write_all(text.as_bytes()).ok();
}
