//! An optional outer sandbox by bubblewrap. Landlock does not restrict changes of modes, times and attributes.
//! Bubblewrap therefore mounts everything read-only, except the writable paths. Other processes are invisible. Without
//! a granted host, there is no network. The sandbox of `sandbox.rs` is applied inside of bubblewrap.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{Sandbox, files};

/// Maximum number of mounts, because the setup of more mounts can take longer than the program itself.
const MAX_MOUNTS: usize = 500;

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Starts every sandboxed program of this process through bubblewrap from now on. `program` is the binary of
/// bubblewrap. Only the first call has an effect.
pub fn use_bubblewrap(program: &Path) {
    PROGRAM.get_or_init(|| program.to_path_buf());
}

/// Returns the binary of bubblewrap; `None` if programs run without bubblewrap.
pub(super) fn program() -> Option<PathBuf> {
    PROGRAM.get().cloned()
}

/// Returns the arguments of bubblewrap, up to the program that it starts. Creates missing granted folders, because the
/// inner sandbox cannot create them.
///
/// # Errors
///
/// The grants contain too many paths, or a path cannot be read.
pub fn arguments(sandbox: &Sandbox) -> io::Result<Vec<OsString>> {
    let mut places = files::writable_paths(sandbox)?;
    places.extend(sandbox.scratch.clone());
    if places.len() > MAX_MOUNTS {
        let text =
            format!("the grants need {} mounts in bubblewrap, but at most {MAX_MOUNTS} are possible", places.len());
        return Err(io::Error::other(text));
    }
    let mut arguments: Vec<OsString> = ["--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        .into_iter()
        .chain((!sandbox.net).then_some("--unshare-net"))
        .chain(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"])
        .map(OsString::from)
        .collect();
    for place in places {
        arguments.extend(["--bind".into(), place.clone().into_os_string(), place.into_os_string()]);
    }
    arguments.push("--".into());
    Ok(arguments)
}
