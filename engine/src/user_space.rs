//! The user space: the folder that contains, or would contain, the user's `.ai/`. The module also locates the keys and
//! trust records, which tools, sandboxed programs and lookups must not reach.

mod protected;
mod watched;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rye_compiler::plan::hex;
use sha2::{Digest, Sha256};

pub use protected::ProtectedFiles;
pub(crate) use protected::protected_files;
pub(crate) use watched::{Watched, WatchedValue};

/// The folders of an `.ai/` that hold the user's keys and trust records.
const SECRET_FOLDERS: [&str; 2] = ["keys", "trust"];
/// The variables that can name the user space. The first one that is set applies.
const ROOT_VARIABLES: [&str; 2] = ["RYE_USER_SPACE", "USER_SPACE"];
/// The file that lists the accounts of this machine and their home folders.
const ACCOUNTS: &str = "/etc/passwd";
/// Number of hexadecimal digits in a [`project_folder_name`]: 128 bits of the hash.
const PROJECT_NAME_CHARS: usize = 32;
/// Maximum number of files and folders that are inspected below one secret folder.
const MAX_FILES: usize = 10_000;

/// Returns the canonical root of the user space: `$RYE_USER_SPACE`, else `$USER_SPACE`, else `$HOME`. A relative
/// `$HOME` is ignored. `None` if none is set, or if the folder does not exist.
pub fn root() -> Option<PathBuf> {
    ROOT_VARIABLES.into_iter().find_map(path_variable).or_else(home_folder)?.canonicalize().ok()
}

/// The error for a variable that names no valid user space (such as `RYE_USER_SPACE=/missing`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RootVariableError {
    #[error("`{variable}` names `{}`, which is not a folder", path.display())]
    NoFolder { variable: &'static str, path: PathBuf },
    #[error("`{variable}` names `{}`, which is the `.ai` folder itself", path.display())]
    ItemFolder { variable: &'static str, path: PathBuf },
}

impl RootVariableError {
    /// Returns the help for this error: a change after which the variable names a valid user space.
    pub fn help(&self) -> String {
        match self {
            Self::NoFolder { variable, path } if path.starts_with("~") => {
                format!("no shell has expanded the `~`: write `{variable}=\"$HOME/…\"`")
            }
            Self::NoFolder { variable, .. } => format!("create the folder, correct the path, or unset `{variable}`"),
            Self::ItemFolder { variable, path } => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let parent = parent.map_or_else(|| ".".to_owned(), |parent| parent.display().to_string());
                format!("name the folder that contains `.ai`: `{variable}={parent}`")
            }
        }
    }
}

/// Checks the variable that selects the user space. A folder without `.ai/` counts as an empty user space. Without this
/// check, a wrong path would therefore disable the user's policies and ceilings.
///
/// # Errors
/// The variable names no folder, or the `.ai` folder itself.
pub fn check_root_variable() -> Result<(), RootVariableError> {
    let named = ROOT_VARIABLES.into_iter().find_map(|variable| Some((variable, path_variable(variable)?)));
    named.map_or(Ok(()), |(variable, path)| check_root(variable, path))
}

fn check_root(variable: &'static str, path: PathBuf) -> Result<(), RootVariableError> {
    let Some(folder) = path.canonicalize().ok().filter(|folder| folder.is_dir()) else {
        return Err(RootVariableError::NoFolder { variable, path });
    };
    let is_named_ai = [&path, &folder].into_iter().any(|path| path.file_name().is_some_and(|name| name == ".ai"));
    if is_named_ai && !folder.join(".ai").is_dir() {
        return Err(RootVariableError::ItemFolder { variable, path });
    }
    Ok(())
}

/// Returns the canonical path of every folder that may contain this user's `.ai/`: the folders in `$RYE_USER_SPACE`,
/// `$USER_SPACE` and `$HOME`, and the account's home folder. Such a folder is not a project itself, but may contain
/// projects.
pub fn candidate_roots() -> Vec<PathBuf> {
    let found: BTreeSet<PathBuf> = named_roots().into_iter().filter_map(|folder| folder.canonicalize().ok()).collect();
    found.into_iter().collect()
}

/// Returns the folders of [`candidate_roots`] before they are canonicalized: the values of the variables, and the home
/// folder in [`ACCOUNTS`].
fn named_roots() -> Vec<PathBuf> {
    let account =
        fs::read_to_string(ACCOUNTS).ok().and_then(|text| account_home(&text, rustix::process::getuid().as_raw()));
    root_variables().chain(account).collect()
}

/// Returns the values of the environment variables that may name a user space.
fn root_variables() -> impl Iterator<Item = PathBuf> {
    ROOT_VARIABLES.into_iter().chain(["HOME"]).filter_map(path_variable)
}

/// Returns the canonical paths of keys and trust records: the folders `keys` and `trust` of every folder that can be
/// the user space, the targets of links in them, and the folders `.ai/keys` and `.ai/trust` below each of `spaces`.
pub(crate) fn secret_folders<'s>(spaces: impl IntoIterator<Item = &'s Path>) -> Vec<PathBuf> {
    let mut found = secrets_of_user(candidate_roots());
    // Links in a project's own folders are not followed: a project must not choose paths outside itself.
    let own = spaces.into_iter().flat_map(|root| SECRET_FOLDERS.map(|name| root.join(".ai").join(name)));
    let own = own.filter(|folder| fs::symlink_metadata(folder).is_ok_and(|metadata| metadata.is_dir()));
    found.extend(own.filter_map(|folder| folder.canonicalize().ok()));
    found.into_iter().collect()
}

