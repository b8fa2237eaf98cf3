//! The project files that a command names in its words (program and arguments), with their hashes. If a word names a
//! folder, every file in the folder is hashed. A new or changed file then revokes the trust.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rye_compiler::command_files::{
    CODE_OF, EXECUTED_BY, GIT_SETTINGS, LOADED_BY, MODULE, PROJECT_WORD, UNREADABLE, files_of_value,
};
use rye_compiler::plan::hex;
use sha2::{Digest, Sha256};

use super::TrustError;
use super::git_settings::GIT_FOLDER;
use super::loaded_files::LoadingProgram;
use crate::landlock_version::landlock_version;
use crate::path_policy::folder_of_project;
use crate::process::search_path;

/// Maximum number of files in the folders that one trust requirement names.
const MAX_FILES: usize = 20_000;
/// Maximum total size in bytes of the files in the folders that one trust requirement names. The size of a file that
/// the requirement names directly is not limited.
const MAX_FOLDER_BYTES: u64 = 4 << 30;
/// Maximum depth of the folders below a named folder.
pub(super) const MAX_DEPTH: usize = 64;
/// File extensions that runtimes add to the name of a module.
const MODULE_ENDINGS: [&str; 6] = [".py", ".js", ".mjs", ".cjs", ".ts", ".json"];
/// Folders of a project that are not hashed: git's folder, the engine's state, and the exports of threads. Their files
/// change often. The files in git's folder from which git starts programs are hashed separately
/// ([`NamedFiles::add_git_settings`]).
const LEFT_OUT_FOLDERS: [&str; 3] = [GIT_FOLDER, ".ai/state", ".ai/knowledge/agent/threads"];
/// The lock file, which is not hashed, because it changes often.
const LOCK_FILE: &str = ".ai/lock.json";

/// True if the sandbox can make folders of the project unreadable.
static HAS_LANDLOCK: LazyLock<bool> = LazyLock::new(|| landlock_version() > 0);

/// A collector of the project files that the commands of one trust requirement name.
pub(super) struct NamedFiles<'p> {
    pub(super) project: &'p Path,
    /// SHA-256 by path relative to the project, lowercase hex.
    pub(super) hashes: BTreeMap<String, String>,
    folders: BTreeSet<PathBuf>,
    /// Folders that the sandbox of the command makes unreadable. The command can load no file in them.
    unreadable: Vec<PathBuf>,
    /// The programs whose source texts were searched for the files that they load.
    pub(super) read: BTreeSet<LoadingProgram>,
    /// The reason why a program can load every file of the project; `None` if no program can.
    pub(super) whole_project: Option<String>,
    /// True if every file of the project was added.
    pub(super) covers_project: bool,
    /// True if the files from which git starts programs were added.
    pub(super) covers_git: bool,
    bytes: u64,
}

impl<'p> NamedFiles<'p> {
    pub(super) fn new(project: &'p Path) -> Self {
        Self {
            project,
            hashes: BTreeMap::new(),
            folders: BTreeSet::new(),
            unreadable: Vec::new(),
            read: BTreeSet::new(),
            whole_project: None,
            covers_project: false,
            covers_git: false,
            bytes: 0,
        }
    }

    /// Excludes the folders that the sandbox makes unreadable for a command, because the command can load no file in
    /// them. `words` are the words of the command, of which those with the prefix `UNREADABLE` name these folders.
    /// Without Landlock, excludes nothing, because the kernel then makes no folder unreadable.
    pub(super) fn leave_out_unreadable(&mut self, words: &[String]) {
        let folders = words.iter().filter_map(|word| word.strip_prefix(UNREADABLE));
        let places = folders.map(|folder| folder_of_project(self.project, folder));
        self.unreadable = places.filter(|_| *HAS_LANDLOCK).collect();
    }

    /// Adds the hash of a script, even if the script is outside of the project. Adds nothing if the script does not
    /// exist.
    pub(super) fn add_script(&mut self, path: &str) -> Result<(), TrustError> {
        let place = self.project.join(path);
        if place.is_file() {
            self.hashes.insert(path.to_owned(), sha256_of(&place)?);
        }
        Ok(())
    }

