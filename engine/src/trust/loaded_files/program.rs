//! A program whose text is searched for the files that it loads, and the language of the program.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// File extensions of programs that an interpreter executes.
pub(super) const PROGRAM_ENDINGS: [&str; 16] =
    ["py", "js", "mjs", "cjs", "ts", "mts", "cts", "sh", "bash", "zsh", "rb", "pl", "pm", "lua", "php", "mk"];
/// File extensions of languages that load modules by their names, other than Python and JavaScript.
const MODULAR_ENDINGS: [&str; 5] = ["pl", "pm", "rb", "lua", "php"];
/// Names of files from which a build tool or npm takes commands.
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
/// The settings file of npm. The settings can name the shell that runs the scripts of a package.
const SETTINGS_OF_NPM: &str = ".npmrc";
/// The file that describes a JavaScript package.
pub(super) const PACKAGE_FILE: &str = "package.json";
/// Names of folders with installed packages. The programs in these folders are not searched.
pub(super) const PACKAGE_FOLDERS: [&str; 3] = ["node_modules", "site-packages", "dist-packages"];

/// The language of a program. The language determines how the text of the program is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Language {
    Python,
    JavaScript,
    /// A `package.json`, which names the files of a package and contains scripts for the shell.
    Package,
    /// A build file. Most files that a build file names are sources and outputs, so only those that are programs count.
    Build,
    /// Perl, Ruby, Lua and PHP, which load modules by their names.
    Modular,
    /// Shell scripts, and programs of other languages.
    Shell,
}

impl Language {
    /// Returns true if programs in this language mainly start other programs.
    pub(super) fn starts_programs(self) -> bool {
        match self {
            Self::Shell | Self::Modular | Self::Build | Self::Package => true,
            Self::Python | Self::JavaScript => false,
        }
    }

    /// Returns the language of the scripts that the program `name` executes; `None` if `name` is not a known
    /// interpreter.
    pub(super) fn of_interpreter(name: &str) -> Option<Self> {
        match name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') {
            "python" | "pypy" => Some(Self::Python),
            "bun" | "deno" | "node" | "nodejs" | "tsx" => Some(Self::JavaScript),
            "perl" | "ruby" | "lua" | "luajit" | "php" => Some(Self::Modular),
            "ash" | "bash" | "dash" | "ksh" | "mksh" | "sh" | "zsh" | "source" | "." => Some(Self::Shell),
            _ => None,
        }
    }

    pub(super) fn of(file: &Path, text: &str) -> Self {
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

/// A program whose text is searched for the files that the program loads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::trust) struct LoadingProgram {
    pub(super) file: PathBuf,
    /// The folder of the script that was started. A Python program, and the modules that it imports, import modules
    /// from this folder.
    pub(super) main_folder: PathBuf,
    /// True for the script of a tool. `rye` runs such a script without compiled modules, and puts its folder at the end
    /// of Python's search path.
    pub(super) is_tool: bool,
    /// The language of the interpreter that the command names. `None` if the language follows from the name and the
    /// first line of the file.
    pub(super) language: Option<Language>,
    /// The code, if a command passes it to the interpreter as an argument. `None` if the code is the text of `file`.
    pub(super) code: Option<String>,
}

/// File name that stands for code in an argument of an interpreter.
const CODE_NAME: &str = "-c";

impl LoadingProgram {
    /// Creates the program for the file `file`, which a command starts. `None` if `file` is not a program, or lies in a
    /// folder with installed packages.
    pub fn of_command(file: &Path) -> Option<Self> {
        Self::new(file, false).filter(|program| is_program(&program.file))
    }

    /// Creates the program for the script `file`, which a command passes to the program `interpreter`. `None` if `file`
    /// is not a file, or lies in a folder with installed packages.
    pub fn of_interpreter(interpreter: &str, file: &Path) -> Option<Self> {
        let language = Language::of_interpreter(interpreter);
        Self::new(file, false).filter(|program| program.file.is_file()).map(|program| Self { language, ..program })
    }

    /// Creates the program for code in an argument of `interpreter`, which runs in `folder`. `None` if `interpreter` is
    /// not a known interpreter, or if `folder` lies in a folder with installed packages.
    pub fn of_code(interpreter: &str, code: &str, folder: &Path) -> Option<Self> {
        let language = Some(Language::of_interpreter(interpreter)?);
        Self::new(&folder.join(CODE_NAME), false).map(|program| Self {
            language,
            code: Some(code.to_owned()),
            ..program
        })
    }

    /// Creates the program for the script `file` of a tool. `None` if `file` lies in a folder with installed packages.
    pub fn of_tool(file: &Path) -> Option<Self> {
        Self::new(file, true)
    }

    /// Returns the path of the program; `None` for code in an argument.
    pub fn path(&self) -> Option<&Path> {
        self.code.is_none().then_some(&self.file)
    }

