//! Process operations: the search path of programs, detaching from the terminal, and ending another process.

use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process, setsid};

/// The signal that ends a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndSignal {
    /// SIGTERM: the process can finish its work.
    Ask,
    /// SIGKILL: the process ends at once.
    Force,
}

/// Returns the absolute folders of `PATH`. Relative folders are skipped, because they would lie in the project, whose
/// files must not replace programs.
pub fn search_path() -> impl Iterator<Item = PathBuf> {
    let value = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&value).filter(|folder| folder.is_absolute()).collect::<Vec<_>>().into_iter()
}

/// Returns the first program with this name in `PATH` whose file and whose folder lie outside of the project; `None` if
/// there is none. `rye` starts such a program itself, also before the user trusts the project, so a file of the project
/// must not take its place.
pub fn find_program(name: &str, project: &Path) -> Option<PathBuf> {
    let project = project.canonicalize().unwrap_or_else(|_| project.to_owned());
    let is_outside = |path: &Path| path.canonicalize().is_ok_and(|real| !real.starts_with(&project));
    // The path itself is returned, because the program behind a link can depend on the name of the link.
    search_path()
        .filter(|folder| is_outside(folder))
        .map(|folder| folder.join(name))
        .find(|program| program.is_file() && is_outside(program))
}

/// Makes this process the leader of a new session. The new session has no terminal, so no key of the terminal sends a
/// signal to this process.
pub fn start_session() -> io::Result<()> {
    setsid()?;
    Ok(())
}

/// Ends another process. A process that has already ended is not an error. The caller must verify by the owner's lock
/// that the pid still belongs to the intended process.
pub fn end_process(pid: u32, how: EndSignal) -> io::Result<()> {
    let Some(pid) = i32::try_from(pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("invalid pid `{pid}`")));
    };
    let signal = match how {
        EndSignal::Ask => Signal::TERM,
        EndSignal::Force => Signal::KILL,
    };
    match kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
