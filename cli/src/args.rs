//! The command line, parsed by clap: a variant for each command, a struct for its arguments.

use clap::{Parser, Subcommand};

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
