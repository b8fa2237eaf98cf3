//! Finds the programs that a program in Perl, Ruby, Lua or PHP starts, and the files that it loads by computed names.
//! The text is searched for the names of functions. An argument is known if it consists of string literals, the folder
//! of the program, and variables with known values.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use rye_compiler::command_files::{SEARCH_VARIABLES, SEARCHED, files_of_tool, starts_from_its_folder};

use super::{ProgramStarts, end_of, regex};

/// Maximum number of variables that are resolved for one argument, including the variables in their values.
const MAX_VARIABLES: usize = 16;
/// Stands for the computed part of a command.
const PLACEHOLDER: &str = "{computed}";
/// Names that can occur in the expression of a known path: the folder of the program, and functions that join paths.
const PLACE_NAMES: [&str; 25] = [
    "Basename",
    "Bin",
    "Cwd",
    "DIRECTORY_SEPARATOR",
    "File",
    "FindBin",
    "PATH_SEPARATOR",
    "Pathname",
    "RealBin",
    "Spec",
    "__DIR__",
    "__FILE__",
    "__dir__",
    "abs_path",
    "absolute_path",
    "catdir",
    "catfile",
    "dirname",
    "expand_path",
    "get_include_path",
    "join",
    "new",
    "realpath",
    "rel2abs",
    "to_s",
];
/// Modules and classes whose functions load files or start programs. A function of another receiver is a method of the
/// program itself.
const RECEIVERS: [&str; 14] = [
    "CORE", "GLOBAL", "IO", "Kernel", "Object", "Open3", "POSIX", "PTY", "Process", "binding", "io", "os", "package",
    "self",
];
/// Words before a call that begin a statement or an expression.
const CALL_STARTS: [&str; 22] = [
    "and", "begin", "do", "echo", "else", "elsif", "ensure", "eval", "if", "in", "my", "not", "or", "print", "puts",
    "rescue", "return", "then", "unless", "until", "when", "while",
];
/// Modes of a pipe, as the last argument of `popen`.
const MODES: [&str; 6] = ["r", "w", "rb", "wb", "r+", "w+"];
/// Matches a function that loads a file or executes a text.
static LOADS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex(
        r"\b(?:do|require(?:_once|_relative)?|include(?:_once)?|load|autoload|dofile|loadfile|loadstring|loadlib|eval|(?:instance|class|module)_eval|create_function|set_include_path)\b",
    )
});
/// Matches a function that starts a program.
static STARTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex(
        r"\b(?:system|exec|execv|execute|spawn|popen|popen[23]e?|capture[23]e?|pipeline\w*|shell_exec|passthru|proc_open|pcntl_exec|readpipe)\b",
    )
});
/// Matches the output of a command: `` `ls` ``, `%x(ls)`, `qx{ls}`. The capture group that is set holds the command.
static OUTPUTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex(
        r"`([^`]{1,1024})`|(?:%x|\bqx)\s*(?:\(([^)]*)\)|\{([^}]*)\}|\[([^\]]*)\]|/([^/\n]*)/|\|([^|\n]*)\||'([^'\n]*)')",
    )
});
/// Matches `open` with a pipe. If the pipe is the second of three arguments, group 1 holds the command after it. If the
/// pipe is the first or last character of a single text, one of the other groups holds the rest of the text.
static PIPES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex(
        r#"\bopen\b[^;\n]*?["'](?:-\||\|-)["']\s*,([^;\n]*)|\bopen\b[^;"'\n]*"\s*\|([^"\n]*)"|\bopen\b[^;"'\n]*"([^"\n]*)\|\s*""#,
    )
});
/// Matches a change of the folders from which modules are loaded. Group 1 holds the new folder.
static SEARCH_PATHS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex(
        &[
            r"(?m)^\s*use\s+lib\b(?P<a>[^;\n]*)",
            r"\b(?:unshift|push)\s*\(?\s*@INC\s*,(?P<b>[^;\n]*)",
            r"(?:\$LOAD_PATH|\$:)\s*(?:\.\s*(?:unshift|push|concat|prepend|append|insert)\b|<<|\+?=)(?P<c>[^;\n]*)",
            r"\bpackage\s*\.\s*c?path\s*=(?P<d>[^\n]*)",
            r#"\bini_set\s*\(\s*["']include_path["']\s*,(?P<e>[^;\n]*)"#,
        ]
        .join("|"),
    )
});
/// Matches an assignment to one of [`SEARCH_VARIABLES`] in the environment.
static ENVIRONMENT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let names = SEARCH_VARIABLES.join("|");
    regex(
        &[
            format!(r#"\bENV\s*[\[{{]\s*["']?(?:{names})["']?\s*[\]}}]\s*(?:\|\||[.+])?=(?P<a>[^=~\n][^;\n]*)"#),
            format!(r#"\bputenv\s*\(\s*(?P<b>["'](?:{names})=[^;\n]*)"#),
        ]
        .join("|"),
    )
});
/// Matches the earlier value of an environment variable, in code or inserted into a text.
static OWN_VALUES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex(r#"#\{ENV\[['"]\w+['"]\]\}|\$ENV\{['"]?\w+['"]?\}|\bENV\[['"]\w+['"]\]|\bgetenv\(['"]\w+['"]\)"#)
});
static CHANGED_FOLDERS: LazyLock<Option<Regex>> = LazyLock::new(|| regex(r"\bchdir\b\s*:?([^;\n]*)"));
/// Matches a statement of Perl. Its bare words after `require` are modules.
static PERL: LazyLock<Option<Regex>> = LazyLock::new(|| regex(r"(?m)^\s*(?:use|my|our|sub|package)\s+[\w$@%(:]"));
static NAMES: LazyLock<Option<Regex>> = LazyLock::new(|| regex(r"[A-Za-z_]\w*"));

