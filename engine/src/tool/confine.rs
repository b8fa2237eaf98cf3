//! File access of tools, confined to the project by directory handles. Every path is resolved segment by segment from
//! the handle of the root, links included. A tool therefore opens the file that was checked, even if a folder is
//! renamed meanwhile. Programs are confined by a sandbox instead.

mod access_error;
mod bare_repository;
mod hard_link;
mod relative;
mod replace;
mod temporary;
pub mod walk;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::path_policy::{self, PathAccess};
pub use access_error::FileAccessError;
use hard_link::Inode;
pub use relative::{ProjectPath, printable};
pub use replace::{FileVersion, WriteEffect};

use crate::user_space::{self, ProtectedFiles};

/// Maximum number of links followed in one path, as in the Linux kernel.
const MAX_LINKS: u32 = 40;
/// Maximum bytes of a path.
const MAX_PATH: usize = 4096;

/// The files of a project, as one tool call may read and write them.
pub struct ProjectFiles {
    /// The root as the caller stated it. An absolute path below this root, or below the canonical root, becomes a
    /// relative path.
    given: PathBuf,
    real: PathBuf,
    root: Dir,
    /// Device and inode of the protected folders. A folder is recognized by these numbers, because a file system may
    /// also find it under another spelling of its name (`.GIT`).
    known: Vec<(Inode, &'static str)>,
    /// The user's keys and trust records, which file tools must not reach.
    protected: Arc<ProtectedFiles>,
    may_write_item: Vec<Vec<String>>,
    write_bounds: Vec<Vec<String>>,
    state_links: OnceLock<Option<hard_link::Inodes>>,
}

/// The resolved target of a path. INVARIANT: `path` has no links, `.` or `..`, and is not hidden.
pub struct ResolvedPath {
    pub path: ProjectPath,
    pub found: ResolvedKind,
}

impl ResolvedPath {
    /// Returns the folder; an error if the path is missing or names no folder.
    pub fn folder(&self) -> Result<&Dir, FileAccessError> {
        match &self.found {
            ResolvedKind::Folder(dir) => Ok(dir),
            ResolvedKind::File { .. } | ResolvedKind::Special { .. } => {
                Err(FileAccessError::NotFolder { path: self.path.to_string() })
            }
            ResolvedKind::Missing { .. } => Err(FileAccessError::NotFound { path: self.path.to_string() }),
        }
    }
}

/// The kind of file that a resolved path leads to.
pub enum ResolvedKind {
    Folder(Dir),
    File {
        parent: Dir,
        name: OsString,
        stat: Box<Stat>,
    },
    Special {
        what: &'static str,
    },
    /// The path leads to no file. `parent` is the last folder of the path that exists, and `tail` holds the segments
    /// below it, at least one.
    Missing {
        parent: Dir,
        tail: Vec<OsString>,
    },
}

impl ProjectFiles {
    /// Opens the project at `root` for a file tool. `may_write_item` holds one list of grant patterns for each thread
    /// of the spawn chain. An item can be written only if each list grants to sign the item. Without any list, no item
    /// can be written.
    pub fn open(root: &Path, may_write_item: Vec<Vec<String>>) -> Result<Self, FileAccessError> {
        let fail = |e: std::io::Error| FileAccessError::io("the project", e);
        let real = root.canonicalize().map_err(fail)?;
        let dir = Dir::open_ambient_dir(&real, ambient_authority()).map_err(fail)?;
        let mut known = Vec::new();
        for name in [".ai", ".git"] {
            if let Ok(stat) = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                known.push((Inode::of(&stat), name));
            }
        }
        if let Ok(stat) = rustix::fs::statat(&dir, ".ai/state", AtFlags::SYMLINK_NOFOLLOW) {
            known.push((Inode::of(&stat), "state"));
        }
        let protected = user_space::protected_files(std::slice::from_ref(&real));
        known.extend(protected.user_folders.iter().map(|identity| (Inode::from(*identity), ".ai")));
        let state_links = OnceLock::new();
        let write_bounds = Vec::new();
        Ok(Self {
            given: root.to_owned(),
            real,
            root: dir,
            known,
            protected,
            may_write_item,
            write_bounds,
            state_links,
        })
    }

    /// Returns the canonical root, in which processes start.
    pub(crate) fn real_root(&self) -> &Path {
        &self.real
    }

