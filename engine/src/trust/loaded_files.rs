//! The files of a project that a program of the project loads or starts: modules that a script imports, scripts that it
//! sources or executes. They are found by the words of the program's text, without a parser: a word counts wherever it
//! is, in comments and strings too, so that more files are trusted rather than fewer.

mod python;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;
use rye_compiler::trust::command_files::{
    EVERY_FILE, EXECUTED_BY, MODULE, PROJECT_WORD, SEARCHED, files_of_shell_text,
};

use python::{COMPILED_FOLDER, changes_search_path};

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
/// Maximum number of folders that a shell script can enter, and in which its words are searched.
const MAX_ENTERED_FOLDERS: usize = 32;
/// Maximum depth of folders in the name of a module (`A::B::C`).
const MAX_MODULE_DEPTH: usize = 8;
/// Maximum number of entries of a folder that a glob can stand for (`*/x.sh`).
const MAX_INNER_FOLDERS: usize = 1_000;
/// Endings of files that an interpreter executes.
const PROGRAM_ENDINGS: [&str; 16] =
    ["py", "js", "mjs", "cjs", "ts", "mts", "cts", "sh", "bash", "zsh", "rb", "pl", "pm", "lua", "php", "mk"];
/// Endings of programs that load modules by their names, other than Python and JavaScript.
const MODULAR_ENDINGS: [&str; 5] = ["pl", "pm", "rb", "lua", "php"];
/// Files that a build tool executes, by name.
const BUILD_FILES: [&str; 9] = [
    "GNUmakefile",
    "makefile",
    "Makefile",
    "justfile",
    "Justfile",
    ".justfile",
    "Rakefile",
    "rakefile",
    SETTINGS_OF_NPM,
];
/// The settings of npm. They name the shell that runs the scripts of a package.
const SETTINGS_OF_NPM: &str = ".npmrc";
/// Files that an interpreter executes if it starts a folder.
const MAIN_FILES: [&str; 5] = ["__main__.py", "index.js", "index.mjs", "index.cjs", PACKAGE_FILE];
/// The file that describes a JavaScript package.
const PACKAGE_FILE: &str = "package.json";
/// Folders with installed packages. The programs in them are not read.
const PACKAGE_FOLDERS: [&str; 3] = ["node_modules", "site-packages", "dist-packages"];

static PATHS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[\w@.+/-]*[./][\w@.+/-]*").ok());
static QUOTED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#""([^"\n]{1,1024})"|'([^'\n]{1,1024})'|`([^`\n]{1,1024})`"#).ok());
/// Words that a shell, an interpreter or a build file executes, whatever their ending.
static EXECUTED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let programs = r"sh|bash|dash|zsh|ksh|source|\.|python[\d.]*|node|perl|ruby|lua|php|-?include";
    Regex::new(&format!(
        r#"(?m)(?:^|[\s;&|@('"`])(?:({programs})(?:\s+-\S+)*\s+|script-shell\s*=\s*)['"]?([\w@.+/-]+)"#
    ))
    .ok()
});
/// Interpreters that load modules by their names.
static INTERPRETERS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\b(?:python[\d.]*|perl|ruby|lua|php)\b").ok());
/// A variable or a glob as a folder, in front of a name that is open too: `$D/$N.sh`, `$D/*.sh`.
static OPEN_PATHS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"(?:\$[\w({]+[)}]?|\*)["']?/["']?[$*?\[{]"#).ok());
static IDENTIFIERS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[\p{L}_][\p{L}\p{N}_]*").ok());

/// The language of a program, which decides what names in its text load files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Language {
    Python,
    JavaScript,
    /// `package.json`: names in it select the files of a package, and its scripts are shell texts.
    Package,
    /// A build file. Most files that it names are sources and outputs, so only programs among them are read.
    Build,
    /// Perl, Ruby, Lua and PHP, which load modules by their names.
    Modular,
    /// Shell scripts, and programs of other languages.
    Shell,
}

impl Language {
    /// Returns true if the text mainly starts other programs.
    fn starts_programs(self) -> bool {
        match self {
            Self::Shell | Self::Modular | Self::Build | Self::Package => true,
            Self::Python | Self::JavaScript => false,
        }
    }

    /// The language of the scripts that an interpreter executes; `None` for an interpreter of another language.
    fn of_interpreter(name: &str) -> Option<Self> {
        match name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') {
            "python" | "pypy" => Some(Self::Python),
            "bun" | "deno" | "node" | "nodejs" | "tsx" => Some(Self::JavaScript),
            "perl" | "ruby" | "lua" | "luajit" | "php" => Some(Self::Modular),
            "ash" | "bash" | "dash" | "ksh" | "mksh" | "sh" | "zsh" | "source" | "." => Some(Self::Shell),
            _ => None,
        }
    }

    fn of(file: &Path, text: &str) -> Self {
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let first = text.lines().next().filter(|line| line.starts_with("#!")).unwrap_or_default();
        match ending {
            _ if file.ends_with(PACKAGE_FILE) => Self::Package,
            "mk" => Self::Build,
            _ if is_build_file(file) => Self::Build,
            "py" => Self::Python,
            "js" | "mjs" | "cjs" | "ts" | "mts" | "cts" => Self::JavaScript,
            ending if MODULAR_ENDINGS.contains(&ending) => Self::Modular,
            _ if first.contains("python") => Self::Python,
            _ if first.contains("node") => Self::JavaScript,
            _ if ["perl", "ruby", "lua", "php"].iter().any(|name| first.contains(name)) => Self::Modular,
            _ => Self::Shell,
        }
    }
}

