//! Detection of code that can start programs, in the arguments of programs such as `awk` and `gdb`. The language of
//! this code is not a shell language, so the names of the files that the code runs cannot be determined from its text.

use super::{EXPANSION, INTERPRETERS, READERS, SHELLS, VALUE_START, name_of, reads_shell_text};

/// Names of `awk` programs. Code in their arguments can start other programs.
const AWKS: [&str; 3] = ["awk", "gawk", "mawk"];
/// Names of editors, debuggers and macro processors, whose commands can start programs. The names have no digits at
/// their end, like the results of [`name_of`]: `m` stands for `m4`.
const COMMAND_READERS: [&str; 18] = [
    "dc", "ed", "emacs", "ex", "expect", "gdb", "gnuplot", "irb", "lldb", "m", "nvim", "octave", "R", "red", "rvim",
    "vi", "view", "vim",
];
/// Names of functions and commands that start another program, in the languages of programs such as `awk` and `m4`.
const STARTERS: [&str; 12] = [
    "call_external",
    "esyscmd",
    "exec",
    "execl",
    "execv",
    "execvp",
    "load_extension",
    "popen",
    "shell",
    "spawn",
    "syscmd",
    "system",
];
/// Environment variables that name folders or files from which a program starts or loads code.
pub const SEARCH_VARIABLES: [&str; 33] = [
    "AWKPATH",
    "BASH_ENV",
    "CDPATH",
    "CLASSPATH",
    "EDITOR",
    "ENV",
    "GEM_PATH",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_EDITOR",
    "GIT_EXEC_PATH",
    "GIT_PAGER",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "JAVA_TOOL_OPTIONS",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LUA_CPATH",
    "LUA_PATH",
    "MAKEFILES",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PAGER",
    "PATH",
    "PERL5LIB",
    "PERL5OPT",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "RUBYLIB",
    "RUBYOPT",
    "VISUAL",
];

/// The `SEARCH_VARIABLES` whose value is the path of a script that a shell executes when the shell starts.
pub const FILES_OF_SHELLS: [&str; 2] = ["BASH_ENV", "ENV"];

/// Returns the name and the value if the word assigns a value to one of the `SEARCH_VARIABLES`.
pub fn search_variable(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let name = name.trim_end_matches('+');
    SEARCH_VARIABLES.contains(&name).then_some((name, value))
}

/// Returns true if an argument of a command is code that can start a program, in a language other than a shell's.
pub fn starts_programs(words: &[String]) -> bool {
    let Some(program) = words.first() else { return false };
    if READERS.contains(&program.as_str()) {
        return false;
    }
    // An argument that starts with a placeholder's value is data, not code.
    let is_own_text = |argument: &&String| is_text(argument) && !argument.starts_with(VALUE_START);
    let is_known = |(at, word): (usize, &String)| {
        let mut arguments = words.get(at + 1..).unwrap_or_default().iter();
        let name = name_of(word);
        if AWKS.contains(&name) {
            arguments.filter(is_own_text).any(|argument| awk_starts_programs(argument))
        } else if name == "sed" {
            let mut scripts = sed_scripts(arguments.as_slice()).into_iter();
            scripts.any(|script| !script.starts_with(VALUE_START) && sed_starts_programs(script))
        } else if name == "sqlite" {
            let is_dot_command = |argument: &String| argument.lines().any(|line| line.trim_start().starts_with('.'));
            arguments.filter(is_own_text).any(is_dot_command)
        } else {
            let is_open = |argument: &String| argument.contains([VALUE_START, EXPANSION]);
            COMMAND_READERS.contains(&name) && arguments.any(|argument| is_text(argument) || is_open(argument))
        }
    };
    // Only the text before the first placeholder's value is checked here. The text after it is checked when the files
    // of every call are listed, because placeholders then have no values.
    let is_code = |argument: &String| {
        let own = argument.split(VALUE_START).next().unwrap_or_default();
        own.starts_with("--eval=") || (is_text(own) && text_starts_programs(own))
    };
    let follows_eval = |pair: &[String]| matches!(pair, [option, _] if option == "--eval");
    words.iter().enumerate().any(is_known)
        || (!reads_shell_text(words) && (words.iter().skip(1).any(is_code) || words.windows(2).any(follows_eval)))
}

/// Returns true if an argument is probably code or other text, not the name of a file: it contains white space or a
/// character that is rare in file names. A filled-in value of a placeholder counts as part of the argument.
fn is_text(argument: &str) -> bool {
    argument.contains(|c: char| c.is_whitespace() || "!;&|<>()$`'\"\\@".contains(c))
}

/// Returns true if a text seems to start a program. The text must contain one of these:
///
/// - the name of a shell or an interpreter at a place where a command can start,
/// - a call of a function that starts programs, such as `system(…)`,
/// - a directive that starts programs, such as `.shell …` of a database,
/// - a command after an exclamation mark, as in an alias of git.
fn text_starts_programs(text: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || "_./-+".contains(c);
    let mut rest = text;
    let mut before = None;
    while let Some(c) = rest.chars().next() {
        let length = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        if length == 0 {
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
            let is_start = before.is_none_or(|before: char| "=;'\"\\".contains(before));
            if c == '!' && is_start && rest.starts_with(|c: char| !c.is_whitespace() && c != '=') {
                return true;
            }
            // A space does not change `before`, the last character before a name.
            if !c.is_whitespace() || c == '\n' {
                before = Some(c);
            }
            continue;
        }
        let (name, behind) = rest.split_at(length);
        let begins_command = before.is_none_or(|before| !is_name(before));
        let has_argument = behind.starts_with(|c: char| c.is_whitespace() || "('\"[".contains(c));
        let last = name.rsplit(['.', '/']).next().unwrap_or(name);
        let launches = SHELLS.contains(&name_of(name))
            || INTERPRETERS.contains(&name_of(name))
            || (matches!(name, "." | "source") && names_path(behind));
        let calls = STARTERS.contains(&last) && behind.starts_with('(');
        // `$(shell …)` of make, `.shell …` of a database
        let is_directive = STARTERS.contains(&last) && has_argument && (before == Some('(') || name.starts_with('.'));
        if calls || is_directive || (has_argument && begins_command && launches) {
            return true;
        }
        before = name.chars().last();
        rest = behind;
    }
    false
}