    /// Resolves a path. Fails if it leads out of the project or to a hidden file.
    pub fn locate(&self, path: &str) -> Result<ResolvedPath, FileAccessError> {
        let quoted = || printable(OsStr::new(path));
        if path.is_empty() {
            return Err(FileAccessError::InvalidPath { path: String::new(), reason: "it is empty" });
        }
        if path.len() > MAX_PATH {
            let short: String = path.chars().take(80).collect();
            return Err(FileAccessError::InvalidPath { path: printable(OsStr::new(&short)), reason: "it is too long" });
        }
        if path.contains('\0') {
            return Err(FileAccessError::InvalidPath { path: quoted(), reason: "it contains a zero byte" });
        }
        let wants_folder = path.ends_with('/') || path.ends_with("/.");
        let relative = self.relative(Path::new(path)).ok_or_else(|| FileAccessError::Outside { path: quoted() })?;
        let mut queue: VecDeque<OsString> = segments(relative).collect();
        let mut stack: Vec<(Dir, OsString)> = Vec::new();
        let mut links = 0;
        while let Some(name) = queue.pop_front() {
            if name == ".." {
                let out = || {
                    if links == 0 {
                        FileAccessError::Outside { path: quoted() }
                    } else {
                        FileAccessError::LeadsOut { path: quoted() }
                    }
                };
                stack.pop().ok_or_else(out)?;
                continue;
            }
            let at = ProjectPath(stack.iter().map(|l| l.1.clone()).chain([name.clone()]).collect());
            if path_policy::path_access(&at.0) == PathAccess::Hidden {
                return Err(FileAccessError::Hidden { path: quoted() });
            }
            let here = stack.last().map_or(&self.root, |l| &l.0);
            let stat = match rustix::fs::statat(here, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => {
                    let tail: Vec<OsString> = [name].into_iter().chain(queue).collect();
                    return self.missing(stack, tail, &quoted());
                }
                Err(e) => return Err(FileAccessError::io(&quoted(), e)),
            };
            let kind = FileType::from_raw_mode(stat.st_mode);
            if kind == FileType::Symlink {
                links += 1;
                if links > MAX_LINKS {
                    return Err(FileAccessError::InvalidPath { path: quoted(), reason: "its links form a loop" });
                }
                let target =
                    rustix::fs::readlinkat(here, &name, Vec::new()).map_err(|e| FileAccessError::io(&quoted(), e))?;
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                if target.is_absolute() {
                    stack.clear();
                }
                let relative = self.relative(&target).ok_or_else(|| FileAccessError::LeadsOut { path: quoted() })?;
                for segment in segments(relative).rev() {
                    queue.push_front(segment);
                }
            } else if kind == FileType::Directory {
                self.reject_alias(&at, &stat)?;
                let dir = open_folder_at(here, &name).map_err(|e| FileAccessError::io(&quoted(), e))?;
                stack.push((dir, name));
            } else if !queue.is_empty() || wants_folder {
                return Err(FileAccessError::NotFolder { path: at.to_string() });
            } else {
                let parent = self.innermost(stack).map_err(|e| FileAccessError::io(&quoted(), e))?;
                let found = match special_kind(kind) {
                    None => ResolvedKind::File { parent, name, stat: Box::new(stat) },
                    Some(what) => ResolvedKind::Special { what },
                };
                return Ok(ResolvedPath { path: at, found });
            }
        }
        let path = ProjectPath(stack.iter().map(|l| l.1.clone()).collect());
        let dir = self.innermost(stack).map_err(|e| FileAccessError::io(&path, e))?;
        Ok(ResolvedPath { path, found: ResolvedKind::Folder(dir) })
    }

    /// Opens a regular file for reading. Checks the opened file, not its path: the file must be regular, and must not
    /// be a protected file under another name.
    pub(crate) fn open_file(&self, place: &ResolvedPath) -> Result<(File, Metadata), FileAccessError> {
        match &place.found {
            ResolvedKind::File { parent, name, .. } => self.open_file_at(parent, name, &place.path),
            ResolvedKind::Folder(_) => Err(FileAccessError::IsFolder { path: place.path.clone() }),
            ResolvedKind::Special { what } => Err(FileAccessError::Special { path: place.path.clone(), what }),
            ResolvedKind::Missing { .. } => Err(FileAccessError::NotFound { path: place.path.to_string() }),
        }
    }

