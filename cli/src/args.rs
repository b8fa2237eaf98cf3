//! The command line, parsed by clap: a variant for each command, a struct for its arguments.

use std::ffi::{OsStr, OsString};

use clap::builder::Resettable;
use clap::{Arg, Args as _, FromArgMatches as _, Parser, Subcommand};

use crate::command;
use crate::options::{Global, OutputFormat};

/// Version, commit and features of this build.
const LONG_VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), "\ncommit: ", env!("BUILD_COMMIT"), "\nfeatures: ", env!("BUILD_FEATURES"),);

/// Declarative pipelines for language-model agents: check, plan and run them
#[derive(Debug, Parser)]
#[command(name = "rye", version, long_version = LONG_VERSION, arg_required_else_help = true, max_term_width = 100)]
pub struct Args {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check the project for errors and warnings
    Check(command::check::CheckArgs),
    /// Check assertions for every thread that the directives can start
    Assert(command::assert::AssertArgs),
    /// Format the metadata of directives and knowledge, and YAML files
    Fmt(command::fmt::FmtArgs),
    /// Show the model requests and actions of a run, with the origin of each part
    Plan(command::plan::PlanArgs),
    /// Show the origin of a part of a plan, or the reason why it is absent
    Why(command::why::WhyArgs),
    /// Draw the dependency graph of the project's items
    Graph(command::graph::GraphArgs),
    /// Write or verify `.ai/lock.json`
    Lock(command::lock::LockArgs),
    /// Create a project: `.ai/` with a first directive, or a copy of an example
    Init(command::init::InitArgs),
    /// Create an item from a template
    New(command::new::NewArgs),
    /// Print an item as the model reads it, search for items, or copy an item to another space
    #[command(visible_alias = "search")]
    Fetch(command::fetch::FetchArgs),
    /// List MCP servers, update the items of their tools, or serve a directive over MCP
    #[cfg(feature = "mcp")]
    Mcp(command::mcp::McpArgs),
    /// Chat with a directive: each line is a prompt
    Chat(Box<command::chat::ChatArgs>),
    /// Run as an agent for editors that speak the Agent Client Protocol, on stdin and stdout
    #[cfg(feature = "acp")]
    Acp(Box<command::acp::AcpArgs>),
    /// Run a directive, or resume a thread
    Run(Box<command::run::RunArgs>),
    /// List model providers with their keys, models and prices, or test one
    Providers(command::providers::ProvidersArgs),
    /// List, inspect and control threads
    Threads(command::threads::ThreadsArgs),
    /// Show what a project executes, and trust it in its current state
    Trust(command::trust::TrustArgs),
    /// Manage your signing key and the trusted keys
    Keys(command::keys::KeysArgs),
    /// Sign items
    Sign(command::sign::SignArgs),
    /// Verify the signatures of items
    Verify(command::sign::VerifyArgs),
    /// Diagnose the environment: providers, keys, sandbox, trust, storage
    Doctor(command::doctor::DoctorArgs),
    /// Evaluate conditions, templates, patterns and limits: one JSON request per line
    Eval(Box<command::eval::EvalArgs>),
    /// Explain a diagnostic code or a capability group
    Explain(command::explain::ExplainArgs),
    /// Print a shell completion script
    Completions(command::completions::CompletionsArgs),
    /// Print the manual page, or write the pages of all commands to a folder
    Man(command::man::ManArgs),
    /// Print the JSON Schema of a JSON output
    Schema(command::schema::SchemaArgs),
}

/// A function that adds the arguments of a command.
type ArgumentBuilder = fn(clap::Command) -> clap::Command;

/// The commands whose arguments are built without those of the other commands. Building the arguments of all commands
/// takes a tenth of the time of `rye plan`.
const FREQUENT_COMMANDS: &[(&str, ArgumentBuilder)] = &[
    ("check", command::check::CheckArgs::augment_args),
    ("plan", command::plan::PlanArgs::augment_args),
    ("chat", command::chat::ChatArgs::augment_args),
    #[cfg(feature = "acp")]
    ("acp", command::acp::AcpArgs::augment_args),
    ("run", command::run::RunArgs::augment_args),
];

impl Args {
    /// Returns the output of clap for a command line with `--version` or `-V` alone, without building the options of
    /// the commands. `None` for any other command line.
    pub fn version_answer(words: &[OsString]) -> Option<clap::Error> {
        let [_, word] = words else { return None };
        if word != "--version" && word != "-V" {
            return None;
        }
        let command = clap::Command::new("rye").version(env!("CARGO_PKG_VERSION")).long_version(LONG_VERSION);
        command.try_get_matches_from(words).err()
    }

