//! `rye acp`: an agent for editors, over the Agent Client Protocol on stdin and stdout.

use std::path::PathBuf;

use clap::Args;

use crate::CommandError;
use crate::exit::Exit;
use crate::options::Global;
use crate::report::Printer;
use crate::run_request::{ChatRequestArgs, RunRequestArgs};
use crate::runtime;

mod agent;
mod closing;
mod connection;
mod disconnection;
mod extension;
mod inputs;
mod lines;
mod map;
mod open_session;
mod options;
mod pending;
mod permission;
mod prompt;
mod session_task;
mod stored;

#[derive(Debug, Args)]
pub struct AcpArgs {
    /// Id of the directive of new sessions (default: `rye/agent/chat`)
    #[arg(value_name = "ID")]
    directive: Option<String>,
    #[command(flatten)]
    call: RunRequestArgs,
    #[command(flatten)]
    session: ChatRequestArgs,
    /// Replace every model with this script
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
}

pub fn run(args: AcpArgs, _: &Global, report: &Printer) -> Result<Exit, CommandError> {
    if args.call.reads_stdin() {
        return Err(CommandError::usage("`--inputs -` is not allowed here: stdin holds the messages of the client"));
    }
    let report = report.clone();
    let runtime = runtime::start_runtime(runtime::WORKERS_FOR_SEVERAL_THREADS)?;
    let served = runtime.block_on(agent::serve(args, report));
    runtime.shutdown_background();
    served?;
    Ok(Exit::Success)
}
