//! Temporary files of replacements: `.rye-<16 hex digits>.tmp` in the folder of the file. The process that writes such
//! a file holds a lock on it. A file without a lock belongs to a process that was killed during a write. The next
//! process that writes into the folder removes such a file.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

const PREFIX: &str = ".rye-";
const SUFFIX: &str = ".tmp";
/// Number of hex digits in the name of a temporary file.
const DIGITS: usize = 16;
/// Maximum number of names to try: a name may be taken, or another process may remove the file before it is locked.
const MAX_ATTEMPTS: usize = 16;
/// Maximum number of folders that one process searches for leftover files.
const MAX_SWEPT_FOLDERS: usize = 1_024;

/// Device and inode of the folders in which this process has already searched for leftover temporary files.
static SWEPT_FOLDERS: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

/// Creates a new, empty, locked file under an unused name. `mode` is the mode of the file that the new file will
/// replace; `None` if there is no such file. With `mode`, only the owner can access the new file at first.
pub(super) fn create_temporary(dir: &Dir, mode: Option<Mode>) -> std::io::Result<(OsString, File)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // A replacement stays private until it gets the mode of the old file; a new file follows the umask.
    let mode = Mode::from_raw_mode(if mode.is_some() { 0o600 } else { 0o666 });
    for _ in 0..MAX_ATTEMPTS {
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).map_err(|e| std::io::Error::other(e.to_string()))?;
        let name = OsString::from(format!("{PREFIX}{:016x}{SUFFIX}", u64::from_le_bytes(random)));
        let file = match rustix::fs::openat(dir, &name, flags, mode) {
            Ok(fd) => File::from(fd),
            Err(Errno::EXIST) => continue,
            Err(e) => return Err(e.into()),
        };
        // On a file system without locks, this call fails. The failure is ignored: without locks, no process removes
        // leftover files.
        rustix::fs::flock(&file, FlockOperation::LockExclusive).ok();
        // Another process may have removed the file before the lock was held.
        if has_name(dir, &name, &file) {
            return Ok((name, file));
        }
    }
    Err(std::io::Error::other("no free temporary name"))
}

/// Removes the files that killed processes left in a folder. Each process searches a folder once.
pub(super) fn remove_leftovers(dir: &Dir) {
    let Ok(stat) = rustix::fs::fstat(dir) else { return };
    {
        let mut swept = SWEPT_FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.len() >= MAX_SWEPT_FOLDERS || !swept.insert((stat.st_dev, stat.st_ino)) {
            return;
        }
    }
    sweep(dir);
}

fn sweep(dir: &Dir) {
    // A failure is ignored, because a folder that cannot be listed may still be writable.
    let Ok(listed) = rustix::fs::openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    else {
        return;
    };
    let Ok(entries) = rustix::fs::Dir::read_from(&listed) else { return };
    for entry in entries.flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if is_temporary(name) {
            remove_unlocked(dir, name);
        }
    }
}

/// Removes a temporary file of this user, unless the process that writes the file still lives.
fn remove_unlocked(dir: &Dir, name: &OsStr) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(dir, name, flags, Mode::empty()).map(File::from) else { return };
    let is_own_file = rustix::fs::fstat(&file).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_uid == geteuid().as_raw()
    });
    let is_free = is_own_file && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    if is_free && has_name(dir, name, &file) {
        rustix::fs::unlinkat(dir, name, AtFlags::empty()).ok();
    }
}

fn is_temporary(name: &OsStr) -> bool {
    let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|name| name.strip_suffix(SUFFIX));
    digits.is_some_and(|digits| {
        digits.len() == DIGITS && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Returns true if the name in the folder still belongs to the open file.
fn has_name(dir: &Dir, name: &OsStr, file: &File) -> bool {
    let (Ok(open), Ok(named)) = (rustix::fs::fstat(file), rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW))
    else {
        return false;
    };
    (open.st_dev, open.st_ino) == (named.st_dev, named.st_ino)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use cap_std::ambient_authority;

    #[test]
    fn files_of_killed_writers_are_removed_and_all_others_stay() {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(place.path(), ambient_authority()).unwrap();
        // The end of a process unlocks its files. Dropping the file would not do it at once: a process that another
        // test is starting has a copy of the handle.
        let (left, writer) = create_temporary(&dir, None).unwrap();
        writer.unlock().unwrap();
        let (used, _writer) = create_temporary(&dir, Some(Mode::RUSR)).unwrap();
        let others =
            [".rye-0123.tmp", ".rye-0123456789abcdeg.tmp", "rye-0123456789abcdef.tmp", ".rye-0123456789abcdef"];
        for name in others {
            std::fs::write(place.path().join(name), "mine").unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", place.path().join(".rye-00000000000000ff.tmp")).unwrap();
        std::fs::create_dir(place.path().join(".rye-00000000000000fe.tmp")).unwrap();
        let before = std::fs::read_dir(place.path()).unwrap().count();
        // Other tests of this process may have used the number of the folder, or all searches.
        sweep(&dir);
        assert!(!place.path().join(&left).exists() && place.path().join(&used).exists());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), before - 1);
        // A process searches each folder once.
        remove_leftovers(&dir);
        let (again, writer) = create_temporary(&dir, None).unwrap();
        writer.unlock().unwrap();
        remove_leftovers(&dir);
        assert!(place.path().join(&again).exists());
    }

    #[test]
    fn writers_and_sweepers_do_not_disturb_each_other() {
        let place = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(place.path(), ambient_authority()).unwrap();
        std::thread::scope(|scope| {
            let sweeper = scope.spawn(|| (0..300).for_each(|_| sweep(&dir)));
            for i in 0..300 {
                let (name, _writer) = create_temporary(&dir, None).unwrap();
                rustix::fs::renameat(&dir, &name, &dir, format!("file-{i}")).unwrap();
            }
            sweeper.join().unwrap();
        });
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 300);
    }
}
