//! A program whose text is read for the files that it loads, and its language.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Endings of files that an interpreter executes.
pub(super) const PROGRAM_ENDINGS: [&str; 16] =
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
/// The file that describes a JavaScript package.
pub(super) const PACKAGE_FILE: &str = "package.json";
/// Folders with installed packages. The programs in them are not read.
pub(super) const PACKAGE_FOLDERS: [&str; 3] = ["node_modules", "site-packages", "dist-packages"];

/// The language of a program, which decides what names in its text load files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Language {
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
    pub(super) fn starts_programs(self) -> bool {
        match self {
            Self::Shell | Self::Modular | Self::Build | Self::Package => true,
            Self::Python | Self::JavaScript => false,
        }
    }

    /// The language of the scripts that an interpreter executes; `None` for an interpreter of another language.
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

/// A program whose text is read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::trust) struct LoadingProgram {
    pub(super) file: PathBuf,
    /// The folder of the script that a call starts. A Python program imports modules from it.
    pub(super) main_folder: PathBuf,
    /// True for the script of a tool. Such a script imports from sources only, and from its folder last.
    pub(super) is_tool: bool,
    /// The language of the interpreter that the command names. `None` if the file itself tells its language.
    pub(super) language: Option<Language>,
    /// The code in an argument of the interpreter. `None` if the file is read.
    pub(super) code: Option<String>,
}

/// Name in place of a file for code in an argument.
const CODE_NAME: &str = "-c";

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

    /// The code in an argument of an interpreter, which starts in `folder`. `None` for an interpreter of a language that is
    /// not read.
    pub fn of_code(interpreter: &str, code: &str, folder: &Path) -> Option<Self> {
        let language = Some(Language::of_interpreter(interpreter)?);
        Self::new(&folder.join(CODE_NAME), false).map(|program| Self {
            language,
            code: Some(code.to_owned()),
            ..program
        })
    }

    /// The script `file` of a tool.
    pub fn of_tool(file: &Path) -> Option<Self> {
        Self::new(file, true)
    }

    /// The path of the program; `None` for code in an argument.
    pub fn path(&self) -> Option<&Path> {
        self.code.is_none().then_some(&self.file)
    }

    fn new(file: &Path, is_tool: bool) -> Option<Self> {
        let main_folder = file.parent()?.to_path_buf();
        let is_package = file.iter().any(|part| PACKAGE_FOLDERS.iter().any(|folder| part == *folder));
        (!is_package).then(|| Self { file: file.to_path_buf(), main_folder, is_tool, language: None, code: None })
    }

    /// A file that this program loads or starts.
    pub(super) fn loaded(&self, file: &Path, language: Language) -> Option<Self> {
        // Only an import keeps the folder of the started script; another interpreter starts with its own.
        let imports = language == Language::Python;
        let loaded = Self::new(file, self.is_tool && imports)?;
        Some(if imports { Self { main_folder: self.main_folder.clone(), ..loaded } } else { loaded })
    }
}

/// Replaces the escapes of letters, digits and characters of paths in a text: `"./\u0068\.mjs"` becomes `"./h.mjs"`.
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
            // A line that continues.
            Some(('\n', _)) => {}
            Some((value, _)) => plain.push(value),
            None => plain.extend(['\\'].into_iter().chain(own.chars())),
        }
        rest = behind;
    }
    plain.push_str(rest);
    plain
}

/// Returns the character that an escape of JavaScript stands for, and the length of the escape behind the backslash.
/// Returns a line feed for a line that continues. `None` for an escape that stands for no letter.
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

/// Returns true if the ending of a file is that of a program, or if the file is executable.
pub(super) fn is_program(file: &Path) -> bool {
    has_program_ending(file)
        || is_build_file(file)
        || file.ends_with(PACKAGE_FILE)
        || fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Returns true if a file names its interpreter.
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
