//! `rye threads resume|handoff`: resumes a thread, or continues it in a new thread.

use clap::Args;
use rye_engine::event::ControlMessage;
use rye_engine::store::registry::Liveness;

use super::control::accepts_messages;
use crate::CommandError;
use crate::command::run::resumed_limits::ResumedLimits;
use crate::command::run::start::{RunOptions, ThreadStart, run_to_end};
use crate::command::run::{detach, select_resume};
use crate::exit::Exit;
use crate::report::Printer;
use crate::thread_reader::ThreadReader;
use crate::thread_reader::reference::ThreadArg;
use crate::workspace::Spaces;

/// Flags of the commands that run an existing thread.
#[derive(Debug, Args)]
pub struct ResumedRunArgs {
    /// Accept a transcript that none of your keys signed; a damaged one is still refused
    #[arg(long)]
    trust_record: bool,
    /// Run in the background; print the thread's id once it runs
    #[arg(long)]
    pub detach: bool,
    #[arg(long, hide = true)]
    pub detached: bool,
}

impl ResumedRunArgs {
    pub fn options(&self) -> RunOptions<'static> {
        RunOptions { detached: self.detached, trust_record: self.trust_record, ..RunOptions::default() }
    }
}

#[derive(Debug, Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    thread: ThreadArg,
    /// Message to the thread; required if the thread has finished
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
    /// Fork the thread at the end of this turn; later turns are left out
    #[arg(long, value_name = "TURN", requires = "message")]
    fork_at: Option<u64>,
    /// Override a limit of the finished thread (repeatable): `turns`, `tokens`, `spend`, `spawns`, `depth`,
    /// `duration_seconds`, `output`
    #[arg(long, value_name = "NAME=VALUE", requires = "message")]
    limit: Vec<String>,
    #[command(flatten)]
    pub run: ResumedRunArgs,
}

#[derive(Debug, Args)]
pub struct HandoffArgs {
    #[command(flatten)]
    thread: ThreadArg,
    #[command(flatten)]
    pub run: ResumedRunArgs,
}

pub fn resume(args: &ResumeArgs, spaces: &Spaces, report: &Printer) -> Result<Exit, CommandError> {
    if args.run.detach {
        return detach::start_detached(false, report);
    }
    let start = select_resume(
        args.thread.select(&ThreadReader::open(&spaces.project)?)?.as_str(),
        args.message.clone(),
        args.fork_at,
        spaces,
    )?;
    let limits = ResumedLimits::read(&args.limit, &start, spaces)?;
    let how = RunOptions { limits: limits.as_ref(), ..args.run.options() };
    run_to_end(start, how, spaces, report)
}

pub fn resume_handoff(
    args: &HandoffArgs,
    reader: &ThreadReader,
    spaces: &Spaces,
    report: &Printer,
) -> Result<Exit, CommandError> {
    if args.run.detach {
        return detach::start_detached(false, report);
    }
    let row = reader.last_of_chain(args.thread.select(reader)?.as_str())?.row;
    accepts_messages(&row)?;
    let id = row.id.clone();
    let how = args.run.options();
    match reader.liveness(&row)? {
        Liveness::Alive => {
            reader.send(&id, &ControlMessage::Handoff)?;
            report.note(&format!("`{id}` continues in a new thread after the current turn"));
            Ok(Exit::Success)
        }
        Liveness::Over if !row.status.is_parked() => {
            run_to_end(ThreadStart::Handoff { thread: id }, how, spaces, report)
        }
        Liveness::Over | Liveness::Orphaned => run_to_end(
            ThreadStart::Recover { thread: id, messages: vec![ControlMessage::Handoff] },
            how,
            spaces,
            report,
        ),
    }
}
