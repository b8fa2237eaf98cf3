//! Protected paths that a program left in its writable folders (`docs/decisions/0030`). Landlock grants a folder with
//! all names in it, so a program can create a repository or a `.env` there, which the user's next command would obey.
//! After the program has ended, the helper renames each of these paths. Folders are walked by handle, and no link is
//! followed.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::Sandbox;
use super::files::{is_repository, kind, names, open, path_of, writable_paths};
use crate::path_policy::{PathAccess, path_access};
use crate::tool::confine::printable;

/// Maximum depth, below a writable folder, at which protected paths are searched and renamed. A deeper folder is only
/// reported.
const MAX_DEPTH: usize = 250;
/// Maximum number of paths in a report.
const MAX_REPORTED: usize = 20;
/// Prefix of the name to which a protected path is renamed, after the program that created it has ended.
const REFUSED_PREFIX: &str = "refused-";

/// The writable folders of a program, opened before it starts.
pub struct WritableFolders {
    folders: Vec<(OwnedFd, Vec<OsString>)>,
}

/// The protected paths that the helper renamed after a program ended, relative to the project.
#[derive(Debug, Default)]
pub struct Leftovers {
    shown: Vec<String>,
    more: usize,
}

impl WritableFolders {
    /// Opens the folders in which the program can create any path, even a protected one. The sandbox grants such a
    /// folder as a whole, because the folder contains no protected path before the program starts.
    pub fn open(sandbox: &Sandbox) -> std::io::Result<Self> {
        let root = sandbox.project.canonicalize()?;
        let mut folders = Vec::new();
        for path in writable_paths(sandbox)? {
            let Ok(relative) = path.strip_prefix(&root) else { continue };
            let Some(fd) = open(CWD, path.as_os_str(), OFlags::NOFOLLOW)? else { continue };
            if kind(&fd) == FileType::Directory && path_of(&fd)? == path {
                folders.push((fd, relative.iter().map(OsStr::to_owned).collect()));
            }
        }
        Ok(Self { folders })
    }

    /// Renames every protected path that the program created in its writable folders, so that the path has no effect.
    /// Call this after every process of the program has ended.
    pub fn refuse_protected(&self) -> Leftovers {
        let mut found = Leftovers::default();
        for (folder, segments) in &self.folders {
            refuse_in(folder, segments, 0, &mut found);
        }
        found
    }
}

impl Leftovers {
    /// Returns the line that is added to the program's output and lists the renamed paths; `None` if no path was
    /// renamed.
    pub fn report(&self) -> Option<String> {
        let more = if self.more == 0 { String::new() } else { format!(" and {} more", self.more) };
        (!self.shown.is_empty()).then(|| {
            format!(
                "\n[blocked by the sandbox: a program may not create {}{more}; renamed to `{REFUSED_PREFIX}…`]\n",
                self.shown.join(", ")
            )
        })
    }

    fn add(&mut self, segments: &[OsString]) {
        if self.shown.len() < MAX_REPORTED {
            let path: std::path::PathBuf = segments.iter().collect();
            self.shown.push(format!("`{}`", printable(path.as_os_str())));
        } else {
            self.more += 1;
        }
    }
}

fn refuse_in(folder: &OwnedFd, segments: &[OsString], depth: usize, found: &mut Leftovers) {
    let mut inner = segments.to_vec();
    if depth > MAX_DEPTH {
        return found.add(segments);
    }
    if is_repository(folder) {
        inner.push("HEAD".into());
        if rename(folder, OsStr::new("HEAD")).is_some() {
            found.add(&inner);
        }
        inner.pop();
    }
    for name in names(folder).unwrap_or_default() {
        inner.push(name.clone());
        let mut current = Some(name);
        if path_access(&inner) != PathAccess::Ordinary {
            found.add(&inner);
            current = current.and_then(|name| rename(folder, &name));
        }
        inner.pop();
        let Some(name) = current else { continue };
        if let Some(child) = open_folder(folder, &name) {
            inner.push(name);
            refuse_in(&child, &inner, depth + 1, found);
            inner.pop();
        }
    }
}

