//! Checks of how a Python or JavaScript program starts other programs: in which working folder, and with which
//! environment variables. Also finds functions of Python that load a file or execute a text.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use rye_compiler::command_files::{SEARCH_VARIABLES, SEARCHED, files_of_shell_text, starts_from_its_folder};

use super::super::quoted_texts;
use super::{Argument, Language, ProgramStarts, StartReader, arguments_after, first, matches, regex};

/// Maximum number of folder expressions of a text that are checked. Any further expression counts as an unknown folder.
const MAX_CHECKED_FOLDERS: usize = 20;
/// Maximum number of variables that are resolved for one folder expression, including the variables in their values.
const MAX_VARIABLES: usize = 16;
/// Names that are allowed in the expression of a known folder: the project, the working folder, or the folder of the
/// script.
const PLACE_NAMES: [&str; 20] = [
    "Path",
    "__dirname",
    "__file__",
    "abspath",
    "absolute",
    "as_posix",
    "cwd",
    "dirname",
    "fspath",
    "getcwd",
    "import",
    "join",
    "meta",
    "os",
    "parent",
    "parents",
    "path",
    "pathlib",
    "process",
    "project_path",
];
/// Functions that are allowed in the expression of a known folder.
const PLACE_FUNCTIONS: [&str; 6] = ["dirname", "projectPath", "realpath", "resolve", "str", "url"];
/// Matches functions of Python whose first argument is a text to execute, or the name of a file to load.
static PYTHON_READERS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex(
        &[
            r"\btimeit\s*\.\s*(?:timeit|repeat|Timer)\b|\b(?:cProfile|profile)\s*\.\s*run(?:ctx)?\b|\bfileConfig\b",
            r"\b(?:CDLL|PyDLL|LoadLibrary)\b|\bdiscover\b",
        ]
        .join("|"),
    )
});
/// Matches a call of Python's built-in function `compile`, which converts a text to code. Capture group 1 is set for
/// the definition of a function with this name.
static PYTHON_COMPILES: LazyLock<Option<Regex>> = LazyLock::new(|| regex(r"(?:(def\s+)|(?:^|[^.\w]))compile\s*\("));
static CHANGED_FOLDERS: LazyLock<Option<Regex>> = LazyLock::new(|| regex(r"\bchdir\s*\("));
static FOLDERS_OF_STARTS: LazyLock<Option<Regex>> = LazyLock::new(|| regex(r"\bcwd\s*[=:]\s*"));
static NAMES: LazyLock<Option<Regex>> = LazyLock::new(|| regex(r"[A-Za-z_]\w*"));
/// Matches an assignment to one of [`SEARCH_VARIABLES`] in the environment of a program.
static ENVIRONMENT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let names = SEARCH_VARIABLES.join("|");
    regex(
        &[
            format!(r#"["'](?P<a>{names})["']\s*(?:\]\s*\+?=[ \t]*[^=\s]|:[ \t]*\S|,[ \t]*\S)"#),
            format!(r"\b(?:dict|update)\s*\([^)]*\b(?P<b>{names})\s*=[ \t]*[^=\s]"),
            format!(r"\benv\s*\.\s*(?P<c>{names})\s*\+?=[ \t]*[^=\s]"),
            format!(r"\benv\s*:\s*\{{[^}}]*\b(?P<d>{names})\s*:[ \t]*\S"),
        ]
        .join("|"),
    )
});

impl ProgramStarts {
    /// Adds the files that a Python program passes to functions that load a file or execute a text. Sets `is_computed`
    /// if such a file or text is computed.
    pub(super) fn add_python_readers(&mut self, text: &str) {
        let compiles = PYTHON_COMPILES.iter().flat_map(|compiles| compiles.captures_iter(text));
        self.is_computed |= compiles.into_iter().any(|found| found.get(1).is_none());
        self.is_computed |= text.contains("ctypes") && text.contains(".system(");
        for reader in PYTHON_READERS.iter().flat_map(|readers| readers.find_iter(text)) {
            if self.is_computed {
                return;
            }
            if reader.as_str() == "discover" && !text.contains("unittest") {
                continue;
            }
            let Some((arguments, call)) = arguments_after(text, reader.end(), Language::Python) else {
                self.is_computed = text[reader.end()..].trim_start().starts_with('(');
                continue;
            };
            let is_system = call.contains("find_library") || call.starts_with("lambda");
            match first(arguments) {
                Argument::Literal(name) if reader.as_str() == "discover" => self.words.push(format!("{name}/")),
                Argument::Literal(name) => self.words.push(name),
                Argument::List(_) | Argument::Computed => self.is_computed |= !is_system,
            }
        }
    }

    /// Sets `is_computed` if a call starts a program in an unknown working folder, and the command depends on the
    /// working folder. `text` is the whole program, `call` the text of the call's arguments, and `words` the words of
    /// the started command.
    pub(super) fn check_folder(&mut self, text: &str, call: &str, words: &[Argument]) {
        let literal = |word: &Argument| if let Argument::Literal(word) = word { Some(word.clone()) } else { None };
        let words: Vec<String> = words.iter().filter_map(literal).collect();
        if starts_from_its_folder(&words) && !self.is_computed {
            let own = FOLDERS_OF_STARTS.iter().flat_map(|folders| folders.find_iter(call)).map(|it| (call, it.end()));
            let changed = CHANGED_FOLDERS.iter().flat_map(|folders| folders.find_iter(text)).map(|it| (text, it.end()));
            for (text_of_folder, at) in own.chain(changed) {
                if !self.is_known_place(text, expression_at(text_of_folder, at)) {
                    self.is_computed = true;
                    return;
                }
            }
        }
    }

