//! Search for hard links to protected files of the project. Landlock rules apply to paths, so a hard link to
//! `.git/config` in a writable folder would make the protected file writable.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, OFlags, Stat};

use super::files::{names, open};
use crate::path_policy::{PathAccess, path_access};

/// Maximum number of entries of protected folders that are searched. If there are more, every file with several names
/// counts as protected.
const MAX_ENTRIES: usize = 200_000;

/// Folders that are not searched: git hard-links the objects of local clones, and the records in `.ai/state` are
/// verified when they are read.
const UNSEARCHED: [[&str; 2]; 2] = [[".git", "objects"], [".ai", "state"]];

/// The device and inode numbers of the protected files in the project root that have several names.
#[derive(Debug, Default)]
pub(super) enum ProtectedInodes {
    /// The project root was not searched yet. The first call of [`ProtectedInodes::contains`] searches it.
    #[default]
    Unsearched,
    Found(BTreeSet<(u64, u64)>),
    TooManyEntries,
}

impl ProtectedInodes {
    /// Returns true if the file with these metadata is also a protected file of the project at `root`.
    pub(super) fn contains(&mut self, root: &Path, stat: &Stat) -> io::Result<bool> {
        if stat.st_nlink < 2 || !FileType::from_raw_mode(stat.st_mode).is_file() {
            return Ok(false);
        }
        if matches!(self, Self::Unsearched) {
            *self = search(root)?;
        }
        Ok(match self {
            Self::Found(found) => found.contains(&(stat.st_dev, stat.st_ino)),
            Self::Unsearched | Self::TooManyEntries => true,
        })
    }
}

/// Collects the protected files with several names.
fn search(root: &Path) -> io::Result<ProtectedInodes> {
    let mut found = BTreeSet::new();
    let Some(root) = open(CWD, root.as_os_str(), OFlags::empty())? else { return Ok(ProtectedInodes::Found(found)) };
    let is_ordinary = |path: &[OsString]| path_access(path) == PathAccess::Ordinary;
    let mut entries = 0;
    let mut folders: Vec<(OwnedFd, Vec<OsString>)> = vec![(root, Vec::new())];
    while let Some((folder, path)) = folders.pop() {
        for name in names(&folder)? {
            let inner = [path.as_slice(), std::slice::from_ref(&name)].concat();
            if is_ordinary(&inner) || UNSEARCHED.iter().any(|skipped| inner.iter().eq(skipped.iter().map(OsStr::new))) {
                continue;
            }
            entries += 1;
            if entries > MAX_ENTRIES {
                return Ok(ProtectedInodes::TooManyEntries);
            }
            let Some(stat) = stat_of(&folder, &name)? else { continue };
            let kind = FileType::from_raw_mode(stat.st_mode);
            if kind.is_dir() {
                folders.extend(open(folder.as_fd(), &name, OFlags::NOFOLLOW)?.map(|child| (child, inner)));
            } else if kind.is_file() && stat.st_nlink > 1 {
                found.insert((stat.st_dev, stat.st_ino));
            }
        }
    }
    Ok(ProtectedInodes::Found(found))
}

/// Returns the metadata of an entry of a folder, without following links; `None` if the entry does not exist or is not
/// accessible.
pub(super) fn stat_of(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<Stat>> {
    use rustix::io::Errno;
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::fs;

    use super::super::Sandbox;
    use super::super::files::writable_paths;

    #[test]
    fn second_name_of_a_protected_file_is_not_writable() {
        let base = tempfile::tempdir().unwrap();
        let project = base.path().canonicalize().unwrap();
        for folder in [".git/objects/aa", ".ai/tools", "out/deep", "free", "clone"] {
            fs::create_dir_all(project.join(folder)).unwrap();
        }
        for (file, second_name) in [
            (".git/config", "out/deep/notes.txt"),
            (".env", "out/x.txt"),
            (".ai/tools/a.py", "out/a.py"),
            (".git/objects/aa/bb", "clone/bb"),
            ("free/a", "free/b"),
        ] {
            fs::write(project.join(file), "x").unwrap();
            fs::hard_link(project.join(file), project.join(second_name)).unwrap();
        }
        fs::write(project.join("out/own.txt"), "x").unwrap();
        let granted = |folders: &[&str]| {
            let write = folders.iter().map(|folder| (*folder).to_owned()).collect();
            let mut granted = writable_paths(&Sandbox { outer: None, ..Sandbox::new(&project, write, &[]) }).unwrap();
            granted.sort();
            granted
        };
        assert_eq!(granted(&["out"]), [project.join("out/own.txt")]);
        assert_eq!(granted(&["free", "clone"]), [project.join("clone"), project.join("free")]);
        assert!(granted(&["out/x.txt"]).is_empty());
    }
}
