//! The `rye` command: arguments in, one command run, its exit code out. All wiring and all printing happen in this
//! crate; what things mean does not.

mod args;
mod call;
mod command;
mod exit;
mod git;
mod narrow;
mod report;
mod rewrite;
mod space;
mod view;

use std::process::ExitCode;

use clap::Parser;

use args::Args;
use exit::Exit;
use report::Report;

fn main() -> ExitCode {
    // This binary is also the helper that tools' programs run under.
    if let Some(code) = rye_engine::tool::process::supervise_if_asked() {
        return code;
    }
    let args = Args::parse();
    let report = Report::new(&args.global);
    let exit = command::run(args, &report).unwrap_or_else(|failure| report.failure(&failure));
    exit.into()
}

/// Why a command could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub exit: Exit,
    /// The code that `rye explain` knows, where there is one: `extends::cycle`.
    pub code: Option<&'static str>,
    pub message: String,
    pub help: Option<String>,
}

impl Failure {
    /// The command line asks for something that cannot be.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, code: None, message: message.into(), help: None }
    }

    /// It was asked rightly and did not work.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, code: None, message: message.into(), help: None }
    }

    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl From<rye_engine::store::StoreError> for Failure {
    fn from(error: rye_engine::store::StoreError) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    /// A reader that went away is no failure of ours.
    fn from(error: std::io::Error) -> Self {
        let exit = if error.kind() == std::io::ErrorKind::BrokenPipe { Exit::Fine } else { Exit::Failed };
        Self { exit, code: None, message: error.to_string(), help: None }
    }
}
