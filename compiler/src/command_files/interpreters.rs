//! Finds the program that an interpreter or a shell executes, in the arguments of its command. Short options are read
//! letter by letter, as interpreters do, so that `-uc` contains `-c`.

use super::{CODE_OPTIONS, EXPANSION, INTERPRETERS, SHELL_OPTIONS_WITH_VALUE, SHELLS, VALUE_START, name_of};

/// Options with which an interpreter prints a text and executes no program.
const INFORMATION_OPTIONS: [&str; 5] = ["--help", "--version", "-V", "-h", "-version"];
/// Letters of options with a value, for each interpreter. The value is the rest of the word, or the next word.
const VALUE_LETTERS: [(&str, &str); 6] = [
    ("python", "cmQWX"),
    ("pypy", "cmQWX"),
    ("perl", "eEIMmFiDxCVdt"),
    ("ruby", "eIrCEFKWxiT"),
    ("lua", "el"),
    ("php", "BEFRSTcdfrtz"),
];
/// Letters of options whose value is code, for each interpreter.
const CODE_LETTERS: [(&str, &str); 8] = [
    ("python", "c"),
    ("pypy", "c"),
    ("perl", "eE"),
    ("ruby", "e"),
    ("lua", "e"),
    ("php", "BERr"),
    ("node", "ep"),
    ("nodejs", "ep"),
];
/// The usual file extensions of scripts, for each interpreter.
const USUAL_ENDINGS: [(&str, &[&str]); 9] = [
    ("python", &["py"]),
    ("pypy", &["py"]),
    ("perl", &["pl", "pm"]),
    ("ruby", &["rb"]),
    ("lua", &["lua"]),
    ("luajit", &["lua"]),
    ("php", &["php"]),
    ("node", &["js", "mjs", "cjs", "ts", "mts", "cts"]),
    ("nodejs", &["js", "mjs", "cjs", "ts", "mts", "cts"]),
];
const AWKS: [&str; 4] = ["awk", "gawk", "mawk", "nawk"];
/// Programs and reserved words that execute the command after them unchanged, in the same folder and for the same user.
/// A number before the command is a duration (`timeout 5`).
const PLAIN_WRAPPERS: [&str; 11] =
    ["!", "command", "do", "else", "env", "exec", "nice", "nohup", "setsid", "then", "timeout"];
/// Letters of options that do not change where Python finds its code.
const HARMLESS_PYTHON_LETTERS: &str = "bBdEIOPqsSuv";
/// Starts of options that do not change where node finds its code.
const HARMLESS_NODE_OPTIONS: [&str; 5] =
    ["--enable-source-maps", "--input-type=", "--no-", "--trace-", "--unhandled-rejections="];
/// Options of node that are followed by code.
const NODE_CODE_OPTIONS: [&str; 5] = ["--eval", "--print", "-e", "-p", "-pe"];
/// The usual file extensions of shell scripts.
const SHELL_ENDINGS: [&str; 3] = ["sh", "bash", "zsh"];

/// The source of the program that an interpreter executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramSource<'w> {
    File(&'w str),
    /// A Python module by its name (`-m`).
    Module(&'w str),
    /// Code in an argument: its position in the arguments of the interpreter.
    Code {
        at: usize,
    },
    StandardInput,
    /// The interpreter only prints a text, such as its version.
    Information,
}

/// Returns the source of the program that `interpreter` executes with these arguments. `interpreter` is the name of a
/// shell or of an interpreter, without its version.
pub fn source_of<'w>(interpreter: &str, arguments: &[&'w str]) -> ProgramSource<'w> {
    let is_shell = SHELLS.contains(&interpreter);
    let is_python = matches!(interpreter, "python" | "pypy");
    let letters_of = |table: &[(&str, &'static str)]| {
        table.iter().find(|(name, _)| *name == interpreter).map_or("", |(_, letters)| letters)
    };
    let (value_letters, code_letters) = (letters_of(&VALUE_LETTERS), letters_of(&CODE_LETTERS));
    // Finds the first word after an option that is not an option itself.
    let code_behind = |option: usize| {
        let is_code = |word: &&str| !word.starts_with(['-', '+']);
        let behind = arguments.iter().skip(option + 1).position(is_code);
        ProgramSource::Code { at: option + 1 + behind.unwrap_or_default() }
    };
    let mut rest = arguments.iter();
    while let Some(word) = rest.next().copied() {
        let place = arguments.len() - rest.len() - 1;
        if matches!(word, "-" | "/dev/stdin") {
            return ProgramSource::StandardInput;
        }
        if SHELL_OPTIONS_WITH_VALUE.contains(&word) {
            rest.next();
            continue;
        }
        if interpreter == "deno" && word == "eval" {
            return code_behind(place);
        }
        let is_last = rest.as_slice().is_empty();
        if word == "--version" || (!is_shell && (INFORMATION_OPTIONS.contains(&word) || (word == "-v" && is_last))) {
            return ProgramSource::Information;
        }
        let is_code = CODE_OPTIONS.iter().any(|option| word.split('=').next() == Some(*option));
        if is_code && !is_shell && !(is_python && matches!(word, "-E" | "-e" | "-p" | "-r")) {
            return if word.contains('=') { ProgramSource::Code { at: place } } else { code_behind(place) };
        }
        if word.starts_with("--") || word.starts_with('+') {
            continue;
        }
        let Some(letters) = word.strip_prefix('-') else { return ProgramSource::File(word) };
        if is_shell {
            if letters.contains('c') {
                return code_behind(place);
            }
            if letters.contains('s') {
                return ProgramSource::StandardInput;
            }
            // `-euo pipefail`
            if letters.contains(['o', 'O']) {
                rest.next();
            }
            continue;
        }
        let decisive = letters
            .char_indices()
            .find(|(_, letter)| value_letters.contains(*letter) || code_letters.contains(*letter));
        if let Some((at, letter)) = decisive {
            let joined = letters.get(at + letter.len_utf8()..).filter(|value| !value.is_empty());
            if code_letters.contains(letter) {
                return if joined.is_some() { ProgramSource::Code { at: place } } else { code_behind(place) };
            }
            if is_python {
                let value = joined.or_else(|| rest.next().copied()).unwrap_or_default();
                if letter == 'm' {
                    return ProgramSource::Module(value);
                }
            } else if joined.is_none() && matches!((interpreter, letter), ("php", 'f')) {
                return rest.next().map_or(ProgramSource::StandardInput, |file| ProgramSource::File(file));
            }
        }
    }
    ProgramSource::StandardInput
}

