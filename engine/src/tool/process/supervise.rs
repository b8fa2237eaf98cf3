//! The helper a tool's program runs under (`engine.md` 4): the same binary, started again with a hidden first argument.
//! It holds a pipe to its owner, adopts whatever its program leaves behind, and ends all of it when the program ends or
//! the owner is gone, kill -9 included. Its standard output and error are the program's; the pipe begins with the
//! program's input, led by its length in eight bytes. The helper itself stays outside the wall, where its program cannot
//! signal it: it starts this binary once more, which raises the wall and becomes the program.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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

use super::wall::{self, Wall};

/// The first argument that makes a process the helper.
const ARGUMENT: &str = "__supervise";
/// The same for a program that is spoken with: its input does not end before its owner does.
const ATTEND: &str = "__attend";
/// The first argument that makes a process raise its wall and become a program.
const CONFINE: &str = "__confine";
/// Processes of one program, and how often they are counted once there are many on the machine.
const MOST_PROCESSES: usize = 512;
const COUNTING: Duration = Duration::from_millis(20);
/// The code of a program that was not started because its wall could not be raised.
const NO_WALL: u8 = 126;
/// How long what a program leaves in the background may still speak.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Rounds of looking for processes to end; each new round finds what the last one missed.
const ROUNDS: usize = 64;
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

static HELPER: OnceLock<OsString> = OnceLock::new();

/// To be called first in `main`. In a process started as the helper it does the helper's work and answers its exit
/// code; in any other it notes that this binary can be the helper and answers `None`.
pub fn supervise_if_asked() -> Option<ExitCode> {
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
    // The group is asked to end before it is told to; the helper outlives the asking.
    let _asked = signal(SignalKind::terminate())?;
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
    let mut child = tokio::process::Command::new(program).args(arguments).stdin(from).spawn()?;
    let stdin = child.stdin.take();
    let mut nothing = [0_u8; 1];
    let mut counting = tokio::time::interval(COUNTING);
    let mut tasks = Tasks::new();
    let mut gone = Box::pin(async {
        match talk {
            Talk::Once => owner_gone(&mut owner, stdin, input).await,
            Talk::Stream => relay(&mut owner, stdin).await,
        }
    });
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            () = &mut gone => {
                if talk == Talk::Stream {
                    tokio::time::timeout(FAREWELL, child.wait()).await.ok();
                }
                end_all();
                // Only reached where this process was spared by its own signal.
                return child.wait().await;
            }
            _ = counting.tick() => if tasks.are_too_many() {
                say(&format!("\n[stopped: more than {MOST_PROCESSES} processes at once]\n"));
                // At once for the whole group, this process with it: whoever ends them one by one is outrun.
                kill_process_group(getpid(), Signal::KILL).ok();
            }
        }
    };
    drop(gone);
    let patience = Instant::now() + LAST_WORDS;
    while Instant::now() < patience && !descendants().is_empty() {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(5)) => reap(),
            _ = owner.read(&mut nothing) => break,
        }
    }
    sweep();
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

/// Ends everything, this process included.
fn end_all() {
    sweep();
    kill_process_group(getpid(), Signal::KILL).ok();
}

/// How many processes and threads the machine has, now and a moment ago.
struct Tasks {
    first: Option<u64>,
    /// The last half second.
    recent: VecDeque<u64>,
}

impl Tasks {
    fn new() -> Self {
        Self { first: all_tasks(), recent: VecDeque::new() }
    }

    /// Whether the program has more processes than anybody needs. That the machine has many more says to look, and no
    /// more: they may be somebody else's. While it gains hundreds within half a second whoever counts is outrun, so that
    /// already a part of them found below this process tells whose they are.
    fn are_too_many(&mut self) -> bool {
        const HALF_A_SECOND: usize = 25;
        let (Some(first), Some(now)) = (self.first, all_tasks()) else { return false };
        self.recent.push_back(now);
        if self.recent.len() > HALF_A_SECOND {
            self.recent.pop_front();
        }
        let most = MOST_PROCESSES as u64;
        let is_sudden = self.recent.iter().min().is_some_and(|least| now > least.saturating_add(most));
        let too_many = match (is_sudden, now > first.saturating_add(most)) {
            (true, _) => MOST_PROCESSES / 8,
            (false, true) => MOST_PROCESSES,
            (false, false) => return false,
        };
        descendants().len() > too_many
    }
}

#[cfg(target_os = "linux")]
fn all_tasks() -> Option<u64> {
    wall::all_tasks()
}

#[cfg(not(target_os = "linux"))]
fn all_tasks() -> Option<u64> {
    None
}

/// Ends every process below this one, those in other groups and sessions too. First all of them are stopped, so that none
/// makes others while they are ended one by one.
fn sweep() {
    let mut stopped = BTreeSet::new();
    for _ in 0..ROUNDS {
        let running: Vec<Pid> = descendants().into_iter().filter(|pid| stopped.insert(pid.as_raw_nonzero())).collect();
        if running.is_empty() {
            break;
        }
        for pid in running {
            kill_process(pid, Signal::STOP).ok();
        }
    }
    for _ in 0..ROUNDS {
        let found = descendants();
        if found.is_empty() {
            return;
        }
        for pid in found {
            // It may have ended by itself since.
            kill_process(pid, Signal::KILL).ok();
        }
        std::thread::sleep(Duration::from_millis(1));
        reap();
    }
}

/// Takes the end of adopted processes, so that they do not count as living.
fn reap() {
    while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {}
}

/// The living processes below this one. Orphans are below it too, because it adopts them.
fn descendants() -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some(parent) = living_parent(&stat) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut look = vec![getpid().as_raw_nonzero().get()];
    while let Some(parent) = look.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            found.extend(Pid::from_raw(child));
            look.push(child);
        }
    }
    found
}

/// The parent in a line of `/proc/PID/stat`, unless the process has ended. The name in brackets may hold anything.
fn living_parent(stat: &str) -> Option<i32> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    if matches!(state, "Z" | "X") { None } else { Some(parent) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_do_not_move_the_fields() {
        assert_eq!(living_parent("12 (a) b) S 7 12 12 0"), Some(7));
        assert_eq!(living_parent("12 (x) Z 7 12"), None);
        assert_eq!(living_parent(""), None);
        assert_eq!(living_parent("12 (x"), None);
    }
}
