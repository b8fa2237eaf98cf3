//! Runs one program for a tool: own process group, the input it is given and no other, a declared environment, bounded
//! output, a time, and an end of the whole group whatever happens. What it may touch is the business of its [`wall`].

mod attend;
mod bounded;
mod descendants;
mod feed;
mod group;
mod supervise;
pub mod wall;

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

use super::stop::{Halt, PATIENCE};
pub use attend::{Attended, Held, Log, Server, attend};
pub use bounded::{Bounded, Kept};
use group::Group;
pub use supervise::supervise_if_asked;
#[cfg(target_os = "linux")]
pub use wall::outer::use_bubblewrap;
pub use wall::{Offers, Wall, offers};

/// How long a group has between being asked to end and being ended.
pub const GRACE: Duration = Duration::from_secs(3);
/// How long output is still read once the program itself has ended.
const DRAIN: Duration = Duration::from_millis(250);
/// Bytes of output kept from its start, and as many from its end.
pub const KEPT: usize = 512 * 1024;

/// A program to run.
#[derive(Debug, Clone)]
pub struct Program {
    /// A name looked up on the path, or an absolute path.
    pub program: OsString,
    pub arguments: Vec<OsString>,
    pub folder: PathBuf,
    pub thread_id: String,
    pub timeout: Duration,
    /// Whether its thread was cancelled meanwhile.
    pub halt: Halt,
    /// `None`: it may touch whatever its user may.
    pub wall: Option<Wall>,
    /// What it reads; nothing where this is empty.
    pub input: Vec<u8>,
    /// Variables beside those every program gets, which they cannot replace.
    pub environment: Vec<(OsString, OsString)>,
    pub streams: Streams,
}

/// What becomes of standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Streams {
    /// It joins the output, in the order of writing.
    #[default]
    Together,
    /// It is kept by itself: the output is an answer, the rest a log.
    Apart,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// It was ended because its time was up.
    TimedOut,
    /// It was ended because its thread was cancelled.
    Cancelled,
}

/// What a program left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub exit: Exit,
    /// Standard output, and standard error where they go together.
    pub output: Kept,
    /// Standard error by itself; empty where they go together.
    pub errors: Kept,
}

/// Runs a program to its end, under the helper where this binary can be one ([`supervise_if_asked`]). Dropping the
/// future ends the whole group at once; so does the death of this process, if there is a helper.
///
/// # Errors
/// The program cannot be started.
pub async fn run(program: &Program) -> io::Result<Finished> {
    let (reader, writer) = io::pipe()?;
    let scratch = program.wall.as_ref().map(|_| Scratch::new()).transpose()?;
    let wall = program.wall.clone().map(|wall| Wall { scratch: scratch.as_ref().map(|s| s.0.clone()), ..wall });
    // The helper reads its owner's pipe: the input first, and then nothing, without an end while we hold ours.
    let (mut command, input, owner) =
        if let Some((helper, first)) = supervise::helped(supervise::Talk::Once, &program.program, wall.as_ref())? {
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
        .envs(environment(&program.thread_id))
        .envs(scratch.iter().map(|scratch| ("TMPDIR", scratch.0.as_os_str())))
        .stdin(input)
        .stdout(writer)
        .stderr(error_writer)
        .process_group(0);
    let mut child = command.spawn()?;
    // The command holds our ends of the pipe; while it lives, the output has no end.
    drop(command);
    let feeder = owner.as_ref().map(std::io::PipeWriter::try_clone).transpose()?;
    let mut group = Group::new(child.id(), owner);
    // Ends before the group does: the helper must see that its owner is gone.
    let mut feed = feed::feed(feeder, child.stdin.take(), program.input.clone())?;
    let mut output = Some(pipe::Receiver::from_owned_fd(reader.into())?);

    let (mut kept, mut kept_errors) = (Bounded::new(KEPT), Bounded::new(KEPT));
    let (mut chunk, mut error_chunk) = (vec![0_u8; 64 * 1024], vec![0_u8; 16 * 1024]);
    let mut phase = Phase::Running;
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
            () = feed::done(&mut feed), if feed.is_some() => feed = None,
            ended = child.wait(), if status.is_none() => {
                status = Some(ended?);
                group.leader_has_ended();
                wake = Instant::now().checked_add(DRAIN);
                phase = if phase == Phase::Running { Phase::Draining } else { Phase::Killed };
            }
            () = halt.told(), if phase == Phase::Running && !halted => {
                halted = true;
                let patience = Instant::now().checked_add(PATIENCE);
                wake = [wake, patience].into_iter().flatten().min();
            }
            () = sleep_until(wake) => match phase {
                Phase::Running => {
                    group.signal(Signal::TERM);
                    phase = Phase::Asked;
                    wake = Instant::now().checked_add(GRACE);
                }
                Phase::Asked => {
                    feed = None;
                    group.end();
                    phase = Phase::Killed;
                    wake = Instant::now().checked_add(GRACE);
                }
                // What is left in the background goes; its last words are read first.
                Phase::Draining => {
                    group.signal(Signal::KILL);
                    phase = Phase::Over(Reason::Ended);
                    wake = Instant::now().checked_add(DRAIN);
                }
                Phase::Killed => {
                    group.kill();
                    phase = Phase::Over(Reason::TimedOut);
                    wake = Instant::now().checked_add(DRAIN);
                }
                // Something outside the group holds the pipe; nobody waits for it.
                Phase::Over(_) => break,
            },
        }
    }
    let stopped = matches!(phase, Phase::Asked | Phase::Killed | Phase::Over(Reason::TimedOut));
    drop(feed);
    drop(group);
    let exit = match (stopped, halted) {
        (true, true) => Exit::Cancelled,
        (true, false) => Exit::TimedOut,
        (false, _) => exit(status),
    };
    Ok(Finished { exit, output: kept.finish(), errors: kept_errors.finish() })
}

/// Where standard error is read, if apart, and where it is written.
fn errors_of(streams: Streams, output: &io::PipeWriter) -> io::Result<(Option<pipe::Receiver>, io::PipeWriter)> {
    match streams {
        Streams::Together => Ok((None, output.try_clone()?)),
        Streams::Apart => {
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
enum Phase {
    Running,
    /// Asked to end.
    Asked,
    /// Told to end.
    Killed,
    /// The program has ended by itself; its output is read to the end.
    Draining,
    /// Everything was told to end; one last look at the output.
    Over(Reason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Ended,
    TimedOut,
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn exit(status: Option<ExitStatus>) -> Exit {
    let code = status.and_then(|s| s.code());
    let signal = status.and_then(|s| s.signal());
    code.map(Exit::Code).or(signal.map(Exit::Signal)).unwrap_or(Exit::TimedOut)
}

/// A folder for temporary files that nobody else can look into, removed when this is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        let name = format!("rye-{:016x}", u64::from_le_bytes(random));
        let path = std::env::temp_dir().canonicalize()?.join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What a program has made unreadable in it stays behind.
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// All a program is told of its surroundings: never a key.
fn environment(thread_id: &str) -> Vec<(OsString, OsString)> {
    let inherit = |name: &str, default: &str| {
        (OsString::from(name), std::env::var_os(name).unwrap_or_else(|| OsString::from(default)))
    };
    vec![
        inherit("PATH", "/usr/local/bin:/usr/bin:/bin"),
        inherit("HOME", "/"),
        inherit("LANG", "C.UTF-8"),
        ("TERM".into(), "dumb".into()),
        ("RYE_PARENT_THREAD_ID".into(), thread_id.into()),
    ]
}

#[cfg(test)]
mod tests;
