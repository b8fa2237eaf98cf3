//! The examples of the help texts and manual pages: at least one for each command.

use clap::Command;

/// Examples of command lines, by the name of the command. A test parses each command line.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("", &["rye init", "rye check", "rye plan hello", "rye run hello", "rye chat"]),
    ("check", &["rye check", "rye check --fix", "rye check .ai/directives/deploy.md"]),
    ("assert", &["rye assert"]),
    ("fmt", &["rye fmt", "rye fmt --check"]),
    ("plan", &["rye plan hello", "rye plan hello --prompt", "rye plan hello --diff HEAD~1"]),
    (
        "why",
        &["rye why limit.turns --of hello", "rye why rye/bash/bash --of hello", "rye why context/AGENTS.md --chat"],
    ),
    ("graph", &["rye graph", "rye graph hello"]),
    ("lock", &["rye lock", "rye lock --check"]),
    ("init", &["rye init", "rye init my-project --example hello"]),
    ("new", &["rye new directive deploy/staging", "rye new tool greet"]),
    ("fetch", &["rye fetch directive hello", "rye fetch knowledge --query budget"]),
    ("mcp", &["rye mcp add files -- mcp-server-filesystem .", "rye mcp list", "rye mcp serve"]),
    ("mcp list", &["rye mcp list"]),
    ("mcp add", &["rye mcp add files --write notes/ -- mcp-server-filesystem ."]),
    ("mcp refresh", &["rye mcp refresh files"]),
    ("mcp serve", &["rye mcp serve", "rye mcp serve --http 127.0.0.1:8330"]),
    ("acp", &["rye acp", "rye acp my/directive --model fast"]),
    ("chat", &["rye chat", "rye chat hello --model fast", "rye chat -c", "rye chat --attach"]),
    ("run", &["rye run hello", "rye run hello --input file=guest.txt --limit spend=0.10", "rye run --resume THREAD"]),
    ("providers", &["rye providers list", "rye providers test anthropic"]),
    ("providers list", &["rye providers list"]),
    ("providers test", &["rye providers test anthropic"]),
    (
        "providers add",
        &[
            "rye providers add anthropic/NEW-ID --context-window 200000 --max-output 64000 --input-price 3 --output-price 15",
        ],
    ),
    ("providers refresh-prices", &["rye providers refresh-prices prices.yaml"]),
    ("threads", &["rye threads list", "rye threads show --last", "rye threads resume --last"]),
    ("threads list", &["rye threads list --active", "rye threads list --since 1h --status error"]),
    ("threads show", &["rye threads show --last"]),
    ("threads transcript", &["rye threads transcript --last --full"]),
    ("threads tail", &["rye threads tail -f --last"]),
    ("threads status", &["rye threads status --last"]),
    ("threads wait", &["rye threads wait THREAD --timeout 60"]),
    ("threads results", &["rye threads results THREAD"]),
    ("threads cancel", &["rye threads cancel --last"]),
    ("threads kill", &["rye threads kill --last"]),
    ("threads steer", &["rye threads steer --last 'stop after the tests'"]),
    ("threads approvals", &["rye threads approvals"]),
    ("threads approve", &["rye threads approve --last", "rye threads approve --last --deny"]),
    (
        "threads resume",
        &["rye threads resume --last", "rye threads resume --last --message 'continue' --limit turns=6"],
    ),
    ("threads handoff", &["rye threads handoff --last"]),
    ("threads chain", &["rye threads chain --last"]),
    ("threads search", &["rye threads search --last 'error|failed'"]),
    ("threads prove", &["rye threads prove --last", "rye threads prove --last --prompts"]),
    ("threads verify", &["rye threads verify", "rye threads verify --last"]),
    ("threads export", &["rye threads export --script --last"]),
    ("threads prune", &["rye threads prune --older-than 30"]),
    ("threads repair", &["rye threads repair"]),
    ("trust", &["rye trust --list", "rye trust"]),
    ("keys", &["rye keys generate", "rye keys list"]),
    ("keys generate", &["rye keys generate"]),
    ("keys list", &["rye keys list"]),
    ("keys trust", &["rye keys trust key.pem"]),
    ("keys revoke", &["rye keys revoke d8db286ba91d5721"]),
    ("sign", &["rye sign .ai/directives/deploy.md"]),
    ("verify", &["rye verify"]),
    ("doctor", &["rye doctor"]),
    ("eval", &["rye eval < requests.jsonl"]),
    ("explain", &["rye explain extends::cycle"]),
    ("completions", &["rye completions bash"]),
    ("man", &["rye man", "rye man man/"]),
    ("schema", &["rye schema plan", "rye schema --inputs --to schemas/"]),
];