impl ProgramStarts {
    /// Finds the starts of programs and the computed files in a text in Perl, Ruby, Lua or PHP.
    pub(super) fn of_modular(text: &str) -> Self {
        let text = &without_comment_lines(text);
        let is_php = text.contains("<?php");
        let is_perl = !is_php && PERL.iter().any(|perl| perl.is_match(text));
        let program = ModularText { text, is_perl, is_php };
        let mut found = Self { is_computed: program.loads_computed_file(), ..Self::default() };
        let starts = calls_of(&STARTS, text).filter(|(name, at)| program.is_start(name, *at));
        let mut commands: Vec<Vec<String>> = starts.map(|(_, at)| program.command(program.arguments(at))).collect();
        let in_string = |at: usize| {
            let line = text[..at].rsplit('\n').next().unwrap_or_default();
            line.matches('"').count() % 2 == 1
        };
        let outputs = OUTPUTS.iter().flat_map(|outputs| outputs.captures_iter(text));
        for output in outputs.filter(|output| output.get(0).is_some_and(|whole| !in_string(whole.start()))) {
            let command = output.iter().skip(1).flatten().next().map_or("", |command| command.as_str());
            commands.push(vec![with_placeholders(command)]);
        }
        for pipe in PIPES.iter().flat_map(|pipes| pipes.captures_iter(text)) {
            let listed = pipe.get(1).map(|arguments| program.command(arguments.as_str()));
            let texts = pipe.iter().skip(2).flatten().map(|text| vec![with_placeholders(text.as_str())]);
            commands.extend(listed.into_iter().chain(texts));
        }
        let changed = CHANGED_FOLDERS.iter().flat_map(|folders| folders.captures_iter(text));
        let is_open_folder = |folder: &str| !folder.trim().is_empty() && !program.is_known(folder);
        let enters_any = changed.filter_map(|found| found.get(1)).any(|folder| is_open_folder(folder.as_str()));
        for command in &commands {
            let argv: Vec<String> = match command.as_slice() {
                [text] => ["sh", "-c", text].map(str::to_owned).to_vec(),
                words => words.to_vec(),
            };
            let words: Vec<String> =
                command.iter().flat_map(|part| part.split_whitespace()).map(str::to_owned).collect();
            found.is_computed |= enters_any && starts_from_its_folder(&words);
            found.add_words(files_of_tool(&argv, "", None));
        }
        program.add_variables(&mut found);
        found
    }
}

/// The text of a program in Perl, Ruby, Lua or PHP, without the lines that are comments.
struct ModularText<'t> {
    text: &'t str,
    is_perl: bool,
    is_php: bool,
}