    /// Adds the folders and files that the text assigns to environment variables from which programs are loaded, such
    /// as `PATH`. Sets `is_computed` if an assigned value is unknown.
    pub(super) fn add_environment(&mut self, text: &str) {
        for found in ENVIRONMENT.iter().flat_map(|environment| environment.captures_iter(text)) {
            let name = ["a", "b", "c", "d"].iter().find_map(|group| found.name(group)).map_or("", |name| name.as_str());
            let Some(whole) = found.get(0) else { continue };
            // The match ends with the first character of the value.
            let start = text[..whole.end()].char_indices().next_back().map_or(0, |(at, _)| at);
            let value = expression_at(text, start);
            let mut reader = StartReader { rest: value, language: Language::Python };
            let literal = reader.literal().filter(|_| reader.rest.trim().is_empty());
            if let Some(literal) = literal {
                self.add_words(files_of_shell_text(&format!("{name}='{literal}'")));
            } else if self.is_known_place(text, value) && quoted_texts(value).next().is_some() {
                self.words.extend(quoted_texts(value).map(|folder| format!("{SEARCHED}{folder}")));
            } else {
                self.is_computed |= !matches!(value, "None" | "undefined" | "null") && !is_own_value(value);
            }
        }
    }

    /// Returns true if an expression is a known folder: the project, the working folder, the folder of the script, or a
    /// folder in one of them with a literal name (`ROOT / "lib"`). Returns false after [`MAX_CHECKED_FOLDERS`]
    /// expressions.
    fn is_known_place(&mut self, text: &str, expression: &str) -> bool {
        self.checked_folders += 1;
        self.checked_folders <= MAX_CHECKED_FOLDERS && is_known_place(text, expression, &mut BTreeSet::new())
    }
}

/// Returns true if an expression reads an environment variable of this program, such as `os.environ["PATH"]`.
fn is_own_value(value: &str) -> bool {
    let value = value.trim();
    let is_read = ["os.environ", "os.getenv", "process.env"].iter().any(|start| value.starts_with(start));
    is_read && !value.contains(['+', '%']) && quoted_texts(value).all(|text| !text.contains('/'))
}

/// Returns the expression at the byte offset `at`. The expression ends before the next comma, line end or closing
/// bracket.
fn expression_at(text: &str, at: usize) -> &str {
    let rest = text.get(at..).unwrap_or_default();
    let mut reader = StartReader { rest, language: Language::Python };
    let end = reader.skip().map_or(rest.len(), |()| rest.len() - reader.rest.len());
    let expression = rest.get(..end).unwrap_or_default();
    expression.split('\n').next().unwrap_or_default().trim()
}

/// Returns true if an expression is a known folder. `variables` collects the variables whose values were checked or are
/// being checked.
fn is_known_place(text: &str, expression: &str, variables: &mut BTreeSet<String>) -> bool {
    let is_computed = expression.contains(['+', '%', '{', '$']);
    let is_open = quoted_texts(expression).any(|part| part.contains(['*', '\\']));
    if is_computed || is_open || expression.is_empty() {
        return false;
    }
    let mut rest = expression.to_owned();
    for part in quoted_texts(expression) {
        rest = rest.replace(part, "");
    }
    NAMES.iter().flat_map(|names| names.find_iter(&rest)).map(|name| name.as_str()).all(|name| {
        if PLACE_NAMES.contains(&name) || PLACE_FUNCTIONS.contains(&name) || variables.contains(name) {
            return true;
        }
        variables.insert(name.to_owned());
        let assigned = Regex::new(&format!(r"(?m)^\s*(?:const\s+|let\s+|var\s+)?{name}\s*=\s*([^=\n][^\n;]*)"));
        let values: Vec<&str> = assigned
            .iter()
            .flat_map(|assigned| assigned.captures_iter(text))
            .filter_map(|found| found.get(1).map(|value| value.as_str()))
            .collect();
        variables.len() <= MAX_VARIABLES
            && !values.is_empty()
            && values.iter().all(|value| is_known_place(text, value.trim(), variables))
    })
}

/// Returns true if a JavaScript program can execute a computed text as code, for example by `new Function(text)`.
pub(super) fn makes_functions(text: &str) -> bool {
    static FUNCTION: LazyLock<Option<Regex>> = LazyLock::new(|| regex(r"(?:^|[^.\w$])(?:new\s+)?Function\s*\("));
    FUNCTION.iter().flat_map(|function| function.find_iter(text)).any(|call| {
        let arguments = arguments_after(text, call.end() - 1, Language::JavaScript);
        // Bundles contain `Function("return this")`, an old form of `globalThis`.
        !arguments.is_some_and(|(arguments, _)| first(arguments) == Argument::Literal("return this".to_owned()))
    }) || matches(&JAVASCRIPT_CODE, text)
}

/// Matches JavaScript that can execute a text as code in an indirect way: by another name of `eval`, by the constructor
/// of a function, by `_compile` of a module, or by the module `repl`.
static JAVASCRIPT_CODE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex(
        &[
            r"[,(=]\s*eval\s*[),;\n]|\b(?:globalThis|global|window|self)\s*\.\s*eval\b|\._compile\s*\(",
            r"\bconstructor\s*\.\s*constructor\b|\bgetPrototypeOf\s*\(\s*(?:async\s+)?function\b",
            r"\bfunction\b\s*\*?\s*\(\s*\)\s*\{\s*\}\s*\)?\s*\.\s*constructor\b|=>\s*\{\s*\}\s*\)\s*\.\s*constructor\b",
            r#"["'](?:node:)?repl["']"#,
        ]
        .join("|"),
    )
});
