//! Options of every command: project, output format, colors, verbosity.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, Args as ArgGroup, ValueEnum};

/// Heading of the options that every command has, in help texts.
const COMMON_HEADING: &str = "Options of every command";
const FORMAT_HELP: &str = "Output format; `json` prints the result alone to stdout and messages to stderr";

/// Options of every command.
#[derive(Debug, Clone, ArgGroup)]
#[command(next_help_heading = COMMON_HEADING)]
pub struct Global {
    /// The project: a folder that contains `.ai/` (default: the nearest one, from the working directory upwards)
    #[arg(long, global = true, value_name = "DIR", env = "RYE_PROJECT", hide_env_values = true)]
    pub project: Option<PathBuf>,
    #[arg(help = FORMAT_HELP, long, global = true, value_enum, default_value_t = OutputFormat::Human, env = "RYE_FORMAT", hide_env_values = true)]
    pub format: OutputFormat,
    /// When to use colors; with `auto`, `NO_COLOR` and output to a pipe disable them
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

/// Returns the option `--format` of a command that supports the formats `more` in addition to those of every command.
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}
