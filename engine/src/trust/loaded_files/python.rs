//! Finds the modules of the project that a Python program can import, by the names in the text of the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use super::{IDENTIFIERS, Language, LoadingProgram, MAX_DEPTH, MAX_PROGRAMS, is_left_out, quoted_texts};
use crate::trust::files::NamedFiles;

/// The files and folders in a folder that Python can import, by the name of the module.
pub(super) type PythonModules = BTreeMap<String, Vec<PathBuf>>;

/// Name of the folder in which Python stores compiled modules. Python can load a compiled module in place of its
/// source.
pub(super) const COMPILED_FOLDER: &str = "__pycache__";
/// Matches uses of `sys.path`, and functions that change the folders from which a program imports.
static SEARCH_PATH: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let spaces = r"[\s\\)]*";
    let from_sys = r"from\s+sys\s+import\s*(?:\([^)]*|[^;\n]*)(?:\bpath\b|\*)";
    let attributes = r"\b[gs]etattr\s*\(\s*sys\b|\bvars\s*\(\s*sys\b|\bsys\s*\.\s*__dict__";
    Regex::new(&format!(r"\bsys{spaces}\.{spaces}path|addsitedir|{from_sys}|{attributes}")).ok()
});
/// Matches code that gives another name to the module `sys`. One of the capture groups holds the name.
static NAMES_OF_SYS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\bsys\s+as\s+(\w+)|(\w+)\s*=\s*sys\s*(?:[;,#\n]|$)").ok());

/// Extensions of the files from which Python can import, and of `.pth` files, which add folders to Python's search
/// path.
const IMPORTABLE_ENDINGS: [&str; 8] = ["py", "pyc", "pyi", "so", "pyd", "pth", "zip", "egg"];

/// Adds the files in a folder, and in the folders below, from which a Python program can import. Enters no further
/// folder once there are more than [`MAX_PROGRAMS`] files.
pub(super) fn add_importable_files(folder: &Path, depth: usize, files: &mut BTreeSet<PathBuf>) {
    if depth > MAX_DEPTH || files.len() > MAX_PROGRAMS || folder.ends_with(".git") || folder.ends_with(".ai/state") {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // Python also imports from a folder behind a link. The depth bounds cycles of links.
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        if path.is_dir() {
            add_importable_files(&path, depth + if is_link { MAX_DEPTH / 4 } else { 1 }, files);
        } else if path.extension().is_some_and(|ending| IMPORTABLE_ENDINGS.iter().any(|one| ending == *one)) {
            files.insert(path);
        }
    }
}

impl NamedFiles<'_> {
    /// Returns the programs that `python3 -m` runs for the module `module` in the working folder `folder`. `module` is
    /// a path without an extension. The result always contains `module.py`, even if this file does not exist, because
    /// Python also imports other modules from `folder`.
    pub(super) fn programs_of_module(folder: &Path, module: &str) -> Vec<LoadingProgram> {
        let place = folder.join(module);
        let mut files = BTreeSet::from([folder.join(format!("{module}.py"))]);
        let packages = place.ancestors().take_while(|package| *package != folder);
        files.extend(packages.map(|package| package.join("__init__.py")).filter(|file| file.is_file()));
        if let (Some(above), Some(name)) = (place.parent(), place.file_name().and_then(|name| name.to_str())) {
            files.extend(python_modules_in(above).remove(name).into_iter().flatten().filter(|file| file.is_file()));
        }
        let main = fs::read_dir(&place).into_iter().flatten().flatten().map(|entry| entry.path());
        files.extend(main.filter(|file| file.file_stem().is_some_and(|stem| stem == "__main__")));
        let program = |file| LoadingProgram {
            file,
            main_folder: folder.to_path_buf(),
            is_tool: false,
            language: Some(Language::Python),
            code: None,
        };
        files.into_iter().map(program).collect()
    }

    /// Returns the files of the modules and packages whose names a Python text contains, in the folders from which the
    /// program can import: the folder of the started script, the program's own folder, and the folders between them.
    pub(super) fn python_files(
        &self,
        program: &LoadingProgram,
        text: &str,
        listings: &mut BTreeMap<PathBuf, PythonModules>,
    ) -> BTreeSet<PathBuf> {
        let names = IDENTIFIERS.iter().flat_map(|names| names.find_iter(text)).map(|name| name.as_str());
        let mut names: BTreeSet<&str> = names.collect();
        // Python normalizes names with letters outside of ASCII, so such a name can match any module.
        let is_any = names.iter().any(|name| !name.is_ascii());
        // `import_module("my-mod.part")`
        names.extend(quoted_texts(text).flat_map(|quoted| quoted.split('.')));
        let between = program.file.ancestors().skip(1).take_while(|folder| folder.starts_with(&program.main_folder));
        let mut folders: BTreeSet<&Path> = between.chain(program.file.parent()).collect();
        folders.insert(&program.main_folder);
        let mut found = BTreeSet::new();
        for folder in folders.into_iter().filter(|folder| folder.starts_with(self.project)) {
            let modules = listings.entry(folder.to_path_buf()).or_insert_with(|| python_modules_in(folder));
            // The modules of this folder shadow modules that other modules import, such as `re`, so the text need not
            // name them.
            let replaces = !program.is_tool && folder == program.main_folder;
            for (name, module) in modules.iter().flat_map(|(name, paths)| paths.iter().map(move |path| (name, path))) {
                let is_named = is_any || names.contains(name.as_str());
                if is_named || (replaces && (!module.is_dir() || has_init(module))) {
                    add_python_files(module, 0, &mut found);
                }
            }
        }
        if !program.is_tool {
            let compiled = compiled_files(found.iter().chain(std::iter::once(&program.file)));
            found.extend(compiled);
        }
        found.remove(&program.file);
        found
    }
}

/// Returns true if a Python text can change the folders from which the program imports.
pub(super) fn changes_search_path(text: &str) -> bool {
    let other_names = NAMES_OF_SYS.iter().flat_map(|names| names.captures_iter(text));
    let mut other_names = other_names.filter_map(|found| found.iter().skip(1).flatten().next());
    SEARCH_PATH.iter().any(|path| path.is_match(text))
        || other_names.any(|name| {
            let attribute = Regex::new(&format!(r"\b{}\s*\.\s*path", regex::escape(name.as_str())));
            attribute.is_ok_and(|attribute| attribute.is_match(text))
        })
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

fn has_init(folder: &Path) -> bool {
    ["__init__.py", "__init__.pyc"].iter().any(|name| folder.join(name).exists())
}

/// Returns the compiled forms of Python source files. Reads the folder with the compiled forms once for all files of
/// one folder.
fn compiled_files<'f>(files: impl Iterator<Item = &'f PathBuf>) -> Vec<PathBuf> {
    let mut stems: BTreeMap<&Path, BTreeSet<&str>> = BTreeMap::new();
    for file in files {
        if let (Some(folder), Some(stem)) = (file.parent(), file.file_stem().and_then(|stem| stem.to_str())) {
            stems.entry(folder).or_default().insert(stem);
        }
    }
    let in_folder = |(folder, stems): (&Path, BTreeSet<&str>)| {
        let entries = fs::read_dir(folder.join(COMPILED_FOLDER)).into_iter().flatten().flatten();
        let compiled = entries.map(|entry| entry.path()).filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let stem = name.split('.').next().unwrap_or_default();
            path.extension().is_some_and(|ending| ending == "pyc") && stems.contains(stem)
        });
        compiled.collect::<Vec<_>>()
    };
    stems.into_iter().flat_map(in_folder).collect()
}

/// Adds a Python module and, if it is a folder, every Python file in it.
fn add_python_files(module: &Path, depth: usize, files: &mut BTreeSet<PathBuf>) {
    if !module.is_dir() {
        if is_python_module(module) {
            files.insert(module.to_path_buf());
        }
        return;
    }
    if depth > MAX_DEPTH || files.len() > MAX_PROGRAMS || is_left_out(module) {
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
