//! The files of a project that a program of the project loads or starts: modules that a script imports, scripts that it
//! sources or executes. They are found by the words of the program's text, without a parser: a word counts wherever it
//! is, in comments and strings too, so that more files are trusted rather than fewer.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use super::TrustError;
use super::files::{MAX_DEPTH, NamedFiles};

/// Maximum size of a program whose text is read, in bytes. A larger program is trusted together with every file of the
/// project.
const MAX_TEXT_BYTES: u64 = 1 << 20;
/// A program with a NUL among its first bytes is not text.
const BINARY_CHECK_BYTES: u64 = 1 << 10;
/// Maximum number of programs whose texts are read for one requirement. A requirement that leads to more programs
/// includes every file of the project.
const MAX_PROGRAMS: usize = 2_000;
/// Endings of files that an interpreter executes.
const PROGRAM_ENDINGS: [&str; 11] = ["py", "js", "mjs", "cjs", "ts", "mts", "cts", "sh", "bash", "rb", "pl"];
/// Folders with installed packages. The programs in them are not read.
const PACKAGE_FOLDERS: [&str; 3] = ["node_modules", "site-packages", "dist-packages"];

static PATHS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[\w@.+/-]*[./][\w@.+/-]*").ok());
static IDENTIFIERS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[\p{L}_][\p{L}\p{N}_]*").ok());

/// A program whose text is read.
pub(super) struct LoadingProgram {
    file: PathBuf,
    /// The folder of the script that a call starts. A Python program imports modules from it.
    main_folder: PathBuf,
}

impl LoadingProgram {
    /// The script `file`, which a call starts. `None` if the file is not a program whose text can name other files.
    pub fn main(file: &Path) -> Option<Self> {
        let main_folder = file.parent()?.to_path_buf();
        Self { file: file.to_path_buf(), main_folder }.checked()
    }

    /// A file that this program loads or starts.
    fn loaded(&self, file: PathBuf) -> Option<Self> {
        if !self.is_python() {
            return Self::main(&file);
        }
        Self { file, main_folder: self.main_folder.clone() }.checked()
    }

    fn checked(self) -> Option<Self> {
        let is_package = self.file.iter().any(|part| PACKAGE_FOLDERS.iter().any(|folder| part == *folder));
        (!is_package && is_program(&self.file)).then_some(self)
    }

    fn is_python(&self) -> bool {
        self.file.extension().is_some_and(|ending| ending == "py")
    }
}

fn has_program_ending(file: &Path) -> bool {
    file.extension().is_some_and(|ending| PROGRAM_ENDINGS.iter().any(|one| ending == *one))
}

