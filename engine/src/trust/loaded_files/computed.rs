//! Finds the programs that a Python, JavaScript, Perl, Ruby, Lua or PHP program starts, and its imports by computed
//! names (names that are not literals in the text). The words of a started command are treated like the words of a
//! tool's command. If the text does not show which file is started or imported, the program counts as able to load
//! every file of the project. The text is searched with regular expressions and not parsed, so a call in an unknown
//! form counts as computed.

mod environment;
mod modular;

use std::sync::LazyLock;

use regex::Regex;
use rye_compiler::command_files::{PROJECT_WORD, files_of_shell_text, files_of_tool};

use super::Language;
use environment::makes_functions;

/// The programs that a text starts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ProgramStarts {
    /// The words of the started commands that may name files of the project.
    pub words: Vec<String>,
    /// True if the program starts or imports a file that the text does not name.
    pub is_computed: bool,
    /// Number of folder expressions that were checked so far.
    checked_folders: usize,
}

/// An argument of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Argument {
    Literal(String),
    List(Vec<Argument>),
    Computed,
}

fn regex(pattern: &str) -> Option<Regex> {
    Regex::new(pattern).ok()
}

/// Matches Python that executes code or imports a module in a form in which the text does not show the file, or that
/// gives another name to a function which does so.
static PYTHON_COMPUTED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let imported = r"(?:\([^)]*|[^;\n]*)";
    regex(&[
        r"\b(?:runpy|zipimport|builtins|__builtins__|spec_from_file_location|exec_module|load_module|pexpect|pty)\b",
        r"\b(?:Source|Sourceless|Extension)FileLoader\b|\b_posixsubprocess\b|\bcreate_subprocess_",
        r"(?:^|[^.\w])(?:exec|eval|execfile)\s*\(",
        r"\b(?:subprocess|importlib)\s+as\b|=\s*(?:subprocess|importlib)\s*(?:[;,#\n]|$)",
        r"\b(?:getattr|vars)\s*\(\s*(?:os|subprocess|importlib)\b|\b(?:os|subprocess|importlib)\s*\.\s*__dict__",
        r"\bfrom\s+subprocess\s+import\b",
        &format!(r"\bfrom\s+os\s+import\s*{imported}(?:\b(?:system|popen|exec\w+|spawn\w+|posix_spawn\w*)\b|\*)"),
        r"\bos\s*\.\s*(?:exec[lv]\w*|spawn[lv]\w*|posix_spawn\w*)\b",
        r"\b(?:FunctionType|CodeType|importfile|safeimport|loadTestsFromNames?|IMAP4_stream)\b|\bpydoc\s*\.\s*locate\b",
    ]
    .join("|"))
});
/// Matches the name of a Python function that starts a program. The match is a call if a parenthesis follows.
static PYTHON_STARTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex(
        r"\b(?:subprocess\s*\.\s*(?:run|call|check_call|check_output|Popen|getoutput|getstatusoutput)|os\s*\.\s*(?:system|popen))\b",
    )
});
static PYTHON_IMPORTS: LazyLock<Option<Regex>> = LazyLock::new(|| regex(r"\b(?:import_module|__import__)\b"));
/// Matches JavaScript that executes code or starts programs in a form in which the text does not show the file.
static JAVASCRIPT_COMPUTED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex(
        &[
            r"(?:^|[^.\w$])eval\s*\(|\bdlopen\b|\bpathToFileURL\b",
            r#"["'](?:node:)?vm["']|\bBun\s*\.\s*(?:spawn|\$)|\bDeno\s*\.\s*(?:Command|run)\b"#,
        ]
        .join("|"),
    )
});
/// Matches JavaScript that gives another name to a function that starts programs.
static JAVASCRIPT_RENAMED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let starts = r"(?:exec|execSync|spawn|spawnSync|execFile|execFileSync|fork)";
    regex(&format!(r"\b{starts}\s+as\b|\b{starts}\s*:|\bpromisify\b|=\s*(?:\w+\s*\.\s*)?{starts}\s*(?:[;,\n]|$)"))
});
static JAVASCRIPT_STARTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex(r"(?:(\w+)\s*\)?\s*\.\s*)?\b(exec|execSync|spawn|spawnSync|execFile|execFileSync|fork)\s*\(")
});
/// Matches an import of the module `child_process`. One of the capture groups holds the name that the text gives to the
/// module.
static CHILD_PROCESS_NAMES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex(
        r#"(?:\*\s*as\s+|\bimport\s+)(\w+)\s+from\s*["'](?:node:)?child_process["']|(\w+)\s*=\s*(?:await\s+import|require)\s*\(\s*["'](?:node:)?child_process["']"#,
    )
});
static JAVASCRIPT_IMPORTS: LazyLock<Option<Regex>> =
    LazyLock::new(|| regex(r"(?:^|[^.\w$])(?:require|import|new\s+Worker)\s*\("));

