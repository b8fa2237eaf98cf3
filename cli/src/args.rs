//! The command line, parsed by clap: a variant for each command, a struct for its arguments.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, Args as ArgGroup, Parser, Subcommand, ValueEnum};

use crate::command;

/// Heading of the options that every command has, in help texts.
const COMMON_HEADING: &str = "Options of every command";
const FORMAT_HELP: &str = "Output format; `json` prints the result alone to stdout and messages to stderr";

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

/// Options of every command.
#[derive(Debug, Clone, ArgGroup)]
#[command(next_help_heading = COMMON_HEADING)]
pub struct Global {
    /// The project: a folder that contains `.ai/` (default: the nearest one, from the working directory upwards)
    #[arg(long, global = true, value_name = "DIR", env = "RYE_PROJECT", hide_env_values = true)]
    pub project: Option<PathBuf>,
    #[arg(help = FORMAT_HELP, long, global = true, value_enum, default_value_t = OutputFormat::Human, env = "RYE_FORMAT", hide_env_values = true)]
    pub format: OutputFormat,
    /// When to use colors; `NO_COLOR` and output to a pipe disable them too
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN", env = "RYE_COLOR", hide_env_values = true)]
    pub color: Color,
    /// Print results and errors only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print more details; `-vv` and `-vvv` add a log (as `RYE_LOG=debug` does)
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
}

/// Values of `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For a terminal
    Human,
    /// A fact per line, without colors or drawings
    Plain,
    /// A single JSON document
    Json,
    /// SARIF 2.1.0, for code scanning
    #[value(hide = true)]
    Sarif,
    /// Annotations of a GitHub workflow
    #[value(hide = true)]
    Github,
    /// With `--diff`: Markdown for a pull request
    #[value(hide = true)]
    Markdown,
    /// A standalone HTML page
    #[value(hide = true)]
    Html,
}

/// Returns the option `--format` of a command that supports more formats than others do.
pub fn format_option(more: &[OutputFormat]) -> Arg {
    let all = [OutputFormat::Human, OutputFormat::Plain, OutputFormat::Json];
    let values = all.iter().chain(more).filter_map(|format| Some(format.to_possible_value()?.hide(false)));
    let parser = PossibleValuesParser::new(values).try_map(|name| <OutputFormat as ValueEnum>::from_str(&name, false));
    let option = Arg::new("format").long("format").value_name("FORMAT").value_parser(parser).default_value("human");
    option.env("RYE_FORMAT").hide_env_values(true).help(FORMAT_HELP).help_heading(COMMON_HEADING)
}

/// The kind of output that a command prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text for a terminal.
    Human,
    /// A fact per line, without colors or drawings.
    Plain,
    /// JSON; stdout holds only the result.
    Json,
}

impl OutputFormat {
    pub fn format(self) -> Format {
        match self {
            Self::Human => Format::Human,
            Self::Plain | Self::Github | Self::Markdown | Self::Html => Format::Plain,
            Self::Json | Self::Sarif => Format::Json,
        }
    }

    /// Returns true if the command supports this format.
    pub fn is_supported_by(self, command: &Command) -> bool {
        match self {
            Self::Human | Self::Plain | Self::Json => true,
            Self::Sarif | Self::Github => matches!(command, Command::Check(_)),
            Self::Markdown | Self::Html => matches!(command, Command::Plan(_)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check the project for errors and warnings
    Check(command::check::CheckArgs),
    /// Check assertions for every reachable thread
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