/// Returns true if the ending of a file is that of a program, or if the file is executable.
fn is_program(file: &Path) -> bool {
    has_program_ending(file)
        || fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The Python modules of a folder, by name: files and folders.
type PythonModules = BTreeMap<String, Vec<PathBuf>>;

impl NamedFiles<'_> {
    /// Adds the files that `first` loads or starts, and the files that those load, and so on.
    pub(super) fn add_loaded(&mut self, first: LoadingProgram) -> Result<(), TrustError> {
        let mut waiting = vec![first];
        let mut listings = BTreeMap::new();
        while let Some(program) = waiting.pop() {
            if !self.read.insert(program.file.clone()) {
                continue;
            }
            let text = if self.read.len() > MAX_PROGRAMS { None } else { text_of(&program.file) };
            let Some(text) = text else { return self.add_project() };
            if program.is_python() && text.contains("sys.path") {
                return self.add_project();
            }
            let (mut files, folders) = self.named_paths(&program, &text);
            for folder in folders.iter().filter_map(|folder| folder.canonicalize().ok()) {
                self.add_place(&folder, false)?;
                let known = self.hashes.keys().map(|key| self.project.join(key));
                files.extend(known.filter(|file| file.starts_with(&folder)));
            }
            if program.is_python() {
                for module in self.python_modules(&program, &text, &mut listings) {
                    add_python_files(&module, 0, &mut files);
                }
            }
            for file in files {
                self.add_place(&file, false)?;
                if let Ok(real) = file.canonicalize()
                    && real.starts_with(self.project)
                {
                    waiting.extend(program.loaded(real));
                }
            }
        }
        Ok(())
    }

    /// Returns the programs whose paths a text names, relative to the project or to the folder of the program, and the
    /// folders in front of a placeholder (`./plugins/${name}.js`).
    fn named_paths(&self, program: &LoadingProgram, text: &str) -> (BTreeSet<PathBuf>, BTreeSet<PathBuf>) {
        let (mut files, mut folders) = (BTreeSet::new(), BTreeSet::new());
        let Some(own) = program.file.parent() else { return (files, folders) };
        let words = PATHS.iter().flat_map(|paths| paths.find_iter(text)).map(|word| {
            let is_prefix = word.as_str().ends_with('/') && text[word.end()..].starts_with(['$', '{']);
            // `$FOLDER/lib.sh`: the value of the variable is unknown.
            let is_variable = text[..word.start()].ends_with(['$', '{']);
            let own = word.as_str().split_once('/').filter(|_| is_variable).map_or(word.as_str(), |(_, rest)| rest);
            (own.trim_start_matches('/'), is_prefix)
        });
        for (word, is_prefix) in words.collect::<BTreeSet<_>>() {
            for place in [own.join(word), self.project.join(word)] {
                if is_prefix && word.contains(char::is_alphanumeric) && place.is_dir() {
                    folders.insert(place);
                    continue;
                }
                let mut candidates = vec![place.clone()];
                if word.starts_with('.') {
                    let path = place.display();
                    candidates.extend(PROGRAM_ENDINGS.iter().map(|ending| PathBuf::from(format!("{path}.{ending}"))));
                    candidates.extend(PROGRAM_ENDINGS.iter().map(|ending| place.join(format!("index.{ending}"))));
                }
                files.extend(candidates.into_iter().filter(|file| is_program(file) && file.is_file()));
            }
        }
        (files, folders)
    }

    /// Returns the modules and packages whose names a Python text contains, in the folders from which the program can
    /// import: the folder of the started script, the program's own folder, and the folders between them.
    fn python_modules(
        &self,
        program: &LoadingProgram,
        text: &str,
        listings: &mut BTreeMap<PathBuf, PythonModules>,
    ) -> BTreeSet<PathBuf> {
        let names = IDENTIFIERS.iter().flat_map(|names| names.find_iter(text)).map(|name| name.as_str());
        let names: BTreeSet<&str> = names.collect();
        let between = program.file.ancestors().skip(1).take_while(|folder| folder.starts_with(&program.main_folder));
        let mut folders: BTreeSet<&Path> = between.chain(program.file.parent()).collect();
        folders.insert(&program.main_folder);
        let mut found = BTreeSet::new();
        for folder in folders.into_iter().filter(|folder| folder.starts_with(self.project)) {
            let modules = listings.entry(folder.to_path_buf()).or_insert_with(|| python_modules_in(folder));
            found.extend(names.iter().filter_map(|name| modules.get(*name)).flatten().cloned());
        }
        found.remove(&program.file);
        found
    }
}

/// Returns the files and folders of a folder that a Python program can import, by the name of the module.
fn python_modules_in(folder: &Path) -> PythonModules {
    let mut modules = PythonModules::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if let Some(module) = name.split('.').next().filter(|_| path.is_dir() || is_python_module(&path)) {
            modules.entry(module.to_owned()).or_default().push(path.clone());
        }
    }
    modules
}

/// Adds a Python module and, if it is a folder, every Python file in it.
fn add_python_files(module: &Path, depth: usize, files: &mut BTreeSet<PathBuf>) {
    if !module.is_dir() {
        if is_python_module(module) {
            files.insert(module.to_path_buf());
        }
        return;
    }
    let is_package = PACKAGE_FOLDERS.iter().any(|folder| module.ends_with(folder));
    if depth > MAX_DEPTH || files.len() > MAX_PROGRAMS || is_package {
        return;
    }
    for entry in fs::read_dir(module).into_iter().flatten().flatten() {
        add_python_files(&entry.path(), depth + 1, files);
    }
}

/// Returns true if Python can import a file as a module.
fn is_python_module(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ["py", "pyc", "so"].iter().any(|one| ending == *one))
}

/// Returns the text of a program; `None` if it is larger than `MAX_TEXT_BYTES`. A machine program, and a program that
/// cannot be read, has an empty text.
fn text_of(file: &Path) -> Option<String> {
    let Ok(mut opened) = File::open(file) else { return Some(String::new()) };
    let mut bytes = Vec::new();
    let start = opened.by_ref().take(BINARY_CHECK_BYTES).read_to_end(&mut bytes);
    if start.is_err() || (!has_program_ending(file) && bytes.contains(&0)) {
        return Some(String::new());
    }
    opened.take(MAX_TEXT_BYTES).read_to_end(&mut bytes).ok()?;
    (u64::try_from(bytes.len()).is_ok_and(|len| len <= MAX_TEXT_BYTES))
        .then(|| String::from_utf8_lossy(&bytes).into_owned())
}