/// Adds the examples to the help texts of a command and of all its subcommands.
pub fn with_examples(command: Command) -> Command {
    add_examples(command, "")
}

fn add_examples(command: Command, parent: &str) -> Command {
    let name = command.get_name().to_owned();
    // The names in the table do not start with the name of the program.
    let path = match parent {
        "" if name == "rye" => String::new(),
        "" => name,
        parent => format!("{parent} {name}"),
    };
    let examples = EXAMPLES.iter().find(|(of, _)| *of == path).map(|(_, lines)| *lines);
    let command = match examples {
        Some(lines) => command.after_help(format!("Examples:\n  {}", lines.join("\n  "))),
        None => command,
    };
    command.mut_subcommands(|sub| add_examples(sub, &path))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Args;

    /// Adds the path of a command and of its visible subcommands. The path of the program is empty.
    fn list_commands(command: &Command, path: &str, found: &mut Vec<String>) {
        found.push(path.to_owned());
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
            list_commands(sub, format!("{path} {}", sub.get_name()).trim(), found);
        }
    }

    /// Splits a command line at spaces outside of quotes.
    fn shell_words(line: &str) -> Vec<String> {
        let parts = line.split('\'').enumerate();
        let words = parts.flat_map(|(n, part)| match n % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        words.collect()
    }

    #[test]
    fn every_command_has_an_example_that_parses() {
        assert_eq!(example_faults(EXAMPLES), Vec::<String>::new());
    }

    #[test]
    fn planted_breaches_of_the_examples_are_found() {
        let without_check: Vec<_> = EXAMPLES.iter().filter(|(of, _)| *of != "check").copied().collect();
        assert_eq!(example_faults(&without_check), ["`rye check` has no example"]);
        let with_unknown_option = [without_check.as_slice(), &[("check", &["rye check --no-such-option"])]].concat();
        assert_eq!(example_faults(&with_unknown_option).len(), 1);
        let with_unknown_command = [EXAMPLES, &[("no such", &[])]].concat();
        assert_eq!(example_faults(&with_unknown_command), ["no command `no such`"]);
    }

    /// Returns the commands without an example, the examples that do not parse, and the examples of unknown commands.
    fn example_faults(examples: &[(&str, &[&str])]) -> Vec<String> {
        let (mut commands, mut wrong) = (Vec::new(), Vec::new());
        list_commands(&Args::command(), "", &mut commands);
        for command in &commands {
            let Some((_, lines)) = examples.iter().find(|(of, _)| of == command) else {
                wrong.push(format!("`rye {command}` has no example"));
                continue;
            };
            for line in *lines {
                let line = line.split(" < ").next().unwrap();
                let words = shell_words(line);
                if let Err(error) = Args::command().try_get_matches_from(words) {
                    wrong.push(format!("{line}: {}", error.to_string().lines().next().unwrap_or_default()));
                }
            }
        }
        wrong.extend(
            examples
                .iter()
                .filter(|(of, _)| !commands.iter().any(|c| c == of))
                .map(|(of, _)| format!("no command `{of}`")),
        );
        wrong
    }
}
