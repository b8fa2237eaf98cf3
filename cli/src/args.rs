//! The command line, as clap reads it. One variant a command, one struct for its flags; no command is listed before it
//! works.

use std::path::PathBuf;

use clap::{ArgAction, Args as ArgGroup, Parser, Subcommand, ValueEnum};

use crate::command;

/// Declarative pipelines for language-model agents: check them, see what they will send, run them.
#[derive(Debug, Parser)]
#[command(name = "rye", version, arg_required_else_help = true, max_term_width = 100)]
pub struct Args {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, ArgGroup)]
pub struct Global {
    /// The project: a folder that holds `.ai/` (default: the nearest one upwards)
    #[arg(long, global = true, value_name = "DIR")]
    pub project: Option<PathBuf>,
    /// How results are printed; JSON goes to stdout alone, prose to stderr
    #[arg(long, global = true, value_enum, default_value_t = Asked::Human)]
    pub format: Asked,
    /// When to colour; `NO_COLOR` and a pipe switch colours off too
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub color: Color,
    /// Print results and errors only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more (repeatable)
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
}

/// What `--format` may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Asked {
    /// For a reader at a terminal
    Human,
    /// One fact a line, no colours, no drawing
    Plain,
    /// For programs
    Json,
    /// `check`: SARIF 2.1.0, for code scanning
    Sarif,
    /// `check`: annotations of a GitHub workflow
    Github,
    /// `plan --diff`: for a pull request
    Markdown,
    /// `plan`: one page for a browser
    Html,
}

/// Who reads what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A reader at a terminal.
    Human,
    /// One fact a line, no colours, no drawing.
    Plain,
    /// Programs; stdout holds the result alone.
    Json,
}

impl Asked {
    pub fn format(self) -> Format {
        match self {
            Self::Human => Format::Human,
            Self::Plain | Self::Github | Self::Markdown | Self::Html => Format::Plain,
            Self::Json | Self::Sarif => Format::Json,
        }
    }

    /// Whether a command prints so.
    pub fn fits(self, command: &Command) -> bool {
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
    /// Find everything that is wrong in the project
    Check(command::check::CheckArgs),
    /// Hold every thread that the directives can lead to against the project's assertions
    Assert(command::assert::AssertArgs),
    /// Lay out the metadata of directives; prose, comments and bodies stay as they are
    Fmt(command::fmt::FmtArgs),
    /// Show what a run of a directive would send and do, and where each part comes from
    Plan(command::plan::PlanArgs),
    /// Say which line put something into a plan, or why it is not there
    Why(command::why::WhyArgs),
    /// Draw how the items of the project hang together
    Graph(command::graph::GraphArgs),
    /// Write down what directives are made of, or say what is not so any more
    Lock(command::lock::LockArgs),
    /// Begin a project: `.ai/` with a first directive, or a copy of an example
    Init(command::init::InitArgs),
    /// Write a first version of an item
    New(command::new::NewArgs),
    /// Print an item as the model reads it, look for items, or copy one into another space
    #[command(visible_alias = "search")]
    Fetch(command::fetch::FetchArgs),
    /// The MCP servers of the project, and the items their tools become
    #[cfg(feature = "mcp")]
    Mcp(command::mcp::McpArgs),
    /// Run a directive, or go on with a thread
    Run(Box<command::run::RunArgs>),
    /// Where model calls can go: addresses, keys, models, prices, and whether they answer
    Providers(command::providers::ProvidersArgs),
    /// See what ran: threads, their cost, their transcripts
    Threads(command::threads::ThreadsArgs),
    /// Let a project execute what it wants to, as it is now
    Trust(command::trust::TrustArgs),
    /// Your key, and those whose signatures count
    Keys(command::keys::KeysArgs),
    /// Put your signature on items
    Sign(command::sign::SignArgs),
    /// Say which items are signed, by whom, and whether that holds
    Verify(command::sign::VerifyArgs),
    /// Look whether everything here works: providers, keys, walls, trust, the store
    Doctor(command::doctor::DoctorArgs),
    /// Try the small languages: one JSON request per line in, one answer per line out
    Eval(Box<command::eval::EvalArgs>),
    /// Print the page behind a code of a diagnostic
    Explain(command::explain::ExplainArgs),
    /// Print the completion script of a shell
    Completions(command::completions::CompletionsArgs),
    /// Print the JSON Schema of a JSON output
    Schema(command::schema::SchemaArgs),
}
