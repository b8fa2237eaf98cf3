//! The project files that a command names (`docs/decisions/0029`): paths in its arguments, in the texts that it passes
//! to a shell, and in the values that fill its placeholders. If the end of a path is known only when the command runs,
//! its folder is listed instead (`scripts/` for `scripts/$NAME.sh`).

mod code;
mod interpreters;
mod programs;
mod shell_words;
mod variables;
mod wrappers;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::tool_spec::{ArgvPlaceholder, replace_placeholders};
pub use code::SEARCH_VARIABLES;
use code::{FILES_OF_SHELLS, search_variable, starts_programs};
use interpreters::{ProgramSource, awk_program, code_argument, has_other_ending, started_programs};
pub use programs::starts_from_its_folder;
use programs::{
    EDITORS, FOLDER_RUNNERS, GIT_STARTERS, IMPLIED_FILES, INTERPRETERS, LAUNCHERS, READERS, RUNNERS, SHELLS,
};
use shell_words::{ShellCommand, split_commands};
use variables::files_of_variables;
use wrappers::launched_words;

/// The text for every file of a project. The data of git and `rye` is left out, because it changes all the time.
pub const WHOLE_PROJECT: &str = "every file of the project (except the data of git and of `rye`)";
/// Marker that is inserted into the value of a placeholder before each part that a shell could read as a separate word.
const VALUE_START: char = '\u{E000}';
/// Marks a part of a word that is known only when the command runs: a placeholder without a value, an expansion, or a
/// glob.
const EXPANSION: char = '\u{E002}';
/// Replaces code in the words of a command, after the code is recorded in a [`CODE_OF`] entry.
const TAKEN: char = '\u{E003}';
/// The entry for the folder of the project. A command with this entry can name every file in the folder.
pub const PROJECT_WORD: &str = ".";
/// Prefix of the entry for the files that a script loads or starts. The path of the script follows. No word of a
/// command contains the first character of this prefix.
pub const LOADED_BY: &str = "\0loaded by ";
/// Prefix of the entry for a script that an interpreter executes, whatever the extension of the file is. The name of
/// the interpreter and, after a NUL, the path of the script follow.
pub const EXECUTED_BY: &str = "\0executed by ";
/// Prefix of the entry for a Python module in the working folder of the command. The path of the module follows.
pub const MODULE: &str = "\0module ";
/// Prefix of the entry for a folder from which programs load code, because a variable such as `PYTHONPATH` names the
/// folder. The path of the folder follows.
pub const SEARCHED: &str = "\0searched ";
/// Prefix of the entry for code in an argument (`python3 -c`). The name of the interpreter and, after a NUL, the code
/// follow.
pub const CODE_OF: &str = "\0code of ";
/// The entry for a command that starts git. Git starts the programs that its settings name.
pub const GIT_SETTINGS: &str = "\0settings of git";
/// Prefix of the entry for a folder that the command cannot read in its sandbox. The path of the folder follows.
pub const UNREADABLE: &str = "\0unreadable ";
/// The entry for a command that can execute every file of the project, such as `perl -e`.
pub const EVERY_FILE: &str = "\0every file";
/// The entry for a shell text that executes, sources or passes to an interpreter a file whose name the text computes.
pub const COMPUTED: &str = "\0computed";
/// Prefix of the entry for a file that a shell text executes in a folder whose name the text computes. The file can be
/// in any folder of the project. The end of its path follows.
pub const IN_ANY_FOLDER: &str = "\0in any folder ";
/// Maximum nesting of shell texts in shell texts.
const MAX_NESTING: usize = 8;
const SHELL_OPTIONS_WITH_VALUE: [&str; 6] = ["-O", "+O", "-o", "+o", "--init-file", "--rcfile"];
/// Programs and options that append words to the command after them, such as lines of standard input or found files.
const APPENDERS: [&str; 10] =
    ["xargs", "parallel", "-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];
/// Programs that execute a command for the files that they find, or for the lines that they read.
const SEARCHES: [&str; 4] = ["fd", "find", "parallel", "xargs"];
/// Options that are followed by code in the language of the program.
const CODE_OPTIONS: [&str; 10] = ["-c", "-e", "-E", "-p", "-r", "-pe", "--eval", "--print", "--run", "-Command"];
/// Characters that mark a word as a path or as code. Of the words after a launcher, the first word with such a
/// character is the last that the launcher may execute (see `launched_words`).
const PATH_OR_TEXT: &str = "/. \t\n(){};'\"$|&";
/// Characters between the parts of an argument that holds several words.
const SEPARATORS: [char; 7] = ['=', ':', ',', ';', ' ', '\t', '\n'];

/// The values of a call, for the placeholders of its command.
#[derive(Debug, Clone, Copy)]
pub struct CallValues<'a> {
    pub parameters: &'a Map<String, Value>,
    /// The environment variables that the tool declares and that are set, with their values.
    pub environment: &'a BTreeMap<String, String>,
}