impl<'t> ModularText<'t> {
    /// Returns true if the program loads a computed file, executes a computed text, or loads modules from a computed
    /// folder.
    fn loads_computed_file(&self) -> bool {
        let mut paths = SEARCH_PATHS.iter().flat_map(|paths| paths.captures_iter(self.text));
        let is_open = |path: regex::Captures<'_>| {
            let folder = path.iter().skip(1).flatten().next().map_or("", |folder| folder.as_str());
            !self.is_known(&folder.replace("package.cpath", "").replace("package.path", ""))
        };
        paths.any(is_open) || calls_of(&LOADS, self.text).any(|(name, at)| self.is_computed_load(name, at))
    }

    fn is_computed_load(&self, name: &str, at: usize) -> bool {
        let argument = self.arguments(at);
        let is_of_php = |name: &str| {
            let is_file = name.starts_with("include") || (name.starts_with("require") && !name.ends_with("relative"));
            is_file || matches!(name, "create_function" | "eval" | "set_include_path")
        };
        // In Ruby, `include Comparable` adds the methods of a module.
        let is_other = if self.is_php { !is_of_php(name) } else { name.starts_with("include") };
        if is_other {
            return false;
        }
        let is_block = argument.starts_with(['{', '|']) || argument.is_empty();
        if is_block || !self.is_call(name, at, name.ends_with("_eval")) {
            // For example `local load_file = require`.
            return name == "require" && argument.is_empty() && self.before(name, at).trim_end().ends_with('=');
        }
        let is_text = argument.starts_with(['"', '\'', '$', '`']);
        if name == "do" {
            let is_function = |argument: &str| argument.contains("->") || argument.contains('(');
            let names_file = is_text || (self.is_perl && (is_function(argument) || argument == "shift"));
            return names_file && !self.is_known(argument);
        }
        // For example `require Module::Name;` and `require 5.010;`.
        let is_word = argument.chars().all(|c| c.is_alphanumeric() || "_:.".contains(c));
        let is_module = is_word && (self.is_perl || argument.contains("::"));
        let is_version = argument.starts_with(|c: char| c.is_ascii_digit());
        !((name == "require" && is_module) || is_version || self.is_known(argument))
    }

    fn is_start(&self, name: &str, at: usize) -> bool {
        let before = self.before(name, at);
        let is_method = before.ends_with(['.', ':', '>']);
        let next = self.text.get(at..).unwrap_or_default().trim_start_matches([' ', '\t']);
        if next.is_empty() || next.starts_with(['}', ']', ')', ',', ';', '\n']) {
            return false;
        }
        match name {
            "execute" => before.ends_with("os."),
            _ if name.starts_with("capture") || name.starts_with("pipeline") => {
                is_method && self.is_call(name, at, false)
            }
            _ => self.is_call(name, at, false),
        }
    }

    /// Returns the text of the line before a name.
    fn before(&self, name: &str, at: usize) -> &'t str {
        let text = self.text.get(..at - name.len()).unwrap_or_default();
        text.rsplit('\n').next().unwrap_or_default()
    }

    /// Returns true if the name that ends at `at` is a call of the function, and not a word of a text, a key, a
    /// definition or a method. `has_receiver` is true if the function can be a method of every object.
    fn is_call(&self, name: &str, at: usize, has_receiver: bool) -> bool {
        let before = self.before(name, at);
        let behind = self.text.get(at..).unwrap_or_default();
        let next = behind.trim_start_matches([' ', '\t']);
        let is_key = (next.starts_with(':') && !next.starts_with("::"))
            || next.starts_with("=>")
            || (next.starts_with('=') && !next.starts_with("=="));
        if is_key || before.ends_with(['$', '@', '%', '\'', '"', '-', '/', '#']) {
            return false;
        }
        if before.ends_with(['.', ':', '>']) && !before.ends_with("..") && !before.ends_with("=>") {
            let receiver = before.trim_end_matches(['.', ':', '>', '-', '&', '?']);
            let receiver = receiver.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
            return has_receiver || RECEIVERS.contains(&receiver);
        }
        let start = before.trim_end();
        let last = start.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
        if matches!(last, "def" | "sub" | "function") {
            return false;
        }
        // A name beside another word can be part of a message.
        let is_word = |c: char| c.is_alphanumeric() || "_:.".contains(c);
        let after = next.trim_start_matches(is_word).trim_start_matches(' ');
        let after = after.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        if next.starts_with(is_word) && !after.is_empty() && !matches!(after, "if" | "unless" | "or" | "and" | "do") {
            return false;
        }
        behind.starts_with('(')
            || start.is_empty()
            || start.ends_with("<?php")
            || !start.ends_with(|c: char| c.is_alphanumeric() || "_'\".#".contains(c))
            || CALL_STARTS.contains(&last)
    }

    /// Returns the arguments of the function whose name ends at `at`, without parentheses around them.
    fn arguments(&self, at: usize) -> &'t str {
        let rest = self.text.get(at..).unwrap_or_default().trim_start_matches([' ', '\t']);
        let rest = rest.strip_prefix(',').map_or(rest, str::trim_start);
        if let Some(inner) = rest.strip_prefix('(') {
            return inner.get(..end_of(inner, &[])).unwrap_or_default().trim();
        }
        let argument = rest.get(..end_of(rest, &['\n', ';'])).unwrap_or_default();
        let mut end = argument.len();
        for word in [" or ", " and ", " if ", " unless ", " || ", " && ", " do ", " then ", " ? ", " ?>"] {
            end = end.min(argument.find(word).unwrap_or(end));
        }
        argument.get(..end).unwrap_or_default().trim()
    }

    /// Returns the words of a command, with [`PLACEHOLDER`] in place of the computed parts. Options (`chdir: "lib"`),
    /// an environment and the mode of a pipe (`"r"`) are left out.
    fn command(&self, arguments: &str) -> Vec<String> {
        let mut words = Vec::new();
        for argument in split_arguments(arguments) {
            if let Some(list) = argument.strip_prefix('[').and_then(|list| list.strip_suffix(']')) {
                words.extend(self.command(list));
            } else if !(argument.is_empty() || argument.starts_with('{') || is_key(argument)) {
                words.push(template(argument));
            }
            if self.is_php && !words.is_empty() {
                break;
            }
        }
        words.pop_if(|word| MODES.contains(&word.as_str()));
        if words.is_empty() { vec![PLACEHOLDER.to_owned()] } else { words }
    }

    /// Adds the folders that the program assigns to environment variables from which programs are loaded.
    fn add_variables(&self, found: &mut ProgramStarts) {
        for assigned in ENVIRONMENT.iter().flat_map(|environment| environment.captures_iter(self.text)) {
            let value = assigned.iter().skip(1).flatten().next().map_or("", |value| value.as_str()).trim();
            let value = OWN_VALUES.as_ref().map_or_else(|| value.into(), |own| own.replace_all(value, ""));
            let value = value.strip_suffix(')').unwrap_or(&value);
            if value.trim().is_empty() {
                continue;
            }
            if self.is_known(value) {
                let folders = literals(value).flat_map(|(literal, _)| literal.split([':', '=']));
                found.words.extend(folders.filter(|it| !it.is_empty()).map(|folder| format!("{SEARCHED}{folder}")));
            } else {
                found.is_computed = true;
            }
        }
    }

    /// Returns true if each part of an expression is known: a string literal, the folder of the program, or a variable
    /// with known values.
    fn is_known(&self, expression: &str) -> bool {
        self.is_known_with(expression, &mut BTreeSet::new())
    }

    fn is_known_with(&self, expression: &str, variables: &mut BTreeSet<String>) -> bool {
        let expression = expression.trim().trim_end_matches([',', ')']);
        let mut rest = expression.to_owned();
        for (literal, quote) in literals(expression) {
            let inserted: Vec<&str> = interpolations(literal).map(|(_, inserted)| inserted).collect();
            let is_open = quote == '"' && !inserted.is_empty() && !self.is_known_with(&inserted.join(" "), variables);
            if is_open || (quote == '"' && literal.contains('\\')) {
                return false;
            }
            rest = rest.replacen(literal, "", 1);
        }
        if expression.is_empty() || rest.contains(['[', '{', '?', '*', '`', '|', '%']) {
            return false;
        }
        NAMES.iter().flat_map(|names| names.find_iter(&rest)).map(|name| name.as_str()).all(|name| {
            PLACE_NAMES.contains(&name) || variables.contains(name) || self.is_known_variable(name, variables)
        })
    }

    /// Returns true if the text assigns only known values to a variable.
    fn is_known_variable(&self, name: &str, variables: &mut BTreeSet<String>) -> bool {
        variables.insert(name.to_owned());
        let looped = regex(&format!(r"(?:\bfor(?:each)?|\bas)\s+(?:my\s+)?\$?{name}\b|\|[^|\n]*\b{name}\b[^|\n]*\|"));
        let assigned = regex(&format!(r"(?:^|[^\w=!<>~]){name}\s*(?:[.+]|\|\||//)?=\s*([^=~>\s][^\n;]*)"));
        let values: Vec<&str> = assigned
            .iter()
            .flat_map(|assigned| assigned.captures_iter(self.text))
            .filter_map(|found| found.get(1).map(|value| value.as_str()))
            .collect();
        variables.len() <= MAX_VARIABLES
            && !values.is_empty()
            && !looped.is_some_and(|looped| looped.is_match(self.text))
            && values.iter().all(|value| self.is_known_with(value, variables))
    }
}