    /// Parses a command line whose first word is a frequent command. To save time, the arguments of the other commands
    /// are not built. Returns `None` for any other command line, for an invalid one, and for a request of help. The
    /// caller then parses with the arguments of all commands.
    pub fn parse_frequent(words: &[OsString]) -> Option<Self> {
        let name = words.get(1)?.to_str()?;
        let (name, add_arguments) = FREQUENT_COMMANDS.iter().find(|(frequent, _)| *frequent == name)?;
        let command = Global::augment_args(clap::Command::new("rye")).subcommand_required(true);
        let command = command.subcommand(add_arguments(clap::Command::new(*name)));
        let matches = ignore_empty_variables(command).try_get_matches_from(words).ok()?;
        Self::from_arg_matches(&matches).ok()
    }
}

/// Changes the options of a command so that an empty environment variable counts as unset.
pub fn ignore_empty_variables(command: clap::Command) -> clap::Command {
    if std::env::vars_os().any(|(_, value)| value.is_empty()) { without_empty_variables(command) } else { command }
}

fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let without = |arg: Arg| if arg.get_env().is_some_and(is_empty) { arg.env(Resettable::Reset) } else { arg };
    command.mut_args(without).mut_subcommands(without_empty_variables)
}

impl Command {
    /// Returns true if the command can print this format.
    pub fn supports(&self, format: OutputFormat) -> bool {
        match format {
            OutputFormat::Human | OutputFormat::Plain | OutputFormat::Json => true,
            OutputFormat::Sarif | OutputFormat::Github => matches!(self, Self::Check(_)),
            OutputFormat::Markdown | OutputFormat::Html => matches!(self, Self::Plan(_)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn frequent_commands_have_the_arguments_of_the_whole_command_line() {
        let whole = Args::command();
        let describe = |command: &clap::Command| {
            let arguments: Vec<String> = command.get_arguments().map(|argument| format!("{argument:?}")).collect();
            let groups: Vec<String> = command.get_groups().map(|group| format!("{group:?}")).collect();
            (arguments, groups)
        };
        for (name, add_arguments) in FREQUENT_COMMANDS {
            let alone = add_arguments(clap::Command::new(*name));
            let of_whole = whole.find_subcommand(name).unwrap();
            assert_eq!(describe(&alone), describe(of_whole), "{name}");
            assert!(!of_whole.has_subcommands(), "{name}");
        }
        // The whole command line also has a group without a rule, which lists its own arguments.
        let (common, _) = describe(&Global::augment_args(clap::Command::new("rye")));
        assert_eq!(common, describe(&whole).0);
    }

    #[test]
    fn version_is_the_one_of_the_whole_command_line() {
        for word in ["--version", "-V"] {
            let words = ["rye", word].map(OsString::from);
            let whole = Args::command().try_get_matches_from(&words).unwrap_err();
            let alone = Args::version_answer(&words).unwrap();
            assert_eq!((alone.kind(), alone.to_string()), (whole.kind(), whole.to_string()));
        }
        for words in [&["rye"][..], &["rye", "run"], &["rye", "--version", "run"]] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert!(Args::version_answer(&words).is_none(), "{words:?}");
        }
    }

    #[test]
    fn frequent_command_parses_as_the_whole_command_line_does() {
        for line in [
            "rye run hello --input a=b --input c=d --limit turns=3 --project /p -v",
            "rye run --resume THREAD --message text --format json",
            "rye run hello -q --color never --events",
            "rye plan hello --prompt",
            "rye plan",
            "rye check --fix .ai/directives/a.md",
            "rye check --quiet --verbose",
            "rye check --format sarif",
            "rye chat -c",
            "rye chat hello --model fast",
            "rye run",
            "rye run --no-such-option",
            "rye run --help",
            "rye --quiet run hello",
            "rye run -- hello",
            "rye help run",
            "rye",
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let whole = Args::try_parse_from(&words).ok();
            let frequent = Args::parse_frequent(&words);
            let is_frequent = words.get(1).is_some_and(|word| FREQUENT_COMMANDS.iter().any(|(name, _)| word == name));
            let expected = whole.filter(|_| is_frequent).map(|args| format!("{args:?}"));
            assert_eq!(frequent.map(|args| format!("{args:?}")), expected, "{line}");
        }
    }
}