fn secrets_of_user(roots: impl IntoIterator<Item = PathBuf>) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for root in roots {
        for name in SECRET_FOLDERS {
            let Ok(folder) = root.join(".ai").join(name).canonicalize() else { continue };
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
            found.extend(links.filter_map(|link| link.path().canonicalize().ok()));
            found.insert(folder);
        }
    }
    found
}

/// Returns the device and inode number of every secret folder and of the files in it, so that a file is recognized
/// under any name.
pub(crate) fn file_identities(secrets: &[PathBuf]) -> BTreeSet<(u64, u64)> {
    let mut found = BTreeSet::new();
    for secret in secrets {
        let mut left = vec![secret.clone()];
        let mut seen = 0;
        while let Some(path) = left.pop().filter(|_| seen < MAX_FILES) {
            seen += 1;
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            if found.insert((metadata.dev(), metadata.ino())) && metadata.is_dir() {
                left.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
            }
        }
    }
    found
}

/// Returns the name of the files or folders that the user space holds for a project: a hash of the project's path.
pub fn project_folder_name(project: &Path) -> String {
    let mut name = hex(&Sha256::digest(project.as_os_str().as_encoded_bytes()));
    name.truncate(PROJECT_NAME_CHARS);
    name
}

fn path_variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn home_folder() -> Option<PathBuf> {
    path_variable("HOME").filter(|home| home.is_absolute())
}

/// Returns the home folder of a user id in the text of `/etc/passwd`; `None` if the text lists no absolute folder for
/// the id.
fn account_home(accounts: &str, user: u32) -> Option<PathBuf> {
    let home = |line: &str| {
        let mut fields = line.split(':').skip(2);
        let id: u32 = fields.next()?.parse().ok()?;
        let home = PathBuf::from(fields.nth(2)?);
        (id == user && home.is_absolute()).then_some(home)
    };
    accounts.lines().find_map(home)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn account_home_is_the_sixth_field_of_the_users_line() {
        let accounts =
            "root:x:0:0:root:/root:/bin/bash\nbroken\nada:x:1000:1000:Ada,,,:/home/ada:/bin/sh\nx:x:7:7::relative:\n";
        assert_eq!(account_home(accounts, 1000), Some(PathBuf::from("/home/ada")));
        assert_eq!(account_home(accounts, 0), Some(PathBuf::from("/root")));
        assert_eq!(account_home(accounts, 7), None);
        assert_eq!(account_home(accounts, 1), None);
    }

    #[test]
    fn variable_names_the_folder_that_contains_the_users_files() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("user/.ai")).unwrap();
        fs::create_dir_all(root.join("empty")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        symlink(root.join("user/.ai"), root.join("link")).unwrap();
        let of = |path: &str| check_root("RYE_USER_SPACE", root.join(path));
        assert_eq!((of("user"), of("empty")), (Ok(()), Ok(())));
        for missing in ["absent", "file", "~/user"] {
            assert!(matches!(of(missing), Err(RootVariableError::NoFolder { .. })), "{missing}");
        }
        for own in ["user/.ai", "user/.ai/", "link"] {
            let error = of(own).unwrap_err();
            assert!(matches!(error, RootVariableError::ItemFolder { .. }), "{own}");
        }
        let help = of("user/.ai").unwrap_err().help();
        assert!(help.ends_with(&format!("`RYE_USER_SPACE={}`", root.join("user").display())), "{help}");
        let unexpanded = check_root("RYE_USER_SPACE", PathBuf::from("~/user")).unwrap_err();
        assert!(unexpanded.help().contains("$HOME"));
    }

    #[test]
    fn secrets_include_link_targets_and_identities_every_file() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("vault")).unwrap();
        fs::create_dir_all(root.join("dotfiles/keys/trusted")).unwrap();
        fs::create_dir_all(root.join("space/.ai/trust")).unwrap();
        fs::write(root.join("vault/private.pem"), "key").unwrap();
        fs::write(root.join("dotfiles/keys/trusted/a.pem"), "key").unwrap();
        symlink(root.join("dotfiles/keys"), root.join("space/.ai/keys")).unwrap();
        symlink(root.join("vault/private.pem"), root.join("dotfiles/keys/private.pem")).unwrap();
        let found = secrets_of_user([root.join("space"), root.join("absent")]);
        let expected = ["dotfiles/keys", "space/.ai/trust", "vault/private.pem"].map(|path| root.join(path));
        assert_eq!(found, BTreeSet::from(expected.clone()));
        let known = file_identities(&expected);
        for path in ["dotfiles/keys", "dotfiles/keys/trusted/a.pem", "vault/private.pem", "space/.ai/trust"] {
            let metadata = fs::metadata(root.join(path)).unwrap();
            assert!(known.contains(&(metadata.dev(), metadata.ino())), "{path}");
        }
        assert!(!known.contains(&(
            fs::metadata(root.join("vault")).unwrap().dev(),
            fs::metadata(root.join("vault")).unwrap().ino()
        )));
    }
}