    fn open_file_at(
        &self,
        parent: &Dir,
        name: &OsStr,
        path: &ProjectPath,
    ) -> Result<(File, Metadata), FileAccessError> {
        // An ordinary open blocks on a pipe, and would make a terminal the controlling terminal of this process.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(parent, name, flags, Mode::empty()).map_err(|e| match e {
            Errno::LOOP => FileAccessError::Changed { path: path.clone() },
            other => FileAccessError::io(path, other),
        })?;
        let file = File::from(fd);
        let metadata = file.metadata().map_err(|e| FileAccessError::io(path, e))?;
        if metadata.is_dir() {
            return Err(FileAccessError::IsFolder { path: path.clone() });
        }
        if !metadata.is_file() {
            return Err(FileAccessError::Special { path: path.clone(), what: "something special" });
        }
        let inode = Inode::of_file(&metadata);
        if self.protected.secrets.contains(&inode.identity()) || (metadata.nlink() > 1 && self.is_state(inode)) {
            return Err(FileAccessError::Hidden { path: path.to_string() });
        }
        Ok((file, metadata))
    }

    /// Bounds writes: a path is writable only if every list of `write_bounds` contains a folder above the path.
    #[must_use]
    pub(crate) fn with_write_bounds(mut self, write_bounds: Vec<Vec<String>>) -> Self {
        self.write_bounds = write_bounds;
        self
    }

    /// Checks that tools may write to a path.
    fn check_writable(&self, path: &ProjectPath) -> Result<(), FileAccessError> {
        let is_outside = |bound: &&Vec<String>| !bound.iter().any(|folder| path.is_inside(folder));
        if let Some(bound) = self.write_bounds.iter().find(is_outside) {
            return Err(FileAccessError::NotGranted { path: path.clone(), folders: bound.join(",") });
        }
        match path_policy::path_access(&path.0) {
            PathAccess::Ordinary if self.is_in_bare_repository(path) => {
                Err(FileAccessError::BareRepository { path: path.clone() })
            }
            PathAccess::Ordinary => Ok(()),
            PathAccess::ReadOnly => Err(FileAccessError::ReadOnly { path: path.clone() }),
            PathAccess::Hidden => Err(FileAccessError::Hidden { path: path.to_string() }),
            PathAccess::Item { capability } => {
                let granted = !self.may_write_item.is_empty()
                    && self
                        .may_write_item
                        .iter()
                        .all(|link| link.iter().any(|p| super::pattern_matches(p, &capability)));
                if granted { Ok(()) } else { Err(FileAccessError::NeedsSign { path: path.clone(), capability }) }
            }
        }
    }

    fn missing(
        &self,
        stack: Vec<(Dir, OsString)>,
        tail: Vec<OsString>,
        quoted: &str,
    ) -> Result<ResolvedPath, FileAccessError> {
        if tail.iter().any(|s| s == "..") {
            return Err(FileAccessError::NotFound { path: quoted.to_owned() });
        }
        let path = ProjectPath(stack.iter().map(|l| l.1.clone()).chain(tail.iter().cloned()).collect());
        if path_policy::path_access(&path.0) == PathAccess::Hidden {
            return Err(FileAccessError::Hidden { path: quoted.to_owned() });
        }
        let parent = self.innermost(stack).map_err(|e| FileAccessError::io(quoted, e))?;
        Ok(ResolvedPath { path, found: ResolvedKind::Missing { parent, tail } })
    }

    fn innermost(&self, mut stack: Vec<(Dir, OsString)>) -> std::io::Result<Dir> {
        stack.pop().map_or_else(|| self.root.try_clone(), |l| Ok(l.0))
    }

    /// Refuses `.ai`, `.git` and the state folder under any other name (such as `.GIT`), and the keys and trust records
    /// under every name.
    fn reject_alias(&self, at: &ProjectPath, stat: &Stat) -> Result<(), FileAccessError> {
        let inode = Inode::of(stat);
        let name = at.0.last().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
        let alias = self.known.iter().any(|(known, real)| *known == inode && *real != name);
        if alias || self.protected.secrets.contains(&inode.identity()) {
            Err(FileAccessError::Hidden { path: at.to_string() })
        } else {
            Ok(())
        }
    }

    /// Returns the part of an absolute path below the root, or a relative path unchanged; `None` for an absolute path
    /// outside of the root.
    fn relative<'p>(&self, path: &'p Path) -> Option<&'p Path> {
        if !path.is_absolute() {
            return Some(path);
        }
        path.strip_prefix(&self.real).or_else(|_| path.strip_prefix(&self.given)).ok()
    }
}

/// Opens a folder; fails if the name is a link.
fn open_folder_at(parent: &Dir, name: &OsStr) -> Result<Dir, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty()).map(|fd| Dir::from_std_file(File::from(fd)))
}

fn segments(path: &Path) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    path.components().filter_map(|c| match c {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    })
}

/// Names the type of a file that is not regular, such as a pipe or a link; `None` for a regular file.
fn special_kind(kind: FileType) -> Option<&'static str> {
    match kind {
        FileType::RegularFile => None,
        FileType::Fifo => Some("a pipe"),
        FileType::Socket => Some("a socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
        FileType::Directory => Some("a folder"),
        FileType::Symlink => Some("a link"),
        FileType::Unknown => Some("something special"),
    }
}

#[cfg(test)]
mod tests;
