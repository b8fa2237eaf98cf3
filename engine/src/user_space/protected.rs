//! The device and inode numbers of the files that hold keys and trust records, cached between calls. Every call of a
//! file tool needs these numbers, and reading them takes about ninety system calls. So the files are read again only
//! after one of their folders has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::watched::{Identity, Watched, WatchedValue, identity_of};
use super::{ACCOUNTS, MAX_FILES, SECRET_FOLDERS, file_identities, named_roots, root_variables, secret_folders};

/// Maximum number of entries in `KNOWN`. A project has up to two entries, one with its user space and one without, so
/// the protected files of two projects are kept.
const MAX_KNOWN: usize = 4;

/// Files that tools must not reach under any name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ProtectedFiles {
    /// The `.ai/` folders of every folder that can be the user space.
    pub user_folders: BTreeSet<Identity>,
    /// Identities of the folders that hold keys and trust records, in the user space and in the project, and of the
    /// files in these folders.
    pub secrets: BTreeSet<Identity>,
}

/// The protected files of the spaces in `spaces`. `variables` holds the values of the environment variables that can
/// name a user space, at the time of the read.
struct KnownFiles {
    spaces: Vec<PathBuf>,
    variables: Vec<PathBuf>,
    files: WatchedValue<Arc<ProtectedFiles>>,
}

impl KnownFiles {
    fn read(spaces: &[PathBuf]) -> Self {
        let variables = root_variables().collect();
        let paths = || watched_paths(spaces);
        let Ok(files) = WatchedValue::read::<Infallible>(paths, || {
            let user_folders = named_roots().into_iter().filter_map(|root| identity_of(&root.join(".ai"))).collect();
            let secrets = secret_folders(spaces.iter().map(PathBuf::as_path));
            Ok(Arc::new(ProtectedFiles { user_folders, secrets: file_identities(&secrets) }))
        });
        Self { spaces: spaces.to_owned(), variables, files }
    }

    fn is_current(&self) -> bool {
        root_variables().eq(self.variables.iter().cloned()) && self.files.is_current()
    }
}

/// Returns the paths on which the protected files of these spaces depend.
fn watched_paths(spaces: &[PathBuf]) -> BTreeMap<PathBuf, Watched> {
    let roots = named_roots();
    let mut paths = BTreeMap::new();
    for root in &roots {
        paths.insert(root.clone(), Watched::Identity);
        paths.insert(root.join(".ai"), Watched::Identity);
    }
    paths.insert(PathBuf::from(ACCOUNTS), Watched::Entries);
    for root in roots.iter().chain(spaces) {
        paths.extend(SECRET_FOLDERS.map(|name| (root.join(".ai").join(name), Watched::Entries)));
    }
    let secrets = secret_folders(spaces.iter().map(PathBuf::as_path));
    paths.extend(secrets.iter().flat_map(|secret| folders_below(secret)).map(|folder| (folder, Watched::Entries)));
    paths
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

/// The results of [`protected_files`] that can be reused, at most [`MAX_KNOWN`].
static KNOWN: Mutex<Vec<KnownFiles>> = Mutex::new(Vec::new());

/// Returns the files that the tools and the lookups of a project must not reach. `spaces` are the roots of the project
/// and of the user space, or of the project alone. Tools pass canonical roots.
pub(crate) fn protected_files(spaces: &[PathBuf]) -> Arc<ProtectedFiles> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = known.iter().position(|known| known.spaces == spaces) {
        if let Some(known) = known.get(at).filter(|known| known.is_current()) {
            return Arc::clone(known.files.value());
        }
        known.remove(at);
    }
    let read = KnownFiles::read(spaces);
    let files = Arc::clone(read.files.value());
    if known.len() == MAX_KNOWN {
        known.remove(0);
    }
    known.push(read);
    files
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_change_of_a_secret_folder_is_noticed() {
        let base = tempfile::tempdir().unwrap();
        let project = base.path().canonicalize().unwrap();
        fs::create_dir_all(project.join(".ai")).unwrap();
        let spaces = [project.clone()];
        let absent = KnownFiles::read(&spaces);
        assert!(absent.is_current());

        fs::create_dir_all(project.join(".ai/keys/trusted")).unwrap();
        assert!(!absent.is_current());
        fs::write(project.join(".ai/keys/private.pem"), "key").unwrap();
        let known = KnownFiles::read(&spaces);
        assert!(!known.is_current());
        let identity = |path: &str| identity_of(&project.join(path)).unwrap();
        for path in [".ai/keys", ".ai/keys/private.pem", ".ai/keys/trusted"] {
            assert!(known.files.value().secrets.contains(&identity(path)), "{path}");
        }

        // Later changes need another time stamp.
        let wait = || std::thread::sleep(Duration::from_millis(40));
        wait();
        fs::write(project.join(".ai/keys/trusted/a.pem"), "key").unwrap();
        assert!(!known.is_current());
        wait();
        let known = KnownFiles::read(&spaces);
        fs::write(project.join("new.pem"), "key").unwrap();
        assert!(known.is_current());
        fs::rename(project.join("new.pem"), project.join(".ai/keys/private.pem")).unwrap();
        assert!(!known.is_current());
    }

    #[test]
    fn protected_files_equal_a_fresh_reading_after_every_change() {
        let base = tempfile::tempdir().unwrap();
        let project = base.path().canonicalize().unwrap();
        let spaces = [project.clone()];
        for name in ["keys", "trust"] {
            fs::create_dir_all(project.join(".ai").join(name)).unwrap();
            assert_eq!(&protected_files(&spaces), KnownFiles::read(&spaces).files.value(), "{name}");
            fs::write(project.join(".ai").join(name).join("a"), "a").unwrap();
            assert_eq!(&protected_files(&spaces), KnownFiles::read(&spaces).files.value(), "{name}");
        }
    }
}