    fn new(file: &Path, is_tool: bool) -> Option<Self> {
        let main_folder = file.parent()?.to_path_buf();
        let is_package = file.iter().any(|part| PACKAGE_FOLDERS.iter().any(|folder| part == *folder));
        (!is_package).then(|| Self { file: file.to_path_buf(), main_folder, is_tool, language: None, code: None })
    }

    /// Creates the program for the file `file`, which this program loads or starts. `language` is the language of this
    /// program. `None` if `file` lies in a folder with installed packages.
    pub(super) fn loaded(&self, file: &Path, language: Language) -> Option<Self> {
        // A module that Python imports uses the folder of the started script. Any other program uses its own folder.
        let imports = language == Language::Python;
        let loaded = Self::new(file, self.is_tool && imports)?;
        Some(if imports { Self { main_folder: self.main_folder.clone(), ..loaded } } else { loaded })
    }
}

/// Replaces JavaScript escapes by the characters that they represent, if a path can contain these characters:
/// `"./\u0068\.mjs"` becomes `"./h.mjs"`. Removes escaped line ends. Other escapes stay unchanged.
pub(super) fn without_escapes(text: &str) -> String {
    let is_plain = |c: &char| c.is_alphanumeric() || "_./@#-".contains(*c);
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        plain.push_str(before);
        let replaced = escaped_character(escape).filter(|(value, _)| is_plain(value) || *value == '\n');
        let length = replaced.map_or_else(|| escape.chars().next().map_or(0, char::len_utf8), |(_, length)| length);
        let (own, behind) = escape.split_at_checked(length).unwrap_or((escape, ""));
        match replaced {
            // An escaped line end.
            Some(('\n', _)) => {}
            Some((value, _)) => plain.push(value),
            None => plain.extend(['\\'].into_iter().chain(own.chars())),
        }
        rest = behind;
    }
    plain.push_str(rest);
    plain
}

/// Returns the character that a JavaScript escape represents, and the length in bytes of the escape after the
/// backslash. `escape` is the text after the backslash. Returns a line feed for an escaped line end. `None` for control
/// characters such as `\n`, and for an invalid escape.
fn escaped_character(escape: &str) -> Option<(char, usize)> {
    let digits =
        |digits: &str, radix, length| Some((char::from_u32(u32::from_str_radix(digits, radix).ok()?)?, length));
    let first = escape.chars().next()?;
    match first {
        'u' if escape.starts_with("u{") => {
            let (code, _) = escape.get(2..)?.split_once('}')?;
            digits(code, 16, code.len() + 3)
        }
        'u' => digits(escape.get(1..5)?, 16, 5),
        'x' => digits(escape.get(1..3)?, 16, 3),
        '0'..='7' => {
            let length = escape.bytes().take(3).take_while(|digit| (b'0'..=b'7').contains(digit)).count();
            // Three digits stand for one character only up to `\377`.
            let length = if length == 3 && first > '3' { 2 } else { length };
            digits(escape.get(..length)?, 8, length)
        }
        '\r' if escape.starts_with("\r\n") => Some(('\n', 2)),
        '\n' | '\r' | '\u{2028}' | '\u{2029}' => Some(('\n', first.len_utf8())),
        'b' | 'f' | 'n' | 'r' | 't' | 'v' => None,
        other => Some((other, other.len_utf8())),
    }
}

fn is_build_file(file: &Path) -> bool {
    file.file_name().is_some_and(|name| BUILD_FILES.iter().any(|one| name == *one))
}

pub(super) fn has_program_ending(file: &Path) -> bool {
    file.extension().is_some_and(|ending| PROGRAM_ENDINGS.iter().any(|one| ending == *one))
}

/// Returns true if a file is a program: by its extension, as a build file or `package.json`, or because it is
/// executable.
pub(super) fn is_program(file: &Path) -> bool {
    has_program_ending(file)
        || is_build_file(file)
        || file.ends_with(PACKAGE_FILE)
        || fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Returns true if a file starts with `#!`, which names its interpreter.
pub(super) fn is_script(file: &Path) -> bool {
    let mut start = [0; 2];
    File::open(file).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"#!"
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_letters_are_replaced_and_other_escapes_stay() {
        for (text, plain) in [
            (r#"import "./\u0068.mjs""#, r#"import "./h.mjs""#),
            (r#"import "./\x68\u{68}\u{000068}\150\.mjs""#, r#"import "./hhhh.mjs""#),
            ("import \"./li\\\nb.mjs\"", "import \"./lib.mjs\""),
            ("import \"./li\\\r\nb.mjs\"", "import \"./lib.mjs\""),
            (r#""\u0022 \" \\ \\u0068 \n \u{110000} \u00""#, r#""\u0022 \" \\ \\u0068 \n \u{110000} \u00""#),
            (r"r\u0065quire(x) \1507 \477", r"require(x) h7 \477"),
            ("a\\", "a\\"),
            ("\\é", "é"),
        ] {
            assert_eq!(without_escapes(text), plain, "{text}");
        }
    }
}
