//! `rye threads`: lists, inspects, controls and maintains the threads of a project, of any process.

mod approvals;
mod approve;
mod chain;
pub mod control;
pub mod export;
mod list;
mod prove;
pub mod prune;
mod repair;
mod resume;
mod show;
pub mod tail;
pub mod transcript;
mod verify;
mod wait;

use crate::thread_reader::ThreadReader;
use clap::{Args, Subcommand};

use crate::CommandError;
use crate::exit::Exit;
use crate::options::Global;
use crate::report::Printer;
use crate::workspace::Spaces;

pub use approvals::ApprovalsOutput;
pub use chain::SearchOutput;
pub use control::accepts_messages;
pub use list::{CostOutput, ListOutput};
pub use prove::ProveOutput;
pub use repair::RepairOutput;
pub use show::{ShowOutput, ThreadErrorOutput};
pub use transcript::TranscriptOutput;
pub use verify::VerifyOutput;
pub use wait::WaitOutput;

#[derive(Debug, Args)]
pub struct ThreadsArgs {
    #[command(subcommand)]
    command: ThreadsCommand,
}

#[derive(Debug, Subcommand)]
enum ThreadsCommand {
    /// List threads, newest first
    List(list::ListArgs),
    /// Show a thread: status, limits, capabilities, cost and related threads
    Show(show::ShowArgs),
    /// Print the events of a thread
    Transcript(transcript::TranscriptArgs),
    /// Print the last events of a thread; with `-f`, follow new ones
    Tail(tail::TailArgs),
    /// Show the current status of threads
    Status(wait::ThreadIdsArgs),
    /// Wait for threads to finish, and print their results
    Wait(wait::WaitArgs),
    /// Print the current results of threads, without waiting
    Results(wait::ThreadIdsArgs),
    /// Stop threads after their current step
    Cancel(control::StopArgs),
    /// Stop threads and their tools immediately
    Kill(control::StopArgs),
    /// Send a message to a running thread
    Steer(control::SteerArgs),
    /// List the threads that wait for an approval, with their requests
    Approvals(approvals::ApprovalsArgs),
    /// Answer an approval request of a thread, or raise its limits
    Approve(approve::ApproveArgs),
    /// Resume a thread: an interrupted one as it was, a finished one with a new message
    Resume(resume::ResumeArgs),
    /// Continue a thread in a new thread that starts with the last messages only
    Handoff(resume::HandoffArgs),
    /// List the threads of a continuation chain
    Chain(chain::ChainArgs),
    /// Search the transcripts of a continuation chain
    Search(chain::SearchArgs),
    /// Verify that a thread was started from its sources and sent the planned first request
    Prove(prove::ProveArgs),
    /// Verify the stored files and signatures of threads
    Verify(verify::VerifyThreadsArgs),
    /// Export a thread as a script for `rye run --script`
    Export(export::ExportArgs),
    /// Remove threads that ended long ago
    Prune(prune::PruneArgs),
    /// Rebuild the thread registry from the transcripts
    Repair,
}

impl ThreadsCommand {
    /// Returns true in the background process of `--detach`.
    fn is_detached(&self) -> bool {
        match self {
            Self::Approve(args) => args.run.detached,
            Self::Resume(args) => args.run.detached,
            Self::Handoff(args) => args.run.detached,
            Self::List(_)
            | Self::Show(_)
            | Self::Transcript(_)
            | Self::Tail(_)
            | Self::Status(_)
            | Self::Wait(_)
            | Self::Results(_)
            | Self::Cancel(_)
            | Self::Kill(_)
            | Self::Steer(_)
            | Self::Approvals(_)
            | Self::Chain(_)
            | Self::Search(_)
            | Self::Prove(_)
            | Self::Verify(_)
            | Self::Export(_)
            | Self::Prune(_)
            | Self::Repair => false,
        }
    }
}

pub fn run(args: &ThreadsArgs, global: &Global, report: &Printer) -> Result<Exit, CommandError> {
    let spaces = &Spaces::find(global.project.as_deref())?;
    if !args.command.is_detached() {
        spaces.print_project(report);
    }
    if matches!(args.command, ThreadsCommand::Repair) {
        return repair::run(&spaces.project, report);
    }
    let reader = &ThreadReader::open(&spaces.project)?;
    if let Some(error) = reader.registry_error() {
        report.note(&format!("{error}; reading the transcripts instead"));
    }
    match &args.command {
        ThreadsCommand::List(args) => list::run(args, reader, report),
        ThreadsCommand::Show(args) => show::run(args, reader, report),
        ThreadsCommand::Transcript(args) => transcript::run(args, reader, report),
        ThreadsCommand::Tail(args) => tail::run(args, reader, report),
        ThreadsCommand::Status(args) => wait::status(args, reader, report),
        ThreadsCommand::Wait(args) => wait::wait(args, reader, spaces, report),
        ThreadsCommand::Results(args) => wait::print_results(args, reader, spaces, report),
        ThreadsCommand::Cancel(args) => control::cancel(args, reader, spaces, report),
        ThreadsCommand::Kill(args) => control::kill(args, reader, spaces, report),
        ThreadsCommand::Steer(args) => control::steer(args, reader, report),
        ThreadsCommand::Approvals(args) => approvals::run(args, reader, report),
        ThreadsCommand::Approve(args) => approve::run(args, reader, spaces, report),
        ThreadsCommand::Resume(args) => resume::resume(args, spaces, report),
        ThreadsCommand::Handoff(args) => resume::resume_handoff(args, reader, spaces, report),
        ThreadsCommand::Chain(args) => chain::chain(args, reader, spaces, report),
        ThreadsCommand::Search(args) => chain::search(args, reader, spaces, report),
        ThreadsCommand::Prove(args) => prove::run(args, reader, spaces, report),
        ThreadsCommand::Verify(args) => verify::run(args, reader, spaces, report),
        ThreadsCommand::Export(args) => export::run(args, reader, spaces, report),
        ThreadsCommand::Prune(args) => prune::run(args, reader, report),
        ThreadsCommand::Repair => repair::run(&spaces.project, report),
    }
}
