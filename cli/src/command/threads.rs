//! `rye threads …`: what ran and what runs, how it stands, what it cost, what happened; and letters to it, whichever process
//! runs it.

mod act;
mod approvals;
mod approve;
pub mod book;
mod chain;
mod export;
mod go_on;
mod list;
mod prove;
mod prune;
mod repair;
mod show;
mod tail;
mod transcript;
mod verify;
mod wait;

use clap::{Args, Subcommand};

use crate::Failure;
use crate::args::Global;
use crate::exit::Exit;
use crate::report::Report;
use crate::space::Spaces;

pub use act::speaks;
pub use approvals::ApprovalsOutput;
pub use book::Book;
pub use chain::SearchOutput;
pub use list::{CostOutput, ListOutput};
pub use prove::ProveOutput;
pub use repair::RepairOutput;
pub use show::{ErrorOutput, ShowOutput};
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
    /// Every thread of the project, the newest first
    List(list::ListArgs),
    /// One thread: status, limits, capabilities, cost, and its place among the others
    Show(show::ShowArgs),
    /// Everything that happened in a thread
    Transcript(transcript::TranscriptArgs),
    /// The last that happened in a thread, and with `-f` what happens, as it happens
    Tail(tail::TailArgs),
    /// How threads stand now
    Status(wait::LookArgs),
    /// Wait until threads are over, and tell what they came to
    Wait(wait::WaitArgs),
    /// What threads came to so far
    Results(wait::LookArgs),
    /// Stop threads after the step under way
    Cancel(act::StopArgs),
    /// Stop threads at once, and their tools with them
    Kill(act::StopArgs),
    /// Say something to a thread that runs
    Steer(act::SteerArgs),
    /// The queue of threads that wait for somebody's word, and what each asks for
    Approvals(approvals::ApprovalsArgs),
    /// Answer a thread that waits for an approval or stands at a limit
    Approve(approve::ApproveArgs),
    /// Go on with a thread: one that was cut off as it was, one that is over with a new message
    Resume(go_on::ResumeArgs),
    /// Go on in a new thread, with the last messages alone
    Handoff(go_on::HandoffArgs),
    /// The threads that go on from one another
    Chain(chain::ChainArgs),
    /// Look for a pattern in a thread and those it goes on from
    Search(chain::SearchArgs),
    /// Prove from its record and its sources that a thread began as its plan says, byte for byte
    Prove(prove::ProveArgs),
    /// Whether what lies on disk of threads is what was written and signed
    Verify(verify::VerifyArgs),
    /// A thread as a script that `rye run --script` plays again
    Export(export::ExportArgs),
    /// Remove threads that are long over
    Prune(prune::PruneArgs),
    /// Rebuild the registry of threads from their transcripts
    Repair,
}

pub fn run(args: &ThreadsArgs, global: &Global, report: &Report) -> Result<Exit, Failure> {
    let spaces = &Spaces::find(global.project.as_deref())?;
    if matches!(args.command, ThreadsCommand::Repair) {
        return repair::run(&spaces.project, report);
    }
    let book = &Book::open(&spaces.project)?;
    if let Some(trouble) = book.trouble() {
        report.note(&format!("{trouble}; reading the transcripts instead"));
    }
    match &args.command {
        ThreadsCommand::List(args) => list::run(args, book, report),
        ThreadsCommand::Show(args) => show::run(args, book, report),
        ThreadsCommand::Transcript(args) => transcript::run(args, book, report),
        ThreadsCommand::Tail(args) => tail::run(args, book, report),
        ThreadsCommand::Status(args) => wait::status(args, book, report),
        ThreadsCommand::Wait(args) => wait::wait(args, book, spaces, report),
        ThreadsCommand::Results(args) => wait::results(args, book, spaces, report),
        ThreadsCommand::Cancel(args) => act::cancel(args, book, spaces, report),
        ThreadsCommand::Kill(args) => act::kill(args, book, spaces, report),
        ThreadsCommand::Steer(args) => act::steer(args, book, report),
        ThreadsCommand::Approvals(args) => approvals::run(args, book, report),
        ThreadsCommand::Approve(args) => approve::run(args, book, spaces, report),
        ThreadsCommand::Resume(args) => go_on::resume(args, spaces, report),
        ThreadsCommand::Handoff(args) => go_on::handoff(args, book, spaces, report),
        ThreadsCommand::Chain(args) => chain::chain(args, book, spaces, report),
        ThreadsCommand::Search(args) => chain::search(args, book, spaces, report),
        ThreadsCommand::Prove(args) => prove::run(args, book, spaces, report),
        ThreadsCommand::Verify(args) => verify::run(args, book, spaces, report),
        ThreadsCommand::Export(args) => export::run(args, book, spaces, report),
        ThreadsCommand::Prune(args) => prune::run(args, book, report),
        ThreadsCommand::Repair => repair::run(&spaces.project, report),
    }
}
