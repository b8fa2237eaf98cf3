//! The programs whose simple commands have a shape (the first words of a command, which an approval can cover). No
//! argument of such a command can name another program to run.

/// A program whose commands have a shape if `accepts` returns true for each of their arguments.
struct ShapedProgram {
    name: &'static str,
    /// The subcommands that have a shape; empty for a program without subcommands.
    subcommands: &'static [&'static str],
    /// Returns true if an argument is safe. An unsafe argument deletes or overwrites a file, names a program to run, or
    /// names a file or folder that determines which program runs.
    accepts: fn(&str) -> bool,
}

/// Programs that read or create files, whatever their arguments are. None of them runs another program, or deletes or
/// overwrites a file.
const FILE_PROGRAMS: [&str; 26] = [
    "basename",
    "cat",
    "cmp",
    "comm",
    "cut",
    "df",
    "diff",
    "dirname",
    "du",
    "echo",
    "egrep",
    "fgrep",
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
    "wc",
];

/// Programs with some arguments that delete or overwrite a file, or that determine which program runs. A command of
/// such a program has a shape only with a listed subcommand, and only without these arguments.
const PROGRAMS_WITH_ARGUMENTS: [ShapedProgram; 11] = [
    ShapedProgram {
        name: "cargo",
        subcommands: &["build", "check", "clippy", "fmt", "test", "tree"],
        accepts: of_cargo,
    },
    ShapedProgram { name: "date", subcommands: &[], accepts: prints_date },
    ShapedProgram { name: "find", subcommands: &[], accepts: of_find },
    ShapedProgram {
        name: "git",
        subcommands: &[
            "add",
            "blame",
            "describe",
            "diff",
            "log",
            "ls-files",
            "rev-parse",
            "shortlog",
            "show",
            "status",
        ],
        accepts: of_git,
    },
    ShapedProgram { name: "git", subcommands: &["branch"], accepts: lists_branches },
    ShapedProgram { name: "go", subcommands: &["build", "list", "test", "vet"], accepts: of_go },
    ShapedProgram { name: "npm", subcommands: &["test"], accepts: is_no_option },
    ShapedProgram { name: "pnpm", subcommands: &["test"], accepts: is_no_option },
    ShapedProgram { name: "rg", subcommands: &[], accepts: of_ripgrep },
    ShapedProgram { name: "tree", subcommands: &[], accepts: of_tree },
    ShapedProgram { name: "yarn", subcommands: &["test"], accepts: is_no_option },
];

/// Returns the number of words that form the shape of a simple command; `None` if the command has no shape. A program
/// that is given by a path has no shape, because a path can name any program.
pub fn count_shape_words(words: &[&str]) -> Option<usize> {
    let (name, rest) = words.split_first()?;
    if FILE_PROGRAMS.contains(name) {
        return Some(1);
    }
    PROGRAMS_WITH_ARGUMENTS.iter().filter(|program| program.name == *name).find_map(|program| {
        let (count, arguments) = if program.subcommands.is_empty() {
            (1, rest)
        } else {
            let (subcommand, arguments) = rest.split_first()?;
            program.subcommands.contains(subcommand).then_some((2, arguments))?
        };
        arguments.iter().all(|argument| (program.accepts)(argument)).then_some(count)
    })
}

/// Returns false for the options `--output` and `--ext-diff`, which write a file or run a program. Also returns false
/// for their abbreviations, because git accepts the start of an option's name.
fn of_git(argument: &str) -> bool {
    !["--out", "--ext"].iter().any(|refused| argument.starts_with(refused))
}

/// Returns true for the options that list branches. All other options, and names, can create, change or delete
/// branches.
fn lists_branches(argument: &str) -> bool {
    ["-a", "-r", "-v", "-vv", "--all", "--list", "--remotes", "--show-current", "--verbose"].contains(&argument)
}

/// Returns true for formats and for the options of the time zone. All other arguments can set the clock.
fn prints_date(argument: &str) -> bool {
    argument.starts_with('+') || ["-u", "-R", "-I", "--utc", "--iso-8601", "--rfc-email"].contains(&argument)
}

/// Returns false for the actions that delete or write files or run a program.
fn of_find(argument: &str) -> bool {
    !["-delete", "-exec", "-fls", "-fprint", "-ok"].iter().any(|refused| argument.starts_with(refused))
}

/// Returns false for the one-letter options `-o` and `-R`, which write files, even if other letters are in the same
/// argument.
fn of_tree(argument: &str) -> bool {
    argument.starts_with("--") || !(argument.starts_with('-') && argument.contains(['o', 'R']))
}

/// Returns false for options that name another configuration, manifest or target specification, because each of these
/// files can name programs. Also returns false for `@FILE`, a file with arguments for the compiler.
fn of_cargo(argument: &str) -> bool {
    !["--config", "--manifest-path", "--target", "-C", "-Z", "@"].iter().any(|refused| argument.starts_with(refused))
}

/// Returns false for options that name a program or another module, and for source files, because `go test` runs them.
fn of_go(argument: &str) -> bool {
    const REFUSED: [&str; 8] = ["C", "compiler", "exec", "gccgoflags", "modfile", "overlay", "toolexec", "vettool"];
    let option = argument.strip_prefix('-').map(|rest| rest.strip_prefix('-').unwrap_or(rest));
    !option.is_some_and(|option| REFUSED.contains(&option)) && !argument.contains(".go")
}

/// Returns false for every option, because the package managers accept abbreviations of the options that name a shell
/// or another project.
fn is_no_option(argument: &str) -> bool {
    !argument.starts_with('-')
}

/// Returns false for the options that make ripgrep run another program, such as `--pre` and `-z`.
fn of_ripgrep(argument: &str) -> bool {
    let is_refused = ["--hostname", "--pre", "--search-zip"].iter().any(|refused| argument.starts_with(refused));
    let has_letter = !argument.starts_with("--") && argument.starts_with('-') && argument.contains('z');
    !is_refused && !has_letter
}
