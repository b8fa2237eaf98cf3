//! The folder for temporary files of a sandboxed program. The process that owns the folder removes it. If the owner was
//! killed, the program's helper process (`supervise.rs`) removes the folder. If the helper was killed too, a later
//! process of `rye` removes the folder. The owner holds a lock on the folder, so that a later process never removes the
//! folder of a living owner.

#[cfg(target_os = "linux")]
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, AsRawFd};
#[cfg(target_os = "linux")]
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Once;
#[cfg(target_os = "linux")]
use std::time::Duration;

use rustix::fs::OFlags;
#[cfg(target_os = "linux")]
use rustix::fs::{CWD, Dir, FileType, Mode, chmod, openat};
use rustix::process::geteuid;
#[cfg(target_os = "linux")]
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::filtered_settings;

/// The start of the folder's name. A random number of 16 hexadecimal digits follows.
const PREFIX: &str = "rye-";
/// Number of attempts to create a folder. Another process can mistake a new folder for an abandoned one before the
/// folder is locked.
const CREATE_ATTEMPTS: usize = 16;
/// Maximum number of passes over all processes, in which the processes of a program are killed. Each pass finds the
/// processes that were started during the previous pass.
#[cfg(target_os = "linux")]
const KILL_ROUNDS: usize = 64;
/// Wait between two searches for the processes of a program, if the first search found none. During `execve`, a process
/// shows the environment of its parent, or an empty environment, for a moment, so one search can miss the process.
#[cfg(target_os = "linux")]
const EXEC_WAIT: Duration = Duration::from_millis(5);
/// Maximum depth of folders that are made accessible to their owner so that they can be removed.
#[cfg(target_os = "linux")]
const MAX_DEPTH: usize = 250;

/// A private folder for temporary files and for the settings of git and cargo. Dropping the value removes the folder.
pub(super) struct Scratch {
    pub(super) folder: PathBuf,
    /// Environment variables for git and cargo, each with the path of a settings file in the folder.
    settings: Vec<(&'static str, PathBuf)>,
    /// The lock that marks the folder as in use. The lock ends at the latest when this process ends.
    _lock: File,
}

impl Scratch {
    /// Creates a folder. The first call in a process removes the folders that killed processes left.
    pub(super) fn new() -> io::Result<Self> {
        Self::new_below(&std::env::temp_dir())
    }

    fn new_below(parent: &Path) -> io::Result<Self> {
        static SWEEP: Once = Once::new();
        let created = parent.canonicalize().and_then(|parent| {
            SWEEP.call_once(|| remove_dead_folders(&parent));
            Self::new_in(&parent)
        });
        created.map_err(|error| {
            let parent = parent.display();
            io::Error::new(
                error.kind(),
                format!("no temporary folder can be created in `{parent}` (`TMPDIR`): {error}"),
            )
        })
    }

    fn new_in(parent: &Path) -> io::Result<Self> {
        for _ in 0..CREATE_ATTEMPTS {
            let mut random = [0_u8; 8];
            getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
            let folder = parent.join(format!("{PREFIX}{:016x}", u64::from_le_bytes(random)));
            DirBuilder::new().mode(0o700).create(&folder)?;
            if let Some(lock) = lock_new(&folder)? {
                // If the settings cannot be written, `scratch` is dropped, which removes the folder.
                let mut scratch = Self { folder, settings: Vec::new(), _lock: lock };
                scratch.settings = filtered_settings::write_in(&scratch.folder)?;
                return Ok(scratch);
            }
        }
        Err(io::Error::other("another program removes each new folder for temporary files"))
    }

    pub(super) fn environment(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        let settings = self.settings.iter().map(|(name, path)| (*name, path.as_os_str()));
        settings.chain([("TMPDIR", self.folder.as_os_str())])
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove_scratch(&self.folder);
    }
}

/// Locks a new folder. Returns `None` if another process removed the folder before it was locked.
fn lock_new(folder: &Path) -> io::Result<Option<File>> {
    let lock = match open_folder(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        lock => lock?,
    };
    lock.lock()?;
    Ok(has_name(&lock, folder).then_some(lock))
}

fn open_folder(folder: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    std::fs::OpenOptions::new().read(true).custom_flags(flags).open(folder)
}

/// Returns true if the path still names the open folder.
fn has_name(open: &File, folder: &Path) -> bool {
    let (Ok(open), Ok(named)) = (open.metadata(), std::fs::symlink_metadata(folder)) else { return false };
    (open.dev(), open.ino()) == (named.dev(), named.ino())
}

/// Removes a folder with all that a program left in it, also folders that the program made unreadable. Call this after
/// every process of the program has ended.
pub(super) fn remove_scratch(folder: &Path) {
    let removed = std::fs::remove_dir_all(folder);
    #[cfg(target_os = "linux")]
    if removed.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
        // An error is ignored: folders of another user cannot be changed and stay.
        grant_access(CWD, folder, 0).ok();
        std::fs::remove_dir_all(folder).ok();
    }
    #[cfg(not(target_os = "linux"))]
    removed.ok();
}

/// Gives the owner access to a folder and to every folder in it. Each folder is opened relative to its parent, without
/// following links, because a program that outlived its helper may still replace folders by links.
#[cfg(target_os = "linux")]
fn grant_access(parent: impl AsFd, name: impl rustix::path::Arg, depth: usize) -> rustix::io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(parent, name, flags, Mode::empty())?;
    // A handle that was opened with `O_PATH` does not support `fchmod`, so the folder is changed through the handle's
    // name in `/proc`.
    chmod(format!("/proc/self/fd/{}", folder.as_raw_fd()), Mode::RWXU)?;
    if depth == MAX_DEPTH {
        return Ok(());
    }
    let listed = openat(&folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for entry in Dir::read_from(&listed)?.flatten() {
        if entry.file_type() == FileType::Directory && !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            // An error is ignored: the folder may have been removed meanwhile.
            grant_access(&folder, entry.file_name(), depth + 1).ok();
        }
    }
    Ok(())
}