/// Code in an argument of an interpreter. The command contains the whole text of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeArgument<'w> {
    pub interpreter: &'w str,
    pub code: &'w str,
    /// The position of the code in the words of the command.
    pub at: usize,
}

/// Returns the code that a command passes to Python or node, if the interpreter certainly executes this code and nothing
/// else: `python3 -c CODE`, `node -e CODE`. With other options, or if a program of the project could be the interpreter,
/// returns `None`.
pub fn code_argument(words: &[String]) -> Option<CodeArgument<'_>> {
    let is_wrapper = |word: &String| PLAIN_WRAPPERS.contains(&word.as_str()) || word.parse::<u32>().is_ok();
    let start = words.iter().position(|word| !is_wrapper(word))?;
    let program = words.get(start)?;
    let is_system = ["/usr/bin/", "/bin/"].iter().any(|folder| program.starts_with(folder));
    if program.contains('/') && !is_system {
        return None;
    }
    let interpreter = name_of(program);
    let rest = words.get(start + 1..)?;
    let is_python = interpreter == "python";
    let is_option = |word: &String| match word.strip_prefix('-').and_then(|letters| letters.strip_suffix('c')) {
        Some(letters) if is_python => letters.chars().all(|letter| HARMLESS_PYTHON_LETTERS.contains(letter)),
        Some(_) | None => !is_python && NODE_CODE_OPTIONS.contains(&word.as_str()),
    };
    let option = rest.iter().position(is_option)?;
    let is_harmless = |word: &String| {
        let letters = word.strip_prefix('-').filter(|_| is_python);
        letters.is_some_and(|letters| letters.chars().all(|letter| HARMLESS_PYTHON_LETTERS.contains(letter)))
            || (!is_python && HARMLESS_NODE_OPTIONS.iter().any(|known| word.starts_with(known)))
    };
    let code = rest.get(option + 1)?;
    let behind = rest.get(option + 2..).unwrap_or_default();
    // Node reads options after the code too: `node -e 1 -e 2` executes `2`.
    let is_last = is_python || !behind.iter().any(|word| word.starts_with('-'));
    let is_node = matches!(interpreter, "node" | "nodejs");
    let is_closed = !code.contains([VALUE_START, EXPANSION]) && (is_python || !code.starts_with('-'));
    let is_known = (is_python || is_node) && rest.iter().take(option).all(is_harmless) && is_last && is_closed;
    is_known.then_some(CodeArgument { interpreter, code, at: start + option + 2 })
}

/// Returns each shell and interpreter of a command, by its position and name, with the source of its program.
pub fn started_programs(words: &[String]) -> Vec<(usize, &str, ProgramSource<'_>)> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let started = words.iter().enumerate().filter_map(|(at, word)| {
        let name = name_of(word);
        let is_known = SHELLS.contains(&name) || INTERPRETERS.contains(&name);
        is_known.then(|| (at, name, source_of(name, words.get(at + 1..).unwrap_or_default())))
    });
    started.collect()
}

/// Returns the positions of `awk` and of its code in the words of a command; `None` if the command has no `awk`, or if
/// `awk` reads its code from a file.
pub fn awk_program(words: &[String]) -> Option<(usize, usize)> {
    let is_awk = |word: &String| AWKS.contains(&name_of(word));
    let program = words.iter().position(is_awk)?;
    let mut at = program + 1;
    while let Some(option) = words.get(at).and_then(|word| word.strip_prefix('-')) {
        match option {
            // `-F :`, `-v name=value`
            "F" | "v" => at += 2,
            "-" => return Some((program, at + 1)),
            _ if option.starts_with('f') || option.starts_with("-file") => return None,
            _ => at += 1,
        }
    }
    Some((program, at))
}

/// Returns true if a file does not have a usual extension of the scripts of `interpreter`.
pub fn has_other_ending(path: &str, interpreter: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    if SHELLS.contains(&interpreter) {
        return !SHELL_ENDINGS.contains(&ending);
    }
    !USUAL_ENDINGS.iter().any(|(name, endings)| *name == interpreter && endings.contains(&ending))
}
