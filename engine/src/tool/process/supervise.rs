//! The helper a tool's program runs under (`engine.md` 4): the same binary, started again with a hidden first argument.
//! It holds a pipe to its owner, adopts whatever its program leaves behind, and ends all of it when the program ends or
//! the owner is gone, kill -9 included. Its standard output and error are the program's.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

/// The first argument that makes a process the helper.
const ARGUMENT: &str = "__supervise";
/// How long what a program leaves in the background may still speak.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Rounds of looking for processes to end; each new round finds what the last one missed.
const ROUNDS: usize = 64;
/// The code of a program that could not be started, as shells give it.
const NOT_STARTED: u8 = 127;

static HELPER: OnceLock<OsString> = OnceLock::new();

/// To be called first in `main`. In a process started as the helper it does the helper's work and answers its exit
/// code; in any other it notes that this binary can be the helper and answers `None`.
pub fn supervise_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|a| a == ARGUMENT) {
        return Some(helper(arguments.next(), &arguments.collect::<Vec<_>>()));
    }
    // On Linux this names the running binary even when its file was replaced since.
    let own = if cfg!(target_os = "linux") { Some("/proc/self/exe".into()) } else { std::env::current_exe().ok() };
    if let Some(own) = own {
        HELPER.get_or_init(|| own.into_os_string());
    }
    None
}

/// The program to start and what comes before the tool's own arguments.
pub(super) fn helped(program: &OsString) -> Option<(OsString, [OsString; 2])> {
    HELPER.get().map(|helper| (helper.clone(), [ARGUMENT.into(), program.clone()]))
}

fn helper(program: Option<OsString>, arguments: &[OsString]) -> ExitCode {
    let Some(program) = program else { return ExitCode::from(NOT_STARTED) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.and_then(|runtime| runtime.block_on(watch(&program, arguments)));
    match ended {
        Ok(status) => leave(status),
        Err(e) => {
            say(&format!("`{}` cannot be started: {e}\n", program.display()));
            ExitCode::from(NOT_STARTED)
        }
    }
}

async fn watch(program: &OsString, arguments: &[OsString]) -> io::Result<ExitStatus> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(getpid()))?;
    // The group is asked to end before it is told to; the helper outlives the asking.
    let _asked = signal(SignalKind::terminate())?;
    let owner = rustix::io::fcntl_dupfd_cloexec(io::stdin().as_fd(), 3)?;
    let mut owner = pipe::Receiver::from_owned_fd(owner)?;
    let mut child = tokio::process::Command::new(program).args(arguments).stdin(Stdio::null()).spawn()?;
    let mut nothing = [0_u8; 1];
    let status = tokio::select! {
        status = child.wait() => status?,
        _ = owner.read(&mut nothing) => {
            end_all();
            // Only reached where this process was spared by its own signal.
            return child.wait().await;
        }
    };
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

/// Ends everything, this process included.
fn end_all() {
    sweep();
    kill_process_group(getpid(), Signal::KILL).ok();
}

/// Ends every process below this one, those in other groups and sessions too.
fn sweep() {
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
