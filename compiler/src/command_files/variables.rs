//! Finds the files that a shell text executes if their names come from variables, outputs of commands or globs. Values
//! that the text contains are inserted. If the text does not contain a value (`read`, `find`, a glob without a folder),
//! the text can execute every file of the project, or, if the end of the path is literal, each file with this end.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use super::interpreters::{ProgramSource, source_of};
use super::shell_words::{KEYWORDS, ShellCommand, WordExpansion, is_variable_name, split_commands};
use super::wrappers::{launched_words, wrapped_command};
use super::{COMPUTED, EXPANSION, IMPLIED_FILES, IN_ANY_FOLDER, INTERPRETERS, READERS, SHELLS, VALUE_START, name_of};

/// Marks a part of a resolved word that the text computes. For a part that the text only receives, such as a parameter,
/// the word keeps [`EXPANSION`].
const COMPUTED_PART: char = '\u{E004}';
/// Maximum number of values of a word. A word with more values counts as computed.
const MAX_VALUES: usize = 64;
/// Maximum nesting of variables in the values of variables. A deeper value counts as computed.
const MAX_DEPTH: usize = 12;
/// Maximum number of characters that are read to resolve the words of one text. After this number, each word with an
/// expansion counts as computed.
const MAX_READ_CHARS: usize = 1 << 20;
/// Maximum number of arguments that are searched for the program of a shell or an interpreter.
const MAX_ARGUMENTS: usize = 100;
/// Commands that assign values to the variables that their arguments name.
const DECLARERS: [&str; 5] = ["declare", "export", "local", "readonly", "typeset"];
/// Commands whose input or output becomes the value of variables.
const INPUT_READERS: [&str; 3] = ["mapfile", "read", "readarray"];
/// Reserved words and commands that do not execute their arguments as programs.
const NO_PROGRAMS: [&str; 9] = ["=", "case", "for", "function", "hash", "in", "select", "type", "which"];
/// Commands whose output names a folder or a program outside of the project, or a folder that an argument names.
const PLACE_PRINTERS: [&str; 5] = ["dirname", "mktemp", "pwd", "readlink", "realpath"];
/// Commands whose output is not used as a value.
const SILENT: [&str; 8] = [":", "[", "[[", "cd", "hash", "pushd", "test", "true"];

/// Returns an entry for each file that the commands of a shell text execute under a name from variables, outputs or
/// globs.
pub fn files_of_variables(commands: &[ShellCommand]) -> BTreeSet<String> {
    let commands = &with_parameters_of_functions(commands);
    let mut reader = LaunchReader { variables: ShellVariables::of(commands), ..LaunchReader::default() };
    let reads_document = commands.iter().any(|command| super::reads_program(&command.words));
    let executed = commands.iter().filter(|command| !command.is_inert && (reads_document || !command.is_document));
    let executed: Vec<&ShellCommand> = executed.collect();
    reader.enters_any_folder = executed.iter().any(|command| reader.enters_computed_folder(command));
    reader.runners = executed.iter().filter_map(|command| run_by(command)).collect();
    for command in executed {
        reader.add_command(command);
    }
    reader.found
}

/// A word of a shell text with its expansions.
#[derive(Debug, Clone, Copy)]
struct OpenWord<'c> {
    text: &'c str,
    expansions: &'c [WordExpansion],
}

/// The values that a shell text assigns to its variables.
#[derive(Default)]
struct ShellVariables<'c> {
    values: BTreeMap<String, Vec<OpenWord<'c>>>,
    /// The first elements of arrays.
    first_elements: BTreeMap<String, Vec<OpenWord<'c>>>,
    /// The functions that the text defines.
    functions: BTreeSet<&'c str>,
    /// True if the text shifts the parameters of functions (`shift`).
    shifts: bool,
    /// The variables that get a value which the text does not contain.
    computed: BTreeSet<&'c str>,
    /// The number of characters that were read to resolve words.
    read_chars: Cell<usize>,
}

