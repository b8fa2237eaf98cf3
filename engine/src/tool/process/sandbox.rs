//! The sandbox of a tool's program: the files that it may read and write, and network access. The process applies the
//! sandbox to itself before it executes the program (`language.md` 9, `docs/explanation/security.md`). The sandbox uses
//! kernel features that need no privileges: Landlock, a system call filter and resource limits. If the kernel lacks a
//! feature, the sandbox is weaker, and [`detect_support`] reports the missing feature.

#[cfg(target_os = "linux")]
pub(super) mod bubblewrap;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
pub(super) mod leftovers;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod protected_inodes;
#[cfg(target_os = "linux")]
mod syscalls;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
use crate::landlock_version::landlock_version;
use crate::path_policy::folder_of_project;
use crate::user_space;

/// The permissions of a sandboxed program, besides read access to the system's programs and libraries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sandbox {
    /// The project: readable, except for `.ai/state`.
    pub project: PathBuf,
    /// The user's `.ai`; `None` if this folder does not exist. Programs can read it, except for the keys, the trust
    /// records and the state.
    pub user: Option<PathBuf>,
    /// Further readable paths, from the settings of an MCP server.
    pub read: Vec<PathBuf>,
    /// Writable folders, relative to the project root. Protected paths inside stay read-only.
    pub write: Vec<String>,
    /// Paths of keys, trust records and the project's state, wherever they are stored. The program can neither read nor
    /// write these paths.
    pub hidden: Vec<PathBuf>,
    /// Folders of the project that the program can write, if `write` covers them, but not read. Missing folders are
    /// created.
    #[serde(default)]
    pub write_only: Vec<PathBuf>,
    /// True if the program can use the network. The sandbox cannot restrict a program to certain hosts.
    pub net: bool,
    /// A private folder for temporary files, which exists while the program runs; `None` if the program has no such
    /// folder.
    pub scratch: Option<PathBuf>,
    /// Path of the bubblewrap binary; `None` if the sandbox does not use bubblewrap.
    #[serde(default)]
    pub outer: Option<PathBuf>,
}

/// The sandbox features of this kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxSupport {
    /// The Landlock version of this kernel, but at most the newest version that this build knows. 0 if the kernel has
    /// no Landlock: file access is then not restricted.
    pub landlock: u8,
    /// True if system call filters can refuse sockets.
    pub sockets: bool,
}

impl SandboxSupport {
    /// Describes the restrictions that the sandbox cannot enforce on this system; empty if it enforces all.
    pub fn missing(self) -> Vec<&'static str> {
        let mut gaps = Vec::new();
        if self.landlock == 0 {
            gaps.push("programs can access all your files: Landlock (Linux 5.13 or later) is missing or disabled");
        } else if self.landlock < 3 {
            gaps.push("programs can truncate readable files: only Landlock 3 (Linux 6.2) or later prevents this");
        }
        if !self.sockets {
            gaps.push(
                "programs can reach the network without a grant: this kernel or processor has no system call filter",
            );
        }
        if (1..6).contains(&self.landlock) {
            gaps.push("programs can signal your other processes: only Landlock 6 (Linux 6.12) or later prevents this");
        }
        gaps
    }
}

impl Sandbox {
    /// Creates the sandbox of a project's tool from its grants.
    pub fn new(project: &Path, write: Vec<String>, net: &[String]) -> Self {
        let (project, read) = (project.to_path_buf(), Vec::new());
        #[cfg(target_os = "linux")]
        let outer = bubblewrap::program();
        #[cfg(not(target_os = "linux"))]
        let outer = None;
        let hidden = hidden_paths(&project);
        Self {
            project,
            user: user_items(),
            read,
            write,
            hidden,
            write_only: Vec::new(),
            net: !net.is_empty(),
            scratch: None,
            outer,
        }
    }

    /// Makes folders of the project unreadable. A program then can load no file that it wrote there.
    #[must_use]
    pub(crate) fn with_write_only(self, folders: &[String]) -> Self {
        let write_only = folders.iter().map(|folder| folder_of_project(&self.project, folder)).collect();
        Self { write_only, ..self }
    }
}

/// Returns the user's `.ai` (`language.md` 1); `None` if the folder does not exist.
fn user_items() -> Option<PathBuf> {
    Some(user_space::root()?.join(".ai")).filter(|folder| folder.is_dir())
}

fn hidden_paths(project: &Path) -> Vec<PathBuf> {
    let mut hidden = user_space::secret_folders([project]);
    hidden.extend(project.join(".ai/state").canonicalize());
    hidden
}

/// Applies the sandbox to this process and all of its descendants, irrevocably.
///
/// # Errors
///
/// A feature of the kernel could not be set up. The program must then not be started.
#[cfg(target_os = "linux")]
pub fn apply(sandbox: &Sandbox) -> io::Result<()> {
    limits::apply()?;
    files::apply(sandbox)?;
    limits::drop_privileges()?;
    // The filter is applied last: it sets `no_new_privs` if Landlock has not, and it refuses many of the system calls
    // that the steps before it need.
    syscalls::apply(if sandbox.net { syscalls::Sockets::Internet } else { syscalls::Sockets::None })
}

/// Does nothing: other systems have no sandbox yet.
#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "the same function can fail if a sandbox is supported")]
pub fn apply(_sandbox: &Sandbox) -> io::Result<()> {
    Ok(())
}

/// Detects the sandbox features of this machine.
pub fn detect_support() -> SandboxSupport {
    #[cfg(target_os = "linux")]
    return SandboxSupport {
        landlock: landlock_version(),
        sockets: syscalls::filters(syscalls::Sockets::None).is_ok(),
    };
    #[cfg(not(target_os = "linux"))]
    return SandboxSupport { landlock: 0, sockets: false };
}