    /// Adds the files that a word of a command names, and the files that these files load. A word can be a path, a
    /// variable such as `${NAME}`, or a word with one of the prefixes in `command_files`.
    pub(super) fn add_word(&mut self, word: &str) -> Result<(), TrustError> {
        if let Some(name) = word.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) {
            for word in std::env::var(name).iter().flat_map(|value| files_of_value(value)) {
                self.add_word(&word)?;
            }
            return Ok(());
        }
        if let Some(script) = word.strip_prefix(LOADED_BY) {
            return LoadingProgram::of_tool(&self.project.join(script))
                .map_or(Ok(()), |script| self.add_loaded(script));
        }
        if let Some((interpreter, path)) = word.strip_prefix(EXECUTED_BY).and_then(|word| word.split_once('\0')) {
            return self.add_executed(interpreter, path);
        }
        if let Some(module) = word.strip_prefix(MODULE) {
            return self.add_module(module);
        }
        if let Some((interpreter, code)) = word.strip_prefix(CODE_OF).and_then(|word| word.split_once('\0')) {
            return match LoadingProgram::of_code(interpreter, code, self.project) {
                Some(program) => self.add_loaded(program),
                None => self.add_project(),
            };
        }
        if word == GIT_SETTINGS {
            return self.add_git_settings();
        }
        if word.contains('\0') {
            return Ok(());
        }
        if word == PROJECT_WORD {
            return self.add_project();
        }
        let mut places = vec![self.project.join(word)];
        if !word.ends_with('/') {
            places.extend(MODULE_ENDINGS.iter().map(|ending| self.project.join(format!("{word}{ending}"))));
        }
        if !word.contains('/') {
            let project = self.project;
            places.extend(search_path().filter(|folder| folder.starts_with(project)).map(|folder| folder.join(word)));
        }
        for place in places {
            self.add_place(&place, false)?;
            if let Ok(real) = place.canonicalize()
                && real.starts_with(self.project)
                && let Some(program) = LoadingProgram::of_command(&real)
            {
                self.add_loaded(program)?;
            }
        }
        Ok(())
    }

    /// Adds the script `path`, which a command passes to the program `interpreter`, and the files that the script
    /// loads.
    fn add_executed(&mut self, interpreter: &str, path: &str) -> Result<(), TrustError> {
        let place = self.project.join(path);
        self.add_place(&place, false)?;
        let real = place.canonicalize().ok().filter(|real| real.starts_with(self.project));
        let program = real.and_then(|real| LoadingProgram::of_interpreter(interpreter, &real));
        program.map_or(Ok(()), |program| self.add_loaded(program))
    }

    /// Adds every file of the project, except those in [`LEFT_OUT_FOLDERS`] and the lock file.
    pub(super) fn add_project(&mut self) -> Result<(), TrustError> {
        self.covers_project = true;
        self.add_git_settings()?;
        self.add_place(&self.project.join(PROJECT_WORD), true)
    }

    /// Adds every file of the project, because `program` can load any of them. `reason` is the end of a sentence with
    /// the program as its subject.
    pub(super) fn add_project_for(&mut self, program: &LoadingProgram, reason: &str) -> Result<(), TrustError> {
        self.whole_project.get_or_insert_with(|| match program.path() {
            Some(path) => format!("`{}` {reason}", key_of(self.project, path)),
            None => format!("code in an argument {reason}"),
        });
        self.add_project()
    }

    pub(super) fn add_place(&mut self, place: &Path, is_project: bool) -> Result<(), TrustError> {
        let Ok(real) = place.canonicalize() else { return Ok(()) };
        if !real.starts_with(self.project) || (real == *self.project && !is_project) {
            self.add_link(place);
            return Ok(());
        }
        if self.is_unreadable(&real) {
            return Ok(());
        }
        if real.is_dir() {
            return self.add_folder(&real, 0);
        }
        if real.is_file()
            && let Entry::Vacant(hash) = self.hashes.entry(key_of(self.project, &real))
        {
            hash.insert(sha256_of(&real)?);
        }
        Ok(())
    }

    /// Returns true if a file or folder, given by its canonical path, lies in a folder that the sandbox makes
    /// unreadable.
    fn is_unreadable(&self, real: &Path) -> bool {
        self.unreadable.iter().any(|folder| real.starts_with(folder))
    }

    /// Adds a link of the project that leads out of the project, with a hash of the target's path. If the link gets
    /// another target, which may be another program, the trust is revoked.
    fn add_link(&mut self, place: &Path) {
        let Ok(target) = fs::read_link(place) else { return };
        let folder = place.parent().and_then(|folder| folder.canonicalize().ok());
        if let (Some(folder), Some(name)) = (folder, place.file_name())
            && folder.starts_with(self.project)
        {
            let target = Sha256::digest(target.as_os_str().as_encoded_bytes());
            self.hashes.insert(key_of(self.project, &folder.join(name)), format!("link:{}", hex(&target)));
        }
    }

    /// Adds the hash of every file below a folder, and of the targets of links in it. Skips the folders in
    /// [`LEFT_OUT_FOLDERS`] and the lock file.
    fn add_folder(&mut self, folder: &Path, depth: usize) -> Result<(), TrustError> {
        let too_large = |reason: String| TrustError::TooLarge { path: folder.to_path_buf(), reason };
        if self.is_unreadable(folder)
            || !self.folders.insert(folder.to_path_buf())
            || LEFT_OUT_FOLDERS.iter().any(|out| folder == self.project.join(out))
        {
            return Ok(());
        }
        if depth > MAX_DEPTH {
            return Err(too_large(format!("the folder is nested more than {MAX_DEPTH} folders deep")));
        }
        let fail = |source| TrustError::Io { path: folder.to_path_buf(), source };
        let entries = match fs::read_dir(folder) {
            // This user cannot read the folder, so no program of this user can.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            entries => entries.map_err(fail)?,
        };
        for entry in entries {
            let entry = entry.map_err(fail)?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(fail)?);
            if kind.is_dir() {
                self.add_folder(&path, depth + 1)?;
                continue;
            }
            if path == self.project.join(LOCK_FILE) {
                continue;
            }
            if kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device() {
                continue;
            }
            if self.hashes.len() >= MAX_FILES {
                return Err(too_large(format!("the command's folders hold more than {MAX_FILES} files")));
            }
            self.bytes = self.bytes.saturating_add(self.bytes_to_hash(&path));
            if self.bytes > MAX_FOLDER_BYTES {
                return Err(too_large(format!("the command's folders hold more than {} GiB", MAX_FOLDER_BYTES >> 30)));
            }
            self.add_place(&path, false)?;
        }
        Ok(())
    }

    /// Returns the size of a file, or of the file that a link leads to. Returns 0 if the file is hashed already, lies
    /// outside of the project, or is a folder.
    fn bytes_to_hash(&self, path: &Path) -> u64 {
        let Ok(real) = path.canonicalize() else { return 0 };
        let is_counted = real.starts_with(self.project) && !self.hashes.contains_key(&key_of(self.project, &real));
        fs::metadata(&real).map_or(0, |meta| if is_counted && meta.is_file() { meta.size() } else { 0 })
    }
}

/// Returns the key of a path in the trust record: the path relative to the project. If the path is not UTF-8, the key
/// holds its bytes as hexadecimal digits.
fn key_of(project: &Path, path: &Path) -> String {
    let relative = path.strip_prefix(project).unwrap_or(path);
    relative.to_str().map_or_else(|| encoded(relative.as_os_str()), str::to_owned)
}

fn encoded(name: &OsStr) -> String {
    format!("bytes:{}", hex(name.as_encoded_bytes()))
}

/// Returns the SHA-256 of a whole file, lowercase hex; `unreadable` if this user may not read the file.
fn sha256_of(path: &Path) -> Result<String, TrustError> {
    let fail = |source| TrustError::Io { path: path.to_path_buf(), source };
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok("unreadable".to_owned()),
        file => file.map_err(fail)?,
    };
    let mut digest = Sha256::new();
    let mut chunk = vec![0_u8; 256 * 1024];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(hex(&digest.finalize())),
            Ok(n) => digest.update(chunk.get(..n).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(fail(error)),
        }
    }
}
