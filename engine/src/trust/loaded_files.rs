//! Finds the files of a project that a program of the project loads or starts, such as modules that a script imports,
//! and scripts that a script sources or executes. The text of the program is searched for file names and not parsed.
//! Names in comments and strings count too, because a file that is not found would run without the user's trust.

mod build;
mod computed;
mod packages;
mod program;
mod python;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;
use rye_compiler::command_files::{
    CODE_OF, COMPUTED, EVERY_FILE, EXECUTED_BY, IN_ANY_FOLDER, MODULE, PROJECT_WORD, SEARCHED, files_of_shell_text,
};

use computed::ProgramStarts;
pub(super) use program::LoadingProgram;
use program::{
    Language, PACKAGE_FILE, PACKAGE_FOLDERS, PROGRAM_ENDINGS, has_program_ending, is_program, is_script,
    without_escapes,
};
use python::{COMPILED_FOLDER, add_importable_files, changes_search_path};

use super::TrustError;
use super::files::{MAX_DEPTH, NamedFiles};

/// Maximum size in bytes of a program whose text is searched. If a program is larger, its trust requirement covers
/// every file of the project.
const MAX_TEXT_BYTES: u64 = 1 << 20;
/// Number of bytes at the start of a file in which a NUL shows that the file is not text.
const BINARY_CHECK_BYTES: u64 = 1 << 10;
/// Maximum number of programs whose texts are searched for one trust requirement. If there are more, the requirement
/// covers every file of the project.
const MAX_PROGRAMS: usize = 2_000;
/// Maximum number of folders in which the file names of a script are searched, because the script can enter them (with
/// `cd`, for example). If a script names more folders, the trust requirement covers every file of the project.
const MAX_ENTERED_FOLDERS: usize = 100;
/// Maximum depth of folders in the name of a module (`A::B::C`).
const MAX_MODULE_DEPTH: usize = 8;
/// Maximum number of entries of a folder in which a glob for inner folders (`*/x.sh`) is resolved. If the folder has
/// more entries, the trust requirement covers every file of the project.
const MAX_INNER_FOLDERS: usize = 1_000;
/// Maximum number of entries of a project in which a file is searched if only the end of its path is known. If the
/// project has more entries, the trust requirement covers every file of the project.
const MAX_SEARCHED_ENTRIES: usize = 20_000;
/// Maximum number of files in a text of which only the end of the path is known.
const MAX_ENDS: usize = 100;
/// The reason why a program with a computed file name can load every file of the project.
const COMPUTED_REASON: &str = "starts a program or loads a file whose name is computed";
/// Names of the files that an interpreter executes if a command passes a folder to it.
const MAIN_FILES: [&str; 5] = ["__main__.py", "index.js", "index.mjs", "index.cjs", PACKAGE_FILE];
static PATHS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[\w@.+/-]*[./][\w@.+/-]*").ok());
static QUOTED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#""([^"\n]{1,1024})"|'([^'\n]{1,1024})'|`([^`\n]{1,1024})`"#).ok());
/// Matches a word that a shell, an interpreter or a build file executes. Group 1 holds the program that executes the
/// word, and group 2 the word.
static EXECUTED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let programs = r"sh|bash|dash|zsh|ksh|source|\.|python[\d.]*|node|perl|ruby|lua|php|-?include";
    Regex::new(&format!(
        r#"(?m)(?:^|[\s;&|@('"`])(?:({programs})(?:\s+-\S+)*\s+|script-shell\s*=\s*)['"]?([\w@.+/-]+)"#
    ))
    .ok()
});
/// Matches the names of interpreters that load modules by their names.
static INTERPRETERS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\b(?:python[\d.]*|perl|ruby|lua|php)\b").ok());
/// Matches a path of which neither the folder nor the file name is known: `$D/$N.sh`, `$D/*.sh`.
static OPEN_PATHS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"(?:\$[\w({]+[)}]?|\*)["']?/["']?[$*?\[{]"#).ok());
/// Matches git as a program of a command, or as a module that starts git.
static GIT: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"(?:^|[\s"'`(;|&@/])(?:git|gh|pre-commit)(?:$|[\s"'`);|&])"#).ok());
static IDENTIFIERS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[\p{L}_][\p{L}\p{N}_]*").ok());

/// A word of a program's text that can name a file.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NamedWord {
    word: String,
    /// True if the word is the folder of a path whose rest is unknown, such as `lib/` in `lib/$NAME`.
    is_prefix: bool,
    /// True if the folder of the file is a glob, as in `*/lib.sh`.
    is_behind_glob: bool,
    /// True if the file counts as loaded whatever its extension is.
    is_any: bool,
}

/// The files and folders that a text names. Every file in `folders`, and every program in `program_folders`, counts as
/// named.
#[derive(Debug, Default)]
struct NamedPaths {
    files: BTreeSet<PathBuf>,
    folders: BTreeSet<PathBuf>,
    program_folders: BTreeSet<PathBuf>,
    /// Programs that the text starts with a certain interpreter or in a certain folder.
    started: BTreeSet<LoadingProgram>,
    /// The reason why the program can load every file of the project; `None` if it cannot.
    whole_project: Option<&'static str>,
}

impl NamedFiles<'_> {
    /// Adds the files that the program `first` loads or starts, and the files that these files load or start, and so
    /// on.
    pub(super) fn add_loaded(&mut self, first: LoadingProgram) -> Result<(), TrustError> {
        let mut waiting = vec![first];
        let mut listings = BTreeMap::new();
        // The files that are handled, with the main folder and the kind of a Python program that imports them: what a
        // file loads depends on nothing else. Programs that import each other name the same files again and again.
        let mut handled: BTreeSet<(PathBuf, Option<(PathBuf, bool)>)> = BTreeSet::new();
        while let Some(program) = waiting.pop() {
            if !self.read.insert(program.clone()) {
                continue;
            }
            if self.read.len() > MAX_PROGRAMS {
                return self.add_project_for(&program, "is one of more than 2,000 programs that load each other");
            }
            let Some(text) = program.code.clone().or_else(|| text_of(&program.file)) else {
                return self.add_project_for(&program, "is larger than 1 MiB");
            };
            let language = program.language.unwrap_or_else(|| Language::of(&program.file, &text));
            let named = self.named_paths(&program.file, &text, language);
            let NamedPaths { mut files, folders, program_folders, started, whole_project } = named;
            if let Some(reason) = whole_project {
                return self.add_project_for(&program, reason);
            }
            if GIT.iter().any(|git| git.is_match(&text)) {
                self.add_git_settings()?;
            }
            let project = self.project;
            for started in started.into_iter().filter(|program| program.file.starts_with(project)) {
                self.add_place(&started.file, false)?;
                waiting.push(started);
            }
            for folder in &program_folders {
                add_programs(folder, 0, &mut files);
            }
            for folder in folders.iter().filter_map(|folder| folder.canonicalize().ok()) {
                self.add_place(&folder, false)?;
                let known = self.hashes.keys().map(|key| self.project.join(key));
                files.extend(known.filter(|file| file.starts_with(&folder) && is_program(file)));
            }
            if language == Language::Python {
                if changes_search_path(&text) {
                    let mut found = BTreeSet::new();
                    add_importable_files(self.project, 0, &mut found);
                    if found.len() > MAX_PROGRAMS {
                        let reason =
                            "changes the folders of its imports, and the project has more than 2,000 Python files";
                        return self.add_project_for(&program, reason);
                    }
                    files.extend(found);
                }
                files.extend(self.python_files(&program, &text, &mut listings));
            }
            let importer = (language == Language::Python).then(|| (program.main_folder.clone(), program.is_tool));
            for file in files {
                if !handled.insert((file.clone(), importer.clone())) {
                    continue;
                }
                self.add_place(&file, false)?;
                if let Ok(real) = file.canonicalize()
                    && real.starts_with(self.project)
                {
                    waiting.extend(program.loaded(&real, language));
                }
            }
        }
        Ok(())
    }

    /// Adds the Python module `module`, which a command starts by `python3 -m` with the project as its working folder,
    /// and the files that the module loads.
    pub(super) fn add_module(&mut self, module: &str) -> Result<(), TrustError> {
        for program in Self::programs_of_module(self.project, module) {
            self.add_place(&program.file, false)?;
            self.add_loaded(program)?;
        }
        Ok(())
    }

    /// Returns the files and folders that the text of the program `file` names. A name can be relative to the project,
    /// to the folder of `file`, or to a folder that the program can enter.
    fn named_paths(&self, file: &Path, text: &str, language: Language) -> NamedPaths {
        let mut named = NamedPaths::default();
        let with_plain = (language == Language::JavaScript && text.contains('\\'))
            .then(|| format!("{text}\n{}", without_escapes(text)));
        let text = with_plain.as_deref().unwrap_or(text);
        let Some(own) = file.parent() else { return named };
        let is_shell = matches!(language, Language::Shell | Language::Modular);
        let loads_any = |word: &str| language == Language::JavaScript && word.starts_with('.');
        let mut words: BTreeSet<NamedWord> = PATHS
            .iter()
            .flat_map(|paths| paths.find_iter(text))
            .map(|word| {
                let is_prefix = word.as_str().ends_with('/') && text[word.end()..].starts_with(['$', '{']);
                // `$FOLDER/lib.sh`: the value of the variable is unknown.
                let before = &text[..word.start()];
                let is_variable = before.ends_with(['$', '{']);
                let own = word.as_str().split_once('/').filter(|_| is_variable).map_or(word.as_str(), |(_, rest)| rest);
                // `$(FOLDER)/lib.sh`, `*/lib.sh`
                let is_open = is_variable || (own.starts_with('/') && before.ends_with([')', '}', '*', '"']));
                let is_behind_glob = is_open && before.ends_with('*');
                // `~+/lib.sh`
                let own = own.strip_prefix("+/").filter(|_| before.ends_with('~')).unwrap_or(own);
                let is_open = is_open || before.ends_with('~');
                let word = own.trim_start_matches('/').to_owned();
                let is_any = loads_any(&word) || (is_shell && is_open);
                NamedWord { word, is_prefix, is_behind_glob, is_any }
            })
            .collect();
        words.extend(quoted_texts(text).map(|word| {
            let word = word.to_owned();
            NamedWord { is_any: loads_any(&word), word, is_prefix: false, is_behind_glob: false }
        }));
        let word = |word: String, is_prefix| NamedWord { word, is_prefix, is_any: true, is_behind_glob: false };
        let mut shell_words = Vec::new();
        if language.starts_programs() {
            let executed = EXECUTED.iter().flat_map(|executed| executed.captures_iter(text));
            let executed: Vec<(&str, &str)> = executed
                .filter_map(|found| Some((found.get(1).map_or("", |program| program.as_str()), found.get(2)?.as_str())))
                .collect();
            for (interpreter, name) in &executed {
                named.add_started(interpreter, &[own, self.project], name);
            }
            let executed: Vec<&str> = executed.into_iter().map(|(_, name)| name).collect();
            // `python3 lib`
            let main_files = |name: &str| MAIN_FILES.map(|main| self.project.join(name).join(main));
            named.files.extend(executed.iter().flat_map(|name| main_files(name)).filter(|file| file.is_file()));
            words.extend(executed.into_iter().map(|name| word(name.to_owned(), false)));
        }
        if is_shell {
            // A shell sources files of any name. A word that ends with a slash stands for every file of the folder.
            let first = text.lines().next().filter(|line| line.starts_with("#!")).unwrap_or_default();
            shell_words = files_of_shell_text(&text[first.len()..]);
            if language == Language::Shell {
                named.add_computed(&shell_words, self.project);
            }
            let shell = shell_words.iter().filter(|word| *word != PROJECT_WORD && !word.contains('\0'));
            words.extend(shell.map(|name| word(name.clone(), name.ends_with('/'))));
            words.retain(|word| !is_only_written(text, &word.word));
        }
        let mut folders = vec![own.to_path_buf(), self.project.to_path_buf()];
        if language.starts_programs() {
            let module_names: BTreeSet<&str> = names_in(text);
            let entered = words.iter().map(|word| word.word.trim_matches('/')).chain(module_names.iter().copied());
            let entered = named.entered_folders(&[self.project, own], &entered.collect());
            if OPEN_PATHS.iter().any(|open| open.is_match(text)) {
                named.program_folders.extend(entered.iter().cloned());
            }
            // `cd lib && bash x.sh`, `D=lib; . "$D/x.sh"`.
            folders.extend(entered);
            if language == Language::Modular || INTERPRETERS.iter().any(|interpreters| interpreters.is_match(text)) {
                for folder in &folders {
                    add_modules(folder, &module_names, 0, &mut named.files);
                }
            }
        }
        named.add_starts(&ProgramStarts::of(text, language), text, [own, self.project]);
        named.add_package(language, own, text, self.project);
        if language == Language::Build {
            named.add_build(file, text, [own, self.project]);
        }
        // Without `cd`, the scripts of a package start in the folder of the package.
        let starts_here = language == Language::Package && !text.contains("cd ");
        for word in &shell_words {
            named.add_shell_word(word, &folders);
        }
        for word in &words {
            if let Some(dots) = word.dots_before_open_part(language) {
                // `./${name}.js` is relative to the file in an import, and to the project in the start of a program.
                let folder = own.join(dots).canonicalize().ok();
                named.folders.extend(folder.filter(|folder| folder != self.project));
                named.program_folders.extend((!dots.contains("..")).then(|| self.project.to_path_buf()));
            }
            let is_dots = starts_here && !word.word.contains(char::is_alphanumeric);
            for folder in folders.iter().take(if is_dots { 2 } else { folders.len() }) {
                named.add(&folder.join(word.word.trim_start_matches('/')), word, language);
                if word.is_behind_glob {
                    named.add_behind_glob(folder, word, language);
                }
            }
        }
        named
    }
}

impl NamedWord {
    /// Returns the start of the word if it consists only of `./` and `../` and an unknown part follows: `./` for
    /// `./${name}.js`. `None` for any other word, and for languages other than Python and JavaScript.
    fn dots_before_open_part(&self, language: Language) -> Option<&str> {
        let template = self.word.split_once("${").map(|(start, _)| start);
        let start = template.or(self.is_prefix.then_some(&self.word)).filter(|start| start.ends_with('/'))?;
        let is_dots = start.starts_with('.') && start.chars().all(|c| matches!(c, '.' | '/'));
        (is_dots && matches!(language, Language::Python | Language::JavaScript)).then_some(start)
    }
}

impl NamedPaths {
    /// Adds a script that a text passes to the program `interpreter`. `name` is the path of the script in one of the
    /// folders. Adds nothing if the extension of the script shows the same language, because the script is then found
    /// by its name.
    fn add_started(&mut self, interpreter: &str, folders: &[&Path], name: &str) {
        let Some(language) = Language::of_interpreter(interpreter) else { return };
        let files = folders.iter().filter_map(|folder| folder.join(name.trim_start_matches('/')).canonicalize().ok());
        let programs = files.filter_map(|file| LoadingProgram::of_interpreter(interpreter, &file));
        // A script whose extension shows the same language is found by its name.
        self.started.extend(programs.filter(|program| Language::of(&program.file, "") != language));
    }

    /// Adds the files that a shell text executes by computed names. `words` are the words of the text that
    /// [`files_of_shell_text`] returns. Sets `whole_project` if the files cannot be determined.
    fn add_computed(&mut self, words: &[String], project: &Path) {
        let has = |marker: &str| words.iter().any(|word| word == marker);
        if has(EVERY_FILE) {
            self.whole_project = Some("passes code to an interpreter, or starts the programs that a search finds");
        } else if has(COMPUTED) {
            self.whole_project = Some(COMPUTED_REASON);
        }
        let ends: Vec<&Path> =
            words.iter().filter_map(|word| word.strip_prefix(IN_ANY_FOLDER)).map(Path::new).collect();
        if ends.len() > MAX_ENDS {
            self.whole_project = Some("executes more than 100 files in folders that it computes");
        } else if !ends.is_empty() && add_files_with_ends(project, &ends, (0, &mut 0), &mut self.files).is_none() {
            self.whole_project =
                Some("executes a file in a folder that it computes, and the project is too large for a search");
        }
    }

    /// Adds the program, module or folder that a word with a prefix such as `CODE_OF` stands for. Ignores a word
    /// without such a prefix.
    fn add_shell_word(&mut self, word: &str, folders: &[PathBuf]) {
        if let Some((interpreter, name)) = word.strip_prefix(EXECUTED_BY).and_then(|word| word.split_once('\0')) {
            let folders: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
            self.add_started(interpreter, &folders, name);
        } else if let Some((interpreter, code)) = word.strip_prefix(CODE_OF).and_then(|word| word.split_once('\0')) {
            let started = folders.iter().filter_map(|folder| LoadingProgram::of_code(interpreter, code, folder));
            self.started.extend(started);
        } else if let Some(module) = word.strip_prefix(MODULE) {
            self.started.extend(folders.iter().flat_map(|folder| NamedFiles::programs_of_module(folder, module)));
        } else if let Some(name) = word.strip_prefix(SEARCHED) {
            self.folders.extend(folders.iter().map(|folder| folder.join(name)).filter(|folder| folder.is_dir()));
        }
    }

    /// Adds the programs that a Python or JavaScript text starts, and the files that their commands name. `places` are
    /// the folder of the text's file and the project.
    fn add_starts(&mut self, starts: &ProgramStarts, text: &str, places: [&Path; 2]) {
        if starts.is_computed {
            self.whole_project = Some(COMPUTED_REASON);
        }
        if starts.words.is_empty() {
            return;
        }
        let names = starts.words.iter().map(String::as_str).chain(quoted_texts(text));
        let entered = self.entered_folders(&places, &names.map(|name| name.trim_matches('/')).collect());
        let folders: Vec<PathBuf> = places.map(Path::to_path_buf).into_iter().chain(entered).collect();
        for word in &starts.words {
            self.add_shell_word(word, &folders);
            for place in folders.iter().filter(|_| !word.contains('\0')).map(|folder| folder.join(word)) {
                let mut files = vec![place.clone()];
                files.extend(MAIN_FILES.map(|main| place.join(main)));
                let files: Vec<PathBuf> = files.into_iter().filter(|file| file.is_file()).collect();
                let real = files.iter().filter_map(|file| file.canonicalize().ok());
                // A started interpreter imports from the folder of its script.
                self.started.extend(real.filter_map(|file| LoadingProgram::of_command(&file)));
                self.files.extend(files);
                self.folders.extend(Some(place).filter(|place| word.ends_with('/') && place.is_dir()));
            }
        }
    }

    /// Adds the file that a word names in each inner folder of `folder`.
    fn add_behind_glob(&mut self, folder: &Path, word: &NamedWord, language: Language) {
        for (count, inner) in fs::read_dir(folder).into_iter().flatten().flatten().enumerate() {
            if count >= MAX_INNER_FOLDERS {
                self.whole_project = Some("has a glob for a folder with more than 1,000 entries");
                return;
            }
            self.add(&inner.path().join(&word.word), word, language);
        }
    }

    /// Returns the folders that a program can enter: those in `starts` that have one of the names, and those in the
    /// folders found so far (`cd a; cd b`).
    fn entered_folders(&mut self, starts: &[&Path], names: &BTreeSet<&str>) -> Vec<PathBuf> {
        let names = names.iter().filter(|name| name.contains(char::is_alphanumeric));
        let mut entered: Vec<PathBuf> = Vec::new();
        let mut next = 0;
        let mut above: Vec<PathBuf> = starts.iter().map(|start| start.to_path_buf()).collect();
        while let Some(folder) = above.get(next).cloned() {
            next += 1;
            for inner in names.clone().map(|name| folder.join(name)) {
                if above.contains(&inner) || !inner.is_dir() {
                    continue;
                }
                if entered.len() >= MAX_ENTERED_FOLDERS {
                    self.whole_project = Some("names more than 100 folders");
                    return entered;
                }
                above.push(inner.clone());
                entered.push(inner);
            }
        }
        entered
    }

    /// Adds the file or the folder at `place`, which a word of a command names.
    fn add(&mut self, place: &Path, word: &NamedWord, language: Language) {
        let (NamedWord { word, is_prefix, is_any, is_behind_glob: _ }, is_folder) = (word, place.is_dir());
        if *is_prefix && is_folder && word.contains(char::is_alphanumeric) {
            self.folders.insert(place.to_path_buf());
            return;
        }
        // `"lib/" + name`: a text that is joined with another one.
        let is_joined = word.ends_with('/') && !matches!(language, Language::Build | Language::Package);
        if is_folder && is_joined && word.contains(char::is_alphanumeric) {
            self.program_folders.insert(place.to_path_buf());
        }
        // A template such as `./plugins/${name}.js`.
        if let Some((start, _)) = word.split_once("${")
            && let Some((folder, _)) = start.rsplit_once('/')
            && folder.contains(char::is_alphanumeric)
        {
            let up = word.matches('/').count().saturating_sub(folder.matches('/').count());
            self.folders.extend(place.ancestors().nth(up).filter(|folder| folder.is_dir()).map(Path::to_path_buf));
        }
        let is_loaded = || match language {
            // An executable file without a known ending can be an output of the build.
            Language::Build => has_program_ending(place) || is_script(place),
            Language::Python | Language::JavaScript | Language::Package | Language::Modular | Language::Shell => {
                is_program(place)
            }
        };
        if place.is_file() && (*is_any || is_loaded()) {
            self.files.insert(place.to_path_buf());
        }
        // A folder with a slash in `package.json` is an output or a list of files, not a module.
        if word.starts_with('.') || (language == Language::Package && !word.ends_with('/')) {
            let path = place.display();
            let with_ending = PROGRAM_ENDINGS.iter().map(|ending| PathBuf::from(format!("{path}.{ending}")));
            self.files.extend(with_ending.filter(|file| file.is_file()));
            if is_folder {
                let index = PROGRAM_ENDINGS.iter().map(|ending| place.join(format!("index.{ending}")));
                self.files.extend(index.chain([place.join(PACKAGE_FILE)]).filter(|file| file.is_file()));
            }
        }
    }
}

/// Returns the contents of the string literals in a text.
fn quoted_texts(text: &str) -> impl Iterator<Item = &str> {
    let quoted = QUOTED.iter().flat_map(move |quoted| quoted.captures_iter(text));
    quoted.filter_map(|found| found.iter().skip(1).flatten().next()).map(|found| found.as_str())
}

/// Returns the identifiers in a text. A name that starts with `M` is also returned without the `M`, because Perl's
/// option `-MList` loads the module `List`.
fn names_in(text: &str) -> BTreeSet<&str> {
    let names = IDENTIFIERS.iter().flat_map(|names| names.find_iter(text)).map(|name| name.as_str());
    names.flat_map(|name| [Some(name), name.strip_prefix('M')]).flatten().filter(|name| !name.is_empty()).collect()
}

/// Returns true if a shell text uses a path only as the target of a redirection (`> out`), so that the file is not
/// executed.
fn is_only_written(text: &str, word: &str) -> bool {
    let is_part = |c: char| !c.is_whitespace() && !";|&()<>=".contains(c);
    let mut starts = text.match_indices(word).map(|(at, _)| text[..at].trim_end_matches(is_part).trim_end());
    let is_written = |before: &str| before.ends_with('>');
    starts.next().is_some_and(is_written) && starts.all(is_written)
}

/// Adds the programs in a folder that an interpreter loads as a module with one of these names. Also searches inner
/// folders with one of these names.
fn add_modules(folder: &Path, names: &BTreeSet<&str>, depth: usize, files: &mut BTreeSet<PathBuf>) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let is_named = names.contains(stem) && !is_left_out(&path);
        if is_named && has_program_ending(&path) && path.is_file() {
            files.insert(path);
        } else if is_named && depth < MAX_MODULE_DEPTH && path.is_dir() {
            add_modules(&path, names, depth + 1, files);
        }
    }
}

/// Adds the files whose paths end in one of `ends`, in a folder and in the folders below. `place` is the depth of the
/// folder, and the number of entries searched so far. `None` if the entries exceed [`MAX_SEARCHED_ENTRIES`] or the
/// folders nest deeper than [`MAX_DEPTH`].
fn add_files_with_ends(
    folder: &Path,
    ends: &[&Path],
    place: (usize, &mut usize),
    files: &mut BTreeSet<PathBuf>,
) -> Option<()> {
    let (depth, count) = place;
    let in_folder = |folder: &Path| ends.iter().map(|end| folder.join(end)).filter(|file| file.is_file()).collect();
    let found: Vec<PathBuf> = in_folder(folder);
    files.extend(found);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        *count += 1;
        if depth > MAX_DEPTH || *count > MAX_SEARCHED_ENTRIES {
            return None;
        }
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !is_left_out(&path) {
            add_files_with_ends(&path, ends, (depth + 1, count), files)?;
        } else if path.is_dir() {
            files.extend(in_folder(&path));
        }
    }
    Some(())
}

/// Adds the programs in a folder and in the folders below, without following links to folders.
fn add_programs(folder: &Path, depth: usize, files: &mut BTreeSet<PathBuf>) {
    if depth > MAX_DEPTH || files.len() > MAX_PROGRAMS || is_left_out(folder) {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // A link to a folder is not followed.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            add_programs(&path, depth + 1, files);
        } else if is_program(&path) {
            files.insert(path);
        }
    }
}

/// Returns true for folders with installed packages, and for the folders of git, of Python's compiled files and of the
/// engine's state.
fn is_left_out(folder: &Path) -> bool {
    PACKAGE_FOLDERS.iter().chain(&[COMPILED_FOLDER, ".git", ".ai/state"]).any(|name| folder.ends_with(name))
}

/// Returns the text of a file; `None` for a program that is larger than `MAX_TEXT_BYTES`. The text is empty for a
/// binary file, for a large file that is not a program, and for a file that cannot be read.
fn text_of(file: &Path) -> Option<String> {
    let Ok(mut opened) = File::open(file) else { return Some(String::new()) };
    let mut bytes = Vec::new();
    let start = opened.by_ref().take(BINARY_CHECK_BYTES).read_to_end(&mut bytes);
    if start.is_err() || (!has_program_ending(file) && bytes.contains(&0)) {
        return Some(String::new());
    }
    opened.take(MAX_TEXT_BYTES).read_to_end(&mut bytes).ok()?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len <= MAX_TEXT_BYTES) {
        return Some(String::from_utf8_lossy(&bytes).into_owned());
    }
    (!is_program(file)).then(String::new)
}

#[cfg(test)]
mod tests;
