//! The programs whose simple commands have a shape: programs that run no program which their arguments name.

/// A program, with the arguments that it may have.
struct ShapedProgram {
    name: &'static str,
    /// The subcommands that have a shape; empty for a program without subcommands.
    subcommands: &'static [&'static str],
    /// Returns true if an argument names no program, and no file or folder that determines which program runs.
    accepts: fn(&str) -> bool,
}

/// Programs that only read or create files. No argument makes one of them run another program: `find` runs one only
/// with `;` or `{}`, which a simple command does not contain.
const FILE_PROGRAMS: [&str; 30] = [
    "basename",
    "cat",
    "cmp",
    "comm",
    "cut",
    "date",
    "df",
    "diff",
    "dirname",
    "du",
    "echo",
    "egrep",
    "fgrep",
    "find",
    "grep",
    "head",
    "ls",
    "md5sum",
    "mkdir",
    "nl",
    "pwd",
    "readlink",
    "realpath",
    "sha256sum",
    "stat",
    "tail",
    "touch",
    "tree",
    "uniq",
    "wc",
];

/// Programs that run programs of the project or of their configuration. Such a program has a shape only with the listed
/// subcommands, and only with arguments that do not change which programs it runs.
const PROJECT_PROGRAMS: [ShapedProgram; 7] = [
    ShapedProgram {
        name: "cargo",
        subcommands: &["build", "check", "clippy", "fmt", "test", "tree"],
        accepts: of_cargo,
    },
    ShapedProgram {
        name: "git",
        subcommands: &[
            "add",
            "blame",
            "branch",
            "describe",
            "diff",
            "log",
            "ls-files",
            "rev-parse",
            "shortlog",
            "show",
            "status",
        ],
        accepts: |_| true,
    },
    ShapedProgram { name: "go", subcommands: &["build", "list", "test", "vet"], accepts: of_go },
    ShapedProgram { name: "npm", subcommands: &["test"], accepts: is_no_option },
    ShapedProgram { name: "pnpm", subcommands: &["test"], accepts: is_no_option },
    ShapedProgram { name: "rg", subcommands: &[], accepts: of_ripgrep },
    ShapedProgram { name: "yarn", subcommands: &["test"], accepts: is_no_option },
];

/// Returns the number of words that form the shape of a simple command; `None` if the command has no shape. A program
/// is known by its name alone: a path can name any program.
pub fn count_shape_words(words: &[&str]) -> Option<usize> {
    let (name, rest) = words.split_first()?;
    if FILE_PROGRAMS.contains(name) {
        return Some(1);
    }
    let program = PROJECT_PROGRAMS.iter().find(|program| program.name == *name)?;
    let (count, arguments) = if program.subcommands.is_empty() {
        (1, rest)
    } else {
        let (subcommand, arguments) = rest.split_first()?;
        program.subcommands.contains(subcommand).then_some((2, arguments))?
    };
    arguments.iter().all(|argument| (program.accepts)(argument)).then_some(count)
}

/// Refuses other configurations, manifests and target specifications, each of which can name programs, and files of
/// arguments for the compiler.
fn of_cargo(argument: &str) -> bool {
    !["--config", "--manifest-path", "--target", "-C", "-Z", "@"].iter().any(|refused| argument.starts_with(refused))
}

/// Refuses options that name a program or another module, and source files, which `go test` runs.
fn of_go(argument: &str) -> bool {
    const REFUSED: [&str; 8] = ["C", "compiler", "exec", "gccgoflags", "modfile", "overlay", "toolexec", "vettool"];
    let option = argument.strip_prefix('-').map(|rest| rest.strip_prefix('-').unwrap_or(rest));
    !option.is_some_and(|option| REFUSED.contains(&option)) && !argument.contains(".go")
}

/// Refuses options: the package managers accept abbreviations of options that name a shell or another project.
fn is_no_option(argument: &str) -> bool {
    !argument.starts_with('-')
}

/// Refuses the options that run a program for each file.
fn of_ripgrep(argument: &str) -> bool {
    let is_refused = ["--hostname", "--pre", "--search-zip"].iter().any(|refused| argument.starts_with(refused));
    let has_letter = !argument.starts_with("--") && argument.starts_with('-') && argument.contains('z');
    !is_refused && !has_letter
}
