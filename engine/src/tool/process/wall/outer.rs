//! bubblewrap around the wall, where the user asks for it: everything is mounted read-only but what the wall lets be
//! written, so that modes, times and attributes cannot be changed either, which Landlock does not know; processes outside
//! are not seen, and without `net` there is no network to be in. The wall itself is raised inside.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{Wall, files};

/// Places that are mounted by themselves; more would take longer than the program.
const MOST_PLACES: usize = 500;

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Starts every walled program of this process through bubblewrap from now on; `program` is its binary.
pub fn use_bubblewrap(program: &Path) {
    PROGRAM.get_or_init(|| program.to_path_buf());
}

/// The binary that programs are started through, if any.
pub(super) fn program() -> Option<PathBuf> {
    PROGRAM.get().cloned()
}

/// The arguments of bubblewrap, up to the program it starts. Makes granted folders that are missing: inside nothing can.
///
/// # Errors
/// What is granted lies in too many pieces, or cannot be looked at.
pub fn arguments(wall: &Wall) -> io::Result<Vec<OsString>> {
    let mut places = files::places(wall)?;
    places.extend(wall.scratch.clone());
    if places.len() > MOST_PLACES {
        let text =
            format!("what is granted lies in {} pieces, and bubblewrap gets at most {MOST_PLACES}", places.len());
        return Err(io::Error::other(text));
    }
    let mut arguments: Vec<OsString> = ["--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        .into_iter()
        .chain((!wall.net).then_some("--unshare-net"))
        .chain(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"])
        .map(OsString::from)
        .collect();
    for place in places {
        arguments.extend(["--bind".into(), place.clone().into_os_string(), place.into_os_string()]);
    }
    arguments.push("--".into());
    Ok(arguments)
}