/// Returns the arguments of a command that an interpreter or a shell executes as code, also after programs that execute
/// another command (`env`, `timeout 5`, `find -exec`). Each argument is a pair: the position of the interpreter and the
/// position of the code.
pub(crate) fn code_arguments(argv: &[String]) -> Vec<(usize, usize)> {
    let started = started_programs(argv).into_iter();
    let code = started.filter_map(|(program, _, source)| match source {
        ProgramSource::Code { at } => Some((program, program + 1 + at)),
        ProgramSource::File(_)
        | ProgramSource::Module(_)
        | ProgramSource::StandardInput
        | ProgramSource::Information => None,
    });
    code.chain(awk_program(argv)).filter(|(_, code)| *code < argv.len()).collect()
}

/// Returns the words in the command of a tool that may name files of the project, as paths relative to the project.
/// `tool_path` is the path of the tool's file. Without `call`, placeholders have no values: a word with a placeholder
/// then counts as the folder before the placeholder, so that the result covers the files of every call.
pub fn files_of_tool(argv: &[String], tool_path: &str, call: Option<CallValues<'_>>) -> Vec<String> {
    let mut parts = Vec::new();
    for template in argv {
        let fill = |placeholder: &ArgvPlaceholder<'_>| fill_placeholder(placeholder, tool_path, call);
        // A placeholder whose value is a list becomes one argument for each item.
        if let Some(call) = call
            && let Some(Value::Array(items)) =
                template.strip_prefix('{').and_then(|rest| call.parameters.get(rest.strip_suffix('}')?))
        {
            parts.extend(items.iter().map(|item| with_markers(&text_of(item))));
            continue;
        }
        let plain = without_markers(template);
        parts.push(replace_placeholders(&plain, &fill).unwrap_or_else(|_| EXPANSION.to_string()));
    }
    files_of_command(&parts)
}

/// Returns the words of a command that may name project files. The words of the command contain no placeholders.
pub fn files_of_argv<'t>(argv: impl IntoIterator<Item = &'t String>) -> Vec<String> {
    files_of_command(&argv.into_iter().map(|part| without_markers(part)).collect::<Vec<_>>())
}

/// Returns the words of a shell text that may name files of the project.
pub fn files_of_shell_text(text: &str) -> Vec<String> {
    let mut words = FileWords::default();
    words.add_text(&without_markers(text), 0);
    words.finish()
}

/// Returns an entry for each file that a shell text executes under a name from variables, outputs or globs.
pub fn files_of_computed_names(text: &str) -> Vec<String> {
    let mut words = FileWords::default();
    words.add_text(&without_markers(text), 0);
    files_of_variables(&words.commands).into_iter().collect()
}

/// Returns the words of a variable's value that may name files of the project.
pub fn files_of_value(value: &str) -> Vec<String> {
    let mut words = FileWords::default();
    let value = without_markers(value);
    words.add_parts(&value, false);
    words.add_text(&value, 0);
    words.finish()
}