impl ProgramStarts {
    /// Finds the starts of programs and the computed imports in a text.
    pub fn of(text: &str, language: Language) -> Self {
        match language {
            Language::Python => Self::of_python(text),
            Language::JavaScript => Self::of_javascript(text),
            Language::Modular => Self::of_modular(text),
            Language::Package | Language::Build | Language::Shell => Self::default(),
        }
    }

    fn of_python(text: &str) -> Self {
        let mut found = Self { is_computed: matches(&PYTHON_COMPUTED, text), ..Self::default() };
        for start in PYTHON_STARTS.iter().flat_map(|starts| starts.find_iter(text)) {
            let takes_text = !start.as_str().starts_with("subprocess") || start.as_str().ends_with("output");
            match arguments_after(text, start.end(), Language::Python).map(|(arguments, call)| (first(arguments), call))
            {
                // Without a call, the function is passed on or gets another name, so the started program is unknown.
                None | Some((Argument::Computed, _)) => found.is_computed = true,
                Some((Argument::Literal(command), call)) => {
                    found.add_command(&[Argument::Literal(command.clone())]);
                    let mut words = vec![Argument::Literal(command.clone())];
                    if takes_text || has_shell(call) {
                        found.add_shell_text(&command);
                        words = command.split_whitespace().map(|word| Argument::Literal(word.to_owned())).collect();
                    }
                    found.check_folder(text, call, &words);
                }
                Some((Argument::List(_), call)) if has_shell(call) => found.is_computed = true,
                Some((Argument::List(words), call)) => {
                    found.add_command(&words);
                    found.check_folder(text, call, &words);
                }
            }
        }
        if matches(&PYTHON_STARTS, text) {
            found.add_environment(text);
        }
        found.add_python_readers(text);
        for import in PYTHON_IMPORTS.iter().flat_map(|imports| imports.find_iter(text)) {
            let line = text[..import.start()].rsplit('\n').next().unwrap_or_default().trim_start();
            let is_named = line.starts_with("from importlib import");
            let called = arguments_after(text, import.end(), Language::Python).map(|(arguments, _)| first(arguments));
            found.is_computed |= !is_named && !matches!(called, Some(Argument::Literal(_)));
        }
        found
    }

    fn of_javascript(text: &str) -> Self {
        let is_computed = matches(&JAVASCRIPT_COMPUTED, text) || makes_functions(text);
        let mut found = Self { is_computed, ..Self::default() };
        if text.contains("child_process") {
            found.add_child_processes(text);
        }
        for import in JAVASCRIPT_IMPORTS.iter().flat_map(|imports| imports.find_iter(text)) {
            let Some((arguments, call)) = arguments_after(text, import.end() - 1, Language::JavaScript) else {
                found.is_computed = true;
                continue;
            };
            let is_named = match first(arguments) {
                Argument::Literal(_) => true,
                // `new URL("./worker.mjs", import.meta.url)`; a template whose folder is named: `./plugins/${name}`.
                Argument::List(_) | Argument::Computed => {
                    let argument = call.trim_start();
                    let template = argument.strip_prefix('`').and_then(|rest| rest.split_once("${"));
                    argument.starts_with("new URL(\"")
                        || argument.starts_with("new URL('")
                        || template.is_some_and(|(start, _)| start.contains('/'))
                }
            };
            found.is_computed |= !is_named;
        }
        found
    }