impl<'c> ShellVariables<'c> {
    fn of(commands: &'c [ShellCommand]) -> Self {
        let words_of_function = |command: &'c ShellCommand| {
            let is_function = command.words.first().is_some_and(|word| word == "function");
            let at = if is_function { Some(1) } else { command.is_definition.then_some(0) };
            at.and_then(|at| command.words.get(at)).map(String::as_str)
        };
        let functions = commands.iter().filter_map(words_of_function).collect();
        let shifts = commands.iter().any(|command| command.words.iter().any(|word| word == "shift"));
        let mut variables = Self { functions, shifts, ..Self::default() };
        let mut before: Option<&str> = None;
        for command in commands.iter().filter(|command| !command.is_inert) {
            let words = words_of(command);
            let array = command.array.as_deref();
            if let Some(array) = array {
                if before != Some(array)
                    && let Some(first) = words.first()
                {
                    variables.first_elements.entry(array.to_owned()).or_default().push(*first);
                }
                variables.values.entry(array.to_owned()).or_default().extend(words);
            } else {
                variables.add_assignments(&words);
            }
            before = array;
        }
        variables
    }

    fn add_assignments(&mut self, words: &[OpenWord<'c>]) {
        let Some(at) = words.iter().position(|word| !is_skipped(word)) else { return };
        let (Some(program), arguments) = (words.get(at), words.get(at + 1..).unwrap_or_default()) else { return };
        let names = arguments.iter().filter(|word| is_variable_name(word.text)).map(|word| word.text);
        match program.text {
            "=" => arguments.iter().for_each(|word| self.add_assignment(*word)),
            "for" | "select" => {
                let values = arguments.iter().skip_while(|word| word.text != "in").skip(1).copied();
                if let Some(name) = arguments.first() {
                    self.values.entry(name.text.to_owned()).or_default().extend(values);
                }
            }
            name if INPUT_READERS.contains(&name) => self.computed.extend(names.chain(["REPLY", "MAPFILE"])),
            "printf" if arguments.first().is_some_and(|word| word.text == "-v") => self.computed.extend(names.take(1)),
            name if DECLARERS.contains(&name) => {
                // `declare -n`: the value is the name of another variable.
                let is_reference = arguments.iter().any(|word| word.text.starts_with('-') && word.text.contains('n'));
                for word in arguments {
                    self.add_assignment(*word);
                    let name = word.text.split('=').next().filter(|name| is_reference && is_variable_name(name));
                    self.computed.extend(name);
                }
            }
            name if self.functions.contains(name) => self.add_call(name, arguments),
            _ => {}
        }
    }

    /// Adds the arguments of a call to the possible values of the function's parameters.
    fn add_call(&mut self, function: &str, arguments: &[OpenWord<'c>]) {
        for (at, argument) in arguments.iter().enumerate().take(MAX_ARGUMENTS) {
            if self.shifts {
                for number in 1..=9 {
                    self.values.entry(parameter_name(function, &number.to_string())).or_default().push(*argument);
                }
            } else {
                self.values.entry(parameter_name(function, &(at + 1).to_string())).or_default().push(*argument);
            }
            self.values.entry(parameter_name(function, "@")).or_default().push(*argument);
        }
        self.first_elements
            .entry(parameter_name(function, "@"))
            .or_default()
            .extend(arguments.iter().take(if self.shifts { MAX_ARGUMENTS } else { 1 }));
    }

    fn add_assignment(&mut self, word: OpenWord<'c>) {
        let Some((name, value)) = word.text.split_once('=') else { return };
        let appends = name.ends_with('+');
        let name = name.trim_end_matches('+');
        if !is_variable_name(name) {
            return;
        }
        // A value that starts with a space adds another argument.
        if appends && !value.is_empty() && !value.starts_with(char::is_whitespace) {
            self.computed.insert(name);
        }
        let before = name.matches(EXPANSION).count();
        let expansions = word.expansions.get(before..).unwrap_or_default();
        if !appends {
            self.values.entry(name.to_owned()).or_default().push(OpenWord { text: value, expansions });
        }
    }

    /// Returns the values of a word, with [`EXPANSION`] or [`COMPUTED_PART`] in place of the parts that the text does
    /// not contain. `outer` are the variables that the caller is resolving.
    fn resolve(&self, word: OpenWord<'_>, outer: &[&str]) -> Vec<String> {
        self.read_chars.set(self.read_chars.get().saturating_add(word.text.len() + 1));
        if outer.len() > MAX_DEPTH || self.read_chars.get() > MAX_READ_CHARS {
            return vec![COMPUTED_PART.to_string()];
        }
        let mut values = vec![String::new()];
        let mut expansions = word.expansions.iter();
        let mut rest = word.text.chars().filter(|c| *c != VALUE_START).peekable();
        while let Some(c) = rest.next() {
            if c != EXPANSION {
                for value in &mut values {
                    value.push(c);
                }
                continue;
            }
            let is_last = rest.peek().is_none_or(|c| c.is_whitespace());
            let parts = expansions
                .next()
                .map_or_else(|| vec![EXPANSION.to_string()], |expansion| self.values_of(expansion, outer, is_last));
            values = values.iter().flat_map(|start| parts.iter().map(move |part| format!("{start}{part}"))).collect();
            if values.len() > MAX_VALUES {
                return vec![COMPUTED_PART.to_string()];
            }
        }
        values
    }

    /// Returns the possible values of an expansion. `is_last` is true if the expansion is at the end of a word.
    fn values_of(&self, expansion: &WordExpansion, outer: &[&str], is_last: bool) -> Vec<String> {
        let computed = || vec![COMPUTED_PART.to_string()];
        match expansion {
            WordExpansion::Variable(name) => self.values_of_variable(name, &self.values, outer, is_last),
            WordExpansion::Elements(name) => {
                let elements = if outer.is_empty() { &self.first_elements } else { &self.values };
                self.values_of_variable(name, elements, outer, is_last)
            }
            WordExpansion::Default(name, default) => {
                let mut values = self.values_of_variable(name, &self.values, outer, is_last);
                let default = default.trim_matches('"');
                values.extend(split_commands(default).iter().filter_map(|command| command.words.first().cloned()));
                values
            }
            WordExpansion::Changed(name) => {
                let values = self.values_of_variable(name, &self.values, outer, true);
                let is_received = values.iter().all(|value| value.chars().all(|c| c == EXPANSION));
                if is_received { values } else { computed() }
            }
            WordExpansion::Output(text) => self.values_of_output(text, outer),
            WordExpansion::Glob => computed(),
            WordExpansion::Group | WordExpansion::Condition | WordExpansion::Other => vec![EXPANSION.to_string()],
        }
    }

    fn values_of_variable(
        &self,
        name: &str,
        values: &BTreeMap<String, Vec<OpenWord<'_>>>,
        outer: &[&str],
        is_last: bool,
    ) -> Vec<String> {
        if self.computed.contains(name) {
            return vec![COMPUTED_PART.to_string()];
        }
        if outer.contains(&name) {
            // `OPTIONS="$OPTIONS --all"` adds an argument; `NAME=${NAME}x` computes a name.
            return vec![if is_last { EXPANSION } else { COMPUTED_PART }.to_string()];
        }
        let Some(values) = values.get(name) else {
            let is_shell = matches!(name, "SHELL" | "BASH");
            return vec![if is_shell { "sh".to_owned() } else { EXPANSION.to_string() }];
        };
        let outer: Vec<&str> = outer.iter().copied().chain([name]).collect();
        let resolved: BTreeSet<String> = values.iter().flat_map(|value| self.resolve(*value, &outer)).collect();
        if resolved.len() > MAX_VALUES {
            return vec![COMPUTED_PART.to_string()];
        }
        resolved.into_iter().collect()
    }

    /// Returns the possible outputs of a command substitution: known texts, [`EXPANSION`] for a received part, or
    /// [`COMPUTED_PART`].
    fn values_of_output(&self, text: &str, outer: &[&str]) -> Vec<String> {
        self.read_chars.set(self.read_chars.get().saturating_add(text.len() * 4));
        if self.read_chars.get() > MAX_READ_CHARS {
            return vec![COMPUTED_PART.to_string()];
        }
        let outer: Vec<&str> = outer.iter().copied().chain([""]).collect();
        let mut values = Vec::new();
        for command in &split_commands(text) {
            let words = words_of(command);
            let Some(at) = words.iter().position(|word| !is_skipped(word)) else {
                // `$(< list)`
                if words.is_empty() {
                    return vec![COMPUTED_PART.to_string()];
                }
                continue;
            };
            let Some(program) = words.get(at) else { continue };
            let arguments = words.get(at + 1..).unwrap_or_default();
            let resolved: Vec<String> = arguments.iter().flat_map(|word| self.resolve(*word, &outer)).collect();
            let is_computed = resolved.iter().any(|argument| argument.contains(COMPUTED_PART));
            let is_test = program.expansions.first() == Some(&WordExpansion::Condition);
            match program.text {
                "=" => {}
                text if is_test || (SILENT.contains(&text) && !is_computed) => {}
                "echo" if arguments.len() == 1 => values.extend(resolved),
                "which" | "command" | "type" if !is_computed => {
                    values.extend(resolved.into_iter().filter(|argument| !argument.starts_with('-')));
                }
                // `dirname lib/x` names a folder that no word of the text is.
                name if PLACE_PRINTERS.contains(&name)
                    && !is_computed
                    && resolved.iter().all(|argument| argument.contains(EXPANSION) || !argument.contains('/')) =>
                {
                    values.push(EXPANSION.to_string());
                }
                "git" if arguments.first().is_some_and(|word| word.text == "rev-parse") => {
                    values.push(EXPANSION.to_string());
                }
                _ => return vec![COMPUTED_PART.to_string()],
            }
        }
        if values.is_empty() { vec![EXPANSION.to_string()] } else { values }
    }
}

/// A reader of the commands of a text. Collects the files that the commands execute.
#[derive(Default)]
struct LaunchReader<'c> {
    variables: ShellVariables<'c>,
    /// True if a command enters a folder whose name is computed.
    enters_any_folder: bool,
    /// The functions that execute their arguments as a command.
    runners: BTreeSet<String>,
    found: BTreeSet<String>,
}

