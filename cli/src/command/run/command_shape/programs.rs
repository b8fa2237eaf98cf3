//! The programs whose simple commands have a shape (the first words of a command, which an approval can cover). No
//! argument of such a command can name another program to run.

/// A program whose commands have a shape if `accepts` returns true for each of their arguments.
struct ShapedProgram {
    name: &'static str,
    /// The subcommands that have a shape; empty for a program without subcommands.
    subcommands: &'static [&'static str],
    /// The option that the command needs, because it overwrites files without this option; `None` if it needs no
    /// option.
    needs: Option<&'static str>,
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
const PROGRAMS_WITH_ARGUMENTS: [ShapedProgram; 13] = [
    ShapedProgram { subcommands: &["build", "check", "clippy", "test", "tree"], ..program("cargo", of_cargo) },
    ShapedProgram { subcommands: &["fmt"], needs: Some("--check"), ..program("cargo", checks_format) },
    program("date", prints_date),
    program("find", of_find),
    ShapedProgram {
        subcommands: &["blame", "describe", "diff", "log", "ls-files", "rev-parse", "shortlog", "show", "status"],
        ..program("git", of_git)
    },
    ShapedProgram { subcommands: &["add"], ..program("git", adds_files) },
    ShapedProgram { subcommands: &["branch"], ..program("git", lists_branches) },
    ShapedProgram { subcommands: &["build", "list", "test", "vet"], ..program("go", of_go) },
    ShapedProgram { subcommands: &["test"], ..program("npm", is_no_option) },
    ShapedProgram { subcommands: &["test"], ..program("pnpm", is_no_option) },
    program("rg", of_ripgrep),
    program("tree", of_tree),
    ShapedProgram { subcommands: &["test"], ..program("yarn", is_no_option) },
];

/// Options of cargo, of the test programs that it starts, and of the compiler behind `cargo clippy --`. No option of
/// the list names a program, or a file to write.
const CARGO_OPTIONS: [&str; 64] = [
    "--",
    "--all",
    "--all-features",
    "--all-targets",
    "--allow",
    "--bench",
    "--benches",
    "--bin",
    "--bins",
    "--charset",
    "--color",
    "--deny",
    "--depth",
    "--doc",
    "--duplicates",
    "--edges",
    "--exact",
    "--example",
    "--examples",
    "--exclude",
    "--features",
    "--forbid",
    "--format",
    "--frozen",
    "--ignore-rust-version",
    "--ignored",
    "--include-ignored",
    "--invert",
    "--jobs",
    "--keep-going",
    "--lib",
    "--list",
    "--locked",
    "--message-format",
    "--no-dedupe",
    "--no-default-features",
    "--no-deps",
    "--no-fail-fast",
    "--no-run",
    "--nocapture",
    "--offline",
    "--package",
    "--prefix",
    "--profile",
    "--prune",
    "--quiet",
    "--release",
    "--show-output",
    "--skip",
    "--test",
    "--test-threads",
    "--tests",
    "--verbose",
    "--warn",
    "--workspace",
    "-d",
    "-e",
    "-f",
    "-i",
    "-q",
    "-r",
    "-v",
    "-vv",
    "-vvv",
];
/// Short options of cargo and of the compiler whose value can follow in the same word.
const CARGO_LETTERS: [&str; 6] = ["-A", "-D", "-F", "-W", "-j", "-p"];
/// Options of go without their hyphens. No option of the list names a program, or a file to write.
const GO_OPTIONS: [&str; 30] = [
    "a",
    "asan",
    "bench",
    "benchmem",
    "benchtime",
    "buildvcs",
    "count",
    "cover",
    "covermode",
    "coverpkg",
    "cpu",
    "deps",
    "e",
    "f",
    "failfast",
    "find",
    "json",
    "list",
    "m",
    "p",
    "parallel",
    "race",
    "run",
    "short",
    "shuffle",
    "skip",
    "tags",
    "timeout",
    "trimpath",
    "v",
];

const fn program(name: &'static str, accepts: fn(&str) -> bool) -> ShapedProgram {
    ShapedProgram { name, subcommands: &[], needs: None, accepts }
}

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
        let is_complete = program.needs.is_none_or(|needed| arguments.contains(&needed));
        (is_complete && arguments.iter().all(|argument| (program.accepts)(argument))).then_some(count)
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

/// Returns true for the options in the lists, and for names. All other options can write files (`--fix`,
/// `--artifact-dir`), or name another configuration, manifest or target specification, which can name programs. An
/// argument `@FILE` is refused, because the file contains arguments for the compiler.
fn of_cargo(argument: &str) -> bool {
    let is_known = CARGO_OPTIONS.contains(&argument) || CARGO_LETTERS.iter().any(|letter| argument.starts_with(letter));
    is_known || !argument.starts_with(['-', '@'])
}

/// Returns true for the options with which `cargo fmt --check` writes no file, and for the names of packages.
fn checks_format(argument: &str) -> bool {
    const OPTIONS: [&str; 9] = ["--", "--all", "--check", "--package", "--quiet", "--verbose", "-p", "-q", "-v"];
    OPTIONS.contains(&argument) || !argument.starts_with(['-', '@'])
}

/// Returns true for the options in the list, and for the names of packages. All other options can write files (`-o`,
/// `-coverprofile`) or name a program or another module. A source file is refused, because `go test FILE.go` runs it.
fn of_go(argument: &str) -> bool {
    let option = argument.strip_prefix('-').map(|rest| rest.strip_prefix('-').unwrap_or(rest));
    option.map_or(!argument.contains(".go"), |option| GO_OPTIONS.contains(&option))
}

/// Returns true for paths, and for the options of `git add` that neither start an editor nor ask questions.
fn adds_files(argument: &str) -> bool {
    const OPTIONS: [&str; 10] =
        ["--", "--all", "--dry-run", "--intent-to-add", "--update", "--verbose", "-A", "-N", "-u", "-v"];
    OPTIONS.contains(&argument) || !argument.starts_with('-')
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
