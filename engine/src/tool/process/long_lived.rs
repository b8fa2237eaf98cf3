//! A long-lived program that implements a protocol on its standard input and output. It runs under the same helper and
//! in the same sandbox as a program that runs to its end ([`super::run`]), and ends when its handle is dropped.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::process::Child;

use super::Sandbox;
use super::group::ProcessGroup;
use super::scratch::Scratch;
use super::supervise::{InputMode, supervised_command};

/// Maximum number of bytes that are kept of standard error. The last bytes are kept.
const MAX_STDERR_BYTES: usize = 4 * 1024;
/// Maximum bytes that one call reads from the pipe of a standard error, so that a program that writes without end does
/// not hold up the caller.
const MAX_UNREAD_BYTES: usize = 1 << 20;
/// Maximum time to wait for the end of the program before its temporary folder is removed.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);

/// A long-lived program to start.
#[derive(Debug, Clone)]
pub struct LongLivedProgram {
    /// A name to look up in `PATH`, or a path.
    pub program: OsString,
    pub arguments: Vec<OsString>,
    pub folder: PathBuf,
    /// The sandbox; `None` for the full access of the user.
    pub sandbox: Option<Sandbox>,
    /// All environment variables of the program, except for `TMPDIR`.
    pub environment: Vec<(OsString, OsString)>,
}

/// A running long-lived program, with its input and output.
pub struct RunningProgram {
    pub output: pipe::Receiver,
    pub input: pipe::Sender,
    pub log: StderrTail,
    pub held: ProgramHandle,
}

/// A handle of a running program. Dropping the handle ends the program.
pub struct ProgramHandle {
    /// The process and its folder; `None` after drop has taken them.
    parts: Option<(ProcessGroup, Child, Option<Scratch>)>,
}

/// The last bytes of a program's standard error.
#[derive(Debug, Clone)]
pub struct StderrTail {
    pipe: Arc<pipe::Receiver>,
    kept: Arc<Mutex<KeptErrors>>,
}

/// The kept bytes of a standard error.
#[derive(Debug, Default)]
struct KeptErrors {
    bytes: VecDeque<u8>,
    /// Number of all bytes that were read, also of those that are no longer kept.
    total: u64,
}

/// Starts a program.
///
/// # Errors
/// The program cannot be started.
pub(crate) fn start_long_lived(server: &LongLivedProgram) -> io::Result<RunningProgram> {
    let scratch = server.sandbox.as_ref().map(|_| Scratch::new()).transpose()?;
    let sandbox = server
        .sandbox
        .clone()
        .map(|sandbox| Sandbox { scratch: scratch.as_ref().map(|s| s.folder.clone()), ..sandbox });
    let (theirs, ours) = io::pipe()?;
    let (output, output_writer) = io::pipe()?;
    let (errors, error_writer) = io::pipe()?;
    let (mut command, owner) = match supervised_command(InputMode::Stream, &server.program, sandbox.as_ref())? {
        Some((helper, first)) => {
            let mut command = tokio::process::Command::new(helper);
            command.args(first);
            (command, Some(ours.try_clone()?))
        }
        None => (tokio::process::Command::new(&server.program), None),
    };
    command
        .args(&server.arguments)
        .current_dir(&server.folder)
        .env_clear()
        .envs(server.environment.iter().map(|(name, value)| (name, value)))
        .envs(scratch.iter().flat_map(Scratch::environment))
        .stdin(Stdio::from(theirs))
        .stdout(output_writer)
        .stderr(error_writer)
        .process_group(0);
    let child = command.spawn()?;
    // The command holds the write ends of the pipes: the output does not end before the command is dropped.
    drop(command);
    let group = ProcessGroup::long_lived(child.id(), owner);
    let log = StderrTail { pipe: Arc::new(pipe::Receiver::from_owned_fd(errors.into())?), kept: Arc::default() };
    tokio::spawn(log.clone().fill());
    Ok(RunningProgram {
        output: pipe::Receiver::from_owned_fd(output.into())?,
        input: pipe::Sender::from_owned_fd(ours.into())?,
        log,
        held: ProgramHandle { parts: Some((group, child, scratch)) },
    })
}

impl StderrTail {
    async fn fill(self) {
        while self.pipe.readable().await.is_ok() {
            let mut chunk = [0_u8; 4096];
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            match self.pipe.try_read(&mut chunk) {
                Ok(0) => return,
                Ok(read) => kept.push(chunk.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    /// Returns the kept bytes of standard error as text.
    pub fn text(&self) -> String {
        self.text_from(0).0
    }

    /// Returns the kept text from this position on, and the position of its end. The text includes all that the program
    /// had written before this call.
    pub fn text_from(&self, position: u64) -> (String, u64) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // The task that reads the pipe may not have run since the program wrote.
        let mut chunk = [0_u8; 4096];
        let mut rest = MAX_UNREAD_BYTES;
        while let Ok(read @ 1..) = rustix::io::read(&*self.pipe, &mut chunk) {
            kept.push(chunk.get(..read).unwrap_or_default());
            rest = rest.saturating_sub(read);
            if rest == 0 {
                break;
            }
        }
        let first = kept.total.saturating_sub(u64::try_from(kept.bytes.len()).unwrap_or(u64::MAX));
        let skipped = usize::try_from(position.saturating_sub(first)).unwrap_or(usize::MAX);
        let bytes: Vec<u8> = kept.bytes.iter().copied().skip(skipped).collect();
        (String::from_utf8_lossy(&bytes).trim().to_owned(), kept.total)
    }
}

impl KeptErrors {
    fn push(&mut self, read: &[u8]) {
        self.total = self.total.saturating_add(u64::try_from(read.len()).unwrap_or(u64::MAX));
        self.bytes.extend(read);
        let over = self.bytes.len().saturating_sub(MAX_STDERR_BYTES);
        self.bytes.drain(..over);
    }
}

impl ProgramHandle {
    /// Waits until the program has ended, and returns its exit code. `None` if the program still runs after `timeout`,
    /// or if a signal ended it.
    pub async fn exit_code(&mut self, timeout: Duration) -> Option<i32> {
        let (group, child, _) = self.parts.as_mut()?;
        let status = tokio::time::timeout(timeout, child.wait()).await.ok()?.ok()?;
        group.leader_has_ended();
        status.code()
    }
}

impl Drop for ProgramHandle {
    fn drop(&mut self) {
        let Some((group, mut child, scratch)) = self.parts.take() else { return };
        // Without a Tokio runtime, this process is ending, so no task waits for the program.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        drop(group);
        runtime.spawn(async move {
            tokio::time::timeout(CLEANUP_TIMEOUT, child.wait()).await.ok();
            drop(scratch);
        });
    }
}