/// Describes the folders in `words`; `None` if `words` contains no folder. A folder stands for a file name that is
/// complete only when the command runs. The command can name any file in the folder, so every file in the folder must
/// be trusted.
pub(crate) fn describe_folders(words: &[String]) -> Option<String> {
    if words.iter().any(|word| word == EVERY_FILE) {
        let reason = "an interpreter gets code, a module or its input from the command";
        return Some(format!("{WHOLE_PROJECT}, because {reason}"));
    }
    if words.iter().any(|word| word == PROJECT_WORD) {
        return Some(format!("{WHOLE_PROJECT}, because a parameter of the call is a part of a file name"));
    }
    let folders: Vec<String> = words
        .iter()
        .filter(|word| word.ends_with('/') && !word.contains('\0'))
        .map(|word| format!("every file of `{word}`"))
        .collect();
    (!folders.is_empty()).then(|| folders.join(" and "))
}

fn fill_placeholder(placeholder: &ArgvPlaceholder<'_>, tool_path: &str, call: Option<CallValues<'_>>) -> String {
    let value = match placeholder {
        ArgvPlaceholder::Parameter(name) => call.and_then(|call| call.parameters.get(*name)).map(text_of),
        ArgvPlaceholder::Variable(name) => call.and_then(|call| call.environment.get(*name).cloned()),
    };
    match (placeholder, &value) {
        (ArgvPlaceholder::Parameter("project_path"), None) => PROJECT_WORD.to_owned(),
        (ArgvPlaceholder::Parameter("tool_path"), None) => tool_path.to_owned(),
        (ArgvPlaceholder::Parameter(_) | ArgvPlaceholder::Variable(_), None) => EXPANSION.to_string(),
        (ArgvPlaceholder::Parameter(_) | ArgvPlaceholder::Variable(_), Some(value)) => with_markers(value),
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns a placeholder's value with a [`VALUE_START`] before each part that a shell could read as a separate word.
fn with_markers(value: &str) -> String {
    let mut marked = String::from(VALUE_START);
    for c in without_markers(value).chars() {
        marked.push(c);
        if !(c.is_alphanumeric() || "_./-+%~".contains(c)) {
            marked.push(VALUE_START);
        }
    }
    marked
}

fn without_markers(text: &str) -> String {
    text.replace([VALUE_START, EXPANSION, TAKEN], "\u{fffd}")
}

fn files_of_command(parts: &[String]) -> Vec<String> {
    let mut words = FileWords::default();
    let parts = &words.take_code(parts);
    let Some(program) = parts.first() else { return Vec::new() };
    words.add_parts(program, true);
    for (word, _) in parts.iter().zip(launched_words(parts)).filter(|(_, launches)| *launches) {
        words.add_implied(word);
    }
    if READERS.contains(&program.as_str()) {
        return words.finish();
    }
    if appends_program(parts) || reads_program(parts) || starts_programs(parts) {
        words.found.insert(PROJECT_WORD.to_owned());
    }
    words.add_started(parts, false);
    let is_code = parts.iter().any(|part| INTERPRETERS.contains(&name_of(part)));
    let is_shell = reads_shell_text(parts);
    let mut before = "";
    for (part, launches) in parts.iter().zip(launched_words(parts)).skip(1) {
        words.add_argument(part, (launches, is_shell), 0);
        if is_code && CODE_OPTIONS.contains(&before) && !is_taken(part) {
            words.found.insert(PROJECT_WORD.to_owned());
        }
        if before == "-m" {
            words.add_word(&part.replace('.', "/"), launches);
        }
        before = part;
    }
    words.finish()
}

/// Returns the name of a program without its folder and its version: `python` for `/usr/bin/python3.12`.
fn name_of(word: &str) -> &str {
    let name = word.rsplit('/').next().unwrap_or(word);
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
}

fn is_launcher(word: &str) -> bool {
    LAUNCHERS.contains(&name_of(word))
}

/// Returns true if a command can execute one of its arguments as shell commands.
fn reads_shell_text(words: &[String]) -> bool {
    let is_open = |word: &String| word.contains([VALUE_START, EXPANSION]);
    let is_shell = |word: &String| {
        is_launcher(word) && !INTERPRETERS.contains(&name_of(word)) && !EDITORS.contains(&name_of(word))
    };
    words.first().is_some_and(is_open) || words.iter().any(is_shell)
}

fn runs_programs(word: &str) -> bool {
    let name = name_of(word);
    SHELLS.contains(&name) || INTERPRETERS.contains(&name)
}

/// Returns true if the command makes a shell or an interpreter execute words that the command itself does not contain:
/// words that `xargs` reads, or files that `find` finds in the project.
fn appends_program(words: &[String]) -> bool {
    let is_open = |word: &String| word.contains([VALUE_START, EXPANSION]);
    let is_replacement = |word: &String| !word.starts_with('-') && !word.contains(|c: char| c.is_alphanumeric());
    let Some(at) =
        words.iter().position(|word| APPENDERS.contains(&name_of(word)) || APPENDERS.contains(&word.as_str()))
    else {
        return false;
    };
    let behind = words.get(at + 1..).unwrap_or_default();
    let executes = behind.iter().any(|word| runs_programs(word))
        || behind.iter().find(|word| !word.starts_with('-')).is_some_and(is_replacement);
    let is_search = words.get(at).is_some_and(|word| word.starts_with('-'));
    let mut folders = words.get(1..at).unwrap_or_default().iter().take_while(|word| !word.starts_with(['-', '(', '!']));
    let is_project = |word: &String| is_open(word) || word.split('/').all(|part| part.is_empty() || part == ".");
    // Without a folder, the search starts in the project.
    let is_bounded = is_search && folders.clone().next().is_some() && !folders.any(is_project);
    executes && !is_bounded
}

/// Returns true if the command makes a shell or an interpreter execute the files that a search finds in the project.
fn searches_programs(words: &[String]) -> bool {
    words.iter().any(|word| SEARCHES.contains(&name_of(word))) && appends_program(words)
}

/// Returns true if a shell or an interpreter reads its program from its standard input.
fn reads_program(words: &[String]) -> bool {
    let launched = launched_words(words);
    started_programs(words).into_iter().any(|(at, _, source)| {
        let is_looked_up = at.checked_sub(1).and_then(|before| words.get(before)).is_some_and(|word| word == "-v");
        source == ProgramSource::StandardInput && !is_looked_up && launched.get(at) == Some(&true)
    })
}

/// Returns true if a command outputs only text that it contains itself, or the content of files that it names.
fn is_closed_reader(words: &[String]) -> bool {
    words.first().is_some_and(|program| READERS.contains(&program.as_str()))
        && !words.iter().any(|word| word.contains([VALUE_START, EXPANSION]))
}

/// Returns true if a shell expands a text without white space to other words: `{source,./lib/x}`, `~+/lib/x`.
fn becomes_other_words(text: &str) -> bool {
    let is_list = |inner: &str| inner.contains(',') || inner.contains("..");
    text.starts_with('~') || text.split_once('{').is_some_and(|(_, inner)| is_list(inner))
}

fn is_taken(word: &str) -> bool {
    word.starts_with(TAKEN)
}

#[derive(Default)]
struct FileWords {
    found: BTreeSet<String>,
    /// The commands of all shell texts in the command.
    commands: Vec<ShellCommand>,
}

impl FileWords {
    fn finish(mut self) -> Vec<String> {
        self.found.extend(files_of_variables(&self.commands));
        self.found.into_iter().collect()
    }

    /// Adds the code that a command passes to an interpreter, and returns the words of the command with [`TAKEN`] in place
    /// of the code.
    fn take_code(&mut self, words: &[String]) -> Vec<String> {
        let mut rest = words.to_vec();
        if let Some(argument) = code_argument(words) {
            self.found.insert(format!("{CODE_OF}{}\0{}", argument.interpreter, argument.code));
            if let Some(code) = rest.get_mut(argument.at) {
                *code = TAKEN.to_string();
            }
        }
        rest
    }

    /// Adds the files that a program reads even if no argument names them.
    fn add_implied(&mut self, program: &str) {
        let name = program.rsplit('/').next().unwrap_or(program);
        let implied = IMPLIED_FILES.iter().filter(|(known, _)| *known == name).flat_map(|(_, files)| *files);
        self.found.extend(implied.map(|file| (*file).to_owned()));
        if GIT_STARTERS.contains(&name) || name.starts_with("git-") {
            self.found.insert(GIT_SETTINGS.to_owned());
        }
    }

    /// Adds the words of an argument that may name files. The argument is either a path or a text for a program. An
    /// argument with white space or special characters of a shell is a text.
    ///
    /// `launches` is true if the command can execute the argument. If `launches` is false, only the part before the
    /// first placeholder or expansion is checked for these characters, because the rest of a path can contain them.
    /// `is_shell` is true if the command reads a text as shell commands. `depth` is the number of shell texts that
    /// enclose the argument.
    fn add_argument(&mut self, argument: &str, (launches, is_shell): (bool, bool), depth: usize) {
        if is_taken(argument) {
            return;
        }
        let is_text = |text: &str| text.contains(|c: char| c.is_whitespace() || ";&|<>()$`'\"\\".contains(c));
        let own = argument.split([VALUE_START, EXPANSION]).next().unwrap_or_default();
        let holds_text =
            is_text(own) || (launches && (is_text(argument) || (is_shell && becomes_other_words(argument))));
        if let Some((name, value)) = search_variable(argument).filter(|_| !holds_text || !is_shell) {
            self.add_searched(name, value);
            return self.add_parts(value, true);
        }
        if !holds_text {
            return self.add_parts(argument, launches);
        }
        self.add_word(argument, false);
        if is_shell {
            self.add_text(argument, depth);
        } else {
            self.add_runs(argument);
            self.add_unquoted(argument);
        }
    }

    /// Adds the folders and the scripts in the value of a variable such as `PYTHONPATH`.
    fn add_searched(&mut self, name: &str, value: &str) {
        for place in value.split(SEPARATORS) {
            // `$PWD/lib`
            let place = place.trim_start_matches([VALUE_START, EXPANSION]);
            let place = place.trim_start_matches("./").trim_matches('/');
            if place.is_empty() || place.contains([VALUE_START, EXPANSION]) {
                continue;
            }
            if FILES_OF_SHELLS.contains(&name) {
                self.found.insert(format!("{EXECUTED_BY}sh\0{place}"));
            } else {
                self.found.insert(format!("{SEARCHED}{place}"));
            }
        }
    }

    /// Adds the programs of the shells and interpreters of a command. `is_text` is true if the command is part of a
    /// shell text. A pipe or a here-document can then be the standard input.
    fn add_started(&mut self, words: &[String], is_text: bool) {
        let launched = launched_words(words);
        for (at, word) in words.iter().enumerate().filter(|(at, _)| launched.get(*at) == Some(&true)) {
            let (_, folders) = words.split_at(at + 1);
            if FOLDER_RUNNERS.contains(&name_of(word)) {
                let is_folder =
                    |name: &&String| !name.starts_with('-') && !name.contains(['.', EXPANSION, VALUE_START]);
                self.found.extend(folders.iter().filter(is_folder).map(|name| format!("{}/", name.trim_matches('/'))));
            }
        }
        for (at, name, source) in started_programs(words) {
            let is_interpreter = INTERPRETERS.contains(&name);
            let is_looked_up = at.checked_sub(1).and_then(|before| words.get(before)).is_some_and(|word| word == "-v");
            let reads_input = is_text && launched.get(at) == Some(&true) && !is_looked_up;
            match source {
                ProgramSource::File(path) if !path.contains(EXPANSION) => {
                    let path = path.replace(VALUE_START, "");
                    let path = path.trim_end_matches('/');
                    if has_other_ending(path, name) {
                        self.found.insert(format!("{EXECUTED_BY}{name}\0{path}"));
                    }
                }
                ProgramSource::Module(module) if !module.contains(EXPANSION) => {
                    let path = module.replace(VALUE_START, "").replace('.', "/");
                    self.add_word(&path, true);
                    self.found.insert(format!("{MODULE}{path}"));
                    self.add_run_modules(module, words.get(at + 1..).unwrap_or_default());
                }
                ProgramSource::Code { .. } if is_interpreter && !words.iter().skip(at).any(|word| is_taken(word)) => {
                    self.add_every_file();
                }
                ProgramSource::StandardInput if is_interpreter && reads_input => self.add_every_file(),
                ProgramSource::Module(_) => self.add_every_file(),
                ProgramSource::File(_)
                | ProgramSource::Code { .. }
                | ProgramSource::StandardInput
                | ProgramSource::Information => {}
            }
        }
    }

    /// Adds the modules and the code that the arguments of a Python module such as `unittest` name. The arguments are
    /// read like code, because every name in code can be the name of a module.
    fn add_run_modules(&mut self, module: &str, arguments: &[String]) {
        if !RUNNERS.contains(&module) {
            return;
        }
        let behind = arguments.iter().skip_while(|argument| !argument.ends_with(module)).skip(1);
        let named: Vec<String> = behind.map(|argument| argument.replace([VALUE_START, EXPANSION], " ")).collect();
        if !named.is_empty() {
            self.found.insert(format!("{CODE_OF}python\0{}", named.join("\n")));
        }
    }

    fn add_every_file(&mut self) {
        self.found.extend([PROJECT_WORD, EVERY_FILE].map(str::to_owned));
    }

    /// Adds every run of path characters in a text as a word that may name a file. Does not parse the language of the
    /// text. Skips runs with a [`VALUE_START`] or an [`EXPANSION`].
    fn add_runs(&mut self, text: &str) {
        let is_path = |c: char| c.is_alphanumeric() || "_./-+@%~".contains(c) || matches!(c, VALUE_START | EXPANSION);
        for run in text.split(|c: char| !is_path(c)).filter(|run| !run.contains([VALUE_START, EXPANSION])) {
            self.add_word(run, false);
            // `${NAME:-scripts/x.sh}`
            self.add_word(run.trim_start_matches('-'), false);
        }
    }

    /// Adds the words of an argument, split as a shell would split the argument, because many programs pass an argument
    /// to a shell. Skips words with expansions, such as `$NAME`.
    fn add_unquoted(&mut self, text: &str) {
        for word in split_commands(text).into_iter().flat_map(|command| command.words) {
            if !word.contains([VALUE_START, EXPANSION]) {
                self.add_parts(&word, false);
            }
        }
    }

    /// Adds the parts of an argument that may name project files: the whole argument, the texts between [`SEPARATORS`]
    /// (`--require=./a.js`), and the text after a short option (`-I./lib`). `launches` is true if the command can
    /// execute a file that the argument names.
    fn add_parts(&mut self, part: &str, launches: bool) {
        let mut marked = String::with_capacity(part.len());
        marked.extend(part.chars().map(|c| if "*?[$`".contains(c) { EXPANSION } else { c }));
        self.add_word(&marked, launches);
        for inner in marked.split(SEPARATORS).filter(|inner| *inner != marked) {
            self.add_word(inner, launches);
        }
        // `gcc @options`, `-d@data`
        if let Some((_, file)) = marked.split_once('@') {
            self.add_word(file, launches);
        }
        // `alias.x=!scripts/x.sh`
        if let Some((_, command)) = marked.split_once("=!") {
            self.add_word(command, true);
        }
        // `-I./lib`, `-Pscripts`
        if let Some(rest) = marked.strip_prefix('-').and_then(|rest| rest.get(1..)).filter(|rest| !rest.is_empty()) {
            self.add_word(rest, launches);
        }
    }

    /// Adds the words of a shell text, command by command. `depth` is the number of shell texts that this text is
    /// nested in. If `depth` is above [`MAX_NESTING`], adds only [`PROJECT_WORD`], which stands for all files of the
    /// project.
    fn add_text(&mut self, text: &str, depth: usize) {
        self.add_part_of_text(text, depth, true);
    }

    /// Adds the words of a shell text. `is_code` is false for a text that the shell does not execute as a whole, such as
    /// the default of a variable.
    fn add_part_of_text(&mut self, text: &str, depth: usize, is_code: bool) {
        if depth > MAX_NESTING {
            self.found.insert(PROJECT_WORD.to_owned());
            return;
        }
        self.add_runs(text);
        let mut commands = split_commands(text);
        let reads_input = commands.iter().any(|command| reads_program(&command.words));
        let mut writers = commands.iter().filter(|command| !reads_program(&command.words));
        let is_open_input = reads_input && writers.any(|command| !is_closed_reader(&command.words));
        // A backslash in the text can be a part of the code that the splitter removes.
        if !text.contains('\\') {
            for command in &mut commands {
                command.words = self.take_code(&command.words);
            }
        }
        let starts = |command: &ShellCommand| appends_program(&command.words) || starts_programs(&command.words);
        if is_open_input || commands.iter().any(starts) {
            self.found.insert(PROJECT_WORD.to_owned());
        }
        for command in commands {
            self.add_started(&command.words, true);
            // If the file of the redirection is left out, `python3 < lib/x` reads its program from its standard input.
            self.add_started(&command.words_without_redirections(), true);
            if searches_programs(&command.words) {
                self.add_every_file();
            }
            let is_shell = reads_shell_text(&command.words);
            let changes_folder = command.words.first().is_some_and(|word| matches!(word.as_str(), "cd" | "pushd"));
            for (index, (word, launches)) in command.words.iter().zip(launched_words(&command.words)).enumerate() {
                let (is_open, may_start) = (word.contains([VALUE_START, EXPANSION]), launches);
                if word == text {
                    self.add_parts(word, launches);
                } else {
                    let launches = launches || (changes_folder && is_open);
                    self.add_argument(word, (launches, is_shell), depth + 1);
                }
                if index == 0 || may_start {
                    self.add_implied(word);
                }
            }
            for nested in &command.nested {
                self.add_text(nested, depth + 1);
            }
            for value in &command.values {
                self.add_part_of_text(value, depth + 1, false);
            }
            self.commands.extend(is_code.then_some(command));
        }
    }

    /// Adds a word to the words that may name project files. `launches` is true if the command can execute the file
    /// that the word names.
    fn add_word(&mut self, word: &str, launches: bool) {
        let plain: String = word.chars().filter(|c| *c != VALUE_START).collect();
        let is_project = |text: &str| text.split('/').all(|part| part.is_empty() || part == ".");
        let Some(start) = word.find([VALUE_START, EXPANSION]) else {
            let launches_project = launches && !plain.starts_with('/');
            if !is_project(&plain) {
                // A slash at the end marks a folder whose files are named only at the call.
                self.found.insert(plain.trim_end_matches('/').to_owned());
            } else if !plain.is_empty() && launches_project {
                self.found.insert(PROJECT_WORD.to_owned());
            }
            return;
        };
        // The folder that the tool's own text names.
        let own = word.get(..start).and_then(|before| before.rsplit_once('/')).map(|(folder, _)| folder);
        if own.is_none_or(is_project) && !launches {
            return;
        }
        // The value of a placeholder names one file. An expansion can name any file of the folder at the start of the
        // word.
        let folder = plain.find(EXPANSION).map(|at| plain.get(..at).unwrap_or_default());
        let folder = folder.map(|before| before.rsplit_once('/').map_or("", |(folder, _)| folder));
        match folder {
            None if plain.is_empty() => {}
            None => drop(self.found.insert(plain)),
            Some(folder) if is_project(folder) => drop(self.found.insert(PROJECT_WORD.to_owned())),
            Some(folder) => drop(self.found.insert(format!("{}/", folder.trim_start_matches("./")))),
        }
    }
}

#[cfg(test)]
mod tests;
