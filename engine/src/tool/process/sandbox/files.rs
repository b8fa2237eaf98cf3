//! The file rules of the sandbox. Landlock rules only grant access, so to exclude a path below a readable folder, its
//! siblings are granted one by one.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
    Scope, make_bitflags,
};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawMode};
use rye_compiler::semantics::needs::is_folder_inside;

use super::Sandbox;
use super::protected_inodes::{ProtectedInodes, stat_of};
use crate::path_policy::{PathAccess, path_access};
use crate::process::search_path;

/// The newest Landlock version that was tested.
const NEWEST_ABI: ABI = ABI::V7;
/// Maximum number of entries of a writable folder that are searched for protected paths.
const MAX_ENTRIES: usize = 200_000;
const MAX_DEPTH: usize = 64;

/// Readable system paths: programs, libraries and their data.
const SYSTEM: [&str; 17] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix",
    "/gnu",
    "/snap",
    "/proc",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/run/current-system",
    "/run/systemd/resolve",
    "/var/lib/locales",
];
/// Entries of `/etc` that hold secrets, whatever their modes are.
const ETC_SECRETS: [&str; 9] =
    ["shadow", "shadow-", "gshadow", "gshadow-", "sudoers", "sudoers.d", "ssh", "krb5.keytab", "NetworkManager"];
/// Maximum number of entries of `/etc` whose modes are read. If there are more, the rest of the folder stays
/// unreadable.
const MAX_ETC_ENTRIES: usize = 50_000;
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// Paths of the home folder that programs can read: the parts of toolchains that contain code. The settings, caches of
/// requests and credentials of the toolchains stay unreadable.
const HOME: [&str; 47] = [
    ".cargo/bin",
    ".cargo/registry/cache",
    ".cargo/registry/index",
    ".cargo/registry/src",
    ".cargo/git/checkouts",
    ".cargo/git/db",
    ".cargo/env",
    ".rustup/toolchains",
    ".rustup/settings.toml",
    ".nvm/versions",
    ".nvm/nvm.sh",
    ".nvm/nvm-exec",
    ".nvm/alias",
    ".pyenv/bin",
    ".pyenv/libexec",
    ".pyenv/shims",
    ".pyenv/versions",
    ".pyenv/version",
    ".pyenv/plugins",
    ".pyenv/pyenv.d",
    ".rbenv/bin",
    ".rbenv/libexec",
    ".rbenv/shims",
    ".rbenv/versions",
    ".rbenv/version",
    ".asdf/installs",
    ".asdf/shims",
    ".sdkman/candidates",
    ".volta/bin",
    ".volta/tools",
    ".bun/bin",
    ".deno/bin",
    ".local/bin",
    ".local/lib",
    ".local/share/uv/python",
    ".local/share/uv/tools",
    ".local/share/mise/installs",
    ".local/share/mise/shims",
    ".local/share/pipx/venvs",
    ".npm/_cacache",
    ".npm/_npx",
    ".config/git/ignore",
    ".config/git/attributes",
    ".rbenv/plugins",
    ".local/share/fnm/node-versions",
    "go/bin",
    "go/pkg/mod",
];
/// Folders of the user's `.ai` that no program may read.
const USER_SECRETS: [&str; 3] = ["keys", "trust", "state"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileRight {
    /// Listing the names in a folder and in the folders below it.
    List,
    Read,
    Write,
    /// Writing without reading or executing.
    WriteOnly,
    /// Access to devices: existing files can be read and written, but no files can be created.
    Device,
}

/// Applies the rules to this thread and all of its descendants.
pub fn apply(sandbox: &Sandbox) -> io::Result<()> {
    let ruleset = Ruleset::default().handle_access(AccessFs::from_all(NEWEST_ABI)).map_err(io::Error::other)?;
    let ruleset = ruleset.scope(Scope::from_all(NEWEST_ABI)).map_err(io::Error::other)?;
    let ruleset = if sandbox.net {
        ruleset
    } else {
        ruleset.handle_access(AccessNet::from_all(NEWEST_ABI)).map_err(io::Error::other)?
    };
    let ruleset = ruleset.create().map_err(io::Error::other)?;
    let mut rules = FileRules::new(sandbox, Some(ruleset));
    rules.create_write_only()?;
    rules.grant_system()?;
    rules.grant_home()?;
    if let Some(user) = &sandbox.user {
        rules.grant_entries(user, &USER_SECRETS)?;
    }
    for path in sandbox.read.iter().filter(|path| path.is_absolute()) {
        rules.grant_path(path, FileRight::Read)?;
    }
    rules.grant_project(&sandbox.project)?;
    for folder in &sandbox.write {
        rules.grant_writable(&sandbox.project, folder)?;
    }
    if let Some(scratch) = &sandbox.scratch {
        rules.grant_path(scratch, FileRight::Write)?;
    }
    if let Some(ruleset) = rules.ruleset {
        ruleset.restrict_self().map_err(io::Error::other)?;
    }
    Ok(())
}

/// Returns the paths of the project that the sandbox makes writable. Creates granted folders that are missing.
pub fn writable_paths(sandbox: &Sandbox) -> io::Result<Vec<PathBuf>> {
    let mut rules = FileRules::new(sandbox, None);
    rules.create_write_only()?;
    for folder in &sandbox.write {
        rules.grant_writable(&sandbox.project, folder)?;
    }
    Ok(rules.places)
}

struct FileRules<'w> {
    /// The rules; `None` if only the writable paths are collected.
    ruleset: Option<RulesetCreated>,
    /// Paths that are neither readable nor writable.
    hidden: &'w [PathBuf],
    /// Folders that are never readable.
    write_only: &'w [PathBuf],
    /// Folders that the grants make writable.
    granted: &'w [String],
    /// The user's `.ai`, of which only `data` can be writable; `None` if this folder does not exist.
    user: Option<PathBuf>,
    project: &'w Path,
    protected_inodes: ProtectedInodes,
    places: Vec<PathBuf>,
    /// Number of entries searched so far.
    entries: usize,
}