/// A program whose text is read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LoadingProgram {
    file: PathBuf,
    /// The folder of the script that a call starts. A Python program imports modules from it.
    main_folder: PathBuf,
    /// True for the script of a tool. Such a script imports from sources only, and from its folder last.
    is_tool: bool,
    /// The language of the interpreter that the command names. `None` if the file itself tells its language.
    language: Option<Language>,
}

impl LoadingProgram {
    /// The script `file`, which a command starts. `None` if the file is not a program whose text can name other files.
    pub fn of_command(file: &Path) -> Option<Self> {
        Self::new(file, false).filter(|program| is_program(&program.file))
    }

    /// The script `file`, which a command starts by an interpreter.
    pub fn of_interpreter(interpreter: &str, file: &Path) -> Option<Self> {
        let language = Language::of_interpreter(interpreter);
        Self::new(file, false).filter(|program| program.file.is_file()).map(|program| Self { language, ..program })
    }

    /// The script `file` of a tool.
    pub fn of_tool(file: &Path) -> Option<Self> {
        Self::new(file, true)
    }

    fn new(file: &Path, is_tool: bool) -> Option<Self> {
        let main_folder = file.parent()?.to_path_buf();
        let is_package = file.iter().any(|part| PACKAGE_FOLDERS.iter().any(|folder| part == *folder));
        (!is_package).then(|| Self { file: file.to_path_buf(), main_folder, is_tool, language: None })
    }

    /// A file that this program loads or starts.
    fn loaded(&self, file: &Path, language: Language) -> Option<Self> {
        // Only an import keeps the folder of the started script; another interpreter starts with its own.
        let imports = language == Language::Python;
        let loaded = Self::new(file, self.is_tool && imports)?;
        Some(if imports { Self { main_folder: self.main_folder.clone(), ..loaded } } else { loaded })
    }
}

fn is_build_file(file: &Path) -> bool {
    file.file_name().is_some_and(|name| BUILD_FILES.iter().any(|one| name == *one))
}

fn has_program_ending(file: &Path) -> bool {
    file.extension().is_some_and(|ending| PROGRAM_ENDINGS.iter().any(|one| ending == *one))
}

/// Returns true if the ending of a file is that of a program, or if the file is executable.
fn is_program(file: &Path) -> bool {
    has_program_ending(file)
        || is_build_file(file)
        || file.ends_with(PACKAGE_FILE)
        || fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Returns true if a file names its interpreter.
fn is_script(file: &Path) -> bool {
    let mut start = [0; 2];
    File::open(file).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"#!"
}

/// A word of a program's text that can name a file.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NamedWord {
    word: String,
    /// True if the word is a folder in front of a part that the text leaves open.
    is_prefix: bool,
    /// True if a glob stands for the folder of the file.
    is_behind_glob: bool,
    /// True if the file is loaded whatever its ending.
    is_any: bool,
}

