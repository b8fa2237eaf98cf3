//! Protected paths that a program left in its writable folders (`docs/decisions/0030`). A Landlock rule for a folder
//! applies to all names in the folder. A program can therefore create a git repository or a `.env` file there, and a
//! later command of the user would read it as configuration. After the program has ended, the helper renames each of
//! these paths. Folders are walked by handle, and no link is followed.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};

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
/// Maximum length of the part of a new name that comes from the earlier name, in bytes. The whole name must be shorter
/// than 256 bytes.
const MAX_KEPT_BYTES: usize = 200;
/// Number of random names that are tried if the first new name is in use.
const RANDOM_NAMES: usize = 16;

/// The writable folders of a program, opened before it starts.
pub struct WritableFolders {
    folders: Vec<(OwnedFd, Vec<OsString>)>,
}

/// The protected paths that a program created, relative to the project.
#[derive(Debug, Default)]
pub struct Leftovers {
    renamed: PathList,
    /// Paths that could not be renamed, and folders that could not be searched.
    kept: PathList,
}

/// The first paths of a list, and the number of further ones.
#[derive(Debug, Default)]
struct PathList {
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
            open_to_owner(folder);
            refuse_in(folder, segments, 0, &mut found);
        }
        found
    }
}

impl Leftovers {
    /// Returns the lines that are added to the program's output and list the paths; `None` if there are no paths.
    pub fn report(&self) -> Option<String> {
        let renamed = self.renamed.shown().map(|paths| {
            format!("[blocked by the sandbox: a program may not create {paths}; renamed to `{REFUSED_PREFIX}…`]\n")
        });
        let kept = self.kept.shown().map(|paths| {
            format!(
                "[the sandbox cannot search or rename {paths}, which a program created: remove it before you use git or rye there]\n"
            )
        });
        let lines: String = renamed.into_iter().chain(kept).collect();
        (!lines.is_empty()).then(|| format!("\n{lines}"))
    }
}

impl PathList {
    fn add(&mut self, segments: &[OsString]) {
        if self.shown.len() < MAX_REPORTED {
            let path: std::path::PathBuf = segments.iter().collect();
            self.shown.push(format!("`{}`", printable(path.as_os_str())));
        } else {
            self.more += 1;
        }
    }

    /// Returns the paths as a text; `None` if there are none.
    fn shown(&self) -> Option<String> {
        let more = if self.more == 0 { String::new() } else { format!(" and {} more", self.more) };
        (!self.shown.is_empty()).then(|| format!("{}{more}", self.shown.join(", ")))
    }
}

fn refuse_in(folder: &OwnedFd, segments: &[OsString], depth: usize, found: &mut Leftovers) {
    let mut inner = segments.to_vec();
    if depth > MAX_DEPTH {
        return found.kept.add(segments);
    }
    if is_repository(folder) {
        inner.push("HEAD".into());
        let new = rename(folder, OsStr::new("HEAD"));
        if new.is_some() { &mut found.renamed } else { &mut found.kept }.add(&inner);
        inner.pop();
    }
    let Ok(names) = names(folder) else { return found.kept.add(segments) };
    for name in names {
        inner.push(name.clone());
        let mut current = name;
        if path_access(&inner) != PathAccess::Ordinary {
            if let Some(new) = rename(folder, &current) {
                found.renamed.add(&inner);
                current = new;
            } else {
                found.kept.add(&inner);
            }
        }
        inner.pop();
        match open_folder(folder, &current) {
            Ok(None) => {}
            Ok(Some(child)) => {
                inner.push(current);
                refuse_in(&child, &inner, depth + 1, found);
                inner.pop();
            }
            Err(_) => {
                inner.push(current);
                found.kept.add(&inner);
                inner.pop();
            }
        }
    }
}

/// Gives the owner of a folder all permissions for it. A program can remove permissions of the folder, and the folder
/// can still contain protected paths.
fn open_to_owner(folder: &OwnedFd) {
    let Ok(stat) = rustix::fs::fstat(folder) else { return };
    if stat.st_mode & 0o700 != 0o700 {
        // A handle opened with `O_PATH` has no `fchmod`. A folder of another user keeps its permissions.
        let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
        rustix::fs::chmod(path, Mode::from_raw_mode(stat.st_mode | 0o700)).ok();
    }
}

