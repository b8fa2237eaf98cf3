//! Atomic replacement of a file: writes a temporary file beside the old file, and renames the temporary file through
//! the same directory handle. A reader sees either the old or the new file. Nothing is written through a symbolic link
//! or another name of the old file.

use std::ffi::OsStr;
use std::io::Write;

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, Mode, Stat};
use rustix::io::Errno;

use super::temporary::{create_temporary, remove_leftovers};
use super::{FileAccessError, ProjectFiles, ProjectPath, ResolvedKind, ResolvedPath, open_folder_at};

/// The identity of a file when it was read, to detect changes before a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    inode: u64,
    size: i64,
    seconds: i64,
    nanoseconds: u64,
}

/// The effect of a write: a new file, or a replaced one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteEffect {
    Created,
    Replaced,
}

impl FileVersion {
    pub fn of(stat: &Stat) -> Self {
        Self { inode: stat.st_ino, size: stat.st_size, seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec }
    }
}

impl ProjectFiles {
    /// Replaces the file with `bytes`, or creates it and its missing folders. With `expected`, fails if the file
    /// changed since it was read. Preserves the permission bits of an existing file.
    pub fn replace(
        &self,
        place: &ResolvedPath,
        bytes: &[u8],
        expected: Option<FileVersion>,
    ) -> Result<WriteEffect, FileAccessError> {
        self.check_writable(&place.path)?;
        match &place.found {
            ResolvedKind::Folder(_) => Err(FileAccessError::IsFolder { path: place.path.clone() }),
            ResolvedKind::Special { what } => Err(FileAccessError::Special { path: place.path.clone(), what }),
            ResolvedKind::File { parent, name, stat } => {
                let mode = Mode::from_raw_mode(stat.st_mode) & Mode::from_raw_mode(0o777);
                if !mode.intersects(Mode::from_raw_mode(0o222)) {
                    return Err(FileAccessError::Protected { path: place.path.clone() });
                }
                write_replacement(parent, name, bytes, &place.path, Some(mode), expected)?;
                Ok(WriteEffect::Replaced)
            }
            ResolvedKind::Missing { parent, tail } => {
                let fail = |e: std::io::Error| FileAccessError::io(&place.path, e);
                let Some((name, folders)) = tail.split_last() else {
                    return Err(FileAccessError::NotFound { path: place.path.to_string() });
                };
                let mut dir = parent.try_clone().map_err(fail)?;
                for folder in folders {
                    dir = make_folder(&dir, folder).map_err(|e| fail(e.into()))?;
                }
                write_replacement(&dir, name, bytes, &place.path, None, None)?;
                Ok(WriteEffect::Created)
            }
        }
    }
}

impl ProjectFiles {
    /// Checks that [`ProjectFiles::replace`] may write this path.
    pub fn check_replaceable(&self, place: &ResolvedPath) -> Result<(), FileAccessError> {
        self.check_writable(&place.path)?;
        match &place.found {
            ResolvedKind::Folder(_) => Err(FileAccessError::IsFolder { path: place.path.clone() }),
            ResolvedKind::Special { what } => Err(FileAccessError::Special { path: place.path.clone(), what }),
            ResolvedKind::File { stat, .. } if stat.st_mode & 0o222 == 0 => {
                Err(FileAccessError::Protected { path: place.path.clone() })
            }
            ResolvedKind::File { .. } | ResolvedKind::Missing { .. } => Ok(()),
        }
    }

    /// Removes a file. With `expected`, fails if the file changed since it was read.
    pub fn remove(&self, place: &ResolvedPath, expected: Option<FileVersion>) -> Result<(), FileAccessError> {
        self.check_replaceable(place)?;
        let ResolvedKind::File { parent, name, .. } = &place.found else {
            return Err(FileAccessError::NotFound { path: place.path.to_string() });
        };
        let now = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
        if expected.is_some() && now.ok().map(|stat| FileVersion::of(&stat)) != expected {
            return Err(FileAccessError::Changed { path: place.path.clone() });
        }
        rustix::fs::unlinkat(parent, name, AtFlags::empty())
            .map_err(|e: Errno| FileAccessError::io(&place.path, std::io::Error::from(e)))
    }
}

fn make_folder(parent: &Dir, name: &OsStr) -> Result<Dir, Errno> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => open_folder_at(parent, name),
        Err(e) => Err(e),
    }
}

fn write_replacement(
    dir: &Dir,
    name: &OsStr,
    bytes: &[u8],
    path: &ProjectPath,
    mode: Option<Mode>,
    expected: Option<FileVersion>,
) -> Result<(), FileAccessError> {
    let fail = |e: std::io::Error| FileAccessError::io(path, e);
    remove_leftovers(dir);
    let (temporary, mut file) = create_temporary(dir, mode).map_err(fail)?;
    let written = (|| {
        if let Some(mode) = mode {
            rustix::fs::fchmod(&file, mode).map_err(|e| fail(e.into()))?;
        }
        file.write_all(bytes).and_then(|()| file.sync_data()).map_err(fail)?;
        if let Some(expected) = expected {
            let now = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
            if now.ok().map(|s| FileVersion::of(&s)) != Some(expected) {
                return Err(FileAccessError::Changed { path: path.clone() });
            }
        }
        rustix::fs::renameat(dir, &temporary, dir, name).map_err(|e| fail(e.into()))
    })();
    if written.is_err() {
        // The original error is returned. If the temporary file cannot be removed, a later process removes it.
        rustix::fs::unlinkat(dir, &temporary, AtFlags::empty()).ok();
    }
    written
}
