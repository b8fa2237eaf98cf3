//! Output: results to stdout, messages to stderr, diagnostics in the requested format.

pub mod diagnostic;
pub mod github;
pub mod sarif;

use std::io::Write;

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use rye_compiler::diagnostics::{Diagnostic, Diagnostics, Severity, steers};
use rye_grammar::Sources;
use serde::Serialize;

use crate::CommandError;
use crate::args::{Color, Format, Global};
use crate::exit::Exit;
use crate::view::fold::{self, Stream};

/// The output settings of this invocation.
#[derive(Debug, Clone)]
pub struct Printer {
    format: Format,
    quiet: bool,
    verbose: u8,
}

impl Printer {
    /// Creates the settings; also sets the color choice of the whole process.
    pub fn new(global: &Global) -> Self {
        let format = global.format.format();
        let choice = match (format, global.color) {
            (Format::Plain | Format::Json, _) | (Format::Human, Color::Never) => ColorChoice::Never,
            (Format::Human, Color::Always) => ColorChoice::Always,
            (Format::Human, Color::Auto) => ColorChoice::Auto,
        };
        choice.write_global();
        Self { format, quiet: global.quiet, verbose: global.verbose }
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// Prints a line of the result to stdout.
    #[expect(
        clippy::unused_self,
        reason = "a command prints through the report it is given, whatever that comes to need"
    )]
    pub fn line(&self, text: &str) -> Result<(), CommandError> {
        Ok(writeln!(anstream::stdout().lock(), "{text}")?)
    }

    /// Prints the result as text, folded to the terminal's width.
    pub fn text(&self, text: &str) -> Result<(), CommandError> {
        match fold::width(Stream::Out).filter(|_| self.format == Format::Human) {
            Some(width) => self.line(&fold::fold(text, width)),
            None => self.line(text),
        }
    }

    /// Prints a whole result as JSON on one line to stdout.
    pub fn json(&self, value: &impl Serialize) -> Result<(), CommandError> {
        let text = serde_json::to_string(value).map_err(std::io::Error::other)?;
        self.line(&text)
    }

    /// Returns true if only results and errors are printed.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Prints a message to stderr, unless `-q` is set. A closed stderr is ignored.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            writeln!(anstream::stderr().lock(), "{text}").ok();
        }
    }

    /// Prints a message to stderr if `-v` is set.
    pub fn detail(&self, text: &str) {
        if self.verbose > 0 {
            writeln!(anstream::stderr().lock(), "{text}").ok();
        }
    }

    /// Prints every diagnostic to stderr in human form. JSON output contains them in the result instead.
    pub fn diagnostics(&self, diagnostics: &Diagnostics, sources: &Sources) {
        self.judged(diagnostics.iter().map(|one| (one, one.severity())), sources);
    }

    /// Prints diagnostics with their effective severity.
    pub fn judged<'d>(&self, diagnostics: impl Iterator<Item = (&'d Diagnostic, Severity)>, sources: &Sources) {
        let mut out = anstream::stderr().lock();
        for (one, severity) in diagnostics {
            if self.quiet && severity != Severity::Error {
                continue;
            }
            let text = match self.format {
                Format::Human => diagnostic::drawn(one, severity, sources),
                Format::Plain => diagnostic::plain(one, severity, sources),
                Format::Json => return,
            };
            write!(out, "{text}").ok();
        }
    }

    /// Prints a failure and returns its exit code.
    pub fn failure(&self, failure: &CommandError) -> Exit {
        match (failure.exit, self.format) {
            (Exit::Fine, _) => {}
            (_, Format::Json) => return print_failure_json(failure),
            (_, Format::Human | Format::Plain) => {
                let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
                let mut out = anstream::stderr().lock();
                writeln!(out, "{red}error{red:#}: {}", printable(&failure.message)).ok();
                if let Some(help) = &failure.help {
                    writeln!(out, "  help: {}", printable(help)).ok();
                }
            }
        }
        failure.exit
    }
}

/// Prints a failure as JSON and returns its exit code.
pub fn print_failure_json(failure: &CommandError) -> Exit {
    let code = failure.code.unwrap_or(match failure.exit {
        Exit::Usage => "usage",
        Exit::Refused => "refused",
        Exit::Fine | Exit::Failed | Exit::Widened | Exit::Limit | Exit::Cancelled => "failed",
    });
    let (message, help) = (failure.message.clone(), failure.help.clone());
    let output = ErrorOutput { error: ErrorDetail { code: code.to_owned(), message, help } };
    if let Ok(error) = serde_json::to_string(&output) {
        writeln!(anstream::stdout().lock(), "{error}").ok();
    }
    failure.exit
}

/// Output of any command under `--format json` that failed.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct ErrorOutput {
    pub error: ErrorDetail,
}

#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct ErrorDetail {
    /// `usage`, `refused`, `failed`, or a code that `rye explain` knows.
    pub code: String,
    pub message: String,
    pub help: Option<String>,
}

/// Replaces control characters, so that text from files and servers cannot move the cursor, change colors or reverse
/// the text.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if steers(c) { '\u{FFFD}' } else { c }).collect()
}
