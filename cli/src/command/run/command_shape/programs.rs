//! The programs whose simple commands have a shape. No argument of such a command can name another program to run.

/// A program whose commands have a shape if `accepts` accepts their arguments.
struct ShapedProgram {
    name: &'static str,
    /// The subcommands that have a shape; empty for a program without subcommands.
    subcommands: &'static [&'static str],
    /// Returns true if an argument names no program and no file or folder that determines which program runs, and does
    /// not delete or overwrite anything.
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

/// Programs of which some arguments delete or overwrite a file, or determine which program runs. Such a program has a
/// shape only with the listed subcommands, and only without these arguments.
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

/// Refuses the options that write a file or run a program for differences; git accepts the start of an option's name.
fn of_git(argument: &str) -> bool {
    !["--out", "--ext"].iter().any(|refused| argument.starts_with(refused))
}

/// Accepts the options that list branches. Names and all other options create, change or delete branches.
fn lists_branches(argument: &str) -> bool {
    ["-a", "-r", "-v", "-vv", "--all", "--list", "--remotes", "--show-current", "--verbose"].contains(&argument)
}

/// Accepts formats and the options for the time zone. All other arguments can set the clock.
fn prints_date(argument: &str) -> bool {
    argument.starts_with('+') || ["-u", "-R", "-I", "--utc", "--iso-8601", "--rfc-email"].contains(&argument)
}

/// Refuses the actions that delete or write files or run a program.
fn of_find(argument: &str) -> bool {
    !["-delete", "-exec", "-fls", "-fprint", "-ok"].iter().any(|refused| argument.starts_with(refused))
}

/// Refuses the option that names a file for the output, alone or among other letters.
fn of_tree(argument: &str) -> bool {
    argument.starts_with("--") || !(argument.starts_with('-') && argument.contains(['o', 'R']))
}

/// Refuses options for other configurations, manifests and target specifications, because each of these files can name
/// programs. Also refuses `@FILE`, a file with arguments for the compiler.
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

/// Refuses the options that make ripgrep run another program, such as `--pre` and `-z`.
fn of_ripgrep(argument: &str) -> bool {
    let is_refused = ["--hostname", "--pre", "--search-zip"].iter().any(|refused| argument.starts_with(refused));
    let has_letter = !argument.starts_with("--") && argument.starts_with('-') && argument.contains('z');
    !is_refused && !has_letter
}
