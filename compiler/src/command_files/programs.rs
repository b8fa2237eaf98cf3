//! Names of programs that a command can contain, grouped by the programs' use of their arguments.

/// Launchers: programs that execute a file that an argument names, and words that precede another command (`-exec`). In
/// comparisons, digits, dots and hyphens at the end of a program's name are ignored, so that `python` includes
/// `python3.12`.
pub const LAUNCHERS: [&str; 84] = [
    "!",
    "-exec",
    "-execdir",
    "-ok",
    "{",
    "ash",
    "awk",
    "bash",
    "bun",
    "bunx",
    "busybox",
    "builtin",
    "chroot",
    "command",
    "coproc",
    "csh",
    "dash",
    "deno",
    "do",
    "doas",
    "dotnet",
    "elif",
    "elixir",
    "else",
    "env",
    "eval",
    "exec",
    "fish",
    "for",
    "gawk",
    "groovy",
    "guile",
    "if",
    "ionice",
    "java",
    "julia",
    "ksh",
    "lua",
    "luajit",
    "mawk",
    "mksh",
    "nice",
    "node",
    "nodejs",
    "nohup",
    "npx",
    "nu",
    "osascript",
    "parallel",
    "perl",
    "php",
    "pipx",
    "pwsh",
    "pypy",
    "python",
    "docker",
    "entr",
    "flock",
    "hyperfine",
    "nix-shell",
    "script",
    "ssh",
    "su",
    "tmux",
    "watch",
    "Rscript",
    "ruby",
    "sed",
    "setsid",
    "sh",
    "source",
    "stdbuf",
    "strace",
    "sudo",
    "swift",
    "tclsh",
    "then",
    "time",
    "timeout",
    "toybox",
    "tsx",
    "while",
    "xargs",
    "zsh",
];
/// Launchers that read code in a language of their own instead of shell commands.
pub const INTERPRETERS: [&str; 22] = [
    "bun",
    "deno",
    "elixir",
    "groovy",
    "guile",
    "java",
    "julia",
    "lua",
    "luajit",
    "node",
    "nodejs",
    "osascript",
    "perl",
    "php",
    "pwsh",
    "pypy",
    "python",
    "Rscript",
    "ruby",
    "swift",
    "tclsh",
    "tsx",
];
/// Programs of `LAUNCHERS` that edit or select lines. Their script is an argument in a language of its own, which is
/// not read as shell commands.
pub const EDITORS: [&str; 4] = ["awk", "gawk", "mawk", "sed"];
/// Launchers that are shells. A shell executes commands from its standard input if no argument names a script file or
/// contains commands.
pub const SHELLS: [&str; 12] =
    ["ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "mksh", "nu", "sh", "toybox", "zsh"];
/// Programs that only read the files that their arguments name. Their arguments need no trust.
pub const READERS: [&str; 22] = [
    "basename",
    "cat",
    "cksum",
    "cmp",
    "comm",
    "cut",
    "diff",
    "dirname",
    "du",
    "echo",
    "grep",
    "head",
    "ls",
    "md5sum",
    "nl",
    "od",
    "printf",
    "realpath",
    "sha256sum",
    "stat",
    "tail",
    "wc",
];
/// Names, in the form that `name_of` returns, of programs that execute every file in the folders that their arguments
/// name.
pub const FOLDER_RUNNERS: [&str; 3] = ["bats", "prove", "run-parts"];
/// Python modules that execute the modules or the code in their arguments.
pub const RUNNERS: [&str; 9] =
    ["cProfile", "coverage", "inspect", "pdb", "profile", "pydoc", "timeit", "trace", "unittest"];
/// Files that a program reads from its start folder even if no argument names them.
pub const IMPLIED_FILES: [(&str, &[&str]); 10] = [
    ("prove", &["t/", ".proverc"]),
    ("make", &["GNUmakefile", "makefile", "Makefile"]),
    ("gmake", &["GNUmakefile", "makefile", "Makefile"]),
    ("just", &["justfile", "Justfile", ".justfile"]),
    ("rake", &["Rakefile", "rakefile"]),
    ("npm", &["package.json", ".npmrc"]),
    ("pnpm", &["package.json", ".npmrc"]),
    ("yarn", &["package.json", ".npmrc"]),
    ("bun", &["package.json", ".npmrc"]),
    ("npx", &["package.json", ".npmrc"]),
];
/// Programs that start git in the folder in which they run.
pub const GIT_STARTERS: [&str; 12] =
    ["gh", "git", "gitk", "gitui", "glab", "go", "hub", "jj", "lazygit", "lefthook", "pre-commit", "tig"];

/// Returns true if the files that a command executes depend on its working folder: a program or script with a relative
/// path, or the files of a build tool.
pub fn starts_from_its_folder(words: &[String]) -> bool {
    let is_relative = |word: &String| word.contains('/') && !word.starts_with('/');
    let is_build_tool = |word: &String| IMPLIED_FILES.iter().any(|(name, _)| name == word);
    words.first().is_some_and(is_relative) || words.iter().any(|word| super::runs_programs(word) || is_build_tool(word))
}