/// Returns the calls of functions, by their names and the byte offsets behind the names.
fn calls_of<'t>(functions: &'static LazyLock<Option<Regex>>, text: &'t str) -> impl Iterator<Item = (&'t str, usize)> {
    let found = functions.iter().flat_map(move |functions| functions.find_iter(text));
    found.map(|name| (name.as_str(), name.end()))
}

/// Removes the lines that are comments. The first line can name the interpreter, and is a comment as well.
fn without_comment_lines(text: &str) -> String {
    let is_comment = |line: &&str| ["#", "//", "-- "].iter().any(|start| line.trim_start().starts_with(start));
    text.lines().filter(|line| !is_comment(line)).flat_map(|line| [line, "\n"]).collect()
}

/// Splits the arguments of a call at the commas between them.
fn split_arguments(arguments: &str) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), arguments);
    loop {
        let (argument, behind) = rest.split_at(end_of(rest, &[',']));
        found.push(argument.trim());
        let Some(behind) = behind.get(1..) else { return found };
        rest = behind;
    }
}

/// Returns true if an argument is a pair of a key and a value, such as `chdir: "lib"` or `:err => "log"`.
fn is_key(argument: &str) -> bool {
    let is_name = |name: &str| name.chars().all(|c| c.is_alphanumeric() || c == '_');
    let colon = argument.split_once(':').filter(|(_, value)| !value.starts_with(':'));
    argument.contains("=>") || colon.is_some_and(|(name, _)| !name.is_empty() && is_name(name))
}