    /// Adds the commands that a JavaScript text starts by functions of the module `child_process`. Sets `is_computed`
    /// if the text contains no such call, because the functions may then have other names.
    fn add_child_processes(&mut self, text: &str) {
        self.is_computed |= matches(&JAVASCRIPT_RENAMED, text);
        let names = CHILD_PROCESS_NAMES.iter().flat_map(|names| names.captures_iter(text));
        let names: Vec<&str> =
            names.filter_map(|found| found.iter().skip(1).flatten().next()).map(|name| name.as_str()).collect();
        let mut count = 0;
        for start in JAVASCRIPT_STARTS.iter().flat_map(|starts| starts.captures_iter(text)) {
            let (Some(whole), Some(function)) = (start.get(0), start.get(2)) else { continue };
            // `/x/.exec(text)` matches a regular expression and starts no program.
            let is_method = text[..function.start()].trim_end().ends_with('.');
            if is_method
                && !start.get(1).is_some_and(|name| names.contains(&name.as_str()) || name.as_str() == "child_process")
            {
                let receiver = text[..function.start()].trim_end().trim_end_matches('.').trim_end();
                if !receiver.ends_with("child_process\")") && !receiver.ends_with("child_process')") {
                    continue;
                }
            }
            count += 1;
            let arguments =
                arguments_after(text, whole.end() - 1, Language::JavaScript).map(|(arguments, _)| arguments);
            self.add_child_process(function.as_str(), arguments.unwrap_or_default());
        }
        self.is_computed |= count == 0;
        self.add_environment(text);
    }

    fn add_child_process(&mut self, function: &str, arguments: Vec<Argument>) {
        let mut arguments = arguments.into_iter();
        match (function, arguments.next()) {
            ("exec" | "execSync", Some(Argument::Literal(text))) => self.add_shell_text(&text),
            (_, Some(program @ Argument::Literal(_))) => {
                let mut words =
                    if function == "fork" { vec![Argument::Literal("node".to_owned())] } else { Vec::new() };
                words.push(program);
                match arguments.next() {
                    Some(Argument::List(list)) => words.extend(list),
                    // Options, or a list in a variable.
                    Some(Argument::Literal(_) | Argument::Computed) => words.push(Argument::Computed),
                    None => {}
                }
                self.add_command(&words);
            }
            (_, Some(Argument::List(_) | Argument::Computed) | None) => self.is_computed = true,
        }
    }

    /// Adds the files that a command names. A computed word is treated like a placeholder in a tool's command, whose
    /// value is known only when the command runs.
    fn add_command(&mut self, words: &[Argument]) {
        let template = |word: &Argument| match word {
            Argument::Literal(text) => text.replace('{', "{{").replace('}', "}}"),
            Argument::List(_) | Argument::Computed => "{computed}".to_owned(),
        };
        let argv: Vec<String> = words.iter().map(template).collect();
        self.add_words(files_of_tool(&argv, "", None));
    }

    fn add_shell_text(&mut self, text: &str) {
        self.add_words(files_of_shell_text(text));
    }

    fn add_words(&mut self, words: Vec<String>) {
        self.is_computed |= words.iter().any(|word| word == PROJECT_WORD);
        self.words.extend(words);
    }
}

fn matches(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.iter().any(|pattern| pattern.is_match(text))
}

/// Returns true if a call of a function of `subprocess` has the argument `shell`, whatever its value is.
fn has_shell(call: &str) -> bool {
    call.contains("shell=") || call.contains("shell =")
}

fn first(arguments: Vec<Argument>) -> Argument {
    arguments.into_iter().next().unwrap_or(Argument::Computed)
}