/// The files that a text names, and the folders in which it names every file or every program.
#[derive(Debug, Default)]
struct NamedPaths {
    files: BTreeSet<PathBuf>,
    folders: BTreeSet<PathBuf>,
    program_folders: BTreeSet<PathBuf>,
    /// The programs whose language or working folder the text tells.
    started: BTreeSet<LoadingProgram>,
    /// True if the text can load every file of the project.
    is_any: bool,
}

impl NamedFiles<'_> {
    /// Adds the files that `first` loads or starts, and the files that those load, and so on.
    pub(super) fn add_loaded(&mut self, first: LoadingProgram) -> Result<(), TrustError> {
        let mut waiting = vec![first];
        let mut listings = BTreeMap::new();
        while let Some(program) = waiting.pop() {
            if !self.read.insert(program.clone()) {
                continue;
            }
            let text = if self.read.len() > MAX_PROGRAMS { None } else { text_of(&program.file) };
            let Some(text) = text else { return self.add_project() };
            let language = program.language.unwrap_or_else(|| Language::of(&program.file, &text));
            let named = self.named_paths(&program.file, &text, language);
            if named.is_any {
                return self.add_project();
            }
            let NamedPaths { mut files, folders, program_folders, started, is_any: _ } = named;
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
                    return self.add_project();
                }
                files.extend(self.python_files(&program, &text, &mut listings));
            }
            for file in files {
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

    /// Adds the Python module `module` of the project, which a command starts with the project as its working folder.
    pub(super) fn add_module(&mut self, module: &str) -> Result<(), TrustError> {
        for program in Self::programs_of_module(self.project, module) {
            self.add_place(&program.file, false)?;
            self.add_loaded(program)?;
        }
        Ok(())
    }

    /// Returns the files and folders that a text names, relative to the project or to the folder of its file.
    fn named_paths(&self, file: &Path, text: &str, language: Language) -> NamedPaths {
        let mut named = NamedPaths::default();
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
            named.is_any = language == Language::Shell && shell_words.iter().any(|word| word == EVERY_FILE);
            let shell = shell_words.iter().filter(|word| *word != PROJECT_WORD && !word.contains('\0'));
            words.extend(shell.map(|name| word(name.clone(), name.ends_with('/'))));
            words.retain(|word| !is_only_written(text, &word.word));
        }
        let mut folders = vec![own.to_path_buf(), self.project.to_path_buf()];
        if language.starts_programs() {
            let module_names: BTreeSet<&str> = names_in(text);
            let entered = words.iter().map(|word| word.word.trim_matches('/')).chain(module_names.iter().copied());
            let entered = entered_folders(&[self.project, own], &entered.collect());
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
                    for inner in fs::read_dir(folder).into_iter().flatten().flatten().take(MAX_INNER_FOLDERS) {
                        named.add(&inner.path().join(&word.word), word, language);
                    }
                }
            }
        }
        if language == Language::JavaScript {
            let above = own.ancestors().take_while(|folder| folder.starts_with(self.project));
            let package = above.map(|folder| folder.join(PACKAGE_FILE)).find(|file| file.is_file());
            named.files.extend(package.filter(|file| selects_modules(file, text)));
        }
        named
    }
}

impl NamedWord {
    /// Returns the path of dots (`./`, `../`) in front of the first part that the text leaves open.
    fn dots_before_open_part(&self, language: Language) -> Option<&str> {
        let template = self.word.split_once("${").map(|(start, _)| start);
        let start = template.or(self.is_prefix.then_some(&self.word)).filter(|start| start.ends_with('/'))?;
        let is_dots = start.starts_with('.') && start.chars().all(|c| matches!(c, '.' | '/'));
        (is_dots && matches!(language, Language::Python | Language::JavaScript)).then_some(start)
    }
}