/// Returns the string literals in an expression, without their quotes, and the quotes.
fn literals(expression: &str) -> impl Iterator<Item = (&str, char)> {
    let mut rest = expression;
    std::iter::from_fn(move || {
        let (start, quote) = rest.char_indices().find(|(_, c)| matches!(c, '"' | '\''))?;
        let inner = rest.get(start + 1..)?;
        let mut escaped = false;
        let end = inner.find(|c| {
            let is_end = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            is_end
        })?;
        rest = inner.get(end + 1..)?;
        Some((inner.get(..end)?, quote))
    })
}

/// Returns the expressions that a string literal inserts, each with its place in the literal.
fn interpolations(literal: &str) -> impl Iterator<Item = (std::ops::Range<usize>, &str)> {
    static INSERTED: LazyLock<Option<Regex>> =
        LazyLock::new(|| regex(r"#\{([^}]*)\}|\{\$([^}]*)\}|\$\{?(\w[\w:]*)\}?|@\{?([\w\[][^}\s]*)\}?"));
    let found = INSERTED.iter().flat_map(move |inserted| inserted.captures_iter(literal));
    found.filter_map(|found| {
        Some((found.get(0)?.range(), found.iter().skip(1).flatten().next().map_or("", |inner| inner.as_str())))
    })
}

/// Replaces the inserted expressions of a text by [`PLACEHOLDER`].
fn with_placeholders(text: &str) -> String {
    let plain = |text: &str| text.replace('{', "{{").replace('}', "}}");
    let (mut replaced, mut end) = (String::new(), 0);
    for (place, _) in interpolations(text) {
        replaced.push_str(&plain(text.get(end..place.start).unwrap_or_default()));
        replaced.push_str(PLACEHOLDER);
        end = place.end;
    }
    replaced.push_str(&plain(text.get(end..).unwrap_or_default()));
    replaced
}

/// Returns the text that an expression joins, with [`PLACEHOLDER`] in place of the computed parts.
fn template(expression: &str) -> String {
    let (mut joined, mut rest) = (String::new(), expression);
    let is_computed = |text: &str| text.contains(|c: char| c.is_alphanumeric() || "_$@".contains(c));
    for (literal, quote) in literals(expression) {
        let quoted = format!("{quote}{literal}{quote}");
        let (before, behind) = rest.split_once(&quoted).unwrap_or((rest, ""));
        joined.push_str(if is_computed(before) { PLACEHOLDER } else { "" });
        joined.push_str(&if quote == '"' {
            with_placeholders(literal)
        } else {
            literal.replace('{', "{{").replace('}', "}}")
        });
        rest = behind;
    }
    joined.push_str(if is_computed(rest) { PLACEHOLDER } else { "" });
    joined
}