/// Reads the arguments of a call. `at` is the byte offset after the name of the function. Returns the arguments and
/// their text. `None` if no opening parenthesis follows, or if the text contains no end of the call.
fn arguments_after(text: &str, at: usize, language: Language) -> Option<(Vec<Argument>, &str)> {
    let rest = text.get(at..)?.trim_start().strip_prefix('(')?;
    let mut reader = StartReader { rest, language };
    let arguments = reader.list(')')?;
    Some((arguments, &rest[..rest.len() - reader.rest.len()]))
}

/// A reader of the arguments of a call. `rest` is the text that is not read yet.
struct StartReader<'t> {
    rest: &'t str,
    language: Language,
}

impl StartReader<'_> {
    /// Reads arguments and the closing character `close` behind them. `None` if the text ends first, or if an argument
    /// is followed by another closing character.
    fn list(&mut self, close: char) -> Option<Vec<Argument>> {
        let mut list = Vec::new();
        loop {
            self.rest = self.rest.trim_start();
            if let Some(rest) = self.rest.strip_prefix(close) {
                self.rest = rest;
                return Some(list);
            }
            let argument = self.argument()?;
            list.push(argument);
            self.rest = self.rest.trim_start();
            if let Some(rest) = self.rest.strip_prefix(',') {
                self.rest = rest;
            } else if !self.rest.starts_with(close) {
                return None;
            }
        }
    }

    /// Reads an argument, without the comma or the closing character behind it. `None` if the text ends first.
    fn argument(&mut self) -> Option<Argument> {
        let start = self.rest;
        let (is_list, close) = match (self.rest.chars().next()?, self.language) {
            ('[', _) => (true, ']'),
            ('(', Language::Python) => (true, ')'),
            _ => (false, ' '),
        };
        let read = if is_list {
            self.rest = self.rest.get(1..)?;
            self.list(close).map(Argument::List)
        } else {
            self.literal().map(Argument::Literal)
        };
        if let Some(read) = read
            && self.rest.trim_start().starts_with([',', ')', ']'])
        {
            return Some(read);
        }
        self.rest = start;
        self.skip()?;
        let skipped = start.get(..start.len() - self.rest.len()).unwrap_or_default().trim();
        Some(match skipped {
            "sys.executable" => Argument::Literal("python3".to_owned()),
            "process.execPath" => Argument::Literal("node".to_owned()),
            _ => Argument::Computed,
        })
    }

    /// Reads a string literal. `None` if there is no string literal, or if it contains an escape, a line end or a
    /// placeholder.
    fn literal(&mut self) -> Option<String> {
        let quote = self.rest.chars().next().filter(|c| matches!(c, '"' | '\'' | '`'))?;
        let rest = self.rest.get(1..)?;
        let (literal, behind) = rest.split_once(quote)?;
        let is_open = literal.contains(['\\', '\n']) || (quote == '`' && literal.contains("${"));
        // `"""` starts a multi-line string.
        if is_open || (literal.is_empty() && behind.starts_with(quote)) {
            return None;
        }
        self.rest = behind;
        Some(literal.to_owned())
    }

    /// Skips the rest of an argument, including its brackets and string literals. `None` if the text ends first.
    fn skip(&mut self) -> Option<()> {
        let rest = self.rest.get(end_of(self.rest, &[','])..)?;
        if rest.is_empty() {
            return None;
        }
        self.rest = rest;
        Some(())
    }
}

