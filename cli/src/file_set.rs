//! The files that a command writes. If the command fails, created files are removed, and replaced files get their
//! earlier contents. The user can then repeat the command.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rye_engine::rooted_dir::RootedDir;
use rye_engine::trust::WrittenFile;

use crate::CommandError;
use crate::report::{Printer, printable};

/// Maximum size in bytes of a file that is replaced or removed.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// A change on disk that is undone if the command fails. Each path is relative to the root of the set.
#[derive(Debug)]
enum UndoableChange {
    CreatedFolder(PathBuf),
    CreatedFile(PathBuf),
    /// A file that was replaced or removed, with its earlier contents.
    ChangedFile(PathBuf, Vec<u8>),
}

/// The files below one folder that a command has written. Unless the command calls [`FileSet::keep`], dropping the set
/// undoes all changes, the last change first.
#[derive(Debug)]
pub struct FileSet {
    within: RootedDir,
    /// The path of the root as messages show it; empty if the root is the project.
    shown: PathBuf,
    /// The folders that were created so that the root exists, outermost first.
    created_roots: Vec<PathBuf>,
    changes: Vec<UndoableChange>,
    written: Vec<WrittenFile>,
    report: Printer,
}

impl FileSet {
    /// Opens a set for files of a project. Messages name the files relative to the project.
    pub fn open(project: &Path, report: &Printer) -> Result<Self, CommandError> {
        let within = RootedDir::open(project).map_err(|error| failed("opened", project, &error))?;
        Ok(Self {
            within,
            shown: PathBuf::new(),
            created_roots: Vec::new(),
            changes: Vec::new(),
            written: Vec::new(),
            report: report.clone(),
        })
    }

    /// Opens a set for files below a folder, which is created if it does not exist. Messages name the files with the
    /// path of the folder.
    pub fn create_root(root: &Path, report: &Printer) -> Result<Self, CommandError> {
        let missing: Vec<PathBuf> =
            root.ancestors().take_while(|folder| !folder.exists()).map(Path::to_owned).collect();
        let mut created_roots = Vec::new();
        let opened = missing.into_iter().rev().filter(|folder| !folder.as_os_str().is_empty()).try_for_each(|folder| {
            fs::create_dir(&folder)?;
            created_roots.push(folder);
            Ok(())
        });
        let opened = opened.and_then(|()| RootedDir::open(root));
        match opened {
            Ok(within) => Ok(Self {
                within,
                shown: root.to_owned(),
                created_roots,
                changes: Vec::new(),
                written: Vec::new(),
                report: report.clone(),
            }),
            Err(error) => {
                remove_folders(&created_roots);
                Err(failed("created", root, &error))
            }
        }
    }

    /// Reads a file of the set; `None` if it does not exist.
    pub fn read(&self, path: &Path, max_bytes: u64) -> Result<Option<Vec<u8>>, CommandError> {
        self.within.read(path, max_bytes).map_err(|error| self.failed("read", path, &error))
    }

    /// Creates a file and its missing parent folders. Fails if the path exists.
    pub fn create(&mut self, path: &Path, bytes: &[u8]) -> Result<(), CommandError> {
        self.create_folder(path.parent().unwrap_or(Path::new("")))?;
        match self.within.create(path, bytes) {
            Ok(()) => {
                self.written.push(WrittenFile::new(path.display().to_string(), None, Some(bytes)));
                self.changes.push(UndoableChange::CreatedFile(path.to_owned()));
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let path = self.shown.join(path);
                Err(CommandError::failed(format!("`{}` already exists", path.display())))
            }
            Err(error) => Err(self.failed("written", path, &error)),
        }
    }

    /// Writes a file and creates its missing parent folders. Replaces a file that exists. Returns the file with the
    /// hashes of both contents.
    pub fn replace(&mut self, path: &Path, bytes: &[u8]) -> Result<WrittenFile, CommandError> {
        self.create_folder(path.parent().unwrap_or(Path::new("")))?;
        let before = self.within.check_replaceable(path).and_then(|()| self.within.read(path, MAX_FILE_BYTES));
        let before = before.map_err(|error| self.failed("written", path, &error))?;
        self.within.replace(path, bytes).map_err(|error| self.failed("written", path, &error))?;
        let written = WrittenFile::new(path.display().to_string(), before.as_deref(), Some(bytes));
        self.written.push(written.clone());
        self.changes.push(match before {
            Some(before) => UndoableChange::ChangedFile(path.to_owned(), before),
            None => UndoableChange::CreatedFile(path.to_owned()),
        });
        Ok(written)
    }

    /// Removes a file. If the command fails, the file is written again with its contents.
    pub fn remove(&mut self, path: &Path) -> Result<(), CommandError> {
        let before = self.within.read(path, MAX_FILE_BYTES).map_err(|error| self.failed("removed", path, &error))?;
        self.within.remove(path).map_err(|error| self.failed("removed", path, &error))?;
        self.changes.extend(before.map(|before| UndoableChange::ChangedFile(path.to_owned(), before)));
        Ok(())
    }

    /// Creates a folder and its missing parent folders.
    pub fn create_folder(&mut self, folder: &Path) -> Result<(), CommandError> {
        let mut created = Vec::new();
        let done = self.within.create_folder(folder, &mut created);
        self.changes.extend(created.into_iter().map(UndoableChange::CreatedFolder));
        done.map_err(|error| self.failed("created", folder, &error))
    }

    /// Returns the files that the command has written, in the order of the writes.
    pub fn written(&self) -> &[WrittenFile] {
        &self.written
    }

    /// Keeps all changes. The command calls this after it has succeeded.
    pub fn keep(mut self) {
        self.changes.clear();
        self.created_roots.clear();
    }

    fn failed(&self, doing: &str, path: &Path, error: &io::Error) -> CommandError {
        failed(doing, &self.shown.join(path), error)
    }

    fn undo(&self, change: &UndoableChange) -> io::Result<()> {
        match change {
            // If another program has created a file in the folder, the folder stays.
            UndoableChange::CreatedFolder(folder) => self.within.remove_folder(folder).or(Ok(())),
            UndoableChange::CreatedFile(path) => self.within.remove(path),
            UndoableChange::ChangedFile(path, before) => self.within.replace(path, before),
        }
    }
}

impl Drop for FileSet {
    fn drop(&mut self) {
        for change in std::mem::take(&mut self.changes).iter().rev() {
            if let (Err(error), UndoableChange::CreatedFile(path) | UndoableChange::ChangedFile(path, _)) =
                (self.undo(change), change)
            {
                let path = self.shown.join(path);
                let text = format!("warning: the change of `{}` cannot be undone: {error}", path.display());
                self.report.note(&printable(&text));
            }
        }
        remove_folders(&self.created_roots);
    }
}

/// Removes folders that the command has created, if they are empty.
fn remove_folders(folders: &[PathBuf]) {
    for folder in folders.iter().rev() {
        fs::remove_dir(folder).ok();
    }
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> CommandError {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    CommandError::failed(format!("`{}` cannot be {doing}: {error}", path.display()))
}