/// Opens a folder; `None` for a file or a link. If a program has removed permissions of the folder's owner, restores
/// these permissions first.
fn open_folder(parent: &OwnedFd, name: &OsStr) -> Result<Option<OwnedFd>, Errno> {
    let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if stat.st_mode & 0o700 != 0o700 {
        // The path is a folder, not a link: every process that could replace it has ended.
        rustix::fs::chmodat(parent, name, Mode::from_raw_mode(stat.st_mode | 0o700), AtFlags::empty())?;
    }
    rustix::fs::openat(parent, name, flags, Mode::empty()).map(Some)
}

/// Renames an entry to a name that no program reads as configuration, and returns the name; `None` if the entry cannot
/// be renamed.
fn rename(folder: &OwnedFd, name: &OsStr) -> Option<OsString> {
    let plain = name.to_string_lossy();
    let plain = plain.trim_start_matches('.');
    let kept = &plain[..plain.floor_char_boundary(MAX_KEPT_BYTES)];
    let mut new = format!("{REFUSED_PREFIX}{kept}");
    for _ in 0..RANDOM_NAMES {
        match rustix::fs::renameat_with(folder, name, folder, &new, RenameFlags::NOREPLACE) {
            Ok(()) => return Some(new.into()),
            // The file system does not support the flag, so an unused name is chosen without it.
            Err(Errno::INVAL) if rustix::fs::statat(folder, &new, AtFlags::SYMLINK_NOFOLLOW).is_err() => {
                return rustix::fs::renameat(folder, name, folder, &new).ok().map(|()| new.into());
            }
            Err(Errno::EXIST | Errno::INVAL) => {}
            Err(_) => return None,
        }
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).ok()?;
        new = format!("{REFUSED_PREFIX}{kept}-{:016x}", u64::from_le_bytes(random));
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
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
        for kept in ["out/refused-git/config", "out/bare/config", "out/refused-env.local", "out/old.git/objects"] {
            assert!(project.join(kept).exists(), "{kept}");
        }
        assert_eq!(names_starting_with(&project.join("out"), "refused-env.local").len(), 2);
        assert!(folders.refuse_protected().report().is_none());
    }

    fn names_starting_with(folder: &Path, start: &str) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(start)).collect()
    }

    #[test]
    fn protected_path_is_renamed_whatever_names_are_in_use_and_however_long_it_is() {
        let base = tempfile::tempdir().unwrap();
        let project = base.path().canonicalize().unwrap();
        fs::create_dir_all(project.join("out")).unwrap();
        let folders = WritableFolders::open(&sandbox(&project)).unwrap();
        let long = format!(".env{}", "a".repeat(251));
        for folder in ["out/.git", "out/refused-git", &format!("out/long/{long}")] {
            fs::create_dir_all(project.join(folder)).unwrap();
        }
        for number in 0..10_050 {
            fs::create_dir(project.join(format!("out/refused-git-{number}"))).unwrap();
        }
        fs::write(project.join("out/.git/config"), "x").unwrap();
        fs::write(project.join(format!("out/{long}")), "content").unwrap();
        let report = folders.refuse_protected().report().unwrap();
        assert!(!report.contains("cannot search or rename"), "{report}");
        assert!(
            !project.join("out/.git").exists() && names_starting_with(&project.join("out/long"), ".env").is_empty()
        );
        let kept = names_starting_with(&project.join("out"), "refused-enva");
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert_eq!(fs::read_to_string(project.join("out").join(&kept[0])).unwrap(), "content");
    }

    #[test]
    fn permissions_that_a_program_removed_hide_no_protected_path() {
        let base = tempfile::tempdir().unwrap();
        let project = base.path().canonicalize().unwrap();
        fs::create_dir_all(project.join("out/inner")).unwrap();
        let folders = WritableFolders::open(&sandbox(&project)).unwrap();
        fs::create_dir_all(project.join("out/inner/.git")).unwrap();
        fs::create_dir_all(project.join("out/.git")).unwrap();
        for folder in ["out/inner", "out"] {
            fs::set_permissions(project.join(folder), fs::Permissions::from_mode(0o111)).unwrap();
        }
        // Root may rename in every folder, so the permissions themselves are compared.
        folders.refuse_protected().report().unwrap();
        let mode = |path: &str| fs::metadata(project.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("out"), mode("out/inner")), (0o711, 0o711));
        assert!(!project.join("out/.git").exists() && !project.join("out/inner/.git").exists());
    }

    #[test]
    fn path_that_cannot_be_renamed_is_reported_as_kept() {
        let mut found = Leftovers::default();
        assert!(found.report().is_none());
        found.kept.add(&["out".into(), ".git".into()]);
        let report = found.report().unwrap();
        assert!(report.contains("cannot search or rename `out/.git`") && !report.contains("renamed to"), "{report}");
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
