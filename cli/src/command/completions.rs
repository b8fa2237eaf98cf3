//! `rye completions SHELL`: the completion script, on stdout.

use std::io::Write;

use clap::{Args as ArgGroup, CommandFactory};
use clap_complete::Shell;

use crate::Failure;
use crate::args::Args;
use crate::exit::Exit;

#[derive(Debug, ArgGroup)]
pub struct CompletionsArgs {
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(args: &CompletionsArgs) -> Result<Exit, Failure> {
    // clap_complete panics when it cannot write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "rye", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(Exit::Fine)
}
