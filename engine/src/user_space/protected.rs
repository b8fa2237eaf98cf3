//! The device and inode numbers of the files that hold keys and trust records, cached between calls. Every call of a
//! file tool needs these numbers, and reading them takes about ninety system calls. So the files are read again only
//! after one of their folders has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use super::{ACCOUNTS, MAX_FILES, SECRET_FOLDERS, file_identities, named_roots, root_variables, secret_folders};

/// The device and inode number of a file.
type Identity = (u64, u64);

/// Files that tools must not reach under any name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ProtectedFiles {
    /// The `.ai/` folders of every folder that can be the user space.
    pub user_folders: BTreeSet<Identity>,
    /// Identities of the folders that hold keys and trust records, in the user space and in the project, and of the
    /// files in these folders.
    pub secrets: BTreeSet<Identity>,
}

/// Time within which two changes of a folder may have the same time stamp: more than the longest tick of a kernel.
const STAMP_RESOLUTION: Duration = Duration::from_millis(20);

/// The kind of change that is detected at a watched path. `Identity` detects that the path leads to another file or
/// folder. `Entries` also detects a change of the folder's entries or of the file, by the time of the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Watched {
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

/// The protected files of one project. `versions` holds the state of each folder and file from which the list of
/// protected files was computed, so that a change is noticed.
struct KnownFiles {
    project: PathBuf,
    variables: Vec<PathBuf>,
    versions: Vec<(PathBuf, Watched, Option<PathVersion>)>,
    files: Arc<ProtectedFiles>,
    /// True if the next use can detect every change since the files were read. Otherwise, the next use reads the files
    /// again.
    is_stable: bool,
}

impl KnownFiles {
    fn read(project: &Path) -> Self {
        let read_at = SystemTime::now();
        let variables: Vec<PathBuf> = root_variables().collect();
        let roots = named_roots();
        let mut paths: BTreeMap<PathBuf, Watched> = BTreeMap::new();
        for root in &roots {
            paths.insert(root.clone(), Watched::Identity);
            paths.insert(root.join(".ai"), Watched::Identity);
        }
        paths.insert(PathBuf::from(ACCOUNTS), Watched::Entries);
        for root in roots.iter().map(PathBuf::as_path).chain([project]) {
            paths.extend(SECRET_FOLDERS.map(|name| (root.join(".ai").join(name), Watched::Entries)));
        }
        let secrets = secret_folders([project]);
        paths.extend(secrets.iter().flat_map(|secret| folders_below(secret)).map(|folder| (folder, Watched::Entries)));
        let version = |(path, watched): (PathBuf, Watched)| {
            let version = PathVersion::read(&path, watched);
            (path, watched, version)
        };
        let versions: Vec<_> = paths.into_iter().map(version).collect();
        // The files are read after the versions. If a file changes in between, the next comparison of versions detects
        // the change.
        let is_settled =
            versions.iter().filter_map(|(.., version)| *version).all(|version| version.is_settled(read_at));
        let is_stable = is_settled && secret_folders([project]) == secrets;
        let user_folders = roots.iter().filter_map(|root| PathVersion::read(&root.join(".ai"), Watched::Identity));
        let user_folders = user_folders.map(|version| version.identity).collect();
        let files = Arc::new(ProtectedFiles { user_folders, secrets: file_identities(&secrets) });
        Self { project: project.to_owned(), variables, versions, files, is_stable }
    }

    fn is_current(&self, project: &Path) -> bool {
        self.project == project
            && root_variables().eq(self.variables.iter().cloned())
            && self.versions.iter().all(|(path, watched, version)| PathVersion::read(path, *watched) == *version)
    }
}

/// Returns a path and, if it is a folder, the folders below it.
fn folders_below(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    let mut left = found.clone();
    while let Some(folder) = left.pop().filter(|_| found.len() < MAX_FILES) {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(entry.path());
                found.push(entry.path());
            }
        }
    }
    found
}

/// The last result of [`protected_files`], with its project; `None` if there is no result to reuse.
static KNOWN: Mutex<Option<KnownFiles>> = Mutex::new(None);

/// Returns the files that the tools of a project must not reach. `project` is the canonical root of the project.
pub fn protected_files(project: &Path) -> Arc<ProtectedFiles> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known.as_ref().filter(|known| known.is_current(project)) {
        return Arc::clone(&known.files);
    }
    let read = KnownFiles::read(project);
    let files = Arc::clone(&read.files);
    *known = Some(read).filter(|read| read.is_stable);
    files
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_a_secret_folder_is_noticed() {
        let base = tempfile::tempdir().unwrap();
        let project = base.path().canonicalize().unwrap();
        fs::create_dir_all(project.join(".ai")).unwrap();
        let absent = KnownFiles::read(&project);
        assert!(absent.is_current(&project));
        assert!(!absent.is_current(&project.join("other")));

        fs::create_dir_all(project.join(".ai/keys/trusted")).unwrap();
        assert!(!absent.is_current(&project));
        fs::write(project.join(".ai/keys/private.pem"), "key").unwrap();
        let known = KnownFiles::read(&project);
        assert!(!known.is_stable);
        let identity = |path: &str| PathVersion::read(&project.join(path), Watched::Identity).unwrap().identity;
        for path in [".ai/keys", ".ai/keys/private.pem", ".ai/keys/trusted"] {
            assert!(known.files.secrets.contains(&identity(path)), "{path}");
        }

        // Later changes need another time stamp.
        let wait = || std::thread::sleep(2 * STAMP_RESOLUTION);
        wait();
        fs::write(project.join(".ai/keys/trusted/a.pem"), "key").unwrap();
        assert!(!known.is_current(&project));
        wait();
        let known = KnownFiles::read(&project);
        fs::write(project.join("new.pem"), "key").unwrap();
        assert!(known.is_current(&project));
        fs::rename(project.join("new.pem"), project.join(".ai/keys/private.pem")).unwrap();
        assert!(!known.is_current(&project));
    }

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

    #[test]
    fn protected_files_equal_a_fresh_reading_after_every_change() {
        let base = tempfile::tempdir().unwrap();
        let project = base.path().canonicalize().unwrap();
        for name in ["keys", "trust"] {
            fs::create_dir_all(project.join(".ai").join(name)).unwrap();
            assert_eq!(protected_files(&project), KnownFiles::read(&project).files, "{name}");
            fs::write(project.join(".ai").join(name).join("a"), "a").unwrap();
            assert_eq!(protected_files(&project), KnownFiles::read(&project).files, "{name}");
        }
    }
}
