//! Symbolic links on the way to a file, and the refusal of project files that are links to files which must not reach a
//! model: `.env` files, and files in `.git`, `.ai/state`, `.ai/keys` and `.ai/trust`.

use std::io;
use std::path::Path;

use cap_std::fs::Dir;
use rye_compiler::semantics::needs::fold_case;
use rye_compiler::world::WorldError;

/// Returns true if a symbolic link is on the way to a path, or the path itself is one.
///
/// # Errors
///
/// The path does not exist or leads out of the space.
pub(super) fn is_linked(dir: &Dir, path: &str) -> io::Result<bool> {
    // Resolving a path reads all of `/proc` once per process. Most paths have no link, and one call shows that.
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{Mode, OFlags, ResolveFlags};
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(dir, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Ok(_) => return Ok(false),
            Err(error @ rustix::io::Errno::NOENT) => return Err(error.into()),
            // A link is on the way, or the system does not have this call.
            Err(_) => {}
        }
    }
    Ok(dir.canonicalize(path)? != Path::new(path))
}

/// Refuses a file that is reached through a link and lies in `.git`, `.ai/state`, `.ai/keys` or `.ai/trust`, or is an
/// `.env` file. A project may come from another author, and the text of its items, skills and context files is sent to
/// the model: a link could send a secret.
///
/// # Errors
///
/// [`WorldError::Unreadable`] with `shown` as the path.
pub(super) fn refuse_protected_target(dir: &Dir, path: &str, shown: &str) -> Result<(), WorldError> {
    // A file that cannot be resolved cannot be opened either, and that error is reported.
    let Ok(true) = is_linked(dir, path) else { return Ok(()) };
    let Ok(target) = dir.canonicalize(path) else { return Ok(()) };
    if !is_protected(&target) {
        return Ok(());
    }
    let reason = format!(
        "it links to `{}`; a file that is sent to the model cannot be a link to a `.env` file or into `.git`, \
         `.ai/state`, `.ai/keys` or `.ai/trust`",
        target.display().to_string().escape_debug()
    );
    Err(WorldError::Unreadable { path: shown.to_owned(), reason })
}

fn is_protected(target: &Path) -> bool {
    let names: Vec<String> = target.iter().map(|name| fold_case(&name.to_string_lossy())).collect();
    let hidden = |pair: &[String]| matches!(pair, [ai, name] if ai == ".ai" && matches!(name.as_str(), "state" | "keys" | "trust"));
    names.iter().any(|name| name == ".git" || name.starts_with(".env")) || names.windows(2).any(hidden)
}
