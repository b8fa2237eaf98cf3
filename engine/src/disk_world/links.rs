//! Detects symbolic links in paths. Refuses a project file that is a link to a file which must not reach a model: an
//! `.env` file, or a file in `.git`, `.ai/state`, `.ai/keys` or `.ai/trust`.

use std::io;
use std::path::Path;

use cap_std::fs::Dir;
use rye_compiler::semantics::needs::fold_case;
use rye_compiler::world::WorldError;

/// Returns true if the path, or a folder of the path, is a symbolic link.
///
/// # Errors
///
/// The path does not exist or leads out of the space.
pub(super) fn is_linked(dir: &Dir, path: &str) -> io::Result<bool> {
    // `openat2` shows in one call that a path has no link, and most paths have none. `canonicalize` is slower: it reads
    // all of `/proc` once per process.
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{Mode, OFlags, ResolveFlags};
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(dir, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Ok(_) => return Ok(false),
            Err(error @ rustix::io::Errno::NOENT) => return Err(error.into()),
            // The path has a link, or the system does not support `openat2`.
            Err(_) => {}
        }
    }
    Ok(dir.canonicalize(path)? != Path::new(path))
}

/// Refuses a path with a symbolic link that leads to an `.env` file or into `.git`, `.ai/state`, `.ai/keys` or
/// `.ai/trust`. A project may come from another author, and the text of its items, skills and context files is sent to
/// the model. Such a link could send a secret.
///
/// # Errors
///
/// [`WorldError::Unreadable`] with `shown` as the path.
pub(super) fn refuse_protected_target(dir: &Dir, path: &str, shown: &str) -> Result<(), WorldError> {
    // If the path cannot be resolved, opening the file fails too and reports the error.
    let Ok(true) = is_linked(dir, path) else { return Ok(()) };
    let Ok(target) = dir.canonicalize(path) else { return Ok(()) };
    if !is_protected(&target) {
        return Ok(());
    }
    let reason = format!(
        "the file links to `{}`; a file that is sent to the model cannot be a link to a `.env` file or into `.git`, \
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