/// Removes the folders for temporary files in `parent` that belong to no living process, and ends the programs that
/// still use such a folder. Only folders of the current user are touched, because other users may create folders in
/// `parent` too.
fn remove_dead_folders(parent: &Path) {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let dead: Vec<(PathBuf, File)> = entries.filter_map(|entry| lock_dead(&entry.path())).collect();
    #[cfg(target_os = "linux")]
    if !dead.is_empty() {
        end_programs_in(&dead.iter().map(|(folder, _)| folder.as_path()).collect());
    }
    for (folder, _lock) in &dead {
        remove_scratch(folder);
    }
}

/// Locks a folder for temporary files of a process that has ended, so that the caller can remove the folder. `None` if
/// the folder belongs to a living process or another user, or is not a folder for temporary files.
fn lock_dead(folder: &Path) -> Option<(PathBuf, File)> {
    let number = folder.file_name()?.to_str()?.strip_prefix(PREFIX)?;
    if number.len() != 16 || !number.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let lock = open_folder(folder).ok()?;
    let is_own = lock.metadata().is_ok_and(|found| found.uid() == geteuid().as_raw());
    (is_own && lock.try_lock().is_ok() && has_name(&lock, folder)).then(|| (folder.to_path_buf(), lock))
}

/// Kills every process whose temporary folder is in `folders`. Such a process still runs only if its helper was killed,
/// because a living helper ends its processes.
#[cfg(target_os = "linux")]
fn end_programs_in(folders: &BTreeSet<&Path>) {
    let mut found_before = true;
    for _ in 0..KILL_ROUNDS {
        let mut found = false;
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = process.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            let Some(handle) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { continue };
            let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
            let folder = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"TMPDIR="));
            if folder.is_some_and(|folder| folders.contains(Path::new(OsStr::from_bytes(folder)))) {
                // The process may have ended meanwhile.
                found |= pidfd_send_signal(handle, Signal::KILL).is_ok();
            }
        }
        if !found {
            if !found_before {
                return;
            }
            std::thread::sleep(EXEC_WAIT);
        }
        found_before = found;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn names(folder: &Path) -> Vec<PathBuf> {
        let mut names: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        names
    }

    #[test]
    fn missing_folder_for_temporary_files_is_named() {
        let base = tempfile::tempdir().unwrap();
        let missing = base.path().join("missing");
        let error = Scratch::new_below(&missing).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let named = format!("no temporary folder can be created in `{}` (`TMPDIR`): ", missing.display());
        assert!(error.to_string().starts_with(&named), "{error}");
    }

    #[test]
    fn folders_of_killed_processes_are_removed_and_others_stay() {
        let base = tempfile::tempdir().unwrap();
        let parent = base.path();
        let live = Scratch::new_in(parent).unwrap();
        let dead = parent.join("rye-0123456789abcdef");
        fs::create_dir_all(dead.join("sealed/inner")).unwrap();
        fs::write(dead.join("sealed/inner/file"), "x").unwrap();
        fs::set_permissions(dead.join("sealed/inner"), fs::Permissions::from_mode(0o000)).unwrap();
        let other = [parent.join("rye-notes"), parent.join("rye-0123456789ABCDEF"), parent.join("target")];
        for folder in &other {
            fs::create_dir(folder).unwrap();
        }
        fs::write(other[2].join("file"), "x").unwrap();
        let link = parent.join("rye-00000000000000aa");
        std::os::unix::fs::symlink(&other[2], &link).unwrap();

        remove_dead_folders(parent);
        let mut left = vec![live.folder.clone(), link];
        left.extend(other.clone());
        left.sort();
        assert_eq!(names(parent), left);
        assert!(other[2].join("file").exists());
        assert!(live.folder.join(".gitconfig").exists());
        drop(live);
        assert_eq!(names(parent).len(), 4);
    }

    #[test]
    fn program_in_the_folder_of_a_killed_process_is_ended() {
        let base = tempfile::tempdir().unwrap();
        let live = Scratch::new_in(base.path()).unwrap();
        let dead = base.path().join("rye-0123456789abcdef");
        fs::create_dir(&dead).unwrap();
        // `spawn` can return before the new environment is visible.
        let start = |folder: &Path| {
            let program = std::process::Command::new("sleep").arg("60").env("TMPDIR", folder).spawn().unwrap();
            let (environ, expected) = (format!("/proc/{}/environ", program.id()), folder.as_os_str().as_bytes());
            while !fs::read(&environ).unwrap().windows(expected.len()).any(|part| part == expected) {
                std::thread::yield_now();
            }
            program
        };
        let (mut kept, mut stray) = (start(&live.folder), start(&dead));
        remove_dead_folders(base.path());
        assert_eq!(stray.wait().unwrap().signal(), Some(9));
        assert!(kept.try_wait().unwrap().is_none() && !dead.exists());
        kept.kill().unwrap();
        kept.wait().unwrap();
    }

    #[test]
    fn folders_are_created_while_other_processes_sweep() {
        let base = tempfile::tempdir().unwrap();
        let parent = base.path();
        std::thread::scope(|scope| {
            let sweeper = scope.spawn(|| (0..200).for_each(|_| remove_dead_folders(parent)));
            for _ in 0..200 {
                let scratch = Scratch::new_in(parent).unwrap();
                assert!(scratch.folder.join(".gitconfig").exists());
            }
            sweeper.join().unwrap();
        });
        assert!(names(parent).is_empty());
    }
}