impl LaunchReader<'_> {
    fn enters_computed_folder(&self, command: &ShellCommand) -> bool {
        let words = words_of(command);
        let Some(at) = words.iter().position(|word| !is_skipped(word)) else { return false };
        let is_folder = words.get(at).is_some_and(|word| matches!(word.text, "cd" | "pushd"));
        let mut folders = words.get(at + 1..).unwrap_or_default().iter();
        is_folder && folders.any(|word| self.variables.resolve(*word, &[]).iter().any(|it| it.contains(COMPUTED_PART)))
    }

    fn add_command(&mut self, command: &ShellCommand) {
        let words = words_of(command);
        if command.array.is_none() {
            self.add_launch(&words, 0);
        }
        // `bash < "$f"` reads its program from the file of the redirection.
        let all = all_words(command);
        for (at, launches) in launched_words(&command.words).into_iter().enumerate() {
            let is_started = launches || command.array.is_some();
            if let (true, Some(word)) = (is_started, all.get(at)) {
                self.add_started(word.text, all.get(at + 1..).unwrap_or_default());
            }
        }
    }

    /// Adds the program that a command executes. Reserved words and programs such as `exec` before the program are
    /// skipped.
    fn add_launch(&mut self, words: &[OpenWord<'_>], depth: usize) {
        let function = words.first().is_some_and(|word| word.text == "function");
        let body = words.iter().position(|word| word.expansions == [WordExpansion::Group]);
        let words = words.get(body.filter(|_| function).unwrap_or_default()..).unwrap_or_default();
        let start = words.iter().position(|word| !is_skipped(word)).unwrap_or(words.len());
        let words = words.get(start..).unwrap_or_default();
        let (Some(program), arguments) = (words.first().copied(), words.get(1..).unwrap_or_default()) else { return };
        let is_test = program.expansions.first() == Some(&WordExpansion::Condition);
        if is_test || depth > MAX_DEPTH || NO_PROGRAMS.contains(&program.text) || READERS.contains(&program.text) {
            return;
        }
        if self.add_wrapped(words, depth) {
            return;
        }
        for value in self.variables.resolve(program, &[]) {
            let mut parts = value.split_whitespace();
            let Some(name) = parts.next() else {
                self.add_launch(arguments, depth + 1);
                continue;
            };
            let own: Vec<OpenWord<'_>> = parts.map(|text| OpenWord { text, expansions: &[] }).collect();
            let behind: Vec<OpenWord<'_>> = own.into_iter().chain(arguments.iter().copied()).collect();
            self.add_name(name, !program.expansions.is_empty());
            // `run() { "$@"; }`
            if self.runners.contains(name) {
                self.add_launch(arguments, depth + 1);
                for (at, word) in arguments.iter().enumerate().take(MAX_ARGUMENTS) {
                    self.add_started(word.text, arguments.get(at + 1..).unwrap_or_default());
                }
            }
            if !program.expansions.is_empty() {
                self.add_started(name, &behind);
                // For example `SUDO="sudo -u root"; $SUDO $f`.
                let wrapper = OpenWord { text: name, expansions: &[] };
                self.add_wrapped(&[&[wrapper], behind.as_slice()].concat(), depth);
            }
            self.add_arguments(name, &behind);
        }
    }

    /// Adds the command in the arguments of a wrapper such as `sudo`. Returns false if the first word is no wrapper.
    fn add_wrapped(&mut self, words: &[OpenWord<'_>], depth: usize) -> bool {
        let texts: Vec<&str> = words.iter().take(MAX_ARGUMENTS).map(|word| word.text).collect();
        let Some(command) = wrapped_command(&texts) else { return false };
        let wrapped = words.get(command.at..).unwrap_or_default();
        if let Some(code) = command.code.and_then(|at| words.get(at)) {
            self.add_code(&[*code]);
        }
        // For example `OPTIONS="-u root"; sudo $OPTIONS $f`.
        if let Some((option, behind)) = wrapped.split_first().filter(|(word, _)| !word.expansions.is_empty()) {
            for value in self.variables.resolve(*option, &[]).iter().filter(|value| value.starts_with('-')) {
                let own = value.split_whitespace().map(|text| OpenWord { text, expansions: &[] });
                let all: Vec<OpenWord<'_>> =
                    words.iter().take(1).copied().chain(own).chain(behind.iter().copied()).collect();
                self.add_launch(&all, depth + 1);
            }
        }
        if let Some((program, arguments)) = wrapped.split_first() {
            self.add_started(program.text, arguments);
        }
        self.add_launch(wrapped, depth + 1);
        true
    }

    /// Adds the files that the arguments of a built-in command name, and the files that a program reads from its
    /// folder.
    fn add_arguments(&mut self, name: &str, arguments: &[OpenWord<'_>]) {
        match name {
            "." | "source" => {
                self.add_file(arguments.first());
            }
            "eval" => self.add_code(arguments),
            _ if self.enters_any_folder => {
                let implied = IMPLIED_FILES.iter().filter(|(known, _)| *known == name).flat_map(|(_, files)| *files);
                self.found.extend(implied.map(|file| format!("{IN_ANY_FOLDER}{file}")));
            }
            _ => {}
        }
    }

    /// Adds the file that a shell or an interpreter executes.
    fn add_started(&mut self, program: &str, arguments: &[OpenWord<'_>]) {
        let name = name_of(program);
        if !SHELLS.contains(&name) && !INTERPRETERS.contains(&name) {
            return;
        }
        let texts: Vec<&str> = arguments.iter().take(MAX_ARGUMENTS).map(|word| word.text).collect();
        match source_of(name, &texts) {
            ProgramSource::File(file) => {
                self.add_file(arguments.iter().find(|word| std::ptr::eq(word.text, file)));
            }
            ProgramSource::Code { .. } if SHELLS.contains(&name) => self.add_code(arguments),
            ProgramSource::Module(_) if self.enters_any_folder => drop(self.found.insert(COMPUTED.to_owned())),
            ProgramSource::Module(_)
            | ProgramSource::Code { .. }
            | ProgramSource::StandardInput
            | ProgramSource::Information => {}
        }
    }

    /// Adds the programs of code that `eval` or a shell executes, if a variable holds the code and a part of it is
    /// computed. If the code starts with a computed part, adds [`COMPUTED`] instead.
    fn add_code(&mut self, arguments: &[OpenWord<'_>]) {
        for word in arguments.iter().filter(|word| word.text.contains(EXPANSION)) {
            if matches!(word.expansions, [WordExpansion::Output(_)]) {
                continue;
            }
            let codes = self.variables.resolve(*word, &[]);
            for code in codes.iter().filter(|code| code.contains(COMPUTED_PART)) {
                if code.starts_with(COMPUTED_PART) {
                    self.found.insert(COMPUTED.to_owned());
                } else if code.contains(char::is_whitespace) {
                    self.add_text(code);
                }
            }
        }
    }

    /// Adds the programs of a shell text whose variables are resolved.
    fn add_text(&mut self, code: &str) {
        let commands = split_commands(code);
        let executed = || commands.iter().filter(|command| !command.is_inert);
        self.enters_any_folder |= executed().any(|command| self.enters_computed_folder(command));
        for command in executed() {
            self.add_command(command);
        }
    }

    /// Adds the file that an argument names.
    fn add_file(&mut self, argument: Option<&OpenWord<'_>>) {
        let files = argument.map(|word| self.variables.resolve(*word, &[])).unwrap_or_default();
        for file in &files {
            self.add_name(file, true);
        }
    }

    /// Adds a file by its resolved path. `is_path` is false if a name without a folder is not a path, but a program
    /// that the shell looks up.
    fn add_name(&mut self, path: &str, is_path: bool) {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let is_marked = |text: &str| text.contains([COMPUTED_PART, EXPANSION]);
        // The literal folders after the last part of the path that is not literal.
        let is_literal = |part: &&str| !is_marked(part) && !part.is_empty() && !part.starts_with('.');
        let mut literal: Vec<&str> = folder.rsplit('/').take_while(is_literal).collect();
        literal.reverse();
        let tail: String = literal.iter().flat_map(|part| [*part, "/"]).collect();
        if name.contains(COMPUTED_PART) {
            let word = if tail.is_empty() { COMPUTED.to_owned() } else { tail };
            self.found.insert(word);
        } else if name.is_empty() || name.contains(EXPANSION) {
        } else if folder.contains(COMPUTED_PART) || (self.enters_any_folder && path.contains('/')) {
            self.found.insert(format!("{IN_ANY_FOLDER}{tail}{name}"));
        } else if self.enters_any_folder && is_path {
            self.found.insert(format!("{IN_ANY_FOLDER}{name}"));
        } else if is_marked(folder) {
            self.found.insert(format!("{tail}{name}"));
        } else if is_path {
            self.found.insert(path.to_owned());
        }
    }
}

/// Returns the function whose body contains the command, if the command executes the function's arguments: `run() {
/// exec "$@"; }`. `None` for other commands.
fn run_by(command: &ShellCommand) -> Option<String> {
    let words: Vec<OpenWord<'_>> = words_of(command).into_iter().skip_while(is_skipped).collect();
    let mut rest = words.as_slice();
    while let Some(wrapped) = wrapped_command(&rest.iter().map(|word| word.text).collect::<Vec<_>>()) {
        rest = rest.get(wrapped.at..).unwrap_or_default();
    }
    match rest.first()?.expansions {
        [WordExpansion::Elements(name)] => name.strip_suffix(" @").map(str::to_owned),
        _ => None,
    }
}

/// Returns the name of a parameter of a function. No variable has such a name.
fn parameter_name(function: &str, parameter: &str) -> String {
    format!("{function} {parameter}")
}

/// Returns the commands of a text, with the parameters in the bodies of functions (`$1`) renamed by [`parameter_name`].
fn with_parameters_of_functions(commands: &[ShellCommand]) -> Vec<ShellCommand> {
    let mut scoped = commands.to_vec();
    let mut bodies: Vec<(String, usize)> = Vec::new();
    let (mut depth, mut defined) = (0_usize, None);
    for command in scoped.iter_mut().filter(|command| !command.is_inert && !command.is_document) {
        let opened = command.expansions.iter().filter(|it| **it == [WordExpansion::Group]).count();
        if command.is_definition {
            defined = command.words.first().cloned();
        } else if command.words.first().is_some_and(|word| word == "function") {
            defined = command.words.get(1).cloned();
        }
        if opened > 0
            && let Some(name) = defined.take()
        {
            bodies.push((name, depth));
        }
        depth += opened;
        if let Some((function, _)) = bodies.last() {
            for expansion in command.expansions.iter_mut().flatten() {
                let (WordExpansion::Variable(name)
                | WordExpansion::Default(name, _)
                | WordExpansion::Changed(name)
                | WordExpansion::Elements(name)) = expansion
                else {
                    continue;
                };
                if name == "@" || name.parse::<u8>().is_ok() {
                    *name = parameter_name(function, name);
                }
            }
        }
        if command.words.first().is_some_and(|word| word == "}") {
            depth = depth.saturating_sub(1);
            bodies.pop_if(|(_, start)| *start == depth);
        }
    }
    scoped
}

/// Returns true for a reserved word before a command, and for an assignment after such a word.
fn is_skipped(word: &OpenWord<'_>) -> bool {
    let is_group = word.expansions == [WordExpansion::Group];
    let is_assignment = word.text != "=" && word.text.split_once('=').is_some_and(|(name, _)| is_variable_name(name));
    KEYWORDS.contains(&word.text) || is_group || is_assignment
}

/// Returns the words of a command, except the words of its redirections.
fn words_of(command: &ShellCommand) -> Vec<OpenWord<'_>> {
    all_words(command)
        .into_iter()
        .enumerate()
        .filter(|(at, _)| !command.is_redirection(*at))
        .map(|(_, it)| it)
        .collect()
}

fn all_words(command: &ShellCommand) -> Vec<OpenWord<'_>> {
    let expansions = command.expansions.iter().map(Vec::as_slice);
    let words = command.words.iter().zip(expansions);
    words.map(|(text, expansions)| OpenWord { text, expansions }).collect()
}
