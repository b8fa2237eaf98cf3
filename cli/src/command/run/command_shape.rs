//! Approvals by the shape of a command. A shape is the first words of a simple command, such as `cargo test`. An
//! approval of a shape covers every simple command that starts with these words, unless an argument deletes or
//! overwrites a file, or can make the command run another program.

mod programs;

use rye_engine::trust::ApprovedCommands;
use serde_json::Value;

/// The name of the argument that holds the command line of a call.
const COMMAND: &str = "command";
/// Characters with which a command line can do more than run one program with literal arguments.
const SPECIAL: &str = ";&|$<>`'\"\\(){}[]*?!#~=\n\r";
/// The first words of a simple command: the program, and its subcommand if it has one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommandShape(Vec<String>);

impl CommandShape {
    /// Returns the shape of a call's command. `None` if the call has no command, or if the command line has quotes,
    /// expansions, redirections or several commands. Also `None` if the program is not in the list of known programs,
    /// or if the list excludes one of the arguments.
    pub fn of_input(input: &Value) -> Option<Self> {
        Self::of_words(&simple_words(input)?)
    }

    fn of_words(words: &[&str]) -> Option<Self> {
        let count = programs::count_shape_words(words)?;
        Some(Self(words.iter().take(count).map(|word| (*word).to_owned()).collect()))
    }

    /// Returns the shape of a recorded approval: the words with which each approved command starts.
    pub fn of_approved(approved: &ApprovedCommands) -> Self {
        Self(approved.starts_with.clone())
    }

    /// Returns the approval of all calls with this capability whose command starts with the words of this shape.
    pub fn approve(&self, capability: &str) -> ApprovedCommands {
        ApprovedCommands { capability: capability.to_owned(), starts_with: self.0.clone() }
    }

    /// Returns true if the command of a call has a shape and starts with the words of this shape.
    pub fn covers(&self, input: &Value) -> bool {
        // A recorded approval without words covers no command.
        let words = simple_words(input).filter(|words| !self.0.is_empty() && Self::of_words(words).is_some());
        words.is_some_and(|words| {
            words.len() >= self.0.len() && self.0.iter().zip(&words).all(|(own, word)| own == word)
        })
    }
}

impl std::fmt::Display for CommandShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