impl<'w> FileRules<'w> {
    fn new(sandbox: &'w Sandbox, ruleset: Option<RulesetCreated>) -> Self {
        let user = sandbox.user.as_ref().and_then(|user| user.canonicalize().ok());
        let protected_inodes = ProtectedInodes::default();
        let Sandbox { hidden, write_only, write: granted, project, .. } = sandbox;
        Self { ruleset, hidden, write_only, granted, user, project, protected_inodes, places: Vec::new(), entries: 0 }
    }

    fn grant_system(&mut self) -> io::Result<()> {
        for path in SYSTEM {
            self.grant_path(Path::new(path), FileRight::Read)?;
        }
        for path in DEVICES {
            self.grant_path(Path::new(path), FileRight::Device)?;
        }
        let Some(fd) = open(CWD, OsStr::new("/etc"), OFlags::empty())? else { return Ok(()) };
        self.grant_public(&fd, &ETC_SECRETS, 0)
    }

    /// Makes a folder of the system readable, except for the entries in `but` and the entries that not every user can
    /// read. Private keys and password files are among these entries, and tools may run as root or in a group that can
    /// read them.
    fn grant_public(&mut self, folder: &OwnedFd, but: &[&str], depth: usize) -> io::Result<()> {
        self.grant_place(folder, FileRight::List)?;
        for name in names(folder)?.into_iter().filter(|name| !but.iter().any(|but| name == *but)) {
            let Some(child) = open(folder.as_fd(), &name, OFlags::NOFOLLOW)? else { continue };
            match mode(&child).and_then(public_kind) {
                Some(FileType::Directory) if self.is_public(&child, depth + 1)? => {
                    self.grant_place(&child, FileRight::Read)?;
                }
                Some(FileType::Directory) if depth < MAX_DEPTH => self.grant_public(&child, &[], depth + 1)?,
                Some(FileType::RegularFile) => self.grant_place(&child, FileRight::Read)?,
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// Returns true if every user can read a folder and everything in it; false for a folder that is too large or too
    /// deep to search.
    fn is_public(&mut self, folder: &OwnedFd, depth: usize) -> io::Result<bool> {
        for name in names(folder)? {
            self.entries += 1;
            // Only folders are opened: `/etc` has more than a thousand files.
            let is_public = match stat_of(folder, &name)?.and_then(|stat| public_kind(stat.st_mode)) {
                Some(FileType::Directory) => match open(folder.as_fd(), &name, OFlags::NOFOLLOW)? {
                    Some(child) => self.is_public(&child, depth + 1)?,
                    None => false,
                },
                Some(_) => true,
                None => false,
            };
            if !is_public || self.entries > MAX_ETC_ENTRIES || depth > MAX_DEPTH {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes the toolchains below the home folder readable, and each folder in `PATH` that does not contain the home
    /// folder.
    fn grant_home(&mut self) -> io::Result<()> {
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        if let Some(home) = home.as_deref().filter(|home| *home != Path::new("/")) {
            for path in HOME {
                self.grant_path(&home.join(path), FileRight::Read)?;
            }
        }
        for path in search_path() {
            let Ok(path) = path.canonicalize() else { continue };
            // A folder that contains the home folder would expose all of it.
            if home.as_deref().is_none_or(|home| !home.starts_with(&path)) {
                self.grant_path(&path, FileRight::Read)?;
            }
        }
        Ok(())
    }

    /// Makes a folder listable and its entries readable, except for the entries whose names are in `but`. Does nothing
    /// if the folder is missing.
    fn grant_entries(&mut self, folder: &Path, but: &[&str]) -> io::Result<()> {
        let Some(fd) = open(CWD, folder.as_os_str(), OFlags::empty())? else { return Ok(()) };
        self.grant_place(&fd, FileRight::List)?;
        for name in names(&fd)? {
            if !but.iter().any(|but| name == *but) {
                self.grant_entry(&fd, &name, FileRight::Read)?;
            }
        }
        Ok(())
    }

    /// Makes the project readable, except for hidden paths.
    fn grant_project(&mut self, root: &Path) -> io::Result<()> {
        let Some(fd) = open(CWD, root.as_os_str(), OFlags::empty())? else { return Ok(()) };
        self.grant_place(&fd, FileRight::List)?;
        for name in names(&fd)? {
            match path_access(std::slice::from_ref(&name)) {
                PathAccess::ReadOnly if path_access(&[name.clone(), "state".into()]) == PathAccess::Hidden => {
                    let Some(law) = open(fd.as_fd(), &name, OFlags::NOFOLLOW)? else { continue };
                    for inner in names(&law).unwrap_or_default() {
                        if path_access(&[name.clone(), inner.clone()]) != PathAccess::Hidden {
                            self.grant_entry(&law, &inner, FileRight::Read)?;
                        }
                    }
                }
                PathAccess::Hidden => {}
                PathAccess::Ordinary | PathAccess::ReadOnly | PathAccess::Item { .. } => {
                    self.grant_entry(&fd, &name, FileRight::Read)?;
                }
            }
        }
        Ok(())
    }

    /// Creates the write-only folders that the grants make writable. The folders must exist before the program starts,
    /// because the sandbox cannot make a folder unreadable that the program creates later.
    fn create_write_only(&self) -> io::Result<()> {
        for place in self.write_only {
            let Some(inner) = place.strip_prefix(self.project).ok().and_then(Path::to_str) else { continue };
            if self.granted.iter().any(|granted| is_folder_inside(inner, granted)) {
                open_writable(self.project, inner)?;
            }
        }
        Ok(())
    }

    /// Makes a folder or file of the project writable. Creates a missing folder. Ignores a path that is protected or
    /// not below the project.
    fn grant_writable(&mut self, root: &Path, written: &str) -> io::Result<()> {
        match open_writable(root, written)? {
            Some((fd, segments)) => self.grant(&fd, &segments),
            None => Ok(()),
        }
    }

    /// Grants a folder as a whole if it contains no protected path and no hard link to a protected file, else its
    /// unprotected entries. The project root is never granted as a whole, because a program could create protected
    /// paths in it.
    fn grant(&mut self, fd: &OwnedFd, segments: &[OsString]) -> io::Result<()> {
        let stat = rustix::fs::fstat(fd)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            let is_protected = self.protected_inodes.contains(self.project, &stat)?;
            return if is_protected { Ok(()) } else { self.grant_place(fd, FileRight::Write) };
        }
        if is_repository(fd) {
            return Ok(());
        }
        if !segments.is_empty() && self.is_unprotected(fd, segments)? {
            return self.grant_place(fd, FileRight::Write);
        }
        for name in names(fd)? {
            let mut inner = join(segments, &name);
            if segments.len() > MAX_DEPTH {
                continue;
            }
            let Some(mut child) = open(fd.as_fd(), &name, OFlags::NOFOLLOW)? else { continue };
            if path_access(&inner) != PathAccess::Ordinary {
                // In a protected folder, programs may write only to the folder `data` (such as `.ai/data`).
                inner.push("data".into());
                let data = open(child.as_fd(), OsStr::new("data"), OFlags::NOFOLLOW)?;
                let Some(data) = data.filter(|_| path_access(&inner) == PathAccess::Ordinary) else { continue };
                child = data;
            }
            if matches!(kind(&child), FileType::Directory | FileType::RegularFile) {
                self.grant(&child, &inner)?;
            }
        }
        Ok(())
    }

    /// Returns true if a folder contains no protected path and no hard link to a protected file. Returns false if the
    /// folder is too large or too deep to search.
    fn is_unprotected(&mut self, fd: &OwnedFd, segments: &[OsString]) -> io::Result<bool> {
        if is_repository(fd) {
            return Ok(false);
        }
        for name in names(fd)? {
            self.entries += 1;
            let inner = join(segments, &name);
            if path_access(&inner) != PathAccess::Ordinary || self.entries > MAX_ENTRIES || segments.len() > MAX_DEPTH {
                return Ok(false);
            }
            let Some(stat) = stat_of(fd, &name)? else { continue };
            if self.protected_inodes.contains(self.project, &stat)? {
                return Ok(false);
            }
            if FileType::from_raw_mode(stat.st_mode).is_dir()
                && let Some(child) = open(fd.as_fd(), &name, OFlags::NOFOLLOW)?
                && !self.is_unprotected(&child, &inner)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Grants a right on an entry of a folder. Skips a link, because its target needs a rule of its own.
    fn grant_entry(&mut self, folder: &OwnedFd, name: &OsStr, right: FileRight) -> io::Result<()> {
        let Some(fd) = open(folder.as_fd(), name, OFlags::NOFOLLOW)? else { return Ok(()) };
        if kind(&fd) == FileType::Symlink { Ok(()) } else { self.grant_place(&fd, right) }
    }

    /// Grants a right on an absolute path, following links. Skips a missing path.
    fn grant_path(&mut self, path: &Path, right: FileRight) -> io::Result<()> {
        match open(CWD, path.as_os_str(), OFlags::empty())? {
            Some(fd) => self.grant_place(&fd, right),
            None => Ok(()),
        }
    }

    /// Grants a right on a path and everything below it, except for protected paths. A folder that contains a protected
    /// path is granted entry by entry.
    fn grant_place(&mut self, fd: &OwnedFd, right: FileRight) -> io::Result<()> {
        match right {
            FileRight::List | FileRight::WriteOnly | FileRight::Device => return self.add(fd, right),
            FileRight::Read | FileRight::Write => {}
        }
        let place = path_of(fd)?;
        let is_write_only = self.write_only.iter().any(|folder| place.starts_with(folder));
        let right = if is_write_only && right == FileRight::Write { FileRight::WriteOnly } else { right };
        if self.is_protected(&place, right) {
            return Ok(());
        }
        if !self.holds_protected(&place, right) {
            return self.add(fd, right);
        }
        self.add(fd, FileRight::List)?;
        for name in names(fd)? {
            self.grant_entry(fd, &name, right)?;
        }
        Ok(())
    }

    fn is_protected(&self, place: &Path, right: FileRight) -> bool {
        let in_user = |user: &PathBuf| place.starts_with(user) && !place.starts_with(user.join("data"));
        let unreadable = self.write_only.iter().filter(|_| right == FileRight::Read);
        self.hidden.iter().chain(unreadable).any(|hidden| place.starts_with(hidden))
            || (right != FileRight::Read && self.user.as_ref().is_some_and(in_user))
    }

    fn holds_protected(&self, place: &Path, right: FileRight) -> bool {
        let user = self.user.iter().filter(|user| right != FileRight::Read && !place.starts_with(user));
        let write_only = self.write_only.iter().filter(|folder| !place.starts_with(folder));
        self.hidden.iter().chain(user).chain(write_only).any(|protected| protected.starts_with(place))
    }

    /// Grants a right on the open path `fd` and everything below it, without regard to protected paths. Without a
    /// ruleset, only records the path if it is writable.
    fn add(&mut self, fd: &OwnedFd, right: FileRight) -> io::Result<()> {
        let access = access(right, kind(fd) == FileType::Directory);
        if access.is_empty() {
            return Ok(());
        }
        if let Some(ruleset) = self.ruleset.as_mut() {
            ruleset.add_rule(PathBeneath::new(fd, access)).map_err(io::Error::other)?;
        } else if matches!(right, FileRight::Write | FileRight::WriteOnly) {
            self.places.push(path_of(fd)?);
        }
        Ok(())
    }
}

/// Opens a folder or file that a grant makes writable, and returns it with the segments of its path. Creates a missing
/// folder. `None` if the path is protected, behind a link, or not below the project.
fn open_writable(root: &Path, written: &str) -> io::Result<Option<(OwnedFd, Vec<OsString>)>> {
    // An empty or absolute path names no folder of the project.
    if written.trim().is_empty() || written.starts_with('/') {
        return Ok(None);
    }
    let Some(mut fd) = open(CWD, root.as_os_str(), OFlags::empty())? else { return Ok(None) };
    let parts = written.split('/').filter(|part| !part.is_empty() && *part != ".");
    let segments: Vec<OsString> = parts.map(OsString::from).collect();
    if segments.iter().any(|part| part == "..") || path_access(&segments) != PathAccess::Ordinary {
        return Ok(None);
    }
    for (index, name) in segments.iter().enumerate() {
        let found = open(fd.as_fd(), name, OFlags::NOFOLLOW)?;
        let made = found.is_none() && path_access(segments.get(..=index).unwrap_or_default()) == PathAccess::Ordinary;
        let next = if made {
            rustix::fs::mkdirat(&fd, name, Mode::from_raw_mode(0o777))?;
            open(fd.as_fd(), name, OFlags::NOFOLLOW)?
        } else {
            found
        };
        // Links are not followed: their target is unknown.
        let Some(next) = next.filter(|fd| matches!(kind(fd), FileType::Directory | FileType::RegularFile)) else {
            return Ok(None);
        };
        fd = next;
    }
    Ok(Some((fd, segments)))
}

fn access(right: FileRight, is_folder: bool) -> BitFlags<AccessFs> {
    let read_file = make_bitflags!(AccessFs::{ReadFile | Execute});
    let only_write_file = make_bitflags!(AccessFs::{WriteFile | Truncate});
    let write_file = read_file | only_write_file;
    let change_folder = make_bitflags!(AccessFs::{
        ReadDir | RemoveDir | RemoveFile | MakeDir | MakeReg | MakeSock | MakeFifo | MakeSym | Refer
    });
    match (right, is_folder) {
        (FileRight::List, true) => AccessFs::ReadDir.into(),
        (FileRight::List, false) => BitFlags::empty(),
        (FileRight::Read, false) => read_file,
        (FileRight::Read, true) => read_file | AccessFs::ReadDir,
        (FileRight::Write, false) => write_file,
        (FileRight::Write, true) => write_file | change_folder,
        (FileRight::WriteOnly, false) => only_write_file,
        (FileRight::WriteOnly, true) => only_write_file | change_folder,
        (FileRight::Device, _) => make_bitflags!(AccessFs::{ReadFile | WriteFile}),
    }
}

fn join(segments: &[OsString], name: &OsStr) -> Vec<OsString> {
    let mut inner = segments.to_vec();
    inner.push(name.to_owned());
    inner
}

/// Returns true if a folder is a git folder under another name. The configuration of a git folder can name programs.
pub fn is_repository(fd: &OwnedFd) -> bool {
    let has = |name: &str| rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    has("HEAD") && ((has("objects") && has("refs")) || has("commondir"))
}

/// Opens a path as a handle that a Landlock rule can refer to; `None` if the path does not exist or is not accessible.
/// `more` are additional flags.
pub fn open(folder: impl AsFd, name: &OsStr, more: OFlags) -> io::Result<Option<OwnedFd>> {
    use rustix::io::Errno;
    #[cfg(test)]
    tests::OPENED.set(tests::OPENED.get() + 1);
    match rustix::fs::openat(folder, name, OFlags::PATH | OFlags::CLOEXEC | more, Mode::empty()) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the canonical path of a handle.
pub fn path_of(fd: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Returns the type of a file with this mode if every user can read the file; `None` otherwise. A link counts as
/// readable.
fn public_kind(mode: RawMode) -> Option<FileType> {
    let kind = FileType::from_raw_mode(mode);
    let needed = if kind == FileType::Directory { Mode::ROTH | Mode::XOTH } else { Mode::ROTH };
    (kind == FileType::Symlink || Mode::from_raw_mode(mode).contains(needed)).then_some(kind)
}

fn mode(fd: &OwnedFd) -> Option<RawMode> {
    rustix::fs::fstat(fd).ok().map(|stat| stat.st_mode)
}

pub fn kind(fd: &OwnedFd) -> FileType {
    rustix::fs::fstat(fd).map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}

/// Returns the names in the folder `fd`. Empty if `fd` is no folder, if the folder no longer exists, or if this process
/// may not read the folder; any other failure is an error.
pub fn names(fd: &OwnedFd) -> io::Result<Vec<OsString>> {
    use rustix::io::Errno;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = match rustix::fs::openat(fd, ".", flags, Mode::empty()) {
        Ok(folder) => folder,
        Err(Errno::NOTDIR | Errno::ACCESS | Errno::NOENT) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::new(folder)? {
        let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
        if name != "." && name != ".." {
            found.push(name);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