/// Opens a folder; `None` for a file or a link, and on errors. If a program has removed permissions of the folder's
/// owner, restores these permissions first: an unreadable folder can still contain protected paths.
fn open_folder(parent: &OwnedFd, name: &OsStr) -> Option<OwnedFd> {
    let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let unreadable = stat.st_mode & 0o700 != 0o700;
    if unreadable {
        // The path is a folder, not a link: every process that could replace it has ended.
        rustix::fs::chmodat(parent, name, Mode::from_raw_mode(stat.st_mode | 0o700), AtFlags::empty()).ok()?;
    }
    rustix::fs::openat(parent, name, flags, Mode::empty()).ok()
}

/// Renames an entry to a name that no program reads as configuration, and returns the name. Deletes an entry that
/// cannot be renamed, and then returns `None`.
fn rename(folder: &OwnedFd, name: &OsStr) -> Option<OsString> {
    let plain = name.to_string_lossy();
    let plain = plain.trim_start_matches('.');
    for number in 0..10_000_u32 {
        let suffix = if number == 0 { String::new() } else { format!("-{number}") };
        let new: OsString = format!("{REFUSED_PREFIX}{plain}{suffix}").into();
        match rustix::fs::renameat_with(folder, name, folder, &new, RenameFlags::NOREPLACE) {
            Ok(()) => return Some(new),
            Err(Errno::EXIST) => {}
            // The file system does not support the flag, so an unused name is chosen without it.
            Err(Errno::INVAL) if rustix::fs::statat(folder, &new, AtFlags::SYMLINK_NOFOLLOW).is_err() => {
                return rustix::fs::renameat(folder, name, folder, &new).ok().map(|()| new);
            }
            Err(_) => break,
        }
    }
    rustix::fs::unlinkat(folder.as_fd(), name, AtFlags::empty()).ok();
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;

    fn sandbox(project: &Path) -> Sandbox {
        Sandbox { outer: None, ..Sandbox::new(project, vec!["out".into()], &[]) }
    }

    #[test]
    fn protected_paths_are_renamed_at_every_depth() {
        let base = tempfile::tempdir().unwrap();
        let project = base.path().canonicalize().unwrap();
        fs::create_dir_all(project.join("out/old.git/objects")).unwrap();
        let folders = WritableFolders::open(&sandbox(&project)).unwrap();
        for folder in ["out/.git/hooks", "out/a/b/.AI/tools", "out/bare/objects", "out/bare/refs", "out/shut/.git"] {
            fs::create_dir_all(project.join(folder)).unwrap();
        }
        for file in ["out/.env.local", "out/.git/config", "out/bare/HEAD", "out/bare/config", "out/refused-env.local"] {
            fs::write(project.join(file), "x").unwrap();
        }
        symlink("/etc", project.join("out/link")).unwrap();
        symlink("/etc", project.join("out/a/.git")).unwrap();
        fs::set_permissions(project.join("out/shut"), fs::Permissions::from_mode(0o111)).unwrap();
        let report = folders.refuse_protected().report().unwrap();
        for path in ["out/.git", "out/a/b/.AI", "out/.env.local", "out/bare/HEAD", "out/a/.git", "out/shut/.git"] {
            assert!(report.contains(&format!("`{path}`")), "{path}: {report}");
            assert!(fs::symlink_metadata(project.join(path)).is_err(), "{path}");
        }
        for kept in ["out/refused-git/config", "out/bare/config", "out/refused-env.local-1", "out/old.git/objects"] {
            assert!(project.join(kept).exists(), "{kept}");
        }
        assert!(folders.refuse_protected().report().is_none());
    }

    #[test]
    fn repository_that_was_there_is_not_writable() {
        let base = tempfile::tempdir().unwrap();
        let project = base.path().canonicalize().unwrap();
        for folder in ["out/bare/objects", "out/bare/refs", "out/free"] {
            fs::create_dir_all(project.join(folder)).unwrap();
        }
        fs::write(project.join("out/bare/HEAD"), "ref: refs/heads/main").unwrap();
        let granted = writable_paths(&sandbox(&project)).unwrap();
        assert_eq!(granted, [project.join("out/free")]);
        let folders = WritableFolders::open(&sandbox(&project)).unwrap();
        assert!(folders.refuse_protected().report().is_none());
        assert!(project.join("out/bare/HEAD").exists());
    }
}