/// Returns the words of the command line in the arguments of a call. `None` if there is no command line, or if it is
/// not a simple command.
fn simple_words(input: &Value) -> Option<Vec<&str>> {
    let command = input.get(COMMAND)?.as_str()?;
    let is_simple = !command.contains(|c: char| SPECIAL.contains(c) || (c.is_control() && c != '\t'));
    is_simple.then(|| command.split_whitespace().collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    fn shape(command: &str) -> Option<String> {
        CommandShape::of_input(&json!({ "command": command })).map(|shape| shape.to_string())
    }

    #[test]
    fn shape_is_the_program_and_its_subcommand() {
        for (command, expected) in [
            ("cargo test -p engine", Some("cargo test")),
            ("  cargo   test", Some("cargo test")),
            ("ls -la", Some("ls")),
            ("cat src/main.rs", Some("cat")),
            ("ls src", Some("ls")),
            ("git status", Some("git status")),
            ("npm test", Some("npm test")),
            ("grep -rn main src", Some("grep")),
            ("mkdir out/a", Some("mkdir")),
            ("", None),
            ("cargo test; rm x", None),
            ("cargo test && rm x", None),
            ("cargo test $(rm x)", None),
            ("cargo test > out", None),
            ("cargo test `rm x`", None),
            ("cargo test\nrm x", None),
            ("A=1 cargo test", None),
            ("sudo cargo test", None),
            // A path can name any program.
            ("./ls", None),
            ("/bin/ls", None),
        ] {
            assert_eq!(shape(command).as_deref(), expected, "{command:?}");
        }
        assert_eq!(CommandShape::of_input(&json!({"path": "a"})), None);
    }

    #[test]
    fn shape_covers_simple_commands_with_the_same_words_only() {
        let shape = CommandShape::of_input(&json!({"command": "cargo test -p a"})).unwrap();
        for (command, covered) in [
            ("cargo test", true),
            ("cargo test -p b --lib", true),
            ("cargo test -pb -j2 -- --test-threads 1 name", true),
            ("cargo testing", false),
            ("cargo", false),
            ("cargo run test", false),
            ("cargo test | tee x", false),
            ("cargo test 'a b'", false),
        ] {
            assert_eq!(shape.covers(&json!({ "command": command })), covered, "{command:?}");
        }
        assert!(!shape.covers(&json!({"script": "cargo test"})));
    }

    #[test]
    fn program_that_runs_another_program_has_no_shape() {
        const PROGRAMS: &str = "\
            ash awk bash builtin bunx busybox capsh choom chroot chrt command coproc csh dash deno docker \
            doas entr env eval exec fakeroot fish flock gdb hyperfine ionice just ksh make nice node nohup \
            npx nsenter parallel perf perl php prlimit python python3 ruby runuser script sed setarch \
            setpriv setsid sh source ssh stdbuf strace su sudo systemd-run taskset time timeout tmux unshare \
            uv valgrind watch xargs zsh . unknown-program";
        for program in PROGRAMS.split(' ') {
            for rest in ["", " ls", " -V", " -o0 ls", " run x", " test"] {
                assert_eq!(shape(&format!("{program}{rest}")), None, "{program}{rest}");
            }
        }
        for command in [
            "cargo",
            "cargo run",
            "cargo install x",
            "cargo +nightly test",
            "cargo nextest run",
            "cargo test --config x.toml",
            "cargo test --manifest-path x/Cargo.toml",
            "cargo clippy -- @arguments",
            "git",
            "git -C x status",
            "git bisect run x",
            "git clone ext::x",
            "git fetch --upload-pack x",
            "git rebase -x y",
            "go run x.go",
            "go test x.go",
            "go test -exec x",
            "go vet -vettool x",
            "npm run x",
            "npm exec x",
            "npm test --script-shell x",
            "pnpm dlx x",
            "yarn dlx x",
            "rg --pre x y",
            "rg -z y",
            "sort --compress-program x",
        ] {
            assert_eq!(shape(command), None, "{command}");
        }
    }

    #[test]
    fn command_that_deletes_or_overwrites_has_no_shape() {
        for (accepted, refused) in [
            (
                "find src -name main.rs",
                &["find src -delete", "find . -fprint out", "find . -fls out", "find . -ok rm"][..],
            ),
            ("git log -p", &["git log --output x", "git log --outp=x", "git show --ext-diff"]),
            (
                "git branch -a",
                &["git branch -D main", "git branch x", "git branch --edit-description", "git branch -m x"],
            ),
            ("date +%F", &["date -s 2001-01-01", "date --set=now", "date 01010101"]),
            ("tree -L 2", &["tree -o x", "tree -aox", "tree -R"]),
            (
                "go test -race",
                &[
                    "go test -o x",
                    "go test -c",
                    "go test -coverprofile x",
                    "go test --cpuprofile x",
                    "go test -test.trace x",
                    "go test -outputdir x",
                    "go test -fuzz x",
                    "go test -mod mod",
                    "go test -args -o x",
                ],
            ),
            ("go vet ./...", &["go vet -fix"]),
            ("go build -v", &["go build -o x", "go build -pkgdir x"]),
            ("cargo fmt --check", &["cargo fmt", "cargo fmt --all", "cargo fmt --check -- --emit files"]),
            ("cargo clippy --all-targets", &["cargo clippy --fix", "cargo clippy --fix --allow-dirty"]),
            ("cargo clippy -Dwarnings", &["cargo clippy -- -o x", "cargo clippy -- --emit link"]),
            ("cargo test --nocapture", &["cargo test -- --logfile x"]),
            ("cargo build -j4", &["cargo build --artifact-dir x", "cargo build --target-dir x"]),
            ("git add -A", &["git add -e x", "git add -p", "git add --interactive", "git add --ed"]),
        ] {
            assert_eq!(
                shape(accepted).as_deref(),
                accepted.split(' ').next().map(|name| match name {
                    "cargo" | "git" | "go" => accepted.rsplit_once(' ').unwrap().0,
                    name => name,
                })
            );
            for command in refused {
                assert_eq!(shape(command), None, "{command}");
                assert!(
                    !CommandShape::of_input(&json!({"command": accepted}))
                        .unwrap()
                        .covers(&json!({"command": command}))
                );
            }
        }
        assert_eq!(shape("uniq in out"), None);
    }

    #[test]
    fn approval_covers_no_command_without_a_shape() {
        let approved = |words: &[&str]| CommandShape(words.iter().map(|word| (*word).to_owned()).collect());
        for (words, command) in [
            // Approvals that an earlier version recorded.
            (&["stdbuf"][..], "stdbuf -o0 bash evil.sh"),
            (&["python3"][..], "python3 evil.py"),
            (&["git"][..], "git bisect run evil.sh"),
            (&["cargo", "test"][..], "cargo test --config evil.toml"),
            (&["rg"][..], "rg --pre evil.sh x"),
        ] {
            assert!(!approved(words).covers(&json!({ "command": command })), "{command}");
        }
        assert!(approved(&["ls", "src"]).covers(&json!({"command": "ls src -l"})));
    }
}
