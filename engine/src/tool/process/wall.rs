//! The wall around a tool's program: what it may read, write and reach, set up by the program itself before it becomes
//! the tool's (`language.md` 9, `docs/explanation/security.md`). Built on what the kernel offers to anybody: Landlock, a filter on
//! system calls, resource limits. Where it offers less, the wall is lower, and [`offers`] says so.

#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
pub(super) mod outer;
#[cfg(target_os = "linux")]
mod syscalls;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::user_space;

/// What a program may touch besides the system's own programs and libraries, which it may read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wall {
    /// Readable, `.ai/state` excepted.
    pub project: PathBuf,
    /// The user's `.ai`: readable, keys and trust excepted.
    pub user: Option<PathBuf>,
    /// Other places of the machine that may be read: settings of an MCP server name them.
    pub read: Vec<PathBuf>,
    /// Folders from the project's root that may be written, as far as the law does not reach into them.
    pub write: Vec<String>,
    /// Keys, trust records and the project's state, wherever they lie: neither readable nor writable.
    pub hidden: Vec<PathBuf>,
    /// Whether any host may be reached. The kernel does not tell hosts apart.
    pub net: bool,
    /// The program's own folder for temporary files; made when it starts and gone when it ends.
    pub scratch: Option<PathBuf>,
    /// bubblewrap's binary, where the wall is raised inside it.
    #[serde(default)]
    pub outer: Option<PathBuf>,
}

/// What this machine's kernel offers for walls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offers {
    /// The version of Landlock, up to what this program knows; 0 = none: files are not walled off.
    pub landlock: u8,
    /// Sockets can be refused.
    pub sockets: bool,
}

impl Offers {
    /// Each thing that a wall cannot hold here.
    pub fn gaps(self) -> Vec<&'static str> {
        let mut gaps = Vec::new();
        if self.landlock == 0 {
            gaps.push(
                "programs can read and write whatever you can: this kernel has no Landlock (5.13 or later, enabled)",
            );
        } else if self.landlock < 3 {
            gaps.push("programs can truncate files they may read: Landlock 3 (Linux 6.2) would stop it");
        }
        if !self.sockets {
            gaps.push("programs can reach the network ungranted: this kernel or processor has no system call filter");
        }
        if (1..6).contains(&self.landlock) {
            gaps.push("programs can signal your other processes: Landlock 6 (Linux 6.12) would stop it");
        }
        gaps
    }
}

impl Wall {
    /// For a tool of a project, with what its grants name.
    pub fn new(project: &Path, write: Vec<String>, net: &[String]) -> Self {
        let (project, read) = (project.to_path_buf(), Vec::new());
        #[cfg(target_os = "linux")]
        let outer = outer::program();
        #[cfg(not(target_os = "linux"))]
        let outer = None;
        let hidden = hidden(&project);
        Self { project, user: user_items(), read, write, hidden, net: !net.is_empty(), scratch: None, outer }
    }
}

/// The user's items (`language.md` 1).
fn user_items() -> Option<PathBuf> {
    Some(user_space::root()?.join(".ai")).filter(|folder| folder.is_dir())
}

fn hidden(project: &Path) -> Vec<PathBuf> {
    let mut hidden = user_space::secrets([project]);
    hidden.extend(project.join(".ai/state").canonicalize());
    hidden
}

/// Puts this process, and whatever it becomes and starts, behind the wall. There is no way back.
///
/// # Errors
/// Part of what the kernel offers could not be set up: nothing must be run then.
#[cfg(target_os = "linux")]
pub fn raise(wall: &Wall) -> io::Result<()> {
    limits::set()?;
    files::confine(wall)?;
    limits::give_up_privileges()?;
    // Last, because the filter sets `no_new_privs` where Landlock has not, and refuses much of what comes before it.
    syscalls::apply(if wall.net { syscalls::Sockets::Internet } else { syscalls::Sockets::None })
}

/// Elsewhere there is no wall yet.
#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "the same function can fail where there is a wall")]
pub fn raise(_wall: &Wall) -> io::Result<()> {
    Ok(())
}

/// What there is to build walls of.
pub fn offers() -> Offers {
    #[cfg(target_os = "linux")]
    return Offers { landlock: files::version(), sockets: syscalls::filters(syscalls::Sockets::None).is_ok() };
    #[cfg(not(target_os = "linux"))]
    return Offers { landlock: 0, sockets: false };
}
