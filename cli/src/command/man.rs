//! `rye man`: prints the manual page of the program, or writes the pages of all commands to a folder.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use rye_engine::rooted_dir::write_user_file;

use crate::CommandError;
use crate::exit::Exit;
use crate::help_examples::with_examples;
use crate::report::Printer;

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Folder for the pages of all commands, created if missing (`rye.1`, `rye-run.1`, …)
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub fn run(args: &ManArgs, report: &Printer) -> Result<Exit, CommandError> {
    let mut command = with_examples(crate::args::Args::command());
    command.build();
    let Some(dir) = &args.dir else {
        std::io::stdout().lock().write_all(&render(&command)?)?;
        return Ok(Exit::Success);
    };
    let failed = |error: std::io::Error| CommandError::failed(format!("cannot write to `{}`: {error}", dir.display()));
    let mut open = vec![command];
    while let Some(command) = open.pop() {
        let name = format!("{}.1", page_name(&command));
        write_user_file(&dir.join(&name), &render(&command)?).map_err(failed)?;
        report.line(&name)?;
        let own = command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
        open.extend(own.cloned());
    }
    Ok(Exit::Success)
}

/// Returns the name of a page: `rye-threads-list`.
fn page_name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).replace(' ', "-")
}

/// Returns the command with the usage line of `--help` as its synopsis. The default synopsis lists every option without
/// its value.
fn with_usage_of_help(mut command: Command) -> Command {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    command.override_usage(usage)
}

fn render(command: &Command) -> Result<Vec<u8>, CommandError> {
    let mut page = Vec::new();
    Man::new(with_usage_of_help(command.clone())).title(page_name(command)).render(&mut page)?;
    Ok(page)
}
