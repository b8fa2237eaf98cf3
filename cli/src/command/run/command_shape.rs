//! Approvals by the shape of a command: the first words of a simple command. An approval covers every simple command
//! that starts with these words.

use rye_engine::trust::ApprovedCommands;
use serde_json::Value;

/// The name of the argument that holds the command line of a call.
const COMMAND: &str = "command";
/// Characters with which a command line can do more than run one program with literal arguments.
const SPECIAL: &str = ";&|$<>`'\"\\(){}[]*?!#~=\n\r";
/// Programs that run another program, which their arguments name. The first words of such a command do not show which
/// program it runs.
const LAUNCHERS: [&str; 16] = [
    "bash", "command", "dash", "doas", "env", "eval", "exec", "fish", "nice", "nohup", "sh", "sudo", "time", "timeout",
    "xargs", "zsh",
];
/// Maximum length of a word that names a subcommand.
const MAX_SUBCOMMAND_CHARS: usize = 24;

/// The first words of a simple command: the program, and its subcommand if it has one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommandShape(Vec<String>);

impl CommandShape {
    /// Returns the shape of a call's command; `None` for a call without a command, and for a command line with
    /// quotes, expansions, redirections or several commands, or with a program that runs another one.
    pub fn of_input(input: &Value) -> Option<Self> {
        let words = simple_words(input)?;
        let program = *words.first()?;
        if LAUNCHERS.contains(&program.rsplit('/').next().unwrap_or(program)) {
            return None;
        }
        let mut shape = vec![program.to_owned()];
        let is_subcommand = |word: &&str| {
            word.len() <= MAX_SUBCOMMAND_CHARS
                && word.starts_with(|c: char| c.is_ascii_lowercase())
                && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        shape.extend(words.get(1).filter(|word| is_subcommand(word)).map(|word| (*word).to_owned()));
        Some(Self(shape))
    }

    /// Returns the first words of the commands that the user approved for a project.
    pub fn of_approved(approved: &ApprovedCommands) -> Self {
        Self(approved.starts_with.clone())
    }

    /// Returns the approval of all calls with this capability whose command starts with the words of this shape.
    pub fn approve(&self, capability: &str) -> ApprovedCommands {
        ApprovedCommands { capability: capability.to_owned(), starts_with: self.0.clone() }
    }

    /// Returns true if the command of a call is simple and starts with these words.
    pub fn covers(&self, input: &Value) -> bool {
        // A record without words approves nothing.
        let words = simple_words(input).filter(|_| !self.0.is_empty());
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
            ("make", Some("make")),
            ("", None),
            ("cargo test; rm x", None),
            ("cargo test && rm x", None),
            ("cargo test $(rm x)", None),
            ("cargo test > out", None),
            ("cargo test `rm x`", None),
            ("cargo test\nrm x", None),
            ("A=1 cargo test", None),
            ("sudo cargo test", None),
            ("/bin/sh x", None),
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
}