/// Returns true if the next word of a text is a path with a folder. Callers use this to distinguish the shell command
/// `.` from a dot in another language, such as `. | length` of `jq`.
fn names_path(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default();
    word.split_once('/').is_some_and(|(_, name)| name.starts_with(|c: char| !c.is_ascii_digit()))
}

/// Returns true if awk code can start a program: by `system`, by a pipe, or by a function whose name is computed.
fn awk_starts_programs(code: &str) -> bool {
    let code = code.replace("||", "").replace(VALUE_START, "");
    code.contains(['|', '@']) || code.contains("system")
}

/// Returns the scripts in the arguments of `sed`.
fn sed_scripts(arguments: &[String]) -> Vec<&str> {
    let (mut scripts, mut first, mut follows, mut has_file) = (Vec::new(), None, false, false);
    for argument in arguments {
        let argument = argument.as_str();
        if std::mem::take(&mut follows) {
            scripts.push(argument);
        } else if let Some(script) = argument.strip_prefix("--expression=") {
            scripts.push(script);
        } else if argument == "--expression" {
            follows = true;
        } else if let Some(short) = argument.strip_prefix('-').filter(|short| !short.starts_with('-')) {
            has_file |= short.starts_with('f');
            if let Some((_, script)) = short.split_once('e') {
                follows = script.is_empty();
                scripts.extend((!script.is_empty()).then_some(script));
            }
        } else if argument.starts_with("--file") {
            has_file = true;
        } else if !argument.starts_with("--") {
            first = first.or(Some(argument));
        }
    }
    if scripts.is_empty() && !has_file {
        scripts.extend(first);
    }
    scripts
}

/// Returns true if a script of `sed` executes a command, by the command `e` or the flag `e`, or if its syntax is
/// unknown.
fn sed_starts_programs(script: &str) -> bool {
    let script: String = script.chars().filter(|c| *c != VALUE_START).collect();
    SedScript { rest: script.chars().collect::<Vec<_>>().into() }.starts_programs().unwrap_or(true)
}

struct SedScript {
    rest: std::collections::VecDeque<char>,
}

/// Error for a `sed` script that ends inside a command or contains an unknown command.
struct UnknownSyntax;

impl SedScript {
    fn starts_programs(&mut self) -> Result<bool, UnknownSyntax> {
        while let Some(command) = self.command()? {
            match command {
                'e' => return Ok(true),
                's' => {
                    let delimiter = self.take()?;
                    self.skip_past(delimiter)?;
                    self.skip_past(delimiter)?;
                    while let Some(flag) = self.rest.pop_front_if(|c| c.is_alphanumeric()) {
                        match flag {
                            'e' => return Ok(true),
                            'w' => self.skip_line(),
                            _ => {}
                        }
                    }
                }
                'y' => {
                    let delimiter = self.take()?;
                    self.skip_past(delimiter)?;
                    self.skip_past(delimiter)?;
                }
                'a' | 'i' | 'c' | 'r' | 'R' | 'w' | 'W' | '#' => self.skip_line(),
                ':' | 'b' | 't' | 'T' | 'v' => {
                    while self.rest.pop_front_if(|c| !matches!(c, ';' | '\n' | '}')).is_some() {}
                }
                'q' | 'Q' | 'l' | 'L' | '=' | 'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'p' | 'P' | 'x' | 'z'
                | 'F' => while self.rest.pop_front_if(|c| c.is_ascii_digit() || *c == ' ').is_some() {},
                _ => return Err(UnknownSyntax),
            }
        }
        Ok(false)
    }

    /// Reads the next command of the `sed` script: skips the addresses and returns the letter of the command. `None` at
    /// the end of the script.
    fn command(&mut self) -> Result<Option<char>, UnknownSyntax> {
        while let Some(c) = self.rest.pop_front() {
            match c {
                '/' => self.skip_past('/')?,
                '\\' => {
                    let delimiter = self.take()?;
                    self.skip_past(delimiter)?;
                }
                c if c.is_whitespace() || c.is_ascii_digit() || ";{}$,!~+IM".contains(c) => {}
                // An expansion can be an address or a number.
                EXPANSION => {}
                c => return Ok(Some(c)),
            }
        }
        Ok(None)
    }

    fn take(&mut self) -> Result<char, UnknownSyntax> {
        self.rest.pop_front().ok_or(UnknownSyntax)
    }

    fn skip_past(&mut self, delimiter: char) -> Result<(), UnknownSyntax> {
        loop {
            match self.take()? {
                c if c == delimiter => return Ok(()),
                '\\' => {
                    self.take()?;
                }
                _ => {}
            }
        }
    }

    /// Skips the rest of the line. A line that ends in a backslash continues in the next line.
    fn skip_line(&mut self) {
        let mut before = ' ';
        while let Some(c) = self.rest.pop_front() {
            if c == '\n' && before != '\\' {
                return;
            }
            before = c;
        }
    }
}
