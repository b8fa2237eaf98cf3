//! `rye completions SHELL`: prints the shell's completion script. The script calls this binary for each word
//! ([`crate::complete`]), so that ids of directives, items and threads are completed too.

use std::io::Write;

use clap::Args;
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::CommandError;
use crate::complete::COMPLETE_VARIABLE;
use crate::exit::Exit;

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell that the script is for
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(args: &CompletionsArgs) -> Result<Exit, CommandError> {
    let name = args.shell.to_string();
    let shells = Shells::builtins();
    let Some(shell) = shells.completer(&name) else {
        return Err(CommandError::usage(format!("no completion script for `{name}`")));
    };
    let mut script = Vec::new();
    shell.write_registration(COMPLETE_VARIABLE, "rye", "rye", "rye", &mut script)?;
    std::io::stdout().lock().write_all(&script)?;
    Ok(Exit::Fine)
}