impl NamedPaths {
    /// Adds a script that a text starts by an interpreter, with the path `name` in one of these folders.
    fn add_started(&mut self, interpreter: &str, folders: &[&Path], name: &str) {
        let Some(language) = Language::of_interpreter(interpreter) else { return };
        let files = folders.iter().filter_map(|folder| folder.join(name.trim_start_matches('/')).canonicalize().ok());
        let programs = files.filter_map(|file| LoadingProgram::of_interpreter(interpreter, &file));
        // The ending of most scripts tells the same language.
        self.started.extend(programs.filter(|program| Language::of(&program.file, "") != language));
    }

    /// Adds what a word of [`files_of_shell_text`] names beside a file.
    fn add_shell_word(&mut self, word: &str, folders: &[PathBuf]) {
        if let Some((interpreter, name)) = word.strip_prefix(EXECUTED_BY).and_then(|word| word.split_once('\0')) {
            let folders: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
            self.add_started(interpreter, &folders, name);
        } else if let Some(module) = word.strip_prefix(MODULE) {
            self.started.extend(folders.iter().flat_map(|folder| NamedFiles::programs_of_module(folder, module)));
        } else if let Some(name) = word.strip_prefix(SEARCHED) {
            self.folders.extend(folders.iter().map(|folder| folder.join(name)).filter(|folder| folder.is_dir()));
        }
    }

    /// Adds the file or the folder that a word names.
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

/// Returns the texts in quotes.
fn quoted_texts(text: &str) -> impl Iterator<Item = &str> {
    let quoted = QUOTED.iter().flat_map(move |quoted| quoted.captures_iter(text));
    quoted.filter_map(|found| found.iter().skip(1).flatten().next()).map(|found| found.as_str())
}

/// Returns the folders with one of these names in the folders `starts`, and in the folders found so far: `cd a; cd b`.
fn entered_folders(starts: &[&Path], names: &BTreeSet<&str>) -> Vec<PathBuf> {
    let names = names.iter().filter(|name| name.contains(char::is_alphanumeric));
    let mut entered: Vec<PathBuf> = Vec::new();
    let mut next = 0;
    let mut above: Vec<PathBuf> = starts.iter().map(|start| start.to_path_buf()).collect();
    while let Some(folder) = above.get(next).cloned() {
        next += 1;
        for inner in names.clone().map(|name| folder.join(name)) {
            if entered.len() < MAX_ENTERED_FOLDERS && !above.contains(&inner) && inner.is_dir() {
                above.push(inner.clone());
                entered.push(inner);
            }
        }
    }
    entered
}

/// Returns the names in a text. `-MModule` of Perl also counts without its first letter.
fn names_in(text: &str) -> BTreeSet<&str> {
    let names = IDENTIFIERS.iter().flat_map(|names| names.find_iter(text)).map(|name| name.as_str());
    names.flat_map(|name| [Some(name), name.strip_prefix('M')]).flatten().filter(|name| !name.is_empty()).collect()
}

/// Returns true if a shell text only redirects output to a path, so that the file is data.
fn is_only_written(text: &str, word: &str) -> bool {
    let is_part = |c: char| !c.is_whitespace() && !";|&()<>=".contains(c);
    let mut starts = text.match_indices(word).map(|(at, _)| text[..at].trim_end_matches(is_part).trim_end());
    let is_written = |before: &str| before.ends_with('>');
    starts.next().is_some_and(is_written) && starts.all(is_written)
}

/// Adds the files of a folder that an interpreter loads by one of these names, also in folders with such a name.
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

/// Adds the programs in a folder and in the folders below.
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

/// Returns true if a JavaScript text imports by a name that `package.json` defines: a name that starts with `#`, or the
/// name of the package.
fn selects_modules(package: &Path, text: &str) -> bool {
    let name = text_of(package).and_then(|text| {
        serde_json::from_str::<serde_json::Value>(&text).ok()?.get("name")?.as_str().map(str::to_owned)
    });
    ["\"#", "'#", "`#"].iter().any(|start| text.contains(start)) || name.is_some_and(|name| text.contains(&name))
}

/// Returns the text of a program; `None` if it is larger than `MAX_TEXT_BYTES`. A machine program, data, and a file that
/// cannot be read have an empty text.
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