/// Returns the byte offset of the closing bracket that ends `text`, or of one of the characters `stops`, outside of
/// string literals and inner brackets. Returns the length of the text if it has no such character.
fn end_of(text: &str, stops: &[char]) -> usize {
    let (mut depth, mut quote, mut escaped) = (0_usize, None, false);
    for (at, c) in text.char_indices() {
        if std::mem::take(&mut escaped) {
            continue;
        }
        match (quote, c) {
            (Some(_), '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'' | '`') => quote = Some(c),
            (None, c) if depth == 0 && (stops.contains(&c) || matches!(c, ')' | ']' | '}')) => return at,
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth -= 1,
            (Some(_) | None, _) => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(text: &str) -> ProgramStarts {
        ProgramStarts::of(text, Language::Python)
    }

    fn javascript(text: &str) -> ProgramStarts {
        ProgramStarts::of(text, Language::JavaScript)
    }

    #[test]
    fn start_whose_program_the_text_names_is_read_as_a_command() {
        for (text, word) in [
            ("import subprocess\nsubprocess.run(['bash', 'lib/run'], check=True)", "lib/run"),
            ("import subprocess\nsubprocess.run(\n    [\"git\", \"log\", name],\n)", "log"),
            ("subprocess.Popen((\"lib/run\", arg), stdout=subprocess.PIPE)", "lib/run"),
            ("subprocess.check_output([sys.executable, 'lib/tool', arg])", "lib/tool"),
            ("subprocess.run('bash lib/run', shell=True)", "lib/run"),
            ("os.system(\"bash lib/run\")", "lib/run"),
        ] {
            let found = python(text);
            assert!(!found.is_computed && found.words.iter().any(|found| found == word), "{text}: {found:?}");
        }
        for (text, word) in [
            ("import { spawn } from 'node:child_process'; spawn('bash', ['lib/run', x])", "lib/run"),
            ("const cp = require('child_process'); cp.execSync('bash lib/run')", "lib/run"),
            ("import { fork } from 'child_process'; fork('lib/m.js')", "lib/m.js"),
            ("import { execFileSync } from 'child_process'; execFileSync('git', ['log', x], {}); /a/.exec(b)", "log"),
        ] {
            let found = javascript(text);
            assert!(!found.is_computed && found.words.iter().any(|found| found == word), "{text}: {found:?}");
        }
    }

    #[test]
    fn start_or_import_that_the_text_does_not_name_is_computed() {
        for text in [
            "subprocess.run(command)",
            "subprocess.run(['bash', path])",
            "subprocess.run(['bash', f'{d}/x.sh'])",
            "subprocess.run([sys.executable, str(root / 'x.py')])",
            "subprocess.run(['python3', '-c', code])",
            "subprocess.run(command, shell=True)",
            "run = subprocess.run",
            "from subprocess import run",
            "import subprocess as sp",
            "os.system('bash ' + path)",
            "from os import (path,\n    system)",
            "os.execv(path, args)",
            "importlib.import_module(name)",
            "__import__(name)",
            "exec(open(path).read())",
            "import runpy",
            "importlib.util.spec_from_file_location('x', path)",
        ] {
            assert!(python(text).is_computed, "{text}");
        }
        for text in [
            "import { execSync as x } from 'child_process'; x(command)",
            "import { exec } from 'child_process'; exec(command)",
            "import { spawn } from 'child_process'; spawn('node', [path.join(p, 'w.js')])",
            "import { spawn } from 'child_process'; spawn('bash', args)",
            "import { execFile } from 'child_process'; promisify(execFile)",
            "require('child_process').execSync(command)",
            "require(name)",
            "require(path.join(a, 'b'))",
            "await import(name)",
            "await import(pathToFileURL(path))",
            "new Worker(path)",
            "eval(text)",
            "new Function(text)",
        ] {
            assert!(javascript(text).is_computed, "{text}");
        }
    }

    #[test]
    fn program_that_starts_nothing_is_not_computed() {
        for text in [
            "import os, subprocess, importlib.metadata",
            "import importlib; importlib.import_module('helper')",
            "from importlib import import_module\nimport_module('my-mod')",
            "re.compile(x); cursor.execute(y); model.eval()",
            "except subprocess.CalledProcessError: pass",
        ] {
            assert_eq!(python(text), ProgramStarts::default(), "{text}");
        }
        for text in [
            "import fs from 'node:fs'; import x from './x.mjs';",
            "require('fs'); await import('./a.mjs'); /x/.exec(y)",
            "await import(`./plugins/${name}.mjs`)",
            "new Worker(new URL('./w.mjs', import.meta.url))",
            "`${a}/${b}`",
        ] {
            assert_eq!(javascript(text), ProgramStarts::default(), "{text}");
        }
    }
}
