//! Values that are computed from files of the user, and computed again only after one of these files has changed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The device and inode number of a file.
pub(super) type Identity = (u64, u64);

/// Time within which two changes of a folder may have the same time stamp: more than the longest tick of a kernel.
const STAMP_RESOLUTION: Duration = Duration::from_millis(20);

/// The kind of change that is detected at a watched path. `Identity` detects that the path leads to another file or
/// folder. `Entries` also detects a change of the folder's entries or of the file, by the time of the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Watched {
    Identity,
    Entries,
}

/// The state of a folder or file when it was read. If the state differs later, the folder or file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PathVersion {
    identity: Identity,
    /// Time of the last change, in seconds and nanoseconds since 1970; `None` for `Watched::Identity`, where only the
    /// identity is compared.
    changed: Option<(i64, i64)>,
}

impl PathVersion {
    fn read(path: &Path, watched: Watched) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        let changed = (watched == Watched::Entries).then(|| (metadata.ctime(), metadata.ctime_nsec()));
        Some(Self { identity: (metadata.dev(), metadata.ino()), changed })
    }

    /// Returns true if the last change is so old that every change after `read_at` has a different time stamp.
    fn is_settled(self, read_at: SystemTime) -> bool {
        let Some((seconds, nanoseconds)) = self.changed else { return true };
        let Some((seconds, nanoseconds)) = u64::try_from(seconds).ok().zip(u32::try_from(nanoseconds).ok()) else {
            return false;
        };
        let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        read_at.duration_since(changed).is_ok_and(|age| age > STAMP_RESOLUTION)
    }
}

/// Returns the device and inode number of a file or folder; `None` if it cannot be read.
pub(super) fn identity_of(path: &Path) -> Option<Identity> {
    PathVersion::read(path, Watched::Identity).map(|version| version.identity)
}

/// A value that was computed from files and folders, with the state of each of them.
pub(crate) struct WatchedValue<T> {
    versions: Vec<(PathBuf, Watched, Option<PathVersion>)>,
    /// True if every change since the value was computed can be detected.
    is_stable: bool,
    value: T,
}

impl<T> WatchedValue<T> {
    /// Computes a value. `paths` returns the files and folders on which the value depends.
    ///
    /// # Errors
    /// `compute` fails.
    pub(crate) fn read<E>(
        paths: impl Fn() -> BTreeMap<PathBuf, Watched>,
        compute: impl FnOnce() -> Result<T, E>,
    ) -> Result<Self, E> {
        let read_at = SystemTime::now();
        let watched = paths();
        let versions: Vec<_> =
            watched.iter().map(|(path, watched)| (path.clone(), *watched, PathVersion::read(path, *watched))).collect();
        // The value is computed after the versions. If a file changes in between, the next comparison of versions
        // detects the change.
        let value = compute()?;
        let is_settled =
            versions.iter().filter_map(|(.., version)| *version).all(|version| version.is_settled(read_at));
        Ok(Self { versions, is_stable: is_settled && paths() == watched, value })
    }

    pub(crate) fn value(&self) -> &T {
        &self.value
    }

    /// Returns true if none of the files has changed since the value was computed.
    pub(crate) fn is_current(&self) -> bool {
        self.is_stable
            && self.versions.iter().all(|(path, watched, version)| PathVersion::read(path, *watched) == *version)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn recent_change_is_not_settled() {
        let base = tempfile::tempdir().unwrap();
        let version = PathVersion::read(base.path(), Watched::Entries).unwrap();
        let (seconds, nanoseconds) = version.changed.unwrap();
        let changed = Duration::new(seconds.unsigned_abs(), u32::try_from(nanoseconds).unwrap());
        let changed = SystemTime::UNIX_EPOCH + changed;
        assert!(!version.is_settled(changed + STAMP_RESOLUTION));
        assert!(version.is_settled(changed + STAMP_RESOLUTION + Duration::from_millis(1)));
        assert!(!version.is_settled(changed - Duration::from_secs(1)));
    }
}
