//! What this process does to itself and to others of its kind: leave the terminal behind, ask another one to end.

use std::io;

use rustix::process::{Pid, Signal, kill_process, setsid};

/// How a process is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It may finish what it does.
    Ask,
    /// At once.
    Force,
}

/// Makes this process the leader of a session of its own: no terminal, and no signal that one sends.
pub fn lead_session() -> io::Result<()> {
    setsid()?;
    Ok(())
}

/// Ends another process. One that is gone already is no error; whether a pid is still the right one is for the caller to
/// know (by the owner's lock).
pub fn end(pid: u32, how: End) -> io::Result<()> {
    let Some(pid) = i32::try_from(pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("`{pid}` is no process to end")));
    };
    let signal = match how {
        End::Ask => Signal::TERM,
        End::Force => Signal::KILL,
    };
    match kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
